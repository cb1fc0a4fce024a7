//! Logarithms.

use super::parts::*;
use crate::{ieee::Ieee, prim};
use cubecl::prelude::*;

bits! {
    // ln(1 + f) = f + f^2 LN(f), 2/3 <= 1 + f < 4/3.
    LN_0 = 0xbf000000;
    LN_1 = 0x3eaaaaac;
    LN_2 = 0xbe7fff83;
    LN_3 = 0x3e4ccb83;
    LN_4 = 0xbe2acd39;
    LN_5 = 0x3e127ec5;
    LN_6 = 0xbdf9b2a7;
    LN_7 = 0x3ddbf826;
    LN_8 = 0xbe03ae51;
    LN_9 = 0x3df6adc8;
    // log2(1 + f) = f / ln 2 + f^2 LOG2(f)
    LOG2_0 = 0xbf38aa3c;
    LOG2_1 = 0x3ef63852;
    LOG2_2 = 0xbeb8a950;
    LOG2_3 = 0x3e93ba05;
    LOG2_4 = 0xbe7688ca;
    LOG2_5 = 0x3e537194;
    LOG2_6 = 0xbe32d74e;
    LOG2_7 = 0x3e1da090;
    LOG2_8 = 0xbe42afad;
    LOG2_9 = 0x3e35dc7c;
    // log10(1 + f) = f / ln 10 + f^2 LOG10(f)
    LOG10_0 = 0xbe5e5bd9;
    LOG10_1 = 0x3e143d3c;
    LOG10_2 = 0xbdde5b31;
    LOG10_3 = 0x3db1e211;
    LOG10_4 = 0xbd946184;
    LOG10_5 = 0x3d7e7943;
    LOG10_6 = 0xbd585c27;
    LOG10_7 = 0x3d3f2959;
    LOG10_8 = 0xbd66b138;
    LOG10_9 = 0x3d560b31;
    // atanh(s) = s + s^3 / 3 + s^5 ATANH(s^2), |s| <= 1/5.
    ATANH_0 = 0x3e4ccccb;
    ATANH_1 = 0x3e124a80;
    ATANH_2 = 0x3de2dfed;
    ATANH_3 = 0x3dcbf495;
    // 1/3 to 48 bits.
    ONE_THIRD = 0x3eaaaaab;
    ONE_THIRD_REST = 0xb22aaaab;
    // log10(2): 16 bits and the rest.
    LG2_16 = 0x3e9a2100;
    LG2_16_REST = 0xb64af608;
    // 1 / ln 2 and 1 / ln 10 to 48 bits.
    INV_LN2_REST = 0x32a57060;
    INV_LN10 = 0x3ede5bd9;
    INV_LN10_REST = 0xb22d91af;
    TWO_23 = 0x4b000000;
    // 2^23 + 127 and 2^23 + 150, for `small_int`.
    BIAS_127 = 0x4b00007f;
    BIAS_150 = 0x4b000096;
}

const MIN_NORMAL: u32 = 0x0080_0000;
const ONE: u32 = 0x3f80_0000;
/// The bits of 1 less those of 2/3.
const FROM_TWO_THIRDS: u32 = 0x0055_5555;

/// `x = 2^k (1 + f)`, `2/3 <= 1 + f < 4/3`; `f` is exact.
#[derive(CubeType, Clone, Copy)]
struct Split {
    k: f32,
    f: f32,
}

/// For positive finite `x`.
#[cube]
#[inline(always)]
fn split(ieee: &Ieee, x: f32) -> Split {
    let subnormal = prim::bits(x) < MIN_NORMAL;
    let bits = prim::bits(prim::select(subnormal, ieee.mul(x, TWO_23), x));
    let biased = prim::wrapping_add(bits, FROM_TWO_THIRDS) >> 23u32;
    let m = prim::wrapping_add(prim::wrapping_sub(bits, biased << 23u32), ONE);
    Split {
        k: small_int(ieee, biased, prim::select(subnormal, BIAS_150, BIAS_127)),
        f: ieee.sub(prim::from_bits(m), 1.0f32),
    }
}

/// The special values that all logarithms of `x` share.
#[cube]
#[inline(always)]
fn log_special(x: f32, y: f32) -> f32 {
    let bits = prim::bits(x);
    let y = or_bits((bits & ABS) == 0u32, NEG_INFINITY, y);
    // Negative numbers, and NaN of both signs.
    let y = or_bits(bits > INFINITY && bits != SIGN, NAN, y);
    or_bits(bits == INFINITY, INFINITY, y)
}

/// `ln(1 + f) - f + rest` for `2/3 <= 1 + f < 4/3` and a small `rest`.
#[cube]
#[inline(always)]
pub(super) fn ln_tail(ieee: &Ieee, f: f32, rest: f32) -> f32 {
    let q = poly10(
        ieee, f, LN_0, LN_1, LN_2, LN_3, LN_4, LN_5, LN_6, LN_7, LN_8, LN_9,
    );
    ieee.fma(ieee.mul(f, f), q, rest)
}

/// The natural logarithm of x. At most 1 ulp.
///
/// -inf at both zeros, +inf at +inf, NaN below 0; +0 at 1.
#[cube]
#[inline(always)]
pub fn ln(ieee: &Ieee, x: f32) -> f32 {
    let x2 = split(ieee, x);
    let sum = fast_two_sum(ieee, ieee.mul(x2.k, LN2_16), x2.f);
    let rest = ieee.fma(x2.k, LN2_16_REST, sum.lo);
    log_special(x, ieee.add(sum.hi, ln_tail(ieee, x2.f, rest)))
}

/// `ln(1 + x)`. At most 1 ulp.
///
/// -inf at -1, NaN below; +inf at +inf; a zero keeps its sign.
#[cube]
#[inline(always)]
pub fn log1p(ieee: &Ieee, x: f32) -> f32 {
    // 1 + x = u exactly up to the rounding that f takes up again.
    let u = ieee.add(1.0f32, x);
    let biased = prim::wrapping_add(prim::bits(u), FROM_TWO_THIRDS) >> 23u32;
    let k = small_int(ieee, biased, BIAS_127);
    // 2^-k (1 + x) = 1 + f.hi + f.lo. Beyond 2^100 the 1 has no part in it.
    let s = power_of_two(prim::wrapping_sub(
        254u32,
        prim::select_u32(biased < 227u32, biased, 227u32),
    ));
    let s2 = prim::select_u32(biased < 227u32, 0u32, prim::wrapping_sub(biased, 227u32));
    let scaled = ieee.mul(ieee.mul(x, s), power_of_two(prim::wrapping_sub(127u32, s2)));
    let f = two_sum(ieee, ieee.sub(s, 1.0f32), scaled);
    let f_lo = ieee.fma(ieee.neg(f.lo), f.hi, f.lo);
    let sum = fast_two_sum(ieee, ieee.mul(k, LN2_16), f.hi);
    let rest = ieee.add(f_lo, ieee.fma(k, LN2_16_REST, sum.lo));
    let y = ieee.add(sum.hi, ln_tail(ieee, f.hi, rest));
    // Where f is x itself, the sums above lose only the sign of a zero.
    let y = prim::select((prim::bits(x) & ABS) == 0u32, x, y);
    log_special(u, y)
}

/// The logarithm of x to base 2. At most 1 ulp; exact at powers of two.
///
/// -inf at both zeros, +inf at +inf, NaN below 0; +0 at 1.
#[cube]
#[inline(always)]
pub fn log2(ieee: &Ieee, x: f32) -> f32 {
    let x2 = split(ieee, x);
    let q = poly10(
        ieee, x2.f, LOG2_0, LOG2_1, LOG2_2, LOG2_3, LOG2_4, LOG2_5, LOG2_6, LOG2_7, LOG2_8, LOG2_9,
    );
    let product = two_product(ieee, x2.f, INV_LN2);
    let rest = ieee.fma(x2.f, INV_LN2_REST, product.lo);
    let sum = fast_two_sum(ieee, x2.k, product.hi);
    let tail = ieee.fma(ieee.mul(x2.f, x2.f), q, ieee.add(rest, sum.lo));
    log_special(x, ieee.add(sum.hi, tail))
}

/// The logarithm of x to base 10. At most 1 ulp.
///
/// -inf at both zeros, +inf at +inf, NaN below 0; +0 at 1.
#[cube]
#[inline(always)]
pub fn log10(ieee: &Ieee, x: f32) -> f32 {
    let x2 = split(ieee, x);
    // LOG10 = LOG10_0 + f q, so that only the lesser part has the error of a rounded square.
    let q = poly9(
        ieee, x2.f, LOG10_1, LOG10_2, LOG10_3, LOG10_4, LOG10_5, LOG10_6, LOG10_7, LOG10_8, LOG10_9,
    );
    let square = two_product(ieee, x2.f, x2.f);
    let product = two_product(ieee, x2.f, INV_LN10);
    let rest = ieee.fma(x2.f, INV_LN10_REST, product.lo);
    let rest = ieee.fma(x2.k, LG2_16_REST, rest);
    let sum = fast_two_sum(ieee, ieee.mul(x2.k, LG2_16), product.hi);
    let rest = ieee.fma(square.lo, LOG10_0, ieee.add(rest, sum.lo));
    let rest = ieee.fma(ieee.mul(x2.f, square.hi), q, rest);
    let tail = ieee.fma(square.hi, LOG10_0, rest);
    log_special(x, ieee.add(sum.hi, tail))
}

/// `x = 2^k m` with `ln(m) = 2 series`.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Logarithm {
    pub(super) k: f32,
    pub(super) series: Pair,
}

/// For positive finite `x`; the error of the series is below 2^-36 of it.
#[cube]
#[inline(always)]
pub(super) fn ln_series(ieee: &Ieee, x: f32) -> Logarithm {
    let x2 = split(ieee, x);
    // s = f / (2 + f), so that 1 + f = (1 + s) / (1 - s) and ln(1 + f) = 2 atanh(s).
    let d = fast_two_sum(ieee, 2.0f32, x2.f);
    let inverse = ieee.div(1.0f32, d.hi);
    let s = ieee.mul(x2.f, inverse);
    let rest = ieee.fma(ieee.neg(s), d.lo, ieee.fma(ieee.neg(s), d.hi, x2.f));
    let s_lo = ieee.mul(rest, inverse);
    let square = two_product(ieee, s, s);
    let square_lo = ieee.fma(ieee.mul(s, 2.0f32), s_lo, square.lo);
    // atanh(s) = s (1 + s^2 (1/3 + s^2 ATANH(s^2)))
    let p = poly4(ieee, square.hi, ATANH_0, ATANH_1, ATANH_2, ATANH_3);
    let third = fast_two_sum(ieee, ONE_THIRD, ieee.mul(square.hi, p));
    let third_lo = ieee.add(third.lo, ONE_THIRD_REST);
    let product = two_product(ieee, square.hi, third.hi);
    let product_lo = ieee.fma(square_lo, third.hi, product.lo);
    let product_lo = ieee.fma(square.hi, third_lo, product_lo);
    let tail = two_product(ieee, s, product.hi);
    let tail_lo = ieee.fma(s, product_lo, ieee.fma(s_lo, product.hi, tail.lo));
    let sum = fast_two_sum(ieee, s, tail.hi);
    let lo = ieee.add(sum.lo, ieee.add(s_lo, tail_lo));
    Logarithm {
        k: x2.k,
        series: fast_two_sum(ieee, sum.hi, lo),
    }
}

/// `ln(x)` for positive finite `x`, with an error below 2^-24 of `x`'s distance from 1 or of a
/// thirteenth, whichever is less.
#[cube]
#[inline(always)]
pub(super) fn ln_pair(ieee: &Ieee, x: f32) -> Pair {
    let x2 = split(ieee, x);
    let sum = fast_two_sum(ieee, ieee.mul(x2.k, LN2_16), x2.f);
    let rest = ieee.fma(x2.k, LN2_16_REST, sum.lo);
    Pair {
        hi: sum.hi,
        lo: ln_tail(ieee, x2.f, rest),
    }
}
