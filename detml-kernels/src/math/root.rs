//! Roots.

use super::parts::*;
use crate::{ieee::Ieee, prim};
use cubecl::prelude::*;

bits! {
    TWO_24 = 0x4b800000;
    TWO_48 = 0x57800000;
    TWO_72 = 0x63800000;
    TWO_80 = 0x67800000;
    TWO_MINUS_24 = 0x33800000;
    TWO_MINUS_80 = 0x17800000;
    // 2^-100: below it, residuals would leave the range of normal numbers.
    SMALL = 0x0d800000;
    TWO_60 = 0x5d800000;
    TWO_MINUS_60 = 0x21800000;
    ONE_THIRD = 0x3eaaaaab;
    TWO_NINTHS = 0x3e638e39;
    // 14 / 81
    THIRD_TERM = 0x3e30fcd7;
}

/// One third of 2^32, rounded up.
const THIRD: u32 = 0x5555_5556;
/// Less a third of the bits of x, the bits of a first guess at x^(-1/3), within 4 %.
const CBRT_GUESS: u32 = 0x54a2_fa8c;

/// `1 / sqrt(x)`. At most 1 ulp.
///
/// +inf at +0 and -inf at -0, as the quotient has it; +0 at +inf; NaN below 0.
#[cube]
#[inline(always)]
pub fn rsqrt(ieee: &Ieee, x: f32) -> f32 {
    let small = ieee.lt(x, SMALL);
    let m = prim::select(small, ieee.mul(x, TWO_48), x);
    let s = ieee.sqrt(m);
    let y = ieee.div(1.0f32, s);
    // 1 / sqrt(m) = y + y (1 - y s) - y^3 (m - s^2) / 2 and terms far below.
    let division = ieee.fma(ieee.neg(y), s, 1.0f32);
    let root = ieee.fma(ieee.neg(s), s, m);
    let half_square = ieee.mul(ieee.mul(y, y), 0.5f32);
    let rest = ieee.fma(ieee.neg(half_square), root, division);
    let y = ieee.fma(y, rest, y);
    let y = prim::select(small, ieee.mul(y, TWO_24), y);
    let bits = prim::bits(x);
    let y = or_bits(bits == INFINITY, 0u32, y);
    let y = or_bits((bits & ABS) == 0u32, INFINITY | bits, y);
    or_bits(bits > INFINITY && bits != SIGN, NAN, y)
}

/// The cube root. At most 1 ulp.
///
/// Odd: zeros and infinities keep their sign.
#[cube]
#[inline(always)]
pub fn cbrt(ieee: &Ieee, x: f32) -> f32 {
    let a = ieee.abs(x);
    let small = ieee.lt(a, SMALL);
    let m = prim::select(small, ieee.mul(a, TWO_72), a);
    // z = m^(-1/3): with e = 1 - m z^3, m^(-1/3) = z (1 + e/3 + 2 e^2/9 + 14 e^3/81 + ...).
    let z = prim::from_bits(prim::wrapping_sub(
        CBRT_GUESS,
        prim::mul_hi(prim::bits(m), THIRD),
    ));
    let e = ieee.fma(ieee.neg(ieee.mul(ieee.mul(m, z), z)), z, 1.0f32);
    let p = ieee.mul(poly3(ieee, e, ONE_THIRD, TWO_NINTHS, THIRD_TERM), e);
    let z = ieee.fma(z, p, z);
    let e = ieee.fma(ieee.neg(ieee.mul(ieee.mul(m, z), z)), z, 1.0f32);
    let z = ieee.fma(ieee.mul(z, e), ONE_THIRD, z);
    // y = m z^2, corrected by its residual: y - (y^3 - m) / (3 y^2).
    let y = ieee.mul(ieee.mul(m, z), z);
    let square = two_product(ieee, y, y);
    let rest = ieee.fma(y, square.lo, ieee.fma(y, square.hi, ieee.neg(m)));
    let y = ieee.fma(ieee.neg(rest), ieee.mul(ieee.mul(z, z), ONE_THIRD), y);
    let y = prim::select(small, ieee.mul(y, TWO_MINUS_24), y);
    let bits = prim::bits(x);
    let y = ieee.copysign(y, x);
    let y = or_bits((bits & ABS) == 0u32 || (bits & ABS) == INFINITY, bits, y);
    nan_of(x, y)
}

/// `sqrt(x^2 + y^2)` without overflow or underflow on the way. At most 1 ulp.
///
/// +inf if either is infinite, even beside a NaN.
#[cube]
#[inline(always)]
pub fn hypot(ieee: &Ieee, x: f32, y: f32) -> f32 {
    let x_bits = prim::bits(x) & ABS;
    let y_bits = prim::bits(y) & ABS;
    let larger = prim::from_bits(prim::select_u32(x_bits < y_bits, y_bits, x_bits));
    let lesser = prim::from_bits(prim::select_u32(x_bits < y_bits, x_bits, y_bits));
    let huge = ieee.lt(TWO_60, larger);
    let tiny = ieee.lt(larger, TWO_MINUS_60);
    let up = prim::select(huge, TWO_MINUS_80, prim::select(tiny, TWO_80, 1.0f32));
    let down = prim::select(huge, TWO_80, prim::select(tiny, TWO_MINUS_80, 1.0f32));
    let a = ieee.mul(larger, up);
    let b = ieee.mul(lesser, up);
    let a2 = two_product(ieee, a, a);
    let b2 = two_product(ieee, b, b);
    let sum = fast_two_sum(ieee, a2.hi, b2.hi);
    let sum_lo = ieee.add(sum.lo, ieee.add(a2.lo, b2.lo));
    let root = ieee.sqrt(sum.hi);
    let rest = ieee.add(ieee.fma(ieee.neg(root), root, sum.hi), sum_lo);
    let root = ieee.add(root, ieee.div(rest, ieee.mul(root, 2.0f32)));
    let r = ieee.mul(root, down);
    let r = or_bits(prim::bits(larger) == 0u32, 0u32, r);
    let r = or_bits(x_bits > INFINITY || y_bits > INFINITY, NAN, r);
    or_bits(x_bits == INFINITY || y_bits == INFINITY, INFINITY, r)
}
