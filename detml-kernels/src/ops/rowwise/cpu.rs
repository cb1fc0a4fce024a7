//! Threads own rows. A row's passes find it in the cache; lanes are elements of arrays, so that
//! they are summed by vector instructions. Short rows are turned, so that each has a vector's lane.

use super::Job;
use super::gpu::Outputs;
use super::terms::{self, First, Op, Two};
use crate::device::{Buffer, Loop, Simd};
use crate::ieee::Ieee;
use crate::math;
use crate::ops::gemm::lanes::Lanes;
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
/// Rows that are computed in the lanes of vectors.
const TILED: usize = 64;
/// Columns of such rows: fewer than these.
const NARROW: usize = 64;
/// Rows whose steps are taken together, at most, and their elements.
const GROUP: usize = 16;
const ABREAST: usize = 4096;

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

        fn run_tasks<V: Lanes>(job: &Job<'_>, rows: &Rows<'_>, tasks: Vec<Task<'_>>) {
            match (job.op, job.given()) {
                $((Op::$op, [$weighted, $biased]) => for_each(tasks, &|task| {
                    V::dispatch(Work::<$Name, V> { rows, task, _of: PhantomData });
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

struct Work<'a, O, V> {
    rows: &'a Rows<'a>,
    task: Task<'a>,
    _of: PhantomData<(O, V)>,
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
    let each = match TASK / job.columns {
        // Of whole tiles.
        each @ TILED.. => each / TILED * TILED,
        each => each.max(1),
    };
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
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => run_tasks::<std::arch::x86_64::__m512>(job, &rows, tasks),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => run_tasks::<std::arch::x86_64::__m256>(job, &rows, tasks),
        #[cfg(target_arch = "aarch64")]
        Simd::Neon => run_tasks::<std::arch::aarch64::float32x4_t>(job, &rows, tasks),
        _ => run_tasks::<[f32; 4]>(job, &rows, tasks),
    }
    Ok(())
}

impl<O: Of, V: Lanes> Loop for Work<'_, O, V> {
    type Output = ();
    #[inline(always)]
    fn run(mut self, ieee: Ieee) {
        let columns = self.rows.columns;
        let mut parts = [Vec::new(), Vec::new()];
        let mut done = 0;
        if O::OP.maps() && columns < NARROW {
            let mut tile = Tile::new::<O>(columns);
            while done + TILED <= self.task.count {
                self.tile(&ieee, &mut tile, done);
                done += TILED;
            }
        }
        // Row after row, each step waits for the one before; steps of several rows overlap.
        let group = (ABREAST / columns).clamp(1, GROUP);
        while done < self.task.count {
            let count = group.min(self.task.count - done);
            self.rows(&ieee, done, count, &mut parts);
            done += count;
        }
    }
}

impl<O: Of, V> Work<'_, O, V> {
    /// `count` rows from row `from` of the task on.
    #[inline(always)]
    fn rows(&mut self, ieee: &Ieee, from: usize, count: usize, parts: &mut [Vec<f32>; 2]) {
        let columns = self.rows.columns;
        let n = columns as u32;
        let (mut first, mut a, mut b) = ([0.0; GROUP], [0.0; GROUP], [0.0; GROUP]);
        for (i, first) in first[..count].iter_mut().enumerate() {
            let r = self.task.row + from + i;
            *first = match O::OP.first() {
                First::None => 0.0,
                First::Given => self.rows.mean[r],
                First::Maximum => maximum(self.rows.row::<O>(r, 0.0).x),
                First::Mean => sums::<O, true>(ieee, &self.rows.row::<O>(r, 0.0), parts).a,
            };
        }
        if O::OP.first() == First::Mean {
            for first in &mut first {
                *first = terms::mean(ieee, *first, n);
            }
        }
        if O::OP.exponential() {
            for i in 0..count {
                let row = self.rows.row::<O>(self.task.row + from + i, first[i]);
                let at = (from + i) * columns;
                exponentials::<O>(ieee, row.x, row.first, &mut self.task.out[at..at + columns]);
            }
        }
        for i in 0..count {
            let row = self.rows.row::<O>(self.task.row + from + i, first[i]);
            let s = if O::OP.exponential() {
                let at = (from + i) * columns;
                let x = &self.task.out[at..at + columns];
                sums::<O, true>(ieee, &Row { x, ..row }, parts)
            } else {
                sums::<O, false>(ieee, &row, parts)
            };
            (a[i], b[i]) = (s.a, s.b);
        }
        // Of all places, so that it is vectorised.
        for i in 0..GROUP {
            let s = Two { a: a[i], b: b[i] };
            let last = terms::finish(ieee, s, n, self.rows.eps, self.rows.ddof, O::OP);
            (a[i], b[i]) = (last.a, last.b);
        }
        if O::OP.maps() {
            for i in 0..count {
                let row = self.rows.row::<O>(self.task.row + from + i, first[i]);
                let at = (from + i) * columns;
                let last = Two { a: a[i], b: b[i] };
                results::<O>(ieee, &row, last, &mut self.task.out[at..at + columns]);
            }
        }
        if O::OP.stored() {
            self.task.scale[from..from + count].copy_from_slice(&a[..count]);
            if O::OP.first() == First::Mean {
                self.task.first[from..from + count].copy_from_slice(&first[..count]);
            }
        }
    }
}

impl Rows<'_> {
    #[inline(always)]
    fn row<O: Of>(&self, r: usize, first: f32) -> Row<'_> {
        let of = r * self.columns..(r + 1) * self.columns;
        Row {
            x: &self.x[of.clone()],
            y: if O::OP.backward() { &self.y[of] } else { &[] },
            weight: self.weight,
            bias: self.bias,
            scale: if O::OP.scaled() { self.scale[r] } else { 0.0 },
            first,
        }
    }
}

/// What a tile holds of [`TILED`] rows: element `c` of row `l` at `c * TILED + l`.
struct Tile {
    x: Vec<f32>,
    y: Vec<f32>,
    a: Vec<f32>,
    b: Vec<f32>,
}

impl Tile {
    #[inline(always)]
    fn new<O: Of>(columns: usize) -> Self {
        let lanes = columns.min(LANES);
        let of = |taken: bool, n: usize| vec![0.0; if taken { n * TILED } else { 0 }];
        Self {
            x: of(true, columns),
            y: of(O::OP.backward() || O::OP.exponential(), columns),
            a: of(true, lanes),
            b: of(O::OP.wide(), lanes),
        }
    }
}

impl<O: Of, V: Lanes> Work<'_, O, V> {
    /// [`TILED`] rows from `row` of the task on, in the lanes of vectors.
    #[inline(always)]
    fn tile(&mut self, ieee: &Ieee, tile: &mut Tile, row: usize) {
        let columns = self.rows.columns;
        let r = self.task.row + row;
        let from = r * columns..(r + TILED) * columns;
        turn::<V>(&self.rows.x[from.clone()], columns, &mut tile.x);
        if O::OP.backward() {
            turn::<V>(&self.rows.y[from], columns, &mut tile.y);
        }
        let n = columns as u32;
        let mut scale = [0.0; TILED];
        if O::OP.scaled() {
            scale.copy_from_slice(&self.rows.scale[r..r + TILED]);
        }
        let mut first = [0.0; TILED];
        match O::OP.first() {
            First::None => {}
            First::Given => first.copy_from_slice(&self.rows.mean[r..r + TILED]),
            First::Maximum => {
                let mut most = [i32::MIN; TILED];
                for x in tile.x.chunks_exact(TILED) {
                    for l in 0..TILED {
                        most[l] = most[l].max(key(x[l]));
                    }
                }
                for l in 0..TILED {
                    first[l] = of_key(most[l]);
                }
            }
            First::Mean => {
                tile.a.fill(0.0);
                for x in tile.x.chunks(LANES * TILED) {
                    for (a, x) in tile.a.iter_mut().zip(x) {
                        *a = ieee.add(*a, *x);
                    }
                }
                let sum = columns_tree(ieee, &mut tile.a);
                for l in 0..TILED {
                    first[l] = terms::mean(ieee, sum[l], n);
                }
            }
        }
        if O::OP.exponential() {
            for x in tile.x.chunks_exact_mut(TILED) {
                for l in 0..TILED {
                    x[l] = ieee.sub(x[l], first[l]);
                }
            }
            let mut any = 0;
            for (e, h) in tile.y.iter_mut().zip(&tile.x) {
                *e = math::exp_nonpositive(ieee, *h);
                any |= e.to_bits();
            }
            several(any);
            tile.a.copy_from_slice(&tile.y);
        } else {
            tile.a.fill(0.0);
            tile.b.fill(0.0);
            for c in 0..columns {
                let lane = c % LANES;
                let (x, y) = (column(&tile.x, c), column(&tile.y, c));
                let (mut a, mut b) = (column(&tile.a, lane), column(&tile.b, lane));
                let w = if O::WEIGHTED {
                    self.rows.weight[c]
                } else {
                    0.0
                };
                for l in 0..TILED {
                    let (op, weighted) = (O::OP, O::WEIGHTED);
                    let two = terms::lift(ieee, x[l], y[l], w, first[l], scale[l], op, weighted);
                    let s = Two { a: a[l], b: b[l] };
                    let s = terms::step(ieee, s, two.a, two.b, op);
                    (a[l], b[l]) = (s.a, s.b);
                }
                put(&mut tile.a, lane, a);
                put(&mut tile.b, lane, b);
            }
        }
        let a = columns_tree(ieee, &mut tile.a);
        let b = if O::OP.wide() {
            columns_tree(ieee, &mut tile.b)
        } else {
            [0.0; TILED]
        };
        let (mut last_a, mut last_b) = ([0.0; TILED], [0.0; TILED]);
        for l in 0..TILED {
            let s = Two { a: a[l], b: b[l] };
            let last = terms::finish(ieee, s, n, self.rows.eps, self.rows.ddof, O::OP);
            last_a[l] = last.a;
            last_b[l] = last.b;
        }
        for c in 0..columns {
            let (x, y) = (column(&tile.x, c), column(&tile.y, c));
            let w = if O::WEIGHTED {
                self.rows.weight[c]
            } else {
                0.0
            };
            let bias = if O::BIASED { self.rows.bias[c] } else { 0.0 };
            let mut out = [0.0; TILED];
            for l in 0..TILED {
                let (op, weighted, biased) = (O::OP, O::WEIGHTED, O::BIASED);
                let two = match O::OP {
                    Op::Softmax => Two { a: y[l], b: 0.0 },
                    Op::LogSoftmax => Two { a: x[l], b: 0.0 },
                    _ => terms::lift(ieee, x[l], y[l], w, first[l], scale[l], op, weighted),
                };
                let last = Two {
                    a: last_a[l],
                    b: last_b[l],
                };
                out[l] = terms::apply(
                    ieee, two.a, two.b, last, scale[l], w, bias, op, weighted, biased,
                );
            }
            put(&mut tile.x, c, out);
        }
        let to = row * columns..(row + TILED) * columns;
        turn_back::<V>(&tile.x, columns, &mut self.task.out[to]);
        if O::OP.stored() {
            self.task.scale[row..row + TILED].copy_from_slice(&last_a);
            if O::OP.first() == First::Mean {
                self.task.first[row..row + TILED].copy_from_slice(&first);
            }
        }
    }
}

/// A column; zeros where there are no columns at all.
#[inline(always)]
fn column(x: &[f32], c: usize) -> [f32; TILED] {
    let mut column = [0.0; TILED];
    if !x.is_empty() {
        column.copy_from_slice(&x[c * TILED..(c + 1) * TILED]);
    }
    column
}

#[inline(always)]
fn put(x: &mut [f32], c: usize, column: [f32; TILED]) {
    if !x.is_empty() {
        x[c * TILED..(c + 1) * TILED].copy_from_slice(&column);
    }
}

/// The first columns of the blocks of eight that cover `columns`; the last two may overlap.
#[inline(always)]
fn blocks(columns: usize) -> impl Iterator<Item = usize> {
    (0..columns / 8 * 8)
        .step_by(8)
        .chain((columns > 8 && columns % 8 != 0).then_some(columns.max(8) - 8))
}

/// Rows of `columns` elements as columns of [`TILED`].
#[inline(always)]
fn turn<V: Lanes>(x: &[f32], columns: usize, out: &mut [f32]) {
    if columns < 8 {
        for (r, x) in x.chunks_exact(columns).enumerate() {
            for (c, x) in x.iter().enumerate() {
                out[c * TILED + r] = *x;
            }
        }
        return;
    }
    for c in blocks(columns) {
        for r in (0..TILED).step_by(8) {
            V::transpose(
                &x[r * columns + c..],
                columns,
                &mut out[c * TILED + r..],
                TILED,
            );
        }
    }
}

/// Undoes [`turn`].
#[inline(always)]
fn turn_back<V: Lanes>(x: &[f32], columns: usize, out: &mut [f32]) {
    if columns < 8 {
        for (r, out) in out.chunks_exact_mut(columns).enumerate() {
            for (c, out) in out.iter_mut().enumerate() {
                *out = x[c * TILED + r];
            }
        }
        return;
    }
    for c in blocks(columns) {
        for r in (0..TILED).step_by(8) {
            V::transpose(
                &x[c * TILED + r..],
                TILED,
                &mut out[r * columns + c..],
                columns,
            );
        }
    }
}

/// [`tree`] in each of [`TILED`] columns, of any number of lanes: those beyond it are empty.
#[inline(always)]
fn columns_tree(ieee: &Ieee, lanes: &mut [f32]) -> [f32; TILED] {
    let mut count = lanes.len() / TILED;
    while count > 1 {
        let half = count.next_power_of_two() / 2;
        let (low, high) = lanes[..count * TILED].split_at_mut(half * TILED);
        for (low, high) in low.iter_mut().zip(high) {
            *low = ieee.add(*low, *high);
        }
        count = half;
    }
    let mut result = [0.0; TILED];
    result.copy_from_slice(&lanes[..TILED]);
    result
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
    fn cut<O: Of, const PLAIN: bool>(&self, from: usize, to: usize) -> Self {
        let of = |taken: bool, x: &'a [f32]| if taken && !PLAIN { &x[from..to] } else { x };
        Self {
            x: &self.x[from..to],
            y: of(O::OP.backward(), self.y),
            weight: of(O::WEIGHTED, self.weight),
            bias: of(O::BIASED, self.bias),
            ..*self
        }
    }
}

/// A word that orders as numbers do, -0 below +0; that of a NaN is beyond all of them.
///
/// Rows with a NaN give NaN whatever their maximum, and the sign of a zero maximum doesn't show:
/// what integers compare serves, and their reductions are vectorised.
#[inline(always)]
fn key(x: f32) -> i32 {
    let x = x.to_bits() as i32;
    x ^ ((x >> 31) & i32::MAX)
}

/// The number of a [`key`].
#[inline(always)]
fn of_key(key: i32) -> f32 {
    f32::from_bits((key ^ ((key >> 31) & i32::MAX)) as u32)
}

/// The greatest number, or some NaN if there is one.
#[inline(always)]
fn maximum(x: &[f32]) -> f32 {
    let mut most = i32::MIN;
    for x in x {
        most = most.max(key(*x));
    }
    of_key(most)
}

/// `exp(x - first)` for each element of a row.
#[inline(always)]
fn exponentials<O: Of>(ieee: &Ieee, x: &[f32], first: f32, out: &mut [f32]) {
    let one = |x: f32| {
        let h = terms::lift(ieee, x, x, x, first, 0.0, O::OP, false).a;
        if O::OP.kept() {
            h
        } else {
            math::exp_nonpositive(ieee, h)
        }
    };
    let n = x.len();
    let many = n / WIDE * WIDE;
    let mut any = 0;
    for (out, x) in out[..many].iter_mut().zip(&x[..many]) {
        *out = one(*x);
        any |= out.to_bits();
    }
    several(any);
    let mut at = many;
    while at < n {
        // The last block may overlap with the one before.
        let from = if n < BLOCK { 0 } else { at.min(n - BLOCK) };
        let to = n.min(from + BLOCK);
        if let (Ok(out), Ok(x)) = (
            <&mut [f32; BLOCK]>::try_from(&mut out[from..to]),
            <&[f32; BLOCK]>::try_from(&x[from..to]),
        ) {
            for j in 0..BLOCK {
                out[j] = one(x[j]);
            }
        } else {
            for (out, x) in out[from..to].iter_mut().zip(&x[from..to]) {
                *out = one(*x);
            }
        }
        at += BLOCK;
    }
}

/// The sums over a row (`N5`): of its elements if `PLAIN`, else of the operation's terms.
#[inline(always)]
fn sums<O: Of, const PLAIN: bool>(ieee: &Ieee, row: &Row<'_>, parts: &mut [Vec<f32>; 2]) -> Two {
    let n = row.x.len();
    match n {
        0..=16 => return segment::<O, PLAIN, 16>(ieee, row),
        17..=64 => return segment::<O, PLAIN, 64>(ieee, row),
        65..=SEGMENT => return segment::<O, PLAIN, LANES>(ieee, row),
        _ => {}
    }
    parts[0].clear();
    parts[1].clear();
    let mut from = 0;
    while from < n {
        let to = (from + SEGMENT).min(n);
        let s = segment::<O, PLAIN, LANES>(ieee, &row.cut::<O, PLAIN>(from, to));
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
fn segment<O: Of, const PLAIN: bool, const L: usize>(ieee: &Ieee, row: &Row<'_>) -> Two {
    let full = row.x.len() / L * L;
    // Each case with lanes of its own, so that they stay in registers where they can.
    if full == row.x.len() {
        let (a, b) = chains::<O, PLAIN, L>(ieee, row);
        trees::<O, PLAIN, L>(ieee, &a, &b)
    } else if full == 0 {
        rest::<O, PLAIN, L>(ieee, row, [0.0; L], [0.0; L])
    } else {
        let (a, b) = chains::<O, PLAIN, L>(ieee, &row.cut::<O, PLAIN>(0, full));
        rest::<O, PLAIN, L>(ieee, &row.cut::<O, PLAIN>(full, row.x.len()), a, b)
    }
}

/// The sums after a step of fewer than `L` lanes, the first ones.
#[inline(always)]
fn rest<O: Of, const PLAIN: bool, const L: usize>(
    ieee: &Ieee,
    row: &Row<'_>,
    mut a: [f32; L],
    mut b: [f32; L],
) -> Two {
    let n = row.x.len();
    let mut at = 0;
    while at + BLOCK <= n {
        let part = row.cut::<O, PLAIN>(at, at + BLOCK);
        let (a, b) = (&mut a[at..at + BLOCK], &mut b[at..at + BLOCK]);
        steps::<O, PLAIN>(ieee, &part, a, b);
        at += BLOCK;
    }
    if at < n {
        let part = row.cut::<O, PLAIN>(at, n);
        steps::<O, PLAIN>(ieee, &part, &mut a[at..n], &mut b[at..n]);
    }
    trees::<O, PLAIN, L>(ieee, &a, &b)
}

#[inline(always)]
fn trees<O: Of, const PLAIN: bool, const L: usize>(ieee: &Ieee, a: &[f32; L], b: &[f32; L]) -> Two {
    Two {
        a: tree_of(ieee, a),
        b: if O::OP.wide() && !PLAIN {
            tree_of(ieee, b)
        } else {
            0.0
        },
    }
}

/// [`tree`] of 16, 64 or 128 lanes, in registers.
#[inline(always)]
fn tree_of<const L: usize>(ieee: &Ieee, lanes: &[f32; L]) -> f32 {
    let lanes: [f32; 16] = match L {
        128 => halved(ieee, &halved::<64, 32>(ieee, &halved::<L, 64>(ieee, lanes))),
        64 => halved(ieee, &halved::<L, 32>(ieee, lanes)),
        _ => std::array::from_fn(|j| lanes[j]),
    };
    let lanes = halved::<4, 2>(ieee, &halved::<8, 4>(ieee, &halved::<16, 8>(ieee, &lanes)));
    ieee.add(lanes[0], lanes[1])
}

/// The upper half of the lanes joins the lower half.
#[inline(always)]
fn halved<const L: usize, const HALF: usize>(ieee: &Ieee, lanes: &[f32; L]) -> [f32; HALF] {
    let mut half = [0.0; HALF];
    for j in 0..HALF {
        half[j] = ieee.add(lanes[j], lanes[j + L / 2]);
    }
    half
}

/// Steps of all `L` lanes. No access can fail, so that lanes stay in registers.
#[inline(always)]
fn chains<O: Of, const PLAIN: bool, const L: usize>(
    ieee: &Ieee,
    row: &Row<'_>,
) -> ([f32; L], [f32; L]) {
    let (mut a, mut b) = ([0.0; L], [0.0; L]);
    let y = if O::OP.backward() && !PLAIN {
        row.y
    } else {
        row.x
    };
    let w = if O::WEIGHTED && !PLAIN {
        row.weight
    } else {
        row.x
    };
    for ((x, y), w) in row
        .x
        .chunks_exact(L)
        .zip(y.chunks_exact(L))
        .zip(w.chunks_exact(L))
    {
        step_lanes::<O, PLAIN>(ieee, [x, y, w], row, &mut a, &mut b, L);
    }
    (a, b)
}

/// A step of each lane in `a`.
#[inline(always)]
fn steps<O: Of, const PLAIN: bool>(ieee: &Ieee, row: &Row<'_>, a: &mut [f32], b: &mut [f32]) {
    let y = if O::OP.backward() && !PLAIN {
        row.y
    } else {
        row.x
    };
    let w = if O::WEIGHTED && !PLAIN {
        row.weight
    } else {
        row.x
    };
    let n = a.len();
    step_lanes::<O, PLAIN>(ieee, [row.x, y, w], row, a, b, n);
}

/// A step of each of `n` lanes.
#[inline(always)]
fn step_lanes<O: Of, const PLAIN: bool>(
    ieee: &Ieee,
    [x, y, w]: [&[f32]; 3],
    row: &Row<'_>,
    a: &mut [f32],
    b: &mut [f32],
    n: usize,
) {
    let (x, y, w) = (&x[..n], &y[..n], &w[..n]);
    let (a, b) = (&mut a[..n], &mut b[..n]);
    for j in 0..n {
        if PLAIN {
            a[j] = ieee.add(a[j], x[j]);
            continue;
        }
        let (op, weighted) = (O::OP, O::WEIGHTED);
        let two = terms::lift(ieee, x[j], y[j], w[j], row.first, row.scale, op, weighted);
        let s = Two { a: a[j], b: b[j] };
        let s = terms::step(ieee, s, two.a, two.b, op);
        a[j] = s.a;
        if O::OP.wide() {
            b[j] = s.b;
        }
    }
}

/// The row's results; `out` holds what [`exponentials`] has kept.
#[inline(always)]
fn results<O: Of>(ieee: &Ieee, row: &Row<'_>, last: Two, out: &mut [f32]) {
    let n = row.x.len();
    let many = n / WIDE * WIDE;
    let part = row.cut::<O, false>(0, many);
    map::<O>(ieee, &part, last, &mut out[..many]);
    let mut at = many;
    while at < n {
        // The last block may overlap with the one before, unless results replace what they are of.
        let from = if n < BLOCK || O::OP.kept() {
            at
        } else {
            at.min(n - BLOCK)
        };
        let to = n.min(from + BLOCK);
        let part = row.cut::<O, false>(from, to);
        if let Ok(out) = <&mut [f32; BLOCK]>::try_from(&mut out[from..to]) {
            map::<O>(ieee, &part, last, out);
        } else {
            map::<O>(ieee, &part, last, &mut out[from..to]);
        }
        at += BLOCK;
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
    let mut any = 0;
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
        if matches!(O::OP, Op::LogSoftmaxBackward) {
            any |= out[j].to_bits();
        }
    }
    if matches!(O::OP, Op::LogSoftmaxBackward) {
        several(any);
    }
}

/// Takes the union of a loop's results: only in a loop with a reduction do compilers keep several
/// vectors in flight, and an exponential is a long chain of dependent operations.
#[inline(always)]
fn several(any: u32) {
    std::hint::black_box(any);
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
