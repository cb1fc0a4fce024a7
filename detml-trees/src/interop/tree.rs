//! Trees as other libraries keep them, put into the order of a forest.

use super::categories::{Categories, TOO_MANY, unfold};
use detml_core::{Error, Result};
use detml_kernels::ops::forest::{Forest, Node};

/// More outputs than this are a damaged file.
const MAX_OUTPUTS: usize = 1 << 16;

/// A file's format, for its errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin(pub(super) &'static str);

impl Origin {
    pub(super) fn refuse(self, reason: impl Into<String>) -> Error {
        Error::model_file(self.0, reason)
    }

    pub(super) fn refuse_tree(self, tree: usize, reason: impl std::fmt::Display) -> Error {
        self.refuse(format!("tree {tree}: {reason}"))
    }

    /// Something that the format has and detml hasn't.
    pub(super) fn unsupported(self, what: impl std::fmt::Display, reason: &str) -> Error {
        Error::unsupported(format!("{what} ({})", self.0), reason)
    }

    pub(super) fn text(self, bytes: &[u8]) -> Result<&str> {
        std::str::from_utf8(bytes).map_err(|error| {
            self.refuse(format!(
                "expected text in UTF-8, got another byte at offset {}",
                error.valid_up_to()
            ))
        })
    }

    pub(super) fn outputs(self, outputs: usize) -> Result<usize> {
        if outputs > MAX_OUTPUTS {
            return Err(self.refuse(format!(
                "expected at most {MAX_OUTPUTS} outputs, got {outputs}"
            )));
        }
        Ok(outputs.max(1))
    }
}

/// A node as its library keeps it, with children anywhere in the tree.
pub(super) enum Kind {
    Split {
        feature: u32,
        threshold: f32,
        missing_left: bool,
        left: usize,
        right: usize,
    },
    Category {
        feature: u32,
        set: Categories,
        missing_left: bool,
        left: usize,
        right: usize,
    },
    Leaf,
}

impl Kind {
    fn children(&self) -> Option<[usize; 2]> {
        match *self {
            Self::Leaf => None,
            Self::Split { left, right, .. } | Self::Category { left, right, .. } => {
                Some([left, right])
            }
        }
    }
}

/// A tree level by level, its leaves still without values.
pub(super) struct Levelled {
    nodes: Vec<Node>,
    /// The index that each node had.
    source: Vec<usize>,
    reached: usize,
}

impl Levelled {
    /// The part of `count` nodes that can be reached from node 0. A split by categories becomes
    /// several by thresholds, with copies of what is below.
    pub(super) fn new(
        origin: Origin,
        tree: usize,
        count: usize,
        mut kind: impl FnMut(usize) -> Result<Kind>,
    ) -> Result<Self> {
        if count == 0 || i32::try_from(count).is_err() {
            return Err(origin.refuse_tree(
                tree,
                format_args!("expected 1 node or more, below 2^31, got {count}"),
            ));
        }
        let mut seen = vec![false; count];
        seen[0] = true;
        let mut source = vec![0];
        let mut kinds = Vec::new();
        let mut categories = false;
        while let Some(&at) = source.get(kinds.len()) {
            let kind = kind(at)?;
            for child in kind.children().into_iter().flatten() {
                match seen.get_mut(child) {
                    None => {
                        return Err(origin.refuse_tree(
                            tree,
                            format_args!("node {at}: expected children below {count}, got {child}"),
                        ));
                    }
                    Some(true) => {
                        return Err(origin.refuse_tree(
                            tree,
                            format_args!("node {child} is reached twice, again from node {at}"),
                        ));
                    }
                    Some(seen) => *seen = true,
                }
                source.push(child);
            }
            categories |= matches!(kind, Kind::Category { .. });
            kinds.push(kind);
        }
        let reached = source.len();
        if categories {
            let (nodes, places) = unfold(origin, tree, &kinds)?;
            let source = places.into_iter().map(|place| source[place]).collect();
            return Ok(Self {
                nodes,
                source,
                reached,
            });
        }
        let mut next = 1;
        let nodes = kinds
            .into_iter()
            .map(|kind| match kind {
                Kind::Split {
                    feature,
                    threshold,
                    missing_left,
                    ..
                } => {
                    next += 2;
                    Node {
                        left: next - 2,
                        feature,
                        threshold,
                        missing_left,
                        value: 0.0,
                    }
                }
                _ => leaf(0.0),
            })
            .collect();
        Ok(Self {
            nodes,
            source,
            reached,
        })
    }

    /// How many nodes of the library's were reached.
    pub(super) fn reached(&self) -> usize {
        self.reached
    }

    /// The index that each node had.
    pub(super) fn source(&self) -> &[usize] {
        &self.source
    }

    /// The tree with a value, given by the index it had, for each leaf.
    pub(super) fn with_values(&self, value: impl Fn(usize) -> f32) -> Vec<Node> {
        let nodes = self.nodes.iter().zip(&self.source);
        nodes
            .map(|(&node, &source)| match node.left {
                0 => leaf(value(source)),
                _ => node,
            })
            .collect()
    }
}

pub(super) fn leaf(value: f32) -> Node {
    Node {
        left: 0,
        feature: 0,
        threshold: 0.0,
        missing_left: false,
        value,
    }
}

/// Nodes that splits by categories may add to a file's.
const MAX_COPIES: usize = 1 << 24;

/// Gathers trees by output.
pub(super) struct Grove {
    origin: Origin,
    copies: usize,
    base: Vec<f32>,
    trees: Vec<Vec<Vec<Node>>>,
}

impl Grove {
    pub(super) fn new(origin: Origin, base: Vec<f32>) -> Self {
        Self {
            origin,
            copies: 0,
            trees: vec![Vec::new(); base.len()],
            base,
        }
    }

    /// The next tree of an output below the number of base margins.
    pub(super) fn add(
        &mut self,
        output: usize,
        tree: &Levelled,
        value: impl Fn(usize) -> f32,
    ) -> Result<()> {
        self.copies += tree.nodes.len() - tree.reached.min(tree.nodes.len());
        if self.copies > MAX_COPIES {
            return Err(self.origin.unsupported(
                format_args!("splits by categories that take {MAX_COPIES} more nodes"),
                TOO_MANY,
            ));
        }
        self.trees[output].push(tree.with_values(value));
        Ok(())
    }

    pub(super) fn into_forest(self, features: usize) -> Result<Forest> {
        let Self {
            origin,
            base,
            trees,
            ..
        } = self;
        let count = trees.first().map_or(0, Vec::len);
        if let Some(output) = trees.iter().position(|trees| trees.len() != count) {
            return Err(origin.refuse(format!(
                "expected {count} trees for output {output}, as for output 0, got {}",
                trees[output].len()
            )));
        }
        let mut starts = vec![0];
        let mut nodes: Vec<Node> = Vec::new();
        for turn in 0..count {
            for trees in &trees {
                nodes.extend_from_slice(&trees[turn]);
                starts.push(nodes.len());
            }
        }
        Forest::new(features, base, starts, nodes).map_err(|error| origin.refuse(error.to_string()))
    }
}

/// The greatest `f32` that doesn't exceed `t`: `x <= t` holds for the same `f32`s.
pub(super) fn not_above(t: f64) -> f32 {
    let nearest = t as f32;
    if f64::from(nearest) > t {
        nearest.next_down()
    } else {
        nearest
    }
}

/// The greatest `f32` below `t`: `x < t` holds for those that don't exceed it. None if no number
/// is below.
pub(super) fn below(t: f32) -> Option<f32> {
    (t != f32::NEG_INFINITY).then(|| t.next_down())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn anything() -> impl Strategy<Value = f32> {
        prop_oneof![
            any::<u32>().prop_map(f32::from_bits),
            prop::sample::select(vec![
                0.0,
                -0.0,
                1e-45,
                -1e-45,
                f32::MAX,
                f32::MIN,
                f32::INFINITY,
                f32::NEG_INFINITY,
            ]),
        ]
    }

    proptest! {
        #[test]
        fn thresholds_part_the_same_numbers(x in anything(), t in anything(), by in -2i32..3) {
            prop_assume!(!x.is_nan() && !t.is_nan());
            if let Some(threshold) = below(t) {
                prop_assert_eq!(x <= threshold, x < t);
            }
            // Neighbours of a threshold, in both precisions.
            let near = f64::from_bits((f64::from(t).to_bits() as i64).wrapping_add(by.into()) as u64);
            for t in [f64::from(t), near, f64::from(t) * 1.5, f64::MAX, f64::MIN] {
                prop_assume!(!t.is_nan());
                let threshold = not_above(t);
                for x in [x, threshold, threshold.next_up(), threshold.next_down()] {
                    prop_assert_eq!(x <= threshold, f64::from(x) <= t, "{} {}", x, t);
                }
            }
        }
    }

    #[test]
    fn edges_of_the_numbers() {
        assert_eq!(below(0.0), Some(-1e-45));
        assert_eq!(below(-0.0), Some(-1e-45));
        assert_eq!(below(f32::INFINITY), Some(f32::MAX));
        assert_eq!(below(f32::NEG_INFINITY), None);
        assert!(below(f32::NAN).is_some_and(f32::is_nan));
        assert_eq!(not_above(1e300), f32::MAX);
        assert_eq!(not_above(-1e300), f32::NEG_INFINITY);
        assert_eq!(not_above(1e-300), 0.0);
        assert_eq!(not_above(-1e-300), -1e-45);
        assert!(not_above(f64::NAN).is_nan());
    }
}
