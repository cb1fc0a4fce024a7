//! Host loops: sums of chunks, then every chunk from its own base.

use crate::device::words;
use crate::ops::tile::split;
use rayon::prelude::*;

/// Elements of one task; the result does not show it.
const CHUNK: usize = 1 << 16;

fn sum(x: &[u32]) -> u32 {
    x.iter().fold(0, |s, v| s.wrapping_add(*v))
}

/// Writes the prefix sums of `x` and returns the sum.
pub(crate) fn scan(x: &[u32], out: &mut [u32], inclusive: bool) -> u32 {
    if x.len() <= CHUNK {
        return scan_from(0, x, out, inclusive);
    }
    let mut total = 0u32;
    let bases: Vec<u32> = x
        .par_chunks(CHUNK)
        .map(sum)
        .collect::<Vec<_>>()
        .into_iter()
        .map(|s| {
            let base = total;
            total = total.wrapping_add(s);
            base
        })
        .collect();
    out.par_chunks_mut(CHUNK)
        .zip(x.par_chunks(CHUNK))
        .zip(bases)
        .for_each(|((out, x), base)| {
            scan_from(base, x, out, inclusive);
        });
    total
}

fn scan_from(base: u32, x: &[u32], out: &mut [u32], inclusive: bool) -> u32 {
    let mut sum = base;
    for (o, v) in out.iter_mut().zip(x) {
        let next = sum.wrapping_add(*v);
        *o = if inclusive { next } else { sum };
        sum = next;
    }
    sum
}

fn counts(flags: &[u32]) -> Vec<usize> {
    flags
        .par_chunks(CHUNK)
        .map(|c| c.iter().filter(|f| **f != 0).count())
        .collect()
}

pub(crate) fn compact(flags: &[u32]) -> Vec<u32> {
    let counts = counts(flags);
    let mut indices = words(counts.iter().sum());
    split(&mut indices, counts)
        .into_par_iter()
        .zip(flags.par_chunks(CHUNK))
        .enumerate()
        .for_each(|(chunk, (out, flags))| {
            // Every index is written, and the next one over it unless its flag is set: flags in
            // no order would defeat the prediction of a branch.
            let mut rank = 0;
            for (i, f) in flags.iter().enumerate() {
                if let Some(o) = out.get_mut(rank) {
                    *o = (chunk * CHUNK + i) as u32;
                }
                rank += usize::from(*f != 0);
            }
        });
    indices
}

pub(crate) fn partition(flags: &[u32]) -> (Vec<u32>, u32) {
    let counts = counts(flags);
    let left: usize = counts.iter().sum();
    let mut indices = words(flags.len());
    let (set, clear) = indices.split_at_mut(left);
    let clear_counts = counts
        .iter()
        .zip(flags.chunks(CHUNK))
        .map(|(c, flags)| flags.len() - c);
    let clear = split(clear, clear_counts);
    split(set, counts.iter().copied())
        .into_par_iter()
        .zip(clear)
        .zip(flags.par_chunks(CHUNK))
        .enumerate()
        .for_each(|(chunk, ((set, clear), flags))| {
            let mut places = [set.iter_mut(), clear.iter_mut()];
            for (i, f) in flags.iter().enumerate() {
                if let Some(place) = places[usize::from(*f == 0)].next() {
                    *place = (chunk * CHUNK + i) as u32;
                }
            }
        });
    (indices, left as u32)
}
