//! The CPU path: packed operands, a micro-kernel in registers, threads over disjoint tiles.
//!
//! A task owns a tile of the output and walks the panels of `N6` in their order. In each panel
//! it packs its rows of `a` and columns of `b` and lets the micro-kernel run one fma chain for
//! each element; the panel's sums are folded into totals that the task keeps. Where there are
//! fewer tiles than threads, the sums of several panels are formed side by side and folded
//! afterwards, in the same order. Tile shapes, threads and instruction sets can't show (`N8`).

use super::lanes::Lanes;
use super::{Problem, finish};
use crate::device::{Loop, Simd};
use crate::ieee::Ieee;
use crate::ops::parallel::for_chunks;
use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

/// An input whose lanes (rows of `a`, columns of `b`) and terms lie `lane` and `k` apart.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) data: &'a [f32],
    pub(super) lane: usize,
    pub(super) k: usize,
    pub(super) batch: usize,
}

/// The output, written by several threads in disjoint places.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    data: *mut f32,
    row: usize,
    column: usize,
    batch: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

// SAFETY: tasks reach disjoint elements, see `Target::new`.
unsafe impl Send for Target<'_> {}
// SAFETY: as above.
unsafe impl Sync for Target<'_> {}

impl<'a> Target<'a> {
    /// `data` holds every element of a problem whose elements lie `row`, `column` and `batch`
    /// apart, and no two of those share a place.
    /// Each element belongs to one tile, and a tile to one task at a time.
    pub(super) fn new(data: &'a mut [f32], row: usize, column: usize, batch: usize) -> Self {
        Self {
            data: data.as_mut_ptr(),
            row,
            column,
            batch,
            lifetime: PhantomData,
        }
    }
}

/// A schedule to force in tests; the default is chosen by shape and threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Rows and columns of a task's tile.
    pub(super) tile: Option<(usize, usize)>,
    /// Whether panels run side by side.
    pub(super) split: Option<bool>,
    /// Whether the vectors lie along the rows instead of the columns.
    pub(super) swap: Option<bool>,
}

/// Runs a problem with neither rows, columns nor batch empty.
pub(super) fn gemm(
    simd: Simd,
    p: &Problem,
    a: Source<'_>,
    b: Source<'_>,
    c: Target<'_>,
    plan: Plan,
) {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => run::<std::arch::x86_64::__m512>(p, a, b, c, plan),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => run::<std::arch::x86_64::__m256>(p, a, b, c, plan),
        #[cfg(target_arch = "aarch64")]
        Simd::Neon => run::<std::arch::aarch64::float32x4_t>(p, a, b, c, plan),
        _ => run::<[f32; 4]>(p, a, b, c, plan),
    }
}

/// Below this many multiply-adds threads cost more than they bring.
const SERIAL: usize = 1 << 18;
/// Panel sums that a split schedule holds at once, in elements.
const SPLIT: usize = 1 << 22;

fn run<L: Lanes>(p: &Problem, a: Source<'_>, b: Source<'_>, c: Target<'_>, plan: Plan) {
    // The vectors lie along the side that wastes fewer lanes; elements of `c` that do not follow
    // each other are stored one by one. A product of two numbers does not depend on their order,
    // so this can't show.
    let cost = |n: usize, store: usize| {
        let padded = n.next_multiple_of(L::WIDTH);
        (padded as f64 / n as f64) * (p.k.div_ceil(L::WIDTH) + 1) as f64 + store as f64
    };
    let swap = plan.swap.unwrap_or(cost(p.m, 4) < cost(p.n, 1));
    let job = if swap {
        Job {
            p: Problem {
                m: p.n,
                n: p.m,
                ..*p
            },
            a: b,
            b: a,
            c: Target {
                row: c.column,
                column: c.row,
                ..c
            },
        }
    } else {
        Job { p: *p, a, b, c }
    };
    job.run::<L>(plan);
}

/// A problem whose vectors lie along `n`.
#[derive(Clone, Copy)]
struct Job<'a> {
    p: Problem,
    a: Source<'a>,
    b: Source<'a>,
    c: Target<'a>,
}

/// A part of one output that one task forms.
#[derive(Clone)]
struct Tile {
    batch: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Job<'_> {
    fn run<L: Lanes>(&self, plan: Plan) {
        let p = &self.p;
        let work = [p.m, p.n, p.k, p.batch]
            .into_iter()
            .fold(1usize, usize::saturating_mul);
        let threads = if work < SERIAL {
            1
        } else {
            rayon::current_num_threads()
        };
        let (rows, columns) = plan.tile.unwrap_or_else(|| tile_shape::<L>(p, threads));
        let (down, across) = (p.m.div_ceil(rows), p.n.div_ceil(columns));
        let tiles = p.batch * down * across;
        let tile = |index: usize| {
            let (i, j) = (index / across % down * rows, index % across * columns);
            Tile {
                batch: index / (down * across),
                rows: i..(i + rows).min(p.m),
                columns: j..(j + columns).min(p.n),
            }
        };
        let panels = p.k.div_ceil(p.panel);
        let split = plan.split.unwrap_or(2 * tiles <= threads);
        if split && panels > 1 {
            self.run_split::<L>(tiles, tile);
        } else if threads == 1 || tiles == 1 {
            (0..tiles).for_each(|index| self.sum::<L>(tile(index), Done::Finish));
        } else {
            (0..tiles)
                .into_par_iter()
                .for_each(|index| self.sum::<L>(tile(index), Done::Finish));
        }
    }

    /// Panels side by side, then their fold in order.
    fn run_split<L: Lanes>(&self, tiles: usize, tile: impl Fn(usize) -> Tile + Sync) {
        let p = &self.p;
        let panels = p.k.div_ceil(p.panel);
        let size = p.batch * p.m * p.n;
        let group = (SPLIT / size).clamp(2, panels);
        // The totals so far, then the sums of a group's panels.
        let mut sums = vec![0.0f32; size * (group + 1)];
        let (totals, sums) = sums.split_at_mut(size);
        for first in (0..panels).step_by(group) {
            let group = group.min(panels - first);
            let target = Target::new(sums, p.n, 1, p.m * p.n);
            (0..tiles * group).into_par_iter().for_each(|index| {
                let (panel, tile) = (index / tiles, tile(index % tiles));
                let from = (first + panel) * p.panel;
                let job = Job {
                    p: Problem {
                        k: p.panel.min(p.k - from),
                        ..*p
                    },
                    a: self.a.from(from),
                    b: self.b.from(from),
                    c: target.skip(panel * size),
                };
                job.sum::<L>(tile, Done::Copy);
            });
            let sums = &*sums;
            for_chunks(totals, 1 << 14, true, &|at, totals| {
                let len = totals.len();
                for panel in 0..group {
                    L::dispatch(Fold {
                        totals: &mut *totals,
                        sums: &sums[panel * size + at..][..len],
                        first: first + panel == 0,
                    });
                }
            });
        }
        for (index, totals) in totals.chunks_mut(p.n).enumerate() {
            L::dispatch(Finish::<L> {
                lanes_type: PhantomData,
                p,
                totals,
                stride: p.n,
                c: self.c,
                done: Done::Finish,
                tile: Tile {
                    batch: index / p.m,
                    rows: index % p.m..index % p.m + 1,
                    columns: 0..p.n,
                },
            });
        }
    }

    /// Forms a tile in the order of its panels.
    fn sum<L: Lanes>(&self, tile: Tile, done: Done) {
        let p = &self.p;
        let width = L::WIDTH * L::VECTORS;
        let slot = L::ROWS * width;
        let down = tile.rows.len().div_ceil(L::ROWS);
        let across = tile.columns.len().div_ceil(width);
        let (a, b) = (self.a.batch(tile.batch), self.b.batch(tile.batch));
        // With one step of rows a packed column would be read only once.
        let direct = down == 1 && b.lane == 1 && b.k >= width && p.k > 0;
        let most = p.panel.min(p.k);
        let lengths = [
            down * L::ROWS * most,
            width * most,
            down * across * slot,
            if direct { across * slot } else { 0 },
        ];
        with_scratch(lengths, |[packed_a, packed_b, totals, sums]| {
            let mut from = 0;
            loop {
                let k = p.panel.min(p.k - from);
                let (a, b) = (a.from(from), b.from(from));
                for step in 0..down {
                    let row = tile.rows.start + step * L::ROWS;
                    L::dispatch(Pack::<L> {
                        source: a.lanes(row),
                        lanes: L::ROWS.min(tile.rows.end - row),
                        k,
                        width: L::ROWS,
                        out: &mut packed_a[step * L::ROWS * k..][..L::ROWS * k],
                        lanes_type: PhantomData,
                    });
                }
                let whole = if direct {
                    tile.columns.len() / width
                } else {
                    0
                };
                if whole > 0 {
                    let out = if from > 0 { &mut *sums } else { &mut *totals };
                    L::dispatch(Direct::<L> {
                        a: &packed_a[..L::ROWS * k],
                        b: b.lanes(tile.columns.start),
                        rows: tile.rows.len(),
                        steps: whole,
                        sums: out,
                        lanes_type: PhantomData,
                    });
                    if from > 0 {
                        L::dispatch(Fold {
                            totals: &mut totals[..whole * slot],
                            sums: &sums[..whole * slot],
                            first: false,
                        });
                    }
                }
                for jstep in 0..across {
                    let column = tile.columns.start + jstep * width;
                    let columns = width.min(tile.columns.end - column);
                    if jstep >= whole {
                        L::dispatch(Pack::<L> {
                            source: b.lanes(column),
                            lanes: columns,
                            k,
                            width,
                            out: &mut packed_b[..width * k],
                            lanes_type: PhantomData,
                        });
                    }
                    for istep in 0..down {
                        let row = tile.rows.start + istep * L::ROWS;
                        let rows = L::ROWS.min(tile.rows.end - row);
                        let totals = &mut totals[(jstep * down + istep) * slot..][..slot];
                        if jstep >= whole {
                            L::micro(Micro {
                                a: &packed_a[istep * L::ROWS * k..][..L::ROWS * k],
                                b: packed_b,
                                stride: width,
                                totals,
                                rows,
                                vectors: columns.div_ceil(L::WIDTH),
                                with: if from > 0 { With::Add } else { With::Store },
                            });
                        }
                        if from + k == p.k {
                            L::dispatch(Finish::<L> {
                                lanes_type: PhantomData,
                                p,
                                totals,
                                stride: width,
                                c: self.c,
                                done,
                                tile: Tile {
                                    batch: tile.batch,
                                    rows: row..row + rows,
                                    columns: column..column + columns,
                                },
                            });
                        }
                    }
                }
                from += k;
                if from == p.k {
                    break;
                }
            }
        });
    }
}

impl<'a> Source<'a> {
    // Strides that lead beyond the matrix may be any: nothing is left then.

    /// From term `k` on.
    fn from(self, k: usize) -> Self {
        self.skip(k.saturating_mul(self.k))
    }

    /// From lane `lane` on.
    fn lanes(self, lane: usize) -> Self {
        self.skip(lane.saturating_mul(self.lane))
    }

    /// Member `index` of the batch.
    fn batch(self, index: usize) -> Self {
        self.skip(index.saturating_mul(self.batch))
    }

    fn skip(self, n: usize) -> Self {
        Self {
            data: self.data.get(n..).unwrap_or_default(),
            ..self
        }
    }
}

impl<'a> Target<'a> {
    #[inline(always)]
    fn place(&self, [batch, row, column]: [usize; 3]) -> usize {
        batch * self.batch + row * self.row + column * self.column
    }

    /// From element `n` on, which the target holds.
    fn skip(self, n: usize) -> Self {
        Self {
            // SAFETY: the caller's promise.
            data: unsafe { self.data.add(n) },
            ..self
        }
    }

    /// `len` elements of a row, if they lie side by side.
    #[inline(always)]
    fn part(self, at: [usize; 3], len: usize) -> Option<&'a mut [f32]> {
        if self.column != 1 {
            return None;
        }
        // SAFETY: as in `write`, for each of the elements.
        Some(unsafe { std::slice::from_raw_parts_mut(self.data.add(self.place(at)), len) })
    }

    #[inline(always)]
    fn write(&self, at: [usize; 3], x: f32) {
        // SAFETY: the element is one of the problem's (`new`), and only the task that owns the
        // tile around it comes here.
        unsafe { *self.data.add(self.place(at)) = x }
    }

    #[inline(always)]
    fn read(&self, at: [usize; 3]) -> f32 {
        // SAFETY: as in `write`.
        unsafe { *self.data.add(self.place(at)) }
    }
}

/// Rows and columns of the tiles that keep `threads` threads equally busy.
fn tile_shape<L: Lanes>(p: &Problem, threads: usize) -> (usize, usize) {
    let width = L::WIDTH * L::VECTORS;
    // A packed tile of `a` stays in the second-level cache; with one step of rows there is
    // little of it, and long runs of `b` are read faster.
    let (max_rows, max_columns) = if p.m <= L::ROWS {
        (1, 8192 / width)
    } else {
        (240 / L::ROWS, 1024 / width)
    };
    let (row_steps, column_steps) = (p.m.div_ceil(L::ROWS), p.n.div_ceil(width));
    let (least_rows, least_columns) = (
        row_steps.div_ceil(max_rows),
        column_steps.div_ceil(max_columns),
    );
    let mut best = (f64::INFINITY, 0, 0);
    for row_tiles in least_rows..least_rows + 8 {
        for column_tiles in least_columns..least_columns + 8 {
            let (rows, columns) = (
                row_steps.div_ceil(row_tiles),
                column_steps.div_ceil(column_tiles),
            );
            let tiles = p.batch * row_steps.div_ceil(rows) * column_steps.div_ceil(columns);
            let (rows, columns) = (rows * L::ROWS, columns * width);
            // A packed element costs about as much as this many vector fmas.
            let pack = 2 * L::WIDTH;
            let cost = rows * columns + pack * (rows + columns);
            let time = (tiles.div_ceil(threads) * cost) as f64;
            if time < best.0 {
                best = (time, rows, columns);
            }
        }
    }
    (best.1, best.2)
}

/// One micro-tile in one panel.
pub(in crate::ops) struct Micro<'a> {
    /// The panel's terms, each of `ROWS` elements.
    pub(in crate::ops) a: &'a [f32],
    /// The panel's terms, `stride` apart.
    pub(in crate::ops) b: &'a [f32],
    pub(in crate::ops) stride: usize,
    /// Rows of `WIDTH * VECTORS`.
    pub(in crate::ops) totals: &'a mut [f32],
    pub(in crate::ops) rows: usize,
    pub(in crate::ops) vectors: usize,
    pub(in crate::ops) with: With,
}

/// What a micro-kernel does with the totals.
#[derive(Clone, Copy)]
pub(in crate::ops) enum With {
    /// Starts its chains from +0 and stores their sums.
    Store,
    /// Starts its chains from +0 and adds their sums.
    Add,
}

/// The micro-kernel of `R` rows and `V` vectors.
pub(in crate::ops) struct Kernel<'a, L, const R: usize, const V: usize> {
    pub(super) micro: Micro<'a>,
    pub(super) lanes: PhantomData<L>,
}

impl<L: Lanes, const R: usize, const V: usize> Loop for Kernel<'_, L, R, V> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Micro {
            a,
            b,
            stride,
            totals,
            with,
            ..
        } = self.micro;
        let width = L::WIDTH * L::VECTORS;
        // `N6`: a chain from +0 over ascending k.
        let mut sums = [[L::splat(0.0); V]; R];
        for (k, a) in a.chunks_exact(L::ROWS).enumerate() {
            let b = &b[k * stride..][..V * L::WIDTH];
            let b: [L; V] = std::array::from_fn(|v| L::load(&b[v * L::WIDTH..]));
            for r in 0..R {
                let x = L::splat(a[r]);
                for v in 0..V {
                    sums[r][v] = x.fma(b[v], sums[r][v], ieee);
                }
            }
        }
        for r in 0..R {
            for v in 0..V {
                let total = &mut totals[r * width + v * L::WIDTH..];
                let sum = match with {
                    With::Add => L::load(total).add(sums[r][v], ieee),
                    With::Store => sums[r][v],
                };
                sum.store(total);
            }
        }
    }
}

/// One panel of a single step of rows with `b` as it lies: a few terms at a time are run
/// through all columns, so that memory is read along its rows.
struct Direct<'a, L> {
    /// The panel's terms, each of `ROWS` elements.
    a: &'a [f32],
    b: Source<'a>,
    rows: usize,
    /// Micro-tiles side by side.
    steps: usize,
    sums: &'a mut [f32],
    lanes_type: PhantomData<L>,
}

impl<L: Lanes> Loop for Direct<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let mut a = self.a.chunks_exact(8 * L::ROWS);
        let width = L::WIDTH * L::VECTORS;
        let mut from = 0;
        let row = |k: usize| &self.b.data[k * self.b.k..][..self.steps * width];
        for a in &mut a {
            let b = std::array::from_fn(|t| row(from + t));
            terms::<L, 8>(ieee, a, b, self.rows, self.sums, from == 0);
            from += 8;
        }
        for a in a.remainder().chunks_exact(L::ROWS) {
            terms::<L, 1>(ieee, a, [row(from)], self.rows, self.sums, from == 0);
            from += 1;
        }
    }
}

/// Runs `T` terms of every chain (`N6`: ascending), the first of which start from +0.
#[inline(always)]
fn terms<L: Lanes, const T: usize>(
    ieee: Ieee,
    a: &[f32],
    b: [&[f32]; T],
    rows: usize,
    sums: &mut [f32],
    first: bool,
) {
    let width = L::WIDTH * L::VECTORS;
    for (step, sums) in sums
        .chunks_exact_mut(L::ROWS * width)
        .take(b[0].len() / width)
        .enumerate()
    {
        for v in 0..L::VECTORS {
            let at = v * L::WIDTH;
            let b: [L; T] = std::array::from_fn(|t| L::load(&b[t][step * width + at..]));
            for (r, sums) in sums.chunks_exact_mut(width).take(rows).enumerate() {
                let mut sum = if first {
                    L::splat(0.0)
                } else {
                    L::load(&sums[at..])
                };
                for t in 0..T {
                    sum = L::splat(a[t * L::ROWS + r]).fma(b[t], sum, ieee);
                }
                sum.store(&mut sums[at..]);
            }
        }
    }
}

/// Copies `k` terms of `lanes` lanes to rows of `width`, the rest of each row zeros.
struct Pack<'a, L> {
    source: Source<'a>,
    lanes: usize,
    k: usize,
    width: usize,
    out: &'a mut [f32],
    lanes_type: PhantomData<L>,
}

impl<L: Lanes> Loop for Pack<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: Ieee) {
        let Self {
            source,
            lanes,
            k,
            width,
            out,
            ..
        } = self;
        let Source { data, lane, .. } = source;
        if k == 0 {
            return;
        }
        if lane == 1 {
            // Lengths that the compiler knows are copied in registers.
            if lanes == L::WIDTH * L::VECTORS && width == lanes {
                copy_rows(
                    data,
                    source.k,
                    out,
                    L::WIDTH * L::VECTORS,
                    L::WIDTH * L::VECTORS,
                    k,
                );
            } else if lanes == L::ROWS && width == lanes {
                copy_rows(data, source.k, out, L::ROWS, L::ROWS, k);
            } else {
                copy_rows(data, source.k, out, width, lanes, k);
            }
            return;
        }
        let mut first = 0;
        if source.k == 1 {
            while first + 8 <= lanes {
                let mut from = 0;
                while k >= 8 && from < k {
                    // The last block overlaps the one before rather than be shorter.
                    let at = from.min(k - 8);
                    let out = &mut out[at * width + first..];
                    L::transpose(&data[first * lane + at..], lane, out, width);
                    from += 8;
                }
                for k in from..k {
                    for l in first..first + 8 {
                        out[k * width + l] = data[l * lane + k];
                    }
                }
                first += 8;
            }
            if first + 4 <= lanes {
                let rows = std::array::from_fn(|l| &data[(first + l) * lane..][..k]);
                transpose(rows, &mut out[first..], width);
                first += 4;
            }
        }
        for l in first..lanes {
            for k in 0..k {
                out[k * width + l] = data[l * lane + k * source.k];
            }
        }
        if lanes < width {
            for out in out.chunks_exact_mut(width) {
                out[lanes..].fill(0.0);
            }
        }
    }
}

#[inline(always)]
fn copy_rows(data: &[f32], stride: usize, out: &mut [f32], width: usize, lanes: usize, k: usize) {
    for (k, out) in out.chunks_exact_mut(width).enumerate().take(k) {
        let from = &data[k * stride..][..lanes];
        out[..lanes].copy_from_slice(from);
        out[lanes..].fill(0.0);
    }
}

/// Writes four rows as columns, rows of the output `width` apart.
#[inline(always)]
fn transpose(rows: [&[f32]; 4], out: &mut [f32], width: usize) {
    let k = rows[0].len();
    let whole = k / 4 * 4;
    let [r0, r1, r2, r3] = rows.map(|row| row.chunks_exact(4));
    for (step, (((r0, r1), r2), r3)) in r0.zip(r1).zip(r2).zip(r3).enumerate() {
        let out = &mut out[4 * step * width..];
        for i in 0..4 {
            out[i * width..][..4].copy_from_slice(&[r0[i], r1[i], r2[i], r3[i]]);
        }
    }
    for k in whole..k {
        for (l, row) in rows.iter().enumerate() {
            out[k * width + l] = row[k];
        }
    }
}

/// `totals = sums`, or `totals + sums` (`N6`: ascending).
struct Fold<'a> {
    totals: &'a mut [f32],
    sums: &'a [f32],
    first: bool,
}

impl Loop for Fold<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        if self.first {
            self.totals.copy_from_slice(self.sums);
            return;
        }
        for (total, &sum) in self.totals.iter_mut().zip(self.sums) {
            *total = ieee.add(*total, sum);
        }
    }
}

/// What becomes of totals.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    /// They are scaled and stored as results.
    Finish,
    /// They are stored as they are.
    Copy,
}

/// Stores the totals of a tile, whose rows lie `stride` apart. The totals are lost.
struct Finish<'a, L> {
    p: &'a Problem,
    totals: &'a mut [f32],
    stride: usize,
    c: Target<'a>,
    done: Done,
    tile: Tile,
    lanes_type: PhantomData<L>,
}

impl<L: Lanes> Loop for Finish<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Self {
            p,
            totals,
            stride,
            c,
            done,
            tile,
            ..
        } = self;
        let width = L::WIDTH * L::VECTORS;
        let (first, columns) = (tile.columns.start, tile.columns.len());
        let (alpha, beta) = (p.alpha, p.beta);
        let (scaled, added) = (p.scaled(), p.added());
        let totals = &mut totals[..tile.rows.len() * stride];
        if done == Done::Finish && !added {
            // Without branches over whole vectors, padding included.
            if scaled {
                for x in totals.iter_mut() {
                    *x = finish(ieee, *x, alpha, beta, 0.0, true, false);
                }
            } else {
                for x in totals.iter_mut() {
                    *x = finish(ieee, *x, alpha, beta, 0.0, false, false);
                }
            }
        }
        for (row, totals) in tile.rows.zip(totals.chunks_exact(stride)) {
            let totals = &totals[..columns];
            let at = [tile.batch, row, first];
            let add = done == Done::Finish && added;
            match c.part(at, columns) {
                Some(out) if add => {
                    for (c, &x) in out.iter_mut().zip(totals) {
                        *c = finish(ieee, x, alpha, beta, *c, scaled, true);
                    }
                }
                // A length that the compiler knows is copied in registers.
                Some(out) if columns == width => out[..width].copy_from_slice(&totals[..width]),
                Some(out) => out.copy_from_slice(totals),
                None => {
                    for (j, &x) in totals.iter().enumerate() {
                        let at = [tile.batch, row, first + j];
                        let x = if add {
                            finish(ieee, x, alpha, beta, c.read(at), scaled, true)
                        } else {
                            x
                        };
                        c.write(at, x);
                    }
                }
            }
        }
    }
}

/// A cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Lends four buffers of this thread, of at least the given lengths and with anything in them.
pub(in crate::ops) fn with_scratch<R>(
    lengths: [usize; 4],
    work: impl FnOnce([&mut [f32]; 4]) -> R,
) -> R {
    thread_local! {
        static SCRATCH: RefCell<[Vec<Line>; 4]> = const { RefCell::new([const { Vec::new() }; 4]) };
    }
    let lend = |scratch: &mut [Vec<Line>; 4]| {
        for (buffer, length) in scratch.iter_mut().zip(lengths) {
            let lines = length.div_ceil(16);
            if buffer.len() < lines {
                buffer.resize(lines, Line([0.0; 16]));
            }
        }
        work(scratch.each_mut().map(|x| bytemuck::cast_slice_mut(x)))
    };
    SCRATCH.with(|scratch| lend(&mut scratch.borrow_mut()))
}
