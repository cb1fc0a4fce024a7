//! The arithmetic of `detml.f32.v1` (`N1`-`N3`): every operation that decides a bit.
//!
//! [`Ieee`] carries the run-time -0 that keeps compilers from contracting a product (`N2`) and
//! the [`FloatProfile`] of the device. Kernels and CPU loops call the same methods; where the
//! profile says that a device does not compute an operation as IEEE-754 demands, the method
//! calls the integer-only code of [`soft`](crate::soft), which gives the same bits.

use crate::{prim, soft};
use cubecl::prelude::*;

/// How an operation is computed on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// The device's own operation, proved by the probe to be IEEE-754's.
    Native,
    /// Through binary64; hosts only.
    Wide,
    /// By integer code.
    Emulated,
}

/// What a device computes itself and what is emulated on it (`N15`).
///
/// Every profile gives the same bits; they differ in speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FloatProfile {
    /// Fused multiply-add with one rounding.
    pub fma: Path,
    /// Correctly rounded division.
    pub div: Path,
    /// Correctly rounded square root.
    pub sqrt: Path,
    /// Subnormal operands and results kept. Emulated: all arithmetic is by integer code.
    pub subnormal: Path,
    /// Conversion of integers to the nearest float.
    pub convert: Path,
    /// Whether the device's compiler rewrites expressions (reassociates sums, fuses products,
    /// folds constants), so that it must not see where an operand comes from.
    pub opaque: bool,
}

impl FloatProfile {
    /// Everything native: CPUs with FMA, CUDA, HIP.
    pub const NATIVE: Self = Self {
        fma: Path::Native,
        div: Path::Native,
        sqrt: Path::Native,
        subnormal: Path::Native,
        convert: Path::Native,
        opaque: false,
    };
    /// CPUs without FMA: fused multiply-add through binary64.
    pub const NO_FMA: Self = Self {
        fma: Path::Wide,
        ..Self::NATIVE
    };
    /// Nothing native: the arithmetic is integer code throughout.
    pub const EMULATED: Self = Self {
        fma: Path::Emulated,
        div: Path::Emulated,
        sqrt: Path::Emulated,
        subnormal: Path::Emulated,
        convert: Path::Emulated,
        opaque: false,
    };

    /// Whether a sum and a fused product are an instruction each: then kernels unroll loops over
    /// registers, which would fill megabytes with emulated ones.
    pub(crate) fn direct(self) -> bool {
        self.fma == Path::Native && self.subnormal == Path::Native
    }
}

/// The arithmetic handed to every kernel and CPU loop.
#[derive(CubeType, Clone, Copy, Debug)]
pub struct Ieee {
    /// -0.0, a value that no compiler of a kernel can know.
    nz: f32,
    /// 0, likewise.
    zero: u32,
    #[cube(comptime)]
    profile: FloatProfile,
}

impl Ieee {
    /// The arithmetic of a host with FMA. Call it inside a function compiled for such a target.
    pub const FMA: Self = Self {
        nz: -0.0,
        zero: 0,
        profile: FloatProfile::NATIVE,
    };
    /// The arithmetic of any host.
    pub const PLAIN: Self = Self {
        nz: -0.0,
        zero: 0,
        profile: FloatProfile::NO_FMA,
    };
    /// Integer code throughout: what a device without usable float arithmetic runs.
    pub const EMULATED: Self = Self {
        nz: -0.0,
        zero: 0,
        profile: FloatProfile::EMULATED,
    };

    /// The profile this arithmetic computes with.
    pub const fn profile(&self) -> FloatProfile {
        self.profile
    }
}

impl IeeeExpand {
    /// The arithmetic inside a kernel: `nz` and `zero` are the kernel's run-time -0 and 0.
    pub(crate) fn new(
        nz: NativeExpand<f32>,
        zero: NativeExpand<u32>,
        profile: FloatProfile,
    ) -> Self {
        Self { nz, zero, profile }
    }
}

const SIGN: u32 = 0x8000_0000;
const MAGNITUDE: u32 = 0x7fff_ffff;
const FRACTION: u32 = 0x007f_ffff;
const INFINITY: u32 = 0x7f80_0000;
const NAN: u32 = 0x7fc0_0000;
const ONE: u32 = 0x3f80_0000;
const HALF: u32 = 0x3f00_0000;

/// Rounding, NaN and zeros: results are IEEE-754's, rounded to nearest with ties to even,
/// subnormals kept. The sign and payload of a NaN are the device's until it passes
/// [`canonical`](Self::canonical), which everything stored must (`N11`); no other method
/// lets them show.
#[cube]
impl Ieee {
    /// `x` as a value that no compiler can see through, where the profile asks for that.
    #[inline(always)]
    fn opaque(&self, x: f32) -> f32 {
        if comptime!(self.profile.opaque) {
            prim::from_bits(prim::bits(x) ^ self.zero)
        } else {
            x
        }
    }

    /// As [`opaque`](Self::opaque), by another value: what is equal must not look so, or
    /// `x - x` is taken for 0 and `x == x` for true.
    #[inline(always)]
    fn opaque_other(&self, x: f32) -> f32 {
        if comptime!(self.profile.opaque) {
            prim::from_bits(prim::bits(x) ^ (prim::bits(self.nz) ^ SIGN))
        } else {
            x
        }
    }

    /// `a + b`. `inf - inf` is NaN; an exact zero is +0 unless both are negative (-0 + -0).
    #[inline(always)]
    pub fn add(&self, a: f32, b: f32) -> f32 {
        if comptime!(self.profile.subnormal == Path::Native) {
            prim::add(self.opaque(a), self.opaque_other(b))
        } else {
            prim::from_bits(soft::add(prim::bits(a), prim::bits(b)))
        }
    }

    /// `a - b`. `inf - inf` is NaN; `x - x` is +0.
    #[inline(always)]
    pub fn sub(&self, a: f32, b: f32) -> f32 {
        if comptime!(self.profile.subnormal == Path::Native) {
            prim::sub(self.opaque(a), self.opaque_other(b))
        } else {
            prim::from_bits(soft::sub(prim::bits(a), prim::bits(b)))
        }
    }

    /// `a * b`, rounded on its own and never fused with a sum that takes it (`N2`).
    /// `0 * inf` is NaN.
    #[inline(always)]
    pub fn mul(&self, a: f32, b: f32) -> f32 {
        if comptime!(self.profile.subnormal == Path::Native) {
            // Whether or not the device rounds `a * b + -0` once, it is the rounded product.
            prim::mul(self.opaque(a), self.opaque(b), self.nz)
        } else {
            prim::from_bits(soft::mul(prim::bits(a), prim::bits(b)))
        }
    }

    /// `a * b + c`, rounded once. NaN for `0 * inf` and for an infinite product minus infinity;
    /// an exact zero is +0 unless product and `c` are both negative.
    #[inline(always)]
    pub fn fma(&self, a: f32, b: f32, c: f32) -> f32 {
        if comptime!(self.profile.subnormal == Path::Native && self.profile.fma == Path::Native) {
            prim::fma(self.opaque(a), self.opaque(b), self.opaque(c))
        } else if comptime!(
            self.profile.subnormal == Path::Native && self.profile.fma == Path::Wide
        ) {
            prim::fma_wide(a, b, c)
        } else {
            prim::from_bits(soft::fma(prim::bits(a), prim::bits(b), prim::bits(c)))
        }
    }

    /// `a / b`. `0 / 0` and `inf / inf` are NaN; `x / 0` is an infinity.
    #[inline(always)]
    pub fn div(&self, a: f32, b: f32) -> f32 {
        if comptime!(self.profile.subnormal == Path::Native && self.profile.div == Path::Native) {
            prim::div(self.opaque(a), self.opaque_other(b))
        } else {
            prim::from_bits(soft::div(prim::bits(a), prim::bits(b)))
        }
    }

    /// The square root. -0 for -0, NaN below zero.
    #[inline(always)]
    pub fn sqrt(&self, x: f32) -> f32 {
        if comptime!(self.profile.subnormal == Path::Native && self.profile.sqrt == Path::Native) {
            prim::sqrt(self.opaque(x))
        } else {
            prim::from_bits(soft::sqrt(prim::bits(x)))
        }
    }

    /// `x` with the other sign, zeros included.
    #[inline(always)]
    pub fn neg(&self, x: f32) -> f32 {
        prim::from_bits(prim::bits(x) ^ SIGN)
    }

    /// `x` without its sign.
    #[inline(always)]
    pub fn abs(&self, x: f32) -> f32 {
        prim::from_bits(prim::bits(x) & MAGNITUDE)
    }

    /// The magnitude of `x` with the sign of `s`; a NaN `s` counts as positive.
    #[inline(always)]
    pub fn copysign(&self, x: f32, s: f32) -> f32 {
        let sign = prim::select_u32(self.is_nan(s), 0u32, prim::bits(s) & SIGN);
        prim::from_bits((prim::bits(x) & MAGNITUDE) | sign)
    }

    /// `a < b`; false with a NaN, -0 equals +0.
    #[inline(always)]
    pub fn lt(&self, a: f32, b: f32) -> bool {
        if comptime!(self.profile.subnormal == Path::Native) {
            prim::lt(self.opaque(a), self.opaque_other(b))
        } else {
            soft::lt(prim::bits(a), prim::bits(b))
        }
    }

    /// `a <= b`; false with a NaN, -0 equals +0.
    #[inline(always)]
    pub fn le(&self, a: f32, b: f32) -> bool {
        if comptime!(self.profile.subnormal == Path::Native) {
            prim::le(self.opaque(a), self.opaque_other(b))
        } else {
            soft::le(prim::bits(a), prim::bits(b))
        }
    }

    /// `a > b`; false with a NaN, -0 equals +0.
    #[inline(always)]
    pub fn gt(&self, a: f32, b: f32) -> bool {
        self.lt(b, a)
    }

    /// `a >= b`; false with a NaN, -0 equals +0.
    #[inline(always)]
    pub fn ge(&self, a: f32, b: f32) -> bool {
        self.le(b, a)
    }

    /// `a == b`; false with a NaN, -0 equals +0.
    #[inline(always)]
    pub fn eq(&self, a: f32, b: f32) -> bool {
        if comptime!(self.profile.subnormal == Path::Native) {
            prim::eq(self.opaque(a), self.opaque_other(b))
        } else {
            soft::eq(prim::bits(a), prim::bits(b))
        }
    }

    /// Not [`eq`](Self::eq): true with a NaN.
    #[inline(always)]
    pub fn ne(&self, a: f32, b: f32) -> bool {
        !self.eq(a, b)
    }

    /// Whether `x` is a NaN.
    #[inline(always)]
    pub fn is_nan(&self, x: f32) -> bool {
        (prim::bits(x) & MAGNITUDE) > INFINITY
    }

    /// Whether `x` is neither infinite nor a NaN.
    #[inline(always)]
    pub fn is_finite(&self, x: f32) -> bool {
        (prim::bits(x) & MAGNITUDE) < INFINITY
    }

    /// `a` if `c`, else `b`. Both are evaluated: no branch.
    #[inline(always)]
    pub fn select(&self, c: bool, a: f32, b: f32) -> f32 {
        prim::select(c, a, b)
    }

    /// `x`, any NaN as 0x7fc00000 (`N11`).
    #[inline(always)]
    pub fn canonical(&self, x: f32) -> f32 {
        let nan = prim::from_bits(NAN);
        prim::select(self.is_nan(x), nan, x)
    }

    /// The smaller one; NaN if either is (IEEE-754-2019 `minimum`), the canonical one. -0 is
    /// below +0.
    #[inline(always)]
    pub fn min(&self, a: f32, b: f32) -> f32 {
        // Equal numbers have equal bits, but for zeros: there the or of the bits is the smaller.
        let same = prim::from_bits(prim::bits(a) | prim::bits(b));
        let nan = prim::from_bits(NAN);
        let r = prim::select(self.eq(a, b), same, nan);
        let r = prim::select(self.lt(b, a), b, r);
        prim::select(self.lt(a, b), a, r)
    }

    /// The larger one; NaN if either is (IEEE-754-2019 `maximum`), the canonical one. -0 is
    /// below +0.
    #[inline(always)]
    pub fn max(&self, a: f32, b: f32) -> f32 {
        let same = prim::from_bits(prim::bits(a) & prim::bits(b));
        let nan = prim::from_bits(NAN);
        let r = prim::select(self.eq(a, b), same, nan);
        let r = prim::select(self.lt(a, b), b, r);
        prim::select(self.lt(b, a), a, r)
    }

    /// A word that orders as numbers do: -inf lowest, -0 just below +0, every NaN `u32::MAX`.
    /// Undone by [`from_total_key`](Self::from_total_key).
    #[inline(always)]
    pub fn total_key(&self, x: f32) -> u32 {
        let b = prim::bits(x);
        let mask = prim::wrapping_sub(0u32, b >> 31u32) | SIGN;
        prim::select_u32(self.is_nan(x), u32::MAX, b ^ mask)
    }

    /// As [`total_key`](Self::total_key), but both zeros have the key of +0: the key of sorts
    /// and arg-reductions, where they tie and the index decides (`N10`).
    #[inline(always)]
    pub fn order_key(&self, x: f32) -> u32 {
        let key = self.total_key(x);
        // The key of -0.
        prim::select_u32(key == MAGNITUDE, SIGN, key)
    }

    /// The number with the given [`total_key`](Self::total_key); keys of no number give NaN.
    #[inline(always)]
    pub fn from_total_key(&self, key: u32) -> f32 {
        let mask = prim::wrapping_sub(0u32, 1u32 - (key >> 31u32)) | SIGN;
        self.canonical(prim::from_bits(key ^ mask))
    }

    /// The number nearest to `x`.
    #[inline(always)]
    pub fn from_u32(&self, x: u32) -> f32 {
        if comptime!(self.profile.subnormal == Path::Native && self.profile.convert == Path::Native)
        {
            prim::u32_to_f32(x)
        } else {
            prim::from_bits(soft::from_u32(x))
        }
    }

    /// The number nearest to `x`.
    #[inline(always)]
    pub fn from_i32(&self, x: i32) -> f32 {
        if comptime!(self.profile.subnormal == Path::Native && self.profile.convert == Path::Native)
        {
            prim::i32_to_f32(x)
        } else {
            prim::from_bits(soft::from_i32(x))
        }
    }

    /// `x` without its fraction, saturating at 0 and `u32::MAX`; 0 for a NaN.
    #[inline(always)]
    pub fn to_u32(&self, x: f32) -> u32 {
        soft::to_u32(prim::bits(x))
    }

    /// `x` without its fraction, saturating at `i32::MIN` and `i32::MAX`; 0 for a NaN.
    #[inline(always)]
    pub fn to_i32(&self, x: f32) -> i32 {
        soft::to_i32(prim::bits(x))
    }

    /// The largest integer not above `x`. Zeros, infinities and NaN stay.
    #[inline(always)]
    pub fn floor(&self, x: f32) -> f32 {
        prim::from_bits(toward(prim::bits(x), SIGN))
    }

    /// The smallest integer not below `x`; -0 from -1 (exclusive) to -0.
    #[inline(always)]
    pub fn ceil(&self, x: f32) -> f32 {
        prim::from_bits(toward(prim::bits(x), 0u32))
    }

    /// The integer part; the sign stays, also on a zero.
    #[inline(always)]
    pub fn trunc(&self, x: f32) -> f32 {
        let b = prim::bits(x);
        let r = b & !fraction_mask(b);
        prim::from_bits(prim::select_u32((b & MAGNITUDE) < ONE, b & SIGN, r))
    }

    /// The nearest integer, ties to the even one; the sign stays, also on a zero.
    #[inline(always)]
    pub fn round_ties_even(&self, x: f32) -> f32 {
        let b = prim::bits(x);
        let m = b & MAGNITUDE;
        let mask = fraction_mask(b);
        // The last bit of the integer part; that of 1 is the exponent's, which is odd too.
        let odd = prim::select_u32((m & (mask + 1u32)) != 0u32, 1u32, 0u32);
        let r = (m + (mask >> 1u32) + (odd & mask)) & !mask;
        let small = prim::select_u32(m > HALF, ONE, 0u32);
        let r = prim::select_u32(m < ONE, small, r);
        prim::from_bits(r | (b & SIGN))
    }

    /// `x * 2^n`, rounded once also where the result is subnormal; any `n`. Zeros, infinities
    /// and NaN stay.
    #[inline(always)]
    pub fn scale(&self, x: f32, n: i32) -> f32 {
        if comptime!(self.profile.subnormal == Path::Native) {
            // Three exact powers. The first two steps down stop at 2^-102, so that a result that
            // is already inexact there is below half the least subnormal in the end.
            let n = prim::select_i32(n < -400i32, -400i32, n);
            let n1 = step(n);
            let n2 = step(n - n1);
            let n3 = step(n - n1 - n2);
            let r = self.mul(x, prim::from_bits(power_bits(n1)));
            let r = self.mul(r, prim::from_bits(power_bits(n2)));
            self.mul(r, prim::from_bits(power_bits(n3)))
        } else {
            prim::from_bits(soft::scale(prim::bits(x), n))
        }
    }

    /// `2^n` for `n` in `-126..=127`; other `n` give some number, the same everywhere.
    #[inline(always)]
    pub fn power_of_two(&self, n: i32) -> f32 {
        prim::from_bits(power_bits(n))
    }

    /// The `e` of `2^e <= |x| < 2^(e+1)`, subnormals included. `i32::MIN` for zeros, `i32::MAX`
    /// for infinities and NaN.
    #[inline(always)]
    pub fn exponent(&self, x: f32) -> i32 {
        let m = prim::bits(x) & MAGNITUDE;
        let field = prim::as_i32(m >> 23u32);
        let subnormal = 9i32 - prim::as_i32(prim::leading_zeros(m & FRACTION));
        let e = prim::select_i32(field == 0i32, subnormal, field) - 127i32;
        let e = prim::select_i32(m == 0u32, i32::MIN, e);
        prim::select_i32(m >= INFINITY, i32::MAX, e)
    }
}

/// One bits where `x` (magnitude 1 or more) has its fraction.
#[cube]
#[inline(always)]
fn fraction_mask(x: u32) -> u32 {
    let e = (x & MAGNITUDE) >> 23u32;
    let n = prim::select_u32(e < 127u32, 0u32, prim::wrapping_sub(e, 127u32));
    FRACTION >> prim::select_u32(n > 23u32, 23u32, n)
}

/// `x` rounded to an integer, away from zero where its sign is `sign`, else towards it.
#[cube]
#[inline(always)]
fn toward(x: u32, sign: u32) -> u32 {
    let m = x & MAGNITUDE;
    let mask = fraction_mask(x);
    let away = (x & SIGN) == sign;
    let r = (m + prim::select_u32(away, mask, 0u32)) & !mask;
    let small = prim::select_u32(away && m != 0u32, ONE, 0u32);
    (x & SIGN) | prim::select_u32(m < ONE, small, r)
}

/// The bits of `2^n` for `n` in `-126..=127`.
#[cube]
#[inline(always)]
fn power_bits(n: i32) -> u32 {
    prim::wrapping_add(prim::as_u32(n), 127u32) << 23u32
}

/// The part of a scaling by `2^n` done in one exact step.
#[cube]
#[inline(always)]
fn step(n: i32) -> i32 {
    let n = prim::select_i32(n > 127i32, 127i32, n);
    prim::select_i32(n < -126i32, -102i32, n)
}

#[cfg(test)]
mod tests;
