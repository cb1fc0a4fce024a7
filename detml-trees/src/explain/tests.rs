use super::*;
use crate::boosting::tests::gpus;
use crate::{GradientBoosting, GradientBoostingModel, Importance};
use detml_core::{BitHashed, Fit, Predict, Score, Seed, metrics};
use detml_kernels::ops::forest::Node;
use ndarray::{Array1, Array2, Axis, s};
use serde_json::Value;

struct Trees {
    forest: Forest,
    covers: Option<Vec<f32>>,
}

impl ExplainTrees for Trees {
    fn forest(&self) -> &Forest {
        &self.forest
    }

    fn covers(&self) -> Option<&[f32]> {
        self.covers.as_deref()
    }
}

/// The cases that `tests/explain.py` made.
fn cases() -> serde_json::Map<String, Value> {
    let text = include_str!("../../tests/explain.json");
    let table: Value = serde_json::from_str(text).unwrap();
    table["cases"].as_object().unwrap().clone()
}

fn numbers(case: &Value, name: &str) -> Vec<f64> {
    let values = case[name].as_array().unwrap();
    values.iter().map(|v| v.as_f64().unwrap()).collect()
}

fn words(case: &Value, name: &str) -> Vec<u32> {
    let values = case[name].as_array().unwrap();
    values.iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

fn floats(case: &Value, name: &str) -> Vec<f32> {
    words(case, name).into_iter().map(f32::from_bits).collect()
}

fn matrix(case: &Value, name: &str) -> Array2<f32> {
    let values = floats(case, name);
    let features = case["features"].as_u64().unwrap() as usize;
    Array2::from_shape_vec((values.len() / features, features), values).unwrap()
}

fn trees(case: &Value) -> Trees {
    let (left, feature, missing) = (
        words(case, "left"),
        words(case, "feature"),
        words(case, "missing_left"),
    );
    let (threshold, value) = (floats(case, "threshold"), floats(case, "value"));
    let nodes = (0..left.len()).map(|i| Node {
        left: left[i],
        feature: if left[i] == 0 { 0 } else { feature[i] },
        threshold: threshold[i],
        missing_left: missing[i] == 1,
        value: value[i],
    });
    let mut starts = vec![0];
    for size in words(case, "sizes") {
        starts.push(starts[starts.len() - 1] + size as usize);
    }
    let outputs = case["outputs"].as_u64().unwrap() as usize;
    let base = vec![case["base"].as_f64().unwrap() as f32; outputs];
    let features = case["features"].as_u64().unwrap() as usize;
    Trees {
        forest: Forest::new(features, base, starts, nodes.collect()).unwrap(),
        covers: Some(floats(case, "cover")),
    }
}

#[track_caller]
fn near<'a>(
    what: &str,
    got: impl IntoIterator<Item = &'a f32>,
    expected: &[f64],
    tolerance: f64,
) -> f64 {
    let got: Vec<f32> = got.into_iter().copied().collect();
    assert_eq!(got.len(), expected.len(), "{what}");
    let mut worst = 0.0f64;
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - expected).abs();
        assert!(
            error <= tolerance,
            "{what}: {i} is {got}, expected {expected}"
        );
        worst = worst.max(error);
    }
    worst
}

/// Margins are of magnitude 1; shap computes in binary64, XGBoost in binary32.
#[test]
fn values_are_those_of_shap_and_xgboost() {
    let all = cases();
    assert_eq!(all.len(), 5);
    for (name, case) in &all {
        let model = trees(case);
        let x = matrix(case, "x");
        let values = model.shap_values(x.view()).unwrap();
        let mut worst = near(name, &values, &numbers(case, "values"), 5e-7);
        let matrices = model.shap_interaction_values(x.view()).unwrap();
        let other = near(name, &matrices, &numbers(case, "interactions"), 5e-7);
        worst = worst.max(other);
        let background = matrix(case, "background");
        let against = model.interventional_shap(x.view(), background.view());
        let other = near(
            name,
            &against.unwrap(),
            &numbers(case, "interventional"),
            5e-7,
        );
        println!("{name}: worst error {:e}", worst.max(other));
        if !case["contribs"].is_null() {
            near(name, &values, &numbers(case, "contribs"), 1e-6);
            near(name, &matrices, &numbers(case, "pair_contribs"), 1e-6);
        }
    }
}

#[test]
fn dependence_is_that_of_scikit_learn() {
    let all = cases();
    let case = &all["random forest, few features"];
    let model = trees(case);
    let expected = &case["dependence"];
    let x = floats(expected, "x");
    let x = Array2::from_shape_vec((x.len() / 3, 3), x).unwrap();
    let device = Device::cpu();
    let predict = |x: ArrayView2<'_, f32>| {
        let margins = model
            .forest
            .margins(&device, x.as_slice().unwrap(), x.nrows());
        margins.map(Array1::from)
    };
    let found = PartialDependence::new()
        .grid_resolution(9)
        .of(x.view(), 1, predict)
        .unwrap();
    near("grid", &found.grid, &numbers(expected, "grid"), 1e-6);
    near(
        "individual",
        &found.individual,
        &numbers(expected, "individual"),
        1e-6,
    );
    let average = found.average.mapv(|x| x as f32);
    near("average", &average, &numbers(expected, "average"), 1e-6);
}

fn data() -> (Array2<f32>, Array1<f32>) {
    let x = Array2::from_shape_fn((300, 4), |(i, j)| {
        let value = (i * (j + 5) % 29) as f32;
        if (i + j) % 11 == 0 { f32::NAN } else { value }
    });
    let y = Array1::from_shape_fn(300, |i| (i * 6 % 29) as f32 + (i % 3) as f32);
    (x, y)
}

fn models() -> [GradientBoostingModel; 3] {
    let (x, y) = data();
    let classes = Array1::from_shape_fn(300, |i| (i % 3) as f32);
    let two = classes.mapv(|y| y.min(1.0));
    [
        GradientBoosting::regressor().n_trees(20).fit((&x, &y)),
        GradientBoosting::classifier()
            .n_trees(4)
            .fit((&x, &classes)),
        GradientBoosting::classifier().n_trees(4).fit((&x, &two)),
    ]
    .map(|model| model.unwrap())
}

#[test]
fn values_sum_to_the_margin() {
    let (x, _) = data();
    for model in models() {
        let margins = model.predict_margin(x.view()).unwrap();
        let largest = margins.iter().fold(1.0f32, |m, x| m.max(x.abs()));
        let values = model.shap_values(x.view()).unwrap();
        let matrices = model.shap_interaction_values(x.view()).unwrap();
        let against = model
            .interventional_shap(x.view(), x.slice(s![..40, ..]))
            .unwrap();
        for sums in [
            values.sum_axis(Axis(2)),
            against.sum_axis(Axis(2)),
            matrices.sum_axis(Axis(3)).sum_axis(Axis(2)),
        ] {
            assert_eq!(sums.dim(), margins.dim());
            for (sum, margin) in sums.iter().zip(&margins) {
                assert!((sum - margin).abs() <= 4e-6 * largest, "{sum} {margin}");
            }
        }
        for (values, sums) in values.iter().zip(&matrices.sum_axis(Axis(3))) {
            assert!((values - sums).abs() <= 4e-6 * largest, "{values} {sums}");
        }
        // The expected margin of a background is its mean.
        let means = margins.slice(s![..40, ..]).mean_axis(Axis(0)).unwrap();
        for (mean, expected) in means.iter().zip(against.slice(s![0, .., 4])) {
            assert!((mean - expected).abs() <= 4e-6 * largest);
        }
    }
}

#[test]
fn gpus_and_layouts_give_the_same_bits() {
    let (x, _) = data();
    let turned = x.t().as_standard_layout().into_owned();
    for model in models() {
        let background = x.slice(s![..30, ..]);
        let all = |device: &Device, x: ArrayView2<'_, f32>| {
            let (values, report) = model.shap_values_on(device, x).unwrap();
            assert!(report.ran_only_on(device.backend()), "{report}");
            let (matrices, _) = model.shap_interaction_values_on(device, x).unwrap();
            let against = model.interventional_shap_on(device, x, background);
            [
                values.bit_hash(),
                matrices.bit_hash(),
                against.unwrap().0.bit_hash(),
            ]
        };
        let expected = all(&Device::cpu(), x.view());
        assert_eq!(all(&Device::cpu(), turned.t()), expected);
        for device in gpus() {
            assert_eq!(all(&device, x.view()), expected, "{device}");
        }
        // By the trait, an explainer, and after the file.
        let explainer = TreeExplainer::path_dependent(&model).unwrap();
        assert_eq!(
            explainer.shap_values(x.view()).unwrap().bit_hash(),
            expected[0]
        );
    }
}

#[test]
fn what_cannot_be_explained_is_refused() {
    let [model, ..] = models();
    let (x, _) = data();
    let narrow = x.slice(s![.., ..3]);
    let refused = |error: Error| matches!(error, Error::FeatureMismatch { .. });
    assert!(refused(model.shap_values(narrow).unwrap_err()));
    assert!(refused(model.shap_interaction_values(narrow).unwrap_err()));
    assert!(refused(
        model.interventional_shap(x.view(), narrow).unwrap_err()
    ));
    assert!(refused(
        model.interventional_shap(narrow, x.view()).unwrap_err()
    ));
    let none = x.slice(s![..0, ..]);
    let error = model.interventional_shap(x.view(), none).unwrap_err();
    assert!(matches!(error, Error::Empty { .. }), "{error}");
    assert_eq!(model.shap_values(none).unwrap().shape(), [0, 1, 5]);
    assert_eq!(
        model.shap_interaction_values(none).unwrap().shape(),
        [0, 1, 5, 5]
    );
    let bare = Trees {
        forest: model.forest().clone(),
        covers: None,
    };
    let error = bare.shap_values(x.view()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let explainer = TreeExplainer::interventional(&bare, x.view()).unwrap();
    let error = explainer.shap_interaction_values(x.view()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[test]
fn importances_have_means_and_shares() {
    let [model, ..] = models();
    let splits = model.feature_importance(Importance::Splits);
    for (total, mean) in [
        (Importance::Gain, Importance::MeanGain),
        (Importance::Cover, Importance::MeanCover),
    ] {
        let total = model.feature_importance(total);
        let mean = model.feature_importance(mean);
        for i in 0..4 {
            assert_eq!(mean[i], total[i] / splits[i].max(1.0));
        }
    }
    let shares = model.feature_importance_shares(Importance::Gain);
    assert!((shares.sum() - 1.0).abs() < 1e-12 && shares.iter().all(|&x| x >= 0.0));
    let (x, _) = data();
    let y = Array1::from_elem(300, 2.5);
    let flat = GradientBoosting::regressor().fit((&x, &y)).unwrap();
    for importance in [Importance::MeanGain, Importance::Gain, Importance::Splits] {
        let shares = flat.feature_importance_shares(importance);
        assert!(shares.iter().all(|&x| x == 0.0));
    }
    // No tree splits: all of the margin is expected.
    let values = flat.shap_values(x.view()).unwrap();
    let margin = flat.predict_margin(x.view()).unwrap();
    assert!(
        values
            .slice(s![.., .., ..4])
            .iter()
            .all(|&v| v.to_bits() == 0)
    );
    assert_eq!(values.slice(s![.., .., 4]), margin);
}

#[test]
fn permutations_rank_features_and_repeat() {
    let (x, y) = data();
    let model = GradientBoosting::regressor()
        .n_trees(20)
        .fit((&x, &y))
        .unwrap();
    let permutation = PermutationImportance::new().seed(Seed(3));
    let found = permutation.of(&model, x.view(), y.view()).unwrap();
    assert_eq!(found, permutation.of(&model, x.view(), y.view()).unwrap());
    assert_eq!(found.importances.dim(), (4, 5));
    assert_eq!(
        found.baseline,
        model.score(x.view(), y.view(), None).unwrap()
    );
    let more = permutation
        .n_repeats(7)
        .of(&model, x.view(), y.view())
        .unwrap();
    assert_eq!(more.importances.slice(s![.., ..5]), found.importances);
    let other = permutation.seed(Seed(4)).of(&model, x.view(), y.view());
    assert_ne!(other.unwrap().importances, found.importances);
    let mean = found.mean();
    for (i, row) in found.importances.rows().into_iter().enumerate() {
        assert!((row.mean().unwrap() - mean[i]).abs() < 1e-12);
        assert!((row.std(0.0) - found.std()[i]).abs() < 1e-12);
    }
    // The target is the second feature but for some noise.
    assert!([0, 2, 3].iter().all(|&other| mean[1] > mean[other]));
    // A score of predictions: the lesser error is the better.
    let by = permutation.by(x.view(), y.view(), |x, y| {
        Ok(-metrics::mean_squared_error(y, model.predict(x)?.view())?)
    });
    assert!(by.unwrap().mean()[1] > 0.0);
    let refused = permutation.n_repeats(0).of(&model, x.view(), y.view());
    assert!(matches!(refused, Err(Error::InvalidParameter { .. })));
    let refused = permutation.of(&model, x.view(), y.slice(s![..5]));
    assert!(matches!(refused, Err(Error::Shape { .. })));
    let refused = permutation.of(&model, x.slice(s![..0, ..]), y.slice(s![..0]));
    assert!(matches!(refused, Err(Error::Empty { .. })));
}

#[test]
fn dependence_takes_what_it_can_and_refuses_the_rest() {
    let (x, y) = data();
    let model = GradientBoosting::regressor()
        .n_trees(20)
        .fit((&x, &y))
        .unwrap();
    let predict = |x: ArrayView2<'_, f32>| model.predict(x);
    let found = PartialDependence::new().of(x.view(), 0, predict).unwrap();
    // The 29 different values, the missing ones left out.
    assert_eq!(found.grid, Array1::from_iter((0..29).map(|i| i as f32)));
    let mut set = x.clone();
    set.column_mut(0).fill(7.0);
    assert_eq!(
        found.individual.column(7),
        model.predict(set.view()).unwrap()
    );
    let spaced = PartialDependence::new()
        .grid_resolution(5)
        .percentiles(0.0, 1.0);
    let grid = spaced.of(x.view(), 0, predict).unwrap().grid;
    assert_eq!(grid.as_slice().unwrap(), [0.0, 7.0, 14.0, 21.0, 28.0]);
    let parameter = |result: Result<Dependence>| {
        assert!(
            matches!(result, Err(Error::InvalidParameter { .. })),
            "{result:?}"
        );
    };
    parameter(PartialDependence::new().of(x.view(), 4, predict));
    parameter(spaced.grid_resolution(1).of(x.view(), 0, predict));
    for (low, high) in [(0.5, 0.5), (-0.1, 0.5), (0.1, 1.1), (f64::NAN, 0.5)] {
        parameter(spaced.percentiles(low, high).of(x.view(), 0, predict));
    }
    let mut odd = x.clone();
    odd.column_mut(0).fill(1.0);
    for (i, value) in odd.column_mut(0).iter_mut().take(8).enumerate() {
        *value = i as f32;
    }
    parameter(spaced.percentiles(0.3, 0.7).of(odd.view(), 0, predict));
    odd.column_mut(0).fill(f32::NAN);
    let empty = spaced.of(odd.view(), 0, predict);
    assert!(matches!(empty, Err(Error::Empty { .. })));
    let short = spaced.of(x.view(), 0, |_| Ok(Array1::zeros(3)));
    assert!(matches!(short, Err(Error::Shape { .. })));
}
