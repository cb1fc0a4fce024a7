//! Nearest neighbours.

use super::{Case, Scale, upload};
use detml_kernels::ops::neighbors::{Metric, nearest};

pub(crate) fn cases(scale: Scale) -> Vec<Case> {
    let shapes: &[[usize; 4]] = match scale.gpu {
        true => &[
            [10_000, 50_000, 64, 10],
            [10_000, 50_000, 16, 10],
            [10_000, 50_000, 256, 10],
            [10_000, 50_000, 64, 100],
            [100, 1_000_000, 64, 10],
            [1, 1_000_000, 64, 10],
        ],
        false => &[
            [1000, 50_000, 64, 10],
            [1000, 50_000, 16, 10],
            [1000, 50_000, 256, 10],
            [1, 500_000, 64, 10],
        ],
    };
    shapes
        .iter()
        .map(|&[q, n, d, k]| {
            let name = format!("{k} of {n}x{d} for {q}");
            // A difference and a fused multiply-add for each term.
            let (bytes, flops) = (4 * d * (q + n) + 8 * q * k, 3 * q * n * d);
            Case::new("near", name, bytes, flops, move |device| {
                let (queries, points) = (upload(device, q * d)?, upload(device, (n + q) * d)?);
                // The points are other numbers than the queries.
                let points = device.read(&points)?[q * d..].to_vec();
                let points = device.upload_vec(points)?;
                let metric = Metric::SquaredEuclidean;
                Ok(move || nearest(metric, &queries, &points, [q, n, d], k).map(drop))
            })
        })
        .collect()
}
