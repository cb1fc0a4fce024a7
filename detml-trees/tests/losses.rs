//! Held-out accuracy of each loss against XGBoost's and LightGBM's; `losses.py` made `losses.json`.

use detml_core::prelude::*;
use detml_core::{Result, metrics};
use detml_trees::{ClassWeight, GradientBoosting, GradientBoostingModel, Loss};
use ndarray::{Array1, Array2, ArrayView1, Axis};

type Measure = fn(ArrayView1<'_, f32>, ArrayView1<'_, f32>) -> Result<f64>;

struct Data {
    x: Array2<f32>,
    y: Array1<f32>,
}

fn load(file: &str, target: &str) -> Data {
    let path = format!("{}/../fixtures/data/{file}", env!("CARGO_MANIFEST_DIR"));
    let data = Dataset::from_csv(path).unwrap().target(target).unwrap();
    Data {
        x: data.features().to_owned(),
        y: data.labels().unwrap().to_owned(),
    }
}

/// The mean over five folds; row i is tested in fold i % 5.
fn folds(
    data: &Data,
    boosting: GradientBoosting,
    measure: impl Fn(&GradientBoostingModel, &Data) -> f64,
) -> f64 {
    let boosting = boosting.n_trees(100).max_depth(4).learning_rate(0.1);
    let scores = (0..5).map(|fold| {
        let (test, train): (Vec<usize>, Vec<usize>) =
            (0..data.y.len()).partition(|row| row % 5 == fold);
        let pick = |rows: &[usize]| Data {
            x: data.x.select(Axis(0), rows),
            y: data.y.select(Axis(0), rows),
        };
        let (test, train) = (pick(&test), pick(&train));
        measure(&boosting.fit((&train.x, &train.y)).unwrap(), &test)
    });
    scores.sum::<f64>() / 5.0
}

fn reference(name: &str) -> f64 {
    let table: serde_json::Value = serde_json::from_str(include_str!("losses.json")).unwrap();
    table[name].as_f64().unwrap()
}

/// Held out, a loss is as good as elsewhere: the bins differ, and LightGBM's trees grow leaf by
/// leaf.
#[test]
fn losses_of_regressors() {
    let mut data = load("diabetes.csv", "progression");
    let mae: Measure = |y, p| metrics::mean_absolute_error(y, p);
    let table: [(&str, Loss, Measure, f64); 13] = [
        ("absolute xgboost", Loss::Absolute, mae, 0.02),
        ("absolute lightgbm", Loss::Absolute, mae, 0.02),
        (
            "quantile xgboost",
            Loss::Quantile { alpha: 0.8 },
            |y, p| metrics::pinball(y, p, 0.8),
            0.02,
        ),
        (
            "quantile lightgbm",
            Loss::Quantile { alpha: 0.8 },
            |y, p| metrics::pinball(y, p, 0.8),
            0.02,
        ),
        (
            "huber lightgbm",
            Loss::Huber { delta: 20.0 },
            |y, p| metrics::huber(y, p, 20.0),
            0.02,
        ),
        (
            "pseudo_huber xgboost",
            Loss::PseudoHuber { delta: 100.0 },
            |y, p| metrics::pseudo_huber(y, p, 100.0),
            0.02,
        ),
        (
            "expectile xgboost",
            Loss::Expectile { alpha: 0.8 },
            |y, p| metrics::expectile(y, p, 0.8),
            0.02,
        ),
        (
            "mape lightgbm",
            Loss::Mape,
            |y, p| metrics::mean_absolute_percentage_error(y, p),
            0.02,
        ),
        (
            "poisson lightgbm",
            Loss::poisson(),
            |y, p| metrics::poisson_deviance(y, p),
            0.02,
        ),
        (
            "gamma xgboost",
            Loss::Gamma,
            |y, p| metrics::gamma_deviance(y, p),
            0.05,
        ),
        (
            "gamma lightgbm",
            Loss::Gamma,
            |y, p| metrics::gamma_deviance(y, p),
            0.05,
        ),
        (
            "tweedie xgboost",
            Loss::tweedie(),
            |y, p| metrics::tweedie_deviance(y, p, 1.5),
            0.03,
        ),
        (
            "tweedie lightgbm",
            Loss::tweedie(),
            |y, p| metrics::tweedie_deviance(y, p, 1.5),
            0.03,
        ),
    ];
    let mut wrong = Vec::new();
    let mut check = |data: &Data, name: &str, loss: Loss, measure: Measure, tolerance: f64| {
        let boosting = GradientBoosting::regressor().loss(loss);
        let got = folds(data, boosting, |model, test| {
            measure(test.y.view(), model.predict(test.x.view()).unwrap().view()).unwrap()
        });
        let expected = reference(name);
        println!("{name}: {got}, there {expected}");
        if (got / expected - 1.0).abs() >= tolerance {
            wrong.push(format!("{name}: {got}, there {expected}"));
        }
    };
    for (name, loss, measure, tolerance) in table {
        check(&data, name, loss, measure, tolerance);
    }
    data.y /= 100.0;
    check(
        &data,
        "squared_log xgboost",
        Loss::SquaredLog,
        metrics::root_mean_squared_log_error,
        0.02,
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn losses_of_classifiers() {
    let log_loss = |model: &GradientBoostingModel, test: &Data| {
        let p = model.predict_proba(test.x.view()).unwrap();
        metrics::log_loss_classes(test.y.view(), p.view(), model.classes()).unwrap()
    };
    let classifier = GradientBoosting::classifier;
    let (wine, cancer) = (
        load("wine.csv", "cultivar"),
        load("breast_cancer.csv", "benign"),
    );
    for (name, data, boosting) in [
        (
            "one_vs_all lightgbm",
            &wine,
            classifier().loss(Loss::OneVsAll),
        ),
        (
            "scale_pos_weight xgboost",
            &cancer,
            classifier().scale_pos_weight(3.0),
        ),
        (
            "balanced xgboost",
            &cancer,
            classifier().class_weight(ClassWeight::Balanced),
        ),
    ] {
        let (got, expected) = (folds(data, boosting, log_loss), reference(name));
        println!("{name}: {got}, there {expected}");
        assert!(
            (got - expected).abs() < 0.02,
            "{name}: {got}, there {expected}"
        );
    }
}
