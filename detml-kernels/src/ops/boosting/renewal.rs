//! Leaves as quantiles of residuals, see [the contract](super#leaves-as-quantiles).

use super::arith::shift_of;
use super::formulas::relative_weight;
use super::{Bins, Loss, MISSING, Tree};
use crate::ieee::Ieee;
use crate::prim;
use crate::wide::I64;
use cubecl::prelude::*;
use rayon::prelude::*;

/// Which quantile, and what rows count for.
#[derive(Clone, Debug)]
pub(super) struct Renewal {
    /// The quantile in units of `2^-32`, at least 1.
    pub(super) share: u32,
    /// For each row, at least 1 and at most `2^30`.
    pub(super) weights: Vec<u32>,
    pub(super) rate: f32,
}

impl Renewal {
    pub(super) fn new(
        loss: Loss,
        targets: &[f32],
        weights: Option<&[f32]>,
        rate: f32,
    ) -> Option<Self> {
        Some(Self {
            share: share(loss.renewed_quantile()?),
            weights: fixed_weights(loss, targets, weights),
            rate,
        })
    }

    /// Gives the leaves of a tree their values. `leaves` holds the leaf of each row, `residuals`
    /// the key of its residual; only rows that `holds` count.
    pub(super) fn renew(
        &self,
        tree: &mut Tree,
        leaves: &[u32],
        residuals: &[u32],
        holds: impl Fn(usize) -> bool + Sync,
    ) {
        let mut rows: Vec<(u64, u32)> = leaves
            .par_iter()
            .zip(residuals)
            .zip(&self.weights)
            .enumerate()
            .filter(|(row, _)| holds(*row))
            .map(|(_, ((&leaf, &key), &weight))| (u64::from(leaf) << 32 | u64::from(key), weight))
            .collect();
        rows.par_sort_unstable();
        for node in &mut tree.nodes {
            node.value = 0.0;
        }
        for rows in rows.chunk_by(|a, b| a.0 >> 32 == b.0 >> 32) {
            let Some(&(first, _)) = rows.first() else {
                continue;
            };
            let key = quantile(rows.iter().map(|&(key, w)| (key as u32, w)), self.share);
            if let Some(node) = tree.nodes.get_mut((first >> 32) as usize) {
                node.value = renewed(&Ieee::PLAIN, key, self.rate);
            }
        }
    }
}

/// `alpha * 2^32`, rounded; at least 1.
fn share(alpha: f32) -> u32 {
    // Exact but for an `alpha` below 2^-8.
    ((f64::from(alpha) * 4_294_967_296.0).round_ties_even() as u32).max(1)
}

/// The weights in units of a power of two: the largest is at least `2^29` and at most `2^30`.
fn fixed_weights(loss: Loss, targets: &[f32], weights: Option<&[f32]>) -> Vec<u32> {
    let ieee = &Ieee::PLAIN;
    let weight = |row: usize| {
        let w = weights
            .and_then(|weights| weights.get(row))
            .map_or(1.0, |&w| w);
        match loss {
            Loss::Mape => relative_weight(ieee, targets[row], w),
            _ => w,
        }
    };
    let largest = (0..targets.len()).map(|row| weight(row).to_bits()).max();
    let shift = shift_of(ieee, largest.unwrap_or(0));
    (0..targets.len())
        .map(|row| {
            let fixed = ieee.round_ties_even(ieee.scale(weight(row), shift));
            ieee.to_u32(fixed).max(1)
        })
        .collect()
}

/// The least key that, with all below it, reaches the share of the total weight; keys ascend.
fn quantile(keys: impl Iterator<Item = (u32, u32)> + Clone, share: u32) -> u32 {
    let total: u64 = keys.clone().map(|(_, weight)| u64::from(weight)).sum();
    let wanted = wanted_on_host(total, share);
    let mut reached = 0;
    let mut last = 0;
    for (key, weight) in keys {
        last = key;
        reached += u64::from(weight);
        if reached >= wanted {
            break;
        }
    }
    last
}

/// `ceil(total * share / 2^32)`.
fn wanted_on_host(total: u64, share: u32) -> u64 {
    (u128::from(total) * u128::from(share)).div_ceil(1 << 32) as u64
}

/// As on the host; `total` is below `2^62`.
#[cube]
pub(super) fn wanted(total: I64, share: u32) -> I64 {
    let low = I64::product_u32(total.lo, share);
    let up = prim::select_u32(low.lo != 0u32, 1u32, 0u32);
    I64::product_u32(total.hi, share)
        .add(I64::from_u32(low.hi))
        .add(I64::from_u32(up))
}

/// The key of a row's residual: in the order of residuals, both zeros alike.
#[cube]
#[inline(always)]
pub(super) fn residual_key(ieee: &Ieee, margin: f32, y: f32) -> u32 {
    ieee.order_key(ieee.sub(y, margin))
}

/// A leaf's value of its quantile's key; never -0.
#[cube]
#[inline(always)]
pub(super) fn renewed(ieee: &Ieee, key: u32, rate: f32) -> f32 {
    let value = ieee.mul(ieee.from_total_key(key), rate);
    let zero = prim::from_bits(0u32);
    ieee.select(ieee.eq(value, zero), zero, value)
}

/// Number of the leaf that a row falls into.
pub(super) fn leaf_index(tree: &Tree, bins: &Bins, row: usize) -> u32 {
    let codes = &bins.codes[row * bins.features()..][..bins.features()];
    let mut at = 0;
    loop {
        let node = &tree.nodes[at as usize];
        if node.left == 0 {
            return at;
        }
        let code = codes[node.feature as usize];
        let left = if code == MISSING {
            node.missing_left
        } else {
            code <= node.bin
        };
        at = node.left + u32::from(!left);
    }
}

/// The weighted quantile of targets that a loss whose leaves are renewed starts from: the margin
/// of the least loss, by the rule of the leaves. `None` for other losses and without a target.
pub fn best_quantile(loss: Loss, targets: &[f32], weights: Option<&[f32]>) -> Option<f32> {
    if targets.is_empty() {
        return None;
    }
    let Renewal { share, weights, .. } = Renewal::new(loss, targets, weights, 1.0)?;
    let ieee = &Ieee::PLAIN;
    let mut keys: Vec<(u32, u32)> = targets
        .iter()
        .map(|&y| ieee.order_key(y))
        .zip(weights)
        .collect();
    keys.par_sort_unstable();
    Some(ieee.from_total_key(quantile(keys.iter().copied(), share)))
}
