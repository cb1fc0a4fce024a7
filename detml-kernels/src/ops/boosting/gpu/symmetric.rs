//! Kernels of symmetric growth: one split for all nodes of a level. See
//! [`symmetric`](super::super::symmetric).

use super::super::arith::*;
use super::super::symmetric::{kept_score, share};
use super::layout::*;
use super::rows::cube_sum;
use super::splits::{bin_g, bin_h, highest, number, prefix};
use crate::device::{Buffer, Device, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use crate::prim;
use crate::wide::I64;
use cubecl::prelude::*;
use detml_core::Result;

/// Words of what is chosen for a level: the feature, then the split or `LEAF`.
const CHOSEN_FEATURE: u32 = 0;
const CHOSEN_SPLIT: u32 = 1;

/// What a level's split is chosen with.
pub(super) struct Symmetric {
    pub(super) tally: Kernel,
    pub(super) settle: Kernel,
    pub(super) apply: Kernel,
    /// The totals of each feature's splits: with missing values to the left, then to the right.
    pub(super) totals: Buffer<f32>,
    pub(super) chosen: Buffer<u32>,
}

impl Symmetric {
    pub(super) fn new(device: &Device, profile: FloatProfile, features: usize) -> Result<Self> {
        Ok(Self {
            tally: tally_kernel(profile),
            settle: settle_kernel(profile),
            apply: apply_kernel(profile),
            totals: device.empty(features.saturating_mul(2 * UNITS as usize))?,
            chosen: device.empty(2)?,
        })
    }
}

/// Adds the nodes `first..first + batch`, in order, to the totals of every split: a cube for each
/// feature, a unit for each bin. Makes histograms by subtraction as `search` does.
#[cube]
fn tally(
    ieee: Ieee,
    histograms: &mut Array<u32>,
    before: &Array<u32>,
    pairs: &Array<u32>,
    sizes: &Array<u32>,
    nodes: &Array<u32>,
    mask: &Array<u32>,
    scales: &Array<u32>,
    state: &Array<u32>,
    totals: &mut Array<f32>,
    features: u32,
    words: u32,
    level: u32,
    first: u32,
    batch: u32,
    stride: u32,
    output: u32,
    subtract: u32,
) {
    let mut high = SharedMemory::<u32>::new(UNITS as usize);
    let mut low = SharedMemory::<u32>::new(UNITS as usize);
    let mut missing = SharedMemory::<u32>::new(4usize);
    let feature = CUBE_POS as u32;
    let bin = UNIT_POS;
    if feature < features {
        let wanted = mask[feature as usize] != 0u32;
        let units = units_of(scales, output);
        let to = feature * comptime!(2 * UNITS) + bin;
        let mut to_left = prim::from_bits(0u32);
        let mut to_right = prim::from_bits(0u32);
        if first != 0u32 {
            to_left = totals[to as usize];
            to_right = totals[(to + UNITS) as usize];
        }
        let count = state[(level * STATE) as usize];
        let end = prim::select_u32(first + batch < count, first + batch, count);
        for node in first..end {
            let slot = node - first;
            let at = (slot * words * 4u32 + feature) * FEATURE_WORDS + bin;
            let pair = node / 2u32;
            let left_built = sizes[(2u32 * pair) as usize] <= sizes[(2u32 * pair + 1u32) as usize];
            let built = left_built == ((node & 1u32) == 0u32);
            if subtract != 0u32 && !built {
                let parent = pairs[(PARENT * stride + pair) as usize];
                let of_parent = (parent * words * 4u32 + feature) * FEATURE_WORDS + bin;
                let sibling = ((slot ^ 1u32) * words * 4u32 + feature) * FEATURE_WORDS + bin;
                let g = bin_g(before, of_parent).sub(bin_g(histograms, sibling));
                let h = bin_h(before, of_parent).sub(bin_h(histograms, sibling));
                histograms[(at + comptime!(G_HIGH * UNITS)) as usize] = g.hi;
                histograms[(at + comptime!(G_LOW * UNITS)) as usize] = g.lo;
                histograms[(at + comptime!(H_HIGH * UNITS)) as usize] = h.hi;
                histograms[(at + comptime!(H_LOW * UNITS)) as usize] = h.lo;
            }
            // Lower levels may draw what this one doesn't: histograms are made all the same.
            if wanted {
                let own_g = bin_g(histograms, at);
                let own_h = bin_h(histograms, at);
                if bin == MISSING {
                    missing[G_HIGH as usize] = own_g.hi;
                    missing[G_LOW as usize] = own_g.lo;
                    missing[H_HIGH as usize] = own_h.hi;
                    missing[H_LOW as usize] = own_h.lo;
                }
                let is_bin = bin != MISSING;
                let none = I64::from_u32(0u32);
                let g = prefix(own_g.select(is_bin, none), &mut high, &mut low);
                sync_cube();
                let h = prefix(own_h.select(is_bin, none), &mut high, &mut low);
                sync_cube();
                let whole_g = g_of(nodes, node * NODE);
                let whole_h = h_of(nodes, node * NODE);
                let g_with = g.add(I64::new(missing[G_HIGH as usize], missing[G_LOW as usize]));
                let h_with = h.add(I64::new(missing[H_HIGH as usize], missing[H_LOW as usize]));
                let p = &units.penalty;
                let own = kept_score(&ieee, number(&ieee, whole_g), number(&ieee, whole_h), p);
                let with = share_of(&ieee, g_with, h_with, whole_g, whole_h, p, own);
                let without = share_of(&ieee, g, h, whole_g, whole_h, p, own);
                to_left = ieee.add(to_left, with);
                to_right = ieee.add(to_right, without);
                sync_cube();
            }
        }
        if wanted {
            totals[to as usize] = to_left;
            totals[(to + UNITS) as usize] = to_right;
        }
    }
}

/// What a split of a node adds to the total, from the sums of its left side.
#[cube]
fn share_of(ieee: &Ieee, g: I64, h: I64, whole_g: I64, whole_h: I64, p: &Penalty, own: f32) -> f32 {
    share(
        ieee,
        number(ieee, g),
        number(ieee, h),
        number(ieee, whole_g.sub(g)),
        number(ieee, whole_h.sub(h)),
        p,
        own,
    )
}

/// Chooses the split of a level; in a round that failed none. One cube.
#[cube]
fn settle(
    ieee: Ieee,
    totals: &Array<f32>,
    nodes: &Array<u32>,
    counts: &Array<u32>,
    mask: &Array<u32>,
    scales: &Array<u32>,
    state: &Array<u32>,
    status: &Array<u32>,
    chosen: &mut Array<u32>,
    features: u32,
    level: u32,
    output: u32,
) {
    let mut keys = SharedMemory::<u32>::new(UNITS as usize);
    let mut ats = SharedMemory::<u32>::new(UNITS as usize);
    let bin = UNIT_POS;
    let mut best = prim::as_i32(NO_SPLIT);
    let mut best_at = bin;
    for feature in 0..features {
        if mask[feature as usize] != 0u32 && bin < counts[feature as usize] {
            let from = feature * comptime!(2 * UNITS) + bin;
            let left = prim::as_i32(prim::bits(totals[from as usize]));
            let right = prim::as_i32(prim::bits(totals[(from + UNITS) as usize]));
            let is_right = left < right;
            let key = prim::select_i32(is_right, right, left);
            // Features come in ascending order: the earlier stays among equals (`N10`).
            if key > best {
                best = key;
                best_at = feature * comptime!(2 * UNITS)
                    + bin * 2u32
                    + prim::select_u32(is_right, 1u32, 0u32);
            }
        }
    }
    let won = highest(best, best_at, &mut keys, &mut ats, UNITS);
    if bin == 0u32 {
        let units = units_of(scales, output);
        let p = &units.penalty;
        let mut own = prim::from_bits(0u32);
        for node in 0..state[(level * STATE) as usize] {
            let g = number(&ieee, g_of(nodes, node * NODE));
            let h = number(&ieee, h_of(nodes, node * NODE));
            own = ieee.add(own, kept_score(&ieee, g, h, p));
        }
        let more = gain(&ieee, prim::from_bits(prim::as_u32(won.key)), own);
        let found = won.key != prim::as_i32(NO_SPLIT) && status[0] == FINE;
        chosen[CHOSEN_FEATURE as usize] = won.at / comptime!(2 * UNITS);
        let split = won.at % comptime!(2 * UNITS);
        let made = found && accept(&ieee, more, own, p);
        chosen[CHOSEN_SPLIT as usize] = prim::select_u32(made, split, LEAF);
    }
}

/// Decides about the nodes `first..first + batch`: a cube for each of them.
#[cube]
fn apply(
    ieee: Ieee,
    histograms: &Array<u32>,
    nodes: &Array<u32>,
    chosen: &Array<u32>,
    scales: &Array<u32>,
    state: &Array<u32>,
    decisions: &mut Array<u32>,
    words: u32,
    level: u32,
    first: u32,
    batch: u32,
    output: u32,
) {
    let mut high = SharedMemory::<u32>::new(UNITS as usize);
    let mut low = SharedMemory::<u32>::new(UNITS as usize);
    let slot = CUBE_POS as u32;
    let node = first + slot;
    if slot < batch && node < state[(level * STATE) as usize] {
        let feature = chosen[CHOSEN_FEATURE as usize];
        let split = chosen[CHOSEN_SPLIT as usize];
        let to = node * DECISION;
        if split != LEAF {
            let at = (slot * words * 4u32 + feature) * FEATURE_WORDS + UNIT_POS;
            let left = goes_left(UNIT_POS, split);
            let none = I64::from_u32(0u32);
            let g = cube_sum(
                bin_g(histograms, at).select(left, none),
                &mut high,
                &mut low,
            );
            sync_cube();
            let h = cube_sum(
                bin_h(histograms, at).select(left, none),
                &mut high,
                &mut low,
            );
            if UNIT_POS == 0u32 {
                let units = units_of(scales, output);
                let p = &units.penalty;
                let whole_g = g_of(nodes, node * NODE);
                let whole_h = h_of(nodes, node * NODE);
                let own = kept_score(&ieee, number(&ieee, whole_g), number(&ieee, whole_h), p);
                let with = share_of(&ieee, g, h, whole_g, whole_h, p, own);
                let zero = prim::from_bits(0u32);
                let more = ieee.sub(with, own);
                let more = ieee.select(ieee.lt(zero, more), more, zero);
                put_sums(decisions, to, g, h);
                decisions[(to + DECIDED) as usize] = split;
                decisions[(to + DECIDED_FEATURE) as usize] = feature;
                let gain = true_gain(&ieee, more, units.sg, units.sh);
                decisions[(to + DECIDED_GAIN) as usize] = prim::bits(gain);
            }
        } else if UNIT_POS == 0u32 {
            decisions[(to + DECIDED) as usize] = LEAF;
        }
    }
}

pub(super) fn tally_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_tally", profile, (), cube(), |d| {
        let ieee = d.ieee();
        let histograms = d.output::<u32>();
        let (before, pairs, sizes) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let (nodes, mask) = (d.input::<u32>(), d.input::<u32>());
        let (scales, state) = (d.input::<u32>(), d.input::<u32>());
        let totals = d.output::<f32>();
        let (features, words, level) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        let (first, batch, stride) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        let (output, subtract) = (d.scalar::<u32>(), d.scalar::<u32>());
        tally::expand(
            d.scope(),
            ieee,
            histograms,
            before,
            pairs,
            sizes,
            nodes,
            mask,
            scales,
            state,
            totals,
            features,
            words,
            level,
            first,
            batch,
            stride,
            output,
            subtract,
        );
    })
}

pub(super) fn settle_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_settle", profile, (), cube(), |d| {
        let ieee = d.ieee();
        let totals = d.input::<f32>();
        let (nodes, counts, mask) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let (scales, state, status) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let chosen = d.output::<u32>();
        let (features, level, output) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        settle::expand(
            d.scope(),
            ieee,
            totals,
            nodes,
            counts,
            mask,
            scales,
            state,
            status,
            chosen,
            features,
            level,
            output,
        );
    })
}

pub(super) fn apply_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_apply", profile, (), cube(), |d| {
        let ieee = d.ieee();
        let (histograms, nodes) = (d.input::<u32>(), d.input::<u32>());
        let (chosen, scales, state) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let decisions = d.output::<u32>();
        let (words, level) = (d.scalar::<u32>(), d.scalar::<u32>());
        let (first, batch, output) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        apply::expand(
            d.scope(),
            ieee,
            histograms,
            nodes,
            chosen,
            scales,
            state,
            decisions,
            words,
            level,
            first,
            batch,
            output,
        );
    })
}
