//! Times launches, first uses and elementwise functions on the current device.
//!
//! `cargo run --release -p detml-kernels --example device_bench [--features cuda] -- PART [n]`
//! with `launch`, `cold` or `elementwise` for `PART`. Set `DETML_BACKEND` to choose the device.

use detml_kernels::ops::elementwise::{Binary, Unary, fill, map, map_into, zip, zip_assign};
use detml_kernels::{Buffer, Device};
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

/// Microseconds of the best of `repeats` runs of `work`, `warm` runs before them.
fn best(repeats: usize, mut work: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    work()?;
    let mut best = f64::INFINITY;
    for _ in 0..repeats {
        let start = Instant::now();
        work()?;
        best = best.min(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(best)
}

fn launch(device: &Device) -> Result<(), Failure> {
    const CHAIN: usize = 1000;
    let one = device.upload(&[1.0f32])?;
    let single = best(200, || {
        map(Unary::Neg, &one)?;
        Ok(device.sync()?)
    })?;
    println!("one operation of 1 element, sync: {single:.2} us");
    let read = best(200, || {
        device.read(&one)?;
        Ok(())
    })?;
    println!("reading 1 element: {read:.2} us");
    let sync = best(200, || Ok(device.sync()?))?;
    println!("sync of nothing: {sync:.2} us");
    for n in [1usize, 1 << 20] {
        let x = fill(device, n, 1.0f32)?;
        let mut queued = f64::INFINITY;
        let chain = best(20, || {
            let start = Instant::now();
            let mut y = zip(Binary::Add, &x, 1.0)?;
            for _ in 1..CHAIN {
                y = zip(Binary::Add, &y, 1.0)?;
            }
            queued = queued.min(start.elapsed().as_secs_f64() * 1e6);
            device.sync()?;
            drop(y);
            Ok(())
        })?;
        println!(
            "{CHAIN} chained additions of {n}: {:.3} us each ({:.3} to queue)",
            chain / CHAIN as f64,
            queued / CHAIN as f64
        );
        let mut y = fill(device, n, 1.0f32)?;
        let mut queued = f64::INFINITY;
        let chain = best(20, || {
            let start = Instant::now();
            for _ in 0..CHAIN {
                zip_assign(Binary::Add, [1, n], &mut y, 1.0)?;
            }
            queued = queued.min(start.elapsed().as_secs_f64() * 1e6);
            Ok(device.sync()?)
        })?;
        println!(
            "{CHAIN} additions in place of {n}: {:.3} us each ({:.3} to queue)",
            chain / CHAIN as f64,
            queued / CHAIN as f64
        );
    }
    Ok(())
}

fn cold() -> Result<(), Failure> {
    let start = Instant::now();
    let mut last = 0.0;
    let mut stage = |name: &str| {
        let now = start.elapsed().as_secs_f64() * 1e3;
        println!("{name:<32} {:>9.1} ms", now - last);
        last = now;
    };
    let device = Device::current()?;
    stage("open and probe");
    let x = device.upload(&[1.0f32; 4096])?;
    device.sync()?;
    stage("upload");
    map(Unary::Neg, &x)?;
    device.sync()?;
    stage("first use of a small kernel");
    for op in [
        Unary::Exp,
        Unary::Tanh,
        Unary::Gelu,
        Unary::Sigmoid,
        Unary::Ln,
    ] {
        map(op, &x)?;
    }
    device.sync()?;
    stage("first use of five functions");
    let square = detml_kernels::ops::gemm::Matrix::new(&x, 64, 64);
    detml_kernels::ops::gemm::matmul(square, square)?;
    device.sync()?;
    stage("first use of a product");
    detml_kernels::ops::sort::sort(&x, detml_kernels::ops::sort::Order::Ascending)?;
    device.sync()?;
    stage("first use of a sort");
    Ok(())
}

fn elementwise(device: &Device, n: usize) -> Result<(), Failure> {
    let host: Vec<f32> = (0..n)
        .map(|i| {
            let x = (i as u32).wrapping_mul(0x9e37_79b9) >> 8;
            (x as f32 / (1 << 24) as f32 - 0.5) * 8.0
        })
        .collect();
    let x = device.upload(&host)?;
    let mut out: Buffer<f32> = device.empty(n)?;
    let repeats = if device.is_cpu() { 3 } else { 10 };
    let name = device.name().to_owned();
    println!("{n} numbers, out of place, {name}");
    let fresh = best(repeats, || {
        map(Unary::Neg, &x)?;
        Ok(device.sync()?)
    })?;
    println!("Neg into a new buffer {:.3} ms", fresh * 1e-3);
    for op in Unary::ALL {
        let time = best(repeats, || {
            map_into(*op, &x, &mut out)?;
            Ok(device.sync()?)
        })?;
        println!(
            "{:<12} {:>9.3} ms {:>8.4} ns each {:>8.1} GB/s",
            format!("{op:?}"),
            time * 1e-3,
            time * 1e3 / n as f64,
            8e-3 * n as f64 / time
        );
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let part = args.next().unwrap_or_default();
    let n = args.next().map_or(Ok(1 << 24), |n| n.parse())?;
    match &*part {
        "launch" => launch(&Device::current()?),
        "cold" => cold(),
        "elementwise" => elementwise(&Device::current()?, n),
        other => Err(format!("{other:?} is no part").into()),
    }
}
