//! Counts, exact sums and extremes of the elements of each bin.
//!
//! All are made by integer operations that commute exactly (`N9`): atomics may run in any order.
//! An element whose bin is not below the number of bins takes part in nothing.

mod cpu;
mod gpu;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;

use super::same_device;
use super::scan::Integer;
use super::tile::check_len;
use crate::device::Buffer;
use crate::wide::I64;
use detml_core::{Error, Result};

pub(crate) use gpu::{carry, kernels};

/// How many of `bins` name each bin.
///
/// ```
/// use detml_kernels::{Device, ops::histogram};
///
/// let device = Device::cpu();
/// let bins = device.upload(&[2u32, 0, 2, 9])?;
/// assert_eq!(device.read(&histogram::counts(&bins, 3)?)?, [1, 0, 2]);
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// `Shape` above 2^31 elements or bins; those of the device.
pub fn counts(bins: &Buffer<u32>, n_bins: usize) -> Result<Buffer<u32>> {
    check("counts", bins, bins, n_bins)?;
    match bins.host() {
        Some(host) => Ok(Buffer::from_host(bins.device(), cpu::counts(host, n_bins))),
        None => gpu::counts(bins, n_bins),
    }
}

/// Exact 64-bit sums in two's complement: `hi[i] * 2^32 + lo[i]`. See [`sums`].
#[derive(Debug)]
pub struct Sums {
    /// The upper words.
    pub hi: Buffer<u32>,
    /// The lower words.
    pub lo: Buffer<u32>,
}

impl Sums {
    /// The sums on the host.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read(&self) -> Result<Vec<i64>> {
        let hi = self.hi.device().read(&self.hi)?;
        let lo = self.lo.device().read(&self.lo)?;
        Ok(hi
            .into_iter()
            .zip(lo)
            .map(|(hi, lo)| I64 { hi, lo }.into())
            .collect())
    }
}

/// The sum of the weights of each bin: 2^31 weights of 32 bits can't overflow 64 bits.
///
/// ```
/// use detml_kernels::{Device, ops::histogram};
///
/// let device = Device::cpu();
/// let bins = device.upload(&[1u32, 1, 0])?;
/// let weights = device.upload(&[i32::MIN, i32::MIN, 5])?;
/// assert_eq!(histogram::sums(&bins, &weights, 2)?.read()?, [5, -(1 << 32)]);
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// `Shape` if there are not as many weights as bin numbers, or above 2^31 of them or of bins;
/// `InvalidParameter` if the two are on different devices; those of the device.
pub fn sums<W: Integer>(bins: &Buffer<u32>, weights: &Buffer<W>, n_bins: usize) -> Result<Sums> {
    check("sums", bins, weights, n_bins)?;
    let (Some(host), Some(weights_host)) = (bins.host(), weights.host()) else {
        return gpu::sums(bins, weights, n_bins);
    };
    let weights = bytemuck::cast_slice(weights_host);
    let sums = cpu::sums(host, weights, W::SIGNED, n_bins);
    let word = |shift: u32| sums.iter().map(|s| (s >> shift) as u32).collect();
    Ok(Sums {
        hi: Buffer::from_host(bins.device(), word(32)),
        lo: Buffer::from_host(bins.device(), word(0)),
    })
}

/// See [`extremes`].
#[derive(Debug)]
pub struct Extremes {
    /// The smallest number of each bin.
    pub min: Buffer<f32>,
    /// The largest number of each bin.
    pub max: Buffer<f32>,
}

/// The smallest and the largest number of each bin; -0 is below +0. NaN elements take no part;
/// a bin without numbers has NaN for both.
///
/// # Errors
/// As [`sums`].
pub fn extremes(bins: &Buffer<u32>, values: &Buffer<f32>, n_bins: usize) -> Result<Extremes> {
    check("extremes", bins, values, n_bins)?;
    let (Some(host), Some(values_host)) = (bins.host(), values.host()) else {
        return gpu::extremes(bins, values, n_bins);
    };
    let (min, max) = cpu::extremes(host, values_host, n_bins);
    Ok(Extremes {
        min: Buffer::from_host(bins.device(), min),
        max: Buffer::from_host(bins.device(), max),
    })
}

fn check<T: crate::Element>(
    op: &str,
    bins: &Buffer<u32>,
    values: &Buffer<T>,
    n_bins: usize,
) -> Result<()> {
    check_len(op, bins.len())?;
    check_len(op, n_bins)?;
    if values.len() != bins.len() {
        return Err(Error::shape(
            op,
            format_args!("{} elements, one a bin number", bins.len()),
            values.len(),
        ));
    }
    same_device(bins.device(), values.device())
}
