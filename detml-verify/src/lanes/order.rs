//! Prefix sums, sorts and what is made of them.

use super::{Lane, Parts, hash, upload};
use crate::fixtures::{Fixture, word};
use detml_core::Result;
use detml_kernels::ops::scan;
use detml_kernels::ops::sort::{self, Order};
use detml_kernels::{Buffer, Device};

fn words(device: &Device, f: &Fixture) -> Result<Buffer<u32>> {
    let words: Vec<u32> = f.x.iter().map(|v| v.to_bits()).collect();
    device.upload(&words)
}

fn flags(device: &Device, f: &Fixture) -> Result<Buffer<u32>> {
    let flags: Vec<u32> = (0..f.x.len() as u32).map(|i| word(21, i) & 1).collect();
    device.upload(&flags)
}

fn sorts(device: &Device, f: &Fixture, order: Order) -> Result<Parts> {
    let x = upload(device, f)?;
    let values: Vec<u32> = (0..f.x.len() as u32).map(|i| word(22, i)).collect();
    let (keys, values) = sort::sort_by_key(&x, &device.upload(&values)?, order)?;
    Ok(vec![
        ("keys", hash(device, &keys)?),
        ("values", hash(device, &values)?),
        ("sort", hash(device, &sort::sort(&x, order)?)?),
        ("argsort", hash(device, &sort::argsort(&x, order)?)?),
        (
            "rows",
            hash(device, &sort::sort_rows(&x, f.rows, f.columns, order)?)?,
        ),
        (
            "argsort-rows",
            hash(device, &sort::argsort_rows(&x, f.rows, f.columns, order)?)?,
        ),
        (
            "words",
            hash(device, &sort::sort(&words(device, f)?, order)?)?,
        ),
    ])
}

pub(super) fn lanes() -> Vec<Lane> {
    vec![
        Lane::new("scan/sum", |device, f| {
            let x = words(device, f)?;
            let (before, total) = scan::exclusive_with_total(&x)?;
            Ok(vec![
                ("exclusive", hash(device, &before)?),
                ("total", hash(device, &total)?),
                ("inclusive", hash(device, &scan::inclusive(&x)?)?),
            ])
        }),
        Lane::new("scan/partition", |device, f| {
            let flags = flags(device, f)?;
            let parts = scan::partition(&flags)?;
            Ok(vec![
                ("indices", hash(device, &parts.indices)?),
                ("left", hash(device, &parts.left)?),
                ("compact", hash(device, &scan::compact(&flags)?)?),
            ])
        }),
        Lane::new("sort/ascending", |device, f| {
            sorts(device, f, Order::Ascending)
        }),
        Lane::new("sort/descending", |device, f| {
            sorts(device, f, Order::Descending)
        })
        .slow(),
    ]
}
