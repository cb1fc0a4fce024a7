//! Four elements a unit: one load of four words where length and columns divide by four, else
//! four that lie a cube's width apart. Both are coalesced. One element a unit where functions are
//! long, since products are integer code.

use super::Place;
use super::table::{Op, apply};
use crate::device::{Arg, Buffer, Definition, Device, Kernel, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::{AnyBuffer, grid};
use crate::prim;
use cubecl::prelude::*;
use detml_core::Result;

type Words = Vector<u32, Const<4>>;

const UNITS: u32 = 256;

/// Where an operand's words come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// One word for all.
    Scalar,
    /// An element each, in order.
    Full,
    /// By row and column stride.
    Strided,
    /// The output, before it is written.
    Own,
    /// The operation takes no such operand.
    None,
}

#[derive(CubeType)]
struct Input {
    wide: Array<Words>,
    words: Array<u32>,
    value: u32,
    offset: u32,
    row_stride: u32,
    column_stride: u32,
    #[cube(comptime)]
    kind: Kind,
}

#[derive(CubeType)]
struct Output {
    wide: Array<Words>,
    words: Array<u32>,
}

#[cube]
fn wide(x: &Input, out: &Output, at: u32, columns: u32) -> Words {
    let mut r = Words::empty();
    if comptime!(x.kind == Kind::Full) {
        r = x.wide[at as usize];
    } else if comptime!(x.kind == Kind::Own) {
        r = out.wide[at as usize];
    } else if comptime!(x.kind == Kind::Strided) {
        let vectors = columns / 4u32;
        let row = at / vectors;
        let column = (at - row * vectors) * 4u32;
        let first = x.offset + row * x.row_stride + column * x.column_stride;
        #[unroll]
        for l in 0..4u32 {
            r[l as usize] = x.words[(first + l * x.column_stride) as usize];
        }
    } else if comptime!(x.kind == Kind::Scalar) {
        #[unroll]
        for l in 0..4u32 {
            r[l as usize] = x.value;
        }
    }
    r
}

/// Elements `at`, `at + 256`, ... below `total`; others are 0.
#[cube]
fn apart(
    x: &Input,
    out: &Output,
    at: u32,
    total: u32,
    columns: u32,
    #[comptime] each: u32,
) -> Words {
    let mut r = Words::empty();
    #[unroll]
    for l in 0..each {
        // Each element of `r` is assigned once: CubeCL 0.10.0 merges assignments to a vector by
        // their number, whichever elements they go to.
        let mut word = 0u32;
        if comptime!(x.kind == Kind::Scalar) {
            word = x.value;
        } else if comptime!(x.kind != Kind::None) {
            let i = at + l * UNITS;
            if i < total {
                if comptime!(x.kind == Kind::Full) {
                    word = x.words[i as usize];
                } else if comptime!(x.kind == Kind::Own) {
                    word = out.words[i as usize];
                } else {
                    let row = i / columns;
                    let column = i - row * columns;
                    let place = x.offset + row * x.row_stride + column * x.column_stride;
                    word = x.words[place as usize];
                }
            }
        }
        r[l as usize] = word;
    }
    r
}

#[cube]
fn elementwise(
    ieee: &Ieee,
    a: &Input,
    b: &Input,
    c: &Input,
    out: &mut Output,
    total: u32,
    columns: u32,
    #[comptime] op: Op,
    #[comptime] vectors: bool,
    #[comptime] each: u32,
) {
    let cube = CUBE_POS as u32;
    if comptime!(vectors) {
        let at = cube * UNITS + UNIT_POS;
        if at < total / 4u32 {
            let x = wide(a, out, at, columns);
            let y = wide(b, out, at, columns);
            let z = wide(c, out, at, columns);
            let mut r = Words::empty();
            #[unroll]
            for l in 0..4usize {
                r[l] = apply(ieee, x[l], y[l], z[l], op);
            }
            out.wide[at as usize] = r;
        }
    } else {
        let at = cube * comptime!(each * UNITS) + UNIT_POS;
        let x = apart(a, out, at, total, columns, each);
        let y = apart(b, out, at, total, columns, each);
        let z = apart(c, out, at, total, columns, each);
        #[unroll]
        for l in 0..each {
            let i = at + l * UNITS;
            if i < total {
                out.words[i as usize] =
                    apply(ieee, x[l as usize], y[l as usize], z[l as usize], op);
            }
        }
    }
}

/// Elements of one unit.
fn each(profile: FloatProfile) -> u32 {
    let native = profile.direct();
    if native { 4 } else { 1 }
}

/// `vectors` needs a profile with four elements a unit.
fn kernel(profile: FloatProfile, op: Op, kinds: [Kind; 3], vectors: bool) -> Kernel {
    let each = each(profile);
    Kernel::new(
        "elementwise",
        profile,
        (op, kinds, vectors),
        CubeDim::new_1d(UNITS),
        move |d| {
            let ieee = d.ieee();
            let (wide, words) = if vectors {
                let wide = d.output::<Words>();
                let words = wide.expand.clone().into();
                (wide, words)
            } else {
                let words = d.output::<u32>();
                (words.expand.clone().into(), words)
            };
            let out = OutputExpand { wide, words };
            let [a, b, c] = kinds.map(|kind| input(d, &out, kind, vectors));
            let (total, columns) = (d.scalar::<u32>(), d.scalar::<u32>());
            elementwise::expand(
                d.scope(),
                ieee,
                a,
                b,
                c,
                out,
                total,
                columns,
                op,
                vectors,
                each,
            );
        },
    )
}

/// Declares what an operand of `kind` needs; fields that it doesn't read stand for something else.
fn input(d: &mut Definition, out: &OutputExpand, kind: Kind, vectors: bool) -> InputExpand {
    let mut input = InputExpand {
        wide: out.wide.clone(),
        words: out.words.clone(),
        value: 0u32.into(),
        offset: 0u32.into(),
        row_stride: 0u32.into(),
        column_stride: 0u32.into(),
        kind,
    };
    match kind {
        Kind::Scalar => input.value = d.scalar::<u32>(),
        Kind::Full if vectors => input.wide = d.input::<Words>(),
        Kind::Full => input.words = d.input::<u32>(),
        Kind::Strided => {
            input.words = d.input::<u32>();
            input.offset = d.scalar::<u32>();
            input.row_stride = d.scalar::<u32>();
            input.column_stride = d.scalar::<u32>();
        }
        Kind::Own | Kind::None => {}
    }
    input
}

/// Puts the operation in the queue; `out` holds `shape[0] * shape[1]` words.
pub(super) fn run(
    device: &Device,
    op: Op,
    shape: [usize; 2],
    operands: &[Place<'_>],
    out: &mut dyn AnyBuffer,
) -> Result<()> {
    let total = shape[0] * shape[1];
    let mut kinds = [Kind::None; 3];
    let profile = device.profile()?;
    let each = each(profile) as usize;
    let mut vectors = each == 4 && total % 4 == 0;
    for (kind, place) in kinds.iter_mut().zip(operands) {
        *kind = match place {
            Place::Scalar(_) => Kind::Scalar,
            Place::Full(_) => Kind::Full,
            Place::Own => Kind::Own,
            Place::Strided { .. } => {
                vectors &= shape[1] % 4 == 0;
                Kind::Strided
            }
        };
    }
    let width = if vectors { 4 } else { 1 };
    let cubes = grid(total, each * UNITS as usize)?;
    let mut args = vec![out.arg(width)];
    for place in operands {
        match *place {
            Place::Scalar(value) => args.push(value.into()),
            Place::Full(buffer) => args.push(buffer.arg(width)),
            Place::Own => {}
            Place::Strided {
                buffer,
                offset,
                row_stride,
                column_stride,
            } => args.extend([
                buffer.arg(1),
                Arg::U32(offset as u32),
                Arg::U32(row_stride as u32),
                Arg::U32(column_stride as u32),
            ]),
        }
    }
    args.extend([Arg::U32(total as u32), Arg::U32(shape[1] as u32)]);
    device.launch(&kernel(profile, op, kinds, vectors), cubes, &args)
}

/// Every function, whole vectors; one function with every kind of operand, both ways.
pub(super) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let mut all: Vec<_> = Op::all()
        .map(|op| {
            let mut kinds = [Kind::None; 3];
            kinds[..op.arity()].fill(Kind::Full);
            kernel(profile, op, kinds, each(profile) == 4)
        })
        .collect();
    let op = super::Binary::Sub.into();
    for kind in [Kind::Scalar, Kind::Strided, Kind::Own] {
        for vectors in [false, true] {
            if vectors && each(profile) != 4 {
                continue;
            }
            all.push(kernel(profile, op, [kind, Kind::Full, Kind::None], vectors));
        }
    }
    all
}

#[cube]
fn count_up(out: &mut Array<u32>, total: u32, first: u32, step: u32) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < total {
        out[i as usize] = prim::wrapping_add(first, prim::wrapping_mul(i, step));
    }
}

fn iota_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("iota", profile, (), CubeDim::new_1d(UNITS), |d| {
        let out = d.output::<u32>();
        let [total, first, step] = [(); 3].map(|()| d.scalar::<u32>());
        count_up::expand(d.scope(), out, total, first, step);
    })
}

pub(super) fn iota(out: &mut Buffer<u32>, first: u32, step: u32) -> Result<()> {
    let device = out.device().clone();
    let total = out.len() as u32;
    device.launch(
        &iota_kernel(device.profile()?),
        grid(out.len(), UNITS as usize)?,
        args![out, total, first, step],
    )
}
