//! scikit-learn's trees, as `scripts/export_sklearn.py` writes them.

use super::tree::{Grove, Kind, Levelled, Origin, not_above};
use super::{Library, Link, Parts, TreeEnsemble};
use detml_core::Result;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use serde_json::Value;

const ORIGIN: Origin = Origin("scikit-learn JSON");
const FORMAT: &str = "detml-sklearn-trees";
const VERSION: u64 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    version: u64,
    /// The version of the library, for readers.
    #[serde(rename = "sklearn")]
    _library: String,
    estimator: String,
    n_features: usize,
    feature_names: Option<Vec<String>>,
    classes: Option<Vec<Value>>,
    link: String,
    slope: f64,
    average: bool,
    base: Vec<f64>,
    trees: Vec<Tree>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tree {
    /// The output that the tree adds to; none if its leaves have a value for each.
    output: Option<usize>,
    left: Vec<i64>,
    right: Vec<i64>,
    feature: Vec<i64>,
    threshold: Vec<Number>,
    missing_left: Vec<bool>,
    value: Vec<Vec<f64>>,
}

/// A number; infinities are the texts `inf` and `-inf`.
#[derive(Clone, Copy)]
struct Number(f64);

impl<'a> Deserialize<'a> for Number {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Threshold;
        impl Visitor<'_> for Threshold {
            type Value = Number;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number, `inf` or `-inf`")
            }
            fn visit_f64<E>(self, value: f64) -> std::result::Result<Number, E> {
                Ok(Number(value))
            }
            fn visit_i64<E>(self, value: i64) -> std::result::Result<Number, E> {
                Ok(Number(value as f64))
            }
            fn visit_u64<E>(self, value: u64) -> std::result::Result<Number, E> {
                Ok(Number(value as f64))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> std::result::Result<Number, E> {
                match value {
                    "inf" => Ok(Number(f64::INFINITY)),
                    "-inf" => Ok(Number(f64::NEG_INFINITY)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(value), &self)),
                }
            }
        }
        deserializer.deserialize_any(Threshold)
    }
}

pub(super) fn from_json(bytes: &[u8]) -> Result<TreeEnsemble> {
    let file: File =
        serde_json::from_slice(bytes).map_err(|error| ORIGIN.refuse(error.to_string()))?;
    if file.format != FORMAT || file.version != VERSION {
        return Err(ORIGIN.refuse(format!(
            "expected the format `{FORMAT}` {VERSION}, got `{}` {}",
            file.format.escape_debug(),
            file.version
        )));
    }
    let link = match file.link.as_str() {
        "identity" => Link::Identity,
        "sigmoid" => Link::Sigmoid,
        "softmax" => Link::Softmax,
        "exp" => Link::Exp,
        other => {
            return Err(ORIGIN.unsupported(
                format_args!("the link `{}`", other.escape_debug()),
                "identity, sigmoid, softmax and exp are read",
            ));
        }
    };
    if file.base.is_empty() {
        return Err(ORIGIN.refuse("`base`: expected a margin for each output, got none"));
    }
    let outputs = ORIGIN.outputs(file.base.len())?;
    let base = file.base.iter().map(|&base| base as f32).collect();
    let mut grove = Grove::new(ORIGIN, base);
    let divisor = if file.average {
        file.trees.len().max(1) as f64
    } else {
        1.0
    };
    for (i, tree) in file.trees.iter().enumerate() {
        let width = if tree.output.is_some() { 1 } else { outputs };
        let levelled = tree.levelled(i, width)?;
        let value = |node: usize, output: usize| (tree.value[node][output] / divisor) as f32;
        match tree.output {
            None => {
                for output in 0..outputs {
                    grove.add(output, &levelled, |node| value(node, output))?;
                }
            }
            Some(output) if output < outputs && !file.average => {
                grove.add(output, &levelled, |node| value(node, 0))?;
            }
            Some(output) => {
                return Err(ORIGIN.refuse_tree(
                    i,
                    format_args!("expected an output below {outputs} of a sum, got {output}"),
                ));
            }
        }
    }
    let forest = grove.into_forest(file.n_features)?;
    let mut parts = Parts::new(Library::ScikitLearn, file.estimator, forest);
    parts.link = link;
    parts.slope = file.slope as f32;
    parts.averaged = file.average;
    parts.feature_names = file.feature_names;
    if let Some(classes) = &file.classes {
        let labels = match link {
            Link::Sigmoid if outputs == 1 => 2,
            _ => outputs,
        };
        if classes.len() != labels {
            return Err(ORIGIN.refuse(format!(
                "`classes`: expected {labels}, got {}",
                classes.len()
            )));
        }
        parts.name_classes(labels, classes);
    }
    TreeEnsemble::new(parts).map_err(|error| ORIGIN.refuse(error.to_string()))
}

impl Tree {
    fn levelled(&self, tree: usize, width: usize) -> Result<Levelled> {
        let nodes = self.left.len();
        for (what, length) in [
            ("right", self.right.len()),
            ("feature", self.feature.len()),
            ("threshold", self.threshold.len()),
            ("missing_left", self.missing_left.len()),
            ("value", self.value.len()),
        ] {
            if length != nodes {
                return Err(ORIGIN.refuse_tree(
                    tree,
                    format_args!("`{what}`: expected {nodes} nodes, got {length}"),
                ));
            }
        }
        if let Some(node) = self.value.iter().position(|value| value.len() != width) {
            return Err(ORIGIN.refuse_tree(
                tree,
                format_args!(
                    "node {node}: expected {width} values, got {}",
                    self.value[node].len()
                ),
            ));
        }
        let levelled = Levelled::new(ORIGIN, tree, nodes, |node| {
            let (left, right) = (self.left[node], self.right[node]);
            if (left, right) == (-1, -1) {
                return Ok(Kind::Leaf);
            }
            let child = |child: i64| usize::try_from(child).unwrap_or(usize::MAX);
            Ok(Kind::Split {
                feature: u32::try_from(self.feature[node]).map_err(|_| {
                    ORIGIN.refuse_tree(
                        tree,
                        format_args!(
                            "node {node}: expected a feature, got {}",
                            self.feature[node]
                        ),
                    )
                })?,
                threshold: not_above(self.threshold[node].0),
                missing_left: self.missing_left[node],
                left: child(left),
                right: child(right),
            })
        })?;
        if levelled.reached() != nodes {
            return Err(ORIGIN.refuse_tree(
                tree,
                format_args!(
                    "expected {nodes} nodes, got {} that can be reached",
                    levelled.reached()
                ),
            ));
        }
        Ok(levelled)
    }
}
