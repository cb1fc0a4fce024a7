//! Shapes that no buffer has, given to every operation that takes one: an error or an empty
//! result, never a panic or the end of the process.

use super::elementwise::{Binary, Comparison, Operand};
use super::gemm::{Matrix, MatrixMut};
use super::segment::Segments;
use super::sort::Order;
use super::storage::Half;
use super::*;
use crate::ops::reduce::Axis;
use crate::suite::*;

/// Small ones, and ones beyond any memory.
const SIZES: [usize; 9] = [
    0,
    1,
    2,
    3,
    6,
    1 << 45,
    1 << 60,
    usize::MAX / 2 + 1,
    usize::MAX,
];

/// Either there is a result or one of the errors that say why not.
#[track_caller]
fn settled<T>(what: &str, result: Result<T>) {
    match result {
        Ok(_)
        | Err(
            Error::Shape { .. }
            | Error::Empty { .. }
            | Error::InvalidParameter { .. }
            | Error::InvalidValue { .. }
            | Error::Unsupported { .. }
            | Error::OutOfMemory { .. },
        ) => {}
        Err(other) => panic!("{what}: {other:?}"),
    }
}

fn any_shape(device: &Device) {
    let full = device.upload(&moderate(1, 6)).unwrap();
    let none = device.upload::<f32>(&[]).unwrap();
    let words = device.upload(&[5u32, 0, 3, 1, 2, 4]).unwrap();
    let groups = Segments::of_offsets(device, &[0, 2, 3]).unwrap();
    for x in [&full, &none] {
        for rows in SIZES {
            for columns in SIZES {
                let shape = [rows, columns];
                products(device, x, shape);
                let what = format!("{rows} x {columns} of {} on {device}", x.len());
                let what = what.as_str();
                for axis in [Axis::EachRow, Axis::EachColumn, Axis::Whole] {
                    settled(what, reduce::sum(x, axis, shape));
                    settled(what, reduce::argmax(x, axis, shape));
                    settled(what, reduce::mean_variance(x, axis, shape, u32::MAX));
                }
                for b in [
                    Operand::from(x),
                    Operand::row(x),
                    Operand::column(x),
                    Operand::strided(x, 1, 0, 1),
                    Operand::strided(x, usize::MAX, 1, 1),
                    Operand::strided(x, 0, usize::MAX, usize::MAX),
                ] {
                    settled(what, elementwise::zip_matrix(Binary::Add, shape, x, b));
                    settled(what, elementwise::compare(Comparison::Lt, shape, b, x));
                    settled(what, elementwise::materialize(shape, b));
                }
                settled(what, gather::rows(x, shape, &words));
                settled(what, gather::columns(x, shape, &words));
                let mut out = device.upload(&moderate(2, x.len())).unwrap();
                settled(what, scatter::rows(&mut out, shape, &words, x));
                settled(what, transpose::transpose(x, shape));
                settled(what, transpose::transpose_batch(x, [2, rows, columns]));
                settled(what, topk::topk(x, rows, columns, 2, Order::Ascending));
                settled(
                    what,
                    topk::topk(x, rows, columns, usize::MAX, Order::Descending),
                );
                settled(what, sort::sort_rows(x, rows, columns, Order::Ascending));
                for shape in [[rows, columns, 2], [rows, 3, columns]] {
                    let metric = neighbors::Metric::Manhattan;
                    settled(what, neighbors::nearest(metric, x, x, shape, 2));
                    settled(what, neighbors::nearest(metric, x, x, shape, usize::MAX));
                    settled(what, neighbors::pairwise(metric, x, x, shape));
                    settled(what, recurrence::linear(x, x, None, shape));
                }
                let scan = selective_scan::Shape {
                    batch: 2,
                    time: rows,
                    channels: columns,
                    states: 1,
                };
                let scan = selective_scan::Scan::new(scan, x, x, x, x, x);
                settled(what, selective_scan::selective_scan(&scan));
                settled(what, storage::encode_int8(x, shape));
            }
            settled("decode", storage::decode(Half::Bf16, &words, rows));
            settled("segments", segment::sum(x, rows, &groups));
            settled("fill", elementwise::fill(device, rows, 1.0f32));
            settled("iota", elementwise::iota(device, rows, 1, 1));
            let leaf = forest::Node {
                left: 0,
                feature: 0,
                threshold: 0.0,
                missing_left: true,
                value: 1.0,
            };
            for features in [0, 3, 1 << 26] {
                let trees = forest::Forest::new(features, vec![0.5], vec![0, 1], vec![leaf]);
                let trees = trees.unwrap();
                let shap = shap::PathDependent::new(&trees, &[1.0]).unwrap();
                for numbers in [&moderate(1, 6)[..], &[]] {
                    settled("shap", shap.values(device, numbers, rows));
                    settled("shap", shap.interactions(device, numbers, rows));
                    let against = shap::Interventional::new(&trees, numbers, rows);
                    settled(
                        "shap",
                        against.and_then(|s| s.values(device, numbers, rows)),
                    );
                }
            }
        }
    }
}

fn products(device: &Device, x: &Buffer<f32>, [rows, columns]: [usize; 2]) {
    let matrix = Matrix::new(x, rows, columns);
    for other in [matrix, matrix.transposed(), Matrix::new(x, columns, 1)] {
        for a in [
            matrix,
            matrix.offset(usize::MAX),
            matrix.strides(usize::MAX, usize::MAX),
            matrix.strides(0, 0),
        ] {
            settled("matmul", gemm::matmul(a, other));
            for batch in [0, 2, usize::MAX] {
                let mut out = device.empty::<f32>(6).unwrap();
                let c = MatrixMut::new(&mut out, rows, columns)
                    .row_stride(usize::MAX)
                    .batch_stride(usize::MAX);
                settled("gemm", gemm::gemm_batched(batch, 1.0, a, other, 1.0, c));
            }
        }
    }
}

backend_suite! { any_shape }
