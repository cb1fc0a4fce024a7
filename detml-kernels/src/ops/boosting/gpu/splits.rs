//! Kernels over nodes: the draw of features, the search for splits, and the next level.

use super::super::arith::*;
use super::super::bounded::*;
use super::constraints::bounds_of;
use super::layout::*;
use crate::device::{Definition, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::tile::cube_scan;
use crate::prim;
use crate::random::Philox;
use crate::wide::I64;
use cubecl::prelude::*;

/// Features of one round of `choose`.
const CHOOSERS: u32 = 32;

/// A sum as a number in units of its scale.
#[cube]
pub(super) fn number(ieee: &Ieee, x: I64) -> f32 {
    unit(ieee, x.to_f32())
}

/// Makes the tree of one leaf and the table of the first level; takes the root's sums.
#[cube]
fn plant(
    ieee: Ieee,
    root: &mut Array<Atomic<u32>>,
    scales: &Array<u32>,
    trees: &mut Array<u32>,
    pairs: &mut Array<u32>,
    sizes: &mut Array<u32>,
    nodes: &mut Array<u32>,
    state: &mut Array<u32>,
    tree: u32,
    output: u32,
    stride: u32,
    chunk: u32,
    rate: f32,
) {
    if ABSOLUTE_POS == 0 {
        let g = I64::new(
            root[G_HIGH as usize].swap(0u32),
            root[G_LOW as usize].swap(0u32),
        );
        let h = I64::new(
            root[H_HIGH as usize].swap(0u32),
            root[H_LOW as usize].swap(0u32),
        );
        let rows = root[DRAWN as usize].swap(0u32);
        put_sums(nodes, 0u32, g, h);
        nodes[PLACE as usize] = 1u32;
        put_leaf(&ieee, trees, tree, &units_of(scales, output), g, h, rate);
        pairs[(START * stride) as usize] = 0u32;
        pairs[(ROWS * stride) as usize] = rows;
        pairs[(CHUNKS * stride) as usize] = 0u32;
        pairs[(CHUNKS * stride + 1u32) as usize] = chunks_of(rows, chunk, 1u32);
        sizes[0] = rows;
        sizes[1] = 0u32;
        state[0] = 1u32;
        state[1] = 0u32;
    }
}

#[cube]
fn put_leaf(
    ieee: &Ieee,
    trees: &mut Array<u32>,
    at: u32,
    units: &Units,
    g: I64,
    h: I64,
    rate: f32,
) {
    let g = number(ieee, g);
    let h = number(ieee, h);
    let value = leaf_value(ieee, g, h, &units.penalty, units.sg, units.sh, rate);
    trees[(at + LEFT) as usize] = 0u32;
    trees[(at + FEATURE) as usize] = 0u32;
    trees[(at + TREE_SPLIT) as usize] = 0u32;
    trees[(at + VALUE) as usize] = prim::bits(value);
    trees[(at + GAIN) as usize] = 0u32;
    trees[(at + COVER) as usize] = prim::bits(true_weight(ieee, h, units.sh));
}

/// Draws `count` of the features that `from` allows, as `sampling::Columns` does: those with the
/// lowest words, the lower feature first among equal ones. With `of_nodes` the cubes draw for the
/// nodes from `first` on and take their places, else one cube takes `place`.
#[cube]
fn draw(
    from: &Array<u32>,
    nodes: &Array<u32>,
    mask: &mut Array<u32>,
    features: u32,
    first: u32,
    batch: u32,
    of_nodes: u32,
    place: u32,
    count: u32,
    draws: Philox,
) {
    let mut words = SharedMemory::<u32>::new(UNITS as usize);
    let mut among = SharedMemory::<u32>::new(UNITS as usize);
    let slot = CUBE_POS as u32;
    if slot < batch {
        let own_place = nodes[((first + slot) * of_nodes * NODE + PLACE) as usize];
        let place = prim::select_u32(of_nodes != 0u32, own_place, place);
        for own in 0..features.div_ceil(UNITS) {
            let feature = own * UNITS + UNIT_POS;
            let mine = draws.word(feature, place);
            let mut rank = 0u32;
            for tile in 0..features.div_ceil(UNITS) {
                let other = tile * UNITS + UNIT_POS;
                words[UNIT_POS as usize] = draws.word(other, place);
                let mut there = 0u32;
                if other < features {
                    there = from[other as usize];
                }
                among[UNIT_POS as usize] = there;
                sync_cube();
                for i in 0..UNITS {
                    let word = words[i as usize];
                    let before = word < mine || (word == mine && tile * UNITS + i < feature);
                    if among[i as usize] != 0u32 && before {
                        rank += 1u32;
                    }
                }
                sync_cube();
            }
            if feature < features {
                let drawn = from[feature as usize] != 0u32 && rank < count;
                mask[(slot * features + feature) as usize] = prim::select_u32(drawn, 1u32, 0u32);
            }
        }
    }
}

/// Adds over the units up to and including each one.
#[cube]
pub(super) fn prefix(value: I64, high: &mut SharedMemory<u32>, low: &mut SharedMemory<u32>) -> I64 {
    let unit = UNIT_POS as usize;
    high[unit] = value.hi;
    low[unit] = value.lo;
    let mut distance = 1u32.runtime();
    for _ in 0..comptime!(UNITS.ilog2()) {
        sync_cube();
        let reaches = UNIT_POS >= distance;
        let other = prim::select_u32(reaches, UNIT_POS - distance, 0u32) as usize;
        let more = I64::new(high[other], low[other]).select(reaches, I64::from_u32(0u32));
        sync_cube();
        let sum = I64::new(high[unit], low[unit]).add(more);
        high[unit] = sum.hi;
        low[unit] = sum.lo;
        distance <<= 1u32;
    }
    sync_cube();
    I64::new(high[unit], low[unit])
}

/// Looks for the best split of each node `first..first + batch` by each feature; a cube for each
/// of both, a unit for each bin. With `subtract`, first makes the histogram of the child that was
/// not built: the parent's (`before`) minus its sibling's. `bounds` and `ways` are read if
/// `bounded`.
#[cube]
fn search(
    ieee: Ieee,
    histograms: &mut Array<u32>,
    before: &Array<u32>,
    pairs: &Array<u32>,
    sizes: &Array<u32>,
    nodes: &Array<u32>,
    counts: &Array<u32>,
    mask: &Array<u32>,
    scales: &Array<u32>,
    state: &Array<u32>,
    best: &mut Array<u32>,
    features: u32,
    words: u32,
    level: u32,
    first: u32,
    batch: u32,
    stride: u32,
    mask_stride: u32,
    output: u32,
    subtract: u32,
    bounds: &Array<u32>,
    ways: &Array<u32>,
    #[comptime] bounded: bool,
) {
    let mut high = SharedMemory::<u32>::new(UNITS as usize);
    let mut low = SharedMemory::<u32>::new(UNITS as usize);
    let mut missing = SharedMemory::<u32>::new(4usize);
    let slot = CUBE_POS as u32 / features;
    let feature = CUBE_POS as u32 % features;
    let node = first + slot;
    let bin = UNIT_POS;
    if slot < batch && node < state[(level * STATE) as usize] {
        let at = (slot * words * 4u32 + feature) * FEATURE_WORDS + bin;
        let mut g_high = histograms[(at + comptime!(G_HIGH * UNITS)) as usize];
        let mut g_low = histograms[(at + comptime!(G_LOW * UNITS)) as usize];
        let mut h_high = histograms[(at + comptime!(H_HIGH * UNITS)) as usize];
        let mut h_low = histograms[(at + comptime!(H_LOW * UNITS)) as usize];
        let pair = node / 2u32;
        let left_built = sizes[(2u32 * pair) as usize] <= sizes[(2u32 * pair + 1u32) as usize];
        let built = left_built == ((node & 1u32) == 0u32);
        if subtract != 0u32 && !built {
            let parent = pairs[(PARENT * stride + pair) as usize];
            let of_parent = (parent * words * 4u32 + feature) * FEATURE_WORDS + bin;
            let sibling = ((slot ^ 1u32) * words * 4u32 + feature) * FEATURE_WORDS + bin;
            let g = bin_g(before, of_parent).sub(bin_g(histograms, sibling));
            let h = bin_h(before, of_parent).sub(bin_h(histograms, sibling));
            g_high = g.hi;
            g_low = g.lo;
            h_high = h.hi;
            h_low = h.lo;
            histograms[(at + comptime!(G_HIGH * UNITS)) as usize] = g_high;
            histograms[(at + comptime!(G_LOW * UNITS)) as usize] = g_low;
            histograms[(at + comptime!(H_HIGH * UNITS)) as usize] = h_high;
            histograms[(at + comptime!(H_LOW * UNITS)) as usize] = h_low;
        }
        let to = (slot * features + feature) * BEST;
        if mask[(slot * mask_stride + feature) as usize] != 0u32 {
            if bin == MISSING {
                missing[G_HIGH as usize] = g_high;
                missing[G_LOW as usize] = g_low;
                missing[H_HIGH as usize] = h_high;
                missing[H_LOW as usize] = h_low;
            }
            let is_bin = bin < counts[feature as usize];
            let none = I64::from_u32(0u32);
            let g = prefix(
                I64::new(g_high, g_low).select(is_bin, none),
                &mut high,
                &mut low,
            );
            sync_cube();
            let h = prefix(
                I64::new(h_high, h_low).select(is_bin, none),
                &mut high,
                &mut low,
            );
            sync_cube();
            let units = units_of(scales, output);
            let whole_g = g_of(nodes, node * NODE);
            let whole_h = h_of(nodes, node * NODE);
            let g_with = g.add(I64::new(missing[G_HIGH as usize], missing[G_LOW as usize]));
            let h_with = h.add(I64::new(missing[H_HIGH as usize], missing[H_LOW as usize]));
            let to_left = split_key(
                &ieee,
                g_with,
                h_with,
                whole_g,
                whole_h,
                &units.penalty,
                bounds,
                ways,
                node,
                feature,
                level,
                bounded,
            );
            let to_right = split_key(
                &ieee,
                g,
                h,
                whole_g,
                whole_h,
                &units.penalty,
                bounds,
                ways,
                node,
                feature,
                level,
                bounded,
            );
            // Missing values go to the left if it doesn't matter (`N10`).
            let right = to_left < to_right;
            let key = prim::select_i32(right, to_right, to_left);
            let none = comptime!(none_of(bounded)).runtime();
            let key = prim::select_i32(is_bin, key, prim::as_i32(none));
            let split = bin * 2u32 + prim::select_u32(right, 1u32, 0u32);
            let won = highest(key, split, &mut high, &mut low, UNITS);
            if won.at / 2u32 == bin {
                put_sums(best, to, g_with.select(!right, g), h_with.select(!right, h));
                best[(to + SCORE) as usize] = prim::as_u32(won.key);
                best[(to + SPLIT) as usize] = split;
            }
        } else if bin == 0u32 {
            best[(to + SCORE) as usize] = comptime!(none_of(bounded)).runtime();
        }
    }
}

/// The sum of a bin of a histogram.
#[cube]
pub(super) fn bin_g(histograms: &Array<u32>, at: u32) -> I64 {
    I64::new(
        histograms[(at + comptime!(G_HIGH * UNITS)) as usize],
        histograms[(at + comptime!(G_LOW * UNITS)) as usize],
    )
}

#[cube]
pub(super) fn bin_h(histograms: &Array<u32>, at: u32) -> I64 {
    I64::new(
        histograms[(at + comptime!(H_HIGH * UNITS)) as usize],
        histograms[(at + comptime!(H_LOW * UNITS)) as usize],
    )
}

/// The key of a split that is not allowed.
fn none_of(bounded: bool) -> u32 {
    if bounded { REFUSED } else { NO_SPLIT }
}

/// The score of a split as an integer of the same order. If not `bounded` that is its bits: none
/// is a NaN, -0 or below `NO_SPLIT`.
#[cube]
fn split_key(
    ieee: &Ieee,
    g: I64,
    h: I64,
    whole_g: I64,
    whole_h: I64,
    p: &Penalty,
    bounds: &Array<u32>,
    ways: &Array<u32>,
    node: u32,
    feature: u32,
    level: u32,
    #[comptime] bounded: bool,
) -> i32 {
    let gl = number(ieee, g);
    let hl = number(ieee, h);
    let gr = number(ieee, whole_g.sub(g));
    let hr = number(ieee, whole_h.sub(h));
    if comptime!(bounded) {
        let b = bounds_of(bounds, node, level);
        let way = prim::as_i32(ways[feature as usize]);
        bounded_key(ieee, gl, hl, gr, hr, p, &b, way)
    } else {
        prim::as_i32(prim::bits(split_score(ieee, gl, hl, gr, hr, p)))
    }
}

/// A node's own score.
#[cube]
fn own_score(
    ieee: &Ieee,
    g: f32,
    h: f32,
    p: &Penalty,
    bounds: &Array<u32>,
    node: u32,
    level: u32,
    #[comptime] bounded: bool,
) -> f32 {
    if comptime!(bounded) {
        bounded_score(ieee, g, h, p, &bounds_of(bounds, node, level))
    } else {
        score(ieee, g, h, p)
    }
}

/// The score of a key.
#[cube]
fn score_of(key: i32, #[comptime] bounded: bool) -> f32 {
    if comptime!(bounded) {
        prim::from_bits(ordered(prim::as_u32(key)))
    } else {
        prim::from_bits(prim::as_u32(key))
    }
}

/// What a split must gain more than: see `accept`.
#[cube]
fn size_of(ieee: &Ieee, own: f32, #[comptime] bounded: bool) -> f32 {
    if comptime!(bounded) {
        ieee.abs(own)
    } else {
        own
    }
}

#[derive(CubeType, Clone, Copy)]
pub(super) struct Highest {
    pub(super) key: i32,
    pub(super) at: u32,
}

/// The highest key among the units of a cube and the lowest `at` that has it (`N10`).
#[cube]
pub(super) fn highest(
    key: i32,
    at: u32,
    keys: &mut SharedMemory<u32>,
    ats: &mut SharedMemory<u32>,
    #[comptime] units: u32,
) -> Highest {
    let unit = UNIT_POS as usize;
    keys[unit] = prim::as_u32(key);
    ats[unit] = at;
    let mut distance = comptime!(units / 2).runtime();
    for _ in 0..comptime!(units.ilog2()) {
        sync_cube();
        if UNIT_POS < distance {
            let other = unit + distance as usize;
            let mine = prim::as_i32(keys[unit]);
            let theirs = prim::as_i32(keys[other]);
            if theirs > mine || (theirs == mine && ats[other] < ats[unit]) {
                keys[unit] = keys[other];
                ats[unit] = ats[other];
            }
        }
        distance >>= 1u32;
    }
    sync_cube();
    Highest {
        key: prim::as_i32(keys[0]),
        at: ats[0],
    }
}

/// Decides about each node `first..first + batch`: the best split over the features, and whether
/// it is worth it; in a round that failed none is. A cube for each node.
#[cube]
fn choose(
    ieee: Ieee,
    best: &Array<u32>,
    nodes: &Array<u32>,
    scales: &Array<u32>,
    state: &Array<u32>,
    status: &Array<u32>,
    decisions: &mut Array<u32>,
    features: u32,
    level: u32,
    first: u32,
    batch: u32,
    output: u32,
    bounds: &Array<u32>,
    #[comptime] bounded: bool,
) {
    let mut keys = SharedMemory::<u32>::new(CHOOSERS as usize);
    let mut ats = SharedMemory::<u32>::new(CHOOSERS as usize);
    let slot = CUBE_POS as u32;
    let node = first + slot;
    if slot < batch && node < state[(level * STATE) as usize] {
        let none = comptime!(none_of(bounded)).runtime();
        let mut key = prim::as_i32(none);
        let mut feature = UNIT_POS;
        for step in 0..features.div_ceil(CHOOSERS) {
            let other = step * CHOOSERS + UNIT_POS;
            if other < features {
                let score = best[((slot * features + other) * BEST + SCORE) as usize];
                // Features come in ascending order: the earlier stays among equals.
                if prim::as_i32(score) > key {
                    key = prim::as_i32(score);
                    feature = other;
                }
            }
        }
        let won = highest(key, feature, &mut keys, &mut ats, CHOOSERS);
        if UNIT_POS == 0u32 {
            let units = units_of(scales, output);
            let from = (slot * features + won.at) * BEST;
            let to = node * DECISION;
            let g = number(&ieee, g_of(nodes, node * NODE));
            let h = number(&ieee, h_of(nodes, node * NODE));
            let own = own_score(&ieee, g, h, &units.penalty, bounds, node, level, bounded);
            let more = gain(&ieee, score_of(won.key, bounded), own);
            let found = won.key != prim::as_i32(none) && status[0] == FINE;
            let size = size_of(&ieee, own, bounded);
            if found && accept(&ieee, more, size, &units.penalty) {
                put_sums(decisions, to, g_of(best, from), h_of(best, from));
                decisions[(to + DECIDED) as usize] = best[(from + SPLIT) as usize];
                decisions[(to + DECIDED_FEATURE) as usize] = won.at;
                let gain = true_gain(&ieee, more, units.sg, units.sh);
                decisions[(to + DECIDED_GAIN) as usize] = prim::bits(gain);
            } else {
                decisions[(to + DECIDED) as usize] = LEAF;
            }
        }
    }
}

/// How a node is split; nodes beyond the level's `count` are leaves. (`&&` would read for these
/// too: kernels evaluate both sides.)
#[cube]
fn split_of(decisions: &Array<u32>, node: u32, count: u32) -> u32 {
    let mut split = comptime!(LEAF).runtime();
    if node < count {
        split = decisions[(node * DECISION + DECIDED) as usize];
    }
    split
}

/// Writes the splits of a level into the tree and lays out the next level: children in the order
/// of their parents, as leaves until they are split themselves. One cube, whose units take
/// consecutive nodes each.
#[cube]
fn arrange(
    ieee: Ieee,
    decisions: &Array<u32>,
    pairs: &Array<u32>,
    sizes: &Array<u32>,
    nodes: &Array<u32>,
    scales: &Array<u32>,
    state: &mut Array<u32>,
    trees: &mut Array<u32>,
    next_pairs: &mut Array<u32>,
    next_sizes: &mut Array<u32>,
    next_nodes: &mut Array<u32>,
    tree: u32,
    output: u32,
    level: u32,
    stride: u32,
    chunk: u32,
    both: u32,
    last: u32,
    rate: f32,
) {
    let mut scratch = SharedMemory::<u32>::new(comptime!(2 * UNITS as usize));
    let at = (level * STATE) as usize;
    let count = state[at];
    let base = state[at + 1usize];
    let share = count.div_ceil(UNITS);
    let mut splits = 0u32;
    let mut tiles = 0u32;
    let mut chunks = 0u32;
    for i in 0..share {
        let node = UNIT_POS * share + i;
        if split_of(decisions, node, count) != LEAF {
            let rows = sizes[node as usize];
            splits += 1u32;
            tiles += rows.div_ceil(TILE);
            chunks += chunks_of(rows, chunk, both);
        }
    }
    let (splits_before, all_splits) = cube_scan(splits, &mut scratch, UNITS);
    let (tiles_before, all_tiles) = cube_scan(tiles, &mut scratch, UNITS);
    let (chunks_before, all_chunks) = cube_scan(chunks, &mut scratch, UNITS);
    let units = units_of(scales, output);
    let first_child = base + count;
    let mut pair = splits_before;
    let mut tile = tiles_before;
    let mut chunk_at = chunks_before;
    for i in 0..share {
        let node = UNIT_POS * share + i;
        let split = split_of(decisions, node, count);
        if split != LEAF {
            let decision = node * DECISION;
            let feature = decisions[(decision + DECIDED_FEATURE) as usize];
            let child = first_child + 2u32 * pair;
            let own = tree + (base + node) * TREE;
            trees[(own + LEFT) as usize] = child;
            trees[(own + FEATURE) as usize] = feature;
            trees[(own + TREE_SPLIT) as usize] = split;
            trees[(own + VALUE) as usize] = 0u32;
            trees[(own + GAIN) as usize] = decisions[(decision + DECIDED_GAIN) as usize];
            let left_g = g_of(decisions, decision);
            let left_h = h_of(decisions, decision);
            let right_g = g_of(nodes, node * NODE).sub(left_g);
            let right_h = h_of(nodes, node * NODE).sub(left_h);
            let to = tree + child * TREE;
            put_leaf(&ieee, trees, to, &units, left_g, left_h, rate);
            put_leaf(&ieee, trees, to + TREE, &units, right_g, right_h, rate);
            if last == 0u32 {
                let rows = sizes[node as usize];
                let mut start = pairs[(START * stride + node / 2u32) as usize];
                if (node & 1u32) != 0u32 {
                    start += sizes[(node - 1u32) as usize];
                }
                next_pairs[(START * stride + pair) as usize] = start;
                next_pairs[(ROWS * stride + pair) as usize] = rows;
                next_pairs[(PAIR_FEATURE * stride + pair) as usize] = feature;
                next_pairs[(PAIR_SPLIT * stride + pair) as usize] = split;
                next_pairs[(PARENT * stride + pair) as usize] = node;
                next_pairs[(TILES * stride + pair) as usize] = tile;
                next_pairs[(CHUNKS * stride + pair) as usize] = chunk_at;
                tile += rows.div_ceil(TILE);
                chunk_at += chunks_of(rows, chunk, both);
                next_sizes[(2u32 * pair) as usize] = 0u32;
                next_sizes[(2u32 * pair + 1u32) as usize] = 0u32;
                let next = 2u32 * pair * NODE;
                let place = nodes[(node * NODE + PLACE) as usize];
                put_sums(next_nodes, next, left_g, left_h);
                next_nodes[(next + PLACE) as usize] = 2u32 * place;
                put_sums(next_nodes, next + NODE, right_g, right_h);
                next_nodes[(next + NODE + PLACE) as usize] = 2u32 * place + 1u32;
            }
            pair += 1u32;
        }
    }
    if UNIT_POS == 0u32 {
        if last == 0u32 {
            next_pairs[(TILES * stride + all_splits) as usize] = all_tiles;
            next_pairs[(CHUNKS * stride + all_splits) as usize] = all_chunks;
        }
        state[at + 2usize] = 2u32 * all_splits;
        state[at + 3usize] = first_child;
    }
}

pub(super) fn plant_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_plant", profile, (), CubeDim::new_1d(32), |d| {
        let ieee = d.ieee();
        let root = d.output::<Atomic<u32>>();
        let scales = d.input::<u32>();
        let (trees, pairs, sizes) = (d.output::<u32>(), d.output::<u32>(), d.output::<u32>());
        let (nodes, state) = (d.output::<u32>(), d.output::<u32>());
        let (tree, output) = (d.scalar::<u32>(), d.scalar::<u32>());
        let (stride, chunk) = (d.scalar::<u32>(), d.scalar::<u32>());
        let rate = d.scalar::<f32>();
        plant::expand(
            d.scope(),
            ieee,
            root,
            scales,
            trees,
            pairs,
            sizes,
            nodes,
            state,
            tree,
            output,
            stride,
            chunk,
            rate,
        );
    })
}

pub(super) fn draw_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_draw", profile, (), cube(), |d| {
        let (from, nodes) = (d.input::<u32>(), d.input::<u32>());
        let mask = d.output::<u32>();
        let (features, first, batch) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        let (of_nodes, place, count) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        let words = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        let draws = Philox::__expand_from_words(d.scope(), words.0, words.1, words.2);
        draw::expand(
            d.scope(),
            from,
            nodes,
            mask,
            features,
            first,
            batch,
            of_nodes,
            place,
            count,
            draws,
        );
    })
}

/// With monotone constraints if `bounded`; the two more inputs come before the output then.
pub(super) fn search_kernel(profile: FloatProfile, bounded: bool) -> Kernel {
    let define = move |d: &mut Definition| {
        let ieee = d.ieee();
        let histograms = d.output::<u32>();
        let (before, pairs, sizes) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let (nodes, counts, mask) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let (scales, state) = (d.input::<u32>(), d.input::<u32>());
        let (bounds, ways) = match bounded {
            true => (d.input::<u32>(), d.input::<u32>()),
            false => (nodes.clone(), counts.clone()),
        };
        let best = d.output::<u32>();
        let (features, words, level) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        let (first, batch, stride) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        let (mask_stride, output) = (d.scalar::<u32>(), d.scalar::<u32>());
        let subtract = d.scalar::<u32>();
        search::expand(
            d.scope(),
            ieee,
            histograms,
            before,
            pairs,
            sizes,
            nodes,
            counts,
            mask,
            scales,
            state,
            best,
            features,
            words,
            level,
            first,
            batch,
            stride,
            mask_stride,
            output,
            subtract,
            bounds,
            ways,
            bounded,
        );
    };
    match bounded {
        true => Kernel::new("boosting_search_bounded", profile, (), cube(), define),
        false => Kernel::new("boosting_search", profile, (), cube(), define),
    }
}

/// With monotone constraints if `bounded`; one more input comes before the output then.
pub(super) fn choose_kernel(profile: FloatProfile, bounded: bool) -> Kernel {
    let units = CubeDim::new_1d(CHOOSERS);
    let define = move |d: &mut Definition| {
        let ieee = d.ieee();
        let (best, nodes, scales) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let (state, status) = (d.input::<u32>(), d.input::<u32>());
        let bounds = match bounded {
            true => d.input::<u32>(),
            false => nodes.clone(),
        };
        let decisions = d.output::<u32>();
        let (features, level) = (d.scalar::<u32>(), d.scalar::<u32>());
        let (first, batch, output) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        choose::expand(
            d.scope(),
            ieee,
            best,
            nodes,
            scales,
            state,
            status,
            decisions,
            features,
            level,
            first,
            batch,
            output,
            bounds,
            bounded,
        );
    };
    match bounded {
        true => Kernel::new("boosting_choose_bounded", profile, (), units, define),
        false => Kernel::new("boosting_choose", profile, (), units, define),
    }
}

pub(super) fn arrange_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_arrange", profile, (), cube(), |d| {
        let ieee = d.ieee();
        let (decisions, pairs, sizes) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let (nodes, scales) = (d.input::<u32>(), d.input::<u32>());
        let (state, trees) = (d.output::<u32>(), d.output::<u32>());
        let (next_pairs, next_sizes) = (d.output::<u32>(), d.output::<u32>());
        let next_nodes = d.output::<u32>();
        let (tree, output, level) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        let (stride, chunk) = (d.scalar::<u32>(), d.scalar::<u32>());
        let (both, last) = (d.scalar::<u32>(), d.scalar::<u32>());
        let rate = d.scalar::<f32>();
        arrange::expand(
            d.scope(),
            ieee,
            decisions,
            pairs,
            sizes,
            nodes,
            scales,
            state,
            trees,
            next_pairs,
            next_sizes,
            next_nodes,
            tree,
            output,
            level,
            stride,
            chunk,
            both,
            last,
            rate,
        );
    })
}
