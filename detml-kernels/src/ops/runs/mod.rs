//! Runs of equal keys in a sorted row: unique keys, their places and numbers.

mod gpu;
#[cfg(test)]
mod tests;

use super::order::{rank, stored};
use super::scan;
use super::sort::{Key, Order};
use super::tile::check_len;
use crate::device::Buffer;
use crate::ieee::Ieee;
use detml_core::Result;
use rayon::prelude::*;

pub(crate) use gpu::kernels;

/// The result of [`runs`], one element a run in order.
#[derive(Debug)]
pub struct Runs<K: Key> {
    /// The run's first key. A NaN is 0x7fc00000.
    pub keys: Buffer<K>,
    /// Where it starts.
    pub starts: Buffer<u32>,
    /// Its number of keys.
    pub lengths: Buffer<u32>,
}

/// The runs of neighbours with equal keys. As in the order of [`sort`](super::sort), -0 equals +0
/// and every NaN equals every NaN, so the runs of a sorted row are its unique keys.
///
/// On a GPU the host waits for their number, one word.
///
/// ```
/// use detml_kernels::{Device, ops::runs::runs};
///
/// let device = Device::cpu();
/// let runs = runs(&device.upload(&[1.0f32, 1.0, 3.0])?)?;
/// assert_eq!(device.read(&runs.keys)?, [1.0, 3.0]);
/// assert_eq!(device.read(&runs.starts)?, [0, 2]);
/// assert_eq!(device.read(&runs.lengths)?, [2, 1]);
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// `Shape` above 2^31 keys; those of the device.
pub fn runs<K: Key>(keys: &Buffer<K>) -> Result<Runs<K>> {
    check_len("runs", keys.len())?;
    let Some(host) = keys.host() else {
        return gpu::runs(keys);
    };
    let device = keys.device();
    let words: &[u32] = bytemuck::cast_slice(host);
    let float = K::KIND.is_float();
    let flip = K::KIND.flip(Order::Ascending);
    let word = |i: usize| rank(Ieee::PLAIN, words[i], flip, float);
    let heads: Vec<u32> = (0..words.len())
        .into_par_iter()
        .with_min_len(1 << 14)
        .map(|i| u32::from(i == 0 || word(i) != word(i - 1)))
        .collect();
    let starts = scan::compact(&Buffer::from_host(device, heads))?;
    let mut firsts = device.empty::<K>(starts.len())?;
    let mut lengths = device.empty::<u32>(starts.len())?;
    if let (Some(starts), Some(firsts), Some(lengths)) =
        (starts.host(), firsts.host_mut(), lengths.host_mut())
    {
        let ends = starts.iter().skip(1).copied().chain([words.len() as u32]);
        for ((length, end), start) in lengths.iter_mut().zip(ends).zip(starts) {
            *length = end - start;
        }
        for (first, start) in firsts.iter_mut().zip(starts) {
            let raw = stored(Ieee::PLAIN, words[*start as usize], float);
            *first = bytemuck::cast(raw);
        }
    }
    Ok(Runs {
        keys: firsts,
        starts,
        lengths,
    })
}
