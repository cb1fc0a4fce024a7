//! A unit for each element of the result, or for four of a row whose length divides by four.

use super::Of;
use crate::device::{Buffer, Element, Kernel, args};
use crate::ieee::FloatProfile;
use crate::ops::grid;
use crate::prim;
use cubecl::prelude::*;
use detml_core::Result;

type Words = Vector<u32, Const<4>>;

const UNITS: u32 = 256;

/// Lengths and widths count vectors where there are any.
#[cube]
fn gather<T: CubePrimitive>(
    x: &Array<T>,
    index: &Array<u32>,
    out: &mut Array<T>,
    zero: T,
    columns: u32,
    bound: u32,
    width: u32,
    total: u32,
    #[comptime] of: Of,
) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < total {
        let r = i / width;
        let c = i - r * width;
        let mut from = r;
        let mut column = c;
        if comptime!(of == Of::Rows) {
            from = index[r as usize];
        } else {
            column = index[c as usize];
        }
        let named = prim::select_u32(comptime!(of == Of::Rows), from, column);
        if named < bound {
            out[i as usize] = x[(from * columns + column) as usize];
        } else {
            out[i as usize] = zero;
        }
    }
}

#[cube]
fn zeros() -> Words {
    Words::new(0u32)
}

pub(super) fn kernel(profile: FloatProfile, of: Of, vectors: bool) -> Kernel {
    Kernel::new(
        "gather",
        profile,
        (of, vectors),
        CubeDim::new_1d(UNITS),
        move |d| {
            macro_rules! define {
                ($T:ty, $zero:expr) => {{
                    let (x, index, out) = (d.input::<$T>(), d.input::<u32>(), d.output::<$T>());
                    let [columns, bound, width, total] = [(); 4].map(|()| d.scalar::<u32>());
                    let zero = $zero;
                    gather::expand::<$T>(
                        d.scope(),
                        x,
                        index,
                        out,
                        zero,
                        columns,
                        bound,
                        width,
                        total,
                        of,
                    );
                }};
            }
            if vectors {
                define!(Words, zeros::expand(d.scope()));
            } else {
                define!(u32, 0u32.into());
            }
        },
    )
}

pub(super) fn run<T: Element>(
    of: Of,
    x: &Buffer<T>,
    columns: usize,
    index: &Buffer<u32>,
    bound: usize,
    width: usize,
    out: &mut Buffer<T>,
) -> Result<()> {
    let device = out.device().clone();
    let vectors = of == Of::Rows && columns % 4 == 0;
    let each = if vectors { 4 } else { 1 };
    let bound = bound.min(u32::MAX as usize) as u32;
    let [columns, width] = [columns, width].map(|n| (n / each) as u32);
    let total = out.len() / each;
    device.launch(
        &kernel(device.profile()?, of, vectors),
        grid(total, UNITS as usize)?,
        args![
            x.vectors(each),
            index,
            out.vectors(each),
            columns,
            bound,
            width,
            total as u32
        ],
    )
}
