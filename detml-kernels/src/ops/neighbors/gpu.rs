//! The GPU path: distances as a product of matrices is formed, in tiles staged through shared
//! memory with a block of chains in each unit's registers, and a selection behind each tile.
//!
//! A cube takes a tile of queries through a range of the points. The keys of a tile go through
//! shared memory, some columns at a time, to the units that own a query each: they mark the
//! columns below the query's bound, the worst of its list, and put those into the list. Columns
//! come in ascending order, so one equal to the bound never displaces it. The lists of all ranges
//! are sorted in the end. No slot depends on the order in which units run.
//!
//! Rows beyond the matrix read its last one; nothing is selected from them. Features beyond the
//! last are -0 in queries and +0 in points: their difference is -0, its square and magnitude +0,
//! and their product -0, none of which changes a sum: those of differences are never -0.

// Branches on compile-time values may differ in nothing else.
#![allow(clippy::if_same_then_else)]

use super::{Metric, PANEL, key, step, value};
use crate::device::{Arg, Buffer, Definition, Device, Kernel, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::grid;
use crate::ops::order::Order;
use crate::ops::topk::topk;
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Backend, Result};

type Four = Vector<f32, Const<4>>;

/// The shape of a cube's tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    /// Queries.
    rows: u32,
    /// Points.
    columns: u32,
    /// Features staged at a time: 8 or 16.
    depth: u32,
    /// Queries and points of one unit.
    unit: u32,
    /// Columns that go through shared memory together, at most 32.
    chunk: u32,
    /// Entries of a list, at most.
    list: u32,
}

impl Tile {
    /// For GPUs with 64 KiB of shared memory.
    pub(super) const LARGE: Self = Self::new(128, 128, 8, 8, 32, 16);
    pub(super) const LARGE_LONG: Self = Self::new(128, 128, 8, 8, 16, 32);
    /// Within 16 KiB.
    pub(super) const SMALL: Self = Self::new(32, 32, 8, 4, 16, 32);
    #[cfg(test)]
    pub(super) const ALL: [Self; 3] = [Self::LARGE, Self::LARGE_LONG, Self::SMALL];

    const fn new(rows: u32, columns: u32, depth: u32, unit: u32, chunk: u32, list: u32) -> Self {
        Self {
            rows,
            columns,
            depth,
            unit,
            chunk,
            list,
        }
    }

    const fn down(self) -> u32 {
        self.rows / self.unit
    }

    const fn across(self) -> u32 {
        self.columns / self.unit
    }

    const fn units(self) -> u32 {
        self.down() * self.across()
    }

    /// Words from a column of keys to the next, so that neither the units that write nor those
    /// that read meet in a bank.
    const fn pitch(self) -> u32 {
        self.rows + 4
    }

    /// Entries that lists may have.
    #[cfg(test)]
    pub(super) const fn longest(self) -> usize {
        self.list as usize
    }
}

/// Lists longer than this take another way.
const LONGEST: usize = 32;
/// Pairs that the last step sorts for a query.
const MERGE: usize = 2048;
/// Entries of the lists of one launch.
const ENTRIES: usize = 1 << 24;
/// Distances held at a time for longer lists.
const DISTANCES: usize = 1 << 24;
/// Cubes in three turns of two on each of an H200's 132 multiprocessors.
const CUBES: usize = 792;

/// A schedule to force in tests; the default is chosen by shape and device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) tile: Option<Tile>,
    /// Ranges of points that are searched apart.
    pub(super) splits: Option<usize>,
    /// Queries of one launch.
    pub(super) batch: Option<usize>,
}

/// Everything that changes the code of `search`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Variant {
    tile: Tile,
    metric: Metric,
    /// Whether four features of a row lie side by side, aligned, or don't exist.
    wide: bool,
    /// Whether there is more than one panel.
    folds: bool,
    /// Whether the distances are stored, none selected.
    matrix: bool,
}

#[derive(CubeType)]
struct Rows {
    wide: Array<Four>,
    words: Array<f32>,
    /// Rows of the matrix.
    rows: u32,
    /// What features beyond the last are.
    pad: f32,
    #[cube(comptime)]
    is_wide: bool,
}

#[derive(CubeType)]
struct Extent {
    features: u32,
    /// Where the launch's queries begin and end.
    first: u32,
    end: u32,
    /// Ranges of points, and points in each, a multiple of the tile's.
    splits: u32,
    each: u32,
    /// Entries of a list.
    k: u32,
}

/// Four features of a row; rows from `end` on are the one before.
#[cube]
fn load(x: &Rows, row: u32, end: u32, feature: u32, features: u32) -> Four {
    let row = prim::select_u32(row < end, row, end - 1u32);
    let place = row * features + feature;
    let mut r = Four::new(x.pad);
    if comptime!(x.is_wide) {
        if feature < features {
            r = x.wide[(place / 4u32) as usize];
        }
    } else {
        let mut words = Four::empty();
        #[unroll]
        for l in 0..4u32 {
            let mut word = x.pad;
            if feature + l < features {
                word = x.words[(place + l) as usize];
            }
            // Each element of a vector is assigned once: CubeCL 0.10.0 merges assignments.
            words[l as usize] = word;
        }
        r = words;
    }
    r
}

/// The place in a stage of the `step`-th vector of a row. Where eight rows are read together their
/// vectors are in different banks.
#[cube]
fn spread(row: u32, step: u32, #[comptime] depth: u32, #[comptime] units: u32) -> u32 {
    let across = comptime!(depth / 4);
    if comptime!(units % 8 == 0) {
        let shift = (row / comptime!(8 / across)) % across;
        row * across + (step ^ shift)
    } else {
        row * across + step
    }
}

/// Puts the vectors of `rows` rows, this unit's share, into half of the stage.
#[cube]
fn stage(
    from: &Array<Four>,
    into: &mut SharedMemory<Four>,
    half: u32,
    unit: u32,
    #[comptime] rows: u32,
    #[comptime] tile: Tile,
    #[comptime] side: u32,
) {
    let across = comptime!(tile.depth / 4);
    let at = half * comptime!(rows * tile.depth / 4);
    let units = comptime!(tile.units());
    #[unroll]
    for i in 0..comptime!((rows * tile.depth / 4).div_ceil(tile.units())) {
        let v = i * units + unit;
        let place = at + spread(v / across, v % across, tile.depth, side);
        if comptime!((rows * tile.depth / 4) % tile.units() == 0) {
            into[place as usize] = from[i as usize];
        } else if v < comptime!(rows * tile.depth / 4) {
            into[place as usize] = from[i as usize];
        }
    }
}

/// Loads this unit's share of a stage: `rows` rows from `row` on.
#[cube]
fn fetch(
    x: &Rows,
    row: u32,
    end: u32,
    feature: u32,
    features: u32,
    unit: u32,
    into: &mut Array<Four>,
    #[comptime] rows: u32,
    #[comptime] tile: Tile,
) {
    let across = comptime!(tile.depth / 4);
    let units = comptime!(tile.units());
    #[unroll]
    for i in 0..comptime!((rows * tile.depth / 4).div_ceil(tile.units())) {
        let v = i * units + unit;
        into[i as usize] = load(
            x,
            row + v / across,
            end,
            feature + v % across * 4u32,
            features,
        );
    }
}

/// Runs the chains over the features of one stage.
#[cube]
fn advance(
    ieee: &Ieee,
    shared_q: &SharedMemory<Four>,
    shared_x: &SharedMemory<Four>,
    half: u32,
    sums: &mut Array<f32>,
    unit_row: u32,
    unit_column: u32,
    #[comptime] v: Variant,
    #[comptime] unroll: bool,
) {
    let tile = comptime!(v.tile);
    let each = comptime!(tile.unit);
    let across = comptime!(tile.depth / 4);
    let size_q = comptime!(tile.rows * tile.depth / 4);
    let size_x = comptime!(tile.columns * tile.depth / 4);
    let mut q = Array::<Four>::new(comptime!(each as usize));
    #[unroll(unroll)]
    for part in 0..across {
        // The remainders are themselves: they tell compilers that the sums below don't wrap, so
        // that the constants go into the addresses of the loads.
        let at_q = (half * size_q + spread(unit_row, part, tile.depth, tile.down()))
            % comptime!(2 * size_q);
        let at_x = (half * size_x + spread(unit_column, part, tile.depth, tile.across()))
            % comptime!(2 * size_x);
        #[unroll(unroll)]
        for i in 0..each {
            q[i as usize] = shared_q[(at_q + i * comptime!(tile.down() * across)) as usize];
        }
        #[unroll(unroll)]
        for j in 0..each {
            let x = shared_x[(at_x + j * comptime!(tile.across() * across)) as usize];
            // `N6`: a chain over ascending features.
            #[unroll]
            for l in 0..4u32 {
                #[unroll(unroll)]
                for i in 0..each {
                    let at = (i * each + j) as usize;
                    let from = q[i as usize];
                    sums[at] = step(ieee, from[l as usize], x[l as usize], sums[at], v.metric);
                }
            }
        }
    }
}

/// Puts a pair into a list that lies `rows` apart and holds `count` entries; returns the place of
/// the worst entry if the list is full.
#[cube]
fn worst(
    keys: &SharedMemory<u32>,
    indices: &SharedMemory<u32>,
    row: u32,
    k: u32,
    #[comptime] rows: u32,
) -> u32 {
    let mut place = row;
    let mut key = keys[row as usize];
    let mut index = indices[row as usize];
    for i in 1..k {
        let at = i * rows + row;
        let other = keys[at as usize];
        let other_index = indices[at as usize];
        let behind = other > key || (other == key && other_index > index);
        place = prim::select_u32(behind, at, place);
        key = prim::select_u32(behind, other, key);
        index = prim::select_u32(behind, other_index, index);
    }
    place
}

#[cube]
fn search(
    ieee: &Ieee,
    queries: &Rows,
    points: &Rows,
    matrix: &mut Array<f32>,
    out_keys: &mut Array<u32>,
    out_indices: &mut Array<u32>,
    size: &Extent,
    #[comptime] v: Variant,
    #[comptime] unroll: bool,
) {
    let tile = comptime!(v.tile);
    let rows = comptime!(tile.rows);
    let columns = comptime!(tile.columns);
    let depth = comptime!(tile.depth);
    let each = comptime!(tile.unit);
    let squares = comptime!(tile.unit * tile.unit);
    let down = (size.end - size.first + (rows - 1u32)) / rows;
    let cube = CUBE_POS as u32;
    if cube < down * size.splits {
        let split = cube / down;
        let row = size.first + cube % down * rows;
        let start = split * size.each;
        let left = points.rows - start;
        let count = prim::select_u32(left < size.each, left, size.each);
        let end = start + count;

        // The number of units is a power of two.
        let unit = UNIT_POS % comptime!(tile.units());
        // A plane of 32 reads 4 rows and 8 columns of units where the tile has them.
        let mut unit_row = unit / comptime!(tile.across());
        let mut unit_column = unit % comptime!(tile.across());
        if comptime!(tile.down() % 4 == 0 && tile.across() % 8 == 0) {
            let blocks = comptime!(tile.across() / 8);
            let block = unit / 32u32;
            unit_row = block / blocks * 4u32 + unit % 32u32 / 8u32;
            unit_column = block % blocks * 8u32 + unit % 8u32;
        }

        let mut shared_q = SharedMemory::<Four>::new(comptime!((rows * depth / 2) as usize));
        let mut shared_x = SharedMemory::<Four>::new(comptime!((columns * depth / 2) as usize));
        let mut next_q =
            Array::<Four>::new(comptime!((rows * depth / 4).div_ceil(tile.units()) as usize));
        let mut next_x = Array::<Four>::new(comptime!(
            (columns * depth / 4).div_ceil(tile.units()) as usize
        ));
        let mut tile_keys = SharedMemory::<u32>::new(comptime!(if v.matrix {
            1
        } else {
            (tile.chunk * tile.pitch()) as usize
        }));
        let mut list_keys = SharedMemory::<u32>::new(comptime!(if v.matrix {
            1
        } else {
            (rows * tile.list) as usize
        }));
        let mut list_indices = SharedMemory::<u32>::new(comptime!(if v.matrix {
            1
        } else {
            (rows * tile.list) as usize
        }));
        let mut sums = Array::<f32>::new(comptime!(squares as usize));
        let mut totals = Array::<f32>::new(comptime!(if v.folds { squares as usize } else { 1 }));

        let tiles = (count + (columns - 1u32)) / columns;
        let steps = (size.features + (depth - 1u32)) / depth;
        let mut half = 0u32;
        // What the owner of a query knows of its list.
        let mut listed = 0u32;
        let mut bound = 0xffff_ffffu32;
        let mut bound_place = 0u32;

        fetch(
            queries,
            row,
            size.end,
            0u32,
            size.features,
            unit,
            &mut next_q,
            rows,
            tile,
        );
        fetch(
            points,
            start,
            end,
            0u32,
            size.features,
            unit,
            &mut next_x,
            columns,
            tile,
        );
        stage(
            &next_q,
            &mut shared_q,
            0u32,
            unit,
            rows,
            tile,
            comptime!(tile.down()),
        );
        stage(
            &next_x,
            &mut shared_x,
            0u32,
            unit,
            columns,
            tile,
            comptime!(tile.across()),
        );
        sync_cube();

        for t in 0..tiles {
            let column = start + t * columns;
            #[unroll(unroll)]
            for i in 0..squares {
                sums[i as usize] = points.pad;
            }
            for s in 0..steps {
                // The next stage is this tile's or the next one's first; behind the last one
                // comes any.
                let last = s + 1u32 == steps;
                let feature = prim::select_u32(last, 0u32, (s + 1u32) * depth);
                let at = prim::select_u32(last, column + columns, column);
                fetch(
                    queries,
                    row,
                    size.end,
                    feature,
                    size.features,
                    unit,
                    &mut next_q,
                    rows,
                    tile,
                );
                fetch(
                    points,
                    at,
                    end,
                    feature,
                    size.features,
                    unit,
                    &mut next_x,
                    columns,
                    tile,
                );
                advance(
                    ieee,
                    &shared_q,
                    &shared_x,
                    half,
                    &mut sums,
                    unit_row,
                    unit_column,
                    v,
                    unroll,
                );
                half = 1u32 - half;
                stage(
                    &next_q,
                    &mut shared_q,
                    half,
                    unit,
                    rows,
                    tile,
                    comptime!(tile.down()),
                );
                stage(
                    &next_x,
                    &mut shared_x,
                    half,
                    unit,
                    columns,
                    tile,
                    comptime!(tile.across()),
                );
                sync_cube();
                if comptime!(v.folds) {
                    // `N6`: the first panel's sums, then the others' added in order.
                    let done = (s + 1u32) * depth;
                    if done % comptime!(PANEL as u32) == 0u32 || last {
                        let first = done <= comptime!(PANEL as u32);
                        #[unroll(unroll)]
                        for i in 0..squares {
                            let i = i as usize;
                            if first {
                                totals[i] = sums[i];
                            } else {
                                totals[i] = ieee.add(totals[i], sums[i]);
                            }
                            sums[i] = points.pad;
                        }
                    }
                }
            }
            if comptime!(v.folds) {
                #[unroll(unroll)]
                for i in 0..squares {
                    sums[i as usize] = totals[i as usize];
                }
            }

            if comptime!(v.matrix) {
                #[unroll(unroll)]
                for i in 0..each {
                    let query = row + i * comptime!(tile.down()) + unit_row;
                    #[unroll(unroll)]
                    for j in 0..each {
                        let point = column + j * comptime!(tile.across()) + unit_column;
                        if query < size.end && point < end {
                            let place = (query - size.first) * points.rows + point;
                            let s = sums[(i * each + j) as usize];
                            matrix[place as usize] = ieee.canonical(s);
                        }
                    }
                }
            } else {
                let chunk = comptime!(tile.chunk);
                let in_chunk = comptime!(tile.chunk / tile.across());
                #[unroll(unroll)]
                for c in 0..comptime!(tile.columns / tile.chunk) {
                    #[unroll(unroll)]
                    for i in 0..each {
                        #[unroll(unroll)]
                        for j in 0..in_chunk {
                            let s = sums[(i * each + c * in_chunk + j) as usize];
                            let place = (j * comptime!(tile.across()) + unit_column)
                                * comptime!(tile.pitch())
                                + i * comptime!(tile.down())
                                + unit_row;
                            tile_keys[place as usize] = key(ieee, s, v.metric);
                        }
                    }
                    sync_cube();
                    if unit < rows {
                        let from = column + c * chunk;
                        let open = listed < size.k;
                        let mut mask = 0u32;
                        for z in 0..chunk {
                            let key = tile_keys[(z * comptime!(tile.pitch()) + unit) as usize];
                            let bit = 0x8000_0000u32 >> z;
                            mask |= prim::select_u32(key < bound || open, bit, 0u32);
                        }
                        // Points beyond the range are none.
                        let left = prim::select_u32(from < end, end - from, 0u32);
                        let beyond = prim::select_u32(left < 32u32, 0xffff_ffffu32 >> left, 0u32);
                        mask &= !beyond;
                        while mask != 0u32 {
                            let z = prim::leading_zeros(mask);
                            mask &= 0x7fff_ffffu32 >> z;
                            let key = tile_keys[(z * comptime!(tile.pitch()) + unit) as usize];
                            let mut place = bound_place;
                            let mut enters = key < bound;
                            if listed < size.k {
                                place = listed * rows + unit;
                                enters = true;
                                listed += 1u32;
                            }
                            if enters {
                                list_keys[place as usize] = key;
                                list_indices[place as usize] = from + z;
                                if listed == size.k {
                                    bound_place =
                                        worst(&list_keys, &list_indices, unit, size.k, rows);
                                    bound = list_keys[bound_place as usize];
                                }
                            }
                        }
                    }
                    sync_cube();
                }
            }
        }

        if comptime!(!v.matrix) {
            let query = row + unit;
            if unit < rows && query < size.end {
                let to = ((query - size.first) * size.splits + split) * size.k;
                for i in 0..size.k {
                    // Behind every pair: a NaN may have this key, but a lower index.
                    let mut key = 0xffff_ffffu32;
                    let mut index = 0xffff_ffffu32;
                    if i < listed {
                        key = list_keys[(i * rows + unit) as usize];
                        index = list_indices[(i * rows + unit) as usize];
                    }
                    out_keys[(to + i) as usize] = key;
                    out_indices[(to + i) as usize] = index;
                }
            }
        }
    }
}

fn rows(d: &mut Definition, wide: bool) -> (NativeExpand<Array<Four>>, NativeExpand<Array<f32>>) {
    if wide {
        let wide = d.input::<Four>();
        let words = wide.expand.clone().into();
        (wide, words)
    } else {
        let words = d.input::<f32>();
        (words.expand.clone().into(), words)
    }
}

fn search_kernel(profile: FloatProfile, v: Variant) -> Kernel {
    // Emulated arithmetic is long code: there it stands once, in loops.
    let unroll = profile.direct();
    // One cube computes while another selects.
    let resident = match v.tile.rows {
        128 if !v.folds => 2,
        _ => 0,
    };
    Kernel::new(
        "nearest",
        profile,
        v,
        CubeDim::new_1d(v.tile.units()),
        move |d| {
            let ieee = d.ieee();
            let (queries, points) = (rows(d, v.wide), rows(d, v.wide));
            // What a variant doesn't use is not among its arguments.
            let (matrix, keys, indices) = if v.matrix {
                let matrix = d.output::<f32>();
                let words: NativeExpand<Array<u32>> = matrix.expand.clone().into();
                (matrix, words.clone(), words)
            } else {
                let (keys, indices) = (d.output::<u32>(), d.output::<u32>());
                (keys.expand.clone().into(), keys, indices)
            };
            let queries = RowsExpand {
                wide: queries.0,
                words: queries.1,
                rows: d.scalar(),
                pad: d.scalar(),
                is_wide: v.wide,
            };
            let points = RowsExpand {
                wide: points.0,
                words: points.1,
                rows: d.scalar(),
                pad: d.scalar(),
                is_wide: v.wide,
            };
            let size = ExtentExpand {
                features: d.scalar(),
                first: d.scalar(),
                end: d.scalar(),
                splits: d.scalar(),
                each: d.scalar(),
                k: d.scalar(),
            };
            search::expand(
                d.scope(),
                ieee,
                queries,
                points,
                matrix,
                keys,
                indices,
                size,
                v,
                unroll,
            );
        },
    )
    .resident(resident)
}

/// Sorts the `len` pairs of each query and stores the first `k` of them, the queries from `first`
/// on.
#[cube]
fn merge(
    ieee: Ieee,
    keys: &Array<u32>,
    indices: &Array<u32>,
    out: &mut Array<f32>,
    out_indices: &mut Array<u32>,
    queries: u32,
    first: u32,
    len: u32,
    k: u32,
    #[comptime] metric: Metric,
    #[comptime] size: u32,
    #[comptime] units: u32,
) {
    let mut key_of = SharedMemory::<u32>::new(comptime!(size as usize));
    let mut index_of = SharedMemory::<u32>::new(comptime!(size as usize));
    let query = CUBE_POS as u32;
    let real = query < queries;
    for j in 0..comptime!(size / units) {
        let p = UNIT_POS + j * units;
        let mut key = 0xffff_ffffu32;
        let mut index = 0xffff_ffffu32;
        if real && p < len {
            key = keys[(query * len + p) as usize];
            index = indices[(query * len + p) as usize];
        }
        key_of[p as usize] = key;
        index_of[p as usize] = index;
    }
    sync_cube();
    // Batcher's bitonic sort.
    for level in 0..comptime!(size.ilog2()) {
        for back in 0..level + 1u32 {
            let stride = 1u32 << (level - back);
            for j in 0..comptime!(size / 2 / units) {
                let pair = UNIT_POS + j * units;
                let low = 2u32 * pair - (pair & (stride - 1u32));
                let up = (low >> (level + 1u32)) & 1u32;
                let (a, b) = (low as usize, (low + stride) as usize);
                let (key_a, key_b) = (key_of[a], key_of[b]);
                let (index_a, index_b) = (index_of[a], index_of[b]);
                let mut later = 0u32;
                if key_a > key_b {
                    later = 1u32;
                }
                if key_a == key_b && index_a > index_b {
                    later = 1u32;
                }
                if later != up {
                    key_of[a] = key_b;
                    key_of[b] = key_a;
                    index_of[a] = index_b;
                    index_of[b] = index_a;
                }
            }
            sync_cube();
        }
    }
    for j in 0..comptime!(size / units) {
        let p = UNIT_POS + j * units;
        if real && p < k {
            let to = ((first + query) * k + p) as usize;
            out[to] = value(&ieee, key_of[p as usize], metric);
            out_indices[to] = index_of[p as usize];
        }
    }
}

fn merge_kernel(profile: FloatProfile, metric: Metric, size: u32) -> Kernel {
    let units = (size / 2).min(256);
    Kernel::new(
        "nearest_merge",
        profile,
        (metric, size),
        CubeDim::new_1d(units),
        move |d| {
            let ieee = d.ieee();
            let (keys, indices) = (d.input::<u32>(), d.input::<u32>());
            let (out, out_indices) = (d.output::<f32>(), d.output::<u32>());
            let [queries, first, len, k] = std::array::from_fn(|_| d.scalar::<u32>());
            merge::expand(
                d.scope(),
                ieee,
                keys,
                indices,
                out,
                out_indices,
                queries,
                first,
                len,
                k,
                metric,
                size,
                units,
            );
        },
    )
}

/// The distances of longer lists, as the lists' values: zeros without a sign.
#[cube]
fn unsigned_zeros(ieee: Ieee, x: &Array<f32>, out: &mut Array<f32>, first: u32, len: u32) {
    let at = CUBE_POS as u32 * 256u32 + UNIT_POS;
    if at < len {
        let d = x[at as usize];
        out[(first + at) as usize] = value(
            &ieee,
            key(&ieee, d, Metric::InnerProduct),
            Metric::InnerProduct,
        );
    }
}

#[cube]
fn copy_words(x: &Array<u32>, out: &mut Array<u32>, first: u32, len: u32) {
    let at = CUBE_POS as u32 * 256u32 + UNIT_POS;
    if at < len {
        out[(first + at) as usize] = x[at as usize];
    }
}

fn values_kernel(profile: FloatProfile) -> Kernel {
    let units = CubeDim::new_1d(256);
    Kernel::new("nearest_values", profile, (), units, |d| {
        let ieee = d.ieee();
        let (x, out) = (d.input::<f32>(), d.output::<f32>());
        let (first, len) = (d.scalar::<u32>(), d.scalar::<u32>());
        unsigned_zeros::expand(d.scope(), ieee, x, out, first, len);
    })
}

fn copy_kernel(profile: FloatProfile) -> Kernel {
    let units = CubeDim::new_1d(256);
    Kernel::new("nearest_copy", profile, (), units, |d| {
        let (x, out) = (d.input::<u32>(), d.output::<u32>());
        let (first, len) = (d.scalar::<u32>(), d.scalar::<u32>());
        copy_words::expand(d.scope(), x, out, first, len);
    })
}

pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let mut kernels = vec![values_kernel(profile), copy_kernel(profile)];
    for metric in Metric::ALL {
        kernels.push(merge_kernel(profile, metric, 64));
        kernels.push(merge_kernel(profile, metric, MERGE as u32));
        for (tile, wide, folds, matrix) in [
            (Tile::LARGE, true, false, false),
            (Tile::SMALL, false, true, false),
            (Tile::SMALL, true, false, true),
        ] {
            let v = Variant {
                tile,
                metric,
                wide,
                folds,
                matrix,
            };
            kernels.push(search_kernel(profile, v));
        }
    }
    for (tile, folds, matrix) in [(Tile::LARGE_LONG, true, false), (Tile::LARGE, false, true)] {
        let v = Variant {
            tile,
            metric: Metric::SquaredEuclidean,
            wide: true,
            folds,
            matrix,
        };
        kernels.push(search_kernel(profile, v));
    }
    kernels
}

/// The tile for a device and a number of queries and list entries.
fn choose(device: &Device, queries: usize, k: usize) -> Tile {
    // Others need not have more than 16 KiB of shared memory.
    let roomy = matches!(device.backend(), Backend::Cuda(_) | Backend::Hip(_));
    if !roomy || queries <= 32 {
        Tile::SMALL
    } else if k <= Tile::LARGE.list as usize {
        Tile::LARGE
    } else {
        Tile::LARGE_LONG
    }
}

/// The sizes of a launch.
struct Launch {
    tile: Tile,
    metric: Metric,
    shape: [usize; 3],
    /// The queries.
    first: usize,
    end: usize,
    splits: usize,
    each: usize,
    k: usize,
}

fn launch(
    l: &Launch,
    queries: &Buffer<f32>,
    points: &Buffer<f32>,
    matrix: Option<&mut Buffer<f32>>,
    lists: Option<(&mut Buffer<u32>, &mut Buffer<u32>)>,
) -> Result<()> {
    let device = queries.device();
    let [q, n, d] = l.shape;
    let wide = d % 4 == 0;
    let v = Variant {
        tile: l.tile,
        metric: l.metric,
        wide,
        folds: d > PANEL,
        matrix: matrix.is_some(),
    };
    let width = if wide { 4 } else { 1 };
    let mut arguments = vec![queries.vectors(width), points.vectors(width)];
    if let Some(matrix) = matrix {
        arguments.push(Arg::from(matrix));
    }
    if let Some((keys, indices)) = lists {
        arguments.extend([Arg::from(keys), Arg::from(indices)]);
    }
    arguments.extend([
        Arg::from(q as u32),
        Arg::from(-0.0f32),
        Arg::from(n as u32),
        Arg::from(0.0f32),
    ]);
    arguments.extend([d, l.first, l.end, l.splits, l.each, l.k].map(|n| Arg::from(n as u32)));
    let cubes = (l.end - l.first).div_ceil(l.tile.rows as usize) * l.splits;
    device.launch(
        &search_kernel(device.profile()?, v),
        grid(cubes, 1)?,
        &arguments,
    )
}

/// Points in each of at most `splits` ranges, in whole tiles, and the ranges.
fn ranges(n: usize, splits: usize, tile: Tile) -> (usize, usize) {
    let columns = tile.columns as usize;
    let each = n.div_ceil(columns).div_ceil(splits.max(1)) * columns;
    (each, n.div_ceil(each))
}

/// The distances of queries `part.0..part.1`.
pub(super) fn pairwise(
    metric: Metric,
    queries: &Buffer<f32>,
    points: &Buffer<f32>,
    shape: [usize; 3],
    part: (usize, usize),
    out: &mut Buffer<f32>,
    plan: Plan,
) -> Result<()> {
    let device = queries.device();
    let tile = plan
        .tile
        .unwrap_or_else(|| choose(device, part.1 - part.0, 1));
    let tiles = (part.1 - part.0).div_ceil(tile.rows as usize);
    let splits = plan.splits.unwrap_or((4 * CUBES / tiles).max(1));
    let (each, splits) = ranges(shape[1], splits, tile);
    let l = Launch {
        tile,
        metric,
        shape,
        first: part.0,
        end: part.1,
        splits,
        each,
        k: 0,
    };
    launch(&l, queries, points, Some(out), None)
}

pub(super) fn nearest(
    metric: Metric,
    queries: &Buffer<f32>,
    points: &Buffer<f32>,
    shape: [usize; 3],
    k: usize,
    out: (&mut Buffer<f32>, &mut Buffer<u32>),
    plan: Plan,
) -> Result<()> {
    if k > LONGEST {
        return nearest_of_many(metric, queries, points, shape, k, out, plan);
    }
    let (distances, indices) = out;
    let device = queries.device();
    let profile = device.profile()?;
    let [q, n, _] = shape;
    let tile = plan.tile.unwrap_or_else(|| choose(device, q, k));
    let most = MERGE / k;
    let down = q.div_ceil(tile.rows as usize);
    let splits = plan.splits.unwrap_or((CUBES / down).max(1)).min(most);
    let (each, splits) = ranges(n, splits, tile);
    let batch = plan.batch.unwrap_or((ENTRIES / (splits * k)).max(1)).min(q);
    let len = splits * k;
    let mut lists = (
        device.empty::<u32>(batch * len)?,
        device.empty::<u32>(batch * len)?,
    );
    let merge = merge_kernel(profile, metric, len.next_power_of_two().max(64) as u32);
    for first in (0..q).step_by(batch) {
        let end = (first + batch).min(q);
        let l = Launch {
            tile,
            metric,
            shape,
            first,
            end,
            splits,
            each,
            k,
        };
        launch(
            &l,
            queries,
            points,
            None,
            Some((&mut lists.0, &mut lists.1)),
        )?;
        device.launch(
            &merge,
            grid(end - first, 1)?,
            args![
                &lists.0,
                &lists.1,
                &mut *distances,
                &mut *indices,
                (end - first) as u32,
                first as u32,
                len as u32,
                k as u32
            ],
        )?;
    }
    Ok(())
}

/// Through the distances of some queries at a time.
fn nearest_of_many(
    metric: Metric,
    queries: &Buffer<f32>,
    points: &Buffer<f32>,
    shape: [usize; 3],
    k: usize,
    (distances, indices): (&mut Buffer<f32>, &mut Buffer<u32>),
    plan: Plan,
) -> Result<()> {
    let device = queries.device();
    let profile = device.profile()?;
    let [q, n, _] = shape;
    let batch = plan.batch.unwrap_or((DISTANCES / n).max(1)).min(q);
    let order = match metric {
        Metric::InnerProduct => Order::Descending,
        _ => Order::Ascending,
    };
    for first in (0..q).step_by(batch) {
        let end = (first + batch).min(q);
        let rows = end - first;
        let mut matrix = device.empty::<f32>(rows * n)?;
        pairwise(
            metric,
            queries,
            points,
            shape,
            (first, end),
            &mut matrix,
            plan,
        )?;
        let best = topk(&matrix, rows, n, k, order)?;
        let (from, len) = ((first * k) as u32, (rows * k) as u32);
        device.launch(
            &values_kernel(profile),
            grid(rows * k, 256)?,
            args![&best.values, &mut *distances, from, len],
        )?;
        device.launch(
            &copy_kernel(profile),
            grid(rows * k, 256)?,
            args![&best.indices, &mut *indices, from, len],
        )?;
    }
    Ok(())
}
