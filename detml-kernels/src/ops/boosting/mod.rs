//! Gradient boosting of trees on binned features.
//!
//! A [`Booster`] holds the training set on a device and grows one round of trees at a time. Its
//! bits are a function of the bins, targets, weights and settings alone: neither the device, nor
//! the number of threads, nor (without row sampling) the order of the rows shows.
//!
//! # Why the sums are exact (`N9`)
//! In each round and for each output, gradients are scaled by the largest power of two `2^s` with
//! `|g| 2^s < 2^30` for every row, and rounded to integers, ties to even; Hessians likewise with
//! their own power. The largest magnitude is an integer maximum of bit patterns, so it depends on
//! no order. A sum over any set of fewer than `2^32` rows is below `2^62` in magnitude: it fits
//! 64 bits, and so does the difference of two such sums over nested sets. Hence every histogram
//! entry, prefix sum, and sibling (parent minus child) is the exact integer, in whatever order,
//! on however many threads, from however many shards it is made.
//!
//! # The choice of a split
//! Sums become binary32 only in the score. With `G` and `H` the sums of a side (nearest binary32
//! to the integer, times `2^-30`, so that a unit is the power of two just above the largest
//! gradient or Hessian), `lambda`, `alpha`, `gamma` and the least weight scaled to these units by
//! exact powers of two:
//!
//! ```text
//! shrink(G) = sign(G) max(|G| - alpha, 0)
//! score     = shrink(G)^2 / (H + lambda)
//! split     = score(left) + score(right)        both H > 0 and >= least weight, else none
//! gain      = split - score(node)
//! leaf      = -shrink(G) / (H + lambda) * unit of G / unit of H * learning rate
//! ```
//! As `|G| < 2^32` and `H` is 0 or in `2^-30 ..= 2^32`, nothing overflows. The best split of a
//! node has the highest `split`; ties go to the lowest feature, then the lowest bin, then missing
//! values to the left (`N10`). It is made if `gain >= gamma` and `gain > score(node) 2^-20`: below
//! that it is rounding of the scores. XGBoost's gain is the same; its guard is an absolute 1e-6.
//!
//! A split sends bins up to and including its own to the left. Missing values go to the better
//! side. A node without missing rows (more exactly, whose missing rows have sums of zero) gives
//! both sides the same integers, so the tie sends later missing values to the left: this never
//! depends on a rounding residue.
//!
//! # Leaves as quantiles
//! The absolute, quantile and absolute percentage errors have no curvature of their own: their
//! trees grow on the gradient with a Hessian of the weight, and then each leaf's value is the
//! learning rate times a quantile of the residuals `y - margin` of its drawn rows, as LightGBM and
//! XGBoost do. Row weights (for the percentage error `w / max(1, |y|)`) are rounded to integers in
//! units of the power of two that puts the largest into `2^29 ..= 2^30`, none to less than 1. The
//! value is the least residual that reaches, together with all lower ones, the share `alpha` of the
//! leaf's total weight: `ceil(total * round(alpha * 2^32) / 2^32)` in exact integers. There is no
//! interpolation (numpy's `inverted_cdf`); equal residuals count together, so no order shows. Only a
//! root of which no row was drawn has no residual: its value is 0. These leaves have no `lambda` and
//! no `alpha` taken off.
//!
//! # Which splits are made
//! Which of the splits that are worth it are made, where leaves are few, is told by
//! [`GrowPolicy`]; what features may do by [`Constraints`].

mod arith;
mod bounded;
mod constraints;
mod cpu;
mod formulas;
mod gpu;
mod guide;
mod link;
mod loss;
#[cfg(test)]
mod plain;
mod renewal;
mod sampling;
mod symmetric;
#[cfg(test)]
mod tests;

use crate::device::Device;
use detml_core::{Error, Result, Seed};

pub use constraints::Constraints;
pub(crate) use gpu::kernels;
pub use guide::GrowPolicy;
pub(crate) use link::link_kernels;
pub use link::{predictions, probabilities};
pub use loss::Loss;
pub use renewal::best_quantile;

/// The code of a missing value; other codes count bins from 0.
pub const MISSING: u8 = 255;

/// Binned features, row by row.
#[derive(Clone, Debug)]
pub struct Bins {
    rows: usize,
    codes: Vec<u8>,
    counts: Vec<u16>,
}

impl Bins {
    /// `codes` row by row, one for each feature of `counts`, which says how many bins a feature
    /// has (at most 255; 0 if all its values are missing).
    ///
    /// # Errors
    /// `Shape` if the codes don't fill the rows; `InvalidValue` for a code that is neither a bin
    /// of its feature nor [`MISSING`]; `Unsupported` for `2^32 - 1` rows or more.
    pub fn new(rows: usize, codes: Vec<u8>, counts: Vec<u16>) -> Result<Self> {
        if rows >= u32::MAX as usize {
            return Err(Error::unsupported(
                format!("boosting on {rows} rows"),
                "row indices are 32 bits wide",
            ));
        }
        if rows.checked_mul(counts.len()) != Some(codes.len()) {
            return Err(Error::shape(
                "bins",
                format_args!("{rows} x {}", counts.len()),
                codes.len(),
            ));
        }
        if let Some(&count) = counts.iter().find(|&&count| count > 255) {
            return Err(Error::shape("bins of a feature", "at most 255", count));
        }
        if !counts.is_empty() {
            for (row, codes) in codes.chunks_exact(counts.len()).enumerate() {
                let bad =
                    |(&code, &count): (&u8, &u16)| code != MISSING && u16::from(code) >= count;
                // No early exit inside a row, so that the common case is one vector loop.
                if codes
                    .iter()
                    .zip(&counts)
                    .fold(false, |any, pair| any | bad(pair))
                {
                    return Err(Error::InvalidValue {
                        what: "bins".into(),
                        row,
                        expected: "codes below the number of bins of their features".into(),
                        got: format!("{codes:?}"),
                    });
                }
            }
        }
        Ok(Self {
            rows,
            codes,
            counts,
        })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of features.
    pub fn features(&self) -> usize {
        self.counts.len()
    }

    /// Number of bins of each feature.
    pub fn counts(&self) -> &[u16] {
        &self.counts
    }

    /// The codes, row by row.
    pub fn codes(&self) -> &[u8] {
        &self.codes
    }
}

/// How trees grow. All numbers are finite and not negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Splits between the root and a leaf, at most 32.
    pub max_depth: u32,
    /// Leaves at most: 0 for any number, else 2 to [`MAX_LEAVES`](Self::MAX_LEAVES).
    pub max_leaves: u32,
    /// Which splits are made if `max_leaves` doesn't leave room for all of them.
    pub grow_policy: GrowPolicy,
    /// Factor of every leaf.
    pub learning_rate: f32,
    /// L2 penalty of leaf values.
    pub lambda: f32,
    /// L1 penalty of leaf values.
    pub alpha: f32,
    /// Least gain of a split.
    pub gamma: f32,
    /// Least sum of Hessians on each side of a split.
    pub min_child_weight: f32,
    /// Share of rows that each round draws.
    pub subsample: f32,
    /// Share of features that each tree draws.
    pub colsample_bytree: f32,
    /// Share of the tree's features that each level draws.
    pub colsample_bylevel: f32,
    /// Share of the level's features that each node draws.
    pub colsample_bynode: f32,
    /// Seed of all draws.
    pub seed: Seed,
}

/// A node of a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// Index of the left child, the right one follows it; 0 for a leaf.
    pub left: u32,
    /// The feature that is split (0 for a leaf).
    pub feature: u32,
    /// The last bin that goes to the left (0 for a leaf).
    pub bin: u8,
    /// Whether missing values go to the left (true for a leaf).
    pub missing_left: bool,
    /// What a leaf adds to the margin (0 for an inner node).
    pub value: f32,
    /// What the split gains: twice the fall of the loss (0 for a leaf).
    pub gain: f32,
    /// Sum of the Hessians of the node's rows.
    pub cover: f32,
}

/// A grown tree: nodes level by level, the root first, children in the order of their parents.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// The nodes.
    pub nodes: Vec<Node>,
}

/// Rows to train on or to follow.
#[derive(Clone, Debug)]
pub struct Table {
    /// The binned features.
    pub bins: Bins,
    /// One target a row, the class number for classifying losses; or, target by target, the
    /// several targets of each row.
    pub targets: Vec<f32>,
    /// One weight a row, finite and above 0; all 1 if absent.
    pub weights: Option<Vec<f32>>,
}

impl Table {
    fn check(&self, counts: &[u16], loss: Loss) -> Result<()> {
        let rows = self.bins.rows;
        if self.bins.counts != counts {
            return Err(Error::shape(
                "bins of an eval set",
                format_args!("the {} features of the training set", counts.len()),
                format_args!("{} features, binned otherwise", self.bins.features()),
            ));
        }
        if Some(self.targets.len()) != rows.checked_mul(loss.targets()) {
            let expected = format_args!("{rows} x {}", loss.targets());
            return Err(Error::shape("targets", expected, self.targets.len()));
        }
        loss.check_targets(&self.targets)?;
        let Some(weights) = &self.weights else {
            return Ok(());
        };
        if weights.len() != rows {
            return Err(Error::shape("weights", rows, weights.len()));
        }
        if let Some(row) = weights.iter().position(|w| !(w.is_finite() && *w > 0.0)) {
            return Err(Error::InvalidValue {
                what: "weights".into(),
                row,
                expected: "a finite number above 0".into(),
                got: weights[row].to_string(),
            });
        }
        Ok(())
    }
}

/// The growing model and its training set on a device.
pub struct Booster {
    inner: Inner,
    /// Number of eval sets.
    evals: usize,
    loss: Loss,
    rows: usize,
}

enum Inner {
    Cpu(Box<cpu::Cpu>),
    Gpu(Box<gpu::Gpu>),
    #[cfg(test)]
    Plain(Box<plain::Plain>, Vec<Tree>),
}

impl Booster {
    /// Puts the training set and the eval sets on the device. `base` is the margin that each
    /// output starts from.
    ///
    /// # Errors
    /// `Empty` without a training row; `Shape`, `InvalidValue` and `LabelOutOfRange` for tables
    /// that don't fit the loss or each other; `InvalidParameter` for growth outside its domain;
    /// `OutOfMemory` and the device's other errors.
    pub fn new(
        device: &Device,
        train: Table,
        evals: Vec<Table>,
        loss: Loss,
        base: &[f32],
        growth: Growth,
    ) -> Result<Self> {
        let free = Constraints::default();
        Self::constrained(device, train, evals, loss, base, growth, &free)
    }

    /// As [`new`](Self::new), with constraints.
    ///
    /// # Errors
    /// Those of [`new`](Self::new) and of [`Constraints`]' checks.
    pub fn constrained(
        device: &Device,
        train: Table,
        evals: Vec<Table>,
        loss: Loss,
        base: &[f32],
        growth: Growth,
        constraints: &Constraints,
    ) -> Result<Self> {
        check(&train, &evals, loss, base, &growth)?;
        constraints.check(train.bins.features())?;
        constraints.check_with(&growth)?;
        constraints.check_loss(loss)?;
        let (sets, rows) = (evals.len(), train.bins.rows);
        let inner = match device.simd() {
            Some(simd) => Inner::Cpu(Box::new(cpu::Cpu::new(
                simd,
                train,
                evals,
                loss,
                &start(loss, base),
                growth,
                constraints,
            ))),
            None => {
                let schedule = gpu::Schedule::new(device, train.bins.rows, train.bins.features());
                let gpu = gpu::Gpu::new(
                    device,
                    train,
                    evals,
                    loss,
                    &start(loss, base),
                    growth,
                    constraints,
                    schedule,
                )?;
                Inner::Gpu(Box::new(gpu))
            }
        };
        Ok(Self {
            inner,
            evals: sets,
            loss,
            rows,
        })
    }

    /// As [`constrained`](Self::constrained), on a GPU with another schedule.
    #[cfg(test)]
    fn scheduled(
        device: &Device,
        train: Table,
        evals: Vec<Table>,
        loss: Loss,
        base: &[f32],
        growth: Growth,
        constraints: &Constraints,
        change: impl Fn(&mut gpu::Schedule),
    ) -> Result<Self> {
        if device.is_cpu() {
            return Self::constrained(device, train, evals, loss, base, growth, constraints);
        }
        check(&train, &evals, loss, base, &growth)?;
        constraints.check(train.bins.features())?;
        constraints.check_with(&growth)?;
        constraints.check_loss(loss)?;
        let (sets, rows) = (evals.len(), train.bins.rows);
        let mut schedule = gpu::Schedule::new(device, train.bins.rows, train.bins.features());
        change(&mut schedule);
        let gpu = gpu::Gpu::new(
            device,
            train,
            evals,
            loss,
            &start(loss, base),
            growth,
            constraints,
            schedule,
        )?;
        Ok(Self {
            inner: Inner::Gpu(Box::new(gpu)),
            evals: sets,
            loss,
            rows,
        })
    }

    /// The readable reference.
    #[cfg(test)]
    fn plain(
        train: Table,
        evals: Vec<Table>,
        loss: Loss,
        base: &[f32],
        growth: Growth,
        constraints: &Constraints,
    ) -> Result<Self> {
        check(&train, &evals, loss, base, &growth)?;
        constraints.check(train.bins.features())?;
        constraints.check_with(&growth)?;
        constraints.check_loss(loss)?;
        let constraints = constraints.clone();
        Ok(Self {
            evals: evals.len(),
            loss,
            rows: train.bins.rows,
            inner: Inner::Plain(
                Box::new(plain::Plain::new(
                    train,
                    evals,
                    loss,
                    &start(loss, base),
                    growth,
                    constraints,
                )),
                Vec::new(),
            ),
        })
    }

    /// Grows one tree for each output. On a GPU this only asks for it.
    ///
    /// # Errors
    /// `NonFinite` if a gradient or Hessian overflowed; those of the device. On a GPU either may
    /// come later, from a method that waits. `Unsupported` with [`Loss::Given`].
    pub fn round(&mut self) -> Result<()> {
        if self.loss == Loss::Given {
            return Err(Error::unsupported(
                "a round without gradients",
                "give them to `round_with`",
            ));
        }
        self.grow()
    }

    /// With [`Loss::Given`], grows a tree on these gradients and Hessians, one of each a row of the
    /// training set, already multiplied by the weights. A GPU gets them uploaded.
    ///
    /// # Errors
    /// `Unsupported` with another loss; `Shape` unless there is one of each a row; `InvalidValue`
    /// for a Hessian below 0; else as [`round`](Self::round).
    pub fn round_with(&mut self, g: &[f32], h: &[f32]) -> Result<()> {
        if self.loss != Loss::Given {
            return Err(Error::unsupported(
                format!("gradients from outside for {:?}", self.loss),
                "that is what `Loss::Given` is for",
            ));
        }
        for (what, values) in [("gradients", g), ("hessians", h)] {
            if values.len() != self.rows {
                return Err(Error::shape(what, self.rows, values.len()));
            }
        }
        if let Some(row) = h.iter().position(|&h| h < 0.0) {
            return Err(Error::InvalidValue {
                what: "hessians".into(),
                row,
                expected: "0 or above".into(),
                got: h[row].to_string(),
            });
        }
        match &mut self.inner {
            Inner::Cpu(cpu) => cpu.give(g, h),
            Inner::Gpu(gpu) => gpu.give(g, h)?,
            #[cfg(test)]
            Inner::Plain(plain, _) => plain.give(g, h),
        }
        self.grow()
    }

    fn grow(&mut self) -> Result<()> {
        match &mut self.inner {
            Inner::Cpu(cpu) => cpu.round(),
            Inner::Gpu(gpu) => gpu.round(),
            #[cfg(test)]
            Inner::Plain(plain, trees) => {
                trees.extend(plain.round()?);
                Ok(())
            }
        }
    }

    /// For measurements: asks for the root's histograms again, on a GPU; false elsewhere. The
    /// booster is of no other use then.
    #[doc(hidden)]
    pub fn rebuild_root(&mut self) -> Result<bool> {
        match &mut self.inner {
            Inner::Gpu(gpu) => gpu.rebuild_root().map(|()| true),
            _ => Ok(false),
        }
    }

    /// The trees grown since the last call, round by round, output by output. Waits for them.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub fn take_trees(&mut self) -> Result<Vec<Tree>> {
        match &mut self.inner {
            Inner::Cpu(cpu) => Ok(cpu.take_trees()),
            Inner::Gpu(gpu) => gpu.take_trees(),
            #[cfg(test)]
            Inner::Plain(_, trees) => Ok(std::mem::take(trees)),
        }
    }

    /// The margins of the training set, output by output. Waits for them.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub fn margins(&self) -> Result<Vec<f32>> {
        match &self.inner {
            Inner::Cpu(cpu) => Ok(cpu.margins()),
            Inner::Gpu(gpu) => gpu.margins(),
            #[cfg(test)]
            Inner::Plain(plain, _) => Ok(plain.margins(0).to_vec()),
        }
    }

    /// The margins of an eval set, output by output. Waits for them.
    ///
    /// # Errors
    /// As [`round`](Self::round); `InvalidParameter` if there is no such set.
    pub fn eval_margins(&self, set: usize) -> Result<Vec<f32>> {
        if set >= self.evals {
            let expected = format_args!("one of {} eval sets, counted from 0", self.evals);
            return Err(Error::parameter("set", expected, set));
        }
        match &self.inner {
            Inner::Cpu(cpu) => Ok(cpu.eval_margins(set).to_vec()),
            Inner::Gpu(gpu) => gpu.eval_margins(set),
            #[cfg(test)]
            Inner::Plain(plain, _) => Ok(plain.margins(set + 1).to_vec()),
        }
    }
}

/// A base margin, never -0 where leaves of 0 have to leave margins as they are.
fn start(loss: Loss, base: &[f32]) -> Vec<f32> {
    let plain = |&b: &f32| if b == 0.0 { 0.0 } else { b };
    match loss.renewed_quantile() {
        Some(_) => base.iter().map(plain).collect(),
        None => base.to_vec(),
    }
}

/// The first row whose gradient or Hessian isn't finite, and that number.
fn first_not_finite(g: &[f32], h: &[f32]) -> Option<(usize, f32)> {
    let mut pairs = g.iter().zip(h).enumerate();
    pairs.find_map(|(row, (&g, &h))| Some((row, [g, h].into_iter().find(|x| !x.is_finite())?)))
}

/// A round whose gradients overflowed.
fn not_finite(round: u32, row: usize, column: usize, got: f32) -> Error {
    Error::NonFinite {
        what: format!("gradients of round {round}"),
        row,
        column,
        got: f64::from(got),
    }
}

fn check(train: &Table, evals: &[Table], loss: Loss, base: &[f32], growth: &Growth) -> Result<()> {
    if train.bins.rows == 0 {
        return Err(Error::empty("training set (rows)"));
    }
    loss.check()?;
    for table in std::iter::once(train).chain(evals) {
        table.check(&train.bins.counts, loss)?;
    }
    if base.len() != loss.outputs() {
        return Err(Error::shape("base margins", loss.outputs(), base.len()));
    }
    if let Some(base) = base.iter().find(|base| !base.is_finite()) {
        return Err(Error::parameter("base", "finite margins", base));
    }
    growth.check()
}

/// XGBoost's defaults, but for a learning rate of 0.1 and the seed 0.
impl Default for Growth {
    fn default() -> Self {
        Self {
            max_depth: 6,
            max_leaves: 0,
            grow_policy: GrowPolicy::DepthWise,
            learning_rate: 0.1,
            lambda: 1.0,
            alpha: 0.0,
            gamma: 0.0,
            min_child_weight: 1.0,
            subsample: 1.0,
            colsample_bytree: 1.0,
            colsample_bylevel: 1.0,
            colsample_bynode: 1.0,
            seed: Seed(0),
        }
    }
}

impl Growth {
    /// Deepest tree.
    pub const MAX_DEPTH: u32 = 32;
    /// Deepest symmetric tree, as in CatBoost.
    pub const MAX_SYMMETRIC_DEPTH: u32 = 16;
    /// The highest `max_leaves`, as in LightGBM.
    pub const MAX_LEAVES: u32 = 1 << 17;

    /// Whether all nodes of a level have one split.
    fn symmetric(&self) -> bool {
        self.grow_policy == GrowPolicy::Symmetric
    }

    /// Checks the domain of each setting.
    ///
    /// # Errors
    /// `InvalidParameter`, naming the setting as builders do.
    pub fn check(&self) -> Result<()> {
        if self.max_depth > Self::MAX_DEPTH {
            let expected = format_args!("at most {}", Self::MAX_DEPTH);
            return Err(Error::parameter("max_depth", expected, self.max_depth));
        }
        if self.max_leaves == 1 || self.max_leaves > Self::MAX_LEAVES {
            let expected = format_args!("0 for any number, or 2 to {}", Self::MAX_LEAVES);
            return Err(Error::parameter("max_leaves", expected, self.max_leaves));
        }
        if self.symmetric() {
            if self.max_depth > Self::MAX_SYMMETRIC_DEPTH {
                return Err(Error::parameter(
                    "max_depth",
                    format_args!("at most {} of symmetric trees", Self::MAX_SYMMETRIC_DEPTH),
                    self.max_depth,
                ));
            }
            if self.max_leaves != 0 {
                return Err(Error::parameter(
                    "max_leaves",
                    "0 with symmetric trees, which `max_depth` limits",
                    self.max_leaves,
                ));
            }
            if self.colsample_bynode != 1.0 {
                return Err(Error::parameter(
                    "colsample_bynode",
                    "1 with symmetric trees, whose nodes share a split",
                    self.colsample_bynode,
                ));
            }
        }
        for (name, value) in [
            ("l1", self.alpha),
            ("l2", self.lambda),
            ("min_split_gain", self.gamma),
            ("min_child_weight", self.min_child_weight),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::parameter(name, "a finite number, 0 or above", value));
            }
        }
        if !(self.learning_rate.is_finite() && self.learning_rate > 0.0) {
            return Err(Error::parameter(
                "learning_rate",
                "a finite number above 0",
                self.learning_rate,
            ));
        }
        for (name, value) in [
            ("subsample", self.subsample),
            ("colsample_bytree", self.colsample_bytree),
            ("colsample_bylevel", self.colsample_bylevel),
            ("colsample_bynode", self.colsample_bynode),
        ] {
            if !(value > 0.0 && value <= 1.0) {
                return Err(Error::parameter(name, "a share above 0, at most 1", value));
            }
        }
        Ok(())
    }
}
