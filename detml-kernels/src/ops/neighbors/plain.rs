//! The contract as code.

use super::{Metric, PANEL};
use crate::ieee::Ieee;

/// What the metric gives for a query and a point.
pub(super) fn distance(metric: Metric, q: &[f32], x: &[f32]) -> f32 {
    let ieee = Ieee::PLAIN;
    let mut total = None;
    for (q, x) in q.chunks(PANEL).zip(x.chunks(PANEL)) {
        let mut s = 0.0;
        for (q, x) in q.iter().zip(x) {
            let t = ieee.sub(*q, *x);
            s = match metric {
                Metric::SquaredEuclidean => ieee.fma(t, t, s),
                Metric::Manhattan => ieee.add(s, ieee.abs(t)),
                Metric::InnerProduct => ieee.fma(*q, *x, s),
            };
        }
        total = Some(total.map_or(s, |total| ieee.add(total, s)));
    }
    ieee.canonical(total.unwrap_or(0.0))
}

/// Row `i` of a matrix of `columns` columns.
pub(super) fn row(x: &[f32], i: usize, columns: usize) -> &[f32] {
    &x[i * columns..][..columns]
}

pub(super) fn pairwise(metric: Metric, x: &[f32], y: &[f32], [q, n, d]: [usize; 3]) -> Vec<f32> {
    let mut out = Vec::new();
    for i in 0..q {
        for j in 0..n {
            out.push(distance(metric, row(x, i, d), row(y, j, d)));
        }
    }
    out
}

/// Distances and indices, `k.min(n)` of them for each query.
pub(super) fn nearest(
    metric: Metric,
    x: &[f32],
    y: &[f32],
    [q, n, d]: [usize; 3],
    k: usize,
) -> (Vec<f32>, Vec<u32>) {
    let (mut distances, mut indices) = (Vec::new(), Vec::new());
    for i in 0..q {
        let mut all: Vec<(f32, u32)> = (0..n)
            .map(|j| (distance(metric, row(x, i, d), row(y, j, d)), j as u32))
            .collect();
        all.sort_by(|(a, i), (b, j)| {
            // NaN last, then by the metric, then by the index.
            let (first, second) = match metric {
                Metric::InnerProduct => (b, a),
                _ => (a, b),
            };
            a.is_nan()
                .cmp(&b.is_nan())
                .then(
                    first
                        .partial_cmp(second)
                        .unwrap_or(std::cmp::Ordering::Equal),
                )
                .then(i.cmp(j))
        });
        for (distance, index) in all.into_iter().take(k) {
            // -0 is given as +0.
            distances.push(if distance == 0.0 { 0.0 } else { distance });
            indices.push(index);
        }
    }
    (distances, indices)
}
