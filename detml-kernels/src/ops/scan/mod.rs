//! Prefix sums of integers, and what is made of them: compaction and stable partition.
//!
//! Sums are modulo 2^32 (two's complement for `i32`), hence exact and free of any order. Rows
//! have at most 2^31 elements.

mod cpu;
mod gpu;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;

use super::tile::check_len;
use crate::device::{Buffer, Element};
use detml_core::Result;

pub(crate) use gpu::kernels;

mod sealed {
    pub trait Sealed {
        const SIGNED: bool;
    }
    impl Sealed for u32 {
        const SIGNED: bool = false;
    }
    impl Sealed for i32 {
        const SIGNED: bool = true;
    }
}

/// `u32` or `i32`.
pub trait Integer: Element + sealed::Sealed {}

impl Integer for u32 {}
impl Integer for i32 {}

/// Element `i` is the sum of the elements before `i`, modulo 2^32.
///
/// ```
/// use detml_kernels::{Device, ops::scan};
///
/// let device = Device::cpu();
/// let x = device.upload(&[3u32, 1, 4, 1])?;
/// assert_eq!(device.read(&scan::exclusive(&x)?)?, [0, 3, 4, 8]);
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// `Shape` above 2^31 elements; those of the device.
pub fn exclusive<T: Integer>(x: &Buffer<T>) -> Result<Buffer<T>> {
    Ok(exclusive_with_total(x)?.0)
}

/// [`exclusive`] and, as a buffer of one element, the sum of all (0 of none).
///
/// # Errors
/// As [`exclusive`].
pub fn exclusive_with_total<T: Integer>(x: &Buffer<T>) -> Result<(Buffer<T>, Buffer<T>)> {
    scan(x, false)
}

/// Element `i` is the sum of the elements up to and with `i`, modulo 2^32.
///
/// # Errors
/// As [`exclusive`].
pub fn inclusive<T: Integer>(x: &Buffer<T>) -> Result<Buffer<T>> {
    Ok(scan(x, true)?.0)
}

fn scan<T: Integer>(x: &Buffer<T>, inclusive: bool) -> Result<(Buffer<T>, Buffer<T>)> {
    check_len("scan", x.len())?;
    let device = x.device();
    let Some(host) = x.host() else {
        return gpu::scan(x, inclusive);
    };
    let mut out = device.unwritten(x.len())?;
    let mut total = device.empty(1)?;
    if let (Some(out), Some(total)) = (out.host_mut(), total.host_mut()) {
        let sum = cpu::scan(
            bytemuck::cast_slice(host),
            bytemuck::cast_slice_mut(out),
            inclusive,
        );
        total[0] = bytemuck::cast(sum);
    }
    Ok((out, total))
}

/// The indices of the flags that are not 0, ascending.
///
/// On a GPU the host waits for their number, one word.
///
/// # Errors
/// As [`exclusive`].
pub fn compact(flags: &Buffer<u32>) -> Result<Buffer<u32>> {
    check_len("compact", flags.len())?;
    match flags.host() {
        Some(host) => {
            let indices = cpu::compact(host);
            Ok(Buffer::from_host(flags.device(), indices))
        }
        None => gpu::compact(flags),
    }
}

/// The result of [`partition`].
#[derive(Debug)]
pub struct Partition {
    /// First the indices of the flags that are not 0, then those of the others; each part
    /// ascending.
    pub indices: Buffer<u32>,
    /// One element: the size of the first part.
    pub left: Buffer<u32>,
}

/// Parts the indices of the flags by whether the flag is 0, stably. Nothing goes to the host.
///
/// ```
/// use detml_kernels::{Device, ops::scan};
///
/// let device = Device::cpu();
/// let parts = scan::partition(&device.upload(&[0u32, 1, 0, 7])?)?;
/// assert_eq!(device.read(&parts.indices)?, [1, 3, 0, 2]);
/// assert_eq!(device.read(&parts.left)?, [2]);
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// As [`exclusive`].
pub fn partition(flags: &Buffer<u32>) -> Result<Partition> {
    check_len("partition", flags.len())?;
    let device = flags.device();
    match flags.host() {
        Some(host) => {
            let (indices, left) = cpu::partition(host);
            Ok(Partition {
                indices: Buffer::from_host(device, indices),
                left: Buffer::from_host(device, vec![left]),
            })
        }
        None => gpu::partition(flags),
    }
}
