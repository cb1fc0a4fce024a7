//! The CPU path: blocks of queries and points in registers, the points along the vectors.
//!
//! A task takes a block of queries through a range of the points, 256 points at a time: packed
//! points, then their distances to a few queries, then those of them below the query's bound, the
//! k-th best so far. A query keeps somewhat more than k candidates and drops the surplus now and
//! then. Candidates are pairs of key and index, no two of which are equal, so the k smallest are
//! the same however queries and points are shared out (`N8`).

use super::{Metric, PANEL, key, value};
use crate::device::{Loop, Simd};
use crate::ieee::Ieee;
use crate::ops::parallel::for_each;
use detml_core::Result;
use rayon::prelude::*;
use std::marker::PhantomData;
use std::ops::Range;

/// Points taken at a time.
const POINTS: usize = 256;
/// Candidates of a task, in all its queries.
const CANDIDATES: usize = 1 << 18;
/// Below this many steps of chains threads cost more than they bring.
const SERIAL: usize = 1 << 16;

/// A schedule to force in tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Queries of a block.
    pub(super) block: Option<usize>,
    /// Ranges of points that are searched apart.
    pub(super) splits: Option<usize>,
}

pub(super) fn nearest(
    simd: Simd,
    metric: Metric,
    x: &[f32],
    y: &[f32],
    [q, n, d]: [usize; 3],
    k: usize,
    distances: &mut [f32],
    indices: &mut [u32],
    plan: Plan,
) -> Result<()> {
    let threads = match q.saturating_mul(n).saturating_mul(d.max(1)) < SERIAL {
        true => 1,
        false => rayon::current_num_threads(),
    };
    let most = (CANDIDATES / room(k)).clamp(1, 1024);
    let block = plan.block.unwrap_or(q.div_ceil(threads)).clamp(1, most);
    // Threads without a block of their own take a part of the points.
    let splits = plan.splits.unwrap_or(match q.div_ceil(block) < threads {
        true => threads.min(n.div_ceil(4 * POINTS)),
        false => 1,
    });
    let each = n.div_ceil(splits.max(1)).next_multiple_of(POINTS);
    let ranges: Vec<_> = (0..n).step_by(each).map(|i| i..(i + each).min(n)).collect();
    let blocks: Vec<_> = distances
        .chunks_mut(block * k)
        .zip(indices.chunks_mut(block * k))
        .enumerate()
        .collect();
    for_each(blocks, &|(i, (distances, indices))| {
        let first = i * block;
        let rows = distances.len() / k;
        let search = |range: &Range<usize>| Search {
            metric,
            queries: x.get(first * d..).unwrap_or_default(),
            rows,
            points: y,
            range: range.clone(),
            features: d,
            k,
        };
        let mut found: Vec<Vec<Vec<u64>>> = match ranges.len() {
            1 => vec![search(&ranges[0]).run(simd)],
            _ => ranges.par_iter().map(|r| search(r).run(simd)).collect(),
        };
        let outputs = distances.chunks_mut(k).zip(indices.chunks_mut(k));
        for (row, (distances, indices)) in outputs.enumerate() {
            let mut best: Vec<u64> = Vec::new();
            for part in &mut found {
                best.append(&mut part[row]);
            }
            keep(&mut best, k);
            best.sort_unstable();
            for ((distance, index), pair) in distances.iter_mut().zip(indices).zip(best) {
                *index = pair as u32;
                *distance = number(metric, (pair >> 32) as u32);
            }
        }
    });
    Ok(())
}

fn number(metric: Metric, key: u32) -> f32 {
    value(&Ieee::PLAIN, key, metric)
}

/// Candidates that a query keeps at most.
fn room(k: usize) -> usize {
    k.saturating_add(k.max(64))
}

/// Drops all but the `k` smallest, the largest of which becomes the last.
fn keep(best: &mut Vec<u64>, k: usize) {
    if best.len() > k {
        best.select_nth_unstable(k - 1);
        best.truncate(k);
    }
}

/// The search of one task.
struct Search<'a> {
    metric: Metric,
    /// The block's queries and what follows them.
    queries: &'a [f32],
    rows: usize,
    points: &'a [f32],
    range: Range<usize>,
    features: usize,
    k: usize,
}

/// What a query has found.
struct Found {
    best: Vec<u64>,
    /// No pair from here on is among the `k` nearest.
    bound: u64,
    /// What the metric gives at the bound, or NaN while there is none.
    limit: f32,
}

impl Search<'_> {
    /// Some of the nearest points of each query, the `k` nearest among them.
    fn run(self, simd: Simd) -> Vec<Vec<u64>> {
        let mut found: Vec<Found> = (0..self.rows)
            .map(|_| Found {
                best: Vec::with_capacity(room(self.k).min(self.range.len())),
                bound: u64::MAX,
                limit: f32::NAN,
            })
            .collect();
        let mut blocks = Blocks::new(simd, self.metric, self.queries, self.rows, self.features);
        let mut hits = [0u32; POINTS];
        for from in self.range.clone().step_by(POINTS) {
            let count = POINTS.min(self.range.end - from);
            blocks.pack(
                &self.points[from * self.features..][..count * self.features],
                count,
            );
            for group in 0..blocks.groups.len() {
                let Range { start, end } = blocks.groups[group].clone();
                blocks.compute(group);
                for row in start..end {
                    let scores = &blocks.scores[(row - start) * POINTS..][..count];
                    let found = &mut found[row];
                    let hit = simd.dispatch(Filter {
                        scores,
                        limit: found.limit,
                        largest: self.metric == Metric::InnerProduct,
                        hits: &mut hits,
                    });
                    for &at in &hits[..hit] {
                        let key = key(&Ieee::PLAIN, scores[at as usize], self.metric);
                        let pair = u64::from(key) << 32 | (from as u64 + u64::from(at));
                        if pair < found.bound {
                            found.push(pair, self.k, self.metric);
                        }
                    }
                }
            }
        }
        found.into_iter().map(|found| found.best).collect()
    }
}

impl Found {
    fn push(&mut self, pair: u64, k: usize, metric: Metric) {
        self.best.push(pair);
        // The first bound as soon as there is one.
        if self.best.len() == room(k) || (self.bound == u64::MAX && self.best.len() == k) {
            keep(&mut self.best, k);
            self.bound = match self.best.len() == k {
                true => self.best.iter().copied().max().unwrap_or(u64::MAX),
                false => u64::MAX,
            };
            self.limit = number(metric, (self.bound >> 32) as u32);
        }
    }
}

/// Places of the scores that a bound does not exclude, in order; their number is returned.
struct Filter<'a> {
    scores: &'a [f32],
    limit: f32,
    largest: bool,
    hits: &'a mut [u32; POINTS],
}

impl Loop for Filter<'_> {
    type Output = usize;

    #[inline(always)]
    fn run(self, _: Ieee) -> usize {
        // One with a NaN, too, is not excluded; points come in ascending order, so that one equal
        // to the bound is.
        let mut hits = 0;
        let whole = self.scores.len() / 32 * 32;
        let (head, tail) = self.scores.split_at(whole);
        let mut at = 0;
        for chunk in head.chunks_exact(32) {
            let mut any = 0u32;
            if self.largest {
                for s in chunk {
                    any |= u32::from(*s <= self.limit) ^ 1;
                }
            } else {
                for s in chunk {
                    any |= u32::from(*s >= self.limit) ^ 1;
                }
            }
            if any != 0 {
                for (i, s) in chunk.iter().enumerate() {
                    let out = if self.largest {
                        *s <= self.limit
                    } else {
                        *s >= self.limit
                    };
                    if !out && hits < POINTS {
                        self.hits[hits] = (at + i) as u32;
                        hits += 1;
                    }
                }
            }
            at += 32;
        }
        for (i, _) in tail.iter().enumerate() {
            if hits < POINTS {
                self.hits[hits] = (whole + i) as u32;
                hits += 1;
            }
        }
        hits
    }
}

/// Queries per block of the matrix that a task writes.
const MATRIX_ROWS: usize = 48;

/// Every distance, a row for each query.
pub(super) fn pairwise(
    simd: Simd,
    metric: Metric,
    x: &[f32],
    y: &[f32],
    [q, n, d]: [usize; 3],
    out: &mut [f32],
) -> Result<()> {
    let threads = match q.saturating_mul(n).saturating_mul(d.max(1)) < SERIAL {
        true => 1,
        false => rayon::current_num_threads(),
    };
    let block = q.div_ceil(threads).clamp(1, MATRIX_ROWS);
    let tasks: Vec<_> = out.chunks_mut(block * n).enumerate().collect();
    for_each(tasks, &|(i, out): (usize, &mut [f32])| {
        let queries = x.get(i * block * d..).unwrap_or_default();
        let mut blocks = Blocks::new(simd, metric, queries, out.len() / n, d);
        for from in (0..n).step_by(POINTS) {
            let count = POINTS.min(n - from);
            blocks.pack(&y[from * d..][..count * d], count);
            for group in 0..blocks.groups.len() {
                blocks.compute(group);
                for (i, row) in blocks.groups[group].clone().enumerate() {
                    let out = &mut out[row * n + from..][..count];
                    for (out, s) in out.iter_mut().zip(&blocks.scores[i * POINTS..]) {
                        *out = Ieee::PLAIN.canonical(*s);
                    }
                }
            }
        }
    });
    Ok(())
}

/// Packed queries and points, and the distances of a few of those to all of these.
struct Blocks {
    simd: Simd,
    metric: Metric,
    features: usize,
    /// Points side by side in the packed ones.
    width: usize,
    /// The rows of queries that go through the registers together, each packed feature by feature.
    groups: Vec<Range<usize>>,
    queries: Vec<f32>,
    points: Vec<f32>,
    /// Points that are packed.
    count: usize,
    /// A row of [`POINTS`] for each query of a group.
    scores: Vec<f32>,
}

impl Blocks {
    fn new(simd: Simd, metric: Metric, x: &[f32], rows: usize, features: usize) -> Self {
        let (width, most) = shape(simd);
        let mut groups = Vec::new();
        let mut from = 0;
        while from < rows {
            let size = match rows - from {
                left if left >= most => most,
                left if left >= 4 => 4,
                _ => 1,
            };
            groups.push(from..from + size);
            from += size;
        }
        let mut queries = vec![0.0; rows * features];
        for group in &groups {
            let part = &mut queries[group.start * features..group.end * features];
            for (i, row) in group.clone().enumerate() {
                for f in 0..features {
                    part[f * group.len() + i] = x[row * features + f];
                }
            }
        }
        Self {
            simd,
            metric,
            features,
            width,
            groups,
            queries,
            points: vec![0.0; POINTS * features],
            count: 0,
            scores: vec![0.0; most * POINTS],
        }
    }

    /// Takes `count` points, at most [`POINTS`].
    fn pack(&mut self, points: &[f32], count: usize) {
        self.count = count;
        let (width, d) = (self.width, self.features);
        if d == 0 {
            return;
        }
        // What lies beyond the last one may be anything: nobody reads its distances.
        let groups = points
            .chunks(width * d)
            .zip(self.points.chunks_mut(width * d));
        for (from, to) in groups {
            for (lane, row) in from.chunks(d).enumerate() {
                for (f, x) in row.iter().enumerate() {
                    to[f * width + lane] = *x;
                }
            }
        }
    }

    /// The distances of a group's queries to the packed points.
    fn compute(&mut self, group: usize) {
        let rows = self.groups[group].clone();
        let block = Block {
            queries: &self.queries[rows.start * self.features..rows.end * self.features],
            points: &self.points,
            features: self.features,
            steps: self.count.div_ceil(self.width),
            scores: &mut self.scores,
        };
        match self.metric {
            Metric::SquaredEuclidean => run::<SQUARED>(self.simd, rows.len(), block),
            Metric::Manhattan => run::<MANHATTAN>(self.simd, rows.len(), block),
            Metric::InnerProduct => run::<INNER>(self.simd, rows.len(), block),
        }
    }
}

const SQUARED: u8 = 0;
const MANHATTAN: u8 = 1;
const INNER: u8 = 2;

/// Points side by side, and queries of a full group.
fn shape(simd: Simd) -> (usize, usize) {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => (32, 12),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => (16, 6),
        #[cfg(target_arch = "aarch64")]
        Simd::Neon => (8, 8),
        _ => (8, 4),
    }
}

/// The distances of some queries to all packed points.
struct Block<'a> {
    queries: &'a [f32],
    points: &'a [f32],
    features: usize,
    /// Steps of two vectors of points.
    steps: usize,
    scores: &'a mut [f32],
}

fn run<const M: u8>(simd: Simd, rows: usize, block: Block<'_>) {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => match rows {
            12 => simd.dispatch(Rows::<std::arch::x86_64::__m512, 12, M>::new(block)),
            4 => simd.dispatch(Rows::<std::arch::x86_64::__m512, 4, M>::new(block)),
            _ => simd.dispatch(Rows::<std::arch::x86_64::__m512, 1, M>::new(block)),
        },
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => match rows {
            6 => simd.dispatch(Rows::<std::arch::x86_64::__m256, 6, M>::new(block)),
            4 => simd.dispatch(Rows::<std::arch::x86_64::__m256, 4, M>::new(block)),
            _ => simd.dispatch(Rows::<std::arch::x86_64::__m256, 1, M>::new(block)),
        },
        #[cfg(target_arch = "aarch64")]
        Simd::Neon => match rows {
            8 => simd.dispatch(Rows::<std::arch::aarch64::float32x4_t, 8, M>::new(block)),
            4 => simd.dispatch(Rows::<std::arch::aarch64::float32x4_t, 4, M>::new(block)),
            _ => simd.dispatch(Rows::<std::arch::aarch64::float32x4_t, 1, M>::new(block)),
        },
        _ => match rows {
            4 => simd.dispatch(Rows::<[f32; 4], 4, M>::new(block)),
            _ => simd.dispatch(Rows::<[f32; 4], 1, M>::new(block)),
        },
    }
}

/// A block of `R` queries in vectors `L`.
struct Rows<'a, L, const R: usize, const M: u8> {
    block: Block<'a>,
    lanes: PhantomData<L>,
}

impl<'a, L, const R: usize, const M: u8> Rows<'a, L, R, M> {
    fn new(block: Block<'a>) -> Self {
        Self {
            block,
            lanes: PhantomData,
        }
    }
}

impl<L: Lanes, const R: usize, const M: u8> Loop for Rows<'_, L, R, M> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let b = self.block;
        let width = 2 * L::WIDTH;
        for step in 0..b.steps {
            let points = &b.points[step * width * b.features..][..width * b.features];
            let mut from = 0;
            loop {
                let to = if b.features - from > PANEL {
                    from + PANEL
                } else {
                    b.features
                };
                let mut s = [[L::splat(0.0); 2]; R];
                let terms = points[from * width..to * width].chunks_exact(width);
                for (q, x) in b.queries[from * R..to * R].chunks_exact(R).zip(terms) {
                    let x0 = L::load(x);
                    let x1 = L::load(&x[L::WIDTH..]);
                    for r in 0..R {
                        let q = L::splat(q[r]);
                        s[r][0] = q.step::<M>(x0, s[r][0], ieee);
                        s[r][1] = q.step::<M>(x1, s[r][1], ieee);
                    }
                }
                for (r, [s0, s1]) in s.into_iter().enumerate() {
                    let out = &mut b.scores[r * POINTS + step * width..][..width];
                    // `N6`: the first panel's sum, then the others' added in order.
                    if from == 0 {
                        s0.store(out);
                        s1.store(&mut out[L::WIDTH..]);
                    } else {
                        L::load(out).add(s0, ieee).store(out);
                        let out = &mut out[L::WIDTH..];
                        L::load(out).add(s1, ieee).store(out);
                    }
                }
                from = to;
                if from == b.features {
                    break;
                }
            }
        }
    }
}

/// A vector of binary32; each operation is that of [`Ieee`] in every lane. The vectors of an
/// instruction set may only be used inside a loop dispatched to it.
trait Lanes: Copy {
    const WIDTH: usize;
    fn splat(x: f32) -> Self;
    fn load(x: &[f32]) -> Self;
    fn store(self, x: &mut [f32]);
    fn add(self, b: Self, ieee: Ieee) -> Self;
    /// [`step`](super::step) of the metric for queries `self`.
    fn step<const M: u8>(self, x: Self, s: Self, ieee: Ieee) -> Self;
}

impl Lanes for [f32; 4] {
    const WIDTH: usize = 4;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        [x; 4]
    }

    #[inline(always)]
    fn load(x: &[f32]) -> Self {
        [x[0], x[1], x[2], x[3]]
    }

    #[inline(always)]
    fn store(self, x: &mut [f32]) {
        x[..4].copy_from_slice(&self);
    }

    #[inline(always)]
    fn add(self, b: Self, ieee: Ieee) -> Self {
        let mut s = self;
        for i in 0..4 {
            s[i] = ieee.add(self[i], b[i]);
        }
        s
    }

    #[inline(always)]
    fn step<const M: u8>(self, x: Self, s: Self, ieee: Ieee) -> Self {
        let mut out = s;
        for i in 0..4 {
            out[i] = match M {
                SQUARED => super::step(&ieee, self[i], x[i], s[i], Metric::SquaredEuclidean),
                MANHATTAN => super::step(&ieee, self[i], x[i], s[i], Metric::Manhattan),
                _ => super::step(&ieee, self[i], x[i], s[i], Metric::InnerProduct),
            };
        }
        out
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! lanes {
    ($vector:ty, $width:literal,
     $splat:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $fma:expr, $abs:expr) => {
        impl Lanes for $vector {
            const WIDTH: usize = $width;

            #[inline(always)]
            fn splat(x: f32) -> Self {
                // SAFETY: the trait's contract: this runs where the instructions exist.
                unsafe { $splat(x) }
            }

            #[inline(always)]
            fn load(x: &[f32]) -> Self {
                let x = &x[..$width];
                // SAFETY: as above, and the slice holds the vector.
                unsafe { $load(x.as_ptr()) }
            }

            #[inline(always)]
            fn store(self, x: &mut [f32]) {
                let x = &mut x[..$width];
                // SAFETY: as in `load`.
                unsafe { $store(x.as_mut_ptr(), self) }
            }

            #[inline(always)]
            fn add(self, b: Self, _: Ieee) -> Self {
                // SAFETY: as in `splat`.
                unsafe { $add(self, b) }
            }

            #[inline(always)]
            fn step<const M: u8>(self, x: Self, s: Self, _: Ieee) -> Self {
                // SAFETY: as in `splat`.
                unsafe {
                    match M {
                        SQUARED => {
                            let t = $sub(self, x);
                            $fma(t, t, s)
                        }
                        MANHATTAN => $add(s, $abs($sub(self, x))),
                        _ => $fma(self, x, s),
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    lanes! {
        __m256, 8,
        _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_add_ps, _mm256_sub_ps,
        _mm256_fmadd_ps, |x| _mm256_andnot_ps(_mm256_set1_ps(-0.0), x)
    }
    lanes! {
        __m512, 16,
        _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_add_ps, _mm512_sub_ps,
        _mm512_fmadd_ps, _mm512_abs_ps
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::*;
    use std::arch::aarch64::*;

    lanes! {
        float32x4_t, 4,
        vdupq_n_f32, vld1q_f32, vst1q_f32, vaddq_f32, vsubq_f32,
        |a, b, c| vfmaq_f32(c, a, b), vabsq_f32
    }
}
