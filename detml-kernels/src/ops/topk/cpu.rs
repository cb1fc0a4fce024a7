//! Host selection: candidates below a bound that tightens as better ones are found. Blocks whose
//! least rank does not reach the bound are passed over after one vector loop.

use super::Order;
use crate::device::{Loop, Simd};
use crate::ieee::Ieee;
use crate::ops::order::{Kind, rank, stored};
use rayon::prelude::*;

/// Keys of one task within a row, at least; the result does not show it.
const CHUNK: usize = 1 << 16;
/// Keys that are looked at together.
const BLOCK: usize = 256;
/// So many are kept in order; more are collected and now and then cut down.
const FEW: usize = 32;

/// `values` and `indices` have `k` columns, at least one, and as many rows as `x`.
pub(crate) fn topk(
    simd: Simd,
    x: &[u32],
    cols: usize,
    k: usize,
    kind: Kind,
    order: Order,
    values: &mut [u32],
    indices: &mut [u32],
) {
    let keys = Keys {
        simd,
        flip: kind.flip(order),
        float: kind.is_float(),
    };
    // Rows of one task.
    let rows = (CHUNK / cols.max(1)).max(1);
    values
        .par_chunks_mut(k * rows)
        .zip(indices.par_chunks_mut(k * rows))
        .zip(x.par_chunks(cols * rows))
        .for_each(|((values, indices), x)| {
            let mut best = Vec::new();
            let rows = x.chunks(cols);
            for ((values, indices), row) in
                values.chunks_mut(k).zip(indices.chunks_mut(k)).zip(rows)
            {
                best.clear();
                keys.of_row(row, k, &mut best);
                for ((v, i), pair) in values.iter_mut().zip(indices).zip(&best) {
                    *i = *pair as u32;
                    let raw = row.get(*i as usize).copied().unwrap_or_default();
                    *v = stored(Ieee::PLAIN, raw, keys.float);
                }
            }
        });
}

/// How keys are ranked.
#[derive(Clone, Copy)]
struct Keys {
    simd: Simd,
    flip: u32,
    float: bool,
}

/// Writes the ranks of a block and returns the least.
struct Rank<'a> {
    keys: Keys,
    block: &'a [u32],
    ranks: &'a mut [u32],
}

impl Loop for Rank<'_> {
    type Output = u32;

    #[inline(always)]
    fn run(self, _: Ieee) -> u32 {
        let mut least = u32::MAX;
        if self.keys.float {
            for (out, raw) in self.ranks.iter_mut().zip(self.block) {
                *out = rank(Ieee::PLAIN, *raw, self.keys.flip, true);
                least = least.min(*out);
            }
        } else {
            for (out, raw) in self.ranks.iter_mut().zip(self.block) {
                *out = *raw ^ self.keys.flip;
                least = least.min(*out);
            }
        }
        least
    }
}

impl Keys {
    /// The `k` smallest pairs of rank and index, in order.
    fn of_row(self, row: &[u32], k: usize, best: &mut Vec<u64>) {
        if row.len() >= 2 * CHUNK {
            let chunk = row.len().div_ceil(4 * rayon::current_num_threads());
            let chunk = chunk.max(CHUNK);
            let parts: Vec<Vec<u64>> = row
                .par_chunks(chunk)
                .enumerate()
                .map(|(c, part)| {
                    let mut best = Vec::new();
                    self.of_part(part, c * chunk, k, &mut best);
                    best
                })
                .collect();
            best.extend(parts.into_iter().flatten());
        } else {
            self.of_part(row, 0, k, best);
        }
        keep(best, k);
        best.sort_unstable();
    }

    /// The `k` smallest pairs, in any order, after those that `best` may hold.
    fn of_part(self, part: &[u32], first: usize, k: usize, best: &mut Vec<u64>) {
        let room = (4 * k).max(256).min(part.len());
        // Once there are `k`, the rank of the largest of those that are kept: of equal ranks the
        // one seen before comes first.
        let mut bound = None;
        let mut ranks = [0; BLOCK];
        for (b, block) in part.chunks(BLOCK).enumerate() {
            let (keys, ranks) = (self, &mut ranks[..block.len()]);
            let least = self.simd.dispatch(Rank { keys, block, ranks });
            if bound.is_some_and(|bound| least >= bound) {
                continue;
            }
            for (i, &rank) in ((first + b * BLOCK) as u64..).zip(&*ranks) {
                if bound.is_some_and(|bound| rank >= bound) {
                    continue;
                }
                let pair = u64::from(rank) << 32 | i;
                if k <= FEW {
                    if best.len() == k {
                        best.pop();
                    }
                    let at = best.iter().rposition(|p| *p < pair).map_or(0, |at| at + 1);
                    best.insert(at, pair);
                    if best.len() == k {
                        bound = best.last().map(|worst| (worst >> 32) as u32);
                    }
                } else {
                    best.push(pair);
                    if best.len() >= room && best.len() > k {
                        keep(best, k);
                        bound = Some((best[k - 1] >> 32) as u32);
                    }
                }
            }
        }
        keep(best, k);
    }
}

/// Drops all but the `k` smallest, the largest of which becomes the last.
fn keep(best: &mut Vec<u64>, k: usize) {
    if best.len() > k {
        best.select_nth_unstable(k - 1);
        best.truncate(k);
    }
}
