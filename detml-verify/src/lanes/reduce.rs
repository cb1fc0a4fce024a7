//! Folds over rows, columns, whole matrices and segments.

use super::{Lane, Parts, hash, upload};
use crate::fixtures::{Fixture, word};
use detml_core::{HashScalar, Result};
use detml_kernels::ops::reduce::{self, Axis};
use detml_kernels::ops::segment::{self, Segments};
use detml_kernels::{Buffer, Device, Element};

type Fold<T, R> = fn(&Buffer<T>, Axis, [usize; 2]) -> Result<Buffer<R>>;

/// A fold over each axis.
fn fold<T: Element, R: Element + HashScalar>(
    device: &Device,
    f: &Fixture,
    x: &Buffer<T>,
    run: Fold<T, R>,
) -> Result<Parts> {
    let shape = [f.rows, f.columns];
    Ok(vec![
        ("rows", hash(device, &run(x, Axis::EachRow, shape)?)?),
        ("columns", hash(device, &run(x, Axis::EachColumn, shape)?)?),
        ("whole", hash(device, &run(x, Axis::Whole, shape)?)?),
    ])
}

fn words(device: &Device, f: &Fixture) -> Result<Buffer<u32>> {
    let words: Vec<u32> = (0..f.x.len() as u32)
        .map(|i| if word(30, i) & 7 < 3 { 0 } else { word(31, i) })
        .collect();
    device.upload(&words)
}

fn floats<R: Element + HashScalar>(name: &str, run: Fold<f32, R>) -> Lane {
    Lane::new(format!("reduce/{name}"), move |device, f| {
        fold(device, f, &upload(device, f)?, run)
    })
}

fn integers(name: &str, run: Fold<u32, u32>) -> Lane {
    Lane::new(format!("reduce/{name}"), move |device, f| {
        fold(device, f, &words(device, f)?, run)
    })
    .slow()
}

fn moments(device: &Device, f: &Fixture) -> Result<Parts> {
    let x = upload(device, f)?;
    let shape = [f.rows, f.columns];
    let mut parts = Vec::new();
    for (axis, mean_name, name) in [
        (Axis::EachRow, "rows-mean", "rows"),
        (Axis::EachColumn, "columns-mean", "columns"),
        (Axis::Whole, "whole-mean", "whole"),
    ] {
        let (mean, variance) = reduce::mean_variance(&x, axis, shape, 1)?;
        parts.push((mean_name, hash(device, &mean)?));
        parts.push((name, hash(device, &variance)?));
    }
    Ok(parts)
}

/// Rows in groups of 0 to 12.
fn segments(device: &Device, f: &Fixture) -> Result<Parts> {
    let mut keys = Vec::new();
    let mut group = 0;
    while keys.len() < f.rows {
        let length = (word(32, group) % 13) as usize;
        keys.extend(std::iter::repeat_n(group, length.min(f.rows - keys.len())));
        group += 1;
    }
    let keys = device.upload(&keys)?;
    let groups = Segments::of_sorted_keys(&keys, group as usize)?;
    let x = upload(device, f)?;
    let (mean, variance) = segment::mean_variance(&x, f.columns, &groups, 0)?;
    Ok(vec![
        ("offsets", hash(device, groups.offsets())?),
        ("sum", hash(device, &segment::sum(&x, f.columns, &groups)?)?),
        ("mean", hash(device, &mean)?),
        ("variance", hash(device, &variance)?),
    ])
}

pub(super) fn lanes() -> Vec<Lane> {
    vec![
        floats("sum", reduce::sum),
        floats("sum-squares", reduce::sum_squares).slow(),
        floats("mean", reduce::mean).slow(),
        Lane::new("reduce/variance", moments),
        floats("min", reduce::min).slow(),
        floats("max", reduce::max).slow(),
        floats("argmin", reduce::argmin).slow(),
        floats("argmax", reduce::argmax),
        integers("any", reduce::any),
        integers("all", reduce::all),
        integers("count", reduce::count),
        integers("sum-words", reduce::sum_words),
        Lane::new("segment", segments),
    ]
}
