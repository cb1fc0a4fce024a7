//! Machine learning with bitwise identical results.
