//! Signed 64-bit integers as two 32-bit words, for devices that have no wider ones (`N9`).
//!
//! All arithmetic is modulo 2^64, as that of a wrapping `i64`; [`I64`] converts from and to
//! `i64` natively. The same source runs on the host and in kernels.

use crate::{prim, soft};
use cubecl::prelude::*;

/// A signed 64-bit integer: `hi * 2^32 + lo` in two's complement.
#[derive(CubeType, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct I64 {
    /// The upper word, with the sign.
    pub hi: u32,
    /// The lower word.
    pub lo: u32,
}

impl From<i64> for I64 {
    fn from(x: i64) -> Self {
        Self {
            hi: (x >> 32) as u32,
            lo: x as u32,
        }
    }
}

impl From<I64> for i64 {
    fn from(x: I64) -> Self {
        ((u64::from(x.hi) << 32) | u64::from(x.lo)) as i64
    }
}

/// 1 if `c`, else 0.
#[cube]
#[inline(always)]
fn flag(c: bool) -> u32 {
    prim::select_u32(c, 1u32, 0u32)
}

#[cube]
impl I64 {
    /// The integer of two words.
    #[inline(always)]
    pub fn new(hi: u32, lo: u32) -> I64 {
        I64 { hi, lo }
    }

    /// `x` with its sign.
    #[inline(always)]
    pub fn from_i32(x: i32) -> I64 {
        let lo = prim::as_u32(x);
        I64 {
            hi: prim::wrapping_sub(0u32, lo >> 31u32),
            lo,
        }
    }

    /// `x`, never negative.
    #[inline(always)]
    pub fn from_u32(x: u32) -> I64 {
        I64 { hi: 0u32, lo: x }
    }

    /// `self + other`.
    #[inline(always)]
    pub fn add(&self, other: I64) -> I64 {
        let lo = prim::wrapping_add(self.lo, other.lo);
        let hi = prim::wrapping_add(self.hi, other.hi);
        I64 {
            hi: prim::wrapping_add(hi, flag(lo < other.lo)),
            lo,
        }
    }

    /// `self - other`.
    #[inline(always)]
    pub fn sub(&self, other: I64) -> I64 {
        let hi = prim::wrapping_sub(self.hi, other.hi);
        I64 {
            hi: prim::wrapping_sub(hi, flag(self.lo < other.lo)),
            lo: prim::wrapping_sub(self.lo, other.lo),
        }
    }

    /// `-self`; the least integer stays.
    #[inline(always)]
    pub fn neg(&self) -> I64 {
        I64 {
            hi: prim::wrapping_sub(prim::wrapping_sub(0u32, self.hi), flag(self.lo != 0u32)),
            lo: prim::wrapping_sub(0u32, self.lo),
        }
    }

    /// `self < 0`.
    #[inline(always)]
    pub fn is_negative(&self) -> bool {
        (self.hi >> 31u32) != 0u32
    }

    /// `self == 0`.
    #[inline(always)]
    pub fn is_zero(&self) -> bool {
        (self.hi | self.lo) == 0u32
    }

    /// `self == other`.
    #[inline(always)]
    pub fn equals(&self, other: I64) -> bool {
        ((self.hi ^ other.hi) | (self.lo ^ other.lo)) == 0u32
    }

    /// `self < other`, signed.
    #[inline(always)]
    pub fn less(&self, other: I64) -> bool {
        let same = self.hi == other.hi;
        let low = self.lo < other.lo;
        let high = prim::as_i32(self.hi) < prim::as_i32(other.hi);
        (same && low) || high
    }

    /// `self <= other`, signed.
    #[inline(always)]
    pub fn less_or_equal(&self, other: I64) -> bool {
        let same = self.hi == other.hi;
        let low = self.lo <= other.lo;
        let high = prim::as_i32(self.hi) < prim::as_i32(other.hi);
        (same && low) || high
    }

    /// `self` if `c`, else `other`; no branch.
    #[inline(always)]
    pub fn select(&self, c: bool, other: I64) -> I64 {
        I64 {
            hi: prim::select_u32(c, self.hi, other.hi),
            lo: prim::select_u32(c, self.lo, other.lo),
        }
    }

    /// `self * 2^n`; `n` is taken modulo 64.
    #[inline(always)]
    pub fn shift_left(&self, n: u32) -> I64 {
        let far = (n & 32u32) != 0u32;
        let n = n & 31u32;
        let hi = (self.hi << n) | ((self.lo >> 1u32) >> (31u32 - n));
        let lo = self.lo << n;
        I64 {
            hi: prim::select_u32(far, lo, hi),
            lo: prim::select_u32(far, 0u32, lo),
        }
    }

    /// `self / 2^n`, rounded down (arithmetic shift); `n` is taken modulo 64.
    #[inline(always)]
    pub fn shift_right(&self, n: u32) -> I64 {
        let far = (n & 32u32) != 0u32;
        let n = n & 31u32;
        let sign = prim::wrapping_sub(0u32, self.hi >> 31u32);
        let hi = (self.hi >> n) | ((sign << 1u32) << (31u32 - n));
        let lo = (self.lo >> n) | ((self.hi << 1u32) << (31u32 - n));
        I64 {
            hi: prim::select_u32(far, sign, hi),
            lo: prim::select_u32(far, hi, lo),
        }
    }

    /// `a * b`, exact as an unsigned product.
    #[inline(always)]
    pub fn product_u32(a: u32, b: u32) -> I64 {
        I64 {
            hi: prim::mul_hi(a, b),
            lo: prim::wrapping_mul(a, b),
        }
    }

    /// `a * b`, exact.
    #[inline(always)]
    pub fn product_i32(a: i32, b: i32) -> I64 {
        let a = prim::as_u32(a);
        let b = prim::as_u32(b);
        // A negative factor counts 2^32 too much times the other one.
        let excess = prim::wrapping_add(
            b & prim::wrapping_sub(0u32, a >> 31u32),
            a & prim::wrapping_sub(0u32, b >> 31u32),
        );
        I64 {
            hi: prim::wrapping_sub(prim::mul_hi(a, b), excess),
            lo: prim::wrapping_mul(a, b),
        }
    }

    /// The binary32 nearest to `self`, ties to even; +0 for 0.
    #[inline(always)]
    pub fn to_f32(&self) -> f32 {
        self.to_f32_scaled(0i32)
    }

    /// The binary32 nearest to `self * 2^n`, rounded once, ties to even, subnormals and
    /// overflow to infinity included; +0 for 0. A sum in fixed point becomes a number here.
    #[inline(always)]
    pub fn to_f32_scaled(&self, n: i32) -> f32 {
        let n = prim::select_i32(n > 400i32, 400i32, n);
        let n = prim::select_i32(n < -400i32, -400i32, n);
        let sign = self.hi & 0x8000_0000u32;
        let negative = self.neg();
        let hi = prim::select_u32(sign != 0u32, negative.hi, self.hi);
        let lo = prim::select_u32(sign != 0u32, negative.lo, self.lo);
        // Bit 63 has the exponent 63, biased 190.
        let r = soft::pack_wide(sign, n + 190i32, hi, lo);
        prim::from_bits(prim::select_u32((hi | lo) == 0u32, 0u32, r))
    }

    /// `x * 2^n` to the nearest integer, ties to even; saturates at +-(2^63 - 1), 0 for a NaN.
    /// A number becomes fixed point here.
    #[inline(always)]
    pub fn from_f32_scaled(x: f32, n: i32) -> I64 {
        let n = prim::select_i32(n > 400i32, 400i32, n);
        let n = prim::select_i32(n < -400i32, -400i32, n);
        let bits = prim::bits(x);
        let magnitude = bits & 0x7fff_ffffu32;
        let field = magnitude >> 23u32;
        let s =
            (magnitude & 0x007f_ffffu32) | prim::select_u32(field == 0u32, 0u32, 0x0080_0000u32);
        // |x| * 2^n is s * 2^e.
        let e = prim::as_i32(prim::select_u32(field == 0u32, 1u32, field)) - 150i32 + n;

        // Down: units of 2^-e are rounded away.
        let down = prim::select_i32(e < 0i32, -e, 0i32);
        let down = prim::as_u32(prim::select_i32(down > 31i32, 31i32, down));
        let kept = s >> down;
        let rest = s - (kept << down);
        let half = (1u32 << down) >> 1u32;
        let up = rest > half || (rest == half && half != 0u32 && (kept & 1u32) != 0u32);
        let rounded = kept + flag(up);

        // Up: exact below 2^63, which is 2^39 times a significand that has its leading bit.
        let lift = prim::select_i32(e > 0i32, e, 0i32);
        let lift = prim::as_u32(prim::select_i32(lift > 63i32, 63i32, lift));
        let wide = I64::from_u32(rounded).shift_left(lift);
        let bits_used = 32i32 - prim::as_i32(prim::leading_zeros(rounded));
        let infinite = magnitude == 0x7f80_0000u32;
        let over = infinite || (rounded != 0u32 && bits_used + prim::as_i32(lift) > 63i32);
        let most = I64::new(0x7fff_ffffu32, u32::MAX);
        let r = most.select(over, wide);
        let nan = magnitude > 0x7f80_0000u32;
        let r = I64::from_u32(0u32).select(nan, r);
        r.neg().select((bits >> 31u32) != 0u32, r)
    }
}

#[cfg(test)]
mod tests;
