//! Host sort: long rows are first parted by their top digits, in parallel, until the parts fit
//! the cache; there they are sorted by the digits left, lowest first. Every step is stable.

use super::Order;
use crate::ieee::Ieee;
use crate::ops::order::{Kind, rank, stored};
use crate::ops::tile::split;
use rayon::prelude::*;
use std::array::from_fn;
use std::mem::{swap, take};
use std::slice::{IterMut, from_ref};

/// Rows up to this length are sorted by comparisons.
const FEW: usize = 256;
/// Rows from this length are worth several threads.
const MANY: usize = 1 << 16;
/// Bytes that a core keeps close.
const CACHE: usize = 1 << 20;

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

/// Writes each row of `keys` sorted to `out`.
pub(crate) fn sort(keys: &[u32], out: &mut [u32], cols: usize, kind: Kind, order: Order) {
    with_word!(kind, order, word => {
        each_row(keys, out, cols, |keys, out, scratch: &mut Vec<u32>| {
            each_part(keys, out, |_, keys, out| out.copy_from_slice(keys));
            scratch.resize(keys.len(), 0);
            radix(out, scratch, 3, true, word);
        });
    });
    if kind.is_float() {
        out.par_chunks_mut(MANY).for_each(|part| {
            for raw in part {
                *raw = stored(Ieee::PLAIN, *raw, true);
            }
        });
    }
}

/// Writes the indices of each row of `keys`, sorted, to `out`.
pub(crate) fn argsort(keys: &[u32], out: &mut [u32], cols: usize, kind: Kind, order: Order) {
    with_word!(kind, order, word => {
        each_row(keys, out, cols, |keys, out, (pairs, scratch): &mut (Vec<u64>, Vec<u64>)| {
            pairs.resize(keys.len(), 0);
            scratch.resize(keys.len(), 0);
            each_part(keys, pairs, |at, keys, pairs| {
                for ((i, raw), p) in (at as u32..).zip(keys).zip(pairs) {
                    *p = pair(word(*raw), i);
                }
            });
            radix(pairs, scratch, 3, true, high);
            each_part(pairs, out, |_, pairs, out| {
                for (p, i) in pairs.iter().zip(out) {
                    *i = *p as u32;
                }
            });
        });
    });
}

/// Writes `keys` sorted to `out_keys` and `values` moved along to `out_values`.
pub(crate) fn sort_by_key(
    keys: &[u32],
    values: &[u32],
    out_keys: &mut [u32],
    out_values: &mut [u32],
    kind: Kind,
    order: Order,
) {
    let mut pairs = vec![0; keys.len()];
    let mut scratch = vec![0; keys.len()];
    each_part(keys, &mut pairs, |at, keys, pairs| {
        for ((k, v), p) in keys.iter().zip(&values[at..]).zip(pairs) {
            *p = pair(*k, *v);
        }
    });
    with_word!(kind, order, word => {
        radix(&mut pairs, &mut scratch, 3, true, |p| word(high(p)));
    });
    each_part(&pairs, out_keys, |_, pairs, keys| {
        for (p, k) in pairs.iter().zip(keys) {
            *k = stored(Ieee::PLAIN, high(*p), kind.is_float());
        }
    });
    each_part(&pairs, out_values, |_, pairs, values| {
        for (p, v) in pairs.iter().zip(values) {
            *v = *p as u32;
        }
    });
}

/// Calls `work` with each row of both and memory of its own: short rows in parallel, long ones one
/// by one.
fn each_row<S: Default + Send>(
    keys: &[u32],
    out: &mut [u32],
    cols: usize,
    work: impl Fn(&[u32], &mut [u32], &mut S) + Sync,
) {
    if cols == 0 {
        return;
    }
    if cols < MANY {
        keys.par_chunks(cols)
            .zip(out.par_chunks_mut(cols))
            .for_each_init(S::default, |scratch, (keys, out)| work(keys, out, scratch));
    } else {
        let mut scratch = S::default();
        for (keys, out) in keys.chunks(cols).zip(out.chunks_mut(cols)) {
            work(keys, out, &mut scratch);
        }
    }
}

/// Calls `work` with where parts of `a` and `b` start and the parts, in parallel.
fn each_part<A: Sync, B: Send>(a: &[A], b: &mut [B], work: impl Fn(usize, &[A], &mut [B]) + Sync) {
    a.par_chunks(MANY)
        .zip(b.par_chunks_mut(MANY))
        .enumerate()
        .for_each(|(part, (a, b))| work(part * MANY, a, b));
}

/// Sorts `from` stably by the digits up to `top` of `word`, whose higher digits are all equal. The
/// result is in `from` if it is to `stay`, else in `to`, which is as long.
fn radix<E: Copy + Send + Sync>(
    from: &mut [E],
    to: &mut [E],
    top: usize,
    stay: bool,
    word: impl Fn(E) -> u32 + Copy + Send + Sync,
) {
    if from.len() <= FEW {
        from.sort_by_key(|e| word(*e));
        return moved(from, to, false, stay);
    }
    if size_of_val(from) <= CACHE {
        let is_moved = lowest_first(from, to, top, word);
        return moved(from, to, is_moved, stay);
    }
    let digit = move |e: E| (word(e) >> (8 * top)) as usize & 255;
    let threads = if from.len() < MANY {
        1
    } else {
        rayon::current_num_threads()
    };
    let chunk = from.len().div_ceil(threads);
    let counts: Vec<Counts> = from
        .par_chunks(chunk)
        .map(|part| {
            let mut counts = [0; 256];
            for e in part {
                counts[digit(*e)] += 1;
            }
            counts
        })
        .collect();
    let totals: [usize; 256] = from_fn(|b| counts.iter().map(|c| c[b] as usize).sum());
    match (totals.contains(&from.len()), top) {
        (true, 0) => moved(from, to, false, stay),
        // A digit that all share moves nothing.
        (true, _) => radix(from, to, top - 1, stay, word),
        (false, 0) => {
            pass(from, to, chunk, &counts, digit);
            moved(from, to, true, stay);
        }
        (false, _) => {
            pass(from, to, chunk, &counts, digit);
            split(from, totals)
                .into_par_iter()
                .zip(split(to, totals))
                .for_each(|(from, to)| radix(to, from, top - 1, !stay, word));
        }
    }
}

/// Puts a result that is in `to` if it `is_moved` where it belongs.
fn moved<E: Copy>(from: &mut [E], to: &mut [E], is_moved: bool, stay: bool) {
    match (is_moved, stay) {
        (true, true) => from.copy_from_slice(to),
        (false, false) => to.copy_from_slice(from),
        _ => {}
    }
}

/// Sorts by the digits up to `top`, the lowest first, and says whether the result is in `to`.
fn lowest_first<'a, E: Copy + Send + Sync>(
    mut from: &'a mut [E],
    mut to: &'a mut [E],
    top: usize,
    word: impl Fn(E) -> u32 + Copy + Send + Sync,
) -> bool {
    let mut counts = [[0; 256]; 4];
    for e in from.iter() {
        let w = word(*e);
        for (d, counts) in counts.iter_mut().enumerate().take(top + 1) {
            counts[(w >> (8 * d)) as usize & 255] += 1;
        }
    }
    let mut is_moved = false;
    for (d, counts) in counts.iter().enumerate().take(top + 1) {
        if counts.contains(&(from.len() as u32)) {
            continue;
        }
        let digit = move |e: E| (word(e) >> (8 * d)) as usize & 255;
        pass(from, to, from.len(), from_ref(counts), digit);
        swap(&mut from, &mut to);
        is_moved = !is_moved;
    }
    is_moved
}

/// Moves every element to the next free place of its digit, chunk by chunk of `chunk` elements,
/// whose digits are counted in `counts`; the places of a digit are in the order of the chunks.
fn pass<E: Copy + Send + Sync>(
    from: &[E],
    mut to: &mut [E],
    chunk: usize,
    counts: &[Counts],
    digit: impl Fn(E) -> usize + Sync,
) {
    let mut places: Vec<[IterMut<'_, E>; 256]> = counts
        .iter()
        .map(|_| from_fn(|_| IterMut::default()))
        .collect();
    for b in 0..256 {
        for (places, counts) in places.iter_mut().zip(counts) {
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
