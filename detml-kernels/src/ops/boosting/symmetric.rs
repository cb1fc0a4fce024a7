//! Symmetric (oblivious) trees: every node of a level has the same split.
//!
//! Such a tree is a table of `2^depth` leaves, as CatBoost grows them (Prokhorenkova et al.,
//! "CatBoost: unbiased boosting with categorical features", NeurIPS 2018). A level takes the split
//! (feature, bin, side of missing values) of the highest total over its nodes:
//!
//! ```text
//! share(node, split) = split score                 if the split is allowed in the node
//!                      kept = score(node), 0 if H = 0   otherwise
//! total(split)       = ((0 + share(first node)) + share(second node)) + ...
//! kept total         = ((0 + kept(first node)) + kept(second node)) + ...
//! ```
//! Nodes come from the left to the right, so a total is a sum of fixed shape (`N5`), here of
//! binary32. Ties go as ever to the lowest feature, bin, and missing values to the left (`N10`). The
//! split is made in all nodes if `total - kept total` is a gain that is accepted, else in none and
//! the tree ends.
//!
//! A node in which the split isn't allowed is split too, for lower levels may part its rows by other
//! features. A side without rows is a leaf of value 0, or goes on being split in nothing. The gain
//! that is reported of a node is its own part, 0 where it is negative or the split isn't allowed.
//!
//! CatBoost differs by its defaults (an L2 penalty of 3, a learning rate of its own choice, at most
//! 254 borders, no least weight), by the randomness it adds to scores (`random_strength`), and by
//! its Cosine score on CPUs; its L2 score is the one above, but for the Hessians where it takes
//! weights.

use super::arith::{NO_SPLIT, Penalty, score, split_score};
use crate::ieee::Ieee;
use crate::prim;
use cubecl::prelude::*;

/// The score of a node that stays whole; 0 without a Hessian.
#[cube]
#[inline(always)]
pub(crate) fn kept_score(ieee: &Ieee, g: f32, h: f32, p: &Penalty) -> f32 {
    let zero = prim::from_bits(0u32);
    ieee.select(ieee.lt(zero, h), score(ieee, g, h, p), zero)
}

/// What a split of a node adds to the total; `own` is the node's score if it stays whole.
#[cube]
#[inline(always)]
pub(crate) fn share(ieee: &Ieee, gl: f32, hl: f32, gr: f32, hr: f32, p: &Penalty, own: f32) -> f32 {
    let split = split_score(ieee, gl, hl, gr, hr, p);
    ieee.select(prim::bits(split) == NO_SPLIT, own, split)
}
