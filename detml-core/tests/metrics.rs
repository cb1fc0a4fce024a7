//! Metrics against scikit-learn (`reference/metrics.py`) and their edge cases.

use detml_core::{Error, metrics, metrics::weighted};
use ndarray::{Array1, Array2, ArrayView1, array};
use serde_json::Value;

struct Reference(Value);

impl Reference {
    fn read() -> Self {
        Self(serde_json::from_str(include_str!("reference/metrics.json")).unwrap())
    }

    fn column(&self, name: &str) -> Array1<f32> {
        let values = self.0[name].as_array().unwrap();
        values.iter().map(|v| v.as_f64().unwrap() as f32).collect()
    }

    /// 1e-13 of the value: both sides sum 200 terms in f64, in different orders.
    #[track_caller]
    fn expect(&self, kind: &str, name: &str, got: &[f64]) {
        let expected: Vec<f64> = match &self.0[kind][name] {
            Value::Array(values) => values.iter().map(|v| v.as_f64().unwrap()).collect(),
            value => vec![value.as_f64().unwrap()],
        };
        assert_eq!(got.len(), expected.len(), "{kind} {name}");
        for (got, expected) in got.iter().zip(expected) {
            assert!(
                (got - expected).abs() <= 1e-13 * expected.abs(),
                "{kind} {name}: got {got}, expected {expected}"
            );
        }
    }
}

#[test]
fn scikit_learn_agrees() {
    let reference = Reference::read();
    let column = |name| reference.column(name);
    let weights = column("weight");
    let w = weights.view();
    let (label, guess, score) = (column("label"), column("guess"), column("score"));
    let (classes, class_guess) = (column("classes"), column("class_guess"));
    let (value, estimate) = (column("value"), column("estimate"));
    let (count, rate) = (column("count"), column("rate"));
    let reversed: Array1<f32> = rate.iter().rev().copied().collect();
    let proba = Array2::from_shape_vec((200, 4), column("proba").to_vec()).unwrap();
    let known = [0.0, 1.0, 2.0, 3.0];

    macro_rules! check {
        ($($name:literal = $function:ident($a:ident, $b:ident $(, $more:expr)*);)*) => {$(
            let plain = metrics::$function($a.view(), $b.view() $(, $more)*).unwrap();
            reference.expect("plain", $name, &[plain]);
            let with = weighted::$function($a.view(), $b.view() $(, $more)*, w).unwrap();
            reference.expect("weighted", $name, &[with]);
        )*};
    }
    check! {
        "accuracy" = accuracy(label, guess);
        "balanced_accuracy" = balanced_accuracy(classes, class_guess);
        "precision" = precision(label, guess);
        "recall" = recall(label, guess);
        "f1" = f1(label, guess);
        "roc_auc" = roc_auc(label, score);
        "average_precision" = average_precision(label, score);
        "log_loss" = log_loss(label, score);
        "log_loss_classes" = log_loss_classes(classes, proba, &known);
        "brier" = brier(label, score);
        "mean_squared_error" = mean_squared_error(value, estimate);
        "root_mean_squared_error" = root_mean_squared_error(value, estimate);
        "mean_absolute_error" = mean_absolute_error(value, estimate);
        "r2" = r2(value, estimate);
        "mean_absolute_percentage_error" = mean_absolute_percentage_error(rate, count);
        "pinball" = pinball(value, estimate, 0.1);
        "poisson_deviance" = poisson_deviance(count, rate);
        "gamma_deviance" = gamma_deviance(rate, reversed);
        "tweedie_deviance" = tweedie_deviance(count, rate, 1.25);
        "root_mean_squared_log_error" = root_mean_squared_log_error(count, rate);
        "expectile" = expectile(value, estimate, 0.3);
        "huber" = huber(value, estimate, 0.9);
        "pseudo_huber" = pseudo_huber(value, estimate, 0.5);
    }
    let median = metrics::median_absolute_error(value.view(), estimate.view()).unwrap();
    reference.expect("plain", "median_absolute_error", &[median]);
    for (kind, matrix) in [
        (
            "plain",
            metrics::confusion_matrix(classes.view(), class_guess.view()),
        ),
        (
            "weighted",
            weighted::confusion_matrix(classes.view(), class_guess.view(), w),
        ),
    ] {
        let matrix = matrix.unwrap();
        let counts: Vec<f64> = matrix.counts().iter().copied().collect();
        reference.expect(kind, "confusion", &counts);
        reference.expect(kind, "class_precision", &matrix.precision());
        reference.expect(kind, "class_recall", &matrix.recall());
        reference.expect(kind, "class_f1", &matrix.f1());
    }
}

#[test]
fn the_roc_area_is_exact_whatever_the_order() {
    let (label, score) = {
        let reference = Reference::read();
        (reference.column("label"), reference.column("score"))
    };
    let mut pairs = 0u32;
    let mut twice = 0u32;
    for (&y1, &s1) in label.iter().zip(&score) {
        for (&y0, &s0) in label.iter().zip(&score) {
            if y1 == 1.0 && y0 == 0.0 {
                pairs += 1;
                twice += u32::from(s1 > s0) + u32::from(s1 >= s0);
            }
        }
    }
    let expected = f64::from(twice) / f64::from(2 * pairs);
    let reversed = |a: &Array1<f32>| -> Array1<f32> { a.iter().rev().copied().collect() };
    for (label, score) in [
        (label.clone(), score.clone()),
        (reversed(&label), reversed(&score)),
    ] {
        let got = metrics::roc_auc(label.view(), score.view()).unwrap();
        assert_eq!(got.to_bits(), expected.to_bits());
    }
}

#[test]
fn ties_zeros_and_infinities_in_scores() {
    let truth = array![0.0, 1.0, 0.0, 1.0];
    let area = |scores: Array1<f32>| metrics::roc_auc(truth.view(), scores.view());
    assert_eq!(area(array![0.5, 0.5, 0.5, 0.5]), Ok(0.5));
    assert_eq!(area(array![-0.0, 0.0, 0.0, -0.0]), Ok(0.5));
    let infinite = f32::INFINITY;
    assert_eq!(area(array![-infinite, infinite, 0.0, infinite]), Ok(1.0));
    assert!(matches!(
        area(array![0.0, f32::NAN, 0.0, 0.0]),
        Err(Error::NonFinite { row: 1, .. })
    ));
}

#[test]
fn weight_zero_is_the_row_absent() {
    let truth = array![0.0, 1.0, 1.0, 0.0, 1.0];
    let score = array![0.25, 0.5, 0.75, 0.875, 0.125];
    let weights = array![1.0, 1.0, 1.0, 1.0, 0.0];
    let fewer = |a: &Array1<f32>| a.iter().take(4).copied().collect::<Array1<f32>>();
    let (short, shorter) = (fewer(&truth), fewer(&score));
    type Plain = fn(ArrayView1<'_, f32>, ArrayView1<'_, f32>) -> detml_core::Result<f64>;
    type Weighted = fn(
        ArrayView1<'_, f32>,
        ArrayView1<'_, f32>,
        ArrayView1<'_, f32>,
    ) -> detml_core::Result<f64>;
    let pairs: [(Plain, Weighted); 5] = [
        (metrics::roc_auc, weighted::roc_auc),
        (metrics::average_precision, weighted::average_precision),
        (metrics::log_loss, weighted::log_loss),
        (metrics::r2, weighted::r2),
        (metrics::mean_squared_error, weighted::mean_squared_error),
    ];
    for (plain, with) in pairs {
        assert_eq!(
            plain(short.view(), shorter.view()),
            with(truth.view(), score.view(), weights.view())
        );
    }
}

#[test]
fn stated_edges() {
    let zeros = array![0.0f32, 0.0];
    let ones = array![1.0f32, 1.0];
    let mixed = array![0.0f32, 1.0];
    let unlike = array![1.0f32, 0.0];
    let (z, o, m, u) = (zeros.view(), ones.view(), mixed.view(), unlike.view());
    assert_eq!(metrics::precision(m, z), Ok(0.0));
    assert_eq!(metrics::recall(z, m), Ok(0.0));
    assert_eq!(metrics::f1(z, z), Ok(0.0));
    assert_eq!(metrics::r2(o, o), Ok(1.0));
    assert_eq!(metrics::r2(o, m), Ok(0.0));
    // Seven sevenths of 0.1 don't give 0.1 back in f64; the truth is constant still.
    let tenths = Array1::from_elem(7, 0.1f32);
    let other = Array1::from_elem(7, 0.2f32);
    assert_eq!(metrics::r2(tenths.view(), other.view()), Ok(0.0));
    // A certain prediction that is wrong costs 23 ln 2, not infinity.
    let worst = metrics::log_loss(m, u).unwrap();
    assert!((worst - 15.942_385_152_878_742).abs() < 1e-12, "{worst}");
    for result in [metrics::roc_auc(z, m), metrics::average_precision(z, m)] {
        assert!(matches!(result, Err(Error::Unsupported { .. })));
    }
}

#[test]
fn bad_input_is_named() {
    let empty = Array1::<f32>::zeros(0);
    let two = array![0.0f32, 1.0];
    let three = array![0.0f32, 1.0, 1.0];
    let nan = array![0.0f32, f32::NAN];
    let half = array![0.0f32, 0.5];
    let out = array![0.0f32, 1.5];
    let (two, three, nan) = (two.view(), three.view(), nan.view());
    assert!(matches!(
        metrics::accuracy(empty.view(), empty.view()),
        Err(Error::Empty { .. })
    ));
    assert!(matches!(
        metrics::accuracy(two, three),
        Err(Error::Shape { .. })
    ));
    assert!(matches!(
        metrics::r2(two, nan),
        Err(Error::NonFinite { row: 1, .. })
    ));
    assert!(matches!(
        metrics::r2(nan, two),
        Err(Error::NonFinite { row: 1, .. })
    ));
    assert!(matches!(
        metrics::roc_auc(half.view(), two),
        Err(Error::LabelOutOfRange { row: 1, .. })
    ));
    assert!(matches!(
        metrics::f1(two, half.view()),
        Err(Error::LabelOutOfRange { row: 1, .. })
    ));
    assert!(matches!(
        metrics::confusion_matrix(half.view(), two),
        Err(Error::LabelOutOfRange { row: 1, .. })
    ));
    assert!(matches!(
        metrics::brier(two, out.view()),
        Err(Error::InvalidValue { row: 1, .. })
    ));
    assert!(matches!(
        metrics::pinball(two, two, f64::NAN),
        Err(Error::InvalidParameter { .. })
    ));
    assert!(matches!(
        metrics::poisson_deviance(two, two),
        Err(Error::InvalidValue { row: 0, .. })
    ));
    let below = array![-1.0f32, 0.5];
    let (one, below) = (array![1.0f32, 1.0], below.view());
    for outcome in [
        metrics::gamma_deviance(one.view(), below),
        metrics::gamma_deviance(below, one.view()),
        metrics::tweedie_deviance(below, one.view(), 1.5),
        metrics::tweedie_deviance(one.view(), below, 1.5),
        metrics::root_mean_squared_log_error(one.view(), below),
        metrics::root_mean_squared_log_error(below, one.view()),
    ] {
        assert!(matches!(outcome, Err(Error::InvalidValue { row: 0, .. })));
    }
    for outcome in [
        metrics::tweedie_deviance(one.view(), one.view(), 2.0),
        metrics::tweedie_deviance(one.view(), one.view(), f64::NAN),
        metrics::expectile(one.view(), one.view(), 1.5),
        metrics::huber(one.view(), one.view(), 0.0),
        metrics::pseudo_huber(one.view(), one.view(), f64::INFINITY),
    ] {
        assert!(matches!(outcome, Err(Error::InvalidParameter { .. })));
    }
    let p = array![[0.5f32, 0.5], [0.5, 0.5]];
    for classes in [&[1.0, 0.0][..], &[0.0], &[0.0, 2.0], &[0.0, f32::NAN]] {
        assert!(metrics::log_loss_classes(two, p.view(), classes).is_err());
    }
    for weights in [
        array![1.0f32],
        array![1.0, -1.0],
        array![1.0, f32::INFINITY],
        array![0.0, 0.0],
    ] {
        assert!(weighted::accuracy(two, two, weights.view()).is_err());
    }
}
