//! Data sets: building, splitting, reading the data in `fixtures/data`.

use detml_core::{BitHashed, CsvOptions, Dataset, Error, Labels, Seed, write_npy};
use ndarray::{Array1, Array2, array};

fn small() -> Dataset {
    let x = Array2::from_shape_fn((10, 3), |(i, j)| (10 * i + j) as f32);
    Dataset::from_arrays(x, Array1::from_iter((0..10).map(|i| (i % 2) as f32)))
        .unwrap()
        .with_weights(Array1::from_iter((0..10).map(|i| i as f32)))
        .unwrap()
        .with_groups((0..10).map(|i| i / 3).collect())
        .unwrap()
}

#[test]
fn rows_carry_all_their_parts() {
    let rows = small().take_rows(&[9, 0, 9]).unwrap();
    assert_eq!(rows.features().column(1), array![91.0, 1.0, 91.0]);
    assert_eq!(rows.labels().unwrap(), array![1.0, 0.0, 1.0]);
    assert_eq!(rows.weights().unwrap(), array![9.0, 0.0, 9.0]);
    assert_eq!(rows.groups().unwrap(), [3, 0, 3]);
    assert!(matches!(
        small().take_rows(&[0, 10]),
        Err(Error::InvalidValue { row: 1, .. })
    ));
}

#[test]
fn columns_by_name() {
    let data = small().with_feature_names(["a", "b", "c"]).unwrap();
    let chosen = data.clone().select_columns(&["c", "a"]).unwrap();
    assert_eq!(chosen.feature_names(), ["c", "a"]);
    assert_eq!(chosen.features().row(1), array![12.0, 10.0]);
    assert_eq!(chosen.labels(), data.labels());
    let missing = data.clone().select_columns(&["d"]).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "no column `d` in the data set; it has `a`, `b`, `c`"
    );
    assert!(data.clone().select_columns(&["a", "a"]).is_err());
    assert!(data.clone().with_feature_names(["a", "b"]).is_err());
    assert!(data.clone().with_feature_names(["a", "b", "a"]).is_err());
    assert!(matches!(data.target("a"), Err(Error::Unsupported { .. })));

    let data = Dataset::from_features(array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    assert!(data.labels().is_err());
    let data = data.target("x1").unwrap().weights_column("x2").unwrap();
    assert_eq!(data.features(), array![[1.0], [4.0]]);
    assert_eq!(data.labels().unwrap(), array![2.0, 5.0]);
    assert_eq!(data.weights().unwrap(), array![3.0, 6.0]);
    assert_eq!(data.target_name(), Some("x1"));
}

#[test]
fn splits_depend_on_the_seed_alone() {
    let data = small();
    let (train, test) = data.split(0.75, Seed(7)).unwrap();
    // 7.5 rounds up.
    assert_eq!((train.n_rows(), test.n_rows()), (8, 2));
    let rows = |data: &Dataset| -> Vec<u32> {
        data.features()
            .column(0)
            .iter()
            .map(|v| *v as u32 / 10)
            .collect()
    };
    let (mut all, last) = (rows(&train), rows(&test));
    assert!(all.is_sorted() && last.is_sorted());
    all.extend(last);
    all.sort_unstable();
    assert_eq!(all, (0..10).collect::<Vec<u32>>());
    let again = data.split(0.75, Seed(7)).unwrap();
    assert_eq!(again.0.bit_hash(), train.bit_hash());
    let other = data.split(0.75, Seed(8)).unwrap();
    assert_ne!(other.0.bit_hash(), train.bit_hash());

    for bad in [0.0, 1.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            data.split(bad, Seed(7)),
            Err(Error::InvalidParameter { .. })
        ));
    }
    assert!(matches!(
        data.split(0.01, Seed(7)),
        Err(Error::Empty { .. })
    ));
}

#[test]
fn stratified_splits_share_the_classes() {
    let x = Array2::zeros((100, 1));
    let y = Array1::from_iter((0..100).map(|i| if i < 20 { 5.0 } else { 3.0 }));
    let data = Dataset::from_arrays(x, y).unwrap();
    let (train, test) = data.split_stratified(0.8, Seed(1)).unwrap();
    let fives = |data: &Dataset| data.labels().unwrap().iter().filter(|&&y| y == 5.0).count();
    assert_eq!((fives(&train), fives(&test)), (16, 4));
    assert_eq!(train.n_rows(), 80);
}

#[test]
fn l5_labels_need_not_count_from_zero() {
    let labels = Labels::new(array![-0.0, 7.0, -3.0, 0.0].view()).unwrap();
    assert_eq!(labels.classes(), [-3.0, 0.0, 7.0]);
    assert_eq!(labels.codes(), [1, 2, 0, 1]);
    assert!(labels.classes()[1].is_sign_positive());
    for bad in [f32::NAN, f32::INFINITY, 1.5, f32::from_bits(1)] {
        assert!(matches!(
            Labels::new(array![0.0, bad].view()),
            Err(Error::LabelOutOfRange { row: 1, .. })
        ));
    }
    // A class only in the test set.
    let unseen = detml_core::encode_labels(labels.classes(), array![7.0, 1.0].view());
    assert_eq!(
        unseen.unwrap_err().to_string(),
        "label at row 1: expected one of [-3.0, 0.0, 7.0], got 1"
    );
}

#[test]
fn one_changed_bit_changes_the_hash() {
    let hash = small().bit_hash();
    assert_eq!(hash, small().bit_hash());
    let renamed = small().with_feature_names(["a", "b", "c"]).unwrap();
    let reweighted = small().with_weights(Array1::ones(10)).unwrap();
    let regrouped = small().with_groups(vec![0; 10]).unwrap();
    for other in [renamed, reweighted, regrouped] {
        assert_ne!(hash, other.bit_hash());
    }
}

fn fixture(name: &str) -> String {
    format!("{}/../fixtures/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_real_data_is_what_its_readme_says() {
    for (name, target, rows, features, classes) in [
        ("flights.csv.gz", "late", 100_000, 17, 2),
        ("breast_cancer.csv", "benign", 569, 30, 2),
        ("wine.csv", "cultivar", 178, 13, 3),
        ("digits.csv.gz", "digit", 1797, 64, 10),
    ] {
        let data = Dataset::from_csv(fixture(name))
            .unwrap()
            .target(target)
            .unwrap();
        assert_eq!(
            (data.n_rows(), data.n_features()),
            (rows, features),
            "{name}"
        );
        let labels = Labels::new(data.labels().unwrap()).unwrap();
        assert!(
            labels
                .classes()
                .iter()
                .copied()
                .eq((0..classes).map(|k| k as f32))
        );
        let missing = data.features().iter().filter(|v| v.is_nan()).count();
        assert_eq!(missing > 0, name == "flights.csv.gz");
        assert!(!data.features().iter().any(|v| v.is_infinite()));
    }
    let diabetes = Dataset::from_csv(fixture("diabetes.csv")).unwrap();
    let diabetes = diabetes.target("progression").unwrap();
    assert_eq!((diabetes.n_rows(), diabetes.n_features()), (442, 10));
    assert_eq!(diabetes.labels().unwrap()[0], 151.0);
}

#[test]
fn arrays_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let (x, y) = (folder.path().join("x.npy"), folder.path().join("y.npy"));
    write_npy(&x, &array![[1.0f64, 0.1], [3.0, 4.0]]).unwrap();
    write_npy(&y, &array![0i64, 1]).unwrap();
    let data = Dataset::from_npy(&x, &y).unwrap();
    assert_eq!(data.features(), array![[1.0, 0.1f32], [3.0, 4.0]]);
    assert_eq!(data.labels().unwrap(), array![0.0, 1.0]);
    assert!(matches!(
        Dataset::from_npy(&y, &y),
        Err(Error::Shape { .. })
    ));
    write_npy(&y, &array![0i64, 1, 2]).unwrap();
    assert!(matches!(
        Dataset::from_npy(&x, &y),
        Err(Error::Shape { .. })
    ));
    for missing in [
        Dataset::from_csv(folder.path().join("none.csv")),
        Dataset::from_libsvm(folder.path().join("none")),
        Dataset::from_npz(folder.path().join("none.npz"), "x", "y"),
        CsvOptions::new().load(folder.path()),
    ] {
        assert!(matches!(missing, Err(Error::Io { .. })), "{missing:?}");
    }
}
