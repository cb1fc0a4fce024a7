//! Sine, cosine and tangent.

use super::parts::*;
use crate::{ieee::Ieee, prim};
use cubecl::prelude::*;

bits! {
    // sin(r) = r + r^3 SIN(r^2), |r| <= pi / 4.
    SIN_0 = 0xbe2aaaab;
    SIN_1 = 0x3c0888b2;
    SIN_2 = 0xb9502433;
    SIN_3 = 0x363bf108;
    // cos(r) = 1 - r^2/2 + r^4 COS(r^2), |r| <= pi / 4.
    COS_0 = 0x3d2aaaa5;
    COS_1 = 0xbab60615;
    COS_2 = 0x37ccf48a;
    // 2 pi to 48 bits.
    TWO_PI = 0x40c90fdb;
    TWO_PI_REST = 0xb43bbd2e;
    TWO_23 = 0x4b000000;
    TWO_MINUS_24 = 0x33800000;
    TWO_MINUS_46 = 0x28800000;
    TWO_MINUS_64 = 0x1f800000;
}

// 1 / (2 pi) in words of 32 bits, after one word of zeros.
const TURN_1: u32 = 0x28be_60db;
const TURN_2: u32 = 0x9391_054a;
const TURN_3: u32 = 0x7f09_d5f4;
const TURN_4: u32 = 0x7d4d_3770;
const TURN_5: u32 = 0x36d8_a566;
const TURN_6: u32 = 0x4f10_e410;
const TURN_7: u32 = 0x7f94_58ea;
/// The bits of pi / 4, rounded up.
pub(crate) const QUARTER_PI: u32 = 0x3f49_0fdb;
/// The bits of 2^23.
pub(crate) const MIDDLE: u32 = 0x4b00_0000;

/// The sine and the cosine of a remainder.
#[derive(CubeType, Clone, Copy)]
pub(super) struct SinCosPairs {
    pub(super) sin: Pair,
    pub(super) cos: Pair,
}

/// For `|r| <= pi / 4`, to 2^-27.
#[cube]
#[inline(always)]
pub(super) fn sin_cos_pairs(ieee: &Ieee, r: Pair) -> SinCosPairs {
    let square = two_product(ieee, r.hi, r.hi);
    // sin(hi + lo) = hi + hi^3 SIN + lo (1 - hi^2 / 2)
    let p = poly4(ieee, square.hi, SIN_0, SIN_1, SIN_2, SIN_3);
    let rest = ieee.fma(ieee.mul(r.lo, -0.5f32), square.hi, r.lo);
    let rest = ieee.fma(ieee.mul(r.hi, square.hi), p, rest);
    let sin = fast_two_sum(ieee, r.hi, rest);
    // cos(hi + lo) = 1 - hi^2 / 2 + hi^4 COS - hi lo
    let p = poly3(ieee, square.hi, COS_0, COS_1, COS_2);
    let one = fast_two_sum(ieee, 1.0f32, ieee.mul(square.hi, -0.5f32));
    let rest = ieee.fma(square.lo, -0.5f32, one.lo);
    let rest = ieee.fma(ieee.neg(r.hi), r.lo, rest);
    let rest = ieee.fma(ieee.mul(square.hi, square.hi), p, rest);
    let cos = fast_two_sum(ieee, one.hi, rest);
    SinCosPairs { sin, cos }
}

/// The sine and the cosine of a remainder in -pi/4..=pi/4, and the quadrant it is counted from.
#[derive(CubeType, Clone, Copy)]
struct Angle {
    sin: Pair,
    cos: Pair,
    quadrant: u32,
}

/// Words of 1 / (2 pi), of which the first may hold bits of whole turns.
#[derive(CubeType, Clone, Copy)]
struct Turns {
    w0: u32,
    w1: u32,
    w2: u32,
    w3: u32,
}

/// `a = quadrant * pi/2 + r.hi + r.lo`, the quadrant modulo 4, for finite `a >= 0`.
///
/// After Payne and Hanek: the product of a's 24 bits with the 96 bits of 1/(2 pi) that don't make
/// whole turns. What is cut off is below 2^-71 of a turn, and no binary32 beyond pi/4 comes closer
/// than 2^-33 of a turn to a multiple of pi/2.
#[cube]
#[inline(always)]
fn angle(ieee: &Ieee, a: f32) -> Angle {
    let offset = prim::wrapping_sub(prim::bits(a) >> 23u32, 118u32);
    let by_1 = (offset & 32u32) != 0u32;
    let by_2 = (offset & 64u32) != 0u32;
    let by_4 = (offset & 128u32) != 0u32;
    let t0 = prim::select_u32(by_1, TURN_1, 0u32);
    let t1 = prim::select_u32(by_1, TURN_2, TURN_1);
    let t2 = prim::select_u32(by_1, TURN_3, TURN_2);
    let t3 = prim::select_u32(by_1, TURN_4, TURN_3);
    let t4 = prim::select_u32(by_1, TURN_5, TURN_4);
    let t5 = prim::select_u32(by_1, TURN_6, TURN_5);
    let turns = Turns {
        w0: prim::select_u32(by_4, TURN_4, prim::select_u32(by_2, t2, t0)),
        w1: prim::select_u32(by_4, TURN_5, prim::select_u32(by_2, t3, t1)),
        w2: prim::select_u32(by_4, TURN_6, prim::select_u32(by_2, t4, t2)),
        w3: prim::select_u32(by_4, TURN_7, prim::select_u32(by_2, t5, t3)),
    };
    angle_of(ieee, reduce_by(ieee, a, turns))
}

/// An angle less a multiple of pi/2.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Reduced {
    pub(crate) hi: f32,
    pub(crate) lo: f32,
    pub(crate) quadrant: u32,
}

/// What [`angle`] is of, for `|x| < 2^23`, the bits below [`MIDDLE`]: the words of 1/(2 pi) are the
/// same for all of them. For CPU loops.
#[inline(always)]
pub(crate) fn reduce_middle(ieee: &Ieee, x: f32) -> Reduced {
    let turns = Turns {
        w0: 0u32,
        w1: TURN_1,
        w2: TURN_2,
        w3: TURN_3,
    };
    reduce_by(ieee, ieee.abs(x), turns)
}

#[cube]
#[inline(always)]
fn angle_of(ieee: &Ieee, reduced: Reduced) -> Angle {
    let r = Pair {
        hi: reduced.hi,
        lo: reduced.lo,
    };
    let values = sin_cos_pairs(ieee, r);
    Angle {
        sin: values.sin,
        cos: values.cos,
        quadrant: reduced.quadrant,
    }
}

#[cube]
#[inline(always)]
fn reduce_by(ieee: &Ieee, a: f32, turns: Turns) -> Reduced {
    let bits = prim::bits(a);
    let m = (bits & 0x007f_ffffu32) | 0x0080_0000u32;
    // a = m 2^(offset - 32), the zero word counted.
    let offset = prim::wrapping_sub(bits >> 23u32, 118u32);
    let w0 = turns.w0;
    let w1 = turns.w1;
    let w2 = turns.w2;
    let w3 = turns.w3;
    let left = offset & 31u32;
    let right = prim::wrapping_sub(31u32, left);
    let f0 = (w0 << left) | ((w1 >> 1u32) >> right);
    let f1 = (w1 << left) | ((w2 >> 1u32) >> right);
    let f2 = (w2 << left) | ((w3 >> 1u32) >> right);
    // The turn's fraction, 64 bits: high and low.
    let product = prim::wrapping_mul(m, f1);
    let low = prim::wrapping_add(product, prim::mul_hi(m, f2));
    let carry = prim::select_u32(low < product, 1u32, 0u32);
    let high = prim::wrapping_add(prim::wrapping_mul(m, f0), prim::mul_hi(m, f1));
    let high = prim::wrapping_add(high, carry);
    // Its nearest quarter, and the signed rest.
    let quadrant = prim::wrapping_add(high, 0x2000_0000u32) >> 30u32;
    let high = prim::wrapping_sub(high, quadrant << 30u32);
    let sign = high & SIGN;
    let negative = sign != 0u32;
    let borrow = prim::select_u32(low == 0u32, 0u32, 1u32);
    let minus_high = prim::wrapping_sub(prim::wrapping_sub(0u32, high), borrow);
    let high = prim::select_u32(negative, minus_high, high);
    let low = prim::select_u32(negative, prim::wrapping_sub(0u32, low), low);
    // Three exact parts of at most 22 bits.
    let first = small_int(ieee, high >> 8u32, TWO_23);
    let second = small_int(ieee, ((high & 0xffu32) << 14u32) | (low >> 18u32), TWO_23);
    let third = small_int(ieee, low & 0x3_ffffu32, TWO_23);
    let turn = fast_two_sum(
        ieee,
        ieee.mul(first, TWO_MINUS_24),
        ieee.mul(second, TWO_MINUS_46),
    );
    let turn_lo = ieee.fma(third, TWO_MINUS_64, turn.lo);
    let product = two_product(ieee, turn.hi, TWO_PI);
    let rest = ieee.fma(turn.hi, TWO_PI_REST, product.lo);
    let r = fast_two_sum(ieee, product.hi, ieee.fma(turn_lo, TWO_PI, rest));
    let within = bits < QUARTER_PI;
    let hi = prim::from_bits(prim::bits(r.hi) ^ sign);
    let lo = prim::from_bits(prim::bits(r.lo) ^ sign);
    let hi = prim::select(within, a, hi);
    let lo = prim::select(within, 0.0f32, lo);
    Reduced {
        hi,
        lo,
        quadrant: prim::select_u32(within, 0u32, quadrant),
    }
}

/// `y`, or the canonical NaN where `x` is infinite or a NaN.
#[cube]
#[inline(always)]
fn nan_unless_finite(x: f32, y: f32) -> f32 {
    or_bits((prim::bits(x) & ABS) >= INFINITY, NAN, y)
}

#[cube]
#[inline(always)]
fn flip(y: f32, sign: u32) -> f32 {
    prim::from_bits(prim::bits(y) ^ sign)
}

/// What [`sin_cos()`] gives.
#[derive(CubeType, Clone, Copy, Debug, PartialEq)]
pub struct SinCos {
    /// The sine.
    pub sin: f32,
    /// The cosine.
    pub cos: f32,
}

/// The sine and the cosine of x radians at the cost of one: those of [`sin()`] and [`cos()`].
#[cube]
#[inline(always)]
pub fn sin_cos(ieee: &Ieee, x: f32) -> SinCos {
    sin_cos_at(x, angle(ieee, ieee.abs(x)))
}

#[cube]
#[inline(always)]
fn sin_cos_at(x: f32, a: Angle) -> SinCos {
    let odd = (a.quadrant & 1u32) != 0u32;
    let sin = prim::select(odd, a.cos.hi, a.sin.hi);
    let sin_sign = (prim::bits(x) & SIGN) ^ ((a.quadrant & 2u32) << 30u32);
    let cos = prim::select(odd, a.sin.hi, a.cos.hi);
    let cos_sign = (prim::wrapping_add(a.quadrant, 1u32) & 2u32) << 30u32;
    SinCos {
        sin: nan_unless_finite(x, flip(sin, sin_sign)),
        cos: nan_unless_finite(x, flip(cos, cos_sign)),
    }
}

/// The sine of x radians, for every x. At most 1 ulp.
///
/// NaN at both infinities; a zero keeps its sign.
#[cube]
#[inline(always)]
pub fn sin(ieee: &Ieee, x: f32) -> f32 {
    sin_cos(ieee, x).sin
}

/// The cosine of x radians, for every x. At most 1 ulp.
///
/// NaN at both infinities.
#[cube]
#[inline(always)]
pub fn cos(ieee: &Ieee, x: f32) -> f32 {
    sin_cos(ieee, x).cos
}

/// The tangent of x radians, for every x. At most 1 ulp.
///
/// NaN at both infinities; a zero keeps its sign.
#[cube]
#[inline(always)]
pub fn tan(ieee: &Ieee, x: f32) -> f32 {
    tan_at(ieee, x, angle(ieee, ieee.abs(x)))
}

#[cube]
#[inline(always)]
fn tan_at(ieee: &Ieee, x: f32, a: Angle) -> f32 {
    let odd = (a.quadrant & 1u32) != 0u32;
    let top = prim::select(odd, a.cos.hi, a.sin.hi);
    let top_lo = prim::select(odd, a.cos.lo, a.sin.lo);
    let bottom = prim::select(odd, a.sin.hi, a.cos.hi);
    let bottom_lo = prim::select(odd, a.sin.lo, a.cos.lo);
    let y = quotient(
        ieee,
        Pair {
            hi: top,
            lo: top_lo,
        },
        Pair {
            hi: bottom,
            lo: bottom_lo,
        },
    );
    let sign = (prim::bits(x) & SIGN) ^ ((a.quadrant & 1u32) << 31u32);
    nan_unless_finite(x, flip(y, sign))
}

#[cube]
#[inline(always)]
fn quotient(ieee: &Ieee, top: Pair, bottom: Pair) -> f32 {
    let inverse = ieee.div(1.0f32, bottom.hi);
    let q = ieee.mul(top.hi, inverse);
    let rest = ieee.add(ieee.fma(ieee.neg(q), bottom.hi, top.hi), top.lo);
    let rest = ieee.fma(ieee.neg(q), bottom.lo, rest);
    ieee.fma(rest, inverse, q)
}

/// [`sin()`] for `|x| < pi / 4`, the bits below [`QUARTER_PI`]: no reduction. For CPU loops.
#[inline(always)]
pub(crate) fn sin_near(ieee: &Ieee, x: f32) -> f32 {
    let values = sin_cos_pairs(ieee, near(ieee, x));
    flip(values.sin.hi, prim::bits(x) & SIGN)
}

/// [`cos()`], likewise.
#[inline(always)]
pub(crate) fn cos_near(ieee: &Ieee, x: f32) -> f32 {
    sin_cos_pairs(ieee, near(ieee, x)).cos.hi
}

/// [`tan()`], likewise.
#[inline(always)]
pub(crate) fn tan_near(ieee: &Ieee, x: f32) -> f32 {
    let values = sin_cos_pairs(ieee, near(ieee, x));
    flip(quotient(ieee, values.sin, values.cos), prim::bits(x) & SIGN)
}

#[inline(always)]
fn near(ieee: &Ieee, x: f32) -> Pair {
    Pair {
        hi: ieee.abs(x),
        lo: 0.0f32,
    }
}

/// [`sin()`] of what [`reduce_middle`] has reduced.
#[inline(always)]
pub(crate) fn sin_reduced(ieee: &Ieee, x: f32, reduced: Reduced) -> f32 {
    sin_cos_at(x, angle_of(ieee, reduced)).sin
}

/// [`cos()`], likewise.
#[inline(always)]
pub(crate) fn cos_reduced(ieee: &Ieee, x: f32, reduced: Reduced) -> f32 {
    sin_cos_at(x, angle_of(ieee, reduced)).cos
}

/// [`tan()`], likewise.
#[inline(always)]
pub(crate) fn tan_reduced(ieee: &Ieee, x: f32, reduced: Reduced) -> f32 {
    tan_at(ieee, x, angle_of(ieee, reduced))
}
