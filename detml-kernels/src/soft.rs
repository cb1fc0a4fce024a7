//! Binary32 arithmetic on bit patterns, by 32-bit integer operations alone.
//!
//! What a device runs whose own float arithmetic is not IEEE-754's (`N15`). Every function
//! takes and returns the bits of binary32 numbers, rounds to nearest, ties to even, keeps
//! subnormals (`N1`) and returns the one NaN (`N11`). No shift reaches 32, since a device leaves
//! such shifts undefined, and nothing branches on data. The operations are not inlined natively:
//! hosts never run them in a loop that matters, and inlined they would swamp their compiler.
//!
//! A finite non-zero number is unpacked to a *significand* with 24 bits, the highest one set,
//! and the biased exponent of that bit, which for subnormals is below 1. Results are formed
//! with their leading bit in bit 30 and rounded by [`pack`]: 24 bits stay, 7 decide the
//! rounding. Whatever lies further down is "jammed": or-ed into bit 0. With at least two bits
//! below the last one kept this rounds as the exact value does.

use crate::prim;
use cubecl::prelude::*;

const SIGN: u32 = 0x8000_0000;
const MAGNITUDE: u32 = 0x7fff_ffff;
const FRACTION: u32 = 0x007f_ffff;
const HIDDEN: u32 = 0x0080_0000;
const INFINITY: u32 = 0x7f80_0000;
const NAN: u32 = 0x7fc0_0000;
/// An exponent below that of any product, for zeros.
const ZERO_EXPONENT: i32 = -1000;

#[cube]
#[inline(always)]
fn min_i32(a: i32, b: i32) -> i32 {
    prim::select_i32(a < b, a, b)
}

#[cube]
#[inline(always)]
fn max_i32(a: i32, b: i32) -> i32 {
    prim::select_i32(a > b, a, b)
}

#[cube]
#[inline(always)]
fn min_u32(a: u32, b: u32) -> u32 {
    prim::select_u32(a < b, a, b)
}

/// 1 if `c`, else 0.
#[cube]
#[inline(always)]
fn flag(c: bool) -> u32 {
    prim::select_u32(c, 1u32, 0u32)
}

/// `x >> n`, jammed; `n` below 32.
#[cube]
#[inline(always)]
fn shift_right_jam(x: u32, n: u32) -> u32 {
    let y = x >> n;
    y | flag((y << n) != x)
}

/// A magnitude in normalised form.
#[derive(CubeType, Clone, Copy)]
struct Parts {
    /// Biased exponent of the leading bit.
    exponent: i32,
    /// 24 bits, the highest one set; 0 for zero.
    significand: u32,
}

/// Unpacks a number; infinities and NaN give meaningless parts.
#[cube]
#[inline(always)]
fn parts(x: u32) -> Parts {
    let magnitude = x & MAGNITUDE;
    let exponent = magnitude >> 23u32;
    let fraction = magnitude & FRACTION;
    let subnormal = exponent == 0u32;
    let shift = prim::leading_zeros(fraction) - 8u32;
    Parts {
        exponent: prim::select_i32(
            subnormal,
            1i32 - prim::as_i32(shift),
            prim::as_i32(exponent),
        ),
        significand: prim::select_u32(subnormal, fraction << shift, fraction | HIDDEN),
    }
}

/// The number `significand * 2^(exponent - 157)` with `sign`, rounded; the significand's leading
/// bit is bit 30.
#[cube]
#[inline(always)]
fn pack(sign: u32, exponent: i32, significand: u32) -> u32 {
    // Below the normal range bits are given up until the exponent is 1.
    let short = prim::as_u32(min_i32(max_i32(1i32 - exponent, 0i32), 31i32));
    let s = shift_right_jam(significand, short);
    let rounded = (s + 0x3fu32 + ((s >> 7u32) & 1u32)) >> 7u32;
    // The hidden bit adds 1 to the exponent field, and so does a carry out of the rounding.
    let field = prim::as_u32(min_i32(max_i32(exponent, 1i32), 255i32) - 1i32);
    sign | min_u32((field << 23u32) + rounded, INFINITY)
}

/// The number of magnitude `hi * 2^32 + lo` (not 0) with `sign`, rounded; `exponent` is the
/// biased exponent of bit 63.
#[cube]
#[inline(always)]
pub(crate) fn pack_wide(sign: u32, exponent: i32, hi: u32, lo: u32) -> u32 {
    let high_empty = hi == 0u32;
    let top = prim::select_u32(high_empty, lo, hi);
    let next = prim::select_u32(high_empty, 0u32, lo);
    let zeros = prim::leading_zeros(top);
    // The leading bit goes to bit 30: one down from bit 31, else up.
    let full = zeros == 0u32;
    let k = prim::select_u32(full, 0u32, min_u32(prim::wrapping_sub(zeros, 1u32), 31u32));
    let s = (top << k) | ((next >> 1u32) >> (31u32 - k));
    let s = prim::select_u32(full, (top >> 1u32) | (top & 1u32), s);
    let s = s | flag((next << k) != 0u32);
    let above = prim::as_i32(zeros) + prim::select_i32(high_empty, 32i32, 0i32);
    pack(sign, exponent - above, s)
}

/// `a + b`.
#[cube]
#[inline(never)]
pub(crate) fn add(a: u32, b: u32) -> u32 {
    let ma = a & MAGNITUDE;
    let mb = b & MAGNITUDE;
    let swap = ma < mb;
    let large = prim::select_u32(swap, mb, ma);
    let small = prim::select_u32(swap, ma, mb);
    let sign = prim::select_u32(swap, b, a) & SIGN;
    let opposite = ((a ^ b) & SIGN) != 0u32;

    // Leading bit of a normal number in bit 29; subnormals keep their place under exponent 1.
    let ex = max_i32(prim::as_i32(large >> 23u32), 1i32);
    let ey = max_i32(prim::as_i32(small >> 23u32), 1i32);
    let x = ((large & FRACTION) | prim::select_u32(large >= HIDDEN, HIDDEN, 0u32)) << 6u32;
    let y = ((small & FRACTION) | prim::select_u32(small >= HIDDEN, HIDDEN, 0u32)) << 6u32;
    // Bits are lost only when the exponents are 7 or more apart; then a difference keeps its
    // leading bit or the one below, and the jam stays under the rounding.
    let y = shift_right_jam(y, prim::as_u32(min_i32(ex - ey, 31i32)));
    let s = prim::wrapping_add(
        x,
        prim::select_u32(opposite, prim::wrapping_sub(0u32, y), y),
    );

    let n = min_u32(prim::leading_zeros(s), 31u32) - 1u32;
    let r = pack(sign, ex + 1i32 - prim::as_i32(n), s << n);
    // An exact zero is +0 unless both signs are negative.
    let r = prim::select_u32(s == 0u32, a & b & SIGN, r);
    let r = prim::select_u32(large == INFINITY, sign | INFINITY, r);
    let nan = large > INFINITY || (small == INFINITY && opposite);
    prim::select_u32(nan, NAN, r)
}

/// `a - b`.
#[cube]
#[inline(never)]
pub(crate) fn sub(a: u32, b: u32) -> u32 {
    add(a, b ^ SIGN)
}

/// `a * b`.
#[cube]
#[inline(never)]
pub(crate) fn mul(a: u32, b: u32) -> u32 {
    let sign = (a ^ b) & SIGN;
    let ma = a & MAGNITUDE;
    let mb = b & MAGNITUDE;
    let pa = parts(a);
    let pb = parts(b);
    let x = pa.significand << 7u32;
    let y = pb.significand << 8u32;
    // In [2^61, 2^63): the high word has 30 or 31 bits.
    let hi = prim::mul_hi(x, y) | flag(prim::wrapping_mul(x, y) != 0u32);
    let below_two = hi < 0x4000_0000u32;
    let r = pack(
        sign,
        pa.exponent + pb.exponent - prim::select_i32(below_two, 127i32, 126i32),
        prim::select_u32(below_two, hi << 1u32, hi),
    );
    let zero = ma == 0u32 || mb == 0u32;
    let infinite = ma == INFINITY || mb == INFINITY;
    let nan = ma > INFINITY || mb > INFINITY || (zero && infinite);
    let r = prim::select_u32(zero, sign, r);
    let r = prim::select_u32(infinite, sign | INFINITY, r);
    prim::select_u32(nan, NAN, r)
}

/// `a * b + c`, rounded once.
#[cube]
#[inline(never)]
pub(crate) fn fma(a: u32, b: u32, c: u32) -> u32 {
    let sp = (a ^ b) & SIGN;
    let sc = c & SIGN;
    let ma = a & MAGNITUDE;
    let mb = b & MAGNITUDE;
    let mc = c & MAGNITUDE;
    let product_zero = ma == 0u32 || mb == 0u32;
    let pa = parts(a);
    let pb = parts(b);
    let pc = parts(c);

    // The product, exact, in two words with its leading bit in bit 61 (bit 29 of the high
    // word). Its low 14 bits are 0, as are the low 38 of the addend in the same form.
    let x = pa.significand << 7u32;
    let y = pb.significand << 7u32;
    let hi = prim::mul_hi(x, y);
    let lo = prim::wrapping_mul(x, y);
    let below_two = hi < 0x2000_0000u32;
    let ph = prim::select_u32(below_two, (hi << 1u32) | (lo >> 31u32), hi);
    let pl = prim::select_u32(below_two, lo << 1u32, lo);
    let ep = pa.exponent + pb.exponent - prim::select_i32(below_two, 127i32, 126i32);
    let ep = prim::select_i32(product_zero, ZERO_EXPONENT, ep);
    let ch = pc.significand << 6u32;
    let ec = prim::select_i32(mc == 0u32, ZERO_EXPONENT, pc.exponent);

    // x: the one with the larger exponent; y: the other, shifted down to it.
    let swap = ec > ep;
    let xh = prim::select_u32(swap, ch, ph);
    let xl = prim::select_u32(swap, 0u32, pl);
    let yh = prim::select_u32(swap, ph, ch);
    let yl = prim::select_u32(swap, pl, 0u32);
    let ex = prim::select_i32(swap, ec, ep);
    let ey = prim::select_i32(swap, ep, ec);
    let sx = prim::select_u32(swap, sc, sp);
    let distance = prim::as_u32(min_i32(ex - ey, 63i32));
    let n = distance & 31u32;
    let far = distance >= 32u32;
    let h = prim::select_u32(far, 0u32, yh);
    let l = prim::select_u32(far, yh, yl);
    let lost = prim::select_u32(far, yl, 0u32) | ((l << 1u32) << (31u32 - n));
    let yl = (l >> n) | ((h << 1u32) << (31u32 - n)) | flag(lost != 0u32);
    let yh = h >> n;

    // x + y or x - y in 64 bits; negative only if the exponents are equal. Bits are lost only
    // at distances above 14, where at most one leading bit cancels.
    let minus = (sp ^ sc) >> 31u32;
    let mask = prim::wrapping_sub(0u32, minus);
    let l0 = prim::wrapping_add(xl, yl ^ mask);
    let l1 = prim::wrapping_add(l0, minus);
    let carry = flag(l0 < xl) + flag(l1 < l0);
    let h1 = prim::wrapping_add(prim::wrapping_add(xh, yh ^ mask), carry);
    let negative = h1 >> 31u32;
    let mask = prim::wrapping_sub(0u32, negative);
    let l2 = prim::wrapping_add(l1 ^ mask, negative);
    let h2 = prim::wrapping_add(h1 ^ mask, prim::select_u32(l2 == 0u32, negative, 0u32));
    let zero = (h2 | l2) == 0u32;
    let r = pack_wide(sx ^ (negative << 31u32), ex + 2i32, h2, l2);

    let r = prim::select_u32(zero, sp & sc, r);
    let product_infinite = ma == INFINITY || mb == INFINITY;
    let r = prim::select_u32(product_infinite, sp | INFINITY, r);
    let r = prim::select_u32(mc == INFINITY, sc | INFINITY, r);
    let nan = ma > INFINITY
        || mb > INFINITY
        || mc > INFINITY
        || (product_infinite && product_zero)
        || (product_infinite && mc == INFINITY && minus != 0u32);
    prim::select_u32(nan, NAN, r)
}

/// `a / b`.
#[cube]
#[inline(never)]
pub(crate) fn div(a: u32, b: u32) -> u32 {
    let sign = (a ^ b) & SIGN;
    let ma = a & MAGNITUDE;
    let mb = b & MAGNITUDE;
    let pa = parts(a);
    let pb = parts(b);
    let less = pa.significand < pb.significand;
    // Long division: 25 quotient bits, the first one set, and the remainder as the jam.
    let d = pb.significand;
    let mut rest = pa.significand << flag(less);
    let mut quotient = 0u32;
    for _ in 0..25u32 {
        let bit = flag(rest >= d);
        quotient = (quotient << 1u32) | bit;
        rest = (rest - prim::select_u32(bit != 0u32, d, 0u32)) << 1u32;
    }
    let r = pack(
        sign,
        pa.exponent - pb.exponent + prim::select_i32(less, 126i32, 127i32),
        (quotient << 6u32) | flag(rest != 0u32),
    );
    let zero = ma == 0u32 || mb == INFINITY;
    let infinite = mb == 0u32 || ma == INFINITY;
    let nan = ma > INFINITY || mb > INFINITY || (zero && infinite);
    let r = prim::select_u32(zero, sign, r);
    let r = prim::select_u32(infinite, sign | INFINITY, r);
    prim::select_u32(nan, NAN, r)
}

/// The square root; -0 for -0, NaN below.
#[cube]
#[inline(never)]
pub(crate) fn sqrt(x: u32) -> u32 {
    let p = parts(x);
    let t = prim::as_u32(p.exponent + 127i32);
    // Digit by digit: 25 root bits of a radicand of 50, the first one set, and the remainder as
    // the jam.
    let mut radicand = (p.significand << 7u32) << (t & 1u32);
    let mut rest = 0u32;
    let mut root = 0u32;
    for _ in 0..25u32 {
        rest = (rest << 2u32) | (radicand >> 30u32);
        radicand <<= 2u32;
        let trial = (root << 2u32) | 1u32;
        let bit = flag(rest >= trial);
        rest -= prim::select_u32(bit != 0u32, trial, 0u32);
        root = (root << 1u32) | bit;
    }
    let r = pack(
        0u32,
        prim::as_i32(t >> 1u32),
        (root << 6u32) | flag(rest != 0u32),
    );
    let magnitude = x & MAGNITUDE;
    let r = prim::select_u32(magnitude == 0u32 || x == INFINITY, x, r);
    let nan = magnitude > INFINITY || x > SIGN;
    prim::select_u32(nan, NAN, r)
}

/// A signed word that orders as the numbers do; both zeros give 0.
#[cube]
#[inline(always)]
fn signed(x: u32) -> i32 {
    let mask = prim::wrapping_sub(0u32, x >> 31u32);
    prim::as_i32(prim::wrapping_sub((x & MAGNITUDE) ^ mask, mask))
}

/// Whether `x` is a NaN.
#[cube]
#[inline(always)]
pub(crate) fn is_nan(x: u32) -> bool {
    (x & MAGNITUDE) > INFINITY
}

/// `a < b`; false with a NaN.
#[cube]
#[inline(always)]
pub(crate) fn lt(a: u32, b: u32) -> bool {
    let nan = is_nan(a) || is_nan(b);
    signed(a) < signed(b) && !nan
}

/// `a <= b`; false with a NaN.
#[cube]
#[inline(always)]
pub(crate) fn le(a: u32, b: u32) -> bool {
    let nan = is_nan(a) || is_nan(b);
    signed(a) <= signed(b) && !nan
}

/// `a == b`; false with a NaN, true for zeros of any sign.
#[cube]
#[inline(always)]
pub(crate) fn eq(a: u32, b: u32) -> bool {
    let nan = is_nan(a) || is_nan(b);
    signed(a) == signed(b) && !nan
}

/// The number nearest to `x` with `sign`.
#[cube]
#[inline(always)]
fn from_magnitude(sign: u32, x: u32) -> u32 {
    let n = min_u32(prim::leading_zeros(x), 31u32);
    let s = x << n;
    let r = pack(sign, 158i32 - prim::as_i32(n), (s >> 1u32) | (s & 1u32));
    prim::select_u32(x == 0u32, 0u32, r)
}

/// The number nearest to `x`.
#[cube]
#[inline(never)]
pub(crate) fn from_u32(x: u32) -> u32 {
    from_magnitude(0u32, x)
}

/// The number nearest to `x`.
#[cube]
#[inline(never)]
pub(crate) fn from_i32(x: i32) -> u32 {
    let bits = prim::as_u32(x);
    let mask = prim::wrapping_sub(0u32, bits >> 31u32);
    from_magnitude(bits & SIGN, prim::wrapping_sub(bits ^ mask, mask))
}

/// The magnitude of `x` without its fraction; `u32::MAX` from 2^32 on, 0 for a NaN.
#[cube]
#[inline(always)]
fn truncated_magnitude(x: u32) -> u32 {
    let magnitude = x & MAGNITUDE;
    let e = prim::as_i32(magnitude >> 23u32);
    let s = (magnitude & FRACTION) | HIDDEN;
    let left = prim::as_u32(min_i32(max_i32(e - 150i32, 0i32), 8i32));
    let right = prim::as_u32(min_i32(max_i32(150i32 - e, 0i32), 31i32));
    let r = (s << left) >> right;
    let r = prim::select_u32(e > 158i32, u32::MAX, r);
    prim::select_u32(magnitude > INFINITY, 0u32, r)
}

/// `x` without its fraction, saturating; 0 for a NaN.
#[cube]
#[inline(always)]
pub(crate) fn to_u32(x: u32) -> u32 {
    prim::select_u32(x >= SIGN, 0u32, truncated_magnitude(x))
}

/// `x` without its fraction, saturating; 0 for a NaN.
#[cube]
#[inline(always)]
pub(crate) fn to_i32(x: u32) -> i32 {
    let sign = x >> 31u32;
    let m = min_u32(truncated_magnitude(x), prim::wrapping_add(MAGNITUDE, sign));
    let mask = prim::wrapping_sub(0u32, sign);
    prim::as_i32(prim::wrapping_sub(m ^ mask, mask))
}

/// `x * 2^n`, rounded once.
#[cube]
#[inline(never)]
pub(crate) fn scale(x: u32, n: i32) -> u32 {
    let magnitude = x & MAGNITUDE;
    let p = parts(x);
    let e = p.exponent + min_i32(max_i32(n, -600i32), 600i32);
    let r = pack(x & SIGN, e, p.significand << 7u32);
    let r = prim::select_u32(magnitude == 0u32 || magnitude == INFINITY, x, r);
    prim::select_u32(magnitude > INFINITY, NAN, r)
}

#[cfg(test)]
mod tests;
