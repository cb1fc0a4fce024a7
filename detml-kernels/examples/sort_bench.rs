//! Times sorts, selections, prefix sums, moves and histograms on the current device and prints the
//! digests of their results, by which devices can be compared.
//!
//! `cargo run --release -p detml-kernels --example sort_bench [--features cuda] -- [n] [repeats]
//! [filter]`. Set `DETML_BACKEND` to choose the device.

use detml_kernels::ops::segment::{self, Segments};
use detml_kernels::ops::sort::{self, Order};
use detml_kernels::ops::{gather, histogram, scan, scatter, topk, transpose};
use detml_kernels::{Buffer, Device, Element};
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

fn hash(i: u32) -> u32 {
    let mut x = i.wrapping_add(0x85eb_ca6b);
    x = (x ^ (x >> 16)).wrapping_mul(0x21f0_aaad);
    x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
    x ^ (x >> 15)
}

/// A hash of words in their order.
fn digest<T: Element>(device: &Device, buffer: &Buffer<T>) -> Result<u32, Failure> {
    let words = device.read(buffer)?;
    let words: &[u32] = bytemuck::cast_slice(&words);
    Ok(words
        .iter()
        .fold(0x811c_9dc5, |h, w| (h ^ w).wrapping_mul(0x0100_0193)))
}

struct Bench {
    device: Device,
    repeats: usize,
    filter: String,
    digests: bool,
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }

    /// Prints the best of three times of `work`, each an average of calls that follow one another,
    /// and the bandwidth of the `bytes` that it can't do without.
    fn time<T>(
        &self,
        name: &str,
        bytes: usize,
        mut work: impl FnMut() -> detml_core::Result<T>,
        digest: impl Fn(&T) -> Result<u32, Failure>,
    ) -> Result<(), Failure> {
        if !self.wants(name) {
            return Ok(());
        }
        let mut result = work()?;
        self.device.sync()?;
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            let start = Instant::now();
            for _ in 0..self.repeats {
                result = work()?;
            }
            self.device.sync()?;
            best = best.min(start.elapsed().as_secs_f64() / self.repeats as f64);
        }
        let digest = match self.digests {
            true => format!("{:08x}", digest(&result)?),
            false => String::new(),
        };
        println!(
            "{name:<34} {:>10.4} ms {:>8.1} GB/s  {digest}",
            best * 1e3,
            bytes as f64 / best / 1e9
        );
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let n: usize = arguments.next().map_or(Ok(1 << 24), |a| a.parse())?;
    let repeats: usize = arguments.next().map_or(Ok(5), |a| a.parse())?;
    let filter = arguments.next().unwrap_or_default();
    let device = Device::current()?;
    println!("{device}, n = {n}");
    let b = Bench {
        device: device.clone(),
        repeats,
        filter,
        digests: n <= 1 << 24,
    };
    let keys: Vec<u32> = (0..n as u32).map(hash).collect();
    let words = device.upload(&keys)?;
    let floats: Buffer<f32> = device.upload(bytemuck::cast_slice(&keys))?;

    if b.wants("copy") {
        let mut out = device.empty::<u32>(n)?;
        if let Some(words) = words.host() {
            let work = || {
                if let Some(out) = out.host_mut() {
                    out.copy_from_slice(words);
                }
                Ok(())
            };
            b.time("memcpy, one thread", 8 * n, work, |_| Ok(0))?;
        }
    }
    if device.is_cpu() && b.wants("std sort") {
        let copies: Vec<_> = (0..2).map(|_| keys.clone()).collect();
        for mut copy in copies {
            let start = Instant::now();
            copy.sort_unstable();
            let ms = start.elapsed().as_secs_f64() * 1e3;
            println!("{:<34} {ms:>10.4} ms", "std sort_unstable u32");
        }
        let mut pairs: Vec<(f32, u32)> = keys
            .iter()
            .zip(0..)
            .map(|(k, i)| (f32::from_bits(*k), i))
            .collect();
        let start = Instant::now();
        pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let ms = start.elapsed().as_secs_f64() * 1e3;
        println!("{:<34} {ms:>10.4} ms", "std sort_unstable_by (f32, u32)");
    }

    let d = &device;
    let one = |x: &Buffer<u32>| digest(d, x);
    b.time(
        "sort u32",
        8 * n,
        || sort::sort(&words, Order::Ascending),
        one,
    )?;
    b.time(
        "sort f32",
        8 * n,
        || sort::sort(&floats, Order::Ascending),
        |x| digest(d, x),
    )?;
    b.time(
        "sort f32 with values",
        16 * n,
        || sort::sort_by_key(&floats, &words, Order::Ascending),
        |x| Ok(digest(d, &x.0)? ^ digest(d, &x.1)?),
    )?;
    b.time(
        "argsort u32",
        8 * n,
        || sort::argsort(&words, Order::Ascending),
        one,
    )?;
    b.time(
        "argsort f32 descending",
        8 * n,
        || sort::argsort(&floats, Order::Descending),
        one,
    )?;
    {
        let (rows, cols) = (28, n / 28);
        let part: Buffer<f32> = device.upload(bytemuck::cast_slice(&keys[..rows * cols]))?;
        b.time(
            "argsort 28 rows f32",
            8 * n,
            || sort::argsort_rows(&part, rows, cols, Order::Ascending),
            one,
        )?;
    }

    for k in [10, 100, 1000, 10_000] {
        b.time(
            &format!("top {k}"),
            4 * n,
            || topk::topk(&floats, 1, n, k, Order::Descending),
            |x| Ok(digest(d, &x.values)? ^ digest(d, &x.indices)?),
        )?;
    }
    for (rows, cols, k) in [(1000, 50_000, 10), (64, 128_000, 50), (100_000, 100, 5)] {
        let name = format!("top {k} of {rows} rows of {cols}");
        let n = rows * cols;
        if n > 1 << 26 || !b.wants(&name) {
            continue;
        }
        let x: Vec<f32> = (0..n as u32).map(|i| f32::from_bits(hash(i))).collect();
        let x = device.upload_vec(x)?;
        b.time(
            &name,
            4 * n,
            || topk::topk(&x, rows, cols, k, Order::Descending),
            |x| Ok(digest(d, &x.values)? ^ digest(d, &x.indices)?),
        )?;
    }

    b.time("prefix sum", 8 * n, || scan::exclusive(&words), one)?;
    let flags: Vec<u32> = keys.iter().map(|k| k & 1).collect();
    let flags = device.upload_vec(flags)?;
    b.time("compact half", 6 * n, || scan::compact(&flags), one)?;
    b.time(
        "partition half",
        8 * n,
        || scan::partition(&flags),
        |x| digest(d, &x.indices),
    )?;
    drop(flags);

    for columns in [1, 64] {
        let rows = n / columns;
        let index: Vec<u32> = (0..rows as u32).map(|i| hash(i) % rows as u32).collect();
        let index = device.upload_vec(index)?;
        let x = device.upload(&keys[..rows * columns])?;
        let bytes = 8 * rows * columns + 4 * rows;
        b.time(
            &format!("gather rows of {columns}"),
            bytes,
            || gather::rows(&x, [rows, columns], &index),
            one,
        )?;
        let mut out = device.upload(&keys[..rows * columns])?;
        b.time(
            &format!("scatter rows of {columns}"),
            bytes,
            || scatter::rows(&mut out, [rows, columns], &index, &x),
            |()| Ok(0),
        )?;
    }
    for (columns, groups) in [(1, 100_000), (1, 100), (28, 10), (64, 10_000)] {
        let name = format!("segment sum, {groups} of rows of {columns}");
        if !b.wants(&name) {
            continue;
        }
        let rows = n / columns;
        let groups_of: Vec<u32> = (0..rows).map(|i| (i * groups / rows) as u32).collect();
        let groups = Segments::of_sorted_keys(&device.upload_vec(groups_of)?, groups)?;
        let x: Buffer<f32> = device.upload(bytemuck::cast_slice(&keys[..rows * columns]))?;
        b.time(
            &name,
            4 * rows * columns,
            || segment::sum(&x, columns, &groups),
            |x| digest(d, x),
        )?;
    }
    let side = n.isqrt();
    for (rows, columns) in [(side, side), (n / 28, 28), (n / 1023, 1023)] {
        let x = device.upload(&keys[..rows * columns])?;
        b.time(
            &format!("transpose {rows} x {columns}"),
            8 * rows * columns,
            || transpose::transpose(&x, [rows, columns]),
            one,
        )?;
    }

    for n_bins in [256, 4096, 65_536] {
        let bins: Vec<u32> = keys.iter().map(|k| k % n_bins as u32).collect();
        let bins = device.upload_vec(bins)?;
        b.time(
            &format!("histogram counts, {n_bins} bins"),
            4 * n,
            || histogram::counts(&bins, n_bins),
            one,
        )?;
        b.time(
            &format!("histogram sums, {n_bins} bins"),
            8 * n,
            || histogram::sums(&bins, &words, n_bins),
            |x| Ok(digest(d, &x.hi)? ^ digest(d, &x.lo)?),
        )?;
    }
    Ok(())
}
