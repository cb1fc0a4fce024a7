//! Two launches: the sums of chunks, then every chunk from its own base, the sum of the chunks
//! before it. No cube waits for another, which not every target lets it; so the elements are read
//! twice. Flags are read once: the first launch packs them into bits.

use super::{Integer, Partition};
use crate::device::{Arg, Buffer, Device, Kernel, args};
use crate::ieee::FloatProfile;
use crate::ops::tile::{Wide, cube_scan, four, wide_input, wide_output};
use cubecl::prelude::*;
use detml_core::Result;

const UNITS: u32 = 256;
/// Vectors of four that a unit takes in a step.
const VECTORS: u32 = 4;
/// Elements of a step.
const STEP: usize = (UNITS * 4 * VECTORS) as usize;
/// Chunks of one launch, at most: enough to fill any device, few enough for each to add up what is
/// before it.
const CHUNKS: usize = 1024;
/// Steps that one chunk takes rather than two launches.
const FEW: usize = 4;

/// Flags that a unit packs into a word, and a cube into as many words as it has units.
const PACK: usize = (UNITS * 32) as usize;
/// Flags of a step that writes indices: a quarter of the bits of each word.
const PART: u32 = UNITS * 8;

/// What a chunk's scan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Scan {
    inclusive: bool,
    /// The only chunk.
    alone: bool,
    vectors: bool,
}

/// Sums of the chunks of `steps` steps, from their ends: what is read last, and may still be in a
/// cache, is what is read first next.
#[cube]
fn sums(x: &Wide, out: &mut Array<u32>, n: u32, steps: u32) {
    let mut scratch = SharedMemory::<u32>::new(comptime!(2 * UNITS as usize));
    let first = CUBE_POS as u32 * steps;
    let mut sum = 0u32;
    for s in 0..steps {
        #[unroll]
        for j in 0..VECTORS {
            let step = first + steps - 1u32 - s;
            let v = step * comptime!(UNITS * VECTORS) + j * UNITS + UNIT_POS;
            let x = four(x, v, n);
            sum += x[0] + x[1] + x[2] + x[3];
        }
    }
    let (_, total) = cube_scan(sum, &mut scratch, UNITS);
    if UNIT_POS == 0 && CUBE_POS < out.len() {
        out[CUBE_POS] = total;
    }
}

/// The sum of what the units hold of `sums` before `end`.
#[cube]
fn sum_before(sums: &Array<u32>, end: u32, scratch: &mut SharedMemory<u32>) -> u32 {
    let mut sum = 0u32;
    for k in 0..end.div_ceil(UNITS) {
        let i = k * UNITS + UNIT_POS;
        if i < end {
            sum += sums[i as usize];
        }
    }
    let (_, total) = cube_scan(sum, scratch, UNITS);
    total
}

/// Index in shared memory of the counter of a vector; `each` neighbours of one unit, of which
/// those of neighbouring units fall into different banks.
#[cube]
fn padded(position: u32, #[comptime] each: u32) -> usize {
    (position + position / each) as usize
}

/// Replaces the counters by the sums before them, and returns that of all. Counters are written
/// before and may be read after.
#[cube]
fn scan_counters(
    counters: &mut SharedMemory<u32>,
    scratch: &mut SharedMemory<u32>,
    #[comptime] each: u32,
) -> u32 {
    sync_cube();
    let own = UNIT_POS * comptime!(each + 1);
    let mut sum = 0u32;
    #[unroll]
    for k in 0..each {
        sum += counters[(own + k) as usize];
    }
    let (before, total) = cube_scan(sum, scratch, UNITS);
    let mut running = before;
    #[unroll]
    for k in 0..each {
        let at = (own + k) as usize;
        let count = counters[at];
        counters[at] = running;
        running += count;
    }
    sync_cube();
    total
}

#[cube]
fn scan_chunk(
    x: &Wide,
    sums: &Array<u32>,
    out: &mut Wide,
    total: &mut Array<u32>,
    n: u32,
    steps: u32,
    #[comptime] scan: Scan,
) {
    let mut scratch = SharedMemory::<u32>::new(comptime!(2 * UNITS as usize));
    let mut counters = SharedMemory::<u32>::new(comptime!((UNITS * (VECTORS + 1)) as usize));
    let mut base = 0u32;
    if comptime!(!scan.alone) {
        base = sum_before(sums, CUBE_POS as u32, &mut scratch);
    }
    let first = CUBE_POS as u32 * steps;
    let mut own = Array::<Vector<u32, Const<4>>>::new(comptime!(VECTORS as usize));
    for s in 0..steps {
        let start = (first + s) * comptime!(UNITS * VECTORS);
        #[unroll]
        for j in 0..VECTORS {
            let p = j * UNITS + UNIT_POS;
            let x = four(x, start + p, n);
            own[j as usize] = x;
            counters[padded(p, VECTORS)] = x[0] + x[1] + x[2] + x[3];
        }
        let sum = scan_counters(&mut counters, &mut scratch, VECTORS);
        #[unroll]
        for j in 0..VECTORS {
            let p = j * UNITS + UNIT_POS;
            let x = own[j as usize];
            let a = base + counters[padded(p, VECTORS)];
            let b = a + x[0];
            let c = b + x[1];
            let d = c + x[2];
            let mut sums = Vector::<u32, Const<4>>::empty();
            if comptime!(scan.inclusive) {
                sums[0] = b;
                sums[1] = c;
                sums[2] = d;
                sums[3] = d + x[3];
            } else {
                sums[0] = a;
                sums[1] = b;
                sums[2] = c;
                sums[3] = d;
            }
            let v = start + p;
            if comptime!(scan.vectors) {
                if v < n / 4u32 {
                    out.fours[v as usize] = sums;
                }
            } else {
                #[unroll]
                for l in 0..4u32 {
                    let i = 4u32 * v + l;
                    if i < n {
                        out.words[i as usize] = sums[l as usize];
                    }
                }
            }
        }
        base += sum;
        // The counters are written again.
        sync_cube();
    }
    if UNIT_POS == 0 && CUBE_POS as u32 == CUBE_COUNT as u32 - 1u32 {
        total[0] = base;
    }
}

/// Packs flags into words of 32 bits and counts those of each chunk of `steps` words a unit. Bit
/// `4 j + l` of word `w UNITS + u` is that of flag `PACK w + 4 (j UNITS + u) + l`.
#[cube]
fn pack(x: &Wide, bits: &mut Array<u32>, counts: &mut Array<u32>, n: u32, steps: u32) {
    let mut scratch = SharedMemory::<u32>::new(comptime!(2 * UNITS as usize));
    let first = CUBE_POS as u32 * steps;
    let mut count = 0u32;
    for s in 0..steps {
        let start = (first + s) * comptime!(UNITS * 8);
        let mut word = 0u32;
        #[unroll]
        for j in 0..8u32 {
            let x = four(x, start + j * UNITS + UNIT_POS, n);
            #[unroll]
            for l in 0..4u32 {
                word |= select(x[l as usize] != 0u32, comptime!(1u32 << (4 * j + l)), 0u32);
            }
        }
        let at = (first + s) * UNITS + UNIT_POS;
        if at < bits.len() as u32 {
            bits[at as usize] = word;
            count += word.count_ones();
        }
    }
    let (_, total) = cube_scan(count, &mut scratch, UNITS);
    if UNIT_POS == 0 && CUBE_POS < counts.len() {
        counts[CUBE_POS] = total;
    }
}

/// Writes the indices of the flags that are set, and behind all of them those of the others if
/// `partition`. `left` is set to the number of the first.
#[cube]
fn place(
    bits: &Array<u32>,
    counts: &Array<u32>,
    out: &mut Array<u32>,
    left: &mut Array<u32>,
    n: u32,
    steps: u32,
    chunks: u32,
    #[comptime] partition: bool,
) {
    let mut scratch = SharedMemory::<u32>::new(comptime!(2 * UNITS as usize));
    let mut counters = SharedMemory::<u32>::new(comptime!((UNITS * 3) as usize));
    let mut near = SharedMemory::<u32>::new(comptime!(PART as usize));
    let mut set = sum_before(counts, CUBE_POS as u32, &mut scratch);
    let first = CUBE_POS as u32 * steps;
    // Where the next flag that is clear goes.
    let mut clear = 0u32;
    if comptime!(partition) {
        let total = sum_before(counts, chunks, &mut scratch);
        clear = total + first * comptime!(PACK as u32) - set;
        if UNIT_POS == 0 && CUBE_POS == 0 {
            left[0] = total;
        }
    }
    for s in 0..steps {
        let at = (first + s) * UNITS + UNIT_POS;
        let mut word = 0u32;
        if at < bits.len() as u32 {
            word = bits[at as usize];
        }
        for quarter in 0..4u32 {
            let eight = word >> (8u32 * quarter);
            #[unroll]
            for j in 0..2u32 {
                let four = (eight >> comptime!(4 * j)) & 15u32;
                counters[padded(j * UNITS + UNIT_POS, 2u32)] = four.count_ones();
            }
            let count = scan_counters(&mut counters, &mut scratch, 2u32);
            let start = (first + s) * comptime!(PACK as u32) + quarter * PART;
            #[unroll]
            for j in 0..2u32 {
                let p = j * UNITS + UNIT_POS;
                let mut rank = counters[padded(p, 2u32)];
                #[unroll]
                for l in 0..4u32 {
                    let i = 4u32 * p + l;
                    let flag = (eight >> comptime!(4 * j + l)) & 1u32;
                    if flag != 0u32 {
                        near[rank as usize] = start + i;
                    } else if comptime!(partition) {
                        near[(count + i - rank) as usize] = start + i;
                    }
                    rank += flag;
                }
            }
            sync_cube();
            // What is beyond the end is clear, and last.
            let mut here = 0u32;
            if start < n {
                here = n - start;
                if here > PART {
                    here = PART.runtime();
                }
            }
            #[unroll]
            for k in 0..8u32 {
                let p = k * UNITS + UNIT_POS;
                if p < count {
                    out[(set + p) as usize] = near[p as usize];
                } else if comptime!(partition) {
                    if p < here {
                        out[(clear + p - count) as usize] = near[p as usize];
                    }
                }
            }
            set += count;
            clear += here - count;
            sync_cube();
        }
    }
}

fn sums_kernel(profile: FloatProfile, vectors: bool) -> Kernel {
    Kernel::new(
        "scan_sums",
        profile,
        (UNITS, VECTORS, vectors),
        CubeDim::new_1d(UNITS),
        move |d| {
            let x = wide_input(d, vectors);
            let (out, n, steps) = (d.output::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
            sums::expand(d.scope(), x, out, n, steps);
        },
    )
}

fn scan_kernel(profile: FloatProfile, scan: Scan) -> Kernel {
    Kernel::new(
        "scan_chunk",
        profile,
        (UNITS, VECTORS, scan),
        CubeDim::new_1d(UNITS),
        move |d| {
            let x = wide_input(d, scan.vectors);
            let out = wide_output(d, scan.vectors);
            let total = d.output::<u32>();
            // What a variant doesn't use is not among its arguments.
            let sums = match scan.alone {
                true => total.clone(),
                false => d.input::<u32>(),
            };
            let (n, steps) = (d.scalar::<u32>(), d.scalar::<u32>());
            scan_chunk::expand(d.scope(), x, sums, out, total, n, steps, scan);
        },
    )
}

fn pack_kernel(profile: FloatProfile, vectors: bool) -> Kernel {
    Kernel::new(
        "scan_pack",
        profile,
        (UNITS, vectors),
        CubeDim::new_1d(UNITS),
        move |d| {
            let x = wide_input(d, vectors);
            let (bits, counts) = (d.output::<u32>(), d.output::<u32>());
            let (n, steps) = (d.scalar::<u32>(), d.scalar::<u32>());
            pack::expand(d.scope(), x, bits, counts, n, steps);
        },
    )
}

fn place_kernel(profile: FloatProfile, partition: bool) -> Kernel {
    Kernel::new(
        "scan_place",
        profile,
        (UNITS, partition),
        CubeDim::new_1d(UNITS),
        move |d| {
            let (bits, counts, out) = (d.input::<u32>(), d.input::<u32>(), d.output::<u32>());
            let left = match partition {
                true => d.output::<u32>(),
                false => out.clone(),
            };
            let [n, steps, chunks] = [(); 3].map(|()| d.scalar::<u32>());
            place::expand(
                d.scope(),
                bits,
                counts,
                out,
                left,
                n,
                steps,
                chunks,
                partition,
            );
        },
    )
}

pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let mut kernels = Vec::new();
    for vectors in [false, true] {
        kernels.extend([sums_kernel(profile, vectors), pack_kernel(profile, vectors)]);
        for (inclusive, alone) in [(false, false), (false, true), (true, false), (true, true)] {
            let scan = Scan {
                inclusive,
                alone,
                vectors,
            };
            kernels.push(scan_kernel(profile, scan));
        }
    }
    kernels.extend([false, true].map(|partition| place_kernel(profile, partition)));
    kernels
}

/// How many steps make a chunk, and how many chunks that makes.
#[derive(Clone, Copy, Debug)]
struct Shares {
    steps: usize,
    chunks: usize,
}

impl Shares {
    /// Of `n` elements, `step` to a step, in at most `chunks`.
    fn new(n: usize, step: usize, chunks: usize) -> Self {
        let all = n.div_ceil(step).max(1);
        let steps = all.div_ceil(chunks);
        Self {
            steps,
            chunks: all.div_ceil(steps),
        }
    }

    fn grid(self) -> (u32, u32, u32) {
        (self.chunks as u32, 1, 1)
    }
}

/// Prefix sums and their total; `x` is on a GPU.
pub(crate) fn scan<T: Integer>(x: &Buffer<T>, inclusive: bool) -> Result<(Buffer<T>, Buffer<T>)> {
    scan_in(x, inclusive, CHUNKS)
}

/// [`scan`] in at most so many chunks.
pub(super) fn scan_in<T: Integer>(
    x: &Buffer<T>,
    inclusive: bool,
    chunks: usize,
) -> Result<(Buffer<T>, Buffer<T>)> {
    let device = x.device();
    let profile = device.profile()?;
    let out = device.empty::<T>(x.len())?;
    if x.is_empty() {
        return Ok((out, device.upload(&[T::default()])?));
    }
    let mut total = device.empty::<T>(1)?;
    let n = x.len() as u32;
    let vectors = x.len() % 4 == 0;
    let width = if vectors { 4 } else { 1 };
    let alone = x.len() <= FEW.min(chunks) * STEP;
    let shares = Shares::new(x.len(), STEP, if alone { 1 } else { chunks });
    let kernel = scan_kernel(
        profile,
        Scan {
            inclusive,
            alone,
            vectors,
        },
    );
    let steps = shares.steps as u32;
    if alone {
        device.launch(
            &kernel,
            shares.grid(),
            args![x.vectors(width), out.vectors(width), &mut total, n, steps],
        )?;
        return Ok((out, total));
    }
    let mut sums = device.empty::<T>(shares.chunks)?;
    device.launch(
        &sums_kernel(profile, vectors),
        shares.grid(),
        args![x.vectors(width), &mut sums, n, steps],
    )?;
    device.launch(
        &kernel,
        shares.grid(),
        args![
            x.vectors(width),
            out.vectors(width),
            &mut total,
            &sums,
            n,
            steps
        ],
    )?;
    Ok((out, total))
}

/// Flags as bits, and how many of each chunk are set.
struct Bits {
    bits: Buffer<u32>,
    counts: Buffer<u32>,
    shares: Shares,
}

fn packed(flags: &Buffer<u32>, chunks: usize) -> Result<Bits> {
    let device = flags.device();
    let shares = Shares::new(flags.len(), PACK, chunks);
    let mut bits = device.empty::<u32>(flags.len().div_ceil(PACK) * UNITS as usize)?;
    let mut counts = device.empty::<u32>(shares.chunks)?;
    let vectors = flags.len() % 4 == 0;
    device.launch(
        &pack_kernel(device.profile()?, vectors),
        shares.grid(),
        args![
            flags.vectors(if vectors { 4 } else { 1 }),
            &mut bits,
            &mut counts,
            flags.len() as u32,
            shares.steps as u32
        ],
    )?;
    Ok(Bits {
        bits,
        counts,
        shares,
    })
}

fn place_all(
    device: &Device,
    packed: &Bits,
    n: usize,
    out: &mut Buffer<u32>,
    left: Option<&mut Buffer<u32>>,
) -> Result<()> {
    let kernel = place_kernel(device.profile()?, left.is_some());
    let Bits {
        bits,
        counts,
        shares,
    } = packed;
    let mut arguments = vec![Arg::from(bits), Arg::from(counts), Arg::from(out)];
    arguments.extend(left.map(Arg::from));
    arguments.extend([n, shares.steps, shares.chunks].map(|n| Arg::from(n as u32)));
    device.launch(&kernel, shares.grid(), &arguments)
}

pub(crate) fn compact(flags: &Buffer<u32>) -> Result<Buffer<u32>> {
    compact_in(flags, CHUNKS)
}

pub(super) fn compact_in(flags: &Buffer<u32>, chunks: usize) -> Result<Buffer<u32>> {
    let device = flags.device();
    if flags.is_empty() {
        return device.empty(0);
    }
    let bits = packed(flags, chunks)?;
    let found: u32 = device.read(&bits.counts)?.iter().sum();
    let mut out = device.empty::<u32>(found as usize)?;
    if found != 0 {
        place_all(device, &bits, flags.len(), &mut out, None)?;
    }
    Ok(out)
}

pub(crate) fn partition(flags: &Buffer<u32>) -> Result<Partition> {
    partition_in(flags, CHUNKS)
}

pub(super) fn partition_in(flags: &Buffer<u32>, chunks: usize) -> Result<Partition> {
    let device = flags.device();
    let mut indices = device.empty::<u32>(flags.len())?;
    if flags.is_empty() {
        let left = device.upload(&[0])?;
        return Ok(Partition { indices, left });
    }
    let mut left = device.empty::<u32>(1)?;
    let bits = packed(flags, chunks)?;
    place_all(device, &bits, flags.len(), &mut indices, Some(&mut left))?;
    Ok(Partition { indices, left })
}
