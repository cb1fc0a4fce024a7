//! Sorts and selections of any bit pattern.

use super::{Case, Scale, words};
use detml_kernels::Buffer;
use detml_kernels::ops::sort::{self, Order};
use detml_kernels::ops::topk;

fn floats(device: &detml_kernels::Device, n: usize) -> detml_core::Result<Buffer<f32>> {
    device.upload_vec(words(n).into_iter().map(f32::from_bits).collect())
}

pub(crate) fn cases(scale: Scale) -> Vec<Case> {
    let n = scale.elements();
    let mut cases = vec![
        Case::new("sort", format!("sort u32 {n}"), 8 * n, 0, move |device| {
            let x = device.upload_vec(words(n))?;
            Ok(move || sort::sort(&x, Order::Ascending).map(drop))
        }),
        Case::new(
            "sort",
            format!("sort f32 with values {n}"),
            16 * n,
            0,
            move |device| {
                let (x, values) = (floats(device, n)?, device.upload_vec(words(n))?);
                Ok(move || sort::sort_by_key(&x, &values, Order::Ascending).map(drop))
            },
        ),
        Case::new(
            "sort",
            format!("argsort f32 {n}"),
            8 * n,
            0,
            move |device| {
                let x = floats(device, n)?;
                Ok(move || sort::argsort(&x, Order::Ascending).map(drop))
            },
        ),
    ];
    let shapes = match scale.gpu {
        true => [(1, n, 10), (1, n, 1000), (1000, 50_000, 10)],
        false => [(1, n, 10), (1, n, 1000), (100, 50_000, 10)],
    };
    for (rows, columns, k) in shapes {
        cases.push(Case::new(
            "sort",
            format!("top {k} of {rows}x{columns}"),
            4 * rows * columns,
            0,
            move |device| {
                let x = floats(device, rows * columns)?;
                Ok(move || topk::topk(&x, rows, columns, k, Order::Descending).map(drop))
            },
        ));
    }
    cases
}
