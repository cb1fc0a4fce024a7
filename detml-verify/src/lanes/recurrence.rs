//! Recurrences over time.

use super::{Lane, Parts, hash};
use crate::fixtures::Fixture;
use detml_core::Result;
use detml_kernels::ops::recurrence::{linear, linear_backward};
use detml_kernels::ops::selective_scan::{
    Scan, Shape, selective_scan_backward, selective_scan_saving,
};
use detml_kernels::{Buffer, Device};

/// `n` of the fixture's numbers from the `from`-th on, and over again.
fn take(device: &Device, f: &Fixture, from: usize, n: usize) -> Result<Buffer<f32>> {
    let numbers: Vec<f32> = f.x.iter().copied().cycle().skip(from).take(n).collect();
    device.upload(&numbers)
}

/// Factors of at most 1 in magnitude.
fn factors(device: &Device, f: &Fixture, n: usize) -> Result<Buffer<f32>> {
    let numbers: Vec<f32> = (f.x.iter().cycle().take(n))
        .map(|x| f32::from_bits((x.to_bits() & 0x807f_ffff) | 0x3f00_0000))
        .collect();
    device.upload(&numbers)
}

fn linear_parts(device: &Device, f: &Fixture) -> Result<Parts> {
    let shape = [2, f.rows.min(200), f.columns];
    let n = shape.iter().product();
    let chains = shape[0] * shape[2];
    let a = factors(device, f, n)?;
    let (b, gradient) = (take(device, f, 1, n)?, take(device, f, 2, n)?);
    let (first, last) = (take(device, f, 3, chains)?, take(device, f, 4, chains)?);
    let h = linear(&a, &b, Some(&first), shape)?;
    let g = linear_backward(&a, &h.states, Some(&first), &gradient, Some(&last), shape)?;
    Ok(vec![
        ("states", hash(device, &h.states)?),
        ("last", hash(device, &h.last)?),
        ("gradient-a", hash(device, &g.a)?),
        ("gradient-b", hash(device, &g.b)?),
        ("gradient-initial", hash(device, &g.initial)?),
    ])
}

fn scan_parts(device: &Device, f: &Fixture, states: usize, every: bool) -> Result<Parts> {
    let shape = Shape {
        batch: 2,
        time: f.rows.min(70),
        channels: f.columns.min(40),
        states,
    };
    let n = shape.batch * shape.time * shape.channels;
    let inputs = shape.batch * shape.time * states;
    let (u, delta) = (take(device, f, 0, n)?, take(device, f, 1, n)?);
    let a = factors(device, f, shape.channels * states)?;
    let (b, c) = (take(device, f, 2, inputs)?, take(device, f, 3, inputs)?);
    let each = take(device, f, 4, shape.channels)?;
    let gate = take(device, f, 5, n)?;
    let state = take(device, f, 6, shape.batch * shape.channels * states)?;
    let lengths = device.upload(&[shape.time as u32, shape.time as u32 / 2])?;
    let mut scan = Scan::new(shape, &u, &delta, &a, &b, &c);
    if every {
        scan.d = Some(&each);
        scan.bias = Some(&each);
        scan.z = Some(&gate);
        scan.softplus = true;
        scan.initial = Some(&state);
        scan.lengths = Some(&lengths);
    }
    let (scanned, kept) = selective_scan_saving(&scan)?;
    let last = every.then_some(&state);
    let g = selective_scan_backward(&scan, &kept, &gate, last)?;
    let mut parts = vec![
        ("y", hash(device, &scanned.y)?),
        ("last", hash(device, &scanned.last)?),
        ("gradient-u", hash(device, &g.u)?),
        ("gradient-delta", hash(device, &g.delta)?),
        ("gradient-a", hash(device, &g.a)?),
        ("gradient-b", hash(device, &g.b)?),
        ("gradient-c", hash(device, &g.c)?),
        ("gradient-initial", hash(device, &g.initial)?),
    ];
    for (name, gradient) in [
        ("gradient-d", &g.d),
        ("gradient-z", &g.z),
        ("gradient-bias", &g.bias),
    ] {
        if let Some(gradient) = gradient {
            parts.push((name, hash(device, gradient)?));
        }
    }
    Ok(parts)
}

pub(super) fn lanes() -> Vec<Lane> {
    vec![
        Lane::new("recurrence/linear", linear_parts),
        Lane::new("recurrence/selective-scan", |device, f| {
            scan_parts(device, f, 5, true)
        }),
        Lane::new("recurrence/selective-scan-plain", |device, f| {
            scan_parts(device, f, 16, false)
        })
        .slow(),
    ]
}
