//! Primitives with two bodies: a native one for CPU loops and an expansion for kernels.
//!
//! CubeCL keeps the body of a `#[cube]` function as ordinary Rust, but its own intrinsics panic
//! when called natively. Each primitive here is a function beside a module of the same name
//! whose `expand` hands on to CubeCL, so that one source serves both (`N3`).
//! Only [`ieee`](crate::ieee) calls the float ones: a bare product never leaves this module.

use cubecl::prelude::*;

macro_rules! primitive {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),+) -> $ret:ty { $native:expr } expand($scope:ident) $body:block) => {
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name($($arg: $ty),+) -> $ret {
            $native
        }

        pub(crate) mod $name {
            use super::*;

            pub(crate) fn expand($scope: &mut Scope, $($arg: NativeExpand<$ty>),+) -> NativeExpand<$ret> $body
        }
    };
}

primitive! {
    /// The bits of `x`.
    fn bits(x: f32) -> u32 { x.to_bits() }
    expand(scope) { reinterpret::<f32, u32>(scope, x) }
}

primitive! {
    /// The number whose bits are `x`.
    fn from_bits(x: u32) -> f32 { f32::from_bits(x) }
    expand(scope) { reinterpret::<u32, f32>(scope, x) }
}

primitive! {
    /// `x` as a signed word, same bits.
    fn as_i32(x: u32) -> i32 { x as i32 }
    expand(scope) { reinterpret::<u32, i32>(scope, x) }
}

primitive! {
    /// `x` as an unsigned word, same bits.
    fn as_u32(x: i32) -> u32 { x as u32 }
    expand(scope) { reinterpret::<i32, u32>(scope, x) }
}

primitive! {
    /// `a * b + c`, rounded once.
    ///
    /// Natively this is one instruction only inside a function compiled for a target with FMA;
    /// the plain CPU level uses [`fma_wide`].
    fn fma(a: f32, b: f32, c: f32) -> f32 { a.mul_add(b, c) }
    expand(scope) { cubecl::prelude::fma::expand::<f32>(scope, a, b, c) }
}

primitive! {
    /// `a * b` rounded on its own. In a kernel: `fma(a, b, nz)`, `nz` a run-time -0 (`N2`).
    fn mul(a: f32, b: f32, nz: f32) -> f32 {{
        let _ = nz;
        a * b
    }}
    expand(scope) { cubecl::prelude::fma::expand::<f32>(scope, a, b, nz) }
}

primitive! {
    /// `a * b + c` rounded once, through binary64, for hosts without FMA.
    fn fma_wide(a: f32, b: f32, c: f32) -> f32 { wide_fma(a, b, c) }
    expand(scope) { cubecl::prelude::fma::expand::<f32>(scope, a, b, c) }
}

primitive! {
    fn add(a: f32, b: f32) -> f32 { a + b }
    expand(scope) { cubecl::prelude::add::expand::<f32>(scope, a, b) }
}

primitive! {
    fn sub(a: f32, b: f32) -> f32 { a - b }
    expand(scope) { cubecl::prelude::sub::expand::<f32>(scope, a, b) }
}

primitive! {
    fn div(a: f32, b: f32) -> f32 { a / b }
    expand(scope) { cubecl::prelude::div::expand::<f32>(scope, a, b) }
}

primitive! {
    fn sqrt(x: f32) -> f32 { x.sqrt() }
    expand(scope) { x.__expand_sqrt_method(scope) }
}

/// `ordered`, a comparison of `a` and `b` that is false with a NaN.
///
/// LLVM (to 22, for one) turns `a < c || b < c` into `fminnm(a, b) < c` for Arm, and this minimum
/// of a signaling NaN and a number is NaN. Asked whether they are numbers too, it doesn't.
#[inline(always)]
fn numbers(ordered: bool, a: f32, b: f32) -> bool {
    let number = |x: f32| x.to_bits() & 0x7fff_ffff <= 0x7f80_0000;
    ordered & (cfg!(not(target_arch = "aarch64")) || number(a) & number(b))
}

primitive! {
    fn lt(a: f32, b: f32) -> bool { numbers(a < b, a, b) }
    expand(scope) { cubecl::prelude::lt::expand::<f32>(scope, a, b) }
}

primitive! {
    fn eq(a: f32, b: f32) -> bool { a == b }
    expand(scope) { cubecl::prelude::eq::expand::<f32>(scope, a, b) }
}

primitive! {
    fn le(a: f32, b: f32) -> bool { numbers(a <= b, a, b) }
    expand(scope) { cubecl::prelude::le::expand::<f32>(scope, a, b) }
}

primitive! {
    /// The nearest binary32 to `x`, ties to even.
    fn u32_to_f32(x: u32) -> f32 { x as f32 }
    expand(scope) { f32::__expand_cast_from::<u32>(scope, x) }
}

primitive! {
    /// The nearest binary32 to `x`, ties to even.
    fn i32_to_f32(x: i32) -> f32 { x as f32 }
    expand(scope) { f32::__expand_cast_from::<i32>(scope, x) }
}

primitive! {
    /// The high word of the 64-bit product.
    fn mul_hi(a: u32, b: u32) -> u32 { ((a as u64 * b as u64) >> 32) as u32 }
    expand(scope) { a.__expand_mul_hi_method(scope, b) }
}

primitive! {
    /// `a * b` modulo 2^32.
    fn wrapping_mul(a: u32, b: u32) -> u32 { a.wrapping_mul(b) }
    expand(scope) { cubecl::prelude::mul::expand::<u32>(scope, a, b) }
}

primitive! {
    /// `a + b` modulo 2^32.
    fn wrapping_add(a: u32, b: u32) -> u32 { a.wrapping_add(b) }
    expand(scope) { cubecl::prelude::add::expand::<u32>(scope, a, b) }
}

primitive! {
    /// `a - b` modulo 2^32.
    fn wrapping_sub(a: u32, b: u32) -> u32 { a.wrapping_sub(b) }
    expand(scope) { cubecl::prelude::sub::expand::<u32>(scope, a, b) }
}

primitive! {
    /// Zero bits above the highest one bit; 32 for 0.
    fn leading_zeros(x: u32) -> u32 { x.leading_zeros() }
    expand(scope) { x.__expand_leading_zeros_method(scope) }
}

macro_rules! select {
    ($($name:ident: $ty:ty),+) => {$(
        primitive! {
            /// `a` if `c`, else `b`; both are evaluated.
            fn $name(c: bool, a: $ty, b: $ty) -> $ty { if c { a } else { b } }
            expand(scope) { cubecl::prelude::select::expand::<$ty>(scope, c, a, b) }
        }
    )+};
}

select! { select: f32, select_u32: u32, select_i32: i32 }

/// The bits of `x` as another type. C++ targets reinterpret only what has an address, so a
/// constant goes through a variable.
fn reinterpret<From: CubePrimitive, To: CubePrimitive>(
    scope: &mut Scope,
    x: NativeExpand<From>,
) -> NativeExpand<To> {
    let x = if x.expand.as_const().is_some() {
        let variable = NativeExpand::<From>::from(scope.create_local_mut(x.expand.ty));
        cubecl::frontend::assign::expand_no_check::<From>(scope, x, variable.clone());
        variable
    } else {
        x
    };
    <To as Reinterpret>::__expand_reinterpret::<From>(scope, x)
}

/// The product of two binary32 is exact in binary64 (48 of 53 bits). Rounding the sum to odd
/// keeps a sticky bit below the 24 that the last rounding looks at, so no double rounding shows
/// (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using
/// rounding to odd", 2008). The result's subnormals are covered: 53 bits exceed 24 by far more
/// than the two that the proof needs.
#[inline(always)]
fn wide_fma(a: f32, b: f32, c: f32) -> f32 {
    let p = a as f64 * b as f64;
    let c = c as f64;
    let s = p + c;
    // The exact error of `p + c` (Knuth's two-sum).
    let z = s - p;
    let e = (p - (s - z)) + (c - z);
    // To odd: towards zero where inexact, then the last bit set. Infinities and NaN have a NaN
    // error, which isn't above 0.
    let bits = s.to_bits();
    let inexact = u64::from(e.abs() > 0.0);
    let beyond = ((e.to_bits() ^ bits) >> 63) & inexact;
    f64::from_bits(bits.wrapping_sub(beyond) | inexact) as f32
}
