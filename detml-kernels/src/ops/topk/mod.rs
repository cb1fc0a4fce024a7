//! The first `k` keys of every row in a total order.
//!
//! The order is that of [`sort`](super::sort): equal keys by their indices, -0 equal to +0, every
//! NaN after every number, whichever end is asked for. It is total, so the result is unique.

mod cpu;
mod gpu;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;

use super::sort::{Key, Order};
use super::tile::check_matrix;
use crate::device::Buffer;
use detml_core::Result;

pub(crate) use gpu::kernels;

/// The result of [`topk`]: row-major matrices of `rows` rows and `k` columns, best first.
#[derive(Debug)]
pub struct TopK<K: Key> {
    /// The keys. A NaN is 0x7fc00000; zeros keep their signs.
    pub values: Buffer<K>,
    /// Their indices within the row.
    pub indices: Buffer<u32>,
    /// Columns of both: what was asked for, but not more than the keys of a row.
    pub k: usize,
}

/// The `k` first keys of each row of a row-major matrix: the largest for `Order::Descending`, the
/// smallest for `Order::Ascending`. A `k` above `cols` gives all of them, sorted.
///
/// ```
/// use detml_kernels::{Device, ops::sort::Order, ops::topk::topk};
///
/// let device = Device::cpu();
/// let x = device.upload(&[1.0f32, 3.0, 3.0, f32::NAN])?;
/// let best = topk(&x, 1, 4, 2, Order::Descending)?;
/// assert_eq!(device.read(&best.values)?, [3.0, 3.0]);
/// assert_eq!(device.read(&best.indices)?, [1, 2]);
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// `Shape` if there are not `rows * cols` keys, or more than 2^31; those of the device.
pub fn topk<K: Key>(
    x: &Buffer<K>,
    rows: usize,
    cols: usize,
    k: usize,
    order: Order,
) -> Result<TopK<K>> {
    check_matrix("topk", x.len(), rows, cols)?;
    let k = k.min(cols);
    let device = x.device();
    if rows * k == 0 {
        return Ok(TopK {
            values: device.empty(0)?,
            indices: device.empty(0)?,
            k,
        });
    }
    let (Some(host), Some(simd)) = (x.host(), device.simd()) else {
        return gpu::topk(x, rows, cols, k, order);
    };
    let mut values = device.unwritten::<K>(rows * k)?;
    let mut indices = device.unwritten::<u32>(rows * k)?;
    if let (Some(values), Some(indices)) = (values.host_mut(), indices.host_mut()) {
        let values = bytemuck::cast_slice_mut(values);
        cpu::topk(
            simd,
            bytemuck::cast_slice(host),
            cols,
            k,
            K::KIND,
            order,
            values,
            indices,
        );
    }
    Ok(TopK { values, indices, k })
}
