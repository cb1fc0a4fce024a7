//! The micro-kernel: a tile of chains in registers.

use super::Source;
use crate::device::Loop;
use crate::ieee::Ieee;
use crate::ops::gemm::lanes::{Lanes, prefetch};
use std::marker::PhantomData;

/// One micro-tile over some terms of a panel.
pub(in crate::ops) struct Chains<'a> {
    /// A term's rows lie side by side, terms `a_k` apart.
    pub(super) a: &'a [f32],
    pub(super) a_k: usize,
    /// A term's whole vectors lie side by side, terms `b_k` apart.
    pub(super) b: &'a [f32],
    pub(super) b_k: usize,
    pub(super) k: usize,
    /// What to ask for meanwhile, two lines a term and terms `next_k` apart, if not null.
    pub(super) next: *const f32,
    pub(super) next_k: usize,
    pub(in crate::ops::gemm) rows: usize,
    /// Columns that are stored; chains run for whole vectors.
    pub(super) columns: usize,
    pub(in crate::ops::gemm) vectors: usize,
    /// Where the chains stand before (+0 if nowhere), rows `from_row` apart.
    pub(super) from: Option<Place>,
    pub(super) out: Place,
    pub(super) end: End,
}

/// One micro-tile in one panel, of operands and totals that are packed.
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

impl<'a> Micro<'a> {
    /// The micro-tile for vectors of `lanes`, `rows` rows a term and totals of `width` a row.
    #[inline(always)]
    pub(in crate::ops::gemm) fn chains(
        self,
        rows: usize,
        lanes: usize,
        width: usize,
    ) -> Chains<'a> {
        let columns = self.vectors * lanes;
        assert!(self.rows > 0 && (self.rows - 1) * width + columns <= self.totals.len());
        Chains {
            a: self.a,
            a_k: rows,
            b: self.b,
            b_k: self.stride,
            k: self.a.len() / rows,
            next: std::ptr::null(),
            next_k: 0,
            rows: self.rows,
            columns,
            vectors: self.vectors,
            from: None,
            out: Place {
                data: self.totals.as_mut_ptr(),
                row: width,
            },
            end: End {
                add: matches!(self.with, With::Add),
                finish: None,
            },
        }
    }
}

/// The first element of a tile that the task owns, and the distance of its rows.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) data: *mut f32,
    pub(super) row: usize,
}

/// What a micro-kernel does at the end of its terms.
#[derive(Clone, Copy)]
pub(super) struct End {
    /// Adds the sums to what is there instead of storing them.
    pub(super) add: bool,
    /// Then multiplies by `alpha` and makes NaN canonical.
    pub(super) finish: Option<f32>,
}

impl Place {
    /// `row` rows down and `column` columns across.
    ///
    /// # Safety
    /// The place is still one of the tile's.
    #[inline(always)]
    pub(super) unsafe fn at(self, row: usize, column: usize) -> Self {
        Self {
            // SAFETY: the caller's promise.
            data: unsafe { self.data.add(row * self.row + column) },
            ..self
        }
    }
}

/// The micro-kernel of `R` rows and `V` vectors.
pub(in crate::ops) struct Kernel<'a, L, const R: usize, const V: usize> {
    pub(in crate::ops::gemm) chains: Chains<'a>,
    pub(in crate::ops::gemm) lanes: PhantomData<L>,
}

impl<L: Lanes, const R: usize, const V: usize> Loop for Kernel<'_, L, R, V> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Chains {
            a,
            a_k,
            b,
            b_k,
            k,
            next,
            next_k,
            columns,
            from,
            out,
            end,
            ..
        } = self.chains;
        assert!(k == 0 || (k - 1) * a_k + R <= a.len());
        assert!(k == 0 || (k - 1) * b_k + V * L::WIDTH <= b.len());
        let tail = columns - (V - 1) * L::WIDTH;
        // `N6`: a chain over ascending k that starts from +0.
        let mut sums = [[L::splat(0.0); V]; R];
        if let Some(from) = from {
            for r in 0..R {
                for v in 0..V {
                    let part = if v + 1 < V || tail == L::WIDTH {
                        0
                    } else {
                        tail
                    };
                    // SAFETY: the tile is the task's (`Place`) and no wider than `columns`.
                    sums[r][v] = unsafe { load::<L>(from, r, v, part) };
                }
            }
        }
        if end.add {
            for r in 0..R {
                for v in 0..V {
                    prefetch(out.data.wrapping_add(r * out.row + v * L::WIDTH));
                }
            }
        }
        let (mut a, mut b) = (a.as_ptr(), b.as_ptr());
        if next.is_null() {
            for _ in 0..k {
                // SAFETY: the slices hold every term (asserted above).
                unsafe { term::<L, R, V>(a, b, &mut sums, ieee) };
                (a, b) = (a.wrapping_add(a_k), b.wrapping_add(b_k));
            }
        } else {
            let mut next = next;
            for _ in 0..k {
                prefetch(next);
                prefetch(next.wrapping_add(16));
                next = next.wrapping_add(next_k);
                // SAFETY: as above.
                unsafe { term::<L, R, V>(a, b, &mut sums, ieee) };
                (a, b) = (a.wrapping_add(a_k), b.wrapping_add(b_k));
            }
        }
        for r in 0..R {
            for v in 0..V {
                let part = if v + 1 < V || tail == L::WIDTH {
                    0
                } else {
                    tail
                };
                // SAFETY: as at the start.
                unsafe { close(out.at(r, v * L::WIDTH), sums[r][v], part, end, ieee) };
            }
        }
    }
}

/// One term of every chain.
///
/// # Safety
/// `R` elements of `a` and `V` vectors of `b` can be read.
#[inline(always)]
unsafe fn term<L: Lanes, const R: usize, const V: usize>(
    a: *const f32,
    b: *const f32,
    sums: &mut [[L; V]; R],
    ieee: Ieee,
) {
    // SAFETY: the caller's promise.
    let b: [L; V] = std::array::from_fn(|v| unsafe { L::load_at(b.add(v * L::WIDTH)) });
    for r in 0..R {
        // SAFETY: the caller's promise.
        let x = L::splat(unsafe { *a.add(r) });
        for v in 0..V {
            sums[r][v] = x.fma(b[v], sums[r][v], ieee);
        }
    }
}

/// Vector `v` of a row; of the last one only `part` lanes, if that is not 0.
///
/// # Safety
/// The elements can be read.
#[inline(always)]
unsafe fn load<L: Lanes>(from: Place, r: usize, v: usize, part: usize) -> L {
    // SAFETY: the caller's promise.
    unsafe {
        let x = from.at(r, v * L::WIDTH).data;
        if part == 0 {
            L::load_at(x)
        } else {
            L::load_part(x, part)
        }
    }
}

/// All micro-tiles of one step of few rows at once, in one panel: a few terms at a time are run
/// through all columns, so that memory is read along the rows of `b`.
pub(super) struct Stream<'a, L> {
    /// A term's rows lie side by side, terms `a_k` apart.
    pub(super) a: &'a [f32],
    pub(super) a_k: usize,
    /// A term's columns lie side by side, terms `b_k` apart.
    pub(super) b: &'a [f32],
    pub(super) b_k: usize,
    pub(super) k: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Where the chains stand between the terms, rows as far apart as those of `out`.
    pub(super) running: Place,
    pub(super) out: Place,
    pub(super) end: End,
    pub(super) lanes: PhantomData<L>,
}

impl<L: Lanes> Loop for Stream<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Self { k, .. } = self;
        assert!(k > 0 && (k - 1) * self.a_k + self.rows <= self.a.len());
        assert!((k - 1) * self.b_k + self.columns <= self.b.len());
        // SAFETY: the slices hold every term (asserted above).
        unsafe {
            match self.rows {
                1 => stream::<L, 1>(&self, ieee),
                2 => stream::<L, 2>(&self, ieee),
                3 => stream::<L, 3>(&self, ieee),
                4 => stream::<L, 4>(&self, ieee),
                5 => stream::<L, 5>(&self, ieee),
                6 => stream::<L, 6>(&self, ieee),
                7 => stream::<L, 7>(&self, ieee),
                8 => stream::<L, 8>(&self, ieee),
                rows => unreachable!("a stream of {rows} rows"),
            }
        }
    }
}

/// # Safety
/// The operands hold every term of `R` rows.
#[inline(always)]
unsafe fn stream<L: Lanes, const R: usize>(x: &Stream<'_, L>, ieee: Ieee) {
    let whole = x.k / 8 * 8;
    for term in (0..whole).step_by(8) {
        // SAFETY: the caller's promise.
        unsafe { terms::<L, R, 8>(x, term, ieee) };
    }
    for term in whole..x.k {
        // SAFETY: the caller's promise.
        unsafe { terms::<L, R, 1>(x, term, ieee) };
    }
}

/// Runs `T` terms of every chain (`N6`: ascending).
///
/// # Safety
/// The operands hold the terms.
#[inline(always)]
unsafe fn terms<L: Lanes, const R: usize, const T: usize>(
    x: &Stream<'_, L>,
    term: usize,
    ieee: Ieee,
) {
    let mut a = [[0.0; R]; T];
    for t in 0..T {
        for r in 0..R {
            // SAFETY: the caller's promise.
            a[t][r] = unsafe { *x.a.as_ptr().add((term + t) * x.a_k + r) };
        }
    }
    let whole = x.columns / L::WIDTH * L::WIDTH;
    for column in (0..whole).step_by(L::WIDTH) {
        // SAFETY: the caller's promise.
        unsafe { vector::<L, R, T>(x, &a, term, column, 0, ieee) };
    }
    if whole < x.columns {
        // SAFETY: the caller's promise.
        unsafe { vector::<L, R, T>(x, &a, term, whole, x.columns - whole, ieee) };
    }
}

/// Runs `T` terms of a vector of columns, of which only `part` exist, if that is not 0.
///
/// # Safety
/// The operands hold the terms.
#[inline(always)]
unsafe fn vector<L: Lanes, const R: usize, const T: usize>(
    x: &Stream<'_, L>,
    a: &[[f32; R]; T],
    term: usize,
    column: usize,
    part: usize,
    ieee: Ieee,
) {
    let (first, last) = (term == 0, term + T == x.k);
    let mut sums = [L::splat(0.0); R];
    if !first {
        for r in 0..R {
            // SAFETY: the places are of the task's tile.
            sums[r] = unsafe { load::<L>(x.running.at(r, column), 0, 0, part) };
        }
    }
    for t in 0..T {
        let b = Place {
            data: x
                .b
                .as_ptr()
                .wrapping_add((term + t) * x.b_k + column)
                .cast_mut(),
            row: 0,
        };
        // SAFETY: the caller's promise.
        let b = unsafe { load::<L>(b, 0, 0, part) };
        for r in 0..R {
            sums[r] = L::splat(a[t][r]).fma(b, sums[r], ieee);
        }
    }
    for r in 0..R {
        // SAFETY: the places are of the task's tile.
        unsafe {
            if last {
                close(x.out.at(r, column), sums[r], part, x.end, ieee);
            } else {
                store(x.running.at(r, column), sums[r], part);
            }
        }
    }
}

/// Columns that [`Across`] runs at once.
pub(super) const ABREAST: usize = 16;

/// Few rows by columns whose terms lie side by side: terms of neighbouring columns are turned in
/// registers on their way from memory, and meanwhile the next panel is asked for in long pieces.
pub(super) struct Across<'a, L, const R: usize> {
    /// Rows and terms of any distance.
    pub(super) a: Source<'a>,
    pub(super) b: Source<'a>,
    /// At least 4.
    pub(super) k: usize,
    pub(super) panel: usize,
    /// At least [`ABREAST`].
    pub(super) columns: usize,
    pub(super) out: Place,
    pub(super) end: End,
    pub(super) lanes: PhantomData<L>,
}

impl<L: Lanes, const R: usize> Loop for Across<'_, L, R> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        match L::WIDTH {
            16 => across::<L, R, 1>(&self, ieee),
            8 => across::<L, R, 2>(&self, ieee),
            _ => across::<L, R, 4>(&self, ieee),
        }
    }
}

#[inline(always)]
fn across<L: Lanes, const R: usize, const V: usize>(x: &Across<'_, L, R>, ieee: Ieee) {
    let (a, b, k) = (x.a, x.b, x.k);
    let reach = |lanes: usize, s: Source<'_>| {
        (lanes - 1).saturating_mul(s.lane) + (k - 1).saturating_mul(s.k)
    };
    assert!(k >= 4 && reach(R, a) < a.data.len());
    assert!(x.columns >= ABREAST && b.k == 1 && reach(x.columns, b) < b.data.len());
    for column in (0..x.columns).step_by(ABREAST) {
        // The last columns overlap those before rather than be fewer.
        let column = column.min(x.columns - ABREAST);
        let rows = b.data.as_ptr().wrapping_add(column * b.lane);
        let mut totals = [[L::splat(0.0); V]; R];
        for from in (0..k).step_by(x.panel) {
            let len = x.panel.min(k - from);
            let (next, ahead) = if from + len < k {
                (rows.wrapping_add(from + len), k - from - len)
            } else {
                (rows.wrapping_add(ABREAST * b.lane), k)
            };
            let lines = ahead.min(x.panel).div_ceil(16);
            let steps = len.div_ceil(16);
            // `N6`: a chain over ascending k that starts from +0, and panels in their order.
            let mut sums = [[L::splat(0.0); V]; R];
            for step in 0..steps {
                for row in step * ABREAST / steps..(step + 1) * ABREAST / steps {
                    for line in 0..lines {
                        prefetch(next.wrapping_add(row * b.lane + 16 * line));
                    }
                }
                let end = from + len.min(16 * (step + 1));
                let mut at = from + 16 * step;
                while at + 4 <= end {
                    // SAFETY: the operands hold the terms (asserted above).
                    unsafe { turned::<L, R, V>(a, rows, b.lane, at, 0, &mut sums, ieee) };
                    at += 4;
                }
                if at < end {
                    // Four terms that end with the last one, of which the first are done.
                    let first = end.max(4) - 4;
                    // SAFETY: as above.
                    unsafe {
                        turned::<L, R, V>(a, rows, b.lane, first, at - first, &mut sums, ieee)
                    };
                }
            }
            for r in 0..R {
                for v in 0..V {
                    totals[r][v] = if from == 0 {
                        sums[r][v]
                    } else {
                        totals[r][v].add(sums[r][v], ieee)
                    };
                }
            }
        }
        for r in 0..R {
            for v in 0..V {
                // SAFETY: the places are of the task's tile.
                unsafe {
                    let out = x.out.at(r, column + v * L::WIDTH);
                    close(out, totals[r][v], 0, x.end, ieee);
                }
            }
        }
    }
}

/// Of the four terms at `at` those from `skip` on.
///
/// # Safety
/// `a` holds the terms of `R` rows, and so do `V` vectors of rows, `lane` apart.
#[inline(always)]
unsafe fn turned<L: Lanes, const R: usize, const V: usize>(
    a: Source<'_>,
    rows: *const f32,
    lane: usize,
    at: usize,
    skip: usize,
    sums: &mut [[L; V]; R],
    ieee: Ieee,
) {
    for v in 0..V {
        // SAFETY: the caller's promise.
        let b = unsafe { L::turned(rows.add(v * L::WIDTH * lane + at), lane) };
        for t in 0..4 {
            if t < skip {
                continue;
            }
            for r in 0..R {
                // SAFETY: the caller's promise.
                let a = L::splat(unsafe { *a.data.as_ptr().add(r * a.lane + (at + t) * a.k) });
                sums[r][v] = a.fma(b[t], sums[r][v], ieee);
            }
        }
    }
}

/// Stores the sums of a panel, of the last vector only `part` lanes, if that is not 0.
///
/// # Safety
/// The elements can be read and written.
#[inline(always)]
unsafe fn close<L: Lanes>(out: Place, mut sum: L, part: usize, end: End, ieee: Ieee) {
    if end.add {
        // `N6`: the panels' sums in ascending order.
        // SAFETY: the caller's promise.
        sum = unsafe { load::<L>(out, 0, 0, part) }.add(sum, ieee);
    }
    if let Some(alpha) = end.finish {
        if alpha != 1.0 {
            sum = L::splat(alpha).mul(sum, ieee);
        }
        sum = sum.canonical(ieee);
    }
    // SAFETY: the caller's promise.
    unsafe { store(out, sum, part) }
}

/// # Safety
/// The elements can be written.
#[inline(always)]
unsafe fn store<L: Lanes>(to: Place, x: L, part: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if part == 0 {
            x.store_at(to.data);
        } else {
            x.store_part(to.data, part);
        }
    }
}
