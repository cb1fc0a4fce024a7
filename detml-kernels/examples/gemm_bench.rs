//! Times products of matrices, hashes their bits and checks some against the contract.
//!
//! ```text
//! cargo run --release -p detml-kernels --features cuda --example gemm_bench -- \
//!     --device cuda:0 [--hash] nn:4096 nt:32x4096x4096 nn:1000@128 \
//!     tn:4096=64x64x8x8x8+registers,128x128x8x8x8+output
//! ```
//!
//! A case is `LAYOUT:[BATCH@]SHAPE[=SCHEDULES]`: layouts `nn`, `nt`, `tn`, `tt`; a shape `N` or
//! `MxKxN`; schedules, separated by commas, besides the default one, as `gemm_scheduled` names
//! them. For each: milliseconds (the least of several rounds), TFLOP/s, the bytes of the operands
//! and the result a second, and whether 64 elements have the bits of a sequential chain on the
//! host. `--hash` adds the hash of all bits, which must be the same on every device.

use detml_core::{Backend, BitHasher, Error, Result};
use detml_kernels::ops::gemm::{Matrix, MatrixMut, PANEL, gemm_batched, gemm_scheduled};
use detml_kernels::{Buffer, Device};
use std::time::{Duration, Instant};

fn main() -> Result<()> {
    let mut device = None;
    let mut hashed = false;
    let mut cases = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--device" => device = arguments.next(),
            "--hash" => hashed = true,
            case => cases.push(case.to_owned()),
        }
    }
    if cases.is_empty() {
        cases = ["nn", "nt", "tn"]
            .iter()
            .flat_map(|layout| {
                ["2048", "4096", "4095x1023x777"].map(|shape| format!("{layout}:{shape}"))
            })
            .collect();
    }
    let device = match device {
        Some(name) => Device::for_backend(name.parse::<Backend>()?)?,
        None => Device::current()?,
    };
    println!("{device}");
    let mut numbers = Vec::new();
    for case in &cases {
        let (name, schedules) = case.split_once('=').unwrap_or((case, ""));
        let Some((layout, batch, [m, k, n])) = parse(name) else {
            return Err(Error::parameter("case", "LAYOUT:[BATCH@]SHAPE", case));
        };
        let (len_a, len_b) = (batch * m * k, batch * k * n);
        while numbers.len() < len_a.max(len_b) {
            numbers.push(number(numbers.len() as u32));
        }
        let (x, y) = (&numbers[..len_a], &numbers[numbers.len() - len_b..]);
        let (a, b) = (device.upload(x)?, device.upload(y)?);
        let mut c = device.empty::<f32>(batch * m * n)?;
        let a = match layout.starts_with('t') {
            true => Matrix::new(&a, k, m).transposed(),
            false => Matrix::new(&a, m, k),
        };
        let b = match layout.ends_with('t') {
            true => Matrix::new(&b, n, k).transposed(),
            false => Matrix::new(&b, k, n),
        };
        let at = |transposed: bool, rows: usize, columns: usize, i: usize, j: usize| {
            if transposed {
                j * rows + i
            } else {
                i * columns + j
            }
        };
        let element = |member: usize, i: usize, j: usize| {
            chain(k, |t| {
                let a = x[member * m * k + at(layout.starts_with('t'), m, k, i, t)];
                (a, y[member * k * n + at(layout.ends_with('t'), k, n, t, j)])
            })
        };
        let schedules = schedules.split(',').filter(|name| !name.is_empty());
        for schedule in std::iter::once("default").chain(schedules) {
            let run = |c: &mut Buffer<f32>| {
                let c = MatrixMut::new(c, m, n);
                match schedule {
                    "default" => gemm_batched(batch, 1.0, a, b, 0.0, c),
                    schedule => gemm_scheduled(schedule, batch, a, b, c),
                }
            };
            let seconds = match time(&device, &mut c, run) {
                Ok(seconds) => seconds,
                Err(error) => {
                    println!("{name} {schedule}: {error}");
                    continue;
                }
            };
            let result = device.read(&c)?;
            let wrong = (0..64)
                .map(|s| {
                    let pick = |seed, n| hash(seed, s) as usize % n;
                    (pick(3, batch), pick(4, m), pick(5, n))
                })
                .filter(|&(member, i, j)| {
                    let got = result[(member * m + i) * n + j];
                    got.to_bits() != element(member, i, j).to_bits()
                })
                .count();
            let hash = if hashed {
                let mut hasher = BitHasher::new("product");
                hasher
                    .array("c", &[batch * m, n], &result)
                    .finish()
                    .to_string()
            } else {
                String::new()
            };
            println!(
                "{name} {schedule:>32} {:9.4} ms {:8.3} TFLOP/s {:8.1} GB/s  {}  {hash}",
                seconds * 1e3,
                2.0 * (batch * m * k) as f64 * n as f64 / seconds / 1e12,
                4.0 * (len_a + len_b + batch * m * n) as f64 / seconds / 1e9,
                if wrong == 0 {
                    "bits equal".into()
                } else {
                    format!("{wrong} of 64 elements DIFFER")
                },
            );
        }
    }
    Ok(())
}

fn parse(case: &str) -> Option<(&str, usize, [usize; 3])> {
    let (layout, rest) = case.split_once(':')?;
    let (batch, shape) = rest.split_once('@').unwrap_or(("1", rest));
    let sizes: Option<Vec<usize>> = shape.split('x').map(|s| s.parse().ok()).collect();
    let sizes = match sizes?[..] {
        [n] => [n, n, n],
        [m, k, n] => [m, k, n],
        _ => return None,
    };
    Some((layout, batch.parse().ok()?, sizes))
}

/// Seconds of one run: the least mean over rounds of back-to-back runs.
fn time(
    device: &Device,
    c: &mut Buffer<f32>,
    run: impl Fn(&mut Buffer<f32>) -> Result<()>,
) -> Result<f64> {
    let mut best = f64::INFINITY;
    let mut runs = 1;
    run(c)?;
    device.sync()?;
    let begin = Instant::now();
    for round in 0..8 {
        if round > 1 && begin.elapsed() > Duration::from_millis(120) {
            break;
        }
        let start = Instant::now();
        for _ in 0..runs {
            run(c)?;
        }
        device.sync()?;
        let seconds = start.elapsed().as_secs_f64();
        best = best.min(seconds / runs as f64);
        // Rounds of some 15 ms.
        runs = ((0.015 / best) as usize).clamp(1, 1000);
    }
    Ok(best)
}

/// One element as the contract says it.
fn chain(k: usize, term: impl Fn(usize) -> (f32, f32)) -> f32 {
    let mut total = 0.0;
    for from in (0..k).step_by(PANEL) {
        let mut sum = 0.0f32;
        for t in from..k.min(from + PANEL) {
            let (a, b) = term(t);
            sum = a.mul_add(b, sum);
        }
        total = if from == 0 { sum } else { total + sum };
    }
    total
}

/// A number in -1..1.
fn number(i: u32) -> f32 {
    (hash(1, i) >> 8) as f32 / (1 << 23) as f32 - 1.0
}

fn hash(seed: u32, i: u32) -> u32 {
    let mut x = i.wrapping_add(seed.wrapping_mul(0x9e37_79b9));
    x = (x ^ (x >> 16)).wrapping_mul(0x21f0_aaad);
    x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
    x ^ (x >> 15)
}
