//! Against what the libraries predict, on every backend, and against damaged files.

use super::*;
use crate::boosting::tests::gpus;
use crate::{GradientBoosting, GradientBoostingModel};
use detml_core::{BitHash, BitHashed, Dataset, Fit};
use proptest::prelude::*;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A case of `data/interop/expected-*.json`; `interop.py` says what it holds.
#[derive(Deserialize)]
struct Case {
    file: String,
    format: String,
    refused: Option<String>,
    columns: Option<usize>,
    x: Option<String>,
    margin: Option<Vec<f64>>,
    response: Option<Vec<f64>>,
    label: Option<Vec<usize>>,
    rounds: Option<usize>,
    names: Option<Vec<String>>,
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/data/interop"]
        .iter()
        .collect()
}

fn read(file: &str) -> Vec<u8> {
    std::fs::read(folder().join(file)).unwrap()
}

fn cases() -> Vec<Case> {
    let libraries = [
        "xgboost1", "xgboost2", "xgboost3", "lightgbm", "catboost", "sklearn",
    ];
    libraries
        .into_iter()
        .flat_map(|library| {
            let text = read(&format!("expected-{library}.json"));
            serde_json::from_slice::<Vec<Case>>(&text).unwrap()
        })
        .collect()
}

fn parse(format: &str, bytes: &[u8]) -> Result<TreeEnsemble> {
    match format {
        "xgboost-json" => TreeEnsemble::from_xgboost_json(bytes),
        "xgboost-ubjson" => TreeEnsemble::from_xgboost_ubjson(bytes),
        "lightgbm-text" => TreeEnsemble::from_lightgbm_text(bytes),
        "catboost-json" => TreeEnsemble::from_catboost_json(bytes),
        "sklearn-json" => TreeEnsemble::from_sklearn_json(bytes),
        other => panic!("{other}"),
    }
}

impl Case {
    fn model(&self) -> TreeEnsemble {
        let model = parse(&self.format, &read(&self.file));
        let model = model.unwrap_or_else(|error| panic!("{}: {error}", self.file));
        match self.rounds {
            Some(rounds) if model.library() == Library::XgBoost => {
                assert_eq!(model.best_iteration(), Some(rounds - 1), "{}", self.file);
                assert!(model.n_rounds() > rounds);
                model.with_rounds(rounds).unwrap()
            }
            _ => model,
        }
    }

    fn x(&self) -> Array2<f32> {
        let hex = self.x.as_ref().unwrap();
        let words = (0..hex.len() / 8).map(|i| {
            let word = u32::from_str_radix(&hex[8 * i..8 * i + 8], 16).unwrap();
            f32::from_bits(word)
        });
        let columns = self.columns.unwrap();
        Array2::from_shape_vec((hex.len() / 8 / columns, columns), words.collect()).unwrap()
    }
}

/// Within 1e-6 of the largest expected number.
#[track_caller]
fn assert_close(what: &str, got: &Array2<f32>, expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(0f64, |most, x| most.max(x.abs()));
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - expected).abs() / scale.max(f64::MIN_POSITIVE);
        assert!(
            error <= 1e-6,
            "{what}, number {i}: {got} for {expected}, {error:e} of {scale}"
        );
    }
}

#[test]
fn t6_t13_predictions_are_those_of_the_libraries() {
    let mut files = 0;
    for case in cases() {
        let Case { file, .. } = &case;
        if let Some(what) = &case.refused {
            let error = parse(&case.format, &read(file)).unwrap_err();
            let named =
                matches!(&error, Error::Unsupported { what: named, .. } if named.contains(what));
            assert!(named, "{file}: {error}");
            continue;
        }
        files += 1;
        let (model, x) = (case.model(), case.x());
        if let Some(margin) = &case.margin {
            let got = model.predict_margin(x.view()).unwrap();
            assert_close(&format!("{file}, margins"), &got, margin);
        }
        let margin = case
            .margin
            .as_ref()
            .filter(|_| model.link() == Link::Identity);
        if let Some(response) = case.response.as_ref().or(margin) {
            let got = model.predict_response(x.view()).unwrap();
            assert_close(&format!("{file}, responses"), &got, response);
            if model.classes().len() == model.n_outputs() {
                let p = model.predict_proba(x.view()).unwrap();
                assert_close(&format!("{file}, probabilities"), &p, response);
            }
        }
        if let Some(labels) = &case.label {
            let got = model.predict(x.view()).unwrap();
            for (i, (&got, &label)) in got.iter().zip(labels).enumerate() {
                assert_eq!(got, model.classes()[label], "{file}, label {i}");
            }
        }
        if let Some(names) = &case.names {
            assert_eq!(model.feature_names().unwrap(), names, "{file}");
        }
    }
    assert!(files > 90, "{files}");
}

#[test]
fn names_and_classes_are_read() {
    let model = |file: &str| {
        let case = cases().into_iter().find(|case| case.file == file);
        case.unwrap().model()
    };
    let squared = model("xgb3-squared.json");
    let names = ["a b", "gr\u{f6}\u{df}e \u{2603}", "quo\"te\\", "f,:{}\t0"];
    assert_eq!(squared.feature_names().unwrap(), names);
    assert_eq!(squared.objective(), "reg:squarederror");
    assert_eq!(model("xgb3-squared.ubj").feature_names().unwrap(), names);
    assert_eq!(
        model("lgb-regression.txt").feature_names().unwrap(),
        ["a_b", "gr\u{f6}\u{df}e", "x=1", "Column_0"]
    );
    let binary = model("lgb-binary.txt");
    assert_eq!((binary.classes(), binary.slope()), (&[0.0, 1.0][..], 0.7));
    let p = binary.predict_proba(ndarray::array![[0.0, 1.0, 2.0, 3.0]].view());
    let p = p.unwrap();
    assert_eq!(p[[0, 0]], 1.0 - p[[0, 1]]);
    assert_eq!(
        model("cat-logloss.json").class_names().unwrap(),
        ["no", "yes"]
    );
    assert_eq!(model("cat-multiclass.json").classes(), [0.0, 10.0, 20.0]);
    assert_eq!(model("skl-extra-trees.json").classes(), [-1.0, 2.0]);
    assert_eq!(
        model("skl-forest-classes.json").class_names().unwrap(),
        ["low", "mid", "top"]
    );
    let forest = model("skl-forest.json");
    assert!(matches!(
        forest.with_rounds(2),
        Err(Error::Unsupported { .. })
    ));
    assert!(matches!(
        forest.predict(ndarray::Array2::zeros((1, 4)).view()),
        Err(Error::Unsupported { .. })
    ));
    assert_eq!(model("xgb3-forest.ubj").n_rounds(), 1);
    assert_eq!(model("lgb-early.txt").best_iteration(), None);
}

/// Margins, responses, labels and probabilities.
fn hashes(model: &TreeEnsemble, x: &Array2<f32>) -> Vec<Option<BitHash>> {
    vec![
        Some(model.predict_margin(x.view()).unwrap().bit_hash()),
        Some(model.predict_response(x.view()).unwrap().bit_hash()),
        model.predict(x.view()).ok().map(|y| y.bit_hash()),
        model.predict_proba(x.view()).ok().map(|p| p.bit_hash()),
    ]
}

#[test]
fn gpus_and_model_files_predict_the_same_bits() {
    let devices = gpus();
    for case in cases().iter().filter(|case| case.refused.is_none()) {
        let (model, x) = (case.model(), case.x());
        let expected = hashes(&model, &x);
        let bytes = model.to_model_file().to_bytes();
        let back = ModelFile::from_bytes(&bytes)
            .and_then(|file| TreeEnsemble::from_model_file(&file))
            .unwrap();
        assert_eq!(back.to_model_file().to_bytes(), bytes);
        assert_eq!(hashes(&back, &x), expected, "{}", case.file);
        for device in &devices {
            let got = detml_core::with_backend(device.backend(), || hashes(&model, &x));
            assert_eq!(got, expected, "{} on {device}", case.file);
            let (_, report) = model.predict_response_on(device, x.view()).unwrap();
            assert!(report.ran_only_on(device.backend()), "{report}");
        }
    }
}

#[test]
fn imported_models_are_explained_against_a_background() {
    let model = TreeEnsemble::from_xgboost_json(&read("xgb3-squared.json")).unwrap();
    let shape = (20, Predict::n_features(&model));
    let x = Array2::from_shape_fn(shape, |(i, j)| ((i * 7 + j * 3) % 11) as f32 - 5.0);
    let values = model.interventional_shap(x.view(), x.view()).unwrap();
    let sums = values.sum_axis(ndarray::Axis(2));
    let margins = model.predict_margin(x.view()).unwrap();
    for (sum, margin) in sums.iter().zip(&margins) {
        assert!(
            (sum - margin).abs() <= 1e-4 * (1.0 + margin.abs()),
            "{sum} {margin}"
        );
    }
    assert!(margins.iter().any(|margin| *margin != margins[[0, 0]]));
    let without = model.shap_values(x.view());
    assert!(
        matches!(without, Err(Error::Unsupported { .. })),
        "{without:?}"
    );
}

#[test]
fn damaged_model_files_are_refused() {
    let model = TreeEnsemble::from_xgboost_json(&read("xgb3-softmax.json")).unwrap();
    let file = model.to_model_file();
    let refused = |what: &str, file: ModelFile| {
        let read = TreeEnsemble::from_model_file(&file);
        assert!(
            matches!(read, Err(Error::ModelFile { .. })),
            "{what}: {read:?}"
        );
    };
    for (name, value) in [
        ("link", "linear".into()),
        ("library", "weka".into()),
        ("n_features", 1.into()),
        ("parallel_trees", 0.into()),
        ("parallel_trees", 7.into()),
        ("parallel_trees", usize::MAX.into()),
        ("feature_names", Value::from(vec!["a"])),
        ("class_names", Value::from(vec!["a"])),
        ("averaged", Value::Null),
        ("more", 1.into()),
    ] {
        refused(name, file.clone().with_param(name, value));
    }
    refused("slope", file.clone().with_slice("slope", &[f32::NAN]));
    refused("slopes", file.clone().with_slice("slope", &[1.0f32, 1.0]));
    refused(
        "classes",
        file.clone().with_slice("classes", &[0.0f32, 0.0, 1.0]),
    );
    refused("base", file.clone().with_slice("base", &[0.0f32]));
    refused("value", file.clone().with_slice("value", &[0.0f32]));
    let mut left: Vec<u32> = file.vector("left").unwrap();
    left[0] = 0;
    refused("left", file.clone().with_slice("left", &left));
    let mut missing: Vec<u8> = file.vector("missing_left").unwrap();
    missing[0] = 2;
    refused("missing", file.clone().with_slice("missing_left", &missing));
    let bytes = file.to_bytes();
    for cut in 0..bytes.len() {
        assert!(ModelFile::from_bytes(&bytes[..cut]).is_err());
    }
}

/// A short file of each format.
const SHORT: [&str; 6] = [
    "xgb3-softmax.json",
    "xgb3-vectors.ubj",
    "lgb-early.txt",
    "cat-rmse.json",
    "cat-lossguide.json",
    "skl-tree.json",
];

fn format_of(file: &str) -> String {
    let case = cases().into_iter().find(|case| case.file == file);
    case.unwrap().format
}

fn is_typed(error: &Error) -> bool {
    matches!(error, Error::ModelFile { .. } | Error::Unsupported { .. })
}

#[test]
fn f4_files_cut_short_are_refused() {
    for file in SHORT {
        let (format, bytes) = (format_of(file), read(file));
        let whole = parse(&format, &bytes).unwrap().bit_hash();
        // What follows the trees isn't read.
        let end = match format.as_str() {
            "lightgbm-text" => {
                let text = std::str::from_utf8(&bytes).unwrap();
                text.find("end of trees").unwrap() + "end of trees".len()
            }
            _ => bytes.trim_ascii_end().len(),
        };
        for cut in 0..bytes.len() {
            match parse(&format, &bytes[..cut]) {
                Err(error) => assert!(cut < end && is_typed(&error), "{file} at {cut}: {error}"),
                Ok(model) => {
                    assert!(cut >= end, "{file} at {cut}");
                    assert_eq!(model.bit_hash(), whole);
                }
            }
        }
    }
}

/// Each first text of a pair once in its place.
#[test]
fn f4_hostile_files_are_refused() {
    let cases: [(&str, &[(&str, &str)]); 4] = [
        (
            "xgb3-softmax.json",
            &[
                (r#""left_children":[1,"#, r#""left_children":[0,"#),
                (r#""left_children":[1,"#, r#""left_children":[2,"#),
                (r#""left_children":[1,"#, r#""left_children":[99,"#),
                (r#""left_children":[1,"#, r#""left_children":[-2,"#),
                (
                    r#""left_children":[1,"#,
                    r#""left_children":[9223372036854775807,"#,
                ),
                (r#""left_children":[1,"#, r#""left_children":[-1,"#),
                (r#""right_children":[2,"#, r#""right_children":[0,"#),
                (r#""right_children":[2,"#, r#""right_children":[1,"#),
                (r#""right_children":[2,"#, r#""right_children":[2,2,"#),
                (r#""split_indices":["#, r#""split_indices":[4,"#),
                (r#""split_indices":["#, r#""split_indices":[-1,"#),
                (r#""split_conditions":["#, r#""split_conditions":[NaN,"#),
                (r#""split_conditions":["#, r#""split_conditions":[1e39,"#),
                (r#""default_left":["#, r#""default_left":[2,"#),
                (r#""default_left":["#, r#""default_left":[-1,"#),
                (r#""num_trees":"3""#, r#""num_trees":"1000000000""#),
                (r#""num_trees":"3""#, r#""num_trees":"-3""#),
                (r#""num_class":"3""#, r#""num_class":"1000000000""#),
                (
                    r#""num_class":"3""#,
                    r#""num_class":"99999999999999999999""#,
                ),
                (r#""num_class":"3""#, r#""num_class":"2""#),
                (r#""num_class":"3""#, r#""num_class":"0""#),
                (
                    r#""num_feature":"4","num_target""#,
                    r#""num_feature":"1","num_target""#,
                ),
                (
                    r#""num_feature":"4","num_target""#,
                    r#""num_feature":"1000000000","num_target""#,
                ),
                (r#""num_target":"1""#, r#""num_target":"2""#),
                (
                    r#""num_parallel_tree":"1""#,
                    r#""num_parallel_tree":"9999999999999999999""#,
                ),
                (r#""num_parallel_tree":"1""#, r#""num_parallel_tree":"2""#),
                (r#""tree_info":[0,1,2]"#, r#""tree_info":[0,0,2]"#),
                (r#""tree_info":[0,1,2]"#, r#""tree_info":[0,1,3]"#),
                (r#""tree_info":[0,1,2]"#, r#""tree_info":[0,1]"#),
                (
                    r#""num_deleted":"0""#,
                    r#""num_deleted":"18446744073709551615""#,
                ),
                (r#""base_score":"["#, r#""base_score":"[1,"#),
                (r#""base_score":"["#, r#""base_score":"[NaN,"#),
                (r#""base_score":"["#, r#""base_score":"["#),
                (r#""name":"multi:softmax""#, r#""name":"multi:custom""#),
                (r#""name":"gbtree""#, r#""name":"gblinear""#),
                (r#""name":"gbtree""#, r#""name":"dart""#),
                (r#""split_type":[0"#, r#""split_type":[1"#),
                (r#""size_leaf_vector":"1""#, r#""size_leaf_vector":"3""#),
            ],
        ),
        (
            "lgb-early.txt",
            &[
                ("version=v4", "version=v9"),
                ("tree\n", "Tree\n"),
                ("num_leaves=4", "num_leaves=1000000000"),
                ("num_leaves=4", "num_leaves=18446744073709551615"),
                ("num_leaves=4", "num_leaves=0"),
                ("num_leaves=4", "num_leaves=3"),
                (
                    "num_tree_per_iteration=1",
                    "num_tree_per_iteration=1000000000",
                ),
                ("num_tree_per_iteration=1", "num_tree_per_iteration=0"),
                ("num_tree_per_iteration=1", "num_tree_per_iteration=7"),
                ("max_feature_idx=3", "max_feature_idx=0"),
                ("max_feature_idx=3", "max_feature_idx=-2"),
                ("max_feature_idx=3", "max_feature_idx=9223372036854775807"),
                ("left_child=", "left_child=0 "),
                ("left_child=2", "left_child=0"),
                ("left_child=2", "left_child=77"),
                ("left_child=2", "left_child=-77"),
                ("left_child=2", "left_child=-9223372036854775808"),
                ("right_child=1", "right_child=2"),
                ("right_child=1", "right_child=0"),
                ("threshold=", "threshold=nan "),
                ("num_cat=0", "num_cat=1"),
                ("is_linear=0", "is_linear=1"),
                ("Tree=0", "Tree=1"),
                ("num_cat=0", "num_cat=0\nnum_cat=0"),
                ("objective=regression", "objective=mystery"),
                (
                    "objective=regression",
                    "objective=multiclass num_class:3\nx",
                ),
                ("feature_names=", "feature_names=a "),
                ("decision_type=", "decision_type=300 "),
            ],
        ),
        (
            "cat-rmse.json",
            &[
                ("\"float_feature_index\": ", "\"float_feature_index\": 9"),
                (
                    "\"split_type\": \"FloatFeature\"",
                    "\"split_type\": \"OneHotFeature\"",
                ),
                ("\"leaf_values\": [", "\"leaf_values\": [0, "),
                ("\"leaf_values\": [", "\"leaf_values\": [1e300, "),
                ("\"border\": ", "\"border\": null, \"x\": "),
                ("\"scale_and_bias\": [1, [", "\"scale_and_bias\": [1, [0, "),
                ("\"scale_and_bias\": [1, [", "\"scale_and_bias\": [1e308, ["),
                (
                    "\"flat_feature_index\": 0",
                    "\"flat_feature_index\": 4000000000",
                ),
                (
                    "\"flat_feature_index\": 3",
                    "\"flat_feature_index\": 4000000000",
                ),
                (
                    "\"nan_value_treatment\": \"AsFalse\"",
                    "\"nan_value_treatment\": \"AsIt\"",
                ),
                ("\"oblivious_trees\"", "\"other_trees\""),
                ("\"type\": \"RMSE\"", "\"type\": \"RMSEWithUncertainty\""),
                (
                    "\"float_features\"",
                    "\"categorical_features\": [{}], \"float_features\"",
                ),
            ],
        ),
        (
            "skl-tree.json",
            &[
                ("\"version\": 1", "\"version\": 2"),
                ("\"n_features\": 4", "\"n_features\": 2"),
                ("\"n_features\": 4", "\"n_features\": 18446744073709551615"),
                ("\"left\": [1", "\"left\": [0"),
                ("\"left\": [1", "\"left\": [1000000000"),
                ("\"left\": [1", "\"left\": [-1"),
                ("\"threshold\": [", "\"threshold\": [\"nan\", "),
                ("\"base\": [0.0]", "\"base\": []"),
                ("\"base\": [0.0]", "\"base\": [0.0, 0.0]"),
                ("\"output\": null", "\"output\": 0, \"more\": 1"),
                ("\"output\": null", "\"output\": 1"),
                ("\"slope\": 1.0", "\"slope\": -1.0"),
                ("\"slope\": 1.0", "\"slope\": 1e300"),
                ("\"link\": \"identity\"", "\"link\": \"probit\""),
                ("\"classes\": null", "\"classes\": [1, 2, 3]"),
                ("\"feature_names\": null", "\"feature_names\": [\"a\"]"),
            ],
        ),
    ];
    for (file, changes) in cases {
        let format = format_of(file);
        let text = String::from_utf8(read(file)).unwrap();
        for (from, to) in changes {
            assert!(text.contains(from), "{file}: {from}");
            let changed = text.replacen(from, to, 1);
            if changed == text {
                continue;
            }
            match parse(&format, changed.as_bytes()) {
                Err(error) => assert!(is_typed(&error), "{file}, {to}: {error:?}"),
                Ok(_) => panic!("{file}: {to}"),
            }
        }
    }
}

#[test]
fn deep_nesting_is_refused() {
    let text = String::from_utf8(read("cat-lossguide.json")).unwrap();
    let deep = r#"{"left": "#.repeat(100_000);
    let hostile = text.replacen(r#""trees": ["#, &format!(r#""trees": [{deep}"#), 1);
    assert_ne!(hostile, text);
    assert!(is_typed(
        &TreeEnsemble::from_catboost_json(hostile.as_bytes()).unwrap_err()
    ));
}

/// LightGBM's zeros as missing values, where the split agrees and where it doesn't.
#[test]
fn zeros_as_missing_values_are_read_where_they_can_be() {
    let model = |threshold: &str, decision: u8| {
        let text = format!(
            "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nmax_feature_idx=0\n\
             objective=regression\nfeature_names=a\n\nTree=0\nnum_leaves=2\nnum_cat=0\n\
             split_feature=0\nthreshold={threshold}\ndecision_type={decision}\nleft_child=-1\n\
             right_child=-2\nleaf_value=1 2\n\n\nend of trees\n"
        );
        TreeEnsemble::from_lightgbm_text(text.as_bytes())
    };
    let at = |model: TreeEnsemble| {
        let x = ndarray::array![[f32::NAN], [0.0], [-0.0], [1e-36], [-1e-36]];
        let margins = model.predict_margin(x.view()).unwrap();
        margins.into_raw_vec_and_offset().0
    };
    assert_eq!(at(model("1.5", 6).unwrap()), [1.0; 5]);
    assert_eq!(at(model("-1.5", 4).unwrap()), [2.0; 5]);
    let refused = model("nan", 8).unwrap_err();
    assert!(matches!(refused, Error::ModelFile { .. }), "{refused}");
    assert_eq!(at(model("0", 6).unwrap()), [1.0; 5]);
    assert_eq!(at(model("-1e-36", 4).unwrap()), [2.0; 5]);
    for (threshold, decision) in [("1.5", 4), ("-1.5", 6), ("0", 4), ("-1e-36", 6)] {
        let error = model(threshold, decision).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
    // Next to zero is zero, also without missing values.
    assert_eq!(
        at(model("-1.0000000180025095e-35", 8).unwrap())[1..],
        [2.0; 4]
    );
    assert_eq!(at(model("1e-300", 8).unwrap())[1..], [1.0; 4]);
    // NaN as 0 where nothing is missing.
    assert_eq!(at(model("1.5", 0).unwrap())[0], 1.0);
    assert_eq!(at(model("-1.5", 2).unwrap())[0], 2.0);
    assert_eq!(at(model("0", 0).unwrap())[0], 1.0);
}

fn sources() -> &'static [(String, Vec<u8>)] {
    static SOURCES: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let more = ["xgb1-dart.ubj", "xgb3-dart.json", "lgb-multiclass.txt"];
        let files = SHORT.into_iter().chain(more);
        files.map(|file| (format_of(file), read(file))).collect()
    })
}

/// Numbers that files are known to be broken with.
const NUMBERS: [&str; 10] = [
    "-1",
    "0",
    "1",
    "2147483647",
    "4294967296",
    "18446744073709551615",
    "1e39",
    "1e400",
    "-0.0",
    "null",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn f4_changed_bytes_never_panic(
        source in any::<prop::sample::Index>(),
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..5),
    ) {
        let (format, bytes) = source.get(sources());
        let mut bytes = bytes.clone();
        for (at, byte, kind) in changes {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes[at] ^= 1 << (byte % 8),
                2 => bytes.insert(at, byte),
                _ => { bytes.remove(at); }
            }
        }
        if let Err(error) = parse(format, &bytes) {
            prop_assert!(is_typed(&error), "{error:?}");
        }
    }

    #[test]
    fn f4_changed_numbers_never_panic(
        source in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        number in prop::sample::select(&NUMBERS[..]),
    ) {
        let (format, bytes) = source.get(sources());
        let at = at.index(bytes.len());
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let Some(start) = bytes[at..].iter().position(is_digit) else {
            return Ok(());
        };
        let start = at + start;
        let length = bytes[start..].iter().take_while(|byte| is_digit(byte)).count();
        let mut bytes = bytes.clone();
        bytes.splice(start..start + length, number.bytes());
        match parse(format, &bytes) {
            Err(error) => prop_assert!(is_typed(&error), "{error:?}"),
            Ok(model) if model.n_features() < 100 => {
                let x = Array2::from_elem((2, model.n_features()), 0.5);
                prop_assert!(model.predict_response(x.view()).is_ok());
            }
            Ok(_) => {}
        }
    }
}

/// Fitted models of every loss that is exported, and rows that reach their edges.
fn exported() -> Vec<(&'static str, GradientBoostingModel, Array2<f32>)> {
    let x = Array2::from_shape_fn((240, 3), |(i, j)| {
        let value = ((i * (2 * j + 7) + j) % 31) as f32 * 0.37 - 4.0;
        match (i * 5 + j * 3) % 13 {
            0 => f32::NAN,
            // A missing value that tells more than any number does.
            1 | 2 if j == 2 && i % 2 == 0 => f32::NAN,
            3 if i % 7 == 0 => f32::INFINITY,
            _ => value,
        }
    });
    let y = Array1::from_shape_fn(240, |i| {
        let [a, b, c] =
            [x[[i, 0]], x[[i, 1]], x[[i, 2]]].map(|x| if x.is_finite() { x } else { 3.0 });
        a * 0.5 + b * c * 0.1 + if x[[i, 2]].is_nan() { 5.0 } else { 0.0 }
    });
    let classes = y.mapv(|y| {
        if y < -1.0 {
            0.0
        } else {
            f32::from(y > 1.0) + 1.0
        }
    });
    let two = classes.mapv(|class| class.min(1.0));
    let mut queries = x.clone();
    let names = ["age", "height", "place of birth"].map(String::from);
    let named = Dataset::from_arrays(x.clone(), y.clone()).unwrap();
    let named = named.with_feature_names(names).unwrap();
    let models = vec![
        (
            "regressor",
            GradientBoosting::regressor()
                .n_trees(5)
                .max_depth(4)
                .fit(&named),
        ),
        (
            "zero",
            GradientBoosting::regressor()
                .n_trees(3)
                .base_score(0.0)
                .fit((&x, &y)),
        ),
        (
            "two",
            GradientBoosting::classifier()
                .n_trees(5)
                .max_depth(3)
                .fit((&x, &two)),
        ),
        (
            "three",
            GradientBoosting::classifier()
                .n_trees(3)
                .max_depth(3)
                .fit((&x, &classes)),
        ),
    ];
    let models: Vec<_> = models
        .into_iter()
        .map(|(name, model)| (name, model.unwrap()))
        .collect();
    let nodes = models.iter().flat_map(|(_, model)| model.forest().nodes());
    let splits = nodes.filter(|node| node.left != 0 && node.threshold.is_finite());
    for (i, node) in splits.step_by(3).take(60).enumerate() {
        let t = node.threshold;
        for (j, value) in [t, t.next_up(), t.next_down()].into_iter().enumerate() {
            queries[[3 * i + j, node.feature as usize]] = value;
        }
    }
    models
        .into_iter()
        .map(|(name, model)| (name, model, queries.clone()))
        .collect()
}

/// `DETML_EXPORTS` names a folder for the files, which `interop.py check` reads.
#[test]
fn exports_are_those_that_the_libraries_read() {
    let mut hashes = String::new();
    let mut written = Vec::new();
    let write = std::env::var_os("DETML_EXPORTS").map(PathBuf::from);
    let mut turned = 0;
    for (name, model, x) in exported() {
        let margins = model.predict_margin(x.view()).unwrap();
        let splits = model.forest().nodes().iter().filter(|node| node.left != 0);
        turned += splits
            .filter(|node| node.threshold == f32::INFINITY)
            .count();
        let mut files = Vec::new();
        for (ending, format, bytes) in [
            (
                "json",
                "xgboost-json",
                model.to_xgboost_json().unwrap().into_bytes(),
            ),
            ("ubj", "xgboost-ubjson", model.to_xgboost_ubjson().unwrap()),
            (
                "txt",
                "lightgbm-text",
                model.to_lightgbm_text().unwrap().into_bytes(),
            ),
        ] {
            let back = parse(format, &bytes).unwrap();
            let got = back.predict_margin(x.view()).unwrap();
            assert_eq!(got.bit_hash(), margins.bit_hash(), "{name}.{ending}");
            if format != "lightgbm-text" {
                assert_eq!(back.feature_names(), model.feature_names());
            }
            let file = format!("{name}.{ending}");
            hashes.push_str(&format!("{file}\t{}\n", BitHash::of_bytes(&bytes)));
            if let Some(folder) = &write {
                std::fs::create_dir_all(folder).unwrap();
                std::fs::write(folder.join(&file), &bytes).unwrap();
            }
            files.push(file);
        }
        let hex = |numbers: &Array2<f32>| -> String {
            numbers
                .iter()
                .map(|x| format!("{:08x}", x.to_bits()))
                .collect()
        };
        written.push(serde_json::json!({
            "files": files, "columns": x.ncols(), "x": hex(&x), "margin": hex(&margins),
        }));
    }
    assert!(turned > 0);
    if let Some(folder) = &write {
        let text = serde_json::to_string(&written).unwrap();
        std::fs::write(folder.join("cases.json"), text).unwrap();
        std::fs::write(folder.join("exports.tsv"), &hashes).unwrap();
    }
    // After a change: check the new files with `interop.py check`, then copy the new hashes.
    let expected = String::from_utf8(read("exports.tsv")).unwrap();
    assert_eq!(hashes, expected);
}

#[test]
fn a_model_of_one_class_cannot_be_exported() {
    let x = Array2::from_shape_fn((9, 1), |(i, _)| i as f32);
    let y = Array1::from_elem(9, 4.0);
    let model = GradientBoosting::classifier().fit((&x, &y)).unwrap();
    for result in [
        model.to_xgboost_json().err(),
        model.to_xgboost_ubjson().err(),
        model.to_lightgbm_text().err(),
    ] {
        assert!(matches!(result, Some(Error::Unsupported { .. })));
    }
}
