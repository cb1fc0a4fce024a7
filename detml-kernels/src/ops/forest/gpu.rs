//! A unit for each row and output, which walks that output's trees in their order.
//!
//! A node is one vector of four words, so a step takes one load of 16 bytes and one word of the
//! row. Numbers are compared by their keys, which order as they do (`N10`).

use super::{Forest, Node};
use crate::device::{Device, Kernel, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::grid;
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Error, Result};

type Words = Vector<u32, Const<4>>;

const UNITS: u32 = 128;
/// The key of every NaN, above those of all numbers.
const NAN: u32 = u32::MAX;

/// Feature words that are uploaded at a time: rows are independent, so the parts can't show.
const PART: usize = 1 << 26;

/// `nodes` hold: the threshold's key; the feature; twice the left child's index and 1 if missing
/// values go there, or 0 for a leaf; what a leaf adds.
#[cube]
fn margins(
    ieee: &Ieee,
    x: &Array<f32>,
    nodes: &Array<Words>,
    starts: &Array<u32>,
    base: &Array<f32>,
    out: &mut Array<f32>,
    features: u32,
    trees: u32,
    outputs: u32,
    total: u32,
) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < total {
        let row = i / outputs;
        let output = i - row * outputs;
        let first = row * features;
        let mut margin = base[output as usize];
        for turn in 0..trees / outputs {
            let tree = turn * outputs + output;
            let mut node = nodes[starts[tree as usize] as usize];
            while node[2] != 0u32 {
                let key = ieee.order_key(x[(first + node[1]) as usize]);
                let missing = prim::select_u32(key == NAN, node[2] & 1u32, 0u32);
                let left = prim::select_u32(key <= node[0], 1u32, missing);
                node = nodes[((node[2] >> 1u32) + (1u32 - left)) as usize];
            }
            // `N5`: one addition a tree, in order.
            margin = ieee.add(margin, prim::from_bits(node[3]));
        }
        out[i as usize] = margin;
    }
}

fn kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("forest", profile, (), CubeDim::new_1d(UNITS), |d| {
        let ieee = d.ieee();
        let (x, nodes, starts) = (d.input(), d.input::<Words>(), d.input());
        let (base, out) = (d.input(), d.output());
        let [features, trees, outputs, total] = [(); 4].map(|()| d.scalar::<u32>());
        margins::expand(
            d.scope(),
            ieee,
            x,
            nodes,
            starts,
            base,
            out,
            features,
            trees,
            outputs,
            total,
        );
    })
}

/// The trees as the kernel reads them, children counted over all trees.
fn pack(forest: &Forest) -> Vec<u32> {
    let mut words = Vec::with_capacity(4 * forest.nodes.len());
    for pair in forest.starts.windows(2) {
        let start = pair[0] as u32;
        for node in &forest.nodes[pair[0]..pair[1]] {
            words.extend(match *node {
                Node { left: 0, value, .. } => [0, 0, 0, value.to_bits()],
                Node {
                    left,
                    feature,
                    threshold,
                    missing_left,
                    ..
                } => [
                    Ieee::PLAIN.order_key(threshold),
                    feature,
                    2 * (start + left) + u32::from(missing_left),
                    0,
                ],
            });
        }
    }
    words
}

/// `margins`, which has a place for each row and output, from `x`.
pub(super) fn run(device: &Device, forest: &Forest, x: &[f32], margins: &mut [f32]) -> Result<()> {
    let (features, outputs, trees) = (forest.features, forest.base.len(), forest.trees());
    if margins.is_empty() {
        return Ok(());
    }
    if outputs > PART {
        return Err(Error::unsupported(
            format!("a forest of {outputs} outputs on a GPU"),
            format!("at most {PART}"),
        ));
    }
    let kernel = kernel(device.profile()?);
    // A buffer holds something.
    let starts: Vec<u32> = forest.starts.iter().map(|&start| start as u32).collect();
    let mut packed = pack(forest);
    packed.resize(packed.len().max(4), 0);
    let nodes = device.upload_vec(packed)?;
    let starts = device.upload_vec(starts)?;
    let base = device.upload(&forest.base)?;
    let rows = (PART / features.max(outputs)).max(1);
    for (part, margins) in margins.chunks_mut(rows * outputs).enumerate() {
        let rows_here = margins.len() / outputs;
        let x = match features {
            0 => device.upload(&[0.0f32])?,
            _ => device.upload(&x[part * rows * features..][..rows_here * features])?,
        };
        let out = device.empty::<f32>(margins.len())?;
        device.launch(
            &kernel,
            grid(margins.len(), UNITS as usize)?,
            args![
                &x,
                nodes.vectors(4),
                &starts,
                &base,
                &out,
                features as u32,
                trees as u32,
                outputs as u32,
                margins.len() as u32
            ],
        )?;
        margins.copy_from_slice(&device.read(&out)?);
    }
    Ok(())
}

/// The kernel.
pub(super) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    vec![kernel(profile)]
}
