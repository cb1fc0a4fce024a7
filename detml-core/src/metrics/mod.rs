//! How good predictions are.
//!
//! Every function takes the truth first, then what was predicted, as `f32` vectors of one
//! length, and answers in `f64`. Arithmetic is f64 in row order (N14), so the answer has the
//! same bits everywhere; it changes in the last bits if rows change places. The functions of
//! [`weighted`] let each row count as often as its weight says.
//!
//! ```
//! use detml_core::metrics;
//! use ndarray::array;
//!
//! let truth = array![0.0, 0.0, 1.0, 1.0];
//! let score = array![0.1, 0.4, 0.35, 0.8];
//! assert_eq!(metrics::roc_auc(truth.view(), score.view())?, 0.75);
//! # Ok::<(), detml_core::Error>(())
//! ```
//!
//! Definitions and edge cases follow scikit-learn 1.9 unless a function says otherwise.
//!
//! All functions refuse vectors of unequal length ([`Error::Shape`]), no rows
//! ([`Error::Empty`]), NaN ([`Error::NonFinite`]; infinities too where they have no meaning),
//! and bad weights ([`Error::InvalidValue`]).

mod classification;
mod confusion;
mod ranking;
mod regression;

use ndarray::{ArrayView1, ArrayView2};

pub use confusion::ConfusionMatrix;

use crate::design::check_weights;
use crate::{Error, Result};

/// Checked columns of equal length.
struct Rows<'y, 'p, 'w> {
    truth: ArrayView1<'y, f32>,
    predicted: ArrayView1<'p, f32>,
    weights: Option<ArrayView1<'w, f32>>,
}

impl<'y, 'p, 'w> Rows<'y, 'p, 'w> {
    fn new(
        truth: ArrayView1<'y, f32>,
        predicted: ArrayView1<'p, f32>,
        weights: Option<ArrayView1<'w, f32>>,
    ) -> Result<Self> {
        same_length("predicted values", truth.len(), predicted.len())?;
        check(truth, weights)?;
        finite("predicted values", predicted)?;
        Ok(Self {
            truth,
            predicted,
            weights,
        })
    }

    /// As [`Self::new`] for scores, of which only the order counts: infinities are welcome.
    fn ranked(
        truth: ArrayView1<'y, f32>,
        scores: ArrayView1<'p, f32>,
        weights: Option<ArrayView1<'w, f32>>,
    ) -> Result<Self> {
        same_length("scores", truth.len(), scores.len())?;
        check(truth, weights)?;
        refuse("scores", scores, f32::is_nan)?;
        Ok(Self {
            truth,
            predicted: scores,
            weights,
        })
    }

    fn weight(&self, row: usize) -> f64 {
        self.weights.map_or(1.0, |weights| f64::from(weights[row]))
    }

    /// Truth, prediction and weight of each row, in order.
    fn iter(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        let pairs = self.truth.iter().zip(self.predicted);
        pairs
            .enumerate()
            .map(|(row, (&y, &p))| (f64::from(y), f64::from(p), self.weight(row)))
    }

    /// The weighted mean of `loss(truth, prediction)`.
    fn mean(&self, loss: impl Fn(f64, f64) -> f64) -> f64 {
        let (mut sum, mut total) = (0.0, 0.0);
        for (y, p, w) in self.iter() {
            sum += w * loss(y, p);
            total += w;
        }
        sum / total
    }

    /// Refuses a truth other than 0 and 1.
    fn binary(self) -> Result<Self> {
        for (row, &label) in self.truth.iter().enumerate() {
            if label != 0.0 && label != 1.0 {
                return Err(Error::LabelOutOfRange {
                    row,
                    expected: "0 or 1".into(),
                    got: label.to_string(),
                });
            }
        }
        Ok(self)
    }

    /// Refuses a prediction that is no probability.
    fn probabilities(self) -> Result<Self> {
        for (row, &p) in self.predicted.iter().enumerate() {
            if !(0.0..=1.0).contains(&p) {
                return Err(Error::InvalidValue {
                    what: "probabilities".into(),
                    row,
                    expected: "a number between 0 and 1".into(),
                    got: p.to_string(),
                });
            }
        }
        Ok(self)
    }
}

fn same_length(what: &str, expected: usize, got: usize) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(Error::shape(
        what,
        format_args!("{expected} rows, as the truth"),
        got,
    ))
}

fn check(truth: ArrayView1<'_, f32>, weights: Option<ArrayView1<'_, f32>>) -> Result<()> {
    if truth.is_empty() {
        return Err(Error::empty("truth (rows)"));
    }
    finite("truth", truth)?;
    if let Some(weights) = weights {
        same_length("weights", truth.len(), weights.len())?;
        check_weights(weights)?;
    }
    Ok(())
}

fn finite(what: &str, values: ArrayView1<'_, f32>) -> Result<()> {
    refuse(what, values, |value| !value.is_finite())
}

fn refuse(what: &str, values: ArrayView1<'_, f32>, bad: impl Fn(f32) -> bool) -> Result<()> {
    match values.iter().position(|&value| bad(value)) {
        None => Ok(()),
        Some(row) => Err(Error::NonFinite {
            what: what.into(),
            row,
            column: 0,
            got: f64::from(values[row]),
        }),
    }
}

/// Each metric once without weights and once, in [`weighted`], with them.
macro_rules! metrics {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $implementation:path;
    )*) => {
        $(
            $(#[$doc])*
            pub fn $name($($arg: $type),*) -> Result<$result> {
                $implementation($($arg,)* None)
            }
        )*

        /// The metrics of [`metrics`](super::metrics), each row counting as often as its
        /// weight says. Weights are finite, 0 or above, and not all 0.
        pub mod weighted {
            use super::*;
            $(
                $(#[$doc])*
                pub fn $name(
                    $($arg: $type,)*
                    weights: ArrayView1<'_, f32>,
                ) -> Result<$result> {
                    $implementation($($arg,)* Some(weights))
                }
            )*
        }
    };
}

metrics! {
    /// The share of rows predicted right.
    fn accuracy(truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>) -> f64
        = classification::accuracy;

    /// The mean over classes of the share of the class's rows predicted right; classes without
    /// a true row don't count.
    fn balanced_accuracy(truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>) -> f64
        = classification::balanced_accuracy;

    /// How many rows of each class were predicted as which class. Labels are whole numbers.
    fn confusion_matrix(
        truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>
    ) -> ConfusionMatrix = classification::confusion_matrix;

    /// Of the rows predicted as class 1, the share that is; 0 if none was. Labels are 0 and 1;
    /// for more classes see [`ConfusionMatrix`].
    fn precision(truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>) -> f64
        = classification::precision;

    /// Of the rows of class 1, the share predicted so; 0 if there is none. Labels are 0 and 1;
    /// for more classes see [`ConfusionMatrix`].
    fn recall(truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>) -> f64
        = classification::recall;

    /// The harmonic mean of precision and recall of class 1; 0 if both are. Labels are 0 and 1;
    /// for more classes see [`ConfusionMatrix`].
    fn f1(truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>) -> f64
        = classification::f1;

    /// The area under the ROC curve: the chance that a row of class 1 scores above a row of
    /// class 0, ties counting half. Truth is 0 or 1, both must occur
    /// ([`Error::Unsupported`]); scores may be infinite.
    ///
    /// Without weights the pairs are counted in integers: the answer is the exact area,
    /// rounded once, whatever the order of the rows.
    fn roc_auc(truth: ArrayView1<'_, f32>, scores: ArrayView1<'_, f32>) -> f64
        = ranking::roc_auc;

    /// The average precision: the sum over distinct scores, from the highest, of precision
    /// times the gain in recall. Truth is 0 or 1, at least one 1
    /// ([`Error::Unsupported`]); scores may be infinite.
    fn average_precision(truth: ArrayView1<'_, f32>, scores: ArrayView1<'_, f32>) -> f64
        = ranking::average_precision;

    /// The mean of `-ln` of the probability given to the true class. Truth is 0 or 1,
    /// `probabilities` are those of class 1, moved into `[2^-23, 1 - 2^-23]` first.
    fn log_loss(truth: ArrayView1<'_, f32>, probabilities: ArrayView1<'_, f32>) -> f64
        = classification::log_loss;

    /// The mean of `-ln` of the probability given to the true class, for any number of
    /// classes. `classes` are the labels of the columns of `probabilities` (rows x classes),
    /// ascending; probabilities are moved into `[2^-23, 1 - 2^-23]` first, and used as they
    /// are: rows aren't rescaled to sum to 1.
    fn log_loss_classes(
        truth: ArrayView1<'_, f32>, probabilities: ArrayView2<'_, f32>, classes: &[f32]
    ) -> f64 = classification::log_loss_classes;

    /// The mean squared difference of truth (0 or 1) and the probability of class 1.
    fn brier(truth: ArrayView1<'_, f32>, probabilities: ArrayView1<'_, f32>) -> f64
        = classification::brier;

    /// The mean of the squared differences.
    fn mean_squared_error(truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>) -> f64
        = regression::mean_squared_error;

    /// The square root of the mean of the squared differences.
    fn root_mean_squared_error(
        truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>
    ) -> f64 = regression::root_mean_squared_error;

    /// The mean of the absolute differences.
    fn mean_absolute_error(truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>) -> f64
        = regression::mean_absolute_error;

    /// The coefficient of determination: 1 less the squared differences over those from the
    /// mean of the truth. For a constant truth 1 if it was predicted exactly, else 0.
    fn r2(truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>) -> f64
        = regression::r2;

    /// The mean of the absolute differences over the absolute truth (or 2^-52 where that is
    /// smaller); 1 stands for 100 %.
    fn mean_absolute_percentage_error(
        truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>
    ) -> f64 = regression::mean_absolute_percentage_error;

    /// The pinball (quantile) loss of the quantile `alpha`, between 0 and 1
    /// ([`Error::InvalidParameter`]).
    fn pinball(
        truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>, alpha: f64
    ) -> f64 = regression::pinball;

    /// The mean Poisson deviance `2 (y ln(y / p) - y + p)`; truth is 0 or above, predictions
    /// above 0 ([`Error::InvalidValue`]).
    fn poisson_deviance(truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>) -> f64
        = regression::poisson_deviance;

    /// The mean gamma deviance `2 (ln(p / y) + y / p - 1)`; truth and predictions are above 0
    /// ([`Error::InvalidValue`]).
    fn gamma_deviance(truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>) -> f64
        = regression::gamma_deviance;

    /// The mean Tweedie deviance
    /// `2 (y^(2-k) / ((1-k) (2-k)) - y p^(1-k) / (1-k) + p^(2-k) / (2-k))` of the power `k` of the
    /// variance, above 1 and below 2 ([`Error::InvalidParameter`]); truth is 0 or above,
    /// predictions above 0 ([`Error::InvalidValue`]).
    fn tweedie_deviance(
        truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>, power: f64
    ) -> f64 = regression::tweedie_deviance;

    /// The mean squared difference, times `alpha` where the truth is above the prediction and
    /// `1 - alpha` elsewhere; `alpha` is between 0 and 1 ([`Error::InvalidParameter`]). Not in
    /// scikit-learn.
    fn expectile(
        truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>, alpha: f64
    ) -> f64 = regression::expectile;

    /// The mean of Huber's loss: half the squared difference `d` up to `delta`, beyond it
    /// `delta (|d| - delta / 2)`; `delta` is above 0 ([`Error::InvalidParameter`]). LightGBM's
    /// `huber`.
    fn huber(truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>, delta: f64) -> f64
        = regression::huber;

    /// The mean of `delta^2 (sqrt(1 + (d / delta)^2) - 1)` of the differences `d`; `delta` is
    /// above 0 ([`Error::InvalidParameter`]). XGBoost's `mphe`.
    fn pseudo_huber(
        truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>, delta: f64
    ) -> f64 = regression::pseudo_huber;

    /// The square root of the mean squared difference of `ln(1 + x)`; truth and predictions are
    /// above -1 ([`Error::InvalidValue`]).
    fn root_mean_squared_log_error(
        truth: ArrayView1<'_, f32>, predicted: ArrayView1<'_, f32>
    ) -> f64 = regression::root_mean_squared_log_error;
}

pub use regression::median_absolute_error;
