//! Tree ensembles with bitwise identical training and prediction.
//!
//! [`GradientBoosting`] grows trees on quantile bins, depth-wise, leaf-wise or symmetric, with monotone and
//! interaction constraints if need be. Its model and predictions have
//! the same bits on every CPU, for any number of threads and on every GPU, and without row sampling
//! for any order of the rows. Prediction always runs on the CPU.

mod binning;
mod boosting;
mod exact;

pub use boosting::{
    EvalHistory, FeatureRef, GradientBoosting, GradientBoostingModel, GrowPolicy, Importance, Loss,
    Metric,
};
