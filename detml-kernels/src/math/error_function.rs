//! The error function and the Gaussian error linear unit.

use super::{
    exponential::{decay, decay_pair},
    logistic::{exponent_pair, logistic, power, times_logistic},
    parts::*,
};
use crate::{ieee::Ieee, prim};
use cubecl::prelude::*;

bits! {
    // erf(x) = x + x ERF(x^2), |x| <= 1.
    ERF_0 = 0x3e0375d4;
    ERF_1 = 0xbec0939f;
    ERF_2 = 0x3de71673;
    ERF_3 = 0xbcdbfb8b;
    ERF_4 = 0x3ba9f8ee;
    ERF_5 = 0xba51a713;
    ERF_6 = 0x38a3b315;
    // erf(x) = 1 - exp(-ERF_TAIL(x)), x >= 1 (scripts/fit.py).
    ERF_TAIL_0 = 0x39b95c66;
    ERF_TAIL_1 = 0x3f9042df;
    ERF_TAIL_2 = 0x3f2362ae;
    ERF_TAIL_3 = 0x3dd305cf;
    ERF_TAIL_4 = 0xbcb2a224;
    ERF_TAIL_5 = 0x3b40a89b;
    ERF_TAIL_6 = 0xb9429a43;
    // erfc(x) = exp(-x^2) (1 + (1 + t) ERFC(t)) / (1 + 1.5 x), t = (x - 3) / (x + 3), x >= 0.
    ERFC_0 = 0xbc7dd929;
    ERFC_1 = 0xbe2bceac;
    ERFC_2 = 0x3e462775;
    ERFC_3 = 0xbe0903e1;
    ERFC_4 = 0x3d7f094f;
    ERFC_5 = 0xbc8c724e;
    ERFC_6 = 0x39c3f5aa;
    ERFC_7 = 0x3ae4fe43;
    ERFC_8 = 0xb9d445eb;
    ERFC_9 = 0xb95165c5;
    // Phi(-x) = exp(-x^2 / 2) (PHI + TAIL(t)) / (x + PHI_SHIFT), t = x / (x + PHI_SHIFT) - PHI_SMALL,
    // x >= PHI_SMALL = 5/8; PHI_SHIFT = 5/4.
    PHI = 0x3ef00000;
    PHI_SHIFT = 0x3fa00000;
    PHI_SMALL = 0x3f200000;
    TAIL_0 = 0x3d98dea8;
    TAIL_1 = 0xbe9e03a3;
    TAIL_2 = 0xbea2884e;
    TAIL_3 = 0x3de0894a;
    TAIL_4 = 0x3ef38f8f;
    TAIL_5 = 0x3ec42b62;
    TAIL_6 = 0xbe82a798;
    TAIL_7 = 0xbf8b681c;
    TAIL_8 = 0xbfaa65c5;
    TAIL_9 = 0x3e01cb62;
    TAIL_10 = 0x404780f3;
    TAIL_11 = 0x405e416c;
    // Phi(x) = 1/2 + x (CENTRE_0 + x^2 CENTRE(x^2)), |x| < 5/8.
    CENTRE_0 = 0x3ecc422a;
    CENTRE_1 = 0xbd882c35;
    CENTRE_2 = 0x3c2369f8;
    CENTRE_3 = 0xba9b50d9;
    CENTRE_4 = 0x38dda2f2;
    // 2 sqrt(2 / pi), and its product with 0.044715, to 48 bits.
    GELU_1 = 0x3fcc422a;
    GELU_1_REST = 0xb342bc9b;
    GELU_3 = 0x3d922279;
    GELU_3_REST = 0x3124d8b5;
}

/// The bits of 15.
const FIFTEEN: u32 = 0x4170_0000;

/// The error function. At most 1 ulp.
///
/// -1 and 1 at -inf and +inf; a zero keeps its sign.
#[cube]
#[inline(always)]
pub fn erf(ieee: &Ieee, x: f32) -> f32 {
    let a = ieee.abs(x);
    let a = prim::select(ieee.lt(4.0f32, a), 4.0f32, a);
    let p = poly7(
        ieee,
        ieee.mul(a, a),
        ERF_0,
        ERF_1,
        ERF_2,
        ERF_3,
        ERF_4,
        ERF_5,
        ERF_6,
    );
    let small = ieee.fma(a, p, a);
    let tail = poly7(
        ieee, a, ERF_TAIL_0, ERF_TAIL_1, ERF_TAIL_2, ERF_TAIL_3, ERF_TAIL_4, ERF_TAIL_5, ERF_TAIL_6,
    );
    let e = decay(ieee, tail);
    let complement = fast_two_sum(ieee, 1.0f32, ieee.neg(ieee.mul(e.p.hi, e.s)));
    let rest = ieee.fma(ieee.neg(e.p.lo), e.s, complement.lo);
    let large = ieee.add(complement.hi, rest);
    let y = prim::select(ieee.lt(a, 1.0f32), small, large);
    nan_of(x, ieee.copysign(y, x))
}

/// A positive number as `(hi + lo) * 2^n`.
#[derive(CubeType, Clone, Copy)]
struct Tail {
    value: Pair,
    /// 2^n.
    scale: Scale,
    /// 2^n, rounded to a subnormal or 0 below -126.
    s: f32,
}

/// `t = (a - k) / (a + k)`, and `1 / (b.hi + b.lo)` to some units in the last place.
#[derive(CubeType, Clone, Copy)]
struct Arguments {
    t: f32,
    /// Small where `a` is, with all its bits.
    t_plus_1: f32,
    b: Pair,
    inverse: f32,
}

/// For `a >= 0`: `b = first + slope * a`.
#[cube]
#[inline(always)]
fn arguments(ieee: &Ieee, a: f32, k: f32, first: f32, slope: f32) -> Arguments {
    let above = fast_two_sum(ieee, k, a);
    let b = ieee.fma(slope, a, first);
    let b_lo = ieee.fma(slope, a, ieee.sub(first, b));
    // One division serves both quotients.
    let inverse = ieee.div(1.0f32, ieee.mul(above.hi, b));
    let inverse_above = ieee.mul(inverse, b);
    let twice = ieee.add(a, a);
    let q = ieee.mul(twice, inverse_above);
    let rest = ieee.fma(ieee.neg(q), above.hi, twice);
    let rest = ieee.fma(ieee.neg(q), above.lo, rest);
    let q = ieee.fma(rest, inverse_above, q);
    Arguments {
        t: ieee.sub(q, 1.0f32),
        t_plus_1: q,
        b: Pair { hi: b, lo: b_lo },
        inverse: ieee.mul(inverse, above.hi),
    }
}

/// `exp(-square) (1 + p) / b`.
#[cube]
#[inline(always)]
fn tail(ieee: &Ieee, square: Pair, p: f32, at: Arguments) -> Tail {
    let e = decay_pair(ieee, square);
    let top = fast_two_sum(ieee, 1.0f32, p);
    let q = ieee.mul(top.hi, at.inverse);
    let rest = ieee.fma(ieee.neg(q), at.b.hi, top.hi);
    let rest = ieee.add(rest, ieee.fma(ieee.neg(q), at.b.lo, top.lo));
    let q_lo = ieee.mul(rest, at.inverse);
    let product = two_product(ieee, q, e.p.hi);
    let lo = ieee.fma(q_lo, e.p.hi, ieee.fma(q, e.p.lo, product.lo));
    Tail {
        value: Pair { hi: product.hi, lo },
        scale: e.scale,
        s: e.s,
    }
}

/// `1 - erf(x)`. At most 1 ulp, also far out where it is small.
///
/// 2 at -inf, +0 at +inf; subnormal above about 9.19, +0 above about 10.06.
#[cube]
#[inline(always)]
pub fn erfc(ieee: &Ieee, x: f32) -> f32 {
    let a = ieee.abs(x);
    let a = prim::select(ieee.lt(10.5f32, a), 10.5f32, a);
    let at = arguments(ieee, a, 3.0f32, 1.0f32, 1.5f32);
    let q = poly10(
        ieee, at.t, ERFC_0, ERFC_1, ERFC_2, ERFC_3, ERFC_4, ERFC_5, ERFC_6, ERFC_7, ERFC_8, ERFC_9,
    );
    let y = tail(ieee, two_product(ieee, a, a), ieee.mul(q, at.t_plus_1), at);
    let positive = ieee.add(y.value.hi, y.value.lo);
    let positive = ieee.mul(ieee.mul(positive, y.scale.first), y.scale.second);
    let hi = ieee.mul(y.value.hi, y.s);
    let negative = fast_two_sum(ieee, 2.0f32, ieee.neg(hi));
    let lo = ieee.fma(ieee.neg(y.value.lo), y.s, negative.lo);
    let negative = ieee.add(negative.hi, lo);
    nan_of(x, prim::select(ieee.lt(x, 0.0f32), negative, positive))
}

/// `x Phi(x)`, `Phi` the distribution function of the standard normal: the Gaussian error linear
/// unit in its exact form, `x (1 + erf(x / sqrt(2))) / 2`. At most 1 ulp, also far below 0 where it
/// is small.
///
/// -0 at -inf (its limit), +inf at +inf; a zero keeps its sign; -0 below about -14.4.
#[cube]
#[inline(always)]
pub fn gelu(ieee: &Ieee, x: f32) -> f32 {
    let bits = prim::bits(x);
    let magnitude = bits & ABS;
    let a = prim::from_bits(prim::select_u32(magnitude < FIFTEEN, magnitude, FIFTEEN));
    let exponent = exponent_pair(ieee, two_product(ieee, a, ieee.mul(a, 0.5f32)));
    let e = power(ieee, exponent);
    // a / (a + PHI_SHIFT) = q + q_lo
    let d = fast_two_sum(ieee, PHI_SHIFT, a);
    let i = rough_inverse(ieee, d.hi);
    let q = ieee.mul(a, i);
    let rest = ieee.fma(ieee.neg(q), d.lo, ieee.fma(ieee.neg(q), d.hi, a));
    let q_lo = ieee.mul(rest, i);
    let t = ieee.add(ieee.sub(q, PHI_SMALL), q_lo);
    let p = poly12(
        ieee, t, TAIL_0, TAIL_1, TAIL_2, TAIL_3, TAIL_4, TAIL_5, TAIL_6, TAIL_7, TAIL_8, TAIL_9,
        TAIL_10, TAIL_11,
    );
    // a Phi(-a) = 2^n (q + q_lo) (power.hi + power.lo) (PHI + p)
    let product = two_product(ieee, q, e.p.hi);
    let rest = ieee.fma(q, e.p.lo, product.lo);
    let rest = ieee.fma(q_lo, e.p.hi, rest);
    let rest = ieee.fma(product.hi, p, ieee.mul(rest, ieee.add(p, PHI)));
    let y = ieee.fma(product.hi, PHI, rest);
    // Below 1, so that it may be multiplied by a power that is subnormal or 0.
    let base = prim::from_bits(prim::select_u32((bits & SIGN) != 0u32, SIGN, bits));
    let y = ieee.fma(ieee.neg(y), ieee.mul(e.scale, TWO_MINUS_64), base);
    // Where the sum would cancel: x (1/2 + x (CENTRE_0 + ...)).
    let square = ieee.mul(x, x);
    let p = poly4(ieee, square, CENTRE_1, CENTRE_2, CENTRE_3, CENTRE_4);
    let phi = ieee.fma(x, CENTRE_0, 0.5f32);
    let phi_lo = ieee.fma(x, CENTRE_0, ieee.sub(0.5f32, phi));
    let phi_lo = ieee.fma(ieee.mul(x, square), p, phi_lo);
    let small = ieee.fma(x, phi, ieee.mul(x, phi_lo));
    nan_of(x, prim::select(ieee.lt(a, PHI_SMALL), small, y))
}

/// `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`: the Gaussian error linear unit in its tanh
/// form. At most 1 ulp, also far below 0 where it is small.
///
/// -0 at -inf (its limit), +inf at +inf; a zero keeps its sign; -0 below about -10.9.
#[cube]
#[inline(always)]
pub fn gelu_tanh(ieee: &Ieee, x: f32) -> f32 {
    let a = ieee.abs(x);
    let c = ieee.copysign(prim::select(ieee.lt(12.0f32, a), 12.0f32, a), x);
    // x / (1 + e^-v), v = x (GELU_1 + GELU_3 x^2).
    let square = two_product(ieee, c, c);
    let cubic = two_product(ieee, square.hi, GELU_3);
    let cubic_lo = ieee.fma(
        square.hi,
        GELU_3_REST,
        ieee.fma(square.lo, GELU_3, cubic.lo),
    );
    let sum = two_sum(ieee, GELU_1, cubic.hi);
    let sum_lo = ieee.add(sum.lo, ieee.add(cubic_lo, GELU_1_REST));
    let v = two_product(ieee, c, sum.hi);
    let negative = (prim::bits(x) & SIGN) != 0u32;
    let v_lo = ieee.fma(c, sum_lo, v.lo);
    let exponent = Pair {
        hi: ieee.abs(v.hi),
        lo: prim::select(negative, ieee.neg(v_lo), v_lo),
    };
    let y = logistic(ieee, negative, exponent_pair(ieee, exponent));
    let r = times_logistic(ieee, c, y);
    let r = prim::select(ieee.lt(12.0f32, x), x, r);
    nan_of(x, ieee.copysign(r, x))
}
