//! Data, errors, estimator traits, model files and bit hashes of detml.
//!
//! This crate holds what every other crate of detml agrees on and no operation that needs a
//! device:
//!
//! - [`Error`] and [`Result`], one error type for the whole ecosystem;
//! - [`Backend`] and [`NumericMode`], with the scopes that choose them;
//! - [`ExecutionReport`], which says where each operation ran;
//! - [`Seed`] and [`Philox4x32`], counter-keyed randomness on the host;
//! - [`BitHash`], [`BitHasher`] and [`BitHashed`], to compare results by their bits.

mod backend;
mod dataset;
mod design;
mod error;
mod estimator;
mod files;
mod hash;
mod load;
pub mod math64;
pub mod metrics;
mod model_file;
mod numeric_mode;
mod pipeline;
mod random;
mod report;
pub mod selection;

pub use backend::{Backend, current_backend, set_default_backend, with_backend};
pub use dataset::Dataset;
pub use design::{
    Design, DesignNumber, DesignRules, IntoDesign, IntoFeatures, IntoTargets, IntoWeights, Labels,
    encode_labels,
};
pub use error::{Error, Result};
pub use estimator::{
    Fit, Persist, Predict, PredictProba, Progress, ProgressEvent, Score, Transform,
};
pub use files::write_atomic;
pub use hash::{BitHash, BitHashed, BitHasher, HashScalar};
pub use load::{CsvOptions, NpyArray, NpyElement, read_npy, read_npz, write_npy};
pub use model_file::{
    DType, ModelFile, NUMERIC_PROFILE, Safetensors, SafetensorsHeader, Tensor, TensorElement,
    TensorInfo,
};
pub use numeric_mode::{
    NumericMode, current_numeric_mode, require_numeric_mode, set_default_numeric_mode,
    with_numeric_mode,
};
pub use pipeline::{Chain, FittedPipeline, FittedStages, PersistStages, Pipeline, Stages, Start};
pub use random::{Philox4x32, Seed, philox4x32_10};
pub use report::{ExecutionReport, ReportEntry};

/// The traits and types that most programs use.
pub mod prelude {
    pub use crate::{
        Backend, BitHashed, Dataset, Fit, IntoDesign, NumericMode, Persist, Predict, PredictProba,
        Score, Seed, Transform, with_backend, with_numeric_mode,
    };
}
