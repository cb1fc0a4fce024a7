//! Rows are copied whole; columns element by element, row after row.

use super::Of;
use rayon::prelude::*;

/// Words that are worth a task of their own.
const TASK: usize = 1 << 15;

/// Fills `out`, rows of `width` words.
pub(super) fn run(
    of: Of,
    x: &[u32],
    columns: usize,
    index: &[u32],
    bound: usize,
    width: usize,
    out: &mut [u32],
) {
    let rows = (TASK / width).max(1);
    let threads = out.len() > TASK;
    let task = |first: usize, out: &mut [u32]| match of {
        Of::Rows => {
            for (out, &i) in out.chunks_exact_mut(width).zip(&index[first..]) {
                match x.get(i as usize * columns..).and_then(|x| x.get(..width)) {
                    Some(row) => out.copy_from_slice(row),
                    None => out.fill(0),
                }
            }
        }
        Of::Columns => {
            for (r, out) in out.chunks_exact_mut(width).enumerate() {
                let row = &x[(first + r) * columns..][..bound];
                for (out, &i) in out.iter_mut().zip(index) {
                    *out = row.get(i as usize).copied().unwrap_or(0);
                }
            }
        }
    };
    if threads {
        out.par_chunks_mut(rows * width)
            .enumerate()
            .for_each(|(i, out)| task(i * rows, out));
    } else {
        task(0, out);
    }
}
