//! Products of matrices: square, ragged, batched, with few rows, and of a matrix with itself.

use super::{Case, Scale, upload};
use detml_kernels::Device;
use detml_kernels::ops::gemm::{Matrix, MatrixMut, gemm_batched};

pub(crate) fn cases(scale: Scale) -> Vec<Case> {
    let mut cases = Vec::new();
    let squares = match scale.gpu {
        true => [2048, 4096, 8192],
        false => [512, 1024, 2048],
    };
    for [m, k, n] in squares
        .map(|n| [n, n, n])
        .into_iter()
        .chain([[4095, 1023, 777]])
    {
        for layout in ["nn", "nt", "tn"] {
            let name = format!("{layout} {m}x{k}x{n}");
            cases.push(product(name, 1, [m, k, n], layout));
        }
    }
    for n in [64, 128, 256] {
        let batch = if scale.gpu { 1000 } else { 64_000 / n };
        for layout in ["nn", "nt"] {
            let name = format!("{layout} {batch} of {n}x{n}x{n}");
            cases.push(product(name, batch, [n, n, n], layout));
        }
    }
    for m in [1, 2, 4, 8, 16, 32] {
        for layout in ["nn", "nt"] {
            let name = format!("{layout} {m}x4096x4096");
            cases.push(product(name, 1, [m, 4096, 4096], layout));
        }
    }
    for layout in ["nn", "tn"] {
        let name = format!("{layout} 4096x4096x1");
        cases.push(product(name, 1, [4096, 4096, 1], layout));
    }
    for n in [28, 64, 256, 1024] {
        let k = match n < 256 || scale.gpu && n == 256 {
            true => 1_000_000,
            false => 100_000,
        };
        cases.push(gram(n, k));
    }
    cases
}

/// `batch` products of `m x k` and `k x n`, each operand as it is (`n`) or transposed (`t`).
fn product(name: String, batch: usize, [m, k, n]: [usize; 3], layout: &'static str) -> Case {
    let bytes = 4 * batch * (m * k + k * n + m * n);
    let flops = 2 * batch * m * k * n;
    Case::new("gemm", name, bytes, flops, move |device: &Device| {
        let (a, b) = (
            upload(device, batch * m * k)?,
            upload(device, batch * k * n)?,
        );
        let mut c = device.empty::<f32>(batch * m * n)?;
        Ok(move || {
            let a = match layout.starts_with('t') {
                true => Matrix::new(&a, k, m).transposed(),
                false => Matrix::new(&a, m, k),
            };
            let b = match layout.ends_with('t') {
                true => Matrix::new(&b, n, k).transposed(),
                false => Matrix::new(&b, k, n),
            };
            gemm_batched(batch, 1.0, a, b, 0.0, MatrixMut::new(&mut c, m, n))
        })
    })
}

/// The products of `n` columns of length `k` with each other.
fn gram(n: usize, k: usize) -> Case {
    let bytes = 4 * (k * n + n * n);
    let name = format!("gram {n}x{k}x{n}");
    // The result is symmetric.
    Case::new(
        "gemm",
        name,
        bytes,
        n * (n + 1) * k,
        move |device: &Device| {
            let a = upload(device, k * n)?;
            let mut c = device.empty::<f32>(n * n)?;
            Ok(move || {
                let a = Matrix::new(&a, k, n);
                gemm_batched(1, 1.0, a.transposed(), a, 0.0, MatrixMut::new(&mut c, n, n))
            })
        },
    )
}
