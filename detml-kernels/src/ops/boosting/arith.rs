//! The arithmetic of boosting, shared by every backend (`N3`).

use crate::ieee::Ieee;
use crate::prim;
use cubecl::prelude::*;

/// Gradient and Hessian of one row's loss by its margin.
#[derive(CubeType, Clone, Copy, Debug)]
pub(crate) struct Gradient {
    pub(crate) g: f32,
    pub(crate) h: f32,
}

/// The regularisation in units of one tree's largest gradient and Hessian.
#[derive(CubeType, Clone, Copy, Debug)]
pub(crate) struct Penalty {
    pub(crate) lambda: f32,
    pub(crate) alpha: f32,
    pub(crate) gamma: f32,
    pub(crate) min_weight: f32,
}

const ONE: f32 = 1.0;
/// XGBoost's least Hessian of a classifier's row, 1e-16.
const LEAST_HESSIAN: u32 = 0x24e6_9595;
/// The score of a split that is not allowed; scores are never negative.
pub(crate) const NO_SPLIT: u32 = 0xbf80_0000;
const TWO_TO_MINUS_30: u32 = 0x3080_0000;
const TWO_TO_MINUS_20: u32 = 0x3580_0000;

/// `(margin - y) w` and `w`: half the squared error.
#[cube]
#[inline(always)]
pub(crate) fn squared_gradient(ieee: &Ieee, margin: f32, y: f32, w: f32) -> Gradient {
    Gradient {
        g: ieee.mul(ieee.sub(margin, y), w),
        h: w,
    }
}

/// `(p - y) w` and `p (1 - p) w` of `p = sigmoid(margin)`: the logistic loss of `y` in 0, 1.
#[cube]
#[inline(always)]
pub(crate) fn logistic_gradient(ieee: &Ieee, p: f32, y: f32, w: f32) -> Gradient {
    let h = ieee.mul(p, ieee.sub(ONE, p));
    Gradient {
        g: ieee.mul(ieee.sub(p, y), w),
        h: ieee.mul(at_least(ieee, h, prim::from_bits(LEAST_HESSIAN)), w),
    }
}

/// `(p - y) w` and `2 p (1 - p) w` of one class: `p` its probability, `y` 1 for the row's class
/// and 0 for others. The factor 2 is XGBoost's.
#[cube]
#[inline(always)]
pub(crate) fn softmax_gradient(ieee: &Ieee, p: f32, y: f32, w: f32) -> Gradient {
    let h = ieee.mul(ieee.add(p, p), ieee.sub(ONE, p));
    Gradient {
        g: ieee.mul(ieee.sub(p, y), w),
        h: ieee.mul(at_least(ieee, h, prim::from_bits(LEAST_HESSIAN)), w),
    }
}

#[cube]
#[inline(always)]
pub(crate) fn at_least(ieee: &Ieee, x: f32, least: f32) -> f32 {
    ieee.select(ieee.lt(x, least), least, x)
}

/// The shift for numbers whose largest magnitude has the bits `largest`: the largest `s` with
/// `|x| 2^s < 2^30` for all of them; 0 if all are zero.
#[cube]
#[inline(always)]
pub(crate) fn shift_of(ieee: &Ieee, largest: u32) -> i32 {
    // The exponent of 0 is `i32::MIN`; with 29 in its place the shift is 0.
    let e = ieee.exponent(prim::from_bits(largest));
    29i32 - prim::select_i32(largest == 0u32, 29i32, e)
}

/// A factor of two whose square is, but for a last factor of two in [`last_factor`], `2^shift`.
///
/// `2^shift` itself may lie beyond binary32. `(x * half) * last` is exact as long as it is at
/// least 2^-30: a subnormal in between belongs to a result below one half.
#[cube]
#[inline(always)]
pub(crate) fn half_factor(ieee: &Ieee, shift: i32) -> f32 {
    ieee.power_of_two(shift >> 1i32)
}

/// See [`half_factor`].
#[cube]
#[inline(always)]
pub(crate) fn last_factor(ieee: &Ieee, shift: i32) -> f32 {
    ieee.power_of_two(shift - (shift >> 1i32))
}

/// `x * 2^shift` as the nearest integer, ties to even; at most `2^30` in magnitude.
#[cube]
#[inline(always)]
pub(crate) fn quantise(ieee: &Ieee, x: f32, half: f32, last: f32) -> i32 {
    ieee.to_i32(ieee.round_ties_even(ieee.mul(ieee.mul(x, half), last)))
}

/// A sum of quantised numbers, already converted to binary32, in units of the scale: `x * 2^-30`.
#[cube]
#[inline(always)]
pub(crate) fn unit(ieee: &Ieee, x: f32) -> f32 {
    ieee.mul(x, prim::from_bits(TWO_TO_MINUS_30))
}

/// The regularisation for gradients scaled by `2^sg` and Hessians by `2^sh`.
#[cube]
#[inline(always)]
pub(crate) fn scale_penalty(ieee: &Ieee, p: &Penalty, sg: i32, sh: i32) -> Penalty {
    Penalty {
        lambda: ieee.scale(p.lambda, sh - 30i32),
        alpha: ieee.scale(p.alpha, sg - 30i32),
        gamma: ieee.scale(p.gamma, 2i32 * sg - sh - 30i32),
        min_weight: ieee.scale(p.min_weight, sh - 30i32),
    }
}

/// `g` moved towards zero by `alpha`, zero within it.
#[cube]
#[inline(always)]
pub(crate) fn shrink(ieee: &Ieee, g: f32, alpha: f32) -> f32 {
    let m = ieee.sub(ieee.abs(g), alpha);
    let zero = prim::from_bits(0u32);
    ieee.copysign(ieee.select(ieee.lt(zero, m), m, zero), g)
}

/// `shrink(g)^2 / (h + lambda)`: twice what the best constant takes off the loss. `g` and `h` are
/// in units.
#[cube]
#[inline(always)]
pub(crate) fn score(ieee: &Ieee, g: f32, h: f32, p: &Penalty) -> f32 {
    let t = shrink(ieee, g, p.alpha);
    ieee.div(ieee.mul(t, t), ieee.add(h, p.lambda))
}

/// The score of a split into a left and a right side; `NO_SPLIT` if a side has no Hessian or less
/// than the least weight.
#[cube]
#[inline(always)]
pub(crate) fn split_score(ieee: &Ieee, gl: f32, hl: f32, gr: f32, hr: f32, p: &Penalty) -> f32 {
    let sum = ieee.add(score(ieee, gl, hl, p), score(ieee, gr, hr, p));
    let zero = prim::from_bits(0u32);
    let left = ieee.lt(zero, hl) && ieee.le(p.min_weight, hl);
    let right = ieee.lt(zero, hr) && ieee.le(p.min_weight, hr);
    ieee.select(left && right, sum, prim::from_bits(NO_SPLIT))
}

/// What a split of score `split` gains over the node's own score.
#[cube]
#[inline(always)]
pub(crate) fn gain(ieee: &Ieee, split: f32, node: f32) -> f32 {
    ieee.sub(split, node)
}

/// Whether a gain is worth a split: not below `gamma`, and above the rounding of the two scores
/// it is the difference of.
#[cube]
#[inline(always)]
pub(crate) fn accept(ieee: &Ieee, gain: f32, node: f32, p: &Penalty) -> bool {
    let noise = ieee.mul(node, prim::from_bits(TWO_TO_MINUS_20));
    ieee.lt(noise, gain) && ieee.le(p.gamma, gain)
}

/// A leaf's value: `-shrink(g) / (h + lambda) * rate`; 0 without a Hessian.
#[cube]
#[inline(always)]
pub(crate) fn leaf_value(
    ieee: &Ieee,
    g: f32,
    h: f32,
    p: &Penalty,
    sg: i32,
    sh: i32,
    rate: f32,
) -> f32 {
    let zero = prim::from_bits(0u32);
    // 0 - x rather than -x: no leaf is -0.
    let step = ieee.sub(
        zero,
        ieee.div(shrink(ieee, g, p.alpha), ieee.add(h, p.lambda)),
    );
    let value = ieee.mul(ieee.scale(step, sh - sg), rate);
    ieee.select(ieee.lt(zero, h), value, zero)
}

/// A gain in the loss's own units; the largest finite number where it would overflow.
#[cube]
#[inline(always)]
pub(crate) fn true_gain(ieee: &Ieee, gain: f32, sg: i32, sh: i32) -> f32 {
    let x = ieee.scale(gain, 30i32 - 2i32 * sg + sh);
    ieee.select(ieee.is_finite(x), x, prim::from_bits(0x7f7f_ffffu32))
}

/// A sum of Hessians (in units) in the loss's own units.
#[cube]
#[inline(always)]
pub(crate) fn true_weight(ieee: &Ieee, h: f32, sh: i32) -> f32 {
    let x = ieee.scale(h, 30i32 - sh);
    ieee.select(ieee.is_finite(x), x, prim::from_bits(0x7f7f_ffffu32))
}
