//! Rows are copied whole; columns element by element, row after row.

use super::Of;
use crate::ops::parallel::for_chunks;

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
    for_chunks(out, rows * width, threads, &|at, out| match of {
        Of::Rows if width == 1 => {
            for (out, &i) in out.iter_mut().zip(&index[at..]) {
                *out = x.get(i as usize).copied().unwrap_or(0);
            }
        }
        Of::Rows => {
            for (out, &i) in out.chunks_exact_mut(width).zip(&index[at / width..]) {
                match x.get(i as usize * columns..).and_then(|x| x.get(..width)) {
                    Some(row) => out.copy_from_slice(row),
                    None => out.fill(0),
                }
            }
        }
        Of::Columns => {
            for (r, out) in out.chunks_exact_mut(width).enumerate() {
                let row = &x[(at / width + r) * columns..][..bound];
                for (out, &i) in out.iter_mut().zip(index) {
                    *out = row.get(i as usize).copied().unwrap_or(0);
                }
            }
        }
    });
}
