//! Accuracy against XGBoost's on the same arrays; `accuracy.py` made `accuracy.json`.

use detml_core::prelude::*;
use detml_core::{Result, metrics};
use detml_trees::{GradientBoosting, GradientBoostingModel};

type Measure = fn(&GradientBoostingModel, &Dataset) -> Result<f64>;

fn load(file: &str, target: &str) -> Dataset {
    let path = format!("{}/../fixtures/data/{file}", env!("CARGO_MANIFEST_DIR"));
    Dataset::from_csv(path).unwrap().target(target).unwrap()
}

/// The mean over the first folds of five; row i is tested in fold i % 5.
fn folds(data: &Dataset, boosting: GradientBoosting, measure: Measure, count: usize) -> f64 {
    let boosting = boosting.max_depth(6).learning_rate(0.1);
    let scores = (0..count).map(|fold| {
        let (test, train): (Vec<usize>, Vec<usize>) =
            (0..data.n_rows()).partition(|row| row % 5 == fold);
        let model = boosting.fit(&data.take_rows(&train).unwrap()).unwrap();
        measure(&model, &data.take_rows(&test).unwrap()).unwrap()
    });
    scores.sum::<f64>() / count as f64
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
    let got = folds(&data, GradientBoosting::classifier().n_trees(100), auc, 1);
    let expected = reference("flights discrete auc");
    assert!((got - expected).abs() < 1e-4, "{got}, XGBoost {expected}");
}

/// Elsewhere quantiles differ; that alone moves XGBoost's own figures by several 1e-4.
#[test]
fn auc_of_breast_cancer_and_flights() {
    for (name, file, target, trees, count) in [
        ("breast_cancer auc", "breast_cancer.csv", "benign", 200, 5),
        ("flights auc", "flights.csv.gz", "late", 100, 1),
    ] {
        let boosting = GradientBoosting::classifier().n_trees(trees);
        let got = folds(&load(file, target), boosting, auc, count);
        let expected = reference(name);
        assert!(
            (got - expected).abs() < 1e-3,
            "{name}: {got}, XGBoost {expected}"
        );
    }
}

#[test]
fn log_loss_of_wine() {
    let log_loss: Measure = |model, test| {
        let p = model.predict_proba(test.features())?;
        metrics::log_loss_classes(test.labels()?, p.view(), model.classes())
    };
    let boosting = GradientBoosting::classifier().n_trees(200);
    let got = folds(&load("wine.csv", "cultivar"), boosting, log_loss, 5);
    let expected = reference("wine log_loss");
    assert!((got - expected).abs() < 0.03, "{got}, XGBoost {expected}");
}

#[test]
fn error_of_diabetes() {
    let error: Measure = |model, test| {
        let p = model.predict(test.features())?;
        metrics::root_mean_squared_error(test.labels()?, p.view())
    };
    let boosting = GradientBoosting::regressor().n_trees(200);
    let got = folds(&load("diabetes.csv", "progression"), boosting, error, 5);
    let expected = reference("diabetes rmse");
    let ratio = got / expected;
    assert!((ratio - 1.0).abs() < 0.02, "{got}, XGBoost {expected}");
}
