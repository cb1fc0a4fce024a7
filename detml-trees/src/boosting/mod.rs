mod constraints;
mod eval;
mod fit;
#[cfg(test)]
mod growth_tests;
mod loss;
mod model;
#[cfg(test)]
pub(crate) mod tests;

use detml_core::{Design, DesignRules, Fit, IntoDesign, Progress, Result, Seed};
use detml_kernels::Device;
use detml_kernels::ops::boosting::Growth;

pub use constraints::FeatureRef;
pub use detml_kernels::ops::boosting::GrowPolicy;
pub use eval::{Direction, EvalHistory, Metric};
pub use loss::{ClassWeight, Loss, Objective};
pub use model::{GradientBoostingModel, Importance};

/// Gradient boosting of decision trees.
///
/// Each round grows one tree (with [`Loss::Softmax`] one for each class) on the gradients and
/// Hessians of the loss, depth-wise, leaf-wise or symmetric ([`grow_policy`](Self::grow_policy)), with
/// XGBoost's gain (Chen and Guestrin, "XGBoost: a scalable tree boosting system", KDD 2016) over
/// quantile bins. Defaults are XGBoost's but for the learning rate of 0.1 and 255 bins.
///
/// # Data
/// Features may hold NaN for missing values and infinities, which are values like others. `f64`
/// rounds once to `f32`. Each split learns the side of missing values where its node has any;
/// where it has none, values missing later go to the left. A row of weight 0 is as good as
/// absent. Categories are the numbers of their codes, parted in that order; row groups have no
/// say.
///
/// # What the bits depend on
/// The model is a function of the data and the settings: the device, the instruction set, the
/// number of threads and (with `subsample` 1) the order of the rows don't show. With row sampling,
/// a row's draw depends on its position among the rows of weight above 0. If columns change
/// places, predictions stay as long as no two best splits tie (the lower column wins) and columns
/// aren't sampled.
///
/// On a GPU, large tables without weights are sorted and trees grow on the device; the host cuts
/// features into bins. The fit waits for the device after sorting and at its end, and after each round only to measure eval sets. Predictions run on the
/// current backend; [`predict_margin_on`](GradientBoostingModel::predict_margin_on) and
/// [`predict_proba_on`](GradientBoostingModel::predict_proba_on) take a device and report.
///
/// ```
/// use detml_core::prelude::*;
/// use detml_trees::GradientBoosting;
/// use ndarray::{Array, array};
///
/// let x = Array::from_shape_fn((200, 2), |(i, j)| (i * (j + 3) % 17) as f32);
/// let y = x.map_axis(ndarray::Axis(1), |row| f32::from(row[0] + row[1] > 14.0));
/// let model = GradientBoosting::classifier()
///     .n_trees(20)
///     .max_depth(3)
///     .fit((&x, &y))?;
/// let p = model.predict_proba(array![[16.0, 16.0], [0.0, 1.0]].view())?;
/// assert!(p[[0, 1]] > 0.9 && p[[1, 1]] < 0.1);
/// println!("{} {}", model.bit_hash(), model.report());
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct GradientBoosting {
    classify: bool,
    n_trees: usize,
    max_bins: usize,
    growth: Growth,
    max_leaves: Option<u32>,
    constraints: constraints::Given,
    loss: Option<Loss>,
    objective: Option<loss::Shared>,
    class_weight: Option<ClassWeight>,
    scale_pos_weight: f32,
    base_score: Option<f32>,
    evals: Vec<eval::EvalSet>,
    metric: Option<Metric>,
    custom_metric: Option<eval::Custom>,
    early_stopping_rounds: Option<usize>,
    progress: Progress,
}

impl GradientBoosting {
    fn new(classify: bool) -> Self {
        Self {
            classify,
            n_trees: 100,
            max_bins: 255,
            growth: Growth::default(),
            max_leaves: None,
            constraints: constraints::Given::default(),
            loss: None,
            objective: None,
            class_weight: None,
            scale_pos_weight: 1.0,
            base_score: None,
            evals: Vec::new(),
            metric: None,
            custom_metric: None,
            early_stopping_rounds: None,
            progress: Progress::none(),
        }
    }

    /// For whole-numbered labels, any distinct ones: [`Loss::Logistic`] for two classes, else
    /// [`Loss::Softmax`]. A single class gives a model without trees.
    pub fn classifier() -> Self {
        Self::new(true)
    }

    /// For finite numbers as targets, one or more a row: [`Loss::Squared`] unless another
    /// [`loss`](Self::loss) is asked for.
    ///
    /// ```
    /// use detml_core::prelude::*;
    /// use detml_trees::{GradientBoosting, Loss};
    /// use ndarray::{Array, Array1};
    ///
    /// let x = Array::from_shape_fn((300, 2), |(i, j)| (i * (j + 3) % 17) as f32);
    /// let y: Array1<f32> = (0..300).map(|i| (i * i % 23) as f32).collect();
    /// let model = GradientBoosting::regressor()
    ///     .loss(Loss::Quantile { alpha: 0.9 })
    ///     .n_trees(20)
    ///     .max_depth(3)
    ///     .fit((&x, &y))?;
    /// let p = model.predict(x.view())?;
    /// let covered = p.iter().zip(&y).filter(|(p, y)| y <= p).count();
    /// assert!(covered >= 270);
    /// # Ok::<(), detml_core::Error>(())
    /// ```
    pub fn regressor() -> Self {
        Self::new(false)
    }

    /// Rounds, 1 or more. Default 100. Softmax grows this many trees for each class.
    pub fn n_trees(mut self, n_trees: usize) -> Self {
        self.n_trees = n_trees;
        self
    }

    /// Factor of each tree's values, above 0. Default 0.1.
    pub fn learning_rate(mut self, learning_rate: f32) -> Self {
        self.growth.learning_rate = learning_rate;
        self
    }

    /// Most splits between the root and a leaf, 0 to 32. Default 6. (0 is a tree of one leaf; for
    /// growth that [`max_leaves`](Self::max_leaves) alone bounds, take 32.)
    pub fn max_depth(mut self, max_depth: u32) -> Self {
        self.growth.max_depth = max_depth;
        self
    }

    /// Most leaves of a tree: 2 to 131,072, or 0 for any number. Default 31 (LightGBM's
    /// `num_leaves`) with [`GrowPolicy::LossGuide`], otherwise 0.
    pub fn max_leaves(mut self, max_leaves: u32) -> Self {
        self.max_leaves = Some(max_leaves);
        self
    }

    /// Which splits are made where [`max_leaves`](Self::max_leaves) doesn't leave room for all that
    /// are worth it: level by level, or those that gain most first; or one split for all nodes of a
    /// level. Default [`GrowPolicy::DepthWise`].
    ///
    /// With [`GrowPolicy::Symmetric`] other settings keep their defaults, of which CatBoost has
    /// others: an L2 penalty of 3, `min_child_weight` 0, and a learning rate chosen by the number of
    /// rows.
    ///
    /// ```
    /// use detml_core::prelude::*;
    /// use detml_trees::{GradientBoosting, GrowPolicy};
    /// use ndarray::Array;
    ///
    /// let x = Array::from_shape_fn((500, 3), |(i, j)| (i * (2 * j + 3) % 101) as f32);
    /// let y = x.map_axis(ndarray::Axis(1), |row| row[0] * row[1] / 100.0 + row[2]);
    /// let model = GradientBoosting::regressor()
    ///     .grow_policy(GrowPolicy::LossGuide)
    ///     .max_leaves(8)
    ///     .max_depth(32)
    ///     .n_trees(5)
    ///     .fit((&x, &y))?;
    /// // Eight leaves are seven splits.
    /// let splits: f64 = model.feature_importance(detml_trees::Importance::Splits).iter().sum();
    /// assert_eq!(splits, 35.0);
    /// # Ok::<(), detml_core::Error>(())
    /// ```
    pub fn grow_policy(mut self, grow_policy: GrowPolicy) -> Self {
        self.growth.grow_policy = grow_policy;
        self
    }

    /// Most bins a feature, besides the one of missing values: 2 to 255. Default 255.
    ///
    /// A feature of no more distinct values has a bin for each; otherwise bins hold about equal
    /// weight.
    pub fn max_bins(mut self, max_bins: usize) -> Self {
        self.max_bins = max_bins;
        self
    }

    /// L1 penalty of leaf values (XGBoost's `alpha`), 0 or above. Default 0.
    pub fn l1(mut self, l1: f32) -> Self {
        self.growth.alpha = l1;
        self
    }

    /// L2 penalty of leaf values (XGBoost's `lambda`), 0 or above. Default 1.
    pub fn l2(mut self, l2: f32) -> Self {
        self.growth.lambda = l2;
        self
    }

    /// Least sum of Hessians on each side of a split, 0 or above. Default 1.
    pub fn min_child_weight(mut self, min_child_weight: f32) -> Self {
        self.growth.min_child_weight = min_child_weight;
        self
    }

    /// Least gain of a split (XGBoost's `gamma`), 0 or above. Default 0.
    pub fn min_split_gain(mut self, min_split_gain: f32) -> Self {
        self.growth.gamma = min_split_gain;
        self
    }

    /// Share of the rows that each round draws, above 0 and at most 1. Default 1.
    ///
    /// Each row is drawn on its own with this probability.
    pub fn subsample(mut self, subsample: f32) -> Self {
        self.growth.subsample = subsample;
        self
    }

    /// Share of the features that each tree draws, above 0 and at most 1. Default 1.
    ///
    /// Of `m` features, `max(1, floor(share m))` are drawn.
    pub fn colsample_bytree(mut self, colsample: f32) -> Self {
        self.growth.colsample_bytree = colsample;
        self
    }

    /// Share of the tree's features that each level draws, as
    /// [`colsample_bytree`](Self::colsample_bytree). Default 1.
    pub fn colsample_bylevel(mut self, colsample: f32) -> Self {
        self.growth.colsample_bylevel = colsample;
        self
    }

    /// Share of the level's features that each node draws, as
    /// [`colsample_bytree`](Self::colsample_bytree). Default 1.
    pub fn colsample_bynode(mut self, colsample: f32) -> Self {
        self.growth.colsample_bynode = colsample;
        self
    }

    /// Seed of all draws. Default 0.
    pub fn seed(mut self, seed: Seed) -> Self {
        self.growth.seed = seed;
        self
    }

    /// The margin that every row starts from, finite. By default the best constant or near it, see
    /// each [`Loss`].
    pub fn base_score(mut self, base_score: f32) -> Self {
        self.base_score = Some(base_score);
        self
    }

    /// Follows the metric on this data, round by round; see
    /// [`GradientBoostingModel::history`]. Data that doesn't fit is reported by the fit.
    pub fn eval_set<'a>(mut self, name: impl Into<String>, data: impl IntoDesign<'a>) -> Self {
        self.evals.push(eval::EvalSet::new(name.into(), data));
        self
    }

    /// Stops once the metric on the last eval set hasn't become better for this many rounds (1 or
    /// more), and keeps the rounds up to the best one, the earliest of equals. Default: all
    /// rounds.
    pub fn early_stopping_rounds(mut self, rounds: usize) -> Self {
        self.early_stopping_rounds = Some(rounds);
        self
    }

    /// Told of each round, with the metrics as measures named after the eval sets. It may stop
    /// the fit, which then ends with [`detml_core::Error::Stopped`].
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// How trees grow, defaults that depend on other settings filled in.
    fn growth(&self) -> Growth {
        let default = match self.growth.grow_policy {
            GrowPolicy::LossGuide => 31,
            _ => 0,
        };
        Growth {
            max_leaves: self.max_leaves.unwrap_or(default),
            ..self.growth
        }
    }

    /// As [`Fit::fit_design`] on a given device.
    ///
    /// # Errors
    /// As [`Fit::fit`].
    pub fn fit_on(&self, device: &Device, design: &Design<'_>) -> Result<GradientBoostingModel> {
        design.check(&self.rules())?;
        fit::fit(self, device, design)
    }
}

impl Fit for GradientBoosting {
    type Fitted = GradientBoostingModel;

    fn rules(&self) -> DesignRules {
        let rules = DesignRules::supervised().allow_nan().allow_infinite();
        match self.classify {
            true => rules,
            false => rules.many_targets(),
        }
    }

    fn fit_design(&self, design: &Design<'_>) -> Result<GradientBoostingModel> {
        fit::fit(self, &Device::current()?, design)
    }
}
