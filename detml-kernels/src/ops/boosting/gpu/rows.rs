//! Kernels over rows: gradients, their scales, row lists and margins.

use super::super::Loss;
use super::super::arith::*;
use super::super::formulas::*;
use super::layout::*;
use crate::device::Kernel;
use crate::ieee::{FloatProfile, Ieee};
use crate::math::{exp, sigmoid};
use crate::ops::tile::cube_scan;
use crate::prim;
use crate::random::Philox;
use crate::wide::I64;
use cubecl::prelude::*;

/// How margins become gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Link {
    Squared,
    Logistic,
    Softmax,
    SquaredTargets,
    Absolute,
    Quantile,
    Mape,
    Huber,
    PseudoHuber,
    Expectile,
    Poisson,
    Gamma,
    Tweedie,
    SquaredLog,
    OneVsAll,
}

impl Link {
    pub(super) const ALL: [Self; 15] = [
        Self::Squared,
        Self::Logistic,
        Self::Softmax,
        Self::SquaredTargets,
        Self::Absolute,
        Self::Quantile,
        Self::Mape,
        Self::Huber,
        Self::PseudoHuber,
        Self::Expectile,
        Self::Poisson,
        Self::Gamma,
        Self::Tweedie,
        Self::SquaredLog,
        Self::OneVsAll,
    ];

    /// `None` where gradients come from outside.
    pub(super) fn of(loss: Loss) -> Option<Self> {
        Some(match loss {
            Loss::Squared => Self::Squared,
            Loss::SquaredTargets { .. } => Self::SquaredTargets,
            Loss::Absolute => Self::Absolute,
            Loss::Quantile { .. } => Self::Quantile,
            Loss::Mape => Self::Mape,
            Loss::Huber { .. } => Self::Huber,
            Loss::PseudoHuber { .. } => Self::PseudoHuber,
            Loss::Expectile { .. } => Self::Expectile,
            Loss::Poisson { .. } => Self::Poisson,
            Loss::Gamma => Self::Gamma,
            Loss::Tweedie { .. } => Self::Tweedie,
            Loss::SquaredLog => Self::SquaredLog,
            Loss::Logistic => Self::Logistic,
            Loss::OneVsAll { .. } => Self::OneVsAll,
            Loss::Softmax { .. } => Self::Softmax,
            Loss::Given => return None,
        })
    }

    /// Whether the kernel takes a parameter, its last argument.
    fn has_parameter(self) -> bool {
        matches!(
            self,
            Self::Quantile
                | Self::Huber
                | Self::PseudoHuber
                | Self::Expectile
                | Self::Poisson
                | Self::Tweedie
        )
    }
}

#[cube]
fn gradient(
    ieee: &Ieee,
    margins: &Array<f32>,
    row: u32,
    output: u32,
    n: u32,
    outputs: u32,
    y: f32,
    w: f32,
    parameter: f32,
    #[comptime] link: Link,
) -> Gradient {
    let own = margins[(output * n + row) as usize];
    if comptime!(matches!(link, Link::Squared | Link::SquaredTargets)) {
        squared_gradient(ieee, own, y, w)
    } else if comptime!(link == Link::Logistic) {
        logistic_gradient(ieee, sigmoid(ieee, own), y, w)
    } else if comptime!(link == Link::Absolute) {
        absolute_gradient(ieee, own, y, w)
    } else if comptime!(link == Link::Quantile) {
        quantile_gradient(ieee, own, y, w, parameter)
    } else if comptime!(link == Link::Mape) {
        mape_gradient(ieee, own, y, w)
    } else if comptime!(link == Link::Huber) {
        huber_gradient(ieee, own, y, w, parameter)
    } else if comptime!(link == Link::PseudoHuber) {
        pseudo_huber_gradient(ieee, own, y, w, parameter)
    } else if comptime!(link == Link::Expectile) {
        expectile_gradient(ieee, own, y, w, parameter)
    } else if comptime!(link == Link::Poisson) {
        poisson_gradient(ieee, own, y, w, parameter)
    } else if comptime!(link == Link::Gamma) {
        gamma_gradient(ieee, own, y, w)
    } else if comptime!(link == Link::Tweedie) {
        tweedie_gradient(ieee, own, y, w, parameter)
    } else if comptime!(link == Link::SquaredLog) {
        squared_log_gradient(ieee, own, y, w)
    } else if comptime!(link == Link::OneVsAll) {
        let right = ieee.eq(y, ieee.from_u32(output));
        let y = prim::from_bits(prim::select_u32(right, 0x3f80_0000u32, 0u32));
        logistic_gradient(ieee, sigmoid(ieee, own), y, w)
    } else {
        let mut top = margins[row as usize];
        for k in 1..outputs {
            let margin = margins[(k * n + row) as usize];
            top = ieee.select(ieee.lt(top, margin), margin, top);
        }
        let mut sum = prim::from_bits(0u32);
        for k in 0..outputs {
            let margin = margins[(k * n + row) as usize];
            sum = ieee.add(sum, exp(ieee, ieee.sub(margin, top)));
        }
        let p = ieee.div(exp(ieee, ieee.sub(own, top)), sum);
        let right = ieee.eq(y, ieee.from_u32(output));
        let y = prim::from_bits(prim::select_u32(right, 0x3f80_0000u32, 0u32));
        softmax_gradient(ieee, p, y, w)
    }
}

/// Gradients and Hessians of all outputs, and the largest of each as bits: the order of
/// magnitudes is that of their bits.
#[cube]
fn gradients(
    ieee: Ieee,
    margins: &Array<f32>,
    targets: &Array<f32>,
    weights: &Array<f32>,
    g: &mut Array<f32>,
    h: &mut Array<f32>,
    largest: &mut Array<Atomic<u32>>,
    n: u32,
    outputs: u32,
    tiles: u32,
    parameter: f32,
    #[comptime] link: Link,
) {
    let near = SharedMemory::<Atomic<u32>>::new(2usize);
    if UNIT_POS < 2u32 {
        // Not a store: CubeCL's SPIR-V path may drop it.
        near[UNIT_POS as usize].swap(0u32);
    }
    sync_cube();
    let output = CUBE_POS as u32 / tiles;
    let first = (CUBE_POS as u32 % tiles) * TILE;
    let mut most_g = 0u32;
    let mut most_h = 0u32;
    for j in 0..ITEMS {
        let row = first + j * UNITS + UNIT_POS;
        if row < n && output < outputs {
            let at = (output * n + row) as usize;
            let mut of = row as usize;
            if comptime!(link == Link::SquaredTargets) {
                of = at;
            }
            let y = targets[of];
            let w = weights[row as usize];
            let x = gradient(
                &ieee, margins, row, output, n, outputs, y, w, parameter, link,
            );
            g[at] = x.g;
            h[at] = x.h;
            let size_g = prim::bits(ieee.abs(x.g));
            let size_h = prim::bits(ieee.abs(x.h));
            most_g = prim::select_u32(size_g > most_g, size_g, most_g);
            most_h = prim::select_u32(size_h > most_h, size_h, most_h);
        }
    }
    near[0].fetch_max(most_g);
    near[1].fetch_max(most_h);
    sync_cube();
    if UNIT_POS < 2u32 && output < outputs {
        largest[(output * 2u32 + UNIT_POS) as usize].fetch_max(near[UNIT_POS as usize].load());
    }
}

/// Makes the scales of all outputs from their largest gradients, which it takes; notes a round
/// that has some that are not finite.
#[cube]
fn scales(
    ieee: Ieee,
    largest: &mut Array<Atomic<u32>>,
    scales: &mut Array<u32>,
    status: &mut Array<Atomic<u32>>,
    outputs: u32,
    round: u32,
    lambda: f32,
    alpha: f32,
    gamma: f32,
    min_weight: f32,
) {
    let output = ABSOLUTE_POS as u32;
    if output < outputs {
        let g = largest[(output * 2u32) as usize].swap(0u32);
        let h = largest[(output * 2u32 + 1u32) as usize].swap(0u32);
        if g >= 0x7f80_0000u32 || h >= 0x7f80_0000u32 {
            // The margins stay as they are from now on, so that later rounds fail in the same way.
            status[0].fetch_min(round);
            status[1].fetch_min(output);
        }
        let sg = shift_of(&ieee, g);
        let sh = shift_of(&ieee, h);
        let p = scale_penalty(
            &ieee,
            &Penalty {
                lambda,
                alpha,
                gamma,
                min_weight,
            },
            sg,
            sh,
        );
        let at = output * SCALE;
        scales[(at + SHIFT_G) as usize] = prim::as_u32(sg);
        scales[(at + SHIFT_H) as usize] = prim::as_u32(sh);
        scales[(at + HALF_G) as usize] = prim::bits(half_factor(&ieee, sg));
        scales[(at + LAST_G) as usize] = prim::bits(last_factor(&ieee, sg));
        scales[(at + HALF_H) as usize] = prim::bits(half_factor(&ieee, sh));
        scales[(at + LAST_H) as usize] = prim::bits(last_factor(&ieee, sh));
        scales[(at + LAMBDA) as usize] = prim::bits(p.lambda);
        scales[(at + ALPHA) as usize] = prim::bits(p.alpha);
        scales[(at + GAMMA) as usize] = prim::bits(p.gamma);
        scales[(at + MIN_WEIGHT) as usize] = prim::bits(p.min_weight);
    }
}

/// The sum over the units of a cube, for unit 0.
#[cube]
pub(super) fn cube_sum(
    value: I64,
    high: &mut SharedMemory<u32>,
    low: &mut SharedMemory<u32>,
) -> I64 {
    let unit = UNIT_POS as usize;
    high[unit] = value.hi;
    low[unit] = value.lo;
    let mut distance = comptime!(UNITS / 2).runtime();
    for _ in 0..comptime!(UNITS.ilog2()) {
        sync_cube();
        if UNIT_POS < distance {
            let other = unit + distance as usize;
            let sum = I64::new(high[unit], low[unit]).add(I64::new(high[other], low[other]));
            high[unit] = sum.hi;
            low[unit] = sum.lo;
        }
        distance >>= 1u32;
    }
    sync_cube();
    I64::new(high[0], low[0])
}

/// Quantises the gradients of an output, puts the drawn rows at the root in whatever order, adds
/// them up, and zeroes the root's histograms.
#[cube]
fn quantise_rows(
    ieee: Ieee,
    g: &Array<f32>,
    h: &Array<f32>,
    scales: &Array<u32>,
    fixed: &mut Array<u32>,
    rows: &mut Array<u32>,
    root: &mut Array<Atomic<u32>>,
    histograms: &mut Array<u32>,
    n: u32,
    output: u32,
    cleared: u32,
    draws: Philox,
    limit: u32,
    #[comptime] sampled: bool,
) {
    let mut scratch = SharedMemory::<u32>::new(comptime!(2 * UNITS as usize));
    let mut other = SharedMemory::<u32>::new(comptime!(UNITS as usize));
    clear(histograms, cleared);
    let at = output * SCALE;
    let half_g = prim::from_bits(scales[(at + HALF_G) as usize]);
    let last_g = prim::from_bits(scales[(at + LAST_G) as usize]);
    let half_h = prim::from_bits(scales[(at + HALF_H) as usize]);
    let last_h = prim::from_bits(scales[(at + LAST_H) as usize]);
    let first = CUBE_POS as u32 * TILE;
    let mut g_high = 0u32;
    let mut g_low = 0u32;
    let mut h_high = 0u32;
    let mut h_low = 0u32;
    let mut drawn = 0u32;
    let mut count = 0u32;
    for j in 0..ITEMS {
        let row = first + j * UNITS + UNIT_POS;
        if row < n {
            let mut holds = true;
            if comptime!(sampled) {
                holds = draws.word(row, 0u32) < limit;
            }
            if holds {
                drawn |= 1u32 << j;
                count += 1u32;
                let from = (output * n + row) as usize;
                let x = quantise(&ieee, g[from], half_g, last_g);
                let y = quantise(&ieee, h[from], half_h, last_h);
                fixed[(2u32 * row) as usize] = prim::as_u32(x);
                fixed[(2u32 * row + 1u32) as usize] = prim::as_u32(y);
                let sum = I64::new(g_high, g_low).add(I64::from_i32(x));
                g_high = sum.hi;
                g_low = sum.lo;
                let sum = I64::new(h_high, h_low).add(I64::from_i32(y));
                h_high = sum.hi;
                h_low = sum.lo;
            }
        }
    }
    let sum_g = cube_sum(I64::new(g_high, g_low), &mut scratch, &mut other);
    sync_cube();
    let sum_h = cube_sum(I64::new(h_high, h_low), &mut scratch, &mut other);
    sync_cube();
    let (before, total) = cube_scan(count, &mut scratch, UNITS);
    if UNIT_POS == 0u32 {
        add_wide(root, G_HIGH, G_LOW, sum_g);
        add_wide(root, H_HIGH, H_LOW, sum_h);
        other[0] = root[DRAWN as usize].fetch_add(total);
    }
    sync_cube();
    let mut to = other[0] + before;
    for j in 0..ITEMS {
        if ((drawn >> j) & 1u32) != 0u32 {
            rows[to as usize] = first + j * UNITS + UNIT_POS;
            to += 1u32;
        }
    }
}

/// Moves the rows of the nodes that were split to their children, and zeroes the histograms of
/// `kept` of these at most.
///
/// The left child's rows grow from the start of the parent's, the right child's from the end, so
/// that no cube needs to know how many there will be. Their order is free: sums are exact.
#[cube]
fn partition(
    codes: &Array<u32>,
    rows: &Array<u32>,
    moved: &mut Array<u32>,
    pairs: &Array<u32>,
    sizes: &mut Array<Atomic<u32>>,
    state: &Array<u32>,
    histograms: &mut Array<u32>,
    n: u32,
    level: u32,
    stride: u32,
    node_words: u32,
    kept: u32,
) {
    let mut scratch = SharedMemory::<u32>::new(comptime!(2 * UNITS as usize));
    let mut bases = SharedMemory::<u32>::new(2usize);
    let nodes = state[(level * STATE) as usize];
    clear(
        histograms,
        prim::select_u32(nodes < kept, nodes, kept) * node_words,
    );
    let tile = CUBE_POS as u32;
    let column = TILES * stride;
    let end = nodes / 2u32;
    let mut pair = 0u32;
    let mut start = 0u32;
    let mut size = 0u32;
    let mut first = 0u32;
    if tile < pairs[(column + end) as usize] {
        pair = find_pair(pairs, column, 0u32, end, tile);
        start = pairs[(START * stride + pair) as usize];
        size = pairs[(ROWS * stride + pair) as usize];
        first = (tile - pairs[(column + pair) as usize]) * TILE;
    }
    let feature = pairs[(PAIR_FEATURE * stride + pair) as usize];
    let split = pairs[(PAIR_SPLIT * stride + pair) as usize];
    let mut left = 0u32;
    // Left rows in the lower half, right rows in the upper one: neither exceeds a tile.
    let mut counts = 0u32;
    for j in 0..ITEMS {
        let i = first + j * UNITS + UNIT_POS;
        if i < size {
            let code = code_of(codes, n, rows[(start + i) as usize], feature);
            if goes_left(code, split) {
                left |= 1u32 << j;
                counts += 1u32;
            } else {
                counts += 0x1_0000u32;
            }
        }
    }
    let (before, total) = cube_scan(counts, &mut scratch, UNITS);
    if UNIT_POS == 0u32 && total != 0u32 {
        let at = (2u32 * pair) as usize;
        bases[0] = sizes[at].fetch_add(total & 0xffffu32);
        bases[1] = sizes[at + 1usize].fetch_add(total >> 16u32);
    }
    sync_cube();
    let mut to_left = start + bases[0] + (before & 0xffffu32);
    let mut to_right = start + size - bases[1] - (before >> 16u32);
    for j in 0..ITEMS {
        let i = first + j * UNITS + UNIT_POS;
        if i < size {
            let row = rows[(start + i) as usize];
            if ((left >> j) & 1u32) != 0u32 {
                moved[to_left as usize] = row;
                to_left += 1u32;
            } else {
                to_right -= 1u32;
                moved[to_right as usize] = row;
            }
        }
    }
}

/// Adds a tree to the margins of an output, unless a round has failed.
#[cube]
fn follow(
    ieee: Ieee,
    codes: &Array<u32>,
    trees: &Array<u32>,
    status: &Array<u32>,
    margins: &mut Array<f32>,
    n: u32,
    tree: u32,
    output: u32,
) {
    let row = CUBE_POS as u32 * UNITS + UNIT_POS;
    if row < n && status[0] == FINE {
        let mut at = tree;
        let mut left = trees[(at + LEFT) as usize];
        while left != 0u32 {
            let code = code_of(codes, n, row, trees[(at + FEATURE) as usize]);
            let right = !goes_left(code, trees[(at + TREE_SPLIT) as usize]);
            at = tree + (left + prim::select_u32(right, 1u32, 0u32)) * TREE;
            left = trees[(at + LEFT) as usize];
        }
        let i = (output * n + row) as usize;
        margins[i] = ieee.add(margins[i], prim::from_bits(trees[(at + VALUE) as usize]));
    }
}

pub(super) fn gradients_kernel(profile: FloatProfile, link: Link) -> Kernel {
    Kernel::new("boosting_gradients", profile, link, cube(), move |d| {
        let ieee = d.ieee();
        let (margins, targets, weights) = (d.input::<f32>(), d.input::<f32>(), d.input::<f32>());
        let (g, h) = (d.output::<f32>(), d.output::<f32>());
        let largest = d.output::<Atomic<u32>>();
        let (n, outputs, tiles) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        let parameter = match link.has_parameter() {
            true => d.scalar::<f32>(),
            false => 0.0f32.into(),
        };
        gradients::expand(
            d.scope(),
            ieee,
            margins,
            targets,
            weights,
            g,
            h,
            largest,
            n,
            outputs,
            tiles,
            parameter,
            link,
        );
    })
}

pub(super) fn scales_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_scales", profile, (), cube(), |d| {
        let ieee = d.ieee();
        let largest = d.output::<Atomic<u32>>();
        let out = d.output::<u32>();
        let status = d.output::<Atomic<u32>>();
        let (outputs, round) = (d.scalar::<u32>(), d.scalar::<u32>());
        let (lambda, alpha) = (d.scalar::<f32>(), d.scalar::<f32>());
        let (gamma, min_weight) = (d.scalar::<f32>(), d.scalar::<f32>());
        scales::expand(
            d.scope(),
            ieee,
            largest,
            out,
            status,
            outputs,
            round,
            lambda,
            alpha,
            gamma,
            min_weight,
        );
    })
}

pub(super) fn quantise_kernel(profile: FloatProfile, sampled: bool) -> Kernel {
    Kernel::new("boosting_quantise", profile, sampled, cube(), move |d| {
        let ieee = d.ieee();
        let (g, h, scales) = (d.input::<f32>(), d.input::<f32>(), d.input::<u32>());
        let (fixed, rows) = (d.output::<u32>(), d.output::<u32>());
        let root = d.output::<Atomic<u32>>();
        let histograms = d.output::<u32>();
        let (n, output, cleared) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        let words = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        let limit = d.scalar::<u32>();
        let draws = Philox::__expand_from_words(d.scope(), words.0, words.1, words.2);
        quantise_rows::expand(
            d.scope(),
            ieee,
            g,
            h,
            scales,
            fixed,
            rows,
            root,
            histograms,
            n,
            output,
            cleared,
            draws,
            limit,
            sampled,
        );
    })
}

pub(super) fn partition_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_partition", profile, (), cube(), |d| {
        let (codes, rows) = (d.input::<u32>(), d.input::<u32>());
        let moved = d.output::<u32>();
        let pairs = d.input::<u32>();
        let sizes = d.output::<Atomic<u32>>();
        let state = d.input::<u32>();
        let histograms = d.output::<u32>();
        let (n, level, stride) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        let (node_words, kept) = (d.scalar::<u32>(), d.scalar::<u32>());
        partition::expand(
            d.scope(),
            codes,
            rows,
            moved,
            pairs,
            sizes,
            state,
            histograms,
            n,
            level,
            stride,
            node_words,
            kept,
        );
    })
}

pub(super) fn follow_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("boosting_follow", profile, (), cube(), |d| {
        let ieee = d.ieee();
        let (codes, trees, status) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let margins = d.output::<f32>();
        let (n, tree, output) = (d.scalar::<u32>(), d.scalar::<u32>(), d.scalar::<u32>());
        follow::expand(
            d.scope(),
            ieee,
            codes,
            trees,
            status,
            margins,
            n,
            tree,
            output,
        );
    })
}
