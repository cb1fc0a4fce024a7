//! Kernels that keep the order of a tree's splits and prune it to the first ones: see
//! [`guide`](super::super::guide).
//!
//! The order is a list: a word for its length, then for each node its number in the grown tree
//! and what counts of its gain. Each level reads one list and writes another.

use super::super::Growth;
use super::super::guide::{gain_mask, most_splits};
use super::layout::*;
use crate::device::{Buffer, Device, Kernel, args};
use crate::ieee::FloatProfile;
use crate::ops::grid;
use crate::prim;
use cubecl::prelude::*;
use detml_core::Result;

/// Words of an entry, and where it has what.
const ENTRY: u32 = 2;
const NUMBER: u32 = 1;
const STRENGTH: u32 = 2;

/// Where a node that isn't split stands.
const NOWHERE: u32 = u32::MAX;

/// The tree in hand before it is pruned, and the order of its splits.
pub(super) struct Guide {
    insert: Kernel,
    rank: Kernel,
    prune: Kernel,
    /// Splits of a tree at most.
    most: u32,
    mask: u32,
    pub(super) grown: Buffer<u32>,
    /// The values of the grown tree's nodes, should they be leaves.
    values: Buffer<u32>,
    /// Where the grown tree's nodes stand in the list.
    places: Buffer<u32>,
    /// Where a level's nodes go into the list.
    gaps: Buffer<u32>,
    /// After even levels, after odd levels.
    lists: [Buffer<u32>; 2],
}

impl Guide {
    /// `None` if trees have no limit. A level has `level` nodes at most, a grown tree `nodes`.
    pub(super) fn new(
        device: &Device,
        profile: FloatProfile,
        growth: &Growth,
        rows: usize,
        level: usize,
        nodes: usize,
    ) -> Result<Option<Self>> {
        let Some(most) = most_splits(growth, rows) else {
            return Ok(None);
        };
        let list = || device.empty(1 + ENTRY as usize * most);
        Ok(Some(Self {
            insert: insert_kernel(profile),
            rank: rank_kernel(profile),
            prune: prune_kernel(profile),
            most: most as u32,
            mask: gain_mask(growth.grow_policy),
            grown: device.empty(nodes.saturating_mul(TREE as usize))?,
            values: device.empty(nodes)?,
            places: device.empty(nodes)?,
            gaps: device.empty(level)?,
            lists: [list()?, list()?],
        }))
    }

    /// Leaves of what is decided about a level, of `nodes` at most, what the tree has room for.
    pub(super) fn admit(
        &mut self,
        device: &Device,
        decisions: &mut Buffer<u32>,
        pairs: &Buffer<u32>,
        state: &Buffer<u32>,
        level: u32,
        nodes: usize,
        stride: u32,
    ) -> Result<()> {
        let [even, odd] = &mut self.lists;
        let (next, list) = match level % 2 {
            0 => (even, odd),
            _ => (odd, even),
        };
        device.launch(
            &self.insert,
            grid(nodes, UNITS as usize)?,
            args![
                &*list,
                &*decisions,
                pairs,
                &self.places,
                state,
                &self.grown,
                &mut self.values,
                &mut self.gaps,
                level,
                stride,
                self.mask,
            ],
        )?;
        device.launch(
            &self.rank,
            grid(self.most as usize + nodes, UNITS as usize)?,
            args![
                &*list,
                &self.gaps,
                state,
                decisions,
                &mut self.places,
                next,
                level,
                self.mask,
                self.most,
            ],
        )
    }

    /// Writes the tree after `levels` levels were split, at least one.
    pub(super) fn prune(
        &mut self,
        device: &Device,
        trees: &mut Buffer<u32>,
        tree: u32,
        levels: u32,
    ) -> Result<()> {
        device.launch(
            &self.prune,
            grid(self.most as usize, UNITS as usize)?,
            args![
                &self.lists[(levels as usize + 1) % 2],
                &self.grown,
                &self.values,
                trees,
                tree,
            ],
        )
    }
}

/// Finds for each node of a level, if it has a split, before which entry of the list it goes; notes
/// the values of all of them as leaves.
#[cube]
fn insert(
    list: &Array<u32>,
    decisions: &Array<u32>,
    pairs: &Array<u32>,
    places: &Array<u32>,
    state: &Array<u32>,
    grown: &Array<u32>,
    values: &mut Array<u32>,
    gaps: &mut Array<u32>,
    level: u32,
    stride: u32,
    mask: u32,
) {
    let node = ABSOLUTE_POS as u32;
    let at = (level * STATE) as usize;
    if node < state[at] {
        let number = state[at + 1usize] + node;
        values[number as usize] = grown[(number * TREE + VALUE) as usize];
        let mut gap = comptime!(NOWHERE).runtime();
        let decision = node * DECISION;
        if decisions[(decision + DECIDED) as usize] != LEAF {
            let gain = decisions[(decision + DECIDED_GAIN) as usize] & mask;
            let mut entries = 0u32;
            gap = 0u32;
            if level != 0u32 {
                entries = list[0];
                let parent = state[at - 1usize] + pairs[(PARENT * stride + node / 2u32) as usize];
                gap = places[parent as usize] + 1u32;
            }
            if mask == 0u32 {
                // No entry is weaker.
                gap = entries;
            }
            let mut looking = gap < entries;
            while looking {
                if list[(gap * ENTRY + STRENGTH) as usize] < gain {
                    looking = false;
                } else {
                    gap += 1u32;
                    looking = gap < entries;
                }
            }
        }
        gaps[node as usize] = gap;
    }
}

/// Makes the next list, of `most` entries at most, of the last one and a level's nodes. Those that
/// find no place in it are not split. A unit for each entry and each node.
#[cube]
fn rank(
    list: &Array<u32>,
    gaps: &Array<u32>,
    state: &Array<u32>,
    decisions: &mut Array<u32>,
    places: &mut Array<u32>,
    next: &mut Array<u32>,
    level: u32,
    mask: u32,
    most: u32,
) {
    let unit = ABSOLUTE_POS as u32;
    let at = (level * STATE) as usize;
    let nodes = state[at];
    let base = state[at + 1usize];
    let mut entries = 0u32;
    if level != 0u32 {
        entries = list[0];
    }
    if unit == 0u32 && entries + nodes == 0u32 {
        next[0] = 0u32;
    }
    if unit < entries + nodes {
        let is_old = unit < entries;
        let node = prim::select_u32(is_old, 0u32, unit - entries);
        let mut gap = gaps[node as usize];
        let mut gain = decisions[(node * DECISION + DECIDED_GAIN) as usize] & mask;
        let mut number = base + node;
        if is_old {
            // It comes after the new ones that go before it.
            gap = unit;
            let entry = (unit * ENTRY) as usize;
            number = list[entry + comptime!(NUMBER as usize)];
            gain = list[entry + comptime!(STRENGTH as usize)];
        }
        let mut place = gap;
        let mut new = 0u32;
        for other in 0..nodes {
            let theirs = gaps[other as usize];
            let split = theirs != NOWHERE;
            let gain_there = decisions[(other * DECISION + DECIDED_GAIN) as usize] & mask;
            let stronger = gain_there > gain || (gain_there == gain && other < node);
            let before = theirs < gap || (theirs == gap && (is_old || stronger));
            place += prim::select_u32(split && before, 1u32, 0u32);
            new += prim::select_u32(split, 1u32, 0u32);
        }
        if unit == 0u32 {
            let all = entries + new;
            next[0] = prim::select_u32(all < most, all, most);
        }
        if gap != NOWHERE {
            if place < most {
                let entry = (place * ENTRY) as usize;
                next[entry + comptime!(NUMBER as usize)] = number;
                next[entry + comptime!(STRENGTH as usize)] = gain;
                places[number as usize] = place;
            } else if !is_old {
                decisions[(node * DECISION + DECIDED) as usize] = LEAF;
            }
        }
    }
}

/// Writes a node of the pruned tree: the `splits`-th split of it in the order of levels, or a leaf.
#[cube]
fn put_node(
    grown: &Array<u32>,
    values: &Array<u32>,
    trees: &mut Array<u32>,
    number: u32,
    to: u32,
    split: bool,
    splits: u32,
) {
    let from = number * TREE;
    trees[(to + LEFT) as usize] = prim::select_u32(split, 2u32 * splits + 1u32, 0u32);
    trees[(to + FEATURE) as usize] =
        prim::select_u32(split, grown[(from + FEATURE) as usize], 0u32);
    trees[(to + TREE_SPLIT) as usize] =
        prim::select_u32(split, grown[(from + TREE_SPLIT) as usize], 0u32);
    // A node that was never split has its value still.
    let mut value = grown[(from + VALUE) as usize];
    if grown[(from + LEFT) as usize] != 0u32 {
        value = values[number as usize];
    }
    trees[(to + VALUE) as usize] = prim::select_u32(split, 0u32, value);
    trees[(to + GAIN) as usize] = prim::select_u32(split, grown[(from + GAIN) as usize], 0u32);
    trees[(to + COVER) as usize] = grown[(from + COVER) as usize];
}

/// Writes the tree of the splits of a list: a unit for each of these writes both its children, and
/// the first unit also the root. In the order of levels, the children of the `i`-th split have the
/// numbers `2 i + 1` and `2 i + 2`.
#[cube]
fn prune(
    list: &Array<u32>,
    grown: &Array<u32>,
    values: &Array<u32>,
    trees: &mut Array<u32>,
    tree: u32,
) {
    let unit = ABSOLUTE_POS as u32;
    let entries = list[0];
    if unit == 0u32 {
        put_node(grown, values, trees, 0u32, tree, entries != 0u32, 0u32);
    }
    if unit < entries {
        let own = list[(unit * ENTRY + NUMBER) as usize];
        let left = grown[(own * TREE + LEFT) as usize];
        let mut before_own = 0u32;
        let mut before_left = 0u32;
        let mut split_left = 0u32;
        let mut split_right = 0u32;
        for other in 0..entries {
            let number = list[(other * ENTRY + NUMBER) as usize];
            before_own += prim::select_u32(number < own, 1u32, 0u32);
            before_left += prim::select_u32(number < left, 1u32, 0u32);
            split_left += prim::select_u32(number == left, 1u32, 0u32);
            split_right += prim::select_u32(number == left + 1u32, 1u32, 0u32);
        }
        let to = tree + (2u32 * before_own + 1u32) * TREE;
        let is_split = split_left != 0u32;
        put_node(grown, values, trees, left, to, is_split, before_left);
        put_node(
            grown,
            values,
            trees,
            left + 1u32,
            to + TREE,
            split_right != 0u32,
            before_left + split_left,
        );
    }
}

pub(super) fn insert_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_insert", profile, (), cube(), |d| {
        let (list, decisions, pairs) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let (places, state, grown) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let (values, gaps) = (d.output::<u32>(), d.output::<u32>());
        let (level, stride, mask) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        insert::expand(
            d.scope(),
            list,
            decisions,
            pairs,
            places,
            state,
            grown,
            values,
            gaps,
            level,
            stride,
            mask,
        );
    })
}

pub(super) fn rank_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_rank", profile, (), cube(), |d| {
        let (list, gaps, state) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let decisions = d.output::<u32>();
        let (places, next) = (d.output::<u32>(), d.output::<u32>());
        let (level, mask, most) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        rank::expand(
            d.scope(),
            list,
            gaps,
            state,
            decisions,
            places,
            next,
            level,
            mask,
            most,
        );
    })
}

pub(super) fn prune_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_prune", profile, (), cube(), |d| {
        let (list, grown, values) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let trees = d.output::<u32>();
        let tree = d.scalar::<u32>();
        prune::expand(d.scope(), list, grown, values, trees, tree);
    })
}
