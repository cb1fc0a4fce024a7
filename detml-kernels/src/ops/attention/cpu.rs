//! The CPU path: queries (for keys' gradients: keys) lie in the lanes of vectors, so that maxima,
//! weights and sums of a tile are vertical and two micro-kernels do all products.
//!
//! A task owns the tile of one vector group of queries, or keys, and walks the other side in
//! blocks. Pairs that every lane of a tile takes go through the micro-kernels, those along the
//! diagonal one by one with a select.

use super::{BLOCK, LOWEST, Problem, SEGMENT, finish, larger};
use crate::device::{Loop, Simd, zeros};
use crate::ieee::Ieee;
use crate::math::{exp_weight, ln};
use crate::ops::gemm::PANEL;
use crate::ops::gemm::lanes::Lanes;
use crate::ops::parallel::for_each;
use detml_core::Result;
use std::marker::PhantomData;
use std::ops::Range;

/// Lanes of the widest tile.
const MOST: usize = 32;
/// Multiply-adds below which threads cost more than they bring.
const SERIAL: usize = 1 << 18;

/// The outputs and log-sum-exps.
pub(super) fn forward(
    simd: Simd,
    p: &Problem,
    inputs: [&[f32]; 3],
    lengths: &[u32],
    out: &mut [f32],
    sums: &mut [f32],
) {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => forward_by::<std::arch::x86_64::__m512>(p, inputs, lengths, out, sums),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => forward_by::<std::arch::x86_64::__m256>(p, inputs, lengths, out, sums),
        #[cfg(target_arch = "aarch64")]
        Simd::Neon => forward_by::<std::arch::aarch64::float32x4_t>(p, inputs, lengths, out, sums),
        _ => forward_by::<[f32; 4]>(p, inputs, lengths, out, sums),
    }
}

/// The gradients of the queries, keys and values; `known` are the output, log-sum-exps and the
/// output's gradient.
pub(super) fn backward(
    simd: Simd,
    p: &Problem,
    inputs: [&[f32]; 3],
    lengths: &[u32],
    known: [&[f32]; 3],
    gradients: [&mut [f32]; 3],
) -> Result<()> {
    let mut deltas = zeros(p.rows())?;
    let job = Job {
        p,
        inputs,
        lengths,
        known,
    };
    let deltas = &mut deltas;
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => backward_by::<std::arch::x86_64::__m512>(job, deltas, gradients),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => backward_by::<std::arch::x86_64::__m256>(job, deltas, gradients),
        #[cfg(target_arch = "aarch64")]
        Simd::Neon => backward_by::<std::arch::aarch64::float32x4_t>(job, deltas, gradients),
        _ => backward_by::<[f32; 4]>(job, deltas, gradients),
    }
    Ok(())
}

const fn lanes<L: Lanes>() -> usize {
    L::WIDTH * L::VECTORS
}

#[derive(Clone, Copy)]
struct Job<'a> {
    p: &'a Problem,
    inputs: [&'a [f32]; 3],
    lengths: &'a [u32],
    known: [&'a [f32]; 3],
}

/// Queries that lie in the lanes of one tile.
struct Queries<'a, const N: usize> {
    /// Member and key head, as one number.
    owner: usize,
    /// The first of all rows.
    row: usize,
    count: usize,
    /// Rows of `width`, or of one number.
    out: [&'a mut [f32]; N],
}

/// Cuts the queries of each key head into tiles. Where a head has few, tiles go on to the next.
fn tiles<'a, L: Lanes, const N: usize>(
    p: &Problem,
    widths: [usize; N],
    mut out: [&'a mut [f32]; N],
) -> Vec<Queries<'a, N>> {
    let heads = p.group();
    let (stretches, length) = if p.queries >= lanes::<L>() / 2 {
        (heads, p.queries)
    } else {
        (1, heads * p.queries)
    };
    let mut tiles = Vec::new();
    let mut row = 0;
    for owner in 0..p.batch * p.kv_heads {
        for _ in 0..stretches {
            let mut left = length;
            while left > 0 {
                let count = left.min(lanes::<L>());
                tiles.push(Queries {
                    owner,
                    row,
                    count,
                    out: split_off(&mut out, widths.map(|width| width * count)),
                });
                row += count;
                left -= count;
            }
        }
    }
    tiles
}

/// Takes the first `sizes` of each slice.
fn split_off<'a, const N: usize>(
    from: &mut [&'a mut [f32]; N],
    sizes: [usize; N],
) -> [&'a mut [f32]; N] {
    std::array::from_fn(|i| {
        let (head, tail) = std::mem::take(&mut from[i]).split_at_mut(sizes[i]);
        from[i] = tail;
        head
    })
}

/// Runs the tasks, on threads where there is enough to do for several.
fn spread<T: Send>(p: &Problem, tasks: Vec<T>, f: &(dyn Fn(T) + Sync)) {
    let work = [p.rows(), p.keys, p.width]
        .into_iter()
        .fold(1usize, usize::saturating_mul);
    if work < SERIAL {
        tasks.into_iter().for_each(f);
    } else {
        for_each(tasks, f);
    }
}

fn forward_by<L: Lanes>(
    p: &Problem,
    [q, k, v]: [&[f32]; 3],
    lengths: &[u32],
    out: &mut [f32],
    sums: &mut [f32],
) {
    let tiles = tiles::<L, 2>(p, [p.width, 1], [out, sums]);
    spread(p, tiles, &|tile| {
        let (batch, head) = (tile.owner / p.kv_heads, tile.owner % p.kv_heads);
        let [out, sums] = tile.out;
        L::dispatch(Forward::<L> {
            width: p.width,
            scale: p.scale,
            visible: visible::<L>(p, lengths, batch, tile.row, tile.count),
            q: &q[tile.row * p.width..][..tile.count * p.width],
            k: p.head(k, batch, head),
            v: p.head(v, batch, head),
            out,
            sums,
            lanes_type: PhantomData,
        });
    });
}

/// The keys that the queries of a tile see; surplus lanes see what the last one does.
fn visible<L: Lanes>(
    p: &Problem,
    lengths: &[u32],
    batch: usize,
    row: usize,
    count: usize,
) -> [u32; MOST] {
    std::array::from_fn(|lane| {
        let row = row + lane.min(count - 1);
        p.visible(lengths, batch, row % p.queries) as u32
    })
}

struct Forward<'a, L> {
    width: usize,
    scale: f32,
    visible: [u32; MOST],
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    out: &'a mut [f32],
    sums: &'a mut [f32],
    lanes_type: PhantomData<L>,
}

/// The least and largest of the lanes' limits.
#[inline(always)]
fn range(visible: &[u32]) -> (usize, usize) {
    let (mut least, mut most) = (u32::MAX, 0);
    for &n in visible {
        least = least.min(n);
        most = most.max(n);
    }
    (least as usize, most as usize)
}

impl<L: Lanes> Loop for Forward<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let lanes = lanes::<L>();
        let width = self.width;
        let visible = &self.visible[..lanes];
        let (full, most) = range(visible);
        let mut scratch = vec![0.0f32; lanes * (3 * width + BLOCK + BLOCK / 2)];
        let (x, scratch) = scratch.split_at_mut(lanes * width);
        let (o, scratch) = scratch.split_at_mut(lanes * width);
        let (o_all, scratch) = scratch.split_at_mut(lanes * width);
        let (scores, halves) = scratch.split_at_mut(lanes * BLOCK);
        pack(self.q, width, lanes, x);
        let (mut m_all, mut l_all) = ([LOWEST; MOST], [0.0f32; MOST]);
        for segment in (0..most).step_by(SEGMENT) {
            let (mut m, mut l) = ([LOWEST; MOST], [0.0f32; MOST]);
            o.fill(0.0);
            let end = most.min(segment + SEGMENT);
            for block in (segment..end).step_by(BLOCK) {
                let n = BLOCK.min(end - block);
                dot::<L>(ieee, &self.k[block * width..], width, n, x, scores);
                let mut next = m;
                for j in 0..n {
                    let scores = &mut scores[j * lanes..][..lanes];
                    let key = (block + j) as u32;
                    for i in 0..lanes {
                        let s = ieee.mul(scores[i], self.scale);
                        // A weight of +0, which leaves the sum as it is.
                        let s = if key < visible[i] {
                            s
                        } else {
                            f32::NEG_INFINITY
                        };
                        scores[i] = s;
                        next[i] = larger(&ieee, next[i], s);
                    }
                }
                let mut c = [0.0f32; MOST];
                for i in 0..lanes {
                    c[i] = exp_weight(&ieee, ieee.sub(m[i], next[i]));
                }
                for j in 0..n {
                    let scores = &mut scores[j * lanes..][..lanes];
                    for i in 0..lanes {
                        scores[i] = exp_weight(&ieee, ieee.sub(scores[i], next[i]));
                    }
                }
                scores[n * lanes..].fill(0.0);
                tree(ieee, scores, halves);
                for i in 0..lanes {
                    l[i] = ieee.fma(l[i], c[i], halves[i]);
                }
                for d in 0..width {
                    let o = &mut o[d * lanes..][..lanes];
                    for i in 0..lanes {
                        o[i] = ieee.mul(o[i], c[i]);
                    }
                }
                let v = &self.v[block * width..];
                let open = full.clamp(block, block + n) - block;
                accumulate::<L>(ieee, scores, v, width, open, o);
                for j in open..n {
                    let seen = |i: usize| ((block + j) as u32) < visible[i];
                    let v = &v[j * width..][..width];
                    masked::<L>(ieee, &scores[j * lanes..], v, seen, o);
                }
                m = next;
            }
            let (mut a, mut b) = ([0.0f32; MOST], [0.0f32; MOST]);
            for i in 0..lanes {
                let next = larger(&ieee, m_all[i], m[i]);
                a[i] = exp_weight(&ieee, ieee.sub(m_all[i], next));
                b[i] = exp_weight(&ieee, ieee.sub(m[i], next));
                l_all[i] = ieee.fma(l[i], b[i], ieee.mul(l_all[i], a[i]));
                m_all[i] = next;
            }
            for d in 0..width {
                let o = &o[d * lanes..][..lanes];
                let all = &mut o_all[d * lanes..][..lanes];
                for i in 0..lanes {
                    all[i] = ieee.fma(o[i], b[i], ieee.mul(all[i], a[i]));
                }
            }
        }
        for d in 0..width {
            let o = &mut o_all[d * lanes..][..lanes];
            for i in 0..lanes {
                let y = finish(&ieee, ieee.div(o[i], l_all[i]));
                o[i] = if visible[i] == 0 { 0.0 } else { y };
            }
        }
        unpack(o_all, width, lanes, self.out);
        for i in 0..self.sums.len() {
            self.sums[i] = ieee.canonical(ieee.add(m_all[i], ln(&ieee, l_all[i])));
        }
    }
}

fn backward_by<L: Lanes>(job: Job<'_>, deltas: &mut [f32], [d_q, d_k, d_v]: [&mut [f32]; 3]) {
    let Job {
        p,
        inputs: [q, k, v],
        lengths,
        known: [out, sums, d_out],
    } = job;
    if p.rows() > 0 {
        let tiles = tiles::<L, 2>(p, [p.width, 1], [d_q, &mut *deltas]);
        spread(p, tiles, &|tile| {
            let (batch, head) = (tile.owner / p.kv_heads, tile.owner % p.kv_heads);
            let rows = |x: &'_ [f32]| -> Range<usize> {
                let width = x.len() / p.rows();
                tile.row * width..(tile.row + tile.count) * width
            };
            let [d_q, deltas] = tile.out;
            L::dispatch(OfQueries::<L> {
                width: p.width,
                scale: p.scale,
                visible: visible::<L>(p, lengths, batch, tile.row, tile.count),
                q: &q[rows(q)],
                k: p.head(k, batch, head),
                v: p.head(v, batch, head),
                out: &out[rows(out)],
                sums: &sums[rows(sums)],
                d_out: &d_out[rows(d_out)],
                d_q,
                deltas,
                lanes_type: PhantomData,
            });
        });
    }

    let mut tasks = Vec::new();
    let mut left = [d_k, d_v];
    for owner in 0..p.batch * p.kv_heads {
        for first in (0..p.keys).step_by(lanes::<L>()) {
            let count = lanes::<L>().min(p.keys - first);
            tasks.push((owner, first, split_off(&mut left, [count * p.width; 2])));
        }
    }
    let deltas = &*deltas;
    spread(p, tasks, &|(owner, first, [d_k, d_v])| {
        let (batch, head) = (owner / p.kv_heads, owner % p.kv_heads);
        let rows = p.group() * p.queries;
        let own = |x: &'_ [f32]| -> Range<usize> {
            let size = x.len() / (p.batch * p.kv_heads);
            owner * size..(owner + 1) * size
        };
        let keys = first * p.width..first * p.width + d_k.len();
        L::dispatch(OfKeys::<L> {
            p,
            lengths,
            batch,
            first,
            rows,
            q: &q[own(q)],
            k: &p.head(k, batch, head)[keys.clone()],
            v: &p.head(v, batch, head)[keys],
            sums: &sums[own(sums)],
            d_out: &d_out[own(d_out)],
            deltas: &deltas[own(deltas)],
            d_k,
            d_v,
            lanes_type: PhantomData,
        });
    });
}

/// The gradients of a tile of queries, and their `D`.
struct OfQueries<'a, L> {
    width: usize,
    scale: f32,
    visible: [u32; MOST],
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    out: &'a [f32],
    sums: &'a [f32],
    d_out: &'a [f32],
    d_q: &'a mut [f32],
    deltas: &'a mut [f32],
    lanes_type: PhantomData<L>,
}

impl<L: Lanes> Loop for OfQueries<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let lanes = lanes::<L>();
        let width = self.width;
        let visible = &self.visible[..lanes];
        let (full, most) = range(visible);
        let mut scratch = vec![0.0f32; lanes * (4 * width + 2 * BLOCK)];
        let (x, scratch) = scratch.split_at_mut(lanes * width);
        let (y, scratch) = scratch.split_at_mut(lanes * width);
        let (total, scratch) = scratch.split_at_mut(lanes * width);
        let (sum, scratch) = scratch.split_at_mut(lanes * width);
        let (scores, slopes) = scratch.split_at_mut(lanes * BLOCK);
        pack(self.q, width, lanes, x);
        pack(self.d_out, width, lanes, y);
        // The outputs, for as long as `D` needs them.
        pack(self.out, width, lanes, sum);
        let mut deltas = [0.0f32; MOST];
        for panel in (0..width).step_by(PANEL) {
            let mut chain = [0.0f32; MOST];
            for d in panel..width.min(panel + PANEL) {
                let (a, b) = (&y[d * lanes..][..lanes], &sum[d * lanes..][..lanes]);
                for i in 0..lanes {
                    chain[i] = ieee.fma(a[i], b[i], chain[i]);
                }
            }
            for i in 0..lanes {
                deltas[i] = if panel == 0 {
                    chain[i]
                } else {
                    ieee.add(deltas[i], chain[i])
                };
            }
        }
        self.deltas.copy_from_slice(&deltas[..self.deltas.len()]);
        let mut sums = [0.0f32; MOST];
        sums[..self.sums.len()].copy_from_slice(self.sums);

        for panel in (0..most).step_by(PANEL) {
            sum.fill(0.0);
            let end = most.min(panel + PANEL);
            for block in (panel..end).step_by(BLOCK) {
                let n = BLOCK.min(end - block);
                dot::<L>(ieee, &self.k[block * width..], width, n, x, scores);
                dot::<L>(ieee, &self.v[block * width..], width, n, y, slopes);
                for j in 0..n {
                    let scores = &mut scores[j * lanes..][..lanes];
                    let slopes = &slopes[j * lanes..][..lanes];
                    for i in 0..lanes {
                        let s = ieee.mul(scores[i], self.scale);
                        let w = exp_weight(&ieee, ieee.sub(s, sums[i]));
                        scores[i] = ieee.mul(w, ieee.sub(slopes[i], deltas[i]));
                    }
                }
                let k = &self.k[block * width..];
                let open = full.clamp(block, block + n) - block;
                accumulate::<L>(ieee, scores, k, width, open, sum);
                for j in open..n {
                    let seen = |i: usize| ((block + j) as u32) < visible[i];
                    let k = &k[j * width..][..width];
                    masked::<L>(ieee, &scores[j * lanes..], k, seen, sum);
                }
            }
            add(ieee, total, sum);
        }
        scaled(ieee, total, self.scale);
        for total in total.chunks_exact_mut(lanes) {
            for i in 0..lanes {
                total[i] = if visible[i] == 0 { 0.0 } else { total[i] };
            }
        }
        unpack(total, width, lanes, self.d_q);
    }
}

/// The gradients of a tile of keys and their values.
struct OfKeys<'a, L> {
    p: &'a Problem,
    lengths: &'a [u32],
    batch: usize,
    /// The first key.
    first: usize,
    /// Queries of the heads that read these keys.
    rows: usize,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    sums: &'a [f32],
    d_out: &'a [f32],
    deltas: &'a [f32],
    d_k: &'a mut [f32],
    d_v: &'a mut [f32],
    lanes_type: PhantomData<L>,
}

impl<L: Lanes> Loop for OfKeys<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let lanes = lanes::<L>();
        let p = self.p;
        let width = p.width;
        // Keys from there on are seen by none: their lanes are surplus.
        let existing = p.visible(self.lengths, self.batch, p.queries.max(1) - 1);
        let count = (self.k.len() / width).min(existing.saturating_sub(self.first));
        let mut scratch = vec![0.0f32; lanes * (6 * width + 2 * BLOCK)];
        let (x, scratch) = scratch.split_at_mut(lanes * width);
        let (y, scratch) = scratch.split_at_mut(lanes * width);
        let (total_k, scratch) = scratch.split_at_mut(lanes * width);
        let (total_v, scratch) = scratch.split_at_mut(lanes * width);
        let (sum_k, scratch) = scratch.split_at_mut(lanes * width);
        let (sum_v, scratch) = scratch.split_at_mut(lanes * width);
        let (weights, slopes) = scratch.split_at_mut(lanes * BLOCK);
        pack(&self.k[..count * width], width, lanes, x);
        pack(&self.v[..count * width], width, lanes, y);
        let rows = if count > 0 { self.rows } else { 0 };
        for panel in (0..rows).step_by(PANEL) {
            sum_k.fill(0.0);
            sum_v.fill(0.0);
            let end = rows.min(panel + PANEL);
            for block in (panel..end).step_by(BLOCK) {
                let n = BLOCK.min(end - block);
                // How many of the lanes each query sees.
                let mut seen = [0usize; BLOCK];
                let (mut from, mut to) = (n, 0);
                for (i, seen) in seen[..n].iter_mut().enumerate() {
                    let limit = p.visible(self.lengths, self.batch, (block + i) % p.queries);
                    *seen = limit.saturating_sub(self.first).min(count);
                    if *seen > 0 {
                        from = from.min(i);
                        to = i + 1;
                    }
                }
                if from >= to {
                    continue;
                }
                let q = &self.q[block * width..];
                let d_out = &self.d_out[block * width..];
                let at = from * width;
                dot::<L>(ieee, &q[at..], width, to - from, x, weights);
                dot::<L>(ieee, &d_out[at..], width, to - from, y, slopes);
                for i in from..to {
                    let weights = &mut weights[(i - from) * lanes..][..lanes];
                    let slopes = &mut slopes[(i - from) * lanes..][..lanes];
                    let (sum, delta) = (self.sums[block + i], self.deltas[block + i]);
                    for j in 0..lanes {
                        let s = ieee.mul(weights[j], p.scale);
                        let w = exp_weight(&ieee, ieee.sub(s, sum));
                        weights[j] = w;
                        slopes[j] = ieee.mul(w, ieee.sub(slopes[j], delta));
                    }
                }
                let mut i = from;
                while i < to {
                    let mut run = i;
                    while run < to && seen[run] == count {
                        run += 1;
                    }
                    let at = (i - from) * lanes;
                    if run > i {
                        let rows = i * width;
                        accumulate::<L>(
                            ieee,
                            &weights[at..],
                            &d_out[rows..],
                            width,
                            run - i,
                            sum_v,
                        );
                        accumulate::<L>(ieee, &slopes[at..], &q[rows..], width, run - i, sum_k);
                        i = run;
                    } else {
                        let taken = |j: usize| j < seen[i];
                        let row = i * width..(i + 1) * width;
                        masked::<L>(ieee, &weights[at..], &d_out[row.clone()], taken, sum_v);
                        masked::<L>(ieee, &slopes[at..], &q[row], taken, sum_k);
                        i += 1;
                    }
                }
            }
            add(ieee, total_k, sum_k);
            add(ieee, total_v, sum_v);
        }
        scaled(ieee, total_k, p.scale);
        for x in total_v.iter_mut() {
            *x = finish(&ieee, *x);
        }
        unpack(total_k, width, lanes, &mut self.d_k[..count * width]);
        unpack(total_v, width, lanes, &mut self.d_v[..count * width]);
        self.d_k[count * width..].fill(0.0);
        self.d_v[count * width..].fill(0.0);
    }
}

/// Rows as columns of `lanes`; +0 in the lanes that have no row.
#[inline(always)]
fn pack(rows: &[f32], width: usize, lanes: usize, out: &mut [f32]) {
    out.fill(0.0);
    for (i, row) in rows.chunks_exact(width).enumerate() {
        for (d, &x) in row.iter().enumerate() {
            out[d * lanes + i] = x;
        }
    }
}

/// What [`pack`] did, undone.
#[inline(always)]
fn unpack(x: &[f32], width: usize, lanes: usize, rows: &mut [f32]) {
    for (i, row) in rows.chunks_exact_mut(width).enumerate() {
        for (d, to) in row.iter_mut().enumerate() {
            *to = x[d * lanes + i];
        }
    }
}

#[inline(always)]
fn add(ieee: Ieee, total: &mut [f32], sum: &[f32]) {
    for (total, &sum) in total.iter_mut().zip(sum) {
        *total = ieee.add(*total, sum);
    }
}

#[inline(always)]
fn scaled(ieee: Ieee, x: &mut [f32], scale: f32) {
    for x in x {
        *x = finish(&ieee, ieee.mul(*x, scale));
    }
}

/// The sums of a block's weights (`N5`), into the first lanes of `halves`.
#[inline(always)]
fn tree(ieee: Ieee, x: &[f32], halves: &mut [f32]) {
    let mut half = halves.len();
    let (low, high) = x.split_at(half);
    for i in 0..half {
        halves[i] = ieee.add(low[i], high[i]);
    }
    for _ in 0..BLOCK.ilog2() - 1 {
        half /= 2;
        let (low, high) = halves.split_at_mut(half);
        for i in 0..half {
            low[i] = ieee.add(low[i], high[i]);
        }
    }
}

/// The products of `n` rows with the columns of `x`, over the width in panels (`N6`).
#[inline(always)]
fn dot<L: Lanes>(ieee: Ieee, rows: &[f32], width: usize, n: usize, x: &[f32], out: &mut [f32]) {
    match L::VECTORS {
        1 => dot_by::<L, 1>(ieee, rows, width, n, x, out),
        2 => dot_by::<L, 2>(ieee, rows, width, n, x, out),
        _ => dot_by::<L, 3>(ieee, rows, width, n, x, out),
    }
}

#[inline(always)]
fn dot_by<L: Lanes, const V: usize>(
    ieee: Ieee,
    rows: &[f32],
    width: usize,
    n: usize,
    x: &[f32],
    out: &mut [f32],
) {
    for panel in (0..width).step_by(PANEL) {
        let depth = PANEL.min(width - panel);
        let x = &x[panel * V * L::WIDTH..][..depth * V * L::WIDTH];
        let mut row = 0;
        if L::ROWS >= 8 {
            while row + 8 <= n {
                let rows = &rows[row * width + panel..];
                let out = &mut out[row * V * L::WIDTH..];
                dots::<L, 8, V>(ieee, rows, width, depth, x, out, panel == 0);
                row += 8;
            }
        }
        while row + 4 <= n {
            let rows = &rows[row * width + panel..];
            let out = &mut out[row * V * L::WIDTH..];
            dots::<L, 4, V>(ieee, rows, width, depth, x, out, panel == 0);
            row += 4;
        }
        while row < n {
            let rows = &rows[row * width + panel..];
            let out = &mut out[row * V * L::WIDTH..];
            dots::<L, 1, V>(ieee, rows, width, depth, x, out, panel == 0);
            row += 1;
        }
    }
}

#[inline(always)]
fn dots<L: Lanes, const R: usize, const V: usize>(
    ieee: Ieee,
    rows: &[f32],
    width: usize,
    depth: usize,
    x: &[f32],
    out: &mut [f32],
    first: bool,
) {
    let rows: [&[f32]; R] = std::array::from_fn(|r| &rows[r * width..][..depth]);
    let mut sums = [[L::splat(0.0); V]; R];
    for (d, x) in x.chunks_exact(V * L::WIDTH).enumerate().take(depth) {
        let x: [L; V] = std::array::from_fn(|v| L::load(&x[v * L::WIDTH..]));
        for r in 0..R {
            let a = L::splat(rows[r][d]);
            for v in 0..V {
                sums[r][v] = a.fma(x[v], sums[r][v], ieee);
            }
        }
    }
    for r in 0..R {
        for v in 0..V {
            let out = &mut out[(r * V + v) * L::WIDTH..];
            let sum = if first {
                sums[r][v]
            } else {
                L::load(out).add(sums[r][v], ieee)
            };
            sum.store(out);
        }
    }
}

/// Goes on with the chains of `sums`, columns of the width, over `n` rows of factors and of terms.
#[inline(always)]
fn accumulate<L: Lanes>(
    ieee: Ieee,
    factors: &[f32],
    rows: &[f32],
    width: usize,
    n: usize,
    sums: &mut [f32],
) {
    match L::VECTORS {
        1 => accumulate_by::<L, 1>(ieee, factors, rows, width, n, sums),
        2 => accumulate_by::<L, 2>(ieee, factors, rows, width, n, sums),
        _ => accumulate_by::<L, 3>(ieee, factors, rows, width, n, sums),
    }
}

#[inline(always)]
fn accumulate_by<L: Lanes, const V: usize>(
    ieee: Ieee,
    factors: &[f32],
    rows: &[f32],
    width: usize,
    n: usize,
    sums: &mut [f32],
) {
    if n == 0 {
        return;
    }
    let mut d = 0;
    if L::ROWS >= 8 {
        while d + 8 <= width {
            let sums = &mut sums[d * V * L::WIDTH..];
            chains::<L, 8, V>(ieee, factors, &rows[d..], width, n, sums);
            d += 8;
        }
    }
    while d + 4 <= width {
        let sums = &mut sums[d * V * L::WIDTH..];
        chains::<L, 4, V>(ieee, factors, &rows[d..], width, n, sums);
        d += 4;
    }
    while d < width {
        let sums = &mut sums[d * V * L::WIDTH..];
        chains::<L, 1, V>(ieee, factors, &rows[d..], width, n, sums);
        d += 1;
    }
}

#[inline(always)]
fn chains<L: Lanes, const R: usize, const V: usize>(
    ieee: Ieee,
    factors: &[f32],
    rows: &[f32],
    width: usize,
    n: usize,
    out: &mut [f32],
) {
    let mut sums = [[L::splat(0.0); V]; R];
    for r in 0..R {
        for v in 0..V {
            sums[r][v] = L::load(&out[(r * V + v) * L::WIDTH..]);
        }
    }
    for (i, x) in factors.chunks_exact(V * L::WIDTH).enumerate().take(n) {
        let x: [L; V] = std::array::from_fn(|v| L::load(&x[v * L::WIDTH..]));
        let row = &rows[i * width..][..R];
        for r in 0..R {
            let a = L::splat(row[r]);
            for v in 0..V {
                sums[r][v] = a.fma(x[v], sums[r][v], ieee);
            }
        }
    }
    for r in 0..R {
        for v in 0..V {
            sums[r][v].store(&mut out[(r * V + v) * L::WIDTH..]);
        }
    }
}

/// As [`accumulate`] for one row that only some lanes take.
#[inline(always)]
fn masked<L: Lanes>(
    ieee: Ieee,
    factors: &[f32],
    row: &[f32],
    takes: impl Fn(usize) -> bool,
    sums: &mut [f32],
) {
    let lanes = lanes::<L>();
    let factors = &factors[..lanes];
    let mut mask = [false; MOST];
    for i in 0..lanes {
        mask[i] = takes(i);
    }
    for (d, &x) in row.iter().enumerate() {
        let sums = &mut sums[d * lanes..][..lanes];
        for i in 0..lanes {
            let sum = ieee.fma(factors[i], x, sums[i]);
            sums[i] = if mask[i] { sum } else { sums[i] };
        }
    }
}
