//! Distances between the rows of two matrices, and the nearest rows of each.
//!
//! # Order
//! What a [`Metric`] gives for a query `q` and a point `x` is a sum over their features, formed as
//! the element of a product is (`N6`): panels of [`PANEL`] features, each one chain over ascending
//! features that starts from +0, the panels' sums added in ascending order beginning with the
//! first one's. A step of the chain is
//! - [`SquaredEuclidean`](Metric::SquaredEuclidean): `t = q - x` rounded, then `fma(t, t, s)`;
//! - [`Manhattan`](Metric::Manhattan): `t = q - x` rounded, then `s + |t|`;
//! - [`InnerProduct`](Metric::InnerProduct): `fma(q, x, s)`.
//!
//! The differences are squared as they are, not expanded into products: near rows keep their
//! distance's digits, and a row's distance to itself is +0.
//!
//! Points are ordered by what the metric gives, the index last (`N10`): distances ascending, inner
//! products descending, any NaN behind every number, equal ones by ascending index, -0 equal to
//! +0. So there is one result, whatever the batch, the tiles or the split of the points that found
//! it (`N7`). Infinities and NaN follow the formula; a NaN is 0x7fc00000 (`N11`).

mod cpu;
mod gpu;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;

use super::tile::check_matrix;
use crate::device::Buffer;
use crate::ieee::Ieee;
use crate::ops::order::{Kind, Order, rank};
use crate::ops::same_device;
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Error, Result};

pub use super::gemm::PANEL;
pub(crate) use gpu::kernels;

/// What is computed for a query and a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metric {
    /// The sum of squared differences; smaller is nearer.
    #[default]
    SquaredEuclidean,
    /// The sum of absolute differences; smaller is nearer.
    Manhattan,
    /// The sum of products; larger is nearer. Over rows of norm 1 this is the cosine.
    InnerProduct,
}

impl Metric {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::SquaredEuclidean, Self::Manhattan, Self::InnerProduct];
}

/// The result of [`nearest`]: row-major matrices of a row for each query and `k` columns, the
/// nearest first.
#[derive(Debug)]
pub struct Neighbors {
    /// What the metric gives. A zero is +0, a NaN 0x7fc00000.
    pub distances: Buffer<f32>,
    /// The points' indices.
    pub indices: Buffer<u32>,
    /// Columns of both: what was asked for, but not more than the points there are.
    pub k: usize,
}

/// The `k` nearest of `points` rows to each of `queries` rows of `features` numbers, row after row;
/// `shape` is `[queries, points, features]`. A `k` above `points` gives all of them.
///
/// No matrix of queries and points is formed for `k` up to 32: besides the result there are some
/// lists of `k` for each query (on a GPU at most 2^24 entries of 8 bytes, on a CPU 2 MiB for each
/// thread). For larger `k` a GPU holds the distances of some queries at a time: 64 MiB, or
/// the distances of one query where they are more, and what [`topk`](super::topk) takes for them.
///
/// ```
/// use detml_kernels::{Device, ops::neighbors::{Metric, nearest}};
///
/// let device = Device::cpu();
/// let points = device.upload(&[0.0f32, 0.0, 3.0, 4.0, 1.0, 0.0])?;
/// let query = device.upload(&[0.0f32, 0.0])?;
/// let near = nearest(Metric::SquaredEuclidean, &query, &points, [1, 3, 2], 2)?;
/// assert_eq!(device.read(&near.distances)?, [0.0, 1.0]);
/// assert_eq!(device.read(&near.indices)?, [0, 2]);
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// `Shape` if the matrices are not of that shape or have more than 2^31 elements;
/// `InvalidParameter` if they are on different devices; what the device reports.
pub fn nearest(
    metric: Metric,
    queries: &Buffer<f32>,
    points: &Buffer<f32>,
    shape: [usize; 3],
    k: usize,
) -> Result<Neighbors> {
    nearest_by(metric, queries, points, shape, k, Plan::default())
}

/// A schedule to force in tests; the default is chosen by shape and device. None shows (`N8`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Plan {
    cpu: cpu::Plan,
    gpu: gpu::Plan,
}

fn nearest_by(
    metric: Metric,
    queries: &Buffer<f32>,
    points: &Buffer<f32>,
    shape: [usize; 3],
    k: usize,
    plan: Plan,
) -> Result<Neighbors> {
    let [q, n, _] = shape;
    check("nearest", queries, points, shape)?;
    let k = k.min(n);
    let len = q.checked_mul(k).ok_or_else(|| too_many("nearest", q, k))?;
    let device = queries.device();
    let mut distances = device.empty::<f32>(len)?;
    let mut indices = device.empty::<u32>(len)?;
    if len > 0 {
        if let (Some(simd), Some(x), Some(y), Some(distances), Some(indices)) = (
            device.simd(),
            queries.host(),
            points.host(),
            distances.host_mut(),
            indices.host_mut(),
        ) {
            cpu::nearest(simd, metric, x, y, shape, k, distances, indices, plan.cpu)?;
        } else {
            let out = (&mut distances, &mut indices);
            gpu::nearest(metric, queries, points, shape, k, out, plan.gpu)?;
        }
    }
    Ok(Neighbors {
        distances,
        indices,
        k,
    })
}

/// What the metric gives for every query and point, a row for each query; `shape` as for
/// [`nearest`]. Here a zero keeps its sign.
///
/// # Errors
/// As [`nearest`], and `Shape` for more than 2^31 pairs.
pub fn pairwise(
    metric: Metric,
    queries: &Buffer<f32>,
    points: &Buffer<f32>,
    shape: [usize; 3],
) -> Result<Buffer<f32>> {
    pairwise_by(metric, queries, points, shape, Plan::default())
}

fn pairwise_by(
    metric: Metric,
    queries: &Buffer<f32>,
    points: &Buffer<f32>,
    shape: [usize; 3],
    plan: Plan,
) -> Result<Buffer<f32>> {
    let [q, n, _] = shape;
    check("pairwise", queries, points, shape)?;
    let len = q
        .checked_mul(n)
        .filter(|len| *len <= 1 << 31)
        .ok_or_else(|| too_many("pairwise", q, n))?;
    let device = queries.device();
    let mut out = device.empty::<f32>(len)?;
    if len > 0 {
        if let (Some(simd), Some(x), Some(y), Some(out)) =
            (device.simd(), queries.host(), points.host(), out.host_mut())
        {
            cpu::pairwise(simd, metric, x, y, shape, out)?;
        } else {
            gpu::pairwise(metric, queries, points, shape, (0, q), &mut out, plan.gpu)?;
        }
    }
    Ok(out)
}

fn check(
    op: &str,
    queries: &Buffer<f32>,
    points: &Buffer<f32>,
    [q, n, features]: [usize; 3],
) -> Result<()> {
    check_matrix(op, queries.len(), q, features)?;
    check_matrix(op, points.len(), n, features)?;
    // Without features any number of rows is an empty matrix; their indices are words still.
    for rows in [q, n] {
        if rows > 1 << 31 {
            return Err(Error::shape(op, "at most 2^31 rows", rows));
        }
    }
    same_device(queries.device(), points.device())
}

fn too_many(op: &str, rows: usize, columns: usize) -> Error {
    Error::shape(
        op,
        "a result of at most 2^31 elements",
        format_args!("{rows} x {columns}"),
    )
}

/// A step of a chain.
#[cube]
#[inline(always)]
pub(super) fn step(ieee: &Ieee, q: f32, x: f32, s: f32, #[comptime] metric: Metric) -> f32 {
    if comptime!(metric == Metric::InnerProduct) {
        ieee.fma(q, x, s)
    } else if comptime!(metric == Metric::Manhattan) {
        ieee.add(s, ieee.abs(ieee.sub(q, x)))
    } else {
        let t = ieee.sub(q, x);
        ieee.fma(t, t, s)
    }
}

/// The word that orders points as the metric does: smaller is nearer.
#[cube]
#[inline(always)]
pub(super) fn key(ieee: &Ieee, s: f32, #[comptime] metric: Metric) -> u32 {
    if comptime!(metric == Metric::InnerProduct) {
        let flip = comptime!(Kind::F32.flip(Order::Descending));
        rank(*ieee, prim::bits(s), flip, true)
    } else {
        // The chain starts at +0 and takes nothing negative: neither a sign nor a -0 comes up, and
        // the bits of such numbers order as they do, the canonical NaN's behind infinity's.
        prim::bits(ieee.canonical(s))
    }
}

/// What the metric gave, from its [`key`]; a zero is +0.
#[cube]
#[inline(always)]
pub(super) fn value(ieee: &Ieee, key: u32, #[comptime] metric: Metric) -> f32 {
    if comptime!(metric == Metric::InnerProduct) {
        // The rank of a NaN, inverted, is the key of no number.
        ieee.from_total_key(!key)
    } else {
        prim::from_bits(key)
    }
}
