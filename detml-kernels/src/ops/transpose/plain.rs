//! The contract in a few lines.

pub(super) fn transpose(x: &[u32], rows: usize, columns: usize) -> Vec<u32> {
    let mut out = Vec::new();
    for c in 0..columns {
        for r in 0..rows {
            out.push(x[r * columns + c]);
        }
    }
    out
}
