//! Histograms of quantised gradients: integer sums, gathered in a cube's shared memory and then
//! merged, so exact in whatever order (`N9`).

use super::layout::*;
use crate::device::Kernel;
use crate::ieee::FloatProfile;
use crate::ops::histogram::carry;
use crate::prim;
use crate::wide::I64;
use cubecl::prelude::*;

/// What the lower words of gradients' sums start from, so that a sum that changes its sign doesn't
/// carry.
const BIAS: u32 = 1 << 31;

/// Adds a number to the sums of a bin, `high` and `low` their places in shared memory.
#[cube]
fn add_near(near: &mut SharedMemory<Atomic<u32>>, high: u32, low: u32, x: u32) {
    let old = near[low as usize].fetch_add(x);
    let more = carry(old, x, 0u32 - (x >> 31u32));
    if more != 0u32 {
        near[high as usize].fetch_add(more);
    }
}

#[cube]
fn merge(
    near: &SharedMemory<Atomic<u32>>,
    sums: &mut Array<Atomic<u32>>,
    at: u32,
    to: u32,
    #[comptime] high: u32,
    #[comptime] low: u32,
) {
    let low_word = near[(at + comptime!(low * UNITS)) as usize].load();
    let high_word = near[(at + comptime!(high * UNITS)) as usize].load();
    let bias = comptime!(if low == G_LOW { BIAS } else { 0 });
    let sum = I64::new(
        high_word - prim::select_u32(low_word < bias, 1u32, 0u32),
        low_word - bias,
    );
    if !sum.is_zero() {
        add_wide(
            sums,
            to + comptime!(high * UNITS),
            to + comptime!(low * UNITS),
            sum,
        );
    }
}

/// Builds the histograms of a level's nodes `first..first + batch`, of `both` children of a parent
/// or of the one with fewer rows (the left one of equals). A cube takes a chunk of a node's rows
/// and the four features of each of `group` words.
#[cube]
fn build(
    codes: &Array<u32>,
    fixed: &Array<u32>,
    rows: &Array<u32>,
    pairs: &Array<u32>,
    sizes: &Array<u32>,
    state: &Array<u32>,
    mask: &Array<u32>,
    histograms: &mut Array<Atomic<u32>>,
    n: u32,
    words: u32,
    level: u32,
    first: u32,
    batch: u32,
    stride: u32,
    chunk: u32,
    both: u32,
    #[comptime] group: u32,
    #[comptime] held: u32,
) {
    let mut near =
        SharedMemory::<Atomic<u32>>::new(comptime!((4 * group * FEATURE_WORDS) as usize));
    let groups = words.div_ceil(group);
    let word = (CUBE_POS as u32 % groups) * group;
    let column = CHUNKS * stride;
    let first_pair = first / 2u32;
    let pairs_here = (state[(level * STATE) as usize] + 1u32) / 2u32;
    let last_pair = (first + batch + 1u32) / 2u32;
    let end = prim::select_u32(last_pair < pairs_here, last_pair, pairs_here);
    // Which chunk of which node this is; no rows for a cube beyond the last.
    let mut node = 0u32;
    let mut start = 0u32;
    let mut size = 0u32;
    if first_pair < end {
        let item = CUBE_POS as u32 / groups + pairs[(column + first_pair) as usize];
        if item < pairs[(column + end) as usize] {
            let pair = find_pair(pairs, column, first_pair, end, item);
            let before = pairs[(column + pair) as usize];
            let left = sizes[(2u32 * pair) as usize];
            let right = sizes[(2u32 * pair + 1u32) as usize];
            let mut j = item - before;
            let mut is_right = right < left;
            let mut share = chunk;
            if both != 0u32 {
                let of_left = left.div_ceil(chunk);
                is_right = j >= of_left;
                j -= prim::select_u32(is_right, of_left, 0u32);
            } else {
                // As many chunks as half of the parent's rows would need.
                let chunks = pairs[(column + pair + 1u32) as usize] - before;
                share = prim::select_u32(is_right, right, left).div_ceil(chunks);
            }
            let all = prim::select_u32(is_right, right, left);
            let from = j * share;
            if from < all {
                size = prim::select_u32(all - from < share, all - from, share);
            }
            node = 2u32 * pair + prim::select_u32(is_right, 1u32, 0u32) - first;
            start = pairs[(START * stride + pair) as usize]
                + prim::select_u32(is_right, left, 0u32)
                + from;
        }
    }
    // A bit for each feature that the tree draws from.
    let mut wanted = 0u32;
    for k in 0..comptime!(4 * group) {
        let feature = word * 4u32 + k;
        // Not `&&`, which would read beyond the mask: kernels evaluate both sides.
        if feature < words * 4u32 {
            wanted |= prim::select_u32(mask[feature as usize] != 0u32, 1u32 << k, 0u32);
        }
    }
    if size != 0u32 && wanted != 0u32 {
        for k in 0..comptime!(16 * group) {
            // Not a store: CubeCL's SPIR-V path may drop it.
            let low = k % 4u32 == G_LOW;
            near[(k * UNITS + UNIT_POS) as usize].swap(prim::select_u32(low, BIAS, 0u32));
        }
        sync_cube();
        // All units go through the loop equally often: see the histogram operation.
        let mut g = Array::<u32>::new(comptime!(held as usize));
        let mut h = Array::<u32>::new(comptime!(held as usize));
        let mut fours = Array::<u32>::new(comptime!((held * group) as usize));
        for step in 0..size.div_ceil(comptime!(held * UNITS)) {
            let first = step * comptime!(held * UNITS) + UNIT_POS;
            // All reads before the atomics, which nothing may be read across.
            #[unroll]
            for r in 0..held {
                let i = first + r * UNITS;
                // A row beyond the last is read and not added.
                let row = rows[(start + prim::select_u32(i < size, i, 0u32)) as usize];
                g[r as usize] = fixed[(2u32 * row) as usize];
                h[r as usize] = fixed[(2u32 * row + 1u32) as usize];
                #[unroll]
                for w in 0..group {
                    let mut four = 0u32;
                    if word + w < words {
                        four = codes[((word + w) * n + row) as usize];
                    }
                    fours[comptime!((r * group + w) as usize)] = four;
                }
            }
            #[unroll]
            for r in 0..held {
                if first + r * UNITS < size {
                    #[unroll]
                    for w in 0..group {
                        let four = fours[comptime!((r * group + w) as usize)];
                        #[unroll]
                        for k in 0..4u32 {
                            let feature = comptime!(4 * w + k);
                            if (wanted & comptime!(1u32 << feature)) != 0u32 {
                                let bin = (four >> comptime!(8 * k)) & 255u32;
                                let at = comptime!(feature * FEATURE_WORDS) + bin;
                                let g_at = at + comptime!(G_HIGH * UNITS);
                                let g_low = at + comptime!(G_LOW * UNITS);
                                add_near(&mut near, g_at, g_low, g[r as usize]);
                                let h_at = at + comptime!(H_HIGH * UNITS);
                                let h_low = at + comptime!(H_LOW * UNITS);
                                add_near(&mut near, h_at, h_low, h[r as usize]);
                            }
                        }
                    }
                }
            }
        }
        sync_cube();
        let to = (node * words + word) * comptime!(4 * FEATURE_WORDS);
        for k in 0..comptime!(4 * group) {
            if ((wanted >> k) & 1u32) != 0u32 {
                let at = k * FEATURE_WORDS + UNIT_POS;
                merge(&near, histograms, at, to + at, G_HIGH, G_LOW);
                merge(&near, histograms, at, to + at, H_HIGH, H_LOW);
            }
        }
    }
}

#[cube]
fn clear_words(words: &mut Array<u32>, count: u32) {
    clear(words, count);
}

/// `group` words of features a cube, `held` rows that a unit reads before it adds them.
pub(super) fn build_kernel(profile: FloatProfile, group: u32, held: u32) -> Kernel {
    Kernel::new(
        "boosting_histogram",
        profile,
        (group, held),
        cube(),
        move |d| {
            let (codes, fixed, rows) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
            let (pairs, sizes) = (d.input::<u32>(), d.input::<u32>());
            let (state, mask) = (d.input::<u32>(), d.input::<u32>());
            let histograms = d.output::<Atomic<u32>>();
            let (n, words, level) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
            let (first, batch) = (d.scalar::<u32>(), d.scalar::<u32>());
            let (stride, chunk, both) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
            build::expand(
                d.scope(),
                codes,
                fixed,
                rows,
                pairs,
                sizes,
                state,
                mask,
                histograms,
                n,
                words,
                level,
                first,
                batch,
                stride,
                chunk,
                both,
                group,
                held,
            );
        },
    )
}

pub(super) fn clear_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_clear", profile, (), cube(), |d| {
        let words = d.output::<u32>();
        let count = d.scalar::<u32>();
        clear_words::expand(d.scope(), words, count);
    })
}
