//! The CPU path: implicit products of matrices, and direct sums where a group is narrow.
//!
//! Images are first copied with their padding, the columns of a row sorted by their remainder
//! modulo the stride. Then through every tap neighbouring places see neighbouring elements:
//! the element that place j sees as term k lies at `lanes[j] + terms[k]`, and lanes follow each
//! other along a row.
//!
//! The micro-kernel is that of [products](crate::ops::gemm). Its columns are places and its rows
//! output channels; for weight gradients columns are weights, rows output channels, and terms
//! places. Groups with few output channels would leave it idle: they run each place's chain over
//! vectors of places as they lie, and weight gradients of such groups over vectors of groups.

use super::{Axis, Sums, finish, outside};
use crate::device::{Loop, Simd, zeros};
use crate::ieee::Ieee;
use crate::ops::gemm::cpu::{Micro, With, with_scratch};
use crate::ops::gemm::lanes::Lanes;
use crate::ops::parallel::for_chunks;
use detml_core::Result;
use rayon::prelude::*;
use std::marker::PhantomData;
use std::ops::Range;

/// A schedule to force in tests; the default is chosen by shape and threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Whether groups are taken for narrow.
    pub(super) narrow: Option<bool>,
    /// Images padded at a time.
    pub(super) images: Option<usize>,
    /// Columns of a task's tile, in micro-tiles.
    pub(super) steps: Option<usize>,
    /// Whether the panels of weight gradients run side by side.
    pub(super) split: Option<bool>,
}

/// Padded images that are held at a time, in elements.
const IMAGES: usize = 1 << 22;
/// Below this many multiply-adds threads cost more than they bring.
const SERIAL: usize = 1 << 17;
/// Elements that vectors may read or write beyond the last one.
const SLACK: usize = 64;
/// Fewer rows than this are narrow.
const NARROW: usize = 4;

macro_rules! dispatch {
    ($simd:expr, $call:ident($($arg:expr),*)) => {
        match $simd {
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => $call::<std::arch::x86_64::__m512>($($arg),*),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => $call::<std::arch::x86_64::__m256>($($arg),*),
            #[cfg(target_arch = "aarch64")]
            Simd::Neon => $call::<std::arch::aarch64::float32x4_t>($($arg),*),
            _ => $call::<[f32; 4]>($($arg),*),
        }
    };
}

/// Runs sums over the same source whose places fill the output.
pub(super) fn sums(
    simd: Simd,
    sums: &[Sums],
    source: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    out: &mut [f32],
    plan: Plan,
) -> Result<()> {
    dispatch!(simd, run_sums(sums, source, w, bias, out, plan))
}

/// The weight gradient of the convolution `p`.
pub(super) fn weights(
    simd: Simd,
    p: &Sums,
    x: &[f32],
    y: &[f32],
    out: &mut [f32],
    plan: Plan,
) -> Result<()> {
    dispatch!(simd, run_weights(p, x, y, out, plan))
}

/// Where the elements of a padded plane lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plane {
    /// Rows and columns of the source.
    size: [usize; 2],
    /// Zeros before and behind.
    rows: [usize; 2],
    columns: [usize; 2],
    /// Columns with equal remainders lie together, `part` of them.
    phases: usize,
    part: usize,
}

impl Plane {
    fn new(sums: &[Sums], phases: bool) -> Self {
        let (rows, columns) = (outside(sums, 0), outside(sums, 1));
        let size = [sums[0].axes[0].source, sums[0].axes[1].source];
        let phases = if phases { sums[0].axes[1].scale } else { 1 };
        Self {
            size,
            rows,
            columns,
            phases,
            part: (columns[0] + size[1] + columns[1]).div_ceil(phases),
        }
    }

    /// Whether it is the source as it lies.
    fn is_source(&self) -> bool {
        (self.rows, self.columns, self.phases) == ([0; 2], [0; 2], 1)
    }

    fn row(&self) -> usize {
        self.phases * self.part
    }

    fn len(&self) -> usize {
        (self.rows[0] + self.size[0] + self.rows[1]) * self.row()
    }

    /// Where in the padded plane place (0, 0) sees through the taps of rows and of columns.
    fn taps(&self, axes: &[Axis; 2]) -> [Vec<usize>; 2] {
        let at = |axis: &Axis, low: usize, t: usize| {
            (low as isize + axis.first + t as isize * axis.step) as usize
        };
        let rows = (0..axes[0].taps).map(|t| at(&axes[0], self.rows[0], t) * self.row());
        let columns = (0..axes[1].taps).map(|t| {
            let column = at(&axes[1], self.columns[0], t);
            column % self.phases * self.part + column / self.phases
        });
        [rows.collect(), columns.collect()]
    }

    /// Offsets of the terms of a sum, `channel` elements from a channel to the next.
    fn terms(&self, p: &Sums, channel: usize) -> Vec<usize> {
        let [rows, columns] = self.taps(&p.axes);
        let mut terms = Vec::with_capacity(p.terms());
        for c in 0..p.channels {
            for row in &rows {
                terms.extend(columns.iter().map(|column| c * channel + row + column));
            }
        }
        terms
    }

    /// Elements from a row of places to the next, and from a place to the next.
    fn lane(&self, axes: &[Axis; 2]) -> [usize; 2] {
        [axes[0].scale * self.row(), axes[1].scale / self.phases]
    }

    /// Copies a plane.
    fn fill(&self, source: &[f32], out: &mut [f32]) {
        let (row, first, columns) = (self.row(), self.columns[0], self.size[1]);
        let (head, rest) = out.split_at_mut(self.rows[0] * row);
        let (body, tail) = rest.split_at_mut(self.size[0] * row);
        head.fill(0.0);
        tail.fill(0.0);
        if columns == 0 {
            body.fill(0.0);
            return;
        }
        for (from, out) in source.chunks_exact(columns).zip(body.chunks_exact_mut(row)) {
            if self.phases == 1 {
                out[..first].fill(0.0);
                out[first..first + columns].copy_from_slice(from);
                out[first + columns..].fill(0.0);
                continue;
            }
            for (phase, out) in out.chunks_exact_mut(self.part).enumerate() {
                // Column `phase + i * phases` of the padded row.
                let skip = first
                    .saturating_sub(phase)
                    .div_ceil(self.phases)
                    .min(self.part);
                let at = phase + skip * self.phases - first;
                let from = from.get(at..).unwrap_or_default();
                let count = from.len().div_ceil(self.phases).min(self.part - skip);
                out[..skip].fill(0.0);
                for (out, x) in out[skip..].iter_mut().zip(from.iter().step_by(self.phases)) {
                    *out = *x;
                }
                out[skip + count..].fill(0.0);
            }
        }
    }
}

/// An output written by several threads in disjoint places.
#[derive(Clone, Copy)]
struct Shared<'a> {
    data: *mut f32,
    len: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

// SAFETY: tasks reach disjoint elements, see `Shared::part`.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    fn new(data: &'a mut [f32]) -> Self {
        Self {
            data: data.as_mut_ptr(),
            len: data.len(),
            lifetime: PhantomData,
        }
    }

    /// # Safety
    /// No other slice that lives holds any of the elements.
    #[allow(clippy::mut_from_ref)]
    unsafe fn part(&self, at: usize, len: usize) -> &mut [f32] {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: within the output, and the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(at), len) }
    }
}

/// Runs tasks `0..count`, on the threads of the pool if there are several and `threads`.
fn for_tasks(count: usize, threads: bool, f: &(dyn Fn(usize) + Sync)) {
    if threads && count > 1 {
        (0..count).into_par_iter().for_each(f);
    } else {
        (0..count).for_each(f);
    }
}

fn run_sums<L: Lanes>(
    sums: &[Sums],
    source: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    out: &mut [f32],
    plan: Plan,
) -> Result<()> {
    let Some(p) = sums.first() else { return Ok(()) };
    let work = sums
        .iter()
        .map(|p| p.places().saturating_mul(p.terms()))
        .fold(0usize, usize::saturating_add)
        .saturating_mul(p.images * p.groups * p.rows);
    let threads = work >= SERIAL && rayon::current_num_threads() > 1;
    let out = Shared::new(out);
    if plan.narrow.unwrap_or_else(|| is_narrow::<L>(sums)) {
        narrow_sums::<L>(sums, source, w, bias, out, threads);
        return Ok(());
    }
    let plane = Plane::new(sums, true);
    let (channels, unpadded) = (p.groups * p.channels, plane.size[0] * plane.size[1]);
    let (padded, copies) = match plane.is_source() {
        true => (unpadded, false),
        false => (plane.len(), true),
    };
    let image = channels * padded;
    let at_once = match copies {
        true => plan
            .images
            .unwrap_or(IMAGES / image.max(1))
            .clamp(1, p.images),
        false => p.images,
    };
    let mut scratch = zeros::<f32>(if copies { at_once * image + SLACK } else { 0 })?;
    let products: Vec<Product<'_>> = sums
        .iter()
        .map(|p| Product::new::<L>(p, &plane, padded, w, bias, threads))
        .collect::<Result<_>>()?;
    for first in (0..p.images).step_by(at_once) {
        let images = at_once.min(p.images - first);
        let source = if copies {
            let source = &source[first * channels * unpadded..];
            for_chunks(
                &mut scratch[..images * image],
                padded,
                threads,
                &|at, out| {
                    let at = at / padded * unpadded;
                    plane.fill(&source[at..at + unpadded], out);
                },
            );
            &scratch[..]
        } else {
            source
        };
        let batch = Batch {
            source,
            image,
            first,
            images,
        };
        for product in &products {
            product.run::<L>(&batch, out, threads, plan);
        }
    }
    Ok(())
}

/// Whether chains over places as they lie are faster than products: where rows are so few that
/// copying places takes long, vectors are well filled, and a group's planes stay in a cache.
fn is_narrow<L: Lanes>(sums: &[Sums]) -> bool {
    let p = &sums[0];
    let planes = p.channels * p.axes[0].source * p.axes[1].source;
    p.rows < NARROW
        || (p.rows <= 16
            && planes <= 1 << 17
            && p.images * p.groups >= rayon::current_num_threads()
            && sums.iter().all(|p| p.axes[1].len >= 3 * L::WIDTH))
}

/// One class of sums as products of matrices, its weights packed.
struct Product<'a> {
    p: &'a Sums,
    bias: Option<&'a [f32]>,
    /// For each group and panel its terms, each of `ROWS` elements, for each step of rows.
    weights: Vec<f32>,
    /// Elements of a group in `weights`.
    group: usize,
    terms: Vec<usize>,
    /// From a row of places to the next.
    lane_row: usize,
    /// From one channel of the source to the next.
    channel: usize,
}

impl<'a> Product<'a> {
    fn new<L: Lanes>(
        p: &'a Sums,
        plane: &Plane,
        channel: usize,
        w: &[f32],
        bias: Option<&'a [f32]>,
        threads: bool,
    ) -> Result<Self> {
        let down = p.rows.div_ceil(L::ROWS);
        let group = down * L::ROWS * p.terms();
        let mut weights = zeros::<f32>(p.groups * group)?;
        let taps = weight_taps(p);
        let pack = |g: usize, mut out: &mut [f32]| {
            for taps in taps.chunks(p.panel) {
                let runs = runs_of(taps);
                for step in 0..down {
                    let part = L::ROWS * taps.len();
                    let (part, rest) = std::mem::take(&mut out).split_at_mut(part);
                    out = rest;
                    let first = step * L::ROWS;
                    L::dispatch(Turn {
                        source: w,
                        lanes: L::ROWS.min(p.rows - first),
                        lane: |l| g * p.group + (first + l) * p.row,
                        runs: &runs,
                        width: L::ROWS,
                        out: part,
                    });
                }
            }
        };
        if group > 0 {
            for_chunks(&mut weights, group, threads, &|at, out| {
                pack(at / group, out)
            });
        }
        Ok(Self {
            p,
            bias,
            weights,
            group,
            terms: plane.terms(p, channel),
            lane_row: plane.lane(&p.axes)[0],
            channel,
        })
    }

    /// Fills the places of the images of a batch.
    fn run<L: Lanes>(&self, batch: &Batch<'_>, out: Shared<'_>, threads: bool, plan: Plan) {
        let p = self.p;
        let width = L::WIDTH * L::VECTORS;
        let all = batch.images * p.places();
        let across = all.div_ceil(width);
        // Totals of a tile stay in the second-level cache; all threads have tiles.
        let pool = if threads {
            rayon::current_num_threads()
        } else {
            1
        };
        let fit = ((1 << 16) / (p.rows.next_multiple_of(L::ROWS) * width)).clamp(1, 16);
        let fair = (p.groups * across).div_ceil(3 * pool);
        let steps = plan.steps.unwrap_or(fit.min(fair)).clamp(1, across.max(1));
        let tiles = across.div_ceil(steps);
        for_tasks(p.groups * tiles, threads, &|task| {
            let (group, tile) = (task / tiles, task % tiles);
            let columns = tile * steps * width..((tile + 1) * steps * width).min(all);
            self.tile::<L>(batch, group, columns, out);
        });
    }

    /// The places `columns` of a group, counted over the images of the batch.
    fn tile<L: Lanes>(
        &self,
        batch: &Batch<'_>,
        group: usize,
        columns: Range<usize>,
        out: Shared<'_>,
    ) {
        let p = self.p;
        let width = L::WIDTH * L::VECTORS;
        let slot = L::ROWS * width;
        let down = p.rows.div_ceil(L::ROWS);
        let across = columns.len().div_ceil(width);
        let terms = p.terms();
        let lengths = [
            p.panel.min(terms) * width + SLACK,
            down * across * slot,
            0,
            0,
        ];
        let weights = &self.weights[group * self.group..][..self.group];
        let source = &batch.source[group * p.channels * self.channel..];
        let each_column = |step: usize| {
            let first = columns.start + step * width;
            first..columns.end.min(first + width)
        };
        with_scratch(lengths, |[packed, totals, ..]| {
            let mut from = 0;
            loop {
                let k = p.panel.min(terms - from);
                for step in 0..across {
                    let columns = each_column(step);
                    L::dispatch(Gather::<L, _> {
                        source,
                        terms: &self.terms[from..from + k],
                        runs: self.runs(batch.image, columns.clone()),
                        out: packed,
                        lanes: PhantomData,
                    });
                    for i in 0..down {
                        let at = (down * from + i * k) * L::ROWS;
                        micro::<L>(
                            &weights[at..][..L::ROWS * k],
                            packed,
                            &mut totals[(step * down + i) * slot..][..slot],
                            L::ROWS.min(p.rows - i * L::ROWS),
                            columns.len().div_ceil(L::WIDTH),
                            from > 0,
                        );
                    }
                }
                from += k;
                if from == terms {
                    break;
                }
            }
            for step in 0..across {
                for i in 0..down {
                    L::dispatch(Finish {
                        p,
                        bias: self.bias.map(|b| &b[group * p.rows..]),
                        totals: &mut totals[(step * down + i) * slot..][..slot],
                        width,
                        rows: i * L::ROWS..p.rows.min((i + 1) * L::ROWS),
                        columns: each_column(step),
                        first: batch.first,
                        group,
                        out,
                    });
                }
            }
        });
    }

    /// Places that lie side by side in the source: the first one's lane, and how many.
    fn runs(
        &self,
        image: usize,
        columns: Range<usize>,
    ) -> impl Iterator<Item = (usize, usize)> + Clone {
        let [rows, across] = self.p.axes.map(|axis| axis.len);
        let lane_row = self.lane_row;
        let row = columns.start / across;
        let (mut n, mut i, mut j) = (row / rows, row % rows, columns.start % across);
        let mut left = columns.len();
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let lane = n * image + i * lane_row + j;
            let len = (across - j).min(left);
            left -= len;
            (i, j) = (i + 1, 0);
            if i == rows {
                (n, i) = (n + 1, 0);
            }
            Some((lane, len))
        })
    }
}

/// Images that lie in memory with their padding.
struct Batch<'a> {
    source: &'a [f32],
    /// Elements of an image.
    image: usize,
    /// The first one's number, and how many.
    first: usize,
    images: usize,
}

/// Offsets within a row of the weights of a sum's terms.
fn weight_taps(p: &Sums) -> Vec<usize> {
    let [rows, columns] = p.axes;
    let mut taps = Vec::with_capacity(p.terms());
    for c in 0..p.channels {
        for i in 0..rows.taps {
            let row = c * p.channel + (rows.tap_first + i * rows.tap_step) * p.kernel_row;
            taps.extend((0..columns.taps).map(|j| row + columns.tap_first + j * columns.tap_step));
        }
    }
    taps
}

/// Offsets that follow each other: the first one, and how many.
fn runs_of(offsets: &[usize]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &at in offsets {
        match runs.last_mut() {
            Some((first, len)) if *first + *len == at => *len += 1,
            _ => runs.push((at, 1)),
        }
    }
    runs
}

/// Copies the elements that runs of places see, a row of `WIDTH * VECTORS` for each term.
struct Gather<'a, L, R> {
    source: &'a [f32],
    terms: &'a [usize],
    runs: R,
    out: &'a mut [f32],
    lanes: PhantomData<L>,
}

impl<L: Lanes, R: Iterator<Item = (usize, usize)>> Loop for Gather<'_, L, R> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: Ieee) {
        let Self {
            source, terms, out, ..
        } = self;
        let width = L::WIDTH * L::VECTORS;
        let mut runs = [(0, 0, 0); SLACK];
        let (mut count, mut first) = (0, 0);
        for (lane, len) in self.runs {
            runs[count] = (lane, first, len);
            count += 1;
            first += len;
        }
        let whole = runs[0].2 == width;
        for (k, term) in terms.iter().enumerate() {
            let out = &mut out[k * width..];
            if whole {
                let from = &source[runs[0].0 + term..][..width];
                for v in 0..L::VECTORS {
                    store(load::<L>(&from[v * L::WIDTH..]), &mut out[v * L::WIDTH..]);
                }
                continue;
            }
            // Whole vectors, whose surplus the next run or term overwrites.
            for &(lane, first, len) in &runs[..count] {
                let from = &source[lane + term..];
                let out = &mut out[first..];
                let mut at = 0;
                while at < len {
                    match from.get(at..at + L::WIDTH) {
                        Some(from) => store(load::<L>(from), &mut out[at..]),
                        None => out[at..len].copy_from_slice(&from[at..len]),
                    }
                    at += L::WIDTH;
                }
            }
        }
    }
}

/// Stores a micro-tile's totals as results.
struct Finish<'a, 'o> {
    p: &'a Sums,
    bias: Option<&'a [f32]>,
    totals: &'a mut [f32],
    width: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    first: usize,
    group: usize,
    out: Shared<'o>,
}

impl Loop for Finish<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Self {
            p, out, columns, ..
        } = self;
        let [rows, across] = p.axes;
        let plane = p.plane[0] * p.plane[1];
        let dense = (rows.place_step, across.place_step) == (1, 1);
        for (row, totals) in self.rows.zip(self.totals.chunks_exact_mut(self.width)) {
            finish_row(ieee, totals, self.bias.map(|b| b[row]));
            let mut totals = &totals[..columns.len()];
            let mut at = columns.start;
            while at < columns.end {
                let (n, place) = (at / p.places(), at % p.places());
                let member = (self.first + n) * p.groups + self.group;
                let (now, rest) = totals.split_at((p.places() - place).min(totals.len()));
                (totals, at) = (rest, at + now.len());
                let image = (member * p.rows + row) * plane;
                if dense {
                    // SAFETY: rows and places belong to one task each.
                    let out = unsafe { out.part(image + place, now.len()) };
                    out.copy_from_slice(now);
                    continue;
                }
                let (mut i, mut j) = (place / across.len, place % across.len);
                for x in now {
                    let place = image
                        + (rows.place_first + i * rows.place_step) * p.plane[1]
                        + across.place_first
                        + j * across.place_step;
                    // SAFETY: as above.
                    let out = unsafe { out.part(place, 1) };
                    out[0] = *x;
                    j += 1;
                    if j == across.len {
                        (i, j) = (i + 1, 0);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn finish_row(ieee: Ieee, totals: &mut [f32], bias: Option<f32>) {
    match bias {
        Some(bias) => {
            for x in totals {
                *x = finish(ieee, *x, bias, true);
            }
        }
        None => {
            for x in totals {
                *x = finish(ieee, *x, 0.0, false);
            }
        }
    }
}

/// A task for each group of an image: pads its planes and runs chains over vectors of places.
fn narrow_sums<L: Lanes>(
    sums: &[Sums],
    source: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    out: Shared<'_>,
    threads: bool,
) {
    let plane = Plane::new(sums, true);
    let (padded, unpadded) = (plane.len(), plane.size[0] * plane.size[1]);
    let classes: Vec<Class<'_>> = sums
        .iter()
        .map(|p| Class {
            p,
            terms: plane.terms(p, padded),
            taps: weight_taps(p),
            lane_row: plane.lane(&p.axes)[0],
        })
        .collect();
    let p = &sums[0];
    for_tasks(p.images * p.groups, threads, &|member| {
        let most = classes.iter().map(|c| c.terms.len()).max().unwrap_or(0);
        let row = sums.iter().map(|p| p.axes[1].len).max().unwrap_or(0) + SLACK;
        let lengths = [p.channels * padded + SLACK, 4 * most, 4 * row, 0];
        with_scratch(lengths, |[planes, weights, totals, _]| {
            let from = member * p.channels * unpadded;
            for c in 0..p.channels {
                let source = &source[from + c * unpadded..][..unpadded];
                plane.fill(source, &mut planes[c * padded..][..padded]);
            }
            let group = member % p.groups;
            for class in &classes {
                let mut first = 0;
                while first < p.rows {
                    // As many rows as their sums fit registers.
                    let rows = match p.rows - first {
                        4.. if L::ROWS >= 8 => 4,
                        2.. => 2,
                        _ => 1,
                    };
                    // Without terms there are no weights.
                    let w = w.get(group * class.p.group..).unwrap_or_default();
                    let weights = &mut weights[..rows * class.taps.len()];
                    for (out, tap) in weights.chunks_exact_mut(rows).zip(&class.taps) {
                        for (r, out) in out.iter_mut().enumerate() {
                            *out = w[(first + r) * class.p.row + tap];
                        }
                    }
                    let narrow = Narrow {
                        class,
                        planes,
                        weights,
                        bias: bias.map(|b| &b[group * p.rows + first..]),
                        totals,
                        row,
                        at: (member * p.rows + first) * p.plane[0] * p.plane[1],
                        out,
                    };
                    match rows {
                        4 => L::dispatch(Rows::<L, 4>(narrow, PhantomData)),
                        2 => L::dispatch(Rows::<L, 2>(narrow, PhantomData)),
                        _ => L::dispatch(Rows::<L, 1>(narrow, PhantomData)),
                    }
                    first += rows;
                }
            }
        });
    });
}

struct Class<'a> {
    p: &'a Sums,
    terms: Vec<usize>,
    taps: Vec<usize>,
    lane_row: usize,
}

/// Some rows of narrow sums: as many output planes' places of a class.
struct Narrow<'a, 'o> {
    class: &'a Class<'a>,
    planes: &'a [f32],
    /// Those of the rows for each term.
    weights: &'a [f32],
    bias: Option<&'a [f32]>,
    /// Totals of the rows, `row` apart.
    totals: &'a mut [f32],
    row: usize,
    /// The first output plane's first element.
    at: usize,
    out: Shared<'o>,
}

struct Rows<'a, 'o, L, const R: usize>(Narrow<'a, 'o>, PhantomData<L>);

impl<L: Lanes, const R: usize> Loop for Rows<'_, '_, L, R> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Narrow {
            class,
            planes,
            weights,
            bias,
            totals,
            row,
            at,
            out,
        } = self.0;
        let p = class.p;
        let [rows, across] = p.axes;
        for i in 0..rows.len {
            let mut j = 0;
            while j < across.len {
                // Without channels there are neither planes nor terms.
                let source = planes.get(i * class.lane_row + j..).unwrap_or_default();
                let totals = &mut totals[j..];
                let vectors = (across.len - j).div_ceil(L::WIDTH).min(4);
                match vectors {
                    1 => chain::<L, R, 1>(ieee, p, source, &class.terms, weights, totals, row),
                    2 => chain::<L, R, 2>(ieee, p, source, &class.terms, weights, totals, row),
                    3 => chain::<L, R, 3>(ieee, p, source, &class.terms, weights, totals, row),
                    _ => chain::<L, R, 4>(ieee, p, source, &class.terms, weights, totals, row),
                }
                j += vectors * L::WIDTH;
            }
            for r in 0..R {
                let totals = &mut totals[r * row..][..across.len];
                finish_row(ieee, totals, bias.map(|b| b[r]));
                let at = at
                    + (r * p.plane[0] + rows.place_first + i * rows.place_step) * p.plane[1]
                    + across.place_first;
                // SAFETY: an output plane belongs to one task.
                let out = unsafe { out.part(at, (across.len - 1) * across.place_step + 1) };
                if across.place_step == 1 {
                    out.copy_from_slice(totals);
                } else {
                    for (out, x) in out.iter_mut().step_by(across.place_step).zip(totals) {
                        *out = *x;
                    }
                }
            }
        }
    }
}

/// The totals of `R` rows of `V` vectors of places, `row` apart.
#[inline(always)]
fn chain<L: Lanes, const R: usize, const V: usize>(
    ieee: Ieee,
    p: &Sums,
    source: &[f32],
    terms: &[usize],
    weights: &[f32],
    totals: &mut [f32],
    row: usize,
) {
    let mut from = 0;
    loop {
        let to = terms.len().min(from + p.panel);
        // `N6`: a chain from +0 over ascending k, the panels' sums in order.
        let mut sums = [[L::splat(0.0); V]; R];
        let weights = weights[from * R..to * R].chunks_exact(R);
        for (term, w) in terms[from..to].iter().zip(weights) {
            let source = &source[*term..][..V * L::WIDTH];
            for v in 0..V {
                let x = load::<L>(&source[v * L::WIDTH..]);
                for r in 0..R {
                    sums[r][v] = x.fma(L::splat(w[r]), sums[r][v], ieee);
                }
            }
        }
        for r in 0..R {
            for v in 0..V {
                let total = &mut totals[r * row + v * L::WIDTH..];
                let sum = if from == 0 {
                    sums[r][v]
                } else {
                    load::<L>(total).add(sums[r][v], ieee)
                };
                store(sum, total);
            }
        }
        from = to;
        if from == terms.len() {
            return;
        }
    }
}

fn run_weights<L: Lanes>(
    p: &Sums,
    x: &[f32],
    y: &[f32],
    out: &mut [f32],
    plan: Plan,
) -> Result<()> {
    let places = p.images * p.places();
    let columns = p.terms();
    let work = [places, columns, p.groups, p.rows]
        .into_iter()
        .fold(1usize, usize::saturating_mul);
    let pool = rayon::current_num_threads();
    let threads = work >= SERIAL && pool > 1;
    if plan.narrow.unwrap_or_else(|| {
        let plane = p.axes[0].source * p.axes[1].source;
        p.rows <= 16 && p.groups >= L::WIDTH && p.channels * plane <= 1 << 16
    }) {
        narrow_weights::<L>(p, x, y, out, threads);
        return Ok(());
    }
    let plane = Plane::new(std::slice::from_ref(p), true);
    let unpadded = plane.size[0] * plane.size[1];
    let scratch;
    let (x, padded) = if plane.is_source() {
        (x, unpadded)
    } else {
        let padded = plane.len();
        let mut planes = zeros::<f32>(p.images * p.groups * p.channels * padded)?;
        for_chunks(&mut planes, padded, threads, &|at, out| {
            let at = at / padded * unpadded;
            plane.fill(&x[at..at + unpadded], out);
        });
        scratch = planes;
        (&scratch[..], padded)
    };

    let width = L::WIDTH * L::VECTORS;
    let across = columns.div_ceil(width);
    let panels = places.div_ceil(p.panel);
    // Threads share a group's columns, or its panels where columns don't go round.
    let pool = if threads { pool } else { 1 };
    let fair = (p.groups * across).div_ceil(pool);
    let split = plan.split.unwrap_or(pool > 1 && fair < 4 && panels > 1);
    let steps = plan
        .steps
        .unwrap_or(if split {
            (p.groups * across * panels.min(2 * pool)).div_ceil(3 * pool)
        } else {
            fair
        })
        .clamp(1, across);
    let walk = Walk {
        p,
        x,
        y,
        plane: &plane,
        image: p.groups * p.channels * padded,
        channel: padded,
        lanes: plane.terms(p, padded),
        places,
        steps,
        tiles: across.div_ceil(steps),
    };
    let slot = L::ROWS * width;
    // Totals of a task: its micro-tiles, a column of rows after the other.
    let size = p.rows.div_ceil(L::ROWS) * steps * slot;
    let tasks = p.groups * walk.tiles;
    let mut totals = zeros::<f32>(tasks * size)?;
    if !split {
        for_chunks(&mut totals, size, threads, &|at, totals| {
            let mut panel = 0;
            // With no place at all the totals stay +0.
            while panel < panels {
                walk.panel::<L>(at / size, panel, totals, panel > 0);
                panel += 1;
            }
        });
    } else {
        let at_once = (2 * pool).min(panels);
        let mut sums = zeros::<f32>(at_once * tasks * size)?;
        for first in (0..panels).step_by(at_once) {
            let count = at_once.min(panels - first);
            for_chunks(
                &mut sums[..count * tasks * size],
                size,
                threads,
                &|at, sums| {
                    let task = at / size;
                    walk.panel::<L>(task % tasks, first + task / tasks, sums, false);
                },
            );
            let sums = &sums;
            for_chunks(&mut totals, 1 << 14, threads, &|at, totals| {
                L::dispatch(Fold {
                    totals,
                    sums: &sums[at..],
                    stride: tasks * size,
                    count,
                    first: first == 0,
                });
            });
        }
    }
    let row = p.row;
    for_chunks(out, row, threads, &|at, out| {
        let (group, row) = (at / row / p.rows, at / row % p.rows);
        let down = p.rows.div_ceil(L::ROWS);
        for (step, out) in out.chunks_mut(width).enumerate() {
            let task = group * walk.tiles + step / steps;
            let slots = &totals[task * size + (step % steps * down + row / L::ROWS) * slot..];
            out.copy_from_slice(&slots[row % L::ROWS * width..][..out.len()]);
        }
        L::dispatch(FinishRow(out));
    });
    Ok(())
}

struct FinishRow<'a>(&'a mut [f32]);

impl Loop for FinishRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        finish_row(ieee, self.0, None);
    }
}

/// Adds the sums of `count` panels, `stride` apart (`N6`: ascending).
struct Fold<'a> {
    totals: &'a mut [f32],
    sums: &'a [f32],
    stride: usize,
    count: usize,
    first: bool,
}

impl Loop for Fold<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let len = self.totals.len();
        for panel in 0..self.count {
            let sums = &self.sums[panel * self.stride..][..len];
            if self.first && panel == 0 {
                self.totals.copy_from_slice(sums);
                continue;
            }
            for (total, sum) in self.totals.iter_mut().zip(sums) {
                *total = ieee.add(*total, *sum);
            }
        }
    }
}

/// What the tasks of a weight gradient share.
struct Walk<'a> {
    p: &'a Sums,
    x: &'a [f32],
    y: &'a [f32],
    plane: &'a Plane,
    /// From one image and channel of `x` to the next.
    image: usize,
    channel: usize,
    /// Offsets in `x` of a group's weights.
    lanes: Vec<usize>,
    places: usize,
    /// Micro-tiles across a task, and tasks across a group.
    steps: usize,
    tiles: usize,
}

impl Walk<'_> {
    /// One panel of one task.
    fn panel<L: Lanes>(&self, task: usize, panel: usize, totals: &mut [f32], add: bool) {
        let p = self.p;
        let width = L::WIDTH * L::VECTORS;
        let slot = L::ROWS * width;
        let down = p.rows.div_ceil(L::ROWS);
        let (group, tile) = (task / self.tiles, task % self.tiles);
        let first = panel * p.panel;
        let k = p.panel.min(self.places - first);
        let columns =
            tile * self.steps * width..self.lanes.len().min((tile + 1) * self.steps * width);

        // Runs of places that lie side by side: of `y` within an image, of `x` within a row.
        let places = p.places();
        let (mut of_y, mut of_x) = (Vec::new(), Vec::new());
        let lane_row = self.plane.lane(&p.axes)[0];
        let mut at = first;
        while at < first + k {
            let (n, place) = (at / places, at % places);
            let member = n * p.groups + group;
            let len = (places - place).min(first + k - at);
            of_y.push((member * p.rows * places + place, len));
            let mut place = place;
            let end = place + len;
            let base = n * self.image + group * p.channels * self.channel;
            while place < end {
                let (i, j) = (place / p.axes[1].len, place % p.axes[1].len);
                let len = (p.axes[1].len - j).min(end - place);
                of_x.push((base + i * lane_row + j, len));
                place += len;
            }
            at += len;
        }
        let lengths = [down * L::ROWS * k, width * k, 0, 0];
        with_scratch(lengths, |[packed_a, packed_b, ..]| {
            for (i, out) in packed_a
                .chunks_exact_mut(L::ROWS * k)
                .take(down)
                .enumerate()
            {
                let rows = L::ROWS.min(p.rows - i * L::ROWS);
                L::dispatch(Turn {
                    source: self.y,
                    lanes: rows,
                    lane: |l| (i * L::ROWS + l) * places,
                    runs: &of_y,
                    width: L::ROWS,
                    out,
                });
            }
            for (step, from) in columns.clone().step_by(width).enumerate() {
                let lanes = &self.lanes[from..columns.end.min(from + width)];
                L::dispatch(Turn {
                    source: self.x,
                    lanes: lanes.len(),
                    lane: |l| lanes[l],
                    runs: &of_x,
                    width,
                    out: packed_b,
                });
                for i in 0..down {
                    micro::<L>(
                        &packed_a[i * L::ROWS * k..][..L::ROWS * k],
                        packed_b,
                        &mut totals[(step * down + i) * slot..][..slot],
                        L::ROWS.min(p.rows - i * L::ROWS),
                        lanes.len().div_ceil(L::WIDTH),
                        add,
                    );
                }
            }
        });
    }
}

/// Copies runs of terms of some lanes as rows of `width`, a row for each term.
struct Turn<'a, F> {
    source: &'a [f32],
    lanes: usize,
    /// A lane's offset.
    lane: F,
    /// Offset and length.
    runs: &'a [(usize, usize)],
    width: usize,
    out: &'a mut [f32],
}

impl<F: Fn(usize) -> usize> Loop for Turn<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: Ieee) {
        let Self {
            source,
            lanes,
            lane,
            runs,
            width,
            out,
        } = self;
        let mut first = 0;
        for &(at, len) in runs {
            let out = &mut out[first * width..][..len * width];
            let mut l = 0;
            while l + 4 <= lanes {
                let [a, b, c, d] = [lane(l), lane(l + 1), lane(l + 2), lane(l + 3)]
                    .map(|lane| &source[at + lane..][..len]);
                for (k, out) in out.chunks_exact_mut(width).enumerate() {
                    out[l..l + 4].copy_from_slice(&[a[k], b[k], c[k], d[k]]);
                }
                l += 4;
            }
            while l < lanes {
                let from = &source[at + lane(l)..][..len];
                for (out, x) in out.chunks_exact_mut(width).zip(from) {
                    out[l] = *x;
                }
                l += 1;
            }
            first += len;
        }
        if lanes < width {
            for out in out[..first * width].chunks_exact_mut(width) {
                out[lanes..].fill(0.0);
            }
        }
    }
}

/// Weight gradients of narrow groups: the lanes of vectors are groups.
fn narrow_weights<L: Lanes>(p: &Sums, x: &[f32], y: &[f32], out: &mut [f32], threads: bool) {
    let plane = Plane::new(std::slice::from_ref(p), false);
    let out = Shared::new(out);
    for_tasks(p.groups.div_ceil(L::WIDTH), threads, &|block| {
        let first = block * L::WIDTH;
        let groups = L::WIDTH.min(p.groups - first);
        let (padded, places) = (plane.len(), p.places());
        let sums = p.rows * p.terms() * L::WIDTH;
        let lengths = [
            p.channels * padded * L::WIDTH,
            p.rows * places * L::WIDTH,
            2 * sums,
            0,
        ];
        with_scratch(lengths, |[xs, ys, sums_totals, _]| {
            let (sums, totals) = sums_totals[..2 * sums].split_at_mut(sums);
            sums.fill(0.0);
            totals.fill(0.0);
            // The padding and lanes beyond the last group stay zeros.
            let xs = &mut xs[..p.channels * padded * L::WIDTH];
            let ys = &mut ys[..p.rows * places * L::WIDTH];
            xs.fill(0.0);
            ys.fill(0.0);
            let [height, across] = plane.size;
            let mut k = 0;
            for n in 0..p.images {
                let member = n * p.groups + first;
                for c in 0..p.channels {
                    for i in 0..height {
                        let row = c * padded + (plane.rows[0] + i) * plane.row();
                        L::dispatch(Interleave::<L> {
                            source: &x[((member * p.channels + c) * height + i) * across..],
                            apart: p.channels * height * across,
                            groups,
                            out: &mut xs[(row + plane.columns[0]) * L::WIDTH..]
                                [..across * L::WIDTH],
                            lanes: PhantomData,
                        });
                    }
                }
                for row in 0..p.rows {
                    L::dispatch(Interleave::<L> {
                        source: &y[(member * p.rows + row) * places..],
                        apart: p.rows * places,
                        groups,
                        out: &mut ys[row * places * L::WIDTH..][..places * L::WIDTH],
                        lanes: PhantomData,
                    });
                }
                L::dispatch(Image::<L> {
                    p,
                    plane: &plane,
                    xs,
                    ys,
                    k,
                    sums,
                    totals,
                    lanes: PhantomData,
                });
                k += places;
            }
            L::dispatch(Last {
                totals,
                sums,
                first: k <= p.panel,
                // A panel that ended with the last image is folded.
                open: k % p.panel != 0,
            });
            for l in 0..groups {
                let size = p.rows * p.terms();
                // SAFETY: a group belongs to one task.
                let out = unsafe { out.part((first + l) * size, size) };
                for (out, total) in out.iter_mut().zip(totals.chunks_exact(L::WIDTH)) {
                    *out = total[l];
                }
            }
        });
    });
}

/// Copies an element of each group after the other.
struct Interleave<'a, L> {
    source: &'a [f32],
    /// From one group to the next.
    apart: usize,
    groups: usize,
    out: &'a mut [f32],
    lanes: PhantomData<L>,
}

impl<L: Lanes> Loop for Interleave<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: Ieee) {
        let Self {
            source,
            apart,
            groups,
            out,
            ..
        } = self;
        let len = out.len() / L::WIDTH;
        let mut l = 0;
        while l < groups {
            let mut j = 0;
            if l + 8 <= groups.min(L::WIDTH) {
                while j + 8 <= len {
                    transpose::<L>(
                        &source[l * apart + j..],
                        apart,
                        &mut out[j * L::WIDTH + l..],
                        L::WIDTH,
                    );
                    j += 8;
                }
                for j in j..len {
                    for l in l..l + 8 {
                        out[j * L::WIDTH + l] = source[l * apart + j];
                    }
                }
                l += 8;
            } else {
                for (out, x) in out.chunks_exact_mut(L::WIDTH).zip(&source[l * apart..]) {
                    out[l] = *x;
                }
                l += 1;
            }
        }
    }
}

/// Adds the terms of one image.
struct Image<'a, L> {
    p: &'a Sums,
    plane: &'a Plane,
    xs: &'a [f32],
    ys: &'a [f32],
    /// The image's first term.
    k: usize,
    sums: &'a mut [f32],
    totals: &'a mut [f32],
    lanes: PhantomData<L>,
}

impl<L: Lanes> Loop for Image<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Self { p, plane, .. } = self;
        let [rows, across] = p.axes;
        let lanes = plane.terms(p, plane.len());
        let [lane_row, lane] = plane.lane(&p.axes);
        let mut k = self.k;
        for i in 0..rows.len {
            let mut j = 0;
            while j < across.len {
                let len = (across.len - j).min(p.panel - k % p.panel);
                for row in 0..p.rows {
                    let ys = &self.ys[(row * p.places() + i * across.len + j) * L::WIDTH..];
                    let ys = &ys[..len * L::WIDTH];
                    let xs = &self.xs[(i * lane_row + j * lane) * L::WIDTH..];
                    let sums = &mut self.sums[row * lanes.len() * L::WIDTH..];
                    let mut sums = &mut sums[..lanes.len() * L::WIDTH];
                    let mut lanes = &lanes[..];
                    while lanes.len() >= 9 {
                        let (now, rest) = lanes.split_at(9);
                        let (s, next) = std::mem::take(&mut sums).split_at_mut(9 * L::WIDTH);
                        taps::<L, 9>(ieee, xs, ys, lane, now, s);
                        (lanes, sums) = (rest, next);
                    }
                    while lanes.len() >= 3 {
                        let (now, rest) = lanes.split_at(3);
                        let (s, next) = std::mem::take(&mut sums).split_at_mut(3 * L::WIDTH);
                        taps::<L, 3>(ieee, xs, ys, lane, now, s);
                        (lanes, sums) = (rest, next);
                    }
                    for (now, s) in lanes.chunks(1).zip(sums.chunks_exact_mut(L::WIDTH)) {
                        taps::<L, 1>(ieee, xs, ys, lane, now, s);
                    }
                }
                k += len;
                j += len;
                if k % p.panel == 0 {
                    fold(ieee, self.totals, self.sums, k == p.panel);
                    self.sums.fill(0.0);
                }
            }
        }
    }
}

/// Runs the chains of `T` taps over a run of places.
#[inline(always)]
fn taps<L: Lanes, const T: usize>(
    ieee: Ieee,
    xs: &[f32],
    ys: &[f32],
    lane: usize,
    lanes: &[usize],
    sums: &mut [f32],
) {
    let mut chains = [L::splat(0.0); T];
    for t in 0..T {
        chains[t] = load::<L>(&sums[t * L::WIDTH..]);
    }
    let places = ys.len() / L::WIDTH;
    let mut of_x = [xs; T];
    for t in 0..T {
        let end = ((places - 1) * lane + 1) * L::WIDTH;
        of_x[t] = &xs[lanes[t] * L::WIDTH..][..end];
    }
    for (q, y) in ys.chunks_exact(L::WIDTH).enumerate() {
        let y = load::<L>(y);
        for t in 0..T {
            let x = load::<L>(&of_x[t][q * lane * L::WIDTH..]);
            chains[t] = x.fma(y, chains[t], ieee);
        }
    }
    for t in 0..T {
        store(chains[t], &mut sums[t * L::WIDTH..]);
    }
}

/// The last panel's sums, and the results.
struct Last<'a> {
    totals: &'a mut [f32],
    sums: &'a [f32],
    first: bool,
    open: bool,
}

impl Loop for Last<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        if self.open {
            fold(ieee, self.totals, self.sums, self.first);
        }
        finish_row(ieee, self.totals, None);
    }
}

#[inline(always)]
fn fold(ieee: Ieee, totals: &mut [f32], sums: &[f32], first: bool) {
    if first {
        totals.copy_from_slice(sums);
    } else {
        for (total, sum) in totals.iter_mut().zip(sums) {
            *total = ieee.add(*total, *sum);
        }
    }
}

/// Runs a micro-tile's chains over the terms of a panel, `ROWS` elements of `a` and a row of `b`
/// each, and stores their sums or adds them to the totals.
#[inline(always)]
fn micro<L: Lanes>(
    a: &[f32],
    b: &[f32],
    totals: &mut [f32],
    rows: usize,
    vectors: usize,
    add: bool,
) {
    L::micro(Micro {
        a,
        b,
        stride: L::WIDTH * L::VECTORS,
        totals,
        rows,
        vectors,
        with: if add { With::Add } else { With::Store },
    });
}

#[inline(always)]
fn load<L: Lanes>(x: &[f32]) -> L {
    L::load(x)
}

#[inline(always)]
fn store<L: Lanes>(x: L, to: &mut [f32]) {
    x.store(to);
}

/// Eight elements of each of eight rows as columns.
#[inline(always)]
fn transpose<L: Lanes>(rows: &[f32], from: usize, out: &mut [f32], to: usize) {
    L::transpose(rows, from, out, to);
}
