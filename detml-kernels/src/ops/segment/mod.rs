//! Folds over runs of rows: the groups of sorted keys.
//!
//! [`Segments`] holds where each group begins. A group's columns are folded in the order of
//! [`reduce`](super::reduce) for its own number of rows, so that a group's result does not depend
//! on its neighbours (`N7`).
//!
//! Of an empty group the sums are +0, mean, variance, min and max NaN, and places `u32::MAX`.
//!
//! ```
//! use detml_kernels::Device;
//! use detml_kernels::ops::segment::{Segments, mean, sum};
//!
//! let device = Device::cpu();
//! let keys = device.upload(&[0u32, 0, 2])?;
//! let groups = Segments::of_sorted_keys(&keys, 3)?;
//! let x = device.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! assert_eq!(device.read(&sum(&x, 2, &groups)?)?, [4.0, 6.0, 0.0, 0.0, 5.0, 6.0]);
//! # Ok::<(), detml_core::Error>(())
//! ```

mod gpu;
#[cfg(test)]
mod tests;

use crate::device::{Buffer, Device, Element, Kernel};
use crate::ieee::FloatProfile;
use crate::ops::reduce::fold::{self, Traits};
use crate::ops::tile::check_len;
use crate::ops::{AnyBuffer, reduce, same_device};
use detml_core::{Error, Result};

/// Runs of rows that follow one another, some of them empty.
#[derive(Debug)]
pub struct Segments {
    /// One more than there are groups; they ascend from 0 or more to at most `rows`.
    offsets: Buffer<u32>,
    rows: usize,
    /// Rows of the largest group: those that have no more than a segment take one launch.
    longest: usize,
}

impl Segments {
    /// The groups of rows with keys 0, 1, ..., `groups - 1`; rows with other keys are in none.
    ///
    /// The keys must ascend; on a GPU the host waits for one word that says whether they do, and
    /// for the rows of the largest group.
    ///
    /// # Errors
    /// `InvalidParameter` if `groups` is not below `u32::MAX` or the keys don't ascend, `Shape`
    /// above 2^31 keys, those of the device.
    pub fn of_sorted_keys(keys: &Buffer<u32>, groups: usize) -> Result<Self> {
        if groups >= u32::MAX as usize {
            return Err(Error::parameter("groups", "fewer than 4294967295", groups));
        }
        check_len("segments of keys", keys.len())?;
        let descent = match keys.host() {
            Some(keys) => keys.windows(2).position(|pair| pair[0] > pair[1]),
            None => gpu::descent(keys)?,
        };
        if let Some(at) = descent {
            return Err(Error::parameter(
                "keys",
                "keys that ascend",
                format!("a lower key after the one at {at}"),
            ));
        }
        let mut offsets = keys.device().empty(groups + 1)?;
        if let (Some(keys), Some(offsets)) = (keys.host(), offsets.host_mut()) {
            for (group, offset) in offsets.iter_mut().enumerate() {
                *offset = keys.partition_point(|&key| (key as usize) < group) as u32;
            }
        } else {
            gpu::offsets(keys, &mut offsets)?;
        }
        let longest = match offsets.host() {
            Some(offsets) => longest(offsets),
            None => gpu::longest(&offsets)?,
        };
        Ok(Self {
            offsets,
            rows: keys.len(),
            longest,
        })
    }

    /// Group `i` is the rows `offsets[i]..offsets[i + 1]`.
    ///
    /// # Errors
    /// `InvalidParameter` if there is no offset or they don't ascend, those of the device.
    pub fn of_offsets(device: &Device, offsets: &[u32]) -> Result<Self> {
        let Some(&last) = offsets.last() else {
            return Err(Error::parameter("offsets", "at least one offset", "none"));
        };
        if let Some(at) = offsets.windows(2).position(|w| w[0] > w[1]) {
            return Err(Error::parameter(
                "offsets",
                "offsets that ascend",
                format!("{} before {}", offsets[at], offsets[at + 1]),
            ));
        }
        Ok(Self {
            offsets: device.upload(offsets)?,
            rows: last as usize,
            longest: longest(offsets),
        })
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where groups begin; the last is where the last one ends.
    pub fn offsets(&self) -> &Buffer<u32> {
        &self.offsets
    }
}

/// Rows of the largest group.
fn longest(offsets: &[u32]) -> usize {
    let lengths = offsets.windows(2).map(|pair| pair[1] - pair[0]);
    lengths.max().unwrap_or(0) as usize
}

/// The fold of each column of each group: `segments.len()` rows of `columns` results.
fn fold<F: Traits, R: Element>(
    x: &dyn AnyBuffer,
    columns: usize,
    segments: &Segments,
    shift: Option<&dyn AnyBuffer>,
    ddof: u32,
) -> Result<Buffer<R>> {
    let rows = x.size().checked_div(columns).unwrap_or(0);
    if rows * columns != x.size() || (columns > 0 && rows < segments.rows) {
        return Err(Error::shape(
            "segment",
            format!("{} rows of {columns} elements", segments.rows),
            format!("{} elements", x.size()),
        ));
    }
    let device = x.on();
    same_device(device, segments.offsets.device())?;
    let len = segments.len().checked_mul(columns).ok_or_else(|| {
        Error::shape(
            "segment",
            "a countable number of results",
            format!("{} x {columns}", segments.len()),
        )
    })?;
    let mut out = device.empty(len)?;
    if len == 0 {
        return Ok(out);
    }
    if let (Some(simd), Some(words), Some(offsets)) =
        (device.simd(), x.words(), segments.offsets.host())
    {
        let shift = shift.and_then(AnyBuffer::words).unwrap_or(&[]);
        if let Some(out) = out.words_mut() {
            reduce::cpu::ranges::<F>(simd, words, columns, offsets, shift, ddof, out);
        }
        return Ok(out);
    }
    let job = reduce::gpu::Job {
        x,
        shift,
        rows,
        columns,
        ddof,
    };
    reduce::gpu::ranges(
        F::KIND,
        device,
        &job,
        &segments.offsets,
        segments.len(),
        segments.longest,
        &mut out,
    )?;
    Ok(out)
}

/// The sums of each column of `x`, rows of `columns` elements, over each group's rows.
///
/// # Errors
/// `Shape` if `x` has fewer rows than the groups or no whole number of them, `InvalidParameter` if
/// the devices differ, those of the device.
pub fn sum(x: &Buffer<f32>, columns: usize, segments: &Segments) -> Result<Buffer<f32>> {
    fold::<fold::Sum, _>(x, columns, segments, None, 0)
}

/// The sums of squares, see [`reduce::sum_squares`]. Errors as [`sum`].
pub fn sum_squares(x: &Buffer<f32>, columns: usize, segments: &Segments) -> Result<Buffer<f32>> {
    fold::<fold::SumSquares, _>(x, columns, segments, None, 0)
}

/// The means. Errors as [`sum`].
pub fn mean(x: &Buffer<f32>, columns: usize, segments: &Segments) -> Result<Buffer<f32>> {
    fold::<fold::Mean, _>(x, columns, segments, None, 0)
}

/// The means and variances, see [`reduce::mean_variance`]. Errors as [`sum`].
pub fn mean_variance(
    x: &Buffer<f32>,
    columns: usize,
    segments: &Segments,
    ddof: u32,
) -> Result<(Buffer<f32>, Buffer<f32>)> {
    let mean = mean(x, columns, segments)?;
    let variance = fold::<fold::Variance, _>(x, columns, segments, Some(&mean), ddof)?;
    Ok((mean, variance))
}

/// The least elements, see [`reduce::min`]. Errors as [`sum`].
pub fn min(x: &Buffer<f32>, columns: usize, segments: &Segments) -> Result<Buffer<f32>> {
    fold::<fold::Min, _>(x, columns, segments, None, 0)
}

/// The greatest elements, see [`reduce::max`]. Errors as [`sum`].
pub fn max(x: &Buffer<f32>, columns: usize, segments: &Segments) -> Result<Buffer<f32>> {
    fold::<fold::Max, _>(x, columns, segments, None, 0)
}

/// The places, from a group's first row, of its least elements, see [`reduce::argmin`]. Errors as
/// [`sum`].
pub fn argmin(x: &Buffer<f32>, columns: usize, segments: &Segments) -> Result<Buffer<u32>> {
    fold::<fold::ArgMin, _>(x, columns, segments, None, 0)
}

/// The places, from a group's first row, of its greatest elements, see [`reduce::argmax`]. Errors
/// as [`sum`].
pub fn argmax(x: &Buffer<f32>, columns: usize, segments: &Segments) -> Result<Buffer<u32>> {
    fold::<fold::ArgMax, _>(x, columns, segments, None, 0)
}

/// The sums of words modulo 2^32. Errors as [`sum`].
pub fn sum_words(x: &Buffer<u32>, columns: usize, segments: &Segments) -> Result<Buffer<u32>> {
    fold::<fold::SumWords, _>(x, columns, segments, None, 0)
}

/// How many words are not 0. Errors as [`sum`].
pub fn count(x: &Buffer<u32>, columns: usize, segments: &Segments) -> Result<Buffer<u32>> {
    fold::<fold::Count, _>(x, columns, segments, None, 0)
}

/// A representative of each variant of this module's kernels.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    vec![
        gpu::kernel(profile),
        gpu::descent_kernel(profile),
        gpu::lengths_kernel(profile),
    ]
}
