//! Losses, their starts, class weights, metrics and objectives of one's own.

use super::*;

const REGRESSORS: [Loss; 11] = [
    Loss::Squared,
    Loss::Absolute,
    Loss::Quantile { alpha: 0.3 },
    Loss::huber(),
    Loss::pseudo_huber(),
    Loss::Expectile { alpha: 0.7 },
    Loss::Mape,
    Loss::poisson(),
    Loss::Gamma,
    Loss::tweedie(),
    Loss::SquaredLog,
];

/// Targets above 0, so that every loss takes them.
fn positive(x: ArrayView2<'_, f32>) -> Array1<f32> {
    target(x).mapv(|y| (y + 12.0) * 0.25)
}

/// Half squared error as an objective of one's own.
struct Squares;

impl Objective for Squares {
    fn name(&self) -> &str {
        "squares"
    }

    fn gradient(&self, margin: f32, target: f32) -> [f32; 2] {
        [margin - target, 1.0]
    }

    fn base_score(&self) -> f32 {
        0.5
    }
}

#[test]
fn every_loss_of_a_regressor_learns_with_the_same_bits_everywhere() {
    let x = with_missing(features(40, 900, 4));
    let y = positive(x.view());
    let weights: Array1<f32> = (0..900).map(|i| (hash(8, i) % 8) as f32 * 0.25).collect();
    let design = (&x, &y, &weights).into_design().unwrap();
    let order = shuffled(900);
    let (x2, y2, w2) = (
        x.select(Axis(0), &order),
        y.select(Axis(0), &order),
        weights.select(Axis(0), &order),
    );
    let turned = (&x2, &y2, &w2).into_design().unwrap();
    for loss in REGRESSORS {
        let boosting = GradientBoosting::regressor()
            .loss(loss)
            .n_trees(12)
            .max_depth(3)
            .min_child_weight(0.1)
            .learning_rate(0.3);
        let without = boosting.fit(&design).unwrap().bit_hash();
        assert_eq!(
            boosting.fit(&turned).unwrap().bit_hash(),
            without,
            "{loss:?}"
        );
        let boosting = boosting.eval_set("train", (&x, &y, &weights));
        let expected = boosting
            .fit_on(&Device::cpu_with(Simd::Plain), &design)
            .unwrap();
        assert_eq!(expected.loss(), loss);
        let values = &expected.history()[0].values;
        assert!(values[11] < 0.9 * values[0], "{loss:?}: {values:?}");
        let held_out = with_missing(features(41, 200, 4));
        let p = bits(&expected.predict_targets(held_out.view()).unwrap());
        for device in Simd::available()
            .into_iter()
            .map(Device::cpu_with)
            .chain(gpus())
        {
            let model = boosting.fit_on(&device, &design).unwrap();
            assert_eq!(
                model.bit_hash(),
                expected.bit_hash(),
                "{loss:?} on {device}"
            );
            assert!(
                model
                    .report()
                    .entries()
                    .iter()
                    .all(|e| e.fallback.is_none())
            );
            let (other, _) = model.predict_targets_on(&device, held_out.view()).unwrap();
            assert_eq!(bits(&other), p, "{loss:?} on {device}");
        }
        let bytes = expected.to_model_file().to_bytes();
        let read = GradientBoostingModel::from_model_file(&ModelFile::from_bytes(&bytes).unwrap());
        let read = read.unwrap();
        assert_eq!((read.loss(), read.bit_hash()), (loss, expected.bit_hash()));
        assert_eq!(read.history(), expected.history());
        let positive = matches!(
            loss,
            Loss::Poisson { .. } | Loss::Gamma | Loss::Tweedie { .. }
        );
        if positive {
            let margins = expected.predict_margin(held_out.view()).unwrap();
            assert!(margins.iter().zip(&p).all(|(m, &p)| {
                let p = f64::from(f32::from_bits(p));
                p > 0.0 && (f64::from(*m).exp() / p - 1.0).abs() < 1e-6
            }));
        }
        assert!(
            expected
                .score(x.view(), y.view(), Some(weights.view()))
                .unwrap()
                > 0.1
        );
    }
}

#[test]
fn fits_start_at_the_best_constant() {
    let x = features(42, 5, 1);
    let y = Array1::from(vec![1.0, 2.0, 4.0, 8.0, 16.0]);
    let weights = Array1::from(vec![1.0, 1.0, 1.0, 1.0, 4.0]);
    let start = |loss: Loss, weighted: bool| {
        let boosting = GradientBoosting::regressor().loss(loss).n_trees(1);
        let model = match weighted {
            true => boosting.fit((&x, &y, &weights)),
            false => boosting.fit((&x, &y)),
        };
        model.unwrap().base_scores()[0]
    };
    assert_eq!([false, true].map(|w| start(Loss::Squared, w)), [6.2, 9.875]);
    assert_eq!([false, true].map(|w| start(Loss::huber(), w)), [6.2, 9.875]);
    assert_eq!([false, true].map(|w| start(Loss::Absolute, w)), [4.0, 8.0]);
    let quantile = Loss::Quantile { alpha: 0.25 };
    assert_eq!([false, true].map(|w| start(quantile, w)), [2.0, 2.0]);
    // Relative weights 1, 1/2, 1/4, 1/8 and 1/16 or 1/4.
    assert_eq!([false, true].map(|w| start(Loss::Mape, w)), [1.0, 2.0]);
    for loss in [Loss::poisson(), Loss::Gamma, Loss::tweedie()] {
        assert!((f64::from(start(loss, false)) - 6.2f64.ln()).abs() < 1e-6);
    }
    let logs: f64 = y.iter().map(|&y: &f64| y.ln_1p()).sum();
    assert!((f64::from(start(Loss::SquaredLog, false)) - (logs / 5.0).exp_m1()).abs() < 1e-5);
    let own = GradientBoosting::regressor().objective(Squares).n_trees(1);
    assert_eq!(own.fit((&x, &y)).unwrap().base_scores(), [0.5]);
    let nothing = Array1::<f32>::zeros(5);
    for loss in [Loss::poisson(), Loss::tweedie()] {
        let boosting = GradientBoosting::regressor().loss(loss).n_trees(1);
        let refused = boosting.fit((&x, &nothing));
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
        boosting.base_score(-3.0).fit((&x, &nothing)).unwrap();
    }
}

#[test]
fn several_targets_are_as_many_models() {
    let x = with_missing(features(43, 600, 4));
    let first = target(x.view());
    let y = Array2::from_shape_fn((600, 3), |(row, k)| {
        first[row] * (k as f32 - 0.5) + k as f32
    });
    let weights: Array1<f32> = (0..600).map(|i| (hash(9, i) % 5) as f32).collect();
    let weighted = small()
        .eval_set("train", (&x, &y, &weights))
        .fit((&x, &y, &weights))
        .unwrap();
    let model = small().fit((&x, &y)).unwrap();
    assert_eq!(
        (model.n_outputs(), model.n_trees(), model.n_rounds()),
        (3, 24, 8)
    );
    let together = model.predict_targets(x.view()).unwrap();
    for k in 0..3 {
        let alone = small().fit((&x, &y.column(k))).unwrap();
        assert_eq!(alone.predict(x.view()).unwrap(), together.column(k));
        let alone = small().fit((&x, &y.column(k), &weights)).unwrap();
        let p = weighted.predict_targets(x.view()).unwrap();
        assert_eq!(alone.predict(x.view()).unwrap(), p.column(k));
    }
    // The metric is of all numbers of the table.
    let p = weighted.predict_targets(x.view()).unwrap();
    let (mut sum, mut total) = (0.0, 0.0);
    for ((row, k), &y) in y.indexed_iter() {
        let w = f64::from(weights[row]);
        sum += w * (f64::from(y) - f64::from(p[[row, k]])).powi(2);
        total += w;
    }
    let rmse = weighted.history()[0].values[7];
    assert!((rmse - (sum / total).sqrt()).abs() < 1e-9);
    for device in gpus() {
        let design = (&x, &y).into_design().unwrap();
        let there = small().fit_on(&device, &design).unwrap();
        assert_eq!(there.bit_hash(), model.bit_hash());
    }
    let file = model.to_model_file();
    let read = GradientBoostingModel::from_model_file(&file).unwrap();
    assert_eq!(read.bit_hash(), model.bit_hash());
    assert!(matches!(
        model.predict(x.view()),
        Err(Error::Unsupported { .. })
    ));
    let one = first.view();
    assert!(matches!(
        model.score(x.view(), one, None),
        Err(Error::Unsupported { .. })
    ));
    for refused in [
        small().loss(Loss::Absolute).fit((&x, &y)),
        GradientBoosting::classifier().fit((&x, &y)),
    ] {
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
    }
    let odd = small().eval_set("odd", (&x, &first)).fit((&x, &y));
    assert!(matches!(odd, Err(Error::Shape { .. })));
}

#[test]
fn class_weights_are_weights() {
    let x = features(44, 400, 3);
    let labels = target(x.view()).mapv(|y| y.floor().clamp(-1.0, 1.0));
    let weights: Array1<f32> = (0..400).map(|i| (hash(7, i) % 4) as f32).collect();
    let boosting = || GradientBoosting::classifier().n_trees(3).max_depth(3);
    let times = |of: &dyn Fn(f32) -> f32| -> Array1<f32> {
        labels
            .iter()
            .zip(&weights)
            .map(|(&label, w)| w * of(label))
            .collect()
    };
    let given = ClassWeight::Explicit(vec![(1.0, 2.5), (-1.0, 0.5)]);
    let explicit = boosting()
        .class_weight(given)
        .fit((&x, &labels, &weights))
        .unwrap();
    let factor = |label: f32| [0.5, 1.0, 2.5][(label + 1.0) as usize];
    let expected = boosting().fit((&x, &labels, &times(&factor))).unwrap();
    assert_eq!(explicit.bit_hash(), expected.bit_hash());

    let of = |label: f32| -> f32 {
        let rows = labels.iter().zip(&weights).filter(|(l, _)| **l == label);
        rows.map(|(_, w)| w).sum()
    };
    let total: f32 = weights.sum();
    let balanced = boosting()
        .class_weight(ClassWeight::Balanced)
        .fit((&x, &labels, &weights))
        .unwrap();
    let expected = boosting()
        .fit((&x, &labels, &times(&|label| total / of(label) / 3.0)))
        .unwrap();
    assert_eq!(balanced.bit_hash(), expected.bit_hash());

    let two = labels.mapv(|y| y.max(0.0));
    let scaled = boosting().scale_pos_weight(3.0).fit((&x, &two)).unwrap();
    let by_hand = two.mapv(|y| if y == 1.0 { 3.0 } else { 1.0 });
    let expected = boosting().fit((&x, &two, &by_hand)).unwrap();
    assert_eq!(scaled.bit_hash(), expected.bit_hash());
}

#[test]
fn one_against_all_others() {
    let x = with_missing(features(45, 700, 4));
    let labels = target(x.view()).mapv(|y| y.floor().clamp(-1.0, 2.0));
    let boosting = GradientBoosting::classifier()
        .loss(Loss::OneVsAll)
        .n_trees(15)
        .eval_set("train", (&x, &labels));
    let model = boosting.fit((&x, &labels)).unwrap();
    assert_eq!((model.n_outputs(), model.loss()), (4, Loss::OneVsAll));
    assert!(model.score(x.view(), labels.view(), None).unwrap() > 0.9);
    let p = model.predict_proba(x.view()).unwrap();
    let margins = model.predict_margin(x.view()).unwrap();
    for (p, m) in p.rows().into_iter().zip(margins.rows()) {
        assert!((p.sum() - 1.0).abs() < 1e-6);
        let one: Vec<f64> = m
            .iter()
            .map(|&m| 1.0 / (1.0 + f64::from(-m).exp()))
            .collect();
        let sum: f64 = one.iter().sum();
        assert!(
            p.iter()
                .zip(&one)
                .all(|(&p, q)| (f64::from(p) - q / sum).abs() < 1e-6)
        );
    }
    // Each class is a logistic model of its own.
    for (k, &class) in model.classes().iter().enumerate() {
        let own = labels.mapv(|y| f32::from(y == class));
        let alone = GradientBoosting::classifier()
            .n_trees(15)
            .fit((&x, &own))
            .unwrap();
        let alone = alone.predict_margin(x.view()).unwrap();
        assert_eq!(alone.column(0), margins.column(k));
    }
    for device in gpus() {
        let design = (&x, &labels).into_design().unwrap();
        let there = boosting.fit_on(&device, &design).unwrap();
        assert_eq!(there.bit_hash(), model.bit_hash());
        let (q, _) = there.predict_proba_on(&device, x.view()).unwrap();
        assert_eq!(bits(&q), bits(&p));
    }
    let one = Array1::from_elem(700, 2.0);
    let refused = boosting.fit((&x, &one));
    assert!(matches!(refused, Err(Error::InvalidParameter { .. })));
}

#[test]
fn an_objective_of_ones_own() {
    let x = with_missing(features(46, 500, 3));
    let y = target(x.view());
    let weights: Array1<f32> = (0..500).map(|i| (hash(9, i) % 5) as f32).collect();
    let design = (&x, &y, &weights).into_design().unwrap();
    let expected = small().base_score(0.5).fit(&design).unwrap();
    let own = small().objective(Squares).subsample(1.0);
    for device in [Device::cpu()].into_iter().chain(gpus()) {
        let model = own.fit_on(&device, &design).unwrap();
        assert_eq!(
            (model.loss(), model.objective()),
            (Loss::Custom, Some("squares"))
        );
        assert_eq!(
            bits(&model.predict_margin(x.view()).unwrap()),
            bits(&expected.predict_margin(x.view()).unwrap())
        );
        let ran = model
            .report()
            .entries()
            .iter()
            .find(|e| e.operation == "objective");
        let ran = ran.unwrap();
        assert_eq!(ran.fallback.is_some(), !device.is_cpu());
        let read = GradientBoostingModel::from_model_file(&model.to_model_file()).unwrap();
        assert_eq!(read.objective(), Some("squares"));
        assert_eq!(read.bit_hash(), model.bit_hash());
    }
    struct Bad(f32, f32);
    impl Objective for Bad {
        fn name(&self) -> &str {
            "bad"
        }
        fn gradient(&self, _: f32, _: f32) -> [f32; 2] {
            [self.0, self.1]
        }
    }
    let negative = small().objective(Bad(1.0, -1.0)).fit((&x, &y));
    assert!(
        matches!(negative, Err(Error::InvalidValue { .. })),
        "{negative:?}"
    );
    for bad in [
        Bad(f32::NAN, 1.0),
        Bad(1.0, f32::NAN),
        Bad(f32::INFINITY, 1.0),
    ] {
        let lost = small().objective(bad).fit((&x, &y));
        assert!(matches!(lost, Err(Error::NonFinite { .. })), "{lost:?}");
    }
    let classes = GradientBoosting::classifier().objective(Squares);
    let refused = classes.fit((&x, &super::classes(&y)));
    assert!(matches!(refused, Err(Error::InvalidParameter { .. })));
    let refused = small().loss(Loss::Custom).fit((&x, &y));
    assert!(matches!(refused, Err(Error::InvalidParameter { .. })));
}

#[test]
fn metrics_of_ones_own_and_by_name() {
    let x = features(47, 300, 3);
    let y = positive(x.view());
    let labels = classes(&target(x.view()));
    let fit = |boosting: GradientBoosting| boosting.eval_set("train", (&x, &y)).fit((&x, &y));
    for metric in [
        Metric::Rmse,
        Metric::Mae,
        Metric::Mape,
        Metric::Pinball { alpha: 0.1 },
        Metric::Expectile { alpha: 0.3 },
        Metric::Huber { delta: 0.9 },
        Metric::PseudoHuber { delta: 1.0 },
        Metric::PoissonDeviance,
        Metric::GammaDeviance,
        Metric::TweedieDeviance {
            variance_power: 1.2,
        },
        Metric::Rmsle,
    ] {
        let model = fit(small().eval_metric(metric).base_score(1.0)).unwrap();
        let values = &model.history()[0].values;
        assert!(metric.better(values[7], values[0]), "{metric:?} {values:?}");
        let read = GradientBoostingModel::from_model_file(&model.to_model_file()).unwrap();
        assert_eq!(read.history(), model.history());
    }
    for metric in [Metric::Error, Metric::AucPr] {
        let model = GradientBoosting::classifier()
            .n_trees(8)
            .max_depth(2)
            .eval_set("train", (&x, &labels))
            .eval_metric(metric)
            .fit((&x, &labels))
            .unwrap();
        let values = &model.history()[0].values;
        assert!(metric.better(values[7], values[0]), "{metric:?} {values:?}");
    }
    let worst = |y: &[f32], p: &[f32], weights: Option<&[f32]>| {
        assert!(y.len() == 300 && p.len() == 300 && weights.is_none());
        let errors = y.iter().zip(p).map(|(y, p)| f64::from((y - p).abs()));
        -errors.fold(0.0, f64::max)
    };
    let boosting = small().custom_metric("worst@all", Direction::Higher, worst);
    let model = fit(boosting
        .early_stopping_rounds(3)
        .n_trees(500)
        .learning_rate(0.9))
    .unwrap();
    let history = &model.history()[0];
    assert_eq!(history.own_name.as_deref(), Some("worst@all"));
    let best = history
        .values
        .iter()
        .copied()
        .fold(f64::NEG_INFINITY, f64::max);
    assert_eq!(history.values[model.n_rounds() - 1], best);
    let read = GradientBoostingModel::from_model_file(&model.to_model_file()).unwrap();
    assert_eq!(read.history(), model.history());
}

#[test]
fn losses_and_weights_outside_their_domain_are_refused_by_name() {
    let x = features(48, 30, 2);
    let y = target(x.view());
    let labels = classes(&y);
    let three: Array1<f32> = (0..30).map(|i| (i % 3) as f32).collect();
    let regressor = |loss| GradientBoosting::regressor().loss(loss);
    let classifier = GradientBoosting::classifier;
    let weights = |given| classifier().class_weight(ClassWeight::Explicit(given));
    let name_of = |result: Result<GradientBoostingModel>| match result {
        Err(Error::InvalidParameter { name, .. }) => name.to_string(),
        other => panic!("{other:?}"),
    };
    for (name, boosting) in [
        ("alpha", regressor(Loss::Quantile { alpha: 1.0 })),
        ("alpha", regressor(Loss::Expectile { alpha: f32::NAN })),
        ("delta", regressor(Loss::Huber { delta: 0.0 })),
        ("delta", regressor(Loss::PseudoHuber { delta: -1.0 })),
        (
            "max_delta_step",
            regressor(Loss::Poisson {
                max_delta_step: -0.1,
            }),
        ),
        (
            "variance_power",
            regressor(Loss::Tweedie {
                variance_power: 2.0,
            }),
        ),
        ("loss", regressor(Loss::OneVsAll)),
        (
            "class_weight",
            regressor(Loss::Squared).class_weight(ClassWeight::Balanced),
        ),
        (
            "scale_pos_weight",
            regressor(Loss::Squared).scale_pos_weight(2.0),
        ),
        (
            "eval_metric",
            regressor(Loss::Squared).eval_metric(Metric::Error),
        ),
        (
            "eval_metric",
            regressor(Loss::Squared).eval_metric(Metric::Custom(Direction::Lower)),
        ),
        (
            "alpha",
            regressor(Loss::Squared).eval_metric(Metric::Pinball { alpha: -1.0 }),
        ),
        (
            "delta",
            regressor(Loss::Squared).eval_metric(Metric::Huber { delta: f32::NAN }),
        ),
    ] {
        assert_eq!(name_of(boosting.fit((&x, &y))), name);
    }
    for (name, boosting) in [
        ("loss", classifier().loss(Loss::Absolute)),
        ("scale_pos_weight", classifier().scale_pos_weight(0.0)),
        ("scale_pos_weight", classifier().scale_pos_weight(f32::NAN)),
        ("class_weight", weights(vec![(7.0, 1.0)])),
        ("class_weight", weights(vec![(1.0, 1.0), (1.0, 2.0)])),
        ("class_weight", weights(vec![(1.0, -1.0)])),
        ("eval_metric", classifier().eval_metric(Metric::Mae)),
    ] {
        assert_eq!(name_of(boosting.fit((&x, &labels))), name);
    }
    assert_eq!(
        name_of(classifier().loss(Loss::Logistic).fit((&x, &three))),
        "loss"
    );
    assert_eq!(
        name_of(classifier().scale_pos_weight(2.0).fit((&x, &three))),
        "scale_pos_weight"
    );
    let lost = weights(vec![(1.0, 1e-30)]).fit((&x, &labels, &Array1::from_elem(30, 1e-30f32)));
    assert!(matches!(lost, Err(Error::InvalidValue { .. })), "{lost:?}");
    for (loss, bad) in [
        (Loss::Gamma, 0.0),
        (Loss::poisson(), -1.0),
        (Loss::tweedie(), -1.0),
        (Loss::SquaredLog, -1.0),
    ] {
        let mut y = y.mapv(f32::abs);
        y += 0.5;
        y[3] = bad;
        let refused = regressor(loss).fit((&x, &y));
        assert!(
            matches!(refused, Err(Error::LabelOutOfRange { row: 3, .. })),
            "{refused:?}"
        );
    }
    // What files may not say.
    let model = regressor(Loss::Quantile { alpha: 0.25 })
        .n_trees(1)
        .fit((&x, &y))
        .unwrap();
    let file = model.to_model_file();
    let read = |file: &ModelFile| GradientBoostingModel::from_model_file(file);
    assert_eq!(read(&file).unwrap().loss(), Loss::Quantile { alpha: 0.25 });
    for file in [
        file.clone().with_param("loss", "median"),
        file.clone().with_param("loss", "absolute"),
        file.clone().with_param("loss", "custom"),
        file.clone().with_param("loss", "tweedie"),
        file.clone().with_slice("loss_parameter", &[1.5f32]),
        file.clone().with_slice("loss_parameter", &[0.25f32, 0.25]),
        file.clone().with_param("objective", "squares"),
    ] {
        assert!(matches!(read(&file), Err(Error::ModelFile { .. })));
    }
    read(&file.with_slice("loss_parameter", &[0.75f32])).unwrap();
}
