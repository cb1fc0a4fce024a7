//! Host selection: candidates below a bound that tightens as better ones are found.

use super::Order;
use crate::ieee::Ieee;
use crate::ops::order::{Kind, rank, stored};
use rayon::prelude::*;

/// Keys of one task within a row; the result does not show it.
const CHUNK: usize = 1 << 16;

/// `values` and `indices` have `k` columns, at least one, and as many rows as `x`.
pub(crate) fn topk(
    x: &[u32],
    cols: usize,
    k: usize,
    kind: Kind,
    order: Order,
    values: &mut [u32],
    indices: &mut [u32],
) {
    let flip = kind.flip(order);
    values
        .par_chunks_mut(k)
        .zip(indices.par_chunks_mut(k))
        .zip(x.par_chunks(cols))
        .for_each(|((values, indices), row)| {
            let best = if kind.is_float() {
                of_row(row, k, |raw| rank(Ieee::PLAIN, raw, flip, true))
            } else {
                of_row(row, k, |raw| raw ^ flip)
            };
            for ((v, i), pair) in values.iter_mut().zip(indices).zip(best) {
                *i = pair as u32;
                let raw = row.get(*i as usize).copied().unwrap_or_default();
                *v = stored(Ieee::PLAIN, raw, kind.is_float());
            }
        });
}

/// The `k` smallest pairs of rank and index, in order.
fn of_row(row: &[u32], k: usize, word: impl Fn(u32) -> u32 + Copy + Sync) -> Vec<u64> {
    let mut best = if row.len() >= 2 * CHUNK {
        row.par_chunks(CHUNK)
            .enumerate()
            .flat_map_iter(|(c, part)| of_part(part, c * CHUNK, k, word))
            .collect()
    } else {
        of_part(row, 0, k, word)
    };
    keep(&mut best, k);
    best.sort_unstable();
    best
}

/// The `k` smallest pairs, in any order.
fn of_part(part: &[u32], first: usize, k: usize, word: impl Fn(u32) -> u32) -> Vec<u64> {
    let room = (4 * k).max(256).min(part.len());
    let mut best: Vec<u64> = Vec::with_capacity(room);
    let mut bound = u64::MAX;
    for (i, raw) in (first as u64..).zip(part) {
        let pair = u64::from(word(*raw)) << 32 | i;
        if pair < bound {
            best.push(pair);
            if best.len() >= room && best.len() > k {
                keep(&mut best, k);
                bound = best[k - 1];
            }
        }
    }
    keep(&mut best, k);
    best
}

/// Drops all but the `k` smallest, the largest of which becomes the last.
fn keep(best: &mut Vec<u64>, k: usize) {
    if best.len() > k {
        best.select_nth_unstable(k - 1);
        best.truncate(k);
    }
}
