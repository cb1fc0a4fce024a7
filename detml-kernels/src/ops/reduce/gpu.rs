//! Units fold lanes in registers, a cube's units fold the lanes by a tree in shared memory.
//!
//! A cube folds several segments side by side: `tile` columns times `units` units along the
//! segment times as many segments as make 256 units. A unit holds the lanes
//! `vector * unit + 0..vector`, and those that follow at steps of `vector * units`, so that the
//! first halvings of the tree are its own. Shapes of cubes are free (`N8`): the order is that of
//! the lanes.

use super::columns;
use super::fold::{self, ArgMax, Kind, Max, State, Sum, Traits, Variance};
use super::{LANES, SEGMENT};
use crate::device::{Arg, Buffer, Device, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::{AnyBuffer, grid};
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Backend, Result};
use std::collections::HashSet;

type Words = Vector<u32, Const<4>>;

const UNITS: usize = 256;

/// Which elements make a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Along {
    /// Each row of a matrix.
    Row,
    /// Each column of a matrix.
    Column,
    /// Each column of some rows, between offsets; sub-segments are found by a search.
    Ranges {
        /// How often the ranges were folded before.
        level: u32,
        /// One sub-segment is left of each.
        last: bool,
    },
}

/// Everything that changes the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    along: Along,
    /// Columns side by side.
    tile: usize,
    /// Units along a segment.
    units: usize,
    /// Lanes that can hold an element.
    lanes: usize,
    /// Words of one load.
    vector: usize,
    /// Elements of each lane, all loaded before any is folded; 0 where a loop counts them.
    steps: usize,
    /// Segments that a unit folds side by side.
    batch: usize,
    /// Segments of one row that a cube folds side by side and joins.
    parts: usize,
    /// Units of a cube.
    cube: usize,
    /// The elements are states of a fold before.
    joined: bool,
    /// The results are finished.
    finished: bool,
    fold: Kind,
    shifted: bool,
}

impl Plan {
    /// Lanes of one unit.
    const fn held(&self) -> usize {
        self.lanes / self.units
    }

    /// Segments of one cube, `tile` columns each.
    const fn segments(&self) -> usize {
        self.cube / (self.tile * self.units)
    }

    /// Tasks of one cube.
    const fn tasks(&self) -> usize {
        self.segments() / self.parts * self.batch
    }
}

/// Where a fold reads and writes; fields that a plan doesn't use stand for others.
#[derive(CubeType)]
struct Memory {
    vectors: Array<Words>,
    x: Array<u32>,
    /// The second words of states.
    x_b: Array<u32>,
    shift: Array<u32>,
    offsets: Array<u32>,
    out: Array<u32>,
    out_b: Array<u32>,
}

/// The elements of one segment.
#[derive(CubeType, Clone, Copy)]
struct Span {
    /// Index in `x` of the first.
    base: u32,
    /// From one to the next.
    stride: u32,
    /// How many there are.
    len: u32,
    /// Place of the first in its row, column or range.
    place: u32,
    /// The row, column or range, for its shift.
    owner: u32,
    /// Where the result goes.
    to: u32,
    /// Elements of the whole row, column or range.
    n: u32,
    valid: bool,
}

/// First sub-segment and number of elements of a range after `level` folds.
///
/// After a fold the range `s` that began at `f` begins at `s + f / SEGMENT`, which leaves room for
/// all sub-segments of the ranges before: `ceil(n / S)` is at most `floor((f + n) / S) - floor(f / S)
/// + 1`, and an empty range has one.
#[cube]
fn range(offsets: &Array<u32>, s: u32, #[comptime] level: u32) -> (u32, u32) {
    let first = offsets[s as usize];
    let mut begin = first;
    let mut len = offsets[s as usize + 1] - first;
    #[unroll]
    for _ in 0..level {
        begin = s + begin / SEGMENT as u32;
        len = parts(len);
    }
    (begin, len)
}

/// Segments of `n` elements; 1 of none.
#[cube]
fn parts(n: u32) -> u32 {
    let more = n / SEGMENT as u32;
    let rest = n - more * SEGMENT as u32;
    let up = prim::select_u32(rest > 0u32 || n == 0u32, 1u32, 0u32);
    more + up
}

/// The range that holds sub-segment `slot`.
#[cube]
fn owner_of(offsets: &Array<u32>, slot: u32, count: u32, #[comptime] level: u32) -> u32 {
    // The last range that begins at or before it.
    let mut low = 0u32;
    let mut high = count;
    while high - low > 1u32 {
        let middle = low + (high - low) / 2u32;
        let (begin, _len) = range(offsets, middle, level);
        if begin <= slot {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The segment of task `task`, its column `tx` of the tile.
#[cube]
fn span(m: &Memory, task: u32, part: u32, tx: u32, size: &Size, #[comptime] plan: Plan) -> Span {
    let rows = size.rows;
    let columns = size.columns;
    let full = SEGMENT as u32;
    if comptime!(plan.along == Along::Row) {
        let each = parts(columns);
        let mut row = task;
        let mut k = part;
        if comptime!(plan.parts == 1) {
            row = task / each;
            k = task - row * each;
        }
        let valid = task < size.tasks && k < each;
        let left = prim::wrapping_sub(columns, k * full);
        Span {
            base: row * columns + k * full,
            stride: 1u32,
            len: prim::select_u32(valid, min_u32(left, full), 0u32),
            place: k * full,
            owner: row,
            to: task,
            n: size.n,
            valid,
        }
    } else {
        let tiles = (columns + (plan.tile as u32 - 1u32)) / plan.tile as u32;
        let item = task / tiles;
        let c = (task - item * tiles) * plan.tile as u32 + tx;
        let inside = task < size.tasks && c < columns;
        let mut begin = 0u32;
        let mut whole = rows;
        let mut k = item;
        let mut owner = c;
        let mut n = size.n;
        if comptime!(plan.along != Along::Column) {
            let level = comptime!(plan.level());
            let mut s = item;
            k = 0u32;
            // Units beyond the tasks read no offset beyond the last.
            if inside {
                if comptime!(!plan.last()) {
                    s = owner_of(&m.offsets, item, size.count, comptime!(level + 1));
                    let (first, _len) = range(&m.offsets, s, comptime!(level + 1));
                    k = item - first;
                }
                let (from, len) = range(&m.offsets, s, level);
                begin = from;
                whole = len;
                n = m.offsets[s as usize + 1] - m.offsets[s as usize];
            }
            owner = s * columns + c;
        }
        let valid = inside && k < parts(whole);
        let left = prim::wrapping_sub(whole, k * full);
        Span {
            base: (begin + k * full) * columns + c,
            stride: columns,
            len: prim::select_u32(valid, min_u32(left, full), 0u32),
            place: k * full,
            owner,
            to: item * columns + c,
            n,
            valid,
        }
    }
}

#[cube]
fn min_u32(a: u32, b: u32) -> u32 {
    prim::select_u32(b < a, b, a)
}

#[derive(CubeType, Clone, Copy)]
struct Size {
    rows: u32,
    columns: u32,
    /// Segments times tiles.
    tasks: u32,
    /// Ranges.
    count: u32,
    /// Elements of a whole row or column.
    n: u32,
    ddof: u32,
}

/// `a[i] = join(a[i], a[k])`.
#[cube]
fn join_lanes(
    ieee: &Ieee,
    a: &mut Array<u32>,
    b: &mut Array<u32>,
    #[comptime] i: usize,
    #[comptime] k: usize,
    #[comptime] plan: Plan,
) {
    let s = State {
        a: a[i],
        b: b[comptime!(plan.second(i))],
    };
    let t = State {
        a: a[k],
        b: b[comptime!(plan.second(k))],
    };
    let s = fold::join(ieee, s, t, comptime!(plan.fold));
    a[i] = s.a;
    if comptime!(plan.fold.wide) {
        b[i] = s.b;
    }
}

/// `steps` elements of each of the unit's lanes, the first at `first`: loaded to `words`, or folded
/// from there for the batch's `which`-th segment. All loads come before any fold, so that they
/// wait for memory together.
#[cube]
fn elements(
    ieee: &Ieee,
    m: &Memory,
    span: &Span,
    shift: u32,
    first: u32,
    words: &mut Array<u32>,
    words_b: &mut Array<u32>,
    a: &mut Array<u32>,
    b: &mut Array<u32>,
    #[comptime] which: usize,
    #[comptime] steps: usize,
    #[comptime] loads: bool,
    #[comptime] guarded: bool,
    #[comptime] plan: Plan,
) {
    let held = comptime!(plan.held());
    let groups = comptime!(held / plan.vector);
    let width = comptime!((plan.units * plan.vector) as u32);
    #[unroll]
    for k in 0..steps {
        #[unroll]
        for j in 0..groups {
            let at = first + comptime!((k * plan.lanes) as u32) + comptime!(j as u32 * width);
            let to = comptime!((which * steps + k) * held + j * plan.vector);
            let mut inside = true;
            if comptime!(guarded) {
                inside = at < span.len;
            }
            if inside {
                if comptime!(loads) {
                    if comptime!(plan.vector == 4) {
                        let vector = m.vectors[((span.base + at) / 4u32) as usize];
                        #[unroll]
                        for l in 0..4usize {
                            words[comptime!(to + l)] = vector[l];
                        }
                    } else {
                        let index = (span.base + at * span.stride) as usize;
                        words[to] = m.x[index];
                        if comptime!(plan.joined && plan.fold.wide) {
                            words_b[to] = m.x_b[index];
                        }
                    }
                } else {
                    #[unroll]
                    for l in 0..comptime!(plan.vector) {
                        let i = comptime!(which * held + j * plan.vector + l);
                        let s = State {
                            a: a[i],
                            b: b[comptime!(plan.second(i))],
                        };
                        let x = words[comptime!(to + l)];
                        if comptime!(plan.joined) {
                            let mut y = 0u32;
                            if comptime!(plan.fold.wide) {
                                y = words_b[comptime!(to + l)];
                            }
                            let t = State { a: x, b: y };
                            let s = fold::join(ieee, s, t, comptime!(plan.fold));
                            a[i] = s.a;
                            if comptime!(plan.fold.wide) {
                                b[i] = s.b;
                            }
                        } else {
                            let place = span.place + at + l as u32;
                            let s = fold::step(ieee, s, x, place, shift, comptime!(plan.fold));
                            a[i] = s.a;
                            if comptime!(plan.fold.wide) {
                                b[i] = s.b;
                            }
                        }
                    }
                }
            }
        }
    }
}

/// As [`elements`], both.
#[cube]
fn chunk(
    ieee: &Ieee,
    m: &Memory,
    span: &Span,
    shift: u32,
    first: u32,
    a: &mut Array<u32>,
    b: &mut Array<u32>,
    #[comptime] steps: usize,
    #[comptime] guarded: bool,
    #[comptime] plan: Plan,
) {
    let count = comptime!(steps * plan.held());
    let mut words = Array::<u32>::new(count);
    let mut words_b = Array::<u32>::new(comptime!(if plan.joined && plan.fold.wide {
        count
    } else {
        1
    }));
    #[unroll]
    for loads in 0..2usize {
        elements(
            ieee,
            m,
            span,
            shift,
            first,
            &mut words,
            &mut words_b,
            a,
            b,
            0usize,
            steps,
            comptime!(loads == 0),
            guarded,
            plan,
        );
    }
}

/// All lanes folded in a loop over the segment.
#[cube]
fn many(
    ieee: &Ieee,
    m: &Memory,
    span: &Span,
    shift: u32,
    mine: u32,
    a: &mut Array<u32>,
    b: &mut Array<u32>,
    #[comptime] plan: Plan,
) {
    let lanes = comptime!(plan.lanes as u32);
    if comptime!(plan.lanes < LANES) {
        chunk(ieee, m, span, shift, mine, a, b, 1usize, true, plan);
    } else {
        // 16 words of a unit at a time.
        let steps = comptime!((16 / plan.held()).max(1));
        let stretch = comptime!(steps as u32 * lanes);
        let whole = span.len / stretch;
        for k in 0..whole {
            chunk(
                ieee,
                m,
                span,
                shift,
                k * stretch + mine,
                a,
                b,
                steps,
                false,
                plan,
            );
        }
        let begin = whole * stretch;
        // Where a step may be long integer code it stands once.
        let tail = comptime!(if plan.fold.fused() { 1 } else { steps });
        let stretch = comptime!(tail as u32 * lanes);
        for k in 0..(span.len - begin + comptime!(stretch - 1)) / stretch {
            chunk(
                ieee,
                m,
                span,
                shift,
                begin + k * stretch + mine,
                a,
                b,
                tail,
                true,
                plan,
            );
        }
    }
}

#[cube]
fn reduce(ieee: &Ieee, m: &mut Memory, size: &Size, #[comptime] plan: Plan) {
    let tile = comptime!(plan.tile as u32);
    let units = comptime!(plan.units as u32);
    let batch = comptime!(plan.batch);
    let column = UNIT_POS % tile;
    let unit = (UNIT_POS / tile) % units;
    let side = UNIT_POS / comptime!(tile * units);
    let part = side % comptime!(plan.parts as u32);
    let groups = comptime!((plan.segments() / plan.parts) as u32);
    let first =
        CUBE_POS as u32 * comptime!(plan.tasks() as u32) + side / comptime!(plan.parts as u32);
    let mine = unit * comptime!(plan.vector as u32);

    let held = comptime!(plan.held());
    let start = fold::start(comptime!(plan.fold));
    let mut a = Array::<u32>::new(comptime!(batch * held));
    let mut b = Array::<u32>::new(comptime!(if plan.fold.wide { batch * held } else { 1 }));
    b[0] = 0u32;
    #[unroll]
    for i in 0..comptime!(batch * held) {
        a[i] = start.a;
        if comptime!(plan.fold.wide) {
            b[i] = start.b;
        }
    }
    if comptime!(plan.steps == 0) {
        let span = span(m, first, part, column, size, plan);
        let mut shift = 0u32;
        if comptime!(plan.shifted) {
            if span.valid {
                shift = m.shift[span.owner as usize];
            }
        }
        many(ieee, m, &span, shift, mine, &mut a, &mut b, plan);
    } else {
        let count = comptime!(batch * plan.steps * held);
        let mut words = Array::<u32>::new(count);
        let mut words_b = Array::<u32>::new(comptime!(if plan.joined && plan.fold.wide {
            count
        } else {
            1
        }));
        #[unroll]
        for loads in 0..2usize {
            #[unroll]
            for which in 0..batch {
                let task = first + which as u32 * groups;
                let span = span(m, task, part, column, size, plan);
                let mut shift = 0u32;
                if comptime!(plan.shifted && loads == 1) {
                    if span.valid {
                        shift = m.shift[span.owner as usize];
                    }
                }
                elements(
                    ieee,
                    m,
                    &span,
                    shift,
                    mine,
                    &mut words,
                    &mut words_b,
                    &mut a,
                    &mut b,
                    which,
                    plan.steps,
                    comptime!(loads == 0),
                    true,
                    plan,
                );
            }
        }
    }

    // The halvings that stay within a unit: lanes `vector * units` apart or more.
    let vector = comptime!(plan.vector);
    let groups_held = comptime!(held / vector);
    #[unroll]
    for which in 0..batch {
        #[unroll]
        for h in 0..comptime!(groups_held.ilog2()) {
            let half = comptime!(groups_held >> (h + 1));
            #[unroll]
            for i in 0..comptime!(half * vector) {
                let to = comptime!(which * held + i);
                join_lanes(
                    ieee,
                    &mut a,
                    &mut b,
                    to,
                    comptime!(to + half * vector),
                    plan,
                );
            }
        }
    }
    let cube = comptime!(plan.cube);
    let mut shared_a = SharedMemory::<u32>::new(comptime!(if plan.units * plan.parts > 1 {
        cube * vector * batch
    } else {
        1
    }));
    let mut shared_b = SharedMemory::<u32>::new(comptime!(if plan.fold.wide
        && plan.units * plan.parts > 1
    {
        cube * vector * batch
    } else {
        1
    }));
    if comptime!(plan.units > 1) {
        #[unroll]
        for which in 0..batch {
            #[unroll]
            for l in 0..vector {
                let at = comptime!((which * vector + l) * cube) + UNIT_POS as usize;
                shared_a[at] = a[comptime!(which * held + l)];
                if comptime!(plan.fold.wide) {
                    shared_b[at] = b[comptime!(which * held + l)];
                }
            }
        }
        #[unroll]
        for h in 0..comptime!(plan.units.ilog2()) {
            let half = comptime!((plan.units >> (h + 1)) as u32);
            sync_cube();
            if unit < half {
                #[unroll]
                for which in 0..batch {
                    #[unroll]
                    for l in 0..vector {
                        let i = comptime!(which * held + l);
                        let at = comptime!((which * vector + l) * cube) + UNIT_POS as usize;
                        let other = at + comptime!((half * tile) as usize);
                        let s = State {
                            a: a[i],
                            b: b[comptime!(plan.second(i))],
                        };
                        let mut y = 0u32;
                        if comptime!(plan.fold.wide) {
                            y = shared_b[other];
                        }
                        let t = State {
                            a: shared_a[other],
                            b: y,
                        };
                        let s = fold::join(ieee, s, t, comptime!(plan.fold));
                        a[i] = s.a;
                        shared_a[at] = s.a;
                        if comptime!(plan.fold.wide) {
                            b[i] = s.b;
                            shared_b[at] = s.b;
                        }
                    }
                }
            }
        }
    }
    #[unroll]
    for which in 0..batch {
        #[unroll]
        for h in 0..comptime!(vector.ilog2()) {
            let half = comptime!(vector >> (h + 1));
            #[unroll]
            for i in 0..half {
                let to = comptime!(which * held + i);
                join_lanes(ieee, &mut a, &mut b, to, comptime!(to + half), plan);
            }
        }
    }
    if comptime!(plan.parts > 1) {
        join_parts(ieee, &mut shared_a, &mut shared_b, &mut a, &mut b, plan);
    }
    #[unroll]
    for which in 0..batch {
        let task = first + which as u32 * groups;
        let span = span(m, task, part, column, size, plan);
        if span.valid && unit == 0u32 && part == 0u32 {
            let i = comptime!(which * held);
            let s = State {
                a: a[i],
                b: b[comptime!(plan.second(i))],
            };
            if comptime!(plan.finished) {
                m.out[span.to as usize] =
                    fold::finish(ieee, s, span.n, size.ddof, comptime!(plan.fold));
            } else {
                m.out[span.to as usize] = s.a;
                if comptime!(plan.fold.wide) {
                    m.out_b[span.to as usize] = s.b;
                }
            }
        }
    }
}

/// The states of a row's segments, folded by the same tree: one each of its first lanes.
#[cube]
fn join_parts(
    ieee: &Ieee,
    shared_a: &mut SharedMemory<u32>,
    shared_b: &mut SharedMemory<u32>,
    a: &mut Array<u32>,
    b: &mut Array<u32>,
    #[comptime] plan: Plan,
) {
    let units = comptime!(plan.units as u32);
    sync_cube();
    if UNIT_POS % units == 0u32 {
        shared_a[UNIT_POS as usize] = a[0];
        if comptime!(plan.fold.wide) {
            shared_b[UNIT_POS as usize] = b[0];
        }
    }
    sync_cube();
    let parts = comptime!(plan.parts);
    let mut p_a = Array::<u32>::new(parts);
    let mut p_b = Array::<u32>::new(comptime!(if plan.fold.wide { parts } else { 1 }));
    p_b[0] = 0u32;
    let base = UNIT_POS - UNIT_POS % comptime!((plan.units * plan.parts) as u32);
    #[unroll]
    for p in 0..parts {
        let at = (base + p as u32 * units) as usize;
        p_a[p] = shared_a[at];
        if comptime!(plan.fold.wide) {
            p_b[p] = shared_b[at];
        }
    }
    #[unroll]
    for h in 0..comptime!(parts.ilog2()) {
        let half = comptime!(parts >> (h + 1));
        #[unroll]
        for p in 0..half {
            join_lanes(ieee, &mut p_a, &mut p_b, p, comptime!(p + half), plan);
        }
    }
    a[0] = p_a[0];
    if comptime!(plan.fold.wide) {
        b[0] = p_b[0];
    }
}

impl Plan {
    /// The place of a second word: narrow folds keep one that is 0.
    const fn second(&self, i: usize) -> usize {
        if self.fold.wide { i } else { 0 }
    }

    const fn level(&self) -> u32 {
        match self.along {
            Along::Ranges { level, .. } => level,
            _ => 0,
        }
    }

    const fn last(&self) -> bool {
        !matches!(self.along, Along::Ranges { last: false, .. })
    }

    /// A plan for segments of which the longest has `n` elements.
    fn new(fold: Kind, along: Along, n: usize, columns: usize, joined: bool, class: Class) -> Self {
        let lanes = n.min(SEGMENT).next_power_of_two().min(LANES);
        let mut plan = Self {
            along,
            tile: 1,
            units: 1,
            lanes,
            vector: 1,
            steps: 0,
            batch: 1,
            parts: 1,
            cube: UNITS,
            joined,
            finished: n <= SEGMENT,
            fold,
            shifted: fold.shifted && !joined,
        };
        let width = columns.next_power_of_two();
        match along {
            Along::Row => {
                plan.lanes = lanes.max(4);
                plan.units = plan.lanes / 4;
                if n % 4 == 0 && !joined {
                    plan.vector = 4;
                }
                if joined && n > LANES {
                    // Few rows are long enough to have many segments: what counts is latency.
                    plan.units = LANES;
                    let parts = n.div_ceil(SEGMENT).next_power_of_two();
                    if parts * LANES <= class.units {
                        plan.parts = parts;
                        plan.cube = UNITS.max(parts * LANES);
                        plan.finished = true;
                    }
                    plan.steps = (n.min(SEGMENT) / LANES).next_power_of_two();
                    if plan.steps * LANES < n.min(SEGMENT) {
                        plan.steps *= 2;
                    }
                } else if n <= 1024 && !joined && (class.fused || !fold.fused()) {
                    plan.steps = n.div_ceil(plan.lanes);
                    // Shared memory holds four words of each unit and segment.
                    plan.batch = match plan.steps {
                        1 if class.units > UNITS => 4,
                        1..=3 if class.units > UNITS || !fold.wide => 2,
                        _ => 1,
                    };
                }
            }
            Along::Column if lanes <= 16 => plan.tile = width.min(UNITS),
            Along::Column => {
                plan.tile = width.min(32);
                plan.units = lanes.min(UNITS / plan.tile);
            }
            Along::Ranges { .. } => {
                plan.lanes = LANES;
                plan.tile = width.min(32);
                plan.units = LANES.min(UNITS / plan.tile).min(32);
            }
        }
        plan
    }
}

/// What plans depend on beside the shape.
#[derive(Clone, Copy)]
struct Class {
    /// Units of a cube that every device of the kind has.
    units: usize,
    /// Fused multiply-add is one instruction.
    fused: bool,
}

impl Class {
    fn of(device: &Device, profile: FloatProfile) -> Self {
        Self {
            units: match device.backend() {
                Backend::Cuda(_) | Backend::Hip(_) => 1024,
                _ => UNITS,
            },
            fused: profile.direct(),
        }
    }
}

fn kernel(profile: FloatProfile, plan: Plan) -> Kernel {
    Kernel::new(
        "reduce",
        profile,
        plan,
        CubeDim::new_1d(plan.cube as u32),
        move |d| {
            let ieee = d.ieee();
            let wide_states = plan.fold.wide && !plan.finished;
            let out = d.output::<u32>();
            let out_b = if wide_states {
                d.output::<u32>()
            } else {
                out.clone()
            };
            let (vectors, x) = if plan.vector == 4 {
                (d.input::<Words>(), out.clone())
            } else {
                let x = d.input::<u32>();
                (x.expand.clone().into(), x)
            };
            let x_b = if plan.fold.wide && plan.joined {
                d.input::<u32>()
            } else {
                out.clone()
            };
            let shift = if plan.shifted {
                d.input::<u32>()
            } else {
                out.clone()
            };
            let ranges = matches!(plan.along, Along::Ranges { .. });
            let offsets = if ranges {
                d.input::<u32>()
            } else {
                out.clone()
            };
            let memory = MemoryExpand {
                vectors,
                x,
                x_b,
                shift,
                offsets,
                out,
                out_b,
            };
            let [rows, columns, tasks, count, n, ddof] = [(); 6].map(|()| d.scalar::<u32>());
            let size = SizeExpand {
                rows,
                columns,
                tasks,
                count,
                n,
                ddof,
            };
            reduce::expand(d.scope(), ieee, memory, size, plan);
        },
    )
}

/// What a launch folds along.
#[derive(Clone, Copy)]
enum Axis {
    Row,
    Column,
    Ranges,
}

/// A fold to put in the queue.
pub(crate) struct Job<'a> {
    pub(crate) x: &'a dyn AnyBuffer,
    pub(crate) shift: Option<&'a dyn AnyBuffer>,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) ddof: u32,
}

/// States between two folds.
struct States {
    a: Buffer<u32>,
    b: Option<Buffer<u32>>,
}

/// Folds each row, or each column, to `out`.
pub(super) fn matrix(
    fold: Kind,
    device: &Device,
    job: &Job<'_>,
    by_column: bool,
    out: &mut dyn AnyBuffer,
) -> Result<()> {
    let axis = if by_column { Axis::Column } else { Axis::Row };
    run(fold, device, job, axis, None, out)
}

/// Folds each column of the rows `offsets[s]..offsets[s + 1]` for each of `count` ranges to
/// `out`, `count` rows. Offsets ascend and none is beyond the rows; no range has more than `longest`.
pub(crate) fn ranges(
    fold: Kind,
    device: &Device,
    job: &Job<'_>,
    offsets: &Buffer<u32>,
    count: usize,
    longest: usize,
    out: &mut dyn AnyBuffer,
) -> Result<()> {
    let ranges = Ranges {
        offsets,
        count,
        longest,
    };
    run(fold, device, job, Axis::Ranges, Some(&ranges), out)
}

struct Ranges<'a> {
    offsets: &'a Buffer<u32>,
    count: usize,
    longest: usize,
}

fn run(
    fold: Kind,
    device: &Device,
    job: &Job<'_>,
    axis: Axis,
    ranges: Option<&Ranges<'_>>,
    out: &mut dyn AnyBuffer,
) -> Result<()> {
    let profile = device.profile()?;
    let class = Class::of(device, profile);
    let (mut rows, mut columns) = (job.rows, job.columns);
    let n = match axis {
        Axis::Row => columns,
        _ => rows,
    };
    let mut longest = ranges.map_or(n, |ranges| ranges.longest);
    let mut states: Option<States> = None;
    let mut level = 0;
    loop {
        let along = match axis {
            Axis::Row => Along::Row,
            Axis::Column => Along::Column,
            Axis::Ranges => Along::Ranges {
                level,
                last: longest <= SEGMENT,
            },
        };
        let plan = Plan::new(fold, along, longest, columns, states.is_some(), class);
        let parts = longest.div_ceil(SEGMENT).max(1);
        let (items, count) = match (axis, ranges) {
            (Axis::Row, _) if plan.parts > 1 => (rows, 0),
            (Axis::Row, _) => (rows * parts, 0),
            (Axis::Ranges, Some(ranges)) if plan.finished => (ranges.count, ranges.count),
            (Axis::Ranges, Some(ranges)) => (ranges.count + rows / SEGMENT, ranges.count),
            _ => (parts, 0),
        };
        // Columns of elements; states and what is shorter than the lanes go another way.
        let tiled = match axis {
            Axis::Column if states.is_none() && rows > LANES / 2 => Some(columns::Plan::new(
                columns::Fold::One(fold),
                [rows, columns],
                profile,
            )),
            _ => None,
        };
        let tiles = match axis {
            Axis::Row => 1,
            _ => columns.div_ceil(plan.tile),
        };
        let tasks = items * tiles;
        let len = match axis {
            Axis::Row => items,
            _ => items * columns,
        };
        let mut next = if plan.finished {
            None
        } else {
            Some(States {
                a: device.empty(len)?,
                b: if fold.wide {
                    Some(device.empty(len)?)
                } else {
                    None
                },
            })
        };
        let mut args = match &next {
            None => vec![out.arg(1)],
            Some(next) => {
                let mut args = vec![Arg::from(&next.a)];
                args.extend(next.b.as_ref().map(Arg::from));
                args
            }
        };
        if let Some(tiled) = tiled {
            let inputs = columns::Inputs {
                x: job.x,
                y: None,
                scale: None,
                mean: None,
                shift: job.shift.filter(|_| fold.shifted),
                ddof: job.ddof,
            };
            columns::launch(tiled, [rows, columns], &inputs, args)?;
            if plan.finished {
                return Ok(());
            }
            states = next.take();
            level += 1;
            longest = parts;
            rows = items;
            continue;
        }
        match &states {
            None => args.push(job.x.arg(plan.vector)),
            Some(states) => {
                args.push(Arg::from(&states.a));
                args.extend(states.b.as_ref().map(Arg::from));
            }
        }
        if let (true, Some(shift)) = (plan.shifted, job.shift) {
            args.push(shift.arg(1));
        }
        if let Some(ranges) = ranges {
            args.push(Arg::from(ranges.offsets));
        }
        let scalars = [rows, columns, tasks, count, n];
        args.extend(scalars.map(|x| Arg::U32(x as u32)));
        args.push(Arg::U32(job.ddof));
        let cubes = grid(tasks, plan.tasks())?;
        device.launch(&kernel(profile, plan), cubes, &args)?;
        drop(args);
        if plan.finished {
            return Ok(());
        }
        states = next.take();
        level += 1;
        longest = parts;
        match axis {
            Axis::Row => columns = parts,
            _ => rows = items,
        }
    }
}

/// Every fold along rows; the sum and the widest fold in every other shape.
pub(super) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let fused = profile.direct();
    let class = |units: usize| Class { units, fused };
    let shapes = |fold: Kind| {
        let mut all = Vec::new();
        for (n, columns, joined) in [
            (17, 17, false),
            (256, 256, false),
            (10_000, 10_000, false),
            (3, 3, true),
            (10_000, 10_000, true),
        ] {
            all.push(Plan::new(fold, Along::Row, n, columns, joined, class(1024)));
        }
        for (n, columns, joined) in [
            (10, 300, false),
            (100, 1, false),
            (10_000, 28, false),
            (3, 28, true),
        ] {
            all.push(Plan::new(
                fold,
                Along::Column,
                n,
                columns,
                joined,
                class(UNITS),
            ));
        }
        for (n, columns, level) in [(100, 1, 0), (100, 28, 0), (10_000, 28, 0), (3, 28, 1)] {
            let along = Along::Ranges {
                level,
                last: n <= SEGMENT,
            };
            all.push(Plan::new(fold, along, n, columns, level > 0, class(UNITS)));
        }
        all
    };
    // Several of these may have one schedule, by what the device computes natively.
    let mut seen = HashSet::new();
    Kind::ALL
        .iter()
        .map(|&fold| Plan::new(fold, Along::Row, 4096, 4096, false, class(UNITS)))
        .chain(shapes(Sum::KIND))
        .chain(shapes(Variance::KIND))
        .chain(
            [Max::KIND, ArgMax::KIND]
                .map(|fold| Plan::new(fold, Along::Column, 10_000, 64, false, class(UNITS))),
        )
        .filter(|&plan| seen.insert(plan))
        .map(|plan| kernel(profile, plan))
        .chain(columns::kernels(profile))
        .collect()
}
