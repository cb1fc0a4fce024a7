//! A unit finds where a group begins by binary search; the folds are those of `reduce`. Whether
//! keys ascend is a flag a key, folded.

use crate::device::{Buffer, Kernel, args};
use crate::ieee::FloatProfile;
use crate::ops::{grid, reduce};
use cubecl::prelude::*;
use detml_core::Result;

const UNITS: u32 = 256;

/// `offsets[g]` is how many keys are below `g`.
#[cube]
fn search(keys: &Array<u32>, offsets: &mut Array<u32>, len: u32, total: u32) {
    let group = CUBE_POS as u32 * UNITS + UNIT_POS;
    if group < total {
        let mut low = 0u32;
        let mut high = len;
        while low < high {
            let middle = low + (high - low) / 2u32;
            if keys[middle as usize] < group {
                low = middle + 1u32;
            } else {
                high = middle;
            }
        }
        offsets[group as usize] = low;
    }
}

pub(super) fn kernel(profile: FloatProfile) -> Kernel {
    Kernel::new(
        "segment_offsets",
        profile,
        (),
        CubeDim::new_1d(UNITS),
        |d| {
            let (keys, offsets) = (d.input::<u32>(), d.output::<u32>());
            let [len, total] = [(); 2].map(|()| d.scalar::<u32>());
            search::expand(d.scope(), keys, offsets, len, total);
        },
    )
}

pub(super) fn offsets(keys: &Buffer<u32>, offsets: &mut Buffer<u32>) -> Result<()> {
    let device = keys.device();
    let (len, total) = (keys.len() as u32, offsets.len() as u32);
    device.launch(
        &kernel(device.profile()?),
        grid(offsets.len(), UNITS as usize)?,
        args![keys, offsets, len, total],
    )
}

/// 1 for each key that the next one is below.
#[cube]
fn descents(keys: &Array<u32>, flags: &mut Array<u32>, pairs: u32) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < pairs {
        let at = i as usize;
        flags[at] = select(keys[at] > keys[at + 1], 1u32, 0u32);
    }
}

pub(super) fn descent_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new(
        "segment_descents",
        profile,
        (),
        CubeDim::new_1d(UNITS),
        |d| {
            let (keys, flags) = (d.input::<u32>(), d.output::<u32>());
            let pairs = d.scalar::<u32>();
            descents::expand(d.scope(), keys, flags, pairs);
        },
    )
}

/// Where the first key is that the next one is below.
pub(super) fn descent(keys: &Buffer<u32>) -> Result<Option<usize>> {
    let device = keys.device();
    let pairs = keys.len().saturating_sub(1);
    if pairs == 0 {
        return Ok(None);
    }
    let mut flags = device.empty::<u32>(pairs)?;
    device.launch(
        &descent_kernel(device.profile()?),
        grid(pairs, UNITS as usize)?,
        args![keys, &mut flags, pairs as u32],
    )?;
    let any = reduce::any(&flags, reduce::Axis::Whole, [1, pairs])?;
    if device.read(&any)?.first() == Some(&0) {
        return Ok(None);
    }
    Ok(device.read(&flags)?.iter().position(|&flag| flag != 0))
}

#[cube]
fn lengths(offsets: &Array<u32>, out: &mut Array<u32>, groups: u32) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < groups {
        let at = i as usize;
        out[at] = offsets[at + 1] - offsets[at];
    }
}

pub(super) fn lengths_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new(
        "segment_lengths",
        profile,
        (),
        CubeDim::new_1d(UNITS),
        |d| {
            let (offsets, out) = (d.input::<u32>(), d.output::<u32>());
            let groups = d.scalar::<u32>();
            lengths::expand(d.scope(), offsets, out, groups);
        },
    )
}

/// Rows of the largest group.
pub(super) fn longest(offsets: &Buffer<u32>) -> Result<usize> {
    let device = offsets.device();
    let groups = offsets.len().saturating_sub(1);
    if groups == 0 {
        return Ok(0);
    }
    let mut out = device.empty::<u32>(groups)?;
    device.launch(
        &lengths_kernel(device.profile()?),
        grid(groups, UNITS as usize)?,
        args![offsets, &mut out, groups as u32],
    )?;
    let most = reduce::max_words(&out, reduce::Axis::Whole, [1, groups])?;
    Ok(device.read(&most)?.first().map_or(0, |&n| n as usize))
}
