//! From margins to probabilities.

use super::Loss;
use crate::device::{Device, Loop, Simd};
use crate::ieee::Ieee;
use crate::math::{exp, sigmoid};
use detml_core::{Error, Result};
use rayon::prelude::*;

const ROWS: usize = 1024;

/// Class probabilities (rows x classes) of margins (rows x outputs), both row by row.
///
/// Logistic: `1 - p` and `p = sigmoid(margin)`. Softmax: `e^(margin - top) / sum`, `top` the
/// highest margin of the row, the sum over classes in their order.
///
/// # Errors
/// `Unsupported` for the squared loss; `Shape` if the margins don't fill their rows;
/// `InvalidParameter` if `DETML_SIMD` is wrong.
pub fn probabilities(device: &Device, loss: Loss, margins: &[f32]) -> Result<Vec<f32>> {
    let simd = device.simd().map_or_else(Simd::current, Ok)?;
    match loss {
        Loss::Squared => Err(Error::unsupported(
            "probabilities of a regressor",
            "its margins are the predictions",
        )),
        Loss::Logistic => {
            let mut all = vec![0.0; margins.len() * 2];
            all.par_chunks_mut(2 * ROWS)
                .zip(margins.par_chunks(ROWS))
                .for_each(|(out, margins)| simd.dispatch(Logistic { out, margins }));
            Ok(all)
        }
        Loss::Softmax { classes } => {
            if classes == 0 || !margins.len().is_multiple_of(classes) {
                let expected = format_args!("rows x {classes}");
                return Err(Error::shape("margins", expected, margins.len()));
            }
            let mut all = margins.to_vec();
            all.par_chunks_mut(ROWS.saturating_mul(classes))
                .for_each(|out| simd.dispatch(Softmax { out, classes }));
            Ok(all)
        }
    }
}

struct Logistic<'a> {
    out: &'a mut [f32],
    margins: &'a [f32],
}

impl Loop for Logistic<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        for (out, &margin) in self.out.chunks_exact_mut(2).zip(self.margins) {
            let p = sigmoid(&ieee, margin);
            out[0] = ieee.sub(1.0, p);
            out[1] = p;
        }
    }
}

struct Softmax<'a> {
    out: &'a mut [f32],
    classes: usize,
}

impl Loop for Softmax<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        for row in self.out.chunks_exact_mut(self.classes) {
            let mut top = row[0];
            for &margin in &*row {
                top = ieee.select(ieee.lt(top, margin), margin, top);
            }
            let mut sum = 0.0;
            for x in &mut *row {
                *x = exp(&ieee, ieee.sub(*x, top));
                sum = ieee.add(sum, *x);
            }
            for x in row {
                *x = ieee.div(*x, sum);
            }
        }
    }
}
