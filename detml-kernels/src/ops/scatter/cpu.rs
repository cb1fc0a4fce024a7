//! Threads own rows of the output, each with the position of its winner.

use rayon::prelude::*;

/// Words that are worth threads.
const TASK: usize = 1 << 16;

pub(super) fn run(out: &mut [u32], columns: usize, index: &[u32], x: &[u32]) {
    if x.len() <= TASK {
        for (&i, x) in index.iter().zip(x.chunks_exact(columns)) {
            if let Some(row) = out.chunks_exact_mut(columns).nth(i as usize) {
                row.copy_from_slice(x);
            }
        }
        return;
    }
    let mut winner = vec![0usize; out.len() / columns];
    for (position, &i) in index.iter().enumerate() {
        if let Some(winner) = winner.get_mut(i as usize) {
            *winner = position + 1;
        }
    }
    let rows = (TASK / columns).max(1);
    out.par_chunks_mut(rows * columns)
        .zip(winner.par_chunks(rows))
        .for_each(|(out, winner)| {
            for (out, &winner) in out.chunks_exact_mut(columns).zip(winner) {
                if let Some(position) = winner.checked_sub(1) {
                    out.copy_from_slice(&x[position * columns..][..columns]);
                }
            }
        });
}
