use ndarray::ArrayView1;

use super::Rows;
use crate::{Error, Result};

type View<'a> = ArrayView1<'a, f32>;

/// The rows by descending score, in runs of equal score; in a run by ascending row (N10).
fn runs(scores: View<'_>) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // Checked free of NaN; +0 makes both zeros equal.
    order.sort_by(|&a, &b| (scores[b] + 0.0).total_cmp(&(scores[a] + 0.0)));
    order
        .chunk_by(|&a, &b| scores[a] == scores[b])
        .map(<[usize]>::to_vec)
        .collect()
}

fn one_class(what: &str) -> Error {
    Error::unsupported(
        format!("{what} of a truth with one class"),
        "it needs rows of class 0 and of class 1, with weights above 0",
    )
}

pub(super) fn roc_auc(truth: View<'_>, scores: View<'_>, weights: Option<View<'_>>) -> Result<f64> {
    let rows = Rows::ranked(truth, scores, weights)?.binary()?;
    if weights.is_none() {
        // Twice the number of pairs won, in integers: below 2^127 for any memory.
        let (mut twice, mut ones_above, mut zeros) = (0u128, 0u128, 0u128);
        for run in runs(scores) {
            let ones = run.iter().filter(|&&row| truth[row] == 1.0).count() as u128;
            let others = run.len() as u128 - ones;
            twice += others * (2 * ones_above + ones);
            ones_above += ones;
            zeros += others;
        }
        let pairs = ones_above * zeros;
        if pairs == 0 {
            return Err(one_class("the ROC area"));
        }
        return Ok(quotient(twice, 2 * pairs));
    }
    let (mut area, mut ones_above, mut zeros) = (0.0, 0.0, 0.0);
    for run in runs(scores) {
        let (mut ones, mut others) = (0.0, 0.0);
        for row in run {
            let weight = rows.weight(row);
            if truth[row] == 1.0 {
                ones += weight;
            } else {
                others += weight;
            }
        }
        area += others * (ones_above + 0.5 * ones);
        ones_above += ones;
        zeros += others;
    }
    let pairs = ones_above * zeros;
    if pairs == 0.0 {
        return Err(one_class("the ROC area"));
    }
    Ok(area / pairs)
}

/// part / whole for part <= whole, whole > 0, rounded once to nearest even.
fn quotient(part: u128, whole: u128) -> f64 {
    if part == 0 {
        return 0.0;
    }
    // Numbers of up to 53 bits are exact in f64 and their quotient is IEEE's.
    if whole < 1 << 53 {
        return part as f64 / whole as f64;
    }
    // Long division, bit by bit, to 55 significant bits and a sticky one.
    let (mut rest, mut bits, mut exponent) = (part, 0u64, 0i32);
    if rest >= whole {
        (bits, rest) = (1, rest - whole);
    }
    while bits < 1 << 54 {
        exponent -= 1;
        // whole is below 2^127.
        rest *= 2;
        bits *= 2;
        if rest >= whole {
            (bits, rest) = (bits + 1, rest - whole);
        }
    }
    bits |= u64::from(rest > 0);
    let mut value = bits as f64;
    for _ in 0..-exponent {
        value *= 0.5;
    }
    value
}

pub(super) fn average_precision(
    truth: View<'_>,
    scores: View<'_>,
    weights: Option<View<'_>>,
) -> Result<f64> {
    let rows = Rows::ranked(truth, scores, weights)?.binary()?;
    let (mut sum, mut ones, mut all) = (0.0, 0.0, 0.0);
    for run in runs(scores) {
        let before = ones;
        for row in run {
            let weight = rows.weight(row);
            all += weight;
            if truth[row] == 1.0 {
                ones += weight;
            }
        }
        if all > 0.0 {
            sum += (ones - before) * (ones / all);
        }
    }
    if ones == 0.0 {
        return Err(Error::unsupported(
            "the average precision of a truth without class 1",
            "it needs a row of class 1, with a weight above 0",
        ));
    }
    Ok(sum / ones)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_round_once() {
        let big = 1u128 << 100;
        for (part, whole, expected) in [
            (0, 7, 0.0),
            (1, 3, 1.0 / 3.0),
            (big, 3 * big, 1.0 / 3.0),
            (2 * big, 3 * big, 2.0 / 3.0),
            (big, big, 1.0),
            (big - 1, big, 1.0),
            // Half way between 1 - 2^-53 and 1, and one below it.
            (big - (big >> 54), big, 1.0),
            (big - (big >> 54) - 1, big, 1.0 - f64::EPSILON / 2.0),
            (1, big, 2f64.powi(-100)),
        ] {
            assert_eq!(quotient(part, whole), expected, "{part} / {whole}");
        }
        for part in 1..200u32 {
            // Scaled beyond 53 bits, the quotient is the same.
            let scale = 3u128.pow(40);
            let (whole, part) = (u128::from(part) * 7 + 211, u128::from(part));
            assert_eq!(
                quotient(part * scale, whole * scale),
                part as f64 / whole as f64
            );
        }
    }
}
