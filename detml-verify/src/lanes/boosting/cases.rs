//! Data that boosting elsewhere got wrong, and what must not show in a model.

use super::{Fit, features, margins};
use crate::fixtures::{Fixture, word};
use crate::lanes::{Lane, Parts};
use detml_core::{BitHash, BitHashed, BitHasher, Error, IntoDesign, Predict, Result};
use detml_kernels::Device;
use detml_trees::{GradientBoosting, GradientBoostingModel};
use ndarray::{Array1, Array2, Axis, concatenate};

/// Features, targets and weights of all rows, to be changed before a fit.
struct Data {
    x: Array2<f32>,
    y: Array1<f32>,
    weights: Option<Array1<f32>>,
}

impl Data {
    fn new(f: &Fixture, y: impl Into<Array1<f32>>) -> Result<Self> {
        Ok(Self {
            x: features(f, &(0..f.rows).collect::<Vec<_>>())?,
            y: y.into(),
            weights: None,
        })
    }

    fn rows(&self, rows: &[usize]) -> Self {
        Self {
            x: self.x.select(Axis(0), rows),
            y: self.y.select(Axis(0), rows),
            weights: self.weights.as_ref().map(|w| w.select(Axis(0), rows)),
        }
    }

    fn fit(&self, device: &Device, boosting: &GradientBoosting) -> Result<GradientBoostingModel> {
        let design = match &self.weights {
            None => (&self.x, &self.y).into_design(),
            Some(weights) => (&self.x, &self.y, weights).into_design(),
        };
        boosting.fit_on(device, &design?)
    }
}

fn hash(values: &Array2<f32>) -> BitHash {
    values.bit_hash()
}

/// The margins of the features with columns that hold each other's values.
fn infer(device: &Device, model: &GradientBoostingModel, f: &Fixture) -> Result<BitHash> {
    margins(device, model, f, &super::unseen(f))
}

/// One thread, two and seven.
fn threads(device: &Device, f: &Fixture) -> Result<Parts> {
    let what = Fit {
        sampled: true,
        weighted: true,
        ..Fit::logistic(4)
    };
    let fit = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_err(|error| Error::internal(error.to_string()))?;
        pool.install(|| Ok::<_, Error>(super::fit(device, f, &what)?.bit_hash()))
    };
    Ok(vec![
        ("model", super::fit(device, f, &what)?.bit_hash()),
        ("threads-1", fit(1)?),
        ("threads-2", fit(2)?),
        ("threads-7", fit(7)?),
    ])
}

/// Columns in the opposite order: predictions stay where no two gains tie.
fn columns(device: &Device, f: &Fixture) -> Result<Parts> {
    let boosting = GradientBoosting::regressor().n_trees(4).max_depth(2);
    let mut data = Data::new(f, f.real.clone())?;
    let straight = data.fit(device, &boosting)?;
    let expected = straight.predict_margin_on(device, data.x.view())?.0;
    data.x.invert_axis(Axis(1));
    let reversed = data.fit(device, &boosting)?;
    let moved = reversed.predict_margin_on(device, data.x.view())?.0;
    Ok(vec![
        ("model", straight.bit_hash()),
        ("moved-model", reversed.bit_hash()),
        ("train", hash(&expected)),
        ("moved", hash(&moved)),
    ])
}

/// Every column twice: the first of the two wins each tie, so predictions stay.
fn tied_columns(device: &Device, f: &Fixture) -> Result<Parts> {
    let boosting = GradientBoosting::classifier().n_trees(3).max_depth(4);
    let mut data = Data::new(f, f.ternary.clone())?;
    let expected = data
        .fit(device, &boosting)?
        .predict_margin_on(device, data.x.view())?
        .0;
    data.x = concatenate![Axis(1), data.x, data.x];
    let twice = data.fit(device, &boosting)?;
    Ok(vec![
        ("model", twice.bit_hash()),
        ("train", hash(&expected)),
        (
            "twice",
            hash(&twice.predict_margin_on(device, data.x.view())?.0),
        ),
    ])
}

/// Values that are missing more often in some classes than in others.
fn missing(device: &Device, f: &Fixture) -> Result<Parts> {
    let mut data = Data::new(f, f.binary.clone())?;
    for ((row, column), x) in data.x.indexed_iter_mut() {
        let draw = word(61, (row * f.columns + column) as u32) % 8;
        // Odd columns lose the first class, even ones the second.
        let often = f.binary[row] == (column % 2) as f32;
        if draw == 0 || (often && draw < 4) {
            *x = f32::NAN;
        }
    }
    let boosting = GradientBoosting::classifier().n_trees(5).max_depth(5);
    let model = data.fit(device, &boosting)?;
    Ok(vec![
        ("model", model.bit_hash()),
        (
            "train",
            hash(&model.predict_margin_on(device, data.x.view())?.0),
        ),
        ("infer", infer(device, &model, f)?),
    ])
}

/// Weights from 2^-21 to 2^21, and rows of weight 0, which are as good as absent.
fn weights(device: &Device, f: &Fixture) -> Result<Parts> {
    let mut data = Data::new(f, f.real.clone())?;
    let scaled = f.weights.iter().zip(0..).map(|(w, row)| {
        let power = f32::from_bits((127 + word(62, row) % 41 - 20) << 23);
        w * power
    });
    data.weights = Some(scaled.collect());
    let boosting = GradientBoosting::regressor()
        .n_trees(5)
        .min_child_weight(0.0);
    let model = data.fit(device, &boosting)?;
    let rows: Vec<usize> = (0..f.rows).filter(|&row| f.weights[row] > 0.0).collect();
    let absent = data.rows(&rows).fit(device, &boosting)?;
    Ok(vec![
        ("model", model.bit_hash()),
        ("absent", absent.bit_hash()),
        ("infer", infer(device, &model, f)?),
    ])
}

/// Five classes whose labels leave gaps.
fn multiclass(device: &Device, f: &Fixture) -> Result<Parts> {
    let labels = (0..f.rows).map(|row| match word(63, row as u32) % 11 {
        0 => -7.0,
        _ => 2.0 * f.ternary[row] + f.binary[row],
    });
    let data = Data::new(f, labels.collect::<Array1<f32>>())?;
    let boosting = GradientBoosting::classifier().n_trees(3).max_depth(3);
    let model = data.fit(device, &boosting)?;
    Ok(vec![
        ("model", model.bit_hash()),
        ("infer", infer(device, &model, f)?),
        (
            "probabilities",
            hash(&model.predict_proba_on(device, data.x.view())?.0),
        ),
        ("labels", model.predict(data.x.view())?.bit_hash()),
    ])
}

/// Half of the rows stop the fit on the other half: the model is that of a shorter fit.
fn early_stopping(device: &Device, f: &Fixture) -> Result<Parts> {
    let all = Data::new(f, f.real.clone())?;
    let half = |odd: usize| (0..f.rows).filter(|row| row % 2 == odd).collect::<Vec<_>>();
    let (train, held_out) = (all.rows(&half(0)), all.rows(&half(1)));
    let boosting = GradientBoosting::regressor().n_trees(12).learning_rate(1.0);
    let followed = boosting
        .clone()
        .eval_set("held out", (&held_out.x, &held_out.y))
        .early_stopping_rounds(2);
    let model = train.fit(device, &followed)?;
    let shorter = train.fit(device, &boosting.n_trees(model.n_rounds()))?;
    let mut history = BitHasher::new("history");
    for followed in model.history() {
        history.array(&followed.name, &[followed.values.len()], &followed.values);
    }
    Ok(vec![
        ("model", model.bit_hash()),
        ("history", history.finish()),
        ("infer", infer(device, &model, f)?),
        ("shorter", infer(device, &shorter, f)?),
    ])
}

fn some_rows(f: &Fixture) -> Result<(), &'static str> {
    if f.rows > 3 {
        Ok(())
    } else {
        Err("too few rows")
    }
}

fn no_ties(f: &Fixture) -> Result<(), &'static str> {
    match f.name {
        "normal" | "wide" | "negative" | "odd" => Ok(()),
        _ => Err("splits tie"),
    }
}

pub(super) fn lanes() -> Vec<Lane> {
    vec![
        Lane::new("boosting/threads", threads),
        Lane::new("boosting/columns", columns).takes(no_ties).slow(),
        Lane::new("boosting/tied-columns", tied_columns),
        Lane::new("boosting/missing-by-class", missing).slow(),
        Lane::new("boosting/weights-wide", weights)
            .takes(some_rows)
            .slow(),
        Lane::new("boosting/multiclass", multiclass).slow(),
        Lane::new("boosting/early-stopping", early_stopping)
            .takes(some_rows)
            .slow(),
    ]
}
