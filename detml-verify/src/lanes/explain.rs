//! Shapley values of trees.

use super::boosting::{Fit, fit};
use super::{Lane, Parts};
use crate::fixtures::Fixture;
use detml_core::{BitHashed, Result};
use detml_kernels::Device;
use detml_trees::explain::ExplainTrees;
use ndarray::ArrayView2;

/// Background rows at most.
const BACKGROUND: usize = 40;
/// Rows whose interactions are formed, at most.
const PAIRS: usize = 70;

fn parts(device: &Device, f: &Fixture, what: &Fit) -> Result<Parts> {
    let model = fit(device, f, what)?;
    let rows = |rows: usize| {
        ArrayView2::from_shape((rows, f.columns), f.rows(0..rows))
            .map_err(|e| detml_core::Error::internal(e.to_string()))
    };
    let x = rows(f.rows)?;
    let (values, _) = model.shap_values_on(device, x)?;
    let (matrices, _) = model.shap_interaction_values_on(device, rows(f.rows.min(PAIRS))?)?;
    let background = rows(f.rows.min(BACKGROUND))?;
    let (against, _) = model.interventional_shap_on(device, x, background)?;
    Ok(vec![
        ("values", values.bit_hash()),
        ("interactions", matrices.bit_hash()),
        ("background", against.bit_hash()),
    ])
}

pub(super) fn lanes() -> Vec<Lane> {
    let lane = |name: &str, what: Fit| Lane::new(name, move |device, f| parts(device, f, &what));
    vec![
        lane("explain/logistic", Fit::logistic(20)),
        lane("explain/softmax", Fit::softmax()).slow(),
    ]
}
