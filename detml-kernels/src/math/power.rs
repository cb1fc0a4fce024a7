//! Powers.

use super::{
    exponential::{clamp, exp2_pair},
    logarithm::ln_series,
    parts::*,
};
use crate::{ieee::Ieee, prim};
use cubecl::prelude::*;

bits! {
    // 2 / ln 2 to 48 bits.
    TWO_INV_LN2 = 0x4038aa3b;
    TWO_INV_LN2_REST = 0x33257060;
}

const ONE: u32 = 0x3f80_0000;

/// `a^(y.hi + y.lo)` for positive finite `a` and finite `y`.
#[cube]
#[inline(always)]
fn magnitude(ieee: &Ieee, a: f32, y: Pair) -> f32 {
    let log = ln_series(ieee, a);
    // log2(a) = k + 2 series / ln 2
    let scaled = two_product(ieee, log.series.hi, TWO_INV_LN2);
    let scaled_lo = ieee.fma(log.series.hi, TWO_INV_LN2_REST, scaled.lo);
    let scaled_lo = ieee.fma(log.series.lo, TWO_INV_LN2, scaled_lo);
    let sum = fast_two_sum(ieee, log.k, scaled.hi);
    let log2 = fast_two_sum(ieee, sum.hi, ieee.add(sum.lo, scaled_lo));
    let product = two_product(ieee, y.hi, log2.hi);
    let lo = ieee.fma(y.lo, log2.hi, ieee.fma(y.hi, log2.lo, product.lo));
    // Beyond 160 the result is 0 or infinity, and lo may be a NaN.
    let far = ieee.lt(160.0f32, ieee.abs(product.hi));
    let hi = clamp(ieee, product.hi, -160.0f32, 160.0f32);
    exp2_pair(
        ieee,
        Pair {
            hi,
            lo: prim::select(far, 0.0f32, lo),
        },
    )
}

/// The power of a zero or infinite base: 0 or infinity.
#[cube]
#[inline(always)]
fn extreme(base: u32, y_negative: bool, otherwise: f32) -> f32 {
    let zero = base == 0u32;
    let result = prim::select_u32(zero == y_negative, INFINITY, 0u32);
    or_bits(zero || base == INFINITY, result, otherwise)
}

/// x^y. At most 1 ulp.
///
/// As IEEE 754 has it: 1 where y is a zero or x is 1, even beside a NaN; NaN for a negative finite x
/// and a y that is no integer; the sign of x where y is an odd integer. Of a zero x with a
/// negative y, +-inf; `|x|^inf` is 0, 1 or +inf as `|x|` is below, at or above 1.
#[cube]
#[inline(always)]
pub fn pow(ieee: &Ieee, x: f32, y: f32) -> f32 {
    let x_bits = prim::bits(x);
    let y_bits = prim::bits(y);
    let base = x_bits & ABS;
    let exponent = y_bits & ABS;
    let x_negative = x_bits != base;
    let y_negative = y_bits != exponent;
    // An integer's last bit, at the place 2^0 of the significand; from 2^24 on, all are even.
    let place = prim::wrapping_sub(150u32, exponent >> 23u32);
    let within = place < 24u32;
    let place = prim::select_u32(within, place, 0u32);
    let significand = (exponent & 0x007f_ffffu32) | 0x0080_0000u32;
    let fraction = significand & prim::wrapping_sub(1u32 << place, 1u32);
    let beyond = exponent >= 0x4b80_0000u32;
    let integer = beyond || (within && fraction == 0u32) || exponent == 0u32;
    let odd = within && fraction == 0u32 && ((significand >> place) & 1u32) == 1u32;
    let finite = prim::from_bits(prim::select_u32(exponent < INFINITY, y_bits, ONE));
    let inside = base != 0u32 && base < INFINITY;
    let a = prim::from_bits(prim::select_u32(inside, base, ONE));
    let r = magnitude(
        ieee,
        a,
        Pair {
            hi: finite,
            lo: 0.0f32,
        },
    );
    let r = extreme(base, y_negative, r);
    let unbounded = prim::select_u32((base > ONE) != y_negative, INFINITY, 0u32);
    let unbounded = prim::select_u32(base == ONE, ONE, unbounded);
    let r = or_bits(exponent == INFINITY, unbounded, r);
    let r = prim::from_bits(prim::bits(r) | prim::select_u32(x_negative && odd, SIGN, 0u32));
    let undefined = x_negative && base != 0u32 && base != INFINITY && !integer;
    let nan = base > INFINITY || exponent > INFINITY;
    let r = or_bits(undefined || nan, NAN, r);
    or_bits(x_bits == ONE || exponent == 0u32, ONE, r)
}

/// x^n. At most 1 ulp.
///
/// 1 where n is 0, even for a NaN; the sign of x where n is odd. Of a zero with a negative n, +-inf.
#[cube]
#[inline(always)]
pub fn powi(ieee: &Ieee, x: f32, n: i32) -> f32 {
    let x_bits = prim::bits(x);
    let base = x_bits & ABS;
    let n_bits = prim::as_u32(n);
    let y_negative = (n_bits & SIGN) != 0u32;
    // n in two exact parts.
    let upper = ieee.from_i32(prim::as_i32(n_bits & 0xffff_f000u32));
    let lower = ieee.from_u32(n_bits & 0xfffu32);
    let inside = base != 0u32 && base < INFINITY;
    let a = prim::from_bits(prim::select_u32(inside, base, ONE));
    let r = magnitude(ieee, a, fast_two_sum(ieee, upper, lower));
    let r = extreme(base, y_negative, r);
    let sign = prim::select_u32((n_bits & 1u32) == 1u32, x_bits & SIGN, 0u32);
    let r = nan_of(x, prim::from_bits(prim::bits(r) | sign));
    or_bits(n_bits == 0u32, ONE, r)
}
