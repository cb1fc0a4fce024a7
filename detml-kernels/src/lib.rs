//! Bitwise identical arithmetic and operations.
