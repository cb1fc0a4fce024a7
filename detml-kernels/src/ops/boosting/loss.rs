//! What boosting minimises, its parameters and its targets.

use detml_core::{Error, Result};

/// What is minimised. `w` is a row's weight, `y` its target and `m` its margin; gradients and
/// Hessians are multiplied by `w`.
///
/// With `Poisson`, `Gamma` and `Tweedie` the prediction is `e^m`; with the other losses of
/// regressors it is the margin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Half the squared error: `m - y` and 1.
    Squared,
    /// [`Squared`](Self::Squared) for each of several targets, one margin each.
    SquaredTargets {
        /// Number of targets, at least 1.
        targets: usize,
    },
    /// Absolute error: `sign(m - y)` and 1 (LightGBM's `regression_l1`, XGBoost's
    /// `reg:absoluteerror`); leaves are [renewed](super#leaves-as-quantiles) with the median.
    Absolute,
    /// Quantile (pinball) loss: `1 - alpha` where `m >= y`, else `-alpha`; and 1 (LightGBM's
    /// `quantile`, XGBoost's `reg:quantileerror`). Leaves are renewed with the quantile `alpha`.
    Quantile {
        /// The quantile, between 0 and 1.
        alpha: f32,
    },
    /// Absolute percentage error: `sign(m - y) / max(1, |y|)` and 1 (LightGBM's `mape`); leaves are
    /// renewed with the median, rows weighted by `w / max(1, |y|)`.
    Mape,
    /// Huber's loss: `m - y` held within `-delta..=delta`, and 1 (LightGBM's `huber`).
    Huber {
        /// Where the loss becomes linear, above 0.
        delta: f32,
    },
    /// `delta^2 (sqrt(1 + (d / delta)^2) - 1)` of `d = m - y`: `d / s` and `s^-3` with
    /// `s = sqrt(1 + (d / delta)^2)` (XGBoost's `reg:pseudohubererror`).
    PseudoHuber {
        /// About where the loss becomes linear, above 0 (XGBoost's `huber_slope`).
        delta: f32,
    },
    /// Half the squared error, times `alpha` where `m < y` and `1 - alpha` elsewhere (Newey and
    /// Powell, "Asymmetric least squares estimation and testing", 1987).
    Expectile {
        /// The expectile, between 0 and 1.
        alpha: f32,
    },
    /// Poisson likelihood of targets 0 or above: `e^m - y` and `e^(m + max_delta_step)` (LightGBM's
    /// `poisson`, XGBoost's `count:poisson`).
    Poisson {
        /// Makes Hessians larger and steps smaller, 0 or above.
        max_delta_step: f32,
    },
    /// Gamma likelihood of targets above 0: `1 - y e^-m` and `y e^-m` (XGBoost's `reg:gamma`).
    Gamma,
    /// Tweedie likelihood of targets 0 or above: `b - a` and `(2 - p) b + (p - 1) a` of
    /// `a = y e^((1 - p) m)`, `b = e^((2 - p) m)` (XGBoost's `reg:tweedie`).
    Tweedie {
        /// The power `p` of the variance, above 1 and below 2.
        variance_power: f32,
    },
    /// Half the squared difference of `log1p`, of targets above -1: `l / q` and
    /// `max((1 - l) / q^2, 1e-6)` of `l = log1p(m) - log1p(y)`, `q = 1 + m`, margins below
    /// -1 + 1e-6 counting as that (XGBoost's `reg:squaredlogerror`).
    SquaredLog,
    /// Logistic loss of targets 0 and 1; the margin is the log-odds of 1: `p - y` and `p (1 - p)`
    /// of `p = sigmoid(m)`.
    Logistic,
    /// Multinomial logistic loss of targets `0..classes`, one margin a class: `p - y` and
    /// `2 p (1 - p)`, `y` being 1 for the row's class and 0 for others.
    Softmax {
        /// Number of classes, at least 2.
        classes: usize,
    },
    /// For each class the logistic loss of being of that class (LightGBM's `multiclassova`), of
    /// targets `0..classes`.
    OneVsAll {
        /// Number of classes, at least 2.
        classes: usize,
    },
    /// Gradients and Hessians that the caller gives for each round, see
    /// [`Booster::round_with`](super::Booster::round_with).
    Given,
}

impl Loss {
    /// Number of margins a row, and of trees a round.
    pub fn outputs(self) -> usize {
        match self {
            Self::Softmax { classes } | Self::OneVsAll { classes } => classes,
            Self::SquaredTargets { targets } => targets,
            _ => 1,
        }
    }

    /// Number of targets a row.
    pub fn targets(self) -> usize {
        match self {
            Self::SquaredTargets { targets } => targets,
            _ => 1,
        }
    }

    /// Number of classes that targets count; `None` where they are numbers.
    pub fn classes(self) -> Option<usize> {
        match self {
            Self::Logistic => Some(2),
            Self::Softmax { classes } | Self::OneVsAll { classes } => Some(classes),
            _ => None,
        }
    }

    /// Whether a prediction is the exponential of its margin.
    pub fn log_link(self) -> bool {
        matches!(
            self,
            Self::Poisson { .. } | Self::Gamma | Self::Tweedie { .. }
        )
    }

    /// The quantile of residuals that leaves are renewed with, where they are.
    pub fn renewed_quantile(self) -> Option<f32> {
        match self {
            Self::Absolute | Self::Mape => Some(0.5),
            Self::Quantile { alpha } => Some(alpha),
            _ => None,
        }
    }

    /// The number that the formulas depend on.
    pub(super) fn parameter(self) -> Option<f32> {
        match self {
            Self::Quantile { alpha } | Self::Expectile { alpha } => Some(alpha),
            Self::Huber { delta } | Self::PseudoHuber { delta } => Some(delta),
            Self::Poisson { max_delta_step } => Some(max_delta_step),
            Self::Tweedie { variance_power } => Some(variance_power),
            _ => None,
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// `InvalidParameter`, naming the parameter.
    pub fn check(self) -> Result<()> {
        let refuse = |name, expected, got: f32| Err(Error::parameter(name, expected, got));
        match self {
            // Not a number is in no range.
            Self::Quantile { alpha } | Self::Expectile { alpha }
                if !(alpha > 0.0 && alpha < 1.0) =>
            {
                refuse("alpha", "a number above 0, below 1", alpha)
            }
            Self::Huber { delta } | Self::PseudoHuber { delta }
                if !(delta.is_finite() && delta > 0.0) =>
            {
                refuse("delta", "a finite number above 0", delta)
            }
            Self::Poisson { max_delta_step }
                if !(max_delta_step.is_finite() && max_delta_step >= 0.0) =>
            {
                refuse(
                    "max_delta_step",
                    "a finite number, 0 or above",
                    max_delta_step,
                )
            }
            Self::Tweedie { variance_power } if !(variance_power > 1.0 && variance_power < 2.0) => {
                refuse(
                    "variance_power",
                    "a number above 1, below 2",
                    variance_power,
                )
            }
            Self::Softmax { classes } | Self::OneVsAll { classes } if classes < 2 => {
                Err(Error::parameter("classes", "at least 2", classes))
            }
            Self::SquaredTargets { targets: 0 } => {
                Err(Error::parameter("targets", "at least 1", 0))
            }
            _ => Ok(()),
        }
    }

    /// Checks targets, those of a row together or not.
    ///
    /// # Errors
    /// `LabelOutOfRange` for the first one outside the loss's domain.
    pub fn check_targets(self, targets: &[f32]) -> Result<()> {
        let (right, expected): (fn(f32) -> bool, &str) = match self {
            Self::Poisson { .. } | Self::Tweedie { .. } => {
                (|y| y >= 0.0, "a finite number, 0 or above")
            }
            Self::Gamma => (|y| y > 0.0, "a finite number above 0"),
            Self::SquaredLog => (|y| y > -1.0, "a finite number above -1"),
            _ => (|_| true, "a finite number"),
        };
        let classes = self.classes();
        for (i, &y) in targets.iter().enumerate() {
            let fits = match classes {
                Some(n) => y >= 0.0 && y < n as f32 && y == y.trunc(),
                None => y.is_finite() && right(y),
            };
            if !fits {
                let rows = targets.len() / self.targets().max(1);
                return Err(Error::LabelOutOfRange {
                    row: i % rows.max(1),
                    expected: match classes {
                        Some(n) => format!("a whole number below {n}"),
                        None => expected.into(),
                    },
                    got: y.to_string(),
                });
            }
        }
        Ok(())
    }
}
