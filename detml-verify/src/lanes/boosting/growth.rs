//! Leaf-wise and symmetric growth, limits of leaves, and constraints.

use super::{features, margins, unseen};
use crate::fixtures::{Fixture, word};
use crate::lanes::{Lane, Parts};
use detml_core::{BitHashed, IntoDesign, Result, Seed};
use detml_kernels::Device;
use detml_trees::{GradientBoosting, GradientBoostingModel, GrowPolicy};
use ndarray::Array1;

fn fit(
    device: &Device,
    f: &Fixture,
    boosting: &GradientBoosting,
    rows: &[usize],
) -> Result<GradientBoostingModel> {
    let x = features(f, rows)?;
    let y: Array1<f32> = rows.iter().map(|&row| f.real[row]).collect();
    boosting.fit_on(device, &(&x, &y).into_design()?)
}

/// Of some columns; the other lanes draw rows and features.
fn ways(columns: usize) -> Vec<i8> {
    (0..columns).map(|i| [1, 0, -1][i % 3]).collect()
}

fn groups(columns: usize) -> Vec<Vec<usize>> {
    let of = |k: usize| (0..columns).filter(|i| i % 3 == k || i % 5 == 0).collect();
    let groups: [Vec<usize>; 2] = [of(0), of(1)];
    groups
        .into_iter()
        .filter(|group| !group.is_empty())
        .collect()
}

fn parts(
    device: &Device,
    f: &Fixture,
    boosting: &GradientBoosting,
    sampled: bool,
) -> Result<Parts> {
    let all: Vec<usize> = (0..f.rows).collect();
    let model = fit(device, f, boosting, &all)?;
    let mut parts = vec![
        ("model", model.bit_hash()),
        ("train", margins(device, &model, f, &f.x)?),
        ("infer", margins(device, &model, f, &unseen(f))?),
    ];
    if !sampled {
        let mut rows = all;
        rows.sort_by_key(|&row| word(51, row as u32));
        parts.push(("order", fit(device, f, boosting, &rows)?.bit_hash()));
    }
    Ok(parts)
}

pub(super) fn lanes() -> Vec<Lane> {
    let lane =
        |name: &str, sampled: bool, make: fn(GradientBoosting, usize) -> GradientBoosting| {
            Lane::new(format!("boosting/{name}"), move |device, f| {
                let start = GradientBoosting::regressor()
                    .n_trees(4)
                    .max_depth(5)
                    .seed(Seed(12));
                parts(device, f, &make(start, f.columns), sampled)
            })
        };
    let leafwise = |boosting: GradientBoosting, _: usize| {
        boosting
            .grow_policy(GrowPolicy::LossGuide)
            .max_leaves(12)
            .max_depth(16)
            .min_child_weight(0.0)
    };
    let sampled = |boosting: GradientBoosting, _: usize| {
        boosting
            .grow_policy(GrowPolicy::LossGuide)
            .max_leaves(7)
            .subsample(0.7)
            .colsample_bynode(0.6)
    };
    let few = |boosting: GradientBoosting, _: usize| boosting.max_leaves(10);
    let symmetric =
        |boosting: GradientBoosting, _: usize| boosting.grow_policy(GrowPolicy::Symmetric).l2(3.0);
    let symmetric_sampled = |boosting: GradientBoosting, _: usize| {
        boosting
            .grow_policy(GrowPolicy::Symmetric)
            .subsample(0.7)
            .colsample_bylevel(0.6)
    };
    let monotone = |boosting: GradientBoosting, columns: usize| {
        boosting.l1(0.125).monotone_constraints(ways(columns))
    };
    let interactions = |boosting: GradientBoosting, columns: usize| {
        boosting.interaction_constraints(groups(columns))
    };
    let both = |boosting: GradientBoosting, columns: usize| {
        boosting
            .grow_policy(GrowPolicy::LossGuide)
            .max_leaves(9)
            .colsample_bynode(0.7)
            .monotone_constraints(ways(columns))
            .interaction_constraints(groups(columns))
    };
    vec![
        lane("leaf-wise", false, leafwise),
        lane("leaf-wise-sampled", true, sampled).slow(),
        lane("few-leaves", false, few).slow(),
        lane("symmetric", false, symmetric),
        lane("symmetric-sampled", true, symmetric_sampled).slow(),
        lane("monotone", false, monotone),
        lane("interactions", false, interactions).slow(),
        lane("leaf-wise-constrained", false, both).slow(),
    ]
}
