//! What is computed on the host whatever the backend: draws and conversions of whole arrays.

use super::{Lane, Parts};
use crate::fixtures::Fixture;
use detml_core::{BitHash, BitHasher, HashScalar, Philox4x32, Result, Seed};
use detml_kernels::{convert, random};

fn of<T: HashScalar>(values: &[T]) -> BitHash {
    BitHasher::new("buffer")
        .array("values", &[values.len()], values)
        .finish()
}

/// Draws keyed by the fixture's size, from an element on that is no block's first.
fn draws(f: &Fixture) -> Result<Parts> {
    let row = Philox4x32::named(Seed(f.x.len() as u64), f.name);
    let (first, n) = (3, f.x.len());
    let bernoulli: Vec<u32> = random::bernoulli(row, first, n, 0.3)?
        .into_iter()
        .map(u32::from)
        .collect();
    Ok(vec![
        ("words", of(&random::words(row, first, n)?)),
        ("uniform", of(&random::uniform(row, first, n)?)),
        (
            "uniform-positive",
            of(&random::uniform_positive(row, first, n)?),
        ),
        ("normal", of(&random::normal(row, first, n)?)),
        ("bernoulli", of(&bernoulli)),
        ("permutation", of(&row.permutation(n)?)),
        ("sample", of(&row.sample(n, n / 2)?)),
    ])
}

fn conversions(f: &Fixture) -> Result<Parts> {
    let bf16 = convert::encode_bf16(&f.x)?;
    let f16 = convert::encode_f16(&f.x)?;
    let int8 = convert::Int8::encode(&f.x)?;
    let codes: Vec<i32> = int8.codes.iter().map(|c| i32::from(*c)).collect();
    Ok(vec![
        ("bf16", of(&convert::decode_bf16(&bf16)?)),
        ("f16", of(&convert::decode_f16(&f16)?)),
        ("int8-codes", of(&codes)),
        ("int8", of(&int8.decode()?)),
    ])
}

pub(super) fn lanes() -> Vec<Lane> {
    vec![
        Lane::new("random", |_, f| draws(f)).on_host(),
        Lane::new("convert", |_, f| conversions(f)).on_host(),
    ]
}
