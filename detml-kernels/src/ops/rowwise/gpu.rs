//! A row stays in registers between the passes over it.
//!
//! A unit holds lanes of `N5` whole: all elements of one lane of a segment, or of four lanes that
//! lie 32 apart, so that a chain is within a unit and the loads of neighbouring units lie side by
//! side, whatever the alignment of a row. The tree over lanes takes two halvings at a time through
//! shared memory. Rows of at most 32 elements belong to one unit each and pass through shared
//! memory. Rows that registers can't hold are read once for each pass: segments are summed by
//! one kernel, their sums by [`reduce`], and another kernel applies them.

use super::Job;
use super::terms::{self, First, Op, Two};
use crate::device::{Arg, Buffer, Definition, Device, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::reduce::{self, Axis, LANES, SEGMENT, columns};
use crate::ops::{AnyBuffer, grid};
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Backend, Result};

const UNITS: usize = 256;
/// Units of a cube whose rows have 32 units each: fewer wait for one another.
const FEW_UNITS: usize = 64;
/// Rows of a cube that gives each unit a row.
const SHORT_UNITS: usize = 64;
/// The longest row of one unit.
const SHORT: usize = 32;

/// The part of an operation that a launch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// All of it.
    Whole,
    /// The sums of each segment.
    Sums,
    /// The results, from the rows' sums.
    Results,
}

/// Everything that changes the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    op: Op,
    stage: Stage,
    weighted: bool,
    biased: bool,
    units: usize,
    /// Units along the lanes of a segment: 128, or 32 with four lanes each.
    width: usize,
    /// Segments side by side.
    parts: usize,
    /// Elements of a lane.
    steps: usize,
    /// Rows of one unit.
    batch: usize,
    /// Every lane of every segment is full.
    exact: bool,
    unroll: bool,
}

/// A way to run an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Way {
    /// A row to a unit.
    Short,
    /// A row in the registers of a cube or a part of one.
    Kept(Plan),
    /// A row to a cube, a read for each pass; `batch` counts the segments of one unit.
    Streamed(Plan),
    /// As many reads as passes.
    Long,
}

impl Plan {
    const fn held(&self) -> usize {
        self.steps * self.lanes()
    }

    /// Lanes of one unit.
    const fn lanes(&self) -> usize {
        LANES / self.width
    }

    /// Rows (or segments) that a cube's units take side by side.
    const fn groups(&self) -> usize {
        self.units / (self.width * self.parts)
    }

    /// Cubes whose registers are to fit a multiprocessor: 64 registers a unit, 128 where two
    /// matrices are held.
    const fn resident(&self) -> u32 {
        let units = if self.op.backward() { 512 } else { 1024 };
        if self.units < units {
            (units / self.units) as u32
        } else {
            1
        }
    }

    /// Numbers of one tree.
    const fn sums(&self) -> usize {
        if self.op.wide() {
            2 * self.batch
        } else {
            self.batch
        }
    }
}

type Four = Vector<f32, Const<4>>;

/// Fields that a kernel doesn't use stand for others.
#[derive(CubeType)]
struct Memory {
    x: Array<f32>,
    y: Array<f32>,
    x_fours: Array<Four>,
    y_fours: Array<Four>,
    out_fours: Array<Four>,
    weight: Array<f32>,
    bias: Array<f32>,
    first: Array<f32>,
    scale: Array<f32>,
    sum_a: Array<f32>,
    sum_b: Array<f32>,
    out: Array<f32>,
    out_first: Array<f32>,
    out_scale: Array<f32>,
}

#[derive(CubeType, Clone, Copy)]
struct Size {
    rows: u32,
    columns: u32,
    eps: f32,
    ddof: u32,
}

#[cube]
fn join(ieee: &Ieee, a: f32, b: f32, #[comptime] maximum: bool) -> f32 {
    if comptime!(maximum) {
        ieee.select(ieee.gt(b, a), b, a)
    } else {
        ieee.add(a, b)
    }
}

/// Four that lie `apart` apart, by two halvings of the tree.
#[cube]
fn four(
    ieee: &Ieee,
    shared: &SharedMemory<f32>,
    at: u32,
    #[comptime] apart: u32,
    #[comptime] maximum: bool,
) -> f32 {
    let a = shared[at as usize];
    let b = shared[(at + apart) as usize];
    let c = shared[(at + 2u32 * apart) as usize];
    let d = shared[(at + 3u32 * apart) as usize];
    let even = join(ieee, a, c, maximum);
    let odd = join(ieee, b, d, maximum);
    join(ieee, even, odd, maximum)
}

/// Two halvings of the trees of `count` numbers, each over `lanes` lanes that lie side by side:
/// each unit of `plan.width` does its share.
#[cube]
fn halve_twice(
    ieee: &Ieee,
    from: &SharedMemory<f32>,
    to: &mut SharedMemory<f32>,
    side: u32,
    lane: u32,
    #[comptime] lanes: u32,
    #[comptime] count: usize,
    #[comptime] maximum: bool,
    #[comptime] plan: Plan,
) {
    let width = comptime!(plan.width as u32);
    let next = comptime!(lanes / 4);
    let total = comptime!(count as u32 * next);
    #[unroll]
    for turn in 0..comptime!(total.div_ceil(width)) {
        let id = turn * width + lane;
        if id < total {
            let which = id / next;
            let j = id % next;
            let at = (side * comptime!(count as u32) + which) * lanes + j;
            let r = four(ieee, from, at, next, maximum);
            to[((side * comptime!(count as u32) + which) * next + j) as usize] = r;
        }
    }
}

/// Each row's number from its units' in `v`, for all of its units: `count` numbers of each unit.
#[cube]
fn tree(
    ieee: &Ieee,
    shared: &mut SharedMemory<f32>,
    other: &mut SharedMemory<f32>,
    v: &mut Array<f32>,
    #[comptime] count: usize,
    #[comptime] maximum: bool,
    #[comptime] plan: Plan,
) {
    let width = comptime!(plan.width as u32);
    let lane = UNIT_POS % width;
    let side = UNIT_POS / width;
    sync_cube();
    #[unroll]
    for i in 0..count {
        shared[((side * comptime!(count as u32) + i as u32) * width + lane) as usize] = v[i];
    }
    sync_cube();
    halve_twice(ieee, shared, other, side, lane, width, count, maximum, plan);
    sync_cube();
    let quarter = comptime!(width / 4);
    halve_twice(
        ieee, other, shared, side, lane, quarter, count, maximum, plan,
    );
    sync_cube();
    // Two or eight are left of each.
    let left = comptime!(plan.width / 16);
    if comptime!(plan.parts <= 2) {
        let first = side - side % comptime!(plan.parts as u32);
        let mut parts = Array::<f32>::new(plan.parts);
        #[unroll]
        for i in 0..count {
            #[unroll]
            for p in 0..plan.parts {
                let at = ((first + p as u32) * comptime!(count as u32) + i as u32) * left as u32;
                parts[p] = rest(ieee, shared, at, left, maximum);
            }
            v[i] = across(ieee, &mut parts, maximum, plan.parts);
        }
    } else {
        if lane < comptime!(count as u32) {
            let at = (side * comptime!(count as u32) + lane) * left as u32;
            other[(side * comptime!(count as u32) + lane) as usize] =
                rest(ieee, shared, at, left, maximum);
        }
        sync_cube();
        let first = side - side % comptime!(plan.parts as u32);
        let mut parts = Array::<f32>::new(plan.parts);
        #[unroll]
        for i in 0..count {
            #[unroll]
            for p in 0..plan.parts {
                let at = (first + p as u32) * comptime!(count as u32) + i as u32;
                parts[p] = other[at as usize];
            }
            v[i] = across(ieee, &mut parts, maximum, plan.parts);
        }
    }
}

/// The last halvings over `left` numbers, two or eight.
#[cube]
fn rest(
    ieee: &Ieee,
    shared: &SharedMemory<f32>,
    at: u32,
    #[comptime] left: usize,
    #[comptime] maximum: bool,
) -> f32 {
    if comptime!(left == 2) {
        join(ieee, shared[at as usize], shared[at as usize + 1], maximum)
    } else {
        let a = four(ieee, shared, at, 2u32, maximum);
        let b = four(ieee, shared, at + 1u32, 2u32, maximum);
        join(ieee, a, b, maximum)
    }
}

/// The segments' numbers by the same tree: lanes without any are left out.
#[cube]
fn across(
    ieee: &Ieee,
    parts: &mut Array<f32>,
    #[comptime] maximum: bool,
    #[comptime] count: usize,
) -> f32 {
    #[unroll]
    for h in 0..comptime!(count.ilog2()) {
        let half = comptime!(count >> (h + 1));
        #[unroll]
        for p in 0..half {
            parts[p] = join(ieee, parts[p], parts[comptime!(p + half)], maximum);
        }
    }
    parts[0]
}

/// `c ? x : 0`.
#[cube]
fn or_zero(c: bool, x: f32) -> f32 {
    prim::select(c, x, prim::from_bits(0u32))
}

/// What a unit holds of each of its rows.
#[derive(CubeType)]
struct Place {
    row: Array<u32>,
    /// Index in the matrix of its first element.
    first: Array<u32>,
    /// Elements of the row from there on; 0 where there is no row.
    left: Array<u32>,
    /// Column of its first element.
    column: Array<u32>,
}

#[cube]
fn place(size: &Size, #[comptime] plan: Plan) -> Place {
    let width = comptime!(plan.width as u32);
    let lane = UNIT_POS % width;
    let part = (UNIT_POS / width) % comptime!(plan.parts as u32);
    let group = UNIT_POS / comptime!((plan.width * plan.parts) as u32);
    let groups = comptime!(plan.groups() as u32);
    let tile = CUBE_POS as u32 * comptime!((plan.groups() * plan.batch) as u32) + group;
    let n = size.columns;
    let mut row = Array::<u32>::new(plan.batch);
    let mut first = Array::<u32>::new(plan.batch);
    let mut left = Array::<u32>::new(plan.batch);
    let mut column = Array::<u32>::new(plan.batch);
    #[unroll]
    for b in 0..plan.batch {
        let task = tile + b as u32 * groups;
        let mut r = task;
        let mut k = part;
        if comptime!(plan.stage != Stage::Whole) {
            let segments = (n + comptime!(SEGMENT as u32 - 1u32)) / SEGMENT as u32;
            r = task / segments;
            k = task - r * segments;
        }
        let c = k * SEGMENT as u32 + lane;
        row[b] = r;
        first[b] = r * n + c;
        column[b] = c;
        let inside = r < size.rows && c < n;
        let rest = prim::wrapping_sub(n, k * SEGMENT as u32);
        let rest = prim::select_u32(rest < SEGMENT as u32, rest, SEGMENT as u32);
        left[b] = prim::select_u32(inside, prim::wrapping_sub(rest, lane), 0u32);
    }
    Place {
        row,
        first,
        left,
        column,
    }
}

/// Whether the unit's element `i` of a row exists.
#[cube]
fn exists(left: u32, i: u32, #[comptime] plan: Plan) -> bool {
    if comptime!(plan.exact) {
        left > 0u32
    } else {
        i * comptime!(plan.width as u32) < left
    }
}

/// The sums over the unit's elements: the lanes' chains and the halvings within the unit.
#[cube]
fn chains(ieee: &Ieee, h: &Array<f32>, g: &Array<f32>, b: usize, #[comptime] plan: Plan) -> Two {
    let lanes = comptime!(plan.lanes());
    let zero = prim::from_bits(0u32);
    let mut a_lanes = Array::<f32>::new(lanes);
    let mut b_lanes = Array::<f32>::new(lanes);
    #[unroll]
    for a in 0..lanes {
        let mut s = Two { a: zero, b: zero };
        #[unroll(plan.unroll)]
        for k in 0..plan.steps {
            let i = b * plan.held() + k * lanes + a;
            let mut y = zero;
            if comptime!(plan.op.backward()) {
                y = g[i];
            }
            let next = terms::step(ieee, s, h[i], y, comptime!(plan.op));
            s.a = next.a;
            s.b = next.b;
        }
        a_lanes[a] = s.a;
        b_lanes[a] = s.b;
    }
    #[unroll]
    for l in 0..comptime!(lanes.ilog2()) {
        let half = comptime!(lanes >> (l + 1));
        #[unroll]
        for a in 0..half {
            a_lanes[a] = ieee.add(a_lanes[a], a_lanes[comptime!(a + half)]);
            if comptime!(plan.op.wide()) {
                b_lanes[a] = ieee.add(b_lanes[a], b_lanes[comptime!(a + half)]);
            }
        }
    }
    Two {
        a: a_lanes[0],
        b: b_lanes[0],
    }
}

#[cube]
fn rows(ieee: &Ieee, m: &mut Memory, size: &Size, #[comptime] plan: Plan) {
    let op = comptime!(plan.op);
    let batch = comptime!(plan.batch);
    let held = comptime!(plan.held());
    let n = size.columns;
    let zero = prim::from_bits(0u32);
    let at = place(size, plan);
    let mut shared = SharedMemory::<f32>::new(comptime!(plan.units * plan.sums()));
    let mut other = SharedMemory::<f32>::new(comptime!(plan.units * plan.sums() / 4));

    let mut h = Array::<f32>::new(comptime!(batch * held));
    let mut g = Array::<f32>::new(comptime!(if op.backward() { batch * held } else { 1 }));
    #[unroll]
    for b in 0..batch {
        #[unroll(plan.unroll)]
        for i in 0..held {
            let mut x = terms::neutral(op);
            let mut y = zero;
            if exists(at.left[b], i as u32, plan) {
                let index = (at.first[b] + i as u32 * comptime!(plan.width as u32)) as usize;
                x = m.x[index];
                if comptime!(op.backward()) {
                    y = m.y[index];
                }
            }
            h[b * held + i] = x;
            if comptime!(op.backward()) {
                g[b * held + i] = y;
            }
        }
    }

    // The rows' first numbers.
    let mut first = Array::<f32>::new(batch);
    let mut scale = Array::<f32>::new(batch);
    let given = comptime!(
        op.first() == First::Given || (plan.stage != Stage::Whole && op.first() != First::None)
    );
    #[unroll]
    for b in 0..batch {
        first[b] = zero;
        scale[b] = zero;
        if at.left[b] > 0u32 {
            if comptime!(given) {
                first[b] = m.first[at.row[b] as usize];
            }
            if comptime!(op.scaled()) {
                scale[b] = m.scale[at.row[b] as usize];
            }
        }
    }
    if comptime!(!given && op.first() == First::Maximum) {
        #[unroll]
        for b in 0..batch {
            let mut maximum = h[b * held];
            #[unroll(plan.unroll)]
            for i in 1..held {
                maximum = join(ieee, maximum, h[b * held + i], true);
            }
            first[b] = maximum;
        }
        tree(ieee, &mut shared, &mut other, &mut first, batch, true, plan);
    } else if comptime!(!given && op.first() == First::Mean) {
        #[unroll]
        for b in 0..batch {
            let lanes = comptime!(plan.lanes());
            let mut sums = Array::<f32>::new(lanes);
            #[unroll]
            for a in 0..lanes {
                let mut s = zero;
                #[unroll(plan.unroll)]
                for k in 0..plan.steps {
                    s = ieee.add(s, h[b * held + k * lanes + a]);
                }
                sums[a] = s;
            }
            #[unroll]
            for l in 0..comptime!(lanes.ilog2()) {
                let half = comptime!(lanes >> (l + 1));
                #[unroll]
                for a in 0..half {
                    sums[a] = ieee.add(sums[a], sums[comptime!(a + half)]);
                }
            }
            first[b] = sums[0];
        }
        tree(
            ieee,
            &mut shared,
            &mut other,
            &mut first,
            batch,
            false,
            plan,
        );
        #[unroll]
        for b in 0..batch {
            first[b] = terms::mean(ieee, first[b], n);
        }
    }

    #[unroll]
    for b in 0..batch {
        #[unroll(plan.unroll)]
        for i in 0..held {
            let j = b * held + i;
            let mut y = zero;
            let mut w = zero;
            if comptime!(op.backward()) {
                y = g[j];
            }
            let inside = exists(at.left[b], i as u32, plan);
            if comptime!(op.scaled() && plan.weighted) {
                if inside {
                    let column = at.column[b] + i as u32 * comptime!(plan.width as u32);
                    w = m.weight[column as usize];
                }
            }
            let two = terms::lift(ieee, h[j], y, w, first[b], scale[b], op, plan.weighted);
            if comptime!(op.first() == First::Maximum) {
                h[j] = two.a;
            } else {
                h[j] = or_zero(inside, two.a);
            }
            if comptime!(op.backward()) {
                g[j] = two.b;
            }
        }
    }

    let mut sums = Array::<f32>::new(comptime!(plan.sums()));
    if comptime!(plan.stage != Stage::Results) {
        #[unroll]
        for b in 0..batch {
            let s = chains(ieee, &h, &g, b, plan);
            sums[b] = s.a;
            if comptime!(op.wide()) {
                sums[comptime!(b + batch)] = s.b;
            }
        }
        tree(
            ieee,
            &mut shared,
            &mut other,
            &mut sums,
            comptime!(plan.sums()),
            false,
            plan,
        );
    } else {
        #[unroll]
        for b in 0..batch {
            sums[b] = zero;
            if comptime!(op.wide()) {
                sums[comptime!(b + batch)] = zero;
            }
            if at.left[b] > 0u32 {
                sums[b] = m.sum_a[at.row[b] as usize];
                if comptime!(op.wide()) {
                    sums[comptime!(b + batch)] = m.sum_b[at.row[b] as usize];
                }
            }
        }
    }

    #[unroll]
    for b in 0..batch {
        let mut second = zero;
        if comptime!(op.wide()) {
            second = sums[comptime!(b + batch)];
        }
        let s = Two {
            a: sums[b],
            b: second,
        };
        let row = at.row[b];
        let first_index = at.first[b];
        let column = at.column[b];
        if comptime!(plan.stage == Stage::Sums) {
            // A segment has a first element.
            if at.left[b] > 0u32 && UNIT_POS % comptime!(plan.width as u32) == 0u32 {
                let segments = (n + comptime!(SEGMENT as u32 - 1u32)) / SEGMENT as u32;
                let to = row * segments + column / SEGMENT as u32;
                m.out[to as usize] = s.a;
                if comptime!(op.wide()) {
                    m.out_scale[to as usize] = s.b;
                }
            }
        } else {
            let last = terms::finish(ieee, s, n, size.eps, size.ddof, op);
            if comptime!(op.stored()) {
                if at.left[b] > 0u32 && column == 0u32 {
                    m.out_scale[row as usize] = last.a;
                    if comptime!(plan.stage == Stage::Whole && op.first() == First::Mean) {
                        m.out_first[row as usize] = first[b];
                    }
                }
            }
            if comptime!(op.maps()) {
                #[unroll(plan.unroll)]
                for i in 0..held {
                    if exists(at.left[b], i as u32, plan) {
                        let j = b * held + i;
                        let offset = i as u32 * comptime!(plan.width as u32);
                        let mut w = zero;
                        let mut bias = zero;
                        let mut y = zero;
                        if comptime!(plan.weighted && !op.backward()) {
                            w = m.weight[(column + offset) as usize];
                        }
                        if comptime!(plan.biased) {
                            bias = m.bias[(column + offset) as usize];
                        }
                        if comptime!(op.backward()) {
                            y = g[j];
                        }
                        m.out[(first_index + offset) as usize] = terms::apply(
                            ieee,
                            h[j],
                            y,
                            last,
                            scale[b],
                            w,
                            bias,
                            op,
                            plan.weighted,
                            plan.biased,
                        );
                    }
                }
            }
        }
    }
}

/// The row's number of the units' numbers in `v`, one of each of a unit's segments: a tree over the
/// lanes, and one over the segments.
#[cube]
fn row_total(
    ieee: &Ieee,
    shared: &mut SharedMemory<f32>,
    other: &mut SharedMemory<f32>,
    v: &mut Array<f32>,
    #[comptime] maximum: bool,
    #[comptime] plan: Plan,
) -> f32 {
    let groups = comptime!(plan.groups());
    let segments = comptime!(plan.batch * groups);
    tree(ieee, shared, other, v, plan.batch, maximum, plan);
    if UNIT_POS % comptime!(plan.width as u32) == 0u32 {
        #[unroll]
        for i in 0..plan.batch {
            let group = UNIT_POS / comptime!(plan.width as u32);
            other[(i as u32 * comptime!(groups as u32) + group) as usize] = v[i];
        }
    }
    sync_cube();
    let mut parts = Array::<f32>::new(segments);
    #[unroll]
    for i in 0..segments {
        parts[i] = other[i];
    }
    across(ieee, &mut parts, maximum, segments)
}

/// What a pass over a row is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Maximum,
    Mean,
    Sums,
    Results,
}

/// A row's numbers so far.
#[derive(CubeType, Clone, Copy)]
struct RowNumbers {
    row: u32,
    first: f32,
    scale: f32,
    last_a: f32,
    last_b: f32,
}

/// Some of a unit's elements of a segment, those from column `from` on: all loads, then what the pass
/// makes of them. Returns the sums, or the maximum.
#[cube]
fn stream(
    ieee: &Ieee,
    m: &mut Memory,
    n: u32,
    r: &RowNumbers,
    from: u32,
    before: Two,
    #[comptime] count: usize,
    #[comptime] pass: Pass,
    #[comptime] plan: Plan,
) -> Two {
    let op = comptime!(plan.op);
    let zero = prim::from_bits(0u32);
    let width = comptime!(plan.width as u32);
    let takes_y = comptime!(op.backward());
    let base = r.row * n;
    let mut h = Array::<f32>::new(count);
    let mut g = Array::<f32>::new(comptime!(if takes_y { count } else { 1 }));
    #[unroll(plan.unroll)]
    for i in 0..count {
        let c = from + i as u32 * width;
        let mut x = terms::neutral(op);
        let mut y = zero;
        if c < n {
            x = m.x[(base + c) as usize];
            if comptime!(takes_y) {
                y = m.y[(base + c) as usize];
            }
        }
        h[i] = x;
        if comptime!(takes_y) {
            g[i] = y;
        }
    }
    let mut s = Two {
        a: before.a,
        b: before.b,
    };
    #[unroll(plan.unroll)]
    for i in 0..count {
        let c = from + i as u32 * width;
        if comptime!(pass == Pass::Maximum) {
            s.a = join(ieee, s.a, h[i], true);
        } else if comptime!(pass == Pass::Mean) {
            s.a = ieee.add(s.a, h[i]);
        } else {
            let mut y = zero;
            if comptime!(takes_y) {
                y = g[i];
            }
            let mut w = zero;
            let mut bias = zero;
            if c < n {
                if comptime!(plan.weighted) {
                    w = m.weight[c as usize];
                }
                if comptime!(plan.biased) {
                    bias = m.bias[c as usize];
                }
            }
            let two = terms::lift(ieee, h[i], y, w, r.first, r.scale, op, plan.weighted);
            if comptime!(pass == Pass::Sums) {
                let mut a = two.a;
                if comptime!(op.first() != First::Maximum) {
                    a = or_zero(c < n, two.a);
                }
                let next = terms::step(ieee, s, a, two.b, op);
                s.a = next.a;
                s.b = next.b;
            } else if c < n {
                let last = Two {
                    a: r.last_a,
                    b: r.last_b,
                };
                m.out[(base + c) as usize] = terms::apply(
                    ieee,
                    two.a,
                    two.b,
                    last,
                    r.scale,
                    w,
                    bias,
                    op,
                    plan.weighted,
                    plan.biased,
                );
            }
        }
    }
    s
}

/// A pass over a unit's segments of the row.
#[cube]
fn stream_row(
    ieee: &Ieee,
    m: &mut Memory,
    size: &Size,
    r: &RowNumbers,
    a: &mut Array<f32>,
    b: &mut Array<f32>,
    #[comptime] pass: Pass,
    #[comptime] plan: Plan,
) {
    let count = comptime!(if plan.op.backward() { 8usize } else { 16usize });
    let group = UNIT_POS / comptime!(plan.width as u32);
    let lane = UNIT_POS % comptime!(plan.width as u32);
    let zero = prim::from_bits(0u32);
    #[unroll]
    for i in 0..plan.batch {
        let segment = comptime!((i * plan.groups()) as u32) + group;
        let from = segment * SEGMENT as u32 + lane;
        let mut s = Two { a: zero, b: zero };
        if comptime!(pass == Pass::Maximum) {
            s.a = prim::from_bits(0xff80_0000u32);
        }
        if r.row < size.rows {
            for k in 0..comptime!((SEGMENT / LANES / count) as u32) {
                let from = from + k * comptime!((count * plan.width) as u32);
                if from < size.columns {
                    let next = stream(ieee, m, size.columns, r, from, s, count, pass, plan);
                    s.a = next.a;
                    s.b = next.b;
                }
            }
        }
        if comptime!(pass != Pass::Results) {
            a[i] = s.a;
            b[i] = s.b;
        }
    }
}

#[cube]
fn streamed_rows(ieee: &Ieee, m: &mut Memory, size: &Size, #[comptime] plan: Plan) {
    let op = comptime!(plan.op);
    let zero = prim::from_bits(0u32);
    let mut shared = SharedMemory::<f32>::new(comptime!(plan.units * plan.batch));
    let mut other = SharedMemory::<f32>::new(comptime!(plan.units * plan.batch / 4));
    let mut a = Array::<f32>::new(plan.batch);
    let mut b = Array::<f32>::new(plan.batch);
    let mut r = RowNumbers {
        row: CUBE_POS as u32,
        first: zero,
        scale: zero,
        last_a: zero,
        last_b: zero,
    };
    if r.row < size.rows {
        if comptime!(op.first() == First::Given) {
            r.first = m.first[r.row as usize];
        }
        if comptime!(op.scaled()) {
            r.scale = m.scale[r.row as usize];
        }
    }
    if comptime!(op.first() == First::Maximum) {
        stream_row(ieee, m, size, &r, &mut a, &mut b, Pass::Maximum, plan);
        r.first = row_total(ieee, &mut shared, &mut other, &mut a, true, plan);
    } else if comptime!(op.first() == First::Mean) {
        stream_row(ieee, m, size, &r, &mut a, &mut b, Pass::Mean, plan);
        let sum = row_total(ieee, &mut shared, &mut other, &mut a, false, plan);
        r.first = terms::mean(ieee, sum, size.columns);
    }
    stream_row(ieee, m, size, &r, &mut a, &mut b, Pass::Sums, plan);
    let mut s = Two { a: zero, b: zero };
    s.a = row_total(ieee, &mut shared, &mut other, &mut a, false, plan);
    if comptime!(op.wide()) {
        s.b = row_total(ieee, &mut shared, &mut other, &mut b, false, plan);
    }
    let last = terms::finish(ieee, s, size.columns, size.eps, size.ddof, op);
    r.last_a = last.a;
    r.last_b = last.b;
    if comptime!(op.stored()) {
        if r.row < size.rows && UNIT_POS == 0u32 {
            m.out_scale[r.row as usize] = r.last_a;
            if comptime!(op.first() == First::Mean) {
                m.out_first[r.row as usize] = r.first;
            }
        }
    }
    if comptime!(op.maps()) {
        stream_row(ieee, m, size, &r, &mut a, &mut b, Pass::Results, plan);
    }
}

/// Everything that changes the code where a unit has a row of `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Short {
    op: Op,
    n: usize,
    weighted: bool,
    biased: bool,
    unroll: bool,
}

impl Short {
    fn new(profile: FloatProfile, op: Op, [weighted, biased]: [bool; 2], n: usize) -> Self {
        Self {
            op,
            n,
            weighted,
            biased,
            unroll: profile.direct(),
        }
    }

    /// Words of a load.
    const fn vector(&self) -> usize {
        if self.n % 4 == 0 { 4 } else { 1 }
    }

    /// Loads of a row.
    const fn loads(&self) -> usize {
        self.n / self.vector()
    }

    /// From one row in shared memory to the next, in loads: odd, so that units meet different banks.
    const fn stride(&self) -> usize {
        self.loads() | 1
    }

    const fn shared(&self, vector: usize) -> usize {
        if self.vector() == vector {
            SHORT_UNITS * self.stride()
        } else {
            1
        }
    }
}

/// The lanes' tree for one unit.
#[cube]
fn lanes_tree(
    ieee: &Ieee,
    v: &mut Array<f32>,
    #[comptime] lanes: usize,
    #[comptime] unroll: bool,
) -> f32 {
    #[unroll]
    for l in 0..comptime!(lanes.ilog2()) {
        let half = comptime!(lanes >> (l + 1));
        #[unroll(unroll)]
        for i in 0..half {
            v[i] = ieee.add(v[i], v[i + half]);
        }
    }
    v[0]
}

/// Place in shared memory of the `i`-th load of a unit that loads of a cube's rows, which lie side by
/// side.
#[cube]
fn row_place(i: u32, #[comptime] plan: Short) -> usize {
    let loads = comptime!(plan.loads() as u32);
    let at = i * SHORT_UNITS as u32 + UNIT_POS;
    let row = at / loads;
    (row * comptime!(plan.stride() as u32) + (at - row * loads)) as usize
}

#[cube]
fn load_rows(
    x: &Array<f32>,
    fours: &Array<Four>,
    shared: &mut SharedMemory<f32>,
    shared_fours: &mut SharedMemory<Four>,
    to: &mut Array<f32>,
    total: u32,
    #[comptime] plan: Short,
) {
    let loads = comptime!(plan.loads() as u32);
    let base = CUBE_POS as u32 * comptime!((SHORT_UNITS * plan.loads()) as u32);
    let own = UNIT_POS * comptime!(plan.stride() as u32);
    sync_cube();
    #[unroll(plan.unroll)]
    for i in 0..loads {
        let at = base + i * SHORT_UNITS as u32 + UNIT_POS;
        if comptime!(plan.vector() == 4) {
            let mut four = Four::new(prim::from_bits(0u32));
            if at < total {
                four = fours[at as usize];
            }
            shared_fours[row_place(i, plan)] = four;
        } else {
            let mut word = prim::from_bits(0u32);
            if at < total {
                word = x[at as usize];
            }
            shared[row_place(i, plan)] = word;
        }
    }
    sync_cube();
    #[unroll(plan.unroll)]
    for i in 0..loads {
        if comptime!(plan.vector() == 4) {
            let four = shared_fours[(own + i) as usize];
            #[unroll]
            for l in 0..4u32 {
                to[(4u32 * i + l) as usize] = four[l as usize];
            }
        } else {
            to[i as usize] = shared[(own + i) as usize];
        }
    }
}

#[cube]
fn short_rows(ieee: &Ieee, m: &mut Memory, size: &Size, #[comptime] plan: Short) {
    let op = comptime!(plan.op);
    let n = comptime!(plan.n);
    let lanes = comptime!(plan.n.next_power_of_two());
    let zero = prim::from_bits(0u32);
    let total = size.rows * comptime!(plan.loads() as u32);
    let row = CUBE_POS as u32 * SHORT_UNITS as u32 + UNIT_POS;
    let valid = row < size.rows;
    let mut shared = SharedMemory::<f32>::new(comptime!(plan.shared(1)));
    let mut fours = SharedMemory::<Four>::new(comptime!(plan.shared(4)));
    let mut h = Array::<f32>::new(n);
    let mut g = Array::<f32>::new(comptime!(if op.backward() { n } else { 1 }));
    load_rows(
        &m.x,
        &m.x_fours,
        &mut shared,
        &mut fours,
        &mut h,
        total,
        plan,
    );
    if comptime!(op.backward()) {
        load_rows(
            &m.y,
            &m.y_fours,
            &mut shared,
            &mut fours,
            &mut g,
            total,
            plan,
        );
    }

    let mut first = zero;
    let mut scale = zero;
    if valid {
        if comptime!(op.first() == First::Given) {
            first = m.first[row as usize];
        }
        if comptime!(op.scaled()) {
            scale = m.scale[row as usize];
        }
    }
    let mut a = Array::<f32>::new(lanes);
    let mut b = Array::<f32>::new(comptime!(if op.wide() { lanes } else { 1 }));
    if comptime!(op.first() == First::Maximum) {
        let mut maximum = h[0];
        #[unroll(plan.unroll)]
        for i in 1..n {
            maximum = join(ieee, maximum, h[i], true);
        }
        first = maximum;
    } else if comptime!(op.first() == First::Mean) {
        #[unroll(plan.unroll)]
        for i in 0..n {
            a[i] = ieee.add(zero, h[i]);
        }
        #[unroll(plan.unroll)]
        for i in n..lanes {
            a[i] = zero;
        }
        let sum = lanes_tree(ieee, &mut a, lanes, plan.unroll);
        first = terms::mean(ieee, sum, size.columns);
    }
    #[unroll(plan.unroll)]
    for i in n..lanes {
        a[i] = zero;
        if comptime!(op.wide()) {
            b[i] = zero;
        }
    }
    #[unroll(plan.unroll)]
    for i in 0..n {
        let mut y = zero;
        let mut w = zero;
        if comptime!(op.backward()) {
            y = g[i];
        }
        if comptime!(op.scaled() && plan.weighted) {
            w = m.weight[i];
        }
        let two = terms::lift(ieee, h[i], y, w, first, scale, op, plan.weighted);
        h[i] = two.a;
        if comptime!(op.backward()) {
            g[i] = two.b;
        }
        let s = terms::step(ieee, Two { a: zero, b: zero }, two.a, two.b, op);
        a[i] = s.a;
        if comptime!(op.wide()) {
            b[i] = s.b;
        }
    }
    let sum_a = lanes_tree(ieee, &mut a, lanes, plan.unroll);
    let mut sum_b = zero;
    if comptime!(op.wide()) {
        sum_b = lanes_tree(ieee, &mut b, lanes, plan.unroll);
    }
    let s = Two { a: sum_a, b: sum_b };
    // Compilers make a product of a division by a number that they know, and contract it.
    let last = terms::finish(ieee, s, size.columns, size.eps, size.ddof, op);
    if comptime!(op.stored()) {
        if valid {
            m.out_scale[row as usize] = last.a;
            if comptime!(op.first() == First::Mean) {
                m.out_first[row as usize] = first;
            }
        }
    }
    if comptime!(op.maps()) {
        store_rows(
            ieee,
            m,
            &mut shared,
            &mut fours,
            &h,
            &g,
            last,
            scale,
            total,
            plan,
        );
    }
}

#[cube]
fn store_rows(
    ieee: &Ieee,
    m: &mut Memory,
    shared: &mut SharedMemory<f32>,
    fours: &mut SharedMemory<Four>,
    h: &Array<f32>,
    g: &Array<f32>,
    last: Two,
    scale: f32,
    total: u32,
    #[comptime] plan: Short,
) {
    let op = comptime!(plan.op);
    let zero = prim::from_bits(0u32);
    let loads = comptime!(plan.loads() as u32);
    let vector = comptime!(plan.vector() as u32);
    let own = UNIT_POS * comptime!(plan.stride() as u32);
    sync_cube();
    #[unroll(plan.unroll)]
    for i in 0..loads {
        let mut four = Four::new(zero);
        let mut word = zero;
        #[unroll]
        for l in 0..vector {
            let j = (i * vector + l) as usize;
            let mut w = zero;
            let mut bias = zero;
            let mut y = zero;
            if comptime!(plan.weighted && !op.backward()) {
                w = m.weight[j];
            }
            if comptime!(plan.biased) {
                bias = m.bias[j];
            }
            if comptime!(op.backward()) {
                y = g[j];
            }
            word = terms::apply(
                ieee,
                h[j],
                y,
                last,
                scale,
                w,
                bias,
                op,
                plan.weighted,
                plan.biased,
            );
            if comptime!(plan.vector() == 4) {
                four[l as usize] = word;
            }
        }
        if comptime!(plan.vector() == 4) {
            fours[(own + i) as usize] = four;
        } else {
            shared[(own + i) as usize] = word;
        }
    }
    sync_cube();
    let base = CUBE_POS as u32 * comptime!((SHORT_UNITS * plan.loads()) as u32);
    #[unroll(plan.unroll)]
    for i in 0..loads {
        let at = base + i * SHORT_UNITS as u32 + UNIT_POS;
        if at < total {
            if comptime!(plan.vector() == 4) {
                m.out_fours[at as usize] = fours[row_place(i, plan)];
            } else {
                m.out[at as usize] = shared[row_place(i, plan)];
            }
        }
    }
}

/// What the arguments of a kernel are, beside `x` and `out`.
#[derive(Clone, Copy)]
struct Takes {
    y: bool,
    weight: bool,
    bias: bool,
    first: bool,
    scale: bool,
    sums: [bool; 2],
    out: bool,
    out_first: bool,
    out_scale: bool,
    /// Words of a load of matrices.
    vector: usize,
}

impl Takes {
    fn new(op: Op, stage: Stage, weighted: bool, biased: bool) -> Self {
        let whole = stage == Stage::Whole;
        let results = stage == Stage::Results;
        Self {
            y: op.backward(),
            weight: weighted && (op.backward() || stage != Stage::Sums),
            bias: biased && stage != Stage::Sums,
            first: op.first() == First::Given || (!whole && op.first() != First::None),
            scale: op.scaled(),
            sums: [results, results && op.wide()],
            out: op.maps() || stage == Stage::Sums,
            out_first: whole && op.first() == First::Mean,
            out_scale: if stage == Stage::Sums {
                op.wide()
            } else {
                op.stored()
            },
            vector: 1,
        }
    }

    fn short(plan: Short) -> Self {
        Self {
            vector: plan.vector(),
            ..Self::new(plan.op, Stage::Whole, plan.weighted, plan.biased)
        }
    }
}

/// A kernel whose arguments are declared in the order of [`launch`].
fn define(
    name: &'static str,
    profile: FloatProfile,
    variant: impl std::fmt::Debug,
    units: usize,
    takes: Takes,
    body: impl Fn(&mut Scope, crate::ieee::IeeeExpand, MemoryExpand, SizeExpand) + Send + Sync + 'static,
) -> Kernel {
    Kernel::new(
        name,
        profile,
        variant,
        CubeDim::new_1d(units as u32),
        move |d| {
            let ieee = d.ieee();
            // The words and the fours of a matrix, of which a kernel has one kind.
            fn matrix(
                d: &mut Definition,
                fours: bool,
                declare: fn(&mut Definition, bool) -> NativeExpand<Array<f32>>,
            ) -> (NativeExpand<Array<f32>>, NativeExpand<Array<Four>>) {
                let x = declare(d, fours);
                (x.clone(), x.expand.into())
            }
            fn input(d: &mut Definition, fours: bool) -> NativeExpand<Array<f32>> {
                match fours {
                    true => d.input::<Four>().expand.into(),
                    false => d.input::<f32>(),
                }
            }
            fn output(d: &mut Definition, fours: bool) -> NativeExpand<Array<f32>> {
                match fours {
                    true => d.output::<Four>().expand.into(),
                    false => d.output::<f32>(),
                }
            }
            let fours = takes.vector == 4;
            let out = takes.out.then(|| matrix(d, fours, output));
            let mut outputs =
                [takes.out_first, takes.out_scale].map(|taken| taken.then(|| d.output::<f32>()));
            let (x, x_fours) = matrix(d, fours, input);
            // What a kernel doesn't have is not used either.
            let (out, out_fours) = out.unwrap_or_else(|| (x.clone(), x_fours.clone()));
            let [out_first, out_scale] =
                std::array::from_fn(|i| outputs[i].take().unwrap_or_else(|| x.clone()));
            let (y, y_fours) = match takes.y {
                true => matrix(d, fours, input),
                false => (x.clone(), x_fours.clone()),
            };
            let [weight, bias, first, scale, sum_a, sum_b] = [
                takes.weight,
                takes.bias,
                takes.first,
                takes.scale,
                takes.sums[0],
                takes.sums[1],
            ]
            .map(|taken| if taken { d.input::<f32>() } else { x.clone() });
            let memory = MemoryExpand {
                x,
                y,
                x_fours,
                y_fours,
                out_fours,
                weight,
                bias,
                first,
                scale,
                sum_a,
                sum_b,
                out,
                out_first,
                out_scale,
            };
            let rows = d.scalar::<u32>();
            let columns = d.scalar::<u32>();
            let eps = d.scalar::<f32>();
            let ddof = d.scalar::<u32>();
            let size = SizeExpand {
                rows,
                columns,
                eps,
                ddof,
            };
            body(d.scope(), ieee, memory, size);
        },
    )
}

fn kernel(profile: FloatProfile, plan: Plan) -> Kernel {
    let takes = Takes::new(plan.op, plan.stage, plan.weighted, plan.biased);
    define(
        "rowwise",
        profile,
        plan,
        plan.units,
        takes,
        move |scope, ieee, memory, size| rows::expand(scope, ieee, memory, size, plan),
    )
    .resident(plan.resident())
}

fn streamed_kernel(profile: FloatProfile, plan: Plan) -> Kernel {
    let takes = Takes::new(plan.op, plan.stage, plan.weighted, plan.biased);
    define(
        "rowwise_streamed",
        profile,
        plan,
        plan.units,
        takes,
        move |scope, ieee, memory, size| {
            streamed_rows::expand(scope, ieee, memory, size, plan);
        },
    )
}

fn short_kernel(profile: FloatProfile, plan: Short) -> Kernel {
    let takes = Takes::short(plan);
    define(
        "rowwise_short",
        profile,
        plan,
        SHORT_UNITS,
        takes,
        move |scope, ieee, memory, size| short_rows::expand(scope, ieee, memory, size, plan),
    )
}

/// A plan for rows of `n` elements in registers.
fn kept(profile: FloatProfile, op: Op, [weighted, biased]: [bool; 2], n: usize) -> Plan {
    let steps = n.div_ceil(LANES).clamp(1, SEGMENT / LANES);
    let mut plan = Plan {
        op,
        stage: Stage::Whole,
        weighted,
        biased,
        units: UNITS,
        width: 128,
        parts: n.div_ceil(SEGMENT).next_power_of_two(),
        steps,
        batch: 1,
        exact: false,
        unroll: profile.direct(),
    };
    if n <= 1024 {
        plan.width = 32;
        plan.batch = match steps {
            // Long integer code stands once for each row.
            _ if !plan.unroll => 1,
            1 => 4,
            2 => 2,
            _ => 1,
        };
    } else if plan.parts == 1 {
        plan.steps = steps.next_multiple_of(4);
    }
    let units = if plan.width == 32 { FEW_UNITS } else { UNITS };
    plan.units = units.max(plan.width * plan.parts);
    plan.exact = n == plan.parts * plan.steps * LANES;
    plan
}

/// A plan for rows that cubes of `units` read pass by pass.
fn streamed(
    profile: FloatProfile,
    op: Op,
    [weighted, biased]: [bool; 2],
    n: usize,
    units: usize,
) -> Plan {
    let groups = units / LANES;
    Plan {
        op,
        stage: Stage::Whole,
        weighted,
        biased,
        units,
        width: LANES,
        parts: 1,
        steps: SEGMENT / LANES,
        batch: n.div_ceil(SEGMENT * groups).next_power_of_two(),
        exact: false,
        unroll: profile.direct(),
    }
}

/// Whether a device keeps rows of `n` elements in registers.
pub(super) fn keeps(device: &Device, n: usize) -> Result<bool> {
    let ways = ways(device, Op::Moments, [false; 2], n)?;
    Ok(matches!(ways[0], Way::Short | Way::Kept(_)))
}

/// The ways that a device can run rows of `n` elements, the best one first.
pub(super) fn ways(device: &Device, op: Op, given: [bool; 2], n: usize) -> Result<Vec<Way>> {
    let profile = device.profile()?;
    // What lavapipe and WebGPU have; CUDA and HIP have 1024.
    let most = match device.backend() {
        Backend::Cuda(_) | Backend::Hip(_) => 1024,
        _ => UNITS,
    };
    let mut ways = Vec::new();
    if n <= SHORT {
        ways.push(Way::Short);
    }
    let plan = kept(profile, op, given, n);
    if plan.units <= most {
        ways.push(Way::Kept(plan));
    }
    let plan = streamed(profile, op, given, n, most);
    if plan.batch <= 4 {
        ways.push(Way::Streamed(plan));
    }
    ways.push(Way::Long);
    Ok(ways)
}

/// Outputs of a launch.
pub(super) struct Outputs<'a> {
    pub(super) out: &'a mut Buffer<f32>,
    pub(super) first: Option<&'a mut Buffer<f32>>,
    pub(super) scale: Option<&'a mut Buffer<f32>>,
}

fn launch(
    job: &Job<'_>,
    takes: Takes,
    kernel: &Kernel,
    cubes: (u32, u32, u32),
    first: Option<&Buffer<f32>>,
    sums: [Option<&Buffer<f32>>; 2],
    to: [Option<&Buffer<f32>>; 3],
) -> Result<()> {
    let mut args: Vec<Arg<'_>> = Vec::new();
    let wide = takes.vector;
    let taken = [
        (takes.out, to[0], wide),
        (takes.out_first, to[1], 1),
        (takes.out_scale, to[2], 1),
        (true, Some(job.x), wide),
        (takes.y, job.y, wide),
        (takes.weight, job.weight, 1),
        (takes.bias, job.bias, 1),
        (takes.first, first, 1),
        (takes.scale, job.scale, 1),
        (takes.sums[0], sums[0], 1),
        (takes.sums[1], sums[1], 1),
    ];
    for (taken, buffer, width) in taken {
        if taken {
            let missing = || detml_core::Error::internal("a rowwise kernel lacks an operand");
            args.push(buffer.ok_or_else(missing)?.vectors(width));
        }
    }
    args.push(Arg::U32(job.rows as u32));
    args.push(Arg::U32(job.columns as u32));
    args.push(Arg::F32(job.eps));
    args.push(Arg::U32(job.ddof));
    job.x.device().launch(kernel, cubes, &args)
}

/// Rows that keep every multiprocessor busy with one.
const MANY: usize = 128;

pub(super) fn run(job: &Job<'_>, to: Outputs<'_>) -> Result<()> {
    let way = match ways(job.x.device(), job.op, job.given(), job.columns)?[0] {
        // Two matrices' rows don't stay in caches from pass to pass.
        Way::Streamed(plan) if job.rows < MANY || plan.units == UNITS || job.op.backward() => {
            Way::Long
        }
        way => way,
    };
    run_as(way, job, to)
}

pub(super) fn run_as(way: Way, job: &Job<'_>, to: Outputs<'_>) -> Result<()> {
    let device = job.x.device();
    let profile = device.profile()?;
    let op = job.op;
    let [weighted, biased] = job.given();
    match way {
        Way::Short => {
            let plan = Short::new(profile, op, [weighted, biased], job.columns);
            let takes = Takes::short(plan);
            let to = [Some(&*to.out), to.first.as_deref(), to.scale.as_deref()];
            let cubes = grid(job.rows, SHORT_UNITS)?;
            let kernel = short_kernel(profile, plan);
            launch(job, takes, &kernel, cubes, job.mean, [None; 2], to)
        }
        Way::Kept(plan) => {
            let takes = Takes::new(op, Stage::Whole, weighted, biased);
            let to = [Some(&*to.out), to.first.as_deref(), to.scale.as_deref()];
            let cubes = grid(job.rows, plan.groups() * plan.batch)?;
            let kernel = kernel(profile, plan);
            launch(job, takes, &kernel, cubes, job.mean, [None; 2], to)
        }
        Way::Streamed(plan) => {
            let takes = Takes::new(op, Stage::Whole, weighted, biased);
            let to = [Some(&*to.out), to.first.as_deref(), to.scale.as_deref()];
            let kernel = streamed_kernel(profile, plan);
            let cubes = grid(job.rows, 1)?;
            launch(job, takes, &kernel, cubes, job.mean, [None; 2], to)
        }
        Way::Long => long(profile, job, to),
    }
}

fn long(profile: FloatProfile, job: &Job<'_>, mut to: Outputs<'_>) -> Result<()> {
    let device = job.x.device();
    let op = job.op;
    let [weighted, biased] = job.given();
    let shape = [job.rows, job.columns];
    let first = match op.first() {
        First::Maximum => Some(reduce::max(job.x, Axis::EachRow, shape)?),
        First::Mean => Some(reduce::mean(job.x, Axis::EachRow, shape)?),
        First::Given | First::None => None,
    };
    let segments = job.columns.div_ceil(SEGMENT);
    let tasks = job.rows * segments;
    let plan = |stage| Plan {
        op,
        stage,
        weighted,
        biased,
        units: UNITS,
        width: 128,
        parts: 1,
        steps: SEGMENT / LANES,
        batch: 1,
        exact: job.columns % SEGMENT == 0,
        unroll: profile.direct(),
    };
    let given = first.as_ref().or(job.mean);
    let sums = plan(Stage::Sums);
    let cubes = grid(tasks, sums.groups())?;
    let mut a = device.empty::<f32>(tasks)?;
    let mut b = device.empty::<f32>(if op.wide() { tasks } else { 0 })?;
    let takes = Takes::new(op, Stage::Sums, weighted, biased);
    let parts = [Some(&a), None, Some(&b)];
    launch(
        job,
        takes,
        &kernel(profile, sums),
        cubes,
        given,
        [None; 2],
        parts,
    )?;
    if segments > 1 {
        a = reduce::sum(&a, Axis::EachRow, [job.rows, segments])?;
        if op.wide() {
            b = reduce::sum(&b, Axis::EachRow, [job.rows, segments])?;
        }
    }
    let takes = Takes::new(op, Stage::Results, weighted, biased);
    let out = [Some(&*to.out), None, to.scale.as_deref()];
    let sums = [Some(&a), Some(&b)];
    let results = kernel(profile, plan(Stage::Results));
    launch(job, takes, &results, cubes, given, sums, out)?;
    if let (Some(out), Some(first)) = (to.first.as_deref_mut(), first) {
        *out = first;
    }
    Ok(())
}

/// The gradients of weight and bias over each segment of rows; of the bias only where there is a
/// mean.
pub(super) fn parameters(
    job: &Job<'_>,
    weight: &mut Buffer<f32>,
    bias: Option<&mut Buffer<f32>>,
) -> Result<()> {
    fn any(x: Option<&Buffer<f32>>) -> Option<&dyn AnyBuffer> {
        x.map(|x| x as &dyn AnyBuffer)
    }
    let biased = job.mean.is_some();
    let shape = [job.rows, job.columns];
    let profile = job.x.device().profile()?;
    let plan = columns::Plan::new(columns::Fold::Parameters { biased }, shape, profile);
    let inputs = columns::Inputs {
        x: job.x,
        y: any(job.y),
        scale: any(job.scale),
        mean: any(job.mean),
        shift: None,
        ddof: 0,
    };
    let out = [Some(&*weight), bias.as_deref()];
    columns::launch(
        plan,
        shape,
        &inputs,
        out.into_iter().flatten().map(Arg::from),
    )
}

/// Each operation kept in registers, and one of each shape of loop.
pub(super) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let given = |op: Op| {
        let biased = op == Op::LayerNorm;
        [op.weighted(), biased]
    };
    let mut all = Vec::new();
    for op in Op::ALL {
        let [weighted, biased] = given(op);
        all.push(kernel(profile, kept(profile, op, [weighted, biased], 200)));
        for n in [7, 12] {
            all.push(short_kernel(
                profile,
                Short::new(profile, op, [weighted, biased], n),
            ));
        }
    }
    for op in [Op::Softmax, Op::LayerNorm, Op::LayerNormBackward] {
        for n in [100, 4096, 8192] {
            all.push(kernel(profile, kept(profile, op, [false; 2], n)));
        }
        all.push(streamed_kernel(
            profile,
            streamed(profile, op, [false; 2], 20_000, UNITS),
        ));
        for stage in [Stage::Sums, Stage::Results] {
            let plan = Plan {
                stage,
                exact: false,
                ..kept(profile, op, [false; 2], SEGMENT)
            };
            all.push(kernel(profile, plan));
        }
    }
    all
}
