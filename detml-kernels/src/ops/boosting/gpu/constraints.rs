//! Kernels of constraints: which features a node may be split by, and the bounds of its weights.
//! See [`constraints`](super::super::constraints).

use super::super::bounded::*;
use super::super::constraints::Members;
use super::layout::*;
use super::splits::number;
use crate::device::{Buffer, Device, Kernel, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::grid;
use crate::prim;
use cubecl::prelude::*;
use detml_core::Result;

/// Words of a node's bounds: the lower, then the upper one.
const BOUNDS: u32 = 2;
const INFINITY: u32 = 0x7f80_0000;
const MINUS_INFINITY: u32 = 0xff80_0000;

/// Monotone constraints.
pub(super) struct Bounded {
    bound: Kernel,
    ways: Buffer<u32>,
    /// Of even levels, of odd levels.
    bounds: [Buffer<u32>; 2],
}

impl Bounded {
    /// A level that is split has `most` nodes at most.
    pub(super) fn new(
        device: &Device,
        profile: FloatProfile,
        ways: &[i8],
        most: usize,
    ) -> Result<Self> {
        let ways: Vec<u32> = ways.iter().map(|&way| i32::from(way) as u32).collect();
        let bounds = || device.empty(BOUNDS as usize * most.next_multiple_of(2));
        Ok(Self {
            bound: bound_kernel(profile),
            ways: device.upload(&ways)?,
            bounds: [bounds()?, bounds()?],
        })
    }

    pub(super) fn ways(&self) -> &Buffer<u32> {
        &self.ways
    }

    pub(super) fn of_level(&self, level: u32) -> &Buffer<u32> {
        &self.bounds[level as usize % 2]
    }

    /// Bounds the children of a level of `nodes` nodes at most, which are laid out in the tree, and
    /// moves their values into these bounds.
    pub(super) fn descend(
        &mut self,
        device: &Device,
        trees: &mut Buffer<u32>,
        [decisions, nodes, scales, state]: [&Buffer<u32>; 4],
        [tree, output, level, last]: [u32; 4],
        count: usize,
        rate: f32,
    ) -> Result<()> {
        let [even, odd] = &mut self.bounds;
        let (here, next) = match level % 2 {
            0 => (even, odd),
            _ => (odd, even),
        };
        device.launch(
            &self.bound,
            grid(count, UNITS as usize)?,
            args![
                decisions, nodes, scales, state, &self.ways, &*here, trees, next, tree, output,
                level, last, rate,
            ],
        )
    }
}

/// Interaction constraints.
pub(super) struct Allowed {
    allow: Kernel,
    words: u32,
    members: Buffer<u32>,
    /// The groups of the nodes of even levels, of odd levels.
    groups: [Buffer<u32>; 2],
}

impl Allowed {
    /// A level that is split has `most` nodes at most.
    pub(super) fn new(
        device: &Device,
        profile: FloatProfile,
        members: &Members,
        most: usize,
    ) -> Result<Self> {
        let groups = || device.empty(members.words.saturating_mul(most));
        Ok(Self {
            allow: allow_kernel(profile),
            words: members.words as u32,
            members: device.upload(&members.of)?,
            groups: [groups()?, groups()?],
        })
    }

    /// Leaves in the masks of the nodes `first..first + batch` of a level the features that they
    /// may be split by: of those `from`, or with `drawn` of those that are in the masks already.
    pub(super) fn restrict(
        &mut self,
        device: &Device,
        from: &Buffer<u32>,
        masks: &mut Buffer<u32>,
        pairs: &Buffer<u32>,
        state: &Buffer<u32>,
        [level, first, batch, stride]: [u32; 4],
        drawn: bool,
        features: u32,
    ) -> Result<()> {
        let [even, odd] = &mut self.groups;
        let (here, before) = match level % 2 {
            0 => (even, odd),
            _ => (odd, even),
        };
        device.launch(
            &self.allow,
            grid(batch as usize, 1)?,
            args![
                from,
                pairs,
                state,
                &self.members,
                &*before,
                here,
                masks,
                features,
                self.words,
                level,
                first,
                batch,
                stride,
                u32::from(drawn),
            ],
        )
    }
}

#[cube]
pub(super) fn bounds_of(bounds: &Array<u32>, node: u32, level: u32) -> Bounds {
    let mut low = comptime!(MINUS_INFINITY).runtime();
    let mut high = comptime!(INFINITY).runtime();
    if level != 0u32 {
        low = bounds[(node * BOUNDS) as usize];
        high = bounds[(node * BOUNDS + 1u32) as usize];
    }
    Bounds {
        low: prim::from_bits(low),
        high: prim::from_bits(high),
    }
}

#[cube]
fn put_bounds(bounds: &mut Array<u32>, node: u32, b: &Bounds) {
    bounds[(node * BOUNDS) as usize] = prim::bits(b.low);
    bounds[(node * BOUNDS + 1u32) as usize] = prim::bits(b.high);
}

/// A unit for each node of the level.
#[cube]
fn bound(
    ieee: Ieee,
    decisions: &Array<u32>,
    nodes: &Array<u32>,
    scales: &Array<u32>,
    state: &Array<u32>,
    ways: &Array<u32>,
    bounds: &Array<u32>,
    trees: &mut Array<u32>,
    next: &mut Array<u32>,
    tree: u32,
    output: u32,
    level: u32,
    last: u32,
    rate: f32,
) {
    let node = ABSOLUTE_POS as u32;
    let at = (level * STATE) as usize;
    if node < state[at] {
        let decision = node * DECISION;
        if decisions[(decision + DECIDED) as usize] != LEAF {
            let units = units_of(scales, output);
            let way = prim::as_i32(ways[decisions[(decision + DECIDED_FEATURE) as usize] as usize]);
            let b = bounds_of(bounds, node, level);
            let left_g = g_of(decisions, decision);
            let left_h = h_of(decisions, decision);
            let gl = number(&ieee, left_g);
            let hl = number(&ieee, left_h);
            let gr = number(&ieee, g_of(nodes, node * NODE).sub(left_g));
            let hr = number(&ieee, h_of(nodes, node * NODE).sub(left_h));
            let of_left = weight(&ieee, gl, hl, &units.penalty, &b);
            let of_right = weight(&ieee, gr, hr, &units.penalty, &b);
            let base = state[at + 1usize];
            let child = trees[(tree + (base + node) * TREE + LEFT) as usize];
            let to = tree + child * TREE + VALUE;
            let left = bounded_value(&ieee, of_left, hl, units.sg, units.sh, rate);
            let right = bounded_value(&ieee, of_right, hr, units.sg, units.sh, rate);
            trees[to as usize] = prim::bits(left);
            trees[(to + TREE) as usize] = prim::bits(right);
            if last == 0u32 {
                let own = child - state[at + 3usize];
                let below = bounds_below(&ieee, &b, of_left, of_right, way, false);
                put_bounds(next, own, &below);
                let below = bounds_below(&ieee, &b, of_left, of_right, way, true);
                put_bounds(next, own + 1u32, &below);
            }
        }
    }
}

/// A cube for each node: its groups are those of its parent that hold the feature of the parent's
/// split.
#[cube]
fn allow(
    from: &Array<u32>,
    pairs: &Array<u32>,
    state: &Array<u32>,
    members: &Array<u32>,
    before: &Array<u32>,
    groups: &mut Array<u32>,
    masks: &mut Array<u32>,
    features: u32,
    words: u32,
    level: u32,
    first: u32,
    batch: u32,
    stride: u32,
    drawn: u32,
) {
    let slot = CUBE_POS as u32;
    let node = first + slot;
    if slot < batch && node < state[(level * STATE) as usize] {
        let mut parent = 0u32;
        let mut path = 0u32;
        if level != 0u32 {
            parent = pairs[(PARENT * stride + node / 2u32) as usize] * words;
            path = pairs[(PAIR_FEATURE * stride + node / 2u32) as usize] * words;
        }
        for step in 0..words.div_ceil(UNITS) {
            let word = step * UNITS + UNIT_POS;
            if word < words {
                let mut own = u32::MAX.runtime();
                if level != 0u32 {
                    own = before[(parent + word) as usize] & members[(path + word) as usize];
                }
                groups[(node * words + word) as usize] = own;
            }
        }
        for step in 0..features.div_ceil(UNITS) {
            let feature = step * UNITS + UNIT_POS;
            if feature < features {
                let at = (slot * features + feature) as usize;
                let mut there = from[feature as usize];
                if drawn != 0u32 {
                    there = masks[at];
                }
                let mut shared = 0u32;
                for word in 0..words {
                    let mut own = u32::MAX.runtime();
                    if level != 0u32 {
                        own = before[(parent + word) as usize] & members[(path + word) as usize];
                    }
                    shared |= own & members[(feature * words + word) as usize];
                }
                let stays = there != 0u32 && shared != 0u32;
                masks[at] = prim::select_u32(stays, 1u32, 0u32);
            }
        }
    }
}

pub(super) fn bound_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_bound", profile, (), cube(), |d| {
        let ieee = d.ieee();
        let (decisions, nodes, scales) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let (state, ways, bounds) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let (trees, next) = (d.output::<u32>(), d.output::<u32>());
        let (tree, output) = (d.scalar::<u32>(), d.scalar::<u32>());
        let (level, last) = (d.scalar::<u32>(), d.scalar::<u32>());
        let rate = d.scalar::<f32>();
        bound::expand(
            d.scope(),
            ieee,
            decisions,
            nodes,
            scales,
            state,
            ways,
            bounds,
            trees,
            next,
            tree,
            output,
            level,
            last,
            rate,
        );
    })
}

pub(super) fn allow_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_allow", profile, (), cube(), |d| {
        let (from, pairs, state) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let (members, before) = (d.input::<u32>(), d.input::<u32>());
        let (groups, masks) = (d.output::<u32>(), d.output::<u32>());
        let (features, words, level) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        let (first, batch) = (d.scalar::<u32>(), d.scalar::<u32>());
        let (stride, drawn) = (d.scalar::<u32>(), d.scalar::<u32>());
        allow::expand(
            d.scope(),
            from,
            pairs,
            state,
            members,
            before,
            groups,
            masks,
            features,
            words,
            level,
            first,
            batch,
            stride,
            drawn,
        );
    })
}
