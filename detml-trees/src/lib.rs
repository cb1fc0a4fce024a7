//! Tree ensembles.
