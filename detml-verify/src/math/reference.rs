//! Exact values to binary64: the `libm` crate's functions and what is composed of them.

pub(super) use libm::{
    acos, asin, atan, cbrt, cos, cosh, erf, erfc, exp, exp2, exp10, expm1, log as ln, log1p, log2,
    log10, pow, pow as powi, sin, sinh, tan, tanh,
};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

pub(super) fn atan2(y: f64, x: f64) -> f64 {
    libm::atan2(y, x)
}

pub(super) fn hypot(x: f64, y: f64) -> f64 {
    if x.is_infinite() || y.is_infinite() {
        return f64::INFINITY;
    }
    // The squares of binary32 are exact and in range.
    (x * x + y * y).sqrt()
}

pub(super) fn rsqrt(x: f64) -> f64 {
    1.0 / x.sqrt()
}

pub(super) fn sigmoid(x: f64) -> f64 {
    let e = exp(-x.abs());
    if x < 0.0 {
        e / (1.0 + e)
    } else {
        1.0 / (1.0 + e)
    }
}

pub(super) fn softplus(x: f64) -> f64 {
    let tail = log1p(exp(-x.abs()));
    if x < 0.0 { tail } else { x + tail }
}

pub(super) fn log_sigmoid(x: f64) -> f64 {
    -softplus(-x)
}

/// The limit of `x * f(x)` at minus infinity, where `f` vanishes faster than x grows.
fn product(x: f64, f: impl Fn(f64) -> f64) -> f64 {
    if x == f64::NEG_INFINITY {
        -0.0
    } else {
        x * f(x)
    }
}

pub(super) fn silu(x: f64) -> f64 {
    product(x, sigmoid)
}

pub(super) fn gelu(x: f64) -> f64 {
    product(x, |x| 0.5 * erfc(-x * FRAC_1_SQRT_2))
}

pub(super) fn gelu_tanh(x: f64) -> f64 {
    // 1 + tanh(u) = 2 sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)
    let twice = 2.0 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
    product(x, |x| sigmoid(twice * x * (1.0 + 0.044715 * (x * x))))
}

pub(super) fn lgamma(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return f64::INFINITY;
    }
    libm::lgamma(x)
}

pub(super) fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return -1.0 / x;
    }
    if x < 0.0 {
        if x.floor() == x {
            return f64::NAN;
        }
        // The reflection formula; cot has period 1 in x.
        let rest = x - x.round();
        return digamma(1.0 - x) - PI / libm::tan(PI * rest);
    }
    // Around the root, where a difference would cancel: Taylor's series, |e| <= 1/4.
    let e = (x - ROOT.0) - ROOT.1;
    if e.abs() <= 0.25 {
        return e * DIGAMMA_AT_ROOT.iter().rev().fold(0.0, |sum, c| sum * e + c);
    }
    if x == f64::INFINITY {
        return x;
    }
    // digamma(x) = digamma(x + 1) - 1/x up to where the asymptotic series serves.
    let mut shifted = x;
    let mut sum = 0.0;
    while shifted < 10.0 {
        sum -= 1.0 / shifted;
        shifted += 1.0;
    }
    let u = 1.0 / (shifted * shifted);
    // Bernoulli numbers B(2k) / (2k).
    let series = [
        1.0 / 12.0,
        -1.0 / 120.0,
        1.0 / 252.0,
        -1.0 / 240.0,
        1.0 / 132.0,
        -691.0 / 32760.0,
        1.0 / 12.0,
    ]
    .iter()
    .rev()
    .fold(0.0, |sum, c| (sum + c) * u);
    sum + ((ln(shifted) - 0.5 / shifted) - series)
}

/// The positive root of digamma, to 106 bits.
const ROOT: (f64, f64) = (1.461_632_144_968_362_2, 9.549_995_429_965_697e-17);

/// The derivatives of digamma at its root over the factorials of their orders (mpmath).
const DIGAMMA_AT_ROOT: [f64; 24] = [
    0.96767224544762117,
    -0.442763168983592106,
    0.258499760955651011,
    -0.163942705442406528,
    0.107824050691262366,
    -0.0721995612564547109,
    0.0488042881641431072,
    -0.0331611264748473593,
    0.0225976482322181047,
    -0.0154247659049489591,
    0.0105387916166121754,
    -0.00720453438635686824,
    0.00492678139572985345,
    -0.00336980165543932808,
    0.00230512632673492784,
    -0.00157693677143019726,
    0.00107882520191629658,
    -0.00073807093899600513,
    0.000504953265834602035,
    -0.0003454680251063077,
    0.000236356015640270528,
    -0.000161706220919748034,
    0.000110633727687474109,
    -0.0000756917958219506592,
];
