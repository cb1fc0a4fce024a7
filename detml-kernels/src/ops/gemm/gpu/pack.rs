//! Copies an operand so that its lanes lie side by side, padded to whole vectors.

use super::{Axes, Source};
use crate::device::{Arg, Buffer, Device, Kernel};
use crate::ieee::FloatProfile;
use crate::ops::grid;
use crate::prim;
use cubecl::prelude::*;
use detml_core::Result;

/// Lanes and terms of a tile.
const TILE: u32 = 32;
/// Rows of a tile that a cube moves at a time.
const STEP: u32 = 8;

/// An operand's copy: term after term, `lanes` numbers each.
pub(super) struct Packed {
    words: Buffer<f32>,
    /// A multiple of four.
    pub(super) lanes: usize,
}

impl Packed {
    pub(super) fn source(&self) -> Source<'_> {
        Source {
            buffer: &self.words,
            offset: 0,
            axes: Axes::Strides([1, self.lanes]),
            batch: 0,
        }
    }
}

/// A tile of the copy. Lanes beyond the last are copies of it. With `turn`, units in a row read
/// terms in a row, and the tile goes through shared memory.
#[cube]
fn copy(
    x: &Array<f32>,
    out: &mut Array<f32>,
    offset: u32,
    lane_stride: u32,
    term_stride: u32,
    count: u32,
    lanes: u32,
    terms: u32,
    #[comptime] turn: bool,
) {
    let across = (lanes + comptime!(TILE - 1)) / TILE;
    let cube = CUBE_POS as u32;
    let lane = cube % across * TILE;
    let term = cube / across * TILE;
    let (i, j) = (UNIT_POS / TILE, UNIT_POS % TILE);
    if comptime!(turn) {
        // A number more than the tile keeps a column's words in different banks.
        let mut shared = SharedMemory::<f32>::new(comptime!((TILE * (TILE + 1)) as usize));
        #[unroll]
        for k in 0..comptime!(TILE / STEP) {
            let row = i + k * STEP;
            let from = prim::select_u32(lane + row < count, lane + row, count - 1u32);
            if term + j < terms {
                shared[(row * comptime!(TILE + 1) + j) as usize] =
                    x[(offset + from * lane_stride + (term + j) * term_stride) as usize];
            }
        }
        sync_cube();
        #[unroll]
        for k in 0..comptime!(TILE / STEP) {
            let row = i + k * STEP;
            if term + row < terms && lane + j < lanes {
                out[((term + row) * lanes + lane + j) as usize] =
                    shared[(j * comptime!(TILE + 1) + row) as usize];
            }
        }
    } else {
        let from = prim::select_u32(lane + j < count, lane + j, count - 1u32);
        #[unroll]
        for k in 0..comptime!(TILE / STEP) {
            let row = i + k * STEP;
            if term + row < terms && lane + j < lanes {
                out[((term + row) * lanes + lane + j) as usize] =
                    x[(offset + from * lane_stride + (term + row) * term_stride) as usize];
            }
        }
    }
}

pub(super) fn kernel(profile: FloatProfile, turn: bool) -> Kernel {
    Kernel::new(
        "gemm_pack",
        profile,
        turn,
        CubeDim::new_1d(TILE * STEP),
        move |d| {
            let (x, out) = (d.input::<f32>(), d.output::<f32>());
            let [offset, lane_stride, term_stride, count, lanes, terms] =
                [(); 6].map(|()| d.scalar::<u32>());
            copy::expand(
                d.scope(),
                x,
                out,
                offset,
                lane_stride,
                term_stride,
                count,
                lanes,
                terms,
                turn,
            );
        },
    )
}

/// A copy of `x`, unless it lies in tables, has too many elements or the device has no room for it.
pub(super) fn pack(
    device: &Device,
    x: &Source<'_>,
    count: usize,
    terms: usize,
) -> Result<Option<Packed>> {
    let Axes::Strides([lane, term]) = x.axes else {
        return Ok(None);
    };
    let lanes = count.next_multiple_of(4);
    let Some(len) = lanes
        .checked_mul(terms)
        .filter(|&len| len > 0 && len <= 1 << 31)
    else {
        return Ok(None);
    };
    let Ok(words) = device.empty::<f32>(len) else {
        return Ok(None);
    };
    let tile = TILE as usize;
    let cubes = grid(lanes.div_ceil(tile) * terms.div_ceil(tile), 1)?;
    let numbers = [x.offset, lane, term, count, lanes, terms].map(|n| Arg::U32(n as u32));
    let args: Vec<Arg<'_>> = [Arg::from(x.buffer), Arg::from(&words)]
        .into_iter()
        .chain(numbers)
        .collect();
    device.launch(&kernel(device.profile()?, lane != 1), cubes, &args)?;
    Ok(Some(Packed { words, lanes }))
}
