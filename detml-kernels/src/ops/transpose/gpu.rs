//! Tiles of 32 x 32 through shared memory, read and written by rows.

use crate::device::{Buffer, Device, Element, Kernel, args};
use crate::ieee::FloatProfile;
use crate::ops::grid;
use cubecl::prelude::*;
use detml_core::Result;

const TILE: u32 = 32;
/// Rows that a cube moves at a time.
const STEP: u32 = 8;

#[cube]
fn transpose(x: &Array<u32>, out: &mut Array<u32>, batch: u32, rows: u32, columns: u32) {
    // A row more than the tile keeps a column's words in different banks.
    let mut shared = SharedMemory::<u32>::new(comptime!((TILE * (TILE + 1)) as usize));
    let across = (columns + comptime!(TILE - 1)) / TILE;
    let down = (rows + comptime!(TILE - 1)) / TILE;
    let cube = CUBE_POS as u32;
    let matrix = cube / (across * down);
    let tile = cube - matrix * (across * down);
    let r = tile / across * TILE;
    let c = (tile - tile / across * across) * TILE;
    let base = matrix * rows * columns;
    let (i, j) = (UNIT_POS / TILE, UNIT_POS % TILE);
    let inside = matrix < batch;
    #[unroll]
    for k in 0..comptime!(TILE / STEP) {
        let row = i + k * STEP;
        if inside && r + row < rows && c + j < columns {
            shared[(row * comptime!(TILE + 1) + j) as usize] =
                x[(base + (r + row) * columns + c + j) as usize];
        }
    }
    sync_cube();
    #[unroll]
    for k in 0..comptime!(TILE / STEP) {
        let row = i + k * STEP;
        if inside && c + row < columns && r + j < rows {
            out[(base + (c + row) * rows + r + j) as usize] =
                shared[(j * comptime!(TILE + 1) + row) as usize];
        }
    }
}

pub(super) fn kernel(profile: FloatProfile) -> Kernel {
    Kernel::new(
        "transpose",
        profile,
        (),
        CubeDim::new_1d(TILE * STEP),
        |d| {
            let (x, out) = (d.input::<u32>(), d.output::<u32>());
            let [batch, rows, columns] = [(); 3].map(|()| d.scalar::<u32>());
            transpose::expand(d.scope(), x, out, batch, rows, columns);
        },
    )
}

pub(super) fn run<T: Element>(
    device: &Device,
    x: &Buffer<T>,
    shape: [usize; 3],
    out: &mut Buffer<T>,
) -> Result<()> {
    let tile = TILE as usize;
    let tiles = shape[0] * shape[1].div_ceil(tile) * shape[2].div_ceil(tile);
    let [batch, rows, columns] = shape.map(|n| n as u32);
    device.launch(
        &kernel(device.profile()?),
        grid(tiles, 1)?,
        args![x, out, batch, rows, columns],
    )
}
