//! Inverse trigonometric functions.

use super::parts::*;
use crate::{ieee::Ieee, prim};
use cubecl::prelude::*;

bits! {
    // atan(t) = t + t^3 ATAN(t^2), |t| <= sqrt(2) - 1.
    ATAN_0 = 0xbeaaaaa5;
    ATAN_1 = 0x3e4cc8f2;
    ATAN_2 = 0xbe11dce8;
    ATAN_3 = 0x3dd91379;
    ATAN_4 = 0xbd7978db;
    // asin(x) = x + x^3 ASIN(x^2), |x| <= 1/2.
    ASIN_0 = 0x3e2aaaa6;
    ASIN_1 = 0x3d999c50;
    ASIN_2 = 0x3d365521;
    ASIN_3 = 0x3d0259e4;
    ASIN_4 = 0x3c6ba24c;
    ASIN_5 = 0x3d19f8df;
    // pi/4, pi/2, pi to 48 bits.
    QUARTER_PI = 0x3f490fdb;
    QUARTER_PI_REST = 0xb2bbbd2e;
    HALF_PI = 0x3fc90fdb;
    HALF_PI_REST = 0xb33bbd2e;
    PI = 0x40490fdb;
    PI_REST = 0xb3bbbd2e;
    // sqrt(2) - 1
    EIGHTH = 0x3ed413cd;
    TWO_60 = 0x5d800000;
    TWO_64 = 0x5f800000;
    TWO_MINUS_64 = 0x1f800000;
    TWO_MINUS_30 = 0x30800000;
}

/// The angle whose tangent is `n / d`, or that subtracted from pi/2 if `swapped`, and that from pi
/// if `back`; for `0 <= n <= d`, `d` from 2^-100 to 2^100.
#[cube]
#[inline(always)]
fn octant(ieee: &Ieee, n: f32, d: f32, swapped: bool, back: bool) -> f32 {
    // Beyond pi/8 by the tangent of the difference from pi/4.
    let upper = ieee.lt(ieee.mul(d, EIGHTH), n);
    let difference = two_sum(ieee, n, ieee.neg(d));
    let sum = fast_two_sum(ieee, d, n);
    let top = prim::select(upper, difference.hi, n);
    let top_lo = prim::select(upper, difference.lo, 0.0f32);
    let bottom = prim::select(upper, sum.hi, d);
    let bottom_lo = prim::select(upper, sum.lo, 0.0f32);
    let inverse = ieee.div(1.0f32, bottom);
    let t = ieee.mul(top, inverse);
    let rest = ieee.add(ieee.fma(ieee.neg(t), bottom, top), top_lo);
    let rest = ieee.fma(ieee.neg(t), bottom_lo, rest);
    let t_lo = ieee.mul(rest, inverse);
    let square = ieee.mul(t, t);
    let p = poly5(ieee, square, ATAN_0, ATAN_1, ATAN_2, ATAN_3, ATAN_4);
    let tail = ieee.fma(ieee.neg(square), t_lo, t_lo);
    let tail = ieee.fma(ieee.mul(t, square), p, tail);
    // The multiple of pi/4 that it is counted from, and its direction.
    let base = prim::select_u32(upper, 1u32, 0u32);
    let base = prim::select_u32(swapped, prim::wrapping_sub(2u32, base), base);
    let base = prim::select_u32(back, prim::wrapping_sub(4u32, base), base);
    let down = prim::select_u32(swapped, SIGN, 0u32) ^ prim::select_u32(back, SIGN, 0u32);
    let eighths = small_int(ieee, base, 8388608.0f32);
    let from = two_product(ieee, eighths, QUARTER_PI);
    let from_lo = ieee.fma(eighths, QUARTER_PI_REST, from.lo);
    let t = prim::from_bits(prim::bits(t) ^ down);
    let tail = prim::from_bits(prim::bits(tail) ^ down);
    let sum = fast_two_sum(ieee, from.hi, t);
    ieee.add(sum.hi, ieee.add(sum.lo, ieee.add(tail, from_lo)))
}

/// The angle in -pi/2..=pi/2 whose tangent is x. At most 1 ulp.
///
/// -pi/2 and pi/2 (rounded) at -inf and +inf; a zero keeps its sign.
#[cube]
#[inline(always)]
pub fn atan(ieee: &Ieee, x: f32) -> f32 {
    let a = ieee.abs(x);
    // Beyond 2^60 nothing changes.
    let a = prim::select(ieee.lt(TWO_60, a), TWO_60, a);
    let swapped = ieee.lt(1.0f32, a);
    let n = prim::select(swapped, 1.0f32, a);
    let d = prim::select(swapped, a, 1.0f32);
    nan_of(x, ieee.copysign(octant(ieee, n, d, swapped, false), x))
}

/// The angle in -pi..=pi of the point (x, y), its first coordinate last. At most 1 ulp.
///
/// The signs of zeros count, as in C: `atan2(+-0, -0) = +-pi`, `atan2(+-0, +0) = +-0`; infinities
/// make multiples of pi/4.
#[cube]
#[inline(always)]
pub fn atan2(ieee: &Ieee, y: f32, x: f32) -> f32 {
    let y_bits = prim::bits(y) & ABS;
    let x_bits = prim::bits(x) & ABS;
    let back = (prim::bits(x) & SIGN) != 0u32;
    let swapped = x_bits < y_bits;
    let n_bits = prim::select_u32(swapped, x_bits, y_bits);
    let d_bits = prim::select_u32(swapped, y_bits, x_bits);
    // Both infinite: the diagonal. One infinite, or both zero: the axis.
    let diagonal = n_bits == INFINITY;
    let axis = d_bits == INFINITY || d_bits == 0u32;
    let n_bits = prim::select_u32(
        diagonal,
        0x3f80_0000u32,
        prim::select_u32(axis, 0u32, n_bits),
    );
    let d_bits = prim::select_u32(diagonal || axis, 0x3f80_0000u32, d_bits);
    let n = prim::from_bits(n_bits);
    let d = prim::from_bits(d_bits);
    let large = ieee.lt(TWO_60, d);
    let scale = prim::select(large, TWO_MINUS_64, 1.0f32);
    let scale = prim::select(ieee.lt(d, prim::from_bits(0x2180_0000u32)), TWO_64, scale);
    let r = octant(ieee, ieee.mul(n, scale), ieee.mul(d, scale), swapped, back);
    // A tiny quotient is its own angle; scaled, it might have lost bits.
    let tiny = ieee.lt(n, ieee.mul(d, TWO_MINUS_30)) && !swapped && !back;
    let r = prim::select(tiny, ieee.div(n, d), r);
    let r = or_bits(x_bits > INFINITY || y_bits > INFINITY, NAN, r);
    prim::from_bits(
        prim::bits(r) | prim::select_u32(prim::bits(r) == NAN, 0u32, prim::bits(y) & SIGN),
    )
}

/// `w.hi + w.lo` with `asin(x) = w` if not `large`, else `pi/2 - 2 w`, for `|x| <= 1`.
#[derive(CubeType, Clone, Copy)]
struct Arc {
    w: Pair,
    large: bool,
}

#[cube]
#[inline(always)]
fn arc(ieee: &Ieee, a: f32) -> Arc {
    let large = ieee.lt(0.5f32, a);
    // sin(pi/2 - 2 w) = 1 - 2 sin(w)^2
    let half = ieee.fma(a, -0.5f32, 0.5f32);
    let root = ieee.sqrt(half);
    let rest = ieee.fma(ieee.neg(root), root, half);
    let root_lo = ieee.div(rest, ieee.add(root, root));
    let root_lo = prim::select(ieee.eq(half, 0.0f32), 0.0f32, root_lo);
    let square = prim::select(large, half, ieee.mul(a, a));
    let base = prim::select(large, root, a);
    let base_lo = prim::select(large, root_lo, 0.0f32);
    let p = poly6(ieee, square, ASIN_0, ASIN_1, ASIN_2, ASIN_3, ASIN_4, ASIN_5);
    let tail = ieee.fma(ieee.mul(base, square), p, base_lo);
    Arc {
        w: Pair { hi: base, lo: tail },
        large,
    }
}

/// The angle in -pi/2..=pi/2 whose sine is x. At most 1 ulp.
///
/// NaN beyond -1 and 1; a zero keeps its sign.
#[cube]
#[inline(always)]
pub fn asin(ieee: &Ieee, x: f32) -> f32 {
    let y = arc(ieee, ieee.abs(x));
    let small = ieee.add(y.w.hi, y.w.lo);
    let sum = fast_two_sum(ieee, HALF_PI, ieee.mul(y.w.hi, -2.0f32));
    let rest = ieee.fma(y.w.lo, -2.0f32, ieee.add(sum.lo, HALF_PI_REST));
    let r = prim::select(y.large, ieee.add(sum.hi, rest), small);
    or_bits(
        (prim::bits(x) & ABS) > 0x3f80_0000u32,
        NAN,
        ieee.copysign(r, x),
    )
}

/// The angle in 0..=pi whose cosine is x. At most 1 ulp.
///
/// +0 at 1, NaN beyond -1 and 1.
#[cube]
#[inline(always)]
pub fn acos(ieee: &Ieee, x: f32) -> f32 {
    let y = arc(ieee, ieee.abs(x));
    let negative = (prim::bits(x) & SIGN) != 0u32;
    // pi/2 - asin(x), or 2 w from 0 or from pi.
    let from = prim::select(y.large, prim::select(negative, PI, 0.0f32), HALF_PI);
    let from_lo = prim::select(
        y.large,
        prim::select(negative, PI_REST, 0.0f32),
        HALF_PI_REST,
    );
    let sign = prim::select(y.large != negative, 1.0f32, -1.0f32);
    let factor = prim::select(y.large, ieee.mul(sign, 2.0f32), sign);
    let sum = fast_two_sum(ieee, from, ieee.mul(y.w.hi, factor));
    let rest = ieee.fma(y.w.lo, factor, ieee.add(sum.lo, from_lo));
    or_bits(
        (prim::bits(x) & ABS) > 0x3f80_0000u32,
        NAN,
        ieee.add(sum.hi, rest),
    )
}
