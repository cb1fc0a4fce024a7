//! The estimator traits, through two small estimators: designs, pipelines, cross-validation.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use detml_core::prelude::*;
use detml_core::selection::{KFold, cross_val_score, cross_validate};
use detml_core::{
    Design, DesignRules, Error, ModelFile, Pipeline, Progress, ProgressEvent, Result, metrics,
};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, array, s};

/// Subtracts each column's first value.
#[derive(Clone)]
struct FromFirst;

#[derive(Clone, Debug, PartialEq)]
struct FittedFromFirst(Array1<f32>);

impl Fit for FromFirst {
    type Fitted = FittedFromFirst;

    fn rules(&self) -> DesignRules {
        DesignRules::unsupervised()
    }

    fn fit_design(&self, design: &Design<'_>) -> Result<FittedFromFirst> {
        Ok(FittedFromFirst(design.x().row(0).to_owned()))
    }
}

impl Transform for FittedFromFirst {
    fn transform(&self, x: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        DesignRules::unsupervised().check_features(x, self.0.len())?;
        Ok(&x - &self.0)
    }
}

impl Persist for FittedFromFirst {
    fn to_model_file(&self) -> ModelFile {
        ModelFile::new("FromFirst").with_array("first", &self.0)
    }

    fn from_model_file(file: &ModelFile) -> Result<Self> {
        file.expect_estimator("FromFirst")?;
        Ok(Self(file.array("first")?))
    }
}

/// Predicts column 0 plus the mean target.
#[derive(Clone, Default)]
struct MeanPlus {
    progress: Progress,
}

#[derive(Clone, Debug, PartialEq)]
struct FittedMeanPlus {
    mean: f32,
    n_features: usize,
}

impl Fit for MeanPlus {
    type Fitted = FittedMeanPlus;

    fn rules(&self) -> DesignRules {
        DesignRules::supervised()
    }

    fn fit_design(&self, design: &Design<'_>) -> Result<FittedMeanPlus> {
        let mut sum = 0.0;
        for (step, y) in design.target_slice()?.iter().enumerate() {
            sum += y;
            let event = ProgressEvent::new(step + 1, design.n_rows(), &[]);
            self.progress.report("MeanPlus", event)?;
        }
        Ok(FittedMeanPlus {
            mean: sum / design.n_rows() as f32,
            n_features: design.n_features(),
        })
    }
}

impl Predict for FittedMeanPlus {
    fn n_features(&self) -> usize {
        self.n_features
    }

    fn predict(&self, x: ArrayView2<'_, f32>) -> Result<Array1<f32>> {
        DesignRules::supervised().check_features(x, self.n_features)?;
        Ok(x.column(0).mapv(|v| v + self.mean))
    }
}

impl Score for FittedMeanPlus {
    fn score(
        &self,
        x: ArrayView2<'_, f32>,
        y: ArrayView1<'_, f32>,
        weights: Option<ArrayView1<'_, f32>>,
    ) -> Result<f64> {
        let predicted = self.predict(x)?;
        match weights {
            None => metrics::r2(y, predicted.view()),
            Some(weights) => metrics::weighted::r2(y, predicted.view(), weights),
        }
    }
}

impl Persist for FittedMeanPlus {
    fn to_model_file(&self) -> ModelFile {
        ModelFile::new("MeanPlus")
            .with_slice("mean", &[self.mean])
            .with_param("n_features", self.n_features)
    }

    fn from_model_file(file: &ModelFile) -> Result<Self> {
        file.expect_estimator("MeanPlus")?;
        let [mean] = file.vector("mean")?[..] else {
            return Err(file.refuse("tensor `mean`: expected one number"));
        };
        Ok(Self {
            mean,
            n_features: file.param("n_features")?,
        })
    }
}

fn xy() -> (Array2<f32>, Array1<f32>) {
    let x = Array2::from_shape_fn((12, 3), |(i, j)| (i * i + 2 * j) as f32);
    let y = x.column(0).mapv(|v| v + 0.5);
    (x, y)
}

#[test]
fn fit_takes_all_kinds_of_data() {
    let (x, y) = xy();
    let expected = MeanPlus::default().fit((&x, &y)).unwrap();
    let x64 = x.mapv(f64::from);
    let y64 = y.mapv(f64::from);
    let y2 = y.clone().insert_axis(ndarray::Axis(1));
    let weights = Array1::<f32>::ones(12);
    let data = Dataset::from_arrays(x.clone(), y.clone()).unwrap();
    let mut columns = Array2::zeros((3, 12)).reversed_axes();
    columns.assign(&x);
    let mut padded = Array2::<f32>::zeros((24, 6));
    padded.slice_mut(s![..;2, ..;2]).assign(&x);
    let fit = MeanPlus::default();
    for got in [
        fit.fit(&data),
        fit.fit((x.view(), y.view())),
        fit.fit((&x64, &y64)),
        fit.fit((&x, &y2)),
        fit.fit((&x, &y, &weights)),
        fit.fit((&columns, &y)),
        fit.fit((padded.slice(s![..;2, ..;2]), &y)),
        fit.fit((&x, y.slice(s![..]))),
        (&x, &y).into_design().and_then(|design| fit.fit(&design)),
    ] {
        assert_eq!(got.as_ref(), Ok(&expected));
        assert_eq!(got.unwrap().bit_hash(), expected.bit_hash());
    }
}

#[test]
fn designs_refuse_by_name() {
    let (x, y) = xy();
    let fit = |x: &Array2<f32>, y: &Array1<f32>| MeanPlus::default().fit((x, y)).unwrap_err();
    assert_eq!(
        fit(&x, &y.slice(s![..5]).to_owned()).to_string(),
        "target: expected shape 12 rows, as the features, got 5"
    );
    let (none, flat) = (Array2::zeros((0, 3)), Array2::zeros((12, 0)));
    assert!(matches!(fit(&none, &array![]), Error::Empty { .. }));
    assert!(matches!(fit(&flat, &y), Error::Empty { .. }));

    let mut bad = x.clone();
    bad[[7, 2]] = f32::NAN;
    assert_eq!(
        fit(&bad, &y).to_string(),
        "features: expected a finite number at row 7, column 2, got NaN"
    );
    let mut worse = y.clone();
    worse[3] = f32::NEG_INFINITY;
    assert_eq!(
        fit(&x, &worse).to_string(),
        "target: expected a finite number at row 3, column 0, got -inf"
    );
    // 1e39 is finite as f64, not as f32.
    let mut large = x.mapv(f64::from);
    large[[1, 1]] = 1e39;
    assert!(matches!(
        MeanPlus::default().fit((&large, &y)),
        Err(Error::NonFinite {
            row: 1,
            column: 1,
            ..
        })
    ));
    for weights in [
        Array1::from_elem(12, -1.0f32),
        Array1::zeros(12),
        Array1::from_elem(12, f32::NAN),
    ] {
        assert!(matches!(
            MeanPlus::default().fit((&x, &y, &weights)),
            Err(Error::InvalidValue { .. })
        ));
    }
    assert!(matches!(
        MeanPlus::default().fit(&x),
        Err(Error::Unsupported { .. })
    ));
    let uneven = y.mapv(|v| v as i32).mapv(|v| v * 16_777_217);
    assert!(matches!(
        MeanPlus::default().fit((&x, &uneven)),
        Err(Error::InvalidValue { .. })
    ));
}

/// L4: two targets at once are fitted, or refused by name.
#[test]
fn l4_two_targets_are_refused_where_one_is_asked_for() {
    let (x, y) = xy();
    let two = ndarray::stack![ndarray::Axis(1), y, y];
    assert_eq!(
        MeanPlus::default().fit((&x, &two)).unwrap_err().to_string(),
        "2 targets at once is not supported: fit one model per target"
    );
    let design = (&x, &two).into_design().unwrap();
    assert!(
        design
            .check(&DesignRules::supervised().many_targets())
            .is_ok()
    );
    assert_eq!(design.targets().unwrap(), two);
}

#[test]
fn rules_let_missing_values_and_infinities_through() {
    let x = array![[1.0f32, f32::NAN], [f32::INFINITY, 2.0]];
    let design = x.view().into_design().unwrap();
    let rules = DesignRules::unsupervised();
    assert!(matches!(
        design.check(&rules),
        Err(Error::NonFinite {
            row: 0,
            column: 1,
            ..
        })
    ));
    assert!(matches!(
        design.check(&rules.allow_nan()),
        Err(Error::NonFinite {
            row: 1,
            column: 0,
            ..
        })
    ));
    assert!(matches!(
        design.check(&rules.allow_infinite()),
        Err(Error::NonFinite {
            row: 0,
            column: 1,
            ..
        })
    ));
    assert!(design.check(&rules.allow_nan().allow_infinite()).is_ok());
}

#[test]
fn pipelines_equal_their_stages_by_hand() {
    let (x, y) = xy();
    let fitted = Pipeline::new()
        .then(FromFirst)
        .then(FromFirst)
        .then(MeanPlus::default())
        .fit((&x, &y))
        .unwrap();
    let first = FromFirst.fit(&x).unwrap();
    let moved = first.transform(x.view()).unwrap();
    let second = FromFirst.fit(&moved).unwrap();
    let moved = second.transform(moved.view()).unwrap();
    let last = MeanPlus::default().fit((&moved, &y)).unwrap();
    let expected = last.predict(moved.view()).unwrap();
    assert_eq!(fitted.predict(x.view()), Ok(expected));
    assert_eq!(fitted.last(), &last);
    assert_eq!(
        fitted.score(x.view(), y.view(), None),
        last.score(moved.view(), y.view(), None)
    );

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipeline");
    fitted.save(&path).unwrap();
    let read = load_like(&fitted, &path).unwrap();
    assert_eq!(fitted, read);
    assert_eq!(fitted.bit_hash(), read.bit_hash());

    let two = Pipeline::new()
        .then(FromFirst)
        .then(FromFirst)
        .fit(&x)
        .unwrap();
    two.save(&path).unwrap();
    assert!(matches!(
        load_like(&fitted, &path),
        Err(Error::ModelFile { .. })
    ));
}

fn load_like<M: Persist>(_: &M, path: &Path) -> Result<M> {
    M::load(path)
}

#[test]
fn pipelines_check_each_stage() {
    let (mut x, y) = xy();
    let pipeline = Pipeline::new().then(FromFirst).then(MeanPlus::default());
    let fitted = pipeline.fit((&x, &y)).unwrap();
    assert!(matches!(
        fitted.predict(x.slice(s![.., ..2])),
        Err(Error::FeatureMismatch { .. })
    ));
    assert_eq!(fitted.predict(x.slice(s![..0, ..])).unwrap().len(), 0);
    assert!(matches!(pipeline.fit(&x), Err(Error::Unsupported { .. })));
    x[[2, 2]] = f32::NAN;
    assert!(matches!(
        pipeline.fit((&x, &y)),
        Err(Error::NonFinite { row: 2, .. })
    ));
    x[[2, 2]] = f32::MAX;
    x[[0, 2]] = f32::MIN;
    // The first stage makes an infinity of two finite numbers; the second refuses it.
    assert!(matches!(
        pipeline.fit((&x, &y)),
        Err(Error::NonFinite { row: 2, .. })
    ));
}

#[test]
fn cross_validation_fits_on_the_other_folds() {
    let (x, y) = xy();
    let data = Dataset::from_arrays(x, y).unwrap();
    let estimator = MeanPlus::default();
    let scores = cross_val_score(&estimator, &data, &KFold::new(3)).unwrap();
    assert_eq!(scores.len(), 3);
    let train = data.take_rows(&[4, 5, 6, 7, 8, 9, 10, 11]).unwrap();
    let test = data.take_rows(&[0, 1, 2, 3]).unwrap();
    let model = estimator.fit(&train).unwrap();
    let expected = model.score(test.features(), test.labels().unwrap(), None);
    assert_eq!(Ok(scores[0]), expected);

    let means = cross_validate(&estimator, &data, &KFold::new(3), |model, test| {
        Ok((model.mean, test.n_rows()))
    })
    .unwrap();
    assert_eq!(means[0], (model.mean, 4));
}

#[test]
fn progress_sees_each_step_and_stops_the_fit() {
    let (x, y) = xy();
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let progress = Progress::new(move |event| {
        assert_eq!(event.steps, 12);
        counter.store(event.step, Ordering::Relaxed);
        if event.step < 5 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    let stopped = MeanPlus { progress }.fit((&x, &y));
    assert_eq!(
        stopped,
        Err(Error::Stopped {
            what: "MeanPlus".into()
        })
    );
    assert_eq!(seen.load(Ordering::Relaxed), 5);
}

#[test]
fn fitted_models_can_be_kept_as_trait_objects() {
    let (x, y) = xy();
    let model = MeanPlus::default().fit((&x, &y)).unwrap();
    let boxed: Box<dyn Predict> = Box::new(model.clone());
    assert_eq!(boxed.predict(x.view()), model.predict(x.view()));
    let kept: [Box<dyn Persist>; 2] = [
        Box::new(model.clone()),
        Box::new(FromFirst.fit(&x).unwrap()),
    ];
    assert_eq!(kept[0].to_model_file().bit_hash(), model.bit_hash());
    let scored: &dyn Score = &model;
    assert!(scored.score(x.view(), y.view(), None).is_ok());
    let fits: &dyn Fit<Fitted = FittedMeanPlus> = &MeanPlus::default();
    let design = (&x, &y).into_design().unwrap();
    assert_eq!(fits.fit_design(&design), Ok(model));
}
