//! Every operation on the current device, by criterion: `cargo bench --bench ops [FILTER]`;
//! `DETML_BACKEND=cuda cargo bench --features cuda --bench ops` on a GPU.

#![allow(missing_docs)]

mod cases;

use cases::Scale;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use detml_kernels::Device;
use std::time::{Duration, Instant};

fn ops(c: &mut Criterion) {
    let device = Device::current().expect("device");
    for case in cases::all(Scale::of(&device)) {
        let mut group = c.benchmark_group(case.group);
        if case.flops > 0 {
            group.throughput(Throughput::Elements(case.flops as u64));
        } else {
            group.throughput(Throughput::Bytes(case.bytes as u64));
        }
        // Inputs are made only for what the filter lets through.
        let mut work = None;
        group.bench_function(format!("{} ({device})", case.name), |b| {
            let work = work.get_or_insert_with(|| case.make(&device).expect("inputs"));
            b.iter_custom(|calls| {
                device.sync().expect("sync");
                let begin = Instant::now();
                for _ in 0..calls {
                    work().expect("call");
                }
                device.sync().expect("sync");
                begin.elapsed()
            });
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = ops
}
criterion_main!(benches);
