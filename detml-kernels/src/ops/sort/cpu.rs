//! Host sort: long rows are first parted by their top digit that differs, in parallel, and the
//! parts then sorted in cache by the digits left, lowest first. Every step is stable.

use super::Order;
use crate::device::Scratch;
use crate::ieee::Ieee;
use crate::ops::order::{Kind, rank, stored};
use crate::ops::parallel::{for_chunks, for_each};
use crate::ops::tile::split;
use std::array::from_fn;
use std::mem::{swap, take};
use std::slice::{IterMut, from_ref};

/// Rows up to this length are sorted by comparisons.
const FEW: usize = 256;
/// Rows from this length are worth several threads.
const MANY: usize = 1 << 16;
/// Parts of a row that are sorted with the same memory.
const GROUP: usize = 4;
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
        let short = |keys: &[u32], out: &mut [u32], scratch: &mut Vec<u32>| {
            out.copy_from_slice(keys);
            radix_with(out, scratch, 3, word);
        };
        let long = |keys: &[u32], out: &mut [u32]| {
            let parts = part(keys, out, word, |_, raw| raw);
            let mut outs = split(out, parts.lengths);
            for_each(outs.chunks_mut(GROUP).collect(), &|group| {
                let mut scratch = Vec::new();
                for part in group {
                    radix_with(part, &mut scratch, parts.top, word);
                }
            });
        };
        each_row(keys, out, cols, short, long);
    });
    if kind.is_float() {
        for_chunks(out, MANY, true, &|_, part| {
            for raw in part {
                *raw = stored(Ieee::PLAIN, *raw, true);
            }
        });
    }
}

/// Writes the indices of each row of `keys`, sorted, to `out`.
pub(crate) fn argsort(keys: &[u32], out: &mut [u32], cols: usize, kind: Kind, order: Order) {
    let finish = |pairs: &[u64], out: &mut [u32]| {
        for (p, i) in pairs.iter().zip(out) {
            *i = *p as u32;
        }
    };
    with_word!(kind, order, word => {
        let make = |i: usize, raw: u32| pair(word(raw), i as u32);
        let short =
            |keys: &[u32], out: &mut [u32], (pairs, scratch): &mut (Vec<u64>, Vec<u64>)| {
                pairs.clear();
                pairs.extend(keys.iter().enumerate().map(|(i, raw)| make(i, *raw)));
                radix_with(pairs, scratch, 3, high);
                finish(pairs, out);
            };
        let long = |keys: &[u32], out: &mut [u32]| {
            let mut pairs = Scratch::<u64>::new(keys.len());
            let parts = part(keys, &mut pairs, word, make);
            let mut tasks: Vec<_> = split(&mut pairs, parts.lengths)
                .into_iter()
                .zip(split(out, parts.lengths))
                .collect();
            for_each(tasks.chunks_mut(GROUP).collect(), &|group| {
                let mut scratch = Vec::new();
                for (pairs, out) in group {
                    radix_with(pairs, &mut scratch, parts.top, high);
                    finish(pairs, out);
                }
            });
        };
        each_row(keys, out, cols, short, long);
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
    let mut pairs = Scratch::<u64>::new(keys.len());
    let finish = |pairs: &[u64], keys: &mut [u32], values: &mut [u32]| {
        for ((p, k), v) in pairs.iter().zip(keys).zip(values) {
            *k = stored(Ieee::PLAIN, high(*p), kind.is_float());
            *v = *p as u32;
        }
    };
    with_word!(kind, order, word => {
        let word_of = |p| word(high(p));
        if keys.len() < MANY {
            for ((p, k), v) in pairs.iter_mut().zip(keys).zip(values) {
                *p = pair(*k, *v);
            }
            radix_with(&mut pairs, &mut Vec::new(), 3, word_of);
            finish(&pairs, out_keys, out_values);
        } else {
            let parts = part(keys, &mut pairs, word, |i, raw| pair(raw, values[i]));
            let mut tasks: Vec<_> = split(&mut pairs, parts.lengths)
                .into_iter()
                .zip(split(out_keys, parts.lengths))
                .zip(split(out_values, parts.lengths))
                .collect();
            for_each(tasks.chunks_mut(GROUP).collect(), &|group| {
                let mut scratch = Vec::new();
                for ((pairs, keys), values) in group {
                    radix_with(pairs, &mut scratch, parts.top, word_of);
                    finish(pairs, keys, values);
                }
            });
        }
    });
}

/// Calls `short` with each row of both and some memory, in parallel, or `long`, which is parallel
/// itself, with one row after the other.
fn each_row<S: Default + Send>(
    keys: &[u32],
    out: &mut [u32],
    cols: usize,
    short: impl Fn(&[u32], &mut [u32], &mut S) + Sync,
    long: impl Fn(&[u32], &mut [u32]),
) {
    if cols == 0 {
        return;
    }
    if cols < MANY {
        let task = MANY / cols * cols;
        let tasks = keys.chunks(task).zip(out.chunks_mut(task));
        for_each(tasks.collect(), &|(keys, out)| {
            let mut scratch = S::default();
            for (keys, out) in keys.chunks(cols).zip(out.chunks_mut(cols)) {
                short(keys, out, &mut scratch);
            }
        });
    } else {
        for (keys, out) in keys.chunks(cols).zip(out.chunks_mut(cols)) {
            long(keys, out);
        }
    }
}

/// What [`part`] has left to do.
struct Parts {
    /// Lengths of the parts, the first of the lowest digit.
    lengths: [usize; 256],
    /// Each part is still to be sorted by the digits up to this one.
    top: usize,
}

/// Parts `keys` by the highest digit in which two differ, stably, and writes what `make` makes of
/// each position and key.
fn part<E: Copy + Send + Sync>(
    keys: &[u32],
    out: &mut [E],
    word: impl Fn(u32) -> u32 + Copy + Send + Sync,
    make: impl Fn(usize, u32) -> E + Sync,
) -> Parts {
    let chunk = chunk(keys.len());
    let mut top = 3usize;
    loop {
        let digit = move |raw: u32| (word(raw) >> (8 * top)) as usize & 255;
        let counts = count(keys, chunk, digit);
        let lengths = totals(&counts);
        if top == 0 || !lengths.contains(&keys.len()) {
            pass(keys, out, chunk, &counts, digit, make);
            return Parts {
                lengths,
                // Nothing is left to do below the lowest; by it the parts are in order.
                top: top.saturating_sub(1),
            };
        }
        top -= 1;
    }
}

/// [`radix`] within `data`, with memory that grows as needed.
fn radix_with<E: Copy + Send + Sync>(
    data: &mut [E],
    scratch: &mut Vec<E>,
    top: usize,
    word: impl Fn(E) -> u32 + Copy + Send + Sync,
) {
    if let Some(first) = data.first() {
        if scratch.len() < data.len() {
            scratch.resize(data.len(), *first);
        }
        let scratch = &mut scratch[..data.len()];
        radix(data, scratch, top, true, word);
    }
}

/// Elements of one task of a pass over `len`.
fn chunk(len: usize) -> usize {
    let tasks = if len < MANY {
        1
    } else {
        rayon::current_num_threads()
    };
    len.div_ceil(tasks).max(1)
}

/// The digits of each chunk.
fn count<E: Copy + Send + Sync>(
    data: &[E],
    chunk: usize,
    digit: impl Fn(E) -> usize + Sync,
) -> Vec<Counts> {
    let parts = data.chunks(chunk);
    let mut counts = vec![[0; 256]; parts.len()];
    for_each(parts.zip(&mut counts).collect(), &|(part, counts)| {
        for e in part {
            counts[digit(*e) & 255] += 1;
        }
    });
    counts
}

fn totals(counts: &[Counts]) -> [usize; 256] {
    from_fn(|b| counts.iter().map(|c| c[b] as usize).sum())
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
    let chunk = chunk(from.len());
    let counts = count(from, chunk, digit);
    let totals = totals(&counts);
    match (totals.contains(&from.len()), top) {
        (true, 0) => moved(from, to, false, stay),
        // A digit that all share moves nothing.
        (true, _) => radix(from, to, top - 1, stay, word),
        (false, 0) => {
            pass(from, to, chunk, &counts, digit, |_, e| e);
            moved(from, to, true, stay);
        }
        (false, _) => {
            pass(from, to, chunk, &counts, digit, |_, e| e);
            let parts = split(from, totals).into_iter().zip(split(to, totals));
            for_each(parts.collect(), &|(from, to)| {
                radix(to, from, top - 1, !stay, word);
            });
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
        pass(from, to, from.len(), from_ref(counts), digit, |_, e| e);
        swap(&mut from, &mut to);
        is_moved = !is_moved;
    }
    is_moved
}

/// Writes what `make` makes of every position and element to the next free place of its digit,
/// chunk by chunk of `chunk` elements, whose digits are counted in `counts`; the places of a digit
/// are in the order of the chunks.
fn pass<S: Copy + Sync, E: Send>(
    from: &[S],
    mut to: &mut [E],
    chunk: usize,
    counts: &[Counts],
    digit: impl Fn(S) -> usize + Sync,
    make: impl Fn(usize, S) -> E + Sync,
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
    let parts = from.chunks(chunk).zip(&mut places).enumerate();
    for_each(parts.collect(), &|(task, (from, places))| {
        for (i, e) in from.iter().enumerate() {
            if let Some(place) = places[digit(*e) & 255].next() {
                *place = make(task * chunk + i, *e);
            }
        }
    });
}
