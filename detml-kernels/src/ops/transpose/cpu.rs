//! Square tiles through a buffer on the stack, so that both sides are read and written by whole
//! cache lines, whatever the stride.

use crate::ops::parallel::for_chunks;

const TILE: usize = 32;
/// Words that are worth threads.
const TASK: usize = 1 << 16;

pub(super) fn run(x: &[u32], rows: usize, columns: usize, out: &mut [u32]) {
    let threads = x.len() > TASK;
    let matrix = rows * columns;
    // Rows of the output that make a task.
    let band = TILE * rows;
    for (x, out) in x.chunks(matrix).zip(out.chunks_mut(matrix)) {
        for_chunks(out, band, threads, &|first, out| {
            self::band(x, rows, columns, first / rows, out);
        });
    }
}

/// The rows of the output from `first` on: that many columns of `x`.
fn band(x: &[u32], rows: usize, columns: usize, first: usize, out: &mut [u32]) {
    let width = out.len() / rows;
    let mut tile = [[0u32; TILE]; TILE];
    for r in (0..rows).step_by(TILE) {
        let height = TILE.min(rows - r);
        if height == TILE && width == TILE {
            for (j, line) in tile.iter_mut().enumerate() {
                line.copy_from_slice(&x[(r + j) * columns + first..][..TILE]);
            }
            for c in 0..TILE {
                let to = &mut out[c * rows + r..][..TILE];
                for j in 0..TILE {
                    to[j] = tile[j][c];
                }
            }
        } else {
            for c in 0..width {
                for j in 0..height {
                    out[c * rows + r + j] = x[(r + j) * columns + first + c];
                }
            }
        }
    }
}
