//! What features may do in a tree.
//!
//! # Monotone constraints
//! XGBoost's method. Every node has an interval for the weights below it, at the root of all
//! numbers. A side's weight is the best one moved into the interval of the node that is split, and
//! its score is that of the weight:
//!
//! ```text
//! w        = -shrink(G) / (H + lambda), moved into low ..= high
//! score(w) = shrink(G)^2 / (H + lambda)                    if w was not moved
//!            (0 - w (2 G + (H + lambda) w)) - 2 alpha |w|  otherwise
//! ```
//! A split by a feature that must not fall is refused if the left weight is above the right one, and
//! the other way round for a feature that must not rise. The middle of both weights,
//! `(left + right) / 2`, then bounds what is below them: from above on the side of the lower weights,
//! from below on the other. A leaf's value is that of its weight.
//!
//! So all leaves on one side of such a split are at most (at least) the middle, and predictions, sums
//! of leaves in one order, never move against the constraint, roundings included: adding, scaling
//! and moving into an interval keep order. Missing values go to the side that gains more, as ever.
//!
//! XGBoost leaves `2 alpha |w|` out of the score of a moved weight.
//!
//! # Interaction constraints
//! XGBoost's, too: a node may be split by the features of those groups that hold all features on its
//! path. A feature that is in no group is one of its own. Constraints act after the draws of features.

use super::{Growth, Loss};
use detml_core::{Error, Result};

/// What features may do in a tree. The default constrains nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraints {
    /// For each feature whether predictions must not fall (1) or not rise (-1) as it grows, or may
    /// do either (0). Empty if all may.
    pub monotone: Vec<i8>,
    /// Groups of features that may be on one path. Empty if all may.
    pub interactions: Vec<Vec<u32>>,
}

impl Constraints {
    /// Checks that they are of `features` features.
    ///
    /// # Errors
    /// `Shape` for another number of monotone constraints; `InvalidParameter`, naming the setting
    /// as builders do, for a direction that is none, an empty group, or a feature that is not there
    /// or twice in a group.
    pub fn check(&self, features: usize) -> Result<()> {
        if !self.monotone.is_empty() && self.monotone.len() != features {
            return Err(Error::shape(
                "monotone_constraints",
                features,
                self.monotone.len(),
            ));
        }
        if let Some(other) = self.monotone.iter().find(|way| !(-1..=1).contains(*way)) {
            return Err(Error::parameter(
                "monotone_constraints",
                "-1, 0 or 1",
                other,
            ));
        }
        for group in &self.interactions {
            let mut seen = group.clone();
            seen.sort_unstable();
            seen.dedup();
            let sound = seen.len() == group.len()
                && seen.last().is_some_and(|last| (*last as usize) < features);
            if !sound {
                return Err(Error::parameter(
                    "interaction_constraints",
                    format_args!("groups of different ones of {features} features"),
                    format_args!("{group:?}"),
                ));
            }
        }
        Ok(())
    }

    /// Refuses constraints that this growth doesn't take.
    ///
    /// # Errors
    /// `InvalidParameter`, naming the setting as builders do.
    pub fn check_with(&self, growth: &Growth) -> Result<()> {
        if growth.symmetric() && (self.ways().is_some() || !self.interactions.is_empty()) {
            let name = match self.ways() {
                Some(_) => "monotone_constraints",
                None => "interaction_constraints",
            };
            return Err(Error::parameter(name, "none with symmetric trees", "some"));
        }
        Ok(())
    }

    /// Refuses constraints that this loss doesn't take: quantiles that leaves are renewed with know no
    /// bounds.
    ///
    /// # Errors
    /// `InvalidParameter`, naming the setting as builders do.
    pub fn check_loss(&self, loss: Loss) -> Result<()> {
        if self.ways().is_some() && loss.renewed_quantile().is_some() {
            return Err(Error::parameter(
                "monotone_constraints",
                "none with a loss whose leaves are quantiles",
                "some",
            ));
        }
        Ok(())
    }

    /// The ways of all features, if any has one.
    pub(super) fn ways(&self) -> Option<&[i8]> {
        let any = self.monotone.iter().any(|way| *way != 0);
        any.then_some(&self.monotone[..])
    }

    /// The groups of all features, if there are any.
    pub(super) fn members(&self, features: usize) -> Option<Members> {
        if self.interactions.is_empty() {
            return None;
        }
        let mut alone = vec![true; features];
        for &feature in self.interactions.iter().flatten() {
            alone[feature as usize] = false;
        }
        let single = (0..features as u32).filter(|&feature| alone[feature as usize]);
        let single: Vec<[u32; 1]> = single.map(|feature| [feature]).collect();
        let groups = self.interactions.iter().map(|group| &group[..]);
        let groups: Vec<&[u32]> = groups.chain(single.iter().map(|one| &one[..])).collect();
        let words = groups.len().div_ceil(32);
        let mut of = vec![0; words * features];
        for (i, group) in groups.iter().enumerate() {
            for &feature in *group {
                of[feature as usize * words + i / 32] |= 1 << (i % 32);
            }
        }
        Some(Members { words, of })
    }
}

/// Which groups features are in: some words of bits for each feature.
///
/// A node has the groups that hold all features of its path, and a feature may split it if it is
/// in one of these.
#[derive(Clone, Debug)]
pub(super) struct Members {
    pub(super) words: usize,
    pub(super) of: Vec<u32>,
}

impl Members {
    fn groups(&self, feature: u32) -> &[u32] {
        &self.of[feature as usize * self.words..][..self.words]
    }

    /// The groups of the root.
    pub(super) fn all(&self) -> Vec<u32> {
        vec![u32::MAX; self.words]
    }

    /// Those of a node's `groups` that its children have after a split by `feature`.
    pub(super) fn below(&self, groups: &[u32], feature: u32) -> Vec<u32> {
        let both = groups.iter().zip(self.groups(feature));
        both.map(|(a, b)| a & b).collect()
    }

    /// Whether a node of these groups may be split by a feature.
    pub(super) fn allow(&self, groups: &[u32], feature: u32) -> bool {
        let mut both = groups.iter().zip(self.groups(feature));
        both.any(|(a, b)| a & b != 0)
    }
}
