//! Shapley values of features: what each adds to a tree ensemble's margin of a row.
//!
//! # What is computed
//! A set `S` of a row's features is worth what the trees give if only these are known:
//! - [`PathDependent`]: a split on another feature sends a row both ways, in the shares of the
//!   children's covers (S. Lundberg and others, "Consistent individualized feature attribution for
//!   tree ensembles", 2018, and "From local explanations to global understanding with explainable
//!   AI for trees", 2020; the `tree_path_dependent` of `shap`, XGBoost's `pred_contribs`). Where a
//!   split has cover 0, both shares are 1/2.
//! - [`Interventional`]: the other features are those of a background row, and the worth is the
//!   mean over the background (the `interventional` of `shap`).
//!
//! A feature's value is the mean of what it adds to the features before it, over all orders of the
//! features. Values of a row and the expected margin sum to the row's margin but for rounding.
//! Interaction values part each value between the feature and its pairs (as
//! `shap_interaction_values` and XGBoost's `pred_interactions`).
//!
//! # How
//! Trees are parted into paths from the root to a leaf, the splits of a feature merged to an
//! interval and a side for missing values (as R. Mitchell, E. Frank and G. Holmes do, "GPUTreeShap:
//! massively parallel exact calculation of SHAP scores for tree ensembles", 2022). A path of leaf
//! `v` whose features `i` let the row pass (`o[i]` 1) or not (0) and others with share `z[i]` adds
//!
//! ```text
//! v (o[i] - z[i]) integral over t in (0, 1) of  product over j != i of ((1 - t) z[j] + t o[j])
//! ```
//!
//! to feature `i` (G. Owen, "Multilinear extensions of games", 1972), and half of the like with
//! `(o[i] - z[i]) (o[j] - z[j])` and the product over the rest to a pair. The integrand is a polynomial,
//! so a rule of Gauss and Legendre with half as many nodes as there are features is exact. No term
//! of a path cancels another, so the error of a path's sum is some ulps whatever its length; in
//! binary32 that can't be had from subtracting and dividing polynomials (the `UNWIND` of the
//! papers). Measured against `f64`, values and interactions are at most 6e-8 of the sum of the
//! trees' largest leaves off, for forests of 1 to 25 trees and paths of up to 32 features.
//!
//! # Order
//! With `t` the rule's nodes, `s` their mirrors `1 - t` and `w` the weights, all of `f32`:
//! - factor `f[j][q] = fma(z[j], s[q], o[j] t[q])`, with `o[j] t[q]` +0 or `t[q]`; products
//!   `p[q] = ((w[q] f[0][q]) f[1][q]) ...` by ascending feature;
//! - ratios `r[i][q]`: `-1 / s[q]` if the row doesn't pass, else `(1 - z[i]) / fma(z[i], s[q], t[q])`;
//! - a path's part of feature `i`: a chain `a = fma(p[q], r[i][q], a)` from +0 over ascending `q`, then
//!   `sum = fma(v, a, sum)`; of a pair `i < j`: `g[q] = p[q] r[i][q]`, `a = fma(g[q], r[j][q], a)`,
//!   `sum = fma(v / 2, a, sum)`.
//!
//! Sums start from +0 for each [`SEGMENT`] trees of an output and take its paths tree by tree, leaves
//! by ascending node; segments fold in order, beginning with the first one's. A feature's own
//! interaction is its value less the sum of its pairs, from +0 by ascending feature. The rule is the
//! least for the ensemble's longest path. For [`Interventional`] a path adds, for each set of
//! features that background rows pass on it (ascending, as numbers whose lowest bit is the path's
//! first feature), `sum = fma(m, k, sum)`: `k` is the leaf times the share of background rows, and
//! `m` the exact share of the orders, rounded once, negative if only the background passes.
//!
//! Shares, expected margins and `k` are formed in `f64` on the host and rounded once. A row's bits
//! depend on no other row (`N7`). Results have no -0, and a NaN (infinities of both signs met) is
//! 0x7fc00000.
//!
//! # Memory
//! Paths take 20 bytes for each of their features, and on a GPU four more for each node of the
//! rule. Besides, a GPU holds features and sums of some rows at a time, at most 2^26 numbers of
//! each kind or those of a single row; a CPU thread the sums of 64 rows.

mod cpu;
mod gpu;
mod paths;
#[cfg(test)]
mod plain;
mod rule;
#[cfg(test)]
mod tests;

use crate::device::{Device, Kernel, zeros};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::forest::Forest;
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Error, Result};
use paths::{Paths, Tables};
use rayon::prelude::*;

/// The most different features that a path may have.
pub const FEATURES_ON_A_PATH: usize = rule::MOST;
/// Trees whose sums are one chain.
pub const SEGMENT: usize = 16;

/// The key of every NaN, above those of all numbers.
const NAN: u32 = u32::MAX;

/// 1 if a row with this key of a feature passes, else 0. `low` and `width` span the keys of the
/// numbers that do.
#[cube]
#[inline(always)]
fn passes(key: u32, low: u32, width: u32, missing: u32) -> u32 {
    let inside = prim::select_u32(prim::wrapping_sub(key, low) <= width, 1u32, 0u32);
    prim::select_u32(key == NAN, missing, inside)
}

/// A feature's factor at a node.
#[cube]
#[inline(always)]
fn factor(ieee: &Ieee, share: f32, mirror: f32, node: f32, pass: u32) -> f32 {
    ieee.fma(share, mirror, ieee.select(pass == 1u32, node, 0.0f32))
}

/// What turns a product with the factor of a feature that passes into one with `1 - share`.
fn ratio(ieee: Ieee, share: f32, mirror: f32, node: f32) -> f32 {
    ieee.div(ieee.sub(1.0, share), ieee.fma(share, mirror, node))
}

/// Number of ones.
#[cube]
#[inline(always)]
fn ones(x: u32) -> u32 {
    let x = x - ((x >> 1u32) & 0x5555_5555u32);
    let x = (x & 0x3333_3333u32) + ((x >> 2u32) & 0x3333_3333u32);
    let x = (x + (x >> 4u32)) & 0x0f0f_0f0fu32;
    prim::wrapping_mul(x, 0x0101_0101u32) >> 24u32
}

/// Trees and covers, ready to explain rows by.
///
/// ```
/// use detml_kernels::Device;
/// use detml_kernels::ops::forest::{Forest, Node};
/// use detml_kernels::ops::shap::PathDependent;
///
/// let leaf = |value| Node { left: 0, feature: 0, threshold: 0.0, missing_left: true, value };
/// let split = Node { left: 1, feature: 0, threshold: 0.5, missing_left: true, value: 0.0 };
/// let nodes = vec![split, leaf(-1.0), leaf(3.0)];
/// let forest = Forest::new(2, vec![0.25], vec![0, 3], nodes)?;
/// let shap = PathDependent::new(&forest, &[8.0, 6.0, 2.0])?;
/// assert_eq!(shap.expected(), [0.25]);
/// // A row of two features: their values, then the expected margin.
/// let values = shap.values(&Device::cpu(), &[1.0, 7.0], 1)?;
/// assert!((values[0] - 3.0).abs() < 1e-6);
/// assert_eq!(values[1..], [0.0, 0.25]);
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PathDependent {
    paths: Paths,
    shares: Vec<f32>,
    tables: Tables,
    expected: Vec<f32>,
}

/// Trees and a background, ready to explain rows by.
#[derive(Clone, Debug)]
pub struct Interventional {
    paths: Paths,
    /// Where each path's sets start, and where the last one's end.
    starts: Vec<u32>,
    sets: Vec<Set>,
    orders: Vec<f32>,
    expected: Vec<f32>,
}

/// Background rows that pass the same features of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Set {
    passed: u32,
    /// The leaf times their share of the background.
    value: f32,
}

impl PathDependent {
    /// Takes the trees apart. `covers` has a number for each node: what it weighed in training.
    ///
    /// # Errors
    /// `Shape` unless there is a cover for each node; `InvalidValue` for one that isn't finite and 0
    /// or above, or exceeds its parent's by more than a sixteenth; `Unsupported` for more than
    /// [`FEATURES_ON_A_PATH`] different features on a path or more than 2^31 of them on all paths;
    /// `OutOfMemory`.
    pub fn new(forest: &Forest, covers: &[f32]) -> Result<Self> {
        let (paths, shares, expected) = paths::dependent(forest, covers)?;
        let tables = Tables::new(rule::of(paths.longest));
        Ok(Self {
            paths,
            shares,
            tables,
            expected,
        })
    }

    /// Number of features.
    pub fn features(&self) -> usize {
        self.paths.features
    }

    /// Margins of a row.
    pub fn outputs(&self) -> usize {
        self.paths.outputs
    }

    /// The expected margin of each output: what a row is worth of which nothing is known.
    pub fn expected(&self) -> &[f32] {
        &self.expected
    }

    /// The values (rows x outputs x (features + 1)) of features (rows x features), row by row; the
    /// last one of each output is the expected margin. NaN is a missing value.
    ///
    /// # Errors
    /// `Shape` if `x` doesn't fill its rows; `Unsupported` where a GPU would have to hold more than
    /// 2^31 sums for a row; `OutOfMemory`; those of the device.
    pub fn values(&self, device: &Device, x: &[f32], rows: usize) -> Result<Vec<f32>> {
        let paths = &self.paths;
        check(x, rows, paths.features)?;
        let mut out = results(&[rows, paths.outputs, paths.features + 1])?;
        if !paths.is_empty() && rows > 0 {
            match device.simd() {
                Some(simd) => cpu::values(simd, self, x, &mut out),
                None => gpu::values(device, self, x, rows, &mut out)?,
            }
        }
        put_expected(&self.expected, paths.features, &mut out);
        Ok(out)
    }

    /// The interaction values (rows x outputs x (features + 1) x (features + 1)) of features (rows x
    /// features), row by row. Each matrix is symmetric, and its row of a feature sums to the
    /// feature's [value](Self::values) but for rounding; the last element is the expected margin,
    /// the rest of its row and column are 0.
    ///
    /// # Errors
    /// As [`values`](Self::values).
    pub fn interactions(&self, device: &Device, x: &[f32], rows: usize) -> Result<Vec<f32>> {
        let paths = &self.paths;
        check(x, rows, paths.features)?;
        let side = paths.features + 1;
        let mut out = results(&[rows, paths.outputs, side, side])?;
        if !paths.is_empty() && rows > 0 {
            match device.simd() {
                Some(simd) => cpu::interactions(simd, self, x, &mut out)?,
                None => gpu::interactions(device, self, x, rows, &mut out)?,
            }
        }
        put_expected(&self.expected, side * side - 1, &mut out);
        Ok(out)
    }
}

impl Interventional {
    /// Takes the trees apart and sends the background (rows x features, row by row) through them.
    ///
    /// # Errors
    /// `Shape` if `background` doesn't fill its rows, `Empty` if it has none; `Unsupported` as
    /// [`PathDependent::new`], and for more than 2^31 different sets of features that background
    /// rows pass; `OutOfMemory`.
    pub fn new(forest: &Forest, background: &[f32], rows: usize) -> Result<Self> {
        check(background, rows, forest.features())?;
        if rows == 0 {
            return Err(Error::empty("the background"));
        }
        paths::interventional(forest, background, rows)
    }

    /// Number of features.
    pub fn features(&self) -> usize {
        self.paths.features
    }

    /// Margins of a row.
    pub fn outputs(&self) -> usize {
        self.paths.outputs
    }

    /// The mean margin of the background for each output.
    pub fn expected(&self) -> &[f32] {
        &self.expected
    }

    /// As [`PathDependent::values`].
    ///
    /// # Errors
    /// As [`PathDependent::values`].
    pub fn values(&self, device: &Device, x: &[f32], rows: usize) -> Result<Vec<f32>> {
        let paths = &self.paths;
        check(x, rows, paths.features)?;
        let mut out = results(&[rows, paths.outputs, paths.features + 1])?;
        if !paths.is_empty() && rows > 0 {
            match device.simd() {
                Some(simd) => cpu::interventional(simd, self, x, &mut out),
                None => gpu::interventional(device, self, x, rows, &mut out)?,
            }
        }
        put_expected(&self.expected, paths.features, &mut out);
        Ok(out)
    }
}

/// A representative of each variant of every kernel.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    gpu::kernels(profile)
}

fn check(x: &[f32], rows: usize, features: usize) -> Result<()> {
    if rows.checked_mul(features) != Some(x.len()) {
        let expected = format_args!("{rows} x {features}");
        return Err(Error::shape("features", expected, x.len()));
    }
    Ok(())
}

fn results(shape: &[usize]) -> Result<Vec<f32>> {
    // Beyond any memory where the product is beyond any number.
    zeros(shape.iter().fold(1usize, |len, &n| len.saturating_mul(n)))
}

/// Puts the expected margins behind each output's `before` numbers.
fn put_expected(expected: &[f32], before: usize, out: &mut [f32]) {
    if out.is_empty() {
        return;
    }
    out.par_chunks_mut(expected.len() * (before + 1))
        .for_each(|row| {
            for (row, &expected) in row.chunks_exact_mut(before + 1).zip(expected) {
                row[before] = expected;
            }
        });
}
