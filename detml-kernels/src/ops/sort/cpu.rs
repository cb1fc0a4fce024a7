//! Host sort: stable passes over 8-bit digits, chunks of the row in parallel.

use super::Order;
use crate::ieee::Ieee;
use crate::ops::order::{Kind, rank, stored};
use rayon::prelude::*;
use std::array::from_fn;
use std::mem::{swap, take};
use std::slice::IterMut;

/// Rows up to this length are sorted by comparisons.
const FEW: usize = 512;
/// Rows from this length are worth several threads.
const MANY: usize = 1 << 16;

type Counts = [u32; 256];

/// Runs `$body` with `$word` the rank of the kind, one copy of the code for each.
macro_rules! with_word {
    ($kind:expr, $order:expr, $word:ident => $body:expr) => {
        with_word!(@ $kind, $order, $word => $body;
            U32 Ascending, U32 Descending, I32 Ascending, I32 Descending,
            F32 Ascending, F32 Descending)
    };
    (@ $kind:expr, $order:expr, $word:ident => $body:expr; $($k:ident $o:ident),+) => {
        match ($kind, $order) {
            $((Kind::$k, Order::$o) => {
                let $word = |raw: u32| {
                    let flip = const { Kind::$k.flip(Order::$o) };
                    rank(Ieee::PLAIN, raw, flip, Kind::$k.is_float())
                };
                $body
            })+
        }
    };
}

/// The high word of a pair: the key, or its order.
#[inline(always)]
fn high(pair: u64) -> u32 {
    (pair >> 32) as u32
}

#[inline(always)]
fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Sorts each row of `data`.
pub(crate) fn sort(data: &mut [u32], cols: usize, kind: Kind, order: Order) {
    with_word!(kind, order, word => {
        each_row(data, cols, |row, scratch: &mut Vec<u32>, threads| {
            scratch.resize(row.len(), 0);
            radix(row, scratch, word, threads);
        });
    });
    if kind == Kind::F32 {
        data.par_chunks_mut(MANY).for_each(|part| {
            for raw in part {
                *raw = stored(Ieee::PLAIN, *raw, true);
            }
        });
    }
}

/// Replaces the keys of each row by the indices of the row, sorted.
pub(crate) fn argsort(data: &mut [u32], cols: usize, kind: Kind, order: Order) {
    with_word!(kind, order, word => {
        each_row(data, cols, |row, (pairs, scratch): &mut (Vec<u64>, Vec<u64>), threads| {
            pairs.clear();
            pairs.extend((0..).zip(row.iter()).map(|(i, raw)| pair(word(*raw), i)));
            scratch.resize(row.len(), 0);
            radix(pairs, scratch, high, threads);
            for (o, p) in row.iter_mut().zip(pairs.iter()) {
                *o = *p as u32;
            }
        });
    });
}

/// Sorts `keys` and moves `values` along.
pub(crate) fn sort_by_key(keys: &mut [u32], values: &mut [u32], kind: Kind, order: Order) {
    let mut pairs: Vec<u64> = keys
        .iter()
        .zip(values.iter())
        .map(|(k, v)| pair(*k, *v))
        .collect();
    let mut scratch = vec![0; pairs.len()];
    let threads = threads(pairs.len());
    with_word!(kind, order, word => {
        radix(&mut pairs, &mut scratch, |p| word(high(p)), threads);
    });
    for ((k, v), p) in keys.iter_mut().zip(values).zip(pairs) {
        *k = stored(Ieee::PLAIN, high(p), kind.is_float());
        *v = p as u32;
    }
}

fn threads(len: usize) -> usize {
    if len < MANY {
        1
    } else {
        rayon::current_num_threads()
    }
}

/// Calls `work` with each row, memory of its own and the number of threads it may use: rows in
/// parallel where there are enough of them, else parts of a row.
fn each_row<S: Default + Send>(
    data: &mut [u32],
    cols: usize,
    work: impl Fn(&mut [u32], &mut S, usize) + Sync,
) {
    if cols == 0 {
        return;
    }
    let threads = threads(cols);
    if data.len() / cols >= 2 * threads {
        data.par_chunks_mut(cols)
            .for_each_init(S::default, |scratch, row| work(row, scratch, 1));
    } else {
        let mut scratch = S::default();
        for row in data.chunks_mut(cols) {
            work(row, &mut scratch, threads);
        }
    }
}

/// Sorts `data` by `word`, stably. `scratch` has the same length.
fn radix<E: Copy + Send + Sync + Default>(
    data: &mut [E],
    scratch: &mut [E],
    word: impl Fn(E) -> u32 + Copy + Send + Sync,
    threads: usize,
) {
    if data.len() <= FEW {
        data.sort_by_key(|e| word(*e));
        return;
    }
    let chunk = data.len().div_ceil(threads.max(1));
    let chunks = |f: &(dyn Fn(&[E]) -> [Counts; 4] + Sync), data: &[E]| -> Vec<[Counts; 4]> {
        if chunk >= data.len() {
            vec![f(data)]
        } else {
            data.par_chunks(chunk).map(f).collect()
        }
    };
    let mut counts = chunks(
        &|part| {
            let mut counts = [[0u32; 256]; 4];
            for e in part {
                let w = word(*e);
                for (d, counts) in counts.iter_mut().enumerate() {
                    counts[(w >> (8 * d)) as usize & 255] += 1;
                }
            }
            counts
        },
        data,
    );
    let totals: [Counts; 4] =
        from_fn(|d| from_fn(|b| counts.iter().map(|chunk| chunk[d][b]).sum()));
    let (mut from, mut to) = (data, scratch);
    let mut passes = 0;
    for d in 0..4 {
        let digit = move |e: E| (word(e) >> (8 * d)) as usize & 255;
        // A digit that all keys share moves nothing.
        if totals[d].iter().any(|c| *c as usize == from.len()) {
            continue;
        }
        if passes > 0 && counts.len() > 1 {
            // The chunks hold other keys than when they were counted.
            counts = chunks(
                &|part| {
                    let mut counts = [[0u32; 256]; 4];
                    for e in part {
                        counts[d][digit(*e)] += 1;
                    }
                    counts
                },
                from,
            );
        }
        pass(from, to, chunk, counts.iter().map(|c| &c[d]), digit);
        swap(&mut from, &mut to);
        passes += 1;
    }
    if passes % 2 == 1 {
        to.copy_from_slice(from);
    }
}

/// Moves every element to the next free place of its digit; places of a digit are ordered by
/// chunk.
fn pass<'a, E: Copy + Send + Sync>(
    from: &[E],
    mut to: &mut [E],
    chunk: usize,
    counts: impl Iterator<Item = &'a Counts>,
    digit: impl Fn(E) -> usize + Sync,
) {
    let counts: Vec<&Counts> = counts.collect();
    let mut places: Vec<[IterMut<'_, E>; 256]> = counts
        .iter()
        .map(|_| from_fn(|_| IterMut::default()))
        .collect();
    for b in 0..256 {
        for (places, counts) in places.iter_mut().zip(&counts) {
            let (head, tail) = take(&mut to).split_at_mut(counts[b] as usize);
            places[b] = head.iter_mut();
            to = tail;
        }
    }
    let scatter = |from: &[E], places: &mut [IterMut<'_, E>; 256]| {
        for e in from {
            if let Some(place) = places[digit(*e) & 255].next() {
                *place = *e;
            }
        }
    };
    if let [places] = &mut places[..] {
        scatter(from, places);
    } else {
        from.par_chunks(chunk)
            .zip(&mut places)
            .for_each(|(from, places)| scatter(from, places));
    }
}
