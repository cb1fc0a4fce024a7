//! Cuts a feature's values into bins at exact quantiles.
//!
//! Only integers and comparisons are used. A feature's distinct values are found by sorting all of
//! them, on a GPU where there is one and enough to sort, else on the host: neither that nor the order of
//! the rows nor the number of threads shows. -0 equals +0; infinities are values like others; NaN is
//! missing.

use detml_core::Result;
use detml_kernels::Device;
use detml_kernels::ops::boosting::{Bins, MISSING};
use detml_kernels::ops::sort::{Order, sort_rows};
use ndarray::ArrayView2;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Mutex;

/// Features whose columns are read at once: half a cache line of `f32`.
const TOGETHER: usize = 8;
/// Rows binned at once.
const ROWS: usize = 4096;
/// Values from which on a GPU sorts them, and how many it takes at a time.
const SORTED_BY_GPU: usize = 1 << 20;
const PART: usize = 1 << 26;

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
        let spare = Spare::default();
        let features = columns
            .par_chunks(TOGETHER)
            .flat_map(|columns| {
                let mut keys: Vec<_> = columns.iter().map(|_| spare.take()).collect();
                for row in x.rows() {
                    for (keys, &column) in keys.iter_mut().zip(columns) {
                        keys.push(key(row[column]));
                    }
                }
                keys.into_par_iter().map(|keys| match &counts {
                    None => of_equal_weight(keys, max_bins, &spare),
                    Some(counts) => of_weights(keys, counts, max_bins, &spare),
                })
            })
            .collect();
        Self { features }
    }

    /// Whether a device should sort: it is a GPU, and there is enough to sort.
    pub(crate) fn sorts_on(
        device: &Device,
        x: ArrayView2<'_, f32>,
        weights: Option<&[f32]>,
    ) -> bool {
        let enough = x.len() >= SORTED_BY_GPU && x.nrows() <= PART;
        !device.is_cpu() && weights.is_none() && enough
    }

    /// As [`new`](Self::new) without weights, sorted by a device.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn sorted_by(
        device: &Device,
        x: ArrayView2<'_, f32>,
        max_bins: usize,
    ) -> Result<Self> {
        let rows = x.nrows();
        let at_once = (PART / rows.max(1)).max(1);
        let columns: Vec<usize> = (0..x.ncols()).collect();
        let mut features = Vec::with_capacity(columns.len());
        for columns in columns.chunks(at_once) {
            let mut keys = vec![0; rows * columns.len()];
            keys.par_chunks_mut((rows * TOGETHER).max(1))
                .zip(columns.par_chunks(TOGETHER))
                .for_each(|(keys, columns)| {
                    for (i, row) in x.rows().into_iter().enumerate() {
                        for (at, &column) in columns.iter().enumerate() {
                            keys[at * rows + i] = key(row[column]);
                        }
                    }
                });
            let keys = device.upload_vec(keys)?;
            let sorted = device.read(&sort_rows(&keys, columns.len(), rows, Order::Ascending)?)?;
            features.par_extend(
                sorted
                    .par_chunks(rows.max(1))
                    .map(|keys| cut(&Sorted::new(keys, None), max_bins)),
            );
        }
        Ok(Self { features })
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

/// Memory that one feature leaves to the next.
#[derive(Default)]
struct Spare(Mutex<Vec<Vec<u32>>>);

impl Spare {
    /// An empty vector.
    fn take(&self) -> Vec<u32> {
        let spare = self.0.lock().ok().and_then(|mut spare| spare.pop());
        spare.unwrap_or_default()
    }

    fn give(&self, mut memory: Vec<u32>) {
        memory.clear();
        if let Ok(mut spare) = self.0.lock() {
            spare.push(memory);
        }
    }
}

fn of_equal_weight(mut keys: Vec<u32>, max_bins: usize, spare: &Spare) -> Feature {
    let mut sorted = spare.take();
    sort(&mut keys, &mut sorted, |key| key);
    let feature = cut(&Sorted::new(&keys, None), max_bins);
    spare.give(keys);
    spare.give(sorted);
    feature
}

fn of_weights(keys: Vec<u32>, counts: &[u32], max_bins: usize, spare: &Spare) -> Feature {
    let mut pairs: Vec<(u32, u32)> = keys.iter().copied().zip(counts.iter().copied()).collect();
    sort(&mut pairs, &mut Vec::new(), |pair| pair.0);
    let mut sum = 0;
    let mut before = vec![0];
    let mut sorted = keys;
    sorted.clear();
    for (key, count) in pairs {
        sum += u64::from(count);
        before.push(sum);
        sorted.push(key);
    }
    let feature = cut(&Sorted::new(&sorted, Some(&before)), max_bins);
    spare.give(sorted);
    feature
}

/// Sorts by 32-bit keys, digit by digit from the lowest; `sorted` is memory.
fn sort<T: Copy + Default>(items: &mut Vec<T>, sorted: &mut Vec<T>, key: impl Fn(T) -> u32) {
    const BITS: u32 = 11;
    const DIGITS: usize = 3;
    let digit = |item: T, at: usize| (key(item) >> (BITS * at as u32)) as usize % (1 << BITS);
    let mut counts = vec![[0u32; 1 << BITS]; DIGITS];
    for &item in &*items {
        for (at, counts) in counts.iter_mut().enumerate() {
            counts[digit(item, at)] += 1;
        }
    }
    sorted.resize(items.len(), T::default());
    for (at, counts) in counts.iter_mut().enumerate() {
        if counts.contains(&(items.len() as u32)) {
            continue;
        }
        let mut start = 0;
        for count in counts.iter_mut() {
            (*count, start) = (start, start + *count);
        }
        for &item in &*items {
            let place = &mut counts[digit(item, at)];
            sorted[*place as usize] = item;
            *place += 1;
        }
        std::mem::swap(items, sorted);
    }
}

/// A feature's values, without missing ones, and their weights.
struct Sorted<'a> {
    keys: &'a [u32],
    /// The weight before each value, and of all; each weighs 1 if absent.
    before: Option<&'a [u64]>,
}

impl<'a> Sorted<'a> {
    /// Of ascending keys, missing ones last.
    fn new(keys: &'a [u32], before: Option<&'a [u64]>) -> Self {
        let present = keys.partition_point(|&key| key != u32::MAX);
        Self {
            keys: &keys[..present],
            before,
        }
    }

    fn before(&self, at: usize) -> u64 {
        self.before.map_or(at as u64, |before| before[at])
    }

    /// The places of the values equal to the one that the unit of weight after `weight` belongs
    /// to.
    fn run(&self, weight: u64) -> Range<usize> {
        let at = match self.before {
            None => weight as usize,
            Some(before) => before.partition_point(|&before| before <= weight) - 1,
        };
        let key = self.keys[at];
        let start = self.keys[..at].partition_point(|&k| k < key);
        let end = at + self.keys[at..].partition_point(|&k| k <= key);
        start..end
    }

    /// Where the last values that differ begin, the very last first, at most `most`.
    fn last_runs(&self, most: usize) -> Vec<usize> {
        let mut starts = Vec::new();
        let mut end = self.keys.len();
        while end > 0 && starts.len() < most {
            let key = self.keys[end - 1];
            end = self.keys[..end].partition_point(|&k| k < key);
            starts.push(end);
        }
        starts
    }
}

/// Cuts values into at most `max_bins` bins.
///
/// As long as there are more distinct values than bins left, a bin takes values until it holds its
/// share (what is left by the bins left) or the next value alone would fill one: so heavy values
/// get bins of their own, and what they leave is shared anew.
fn cut(sorted: &Sorted<'_>, max_bins: usize) -> Feature {
    let keys = sorted.keys;
    let last_runs = sorted.last_runs(max_bins);
    let total = sorted.before(keys.len());
    let mut thresholds = Vec::new();
    let mut start = 0;
    for bins_left in (2..=max_bins).rev() {
        if start == keys.len() {
            break;
        }
        let here = sorted.before(start);
        let share = (total - here).div_ceil(bins_left as u64);
        // The value that fills the bin.
        let mut end = sorted.run(here + share - 1).end;
        // A value with a share of its own that begins before the bin is full, or right then, lies
        // over the end of the share.
        if here + share < total {
            let next = sorted.run(here + share);
            let weight = sorted.before(next.end) - sorted.before(next.start);
            if next.start > start && weight >= share {
                end = end.min(next.start);
            }
        }
        // As many values as bins are left behind this place, or behind the bin's first value.
        let first = sorted.run(here).end;
        let few = last_runs.get(bins_left - 2).copied().unwrap_or(0);
        end = end.min(few.max(first));
        if end == keys.len() {
            break;
        }
        thresholds.push(between(value(keys[end - 1]), value(keys[end])));
        start = end;
    }
    Feature {
        bins: if keys.is_empty() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boosting::tests::gpus;
    use std::collections::BTreeMap;

    /// The rule, value by value.
    fn plain(keys: &[u32], counts: &[u32], max_bins: usize) -> Feature {
        let mut weights = BTreeMap::new();
        for (&key, &count) in keys.iter().zip(counts) {
            if key != u32::MAX {
                *weights.entry(key).or_insert(0u64) += u64::from(count);
            }
        }
        let distinct: Vec<(u32, u64)> = weights.into_iter().collect();
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
            bins: match distinct.len() {
                0 => 0,
                _ => thresholds.len() as u16 + 1,
            },
            thresholds,
        }
    }

    /// Who sorts does not show.
    #[test]
    fn devices_cut_alike() {
        for device in gpus().into_iter().chain([Device::cpu()]) {
            for (rows, columns) in [(1, 1), (700, 11), (70_001, 3)] {
                let x = ndarray::Array2::from_shape_fn((rows, columns), |(i, j)| {
                    match hash(j as u32, i as u32) % 64 {
                        0 => f32::NAN,
                        1 => -0.0,
                        2 => f32::INFINITY,
                        bits => f32::from_bits(hash(bits, i as u32)) * (j % 2) as f32,
                    }
                });
                for max_bins in [3, 255] {
                    let expected = Cuts::new(x.view(), None, max_bins);
                    let got = Cuts::sorted_by(&device, x.view(), max_bins).unwrap();
                    assert_eq!(got, expected, "{device}: {rows} x {columns}");
                }
            }
        }
    }

    fn hash(seed: u32, i: u32) -> u32 {
        let x = (i ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x21f0_aaad);
        let x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
        x ^ (x >> 15)
    }

    #[test]
    fn jumping_cuts_where_the_rule_does() {
        let mut cut_apart = 0;
        for seed in 0..600 {
            let n = hash(seed, 0) % [5, 40, 300, 3000][seed as usize % 4];
            let values = 1 + hash(seed, 1) % [3, 20, 400, 100_000][seed as usize / 4 % 4];
            let keys: Vec<u32> = (0..n)
                .map(|i| match hash(seed + 1, i) % 16 {
                    // A heavy value, and a missing one now and then.
                    0..3 if seed % 3 == 0 => key(7.0),
                    3 if seed % 5 == 0 => u32::MAX,
                    _ => key((hash(seed + 2, i) % values) as f32 - 5.0),
                })
                .collect();
            let ones = vec![1; keys.len()];
            let weights: Vec<u32> = (0..n)
                .map(|i| 1 + (hash(seed + 3, i) >> (8 + hash(seed + 4, i) % 24)))
                .collect();
            for max_bins in [2, 3, 16, 255] {
                let spare = Spare::default();
                let got = of_equal_weight(keys.clone(), max_bins, &spare);
                let expected = plain(&keys, &ones, max_bins);
                assert_eq!(got, expected, "{n} of {values} in {max_bins}, seed {seed}");
                let got = of_weights(keys.clone(), &weights, max_bins, &spare);
                let weighted = plain(&keys, &weights, max_bins);
                assert_eq!(got, weighted, "weights, {n} of {values} in {max_bins}");
                cut_apart += usize::from(weighted != expected);
            }
        }
        // Weights show.
        assert!(cut_apart > 100);
    }
}
