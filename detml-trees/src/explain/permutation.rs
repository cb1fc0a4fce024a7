use detml_core::{Error, Philox4x32, Result, Score, Seed};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};

/// How much worse a fitted model scores with the values of a feature shuffled over the rows
/// (L. Breiman, "Random forests", 2001; scikit-learn's `permutation_importance`).
///
/// It takes features x repeats + 1 scores of all rows. The permutation of a feature and repeat is a
/// function of the seed and their numbers alone: more repeats leave the first ones as they are.
///
/// ```
/// use detml_core::metrics;
/// use detml_core::prelude::*;
/// use detml_trees::GradientBoosting;
/// use detml_trees::explain::PermutationImportance;
/// use ndarray::Array;
///
/// let x = Array::from_shape_fn((200, 2), |(i, j)| (i * (j + 3) % 17) as f32);
/// let y = x.column(0).to_owned();
/// let model = GradientBoosting::regressor().n_trees(10).fit((&x, &y))?;
/// let permutation = PermutationImportance::new().n_repeats(3).seed(Seed(1));
/// // By the model's own score, R2.
/// let importances = permutation.of(&model, x.view(), y.view())?;
/// assert!(importances.mean()[0] > 1.0 && importances.mean()[1].abs() < 0.1);
/// // By any other, greater for better.
/// let by_error = permutation.by(x.view(), y.view(), |x, y| {
///     Ok(-metrics::mean_absolute_error(y, model.predict(x)?.view())?)
/// })?;
/// assert!(by_error.mean()[0] > by_error.mean()[1]);
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct PermutationImportance {
    n_repeats: usize,
    seed: Seed,
}

/// What [`PermutationImportance`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct PermutationImportances {
    /// The score of the data as it is.
    pub baseline: f64,
    /// The baseline less the score with the feature shuffled (features x repeats).
    pub importances: Array2<f64>,
}

impl PermutationImportances {
    /// The mean over the repeats, for each feature (`importances_mean`).
    #[must_use]
    pub fn mean(&self) -> Array1<f64> {
        let count = self.importances.ncols() as f64;
        self.importances.map_axis(Axis(1), |row| {
            row.iter().fold(0.0, |sum, x| sum + x) / count
        })
    }

    /// The standard deviation over the repeats, for each feature (`importances_std`): that of
    /// a population, 0 for one repeat.
    #[must_use]
    pub fn std(&self) -> Array1<f64> {
        let count = self.importances.ncols() as f64;
        self.importances.map_axis(Axis(1), |row| {
            let mean = row.iter().fold(0.0, |sum, x| sum + x) / count;
            let squares = row.iter().fold(0.0, |sum, x| sum + (x - mean) * (x - mean));
            (squares / count).sqrt()
        })
    }
}

impl Default for PermutationImportance {
    fn default() -> Self {
        Self::new()
    }
}

impl PermutationImportance {
    /// Five repeats, seed 0.
    pub fn new() -> Self {
        Self {
            n_repeats: 5,
            seed: Seed(0),
        }
    }

    /// How often each feature is shuffled, 1 or more. Default 5.
    pub fn n_repeats(mut self, n_repeats: usize) -> Self {
        self.n_repeats = n_repeats;
        self
    }

    /// Seed of all permutations. Default 0.
    pub fn seed(mut self, seed: Seed) -> Self {
        self.seed = seed;
        self
    }

    /// The importances by the model's own score (R2, accuracy) of `x` (rows x features) against
    /// `y`.
    ///
    /// # Errors
    /// As [`by`](Self::by), and those of [`Score::score`].
    pub fn of<M: Score + ?Sized>(
        &self,
        model: &M,
        x: ArrayView2<'_, f32>,
        y: ArrayView1<'_, f32>,
    ) -> Result<PermutationImportances> {
        self.by(x, y, |x, y| model.score(x, y, None))
    }

    /// The importances by a score of `x` (rows x features) against `y`, greater for better.
    ///
    /// # Errors
    /// [`Error::Shape`] if rows differ in number, [`Error::Empty`] without rows,
    /// [`Error::InvalidParameter`] for no repeats, [`Error::Unsupported`] for 2^32 rows or more; those of
    /// `score`.
    pub fn by(
        &self,
        x: ArrayView2<'_, f32>,
        y: ArrayView1<'_, f32>,
        score: impl Fn(ArrayView2<'_, f32>, ArrayView1<'_, f32>) -> Result<f64>,
    ) -> Result<PermutationImportances> {
        if self.n_repeats == 0 {
            return Err(Error::parameter("n_repeats", "1 or more", 0));
        }
        if y.len() != x.nrows() {
            return Err(Error::shape(
                "permutation importance",
                format_args!("{} targets", x.nrows()),
                y.len(),
            ));
        }
        if y.is_empty() {
            return Err(Error::empty("the data"));
        }
        let baseline = score(x, y)?;
        let mut importances = Array2::zeros((x.ncols(), self.n_repeats));
        let mut shuffled = x.to_owned();
        for (feature, mut row) in importances.rows_mut().into_iter().enumerate() {
            for (repeat, importance) in row.iter_mut().enumerate() {
                let name = format!("permutation importance {feature} {repeat}");
                let order = Philox4x32::named(self.seed, &name).permutation(y.len())?;
                let column = x.column(feature);
                for (to, from) in shuffled.column_mut(feature).iter_mut().zip(order) {
                    *to = column[from as usize];
                }
                *importance = baseline - score(shuffled.view(), y)?;
            }
            shuffled.column_mut(feature).assign(&x.column(feature));
        }
        Ok(PermutationImportances {
            baseline,
            importances,
        })
    }
}
