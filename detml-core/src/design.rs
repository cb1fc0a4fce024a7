use std::borrow::Cow;

use ndarray::{ArrayBase, ArrayView1, ArrayView2, Axis, CowArray, Data, Ix1, Ix2};

use crate::{Dataset, Error, Result};

/// What an estimator accepts in a [`Design`], beyond what every design is checked for.
///
/// ```
/// use detml_core::DesignRules;
///
/// // A tree learner: one target, missing values and infinities welcome.
/// let trees = DesignRules::supervised().allow_nan().allow_infinite();
/// // A scaler: no target needed, every feature finite.
/// let scaler = DesignRules::unsupervised();
/// # let _ = (trees, scaler);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct DesignRules {
    nan: bool,
    infinite: bool,
    target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Ignored,
    One,
    Many,
}

impl DesignRules {
    /// One finite target per row; finite features.
    pub const fn supervised() -> Self {
        Self {
            nan: false,
            infinite: false,
            target: Target::One,
        }
    }

    /// A target, if there is one, is neither used nor checked; finite features.
    pub const fn unsupervised() -> Self {
        Self {
            nan: false,
            infinite: false,
            target: Target::Ignored,
        }
    }

    /// Takes NaN in features, as missing values.
    pub const fn allow_nan(mut self) -> Self {
        self.nan = true;
        self
    }

    /// Takes infinities in features.
    pub const fn allow_infinite(mut self) -> Self {
        self.infinite = true;
        self
    }

    /// Takes one or more finite targets per row.
    pub const fn many_targets(mut self) -> Self {
        self.target = Target::Many;
        self
    }

    /// Checks the features given to a fitted model, which may have no rows.
    ///
    /// # Errors
    /// [`Error::FeatureMismatch`] unless there are `n_features` columns; [`Error::NonFinite`]
    /// for a value which these rules refuse.
    pub fn check_features(&self, x: ArrayView2<'_, f32>, n_features: usize) -> Result<()> {
        if x.ncols() != n_features {
            return Err(Error::FeatureMismatch {
                expected: format!("{n_features} features"),
                got: format!("{}", x.ncols()),
            });
        }
        self.check_values(x)
    }

    fn check_values(&self, x: ArrayView2<'_, f32>) -> Result<()> {
        let (nan, infinite) = (self.nan, self.infinite);
        if nan && infinite {
            return Ok(());
        }
        let refused = |value: f32| (value.is_nan() && !nan) || (value.is_infinite() && !infinite);
        for (row, values) in x.rows().into_iter().enumerate() {
            // No early exit inside a row, so that the common case is one vector loop.
            if !values
                .iter()
                .fold(false, |any, &value| any | refused(value))
            {
                continue;
            }
            if let Some(column) = values.iter().position(|&value| refused(value)) {
                return Err(Error::NonFinite {
                    what: "features".into(),
                    row,
                    column,
                    got: f64::from(values[column]),
                });
            }
        }
        Ok(())
    }
}

/// Checked input of a fit: features, and where there are any, targets, weights and groups.
///
/// Holds at least one row and one column; all parts have the same number of rows; weights are
/// finite, not negative and not all zero. Everything is `f32` and row-major, borrowed from the
/// caller where it already was.
#[derive(Clone, Debug)]
pub struct Design<'a> {
    x: CowArray<'a, f32, Ix2>,
    targets: Option<CowArray<'a, f32, Ix2>>,
    weights: Option<CowArray<'a, f32, Ix1>>,
    groups: Option<Cow<'a, [u32]>>,
    feature_names: Option<Cow<'a, [String]>>,
    class_names: Option<Cow<'a, [String]>>,
}

impl<'a> Design<'a> {
    /// Checks and joins features (rows x columns), targets (rows x targets) and weights.
    ///
    /// # Errors
    /// [`Error::Empty`] without a row or a column; [`Error::Shape`] if row counts differ;
    /// [`Error::InvalidValue`] for a weight that is negative, not finite, or if all are zero.
    pub fn new(
        x: CowArray<'a, f32, Ix2>,
        targets: Option<CowArray<'a, f32, Ix2>>,
        weights: Option<CowArray<'a, f32, Ix1>>,
    ) -> Result<Self> {
        if x.nrows() == 0 {
            return Err(Error::empty("features (rows)"));
        }
        if x.ncols() == 0 {
            return Err(Error::empty("features (columns)"));
        }
        if let Some(targets) = &targets {
            same_rows("target", x.nrows(), targets.nrows())?;
            if targets.ncols() == 0 {
                return Err(Error::empty("target (columns)"));
            }
        }
        if let Some(weights) = &weights {
            same_rows("weights", x.nrows(), weights.len())?;
            check_weights(weights.view())?;
        }
        Ok(Self {
            x: row_major(x),
            targets: targets.map(row_major),
            weights: weights.map(contiguous),
            groups: None,
            feature_names: None,
            class_names: None,
        })
    }

    /// Number of rows, at least one.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.x.nrows()
    }

    /// Number of feature columns, at least one.
    #[must_use]
    pub fn n_features(&self) -> usize {
        self.x.ncols()
    }

    /// The features, row-major.
    #[must_use]
    pub fn x(&self) -> ArrayView2<'_, f32> {
        self.x.view()
    }

    /// The features row after row.
    #[must_use]
    pub fn x_slice(&self) -> &[f32] {
        self.x.as_slice().unwrap_or_default()
    }

    /// The targets (rows x targets), row-major.
    #[must_use]
    pub fn targets(&self) -> Option<ArrayView2<'_, f32>> {
        self.targets.as_ref().map(CowArray::view)
    }

    /// The only target.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if there is none or more than one.
    pub fn target(&self) -> Result<ArrayView1<'_, f32>> {
        match &self.targets {
            Some(targets) if targets.ncols() == 1 => Ok(targets.index_axis(Axis(1), 0)),
            Some(targets) => Err(Error::unsupported(
                format!("{} targets at once", targets.ncols()),
                "fit one model per target",
            )),
            None => Err(Error::unsupported(
                "a fit without a target",
                "pass `(x, y)`, or choose a column with `Dataset::target`",
            )),
        }
    }

    /// The only target as a slice.
    ///
    /// # Errors
    /// As [`target`](Self::target).
    pub fn target_slice(&self) -> Result<&[f32]> {
        self.target()?;
        // With one column, row-major order is the column.
        Ok(self
            .targets
            .as_ref()
            .and_then(|targets| targets.as_slice())
            .unwrap_or_default())
    }

    /// The row weights: finite, not negative, not all zero.
    #[must_use]
    pub fn weights(&self) -> Option<&[f32]> {
        self.weights.as_ref().and_then(|weights| weights.as_slice())
    }

    /// The group (query, subject) of each row.
    #[must_use]
    pub fn groups(&self) -> Option<&[u32]> {
        self.groups.as_deref()
    }

    /// The features' names.
    #[must_use]
    pub fn feature_names(&self) -> Option<&[String]> {
        self.feature_names.as_deref()
    }

    /// The classes' names, where the target is a coded text column: code `k` stands for
    /// name `k`.
    #[must_use]
    pub fn class_names(&self) -> Option<&[String]> {
        self.class_names.as_deref()
    }

    /// Sets the group of each row.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there is one per row.
    pub fn with_groups(mut self, groups: impl Into<Cow<'a, [u32]>>) -> Result<Self> {
        let groups = groups.into();
        same_rows("groups", self.n_rows(), groups.len())?;
        self.groups = Some(groups);
        Ok(self)
    }

    /// The same rows with other features, as a transformer leaves them. Names are dropped.
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of rows differs; [`Error::Empty`] without a column.
    pub fn with_features<'b>(&'b self, x: CowArray<'b, f32, Ix2>) -> Result<Design<'b>> {
        same_rows("transformed features", self.n_rows(), x.nrows())?;
        if x.ncols() == 0 {
            return Err(Error::empty("transformed features (columns)"));
        }
        Ok(Design {
            x: row_major(x),
            targets: self.targets.as_ref().map(|y| CowArray::from(y.view())),
            weights: self.weights.as_ref().map(|w| CowArray::from(w.view())),
            groups: self.groups.as_deref().map(Cow::Borrowed),
            feature_names: None,
            class_names: self.class_names.as_deref().map(Cow::Borrowed),
        })
    }

    /// Checks the values against an estimator's rules.
    ///
    /// # Errors
    /// [`Error::NonFinite`] for a refused value in features or targets;
    /// [`Error::Unsupported`] for a missing target or too many.
    pub fn check(&self, rules: &DesignRules) -> Result<()> {
        rules.check_values(self.x.view())?;
        match rules.target {
            Target::Ignored => return Ok(()),
            Target::One => {
                self.target()?;
            }
            Target::Many if self.targets.is_none() => {
                self.target()?;
            }
            Target::Many => {}
        }
        let Some(targets) = &self.targets else {
            return Ok(());
        };
        for ((row, column), &value) in targets.indexed_iter() {
            if !value.is_finite() {
                return Err(Error::NonFinite {
                    what: "target".into(),
                    row,
                    column,
                    got: f64::from(value),
                });
            }
        }
        Ok(())
    }
}

fn same_rows(what: &str, expected: usize, got: usize) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(Error::shape(
        what,
        format_args!("{expected} rows, as the features"),
        got,
    ))
}

pub(crate) fn check_weights(weights: ArrayView1<'_, f32>) -> Result<()> {
    let mut some = false;
    for (row, &weight) in weights.iter().enumerate() {
        if !(weight.is_finite() && weight >= 0.0) {
            return Err(Error::InvalidValue {
                what: "weights".into(),
                row,
                expected: "a finite number, 0 or above".into(),
                got: weight.to_string(),
            });
        }
        some |= weight > 0.0;
    }
    if some {
        return Ok(());
    }
    Err(Error::InvalidValue {
        what: "weights".into(),
        row: 0,
        expected: "at least one above 0".into(),
        got: "zeros only".into(),
    })
}

fn row_major(array: CowArray<'_, f32, Ix2>) -> CowArray<'_, f32, Ix2> {
    if array.is_standard_layout() {
        return array;
    }
    CowArray::from(array.as_standard_layout().into_owned())
}

fn contiguous(array: CowArray<'_, f32, Ix1>) -> CowArray<'_, f32, Ix1> {
    if array.is_standard_layout() {
        return array;
    }
    CowArray::from(array.as_standard_layout().into_owned())
}

/// Anything that turns into a [`Design`]: `&Dataset`, `x`, `(x, y)` or `(x, y, weights)`.
///
/// `x` and `y` are `ndarray` arrays by reference, or views. `f32` is borrowed; `f64` is rounded
/// once to the nearest `f32`; integers (`u8`, `i32`, `u32`, `i64`, `usize`) must fit exactly.
/// `y` may have one axis (one target) or two (rows x targets).
///
/// ```
/// use detml_core::IntoDesign;
/// use ndarray::array;
///
/// let x = array![[1.0, 2.0], [3.0, 4.0]];
/// let y = array![0u32, 1];
/// let design = (&x, &y).into_design()?;
/// assert_eq!((design.n_rows(), design.n_features()), (2, 2));
/// assert_eq!(design.target_slice()?, [0.0, 1.0]);
/// # Ok::<(), detml_core::Error>(())
/// ```
pub trait IntoDesign<'a> {
    /// Checks shapes and weights. Values are checked by [`Design::check`].
    ///
    /// # Errors
    /// As [`Design::new`]; [`Error::InvalidValue`] for an integer that no `f32` holds.
    fn into_design(self) -> Result<Design<'a>>;
}

/// A number which a design takes.
pub trait DesignNumber: Copy + sealed::Sealed {
    #[doc(hidden)]
    fn to_f32(self) -> Option<f32>;
    #[doc(hidden)]
    fn borrow<D: ndarray::Dimension>(
        view: ndarray::ArrayView<'_, Self, D>,
    ) -> Option<CowArray<'_, f32, D>> {
        let _ = view;
        None
    }
}

mod sealed {
    pub trait Sealed: std::fmt::Display {}
}

impl sealed::Sealed for f32 {}
impl DesignNumber for f32 {
    fn to_f32(self) -> Option<f32> {
        Some(self)
    }
    fn borrow<D: ndarray::Dimension>(
        view: ndarray::ArrayView<'_, Self, D>,
    ) -> Option<CowArray<'_, f32, D>> {
        Some(CowArray::from(view))
    }
}

impl sealed::Sealed for f64 {}
impl DesignNumber for f64 {
    fn to_f32(self) -> Option<f32> {
        Some(self as f32)
    }
}

macro_rules! integers {
    ($($number:ty),*) => {$(
        impl sealed::Sealed for $number {}
        impl DesignNumber for $number {
            fn to_f32(self) -> Option<f32> {
                let rounded = self as f32;
                // i128 holds every value of both sides.
                (rounded as i128 == self as i128).then_some(rounded)
            }
        }
    )*};
}
integers!(u8, i32, u32, i64, usize);

fn convert<'a, T: DesignNumber, D: ndarray::Dimension>(
    what: &str,
    view: ndarray::ArrayView<'a, T, D>,
) -> Result<CowArray<'a, f32, D>> {
    if let Some(borrowed) = T::borrow(view.clone()) {
        return Ok(borrowed);
    }
    let columns = if view.ndim() > 1 { view.shape()[1] } else { 1 };
    let mut values = Vec::with_capacity(view.len());
    for (index, &value) in view.iter().enumerate() {
        let Some(value) = value.to_f32() else {
            return Err(Error::InvalidValue {
                what: what.into(),
                row: index / columns,
                expected: "an integer that f32 holds exactly".into(),
                got: value.to_string(),
            });
        };
        values.push(value);
    }
    let array = ndarray::Array::from_shape_vec(view.raw_dim(), values)
        .map_err(|error| Error::internal(format!("conversion of {what}: {error}")))?;
    Ok(CowArray::from(array))
}

/// Features of a design: an `ndarray` matrix by reference or view.
pub trait IntoFeatures<'a> {
    #[doc(hidden)]
    fn into_features(self) -> Result<CowArray<'a, f32, Ix2>>;
}

impl<'a, S: Data<Elem: DesignNumber>> IntoFeatures<'a> for &'a ArrayBase<S, Ix2> {
    fn into_features(self) -> Result<CowArray<'a, f32, Ix2>> {
        convert("features", self.view())
    }
}

impl<'a, T: DesignNumber> IntoFeatures<'a> for ArrayView2<'a, T> {
    fn into_features(self) -> Result<CowArray<'a, f32, Ix2>> {
        convert("features", self)
    }
}

/// Targets of a design: an `ndarray` vector or matrix by reference or view.
pub trait IntoTargets<'a> {
    #[doc(hidden)]
    fn into_targets(self) -> Result<CowArray<'a, f32, Ix2>>;
}

impl<'a, S: Data<Elem: DesignNumber>> IntoTargets<'a> for &'a ArrayBase<S, Ix1> {
    fn into_targets(self) -> Result<CowArray<'a, f32, Ix2>> {
        self.view().into_targets()
    }
}

impl<'a, S: Data<Elem: DesignNumber>> IntoTargets<'a> for &'a ArrayBase<S, Ix2> {
    fn into_targets(self) -> Result<CowArray<'a, f32, Ix2>> {
        convert("target", self.view())
    }
}

impl<'a, T: DesignNumber> IntoTargets<'a> for ArrayView1<'a, T> {
    fn into_targets(self) -> Result<CowArray<'a, f32, Ix2>> {
        convert("target", self.insert_axis(Axis(1)))
    }
}

impl<'a, T: DesignNumber> IntoTargets<'a> for ArrayView2<'a, T> {
    fn into_targets(self) -> Result<CowArray<'a, f32, Ix2>> {
        convert("target", self)
    }
}

/// Row weights of a design: an `ndarray` vector by reference or view.
pub trait IntoWeights<'a> {
    #[doc(hidden)]
    fn into_weights(self) -> Result<CowArray<'a, f32, Ix1>>;
}

impl<'a, S: Data<Elem: DesignNumber>> IntoWeights<'a> for &'a ArrayBase<S, Ix1> {
    fn into_weights(self) -> Result<CowArray<'a, f32, Ix1>> {
        convert("weights", self.view())
    }
}

impl<'a, T: DesignNumber> IntoWeights<'a> for ArrayView1<'a, T> {
    fn into_weights(self) -> Result<CowArray<'a, f32, Ix1>> {
        convert("weights", self)
    }
}

impl<'a, S: Data<Elem: DesignNumber>> IntoDesign<'a> for &'a ArrayBase<S, Ix2> {
    fn into_design(self) -> Result<Design<'a>> {
        Design::new(self.into_features()?, None, None)
    }
}

impl<'a, T: DesignNumber> IntoDesign<'a> for ArrayView2<'a, T> {
    fn into_design(self) -> Result<Design<'a>> {
        Design::new(self.into_features()?, None, None)
    }
}

impl<'a, X: IntoFeatures<'a>, Y: IntoTargets<'a>> IntoDesign<'a> for (X, Y) {
    fn into_design(self) -> Result<Design<'a>> {
        Design::new(self.0.into_features()?, Some(self.1.into_targets()?), None)
    }
}

impl<'a, X, Y, W> IntoDesign<'a> for (X, Y, W)
where
    X: IntoFeatures<'a>,
    Y: IntoTargets<'a>,
    W: IntoWeights<'a>,
{
    fn into_design(self) -> Result<Design<'a>> {
        let weights = self.2.into_weights()?;
        Design::new(
            self.0.into_features()?,
            Some(self.1.into_targets()?),
            Some(weights),
        )
    }
}

impl<'a> IntoDesign<'a> for Design<'a> {
    fn into_design(self) -> Result<Design<'a>> {
        Ok(self)
    }
}

impl<'a> IntoDesign<'a> for &'a Design<'_> {
    fn into_design(self) -> Result<Design<'a>> {
        let mut design = self.with_features(CowArray::from(self.x.view()))?;
        design.feature_names = self.feature_names.as_deref().map(Cow::Borrowed);
        Ok(design)
    }
}

impl<'a> IntoDesign<'a> for &'a Dataset {
    fn into_design(self) -> Result<Design<'a>> {
        let targets = self
            .target_view()
            .map(|y| CowArray::from(y.insert_axis(Axis(1))));
        let weights = self.weights().map(CowArray::from);
        let mut design = Design::new(CowArray::from(self.features()), targets, weights)?;
        design.groups = self.groups().map(Cow::Borrowed);
        design.feature_names = Some(Cow::Borrowed(self.feature_names()));
        design.class_names = self.class_names().map(Cow::Borrowed);
        Ok(design)
    }
}

/// The classes of a classification target.
///
/// ```
/// use detml_core::Labels;
/// use ndarray::array;
///
/// let y = array![7.0f32, 3.0, 7.0];
/// let labels = Labels::new(y.view())?;
/// assert_eq!(labels.classes(), [3.0, 7.0]);
/// assert_eq!(labels.codes(), [1, 0, 1]);
/// assert!(Labels::new(array![0.5f32].view()).is_err());
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Labels {
    classes: Vec<f32>,
    codes: Vec<u32>,
}

impl Labels {
    /// Finds the distinct labels, ascending, and the position of each row's label among them.
    /// `-0` counts as `0`.
    ///
    /// # Errors
    /// [`Error::LabelOutOfRange`] for a label that is not a whole number.
    pub fn new(target: ArrayView1<'_, f32>) -> Result<Self> {
        let mut classes = Vec::with_capacity(target.len());
        for (row, &label) in target.iter().enumerate() {
            if !label.is_finite() || label != label.trunc() {
                return Err(Error::LabelOutOfRange {
                    row,
                    expected: "a whole number".into(),
                    got: label.to_string(),
                });
            }
            // -0 + 0 is 0.
            classes.push(label + 0.0);
        }
        classes.sort_unstable_by(f32::total_cmp);
        classes.dedup();
        let codes = encode_labels(&classes, target)?;
        Ok(Self { classes, codes })
    }

    /// The distinct labels, ascending.
    #[must_use]
    pub fn classes(&self) -> &[f32] {
        &self.classes
    }

    /// For each row, the position of its label in [`classes`](Self::classes).
    #[must_use]
    pub fn codes(&self) -> &[u32] {
        &self.codes
    }

    /// Takes it apart into classes and codes.
    #[must_use]
    pub fn into_parts(self) -> (Vec<f32>, Vec<u32>) {
        (self.classes, self.codes)
    }
}

/// The position of each label in `classes`, which must be ascending.
///
/// # Errors
/// [`Error::LabelOutOfRange`] for a label that isn't among them.
pub fn encode_labels(classes: &[f32], labels: ArrayView1<'_, f32>) -> Result<Vec<u32>> {
    let mut codes = Vec::with_capacity(labels.len());
    for (row, &label) in labels.iter().enumerate() {
        let label = label + 0.0;
        match classes.binary_search_by(|class| class.total_cmp(&label)) {
            Ok(code) => codes.push(code as u32),
            Err(_) => {
                return Err(Error::LabelOutOfRange {
                    row,
                    expected: format!("one of {classes:?}"),
                    got: label.to_string(),
                });
            }
        }
    }
    Ok(codes)
}
