//! Threads own rows of the output and go through the whole index in order, so that the last of
//! equal ones stays.

use crate::ops::parallel::for_chunks;

/// Words that are worth threads.
const TASK: usize = 1 << 16;

pub(super) fn run(out: &mut [u32], columns: usize, index: &[u32], x: &[u32]) {
    let threads = match x.len() > TASK {
        true => rayon::current_num_threads(),
        false => 1,
    };
    let rows = (out.len() / columns).div_ceil(threads).max(1);
    for_chunks(out, rows * columns, threads > 1, &|at, out| {
        let first = at / columns;
        if columns == 1 {
            for (&i, &x) in index.iter().zip(x) {
                if let Some(out) = out.get_mut((i as usize).wrapping_sub(first)) {
                    *out = x;
                }
            }
            return;
        }
        let rows = out.len() / columns;
        for (&i, x) in index.iter().zip(x.chunks_exact(columns)) {
            let row = (i as usize).wrapping_sub(first);
            if row < rows {
                out[row * columns..][..columns].copy_from_slice(x);
            }
        }
    });
}
