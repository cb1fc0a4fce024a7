//! Nearest neighbours.

use super::{Lane, hash, upload};
use crate::fixtures::Fixture;
use detml_kernels::ops::neighbors::{Metric, nearest, pairwise};

/// Queries: some of the rows.
fn few(f: &Fixture) -> usize {
    f.rows.min(37)
}

fn lane(name: &'static str, metric: Metric) -> Lane {
    Lane::new(name, move |device, f| {
        let points = upload(device, f)?;
        let queries = device.upload(f.rows(0..few(f)))?;
        let shape = [few(f), f.rows, f.columns];
        let near = nearest(metric, &queries, &points, shape, 7)?;
        let all = pairwise(metric, &queries, &points, shape)?;
        Ok(vec![
            ("distances", hash(device, &near.distances)?),
            ("indices", hash(device, &near.indices)?),
            ("matrix", hash(device, &all)?),
        ])
    })
}

pub(super) fn lanes() -> Vec<Lane> {
    vec![
        lane("near/squared-euclidean", Metric::SquaredEuclidean),
        lane("near/manhattan", Metric::Manhattan).slow(),
        lane("near/inner-product", Metric::InnerProduct).slow(),
    ]
}
