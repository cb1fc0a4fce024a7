//! XGBoost's models, in JSON and UBJSON of one shape.
//!
//! The shape is that of `doc/model.schema` and `src/tree/tree_model.cc` in XGBoost's source. A row
//! goes to the left if its feature is below the condition, and missing values by `default_left`.

use super::categories::Categories;
use super::tree::{Grove, Kind, Levelled, Origin, below};
use super::{Library, Link, Parts, TreeEnsemble, ubjson};
use detml_core::Result;
use detml_kernels::ieee::Ieee;
use detml_kernels::math::ln;
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use std::collections::BTreeMap;

pub(super) fn from_json(bytes: &[u8]) -> Result<TreeEnsemble> {
    let origin = Origin("XGBoost JSON");
    let file = serde_json::from_slice(bytes).map_err(|error| origin.refuse(error.to_string()))?;
    build(origin, file)
}

pub(super) fn from_ubjson(bytes: &[u8]) -> Result<TreeEnsemble> {
    let origin = Origin("XGBoost UBJSON");
    let file = ubjson::from_slice(bytes).map_err(|error| origin.refuse(error.to_string()))?;
    build(origin, file)
}

#[derive(Deserialize)]
struct File {
    learner: Learner,
}

#[derive(Deserialize)]
struct Learner {
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    #[serde(default)]
    feature_names: Vec<String>,
    gradient_booster: Booster,
    learner_model_param: LearnerParam,
    objective: Objective,
}

#[derive(Deserialize)]
struct LearnerParam {
    base_score: String,
    num_class: String,
    num_feature: String,
    num_target: Option<String>,
}

#[derive(Deserialize)]
struct Objective {
    name: String,
}

#[derive(Deserialize)]
struct Booster {
    name: String,
    /// Of `gbtree`; without the fields below for `gblinear`.
    model: Option<Model>,
    /// Of `dart`.
    gbtree: Option<GbTree>,
    weight_drop: Option<Vec<f32>>,
}

#[derive(Deserialize)]
struct GbTree {
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    gbtree_model_param: Option<ModelParam>,
    #[serde(default)]
    tree_info: Vec<i64>,
    #[serde(default)]
    trees: Vec<Tree>,
}

#[derive(Deserialize)]
struct ModelParam {
    num_trees: String,
    /// Since 1.6.
    num_parallel_tree: Option<String>,
}

#[derive(Deserialize)]
struct Tree {
    tree_param: TreeParam,
    left_children: Vec<i64>,
    right_children: Vec<i64>,
    split_indices: Vec<i64>,
    split_conditions: Vec<f32>,
    default_left: Vec<Flag>,
    #[serde(default)]
    split_type: Vec<i64>,
    /// Nodes that split by categories, and where in `categories` the codes of each are.
    #[serde(default)]
    categories_nodes: Vec<i64>,
    #[serde(default)]
    categories_segments: Vec<i64>,
    #[serde(default)]
    categories_sizes: Vec<i64>,
    /// The codes that go to the right.
    #[serde(default)]
    categories: Vec<i64>,
    leaf_weights: Option<Vec<f32>>,
}

#[derive(Deserialize)]
struct TreeParam {
    num_nodes: String,
    num_deleted: String,
    size_leaf_vector: Option<String>,
}

/// A truth value, also as 0 or 1.
#[derive(Clone, Copy)]
struct Flag(bool);

impl<'a> Deserialize<'a> for Flag {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Truth;
        impl Visitor<'_> for Truth {
            type Value = Flag;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("true, false, 1 or 0")
            }
            fn visit_bool<E>(self, value: bool) -> std::result::Result<Flag, E> {
                Ok(Flag(value))
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> std::result::Result<Flag, E> {
                match value {
                    0 | 1 => Ok(Flag(value == 1)),
                    _ => Err(E::invalid_value(
                        serde::de::Unexpected::Unsigned(value),
                        &self,
                    )),
                }
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> std::result::Result<Flag, E> {
                self.visit_u64(
                    value
                        .unsigned_abs()
                        .saturating_add(u64::from(value < 0) * 2),
                )
            }
        }
        deserializer.deserialize_any(Truth)
    }
}

fn count(origin: Origin, what: &str, text: &str) -> Result<usize> {
    text.parse().map_err(|_| {
        origin.refuse(format!(
            "`{what}`: expected a count, got `{}`",
            text.escape_debug()
        ))
    })
}

/// How base scores become margins.
enum Base {
    Margin,
    Probability,
    Positive,
}

fn objective(origin: Origin, name: &str) -> Result<(Link, Base)> {
    Ok(match name {
        "reg:squarederror"
        | "reg:linear"
        | "reg:squaredlogerror"
        | "reg:pseudohubererror"
        | "reg:absoluteerror"
        | "reg:quantileerror"
        | "reg:expectileerror"
        | "rank:pairwise"
        | "rank:ndcg"
        | "rank:map"
        | "binary:logitraw" => (Link::Identity, Base::Margin),
        "reg:logistic" | "binary:logistic" => (Link::Sigmoid, Base::Probability),
        "multi:softmax" | "multi:softprob" => (Link::Softmax, Base::Margin),
        "count:poisson" | "reg:gamma" | "reg:tweedie" | "survival:cox" | "survival:aft" => {
            (Link::Exp, Base::Positive)
        }
        "binary:hinge" => (Link::Step, Base::Margin),
        _ => {
            return Err(origin.unsupported(
                format_args!("the objective `{}`", name.escape_debug()),
                "how its margins become predictions isn't known",
            ));
        }
    })
}

/// `5E-1`, or since 3.1 `[5E-1]` with a number for each output.
fn base_margins(origin: Origin, text: &str, base: &Base, outputs: usize) -> Result<Vec<f32>> {
    let refuse = |expected: &str| {
        origin.refuse(format!(
            "`base_score`: expected {expected}, got `{}`",
            text.escape_debug()
        ))
    };
    let inside = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let mut scores = Vec::new();
    for score in inside.unwrap_or(text).split(',') {
        let score: f32 = score.trim().parse().map_err(|_| refuse("numbers"))?;
        // XGBoost's own formulas, in its precision.
        let ieee = Ieee::PLAIN;
        scores.push(match base {
            Base::Margin => score,
            Base::Probability => {
                if !(score > 0.0 && score < 1.0) {
                    return Err(refuse("a probability between 0 and 1"));
                }
                -ln(&ieee, ieee.sub(ieee.div(1.0, score), 1.0))
            }
            Base::Positive => {
                if score.is_nan() || score <= 0.0 {
                    return Err(refuse("a number above 0"));
                }
                ln(&ieee, score)
            }
        });
    }
    match scores[..] {
        [score] => Ok(vec![score; outputs]),
        _ if scores.len() == outputs => Ok(scores),
        _ => Err(refuse(&format!("1 or {outputs} numbers"))),
    }
}

fn build(origin: Origin, file: File) -> Result<TreeEnsemble> {
    let Learner {
        attributes,
        feature_names,
        gradient_booster: booster,
        learner_model_param: param,
        objective: Objective { name },
    } = file.learner;
    let missing = |what: &str| origin.refuse(format!("`{what}` is missing"));
    let (model, weights) = match booster.name.as_str() {
        "gbtree" => (booster.model.ok_or_else(|| missing("model"))?, None),
        "dart" => {
            let model = booster.gbtree.ok_or_else(|| missing("gbtree"))?.model;
            let weights = booster.weight_drop.ok_or_else(|| missing("weight_drop"))?;
            (model, Some(weights))
        }
        other => {
            return Err(origin.unsupported(
                format_args!("the booster `{}`", other.escape_debug()),
                "only trees are read: `gbtree` and `dart`",
            ));
        }
    };
    let (link, base) = objective(origin, &name)?;
    let features = count(origin, "num_feature", &param.num_feature)?;
    let classes = count(origin, "num_class", &param.num_class)?;
    let targets = match &param.num_target {
        Some(text) => count(origin, "num_target", text)?,
        None => 1,
    };
    if classes > 1 && targets > 1 {
        return Err(origin.unsupported(
            format_args!("{targets} targets of {classes} classes"),
            "one target with classes or several without are read",
        ));
    }
    let outputs = origin.outputs(classes.max(targets))?;
    if (link == Link::Softmax) != (classes > 1) {
        return Err(origin.refuse(format!(
            "`{name}`: expected another `num_class`, got {classes}"
        )));
    }
    let model_param = model
        .gbtree_model_param
        .ok_or_else(|| missing("gbtree_model_param"))?;
    let trees = model.trees;
    let claims = [
        (
            "num_trees",
            count(origin, "num_trees", &model_param.num_trees)?,
        ),
        ("tree_info", model.tree_info.len()),
        (
            "weight_drop",
            weights.as_ref().map_or(trees.len(), Vec::len),
        ),
    ];
    for (what, claimed) in claims {
        if claimed != trees.len() {
            return Err(origin.refuse(format!(
                "`{what}`: expected {} trees, got {claimed}",
                trees.len()
            )));
        }
    }
    let base = base_margins(origin, &param.base_score, &base, outputs)?;
    let mut grove = Grove::new(origin, base);
    for (i, (tree, &info)) in trees.iter().zip(&model.tree_info).enumerate() {
        let Some(output) = usize::try_from(info).ok().filter(|&info| info < outputs) else {
            return Err(origin.refuse_tree(
                i,
                format_args!("expected an output below {outputs}, got {info}"),
            ));
        };
        let weight = weights.as_ref().map_or(1.0, |weights| weights[i]);
        let value = |value: f32| Ieee::PLAIN.mul(value, weight);
        let (levelled, vectors) = tree.levelled(origin, i, outputs)?;
        match vectors {
            None => grove.add(output, &levelled, |node| value(tree.split_conditions[node]))?,
            Some(vectors) => {
                for output in 0..outputs {
                    grove.add(output, &levelled, |node| {
                        let leaf = tree.right_children[node] as usize;
                        value(vectors[leaf * outputs + output])
                    })?;
                }
            }
        }
    }
    let mut parts = Parts::new(Library::XgBoost, name, grove.into_forest(features)?);
    parts.link = link;
    match (link, parts.objective.as_str()) {
        (Link::Softmax, _) => parts.number_classes(classes),
        (_, "binary:logistic") if outputs == 1 => parts.number_classes(2),
        _ => {}
    }
    if !feature_names.is_empty() {
        parts.feature_names = Some(feature_names);
    }
    if let Some(text) = &model_param.num_parallel_tree {
        parts.parallel_trees = count(origin, "num_parallel_tree", text)?.max(1);
    }
    if let Some(text) = attributes.get("best_iteration") {
        parts.best_iteration = Some(count(origin, "best_iteration", text)?);
    }
    TreeEnsemble::new(parts).map_err(|error| origin.refuse(error.to_string()))
}

impl Tree {
    /// The tree, and its leaf vectors if it has any.
    fn levelled(
        &self,
        origin: Origin,
        tree: usize,
        outputs: usize,
    ) -> Result<(Levelled, Option<&[f32]>)> {
        let nodes = count(origin, "num_nodes", &self.tree_param.num_nodes)?;
        let deleted = count(origin, "num_deleted", &self.tree_param.num_deleted)?;
        let wide = match &self.tree_param.size_leaf_vector {
            Some(text) => count(origin, "size_leaf_vector", text)?,
            None => 1,
        };
        let vectors = match (wide, &self.leaf_weights) {
            (0 | 1, _) => None,
            (_, Some(weights)) if wide == outputs => Some(&weights[..]),
            (_, Some(_)) => {
                return Err(origin.refuse_tree(
                    tree,
                    format_args!("expected leaves of {outputs} outputs, got {wide}"),
                ));
            }
            (_, None) => {
                return Err(origin.unsupported(
                    "`multi_output_tree` before version 3.2",
                    "save the model with XGBoost 3.2, or fit it with `one_output_per_tree`",
                ));
            }
        };
        for (what, length) in [
            ("left_children", self.left_children.len()),
            ("right_children", self.right_children.len()),
            ("split_indices", self.split_indices.len()),
            ("split_conditions", self.split_conditions.len()),
            ("default_left", self.default_left.len()),
        ] {
            if length != nodes {
                return Err(origin.refuse_tree(
                    tree,
                    format_args!("`{what}`: expected {nodes} nodes, got {length}"),
                ));
            }
        }
        let categories = self.categories(origin, tree)?;
        let levelled = Levelled::new(origin, tree, nodes, |node| {
            let refuse = |what: &str, got: &dyn std::fmt::Display| {
                Err(origin.refuse_tree(
                    tree,
                    format_args!("node {node}: expected {what}, got {got}"),
                ))
            };
            if self.left_children[node] == -1 {
                let right = self.right_children[node];
                let Some(vectors) = vectors else {
                    return match right {
                        -1 => Ok(Kind::Leaf),
                        _ => refuse("no right child, as no left one", &right),
                    };
                };
                let leaves = vectors.len() / outputs;
                return match usize::try_from(right) {
                    Ok(leaf) if leaf < leaves => Ok(Kind::Leaf),
                    _ => refuse(&format!("a leaf below {leaves}"), &right),
                };
            }
            let child = |child: i64| usize::try_from(child).unwrap_or(usize::MAX);
            let (left, right) = (
                child(self.left_children[node]),
                child(self.right_children[node]),
            );
            let missing_left = self.default_left[node].0;
            let Ok(feature) = u32::try_from(self.split_indices[node]) else {
                return refuse("a feature", &self.split_indices[node]);
            };
            match self.split_type.get(node) {
                None | Some(0) => {}
                Some(1) => {
                    let Some(codes) = categories.get(&node) else {
                        return refuse("categories", &"none");
                    };
                    return Ok(Kind::Category {
                        feature,
                        // Codes below 0 aren't in any set.
                        set: Categories::new(origin, tree, codes, false, (0f32).next_down())?,
                        missing_left,
                        left,
                        right,
                    });
                }
                Some(other) => return refuse("a split of type 0 or 1", other),
            }
            let Some(threshold) = below(self.split_conditions[node]) else {
                return refuse(
                    "a condition above minus infinity",
                    &self.split_conditions[node],
                );
            };
            Ok(Kind::Split {
                feature,
                threshold,
                missing_left,
                left,
                right,
            })
        })?;
        // Pruned nodes stay in the lists, unreachable.
        if levelled.reached().checked_add(deleted) != Some(nodes) {
            return Err(origin.refuse_tree(
                tree,
                format_args!(
                    "expected {nodes} nodes, got {} and {deleted} deleted ones",
                    levelled.reached()
                ),
            ));
        }
        let leaves = levelled.reached() / 2 + 1;
        match vectors {
            Some(vectors) if leaves.checked_mul(outputs) != Some(vectors.len()) => {
                Err(origin.refuse_tree(
                    tree,
                    format_args!(
                        "`leaf_weights`: expected {leaves} leaves of {outputs} outputs, got {} numbers",
                        vectors.len()
                    ),
                ))
            }
            _ => Ok((levelled, vectors)),
        }
    }
    /// The codes of each node that splits by categories.
    fn categories(&self, origin: Origin, tree: usize) -> Result<BTreeMap<usize, &[i64]>> {
        let counts = [self.categories_segments.len(), self.categories_sizes.len()];
        if counts != [self.categories_nodes.len(); 2] {
            return Err(origin.refuse_tree(
                tree,
                format_args!(
                    "expected segments and sizes of {} nodes with categories, got {} and {}",
                    self.categories_nodes.len(),
                    counts[0],
                    counts[1]
                ),
            ));
        }
        let segments = self.categories_segments.iter().zip(&self.categories_sizes);
        let nodes = self.categories_nodes.iter().zip(segments);
        nodes
            .map(|(&node, (&start, &size))| {
                let place = || {
                    let start = usize::try_from(start).ok()?;
                    let end = start.checked_add(usize::try_from(size).ok()?)?;
                    Some((usize::try_from(node).ok()?, self.categories.get(start..end)?))
                };
                place().ok_or_else(|| {
                    origin.refuse_tree(
                        tree,
                        format_args!(
                            "expected a segment of {} categories for a node, got {size} from {start} for {node}",
                            self.categories.len()
                        ),
                    )
                })
            })
            .collect()
    }
}
