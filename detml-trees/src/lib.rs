//! Tree ensembles with bitwise identical training and prediction.
//!
//! [`GradientBoosting`] grows depth-wise trees on quantile bins. Its model and predictions have
//! the same bits on every CPU, for any number of threads and on every GPU, and without row sampling
//! for any order of the rows. Prediction always runs on the CPU.
//!
//! [`TreeEnsemble`] is a model of XGBoost, LightGBM, CatBoost or scikit-learn, read by the module
//! [`interop`].

mod binning;
mod boosting;
mod exact;
pub mod interop;

pub use boosting::{
    EvalHistory, GradientBoosting, GradientBoostingModel, Importance, Loss, Metric,
};
pub use interop::TreeEnsemble;
