//! The GPU path: tiles staged through shared memory, a block of sums in each unit's registers.
//!
//! A cube forms one tile of the output. Its units load the operands' next terms into registers
//! while they multiply those in one half of shared memory, then put them into the other half. A
//! unit's sums are one chain over ascending k for each element; where a panel of `N6` ends they
//! are folded into totals in registers or in the output. A split schedule gives each panel a
//! cube of its own and folds the panels' sums afterwards. None of that shows in the bits.
//!
//! Operands are staged as vectors of four elements, along k or along their lanes (rows of `a`,
//! columns of `b`), whichever lie side by side in memory. Lanes beyond the matrix read its last
//! one and are not stored. Terms beyond the last are -0 in `a` and +0 in `b`: their product is
//! -0, and adding -0 leaves every sum as it is, zeros of either sign included.

// Branches on compile-time values may differ in nothing else.
#![allow(clippy::if_same_then_else)]

use super::{Layout, Problem, finish};
use crate::device::{Arg, Buffer, Definition, Device, Kernel};
use crate::ieee::{FloatProfile, Ieee, Path};
use crate::ops::grid;
use crate::ops::transpose::transpose_batch;
use crate::prim;
use cubecl::prelude::*;
use detml_core::Result;

type Four = Vector<f32, Const<4>>;

/// The axis along which an operand's elements are staged four at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Along {
    K,
    Lane,
}

/// How an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Read {
    along: Along,
    /// Whether the four lie side by side, aligned, and all or none of them exist.
    wide: bool,
}

/// Where the sums of panels are folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fold {
    /// There is one panel.
    None,
    Registers,
    /// In the output, which then must not be read for `beta`.
    Output,
}

/// The shape of a cube's tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    rows: u32,
    columns: u32,
    /// Terms staged at a time: 8 or 16.
    depth: u32,
    /// Rows and columns of one unit.
    unit_rows: u32,
    unit_columns: u32,
}

impl Tile {
    /// For large products.
    pub(super) const LARGE: Self = Self::new(128, 128, 8, 8, 8);
    pub(super) const MEDIUM: Self = Self::new(64, 64, 8, 8, 8);
    pub(super) const SMALL: Self = Self::new(32, 32, 16, 4, 4);
    /// For few rows.
    pub(super) const WIDE: Self = Self::new(32, 128, 8, 8, 4);
    pub(super) const ROWS_8: Self = Self::new(8, 128, 8, 8, 4);
    pub(super) const ROWS_4: Self = Self::new(4, 128, 8, 4, 4);
    pub(super) const ALL: [Self; 6] = [
        Self::LARGE,
        Self::MEDIUM,
        Self::SMALL,
        Self::WIDE,
        Self::ROWS_8,
        Self::ROWS_4,
    ];

    const fn new(rows: u32, columns: u32, depth: u32, unit_rows: u32, unit_columns: u32) -> Self {
        Self {
            rows,
            columns,
            depth,
            unit_rows,
            unit_columns,
        }
    }

    /// A tile named by its five numbers, joined by `x`.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let numbers: Option<Vec<u32>> = name.split('x').map(|x| x.parse().ok()).collect();
        match numbers?[..] {
            [rows, columns, depth, unit_rows, unit_columns] => {
                Some(Self::new(rows, columns, depth, unit_rows, unit_columns))
            }
            _ => None,
        }
    }

    /// Rows and columns.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.rows as usize, self.columns as usize)
    }

    fn units_down(&self) -> u32 {
        self.rows / self.unit_rows
    }

    fn units_across(&self) -> u32 {
        self.columns / self.unit_columns
    }

    fn units(&self) -> u32 {
        self.units_down() * self.units_across()
    }
}

/// Everything that changes the code of `product`.
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
    /// Whether the output is written four elements at a time.
    wide: bool,
}

/// A schedule to force; the default is chosen by shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) tile: Option<Tile>,
    pub(super) fold: Option<Fold>,
    pub(super) split: Option<bool>,
    pub(super) swap: Option<bool>,
    /// Whether `b` is transposed in memory first where its terms lie side by side.
    pub(super) turn: Option<bool>,
    /// Panels whose sums a split schedule holds at once.
    pub(super) group: Option<usize>,
}

#[derive(CubeType)]
struct Operand {
    wide: Array<Four>,
    words: Array<f32>,
    offset: u32,
    lane: u32,
    k: u32,
    batch: u32,
    #[cube(comptime)]
    read: Read,
}

#[derive(CubeType)]
struct Output {
    wide: Array<Four>,
    words: Array<f32>,
    offset: u32,
    row: u32,
    column: u32,
    batch: u32,
}

#[derive(CubeType)]
struct Extent {
    m: u32,
    n: u32,
    k: u32,
    /// Terms in a panel.
    panel: u32,
    /// The launch's first panel, and members of the batch that go with each panel; or the
    /// launch's first member of the batch, and 0.
    first: u32,
    members: u32,
    alpha: f32,
    beta: f32,
    /// -0 and +0, which no compiler knows.
    pad_a: f32,
    pad_b: f32,
}

/// Where a unit's sums lie.
#[derive(CubeType)]
struct Spot {
    row: u32,
    column: u32,
    unit_row: u32,
    unit_column: u32,
    /// The output's first element.
    base: u32,
}

/// One side of a tile: its lanes, and how they are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Side {
    along: Along,
    lanes: u32,
    depth: u32,
    /// Lanes of a unit, and units side by side.
    each: u32,
    units: u32,
}

impl Variant {
    fn side_a(&self) -> Side {
        Side {
            along: self.a.along,
            lanes: self.tile.rows,
            depth: self.tile.depth,
            each: self.tile.unit_rows,
            units: self.tile.units_down(),
        }
    }

    fn side_b(&self) -> Side {
        Side {
            along: self.b.along,
            lanes: self.tile.columns,
            depth: self.tile.depth,
            each: self.tile.unit_columns,
            units: self.tile.units_across(),
        }
    }
}

impl Side {
    /// Vectors of one stage.
    fn vectors(&self) -> u32 {
        self.lanes * self.depth / 4
    }

    /// Vectors that each of `units` units loads, rounded up.
    fn loads(&self, units: u32) -> u32 {
        self.vectors().div_ceil(units)
    }
}

/// Where this unit's vectors of the first stage begin: the stage starts at `lane` and term `k`.
/// Lanes beyond `lanes` read the last ones.
#[cube]
fn places(
    x: &Operand,
    base: u32,
    lane: u32,
    k: u32,
    lanes: u32,
    unit: u32,
    into: &mut Array<u32>,
    #[comptime] side: Side,
    #[comptime] units: u32,
) {
    #[unroll]
    for i in 0..comptime!(side.loads(units)) {
        let v = i * units + unit;
        if comptime!(side.along == Along::K) {
            let across = comptime!(side.depth / 4);
            let lane = lane + v / across;
            let lane = prim::select_u32(lane < lanes, lane, lanes - 1u32);
            let k = k + v % across * 4u32;
            let place = base + lane * x.lane + k * x.k;
            into[i as usize] = place / comptime!(if x.read.wide { 4 } else { 1 });
        } else {
            let across = comptime!(side.lanes / 4);
            let lane = lane + v % across * 4u32;
            let k = k + v / across;
            if comptime!(x.read.wide) {
                let lane = prim::select_u32(lane < lanes, lane, lanes - 4u32);
                into[i as usize] = (base + lane + k * x.k) / 4u32;
            } else {
                into[i as usize] = base + k * x.k;
            }
        }
    }
}

/// Loads this unit's vectors of the stage at term `k`, which lie `ahead` further than those of
/// the first stage. Terms from `end` on are `pad`.
#[cube]
fn load(
    x: &Operand,
    places: &Array<u32>,
    ahead: u32,
    lane: u32,
    k: u32,
    lanes: u32,
    end: u32,
    pad: f32,
    unit: u32,
    into: &mut Array<Four>,
    #[comptime] side: Side,
    #[comptime] units: u32,
) {
    #[unroll]
    for i in 0..comptime!(side.loads(units)) {
        let v = i * units + unit;
        let place = places[i as usize] + ahead;
        let mut r = Four::new(pad);
        if comptime!(side.along == Along::K) {
            let k = k + v % comptime!(side.depth / 4) * 4u32;
            if comptime!(x.read.wide) {
                if k < end {
                    r = x.wide[place as usize];
                }
            } else {
                let mut words = Four::empty();
                #[unroll]
                for l in 0..4u32 {
                    let mut word = pad;
                    if k + l < end {
                        word = x.words[(place + l * x.k) as usize];
                    }
                    // Each element of a vector is assigned once: CubeCL 0.10.0 merges assignments.
                    words[l as usize] = word;
                }
                r = words;
            }
        } else {
            let k = k + v / comptime!(side.lanes / 4);
            if comptime!(x.read.wide) {
                if k < end {
                    r = x.wide[place as usize];
                }
            } else {
                let lane = lane + v % comptime!(side.lanes / 4) * 4u32;
                let mut words = Four::empty();
                #[unroll]
                for l in 0..4u32 {
                    let lane = prim::select_u32(lane + l < lanes, lane + l, lanes - 1u32);
                    let mut word = pad;
                    if k < end {
                        word = x.words[(place + lane * x.lane) as usize];
                    }
                    words[l as usize] = word;
                }
                r = words;
            }
        }
        into[i as usize] = r;
    }
}

/// Puts what `load` loaded into shared memory.
#[cube]
fn stage(
    from: &Array<Four>,
    into: &mut SharedMemory<Four>,
    at: u32,
    unit: u32,
    #[comptime] side: Side,
    #[comptime] units: u32,
) {
    #[unroll]
    for i in 0..comptime!(side.loads(units)) {
        let v = i * units + unit;
        let mut place = v;
        if comptime!(side.along == Along::K) {
            let across = comptime!(side.depth / 4);
            place = spread(v / across, v % across, side);
        }
        if comptime!(side.vectors() % units == 0) {
            into[(at + place) as usize] = from[i as usize];
        } else if v < comptime!(side.vectors()) {
            into[(at + place) as usize] = from[i as usize];
        }
    }
}

/// The place in a stage of the `step`-th vector along k of a lane. Where eight lanes are read
/// together their vectors are in different banks.
#[cube]
fn spread(lane: u32, step: u32, #[comptime] side: Side) -> u32 {
    let across = comptime!(side.depth / 4);
    if comptime!(side.units % 8 == 0) {
        let shift = (lane / comptime!(8 / across)) % across;
        lane * across + (step ^ shift)
    } else {
        lane * across + step
    }
}

/// The lane within the tile of a unit's `i`-th.
#[cube]
fn lane_of(i: u32, unit: u32, #[comptime] side: Side) -> u32 {
    if comptime!(side.along == Along::K) {
        i * comptime!(side.units) + unit
    } else {
        i / 4u32 * comptime!(4 * side.units) + unit * 4u32 + i % 4u32
    }
}

/// Four terms of each of a unit's lanes, term after term, from a stage along k.
#[cube]
fn terms_along_k(
    shared: &SharedMemory<Four>,
    at: u32,
    step: u32,
    unit: u32,
    out: &mut Array<f32>,
    #[comptime] side: Side,
    #[comptime] unroll: bool,
) {
    // The shift repeats every eight lanes, so a unit's other lanes lie a constant further.
    // The remainder is itself: it tells compilers that the sums below don't wrap, so that the
    // constants go into the addresses of the loads.
    let first = (at + spread(unit, step, side)) % comptime!(2 * side.vectors());
    #[unroll(unroll)]
    for i in 0..comptime!(side.each) {
        let place = first + i * comptime!(side.units * side.depth / 4);
        let v = shared[place as usize];
        #[unroll]
        for l in 0..4u32 {
            out[(l * comptime!(side.each) + i) as usize] = v[l as usize];
        }
    }
}

/// One term of each of a unit's lanes from a stage along the lanes, as the `l`-th of four.
#[cube]
fn term_along_lanes(
    shared: &SharedMemory<Four>,
    at: u32,
    k: u32,
    l: u32,
    unit: u32,
    out: &mut Array<f32>,
    #[comptime] side: Side,
    #[comptime] unroll: bool,
) {
    let first = at + unit;
    #[unroll(unroll)]
    for h in 0..comptime!(side.each / 4) {
        let place = k * comptime!(side.lanes / 4) + h * comptime!(side.units);
        let v = shared[(first + place) as usize];
        #[unroll]
        for i in 0..4u32 {
            out[(l * comptime!(side.each) + h * 4u32 + i) as usize] = v[i as usize];
        }
    }
}

/// What is stored for a unit's sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Store {
    /// They themselves.
    Plain,
    /// Their sums with what is there.
    Add,
    /// The elements of the result, [`finish`].
    Finish,
    /// The elements of the result, from their sums with what is there.
    AddFinish,
}

#[cube]
fn value(
    ieee: &Ieee,
    sum: f32,
    there: f32,
    alpha: f32,
    beta: f32,
    #[comptime] v: Variant,
    #[comptime] how: Store,
) -> f32 {
    if comptime!(how == Store::Plain) {
        sum
    } else if comptime!(how == Store::Add) {
        ieee.add(there, sum)
    } else if comptime!(how == Store::Finish) {
        finish(*ieee, sum, alpha, beta, there, v.scaled, v.added)
    } else {
        let total = ieee.add(there, sum);
        finish(*ieee, total, alpha, beta, there, v.scaled, false)
    }
}

#[cube]
fn store(
    ieee: &Ieee,
    out: &mut Output,
    sums: &Array<f32>,
    size: &Extent,
    spot: &Spot,
    #[comptime] v: Variant,
    #[comptime] how: Store,
    #[comptime] unroll: bool,
) {
    let reads = comptime!(match how {
        Store::Plain => false,
        Store::Finish => v.added,
        Store::Add | Store::AddFinish => true,
    });
    let tile_rows = comptime!(v.tile.unit_rows);
    let tile_columns = comptime!(v.tile.unit_columns);
    // What is there is read for some rows at a time, so that the reads wait together.
    let group = comptime!(if !unroll {
        1
    } else if v.wide {
        2
    } else {
        1
    });
    let vectors = comptime!(tile_columns / 4);
    #[unroll(unroll)]
    for turn in 0..comptime!(tile_rows / group) {
        if comptime!(v.wide) {
            let mut there = Array::<Four>::new(comptime!((group * vectors) as usize));
            if reads {
                #[unroll(unroll)]
                for r in 0..group {
                    let i = turn * group + r;
                    let row = spot.row + lane_of(i, spot.unit_row, comptime!(v.side_a()));
                    #[unroll(unroll)]
                    for h in 0..vectors {
                        let j = h * 4u32;
                        let column =
                            spot.column + lane_of(j, spot.unit_column, comptime!(v.side_b()));
                        if row < size.m && column < size.n {
                            let place = (spot.base + row * out.row + column) / 4u32;
                            there[(r * vectors + h) as usize] = out.wide[place as usize];
                        }
                    }
                }
            }
            #[unroll(unroll)]
            for r in 0..group {
                let i = turn * group + r;
                let row = spot.row + lane_of(i, spot.unit_row, comptime!(v.side_a()));
                #[unroll(unroll)]
                for h in 0..vectors {
                    let j = h * 4u32;
                    let column = spot.column + lane_of(j, spot.unit_column, comptime!(v.side_b()));
                    if row < size.m && column < size.n {
                        let mut c = Four::empty();
                        if reads {
                            c = there[(r * vectors + h) as usize];
                        }
                        let mut x = Four::empty();
                        #[unroll]
                        for l in 0..4u32 {
                            x[l as usize] = value(
                                ieee,
                                sums[(i * tile_columns + j + l) as usize],
                                c[l as usize],
                                size.alpha,
                                size.beta,
                                v,
                                how,
                            );
                        }
                        let place = (spot.base + row * out.row + column) / 4u32;
                        out.wide[place as usize] = x;
                    }
                }
            }
        } else {
            let mut there = Array::<f32>::new(comptime!((group * tile_columns) as usize));
            if reads {
                #[unroll(unroll)]
                for r in 0..group {
                    let i = turn * group + r;
                    let row = spot.row + lane_of(i, spot.unit_row, comptime!(v.side_a()));
                    #[unroll(unroll)]
                    for j in 0..tile_columns {
                        let column =
                            spot.column + lane_of(j, spot.unit_column, comptime!(v.side_b()));
                        if row < size.m && column < size.n {
                            let place = spot.base + row * out.row + column * out.column;
                            there[(r * tile_columns + j) as usize] = out.words[place as usize];
                        }
                    }
                }
            }
            #[unroll(unroll)]
            for r in 0..group {
                let i = turn * group + r;
                let row = spot.row + lane_of(i, spot.unit_row, comptime!(v.side_a()));
                #[unroll(unroll)]
                for j in 0..tile_columns {
                    let column = spot.column + lane_of(j, spot.unit_column, comptime!(v.side_b()));
                    if row < size.m && column < size.n {
                        let mut c = 0.0f32;
                        if reads {
                            c = there[(r * tile_columns + j) as usize];
                        }
                        let place = spot.base + row * out.row + column * out.column;
                        out.words[place as usize] = value(
                            ieee,
                            sums[(i * tile_columns + j) as usize],
                            c,
                            size.alpha,
                            size.beta,
                            v,
                            how,
                        );
                    }
                }
            }
        }
    }
}

/// Runs the chains over the terms of one stage.
#[cube]
fn multiply(
    ieee: &Ieee,
    shared_a: &SharedMemory<Four>,
    shared_b: &SharedMemory<Four>,
    half: u32,
    sums: &mut Array<f32>,
    spot: &Spot,
    #[comptime] v: Variant,
    #[comptime] unroll: bool,
) {
    let side_a = comptime!(v.side_a());
    let side_b = comptime!(v.side_b());
    let rows = comptime!(side_a.each);
    let columns = comptime!(side_b.each);
    let at_a = half * comptime!(side_a.vectors());
    let at_b = half * comptime!(side_b.vectors());
    let mut x = Array::<f32>::new(comptime!(4 * rows as usize));
    let mut y = Array::<f32>::new(comptime!(4 * columns as usize));
    #[unroll(unroll)]
    for step in 0..comptime!(v.tile.depth / 4) {
        if comptime!(side_a.along == Along::K) {
            terms_along_k(shared_a, at_a, step, spot.unit_row, &mut x, side_a, unroll);
        }
        if comptime!(side_b.along == Along::K) {
            terms_along_k(
                shared_b,
                at_b,
                step,
                spot.unit_column,
                &mut y,
                side_b,
                unroll,
            );
        }
        #[unroll(unroll)]
        for l in 0..4u32 {
            let k = step * 4u32 + l;
            if comptime!(side_a.along == Along::Lane) {
                term_along_lanes(shared_a, at_a, k, l, spot.unit_row, &mut x, side_a, unroll);
            }
            if comptime!(side_b.along == Along::Lane) {
                let unit = spot.unit_column;
                term_along_lanes(shared_b, at_b, k, l, unit, &mut y, side_b, unroll);
            }
            #[unroll(unroll)]
            for i in 0..rows {
                #[unroll(unroll)]
                for j in 0..columns {
                    let at = (i * columns + j) as usize;
                    // `N6`: a chain over ascending k.
                    sums[at] = ieee.fma(
                        x[(l * rows + i) as usize],
                        y[(l * columns + j) as usize],
                        sums[at],
                    );
                }
            }
        }
    }
}

/// One tile of the product.
#[cube]
fn product(
    ieee: &Ieee,
    a: &Operand,
    b: &Operand,
    out: &mut Output,
    size: &Extent,
    #[comptime] v: Variant,
    #[comptime] unroll: bool,
) {
    let rows = comptime!(v.tile.rows);
    let columns = comptime!(v.tile.columns);
    let depth = comptime!(v.tile.depth);
    let side_a = comptime!(v.side_a());
    let side_b = comptime!(v.side_b());
    let units = comptime!(v.tile.units());
    let each = comptime!(v.tile.unit_rows * v.tile.unit_columns);
    let down = (size.m + (rows - 1u32)) / rows;
    let across = (size.n + (columns - 1u32)) / columns;
    let tile = CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X;
    if tile < down * across {
        // Tiles that run at the same time share rows and columns: eight rows of tiles at a time.
        let group = tile / (8u32 * across);
        let left = down - group * 8u32;
        let height = prim::select_u32(left < 8u32, left, 8u32);
        let rest = tile - group * (8u32 * across);
        let row = (group * 8u32 + rest % height) * rows;
        let column = rest / height * columns;

        // The number of units is a power of two. Bits that are known to be zero let compilers add
        // constants within an address.
        let unit = UNIT_POS_X % units;
        // A plane of 32 reads 4 rows and 8 columns of units where the tile has them.
        let mut unit_row = unit / comptime!(v.tile.units_across());
        let mut unit_column = unit % comptime!(v.tile.units_across());
        if comptime!(v.tile.units_down() % 4 == 0 && v.tile.units_across() % 8 == 0) {
            let blocks = comptime!(v.tile.units_across() / 8);
            let block = unit / 32u32;
            unit_row = block / blocks * 4u32 + unit % 32u32 / 8u32;
            unit_column = block % blocks * 8u32 + unit % 8u32;
        }

        let mut batch = CUBE_POS_Z + size.first;
        let mut slot = batch;
        let mut first = 0u32;
        let mut end = size.k;
        if comptime!(v.split) {
            batch = CUBE_POS_Z % size.members;
            slot = CUBE_POS_Z;
            first = (CUBE_POS_Z / size.members + size.first) * size.panel;
            end = prim::select_u32(first + size.panel < size.k, first + size.panel, size.k);
        }
        let spot = Spot {
            row,
            column,
            unit_row,
            unit_column,
            base: out.offset + slot * out.batch,
        };
        let base_a = a.offset + batch * a.batch;
        let base_b = b.offset + batch * b.batch;

        let mut shared_a = SharedMemory::<Four>::new(comptime!(2 * side_a.vectors() as usize));
        let mut shared_b = SharedMemory::<Four>::new(comptime!(2 * side_b.vectors() as usize));
        let mut next_a = Array::<Four>::new(comptime!(side_a.loads(units) as usize));
        let mut next_b = Array::<Four>::new(comptime!(side_b.loads(units) as usize));
        let mut sums = Array::<f32>::new(comptime!(each as usize));
        #[unroll(unroll)]
        for i in 0..each {
            sums[i as usize] = size.pad_b;
        }
        let mut totals = Array::<f32>::new(comptime!(if v.fold == Fold::Registers {
            each as usize
        } else {
            1
        }));

        let mut at_a = Array::<u32>::new(comptime!(side_a.loads(units) as usize));
        let mut at_b = Array::<u32>::new(comptime!(side_b.loads(units) as usize));
        places(
            a, base_a, row, first, size.m, unit, &mut at_a, side_a, units,
        );
        places(
            b, base_b, column, first, size.n, unit, &mut at_b, side_b, units,
        );
        let advance_a = a.k * depth / comptime!(if v.a.wide { 4 } else { 1 });
        let advance_b = b.k * depth / comptime!(if v.b.wide { 4 } else { 1 });

        let steps = (end - first + (depth - 1u32)) / depth;
        let steps_a_panel = size.panel / depth;
        let mut in_panel = 0u32;
        let mut folded: u32 = 0u32;
        load(
            a,
            &at_a,
            0u32,
            row,
            first,
            size.m,
            end,
            size.pad_a,
            unit,
            &mut next_a,
            side_a,
            units,
        );
        load(
            b,
            &at_b,
            0u32,
            column,
            first,
            size.n,
            end,
            size.pad_b,
            unit,
            &mut next_b,
            side_b,
            units,
        );
        stage(&next_a, &mut shared_a, 0u32, unit, side_a, units);
        stage(&next_b, &mut shared_b, 0u32, unit, side_b, units);
        sync_cube();

        for step in 0..steps {
            let half = step % 2u32;
            // After the last stage comes one of padding: no branch lets a compiler put the loads
            // off until they are needed.
            let next = step + 1u32;
            let k = first + next * depth;
            let ahead_a = next * advance_a;
            let ahead_b = next * advance_b;
            load(
                a,
                &at_a,
                ahead_a,
                row,
                k,
                size.m,
                end,
                size.pad_a,
                unit,
                &mut next_a,
                side_a,
                units,
            );
            load(
                b,
                &at_b,
                ahead_b,
                column,
                k,
                size.n,
                end,
                size.pad_b,
                unit,
                &mut next_b,
                side_b,
                units,
            );
            multiply(
                ieee, &shared_a, &shared_b, half, &mut sums, &spot, v, unroll,
            );
            let other = 1u32 - half;
            let vectors = comptime!(side_a.vectors());
            stage(&next_a, &mut shared_a, other * vectors, unit, side_a, units);
            let vectors = comptime!(side_b.vectors());
            stage(&next_b, &mut shared_b, other * vectors, unit, side_b, units);
            sync_cube();

            if comptime!(v.fold != Fold::None) {
                in_panel += 1u32;
                if in_panel == steps_a_panel && next < steps {
                    in_panel = 0u32;
                    // `N6`: the first panel's sums, then the others' added in order.
                    if comptime!(v.fold == Fold::Registers) {
                        #[unroll(unroll)]
                        for i in 0..each {
                            if folded != 0u32 {
                                totals[i as usize] = ieee.add(totals[i as usize], sums[i as usize]);
                            } else {
                                totals[i as usize] = sums[i as usize];
                            }
                        }
                    } else if folded != 0u32 {
                        store(ieee, out, &sums, size, &spot, v, Store::Add, unroll);
                    } else {
                        store(ieee, out, &sums, size, &spot, v, Store::Plain, unroll);
                    }
                    folded += 1u32;
                    #[unroll(unroll)]
                    for i in 0..each {
                        sums[i as usize] = size.pad_b;
                    }
                }
            }
        }

        if comptime!(v.split) {
            store(ieee, out, &sums, size, &spot, v, Store::Plain, unroll);
        } else if comptime!(v.fold == Fold::None) {
            store(ieee, out, &sums, size, &spot, v, Store::Finish, unroll);
        } else if comptime!(v.fold == Fold::Registers) {
            if folded != 0u32 {
                #[unroll(unroll)]
                for i in 0..each {
                    sums[i as usize] = ieee.add(totals[i as usize], sums[i as usize]);
                }
            }
            store(ieee, out, &sums, size, &spot, v, Store::Finish, unroll);
        } else if folded != 0u32 {
            store(ieee, out, &sums, size, &spot, v, Store::AddFinish, unroll);
        } else {
            store(ieee, out, &sums, size, &spot, v, Store::Finish, unroll);
        }
    }
}

/// Declares an operand's buffer and numbers.
fn operand(d: &mut Definition, read: Read) -> OperandExpand {
    let (wide, words) = if read.wide {
        let wide = d.input::<Four>();
        let words = wide.expand.clone().into();
        (wide, words)
    } else {
        let words = d.input::<f32>();
        (words.expand.clone().into(), words)
    };
    OperandExpand {
        wide,
        words,
        offset: d.scalar(),
        lane: d.scalar(),
        k: d.scalar(),
        batch: d.scalar(),
        read,
    }
}

fn output(d: &mut Definition, wide: bool) -> OutputExpand {
    let (wide, words) = if wide {
        let wide = d.output::<Four>();
        let words = wide.expand.clone().into();
        (wide, words)
    } else {
        let words = d.output::<f32>();
        (words.expand.clone().into(), words)
    };
    OutputExpand {
        wide,
        words,
        offset: d.scalar(),
        row: d.scalar(),
        column: d.scalar(),
        batch: d.scalar(),
    }
}

fn product_kernel(profile: FloatProfile, v: Variant) -> Kernel {
    // Emulated arithmetic is long code: there it stands once, in loops.
    let unroll = profile.fma == Path::Native && profile.subnormal == Path::Native;
    // One cube multiplies while another waits for its stage. Totals in registers leave no room.
    let resident = match v.fold {
        Fold::Registers => 0,
        Fold::None | Fold::Output if v.tile == Tile::LARGE => 2,
        Fold::None | Fold::Output => 0,
    };
    Kernel::new(
        "gemm",
        profile,
        v,
        CubeDim::new_1d(v.tile.units()),
        move |d| {
            let ieee = d.ieee();
            let (a, b) = (operand(d, v.a), operand(d, v.b));
            let out = output(d, v.wide);
            let size = ExtentExpand {
                m: d.scalar(),
                n: d.scalar(),
                k: d.scalar(),
                panel: d.scalar(),
                first: d.scalar(),
                members: d.scalar(),
                alpha: d.scalar(),
                beta: d.scalar(),
                pad_a: d.scalar(),
                pad_b: d.scalar(),
            };
            product::expand(d.scope(), ieee, a, b, out, size, v, unroll);
        },
    )
    .resident(resident)
}

/// What `fold` does besides adding panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Folding {
    /// Whether the panels are the first ones.
    first: bool,
    /// Whether they are the last ones.
    last: bool,
    scaled: bool,
    added: bool,
}

/// Adds the sums of `panels` panels in order (`N6`), `total` elements each, row after row of `n`.
#[cube]
fn fold(
    ieee: &Ieee,
    sums: &Array<f32>,
    totals: &mut Array<f32>,
    out: &mut Output,
    total: u32,
    panels: u32,
    m: u32,
    n: u32,
    alpha: f32,
    beta: f32,
    #[comptime] v: Folding,
) {
    let at = CUBE_POS as u32 * 256u32 + UNIT_POS;
    if at < total {
        let mut x = sums[at as usize];
        if comptime!(!v.first) {
            x = ieee.add(totals[at as usize], x);
        }
        for panel in 1..panels {
            x = ieee.add(x, sums[(panel * total + at) as usize]);
        }
        if comptime!(v.last) {
            let row = at / n;
            let batch = row / m;
            let place = out.offset
                + batch * out.batch
                + (row - batch * m) * out.row
                + (at - row * n) * out.column;
            let mut c = 0.0f32;
            if comptime!(v.added) {
                c = out.words[place as usize];
            }
            out.words[place as usize] = finish(*ieee, x, alpha, beta, c, v.scaled, v.added);
        } else {
            totals[at as usize] = x;
        }
    }
}

fn fold_kernel(profile: FloatProfile, v: Folding) -> Kernel {
    Kernel::new("gemm_fold", profile, v, CubeDim::new_1d(256), move |d| {
        let ieee = d.ieee();
        let sums = d.input::<f32>();
        // Where all is done at once there are no totals between.
        let totals = if v.first && v.last {
            None
        } else {
            Some(d.output::<f32>())
        };
        let out = if v.last {
            output(d, false)
        } else {
            let words = totals.clone().unwrap_or_else(|| sums.clone());
            OutputExpand {
                wide: words.expand.clone().into(),
                words,
                offset: 0u32.into(),
                row: 0u32.into(),
                column: 0u32.into(),
                batch: 0u32.into(),
            }
        };
        let totals = totals.unwrap_or_else(|| out.words.clone());
        let [total, panels, m, n] = [(); 4].map(|()| d.scalar::<u32>());
        let (alpha, beta) = (d.scalar::<f32>(), d.scalar::<f32>());
        fold::expand(
            d.scope(),
            ieee,
            sums,
            totals,
            out,
            total,
            panels,
            m,
            n,
            alpha,
            beta,
            v,
        );
    })
}

/// An operand as it lies in a buffer.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) buffer: &'a Buffer<f32>,
    pub(super) offset: usize,
    pub(super) lane: usize,
    pub(super) k: usize,
    pub(super) batch: usize,
}

impl Source<'_> {
    /// Whether the buffer holds `b` transposed and nothing else.
    fn turns(&self, p: &Problem) -> bool {
        let size = p.n * p.k;
        self.k == 1
            && (self.lane, self.offset) == (p.k, 0)
            && (p.batch == 1 || self.batch == size)
            && self.buffer.len() == p.batch * size
    }

    fn read(&self, lanes: usize, p: &Problem) -> Read {
        let along = if self.k == 1 || (self.lane != 1 && self.k <= self.lane) {
            Along::K
        } else {
            Along::Lane
        };
        let (unit, pitch, count) = match along {
            Along::K => (self.k, self.lane, p.k),
            Along::Lane => (self.lane, self.k, lanes),
        };
        let aligned = [self.offset, pitch, count].iter().all(|x| x % 4 == 0)
            && (p.batch == 1 || self.batch % 4 == 0);
        Read {
            along,
            wide: unit == 1 && aligned && count > 0,
        }
    }

    fn args(&self, read: Read) -> [Arg<'_>; 5] {
        [
            self.buffer.vectors(if read.wide { 4 } else { 1 }),
            Arg::U32(self.offset as u32),
            Arg::U32(self.lane as u32),
            Arg::U32(self.k as u32),
            Arg::U32(self.batch as u32),
        ]
    }
}

/// Where the output's elements lie.
#[derive(Clone, Copy)]
struct Place {
    offset: usize,
    row: usize,
    column: usize,
    batch: usize,
}

impl Place {
    fn args<'a>(&self, buffer: &'a Buffer<f32>, wide: bool) -> [Arg<'a>; 5] {
        [
            buffer.vectors(if wide { 4 } else { 1 }),
            Arg::U32(self.offset as u32),
            Arg::U32(self.row as u32),
            Arg::U32(self.column as u32),
            Arg::U32(self.batch as u32),
        ]
    }
}

/// Rows of `a` from which on it pays to transpose `b`.
const TURN: usize = 1024;
/// Units that keep a large device busy.
const BUSY: usize = 132 * 384;
/// Elements that the sums of a split schedule may take.
const SPLIT: usize = 1 << 24;
/// Cubes in a dimension of a launch.
const CUBES: usize = 65_535;

/// Runs a problem with neither rows, columns nor batch empty.
pub(super) fn gemm(
    device: &Device,
    p: &Problem,
    a: Source<'_>,
    b: Source<'_>,
    c: &mut Buffer<f32>,
    layout: Layout,
    plan: Plan,
) -> Result<()> {
    // Few columns are better the rows of the transposed product. A product of two numbers does
    // not depend on their order.
    let place = Place {
        offset: layout.offset,
        row: layout.row_stride,
        column: layout.column_stride,
        batch: layout.batch_stride,
    };
    if plan.swap.unwrap_or(p.n <= 32 && p.m > p.n) {
        let p = Problem {
            m: p.n,
            n: p.m,
            ..*p
        };
        let place = Place {
            row: place.column,
            column: place.row,
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
    place: Place,
    plan: Plan,
) -> Result<()> {
    let panels = p.k.div_ceil(p.panel).max(1);
    let tile = plan.tile.unwrap_or_else(|| choose(p, panels));
    let tiles = p.m.div_ceil(tile.rows as usize) * p.n.div_ceil(tile.columns as usize);
    let busy = tiles * p.batch * tile.units() as usize >= BUSY;
    let outputs = p.batch * p.m * p.n;
    let split =
        panels > 1 && 2 * p.batch <= CUBES && 2 * outputs <= SPLIT && plan.split.unwrap_or(!busy);
    // Terms side by side in both operands take more registers than two cubes have.
    let turned;
    let b = match plan.turn.unwrap_or(tile == Tile::LARGE && p.m >= TURN) && b.turns(p) {
        true => {
            turned = transpose_batch(b.buffer, [p.batch, p.n, p.k])?;
            Source {
                buffer: &turned,
                lane: 1,
                k: p.n,
                ..b
            }
        }
        false => b,
    };
    let (read_a, read_b) = (a.read(p.m, p), b.read(p.n, p));
    let profile = device.profile()?;
    let variant = Variant {
        tile,
        a: read_a,
        b: read_b,
        fold: Fold::None,
        split,
        scaled: !split && p.scaled(),
        added: !split && p.added(),
        wide: false,
    };
    let cubes = grid(tiles, 1)?;
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
    if !split {
        let fold = match plan.fold {
            _ if panels == 1 => Fold::None,
            Some(Fold::Output) | None if !p.added() => Fold::Output,
            _ => Fold::Registers,
        };
        let variant = Variant {
            fold,
            wide: wide(&read_b, p, place),
            ..variant
        };
        let kernel = product_kernel(profile, variant);
        for first in (0..p.batch).step_by(CUBES) {
            let args: Vec<Arg<'_>> = a
                .args(read_a)
                .into_iter()
                .chain(b.args(read_b))
                .chain(place.args(c, variant.wide))
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
        row: p.n,
        column: 1,
        batch: p.m * p.n,
    };
    let variant = Variant {
        wide: wide(&read_b, p, rows),
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
            .args(read_a)
            .into_iter()
            .chain(b.args(read_b))
            .chain(rows.args(&sums, variant.wide))
            .chain(extent(first, p.batch))
            .collect();
        device.launch(&kernel, (cubes.0, cubes.1, (group * p.batch) as u32), &args)?;

        let last = first + group == panels;
        let folding = Folding {
            first: first == 0,
            last,
            scaled: last && p.scaled(),
            added: last && p.added(),
        };
        let mut args = vec![Arg::from(&sums)];
        if let Some(totals) = &totals {
            args.push(Arg::from(totals));
        }
        if last {
            args.extend(place.args(c, false));
        }
        args.extend([
            Arg::U32(outputs as u32),
            Arg::U32(group as u32),
            Arg::U32(p.m as u32),
            Arg::U32(p.n as u32),
            Arg::F32(p.alpha),
            Arg::F32(p.beta),
        ]);
        device.launch(&fold_kernel(profile, folding), grid(outputs, 256)?, &args)?;
    }
    Ok(())
}

/// Whether four columns of the output can be written at once.
fn wide(b: &Read, p: &Problem, place: Place) -> bool {
    b.along == Along::Lane
        && place.column == 1
        && [p.n, place.offset].iter().all(|x| x % 4 == 0)
        && (p.m == 1 || place.row % 4 == 0)
        && (p.batch == 1 || place.batch % 4 == 0)
}

/// The largest tile whose cubes keep a device busy.
fn choose(p: &Problem, panels: usize) -> Tile {
    if p.m <= 4 {
        return Tile::ROWS_4;
    }
    if p.m <= 8 {
        return Tile::ROWS_8;
    }
    if p.m <= 32 && p.n > 32 {
        return Tile::WIDE;
    }
    [Tile::LARGE, Tile::MEDIUM]
        .into_iter()
        .find(|tile| {
            let tiles = p.m.div_ceil(tile.rows as usize) * p.n.div_ceil(tile.columns as usize);
            tiles * p.batch * panels * tile.units() as usize >= BUSY
        })
        .unwrap_or(Tile::SMALL)
}

/// Each tile in some way of reading, folding and storing, and each of those ways.
pub(super) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let read = |along, wide| Read { along, wide };
    let base = Variant {
        tile: Tile::LARGE,
        a: read(Along::K, true),
        b: read(Along::Lane, true),
        fold: Fold::None,
        split: false,
        scaled: false,
        added: false,
        wide: true,
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
    variants[0].fold = Fold::Output;
    for along in [Along::K, Along::Lane] {
        variants.push(Variant {
            a: read(along, true),
            b: read(along, true),
            fold: Fold::Output,
            wide: along == Along::Lane,
            ..base
        });
    }
    for fold in [Fold::Registers, Fold::Output] {
        variants.push(Variant {
            fold,
            wide: false,
            scaled: true,
            ..small
        });
    }
    variants.push(Variant {
        a: read(Along::Lane, true),
        b: read(Along::K, true),
        wide: false,
        split: true,
        ..small
    });
    variants.push(Variant {
        a: read(Along::Lane, false),
        b: read(Along::K, false),
        wide: false,
        scaled: true,
        added: true,
        ..small
    });
    variants.push(Variant {
        a: read(Along::K, false),
        b: read(Along::Lane, false),
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
            };
            fold_kernel(profile, folding)
        });
    variants
        .into_iter()
        .map(|v| product_kernel(profile, v))
        .chain(folds)
        .collect()
}
