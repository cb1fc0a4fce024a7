//! The product's kernel: a block of sums in each unit's registers.

use super::stage::{Operand, lane_of, load, locate, stage, term};
use super::{Fold, Four, Variant};
use crate::ieee::Ieee;
use crate::ops::gemm::finish;
use crate::prim;
use cubecl::prelude::*;

/// How the output is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Write {
    /// Vectors of four columns.
    Columns,
    /// Single elements.
    Words,
    /// Single elements, whose places are sums of a row's and a column's.
    Table,
}

#[derive(CubeType)]
pub(super) struct Output {
    pub(super) wide: Array<Four>,
    pub(super) words: Array<f32>,
    /// The places of rows and columns where there are tables.
    pub(super) rows: Array<u32>,
    pub(super) columns: Array<u32>,
    pub(super) offset: u32,
    pub(super) row: u32,
    pub(super) column: u32,
    pub(super) batch: u32,
    #[cube(comptime)]
    pub(super) write: Write,
}

#[cube]
impl Output {
    /// The place of a row's or a column's first element.
    pub(super) fn row_at(&self, row: u32) -> u32 {
        if comptime!(self.write == Write::Table) {
            self.rows[row as usize]
        } else {
            row * self.row
        }
    }

    pub(super) fn column_at(&self, column: u32) -> u32 {
        if comptime!(self.write == Write::Table) {
            self.columns[column as usize]
        } else {
            column * self.column
        }
    }
}

#[derive(CubeType)]
pub(super) struct Extent {
    pub(super) m: u32,
    pub(super) n: u32,
    pub(super) k: u32,
    /// Terms in a panel.
    pub(super) panel: u32,
    /// The launch's first panel, and members of the batch that go with each panel; or the
    /// launch's first member of the batch, and 0.
    pub(super) first: u32,
    pub(super) members: u32,
    pub(super) alpha: f32,
    pub(super) beta: f32,
    /// -0 and +0, which no compiler knows.
    pub(super) nothing: f32,
    pub(super) zero: f32,
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

#[cube]
fn store(
    ieee: &Ieee,
    out: &mut Output,
    sums: &Array<f32>,
    size: &Extent,
    spot: &Spot,
    #[comptime] v: Variant,
    #[comptime] unroll: bool,
) {
    let columns = comptime!(v.tile.unit_columns);
    #[unroll(unroll)]
    for i in 0..comptime!(v.tile.unit_rows) {
        let row = spot.row + lane_of(i, spot.unit_row, comptime!(v.side_a()));
        if row < size.m {
            let base = spot.base + out.row_at(row);
            if comptime!(v.write == Write::Columns) {
                #[unroll(unroll)]
                for h in 0..comptime!(columns / 4) {
                    let j = h * 4u32;
                    let column = spot.column + lane_of(j, spot.unit_column, comptime!(v.side_b()));
                    if column < size.n {
                        let place = ((base + column) / 4u32) as usize;
                        let mut c = Four::empty();
                        if comptime!(v.added) {
                            c = out.wide[place];
                        }
                        let mut x = Four::empty();
                        #[unroll]
                        for l in 0..4u32 {
                            let sum = sums[(i * columns + j + l) as usize];
                            x[l as usize] = value(ieee, sum, c[l as usize], size, v);
                        }
                        out.wide[place] = x;
                    }
                }
            } else {
                #[unroll(unroll)]
                for j in 0..columns {
                    let column = spot.column + lane_of(j, spot.unit_column, comptime!(v.side_b()));
                    if column < size.n {
                        let place = (base + out.column_at(column)) as usize;
                        let mut c = 0.0f32;
                        if comptime!(v.added) {
                            c = out.words[place];
                        }
                        let sum = sums[(i * columns + j) as usize];
                        out.words[place] = value(ieee, sum, c, size, v);
                    }
                }
            }
        }
    }
}

/// What is stored for a sum: a split schedule folds first.
#[cube]
fn value(ieee: &Ieee, sum: f32, c: f32, size: &Extent, #[comptime] v: Variant) -> f32 {
    if comptime!(v.split) {
        sum
    } else {
        finish(*ieee, sum, size.alpha, size.beta, c, v.scaled, v.added)
    }
}

/// Runs the chains over the terms of the stage at `at`.
#[cube]
fn multiply(
    ieee: &Ieee,
    shared: &SharedMemory<Four>,
    at: u32,
    sums: &mut Array<f32>,
    spot: &Spot,
    #[comptime] v: Variant,
    #[comptime] unroll: bool,
) {
    let side_a = comptime!(v.side_a());
    let side_b = comptime!(v.side_b());
    let rows = comptime!(side_a.each);
    let columns = comptime!(side_b.each);
    let within = comptime!(v.within());
    let at_b = at + comptime!(side_a.vectors());
    let mut x = Array::<f32>::new(comptime!(rows as usize));
    let mut y = Array::<f32>::new(comptime!(columns as usize));
    #[unroll(unroll)]
    for k in 0..comptime!(v.tile.depth) {
        term(shared, at, k, spot.unit_row, &mut x, side_a, within, unroll);
        term(
            shared,
            at_b,
            k,
            spot.unit_column,
            &mut y,
            side_b,
            within,
            unroll,
        );
        #[unroll(unroll)]
        for i in 0..rows {
            #[unroll(unroll)]
            for j in 0..columns {
                let at = (i * columns + j) as usize;
                // `N6`: a chain over ascending k.
                sums[at] = ieee.fma(x[i as usize], y[j as usize], sums[at]);
            }
        }
    }
}

/// Whose block a unit's `slot`-th is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    A,
    B,
    /// The first units' are of `a`.
    Both,
}

impl Variant {
    /// Blocks of a unit.
    fn slots(&self) -> u32 {
        (self.side_a().blocks() + self.side_b().blocks()).div_ceil(self.tile.units())
    }

    /// A power of two that the places of two stages are below.
    fn within(&self) -> u32 {
        (2 * (self.side_a().vectors() + self.side_b().vectors())).next_power_of_two()
    }

    fn whose(&self, slot: u32) -> Whose {
        let (first, end) = (slot * self.tile.units(), (slot + 1) * self.tile.units());
        let a = self.side_a().blocks();
        if end <= a {
            Whose::A
        } else if first >= a && end <= a + self.side_b().blocks() {
            Whose::B
        } else {
            Whose::Both
        }
    }
}

/// Loads a unit's blocks of the stage that begins at term `k`.
#[cube]
fn load_all(
    a: &Operand,
    b: &Operand,
    places: &Array<u32>,
    k: u32,
    end: u32,
    unit: u32,
    next: &mut Array<Four>,
    #[comptime] v: Variant,
    #[comptime] whole: bool,
) {
    let side_a = comptime!(v.side_a());
    let side_b = comptime!(v.side_b());
    let of_a = comptime!(side_a.blocks());
    #[unroll]
    for slot in 0..comptime!(v.slots()) {
        let block = slot * comptime!(v.tile.units()) + unit;
        if comptime!(v.whose(slot) == Whose::A) {
            load(a, places, k, end, block, next, slot, side_a, whole);
        } else if comptime!(v.whose(slot) == Whose::B) {
            load(b, places, k, end, block - of_a, next, slot, side_b, whole);
        } else if block < of_a {
            load(a, places, k, end, block, next, slot, side_a, whole);
        } else if block < comptime!(of_a + side_b.blocks()) {
            load(b, places, k, end, block - of_a, next, slot, side_b, whole);
        }
    }
}

/// Puts them into the stage at `at`.
#[cube]
fn stage_all(
    next: &Array<Four>,
    shared: &mut SharedMemory<Four>,
    at: u32,
    unit: u32,
    #[comptime] v: Variant,
) {
    let side_a = comptime!(v.side_a());
    let side_b = comptime!(v.side_b());
    let of_a = comptime!(side_a.blocks());
    let at_b = at + comptime!(side_a.vectors());
    #[unroll]
    for slot in 0..comptime!(v.slots()) {
        let block = slot * comptime!(v.tile.units()) + unit;
        if comptime!(v.whose(slot) == Whose::A) {
            stage(next, shared, at, block, slot, side_a, v.within());
        } else if comptime!(v.whose(slot) == Whose::B) {
            stage(next, shared, at_b, block - of_a, slot, side_b, v.within());
        } else if block < of_a {
            stage(next, shared, at, block, slot, side_a, v.within());
        } else if block < comptime!(of_a + side_b.blocks()) {
            stage(next, shared, at_b, block - of_a, slot, side_b, v.within());
        }
    }
}

/// One tile of the product.
#[cube]
pub(super) fn compute(
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
        // A plane of 32 reads 4 rows and 8 columns of units where the tile has them. Units that
        // differ in their lowest bit share a column, those that differ in the next one a row:
        // NVIDIA's shared memory then serves two at once.
        let mut unit_row = unit / comptime!(v.tile.units_across());
        let mut unit_column = unit % comptime!(v.tile.units_across());
        if comptime!(v.tile.units_down() % 4 == 0 && v.tile.units_across() % 8 == 0) {
            let blocks = comptime!(v.tile.units_across() / 8);
            let block = unit / 32u32;
            unit_row = block / blocks * 4u32 + unit % 32u32 / 16u32 * 2u32 + unit % 2u32;
            unit_column = block % blocks * 8u32 + unit % 16u32 / 2u32;
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

        let vectors = comptime!(side_a.vectors() + side_b.vectors());
        // Two stages, then totals.
        let mut shared = SharedMemory::<Four>::new(comptime!(match v.fold {
            Fold::Shared => (2 * vectors + each * units / 4) as usize,
            _ => 2 * vectors as usize,
        }));
        let mut next = Array::<Four>::new(comptime!(4 * v.slots() as usize));
        let mut places = Array::<u32>::new(comptime!(4 * v.slots() as usize));
        let of_a = comptime!(side_a.blocks());
        #[unroll]
        for slot in 0..comptime!(v.slots()) {
            let block = slot * units + unit;
            if comptime!(v.whose(slot) == Whose::A) {
                locate(a, base_a, row, block, &mut places, slot, side_a);
            } else if comptime!(v.whose(slot) == Whose::B) {
                locate(b, base_b, column, block - of_a, &mut places, slot, side_b);
            } else if block < of_a {
                locate(a, base_a, row, block, &mut places, slot, side_a);
            } else if block < comptime!(of_a + side_b.blocks()) {
                locate(b, base_b, column, block - of_a, &mut places, slot, side_b);
            }
        }

        // Panels' sums so far; before the first, what adding leaves as it is.
        let mut totals = Array::<f32>::new(comptime!(match v.fold {
            Fold::Registers => each as usize,
            _ => 1,
        }));
        let at_totals = comptime!(2 * vectors) + unit;
        if comptime!(v.fold == Fold::Registers) {
            #[unroll(unroll)]
            for i in 0..each {
                totals[i as usize] = size.nothing;
            }
        } else if comptime!(v.fold == Fold::Shared) {
            #[unroll(unroll)]
            for i in 0..comptime!(each / 4) {
                shared[(at_totals + i * units) as usize] = Four::new(size.nothing);
            }
        }

        let mut at = 0u32;
        load_all(a, b, &places, first, end, unit, &mut next, v, false);
        stage_all(&next, &mut shared, at, unit, v);
        sync_cube();

        let mut k = first;
        let mut sums = Array::<f32>::new(comptime!(each as usize));
        let panels = comptime!(v.fold != Fold::None);
        let mut running = true;
        while running {
            #[unroll(unroll)]
            for i in 0..each {
                sums[i as usize] = size.zero;
            }
            let mut until = end;
            if panels {
                until = prim::select_u32(end - k < size.panel, end, k + size.panel);
            }
            let steps = (until - k + (depth - 1u32)) / depth;
            let mut whole = 0u32;
            // Stages without padding have a loop of their own, whose loads ask for nothing.
            if comptime!(unroll) {
                let stages = (end - k) / depth;
                whole = prim::select_u32(stages > steps, steps, stages - 1u32);
                whole = prim::select_u32(stages > 0u32, whole, 0u32);
                for _step in 0..whole {
                    k += depth;
                    load_all(a, b, &places, k, end, unit, &mut next, v, true);
                    multiply(ieee, &shared, at, &mut sums, &spot, v, unroll);
                    at = vectors - at;
                    stage_all(&next, &mut shared, at, unit, v);
                    sync_cube();
                }
            }
            for _step in whole..steps {
                // After the last stage comes one of padding: no branch lets a compiler put the
                // loads off until they are needed.
                k += depth;
                load_all(a, b, &places, k, end, unit, &mut next, v, false);
                multiply(ieee, &shared, at, &mut sums, &spot, v, unroll);
                at = vectors - at;
                stage_all(&next, &mut shared, at, unit, v);
                sync_cube();
            }
            running = k < end;
            // `N6`: panels are added in order.
            if comptime!(v.fold == Fold::Registers) {
                #[unroll(unroll)]
                for i in 0..each {
                    totals[i as usize] = ieee.add(totals[i as usize], sums[i as usize]);
                }
            } else if comptime!(v.fold == Fold::Shared) {
                #[unroll(unroll)]
                for i in 0..comptime!(each / 4) {
                    let place = (at_totals + i * units) as usize;
                    let total = shared[place];
                    let mut x = Four::empty();
                    #[unroll]
                    for l in 0..4u32 {
                        let sum = sums[(i * 4u32 + l) as usize];
                        x[l as usize] = ieee.add(total[l as usize], sum);
                    }
                    shared[place] = x;
                }
            }
        }

        if comptime!(v.fold == Fold::Registers) {
            #[unroll(unroll)]
            for i in 0..each {
                sums[i as usize] = totals[i as usize];
            }
        } else if comptime!(v.fold == Fold::Shared) {
            #[unroll(unroll)]
            for i in 0..comptime!(each / 4) {
                let total = shared[(at_totals + i * units) as usize];
                #[unroll]
                for l in 0..4u32 {
                    sums[(i * 4u32 + l) as usize] = total[l as usize];
                }
            }
        }
        store(ieee, out, &sums, size, &spot, v, unroll);
    }
}
