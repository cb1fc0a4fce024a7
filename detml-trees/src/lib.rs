//! Tree ensembles with bitwise identical training and prediction.
//!
//! [`GradientBoosting`] grows trees on quantile bins, depth-wise, leaf-wise or symmetric, with monotone and
//! interaction constraints if need be. Its model and predictions have
//! the same bits on every CPU, for any number of threads and on every GPU, and without row sampling
//! for any order of the rows. [`explain`] says what each feature adds to a prediction.
//!
//! [`TreeEnsemble`] is a model of XGBoost, LightGBM, CatBoost or scikit-learn, read by the module
//! [`interop`].

mod binning;
mod boosting;
mod exact;
pub mod explain;
mod forest;
pub mod interop;

pub use boosting::{
    ClassWeight, Direction, EvalHistory, FeatureRef, GradientBoosting, GradientBoostingModel,
    GrowPolicy, Importance, Loss, Metric, Objective,
};
pub use interop::TreeEnsemble;
