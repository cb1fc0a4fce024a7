//! What several functions share: constants, polynomials, unevaluated sums, scaling.

use crate::{ieee::Ieee, prim};
use cubecl::prelude::*;

/// Binary32 constants by their bits.
macro_rules! bits {
    ($($name:ident = $bits:literal;)+) => {
        $(pub(super) const $name: f32 = f32::from_bits($bits);)+
    };
}
pub(super) use bits;

bits! {
    // 1.5 * 2^23: adding it rounds to an integer, which the low bits of the sum then hold.
    ROUND = 0x4b400000;
    INV_LN2 = 0x3fb8aa3b;
    // ln 2 = LN2_16 + LN2_16_REST, the first of 16 bits: its products with exponents are exact.
    LN2_16 = 0x3f317200;
    LN2_16_REST = 0x35bfbe8e;
    // ln 2 = LN2 + LN2_REST to 48 bits, and the same negated.
    LN2 = 0x3f317218;
    MINUS_LN2 = 0xbf317218;
    MINUS_LN2_REST = 0x3102e308;
    TWO_MINUS_64 = 0x1f800000;
}

// ROUND_BITS - 254, for exponents biased by 254.
pub(super) const ROUND_254: u32 = 0x4b3f_ff02;
pub(super) const ABS: u32 = 0x7fff_ffff;
pub(super) const SIGN: u32 = 0x8000_0000;
pub(super) const INFINITY: u32 = 0x7f80_0000;
pub(super) const NEG_INFINITY: u32 = 0xff80_0000;
pub(super) const NAN: u32 = 0x7fc0_0000;

/// The unevaluated sum `hi + lo`, `lo` at most half a unit in the last place of `hi` unless said
/// otherwise.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Pair {
    pub(super) hi: f32,
    pub(super) lo: f32,
}

/// `a + b` exactly, for `|a| >= |b|` or `a = 0` (Dekker).
#[cube]
#[inline(always)]
pub(super) fn fast_two_sum(ieee: &Ieee, a: f32, b: f32) -> Pair {
    let hi = ieee.add(a, b);
    let lo = ieee.sub(b, ieee.sub(hi, a));
    Pair { hi, lo }
}

/// `a + b` exactly (Knuth).
#[cube]
#[inline(always)]
pub(super) fn two_sum(ieee: &Ieee, a: f32, b: f32) -> Pair {
    let hi = ieee.add(a, b);
    let b_part = ieee.sub(hi, a);
    let a_part = ieee.sub(hi, b_part);
    let lo = ieee.add(ieee.sub(a, a_part), ieee.sub(b, b_part));
    Pair { hi, lo }
}

/// `a * b` exactly, where the product's last bit is not below 2^-149.
#[cube]
#[inline(always)]
pub(super) fn two_product(ieee: &Ieee, a: f32, b: f32) -> Pair {
    let hi = ieee.mul(a, b);
    let lo = ieee.fma(a, b, ieee.neg(hi));
    Pair { hi, lo }
}

/// `y`, or the number whose bits are `special`, if `c`.
///
/// Infinities and NaN are selected as integers: as float constants they need not survive a
/// compiler.
#[cube]
#[inline(always)]
pub(super) fn or_bits(c: bool, special: u32, y: f32) -> f32 {
    prim::from_bits(prim::select_u32(c, special, prim::bits(y)))
}

/// `y`, or the canonical NaN where `x` is a NaN (`N11`).
#[cube]
#[inline(always)]
pub(super) fn nan_of(x: f32, y: f32) -> f32 {
    or_bits((prim::bits(x) & ABS) > INFINITY, NAN, y)
}

/// `1 / x` to 2^-18 for normal `x` with a normal inverse: a line through the bits, to an eighth,
/// then steps of third and second order.
#[cube]
#[inline(always)]
pub(super) fn rough_inverse(ieee: &Ieee, x: f32) -> f32 {
    let minus_x = ieee.neg(x);
    let i = prim::from_bits(prim::wrapping_sub(0x7ef3_11c7u32, prim::bits(x)));
    let e = ieee.fma(minus_x, i, 1.0f32);
    let i = ieee.fma(i, ieee.fma(e, e, e), i);
    ieee.fma(i, ieee.fma(minus_x, i, 1.0f32), i)
}

/// 2^n from `biased = n + 127` in 1..=254.
#[cube]
#[inline(always)]
pub(super) fn power_of_two(biased: u32) -> f32 {
    prim::from_bits(biased << 23u32)
}

/// The integer `biased - bias` as a float, for `biased` below 2^23 and `bias` given as
/// `2^23 + bias`.
#[cube]
#[inline(always)]
pub(super) fn small_int(ieee: &Ieee, biased: u32, bias: f32) -> f32 {
    ieee.sub(prim::from_bits(biased | 0x4b00_0000u32), bias)
}

/// 2^n = `first * second`, two normal factors, so that a product with both rounds once.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Scale {
    pub(super) first: f32,
    pub(super) second: f32,
}

/// The factors of 2^n from `biased = n + 254`, -252 <= n <= 254.
#[cube]
#[inline(always)]
pub(super) fn scale(biased: u32) -> Scale {
    let half = biased >> 1u32;
    Scale {
        first: power_of_two(half),
        second: power_of_two(prim::wrapping_sub(biased, half)),
    }
}

/// `c0 + c1 x + c2 x^2` by Horner's rule, as the longer ones that follow.
#[cube]
#[inline(always)]
pub(super) fn poly3(ieee: &Ieee, x: f32, c0: f32, c1: f32, c2: f32) -> f32 {
    ieee.fma(ieee.fma(c2, x, c1), x, c0)
}

#[cube]
#[inline(always)]
pub(super) fn poly4(ieee: &Ieee, x: f32, c0: f32, c1: f32, c2: f32, c3: f32) -> f32 {
    ieee.fma(poly3(ieee, x, c1, c2, c3), x, c0)
}

#[cube]
#[inline(always)]
pub(super) fn poly5(ieee: &Ieee, x: f32, c0: f32, c1: f32, c2: f32, c3: f32, c4: f32) -> f32 {
    ieee.fma(poly4(ieee, x, c1, c2, c3, c4), x, c0)
}

#[cube]
#[inline(always)]
pub(super) fn poly6(
    ieee: &Ieee,
    x: f32,
    c0: f32,
    c1: f32,
    c2: f32,
    c3: f32,
    c4: f32,
    c5: f32,
) -> f32 {
    ieee.fma(poly5(ieee, x, c1, c2, c3, c4, c5), x, c0)
}

#[cube]
#[inline(always)]
pub(super) fn poly7(
    ieee: &Ieee,
    x: f32,
    c0: f32,
    c1: f32,
    c2: f32,
    c3: f32,
    c4: f32,
    c5: f32,
    c6: f32,
) -> f32 {
    ieee.fma(poly6(ieee, x, c1, c2, c3, c4, c5, c6), x, c0)
}

#[cube]
#[inline(always)]
pub(super) fn poly8(
    ieee: &Ieee,
    x: f32,
    c0: f32,
    c1: f32,
    c2: f32,
    c3: f32,
    c4: f32,
    c5: f32,
    c6: f32,
    c7: f32,
) -> f32 {
    ieee.fma(poly7(ieee, x, c1, c2, c3, c4, c5, c6, c7), x, c0)
}

#[cube]
#[inline(always)]
pub(super) fn poly9(
    ieee: &Ieee,
    x: f32,
    c0: f32,
    c1: f32,
    c2: f32,
    c3: f32,
    c4: f32,
    c5: f32,
    c6: f32,
    c7: f32,
    c8: f32,
) -> f32 {
    ieee.fma(poly8(ieee, x, c1, c2, c3, c4, c5, c6, c7, c8), x, c0)
}

#[cube]
#[inline(always)]
pub(super) fn poly10(
    ieee: &Ieee,
    x: f32,
    c0: f32,
    c1: f32,
    c2: f32,
    c3: f32,
    c4: f32,
    c5: f32,
    c6: f32,
    c7: f32,
    c8: f32,
    c9: f32,
) -> f32 {
    ieee.fma(poly9(ieee, x, c1, c2, c3, c4, c5, c6, c7, c8, c9), x, c0)
}

#[cube]
#[inline(always)]
pub(super) fn poly11(
    ieee: &Ieee,
    x: f32,
    c0: f32,
    c1: f32,
    c2: f32,
    c3: f32,
    c4: f32,
    c5: f32,
    c6: f32,
    c7: f32,
    c8: f32,
    c9: f32,
    c10: f32,
) -> f32 {
    ieee.fma(
        poly10(ieee, x, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10),
        x,
        c0,
    )
}

#[cube]
#[inline(always)]
pub(super) fn poly12(
    ieee: &Ieee,
    x: f32,
    c0: f32,
    c1: f32,
    c2: f32,
    c3: f32,
    c4: f32,
    c5: f32,
    c6: f32,
    c7: f32,
    c8: f32,
    c9: f32,
    c10: f32,
    c11: f32,
) -> f32 {
    ieee.fma(
        poly11(ieee, x, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11),
        x,
        c0,
    )
}
