//! Moves of data: transposes, gathers, scatters, narrow storage.

use super::{Lane, Parts, hash, rotated, upload};
use crate::fixtures::{Fixture, word};
use detml_core::Result;
use detml_kernels::ops::storage::{self, Half};
use detml_kernels::ops::{gather, scatter, transpose};
use detml_kernels::{Buffer, Device};

/// `n` indices below `bound`, some of them twice.
fn indices(device: &Device, seed: u32, n: usize, bound: usize) -> Result<Buffer<u32>> {
    let indices: Vec<u32> = (0..n as u32)
        .map(|i| word(seed, i) % bound as u32)
        .collect();
    device.upload(&indices)
}

fn gathers(device: &Device, f: &Fixture) -> Result<Parts> {
    let x = upload(device, f)?;
    let shape = [f.rows, f.columns];
    let rows = indices(device, 40, f.rows / 2 + 1, f.rows)?;
    let columns = indices(device, 41, f.columns + 2, f.columns)?;
    let elements = indices(device, 42, f.x.len(), f.x.len())?;
    Ok(vec![
        ("rows", hash(device, &gather::rows(&x, shape, &rows)?)?),
        (
            "columns",
            hash(device, &gather::columns(&x, shape, &columns)?)?,
        ),
        ("elements", hash(device, &gather::elements(&x, &elements)?)?),
    ])
}

/// Where two go to one place, the contract says which stays.
fn scatters(device: &Device, f: &Fixture) -> Result<Parts> {
    let x = upload(device, f)?;
    let mut rows = rotated(device, f, 2)?;
    let index = indices(device, 43, f.rows, f.rows)?;
    scatter::rows(&mut rows, [f.rows, f.columns], &index, &x)?;
    let mut elements = rotated(device, f, 3)?;
    let index = indices(device, 44, f.x.len(), f.x.len())?;
    scatter::elements(&mut elements, &index, &x)?;
    Ok(vec![
        ("rows", hash(device, &rows)?),
        ("elements", hash(device, &elements)?),
    ])
}

fn halves(device: &Device, f: &Fixture, half: Half) -> Result<Parts> {
    let x = upload(device, f)?;
    let words = storage::encode(half, &x)?;
    let back = storage::decode(half, &words, x.len())?;
    Ok(vec![
        ("words", hash(device, &words)?),
        ("back", hash(device, &back)?),
    ])
}

pub(super) fn lanes() -> Vec<Lane> {
    vec![
        Lane::of("transpose", |device, f| {
            transpose::transpose(&upload(device, f)?, [f.rows, f.columns])
        })
        .slow(),
        Lane::new("gather", gathers).slow(),
        Lane::new("scatter", scatters),
        Lane::new("storage/bf16", |device, f| halves(device, f, Half::Bf16)).slow(),
        Lane::new("storage/f16", |device, f| halves(device, f, Half::F16)).slow(),
        Lane::new("storage/int8", |device, f| {
            let packed = storage::encode_int8(&upload(device, f)?, [f.rows, f.columns])?;
            Ok(vec![
                ("codes", hash(device, &packed.codes)?),
                ("exponents", hash(device, &packed.exponents)?),
                ("back", hash(device, &storage::decode_int8(&packed)?)?),
            ])
        })
        .slow(),
    ]
}
