//! Times products of matrices, hashes their bits and checks some against the contract.
//!
//! ```text
//! cargo run --release -p detml-kernels --features cuda --example gemm_bench -- \
//!     --device cuda:0 [--schedules] [--layout nn|nt|tn|tt] 1024 4096 1x4096x4096
//! ```
//!
//! A shape is `N` or `MxKxN`. `--schedules` also times every tile and way to fold by itself.
//! For each shape and layout: milliseconds (the least of several runs), TFLOP/s, whether 64
//! elements have the bits of a sequential chain on the host, and the hash of all bits, which must
//! be the same on every device.

use detml_core::{Backend, BitHasher, Error, Result};
use detml_kernels::ops::gemm::{Matrix, MatrixMut, PANEL, gemm, gemm_scheduled};
use detml_kernels::{Buffer, Device};
use std::time::Instant;

fn main() -> Result<()> {
    let mut device = None;
    let mut schedules = false;
    let mut layouts = vec!["nn".to_owned(), "nt".into(), "tn".into()];
    let mut shapes = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--device" => device = arguments.next(),
            "--schedules" => schedules = true,
            "--layout" => layouts = arguments.next().into_iter().collect(),
            shape => shapes.push(parse(shape)?),
        }
    }
    if shapes.is_empty() {
        shapes = [2048, 4096, 8192].map(|n| [n, n, n]).to_vec();
        shapes.push([4095, 1023, 777]);
    }
    let device = match device {
        Some(name) => Device::for_backend(name.parse::<Backend>()?)?,
        None => Device::current()?,
    };
    println!("{device}");
    for (shape, layout) in shapes
        .iter()
        .flat_map(|s| layouts.iter().map(move |l| (s, l)))
    {
        let [m, k, n] = *shape;
        let (x, y) = (data(1, m * k), data(2, k * n));
        let (a, b) = (device.upload(&x)?, device.upload(&y)?);
        let mut c = device.empty::<f32>(m * n)?;
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
        let element = |i: usize, j: usize| {
            let term = |t| {
                let a = x[at(layout.starts_with('t'), m, k, i, t)];
                (a, y[at(layout.ends_with('t'), k, n, t, j)])
            };
            chain(k, term)
        };
        let names: &[&str] = &[
            "default",
            "large",
            "large+registers",
            "large+split",
            "medium",
            "medium+registers",
            "medium+split",
            "small",
            "small+split",
            "wide",
            "wide+split",
            "rows8+split",
            "rows4+split",
        ];
        for name in &names[..if schedules { names.len() } else { 1 }] {
            let run = |c: &mut Buffer<f32>| {
                let c = MatrixMut::new(c, m, n);
                match *name {
                    "default" => gemm(1.0, a, b, 0.0, c),
                    name => gemm_scheduled(name, a, b, c),
                }
            };
            let seconds = time(&device, &mut c, run)?;
            let result = device.read(&c)?;
            let wrong = (0..64)
                .map(|s| (hash(3, s) as usize % m, hash(4, s) as usize % n))
                .filter(|&(i, j)| result[i * n + j].to_bits() != element(i, j).to_bits())
                .count();
            let hash = BitHasher::new("product")
                .array("c", &[m, n], &result)
                .finish();
            println!(
                "{m}x{k}x{n} {layout} {name:>17}: {:9.4} ms {:8.3} TFLOP/s {:8.1} GB/s  {}  {hash}",
                seconds * 1e3,
                2.0 * (m * k * n) as f64 / seconds / 1e12,
                4.0 * (m * k + k * n + m * n) as f64 / seconds / 1e9,
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

fn parse(shape: &str) -> Result<[usize; 3]> {
    let sizes: Option<Vec<usize>> = shape.split('x').map(|s| s.parse().ok()).collect();
    match sizes.as_deref() {
        Some(&[n]) => Ok([n, n, n]),
        Some(&[m, k, n]) => Ok([m, k, n]),
        _ => Err(Error::parameter("shape", "N or MxKxN", shape)),
    }
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
    for _ in 0..12 {
        let start = Instant::now();
        for _ in 0..runs {
            run(c)?;
        }
        device.sync()?;
        let seconds = start.elapsed().as_secs_f64();
        best = best.min(seconds / runs as f64);
        // Rounds of some 20 ms.
        runs = ((0.02 / best) as usize).clamp(1, 1000);
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

/// Numbers in -1..1 from a counter.
fn data(seed: u32, n: usize) -> Vec<f32> {
    (0..n as u32)
        .map(|i| (hash(seed, i) >> 8) as f32 / (1 << 23) as f32 - 1.0)
        .collect()
}

fn hash(seed: u32, i: u32) -> u32 {
    let mut x = i.wrapping_add(seed.wrapping_mul(0x9e37_79b9));
    x = (x ^ (x >> 16)).wrapping_mul(0x21f0_aaad);
    x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
    x ^ (x >> 15)
}
