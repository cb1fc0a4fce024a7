//! The GPU path: tiles staged through shared memory, a block of sums in each unit's registers.
//!
//! A cube forms one tile of the output. Its units load the operands' next terms into registers
//! while they multiply those in one half of shared memory, then put them into the other half. A
//! unit's sums are one chain over ascending k for each element; where a panel of `N6` ends they
//! are added to totals in shared memory or registers. A split schedule gives each panel a cube of
//! its own and folds the panels' sums afterwards. Operands of large products are first copied so
//! that their lanes lie side by side, where that pays. None of that shows in the bits.

// Branches on compile-time values may differ in nothing else.
#![allow(clippy::if_same_then_else)]

mod choose;
mod fold;
mod pack;
mod product;
mod stage;
mod thin;

pub(super) use choose::Tile;

use self::choose::choose;
use self::fold::Folding;
use self::product::{ExtentExpand, OutputExpand, Write, compute};
use self::stage::{OperandExpand, Read, Side};
use self::thin::Thin;
use super::Problem;
use crate::device::{Arg, Buffer, Definition, Device, Kernel};
use crate::ieee::FloatProfile;
use crate::ops::grid;
use cubecl::prelude::*;
use detml_core::Result;

type Four = Vector<f32, Const<4>>;

/// Where the sums of panels are folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fold {
    /// There is one panel.
    None,
    Registers,
    Shared,
}

/// Everything that changes the code of `compute`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Variant {
    tile: Tile,
    a: Read,
    b: Read,
    fold: Fold,
    /// One panel a cube, whose sums are stored as they are.
    split: bool,
    scaled: bool,
    added: bool,
    write: Write,
}

impl Variant {
    fn side_a(&self) -> Side {
        Side {
            read: self.a,
            lanes: self.tile.rows,
            depth: self.tile.depth,
            each: self.tile.unit_rows,
            units: self.tile.units_down(),
        }
    }

    fn side_b(&self) -> Side {
        Side {
            read: self.b,
            lanes: self.tile.columns,
            depth: self.tile.depth,
            each: self.tile.unit_columns,
            units: self.tile.units_across(),
        }
    }
}

/// A schedule to force; the default is chosen by shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) tile: Option<Tile>,
    pub(super) fold: Option<Fold>,
    pub(super) split: Option<bool>,
    pub(super) swap: Option<bool>,
    /// Whether operands whose lanes do not lie side by side are copied.
    pub(super) pack: Option<bool>,
    /// Whether few rows have a kernel of their own.
    pub(super) thin: Option<bool>,
    /// Panels whose sums a split schedule holds at once.
    pub(super) group: Option<usize>,
}

/// Declares an operand's buffers and numbers.
fn operand(d: &mut Definition, read: Read) -> OperandExpand {
    let (wide, words) = if read.wide() {
        let wide = d.input::<Four>();
        let words = wide.expand.clone().into();
        (wide, words)
    } else {
        let words = d.input::<f32>();
        (words.expand.clone().into(), words)
    };
    let (lanes, terms) = if read == Read::Table {
        (d.input(), d.input())
    } else {
        (words.expand.clone().into(), words.expand.clone().into())
    };
    OperandExpand {
        wide,
        words,
        lanes,
        terms,
        offset: d.scalar(),
        lane: d.scalar(),
        k: d.scalar(),
        batch: d.scalar(),
        count: d.scalar(),
        pad: d.scalar(),
    }
}

fn output(d: &mut Definition, write: Write) -> OutputExpand {
    let (wide, words) = if write == Write::Columns {
        let wide = d.output::<Four>();
        let words = wide.expand.clone().into();
        (wide, words)
    } else {
        let words = d.output::<f32>();
        (words.expand.clone().into(), words)
    };
    let (rows, columns) = if write == Write::Table {
        (d.input(), d.input())
    } else {
        (words.expand.clone().into(), words.expand.clone().into())
    };
    OutputExpand {
        wide,
        words,
        rows,
        columns,
        offset: d.scalar(),
        row: d.scalar(),
        column: d.scalar(),
        batch: d.scalar(),
        write,
    }
}

fn extent(d: &mut Definition) -> ExtentExpand {
    ExtentExpand {
        m: d.scalar(),
        n: d.scalar(),
        k: d.scalar(),
        panel: d.scalar(),
        first: d.scalar(),
        members: d.scalar(),
        alpha: d.scalar(),
        beta: d.scalar(),
        nothing: d.scalar(),
        zero: d.scalar(),
    }
}

fn product_kernel(profile: FloatProfile, v: Variant) -> Kernel {
    let unroll = profile.direct();
    Kernel::new(
        "gemm",
        profile,
        v,
        CubeDim::new_1d(v.tile.units()),
        move |d| {
            let ieee = d.ieee();
            let (a, b) = (operand(d, v.a), operand(d, v.b));
            let out = output(d, v.write);
            let size = extent(d);
            compute::expand(d.scope(), ieee, a, b, out, size, v, unroll);
        },
    )
    .resident(v.tile.resident(v.fold))
}

/// Where the elements along two axes lie.
#[derive(Clone, Copy)]
pub(crate) enum Axes<'a> {
    /// So many elements apart.
    Strides([usize; 2]),
    /// An element lies at the sum of two places, one from each table.
    Tables([&'a Buffer<u32>; 2]),
}

impl Axes<'_> {
    fn swapped(self) -> Self {
        match self {
            Self::Strides([x, y]) => Self::Strides([y, x]),
            Self::Tables([x, y]) => Self::Tables([y, x]),
        }
    }

    fn strides(&self) -> [usize; 2] {
        match *self {
            Self::Strides(strides) => strides,
            Self::Tables(_) => [0; 2],
        }
    }

    fn args(&self) -> Vec<Arg<'_>> {
        match *self {
            Self::Strides(_) => Vec::new(),
            Self::Tables(tables) => tables.map(Arg::from).into(),
        }
    }
}

/// An operand as it lies in a buffer: its axes are lanes (rows of `a`, columns of `b`) and terms.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) buffer: &'a Buffer<f32>,
    pub(crate) offset: usize,
    pub(crate) axes: Axes<'a>,
    /// From a member of the batch to the next.
    pub(crate) batch: usize,
}

impl Source<'_> {
    fn read(&self, lanes: usize, p: &Problem) -> Read {
        let Axes::Strides([lane, k]) = self.axes else {
            return Read::Table;
        };
        let aligned = |pitch: usize, count: usize| {
            count > 0
                && [self.offset, pitch, count].iter().all(|x| x % 4 == 0)
                && (p.batch == 1 || self.batch % 4 == 0)
        };
        if k == 1 && aligned(lane, p.k) {
            Read::Terms
        } else if lane == 1 && aligned(k, lanes) {
            Read::Lanes
        } else {
            Read::Words
        }
    }

    fn args(&self, read: Read, lanes: usize, pad: f32) -> Vec<Arg<'_>> {
        let [lane, k] = self.axes.strides();
        let mut args = vec![self.buffer.vectors(if read.wide() { 4 } else { 1 })];
        args.extend(self.axes.args());
        args.extend([self.offset, lane, k, self.batch, lanes].map(|x| Arg::U32(x as u32)));
        args.push(Arg::F32(pad));
        args
    }
}

/// Where the output's elements lie: its axes are rows and columns.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) offset: usize,
    pub(crate) axes: Axes<'a>,
    pub(crate) batch: usize,
}

impl Place<'_> {
    fn args<'a>(&'a self, buffer: &'a Buffer<f32>, write: Write) -> Vec<Arg<'a>> {
        let [row, column] = self.axes.strides();
        let mut args = vec![buffer.vectors(if write == Write::Columns { 4 } else { 1 })];
        args.extend(self.axes.args());
        args.extend([self.offset, row, column, self.batch].map(|x| Arg::U32(x as u32)));
        args
    }

    /// How it can be written.
    fn write(&self, p: &Problem) -> Write {
        match self.axes {
            Axes::Tables(_) => Write::Table,
            Axes::Strides([row, 1])
                if [p.n, self.offset].iter().all(|x| x % 4 == 0)
                    && (p.m == 1 || row % 4 == 0)
                    && (p.batch == 1 || self.batch % 4 == 0) =>
            {
                Write::Columns
            }
            Axes::Strides(_) => Write::Words,
        }
    }

    /// How it can be written one by one.
    fn write_words(&self) -> Write {
        match self.axes {
            Axes::Tables(_) => Write::Table,
            Axes::Strides(_) => Write::Words,
        }
    }
}

/// Elements that the sums of a split schedule may take.
const SPLIT: usize = 1 << 24;
/// Cubes in a dimension of a launch.
const CUBES: usize = 65_535;

/// Runs a problem with neither rows, columns nor batch empty. The caller has seen to it that every
/// element lies in its buffer and that elements of the output have places of their own.
pub(crate) fn gemm(
    device: &Device,
    p: &Problem,
    a: Source<'_>,
    b: Source<'_>,
    c: &mut Buffer<f32>,
    place: Place<'_>,
    plan: Plan,
) -> Result<()> {
    // Few columns are better the rows of the transposed product. A product of two numbers does
    // not depend on their order.
    if plan.swap.unwrap_or(p.n <= 32 && p.m > p.n) {
        let p = Problem {
            m: p.n,
            n: p.m,
            ..*p
        };
        let place = Place {
            axes: place.axes.swapped(),
            ..place
        };
        run(device, &p, b, a, c, place, plan)
    } else {
        run(device, p, a, b, c, place, plan)
    }
}

fn run(
    device: &Device,
    p: &Problem,
    a: Source<'_>,
    b: Source<'_>,
    c: &mut Buffer<f32>,
    place: Place<'_>,
    plan: Plan,
) -> Result<()> {
    let panels = p.k.div_ceil(p.panel).max(1);
    let profile = device.profile()?;
    let extent = |first: usize, members: usize| {
        [
            Arg::U32(p.m as u32),
            Arg::U32(p.n as u32),
            Arg::U32(p.k as u32),
            Arg::U32(p.panel as u32),
            Arg::U32(first as u32),
            Arg::U32(members as u32),
            Arg::F32(p.alpha),
            Arg::F32(p.beta),
            Arg::F32(-0.0),
            Arg::F32(0.0),
        ]
    };
    if choose::is_thin(p, panels, plan) {
        let reads = [a.read(p.m, p), b.read(p.n, p)];
        let side_by_side = matches!(b.axes, Axes::Strides([1, _]));
        if let Some(thin) = Thin::of(device, p, reads, side_by_side, place.write_words()) {
            let [read_a, read_b] = thin.reads();
            let cubes = grid(p.n, Thin::COLUMNS)?;
            let args: Vec<Arg<'_>> = a
                .args(read_a, p.m, -0.0)
                .into_iter()
                .chain(b.args(read_b, p.n, 0.0))
                .chain(place.args(c, thin.write()))
                .chain(extent(0, 0))
                .collect();
            let cubes = (cubes.0, cubes.1, p.batch as u32);
            return device.launch(&thin::kernel(profile, thin), cubes, &args);
        }
    }
    let choice = choose(device, p, panels, plan);
    let (mut tile, split) = (choice.tile, choice.split);
    let tiles = tile.tiles(p.m, p.n);
    let outputs = p.batch * p.m * p.n;
    let pack = |x: &Source<'_>, lanes, uses| {
        if choose::packs(tile, p, x.read(lanes, p), uses, plan) {
            pack::pack(device, x, lanes, p.k)
        } else {
            Ok(None)
        }
    };
    let (packed_a, packed_b) = (pack(&a, p.m, p.n)?, pack(&b, p.n, p.m)?);
    let (a, lanes_a) = match &packed_a {
        Some(packed) => (packed.source(), packed.lanes),
        None => (a, p.m),
    };
    let (b, lanes_b) = match &packed_b {
        Some(packed) => (packed.source(), packed.lanes),
        None => (b, p.n),
    };
    let (read_a, read_b) = (a.read(lanes_a, p), b.read(lanes_b, p));
    if (tile, read_a, read_b) == (Tile::TALL, Read::Lanes, Read::Lanes) && plan.tile.is_none() {
        tile = Tile::TALL_DEEP;
    }
    let variant = Variant {
        tile,
        a: read_a,
        b: read_b,
        fold: if split { Fold::None } else { choice.fold },
        split,
        scaled: !split && p.scaled(),
        added: !split && p.added(),
        write: place.write(p),
    };
    let cubes = grid(tiles, 1)?;
    if !split {
        let kernel = product_kernel(profile, variant);
        for first in (0..p.batch).step_by(CUBES) {
            let args: Vec<Arg<'_>> = a
                .args(read_a, lanes_a, -0.0)
                .into_iter()
                .chain(b.args(read_b, lanes_b, 0.0))
                .chain(place.args(c, variant.write))
                .chain(extent(first, 0))
                .collect();
            let members = (p.batch - first).min(CUBES) as u32;
            device.launch(&kernel, (cubes.0, cubes.1, members), &args)?;
        }
        return Ok(());
    }

    let group = plan
        .group
        .unwrap_or(SPLIT / outputs)
        .min(CUBES / p.batch)
        .clamp(1, panels);
    let rows = Place {
        offset: 0,
        axes: Axes::Strides([p.n, 1]),
        batch: p.m * p.n,
    };
    let variant = Variant {
        write: rows.write(p),
        ..variant
    };
    let kernel = product_kernel(profile, variant);
    let sums = device.empty::<f32>(outputs * group)?;
    let totals = if group < panels {
        Some(device.empty::<f32>(outputs)?)
    } else {
        None
    };
    for first in (0..panels).step_by(group) {
        let group = group.min(panels - first);
        let args: Vec<Arg<'_>> = a
            .args(read_a, lanes_a, -0.0)
            .into_iter()
            .chain(b.args(read_b, lanes_b, 0.0))
            .chain(rows.args(&sums, variant.write))
            .chain(extent(first, p.batch))
            .collect();
        device.launch(&kernel, (cubes.0, cubes.1, (group * p.batch) as u32), &args)?;

        let last = first + group == panels;
        let folding = Folding {
            first: first == 0,
            last,
            scaled: last && p.scaled(),
            added: last && p.added(),
            write: place.write_words(),
        };
        let mut args = vec![Arg::from(&sums)];
        if let Some(totals) = &totals {
            args.push(Arg::from(totals));
        }
        if last {
            args.extend(place.args(c, folding.write));
        }
        args.extend([
            Arg::U32(outputs as u32),
            Arg::U32(group as u32),
            Arg::U32(p.m as u32),
            Arg::U32(p.n as u32),
            Arg::F32(p.alpha),
            Arg::F32(p.beta),
        ]);
        device.launch(&fold::kernel(profile, folding), grid(outputs, 256)?, &args)?;
    }
    Ok(())
}

/// Each tile in some way of reading, folding and storing, and each of those ways.
pub(super) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let base = Variant {
        tile: Tile::LARGE,
        a: Read::Terms,
        b: Read::Lanes,
        fold: Fold::None,
        split: false,
        scaled: false,
        added: false,
        write: Write::Columns,
    };
    let small = Variant {
        tile: Tile::SMALL,
        ..base
    };
    let mut variants: Vec<Variant> = Tile::ALL
        .into_iter()
        .map(|tile| Variant { tile, ..base })
        .collect();
    // What large products of several panels take.
    for (tile, a, b) in [
        (Tile::TALL, Read::Terms, Read::Lanes),
        (Tile::TALL, Read::Terms, Read::Terms),
        (Tile::TALL_DEEP, Read::Lanes, Read::Lanes),
        (Tile::LARGE, Read::Terms, Read::Lanes),
    ] {
        variants.push(Variant {
            tile,
            a,
            b,
            fold: Fold::Shared,
            ..base
        });
    }
    for (fold, write) in [
        (Fold::Registers, Write::Columns),
        (Fold::Shared, Write::Words),
    ] {
        variants.push(Variant {
            fold,
            write,
            scaled: true,
            ..small
        });
    }
    variants.push(Variant {
        a: Read::Lanes,
        b: Read::Terms,
        write: Write::Words,
        split: true,
        ..small
    });
    variants.push(Variant {
        a: Read::Words,
        b: Read::Table,
        write: Write::Table,
        scaled: true,
        added: true,
        ..small
    });
    variants.push(Variant {
        a: Read::Table,
        b: Read::Words,
        added: true,
        ..small
    });
    let folds =
        [(true, true), (true, false), (false, false), (false, true)].map(|(first, last)| {
            let folding = Folding {
                first,
                last,
                scaled: last,
                added: last,
                write: if first { Write::Table } else { Write::Words },
            };
            fold::kernel(profile, folding)
        });
    variants
        .into_iter()
        .map(|v| product_kernel(profile, v))
        .chain(folds)
        .chain([true, false].map(|turn| pack::kernel(profile, turn)))
        .chain(thin::kernels(profile))
        .collect()
}
