//! State-space models.
