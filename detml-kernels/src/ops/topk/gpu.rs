//! Tiles of a row are sorted by a network over pairs of rank and index, no two of which are
//! equal; the first `k` of each tile are the next, shorter row, until one tile is left.

use super::TopK;
use crate::device::{Arg, Buffer, Kernel, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::grid;
use crate::ops::order::{rank, stored};
use crate::ops::sort::{self, Key, Order};
use cubecl::prelude::*;
use detml_core::Result;

/// Keys of the largest tile.
const LARGEST: u32 = 2048;
const SMALLEST: u32 = 64;
/// A tile must at least halve the row; above, the row is sorted.
const MAX_K: usize = LARGEST as usize / 2;

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
    }
    kernels
}

pub(crate) fn topk<K: Key>(
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
