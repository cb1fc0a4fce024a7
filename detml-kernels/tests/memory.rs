//! Peak memory: what each operation takes at most beside its inputs and outputs.
//!
//! On the CPU an allocator counts every byte of the process; on GPUs devices count their buffers.
//! To add an operation, add a row to [`rows`]: its name, its bounds, and a closure that makes
//! inputs and returns the call. The call returns its outputs. All buffers must be below 1 MiB:
//! larger ones may come from memory kept, which the allocator doesn't see.

use detml_core::{Result, Seed};
use detml_kernels::ops::attention::{Attention, attention};
use detml_kernels::ops::boosting::{Bins, Booster, Growth, Loss, Table};
use detml_kernels::ops::conv::{Conv2d, conv2d};
use detml_kernels::ops::elementwise::{Binary, Unary, map, zip};
use detml_kernels::ops::forest::{Forest, Node};
use detml_kernels::ops::gemm::{Matrix, matmul};
use detml_kernels::ops::neighbors::{Metric, nearest};
use detml_kernels::ops::reduce::{Axis, mean_variance, sum};
use detml_kernels::ops::segment::{self, Segments};
use detml_kernels::ops::shap::PathDependent;
use detml_kernels::ops::sort::{Order, argsort, sort, sort_by_key};
use detml_kernels::ops::{gather, histogram, runs, scan, scatter, topk, transpose};
use detml_kernels::{Buffer, Device};
use std::alloc::{GlobalAlloc, Layout, System};
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes that are allocated.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn more(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new may be there at once.
        more(size);
        // SAFETY: the caller's promise.
        let moved = unsafe { System.realloc(memory, layout, size) };
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        moved
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes of outputs, and the outputs.
type Outputs = (usize, Box<dyn Any>);
type Call = Box<dyn FnMut() -> Result<Outputs>>;

struct Row {
    name: &'static str,
    /// Bytes beside inputs and outputs with `threads` threads.
    bound: fn(threads: usize) -> usize,
    /// Bytes on a GPU beside inputs and outputs.
    #[cfg_attr(
        not(any(feature = "cuda", feature = "hip", feature = "wgpu")),
        expect(dead_code)
    )]
    gpu: usize,
    make: fn(&Device) -> Result<Call>,
}

/// Elements of a large input.
const N: usize = 200_000;
/// What threads and launches take whatever they do.
const SMALL: usize = 1 << 16;

fn words(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect()
}

fn numbers(device: &Device, n: usize) -> Result<Buffer<f32>> {
    let numbers: Vec<f32> = words(n).iter().map(|&w| w as f32 * 2e-10).collect();
    device.upload(&numbers)
}

/// Words below `below`.
fn indices(device: &Device, n: usize, below: u32) -> Result<Buffer<u32>> {
    let indices: Vec<u32> = words(n).iter().map(|&w| w % below).collect();
    device.upload(&indices)
}

/// One output of `bytes`.
fn one<T: Any>(bytes: usize, output: T) -> Outputs {
    (bytes, Box::new(output))
}

fn rows() -> Vec<Row> {
    let none: fn(usize) -> usize = |_| 0;
    vec![
        Row {
            name: "map",
            bound: none,
            gpu: 0,
            make: |device| {
                let x = numbers(device, N)?;
                Ok(Box::new(move || Ok(one(4 * N, map(Unary::Exp, &x)?))))
            },
        },
        Row {
            name: "zip",
            bound: none,
            gpu: 0,
            make: |device| {
                let x = numbers(device, N)?;
                Ok(Box::new(move || Ok(one(4 * N, zip(Binary::Add, &x, &x)?))))
            },
        },
        Row {
            name: "matmul",
            bound: |threads| threads << 22,
            gpu: 8 * 400 * 400,
            make: |device| {
                let x = numbers(device, 400 * 400)?;
                Ok(Box::new(move || {
                    let a = Matrix::new(&x, 400, 400);
                    Ok(one(4 * 400 * 400, matmul(a, a)?))
                }))
            },
        },
        Row {
            name: "sum of all",
            bound: none,
            gpu: 0,
            make: |device| {
                let x = numbers(device, N)?;
                Ok(Box::new(move || Ok(one(4, sum(&x, Axis::Whole, [1, N])?))))
            },
        },
        Row {
            name: "mean and variance of columns",
            bound: none,
            gpu: 0,
            make: |device| {
                let x = numbers(device, N)?;
                Ok(Box::new(move || {
                    let both = mean_variance(&x, Axis::EachColumn, [N / 20, 20], 0)?;
                    Ok(one(2 * 4 * 20, both))
                }))
            },
        },
        Row {
            name: "sort",
            bound: |_| 8 * N,
            gpu: 6 * N,
            make: |device| {
                let x = numbers(device, N)?;
                Ok(Box::new(move || {
                    Ok(one(4 * N, sort(&x, Order::Ascending)?))
                }))
            },
        },
        Row {
            name: "argsort",
            bound: |_| 16 * N,
            gpu: 14 * N,
            make: |device| {
                let x = numbers(device, N)?;
                Ok(Box::new(move || {
                    Ok(one(4 * N, argsort(&x, Order::Ascending)?))
                }))
            },
        },
        Row {
            name: "sort by key",
            bound: |_| 16 * N,
            gpu: 10 * N,
            make: |device| {
                let x = numbers(device, N)?;
                let y = indices(device, N, u32::MAX)?;
                Ok(Box::new(move || {
                    Ok(one(8 * N, sort_by_key(&x, &y, Order::Ascending)?))
                }))
            },
        },
        Row {
            name: "scan",
            bound: none,
            gpu: 0,
            make: |device| {
                let x = indices(device, N, 9)?;
                Ok(Box::new(move || Ok(one(4 * N, scan::exclusive(&x)?))))
            },
        },
        Row {
            name: "compact",
            bound: none,
            gpu: 0,
            make: |device| {
                let x = indices(device, N, 2)?;
                Ok(Box::new(move || {
                    let found = scan::compact(&x)?;
                    Ok(one(4 * found.len(), found))
                }))
            },
        },
        Row {
            name: "runs",
            bound: |_| 4 * N,
            gpu: 3 * N,
            make: |device| {
                let mut keys: Vec<u32> = words(N).iter().map(|w| w % 50_000).collect();
                keys.sort_unstable();
                let x = device.upload(&keys)?;
                Ok(Box::new(move || Ok(one(12 * 50_000, runs::runs(&x)?))))
            },
        },
        Row {
            name: "top-k of rows",
            bound: none,
            gpu: 0,
            make: |device| {
                let x = numbers(device, N)?;
                Ok(Box::new(move || {
                    let best = topk::topk(&x, 20, N / 20, 10, Order::Descending)?;
                    Ok(one(8 * 20 * 10, best))
                }))
            },
        },
        Row {
            name: "counts",
            bound: none,
            gpu: 0,
            make: |device| {
                let x = indices(device, N, 256)?;
                Ok(Box::new(move || {
                    Ok(one(4 * 256, histogram::counts(&x, 256)?))
                }))
            },
        },
        Row {
            name: "sums by bin",
            bound: none,
            gpu: 0,
            make: |device| {
                let x = indices(device, N, 256)?;
                Ok(Box::new(move || {
                    Ok(one(8 * 256, histogram::sums(&x, &x, 256)?))
                }))
            },
        },
        Row {
            name: "transpose",
            bound: none,
            gpu: 0,
            make: |device| {
                let x = numbers(device, N)?;
                Ok(Box::new(move || {
                    Ok(one(4 * N, transpose::transpose(&x, [200, N / 200])?))
                }))
            },
        },
        Row {
            name: "gather rows",
            bound: none,
            gpu: 0,
            make: |device| {
                let x = numbers(device, N)?;
                let index = indices(device, N / 20, N as u32 / 20)?;
                Ok(Box::new(move || {
                    Ok(one(4 * N, gather::rows(&x, [N / 20, 20], &index)?))
                }))
            },
        },
        Row {
            name: "scatter rows",
            bound: |_| 8 * (N / 20),
            gpu: 0,
            make: |device| {
                let x = numbers(device, N)?;
                let mut out = numbers(device, N)?;
                let index = indices(device, N / 20, N as u32 / 20)?;
                Ok(Box::new(move || {
                    scatter::rows(&mut out, [N / 20, 20], &index, &x)?;
                    Ok(one(0, ()))
                }))
            },
        },
        Row {
            name: "sums of groups",
            bound: none,
            gpu: N,
            make: |device| {
                let x = numbers(device, N)?;
                let keys: Vec<u32> = (0..N as u32 / 20).map(|i| i / 7).collect();
                let groups = N / 20 / 7 + 1;
                let segments = Segments::of_sorted_keys(&device.upload(&keys)?, groups)?;
                Ok(Box::new(move || {
                    Ok(one(4 * 20 * groups, segment::sum(&x, 20, &segments)?))
                }))
            },
        },
        Row {
            name: "nearest",
            bound: |threads| threads << 21,
            gpu: 3 * N,
            make: |device| {
                let x = numbers(device, 16 * 2000)?;
                let q = numbers(device, 16 * 100)?;
                Ok(Box::new(move || {
                    let metric = Metric::SquaredEuclidean;
                    let near = nearest(metric, &q, &x, [100, 2000, 16], 10)?;
                    Ok(one(8 * 100 * 10, near))
                }))
            },
        },
        Row {
            name: "conv2d",
            bound: |threads| threads << 20,
            gpu: N,
            make: |device| {
                let x = numbers(device, 2 * 16 * 32 * 32)?;
                let w = numbers(device, 16 * 16 * 9)?;
                Ok(Box::new(move || {
                    let conv = Conv2d::new().padding([[1; 2]; 2]);
                    let y = conv2d(&conv, &x, [2, 16, 32, 32], &w, [16, 16, 3, 3], None)?;
                    Ok(one(4 * y.len(), y))
                }))
            },
        },
        Row {
            name: "attention",
            bound: |threads| threads << 20,
            gpu: 0,
            make: |device| {
                let [q, k, v] = [(); 3].map(|()| numbers(device, 4 * 500 * 64));
                let (q, k, v) = (q?, k?, v?);
                Ok(Box::new(move || {
                    let shape = Attention::new(1, 4, [500, 500], 64).causal();
                    let bytes = 4 * (4 * 500 * 64 + 4 * 500);
                    Ok(one(bytes, attention(&shape, &q, &k, &v, None)?))
                }))
            },
        },
        Row {
            name: "boosting of 10,000 rows and 20 features",
            bound: |_| 8 * N,
            gpu: 40 * N,
            make: |device| {
                let device = device.clone();
                Ok(Box::new(move || {
                    let codes = words(N).iter().map(|w| (w >> 8) as u8 % 250).collect();
                    let bins = Bins::new(N / 20, codes, vec![250; 20])?;
                    let targets = words(N / 20).iter().map(|w| (w >> 20) as f32).collect();
                    let table = Table {
                        bins,
                        targets,
                        weights: None,
                    };
                    let growth = Growth {
                        seed: Seed(1),
                        ..Growth::default()
                    };
                    let loss = Loss::Squared;
                    let mut booster = Booster::new(&device, table, vec![], loss, &[0.0], growth)?;
                    for _ in 0..3 {
                        booster.round()?;
                    }
                    Ok(one(0, booster.take_trees()?))
                }))
            },
        },
        Row {
            name: "prediction by trees of 10,000 rows and 20 features",
            bound: none,
            gpu: 4 * N,
            make: |device| {
                let device = device.clone();
                let x: Vec<f32> = words(N).iter().map(|&w| w as f32).collect();
                let node = |left, value| Node {
                    left,
                    feature: 0,
                    threshold: 1e9,
                    missing_left: true,
                    value,
                };
                let nodes = vec![node(1, 0.0), node(0, 1.0), node(0, 2.0)];
                let forest = Forest::new(20, vec![0.0], vec![0, 3], nodes)?;
                Ok(Box::new(move || {
                    let margins = forest.margins(&device, &x, N / 20)?;
                    Ok(one(4 * N / 20, margins))
                }))
            },
        },
        Row {
            name: "Shapley values of 10,000 rows and 20 features",
            bound: |threads| threads << 16,
            gpu: 5 * N,
            make: |device| {
                let device = device.clone();
                let x: Vec<f32> = words(N).iter().map(|&w| w as f32).collect();
                let node = |left, value| Node {
                    left,
                    feature: 0,
                    threshold: 1e9,
                    missing_left: true,
                    value,
                };
                let nodes = vec![node(1, 0.0), node(0, 1.0), node(0, 2.0)];
                let forest = Forest::new(20, vec![0.0], vec![0, 3], nodes)?;
                let shap = PathDependent::new(&forest, &[3.0, 1.0, 2.0])?;
                Ok(Box::new(move || {
                    let values = shap.values(&device, &x, N / 20)?;
                    Ok(one(4 * N / 20 * 21, values))
                }))
            },
        },
    ]
}

/// Each operation stays below its bound.
#[test]
fn peak_memory() -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let device = Device::cpu();
    let mut over = Vec::new();
    for row in rows() {
        let mut call = (row.make)(&device)?;
        // Threads are started.
        drop(call()?);
        let before = NOW.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let (outputs, kept) = call()?;
        let extra = MOST
            .load(Ordering::Relaxed)
            .saturating_sub(before + outputs);
        drop(kept);
        let bound = (row.bound)(threads) + SMALL;
        println!("{:<55} {extra:>9} of {bound:>9} bytes", row.name);
        if extra > bound {
            over.push(format!("{}: {extra} > {bound}", row.name));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
    Ok(())
}

/// The same on a GPU.
#[cfg(any(feature = "cuda", feature = "hip", feature = "wgpu"))]
fn gpu_peak_memory(backend: detml_core::Backend) -> Result<()> {
    let device = match Device::for_backend(backend) {
        Ok(device) => device,
        Err(detml_core::Error::DeviceUnavailable { device, reason }) => {
            assert!(
                std::env::var_os("DETML_REQUIRE_DEVICES").is_none(),
                "{device} is required: {reason}"
            );
            println!("OWED {device}: {reason}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let mut over = Vec::new();
    for row in rows() {
        let mut call = (row.make)(&device)?;
        device.reset_memory_peak();
        let before = device.memory_use()?.map_or(0, |memory| memory.held);
        let (outputs, kept) = call()?;
        let peak = device.memory_use()?.map_or(0, |memory| memory.peak);
        drop(kept);
        let extra = (peak - before).saturating_sub(outputs as u64);
        println!("{:<55} {extra:>9} of {:>9} bytes", row.name, row.gpu);
        if extra > (row.gpu + SMALL) as u64 {
            over.push(format!("{}: {extra} > {}", row.name, row.gpu + SMALL));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
    Ok(())
}

#[cfg(feature = "cuda")]
#[test]
fn cuda_peak_memory() -> Result<()> {
    gpu_peak_memory(detml_core::Backend::Cuda(0))
}

#[cfg(feature = "hip")]
#[test]
fn hip_peak_memory() -> Result<()> {
    gpu_peak_memory(detml_core::Backend::Hip(0))
}

#[cfg(feature = "wgpu")]
#[test]
fn wgpu_peak_memory() -> Result<()> {
    gpu_peak_memory(detml_core::Backend::Wgpu(0))
}
