//! The contract as code.

use super::{BLOCK, LOWEST, Problem, SEGMENT, finish, larger};
use crate::ieee::Ieee;
use crate::math::{exp_weight, ln};
use crate::ops::gemm::PANEL;

const IEEE: &Ieee = &Ieee::PLAIN;

/// Keys of a block and of a segment, but for tests that show that they matter.
#[derive(Clone, Copy)]
pub(super) struct Order {
    pub(super) block: usize,
    pub(super) segment: usize,
}

pub(super) const ORDER: Order = Order {
    block: BLOCK,
    segment: SEGMENT,
};

/// The outputs and log-sum-exps.
pub(super) fn forward(
    p: &Problem,
    [q, k, v]: [&[f32]; 3],
    lengths: &[u32],
    order: Order,
) -> [Vec<f32>; 2] {
    let (mut out, mut sums) = (Vec::new(), Vec::new());
    for row in 0..p.rows() {
        let (batch, head, query) = p.place(row);
        let [k, v] = [k, v].map(|x| p.head(x, batch, head));
        let n = p.visible(lengths, batch, query);
        let (o, sum) = one(p, p.row(q, row), k, v, n, order);
        out.extend(o);
        sums.push(sum);
    }
    [out, sums]
}

/// The output of one query that sees the first `n` keys, and its log-sum-exp.
fn one(p: &Problem, q: &[f32], k: &[f32], v: &[f32], n: usize, order: Order) -> (Vec<f32>, f32) {
    let (mut m_all, mut l_all, mut o_all) = (LOWEST, 0.0, vec![0.0; p.width]);
    for segment in (0..n).step_by(order.segment) {
        let (mut m, mut l, mut o) = (LOWEST, 0.0, vec![0.0; p.width]);
        let end = n.min(segment + order.segment);
        for block in (segment..end).step_by(order.block) {
            let keys = block..end.min(block + order.block);
            let score = |j| IEEE.mul(dot(q, p.row(k, j)), p.scale);
            let scores: Vec<f32> = keys.clone().map(score).collect();
            let next = scores.iter().fold(m, |m, &s| larger(IEEE, m, s));
            let c = exp_weight(IEEE, IEEE.sub(m, next));
            let mut weights = [0.0; BLOCK];
            for (w, &s) in weights.iter_mut().zip(&scores) {
                *w = exp_weight(IEEE, IEEE.sub(s, next));
            }
            l = IEEE.fma(l, c, tree(weights));
            for (d, o) in o.iter_mut().enumerate() {
                *o = IEEE.mul(*o, c);
                for (j, &w) in keys.clone().zip(&weights) {
                    *o = IEEE.fma(w, p.row(v, j)[d], *o);
                }
            }
            m = next;
        }
        let next = larger(IEEE, m_all, m);
        let a = exp_weight(IEEE, IEEE.sub(m_all, next));
        let b = exp_weight(IEEE, IEEE.sub(m, next));
        l_all = IEEE.fma(l, b, IEEE.mul(l_all, a));
        for (all, &o) in o_all.iter_mut().zip(&o) {
            *all = IEEE.fma(o, b, IEEE.mul(*all, a));
        }
        m_all = next;
    }
    if n > 0 {
        for o in &mut o_all {
            *o = finish(IEEE, IEEE.div(*o, l_all));
        }
    }
    (o_all, IEEE.canonical(IEEE.add(m_all, ln(IEEE, l_all))))
}

/// The gradients of the queries, keys and values.
pub(super) fn backward(
    p: &Problem,
    [q, k, v]: [&[f32]; 3],
    lengths: &[u32],
    [out, sums, d_out]: [&[f32]; 3],
) -> [Vec<f32>; 3] {
    let deltas: Vec<f32> = (0..p.rows())
        .map(|row| dot(p.row(d_out, row), p.row(out, row)))
        .collect();
    // The weight of a pair and the gradient of its score.
    let pair = |row: usize, j: usize| {
        let (batch, head, _) = p.place(row);
        let [k, v] = [k, v].map(|x| p.row(p.head(x, batch, head), j));
        let score = IEEE.mul(dot(p.row(q, row), k), p.scale);
        let weight = exp_weight(IEEE, IEEE.sub(score, sums[row]));
        let slope = dot(p.row(d_out, row), v);
        (weight, IEEE.mul(weight, IEEE.sub(slope, deltas[row])))
    };
    let mut d_q = Vec::new();
    for row in 0..p.rows() {
        let (batch, head, query) = p.place(row);
        let n = p.visible(lengths, batch, query);
        let terms: Vec<_> = (0..n).map(|j| (j, pair(row, j).1)).collect();
        let k = p.head(k, batch, head);
        for d in 0..p.width {
            let total = total(terms.iter().map(|&(j, s)| (j, s, p.row(k, j)[d])));
            // Nothing seen, nothing scaled.
            let scaled = finish(IEEE, IEEE.mul(total, p.scale));
            d_q.push(if n > 0 { scaled } else { 0.0 });
        }
    }
    let (mut d_k, mut d_v) = (Vec::new(), Vec::new());
    let group = p.group() * p.queries;
    for owner in 0..p.batch * p.kv_heads {
        for j in 0..p.keys {
            let terms: Vec<_> = (0..group)
                .map(|i| (i, owner * group + i))
                .filter(|&(i, _)| j < p.visible(lengths, owner / p.kv_heads, i % p.queries))
                .map(|(i, row)| (i, row, pair(row, j)))
                .collect();
            for d in 0..p.width {
                let k = total(terms.iter().map(|&(i, row, s)| (i, s.1, p.row(q, row)[d])));
                let scaled = finish(IEEE, IEEE.mul(k, p.scale));
                d_k.push(if terms.is_empty() { 0.0 } else { scaled });
                let v = total(
                    terms
                        .iter()
                        .map(|&(i, row, s)| (i, s.0, p.row(d_out, row)[d])),
                );
                d_v.push(finish(IEEE, v));
            }
        }
    }
    [d_q, d_k, d_v]
}

/// A product over the width (`N6`).
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let chain = |(a, b): (&[f32], &[f32])| {
        let mut sum = 0.0;
        for (&a, &b) in a.iter().zip(b) {
            sum = IEEE.fma(a, b, sum);
        }
        sum
    };
    a.chunks(PANEL)
        .zip(b.chunks(PANEL))
        .map(chain)
        .reduce(|total, sum| IEEE.add(total, sum))
        .unwrap_or(0.0)
}

/// The sum of products of the terms that take part, each with its place, in panels of places.
fn total(terms: impl Iterator<Item = (usize, f32, f32)>) -> f32 {
    let (mut total, mut sum, mut panel) = (0.0, 0.0, 0);
    for (i, a, b) in terms {
        if i / PANEL != panel {
            total = IEEE.add(total, sum);
            (sum, panel) = (0.0, i / PANEL);
        }
        sum = IEEE.fma(a, b, sum);
    }
    IEEE.add(total, sum)
}

/// The sum of a block's weights (`N5`).
fn tree(mut x: [f32; BLOCK]) -> f32 {
    let mut half = BLOCK / 2;
    while half > 0 {
        for j in 0..half {
            x[j] = IEEE.add(x[j], x[j + half]);
        }
        half /= 2;
    }
    x[0]
}
