//! Folds over rows, columns or all of a row-major matrix.
//!
//! # The order (`N5`)
//! A fold of `n` elements has a shape that follows from `n` alone:
//! 1. The elements are cut into segments of [`SEGMENT`] (4096); the last may be shorter.
//! 2. In a segment, element `i` goes to lane `i mod` [`LANES`] (128). A lane starts at +0 and takes
//!    its elements in ascending order.
//! 3. The lanes meet in a tree: lane `j` takes lane `j + 64` for `j < 64`, then `j + 32` for
//!    `j < 32`, down to lane 0.
//! 4. The segments' results are folded by the same rule as if they were elements, until one is
//!    left.
//!
//! A lane without elements holds +0, and no lane ever holds -0, so that lanes beyond the length
//! may be left out. This holds for the sum of rows, columns, whole matrices and
//! [segments](super::segment) alike; only the elements' places in them count.
//!
//! # Edge cases
//! | | of nothing | NaN | zeros |
//! |---|---|---|---|
//! | sum, sum of squares | +0 | NaN | never -0 |
//! | mean | NaN | NaN | as the sum |
//! | variance | NaN, also if `n <= ddof` | NaN, also with an infinity | never below 0 |
//! | min, max | error | NaN if there is one | -0 is below +0 |
//! | argmin, argmax | error | the first NaN | -0 equals +0 |
//! | any, all, count | 0, 1, 0 | | |
//!
//! Of equal elements the first wins (`N10`).

pub(crate) mod columns;
pub(crate) mod cpu;
pub(crate) mod fold;
pub(crate) mod gpu;
#[cfg(test)]
pub(crate) mod plain;
#[cfg(test)]
mod tests;

use crate::device::{Buffer, Element, Kernel};
use crate::ieee::FloatProfile;
use crate::ops::AnyBuffer;
use detml_core::{Error, Result};
use fold::Traits;

/// Elements of a segment (`N5`).
pub const SEGMENT: usize = 4096;
/// Lanes of a segment (`N5`).
pub const LANES: usize = 128;

/// What is folded to one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Axis {
    /// Each row: as many results as rows.
    EachRow,
    /// Each column: as many results as columns.
    EachColumn,
    /// All elements, row after row: one result.
    Whole,
}

/// How a matrix is folded: `results` of `n` elements.
#[derive(Clone, Copy, Debug)]
struct Shape {
    rows: usize,
    columns: usize,
    by_column: bool,
}

impl Shape {
    fn new(axis: Axis, [rows, columns]: [usize; 2], len: usize) -> Result<Self> {
        if rows.checked_mul(columns) != Some(len) {
            return Err(Error::shape(
                "reduce",
                format!("a buffer of {rows} x {columns} elements"),
                format!("{len} elements"),
            ));
        }
        let shape = match axis {
            Axis::EachRow | Axis::EachColumn => Self {
                rows,
                columns,
                by_column: axis == Axis::EachColumn,
            },
            Axis::Whole => Self {
                rows: 1,
                columns: len,
                by_column: false,
            },
        };
        if shape.n() > u32::MAX as usize {
            return Err(Error::unsupported(
                format!("a fold of {} elements", shape.n()),
                "a fold takes fewer than 2^32",
            ));
        }
        Ok(shape)
    }

    fn n(self) -> usize {
        if self.by_column {
            self.rows
        } else {
            self.columns
        }
    }

    fn results(self) -> usize {
        if self.by_column {
            self.columns
        } else {
            self.rows
        }
    }
}

/// Folds into `out`, which has `shape.results()` elements.
fn run<F: Traits>(
    x: &dyn AnyBuffer,
    shape: Shape,
    shift: Option<&dyn AnyBuffer>,
    ddof: u32,
    out: &mut dyn AnyBuffer,
) -> Result<()> {
    if out.size() == 0 {
        return Ok(());
    }
    let device = x.on();
    if let (Some(simd), Some(words), Some(out)) = (device.simd(), x.words(), out.words_mut()) {
        let shift = shift.and_then(AnyBuffer::words).unwrap_or(&[]);
        if shape.by_column {
            cpu::columns::<F>(simd, words, 0..shape.rows, shift, ddof, out);
        } else {
            cpu::rows::<F>(simd, words, shape.columns, shift, ddof, out);
        }
        return Ok(());
    }
    gpu::matrix(
        F::KIND,
        device,
        &gpu::Job {
            x,
            shift,
            rows: shape.rows,
            columns: shape.columns,
            ddof,
        },
        shape.by_column,
        out,
    )
}

/// The fold `F` of `x`, results of type `R`.
fn fold<F: Traits, R: Element>(
    x: &dyn AnyBuffer,
    axis: Axis,
    shape: [usize; 2],
) -> Result<Buffer<R>> {
    let shape = Shape::new(axis, shape, x.size())?;
    let mut out = x.on().empty(shape.results())?;
    run::<F>(x, shape, None, 0, &mut out)?;
    Ok(out)
}

/// As [`fold`], refusing to fold nothing.
fn fold_some<F: Traits, R: Element>(
    x: &dyn AnyBuffer,
    axis: Axis,
    shape: [usize; 2],
) -> Result<Buffer<R>> {
    let folded = Shape::new(axis, shape, x.size())?;
    if folded.n() == 0 && folded.results() > 0 {
        return Err(Error::empty(format!("what {} is taken of", F::KIND.name)));
    }
    fold::<F, R>(x, axis, shape)
}

/// The sums along `axis` of `x`, a matrix of `shape` (rows, columns). +0 of nothing.
///
/// ```
/// use detml_kernels::Device;
/// use detml_kernels::ops::reduce::{Axis, mean, sum};
///
/// let device = Device::cpu();
/// let x = device.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// assert_eq!(device.read(&sum(&x, Axis::EachRow, [2, 3])?)?, [6.0, 15.0]);
/// assert_eq!(device.read(&mean(&x, Axis::EachColumn, [2, 3])?)?, [2.5, 3.5, 4.5]);
/// assert_eq!(device.read(&sum(&x, Axis::Whole, [2, 3])?)?, [21.0]);
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// `Shape` if `x` is not of the shape, those of the device.
pub fn sum(x: &Buffer<f32>, axis: Axis, shape: [usize; 2]) -> Result<Buffer<f32>> {
    fold::<fold::Sum, _>(x, axis, shape)
}

/// The sums of squares along `axis`: each lane takes `fma(x, x, lane)`. +0 of nothing.
///
/// # Errors
/// As [`sum`].
pub fn sum_squares(x: &Buffer<f32>, axis: Axis, shape: [usize; 2]) -> Result<Buffer<f32>> {
    fold::<fold::SumSquares, _>(x, axis, shape)
}

/// The means along `axis`: the sum over the number of elements, each rounded. NaN of nothing.
///
/// # Errors
/// As [`sum`].
pub fn mean(x: &Buffer<f32>, axis: Axis, shape: [usize; 2]) -> Result<Buffer<f32>> {
    fold::<fold::Mean, _>(x, axis, shape)
}

/// The means and variances along `axis`, the variance over `n - ddof`.
///
/// Two passes: with the rounded mean `m`, `d = x - m` is rounded, `s` is the sum of `fma(d, d, _)`
/// and `r` that of `d`, both in the order of sums. The variance is
/// `max(s - (r / n) * r, 0) / (n - ddof)`, every operation rounded; where `(r / n) * r` is not
/// finite it is left out. It does not suffer where the mean is large; it is infinite where a squared
/// deviation is (beyond 1.8e19) or their sum overflows. NaN if `n <= ddof`.
///
/// # Errors
/// As [`sum`].
pub fn mean_variance(
    x: &Buffer<f32>,
    axis: Axis,
    shape: [usize; 2],
    ddof: u32,
) -> Result<(Buffer<f32>, Buffer<f32>)> {
    let folded = Shape::new(axis, shape, x.len())?;
    if !folded.by_column
        && let Some(moments) = super::rowwise::moments(x, [folded.rows, folded.columns], ddof)?
    {
        return Ok(moments);
    }
    let mean = mean(x, axis, shape)?;
    let shape = folded;
    let mut out = x.device().empty(shape.results())?;
    run::<fold::Variance>(x, shape, Some(&mean), ddof, &mut out)?;
    Ok((mean, out))
}

/// The variances along `axis`, see [`mean_variance`].
///
/// # Errors
/// As [`sum`].
pub fn variance(x: &Buffer<f32>, axis: Axis, shape: [usize; 2], ddof: u32) -> Result<Buffer<f32>> {
    Ok(mean_variance(x, axis, shape, ddof)?.1)
}

/// The least elements along `axis`: NaN if there is one, -0 below +0.
///
/// # Errors
/// `Empty` if there is nothing to choose from; as [`sum`].
pub fn min(x: &Buffer<f32>, axis: Axis, shape: [usize; 2]) -> Result<Buffer<f32>> {
    fold_some::<fold::Min, _>(x, axis, shape)
}

/// The greatest elements along `axis`: NaN if there is one, -0 below +0.
///
/// # Errors
/// As [`min`].
pub fn max(x: &Buffer<f32>, axis: Axis, shape: [usize; 2]) -> Result<Buffer<f32>> {
    fold_some::<fold::Max, _>(x, axis, shape)
}

/// The place in its row or column (or in the whole) of the first NaN, else of the first least
/// element; -0 equals +0.
///
/// # Errors
/// As [`min`].
pub fn argmin(x: &Buffer<f32>, axis: Axis, shape: [usize; 2]) -> Result<Buffer<u32>> {
    fold_some::<fold::ArgMin, _>(x, axis, shape)
}

/// The place in its row or column (or in the whole) of the first NaN, else of the first greatest
/// element; -0 equals +0.
///
/// # Errors
/// As [`min`].
pub fn argmax(x: &Buffer<f32>, axis: Axis, shape: [usize; 2]) -> Result<Buffer<u32>> {
    fold_some::<fold::ArgMax, _>(x, axis, shape)
}

/// The greatest magnitude of the finite elements along `axis`; +0 where there is none.
///
/// # Errors
/// As [`sum`].
pub fn largest_finite(x: &Buffer<f32>, axis: Axis, shape: [usize; 2]) -> Result<Buffer<f32>> {
    fold::<fold::LargestFinite, _>(x, axis, shape)
}

/// 1 where some element along `axis` is not 0, else 0. 0 of nothing.
///
/// # Errors
/// As [`sum`].
pub fn any(x: &Buffer<u32>, axis: Axis, shape: [usize; 2]) -> Result<Buffer<u32>> {
    fold::<fold::Any, _>(x, axis, shape)
}

/// 1 where no element along `axis` is 0, else 0. 1 of nothing.
///
/// # Errors
/// As [`sum`].
pub fn all(x: &Buffer<u32>, axis: Axis, shape: [usize; 2]) -> Result<Buffer<u32>> {
    fold::<fold::All, _>(x, axis, shape)
}

/// How many elements along `axis` are not 0.
///
/// # Errors
/// As [`sum`].
pub fn count(x: &Buffer<u32>, axis: Axis, shape: [usize; 2]) -> Result<Buffer<u32>> {
    fold::<fold::Count, _>(x, axis, shape)
}

/// The sums of words along `axis`, modulo 2^32. 0 of nothing.
///
/// # Errors
/// As [`sum`].
pub fn sum_words(x: &Buffer<u32>, axis: Axis, shape: [usize; 2]) -> Result<Buffer<u32>> {
    fold::<fold::SumWords, _>(x, axis, shape)
}

/// The least words along `axis`.
///
/// # Errors
/// As [`min`].
pub fn min_words(x: &Buffer<u32>, axis: Axis, shape: [usize; 2]) -> Result<Buffer<u32>> {
    fold_some::<fold::MinWord, _>(x, axis, shape)
}

/// The greatest words along `axis`.
///
/// # Errors
/// As [`min`].
pub fn max_words(x: &Buffer<u32>, axis: Axis, shape: [usize; 2]) -> Result<Buffer<u32>> {
    fold_some::<fold::MaxWord, _>(x, axis, shape)
}

/// A representative of each variant of this module's kernels.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    gpu::kernels(profile)
}
