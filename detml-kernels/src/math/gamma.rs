//! The logarithm of the gamma function and its derivative.

use super::{logarithm::ln_pair, parts::*, trigonometric::sin_cos_pairs};
use crate::{ieee::Ieee, prim};
use cubecl::prelude::*;

// Fitted by scripts/fit.py.
bits! {
    // lgamma(1 + x) = x LGAMMA_1P(x), 0 <= x < 1/2.
    LGAMMA_1P_0 = 0xbf13c467;
    LGAMMA_1P_1 = 0x3f528cf5;
    LGAMMA_1P_2 = 0xbecd1b27;
    LGAMMA_1P_3 = 0x3e8a048a;
    LGAMMA_1P_4 = 0xbe4d99c5;
    LGAMMA_1P_5 = 0x3e13039d;
    LGAMMA_1P_6 = 0xbda3abd9;
    LGAMMA_1P_7 = 0x3cc1327c;
    // lgamma(x) = (x - 1) (x - 2) LGAMMA_1(x - 7/8), 1/2 <= x < 5/4.
    LGAMMA_1_0 = 0x3f1c4d0f;
    LGAMMA_1_1 = 0xbe94a6fa;
    LGAMMA_1_2 = 0x3e561385;
    LGAMMA_1_3 = 0xbe34cde0;
    LGAMMA_1_4 = 0x3e2540a3;
    LGAMMA_1_5 = 0xbe1ddbb8;
    LGAMMA_1_6 = 0x3e1ba7b4;
    LGAMMA_1_7 = 0xbe1f1e68;
    LGAMMA_1_8 = 0x3e15d0b3;
    LGAMMA_1_9 = 0xbe0762d7;
    LGAMMA_1_10 = 0x3e8112ab;
    LGAMMA_1_11 = 0xbea09263;
    // lgamma(x) = (x - 1) (x - 2) LGAMMA_2(x - 15/8), 5/4 <= x < 5/2.
    LGAMMA_2_0 = 0x3edf29a3;
    LGAMMA_2_1 = 0xbddf9a38;
    LGAMMA_2_2 = 0x3d1c271d;
    LGAMMA_2_3 = 0xbc79e535;
    LGAMMA_2_4 = 0x3bd6ac53;
    LGAMMA_2_5 = 0xbb416adc;
    LGAMMA_2_6 = 0x3abb6349;
    LGAMMA_2_7 = 0xba28980b;
    LGAMMA_2_8 = 0x3914594b;
    LGAMMA_2_9 = 0xb91fb709;
    LGAMMA_2_10 = 0x398052d4;
    LGAMMA_2_11 = 0xb832fc33;
    // lgamma(x) = (x - 1/2) (ln(x) - 1) + HALF_LN_2PI_LESS_1 + z STIRLING(z^2), z = 1/x, x >= 5/2.
    STIRLING_0 = 0x3daaaaab;
    STIRLING_1 = 0xbb360d9d;
    STIRLING_2 = 0x3a50adb6;
    STIRLING_3 = 0xba1fdd88;
    STIRLING_4 = 0x3a4fe48b;
    STIRLING_5 = 0xba592561;
    // (ln(2 pi) - 1) / 2 to 48 bits.
    HALF_LN_2PI_LESS_1 = 0x3ed67f1d;
    HALF_LN_2PI_LESS_1_REST = 0xb2736829;
    // digamma(r + e) = e DIGAMMA(e), r = ROOT - MINUS_ROOT_REST its positive root.
    DIGAMMA_0 = 0x3f77b95e;
    DIGAMMA_1 = 0xbee2b1da;
    DIGAMMA_2 = 0x3e845a4b;
    DIGAMMA_3 = 0xbe27e0f9;
    DIGAMMA_4 = 0x3ddcbb61;
    DIGAMMA_5 = 0xbd93ca48;
    DIGAMMA_6 = 0x3d4a0ae1;
    DIGAMMA_7 = 0xbd0988f2;
    DIGAMMA_8 = 0x3ca1a199;
    DIGAMMA_9 = 0xbc575906;
    DIGAMMA_10 = 0x3c8fa480;
    DIGAMMA_11 = 0xbc4f2826;
    ROOT = 0x3fbb16c3;
    ROOT_LESS_1 = 0x3eec5b0c;
    MINUS_ROOT_REST = 0xb255af90;
    // digamma(x) = ln(x) - 1/(2 x) - z^2 ASYMPTOTIC(z^2), z = 1/x, x >= 2.
    ASYMPTOTIC_0 = 0x3daaaaa8;
    ASYMPTOTIC_1 = 0xbc08829f;
    ASYMPTOTIC_2 = 0x3b80d92f;
    ASYMPTOTIC_3 = 0xbb728383;
    ASYMPTOTIC_4 = 0x3b842084;
    ASYMPTOTIC_5 = 0xbb3133a6;
    // pi and 1 / pi to 48 bits.
    PI = 0x40490fdb;
    PI_REST = 0xb3bbbd2e;
    INV_PI = 0x3ea2f983;
    TWO_23 = 0x4b000000;
    // 2^-20
    SMALL = 0x35800000;
    // 2^-100
    TINY = 0x0d800000;
    // From here on lgamma is beyond the largest number.
    LGAMMA_OVERFLOW = 0x7c44af8e;
}

/// The nearest integer to `a >= 0`, and the signed rest; ties to even.
#[derive(CubeType, Clone, Copy)]
struct Fraction {
    rest: f32,
    integer: bool,
}

#[cube]
#[inline(always)]
fn fraction(ieee: &Ieee, a: f32) -> Fraction {
    let large = ieee.le(TWO_23, a);
    let nearest = ieee.sub(ieee.add(a, TWO_23), TWO_23);
    let rest = prim::select(large, 0.0f32, ieee.sub(a, nearest));
    Fraction {
        rest,
        integer: ieee.eq(rest, 0.0f32),
    }
}

/// The sine and the cosine of `pi |rest|` for `|rest| <= 1/2`.
#[derive(CubeType, Clone, Copy)]
struct HalfTurn {
    sin: Pair,
    cos: Pair,
}

#[cube]
#[inline(always)]
fn half_turn(ieee: &Ieee, rest: f32) -> HalfTurn {
    let f = ieee.abs(rest);
    let swapped = ieee.lt(0.25f32, f);
    let g = prim::select(swapped, ieee.sub(0.5f32, f), f);
    let r = two_product(ieee, g, PI);
    let values = sin_cos_pairs(
        ieee,
        Pair {
            hi: r.hi,
            lo: ieee.fma(g, PI_REST, r.lo),
        },
    );
    HalfTurn {
        sin: Pair {
            hi: prim::select(swapped, values.cos.hi, values.sin.hi),
            lo: prim::select(swapped, values.cos.lo, values.sin.lo),
        },
        cos: Pair {
            hi: prim::select(swapped, values.sin.hi, values.cos.hi),
            lo: prim::select(swapped, values.sin.lo, values.cos.lo),
        },
    }
}

/// `p` where `first`, else `q` where `second`, else `r`.
#[cube]
#[inline(always)]
fn pick(first: bool, second: bool, p: f32, q: f32, r: f32) -> f32 {
    prim::select(first, p, prim::select(second, q, r))
}

/// The logarithm of the absolute value of the gamma function.
///
/// At most 2 ulp for x > 0. For x < 0 the error is at most 2 units in the last place of the result
/// or of 1, whichever is larger: near its zeros there it is not relative to the result.
///
/// +inf at both infinities, at zeros and at negative integers; +0 at 1 and 2.
#[cube]
#[inline(always)]
pub fn lgamma(ieee: &Ieee, x: f32) -> f32 {
    let a = ieee.abs(x);
    let negative = (prim::bits(x) & SIGN) != 0u32;
    // Up to 5/2 a polynomial in t, times a, or times (a - 1) (a - 2).
    let first = ieee.lt(a, 0.5f32);
    let second = ieee.lt(a, 1.25f32);
    let t = ieee.sub(a, pick(first, second, 0.0f32, 0.875f32, 1.875f32));
    let p = poly4(
        ieee,
        t,
        prim::select(second, LGAMMA_1_8, LGAMMA_2_8),
        prim::select(second, LGAMMA_1_9, LGAMMA_2_9),
        prim::select(second, LGAMMA_1_10, LGAMMA_2_10),
        prim::select(second, LGAMMA_1_11, LGAMMA_2_11),
    );
    let p = prim::select(first, 0.0f32, p);
    let p = ieee.fma(
        p,
        t,
        pick(first, second, LGAMMA_1P_7, LGAMMA_1_7, LGAMMA_2_7),
    );
    let p = ieee.fma(
        p,
        t,
        pick(first, second, LGAMMA_1P_6, LGAMMA_1_6, LGAMMA_2_6),
    );
    let p = ieee.fma(
        p,
        t,
        pick(first, second, LGAMMA_1P_5, LGAMMA_1_5, LGAMMA_2_5),
    );
    let p = ieee.fma(
        p,
        t,
        pick(first, second, LGAMMA_1P_4, LGAMMA_1_4, LGAMMA_2_4),
    );
    let p = ieee.fma(
        p,
        t,
        pick(first, second, LGAMMA_1P_3, LGAMMA_1_3, LGAMMA_2_3),
    );
    let p = ieee.fma(
        p,
        t,
        pick(first, second, LGAMMA_1P_2, LGAMMA_1_2, LGAMMA_2_2),
    );
    let p = ieee.fma(
        p,
        t,
        pick(first, second, LGAMMA_1P_1, LGAMMA_1_1, LGAMMA_2_1),
    );
    let p = ieee.fma(
        p,
        t,
        pick(first, second, LGAMMA_1P_0, LGAMMA_1_0, LGAMMA_2_0),
    );
    let below_2 = two_sum(ieee, a, -2.0f32);
    let factor = two_product(ieee, ieee.sub(a, 1.0f32), below_2.hi);
    let factor_lo = ieee.fma(ieee.sub(a, 1.0f32), below_2.lo, factor.lo);
    let low = two_product(ieee, p, prim::select(first, a, factor.hi));
    let low_lo = ieee.fma(p, prim::select(first, 0.0f32, factor_lo), low.lo);
    // From 5/2 on Stirling's series.
    let log = ln_pair(ieee, a);
    let z = ieee.div(1.0f32, a);
    let series = poly6(
        ieee,
        ieee.mul(z, z),
        STIRLING_0,
        STIRLING_1,
        STIRLING_2,
        STIRLING_3,
        STIRLING_4,
        STIRLING_5,
    );
    let less_1 = two_sum(ieee, log.hi, -1.0f32);
    let less_1 = fast_two_sum(ieee, less_1.hi, ieee.add(less_1.lo, log.lo));
    let less_half = fast_two_sum(ieee, a, -0.5f32);
    let product = two_product(ieee, less_half.hi, less_1.hi);
    let product_lo = ieee.fma(less_half.lo, less_1.hi, product.lo);
    let product_lo = ieee.fma(less_half.hi, less_1.lo, product_lo);
    let high = two_sum(ieee, product.hi, HALF_LN_2PI_LESS_1);
    let high_lo = ieee.add(high.lo, ieee.add(product_lo, HALF_LN_2PI_LESS_1_REST));
    let high_lo = ieee.fma(z, series, high_lo);
    let large = ieee.le(2.5f32, a);
    // lgamma(a), or lgamma(1 + a) below 1/2.
    let main = prim::select(large, high.hi, low.hi);
    let main_lo = prim::select(large, high_lo, low_lo);
    // Below 0: lgamma(x) = -ln(a sin(pi a) / pi) - lgamma(a), without the a below 1/2.
    let part = fraction(ieee, a);
    let turn = half_turn(ieee, part.rest);
    let sine = ieee.fma(turn.sin.hi, INV_PI, ieee.mul(turn.sin.lo, INV_PI));
    let sine = prim::select(ieee.lt(a, SMALL), a, sine);
    let argument = prim::select(first, sine, ieee.mul(a, sine));
    let log = ln_pair(ieee, prim::select(negative, argument, a));
    // x > 0: main, less ln(a) below 1/2. x < 0: -main - log.
    let with_log = negative || first;
    let log_hi = prim::select(with_log, ieee.neg(log.hi), 0.0f32);
    let log_lo = prim::select(with_log, ieee.neg(log.lo), 0.0f32);
    let flipped = negative;
    let main = prim::select(flipped, ieee.neg(main), main);
    let main_lo = prim::select(flipped, ieee.neg(main_lo), main_lo);
    let sum = two_sum(ieee, log_hi, main);
    let y = ieee.add(sum.hi, ieee.add(sum.lo, ieee.add(log_lo, main_lo)));
    // Beyond 2^23 below 0 every number is an integer, a pole.
    let pole = ieee.eq(a, 0.0f32) || (negative && part.integer);
    let y = or_bits(pole || ieee.le(LGAMMA_OVERFLOW, a), INFINITY, y);
    nan_of(x, y)
}

/// The derivative of lgamma.
///
/// At most 2 ulp for x > 0. For x < 0 the error is at most 2 units in the last place of the result
/// or of 1, whichever is larger: near its zeros there it is not relative to the result.
///
/// -inf at +0, +inf at -0, NaN at negative integers and at -inf, +inf at +inf.
#[cube]
#[inline(always)]
pub fn digamma(ieee: &Ieee, x: f32) -> f32 {
    let a = ieee.abs(x);
    let negative = (prim::bits(x) & SIGN) != 0u32;
    let below_1 = ieee.lt(a, 1.0f32);
    let below_2 = ieee.lt(a, 2.0f32);
    // Up to 2 around the root: digamma(a), or digamma(1 + a) below 1.
    let e = ieee.sub(a, prim::select(below_1, ROOT_LESS_1, ROOT));
    let e = fast_two_sum(ieee, e, MINUS_ROOT_REST);
    let p = poly12(
        ieee, e.hi, DIGAMMA_0, DIGAMMA_1, DIGAMMA_2, DIGAMMA_3, DIGAMMA_4, DIGAMMA_5, DIGAMMA_6,
        DIGAMMA_7, DIGAMMA_8, DIGAMMA_9, DIGAMMA_10, DIGAMMA_11,
    );
    let low = two_product(ieee, e.hi, p);
    let low_lo = ieee.fma(e.lo, p, low.lo);
    // From 2 on the asymptotic series.
    let inverse = ieee.div(1.0f32, a);
    let inverse_lo = ieee.mul(ieee.fma(ieee.neg(inverse), a, 1.0f32), inverse);
    let square = ieee.mul(inverse, inverse);
    let series = poly6(
        ieee,
        square,
        ASYMPTOTIC_0,
        ASYMPTOTIC_1,
        ASYMPTOTIC_2,
        ASYMPTOTIC_3,
        ASYMPTOTIC_4,
        ASYMPTOTIC_5,
    );
    let log = ln_pair(ieee, a);
    let high_lo = ieee.fma(ieee.neg(square), series, log.lo);
    let main = prim::select(below_2, low.hi, log.hi);
    let main_lo = prim::select(below_2, low_lo, high_lo);
    // digamma(a) = digamma(1 + a) - 1/a, and digamma(-a) = digamma(a) + 1/a + pi cot(pi a).
    let times = prim::select(below_1, -1.0f32, prim::select(below_2, 0.0f32, -0.5f32));
    let times_below_0 = prim::select(below_1, 0.0f32, prim::select(below_2, 1.0f32, 0.5f32));
    let times = prim::select(negative, times_below_0, times);
    let sum = two_sum(ieee, main, ieee.mul(times, inverse));
    let sum_lo = ieee.add(sum.lo, ieee.fma(times, inverse_lo, main_lo));
    let part = fraction(ieee, a);
    let turn = half_turn(ieee, part.rest);
    let over = ieee.div(1.0f32, turn.sin.hi);
    let q = ieee.mul(turn.cos.hi, over);
    let rest = ieee.add(ieee.fma(ieee.neg(q), turn.sin.hi, turn.cos.hi), turn.cos.lo);
    let rest = ieee.fma(ieee.neg(q), turn.sin.lo, rest);
    let cot = two_product(ieee, q, PI);
    let cot_lo = ieee.fma(ieee.mul(rest, over), PI, ieee.fma(q, PI_REST, cot.lo));
    let cot_hi = prim::select(negative, ieee.copysign(cot.hi, part.rest), 0.0f32);
    let cot_lo = prim::from_bits(prim::bits(cot_lo) ^ (prim::bits(part.rest) & SIGN));
    let cot_lo = prim::select(negative, cot_lo, 0.0f32);
    let total = two_sum(ieee, sum.hi, cot_hi);
    let y = ieee.add(total.hi, ieee.add(total.lo, ieee.add(sum_lo, cot_lo)));
    let y = prim::select(ieee.lt(a, TINY), ieee.div(-1.0f32, x), y);
    let y = or_bits(prim::bits(x) == INFINITY, INFINITY, y);
    let pole = negative && part.integer && !ieee.eq(a, 0.0f32);
    let y = or_bits(pole, NAN, y);
    nan_of(x, y)
}
