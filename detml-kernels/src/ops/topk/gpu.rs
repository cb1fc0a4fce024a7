//! Short rows are sorted by a network over pairs of rank and index, no two of which are equal.
//!
//! Long rows are cut into groups of neighbours, each led by its first key. Those of a row's first
//! `k` keys lie in the `k` groups with the first leaders, equal leaders by their places: a key in
//! another group comes after `k` leaders. So a row is read once, the rest is done on leaders and
//! on the keys of `k` groups, which are cut into smaller groups in turn until they are few. The
//! first `k` of few ranks are found by counting digits, the highest first, and left in the order
//! of their places. How groups are cut can't show, for the first `k` pairs are the same.

use super::TopK;
use crate::device::{Arg, Buffer, Device, Kernel, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::grid;
use crate::ops::order::{rank, stored};
use crate::ops::sort::{self, Key, Order};
use crate::ops::tile::{Wide, cube_scan, wide_input};
use crate::prim;
use cubecl::prelude::*;
use detml_core::Result;

/// Keys of the largest tile.
const LARGEST: u32 = 2048;
const SMALLEST: u32 = 64;
/// A tile must at least halve the row; above, the row is sorted.
const MAX_K: usize = LARGEST as usize / 2;

const UNITS: u32 = 256;
/// Vectors of a group that a unit reads at most.
const READS: u32 = 8;
/// Keys of the largest group: a cube's reads.
const GROUP: usize = (4 * UNITS * READS) as usize;
/// Ranks that a unit holds at a time.
const HELD: u32 = 8;
/// Values of the largest digit.
const DIGITS: u32 = 2048;
/// Ranks among which a cube finds the first `k` of the only row, or of one of many, at least.
const FEW: [usize; 2] = [1 << 14, 1 << 12];
/// As [`FEW`], at most.
const MANY: usize = 1 << 16;
/// Rows that keep a device busy, a cube each.
const BUSY: usize = 64;

/// What changes the code of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Step {
    float: bool,
    /// Keys of a tile, a power of two.
    size: u32,
    /// Keys come from the matrix, else pairs from the step before.
    first: bool,
    /// Keys go out, else pairs for the next step.
    last: bool,
}

impl Step {
    const fn units(self) -> u32 {
        if self.size / 2 < 256 {
            self.size / 2
        } else {
            256
        }
    }
}

/// `x` is the matrix; `len` keys or pairs are in each row, `tiles` tiles take them up.
#[cube]
fn select_tile(
    ieee: Ieee,
    x: &Array<u32>,
    ranks: &Array<u32>,
    indices: &Array<u32>,
    out: &mut Array<u32>,
    out_indices: &mut Array<u32>,
    cubes: u32,
    cols: u32,
    len: u32,
    tiles: u32,
    k: u32,
    flip: u32,
    #[comptime] step: Step,
) {
    let mut rank_of = SharedMemory::<u32>::new(comptime!(step.size as usize));
    let mut index_of = SharedMemory::<u32>::new(comptime!(step.size as usize));
    let units = comptime!(step.units());
    let row = CUBE_POS as u32 / tiles;
    let start = CUBE_POS as u32 % tiles * comptime!(step.size);
    let real = (CUBE_POS as u32) < cubes;

    for j in 0..comptime!(step.size / step.units()) {
        let p = UNIT_POS + j * units;
        let i = start + p;
        // Behind every key: a NaN has this rank, but a lower index.
        let mut key = 0xffff_ffffu32;
        let mut index = 0xffff_ffffu32;
        if real && i < len {
            let at = (row * len + i) as usize;
            if comptime!(step.first) {
                key = rank(ieee, x[at], flip, comptime!(step.float));
                index = i;
            } else {
                key = ranks[at];
                index = indices[at];
            }
        }
        rank_of[p as usize] = key;
        index_of[p as usize] = index;
    }
    sync_cube();

    // Batcher's bitonic sort.
    for level in 0..comptime!(step.size.ilog2()) {
        for back in 0..level + 1u32 {
            let stride = 1u32 << (level - back);
            for j in 0..comptime!(step.size / 2 / step.units()) {
                let pair = UNIT_POS + j * units;
                let low = 2u32 * pair - (pair & (stride - 1u32));
                let up = (low >> (level + 1u32)) & 1u32;
                let (a, b) = (low as usize, (low + stride) as usize);
                let (key_a, key_b) = (rank_of[a], rank_of[b]);
                let (index_a, index_b) = (index_of[a], index_of[b]);
                let mut later = 0u32;
                if key_a > key_b {
                    later = 1u32;
                }
                if key_a == key_b && index_a > index_b {
                    later = 1u32;
                }
                if later != up {
                    rank_of[a] = key_b;
                    rank_of[b] = key_a;
                    index_of[a] = index_b;
                    index_of[b] = index_a;
                }
            }
            sync_cube();
        }
    }

    for j in 0..comptime!(step.size / step.units()) {
        let p = UNIT_POS + j * units;
        if real && p < k {
            let to = (CUBE_POS as u32 * k + p) as usize;
            let index = index_of[p as usize];
            out_indices[to] = index;
            if comptime!(step.last) {
                let key = x[(row * cols + index) as usize];
                out[to] = stored(ieee, key, comptime!(step.float));
            } else {
                out[to] = rank_of[p as usize];
            }
        }
    }
}

/// The first `k` of each row's sorted indices, and the keys there.
#[cube]
fn take(
    ieee: Ieee,
    x: &Array<u32>,
    sorted: &Array<u32>,
    out: &mut Array<u32>,
    out_indices: &mut Array<u32>,
    cols: u32,
    k: u32,
    #[comptime] float: bool,
) {
    let to = ABSOLUTE_POS;
    if to < out.len() {
        let row = to as u32 / k * cols;
        let index = sorted[(row + to as u32 % k) as usize];
        out_indices[to] = index;
        out[to] = stored(ieee, x[(row + index) as usize], float);
    }
}

/// What changes the code that finds leaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lead {
    float: bool,
    /// Only the groups of a list, larger ones, are looked at.
    listed: bool,
    vectors: bool,
    /// Vectors of four keys in a group, a power of two.
    per: u32,
}

impl Lead {
    /// Vectors that a unit reads.
    const fn reads(self) -> u32 {
        if self.per < READS { self.per } else { READS }
    }

    /// Units of a group.
    const fn lanes(self) -> u32 {
        self.per / self.reads()
    }
}

/// Element of its row of `list`'s base that place `p` of the listed groups is, groups having
/// `2^log` elements; `p` itself if there is no list.
#[cube]
fn base_of(list: &Array<u32>, first: u32, p: u32, log: u32, #[comptime] listed: bool) -> u32 {
    if comptime!(listed) {
        let group = list[(first + (p >> log)) as usize];
        (group << log) + (p & ((1u32 << log) - 1u32))
    } else {
        p
    }
}

#[cube]
fn lower(a: u32, b: u32) -> u32 {
    prim::select_u32(a < b, a, b)
}

/// The first rank of vector `v` of a row of `cols` keys; what is beyond the row comes last.
#[cube]
fn first_rank(
    ieee: Ieee,
    x: &Wide,
    row: u32,
    cols: u32,
    v: u32,
    flip: u32,
    #[comptime] lead: Lead,
) -> u32 {
    let mut best = 0xffff_ffffu32;
    if comptime!(lead.vectors) {
        // Read without a branch, so that a unit's reads don't wait for one another.
        let inside = v < cols / 4u32;
        let at = prim::select_u32(inside, v, 0u32);
        let keys = x.fours[(row * (cols / 4u32) + at) as usize];
        #[unroll]
        for l in 0..4usize {
            best = lower(best, rank(ieee, keys[l], flip, comptime!(lead.float)));
        }
        best = prim::select_u32(inside, best, 0xffff_ffffu32);
    } else {
        #[unroll]
        for l in 0..4u32 {
            let i = 4u32 * v + l;
            if i < cols {
                let key = x.words[(row * cols + i) as usize];
                best = lower(best, rank(ieee, key, flip, comptime!(lead.float)));
            }
        }
    }
    best
}

/// The ranks of the leaders of the `groups` groups of each row. `2^log` vectors are in a listed
/// group, `slots` of them in a row of the list.
#[cube]
fn find_leaders(
    ieee: Ieee,
    x: &Wide,
    list: &Array<u32>,
    out: &mut Array<u32>,
    cubes: u32,
    cols: u32,
    slots: u32,
    log: u32,
    groups: u32,
    tiles: u32,
    flip: u32,
    #[comptime] lead: Lead,
) {
    let mut near = SharedMemory::<u32>::new(comptime!(UNITS as usize));
    let lanes = comptime!(lead.lanes());
    let row = CUBE_POS as u32 / tiles;
    let group = CUBE_POS as u32 % tiles * comptime!(UNITS / lead.lanes()) + UNIT_POS / lanes;
    let lane = UNIT_POS % lanes;
    let real = (CUBE_POS as u32) < cubes && group < groups;
    let mut best = 0xffff_ffffu32;
    if real {
        #[unroll]
        for j in 0..comptime!(lead.reads()) {
            let p = group * comptime!(lead.per) + j * lanes + lane;
            let v = base_of(list, row * slots, p, log, comptime!(lead.listed));
            best = lower(best, first_rank(ieee, x, row, cols, v, flip, lead));
        }
    }
    let unit = UNIT_POS as usize;
    near[unit] = best;
    sync_cube();
    for s in 0..comptime!(lead.lanes().ilog2()) {
        let half = lanes >> (s + 1u32);
        if lane < half {
            near[unit] = lower(near[unit], near[unit + half as usize]);
        }
        sync_cube();
    }
    if real && lane == 0u32 {
        out[(row * groups + group) as usize] = near[unit];
    }
}

/// What changes the code that finds the first `k` of few ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// They are given: leaders.
    Ranks { listed: bool },
    /// They are those of keys, and are wanted too.
    Keys { float: bool, listed: bool },
}

impl Source {
    const fn listed(self) -> bool {
        match self {
            Self::Ranks { listed } | Self::Keys { listed, .. } => listed,
        }
    }

    const fn float(self) -> bool {
        matches!(self, Self::Keys { float: true, .. })
    }

    const fn keys(self) -> bool {
        matches!(self, Self::Keys { .. })
    }
}

/// The rank at place `p` of a row, and what it is of.
#[cube]
fn rank_at(
    ieee: Ieee,
    words: &Array<u32>,
    list: &Array<u32>,
    row: u32,
    cols: u32,
    slots: u32,
    p: u32,
    log: u32,
    flip: u32,
    #[comptime] from: Source,
) -> u32 {
    let mut found = 0xffff_ffffu32;
    if comptime!(from.keys()) {
        let i = base_of(list, row * slots, p, log, comptime!(from.listed()));
        if i < cols {
            let key = words[(row * cols + i) as usize];
            found = rank(ieee, key, flip, comptime!(from.float()));
        }
    } else {
        found = words[(row * cols + p) as usize];
    }
    found
}

/// The places of the first `k` of each row's `len` ranks, equal ones by their places, ascending.
#[cube]
fn pick(
    ieee: Ieee,
    words: &Array<u32>,
    list: &Array<u32>,
    out: &mut Array<u32>,
    out_ranks: &mut Array<u32>,
    rows: u32,
    len: u32,
    cols: u32,
    slots: u32,
    log: u32,
    k: u32,
    flip: u32,
    #[comptime] from: Source,
) {
    let bins = SharedMemory::<Atomic<u32>>::new(comptime!(DIGITS as usize));
    let mut scratch = SharedMemory::<u32>::new(comptime!(2 * UNITS as usize));
    let mut found = SharedMemory::<u32>::new(2usize);
    let row = CUBE_POS as u32;
    // None for a cube beyond the last.
    let len = prim::select_u32(row < rows, len, 0u32);
    let mut held = Array::<u32>::new(comptime!(HELD as usize));
    // The rank of the k-th by its highest digits, and its place among those that share them.
    let mut limit = 0u32;
    let mut mask = 0u32;
    let mut wanted = k;
    if UNIT_POS < 2u32 {
        found[UNIT_POS as usize] = 0u32;
    }
    for round in 0..3u32 {
        let shift = prim::select_u32(
            round == 0u32,
            21u32,
            prim::select_u32(round == 1u32, 10u32, 0u32),
        );
        let digits = prim::select_u32(round == 2u32, 1023u32, 2047u32);
        for b in 0..comptime!(DIGITS / UNITS) {
            // Not a store: CubeCL's SPIR-V path may drop it.
            bins[(b * UNITS + UNIT_POS) as usize].swap(0u32);
        }
        sync_cube();
        for s in 0..len.div_ceil(comptime!(HELD * UNITS)) {
            let start = s * comptime!(HELD * UNITS) + UNIT_POS;
            #[unroll]
            for j in 0..HELD {
                let p = start + j * UNITS;
                held[j as usize] = 0u32;
                if p < len {
                    held[j as usize] =
                        rank_at(ieee, words, list, row, cols, slots, p, log, flip, from);
                }
            }
            #[unroll]
            for j in 0..HELD {
                let key = held[j as usize];
                if start + j * UNITS < len && (key & mask) == limit {
                    bins[((key >> shift) & digits) as usize].fetch_add(1u32);
                }
            }
        }
        sync_cube();
        let own = UNIT_POS * comptime!(DIGITS / UNITS);
        let mut sum = 0u32;
        for b in 0..comptime!(DIGITS / UNITS) {
            sum += bins[(own + b) as usize].load();
        }
        let (before, _) = cube_scan(sum, &mut scratch, UNITS);
        if before < wanted && wanted <= before + sum {
            let mut left = wanted - before;
            for b in 0..comptime!(DIGITS / UNITS) {
                let count = bins[(own + b) as usize].load();
                if left <= count {
                    found[0] = own + b;
                    found[1] = left;
                    // No further bin has as many.
                    left = 0xffff_ffffu32;
                } else {
                    left -= count;
                }
            }
        }
        sync_cube();
        limit |= found[0] << shift;
        mask |= digits << shift;
        wanted = found[1];
        sync_cube();
    }
    // All below the limit, and of those that equal it the `wanted` first.
    let mut less = 0u32;
    let mut equal = 0u32;
    for s in 0..len.div_ceil(comptime!(HELD * UNITS)) {
        let start = s * comptime!(HELD * UNITS) + UNIT_POS * HELD;
        let mut counts = 0u32;
        #[unroll]
        for j in 0..HELD {
            let p = start + j;
            held[j as usize] = 0u32;
            if p < len {
                let key = rank_at(ieee, words, list, row, cols, slots, p, log, flip, from);
                held[j as usize] = key;
                counts += prim::select_u32(key < limit, 1u32, 0u32);
                counts += prim::select_u32(key == limit, 0x1_0000u32, 0u32);
            }
        }
        let (before, total) = cube_scan(counts, &mut scratch, UNITS);
        let mut less_here = less + (before & 0xffffu32);
        let mut equal_here = equal + (before >> 16u32);
        #[unroll]
        for j in 0..HELD {
            let p = start + j;
            if p < len {
                let key = held[j as usize];
                let is_less = key < limit;
                let is_equal = key == limit;
                if is_less || (is_equal && equal_here < wanted) {
                    let to = (row * k + less_here + lower(equal_here, wanted)) as usize;
                    out[to] = base_of(list, row * slots, p, log, comptime!(from.listed()));
                    if comptime!(from.keys()) {
                        out_ranks[to] = key;
                    }
                }
                less_here += prim::select_u32(is_less, 1u32, 0u32);
                equal_here += prim::select_u32(is_equal, 1u32, 0u32);
            }
        }
        less += total & 0xffffu32;
        equal += total >> 16u32;
    }
}

/// The keys and indices of what was found, in order.
#[cube]
fn arrange(
    ieee: Ieee,
    x: &Array<u32>,
    found: &Array<u32>,
    sorted: &Array<u32>,
    out: &mut Array<u32>,
    out_indices: &mut Array<u32>,
    cols: u32,
    k: u32,
    #[comptime] float: bool,
) {
    let to = ABSOLUTE_POS;
    if to < out.len() {
        let row = to as u32 / k;
        let index = found[(row * k + sorted[to]) as usize];
        out_indices[to] = index;
        out[to] = stored(ieee, x[(row * cols + index) as usize], float);
    }
}

fn lead_kernel(profile: FloatProfile, lead: Lead) -> Kernel {
    Kernel::new(
        "topk_leaders",
        profile,
        lead,
        CubeDim::new_1d(UNITS),
        move |d| {
            let ieee = d.ieee();
            let x = wide_input(d, lead.vectors);
            let list = match lead.listed {
                true => d.input::<u32>(),
                false => x.words.clone(),
            };
            let out = d.output::<u32>();
            let [cubes, cols, slots, log, groups, tiles, flip] =
                std::array::from_fn(|_| d.scalar::<u32>());
            find_leaders::expand(
                d.scope(),
                ieee,
                x,
                list,
                out,
                cubes,
                cols,
                slots,
                log,
                groups,
                tiles,
                flip,
                lead,
            );
        },
    )
}

fn pick_kernel(profile: FloatProfile, from: Source) -> Kernel {
    Kernel::new(
        "topk_pick",
        profile,
        from,
        CubeDim::new_1d(UNITS),
        move |d| {
            let ieee = d.ieee();
            let words = d.input::<u32>();
            let list = match from.listed() {
                true => d.input::<u32>(),
                false => words.clone(),
            };
            let out = d.output::<u32>();
            let out_ranks = match from.keys() {
                true => d.output::<u32>(),
                false => out.clone(),
            };
            let [rows, len, cols, slots, log, k, flip] = std::array::from_fn(|_| d.scalar::<u32>());
            pick::expand(
                d.scope(),
                ieee,
                words,
                list,
                out,
                out_ranks,
                rows,
                len,
                cols,
                slots,
                log,
                k,
                flip,
                from,
            );
        },
    )
}

fn arrange_kernel(profile: FloatProfile, float: bool) -> Kernel {
    Kernel::new(
        "topk_arrange",
        profile,
        float,
        CubeDim::new_1d(256),
        move |d| {
            let ieee = d.ieee();
            let [x, found, sorted] = [(); 3].map(|()| d.input::<u32>());
            let (out, out_indices) = (d.output::<u32>(), d.output::<u32>());
            let (cols, k) = (d.scalar::<u32>(), d.scalar::<u32>());
            arrange::expand(
                d.scope(),
                ieee,
                x,
                found,
                sorted,
                out,
                out_indices,
                cols,
                k,
                float,
            );
        },
    )
}

/// Keys of the groups, large ones first, into which rows of `cols` keys are cut for their first
/// `k`; `None` where the row had better be sorted.
fn cuts(cols: usize, k: usize, few: usize) -> Option<Vec<usize>> {
    let mut cuts = Vec::new();
    let (mut len, mut largest) = (cols, GROUP);
    while len > few {
        if largest < 4 {
            return None;
        }
        // As many leaders as keys in the groups that are left.
        let even = (len / k.max(1)).isqrt().next_power_of_two();
        let size = even.max(len.div_ceil(few).next_power_of_two());
        let size = size.clamp(4, largest);
        if 2 * k * size > len || len / size > few && size != GROUP {
            return None;
        }
        cuts.push(size);
        len = k * size;
        largest = size / 2;
    }
    Some(cuts)
}

/// The first `k` of long rows; `None` if they had better be sorted.
pub(super) fn of_groups<K: Key>(
    x: &Buffer<K>,
    rows: usize,
    cols: usize,
    k: usize,
    order: Order,
    few: usize,
) -> Result<Option<TopK<K>>> {
    let Some(cuts) = cuts(cols, k, few) else {
        return Ok(None);
    };
    let device = x.device();
    let profile = device.profile()?;
    let float = K::KIND.is_float();
    let flip = K::KIND.flip(order);
    let vectors = cols % 4 == 0;
    // The groups that are left, and the keys of each.
    let mut left: Option<(Buffer<u32>, usize)> = None;
    for size in cuts {
        let listed = left.is_some();
        let per = size / 4;
        let lead = Lead {
            float,
            listed,
            vectors,
            per: per as u32,
        };
        let (groups, log) = match &left {
            Some((_, before)) => (k * (before / size), (before / 4).ilog2()),
            None => (cols.div_ceil(size), 0),
        };
        let tiles = groups.div_ceil((UNITS / lead.lanes()) as usize);
        let mut leaders = device.empty::<u32>(rows * groups)?;
        let mut arguments = vec![x.vectors(if vectors { 4 } else { 1 })];
        arguments.extend(left.iter().map(|(list, _)| Arg::from(list)));
        arguments.push(Arg::from(&mut leaders));
        let scalars = [rows * tiles, cols, k].map(|n| Arg::from(n as u32));
        arguments.extend(scalars);
        arguments.push(Arg::from(log));
        arguments.extend([groups, tiles].map(|n| Arg::from(n as u32)));
        arguments.push(Arg::from(flip));
        device.launch(
            &lead_kernel(profile, lead),
            grid(rows * tiles, 1)?,
            &arguments,
        )?;
        drop(arguments);
        let mut list = device.empty::<u32>(rows * k)?;
        let log = left
            .as_ref()
            .map_or(0, |(_, before)| (before / size).ilog2());
        let mut arguments = vec![Arg::from(&leaders)];
        arguments.extend(left.iter().map(|(list, _)| Arg::from(list)));
        arguments.push(Arg::from(&mut list));
        arguments.extend([rows, groups, groups, k].map(|n| Arg::from(n as u32)));
        arguments.extend([log, k as u32, 0].map(Arg::from));
        device.launch(
            &pick_kernel(profile, Source::Ranks { listed }),
            grid(rows, 1)?,
            &arguments,
        )?;
        drop(arguments);
        left = Some((list, size));
    }
    let mut found = device.empty::<u32>(rows * k)?;
    let mut ranks = device.empty::<u32>(rows * k)?;
    let listed = left.is_some();
    let (len, log) = match &left {
        Some((_, size)) => (k * size, size.ilog2()),
        None => (cols, 0),
    };
    let mut arguments = vec![Arg::from(x)];
    arguments.extend(left.iter().map(|(list, _)| Arg::from(list)));
    arguments.extend([Arg::from(&mut found), Arg::from(&mut ranks)]);
    arguments.extend([rows, len, cols, k].map(|n| Arg::from(n as u32)));
    arguments.extend([log, k as u32, flip].map(Arg::from));
    device.launch(
        &pick_kernel(profile, Source::Keys { float, listed }),
        grid(rows, 1)?,
        &arguments,
    )?;
    drop(arguments);
    arranged(device, x, [rows, cols, k], &ranks, &found, flip).map(Some)
}

/// The found keys in order: a stable sort by their ranks, for they lie in the order of their
/// indices.
fn arranged<K: Key>(
    device: &Device,
    x: &Buffer<K>,
    [rows, cols, k]: [usize; 3],
    ranks: &Buffer<u32>,
    found: &Buffer<u32>,
    flip: u32,
) -> Result<TopK<K>> {
    let profile = device.profile()?;
    let float = K::KIND.is_float();
    let mut values = device.empty::<K>(rows * k)?;
    let mut indices = device.empty::<u32>(rows * k)?;
    if k <= LARGEST as usize {
        let step = Step {
            float,
            size: (k as u32).next_power_of_two().clamp(SMALLEST, LARGEST),
            first: false,
            last: true,
        };
        let [cubes, cols, k32] = [rows, cols, k].map(|n| n as u32);
        device.launch(
            &select_kernel(profile, step),
            grid(rows, 1)?,
            args![
                x,
                ranks,
                found,
                &mut values,
                &mut indices,
                cubes,
                cols,
                k32,
                1u32,
                k32,
                flip
            ],
        )?;
    } else {
        let sorted = sort::argsort_rows(ranks, rows, k, Order::Ascending)?;
        device.launch(
            &arrange_kernel(profile, float),
            grid(rows * k, 256)?,
            args![
                x,
                found,
                &sorted,
                &mut values,
                &mut indices,
                cols as u32,
                k as u32
            ],
        )?;
    }
    Ok(TopK { values, indices, k })
}

fn select_kernel(profile: FloatProfile, step: Step) -> Kernel {
    Kernel::new(
        "topk_select",
        profile,
        step,
        CubeDim::new_1d(step.units()),
        move |d| {
            let ieee = d.ieee();
            let x = d.input::<u32>();
            // What a variant doesn't use is not among its arguments.
            let (ranks, indices) = match step.first {
                true => (x.clone(), x.clone()),
                false => (d.input::<u32>(), d.input::<u32>()),
            };
            let (out, out_indices) = (d.output::<u32>(), d.output::<u32>());
            let [cubes, cols, len, tiles, k, flip] = std::array::from_fn(|_| d.scalar::<u32>());
            select_tile::expand(
                d.scope(),
                ieee,
                x,
                ranks,
                indices,
                out,
                out_indices,
                cubes,
                cols,
                len,
                tiles,
                k,
                flip,
                step,
            );
        },
    )
}

fn take_kernel(profile: FloatProfile, float: bool) -> Kernel {
    Kernel::new(
        "topk_take",
        profile,
        float,
        CubeDim::new_1d(256),
        move |d| {
            let ieee = d.ieee();
            let (x, sorted) = (d.input::<u32>(), d.input::<u32>());
            let (out, out_indices) = (d.output::<u32>(), d.output::<u32>());
            let (cols, k) = (d.scalar::<u32>(), d.scalar::<u32>());
            take::expand(d.scope(), ieee, x, sorted, out, out_indices, cols, k, float);
        },
    )
}

pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let mut kernels = Vec::new();
    for float in [false, true] {
        kernels.push(take_kernel(profile, float));
        for (first, last) in [(true, true), (true, false), (false, false), (false, true)] {
            for size in [SMALLEST, LARGEST] {
                let step = Step {
                    float,
                    size,
                    first,
                    last,
                };
                kernels.push(select_kernel(profile, step));
            }
        }
        kernels.push(arrange_kernel(profile, float));
        for listed in [false, true] {
            kernels.push(pick_kernel(profile, Source::Keys { float, listed }));
            for (vectors, per) in [(false, 4), (true, 1), (true, 16), (true, 256)] {
                let lead = Lead {
                    float,
                    listed,
                    vectors,
                    per,
                };
                kernels.push(lead_kernel(profile, lead));
            }
        }
    }
    kernels.extend([false, true].map(|listed| pick_kernel(profile, Source::Ranks { listed })));
    kernels
}

pub(crate) fn topk<K: Key>(
    x: &Buffer<K>,
    rows: usize,
    cols: usize,
    k: usize,
    order: Order,
) -> Result<TopK<K>> {
    let few = FEW[usize::from(rows >= BUSY)].max(4 * k);
    if cols > LARGEST as usize
        && few <= MANY
        && let Some(found) = of_groups(x, rows, cols, k, order, few)?
    {
        return Ok(found);
    }
    of_tiles(x, rows, cols, k, order)
}

/// The first `k` by tiles, or by a sort where `k` is large.
pub(super) fn of_tiles<K: Key>(
    x: &Buffer<K>,
    rows: usize,
    cols: usize,
    k: usize,
    order: Order,
) -> Result<TopK<K>> {
    let device = x.device();
    let profile = device.profile()?;
    let float = K::KIND.is_float();
    let mut values = device.empty::<K>(rows * k)?;
    let mut indices = device.empty::<u32>(rows * k)?;
    if k > MAX_K && cols > LARGEST as usize {
        let sorted = sort::argsort_rows(x, rows, cols, order)?;
        device.launch(
            &take_kernel(profile, float),
            grid(rows * k, 256)?,
            args![x, &sorted, &mut values, &mut indices, cols as u32, k as u32],
        )?;
        return Ok(TopK { values, indices, k });
    }
    let flip = K::KIND.flip(order);
    let mut len = cols;
    let mut pairs: Option<(Buffer<u32>, Buffer<u32>)> = None;
    loop {
        let size = (len as u64)
            .next_power_of_two()
            .clamp(SMALLEST.into(), LARGEST.into()) as u32;
        let tiles = len.div_ceil(size as usize);
        let cubes = rows * tiles;
        let step = Step {
            float,
            size,
            first: pairs.is_none(),
            last: tiles == 1,
        };
        let mut arguments = vec![Arg::from(x)];
        if let Some((ranks, indices)) = &pairs {
            arguments.extend([Arg::from(ranks), Arg::from(indices)]);
        }
        let scalars = [cubes, cols, len, tiles, k].map(|n| Arg::from(n as u32));
        let kernel = select_kernel(profile, step);
        if step.last {
            arguments.extend([Arg::from(&mut values), Arg::from(&mut indices)]);
            arguments.extend(scalars);
            arguments.push(Arg::from(flip));
            device.launch(&kernel, grid(cubes, 1)?, &arguments)?;
            return Ok(TopK { values, indices, k });
        }
        let mut next = (
            device.empty::<u32>(cubes * k)?,
            device.empty::<u32>(cubes * k)?,
        );
        arguments.extend([Arg::from(&mut next.0), Arg::from(&mut next.1)]);
        arguments.extend(scalars);
        arguments.push(Arg::from(flip));
        device.launch(&kernel, grid(cubes, 1)?, &arguments)?;
        drop(arguments);
        pairs = Some(next);
        len = tiles * k;
    }
}
