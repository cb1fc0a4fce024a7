//! Operations.
pub mod trial;
