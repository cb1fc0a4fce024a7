//! How the tables on the device are laid out, and the small steps that several kernels share.

use super::super::arith::Penalty;
use crate::ops::histogram::carry;
use crate::prim;
use crate::wide::I64;
use cubecl::prelude::*;

/// Units of a cube, and bins of a histogram: those of a feature, unused ones, missing values last.
pub(super) const UNITS: u32 = 256;
pub(super) const MISSING: u32 = 255;

/// Rows that a unit of the kernels over rows takes.
pub(super) const ITEMS: u32 = 8;
/// Rows that a cube of them takes.
pub(super) const TILE: u32 = UNITS * ITEMS;

/// Words of a bin, one after the other for all bins of a feature: the sums of gradients and of
/// Hessians.
pub(super) const G_HIGH: u32 = 0;
pub(super) const G_LOW: u32 = 1;
pub(super) const H_HIGH: u32 = 2;
pub(super) const H_LOW: u32 = 3;
/// Words of a feature's histogram.
pub(super) const FEATURE_WORDS: u32 = 4 * UNITS;

/// Words of an output's scale.
pub(super) const SCALE: u32 = 10;
pub(super) const SHIFT_G: u32 = 0;
pub(super) const SHIFT_H: u32 = 1;
pub(super) const HALF_G: u32 = 2;
pub(super) const LAST_G: u32 = 3;
pub(super) const HALF_H: u32 = 4;
pub(super) const LAST_H: u32 = 5;
pub(super) const LAMBDA: u32 = 6;
pub(super) const ALPHA: u32 = 7;
pub(super) const GAMMA: u32 = 8;
pub(super) const MIN_WEIGHT: u32 = 9;

/// Words of a level's node: its sums as in a bin, then its place (see `sampling::Columns`).
pub(super) const NODE: u32 = 5;
pub(super) const PLACE: u32 = 4;

/// Words of the best split of a node by one feature: sums of the left side as in a bin, the score
/// and the split: `2 bin + 1` if missing values go to the right, `2 bin` if to the left. The
/// order of these words is the order in which ties are broken.
pub(super) const BEST: u32 = 6;
pub(super) const SCORE: u32 = 4;
pub(super) const SPLIT: u32 = 5;

/// Words of what is decided about a node: sums of the left side as in a bin, then the split, or
/// `LEAF`.
pub(super) const DECISION: u32 = 7;
pub(super) const DECIDED: u32 = 4;
pub(super) const DECIDED_FEATURE: u32 = 5;
pub(super) const DECIDED_GAIN: u32 = 6;
pub(super) const LEAF: u32 = u32::MAX;

/// Columns of the table of a level's pairs of siblings; the root is the left one of a pair without
/// a right one.
///
/// First the parent's rows: the left child gets the first ones, the right child the last ones.
pub(super) const START: u32 = 0;
pub(super) const ROWS: u32 = 1;
/// How the parent is split.
pub(super) const PAIR_FEATURE: u32 = 2;
pub(super) const PAIR_SPLIT: u32 = 3;
/// Number of the parent in its level.
pub(super) const PARENT: u32 = 4;
/// Cubes of the partition before this pair's.
pub(super) const TILES: u32 = 5;
/// Chunks of the histograms before this pair's.
pub(super) const CHUNKS: u32 = 6;
pub(super) const PAIR: u32 = 7;

/// Words of a tree's node: children, feature, split, then three numbers.
pub(super) const TREE: u32 = 6;
pub(super) const LEFT: u32 = 0;
pub(super) const FEATURE: u32 = 1;
pub(super) const TREE_SPLIT: u32 = 2;
pub(super) const VALUE: u32 = 3;
pub(super) const GAIN: u32 = 4;
pub(super) const COVER: u32 = 5;

/// Words of a level's state: its nodes, and the number in the tree of the first of them.
pub(super) const STATE: u32 = 2;

/// Words of the status: the first round that failed, and its first output that did.
pub(super) const STATUS: usize = 2;
pub(super) const FINE: u32 = u32::MAX;

/// Words of the root's sums as they are collected: as in a bin, then the number of rows.
pub(super) const ROOT: u32 = 5;
pub(super) const DRAWN: u32 = 4;

/// What one tree's sums are measured in, and the regularisation in the same units.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Units {
    pub(super) sg: i32,
    pub(super) sh: i32,
    pub(super) penalty: Penalty,
}

#[cube]
pub(super) fn units_of(scales: &Array<u32>, output: u32) -> Units {
    let at = output * SCALE;
    Units {
        sg: prim::as_i32(scales[(at + SHIFT_G) as usize]),
        sh: prim::as_i32(scales[(at + SHIFT_H) as usize]),
        penalty: Penalty {
            lambda: prim::from_bits(scales[(at + LAMBDA) as usize]),
            alpha: prim::from_bits(scales[(at + ALPHA) as usize]),
            gamma: prim::from_bits(scales[(at + GAMMA) as usize]),
            min_weight: prim::from_bits(scales[(at + MIN_WEIGHT) as usize]),
        },
    }
}

/// The gradient's sum of a record that starts with sums as in a bin.
#[cube]
pub(super) fn g_of(records: &Array<u32>, at: u32) -> I64 {
    I64::new(
        records[(at + G_HIGH) as usize],
        records[(at + G_LOW) as usize],
    )
}

#[cube]
pub(super) fn h_of(records: &Array<u32>, at: u32) -> I64 {
    I64::new(
        records[(at + H_HIGH) as usize],
        records[(at + H_LOW) as usize],
    )
}

#[cube]
pub(super) fn put_sums(records: &mut Array<u32>, at: u32, g: I64, h: I64) {
    records[(at + G_HIGH) as usize] = g.hi;
    records[(at + G_LOW) as usize] = g.lo;
    records[(at + H_HIGH) as usize] = h.hi;
    records[(at + H_LOW) as usize] = h.lo;
}

/// Adds to a sum of two words: every wrap of the lower one belongs to one addition.
#[cube]
pub(super) fn add_wide(sums: &mut Array<Atomic<u32>>, high: u32, low: u32, x: I64) {
    let old = sums[low as usize].fetch_add(x.lo);
    let more = carry(old, x.lo, x.hi);
    if more != 0u32 {
        sums[high as usize].fetch_add(more);
    }
}

/// The code of a feature in a row; codes lie four to a word, word by word of the features.
#[cube]
pub(super) fn code_of(codes: &Array<u32>, n: u32, row: u32, feature: u32) -> u32 {
    let word = codes[((feature >> 2u32) * n + row) as usize];
    (word >> ((feature & 3u32) * 8u32)) & 255u32
}

#[cube]
pub(super) fn goes_left(code: u32, split: u32) -> bool {
    let missing = code == MISSING;
    let bin = split >> 1u32;
    (missing && (split & 1u32) == 0u32) || (!missing && code <= bin)
}

/// The pair that an item belongs to, if its column of the table counts the items before each pair;
/// it is one of `first..end`.
#[cube]
pub(super) fn find_pair(pairs: &Array<u32>, column: u32, first: u32, end: u32, item: u32) -> u32 {
    let mut low = first;
    let mut high = end;
    while high - low > 1u32 {
        let middle = (low + high) >> 1u32;
        if pairs[(column + middle) as usize] <= item {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Chunks that the histograms of a pair take at most: of both its nodes, or of the smaller one.
#[cube]
pub(super) fn chunks_of(rows: u32, chunk: u32, both: u32) -> u32 {
    let one = (rows / 2u32).div_ceil(chunk);
    prim::select_u32(both != 0u32, rows.div_ceil(chunk) + 1u32, one)
}

/// Zeroes the first `words` words, all cubes together.
#[cube]
pub(super) fn clear(words: &mut Array<u32>, count: u32) {
    let stride = CUBE_COUNT as u32 * UNITS;
    for step in 0..count.div_ceil(stride) {
        let i = step * stride + CUBE_POS as u32 * UNITS + UNIT_POS;
        if i < count {
            words[i as usize] = 0u32;
        }
    }
}

pub(super) fn cube() -> CubeDim {
    CubeDim::new_1d(UNITS)
}
