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
    // tan(r) = r + r^3 (TAN_0 + r^2 TAN(r^2)), |r| <= 0.8.
    TAN_0 = 0x3eaaaab2;
    TAN_1 = 0x3e088644;
    TAN_2 = 0x3d5d85cb;
    TAN_3 = 0x3cad5c04;
    TAN_4 = 0x3c36ba57;
    TAN_5 = 0xb9a6d639;
    TAN_6 = 0x3b961278;
    TAN_LOW = 0x3ee00000;
    TWO_INV_PI = 0x3f22f983;
    // -pi / 2 to 72 bits.
    MINUS_HALF_PI = 0xbfc90fdb;
    MINUS_HALF_PI_REST = 0x333bbd2e;
    MINUS_HALF_PI_LAST = 0x26f72ced;
    // 2 pi to 48 bits.
    TWO_PI = 0x40c90fdb;
    TWO_PI_REST = 0xb43bbd2e;
    TWO_23 = 0x4b000000;
    TWO_MINUS_24 = 0x33800000;
    TWO_MINUS_46 = 0x28800000;
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
/// The bits of 2^17.
pub(crate) const MIDDLE: u32 = 0x4800_0000;

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

/// An angle less a multiple of pi/2: `hi + lo`, beyond pi/4 by a hundredth at most.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Reduced {
    pub(crate) hi: f32,
    pub(crate) lo: f32,
    /// The multiple modulo 4, above which bits are anything.
    pub(crate) quadrant: u32,
}

/// `a = quadrant * pi/2 + r.hi + r.lo` for finite `a >= 0`.
///
/// Kernels branch: groups of threads without large arguments skip the longer way. Either way is
/// taken for the same arguments everywhere, so the bits are the same.
#[cube]
#[inline(always)]
fn reduce(ieee: &Ieee, a: f32) -> Reduced {
    let middle = reduce_middle(ieee, a);
    let mut hi = middle.hi;
    let mut lo = middle.lo;
    let mut quadrant = middle.quadrant;
    if prim::bits(a) >= MIDDLE {
        let far = reduce_far(ieee, a);
        hi = far.hi;
        lo = far.lo;
        quadrant = far.quadrant;
    }
    Reduced { hi, lo, quadrant }
}

/// [`reduce`] for `a < pi / 4`, the bits below [`QUARTER_PI`]. For CPU loops.
#[inline(always)]
pub(crate) fn reduce_near(a: f32) -> Reduced {
    Reduced {
        hi: a,
        lo: 0.0f32,
        quadrant: 0u32,
    }
}

/// [`reduce`] without branches. For CPU loops.
#[inline(always)]
pub(crate) fn reduce_any(ieee: &Ieee, a: f32) -> Reduced {
    let middle = reduce_middle(ieee, a);
    let far = reduce_far(ieee, a);
    let is_far = prim::bits(a) >= MIDDLE;
    Reduced {
        hi: prim::select(is_far, far.hi, middle.hi),
        lo: prim::select(is_far, far.lo, middle.lo),
        quadrant: prim::select_u32(is_far, far.quadrant, middle.quadrant),
    }
}

/// [`reduce`] for `a < 2^17`, the bits below [`MIDDLE`].
///
/// After Cody and Waite, pi/2 in three parts. With the first one `first` is exact, a multiple of
/// 2^-23; the second product is exact in two parts, of which the larger one has no bit above 2^-5,
/// so that `hi` less `first` is exact, too.
#[cube]
#[inline(always)]
pub(crate) fn reduce_middle(ieee: &Ieee, a: f32) -> Reduced {
    let t = ieee.fma(a, TWO_INV_PI, ROUND);
    let n = ieee.sub(t, ROUND);
    let first = ieee.fma(n, MINUS_HALF_PI, a);
    let second = two_product(ieee, n, MINUS_HALF_PI_REST);
    let hi = ieee.add(first, second.hi);
    let lo = ieee.add(ieee.sub(first, hi), second.hi);
    Reduced {
        hi,
        lo: ieee.add(lo, ieee.fma(n, MINUS_HALF_PI_LAST, second.lo)),
        quadrant: prim::bits(t),
    }
}

/// Words of 1 / (2 pi), of which the first may hold bits of whole turns.
#[derive(CubeType, Clone, Copy)]
struct Turns {
    w0: u32,
    w1: u32,
    w2: u32,
    w3: u32,
}

/// [`reduce`] for the others.
///
/// After Payne and Hanek: the product of a's 24 bits with the 96 bits of 1/(2 pi) that don't make
/// whole turns. What is cut off is below 2^-71 of a turn, and no binary32 beyond pi/4 comes closer
/// than 2^-33 of a turn to a multiple of pi/2.
#[cube]
#[inline(always)]
fn reduce_far(ieee: &Ieee, a: f32) -> Reduced {
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
    reduce_by(ieee, a, turns)
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
    Reduced {
        hi: flip(r.hi, sign),
        lo: flip(r.lo, sign),
        quadrant,
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
    sin_cos_reduced(ieee, x, reduce(ieee, ieee.abs(x)))
}

#[cube]
#[inline(always)]
fn sin_cos_reduced(ieee: &Ieee, x: f32, r: Reduced) -> SinCos {
    // (hi + lo)^2
    let twice = ieee.mul(r.hi, ieee.add(r.lo, r.lo));
    let square = ieee.fma(r.hi, r.hi, twice);
    let p = poly4(ieee, square, SIN_0, SIN_1, SIN_2, SIN_3);
    let sine = ieee.fma(ieee.mul(r.hi, square), p, r.lo);
    let sine = ieee.add(r.hi, sine);
    let p = poly4(ieee, square, -0.5f32, COS_0, COS_1, COS_2);
    let cosine = ieee.fma(square, p, 1.0f32);
    let odd = (r.quadrant & 1u32) != 0u32;
    let sin = prim::select(odd, cosine, sine);
    let sin_sign = (prim::bits(x) ^ (r.quadrant << 30u32)) & SIGN;
    let cos = prim::select(odd, sine, cosine);
    let cos_sign = (prim::wrapping_add(r.quadrant, 1u32) << 30u32) & SIGN;
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
    tan_reduced(ieee, x, reduce(ieee, ieee.abs(x)))
}

/// [`sin()`] of what is reduced. For CPU loops, as the two that follow.
#[inline(always)]
pub(crate) fn sin_reduced(ieee: &Ieee, x: f32, r: Reduced) -> f32 {
    sin_cos_reduced(ieee, x, r).sin
}

#[inline(always)]
pub(crate) fn cos_reduced(ieee: &Ieee, x: f32, r: Reduced) -> f32 {
    sin_cos_reduced(ieee, x, r).cos
}

#[cube]
#[inline(always)]
pub(crate) fn tan_reduced(ieee: &Ieee, x: f32, r: Reduced) -> f32 {
    let square = two_product(ieee, r.hi, r.hi);
    let cube = ieee.mul(r.hi, square.hi);
    // The derivative 1 + tan^2 times lo, and hi^3 / 3 + ... of the square's lower part.
    let near = ieee.fma(cube, TAN_0, r.hi);
    let rest = ieee.fma(ieee.mul(r.lo, near), near, r.lo);
    let rest = ieee.fma(ieee.mul(r.hi, square.lo), TAN_LOW, rest);
    let p = poly6(ieee, square.hi, TAN_1, TAN_2, TAN_3, TAN_4, TAN_5, TAN_6);
    let rest = ieee.fma(ieee.mul(cube, square.hi), p, rest);
    let tan = fast_two_sum(ieee, r.hi, ieee.fma(cube, TAN_0, rest));
    let i = rough_inverse(ieee, tan.hi);
    let e = ieee.fma(ieee.neg(i), tan.hi, 1.0f32);
    let e = ieee.fma(ieee.neg(i), tan.lo, e);
    let odd = (r.quadrant & 1u32) != 0u32;
    let y = prim::select(odd, ieee.fma(i, e, i), tan.hi);
    let sign = (prim::bits(x) ^ (r.quadrant << 31u32)) & SIGN;
    nan_unless_finite(x, flip(y, sign))
}
