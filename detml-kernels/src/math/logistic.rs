//! The logistic function and its kin.

use super::{
    exponential::{Decay, decay},
    logarithm::ln_tail,
    parts::*,
};
use crate::{ieee::Ieee, prim};
use cubecl::prelude::*;

bits! {
    ONE_THIRD = 0x3eaaaaab;
}

/// `(q.hi + q.lo) * 2^n`.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Quotient {
    pub(super) q: Pair,
    /// 2^n.
    pub(super) scale: Scale,
}

/// `1 / (1 + e^-x)` from the sign of `x` and `e = e^-|x|`.
#[cube]
#[inline(always)]
pub(super) fn logistic(ieee: &Ieee, x: f32, e: Decay) -> Quotient {
    let negative = (prim::bits(x) & SIGN) != 0u32;
    let hi = ieee.mul(e.p.hi, e.s);
    let d = fast_two_sum(ieee, 1.0f32, hi);
    let d_lo = ieee.fma(e.p.lo, e.s, d.lo);
    let top = prim::select(negative, e.p.hi, 1.0f32);
    let top_lo = prim::select(negative, e.p.lo, 0.0f32);
    let inverse = ieee.div(1.0f32, d.hi);
    let q = ieee.mul(top, inverse);
    let rest = ieee.fma(ieee.neg(q), d_lo, ieee.fma(ieee.neg(q), d.hi, top));
    Quotient {
        q: Pair {
            hi: q,
            lo: ieee.mul(ieee.add(rest, top_lo), inverse),
        },
        scale: Scale {
            first: prim::select(negative, e.scale.first, 1.0f32),
            second: prim::select(negative, e.scale.second, 1.0f32),
        },
    }
}

/// `1 / (1 + e^-x)`. At most 1 ulp.
///
/// +0 at -inf, 1 at +inf; subnormal below about -87.3, +0 below about -103.97.
#[cube]
#[inline(always)]
pub fn sigmoid(ieee: &Ieee, x: f32) -> f32 {
    let y = logistic(ieee, x, decay(ieee, ieee.abs(x)));
    let q = ieee.add(y.q.hi, y.q.lo);
    nan_of(x, ieee.mul(ieee.mul(q, y.scale.first), y.scale.second))
}

/// `x * sigmoid(x)`, also called swish. At most 1 ulp.
///
/// -0 at -inf (its limit), +inf at +inf; a zero keeps its sign.
#[cube]
#[inline(always)]
pub fn silu(ieee: &Ieee, x: f32) -> f32 {
    let y = logistic(ieee, x, decay(ieee, ieee.abs(x)));
    let c = prim::select(ieee.lt(x, -112.0f32), -112.0f32, x);
    let product = two_product(ieee, c, y.q.hi);
    let p = ieee.add(product.hi, ieee.fma(c, y.q.lo, product.lo));
    let y = ieee.mul(ieee.mul(p, y.scale.first), y.scale.second);
    let y = prim::select(ieee.lt(112.0f32, x), x, y);
    // The sum of the product's parts loses the sign of a zero.
    nan_of(x, ieee.copysign(y, x))
}

/// `ln(1 + e^x)`. At most 1 ulp.
///
/// +0 at -inf, +inf at +inf; subnormal below about -87.3, +0 below about -103.97. It equals x from
/// about 17 on.
#[cube]
#[inline(always)]
pub fn softplus(ieee: &Ieee, x: f32) -> f32 {
    let e = decay(ieee, ieee.abs(x));
    // Below 2^-64 the logarithm is e itself.
    let tiny = ieee.lt(e.s, 5.421011e-20f32);
    let hi = ieee.mul(e.p.hi, e.s);
    let lo = ieee.mul(e.p.lo, e.s);
    // 1 + hi + lo = 2^k (1 + f + f_lo)
    let upper = ieee.le(ONE_THIRD, hi);
    let half = prim::select(upper, 0.5f32, 1.0f32);
    let less = prim::select(upper, -0.5f32, 0.0f32);
    let f = ieee.fma(half, hi, less);
    let f_lo = ieee.fma(half, hi, ieee.sub(less, f));
    let f_lo = ieee.fma(half, lo, f_lo);
    let f_lo = ieee.fma(ieee.neg(f_lo), f, f_lo);
    let k_ln2 = prim::select(upper, LN2_16, 0.0f32);
    let k_ln2_rest = prim::select(upper, LN2_16_REST, 0.0f32);
    let sum = fast_two_sum(ieee, k_ln2, f);
    let negative = (prim::bits(x) & SIGN) != 0u32;
    let linear = prim::select(negative, 0.0f32, x);
    let total = two_sum(ieee, linear, sum.hi);
    let rest = ieee.add(ieee.add(sum.lo, total.lo), ieee.add(k_ln2_rest, f_lo));
    let y = ieee.add(total.hi, ln_tail(ieee, f, rest));
    let decayed = ieee.mul(ieee.mul(e.p.hi, e.scale.first), e.scale.second);
    let y = prim::select(tiny, prim::select(negative, decayed, x), y);
    nan_of(x, y)
}

/// `ln(sigmoid(x)) = -ln(1 + e^-x)`. At most 1 ulp.
///
/// -inf at -inf, -0 at +inf; subnormal above about 87.3, -0 above about 103.97.
#[cube]
#[inline(always)]
pub fn log_sigmoid(ieee: &Ieee, x: f32) -> f32 {
    nan_of(x, ieee.neg(softplus(ieee, ieee.neg(x))))
}
