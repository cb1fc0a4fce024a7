//! Linear models, kernel methods, neighbours, clustering and decomposition on detml's bitwise identical kernels.
//!
//! This crate holds no estimator yet.
