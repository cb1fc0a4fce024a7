//! Tree ensembles with bitwise identical training and prediction.
//!
//! [`GradientBoosting`] grows depth-wise trees on quantile bins. Its model and predictions have
//! the same bits on every CPU and for any number of threads, and without row sampling for any
//! order of the rows. Training on a GPU is refused with an error, yet; prediction always runs on
//! the CPU.

mod binning;
mod boosting;
mod exact;

pub use boosting::{
    EvalHistory, GradientBoosting, GradientBoostingModel, Importance, Loss, Metric,
};
