use super::eval::class_of;
use super::{EvalHistory, Loss, Metric};
use crate::explain::ExplainTrees;
use crate::forest::{margins_on, read, shaped, timed, write};
use detml_core::{
    Error, ExecutionReport, ModelFile, Persist, Predict, PredictProba, Result, Score,
    encode_labels, metrics,
};
use detml_kernels::Device;
use detml_kernels::ops::boosting as ops;
use detml_kernels::ops::forest::Forest;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2};

const NAME: &str = "GradientBoosting";

/// A fitted [`GradientBoosting`](super::GradientBoosting).
///
/// [`Predict::predict`] gives the value, or for a classifier the label of the most probable
/// class (the lowest of equals). [`detml_core::BitHashed::bit_hash`] is the hash of the bytes
/// that [`Persist::save`] writes.
#[derive(Clone, Debug)]
pub struct GradientBoostingModel {
    parts: Parts,
}

/// What a model is made of.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) loss: Loss,
    /// The name of the objective, with [`Loss::Custom`].
    pub(super) objective: Option<String>,
    /// Ascending; none for a regressor.
    pub(super) classes: Vec<f32>,
    pub(super) class_names: Option<Vec<String>>,
    pub(super) feature_names: Option<Vec<String>>,
    pub(super) forest: Forest,
    /// For each node.
    pub(super) gains: Vec<f32>,
    pub(super) covers: Vec<f32>,
    pub(super) history: Vec<EvalHistory>,
    pub(super) report: ExecutionReport,
}

/// How features are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// The sum of the gains of the feature's splits (XGBoost's `total_gain`, LightGBM's `gain`).
    Gain,
    /// The sum of the Hessians of the rows at the feature's splits (XGBoost's `total_cover`).
    Cover,
    /// The number of the feature's splits (XGBoost's `weight`, LightGBM's `split`).
    Splits,
    /// The mean gain of the feature's splits (XGBoost's `gain`).
    MeanGain,
    /// The mean over the feature's splits of the Hessians at them (XGBoost's `cover`).
    MeanCover,
}

impl GradientBoostingModel {
    pub(super) fn new(parts: Parts) -> Result<Self> {
        let outputs = parts.forest.base().len();
        let (expected, classes) = match parts.loss {
            Loss::Squared => (outputs.max(1), 0),
            Loss::Logistic => (1, 2),
            Loss::Softmax => (outputs, outputs),
            Loss::OneVsAll => (outputs.max(2), outputs.max(2)),
            _ => (1, 0),
        };
        // A single class is certain, and no more is asked of a loss than of two.
        parts.loss.with_outputs(outputs.max(2)).check()?;
        if parts.objective.is_some() != (parts.loss == Loss::Custom) {
            return Err(Error::parameter(
                "objective",
                "the name of a custom loss, and of no other",
                format_args!("{:?} with {:?}", parts.objective, parts.loss),
            ));
        }
        if outputs != expected || parts.classes.len() != classes {
            return Err(Error::shape(
                "model",
                format_args!(
                    "{classes} classes and {expected} outputs for {:?}",
                    parts.loss
                ),
                format_args!("{} and {outputs}", parts.classes.len()),
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
        let nodes = parts.forest.nodes().len();
        for (what, values) in [("gains", &parts.gains), ("covers", &parts.covers)] {
            if values.len() != nodes {
                return Err(Error::shape(what, nodes, values.len()));
            }
            if let Some(node) = values.iter().position(|x| !(x.is_finite() && *x >= 0.0)) {
                return Err(Error::InvalidValue {
                    what: what.into(),
                    row: node,
                    expected: "a finite number, 0 or above".into(),
                    got: values[node].to_string(),
                });
            }
        }
        let features = parts.forest.features();
        if let Some(names) = parts
            .feature_names
            .as_ref()
            .filter(|names| names.len() != features)
        {
            return Err(Error::shape("feature names", features, names.len()));
        }
        Ok(Self { parts })
    }

    /// What was minimised.
    #[must_use]
    pub fn loss(&self) -> Loss {
        self.parts.loss
    }

    /// The name of the [`Objective`](super::Objective), with [`Loss::Custom`].
    #[must_use]
    pub fn objective(&self) -> Option<&str> {
        self.parts.objective.as_deref()
    }

    /// Number of trees: rounds times [`n_outputs`](Self::n_outputs).
    #[must_use]
    pub fn n_trees(&self) -> usize {
        self.parts.forest.trees()
    }

    /// Rounds of the model; after early stopping, those up to the best.
    #[must_use]
    pub fn n_rounds(&self) -> usize {
        self.n_trees() / self.n_outputs()
    }

    /// Margins a row: one, or one for each class ([`Loss::Softmax`], [`Loss::OneVsAll`]) or target.
    #[must_use]
    pub fn n_outputs(&self) -> usize {
        self.parts.forest.base().len()
    }

    /// The margin that each output starts from.
    #[must_use]
    pub fn base_scores(&self) -> &[f32] {
        self.parts.forest.base()
    }

    /// The features' names, if the training data had any.
    #[must_use]
    pub fn feature_names(&self) -> Option<&[String]> {
        self.parts.feature_names.as_deref()
    }

    /// The names that the training data had for class labels 0, 1 and so on.
    #[must_use]
    pub fn class_names(&self) -> Option<&[String]> {
        self.parts.class_names.as_deref()
    }

    /// The trees and base margins.
    pub(crate) fn forest(&self) -> &Forest {
        &self.parts.forest
    }

    /// The gain of each node of the forest.
    pub(crate) fn gains(&self) -> &[f32] {
        &self.parts.gains
    }

    /// The sum of Hessians of each node of the forest.
    pub(crate) fn covers(&self) -> &[f32] {
        &self.parts.covers
    }

    /// The metric on each eval set, in the order they were given.
    #[must_use]
    pub fn history(&self) -> &[EvalHistory] {
        &self.parts.history
    }

    /// Where the fit ran and what it took; empty for a model read from a file.
    #[must_use]
    pub fn report(&self) -> &ExecutionReport {
        &self.parts.report
    }

    /// The importance of each feature; 0 for one without a split. Summed in `f64` in the order of
    /// the trees.
    #[must_use]
    pub fn feature_importance(&self, importance: Importance) -> Array1<f64> {
        let Parts {
            forest,
            gains,
            covers,
            ..
        } = &self.parts;
        let mut sums = Array1::zeros(forest.features());
        let mut splits: Array1<f64> = Array1::zeros(forest.features());
        for (node, (&gain, &cover)) in forest.nodes().iter().zip(gains.iter().zip(covers)) {
            if node.left != 0 {
                splits[node.feature as usize] += 1.0;
                sums[node.feature as usize] += match importance {
                    Importance::Gain | Importance::MeanGain => f64::from(gain),
                    Importance::Cover | Importance::MeanCover => f64::from(cover),
                    Importance::Splits => 1.0,
                };
            }
        }
        if matches!(importance, Importance::MeanGain | Importance::MeanCover) {
            // Without a split the sum is 0 too.
            sums.zip_mut_with(&splits, |sum, &splits| *sum /= splits.max(1.0));
        }
        sums
    }

    /// The [importance](Self::feature_importance) of each feature as a share of all: they sum
    /// to 1 but for rounding, as XGBoost's and scikit-learn's `feature_importances_`; all 0 if
    /// every importance is.
    #[must_use]
    pub fn feature_importance_shares(&self, importance: Importance) -> Array1<f64> {
        let mut shares = self.feature_importance(importance);
        let sum = shares.iter().fold(0.0, |sum, x| sum + x);
        if sum > 0.0 {
            shares.mapv_inplace(|x| x / sum);
        }
        shares
    }

    /// The raw margins (rows x outputs) of `x` (rows x features): predictions of a regressor, or
    /// their logarithms with a log link; log-odds; or what softmax is taken of. See [`Loss`].
    ///
    /// It runs on the current backend, like every prediction; the bits are the same on all.
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

    /// As [`predict_proba`](PredictProba::predict_proba) on a given device, and what ran where.
    ///
    /// # Errors
    /// As [`predict_proba`](PredictProba::predict_proba).
    pub fn predict_proba_on(
        &self,
        device: &Device,
        x: ArrayView2<'_, f32>,
    ) -> Result<(Array2<f32>, ExecutionReport)> {
        let (margins, mut report) = self.predict_margin_on(device, x)?;
        let rows = margins.nrows();
        let (margins, _) = margins.into_raw_vec_and_offset();
        let probabilities = timed(&mut report, "probabilities", device, || {
            ops::probabilities(device, self.ops_loss(), &margins)
        })?;
        Ok((
            shaped(rows, self.parts.classes.len(), probabilities)?,
            report,
        ))
    }

    /// The predicted values (rows x targets) of a regressor, of one target or several.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a classifier; else as [`predict_margin`](Self::predict_margin).
    pub fn predict_targets(&self, x: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        Ok(self.predict_targets_on(&Device::current()?, x)?.0)
    }

    /// As [`predict_targets`](Self::predict_targets) on a given device, and what ran where.
    ///
    /// # Errors
    /// As [`predict_targets`](Self::predict_targets).
    pub fn predict_targets_on(
        &self,
        device: &Device,
        x: ArrayView2<'_, f32>,
    ) -> Result<(Array2<f32>, ExecutionReport)> {
        if self.parts.loss.classifies() {
            return Err(Error::unsupported(
                "values predicted by a classifier",
                "ask it for labels or probabilities",
            ));
        }
        let (margins, mut report) = self.predict_margin_on(device, x)?;
        let loss = self.ops_loss();
        if !loss.log_link() {
            return Ok((margins, report));
        }
        let (margins, _) = margins.into_raw_vec_and_offset();
        let values = timed(&mut report, "link", device, || {
            ops::predictions(device, loss, margins)
        })?;
        Ok((shaped(x.nrows(), self.n_outputs(), values)?, report))
    }

    fn ops_loss(&self) -> ops::Loss {
        self.parts.loss.with_outputs(self.n_outputs())
    }
}

impl ExplainTrees for GradientBoostingModel {
    fn forest(&self) -> &Forest {
        &self.parts.forest
    }

    fn covers(&self) -> Option<&[f32]> {
        Some(&self.parts.covers)
    }
}

impl Predict for GradientBoostingModel {
    fn n_features(&self) -> usize {
        self.parts.forest.features()
    }

    /// As the trait says; [`Error::Unsupported`] for several targets, which
    /// [`predict_targets`](GradientBoostingModel::predict_targets) predicts.
    fn predict(&self, x: ArrayView2<'_, f32>) -> Result<Array1<f32>> {
        let Parts { loss, classes, .. } = &self.parts;
        if !loss.classifies() {
            if self.n_outputs() > 1 {
                return Err(Error::unsupported(
                    format!("a vector predicted of {} targets", self.n_outputs()),
                    "ask for `predict_targets`",
                ));
            }
            let (values, _) = self.predict_targets(x)?.into_raw_vec_and_offset();
            return Ok(Array1::from_vec(values));
        }
        let margins = self.predict_margin(x)?;
        let loss = self.ops_loss();
        let (values, _) = margins.into_raw_vec_and_offset();
        Ok(values
            .chunks_exact(self.n_outputs())
            .map(|row| classes[class_of(loss, row)])
            .collect())
    }
}

impl PredictProba for GradientBoostingModel {
    /// None for a regressor.
    fn classes(&self) -> &[f32] {
        &self.parts.classes
    }

    /// As the trait says; [`Error::Unsupported`] for a regressor.
    fn predict_proba(&self, x: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        Ok(self.predict_proba_on(&Device::current()?, x)?.0)
    }
}

impl Score for GradientBoostingModel {
    fn score(
        &self,
        x: ArrayView2<'_, f32>,
        y: ArrayView1<'_, f32>,
        weights: Option<ArrayView1<'_, f32>>,
    ) -> Result<f64> {
        let predicted = self.predict(x)?;
        let predicted = predicted.view();
        match (self.parts.loss.classifies(), weights) {
            (false, None) => metrics::r2(y, predicted),
            (false, Some(weights)) => metrics::weighted::r2(y, predicted, weights),
            (true, weights) => {
                encode_labels(&self.parts.classes, y)?;
                match weights {
                    None => metrics::accuracy(y, predicted),
                    Some(weights) => metrics::weighted::accuracy(y, predicted, weights),
                }
            }
        }
    }
}

impl Persist for GradientBoostingModel {
    fn to_model_file(&self) -> ModelFile {
        let Parts {
            loss,
            classes,
            class_names,
            feature_names,
            forest,
            gains,
            covers,
            history,
            ..
        } = &self.parts;
        let (name, parameter) = loss.text();
        let mut file = ModelFile::new(NAME)
            .with_param("loss", name)
            .with_param("feature_names", feature_names.clone())
            .with_param("class_names", class_names.clone())
            .with_param("eval_metric", history.first().map(EvalHistory::metric_text))
            .with_slice("classes", classes)
            .with_slice("gain", gains)
            .with_slice("cover", covers);
        file = write(file, forest);
        if let Some(parameter) = parameter {
            file = file.with_slice("loss_parameter", &[parameter]);
        }
        if let Some(objective) = &self.parts.objective {
            file = file.with_param("objective", objective.clone());
        }
        if !history.is_empty() {
            let names: Vec<String> = history.iter().map(|history| history.name.clone()).collect();
            let rounds = history[0].values.len();
            let values: Vec<f64> = history
                .iter()
                .flat_map(|history| history.values.clone())
                .collect();
            if let Ok(table) = Array2::from_shape_vec((names.len(), rounds), values) {
                file = file
                    .with_param("eval_sets", names)
                    .with_array("history", &table);
            }
        }
        file
    }

    fn from_model_file(file: &ModelFile) -> Result<Self> {
        file.expect_estimator(NAME)?;
        let refuse = |error: Error| file.refuse(error.to_string());
        let name: String = file.param("loss")?;
        let parameter = || match file.vector::<f32>("loss_parameter")?[..] {
            [parameter] => Ok(parameter),
            _ => Err(file.refuse("tensor `loss_parameter`: expected one number")),
        };
        let Some(loss) = Loss::from_text(&name, parameter)? else {
            return Err(file.refuse(format!("unknown loss `{}`", name.escape_debug())));
        };
        let objective = match loss {
            Loss::Custom => Some(file.param("objective")?),
            _ => None,
        };
        let forest = read(file)?;
        let model = Self::new(Parts {
            loss,
            objective,
            classes: file.vector("classes")?,
            class_names: file.param("class_names")?,
            feature_names: file.param("feature_names")?,
            forest,
            gains: file.vector("gain")?,
            covers: file.vector("cover")?,
            history: history(file)?,
            report: ExecutionReport::new(),
        })
        .map_err(refuse)?;
        // Whatever else the file holds, this model would not have written it.
        if model.to_model_file().to_bytes() != file.to_bytes() {
            return Err(file.refuse("it holds more than a model of its kind"));
        }
        Ok(model)
    }
}

fn history(file: &ModelFile) -> Result<Vec<EvalHistory>> {
    let Some(metric) = file.param::<Option<String>>("eval_metric")? else {
        return Ok(Vec::new());
    };
    let names: Vec<String> = file.param("eval_sets")?;
    let Some((metric, own_name)) = Metric::from_text(&metric) else {
        return Err(file.refuse(format!("unknown metric `{}`", metric.escape_debug())));
    };
    let table: Array2<f64> = file.array("history")?;
    if table.nrows() != names.len() {
        return Err(file.refuse(format!(
            "tensor `history`: expected {} rows, got {}",
            names.len(),
            table.nrows()
        )));
    }
    let rows = names.into_iter().zip(table.rows());
    Ok(rows
        .map(|(name, values)| EvalHistory {
            name,
            metric,
            own_name: own_name.clone(),
            values: values.to_vec(),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GradientBoosting;
    use crate::boosting::tests::gpus;
    use detml_core::{BitHashed, Fit, with_backend};

    /// Margins, probabilities, labels and the report, by scope and by device.
    #[test]
    fn gpus_predict_where_they_are_asked_to_with_the_same_bits() {
        let x = Array2::from_shape_fn((300, 4), |(i, j)| {
            let value = (i * (j + 5) % 29) as f32;
            if (i + j) % 11 == 0 { f32::NAN } else { value }
        });
        let y = Array1::from_shape_fn(300, |i| (i % 3) as f32);
        let regressor = GradientBoosting::regressor().n_trees(7).fit((&x, &y));
        let softmax = GradientBoosting::classifier().n_trees(4).fit((&x, &y));
        let two = y.mapv(|y| y.min(1.0));
        let logistic = GradientBoosting::classifier().n_trees(4).fit((&x, &two));
        let models = [regressor, softmax, logistic].map(|model| model.unwrap());
        let all = |model: &GradientBoostingModel| {
            let mut hashes = vec![model.predict_margin(x.view()).unwrap().bit_hash()];
            hashes.push(model.predict(x.view()).unwrap().bit_hash());
            match model.predict_proba(x.view()) {
                Err(Error::Unsupported { .. }) => assert_eq!(model.loss(), Loss::Squared),
                p => hashes.push(p.unwrap().bit_hash()),
            }
            hashes
        };
        let expected = models.each_ref().map(all);
        for device in [Device::cpu()].into_iter().chain(gpus()) {
            let backend = device.backend();
            for (model, expected) in models.iter().zip(&expected) {
                assert_eq!(&with_backend(backend, || all(model)), expected, "{device}");
            }
            let (p, report) = models[1].predict_proba_on(&device, x.view()).unwrap();
            assert_eq!(p.bit_hash(), expected[1][2]);
            assert!(report.ran_only_on(backend), "{report}");
            let operations: Vec<&str> = report.entries().iter().map(|e| &*e.operation).collect();
            assert_eq!(operations, ["forest", "probabilities"]);
        }
    }
}
