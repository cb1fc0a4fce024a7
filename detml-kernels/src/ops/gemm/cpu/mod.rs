//! The CPU path: a micro-kernel in registers, operands packed for it where that pays, threads
//! over disjoint tiles.
//!
//! A task owns a tile of the output and walks the panels of `N6` in their order. In each panel
//! a micro-kernel runs one fma chain for each element of a small tile and adds the panel's sum
//! to the total, which stands in the output itself where that is possible. Where there are
//! fewer tiles than threads, the sums of several panels are formed side by side and folded
//! afterwards, in the same order. A product of a matrix with its own transpose is formed above
//! the diagonal and mirrored: `fma(a, b, c) = fma(b, a, c)`. Tile shapes, threads and
//! instruction sets can't show (`N8`).

pub(in crate::ops) mod kernel;
mod pack;

use super::lanes::Lanes;
use super::{Problem, finish};
use crate::device::{Loop, Simd};
use crate::ieee::Ieee;
use crate::ops::parallel::for_chunks;
use bytemuck::{Pod, Zeroable};
use kernel::{ABREAST, Across, Chains, End, Place, Stream};
pub(in crate::ops) use kernel::{Micro, With};
use pack::{Pack, SLACK};
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
    /// Whether operands are read where they lie, if they lie so that they can be.
    pub(super) direct: Option<bool>,
    /// Whether a product that is known to be symmetric is formed above the diagonal only.
    pub(super) upper: Option<bool>,
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

/// Below this many cycles of work threads cost more than they bring.
const SERIAL: usize = 1 << 16;
/// Panel sums that a split schedule holds at once, in elements, if they are two panels' or more
/// for each thread.
const SPLIT: usize = 1 << 19;
/// Rows of a packed block of `a`, which stays in the second-level cache.
const BLOCK: usize = 240;
/// Columns of a packed panel of `b`.
const COLUMNS: usize = 1024;
/// Elements of totals, or of running sums, that a task keeps apart from the output.
const TOTALS: usize = BLOCK * COLUMNS;
/// Up to so many rows, a panel of `b` is read so few times that the way through memory matters
/// more than the way through the cache.
const SKINNY: usize = 32;
/// Elements of an operand's panel that may be read again and again from where it lies.
const NEAR: usize = 1 << 14;
/// Rows up to which columns of `b` whose terms lie side by side are turned in registers.
const ALONE: usize = 4;
/// Rows up to which a panel of `b` runs through the chains of all columns.
const FEW: usize = 8;
/// Terms of a few long rows of `b` that are packed at once.
const TURNED: usize = 64;
/// Terms that a skinny product runs through all columns before the next ones.
const STREAMED: usize = 32;

fn run<L: Lanes>(p: &Problem, a: Source<'_>, b: Source<'_>, c: Target<'_>, plan: Plan) {
    // The vectors lie along the side that wastes fewer lanes; elements of `c` that do not follow
    // each other are stored one by one. A product of two numbers does not depend on their order,
    // so this can't show.
    let cost = |n: usize, store: usize| {
        let padded = n.next_multiple_of(L::WIDTH);
        (padded as f64 / n as f64) * (p.k.div_ceil(L::WIDTH) + 1) as f64 + store as f64
    };
    let swap = plan.swap.unwrap_or(cost(p.m, 4) < cost(p.n, 1));
    let same = std::ptr::eq(a.data.as_ptr(), b.data.as_ptr())
        && (a.lane, a.k, a.batch, p.m) == (b.lane, b.k, b.batch, p.n);
    let mut job = if swap {
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
            upper: false,
            direct: plan.direct,
        }
    } else {
        Job {
            p: *p,
            a,
            b,
            c,
            upper: false,
            direct: plan.direct,
        }
    };
    let worth = same && p.m > L::ROWS && p.k >= 8;
    job.upper = same && !p.added() && plan.upper.unwrap_or(worth);
    job.run::<L>(plan);
    if job.upper {
        job.mirror();
    }
}

/// A problem whose vectors lie along `n`.
#[derive(Clone, Copy)]
struct Job<'a> {
    p: Problem,
    a: Source<'a>,
    b: Source<'a>,
    c: Target<'a>,
    /// Only the elements on and above the diagonal are wanted.
    upper: bool,
    direct: Option<bool>,
}

/// A part of one output that one task forms.
#[derive(Clone)]
struct Tile {
    batch: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// The rows and columns of tiles, and how they are shared out.
#[derive(Clone, Copy)]
struct Tiling {
    rows: usize,
    columns: usize,
    /// Panels run side by side.
    split: bool,
}

impl Job<'_> {
    fn run<L: Lanes>(&self, plan: Plan) {
        let p = &self.p;
        let product = |x: [usize; 3]| x.into_iter().fold(p.batch, usize::saturating_mul);
        // Vector operations, or the elements that must come from memory.
        let work = (product([p.m, p.n, p.k]) / L::WIDTH)
            .max(product([p.m, p.k, 1]))
            .max(product([p.k, p.n, 1]));
        let threads = if work < SERIAL {
            1
        } else {
            rayon::current_num_threads()
        };
        let mut tiling = self.tiling::<L>(threads);
        if let Some((rows, columns)) = plan.tile {
            (tiling.rows, tiling.columns) = (rows, columns);
        }
        let (rows, columns) = (tiling.rows, tiling.columns);
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
        let split = plan.split.unwrap_or(tiling.split);
        if split && panels > 1 {
            self.run_split::<L>(tiles, tile, threads);
        } else if threads == 1 || tiles == 1 {
            (0..tiles).for_each(|index| self.sum::<L>(tile(index), Done::Finish));
        } else {
            // Small members of a batch go to a thread together.
            let least = (SERIAL / 4 / (work / tiles).max(1)).clamp(1, tiles.div_ceil(threads));
            (0..tiles)
                .into_par_iter()
                .with_min_len(least)
                .for_each(|index| self.sum::<L>(tile(index), Done::Finish));
        }
    }

    /// Panels side by side, then their fold in order.
    fn run_split<L: Lanes>(
        &self,
        tiles: usize,
        tile: impl Fn(usize) -> Tile + Sync,
        threads: usize,
    ) {
        let p = &self.p;
        let panels = p.k.div_ceil(p.panel);
        let size = p.batch * p.m * p.n;
        let group = (SPLIT / size).max(2 * threads).min(panels);
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
                    ..*self
                };
                job.sum::<L>(tile, Done::Copy);
            });
            let sums = &*sums;
            for_chunks(totals, 1 << 12, size > 1 << 12, &|at, totals| {
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
        if self.below(tile.rows.start, tile.columns.end) {
            return;
        }
        let (rows, columns) = (tile.rows.len(), tile.columns.len());
        let (a, b) = (self.a.batch(tile.batch), self.b.batch(tile.batch));
        let (a, b) = (a.lanes(tile.rows.start), b.lanes(tile.columns.start));
        if rows <= ALONE && self.across(columns) {
            match rows {
                1 => self.sum_across::<L, 1>(a, b, tile, done),
                2 => self.sum_across::<L, 2>(a, b, tile, done),
                3 => self.sum_across::<L, 3>(a, b, tile, done),
                _ => self.sum_across::<L, 4>(a, b, tile, done),
            }
            return;
        }
        let most = p.panel.min(p.k);
        let wide = L::WIDTH * L::VECTORS;
        let (direct_a, direct_b) =
            self.direct(most, rows.div_ceil(L::ROWS), columns.div_ceil(wide));
        // A panel far larger than the cache is streamed, a few terms at a time.
        let far = direct_b && most.saturating_mul(b.k) > NEAR;
        let streamed = far && rows <= FEW;
        // A few long rows of `b` are packed and used a few terms at a time.
        let turned = !direct_b && b.k == 1 && rows <= SKINNY && columns <= wide;
        let terms = match (far, turned) {
            (true, _) => STREAMED,
            (_, true) => TURNED,
            _ => most.max(1),
        };
        // Micro-tiles of about as many rows each.
        let step = match streamed {
            true => rows,
            false => rows.div_ceil(rows.div_ceil(L::ROWS)),
        };
        let down = rows.div_ceil(step);
        let width = match step <= L::FEW && direct_b {
            true => L::WIDTH * L::WIDE,
            false => wide,
        };
        let across = columns.div_ceil(width);
        let block = (BLOCK / step).min(down);
        // The totals stand in the output if they need nothing but to be finished.
        let in_place = self.c.column == 1 && (done == Done::Copy || !p.added());
        // With one block of rows a sliver of `b` is packed when it is needed.
        let slivers = if block == down { 1 } else { across };
        let lengths = [
            if direct_a {
                0
            } else {
                block * step * most + SLACK
            },
            slivers * width * most + SLACK,
            if in_place { 0 } else { rows * across * width },
            if far || terms < most {
                rows * across * width
            } else {
                0
            },
        ];
        with_scratch(lengths, |[packed_a, packed_b, totals, sums]| {
            let own = |x: &mut [f32]| Place {
                data: x.as_mut_ptr(),
                row: across * width,
            };
            let (totals_at, sums_at) = (own(totals), own(sums));
            let out = if in_place {
                self.c.from(tile.batch, tile.rows.start, tile.columns.start)
            } else {
                totals_at
            };
            let mut soon = self.soon(&tile);
            let mut from = 0;
            loop {
                let k = p.panel.min(p.k - from);
                let (a, b) = (a.from(from), b.from(from));
                let last = from + k == p.k && in_place && done == Done::Finish;
                let pack = |b: Source<'_>, k: usize, lanes: usize, out: &mut [f32]| {
                    L::dispatch(Pack::<L> {
                        source: b,
                        lanes,
                        k,
                        width,
                        ahead: if turned { TURNED } else { 0 },
                        out,
                        lanes_type: PhantomData,
                    });
                };
                if !direct_b && slivers > 1 {
                    pack(b, k, columns, &mut packed_b[..across * width * k + SLACK]);
                }
                for first in (0..down).step_by(block) {
                    let steps = first..(first + block).min(down);
                    if !direct_a {
                        let lanes = (steps.end * step).min(rows) - first * step;
                        let len = lanes.div_ceil(step) * step * k + SLACK;
                        L::dispatch(Pack::<L> {
                            source: a.lanes(first * step),
                            lanes,
                            k,
                            width: step,
                            ahead: 0,
                            out: &mut packed_a[..len],
                            lanes_type: PhantomData,
                        });
                    }
                    if streamed && k > 0 {
                        L::dispatch(Stream::<L> {
                            a: if direct_a { a.data } else { packed_a },
                            a_k: if direct_a { a.k } else { step },
                            b: b.data,
                            b_k: b.k,
                            k,
                            rows,
                            columns,
                            running: if from == 0 { out } else { sums_at },
                            out,
                            end: End {
                                add: from > 0,
                                finish: last.then_some(p.alpha),
                            },
                            lanes: PhantomData,
                        });
                        continue;
                    }
                    for term in (0..k.max(1)).step_by(terms) {
                        let count = terms.min(k - term);
                        // Where the chains of this panel stand between its terms.
                        let running = if from == 0 { out } else { sums_at };
                        let closes = term + count == k;
                        for j in 0..across {
                            let column = j * width;
                            let lanes = width.min(columns - column);
                            let end = tile.columns.start + column + lanes;
                            if self.below(tile.rows.start + first * step, end) {
                                continue;
                            }
                            let vectors = lanes.div_ceil(L::WIDTH);
                            let source = b.lanes(column);
                            let reach = k.saturating_sub(1).saturating_mul(b.k);
                            let whole = reach.saturating_add(vectors * L::WIDTH);
                            let direct = direct_b && !far && whole <= source.data.len();
                            let (b_data, b_k) = if direct {
                                (&source.data[term * b.k..], b.k)
                            } else if turned || far {
                                let packed = &mut packed_b[..width * count + SLACK];
                                pack(source.from(term), count, lanes, packed);
                                (&packed[..], width)
                            } else {
                                let sliver = if slivers > 1 { j * width * k } else { 0 };
                                let packed = &mut packed_b[sliver..][..width * k + SLACK];
                                if (slivers == 1 || direct_b) && term == 0 {
                                    pack(source, k, lanes, packed);
                                }
                                (&packed[term * width..], width)
                            };
                            for i in steps.clone() {
                                let row = i * step;
                                if self.below(tile.rows.start + row, end) {
                                    break;
                                }
                                let (a_data, a_k) = if direct_a {
                                    (&a.lanes(row).data[term * a.k..], a.k)
                                } else {
                                    let at = (i - first) * step * k + term * step;
                                    (&packed_a[at..], step)
                                };
                                let step_rows = step.min(rows - row);
                                let (next, next_k) = if far && i == first {
                                    let ahead = width * (6 / down).max(1);
                                    let next =
                                        source.data.as_ptr().wrapping_add(term * b.k + ahead);
                                    (next, b.k)
                                } else {
                                    (soon.take(count), LINES)
                                };
                                // SAFETY: the places are of this tile.
                                let at = |x: Place| unsafe { x.at(row, column) };
                                L::chains(Chains {
                                    a: a_data,
                                    a_k,
                                    b: b_data,
                                    b_k,
                                    k: count,
                                    next,
                                    next_k,
                                    rows: step_rows,
                                    columns: lanes,
                                    vectors,
                                    from: (term > 0).then(|| at(running)),
                                    out: at(if closes { out } else { running }),
                                    end: End {
                                        add: closes && from > 0,
                                        finish: (closes && last).then_some(p.alpha),
                                    },
                                });
                            }
                        }
                    }
                }
                from += k;
                if from == p.k {
                    break;
                }
            }
            if !in_place {
                L::dispatch(Finish::<L> {
                    lanes_type: PhantomData,
                    p,
                    totals,
                    stride: across * width,
                    c: self.c,
                    tile,
                });
            }
        });
    }

    /// Whether few rows by so many columns can be formed by [`Across`].
    fn across(&self, columns: usize) -> bool {
        self.b.k == 1 && self.p.k >= 4 && columns >= ABREAST && self.direct != Some(false)
    }

    /// Forms a tile of `R` rows that begins with the first lanes of `a` and `b`.
    fn sum_across<L: Lanes, const R: usize>(
        &self,
        a: Source<'_>,
        b: Source<'_>,
        tile: Tile,
        done: Done,
    ) {
        let p = &self.p;
        let columns = tile.columns.len();
        let in_place = self.c.column == 1 && (done == Done::Copy || !p.added());
        let length = if in_place { 0 } else { R * columns };
        with_scratch([length, 0, 0, 0], |[totals, ..]| {
            let out = if in_place {
                self.c.from(tile.batch, tile.rows.start, tile.columns.start)
            } else {
                Place {
                    data: totals.as_mut_ptr(),
                    row: columns,
                }
            };
            L::dispatch(Across::<L, R> {
                a,
                b,
                k: p.k,
                panel: p.panel,
                columns,
                out,
                end: End {
                    add: false,
                    finish: (in_place && done == Done::Finish).then_some(p.alpha),
                },
                lanes: PhantomData,
            });
            if !in_place {
                L::dispatch(Finish::<L> {
                    lanes_type: PhantomData,
                    p,
                    totals,
                    stride: columns,
                    c: self.c,
                    tile,
                });
            }
        });
    }

    /// What the next member of a batch needs, where a tile is a small member.
    fn soon(&self, tile: &Tile) -> Soon {
        let p = &self.p;
        let lengths = [
            p.m.saturating_mul(p.k),
            p.k.saturating_mul(p.n),
            p.m.saturating_mul(p.n),
        ];
        let small = lengths.iter().all(|x| *x <= NEAR);
        let whole = (tile.rows.len(), tile.columns.len()) == (p.m, p.n);
        let next = tile.batch + 1;
        if !small || !whole || next >= p.batch {
            return Soon::NOTHING;
        }
        let c = self.c.data.wrapping_add(next * self.c.batch).cast_const();
        let (a, b) = (self.a.batch(next).data, self.b.batch(next).data);
        Soon {
            parts: [
                (a.as_ptr(), lengths[0]),
                (b.as_ptr(), lengths[1]),
                (c, lengths[2]),
            ],
            part: 0,
        }
    }

    /// Whether nothing of a tile is wanted.
    fn below(&self, first_row: usize, end_column: usize) -> bool {
        self.upper && end_column <= first_row
    }

    /// Which operands the micro-kernels read where they lie, a panel of `k` terms at a time.
    fn direct(&self, k: usize, down: usize, across: usize) -> (bool, bool) {
        // An operand is packed if it is read often and its rows are far apart.
        let near = |x: &Source<'_>| k.saturating_mul(x.k) <= NEAR;
        let (a, b) = (&self.a, &self.b);
        (
            a.lane == 1 && self.direct.unwrap_or(near(a) && across <= 8),
            b.lane == 1 && self.direct.unwrap_or(near(b) || down <= 3),
        )
    }

    /// Rows and columns of the tiles that keep `threads` threads equally busy.
    fn tiling<L: Lanes>(&self, threads: usize) -> Tiling {
        let p = &self.p;
        let width = L::WIDTH * L::VECTORS;
        let in_place = self.c.column == 1 && !p.added();
        let (max_rows, max_columns) = if p.m <= ALONE && self.across(p.n) {
            (p.m, TOTALS)
        } else if p.m <= SKINNY && self.b.k == 1 {
            // A few long rows of `b` are read side by side from end to end.
            (p.m, width)
        } else if p.m <= SKINNY {
            (p.m, TOTALS / 4 / p.m)
        } else if in_place {
            (p.m, COLUMNS)
        } else {
            (BLOCK, COLUMNS)
        };
        let (max_rows, max_columns) = (max_rows.div_ceil(L::ROWS), (max_columns / width).max(1));
        let (row_steps, column_steps) = (p.m.div_ceil(L::ROWS), p.n.div_ceil(width));
        let (least_rows, least_columns) = (
            row_steps.div_ceil(max_rows),
            column_steps.div_ceil(max_columns),
        );
        // A packed element costs about as much as this many vector fmas.
        let pack = 2 * L::WIDTH;
        let mut best = (f64::INFINITY, 0, 0);
        let finer = if threads == 1 { 1 } else { 8 };
        for row_tiles in least_rows..least_rows + finer {
            for column_tiles in least_columns..least_columns + finer {
                let (rows, columns) = (
                    row_steps.div_ceil(row_tiles),
                    column_steps.div_ceil(column_tiles),
                );
                let tiles = p.batch * row_steps.div_ceil(rows) * column_steps.div_ceil(columns);
                let (rows, columns) = (rows * L::ROWS, columns * width);
                let cost = rows * columns + pack * (rows + columns);
                // Threads wait for the last one, for a part of a tile.
                let rounds = tiles.div_ceil(threads) as f64 + if threads > 1 { 0.25 } else { 0.0 };
                let time = rounds * cost as f64;
                if time < best.0 {
                    best = (time, rows, columns);
                }
            }
        }
        let (time, rows, columns) = best;
        // All tiles of a panel on one thread, and the fold of its sums.
        let size = p.m * p.n;
        let panels = p.k.div_ceil(p.panel);
        let whole = (size + pack * (p.m + p.n) / 2 + size / 8) as f64 * p.batch as f64;
        let rounds = panels.div_ceil(threads) as f64 / panels.max(1) as f64;
        let half = if self.upper { 0.6 } else { 1.0 };
        let split = threads > 1
            && panels >= 2 * threads
            && size.saturating_mul(p.batch) <= SPLIT / 2
            && whole * rounds * half < 0.8 * time;
        if split {
            return Tiling {
                rows: p.m,
                columns: p.n.min(COLUMNS),
                split,
            };
        }
        Tiling {
            rows,
            columns,
            split,
        }
    }

    /// Writes what is above the diagonal below it.
    fn mirror(&self) {
        let p = &self.p;
        for batch in 0..p.batch {
            for block in (0..p.m).step_by(16) {
                for i in block + 1..p.m {
                    for j in block..i.min(block + 16) {
                        self.c.write([batch, i, j], self.c.read([batch, j, i]));
                    }
                }
            }
        }
    }
}

/// Places to ask for while a tile is formed.
struct Soon {
    parts: [(*const f32, usize); 3],
    part: usize,
}

/// Elements that a term of a micro-tile asks for.
const LINES: usize = 32;

impl Soon {
    const NOTHING: Self = Self {
        parts: [(std::ptr::null(), 0); 3],
        part: 3,
    };

    /// Where to begin asking for as much as `terms` terms do; null if nothing is left.
    fn take(&mut self, terms: usize) -> *const f32 {
        let Some((at, left)) = self.parts.get_mut(self.part) else {
            return std::ptr::null();
        };
        let place = *at;
        let step = terms * LINES;
        *at = at.wrapping_add(step);
        *left = left.saturating_sub(step);
        if *left == 0 {
            self.part += 1;
        }
        place
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

    /// The place of an element of a matrix whose rows each lie in one piece.
    fn from(self, batch: usize, row: usize, column: usize) -> Place {
        Place {
            // SAFETY: as in `write`.
            data: unsafe { self.data.add(self.place([batch, row, column])) },
            row: self.row,
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
    /// They are stored as they are, in place.
    Copy,
}

/// Stores the totals of a tile, whose rows lie `stride` apart. The totals are lost.
struct Finish<'a, L> {
    p: &'a Problem,
    totals: &'a mut [f32],
    stride: usize,
    c: Target<'a>,
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
            tile,
            ..
        } = self;
        let (first, columns) = (tile.columns.start, tile.columns.len());
        let (alpha, beta) = (p.alpha, p.beta);
        let (scaled, added) = (p.scaled(), p.added());
        let totals = &mut totals[..tile.rows.len() * stride];
        if !added {
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
            match c.part(at, columns) {
                Some(out) if added => {
                    for (c, &x) in out.iter_mut().zip(totals) {
                        *c = finish(ieee, x, alpha, beta, *c, scaled, true);
                    }
                }
                Some(out) => out.copy_from_slice(totals),
                None => {
                    for (j, &x) in totals.iter().enumerate() {
                        let at = [tile.batch, row, first + j];
                        let x = if added {
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
