//! Softmax and norms of rows, and their gradients.

use super::{Case, Scale, upload};
use detml_kernels::Buffer;
use detml_kernels::ops::rowwise::{self, Normalized};

/// Matrices of the size of an operand that are read and written.
fn traffic(op: &str) -> usize {
    match op {
        "softmax" | "log_softmax" | "layer_norm" | "rms_norm" => 2,
        "layer_norm_parameters" => 2,
        _ => 3,
    }
}

struct Operands {
    x: Buffer<f32>,
    dy: Buffer<f32>,
    weight: Buffer<f32>,
    bias: Buffer<f32>,
    norm: Normalized,
}

pub(crate) fn cases(scale: Scale) -> Vec<Case> {
    let n = scale.elements();
    let side = n.isqrt();
    let mut widths = vec![side, 16, 28, 128, 256, 768, 1024, 4096, 50_257, 1 << 20];
    if scale.gpu {
        widths.extend([16_384, 32_768]);
    }
    widths.sort_unstable();
    widths.dedup();
    let mut cases = Vec::new();
    for columns in widths {
        let rows = n / columns;
        for op in [
            "softmax",
            "log_softmax",
            "layer_norm",
            "rms_norm",
            "softmax_backward",
            "log_softmax_backward",
            "layer_norm_backward",
            "layer_norm_parameters",
        ] {
            let shape = [rows, columns];
            let name = format!("{op} {rows}x{columns}");
            let bytes = 4 * traffic(op) * rows * columns;
            cases.push(Case::new("rowwise", name, bytes, 0, move |device| {
                let x = upload(device, rows * columns)?;
                let weight = upload(device, columns)?;
                let bias = upload(device, columns)?;
                let o = Operands {
                    dy: upload(device, rows * columns)?,
                    norm: rowwise::layer_norm(&x, shape, None, None, 1e-5)?,
                    x,
                    weight,
                    bias,
                };
                Ok(move || {
                    let w = Some(&o.weight);
                    match op {
                        "softmax" => rowwise::softmax(&o.x, shape).map(drop),
                        "log_softmax" => rowwise::log_softmax(&o.x, shape).map(drop),
                        "layer_norm" => {
                            rowwise::layer_norm(&o.x, shape, w, Some(&o.bias), 1e-5).map(drop)
                        }
                        "rms_norm" => rowwise::rms_norm(&o.x, shape, w, 1e-5).map(drop),
                        "softmax_backward" => {
                            rowwise::softmax_backward(&o.x, &o.dy, shape).map(drop)
                        }
                        "log_softmax_backward" => {
                            rowwise::log_softmax_backward(&o.x, &o.dy, shape).map(drop)
                        }
                        "layer_norm_backward" => {
                            rowwise::layer_norm_backward(&o.x, &o.dy, shape, w, &o.norm).map(drop)
                        }
                        _ => rowwise::layer_norm_parameters(&o.x, &o.dy, shape, &o.norm).map(drop),
                    }
                })
            }));
        }
    }
    cases
}
