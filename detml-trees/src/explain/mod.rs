//! Why a model predicts what it does.
//!
//! - [`ExplainTrees`]: Shapley values of tree ensembles (SHAP), path-dependent or against a
//!   background, and interaction values; on CPUs and GPUs with the same bits. [`TreeExplainer`]
//!   keeps what is made of the trees for further calls.
//! - [`PermutationImportance`]: what shuffling a feature costs, for any model.
//! - [`PartialDependence`]: how predictions move with a feature, on average and row by row.
//!
//! [`GradientBoostingModel::feature_importance`](crate::GradientBoostingModel::feature_importance)
//! ranks features by their splits.
//!
//! ```
//! use detml_core::prelude::*;
//! use detml_trees::GradientBoosting;
//! use detml_trees::explain::ExplainTrees;
//! use ndarray::Array;
//!
//! let x = Array::from_shape_fn((200, 3), |(i, j)| (i * (j + 3) % 17) as f32);
//! let y = x.map_axis(ndarray::Axis(1), |row| 2.0 * row[0] - row[1]);
//! let model = GradientBoosting::regressor().n_trees(10).fit((&x, &y))?;
//! let values = model.shap_values(x.view())?;
//! // Rows x outputs x (features and the expected margin).
//! assert_eq!(values.shape(), [200, 1, 4]);
//! let margin = model.predict_margin(x.view())?;
//! assert!((values.sum_axis(ndarray::Axis(2)) - margin).iter().all(|d| d.abs() < 1e-4));
//! # Ok::<(), detml_core::Error>(())
//! ```

mod dependence;
mod permutation;
#[cfg(test)]
mod tests;

pub use dependence::{Dependence, PartialDependence};
pub use permutation::{PermutationImportance, PermutationImportances};

use crate::forest::{rules, standard, timed};
use detml_core::{Error, ExecutionReport, Result};
use detml_kernels::Device;
use detml_kernels::ops::forest::Forest;
use detml_kernels::ops::shap::{Interventional, PathDependent};
use ndarray::{Array3, Array4, ArrayView2};

/// A model that is a sum of decision trees, and its explanations by Shapley values.
///
/// Values explain margins: predictions of a regressor, log-odds of a classifier. Of a row, a
/// feature's value is what it adds to the margin, and values and the expected margin sum to the
/// margin but for rounding. What exactly they are, and in which order sums are taken, is stated by
/// [`detml_kernels::ops::shap`]. Missing values are NaN.
///
/// The methods take the trees apart on each call; [`TreeExplainer`] does so once.
pub trait ExplainTrees {
    /// The trees.
    fn forest(&self) -> &Forest;

    /// What each node weighed in training (the sum of its rows' Hessians or weights), if known.
    fn covers(&self) -> Option<&[f32]>;

    /// The values (rows x outputs x (features + 1)) of `x` (rows x features), the expected margin
    /// last: path-dependent, as `shap.TreeExplainer` without data and XGBoost's `pred_contribs`.
    ///
    /// It runs on the current backend; the bits are the same on all.
    ///
    /// # Errors
    /// [`Error::FeatureMismatch`] for another number of columns; [`Error::Unsupported`] without
    /// covers, for more than 32 different features on a path, or more sums than a GPU indexes;
    /// [`Error::InvalidValue`] for covers that no training gives; those of the backend.
    fn shap_values(&self, x: ArrayView2<'_, f32>) -> Result<Array3<f32>> {
        Ok(self.shap_values_on(&Device::current()?, x)?.0)
    }

    /// As [`shap_values`](Self::shap_values) on a given device, and what ran where.
    ///
    /// # Errors
    /// As [`shap_values`](Self::shap_values).
    fn shap_values_on(
        &self,
        device: &Device,
        x: ArrayView2<'_, f32>,
    ) -> Result<(Array3<f32>, ExecutionReport)> {
        TreeExplainer::path_dependent(self)?.shap_values_on(device, x)
    }

    /// The interaction values (rows x outputs x (features + 1) x (features + 1)) of `x` (rows x
    /// features): matrices that are symmetric and whose rows sum to the features' values but for
    /// rounding, the expected margin as last element; as `shap_interaction_values` and XGBoost's
    /// `pred_interactions`. Runs on the current backend.
    ///
    /// # Errors
    /// As [`shap_values`](Self::shap_values).
    fn shap_interaction_values(&self, x: ArrayView2<'_, f32>) -> Result<Array4<f32>> {
        Ok(self.shap_interaction_values_on(&Device::current()?, x)?.0)
    }

    /// As [`shap_interaction_values`](Self::shap_interaction_values) on a given device, and what
    /// ran where.
    ///
    /// # Errors
    /// As [`shap_values`](Self::shap_values).
    fn shap_interaction_values_on(
        &self,
        device: &Device,
        x: ArrayView2<'_, f32>,
    ) -> Result<(Array4<f32>, ExecutionReport)> {
        TreeExplainer::path_dependent(self)?.shap_interaction_values_on(device, x)
    }

    /// The values (rows x outputs x (features + 1)) of `x` against a background, both rows x
    /// features; the background's mean margin last. As `shap.TreeExplainer` with data, but that
    /// every row of the background counts. Needs no covers. Runs on the current backend.
    ///
    /// # Errors
    /// As [`shap_values`](Self::shap_values); [`Error::Empty`] for a background without rows.
    fn interventional_shap(
        &self,
        x: ArrayView2<'_, f32>,
        background: ArrayView2<'_, f32>,
    ) -> Result<Array3<f32>> {
        let device = Device::current()?;
        Ok(self.interventional_shap_on(&device, x, background)?.0)
    }

    /// As [`interventional_shap`](Self::interventional_shap) on a given device, and what ran
    /// where.
    ///
    /// # Errors
    /// As [`interventional_shap`](Self::interventional_shap).
    fn interventional_shap_on(
        &self,
        device: &Device,
        x: ArrayView2<'_, f32>,
        background: ArrayView2<'_, f32>,
    ) -> Result<(Array3<f32>, ExecutionReport)> {
        TreeExplainer::interventional(self, background)?.shap_values_on(device, x)
    }
}

/// Trees taken apart, to explain rows by as often as wanted.
///
/// ```
/// use detml_core::prelude::*;
/// use detml_trees::GradientBoosting;
/// use detml_trees::explain::TreeExplainer;
/// use ndarray::{Array, s};
///
/// let x = Array::from_shape_fn((100, 2), |(i, j)| (i * (j + 3) % 17) as f32);
/// let y = x.column(0).to_owned();
/// let model = GradientBoosting::regressor().n_trees(5).fit((&x, &y))?;
/// let explainer = TreeExplainer::interventional(&model, x.slice(s![..50, ..]))?;
/// let first = explainer.shap_values(x.slice(s![..1, ..]))?;
/// let all = explainer.shap_values(x.view())?;
/// assert_eq!(first, all.slice(s![..1, .., ..]));
/// assert_eq!(first[[0, 0, 2]], explainer.expected_values()[0]);
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TreeExplainer {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    PathDependent(PathDependent),
    Interventional(Interventional),
}

impl TreeExplainer {
    /// Explains by the covers of training (`feature_perturbation="tree_path_dependent"`).
    ///
    /// # Errors
    /// As [`ExplainTrees::shap_values`].
    pub fn path_dependent<M: ExplainTrees + ?Sized>(model: &M) -> Result<Self> {
        let Some(covers) = model.covers() else {
            return Err(Error::unsupported(
                "path-dependent SHAP of a model without covers",
                "`interventional` explains it against a background",
            ));
        };
        Ok(Self {
            kind: Kind::PathDependent(PathDependent::new(model.forest(), covers)?),
        })
    }

    /// Explains against a background (rows x features; `feature_perturbation="interventional"`).
    ///
    /// # Errors
    /// As [`ExplainTrees::interventional_shap`].
    pub fn interventional<M: ExplainTrees + ?Sized>(
        model: &M,
        background: ArrayView2<'_, f32>,
    ) -> Result<Self> {
        let forest = model.forest();
        rules().check_features(background, forest.features())?;
        let rows = background.nrows();
        let background = standard(background);
        let background = background.as_slice().unwrap_or_default();
        Ok(Self {
            kind: Kind::Interventional(Interventional::new(forest, background, rows)?),
        })
    }

    /// The expected margin of each output.
    #[must_use]
    pub fn expected_values(&self) -> &[f32] {
        match &self.kind {
            Kind::PathDependent(shap) => shap.expected(),
            Kind::Interventional(shap) => shap.expected(),
        }
    }

    fn features(&self) -> usize {
        match &self.kind {
            Kind::PathDependent(shap) => shap.features(),
            Kind::Interventional(shap) => shap.features(),
        }
    }

    /// As [`ExplainTrees::shap_values`].
    ///
    /// # Errors
    /// As [`ExplainTrees::shap_values`].
    pub fn shap_values(&self, x: ArrayView2<'_, f32>) -> Result<Array3<f32>> {
        Ok(self.shap_values_on(&Device::current()?, x)?.0)
    }

    /// As [`ExplainTrees::shap_values_on`].
    ///
    /// # Errors
    /// As [`ExplainTrees::shap_values`].
    pub fn shap_values_on(
        &self,
        device: &Device,
        x: ArrayView2<'_, f32>,
    ) -> Result<(Array3<f32>, ExecutionReport)> {
        rules().check_features(x, self.features())?;
        let rows = x.nrows();
        let x = standard(x);
        let x = x.as_slice().unwrap_or_default();
        let mut report = ExecutionReport::new();
        let values = timed(&mut report, "shap values", device, || match &self.kind {
            Kind::PathDependent(shap) => shap.values(device, x, rows),
            Kind::Interventional(shap) => shap.values(device, x, rows),
        })?;
        let shape = (rows, self.expected_values().len(), self.features() + 1);
        let values = Array3::from_shape_vec(shape, values)
            .map_err(|error| Error::internal(format!("shap values: {error}")))?;
        Ok((values, report))
    }

    /// As [`ExplainTrees::shap_interaction_values`]; for a path-dependent explainer.
    ///
    /// # Errors
    /// As [`ExplainTrees::shap_values`]; [`Error::Unsupported`] for an interventional explainer.
    pub fn shap_interaction_values(&self, x: ArrayView2<'_, f32>) -> Result<Array4<f32>> {
        Ok(self.shap_interaction_values_on(&Device::current()?, x)?.0)
    }

    /// As [`ExplainTrees::shap_interaction_values_on`]; for a path-dependent explainer.
    ///
    /// # Errors
    /// As [`shap_interaction_values`](Self::shap_interaction_values).
    pub fn shap_interaction_values_on(
        &self,
        device: &Device,
        x: ArrayView2<'_, f32>,
    ) -> Result<(Array4<f32>, ExecutionReport)> {
        let Kind::PathDependent(shap) = &self.kind else {
            return Err(Error::unsupported(
                "interaction values against a background",
                "`path_dependent` gives those of the training's covers",
            ));
        };
        rules().check_features(x, self.features())?;
        let rows = x.nrows();
        let x = standard(x);
        let x = x.as_slice().unwrap_or_default();
        let mut report = ExecutionReport::new();
        let values = timed(&mut report, "shap interaction values", device, || {
            shap.interactions(device, x, rows)
        })?;
        let side = self.features() + 1;
        let shape = (rows, self.expected_values().len(), side, side);
        let values = Array4::from_shape_vec(shape, values)
            .map_err(|error| Error::internal(format!("shap interaction values: {error}")))?;
        Ok((values, report))
    }
}
