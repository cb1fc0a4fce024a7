//! The GPU path: one row list, partitioned level by level, and integer histograms.
//!
//! A round never waits for the device. Grids are sized by bounds that the host knows (a level has
//! at most `2^level` nodes, and no more than rows), and cubes find out on the device whether there
//! is work for them. The host reads the number of nodes back only at levels whose bound exceeds
//! the room for histograms; these are built for one batch of nodes after another.
//!
//! A level takes five launches: `build` adds rows to the histograms of the smaller child of each
//! pair, `search` makes its sibling's by subtraction and finds the best split of every (node,
//! feature), `choose` decides about every node, `arrange` writes the tree and lays out the next
//! level, `partition` moves the rows. All sums are exact integers (see [the contract](super)), so
//! that neither the order of rows, cubes and atomics nor chunks and batches show in a bit.
//!
//! Where leaves are limited, two more launches a level keep the order of all splits and drop those
//! for which there is no room, and one a tree prunes what was grown: see [`guide`](super::guide).
//! The host then reads at every fourth deep level whether the tree has ended.

mod constraints;
mod guide;
mod histogram;
mod layout;
mod renew;
mod rows;
mod splits;
mod symmetric;

use super::sampling::{Draws, Rows};
use super::*;
use crate::device::{Arg, Buffer, Kernel, args};
use crate::ieee::FloatProfile;
use crate::ops::grid;
use constraints::{Allowed, Bounded};
use guide::Guide;
use layout::*;
use rayon::prelude::*;
use rows::Link;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use symmetric::Symmetric;

/// What is free to choose, for it can't show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// Words of features whose histograms a cube builds, one of [`GROUPS`].
    pub(super) group: u32,
    /// Rows that a unit reads before it adds them.
    pub(super) held: u32,
    /// Rows that a cube adds to histograms at most.
    pub(super) chunk: u32,
    /// Bytes of the histograms of one level at most; two levels are kept.
    pub(super) histogram_bytes: usize,
    /// Words of grown trees that stay on the device at most, unless one tree needs more.
    pub(super) tree_words: usize,
    /// Nodes of a tree whose leaves are renewed at once at most.
    pub(super) renewed: usize,
}

/// With one word, histograms fit the shared memory that every device has; two halve the reads of
/// rows and gradients.
const GROUPS: [u32; 2] = [1, 2];
/// Rows that a unit reads together.
const HELD: u32 = 2;
/// Cubes that add up the root: six at a time on each of 132 multiprocessors.
const CUBES: usize = 6 * 132;

impl Schedule {
    pub(super) fn new(device: &Device, rows: usize, features: usize) -> Self {
        let group = match device.backend() {
            detml_core::Backend::Cuda(_) => GROUPS[1],
            _ => GROUPS[0],
        };
        // Enough chunks to fill a large device once, but not so small that merging outweighs adding.
        let groups = features.div_ceil(4 * group as usize).max(1);
        let chunks = (CUBES / groups).max(1);
        let chunk = rows.div_ceil(chunks).clamp(1024, 1 << 16) as u32;
        Self {
            group,
            held: HELD,
            chunk: chunk.next_multiple_of(UNITS),
            histogram_bytes: 512 << 20,
            tree_words: 1 << 18,
            renewed: 1 << 14,
        }
    }
}

pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let mut kernels = vec![
        rows::scales_kernel(profile),
        rows::partition_kernel(profile),
        rows::follow_kernel(profile),
        histogram::clear_kernel(profile),
        splits::plant_kernel(profile),
        splits::draw_kernel(profile),
        splits::search_kernel(profile, false),
        splits::search_kernel(profile, true),
        splits::choose_kernel(profile, false),
        splits::choose_kernel(profile, true),
        splits::arrange_kernel(profile),
        constraints::allow_kernel(profile),
        constraints::bound_kernel(profile),
        guide::insert_kernel(profile),
        guide::rank_kernel(profile),
        guide::prune_kernel(profile),
        symmetric::tally_kernel(profile),
        symmetric::settle_kernel(profile),
        symmetric::apply_kernel(profile),
    ];
    kernels.extend(Link::ALL.map(|link| rows::gradients_kernel(profile, link)));
    kernels.extend(renew::kernels(profile));
    kernels.extend([false, true].map(|sampled| rows::quantise_kernel(profile, sampled)));
    kernels.extend(GROUPS.map(|group| histogram::build_kernel(profile, group, HELD)));
    kernels
}

struct Kernels {
    /// None where gradients come from outside.
    gradients: Option<Kernel>,
    scales: Kernel,
    quantise: Kernel,
    partition: Kernel,
    follow: Kernel,
    build: Kernel,
    clear: Kernel,
    plant: Kernel,
    draw: Kernel,
    search: Kernel,
    choose: Kernel,
    arrange: Kernel,
}

/// A set of rows with its margins so far.
struct Set {
    rows: usize,
    codes: Buffer<u32>,
    margins: Buffer<f32>,
}

impl Set {
    fn new(device: &Device, bins: &Bins, base: &[f32]) -> Result<Self> {
        let margins: Vec<f32> = base
            .iter()
            .flat_map(|&b| std::iter::repeat_n(b, bins.rows))
            .collect();
        Ok(Self {
            rows: bins.rows,
            codes: device.upload(&pack(bins))?,
            margins: device.upload(&margins)?,
        })
    }
}

/// Codes four to a word, word by word of the features.
fn pack(bins: &Bins) -> Vec<u32> {
    const ROWS: usize = 4096;
    let (n, features) = (bins.rows, bins.features());
    let mut words = vec![0; features.div_ceil(4) * n];
    words
        .par_chunks_mut(n.max(1))
        .enumerate()
        .for_each(|(word, column)| {
            let place = 4 * word..features.min(4 * word + 4);
            column
                .par_chunks_mut(ROWS)
                .enumerate()
                .for_each(|(part, column)| {
                    let rows = bins.codes[part * ROWS * features..].chunks_exact(features);
                    for (word, row) in column.iter_mut().zip(rows) {
                        let mut bytes = [0; 4];
                        bytes[..place.len()].copy_from_slice(&row[place.clone()]);
                        *word = u32::from_le_bytes(bytes);
                    }
                });
        });
    words
}

/// The nodes of a level.
struct Level {
    pairs: Buffer<u32>,
    /// Rows of each node.
    sizes: Buffer<u32>,
    nodes: Buffer<u32>,
    /// The rows in hand, node by node.
    rows: Buffer<u32>,
    histograms: Buffer<u32>,
}

pub(super) struct Gpu {
    device: Device,
    kernels: Kernels,
    loss: Loss,
    growth: Growth,
    features: usize,
    /// Levels at most that split.
    depth: u32,
    /// Words of features whose histograms a cube builds.
    group: u32,
    /// Rows that a cube adds to a histogram at most.
    chunk: u32,
    /// Nodes that there is room for histograms for.
    kept: usize,
    /// Length of a column of the table of pairs.
    stride: u32,
    counts: Buffer<u32>,
    train: Set,
    evals: Vec<Set>,
    targets: Buffer<f32>,
    weights: Buffer<f32>,
    g: Buffer<f32>,
    h: Buffer<f32>,
    largest: Buffer<u32>,
    scales: Buffer<u32>,
    renewal: Option<renew::Renewing>,
    status: Buffer<u32>,
    fixed: Buffer<u32>,
    root: Buffer<u32>,
    state: Buffer<u32>,
    /// Even levels, odd levels.
    levels: [Level; 2],
    best: Buffer<u32>,
    decisions: Buffer<u32>,
    /// The features of the set, the tree, the level and the nodes, as ones and zeros.
    every: Buffer<u32>,
    of_tree: Buffer<u32>,
    of_level: Buffer<u32>,
    of_nodes: Buffer<u32>,
    /// Rows as far as nodes are counted: symmetric trees have nodes without rows.
    node_rows: usize,
    symmetric: Option<Symmetric>,
    /// Monotone and interaction constraints.
    bounded: Option<Bounded>,
    allowed: Option<Allowed>,
    /// Splits of a tree at most, if that is a limit, and what keeps it.
    splits: Option<usize>,
    guide: Option<Guide>,
    rounds: u32,
    /// Trees on the device: each has room for the largest one.
    trees: Buffer<u32>,
    tree_words: usize,
    room: usize,
    held: usize,
    /// Trees that were read back, those handed over included.
    collected: usize,
    ready: Vec<Tree>,
    failure: OnceLock<Error>,
    /// Whether a caller has had the failure as an error.
    told: AtomicBool,
}

impl Gpu {
    pub(super) fn new(
        device: &Device,
        train: Table,
        evals: Vec<Table>,
        loss: Loss,
        base: &[f32],
        growth: Growth,
        constraints: &Constraints,
        schedule: Schedule,
    ) -> Result<Self> {
        let profile = device.profile()?;
        let (n, features) = (train.bins.rows, train.bins.features());
        let (outputs, words) = (loss.outputs(), features.div_ceil(4));
        let depth = if features == 0 { 0 } else { growth.max_depth };
        let splits = super::guide::most_splits(&growth, n);
        let node_rows = if growth.symmetric() { usize::MAX } else { n };
        let most = bound(depth.saturating_sub(1), node_rows, splits);
        let node_words = words * 4 * FEATURE_WORDS as usize;
        let room = schedule.histogram_bytes / (4 * node_words).max(1);
        let kept = room.min(most.next_multiple_of(2)).max(2) & !1;
        let pairs = most.div_ceil(2);
        let tree_nodes = match splits {
            None => most_nodes(depth, node_rows),
            Some(splits) => 2 * splits + 1,
        };
        let tree_words = tree_nodes.saturating_mul(TREE as usize);
        let room = (schedule.tree_words / tree_words).max(1);
        let (kept, [even, odd]) = histograms(device, kept, node_words)?;
        let level = |histograms: Buffer<u32>| {
            Ok(Level {
                pairs: device.empty(PAIR as usize * (pairs + 1))?,
                sizes: device.empty(2 * pairs)?,
                nodes: device.empty(NODE as usize * most.next_multiple_of(2))?,
                rows: device.empty(n)?,
                histograms,
            })
        };
        let every: Vec<u32> = (0..4 * words).map(|f| u32::from(f < features)).collect();
        let none = vec![0; 4 * words];
        let counts: Vec<u32> = train
            .bins
            .counts
            .iter()
            .map(|&count| count.into())
            .collect();
        let evals = evals
            .iter()
            .map(|table| Set::new(device, &table.bins, base))
            .collect::<Result<_>>()?;
        let bounded = match constraints.ways() {
            Some(ways) => Some(Bounded::new(device, profile, ways, most)?),
            None => None,
        };
        let allowed = match constraints.members(features) {
            Some(members) => Some(Allowed::new(device, profile, &members, most)?),
            None => None,
        };
        let gpu = Self {
            kernels: Kernels {
                gradients: Link::of(loss).map(|link| rows::gradients_kernel(profile, link)),
                scales: rows::scales_kernel(profile),
                quantise: rows::quantise_kernel(profile, Rows::new(&growth, 0).is_some()),
                partition: rows::partition_kernel(profile),
                follow: rows::follow_kernel(profile),
                build: histogram::build_kernel(profile, schedule.group, schedule.held),
                clear: histogram::clear_kernel(profile),
                plant: splits::plant_kernel(profile),
                draw: splits::draw_kernel(profile),
                search: splits::search_kernel(profile, bounded.is_some()),
                choose: splits::choose_kernel(profile, bounded.is_some()),
                arrange: splits::arrange_kernel(profile),
            },
            loss,
            growth,
            features,
            depth,
            group: schedule.group,
            chunk: schedule.chunk,
            kept,
            stride: (pairs + 1) as u32,
            counts: device.upload(&counts)?,
            targets: device.upload(&train.targets)?,
            weights: match &train.weights {
                Some(weights) => device.upload(weights)?,
                None => device.upload(&vec![1.0; n])?,
            },
            train: Set::new(device, &train.bins, base)?,
            evals,
            g: device.empty(n.saturating_mul(outputs))?,
            h: device.empty(n.saturating_mul(outputs))?,
            largest: device.upload(&vec![0; 2 * outputs])?,
            scales: device.empty(SCALE as usize * outputs)?,
            renewal: renew::Renewing::new(
                device,
                loss,
                &train,
                growth.learning_rate,
                most_nodes(depth, n),
                schedule.renewed,
            )?,
            status: device.upload(&[FINE; STATUS])?,
            fixed: device.empty(2 * n)?,
            root: device.upload(&[0; ROOT as usize])?,
            state: device.empty(STATE as usize * (depth as usize + 1))?,
            levels: [level(even)?, level(odd)?],
            best: device.empty(kept.saturating_mul(features * BEST as usize))?,
            decisions: device.empty(DECISION as usize * most)?,
            every: device.upload(&every)?,
            of_tree: device.upload(&none)?,
            of_level: device.upload(&none)?,
            of_nodes: match growth.colsample_bynode < 1.0 || allowed.is_some() {
                true => device.empty(kept.saturating_mul(features))?,
                false => device.empty(0)?,
            },
            guide: match depth {
                0 => None,
                _ => {
                    let levels = (0..=depth).map(|level| bound(level, n, splits));
                    let nodes = levels.sum::<usize>().min(most_nodes(depth, n));
                    Guide::new(device, profile, &growth, n, most, nodes)?
                }
            },
            node_rows,
            symmetric: match growth.symmetric() {
                true => Some(Symmetric::new(device, profile, features)?),
                false => None,
            },
            bounded,
            allowed,
            splits,
            rounds: 0,
            trees: device.empty(room.saturating_mul(tree_words))?,
            tree_words,
            room,
            held: 0,
            collected: 0,
            ready: Vec::new(),
            failure: OnceLock::new(),
            told: AtomicBool::new(false),
            device: device.clone(),
        };
        Ok(gpu)
    }

    /// Takes the gradients of the next round.
    pub(super) fn give(&mut self, g: &[f32], h: &[f32]) -> Result<()> {
        let most = |of: &[f32]| of.iter().map(|x| x.abs().to_bits()).max().unwrap_or(0);
        self.largest = self.device.upload(&[most(g), most(h)])?;
        self.g = self.device.upload(g)?;
        self.h = self.device.upload(h)?;
        Ok(())
    }

    pub(super) fn round(&mut self) -> Result<()> {
        if let Some(error) = self.failure.get() {
            self.told.store(true, Ordering::Relaxed);
            return Err(error.clone());
        }
        let (n, outputs) = (self.train.rows, self.loss.outputs());
        let tiles = n.div_ceil(TILE as usize);
        if let Some(gradients) = &self.kernels.gradients {
            let parameter = self.loss.parameter();
            let mut arguments = args![
                &self.train.margins,
                &self.targets,
                &self.weights,
                &mut self.g,
                &mut self.h,
                &mut self.largest,
                n as u32,
                outputs as u32,
                tiles as u32,
            ]
            .to_vec();
            arguments.extend(parameter.map(Arg::from));
            self.device
                .launch(gradients, grid(tiles * outputs, 1)?, &arguments)?;
        }
        self.device.launch(
            &self.kernels.scales,
            grid(outputs, UNITS as usize)?,
            args![
                &mut self.largest,
                &mut self.scales,
                &mut self.status,
                outputs as u32,
                self.rounds,
                self.growth.lambda,
                self.growth.alpha,
                self.growth.gamma,
                self.growth.min_child_weight,
            ],
        )?;
        for output in 0..outputs {
            self.grow(output)?;
        }
        self.rounds += 1;
        Ok(())
    }

    /// Grows the tree of an output and adds it to the margins.
    fn grow(&mut self, output: usize) -> Result<()> {
        if self.held == self.room {
            self.collect()?;
        }
        let tree = (self.held * self.tree_words) as u32;
        let number = self
            .rounds
            .wrapping_mul(self.loss.outputs() as u32)
            .wrapping_add(output as u32);
        self.plant(output as u32, tree)?;
        let draws = Draws::new(&self.growth, self.features, number);
        if let Some(count) = draws.of_tree {
            let words = draws.words(1);
            draw(
                &self.device,
                &self.kernels.draw,
                &self.every,
                &self.levels[0].nodes,
                &mut self.of_tree,
                self.features,
                Whose::Place(0),
                count,
                words,
            )?;
        }
        let mut levels = 0;
        while levels < self.depth && self.grow_level(output as u32, tree, levels, &draws)? {
            levels += 1;
        }
        if let Some(guide) = &mut self.guide {
            guide.prune(&self.device, &mut self.trees, tree, levels)?;
        }
        if let Some(renewal) = &mut self.renewal {
            renewal.renew(
                &self.device,
                &self.train.codes,
                &self.train.margins,
                &self.targets,
                &self.status,
                &mut self.trees,
                tree,
                Rows::new(&self.growth, self.rounds),
            )?;
        }
        self.held += 1;
        for set in std::iter::once(&mut self.train).chain(&mut self.evals) {
            self.device.launch(
                &self.kernels.follow,
                grid(set.rows, UNITS as usize)?,
                args![
                    &set.codes,
                    &self.trees,
                    &self.status,
                    &mut set.margins,
                    set.rows as u32,
                    tree,
                    output as u32,
                ],
            )?;
        }
        Ok(())
    }

    /// Quantises the gradients and makes the tree of one leaf.
    fn plant(&mut self, output: u32, tree: u32) -> Result<()> {
        let n = self.train.rows;
        let cleared = if self.depth > 0 { self.node_words() } else { 0 };
        let (words, limit) = match Rows::new(&self.growth, self.rounds) {
            Some(rows) => rows.words(),
            None => ([0; 3], 0),
        };
        let [first, _] = &mut self.levels;
        let (trees, tree) = match &mut self.guide {
            None => (&mut self.trees, tree),
            Some(guide) => (&mut guide.grown, 0),
        };
        self.device.launch(
            &self.kernels.quantise,
            grid(n, TILE as usize)?,
            args![
                &self.g,
                &self.h,
                &self.scales,
                &mut self.fixed,
                &mut first.rows,
                &mut self.root,
                &mut first.histograms,
                n as u32,
                output,
                cleared,
                words[0],
                words[1],
                words[2],
                limit,
            ],
        )?;
        self.device.launch(
            &self.kernels.plant,
            (1, 1, 1),
            args![
                &mut self.root,
                &self.scales,
                trees,
                &mut first.pairs,
                &mut first.sizes,
                &mut first.nodes,
                &mut self.state,
                tree,
                output,
                self.stride,
                self.chunk,
                self.growth.learning_rate,
            ],
        )
    }

    /// Splits the nodes of a level. False if it is known to have none.
    fn grow_level(&mut self, output: u32, tree: u32, level: u32, draws: &Draws) -> Result<bool> {
        let n = self.train.rows;
        let mut nodes = bound(level, self.node_rows, self.splits);
        let mut both = level == 0;
        let many = nodes > self.kept;
        // A tree of few leaves may be deep and mostly isn't.
        let ended = self.guide.is_some() && level >= 8 && level.is_multiple_of(4);
        if many || ended {
            // The bound says little about a deep level. This waits.
            nodes = self.device.read(&self.state)?[(level * STATE) as usize] as usize;
            both |= many;
            if nodes == 0 {
                return Ok(false);
            }
        }
        if let Some(count) = draws.of_level {
            let words = draws.words(2);
            let from = match draws.of_tree {
                Some(_) => &self.of_tree,
                None => &self.every,
            };
            draw(
                &self.device,
                &self.kernels.draw,
                from,
                &self.levels[0].nodes,
                &mut self.of_level,
                self.features,
                Whose::Place(level),
                count,
                words,
            )?;
        }
        if self.symmetric.is_some() {
            self.split_alike(output, level, nodes, both, draws)?;
        } else {
            for first in (0..nodes).step_by(self.kept) {
                let batch = self.kept.min(nodes - first);
                self.split(output, level, first, batch, both, draws)?;
            }
        }
        let last = level + 1 == self.depth;
        let next_both = bound(level + 1, self.node_rows, self.splits) > self.kept;
        let node_words = self.node_words();
        let [even, odd] = &mut self.levels;
        let (here, next) = match level % 2 {
            0 => (even, odd),
            _ => (odd, even),
        };
        let (trees, tree) = match &mut self.guide {
            None => (&mut self.trees, tree),
            Some(guide) => {
                guide.admit(
                    &self.device,
                    &mut self.decisions,
                    &here.pairs,
                    &self.state,
                    level,
                    nodes,
                    self.stride,
                )?;
                (&mut guide.grown, 0)
            }
        };
        self.device.launch(
            &self.kernels.arrange,
            (1, 1, 1),
            args![
                &self.decisions,
                &here.pairs,
                &here.sizes,
                &here.nodes,
                &self.scales,
                &mut self.state,
                &mut *trees,
                &mut next.pairs,
                &mut next.sizes,
                &mut next.nodes,
                tree,
                output,
                level,
                self.stride,
                self.chunk,
                u32::from(next_both),
                u32::from(last),
                self.growth.learning_rate,
            ],
        )?;
        if let Some(bounded) = &mut self.bounded {
            bounded.descend(
                &self.device,
                trees,
                [&self.decisions, &here.nodes, &self.scales, &self.state],
                [tree, output, level, u32::from(last)],
                nodes,
                self.growth.learning_rate,
            )?;
        }
        if last {
            return Ok(true);
        }
        self.device.launch(
            &self.kernels.partition,
            grid(n / TILE as usize + nodes, 1)?,
            args![
                &self.train.codes,
                &here.rows,
                &mut next.rows,
                &next.pairs,
                &mut next.sizes,
                &self.state,
                &mut next.histograms,
                n as u32,
                level + 1,
                self.stride,
                node_words,
                self.kept as u32,
            ],
        )?;
        Ok(true)
    }

    /// Zeroes the histograms of a batch of a level.
    fn clear(&mut self, level: u32, batch: usize) -> Result<()> {
        let count = batch as u32 * self.node_words();
        self.device.launch(
            &self.kernels.clear,
            grid(count as usize, TILE as usize)?,
            args![&mut self.levels[level as usize % 2].histograms, count],
        )
    }

    /// Decides about the `nodes` nodes of a level of a symmetric tree. The histograms of the first
    /// batch are zero; with more than one, all are built twice.
    fn split_alike(
        &mut self,
        output: u32,
        level: u32,
        nodes: usize,
        both: bool,
        draws: &Draws,
    ) -> Result<()> {
        let (features, words) = (self.features as u32, self.features.div_ceil(4) as u32);
        let drawn = draws.of_tree.is_some();
        let batches = |kept: usize| {
            (0..nodes)
                .step_by(kept)
                .map(move |i| (i, kept.min(nodes - i)))
        };
        for (first, batch) in batches(self.kept) {
            if first > 0 {
                self.clear(level, batch)?;
            }
            self.build(level, first, batch, both, drawn)?;
            let [even, odd] = &mut self.levels;
            let (here, before) = match level % 2 {
                0 => (even, odd),
                _ => (odd, even),
            };
            let Some(symmetric) = &mut self.symmetric else {
                break;
            };
            let mask = match (draws.of_level, draws.of_tree) {
                (Some(_), _) => &self.of_level,
                (None, Some(_)) => &self.of_tree,
                (None, None) => &self.every,
            };
            self.device.launch(
                &symmetric.tally,
                grid(self.features, 1)?,
                args![
                    &mut here.histograms,
                    &before.histograms,
                    &here.pairs,
                    &here.sizes,
                    &here.nodes,
                    mask,
                    &self.scales,
                    &self.state,
                    &mut symmetric.totals,
                    features,
                    words,
                    level,
                    first as u32,
                    batch as u32,
                    self.stride,
                    output,
                    u32::from(!both),
                ],
            )?;
            if first + batch == nodes {
                self.device.launch(
                    &symmetric.settle,
                    (1, 1, 1),
                    args![
                        &symmetric.totals,
                        &here.nodes,
                        &self.counts,
                        mask,
                        &self.scales,
                        &self.state,
                        &self.status,
                        &mut symmetric.chosen,
                        features,
                        level,
                        output,
                    ],
                )?;
            }
        }
        for (first, batch) in batches(self.kept) {
            if nodes > self.kept {
                self.clear(level, batch)?;
                self.build(level, first, batch, both, drawn)?;
            }
            let here = &self.levels[level as usize % 2];
            let Some(symmetric) = &self.symmetric else {
                break;
            };
            self.device.launch(
                &symmetric.apply,
                grid(batch, 1)?,
                args![
                    &here.histograms,
                    &here.nodes,
                    &symmetric.chosen,
                    &self.scales,
                    &self.state,
                    &mut self.decisions,
                    words,
                    level,
                    first as u32,
                    batch as u32,
                    output,
                ],
            )?;
        }
        Ok(())
    }

    /// Decides about the nodes `first..first + batch` of a level. Their histograms are zero for
    /// the first batch.
    fn split(
        &mut self,
        output: u32,
        level: u32,
        first: usize,
        batch: usize,
        both: bool,
        draws: &Draws,
    ) -> Result<()> {
        let features = self.features;
        let words = features.div_ceil(4);
        if first > 0 {
            self.clear(level, batch)?;
        }
        self.build(level, first, batch, both, draws.of_tree.is_some())?;
        let [even, odd] = &mut self.levels;
        let (here, before) = match level % 2 {
            0 => (even, odd),
            _ => (odd, even),
        };
        let (first, cubes) = (first as u32, batch);
        let batch = batch as u32;
        let of_tree = match draws.of_tree {
            Some(_) => &self.of_tree,
            None => &self.every,
        };
        let of_level = match draws.of_level {
            Some(_) => &self.of_level,
            None => of_tree,
        };
        let (mut mask, mut mask_stride) = (of_level, 0);
        if let Some(count) = draws.of_node {
            let words = draws.words(3);
            draw(
                &self.device,
                &self.kernels.draw,
                of_level,
                &here.nodes,
                &mut self.of_nodes,
                self.features,
                Whose::Nodes { first, batch },
                count,
                words,
            )?;
            (mask, mask_stride) = (&self.of_nodes, features as u32);
        }
        if let Some(allowed) = &mut self.allowed {
            allowed.restrict(
                &self.device,
                of_level,
                &mut self.of_nodes,
                &here.pairs,
                &self.state,
                [level, first, batch, self.stride],
                draws.of_node.is_some(),
                features as u32,
            )?;
            (mask, mask_stride) = (&self.of_nodes, features as u32);
        }
        let mut arguments = vec![
            Arg::from(&mut here.histograms),
            Arg::from(&before.histograms),
            Arg::from(&here.pairs),
            Arg::from(&here.sizes),
            Arg::from(&here.nodes),
            Arg::from(&self.counts),
            Arg::from(mask),
            Arg::from(&self.scales),
            Arg::from(&self.state),
        ];
        if let Some(bounded) = &self.bounded {
            let bounds = Arg::from(bounded.of_level(level));
            arguments.extend([bounds, Arg::from(bounded.ways())]);
        }
        arguments.push(Arg::from(&mut self.best));
        let numbers = [
            features as u32,
            words as u32,
            level,
            first,
            batch,
            self.stride,
            mask_stride,
            output,
            u32::from(!both),
        ];
        arguments.extend(numbers.map(Arg::from));
        let cubes_of_search = grid(cubes.saturating_mul(features), 1)?;
        self.device
            .launch(&self.kernels.search, cubes_of_search, &arguments)?;
        let mut arguments = vec![
            Arg::from(&self.best),
            Arg::from(&here.nodes),
            Arg::from(&self.scales),
            Arg::from(&self.state),
            Arg::from(&self.status),
        ];
        if let Some(bounded) = &self.bounded {
            arguments.push(Arg::from(bounded.of_level(level)));
        }
        arguments.push(Arg::from(&mut self.decisions));
        let numbers = [features as u32, level, first, batch, output];
        arguments.extend(numbers.map(Arg::from));
        self.device
            .launch(&self.kernels.choose, grid(cubes, 1)?, &arguments)
    }

    /// Adds the rows of the root to its histograms again: for measurements, after which the booster
    /// is of no other use.
    pub(super) fn rebuild_root(&mut self) -> Result<()> {
        self.build(0, 0, 1, true, false)
    }

    /// Adds rows to the histograms of the nodes `first..first + batch` of a level, which are zero.
    fn build(
        &mut self,
        level: u32,
        first: usize,
        batch: usize,
        both: bool,
        drawn: bool,
    ) -> Result<()> {
        let (n, words) = (self.train.rows, self.features.div_ceil(4));
        let here = &mut self.levels[level as usize % 2];
        let of_tree = if drawn { &self.of_tree } else { &self.every };
        // See `chunks_of`: each pair may round up.
        let chunk = self.chunk as usize;
        let chunks = match both {
            true => n / chunk + 2 * batch.div_ceil(2),
            false => n / 2 / chunk + batch.div_ceil(2),
        };
        self.device.launch(
            &self.kernels.build,
            grid(
                chunks.saturating_mul(words.div_ceil(self.group as usize)),
                1,
            )?,
            args![
                &self.train.codes,
                &self.fixed,
                &here.rows,
                &here.pairs,
                &here.sizes,
                &self.state,
                of_tree,
                &mut here.histograms,
                n as u32,
                words as u32,
                level,
                first as u32,
                batch as u32,
                self.stride,
                self.chunk,
                u32::from(both),
            ],
        )
    }

    /// Words of a node's histograms.
    fn node_words(&self) -> u32 {
        self.features.div_ceil(4) as u32 * 4 * FEATURE_WORDS
    }

    /// Reads the trees that are on the device; drops those of a round that failed and of later
    /// ones.
    fn collect(&mut self) -> Result<()> {
        if self.held == 0 {
            return Ok(());
        }
        let words = self.device.read(&self.trees)?;
        self.look_for_failure()?;
        let sound = match self.failure.get() {
            Some(_) => self.device.read(&self.status)?[0] as usize,
            None => usize::MAX,
        };
        let outputs = self.loss.outputs();
        for (i, words) in words
            .chunks_exact(self.tree_words)
            .take(self.held)
            .enumerate()
        {
            if (self.collected + i) / outputs < sound {
                self.ready.push(decode(words));
            }
        }
        self.collected += self.held;
        self.held = 0;
        Ok(())
    }

    /// Waits, and notes a round that has failed.
    fn look_for_failure(&self) -> Result<()> {
        if self.failure.get().is_some() {
            return Ok(());
        }
        let [round, output] = self.device.read(&self.status)?[..] else {
            return Err(Error::internal("the status of a boosting fit is lost"));
        };
        if round == FINE {
            return Ok(());
        }
        // The margins have stayed as they were, and so have the gradients of that round.
        let n = self.train.rows;
        let (g, h) = (self.device.read(&self.g)?, self.device.read(&self.h)?);
        let place = output as usize * n;
        let found = first_not_finite(&g[place..][..n], &h[place..][..n]);
        let (row, got) = found.unwrap_or((0, f32::NAN));
        let _ = self
            .failure
            .set(not_finite(round, row, output as usize, got));
        Ok(())
    }

    /// The error of a round that has failed, once.
    fn tell_failure(&self) -> Result<()> {
        self.look_for_failure()?;
        match self.failure.get() {
            Some(error) if !self.told.swap(true, Ordering::Relaxed) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    pub(super) fn take_trees(&mut self) -> Result<Vec<Tree>> {
        self.collect()?;
        self.tell_failure()?;
        Ok(std::mem::take(&mut self.ready))
    }

    pub(super) fn margins(&self) -> Result<Vec<f32>> {
        self.tell_failure()?;
        self.device.read(&self.train.margins)
    }

    pub(super) fn eval_margins(&self, set: usize) -> Result<Vec<f32>> {
        self.tell_failure()?;
        self.device.read(&self.evals[set].margins)
    }
}

/// Whom features are drawn for.
enum Whose {
    /// A tree or a level, by its number among the draws.
    Place(u32),
    /// Each of the nodes `first..first + batch`, by its place.
    Nodes { first: u32, batch: u32 },
}

/// Draws `count` of the features in `from`, by draws of these `words`.
fn draw(
    device: &Device,
    kernel: &Kernel,
    from: &Buffer<u32>,
    nodes: &Buffer<u32>,
    mask: &mut Buffer<u32>,
    features: usize,
    whose: Whose,
    count: u32,
    words: [u32; 3],
) -> Result<()> {
    let (first, batch, of_nodes, place) = match whose {
        Whose::Place(place) => (0, 1, 0u32, place),
        Whose::Nodes { first, batch } => (first, batch, 1, 0),
    };
    device.launch(
        kernel,
        grid(batch as usize, 1)?,
        args![
            from,
            nodes,
            mask,
            features as u32,
            first,
            batch,
            of_nodes,
            place,
            count,
            words[0],
            words[1],
            words[2],
        ],
    )
}

/// Room for the histograms of two levels of `kept` nodes, or of fewer if the device has not that
/// much memory in one piece. Returns how many.
fn histograms(
    device: &Device,
    kept: usize,
    node_words: usize,
) -> Result<(usize, [Buffer<u32>; 2])> {
    let words = kept.saturating_mul(node_words);
    let both = device
        .empty(words)
        .and_then(|a| Ok([a, device.empty(words)?]));
    match both {
        Err(Error::OutOfMemory { .. }) if kept > 2 => {
            histograms(device, ((kept / 2) & !1).max(2), node_words)
        }
        both => Ok((kept, both?)),
    }
}

/// Nodes of a level at most: each has a row, and a level splits `splits` at most.
fn bound(level: u32, rows: usize, splits: Option<usize>) -> usize {
    let nodes = 1usize
        .checked_shl(level)
        .map_or(rows, |nodes| nodes.min(rows));
    match splits {
        Some(splits) if level > 0 => nodes.min(2 * splits),
        _ => nodes,
    }
}

/// Nodes of a tree at most.
fn most_nodes(depth: u32, rows: usize) -> usize {
    let full = 2usize.checked_shl(depth).unwrap_or(usize::MAX);
    (full - 1).min(rows.saturating_mul(2) - 1)
}

fn decode(words: &[u32]) -> Tree {
    let mut nodes: Vec<Node> = Vec::new();
    let mut count = 1;
    for words in words.chunks_exact(TREE as usize) {
        if nodes.len() == count {
            break;
        }
        let [left, feature, split, value, gain, cover] =
            [LEFT, FEATURE, TREE_SPLIT, VALUE, GAIN, COVER].map(|i| words[i as usize]);
        if left != 0 {
            // Children are numbered in the order of their parents.
            count = left as usize + 2;
        }
        nodes.push(Node {
            left,
            feature,
            bin: (split >> 1) as u8,
            missing_left: split & 1 == 0,
            value: f32::from_bits(value),
            gain: f32::from_bits(gain),
            cover: f32::from_bits(cover),
        });
    }
    Tree { nodes }
}
