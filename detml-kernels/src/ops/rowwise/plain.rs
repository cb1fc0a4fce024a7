//! The contract in a few lines.

use super::{LANES, SEGMENT};
use crate::ieee::Ieee;
use crate::math;

const I: &Ieee = &Ieee::PLAIN;

/// The sum of `n` terms, which `step(lane, i)` adds to lanes (`N5`).
pub(super) fn sum(n: usize, step: impl Fn(f32, usize) -> f32) -> f32 {
    let mut parts: Vec<f32> = (0..n.div_ceil(SEGMENT))
        .map(|k| {
            let mut lanes = [0.0; LANES];
            for i in k * SEGMENT..n.min((k + 1) * SEGMENT) {
                lanes[i % LANES] = step(lanes[i % LANES], i);
            }
            for half in [64, 32, 16, 8, 4, 2, 1] {
                for j in 0..half {
                    lanes[j] = I.add(lanes[j], lanes[j + half]);
                }
            }
            lanes[0]
        })
        .collect();
    if parts.len() > 1 {
        let whole = std::mem::take(&mut parts);
        let join = |s: f32, i: usize| I.add(s, whole[i]);
        parts.push(sum(whole.len(), &join as &dyn Fn(f32, usize) -> f32));
    }
    I.add(parts.pop().unwrap_or(0.0), 0.0)
}

fn all(n: usize, f: impl Fn(usize) -> f32) -> Vec<f32> {
    (0..n).map(|i| I.canonical(f(i))).collect()
}

fn maximum(x: &[f32]) -> f32 {
    x.iter().fold(f32::NEG_INFINITY, |m, &x| I.max(m, x))
}

pub(super) fn softmax(x: &[f32]) -> Vec<f32> {
    let m = maximum(x);
    let e = all(x.len(), |i| math::exp(I, I.sub(x[i], m)));
    let s = sum(x.len(), |s, i| I.add(s, e[i]));
    all(x.len(), |i| I.mul(e[i], I.div(1.0, s)))
}

pub(super) fn log_softmax(x: &[f32]) -> Vec<f32> {
    let m = maximum(x);
    let s = sum(x.len(), |s, i| I.add(s, math::exp(I, I.sub(x[i], m))));
    all(x.len(), |i| I.sub(I.sub(x[i], m), math::ln(I, s)))
}

pub(super) fn softmax_backward(y: &[f32], dy: &[f32]) -> Vec<f32> {
    let s = sum(y.len(), |s, i| I.fma(dy[i], y[i], s));
    all(y.len(), |i| I.mul(y[i], I.sub(dy[i], s)))
}

pub(super) fn log_softmax_backward(y: &[f32], dy: &[f32]) -> Vec<f32> {
    let s = sum(y.len(), |s, i| I.add(s, dy[i]));
    all(y.len(), |i| I.fma(I.neg(math::exp(I, y[i])), s, dy[i]))
}

/// The mean and the variance.
pub(super) fn moments(x: &[f32], ddof: u32) -> (f32, f32) {
    let count = x.len() as u32;
    let n = I.from_u32(count);
    let mean = I.div(sum(x.len(), |s, i| I.add(s, x[i])), n);
    let d = |i: usize| I.sub(x[i], mean);
    let squares = sum(x.len(), |s, i| I.fma(d(i), d(i), s));
    let rest = sum(x.len(), |s, i| I.add(s, d(i)));
    let shifted = I.mul(I.div(rest, n), rest);
    let centred = if I.is_finite(shifted) {
        I.sub(squares, shifted)
    } else {
        squares
    };
    let variance = if count <= ddof {
        f32::NAN
    } else {
        I.div(I.max(centred, 0.0), I.from_u32(count - ddof))
    };
    (mean, I.canonical(variance))
}

/// The results, the mean and the scale.
pub(super) fn layer_norm(
    x: &[f32],
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    eps: f32,
) -> (Vec<f32>, f32, f32) {
    let (mean, variance) = moments(x, 0);
    let d = |i: usize| I.sub(x[i], mean);
    let scale = I.div(1.0, I.sqrt(I.add(variance, eps)));
    let y = all(x.len(), |i| {
        let h = I.mul(d(i), scale);
        match (weight, bias) {
            (Some(w), Some(b)) => I.fma(h, w[i], b[i]),
            (Some(w), None) => I.mul(h, w[i]),
            (None, Some(b)) => I.add(h, b[i]),
            (None, None) => h,
        }
    });
    (y, I.canonical(mean), I.canonical(scale))
}

/// The results and the scale.
pub(super) fn rms_norm(x: &[f32], weight: Option<&[f32]>, eps: f32) -> (Vec<f32>, f32) {
    let squares = sum(x.len(), |s, i| I.fma(x[i], x[i], s));
    let mean = I.div(squares, I.from_u32(x.len() as u32));
    let scale = I.div(1.0, I.sqrt(I.add(mean, eps)));
    let y = all(x.len(), |i| {
        let h = I.mul(x[i], scale);
        weight.map_or(h, |w| I.mul(h, w[i]))
    });
    (y, I.canonical(scale))
}

/// `mean` is that of a layer norm.
pub(super) fn norm_backward(
    x: &[f32],
    dy: &[f32],
    weight: Option<&[f32]>,
    mean: Option<f32>,
    scale: f32,
) -> Vec<f32> {
    let n = I.from_u32(x.len() as u32);
    let h = |i: usize| I.mul(mean.map_or(x[i], |m| I.sub(x[i], m)), scale);
    let g = |i: usize| weight.map_or(dy[i], |w| I.mul(dy[i], w[i]));
    let q = I.div(sum(x.len(), |s, i| I.fma(g(i), h(i), s)), n);
    let p = I.div(sum(x.len(), |s, i| I.add(s, g(i))), n);
    all(x.len(), |i| {
        let rest = mean.map_or(g(i), |_| I.sub(g(i), p));
        I.mul(scale, I.fma(I.neg(h(i)), q, rest))
    })
}

/// The gradients of a column's weight and bias.
pub(super) fn parameters(x: &[f32], dy: &[f32], mean: Option<&[f32]>, scale: &[f32]) -> [f32; 2] {
    let h = |i: usize| I.mul(mean.map_or(x[i], |m| I.sub(x[i], m[i])), scale[i]);
    let weight = sum(x.len(), |s, i| I.fma(dy[i], h(i), s));
    let bias = sum(x.len(), |s, i| I.add(s, dy[i]));
    [I.canonical(weight), I.canonical(bias)]
}
