//! A unit finds where a group begins by binary search; the folds are those of `reduce`.

use crate::device::{Buffer, Kernel, args};
use crate::ieee::FloatProfile;
use crate::ops::grid;
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
