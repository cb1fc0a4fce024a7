//! The functions: one line each in the tables below makes an enum variant, a type that CPU loops
//! are compiled for, and a case of the kernel's expansion.
//!
//! Every operand and result is a word; what it means is a function's own affair.

use crate::ieee::{Ieee, IeeeExpand};
use crate::math;
use crate::prim;
use cubecl::prelude::*;

/// A function of up to three words, as a type: CPU loops are compiled once for each.
pub(super) trait Apply {
    /// Operands it takes.
    const ARITY: usize;

    /// Whether it is a function of a reduced angle, with less work for small ones.
    const ANGLE: bool = false;

    fn apply(ieee: &Ieee, a: u32, b: u32, c: u32) -> u32;

    /// [`apply`](Self::apply) of what is `reduced`.
    #[inline(always)]
    fn reduced(ieee: &Ieee, a: u32, _reduced: math::Reduced) -> u32 {
        Self::apply(ieee, a, 0, 0)
    }
}

/// What runs with a function's type.
pub(super) trait Visitor {
    type Output;
    fn visit<A: Apply>(self) -> Self::Output;
}

/// How a word is read as an operand's type and written from a result's.
macro_rules! decode {
    (f32, $x:expr) => {
        prim::from_bits($x)
    };
    (i32, $x:expr) => {
        prim::as_i32($x)
    };
    (u32, $x:expr) => {
        $x
    };
}
macro_rules! encode {
    // Every function in the tables gives the canonical NaN (`N11`).
    (f32, $x:expr) => {
        prim::bits($x)
    };
    (u32, $x:expr) => {
        $x
    };
    (bool, $x:expr) => {
        prim::select_u32($x, 1, 0)
    };
}
macro_rules! expand_decode {
    (f32, $scope:expr, $x:expr) => {
        prim::from_bits::expand($scope, $x)
    };
    (i32, $scope:expr, $x:expr) => {
        prim::as_i32::expand($scope, $x)
    };
    (u32, $scope:expr, $x:expr) => {
        $x
    };
}
macro_rules! expand_encode {
    (f32, $scope:expr, $x:expr) => {
        prim::bits::expand($scope, $x)
    };
    (u32, $scope:expr, $x:expr) => {
        $x
    };
    (bool, $scope:expr, $x:expr) => {
        flag::expand($scope, $x)
    };
}

/// The call of a function on the words of its operands.
macro_rules! call {
    ($f:path, $ieee:expr, [$a:expr, $b:expr, $c:expr], ($x:ident)) => {
        $f($ieee, decode!($x, $a))
    };
    ($f:path, $ieee:expr, [$a:expr, $b:expr, $c:expr], ($x:ident, $y:ident)) => {
        $f($ieee, decode!($x, $a), decode!($y, $b))
    };
    ($f:path, $ieee:expr, [$a:expr, $b:expr, $c:expr], ($x:ident, $y:ident, $z:ident)) => {
        $f($ieee, decode!($x, $a), decode!($y, $b), decode!($z, $c))
    };
}
macro_rules! expand_call {
    ($f:path, $scope:expr, $ieee:expr, [$a:expr, $b:expr, $c:expr], ($x:ident)) => {{
        let x = expand_decode!($x, $scope, $a);
        $f($scope, $ieee, x)
    }};
    ($f:path, $scope:expr, $ieee:expr, [$a:expr, $b:expr, $c:expr], ($x:ident, $y:ident)) => {{
        let x = expand_decode!($x, $scope, $a);
        let y = expand_decode!($y, $scope, $b);
        $f($scope, $ieee, x, y)
    }};
    (
        $f:path, $scope:expr, $ieee:expr, [$a:expr, $b:expr, $c:expr],
        ($x:ident, $y:ident, $z:ident)
    ) => {{
        let x = expand_decode!($x, $scope, $a);
        let y = expand_decode!($y, $scope, $b);
        let z = expand_decode!($z, $scope, $c);
        $f($scope, $ieee, x, y, z)
    }};
}
macro_rules! arity {
    (($($ty:ident),+)) => {
        [$(stringify!($ty)),+].len()
    };
}

#[cube]
fn flag(x: bool) -> u32 {
    prim::select_u32(x, 1u32, 0u32)
}

macro_rules! table {
    ($(
        $(#[$enum_doc:meta])*
        $vis:vis $Enum:ident $module:ident $types:tt -> $ret:ident {
            $($(#[$doc:meta])* $Variant:ident = $($path:ident)::+
                $([$reduced:ident])?,)+
        }
    )+) => {
        $(
            $(#[$enum_doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            #[non_exhaustive]
            $vis enum $Enum {
                $($(#[$doc])* $Variant,)+
            }

            impl $Enum {
                /// Every function.
                $vis const ALL: &'static [Self] = &[$(Self::$Variant),+];
            }

            mod $module {
                use super::*;
                $(
                    pub(super) struct $Variant;
                    impl Apply for $Variant {
                        const ARITY: usize = arity!($types);
                        #[inline(always)]
                        #[allow(unused_variables)]
                        fn apply(ieee: &Ieee, a: u32, b: u32, c: u32) -> u32 {
                            let r = call!(super::super::$($path)::+, ieee, [a, b, c], $types);
                            encode!($ret, r)
                        }
                        $(
                            const ANGLE: bool = true;
                            #[inline(always)]
                            fn reduced(ieee: &Ieee, a: u32, reduced: math::Reduced) -> u32 {
                                prim::bits(math::$reduced(ieee, prim::from_bits(a), reduced))
                            }
                        )?
                    }
                )+
            }
        )+

        /// Every function of this module.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(super) enum Op {
            $($Enum($Enum),)+
        }

        impl Op {
            /// Every function.
            pub(super) fn all() -> impl Iterator<Item = Self> {
                std::iter::empty()$(.chain($Enum::ALL.iter().copied().map(Self::$Enum)))+
            }

            /// Operands it takes.
            pub(super) fn arity(self) -> usize {
                match self {
                    $(Self::$Enum(_) => arity!($types),)+
                }
            }

            /// Runs `visitor` with the function's type.
            pub(super) fn visit<V: Visitor>(self, visitor: V) -> V::Output {
                match self {
                    $($(Self::$Enum($Enum::$Variant) => visitor.visit::<$module::$Variant>(),)+)+
                }
            }
        }

        $(
            impl From<$Enum> for Op {
                fn from(op: $Enum) -> Self {
                    Self::$Enum(op)
                }
            }
        )+

        /// The result of `op` for three words, those beyond its arity not looked at.
        #[allow(dead_code)]
        pub(super) fn apply(ieee: &Ieee, a: u32, b: u32, c: u32, op: Op) -> u32 {
            struct One<'a>(&'a Ieee, u32, u32, u32);
            impl Visitor for One<'_> {
                type Output = u32;
                fn visit<A: Apply>(self) -> u32 {
                    A::apply(self.0, self.1, self.2, self.3)
                }
            }
            op.visit(One(ieee, a, b, c))
        }

        pub(super) mod apply {
            use super::*;

            #[allow(unused_variables)]
            pub(in super::super) fn expand(
                scope: &mut Scope,
                ieee: IeeeExpand,
                a: NativeExpand<u32>,
                b: NativeExpand<u32>,
                c: NativeExpand<u32>,
                op: Op,
            ) -> NativeExpand<u32> {
                match op {
                    $($(
                        Op::$Enum($Enum::$Variant) => {
                            let r = expand_call!(
                                super::super::$($path)::+::expand,
                                scope, ieee.clone(), [a, b, c], $types
                            );
                            expand_encode!($ret, scope, r)
                        }
                    )+)+
                }
            }
        }
    };
}

table! {
    /// A function of one number; elementary ones are those of [`math`](crate::math).
    ///
    /// A NaN gives the canonical NaN in all of them.
    pub Unary unary (f32) -> f32 {
        /// `-x`; the sign of a zero changes too.
        Neg = basic::neg,
        /// `|x|`.
        Abs = basic::abs,
        /// -1, 0 or 1; a zero stays with its sign.
        Sign = basic::sign,
        /// `x * x`.
        Square = basic::square,
        /// The square root; -0 for -0, NaN below zero.
        Sqrt = basic::sqrt,
        /// `1 / x`.
        Recip = basic::recip,
        /// The largest integer not above `x`.
        Floor = basic::floor,
        /// The smallest integer not below `x`.
        Ceil = basic::ceil,
        /// The integer part.
        Trunc = basic::trunc,
        /// The nearest integer, ties to the even one.
        Round = basic::round,
        /// `max(x, 0)`: +0 for both zeros.
        Relu = basic::relu,
        /// `e^x`.
        Exp = math::exp,
        /// `2^x`.
        Exp2 = math::exp2,
        /// `10^x`.
        Exp10 = math::exp10,
        /// `e^x - 1`.
        Expm1 = math::expm1,
        /// The natural logarithm.
        Ln = math::ln,
        /// The natural logarithm of `1 + x`.
        Log1p = math::log1p,
        /// The logarithm to base 2.
        Log2 = math::log2,
        /// The logarithm to base 10.
        Log10 = math::log10,
        /// The sine.
        Sin = math::sin [sin_reduced],
        /// The cosine.
        Cos = math::cos [cos_reduced],
        /// The tangent.
        Tan = math::tan [tan_reduced],
        /// The inverse sine.
        Asin = math::asin,
        /// The inverse cosine.
        Acos = math::acos,
        /// The inverse tangent.
        Atan = math::atan,
        /// The hyperbolic sine.
        Sinh = math::sinh,
        /// The hyperbolic cosine.
        Cosh = math::cosh,
        /// The hyperbolic tangent.
        Tanh = math::tanh,
        /// `1 / (1 + e^-x)`.
        Sigmoid = math::sigmoid,
        /// `ln(sigmoid(x))`.
        LogSigmoid = math::log_sigmoid,
        /// `ln(1 + e^x)`.
        Softplus = math::softplus,
        /// `x * sigmoid(x)`.
        Silu = math::silu,
        /// The error function.
        Erf = math::erf,
        /// `1 - erf(x)`.
        Erfc = math::erfc,
        /// `x * (1 + erf(x / sqrt 2)) / 2`.
        Gelu = math::gelu,
        /// The approximation of gelu by tanh.
        GeluTanh = math::gelu_tanh,
        /// The logarithm of the gamma function's magnitude.
        Lgamma = math::lgamma,
        /// The derivative of the gamma function's logarithm.
        Digamma = math::digamma,
        /// The cube root.
        Cbrt = math::cbrt,
        /// `1 / sqrt(x)`.
        Rsqrt = math::rsqrt,
    }

    /// A function of two numbers; elementary ones are those of [`math`](crate::math).
    pub Binary binary (f32, f32) -> f32 {
        /// `a + b`.
        Add = basic::add,
        /// `a - b`.
        Sub = basic::sub,
        /// `a * b`.
        Mul = basic::mul,
        /// `a / b`.
        Div = basic::div,
        /// The smaller one: NaN if either is, -0 below +0.
        Min = basic::min,
        /// The larger one: NaN if either is, -0 below +0.
        Max = basic::max,
        /// The magnitude of `a` with the sign of `b`.
        Copysign = basic::copysign,
        /// `(a - b)^2`, the difference rounded, then its square.
        SquaredDifference = basic::squared_difference,
        /// `sqrt(a^2 + b^2)`.
        Hypot = math::hypot,
        /// `a^b`.
        Pow = math::pow,
        /// The angle of the point `(b, a)`.
        Atan2 = math::atan2,
    }

    /// A number to an integer power.
    pub(super) Power power (f32, i32) -> f32 {
        /// `a^b`.
        Powi = math::powi,
    }

    /// A question about two numbers; -0 equals +0, and a NaN is unequal to all.
    pub Comparison comparison (f32, f32) -> bool {
        /// `a < b`.
        Lt = basic::lt,
        /// `a <= b`.
        Le = basic::le,
        /// `a > b`.
        Gt = basic::gt,
        /// `a >= b`.
        Ge = basic::ge,
        /// `a == b`.
        Eq = basic::eq,
        /// `a != b`.
        Ne = basic::ne,
    }

    /// A function of three numbers.
    pub Ternary ternary (f32, f32, f32) -> f32 {
        /// `a * b + c`, rounded once.
        Fma = basic::fma,
        /// `a` held within `b..=c`: `min(max(a, b), c)`. NaN if any is.
        Clamp = basic::clamp,
    }

    /// A choice between two words by a third.
    pub(super) Choice choice (u32, u32, u32) -> u32 {
        /// `b` where `a` is not 0, else `c`.
        Select = basic::choose,
    }

    /// A conversion of numbers.
    pub(super) Cast cast (u32) -> u32 {
        /// The nearest number.
        U32ToF32 = basic::u32_to_f32,
        /// The nearest number.
        I32ToF32 = basic::i32_to_f32,
        /// Without the fraction, saturating; 0 for NaN.
        F32ToU32 = basic::f32_to_u32,
        /// Without the fraction, saturating; 0 for NaN.
        F32ToI32 = basic::f32_to_i32,
        /// The exponent of the scale that fits 8-bit codes to a magnitude.
        Int8Exponent = basic::int8_exponent,
    }

    /// A word as it is.
    pub(super) Word word (u32) -> u32 {
        /// `x`.
        Copy = basic::copy,
    }
}
