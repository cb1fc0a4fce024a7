//! Bandwidth of the memory-bound operations on the current device: `cargo bench --bench ops`,
//! `DETML_BACKEND=cuda cargo bench --features cuda --bench ops`.
//!
//! Bytes are those that must be read and written once.

#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use detml_kernels::ops::elementwise::{Binary, Operand, Unary, map_into, zip_into};
use detml_kernels::ops::reduce::{Axis, argmax, mean_variance, sum};
use detml_kernels::ops::segment::{self, Segments};
use detml_kernels::ops::transpose::transpose;
use detml_kernels::ops::{gather, scatter};
use detml_kernels::{Buffer, Device};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// 64 MiB of elements; `DETML_BENCH_ELEMENTS` says otherwise.
fn elements() -> usize {
    std::env::var("DETML_BENCH_ELEMENTS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1 << 24)
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n as u32)
        .map(|i| (i.wrapping_mul(2_654_435_769) >> 8) as f32 / 16_777_216.0 - 0.5)
        .collect()
}

/// Measures `work` with all of it done, `bytes` a call.
fn measure(
    c: &mut Criterion,
    device: &Device,
    name: &str,
    what: &str,
    bytes: usize,
    mut work: impl FnMut(),
) {
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function(BenchmarkId::new(what, device), |b| {
        b.iter_custom(|calls| {
            device.sync().expect("sync");
            let begin = Instant::now();
            for _ in 0..calls {
                work();
            }
            device.sync().expect("sync");
            begin.elapsed()
        });
    });
    group.finish();
}

fn upload(device: &Device, n: usize) -> Buffer<f32> {
    device.upload(&numbers(n)).expect("upload")
}

fn elementwise(c: &mut Criterion) {
    let device = Device::current().expect("device");
    let n = elements();
    let x = upload(&device, n);
    let row = upload(&device, 256);
    let mut out = device.empty(n).expect("empty");
    for op in [
        Unary::Neg,
        Unary::Exp,
        Unary::Ln,
        Unary::Tanh,
        Unary::Gelu,
        Unary::Sin,
    ] {
        measure(c, &device, "map", &format!("{op:?}"), 8 * n, || {
            map_into(op, &x, &mut out).expect("map");
        });
    }
    measure(c, &device, "zip", "Add", 12 * n, || {
        zip_into(Binary::Add, [1, n], &x, &x, &mut out).expect("zip");
    });
    measure(c, &device, "zip", "Pow", 12 * n, || {
        zip_into(Binary::Pow, [1, n], &x, &x, &mut out).expect("zip");
    });
    measure(c, &device, "zip", "Add a row of 256", 8 * n, || {
        zip_into(
            Binary::Add,
            [n / 256, 256],
            &x,
            Operand::row(&row),
            &mut out,
        )
        .expect("zip");
    });
}

fn reduce(c: &mut Criterion) {
    let device = Device::current().expect("device");
    let n = elements();
    let x = upload(&device, n);
    measure(c, &device, "sum", "whole", 4 * n, || {
        black_box(sum(&x, Axis::Whole, [1, n]).expect("sum"));
    });
    measure(c, &device, "argmax", "whole", 4 * n, || {
        black_box(argmax(&x, Axis::Whole, [1, n]).expect("argmax"));
    });
    measure(c, &device, "variance", "whole", 8 * n, || {
        black_box(mean_variance(&x, Axis::Whole, [1, n], 0).expect("variance"));
    });
    for columns in [16, 28, 256, 768, 4096] {
        let rows = n / columns;
        let x = upload(&device, rows * columns);
        let (shape, bytes) = ([rows, columns], 4 * rows * columns);
        measure(
            c,
            &device,
            "sum",
            &format!("rows of {columns}"),
            bytes,
            || {
                black_box(sum(&x, Axis::EachRow, shape).expect("sum"));
            },
        );
        measure(
            c,
            &device,
            "sum",
            &format!("columns, {columns} of them"),
            bytes,
            || {
                black_box(sum(&x, Axis::EachColumn, shape).expect("sum"));
            },
        );
    }
    let rows = n / 768;
    let x = upload(&device, rows * 768);
    measure(
        c,
        &device,
        "variance",
        "rows of 768",
        8 * rows * 768,
        || {
            black_box(mean_variance(&x, Axis::EachRow, [rows, 768], 0).expect("variance"));
        },
    );
    measure(c, &device, "argmax", "rows of 768", 4 * rows * 768, || {
        black_box(argmax(&x, Axis::EachRow, [rows, 768]).expect("argmax"));
    });
}

fn movement(c: &mut Criterion) {
    let device = Device::current().expect("device");
    let side = elements().isqrt();
    let n = side * side;
    let x = upload(&device, n);
    measure(
        c,
        &device,
        "transpose",
        &format!("{side} x {side}"),
        8 * n,
        || {
            black_box(transpose(&x, [side, side]).expect("transpose"));
        },
    );
    for columns in [1, 64] {
        let rows = n / columns;
        let index: Vec<u32> = (0..rows as u32)
            .map(|i| i.wrapping_mul(2_654_435_769) % rows as u32)
            .collect();
        let index = device.upload(&index).expect("upload");
        let x = upload(&device, rows * columns);
        let bytes = 8 * rows * columns + 4 * rows;
        measure(
            c,
            &device,
            "gather",
            &format!("rows of {columns}"),
            bytes,
            || {
                black_box(gather::rows(&x, [rows, columns], &index).expect("gather"));
            },
        );
        let mut out = device.empty(rows * columns).expect("empty");
        measure(
            c,
            &device,
            "scatter",
            &format!("rows of {columns}"),
            bytes,
            || {
                scatter::rows(&mut out, [rows, columns], &index, &x).expect("scatter");
            },
        );
    }
    for (columns, groups) in [(1, 100_000), (28, 10)] {
        let rows = n / columns;
        let keys: Vec<u32> = (0..rows).map(|i| (i * groups / rows) as u32).collect();
        let keys = device.upload(&keys).expect("upload");
        let groups = Segments::of_sorted_keys(&keys, groups).expect("segments");
        let x = upload(&device, rows * columns);
        let what = format!("{} groups of rows of {columns}", groups.len());
        measure(c, &device, "segment_sum", &what, 4 * rows * columns, || {
            black_box(segment::sum(&x, columns, &groups).expect("sum"));
        });
    }
}

criterion_group! {
    name = ops;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = elementwise, reduce, movement
}
criterion_main!(ops);
