//! LightGBM's text models.
//!
//! The format is that of `GBDT::SaveModelToString` and `Tree::ToString` in LightGBM's source, a
//! row's way that of `Tree::NumericalDecision`. What follows `end of trees` (importances and
//! parameters) has no say in predictions and isn't read.

use super::categories::Categories;
use super::tree::{Grove, Kind, Levelled, Origin, not_above};
use super::{Library, Link, Parts, TreeEnsemble};
use detml_core::Result;
use std::collections::BTreeMap;
use std::str::FromStr;

const ORIGIN: Origin = Origin("LightGBM text");

/// LightGBM takes numbers from the opposite of this one (`kZeroThreshold`) to it for zero.
const ZERO: f32 = 1e-35;

pub(super) fn from_text(bytes: &[u8]) -> Result<TreeEnsemble> {
    let text = ORIGIN.text(bytes)?;
    let mut lines = text.split('\n').map(|line| line.trim_end_matches('\r'));
    if lines.next() != Some("tree") {
        return Err(ORIGIN.refuse("expected `tree` as the first line"));
    }
    let (header, mut mark) = block(&mut lines, "the header")?;
    let version: String = header.number("version")?;
    if !["v2", "v3", "v4"].contains(&version.as_str()) {
        return Err(ORIGIN.unsupported(
            format_args!("version `{}`", version.escape_debug()),
            "v2, v3 and v4 are read",
        ));
    }
    let outputs: usize = header.number("num_tree_per_iteration")?;
    if outputs == 0 {
        return Err(header.refuse("num_tree_per_iteration", "1 or more", "0"));
    }
    let outputs = ORIGIN.outputs(outputs)?;
    let features = match header.number::<i64>("max_feature_idx")? {
        -1 => 0,
        last => usize::try_from(last)
            .ok()
            .and_then(|last| last.checked_add(1))
            .ok_or_else(|| header.refuse("max_feature_idx", "-1 or more", &last.to_string()))?,
    };
    let averaged = header.entries.contains_key("average_output");

    let mut trees = Vec::new();
    while let Some(number) = mark {
        if number != trees.len().to_string() {
            return Err(ORIGIN.refuse(format!(
                "expected `Tree={}`, got `Tree={}`",
                trees.len(),
                number.escape_debug()
            )));
        }
        let (lists, next) = block(&mut lines, &format!("tree {number}"))?;
        trees.push(lists);
        mark = next;
    }
    let rounds = (trees.len() / outputs).max(1) as f64;
    let mut grove = Grove::new(ORIGIN, vec![0.0; outputs]);
    for (i, lists) in trees.iter().enumerate() {
        let tree = Tree::new(i, lists)?;
        grove.add(i % outputs, &tree.levelled, |node| {
            let value = tree.values[node - tree.splits];
            // Rounded once to f32.
            (if averaged { value / rounds } else { value }) as f32
        })?;
    }
    let forest = grove.into_forest(features)?;

    let objective = header.entries.get("objective").copied().unwrap_or_default();
    let mut parts = Parts::new(Library::LightGbm, "", forest);
    parts.averaged = averaged;
    set_objective(&mut parts, objective, outputs)?;
    if let Some(names) = header.entries.get("feature_names") {
        parts.feature_names = Some(names.split(' ').map(str::to_owned).collect());
    }
    if features == 0 {
        parts.feature_names = None;
    }
    TreeEnsemble::new(parts).map_err(|error| ORIGIN.refuse(error.to_string()))
}

fn set_objective(parts: &mut Parts, text: &str, outputs: usize) -> Result<()> {
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    let name = words.next().unwrap_or("custom");
    let mut root = false;
    let mut slope = 1.0;
    for word in words {
        match word.split_once(':') {
            None if word == "sqrt" => root = true,
            Some(("sigmoid", number)) => {
                slope = number.parse::<f64>().map_err(|_| {
                    ORIGIN.refuse(format!(
                        "`sigmoid`: expected a number, got `{}`",
                        number.escape_debug()
                    ))
                })? as f32;
            }
            Some(("num_class", number)) if number != outputs.to_string() => {
                return Err(ORIGIN.refuse(format!(
                    "`num_class`: expected {outputs}, as trees in a round, got `{}`",
                    number.escape_debug()
                )));
            }
            // Others are of the training.
            _ => {}
        }
    }
    parts.objective = name.to_owned();
    match name {
        "regression" | "regression_l2" | "regression_l1" | "huber" | "fair" | "quantile"
        | "mape" | "lambdarank" | "rank_xendcg" | "custom" => {
            if root {
                parts.link = Link::SignedSquare;
            }
        }
        "poisson" | "gamma" | "tweedie" => parts.link = Link::Exp,
        "cross_entropy" | "xentropy" => parts.link = Link::Sigmoid,
        "cross_entropy_lambda" | "xentlambda" => parts.link = Link::Softplus,
        "binary" => {
            parts.link = Link::Sigmoid;
            parts.slope = slope;
            parts.number_classes(2);
        }
        "multiclass" => {
            parts.link = Link::Softmax;
            parts.number_classes(outputs);
        }
        "multiclassova" => {
            parts.link = Link::Sigmoid;
            parts.slope = slope;
            parts.number_classes(outputs);
        }
        _ => {
            return Err(ORIGIN.unsupported(
                format_args!("the objective `{}`", name.escape_debug()),
                "how its margins become predictions isn't known",
            ));
        }
    }
    Ok(())
}

/// Lines `key=value`.
struct Block<'a> {
    what: String,
    entries: BTreeMap<&'a str, &'a str>,
}

/// The lines up to `Tree=` (whose number comes with them) or `end of trees`.
fn block<'a>(
    lines: &mut impl Iterator<Item = &'a str>,
    what: &str,
) -> Result<(Block<'a>, Option<&'a str>)> {
    let mut entries = BTreeMap::new();
    for line in lines {
        let mark = match line.strip_prefix("Tree=") {
            None if line == "end of trees" => None,
            None => {
                let (key, value) = line.split_once('=').unwrap_or((line, ""));
                if !key.is_empty() && entries.insert(key, value).is_some() {
                    return Err(
                        ORIGIN.refuse(format!("{what}: `{}` is given twice", key.escape_debug()))
                    );
                }
                continue;
            }
            number => number,
        };
        let what = what.to_owned();
        return Ok((Block { what, entries }, mark));
    }
    Err(ORIGIN.refuse(format!("{what}: the text ends before `end of trees`")))
}

impl<'a> Block<'a> {
    fn refuse(&self, key: &str, expected: &str, got: &str) -> detml_core::Error {
        ORIGIN.refuse(format!(
            "{}: `{key}`: expected {expected}, got `{}`",
            self.what,
            got.escape_debug()
        ))
    }

    fn get(&self, key: &str) -> Result<&'a str> {
        let found = self.entries.get(key).copied();
        found.ok_or_else(|| ORIGIN.refuse(format!("{}: `{key}` is missing", self.what)))
    }

    fn number<T: FromStr>(&self, key: &str) -> Result<T> {
        let text = self.get(key)?;
        text.parse().map_err(|_| self.refuse(key, "a number", text))
    }

    fn list<T: FromStr>(&self, key: &str, count: usize) -> Result<Vec<T>> {
        // Without splits the lists of splits may be left out.
        let text = match self.entries.get(key) {
            None if count == 0 => "",
            _ => self.get(key)?,
        };
        let words = text.split(' ').filter(|word| !word.is_empty());
        let numbers = words
            .map(|word| word.parse().map_err(|_| self.refuse(key, "numbers", word)))
            .collect::<Result<Vec<T>>>()?;
        if numbers.len() != count {
            let got = numbers.len().to_string();
            return Err(self.refuse(key, &format!("{count} numbers"), &got));
        }
        Ok(numbers)
    }
}

struct Tree {
    levelled: Levelled,
    splits: usize,
    /// By leaf, whose nodes follow the splits.
    values: Vec<f64>,
}

impl Tree {
    fn new(tree: usize, lists: &Block<'_>) -> Result<Self> {
        let leaves: usize = lists.number("num_leaves")?;
        if leaves == 0 {
            return Err(lists.refuse("num_leaves", "1 or more", "0"));
        }
        if lists
            .entries
            .get("is_linear")
            .is_some_and(|flag| *flag != "0")
        {
            return Err(ORIGIN.unsupported(
                format_args!("a linear tree (tree {tree})"),
                "only constant leaves are read; fit without `linear_tree`",
            ));
        }
        let splits = leaves - 1;
        let values: Vec<f64> = lists.list("leaf_value", leaves)?;
        let features: Vec<u32> = lists.list("split_feature", splits)?;
        let thresholds: Vec<f64> = lists.list("threshold", splits)?;
        let decisions: Vec<u8> = lists.list("decision_type", splits)?;
        let lefts: Vec<i64> = lists.list("left_child", splits)?;
        let rights: Vec<i64> = lists.list("right_child", splits)?;
        let sets = Sets::new(lists, lists.number("num_cat")?)?;
        // `!c` is the leaf of a child below 0.
        let child = |child: i64| match usize::try_from(child) {
            Ok(split) if split < splits => split,
            Ok(_) => usize::MAX,
            Err(_) => {
                usize::try_from(!child).map_or(usize::MAX, |leaf| leaf.saturating_add(splits))
            }
        };
        let levelled = Levelled::new(ORIGIN, tree, splits.saturating_add(leaves), |node| {
            if node >= splits {
                return Ok(Kind::Leaf);
            }
            let threshold = thresholds[node];
            let feature = features[node];
            let (left, right) = (child(lefts[node]), child(rights[node]));
            if decisions[node] & 1 != 0 {
                let codes = sets.codes(tree, node, threshold)?;
                return Ok(Kind::Category {
                    feature,
                    // Numbers are cut to integers: those above -1 are the code 0.
                    set: Categories::new(ORIGIN, tree, &codes, true, -1.0)?,
                    missing_left: false,
                    left,
                    right,
                });
            }
            Ok(Kind::Split {
                feature,
                threshold: boundary(threshold),
                missing_left: missing_left(tree, node, decisions[node], threshold)?,
                left,
                right,
            })
        })?;
        if levelled.reached() != splits + leaves {
            return Err(ORIGIN.refuse_tree(
                tree,
                format_args!(
                    "expected {} nodes, got {} that can be reached",
                    splits + leaves,
                    levelled.reached()
                ),
            ));
        }
        Ok(Self {
            levelled,
            splits,
            values,
        })
    }
}

/// Sets of categories as bits of words.
struct Sets {
    /// Where each set's words start, and where the last one's end.
    starts: Vec<usize>,
    words: Vec<u32>,
}

impl Sets {
    fn new(lists: &Block<'_>, sets: usize) -> Result<Self> {
        if sets == 0 {
            return Ok(Self {
                starts: Vec::new(),
                words: Vec::new(),
            });
        }
        let starts: Vec<usize> = lists.list("cat_boundaries", sets.saturating_add(1))?;
        let words = starts.last().copied().unwrap_or(0);
        Ok(Self {
            starts,
            words: lists.list("cat_threshold", words)?,
        })
    }

    /// The codes of the set whose number is the threshold.
    fn codes(&self, tree: usize, node: usize, threshold: f64) -> Result<Vec<i64>> {
        let set = threshold as usize;
        let words = || {
            let (start, end) = (self.starts.get(set)?, self.starts.get(set + 1)?);
            self.words.get(*start..*end)
        };
        let words = words().filter(|_| set as f64 == threshold).ok_or_else(|| {
            ORIGIN.refuse_tree(
                tree,
                format_args!(
                    "split {node}: expected one of {} sets of categories, got {threshold}",
                    self.starts.len().saturating_sub(1)
                ),
            )
        })?;
        let bits = 0..32 * words.len();
        Ok(bits
            .filter(|bit| words[bit / 32] >> (bit % 32) & 1 == 1)
            .map(|bit| bit as i64)
            .collect())
    }
}

/// The greatest `f32` that `x <= threshold` sends to the left, where some numbers count as 0.
fn boundary(threshold: f64) -> f32 {
    let zero = f64::from(ZERO);
    if (-zero..0.0).contains(&threshold) {
        (-ZERO).next_down()
    } else if (0.0..zero).contains(&threshold) {
        ZERO
    } else {
        not_above(threshold)
    }
}

/// Bits of a decision: 1 categorical, 2 missing values go left, 4 and 8 what is missing (0 nothing,
/// 1 zero, 2 NaN).
fn missing_left(tree: usize, node: usize, decision: u8, threshold: f64) -> Result<bool> {
    let default_left = decision & 2 != 0;
    match (decision & 1, decision >> 2) {
        // NaN is taken for 0.
        (0, 0) => Ok(0.0 <= threshold),
        (0, 1) => {
            // NaN and all that counts as zero take the default side, which must be that of 0.
            if default_left == (0.0 <= threshold) {
                return Ok(default_left);
            }
            Err(ORIGIN.unsupported(
                format_args!(
                    "`missing_type` Zero against the threshold (tree {tree}, split {node})"
                ),
                "fit without `zero_as_missing`, with NaN for missing values",
            ))
        }
        (0, 2) => Ok(default_left),
        _ => Err(ORIGIN.refuse_tree(
            tree,
            format_args!("split {node}: expected a numerical decision type, got {decision}"),
        )),
    }
}
