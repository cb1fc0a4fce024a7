//! Folds for cross-validation, and scores over them.
//!
//! ```no_run
//! use detml_core::prelude::*;
//! use detml_core::selection::{StratifiedKFold, cross_val_score};
//!
//! # fn example<E: Fit<Fitted: Score>>(estimator: E) -> detml_core::Result<()> {
//! let data = Dataset::from_csv("breast_cancer.csv")?.target("benign")?;
//! let folds = StratifiedKFold::new(5).shuffle(Seed(7));
//! for score in cross_val_score(&estimator, &data, &folds)? {
//!     println!("{score:.4}");
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;

use crate::{Dataset, Error, Fit, Labels, Philox4x32, Result, Score, Seed};

/// Row numbers to fit on and to judge on; each ascending, none in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Rows to fit on, at least one.
    pub train: Vec<usize>,
    /// Rows to judge on, at least one.
    pub test: Vec<usize>,
}

/// A way to cut a data set into folds.
pub trait Splitter {
    /// The folds. They depend on the data and the splitter alone.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a number of folds that the data can't give.
    fn folds(&self, data: &Dataset) -> Result<Vec<Fold>>;
}

/// `k` folds of consecutive rows (or of shuffled ones), sizes differing by one at most. Each
/// row is judged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct KFold {
    k: usize,
    seed: Option<Seed>,
}

impl KFold {
    /// `k` folds, at least 2, of consecutive rows.
    pub const fn new(k: usize) -> Self {
        Self { k, seed: None }
    }

    /// Deals the rows out in a random order.
    pub const fn shuffle(mut self, seed: Seed) -> Self {
        self.seed = Some(seed);
        self
    }
}

impl Splitter for KFold {
    fn folds(&self, data: &Dataset) -> Result<Vec<Fold>> {
        let n = data.n_rows();
        check_k(self.k, n, "rows")?;
        let order = row_order(n, self.seed)?;
        let mut fold_of = vec![0; n];
        let mut begin = 0;
        for fold in 0..self.k {
            // The first n % k folds hold one row more.
            let end = begin + n / self.k + usize::from(fold < n % self.k);
            for &row in &order[begin..end] {
                fold_of[row] = fold;
            }
            begin = end;
        }
        Ok(gather(self.k, &fold_of))
    }
}

/// `k` folds which hold each class in like shares: the rows of each class are dealt out in
/// turn, going on where the class before stopped, so fold sizes differ by one at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct StratifiedKFold {
    k: usize,
    seed: Option<Seed>,
}

impl StratifiedKFold {
    /// `k` folds, at least 2, dealt in row order.
    pub const fn new(k: usize) -> Self {
        Self { k, seed: None }
    }

    /// Deals the rows out in a random order.
    pub const fn shuffle(mut self, seed: Seed) -> Self {
        self.seed = Some(seed);
        self
    }
}

impl Splitter for StratifiedKFold {
    /// # Errors
    /// [`Error::InvalidParameter`] also if a class has fewer than `k` rows;
    /// [`Error::LabelOutOfRange`] for a target that isn't one of classes.
    fn folds(&self, data: &Dataset) -> Result<Vec<Fold>> {
        let n = data.n_rows();
        check_k(self.k, n, "rows")?;
        let labels = Labels::new(data.labels()?)?;
        let mut members = vec![Vec::new(); labels.classes().len()];
        for row in row_order(n, self.seed)? {
            members[labels.codes()[row] as usize].push(row);
        }
        let mut fold_of = vec![0; n];
        let mut next = 0;
        for (class, rows) in labels.classes().iter().zip(members) {
            check_k(self.k, rows.len(), &format!("rows of class {class}"))?;
            for row in rows {
                fold_of[row] = next % self.k;
                next += 1;
            }
        }
        Ok(gather(self.k, &fold_of))
    }
}

/// `k` folds which keep each group of rows together ([`Dataset::groups`]): the largest group
/// first, each goes to the fold with the fewest rows so far (ties: the lowest group, the first
/// fold).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct GroupKFold {
    k: usize,
}

impl GroupKFold {
    /// `k` folds, at least 2.
    pub const fn new(k: usize) -> Self {
        Self { k }
    }
}

impl Splitter for GroupKFold {
    /// # Errors
    /// [`Error::InvalidParameter`] also if there are fewer than `k` groups;
    /// [`Error::Unsupported`] for a data set without groups.
    fn folds(&self, data: &Dataset) -> Result<Vec<Fold>> {
        let groups = data.groups().ok_or_else(|| {
            Error::unsupported(
                "`GroupKFold` of a data set without groups",
                "set them with `Dataset::with_groups`",
            )
        })?;
        let mut sizes: BTreeMap<u32, usize> = BTreeMap::new();
        for &group in groups {
            *sizes.entry(group).or_default() += 1;
        }
        check_k(self.k, sizes.len(), "groups")?;
        let mut order: Vec<(u32, usize)> = sizes.into_iter().collect();
        // Stable: groups of one size stay in ascending order (N10).
        order.sort_by_key(|&(_, size)| std::cmp::Reverse(size));
        let mut filled = vec![0; self.k];
        let mut fold_of_group = BTreeMap::new();
        for (group, size) in order {
            // `min_by_key` keeps the first of equals.
            let fold = (0..self.k).min_by_key(|&fold| filled[fold]).unwrap_or(0);
            filled[fold] += size;
            fold_of_group.insert(group, fold);
        }
        let fold_of: Vec<usize> = groups.iter().map(|group| fold_of_group[group]).collect();
        Ok(gather(self.k, &fold_of))
    }
}

/// `k` folds for rows in order of time: each judges the next stretch of rows, fitted on all
/// rows before it (less a gap). With `n` rows, a stretch has `n / (k + 1)` rows, and the last
/// one ends with the last row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct TimeSeriesSplit {
    k: usize,
    gap: usize,
}

impl TimeSeriesSplit {
    /// `k` folds, at least 1, without a gap.
    pub const fn new(k: usize) -> Self {
        Self { k, gap: 0 }
    }

    /// Leaves out this many rows before each stretch that is judged.
    pub const fn gap(mut self, gap: usize) -> Self {
        self.gap = gap;
        self
    }
}

impl Splitter for TimeSeriesSplit {
    fn folds(&self, data: &Dataset) -> Result<Vec<Fold>> {
        let n = data.n_rows();
        let refuse = || {
            Error::parameter(
                "k",
                format_args!("1 or more folds, each with rows before its gap, of {n} rows"),
                format_args!("{} (gap {})", self.k, self.gap),
            )
        };
        if self.k == 0 || self.k >= n {
            return Err(refuse());
        }
        let size = n / (self.k + 1);
        let mut folds = Vec::with_capacity(self.k);
        for fold in 0..self.k {
            let begin = n - (self.k - fold) * size;
            let known = begin.checked_sub(self.gap).filter(|&known| known > 0);
            folds.push(Fold {
                train: (0..known.ok_or_else(refuse)?).collect(),
                test: (begin..begin + size).collect(),
            });
        }
        Ok(folds)
    }
}

fn check_k(k: usize, n: usize, what: &str) -> Result<()> {
    if (2..=n).contains(&k) {
        return Ok(());
    }
    Err(Error::parameter(
        "k",
        format_args!("a number of folds from 2 to the {n} {what}"),
        k,
    ))
}

fn row_order(n: usize, seed: Option<Seed>) -> Result<Vec<usize>> {
    match seed {
        None => Ok((0..n).collect()),
        Some(seed) => {
            let order = Philox4x32::named(seed, "folds").permutation(n)?;
            Ok(order.into_iter().map(|row| row as usize).collect())
        }
    }
}

fn gather(k: usize, fold_of: &[usize]) -> Vec<Fold> {
    let rows = |wanted: &dyn Fn(usize) -> bool| {
        let rows = 0..fold_of.len();
        rows.filter(|&row| wanted(fold_of[row])).collect()
    };
    (0..k)
        .map(|fold| Fold {
            train: rows(&|other| other != fold),
            test: rows(&|other| other == fold),
        })
        .collect()
}

/// Splits the rows at random; the same as [`Dataset::split`].
///
/// # Errors
/// As [`Dataset::split`].
pub fn train_test_split(data: &Dataset, fraction: f64, seed: Seed) -> Result<(Dataset, Dataset)> {
    data.split(fraction, seed)
}

/// Fits `estimator` on each fold's training rows and scores it on its test rows
/// ([`Score::score`]). One score per fold, in order.
///
/// # Errors
/// Those of the splitter, the fit and the score.
pub fn cross_val_score<E>(
    estimator: &E,
    data: &Dataset,
    splitter: &impl Splitter,
) -> Result<Vec<f64>>
where
    E: Fit<Fitted: Score>,
{
    cross_validate(estimator, data, splitter, |model, test| {
        model.score(test.features(), test.labels()?, test.weights())
    })
}

/// Fits `estimator` on each fold's training rows and measures it on its test rows. One result
/// per fold, in order.
///
/// # Errors
/// Those of the splitter, the fit and the measure.
pub fn cross_validate<E: Fit, R>(
    estimator: &E,
    data: &Dataset,
    splitter: &impl Splitter,
    measure: impl Fn(&E::Fitted, &Dataset) -> Result<R>,
) -> Result<Vec<R>> {
    let mut results = Vec::new();
    for fold in splitter.folds(data)? {
        let model = estimator.fit(&data.take_rows(&fold.train)?)?;
        results.push(measure(&model, &data.take_rows(&fold.test)?)?);
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array1, Array2};
    use proptest::prelude::*;

    fn data(target: Vec<f32>) -> Dataset {
        Dataset::from_arrays(Array2::zeros((target.len(), 1)), Array1::from(target)).unwrap()
    }

    fn check(folds: &[Fold], n: usize) {
        let mut judged = vec![0; n];
        for fold in folds {
            let mut all = [&fold.train[..], &fold.test[..]].concat();
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..n));
            assert!(fold.train.is_sorted() && fold.test.is_sorted());
            for &row in &fold.test {
                judged[row] += 1;
            }
        }
        assert!(judged.iter().all(|&times| times == 1));
    }

    fn sizes(folds: &[Fold]) -> Vec<usize> {
        folds.iter().map(|fold| fold.test.len()).collect()
    }

    #[test]
    fn k_folds_are_consecutive_or_shuffled() {
        let data = data(vec![0.0; 11]);
        let folds = KFold::new(3).folds(&data).unwrap();
        check(&folds, 11);
        assert_eq!(folds[0].test, [0, 1, 2, 3]);
        assert_eq!(folds[2].test, [8, 9, 10]);
        let shuffled = KFold::new(3).shuffle(Seed(1)).folds(&data).unwrap();
        check(&shuffled, 11);
        assert_ne!(shuffled, folds);
        assert_eq!(sizes(&shuffled), [4, 4, 3]);
        for k in [0, 1, 12] {
            assert!(matches!(
                KFold::new(k).folds(&data),
                Err(Error::InvalidParameter { .. })
            ));
        }
    }

    #[test]
    fn strata_share_their_classes() {
        let labels: Vec<f32> = (0..25)
            .map(|i| if i % 5 == 0 { 1.0 } else { 0.0 })
            .collect();
        let data = data(labels.clone());
        for splitter in [
            StratifiedKFold::new(5),
            StratifiedKFold::new(5).shuffle(Seed(3)),
        ] {
            let folds = splitter.folds(&data).unwrap();
            check(&folds, 25);
            for fold in folds {
                assert_eq!(fold.test.len(), 5);
                assert_eq!(fold.test.iter().filter(|&&i| labels[i] == 1.0).count(), 1);
            }
        }
        let error = StratifiedKFold::new(6).folds(&data).unwrap_err();
        assert!(error.to_string().contains("5 rows of class 1"), "{error}");
    }

    #[test]
    fn groups_stay_together() {
        let groups = vec![7, 1, 1, 9, 9, 9, 2, 7, 2, 9];
        let data = data(vec![0.0; 10]);
        assert!(matches!(
            GroupKFold::new(2).folds(&data),
            Err(Error::Unsupported { .. })
        ));
        let data = data.with_groups(groups.clone()).unwrap();
        let folds = GroupKFold::new(3).folds(&data).unwrap();
        check(&folds, 10);
        // 9 (4 rows) to the first; 1 and 2 (2 rows each) to the others; 7 to the second.
        assert_eq!(folds[0].test, [3, 4, 5, 9]);
        assert_eq!(folds[1].test, [0, 1, 2, 7]);
        assert!(GroupKFold::new(5).folds(&data).is_err());
    }

    #[test]
    fn time_only_looks_back() {
        let data = data(vec![0.0; 10]);
        let folds = TimeSeriesSplit::new(3).gap(1).folds(&data).unwrap();
        let ends: Vec<_> = folds
            .iter()
            .map(|fold| (fold.train.len(), fold.test.clone()))
            .collect();
        assert_eq!(ends, [(3, vec![4, 5]), (5, vec![6, 7]), (7, vec![8, 9])]);
        for splitter in [
            TimeSeriesSplit::new(0),
            TimeSeriesSplit::new(10),
            TimeSeriesSplit::new(3).gap(4),
            TimeSeriesSplit::new(3).gap(usize::MAX),
        ] {
            assert!(matches!(
                splitter.folds(&data),
                Err(Error::InvalidParameter { .. })
            ));
        }
    }

    proptest! {
        #[test]
        fn every_row_is_judged_once(
            labels in prop::collection::vec(0u8..3, 2..60),
            k in 2usize..6,
            seed in any::<u64>(),
        ) {
            let n = labels.len();
            let data = data(labels.into_iter().map(f32::from).collect());
            if let Ok(folds) = KFold::new(k).shuffle(Seed(seed)).folds(&data) {
                check(&folds, n);
            }
            if let Ok(folds) = StratifiedKFold::new(k).shuffle(Seed(seed)).folds(&data) {
                check(&folds, n);
                let sizes = sizes(&folds);
                prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            }
        }
    }
}
