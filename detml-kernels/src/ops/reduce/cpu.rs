//! Lanes are elements of arrays, so that they are folded by vector instructions; threads own
//! segments. Lanes beyond the length stay at the start and are left out.

use super::fold::{Extreme, State, Traits};
use super::{LANES, SEGMENT};
use crate::device::{Loop, Simd};
use crate::ieee::Ieee;
use crate::ops::parallel::for_chunks;
use std::marker::PhantomData;
use std::ops::Range;

/// Words that are worth a task of their own.
const TASK: usize = 1 << 16;
/// Columns that are folded together: their states stay in the first cache.
const TILE: usize = 512;
/// Words a lane of those whose lanes are joined by four at once, at most.
const MOST: usize = 4;
/// Columns of which all lanes do.
const NARROW: usize = 64;

/// Element `i` of `shift`; none are given to folds that don't look at them.
#[inline(always)]
fn at(shift: &[u32], i: usize) -> u32 {
    shift.get(i).copied().unwrap_or(0)
}

/// Folds each of the rows of `columns` words in `x`.
pub(super) fn rows<F: Traits>(
    simd: Simd,
    x: &[u32],
    columns: usize,
    shift: &[u32],
    ddof: u32,
    out: &mut [u32],
) {
    let parts = columns.div_ceil(SEGMENT).max(1);
    let chunk = (TASK / columns.clamp(1, SEGMENT)).max(1);
    let threads = x.len() > TASK;
    let spans = Spans::Rows { columns, parts };
    if parts == 1 {
        for_chunks(out, chunk, threads, &|first, out| {
            simd.dispatch(Segments::<F> {
                x,
                spans,
                shift,
                first,
                ddof,
                to: To::Results(out),
                _fold: PhantomData,
            });
        });
        return;
    }
    let mut states = vec![F::start(); out.len() * parts];
    for_chunks(&mut states, chunk, threads, &|first, states| {
        simd.dispatch(Segments::<F> {
            x,
            spans,
            shift,
            first,
            ddof,
            to: To::States(states),
            _fold: PhantomData,
        });
    });
    simd.dispatch(Finish::<F> {
        states: &mut states,
        parts,
        n: columns as u32,
        ddof,
        out,
        _fold: PhantomData,
    });
}

/// Stretches of words that are folded one by one.
#[derive(Clone, Copy)]
enum Spans<'a> {
    /// The segments of rows of `columns` words, `parts` to each row.
    Rows { columns: usize, parts: usize },
    /// From each offset to the next.
    Ranges { offsets: &'a [u32] },
}

impl Spans<'_> {
    /// The words of a span, the place of the first in its row or range, and whose row or range it
    /// is.
    #[inline(always)]
    fn of(&self, i: usize) -> (Range<usize>, u32, usize) {
        match *self {
            Self::Rows { columns, parts } => {
                let (r, part) = (i / parts, i % parts);
                let begin = part * SEGMENT;
                let end = (begin + SEGMENT).min(columns);
                (r * columns + begin..r * columns + end, begin as u32, r)
            }
            Self::Ranges { offsets } => (offsets[i] as usize..offsets[i + 1] as usize, 0, i),
        }
    }
}

/// Where the folds of spans go.
enum To<'a> {
    States(&'a mut [State]),
    Results(&'a mut [u32]),
}

/// The spans from `first` on, folded: those of more than a segment are left out.
struct Segments<'a, F> {
    x: &'a [u32],
    spans: Spans<'a>,
    shift: &'a [u32],
    first: usize,
    ddof: u32,
    to: To<'a>,
    _fold: PhantomData<F>,
}

impl<F: Traits> Loop for Segments<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run(mut self, ieee: Ieee) {
        let count = match &self.to {
            To::States(to) => to.len(),
            To::Results(to) => to.len(),
        };
        for i in 0..count {
            let (range, place, owner) = self.spans.of(self.first + i);
            let words = &self.x[range];
            if words.len() > SEGMENT {
                continue;
            }
            let state = segment::<F>(&ieee, words, place, at(self.shift, owner));
            match &mut self.to {
                To::States(to) => to[i] = state,
                To::Results(to) => to[i] = F::finish(&ieee, state, words.len() as u32, self.ddof),
            }
        }
    }
}

/// The last fold, over the states of a row's segments.
struct Finish<'a, F> {
    states: &'a mut [State],
    parts: usize,
    n: u32,
    ddof: u32,
    out: &'a mut [u32],
    _fold: PhantomData<F>,
}

impl<F: Traits> Loop for Finish<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        for (states, out) in self.states.chunks_mut(self.parts).zip(self.out) {
            *out = F::finish(&ieee, join_all::<F>(&ieee, states), self.n, self.ddof);
        }
    }
}

/// The states of segments folded as elements are. `states` is used up.
#[inline(always)]
fn join_all<F: Traits>(ieee: &Ieee, mut states: &mut [State]) -> State {
    while states.len() > 1 {
        let parts = states.len().div_ceil(SEGMENT);
        for part in 0..parts {
            let end = (part * SEGMENT + SEGMENT).min(states.len());
            let (mut a, mut b) = starts::<F, LANES>();
            for (i, t) in states[part * SEGMENT..end].iter().enumerate() {
                let j = i % LANES;
                let s = F::join(ieee, State { a: a[j], b: b[j] }, *t);
                (a[j], b[j]) = (s.a, s.b);
            }
            states[part] = tree::<F>(ieee, &mut a, &mut b, 1);
        }
        states = &mut states[..parts];
    }
    states.first().copied().unwrap_or(F::start())
}

#[inline(always)]
fn starts<F: Traits, const L: usize>() -> ([u32; L], [u32; L]) {
    let start = F::start();
    ([start.a; L], [start.b; L])
}

/// Folds at most [`SEGMENT`] words.
#[inline(always)]
fn segment<F: Traits>(ieee: &Ieee, x: &[u32], first: u32, shift: u32) -> State {
    if let Some(extreme) = F::KIND.extreme()
        && x.len() > 64
    {
        return self::extreme::<F>(ieee, x, first, extreme);
    }
    match x.len() {
        0..=16 => lanes::<F, 16>(ieee, x, first, shift),
        17..=64 => lanes::<F, 64>(ieee, x, first, shift),
        _ => lanes::<F, LANES>(ieee, x, first, shift),
    }
}

/// The extreme of some numbers: first its value, then where it is. Integers that order as the
/// numbers do are compared, for only their reductions are vectorised.
#[inline(always)]
fn extreme<F: Traits>(ieee: &Ieee, x: &[u32], first: u32, extreme: Extreme) -> State {
    const MAGNITUDE: u32 = 0x7fff_ffff;
    // A key undoes itself.
    let key = |x: u32| x as i32 ^ ((x as i32 >> 31) & i32::MAX);
    // The least is the greatest of the inverted keys.
    let inverted = if extreme.greatest { 0 } else { -1 };
    let mut best = i32::MIN;
    let mut largest = 0;
    for &x in x {
        best = best.max(key(x) ^ inverted);
        largest = largest.max(x & MAGNITUDE);
    }
    let mut found = key((best ^ inverted) as u32) as u32;
    let mut place = 0;
    if largest > 0x7f80_0000 {
        found = f32::NAN.to_bits();
        if extreme.placed {
            place = position(x, |x| u32::from(x & MAGNITUDE <= 0x7f80_0000));
        }
    } else if extreme.placed {
        // Zeros are equal.
        let mask = if found & MAGNITUDE == 0 {
            MAGNITUDE
        } else {
            u32::MAX
        };
        place = position(x, |x| (x ^ found) & mask);
    }
    F::step(ieee, F::start(), found, first.wrapping_add(place as u32), 0)
}

/// The place of the first word whose distance from what is wanted is 0; 0 if there is none.
#[inline(always)]
fn position(x: &[u32], distance: impl Fn(u32) -> u32) -> usize {
    const BLOCK: usize = 512;
    for (i, x) in x.chunks(BLOCK).enumerate() {
        let mut least = u32::MAX;
        for x in x {
            least = least.min(distance(*x));
        }
        if least == 0 {
            let mut place = u32::MAX;
            for (j, x) in x.iter().enumerate() {
                place = place.min(if distance(*x) == 0 {
                    j as u32
                } else {
                    u32::MAX
                });
            }
            return i * BLOCK + place as usize;
        }
    }
    0
}

/// Folds words by `L` lanes: all there are, or as many as there are words.
#[inline(always)]
fn lanes<F: Traits, const L: usize>(ieee: &Ieee, x: &[u32], first: u32, shift: u32) -> State {
    let (mut a, mut b) = starts::<F, L>();
    let mut place = first;
    for chunk in x.chunks(L) {
        if let Ok(chunk) = <&[u32; L]>::try_from(chunk) {
            steps::<F>(ieee, &mut a, &mut b, chunk, place, &[shift; L]);
        } else {
            steps::<F>(ieee, &mut a, &mut b, chunk, place, &[shift; L]);
        }
        place = place.wrapping_add(L as u32);
    }
    tree::<F>(ieee, &mut a, &mut b, 1)
}

/// A step of each lane; places count up from `place`.
#[inline(always)]
fn steps<F: Traits>(
    ieee: &Ieee,
    a: &mut [u32],
    b: &mut [u32],
    x: &[u32],
    place: u32,
    shift: &[u32],
) {
    let n = x.len();
    let (a, b) = (&mut a[..n], &mut b[..if F::KIND.wide { n } else { 0 }]);
    let shift = &shift[..if F::KIND.shifted { n } else { 0 }];
    for j in 0..n {
        let s = State {
            a: a[j],
            b: if F::KIND.wide { b[j] } else { 0 },
        };
        let shift = if F::KIND.shifted { shift[j] } else { 0 };
        let s = F::step(ieee, s, x[j], place.wrapping_add(j as u32), shift);
        a[j] = s.a;
        if F::KIND.wide {
            b[j] = s.b;
        }
    }
}

/// The upper half of the lanes joins the lower half until one is left, in each of `width` columns
/// that lie side by side; the result is in the first lane.
#[inline(always)]
fn tree<F: Traits>(ieee: &Ieee, a: &mut [u32], b: &mut [u32], width: usize) -> State {
    let mut half = a.len() / width / 2 * width;
    while half > 0 {
        let (a, a_upper) = a.split_at_mut(half);
        let (b, b_upper) = b.split_at_mut(if F::KIND.wide { half } else { 0 });
        let a_upper = &a_upper[..half];
        let b_upper = &b_upper[..if F::KIND.wide { half } else { 0 }];
        for j in 0..half {
            let (s, t) = if F::KIND.wide {
                let (b, b_upper) = (b[j], b_upper[j]);
                (
                    State { a: a[j], b },
                    State {
                        a: a_upper[j],
                        b: b_upper,
                    },
                )
            } else {
                (
                    State { a: a[j], b: 0 },
                    State {
                        a: a_upper[j],
                        b: 0,
                    },
                )
            };
            let s = F::join(ieee, s, t);
            a[j] = s.a;
            if F::KIND.wide {
                b[j] = s.b;
            }
        }
        half = half / width / 2 * width;
    }
    State {
        a: a[0],
        b: if F::KIND.wide { b[0] } else { 0 },
    }
}

/// Folds each of the `out.len()` columns of the rows `range` of `x`.
pub(super) fn columns<F: Traits>(
    simd: Simd,
    x: &[u32],
    range: Range<usize>,
    shift: &[u32],
    ddof: u32,
    out: &mut [u32],
) {
    let columns = out.len();
    let n = range.len();
    let parts = n.div_ceil(SEGMENT).max(1);
    let tiles = columns.div_ceil(TILE).max(1);
    let width = columns.div_ceil(tiles).max(1);
    let threads = n.saturating_mul(columns) > TASK;
    let mut states = vec![F::start(); parts * columns];
    // Rows of states are segments, and in them tiles are disjoint.
    for_chunks(
        &mut states,
        columns.max(1),
        threads && parts > 1,
        &|first, states| {
            let begin = range.start + first / columns * SEGMENT;
            let rows = begin..(begin + SEGMENT).min(range.end);
            for_chunks(states, width, threads && tiles > 1, &|column, states| {
                let tile = Tile::<F> {
                    x,
                    columns,
                    rows: rows.clone(),
                    origin: range.start,
                    column,
                    shift,
                    states,
                    _fold: PhantomData,
                };
                if tile.short() {
                    simd.dispatch(Short(tile));
                } else {
                    simd.dispatch(tile);
                }
            });
        },
    );
    simd.dispatch(FinishColumns::<F> {
        states: &states,
        n: n as u32,
        ddof,
        out,
        _fold: PhantomData,
    });
}

/// Some columns of at most one segment of rows.
struct Tile<'a, F> {
    x: &'a [u32],
    columns: usize,
    rows: Range<usize>,
    /// The row whose place is 0.
    origin: usize,
    column: usize,
    shift: &'a [u32],
    states: &'a mut [State],
    _fold: PhantomData<F>,
}

impl<F: Traits> Loop for Tile<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let width = self.states.len();
        if width == self.columns && width <= NARROW && !F::KIND.placed {
            self.stretch(&ieee);
        } else {
            self.chains(&ieee);
        }
    }
}

/// A tile whose lanes have few words, see [`Tile::fours`].
struct Short<'a, F>(Tile<'a, F>);

impl<F: Traits> Loop for Short<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        if F::KIND.sum() {
            self.0.fours(&ieee);
        }
    }
}

impl<F: Traits> Tile<'_, F> {
    /// Lanes with elements, and as many others as make them a power of two.
    fn lanes(&self) -> usize {
        self.rows.len().next_power_of_two().min(LANES)
    }

    fn short(&self) -> bool {
        let lanes = self.lanes();
        F::KIND.sum() && self.states.len() > NARROW && lanes >= 4 && self.rows.len() <= MOST * lanes
    }

    /// A row's words follow the one before: all lanes of all columns in one stretch.
    #[inline(always)]
    fn stretch(self, ieee: &Ieee) {
        let width = self.states.len();
        let lanes = self.rows.len().next_power_of_two().min(LANES);
        let start = F::start();
        let mut a = vec![start.a; lanes * width];
        let mut b = vec![start.b; if F::KIND.wide { lanes * width } else { 0 }];
        let shift = if F::KIND.shifted {
            self.shift[self.column..self.column + width].repeat(lanes)
        } else {
            Vec::new()
        };
        let words = &self.x[self.rows.start * width..self.rows.end * width];
        for x in words.chunks((lanes * width).max(1)) {
            steps::<F>(ieee, &mut a, &mut b, x, 0, &shift);
        }
        if width > 0 {
            tree::<F>(ieee, &mut a, &mut b, width);
        }
        self.store(&a, &b);
    }

    /// One lane after the other, in the order in which the tree takes them, so that only as many
    /// states as the tree is deep are held.
    #[inline(always)]
    fn chains(self, ieee: &Ieee) {
        let width = self.states.len();
        // The order counts for sums alone.
        let lanes = if F::KIND.exact() {
            1
        } else {
            self.rows.len().next_power_of_two().min(LANES)
        };
        let depth = lanes.trailing_zeros();
        let start = F::start();
        let held = (depth as usize + 1) * width;
        let mut a = vec![start.a; held];
        let mut b = vec![start.b; if F::KIND.wide { held } else { 0 }];
        let mut top = 0;
        for t in 0..lanes {
            let lane = if depth == 0 {
                0
            } else {
                ((t as u32).reverse_bits() >> (32 - depth)) as usize
            };
            let at = top * width..(top + 1) * width;
            let b_at = if F::KIND.wide { at.clone() } else { 0..0 };
            self.chain(ieee, lane, lanes, &mut a[at], &mut b[b_at]);
            top += 1;
            // As many joins as lanes are complete below a halving.
            for _ in 0..(t as u32).trailing_ones() {
                top -= 1;
                let (low, high) = a.split_at_mut(top * width);
                let low = &mut low[(top - 1) * width..];
                let (b_low, b_high) = b.split_at_mut(if F::KIND.wide { top * width } else { 0 });
                let b_low = &mut b_low[if F::KIND.wide { (top - 1) * width } else { 0 }..];
                join_rows::<F>(ieee, low, b_low, high, b_high);
            }
        }
        self.store(&a, &b);
    }

    /// As [`chains`](Self::chains), four lanes at a time from words to their join: where a lane has
    /// few words, its states are not worth memory. For sums alone.
    #[inline(always)]
    fn fours(self, ieee: &Ieee) {
        let width = self.states.len();
        let lanes = self.lanes();
        let depth = lanes.trailing_zeros() as usize - 2;
        let mut held = vec![0; (depth + 1) * width];
        let zeros = vec![0; width];
        let mut top = 0;
        for t in 0..lanes / 4 {
            let out = &mut held[top * width..(top + 1) * width];
            self.four(ieee, 4 * t, lanes, &zeros, out);
            top += 1;
            for _ in 0..(t as u32).trailing_ones() {
                top -= 1;
                let (low, high) = held.split_at_mut(top * width);
                let low = &mut low[(top - 1) * width..];
                join_rows::<F>(ieee, low, &mut [], high, &[]);
            }
        }
        self.store(&held, &[]);
    }

    /// The join of lanes `t` to `t + 3` of each column.
    #[inline(always)]
    fn four(&self, ieee: &Ieee, t: usize, lanes: usize, zeros: &[u32], out: &mut [u32]) {
        let width = out.len();
        let shift = 32 - lanes.trailing_zeros();
        let first: [usize; 4] =
            std::array::from_fn(|k| (((t + k) as u32).reverse_bits() >> shift) as usize);
        // A zero changes no lane of a sum.
        let x: [[&[u32]; 4]; MOST] = std::array::from_fn(|n| {
            std::array::from_fn(|k| {
                let r = self.rows.start + first[k] + n * lanes;
                if r < self.rows.end {
                    let at = r * self.columns + self.column;
                    &self.x[at..at + width]
                } else {
                    zeros
                }
            })
        });
        match self.rows.len().div_ceil(lanes) {
            1 => join_four::<F, 1>(ieee, x, out),
            2 => join_four::<F, 2>(ieee, x, out),
            _ => join_four::<F, MOST>(ieee, x, out),
        }
    }

    /// A lane of each column, into `a` and `b`.
    #[inline(always)]
    fn chain(&self, ieee: &Ieee, lane: usize, lanes: usize, a: &mut [u32], b: &mut [u32]) {
        let start = F::start();
        a.fill(start.a);
        b.fill(start.b);
        let mut r = self.rows.start + lane;
        let row = |r: usize| r * self.columns + self.column;
        while r + 3 * lanes < self.rows.end {
            let rows = [r, r + lanes, r + 2 * lanes, r + 3 * lanes];
            self.step_rows::<4>(ieee, rows, rows.map(row), a, b);
            r += 4 * lanes;
        }
        while r < self.rows.end {
            self.step_rows::<1>(ieee, [r], [row(r)], a, b);
            r += lanes;
        }
    }

    /// A step for each of `N` rows.
    #[inline(always)]
    fn step_rows<const N: usize>(
        &self,
        ieee: &Ieee,
        rows: [usize; N],
        at: [usize; N],
        a: &mut [u32],
        b: &mut [u32],
    ) {
        let width = a.len();
        let x = at.map(|at| &self.x[at..at + width]);
        let b = &mut b[..if F::KIND.wide { width } else { 0 }];
        let shift = if F::KIND.shifted {
            &self.shift[self.column..self.column + width]
        } else {
            &[]
        };
        for c in 0..width {
            let mut s = State {
                a: a[c],
                b: if F::KIND.wide { b[c] } else { 0 },
            };
            let shift = if F::KIND.shifted { shift[c] } else { 0 };
            for n in 0..N {
                let place = (rows[n] - self.origin) as u32;
                s = F::step(ieee, s, x[n][c], place, shift);
            }
            a[c] = s.a;
            if F::KIND.wide {
                b[c] = s.b;
            }
        }
    }

    /// The first state of each column is its result.
    #[inline(always)]
    fn store(self, a: &[u32], b: &[u32]) {
        for (c, state) in self.states.iter_mut().enumerate() {
            *state = State {
                a: a[c],
                b: if F::KIND.wide { b[c] } else { 0 },
            };
        }
    }
}

/// The join of four lanes of each column, of `N` words a lane.
#[inline(always)]
fn join_four<F: Traits, const N: usize>(ieee: &Ieee, x: [[&[u32]; 4]; MOST], out: &mut [u32]) {
    let width = out.len();
    let x = x.map(|x| x.map(|x| &x[..width]));
    for c in 0..width {
        let mut s = [F::start(); 4];
        for x in &x[..N] {
            for k in 0..4 {
                s[k] = F::step(ieee, s[k], x[k][c], 0, 0);
            }
        }
        let low = F::join(ieee, s[0], s[1]);
        out[c] = F::join(ieee, low, F::join(ieee, s[2], s[3])).a;
    }
}

/// `low = join(low, high)` for each column.
#[inline(always)]
fn join_rows<F: Traits>(ieee: &Ieee, a: &mut [u32], b: &mut [u32], a_high: &[u32], b_high: &[u32]) {
    let width = a.len();
    let a_high = &a_high[..width];
    let (b, b_high) = if F::KIND.wide {
        (&mut b[..width], &b_high[..width])
    } else {
        (&mut b[..0], &b_high[..0])
    };
    for c in 0..width {
        let (y, z) = if F::KIND.wide {
            (b[c], b_high[c])
        } else {
            (0, 0)
        };
        let s = F::join(ieee, State { a: a[c], b: y }, State { a: a_high[c], b: z });
        a[c] = s.a;
        if F::KIND.wide {
            b[c] = s.b;
        }
    }
}

struct FinishColumns<'a, F> {
    states: &'a [State],
    n: u32,
    ddof: u32,
    out: &'a mut [u32],
    _fold: PhantomData<F>,
}

impl<F: Traits> Loop for FinishColumns<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let columns = self.out.len();
        if self.states.len() == columns {
            for (state, out) in self.states.iter().zip(self.out) {
                *out = F::finish(&ieee, *state, self.n, self.ddof);
            }
            return;
        }
        let mut column = Vec::with_capacity(self.states.len() / columns.max(1));
        for (c, out) in self.out.iter_mut().enumerate() {
            column.clear();
            column.extend(self.states[c..].iter().step_by(columns));
            let state = join_all::<F>(&ieee, &mut column);
            *out = F::finish(&ieee, state, self.n, self.ddof);
        }
    }
}

/// Folds each column of the rows `offsets[s]..offsets[s + 1]` for each range `s`.
pub(crate) fn ranges<F: Traits>(
    simd: Simd,
    x: &[u32],
    columns: usize,
    offsets: &[u32],
    shift: &[u32],
    ddof: u32,
    out: &mut [u32],
) {
    let count = offsets.len() - 1;
    let range = |s: usize| offsets[s] as usize..offsets[s + 1] as usize;
    let average = (x.len() / count).max(1);
    let chunk = (TASK / average).clamp(1, TASK);
    let shift_of = |s: usize| shift.get(s * columns..(s + 1) * columns).unwrap_or(&[]);
    for_chunks(out, chunk * columns, x.len() > TASK, &|first, out| {
        let first = first / columns;
        if columns == 1 {
            simd.dispatch(Segments::<F> {
                x,
                spans: Spans::Ranges { offsets },
                shift,
                first,
                ddof,
                to: To::Results(out),
                _fold: PhantomData,
            });
        }
        for (s, out) in out.chunks_mut(columns).enumerate() {
            let range = range(first + s);
            if columns > 1 || range.len() > SEGMENT {
                self::columns::<F>(simd, x, range, shift_of(first + s), ddof, out);
            }
        }
    });
}
