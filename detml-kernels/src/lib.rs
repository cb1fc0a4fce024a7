//! Bitwise identical arithmetic and operations.
#![allow(missing_docs)]
// Without a GPU backend kernels are described and proved over, but never launched.
#![cfg_attr(not(feature = "gpu"), allow(dead_code))]

pub mod codegen;
pub mod convert;
pub mod device;
pub mod ieee;
pub mod math;
pub mod ops;
mod prim;
pub mod random;
mod soft;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod testing;
pub mod wide;

pub use device::{Buffer, Device, Element, MemoryUse, Simd};
