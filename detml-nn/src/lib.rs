//! Neural networks on detml's bitwise identical kernels.
//!
//! This crate holds no estimator yet.
