//! detml's models as models of XGBoost and LightGBM.

use super::tree::{Kind, Levelled, Origin, leaf};
use super::ubjson::Writer;
use crate::{GradientBoostingModel, Loss};
use detml_core::{Error, Predict, Result};
use detml_kernels::ops::forest::Node;
use std::fmt::{Display, Write};

/// A document of XGBoost's, in JSON or UBJSON.
enum Document {
    Text(String),
    Int(i64),
    Bytes(Vec<u8>),
    Ints(Vec<i32>),
    /// An empty list of `i64`.
    Longs,
    Floats(Vec<f32>),
    List(Vec<Document>),
    Object(Vec<(&'static str, Document)>),
}

impl Document {
    fn text(text: impl Display) -> Self {
        Self::Text(text.to_string())
    }

    fn json(&self, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(&serde_json::Value::from(text.as_str()).to_string()),
            Self::Int(number) => out.push_str(&number.to_string()),
            Self::Bytes(numbers) => list(out, numbers, |out, number| push(out, number)),
            Self::Ints(numbers) => list(out, numbers, |out, number| push(out, number)),
            Self::Longs => out.push_str("[]"),
            // The shortest text that reads back as the same number.
            Self::Floats(numbers) => list(out, numbers, |out, number| {
                if number.is_infinite() {
                    out.push_str(if *number > 0.0 {
                        "Infinity"
                    } else {
                        "-Infinity"
                    });
                } else {
                    push(out, format_args!("{number:E}"));
                }
            }),
            Self::List(parts) => list(out, parts, |out, part| part.json(out)),
            Self::Object(entries) => {
                out.push('{');
                for (i, (key, value)) in entries.iter().enumerate() {
                    push(
                        out,
                        format_args!("{}\"{key}\":", if i > 0 { "," } else { "" }),
                    );
                    value.json(out);
                }
                out.push('}');
            }
        }
    }

    fn ubjson(&self, out: &mut Writer) {
        match self {
            Self::Text(text) => out.text(text),
            Self::Int(number) => out.int(*number),
            Self::Bytes(numbers) => out.bytes(numbers),
            Self::Ints(numbers) => out.ints(numbers),
            Self::Longs => out.longs(),
            Self::Floats(numbers) => out.floats(numbers),
            Self::List(parts) => {
                out.list(parts.len());
                for part in parts {
                    part.ubjson(out);
                }
            }
            Self::Object(entries) => {
                out.open();
                for (key, value) in entries {
                    out.key(key);
                    value.ubjson(out);
                }
                out.close();
            }
        }
    }
}

/// Writing to a string can't fail.
fn push(out: &mut String, text: impl Display) {
    let _ = write!(out, "{text}");
}

fn list<T>(out: &mut String, parts: &[T], mut one: impl FnMut(&mut String, &T)) {
    out.push('[');
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        one(out, part);
    }
    out.push(']');
}

/// A tree with its gains and covers.
struct Grown<'a> {
    nodes: &'a [Node],
    gains: &'a [f32],
    covers: &'a [f32],
}

/// The trees of a model, after one of a single leaf for each base margin unless all are 0: the
/// other libraries' base scores are probabilities, or have none for each output, and so would
/// round.
fn with_trees<T>(
    model: &GradientBoostingModel,
    mut each: impl FnMut(usize, &Grown<'_>) -> T,
) -> Vec<T> {
    let forest = model.forest();
    let base = forest.base();
    let mut done = Vec::new();
    if base.iter().any(|&base| base != 0.0) {
        for &base in base {
            let grown = Grown {
                nodes: &[leaf(base)],
                gains: &[0.0],
                covers: &[0.0],
            };
            done.push(each(done.len(), &grown));
        }
    }
    for pair in forest.starts().windows(2) {
        let grown = Grown {
            nodes: &forest.nodes()[pair[0]..pair[1]],
            gains: &model.gains()[pair[0]..pair[1]],
            covers: &model.covers()[pair[0]..pair[1]],
        };
        done.push(each(done.len(), &grown));
    }
    done
}

fn refuse(loss: Loss, library: &str) -> Error {
    Error::unsupported(
        format!("a model of the loss `{loss:?}` for {library}"),
        "models of `Squared` with one target, `Logistic` and `Softmax` are written",
    )
}

impl GradientBoostingModel {
    /// The model as XGBoost's JSON (of version 1.7, which later ones read, too).
    ///
    /// XGBoost's margins are detml's: thresholds move to the next number, for `x < t` instead of
    /// `x <= t`, missing values keep their sides, and base margins become a first round of trees
    /// with one leaf, so that nothing is rounded. Only minus infinity may part (XGBoost refuses
    /// infinities in its data): a split that sends all numbers to one side and missing values to
    /// the other is written with the least number as its threshold. Classes are numbered 0, 1 and
    /// so on.
    ///
    /// ```
    /// use detml_core::prelude::*;
    /// use detml_trees::{GradientBoosting, TreeEnsemble};
    /// use ndarray::Array;
    ///
    /// let x = Array::from_shape_fn((50, 2), |(i, j)| (i * (j + 3) % 17) as f32);
    /// let y = x.column(0).to_owned();
    /// let model = GradientBoosting::regressor().n_trees(3).fit((&x, &y))?;
    /// let read = TreeEnsemble::from_xgboost_json(model.to_xgboost_json()?.as_bytes())?;
    /// let (a, b) = (model.predict(x.view())?, read.predict(x.view())?);
    /// assert_eq!(a.bit_hash(), b.bit_hash());
    /// # Ok::<(), detml_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] but for [`Loss::Squared`] with one target, [`Loss::Logistic`] and
    /// [`Loss::Softmax`].
    pub fn to_xgboost_json(&self) -> Result<String> {
        let mut out = String::new();
        xgboost(self)?.json(&mut out);
        Ok(out)
    }

    /// The model as XGBoost's UBJSON, as [`to_xgboost_json`](Self::to_xgboost_json).
    ///
    /// # Errors
    /// As [`to_xgboost_json`](Self::to_xgboost_json).
    pub fn to_xgboost_ubjson(&self) -> Result<Vec<u8>> {
        let mut out = Writer::default();
        xgboost(self)?.ubjson(&mut out);
        Ok(out.into_bytes())
    }

    /// The model as LightGBM's text (`v4`).
    ///
    /// Thresholds, leaves and the sides of missing values are detml's; LightGBM sums in `f64`.
    /// Base margins become a first round of trees with one leaf. Classes are numbered 0, 1 and so
    /// on. If LightGBM couldn't hold the features' names (white space, `,:[]{}"`, none, one
    /// twice), they are `Column_0` and so on. Numbers of rows aren't known, which LightGBM's
    /// `pred_contrib` would need.
    ///
    /// # Errors
    /// As [`to_xgboost_json`](Self::to_xgboost_json).
    pub fn to_lightgbm_text(&self) -> Result<String> {
        lightgbm(self)
    }
}

fn xgboost(model: &GradientBoostingModel) -> Result<Document> {
    use Document::{Int, List, Object};
    let outputs = model.n_outputs();
    let (objective, base_score, classes) = match model.loss() {
        Loss::Squared if outputs == 1 => (
            vec![
                ("name", Document::text("reg:squarederror")),
                (
                    "reg_loss_param",
                    Object(vec![("scale_pos_weight", Document::text(1))]),
                ),
            ],
            "0E0",
            0,
        ),
        Loss::Logistic => (
            vec![
                ("name", Document::text("binary:logistic")),
                (
                    "reg_loss_param",
                    Object(vec![("scale_pos_weight", Document::text(1))]),
                ),
            ],
            // The probability of the margin 0.
            "5E-1",
            0,
        ),
        Loss::Softmax if outputs > 1 => (
            vec![
                ("name", Document::text("multi:softprob")),
                (
                    "softmax_multiclass_param",
                    Object(vec![("num_class", Document::text(outputs))]),
                ),
            ],
            "0E0",
            outputs,
        ),
        other => return Err(refuse(other, "XGBoost")),
    };
    let features = model.n_features();
    let trees = with_trees(model, |i, tree| xgboost_tree(i, features, tree))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    // Of numbers that are read as a list of values, not of one type.
    let info = (0..trees.len()).map(|tree| Int((tree % outputs) as i64));
    let count = trees.len();
    let names = model.feature_names().unwrap_or_default();
    let param = |number: usize| Document::text(number);
    Ok(Object(vec![
        (
            "learner",
            Object(vec![
                ("attributes", Object(Vec::new())),
                (
                    "feature_names",
                    List(names.iter().map(Document::text).collect()),
                ),
                ("feature_types", List(Vec::new())),
                (
                    "gradient_booster",
                    Object(vec![
                        (
                            "model",
                            Object(vec![
                                (
                                    "gbtree_model_param",
                                    Object(vec![
                                        ("num_parallel_tree", param(1)),
                                        ("num_trees", param(count)),
                                        ("size_leaf_vector", param(0)),
                                    ]),
                                ),
                                ("tree_info", List(info.collect())),
                                ("trees", List(trees)),
                            ]),
                        ),
                        ("name", Document::text("gbtree")),
                    ]),
                ),
                (
                    "learner_model_param",
                    Object(vec![
                        ("base_score", Document::text(base_score)),
                        ("boost_from_average", param(0)),
                        ("num_class", param(classes)),
                        ("num_feature", param(features)),
                        ("num_target", param(1)),
                    ]),
                ),
                ("objective", Object(objective)),
            ]),
        ),
        ("version", List(vec![Int(1), Int(7), Int(6)])),
    ]))
}

/// The tree with its children turned where a split sends all numbers to the left (and missing
/// values to the right): `x < t` does so for infinity only with a `t` that JSON hasn't, while none
/// but minus infinity lies below the least number.
fn turned(tree: &Grown<'_>) -> Result<Levelled> {
    let origin = Origin("detml");
    Levelled::new(origin, 0, tree.nodes.len(), |i| {
        let node = tree.nodes[i];
        let left = node.left as usize;
        let turn = node.threshold == f32::INFINITY;
        Ok(match node.left {
            0 => Kind::Leaf,
            _ => Kind::Split {
                feature: node.feature,
                threshold: if turn {
                    f32::NEG_INFINITY
                } else {
                    node.threshold
                },
                missing_left: node.missing_left != turn,
                left: left + usize::from(turn),
                right: left + usize::from(!turn),
            },
        })
    })
}

fn xgboost_tree(id: usize, features: usize, tree: &Grown<'_>) -> Result<Document> {
    use Document::{Bytes, Floats, Int, Ints, Object};
    let turned = turned(tree)?;
    let nodes = turned.with_values(|i| tree.nodes[i].value);
    let in_order = |numbers: &[f32]| {
        let source = turned.source().iter();
        Floats(source.map(|&i| numbers[i]).collect())
    };
    let mut parents = vec![i32::MAX; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        if node.left != 0 {
            let left = node.left as usize;
            parents[left..left + 2].fill(i as i32);
        }
    }
    let child = |of: u32| {
        let index = nodes.iter().map(|node| match node.left {
            0 => -1,
            left => (left + of) as i32,
        });
        Ints(index.collect())
    };
    let words = |of: fn(&Node) -> i32| Ints(nodes.iter().map(of).collect());
    let floats = |of: fn(&Node) -> f32| Floats(nodes.iter().map(of).collect());
    let param = |number: usize| Document::text(number);
    let none = || Ints(Vec::new());
    Ok(Object(vec![
        ("base_weights", floats(|node| node.value)),
        ("categories", none()),
        ("categories_nodes", none()),
        ("categories_segments", Document::Longs),
        ("categories_sizes", Document::Longs),
        (
            "default_left",
            Bytes(nodes.iter().map(|node| node.missing_left.into()).collect()),
        ),
        ("id", Int(id as i64)),
        ("left_children", child(0)),
        ("loss_changes", in_order(tree.gains)),
        ("parents", Ints(parents)),
        ("right_children", child(1)),
        (
            "split_conditions",
            floats(|node| match node.left {
                0 => node.value,
                // `x <= t` holds for the numbers below the next one.
                _ => node.threshold.next_up(),
            }),
        ),
        ("split_indices", words(|node| node.feature as i32)),
        ("split_type", Bytes(vec![0; nodes.len()])),
        ("sum_hessian", in_order(tree.covers)),
        (
            "tree_param",
            Object(vec![
                ("num_deleted", param(0)),
                ("num_feature", param(features)),
                ("num_nodes", param(nodes.len())),
                ("size_leaf_vector", param(0)),
            ]),
        ),
    ]))
}

fn lightgbm(model: &GradientBoostingModel) -> Result<String> {
    let outputs = model.n_outputs();
    let objective = match model.loss() {
        Loss::Squared if outputs == 1 => "regression".to_owned(),
        Loss::Logistic => "binary sigmoid:1".to_owned(),
        Loss::Softmax if outputs > 1 => format!("multiclass num_class:{outputs}"),
        other => return Err(refuse(other, "LightGBM")),
    };
    let features = model.n_features();
    if features == 0 {
        return Err(Error::unsupported(
            "a model without features for LightGBM",
            "LightGBM's models have one or more",
        ));
    }
    let names: Vec<String> = match model.feature_names() {
        Some(names) if fit_lightgbm(names) => names.to_vec(),
        _ => (0..features).map(|i| format!("Column_{i}")).collect(),
    };
    let trees = with_trees(model, lightgbm_tree);
    let sizes: Vec<String> = trees.iter().map(|tree| tree.len().to_string()).collect();
    Ok(format!(
        "tree\nversion=v4\nnum_class={outputs}\nnum_tree_per_iteration={outputs}\n\
         label_index=0\nmax_feature_idx={}\nobjective={objective}\nfeature_names={}\n\
         feature_infos={}\ntree_sizes={}\n\n{}end of trees\n\nfeature_importances:\n\n\
         parameters:\n\nend of parameters\n\npandas_categorical:null\n",
        features - 1,
        names.join(" "),
        vec!["[-inf:inf]"; features].join(" "),
        sizes.join(" "),
        trees.concat(),
    ))
}

fn fit_lightgbm(names: &[String]) -> bool {
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort();
    let special = |c: char| c.is_whitespace() || c.is_control() || ",:[]{}\"".contains(c);
    sorted.is_sorted_by(|a, b| a < b)
        && !names
            .iter()
            .any(|name| name.is_empty() || name.contains(special))
}

fn lightgbm_tree(index: usize, tree: &Grown<'_>) -> String {
    // Splits and leaves are numbered apart, a leaf as a child is `!leaf`.
    let (mut splits, mut leaves) = (0, 0);
    let numbers: Vec<i64> = tree
        .nodes
        .iter()
        .map(|node| {
            let count: &mut i64 = if node.left == 0 {
                &mut leaves
            } else {
                &mut splits
            };
            *count += 1;
            if node.left == 0 { -*count } else { *count - 1 }
        })
        .collect();
    let of = |leaf: bool, text: &dyn Fn(usize, &Node) -> String| {
        let nodes = tree.nodes.iter().enumerate();
        let texts: Vec<String> = nodes
            .filter(|(_, node)| (node.left == 0) == leaf)
            .map(|(i, node)| text(i, node))
            .collect();
        texts.join(" ")
    };
    let child = |of: u32| move |node: &Node| (node.left + of) as usize;
    let (left, right) = (child(0), child(1));
    format!(
        "Tree={index}\nnum_leaves={leaves}\nnum_cat=0\nsplit_feature={}\nsplit_gain={}\n\
         threshold={}\ndecision_type={}\nleft_child={}\nright_child={}\nleaf_value={}\n\
         leaf_weight={}\ninternal_weight={}\nis_linear=0\nshrinkage=1\n\n\n",
        of(false, &|_, node| node.feature.to_string()),
        of(false, &|i, _| exact(tree.gains[i])),
        of(false, &|_, node| exact(node.threshold)),
        // NaN is missing; 2 sends it to the left.
        of(false, &|_, node| (8 + 2 * u8::from(node.missing_left))
            .to_string()),
        of(false, &|_, node| numbers[left(node)].to_string()),
        of(false, &|_, node| numbers[right(node)].to_string()),
        of(true, &|_, node| exact(node.value)),
        of(true, &|i, _| exact(tree.covers[i])),
        of(false, &|i, _| exact(tree.covers[i])),
    )
}

/// The shortest text that reads back as the same `f64`.
fn exact(number: f32) -> String {
    format!("{:e}", f64::from(number))
}
