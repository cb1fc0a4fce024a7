//! Two passes: the last position of each index by an atomic maximum, then the writes of the
//! winners alone.

use crate::device::{Buffer, Element, Kernel, args};
use crate::ieee::FloatProfile;
use crate::ops::{elementwise, grid};
use cubecl::prelude::*;
use detml_core::Result;

const UNITS: u32 = 256;

/// `winner[i]` is one more than the last position of `i` in `index`.
#[cube]
fn find(index: &Array<u32>, winner: &mut Array<Atomic<u32>>, len: u32, rows: u32) {
    let position = CUBE_POS as u32 * UNITS + UNIT_POS;
    if position < len {
        let i = index[position as usize];
        if i < rows {
            winner[i as usize].fetch_max(position + 1u32);
        }
    }
}

#[cube]
fn write(
    index: &Array<u32>,
    winner: &Array<u32>,
    x: &Array<u32>,
    out: &mut Array<u32>,
    rows: u32,
    columns: u32,
    total: u32,
) {
    let e = CUBE_POS as u32 * UNITS + UNIT_POS;
    if e < total {
        let position = e / columns;
        let i = index[position as usize];
        if i < rows {
            if winner[i as usize] == position + 1u32 {
                out[(i * columns + (e - position * columns)) as usize] = x[e as usize];
            }
        }
    }
}

pub(super) fn winner_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("scatter_winner", profile, (), CubeDim::new_1d(UNITS), |d| {
        let (index, winner) = (d.input::<u32>(), d.output::<Atomic<u32>>());
        let [len, rows] = [(); 2].map(|()| d.scalar::<u32>());
        find::expand(d.scope(), index, winner, len, rows);
    })
}

pub(super) fn write_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("scatter_rows", profile, (), CubeDim::new_1d(UNITS), |d| {
        let [index, winner, x] = [(); 3].map(|()| d.input::<u32>());
        let out = d.output::<u32>();
        let [rows, columns, total] = [(); 3].map(|()| d.scalar::<u32>());
        write::expand(d.scope(), index, winner, x, out, rows, columns, total);
    })
}

pub(super) fn run<T: Element>(
    out: &mut Buffer<T>,
    rows: usize,
    columns: usize,
    index: &Buffer<u32>,
    x: &Buffer<T>,
) -> Result<()> {
    let device = out.device().clone();
    let profile = device.profile()?;
    let mut winner = elementwise::fill(&device, rows, 0u32)?;
    let units = UNITS as usize;
    device.launch(
        &winner_kernel(profile),
        grid(index.len(), units)?,
        args![index, &mut winner, index.len() as u32, rows as u32],
    )?;
    device.launch(
        &write_kernel(profile),
        grid(x.len(), units)?,
        args![
            index,
            &winner,
            x,
            out,
            rows as u32,
            columns as u32,
            x.len() as u32
        ],
    )
}
