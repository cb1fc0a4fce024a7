//! The margins that fits start from. Sums are exact and quantiles are counted in integers, so
//! the order of the rows doesn't show.

use super::Kept;
use crate::boosting::{GradientBoosting, Loss};
use crate::exact::ExactSum;
use detml_core::{Error, Result};
use detml_kernels::ieee::Ieee;
use detml_kernels::math;
use detml_kernels::ops::boosting as ops;

/// The margin of each output.
pub(super) fn base(
    boosting: &GradientBoosting,
    loss: Loss,
    kept: &Kept<'_>,
    targets: &[f32],
    outputs: usize,
) -> Result<Vec<f32>> {
    let (ieee, rows) = (&Ieee::PLAIN, kept.x.nrows());
    let all = || kept.sum(|_| 1.0);
    let mean = |target: usize| kept.sum(|row| targets[target * rows + row]).over(all());
    let share =
        |wanted: &dyn Fn(f32) -> bool| kept.sum(|row| if wanted(targets[row]) { 1.0 } else { 0.0 });
    let log_ratio = |a: ExactSum, b: ExactSum| math::ln(ieee, a.over(b));
    let of_class = |class: usize| share(&|y| y == class as f32);
    Ok(match loss {
        Loss::Squared => (0..outputs).map(mean).collect(),
        Loss::Huber { .. } | Loss::PseudoHuber { .. } | Loss::Expectile { .. } => {
            vec![mean(0)]
        }
        Loss::Absolute | Loss::Quantile { .. } | Loss::Mape => {
            let of = loss.with_outputs(1);
            let quantile = ops::best_quantile(of, targets, kept.weights.as_deref());
            vec![quantile.unwrap_or(0.0)]
        }
        Loss::Poisson { .. } | Loss::Gamma | Loss::Tweedie { .. } => {
            let mean = mean(0);
            if mean == 0.0 {
                return Err(Error::unsupported(
                    format!("a fit of `{loss:?}` to targets whose mean is 0"),
                    "the logarithm of the mean is what it starts from; set `base_score`",
                ));
            }
            vec![math::ln(ieee, mean)]
        }
        Loss::SquaredLog => {
            let mean = kept.sum(|row| math::log1p(ieee, targets[row])).over(all());
            vec![math::expm1(ieee, mean)]
        }
        Loss::Custom => vec![
            boosting
                .objective
                .as_ref()
                .map_or(0.0, |o| o.0.base_score()),
        ],
        Loss::Logistic => vec![log_ratio(of_class(1), of_class(0))],
        Loss::Softmax => (0..outputs)
            .map(|class| log_ratio(of_class(class), all()))
            .collect(),
        Loss::OneVsAll => (0..outputs)
            .map(|class| log_ratio(of_class(class), share(&|y| y != class as f32)))
            .collect(),
    })
}
