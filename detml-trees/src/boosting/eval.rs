//! Metrics on eval sets.

use super::{GradientBoosting, Loss};
use detml_core::metrics::{self, weighted};
use detml_core::{Design, Error, IntoDesign, Result};
use detml_kernels::Device;
use detml_kernels::ops::boosting as ops;
use ndarray::{ArrayView1, ArrayView2, CowArray};

/// A measure of predictions on eval sets. Arithmetic is `f64` in the order of the rows, see
/// [`detml_core::metrics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Metric {
    /// Mean negative log-likelihood of the true class; classifiers. The lower the better.
    LogLoss,
    /// Share of rows whose class is predicted right; classifiers.
    Accuracy,
    /// Area under the receiver operating characteristic; classifiers of two classes.
    Auc,
    /// Root of the mean squared error; regressors. The lower the better.
    Rmse,
    /// Mean absolute error; regressors. The lower the better.
    Mae,
}

impl Metric {
    const NAMES: [(Self, &'static str); 5] = [
        (Self::LogLoss, "log_loss"),
        (Self::Accuracy, "accuracy"),
        (Self::Auc, "auc"),
        (Self::Rmse, "rmse"),
        (Self::Mae, "mae"),
    ];

    /// Its name: `log_loss`, `accuracy`, `auc`, `rmse` or `mae`.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(metric, _)| *metric == self)
            .map_or("", |(_, name)| name)
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(metric, _)| *metric)
    }

    /// Whether `value` is better than `than`.
    pub(super) fn better(self, value: f64, than: f64) -> bool {
        match self {
            Self::Accuracy | Self::Auc => value > than,
            Self::LogLoss | Self::Rmse | Self::Mae => value < than,
        }
    }
}

/// A metric on one eval set after each round.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalHistory {
    /// The eval set's name.
    pub name: String,
    /// The metric.
    pub metric: Metric,
    /// Its value after each round, those after the best one included.
    pub values: Vec<f64>,
}

/// An eval set as given to the builder.
#[derive(Clone, Debug)]
pub(super) struct EvalSet {
    name: String,
    data: Result<Design<'static>>,
}

impl EvalSet {
    pub(super) fn new<'a>(name: String, data: impl IntoDesign<'a>) -> Self {
        Self {
            name,
            data: data.into_design().and_then(|design| owned(&design)),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn design(&self) -> Result<&Design<'static>> {
        self.data.as_ref().map_err(Clone::clone)
    }
}

fn owned(design: &Design<'_>) -> Result<Design<'static>> {
    Design::new(
        CowArray::from(design.x().to_owned()),
        design
            .targets()
            .map(|targets| CowArray::from(targets.to_owned())),
        design
            .weights()
            .map(|weights| CowArray::from(ArrayView1::from(weights).to_owned())),
    )
}

/// An eval set in training.
pub(super) struct Followed {
    metric: Metric,
    loss: ops::Loss,
    targets: Vec<f32>,
    weights: Option<Vec<f32>>,
    pub(super) history: EvalHistory,
}

impl Followed {
    pub(super) fn new(
        name: &str,
        metric: Metric,
        loss: ops::Loss,
        targets: &[f32],
        weights: Option<&[f32]>,
    ) -> Self {
        Self {
            metric,
            loss,
            targets: targets.to_vec(),
            weights: weights.map(<[f32]>::to_vec),
            history: EvalHistory {
                name: name.to_owned(),
                metric,
                values: Vec::new(),
            },
        }
    }

    pub(super) fn metric(&self) -> Metric {
        self.metric
    }

    /// The metric at margins given output by output; it goes into the history.
    pub(super) fn measure(&mut self, device: &Device, margins: &[f32]) -> Result<f64> {
        let rows = self.targets.len();
        let truth = ArrayView1::from(&self.targets);
        let weights = self.weights.as_deref().map(ArrayView1::from);
        let outputs = self.loss.outputs();
        let by_row: Vec<f32> = (0..rows)
            .flat_map(|row| (0..outputs).map(move |output| margins[output * rows + row]))
            .collect();
        macro_rules! measure {
            ($name:ident($($arg:expr),*)) => {
                match weights {
                    None => metrics::$name($($arg),*),
                    Some(weights) => weighted::$name($($arg,)* weights),
                }
            };
        }
        let probabilities = || ops::probabilities(device, self.loss, &by_row);
        let value = match (self.metric, self.loss) {
            (Metric::Rmse, _) => {
                measure!(root_mean_squared_error(truth, ArrayView1::from(&by_row)))
            }
            (Metric::Mae, _) => measure!(mean_absolute_error(truth, ArrayView1::from(&by_row))),
            (Metric::Auc, _) => {
                measure!(roc_auc(truth, ArrayView1::from(&second(&by_row, outputs))))
            }
            (Metric::Accuracy, loss) => {
                let predicted: Vec<f32> = by_row
                    .chunks_exact(outputs)
                    .map(|row| class_of(loss, row) as f32)
                    .collect();
                measure!(accuracy(truth, ArrayView1::from(&predicted)))
            }
            (Metric::LogLoss, ops::Loss::Softmax { classes }) => {
                let labels: Vec<f32> = (0..classes).map(|class| class as f32).collect();
                let probabilities = probabilities()?;
                let table = ArrayView2::from_shape((rows, classes), &probabilities)
                    .map_err(|error| Error::internal(format!("log loss: {error}")))?;
                measure!(log_loss_classes(truth, table, &labels))
            }
            (Metric::LogLoss, _) => {
                let positive: Vec<f32> = probabilities()?.into_iter().skip(1).step_by(2).collect();
                measure!(log_loss(truth, ArrayView1::from(&positive)))
            }
        }?;
        self.history.values.push(value);
        Ok(value)
    }
}

/// A score of the second class of two, from margins row by row.
fn second(margins: &[f32], outputs: usize) -> Vec<f32> {
    margins
        .chunks_exact(outputs)
        .map(|row| match row {
            [first, second] => second - first,
            _ => row[0],
        })
        .collect()
}

/// The class with the highest margin, the lowest of equals.
pub(super) fn class_of(loss: ops::Loss, margins: &[f32]) -> usize {
    match loss {
        ops::Loss::Squared | ops::Loss::Logistic => usize::from(margins[0] > 0.0),
        ops::Loss::Softmax { .. } => {
            let higher = |best: usize, class: usize| {
                if margins[class] > margins[best] {
                    class
                } else {
                    best
                }
            };
            (1..margins.len()).fold(0, higher)
        }
    }
}

impl GradientBoosting {
    /// The metric to follow.
    pub(super) fn choose_metric(&self, loss: Loss, classes: usize) -> Result<Metric> {
        let default = if self.classify {
            Metric::LogLoss
        } else {
            Metric::Rmse
        };
        let metric = self.metric.unwrap_or(default);
        let (fits, expected) = match metric {
            Metric::LogLoss | Metric::Accuracy => (self.classify, "a metric of regressors"),
            Metric::Auc => (
                self.classify && classes == 2,
                "a metric for this number of classes",
            ),
            Metric::Rmse | Metric::Mae => (loss == Loss::Squared, "a metric of classifiers"),
        };
        if fits {
            return Ok(metric);
        }
        Err(Error::parameter("eval_metric", expected, metric.name()))
    }
}
