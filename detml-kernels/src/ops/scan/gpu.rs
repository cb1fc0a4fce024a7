//! Reduce, scan, scan: sums of tiles, their scan (by the same kernels), then every tile from its
//! own base. No cube waits for another, which not every target lets it.

use super::{Integer, Partition};
use crate::device::{Buffer, Element, Kernel, args};
use crate::ieee::FloatProfile;
use crate::ops::{grid, tile::cube_scan};
use cubecl::prelude::*;
use detml_core::Result;

const UNITS: u32 = 256;
const ITEMS: u32 = 8;
const TILE: usize = (UNITS * ITEMS) as usize;

/// What a tile's scan writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Write {
    Exclusive,
    Inclusive,
    /// Indices of flags at their rank.
    Compact,
    /// As `Compact`, and the other indices behind the last rank.
    Partition,
}

impl Write {
    const fn flags(self) -> bool {
        matches!(self, Self::Compact | Self::Partition)
    }
}

/// Where a tile's base comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Base {
    /// It is 0: the only tile, which also writes the total.
    Zero,
    /// From the scan of the tiles' sums.
    Scanned,
}

#[cube]
fn load(x: &Array<u32>, i: usize, n: u32, #[comptime] flags: bool) -> u32 {
    let mut value = 0u32;
    if i < n as usize {
        value = x[i];
        if comptime!(flags) && value != 0u32 {
            value = 1u32;
        }
    }
    value
}

#[cube]
fn sums(x: &Array<u32>, out: &mut Array<u32>, n: u32, #[comptime] flags: bool) {
    let mut scratch = SharedMemory::<u32>::new(comptime!(2 * UNITS as usize));
    let start = CUBE_POS * TILE + UNIT_POS as usize;
    let mut sum = 0u32;
    for j in 0..ITEMS {
        sum += load(x, start + (j * UNITS) as usize, n, flags);
    }
    let (_, total) = cube_scan(sum, &mut scratch, UNITS);
    if UNIT_POS == 0 && CUBE_POS < out.len() {
        out[CUBE_POS] = total;
    }
}

/// Tiles pass through shared memory, so that global memory is read in stripes while each unit
/// owns neighbours; one word of padding in nine keeps both free of bank conflicts.
#[cube]
#[allow(clippy::collapsible_if)] // the outer one is decided when the kernel is made
fn scan_tile(
    x: &Array<u32>,
    bases: &Array<u32>,
    out: &mut Array<u32>,
    total: &mut Array<u32>,
    n: u32,
    #[comptime] write: Write,
    #[comptime] base: Base,
) {
    let mut scratch = SharedMemory::<u32>::new(comptime!(2 * UNITS as usize));
    let mut tile = SharedMemory::<u32>::new(comptime!((UNITS * (ITEMS + 1)) as usize));
    let unit = UNIT_POS as usize;
    let start = CUBE_POS * TILE;
    for j in 0..ITEMS {
        let p = (j * UNITS) as usize + unit;
        tile[p + p / comptime!(ITEMS as usize)] = load(x, start + p, n, comptime!(write.flags()));
    }
    sync_cube();
    let own = unit * comptime!((ITEMS + 1) as usize);
    let mut sum = 0u32;
    for j in 0..ITEMS {
        sum += tile[own + j as usize];
    }
    let (before, sum) = cube_scan(sum, &mut scratch, UNITS);
    let mut running = before;
    if comptime!(base == Base::Scanned) {
        if CUBE_POS < bases.len() {
            running += bases[CUBE_POS];
        }
    } else if UNIT_POS == 0 {
        total[0] = sum;
    }
    if comptime!(write.flags()) {
        for j in 0..ITEMS {
            let i = start + unit * comptime!(ITEMS as usize) + j as usize;
            let flag = tile[own + j as usize];
            if flag != 0u32 {
                out[running as usize] = i as u32;
            } else if comptime!(write == Write::Partition) {
                if i < n as usize {
                    out[(total[0] + (i as u32 - running)) as usize] = i as u32;
                }
            }
            running += flag;
        }
    } else {
        for j in 0..ITEMS {
            let p = own + j as usize;
            let before = running;
            running += tile[p];
            if comptime!(write == Write::Inclusive) {
                tile[p] = running;
            } else {
                tile[p] = before;
            }
        }
        sync_cube();
        for j in 0..ITEMS {
            let p = (j * UNITS) as usize + unit;
            let i = start + p;
            if i < n as usize {
                out[i] = tile[p + p / comptime!(ITEMS as usize)];
            }
        }
    }
}

fn sums_kernel(profile: FloatProfile, flags: bool) -> Kernel {
    Kernel::new(
        "scan_sums",
        profile,
        (UNITS, ITEMS, flags),
        CubeDim::new_1d(UNITS),
        move |d| {
            let (x, out, n) = (d.input::<u32>(), d.output::<u32>(), d.scalar::<u32>());
            sums::expand(d.scope(), x, out, n, flags);
        },
    )
}

fn tile_kernel(profile: FloatProfile, write: Write, base: Base) -> Kernel {
    Kernel::new(
        "scan_tile",
        profile,
        (UNITS, ITEMS, write, base),
        CubeDim::new_1d(UNITS),
        move |d| {
            let x = d.input::<u32>();
            let out = d.output::<u32>();
            // What a variant doesn't use is not among its arguments.
            let bases = match base {
                Base::Zero => x.clone(),
                Base::Scanned => d.input::<u32>(),
            };
            let total = match (base, write) {
                (Base::Zero, _) => d.output::<u32>(),
                (_, Write::Partition) => d.input::<u32>(),
                _ => out.clone(),
            };
            let n = d.scalar::<u32>();
            scan_tile::expand(d.scope(), x, bases, out, total, n, write, base);
        },
    )
}

pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    vec![
        sums_kernel(profile, false),
        sums_kernel(profile, true),
        tile_kernel(profile, Write::Exclusive, Base::Zero),
        tile_kernel(profile, Write::Inclusive, Base::Zero),
        tile_kernel(profile, Write::Exclusive, Base::Scanned),
        tile_kernel(profile, Write::Inclusive, Base::Scanned),
        tile_kernel(profile, Write::Compact, Base::Scanned),
        tile_kernel(profile, Write::Partition, Base::Scanned),
    ]
}

fn tile_sums<T: Element>(x: &Buffer<T>, flags: bool) -> Result<Buffer<T>> {
    let device = x.device();
    let tiles = x.len().div_ceil(TILE);
    let mut sums = device.empty::<T>(tiles)?;
    device.launch(
        &sums_kernel(device.profile()?, flags),
        grid(x.len(), TILE)?,
        args![x, &mut sums, x.len() as u32],
    )?;
    Ok(sums)
}

/// Prefix sums and their total; `x` is on a GPU.
pub(crate) fn scan<T: Integer>(x: &Buffer<T>, inclusive: bool) -> Result<(Buffer<T>, Buffer<T>)> {
    let device = x.device();
    let profile = device.profile()?;
    let write = if inclusive {
        Write::Inclusive
    } else {
        Write::Exclusive
    };
    let n = x.len() as u32;
    let tiles = x.len().div_ceil(TILE);
    let mut out = device.empty::<T>(x.len())?;
    match tiles {
        0 => Ok((out, device.upload(&[T::default()])?)),
        1 => {
            let mut total = device.empty::<T>(1)?;
            device.launch(
                &tile_kernel(profile, write, Base::Zero),
                (1, 1, 1),
                args![x, &mut out, &mut total, n],
            )?;
            Ok((out, total))
        }
        _ => {
            let (bases, total) = scan(&tile_sums(x, false)?, false)?;
            device.launch(
                &tile_kernel(profile, write, Base::Scanned),
                grid(x.len(), TILE)?,
                args![x, &mut out, &bases, n],
            )?;
            Ok((out, total))
        }
    }
}

pub(crate) fn compact(flags: &Buffer<u32>) -> Result<Buffer<u32>> {
    let device = flags.device();
    if flags.is_empty() {
        return device.empty(0);
    }
    let (bases, total) = scan(&tile_sums(flags, true)?, false)?;
    let found = device.read(&total)?.first().copied().unwrap_or(0);
    let mut out = device.empty::<u32>(found as usize)?;
    if found != 0 {
        device.launch(
            &tile_kernel(device.profile()?, Write::Compact, Base::Scanned),
            grid(flags.len(), TILE)?,
            args![flags, &mut out, &bases, flags.len() as u32],
        )?;
    }
    Ok(out)
}

pub(crate) fn partition(flags: &Buffer<u32>) -> Result<Partition> {
    let device = flags.device();
    let mut indices = device.empty::<u32>(flags.len())?;
    if flags.is_empty() {
        let left = device.upload(&[0])?;
        return Ok(Partition { indices, left });
    }
    let (bases, left) = scan(&tile_sums(flags, true)?, false)?;
    device.launch(
        &tile_kernel(device.profile()?, Write::Partition, Base::Scanned),
        grid(flags.len(), TILE)?,
        args![flags, &mut indices, &bases, &left, flags.len() as u32],
    )?;
    Ok(Partition { indices, left })
}
