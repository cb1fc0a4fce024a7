//! Products of matrices.

use super::{Lane, rotated, upload};
use crate::fixtures::Fixture;
use detml_kernels::ops::gemm::{Matrix, MatrixMut, gemm, matmul, matmul_batched};

/// Rows of the fixture that fit a product whose size grows with their square.
fn few(f: &Fixture) -> usize {
    f.rows.min(150)
}

pub(super) fn lanes() -> Vec<Lane> {
    vec![
        // k is the number of columns.
        Lane::of("gemm/nn", |device, f| {
            let (a, b) = (upload(device, f)?, rotated(device, f, 2)?);
            let columns = (f.x.len() / f.columns).min(97);
            matmul(
                Matrix::new(&a, f.rows, f.columns),
                Matrix::new(&b, f.columns, columns),
            )
        }),
        Lane::of("gemm/nt", |device, f| {
            let (a, b) = (upload(device, f)?, rotated(device, f, 3)?);
            matmul(
                Matrix::new(&a, few(f), f.columns),
                Matrix::new(&b, few(f), f.columns).transposed(),
            )
        })
        .slow(),
        // k is the number of rows: several panels.
        Lane::of("gemm/tn", |device, f| {
            let (a, b) = (upload(device, f)?, rotated(device, f, 2)?);
            matmul(
                Matrix::new(&a, f.rows, f.columns).transposed(),
                Matrix::new(&b, f.rows, f.columns),
            )
        }),
        Lane::of("gemm/scaled", |device, f| {
            let (a, b) = (upload(device, f)?, rotated(device, f, 2)?);
            let mut c = rotated(device, f, 3)?;
            let n = f.columns;
            gemm(
                0.75,
                Matrix::new(&a, f.rows, n).transposed(),
                Matrix::new(&b, f.rows, n),
                -1.5,
                MatrixMut::new(&mut c, n, n),
            )?;
            Ok(c)
        })
        .takes(|f| {
            if f.rows < f.columns {
                Err("fewer rows than columns")
            } else {
                Ok(())
            }
        })
        .slow(),
        Lane::of("gemm/batched", |device, f| {
            let (a, b) = (upload(device, f)?, rotated(device, f, 2)?);
            let rows = f.rows / 3;
            matmul_batched(
                3,
                Matrix::new(&a, rows, f.columns).transposed(),
                Matrix::new(&b, rows, f.columns),
            )
        })
        .slow(),
    ]
}
