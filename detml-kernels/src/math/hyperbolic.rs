//! Hyperbolic functions.

use super::{
    exponential::{exp_reduced, half_expm1, reduce},
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
}

/// The hyperbolic tangent. At most 1 ulp.
///
/// -1 and 1 at -inf and +inf; a zero keeps its sign.
#[cube]
#[inline(always)]
pub fn tanh(ieee: &Ieee, x: f32) -> f32 {
    let a = ieee.abs(x);
    let a = prim::select(ieee.lt(10.0f32, a), 10.0f32, a);
    // h / (h + 1) with h = expm1(2a) / 2.
    let h = half_expm1(ieee, ieee.mul(a, 2.0f32)).half;
    let d = two_sum(ieee, h.hi, 1.0f32);
    let d_lo = ieee.add(d.lo, h.lo);
    let inverse = ieee.div(1.0f32, d.hi);
    let q = ieee.mul(h.hi, inverse);
    let rest = ieee.fma(ieee.neg(q), d.hi, h.hi);
    let rest = ieee.add(ieee.fma(ieee.neg(q), d_lo, rest), h.lo);
    nan_of(x, ieee.copysign(ieee.fma(rest, inverse, q), x))
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
