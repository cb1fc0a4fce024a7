//! Threads over blocks of rows, paths one after the other, rows of a block in lanes.

use super::paths::{Paths, Tables, full};
use super::rule::MOST;
use super::{Interventional, PathDependent, factor, ones, passes, ratio};
use crate::device::{Loop, Simd, zeros};
use crate::ieee::Ieee;
use detml_core::Result;
use rayon::prelude::*;

/// Rows in lanes.
const LANES: usize = 16;
/// Rows of a block; of few rows blocks are smaller, so that all threads have some, and with many
/// features, so that sums stay in the cache.
const ROWS: usize = 64;
const FEW: usize = 1024;
const MANY: usize = 4096;
/// Nodes of the largest rule.
const POINTS: usize = MOST / 2;

fn rows_of_a_block(rows: usize, slots: usize) -> usize {
    if rows > FEW && slots < MANY {
        ROWS
    } else {
        LANES
    }
}

/// The keys of a block's features, slot by slot, `padded` rows each.
fn keys(paths: &Paths, x: &[f32], padded: usize) -> Vec<u32> {
    let mut keys = vec![0; paths.slots() * padded];
    for (row, x) in x.chunks_exact(paths.features).enumerate() {
        for (slot, &feature) in paths.used.iter().enumerate() {
            keys[slot * padded + row] = Ieee::PLAIN.order_key(x[feature as usize]);
        }
    }
    keys
}

/// Runs `work` on the keys of each block of rows and its results, `size` a row.
fn blocks(
    paths: &Paths,
    x: &[f32],
    size: usize,
    out: &mut [f32],
    work: impl Fn(&[u32], &mut [f32]) + Sync,
) {
    // Paths have steps, so there are features.
    let rows = rows_of_a_block(out.len() / size, paths.slots());
    out.par_chunks_mut(rows * size)
        .zip(x.par_chunks(rows * paths.features))
        .for_each(|(out, x)| work(&keys(paths, x, rows), out));
}

pub(super) fn values(simd: Simd, shap: &PathDependent, x: &[f32], out: &mut [f32]) {
    let paths = &shap.paths;
    let size = paths.outputs * (paths.features + 1);
    blocks(paths, x, size, out, |keys, out| {
        let mut sums = vec![0.0; paths.outputs * keys.len()];
        simd.dispatch(Values {
            shap,
            keys,
            sums: &mut sums,
        });
        spread(paths, keys.len() / paths.slots(), &sums, out);
    });
}

pub(super) fn interventional(simd: Simd, shap: &Interventional, x: &[f32], out: &mut [f32]) {
    let paths = &shap.paths;
    let size = paths.outputs * (paths.features + 1);
    blocks(paths, x, size, out, |keys, out| {
        let mut sums = vec![0.0; paths.outputs * keys.len()];
        simd.dispatch(Against {
            shap,
            keys,
            sums: &mut sums,
        });
        spread(paths, keys.len() / paths.slots(), &sums, out);
    });
}

/// Puts sums (outputs x slots x rows) to their places.
fn spread(paths: &Paths, rows: usize, sums: &[f32], out: &mut [f32]) {
    let side = paths.features + 1;
    for (row, out) in out.chunks_exact_mut(paths.outputs * side).enumerate() {
        let sums = sums.chunks_exact(paths.slots() * rows);
        for (out, sums) in out.chunks_exact_mut(side).zip(sums) {
            for (slot, &feature) in paths.used.iter().enumerate() {
                out[feature as usize] = Ieee::PLAIN.canonical(sums[slot * rows + row]);
            }
        }
    }
}

pub(super) fn interactions(
    simd: Simd,
    shap: &PathDependent,
    x: &[f32],
    out: &mut [f32],
) -> Result<()> {
    let paths = &shap.paths;
    let side = paths.features + 1;
    let (slots, outputs) = (paths.slots(), paths.outputs);
    let pairs = slots * (slots - 1) / 2;
    // Not more than a block of the results.
    out.par_chunks_mut(LANES * outputs * side * side)
        .zip(x.par_chunks(LANES * paths.features))
        .map(|(out, x)| {
            let keys = keys(paths, x, LANES);
            let mut values = zeros(outputs * slots * LANES)?;
            let mut sums = zeros(outputs * pairs * LANES)?;
            simd.dispatch(Values {
                shap,
                keys: &keys,
                sums: &mut values,
            });
            let mut part = zeros(pairs * LANES)?;
            simd.dispatch(Pairs {
                shap,
                keys: &keys,
                part: &mut part,
                sums: &mut sums,
            });
            simd.dispatch(Matrices {
                paths,
                values: &values,
                sums: &sums,
                out,
            });
            Ok(())
        })
        .collect()
}

/// A path's state for the rows in lanes.
struct Lanes {
    products: [[f32; LANES]; POINTS],
    pass: [[u32; LANES]; MOST],
}

impl Lanes {
    const NEW: Self = Self {
        products: [[0.0; LANES]; POINTS],
        pass: [[0; LANES]; MOST],
    };

    /// Which features pass.
    #[inline(always)]
    fn look(&mut self, paths: &Paths, path: usize, keys: &[u32], first: usize, rows: usize) {
        for (step, pass) in paths.steps[paths.range(path)].iter().zip(&mut self.pass) {
            let keys = &keys[step.slot as usize * rows + first..][..LANES];
            for lane in 0..LANES {
                pass[lane] = passes(keys[lane], step.low, step.width, step.missing);
            }
        }
    }

    /// The products of all factors.
    #[inline(always)]
    fn multiply(&mut self, ieee: Ieee, tables: &Tables, shares: &[f32]) {
        for node in 0..tables.points() {
            let products = &mut self.products[node];
            let (at, mirror) = (tables.nodes[node], tables.mirror(node));
            *products = [tables.weights[node]; LANES];
            for (&share, pass) in shares.iter().zip(&self.pass) {
                for lane in 0..LANES {
                    let factor = factor(&ieee, share, mirror, at, pass[lane]);
                    products[lane] = ieee.mul(products[lane], factor);
                }
            }
        }
    }
}

/// The ratios of a path's features that pass, node by node.
#[inline(always)]
fn open(ieee: Ieee, tables: &Tables, shares: &[f32], ratios: &mut [[f32; POINTS]; MOST]) {
    for (&share, ratios) in shares.iter().zip(ratios) {
        for node in 0..tables.points() {
            ratios[node] = ratio(ieee, share, tables.mirror(node), tables.nodes[node]);
        }
    }
}

/// Folds the sum of a segment to those before it.
#[inline(always)]
fn fold(ieee: Ieee, segment: usize, part: &[f32], sums: &mut [f32]) {
    for (sum, &part) in sums.iter_mut().zip(part) {
        *sum = if segment == 0 {
            part
        } else {
            ieee.add(*sum, part)
        };
    }
}

struct Values<'a> {
    shap: &'a PathDependent,
    keys: &'a [u32],
    /// Outputs x slots x rows.
    sums: &'a mut [f32],
}

impl Loop for Values<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Self { shap, keys, sums } = self;
        let PathDependent { paths, tables, .. } = shap;
        let rows = keys.len() / paths.slots();
        let mut part = vec![0.0; keys.len()];
        let mut lanes = Lanes::NEW;
        let mut ratios = [[0.0; POINTS]; MOST];
        for (output, sums) in sums.chunks_exact_mut(keys.len()).enumerate() {
            for segment in 0..paths.segments {
                part.fill(0.0);
                for path in paths.cell(output * paths.segments + segment) {
                    let steps = paths.range(path);
                    let shares = &shap.shares[steps.clone()];
                    let leaf = paths.leaves[path];
                    open(ieee, tables, shares, &mut ratios);
                    for first in (0..rows).step_by(LANES) {
                        lanes.look(paths, path, keys, first, rows);
                        lanes.multiply(ieee, tables, shares);
                        let mut shut = [0.0; LANES];
                        for node in 0..tables.points() {
                            let closed = tables.closed[node];
                            for lane in 0..LANES {
                                shut[lane] =
                                    ieee.fma(lanes.products[node][lane], closed, shut[lane]);
                            }
                        }
                        for (i, step) in paths.steps[steps.clone()].iter().enumerate() {
                            let mut sum = [0.0; LANES];
                            for node in 0..tables.points() {
                                for lane in 0..LANES {
                                    sum[lane] = ieee.fma(
                                        lanes.products[node][lane],
                                        ratios[i][node],
                                        sum[lane],
                                    );
                                }
                            }
                            let part = &mut part[step.slot as usize * rows + first..][..LANES];
                            for lane in 0..LANES {
                                let passed = lanes.pass[i][lane] == 1;
                                let sum = ieee.select(passed, sum[lane], shut[lane]);
                                part[lane] = ieee.fma(leaf, sum, part[lane]);
                            }
                        }
                    }
                }
                fold(ieee, segment, &part, sums);
            }
        }
    }
}

/// The place of the pair of slots `low < high`.
#[inline(always)]
fn pair(low: usize, high: usize) -> usize {
    high * (high - 1) / 2 + low
}

struct Pairs<'a> {
    shap: &'a PathDependent,
    keys: &'a [u32],
    /// Pairs x lanes.
    part: &'a mut [f32],
    /// Outputs x pairs x lanes.
    sums: &'a mut [f32],
}

impl Loop for Pairs<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Self {
            shap,
            keys,
            part,
            sums,
        } = self;
        if part.is_empty() {
            return;
        }
        let PathDependent { paths, tables, .. } = shap;
        let mut lanes = Lanes::NEW;
        let mut ratios = [[0.0; POINTS]; MOST];
        for (output, sums) in sums.chunks_exact_mut(part.len()).enumerate() {
            for segment in 0..paths.segments {
                part.fill(0.0);
                for path in paths.cell(output * paths.segments + segment) {
                    let range = paths.range(path);
                    let shares = &shap.shares[range.clone()];
                    let steps = &paths.steps[range];
                    let half = ieee.mul(paths.leaves[path], 0.5);
                    open(ieee, tables, shares, &mut ratios);
                    lanes.look(paths, path, keys, 0, LANES);
                    lanes.multiply(ieee, tables, shares);
                    for i in 0..steps.len() {
                        let mut without = lanes.products;
                        for node in 0..tables.points() {
                            for lane in 0..LANES {
                                let passed = lanes.pass[i][lane] == 1;
                                let ratio =
                                    ieee.select(passed, ratios[i][node], tables.closed[node]);
                                without[node][lane] = ieee.mul(without[node][lane], ratio);
                            }
                        }
                        for j in i + 1..steps.len() {
                            let mut sum = [0.0; LANES];
                            for node in 0..tables.points() {
                                for lane in 0..LANES {
                                    let passed = lanes.pass[j][lane] == 1;
                                    let ratio =
                                        ieee.select(passed, ratios[j][node], tables.closed[node]);
                                    sum[lane] = ieee.fma(without[node][lane], ratio, sum[lane]);
                                }
                            }
                            let at = pair(steps[i].slot as usize, steps[j].slot as usize);
                            let part = &mut part[at * LANES..][..LANES];
                            for lane in 0..LANES {
                                part[lane] = ieee.fma(half, sum[lane], part[lane]);
                            }
                        }
                    }
                }
                fold(ieee, segment, part, sums);
            }
        }
    }
}

/// The matrices of a block.
struct Matrices<'a> {
    paths: &'a Paths,
    values: &'a [f32],
    sums: &'a [f32],
    out: &'a mut [f32],
}

impl Loop for Matrices<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Self {
            paths,
            values,
            sums,
            out,
        } = self;
        let (slots, side) = (paths.slots(), paths.features + 1);
        let pairs = slots * (slots - 1) / 2;
        for (i, out) in out.chunks_exact_mut(side * side).enumerate() {
            let (row, output) = (i / paths.outputs, i % paths.outputs);
            for a in 0..slots {
                let to = &mut out[paths.used[a] as usize * side..][..side];
                let mut sum = 0.0;
                for b in 0..slots {
                    if a != b {
                        let at = output * pairs + pair(a.min(b), a.max(b));
                        let value = ieee.canonical(sums[at * LANES + row]);
                        to[paths.used[b] as usize] = value;
                        sum = ieee.add(sum, value);
                    }
                }
                let own = values[(output * slots + a) * LANES + row];
                to[paths.used[a] as usize] = ieee.canonical(ieee.sub(own, sum));
            }
        }
    }
}

struct Against<'a> {
    shap: &'a Interventional,
    keys: &'a [u32],
    /// Outputs x slots x rows.
    sums: &'a mut [f32],
}

impl Loop for Against<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Self { shap, keys, sums } = self;
        let paths = &shap.paths;
        let rows = keys.len() / paths.slots();
        let mut part = vec![0.0; keys.len()];
        let mut lanes = Lanes::NEW;
        for (output, sums) in sums.chunks_exact_mut(keys.len()).enumerate() {
            for segment in 0..paths.segments {
                part.fill(0.0);
                for path in paths.cell(output * paths.segments + segment) {
                    let steps = &paths.steps[paths.range(path)];
                    let sets = shap.starts[path] as usize..shap.starts[path + 1] as usize;
                    let sets = &shap.sets[sets];
                    for first in (0..rows).step_by(LANES) {
                        lanes.look(paths, path, keys, first, rows);
                        for lane in 0..LANES {
                            let mut mine = 0;
                            for (bit, pass) in lanes.pass[..steps.len()].iter().enumerate() {
                                mine |= pass[lane] << bit;
                            }
                            for set in sets {
                                if mine | set.passed != full(steps.len()) {
                                    continue;
                                }
                                let other = mine ^ set.passed;
                                let (a, b) = (ones(mine & other), ones(set.passed & other));
                                let gain = shap.orders[(a * (MOST as u32 + 1) + b) as usize];
                                let loss = shap.orders[(b * (MOST as u32 + 1) + a) as usize];
                                let loss = ieee.neg(loss);
                                let mut rest = other;
                                while rest != 0 {
                                    let bit = rest.trailing_zeros();
                                    rest &= rest - 1;
                                    let slot = steps[bit as usize].slot as usize;
                                    let share = ieee.select(mine >> bit & 1 == 1, gain, loss);
                                    let part = &mut part[slot * rows + first + lane];
                                    *part = ieee.fma(share, set.value, *part);
                                }
                            }
                        }
                    }
                }
                fold(ieee, segment, &part, sums);
            }
        }
    }
}
