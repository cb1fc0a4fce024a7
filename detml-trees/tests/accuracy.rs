//! Accuracy against XGBoost's on the same arrays; `accuracy.py` made `accuracy.json`.

use detml_core::prelude::*;
use detml_core::{Result, metrics};
use detml_trees::{GradientBoosting, GradientBoostingModel};
use ndarray::ArrayView1;

type Measure = fn(&GradientBoostingModel, &Dataset) -> Result<f64>;

fn load(file: &str, target: &str) -> Dataset {
    let path = format!("{}/../fixtures/data/{file}", env!("CARGO_MANIFEST_DIR"));
    Dataset::from_csv(path).unwrap().target(target).unwrap()
}

/// The mean over five folds; row i is tested in fold i % 5.
fn folds(data: &Dataset, boosting: GradientBoosting, measure: Measure) -> f64 {
    let boosting = boosting.n_trees(200).max_depth(6).learning_rate(0.1);
    let scores = (0..5).map(|fold| {
        let (test, train): (Vec<usize>, Vec<usize>) =
            (0..data.n_rows()).partition(|row| row % 5 == fold);
        let model = boosting.fit(&data.take_rows(&train).unwrap()).unwrap();
        measure(&model, &data.take_rows(&test).unwrap()).unwrap()
    });
    scores.sum::<f64>() / 5.0
}

/// The columns of at most 255 distinct values.
fn discrete(data: Dataset) -> Dataset {
    let names = data.feature_names().to_vec();
    let few: Vec<&str> = names
        .iter()
        .filter(|name| {
            let column = data.column(name).unwrap();
            let values = column.iter().filter(|x| !x.is_nan()).map(|x| x.to_bits());
            values.collect::<std::collections::BTreeSet<_>>().len() <= 255
        })
        .map(String::as_str)
        .collect();
    data.select_columns(&few).unwrap()
}

fn reference(name: &str) -> f64 {
    let text = include_str!("accuracy.json");
    let table: serde_json::Value = serde_json::from_str(text).unwrap();
    table[name].as_f64().unwrap()
}

fn auc(model: &GradientBoostingModel, test: &Dataset) -> Result<f64> {
    metrics::roc_auc(
        test.labels()?,
        model.predict_proba(test.features())?.column(1),
    )
}

/// Where each value has its own bin, nothing but rounding is left to differ.
#[test]
fn auc_of_flights_in_discrete_columns() {
    let data = discrete(load("flights.csv.gz", "late"));
    assert!(data.n_features() >= 10);
    let got = folds(&data, GradientBoosting::classifier(), auc);
    let expected = reference("flights discrete auc");
    assert!((got - expected).abs() < 5e-5, "{got}, XGBoost {expected}");
}

/// Elsewhere quantiles differ; that alone moves XGBoost's own figures by several 1e-4.
#[test]
fn auc_of_breast_cancer_and_flights() {
    for (name, file, target) in [
        ("breast_cancer auc", "breast_cancer.csv", "benign"),
        ("flights auc", "flights.csv.gz", "late"),
    ] {
        let got = folds(&load(file, target), GradientBoosting::classifier(), auc);
        let expected = reference(name);
        assert!(
            (got - expected).abs() < 1e-3,
            "{name}: {got}, XGBoost {expected}"
        );
    }
}

#[test]
fn log_loss_of_wine() {
    let got = folds(
        &load("wine.csv", "cultivar"),
        GradientBoosting::classifier(),
        |model, test| {
            let p = model.predict_proba(test.features())?;
            metrics::log_loss_classes(test.labels()?, p.view(), model.classes())
        },
    );
    let expected = reference("wine log_loss");
    assert!((got - expected).abs() < 0.03, "{got}, XGBoost {expected}");
}

#[test]
fn error_of_diabetes() {
    let got = folds(
        &load("diabetes.csv", "progression"),
        GradientBoosting::regressor(),
        |model, test| {
            let p = model.predict(test.features())?;
            metrics::root_mean_squared_error(
                test.labels()?,
                ArrayView1::from(p.as_slice().unwrap()),
            )
        },
    );
    let expected = reference("diabetes rmse");
    assert!(
        (got / expected - 1.0).abs() < 0.02,
        "{got}, XGBoost {expected}"
    );
}
