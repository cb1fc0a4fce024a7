//! Verification of detml: what it computes must have the same bits on every backend.

#[cfg(feature = "codegen")]
pub mod codegen;
