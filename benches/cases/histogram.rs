//! Counts and exact sums of bins.

use super::{Case, Scale, words};
use detml_kernels::ops::histogram;

pub(crate) fn cases(scale: Scale) -> Vec<Case> {
    let n = scale.elements();
    let mut cases = Vec::new();
    for bins in [256, 4096] {
        let of = move || -> Vec<u32> { words(n).into_iter().map(|w| w % bins as u32).collect() };
        cases.push(Case::new(
            "histogram",
            format!("counts of {n} in {bins}"),
            4 * n,
            0,
            move |device| {
                let x = device.upload_vec(of())?;
                Ok(move || histogram::counts(&x, bins).map(drop))
            },
        ));
        cases.push(Case::new(
            "histogram",
            format!("sums of {n} in {bins}"),
            8 * n,
            0,
            move |device| {
                let (x, weights) = (device.upload_vec(of())?, device.upload_vec(words(n))?);
                Ok(move || histogram::sums(&x, &weights, bins).map(drop))
            },
        ));
    }
    cases
}
