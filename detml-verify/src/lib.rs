//! Verification of detml: what it computes must have the same bits on every backend.
//!
//! - [`fixtures`] are hostile data sets, [`lanes`] the configurations that run on them;
//! - a [`witness`] is what one [`mod@column`] (a kind of device) computed, [`judge`] compares it with
//!   the reference [`table`].
//!
//! The command `detml` is made of these; see `docs/verification.md`.

#[cfg(feature = "codegen")]
pub mod codegen;
pub mod column;
pub mod compare;
mod environment;
pub mod fixtures;
pub mod judge;
pub mod lanes;
pub mod math;
pub mod matrix;
pub mod proofs;
pub mod run;
pub mod sabotage;
pub mod self_test;
pub mod signature;
pub mod stages;
pub mod table;
pub mod trace;
pub mod witness;
