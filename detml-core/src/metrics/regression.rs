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

pub(super) fn expectile(
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
        let factor = if y > p { alpha } else { 1.0 - alpha };
        factor * ((y - p) * (y - p))
    }))
}

pub(super) fn huber(
    truth: View<'_>,
    predicted: View<'_>,
    delta: f64,
    weights: Option<View<'_>>,
) -> Result<f64> {
    check_delta(delta)?;
    let rows = Rows::new(truth, predicted, weights)?;
    Ok(rows.mean(|y, p| {
        let d = (y - p).abs();
        if d <= delta {
            0.5 * (d * d)
        } else {
            delta * (d - 0.5 * delta)
        }
    }))
}

pub(super) fn pseudo_huber(
    truth: View<'_>,
    predicted: View<'_>,
    delta: f64,
    weights: Option<View<'_>>,
) -> Result<f64> {
    check_delta(delta)?;
    let rows = Rows::new(truth, predicted, weights)?;
    Ok(rows.mean(|y, p| {
        let t = (y - p) / delta;
        (delta * delta) * ((1.0 + t * t).sqrt() - 1.0)
    }))
}

fn check_delta(delta: f64) -> Result<()> {
    if delta.is_finite() && delta > 0.0 {
        return Ok(());
    }
    Err(Error::parameter("delta", "a finite number above 0", delta))
}

pub(super) fn root_mean_squared_log_error(
    truth: View<'_>,
    predicted: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    let rows = Rows::new(truth, predicted, weights)?;
    let right = |x: f32| x > -1.0;
    check_domain(truth, predicted, (right, "above -1"), (right, "above -1"))?;
    // Of an f32, 1 + x is exact in f64 or far from 1.
    let squared = rows.mean(|y, p| {
        let d = math64::ln(1.0 + y) - math64::ln(1.0 + p);
        d * d
    });
    Ok(squared.sqrt())
}

/// Refuses rows outside a deviance's domain.
fn check_domain(
    truth: View<'_>,
    predicted: View<'_>,
    (truth_fits, of_truth): (fn(f32) -> bool, &str),
    (fits, of_predicted): (fn(f32) -> bool, &str),
) -> Result<()> {
    for (row, (&y, &p)) in truth.iter().zip(predicted).enumerate() {
        let refuse = |what: &str, expected: &str, got: f32| Error::InvalidValue {
            what: what.into(),
            row,
            expected: expected.into(),
            got: got.to_string(),
        };
        if !truth_fits(y) {
            return Err(refuse("truth", of_truth, y));
        }
        if !fits(p) {
            return Err(refuse("predicted values", of_predicted, p));
        }
    }
    Ok(())
}

pub(super) fn poisson_deviance(
    truth: View<'_>,
    predicted: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    let rows = Rows::new(truth, predicted, weights)?;
    let of_truth = (|y: f32| y >= 0.0) as fn(f32) -> bool;
    check_domain(
        truth,
        predicted,
        (of_truth, "a count, 0 or above"),
        (|p| p > 0.0, "a rate above 0"),
    )?;
    Ok(rows.mean(|y, p| {
        let entropy = if y == 0.0 { 0.0 } else { y * math64::ln(y / p) };
        2.0 * ((entropy - y) + p)
    }))
}

pub(super) fn gamma_deviance(
    truth: View<'_>,
    predicted: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    let rows = Rows::new(truth, predicted, weights)?;
    let right = |x: f32| x > 0.0;
    check_domain(truth, predicted, (right, "above 0"), (right, "above 0"))?;
    Ok(rows.mean(|y, p| 2.0 * ((math64::ln(p / y) + y / p) - 1.0)))
}

pub(super) fn tweedie_deviance(
    truth: View<'_>,
    predicted: View<'_>,
    power: f64,
    weights: Option<View<'_>>,
) -> Result<f64> {
    if !(power > 1.0 && power < 2.0) {
        return Err(Error::parameter(
            "power",
            "a number above 1, below 2",
            power,
        ));
    }
    let rows = Rows::new(truth, predicted, weights)?;
    check_domain(
        truth,
        predicted,
        (|y| y >= 0.0, "0 or above"),
        (|p| p > 0.0, "above 0"),
    )?;
    let (a, b) = (1.0 - power, 2.0 - power);
    let raised = |x: f64, n: f64| math64::exp(n * math64::ln(x));
    Ok(rows.mean(|y, p| {
        let own = if y == 0.0 {
            0.0
        } else {
            raised(y, b) / (a * b)
        };
        2.0 * ((own - y * raised(p, a) / a) + raised(p, b) / b)
    }))
}
