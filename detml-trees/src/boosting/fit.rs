//! From checked data to a model.

mod start;

use super::eval::Followed;
use super::loss::Shared;
use super::model::{GradientBoostingModel, Parts};
use super::{GradientBoosting, Loss};
use crate::binning::Cuts;
use crate::exact::{self, ExactSum};
use crate::forest::timed;
use detml_core::{
    Backend, Design, Error, ExecutionReport, Fit, Labels, NumericMode, ProgressEvent, Result,
    encode_labels, require_numeric_mode,
};
use detml_kernels::Device;
use detml_kernels::ieee::Ieee;
use detml_kernels::ops::boosting::{Booster, Table, Tree};
use detml_kernels::ops::forest::{self, Forest};
use ndarray::{ArrayView1, Axis, CowArray, Ix2};
use std::borrow::Cow;
use std::time::Instant;

const NAME: &str = "GradientBoosting";

/// The rows of weight above 0: the others are as good as absent.
struct Kept<'a> {
    x: CowArray<'a, f32, Ix2>,
    /// Row by row.
    y: Cow<'a, [f32]>,
    weights: Option<Cow<'a, [f32]>>,
}

impl<'a> Kept<'a> {
    fn new(design: &'a Design<'_>) -> Result<Self> {
        let (x, width) = (design.x(), count(design));
        let y = design.targets().and_then(|y| y.to_slice());
        let y = match y {
            Some(y) => y,
            None => design.target_slice()?,
        };
        let weights = design.weights();
        let rows: Option<Vec<usize>> =
            weights
                .filter(|weights| weights.contains(&0.0))
                .map(|weights| {
                    let heavy = |&row: &usize| weights[row] > 0.0;
                    (0..x.nrows()).filter(heavy).collect()
                });
        Ok(match rows {
            None => Self {
                x: CowArray::from(x),
                y: Cow::Borrowed(y),
                weights: weights.map(Cow::Borrowed),
            },
            Some(rows) => {
                let pick = |from: &[f32], width: usize| {
                    let rows = rows.iter().flat_map(|row| &from[row * width..][..width]);
                    Cow::Owned(rows.copied().collect())
                };
                Self {
                    x: CowArray::from(x.select(Axis(0), &rows)),
                    y: pick(y, width),
                    weights: weights.map(|weights| pick(weights, 1)),
                }
            }
        })
    }

    /// Multiplies each row's weight by its class's factor.
    fn weigh_classes(&mut self, targets: &[f32], factors: &[f32]) -> Result<()> {
        let mut weights = Vec::with_capacity(targets.len());
        for (row, &class) in targets.iter().enumerate() {
            let own = self.weights.as_ref().map_or(1.0, |weights| weights[row]);
            let weight = Ieee::PLAIN.mul(own, factors[class as usize]);
            if !(weight.is_finite() && weight > 0.0) {
                return Err(Error::InvalidValue {
                    what: "weights times class weights".into(),
                    row,
                    expected: "a finite number above 0".into(),
                    got: weight.to_string(),
                });
            }
            weights.push(weight);
        }
        self.weights = Some(Cow::Owned(weights));
        Ok(())
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
        exact::sum((0..self.x.nrows()).map(|row| match &self.weights {
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
    let mut started = Instant::now();
    let mut kept = Kept::new(design)?;
    let classes = match boosting.classify {
        true => Labels::new(ArrayView1::from(&*kept.y))?.into_parts().0,
        false => Vec::new(),
    };
    let width = count(design);
    let loss = boosting.choose_loss(classes.len(), width)?;
    let ops_loss = loss.with_outputs(classes.len().max(width));
    let metric = boosting.choose_metric(loss, classes.len())?;
    let targets = targets_of(boosting, &classes, &kept, width)?;
    let factors = boosting.class_factors(loss, &classes, |class| {
        balanced(&kept, &targets, class, classes.len())
    })?;
    if let Some(factors) = factors {
        kept.weigh_classes(&targets, &factors)?;
    }
    ops_loss.check_targets(&targets)?;
    let base = match boosting.base_score {
        Some(base) => vec![base; ops_loss.outputs()],
        None => start::base(boosting, loss, &kept, &targets, ops_loss.outputs())?,
    };
    let weights = kept.weights.as_deref();
    let cuts = if Cuts::sorts_on(device, kept.x.view(), weights) {
        let sorting = Instant::now();
        let cuts = timed(&mut report, "sorting", device, || {
            Cuts::sorted_by(device, kept.x.view(), boosting.max_bins)
        })?;
        started += sorting.elapsed();
        cuts
    } else {
        Cuts::new(kept.x.view(), weights, boosting.max_bins)
    };
    let train = kept.table(&cuts, targets)?;
    let mut followed = Vec::new();
    let mut tables = Vec::new();
    for set in &boosting.evals {
        let other = set.design()?;
        boosting
            .rules()
            .check_features(other.x(), design.n_features())?;
        other.check(&boosting.rules())?;
        if count(other) != width {
            let expected = format_args!("{width} a row, as in training");
            return Err(Error::shape(
                "targets of an eval set",
                expected,
                count(other),
            ));
        }
        let kept = Kept::new(other)?;
        let table = kept.table(&cuts, targets_of(boosting, &classes, &kept, width)?)?;
        followed.push(Followed::new(
            set.name(),
            metric,
            boosting.custom_metric.clone(),
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

    let own = boosting.objective.as_ref().map(|objective| Own {
        objective,
        targets: train.targets.clone(),
        weights: train.weights.clone(),
        seconds: 0.0,
    });
    let mut own = own.filter(|_| loss == Loss::Custom);
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
        boost(
            boosting,
            device,
            &mut booster,
            &mut followed,
            &mut own,
            outputs,
        )
    })?;
    if let Some(own) = own {
        let reason = (!device.is_cpu()).then_some("an objective of one's own runs on the host");
        report.record(
            "objective",
            Backend::Cpu,
            host.name().to_owned(),
            reason,
            own.seconds,
        );
    }
    let nodes = || trees.iter().flat_map(|tree| &tree.nodes);
    GradientBoostingModel::new(Parts {
        loss,
        objective: match loss {
            Loss::Custom => boosting
                .objective
                .as_ref()
                .map(|objective| objective.0.name().to_owned()),
            _ => None,
        },
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

/// Targets of a row.
fn count(design: &Design<'_>) -> usize {
    design.targets().map_or(0, |targets| targets.ncols())
}

/// The weight of all rows over the number of classes times the weight of a class's.
fn balanced(kept: &Kept<'_>, targets: &[f32], class: usize, classes: usize) -> f32 {
    let own = kept.sum(|row| f32::from(targets[row] == class as f32));
    Ieee::PLAIN.div(kept.sum(|_| 1.0).over(own), classes as f32)
}

/// An objective of one's own at work.
struct Own<'a> {
    objective: &'a Shared,
    targets: Vec<f32>,
    weights: Option<Vec<f32>>,
    seconds: f64,
}

impl Own<'_> {
    fn round(&mut self, booster: &mut Booster) -> Result<()> {
        let margins = booster.margins()?;
        let started = Instant::now();
        let weights = self.weights.as_deref();
        let (g, h) = self.objective.gradients(&margins, &self.targets, weights);
        self.seconds += started.elapsed().as_secs_f64();
        booster.round_with(&g, &h)
    }
}

/// Rounds until the last or until the metric is no longer better.
fn boost(
    boosting: &GradientBoosting,
    device: &Device,
    booster: &mut Booster,
    followed: &mut [Followed],
    own: &mut Option<Own<'_>>,
    outputs: usize,
) -> Result<Vec<Tree>> {
    let mut best: Option<(usize, f64)> = None;
    for round in 0..boosting.n_trees {
        match own {
            None => booster.round()?,
            Some(own) => own.round(booster)?,
        }
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

/// What the loss takes as targets: the numbers themselves, target by target, or class numbers.
fn targets_of(
    boosting: &GradientBoosting,
    classes: &[f32],
    kept: &Kept<'_>,
    width: usize,
) -> Result<Vec<f32>> {
    if !boosting.classify {
        let target = |target: usize| kept.y.iter().skip(target).step_by(width.max(1)).copied();
        return Ok((0..width).flat_map(target).collect());
    }
    let codes = encode_labels(classes, ArrayView1::from(&*kept.y))?;
    Ok(codes.into_iter().map(|code| code as f32).collect())
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
