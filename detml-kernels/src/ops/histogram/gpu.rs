//! Integer atomics: into shared memory where the bins fit, and from there once per cube into
//! global memory; straight into global memory otherwise.
//!
//! A 64-bit sum is two words. The atomic addition to the lower one returns what was there before,
//! so each addition knows whether it carries; the carries are counted in the upper word. Additions
//! to a word are ordered somehow, every wrap belongs to one of them, and sums of carries commute.

use super::{Extremes, Sums};
use crate::device::{Buffer, Device, Element, Kernel, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::tile::{Wide, four, wide_input};
use crate::ops::{grid, scan::Integer};
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Backend, Result};

const UNITS: u32 = 256;
/// Words of shared memory that every device has.
const SHARED: usize = 4096;
/// Words of shared memory of a device that is programmed without a graphics interface.
const SHARED_LARGE: usize = 12_288;
/// Vectors of four that a unit reads at a time.
const VECTORS: u32 = 2;
/// Elements that a cube reads at a time.
const STEP: u32 = UNITS * 4 * VECTORS;
/// Cubes of one launch, more or less: enough to fill any device, few enough to merge.
const CUBES: usize = 1024;

/// What is made of the elements of a bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Statistic {
    Count,
    /// Two words: lower, upper.
    Sum {
        signed: bool,
    },
    /// Two words: smallest key, largest key.
    Extremes,
}

impl Statistic {
    const fn words(self) -> usize {
        match self {
            Self::Count => 1,
            Self::Sum { .. } | Self::Extremes => 2,
        }
    }

    /// The words of a bin without elements.
    const fn first(self) -> u32 {
        match self {
            Self::Extremes => u32::MAX,
            _ => 0,
        }
    }
}

/// Bins kept in shared memory of `words` words; 0 if they are not.
fn shared_bins(statistic: Statistic, n_bins: usize, words: usize) -> usize {
    let room = words / statistic.words();
    [256, 1024, SHARED / statistic.words(), room]
        .into_iter()
        .find(|size| n_bins <= *size)
        .unwrap_or(0)
}

/// What an element adds to the first word of its bin.
#[cube]
fn first_of(ieee: Ieee, word: u32, #[comptime] statistic: Statistic) -> u32 {
    if comptime!(statistic == Statistic::Count) {
        1u32.runtime()
    } else if comptime!(statistic == Statistic::Extremes) {
        ieee.total_key(prim::from_bits(word))
    } else {
        word
    }
}

/// What an element adds to the second word of its bin, `first` being what it adds to the first.
#[cube]
fn second_of(first: u32, #[comptime] statistic: Statistic) -> u32 {
    if comptime!(statistic == Statistic::Extremes) {
        // A NaN moves neither word: no number has this largest key.
        prim::select_u32(first == u32::MAX, 0u32, first)
    } else if comptime!(statistic == Statistic::Sum { signed: true }) {
        0u32 - (first >> 31u32)
    } else {
        0u32.runtime()
    }
}

/// What an addition of `low` to a word that was `old` adds to the upper word.
#[cube]
pub(crate) fn carry(old: u32, low: u32, high: u32) -> u32 {
    high + prim::select_u32(prim::wrapping_add(old, low) < low, 1u32, 0u32)
}

#[cube]
fn add_global(
    first: &mut Array<Atomic<u32>>,
    second: &mut Array<Atomic<u32>>,
    bin: u32,
    a: u32,
    b: u32,
    #[comptime] statistic: Statistic,
) {
    match comptime!(statistic) {
        Statistic::Count => {
            first[bin as usize].fetch_add(a);
        }
        Statistic::Sum { .. } => {
            let old = first[bin as usize].fetch_add(a);
            let high = carry(old, a, b);
            if high != 0u32 {
                second[bin as usize].fetch_add(high);
            }
        }
        Statistic::Extremes => {
            first[bin as usize].fetch_min(a);
            second[bin as usize].fetch_max(b);
        }
    }
}

#[cube]
fn add_shared(
    first: &mut SharedMemory<Atomic<u32>>,
    second: &mut SharedMemory<Atomic<u32>>,
    bin: u32,
    a: u32,
    b: u32,
    #[comptime] statistic: Statistic,
) {
    match comptime!(statistic) {
        Statistic::Count => {
            first[bin as usize].fetch_add(a);
        }
        Statistic::Sum { .. } => {
            let old = first[bin as usize].fetch_add(a);
            let high = carry(old, a, b);
            if high != 0u32 {
                second[bin as usize].fetch_add(high);
            }
        }
        Statistic::Extremes => {
            first[bin as usize].fetch_min(a);
            second[bin as usize].fetch_max(b);
        }
    }
}

/// Adds the elements of a step from `start` on, to shared memory if `near`.
#[cube]
fn add_step(
    ieee: Ieee,
    bins: &Wide,
    words: &Wide,
    first: &mut Array<Atomic<u32>>,
    second: &mut Array<Atomic<u32>>,
    near_first: &mut SharedMemory<Atomic<u32>>,
    near_second: &mut SharedMemory<Atomic<u32>>,
    start: u32,
    n: u32,
    #[comptime] statistic: Statistic,
    #[comptime] near: bool,
) {
    let n_bins = first.len() as u32;
    let mut bins_held = Array::<Vector<u32, Const<4>>>::new(comptime!(VECTORS as usize));
    let mut words_held = Array::<Vector<u32, Const<4>>>::new(comptime!(VECTORS as usize));
    #[unroll]
    for j in 0..VECTORS {
        let v = start / 4u32 + j * UNITS + UNIT_POS;
        bins_held[j as usize] = four(bins, v, n);
        if comptime!(statistic != Statistic::Count) {
            words_held[j as usize] = four(words, v, n);
        }
    }
    #[unroll]
    for j in 0..VECTORS {
        let bins = bins_held[j as usize];
        let words = words_held[j as usize];
        #[unroll]
        for l in 0..4u32 {
            let bin = bins[l as usize];
            if start + 4u32 * (j * UNITS + UNIT_POS) + l < n && bin < n_bins {
                let mut word = 0u32;
                if comptime!(statistic != Statistic::Count) {
                    word = words[l as usize];
                }
                let a = first_of(ieee, word, statistic);
                let b = second_of(a, statistic);
                if comptime!(near) {
                    add_shared(near_first, near_second, bin, a, b, statistic);
                } else {
                    add_global(first, second, bin, a, b, statistic);
                }
            }
        }
    }
}

/// Each cube takes `share` consecutive elements. All units go through every loop equally often:
/// Mesa's CPU driver loses atomics behind loops that some units never enter.
#[cube]
fn accumulate(
    ieee: Ieee,
    bins: &Wide,
    words: &Wide,
    first: &mut Array<Atomic<u32>>,
    second: &mut Array<Atomic<u32>>,
    n: u32,
    share: u32,
    #[comptime] statistic: Statistic,
    #[comptime] shared: usize,
) {
    let n_bins = first.len() as u32;
    // The grid may exceed the elements, but not by as much as would wrap.
    let start = CUBE_POS as u32 * share;
    if comptime!(shared == 0) {
        // Of no use.
        let mut near_first = SharedMemory::<Atomic<u32>>::new(1usize);
        let mut near_second = SharedMemory::<Atomic<u32>>::new(1usize);
        for j in 0..share / STEP {
            add_step(
                ieee,
                bins,
                words,
                first,
                second,
                &mut near_first,
                &mut near_second,
                start + j * STEP,
                n,
                statistic,
                false,
            );
        }
    } else {
        let two = comptime!(if statistic.words() == 2 { shared } else { 1 });
        let mut near_first = SharedMemory::<Atomic<u32>>::new(shared);
        let mut near_second = SharedMemory::<Atomic<u32>>::new(two);
        for j in 0..comptime!(shared as u32 / UNITS) {
            // Not a store: CubeCL's SPIR-V path may drop it.
            let b = (j * UNITS + UNIT_POS) as usize;
            near_first[b].swap(comptime!(statistic.first()));
            if comptime!(statistic.words() == 2) {
                near_second[b].swap(0u32);
            }
        }
        sync_cube();
        for j in 0..share / STEP {
            add_step(
                ieee,
                bins,
                words,
                first,
                second,
                &mut near_first,
                &mut near_second,
                start + j * STEP,
                n,
                statistic,
                true,
            );
        }
        sync_cube();
        for j in 0..comptime!(shared as u32 / UNITS) {
            let bin = j * UNITS + UNIT_POS;
            if bin < n_bins {
                let a = near_first[bin as usize].load();
                if comptime!(statistic.words() == 2) {
                    let b = near_second[bin as usize].load();
                    if a != comptime!(statistic.first()) || b != 0u32 {
                        add_global(first, second, bin, a, b, statistic);
                    }
                } else if a != 0u32 {
                    add_global(first, second, bin, a, 0u32, statistic);
                }
            }
        }
    }
}

#[cube]
fn fill(out: &mut Array<u32>, value: u32) {
    if ABSOLUTE_POS < out.len() {
        out[ABSOLUTE_POS] = value;
    }
}

/// The numbers of the keys.
#[cube]
fn numbers(ieee: Ieee, keys: &Array<u32>, out: &mut Array<f32>) {
    if ABSOLUTE_POS < out.len() {
        out[ABSOLUTE_POS] = ieee.from_total_key(keys[ABSOLUTE_POS]);
    }
}

fn accumulate_kernel(
    profile: FloatProfile,
    statistic: Statistic,
    shared: usize,
    vectors: bool,
) -> Kernel {
    Kernel::new(
        "histogram",
        profile,
        (UNITS, VECTORS, statistic, shared, vectors),
        CubeDim::new_1d(UNITS),
        move |d| {
            let ieee = d.ieee();
            let bins = wide_input(d, vectors);
            // What a variant doesn't use is not among its arguments.
            let words = match statistic {
                Statistic::Count => bins.clone(),
                _ => wide_input(d, vectors),
            };
            let first = d.output::<Atomic<u32>>();
            let second = match statistic {
                Statistic::Count => first.clone(),
                _ => d.output::<Atomic<u32>>(),
            };
            let (n, share) = (d.scalar::<u32>(), d.scalar::<u32>());
            accumulate::expand(
                d.scope(),
                ieee,
                bins,
                words,
                first,
                second,
                n,
                share,
                statistic,
                shared,
            );
        },
    )
}

fn fill_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("fill", profile, (), CubeDim::new_1d(UNITS), |d| {
        let (out, value) = (d.output::<u32>(), d.scalar::<u32>());
        fill::expand(d.scope(), out, value);
    })
}

fn numbers_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("key_numbers", profile, (), CubeDim::new_1d(UNITS), |d| {
        let ieee = d.ieee();
        let (keys, out) = (d.input::<u32>(), d.output::<f32>());
        numbers::expand(d.scope(), ieee, keys, out);
    })
}

pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let mut kernels = vec![fill_kernel(profile), numbers_kernel(profile)];
    for statistic in [
        Statistic::Count,
        Statistic::Sum { signed: false },
        Statistic::Sum { signed: true },
        Statistic::Extremes,
    ] {
        let largest = SHARED / statistic.words();
        for (shared, vectors) in [(256, true), (largest, true), (256, false), (0, true)] {
            kernels.push(accumulate_kernel(profile, statistic, shared, vectors));
        }
    }
    kernels
}

fn filled(device: &Device, len: usize, value: u32) -> Result<Buffer<u32>> {
    let mut out = device.empty::<u32>(len)?;
    if len > 0 {
        device.launch(
            &fill_kernel(device.profile()?),
            grid(len, UNITS as usize)?,
            args![&mut out, value],
        )?;
    }
    Ok(out)
}

/// The words of every bin; `words` is ignored for counts.
fn run<T: Element>(
    bins: &Buffer<u32>,
    words: &Buffer<T>,
    n_bins: usize,
    statistic: Statistic,
) -> Result<(Buffer<u32>, Buffer<u32>)> {
    let device = bins.device();
    let mut first = filled(device, n_bins, statistic.first())?;
    let mut second = match statistic {
        Statistic::Count => device.empty(0)?,
        _ => filled(device, n_bins, 0)?,
    };
    let n = bins.len();
    if n == 0 || n_bins == 0 {
        return Ok((first, second));
    }
    let room = match device.backend() {
        Backend::Cuda(_) | Backend::Hip(_) => SHARED_LARGE,
        _ => SHARED,
    };
    let shared = shared_bins(statistic, n_bins, room);
    // At least as many elements to a cube as it has bins to merge.
    let share = n
        .div_ceil(CUBES)
        .max(2 * shared)
        .next_multiple_of(STEP as usize);
    let vectors = n % 4 == 0;
    let width = if vectors { 4 } else { 1 };
    let kernel = accumulate_kernel(device.profile()?, statistic, shared, vectors);
    let cubes = grid(n, share)?;
    let (n, share) = (n as u32, share as u32);
    match statistic {
        Statistic::Count => device.launch(
            &kernel,
            cubes,
            args![bins.vectors(width), &mut first, n, share],
        )?,
        _ => device.launch(
            &kernel,
            cubes,
            args![
                bins.vectors(width),
                words.vectors(width),
                &mut first,
                &mut second,
                n,
                share
            ],
        )?,
    }
    Ok((first, second))
}

pub(crate) fn counts(bins: &Buffer<u32>, n_bins: usize) -> Result<Buffer<u32>> {
    Ok(run(bins, bins, n_bins, Statistic::Count)?.0)
}

pub(crate) fn sums<W: Integer>(
    bins: &Buffer<u32>,
    weights: &Buffer<W>,
    n_bins: usize,
) -> Result<Sums> {
    let signed = W::SIGNED;
    let (lo, hi) = run(bins, weights, n_bins, Statistic::Sum { signed })?;
    Ok(Sums { hi, lo })
}

pub(crate) fn extremes(
    bins: &Buffer<u32>,
    values: &Buffer<f32>,
    n_bins: usize,
) -> Result<Extremes> {
    let device = bins.device();
    let kernel = numbers_kernel(device.profile()?);
    let (min, max) = run(bins, values, n_bins, Statistic::Extremes)?;
    let number = |keys: &Buffer<u32>| {
        let mut out = device.empty::<f32>(n_bins)?;
        if n_bins > 0 {
            device.launch(
                &kernel,
                grid(n_bins, UNITS as usize)?,
                args![keys, &mut out],
            )?;
        }
        Ok(out)
    };
    Ok(Extremes {
        min: number(&min)?,
        max: number(&max)?,
    })
}
