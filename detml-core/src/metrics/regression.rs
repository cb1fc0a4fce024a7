use ndarray::ArrayView1;

use super::Rows;
use crate::{Error, Result, math64};

type View<'a> = ArrayView1<'a, f32>;

pub(super) fn mean_squared_error(
    truth: View<'_>,
    predicted: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    let rows = Rows::new(truth, predicted, weights)?;
    Ok(rows.mean(|y, p| (y - p) * (y - p)))
}

pub(super) fn root_mean_squared_error(
    truth: View<'_>,
    predicted: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    // IEEE's square root, correctly rounded everywhere.
    Ok(mean_squared_error(truth, predicted, weights)?.sqrt())
}

pub(super) fn mean_absolute_error(
    truth: View<'_>,
    predicted: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    let rows = Rows::new(truth, predicted, weights)?;
    Ok(rows.mean(|y, p| (y - p).abs()))
}

/// The median of the absolute differences; the mean of the middle two for an even number of
/// rows.
///
/// # Errors
/// As all [`metrics`](super).
pub fn median_absolute_error(
    truth: ArrayView1<'_, f32>,
    predicted: ArrayView1<'_, f32>,
) -> Result<f64> {
    let rows = Rows::new(truth, predicted, None)?;
    let mut errors: Vec<f64> = rows.iter().map(|(y, p, _)| (y - p).abs()).collect();
    errors.sort_unstable_by(f64::total_cmp);
    let (below, above) = (errors[(errors.len() - 1) / 2], errors[errors.len() / 2]);
    Ok(0.5 * (below + above))
}

pub(super) fn r2(truth: View<'_>, predicted: View<'_>, weights: Option<View<'_>>) -> Result<f64> {
    let rows = Rows::new(truth, predicted, weights)?;
    let mean = rows.mean(|y, _| y);
    let left = rows.mean(|y, p| (y - p) * (y - p));
    let whole = rows.mean(|y, _| (y - mean) * (y - mean));
    // A rounded mean may leave a constant truth a residue; it is constant all the same.
    let constant = truth.iter().all(|&y| y == truth[0]);
    Ok(match (left == 0.0, constant || whole == 0.0) {
        (true, _) => 1.0,
        (false, true) => 0.0,
        (false, false) => 1.0 - left / whole,
    })
}

pub(super) fn mean_absolute_percentage_error(
    truth: View<'_>,
    predicted: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    let rows = Rows::new(truth, predicted, weights)?;
    Ok(rows.mean(|y, p| (y - p).abs() / y.abs().max(f64::EPSILON)))
}

pub(super) fn pinball(
    truth: View<'_>,
    predicted: View<'_>,
    alpha: f64,
    weights: Option<View<'_>>,
) -> Result<f64> {
    if !(0.0..=1.0).contains(&alpha) {
        return Err(Error::parameter("alpha", "a number between 0 and 1", alpha));
    }
    let rows = Rows::new(truth, predicted, weights)?;
    Ok(rows.mean(|y, p| {
        if y >= p {
            alpha * (y - p)
        } else {
            (1.0 - alpha) * (p - y)
        }
    }))
}

pub(super) fn poisson_deviance(
    truth: View<'_>,
    predicted: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    let rows = Rows::new(truth, predicted, weights)?;
    for (row, (&y, &p)) in truth.iter().zip(predicted).enumerate() {
        let refuse = |what: &str, expected: &str, got: f32| Error::InvalidValue {
            what: what.into(),
            row,
            expected: expected.into(),
            got: got.to_string(),
        };
        if y < 0.0 {
            return Err(refuse("truth", "a count, 0 or above", y));
        }
        if p <= 0.0 {
            return Err(refuse("predicted values", "a rate above 0", p));
        }
    }
    Ok(rows.mean(|y, p| {
        let entropy = if y == 0.0 { 0.0 } else { y * math64::ln(y / p) };
        2.0 * ((entropy - y) + p)
    }))
}
