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
}

impl FloatProfile {
    /// Everything native: CPUs with FMA, CUDA, HIP.
    pub const NATIVE: Self = Self {
        fma: Path::Native,
        div: Path::Native,
        sqrt: Path::Native,
        subnormal: Path::Native,
        convert: Path::Native,
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
    };
}

/// The arithmetic handed to every kernel and CPU loop.
#[derive(CubeType, Clone, Copy, Debug)]
pub struct Ieee {
    /// -0.0, a value that no compiler of a kernel can know.
    nz: f32,
    #[cube(comptime)]
    profile: FloatProfile,
}

impl Ieee {
    /// The arithmetic of a host with FMA. Call it inside a function compiled for such a target.
    pub const FMA: Self = Self {
        nz: -0.0,
        profile: FloatProfile::NATIVE,
    };
    /// The arithmetic of any host.
    pub const PLAIN: Self = Self {
        nz: -0.0,
        profile: FloatProfile::NO_FMA,
    };
    /// Integer code throughout: what a device without usable float arithmetic runs.
    pub const EMULATED: Self = Self {
        nz: -0.0,
        profile: FloatProfile::EMULATED,
    };

    /// The profile this arithmetic computes with.
    pub const fn profile(&self) -> FloatProfile {
        self.profile
    }
}

impl IeeeExpand {
    /// The arithmetic inside a kernel: `nz` is the kernel's run-time -0.
    pub(crate) fn new(nz: NativeExpand<f32>, profile: FloatProfile) -> Self {
        Self { nz, profile }
    }
}

#[cube]
impl Ieee {
    /// `a + b`.
    #[inline(always)]
    pub fn add(&self, a: f32, b: f32) -> f32 {
        if comptime!(self.profile.subnormal == Path::Native) {
            prim::add(a, b)
        } else {
            prim::from_bits(soft::add(prim::bits(a), prim::bits(b)))
        }
    }
}
