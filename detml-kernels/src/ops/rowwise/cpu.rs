//! Threads own rows. A row's passes find it in the cache; lanes are elements of arrays, so that
//! they are summed by vector instructions.

use super::Job;
use super::gpu::Outputs;
use super::terms::{self, First, Op, Two};
use crate::device::{Buffer, Loop, Simd};
use crate::ieee::Ieee;
use crate::ops::parallel::for_each;
use crate::ops::reduce::{LANES, SEGMENT};
use detml_core::Result;
use std::marker::PhantomData;
use std::ops::Range;

/// Elements that are worth a task of their own.
const TASK: usize = 1 << 15;
/// Elements that loops over vectors take at a time, and at most.
const BLOCK: usize = 16;
const WIDE: usize = 64;
/// Columns that are summed together: their lanes stay in the cache.
const TILE: usize = 64;

/// An operation as a type, for which loops are compiled.
trait Of {
    const OP: Op;
    const WEIGHTED: bool;
    const BIASED: bool;
}

macro_rules! of {
    ($($Name:ident = $op:ident, $weighted:literal, $biased:literal;)+) => {
        $(
            struct $Name;
            impl Of for $Name {
                const OP: Op = Op::$op;
                const WEIGHTED: bool = $weighted;
                const BIASED: bool = $biased;
            }
        )+

        fn run_tasks(simd: Simd, job: &Job<'_>, rows: &Rows<'_>, tasks: Vec<Task<'_>>) {
            match (job.op, job.given()) {
                $((Op::$op, [$weighted, $biased]) => for_each(tasks, &|task| {
                    simd.dispatch(Work::<$Name> { rows, task, _of: PhantomData });
                }),)+
                // Only norms have weights, and a layer norm a bias.
                _ => {}
            }
        }
    };
}

of! {
    Softmax = Softmax, false, false;
    LogSoftmax = LogSoftmax, false, false;
    Layer = LayerNorm, false, false;
    LayerWeighted = LayerNorm, true, false;
    LayerBiased = LayerNorm, false, true;
    LayerBoth = LayerNorm, true, true;
    Rms = RmsNorm, false, false;
    RmsWeighted = RmsNorm, true, false;
    Moments = Moments, false, false;
    SoftmaxBackward = SoftmaxBackward, false, false;
    LogSoftmaxBackward = LogSoftmaxBackward, false, false;
    LayerBackward = LayerNormBackward, false, false;
    LayerWeightedBackward = LayerNormBackward, true, false;
    RmsBackward = RmsNormBackward, false, false;
    RmsWeightedBackward = RmsNormBackward, true, false;
}

/// The operands.
struct Rows<'a> {
    x: &'a [f32],
    y: &'a [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    mean: &'a [f32],
    scale: &'a [f32],
    columns: usize,
    eps: f32,
    ddof: u32,
}

/// Some rows' results.
struct Task<'a> {
    row: usize,
    count: usize,
    out: &'a mut [f32],
    first: &'a mut [f32],
    scale: &'a mut [f32],
}

struct Work<'a, O> {
    rows: &'a Rows<'a>,
    task: Task<'a>,
    _of: PhantomData<O>,
}

fn host(buffer: Option<&Buffer<f32>>) -> &[f32] {
    buffer.and_then(Buffer::host).unwrap_or(&[])
}

fn host_mut(buffer: Option<&mut Buffer<f32>>) -> &mut [f32] {
    buffer.and_then(Buffer::host_mut).unwrap_or(&mut [])
}

/// The first `n`, or none if there are none at all.
fn take<'a>(from: &mut &'a mut [f32], n: usize) -> &'a mut [f32] {
    let all = std::mem::take(from);
    let n = n.min(all.len());
    let (now, later) = all.split_at_mut(n);
    *from = later;
    now
}

pub(super) fn run(simd: Simd, job: &Job<'_>, to: Outputs<'_>) -> Result<()> {
    let rows = Rows {
        x: host(Some(job.x)),
        y: host(job.y),
        weight: host(job.weight),
        bias: host(job.bias),
        mean: host(job.mean),
        scale: host(job.scale),
        columns: job.columns,
        eps: job.eps,
        ddof: job.ddof,
    };
    let mut out = host_mut(Some(to.out));
    let mut first = host_mut(to.first);
    let mut scale = host_mut(to.scale);
    let each = (TASK / job.columns).max(1);
    let mut tasks = Vec::with_capacity(job.rows.div_ceil(each));
    for row in (0..job.rows).step_by(each) {
        let count = each.min(job.rows - row);
        tasks.push(Task {
            row,
            count,
            out: take(&mut out, count * job.columns),
            first: take(&mut first, count),
            scale: take(&mut scale, count),
        });
    }
    run_tasks(simd, job, &rows, tasks);
    Ok(())
}

impl<O: Of> Loop for Work<'_, O> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let columns = self.rows.columns;
        let mut parts = [Vec::new(), Vec::new()];
        for i in 0..self.task.count {
            let out = if O::OP.maps() {
                &mut self.task.out[i * columns..(i + 1) * columns]
            } else {
                &mut []
            };
            let r = self.task.row + i;
            let row = Row {
                x: &self.rows.x[r * columns..(r + 1) * columns],
                y: if O::OP.backward() {
                    &self.rows.y[r * columns..(r + 1) * columns]
                } else {
                    &[]
                },
                weight: self.rows.weight,
                bias: self.rows.bias,
                scale: if O::OP.scaled() {
                    self.rows.scale[r]
                } else {
                    0.0
                },
                first: 0.0,
            };
            let first = match O::OP.first() {
                First::None => 0.0,
                First::Given => self.rows.mean[r],
                First::Maximum => maximum(&ieee, row.x),
                First::Mean => {
                    let sum = sums::<O, true>(&ieee, &row, &mut [], &mut parts);
                    terms::mean(&ieee, sum.a, columns as u32)
                }
            };
            let row = Row { first, ..row };
            let sums = sums::<O, false>(&ieee, &row, out, &mut parts);
            let last = terms::finish(
                &ieee,
                sums,
                columns as u32,
                self.rows.eps,
                self.rows.ddof,
                O::OP,
            );
            if O::OP.maps() {
                results::<O>(&ieee, &row, last, out);
            }
            if O::OP.stored() {
                self.task.scale[i] = last.a;
                if O::OP.first() == First::Mean {
                    self.task.first[i] = first;
                }
            }
        }
    }
}

/// A row's operands.
#[derive(Clone, Copy)]
struct Row<'a> {
    x: &'a [f32],
    y: &'a [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    scale: f32,
    first: f32,
}

impl<'a> Row<'a> {
    /// Some of its elements; what an operation doesn't have stays empty.
    #[inline(always)]
    fn cut<O: Of>(&self, from: usize, to: usize) -> Self {
        let of = |taken: bool, x: &'a [f32]| if taken { &x[from..to] } else { x };
        Self {
            x: &self.x[from..to],
            y: of(O::OP.backward(), self.y),
            weight: of(O::WEIGHTED, self.weight),
            bias: of(O::BIASED, self.bias),
            ..*self
        }
    }
}

/// The greatest number; NaN are passed over.
#[inline(always)]
fn maximum(ieee: &Ieee, x: &[f32]) -> f32 {
    if x.len() < 128 {
        greatest::<BLOCK>(ieee, x)
    } else {
        greatest::<WIDE>(ieee, x)
    }
}

/// [`maximum`] by `N` lanes.
#[inline(always)]
fn greatest<const N: usize>(ieee: &Ieee, x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; N];
    let mut chunks = x.chunks_exact(N);
    for x in &mut chunks {
        for j in 0..N {
            lanes[j] = ieee.select(ieee.lt(lanes[j], x[j]), x[j], lanes[j]);
        }
    }
    let mut rest = [f32::NEG_INFINITY; N];
    let last = chunks.remainder();
    rest[..last.len()].copy_from_slice(last);
    for j in 0..N {
        lanes[j] = ieee.select(ieee.lt(lanes[j], rest[j]), rest[j], lanes[j]);
    }
    let mut half = N / 2;
    while half > 0 {
        let (low, high) = lanes.split_at_mut(half);
        for j in 0..half {
            low[j] = ieee.select(ieee.lt(low[j], high[j]), high[j], low[j]);
        }
        half /= 2;
    }
    lanes[0]
}

/// The sums over a row (`N5`): of its elements for their mean, else of the operation's terms.
#[inline(always)]
fn sums<O: Of, const MEAN: bool>(
    ieee: &Ieee,
    row: &Row<'_>,
    h: &mut [f32],
    parts: &mut [Vec<f32>; 2],
) -> Two {
    let n = row.x.len();
    match n {
        0..=16 => return segment::<O, MEAN, 16>(ieee, row, h),
        17..=64 => return segment::<O, MEAN, 64>(ieee, row, h),
        65..=SEGMENT => return segment::<O, MEAN, LANES>(ieee, row, h),
        _ => {}
    }
    parts[0].clear();
    parts[1].clear();
    let mut from = 0;
    while from < n {
        let to = (from + SEGMENT).min(n);
        let h = if O::OP.kept() && !MEAN {
            &mut h[from..to]
        } else {
            &mut *h
        };
        let s = segment::<O, MEAN, LANES>(ieee, &row.cut::<O>(from, to), h);
        parts[0].push(s.a);
        parts[1].push(s.b);
        from = to;
    }
    let [a, b] = parts;
    Two {
        a: total(ieee, a),
        b: total(ieee, b),
    }
}

/// The sum of segments' sums.
#[inline(always)]
fn total(ieee: &Ieee, mut parts: &mut [f32]) -> f32 {
    while parts.len() > 1 {
        let segments = parts.len().div_ceil(SEGMENT);
        for k in 0..segments {
            let end = (k * SEGMENT + SEGMENT).min(parts.len());
            let mut lanes = [0.0; LANES];
            for (i, &part) in parts[k * SEGMENT..end].iter().enumerate() {
                lanes[i % LANES] = ieee.add(lanes[i % LANES], part);
            }
            parts[k] = tree(ieee, &mut lanes, 1);
        }
        parts = &mut parts[..segments];
    }
    parts[0]
}

/// The sums over at most [`SEGMENT`] elements by `L` lanes: all there are, or as many as there are
/// elements.
#[inline(always)]
fn segment<O: Of, const MEAN: bool, const L: usize>(
    ieee: &Ieee,
    row: &Row<'_>,
    h: &mut [f32],
) -> Two {
    let n = row.x.len();
    let (mut a, mut b) = ([0.0; L], [0.0; L]);
    let mut at = 0;
    while at + L <= n {
        let h = kept::<O, MEAN>(h, at, at + L);
        steps::<O, MEAN>(ieee, &row.cut::<O>(at, at + L), h, &mut a, &mut b);
        at += L;
    }
    // What is left goes to the first lanes.
    let mut lane = 0;
    while at + BLOCK <= n {
        let h = kept::<O, MEAN>(h, at, at + BLOCK);
        let (a, b) = (&mut a[lane..lane + BLOCK], &mut b[lane..lane + BLOCK]);
        steps::<O, MEAN>(ieee, &row.cut::<O>(at, at + BLOCK), h, a, b);
        at += BLOCK;
        lane += BLOCK;
    }
    if at < n {
        let count = n - at;
        let rest = row.cut::<O>(at, n);
        let h = kept::<O, MEAN>(h, at, n);
        let (a, b) = (&mut a[lane..lane + count], &mut b[lane..lane + count]);
        steps::<O, MEAN>(ieee, &rest, h, a, b);
    }
    Two {
        a: tree(ieee, &mut a, 1),
        b: if O::OP.wide() && !MEAN {
            tree(ieee, &mut b, 1)
        } else {
            0.0
        },
    }
}

/// Where elements are kept; nowhere if they aren't.
#[inline(always)]
fn kept<O: Of, const MEAN: bool>(h: &mut [f32], from: usize, to: usize) -> &mut [f32] {
    if O::OP.kept() && !MEAN {
        &mut h[from..to]
    } else {
        h
    }
}

/// A step of each lane in `a`.
#[inline(always)]
fn steps<O: Of, const MEAN: bool>(
    ieee: &Ieee,
    row: &Row<'_>,
    h: &mut [f32],
    a: &mut [f32],
    b: &mut [f32],
) {
    let n = a.len();
    let (x, b) = (&row.x[..n], &mut b[..n]);
    if MEAN {
        for j in 0..n {
            a[j] = ieee.add(a[j], x[j]);
        }
        return;
    }
    let y = if O::OP.backward() { &row.y[..n] } else { x };
    let w = if O::WEIGHTED { &row.weight[..n] } else { x };
    let h = &mut h[..if O::OP.kept() { n } else { 0 }];
    for j in 0..n {
        let (op, weighted) = (O::OP, O::WEIGHTED);
        let two = terms::lift(ieee, x[j], y[j], w[j], row.first, row.scale, op, weighted);
        if O::OP.kept() {
            h[j] = two.a;
        }
        let s = Two { a: a[j], b: b[j] };
        let s = terms::step(ieee, s, two.a, two.b, op);
        a[j] = s.a;
        if O::OP.wide() {
            b[j] = s.b;
        }
    }
}

/// The row's results; `out` holds what [`steps`] has kept.
#[inline(always)]
fn results<O: Of>(ieee: &Ieee, row: &Row<'_>, last: Two, out: &mut [f32]) {
    let n = row.x.len();
    let mut at = 0;
    while at + WIDE <= n {
        let part = row.cut::<O>(at, at + WIDE);
        map::<O>(ieee, &part, last, &mut out[at..at + WIDE]);
        at += WIDE;
    }
    while at + BLOCK <= n {
        let part = row.cut::<O>(at, at + BLOCK);
        map::<O>(ieee, &part, last, &mut out[at..at + BLOCK]);
        at += BLOCK;
    }
    if at < n {
        let rest = row.cut::<O>(at, n);
        map::<O>(ieee, &rest, last, &mut out[at..n]);
    }
}

/// As many results as `out` has.
#[inline(always)]
fn map<O: Of>(ieee: &Ieee, row: &Row<'_>, last: Two, out: &mut [f32]) {
    let n = out.len();
    let x = &row.x[..n];
    let y = if O::OP.backward() { &row.y[..n] } else { x };
    let w = if O::WEIGHTED { &row.weight[..n] } else { x };
    let bias = if O::BIASED { &row.bias[..n] } else { x };
    for j in 0..n {
        let (op, weighted, biased) = (O::OP, O::WEIGHTED, O::BIASED);
        let two = if O::OP.kept() {
            Two { a: out[j], b: 0.0 }
        } else {
            terms::lift(ieee, x[j], y[j], w[j], row.first, row.scale, op, weighted)
        };
        out[j] = terms::apply(
            ieee, two.a, two.b, last, row.scale, w[j], bias[j], op, weighted, biased,
        );
    }
}

/// The upper half of the lanes joins the lower half until one is left, in each of `width` columns
/// that lie side by side; the first lane's are the results.
#[inline(always)]
fn tree(ieee: &Ieee, lanes: &mut [f32], width: usize) -> f32 {
    let mut half = lanes.len() / width / 2 * width;
    while half > 0 {
        let (low, high) = lanes.split_at_mut(half);
        let high = &high[..half];
        for j in 0..half {
            low[j] = ieee.add(low[j], high[j]);
        }
        half = half / width / 2 * width;
    }
    lanes[0]
}

/// The gradients of weight and bias over each segment of rows; of the bias only where there is a
/// mean.
pub(super) fn parameters(
    simd: Simd,
    job: &Job<'_>,
    weight: &mut Buffer<f32>,
    bias: Option<&mut Buffer<f32>>,
) -> Result<()> {
    let columns = job.columns;
    let biased = bias.is_some();
    let operands = Rows {
        x: host(Some(job.x)),
        y: host(job.y),
        weight: &[],
        bias: &[],
        mean: host(job.mean),
        scale: host(job.scale),
        columns,
        eps: 0.0,
        ddof: 0,
    };
    let mut tasks = Vec::new();
    let mut bias = host_mut(bias).chunks_mut(columns);
    for (k, weight) in host_mut(Some(weight)).chunks_mut(columns).enumerate() {
        let rows = k * SEGMENT..((k + 1) * SEGMENT).min(job.rows);
        let mut bias = bias.next().unwrap_or(&mut []).chunks_mut(TILE);
        for (i, weight) in weight.chunks_mut(TILE).enumerate() {
            tasks.push(Columns {
                operands: &operands,
                rows: rows.clone(),
                column: i * TILE,
                weight,
                bias: bias.next().unwrap_or(&mut []),
            });
        }
    }
    for_each(tasks, &|task| {
        if biased {
            simd.dispatch(Gradients::<true>(task));
        } else {
            simd.dispatch(Gradients::<false>(task));
        }
    });
    Ok(())
}

/// Some columns of at most one segment of rows.
struct Columns<'a> {
    operands: &'a Rows<'a>,
    rows: Range<usize>,
    column: usize,
    weight: &'a mut [f32],
    bias: &'a mut [f32],
}

struct Gradients<'a, const BIASED: bool>(Columns<'a>);

impl<const BIASED: bool> Loop for Gradients<'_, BIASED> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Columns {
            operands,
            rows,
            column,
            weight,
            bias,
        } = self.0;
        let width = weight.len();
        let count = rows.len().next_power_of_two().min(LANES);
        let mut a = vec![0.0; count * width];
        let mut b = vec![0.0; if BIASED { count * width } else { 0 }];
        for (i, r) in rows.enumerate() {
            let lane = i % LANES * width;
            let at = r * operands.columns + column;
            let x = &operands.x[at..at + width];
            let y = &operands.y[at..at + width];
            let a = &mut a[lane..lane + width];
            let b = &mut b[if BIASED { lane..lane + width } else { 0..0 }];
            let scale = operands.scale[r];
            let mean = if BIASED { operands.mean[r] } else { 0.0 };
            for j in 0..width {
                let mut d = x[j];
                if BIASED {
                    d = ieee.sub(d, mean);
                    b[j] = ieee.add(b[j], y[j]);
                }
                a[j] = ieee.fma(y[j], ieee.mul(d, scale), a[j]);
            }
        }
        tree(&ieee, &mut a, width);
        for j in 0..width {
            weight[j] = ieee.canonical(ieee.add(a[j], 0.0));
        }
        if BIASED {
            tree(&ieee, &mut b, width);
            for j in 0..width {
                bias[j] = ieee.canonical(ieee.add(b[j], 0.0));
            }
        }
    }
}
