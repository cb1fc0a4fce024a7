//! Prefix sums, sorts and what is made of them.

use super::{Lane, Parts, hash, upload};
use crate::fixtures::{Fixture, word};
use detml_core::Result;
use detml_kernels::ops::sort::{self, Order};
use detml_kernels::ops::{histogram, runs, scan, topk};
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

fn histograms(device: &Device, f: &Fixture) -> Result<Parts> {
    const BINS: usize = 37;
    let x = upload(device, f)?;
    let bins: Vec<u32> = (0..f.x.len() as u32)
        .map(|i| word(23, i) % BINS as u32)
        .collect();
    let bins = device.upload(&bins)?;
    let sums = histogram::sums(&bins, &words(device, f)?, BINS)?;
    let extremes = histogram::extremes(&bins, &x, BINS)?;
    Ok(vec![
        ("counts", hash(device, &histogram::counts(&bins, BINS)?)?),
        ("sums-high", hash(device, &sums.hi)?),
        ("sums-low", hash(device, &sums.lo)?),
        ("min", hash(device, &extremes.min)?),
        ("max", hash(device, &extremes.max)?),
    ])
}

fn tops(device: &Device, f: &Fixture) -> Result<Parts> {
    let x = upload(device, f)?;
    let mut parts = Vec::new();
    for (order, keys, indices) in [
        (Order::Ascending, "smallest", "smallest-indices"),
        (Order::Descending, "largest", "largest-indices"),
    ] {
        let top = topk::topk(&x, f.rows, f.columns, 3, order)?;
        parts.push((keys, hash(device, &top.values)?));
        parts.push((indices, hash(device, &top.indices)?));
    }
    Ok(parts)
}

fn equal_keys(device: &Device, f: &Fixture) -> Result<Parts> {
    let sorted = sort::sort(&upload(device, f)?, Order::Ascending)?;
    let runs = runs::runs(&sorted)?;
    Ok(vec![
        ("keys", hash(device, &runs.keys)?),
        ("starts", hash(device, &runs.starts)?),
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
        Lane::new("histogram", histograms),
        Lane::new("topk", tops),
        Lane::new("runs", equal_keys).slow(),
    ]
}
