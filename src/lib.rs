#![doc = include_str!("../README.md")]

pub use detml_core::*;
pub use detml_kernels::{Device, Simd};
pub use detml_trees as trees;
pub use detml_trees::{GradientBoosting, GradientBoostingModel};

/// The traits and types that most programs use.
pub mod prelude {
    pub use detml_core::prelude::*;
    pub use detml_trees::{GradientBoosting, GradientBoostingModel};
}
