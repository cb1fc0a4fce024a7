//! Softmax and norms of rows, and their gradients.

use super::{Lane, Parts, hash, rotated, upload};
use crate::fixtures::{Fixture, word};
use detml_core::Result;
use detml_kernels::ops::rowwise;
use detml_kernels::{Buffer, Device};

/// A weight for each column, in 24 bits.
fn weights(device: &Device, f: &Fixture, seed: u32) -> Result<Buffer<f32>> {
    let weights: Vec<f32> = (0..f.columns as u32)
        .map(|i| (word(seed, i) >> 8) as f32 / 16_777_216.0 - 0.25)
        .collect();
    device.upload(&weights)
}

fn softmax(device: &Device, f: &Fixture) -> Result<Parts> {
    let shape = [f.rows, f.columns];
    let x = upload(device, f)?;
    let dy = rotated(device, f, 3)?;
    let y = rowwise::softmax(&x, shape)?;
    let log = rowwise::log_softmax(&x, shape)?;
    let dx = rowwise::softmax_backward(&y, &dy, shape)?;
    let log_dx = rowwise::log_softmax_backward(&log, &dy, shape)?;
    Ok(vec![
        ("softmax", hash(device, &y)?),
        ("log-softmax", hash(device, &log)?),
        ("softmax-gradient", hash(device, &dx)?),
        ("log-softmax-gradient", hash(device, &log_dx)?),
    ])
}

fn layer_norm(device: &Device, f: &Fixture) -> Result<Parts> {
    let shape = [f.rows, f.columns];
    let x = upload(device, f)?;
    let dy = rotated(device, f, 3)?;
    let (w, b) = (weights(device, f, 40)?, weights(device, f, 41)?);
    let norm = rowwise::layer_norm(&x, shape, Some(&w), Some(&b), 1e-5)?;
    let plain = rowwise::layer_norm(&x, shape, None, None, 0.0)?;
    let dx = rowwise::layer_norm_backward(&x, &dy, shape, Some(&w), &norm)?;
    let (dw, db) = rowwise::layer_norm_parameters(&x, &dy, shape, &norm)?;
    Ok(vec![
        ("result", hash(device, &norm.out)?),
        ("unweighted", hash(device, &plain.out)?),
        ("scale", hash(device, &norm.scale)?),
        ("gradient", hash(device, &dx)?),
        ("weight-gradient", hash(device, &dw)?),
        ("bias-gradient", hash(device, &db)?),
    ])
}

fn rms_norm(device: &Device, f: &Fixture) -> Result<Parts> {
    let shape = [f.rows, f.columns];
    let x = upload(device, f)?;
    let dy = rotated(device, f, 3)?;
    let w = weights(device, f, 42)?;
    let norm = rowwise::rms_norm(&x, shape, Some(&w), 1e-5)?;
    let dx = rowwise::rms_norm_backward(&x, &dy, shape, Some(&w), &norm)?;
    let dw = rowwise::rms_norm_parameters(&x, &dy, shape, &norm)?;
    Ok(vec![
        ("result", hash(device, &norm.out)?),
        ("scale", hash(device, &norm.scale)?),
        ("gradient", hash(device, &dx)?),
        ("weight-gradient", hash(device, &dw)?),
    ])
}

pub(super) fn lanes() -> Vec<Lane> {
    vec![
        Lane::new("rowwise/softmax", softmax),
        Lane::new("rowwise/layer-norm", layer_norm),
        Lane::new("rowwise/rms-norm", rms_norm),
    ]
}
