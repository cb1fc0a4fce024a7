use ndarray::{Array2, ArrayView1, ArrayView2};

use super::confusion::ratio;
use super::{ConfusionMatrix, Rows, check, refuse, same_length};
use crate::{Error, Labels, Result, encode_labels, math64};

type View<'a> = ArrayView1<'a, f32>;

pub(super) fn accuracy(
    truth: View<'_>,
    predicted: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    let rows = Rows::new(truth, predicted, weights)?;
    Ok(rows.mean(|y, p| if y == p { 1.0 } else { 0.0 }))
}

pub(super) fn confusion_matrix(
    truth: View<'_>,
    predicted: View<'_>,
    weights: Option<View<'_>>,
) -> Result<ConfusionMatrix> {
    let rows = Rows::new(truth, predicted, weights)?;
    let mut classes = Labels::new(truth)?.into_parts().0;
    classes.extend_from_slice(Labels::new(predicted)?.classes());
    classes.sort_unstable_by(f32::total_cmp);
    classes.dedup();
    const MOST: usize = 4096;
    if classes.len() > MOST {
        return Err(Error::unsupported(
            format!("a confusion matrix of {} classes", classes.len()),
            format!("at most {MOST} are counted; is this a regression target?"),
        ));
    }
    let actual = encode_labels(&classes, truth)?;
    let guessed = encode_labels(&classes, predicted)?;
    let mut counts = Array2::zeros((classes.len(), classes.len()));
    for (row, (y, p)) in actual.into_iter().zip(guessed).enumerate() {
        counts[[y as usize, p as usize]] += rows.weight(row);
    }
    Ok(ConfusionMatrix { classes, counts })
}

pub(super) fn balanced_accuracy(
    truth: View<'_>,
    predicted: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    let matrix = confusion_matrix(truth, predicted, weights)?;
    let (mut sum, mut classes) = (0.0, 0.0);
    for (recall, support) in matrix.recall().into_iter().zip(matrix.support()) {
        if support > 0.0 {
            sum += recall;
            classes += 1.0;
        }
    }
    Ok(sum / classes)
}

/// (true positives, positives, predicted positives)
fn positives(
    truth: View<'_>,
    predicted: View<'_>,
    weights: Option<View<'_>>,
) -> Result<(f64, f64, f64)> {
    let rows = Rows::new(truth, predicted, weights)?.binary()?;
    let swapped = Rows::new(predicted, truth, None)?;
    swapped.binary()?;
    let (mut hit, mut actual, mut guessed) = (0.0, 0.0, 0.0);
    for (y, p, w) in rows.iter() {
        hit += w * y * p;
        actual += w * y;
        guessed += w * p;
    }
    Ok((hit, actual, guessed))
}

pub(super) fn precision(
    truth: View<'_>,
    predicted: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    let (hit, _, guessed) = positives(truth, predicted, weights)?;
    Ok(ratio(hit, guessed))
}

pub(super) fn recall(
    truth: View<'_>,
    predicted: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    let (hit, actual, _) = positives(truth, predicted, weights)?;
    Ok(ratio(hit, actual))
}

pub(super) fn f1(truth: View<'_>, predicted: View<'_>, weights: Option<View<'_>>) -> Result<f64> {
    let (hit, actual, guessed) = positives(truth, predicted, weights)?;
    Ok(ratio(2.0 * hit, actual + guessed))
}

/// -ln(p) with p moved away from 0 and 1 by f32's epsilon; for an f32 between, `1 - p` is
/// exact in f64.
fn surprise(p: f64) -> f64 {
    let least = f64::from(f32::EPSILON);
    -math64::ln(p.max(least).min(1.0 - least))
}

pub(super) fn log_loss(
    truth: View<'_>,
    probabilities: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    let rows = Rows::new(truth, probabilities, weights)?
        .binary()?
        .probabilities()?;
    Ok(rows.mean(|y, p| surprise(if y == 1.0 { p } else { 1.0 - p })))
}

pub(super) fn log_loss_classes(
    truth: View<'_>,
    probabilities: ArrayView2<'_, f32>,
    classes: &[f32],
    weights: Option<View<'_>>,
) -> Result<f64> {
    same_length("probabilities", truth.len(), probabilities.nrows())?;
    check(truth, weights)?;
    if probabilities.ncols() != classes.len() {
        return Err(Error::shape(
            "probabilities",
            format_args!("{} columns, one per class", classes.len()),
            probabilities.ncols(),
        ));
    }
    if !classes.is_sorted_by(|a, b| a < b) {
        return Err(Error::parameter(
            "classes",
            "distinct labels in ascending order",
            format_args!("{classes:?}"),
        ));
    }
    for column in probabilities.columns() {
        refuse("probabilities", column, |p| !(0.0..=1.0).contains(&p))?;
    }
    let (mut sum, mut total) = (0.0, 0.0);
    for (row, code) in encode_labels(classes, truth)?.into_iter().enumerate() {
        let w = weights.map_or(1.0, |weights| f64::from(weights[row]));
        sum += w * surprise(f64::from(probabilities[[row, code as usize]]));
        total += w;
    }
    Ok(sum / total)
}

pub(super) fn brier(
    truth: View<'_>,
    probabilities: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    let rows = Rows::new(truth, probabilities, weights)?
        .binary()?
        .probabilities()?;
    Ok(rows.mean(|y, p| (p - y) * (p - y)))
}
