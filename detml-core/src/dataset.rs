use std::collections::BTreeMap;

use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};

use crate::design::check_weights;
use crate::{BitHash, BitHashed, BitHasher, Error, Labels, Philox4x32, Result, Seed};

/// A table of `f32` features, row-major, with names; and where there are any, a target, row
/// weights and row groups.
///
/// NaN stands for a missing value.
///
/// ```
/// use detml_core::{Dataset, Seed};
///
/// # let path = "../fixtures/data/flights.csv.gz";
/// let flights = Dataset::from_csv(path)?.target("late")?;
/// assert_eq!(flights.n_rows(), 100_000);
/// assert_eq!(flights.feature_names()[..3], ["month", "day", "weekday"]);
///
/// let (train, test) = flights.split(0.8, Seed(7))?;
/// assert_eq!((train.n_rows(), test.n_rows()), (80_000, 20_000));
/// assert_eq!(test.labels()?.len(), 20_000);
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dataset {
    features: Array2<f32>,
    names: Vec<String>,
    target: Option<(String, Array1<f32>)>,
    weights: Option<Array1<f32>>,
    groups: Option<Vec<u32>>,
    categories: BTreeMap<String, Vec<String>>,
}

impl Dataset {
    /// Features alone (rows x columns), named `x0`, `x1` and so on.
    #[must_use]
    pub fn from_features(features: Array2<f32>) -> Self {
        let features = if features.is_standard_layout() {
            features
        } else {
            features.as_standard_layout().into_owned()
        };
        Self {
            names: (0..features.ncols()).map(|i| format!("x{i}")).collect(),
            features,
            target: None,
            weights: None,
            groups: None,
            categories: BTreeMap::new(),
        }
    }

    /// Features (rows x columns), named `x0`, `x1` and so on, and a target named `y`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the row counts differ.
    pub fn from_arrays(features: Array2<f32>, target: Array1<f32>) -> Result<Self> {
        let mut data = Self::from_features(features);
        data.same_rows("target", target.len())?;
        data.target = Some(("y".into(), target));
        Ok(data)
    }

    /// Features by name, with the names of the categories of coded text columns.
    pub(crate) fn from_table(
        features: Array2<f32>,
        names: Vec<String>,
        categories: BTreeMap<String, Vec<String>>,
    ) -> Result<Self> {
        let mut data = Self::from_features(features).with_feature_names(names)?;
        data.categories = categories;
        Ok(data)
    }

    /// Names the features.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there is one name per column; [`Error::InvalidParameter`] if a
    /// name occurs twice.
    pub fn with_feature_names<S: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        if names.len() != self.n_features() {
            return Err(Error::shape(
                "feature names",
                format_args!("{} names, one per column", self.n_features()),
                names.len(),
            ));
        }
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::parameter(
                "feature names",
                "distinct names",
                format_args!("`{}` twice", pair[0]),
            ));
        }
        self.names = names;
        Ok(self)
    }

    /// Makes the column `name` the target; it is a feature no longer.
    ///
    /// # Errors
    /// [`Error::MissingColumn`] if there is none; [`Error::Unsupported`] if a target was
    /// chosen before.
    pub fn target(self, name: &str) -> Result<Self> {
        if let Some((old, _)) = &self.target {
            return Err(Error::unsupported(
                format!("target `{name}` beside target `{old}`"),
                "a data set has one target; choose it once",
            ));
        }
        let (mut data, column) = self.remove_column(name)?;
        data.target = Some((name.into(), column));
        Ok(data)
    }

    /// Makes the column `name` the row weights; it is a feature no longer.
    ///
    /// # Errors
    /// [`Error::MissingColumn`] if there is none; [`Error::InvalidValue`] as
    /// [`with_weights`](Self::with_weights).
    pub fn weights_column(self, name: &str) -> Result<Self> {
        let (data, column) = self.remove_column(name)?;
        data.with_weights(column)
    }

    /// Sets the row weights.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there is one per row; [`Error::InvalidValue`] for one that is
    /// negative or not finite, or if all are zero.
    pub fn with_weights(mut self, weights: Array1<f32>) -> Result<Self> {
        self.same_rows("weights", weights.len())?;
        check_weights(weights.view())?;
        self.weights = Some(weights);
        Ok(self)
    }

    /// Sets the group of each row: the query in ranking, the subject in cross-validation.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there is one per row.
    pub fn with_groups(mut self, groups: Vec<u32>) -> Result<Self> {
        self.same_rows("groups", groups.len())?;
        self.groups = Some(groups);
        Ok(self)
    }

    /// Keeps the named feature columns, in the given order.
    ///
    /// # Errors
    /// [`Error::MissingColumn`] for a name that isn't there; [`Error::InvalidParameter`] for
    /// one given twice.
    pub fn select_columns(self, names: &[&str]) -> Result<Self> {
        let columns = names
            .iter()
            .map(|name| self.column_index(name))
            .collect::<Result<Vec<usize>>>()?;
        let mut data = Self {
            features: self.features.select(Axis(1), &columns),
            names: self.names,
            target: self.target,
            weights: self.weights,
            groups: self.groups,
            categories: self.categories,
        }
        .with_feature_names(names.iter().copied())?;
        let target = data.target.as_ref().map(|(name, _)| name.clone());
        data.categories
            .retain(|name, _| names.contains(&name.as_str()) || target.as_ref() == Some(name));
        Ok(data)
    }

    /// The rows of the given indices, in that order; an index may occur more than once.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for an index beyond the last row.
    pub fn take_rows(&self, rows: &[usize]) -> Result<Self> {
        if let Some(place) = rows.iter().position(|&row| row >= self.n_rows()) {
            return Err(Error::InvalidValue {
                what: "row indices".into(),
                row: place,
                expected: format!("a row below {}", self.n_rows()),
                got: rows[place].to_string(),
            });
        }
        Ok(Self {
            features: self.features.select(Axis(0), rows),
            names: self.names.clone(),
            target: self
                .target
                .as_ref()
                .map(|(name, y)| (name.clone(), y.select(Axis(0), rows))),
            weights: self.weights.as_ref().map(|w| w.select(Axis(0), rows)),
            groups: self
                .groups
                .as_ref()
                .map(|groups| rows.iter().map(|&row| groups[row]).collect()),
            categories: self.categories.clone(),
        })
    }

    /// Splits the rows at random into two data sets: `round(fraction * rows)` rows and the
    /// rest. Each keeps the order the rows had.
    ///
    /// The draw depends on the seed and the number of rows alone.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] unless `0 < fraction < 1`; [`Error::Empty`] if one side
    /// would hold no row.
    pub fn split(&self, fraction: f64, seed: Seed) -> Result<(Self, Self)> {
        let first = part_of(self.n_rows(), fraction)?;
        let order = Philox4x32::named(seed, "split").permutation(self.n_rows())?;
        self.divide(&order[..first])
    }

    /// As [`split`](Self::split), but within each class, so that both sides have the classes
    /// in like shares.
    ///
    /// # Errors
    /// As [`split`](Self::split), and those of [`Labels::new`].
    pub fn split_stratified(&self, fraction: f64, seed: Seed) -> Result<(Self, Self)> {
        let labels = Labels::new(self.labels()?)?;
        let order = Philox4x32::named(seed, "split").permutation(self.n_rows())?;
        let mut first = Vec::new();
        for class in 0..labels.classes().len() as u32 {
            let members: Vec<u32> = order
                .iter()
                .copied()
                .filter(|&row| labels.codes()[row as usize] == class)
                .collect();
            first.extend_from_slice(&members[..part_of(members.len(), fraction)?]);
        }
        self.divide(&first)
    }

    fn divide(&self, first: &[u32]) -> Result<(Self, Self)> {
        let mut chosen = vec![false; self.n_rows()];
        for &row in first {
            chosen[row as usize] = true;
        }
        let (left, right): (Vec<usize>, Vec<usize>) =
            (0..self.n_rows()).partition(|&row| chosen[row]);
        if left.is_empty() || right.is_empty() {
            return Err(Error::empty(format!(
                "one side of a split of {} rows",
                self.n_rows()
            )));
        }
        Ok((self.take_rows(&left)?, self.take_rows(&right)?))
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.features.nrows()
    }

    /// Number of feature columns.
    #[must_use]
    pub fn n_features(&self) -> usize {
        self.features.ncols()
    }

    /// The features, row-major.
    #[must_use]
    pub fn features(&self) -> ArrayView2<'_, f32> {
        self.features.view()
    }

    /// The features' names, in column order.
    #[must_use]
    pub fn feature_names(&self) -> &[String] {
        &self.names
    }

    /// One feature column by name.
    ///
    /// # Errors
    /// [`Error::MissingColumn`] if there is none.
    pub fn column(&self, name: &str) -> Result<ArrayView1<'_, f32>> {
        Ok(self.features.index_axis(Axis(1), self.column_index(name)?))
    }

    /// The target.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if none was chosen.
    pub fn labels(&self) -> Result<ArrayView1<'_, f32>> {
        self.target_view().ok_or_else(|| {
            Error::unsupported(
                "labels of a data set without a target",
                "choose a column with `Dataset::target`",
            )
        })
    }

    pub(crate) fn target_view(&self) -> Option<ArrayView1<'_, f32>> {
        self.target.as_ref().map(|(_, y)| y.view())
    }

    /// The target's name.
    #[must_use]
    pub fn target_name(&self) -> Option<&str> {
        self.target.as_ref().map(|(name, _)| name.as_str())
    }

    /// The row weights.
    #[must_use]
    pub fn weights(&self) -> Option<ArrayView1<'_, f32>> {
        self.weights.as_ref().map(Array1::view)
    }

    /// The row groups.
    #[must_use]
    pub fn groups(&self) -> Option<&[u32]> {
        self.groups.as_deref()
    }

    /// The texts of a coded text column: code `k` stands for text `k`. `None` for a column of
    /// numbers.
    #[must_use]
    pub fn categories(&self, column: &str) -> Option<&[String]> {
        self.categories.get(column).map(Vec::as_slice)
    }

    pub(crate) fn all_categories(&self) -> &BTreeMap<String, Vec<String>> {
        &self.categories
    }

    /// The names of the target's classes, where it is a coded text column.
    #[must_use]
    pub fn class_names(&self) -> Option<&[String]> {
        self.categories(self.target_name()?)
    }

    fn column_index(&self, name: &str) -> Result<usize> {
        self.names
            .iter()
            .position(|other| other == name)
            .ok_or_else(|| Error::MissingColumn {
                what: "the data set".into(),
                name: name.into(),
                available: list(&self.names),
            })
    }

    fn remove_column(mut self, name: &str) -> Result<(Self, Array1<f32>)> {
        let index = self.column_index(name)?;
        let column = self.features.index_axis(Axis(1), index).to_owned();
        let rest: Vec<usize> = (0..self.n_features()).filter(|&i| i != index).collect();
        self.features = self.features.select(Axis(1), &rest);
        self.names.remove(index);
        Ok((self, column))
    }

    fn same_rows(&self, what: &str, got: usize) -> Result<()> {
        if got == self.n_rows() {
            return Ok(());
        }
        Err(Error::shape(
            what,
            format_args!("{} rows, as the features", self.n_rows()),
            got,
        ))
    }
}

/// `round(fraction * n)`, halves up; one IEEE product and one exact-enough sum (N14).
fn part_of(n: usize, fraction: f64) -> Result<usize> {
    if !(fraction > 0.0 && fraction < 1.0) {
        return Err(Error::parameter(
            "fraction",
            "a number between 0 and 1, both excluded",
            fraction,
        ));
    }
    Ok(((n as f64 * fraction + 0.5).floor() as usize).min(n))
}

pub(crate) fn list(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut text: Vec<String> = names
        .iter()
        .take(SHOWN)
        .map(|name| format!("`{name}`"))
        .collect();
    if names.len() > SHOWN {
        text.push(format!("{} more", names.len() - SHOWN));
    }
    if text.is_empty() {
        return "none".into();
    }
    text.join(", ")
}

impl BitHashed for Dataset {
    fn bit_hash(&self) -> BitHash {
        let mut hasher = BitHasher::new("detml.dataset");
        for name in &self.names {
            hasher.text("feature", name);
        }
        hasher.ndarray("features", &self.features);
        if let Some((name, target)) = &self.target {
            hasher.text("target", name).ndarray("target", target);
        }
        if let Some(weights) = &self.weights {
            hasher.ndarray("weights", weights);
        }
        if let Some(groups) = &self.groups {
            hasher.array("groups", &[groups.len()], groups);
        }
        for (column, texts) in &self.categories {
            for text in texts {
                hasher.text(column, text);
            }
        }
        hasher.finish()
    }
}
