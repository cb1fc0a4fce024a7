//! Bitwise identical arithmetic and operations.
#![allow(missing_docs)]

pub mod ieee;
mod prim;
mod soft;
#[cfg(test)]
mod testing;
