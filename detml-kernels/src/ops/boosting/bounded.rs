//! The arithmetic of monotone constraints, shared by every backend (`N3`): see
//! [`constraints`](super::constraints). Sums are in units of their scales, weights in the quotient
//! of these.

use super::arith::{Penalty, shrink};
use crate::ieee::Ieee;
use crate::prim;
use cubecl::prelude::*;

/// The interval of the weights below a node.
#[derive(CubeType, Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) low: f32,
    pub(crate) high: f32,
}

impl Bounds {
    /// Of all numbers.
    pub(crate) const ALL: Self = Self {
        low: f32::NEG_INFINITY,
        high: f32::INFINITY,
    };
}

/// A score's place in the order of scores, for one that is not allowed: before all others.
pub(crate) const REFUSED: u32 = 0x8000_0000;
const HALF: u32 = 0x3f00_0000;

/// A number's bits as an integer of the same order, and the other way round.
#[cube]
#[inline(always)]
pub(crate) fn ordered(bits: u32) -> u32 {
    let sign = prim::as_u32(prim::as_i32(bits) >> 31i32);
    bits ^ (sign >> 1u32)
}

/// The best weight that ignores bounds.
#[cube]
#[inline(always)]
fn free_weight(ieee: &Ieee, g: f32, h: f32, p: &Penalty) -> f32 {
    // 0 - x rather than -x: no weight is -0.
    ieee.sub(
        prim::from_bits(0u32),
        ieee.div(shrink(ieee, g, p.alpha), ieee.add(h, p.lambda)),
    )
}

/// `w` moved into the bounds.
#[cube]
#[inline(always)]
fn moved(ieee: &Ieee, w: f32, b: &Bounds) -> f32 {
    let w = ieee.select(ieee.lt(w, b.low), b.low, w);
    ieee.select(ieee.lt(b.high, w), b.high, w)
}

/// The weight of a node of these sums.
#[cube]
#[inline(always)]
pub(crate) fn weight(ieee: &Ieee, g: f32, h: f32, p: &Penalty, b: &Bounds) -> f32 {
    moved(ieee, free_weight(ieee, g, h, p), b)
}

/// Twice what the weight of a node takes off the loss; below 0 where the bounds make it worse than
/// none.
#[cube]
#[inline(always)]
pub(crate) fn bounded_score(ieee: &Ieee, g: f32, h: f32, p: &Penalty, b: &Bounds) -> f32 {
    let free = free_weight(ieee, g, h, p);
    let w = moved(ieee, free, b);
    let t = shrink(ieee, g, p.alpha);
    let below = ieee.add(h, p.lambda);
    let best = ieee.div(ieee.mul(t, t), below);
    let slope = ieee.add(ieee.add(g, g), ieee.mul(below, w));
    let penalty = ieee.mul(ieee.add(p.alpha, p.alpha), ieee.abs(w));
    let other = ieee.sub(ieee.sub(prim::from_bits(0u32), ieee.mul(w, slope)), penalty);
    ieee.select(ieee.eq(w, free), best, other)
}

/// The score of a split by a feature of this way (1, -1, or 0 for either) as an integer of the same
/// order, `REFUSED` if it isn't allowed.
#[cube]
#[inline(always)]
pub(crate) fn bounded_key(
    ieee: &Ieee,
    gl: f32,
    hl: f32,
    gr: f32,
    hr: f32,
    p: &Penalty,
    b: &Bounds,
    way: i32,
) -> i32 {
    let sum = ieee.add(
        bounded_score(ieee, gl, hl, p, b),
        bounded_score(ieee, gr, hr, p, b),
    );
    let zero = prim::from_bits(0u32);
    let left = ieee.lt(zero, hl) && ieee.le(p.min_weight, hl);
    let right = ieee.lt(zero, hr) && ieee.le(p.min_weight, hr);
    let of_left = weight(ieee, gl, hl, p, b);
    let of_right = weight(ieee, gr, hr, p, b);
    let rises = ieee.le(of_left, of_right) || way <= 0i32;
    let falls = ieee.le(of_right, of_left) || way >= 0i32;
    let allowed = left && right && rises && falls && !ieee.is_nan(sum);
    prim::as_i32(prim::select_u32(allowed, ordered(prim::bits(sum)), REFUSED))
}

/// The bounds of one child of a node of bounds `b`, from the weights of both.
#[cube]
#[inline(always)]
pub(crate) fn bounds_below(
    ieee: &Ieee,
    b: &Bounds,
    of_left: f32,
    of_right: f32,
    way: i32,
    is_right: bool,
) -> Bounds {
    let middle = ieee.mul(ieee.add(of_left, of_right), prim::from_bits(HALF));
    let upper = (way > 0i32 && is_right) || (way < 0i32 && !is_right);
    let lower = (way > 0i32 && !is_right) || (way < 0i32 && is_right);
    Bounds {
        low: ieee.select(upper, middle, b.low),
        high: ieee.select(lower, middle, b.high),
    }
}

/// A leaf's value from its weight and Hessians; 0 without a Hessian.
#[cube]
#[inline(always)]
pub(crate) fn bounded_value(ieee: &Ieee, w: f32, h: f32, sg: i32, sh: i32, rate: f32) -> f32 {
    let zero = prim::from_bits(0u32);
    let value = ieee.mul(ieee.scale(w, sh - sg), rate);
    ieee.select(ieee.lt(zero, h), value, zero)
}
