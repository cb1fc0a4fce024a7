//! The logistic function and its kin.

use super::{exponential::decay, logarithm::ln_tail, parts::*};
use crate::{ieee::Ieee, prim};
use cubecl::prelude::*;

bits! {
    ONE_THIRD = 0x3eaaaaab;
    MINUS_INV_LN2 = 0xbfb8aa3b;
    // exp(r) = 1 + r + r^2 EXP(r), |r| <= (ln 2) / 2.
    EXP_0 = 0x3f000000;
    EXP_1 = 0x3e2aaaab;
    EXP_2 = 0x3d2aaa72;
    EXP_3 = 0x3c0887f7;
    EXP_4 = 0x3ab6a8ab;
    EXP_5 = 0x39513a08;
    // 1 / (1 + x) to 2^-9, 0 <= x <= 1; at least 1/2.
    INVERSE_0 = 0x3f7f807b;
    INVERSE_1 = 0xbf70344e;
    INVERSE_2 = 0x3f26cca5;
    INVERSE_3 = 0xbe585779;
    TWO_64 = 0x5f800000;
}

const TWO_64_BITS: u32 = 0x5f80_0000;

/// `-a = n ln 2 + r` for `a >= 0`.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Exponent {
    /// `ROUND + n`.
    t: f32,
    r: f32,
    /// `1 + r`, and what `r` lacks.
    one: Pair,
}

/// The bits of 112: e^-112 is below 2^-161.
const FAR: u32 = 0x42e0_0000;

/// For `a = |x|`, at most 112.
#[cube]
#[inline(always)]
fn exponent(ieee: &Ieee, x: f32) -> Exponent {
    let magnitude = prim::bits(x) & ABS;
    let a = prim::from_bits(prim::select_u32(magnitude < FAR, magnitude, FAR));
    let t = ieee.fma(a, MINUS_INV_LN2, ROUND);
    let n = ieee.sub(t, ROUND);
    let first = ieee.fma(n, MINUS_LN2, ieee.neg(a));
    let r = ieee.fma(n, MINUS_LN2_REST, first);
    let one = fast_two_sum(ieee, 1.0f32, r);
    Exponent { t, r, one }
}

/// For `a = a.hi + a.lo`, `0 <= a.hi`, at most 112.
#[cube]
#[inline(always)]
pub(super) fn exponent_pair(ieee: &Ieee, a: Pair) -> Exponent {
    let bits = prim::bits(a.hi);
    let hi = prim::from_bits(prim::select_u32(bits < FAR, bits, FAR));
    let t = ieee.fma(hi, MINUS_INV_LN2, ROUND);
    let n = ieee.sub(t, ROUND);
    let first = ieee.fma(n, MINUS_LN2, ieee.neg(hi));
    let rest = ieee.fma(n, MINUS_LN2_REST, ieee.neg(a.lo));
    let r = fast_two_sum(ieee, first, rest);
    let one = fast_two_sum(ieee, 1.0f32, r.hi);
    Exponent {
        t,
        r: r.hi,
        one: Pair {
            hi: one.hi,
            lo: ieee.add(one.lo, r.lo),
        },
    }
}

/// `(top * inverse + rest) * scale * 2^-64`.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Logistic {
    top: f32,
    inverse: f32,
    rest: f32,
    scale: f32,
}

/// `p * scale * 2^-64`.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Power {
    pub(super) p: Pair,
    pub(super) scale: f32,
}

/// `e^-a`. The `lo` of `p` is up to a sixteenth.
#[cube]
#[inline(always)]
pub(super) fn power(ieee: &Ieee, a: Exponent) -> Power {
    let q = poly6(ieee, a.r, EXP_0, EXP_1, EXP_2, EXP_3, EXP_4, EXP_5);
    let lo = ieee.fma(ieee.mul(a.r, a.r), q, a.one.lo);
    // 2^(n + 64), so that the first product with it is exact and the second one rounds once.
    let bits = prim::wrapping_add(prim::bits(a.t) << 23u32, TWO_64_BITS);
    Power {
        p: Pair { hi: a.one.hi, lo },
        scale: prim::from_bits(bits),
    }
}

/// `1 / (1 + e^a)` where `negative`, else `1 / (1 + e^-a)`.
#[cube]
#[inline(always)]
pub(super) fn logistic(ieee: &Ieee, negative: bool, a: Exponent) -> Logistic {
    let e = power(ieee, a);
    let p = ieee.add(e.p.hi, e.p.lo);
    let power = ieee.mul(ieee.mul(e.scale, TWO_MINUS_64), p);
    // 1 / (1 + power) = i (1 + error + error^2) but for error^3; 1 - i is exact.
    let i = poly4(ieee, power, INVERSE_0, INVERSE_1, INVERSE_2, INVERSE_3);
    let error = ieee.fma(ieee.neg(i), power, ieee.sub(1.0f32, i));
    let i_lo = ieee.mul(i, ieee.fma(error, error, error));
    let rest = ieee.fma(p, i_lo, ieee.mul(e.p.lo, i));
    Logistic {
        top: prim::select(negative, e.p.hi, 1.0f32),
        inverse: i,
        rest: prim::select(negative, rest, i_lo),
        scale: prim::select(negative, e.scale, TWO_64),
    }
}

/// `1 / (1 + e^-x)`. At most 1 ulp.
///
/// +0 at -inf, 1 at +inf; subnormal below about -87.3, +0 below about -103.97.
#[cube]
#[inline(always)]
pub fn sigmoid(ieee: &Ieee, x: f32) -> f32 {
    let negative = (prim::bits(x) & SIGN) != 0u32;
    let y = logistic(ieee, negative, exponent(ieee, x));
    let q = ieee.fma(y.top, y.inverse, y.rest);
    nan_of(x, ieee.mul(ieee.mul(q, y.scale), TWO_MINUS_64))
}

/// `|c|` times what `y` is.
#[cube]
#[inline(always)]
pub(super) fn times_logistic(ieee: &Ieee, c: f32, y: Logistic) -> f32 {
    let q = two_product(ieee, y.top, y.inverse);
    let q_lo = ieee.add(q.lo, y.rest);
    let a = ieee.abs(c);
    let product = ieee.fma(a, q.hi, ieee.mul(a, q_lo));
    ieee.mul(ieee.mul(product, y.scale), TWO_MINUS_64)
}

/// `x * sigmoid(x)`, also called swish. At most 1 ulp.
///
/// -0 at -inf (its limit), +inf at +inf; a zero keeps its sign.
#[cube]
#[inline(always)]
pub fn silu(ieee: &Ieee, x: f32) -> f32 {
    let sign = prim::bits(x) & SIGN;
    let negative = sign != 0u32;
    let y = logistic(ieee, negative, exponent(ieee, x));
    let c = prim::select(ieee.lt(x, -112.0f32), -112.0f32, x);
    let y = times_logistic(ieee, c, y);
    let y = prim::select(ieee.lt(112.0f32, x), x, y);
    nan_of(x, prim::from_bits(prim::bits(y) | sign))
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
