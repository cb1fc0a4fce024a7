//! Tree ensembles of other libraries.
//!
//! [`TreeEnsemble`] reads models of XGBoost, LightGBM, CatBoost and scikit-learn and predicts with
//! the same bits on every backend. [`GradientBoostingModel`](crate::GradientBoostingModel) writes
//! itself as a model of [XGBoost](crate::GradientBoostingModel::to_xgboost_json) or
//! [LightGBM](crate::GradientBoostingModel::to_lightgbm_text).
//!
//! | format | read | refused by name |
//! |---|---|---|
//! | [XGBoost JSON](https://xgboost.readthedocs.io/en/stable/tutorials/saving_model.html), UBJSON (1.0 to 3.x) | `gbtree`, `dart`, random forests (`num_parallel_tree`), multi-class, several targets (one tree each, or `multi_output_tree` of 3.2), categorical splits | `gblinear`, `multi_output_tree` before 3.2, unknown objectives |
//! | [LightGBM text](https://lightgbm.readthedocs.io/en/stable/pythonapi/lightgbm.Booster.html) (v2 to v4) | `gbdt`, `dart`, `goss`, `rf` (`average_output`), multi-class, one-vs-all, `missing_type` None and NaN, Zero where a split sends zeros where it sends missing values, categorical splits | linear trees, `missing_type` Zero elsewhere, unknown objectives |
//! | [CatBoost JSON](https://catboost.ai/docs/en/features/export-model-to-json) (`format="json"`) | symmetric trees, depth-wise and loss-guided trees, multi-class, one-vs-all, several targets | categorical (CTR, one-hot), text and embedding features, `RMSEWithUncertainty`, unknown losses |
//! | [scikit-learn](https://scikit-learn.org/stable/modules/ensemble.html) (1.3 on), by `detml-trees/scripts/export_sklearn.py` | `DecisionTree*`, `ExtraTree*`, `RandomForest*`, `ExtraTrees*`, `GradientBoosting*`, `HistGradientBoosting*`, of regressors and classifiers | categorical features, several targets of a classifier, an `init` that is no constant |
//!
//! Tested with XGBoost 1.7.6, 2.1.4 and 3.2.0, LightGBM 4.7.0, CatBoost 1.2.10 and scikit-learn
//! 1.9.1.
//!
//! A split by categories (numbers of codes, as the libraries take them) becomes a search tree of
//! thresholds with copies of the subtrees below, which is exact; trees that would take more than
//! 65,536 nodes are refused by name.
//!
//! # What is the same, and what is close
//! Every row reaches the leaf that its library sends it to: `x < t` and thresholds in `f64` become
//! `x <= t'` with the `f32` that parts the `f32`s in the same way, and missing values (NaN) keep
//! their sides. Features are `f32`: data that a library compares in `f64` must be rounded to `f32`
//! for it too. As in LightGBM, numbers up to 1e-35 from zero are zero for a model of LightGBM.
//!
//! Leaf values are rounded once to `f32`: XGBoost's are `f32` (under dart their product with the
//! tree's weight), LightGBM's and CatBoost's are `f64` (CatBoost's times its scale), and an average
//! of `n` trees is the sum of leaves that were divided by `n` in `f64`. Margins are summed in `f32`
//! in the order of the trees, where others sum in `f64`. With `T` trees an output's margin is
//! within `(T + 1) 2^-24` (to first order) of the sum of the absolute leaf values that it adds and
//! its base, and in the tests, of a few trees each, within `1e-6` of the largest margin of a case.
//!
//! ```
//! use detml_core::prelude::*;
//! use detml_trees::TreeEnsemble;
//! use detml_trees::interop::Link;
//! use ndarray::array;
//!
//! let text = "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nmax_feature_idx=1\n\
//!     objective=binary sigmoid:1\nfeature_names=age income\n\nTree=0\nnum_leaves=2\nnum_cat=0\n\
//!     split_feature=1\nthreshold=2.5\ndecision_type=10\nleft_child=-1\nright_child=-2\n\
//!     leaf_value=-1.5 0.75\nis_linear=0\nshrinkage=1\n\n\nend of trees\n";
//! let model = TreeEnsemble::from_lightgbm_text(text.as_bytes())?;
//! assert_eq!(model.link(), Link::Sigmoid);
//! assert_eq!(model.feature_names().unwrap(), ["age", "income"]);
//! let margins = model.predict_margin(array![[0.0, 2.5], [0.0, 2.6], [0.0, f32::NAN]].view())?;
//! assert_eq!(margins, array![[-1.5], [0.75], [-1.5]]);
//! println!("{}", model.bit_hash());
//! # Ok::<(), detml_core::Error>(())
//! ```

mod catboost;
mod categories;
mod export;
mod lightgbm;
mod sklearn;
#[cfg(test)]
mod tests;
mod tree;
mod ubjson;
mod xgboost;

use crate::explain::ExplainTrees;
use crate::forest::{margins_on, read, shaped, timed, write};
use detml_core::{Error, ExecutionReport, ModelFile, Persist, Predict, PredictProba, Result};
use detml_kernels::Device;
use detml_kernels::ops::boosting as ops;
use detml_kernels::ops::elementwise::{Binary, Unary, map, zip};
use detml_kernels::ops::forest::Forest;
use ndarray::{Array1, Array2, ArrayView2};
use serde_json::Value;

const NAME: &str = "TreeEnsemble";

/// The library that a [`TreeEnsemble`] comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Library {
    /// XGBoost.
    XgBoost,
    /// LightGBM.
    LightGbm,
    /// CatBoost.
    CatBoost,
    /// scikit-learn.
    ScikitLearn,
}

impl Library {
    const ALL: [Self; 4] = [
        Self::XgBoost,
        Self::LightGbm,
        Self::CatBoost,
        Self::ScikitLearn,
    ];

    /// Its name in lower case, such as `xgboost`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::XgBoost => "xgboost",
            Self::LightGbm => "lightgbm",
            Self::CatBoost => "catboost",
            Self::ScikitLearn => "scikit-learn",
        }
    }
}

/// What makes a prediction of a margin `m`, which is first multiplied by the
/// [slope](TreeEnsemble::slope).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Link {
    /// `m`: regression, ranking, quantiles, probabilities of forests.
    Identity,
    /// `1 / (1 + e^-m)`: the probability of the second of two classes, of each class against all
    /// others, or a target between 0 and 1.
    Sigmoid,
    /// `e^m_k / sum_j e^m_j`: probabilities of classes.
    Softmax,
    /// `e^m`: counts and other positive targets.
    Exp,
    /// `log(1 + e^m)`: LightGBM's `cross_entropy_lambda`.
    Softplus,
    /// `m |m|`: LightGBM's `reg_sqrt`.
    SignedSquare,
    /// 1 above 0, else 0: XGBoost's `binary:hinge`.
    Step,
}

impl Link {
    const ALL: [Self; 7] = [
        Self::Identity,
        Self::Sigmoid,
        Self::Softmax,
        Self::Exp,
        Self::Softplus,
        Self::SignedSquare,
        Self::Step,
    ];

    /// Its name in lower case, such as `signed_square`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Sigmoid => "sigmoid",
            Self::Softmax => "softmax",
            Self::Exp => "exp",
            Self::Softplus => "softplus",
            Self::SignedSquare => "signed_square",
            Self::Step => "step",
        }
    }

    /// The link of margins (rows x outputs), row by row.
    fn apply(
        self,
        device: &Device,
        slope: f32,
        outputs: usize,
        mut margins: Vec<f32>,
    ) -> Result<Vec<f32>> {
        match self {
            Self::Softmax if slope == 1.0 => {
                let loss = ops::Loss::Softmax { classes: outputs };
                return ops::probabilities(device, loss, &margins);
            }
            Self::Identity if slope == 1.0 => return Ok(margins),
            Self::Step => {
                for margin in &mut margins {
                    *margin = f32::from(u8::from(*margin > 0.0));
                }
                return Ok(margins);
            }
            _ => {}
        }
        let mut x = device.upload_vec(margins)?;
        if slope != 1.0 {
            x = zip(Binary::Mul, &x, slope)?;
        }
        let x = match self {
            Self::Sigmoid => map(Unary::Sigmoid, &x)?,
            Self::Exp => map(Unary::Exp, &x)?,
            Self::Softplus => map(Unary::Softplus, &x)?,
            Self::SignedSquare => zip(Binary::Mul, &x, &map(Unary::Abs, &x)?)?,
            Self::Identity | Self::Step => x,
            Self::Softmax => {
                let loss = ops::Loss::Softmax { classes: outputs };
                return ops::probabilities(device, loss, &device.read(&x)?);
            }
        };
        device.read(&x)
    }
}

/// A sum of decision trees that another library has fitted.
///
/// The [module](self) says which formats are read and what is promised. Like every model it is
/// saved as a model file of detml ([`Persist`]): equal models give equal bytes.
#[derive(Clone, Debug)]
pub struct TreeEnsemble {
    parts: Parts,
}

#[derive(Clone, Debug)]
struct Parts {
    library: Library,
    /// The name of the objective in its library.
    objective: String,
    link: Link,
    slope: f32,
    /// Ascending; none without classes.
    classes: Vec<f32>,
    class_names: Option<Vec<String>>,
    feature_names: Option<Vec<String>>,
    /// Trees of an output in each round.
    parallel_trees: usize,
    /// Whether leaves were divided by the number of rounds.
    averaged: bool,
    best_iteration: Option<usize>,
    forest: Forest,
}

impl Parts {
    /// A plain regressor; others change it.
    fn new(library: Library, objective: impl Into<String>, forest: Forest) -> Self {
        Self {
            library,
            objective: objective.into(),
            link: Link::Identity,
            slope: 1.0,
            classes: Vec::new(),
            class_names: None,
            feature_names: None,
            parallel_trees: 1,
            averaged: false,
            best_iteration: None,
            forest,
        }
    }

    /// Classes 0, 1 and so on.
    fn number_classes(&mut self, classes: usize) {
        self.classes = (0..classes).map(|class| class as f32).collect();
    }

    /// The labels themselves if they are ascending numbers of `f32`, else their places and names.
    fn name_classes(&mut self, classes: usize, labels: &[Value]) {
        let exact = |label: &Value| {
            let number = label.as_f64()?;
            (f64::from(number as f32) == number).then_some(number as f32)
        };
        self.number_classes(classes);
        match labels.iter().map(exact).collect::<Option<Vec<f32>>>() {
            _ if labels.is_empty() => {}
            Some(numbers) if numbers.is_sorted_by(|a, b| a < b) => self.classes = numbers,
            _ => {
                let name = |label: &Value| match label {
                    Value::String(name) => name.clone(),
                    other => other.to_string(),
                };
                self.class_names = Some(labels.iter().map(name).collect());
            }
        }
    }
}

impl TreeEnsemble {
    fn new(parts: Parts) -> Result<Self> {
        let outputs = parts.forest.base().len();
        let classes = match parts.link {
            Link::Sigmoid if outputs == 1 => 2,
            _ => outputs,
        };
        if !parts.classes.is_empty() && parts.classes.len() != classes {
            return Err(Error::shape(
                "classes",
                format_args!("{classes}, of {outputs} outputs"),
                parts.classes.len(),
            ));
        }
        let sorted = parts.classes.is_sorted_by(|a, b| a < b);
        if !(sorted && parts.classes.iter().all(|class| class.is_finite())) {
            return Err(Error::parameter(
                "classes",
                "ascending numbers",
                format_args!("{:?}", parts.classes),
            ));
        }
        let features = parts.forest.features();
        for (what, names, count) in [
            ("feature names", &parts.feature_names, features),
            ("class names", &parts.class_names, parts.classes.len()),
        ] {
            if let Some(names) = names.as_ref().filter(|names| names.len() != count) {
                return Err(Error::shape(what, count, names.len()));
            }
        }
        if !(parts.slope.is_finite() && parts.slope > 0.0) {
            return Err(Error::parameter(
                "slope",
                "a finite number above 0",
                parts.slope,
            ));
        }
        let round = outputs.checked_mul(parts.parallel_trees).unwrap_or(0);
        if round == 0 || !parts.forest.trees().is_multiple_of(round) {
            return Err(Error::shape(
                "trees",
                format_args!(
                    "rounds of {outputs} outputs with {} trees each",
                    parts.parallel_trees
                ),
                parts.forest.trees(),
            ));
        }
        Ok(Self { parts })
    }

    /// Reads a model that XGBoost saved as JSON (`save_model("model.json")`).
    ///
    /// All rounds are read; those up to the best one of early stopping are
    /// [`with_rounds`](Self::with_rounds)`(`[`best_iteration`](Self::best_iteration)` + 1)`.
    /// Infinities and NaN, which aren't JSON, are refused: UBJSON has them.
    ///
    /// # Errors
    /// [`Error::ModelFile`] for a damaged file, [`Error::Unsupported`] for what the
    /// [module](self) names.
    pub fn from_xgboost_json(bytes: &[u8]) -> Result<Self> {
        xgboost::from_json(bytes)
    }

    /// Reads a model that XGBoost saved as UBJSON (`save_model("model.ubj")`), as
    /// [`from_xgboost_json`](Self::from_xgboost_json).
    ///
    /// # Errors
    /// As [`from_xgboost_json`](Self::from_xgboost_json).
    pub fn from_xgboost_ubjson(bytes: &[u8]) -> Result<Self> {
        xgboost::from_ubjson(bytes)
    }

    /// Reads a model that LightGBM saved as text (`save_model("model.txt")`).
    ///
    /// # Errors
    /// [`Error::ModelFile`] for a damaged file, [`Error::Unsupported`] for what the
    /// [module](self) names.
    pub fn from_lightgbm_text(bytes: &[u8]) -> Result<Self> {
        lightgbm::from_text(bytes)
    }

    /// Reads a model that CatBoost saved as JSON (`save_model("model.json", format="json")`).
    ///
    /// Columns are those of the training pool (`flat_feature_index`).
    ///
    /// # Errors
    /// [`Error::ModelFile`] for a damaged file, [`Error::Unsupported`] for what the
    /// [module](self) names.
    pub fn from_catboost_json(bytes: &[u8]) -> Result<Self> {
        catboost::from_json(bytes)
    }

    /// Reads a model of scikit-learn that `scripts/export_sklearn.py` wrote; the script documents
    /// the format.
    ///
    /// # Errors
    /// [`Error::ModelFile`] for a damaged file, [`Error::Unsupported`] for what the
    /// [module](self) names.
    pub fn from_sklearn_json(bytes: &[u8]) -> Result<Self> {
        sklearn::from_json(bytes)
    }

    /// The library that fitted it.
    #[must_use]
    pub fn library(&self) -> Library {
        self.parts.library
    }

    /// What the library calls the objective (scikit-learn: the estimator).
    #[must_use]
    pub fn objective(&self) -> &str {
        &self.parts.objective
    }

    /// What makes predictions of margins.
    #[must_use]
    pub fn link(&self) -> Link {
        self.parts.link
    }

    /// The factor of margins before the link: LightGBM's `sigmoid`, 2 for scikit-learn's
    /// exponential loss, else 1.
    #[must_use]
    pub fn slope(&self) -> f32 {
        self.parts.slope
    }

    /// The trees and base margins.
    #[must_use]
    pub fn forest(&self) -> &Forest {
        &self.parts.forest
    }

    /// Columns of the margins.
    #[must_use]
    pub fn n_outputs(&self) -> usize {
        self.parts.forest.base().len()
    }

    /// Number of trees of all outputs.
    #[must_use]
    pub fn n_trees(&self) -> usize {
        self.parts.forest.trees()
    }

    /// Number of boosting rounds. For a forest of scikit-learn or LightGBM each tree is one, for
    /// one of XGBoost all trees are.
    #[must_use]
    pub fn n_rounds(&self) -> usize {
        self.n_trees() / self.round()
    }

    /// Trees in a round: outputs times parallel trees.
    fn round(&self) -> usize {
        self.n_outputs() * self.parts.parallel_trees
    }

    /// The best round of early stopping, counted from 0, if the file holds it (XGBoost's does).
    #[must_use]
    pub fn best_iteration(&self) -> Option<usize> {
        self.parts.best_iteration
    }

    /// The first `rounds` rounds (XGBoost's `iteration_range`, LightGBM's `num_iteration`).
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for more rounds than there are; [`Error::Unsupported`] if
    /// margins are averages of all trees.
    pub fn with_rounds(&self, rounds: usize) -> Result<Self> {
        if rounds > self.n_rounds() {
            let expected = format_args!("at most the {} of the model", self.n_rounds());
            return Err(Error::parameter("rounds", expected, rounds));
        }
        if self.parts.averaged {
            return Err(Error::unsupported(
                "a part of an average of trees",
                "its leaves are divided by the number of all trees",
            ));
        }
        let forest = &self.parts.forest;
        let starts = forest.starts()[..=rounds * self.round()].to_vec();
        let end = starts.last().copied().unwrap_or(0);
        let mut parts = self.parts.clone();
        parts.forest = Forest::new(
            forest.features(),
            forest.base().to_vec(),
            starts,
            forest.nodes()[..end].to_vec(),
        )?;
        parts.best_iteration = parts.best_iteration.filter(|&best| best < rounds);
        Self::new(parts)
    }

    /// The features' names, if the file has them.
    #[must_use]
    pub fn feature_names(&self) -> Option<&[String]> {
        self.parts.feature_names.as_deref()
    }

    /// The names of classes that aren't ascending numbers of `f32`; the labels are then 0, 1 and
    /// so on.
    #[must_use]
    pub fn class_names(&self) -> Option<&[String]> {
        self.parts.class_names.as_deref()
    }

    /// The raw margins (rows x outputs) of `x` (rows x features): XGBoost's `output_margin`,
    /// LightGBM's `raw_score` (for `rf` the average), CatBoost's `RawFormulaVal`.
    ///
    /// It runs on the current backend; the bits are the same on all.
    ///
    /// # Errors
    /// [`Error::FeatureMismatch`] for another number of columns; those of the backend.
    pub fn predict_margin(&self, x: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        Ok(self.predict_margin_on(&Device::current()?, x)?.0)
    }

    /// As [`predict_margin`](Self::predict_margin) on a given device, and what ran where.
    ///
    /// # Errors
    /// As [`predict_margin`](Self::predict_margin).
    pub fn predict_margin_on(
        &self,
        device: &Device,
        x: ArrayView2<'_, f32>,
    ) -> Result<(Array2<f32>, ExecutionReport)> {
        margins_on(&self.parts.forest, device, x)
    }

    /// The [link](Self::link) of the margins (rows x outputs): what `Booster.predict` gives in
    /// XGBoost and LightGBM (for XGBoost's `multi:softmax` the probabilities).
    ///
    /// # Errors
    /// As [`predict_margin`](Self::predict_margin).
    pub fn predict_response(&self, x: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        Ok(self.predict_response_on(&Device::current()?, x)?.0)
    }

    /// As [`predict_response`](Self::predict_response) on a given device, and what ran where.
    ///
    /// # Errors
    /// As [`predict_margin`](Self::predict_margin).
    pub fn predict_response_on(
        &self,
        device: &Device,
        x: ArrayView2<'_, f32>,
    ) -> Result<(Array2<f32>, ExecutionReport)> {
        let (margins, mut report) = self.predict_margin_on(device, x)?;
        let (rows, outputs) = margins.dim();
        let (margins, _) = margins.into_raw_vec_and_offset();
        let Parts { link, slope, .. } = self.parts;
        let response = timed(&mut report, "link", device, || {
            link.apply(device, slope, outputs, margins)
        })?;
        Ok((shaped(rows, outputs, response)?, report))
    }
}

/// Explains margins. Formats say of few trees what each node weighed in training, so there are no
/// covers: [`interventional_shap`](ExplainTrees::interventional_shap) takes a background instead.
impl ExplainTrees for TreeEnsemble {
    fn forest(&self) -> &Forest {
        &self.parts.forest
    }

    fn covers(&self) -> Option<&[f32]> {
        None
    }
}

impl Predict for TreeEnsemble {
    fn n_features(&self) -> usize {
        self.parts.forest.features()
    }

    /// For a classifier the label of the class with the highest margin, the lowest of equals; of
    /// two classes with one margin the second if it is above 0. Else the
    /// [response](Self::predict_response), [`Error::Unsupported`] for several outputs.
    fn predict(&self, x: ArrayView2<'_, f32>) -> Result<Array1<f32>> {
        let classes = &self.parts.classes;
        if classes.is_empty() {
            if self.n_outputs() > 1 {
                return Err(Error::unsupported(
                    "one prediction of several outputs",
                    "`predict_response` gives them all",
                ));
            }
            return Ok(self.predict_response(x)?.column(0).to_owned());
        }
        let margins = self.predict_margin(x)?;
        Ok(margins
            .rows()
            .into_iter()
            .map(|row| match row.len() {
                1 => classes[usize::from(row[0] > 0.0)],
                _ => {
                    let higher = |best: usize, class| {
                        if row[class] > row[best] { class } else { best }
                    };
                    classes[(1..row.len()).fold(0, higher)]
                }
            })
            .collect())
    }
}

impl PredictProba for TreeEnsemble {
    /// None for what isn't a classifier.
    fn classes(&self) -> &[f32] {
        &self.parts.classes
    }

    /// As the trait says; one-vs-all gives each class's own probability, so that rows don't sum to
    /// 1. [`Error::Unsupported`] for what isn't a classifier.
    fn predict_proba(&self, x: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        let classes = self.parts.classes.len();
        if classes == 0 {
            return Err(Error::unsupported(
                "probabilities of a model without classes",
                "`predict_response` gives its predictions",
            ));
        }
        if classes == self.n_outputs() {
            return self.predict_response(x);
        }
        let device = Device::current()?;
        let (margins, _) = self.predict_margin_on(&device, x)?;
        let rows = margins.nrows();
        let (margins, _) = margins.into_raw_vec_and_offset();
        let margins = Link::Identity.apply(&device, self.parts.slope, 1, margins)?;
        let probabilities = ops::probabilities(&device, ops::Loss::Logistic, &margins)?;
        shaped(rows, classes, probabilities)
    }
}

impl Persist for TreeEnsemble {
    fn to_model_file(&self) -> ModelFile {
        let Parts {
            library,
            objective,
            link,
            slope,
            classes,
            class_names,
            feature_names,
            parallel_trees,
            averaged,
            best_iteration,
            forest,
        } = &self.parts;
        let file = ModelFile::new(NAME)
            .with_param("library", library.name())
            .with_param("objective", objective.as_str())
            .with_param("link", link.name())
            .with_param("feature_names", feature_names.clone())
            .with_param("class_names", class_names.clone())
            .with_param("parallel_trees", *parallel_trees)
            .with_param("averaged", *averaged)
            .with_param("best_iteration", *best_iteration)
            .with_slice("slope", &[*slope])
            .with_slice("classes", classes);
        write(file, forest)
    }

    fn from_model_file(file: &ModelFile) -> Result<Self> {
        file.expect_estimator(NAME)?;
        let refuse = |error: Error| file.refuse(error.to_string());
        let unknown = |what: &str, name: &str| {
            file.refuse(format!("unknown {what} `{}`", name.escape_debug()))
        };
        let library: String = file.param("library")?;
        let link: String = file.param("link")?;
        let forest = read(file)?;
        let model = Self::new(Parts {
            library: Library::ALL
                .into_iter()
                .find(|known| known.name() == library)
                .ok_or_else(|| unknown("library", &library))?,
            objective: file.param("objective")?,
            link: Link::ALL
                .into_iter()
                .find(|known| known.name() == link)
                .ok_or_else(|| unknown("link", &link))?,
            slope: file.vector("slope")?.first().copied().unwrap_or(f32::NAN),
            classes: file.vector("classes")?,
            class_names: file.param("class_names")?,
            feature_names: file.param("feature_names")?,
            parallel_trees: file.param("parallel_trees")?,
            averaged: file.param("averaged")?,
            best_iteration: file.param("best_iteration")?,
            forest,
        })
        .map_err(refuse)?;
        // Whatever else the file holds, this model would not have written it.
        if model.to_model_file().to_bytes() != file.to_bytes() {
            return Err(file.refuse("it holds more than a model of its kind"));
        }
        Ok(model)
    }
}
