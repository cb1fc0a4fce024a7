//! Two passes: the last position of each index by an atomic maximum, then the writes of the
//! winners alone: row by row of the output, so that writes follow one another, or, where few rows
//! are written, index by index.

use crate::device::{Buffer, Element, Kernel, args};
use crate::ieee::FloatProfile;
use crate::ops::tile::Four;
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

/// As [`write`], by the rows of the output. Lengths and columns count vectors where there are any.
#[cube]
fn take<T: CubePrimitive>(
    winner: &Array<u32>,
    x: &Array<T>,
    out: &mut Array<T>,
    columns: u32,
    total: u32,
) {
    let e = CUBE_POS as u32 * UNITS + UNIT_POS;
    if e < total {
        let row = e / columns;
        let position = winner[row as usize];
        if position != 0u32 {
            out[e as usize] = x[((position - 1u32) * columns + (e - row * columns)) as usize];
        }
    }
}

pub(super) fn take_kernel(profile: FloatProfile, vectors: bool) -> Kernel {
    Kernel::new(
        "scatter_take",
        profile,
        vectors,
        CubeDim::new_1d(UNITS),
        move |d| {
            macro_rules! define {
                ($T:ty) => {{
                    let (winner, x) = (d.input::<u32>(), d.input::<$T>());
                    let out = d.output::<$T>();
                    let [columns, total] = [(); 2].map(|()| d.scalar::<u32>());
                    take::expand::<$T>(d.scope(), winner, x, out, columns, total);
                }};
            }
            if vectors {
                define!(Four);
            } else {
                define!(u32);
            }
        },
    )
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
    // Going through the rows costs a word a row, besides the rows that are written.
    let by_row = rows / 4 <= index.len();
    run_by(by_row, out, rows, columns, index, x)
}

pub(super) fn run_by<T: Element>(
    by_row: bool,
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
    if by_row {
        let each = if columns % 4 == 0 { 4 } else { 1 };
        let total = out.len() / each;
        return device.launch(
            &take_kernel(profile, each == 4),
            grid(total, units)?,
            args![
                &winner,
                x.vectors(each),
                out.vectors(each),
                (columns / each) as u32,
                total as u32
            ],
        );
    }
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
