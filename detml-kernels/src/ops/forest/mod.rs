//! Sums of decision trees over raw features.
//!
//! The margin of a row is `(base + tree 0) + tree 1 + ...`, one addition a tree in the order of
//! the trees (`N5`). With several outputs, tree `t` adds to output `t % outputs`. A row goes to
//! the left of a node if its feature doesn't exceed the threshold, also with -0 against +0; NaN
//! goes where the node sends missing values. So a row's bits depend on no other row (`N7`).

mod cpu;
mod gpu;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;

use crate::device::{Device, Kernel, zeros};
use crate::ieee::FloatProfile;
use detml_core::{Error, Result};

/// A node of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// Index in the tree of the left child, the right one follows it; 0 for a leaf.
    pub left: u32,
    /// The feature that is compared (0 for a leaf).
    pub feature: u32,
    /// The greatest value that goes to the left (0 for a leaf).
    pub threshold: f32,
    /// Whether missing values go to the left.
    pub missing_left: bool,
    /// What a leaf adds to the margin (0 for an inner node).
    pub value: f32,
}

/// Checked trees.
#[derive(Clone, Debug)]
pub struct Forest {
    features: usize,
    base: Vec<f32>,
    /// Where each tree's nodes start, and where the last one's end.
    starts: Vec<usize>,
    nodes: Vec<Node>,
    packed: cpu::Packed,
}

impl Forest {
    /// Trees over `features` features; one base margin for each output. Tree `t` has the nodes
    /// `starts[t]..starts[t + 1]`, level by level: the root first, then children in the order of
    /// their parents.
    ///
    /// # Errors
    /// `InvalidValue` for anything else: nodes out of order, a child outside its tree or of two
    /// parents, a feature out of range, a NaN as threshold, a leaf or base that isn't finite.
    pub fn new(
        features: usize,
        base: Vec<f32>,
        starts: Vec<usize>,
        nodes: Vec<Node>,
    ) -> Result<Self> {
        if base.is_empty() {
            return Err(Error::empty("base margins"));
        }
        if let Some(output) = base.iter().position(|base| !base.is_finite()) {
            return Err(refuse(
                "base margins",
                output,
                "a finite number",
                base[output],
            ));
        }
        if features > 1 << 26 {
            return Err(refuse("features", 0, "at most 2^26", features));
        }
        let ends = starts.first() == Some(&0) && starts.last() == Some(&nodes.len());
        if !ends || i32::try_from(nodes.len()).is_err() {
            let expected = format_args!("starts from 0 to the {} nodes", nodes.len());
            return Err(refuse(
                "trees",
                0,
                expected,
                format_args!("{} starts", starts.len()),
            ));
        }
        if let Some(tree) = starts.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(refuse("trees", tree, "at least one node", "none"));
        }
        if !(starts.len() - 1).is_multiple_of(base.len()) {
            let expected = format_args!("a multiple of the {} outputs", base.len());
            return Err(refuse("trees", 0, expected, starts.len() - 1));
        }
        for pair in starts.windows(2) {
            check_tree(features, pair[0], &nodes[pair[0]..pair[1]])?;
        }
        Ok(Self {
            packed: cpu::Packed::new(&starts, &nodes),
            features,
            base,
            starts,
            nodes,
        })
    }

    /// Number of trees.
    pub fn trees(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of features.
    pub fn features(&self) -> usize {
        self.features
    }

    /// The margin that each output starts from.
    pub fn base(&self) -> &[f32] {
        &self.base
    }

    /// Where each tree's nodes start, and where the last one's end.
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// The nodes of all trees.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The margins (rows x outputs) of features (rows x features), both row by row. A GPU gets the
    /// trees with each call.
    ///
    /// # Errors
    /// `Shape` if `x` doesn't fill its rows; `OutOfMemory`; those of the device.
    pub fn margins(&self, device: &Device, x: &[f32], rows: usize) -> Result<Vec<f32>> {
        if rows.checked_mul(self.features) != Some(x.len()) {
            let expected = format_args!("{rows} x {}", self.features);
            return Err(Error::shape("features", expected, x.len()));
        }
        let outputs = self.base.len();
        // Without features there may be any number of rows.
        let mut margins = zeros::<f32>(rows.saturating_mul(outputs))?;
        let Some(simd) = device.simd() else {
            gpu::run(device, self, x, &mut margins)?;
            return Ok(margins);
        };
        for row in margins.chunks_exact_mut(outputs) {
            row.copy_from_slice(&self.base);
        }
        self.packed.add(simd, self, x, &mut margins);
        Ok(margins)
    }
}

/// A representative of each variant of every kernel.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    gpu::kernels(profile)
}

fn check_tree(features: usize, first: usize, nodes: &[Node]) -> Result<()> {
    let mut inner = 0;
    for (i, node) in nodes.iter().enumerate() {
        let refuse = |expected: &str, got: &dyn std::fmt::Display| {
            Err(refuse("nodes", first + i, expected, got))
        };
        if node.left == 0 {
            if !node.value.is_finite() {
                return refuse("a finite leaf", &node.value);
            }
            continue;
        }
        // Level by level, the children of the k-th inner node are nodes 2 k + 1 and 2 k + 2. So
        // each node but the root has one parent, before it, and no path is endless.
        let left = 2 * inner + 1;
        if node.left as usize != left || left <= i {
            return refuse(
                &format!("the left child {left}, after its parent"),
                &node.left,
            );
        }
        if left + 1 >= nodes.len() {
            return refuse(
                &format!("children among the tree's {} nodes", nodes.len()),
                &left,
            );
        }
        if node.feature as usize >= features {
            return refuse(&format!("a feature below {features}"), &node.feature);
        }
        if node.threshold.is_nan() {
            return refuse("a threshold that is a number", &node.threshold);
        }
        inner += 1;
    }
    if 2 * inner + 1 != nodes.len() {
        let expected = format!("{} nodes in a tree of {inner} splits", 2 * inner + 1);
        return Err(refuse("trees", first, expected, nodes.len()));
    }
    Ok(())
}

fn refuse(
    what: &str,
    row: usize,
    expected: impl std::fmt::Display,
    got: impl std::fmt::Display,
) -> Error {
    Error::InvalidValue {
        what: what.into(),
        row,
        expected: expected.to_string(),
        got: got.to_string(),
    }
}
