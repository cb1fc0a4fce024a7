//! The contract in a few lines.

use super::Of;

pub(super) fn gather(of: Of, x: &[u32], [rows, columns]: [usize; 2], index: &[u32]) -> Vec<u32> {
    let at = |r: usize, c: usize| {
        if r < rows && c < columns {
            x[r * columns + c]
        } else {
            0
        }
    };
    let mut out = Vec::new();
    match of {
        Of::Rows => {
            for &i in index {
                out.extend((0..columns).map(|c| at(i as usize, c)));
            }
        }
        Of::Columns => {
            for r in 0..rows {
                out.extend(index.iter().map(|&i| at(r, i as usize)));
            }
        }
    }
    out
}
