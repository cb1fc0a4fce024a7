//! Passes over 8-bit digits, each in three steps: digits are counted tile by tile, a prefix sum
//! over (row, digit, tile) gives every tile the place of its first key of each digit, and the
//! tiles move their keys.
//!
//! Inside a tile the keys are brought into order by two stable splits over 4 bits. Every unit
//! counts its own consecutive keys, and the prefix sum over (digit, unit) ranks them: no atomic
//! and no plane takes part, so the order is that of the positions on every device.
//!
//! Between passes a float is kept as its key in the total order, which is cheaper to take digits
//! from than its bits, and from which these come back.

use super::{Key, Order};
use crate::device::{Arg, Buffer, Device, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::order::{Kind, rank};
use crate::ops::tile::{Wide, cube_scan, four, wide_input};
use crate::ops::{grid, scan};
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Backend, Result};
use std::collections::BTreeSet;

/// Units of a cube, on any device and on those with more shared memory.
pub(super) const UNITS: [u32; 2] = [128, 256];
/// Consecutive keys of one unit; their rank among them fits four bits.
const ITEMS: u32 = 16;
/// Shorter rows are sorted as one, by key and then by row, rather than each in a tile that it
/// would hardly fill.
const SHORT: usize = 512;

/// How a key is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Form {
    Integer,
    /// A float's bits.
    Float,
    /// A float's key in the total order.
    Total,
}

/// What a digit is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Source {
    Key(Form),
    /// The row that the value, an index of the whole matrix, lies in.
    Row,
}

/// The values that travel with the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Values {
    None,
    /// Each key's position.
    Positions,
    Given,
}

/// What changes the code of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Pass {
    units: u32,
    source: Source,
    values: Values,
    keys_out: bool,
    /// Keys in total order leave as floats, NaN canonical.
    float_out: bool,
    /// Values leave as positions within their row of the matrix.
    in_row: bool,
}

/// The key of a float in the total order of the direction that `flip` gives: NaN comes last.
#[cube]
fn total(ieee: Ieee, raw: u32, flip: u32) -> u32 {
    let key = ieee.total_key(prim::from_bits(raw));
    prim::select_u32(key == u32::MAX, key, key ^ flip)
}

/// The bits of the float whose [`total`] is `key`.
#[cube]
fn raw(ieee: Ieee, key: u32, flip: u32) -> u32 {
    let key = prim::select_u32(key == u32::MAX, key, key ^ flip);
    prim::bits(ieee.from_total_key(key))
}

/// A row's number of what fills up a tile: no value is as large.
const NOTHING: u32 = u32::MAX;

#[cube]
fn digit(
    ieee: Ieee,
    word: u32,
    shift: u32,
    cols: u32,
    flip: u32,
    #[comptime] source: Source,
) -> u32 {
    let word = match comptime!(source) {
        Source::Key(Form::Integer) => rank(ieee, word, flip, false),
        Source::Key(Form::Float) => rank(ieee, word, flip, true),
        // Zeros are equal.
        Source::Key(Form::Total) => {
            prim::select_u32(word == 0x7fff_ffffu32 ^ flip, 0x8000_0000u32 ^ flip, word)
        }
        Source::Row => prim::select_u32(word == NOTHING, NOTHING, word / cols),
    };
    (word >> shift) & 255u32
}

/// Keys of this cube's tile; 0 for a cube beyond the last.
#[cube]
fn filled(cubes: u32, len: u32, start: u32, #[comptime] tile: u32) -> u32 {
    let mut filled = 0u32;
    if (CUBE_POS as u32) < cubes {
        filled = len - start;
        if filled > tile {
            filled = tile.runtime();
        }
    }
    filled
}

/// Counts the digits of every tile: `counts[(row * 256 + digit) * tiles + tile]`.
#[cube]
fn count(
    ieee: Ieee,
    words: &Wide,
    counts: &mut Array<u32>,
    cubes: u32,
    len: u32,
    tiles: u32,
    shift: u32,
    cols: u32,
    flip: u32,
    #[comptime] source: Source,
    #[comptime] units: u32,
    #[comptime] vectors: bool,
) {
    let bins = SharedMemory::<Atomic<u32>>::new(256usize);
    let row = CUBE_POS as u32 / tiles;
    let tile = CUBE_POS as u32 % tiles;
    let start = tile * comptime!(units * ITEMS);
    let filled = filled(cubes, len, start, comptime!(units * ITEMS));
    let base = row * len + start;
    for k in 0..comptime!(256 / units) {
        // Not a store: CubeCL's SPIR-V path may drop it.
        bins[(UNIT_POS + k * units) as usize].swap(0u32);
    }
    sync_cube();
    if comptime!(vectors) {
        let mut held = Array::<Vector<u32, Const<4>>>::new(comptime!((ITEMS / 4) as usize));
        #[unroll]
        for j in 0..comptime!(ITEMS / 4) {
            let v = base / 4u32 + UNIT_POS + j * units;
            held[j as usize] = four(words, v, base + filled);
        }
        #[unroll]
        for j in 0..comptime!(ITEMS / 4) {
            let words = held[j as usize];
            #[unroll]
            for l in 0..4u32 {
                if 4u32 * (UNIT_POS + j * units) + l < filled {
                    let digit = digit(ieee, words[l as usize], shift, cols, flip, source);
                    bins[digit as usize].fetch_add(1u32);
                }
            }
        }
    } else {
        for j in 0..ITEMS {
            let p = UNIT_POS + j * units;
            if p < filled {
                let word = words.words[(base + p) as usize];
                let digit = digit(ieee, word, shift, cols, flip, source);
                bins[digit as usize].fetch_add(1u32);
            }
        }
    }
    sync_cube();
    if (CUBE_POS as u32) < cubes {
        for k in 0..comptime!(256 / units) {
            let b = UNIT_POS + k * units;
            counts[((row * 256u32 + b) * tiles + tile) as usize] = bins[b as usize].load();
        }
    }
}

/// Index of a tile's position in shared memory: neighbours of one unit fall into different banks.
#[cube]
fn padded(position: u32) -> usize {
    (position + position / ITEMS) as usize
}

/// Index of a unit's counter among the eight rows of counters, two digits to a word. The exchange
/// of columns spreads both the counting (one column a unit) and the prefix sum (eight neighbours
/// a unit) over the banks.
#[cube]
fn counter(row: u32, unit: u32, #[comptime] units: u32) -> usize {
    (row * units + (unit ^ (unit >> 5u32))) as usize
}

/// Reads a tile in stripes and gives each unit its neighbours; `nothing` fills up.
#[cube]
fn load_tile(
    x: &Array<u32>,
    own: &mut Array<u32>,
    near: &mut SharedMemory<u32>,
    base: u32,
    filled: u32,
    nothing: u32,
    #[comptime] units: u32,
) {
    // All reads before the first write, which would wait for one after the other.
    for j in 0..ITEMS {
        let p = UNIT_POS + j * units;
        let mut word = nothing;
        if p < filled {
            word = x[(base + p) as usize];
        }
        own[j as usize] = word;
    }
    for j in 0..ITEMS {
        near[padded(UNIT_POS + j * units)] = own[j as usize];
    }
    sync_cube();
    for j in 0..ITEMS {
        own[j as usize] = near[padded(UNIT_POS * ITEMS + j)];
    }
    sync_cube();
}

/// Moves what the units hold to its places; afterwards each unit holds neighbours, or stripes
/// where `half` is the second.
#[cube]
fn exchange(
    own: &mut Array<u32>,
    places: &mut Array<u32>,
    near: &mut SharedMemory<u32>,
    half: u32,
    #[comptime] units: u32,
) {
    let first = prim::select_u32(half == 0u32, UNIT_POS * ITEMS, UNIT_POS);
    let step = prim::select_u32(half == 0u32, 1u32, units);
    for j in 0..ITEMS {
        near[padded(places[j as usize])] = own[j as usize];
    }
    sync_cube();
    for j in 0..ITEMS {
        own[j as usize] = near[padded(first + j * step)];
    }
    sync_cube();
}

/// Moves the tiles' keys to where their digits go.
#[cube]
fn scatter(
    ieee: Ieee,
    keys: &Array<u32>,
    values: &Array<u32>,
    offsets: &Array<u32>,
    keys_out: &mut Array<u32>,
    values_out: &mut Array<u32>,
    cubes: u32,
    len: u32,
    tiles: u32,
    shift: u32,
    cols: u32,
    flip: u32,
    #[comptime] pass: Pass,
) {
    let units = comptime!(pass.units);
    let by_row = comptime!(pass.source == Source::Row);
    let with_keys = comptime!(pass.keys_out || !by_row);
    let with_values = comptime!(pass.values != Values::None);
    let mut near = SharedMemory::<u32>::new(comptime!((units * (ITEMS + 1)) as usize));
    let mut counters = SharedMemory::<u32>::new(comptime!((8 * units) as usize));
    let mut scratch = SharedMemory::<u32>::new(comptime!((2 * units) as usize));
    let mut places = SharedMemory::<u32>::new(256usize);
    let row = CUBE_POS as u32 / tiles;
    let tile = CUBE_POS as u32 % tiles;
    let start = tile * comptime!(units * ITEMS);
    let filled = filled(cubes, len, start, comptime!(units * ITEMS));
    let base = row * len + start;

    // Where the tile's first key of each digit goes.
    if (CUBE_POS as u32) < cubes {
        for k in 0..comptime!(256 / units) {
            let digit = UNIT_POS + k * units;
            places[digit as usize] = offsets[((row * 256u32 + digit) * tiles + tile) as usize];
        }
    }
    // What fills up the last tile has the highest digit and so sorts to its end.
    let mut own_keys = Array::<u32>::new(comptime!(ITEMS as usize));
    let mut own_values = Array::<u32>::new(comptime!(ITEMS as usize));
    if comptime!(with_keys) {
        let nothing = match comptime!(pass.source) {
            Source::Key(Form::Integer) => flip ^ 0xffff_ffffu32,
            _ => 0xffff_ffffu32.runtime(),
        };
        load_tile(keys, &mut own_keys, &mut near, base, filled, nothing, units);
        if comptime!(pass.source == Source::Key(Form::Float)) {
            for j in 0..ITEMS {
                own_keys[j as usize] = total(ieee, own_keys[j as usize], flip);
            }
        }
    }
    if comptime!(pass.values == Values::Given) {
        load_tile(
            values,
            &mut own_values,
            &mut near,
            base,
            filled,
            NOTHING,
            units,
        );
    } else if comptime!(pass.values == Values::Positions) {
        for j in 0..ITEMS {
            own_values[j as usize] = start + UNIT_POS * ITEMS + j;
        }
    }
    // The form of what is held now.
    let source = comptime!(match pass.source {
        Source::Key(Form::Float) => Source::Key(Form::Total),
        other => other,
    });

    let mut goal = Array::<u32>::new(comptime!(ITEMS as usize));
    for half in 0..2u32 {
        for r in 0..8u32 {
            counters[counter(r, UNIT_POS, units)] = 0u32;
        }
        for j in 0..ITEMS {
            let word = if comptime!(by_row) {
                own_values[j as usize]
            } else {
                own_keys[j as usize]
            };
            let digit = digit(ieee, word, shift, cols, flip, source);
            let nibble = (digit >> (4u32 * half)) & 15u32;
            let at = counter(nibble & 7u32, UNIT_POS, units);
            let lane = (nibble >> 3u32) * 16u32;
            let counts = counters[at];
            // The digit and the rank among the unit's own.
            goal[j as usize] = (nibble << 16u32) | ((counts >> lane) & 15u32);
            counters[at] = counts + (1u32 << lane);
        }
        sync_cube();
        // The counters in order of (digit, unit), low halves before high ones; no half exceeds
        // the tile, so none carries into the other.
        let first = UNIT_POS * 8u32;
        let mut sum = 0u32;
        for k in 0..8u32 {
            sum += counters[counter(first / units, first % units + k, units)];
        }
        let (before, all) = cube_scan(sum, &mut scratch, units);
        let mut running = before + (all << 16u32);
        for k in 0..8u32 {
            let at = counter(first / units, first % units + k, units);
            let counts = counters[at];
            counters[at] = running;
            running += counts;
        }
        sync_cube();
        for j in 0..ITEMS {
            let word = goal[j as usize];
            let nibble = word >> 16u32;
            let counts = counters[counter(nibble & 7u32, UNIT_POS, units)];
            let first = (counts >> ((nibble >> 3u32) * 16u32)) & 0xffffu32;
            goal[j as usize] = first + (word & 15u32);
        }
        if comptime!(with_keys) {
            exchange(&mut own_keys, &mut goal, &mut near, half, units);
        }
        if comptime!(with_values) {
            exchange(&mut own_values, &mut goal, &mut near, half, units);
        }
    }

    // Digits, and where each one's keys go.
    for j in 0..ITEMS {
        let p = UNIT_POS + j * units;
        let word = if comptime!(by_row) {
            own_values[j as usize]
        } else {
            own_keys[j as usize]
        };
        let digit = digit(ieee, word, shift, cols, flip, source);
        goal[j as usize] = digit;
        near[padded(p)] = digit;
    }
    sync_cube();
    for j in 0..ITEMS {
        let p = UNIT_POS + j * units;
        if p < filled {
            let digit = goal[j as usize];
            let mut previous = 256u32;
            if p > 0u32 {
                previous = near[padded(p - 1u32)];
            }
            if digit != previous {
                // From now on to be added to the key's place in the tile.
                places[digit as usize] -= p;
            }
        }
    }
    sync_cube();
    for j in 0..ITEMS {
        let p = UNIT_POS + j * units;
        if p < filled {
            let to = (places[goal[j as usize] as usize] + p) as usize;
            if comptime!(pass.keys_out) {
                let key = own_keys[j as usize];
                keys_out[to] = if comptime!(pass.float_out) {
                    raw(ieee, key, flip)
                } else {
                    key
                };
            }
            if comptime!(with_values) {
                let value = own_values[j as usize];
                values_out[to] = if comptime!(pass.in_row) {
                    value % cols
                } else {
                    value
                };
            }
        }
    }
}

fn count_kernel(profile: FloatProfile, source: Source, units: u32, vectors: bool) -> Kernel {
    Kernel::new(
        "sort_count",
        profile,
        (ITEMS, source, units, vectors),
        CubeDim::new_1d(units),
        move |d| {
            let ieee = d.ieee();
            let (words, counts) = (wide_input(d, vectors), d.output::<u32>());
            let [cubes, len, tiles, shift, cols, flip] = std::array::from_fn(|_| d.scalar::<u32>());
            count::expand(
                d.scope(),
                ieee,
                words,
                counts,
                cubes,
                len,
                tiles,
                shift,
                cols,
                flip,
                source,
                units,
                vectors,
            );
        },
    )
}

fn scatter_kernel(profile: FloatProfile, pass: Pass) -> Kernel {
    Kernel::new(
        "sort_scatter",
        profile,
        (ITEMS, pass),
        CubeDim::new_1d(pass.units),
        move |d| {
            let ieee = d.ieee();
            let (keys, offsets) = (d.input::<u32>(), d.input::<u32>());
            // What a variant doesn't use is not among its arguments.
            let values = match pass.values {
                Values::Given => d.input::<u32>(),
                _ => keys.clone(),
            };
            let keys_out = match pass.keys_out {
                true => d.output::<u32>(),
                false => keys.clone(),
            };
            let values_out = match pass.values {
                Values::None => keys.clone(),
                _ => d.output::<u32>(),
            };
            let [cubes, len, tiles, shift, cols, flip] = std::array::from_fn(|_| d.scalar::<u32>());
            scatter::expand(
                d.scope(),
                ieee,
                keys,
                values,
                offsets,
                keys_out,
                values_out,
                cubes,
                len,
                tiles,
                shift,
                cols,
                flip,
                pass,
            );
        },
    )
}

pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let mut passes = BTreeSet::new();
    for units in UNITS {
        for plan in [
            Plan::new(1, 1, Values::None, true, units),
            Plan::new(1, 1, Values::Positions, false, units),
            Plan::new(1, 1, Values::Given, true, units),
            Plan::new(2, 1, Values::Positions, false, units),
            Plan::new(2, 1, Values::Positions, true, units),
        ] {
            for float in [false, true] {
                passes.extend(plan.passes(float).into_iter().map(|(_, pass)| pass));
            }
        }
    }
    let sources: BTreeSet<_> = passes
        .iter()
        .map(|pass| (pass.source, pass.units))
        .collect();
    sources
        .into_iter()
        .flat_map(|(source, units)| {
            [false, true].map(|vectors| count_kernel(profile, source, units, vectors))
        })
        .chain(passes.into_iter().map(|pass| scatter_kernel(profile, pass)))
        .collect()
}

/// The units that cubes have on a device.
pub(super) fn units(device: &Device) -> u32 {
    match device.backend() {
        Backend::Cuda(_) | Backend::Hip(_) => UNITS[1],
        _ => UNITS[0],
    }
}

/// What a sort was asked for.
struct Sorted<K: Key> {
    keys: Option<Buffer<K>>,
    values: Option<Buffer<u32>>,
}

/// A sort of `rows` rows of `len` keys; where `cols` differs from `len`, the one row is a matrix
/// with rows of `cols`, to be sorted each.
#[derive(Clone, Copy)]
struct Plan {
    rows: usize,
    len: usize,
    cols: usize,
    values: Values,
    /// Whether the sorted keys are wanted.
    keys: bool,
    units: u32,
}

impl Plan {
    fn new(rows: usize, cols: usize, values: Values, keys: bool, units: u32) -> Self {
        if rows > 1 && cols < SHORT {
            Self {
                rows: 1,
                len: rows * cols,
                cols,
                // The row of a key is known by its position.
                values: Values::Positions,
                keys,
                units,
            }
        } else {
            Self {
                rows,
                len: cols,
                cols,
                values,
                keys,
                units,
            }
        }
    }

    /// The passes and the shift of each one's digit.
    fn passes(&self, float: bool) -> Vec<(u32, Pass)> {
        let row_bits = if self.cols == self.len {
            0
        } else {
            u32::BITS - ((self.len / self.cols) as u32).leading_zeros()
        };
        let mut digits: Vec<(u32, Source)> = (0..4)
            .map(|d| match (float, d) {
                (false, _) => Form::Integer,
                (true, 0) => Form::Float,
                (true, _) => Form::Total,
            })
            .zip(0..)
            .map(|(form, d)| (8 * d, Source::Key(form)))
            .collect();
        digits.extend((0..row_bits.div_ceil(8)).map(|d| (8 * d, Source::Row)));
        let last = digits.len() - 1;
        digits
            .iter()
            .enumerate()
            .map(|(at, (shift, source))| {
                let values = match self.values {
                    Values::Positions if at > 0 => Values::Given,
                    other => other,
                };
                let by_key_next = matches!(digits.get(at + 1), Some((_, Source::Key(_))));
                let keys_out = self.keys || by_key_next;
                let pass = Pass {
                    units: self.units,
                    source: *source,
                    values,
                    keys_out,
                    float_out: keys_out && float && at == last,
                    in_row: at == last && self.cols != self.len,
                };
                (*shift, pass)
            })
            .collect()
    }

    fn run<K: Key>(
        &self,
        keys: &Buffer<K>,
        values: Option<&Buffer<u32>>,
        kind: Kind,
        order: Order,
    ) -> Result<Sorted<K>> {
        let device: &Device = keys.device();
        let profile = device.profile()?;
        let n = keys.len();
        if n == 0 {
            return Ok(Sorted {
                keys: Some(device.empty(0)?),
                values: Some(device.empty(0)?),
            });
        }
        let tiles = self.len.div_ceil((self.units * ITEMS) as usize);
        let cubes = self.rows * tiles;
        let flip = kind.flip(order);
        let mut moved = Sorted::<K> {
            keys: None,
            values: None,
        };
        for (shift, pass) in self.passes(kind.is_float()) {
            let keys = moved.keys.as_ref().unwrap_or(keys);
            let values = moved.values.as_ref().or(values);
            let mut counts = device.empty::<u32>(256 * cubes)?;
            let [c, l, t, w] = [cubes, self.len, tiles, self.cols].map(|x| x as u32);
            let vectors = self.len % 4 == 0;
            let width = if vectors { 4 } else { 1 };
            let words = match (pass.source, values) {
                (Source::Row, Some(values)) => values.vectors(width),
                _ => keys.vectors(width),
            };
            let mut arguments = vec![words, Arg::from(&mut counts)];
            arguments.extend([c, l, t, shift, w, flip].map(Arg::from));
            let kernel = count_kernel(profile, pass.source, self.units, vectors);
            device.launch(&kernel, grid(cubes, 1)?, &arguments)?;
            drop(arguments);
            let offsets = scan::exclusive(&counts)?;
            let mut keys_out = match pass.keys_out {
                true => Some(device.empty::<K>(n)?),
                false => None,
            };
            let mut values_out = match pass.values {
                Values::None => None,
                _ => Some(device.empty::<u32>(n)?),
            };
            let mut arguments = vec![Arg::from(keys), Arg::from(&offsets)];
            if pass.values == Values::Given {
                arguments.extend(values.map(Arg::from));
            }
            arguments.extend(keys_out.as_mut().map(Arg::from));
            arguments.extend(values_out.as_mut().map(Arg::from));
            arguments.extend([c, l, t, shift, w, flip].map(Arg::from));
            device.launch(&scatter_kernel(profile, pass), grid(cubes, 1)?, &arguments)?;
            moved = Sorted {
                keys: keys_out,
                values: values_out,
            };
        }
        Ok(moved)
    }
}

fn missing(what: &str) -> detml_core::Error {
    detml_core::Error::internal(format!("sort: no {what}"))
}

pub(super) fn sort<K: Key>(
    keys: &Buffer<K>,
    rows: usize,
    cols: usize,
    kind: Kind,
    order: Order,
    units: u32,
) -> Result<Buffer<K>> {
    let plan = Plan::new(rows, cols, Values::None, true, units);
    let sorted = plan.run(keys, None, kind, order)?;
    sorted.keys.ok_or_else(|| missing("keys"))
}

pub(super) fn argsort<K: Key>(
    keys: &Buffer<K>,
    rows: usize,
    cols: usize,
    kind: Kind,
    order: Order,
    units: u32,
) -> Result<Buffer<u32>> {
    let plan = Plan::new(rows, cols, Values::Positions, false, units);
    let sorted = plan.run(keys, None, kind, order)?;
    sorted.values.ok_or_else(|| missing("indices"))
}

pub(super) fn sort_by_key<K: Key>(
    keys: &Buffer<K>,
    values: &Buffer<u32>,
    kind: Kind,
    order: Order,
    units: u32,
) -> Result<(Buffer<K>, Buffer<u32>)> {
    let plan = Plan::new(1, keys.len(), Values::Given, true, units);
    let sorted = plan.run(keys, Some(values), kind, order)?;
    match (sorted.keys, sorted.values) {
        (Some(keys), Some(values)) => Ok((keys, values)),
        _ => Err(missing("keys or values")),
    }
}
