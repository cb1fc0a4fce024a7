//! What is computed for one element and for one row: one source for kernels and CPU loops (`N3`).
//!
//! Every operation has the same steps. A row's first number (its maximum or mean) is found, if it
//! needs one. [`lift`] makes two numbers of each element, [`step`] adds them to one or two sums,
//! whose order is that of `N5`; [`finish`] makes the row's last numbers of the sums, and [`apply`]
//! the results.

use crate::ieee::Ieee;
use crate::math;
use crate::ops::reduce::fold::{Fold, State, Variance};
use crate::prim;
use cubecl::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Softmax,
    LogSoftmax,
    LayerNorm,
    RmsNorm,
    /// The mean and the variance, without results.
    Moments,
    SoftmaxBackward,
    LogSoftmaxBackward,
    LayerNormBackward,
    RmsNormBackward,
}

/// A row's first number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum First {
    None,
    Maximum,
    Mean,
    /// An operand.
    Given,
}

impl Op {
    pub(crate) const ALL: [Self; 9] = [
        Self::Softmax,
        Self::LogSoftmax,
        Self::LayerNorm,
        Self::RmsNorm,
        Self::Moments,
        Self::SoftmaxBackward,
        Self::LogSoftmaxBackward,
        Self::LayerNormBackward,
        Self::RmsNormBackward,
    ];

    pub(crate) const fn first(self) -> First {
        match self {
            Self::Softmax | Self::LogSoftmax => First::Maximum,
            Self::LayerNorm | Self::Moments => First::Mean,
            Self::LayerNormBackward => First::Given,
            _ => First::None,
        }
    }

    /// Whether a second matrix is read, the gradient of the results.
    pub(crate) const fn backward(self) -> bool {
        matches!(
            self,
            Self::SoftmaxBackward
                | Self::LogSoftmaxBackward
                | Self::LayerNormBackward
                | Self::RmsNormBackward
        )
    }

    /// Whether each row's scale is an operand.
    pub(crate) const fn scaled(self) -> bool {
        matches!(self, Self::LayerNormBackward | Self::RmsNormBackward)
    }

    /// Whether elements have results.
    pub(crate) const fn maps(self) -> bool {
        !matches!(self, Self::Moments)
    }

    /// Whether weights may be given.
    pub(crate) const fn weighted(self) -> bool {
        matches!(self, Self::LayerNorm | Self::RmsNorm) || self.scaled()
    }

    /// Whether each row's last number is a result.
    pub(crate) const fn stored(self) -> bool {
        matches!(self, Self::LayerNorm | Self::RmsNorm | Self::Moments)
    }

    /// Whether there are two sums.
    pub(crate) const fn wide(self) -> bool {
        matches!(
            self,
            Self::LayerNorm | Self::LayerNormBackward | Self::Moments
        )
    }

    /// Whether the sum is that of exponentials.
    pub(crate) const fn exponential(self) -> bool {
        matches!(self, Self::Softmax | Self::LogSoftmax)
    }

    /// Whether `h` costs more than a load.
    pub(crate) const fn kept(self) -> bool {
        matches!(self, Self::Softmax)
    }
}

#[derive(CubeType, Clone, Copy)]
pub(crate) struct Two {
    pub(crate) a: f32,
    pub(crate) b: f32,
}

/// The bits of an element that changes neither maximum nor sums; not so after [`lift`] where a row
/// has a mean or scale.
#[cube]
pub(crate) fn neutral(#[comptime] op: Op) -> f32 {
    if comptime!(matches!(op.first(), First::Maximum)) {
        prim::from_bits(0xff80_0000u32)
    } else {
        prim::from_bits(0u32)
    }
}

/// `h` and `g` of an element `x`, the gradient `y` and the weight `w`.
#[cube]
#[inline(always)]
pub(crate) fn lift(
    ieee: &Ieee,
    x: f32,
    y: f32,
    w: f32,
    first: f32,
    scale: f32,
    #[comptime] op: Op,
    #[comptime] weighted: bool,
) -> Two {
    let g = if comptime!(weighted && op.scaled()) {
        ieee.mul(y, w)
    } else {
        y
    };
    let h = match comptime!(op) {
        Op::Softmax => math::exp_nonpositive(ieee, ieee.sub(x, first)),
        Op::LogSoftmax | Op::LayerNorm | Op::Moments => ieee.sub(x, first),
        Op::LayerNormBackward => ieee.mul(ieee.sub(x, first), scale),
        Op::RmsNormBackward => ieee.mul(x, scale),
        // Before the sum, of which it is no part: while other elements are on their way.
        Op::LogSoftmaxBackward => math::exp_some_nan(ieee, x),
        Op::RmsNorm | Op::SoftmaxBackward => x,
    };
    Two { a: h, b: g }
}

/// The sums after an element.
#[cube]
#[inline(always)]
pub(crate) fn step(ieee: &Ieee, s: Two, h: f32, g: f32, #[comptime] op: Op) -> Two {
    match comptime!(op) {
        Op::Softmax => Two {
            a: ieee.add(s.a, h),
            b: s.b,
        },
        Op::LogSoftmax => Two {
            a: ieee.add(s.a, math::exp_nonpositive(ieee, h)),
            b: s.b,
        },
        Op::LayerNorm | Op::Moments => Two {
            a: ieee.fma(h, h, s.a),
            b: ieee.add(s.b, h),
        },
        Op::RmsNorm => Two {
            a: ieee.fma(h, h, s.a),
            b: s.b,
        },
        Op::SoftmaxBackward | Op::RmsNormBackward => Two {
            a: ieee.fma(g, h, s.a),
            b: s.b,
        },
        Op::LogSoftmaxBackward => Two {
            a: ieee.add(s.a, g),
            b: s.b,
        },
        Op::LayerNormBackward => Two {
            a: ieee.add(s.a, g),
            b: ieee.fma(g, h, s.b),
        },
    }
}

/// The row's last numbers.
#[cube]
#[inline(always)]
pub(crate) fn finish(ieee: &Ieee, s: Two, n: u32, eps: f32, ddof: u32, #[comptime] op: Op) -> Two {
    let zero = prim::from_bits(0u32);
    let count = ieee.from_u32(n);
    match comptime!(op) {
        Op::Softmax => Two {
            a: ieee.canonical(ieee.div(1.0f32, s.a)),
            b: zero,
        },
        Op::LogSoftmax => Two {
            a: math::ln(ieee, s.a),
            b: zero,
        },
        Op::LayerNorm => Two {
            a: inverse_root(ieee, variance(ieee, s, n, 0u32), eps),
            b: zero,
        },
        Op::Moments => Two {
            a: variance(ieee, s, n, ddof),
            b: zero,
        },
        Op::RmsNorm => Two {
            a: inverse_root(ieee, ieee.div(s.a, count), eps),
            b: zero,
        },
        // A sum of products may be -0 where lanes without elements are left out, and +0 where not.
        Op::SoftmaxBackward | Op::LogSoftmaxBackward => Two {
            a: ieee.add(s.a, zero),
            b: zero,
        },
        Op::LayerNormBackward => Two {
            a: ieee.div(ieee.add(s.a, zero), count),
            b: ieee.div(ieee.add(s.b, zero), count),
        },
        Op::RmsNormBackward => Two {
            a: ieee.div(ieee.add(s.a, zero), count),
            b: zero,
        },
    }
}

#[cube]
#[inline(always)]
fn variance(ieee: &Ieee, s: Two, n: u32, ddof: u32) -> f32 {
    let state = State {
        a: prim::bits(s.a),
        b: prim::bits(s.b),
    };
    prim::from_bits(Variance::finish(ieee, state, n, ddof))
}

#[cube]
#[inline(always)]
fn inverse_root(ieee: &Ieee, x: f32, eps: f32) -> f32 {
    ieee.canonical(ieee.div(1.0f32, ieee.sqrt(ieee.add(x, eps))))
}

/// The mean of a row from its sum.
#[cube]
#[inline(always)]
pub(crate) fn mean(ieee: &Ieee, sum: f32, n: u32) -> f32 {
    ieee.canonical(ieee.div(sum, ieee.from_u32(n)))
}

/// The result of an element.
#[cube]
#[inline(always)]
pub(crate) fn apply(
    ieee: &Ieee,
    h: f32,
    g: f32,
    last: Two,
    scale: f32,
    w: f32,
    bias: f32,
    #[comptime] op: Op,
    #[comptime] weighted: bool,
    #[comptime] biased: bool,
) -> f32 {
    match comptime!(op) {
        // A row without NaN and +inf that is not all -inf has a finite sum, and no NaN.
        Op::Softmax => {
            let y = ieee.mul(h, last.a);
            prim::select(ieee.is_nan(last.a), last.a, y)
        }
        Op::LogSoftmax => {
            let y = ieee.sub(h, last.a);
            prim::select(ieee.is_nan(last.a), last.a, y)
        }
        Op::Moments => h,
        Op::LayerNorm | Op::RmsNorm => {
            let y = ieee.mul(h, last.a);
            let y = if comptime!(weighted && biased) {
                ieee.fma(y, w, bias)
            } else if comptime!(weighted) {
                ieee.mul(y, w)
            } else if comptime!(biased) {
                ieee.add(y, bias)
            } else {
                y
            };
            ieee.canonical(y)
        }
        Op::SoftmaxBackward => ieee.canonical(ieee.mul(h, ieee.sub(g, last.a))),
        Op::LogSoftmaxBackward => ieee.canonical(ieee.fma(ieee.neg(h), last.a, g)),
        Op::LayerNormBackward => {
            let rest = ieee.sub(g, last.a);
            ieee.canonical(ieee.mul(scale, ieee.fma(ieee.neg(h), last.b, rest)))
        }
        Op::RmsNormBackward => ieee.canonical(ieee.mul(scale, ieee.fma(ieee.neg(h), last.a, g))),
    }
}
