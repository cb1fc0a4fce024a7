//! Stable sorts by `u32`, `i32` or `f32` keys.
//!
//! The order is total (`N10`): equal keys stay in the order of their indices, -0 and +0 are equal
//! keys, and every NaN comes last, ascending or descending. Rows have at most 2^31 elements.
//!
//! Both devices sort by digits, least significant first (Knuth, "The Art of Computer Programming"
//! 3, 5.2.5); the result of a stable sort is unique, so no schedule shows in it.

mod cpu;
mod gpu;
#[cfg(test)]
pub(crate) mod plain;
#[cfg(test)]
mod tests;

use super::same_device;
use super::tile::{check_len, check_matrix};
use crate::device::{Buffer, Element};
use detml_core::{Error, Result};

pub use super::order::Order;
pub(crate) use gpu::kernels;

mod sealed {
    use crate::ops::order::Kind;
    pub trait Sealed {
        const KIND: Kind;
    }
    impl Sealed for u32 {
        const KIND: Kind = Kind::U32;
    }
    impl Sealed for i32 {
        const KIND: Kind = Kind::I32;
    }
    impl Sealed for f32 {
        const KIND: Kind = Kind::F32;
    }
}

/// What can be sorted by: `u32`, `i32` or `f32`.
pub trait Key: Element + sealed::Sealed {}

impl Key for u32 {}
impl Key for i32 {}
impl Key for f32 {}

/// The keys in order. A NaN becomes 0x7fc00000; zeros keep their signs.
///
/// ```
/// use detml_kernels::{Device, ops::sort::{self, Order}};
///
/// let device = Device::cpu();
/// let keys = device.upload(&[2.0f32, f32::INFINITY, -1.0])?;
/// let sorted = sort::sort(&keys, Order::Descending)?;
/// assert_eq!(device.read(&sorted)?, [f32::INFINITY, 2.0, -1.0]);
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// `Shape` above 2^31 elements; those of the device.
pub fn sort<K: Key>(keys: &Buffer<K>, order: Order) -> Result<Buffer<K>> {
    sort_rows(keys, 1, keys.len(), order)
}

/// The indices of the keys in order.
///
/// ```
/// use detml_kernels::{Device, ops::sort::{self, Order}};
///
/// let device = Device::cpu();
/// let keys = device.upload(&[0.0f32, f32::NAN, -0.0, -3.0])?;
/// let indices = sort::argsort(&keys, Order::Ascending)?;
/// assert_eq!(device.read(&indices)?, [3, 0, 2, 1]);
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// As [`sort`].
pub fn argsort<K: Key>(keys: &Buffer<K>, order: Order) -> Result<Buffer<u32>> {
    argsort_rows(keys, 1, keys.len(), order)
}

/// [`sort`] of every row of a row-major matrix (or every column of a column-major one).
///
/// # Errors
/// `Shape` if there are not `rows * cols` keys, or more than 2^31; those of the device.
pub fn sort_rows<K: Key>(
    keys: &Buffer<K>,
    rows: usize,
    cols: usize,
    order: Order,
) -> Result<Buffer<K>> {
    check_matrix("sort", keys.len(), rows, cols)?;
    let Some(host) = keys.host() else {
        return gpu::sort(keys, rows, cols, K::KIND, order, gpu::units(keys.device()));
    };
    let mut sorted = keys.device().unwritten::<K>(keys.len())?;
    if let Some(out) = sorted.host_mut() {
        cpu::sort(words(host), words_mut(out), cols, K::KIND, order);
    }
    Ok(sorted)
}

/// [`argsort`] of every row of a row-major matrix (or every column of a column-major one); the
/// indices count within the row.
///
/// # Errors
/// As [`sort_rows`].
pub fn argsort_rows<K: Key>(
    keys: &Buffer<K>,
    rows: usize,
    cols: usize,
    order: Order,
) -> Result<Buffer<u32>> {
    check_matrix("argsort", keys.len(), rows, cols)?;
    let Some(host) = keys.host() else {
        return gpu::argsort(keys, rows, cols, K::KIND, order, gpu::units(keys.device()));
    };
    let mut indices = keys.device().unwritten::<u32>(keys.len())?;
    if let Some(out) = indices.host_mut() {
        cpu::argsort(words(host), out, cols, K::KIND, order);
    }
    Ok(indices)
}

fn words<K: Key>(keys: &[K]) -> &[u32] {
    bytemuck::cast_slice(keys)
}

fn words_mut<K: Key>(keys: &mut [K]) -> &mut [u32] {
    bytemuck::cast_slice_mut(keys)
}

/// The keys in order, and the values moved along with them.
///
/// # Errors
/// `Shape` if there are not as many values as keys, or more than 2^31; `InvalidParameter` if the
/// two are on different devices; those of the device.
pub fn sort_by_key<K: Key>(
    keys: &Buffer<K>,
    values: &Buffer<u32>,
    order: Order,
) -> Result<(Buffer<K>, Buffer<u32>)> {
    check_len("sort_by_key", keys.len())?;
    if values.len() != keys.len() {
        return Err(Error::shape(
            "sort_by_key",
            format_args!("{} values", keys.len()),
            values.len(),
        ));
    }
    same_device(keys.device(), values.device())?;
    let (Some(host), Some(values_host)) = (keys.host(), values.host()) else {
        return gpu::sort_by_key(keys, values, K::KIND, order, gpu::units(keys.device()));
    };
    let mut sorted = keys.device().unwritten::<K>(keys.len())?;
    let mut moved = keys.device().unwritten::<u32>(keys.len())?;
    if let (Some(sorted), Some(moved)) = (sorted.host_mut(), moved.host_mut()) {
        cpu::sort_by_key(
            words(host),
            values_host,
            words_mut(sorted),
            moved,
            K::KIND,
            order,
        );
    }
    Ok((sorted, moved))
}
