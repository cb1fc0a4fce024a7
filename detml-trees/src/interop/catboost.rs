//! CatBoost's JSON models.
//!
//! The format is that of `catboost/libs/model/model_export/json_model_helpers.cpp`. A row goes to
//! the right if its feature is above the border; `nan_value_treatment` says where NaN goes.

use super::tree::{Grove, Kind, Levelled, Origin, not_above};
use super::{Library, Link, Parts, TreeEnsemble};
use detml_core::Result;
use serde::Deserialize;
use serde_json::Value;

const ORIGIN: Origin = Origin("CatBoost JSON");

#[derive(Deserialize)]
struct File {
    features_info: Features,
    model_info: Info,
    oblivious_trees: Option<Vec<Oblivious>>,
    trees: Option<Vec<Nested>>,
    scale_and_bias: (f64, Bias),
}

#[derive(Deserialize)]
struct Features {
    #[serde(default)]
    float_features: Vec<FloatFeature>,
    categorical_features: Option<Vec<serde::de::IgnoredAny>>,
    text_features: Option<Vec<serde::de::IgnoredAny>>,
    embedding_features: Option<Vec<serde::de::IgnoredAny>>,
}

#[derive(Deserialize)]
struct FloatFeature {
    feature_index: usize,
    flat_feature_index: u32,
    #[serde(default)]
    feature_id: String,
    nan_value_treatment: String,
}

#[derive(Deserialize)]
struct Info {
    params: Option<Params>,
    class_params: Option<ClassParams>,
}

#[derive(Deserialize)]
struct Params {
    loss_function: Loss,
}

#[derive(Deserialize)]
struct Loss {
    #[serde(rename = "type")]
    name: String,
}

#[derive(Deserialize)]
struct ClassParams {
    class_names: Vec<Value>,
}

/// Older versions write a single bias as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Numbers {
    One(f64),
    Many(Vec<f64>),
}

type Bias = Numbers;

impl Numbers {
    fn as_slice(&self) -> &[f64] {
        match self {
            Self::One(number) => std::slice::from_ref(number),
            Self::Many(numbers) => numbers,
        }
    }
}

#[derive(Deserialize)]
struct Oblivious {
    leaf_values: Vec<f64>,
    /// From the leaf's lowest bit on; none for a constant tree.
    splits: Option<Vec<Split>>,
}

#[derive(Deserialize)]
struct Split {
    split_type: String,
    float_feature_index: Option<usize>,
    border: Option<f64>,
}

#[derive(Deserialize)]
struct Nested {
    split: Option<Split>,
    left: Option<Box<Nested>>,
    right: Option<Box<Nested>>,
    value: Option<Numbers>,
}

/// A float feature: its column, and where NaN goes.
struct Column {
    flat: u32,
    missing_left: bool,
}

pub(super) fn from_json(bytes: &[u8]) -> Result<TreeEnsemble> {
    let file: File =
        serde_json::from_slice(bytes).map_err(|error| ORIGIN.refuse(error.to_string()))?;
    for (what, features) in [
        ("categorical", &file.features_info.categorical_features),
        ("text", &file.features_info.text_features),
        ("embedding", &file.features_info.embedding_features),
    ] {
        if features
            .as_ref()
            .is_some_and(|features| !features.is_empty())
        {
            return Err(ORIGIN.unsupported(
                format_args!("{what} features"),
                "only numerical features are read",
            ));
        }
    }
    let mut columns: Vec<Column> = Vec::new();
    let mut names = Vec::new();
    for (i, feature) in file.features_info.float_features.into_iter().enumerate() {
        let flat = feature.flat_feature_index;
        let ascending = columns.last().is_none_or(|last| last.flat < flat);
        if feature.feature_index != i || !ascending {
            return Err(ORIGIN.refuse(format!(
                "float feature {i}: expected the index {i} and ascending flat indices, got {} and {flat}",
                feature.feature_index
            )));
        }
        columns.push(Column {
            flat,
            missing_left: match feature.nan_value_treatment.as_str() {
                // NaN isn't above a border.
                "AsIs" | "AsFalse" => true,
                "AsTrue" => false,
                other => {
                    return Err(ORIGIN.unsupported(
                        format_args!("`nan_value_treatment` `{}`", other.escape_debug()),
                        "AsIs, AsFalse and AsTrue are read",
                    ));
                }
            },
        });
        names.push(feature.feature_id);
    }
    let features = columns.last().map_or(0, |last| last.flat as usize + 1);
    let (scale, bias) = file.scale_and_bias;
    let bias = bias.as_slice();
    let outputs = ORIGIN.outputs(bias.len())?;
    if bias.is_empty() {
        return Err(ORIGIN.refuse("`scale_and_bias`: expected a bias for each output, got none"));
    }
    let base = bias.iter().map(|&bias| bias as f32).collect();
    let mut grove = Grove::new(ORIGIN, base);
    let mut add = |tree: &Levelled, value: &dyn Fn(usize, usize) -> f64| {
        (0..outputs).try_for_each(|output| {
            grove.add(output, tree, |node| (scale * value(node, output)) as f32)
        })
    };
    match (&file.oblivious_trees, &file.trees) {
        (Some(trees), None) => {
            for (i, tree) in trees.iter().enumerate() {
                let levelled = tree.levelled(i, outputs, &columns)?;
                let first = tree.leaf_values.len() / outputs - 1;
                add(&levelled, &|node, output| {
                    tree.leaf_values[(node - first) * outputs + output]
                })?;
            }
        }
        (None, Some(trees)) => {
            for (i, tree) in trees.iter().enumerate() {
                let mut nodes = Vec::new();
                let mut values = Vec::new();
                tree.flatten(i, outputs, &columns, &mut nodes, &mut values)?;
                let levelled = Levelled::new(ORIGIN, i, nodes.len(), |node| {
                    Ok(match nodes[node] {
                        Flat::Leaf(_) => Kind::Leaf,
                        Flat::Split {
                            column,
                            border,
                            left,
                            right,
                        } => split(&columns[column], border, left, right),
                    })
                })?;
                add(&levelled, &|node, output| match nodes[node] {
                    Flat::Leaf(first) => values[first + output],
                    Flat::Split { .. } => 0.0,
                })?;
            }
        }
        _ => {
            return Err(ORIGIN.refuse("expected either `oblivious_trees` or `trees`"));
        }
    }
    let forest = grove.into_forest(features)?;

    let Some(params) = file.model_info.params else {
        return Err(ORIGIN.unsupported(
            "a model without `params`",
            "its loss, and so its predictions, aren't known",
        ));
    };
    let mut parts = Parts::new(Library::CatBoost, params.loss_function.name, forest);
    let classes = match file.model_info.class_params {
        Some(classes) => classes.class_names,
        None => Vec::new(),
    };
    set_loss(&mut parts, &classes, outputs)?;
    if features == names.len() && names.iter().any(|name| !name.is_empty()) {
        parts.feature_names = Some(names);
    }
    TreeEnsemble::new(parts).map_err(|error| ORIGIN.refuse(error.to_string()))
}

fn set_loss(parts: &mut Parts, classes: &[Value], outputs: usize) -> Result<()> {
    let (link, labels) = match parts.objective.as_str() {
        "RMSE"
        | "MAE"
        | "Quantile"
        | "MultiQuantile"
        | "MAPE"
        | "LogCosh"
        | "Huber"
        | "Expectile"
        | "Lq"
        | "MultiRMSE"
        | "MultiRMSEWithMissingValues"
        | "QueryRMSE"
        | "PairLogit"
        | "PairLogitPairwise"
        | "YetiRank"
        | "YetiRankPairwise"
        | "LambdaMart"
        | "StochasticRank"
        | "QuerySoftMax"
        | "QueryCrossEntropy" => (Link::Identity, 0),
        "Poisson" | "Tweedie" | "LogLinQuantile" => (Link::Exp, 0),
        "Logloss" => (Link::Sigmoid, 2),
        "CrossEntropy" | "MultiLogloss" | "MultiCrossEntropy" => (Link::Sigmoid, 0),
        "MultiClass" => (Link::Softmax, outputs),
        "MultiClassOneVsAll" => (Link::Sigmoid, outputs),
        other => {
            return Err(ORIGIN.unsupported(
                format_args!("the loss `{}`", other.escape_debug()),
                "how its margins become predictions isn't known",
            ));
        }
    };
    parts.link = link;
    if labels > 0 {
        parts.name_classes(labels, classes);
    }
    Ok(())
}

fn split(column: &Column, border: f64, left: usize, right: usize) -> Kind {
    Kind::Split {
        feature: column.flat,
        threshold: not_above(border),
        missing_left: column.missing_left,
        left,
        right,
    }
}

impl Split {
    /// The column's place and the border.
    fn check(&self, tree: usize, columns: &[Column]) -> Result<(usize, f64)> {
        if self.split_type != "FloatFeature" {
            return Err(ORIGIN.unsupported(
                format_args!("a split of type `{}`", self.split_type.escape_debug()),
                "only numerical splits (FloatFeature) are read",
            ));
        }
        match (self.float_feature_index, self.border) {
            (Some(column), Some(border)) if column < columns.len() => Ok((column, border)),
            (column, border) => Err(ORIGIN.refuse_tree(
                tree,
                format_args!(
                    "expected a split of a float feature below {} at a border, got {column:?} at {border:?}",
                    columns.len()
                ),
            )),
        }
    }
}

impl Oblivious {
    /// The complete tree, whose node `k` has the children `2 k + 1` and `2 k + 2`: the last split
    /// is the root, so that leaves come in the order of their numbers.
    fn levelled(&self, tree: usize, outputs: usize, columns: &[Column]) -> Result<Levelled> {
        let splits = self.splits.as_deref().unwrap_or_default();
        let leaves = 1usize.checked_shl(splits.len() as u32).unwrap_or(0);
        if leaves == 0 || leaves.checked_mul(outputs) != Some(self.leaf_values.len()) {
            return Err(ORIGIN.refuse_tree(
                tree,
                format_args!(
                    "expected 2^{} leaves of {outputs} outputs, got {} values",
                    splits.len(),
                    self.leaf_values.len()
                ),
            ));
        }
        let levels = splits
            .iter()
            .rev()
            .map(|split| split.check(tree, columns))
            .collect::<Result<Vec<_>>>()?;
        Levelled::new(ORIGIN, tree, 2 * leaves - 1, |node| {
            let level = (node + 1).ilog2() as usize;
            Ok(match levels.get(level) {
                None => Kind::Leaf,
                Some(&(column, border)) => {
                    split(&columns[column], border, 2 * node + 1, 2 * node + 2)
                }
            })
        })
    }
}

enum Flat {
    /// Where the leaf's values start.
    Leaf(usize),
    Split {
        column: usize,
        border: f64,
        left: usize,
        right: usize,
    },
}

impl Nested {
    /// Appends the tree, parents before their children; serde_json bounds its depth.
    fn flatten(
        &self,
        tree: usize,
        outputs: usize,
        columns: &[Column],
        nodes: &mut Vec<Flat>,
        values: &mut Vec<f64>,
    ) -> Result<()> {
        match (&self.split, &self.left, &self.right, &self.value) {
            (Some(split), Some(left), Some(right), None) => {
                let (column, border) = split.check(tree, columns)?;
                let at = nodes.len();
                nodes.push(Flat::Leaf(0));
                let mut children = [0; 2];
                for (child, place) in [left, right].into_iter().zip(&mut children) {
                    *place = nodes.len();
                    child.flatten(tree, outputs, columns, nodes, values)?;
                }
                let [left, right] = children;
                nodes[at] = Flat::Split {
                    column,
                    border,
                    left,
                    right,
                };
                Ok(())
            }
            (None, None, None, Some(value)) if value.as_slice().len() == outputs => {
                nodes.push(Flat::Leaf(values.len()));
                values.extend_from_slice(value.as_slice());
                Ok(())
            }
            _ => Err(ORIGIN.refuse_tree(
                tree,
                format_args!("expected a split with two children, or a leaf of {outputs} values"),
            )),
        }
    }
}
