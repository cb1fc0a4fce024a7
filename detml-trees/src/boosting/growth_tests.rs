//! Leaf-wise growth and constraints.

use super::tests::{bits, classes, features, gpus, shuffled, small, target, with_missing};
use super::*;
use detml_core::Error;
use detml_core::prelude::*;
use ndarray::{Array2, ArrayView2, Axis};

/// Builders of each kind of growth for data of six features.
fn kinds() -> Vec<(&'static str, GradientBoosting)> {
    let leafwise = small()
        .grow_policy(GrowPolicy::LossGuide)
        .max_leaves(9)
        .max_depth(12);
    let monotone = small().monotone_constraints([1, 0, -1, 0, 1, 0]);
    vec![
        ("leaf-wise", leafwise.clone()),
        ("few leaves", small().max_leaves(9)),
        ("symmetric", small().grow_policy(GrowPolicy::Symmetric)),
        ("monotone", monotone.clone()),
        (
            "interactions",
            small().interaction_constraints([vec![0, 1], vec![1, 2, 3]]),
        ),
        (
            "all",
            leafwise
                .monotone_constraints([1, 0, -1, 0, 1, 0])
                .interaction_constraints([vec![0, 1], vec![1, 2, 3]]),
        ),
    ]
}

#[test]
fn growth_t2_the_order_of_rows_does_not_show() {
    let x = with_missing(features(41, 3000, 6));
    let y = target(features(41, 3000, 6).view());
    let order = shuffled(3000);
    for (what, boosting) in kinds() {
        let one = boosting.fit((&x, &y)).unwrap();
        let (x, y) = (x.select(Axis(0), &order), y.select(Axis(0), &order));
        assert_eq!(
            one.bit_hash(),
            boosting.fit((&x, &y)).unwrap().bit_hash(),
            "{what}"
        );
    }
}

#[test]
fn growth_t3_of_equal_columns_the_first_is_used() {
    let x = features(43, 2000, 3);
    let y = target(x.view());
    let twice = ndarray::concatenate![Axis(1), x, x];
    for (what, boosting) in kinds() {
        if what == "symmetric" {
            let splits = boosting.fit((&twice, &y)).unwrap();
            let splits = splits.feature_importance(Importance::Splits);
            assert!(splits.iter().take(3).sum::<f64>() > 0.0, "{what}");
            assert_eq!(splits.iter().skip(3).sum::<f64>(), 0.0, "{what}");
            continue;
        }
        // The second columns' ways are those of the first ones here.
        let boosting = boosting.monotone_constraints([1, 0, -1, 1, 0, -1]);
        let boosting = boosting.interaction_constraints([[0, 1, 2, 3, 4, 5]]);
        let splits = boosting
            .fit((&twice, &y))
            .unwrap()
            .feature_importance(Importance::Splits);
        assert!(splits.iter().take(3).sum::<f64>() > 0.0, "{what}");
        assert_eq!(splits.iter().skip(3).sum::<f64>(), 0.0, "{what}");
    }
}

#[test]
fn growth_t10_gpus_and_threads_do_not_show() {
    let x = with_missing(features(45, 3000, 6));
    let y = classes(&target(features(45, 3000, 6).view()));
    for (what, boosting) in kinds() {
        let boosting = match what {
            "all" => GradientBoosting::classifier()
                .n_trees(4)
                .subsample(0.7)
                .colsample_bynode(0.8)
                .grow_policy(GrowPolicy::LossGuide)
                .max_depth(20)
                .monotone_constraints([1, 0, -1, 0, 1, 0])
                .interaction_constraints([vec![0, 1], vec![1, 2, 3]]),
            _ => boosting,
        };
        let expected = boosting.fit((&x, &y)).unwrap();
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let model = pool.unwrap().install(|| boosting.fit((&x, &y))).unwrap();
            assert_eq!(model.bit_hash(), expected.bit_hash(), "{what} {threads}");
        }
        for device in gpus() {
            let design = (&x, &y).into_design().unwrap();
            let model = boosting.fit_on(&device, &design).unwrap();
            assert_eq!(model.bit_hash(), expected.bit_hash(), "{what} {device:?}");
        }
    }
}

/// Predictions over a grid of one feature's values, others as in some rows.
fn over_grid(
    model: &GradientBoostingModel,
    x: ArrayView2<'_, f32>,
    feature: usize,
) -> Vec<Vec<f32>> {
    let grid: Vec<f32> = (0..60).map(|i| (i - 30) as f32 / 30.0).collect();
    x.rows()
        .into_iter()
        .step_by(53)
        .map(|row| {
            let mut points = Array2::zeros((grid.len(), x.ncols()));
            for (mut point, value) in points.rows_mut().into_iter().zip(&grid) {
                point.assign(&row);
                point[feature] = *value;
            }
            bits(&model.predict_margin(points.view()).unwrap())
                .into_iter()
                .map(f32::from_bits)
                .collect()
        })
        .collect()
}

#[test]
fn predictions_keep_to_monotone_constraints() {
    let x = features(47, 2500, 6);
    let y = target(x.view());
    let ways = [1i8, -1, 1, -1, 1, -1];
    let leafwise = |boosting: GradientBoosting| {
        boosting
            .grow_policy(GrowPolicy::LossGuide)
            .max_leaves(20)
            .max_depth(32)
    };
    for (what, boosting) in [
        ("depth-wise", small().n_trees(25)),
        ("leaf-wise", leafwise(small()).n_trees(25)),
        (
            "penalties",
            small().n_trees(25).l1(0.5).l2(0.0).min_child_weight(0.0),
        ),
    ] {
        let free = boosting.fit((&x, &y)).unwrap();
        let bound = boosting
            .clone()
            .monotone_constraints(ways)
            .fit((&x, &y))
            .unwrap();
        let against = |model: &GradientBoostingModel| {
            let of = |feature: usize| {
                let way = f32::from(ways[feature]);
                let lines = over_grid(model, x.view(), feature);
                let falls = |line: &Vec<f32>| line.windows(2).any(|p| (p[1] - p[0]) * way < 0.0);
                lines.iter().filter(|line| falls(line)).count()
            };
            (0..6).map(of).sum::<usize>()
        };
        assert!(against(&free) > 0, "{what}");
        assert_eq!(against(&bound), 0, "{what}");
        assert!(
            bound.feature_importance(Importance::Splits).sum() > 25.0,
            "{what}"
        );
    }
}

#[test]
fn constraints_by_name_are_those_by_number() {
    let x = features(48, 500, 3);
    let y = target(x.view());
    let data = Dataset::from_arrays(x, y)
        .unwrap()
        .with_feature_names(["a", "b", "c"])
        .unwrap();
    let by_number = small()
        .monotone_constraints([0, -1, 0])
        .interaction_constraints([[0, 2]]);
    let by_name = small()
        .monotone_constraint("b", -1)
        .interaction_constraints([["a", "c"]]);
    assert_eq!(
        by_number.fit(&data).unwrap().bit_hash(),
        by_name.fit(&data).unwrap().bit_hash()
    );
}

#[test]
fn growth_and_constraints_outside_their_domain_are_refused_by_name() {
    let x = features(49, 30, 2);
    let y = target(x.view());
    for (name, boosting) in [
        ("max_leaves", small().max_leaves(1)),
        ("max_leaves", small().max_leaves(131_073)),
        (
            "max_leaves",
            small().grow_policy(GrowPolicy::Symmetric).max_leaves(8),
        ),
        (
            "max_depth",
            small().grow_policy(GrowPolicy::Symmetric).max_depth(17),
        ),
        (
            "colsample_bynode",
            small()
                .grow_policy(GrowPolicy::Symmetric)
                .colsample_bynode(0.5),
        ),
        (
            "monotone_constraints",
            small()
                .grow_policy(GrowPolicy::Symmetric)
                .monotone_constraints([1, 0]),
        ),
        (
            "interaction_constraints",
            small()
                .grow_policy(GrowPolicy::Symmetric)
                .interaction_constraints([[0, 1]]),
        ),
        ("monotone_constraints", small().monotone_constraints([0, 2])),
        ("monotone_constraints", small().monotone_constraint(2, 1)),
        ("monotone_constraints", small().monotone_constraint(-1, 1)),
        ("monotone_constraints", small().monotone_constraint("a", 1)),
        (
            "interaction_constraints",
            small().interaction_constraints([[0, 0]]),
        ),
        (
            "interaction_constraints",
            small().interaction_constraints([[0, 2]]),
        ),
        (
            "interaction_constraints",
            small().interaction_constraints([["a"]]),
        ),
        (
            "interaction_constraints",
            small().interaction_constraints([Vec::<usize>::new()]),
        ),
    ] {
        match boosting.fit((&x, &y)) {
            Err(Error::InvalidParameter { name: got, .. }) => assert_eq!(got, name),
            other => panic!("{name}: {other:?}"),
        }
    }
    let short = small().monotone_constraints([1]).fit((&x, &y)).unwrap_err();
    assert!(matches!(short, Error::Shape { .. }), "{short}");
}

/// The bits of models that are grown otherwise.
#[test]
fn the_bits_of_growth_are_fixed() {
    let x = with_missing(features(51, 700, 6));
    let y = target(features(51, 700, 6).view());
    let hashes: Vec<String> = kinds()
        .into_iter()
        .map(|(what, boosting)| format!("{what} {}", boosting.fit((&x, &y)).unwrap().bit_hash()))
        .collect();
    assert_eq!(hashes, HASHES);
}

const HASHES: [&str; 6] = [
    "leaf-wise 4482457134a3239b1bb458cb8df5110a",
    "few leaves 46de3b34b0655548e0ae2a8e4bdf9601",
    "symmetric 8245c7f5ea513d0b65adac87f396e4f7",
    "monotone a2b64d11a84d82b48bc2fc8a73c5908e",
    "interactions 32ed4463d2a5d00865ece433108ba687",
    "all 24ba6c2b8857de9f61278001490ee023",
];
