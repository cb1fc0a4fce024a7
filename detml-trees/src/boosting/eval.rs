//! Metrics on eval sets.

use super::{GradientBoosting, Loss};
use detml_core::metrics::{self, weighted};
use detml_core::{Design, Error, IntoDesign, Result};
use detml_kernels::Device;
use detml_kernels::ops::boosting as ops;
use ndarray::{ArrayView1, ArrayView2, CowArray};
use std::fmt;
use std::sync::Arc;

/// A measure of predictions on eval sets. Arithmetic is `f64` in the order of the rows, see
/// [`detml_core::metrics`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Metric {
    /// Mean negative log-likelihood of the true class; classifiers. The lower the better.
    LogLoss,
    /// Share of rows whose class is predicted right; classifiers.
    Accuracy,
    /// Share of rows whose class is predicted wrong (XGBoost's `error` and `merror`); classifiers.
    /// The lower the better.
    Error,
    /// Area under the receiver operating characteristic; classifiers of two classes.
    Auc,
    /// Average precision, scikit-learn's area under the curve of precision and recall, in steps;
    /// classifiers of two classes.
    AucPr,
    /// Root of the mean squared error; regressors. The lower the better.
    Rmse,
    /// Mean absolute error; regressors. The lower the better.
    Mae,
    /// Mean absolute percentage error, scikit-learn's: truths near 0 are divided by. Regressors. The
    /// lower the better.
    Mape,
    /// Mean pinball loss (XGBoost's and LightGBM's `quantile`); regressors. The lower the better.
    Pinball {
        /// The quantile, 0 to 1.
        alpha: f32,
    },
    /// Mean squared error, times `alpha` where the truth is above the prediction and `1 - alpha`
    /// elsewhere; regressors. The lower the better.
    Expectile {
        /// The expectile, 0 to 1.
        alpha: f32,
    },
    /// Mean of Huber's loss (LightGBM's `huber`); regressors. The lower the better.
    Huber {
        /// Where the loss becomes linear, above 0.
        delta: f32,
    },
    /// Mean pseudo-Huber loss (XGBoost's `mphe`); regressors. The lower the better.
    PseudoHuber {
        /// About where the loss becomes linear, above 0.
        delta: f32,
    },
    /// Mean Poisson deviance (scikit-learn's); regressors. The lower the better.
    PoissonDeviance,
    /// Mean gamma deviance (scikit-learn's, XGBoost's `gamma-deviance`); regressors. The lower the
    /// better.
    GammaDeviance,
    /// Mean Tweedie deviance (scikit-learn's); regressors. The lower the better.
    TweedieDeviance {
        /// The power of the variance, above 1 and below 2.
        variance_power: f32,
    },
    /// Root of the mean squared difference of `ln(1 + x)`, predictions below -1 + 1e-6 counting as
    /// that (XGBoost's `rmsle`); regressors. The lower the better.
    Rmsle,
    /// A function of one's own, see [`GradientBoosting::custom_metric`].
    Custom(Direction),
}

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The lower the better.
    Lower,
    /// The higher the better.
    Higher,
}

/// Between a metric's name and its parameter, or a custom one's own name.
const MARK: char = '@';

impl Metric {
    /// Its name: `log_loss`, `accuracy`, `error`, `auc`, `aucpr`, `rmse`, `mae`, `mape`, `pinball`,
    /// `expectile`, `huber`, `pseudo_huber`, `poisson_deviance`, `gamma_deviance`,
    /// `tweedie_deviance`, `rmsle`, or for a custom one `lower` or `higher`, whichever is better.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.parts().0
    }

    /// Its name and its parameter.
    fn parts(self) -> (&'static str, Option<f32>) {
        match self {
            Self::LogLoss => ("log_loss", None),
            Self::Accuracy => ("accuracy", None),
            Self::Error => ("error", None),
            Self::Auc => ("auc", None),
            Self::AucPr => ("aucpr", None),
            Self::Rmse => ("rmse", None),
            Self::Mae => ("mae", None),
            Self::Mape => ("mape", None),
            Self::Pinball { alpha } => ("pinball", Some(alpha)),
            Self::Expectile { alpha } => ("expectile", Some(alpha)),
            Self::Huber { delta } => ("huber", Some(delta)),
            Self::PseudoHuber { delta } => ("pseudo_huber", Some(delta)),
            Self::PoissonDeviance => ("poisson_deviance", None),
            Self::GammaDeviance => ("gamma_deviance", None),
            Self::TweedieDeviance { variance_power } => ("tweedie_deviance", Some(variance_power)),
            Self::Rmsle => ("rmsle", None),
            Self::Custom(Direction::Lower) => ("lower", None),
            Self::Custom(Direction::Higher) => ("higher", None),
        }
    }

    /// What [`EvalHistory::metric_text`] says.
    pub(super) fn from_text(text: &str) -> Option<(Self, Option<String>)> {
        let (name, rest) = match text.split_once(MARK) {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let number = || rest.and_then(|rest| rest.parse::<f32>().ok());
        let custom = |direction| Some((Self::Custom(direction), Some(rest?.to_owned())));
        let metric = match name {
            "lower" => return custom(Direction::Lower),
            "higher" => return custom(Direction::Higher),
            "pinball" => Self::Pinball { alpha: number()? },
            "expectile" => Self::Expectile { alpha: number()? },
            "huber" => Self::Huber { delta: number()? },
            "pseudo_huber" => Self::PseudoHuber { delta: number()? },
            "tweedie_deviance" => Self::TweedieDeviance {
                variance_power: number()?,
            },
            _ if rest.is_some() => return None,
            "log_loss" => Self::LogLoss,
            "accuracy" => Self::Accuracy,
            "error" => Self::Error,
            "auc" => Self::Auc,
            "aucpr" => Self::AucPr,
            "rmse" => Self::Rmse,
            "mae" => Self::Mae,
            "mape" => Self::Mape,
            "poisson_deviance" => Self::PoissonDeviance,
            "gamma_deviance" => Self::GammaDeviance,
            "rmsle" => Self::Rmsle,
            _ => return None,
        };
        Some((metric, None))
    }

    /// Whether `value` is better than `than`.
    pub(super) fn better(self, value: f64, than: f64) -> bool {
        match self {
            Self::Accuracy | Self::Auc | Self::AucPr | Self::Custom(Direction::Higher) => {
                value > than
            }
            _ => value < than,
        }
    }

    /// What a regressor of this loss is followed by unless told otherwise.
    fn of(loss: Loss) -> Self {
        match loss {
            Loss::Absolute => Self::Mae,
            Loss::Quantile { alpha } => Self::Pinball { alpha },
            Loss::Huber { delta } => Self::Huber { delta },
            Loss::PseudoHuber { delta } => Self::PseudoHuber { delta },
            Loss::Expectile { alpha } => Self::Expectile { alpha },
            Loss::Mape => Self::Mape,
            Loss::Poisson { .. } => Self::PoissonDeviance,
            Loss::Gamma => Self::GammaDeviance,
            Loss::Tweedie { variance_power } => Self::TweedieDeviance { variance_power },
            Loss::SquaredLog => Self::Rmsle,
            Loss::Logistic | Loss::Softmax | Loss::OneVsAll => Self::LogLoss,
            Loss::Squared | Loss::Custom => Self::Rmse,
        }
    }

    /// Its value on numbers; `None` for the metrics of classifiers and custom ones.
    fn of_numbers(
        self,
        truth: ArrayView1<'_, f32>,
        predicted: ArrayView1<'_, f32>,
        weights: Option<ArrayView1<'_, f32>>,
    ) -> Option<Result<f64>> {
        macro_rules! measure {
            ($name:ident($($arg:expr),*)) => {
                match weights {
                    None => metrics::$name($($arg),*),
                    Some(weights) => weighted::$name($($arg,)* weights),
                }
            };
        }
        let parameter = f64::from(self.parts().1.unwrap_or(0.0));
        Some(match self {
            Self::Rmse => measure!(root_mean_squared_error(truth, predicted)),
            Self::Mae => measure!(mean_absolute_error(truth, predicted)),
            Self::Mape => measure!(mean_absolute_percentage_error(truth, predicted)),
            Self::Pinball { .. } => measure!(pinball(truth, predicted, parameter)),
            Self::Expectile { .. } => measure!(expectile(truth, predicted, parameter)),
            Self::Huber { .. } => measure!(huber(truth, predicted, parameter)),
            Self::PseudoHuber { .. } => measure!(pseudo_huber(truth, predicted, parameter)),
            Self::PoissonDeviance => measure!(poisson_deviance(truth, predicted)),
            Self::GammaDeviance => measure!(gamma_deviance(truth, predicted)),
            Self::TweedieDeviance { .. } => {
                measure!(tweedie_deviance(truth, predicted, parameter))
            }
            Self::Rmsle => {
                let held = predicted.mapv(|p| if p < LEAST { LEAST } else { p });
                measure!(root_mean_squared_log_error(truth, held.view()))
            }
            _ => return None,
        })
    }
}

/// The least prediction of [`Metric::Rmsle`].
const LEAST: f32 = -1.0 + 1e-6;

type Measure = dyn Fn(&[f32], &[f32], Option<&[f32]>) -> f64 + Send + Sync;

/// A metric of one's own.
#[derive(Clone)]
pub(super) struct Custom {
    name: String,
    measure: Arc<Measure>,
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Metric({})", self.name)
    }
}

/// A metric on one eval set after each round.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalHistory {
    /// The eval set's name.
    pub name: String,
    /// The metric.
    pub metric: Metric,
    /// The name of a [custom](GradientBoosting::custom_metric) metric.
    pub own_name: Option<String>,
    /// Its value after each round, those after the best one included.
    pub values: Vec<f64>,
}

impl EvalHistory {
    /// What model files call the metric.
    pub(super) fn metric_text(&self) -> String {
        let (name, parameter) = self.metric.parts();
        match (&self.own_name, parameter) {
            (Some(own), _) => format!("{name}{MARK}{own}"),
            (None, Some(parameter)) => format!("{name}{MARK}{parameter}"),
            (None, None) => name.to_owned(),
        }
    }
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
    custom: Option<Custom>,
    loss: ops::Loss,
    rows: usize,
    /// Row by row, and a weight for each.
    targets: Vec<f32>,
    weights: Option<Vec<f32>>,
    pub(super) history: EvalHistory,
}

impl Followed {
    pub(super) fn new(
        name: &str,
        metric: Metric,
        custom: Option<Custom>,
        loss: ops::Loss,
        targets: &[f32],
        weights: Option<&[f32]>,
    ) -> Self {
        let custom = custom.filter(|_| matches!(metric, Metric::Custom(_)));
        let width = loss.targets();
        let rows = targets.len() / width.max(1);
        let repeated = |&w: &f32| std::iter::repeat_n(w, width);
        Self {
            metric,
            loss,
            rows,
            targets: by_row(targets, rows, width),
            weights: weights.map(|weights| weights.iter().flat_map(repeated).collect()),
            history: EvalHistory {
                name: name.to_owned(),
                metric,
                own_name: custom.as_ref().map(|custom| custom.name.clone()),
                values: Vec::new(),
            },
            custom,
        }
    }

    pub(super) fn metric(&self) -> Metric {
        self.metric
    }

    /// The metric at margins given output by output; it goes into the history.
    pub(super) fn measure(&mut self, device: &Device, margins: &[f32]) -> Result<f64> {
        let outputs = self.loss.outputs();
        let truth = ArrayView1::from(&self.targets);
        let weights = self.weights.as_deref().map(ArrayView1::from);
        let by_row = by_row(margins, self.rows, outputs);
        macro_rules! measure {
            ($name:ident($($arg:expr),*)) => {
                match weights {
                    None => metrics::$name($($arg),*),
                    Some(weights) => weighted::$name($($arg,)* weights),
                }
            };
        }
        let probabilities = || ops::probabilities(device, self.loss, &by_row);
        let several = !matches!(self.loss, ops::Loss::Logistic);
        // What ranks rows by their second class of two.
        let scores = || match self.loss {
            ops::Loss::OneVsAll { .. } => {
                Ok(probabilities()?.into_iter().skip(1).step_by(2).collect())
            }
            _ => Ok(second(&by_row, outputs)),
        };
        let accuracy = || {
            let predicted: Vec<f32> = by_row
                .chunks_exact(outputs)
                .map(|row| class_of(self.loss, row) as f32)
                .collect();
            measure!(accuracy(truth, ArrayView1::from(&predicted)))
        };
        let value = match self.metric {
            Metric::Auc => measure!(roc_auc(truth, ArrayView1::from(&scores()?))),
            Metric::AucPr => measure!(average_precision(truth, ArrayView1::from(&scores()?))),
            Metric::Accuracy => accuracy(),
            Metric::Error => Ok(1.0 - accuracy()?),
            Metric::LogLoss if several => {
                let labels: Vec<f32> = (0..outputs).map(|class| class as f32).collect();
                let probabilities = probabilities()?;
                let table = ArrayView2::from_shape((self.rows, outputs), &probabilities)
                    .map_err(|error| Error::internal(format!("log loss: {error}")))?;
                measure!(log_loss_classes(truth, table, &labels))
            }
            Metric::LogLoss => {
                let positive: Vec<f32> = probabilities()?.into_iter().skip(1).step_by(2).collect();
                measure!(log_loss(truth, ArrayView1::from(&positive)))
            }
            metric => {
                let predicted = match self.loss.classes() {
                    Some(_) => probabilities()?,
                    None => ops::predictions(device, self.loss, by_row)?,
                };
                match (&self.custom, metric) {
                    (Some(custom), _) => Ok((custom.measure)(
                        &self.targets,
                        &predicted,
                        self.weights.as_deref(),
                    )),
                    (None, metric) => metric
                        .of_numbers(truth, ArrayView1::from(&predicted), weights)
                        .unwrap_or_else(|| Err(Error::internal("a metric without a function"))),
                }
            }
        }?;
        self.history.values.push(value);
        Ok(value)
    }
}

/// A table given column by column.
fn by_row(columns: &[f32], rows: usize, width: usize) -> Vec<f32> {
    (0..rows)
        .flat_map(|row| (0..width).map(move |column| columns[column * rows + row]))
        .collect()
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
        ops::Loss::Logistic => usize::from(margins[0] > 0.0),
        _ => {
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
    /// What is followed on eval sets. By default [`Metric::LogLoss`] for classifiers, and for
    /// regressors the metric of the loss ([`Metric::Rmse`] for [`Loss::Squared`] and
    /// [`Loss::Custom`]).
    pub fn eval_metric(mut self, metric: Metric) -> Self {
        self.metric = Some(metric);
        self
    }

    /// Follows a function of one's own on eval sets. It gets the targets (class numbers for a
    /// classifier), the predicted values or (rows x classes) probabilities, and the weights, all
    /// row by row; with several targets, each has the row's weight.
    ///
    /// ```
    /// use detml_core::prelude::*;
    /// use detml_trees::{Direction, GradientBoosting};
    /// use ndarray::{Array, Array1};
    ///
    /// let x = Array::from_shape_fn((100, 2), |(i, j)| (i * (j + 3) % 17) as f32);
    /// let y: Array1<f32> = (0..100).map(|i| (i % 5) as f32).collect();
    /// let worst = |y: &[f32], p: &[f32], _: Option<&[f32]>| {
    ///     let errors = y.iter().zip(p).map(|(y, p)| f64::from((y - p).abs()));
    ///     errors.fold(0.0, f64::max)
    /// };
    /// let model = GradientBoosting::regressor()
    ///     .n_trees(10)
    ///     .eval_set("train", (&x, &y))
    ///     .custom_metric("worst", Direction::Lower, worst)
    ///     .fit((&x, &y))?;
    /// assert_eq!(model.history()[0].own_name.as_deref(), Some("worst"));
    /// # Ok::<(), detml_core::Error>(())
    /// ```
    pub fn custom_metric(
        mut self,
        name: impl Into<String>,
        direction: Direction,
        measure: impl Fn(&[f32], &[f32], Option<&[f32]>) -> f64 + Send + Sync + 'static,
    ) -> Self {
        self.metric = Some(Metric::Custom(direction));
        self.custom_metric = Some(Custom {
            name: name.into(),
            measure: Arc::new(measure),
        });
        self
    }

    /// The metric to follow.
    pub(super) fn choose_metric(&self, loss: Loss, classes: usize) -> Result<Metric> {
        let metric = self.metric.unwrap_or(Metric::of(loss));
        let (fits, expected) = match metric {
            Metric::LogLoss | Metric::Accuracy | Metric::Error => {
                (self.classify, "a metric of regressors")
            }
            Metric::Auc | Metric::AucPr => (
                self.classify && classes == 2,
                "a metric for this number of classes",
            ),
            Metric::Custom(_) => (
                self.custom_metric.is_some(),
                "a function, given to `custom_metric`",
            ),
            _ => (!self.classify, "a metric of classifiers"),
        };
        if !fits {
            return Err(Error::parameter("eval_metric", expected, metric.name()));
        }
        // Bad parameters are refused before there is anything to measure.
        let one = ArrayView1::from(&[1.0]);
        match metric.of_numbers(one, one, None) {
            Some(Err(error)) => Err(error),
            _ => Ok(metric),
        }
    }
}
