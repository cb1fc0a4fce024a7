//! Cuts a feature's values into bins at exact quantiles.
//!
//! Only integers and comparisons are used, on the host for every backend. A feature's distinct
//! values are found by sorting all of them, so neither the order of the rows nor the number of
//! threads shows. -0 equals +0; infinities are values like others; NaN is missing.

use detml_core::Result;
use detml_kernels::ops::boosting::{Bins, MISSING};
use ndarray::ArrayView2;
use rayon::prelude::*;

/// Features whose columns are read at once: half a cache line of `f32`.
const TOGETHER: usize = 8;
/// Rows binned at once.
const ROWS: usize = 4096;

/// For each feature the thresholds between its bins: a value lies in the first bin whose
/// threshold it doesn't exceed, or in the last one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cuts {
    features: Vec<Feature>,
}

#[derive(Clone, Debug, PartialEq)]
struct Feature {
    /// Ascending, one fewer than bins.
    thresholds: Vec<f32>,
    /// 0 if every value is missing.
    bins: u16,
}

impl Cuts {
    /// At most `max_bins` (2 to 255) bins a feature, of about equal weight.
    pub(crate) fn new(x: ArrayView2<'_, f32>, weights: Option<&[f32]>, max_bins: usize) -> Self {
        let counts = weights.map(counts_of);
        let columns: Vec<usize> = (0..x.ncols()).collect();
        let features = columns
            .par_chunks(TOGETHER)
            .flat_map(|columns| {
                let mut keys = vec![Vec::with_capacity(x.nrows()); columns.len()];
                for row in x.rows() {
                    for (keys, &column) in keys.iter_mut().zip(columns) {
                        keys.push(key(row[column]));
                    }
                }
                keys.into_par_iter()
                    .map(|keys| cut(distinct(keys, counts.as_deref()), max_bins))
            })
            .collect();
        Self { features }
    }

    /// The greatest value that a split at `bin` sends to the left: a value that doesn't exceed it
    /// lies in this bin or one before. After the last bin every value does.
    pub(crate) fn threshold(&self, feature: usize, bin: u8) -> f32 {
        let thresholds = &self.features[feature].thresholds;
        thresholds
            .get(usize::from(bin))
            .copied()
            .unwrap_or(f32::INFINITY)
    }

    /// The bins of a table of these features.
    pub(crate) fn bin(&self, x: ArrayView2<'_, f32>) -> Result<Bins> {
        let width = self.features.len();
        let tables: Vec<Table> = self.features.iter().map(Table::new).collect();
        let mut codes = vec![0; x.nrows() * width];
        if width > 0 {
            codes
                .par_chunks_mut(ROWS * width)
                .enumerate()
                .for_each(|(i, codes)| {
                    for (row, codes) in (i * ROWS..).zip(codes.chunks_exact_mut(width)) {
                        for ((code, &value), table) in codes.iter_mut().zip(x.row(row)).zip(&tables)
                        {
                            *code = table.code(value);
                        }
                    }
                });
        }
        let counts = self.features.iter().map(|feature| feature.bins).collect();
        Bins::new(x.nrows(), codes, counts)
    }
}

/// A feature's thresholds, filled up to 255 for a search without branches.
struct Table {
    thresholds: Box<[f32; 255]>,
    /// The code of a NaN's opposite: `MISSING` where the training set had no value at all.
    none: u8,
}

impl Table {
    fn new(feature: &Feature) -> Self {
        let mut thresholds = Box::new([f32::INFINITY; 255]);
        thresholds[..feature.thresholds.len()].copy_from_slice(&feature.thresholds);
        Self {
            thresholds,
            none: if feature.bins == 0 { MISSING } else { 0 },
        }
    }

    /// The number of thresholds that `value` exceeds.
    #[inline]
    fn code(&self, value: f32) -> u8 {
        let mut below = 0;
        for step in [128, 64, 32, 16, 8, 4, 2, 1] {
            let next = below + step;
            below = if value > self.thresholds[next - 1] {
                next
            } else {
                below
            };
        }
        let missing = if value.is_nan() { MISSING } else { self.none };
        below as u8 | missing
    }
}

/// Words in the order of numbers, both zeros alike; NaN last.
fn key(value: f32) -> u32 {
    let bits = (value + 0.0).to_bits();
    if value.is_nan() {
        u32::MAX
    } else if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    }
}

fn value(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 { key ^ 1 << 31 } else { !key })
}

/// Weights as integers: multiples of the power of two that puts the largest into
/// `2^29 .. 2^30`, at least one. Their sum over fewer than `2^32` rows is below `2^62`.
fn counts_of(weights: &[f32]) -> Vec<u32> {
    let largest = weights
        .iter()
        .fold(0, |largest, w| w.to_bits().max(largest));
    let exponent = exponent(largest);
    weights
        .iter()
        .map(|&w| {
            // Both factors are powers of two and binary64 has room for the product: exact.
            let scaled = f64::from(w) * f64::from_bits(((1023 + 29 - exponent) as u64) << 52);
            (scaled.round_ties_even() as u32).max(1)
        })
        .collect()
}

/// The `e` of `2^e <= x < 2^(e+1)` of a positive number's bits.
fn exponent(bits: u32) -> i64 {
    match bits >> 23 {
        0 => -118 - i64::from(bits.leading_zeros()),
        e => i64::from(e) - 127,
    }
}

/// The distinct values and how much weight each has, ascending; without missing ones.
fn distinct(mut keys: Vec<u32>, counts: Option<&[u32]>) -> Vec<(u32, u64)> {
    let mut found: Vec<(u32, u64)> = Vec::new();
    let mut add = |key: u32, count: u64| {
        if key == u32::MAX {
            return;
        }
        match found.last_mut() {
            Some(last) if last.0 == key => last.1 += count,
            _ => found.push((key, count)),
        }
    };
    match counts {
        None => {
            sort(&mut keys, |key| key);
            keys.into_iter().for_each(|key| add(key, 1));
        }
        Some(counts) => {
            let mut pairs: Vec<(u32, u32)> = keys.into_iter().zip(counts.iter().copied()).collect();
            sort(&mut pairs, |pair| pair.0);
            pairs
                .into_iter()
                .for_each(|(key, count)| add(key, count.into()));
        }
    }
    found
}

/// Sorts by 32-bit keys, digit by digit from the lowest.
fn sort<T: Copy + Default>(items: &mut Vec<T>, key: impl Fn(T) -> u32) {
    const BITS: u32 = 11;
    const DIGITS: usize = 3;
    let digit = |item: T, at: usize| (key(item) >> (BITS * at as u32)) as usize % (1 << BITS);
    let mut counts = vec![[0usize; 1 << BITS]; DIGITS];
    for &item in &*items {
        for (at, counts) in counts.iter_mut().enumerate() {
            counts[digit(item, at)] += 1;
        }
    }
    let mut sorted = vec![T::default(); items.len()];
    for (at, counts) in counts.iter_mut().enumerate() {
        if counts.contains(&items.len()) {
            continue;
        }
        let mut start = 0;
        for count in counts.iter_mut() {
            (*count, start) = (start, start + *count);
        }
        for &item in &*items {
            let place = &mut counts[digit(item, at)];
            sorted[*place] = item;
            *place += 1;
        }
        std::mem::swap(items, &mut sorted);
    }
}

/// Cuts distinct values into at most `max_bins` bins.
///
/// As long as there are more values than bins left, a bin takes values until it holds its share
/// (what is left by the bins left) or the next value alone would fill one: so heavy values get
/// bins of their own, and what they leave is shared anew.
fn cut(distinct: Vec<(u32, u64)>, max_bins: usize) -> Feature {
    let mut thresholds = Vec::new();
    let mut left: u64 = distinct.iter().map(|pair| pair.1).sum();
    let mut bins_left = max_bins;
    let mut bin = 0;
    for (i, pair) in distinct.windows(2).enumerate() {
        let [(key, count), (next_key, next_count)] = [pair[0], pair[1]];
        bin += count;
        let fills = |weight: u64| u128::from(weight) * bins_left as u128 >= u128::from(left);
        let values_left = distinct.len() - 1 - i;
        if bins_left > 1 && (values_left < bins_left || fills(bin) || fills(next_count)) {
            thresholds.push(between(value(key), value(next_key)));
            left -= bin;
            bins_left -= 1;
            bin = 0;
        }
    }
    Feature {
        bins: if distinct.is_empty() {
            0
        } else {
            thresholds.len() as u16 + 1
        },
        thresholds,
    }
}

/// A threshold with `low <= threshold < high`: half way where that is possible.
fn between(low: f32, high: f32) -> f32 {
    let middle = low / 2.0 + high / 2.0;
    if low <= middle && middle < high {
        middle
    } else {
        low
    }
}
