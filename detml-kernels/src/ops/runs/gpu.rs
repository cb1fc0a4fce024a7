//! Heads of runs are flagged and compacted; a run's length is the distance of two heads.

use super::Runs;
use crate::device::{Buffer, Kernel, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::grid;
use crate::ops::order::{rank, stored};
use crate::ops::scan;
use crate::ops::sort::{Key, Order};
use cubecl::prelude::*;
use detml_core::Result;

const UNITS: usize = 256;

#[cube]
fn heads(ieee: Ieee, keys: &Array<u32>, out: &mut Array<u32>, flip: u32, #[comptime] float: bool) {
    let i = ABSOLUTE_POS;
    if i < out.len() {
        let mut head = 1u32;
        if i > 0 {
            let key = rank(ieee, keys[i], flip, float);
            if key == rank(ieee, keys[i - 1], flip, float) {
                head = 0u32;
            }
        }
        out[i] = head;
    }
}

#[cube]
fn describe(
    ieee: Ieee,
    keys: &Array<u32>,
    starts: &Array<u32>,
    firsts: &mut Array<u32>,
    lengths: &mut Array<u32>,
    #[comptime] float: bool,
) {
    let run = ABSOLUTE_POS;
    if run < firsts.len() {
        let start = starts[run];
        let mut end = keys.len() as u32;
        if run + 1 < firsts.len() {
            end = starts[run + 1];
        }
        firsts[run] = stored(ieee, keys[start as usize], float);
        lengths[run] = end - start;
    }
}

fn heads_kernel(profile: FloatProfile, float: bool) -> Kernel {
    Kernel::new(
        "run_heads",
        profile,
        float,
        CubeDim::new_1d(UNITS as u32),
        move |d| {
            let ieee = d.ieee();
            let (keys, out) = (d.input::<u32>(), d.output::<u32>());
            let flip = d.scalar::<u32>();
            heads::expand(d.scope(), ieee, keys, out, flip, float);
        },
    )
}

fn describe_kernel(profile: FloatProfile, float: bool) -> Kernel {
    Kernel::new(
        "run_describe",
        profile,
        float,
        CubeDim::new_1d(UNITS as u32),
        move |d| {
            let ieee = d.ieee();
            let (keys, starts) = (d.input::<u32>(), d.input::<u32>());
            let (firsts, lengths) = (d.output::<u32>(), d.output::<u32>());
            describe::expand(d.scope(), ieee, keys, starts, firsts, lengths, float);
        },
    )
}

pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    [false, true]
        .into_iter()
        .flat_map(|float| {
            [
                heads_kernel(profile, float),
                describe_kernel(profile, float),
            ]
        })
        .collect()
}

pub(crate) fn runs<K: Key>(keys: &Buffer<K>) -> Result<Runs<K>> {
    let device = keys.device();
    let profile = device.profile()?;
    let float = K::KIND.is_float();
    let flip = K::KIND.flip(Order::Ascending);
    let mut flags = device.empty::<u32>(keys.len())?;
    if !keys.is_empty() {
        device.launch(
            &heads_kernel(profile, float),
            grid(keys.len(), UNITS)?,
            args![keys, &mut flags, flip],
        )?;
    }
    let starts = scan::compact(&flags)?;
    let mut firsts = device.empty::<K>(starts.len())?;
    let mut lengths = device.empty::<u32>(starts.len())?;
    if !starts.is_empty() {
        device.launch(
            &describe_kernel(profile, float),
            grid(starts.len(), UNITS)?,
            args![keys, &starts, &mut firsts, &mut lengths],
        )?;
    }
    Ok(Runs {
        keys: firsts,
        starts,
        lengths,
    })
}
