//! Times sorts, prefix sums, histograms and selections on the current device and checks them.
//!
//! `cargo run --release -p detml-kernels --example sort_bench [--features cuda] -- [n] [repeats]`
//! Set `DETML_BACKEND` to choose the device.

use detml_kernels::ops::{histogram, scan, sort, sort::Order, topk};
use detml_kernels::{Buffer, Device, Element};
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

fn hash(i: u32) -> u32 {
    let mut x = i.wrapping_add(0x85eb_ca6b);
    x = (x ^ (x >> 16)).wrapping_mul(0x21f0_aaad);
    x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
    x ^ (x >> 15)
}

/// A hash of words in their order, to compare devices by.
fn digest(words: &[u32]) -> u32 {
    words
        .iter()
        .fold(0x811c_9dc5, |h, w| (h ^ w).wrapping_mul(0x0100_0193))
}

fn words<T: Element>(device: &Device, buffer: &Buffer<T>) -> Result<Vec<u32>, Failure> {
    Ok(bytemuck::cast_slice(&device.read(buffer)?).to_vec())
}

/// Runs `work` once to compile and `repeats` times for the best time; `bytes` is the traffic that
/// it can't do without.
fn time<T>(
    device: &Device,
    name: &str,
    bytes: usize,
    repeats: usize,
    work: impl Fn() -> detml_core::Result<T>,
) -> Result<T, Failure> {
    let mut result = work()?;
    device.sync()?;
    let mut best = f64::INFINITY;
    for _ in 0..repeats {
        let start = Instant::now();
        result = work()?;
        device.sync()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{name:<24} {:>10.3} ms {:>8.1} GB/s",
        best * 1e3,
        bytes as f64 / best / 1e9
    );
    Ok(result)
}

fn check(name: &str, right: bool) -> Result<(), Failure> {
    if right {
        Ok(())
    } else {
        Err(format!("{name} is wrong").into())
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let n: usize = arguments.next().map_or(Ok(1 << 24), |a| a.parse())?;
    let repeats: usize = arguments.next().map_or(Ok(5), |a| a.parse())?;
    let device = Device::current()?;
    println!("{device}, n = {n}");
    let keys: Vec<u32> = (0..n as u32).map(hash).collect();
    let floats: Vec<f32> = keys.iter().map(|k| f32::from_bits(*k)).collect();
    let small: Vec<u32> = keys.iter().map(|k| k % 256).collect();
    let large: Vec<u32> = keys.iter().map(|k| k % 65_536).collect();

    if device.is_cpu() {
        let mut copy = keys.clone();
        let start = Instant::now();
        copy.sort_unstable();
        let ms = start.elapsed().as_secs_f64() * 1e3;
        println!("{:<24} {ms:>10.3} ms", "std sort_unstable");
        check("std", copy.is_sorted())?;
    }

    let buffer = device.upload(&keys)?;
    let sorted = time(&device, "sort u32", 8 * n, repeats, || {
        sort::sort(&buffer, Order::Ascending)
    })?;
    let sorted = words(&device, &sorted)?;
    check("sort u32", sorted.is_sorted())?;
    let sum = |w: &[u32]| w.iter().fold(0u64, |s, k| s + u64::from(*k));
    check("sum of sort u32", sum(&sorted) == sum(&keys))?;
    println!("  digest {:08x}", digest(&sorted));

    let float_buffer = device.upload(&floats)?;
    let sorted = time(&device, "sort f32", 8 * n, repeats, || {
        sort::sort(&float_buffer, Order::Ascending)
    })?;
    println!("  digest {:08x}", digest(&words(&device, &sorted)?));

    let indices = time(&device, "argsort u32", 8 * n, repeats, || {
        sort::argsort(&buffer, Order::Ascending)
    })?;
    let indices = words(&device, &indices)?;
    let stable = indices
        .windows(2)
        .all(|w| (keys[w[0] as usize], w[0]) < (keys[w[1] as usize], w[1]));
    check("argsort u32", stable)?;
    println!("  digest {:08x}", digest(&indices));
    let indices = time(&device, "argsort f32", 8 * n, repeats, || {
        sort::argsort(&float_buffer, Order::Descending)
    })?;
    println!("  digest {:08x}", digest(&words(&device, &indices)?));
    let rows = 28;
    let part = device.upload(&floats[..n / rows * rows])?;
    let indices = time(&device, "argsort 28 rows f32", 8 * n, repeats, || {
        sort::argsort_rows(&part, rows, n / rows, Order::Ascending)
    })?;
    println!("  digest {:08x}", digest(&words(&device, &indices)?));

    let sums = time(&device, "prefix sum", 8 * n, repeats, || {
        scan::exclusive(&buffer)
    })?;
    let mut expected = 0u32;
    let right = words(&device, &sums)?.iter().zip(&keys).all(|(s, k)| {
        let right = *s == expected;
        expected = expected.wrapping_add(*k);
        right
    });
    check("prefix sum", right)?;
    let flags: Vec<u32> = keys.iter().map(|k| k & 1).collect();
    let flags = device.upload(&flags)?;
    let parts = time(&device, "partition", 8 * n, repeats, || {
        scan::partition(&flags)
    })?;
    println!("  digest {:08x}", digest(&words(&device, &parts.indices)?));

    for (name, bins, n_bins) in [("256", &small, 256), ("65536", &large, 65_536)] {
        let bins = device.upload(bins)?;
        let name = |what: &str| format!("{what}, {name} bins");
        let counts = time(&device, &name("counts"), 4 * n, repeats, || {
            histogram::counts(&bins, n_bins)
        })?;
        let counts = words(&device, &counts)?;
        check("counts", sum(&counts) == n as u64)?;
        println!("  digest {:08x}", digest(&counts));
        let sums = time(&device, &name("sums"), 8 * n, repeats, || {
            histogram::sums(&bins, &buffer, n_bins)
        })?;
        let total: i64 = sums.read()?.iter().sum();
        check("sums", total as u64 == sum(&keys))?;
    }

    for k in [10, 1000] {
        let best = time(&device, &format!("top {k}"), 4 * n, repeats, || {
            topk::topk(&float_buffer, 1, n, k, Order::Descending)
        })?;
        println!("  digest {:08x}", digest(&words(&device, &best.indices)?));
    }
    Ok(())
}
