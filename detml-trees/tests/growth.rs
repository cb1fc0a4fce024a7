//! Other growth and constraints against XGBoost's on the same arrays; `growth.py` made
//! `growth.json`.

use detml_core::metrics;
use detml_core::prelude::*;
use detml_trees::{GradientBoosting, GrowPolicy};

fn reference() -> serde_json::Value {
    serde_json::from_str(include_str!("growth.json")).unwrap()
}

/// The columns of flights that have a bin for each value; row i is tested if i % 5 is 0.
fn flights(columns: &[&str]) -> [Dataset; 2] {
    let path = format!(
        "{}/../fixtures/data/flights.csv.gz",
        env!("CARGO_MANIFEST_DIR")
    );
    let data = Dataset::from_csv(path).unwrap().target("late").unwrap();
    let data = data.select_columns(columns).unwrap();
    let (test, train): (Vec<usize>, Vec<usize>) = (0..data.n_rows()).partition(|row| row % 5 == 0);
    [train, test].map(|rows| data.take_rows(&rows).unwrap())
}

/// What is left to differ is rounding, and thresholds between bins that a node has no rows in. Under
/// monotone constraints rounding moves figures by up to 1e-3: XGBoost scores weights that were not
/// moved by the formula of those that were, so its near ties fall otherwise. (The first ten rounds
/// of both, computed in binary64, agree to 1e-6 in margins.)
#[test]
fn auc_of_flights_in_discrete_columns() {
    let reference = reference();
    let columns: Vec<&str> = reference["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    let [train, test] = flights(&columns);
    let start = || GradientBoosting::classifier().n_trees(100).max_depth(6);
    let leafwise = |boosting: GradientBoosting| {
        boosting
            .grow_policy(GrowPolicy::LossGuide)
            .max_leaves(31)
            .max_depth(32)
    };
    let ways: Vec<i8> = (0..columns.len()).map(|i| [-1, 0, 1][i % 3]).collect();
    let monotone = |boosting: GradientBoosting| boosting.monotone_constraints(ways.clone());
    let group = |k: usize| (0..columns.len()).filter(move |i| i % 3 == k);
    for (name, boosting) in [
        ("lossguide", leafwise(start())),
        ("lossguide, 200 leaves", leafwise(start()).max_leaves(200)),
        ("depthwise, 20 leaves", start().max_leaves(20)),
        ("monotone", monotone(start())),
        ("monotone, lossguide", monotone(leafwise(start()))),
        (
            "interaction",
            start().interaction_constraints([group(0), group(1)]),
        ),
    ] {
        let model = boosting.fit(&train).unwrap();
        let p = model.predict_proba(test.features()).unwrap();
        let got = metrics::roc_auc(test.labels().unwrap(), p.column(1)).unwrap();
        let expected = reference[name].as_f64().unwrap();
        let off = if name.starts_with("monotone") {
            2e-3
        } else {
            1e-4
        };
        assert!(
            (got - expected).abs() < off,
            "{name}: {got}, XGBoost {expected}"
        );
    }
}
