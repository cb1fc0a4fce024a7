//! Times attention, forward and backward, and checks that every schedule gives the same bits.
//!
//! ```text
//! cargo run --release -p detml-kernels --features cuda --example attention_bench -- \
//!     --device cuda:0 [--schedules | SCHEDULE]... [BATCHxHEADSxKVxQUERIESxKEYSxWIDTH[c]]...
//! ```
//!
//! `c` is causal. For each shape: milliseconds (the least of several runs) and TFLOP/s of the
//! formula's products (2 forward, 5 backward), and the hash of the bits, which must be the same on
//! every device. A schedule such as `64x8x128` is timed by itself too; `--schedules` takes all.

use detml_core::{Backend, BitHasher, Error, Result};
use detml_kernels::ops::attention::{
    Attention, Gradients, Output, SCHEDULES, attention_backward_scheduled, attention_scheduled,
};
use detml_kernels::{Buffer, Device};
use std::time::Instant;

fn main() -> Result<()> {
    let mut device = None;
    let mut schedules = Vec::new();
    let mut shapes = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--device" => device = arguments.next(),
            "--schedules" => schedules.extend(SCHEDULES),
            other => match SCHEDULES.iter().find(|name| **name == other) {
                Some(name) => schedules.push(name),
                None => shapes.push(other.to_owned()),
            },
        }
    }
    if shapes.is_empty() {
        shapes = ["1x32x32x2048x2048x64c", "1x32x32x4096x4096x128c"]
            .map(String::from)
            .to_vec();
    }
    let device = match device {
        Some(name) => Device::for_backend(name.parse::<Backend>()?)?,
        None => Device::current()?,
    };
    println!("{device}");
    for name in &shapes {
        let (numbers, causal) = match name.strip_suffix('c') {
            Some(numbers) => (numbers, true),
            None => (name.as_str(), false),
        };
        let numbers: Vec<usize> = numbers.split('x').filter_map(|x| x.parse().ok()).collect();
        let [batch, heads, kv_heads, queries, keys, width] = numbers[..] else {
            return Err(Error::parameter("shape", "six numbers", name));
        };
        let shape = Attention::new(batch, heads, [queries, keys], width).kv_heads(kv_heads);
        let shape = if causal { shape.causal() } else { shape };
        let rows = batch * heads * queries;
        let q = device.upload(&data(1, rows * width))?;
        let k = device.upload(&data(2, batch * kv_heads * keys * width))?;
        let v = device.upload(&data(3, batch * kv_heads * keys * width))?;
        let d_out = device.upload(&data(4, rows * width))?;
        let pairs = rows * keys / if causal { 2 } else { 1 };
        let flops = (2 * pairs * width) as f64;
        let all = std::iter::once(&"").chain(schedules.iter().filter(|x| !x.is_empty()));
        for schedule in all {
            let label = if schedule.is_empty() {
                "default"
            } else {
                schedule
            };
            let mut output = None;
            let mut run = || -> Result<()> {
                output = Some(attention_scheduled(schedule, &shape, &q, &k, &v, None)?);
                Ok(())
            };
            let forward = time(&device, &mut run);
            let Some(output) = output else {
                println!("{name:26} {label:20} {:?}", forward.err());
                continue;
            };
            let mut gradients = None;
            let mut run = || -> Result<()> {
                gradients = Some(attention_backward_scheduled(
                    schedule, &shape, &q, &k, &v, None, &output, &d_out,
                )?);
                Ok(())
            };
            let backward = time(&device, &mut run);
            let (forward, backward) = (forward?, backward?);
            println!(
                "{name:26} {label:20} forward {:9.3} ms {:6.2} TF  backward {:9.3} ms {:6.2} TF  {}",
                forward * 1e3,
                2.0 * flops / forward / 1e12,
                backward * 1e3,
                5.0 * flops / backward / 1e12,
                hash(&device, &output, gradients.as_ref())?,
            );
        }
    }
    Ok(())
}

fn data(seed: u32, n: usize) -> Vec<f32> {
    (0..n as u32)
        .map(|i| {
            let x = (i ^ (seed << 28)).wrapping_mul(2_654_435_769);
            let x = (x ^ (x >> 15)).wrapping_mul(0x2c1b_3c6d);
            (x >> 8) as f32 / (1 << 22) as f32 - 2.0
        })
        .collect()
}

fn time(device: &Device, run: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    device.sync()?;
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    for i in 0.. {
        let start = Instant::now();
        run()?;
        device.sync()?;
        best = best.min(start.elapsed().as_secs_f64());
        if i >= 2 && begin.elapsed().as_secs_f64() > 0.25 {
            break;
        }
    }
    Ok(best)
}

fn hash(device: &Device, output: &Output, gradients: Option<&Gradients>) -> Result<String> {
    let mut hasher = BitHasher::new("attention");
    let mut add = |name: &str, buffer: &Buffer<f32>| -> Result<()> {
        let values = device.read(buffer)?;
        hasher.array(name, &[values.len()], &values);
        Ok(())
    };
    add("out", &output.out)?;
    add("log_sum_exp", &output.log_sum_exp)?;
    if let Some(gradients) = gradients {
        add("q", &gradients.q)?;
        add("k", &gradients.k)?;
        add("v", &gradients.v)?;
    }
    Ok(hasher.finish().to_string()[..16].to_owned())
}
