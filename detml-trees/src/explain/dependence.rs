use detml_core::{Error, Result};
use ndarray::{Array1, Array2, ArrayView2};

/// How predictions move with one feature: partial dependence (J. Friedman, "Greedy function
/// approximation: a gradient boosting machine", 2001) and individual conditional expectations
/// (A. Goldstein and others, "Peeking inside the black box", 2015); scikit-learn's
/// `partial_dependence` by brute force with `kind="both"`.
///
/// The feature is set to each value of a grid in all rows. The grid holds the feature's different
/// values if there are fewer than [`grid_resolution`](Self::grid_resolution), else evenly spaced
/// numbers between two percentiles (SciPy's `mquantiles`); missing values take no part in it.
///
/// ```
/// use detml_core::prelude::*;
/// use detml_trees::GradientBoosting;
/// use detml_trees::explain::PartialDependence;
/// use ndarray::Array;
///
/// let x = Array::from_shape_fn((200, 2), |(i, j)| (i * (j + 3) % 17) as f32);
/// let y = x.column(0).to_owned();
/// let model = GradientBoosting::regressor().n_trees(50).fit((&x, &y))?;
/// let found = PartialDependence::new().of(x.view(), 0, |x| model.predict(x))?;
/// assert_eq!(found.grid.len(), 17);
/// assert!((found.average[16] - 16.0).abs() < 0.5);
/// assert_eq!(found.individual.dim(), (200, 17));
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct PartialDependence {
    grid_resolution: usize,
    percentiles: (f64, f64),
}

/// What [`PartialDependence`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct Dependence {
    /// The feature's values, ascending.
    pub grid: Array1<f32>,
    /// The mean prediction at each, summed in `f64` in the order of the rows.
    pub average: Array1<f64>,
    /// The predictions (rows x grid).
    pub individual: Array2<f32>,
}

impl Default for PartialDependence {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialDependence {
    /// At most 100 values between the percentiles 0.05 and 0.95.
    pub fn new() -> Self {
        Self {
            grid_resolution: 100,
            percentiles: (0.05, 0.95),
        }
    }

    /// Values of the grid at most, 2 or more. Default 100.
    pub fn grid_resolution(mut self, grid_resolution: usize) -> Self {
        self.grid_resolution = grid_resolution;
        self
    }

    /// Where a grid of spaced values begins and ends, ascending in 0 to 1. Default 0.05 and 0.95.
    pub fn percentiles(mut self, low: f64, high: f64) -> Self {
        self.percentiles = (low, high);
        self
    }

    /// How `predict` moves with a feature (its column) over the rows of `x` (rows x features).
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for settings or a feature out of range, or percentiles that are
    /// equal in the data; [`Error::Empty`] without rows or if all values of the feature are
    /// missing; [`Error::NonFinite`] for an infinite percentile; [`Error::Shape`] if `predict` gives another number of rows; those
    /// of `predict`.
    pub fn of(
        &self,
        x: ArrayView2<'_, f32>,
        feature: usize,
        predict: impl Fn(ArrayView2<'_, f32>) -> Result<Array1<f32>>,
    ) -> Result<Dependence> {
        let (low, high) = self.percentiles;
        if self.grid_resolution < 2 {
            return Err(Error::parameter(
                "grid_resolution",
                "2 or more",
                self.grid_resolution,
            ));
        }
        if !(0.0 <= low && low < high && high <= 1.0) {
            return Err(Error::parameter(
                "percentiles",
                "two ascending numbers from 0 to 1",
                format_args!("{low} and {high}"),
            ));
        }
        if feature >= x.ncols() {
            let expected = format_args!("a column below {}", x.ncols());
            return Err(Error::parameter("feature", expected, feature));
        }
        let grid = self.grid(x, feature)?;
        let rows = x.nrows();
        let mut changed = x.to_owned();
        let mut average = Array1::zeros(grid.len());
        let mut individual = Array2::zeros((rows, grid.len()));
        for (at, &value) in grid.iter().enumerate() {
            changed.column_mut(feature).fill(value);
            let predicted = predict(changed.view())?;
            if predicted.len() != rows {
                return Err(Error::shape(
                    "partial dependence",
                    format_args!("{rows} predictions"),
                    predicted.len(),
                ));
            }
            let sum = predicted.iter().fold(0.0, |sum, &p| sum + f64::from(p));
            average[at] = sum / rows as f64;
            individual.column_mut(at).assign(&predicted);
        }
        Ok(Dependence {
            grid,
            average,
            individual,
        })
    }

    fn grid(&self, x: ArrayView2<'_, f32>, feature: usize) -> Result<Array1<f32>> {
        let column = x.column(feature);
        let mut values: Vec<f32> = column.iter().copied().filter(|x| !x.is_nan()).collect();
        if values.is_empty() {
            return Err(Error::empty(format!("the values of feature {feature}")));
        }
        values.sort_by(f32::total_cmp);
        let mut different = values.clone();
        different.dedup();
        if different.len() < self.grid_resolution {
            return Ok(different.into());
        }
        let (low, high) = self.percentiles;
        let [low, high] = [low, high].map(|p| quantile(&values, p));
        for end in [low, high] {
            if !end.is_finite() {
                return Err(Error::NonFinite {
                    what: format!("a percentile of feature {feature}"),
                    row: 0,
                    column: feature,
                    got: end,
                });
            }
        }
        if low == high {
            return Err(Error::parameter(
                "percentiles",
                format_args!("different values of feature {feature} at both"),
                format_args!("{low} twice"),
            ));
        }
        let last = (self.grid_resolution - 1) as f64;
        let step = (high - low) / last;
        Ok((0..self.grid_resolution)
            .map(|i| match i as f64 {
                i if i == last => high as f32,
                i => (low + i * step) as f32,
            })
            .collect())
    }
}

/// Of ascending values, the quantile that SciPy's `mquantiles` gives by default.
fn quantile(values: &[f32], p: f64) -> f64 {
    let n = values.len() as f64;
    let place = n * p + 0.4 + p * 0.2;
    let below = place.clamp(1.0, (n - 1.0).max(1.0)).floor();
    let part = (place - below).clamp(0.0, 1.0);
    let at = below as usize;
    let value = |at: usize| f64::from(values[at.min(values.len() - 1)]);
    (1.0 - part) * value(at - 1) + part * value(at)
}
