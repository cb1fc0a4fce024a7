//! Sums, extremes and moments of rows, columns and whole matrices.

use super::{Case, Scale, upload};
use detml_kernels::ops::reduce::{Axis, argmax, mean_variance, sum};

pub(crate) fn cases(scale: Scale) -> Vec<Case> {
    let n = scale.elements();
    let side = n.isqrt();
    let mut cases = Vec::new();
    let mut widths = vec![side, 4096, 768, 256, 28, 16];
    widths.dedup();
    for columns in widths {
        let rows = n / columns;
        let shape = [rows, columns];
        let bytes = 4 * rows * columns;
        for (axis, what) in [
            (Axis::EachRow, "rows"),
            (Axis::EachColumn, "columns"),
            (Axis::Whole, "whole"),
        ] {
            if matches!(axis, Axis::Whole) && columns != side {
                continue;
            }
            let name = |op: &str| format!("{op} {what} {rows}x{columns}");
            cases.push(Case::new("reduce", name("sum"), bytes, 0, move |device| {
                let x = upload(device, rows * columns)?;
                Ok(move || sum(&x, axis, shape).map(drop))
            }));
            cases.push(Case::new(
                "reduce",
                name("argmax"),
                bytes,
                0,
                move |device| {
                    let x = upload(device, rows * columns)?;
                    Ok(move || argmax(&x, axis, shape).map(drop))
                },
            ));
            cases.push(Case::new(
                "reduce",
                name("variance"),
                bytes,
                0,
                move |device| {
                    let x = upload(device, rows * columns)?;
                    Ok(move || mean_variance(&x, axis, shape, 0).map(drop))
                },
            ));
        }
    }
    cases
}
