//! Gradients and Hessians of the losses by their formulas, shared by every backend (`N3`).
//!
//! A difference of margin and target that isn't finite comes back as the gradient, so that it ends
//! the fit instead of passing for a small one. No Hessian is negative.

use super::arith::{Gradient, at_least};
use crate::ieee::Ieee;
use crate::math::{exp, log1p};
use crate::prim;
use cubecl::prelude::*;

const ONE: f32 = 1.0;
const TWO: f32 = 2.0;
/// From here on `sqrt(1 + x^2)` rounds to `|x|`.
const TWO_TO_30: f32 = 1_073_741_824.0;
/// XGBoost's least prediction and Hessian of the squared logarithmic error: -1 + 1e-6 and 1e-6.
const LEAST_PREDICTION: u32 = 0xbf7f_ffef;
const LEAST_LOG_HESSIAN: u32 = 0x3586_37bd;

/// `g`, or `d` where `d` is not finite.
#[cube]
#[inline(always)]
fn unless_lost(ieee: &Ieee, d: f32, g: f32) -> f32 {
    ieee.select(ieee.is_finite(d), g, d)
}

/// `w` with the sign of `d`; 0 where `d` is 0.
#[cube]
#[inline(always)]
fn signed(ieee: &Ieee, d: f32, w: f32) -> f32 {
    let zero = prim::from_bits(0u32);
    ieee.select(ieee.eq(d, zero), zero, ieee.copysign(w, d))
}

/// `sign(d) w` and `w` of `d = margin - y`.
#[cube]
#[inline(always)]
pub(crate) fn absolute_gradient(ieee: &Ieee, margin: f32, y: f32, w: f32) -> Gradient {
    let d = ieee.sub(margin, y);
    Gradient {
        g: unless_lost(ieee, d, signed(ieee, d, w)),
        h: w,
    }
}

/// What a row counts for in the absolute percentage error: `w / max(1, |y|)`.
#[cube]
#[inline(always)]
pub(crate) fn relative_weight(ieee: &Ieee, y: f32, w: f32) -> f32 {
    ieee.div(w, at_least(ieee, ieee.abs(y), ONE))
}

/// `sign(d) w / max(1, |y|)` and `w`.
#[cube]
#[inline(always)]
pub(crate) fn mape_gradient(ieee: &Ieee, margin: f32, y: f32, w: f32) -> Gradient {
    let d = ieee.sub(margin, y);
    Gradient {
        g: unless_lost(ieee, d, signed(ieee, d, relative_weight(ieee, y, w))),
        h: w,
    }
}

/// `(1 - alpha) w` where the margin is not below the target, else `-alpha w`; and `w`.
#[cube]
#[inline(always)]
pub(crate) fn quantile_gradient(ieee: &Ieee, margin: f32, y: f32, w: f32, alpha: f32) -> Gradient {
    let d = ieee.sub(margin, y);
    let above = ieee.mul(ieee.sub(ONE, alpha), w);
    let below = ieee.neg(ieee.mul(alpha, w));
    let g = ieee.select(ieee.lt(d, prim::from_bits(0u32)), below, above);
    Gradient {
        g: unless_lost(ieee, d, g),
        h: w,
    }
}

/// `d w`, `d` held within `-delta..=delta`; and `w`.
#[cube]
#[inline(always)]
pub(crate) fn huber_gradient(ieee: &Ieee, margin: f32, y: f32, w: f32, delta: f32) -> Gradient {
    let d = ieee.sub(margin, y);
    let held = ieee.select(ieee.lt(delta, ieee.abs(d)), ieee.copysign(delta, d), d);
    Gradient {
        g: unless_lost(ieee, d, ieee.mul(held, w)),
        h: w,
    }
}

/// `d / s w` and `w / s^3` of `s = sqrt(1 + (d / delta)^2)`.
#[cube]
#[inline(always)]
pub(crate) fn pseudo_huber_gradient(
    ieee: &Ieee,
    margin: f32,
    y: f32,
    w: f32,
    delta: f32,
) -> Gradient {
    let d = ieee.sub(margin, y);
    let t = ieee.div(d, delta);
    let size = ieee.abs(t);
    let root = ieee.sqrt(ieee.fma(t, t, ONE));
    let s = ieee.select(ieee.lt(size, TWO_TO_30), root, size);
    let g = ieee.mul(ieee.div(d, s), w);
    let h = ieee.div(ieee.div(ieee.div(w, s), s), s);
    Gradient {
        g: unless_lost(ieee, d, g),
        h,
    }
}

/// `a d w` and `a w`, with `a = alpha` where the margin is below the target and `1 - alpha` elsewhere.
#[cube]
#[inline(always)]
pub(crate) fn expectile_gradient(ieee: &Ieee, margin: f32, y: f32, w: f32, alpha: f32) -> Gradient {
    let d = ieee.sub(margin, y);
    let below = ieee.lt(d, prim::from_bits(0u32));
    let a = ieee.mul(ieee.select(below, alpha, ieee.sub(ONE, alpha)), w);
    Gradient {
        g: ieee.mul(d, a),
        h: a,
    }
}

/// `(e^margin - y) w` and `e^(margin + step) w`.
#[cube]
#[inline(always)]
pub(crate) fn poisson_gradient(ieee: &Ieee, margin: f32, y: f32, w: f32, step: f32) -> Gradient {
    Gradient {
        g: ieee.mul(ieee.sub(exp(ieee, margin), y), w),
        h: ieee.mul(exp(ieee, ieee.add(margin, step)), w),
    }
}

/// `(1 - q) w` and `q w` of `q = y / e^margin`.
#[cube]
#[inline(always)]
pub(crate) fn gamma_gradient(ieee: &Ieee, margin: f32, y: f32, w: f32) -> Gradient {
    let q = ieee.div(y, exp(ieee, margin));
    Gradient {
        g: ieee.mul(ieee.sub(ONE, q), w),
        h: ieee.mul(q, w),
    }
}

/// `(b - a) w` and `((2 - p) b + (p - 1) a) w` of `a = y e^((1 - p) margin)` and
/// `b = e^((2 - p) margin)`.
#[cube]
#[inline(always)]
pub(crate) fn tweedie_gradient(ieee: &Ieee, margin: f32, y: f32, w: f32, p: f32) -> Gradient {
    let zero = prim::from_bits(0u32);
    let up = ieee.sub(TWO, p);
    let down = ieee.sub(p, ONE);
    let power = exp(ieee, ieee.neg(ieee.mul(down, margin)));
    // Without a target nothing is left of a power that overflows.
    let a = ieee.select(ieee.eq(y, zero), zero, ieee.mul(y, power));
    let b = exp(ieee, ieee.mul(up, margin));
    let h = ieee.fma(up, b, ieee.mul(down, a));
    Gradient {
        g: ieee.mul(ieee.sub(b, a), w),
        h: ieee.mul(h, w),
    }
}

/// `l / q w` and `max((1 - l) / q^2, 1e-6) w` of `q = 1 + p`, `l = log1p(p) - log1p(y)`, and `p`
/// the margin, at least -1 + 1e-6.
#[cube]
#[inline(always)]
pub(crate) fn squared_log_gradient(ieee: &Ieee, margin: f32, y: f32, w: f32) -> Gradient {
    let p = at_least(ieee, margin, prim::from_bits(LEAST_PREDICTION));
    let l = ieee.sub(log1p(ieee, p), log1p(ieee, y));
    let q = ieee.add(p, ONE);
    let h = ieee.div(ieee.div(ieee.sub(ONE, l), q), q);
    let h = at_least(ieee, h, prim::from_bits(LEAST_LOG_HESSIAN));
    Gradient {
        g: ieee.mul(ieee.div(l, q), w),
        h: ieee.mul(h, w),
    }
}
