//! The tuned host path: rows in blocks, histograms in cache, siblings by subtraction.
//!
//! Rows are cut into blocks once and for all. A block keeps for each node of the level a segment
//! of its row list, so partitioning needs no agreement between threads. Histograms are built for
//! the smaller child of each pair, one group of features at a time, small enough for the first
//! level cache; the sibling comes by subtraction from the parent's, and both are scanned for
//! splits at once while they are hot. All of this is schedule: sums are exact (see
//! [the contract](super)), so neither blocks, groups nor threads show in a bit.

mod block;
mod histogram;
mod scan;
mod symmetric;

use super::arith::*;
use super::bounded::{
    Bounds, bounded_score, bounded_value, bounds_below, weight as bounded_weight,
};
use super::constraints::Members;
use super::guide::Guide;
use super::renewal::{Renewal, leaf_index};
use super::sampling::{Columns, Rows};
use super::*;
use crate::device::{Loop, Simd};
use crate::ieee::Ieee;
use block::{Block, Divide};
use histogram::{Entry, Group, Histogram, Scratch};
use rayon::prelude::*;
use scan::{Best, Free, Prefix, Within};

/// Sums of gradients and Hessians over the rows of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    g: i64,
    h: i64,
}

impl std::ops::Add for Sums {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self {
            g: self.g + other.g,
            h: self.h + other.h,
        }
    }
}

impl std::ops::Sub for Sums {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self {
            g: self.g - other.g,
            h: self.h - other.h,
        }
    }
}

/// What one tree's sums are measured in, and the regularisation in the same units.
#[derive(Clone, Copy, Debug)]
struct Units {
    sg: i32,
    sh: i32,
    penalty: Penalty,
}

/// An eval set with the margins so far.
struct Followed {
    bins: Bins,
    margins: Vec<f32>,
}

pub(super) struct Cpu {
    simd: Simd,
    loss: Loss,
    growth: Growth,
    bins: Bins,
    blocks: Vec<Block>,
    evals: Vec<Followed>,
    pool: histogram::Pool,
    rounds: u32,
    trees: Vec<Tree>,
    /// The largest gradient and Hessian of each output, as bits.
    largest: Vec<[u32; 2]>,
    /// The ways of features under monotone constraints.
    ways: Option<Vec<i8>>,
    /// The groups of features under interaction constraints.
    members: Option<Members>,
    /// Feature groups for trees that draw from all features.
    groups: Vec<Group>,
    /// With it trees grow at a learning rate of 0, so that their leaves leave margins as they are.
    renewal: Option<Renewal>,
}

/// One node to build and perhaps its sibling to subtract.
struct Plan {
    build: usize,
    /// Whether splits of the node that is built are looked for, too.
    scan: bool,
    /// Room for the histogram of the node that is built.
    kept: Option<Histogram>,
    sibling: Option<usize>,
    /// The parent's histogram, which becomes the sibling's.
    parent: Option<Histogram>,
}

/// One group's part of a plan.
struct Task<'a> {
    group: &'a Group,
    build: usize,
    scan: bool,
    kept: Option<&'a mut [Entry]>,
    sibling: Option<usize>,
    parent: Option<&'a mut [Entry]>,
    best: [Option<Best>; 2],
}

/// The best over all groups. They come in the order of their features: the earlier wins a tie.
fn best_of(groups: impl Iterator<Item = Option<Best>>) -> Option<Best> {
    groups.flatten().reduce(|best, other| {
        if other.score > best.score {
            other
        } else {
            best
        }
    })
}

/// Takes the first `n` entries off.
fn split_off<'a>(rest: &mut &'a mut [Entry], n: usize) -> &'a mut [Entry] {
    let (first, others) = std::mem::take(rest).split_at_mut(n);
    *rest = others;
    first
}

struct Build<'a> {
    bins: &'a Bins,
    node: usize,
    group: &'a Group,
    blocks: &'a [Block],
    scratch: &'a mut Scratch,
}

impl Loop for Build<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self, _: Ieee) {
        for block in self.blocks {
            block.add_to(
                self.node,
                self.group,
                &self.bins.codes,
                self.bins.features(),
                self.scratch,
            );
        }
    }
}

/// Reads a group's histograms out of the room where they were built, leaving it zeroed, makes the
/// sibling's, and looks for splits in both.
struct FindSplits<'a, 'b> {
    task: &'a mut Task<'b>,
    nodes: &'a [Active],
    allowed: &'a [Option<Vec<u32>>],
    ways: Option<&'a [i8]>,
    units: &'a Units,
    scratch: &'a mut Scratch,
}

impl Loop for FindSplits<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Self {
            task,
            nodes,
            allowed,
            ways,
            units,
            scratch,
        } = self;
        let mut prefix = Prefix::new();
        let mut sibling_prefix = Prefix::new();
        let mut at = 0;
        for (k, (&feature, &count)) in task
            .group
            .features
            .iter()
            .zip(&task.group.counts)
            .enumerate()
        {
            let count = usize::from(count);
            let built = &mut scratch[k];
            let missing = Sums::from(std::mem::take(&mut built[usize::from(MISSING)]));
            let built = &mut built[..count];
            if let Some(kept) = &mut task.kept {
                kept[at..at + count].copy_from_slice(built);
                kept[at + count] = missing.into();
            }
            let wanted = |node: usize| {
                allowed[node]
                    .as_ref()
                    .is_none_or(|allowed| allowed.binary_search(&feature).is_ok())
            };
            if let (Some(sibling), Some(parent)) = (task.sibling, &mut task.parent) {
                let parent = &mut parent[at..=at + count];
                let mut upto = Sums::default();
                for (bin, (parent, built)) in parent.iter_mut().zip(&*built).enumerate() {
                    let sums = Sums::from(*parent) - Sums::from(*built);
                    *parent = sums.into();
                    upto = upto + sums;
                    sibling_prefix.set(bin, upto);
                }
                let missing = Sums::from(parent[count]) - missing;
                parent[count] = missing.into();
                if wanted(sibling) {
                    better(
                        &ieee,
                        ways,
                        &nodes[sibling],
                        &mut task.best[1],
                        feature,
                        &mut sibling_prefix,
                        count,
                        missing,
                        units,
                    );
                }
            }
            let mut upto = Sums::default();
            for (bin, built) in built.iter_mut().enumerate() {
                upto = upto + Sums::from(std::mem::take(built));
                prefix.set(bin, upto);
            }
            if task.scan && wanted(task.build) {
                better(
                    &ieee,
                    ways,
                    &nodes[task.build],
                    &mut task.best[0],
                    feature,
                    &mut prefix,
                    count,
                    missing,
                    units,
                );
            }
            at += count + 1;
        }
    }
}

#[inline(always)]
fn better(
    ieee: &Ieee,
    ways: Option<&[i8]>,
    node: &Active,
    best: &mut Option<Best>,
    feature: u32,
    prefix: &mut Prefix,
    count: usize,
    missing: Sums,
    units: &Units,
) {
    let whole = node.sums;
    match ways {
        None => scan::better(
            ieee, &Free, best, feature, prefix, count, missing, whole, units,
        ),
        Some(ways) => {
            let rule = Within {
                bounds: node.bounds,
                way: ways[feature as usize],
            };
            scan::better(
                ieee, &rule, best, feature, prefix, count, missing, whole, units,
            );
        }
    }
}

/// A node of the level in hand.
struct Active {
    /// Its index in the tree.
    node: usize,
    place: u64,
    sums: Sums,
    /// Of its weights, under monotone constraints.
    bounds: Bounds,
    /// Those that hold its path, under interaction constraints.
    groups: Vec<u32>,
    rows: usize,
    histogram: Option<Histogram>,
    best: Option<Best>,
}

impl Cpu {
    pub(super) fn new(
        simd: Simd,
        train: Table,
        evals: Vec<Table>,
        loss: Loss,
        base: &[f32],
        growth: Growth,
        constraints: &Constraints,
    ) -> Self {
        let n = train.bins.rows;
        // At most 2^16 rows, so that a block's rows have 16-bit numbers; enough blocks for all
        // threads, but not so small that the segments of deep nodes vanish.
        let threads = rayon::current_num_threads();
        let size = n.div_ceil(4 * threads).clamp(4096, 1 << 16);
        let count = n.div_ceil(size).max(1);
        let size = n.div_ceil(count);
        let blocks: Vec<Block> = (0..count)
            .into_par_iter()
            .map(|i| {
                let first = (i * size).min(n);
                Block::new(&train, first, (first + size).min(n) - first, base)
            })
            .collect();
        let evals = evals
            .into_iter()
            .map(|table| Followed {
                margins: base
                    .iter()
                    .flat_map(|&b| std::iter::repeat_n(b, table.bins.rows))
                    .collect(),
                bins: table.bins,
            })
            .collect();
        let rate = growth.learning_rate;
        let renewal = Renewal::new(loss, &train.targets, train.weights.as_deref(), rate);
        let growth = match renewal {
            Some(_) => Growth {
                learning_rate: 0.0,
                ..growth
            },
            None => growth,
        };
        let all: Vec<u32> = (0..train.bins.features() as u32).collect();
        let groups = histogram::groups(&all, &train.bins.counts);
        let mut cpu = Self {
            simd,
            loss,
            growth,
            renewal,
            ways: constraints.ways().map(<[i8]>::to_vec),
            members: constraints.members(train.bins.features()),
            groups,
            pool: histogram::Pool::new(&train.bins.counts),
            bins: train.bins,
            blocks,
            evals,
            rounds: 0,
            trees: Vec::new(),
            largest: Vec::new(),
        };
        cpu.largest = cpu.gradients();
        cpu
    }

    pub(super) fn margins(&self) -> Vec<f32> {
        let n = self.bins.rows;
        let mut all = vec![0.0; n * self.loss.outputs()];
        for block in &self.blocks {
            for (output, margins) in block.margins().enumerate() {
                all[output * n + block.first..][..margins.len()].copy_from_slice(margins);
            }
        }
        all
    }

    pub(super) fn eval_margins(&self, set: usize) -> &[f32] {
        &self.evals[set].margins
    }

    pub(super) fn take_trees(&mut self) -> Vec<Tree> {
        std::mem::take(&mut self.trees)
    }

    pub(super) fn round(&mut self) -> Result<()> {
        let outputs = self.loss.outputs();
        for (output, largest) in self.largest.iter().enumerate() {
            if largest.iter().any(|&bits| bits >= 0x7f80_0000) {
                return Err(self.blown_up(output));
            }
        }
        let largest = std::mem::take(&mut self.largest);
        for (output, largest) in largest.into_iter().enumerate() {
            let last = output + 1 == outputs && self.renewal.is_none();
            let mut tree = self.grow(output, largest, last);
            self.renew(&mut tree);
            self.follow(&tree, output);
            self.trees.push(tree);
        }
        if self.renewal.is_some() {
            self.largest = self.gradients();
        }
        self.rounds += 1;
        Ok(())
    }

    fn blown_up(&self, output: usize) -> Error {
        let found = self
            .blocks
            .iter()
            .find_map(|block| block.not_finite(output));
        let (row, got) = found.unwrap_or((0, f32::NAN));
        not_finite(self.rounds, row, output, got)
    }

    /// Takes the gradients of the next round.
    pub(super) fn give(&mut self, g: &[f32], h: &[f32]) {
        self.blocks
            .par_iter_mut()
            .for_each(|block| block.give(g, h));
        self.largest = self.largest_gradients();
    }

    /// Where the loss asks for it, gives a tree's leaves the quantiles of the residuals and adds
    /// them to the training margins.
    fn renew(&mut self, tree: &mut Tree) {
        let Some(renewal) = &self.renewal else {
            return;
        };
        let (bins, sample) = (&self.bins, Rows::new(&self.growth, self.rounds));
        let leaves: Vec<u32> = (0..bins.rows)
            .into_par_iter()
            .with_min_len(4096)
            .map(|row| leaf_index(tree, bins, row))
            .collect();
        let residuals: Vec<Vec<u32>> = self
            .blocks
            .par_iter()
            .map(|block| block.residuals())
            .collect();
        renewal.renew(tree, &leaves, &residuals.concat(), |row| {
            sample.is_none_or(|sample| sample.holds(row))
        });
        self.blocks
            .par_iter_mut()
            .for_each(|block| block.add_leaves(&leaves, tree));
    }

    /// Gradients of all outputs at the current margins; their largest magnitudes.
    fn gradients(&mut self) -> Vec<[u32; 2]> {
        let (simd, loss) = (self.simd, self.loss);
        self.blocks
            .par_iter_mut()
            .for_each(|block| block.gradients(simd, loss));
        self.largest_gradients()
    }

    fn largest_gradients(&self) -> Vec<[u32; 2]> {
        (0..self.loss.outputs())
            .map(|output| {
                self.blocks.iter().fold([0, 0], |[g, h], block| {
                    let largest = block.largest(output);
                    [g.max(largest[0]), h.max(largest[1])]
                })
            })
            .collect()
    }

    fn units(&self, largest: [u32; 2]) -> Units {
        let ieee = &Ieee::PLAIN;
        let (sg, sh) = (shift_of(ieee, largest[0]), shift_of(ieee, largest[1]));
        let penalty = Penalty {
            lambda: self.growth.lambda,
            alpha: self.growth.alpha,
            gamma: self.growth.gamma,
            min_weight: self.growth.min_child_weight,
        };
        Units {
            sg,
            sh,
            penalty: scale_penalty(ieee, &penalty, sg, sh),
        }
    }

    /// Grows the tree of one output and adds it to the training margins; with `last`, goes on to
    /// the gradients of the next round.
    fn grow(&mut self, output: usize, largest: [u32; 2], last: bool) -> Tree {
        let ieee = &Ieee::PLAIN;
        let units = self.units(largest);
        let (simd, loss, growth) = (self.simd, self.loss, self.growth);
        let sample = Rows::new(&growth, self.rounds);
        let number = self
            .rounds
            .wrapping_mul(loss.outputs() as u32)
            .wrapping_add(output as u32);
        let columns = Columns::new(&growth, self.bins.features(), number);
        let drawn;
        let groups: &[Group] = if columns.of_tree().len() == self.bins.features() {
            &self.groups
        } else {
            drawn = histogram::groups(columns.of_tree(), &self.bins.counts);
            &drawn
        };
        self.blocks
            .par_iter_mut()
            .for_each(|block| block.start_tree(simd, output, units.sg, units.sh, sample));
        let sums = self
            .blocks
            .iter()
            .fold(Sums::default(), |sums, block| sums + block.sums());
        let rows = self.blocks.iter().map(|block| block.segment(0).len()).sum();
        let leaf = |sums: Sums| {
            let (g, h) = (unit(ieee, sums.g as f32), unit(ieee, sums.h as f32));
            Node {
                value: leaf_value(
                    ieee,
                    g,
                    h,
                    &units.penalty,
                    units.sg,
                    units.sh,
                    growth.learning_rate,
                ),
                cover: true_weight(ieee, h, units.sh),
                ..Node::LEAF
            }
        };
        let mut nodes = vec![leaf(sums)];
        let mut level = vec![Active {
            node: 0,
            place: 1,
            sums,
            bounds: Bounds::ALL,
            groups: self.members.as_ref().map_or(Vec::new(), Members::all),
            rows,
            histogram: None,
            best: None,
        }];
        let mut parents: Vec<Option<Histogram>> = Vec::new();
        let bounded = self.ways.is_some();
        let mut guide = Guide::new(&growth, self.bins.rows);
        // With a guide: the values of all nodes, should they be leaves.
        let mut values = Vec::new();
        let mut depth = 0;
        loop {
            let shared = match growth.symmetric() && depth < growth.max_depth {
                true => self.find_symmetric(&mut level, groups, &columns, &units),
                false => None,
            };
            if depth < growth.max_depth && !growth.symmetric() {
                // The level below the deepest split needs no histograms of its own.
                let keep = depth + 1 < growth.max_depth;
                self.find_splits(&mut level, &mut parents, keep, groups, &columns, &units);
            }
            // Decide, and lay out the children.
            let mut next = Vec::new();
            let mut divides = Vec::with_capacity(level.len());
            let decide = |active: &Active| {
                let best = active.best?;
                let (g, h) = (
                    unit(ieee, active.sums.g as f32),
                    unit(ieee, active.sums.h as f32),
                );
                let own = match bounded {
                    false => score(ieee, g, h, &units.penalty),
                    true => bounded_score(ieee, g, h, &units.penalty, &active.bounds),
                };
                let gain = gain(ieee, best.score, own);
                accept(ieee, gain, own.abs(), &units.penalty)
                    .then(|| (best, true_gain(ieee, gain, units.sg, units.sh)))
            };
            let mut decided: Vec<Option<(Best, f32)>> = match (growth.symmetric(), shared) {
                (false, _) => level.iter().map(decide).collect(),
                (true, Some(shared)) => shared.into_iter().map(Some).collect(),
                (true, None) => vec![None; level.len()],
            };
            if let Some(guide) = &mut guide {
                let first = nodes.len() - level.len();
                values.extend(nodes[first..].iter().map(|node| node.value));
                let gains: Vec<_> = decided.iter().map(|of| of.map(|(_, gain)| gain)).collect();
                for (decided, admitted) in decided.iter_mut().zip(guide.admit(first, &gains)) {
                    *decided = decided.filter(|_| admitted);
                }
            }
            for (active, decided) in level.iter_mut().zip(decided) {
                let histogram = active.histogram.take();
                let Some((best, gain)) = decided else {
                    divides.push(match &guide {
                        None => Divide::Leaf(nodes[active.node].value),
                        Some(_) => Divide::End(active.node as u32),
                    });
                    if let Some(histogram) = histogram {
                        self.pool.put(histogram);
                    }
                    continue;
                };
                let left = nodes.len();
                let node = &mut nodes[active.node];
                node.left = left as u32;
                node.feature = best.feature;
                node.bin = best.bin;
                node.missing_left = best.missing_left;
                node.value = 0.0;
                node.gain = gain;
                let sides = [best.left, active.sums - best.left];
                let groups = match &self.members {
                    None => Vec::new(),
                    Some(members) => members.below(&active.groups, best.feature),
                };
                let way = self.ways.as_ref().map(|ways| ways[best.feature as usize]);
                let limits = way.map(|way| (way, self.weights(sides, &active.bounds, &units)));
                for (side, sums) in sides.into_iter().enumerate() {
                    let mut bounds = active.bounds;
                    let mut leaf = leaf(sums);
                    if let Some((way, weights)) = limits {
                        let [l, r] = weights;
                        bounds = bounds_below(ieee, &bounds, l, r, way.into(), side == 1);
                        let (h, rate) = (unit(ieee, sums.h as f32), growth.learning_rate);
                        let (sg, sh) = (units.sg, units.sh);
                        leaf.value = bounded_value(ieee, weights[side], h, sg, sh, rate);
                    }
                    next.push(Active {
                        node: left + side,
                        place: 2 * active.place + side as u64,
                        sums,
                        bounds,
                        groups: groups.clone(),
                        rows: 0,
                        histogram: None,
                        best: None,
                    });
                    nodes.push(leaf);
                }
                divides.push(Divide::Split {
                    feature: best.feature as usize,
                    bin: best.bin,
                    missing_left: best.missing_left,
                    left: left as u32,
                    values: [nodes[left].value, nodes[left + 1].value],
                });
                parents.push(histogram);
            }
            depth += 1;
            let done = next.is_empty() || depth == growth.max_depth;
            if done {
                for histogram in parents.drain(..) {
                    self.pool.put_all(histogram);
                }
                let (tree, ends) = match &guide {
                    None => (Tree { nodes }, Vec::new()),
                    Some(guide) => {
                        let known = values.len();
                        values.extend(nodes[known..].iter().map(|node| node.value));
                        guide.prune(&nodes, &values)
                    }
                };
                let bins = &self.bins;
                self.blocks.par_iter_mut().for_each(|block| {
                    block.finish(output, &divides, &ends, &tree, bins);
                    if last {
                        block.gradients(simd, loss);
                    }
                });
                if last {
                    self.largest = self.largest_gradients();
                }
                return tree;
            }
            self.blocks
                .par_iter_mut()
                .for_each(|block| block.partition(output, &divides));
            for (i, active) in next.iter_mut().enumerate() {
                active.rows = self.blocks.iter().map(|block| block.segment(i).len()).sum();
            }
            level = next;
        }
    }

    /// The weights of both sides of a split of a node of these bounds.
    fn weights(&self, sides: [Sums; 2], bounds: &Bounds, units: &Units) -> [f32; 2] {
        let ieee = &Ieee::PLAIN;
        sides.map(|sums| {
            let (g, h) = (unit(ieee, sums.g as f32), unit(ieee, sums.h as f32));
            bounded_weight(ieee, g, h, &units.penalty, bounds)
        })
    }

    /// Finds the best split of every node of a level: of the root alone, or of pairs of siblings
    /// with their parents' histograms. With `keep` the nodes get theirs.
    fn find_splits(
        &self,
        level: &mut [Active],
        parents: &mut Vec<Option<Histogram>>,
        keep: bool,
        groups: &[Group],
        columns: &Columns,
        units: &Units,
    ) {
        let mut plans = self.plan(level, parents, keep, units);
        let allowed: Vec<Option<Vec<u32>>> = level
            .iter()
            .map(|active| match &self.members {
                None => (!columns.same_for_all_nodes()).then(|| columns.of_node(active.place)),
                Some(members) => {
                    let mut drawn = columns.of_node(active.place);
                    drawn.retain(|&feature| members.allow(&active.groups, feature));
                    Some(drawn)
                }
            })
            .collect();
        let mut tasks = Vec::with_capacity(plans.len() * groups.len());
        for plan in &mut plans {
            let mut kept = plan.kept.as_deref_mut();
            let mut parent = plan.parent.as_deref_mut();
            for group in groups {
                tasks.push(Task {
                    group,
                    build: plan.build,
                    scan: plan.scan,
                    kept: kept.as_mut().map(|kept| split_off(kept, group.entries())),
                    sibling: plan.sibling,
                    parent: parent
                        .as_mut()
                        .map(|parent| split_off(parent, group.entries())),
                    best: [None, None],
                });
            }
        }
        // Few tasks are cut further, by blocks.
        let pieces = (3 * rayon::current_num_threads()).div_ceil(tasks.len().max(1));
        let nodes = &*level;
        tasks.par_iter_mut().for_each(|task| {
            self.pool.with_scratch(|scratch| {
                let pieces = pieces.min(nodes[task.build].rows / 16_384).max(1);
                self.build(task.build, task.group, &self.blocks, pieces, scratch);
                self.simd.dispatch(FindSplits {
                    task,
                    nodes,
                    allowed: &allowed,
                    ways: self.ways.as_deref(),
                    units,
                    scratch,
                });
            });
        });
        let found: Vec<[Option<Best>; 2]> = tasks
            .chunks(groups.len().max(1))
            .map(|tasks| [0, 1].map(|side| best_of(tasks.iter().map(|task| task.best[side]))))
            .collect();
        for (plan, [build, sibling]) in plans.into_iter().zip(found) {
            level[plan.build].best = build;
            level[plan.build].histogram = plan.kept;
            match plan.sibling {
                Some(at) => {
                    level[at].best = sibling;
                    level[at].histogram = plan.parent;
                }
                None => self.pool.put_all(plan.parent),
            }
        }
    }

    /// What to build, what to subtract and what to scan.
    fn plan(
        &self,
        level: &[Active],
        parents: &mut Vec<Option<Histogram>>,
        keep: bool,
        units: &Units,
    ) -> Vec<Plan> {
        let ieee = &Ieee::PLAIN;
        // Rounding keeps order, so no side of a node can reach a weight that the node doesn't.
        let divisible = |at: usize| {
            let h = unit(ieee, level[at].sums.h as f32);
            level[at].rows > 1 && h > 0.0 && h >= units.penalty.min_weight
        };
        let kept = || if keep { self.pool.take() } else { None };
        let alone = |build: usize| Plan {
            build,
            scan: true,
            kept: kept(),
            sibling: None,
            parent: None,
        };
        if level.len() == 1 {
            return (0..1).filter(|&at| divisible(at)).map(alone).collect();
        }
        let mut plans = Vec::new();
        for (pair, parent) in parents.drain(..).enumerate() {
            let (left, right) = (2 * pair, 2 * pair + 1);
            let (small, large) = if level[left].rows <= level[right].rows {
                (left, right)
            } else {
                (right, left)
            };
            match parent {
                Some(parent) if divisible(large) => plans.push(Plan {
                    build: small,
                    scan: divisible(small),
                    kept: if divisible(small) { kept() } else { None },
                    sibling: Some(large),
                    parent: Some(parent),
                }),
                parent => {
                    self.pool.put_all(parent);
                    plans.extend(
                        [small, large]
                            .into_iter()
                            .filter(|&at| divisible(at))
                            .map(alone),
                    );
                }
            }
        }
        plans
    }

    /// Builds a group's histograms of a node, in `pieces` at once.
    fn build(
        &self,
        node: usize,
        group: &Group,
        blocks: &[Block],
        pieces: usize,
        scratch: &mut Scratch,
    ) {
        if pieces < 2 || blocks.len() < 2 {
            self.simd.dispatch(Build {
                bins: &self.bins,
                node,
                group,
                blocks,
                scratch,
            });
            return;
        }
        let (near, far) = blocks.split_at(blocks.len() / 2);
        self.pool.with_scratch(|other| {
            rayon::join(
                || self.build(node, group, near, pieces / 2, scratch),
                || self.build(node, group, far, pieces - pieces / 2, other),
            );
            for ((into, from), &count) in
                scratch.iter_mut().zip(other.iter_mut()).zip(&group.counts)
            {
                for bin in (0..usize::from(count)).chain([usize::from(MISSING)]) {
                    let Entry { g, h } = std::mem::take(&mut from[bin]);
                    into[bin] = Entry {
                        g: into[bin].g + g,
                        h: into[bin].h + h,
                    };
                }
            }
        });
    }

    /// Adds a tree to the margins of the eval sets.
    fn follow(&mut self, tree: &Tree, output: usize) {
        for set in &mut self.evals {
            let (n, bins) = (set.bins.rows, &set.bins);
            set.margins[output * n..][..n]
                .par_chunks_mut(4096)
                .enumerate()
                .for_each(|(i, margins)| {
                    for (row, margin) in (i * 4096..).zip(margins) {
                        *margin = Ieee::PLAIN.add(*margin, block::leaf_of(tree, bins, row));
                    }
                });
        }
    }
}
