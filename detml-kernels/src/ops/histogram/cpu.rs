//! Host loops: a histogram of every chunk, then their merge. Integers commute, so the chunks may
//! follow the number of threads.

use crate::ieee::Ieee;
use rayon::prelude::*;

/// A histogram of `n_bins` bins, all `zero`, to which `add` has applied every bin number and word.
fn fold<T: Copy + Send + Sync>(
    bins: &[u32],
    words: &[u32],
    n_bins: usize,
    zero: T,
    add: impl Fn(&mut T, u32) + Sync,
    merge: impl Fn(T, T) -> T + Sync + Send,
) -> Vec<T> {
    // A chunk is worth its histogram.
    let chunk = bins
        .len()
        .div_ceil(rayon::current_num_threads())
        .max(1 << 16)
        .max(4 * n_bins);
    let one = |(bins, words): (&[u32], &[u32])| {
        let mut histogram = vec![zero; n_bins];
        for (b, w) in bins.iter().zip(words) {
            if let Some(t) = histogram.get_mut(*b as usize) {
                add(t, *w);
            }
        }
        histogram
    };
    if bins.len() <= chunk {
        return one((bins, words));
    }
    bins.par_chunks(chunk)
        .zip(words.par_chunks(chunk))
        .map(one)
        .reduce_with(|mut a, b| {
            for (a, b) in a.iter_mut().zip(b) {
                *a = merge(*a, b);
            }
            a
        })
        .unwrap_or_default()
}

pub(crate) fn counts(bins: &[u32], n_bins: usize) -> Vec<u32> {
    fold(bins, bins, n_bins, 0u32, |c, _| *c += 1, |a, b| a + b)
}

pub(crate) fn sums(bins: &[u32], weights: &[u32], signed: bool, n_bins: usize) -> Vec<i64> {
    let merge = |a: i64, b: i64| a + b;
    if signed {
        let add = |s: &mut i64, w: u32| *s += i64::from(w as i32);
        fold(bins, weights, n_bins, 0i64, add, merge)
    } else {
        let add = |s: &mut i64, w: u32| *s += i64::from(w);
        fold(bins, weights, n_bins, 0i64, add, merge)
    }
}

pub(crate) fn extremes(bins: &[u32], values: &[f32], n_bins: usize) -> (Vec<f32>, Vec<f32>) {
    let ieee = Ieee::PLAIN;
    // The keys of NaN and of no number, so that a bin without numbers reads NaN.
    let keys = fold(
        bins,
        bytemuck::cast_slice(values),
        n_bins,
        (u32::MAX, 0u32),
        |(min, max), word| {
            let key = ieee.total_key(f32::from_bits(word));
            if key != u32::MAX {
                *min = key.min(*min);
                *max = key.max(*max);
            }
        },
        |a, b| (a.0.min(b.0), a.1.max(b.1)),
    );
    keys.into_iter()
        .map(|(min, max)| (ieee.from_total_key(min), ieee.from_total_key(max)))
        .unzip()
}
