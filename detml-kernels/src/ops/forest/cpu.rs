//! Rows in blocks, trees one after the other, rows of a block in lockstep.

use super::{Forest, Node};
use crate::device::{Loop, Simd};
use crate::ieee::Ieee;
use rayon::prelude::*;

/// Trees as short nodes. A leaf is its own left child under the threshold +inf, so that all rows
/// take as many steps as the tree is deep.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    nodes: Vec<Short>,
    values: Vec<f32>,
    depths: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Short {
    threshold: f32,
    feature: u32,
    /// Twice the left child's index, and 1 if missing values go there.
    left: u32,
}

/// Rows of a block.
const ROWS: usize = 64;
/// Rows in lockstep.
const LANES: usize = 16;

impl Packed {
    pub(super) fn new(starts: &[usize], nodes: &[Node]) -> Self {
        let mut depths = Vec::new();
        let mut short = Vec::with_capacity(nodes.len());
        for pair in starts.windows(2) {
            let nodes = &nodes[pair[0]..pair[1]];
            let mut depth = vec![0; nodes.len()];
            for (i, node) in nodes.iter().enumerate() {
                if node.left != 0 {
                    let left = node.left as usize;
                    let below = depth[i] + 1;
                    depth[left..left + 2].fill(below);
                }
                short.push(match node.left {
                    0 => Short {
                        threshold: f32::INFINITY,
                        feature: 0,
                        left: 2 * i as u32 + 1,
                    },
                    left => Short {
                        threshold: node.threshold,
                        feature: node.feature,
                        left: 2 * left + u32::from(node.missing_left),
                    },
                });
            }
            // Parents come before their children, so the last node is a deepest one.
            depths.push(depth.last().copied().unwrap_or(0));
        }
        Self {
            nodes: short,
            values: nodes.iter().map(|node| node.value).collect(),
            depths,
        }
    }

    /// Adds the trees to `margins`, which hold the base.
    pub(super) fn add(&self, simd: Simd, forest: &Forest, x: &[f32], margins: &mut [f32]) {
        let outputs = forest.base.len();
        margins
            .par_chunks_mut(ROWS * outputs)
            .enumerate()
            .for_each(|(i, margins)| {
                let rows = margins.len() / outputs;
                let x = &x[i * ROWS * forest.features..][..rows * forest.features];
                simd.dispatch(Block {
                    packed: self,
                    forest,
                    x,
                    rows,
                    margins,
                });
            });
    }
}

struct Block<'a> {
    packed: &'a Packed,
    forest: &'a Forest,
    x: &'a [f32],
    rows: usize,
    margins: &'a mut [f32],
}

impl Loop for Block<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Self {
            packed,
            forest,
            x,
            rows,
            margins,
        } = self;
        let (features, outputs) = (forest.features, forest.base.len());
        if features == 0 {
            // Every tree is a leaf.
            for row in margins.chunks_exact_mut(outputs) {
                for (tree, &value) in packed.values.iter().enumerate() {
                    row[tree % outputs] = ieee.add(row[tree % outputs], value);
                }
            }
            return;
        }
        let whole = x.iter().fold(true, |whole, x| whole & !x.is_nan());
        for (tree, (starts, &depth)) in forest.starts.windows(2).zip(&packed.depths).enumerate() {
            let nodes = &packed.nodes[starts[0]..starts[1]];
            let values = &packed.values[starts[0]..starts[1]];
            let output = tree % outputs;
            for first in (0..rows).step_by(LANES) {
                let lanes = (rows - first).min(LANES);
                let mut at = [0; LANES];
                for _ in 0..depth {
                    for lane in 0..lanes {
                        let node = nodes[at[lane] as usize];
                        let value = x[(first + lane) * features + node.feature as usize];
                        let left = value <= node.threshold
                            || (!whole && value.is_nan() && node.left & 1 == 1);
                        at[lane] = (node.left >> 1) + u32::from(!left);
                    }
                }
                for (lane, &at) in at[..lanes].iter().enumerate() {
                    let margin = &mut margins[(first + lane) * outputs + output];
                    *margin = ieee.add(*margin, values[at as usize]);
                }
            }
        }
    }
}
