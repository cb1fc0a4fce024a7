//! Bitwise identical arithmetic and operations.
#![allow(missing_docs)]

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

pub use device::{Buffer, Device, Element, Simd};
