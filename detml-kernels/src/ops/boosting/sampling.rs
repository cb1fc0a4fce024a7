//! Draws of rows and features, by counter (`N12`).

use super::Growth;
use detml_core::{Philox4x32, Seed};

/// The draws of one purpose: trees and rounds have four streams each.
fn draws(seed: Seed, number: u32, purpose: u32) -> Philox4x32 {
    Philox4x32::new(seed, number.wrapping_mul(4) | purpose)
}

/// The rows of one round. A row is drawn if the word of its index is below a limit, so a draw
/// depends on the row's index and on nothing else.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    draws: Philox4x32,
    limit: u32,
}

impl Rows {
    /// `None` if every row is drawn.
    pub(super) fn new(growth: &Growth, round: u32) -> Option<Self> {
        // Exact: a binary32 has at most 24 significant bits.
        let limit = (f64::from(growth.subsample) * 4_294_967_296.0) as u64;
        Some(Self {
            draws: draws(growth.seed, round, 0),
            limit: u32::try_from(limit).ok()?,
        })
    }

    pub(super) fn holds(&self, row: usize) -> bool {
        self.draws.word(row as u64) < self.limit
    }

    /// What a kernel makes the same draws from: the words of the draws, and the limit.
    pub(super) fn words(&self) -> ([u32; 3], u32) {
        (words(&self.draws), self.limit)
    }
}

/// What a kernel makes the draws of features of one tree from: see [`Columns`], which draws the
/// same ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draws {
    seed: Seed,
    number: u32,
    /// How many features the tree, each level and each node draw; `None` if all.
    pub(super) of_tree: Option<u32>,
    pub(super) of_level: Option<u32>,
    pub(super) of_node: Option<u32>,
}

impl Draws {
    pub(super) fn new(growth: &Growth, features: usize, tree: u32) -> Self {
        let mut left = features;
        let mut draw = |share: f32| {
            left = count(share, left)?;
            Some(left as u32)
        };
        Self {
            seed: growth.seed,
            number: tree,
            of_tree: draw(growth.colsample_bytree),
            of_level: draw(growth.colsample_bylevel),
            of_node: draw(growth.colsample_bynode),
        }
    }

    /// The words of the draws of a tree (1), its levels (2) and nodes (3).
    pub(super) fn words(&self, purpose: u32) -> [u32; 3] {
        words(&draws(self.seed, self.number, purpose))
    }
}

/// The seed's lower and upper word, and the stream.
fn words(draws: &Philox4x32) -> [u32; 3] {
    let seed = draws.seed().0;
    [seed as u32, (seed >> 32) as u32, draws.stream()]
}

/// How many of `all` features a share draws; `None` if all of them without a draw.
fn count(share: f32, all: usize) -> Option<usize> {
    (share < 1.0).then(|| ((f64::from(share) * all as f64) as usize).max(1))
}

/// The features of one tree, its levels and nodes.
///
/// A draw of `share` from `m` features takes the `max(1, floor(share m))` with the lowest words,
/// the lower feature first among equal words.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    tree: Vec<u32>,
    bylevel: f32,
    bynode: f32,
    seed: Seed,
    number: u32,
}

impl Columns {
    pub(super) fn new(growth: &Growth, features: usize, tree: u32) -> Self {
        let all: Vec<u32> = (0..features as u32).collect();
        Self {
            tree: choose(
                &all,
                growth.colsample_bytree,
                draws(growth.seed, tree, 1),
                0,
            ),
            bylevel: growth.colsample_bylevel,
            bynode: growth.colsample_bynode,
            seed: growth.seed,
            number: tree,
        }
    }

    /// The tree's features, ascending.
    pub(super) fn of_tree(&self) -> &[u32] {
        &self.tree
    }

    /// Whether every node draws from all the tree's features.
    pub(super) fn same_for_all_nodes(&self) -> bool {
        self.bylevel >= 1.0 && self.bynode >= 1.0
    }

    /// The features of a node, ascending. `place` is 1 at the root, `2 p` and `2 p + 1` at the
    /// left and right child of place `p`.
    pub(super) fn of_node(&self, place: u64) -> Vec<u32> {
        let level = u64::from(place.ilog2());
        let chosen = choose(
            &self.tree,
            self.bylevel,
            draws(self.seed, self.number, 2),
            level,
        );
        choose(
            &chosen,
            self.bynode,
            draws(self.seed, self.number, 3),
            place,
        )
    }
}

fn choose(from: &[u32], share: f32, draws: Philox4x32, place: u64) -> Vec<u32> {
    let Some(count) = count(share, from.len()) else {
        return from.to_vec();
    };
    let mut keyed: Vec<(u32, u32)> = from
        .iter()
        .map(|&feature| (draws.word((place << 32) | u64::from(feature)), feature))
        .collect();
    keyed.sort_unstable();
    keyed.truncate(count);
    let mut chosen: Vec<u32> = keyed.into_iter().map(|(_, feature)| feature).collect();
    chosen.sort_unstable();
    chosen
}
