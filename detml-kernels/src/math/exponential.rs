//! Exponentials.

use super::parts::*;
use crate::{ieee::Ieee, prim};
use cubecl::prelude::*;

/// The bits of 1.
const ONE: u32 = 0x3f80_0000;

bits! {
    // exp(r) = 1 + r + r^2 EXP(r), |r| <= (ln 2) / 2.
    EXP_0 = 0x3efffffb;
    EXP_1 = 0x3e2aaa47;
    EXP_2 = 0x3d2aae2f;
    EXP_3 = 0x3c091df4;
    EXP_4 = 0x3ab40e98;
    // 2^r = 1 + r ln 2 + r^2 EXP2(r), |r| <= 1/2.
    EXP2_0 = 0x3e75fdf6;
    EXP2_1 = 0x3d6357c3;
    EXP2_2 = 0x3c1d90c9;
    EXP2_3 = 0x3aaf82a9;
    EXP2_4 = 0x3925014b;
    // 10^r = 1 + r ln 10 + r^2 EXP10(r), |r| <= (log10 2) / 2.
    EXP10_0 = 0x4029a928;
    EXP10_1 = 0x400237e1;
    EXP10_2 = 0x3f95e9b5;
    EXP10_3 = 0x3f0aabb8;
    EXP10_4 = 0x3e5658a9;
    // expm1(r) = r + r^2 EXPM1(r), |r| <= (ln 2) / 2.
    EXPM1_0 = 0x3f000000;
    EXPM1_1 = 0x3e2aaaaa;
    EXPM1_2 = 0x3d2aaa78;
    EXPM1_3 = 0x3c088983;
    EXPM1_4 = 0x3ab6a1b9;
    EXPM1_5 = 0x394f0614;
    LOG2_10 = 0x40549a78;
    // -log10(2) to 48 bits.
    MINUS_LOG10_2 = 0xbe9a209b;
    MINUS_LOG10_2_REST = 0x32760860;
    // ln 10 = LN10 + LN10_REST to 48 bits.
    LN10 = 0x40135d8e;
    LN10_REST = 0xb309555d;
}

/// `x = n ln 2 + r.hi + r.lo`, `|r| <= (ln 2) / 2`.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Reduced {
    /// `n + 254`.
    pub(super) biased: u32,
    pub(super) r: Pair,
}

/// For `|x| <= 110`. The first product with `n` is exact within its sum: it leaves multiples of
/// the last bit of `ln 2` or of `x`, which fit.
#[cube]
#[inline(always)]
pub(super) fn reduce(ieee: &Ieee, x: f32) -> Reduced {
    let t = ieee.fma(x, INV_LN2, ROUND);
    let n = ieee.sub(t, ROUND);
    let first = ieee.fma(n, MINUS_LN2, x);
    let hi = ieee.fma(n, MINUS_LN2_REST, first);
    let lo = ieee.fma(n, MINUS_LN2_REST, ieee.sub(first, hi));
    Reduced {
        biased: prim::wrapping_sub(prim::bits(t), ROUND_254),
        r: Pair { hi, lo },
    }
}

/// e^(r.hi + r.lo) for `|r| <= (ln 2) / 2`, to 2^-27.
#[cube]
#[inline(always)]
pub(super) fn exp_reduced(ieee: &Ieee, r: Pair) -> Pair {
    let q = poly5(ieee, r.hi, EXP_0, EXP_1, EXP_2, EXP_3, EXP_4);
    let square = ieee.mul(r.hi, r.hi);
    let one = fast_two_sum(ieee, 1.0f32, r.hi);
    let rest = ieee.fma(square, q, ieee.add(one.lo, r.lo));
    fast_two_sum(ieee, one.hi, rest)
}

/// A power of e as `p * 2^n`.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Decay {
    pub(super) p: Pair,
    /// 2^n.
    pub(super) scale: Scale,
    /// 2^n, rounded to a subnormal or 0 below -126.
    pub(super) s: f32,
}

/// For `biased - 254 = n` in -190..=0: the first factor of the scale is 2^(n + 64).
#[cube]
#[inline(always)]
fn decayed(ieee: &Ieee, r: Pair, biased: u32) -> Decay {
    let scale = Scale {
        first: power_of_two(prim::wrapping_sub(biased, 63u32)),
        second: TWO_MINUS_64,
    };
    Decay {
        p: exp_reduced(ieee, r),
        scale,
        s: ieee.mul(scale.first, scale.second),
    }
}

/// `e^-a` for `a >= 0`; beyond 112 the value at 112, which is below 2^-161.
#[cube]
#[inline(always)]
pub(super) fn decay(ieee: &Ieee, a: f32) -> Decay {
    let a = prim::select(ieee.lt(112.0f32, a), 112.0f32, a);
    let reduced = reduce(ieee, ieee.neg(a));
    decayed(ieee, reduced.r, reduced.biased)
}

/// `e^-(a.hi + a.lo)`, likewise.
#[cube]
#[inline(always)]
pub(super) fn decay_pair(ieee: &Ieee, a: Pair) -> Decay {
    let hi = prim::select(ieee.lt(112.0f32, a.hi), 112.0f32, a.hi);
    let reduced = reduce(ieee, ieee.neg(hi));
    let r = fast_two_sum(ieee, reduced.r.hi, ieee.sub(reduced.r.lo, a.lo));
    decayed(ieee, r, reduced.biased)
}

/// `x` held within `low..=high`; a NaN stays.
#[cube]
#[inline(always)]
pub(super) fn clamp(ieee: &Ieee, x: f32, low: f32, high: f32) -> f32 {
    let x = prim::select(ieee.lt(x, low), low, x);
    prim::select(ieee.lt(high, x), high, x)
}

/// e^x. At most 1 ulp.
///
/// +0 at -inf, +inf at +inf and where e^x rounds beyond the largest number (from 0x42b17218 on);
/// results below 2^-126 are subnormal, +0 below ln(2^-150).
#[cube]
#[inline(always)]
pub fn exp(ieee: &Ieee, x: f32) -> f32 {
    nan_of(x, exp_some_nan(ieee, x))
}

/// [`exp`], the same bits but for a NaN, which gives some NaN.
#[cube]
#[inline(always)]
pub(crate) fn exp_some_nan(ieee: &Ieee, x: f32) -> f32 {
    let c = clamp(ieee, x, -104.0f32, 89.0f32);
    let t = ieee.fma(c, INV_LN2, ROUND);
    let n = ieee.sub(t, ROUND);
    let r = ieee.fma(n, MINUS_LN2_REST, ieee.fma(n, MINUS_LN2, c));
    let q = poly5(ieee, r, EXP_0, EXP_1, EXP_2, EXP_3, EXP_4);
    let one = fast_two_sum(ieee, 1.0f32, r);
    let p = ieee.add(one.hi, ieee.fma(ieee.mul(r, r), q, one.lo));
    let s = scale(prim::wrapping_sub(prim::bits(t), ROUND_254));
    ieee.mul(ieee.mul(p, s.first), s.second)
}

/// [`exp`] of what is not above 0, the same bits but for a NaN, which gives some NaN.
#[cube]
#[inline(always)]
pub(crate) fn exp_nonpositive(ieee: &Ieee, x: f32) -> f32 {
    let c = prim::select(ieee.lt(x, -104.0f32), -104.0f32, x);
    let t = ieee.fma(c, INV_LN2, ROUND);
    let n = ieee.sub(t, ROUND);
    let r = ieee.fma(n, MINUS_LN2_REST, ieee.fma(n, MINUS_LN2, c));
    let q = poly5(ieee, r, EXP_0, EXP_1, EXP_2, EXP_3, EXP_4);
    let one = fast_two_sum(ieee, 1.0f32, r);
    let p = ieee.add(one.hi, ieee.fma(ieee.mul(r, r), q, one.lo));
    // 2^(n + 64), so that the first product is exact and the second one rounds once.
    let s = prim::wrapping_add(prim::bits(t) << 23u32, 0x5f80_0000u32);
    ieee.mul(ieee.mul(p, prim::from_bits(s)), TWO_MINUS_64)
}

/// [`exp`] of what lies within -87 and 88, the same bits: no result is subnormal or infinite, so one
/// product scales it. Of others some number or NaN, the same everywhere but for the sign and
/// payload of a NaN; NaN for a NaN, likewise.
#[cube]
#[inline(always)]
pub(crate) fn exp_near(ieee: &Ieee, x: f32) -> f32 {
    let t = ieee.fma(x, INV_LN2, ROUND);
    let n = ieee.sub(t, ROUND);
    let r = ieee.fma(n, MINUS_LN2_REST, ieee.fma(n, MINUS_LN2, x));
    let q = poly5(ieee, r, EXP_0, EXP_1, EXP_2, EXP_3, EXP_4);
    let one = fast_two_sum(ieee, 1.0f32, r);
    let p = ieee.add(one.hi, ieee.fma(ieee.mul(r, r), q, one.lo));
    let s = prim::from_bits(prim::wrapping_add(prim::bits(t) << 23u32, ONE));
    ieee.mul(p, s)
}

/// A weight relative to the largest: as [`exp_near`], but +0 below -87.
#[cube]
#[inline(always)]
pub(crate) fn exp_weight(ieee: &Ieee, x: f32) -> f32 {
    or_bits(ieee.lt(x, -87.0f32), 0u32, exp_near(ieee, x))
}

/// 2^x. At most 1 ulp; exact where x is an integer.
///
/// +0 at -inf and below about -150, +inf from 128 on.
#[cube]
#[inline(always)]
pub fn exp2(ieee: &Ieee, x: f32) -> f32 {
    let c = clamp(ieee, x, -151.0f32, 129.0f32);
    let t = ieee.add(c, ROUND);
    let r = ieee.sub(c, ieee.sub(t, ROUND));
    let q = poly5(ieee, r, EXP2_0, EXP2_1, EXP2_2, EXP2_3, EXP2_4);
    let p = ieee.fma(r, LN2, ieee.mul(ieee.mul(r, r), q));
    let s = scale(prim::wrapping_sub(prim::bits(t), ROUND_254));
    let y = ieee.mul(ieee.mul(ieee.add(p, 1.0f32), s.first), s.second);
    nan_of(x, y)
}

/// `2^(x.hi + x.lo)`, `x.hi` at most 160 either way.
#[cube]
#[inline(always)]
pub(super) fn exp2_pair(ieee: &Ieee, x: Pair) -> f32 {
    let t = ieee.add(x.hi, ROUND);
    let r = fast_two_sum(ieee, ieee.sub(x.hi, ieee.sub(t, ROUND)), x.lo);
    let q = poly5(ieee, r.hi, EXP2_0, EXP2_1, EXP2_2, EXP2_3, EXP2_4);
    let linear = two_product(ieee, r.hi, LN2);
    let one = fast_two_sum(ieee, 1.0f32, linear.hi);
    let rest = ieee.fma(r.lo, LN2, ieee.add(linear.lo, one.lo));
    let p = ieee.add(one.hi, ieee.fma(ieee.mul(r.hi, r.hi), q, rest));
    let s = scale(prim::wrapping_sub(prim::bits(t), ROUND_254));
    ieee.mul(ieee.mul(p, s.first), s.second)
}

/// 10^x. At most 1 ulp.
///
/// +0 at -inf and below about -45.2, +inf from about 38.53 on.
#[cube]
#[inline(always)]
pub fn exp10(ieee: &Ieee, x: f32) -> f32 {
    let c = clamp(ieee, x, -46.0f32, 39.0f32);
    let t = ieee.fma(c, LOG2_10, ROUND);
    let n = ieee.sub(t, ROUND);
    let first = ieee.fma(n, MINUS_LOG10_2, c);
    let r = ieee.fma(n, MINUS_LOG10_2_REST, first);
    let r_lo = ieee.fma(n, MINUS_LOG10_2_REST, ieee.sub(first, r));
    let q = poly5(ieee, r, EXP10_0, EXP10_1, EXP10_2, EXP10_3, EXP10_4);
    let rest = ieee.fma(r_lo, LN10, ieee.mul(r, LN10_REST));
    let p = ieee.fma(r, LN10, ieee.fma(ieee.mul(r, r), q, rest));
    let s = scale(prim::wrapping_sub(prim::bits(t), ROUND_254));
    let y = ieee.mul(ieee.mul(ieee.add(p, 1.0f32), s.first), s.second);
    nan_of(x, y)
}

/// `expm1(x) / 2` for `-20 <= x <= 89`, and the sum's first part where `n = 0`.
#[derive(CubeType, Clone, Copy)]
pub(super) struct HalfExpm1 {
    pub(super) half: Pair,
    /// `expm1(x)`, where `small`.
    pub(super) reduced: f32,
    /// `|x| <= (ln 2) / 2`.
    pub(super) small: bool,
}

#[cube]
#[inline(always)]
pub(super) fn half_expm1(ieee: &Ieee, x: f32) -> HalfExpm1 {
    let reduced = reduce(ieee, x);
    let r = reduced.r;
    let q = poly6(
        ieee, r.hi, EXPM1_0, EXPM1_1, EXPM1_2, EXPM1_3, EXPM1_4, EXPM1_5,
    );
    let rest = ieee.fma(ieee.mul(r.hi, r.hi), q, r.lo);
    let p = fast_two_sum(ieee, r.hi, rest);
    // 2^(n-1) (1 + p) - 1/2, the first sum exact in two parts.
    let s = power_of_two(prim::wrapping_sub(reduced.biased, 128u32));
    let base = fast_two_sum(ieee, s, -0.5f32);
    let hi = ieee.fma(s, p.hi, base.hi);
    let lo = ieee.fma(s, p.hi, ieee.sub(base.hi, hi));
    let lo = ieee.add(lo, base.lo);
    HalfExpm1 {
        half: Pair {
            hi,
            lo: ieee.fma(s, p.lo, lo),
        },
        reduced: p.hi,
        small: reduced.biased == 254u32,
    }
}

/// e^x - 1. At most 1 ulp.
///
/// -1 at -inf, +inf at +inf and where the result rounds beyond the largest number; a zero keeps
/// its sign.
#[cube]
#[inline(always)]
pub fn expm1(ieee: &Ieee, x: f32) -> f32 {
    let e = half_expm1(ieee, clamp(ieee, x, -20.0f32, 89.0f32));
    let y = ieee.mul(ieee.add(e.half.hi, e.half.lo), 2.0f32);
    let y = prim::select(e.small, e.reduced, y);
    nan_of(x, ieee.copysign(y, x))
}
