use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ndarray::{Array1, Array2, ArrayView1, ArrayView2};

use crate::{BitHash, BitHashed, Design, DesignRules, Error, IntoDesign, ModelFile, Result};

/// An estimator: hyperparameters that, with data, give a fitted model.
///
/// The estimator itself never changes; an unfitted model can't predict since it is another
/// type. Implementations write [`fit_design`](Self::fit_design); callers use
/// [`fit`](Self::fit), which takes anything that turns into a [`Design`].
pub trait Fit {
    /// The fitted model.
    type Fitted;

    /// What the estimator accepts; [`fit`](Self::fit) refuses the rest.
    fn rules(&self) -> DesignRules;

    /// Fits to data which keeps to [`rules`](Self::rules).
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for hyperparameters outside their domain, and what the
    /// estimator names.
    fn fit_design(&self, design: &Design<'_>) -> Result<Self::Fitted>;

    /// Checks `data` and fits.
    ///
    /// # Errors
    /// As [`IntoDesign::into_design`], [`Design::check`] and
    /// [`fit_design`](Self::fit_design).
    fn fit<'a>(&self, data: impl IntoDesign<'a>) -> Result<Self::Fitted>
    where
        Self: Sized,
    {
        let design = data.into_design()?;
        design.check(&self.rules())?;
        self.fit_design(&design)
    }
}

/// A fitted model that gives one number per row: a value, or for a classifier a label.
pub trait Predict {
    /// Number of feature columns of the fit.
    fn n_features(&self) -> usize;

    /// One prediction per row of `x` (rows x features). A row's result doesn't depend on the
    /// other rows (N7); no rows give no predictions.
    ///
    /// # Errors
    /// [`Error::FeatureMismatch`] for another number of columns; [`Error::NonFinite`] where
    /// the model refuses a value.
    fn predict(&self, x: ArrayView2<'_, f32>) -> Result<Array1<f32>>;
}

/// A fitted classifier that gives probabilities.
pub trait PredictProba {
    /// The class labels, ascending: the columns of the probabilities.
    fn classes(&self) -> &[f32];

    /// Class probabilities (rows x classes) of `x` (rows x features).
    ///
    /// # Errors
    /// As [`Predict::predict`].
    fn predict_proba(&self, x: ArrayView2<'_, f32>) -> Result<Array2<f32>>;
}

/// A fitted transformer of features.
pub trait Transform {
    /// The transformed features, with as many rows as `x`. What was fitted on some data
    /// transforms that data as any other.
    ///
    /// # Errors
    /// As [`Predict::predict`].
    fn transform(&self, x: ArrayView2<'_, f32>) -> Result<Array2<f32>>;
}

/// A fitted model with a default measure of quality, the greater the better: accuracy for
/// classifiers, R2 for regressors.
pub trait Score {
    /// The measure on `x` (rows x features) against `y`, each row counting `weights` times.
    ///
    /// # Errors
    /// As [`Predict::predict`], and [`Error::Shape`] if row counts differ.
    fn score(
        &self,
        x: ArrayView2<'_, f32>,
        y: ArrayView1<'_, f32>,
        weights: Option<ArrayView1<'_, f32>>,
    ) -> Result<f64>;
}

/// A fitted model that can be written to a [`ModelFile`] and read back, bit for bit.
///
/// Its [`BitHashed::bit_hash`] is the hash of the file's bytes.
pub trait Persist {
    /// The model's parts. Equal models give equal bytes on every machine.
    fn to_model_file(&self) -> ModelFile;

    /// The model from its parts.
    ///
    /// # Errors
    /// [`Error::ModelFile`] if a part is missing, of another kind or out of its domain.
    fn from_model_file(file: &ModelFile) -> Result<Self>
    where
        Self: Sized;

    /// Writes the model to `path`, whole or not at all.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn save(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        self.to_model_file().save(path)
    }

    /// Reads a model that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::ModelFile`] for a file that isn't such a model.
    fn load(path: impl AsRef<Path>) -> Result<Self>
    where
        Self: Sized,
    {
        let file = ModelFile::load(path)?;
        Self::from_model_file(&file)
    }
}

impl<M: Persist> BitHashed for M {
    fn bit_hash(&self) -> BitHash {
        self.to_model_file().bit_hash()
    }
}

/// How far a fit has come, as told to a [`Progress`] callback.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProgressEvent<'a> {
    /// Steps (rounds, iterations, epochs) done.
    pub step: usize,
    /// Steps planned; fewer may do.
    pub steps: usize,
    /// Measures after this step, by name.
    pub measures: &'a [(&'a str, f64)],
}

impl<'a> ProgressEvent<'a> {
    /// `step` of `steps` done, with these measures.
    #[must_use]
    pub fn new(step: usize, steps: usize, measures: &'a [(&'a str, f64)]) -> Self {
        Self {
            step,
            steps,
            measures,
        }
    }
}

/// A callback which sees each step of a fit and may stop it.
///
/// It never changes the result: a fit that ends has the same bits with and without one.
///
/// ```
/// use std::ops::ControlFlow;
/// use detml_core::{Progress, ProgressEvent};
///
/// let progress = Progress::new(|event| {
///     println!("{} of {}", event.step, event.steps);
///     if event.step < 10 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
/// });
/// assert!(progress.report("fit", ProgressEvent::new(1, 100, &[])).is_ok());
/// assert!(progress.report("fit", ProgressEvent::new(10, 100, &[])).is_err());
/// ```
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<Callback>>);

type Callback = dyn Fn(&ProgressEvent<'_>) -> ControlFlow<()> + Send + Sync;

impl Progress {
    /// Calls `callback` after each step, on the thread that fits.
    pub fn new(
        callback: impl Fn(&ProgressEvent<'_>) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(callback)))
    }

    /// No callback.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// True if there is a callback, so that measures are worth computing.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Tells the callback of a step of `what`.
    ///
    /// # Errors
    /// [`Error::Stopped`] if it asks to stop.
    pub fn report(&self, what: &str, event: ProgressEvent<'_>) -> Result<()> {
        match self.0.as_ref().map(|callback| callback(&event)) {
            Some(ControlFlow::Break(())) => Err(Error::Stopped { what: what.into() }),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_some() {
            "Progress(callback)"
        } else {
            "Progress(none)"
        })
    }
}
