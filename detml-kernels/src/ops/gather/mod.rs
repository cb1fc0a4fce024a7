//! Rows or columns of a matrix, or elements, by index. Bits stay, also a NaN's.
//!
//! An index beyond the matrix gives zeros: a GPU can't stop for it. [`check`] asks the device
//! whether there is one.
//!
//! ```
//! use detml_kernels::Device;
//! use detml_kernels::ops::gather::{check, elements, rows};
//!
//! let device = Device::cpu();
//! let x = device.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let index = device.upload(&[2u32, 0, 2])?;
//! check(&index, 3)?;
//! assert_eq!(device.read(&rows(&x, [3, 2], &index)?)?, [5.0, 6.0, 1.0, 2.0, 5.0, 6.0]);
//! assert_eq!(device.read(&elements(&x, &index)?)?, [3.0, 1.0, 3.0]);
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
use crate::ops::reduce::{self, Axis};
use crate::ops::{AnyBuffer, same_device};
use detml_core::{Error, Result};

/// What an index names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Of {
    Rows,
    Columns,
}

/// Row `i` of the result is row `index[i]` of `x`, a matrix of `shape` (rows, columns).
///
/// # Errors
/// `Shape` if `x` is not of the shape, `InvalidParameter` if the devices differ, those of the
/// device.
pub fn rows<T: Element>(
    x: &Buffer<T>,
    shape: [usize; 2],
    index: &Buffer<u32>,
) -> Result<Buffer<T>> {
    gather(Of::Rows, x, shape, index)
}

/// Column `i` of the result is column `index[i]` of `x`, a matrix of `shape` (rows, columns).
///
/// # Errors
/// As [`rows`].
pub fn columns<T: Element>(
    x: &Buffer<T>,
    shape: [usize; 2],
    index: &Buffer<u32>,
) -> Result<Buffer<T>> {
    gather(Of::Columns, x, shape, index)
}

/// Element `i` of the result is `x[index[i]]`.
///
/// # Errors
/// As [`rows`].
pub fn elements<T: Element>(x: &Buffer<T>, index: &Buffer<u32>) -> Result<Buffer<T>> {
    gather(Of::Rows, x, [x.len(), 1], index)
}

/// Refuses indices that are not below `bound`. Waits for the device.
///
/// # Errors
/// `InvalidValue` for the first one, those of the device.
pub fn check(index: &Buffer<u32>, bound: usize) -> Result<()> {
    if index.is_empty() {
        return Ok(());
    }
    let device = index.device();
    let shape = [1, index.len()];
    let largest = device.read(&reduce::max_words(index, Axis::Whole, shape)?)?;
    if largest.iter().all(|&i| (i as usize) < bound) {
        return Ok(());
    }
    let all = device.read(index)?;
    let row = all.iter().position(|&i| i as usize >= bound).unwrap_or(0);
    Err(Error::InvalidValue {
        what: "index".into(),
        row,
        expected: format!("an index below {bound}"),
        got: all.get(row).copied().unwrap_or(0).to_string(),
    })
}

fn gather<T: Element>(
    of: Of,
    x: &Buffer<T>,
    [rows, columns]: [usize; 2],
    index: &Buffer<u32>,
) -> Result<Buffer<T>> {
    let device = x.device();
    same_device(device, index.device())?;
    let (kept, bound) = match of {
        Of::Rows => (columns, rows),
        Of::Columns => (rows, columns),
    };
    let len = index.len().checked_mul(kept);
    let (Some(len), true) = (len, rows.checked_mul(columns) == Some(x.len())) else {
        return Err(Error::shape(
            "gather",
            format!("a buffer of {rows} x {columns} elements"),
            format!("{} elements", x.len()),
        ));
    };
    let mut out = device.unwritten(len)?;
    if len == 0 {
        return Ok(out);
    }
    let width = match of {
        Of::Rows => columns,
        Of::Columns => index.len(),
    };
    if let (Some(x), Some(index), Some(out)) = (x.words(), index.host(), out.words_mut()) {
        cpu::run(of, x, columns, index, bound, width, out);
    } else {
        gpu::run(of, x, columns, index, bound, width, &mut out)?;
    }
    Ok(out)
}

/// A representative of each variant of this module's kernels.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    [(Of::Rows, true), (Of::Rows, false), (Of::Columns, false)]
        .map(|(of, vectors)| gpu::kernel(profile, of, vectors))
        .into()
}
