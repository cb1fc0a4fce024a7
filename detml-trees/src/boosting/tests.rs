mod losses;

use super::*;
use detml_core::{
    Backend, BitHashed, CsvOptions, Error, ModelFile, Persist, Predict, PredictProba,
    ProgressEvent, Safetensors, Score,
};
use detml_kernels::Simd;
use ndarray::{Array1, Array2, ArrayView2, Axis, concatenate, s};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

/// An integer mix with full avalanche.
fn hash(seed: u32, i: usize) -> u32 {
    let mut x = (i as u32)
        .wrapping_add(seed.wrapping_mul(0x9e37_79b9))
        .wrapping_add(0x85eb_ca6b);
    x = (x ^ (x >> 16)).wrapping_mul(0x21f0_aaad);
    x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
    x ^ (x >> 15)
}

/// Numbers in -1..1, multiples of 2^-15.
pub(super) fn features(seed: u32, rows: usize, columns: usize) -> Array2<f32> {
    Array2::from_shape_fn((rows, columns), |(row, column)| {
        (hash(seed, row * columns + column) >> 16) as f32 / 32768.0 - 1.0
    })
}

pub(super) fn with_missing(mut x: Array2<f32>) -> Array2<f32> {
    for (i, value) in x.iter_mut().enumerate() {
        if hash(99, i).is_multiple_of(5) {
            *value = f32::NAN;
        }
    }
    x
}

/// A target with steps in the first columns, a NaN counting as -2.
pub(super) fn target(x: ArrayView2<'_, f32>) -> Array1<f32> {
    x.rows()
        .into_iter()
        .enumerate()
        .map(|(i, row)| {
            let at = |column: usize| match row.get(column) {
                Some(x) if x.is_nan() => -2.0,
                Some(x) => *x,
                None => 0.0,
            };
            let noise = (hash(5, i) >> 24) as f32 / 256.0;
            3.0 * at(0) + if at(1) > 0.25 { 2.0 } else { 0.0 } - at(2) * at(0) + noise
        })
        .collect()
}

pub(super) fn classes(y: &Array1<f32>) -> Array1<f32> {
    y.mapv(|y| if y > 0.5 { 1.0 } else { 0.0 })
}

pub(super) fn small() -> GradientBoosting {
    GradientBoosting::regressor()
        .n_trees(8)
        .max_depth(4)
        .learning_rate(0.3)
}

pub(super) fn shuffled(rows: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    order.sort_by_key(|&row| hash(31, row));
    order
}

pub(super) fn bits(values: &Array2<f32>) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn t1_missing_columns_one_row_and_nothing() {
    let mut x = features(1, 60, 3);
    let y = target(x.view());
    x.column_mut(1).fill(f32::NAN);
    let model = small().fit((&x, &y)).unwrap();
    assert_eq!(model.feature_importance(Importance::Splits)[1], 0.0);
    // A value where training had none changes nothing.
    let before = model.predict(x.view()).unwrap();
    x.column_mut(1).fill(0.5);
    assert_eq!(model.predict(x.view()).unwrap(), before);

    let none = Array2::from_elem((60, 3), f32::NAN);
    let model = small().fit((&none, &y)).unwrap();
    assert!(model.n_trees() == 8 && model.feature_importance(Importance::Splits).sum() == 0.0);
    let mean = y.iter().map(|&y| f64::from(y)).sum::<f64>() / 60.0;
    for p in model.predict(features(2, 9, 3).view()).unwrap() {
        assert!((f64::from(p) - mean).abs() < 1e-6);
    }

    let model = small()
        .fit((&x.slice(s![..1, ..]), &y.slice(s![..1])))
        .unwrap();
    assert_eq!(
        model.predict(x.view()).unwrap(),
        Array1::from_elem(60, y[0])
    );

    for empty in [x.slice(s![..0, ..]), x.slice(s![.., ..0])] {
        let y = y.slice(s![..empty.nrows()]);
        assert!(matches!(small().fit((empty, y)), Err(Error::Empty { .. })));
    }
}

#[test]
fn t2_the_order_of_rows_does_not_show() {
    let x = with_missing(features(2, 10_000, 5));
    let y = target(x.view());
    let weights: Array1<f32> = (0..10_000)
        .map(|i| (hash(8, i) % 1000) as f32 * 0.01 + 0.001)
        .collect();
    let order = shuffled(10_000);
    let (x2, y2, w2) = (
        x.select(Axis(0), &order),
        y.select(Axis(0), &order),
        weights.select(Axis(0), &order),
    );
    let model = small().fit((&x, &y)).unwrap();
    assert_eq!(
        small().fit((&x2, &y2)).unwrap().bit_hash(),
        model.bit_hash()
    );
    let weighted = small().fit((&x, &y, &weights)).unwrap();
    assert_ne!(weighted.bit_hash(), model.bit_hash());
    assert_eq!(
        small().fit((&x2, &y2, &w2)).unwrap().bit_hash(),
        weighted.bit_hash()
    );
    let labels = y.mapv(|y| y.floor().clamp(-2.0, 2.0));
    let boosting = || GradientBoosting::classifier().n_trees(3).max_depth(3);
    let one = boosting().fit((&x, &labels)).unwrap();
    let two = boosting()
        .fit((&x2, &labels.select(Axis(0), &order)))
        .unwrap();
    assert_eq!(one.bit_hash(), two.bit_hash());
}

#[test]
fn t3_the_order_of_columns_shows_only_in_ties() {
    let x = features(3, 3000, 6);
    let y = target(x.view());
    let order = [4, 2, 5, 0, 3, 1];
    let one = small().fit((&x, &y)).unwrap();
    let two = small().fit((&x.select(Axis(1), &order), &y)).unwrap();
    let held_out = features(4, 500, 6);
    assert_eq!(
        bits(&one.predict_margin(held_out.view()).unwrap()),
        bits(
            &two.predict_margin(held_out.select(Axis(1), &order).view())
                .unwrap()
        )
    );
    // Two equal columns tie in every split: only the first is used.
    let twice = concatenate![Axis(1), x.slice(s![.., ..2]), x.slice(s![.., ..2])];
    let splits = small()
        .fit((&twice, &y))
        .unwrap()
        .feature_importance(Importance::Splits);
    assert!(splits[0] > 0.0 && splits[1] > 0.0 && splits[2] == 0.0 && splits[3] == 0.0);
}

#[test]
fn t4_scales_of_features_do_not_matter() {
    let x = features(4, 2000, 3);
    let y = target(x.view());
    let expected = small().fit((&x, &y)).unwrap();
    let expected = expected.predict(x.view()).unwrap();
    // Multiples of 2^-15 up to 1: exact under powers of two, distinct under the others.
    for factor in [1e-38, 100.0, 3e37, 1e-30] {
        let scaled = x.mapv(|x| x * factor);
        let model = small().fit((&scaled, &y)).unwrap();
        assert_eq!(
            model.predict(scaled.view()).unwrap(),
            expected,
            "x {factor:e}"
        );
    }
    // Resolution is lost, but rows that still differ are told apart.
    for lossy in [x.mapv(|x| x * 1e-42), x.mapv(|x| x + 1e7)] {
        let distinct = lossy
            .iter()
            .map(|x| x.to_bits())
            .collect::<std::collections::BTreeSet<_>>()
            .len();
        assert!(distinct > 1 && distinct < 2000);
        let model = small().fit((&lossy, &y)).unwrap();
        let r2 = model.score(lossy.view(), y.view(), None).unwrap();
        assert!(r2 > 0.5, "{r2}");
    }
}

#[test]
fn t5_few_values_and_full_bins() {
    let steps = |values: &[f32], bins: usize, y: &[f32]| {
        let x = Array2::from_shape_fn((values.len() * 20, 1), |(row, _)| {
            values[row % values.len()]
        });
        let y: Array1<f32> = (0..x.nrows()).map(|row| y[row % values.len()]).collect();
        let boosting = GradientBoosting::regressor()
            .n_trees(1)
            .learning_rate(1.0)
            .l2(0.0)
            .max_depth(12);
        let model = boosting.max_bins(bins).fit((&x, &y)).unwrap();
        let table = Array2::from_shape_vec((values.len(), 1), values.to_vec()).unwrap();
        model.predict(table.view()).unwrap().to_vec()
    };
    let two = steps(&[-1.0, 0.0, 1.0], 2, &[0.0, 0.0, 6.0]);
    assert_eq!(two, [0.0, 0.0, 6.0]);
    let three = steps(&[-1.0, 0.0, 1.0, f32::NAN], 3, &[4.0, 0.0, 2.0, 8.0]);
    assert_eq!(three, [4.0, 0.0, 2.0, 8.0]);
    for low in [1.0f32, -1.0, 1e-45, -1e-45, 0.0, f32::MAX] {
        let high = low.next_up();
        assert_eq!(steps(&[low, high], 255, &[1.0, 3.0]), [1.0, 3.0], "{low:e}");
    }
    assert_eq!(steps(&[-0.0, 0.0], 255, &[1.0, 3.0]), [2.0, 2.0]);
    let values: Vec<f32> = (0..255).map(|i| (i * i) as f32 - 9000.0).collect();
    let y: Vec<f32> = (0..255).map(|i| (i * 4) as f32).collect();
    assert_eq!(steps(&values, 255, &y), y);
}

#[test]
fn t6_infinities_and_missing_values_go_where_training_sent_them() {
    let values = [f32::NEG_INFINITY, -1.0, f32::MAX, f32::INFINITY, f32::NAN];
    let x = Array2::from_shape_fn((100, 1), |(row, _)| values[row % 5]);
    for (i, odd) in values.iter().enumerate() {
        let y: Array1<f32> = (0..100)
            .map(|row| if row % 5 == i { 8.0 } else { 0.0 })
            .collect();
        let model = GradientBoosting::regressor()
            .n_trees(1)
            .learning_rate(1.0)
            .l2(0.0)
            .fit((&x, &y))
            .unwrap();
        let p = model.predict(x.view()).unwrap();
        assert_eq!(p, y, "{odd}");
    }
}

#[test]
fn t7_without_missing_values_they_go_left() {
    let x = features(7, 4000, 4);
    let y = target(x.view());
    let model = GradientBoosting::regressor()
        .n_trees(30)
        .fit((&x, &y))
        .unwrap();
    let file = model.to_model_file();
    let left: Vec<u32> = file.vector("left").unwrap();
    let missing: Vec<u8> = file.vector("missing_left").unwrap();
    assert!(left.iter().filter(|&&left| left != 0).count() > 500);
    assert!(missing.iter().all(|&left| left == 1));
    // With missing values both sides are learned.
    let x = with_missing(x);
    let y = target(x.view()).mapv(|y| y * y);
    let model = GradientBoosting::regressor()
        .n_trees(30)
        .fit((&x, &y))
        .unwrap();
    let missing: Vec<u8> = model.to_model_file().vector("missing_left").unwrap();
    assert!(missing.contains(&0));
}

#[test]
fn t8_weights_of_any_size_and_zero() {
    let x = with_missing(features(8, 1200, 4));
    let y = target(x.view());
    let draw = |i: usize| (hash(12, i) % 100) as f32 * 0.01 + 0.5;
    for scale in [1e7, 1e-7, 1.0] {
        let weights: Array1<f32> = (0..1200).map(|i| draw(i) * scale).collect();
        let boosting = small().subsample(0.7).l2(scale).min_child_weight(scale);
        let model = boosting.fit((&x, &y, &weights)).unwrap();
        let r2 = model.score(x.view(), y.view(), None).unwrap();
        assert!(r2 > 0.8, "weights near {scale:e}: {r2}");
    }
    let weights: Array1<f32> = (0..1200)
        .map(|i| {
            if hash(13, i).is_multiple_of(3) {
                0.0
            } else {
                draw(i)
            }
        })
        .collect();
    let rows: Vec<usize> = (0..1200).filter(|&i| weights[i] > 0.0).collect();
    let (x2, y2, w2) = (
        x.select(Axis(0), &rows),
        y.select(Axis(0), &rows),
        weights.select(Axis(0), &rows),
    );
    for boosting in [small(), small().subsample(0.5)] {
        let zero = boosting.fit((&x, &y, &weights)).unwrap();
        let absent = boosting.fit((&x2, &y2, &w2)).unwrap();
        assert_eq!(zero.bit_hash(), absent.bit_hash());
    }
}

#[test]
fn t9_a_model_trained_between_two_rounds_changes_nothing() {
    let x = features(9, 500, 3);
    let y = target(x.view());
    let alone = small().fit((&x, &y)).unwrap();
    let other = (features(10, 400, 2), Arc::new(Mutex::new(Vec::new())));
    let (x2, hashes) = (other.0, Arc::clone(&other.1));
    let progress = Progress::new(move |_: &ProgressEvent<'_>| {
        let y2 = target(x2.view());
        hashes
            .lock()
            .unwrap()
            .push(small().fit((&x2, &y2)).unwrap().bit_hash());
        ControlFlow::Continue(())
    });
    let between = small().progress(progress).fit((&x, &y)).unwrap();
    assert_eq!(between.bit_hash(), alone.bit_hash());
    let hashes = other.1.lock().unwrap();
    assert!(hashes.len() == 8 && hashes.iter().all(|hash| *hash == hashes[0]));
}

/// The number of blocks that rows are cut into follows the number of threads.
#[test]
fn t10_threads_shards_and_levels_do_not_show() {
    let x = with_missing(features(10, 40_000, 7));
    let y = target(x.view());
    let labels = classes(&y);
    let weights: Array1<f32> = (0..40_000).map(|i| (hash(8, i) % 8) as f32 + 0.5).collect();
    let fits: [&(dyn Fn(&Device) -> GradientBoostingModel + Sync); 2] = [
        &|device| {
            let design = (&x, &labels).into_design().unwrap();
            GradientBoosting::classifier()
                .n_trees(3)
                .fit_on(device, &design)
                .unwrap()
        },
        &|device| {
            let design = (&x, &y, &weights).into_design().unwrap();
            let boosting = GradientBoosting::regressor()
                .n_trees(3)
                .subsample(0.5)
                .colsample_bytree(0.6);
            boosting
                .colsample_bynode(0.7)
                .fit_on(device, &design)
                .unwrap()
        },
    ];
    for fit in fits {
        let expected = fit(&Device::cpu_with(Simd::Plain));
        let held_out = with_missing(features(11, 1000, 7));
        let predicted = bits(&expected.predict_margin(held_out.view()).unwrap());
        for simd in Simd::available() {
            for threads in [1, 2, 7] {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .build()
                    .unwrap();
                let model = pool.install(|| fit(&Device::cpu_with(simd)));
                assert_eq!(
                    model.bit_hash(),
                    expected.bit_hash(),
                    "{simd:?}, {threads} threads"
                );
                let other = pool.install(|| model.predict_margin(held_out.view()).unwrap());
                assert_eq!(bits(&other), predicted, "{simd:?}, {threads} threads");
            }
        }
    }
}

/// A category is the number of its code: nested splits part any set of them, and one that training
/// hadn't is a missing value.
#[test]
fn t11_categories_are_their_codes() {
    // No threshold and no single category parts these ten from the rest.
    let y: Array1<f32> = Array1::from(vec![0.0, 6.0, 0.0, 6.0, 6.0, 0.0, 0.0, 0.0, 6.0, 0.0]);
    let codes = Array2::from_shape_fn((10, 1), |(row, _)| row as f32);
    let exact = |depth| {
        GradientBoosting::regressor()
            .n_trees(1)
            .learning_rate(1.0)
            .l2(0.0)
            .base_score(0.0)
            .max_depth(depth)
    };
    let stump = exact(1).fit((&codes, &y)).unwrap();
    assert!(stump.score(codes.view(), y.view(), None).unwrap() < 0.5);
    let deep = exact(9).fit((&codes, &y)).unwrap();
    assert_eq!(deep.predict(codes.view()).unwrap(), y);

    // A text that the training set hasn't is NaN; a code beyond all goes with the greatest.
    let text = "c,y\nred,6\nblue,0\nred,6\nlime,0\n";
    let options = CsvOptions::new().categorical("c");
    let train = options.clone().read(text.as_bytes(), "train").unwrap();
    let test = options
        .categories_of(&train)
        .read("c,y\nviolet,0\nred,0\n".as_bytes(), "test")
        .unwrap();
    let model = exact(4).fit(&train.target("y").unwrap()).unwrap();
    let test = test.target("y").unwrap();
    assert!(test.features()[[0, 0]].is_nan());
    // Without missing values in training they go to the left, to `blue`.
    assert_eq!(model.predict(test.features()).unwrap().to_vec(), [0.0, 6.0]);
    let beyond = Array2::from_elem((1, 1), 99.0);
    assert_eq!(model.predict(beyond.view()).unwrap().to_vec(), [6.0]);

    // A category of one row among others.
    let lone = Array2::from_shape_fn((301, 1), |(row, _)| {
        if row == 77 {
            1.0
        } else {
            row as f32 % 2.0 * 2.0
        }
    });
    let y = lone.column(0).mapv(|c| if c == 1.0 { 40.0 } else { c });
    let model = exact(3).fit((&lone, &y)).unwrap();
    assert_eq!(model.predict(lone.view()).unwrap(), y);

    // More categories than bins: some neighbours share one.
    let many = Array2::from_shape_fn((900, 1), |(row, _)| (row % 300) as f32);
    let y = many.column(0).to_owned();
    let model = exact(12).fit((&many, &y)).unwrap();
    assert!(model.score(many.view(), y.view(), None).unwrap() > 0.99);
    let predicted = model.predict(many.slice(s![..300, ..])).unwrap();
    let distinct: std::collections::BTreeSet<u32> = predicted.iter().map(|p| p.to_bits()).collect();
    assert!(distinct.len() <= 255 && distinct.len() > 200);
}

/// The GPUs that this build can use, the first of each backend; absent ones read OWED, and fail
/// with `DETML_REQUIRE_DEVICES` set.
pub(crate) fn gpus() -> Vec<Device> {
    [
        (Backend::Cuda(0), cfg!(feature = "cuda")),
        (Backend::Hip(0), cfg!(feature = "hip")),
        (Backend::Wgpu(0), cfg!(feature = "wgpu")),
    ]
    .into_iter()
    .filter(|(_, built)| *built)
    .filter_map(|(backend, _)| match Device::for_backend(backend) {
        Err(Error::DeviceUnavailable { device, reason })
            if std::env::var_os("DETML_REQUIRE_DEVICES").is_none() =>
        {
            println!("OWED {device}: {reason}");
            None
        }
        device => Some(device.unwrap()),
    })
    .collect()
}

/// Eval sets with early stopping, weights and samples included.
#[test]
fn t10_gpus_do_not_show() {
    let x = with_missing(features(10, 600, 7));
    let y = target(x.view());
    let labels = classes(&y);
    let weights: Array1<f32> = (0..600).map(|i| (hash(8, i) % 8) as f32).collect();
    let held_out = with_missing(features(11, 200, 7));
    let held_out_y = target(held_out.view());
    let fits: [&dyn Fn(&Device) -> GradientBoostingModel; 2] = [
        &|device| {
            let design = (&x, &labels).into_design().unwrap();
            let boosting = GradientBoosting::classifier().n_trees(5).max_depth(3);
            boosting.fit_on(device, &design).unwrap()
        },
        &|device| {
            let design = (&x, &y, &weights).into_design().unwrap();
            GradientBoosting::regressor()
                .n_trees(12)
                .max_depth(3)
                .learning_rate(1.0)
                .subsample(0.5)
                .colsample_bytree(0.6)
                .colsample_bynode(0.7)
                .eval_set("held out", (&held_out, &held_out_y))
                .early_stopping_rounds(2)
                .fit_on(device, &design)
                .unwrap()
        },
    ];
    let expected = fits.map(|fit| fit(&Device::cpu()));
    for device in gpus() {
        for (fit, expected) in fits.iter().zip(&expected) {
            let model = fit(&device);
            assert_eq!(model.bit_hash(), expected.bit_hash(), "{device}");
            assert_eq!(model.history(), expected.history(), "{device}");
        }
    }
}

#[test]
fn t12_models_with_little_to_learn() {
    let x = features(12, 300, 3);
    let y = target(x.view());
    let mean = y.iter().map(|&y| f64::from(y)).sum::<f64>() / 300.0;
    let flat = small().max_depth(0).fit((&x, &y)).unwrap();
    assert_eq!(flat.feature_importance(Importance::Splits).sum(), 0.0);
    for p in flat.predict(x.view()).unwrap() {
        assert!((f64::from(p) - mean).abs() < 1e-6);
    }
    for constant in [0.1f32, -3e38, 1e-45, 0.0] {
        let model = small()
            .l2(0.0)
            .fit((&x, &Array1::from_elem(300, constant)))
            .unwrap();
        assert_eq!(model.base_scores(), [constant]);
        assert_eq!(
            model.predict(x.view()).unwrap(),
            Array1::from_elem(300, constant)
        );
        assert_eq!(model.feature_importance(Importance::Splits).sum(), 0.0);
    }
    let one = small().n_trees(1).fit((&x, &y)).unwrap();
    assert_eq!((one.n_trees(), one.n_rounds()), (1, 1));
    let single = GradientBoosting::classifier()
        .fit((&x, &Array1::from_elem(300, 7.0)))
        .unwrap();
    assert_eq!(single.classes(), [7.0]);
    assert_eq!(
        single.predict(x.view()).unwrap(),
        Array1::from_elem(300, 7.0)
    );
    assert_eq!(
        single.predict_proba(x.view()).unwrap(),
        Array2::from_elem((300, 1), 1.0)
    );
    assert_eq!(single.n_trees(), 0);
    // No rows to predict.
    assert_eq!(one.predict(x.slice(s![..0, ..])).unwrap().len(), 0);
}

/// An `f64` that is no `f32` rounds once, on the way in: what training saw is what prediction
/// sees.
#[test]
fn t13_f64_rounds_once() {
    let low = 1.0f32;
    let high = low.next_up();
    // Just above half way: nearest to `high`, though both f64 neighbours lie between the two.
    let middle = (f64::from(low) + f64::from(high)) / 2.0;
    let values = [
        f64::from(low),
        middle.next_up(),
        middle.next_down(),
        f64::from(high),
    ];
    let x = Array2::from_shape_fn((80, 1), |(row, _)| values[row % 4]);
    let y: Array1<f64> = (0..80).map(|row| [0.0, 8.0, 0.0, 8.0][row % 4]).collect();
    let model = GradientBoosting::regressor()
        .n_trees(1)
        .learning_rate(1.0)
        .l2(0.0)
        .fit((&x, &y))
        .unwrap();
    let p = model.predict(x.mapv(|x| x as f32).view()).unwrap();
    assert_eq!(p.mapv(f64::from), y);
}

/// No loss ranks yet, so groups have no say: of one row each, of equal labels, in any order.
#[test]
fn t14_groups_do_not_show_without_a_ranking_loss() {
    let x = features(27, 200, 3);
    let y = target(x.view());
    let constant = Array1::from_elem(200, 1.0f32);
    for y in [&y, &constant] {
        let plain = small().fit((&x, y)).unwrap().bit_hash();
        let one_each: Vec<u32> = (0..200).collect();
        let unsorted: Vec<u32> = (0..200).map(|row| hash(3, row) % 7).collect();
        for groups in [one_each, unsorted, vec![5; 200]] {
            let design = (&x, y).into_design().unwrap().with_groups(groups).unwrap();
            let model = small().fit_on(&Device::cpu(), &design).unwrap();
            assert_eq!(model.bit_hash(), plain);
        }
    }
    let design = (&x, &y).into_design().unwrap();
    let short = design.with_groups(vec![0; 199]);
    assert!(matches!(short, Err(Error::Shape { .. })));
}

#[test]
fn classes_may_be_any_whole_numbers() {
    let x = features(14, 900, 4);
    let y = target(x.view());
    let labels = y.mapv(|y| {
        if y < -1.0 {
            -3.0
        } else if y < 1.5 {
            2.0
        } else {
            1e6
        }
    });
    let model = GradientBoosting::classifier()
        .n_trees(15)
        .fit((&x, &labels))
        .unwrap();
    assert_eq!(model.classes(), [-3.0, 2.0, 1e6]);
    assert_eq!(
        (model.n_outputs(), model.n_trees(), model.loss()),
        (3, 45, Loss::Softmax)
    );
    assert!(model.score(x.view(), labels.view(), None).unwrap() > 0.9);
    let p = model.predict_proba(x.view()).unwrap();
    for row in p.rows() {
        assert!((row.sum() - 1.0).abs() < 1e-5);
    }
    // Two classes by softmax agree with logistic about most rows.
    let two = classes(&y);
    let logistic = GradientBoosting::classifier()
        .n_trees(15)
        .fit((&x, &two))
        .unwrap();
    let softmax = GradientBoosting::classifier()
        .n_trees(15)
        .loss(Loss::Softmax)
        .fit((&x, &two))
        .unwrap();
    assert_eq!((logistic.n_outputs(), softmax.n_outputs()), (1, 2));
    let (a, b) = (
        logistic.predict(x.view()).unwrap(),
        softmax.predict(x.view()).unwrap(),
    );
    let agree = a.iter().zip(&b).filter(|(a, b)| a == b).count();
    assert!(agree > 860, "{agree}");
}

#[test]
fn early_stopping_keeps_the_best_round() {
    let x = features(15, 400, 3);
    let y = target(x.view());
    let (held_x, held_y) = (
        features(16, 200, 3),
        target(features(16, 200, 3).view()).mapv(|y| y + 0.3),
    );
    let boosting = GradientBoosting::regressor()
        .n_trees(200)
        .learning_rate(0.5);
    let model = boosting
        .clone()
        .eval_set("train", (&x, &y))
        .eval_set("held out", (&held_x, &held_y))
        .early_stopping_rounds(5)
        .fit((&x, &y))
        .unwrap();
    let [train, held] = model.history() else {
        panic!("two eval sets")
    };
    assert_eq!(
        (train.name.as_str(), held.name.as_str(), held.metric),
        ("train", "held out", Metric::Rmse)
    );
    let rounds = model.n_rounds();
    assert!(
        rounds < 200 && held.values.len() == rounds + 5,
        "{rounds} of {}",
        held.values.len()
    );
    let best = held.values.iter().copied().fold(f64::INFINITY, f64::min);
    assert_eq!(held.values[rounds - 1], best);
    assert!(held.values[..rounds - 1].iter().all(|&value| value > best));
    // What was followed is what prediction gives, and the trees are those of a shorter fit.
    let p = model.predict(held_x.view()).unwrap();
    let rmse = detml_core::metrics::root_mean_squared_error(held_y.view(), p.view()).unwrap();
    assert_eq!(rmse, best);
    let short = boosting.n_trees(rounds).fit((&x, &y)).unwrap();
    assert_eq!(
        bits(&short.predict_margin(held_x.view()).unwrap()),
        bits(&model.predict_margin(held_x.view()).unwrap())
    );
}

#[test]
fn every_metric_is_followed() {
    let x = with_missing(features(17, 300, 3));
    let y = target(x.view());
    let labels = classes(&y);
    let three = y.mapv(|y| y.floor().clamp(0.0, 2.0));
    let weights = Array1::from_elem(300, 2.0f32);
    for (metric, labels) in [
        (Metric::LogLoss, &labels),
        (Metric::Accuracy, &labels),
        (Metric::Auc, &labels),
        (Metric::LogLoss, &three),
        (Metric::Accuracy, &three),
    ] {
        let model = GradientBoosting::classifier()
            .n_trees(5)
            .eval_set("plain", (&x, labels))
            .eval_set("weighted", (&x, labels, &weights))
            .eval_metric(metric)
            .fit((&x, labels))
            .unwrap();
        let [plain, weighted] = model.history() else {
            panic!("two eval sets")
        };
        assert!(
            metric.better(plain.values[4], plain.values[0]),
            "{metric:?} {:?}",
            plain.values
        );
        assert!((plain.values[4] - weighted.values[4]).abs() < 1e-12);
    }
    for metric in [Metric::Rmse, Metric::Mae] {
        let model = small()
            .eval_set("train", (&x, &y))
            .eval_metric(metric)
            .fit((&x, &y))
            .unwrap();
        let values = &model.history()[0].values;
        assert!(metric.better(values[7], values[0]), "{metric:?} {values:?}");
    }
}

#[test]
fn a_callback_may_stop_the_fit() {
    let x = features(18, 100, 2);
    let y = target(x.view());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let progress = Progress::new(move |event: &ProgressEvent<'_>| {
        let measures: Vec<String> = event
            .measures
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        told.lock()
            .unwrap()
            .push((event.step, event.steps, measures));
        if event.step == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let result = small()
        .eval_set("held out", (&x, &y))
        .progress(progress)
        .fit((&x, &y));
    assert!(matches!(result, Err(Error::Stopped { .. })));
    let held = || vec!["held out".to_owned()];
    assert_eq!(
        *seen.lock().unwrap(),
        [(1, 8, held()), (2, 8, held()), (3, 8, held())]
    );
}

#[test]
fn importances_add_up() {
    let x = features(19, 2000, 5);
    let y = x.column(3).mapv(|x| if x > 0.1 { 1.0 } else { 0.0 });
    let model = small().fit((&x, &y)).unwrap();
    let gain = model.feature_importance(Importance::Gain);
    assert!(gain[3] > 0.99 * gain.sum());
    let splits = model.feature_importance(Importance::Splits);
    let file = model.to_model_file();
    let inner = file
        .vector::<u32>("left")
        .unwrap()
        .iter()
        .filter(|&&left| left != 0)
        .count();
    assert_eq!(splits.sum(), inner as f64);
    // The first split of each tree covers all rows, each of Hessian 1.
    assert!(model.feature_importance(Importance::Cover)[3] >= 2000.0);
}

#[test]
fn settings_outside_their_domain_are_refused_by_name() {
    let x = features(20, 30, 2);
    let y = target(x.view());
    let regressor = GradientBoosting::regressor;
    for (name, boosting) in [
        ("n_trees", regressor().n_trees(0)),
        ("max_bins", regressor().max_bins(1)),
        ("max_bins", regressor().max_bins(256)),
        ("max_depth", regressor().max_depth(33)),
        ("learning_rate", regressor().learning_rate(f32::NAN)),
        ("learning_rate", regressor().learning_rate(0.0)),
        ("l1", regressor().l1(-1.0)),
        ("l2", regressor().l2(f32::INFINITY)),
        ("min_child_weight", regressor().min_child_weight(f32::NAN)),
        ("min_split_gain", regressor().min_split_gain(-0.5)),
        ("subsample", regressor().subsample(0.0)),
        ("subsample", regressor().subsample(1.5)),
        ("colsample_bytree", regressor().colsample_bytree(f32::NAN)),
        ("colsample_bylevel", regressor().colsample_bylevel(-1.0)),
        ("colsample_bynode", regressor().colsample_bynode(2.0)),
        ("base_score", regressor().base_score(f32::NAN)),
        ("loss", regressor().loss(Loss::Logistic)),
        (
            "early_stopping_rounds",
            regressor().early_stopping_rounds(0),
        ),
        (
            "early_stopping_rounds",
            regressor().early_stopping_rounds(3),
        ),
        ("eval_metric", regressor().eval_metric(Metric::Auc)),
    ] {
        match boosting.fit((&x, &y)) {
            Err(Error::InvalidParameter { name: got, .. }) => assert_eq!(got, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn bad_data_is_refused() {
    let x = features(21, 30, 2);
    let y = target(x.view());
    let labels = classes(&y);
    let classifier = GradientBoosting::classifier;
    assert!(matches!(small().fit(&x), Err(Error::Unsupported { .. })));
    assert!(matches!(
        small().fit((&x, &y.slice(s![..29]))),
        Err(Error::Shape { .. })
    ));
    let mut bad = y.clone();
    bad[4] = f32::NAN;
    assert!(matches!(
        small().fit((&x, &bad)),
        Err(Error::NonFinite { row: 4, .. })
    ));
    assert!(matches!(
        classifier().fit((&x, &y)),
        Err(Error::LabelOutOfRange { .. })
    ));
    let odd = classifier()
        .n_trees(2)
        .eval_set("odd", (&x, &Array1::from_elem(30, 5.0)));
    assert!(matches!(
        odd.fit((&x, &labels)),
        Err(Error::LabelOutOfRange { .. })
    ));
    let narrow = small().eval_set("narrow", (&x.slice(s![.., ..1]), &y));
    assert!(matches!(
        narrow.fit((&x, &y)),
        Err(Error::FeatureMismatch { .. })
    ));
    let short = small().eval_set("short", (&x, &y.slice(s![..3])));
    assert!(matches!(short.fit((&x, &y)), Err(Error::Shape { .. })));
    let model = small().fit((&x, &y)).unwrap();
    assert!(matches!(
        model.predict(x.slice(s![.., ..1])),
        Err(Error::FeatureMismatch { .. })
    ));
    assert!(matches!(
        model.predict_proba(x.view()),
        Err(Error::Unsupported { .. })
    ));
    let model = classifier().n_trees(2).fit((&x, &labels)).unwrap();
    let unknown = Array1::from_elem(30, 3.0);
    assert!(matches!(
        model.score(x.view(), unknown.view(), None),
        Err(Error::LabelOutOfRange { .. })
    ));
    // Gradients beyond binary32.
    let huge: Array1<f32> = (0..30)
        .map(|i| if i % 2 == 0 { f32::MAX } else { f32::MIN })
        .collect();
    let far = small().base_score(f32::MAX);
    assert!(matches!(far.fit((&x, &huge)), Err(Error::NonFinite { .. })));
}

fn example() -> (Array2<f32>, GradientBoostingModel) {
    let x = with_missing(features(22, 300, 4));
    let y = target(x.view()).mapv(|y| y.floor().clamp(0.0, 2.0));
    let boosting = GradientBoosting::classifier()
        .n_trees(4)
        .eval_set("train", (&x, &y));
    (x.clone(), boosting.fit((&x, &y)).unwrap())
}

#[test]
fn models_come_back_bit_for_bit() {
    let folder = std::env::temp_dir().join(format!("detml-trees-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("model.safetensors");
    let (x, model) = example();
    model.save(&path).unwrap();
    let read = GradientBoostingModel::load(&path).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(read.bit_hash(), model.bit_hash());
    assert_eq!(read.history(), model.history());
    assert_eq!(read.classes(), model.classes());
    assert_eq!(
        bits(&read.predict_proba(x.view()).unwrap()),
        bits(&model.predict_proba(x.view()).unwrap())
    );
    assert_eq!(
        read.feature_importance(Importance::Gain),
        model.feature_importance(Importance::Gain)
    );
}

/// Case F4: damaged and hostile files give errors, never a panic or an endless loop.
#[test]
fn f4_damaged_files_are_refused() {
    let (_, model) = example();
    let bytes = model.to_model_file().to_bytes();
    let read = |bytes: &[u8]| {
        ModelFile::from_bytes(bytes).and_then(|file| GradientBoostingModel::from_model_file(&file))
    };
    assert!(read(&bytes).is_ok());
    for cut in (0..bytes.len()).step_by(7) {
        assert!(
            matches!(read(&bytes[..cut]), Err(Error::ModelFile { .. })),
            "cut at {cut}"
        );
    }
    let content = Safetensors::from_bytes(&bytes).unwrap();
    let left = model.to_model_file().vector::<u32>("left").unwrap();
    let inner = left.iter().rposition(|&left| left != 0).unwrap();
    let changed = |name: &str, at: usize, value: [u8; 4]| {
        let mut content = content.clone();
        let tensor = &content.tensors[name];
        let mut data = tensor.bytes().to_vec();
        data[4 * at..][..4].copy_from_slice(&value);
        let tensor =
            detml_core::Tensor::new(tensor.dtype(), tensor.shape().to_vec(), data).unwrap();
        content.tensors.insert(name.into(), tensor);
        read(&content.to_bytes())
    };
    for (name, at, value) in [
        ("left", inner, [0, 0, 0, 0]),
        ("left", inner, inner.to_le_bytes()[..4].try_into().unwrap()),
        ("left", 0, [0xff; 4]),
        ("left", left.len() - 1, [1, 0, 0, 0]),
        ("feature", inner, [4, 0, 0, 0]),
        ("threshold", inner, f32::NAN.to_le_bytes()),
        ("value", left.len() - 1, f32::INFINITY.to_le_bytes()),
        ("gain", inner, (-1f32).to_le_bytes()),
        ("cover", inner, f32::NAN.to_le_bytes()),
        ("starts", 1, [0, 0, 0, 0]),
        ("classes", 0, 9f32.to_le_bytes()),
        ("base", 1, f32::NEG_INFINITY.to_le_bytes()),
    ] {
        let result = changed(name, at, value);
        assert!(
            matches!(result, Err(Error::ModelFile { .. })),
            "{name}[{at}]: {result:?}"
        );
    }
    // Any byte changed: either refused, or another model that predicts without harm.
    let x = features(23, 20, 4);
    for at in (0..bytes.len()).step_by(11) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        if let Ok(model) = read(&bytes) {
            model.predict_margin(x.view()).unwrap();
        }
    }
    let file = ModelFile::new("GradientBoosting").with_param("loss", "squared");
    assert!(matches!(
        GradientBoostingModel::from_model_file(&file),
        Err(Error::ModelFile { .. })
    ));
    let file = model.to_model_file().with_slice("extra", &[1u32]);
    assert!(matches!(
        GradientBoostingModel::from_model_file(&file),
        Err(Error::ModelFile { .. })
    ));
}

/// A model fitted elsewhere is what the contract gives: these bits are fixed.
#[test]
fn the_bits_are_fixed() {
    let x = with_missing(features(24, 2000, 6));
    let y = target(x.view());
    let regressor = small().fit((&x, &y)).unwrap();
    let classifier = GradientBoosting::classifier()
        .n_trees(5)
        .fit((&x, &classes(&y)))
        .unwrap();
    let three = y.mapv(|y| y.floor().clamp(0.0, 2.0));
    let softmax = GradientBoosting::classifier()
        .n_trees(2)
        .subsample(0.7)
        .colsample_bytree(0.7)
        .fit((&x, &three))
        .unwrap();
    let hashes = [regressor, classifier, softmax].map(|model| model.bit_hash().to_string());
    assert_eq!(
        hashes,
        [
            "34cf63ba18111534d6f6ec6249d71683",
            "cee60821d1ff381970ce41200bb7a9bf",
            "36333f3e65697db579da4f2ac24c9f5b"
        ]
    );
}

#[test]
fn one_input_one_ulp_shows() {
    let x = features(25, 500, 3);
    let mut y = target(x.view());
    let before = small().fit((&x, &y)).unwrap();
    y[250] = y[250].next_up();
    assert_ne!(small().fit((&x, &y)).unwrap().bit_hash(), before.bit_hash());
}
