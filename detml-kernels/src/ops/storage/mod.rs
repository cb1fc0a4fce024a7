//! Numbers in narrower formats, packed into words: bf16 and f16 two to a word, 8-bit integers with
//! a power-of-two scale a row four to a word (`N13`, see [`convert`](crate::convert)).
//!
//! The first element is in the low bits. Decoding is exact; encoding rounds to nearest, ties to
//! even.
//!
//! ```
//! use detml_kernels::Device;
//! use detml_kernels::ops::storage::{Half, decode, encode};
//!
//! let device = Device::cpu();
//! let x = device.upload(&[1.0f32, -2.0, 0.333])?;
//! let packed = encode(Half::Bf16, &x)?;
//! assert_eq!(device.read(&packed)?, [0xc000_3f80, 0x0000_3eaa]);
//! assert_eq!(device.read(&decode(Half::Bf16, &packed, 3)?)?, [1.0, -2.0, 0.33203125]);
//! # Ok::<(), detml_core::Error>(())
//! ```

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use crate::convert;
use crate::device::{Buffer, Kernel};
use crate::ieee::FloatProfile;
use crate::ops::reduce::{self, Axis};
use crate::ops::{elementwise, same_device};
use cubecl::prelude::*;
use detml_core::{Error, Result};

/// A 16-bit format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// The upper half of a binary32.
    Bf16,
    /// IEEE-754 binary16.
    F16,
}

#[cube]
#[inline(always)]
fn encode_half(x: f32, #[comptime] half: Half) -> u32 {
    if comptime!(half == Half::Bf16) {
        convert::f32_to_bf16(x)
    } else {
        convert::f32_to_f16(x)
    }
}

#[cube]
#[inline(always)]
fn decode_half(x: u32, #[comptime] half: Half) -> f32 {
    if comptime!(half == Half::Bf16) {
        convert::bf16_to_f32(x)
    } else {
        convert::f16_to_f32(x)
    }
}

/// The elements of `x` in `half`, two to a word. The upper half of a last odd word is 0.
///
/// # Errors
/// Those of the device.
pub fn encode(half: Half, x: &Buffer<f32>) -> Result<Buffer<u32>> {
    let device = x.device();
    let mut out = device.empty(x.len().div_ceil(2))?;
    if let (Some(simd), Some(x), Some(out)) = (device.simd(), x.host(), out.host_mut()) {
        cpu::encode(simd, half, x, out);
    } else {
        gpu::encode(half, x, &mut out)?;
    }
    Ok(out)
}

/// The `len` numbers that `words` hold in `half`.
///
/// # Errors
/// `Shape` if there are not that many, those of the device.
pub fn decode(half: Half, words: &Buffer<u32>, len: usize) -> Result<Buffer<f32>> {
    if words.len() != len.div_ceil(2) {
        return Err(Error::shape(
            "decode",
            format!("{} words for {len} numbers", len.div_ceil(2)),
            words.len(),
        ));
    }
    let device = words.device();
    let mut out = device.empty(len)?;
    if let (Some(simd), Some(words), Some(out)) = (device.simd(), words.host(), out.host_mut()) {
        cpu::decode(simd, half, words, out);
    } else {
        gpu::decode(half, words, &mut out)?;
    }
    Ok(out)
}

/// A matrix of 8-bit integers with a scale a row.
#[derive(Debug)]
pub struct Int8 {
    /// Codes, -127 to 127, four to a word, each row from a new word on.
    pub codes: Buffer<u32>,
    /// A number is its code times `2^exponents[row]`.
    pub exponents: Buffer<i32>,
    /// Rows and columns.
    pub shape: [usize; 2],
}

/// The rows of `x`, a matrix of `shape`, each with the least scale that its finite magnitudes fit.
/// NaN becomes 0, infinities saturate.
///
/// # Errors
/// `Shape` if `x` is not of the shape, those of the device.
pub fn encode_int8(x: &Buffer<f32>, shape: [usize; 2]) -> Result<Int8> {
    let largest = reduce::largest_finite(x, Axis::EachRow, shape)?;
    let exponents = elementwise::int8_exponent(&largest)?;
    let [rows, columns] = shape;
    let device = x.device();
    let mut codes = device.empty(rows * columns.div_ceil(4))?;
    if let (Some(simd), Some(x), Some(exponents), Some(codes)) =
        (device.simd(), x.host(), exponents.host(), codes.host_mut())
    {
        cpu::encode_int8(simd, x, columns, exponents, codes);
    } else {
        gpu::encode_int8(x, columns, &exponents, &mut codes)?;
    }
    Ok(Int8 {
        codes,
        exponents,
        shape,
    })
}

/// The numbers that the codes stand for.
///
/// # Errors
/// `Shape` if codes or exponents are not of the shape, `InvalidParameter` if they are on different
/// devices, those of the device.
pub fn decode_int8(x: &Int8) -> Result<Buffer<f32>> {
    let [rows, columns] = x.shape;
    let words = rows.checked_mul(columns.div_ceil(4));
    let len = rows.checked_mul(columns);
    let (Some(len), true, true) = (len, words == Some(x.codes.len()), x.exponents.len() == rows)
    else {
        return Err(Error::shape(
            "decode_int8",
            format!("codes and exponents of {rows} x {columns}"),
            format!(
                "{} words and {} exponents",
                x.codes.len(),
                x.exponents.len()
            ),
        ));
    };
    let device = x.codes.device();
    same_device(device, x.exponents.device())?;
    let mut out = device.empty(len)?;
    if let (Some(simd), Some(codes), Some(exponents), Some(out)) = (
        device.simd(),
        x.codes.host(),
        x.exponents.host(),
        out.host_mut(),
    ) {
        cpu::decode_int8(simd, codes, columns, exponents, out);
    } else {
        gpu::decode_int8(&x.codes, columns, &x.exponents, &mut out)?;
    }
    Ok(out)
}

/// A representative of each variant of this module's kernels.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    gpu::kernels(profile)
}
