//! Counts and exact sums of bins.

use super::{Case, Scale, numbers, words};
use detml_kernels::ops::boosting::{Bins, Booster, Growth, Loss, Table};
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
    if scale.gpu {
        cases.push(gradients(1_000_000, 28));
    }
    cases
}

/// The histograms of a tree's root: exact sums of quantised gradients and Hessians.
fn gradients(rows: usize, features: usize) -> Case {
    // Codes, gradients and Hessians, and the list of rows.
    let bytes = rows * (features + 12);
    let name = format!("gradients of {rows} in {features} features of 255 bins");
    Case::new("histogram", name, bytes, 0, move |device| {
        let codes = words(rows * features)
            .into_iter()
            .map(|w| (w % 255) as u8)
            .collect();
        let table = Table {
            bins: Bins::new(rows, codes, vec![255; features])?,
            targets: numbers(rows),
            weights: None,
        };
        let growth = Growth {
            max_depth: 1,
            ..Growth::default()
        };
        let mut booster = Booster::new(device, table, Vec::new(), Loss::Squared, &[0.0], growth)?;
        booster.round()?;
        Ok(move || booster.rebuild_root().map(drop))
    })
}
