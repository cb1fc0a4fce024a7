//! Products of few rows: a cube takes 32 columns and several of their panels side by side, and
//! folds them itself.
//!
//! Such products take the time of reading `b` once. Units of a plane are 32 columns at one panel;
//! they ask for many terms of their columns before they use the first.

use super::product::{Extent, Output, Write};
use super::stage::{Operand, Read};
use super::{Four, extent, operand, output};
use crate::device::{Device, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::gemm::{Problem, finish};
use crate::prim;
use cubecl::prelude::*;

/// Columns of a cube.
const COLUMNS: u32 = 32;

/// Everything that changes the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Thin {
    /// Rows, a power of two.
    rows: u32,
    a: Read,
    /// `Terms`, or `Words` of columns side by side.
    b: Read,
    /// Panels side by side; at least as many as rows.
    workers: u32,
    /// Terms that a unit asks for at a time, at least 16.
    ahead: u32,
    scaled: bool,
    added: bool,
    write: Write,
}

impl Thin {
    /// Columns of a cube.
    pub(super) const COLUMNS: usize = COLUMNS as usize;

    /// How `b` is read.
    pub(super) fn reads(&self) -> [Read; 2] {
        [self.a, self.b]
    }

    pub(super) fn write(&self) -> Write {
        self.write
    }

    /// The schedule of a product of few rows, if its operands lie so that it can be read well.
    pub(super) fn of(
        device: &Device,
        p: &Problem,
        [a, b]: [Read; 2],
        side_by_side: bool,
        write: Write,
    ) -> Option<Self> {
        let b = match b {
            Read::Terms => Read::Terms,
            Read::Lanes => Read::Words,
            Read::Words if side_by_side => Read::Words,
            _ => return None,
        };
        let rows = p.m.next_power_of_two() as u32;
        let roomy = super::choose::shared(device) >= 48 << 10;
        let (workers, ahead) = match (b, roomy) {
            (Read::Words, true) => (16, 32),
            (_, true) => (8, 32),
            (_, false) => (4, 16),
        };
        let fits = a != Read::Table && rows <= workers.min(8);
        fits.then_some(Self {
            rows,
            a: if a == Read::Terms { a } else { Read::Words },
            b,
            workers,
            ahead,
            scaled: p.scaled(),
            added: p.added(),
            write,
        })
    }

    /// Vectors of a column that are staged, and one more: columns that are read at a time are in
    /// different banks.
    fn pitch(&self) -> u32 {
        self.ahead / 4 + 1
    }

    fn stage(&self) -> u32 {
        match self.b {
            Read::Terms => self.workers * COLUMNS * self.pitch(),
            _ => 1,
        }
    }
}

/// Four terms of a row from `k` on. Those from `end` on leave sums as they are.
#[cube]
fn row_terms(a: &Operand, base: u32, row: u32, k: u32, end: u32, #[comptime] v: Thin) -> Four {
    let row = prim::select_u32(row < a.count, row, a.count - 1u32);
    let first = base + row * a.lane;
    let mut r = Four::new(a.pad);
    if comptime!(v.a == Read::Terms) {
        if k < end {
            r = a.wide[((first + k) / 4u32) as usize];
        }
    } else {
        let mut words = Four::empty();
        #[unroll]
        for l in 0..4u32 {
            let mut word = a.pad;
            if k + l < end {
                word = a.words[(first + (k + l) * a.k) as usize];
            }
            words[l as usize] = word;
        }
        r = words;
    }
    r
}

/// The terms that a unit takes in one step: `k` and the end of its panel.
#[derive(CubeType, Clone, Copy)]
struct Stretch {
    k: u32,
    end: u32,
}

/// Those of step `s`; none beyond the last panel.
#[cube]
fn stretch(size: &Extent, s: u32, steps: u32, worker: u32, #[comptime] v: Thin) -> Stretch {
    let panel = s / steps * comptime!(v.workers) + worker;
    let panels = (size.k + size.panel - 1u32) / size.panel;
    let from = prim::select_u32(panel < panels, panel * size.panel, size.k);
    let left = size.k - from;
    Stretch {
        k: from + s % steps * comptime!(v.ahead),
        end: from + prim::select_u32(left < size.panel, left, size.panel),
    }
}

/// Asks for the terms of columns. Units in a row read a column's terms in a row where those lie
/// side by side; else each reads its own column's.
#[cube]
fn ask(
    b: &Operand,
    base: u32,
    column: u32,
    at: &Stretch,
    next: &mut Array<Four>,
    #[comptime] v: Thin,
) {
    let quads = comptime!(v.ahead / 4);
    let lane = UNIT_POS % COLUMNS;
    if comptime!(v.b == Read::Terms) {
        let first = column - lane;
        #[unroll]
        for i in 0..quads {
            let vector = i * COLUMNS + lane;
            let (j, q) = (vector / quads, vector % quads);
            let other = prim::select_u32(first + j < b.count, first + j, b.count - 1u32);
            let mut r = Four::new(b.pad);
            if at.k + q * 4u32 < at.end {
                r = b.wide[((base + other * b.lane + at.k) / 4u32 + q) as usize];
            }
            next[i as usize] = r;
        }
    } else {
        let own = prim::select_u32(column < b.count, column, b.count - 1u32);
        let first = base + own * b.lane;
        #[unroll]
        for q in 0..quads {
            let mut words = Four::empty();
            #[unroll]
            for l in 0..4u32 {
                let term = at.k + q * 4u32 + l;
                let mut word = b.pad;
                if term < at.end {
                    word = b.words[(first + term * b.k) as usize];
                }
                words[l as usize] = word;
            }
            next[q as usize] = words;
        }
    }
}

#[cube]
fn thin(
    ieee: &Ieee,
    a: &Operand,
    b: &Operand,
    out: &mut Output,
    size: &Extent,
    #[comptime] v: Thin,
    #[comptime] unroll: bool,
) {
    let rows = comptime!(v.rows);
    let workers = comptime!(v.workers);
    let quads = comptime!(v.ahead / 4);
    let pitch = comptime!(v.pitch());
    let tile = CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X;
    let lane = UNIT_POS % COLUMNS;
    let worker = UNIT_POS / COLUMNS;
    let column = tile * COLUMNS + lane;
    let batch = CUBE_POS_Z + size.first;
    if tile * COLUMNS < size.n {
        let mut stage = SharedMemory::<Four>::new(comptime!(v.stage() as usize));
        let mut parts = SharedMemory::<f32>::new(comptime!((workers * rows * COLUMNS) as usize));
        let mut sums = Array::<f32>::new(comptime!(rows as usize));
        let mut next = Array::<Four>::new(comptime!(quads as usize));
        let mut now = Array::<Four>::new(comptime!(quads as usize));
        let base_a = a.offset + batch * a.batch;
        let base_b = b.offset + batch * b.batch;
        let of_plane = worker * comptime!(COLUMNS * v.pitch());
        let panels = (size.k + size.panel - 1u32) / size.panel;
        let steps = (size.panel + comptime!(v.ahead - 1)) / comptime!(v.ahead);
        let rounds = (panels + (workers - 1u32)) / workers;
        // What adding leaves as it is.
        let mut total = size.nothing;
        if panels == 0u32 {
            total = size.zero;
        }
        #[unroll]
        for r in 0..rows {
            sums[r as usize] = size.zero;
        }
        let first = stretch(size, 0u32, steps, worker, v);
        ask(b, base_b, column, &first, &mut next, v);
        for s in 0..rounds * steps {
            if comptime!(v.b == Read::Terms) {
                sync_cube();
                #[unroll]
                for i in 0..quads {
                    let vector = i * COLUMNS + lane;
                    let place = of_plane + vector / quads * pitch + vector % quads;
                    stage[place as usize] = next[i as usize];
                }
                sync_cube();
                #[unroll]
                for q in 0..quads {
                    now[q as usize] = stage[(of_plane + lane * pitch + q) as usize];
                }
            } else {
                #[unroll]
                for q in 0..quads {
                    now[q as usize] = next[q as usize];
                }
            }
            // The next terms are on their way while these are multiplied.
            let ahead = stretch(size, s + 1u32, steps, worker, v);
            ask(b, base_b, column, &ahead, &mut next, v);
            let at = stretch(size, s, steps, worker, v);
            #[unroll(unroll)]
            for q in 0..quads {
                let four = now[q as usize];
                #[unroll(unroll)]
                for r in 0..rows {
                    let x = row_terms(a, base_a, r, at.k + q * 4u32, at.end, v);
                    #[unroll]
                    for l in 0..4u32 {
                        // `N6`: a chain over ascending k.
                        sums[r as usize] =
                            ieee.fma(x[l as usize], four[l as usize], sums[r as usize]);
                    }
                }
            }
            if (s + 1u32) % steps == 0u32 {
                #[unroll]
                for r in 0..rows {
                    parts[((worker * rows + r) * COLUMNS + lane) as usize] = sums[r as usize];
                    sums[r as usize] = size.zero;
                }
                sync_cube();
                // `N6`: panels are added in order, a row's by the worker of its number.
                if worker < rows {
                    let left = panels - s / steps * workers;
                    for w in 0..prim::select_u32(left < workers, left, workers) {
                        let part = parts[((w * rows + worker) * COLUMNS + lane) as usize];
                        total = ieee.add(total, part);
                    }
                }
                sync_cube();
            }
        }
        if worker < size.m && column < size.n {
            let place = out.offset + batch * out.batch + out.row_at(worker) + out.column_at(column);
            let mut c = size.zero;
            if comptime!(v.added) {
                c = out.words[place as usize];
            }
            out.words[place as usize] =
                finish(*ieee, total, size.alpha, size.beta, c, v.scaled, v.added);
        }
    }
}

pub(super) fn kernel(profile: FloatProfile, v: Thin) -> Kernel {
    let unroll = profile.direct();
    let units = CubeDim::new_1d(v.workers * COLUMNS);
    Kernel::new("gemm_thin", profile, v, units, move |d| {
        let ieee = d.ieee();
        let (a, b) = (operand(d, v.a), operand(d, v.b));
        let out = output(d, v.write);
        let size = extent(d);
        thin::expand(d.scope(), ieee, a, b, out, size, v, unroll);
    })
}

/// Each way of reading.
pub(super) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let base = Thin {
        rows: 1,
        a: Read::Terms,
        b: Read::Terms,
        workers: 8,
        ahead: 32,
        scaled: false,
        added: false,
        write: Write::Words,
    };
    [
        base,
        Thin {
            rows: 8,
            b: Read::Words,
            workers: 16,
            ..base
        },
        Thin {
            rows: 4,
            a: Read::Words,
            workers: 4,
            ahead: 16,
            scaled: true,
            added: true,
            write: Write::Table,
            ..base
        },
    ]
    .into_iter()
    .map(|v| kernel(profile, v))
    .collect()
}
