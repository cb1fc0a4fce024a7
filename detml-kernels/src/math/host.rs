//! Elementary functions on f64 for host arithmetic on small problems (`N14`).
//!
//! IEEE additions, products, divisions and square roots alone: no fused operation, nothing of the
//! platform's libm. `exp` and `ln` are those of [`detml_core::math64`]; the others are composed of
//! them, with errors of a few units in the last place, stated with each. Every NaN is
//! 0x7FF8000000000000.

pub use detml_core::math64::{exp, ln};

const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);
/// (ln(2 pi) - 1) / 2.
const HALF_LN_2PI_LESS_1: f64 = f64::from_bits(0x3fda_cfe3_90c9_7d69);

/// e^x - 1. Relative error below 2^-50.
///
/// -1 at -inf, +inf at +inf; a zero keeps its sign.
#[must_use]
pub fn expm1(x: f64) -> f64 {
    let u = exp(x);
    if u == 1.0 {
        return x;
    }
    let difference = u - 1.0;
    // Near 0, e^x has lost the digits that x still has: ln(u) tells by how much (Kahan).
    if x.abs() < 1.0 {
        difference * (x / ln(u))
    } else {
        difference
    }
}

/// ln(1 + x). Relative error below 2^-50.
///
/// -inf at -1, NaN below, +inf at +inf; a zero keeps its sign.
#[must_use]
pub fn log1p(x: f64) -> f64 {
    let u = 1.0 + x;
    if u == 1.0 {
        return x;
    }
    // What 1 + x has lost against x (Kahan).
    if x.abs() < 1.0 {
        ln(u) * (x / (u - 1.0))
    } else {
        ln(u)
    }
}

/// 1 / (1 + e^-x). Relative error below 2^-50.
#[must_use]
pub fn sigmoid(x: f64) -> f64 {
    let e = exp(-x.abs());
    if x < 0.0 {
        e / (1.0 + e)
    } else {
        1.0 / (1.0 + e)
    }
}

/// ln(1 + e^x). Relative error below 2^-50.
#[must_use]
pub fn softplus(x: f64) -> f64 {
    if x.is_nan() {
        return NAN;
    }
    let tail = log1p(exp(-x.abs()));
    if x < 0.0 { tail } else { x + tail }
}

/// The hyperbolic tangent. Relative error below 2^-49.
///
/// -1 and 1 at -inf and +inf; a zero keeps its sign.
#[must_use]
pub fn tanh(x: f64) -> f64 {
    let a = x.abs();
    if a > 20.0 {
        return 1f64.copysign(x);
    }
    let e = expm1(2.0 * a);
    let y = e / (e + 2.0);
    if y.is_nan() { NAN } else { y.copysign(x) }
}

/// The logarithm of the gamma function, for x > 0. The error is below 2^-45 of the result or of 1,
/// whichever is larger.
///
/// +inf at a zero and at +inf, NaN below 0.
#[must_use]
pub fn lgamma(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return NAN;
    }
    if x == 0.0 {
        return f64::INFINITY;
    }
    let (x, product) = above_twelve(x, 1.0, |product, x| product * x);
    // Stirling's series.
    let z = 1.0 / x;
    let series = horner(
        z * z,
        &[
            1.0 / 12.0,
            -1.0 / 360.0,
            1.0 / 1260.0,
            -1.0 / 1680.0,
            1.0 / 1188.0,
            -691.0 / 360_360.0,
            1.0 / 156.0,
        ],
    );
    let main = (x - 0.5) * (ln(x) - 1.0) + HALF_LN_2PI_LESS_1;
    main + (z * series - ln(product))
}

/// The derivative of [`lgamma`], for x > 0. The error is below 2^-47 of the result or of 1,
/// whichever is larger.
///
/// -inf at a zero, +inf at +inf, NaN below 0.
#[must_use]
pub fn digamma(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return NAN;
    }
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x == f64::INFINITY {
        return x;
    }
    let (x, sum) = above_twelve(x, 0.0, |sum, x| sum + 1.0 / x);
    let z = 1.0 / x;
    let series = horner(
        z * z,
        &[
            1.0 / 12.0,
            -1.0 / 120.0,
            1.0 / 252.0,
            -1.0 / 240.0,
            1.0 / 132.0,
            -691.0 / 32_760.0,
            1.0 / 12.0,
        ],
    );
    (ln(x) - 0.5 * z) - (z * z * series + sum)
}

/// The first of x, x + 1, ... that is at least 12, and `fold` over those before it.
fn above_twelve(mut x: f64, start: f64, fold: impl Fn(f64, f64) -> f64) -> (f64, f64) {
    let mut folded = start;
    while x < 12.0 {
        folded = fold(folded, x);
        x += 1.0;
    }
    (x, folded)
}

fn horner(x: f64, coefficients: &[f64]) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Host = fn(f64) -> f64;

    fn arguments() -> impl Iterator<Item = f64> {
        let mut words = crate::testing::Words::new(11);
        (0..20_000).map(move |_| {
            let word = words.next();
            let exponent = (word >> 52) % 24 + 1023 - 16;
            f64::from_bits((word & 0x800f_ffff_ffff_ffff) | exponent << 52)
        })
    }

    #[track_caller]
    fn check(f: Host, exact: Host, bits: i32, least: f64) {
        for x in arguments() {
            let (got, want) = (f(x), exact(x));
            if want.is_nan() {
                assert_eq!(got.to_bits(), NAN.to_bits(), "f({x:e})");
            } else if got != want {
                let error = (got - want).abs() / want.abs().max(least);
                assert!(error < 2f64.powi(-bits), "f({x:e}): {got:e}, want {want:e}");
            }
        }
    }

    #[test]
    fn agree_with_libm() {
        check(expm1, libm::expm1, 50, 0.0);
        check(log1p, libm::log1p, 50, 0.0);
        check(tanh, libm::tanh, 49, 0.0);
        check(sigmoid, |x| 0.5 + 0.5 * libm::tanh(0.5 * x), 50, 1.0);
        check(
            softplus,
            |x| x.max(0.0) + libm::log1p(libm::exp(-x.abs())),
            50,
            0.0,
        );
        check(
            lgamma,
            |x| if x < 0.0 { f64::NAN } else { libm::lgamma(x) },
            45,
            1.0,
        );
    }

    /// Values of mpmath.
    #[test]
    fn digamma_at_known_places() {
        for (x, want) in [
            (1e-3, -1_000.575_571_931_810_3),
            (0.5, -1.963_510_026_021_423_5),
            (1.0, -0.577_215_664_901_532_9),
            (1.5, 0.036_489_973_978_576_52),
            (2.0, 0.422_784_335_098_467_14),
            (11.9, 2.433_933_536_882_537_5),
            (1e6, 13.815_510_057_964_192),
        ] {
            let error = (digamma(x) - want).abs() / want.abs().max(1.0);
            assert!(
                error < 2f64.powi(-47),
                "digamma({x}): {}, want {want}",
                digamma(x)
            );
        }
    }

    #[test]
    fn special_values() {
        let inf = f64::INFINITY;
        let table: &[(Host, f64, f64)] = &[
            (expm1, -inf, -1.0),
            (expm1, -0.0, -0.0),
            (expm1, inf, inf),
            (log1p, -1.0, -inf),
            (log1p, -1.5, NAN),
            (log1p, -0.0, -0.0),
            (log1p, inf, inf),
            (tanh, -inf, -1.0),
            (tanh, -0.0, -0.0),
            (tanh, NAN, NAN),
            (sigmoid, -inf, 0.0),
            (sigmoid, inf, 1.0),
            (softplus, -inf, 0.0),
            (softplus, inf, inf),
            (lgamma, 0.0, inf),
            (lgamma, -0.5, NAN),
            (lgamma, inf, inf),
            (digamma, 0.0, -inf),
            (digamma, inf, inf),
            (digamma, -1.0, NAN),
        ];
        for (i, (f, x, want)) in table.iter().enumerate() {
            assert_eq!(
                f(*x).to_bits(),
                want.to_bits(),
                "row {i}: f({x}) = {}",
                f(*x)
            );
        }
        for f in [expm1, log1p, sigmoid, softplus, tanh, lgamma, digamma] {
            assert_eq!(
                f(f64::from_bits(0xfff8_0000_0000_0001)).to_bits(),
                NAN.to_bits()
            );
        }
    }
}
