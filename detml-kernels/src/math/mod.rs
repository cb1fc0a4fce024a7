//! Elementary functions of our own (`N4`), from the operations of `N1` alone.
//!
//! Each function is one `#[cube]` source over [`Ieee`](crate::ieee::Ieee): CPU loops call it as it
//! is, kernels expand it. Lanes never diverge: special cases are selects, so that a loop over a
//! function vectorises. The coefficients come from `detml-kernels/scripts/minimax.sollya`.
//!
//! # Accuracy
//! The error bound that a function states is in units in the last place (ulp) of the exact result
//! rounded to binary32, never less than 2^-149, and holds for every input, subnormal results
//! included. It is checked over all 2^32 inputs (`detml math --exhaustive`).
//!
//! # Special values
//! A NaN argument gives the canonical NaN 0x7FC00000 unless a function says otherwise (`N11`).
//! At infinities and poles functions take their limits, stated with each.

mod error_function;
mod exponential;
mod gamma;
pub mod host;
mod hyperbolic;
mod inverse_trigonometric;
mod logarithm;
mod logistic;
mod parts;
mod power;
mod root;
#[cfg(test)]
mod tests;
mod trigonometric;

pub use error_function::{erf, erfc, gelu, gelu_tanh};
pub use exponential::{exp, exp2, exp10, expm1};
pub(crate) use exponential::{exp_near, exp_nonpositive, exp_some_nan, exp_weight};
pub use gamma::{digamma, lgamma};
pub use hyperbolic::{cosh, sinh, tanh};
pub use inverse_trigonometric::{acos, asin, atan, atan2};
pub use logarithm::{ln, log1p, log2, log10};
pub use logistic::{log_sigmoid, sigmoid, silu, softplus};
pub use power::{pow, powi};
pub use root::{cbrt, hypot, rsqrt};
pub(crate) use trigonometric::{
    MIDDLE, QUARTER_PI, Reduced, cos_reduced, reduce_any, reduce_middle, reduce_near, sin_reduced,
    tan_reduced,
};
pub use trigonometric::{SinCos, cos, sin, sin_cos, tan};
