//! Hyperbolic functions.

use super::{
    exponential::{exp_reduced, reduce},
    parts::*,
};
use crate::{ieee::Ieee, prim};
use cubecl::prelude::*;

bits! {
    // sinh(x) = x + x^3 SINH(x^2), |x| <= 1.
    SINH_0 = 0x3e2aaaab;
    SINH_1 = 0x3c088876;
    SINH_2 = 0x39500d46;
    SINH_3 = 0x363b60da;
    // tanh(x) = x + x^3 TANH(x^2), |x| < TANH_SMALL = 0.7.
    TANH_SMALL = 0x3f333333;
    TANH_0 = 0xbeaaaaa7;
    TANH_1 = 0x3e088773;
    TANH_2 = 0xbd5cd5c8;
    TANH_3 = 0x3cb07ed5;
    TANH_4 = 0xbc0052f6;
    TANH_5 = 0x3af39e8b;
    // exp(-2 r) = 1 - 2 r + r^2 EXP_M2(r), |r| <= (ln 2) / 4.
    EXP_M2_0 = 0x3ffffffb;
    EXP_M2_1 = 0xbfaaaa47;
    EXP_M2_2 = 0x3f2aae2f;
    EXP_M2_3 = 0xbe891df4;
    EXP_M2_4 = 0x3db40e98;
    // 1 / (1/2 + h) to 2^-15, 0 <= h <= 1/8.
    INVERSE_0 = 0x3ffffebb;
    INVERSE_1 = 0xc07f5c88;
    INVERSE_2 = 0x40f2b3cd;
    INVERSE_3 = 0xc121c17f;
    // -2 / ln 2, and (ln 2) / 2 to 48 bits.
    MINUS_TWO_INV_LN2 = 0xc038aa3b;
    HALF_LN2 = 0x3eb17218;
    HALF_LN2_REST = 0xb082e308;
}

/// The bits of 1/2.
const HALF: u32 = 0x3f00_0000;
/// The bits of 10, from which on tanh rounds to 1.
const TEN: u32 = 0x4120_0000;

/// The hyperbolic tangent. At most 1 ulp.
///
/// -1 and 1 at -inf and +inf; a zero keeps its sign.
#[cube]
#[inline(always)]
pub fn tanh(ieee: &Ieee, x: f32) -> f32 {
    let bits = prim::bits(x);
    let magnitude = bits & ABS;
    let a = prim::from_bits(prim::select_u32(magnitude < TEN, magnitude, TEN));
    let square = ieee.mul(a, a);
    let p = poly6(ieee, square, TANH_0, TANH_1, TANH_2, TANH_3, TANH_4, TANH_5);
    let small = ieee.fma(ieee.mul(a, square), p, a);
    // a = r - n (ln 2) / 2, so that h = e^-2a / 2 = 2^(n-1) e^-2r.
    let t = ieee.fma(a, MINUS_TWO_INV_LN2, ROUND);
    let n = ieee.sub(t, ROUND);
    let r = ieee.fma(n, HALF_LN2_REST, ieee.fma(n, HALF_LN2, a));
    let q = poly5(ieee, r, EXP_M2_0, EXP_M2_1, EXP_M2_2, EXP_M2_3, EXP_M2_4);
    let m = ieee.mul(r, ieee.fma(r, q, -2.0f32));
    let s = prim::from_bits(prim::wrapping_add(prim::bits(t) << 23u32, HALF));
    let h = ieee.fma(s, m, s);
    // tanh(a) = 1 / (1/2 + h) - 1 = i (1 + e) - 1 but for e^2; i - 1 is exact.
    let i = poly4(ieee, h, INVERSE_0, INVERSE_1, INVERSE_2, INVERSE_3);
    let e = ieee.fma(ieee.neg(i), h, ieee.fma(i, -0.5f32, 1.0f32));
    let large = ieee.fma(i, e, ieee.sub(i, 1.0f32));
    let y = prim::select(ieee.lt(a, TANH_SMALL), small, large);
    nan_of(x, prim::from_bits(prim::bits(y) | (bits & SIGN)))
}

/// `e^a = (p.hi + p.lo) * 2 * first * second` for `a >= 0`; `q` is `2^-2n / p`.
#[derive(CubeType, Clone, Copy)]
struct Growth {
    p: Pair,
    q: f32,
    /// 2^(n-1).
    scale: Scale,
}

#[cube]
#[inline(always)]
fn growth(ieee: &Ieee, x: f32) -> Growth {
    let a = ieee.abs(x);
    let a = prim::select(ieee.lt(92.0f32, a), 92.0f32, a);
    let reduced = reduce(ieee, a);
    let p = exp_reduced(ieee, reduced.r);
    let n = prim::wrapping_sub(reduced.biased, 254u32);
    // Beyond n = 32, far below the last bit of p, the power stays.
    let n = prim::select_u32(n < 32u32, n, 32u32);
    let square = power_of_two(prim::wrapping_sub(127u32, n << 1u32));
    Growth {
        p,
        q: ieee.div(square, p.hi),
        scale: scale(prim::wrapping_sub(reduced.biased, 1u32)),
    }
}

/// The hyperbolic sine. At most 1 ulp.
///
/// -inf and +inf at -inf and +inf and where the result rounds beyond the largest number; a zero
/// keeps its sign.
#[cube]
#[inline(always)]
pub fn sinh(ieee: &Ieee, x: f32) -> f32 {
    let a = ieee.abs(x);
    let square = ieee.mul(a, a);
    let p = poly4(ieee, square, SINH_0, SINH_1, SINH_2, SINH_3);
    let small = ieee.fma(ieee.mul(a, square), p, a);
    let e = growth(ieee, x);
    let difference = fast_two_sum(ieee, e.p.hi, ieee.neg(e.q));
    let y = ieee.add(difference.hi, ieee.add(difference.lo, e.p.lo));
    let y = ieee.mul(ieee.mul(y, e.scale.first), e.scale.second);
    let y = prim::select(ieee.lt(a, 1.0f32), small, y);
    nan_of(x, ieee.copysign(y, x))
}

/// The hyperbolic cosine. At most 1 ulp.
///
/// +inf at both infinities and where the result rounds beyond the largest number.
#[cube]
#[inline(always)]
pub fn cosh(ieee: &Ieee, x: f32) -> f32 {
    let e = growth(ieee, x);
    let sum = two_sum(ieee, e.p.hi, e.q);
    let y = ieee.add(sum.hi, ieee.add(sum.lo, e.p.lo));
    let y = ieee.mul(ieee.mul(y, e.scale.first), e.scale.second);
    nan_of(x, y)
}
