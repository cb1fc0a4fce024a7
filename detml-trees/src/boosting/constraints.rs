//! Constraints as given to the builder.

use super::GradientBoosting;
use detml_core::{Error, Result};
use detml_kernels::ops::boosting::Constraints;

/// A feature by its number, counted from 0, or its name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FeatureRef {
    /// Its column.
    Index(i64),
    /// Its name in the data that is fitted.
    Name(String),
}

impl From<usize> for FeatureRef {
    fn from(index: usize) -> Self {
        Self::Index(i64::try_from(index).unwrap_or(i64::MAX))
    }
}

impl From<i32> for FeatureRef {
    fn from(index: i32) -> Self {
        Self::Index(index.into())
    }
}

impl From<&str> for FeatureRef {
    fn from(name: &str) -> Self {
        Self::Name(name.into())
    }
}

impl From<String> for FeatureRef {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

impl FeatureRef {
    fn find(&self, setting: &'static str, features: usize, names: &[String]) -> Result<u32> {
        let found = match self {
            Self::Index(index) => usize::try_from(*index).ok().filter(|i| *i < features),
            Self::Name(name) => names.iter().position(|known| known == name),
        };
        found
            .and_then(|index| u32::try_from(index).ok())
            .ok_or_else(|| {
                let got = match self {
                    Self::Index(index) => format!("feature {index}"),
                    Self::Name(name) => format!("a feature `{name}`"),
                };
                let expected = format_args!("names or numbers of the {features} features");
                Error::parameter(setting, expected, got)
            })
    }
}

/// What the builder was told.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    ways: Option<Vec<i8>>,
    named: Vec<(FeatureRef, i8)>,
    groups: Vec<Vec<FeatureRef>>,
}

impl Given {
    /// As constraints of features by number.
    pub(super) fn resolve(&self, features: usize, names: Option<&[String]>) -> Result<Constraints> {
        let names = names.unwrap_or_default();
        let mut constraints = Constraints {
            monotone: self.ways.clone().unwrap_or_default(),
            interactions: Vec::new(),
        };
        constraints.check(features)?;
        for (feature, way) in &self.named {
            let feature = feature.find("monotone_constraints", features, names)?;
            constraints.monotone.resize(features, 0);
            constraints.monotone[feature as usize] = *way;
        }
        for group in &self.groups {
            let found =
                |feature: &FeatureRef| feature.find("interaction_constraints", features, names);
            let group = group.iter().map(found).collect::<Result<_>>()?;
            constraints.interactions.push(group);
        }
        constraints.check(features)?;
        Ok(constraints)
    }
}

/// # Constraints
impl GradientBoosting {
    /// For each feature whether predictions must not fall (1) or not rise (-1) as its value grows
    /// and all others stay, or may do either (0): XGBoost's `monotone_constraints`. Default: all
    /// may.
    ///
    /// Nodes carry an interval for the weights below them: a split against the feature's way is
    /// refused, the middle of both sides' weights bounds what is below them, and scores are those
    /// of weights moved into the interval. Margins keep to the way exactly, in binary32; so do
    /// probabilities of two classes and values. With [`Loss::Softmax`](super::Loss::Softmax) each
    /// class's margin does, not its probability. Missing values have no place in the order.
    ///
    /// ```
    /// use detml_core::prelude::*;
    /// use detml_trees::GradientBoosting;
    /// use ndarray::{Array, array};
    ///
    /// let x = Array::from_shape_fn((300, 2), |(i, j)| (i * (j + 3) % 17) as f32);
    /// let y = x.map_axis(ndarray::Axis(1), |row| row[0] + (row[0] * 3.0).sin() * 4.0);
    /// let model = GradientBoosting::regressor()
    ///     .monotone_constraints([1, 0])
    ///     .n_trees(20)
    ///     .fit((&x, &y))?;
    /// let p = model.predict(array![[3.0, 5.0], [4.0, 5.0], [5.0, 5.0]].view())?;
    /// assert!(p[0] <= p[1] && p[1] <= p[2]);
    /// # Ok::<(), detml_core::Error>(())
    /// ```
    pub fn monotone_constraints(mut self, ways: impl IntoIterator<Item = i8>) -> Self {
        self.constraints.ways = Some(ways.into_iter().collect());
        self
    }

    /// As [`monotone_constraints`](Self::monotone_constraints), of one feature by number or name;
    /// the others keep what they have.
    pub fn monotone_constraint(mut self, feature: impl Into<FeatureRef>, way: i8) -> Self {
        self.constraints.named.push((feature.into(), way));
        self
    }

    /// Groups of features, by number or name, that may be on one path from the root to a leaf:
    /// XGBoost's `interaction_constraints`. A feature may be in several groups, and one that is in
    /// none interacts with no other. Default: all may.
    ///
    /// After a split by a feature, only features of groups that hold all features of the path so
    /// far may follow. This acts after features are drawn, so with `colsample_bynode` a node may
    /// find none.
    ///
    /// ```
    /// use detml_core::prelude::*;
    /// use detml_trees::GradientBoosting;
    /// use ndarray::Array;
    ///
    /// let x = Array::from_shape_fn((300, 3), |(i, j)| (i * (2 * j + 3) % 101) as f32);
    /// let y = x.map_axis(ndarray::Axis(1), |row| row[0] * row[1] + row[2]);
    /// let model = GradientBoosting::regressor()
    ///     .interaction_constraints([vec![0, 1], vec![2]])
    ///     .n_trees(20)
    ///     .fit((&x, &y))?;
    /// # let _ = model;
    /// # Ok::<(), detml_core::Error>(())
    /// ```
    pub fn interaction_constraints<G>(mut self, groups: impl IntoIterator<Item = G>) -> Self
    where
        G: IntoIterator,
        G::Item: Into<FeatureRef>,
    {
        self.constraints.groups = groups
            .into_iter()
            .map(|group| group.into_iter().map(Into::into).collect())
            .collect();
        self
    }
}
