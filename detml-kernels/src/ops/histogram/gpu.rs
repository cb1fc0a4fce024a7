//! Integer atomics: into shared memory where the bins fit, and from there once per cube into
//! global memory; straight into global memory otherwise.
//!
//! A 64-bit sum is two words. The atomic addition to the lower one returns what was there before,
//! so each addition knows whether it carries; the carries are counted in the upper word. Additions
//! to a word are ordered somehow, every wrap belongs to one of them, and sums of carries commute.

use super::{Extremes, Sums};
use crate::device::{Buffer, Device, Element, Kernel, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::{grid, scan::Integer};
use crate::prim;
use cubecl::prelude::*;
use detml_core::Result;

const UNITS: u32 = 256;
/// Words of shared memory that every device has.
const SHARED: usize = 4096;
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

/// Bins kept in shared memory; 0 if they are not.
fn shared_bins(statistic: Statistic, n_bins: usize) -> usize {
    let room = SHARED / statistic.words();
    [256, 1024, room]
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

/// Each cube takes `share` consecutive elements. All units go through every loop equally often:
/// Mesa's CPU driver loses atomics behind loops that some units never enter.
#[cube]
fn accumulate(
    ieee: Ieee,
    bins: &Array<u32>,
    words: &Array<u32>,
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
        for j in 0..share / UNITS {
            let i = start + j * UNITS + UNIT_POS;
            if i < n {
                let bin = bins[i as usize];
                if bin < n_bins {
                    let a = first_of(ieee, words[i as usize], statistic);
                    let b = second_of(a, statistic);
                    add_global(first, second, bin, a, b, statistic);
                }
            }
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
        for j in 0..share / UNITS {
            let i = start + j * UNITS + UNIT_POS;
            if i < n {
                let bin = bins[i as usize];
                if bin < n_bins {
                    let a = first_of(ieee, words[i as usize], statistic);
                    let b = second_of(a, statistic);
                    add_shared(&mut near_first, &mut near_second, bin, a, b, statistic);
                }
            }
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

fn accumulate_kernel(profile: FloatProfile, statistic: Statistic, shared: usize) -> Kernel {
    Kernel::new(
        "histogram",
        profile,
        (UNITS, statistic, shared),
        CubeDim::new_1d(UNITS),
        move |d| {
            let ieee = d.ieee();
            let bins = d.input::<u32>();
            // What a variant doesn't use is not among its arguments.
            let words = match statistic {
                Statistic::Count => bins.clone(),
                _ => d.input::<u32>(),
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
        for n_bins in [256, SHARED / statistic.words(), SHARED + 1] {
            let shared = shared_bins(statistic, n_bins);
            kernels.push(accumulate_kernel(profile, statistic, shared));
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
    let shared = shared_bins(statistic, n_bins);
    // At least as many elements to a cube as it has bins to merge.
    let share = n
        .div_ceil(CUBES)
        .max(2 * shared)
        .next_multiple_of(UNITS as usize);
    let kernel = accumulate_kernel(device.profile()?, statistic, shared);
    let cubes = grid(n, share)?;
    let (n, share) = (n as u32, share as u32);
    match statistic {
        Statistic::Count => device.launch(&kernel, cubes, args![bins, &mut first, n, share])?,
        _ => device.launch(
            &kernel,
            cubes,
            args![bins, words, &mut first, &mut second, n, share],
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
