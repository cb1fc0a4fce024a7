//! The transpose of a row-major matrix, or of each of a batch. Bits stay, also a NaN's.
//!
//! ```
//! use detml_kernels::Device;
//! use detml_kernels::ops::transpose::transpose;
//!
//! let device = Device::cpu();
//! let x = device.upload(&[1u32, 2, 3, 4, 5, 6])?;
//! assert_eq!(device.read(&transpose(&x, [2, 3])?)?, [1, 4, 2, 5, 3, 6]);
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
use crate::ops::AnyBuffer;
use detml_core::{Error, Result};

/// Element `(c, r)` of the result, `shape[1]` rows of `shape[0]`, is element `(r, c)` of `x`.
///
/// # Errors
/// `Shape` if `x` is not of the shape, those of the device.
pub fn transpose<T: Element>(x: &Buffer<T>, shape: [usize; 2]) -> Result<Buffer<T>> {
    transpose_batch(x, [1, shape[0], shape[1]])
}

/// Each of `shape[0]` matrices of `shape[1]` rows and `shape[2]` columns transposed.
///
/// # Errors
/// As [`transpose`].
pub fn transpose_batch<T: Element>(x: &Buffer<T>, shape: [usize; 3]) -> Result<Buffer<T>> {
    let [batch, rows, columns] = shape;
    let len = batch.checked_mul(rows).and_then(|n| n.checked_mul(columns));
    if len != Some(x.len()) {
        return Err(Error::shape(
            "transpose",
            format!("a buffer of {batch} x {rows} x {columns} elements"),
            format!("{} elements", x.len()),
        ));
    }
    let device = x.device();
    let mut out = device.unwritten(x.len())?;
    if x.is_empty() {
        return Ok(out);
    }
    if let (Some(x), Some(out)) = (x.words(), out.words_mut()) {
        cpu::run(x, rows, columns, out);
    } else {
        gpu::run(device, x, shape, &mut out)?;
    }
    Ok(out)
}

/// A representative of each variant of this module's kernels.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    vec![gpu::kernel(profile)]
}
