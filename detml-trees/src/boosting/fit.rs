//! From checked data to a model.

use super::eval::Followed;
use super::model::{GradientBoostingModel, Parts, timed};
use super::{GradientBoosting, Loss};
use crate::binning::Cuts;
use crate::exact::{self, ExactSum};
use detml_core::{
    Backend, Design, Error, ExecutionReport, Fit, Labels, NumericMode, ProgressEvent, Result,
    encode_labels, require_numeric_mode,
};
use detml_kernels::Device;
use detml_kernels::ieee::Ieee;
use detml_kernels::math;
use detml_kernels::ops::boosting::{Booster, Table, Tree};
use detml_kernels::ops::forest::{self, Forest};
use ndarray::{ArrayView1, Axis, CowArray, Ix2};
use std::borrow::Cow;
use std::time::Instant;

const NAME: &str = "GradientBoosting";

/// The rows of weight above 0: the others are as good as absent.
struct Kept<'a> {
    x: CowArray<'a, f32, Ix2>,
    y: Cow<'a, [f32]>,
    weights: Option<Cow<'a, [f32]>>,
}

impl<'a> Kept<'a> {
    fn new(design: &'a Design<'_>) -> Result<Self> {
        let (x, y) = (design.x(), design.target_slice()?);
        let weights = design.weights();
        let rows: Option<Vec<usize>> = weights
            .filter(|weights| weights.contains(&0.0))
            .map(|weights| (0..y.len()).filter(|&row| weights[row] > 0.0).collect());
        Ok(match rows {
            None => Self {
                x: CowArray::from(x),
                y: Cow::Borrowed(y),
                weights: weights.map(Cow::Borrowed),
            },
            Some(rows) => {
                let pick = |from: &[f32]| Cow::Owned(rows.iter().map(|&row| from[row]).collect());
                Self {
                    x: CowArray::from(x.select(Axis(0), &rows)),
                    y: pick(y),
                    weights: weights.map(pick),
                }
            }
        })
    }

    fn table(&self, cuts: &Cuts, targets: Vec<f32>) -> Result<Table> {
        Ok(Table {
            bins: cuts.bin(self.x.view())?,
            targets,
            weights: self.weights.as_ref().map(|weights| weights.to_vec()),
        })
    }

    /// The sum over the rows of `of` times the weight.
    fn sum(&self, of: impl Fn(usize) -> f32) -> ExactSum {
        exact::sum((0..self.y.len()).map(|row| match &self.weights {
            None => of(row),
            Some(weights) => Ieee::PLAIN.mul(of(row), weights[row]),
        }))
    }
}

pub(super) fn fit(
    boosting: &GradientBoosting,
    device: &Device,
    design: &Design<'_>,
) -> Result<GradientBoostingModel> {
    require_numeric_mode(NAME, &[NumericMode::Identical])?;
    check(boosting)?;
    let mut report = ExecutionReport::new();
    let constraints = boosting
        .constraints
        .resolve(design.n_features(), design.feature_names())?;
    constraints.check_with(&boosting.growth())?;
    let started = Instant::now();
    let kept = Kept::new(design)?;
    let classes = match boosting.classify {
        true => Labels::new(ArrayView1::from(&*kept.y))?.into_parts().0,
        false => Vec::new(),
    };
    let loss = choose_loss(boosting, classes.len())?;
    let ops_loss = loss.with_classes(classes.len());
    let metric = boosting.choose_metric(loss, classes.len())?;
    let targets = targets_of(boosting, &classes, &kept)?;
    let base = match boosting.base_score {
        Some(base) => vec![base; ops_loss.outputs()],
        None => base(loss, &kept, &targets, classes.len()),
    };
    let cuts = Cuts::new(kept.x.view(), kept.weights.as_deref(), boosting.max_bins);
    let train = kept.table(&cuts, targets)?;
    let mut followed = Vec::new();
    let mut tables = Vec::new();
    for set in &boosting.evals {
        let other = set.design()?;
        boosting
            .rules()
            .check_features(other.x(), design.n_features())?;
        other.check(&boosting.rules())?;
        let kept = Kept::new(other)?;
        let table = kept.table(&cuts, targets_of(boosting, &classes, &kept)?)?;
        followed.push(Followed::new(
            set.name(),
            metric,
            ops_loss,
            &table.targets,
            table.weights.as_deref(),
        ));
        tables.push(table);
    }
    let host = Device::cpu();
    report.record(
        "binning",
        Backend::Cpu,
        host.name().to_owned(),
        None,
        started.elapsed().as_secs_f64(),
    );

    let trees = timed(&mut report, "boosting", device, || {
        // A single class is certain: there is nothing to learn.
        if classes.len() == 1 {
            return Ok(Vec::new());
        }
        let mut booster = Booster::constrained(
            device,
            train,
            tables,
            ops_loss,
            &base,
            boosting.growth(),
            &constraints,
        )?;
        let outputs = ops_loss.outputs();
        boost(boosting, device, &mut booster, &mut followed, outputs)
    })?;
    let nodes = || trees.iter().flat_map(|tree| &tree.nodes);
    GradientBoostingModel::new(Parts {
        loss,
        classes,
        class_names: design.class_names().map(<[String]>::to_vec),
        feature_names: design.feature_names().map(<[String]>::to_vec),
        gains: nodes().map(|node| node.gain).collect(),
        covers: nodes().map(|node| node.cover).collect(),
        forest: forest(&cuts, design.n_features(), base, &trees)?,
        history: followed
            .into_iter()
            .map(|followed| followed.history)
            .collect(),
        report,
    })
}

/// Rounds until the last or until the metric is no longer better.
fn boost(
    boosting: &GradientBoosting,
    device: &Device,
    booster: &mut Booster,
    followed: &mut [Followed],
    outputs: usize,
) -> Result<Vec<Tree>> {
    let mut best: Option<(usize, f64)> = None;
    for round in 0..boosting.n_trees {
        booster.round()?;
        let mut watched = None;
        for (i, followed) in followed.iter_mut().enumerate() {
            watched = Some((
                followed.metric(),
                followed.measure(device, &booster.eval_margins(i)?)?,
            ));
        }
        if boosting.progress.is_some() {
            let measures: Vec<(&str, f64)> = followed
                .iter()
                .filter_map(|followed| {
                    let history = &followed.history;
                    Some((history.name.as_str(), *history.values.last()?))
                })
                .collect();
            let event = ProgressEvent::new(round + 1, boosting.n_trees, &measures);
            boosting.progress.report(NAME, event)?;
        }
        let (Some(patience), Some((metric, value))) = (boosting.early_stopping_rounds, watched)
        else {
            continue;
        };
        match best {
            Some((at, than)) if !metric.better(value, than) => {
                if round - at >= patience {
                    break;
                }
            }
            _ => best = Some((round, value)),
        }
    }
    let mut trees = booster.take_trees()?;
    if let Some((round, _)) = best {
        trees.truncate((round + 1) * outputs);
    }
    Ok(trees)
}

fn check(boosting: &GradientBoosting) -> Result<()> {
    if !(1..1 << 28).contains(&boosting.n_trees) {
        return Err(Error::parameter(
            "n_trees",
            "at least 1, below 2^28",
            boosting.n_trees,
        ));
    }
    if !(2..=255).contains(&boosting.max_bins) {
        return Err(Error::parameter("max_bins", "2 to 255", boosting.max_bins));
    }
    if let Some(base) = boosting.base_score.filter(|base| !base.is_finite()) {
        return Err(Error::parameter("base_score", "a finite number", base));
    }
    match boosting.early_stopping_rounds {
        Some(0) => Err(Error::parameter("early_stopping_rounds", "at least 1", 0)),
        Some(rounds) if boosting.evals.is_empty() => Err(Error::parameter(
            "early_stopping_rounds",
            "an eval set to watch",
            format_args!("{rounds} without one"),
        )),
        _ => boosting.growth().check(),
    }
}

fn choose_loss(boosting: &GradientBoosting, classes: usize) -> Result<Loss> {
    let default = match (boosting.classify, classes) {
        (false, _) => Loss::Squared,
        (true, 2) => Loss::Logistic,
        (true, _) => Loss::Softmax,
    };
    match boosting.loss {
        None => Ok(default),
        Some(loss) if loss == default => Ok(loss),
        Some(Loss::Softmax) if boosting.classify => Ok(Loss::Softmax),
        Some(loss) => Err(Error::parameter(
            "loss",
            match boosting.classify {
                true => format!("a loss of {classes} classes"),
                false => "the loss of a regressor, `Squared`".into(),
            },
            format_args!("`{loss:?}`"),
        )),
    }
}

/// What the loss takes as targets: the numbers themselves, or class numbers.
fn targets_of(boosting: &GradientBoosting, classes: &[f32], kept: &Kept<'_>) -> Result<Vec<f32>> {
    if !boosting.classify {
        return Ok(kept.y.to_vec());
    }
    let codes = encode_labels(classes, ArrayView1::from(&*kept.y))?;
    Ok(codes.into_iter().map(|code| code as f32).collect())
}

/// The best constant margins; sums are exact, so the order of the rows doesn't show.
fn base(loss: Loss, kept: &Kept<'_>, targets: &[f32], classes: usize) -> Vec<f32> {
    let share = |class: usize| {
        kept.sum(|row| {
            if targets[row] == class as f32 {
                1.0
            } else {
                0.0
            }
        })
    };
    let log_ratio = |a: ExactSum, b: ExactSum| math::ln(&Ieee::PLAIN, a.over(b));
    match loss {
        Loss::Squared => vec![kept.sum(|row| targets[row]).over(kept.sum(|_| 1.0))],
        Loss::Logistic => vec![log_ratio(share(1), share(0))],
        Loss::Softmax => {
            let all = kept.sum(|_| 1.0);
            (0..classes)
                .map(|class| log_ratio(share(class), all))
                .collect()
        }
    }
}

fn forest(cuts: &Cuts, features: usize, base: Vec<f32>, trees: &[Tree]) -> Result<Forest> {
    let mut starts = vec![0];
    let mut nodes = Vec::new();
    for tree in trees {
        nodes.extend(tree.nodes.iter().map(|node| forest::Node {
            left: node.left,
            feature: node.feature,
            threshold: match node.left {
                0 => 0.0,
                _ => cuts.threshold(node.feature as usize, node.bin),
            },
            missing_left: node.missing_left,
            value: node.value,
        }));
        starts.push(nodes.len());
    }
    Forest::new(features, base, starts, nodes)
}
