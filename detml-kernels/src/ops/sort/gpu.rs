//! Passes over 8-bit digits, each in three steps: digits are counted tile by tile, a prefix sum
//! over (row, digit, tile) gives every tile the place of its first key of each digit, and the
//! tiles move their keys.
//!
//! Inside a tile the keys are brought into order by two stable splits over 4 bits. Every unit
//! counts its own consecutive keys, and the prefix sum over (digit, unit) ranks them: no atomic
//! and no plane takes part, so the order is that of the positions on every device.

use super::{Key, Order};
use crate::device::{Arg, Buffer, Device, Kernel, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::order::{Kind, rank, stored};
use crate::ops::{grid, scan, tile::cube_scan};
use cubecl::prelude::*;
use detml_core::Result;
use std::collections::BTreeSet;

const UNITS: u32 = 128;
/// Consecutive keys of one unit; their rank among them fits four bits.
const ITEMS: u32 = 16;
const TILE: usize = (UNITS * ITEMS) as usize;
/// Shorter rows are sorted as one, by key and then by row, rather than each in a tile that it
/// would hardly fill.
const SHORT: usize = 512;

/// What a digit is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Source {
    Key {
        float: bool,
    },
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
    source: Source,
    values: Values,
    keys_out: bool,
    /// NaN keys leave canonical.
    float: bool,
    /// Values leave as positions within their row of the matrix.
    in_row: bool,
}

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
        Source::Key { float } => rank(ieee, word, flip, float),
        Source::Row => word / cols,
    };
    (word >> shift) & 255u32
}

/// Keys of this cube's tile; 0 for a cube beyond the last.
#[cube]
fn filled(cubes: u32, len: u32, start: u32) -> u32 {
    let mut filled = 0u32;
    if (CUBE_POS as u32) < cubes {
        filled = len - start;
        if filled > comptime!(TILE as u32) {
            filled = comptime!(TILE as u32);
        }
    }
    filled
}

/// Counts the digits of every tile: `counts[(row * 256 + digit) * tiles + tile]`.
#[cube]
fn count(
    ieee: Ieee,
    words: &Array<u32>,
    counts: &mut Array<u32>,
    cubes: u32,
    len: u32,
    tiles: u32,
    shift: u32,
    cols: u32,
    flip: u32,
    #[comptime] source: Source,
) {
    let bins = SharedMemory::<Atomic<u32>>::new(256usize);
    let row = CUBE_POS as u32 / tiles;
    let tile = CUBE_POS as u32 % tiles;
    let start = tile * comptime!(TILE as u32);
    let filled = filled(cubes, len, start);
    let base = row * len + start;
    for k in 0..comptime!(256 / UNITS) {
        // Not a store: CubeCL's SPIR-V path may drop it.
        bins[(UNIT_POS + k * UNITS) as usize].swap(0u32);
    }
    sync_cube();
    for j in 0..ITEMS {
        let p = UNIT_POS + j * UNITS;
        if p < filled {
            let digit = digit(ieee, words[(base + p) as usize], shift, cols, flip, source);
            bins[digit as usize].fetch_add(1u32);
        }
    }
    sync_cube();
    if (CUBE_POS as u32) < cubes {
        for k in 0..comptime!(256 / UNITS) {
            let b = UNIT_POS + k * UNITS;
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
fn counter(row: u32, unit: u32) -> usize {
    (row * UNITS + (unit ^ (unit >> 5u32))) as usize
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
    // Words of digit << 16 | position; while ranked, the rank in the top bits.
    let mut words = SharedMemory::<u32>::new(comptime!((UNITS * (ITEMS + 1)) as usize));
    let mut counters = SharedMemory::<u32>::new(comptime!((8 * UNITS) as usize));
    let mut scratch = SharedMemory::<u32>::new(comptime!((2 * UNITS) as usize));
    let mut places = SharedMemory::<u32>::new(256usize);
    let row = CUBE_POS as u32 / tiles;
    let tile = CUBE_POS as u32 % tiles;
    let start = tile * comptime!(TILE as u32);
    let filled = filled(cubes, len, start);
    let base = row * len + start;

    for j in 0..ITEMS {
        let p = UNIT_POS + j * UNITS;
        // What fills up the last tile sorts to its end.
        let mut word = 0x00ff_0000u32;
        if p < filled {
            let i = (base + p) as usize;
            let word_in = if comptime!(pass.source == Source::Row) {
                values[i]
            } else {
                keys[i]
            };
            word = digit(ieee, word_in, shift, cols, flip, comptime!(pass.source)) << 16u32;
        }
        words[padded(p)] = word | p;
    }
    sync_cube();

    let mut own = Array::<u32>::new(comptime!(ITEMS as usize));
    for half in 0..2u32 {
        let bits = 16u32 + 4u32 * half;
        for j in 0..ITEMS {
            own[j as usize] = words[padded(UNIT_POS * ITEMS + j)];
        }
        for r in 0..8u32 {
            counters[counter(r, UNIT_POS)] = 0u32;
        }
        for j in 0..ITEMS {
            let word = own[j as usize];
            let nibble = (word >> bits) & 15u32;
            let at = counter(nibble & 7u32, UNIT_POS);
            let lane = (nibble >> 3u32) * 16u32;
            let counts = counters[at];
            own[j as usize] = word | (((counts >> lane) & 15u32) << 28u32);
            counters[at] = counts + (1u32 << lane);
        }
        sync_cube();
        // The counters in order of (digit, unit), low halves before high ones; no half exceeds
        // the tile, so none carries into the other.
        let first = UNIT_POS * 8u32;
        let mut sum = 0u32;
        for k in 0..8u32 {
            sum += counters[counter(first / UNITS, first % UNITS + k)];
        }
        let (before, total) = cube_scan(sum, &mut scratch, UNITS);
        let mut running = before + (total << 16u32);
        for k in 0..8u32 {
            let at = counter(first / UNITS, first % UNITS + k);
            let counts = counters[at];
            counters[at] = running;
            running += counts;
        }
        sync_cube();
        for j in 0..ITEMS {
            let word = own[j as usize];
            let nibble = (word >> bits) & 15u32;
            let counts = counters[counter(nibble & 7u32, UNIT_POS)];
            let place = ((counts >> ((nibble >> 3u32) * 16u32)) & 0xffffu32) + (word >> 28u32);
            words[padded(place)] = word & 0x0fff_ffffu32;
        }
        sync_cube();
    }

    for j in 0..ITEMS {
        let p = UNIT_POS + j * UNITS;
        if p < filled {
            let digit = words[padded(p)] >> 16u32;
            let mut previous = 256u32;
            if p > 0u32 {
                previous = words[padded(p - 1u32)] >> 16u32;
            }
            if digit != previous {
                let offset = offsets[((row * 256u32 + digit) * tiles + tile) as usize];
                places[digit as usize] = offset - p;
            }
        }
    }
    sync_cube();
    for j in 0..ITEMS {
        let p = UNIT_POS + j * UNITS;
        if p < filled {
            let word = words[padded(p)];
            let to = (places[(word >> 16u32) as usize] + p) as usize;
            let position = word & 0xffffu32;
            let i = (base + position) as usize;
            if comptime!(pass.keys_out) {
                keys_out[to] = stored(ieee, keys[i], comptime!(pass.float));
            }
            if comptime!(pass.values != Values::None) {
                let value = if comptime!(pass.values == Values::Positions) {
                    start + position
                } else {
                    values[i]
                };
                values_out[to] = if comptime!(pass.in_row) {
                    value % cols
                } else {
                    value
                };
            }
        }
    }
}

fn count_kernel(profile: FloatProfile, source: Source) -> Kernel {
    Kernel::new(
        "sort_count",
        profile,
        (UNITS, ITEMS, source),
        CubeDim::new_1d(UNITS),
        move |d| {
            let ieee = d.ieee();
            let (words, counts) = (d.input::<u32>(), d.output::<u32>());
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
            );
        },
    )
}

fn scatter_kernel(profile: FloatProfile, pass: Pass) -> Kernel {
    Kernel::new(
        "sort_scatter",
        profile,
        (UNITS, ITEMS, pass),
        CubeDim::new_1d(UNITS),
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
    let plans = [
        Plan::new(1, 1, Values::None, true),
        Plan::new(1, 1, Values::Positions, false),
        Plan::new(1, 1, Values::Given, true),
        Plan::new(2, 1, Values::Positions, false),
        Plan::new(2, 1, Values::Positions, true),
    ];
    let passes: BTreeSet<Pass> = plans
        .iter()
        .flat_map(|plan| [plan.passes(false), plan.passes(true)])
        .flatten()
        .map(|(_, pass)| pass)
        .collect();
    let sources: BTreeSet<Source> = passes.iter().map(|pass| pass.source).collect();
    sources
        .into_iter()
        .map(|source| count_kernel(profile, source))
        .chain(passes.into_iter().map(|pass| scatter_kernel(profile, pass)))
        .collect()
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
}

impl Plan {
    fn new(rows: usize, cols: usize, values: Values, keys: bool) -> Self {
        if rows > 1 && cols < SHORT {
            Self {
                rows: 1,
                len: rows * cols,
                cols,
                // The row of a key is known by its position.
                values: Values::Positions,
                keys,
            }
        } else {
            Self {
                rows,
                len: cols,
                cols,
                values,
                keys,
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
        let mut digits: Vec<(u32, Source)> =
            (0..4).map(|d| (8 * d, Source::Key { float })).collect();
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
                let by_key_next = matches!(digits.get(at + 1), Some((_, Source::Key { .. })));
                let keys_out = self.keys || by_key_next;
                let pass = Pass {
                    source: *source,
                    values,
                    keys_out,
                    float: keys_out && float,
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
        let tiles = self.len.div_ceil(TILE);
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
            let kernel = count_kernel(profile, pass.source);
            match (pass.source, values) {
                (Source::Row, Some(values)) => device.launch(
                    &kernel,
                    grid(cubes, 1)?,
                    args![values, &mut counts, c, l, t, shift, w, flip],
                )?,
                _ => device.launch(
                    &kernel,
                    grid(cubes, 1)?,
                    args![keys, &mut counts, c, l, t, shift, w, flip],
                )?,
            }
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

pub(crate) fn sort<K: Key>(
    keys: &Buffer<K>,
    rows: usize,
    cols: usize,
    kind: Kind,
    order: Order,
) -> Result<Buffer<K>> {
    let plan = Plan::new(rows, cols, Values::None, true);
    let sorted = plan.run(keys, None, kind, order)?;
    sorted.keys.ok_or_else(|| missing("keys"))
}

pub(crate) fn argsort<K: Key>(
    keys: &Buffer<K>,
    rows: usize,
    cols: usize,
    kind: Kind,
    order: Order,
) -> Result<Buffer<u32>> {
    let plan = Plan::new(rows, cols, Values::Positions, false);
    let sorted = plan.run(keys, None, kind, order)?;
    sorted.values.ok_or_else(|| missing("indices"))
}

pub(crate) fn sort_by_key<K: Key>(
    keys: &Buffer<K>,
    values: &Buffer<u32>,
    kind: Kind,
    order: Order,
) -> Result<(Buffer<K>, Buffer<u32>)> {
    let plan = Plan::new(1, keys.len(), Values::Given, true);
    let sorted = plan.run(keys, Some(values), kind, order)?;
    match (sorted.keys, sorted.values) {
        (Some(keys), Some(values)) => Ok((keys, values)),
        _ => Err(missing("keys or values")),
    }
}
