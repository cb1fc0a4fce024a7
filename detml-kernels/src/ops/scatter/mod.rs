//! Rows written to the places that an index names. Bits stay, also a NaN's.
//!
//! Where an index occurs more than once, the last row wins, whatever the schedule: the winner is
//! found by an integer maximum over the positions (`N9`). An index beyond the matrix is passed over;
//! [`gather::check`](super::gather::check) asks whether there is one.
//!
//! ```
//! use detml_kernels::Device;
//! use detml_kernels::ops::scatter::rows;
//!
//! let device = Device::cpu();
//! let mut out = device.upload(&[0.0f32; 6])?;
//! let x = device.upload(&[1.0f32, 1.0, 2.0, 2.0, 3.0, 3.0])?;
//! rows(&mut out, [3, 2], &device.upload(&[2u32, 0, 2])?, &x)?;
//! assert_eq!(device.read(&out)?, [2.0, 2.0, 0.0, 0.0, 3.0, 3.0]);
//! # Ok::<(), detml_core::Error>(())
//! ```

mod cpu;
mod gpu;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;

use crate::device::{Buffer, Element, Kernel};
use crate::ieee::FloatProfile;
use crate::ops::{AnyBuffer, same_device};
use detml_core::{Error, Result};

/// Row `index[i]` of `out`, a matrix of `shape` (rows, columns), becomes row `i` of `x`, for the
/// last `i` of each index; other rows stay.
///
/// # Errors
/// `Shape` if `out` is not of the shape or `x` has not a row for each index, `InvalidParameter` if
/// the devices differ, those of the device.
pub fn rows<T: Element>(
    out: &mut Buffer<T>,
    shape: [usize; 2],
    index: &Buffer<u32>,
    x: &Buffer<T>,
) -> Result<()> {
    let [rows, columns] = shape;
    if rows.checked_mul(columns) != Some(out.len()) {
        return Err(Error::shape(
            "scatter",
            format!("a buffer of {rows} x {columns} elements"),
            format!("{} elements", out.len()),
        ));
    }
    if index.len().checked_mul(columns) != Some(x.len()) {
        return Err(Error::shape(
            "scatter",
            format!("{} rows of {columns} elements", index.len()),
            format!("{} elements", x.len()),
        ));
    }
    same_device(out.device(), index.device())?;
    same_device(out.device(), x.device())?;
    if out.is_empty() || x.is_empty() {
        return Ok(());
    }
    if let (Some(out), Some(index), Some(x)) = (out.words_mut(), index.host(), x.words()) {
        cpu::run(out, columns, index, x);
        Ok(())
    } else {
        gpu::run(out, rows, columns, index, x)
    }
}

/// `out[index[i]] = x[i]`, for the last `i` of each index.
///
/// # Errors
/// As [`rows`].
pub fn elements<T: Element>(out: &mut Buffer<T>, index: &Buffer<u32>, x: &Buffer<T>) -> Result<()> {
    let shape = [out.len(), 1];
    rows(out, shape, index, x)
}

/// A representative of each variant of this module's kernels.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let mut kernels = vec![gpu::winner_kernel(profile), gpu::write_kernel(profile)];
    kernels.extend([false, true].map(|vectors| gpu::take_kernel(profile, vectors)));
    kernels
}
