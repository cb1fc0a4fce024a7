//! The contract in few lines.

use super::Forest;
use crate::ieee::Ieee;

pub(super) fn margins(forest: &Forest, x: &[f32], rows: usize) -> Vec<f32> {
    let outputs = forest.base.len();
    let mut margins = Vec::new();
    for row in 0..rows {
        let x = &x[row * forest.features..][..forest.features];
        let mut row = forest.base.clone();
        for (tree, starts) in forest.starts.windows(2).enumerate() {
            let nodes = &forest.nodes[starts[0]..starts[1]];
            let mut at = 0;
            while nodes[at].left != 0 {
                let node = nodes[at];
                let value = x[node.feature as usize];
                let left = if value.is_nan() {
                    node.missing_left
                } else {
                    value <= node.threshold
                };
                at = node.left as usize + usize::from(!left);
            }
            let margin = &mut row[tree % outputs];
            *margin = Ieee::PLAIN.add(*margin, nodes[at].value);
        }
        margins.extend(row);
    }
    margins
}
