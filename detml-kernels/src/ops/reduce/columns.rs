//! Folds along the columns of a matrix, four words to a load.
//!
//! A cube folds a segment of [`SEGMENT`] rows of a tile of columns. The places of 128 lanes by as
//! many columns are numbered lane after lane; a unit has the places `vector * unit + 0..vector`
//! and those that follow at steps of `vector * units`. A narrow matrix is one tile, whose places
//! lie side by side in memory: no unit is idle then, and loads have four words whatever the number
//! of columns. The first halvings of the tree are a unit's own, the others pass through shared
//! memory. All of this is free (`N8`): the order is that of the lanes.

use super::fold::{self, ArgMax, Kind, Max, State, Sum, Traits, Variance};
use super::{LANES, SEGMENT};
use crate::device::{Arg, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::{AnyBuffer, grid};
use crate::prim;
use cubecl::prelude::*;
use detml_core::Result;

type Words = Vector<u32, Const<4>>;

/// The widest tile; the second where a fused multiply-add is long integer code.
const TILES: [usize; 2] = [32, 8];
/// The most units of a cube, and words that one loads of a matrix before it folds any.
const UNITS: usize = 256;
const AHEAD: usize = 16;

/// What is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fold {
    One(Kind),
    /// The gradients of a norm's weight, the sum of `fma(y, h, _)`, and, where rows have means, of
    /// its bias, the sum of `y`.
    Parameters {
        biased: bool,
    },
}

/// Everything that changes the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    fold: Fold,
    /// Columns of a tile.
    tile: usize,
    /// Not every tile has all of its columns.
    ragged: bool,
    /// Words of one load.
    vector: usize,
    units: usize,
    /// Vectors of one unit in 128 rows.
    groups: usize,
    /// The results are finished: there is one segment.
    finished: bool,
}

impl Plan {
    /// A plan for a matrix of more than 64 rows.
    pub(crate) fn new(fold: Fold, [rows, columns]: [usize; 2], profile: FloatProfile) -> Self {
        let native = profile.direct();
        let most = TILES[usize::from(!native)];
        let tile = if columns <= most {
            columns
        } else {
            columns.div_ceil(columns.div_ceil(most)).next_multiple_of(8)
        };
        let vector = if tile == columns || columns % 4 == 0 {
            4
        } else {
            1
        };
        Self::with(fold, [rows, columns], tile, vector, UNITS)
    }

    fn with(
        fold: Fold,
        [rows, columns]: [usize; 2],
        tile: usize,
        vector: usize,
        units: usize,
    ) -> Self {
        let vectors = LANES * tile / vector;
        let groups = vectors.div_ceil(units).next_power_of_two();
        Self {
            fold,
            tile,
            ragged: columns % tile != 0,
            vector,
            units: vectors / groups,
            groups,
            finished: rows <= SEGMENT,
        }
    }

    /// Plans for the shape with tiles, loads and units of every kind.
    #[cfg(test)]
    pub(super) fn candidates(fold: Fold, shape: [usize; 2]) -> Vec<Self> {
        let [_, columns] = shape;
        let mut plans = vec![
            Self::with(fold, shape, 8, 1, UNITS),
            Self::with(fold, shape, 8, 1, 64),
        ];
        if columns <= TILES[0] {
            plans.push(Self::with(fold, shape, columns, 4, UNITS));
            plans.push(Self::with(fold, shape, columns, 1, UNITS));
        }
        if columns % 4 == 0 {
            plans.push(Self::with(fold, shape, 8, 4, UNITS));
            plans.push(Self::with(fold, shape, 16, 4, 64));
        }
        plans
    }

    const fn outputs(&self) -> usize {
        if self.wide() && (self.parameters() || !self.finished) {
            2
        } else {
            1
        }
    }

    /// Whether matrices are read by single words.
    const fn words(&self) -> bool {
        self.vector == 1 || self.split()
    }

    /// Whether words of one vector are of different rows.
    const fn split(&self) -> bool {
        self.tile % self.vector != 0
    }

    /// Words of a unit in 128 rows.
    const fn held(&self) -> usize {
        self.groups * self.vector
    }

    /// Rows of which a unit's words have a number each: every one's, or every vector's.
    const fn spots(&self) -> usize {
        if self.split() {
            self.held()
        } else {
            self.groups
        }
    }

    /// The spot of a word.
    const fn spot(&self, i: usize) -> usize {
        if self.split() { i } else { i / self.vector }
    }

    const fn parameters(&self) -> bool {
        matches!(self.fold, Fold::Parameters { .. })
    }

    /// Rows have means.
    const fn biased(&self) -> bool {
        matches!(self.fold, Fold::Parameters { biased: true })
    }

    /// Both words of the state count.
    const fn wide(&self) -> bool {
        match self.fold {
            Fold::One(kind) => kind.wide,
            Fold::Parameters { biased } => biased,
        }
    }

    /// What is folded where it is not the gradients of parameters.
    const fn kind(&self) -> Kind {
        match self.fold {
            Fold::One(kind) => kind,
            Fold::Parameters { .. } => Sum::KIND,
        }
    }

    const fn shifted(&self) -> bool {
        matches!(self.fold, Fold::One(kind) if kind.shifted)
    }

    /// Cubes at a time on a multiprocessor, where what a unit holds leaves room for no more: told of
    /// it, NVIDIA's compiler keeps more loads under way.
    const fn resident(&self) -> u32 {
        if self.shifted() || self.parameters() {
            2
        } else {
            0
        }
    }

    /// The place of a second word: narrow folds keep one that is 0.
    const fn second(&self, i: usize) -> usize {
        if self.wide() { i } else { 0 }
    }
}

/// Fields that a plan doesn't use stand for others.
#[derive(CubeType)]
struct Memory {
    vectors: Array<Words>,
    x: Array<u32>,
    y_vectors: Array<Words>,
    y: Array<u32>,
    /// Each row's.
    mean: Array<u32>,
    scale: Array<u32>,
    /// Each column's.
    shift: Array<u32>,
    out: Array<u32>,
    out_b: Array<u32>,
}

#[derive(CubeType, Clone, Copy)]
struct Size {
    rows: u32,
    columns: u32,
    ddof: u32,
}

/// A unit's places.
#[derive(CubeType)]
struct Places {
    /// Index of the first element of the tile's first row.
    base: u32,
    /// The lane of each spot; none where the column doesn't exist.
    lane: Array<u32>,
    /// From the tile's first element to each vector's.
    offset: Array<u32>,
    /// Each word's.
    shift: Array<u32>,
}

/// The words of a step.
#[derive(CubeType)]
struct Loaded {
    x: Array<u32>,
    y: Array<u32>,
    mean: Array<u32>,
    scale: Array<u32>,
}

#[cube]
fn join(ieee: &Ieee, s: State, t: State, #[comptime] plan: Plan) -> State {
    if comptime!(plan.parameters()) {
        State {
            a: prim::bits(ieee.add(prim::from_bits(s.a), prim::from_bits(t.a))),
            b: prim::bits(ieee.add(prim::from_bits(s.b), prim::from_bits(t.b))),
        }
    } else {
        fold::join(ieee, s, t, comptime!(plan.kind()))
    }
}

/// The state after the word `word` of `loaded`, of the row `row`.
#[cube]
fn step(
    ieee: &Ieee,
    s: State,
    loaded: &Loaded,
    row: u32,
    shift: u32,
    #[comptime] word: usize,
    #[comptime] spot: usize,
    #[comptime] plan: Plan,
) -> State {
    if comptime!(plan.parameters()) {
        let y = prim::from_bits(loaded.y[word]);
        let mut d = prim::from_bits(loaded.x[word]);
        let mut b = s.b;
        if comptime!(plan.biased()) {
            d = ieee.sub(d, prim::from_bits(loaded.mean[spot]));
            b = prim::bits(ieee.add(prim::from_bits(b), y));
        }
        let h = ieee.mul(d, prim::from_bits(loaded.scale[spot]));
        State {
            a: prim::bits(ieee.fma(y, h, prim::from_bits(s.a))),
            b,
        }
    } else {
        fold::step(ieee, s, loaded.x[word], row, shift, comptime!(plan.kind()))
    }
}

/// What is stored of a segment's state.
#[cube]
fn finish(ieee: &Ieee, s: State, size: &Size, #[comptime] plan: Plan) -> State {
    if comptime!(plan.parameters()) {
        // Lanes of products may hold -0.
        let zero = prim::from_bits(0u32);
        State {
            a: prim::bits(ieee.canonical(ieee.add(prim::from_bits(s.a), zero))),
            b: prim::bits(ieee.canonical(ieee.add(prim::from_bits(s.b), zero))),
        }
    } else if comptime!(plan.finished) {
        State {
            a: fold::finish(ieee, s, size.rows, size.ddof, comptime!(plan.kind())),
            b: s.b,
        }
    } else {
        s
    }
}

#[cube]
fn shared_state(
    shared_a: &SharedMemory<u32>,
    shared_b: &SharedMemory<u32>,
    i: u32,
    #[comptime] plan: Plan,
) -> State {
    let mut b = 0u32;
    if comptime!(plan.wide()) {
        b = shared_b[i as usize];
    }
    State {
        a: shared_a[i as usize],
        b,
    }
}

/// 128 rows of the segment, `row` the first of them and `left` those there are: loaded as step `k`
/// of `loaded`, or folded from there.
#[cube]
fn elements(
    ieee: &Ieee,
    m: &Memory,
    at: &Places,
    size: &Size,
    row: u32,
    left: u32,
    loaded: &mut Loaded,
    a: &mut Array<u32>,
    b: &mut Array<u32>,
    #[comptime] k: usize,
    #[comptime] loads: bool,
    #[comptime] guarded: bool,
    #[comptime] plan: Plan,
) {
    let held = comptime!(plan.held());
    // Vectors of more than one row may end beyond the last one.
    let width = comptime!(if guarded && plan.split() {
        1
    } else {
        plan.vector
    });
    let base = at.base + row * size.columns;
    #[unroll]
    for i in 0..comptime!(held / width) {
        let word = comptime!(i * width);
        let spot = comptime!(plan.spot(word));
        let mut inside = true;
        if comptime!(guarded) {
            inside = at.lane[spot] < left;
        } else if comptime!(plan.ragged) {
            inside = at.lane[spot] < LANES as u32;
        }
        if inside {
            if comptime!(loads) {
                let index = base + at.offset[comptime!(word / plan.vector)];
                if comptime!(width == 4) {
                    let vector = m.vectors[(index / 4u32) as usize];
                    #[unroll]
                    for l in 0..4usize {
                        loaded.x[comptime!(k * held + word + l)] = vector[l];
                    }
                    if comptime!(plan.parameters()) {
                        let vector = m.y_vectors[(index / 4u32) as usize];
                        #[unroll]
                        for l in 0..4usize {
                            loaded.y[comptime!(k * held + word + l)] = vector[l];
                        }
                    }
                } else {
                    let index = (index + comptime!((word % plan.vector) as u32)) as usize;
                    loaded.x[comptime!(k * held + word)] = m.x[index];
                    if comptime!(plan.parameters()) {
                        loaded.y[comptime!(k * held + word)] = m.y[index];
                    }
                }
                if comptime!(plan.parameters()) {
                    #[unroll]
                    for l in 0..comptime!(if plan.split() { width } else { 1 }) {
                        let spot = comptime!(plan.spot(word + l));
                        let to = comptime!(k * plan.spots() + spot);
                        let row = (row + at.lane[spot]) as usize;
                        loaded.scale[to] = m.scale[row];
                        if comptime!(plan.biased()) {
                            loaded.mean[to] = m.mean[row];
                        }
                    }
                }
            } else {
                #[unroll]
                for l in 0..width {
                    let j = comptime!(word + l);
                    let spot = comptime!(plan.spot(j));
                    let s = State {
                        a: a[j],
                        b: b[comptime!(plan.second(j))],
                    };
                    let s = step(
                        ieee,
                        s,
                        loaded,
                        row + at.lane[spot],
                        at.shift[comptime!(if plan.shifted() { j } else { 0 })],
                        comptime!(k * held + j),
                        comptime!(k * plan.spots() + spot),
                        plan,
                    );
                    a[j] = s.a;
                    if comptime!(plan.wide()) {
                        b[j] = s.b;
                    }
                }
            }
        }
    }
}

/// `steps` times 128 rows. All loads come before any fold, so that they wait for memory together.
#[cube]
fn chunk(
    ieee: &Ieee,
    m: &Memory,
    at: &Places,
    size: &Size,
    row: u32,
    left: u32,
    a: &mut Array<u32>,
    b: &mut Array<u32>,
    #[comptime] steps: usize,
    #[comptime] guarded: bool,
    #[comptime] plan: Plan,
) {
    let words = comptime!(steps * plan.held());
    let spots = comptime!(steps * plan.spots());
    let mut loaded = Loaded {
        x: Array::<u32>::new(words),
        y: Array::<u32>::new(comptime!(if plan.parameters() { words } else { 1 })),
        mean: Array::<u32>::new(comptime!(if plan.biased() { spots } else { 1 })),
        scale: Array::<u32>::new(comptime!(if plan.parameters() { spots } else { 1 })),
    };
    #[unroll]
    for loads in 0..2usize {
        #[unroll]
        for k in 0..steps {
            elements(
                ieee,
                m,
                at,
                size,
                row + comptime!((k * LANES) as u32),
                left,
                &mut loaded,
                a,
                b,
                k,
                comptime!(loads == 0),
                guarded,
                plan,
            );
        }
    }
}

#[cube]
fn places(m: &Memory, size: &Size, c0: u32, valid: bool, #[comptime] plan: Plan) -> Places {
    let tile = comptime!(plan.tile as u32);
    let mut lane = Array::<u32>::new(comptime!(plan.spots()));
    let mut offset = Array::<u32>::new(plan.groups);
    let mut shift = Array::<u32>::new(comptime!(if plan.shifted() { plan.held() } else { 1 }));
    shift[0] = 0u32;
    #[unroll]
    for i in 0..comptime!(plan.held()) {
        let vector = UNIT_POS + comptime!((i / plan.vector * plan.units) as u32);
        let place = vector * comptime!(plan.vector as u32) + comptime!((i % plan.vector) as u32);
        let l = place / tile;
        let c = place - l * tile;
        let inside = valid && c0 + c < size.columns;
        if comptime!(i % plan.vector == 0) {
            offset[comptime!(i / plan.vector)] = l * size.columns + c;
        }
        if comptime!(plan.split() || i % plan.vector == 0) {
            lane[comptime!(plan.spot(i))] = prim::select_u32(inside, l, u32::MAX);
        }
        if comptime!(plan.shifted()) {
            shift[i] = 0u32;
            if inside {
                shift[i] = m.shift[(c0 + c) as usize];
            }
        }
    }
    Places {
        base: c0,
        lane,
        offset,
        shift,
    }
}

#[cube]
fn columns(ieee: &Ieee, m: &mut Memory, size: &Size, #[comptime] plan: Plan) {
    let tile = comptime!(plan.tile as u32);
    let held = comptime!(plan.held());
    let tiles = (size.columns + (tile - 1u32)) / tile;
    let task = CUBE_POS as u32;
    let segment = task / tiles;
    let c0 = (task - segment * tiles) * tile;
    let begin = segment * SEGMENT as u32;
    let valid = begin < size.rows;
    let len = prim::wrapping_sub(size.rows, begin);
    let len = prim::select_u32(len < SEGMENT as u32, len, SEGMENT as u32);
    let len = prim::select_u32(valid, len, 0u32);
    let at = places(m, size, c0, valid, plan);

    // All zeros where it is not a fold's.
    let none = fold::start(comptime!(plan.kind()));
    let mut a = Array::<u32>::new(held);
    let mut b = Array::<u32>::new(comptime!(if plan.wide() { held } else { 1 }));
    b[0] = 0u32;
    #[unroll]
    for i in 0..held {
        a[i] = none.a;
        if comptime!(plan.wide()) {
            b[i] = none.b;
        }
    }
    let steps = comptime!((AHEAD / held).max(1));
    let stretch = comptime!((steps * LANES) as u32);
    let whole = len / stretch;
    for k in 0..whole {
        let row = begin + k * stretch;
        chunk(
            ieee, m, &at, size, row, stretch, &mut a, &mut b, steps, false, plan,
        );
    }
    let done = whole * stretch;
    for k in 0..(len - done + comptime!(LANES as u32 - 1u32)) / LANES as u32 {
        let past = done + k * LANES as u32;
        let left = len - past;
        chunk(
            ieee,
            m,
            &at,
            size,
            begin + past,
            left,
            &mut a,
            &mut b,
            1usize,
            true,
            plan,
        );
    }

    // The halvings within a unit.
    #[unroll]
    for h in 0..comptime!(plan.groups.ilog2()) {
        let half = comptime!((plan.groups >> (h + 1)) * plan.vector);
        #[unroll]
        for i in 0..half {
            let other = comptime!(i + half);
            let s = State {
                a: a[i],
                b: b[comptime!(plan.second(i))],
            };
            let t = State {
                a: a[other],
                b: b[comptime!(plan.second(other))],
            };
            let s = join(ieee, s, t, plan);
            a[i] = s.a;
            if comptime!(plan.wide()) {
                b[i] = s.b;
            }
        }
    }
    let mut shared_a = SharedMemory::<u32>::new(comptime!(plan.units * plan.vector));
    let mut shared_b = SharedMemory::<u32>::new(comptime!(if plan.wide() {
        plan.units * plan.vector
    } else {
        1
    }));
    #[unroll]
    for i in 0..plan.vector {
        let to = (UNIT_POS * comptime!(plan.vector as u32) + i as u32) as usize;
        shared_a[to] = a[i];
        if comptime!(plan.wide()) {
            shared_b[to] = b[i];
        }
    }
    let lanes = comptime!(LANES / plan.groups);
    #[unroll]
    for h in 0..comptime!(lanes.ilog2()) {
        let half = comptime!(((lanes >> (h + 1)) * plan.tile) as u32);
        sync_cube();
        #[unroll]
        for turn in 0..comptime!(half.div_ceil(plan.units as u32)) {
            let i = turn * comptime!(plan.units as u32) + UNIT_POS;
            if i < half {
                let s = shared_state(&shared_a, &shared_b, i, plan);
                let t = shared_state(&shared_a, &shared_b, i + half, plan);
                let s = join(ieee, s, t, plan);
                shared_a[i as usize] = s.a;
                if comptime!(plan.wide()) {
                    shared_b[i as usize] = s.b;
                }
            }
        }
    }
    // A unit's own are the first.
    if valid && UNIT_POS < tile && c0 + UNIT_POS < size.columns {
        let s = shared_state(&shared_a, &shared_b, UNIT_POS, plan);
        let s = finish(ieee, s, size, plan);
        let to = (segment * size.columns + c0 + UNIT_POS) as usize;
        m.out[to] = s.a;
        if comptime!(plan.outputs() == 2) {
            m.out_b[to] = s.b;
        }
    }
}

pub(crate) fn kernel(profile: FloatProfile, plan: Plan) -> Kernel {
    let units = CubeDim::new_1d(plan.units as u32);
    Kernel::new("reduce_columns", profile, plan, units, move |d| {
        let ieee = d.ieee();
        let out = d.output::<u32>();
        let out_b = if plan.outputs() == 2 {
            d.output::<u32>()
        } else {
            out.clone()
        };
        // A matrix as vectors and as words, where the plan needs them.
        let mut matrix = |taken: bool| {
            let vectors = (taken && plan.vector == 4).then(|| d.input::<Words>());
            let words = (taken && plan.words()).then(|| d.input::<u32>());
            let words = words.unwrap_or_else(|| out.clone());
            let vectors = vectors.unwrap_or_else(|| words.expand.clone().into());
            (vectors, words)
        };
        let (vectors, x) = matrix(true);
        let (y_vectors, y) = matrix(plan.parameters());
        let [scale, mean, shift] = [plan.parameters(), plan.biased(), plan.shifted()]
            .map(|taken| if taken { d.input::<u32>() } else { out.clone() });
        let memory = MemoryExpand {
            vectors,
            x,
            y_vectors,
            y,
            mean,
            scale,
            shift,
            out,
            out_b,
        };
        let [rows, columns, ddof] = [(); 3].map(|()| d.scalar::<u32>());
        let size = SizeExpand {
            rows,
            columns,
            ddof,
        };
        self::columns::expand(d.scope(), ieee, memory, size, plan);
    })
    .resident(plan.resident())
}

/// What a launch reads; fields that a plan doesn't use are not looked at.
pub(crate) struct Inputs<'a> {
    pub(crate) x: &'a dyn AnyBuffer,
    pub(crate) y: Option<&'a dyn AnyBuffer>,
    pub(crate) scale: Option<&'a dyn AnyBuffer>,
    pub(crate) mean: Option<&'a dyn AnyBuffer>,
    pub(crate) shift: Option<&'a dyn AnyBuffer>,
    pub(crate) ddof: u32,
}

/// Folds each segment of rows of a matrix of `shape` into `out`, a row for each.
pub(crate) fn launch<'a>(
    plan: Plan,
    shape: [usize; 2],
    inputs: &Inputs<'a>,
    out: impl IntoIterator<Item = Arg<'a>>,
) -> Result<()> {
    let device = inputs.x.on();
    let mut args: Vec<Arg<'_>> = out.into_iter().take(plan.outputs()).collect();
    for matrix in [Some(inputs.x), inputs.y].into_iter().flatten() {
        if plan.vector == 4 {
            args.push(matrix.arg(4));
        }
        if plan.words() {
            args.push(matrix.arg(1));
        }
    }
    let rest = [inputs.scale, inputs.mean, inputs.shift];
    args.extend(rest.into_iter().flatten().map(|x| x.arg(1)));
    args.extend(shape.map(|n| Arg::U32(n as u32)));
    args.push(Arg::U32(inputs.ddof));
    let [rows, columns] = shape;
    let tasks = rows.div_ceil(SEGMENT) * columns.div_ceil(plan.tile);
    device.launch(&kernel(device.profile()?, plan), grid(tasks, 1)?, &args)
}

/// Tiles of every kind, and folds of each number of words.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let folds = [
        Fold::One(Sum::KIND),
        Fold::One(Variance::KIND),
        Fold::Parameters { biased: false },
        Fold::Parameters { biased: true },
    ];
    [[10_000, 28], [10_000, 7], [200, 70], [200, 64]]
        .into_iter()
        .flat_map(|shape| folds.map(|fold| kernel(profile, Plan::new(fold, shape, profile))))
        .chain(
            [Max::KIND, ArgMax::KIND]
                .map(|kind| kernel(profile, Plan::new(Fold::One(kind), [10_000, 64], profile))),
        )
        .collect()
}
