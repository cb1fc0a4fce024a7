//! Kernels that renew leaves: an exact selection by digits.
//!
//! The key of a leaf's quantile is found eight bits at a time, the highest ones first. Each pass
//! adds the weights of the rows whose keys begin as the key found so far, by their next digit, and
//! picks the digit at which the leaf's wanted weight is reached. The sums are integers, so neither
//! rows nor cubes nor batches of leaves show in them.

use super::super::renewal::{Renewal, renewed, residual_key, wanted};
use super::super::sampling::Rows;
use super::super::{Loss, Table};
use super::layout::*;
use super::splits::prefix;
use crate::device::{Buffer, Device, Kernel, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::grid;
use crate::prim;
use crate::random::Philox;
use crate::wide::I64;
use cubecl::prelude::*;
use detml_core::Result;

/// Digits of a key, and words of a node's histogram: a sum of two words for each value of a digit.
const DIGITS: u32 = 4;
const HISTOGRAM: u32 = 2 * UNITS;
/// Words of a node's search: the part of the key that is found, then the weight that is wanted.
const FOUND: u32 = 0;
const WANTED_HIGH: u32 = 1;
const WANTED_LOW: u32 = 2;
const SEARCH: u32 = 3;
/// The leaf of a row that was not drawn.
const IDLE: u32 = u32::MAX;

/// The leaf and the residual's key of each row.
#[cube]
fn locate(
    ieee: Ieee,
    codes: &Array<u32>,
    trees: &Array<u32>,
    margins: &Array<f32>,
    targets: &Array<f32>,
    leaves: &mut Array<u32>,
    keys: &mut Array<u32>,
    n: u32,
    tree: u32,
    draws: Philox,
    limit: u32,
    #[comptime] sampled: bool,
) {
    let row = CUBE_POS as u32 * UNITS + UNIT_POS;
    if row < n {
        let mut holds = true;
        if comptime!(sampled) {
            holds = draws.word(row, 0u32) < limit;
        }
        let mut node = 0u32;
        let mut left = trees[(tree + LEFT) as usize];
        while left != 0u32 {
            let at = tree + node * TREE;
            let code = code_of(codes, n, row, trees[(at + FEATURE) as usize]);
            let right = !goes_left(code, trees[(at + TREE_SPLIT) as usize]);
            node = left + prim::select_u32(right, 1u32, 0u32);
            left = trees[(tree + node * TREE + LEFT) as usize];
        }
        leaves[row as usize] = prim::select_u32(holds, node, IDLE);
        keys[row as usize] = residual_key(&ieee, margins[row as usize], targets[row as usize]);
    }
}

/// Adds the weights of the rows in leaves `first..first + batch` whose keys begin as those leaves'
/// searches have found, by their digit `pass`.
#[cube]
fn weigh(
    leaves: &Array<u32>,
    keys: &Array<u32>,
    weights: &Array<u32>,
    searches: &Array<u32>,
    histograms: &mut Array<Atomic<u32>>,
    n: u32,
    first: u32,
    batch: u32,
    pass: u32,
) {
    let row = CUBE_POS as u32 * UNITS + UNIT_POS;
    if row < n {
        let leaf = leaves[row as usize];
        if leaf >= first && leaf < first + batch {
            let own = leaf - first;
            let key = keys[row as usize];
            let down = 24u32 - 8u32 * pass;
            // Digits before this one; a shift by 32 would be undefined.
            let begins = (key >> down) >> 8u32;
            let found = searches[(own * SEARCH + FOUND) as usize];
            if pass == 0u32 || begins == found {
                let digit = (key >> down) & 255u32;
                let at = own * HISTOGRAM + 2u32 * digit;
                let weight = I64::from_u32(weights[row as usize]);
                add_wide(histograms, at, at + 1u32, weight);
            }
        }
    }
}

/// Picks the digit of each node `first..first + batch`, a cube a node, and zeroes its histogram;
/// after the last digit gives a leaf its value.
#[cube]
fn pick(
    ieee: Ieee,
    histograms: &mut Array<u32>,
    searches: &mut Array<u32>,
    status: &Array<u32>,
    trees: &mut Array<u32>,
    tree: u32,
    first: u32,
    batch: u32,
    pass: u32,
    share: u32,
    rate: f32,
) {
    let mut high = SharedMemory::<u32>::new(comptime!(UNITS as usize));
    let mut low = SharedMemory::<u32>::new(comptime!(UNITS as usize));
    let own = CUBE_POS as u32;
    if own < batch {
        let at = (own * HISTOGRAM + 2u32 * UNIT_POS) as usize;
        let weight = I64::new(histograms[at], histograms[at + 1usize]);
        histograms[at] = 0u32;
        histograms[at + 1usize] = 0u32;
        let upto = prefix(weight, &mut high, &mut low);
        let last = comptime!(UNITS as usize - 1);
        let total = I64::new(high[last], low[last]);
        let search = own * SEARCH;
        let found = searches[(search + FOUND) as usize];
        let before = I64::new(
            searches[(search + WANTED_HIGH) as usize],
            searches[(search + WANTED_LOW) as usize],
        );
        let goal = wanted(total, share).select(pass == 0u32, before);
        let rest = goal.sub(upto.sub(weight));
        // The first digit that reaches the goal: some weight lies below it and some in it.
        let mine = goal.less_or_equal(upto) && upto.sub(weight).less(goal);
        sync_cube();
        if mine {
            let key = prim::select_u32(pass == 0u32, 0u32, found << 8u32) | UNIT_POS;
            searches[(search + FOUND) as usize] = key;
            searches[(search + WANTED_HIGH) as usize] = rest.hi;
            searches[(search + WANTED_LOW) as usize] = rest.lo;
            if pass == comptime!(DIGITS - 1) && status[0] == FINE {
                let node = tree + (first + own) * TREE;
                trees[(node + VALUE) as usize] = prim::bits(renewed(&ieee, key, rate));
            }
        }
    }
}

/// Gives the leaves of a tree the value 0: the value of one that has no row.
#[cube]
fn reset(trees: &mut Array<u32>, tree: u32, nodes: u32) {
    let node = CUBE_POS as u32 * UNITS + UNIT_POS;
    if node < nodes {
        trees[(tree + node * TREE + VALUE) as usize] = 0u32;
    }
}

struct Kernels {
    locate: Kernel,
    weigh: Kernel,
    pick: Kernel,
    reset: Kernel,
}

/// What the renewal of leaves needs on the device.
pub(super) struct Renewing {
    kernels: [Kernels; 2],
    share: u32,
    rate: f32,
    /// Nodes of a tree at most, and of a batch.
    nodes: usize,
    batch: usize,
    rows: usize,
    weights: Buffer<u32>,
    leaves: Buffer<u32>,
    keys: Buffer<u32>,
    histograms: Buffer<u32>,
    searches: Buffer<u32>,
}

impl Renewing {
    /// `None` if the loss doesn't ask for it.
    pub(super) fn new(
        device: &Device,
        loss: Loss,
        train: &Table,
        rate: f32,
        nodes: usize,
        batch: usize,
    ) -> Result<Option<Self>> {
        let weights = train.weights.as_deref();
        let Some(renewal) = Renewal::new(loss, &train.targets, weights, rate) else {
            return Ok(None);
        };
        let (profile, rows) = (device.profile()?, train.targets.len());
        let batch = batch.clamp(1, nodes.max(1));
        Ok(Some(Self {
            kernels: [false, true].map(|sampled| Kernels::new(profile, sampled)),
            share: renewal.share,
            rate,
            nodes,
            batch,
            rows,
            weights: device.upload_vec(renewal.weights)?,
            leaves: device.empty(rows)?,
            keys: device.empty(rows)?,
            histograms: device.upload_vec(vec![0; batch * HISTOGRAM as usize])?,
            searches: device.upload_vec(vec![0; batch * SEARCH as usize])?,
        }))
    }

    /// Gives the leaves of the tree at word `tree` their values; a round that has failed keeps
    /// what it has.
    pub(super) fn renew(
        &mut self,
        device: &Device,
        codes: &Buffer<u32>,
        margins: &Buffer<f32>,
        targets: &Buffer<f32>,
        status: &Buffer<u32>,
        trees: &mut Buffer<u32>,
        tree: u32,
        sample: Option<Rows>,
    ) -> Result<()> {
        let kernels = &self.kernels[usize::from(sample.is_some())];
        let (words, limit) = sample.map_or(([0; 3], 0), |rows| rows.words());
        let n = self.rows as u32;
        let over_rows = grid(self.rows, UNITS as usize)?;
        device.launch(
            &kernels.reset,
            grid(self.nodes, UNITS as usize)?,
            args![&mut *trees, tree, self.nodes as u32],
        )?;
        device.launch(
            &kernels.locate,
            over_rows,
            args![
                codes,
                &*trees,
                margins,
                targets,
                &mut self.leaves,
                &mut self.keys,
                n,
                tree,
                words[0],
                words[1],
                words[2],
                limit,
            ],
        )?;
        for first in (0..self.nodes).step_by(self.batch) {
            let batch = self.batch.min(self.nodes - first);
            for pass in 0..DIGITS {
                device.launch(
                    &kernels.weigh,
                    over_rows,
                    args![
                        &self.leaves,
                        &self.keys,
                        &self.weights,
                        &self.searches,
                        &mut self.histograms,
                        n,
                        first as u32,
                        batch as u32,
                        pass,
                    ],
                )?;
                device.launch(
                    &kernels.pick,
                    grid(batch, 1)?,
                    args![
                        &mut self.histograms,
                        &mut self.searches,
                        status,
                        &mut *trees,
                        tree,
                        first as u32,
                        batch as u32,
                        pass,
                        self.share,
                        self.rate,
                    ],
                )?;
            }
        }
        Ok(())
    }
}

impl Kernels {
    fn new(profile: FloatProfile, sampled: bool) -> Self {
        Self {
            locate: locate_kernel(profile, sampled),
            weigh: weigh_kernel(profile),
            pick: pick_kernel(profile),
            reset: reset_kernel(profile),
        }
    }
}

pub(super) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    vec![
        locate_kernel(profile, false),
        locate_kernel(profile, true),
        weigh_kernel(profile),
        pick_kernel(profile),
        reset_kernel(profile),
    ]
}

fn locate_kernel(profile: FloatProfile, sampled: bool) -> Kernel {
    Kernel::new("boosting_locate", profile, sampled, cube(), move |d| {
        let ieee = d.ieee();
        let (codes, trees) = (d.input::<u32>(), d.input::<u32>());
        let (margins, targets) = (d.input::<f32>(), d.input::<f32>());
        let (leaves, keys) = (d.output::<u32>(), d.output::<u32>());
        let (n, tree) = (d.scalar::<u32>(), d.scalar::<u32>());
        let words = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        let limit = d.scalar::<u32>();
        let draws = Philox::__expand_from_words(d.scope(), words.0, words.1, words.2);
        locate::expand(
            d.scope(),
            ieee,
            codes,
            trees,
            margins,
            targets,
            leaves,
            keys,
            n,
            tree,
            draws,
            limit,
            sampled,
        );
    })
}

fn weigh_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_weigh", profile, (), cube(), |d| {
        let (leaves, keys) = (d.input::<u32>(), d.input::<u32>());
        let (weights, searches) = (d.input::<u32>(), d.input::<u32>());
        let histograms = d.output::<Atomic<u32>>();
        let (n, first) = (d.scalar::<u32>(), d.scalar::<u32>());
        let (batch, pass) = (d.scalar::<u32>(), d.scalar::<u32>());
        weigh::expand(
            d.scope(),
            leaves,
            keys,
            weights,
            searches,
            histograms,
            n,
            first,
            batch,
            pass,
        );
    })
}

fn pick_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_pick", profile, (), cube(), |d| {
        let ieee = d.ieee();
        let (histograms, searches) = (d.output::<u32>(), d.output::<u32>());
        let status = d.input::<u32>();
        let trees = d.output::<u32>();
        let (tree, first) = (d.scalar::<u32>(), d.scalar::<u32>());
        let (batch, pass) = (d.scalar::<u32>(), d.scalar::<u32>());
        let (share, rate) = (d.scalar::<u32>(), d.scalar::<f32>());
        pick::expand(
            d.scope(),
            ieee,
            histograms,
            searches,
            status,
            trees,
            tree,
            first,
            batch,
            pass,
            share,
            rate,
        );
    })
}

fn reset_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_reset", profile, (), cube(), |d| {
        let trees = d.output::<u32>();
        let (tree, nodes) = (d.scalar::<u32>(), d.scalar::<u32>());
        reset::expand(d.scope(), trees, tree, nodes);
    })
}
