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
mod error;
mod hash;
mod numeric_mode;
mod random;
mod report;

pub use backend::{Backend, current_backend, set_default_backend, with_backend};
pub use error::{Error, Result};
pub use hash::{BitHash, BitHashed, BitHasher, HashScalar};
pub use numeric_mode::{
    NumericMode, current_numeric_mode, require_numeric_mode, set_default_numeric_mode,
    with_numeric_mode,
};
pub use random::{Philox4x32, Seed, philox4x32_10};
pub use report::{ExecutionReport, ReportEntry};
