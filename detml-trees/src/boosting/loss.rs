//! Losses, class weights, and objectives of one's own.

use super::GradientBoosting;
use detml_core::{Error, Result};
use detml_kernels::ieee::Ieee;
use detml_kernels::ops::boosting as ops;
use rayon::prelude::*;
use std::fmt;
use std::sync::Arc;

/// What boosting minimises. `m` is a row's margin and `y` its target; gradients and Hessians are
/// multiplied by the row's weight.
///
/// Where "log link" is said the prediction is `e^m`, else it is the margin.
///
/// # Renewed leaves
/// The losses that say so have no curvature: after a tree has grown, each leaf's value is the
/// learning rate times a quantile of the residuals `y - m` of its (drawn) rows, as in LightGBM and
/// XGBoost. The quantile is the least residual that reaches, together with all lower ones, its
/// share of the weight (numpy's `inverted_cdf`): nothing is interpolated. L1 and L2 penalties
/// steer the splits of such a tree but not its leaves. See [`detml_kernels::ops::boosting`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// Half the squared error: `m - y` and 1. Regressors, also of several targets: each has a tree
    /// of its own in each round (XGBoost's `one_output_per_tree`).
    Squared,
    /// Absolute error: `sign(m - y)` and 1, with renewed leaves (medians). Starts at the weighted
    /// median. Regressors. LightGBM's `regression_l1`, XGBoost's `reg:absoluteerror`.
    Absolute,
    /// Quantile (pinball) loss: `1 - alpha` where `m >= y`, else `-alpha`; and 1; with renewed
    /// leaves. Starts at the weighted quantile. Regressors. LightGBM's `quantile`, XGBoost's
    /// `reg:quantileerror`.
    Quantile {
        /// The quantile, above 0 and below 1.
        alpha: f32,
    },
    /// Huber's loss: `m - y` held within `-delta..=delta`, and 1. Starts at the mean. Regressors.
    /// LightGBM's `huber`, whose `alpha` of 0.9 is [`Loss::huber`]'s.
    Huber {
        /// Where the loss becomes linear, above 0.
        delta: f32,
    },
    /// `delta^2 (sqrt(1 + (d / delta)^2) - 1)` of `d = m - y`: `d / s` and `s^-3`,
    /// `s = sqrt(1 + (d / delta)^2)`. Starts at the mean. Regressors. XGBoost's
    /// `reg:pseudohubererror`, whose `huber_slope` of 1 is [`Loss::pseudo_huber`]'s.
    PseudoHuber {
        /// About where the loss becomes linear, above 0.
        delta: f32,
    },
    /// Half the squared error times `a`: `a (m - y)` and `a`, with `a = alpha` where `m < y` and
    /// `1 - alpha` elsewhere. Starts at the mean. Regressors. Newey and Powell, "Asymmetric least
    /// squares estimation and testing" (1987); CatBoost's `Expectile`.
    Expectile {
        /// The expectile, above 0 and below 1.
        alpha: f32,
    },
    /// Absolute percentage error: `sign(m - y) / max(1, |y|)` and 1, with renewed leaves (medians,
    /// rows weighing `1 / max(1, |y|)`). Starts at such a median. Regressors. LightGBM's `mape`.
    Mape,
    /// Poisson likelihood of targets 0 or above, not all 0: `e^m - y` and
    /// `e^(m + max_delta_step)`. Log link; starts at the logarithm of the mean. Regressors.
    /// LightGBM's `poisson`, whose `poisson_max_delta_step` of 0.7 is [`Loss::poisson`]'s. XGBoost's
    /// `count:poisson` besides bounds leaves by it.
    Poisson {
        /// Makes Hessians larger and so steps smaller, 0 or above.
        max_delta_step: f32,
    },
    /// Gamma likelihood of targets above 0: `1 - y e^-m` and `y e^-m`. Log link; starts at the
    /// logarithm of the mean. Regressors. LightGBM's `gamma`, XGBoost's `reg:gamma`.
    Gamma,
    /// Tweedie likelihood of targets 0 or above, not all 0: `b - a` and `(2 - p) b + (p - 1) a` of
    /// `a = y e^((1 - p) m)` and `b = e^((2 - p) m)`. Log link; starts at the logarithm of the mean.
    /// Regressors. LightGBM's `tweedie`, XGBoost's `reg:tweedie`, whose `tweedie_variance_power` of
    /// 1.5 is [`Loss::tweedie`]'s.
    Tweedie {
        /// The power `p` of the variance, above 1 and below 2.
        variance_power: f32,
    },
    /// Half the squared difference of `ln(1 + x)`, of targets above -1: `l / q` and
    /// `max((1 - l) / q^2, 1e-6)` of `q = 1 + m` and `l = ln(1 + m) - ln(1 + y)`; margins below
    /// -1 + 1e-6 count as that. Starts at `e^a - 1`, `a` the mean of `ln(1 + y)`. Regressors.
    /// XGBoost's `reg:squaredlogerror`.
    SquaredLog,
    /// An [`Objective`], see [`GradientBoosting::objective`]. Regressors.
    Custom,
    /// Logistic loss of two classes, `m` being the log-odds of the second: `p - y` and `p (1 - p)`
    /// of `p = sigmoid(m)`; one tree a round. Starts at the log-odds of the classes' shares.
    /// Classifiers of two classes.
    Logistic,
    /// Multinomial logistic loss; one tree a round for each class. Starts at the logarithms of the
    /// classes' shares. Classifiers.
    Softmax,
    /// For each class the logistic loss of being of that class; one tree a round for each. Starts at
    /// the log-odds of each class. A probability is the class's `sigmoid(m)` over the sum of those
    /// of all classes (`1 / classes` where all are 0). Classifiers of two or more classes. LightGBM's
    /// `multiclassova`, which leaves out the division.
    OneVsAll,
}

impl Loss {
    /// [`Loss::Huber`] with LightGBM's default, `delta` 0.9.
    #[must_use]
    pub const fn huber() -> Self {
        Self::Huber { delta: 0.9 }
    }

    /// [`Loss::PseudoHuber`] with XGBoost's default, `delta` 1.
    #[must_use]
    pub const fn pseudo_huber() -> Self {
        Self::PseudoHuber { delta: 1.0 }
    }

    /// [`Loss::Poisson`] with LightGBM's default, `max_delta_step` 0.7.
    #[must_use]
    pub const fn poisson() -> Self {
        Self::Poisson {
            max_delta_step: 0.7,
        }
    }

    /// [`Loss::Tweedie`] with LightGBM's and XGBoost's default, `variance_power` 1.5.
    #[must_use]
    pub const fn tweedie() -> Self {
        Self::Tweedie {
            variance_power: 1.5,
        }
    }

    /// The kernels' loss. `outputs` counts classes or, for a regressor, targets.
    pub(super) fn with_outputs(self, outputs: usize) -> ops::Loss {
        match self {
            Self::Squared if outputs > 1 => ops::Loss::SquaredTargets { targets: outputs },
            Self::Squared => ops::Loss::Squared,
            Self::Absolute => ops::Loss::Absolute,
            Self::Quantile { alpha } => ops::Loss::Quantile { alpha },
            Self::Huber { delta } => ops::Loss::Huber { delta },
            Self::PseudoHuber { delta } => ops::Loss::PseudoHuber { delta },
            Self::Expectile { alpha } => ops::Loss::Expectile { alpha },
            Self::Mape => ops::Loss::Mape,
            Self::Poisson { max_delta_step } => ops::Loss::Poisson { max_delta_step },
            Self::Gamma => ops::Loss::Gamma,
            Self::Tweedie { variance_power } => ops::Loss::Tweedie { variance_power },
            Self::SquaredLog => ops::Loss::SquaredLog,
            Self::Custom => ops::Loss::Given,
            Self::Logistic => ops::Loss::Logistic,
            Self::Softmax => ops::Loss::Softmax { classes: outputs },
            Self::OneVsAll => ops::Loss::OneVsAll { classes: outputs },
        }
    }

    /// Whether its targets are classes.
    pub(super) fn classifies(self) -> bool {
        matches!(self, Self::Logistic | Self::Softmax | Self::OneVsAll)
    }

    /// Its name in model files, and its parameter.
    pub(super) fn text(self) -> (&'static str, Option<f32>) {
        match self {
            Self::Squared => ("squared", None),
            Self::Absolute => ("absolute", None),
            Self::Quantile { alpha } => ("quantile", Some(alpha)),
            Self::Huber { delta } => ("huber", Some(delta)),
            Self::PseudoHuber { delta } => ("pseudo_huber", Some(delta)),
            Self::Expectile { alpha } => ("expectile", Some(alpha)),
            Self::Mape => ("mape", None),
            Self::Poisson { max_delta_step } => ("poisson", Some(max_delta_step)),
            Self::Gamma => ("gamma", None),
            Self::Tweedie { variance_power } => ("tweedie", Some(variance_power)),
            Self::SquaredLog => ("squared_log", None),
            Self::Custom => ("custom", None),
            Self::Logistic => ("logistic", None),
            Self::Softmax => ("softmax", None),
            Self::OneVsAll => ("one_vs_all", None),
        }
    }

    /// The loss of that name; the parameter is asked for if it has one.
    pub(super) fn from_text(
        name: &str,
        parameter: impl FnOnce() -> Result<f32>,
    ) -> Result<Option<Self>> {
        Ok(Some(match name {
            "squared" => Self::Squared,
            "absolute" => Self::Absolute,
            "quantile" => Self::Quantile {
                alpha: parameter()?,
            },
            "huber" => Self::Huber {
                delta: parameter()?,
            },
            "pseudo_huber" => Self::PseudoHuber {
                delta: parameter()?,
            },
            "expectile" => Self::Expectile {
                alpha: parameter()?,
            },
            "mape" => Self::Mape,
            "poisson" => Self::Poisson {
                max_delta_step: parameter()?,
            },
            "gamma" => Self::Gamma,
            "tweedie" => Self::Tweedie {
                variance_power: parameter()?,
            },
            "squared_log" => Self::SquaredLog,
            "custom" => Self::Custom,
            "logistic" => Self::Logistic,
            "softmax" => Self::Softmax,
            "one_vs_all" => Self::OneVsAll,
            _ => return Ok(None),
        }))
    }
}

/// What the rows of each class count for, times their own weights.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ClassWeight {
    /// scikit-learn's `balanced`: the weight of all rows over the number of classes times the
    /// weight of the class's rows, so that all classes weigh the same.
    Balanced,
    /// Labels with what their rows count for, finite and above 0; other classes count 1.
    Explicit(Vec<(f32, f32)>),
}

/// A loss of one's own, one margin a row; the prediction is the margin.
///
/// It runs on the host, row by row, on several threads. For a model with the same bits
/// everywhere, compute with additions, multiplications, divisions and square roots of IEEE 754 and
/// the functions of [`detml_kernels::math`] alone; the platform's own functions differ.
///
/// ```
/// use detml_core::prelude::*;
/// use detml_trees::{GradientBoosting, Objective};
/// use ndarray::{Array, Array1};
///
/// /// Squared error, three times as high for predictions that are too low.
/// struct Cautious;
///
/// impl Objective for Cautious {
///     fn name(&self) -> &str {
///         "cautious"
///     }
///
///     fn gradient(&self, margin: f32, target: f32) -> [f32; 2] {
///         let factor = if margin < target { 3.0 } else { 1.0 };
///         [factor * (margin - target), factor]
///     }
/// }
///
/// let x = Array::from_shape_fn((100, 2), |(i, j)| (i * (j + 3) % 17) as f32);
/// let y: Array1<f32> = (0..100).map(|i| (i % 5) as f32).collect();
/// let model = GradientBoosting::regressor()
///     .objective(Cautious)
///     .n_trees(20)
///     .fit((&x, &y))?;
/// assert!(model.predict(x.view())?.mean() > y.mean());
/// # Ok::<(), detml_core::Error>(())
/// ```
pub trait Objective: Send + Sync {
    /// Its name in model files.
    fn name(&self) -> &str;

    /// Gradient and Hessian (0 or above) of a row's loss by its margin, without its weight.
    fn gradient(&self, margin: f32, target: f32) -> [f32; 2];

    /// The margin that every row starts from, finite; 0 unless overridden.
    fn base_score(&self) -> f32 {
        0.0
    }
}

/// An objective in a builder.
#[derive(Clone)]
pub(super) struct Shared(pub(super) Arc<dyn Objective>);

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objective({})", self.0.name())
    }
}

impl Shared {
    /// Gradients and Hessians of all rows.
    pub(super) fn gradients(
        &self,
        margins: &[f32],
        targets: &[f32],
        weights: Option<&[f32]>,
    ) -> (Vec<f32>, Vec<f32>) {
        margins
            .par_iter()
            .zip(targets)
            .enumerate()
            .with_min_len(1024)
            .map(|(row, (&margin, &target))| {
                let [g, h] = self.0.gradient(margin, target);
                match weights.and_then(|weights| weights.get(row)) {
                    None => (g, h),
                    Some(&w) => (Ieee::PLAIN.mul(g, w), Ieee::PLAIN.mul(h, w)),
                }
            })
            .unzip()
    }
}

impl GradientBoosting {
    /// What to minimise. Default [`Loss::Squared`] for regressors, [`Loss::Logistic`] for
    /// classifiers of two classes and [`Loss::Softmax`] for those of more.
    pub fn loss(mut self, loss: Loss) -> Self {
        self.loss = Some(loss);
        self
    }

    /// Minimises a loss of one's own; regressors. On a GPU trees grow there, and each round reads
    /// the margins back for the gradients: the report says so.
    pub fn objective(mut self, objective: impl Objective + 'static) -> Self {
        self.objective = Some(Shared(Arc::new(objective)));
        self.loss = Some(Loss::Custom);
        self
    }

    /// Multiplies each row's weight by its class's, in all of the fit but not on eval sets;
    /// classifiers. Default: none.
    pub fn class_weight(mut self, class_weight: ClassWeight) -> Self {
        self.class_weight = Some(class_weight);
        self
    }

    /// Multiplies the weights of the second class's rows, as
    /// [`class_weight`](Self::class_weight) does (XGBoost's and LightGBM's name); finite and above
    /// 0, for [`Loss::Logistic`]. Default 1.
    pub fn scale_pos_weight(mut self, scale_pos_weight: f32) -> Self {
        self.scale_pos_weight = scale_pos_weight;
        self
    }

    /// The loss of this many classes (0 for a regressor) and targets.
    pub(super) fn choose_loss(&self, classes: usize, targets: usize) -> Result<Loss> {
        let default = match (self.classify, classes) {
            (false, _) => Loss::Squared,
            (true, 2) => Loss::Logistic,
            (true, _) => Loss::Softmax,
        };
        let loss = self.loss.unwrap_or(default);
        let fits = match loss {
            Loss::Logistic => self.classify && classes == 2,
            Loss::OneVsAll => self.classify && classes > 1,
            Loss::Custom if self.objective.is_none() => false,
            loss => loss.classifies() == self.classify,
        };
        if !fits {
            return Err(Error::parameter(
                "loss",
                match self.classify {
                    true => format!("a loss of {classes} classes"),
                    false => "the loss of a regressor; with `objective`, `Custom`".into(),
                },
                format_args!("`{loss:?}`"),
            ));
        }
        if self.objective.is_some() && loss != Loss::Custom {
            return Err(Error::parameter(
                "loss",
                "`Custom` with an objective",
                format_args!("`{loss:?}`"),
            ));
        }
        if targets > 1 && loss != Loss::Squared {
            return Err(Error::unsupported(
                format!("{targets} targets at once with `{loss:?}`"),
                "only `Squared` takes several; fit one model per target",
            ));
        }
        // A single class is certain, and no more is asked of a loss than of two.
        loss.with_outputs(classes.max(targets).max(2)).check()?;
        Ok(loss)
    }

    /// What the rows of each class count for; `None` if all count the same.
    pub(super) fn class_factors(
        &self,
        loss: Loss,
        classes: &[f32],
        balanced: impl Fn(usize) -> f32,
    ) -> Result<Option<Vec<f32>>> {
        let positive = self.scale_pos_weight;
        if !(positive.is_finite() && positive > 0.0) {
            let expected = "a finite number above 0";
            return Err(Error::parameter("scale_pos_weight", expected, positive));
        }
        if positive != 1.0 && loss != Loss::Logistic {
            let expected = format_args!("1 with `{loss:?}`");
            return Err(Error::parameter("scale_pos_weight", expected, positive));
        }
        let mut factors = match &self.class_weight {
            None if positive == 1.0 => return Ok(None),
            None => vec![1.0; classes.len()],
            Some(_) if !self.classify => {
                return Err(Error::parameter(
                    "class_weight",
                    "none for a regressor",
                    "class weights",
                ));
            }
            Some(ClassWeight::Balanced) => (0..classes.len()).map(balanced).collect(),
            Some(ClassWeight::Explicit(given)) => explicit(classes, given)?,
        };
        if let Some(factor) = factors.get_mut(1).filter(|_| positive != 1.0) {
            *factor = Ieee::PLAIN.mul(*factor, positive);
        }
        Ok(Some(factors))
    }
}

fn explicit(classes: &[f32], given: &[(f32, f32)]) -> Result<Vec<f32>> {
    let mut factors = vec![None; classes.len()];
    for &(label, weight) in given {
        if !(weight.is_finite() && weight > 0.0) {
            let expected = "finite weights above 0";
            return Err(Error::parameter("class_weight", expected, weight));
        }
        let class = classes.iter().position(|&class| class == label);
        match class.and_then(|class| factors.get_mut(class)) {
            Some(factor @ None) => *factor = Some(weight),
            _ => {
                return Err(Error::parameter(
                    "class_weight",
                    format_args!("each of the classes {classes:?} once at most"),
                    label,
                ));
            }
        }
    }
    Ok(factors
        .into_iter()
        .map(|factor| factor.unwrap_or(1.0))
        .collect())
}
