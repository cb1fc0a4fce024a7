//! Storage formats narrower than binary32, by integer code (`N13`).
//!
//! Sixteen-bit floats travel as words whose low half holds their bits; [`low_half()`],
//! [`high_half()`] and [`join_halves()`] take two to a word, [`byte()`] and [`join_bytes()`] four 8-bit
//! integers. Decoding is exact. Encoding rounds to nearest, ties to even, keeps subnormals,
//! overflows to infinity, and gives every NaN one value: 0x7fc0 (bf16), 0x7e00 (f16).
//!
//! The `#[cube]` functions are the same source natively and in kernels; the functions on slices
//! run them at the CPU's instruction-set level.

use crate::device::{Loop, Simd};
use crate::ieee::Ieee;
use crate::prim;
use cubecl::prelude::*;
use detml_core::Result;
use half::{bf16, f16};

const SIGN: u32 = 0x8000_0000;
const MAGNITUDE: u32 = 0x7fff_ffff;
const FRACTION: u32 = 0x007f_ffff;
const HIDDEN: u32 = 0x0080_0000;
const INFINITY: u32 = 0x7f80_0000;
const NAN: u32 = 0x7fc0_0000;

/// The number that the low 16 bits of `x` are in bf16, exactly. Any NaN gives 0x7fc00000.
#[cube]
#[inline(always)]
pub fn bf16_to_f32(x: u32) -> f32 {
    let b = x << 16u32;
    prim::from_bits(prim::select_u32((b & MAGNITUDE) > INFINITY, NAN, b))
}

/// The bits of the bf16 nearest to `x`, ties to even, in the low 16 bits. Beyond
/// 0x7f7f7fff (3.3961775e38) infinity; any NaN gives 0x7fc0.
#[cube]
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> u32 {
    let b = prim::bits(x);
    // A magnitude up to infinity can't carry into the sign.
    let magnitude = b & MAGNITUDE;
    let rounded = (magnitude + 0x7fffu32 + ((b >> 16u32) & 1u32)) >> 16u32;
    let r = rounded | ((b & SIGN) >> 16u32);
    prim::select_u32(magnitude > INFINITY, 0x7fc0u32, r)
}

/// The number that the low 16 bits of `x` are in IEEE-754 binary16, exactly, subnormals
/// included. Any NaN gives 0x7fc00000.
#[cube]
#[inline(always)]
pub fn f16_to_f32(x: u32) -> f32 {
    let sign = (x & 0x8000u32) << 16u32;
    let exponent = (x >> 10u32) & 31u32;
    let fraction = x & 0x3ffu32;
    let normal = ((exponent + 112u32) << 23u32) | (fraction << 13u32);
    // The leading bit of a subnormal fraction goes up to the place of the hidden one, by halving
    // steps: CPUs count the zeros of one word at a time only.
    let n8 = prim::select_u32(fraction < 0x004u32, 8u32, 0u32);
    let f = fraction << n8;
    let n4 = prim::select_u32(f < 0x040u32, 4u32, 0u32);
    let f = f << n4;
    let n2 = prim::select_u32(f < 0x100u32, 2u32, 0u32);
    let f = f << n2;
    let n1 = prim::select_u32(f < 0x200u32, 2u32, 1u32);
    let f = f << n1;
    let subnormal = ((113u32 - (n8 + n4 + n2 + n1)) << 23u32) | ((f & 0x3ffu32) << 13u32);
    let subnormal = prim::select_u32(fraction == 0u32, 0u32, subnormal);
    let r = prim::select_u32(exponent == 0u32, subnormal, normal);
    let special = prim::select_u32(fraction == 0u32, sign | INFINITY, NAN);
    prim::from_bits(prim::select_u32(exponent == 31u32, special, sign | r))
}

/// The bits of the IEEE-754 binary16 nearest to `x`, ties to even, in the low 16 bits. From
/// 65520 on infinity; up to 2^-25 zero; the sign stays; any NaN gives 0x7e00.
#[cube]
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u32 {
    let b = prim::bits(x);
    let magnitude = b & MAGNITUDE;
    let exponent = magnitude >> 23u32;
    // From 2^-14: the exponent field loses 112, the fraction 13 bits; a carry may reach infinity.
    // Below: the significand in units of 2^-24, 14 or more bits given up; what is below half a
    // unit gives 0.
    let small = exponent < 113u32;
    let s = prim::select_u32(
        small,
        (magnitude & FRACTION) | HIDDEN,
        prim::wrapping_sub(magnitude, 112u32 << 23u32),
    );
    let shift = prim::select_u32(small, prim::wrapping_sub(126u32, exponent), 13u32);
    let shift = prim::select_u32(shift > 31u32, 31u32, shift);
    let tie = (1u32 << (shift - 1u32)) - 1u32;
    let r = prim::wrapping_add(s, tie + ((s >> shift) & 1u32)) >> shift;
    let r = prim::select_u32(r > 0x7c00u32, 0x7c00u32, r) | ((b & SIGN) >> 16u32);
    prim::select_u32(magnitude > INFINITY, 0x7e00u32, r)
}

/// The low 16 bits of a word.
#[cube]
#[inline(always)]
pub fn low_half(word: u32) -> u32 {
    word & 0xffffu32
}

/// The high 16 bits of a word.
#[cube]
#[inline(always)]
pub fn high_half(word: u32) -> u32 {
    word >> 16u32
}

/// The word whose halves hold the low 16 bits of `low` and of `high`.
#[cube]
#[inline(always)]
pub fn join_halves(low: u32, high: u32) -> u32 {
    (low & 0xffffu32) | (high << 16u32)
}

/// The 8-bit integer in byte `lane` (0 to 3, 0 the lowest; taken modulo 4) of a word.
#[cube]
#[inline(always)]
pub fn byte(word: u32, lane: u32) -> i32 {
    let x = (word >> ((lane & 3u32) << 3u32)) & 0xffu32;
    // Bit 7 has the weight -128.
    prim::as_i32(x ^ 0x80u32) - 128i32
}

/// The word whose bytes, the lowest first, hold the low 8 bits of the arguments.
#[cube]
#[inline(always)]
pub fn join_bytes(a: i32, b: i32, c: i32, d: i32) -> u32 {
    let low = (prim::as_u32(a) & 0xffu32) | ((prim::as_u32(b) & 0xffu32) << 8u32);
    let high = (prim::as_u32(c) & 0xffu32) | (prim::as_u32(d) << 8u32);
    low | (high << 16u32)
}

/// The least exponent `e` for which numbers of magnitude up to `largest` fit in
/// `-127 * 2^e ..= 127 * 2^e`, but at least -149 and at most 121: within these every code decodes
/// exactly. 0 for 0 and NaN, 121 for infinities.
#[cube]
#[inline(always)]
pub fn int8_exponent(ieee: &Ieee, largest: f32) -> i32 {
    let largest = ieee.abs(largest);
    let e = ieee.exponent(largest);
    let finite = ieee.is_finite(largest);
    let e = prim::select_i32(e == i32::MIN || !finite, 0i32, e) - 6i32;
    // In [64, 128).
    let top = ieee.scale(largest, -e);
    let e = e + prim::select_i32(ieee.lt(prim::from_bits(0x42fe_0000u32), top), 1i32, 0i32);
    let e = prim::select_i32(e > 121i32, 121i32, e);
    let e = prim::select_i32(e < -149i32, -149i32, e);
    let e = prim::select_i32(
        ieee.eq(largest, prim::from_bits(0u32)) || ieee.is_nan(largest),
        0i32,
        e,
    );
    prim::select_i32(finite || ieee.is_nan(largest), e, 121i32)
}

/// `x * 2^-e` to the nearest integer, ties to even, saturating at -127 and 127; 0 for NaN.
#[cube]
#[inline(always)]
pub fn f32_to_int8(ieee: &Ieee, x: f32, e: i32) -> i32 {
    // Far exponents say the same as the nearest of these, and their negative exists.
    let e = prim::select_i32(
        e > 400i32,
        400i32,
        prim::select_i32(e < -400i32, -400i32, e),
    );
    let q = ieee.to_i32(ieee.round_ties_even(ieee.scale(x, -e)));
    let q = prim::select_i32(q > 127i32, 127i32, q);
    prim::select_i32(q < -127i32, -127i32, q)
}

/// `q * 2^e`: exact for 8-bit `q` and `e` in `-149..=121`, else rounded once.
#[cube]
#[inline(always)]
pub fn int8_to_f32(ieee: &Ieee, q: i32, e: i32) -> f32 {
    ieee.scale(ieee.from_i32(q), e)
}

/// Declares a conversion of slices.
macro_rules! slices {
    ($(#[$doc:meta])* $name:ident, $from:ty => $to:ty, |$x:ident| $body:expr) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// `Error::InvalidParameter` if `DETML_SIMD` forces a level that this CPU lacks.
        pub fn $name(x: &[$from]) -> Result<Vec<$to>> {
            struct Each<'a>(&'a [$from]);
            impl Loop for Each<'_> {
                type Output = Vec<$to>;
                #[inline(always)]
                fn run(self, _: Ieee) -> Vec<$to> {
                    // A plain loop: a collect may end up outside, without the level's instructions.
                    let mut out = vec![<$to>::default(); self.0.len()];
                    for (out, &$x) in out.iter_mut().zip(self.0) {
                        *out = $body;
                    }
                    out
                }
            }
            Ok(Simd::current()?.dispatch(Each(x)))
        }
    };
}

slices! {
    /// Each number to the nearest bf16, see [`f32_to_bf16()`].
    encode_bf16, f32 => bf16, |x| bf16::from_bits(f32_to_bf16(x) as u16)
}
slices! {
    /// Each bf16 as the binary32 it is, see [`bf16_to_f32()`].
    decode_bf16, bf16 => f32, |x| bf16_to_f32(u32::from(x.to_bits()))
}
slices! {
    /// Each number to the nearest binary16, see [`f32_to_f16()`].
    encode_f16, f32 => f16, |x| f16::from_bits(f32_to_f16(x) as u16)
}
slices! {
    /// Each binary16 as the binary32 it is, see [`f16_to_f32()`].
    decode_f16, f16 => f32, |x| f16_to_f32(u32::from(x.to_bits()))
}

/// Numbers as 8-bit integers of one power-of-two scale.
///
/// ```
/// use detml_kernels::convert::Int8;
///
/// let x = [0.5, -1.0, 0.3];
/// let q = Int8::encode(&x)?;
/// assert_eq!(q.exponent, -6);
/// assert_eq!(q.codes, [32, -64, 19]);
/// assert_eq!(q.decode()?, [0.5, -1.0, 0.296875]);
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Int8 {
    /// Every number is its code times `2^exponent`.
    pub exponent: i32,
    /// The codes, -127 to 127.
    pub codes: Vec<i8>,
}

impl Int8 {
    /// Encodes with the least scale that all finite magnitudes fit, see [`int8_exponent()`] and
    /// [`f32_to_int8()`]: NaN becomes 0, infinities saturate.
    ///
    /// # Errors
    /// `Error::InvalidParameter` if `DETML_SIMD` forces a level that this CPU lacks.
    pub fn encode(x: &[f32]) -> Result<Self> {
        struct Encode<'a>(&'a [f32]);
        impl Loop for Encode<'_> {
            type Output = Int8;
            #[inline(always)]
            fn run(self, m: Ieee) -> Int8 {
                // Magnitudes order as their bits.
                let mut largest = 0;
                for x in self.0 {
                    let magnitude = prim::bits(*x) & MAGNITUDE;
                    largest = largest.max(if magnitude < INFINITY { magnitude } else { 0 });
                }
                let exponent = int8_exponent(&m, prim::from_bits(largest));
                let mut codes = vec![0; self.0.len()];
                for (code, &x) in codes.iter_mut().zip(self.0) {
                    *code = f32_to_int8(&m, x, exponent) as i8;
                }
                Int8 { exponent, codes }
            }
        }
        Ok(Simd::current()?.dispatch(Encode(x)))
    }

    /// The numbers that the codes stand for.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn decode(&self) -> Result<Vec<f32>> {
        struct Decode<'a>(&'a Int8);
        impl Loop for Decode<'_> {
            type Output = Vec<f32>;
            #[inline(always)]
            fn run(self, m: Ieee) -> Vec<f32> {
                let exponent = self.0.exponent;
                let mut out = vec![0.0; self.0.codes.len()];
                for (out, &q) in out.iter_mut().zip(&self.0.codes) {
                    *out = int8_to_f32(&m, i32::from(q), exponent);
                }
                out
            }
        }
        Ok(Simd::current()?.dispatch(Decode(self)))
    }
}

#[cfg(test)]
mod tests;
