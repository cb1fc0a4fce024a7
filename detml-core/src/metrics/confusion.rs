use std::fmt;

use ndarray::{Array2, ArrayView2};

/// How many rows (or how much weight) of each class were predicted as which class.
///
/// ```
/// use detml_core::metrics;
/// use ndarray::array;
///
/// let truth = array![0.0, 0.0, 1.0, 2.0];
/// let predicted = array![0.0, 1.0, 1.0, 1.0];
/// let matrix = metrics::confusion_matrix(truth.view(), predicted.view())?;
/// assert_eq!(matrix.classes(), [0.0, 1.0, 2.0]);
/// assert_eq!(matrix.counts().row(0).to_vec(), [1.0, 1.0, 0.0]);
/// assert_eq!(matrix.recall(), [0.5, 1.0, 0.0]);
/// println!("{matrix}");
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ConfusionMatrix {
    pub(super) classes: Vec<f32>,
    pub(super) counts: Array2<f64>,
}

impl ConfusionMatrix {
    /// The labels that occur in truth or prediction, ascending.
    #[must_use]
    pub fn classes(&self) -> &[f32] {
        &self.classes
    }

    /// Rows: true class; columns: predicted class; in the order of
    /// [`classes`](Self::classes).
    #[must_use]
    pub fn counts(&self) -> ArrayView2<'_, f64> {
        self.counts.view()
    }

    /// For each class: of what was predicted so, the share that is; 0 if nothing was.
    #[must_use]
    pub fn precision(&self) -> Vec<f64> {
        self.per_class(|hit, _, predicted| ratio(hit, predicted))
    }

    /// For each class: of what is of the class, the share predicted so; 0 if nothing is.
    #[must_use]
    pub fn recall(&self) -> Vec<f64> {
        self.per_class(|hit, actual, _| ratio(hit, actual))
    }

    /// For each class: the harmonic mean of precision and recall; 0 if both are.
    #[must_use]
    pub fn f1(&self) -> Vec<f64> {
        self.per_class(|hit, actual, predicted| ratio(2.0 * hit, actual + predicted))
    }

    /// For each class: how many rows (or how much weight) it truly has.
    #[must_use]
    pub fn support(&self) -> Vec<f64> {
        self.per_class(|_, actual, _| actual)
    }

    pub(super) fn per_class(&self, measure: impl Fn(f64, f64, f64) -> f64) -> Vec<f64> {
        (0..self.classes.len())
            .map(|k| {
                let actual = self.counts.row(k).iter().fold(0.0, |sum, n| sum + n);
                let predicted = self.counts.column(k).iter().fold(0.0, |sum, n| sum + n);
                measure(self.counts[[k, k]], actual, predicted)
            })
            .collect()
    }
}

pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole }
}

impl fmt::Display for ConfusionMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = self.counts.iter().map(f64::to_string);
        let labels = self.classes.iter().map(f32::to_string);
        let width = cells
            .chain(labels)
            .map(|text| text.len())
            .max()
            .unwrap_or(0);
        write!(f, "{:width$}", "")?;
        for class in &self.classes {
            write!(f, "  {class:>width$}")?;
        }
        for (class, row) in self.classes.iter().zip(self.counts.rows()) {
            write!(f, "\n{class:>width$}")?;
            for count in row {
                write!(f, "  {count:>width$}")?;
            }
        }
        Ok(())
    }
}
