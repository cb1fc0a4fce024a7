//! The GPU path: tiles of queries (for the gradients of keys: keys) against blocks of 64 of the
//! other side, slices of both staged through shared memory, sums in registers.
//!
//! A tile's products with a block are a unit's square of sums: rows `i * down + unit_row` of the
//! tile and places `j * 8 + unit_column` of the block. So the first three steps of the tree of a
//! row's weights (`N5`) stay within a unit, and the last three are done by the row's *owner*, the
//! unit that keeps its maximum and sum. Weights go through shared memory to the units that sum
//! their products.
//!
//! Places beyond the last are zeros that weigh +0. They may turn a sum of -0 into +0, which no
//! result shows. Blocks that some rows see in part take a select for each pair, since a weight of
//! +0 does not hide what is not finite.

// Branches on compile-time values may differ in nothing else.
#![allow(clippy::if_same_then_else)]

use super::{BLOCK, Gradients, LOWEST, Problem, SEGMENT, finish, larger};
use crate::device::{Arg, Buffer, Definition, Device, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use crate::math::{exp_weight, ln};
use crate::ops::gemm::PANEL;
use crate::ops::grid;
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Error, Result};

type Four = Vector<f32, Const<4>>;

/// Units side by side along a block.
const ACROSS: u32 = 8;
/// Elements of the width, or places, that are staged at a time.
const DEPTH: u32 = 8;
const BLOCK_32: u32 = BLOCK as u32;
const LOWEST_BITS: u32 = LOWEST.to_bits();
const PANEL_32: u32 = PANEL as u32;
/// Blocks of a segment, and of a panel of sums.
const BLOCKS_A_SEGMENT: u32 = (SEGMENT / BLOCK) as u32;
const BLOCKS_A_PANEL: u32 = (PANEL / BLOCK) as u32;
/// Slices of a panel of the width.
const SLICES: u32 = PANEL as u32 / DEPTH;

/// The shape of a cube's tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    rows: u32,
    /// Rows of one unit, 4 or 8.
    each: u32,
    /// Columns of the output.
    columns: u32,
}

impl Tile {
    /// Within 16 KiB of shared memory.
    pub(super) const SMALL: Self = Self::new(16, 4, 32);
    pub(super) const ALL: [Self; 9] = [
        Self::SMALL,
        Self::new(32, 4, 64),
        Self::new(32, 4, 128),
        Self::new(64, 8, 64),
        Self::new(128, 8, 64),
        Self::new(64, 4, 64),
        Self::new(64, 8, 128),
        Self::new(128, 8, 128),
        Self::new(64, 4, 128),
    ];

    pub(super) const fn new(rows: u32, each: u32, columns: u32) -> Self {
        Self {
            rows,
            each,
            columns,
        }
    }

    /// That of [`ALL`](Self::ALL) with the given rows, rows of a unit and columns.
    pub(super) fn named(name: &str) -> Option<Self> {
        let is = |tile: &Self| format!("{}x{}x{}", tile.rows, tile.each, tile.columns) == name;
        Self::ALL.into_iter().find(is)
    }

    /// Units one above the other.
    fn down(&self) -> u32 {
        self.rows / self.each
    }

    fn units(&self) -> u32 {
        self.down() * ACROSS
    }

    /// Vectors of columns that a unit has.
    fn vectors(&self) -> u32 {
        self.columns / (4 * ACROSS)
    }

    /// Vectors from a place's weights to the next one's. In between is one that nobody uses, so
    /// that eight units write to different banks.
    fn pitch(&self) -> u32 {
        self.rows / 4 + 1
    }

    /// Whether loops over registers are unrolled. Tiles of few rows wait for memory: what counts
    /// there are the units that fit, so they take as few registers as they can.
    fn unrolls(&self, profile: FloatProfile) -> bool {
        profile.direct() && self.rows > 32
    }

    /// Whether a device has enough shared memory.
    pub(super) fn fits(&self, device: &Device) -> bool {
        self.shared() <= device.shared_memory()
    }

    /// Bytes of shared memory that the kernels take.
    fn shared(&self) -> usize {
        let slices = 2 * DEPTH * (self.rows + BLOCK_32 + self.columns);
        let weights = 4 * BLOCK_32 * self.pitch();
        let rows = ACROSS * (self.rows + 4) + 2 * self.rows;
        4 * (slices + weights + rows) as usize
    }
}

/// A schedule to force; the default is chosen by shape and device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) tile: Option<Tile>,
    /// Whether the segments run side by side.
    pub(super) split: Option<bool>,
}

/// What changes the code of every kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Variant {
    tile: Tile,
    /// Whether rows are read and written four elements at a time.
    wide: bool,
    /// Whether the width has several panels.
    panels: bool,
    /// Whether there are lengths.
    lengths: bool,
    /// How the segments of the forward kernel meet.
    segments: Segments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Segments {
    One,
    /// In the output.
    Folded,
    /// Each has cubes of its own.
    Split,
}

/// Rows of `width` elements one after the other.
#[derive(CubeType)]
struct Rows {
    wide: Array<Four>,
    words: Array<f32>,
    #[cube(comptime)]
    is_wide: bool,
}

#[derive(CubeType)]
struct Extent {
    /// Queries of all heads that read one key head.
    rows: u32,
    queries: u32,
    keys: u32,
    width: u32,
    /// The first query's place among the keys.
    first: i32,
    /// Member and key head as one number: how many.
    owners: u32,
    kv_heads: u32,
    scale: f32,
    /// +0, which no compiler knows.
    zero: f32,
}

/// Where a unit's sums lie.
#[derive(CubeType, Clone, Copy)]
struct Spot {
    unit: u32,
    row: u32,
    column: u32,
}

/// What a cube is to do.
#[derive(CubeType, Clone, Copy)]
struct Task {
    /// Whether there is anything.
    exists: bool,
    owner: u32,
    /// The first row of the tile.
    first: u32,
    /// The first column of the output.
    column: u32,
    segment: u32,
}

/// The keys that a row sees: so many.
#[cube]
fn visible(size: &Extent, length: u32, row: u32) -> u32 {
    let n = prim::as_i32(row % size.queries) + size.first + 1i32;
    let n = prim::as_u32(prim::select_i32(n < 0i32, 0i32, n));
    prim::select_u32(n < length, n, length)
}

/// The most that rows `from..=to` see.
#[cube]
fn most_visible(size: &Extent, length: u32, from: u32, to: u32) -> u32 {
    let last = prim::select_u32(
        from / size.queries == to / size.queries,
        to,
        size.queries - 1u32,
    );
    visible(size, length, last)
}

/// The fewest.
#[cube]
fn least_visible(size: &Extent, length: u32, from: u32, to: u32) -> u32 {
    let first = prim::select_u32(from / size.queries == to / size.queries, from, 0u32);
    visible(size, length, first)
}

/// The number of keys that exist for a member.
#[cube]
fn length_of(size: &Extent, lengths: &Array<u32>, owner: u32, #[comptime] has: bool) -> u32 {
    let mut length = size.keys;
    if comptime!(has) {
        let n = lengths[(owner / size.kv_heads) as usize];
        length = prim::select_u32(n < length, n, length);
    }
    length
}

/// A cube's task: tiles of `count` rows that are late in their head come first, since causal ones
/// see more.
#[cube]
fn task(size: &Extent, count: u32, segments: u32, #[comptime] tile: Tile) -> Task {
    let tiles = (count + comptime!(tile.rows - 1)) / comptime!(tile.rows);
    let chunks = (size.width + comptime!(tile.columns - 1)) / comptime!(tile.columns);
    let place = CUBE_POS as u32;
    let chunk = place % chunks;
    let rest = place / chunks;
    let segment = rest % segments;
    let rest = rest / segments;
    let owner = rest % size.owners;
    let index = rest / size.owners;
    Task {
        exists: index < tiles,
        owner,
        first: (prim::select_u32(index < tiles, tiles - 1u32 - index, 0u32)) * comptime!(tile.rows),
        column: chunk * comptime!(tile.columns),
        segment,
    }
}

/// Vectors that each unit loads of a slice of `lanes` lanes.
fn loads(vectors: u32, tile: Tile) -> u32 {
    assert_eq!(
        vectors % tile.units(),
        0,
        "a slice is not shared out evenly"
    );
    vectors / tile.units()
}

/// Loads this unit's part of a slice along the width from `d` on, of `lanes` rows from row `first`
/// on. Rows from `count` on and elements beyond the width are zeros.
#[cube]
fn load_slice(
    x: &Rows,
    first: u32,
    count: u32,
    d: u32,
    size: &Extent,
    unit: u32,
    into: &mut Array<Four>,
    #[comptime] lanes: u32,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for i in 0..comptime!(loads(lanes * DEPTH / 4, tile)) {
        let v = i * comptime!(tile.units()) + unit;
        let lane = v / comptime!(DEPTH / 4);
        let k = d + v % comptime!(DEPTH / 4) * 4u32;
        into[i as usize] = load(x, first + lane, lane < count, k, size);
    }
}

/// Loads this unit's part of `DEPTH` rows from row `first` on, `tile.columns` from column `d` on.
#[cube]
fn load_terms(
    x: &Rows,
    first: u32,
    count: u32,
    d: u32,
    size: &Extent,
    unit: u32,
    into: &mut Array<Four>,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for i in 0..comptime!(loads(DEPTH * tile.columns / 4, tile)) {
        let v = i * comptime!(tile.units()) + unit;
        let row = v / comptime!(tile.columns / 4);
        let k = d + v % comptime!(tile.columns / 4) * 4u32;
        into[i as usize] = load(x, first + row, row < count, k, size);
    }
}

/// Four elements of a row from `k` on.
#[cube]
fn load(x: &Rows, row: u32, exists: bool, k: u32, size: &Extent) -> Four {
    let mut r = Four::new(size.zero);
    if exists {
        if comptime!(x.is_wide) {
            if k < size.width {
                r = x.wide[((row * size.width + k) / 4u32) as usize];
            }
        } else {
            let mut words = Four::empty();
            #[unroll]
            for l in 0..4u32 {
                let mut word = size.zero;
                if k + l < size.width {
                    word = x.words[(row * size.width + k + l) as usize];
                }
                // Each element of a vector is assigned once: CubeCL 0.10.0 merges assignments.
                words[l as usize] = word;
            }
            r = words;
        }
    }
    r
}

/// The place in a slice of the `step`-th vector of a lane: eight lanes that are read together are
/// in different banks.
#[cube]
fn spread(lane: u32, step: u32) -> u32 {
    lane * 2u32 + (step ^ ((lane / 4u32) % 2u32))
}

/// [`spread`] of lane `i * apart + lane` of the slice from `base` on, for an `apart` that is a
/// multiple of four. What is known before the kernel runs is added last: compilers take it for
/// a part of the load's address.
#[cube]
fn spread_apart(base: u32, lane: u32, i: u32, step: u32, #[comptime] apart: u32) -> u32 {
    let side = step ^ ((i * comptime!(apart / 4)) % 2u32);
    let first = base + lane * 2u32 + (((lane / 4u32) % 2u32) ^ side);
    first + i * comptime!(2 * apart)
}

#[cube]
fn stage_slice(
    from: &Array<Four>,
    into: &mut SharedMemory<Four>,
    half: u32,
    unit: u32,
    #[comptime] lanes: u32,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for i in 0..comptime!(loads(lanes * DEPTH / 4, tile)) {
        let v = i * comptime!(tile.units()) + unit;
        let place = spread(v / 2u32, v % 2u32);
        into[(half * comptime!(lanes * DEPTH / 4) + place) as usize] = from[i as usize];
    }
}

#[cube]
fn stage_terms(
    from: &Array<Four>,
    into: &mut SharedMemory<Four>,
    half: u32,
    unit: u32,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for i in 0..comptime!(loads(DEPTH * tile.columns / 4, tile)) {
        let v = i * comptime!(tile.units()) + unit;
        into[(half * comptime!(DEPTH * tile.columns / 4) + v) as usize] = from[i as usize];
    }
}

/// The rows of two operands whose products are taken.
#[derive(CubeType, Clone, Copy)]
struct Pair {
    /// The tile's first row, and how many exist.
    a: u32,
    a_count: u32,
    b: u32,
    b_count: u32,
}

/// The rows of a tile and those of a block of keys from `first` on, of which there are `most`.
#[cube]
fn pair_of(a: u32, a_count: u32, b: u32, first: u32, most: u32) -> Pair {
    let first = prim::select_u32(first < most, first, most);
    Pair {
        a,
        a_count,
        b: b + first,
        b_count: most - first,
    }
}

/// Loads the slices from `d` on of both operands.
#[cube]
fn load_pair(
    a: &Rows,
    b: &Rows,
    pair: &Pair,
    d: u32,
    size: &Extent,
    unit: u32,
    next_a: &mut Array<Four>,
    next_b: &mut Array<Four>,
    #[comptime] tile: Tile,
) {
    load_slice(
        a,
        pair.a,
        pair.a_count,
        d,
        size,
        unit,
        next_a,
        comptime!(tile.rows),
        tile,
    );
    load_slice(
        b,
        pair.b,
        pair.b_count,
        d,
        size,
        unit,
        next_b,
        BLOCK_32,
        tile,
    );
}

/// The products of a tile's rows with a block's, over the width (`N6`); the first slices are
/// loaded. Ends with a barrier.
#[cube]
fn products(
    ieee: &Ieee,
    a: &Rows,
    b: &Rows,
    pair: &Pair,
    size: &Extent,
    spot: &Spot,
    next_a: &mut Array<Four>,
    next_b: &mut Array<Four>,
    shared_a: &mut SharedMemory<Four>,
    shared_b: &mut SharedMemory<Four>,
    sums: &mut Array<f32>,
    #[comptime] v: Variant,
    #[comptime] unroll: bool,
) {
    let tile = comptime!(v.tile);
    let each = comptime!(tile.each * ACROSS);
    let mut totals = Array::<f32>::new(comptime!(if v.panels { each as usize } else { 1 }));
    #[unroll(unroll)]
    for i in 0..each {
        sums[i as usize] = size.zero;
    }
    stage_slice(
        next_a,
        shared_a,
        0u32,
        spot.unit,
        comptime!(tile.rows),
        tile,
    );
    stage_slice(next_b, shared_b, 0u32, spot.unit, BLOCK_32, tile);
    sync_cube();
    let steps = (size.width + comptime!(DEPTH - 1)) / DEPTH;
    for step in 0..steps {
        let half = step % 2u32;
        let other = 1u32 - half;
        // After the last slice comes one of zeros: no branch lets a compiler put the loads off
        // until they are needed.
        let d = (step + 1u32) * DEPTH;
        load_pair(a, b, pair, d, size, spot.unit, next_a, next_b, tile);
        multiply(ieee, shared_a, shared_b, half, sums, spot, tile, unroll);
        stage_slice(
            next_a,
            shared_a,
            other,
            spot.unit,
            comptime!(tile.rows),
            tile,
        );
        stage_slice(next_b, shared_b, other, spot.unit, BLOCK_32, tile);
        sync_cube();
        if comptime!(v.panels) {
            let panel = (step + 1u32) / SLICES;
            if (step + 1u32) % SLICES == 0u32 && step + 1u32 < steps {
                #[unroll(unroll)]
                for i in 0..each {
                    if panel > 1u32 {
                        totals[i as usize] = ieee.add(totals[i as usize], sums[i as usize]);
                    } else {
                        totals[i as usize] = sums[i as usize];
                    }
                    sums[i as usize] = size.zero;
                }
            }
        }
    }
    if comptime!(v.panels) {
        #[unroll(unroll)]
        for i in 0..each {
            sums[i as usize] = ieee.add(totals[i as usize], sums[i as usize]);
        }
    }
}

/// Runs the chains over the elements of one slice.
#[cube]
fn multiply(
    ieee: &Ieee,
    shared_a: &SharedMemory<Four>,
    shared_b: &SharedMemory<Four>,
    half: u32,
    sums: &mut Array<f32>,
    spot: &Spot,
    #[comptime] tile: Tile,
    #[comptime] unroll: bool,
) {
    let rows = comptime!(tile.each);
    let base_a = half * comptime!(tile.rows * DEPTH / 4);
    let base_b = half * comptime!(BLOCK_32 * DEPTH / 4);
    let mut x = Array::<f32>::new(comptime!(4 * tile.each as usize));
    #[unroll(unroll)]
    for step in 0..comptime!(DEPTH / 4) {
        #[unroll(unroll)]
        for i in 0..rows {
            let at = spread_apart(base_a, spot.row, i, step, comptime!(tile.down()));
            let four = shared_a[at as usize];
            #[unroll]
            for l in 0..4u32 {
                x[(l * rows + i) as usize] = four[l as usize];
            }
        }
        #[unroll(unroll)]
        for j in 0..ACROSS {
            let at = spread_apart(base_b, spot.column, j, step, ACROSS);
            let four = shared_b[at as usize];
            #[unroll]
            for l in 0..4u32 {
                #[unroll(unroll)]
                for i in 0..rows {
                    let at = (i * ACROSS + j) as usize;
                    // `N6`: a chain over ascending elements.
                    sums[at] = ieee.fma(x[(l * rows + i) as usize], four[l as usize], sums[at]);
                }
            }
        }
    }
}

/// Which pairs [`accumulate`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mask {
    None,
    /// A row those terms that are below its limit.
    Row,
    /// A term those rows that are below its limit.
    Term,
}

/// What is summed up: rows `first..first + count` of a tensor, from column `d` on.
#[derive(CubeType, Clone, Copy)]
struct Terms {
    first: u32,
    count: u32,
    d: u32,
    /// The place of the first among keys or queries.
    place: u32,
    length: u32,
}

/// Goes on with the sums of `weight * term` over a block's terms in ascending order; the first
/// slice is staged. Ends with a barrier.
#[cube]
fn accumulate(
    ieee: &Ieee,
    x: &Rows,
    terms: &Terms,
    limits: &Array<u32>,
    size: &Extent,
    spot: &Spot,
    next: &mut Array<Four>,
    weights: &SharedMemory<Four>,
    shared: &mut SharedMemory<Four>,
    sums: &mut Array<f32>,
    #[comptime] mask: Mask,
    #[comptime] tile: Tile,
    #[comptime] unroll: bool,
) {
    let steps = (terms.count + comptime!(DEPTH - 1)) / DEPTH;
    for step in 0..steps {
        let half = step % 2u32;
        let ahead = (step + 1u32) * DEPTH;
        let left = prim::select_u32(ahead < terms.count, terms.count - ahead, 0u32);
        load_terms(
            x,
            terms.first + ahead,
            left,
            terms.d,
            size,
            spot.unit,
            next,
            tile,
        );
        chains(
            ieee,
            step * DEPTH,
            half,
            terms,
            limits,
            size,
            spot,
            weights,
            shared,
            sums,
            mask,
            tile,
            unroll,
        );
        stage_terms(next, shared, 1u32 - half, spot.unit, tile);
        sync_cube();
    }
}

/// The terms of one slice.
#[cube]
fn chains(
    ieee: &Ieee,
    first: u32,
    half: u32,
    terms: &Terms,
    limits: &Array<u32>,
    size: &Extent,
    spot: &Spot,
    weights: &SharedMemory<Four>,
    shared: &SharedMemory<Four>,
    sums: &mut Array<f32>,
    #[comptime] mask: Mask,
    #[comptime] tile: Tile,
    #[comptime] unroll: bool,
) {
    let rows = comptime!(tile.each);
    let columns = comptime!(4 * tile.vectors());
    let weights_base = first * comptime!(tile.pitch()) + spot.row;
    let base = half * comptime!(DEPTH * tile.columns / 4) + spot.column;
    let mut x = Array::<f32>::new(comptime!(tile.each as usize));
    #[unroll(unroll)]
    for k in 0..DEPTH {
        #[unroll(unroll)]
        for h in 0..comptime!(tile.each / 4) {
            let at = k * comptime!(tile.pitch()) + h * comptime!(tile.down());
            let four = weights[(weights_base + at) as usize];
            #[unroll]
            for l in 0..4u32 {
                x[(h * 4u32 + l) as usize] = four[l as usize];
            }
        }
        let place = terms.place + first + k;
        let mut limit = 0u32;
        if comptime!(mask == Mask::Term) {
            limit = visible(size, terms.length, place);
        }
        #[unroll(unroll)]
        for h in 0..comptime!(tile.vectors()) {
            let at = k * comptime!(tile.columns / 4) + h * ACROSS;
            let four = shared[(base + at) as usize];
            #[unroll]
            for l in 0..4u32 {
                #[unroll(unroll)]
                for i in 0..rows {
                    let at = (i * columns + h * 4u32 + l) as usize;
                    let sum = ieee.fma(x[i as usize], four[l as usize], sums[at]);
                    if comptime!(mask == Mask::None) {
                        sums[at] = sum;
                    } else if comptime!(mask == Mask::Row) {
                        sums[at] = ieee.select(place < limits[i as usize], sum, sums[at]);
                    } else {
                        sums[at] = ieee.select(limits[i as usize] < limit, sum, sums[at]);
                    }
                }
            }
        }
    }
}

/// Where the weight of a unit's row vector `h` and place `j` lies.
#[cube]
fn weight_at(spot: &Spot, h: u32, j: u32, #[comptime] tile: Tile) -> u32 {
    (j * ACROSS + spot.column) * comptime!(tile.pitch()) + h * comptime!(tile.down()) + spot.row
}

/// Makes the weights of queries beyond the last +0: keys that are not finite give them others.
#[cube]
fn only_those_there(
    ieee: &Ieee,
    values: &mut Array<f32>,
    count: u32,
    size: &Extent,
    spot: &Spot,
    #[comptime] tile: Tile,
    #[comptime] unroll: bool,
) {
    if count < BLOCK_32 {
        #[unroll(unroll)]
        for j in 0..ACROSS {
            let there = j * ACROSS + spot.column < count;
            #[unroll(unroll)]
            for i in 0..comptime!(tile.each) {
                let at = (i * ACROSS + j) as usize;
                values[at] = ieee.select(there, values[at], size.zero);
            }
        }
    }
}

/// Puts a unit's numbers where [`accumulate`] takes its weights from.
#[cube]
fn put_weights(
    values: &Array<f32>,
    weights: &mut SharedMemory<Four>,
    spot: &Spot,
    #[comptime] tile: Tile,
    #[comptime] unroll: bool,
) {
    #[unroll(unroll)]
    for j in 0..ACROSS {
        #[unroll(unroll)]
        for h in 0..comptime!(tile.each / 4) {
            let mut four = Four::empty();
            #[unroll]
            for l in 0..4u32 {
                four[l as usize] = values[((h * 4u32 + l) * ACROSS + j) as usize];
            }
            weights[weight_at(spot, h, j, tile) as usize] = four;
        }
    }
}

/// Makes the gradients of scores out of the slopes in `values` and the weights that
/// [`put_weights`] put, and puts them there.
#[cube]
fn slopes_to_gradients(
    ieee: &Ieee,
    values: &mut Array<f32>,
    weights: &SharedMemory<Four>,
    deltas: &Array<f32>,
    spot: &Spot,
    #[comptime] by_row: bool,
    #[comptime] tile: Tile,
    #[comptime] unroll: bool,
) {
    #[unroll(unroll)]
    for j in 0..ACROSS {
        #[unroll(unroll)]
        for h in 0..comptime!(tile.each / 4) {
            let four = weights[weight_at(spot, h, j, tile) as usize];
            #[unroll]
            for l in 0..4u32 {
                let i = h * 4u32 + l;
                let at = (i * ACROSS + j) as usize;
                let mut delta = deltas[i as usize];
                if comptime!(!by_row) {
                    delta = deltas[j as usize];
                }
                values[at] = ieee.mul(four[l as usize], ieee.sub(values[at], delta));
            }
        }
    }
}

/// Column `h * 4` of a unit's.
#[cube]
fn column_of(task: &Task, spot: &Spot, h: u32) -> u32 {
    task.column + (h * ACROSS + spot.column) * 4u32
}

/// Writes four elements of a row of which those within the width exist.
#[cube]
fn write(out: &mut Rows, row: u32, d: u32, x: Four, size: &Extent) {
    if comptime!(out.is_wide) {
        if d < size.width {
            out.wide[((row * size.width + d) / 4u32) as usize] = x;
        }
    } else {
        #[unroll]
        for l in 0..4u32 {
            if d + l < size.width {
                out.words[(row * size.width + d + l) as usize] = x[l as usize];
            }
        }
    }
}

/// Adds a unit's sums to what is there, if `more`, and starts again, or stores the results
/// (`last`): times `scale`, or zeros from row `seen` on.
#[cube]
fn fold_panel(
    ieee: &Ieee,
    out: &mut Rows,
    sums: &mut Array<f32>,
    more: bool,
    task: &Task,
    base: u32,
    count: u32,
    seen: u32,
    size: &Extent,
    spot: &Spot,
    #[comptime] last: bool,
    #[comptime] scaled: bool,
    #[comptime] tile: Tile,
    #[comptime] unroll: bool,
) {
    let columns = comptime!(4 * tile.vectors());
    #[unroll(unroll)]
    for i in 0..comptime!(tile.each) {
        let row = i * comptime!(tile.down()) + spot.row;
        #[unroll(unroll)]
        for h in 0..comptime!(tile.vectors()) {
            let d = column_of(task, spot, h);
            let mut there = Four::new(size.zero);
            if more {
                there = load(out, base + row, row < count, d, size);
            }
            let mut x = Four::empty();
            #[unroll]
            for l in 0..4u32 {
                let at = (i * columns + h * 4u32 + l) as usize;
                let mut total = ieee.add(there[l as usize], sums[at]);
                if comptime!(last) {
                    if comptime!(scaled) {
                        total = ieee.mul(total, size.scale);
                    }
                    total = finish(ieee, total);
                    total = ieee.select(row < seen, total, size.zero);
                }
                x[l as usize] = total;
                sums[at] = size.zero;
            }
            if row < count {
                write(out, base + row, d, x, size);
            }
        }
    }
}

/// Fills an array of unit's row limits.
#[cube]
fn row_limits(
    size: &Extent,
    length: u32,
    task: &Task,
    spot: &Spot,
    limits: &mut Array<u32>,
    #[comptime] tile: Tile,
    #[comptime] unroll: bool,
) {
    #[unroll(unroll)]
    for i in 0..comptime!(tile.each) {
        let row = task.first + i * comptime!(tile.down()) + spot.row;
        let row = prim::select_u32(row < size.rows, row, size.rows - 1u32);
        limits[i as usize] = visible(size, length, row);
    }
}

/// This unit among those of its cube.
#[cube]
fn spot_of(#[comptime] tile: Tile) -> Spot {
    // The number of units is a power of two. Bits that are known to be zero let compilers add
    // constants within an address.
    let unit = UNIT_POS_X % comptime!(tile.units());
    Spot {
        unit,
        row: unit / ACROSS,
        column: unit % ACROSS,
    }
}

/// The outputs of a tile of queries, or of one segment of keys for them.
#[cube]
fn forward_tile(
    ieee: &Ieee,
    q: &Rows,
    k: &Rows,
    v: &Rows,
    lengths: &Array<u32>,
    out: &mut Rows,
    row_sums: &mut Array<f32>,
    segments: u32,
    size: &Extent,
    #[comptime] variant: Variant,
    #[comptime] unroll: bool,
) {
    let tile = comptime!(variant.tile);
    let each = comptime!(tile.each * ACROSS);
    let columns = comptime!(4 * tile.vectors());
    let spot = spot_of(tile);
    let unit = spot.unit;
    let task = task(size, size.rows, segments, tile);
    if task.exists {
        let length = length_of(size, lengths, task.owner, comptime!(variant.lengths));
        let left = size.rows - task.first;
        let count = prim::select_u32(left < comptime!(tile.rows), left, comptime!(tile.rows));
        let last = task.first + count - 1u32;
        let least = least_visible(size, length, task.first, last);
        let most = most_visible(size, length, task.first, last);
        let base = task.owner * size.rows + task.first;
        let key_base = task.owner * size.keys;

        let mut shared_q =
            SharedMemory::<Four>::new(comptime!((2 * tile.rows * DEPTH / 4) as usize));
        let mut shared_k =
            SharedMemory::<Four>::new(comptime!((2 * BLOCK_32 * DEPTH / 4) as usize));
        let mut shared_v =
            SharedMemory::<Four>::new(comptime!((2 * tile.columns * DEPTH / 4) as usize));
        let mut weights = SharedMemory::<Four>::new(comptime!((BLOCK_32 * tile.pitch()) as usize));
        // What a row's units have found, one after the other; then its maximum and its factor.
        let parts_pitch = comptime!(tile.rows + 4);
        let mut parts = SharedMemory::<f32>::new(comptime!((ACROSS * (tile.rows + 4)) as usize));
        let mut maxima = SharedMemory::<f32>::new(comptime!(tile.rows as usize));
        let mut factors = SharedMemory::<f32>::new(comptime!(tile.rows as usize));
        let mut next_q = Array::<Four>::new(comptime!(loads(tile.rows * DEPTH / 4, tile) as usize));
        let mut next_k = Array::<Four>::new(comptime!(loads(BLOCK_32 * DEPTH / 4, tile) as usize));
        let mut next_v =
            Array::<Four>::new(comptime!(loads(tile.columns * DEPTH / 4, tile) as usize));
        let mut scores = Array::<f32>::new(comptime!(each as usize));
        let mut o = Array::<f32>::new(comptime!((tile.each * 4 * tile.vectors()) as usize));
        let mut limits = Array::<u32>::new(comptime!(tile.each as usize));
        let mut part = Array::<f32>::new(comptime!(ACROSS as usize));
        #[unroll(unroll)]
        for i in 0..comptime!(tile.each * 4 * tile.vectors()) {
            o[i as usize] = size.zero;
        }
        let lowest = prim::from_bits(LOWEST_BITS);
        // Of the row that this unit owns, if it does.
        let owns = unit < comptime!(tile.rows);
        let mut m = lowest;
        let mut l = size.zero;
        let mut m_all = lowest;
        let mut l_all = size.zero;
        let mut c = size.zero;

        let mut block = 0u32;
        let mut end = (most + comptime!(BLOCK_32 - 1)) / BLOCK_32;
        if comptime!(variant.segments == Segments::Split) {
            block = task.segment * BLOCKS_A_SEGMENT;
            let segment_end = block + BLOCKS_A_SEGMENT;
            end = prim::select_u32(end < segment_end, end, segment_end);
        }
        let pair = pair_of(base, count, key_base, block * BLOCK_32, most);
        load_pair(
            q,
            k,
            &pair,
            0u32,
            size,
            unit,
            &mut next_q,
            &mut next_k,
            tile,
        );
        while block < end {
            let first = block * BLOCK_32;
            let pair = pair_of(base, count, key_base, first, most);
            products(
                ieee,
                q,
                k,
                &pair,
                size,
                &spot,
                &mut next_q,
                &mut next_k,
                &mut shared_q,
                &mut shared_k,
                &mut scores,
                variant,
                unroll,
            );
            let left = most - first;
            let terms = Terms {
                first: key_base + first,
                count: prim::select_u32(left < BLOCK_32, left, BLOCK_32),
                d: task.column,
                place: first,
                length,
            };
            load_terms(
                v,
                terms.first,
                terms.count,
                terms.d,
                size,
                unit,
                &mut next_v,
                tile,
            );

            // Scores, and the largest of a unit's in each row.
            #[unroll(unroll)]
            for i in 0..each {
                scores[i as usize] = ieee.mul(scores[i as usize], size.scale);
            }
            let masked = first + BLOCK_32 > least;
            if masked {
                row_limits(size, length, &task, &spot, &mut limits, tile, unroll);
                #[unroll(unroll)]
                for i in 0..comptime!(tile.each) {
                    #[unroll(unroll)]
                    for j in 0..ACROSS {
                        let at = (i * ACROSS + j) as usize;
                        let key = first + j * ACROSS + spot.column;
                        let score = prim::select_u32(
                            key < limits[i as usize],
                            prim::bits(scores[at]),
                            0xff80_0000u32,
                        );
                        scores[at] = prim::from_bits(score);
                    }
                }
            }
            #[unroll(unroll)]
            for i in 0..comptime!(tile.each) {
                let mut largest = scores[(i * ACROSS) as usize];
                // A NaN passes over: the first one is compared too.
                largest = larger(ieee, lowest, largest);
                #[unroll(unroll)]
                for j in 1..ACROSS {
                    largest = larger(ieee, largest, scores[(i * ACROSS + j) as usize]);
                }
                let row = i * comptime!(tile.down()) + spot.row;
                parts[(spot.column * parts_pitch + row) as usize] = largest;
            }
            sync_cube();
            if owns {
                let mut next = m;
                #[unroll(unroll)]
                for j in 0..ACROSS {
                    next = larger(ieee, next, parts[(j * parts_pitch + unit) as usize]);
                }
                c = exp_weight(ieee, ieee.sub(m, next));
                m = next;
                maxima[unit as usize] = m;
                factors[unit as usize] = c;
            }
            sync_cube();

            // Weights, and the first steps of the tree of their sum.
            #[unroll(unroll)]
            for i in 0..comptime!(tile.each) {
                let row = i * comptime!(tile.down()) + spot.row;
                let largest = maxima[row as usize];
                let factor = factors[row as usize];
                #[unroll(unroll)]
                for j in 0..ACROSS {
                    let at = (i * ACROSS + j) as usize;
                    scores[at] = exp_weight(ieee, ieee.sub(scores[at], largest));
                    part[j as usize] = scores[at];
                }
                parts[(spot.column * parts_pitch + row) as usize] = tree(ieee, &mut part, unroll);
                #[unroll(unroll)]
                for j in 0..columns {
                    let at = (i * columns + j) as usize;
                    o[at] = ieee.mul(o[at], factor);
                }
            }
            put_weights(&scores, &mut weights, &spot, tile, unroll);
            stage_terms(&next_v, &mut shared_v, 0u32, unit, tile);
            sync_cube();
            if owns {
                #[unroll(unroll)]
                for j in 0..ACROSS {
                    part[j as usize] = parts[(j * parts_pitch + unit) as usize];
                }
                l = ieee.fma(l, c, tree(ieee, &mut part, unroll));
            }

            block += 1u32;
            let pair = pair_of(base, count, key_base, block * BLOCK_32, most);
            load_pair(
                q,
                k,
                &pair,
                0u32,
                size,
                unit,
                &mut next_q,
                &mut next_k,
                tile,
            );
            // Where all rows see the same keys the others weigh +0 and are zeros.
            if masked && least < most {
                accumulate(
                    ieee,
                    v,
                    &terms,
                    &limits,
                    size,
                    &spot,
                    &mut next_v,
                    &weights,
                    &mut shared_v,
                    &mut o,
                    Mask::Row,
                    tile,
                    unroll,
                );
            } else {
                accumulate(
                    ieee,
                    v,
                    &terms,
                    &limits,
                    size,
                    &spot,
                    &mut next_v,
                    &weights,
                    &mut shared_v,
                    &mut o,
                    Mask::None,
                    tile,
                    unroll,
                );
            }

            if comptime!(variant.segments == Segments::Folded) {
                if block % BLOCKS_A_SEGMENT == 0u32 && block < end {
                    let more = block > BLOCKS_A_SEGMENT;
                    if owns {
                        let n = larger(ieee, m_all, m);
                        let a = exp_weight(ieee, ieee.sub(m_all, n));
                        let b = exp_weight(ieee, ieee.sub(m, n));
                        l_all = ieee.fma(l, b, ieee.mul(l_all, a));
                        m_all = n;
                        maxima[unit as usize] = a;
                        factors[unit as usize] = b;
                        m = lowest;
                        l = size.zero;
                    }
                    sync_cube();
                    meet(
                        ieee, out, &mut o, &maxima, &factors, more, &task, base, count, size,
                        &spot, tile, unroll,
                    );
                    sync_cube();
                }
            }
        }

        if comptime!(variant.segments == Segments::Split) {
            // The sums so far, and each row's maximum and sum.
            let slot = task.segment * size.owners * size.rows + base;
            #[unroll(unroll)]
            for i in 0..comptime!(tile.each) {
                let row = i * comptime!(tile.down()) + spot.row;
                #[unroll(unroll)]
                for h in 0..comptime!(tile.vectors()) {
                    let mut x = Four::empty();
                    #[unroll]
                    for l in 0..4u32 {
                        x[l as usize] = o[(i * columns + h * 4u32 + l) as usize];
                    }
                    if row < count {
                        write(out, slot + row, column_of(&task, &spot, h), x, size);
                    }
                }
            }
            if owns && unit < count {
                if task.column == 0u32 {
                    row_sums[((slot + unit) * 2u32) as usize] = m;
                    row_sums[((slot + unit) * 2u32 + 1u32) as usize] = l;
                }
            }
        } else {
            let mut more = false;
            if comptime!(variant.segments == Segments::Folded) {
                more = end > BLOCKS_A_SEGMENT;
            }
            if owns {
                let n = larger(ieee, m_all, m);
                let a = exp_weight(ieee, ieee.sub(m_all, n));
                let b = exp_weight(ieee, ieee.sub(m, n));
                l_all = ieee.fma(l, b, ieee.mul(l_all, a));
                m_all = n;
                maxima[unit as usize] = a;
                factors[unit as usize] = b;
                // The maxima of units are no longer needed.
                parts[unit as usize] = l_all;
                if unit < count && task.column == 0u32 {
                    row_sums[(base + unit) as usize] =
                        ieee.canonical(ieee.add(m_all, ln(ieee, l_all)));
                }
            }
            sync_cube();
            #[unroll(unroll)]
            for i in 0..comptime!(tile.each) {
                let row = i * comptime!(tile.down()) + spot.row;
                let a = maxima[row as usize];
                let b = factors[row as usize];
                let sum = parts[row as usize];
                let clamped = prim::select_u32(row < count, task.first + row, task.first);
                let sees = visible(size, length, clamped) > 0u32;
                #[unroll(unroll)]
                for h in 0..comptime!(tile.vectors()) {
                    let d = column_of(&task, &spot, h);
                    let mut there = Four::new(size.zero);
                    if more {
                        there = load(out, base + row, row < count, d, size);
                    }
                    let mut x = Four::empty();
                    #[unroll]
                    for l in 0..4u32 {
                        let own = o[(i * columns + h * 4u32 + l) as usize];
                        let total = ieee.fma(own, b, ieee.mul(there[l as usize], a));
                        let y = finish(ieee, ieee.div(total, sum));
                        x[l as usize] = ieee.select(sees, y, size.zero);
                    }
                    if row < count {
                        write(out, base + row, d, x, size);
                    }
                }
            }
        }
    }
}

/// Folds a segment's sums into those in the output, and starts again.
#[cube]
fn meet(
    ieee: &Ieee,
    out: &mut Rows,
    o: &mut Array<f32>,
    old: &SharedMemory<f32>,
    new: &SharedMemory<f32>,
    more: bool,
    task: &Task,
    base: u32,
    count: u32,
    size: &Extent,
    spot: &Spot,
    #[comptime] tile: Tile,
    #[comptime] unroll: bool,
) {
    let columns = comptime!(4 * tile.vectors());
    #[unroll(unroll)]
    for i in 0..comptime!(tile.each) {
        let row = i * comptime!(tile.down()) + spot.row;
        let a = old[row as usize];
        let b = new[row as usize];
        #[unroll(unroll)]
        for h in 0..comptime!(tile.vectors()) {
            let d = column_of(task, spot, h);
            let mut there = Four::new(size.zero);
            if more {
                there = load(out, base + row, row < count, d, size);
            }
            let mut x = Four::empty();
            #[unroll]
            for l in 0..4u32 {
                let at = (i * columns + h * 4u32 + l) as usize;
                x[l as usize] = ieee.fma(o[at], b, ieee.mul(there[l as usize], a));
                o[at] = size.zero;
            }
            if row < count {
                write(out, base + row, d, x, size);
            }
        }
    }
}

/// The sum of eight numbers as a tree: 4 apart, then 2, then 1 (`N5`).
#[cube]
fn tree(ieee: &Ieee, x: &mut Array<f32>, #[comptime] unroll: bool) -> f32 {
    #[unroll(unroll)]
    for j in 0..4u32 {
        x[j as usize] = ieee.add(x[j as usize], x[(j + 4u32) as usize]);
    }
    let a = ieee.add(x[0], x[2]);
    let b = ieee.add(x[1], x[3]);
    ieee.add(a, b)
}

/// Folds the segments that ran side by side, one unit for each output.
#[cube]
fn fold_segments(
    ieee: &Ieee,
    parts: &Array<f32>,
    row_parts: &Array<f32>,
    lengths: &Array<u32>,
    out: &mut Array<f32>,
    row_sums: &mut Array<f32>,
    segments: u32,
    size: &Extent,
    #[comptime] has_lengths: bool,
) {
    let at = CUBE_POS as u32 * 256u32 + UNIT_POS;
    let rows = size.owners * size.rows;
    if at < rows * size.width {
        let row = at / size.width;
        let mut m_all = prim::from_bits(LOWEST_BITS);
        let mut l_all = size.zero;
        let mut o_all = size.zero;
        for segment in 0..segments {
            let slot = segment * rows + row;
            let m = row_parts[(slot * 2u32) as usize];
            let l = row_parts[(slot * 2u32 + 1u32) as usize];
            let o = parts[(segment * rows * size.width + at) as usize];
            let n = larger(ieee, m_all, m);
            let a = exp_weight(ieee, ieee.sub(m_all, n));
            let b = exp_weight(ieee, ieee.sub(m, n));
            l_all = ieee.fma(l, b, ieee.mul(l_all, a));
            o_all = ieee.fma(o, b, ieee.mul(o_all, a));
            m_all = n;
        }
        let owner = row / size.rows;
        let length = length_of(size, lengths, owner, has_lengths);
        let y = finish(ieee, ieee.div(o_all, l_all));
        let sees = visible(size, length, row - owner * size.rows) > 0u32;
        out[at as usize] = ieee.select(sees, y, size.zero);
        if at == row * size.width {
            row_sums[row as usize] = ieee.canonical(ieee.add(m_all, ln(ieee, l_all)));
        }
    }
}

/// The product of each row of `a` with that of `b` (`N6`), one unit for each.
#[cube]
fn row_products(ieee: &Ieee, a: &Rows, b: &Rows, out: &mut Array<f32>, rows: u32, size: &Extent) {
    let row = CUBE_POS as u32 * 64u32 + UNIT_POS;
    if row < rows {
        let mut total = size.zero;
        let mut sum = size.zero;
        let vectors = (size.width + 3u32) / 4u32;
        for i in 0..vectors {
            let d = i * 4u32;
            if d > 0u32 && d % PANEL_32 == 0u32 {
                total = ieee.add(total, sum);
                sum = size.zero;
            }
            let x = load(a, row, row < rows, d, size);
            let y = load(b, row, row < rows, d, size);
            #[unroll]
            for l in 0..4u32 {
                sum = ieee.fma(x[l as usize], y[l as usize], sum);
            }
        }
        out[row as usize] = ieee.add(total, sum);
    }
}

/// The gradients of a tile of queries.
#[cube]
fn query_tile(
    ieee: &Ieee,
    q: &Rows,
    k: &Rows,
    v: &Rows,
    d_out: &Rows,
    lengths: &Array<u32>,
    row_sums: &Array<f32>,
    row_deltas: &Array<f32>,
    out: &mut Rows,
    size: &Extent,
    #[comptime] variant: Variant,
    #[comptime] unroll: bool,
) {
    let tile = comptime!(variant.tile);
    let each = comptime!(tile.each * ACROSS);
    let spot = spot_of(tile);
    let unit = spot.unit;
    let task = task(size, size.rows, 1u32, tile);
    if task.exists {
        let length = length_of(size, lengths, task.owner, comptime!(variant.lengths));
        let left = size.rows - task.first;
        let count = prim::select_u32(left < comptime!(tile.rows), left, comptime!(tile.rows));
        let last = task.first + count - 1u32;
        let least = least_visible(size, length, task.first, last);
        let most = most_visible(size, length, task.first, last);
        let base = task.owner * size.rows + task.first;
        let key_base = task.owner * size.keys;

        let mut shared_a =
            SharedMemory::<Four>::new(comptime!((2 * tile.rows * DEPTH / 4) as usize));
        let mut shared_b =
            SharedMemory::<Four>::new(comptime!((2 * BLOCK_32 * DEPTH / 4) as usize));
        let mut shared_c =
            SharedMemory::<Four>::new(comptime!((2 * tile.columns * DEPTH / 4) as usize));
        let mut weights = SharedMemory::<Four>::new(comptime!((BLOCK_32 * tile.pitch()) as usize));
        let mut next_a = Array::<Four>::new(comptime!(loads(tile.rows * DEPTH / 4, tile) as usize));
        let mut next_b = Array::<Four>::new(comptime!(loads(BLOCK_32 * DEPTH / 4, tile) as usize));
        let mut next_c =
            Array::<Four>::new(comptime!(loads(tile.columns * DEPTH / 4, tile) as usize));
        let mut values = Array::<f32>::new(comptime!(each as usize));
        let mut sums = Array::<f32>::new(comptime!((tile.each * 4 * tile.vectors()) as usize));
        let mut limits = Array::<u32>::new(comptime!(tile.each as usize));
        let mut logs = Array::<f32>::new(comptime!(tile.each as usize));
        let mut deltas = Array::<f32>::new(comptime!(tile.each as usize));
        #[unroll(unroll)]
        for i in 0..comptime!(tile.each * 4 * tile.vectors()) {
            sums[i as usize] = size.zero;
        }
        #[unroll(unroll)]
        for i in 0..comptime!(tile.each) {
            let row = i * comptime!(tile.down()) + spot.row;
            let row = base + prim::select_u32(row < count, row, 0u32);
            logs[i as usize] = row_sums[row as usize];
            deltas[i as usize] = row_deltas[row as usize];
        }

        let end = (most + comptime!(BLOCK_32 - 1)) / BLOCK_32;
        let pair = pair_of(base, count, key_base, 0u32, most);
        load_pair(
            q,
            k,
            &pair,
            0u32,
            size,
            unit,
            &mut next_a,
            &mut next_b,
            tile,
        );
        let mut block = 0u32;
        while block < end {
            let first = block * BLOCK_32;
            let pair = pair_of(base, count, key_base, first, most);
            products(
                ieee,
                q,
                k,
                &pair,
                size,
                &spot,
                &mut next_a,
                &mut next_b,
                &mut shared_a,
                &mut shared_b,
                &mut values,
                variant,
                unroll,
            );
            load_pair(
                d_out,
                v,
                &pair,
                0u32,
                size,
                unit,
                &mut next_a,
                &mut next_b,
                tile,
            );
            #[unroll(unroll)]
            for i in 0..comptime!(tile.each) {
                #[unroll(unroll)]
                for j in 0..ACROSS {
                    let at = (i * ACROSS + j) as usize;
                    let score = ieee.mul(values[at], size.scale);
                    values[at] = exp_weight(ieee, ieee.sub(score, logs[i as usize]));
                }
            }
            put_weights(&values, &mut weights, &spot, tile, unroll);
            products(
                ieee,
                d_out,
                v,
                &pair,
                size,
                &spot,
                &mut next_a,
                &mut next_b,
                &mut shared_a,
                &mut shared_b,
                &mut values,
                variant,
                unroll,
            );
            let left = most - first;
            let terms = Terms {
                first: key_base + first,
                count: prim::select_u32(left < BLOCK_32, left, BLOCK_32),
                d: task.column,
                place: first,
                length,
            };
            load_terms(
                k,
                terms.first,
                terms.count,
                terms.d,
                size,
                unit,
                &mut next_c,
                tile,
            );
            slopes_to_gradients(
                ieee,
                &mut values,
                &weights,
                &deltas,
                &spot,
                true,
                tile,
                unroll,
            );
            let masked = first + BLOCK_32 > least;
            if masked {
                row_limits(size, length, &task, &spot, &mut limits, tile, unroll);
                #[unroll(unroll)]
                for i in 0..comptime!(tile.each) {
                    #[unroll(unroll)]
                    for j in 0..ACROSS {
                        let at = (i * ACROSS + j) as usize;
                        let key = first + j * ACROSS + spot.column;
                        values[at] = ieee.select(key < limits[i as usize], values[at], size.zero);
                    }
                }
            }
            put_weights(&values, &mut weights, &spot, tile, unroll);
            stage_terms(&next_c, &mut shared_c, 0u32, unit, tile);
            sync_cube();

            block += 1u32;
            let pair = pair_of(base, count, key_base, block * BLOCK_32, most);
            load_pair(
                q,
                k,
                &pair,
                0u32,
                size,
                unit,
                &mut next_a,
                &mut next_b,
                tile,
            );
            if masked && least < most {
                accumulate(
                    ieee,
                    k,
                    &terms,
                    &limits,
                    size,
                    &spot,
                    &mut next_c,
                    &weights,
                    &mut shared_c,
                    &mut sums,
                    Mask::Row,
                    tile,
                    unroll,
                );
            } else {
                accumulate(
                    ieee,
                    k,
                    &terms,
                    &limits,
                    size,
                    &spot,
                    &mut next_c,
                    &weights,
                    &mut shared_c,
                    &mut sums,
                    Mask::None,
                    tile,
                    unroll,
                );
            }
            if block % BLOCKS_A_PANEL == 0u32 && block < end {
                let more = block > BLOCKS_A_PANEL;
                fold_panel(
                    ieee, out, &mut sums, more, &task, base, count, count, size, &spot, false,
                    true, tile, unroll,
                );
            }
        }
        // Rows that see nothing are zeros: they are the first of a head.
        let more = end > BLOCKS_A_PANEL;
        #[unroll(unroll)]
        for i in 0..comptime!(tile.each) {
            let row = task.first + i * comptime!(tile.down()) + spot.row;
            let row = prim::select_u32(row < size.rows, row, size.rows - 1u32);
            limits[i as usize] = visible(size, length, row);
        }
        store_queries(
            ieee, out, &sums, more, &limits, &task, base, count, size, &spot, tile, unroll,
        );
    }
}

/// Stores the gradients of a tile of queries.
#[cube]
fn store_queries(
    ieee: &Ieee,
    out: &mut Rows,
    sums: &Array<f32>,
    more: bool,
    limits: &Array<u32>,
    task: &Task,
    base: u32,
    count: u32,
    size: &Extent,
    spot: &Spot,
    #[comptime] tile: Tile,
    #[comptime] unroll: bool,
) {
    let columns = comptime!(4 * tile.vectors());
    #[unroll(unroll)]
    for i in 0..comptime!(tile.each) {
        let row = i * comptime!(tile.down()) + spot.row;
        #[unroll(unroll)]
        for h in 0..comptime!(tile.vectors()) {
            let d = column_of(task, spot, h);
            let mut there = Four::new(size.zero);
            if more {
                there = load(out, base + row, row < count, d, size);
            }
            let mut x = Four::empty();
            #[unroll]
            for l in 0..4u32 {
                let at = (i * columns + h * 4u32 + l) as usize;
                let total = ieee.add(there[l as usize], sums[at]);
                let total = finish(ieee, ieee.mul(total, size.scale));
                x[l as usize] = ieee.select(limits[i as usize] > 0u32, total, size.zero);
            }
            if row < count {
                write(out, base + row, d, x, size);
            }
        }
    }
}

/// The gradients of a tile of keys and their values. The block's side are queries.
#[cube]
fn key_tile(
    ieee: &Ieee,
    q: &Rows,
    k: &Rows,
    v: &Rows,
    d_out: &Rows,
    lengths: &Array<u32>,
    row_sums: &Array<f32>,
    row_deltas: &Array<f32>,
    out_k: &mut Rows,
    out_v: &mut Rows,
    size: &Extent,
    #[comptime] variant: Variant,
    #[comptime] unroll: bool,
) {
    let tile = comptime!(variant.tile);
    let each = comptime!(tile.each * ACROSS);
    let spot = spot_of(tile);
    let unit = spot.unit;
    let task = task(size, size.keys, 1u32, tile);
    if task.exists {
        let length = length_of(size, lengths, task.owner, comptime!(variant.lengths));
        let left = size.keys - task.first;
        let count = prim::select_u32(left < comptime!(tile.rows), left, comptime!(tile.rows));
        // Keys from `seen` on are seen by none.
        let mut seen = 0u32;
        if size.rows > 0u32 {
            let most = visible(size, length, size.rows - 1u32);
            let most = prim::select_u32(most < task.first, 0u32, most - task.first);
            seen = prim::select_u32(most < count, most, count);
        }
        let base = task.owner * size.keys + task.first;
        let row_base = task.owner * size.rows;

        let mut shared_a =
            SharedMemory::<Four>::new(comptime!((2 * tile.rows * DEPTH / 4) as usize));
        let mut shared_b =
            SharedMemory::<Four>::new(comptime!((2 * BLOCK_32 * DEPTH / 4) as usize));
        let mut shared_c =
            SharedMemory::<Four>::new(comptime!((2 * tile.columns * DEPTH / 4) as usize));
        let mut weights = SharedMemory::<Four>::new(comptime!((BLOCK_32 * tile.pitch()) as usize));
        let mut next_a = Array::<Four>::new(comptime!(loads(tile.rows * DEPTH / 4, tile) as usize));
        let mut next_b = Array::<Four>::new(comptime!(loads(BLOCK_32 * DEPTH / 4, tile) as usize));
        let mut next_c =
            Array::<Four>::new(comptime!(loads(tile.columns * DEPTH / 4, tile) as usize));
        let mut values = Array::<f32>::new(comptime!(each as usize));
        let mut sums_k = Array::<f32>::new(comptime!((tile.each * 4 * tile.vectors()) as usize));
        let mut sums_v = Array::<f32>::new(comptime!((tile.each * 4 * tile.vectors()) as usize));
        let mut keys = Array::<u32>::new(comptime!(tile.each as usize));
        let mut logs = Array::<f32>::new(comptime!(ACROSS as usize));
        let mut deltas = Array::<f32>::new(comptime!(ACROSS as usize));
        #[unroll(unroll)]
        for i in 0..comptime!(tile.each * 4 * tile.vectors()) {
            sums_k[i as usize] = size.zero;
            sums_v[i as usize] = size.zero;
        }
        #[unroll(unroll)]
        for i in 0..comptime!(tile.each) {
            keys[i as usize] = task.first + i * comptime!(tile.down()) + spot.row;
        }

        let mut end = 0u32;
        if seen > 0u32 {
            end = (size.rows + comptime!(BLOCK_32 - 1)) / BLOCK_32;
        }
        let mut more = false;
        let mut taken = false;
        let mut block = 0u32;
        while block < end {
            let first = block * BLOCK_32;
            let left = size.rows - first;
            let terms = Terms {
                first: row_base + first,
                count: prim::select_u32(left < BLOCK_32, left, BLOCK_32),
                d: task.column,
                place: first,
                length,
            };
            let last = first + terms.count - 1u32;
            if most_visible(size, length, first, last) > task.first {
                taken = true;
                let pair = Pair {
                    a: base,
                    a_count: seen,
                    b: terms.first,
                    b_count: terms.count,
                };
                load_pair(
                    k,
                    q,
                    &pair,
                    0u32,
                    size,
                    unit,
                    &mut next_a,
                    &mut next_b,
                    tile,
                );
                #[unroll(unroll)]
                for j in 0..ACROSS {
                    let place = j * ACROSS + spot.column;
                    logs[j as usize] = size.zero;
                    deltas[j as usize] = size.zero;
                    if place < terms.count {
                        logs[j as usize] = row_sums[(terms.first + place) as usize];
                        deltas[j as usize] = row_deltas[(terms.first + place) as usize];
                    }
                }
                products(
                    ieee,
                    k,
                    q,
                    &pair,
                    size,
                    &spot,
                    &mut next_a,
                    &mut next_b,
                    &mut shared_a,
                    &mut shared_b,
                    &mut values,
                    variant,
                    unroll,
                );
                load_terms(
                    d_out,
                    terms.first,
                    terms.count,
                    terms.d,
                    size,
                    unit,
                    &mut next_c,
                    tile,
                );
                #[unroll(unroll)]
                for i in 0..comptime!(tile.each) {
                    #[unroll(unroll)]
                    for j in 0..ACROSS {
                        let at = (i * ACROSS + j) as usize;
                        let score = ieee.mul(values[at], size.scale);
                        values[at] = exp_weight(ieee, ieee.sub(score, logs[j as usize]));
                    }
                }
                only_those_there(ieee, &mut values, terms.count, size, &spot, tile, unroll);
                put_weights(&values, &mut weights, &spot, tile, unroll);
                stage_terms(&next_c, &mut shared_c, 0u32, unit, tile);
                sync_cube();
                load_pair(
                    v,
                    d_out,
                    &pair,
                    0u32,
                    size,
                    unit,
                    &mut next_a,
                    &mut next_b,
                    tile,
                );
                let masked = least_visible(size, length, first, last) < task.first + seen;
                if masked {
                    accumulate(
                        ieee,
                        d_out,
                        &terms,
                        &keys,
                        size,
                        &spot,
                        &mut next_c,
                        &weights,
                        &mut shared_c,
                        &mut sums_v,
                        Mask::Term,
                        tile,
                        unroll,
                    );
                } else {
                    accumulate(
                        ieee,
                        d_out,
                        &terms,
                        &keys,
                        size,
                        &spot,
                        &mut next_c,
                        &weights,
                        &mut shared_c,
                        &mut sums_v,
                        Mask::None,
                        tile,
                        unroll,
                    );
                }
                products(
                    ieee,
                    v,
                    d_out,
                    &pair,
                    size,
                    &spot,
                    &mut next_a,
                    &mut next_b,
                    &mut shared_a,
                    &mut shared_b,
                    &mut values,
                    variant,
                    unroll,
                );
                load_terms(
                    q,
                    terms.first,
                    terms.count,
                    terms.d,
                    size,
                    unit,
                    &mut next_c,
                    tile,
                );
                slopes_to_gradients(
                    ieee,
                    &mut values,
                    &weights,
                    &deltas,
                    &spot,
                    false,
                    tile,
                    unroll,
                );
                only_those_there(ieee, &mut values, terms.count, size, &spot, tile, unroll);
                put_weights(&values, &mut weights, &spot, tile, unroll);
                stage_terms(&next_c, &mut shared_c, 0u32, unit, tile);
                sync_cube();
                if masked {
                    accumulate(
                        ieee,
                        q,
                        &terms,
                        &keys,
                        size,
                        &spot,
                        &mut next_c,
                        &weights,
                        &mut shared_c,
                        &mut sums_k,
                        Mask::Term,
                        tile,
                        unroll,
                    );
                } else {
                    accumulate(
                        ieee,
                        q,
                        &terms,
                        &keys,
                        size,
                        &spot,
                        &mut next_c,
                        &weights,
                        &mut shared_c,
                        &mut sums_k,
                        Mask::None,
                        tile,
                        unroll,
                    );
                }
            }
            block += 1u32;
            if block % BLOCKS_A_PANEL == 0u32 && block < end && taken {
                fold_panel(
                    ieee,
                    out_k,
                    &mut sums_k,
                    more,
                    &task,
                    base,
                    count,
                    seen,
                    size,
                    &spot,
                    false,
                    true,
                    tile,
                    unroll,
                );
                fold_panel(
                    ieee,
                    out_v,
                    &mut sums_v,
                    more,
                    &task,
                    base,
                    count,
                    seen,
                    size,
                    &spot,
                    false,
                    false,
                    tile,
                    unroll,
                );
                more = true;
                taken = false;
            }
        }
        fold_panel(
            ieee,
            out_k,
            &mut sums_k,
            more,
            &task,
            base,
            count,
            seen,
            size,
            &spot,
            true,
            true,
            tile,
            unroll,
        );
        fold_panel(
            ieee,
            out_v,
            &mut sums_v,
            more,
            &task,
            base,
            count,
            seen,
            size,
            &spot,
            true,
            false,
            tile,
            unroll,
        );
    }
}

fn input_rows(d: &mut Definition, is_wide: bool) -> RowsExpand {
    let (wide, words) = if is_wide {
        let wide = d.input::<Four>();
        let words = wide.expand.clone().into();
        (wide, words)
    } else {
        let words = d.input::<f32>();
        (words.expand.clone().into(), words)
    };
    RowsExpand {
        wide,
        words,
        is_wide,
    }
}

fn output_rows(d: &mut Definition, is_wide: bool) -> RowsExpand {
    let (wide, words) = if is_wide {
        let wide = d.output::<Four>();
        let words = wide.expand.clone().into();
        (wide, words)
    } else {
        let words = d.output::<f32>();
        (words.expand.clone().into(), words)
    };
    RowsExpand {
        wide,
        words,
        is_wide,
    }
}

fn extent(d: &mut Definition) -> ExtentExpand {
    ExtentExpand {
        rows: d.scalar(),
        queries: d.scalar(),
        keys: d.scalar(),
        width: d.scalar(),
        first: d.scalar(),
        owners: d.scalar(),
        kv_heads: d.scalar(),
        scale: d.scalar(),
        zero: d.scalar(),
    }
}

fn forward_kernel(profile: FloatProfile, v: Variant) -> Kernel {
    let unroll = v.tile.unrolls(profile);
    let units = CubeDim::new_1d(v.tile.units());
    Kernel::new("attention", profile, v, units, move |d| {
        let ieee = d.ieee();
        let [q, k, values] = [(); 3].map(|()| input_rows(d, v.wide));
        let lengths = d.input::<u32>();
        let out = output_rows(d, v.wide);
        let row_sums = d.output::<f32>();
        let segments = d.scalar::<u32>();
        let size = extent(d);
        forward_tile::expand(
            d.scope(),
            ieee,
            q,
            k,
            values,
            lengths,
            out,
            row_sums,
            segments,
            size,
            v,
            unroll,
        );
    })
}

fn fold_kernel(profile: FloatProfile, lengths: bool) -> Kernel {
    let units = CubeDim::new_1d(256);
    Kernel::new("attention_fold", profile, lengths, units, move |d| {
        let ieee = d.ieee();
        let [parts, row_parts] = [(); 2].map(|()| d.input::<f32>());
        let lengths_of = d.input::<u32>();
        let [out, row_sums] = [(); 2].map(|()| d.output::<f32>());
        let segments = d.scalar::<u32>();
        let size = extent(d);
        fold_segments::expand(
            d.scope(),
            ieee,
            parts,
            row_parts,
            lengths_of,
            out,
            row_sums,
            segments,
            size,
            lengths,
        );
    })
}

fn delta_kernel(profile: FloatProfile, wide: bool) -> Kernel {
    let units = CubeDim::new_1d(64);
    Kernel::new("attention_deltas", profile, wide, units, move |d| {
        let ieee = d.ieee();
        let [a, b] = [(); 2].map(|()| input_rows(d, wide));
        let out = d.output::<f32>();
        let rows = d.scalar::<u32>();
        let size = extent(d);
        row_products::expand(d.scope(), ieee, a, b, out, rows, size);
    })
}

fn query_kernel(profile: FloatProfile, v: Variant) -> Kernel {
    let unroll = v.tile.unrolls(profile);
    let units = CubeDim::new_1d(v.tile.units());
    Kernel::new("attention_queries", profile, v, units, move |d| {
        let ieee = d.ieee();
        let [q, k, values, d_out] = [(); 4].map(|()| input_rows(d, v.wide));
        let lengths = d.input::<u32>();
        let [row_sums, deltas] = [(); 2].map(|()| d.input::<f32>());
        let out = output_rows(d, v.wide);
        let size = extent(d);
        query_tile::expand(
            d.scope(),
            ieee,
            q,
            k,
            values,
            d_out,
            lengths,
            row_sums,
            deltas,
            out,
            size,
            v,
            unroll,
        );
    })
}

fn key_kernel(profile: FloatProfile, v: Variant) -> Kernel {
    let unroll = v.tile.unrolls(profile);
    let units = CubeDim::new_1d(v.tile.units());
    Kernel::new("attention_keys", profile, v, units, move |d| {
        let ieee = d.ieee();
        let [q, k, values, d_out] = [(); 4].map(|()| input_rows(d, v.wide));
        let lengths = d.input::<u32>();
        let [row_sums, deltas] = [(); 2].map(|()| d.input::<f32>());
        let [out_k, out_v] = [(); 2].map(|()| output_rows(d, v.wide));
        let size = extent(d);
        key_tile::expand(
            d.scope(),
            ieee,
            q,
            k,
            values,
            d_out,
            lengths,
            row_sums,
            deltas,
            out_k,
            out_v,
            size,
            v,
            unroll,
        );
    })
}

/// The numbers that every kernel takes.
fn numbers(p: &Problem) -> [Arg<'static>; 9] {
    let (queries, keys) = (p.queries as i64, p.keys as i64);
    [
        Arg::U32((p.group() * p.queries) as u32),
        Arg::U32(p.queries as u32),
        Arg::U32(p.keys as u32),
        Arg::U32(p.width as u32),
        // Beyond these nothing changes.
        Arg::I32(p.first.clamp(-queries - 1, keys) as i32),
        Arg::U32((p.batch * p.kv_heads) as u32),
        Arg::U32(p.kv_heads as u32),
        Arg::F32(p.scale),
        Arg::F32(0.0),
    ]
}

/// The lengths, or any buffer where there are none: it is not read.
fn lengths_arg<'a>(lengths: Option<&'a Buffer<u32>>, other: &'a Buffer<f32>) -> Arg<'a> {
    lengths.map_or_else(|| other.vectors(1), |lengths| lengths.vectors(1))
}

/// Refuses what 32-bit indices don't reach.
fn fits(p: &Problem) -> Result<()> {
    let most = p.query_size.max(p.key_size).max(p.rows());
    if most <= 1 << 31 && p.queries.max(p.keys) <= 1 << 30 {
        return Ok(());
    }
    Err(Error::unsupported(
        format!("attention on {most} elements"),
        "attention on a GPU takes at most 2^31 elements and 2^30 queries or keys",
    ))
}

/// What a tile may be on a device.
fn tile(device: &Device, plan: Plan, wanted: Tile) -> Tile {
    let tile = plan.tile.unwrap_or(wanted);
    if tile.fits(device) { tile } else { Tile::SMALL }
}

fn variant(p: &Problem, lengths: bool, tile: Tile) -> Variant {
    Variant {
        tile,
        wide: p.width % 4 == 0,
        panels: p.width > PANEL,
        lengths,
        segments: Segments::One,
    }
}

/// Cubes of a tiled kernel.
fn cubes(p: &Problem, rows: usize, segments: usize, tile: Tile) -> Result<(u32, u32, u32)> {
    let tiles = rows.div_ceil(tile.rows as usize);
    let chunks = p.width.div_ceil(tile.columns as usize);
    grid(tiles * chunks * segments * p.batch * p.kv_heads, 1)
}

/// Outputs that the parts of segments side by side may take, in elements.
const SPLIT: usize = 1 << 24;
/// Cubes that keep a large device busy.
const BUSY: usize = 2 * 132;

pub(super) fn forward(
    device: &Device,
    p: &Problem,
    [q, k, v]: [&Buffer<f32>; 3],
    lengths: Option<&Buffer<u32>>,
    out: &mut Buffer<f32>,
    sums: &mut Buffer<f32>,
    plan: Plan,
) -> Result<()> {
    fits(p)?;
    let profile = device.profile()?;
    let rows = p.group() * p.queries;
    let tile = tile(device, plan, choose(p, rows, false));
    let segments = p.keys.div_ceil(SEGMENT).max(1);
    let whole = cubes(p, rows, 1, tile)?;
    let size = segments * p.rows() * (p.width + 2);
    let split = segments > 1
        && size <= SPLIT
        && plan.split.unwrap_or(((whole.0 * whole.1) as usize) < BUSY);
    let v4 = if p.width % 4 == 0 { 4 } else { 1 };
    let variant = Variant {
        segments: match (split, segments) {
            (true, _) => Segments::Split,
            (false, 1) => Segments::One,
            (false, _) => Segments::Folded,
        },
        ..variant(p, lengths.is_some(), tile)
    };
    let inputs = || {
        [
            q.vectors(v4),
            k.vectors(v4),
            v.vectors(v4),
            lengths_arg(lengths, q),
        ]
    };
    let kernel = forward_kernel(profile, variant);
    if !split {
        let args: Vec<Arg<'_>> = inputs()
            .into_iter()
            .chain([out.vectors(v4), sums.vectors(1), Arg::U32(1)])
            .chain(numbers(p))
            .collect();
        return device.launch(&kernel, whole, &args);
    }
    let parts = device.empty::<f32>(segments * p.query_size)?;
    let row_parts = device.empty::<f32>(segments * p.rows() * 2)?;
    let args: Vec<Arg<'_>> = inputs()
        .into_iter()
        .chain([
            parts.vectors(v4),
            row_parts.vectors(1),
            Arg::U32(segments as u32),
        ])
        .chain(numbers(p))
        .collect();
    device.launch(&kernel, cubes(p, rows, segments, tile)?, &args)?;
    let args: Vec<Arg<'_>> = [
        parts.vectors(1),
        row_parts.vectors(1),
        lengths_arg(lengths, q),
        out.vectors(1),
        sums.vectors(1),
        Arg::U32(segments as u32),
    ]
    .into_iter()
    .chain(numbers(p))
    .collect();
    let kernel = fold_kernel(profile, lengths.is_some());
    device.launch(&kernel, grid(p.query_size, 256)?, &args)
}

/// The tile of a large device for `rows` rows that read one head of keys. Eight rows a unit halve
/// its reads of shared memory, but leave too few registers to gradients and to wide outputs.
fn choose(p: &Problem, rows: usize, gradients: bool) -> Tile {
    let (each, columns) = match p.width <= 64 {
        true if gradients || rows <= 32 => (4, 64),
        true => (8, 64),
        false => (4, 128),
    };
    Tile::new(if rows <= 32 { 32 } else { 64 }, each, columns)
}

pub(super) fn backward(
    device: &Device,
    p: &Problem,
    [q, k, v]: [&Buffer<f32>; 3],
    lengths: Option<&Buffer<u32>>,
    [out, sums, d_out]: [&Buffer<f32>; 3],
    gradients: &mut Gradients,
    plan: Plan,
) -> Result<()> {
    fits(p)?;
    let profile = device.profile()?;
    let rows = p.rows();
    let v4 = if p.width % 4 == 0 { 4 } else { 1 };
    let deltas = device.empty::<f32>(rows)?;
    if rows > 0 {
        let kernel = delta_kernel(profile, v4 == 4);
        let args: Vec<Arg<'_>> = [
            d_out.vectors(v4),
            out.vectors(v4),
            deltas.vectors(1),
            Arg::U32(rows as u32),
        ]
        .into_iter()
        .chain(numbers(p))
        .collect();
        device.launch(&kernel, grid(rows, 64)?, &args)?;
    }
    let inputs = || {
        [
            q.vectors(v4),
            k.vectors(v4),
            v.vectors(v4),
            d_out.vectors(v4),
            lengths_arg(lengths, q),
            sums.vectors(1),
            deltas.vectors(1),
        ]
    };
    if rows > 0 {
        let tile = tile(device, plan, choose(p, p.group() * p.queries, true));
        let kernel = query_kernel(profile, variant(p, lengths.is_some(), tile));
        let args: Vec<Arg<'_>> = inputs()
            .into_iter()
            .chain([gradients.q.vectors(v4)])
            .chain(numbers(p))
            .collect();
        let cubes = cubes(p, p.group() * p.queries, 1, tile)?;
        device.launch(&kernel, cubes, &args)?;
    }
    let tile = tile(device, plan, choose(p, p.keys, true));
    let kernel = key_kernel(profile, variant(p, lengths.is_some(), tile));
    let args: Vec<Arg<'_>> = inputs()
        .into_iter()
        .chain([gradients.k.vectors(v4), gradients.v.vectors(v4)])
        .chain(numbers(p))
        .collect();
    device.launch(&kernel, cubes(p, p.keys, 1, tile)?, &args)
}

/// Each tile that is chosen, and the ways to read, fold and mask.
pub(super) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let base = Variant {
        tile: Tile::SMALL,
        wide: true,
        panels: false,
        lengths: false,
        segments: Segments::One,
    };
    let with = |tile| Variant { tile, ..base };
    let narrow = Variant {
        wide: false,
        panels: true,
        lengths: true,
        segments: Segments::Folded,
        ..base
    };
    let split = Variant {
        segments: Segments::Split,
        ..with(Tile::new(32, 4, 64))
    };
    vec![
        forward_kernel(profile, with(Tile::new(64, 8, 64))),
        forward_kernel(
            profile,
            Variant {
                segments: Segments::Folded,
                ..with(Tile::new(64, 4, 128))
            },
        ),
        forward_kernel(profile, narrow),
        forward_kernel(profile, split),
        fold_kernel(profile, true),
        delta_kernel(profile, true),
        delta_kernel(profile, false),
        query_kernel(profile, with(Tile::new(64, 4, 64))),
        query_kernel(profile, with(Tile::new(64, 4, 128))),
        query_kernel(profile, narrow),
        key_kernel(profile, with(Tile::new(64, 4, 64))),
        key_kernel(profile, with(Tile::new(64, 4, 128))),
        key_kernel(profile, narrow),
    ]
}
