//! Gradient boosting.

mod cases;
mod growth;
pub(crate) mod trees;

use super::{Lane, Parts};
use crate::fixtures::{Fixture, word};
use detml_core::{BitHash, BitHashed, Design, ModelFile, Persist, Result, Seed};
use detml_kernels::Device;
use detml_trees::{ClassWeight, GradientBoosting, GradientBoostingModel, Loss, Objective};
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// What is fitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    target: Target,
    rounds: usize,
    depth: u32,
    sampled: bool,
    weighted: bool,
    regularised: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    Squared,
    Logistic,
    Softmax,
    /// Three classes, each against the others.
    OneVsAll,
    /// A regressor's loss of real targets, of 0, 1 and 2, or of these and 1.
    Real(Loss),
    Count(Loss),
    Positive(Loss),
    /// Squared errors of two targets, the real one and the ternary one.
    Two,
    /// Three classes of the same weight.
    Balanced,
    /// Squared error as an objective of one's own.
    Own,
}

/// Half the squared error.
struct Squares;

impl Objective for Squares {
    fn name(&self) -> &str {
        "squares"
    }

    fn gradient(&self, margin: f32, target: f32) -> [f32; 2] {
        [margin - target, 1.0]
    }
}

impl Fit {
    const fn new(target: Target) -> Self {
        Self {
            target,
            rounds: 6,
            depth: 4,
            sampled: false,
            weighted: false,
            regularised: false,
        }
    }

    /// A logistic fit of some rounds.
    pub(crate) fn logistic(rounds: usize) -> Self {
        Self {
            rounds,
            ..Self::new(Target::Logistic)
        }
    }

    /// A fit of three classes.
    pub(crate) fn softmax() -> Self {
        Self::new(Target::Softmax)
    }

    fn builder(&self) -> GradientBoosting {
        let mut builder = match self.target {
            Target::Squared | Target::Two => GradientBoosting::regressor(),
            Target::Real(loss) => GradientBoosting::regressor().loss(loss),
            // Counts may all be 0, of which there is no logarithm to start from.
            Target::Count(loss) | Target::Positive(loss) => {
                let boosting = GradientBoosting::regressor().loss(loss);
                boosting.base_score(0.25).min_child_weight(0.125)
            }
            Target::Own => GradientBoosting::regressor().objective(Squares),
            Target::Logistic | Target::Softmax => GradientBoosting::classifier(),
            Target::OneVsAll => GradientBoosting::classifier().loss(Loss::OneVsAll),
            Target::Balanced => GradientBoosting::classifier().class_weight(ClassWeight::Balanced),
        }
        .n_trees(self.rounds)
        .max_depth(self.depth)
        .seed(Seed(11));
        if self.sampled {
            builder = builder
                .subsample(0.7)
                .colsample_bytree(0.8)
                .colsample_bynode(0.6);
        }
        if self.regularised {
            builder = builder.l1(0.25).l2(2.0).min_child_weight(3.0).max_bins(16);
        }
        builder
    }
}

fn features(f: &Fixture, rows: &[usize]) -> Result<Array2<f32>> {
    let mut x = Array2::zeros((rows.len(), f.columns));
    for (mut to, &row) in x.rows_mut().into_iter().zip(rows) {
        to.assign(&ndarray::ArrayView1::from(f.row(row)));
    }
    Ok(x)
}

fn fit_rows(
    device: &Device,
    f: &Fixture,
    what: &Fit,
    rows: &[usize],
) -> Result<GradientBoostingModel> {
    let target = match what.target {
        Target::Squared | Target::Real(_) | Target::Two | Target::Own => &f.real,
        Target::Logistic => &f.binary,
        Target::Balanced
        | Target::Softmax
        | Target::OneVsAll
        | Target::Count(_)
        | Target::Positive(_) => &f.ternary,
    };
    let pick = |values: &[f32]| rows.iter().map(|&r| values[r]).collect::<Array1<f32>>();
    let (x, mut y) = (features(f, rows)?, pick(target));
    if matches!(what.target, Target::Positive(_)) {
        y += 1.0;
    }
    let mut y = y.insert_axis(Axis(1));
    if what.target == Target::Two {
        y.push_column(pick(&f.ternary).view())
            .map_err(|e| detml_core::Error::internal(e.to_string()))?;
    }
    // Where every row that there is has weight 0, nothing can be fitted.
    let weights = if what.weighted && f.rows > 3 {
        pick(&f.weights)
    } else {
        Array1::ones(rows.len())
    };
    let design = if what.weighted {
        detml_core::IntoDesign::into_design((&x, &y, &weights))?
    } else {
        detml_core::IntoDesign::into_design((&x, &y))?
    };
    fit_design(device, what, &design)
}

fn fit_design(device: &Device, what: &Fit, design: &Design<'_>) -> Result<GradientBoostingModel> {
    what.builder().fit_on(device, design)
}

/// Fits on all rows.
pub(crate) fn fit(device: &Device, f: &Fixture, what: &Fit) -> Result<GradientBoostingModel> {
    let rows: Vec<usize> = (0..f.rows).collect();
    fit_rows(device, f, what, &rows)
}

/// The hash of the margins of some features, row by row, that a device computes.
pub(crate) fn margins(
    device: &Device,
    model: &GradientBoostingModel,
    f: &Fixture,
    x: &[f32],
) -> Result<BitHash> {
    Ok(predict(device, model, f, x)?.bit_hash())
}

fn predict(
    device: &Device,
    model: &GradientBoostingModel,
    f: &Fixture,
    x: &[f32],
) -> Result<Array2<f32>> {
    let shape = (x.len() / f.columns, f.columns);
    let view =
        ArrayView2::from_shape(shape, x).map_err(|e| detml_core::Error::internal(e.to_string()))?;
    Ok(model.predict_margin_on(device, view)?.0)
}

/// The same features in parts of 1, 2, 3, ... rows, put together again.
fn ragged(
    device: &Device,
    model: &GradientBoostingModel,
    f: &Fixture,
    x: &[f32],
) -> Result<Array2<f32>> {
    let mut parts = Vec::new();
    let (mut rest, mut rows) = (x, 1);
    while !rest.is_empty() {
        let (head, tail) = rest.split_at((rows * f.columns).min(rest.len()));
        parts.push(predict(device, model, f, head)?);
        (rest, rows) = (tail, rows + 1);
    }
    let views: Vec<_> = parts.iter().map(|p| p.view()).collect();
    ndarray::concatenate(ndarray::Axis(0), &views)
        .map_err(|e| detml_core::Error::internal(e.to_string()))
}

/// Features that were not trained on: columns hold each other's values.
fn unseen(f: &Fixture) -> Vec<f32> {
    let mut unseen = f.x.clone();
    let by = (f.x.len() / 2 + 1).min(f.x.len());
    unseen.rotate_left(by);
    unseen
}

fn parts(device: &Device, f: &Fixture, what: &Fit) -> Result<Parts> {
    let model = fit(device, f, what)?;
    let unseen = unseen(f);
    let inferred = margins(device, &model, f, &unseen)?;
    let bytes = model.to_model_file().to_bytes();
    let again = GradientBoostingModel::from_model_file(&ModelFile::from_bytes(&bytes)?)?;
    let mut parts = vec![
        ("model", model.bit_hash()),
        ("train", margins(device, &model, f, &f.x)?),
        ("infer", inferred),
        ("reload", margins(device, &again, f, &unseen)?),
        ("batch", ragged(device, &model, f, &unseen)?.bit_hash()),
    ];
    if !what.sampled {
        let mut rows: Vec<usize> = (0..f.rows).collect();
        rows.sort_by_key(|&r| word(50, r as u32));
        parts.push(("order", fit_rows(device, f, what, &rows)?.bit_hash()));
    }
    Ok(parts)
}

/// Parts that must be equal to another of their lane.
#[cfg(test)]
pub(crate) const SAME: [(&str, &str); 10] = [
    ("reload", "infer"),
    ("batch", "infer"),
    ("order", "model"),
    ("threads-1", "model"),
    ("threads-2", "model"),
    ("threads-7", "model"),
    ("moved", "train"),
    ("twice", "train"),
    ("absent", "model"),
    ("shorter", "infer"),
];

/// One class alone has no others.
fn two_classes(f: &Fixture) -> std::result::Result<(), &'static str> {
    match f.ternary.windows(2).any(|pair| pair[0] != pair[1]) {
        true => Ok(()),
        false => Err("one class"),
    }
}

pub(super) fn lanes() -> Vec<Lane> {
    let squared = Fit::new(Target::Squared);
    let logistic = Fit::new(Target::Logistic);
    let softmax = Fit::softmax();
    let lane = |name: &str, what: Fit| {
        Lane::new(format!("boosting/{name}"), move |device, f| {
            parts(device, f, &what)
        })
    };
    let mut all = vec![
        lane("squared", squared),
        lane(
            "squared-weights",
            Fit {
                weighted: true,
                ..squared
            },
        )
        .slow(),
        lane(
            "squared-sampled",
            Fit {
                sampled: true,
                ..squared
            },
        )
        .slow(),
        lane("logistic", logistic).slow(),
        lane(
            "logistic-weights-sampled",
            Fit {
                weighted: true,
                sampled: true,
                ..logistic
            },
        ),
        lane(
            "logistic-regularised",
            Fit {
                regularised: true,
                depth: 7,
                ..logistic
            },
        )
        .slow(),
        lane("softmax", softmax),
        lane(
            "softmax-weights",
            Fit {
                weighted: true,
                ..softmax
            },
        )
        .slow(),
    ];
    let quantile = Fit::new(Target::Real(Loss::Quantile { alpha: 0.8 }));
    let expectile = Loss::Expectile { alpha: 0.8 };
    all.extend([
        lane("absolute", Fit::new(Target::Real(Loss::Absolute))),
        lane("quantile", quantile).slow(),
        lane(
            "quantile-weights-sampled",
            Fit {
                weighted: true,
                sampled: true,
                ..quantile
            },
        ),
        lane(
            "mape-weights",
            Fit {
                weighted: true,
                ..Fit::new(Target::Real(Loss::Mape))
            },
        )
        .slow(),
        lane("huber", Fit::new(Target::Real(Loss::huber()))).slow(),
        lane("pseudo-huber", Fit::new(Target::Real(Loss::pseudo_huber()))).slow(),
        lane("expectile", Fit::new(Target::Real(expectile))).slow(),
        lane("poisson", Fit::new(Target::Count(Loss::poisson()))),
        lane("gamma", Fit::new(Target::Positive(Loss::Gamma))).slow(),
        lane("tweedie", Fit::new(Target::Count(Loss::tweedie()))).slow(),
        lane("squared-log", Fit::new(Target::Count(Loss::SquaredLog))).slow(),
        lane("two-targets", Fit::new(Target::Two)).slow(),
        lane("one-vs-all", Fit::new(Target::OneVsAll))
            .takes(two_classes)
            .slow(),
        lane("class-weights", Fit::new(Target::Balanced)).slow(),
        lane("own-objective", Fit::new(Target::Own)).slow(),
    ]);
    all.push(trees::lane());
    all.extend(cases::lanes());
    all.extend(growth::lanes());
    all
}
