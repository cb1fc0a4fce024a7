//! Maps and zips: one number at a time, no order to choose.
//!
//! Element `(r, c)` of the result is the function of the operands' elements `(r, c)`. Functions
//! follow IEEE-754 and the module [`math`](crate::math); a NaN result is the canonical one
//! (`N11`). An empty shape gives an empty result.
//!
//! An [`Operand`] is a buffer of the result's shape, one number for all, a row or a column that
//! is repeated, or any strided view, stride 0 included.
//!
//! ```
//! use detml_kernels::Device;
//! use detml_kernels::ops::elementwise::{Binary, Operand, Unary, map, zip, zip_matrix};
//!
//! let device = Device::cpu();
//! let x = device.upload(&[1.0f32, 4.0, 9.0, 16.0])?;
//! assert_eq!(device.read(&map(Unary::Sqrt, &x)?)?, [1.0, 2.0, 3.0, 4.0]);
//! assert_eq!(device.read(&zip(Binary::Sub, &x, 1.0)?)?, [0.0, 3.0, 8.0, 15.0]);
//!
//! let bias = device.upload(&[10.0f32, 20.0])?;
//! let y = zip_matrix(Binary::Add, [2, 2], &x, Operand::row(&bias))?;
//! assert_eq!(device.read(&y)?, [11.0, 24.0, 19.0, 36.0]);
//! # Ok::<(), detml_core::Error>(())
//! ```

mod basic;
mod cpu;
mod gpu;
#[cfg(test)]
mod plain;
mod table;
#[cfg(test)]
mod tests;

use crate::device::{Buffer, Device, Element, Kernel};
use crate::ieee::FloatProfile;
use crate::math;
use crate::ops::{AnyBuffer, same_device};
use detml_core::{Error, Result};
use table::Op;

pub use table::{Binary, Comparison, Ternary, Unary};

/// What a function is applied to: a buffer, or one number for all elements.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a, T: Element = f32>(View<'a, T>);

#[derive(Clone, Copy, Debug)]
enum View<'a, T: Element> {
    Scalar(T),
    Full(&'a Buffer<T>),
    /// A row is repeated down the rows.
    Row(&'a Buffer<T>),
    /// A column is repeated along the columns.
    Column(&'a Buffer<T>),
    Strided {
        buffer: &'a Buffer<T>,
        offset: usize,
        row_stride: usize,
        column_stride: usize,
    },
}

impl<'a, T: Element> Operand<'a, T> {
    /// One element a column, the same in every row.
    pub fn row(buffer: &'a Buffer<T>) -> Self {
        Self(View::Row(buffer))
    }

    /// One element a row, the same in every column.
    pub fn column(buffer: &'a Buffer<T>) -> Self {
        Self(View::Column(buffer))
    }

    /// Element `(r, c)` is `buffer[offset + r * row_stride + c * column_stride]`: a transposed
    /// matrix, a slice, a repeated row (stride 0).
    pub fn strided(
        buffer: &'a Buffer<T>,
        offset: usize,
        row_stride: usize,
        column_stride: usize,
    ) -> Self {
        Self(View::Strided {
            buffer,
            offset,
            row_stride,
            column_stride,
        })
    }

    fn buffer(&self) -> Option<&'a Buffer<T>> {
        match self.0 {
            View::Scalar(_) => None,
            View::Full(buffer)
            | View::Row(buffer)
            | View::Column(buffer)
            | View::Strided { buffer, .. } => Some(buffer),
        }
    }

    /// The operand in a result of `shape`, if it fits.
    fn place(&self, name: &str, shape: [usize; 2]) -> Result<Place<'a>> {
        let [rows, columns] = shape;
        let exact = |buffer: &'a Buffer<T>, len: usize| -> Result<()> {
            if buffer.len() == len {
                Ok(())
            } else {
                Err(Error::shape(
                    name,
                    format!("{len} elements for a result of {rows} x {columns}"),
                    buffer.len(),
                ))
            }
        };
        let strided = |buffer, offset, row_stride, column_stride| Place::Strided {
            buffer,
            offset,
            row_stride,
            column_stride,
        };
        match self.0 {
            View::Scalar(value) => Ok(Place::Scalar(bytemuck::cast(value))),
            View::Full(buffer) => {
                exact(buffer, rows * columns)?;
                Ok(Place::Full(buffer))
            }
            View::Row(buffer) => {
                exact(buffer, columns)?;
                Ok(strided(buffer, 0, 0, 1))
            }
            View::Column(buffer) => {
                exact(buffer, rows)?;
                Ok(strided(buffer, 0, 1, 0))
            }
            View::Strided {
                buffer,
                offset,
                row_stride,
                column_stride,
            } => {
                let last = || {
                    let r = rows.checked_sub(1)?.checked_mul(row_stride)?;
                    let c = columns.checked_sub(1)?.checked_mul(column_stride)?;
                    offset.checked_add(r)?.checked_add(c)
                };
                let empty = rows == 0 || columns == 0;
                if !empty && last().is_none_or(|last| last >= buffer.len()) {
                    return Err(Error::shape(
                        name,
                        format!(
                            "a buffer that holds element {offset} + {row_stride} * r + \
                             {column_stride} * c for {rows} x {columns}"
                        ),
                        format!("{} elements", buffer.len()),
                    ));
                }
                Ok(strided(buffer, offset, row_stride, column_stride))
            }
        }
    }
}

impl<'a, T: Element> From<&'a Buffer<T>> for Operand<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        Self(View::Full(buffer))
    }
}

impl<T: Element> From<T> for Operand<'_, T> {
    fn from(value: T) -> Self {
        Self(View::Scalar(value))
    }
}

/// An operand that fits its result, of whatever type.
#[derive(Clone, Copy)]
enum Place<'a> {
    Scalar(u32),
    Full(&'a dyn AnyBuffer),
    Own,
    Strided {
        buffer: &'a dyn AnyBuffer,
        offset: usize,
        row_stride: usize,
        column_stride: usize,
    },
}

fn run(op: Op, shape: [usize; 2], operands: &[Place<'_>], out: &mut dyn AnyBuffer) -> Result<()> {
    if out.size() == 0 {
        return Ok(());
    }
    let device = out.on().clone();
    for place in operands {
        if let Place::Full(buffer) | Place::Strided { buffer, .. } = place {
            same_device(&device, buffer.on())?;
        }
    }
    match (device.simd(), out.words_mut()) {
        (Some(simd), Some(out)) => cpu::run(simd, op, shape, operands, out),
        _ => gpu::run(&device, op, shape, operands, out)?,
    }
    Ok(())
}

fn count(shape: [usize; 2]) -> Result<usize> {
    shape[0].checked_mul(shape[1]).ok_or_else(|| {
        Error::shape(
            "elementwise",
            "a shape of countable elements",
            format!("{} x {}", shape[0], shape[1]),
        )
    })
}

fn check_out(out: &dyn AnyBuffer, len: usize) -> Result<()> {
    if out.size() == len {
        Ok(())
    } else {
        Err(Error::shape("out", format!("{len} elements"), out.size()))
    }
}

fn no_buffer(what: &str) -> Error {
    Error::parameter(
        what,
        "at least one operand that is a buffer",
        "numbers only",
    )
}

/// `op` of each element.
///
/// # Errors
/// Those of the device.
pub fn map(op: Unary, x: &Buffer<f32>) -> Result<Buffer<f32>> {
    let mut out = x.device().unwritten(x.len())?;
    map_into(op, x, &mut out)?;
    Ok(out)
}

/// [`map`] into a buffer of the same length.
///
/// # Errors
/// `Shape` if the lengths differ, `InvalidParameter` if the devices do, those of the device.
pub fn map_into(op: Unary, x: &Buffer<f32>, out: &mut Buffer<f32>) -> Result<()> {
    check_out(out, x.len())?;
    run(op.into(), [1, x.len()], &[Place::Full(x)], out)
}

/// [`map`] in place.
///
/// # Errors
/// Those of the device.
pub fn map_assign(op: Unary, x: &mut Buffer<f32>) -> Result<()> {
    run(op.into(), [1, x.len()], &[Place::Own], x)
}

/// `op` of the elements of `a` and `b`, two buffers of one length or a buffer and a number.
///
/// # Errors
/// `Shape` if the lengths differ, `InvalidParameter` if neither is a buffer or they are on
/// different devices, those of the device.
pub fn zip<'a>(
    op: Binary,
    a: impl Into<Operand<'a>>,
    b: impl Into<Operand<'a>>,
) -> Result<Buffer<f32>> {
    let (a, b) = (a.into(), b.into());
    let len = a.buffer().or(b.buffer()).map_or(0, Buffer::len);
    zip_matrix(op, [1, len], a, b)
}

/// `op` of the elements `(r, c)` of `a` and `b` for a result of `shape` (rows, columns).
///
/// # Errors
/// `Shape` if an operand does not fit, `InvalidParameter` if neither is a buffer or they are on
/// different devices, those of the device.
pub fn zip_matrix<'a>(
    op: Binary,
    shape: [usize; 2],
    a: impl Into<Operand<'a>>,
    b: impl Into<Operand<'a>>,
) -> Result<Buffer<f32>> {
    let (a, b) = (a.into(), b.into());
    let device = device_of("zip", [a.buffer(), b.buffer()])?;
    let mut out = device.unwritten(count(shape)?)?;
    zip_into(op, shape, a, b, &mut out)?;
    Ok(out)
}

/// Each element to the power `n`, see [`math::powi()`].
///
/// # Errors
/// Those of the device.
pub fn powi(x: &Buffer<f32>, n: i32) -> Result<Buffer<f32>> {
    let mut out = x.device().unwritten(x.len())?;
    let places = [Place::Full(x), Place::Scalar(n as u32)];
    run(
        Op::Power(table::Power::Powi),
        [1, x.len()],
        &places,
        &mut out,
    )?;
    Ok(out)
}

/// [`zip_matrix`] into a buffer.
///
/// # Errors
/// As [`zip_matrix`]; `Shape` if `out` is not of the shape.
pub fn zip_into<'a>(
    op: Binary,
    shape: [usize; 2],
    a: impl Into<Operand<'a>>,
    b: impl Into<Operand<'a>>,
    out: &mut Buffer<f32>,
) -> Result<()> {
    check_out(out, count(shape)?)?;
    let places = [a.into().place("a", shape)?, b.into().place("b", shape)?];
    run(op.into(), shape, &places, out)
}

/// `a = op(a, b)`, `a` a matrix of `shape`.
///
/// # Errors
/// `Shape` if an operand does not fit, `InvalidParameter` if they are on different devices, those
/// of the device.
pub fn zip_assign<'a>(
    op: Binary,
    shape: [usize; 2],
    a: &mut Buffer<f32>,
    b: impl Into<Operand<'a>>,
) -> Result<()> {
    check_out(a, count(shape)?)?;
    let places = [Place::Own, b.into().place("b", shape)?];
    run(op.into(), shape, &places, a)
}

/// 1 where `op` holds for the elements `(r, c)` of `a` and `b`, else 0.
///
/// # Errors
/// As [`zip_matrix`].
pub fn compare<'a>(
    op: Comparison,
    shape: [usize; 2],
    a: impl Into<Operand<'a>>,
    b: impl Into<Operand<'a>>,
) -> Result<Buffer<u32>> {
    let (a, b) = (a.into(), b.into());
    let device = device_of("compare", [a.buffer(), b.buffer()])?;
    let mut out = device.unwritten(count(shape)?)?;
    let places = [a.place("a", shape)?, b.place("b", shape)?];
    run(op.into(), shape, &places, &mut out)?;
    Ok(out)
}

/// `op` of the elements `(r, c)` of three operands for a result of `shape`.
///
/// # Errors
/// As [`zip_matrix`].
pub fn zip3<'a>(
    op: Ternary,
    shape: [usize; 2],
    a: impl Into<Operand<'a>>,
    b: impl Into<Operand<'a>>,
    c: impl Into<Operand<'a>>,
) -> Result<Buffer<f32>> {
    let (a, b, c) = (a.into(), b.into(), c.into());
    let device = device_of("zip3", [a.buffer(), b.buffer(), c.buffer()])?;
    let mut out = device.unwritten(count(shape)?)?;
    let places = [
        a.place("a", shape)?,
        b.place("b", shape)?,
        c.place("c", shape)?,
    ];
    run(op.into(), shape, &places, &mut out)?;
    Ok(out)
}

/// `a = op(a, b, c)`, `a` a matrix of `shape`: `Fma` is an update `a * b + c`.
///
/// # Errors
/// As [`zip_assign`].
pub fn zip3_assign<'a>(
    op: Ternary,
    shape: [usize; 2],
    a: &mut Buffer<f32>,
    b: impl Into<Operand<'a>>,
    c: impl Into<Operand<'a>>,
) -> Result<()> {
    check_out(a, count(shape)?)?;
    let places = [
        Place::Own,
        b.into().place("b", shape)?,
        c.into().place("c", shape)?,
    ];
    run(op.into(), shape, &places, a)
}

/// The element of `a` where `mask` is not 0, else that of `b`; its bits stay, also a NaN's.
///
/// # Errors
/// As [`zip_matrix`].
pub fn select<'a, T: Element>(
    shape: [usize; 2],
    mask: impl Into<Operand<'a, u32>>,
    a: impl Into<Operand<'a, T>>,
    b: impl Into<Operand<'a, T>>,
) -> Result<Buffer<T>> {
    let (mask, a, b) = (mask.into(), a.into(), b.into());
    let device = match mask.buffer() {
        Some(mask) => mask.device(),
        None => device_of("select", [a.buffer(), b.buffer()])?,
    };
    let mut out = device.unwritten(count(shape)?)?;
    let places = [
        mask.place("mask", shape)?,
        a.place("a", shape)?,
        b.place("b", shape)?,
    ];
    run(Op::Choice(table::Choice::Select), shape, &places, &mut out)?;
    Ok(out)
}

/// The operand written out: a matrix of `shape`, row after row. Bits stay, also a NaN's.
///
/// # Errors
/// As [`zip_matrix`].
pub fn materialize<T: Element>(shape: [usize; 2], x: Operand<'_, T>) -> Result<Buffer<T>> {
    let device = device_of("materialize", [x.buffer()])?;
    let mut out = device.unwritten(count(shape)?)?;
    let places = [x.place("x", shape)?];
    run(Op::Word(table::Word::Copy), shape, &places, &mut out)?;
    Ok(out)
}

/// `len` elements of one value.
///
/// # Errors
/// Those of the device.
pub fn fill<T: Element>(device: &Device, len: usize, value: T) -> Result<Buffer<T>> {
    let mut out = device.unwritten(len)?;
    fill_assign(&mut out, value)?;
    Ok(out)
}

/// Every element becomes `value`.
///
/// # Errors
/// Those of the device.
pub fn fill_assign<T: Element>(x: &mut Buffer<T>, value: T) -> Result<()> {
    let op = Op::Word(table::Word::Copy);
    run(op, [1, x.len()], &[Place::Scalar(bytemuck::cast(value))], x)
}

/// `first`, `first + step`, `first + 2 * step`, ... modulo 2^32.
///
/// # Errors
/// Those of the device.
pub fn iota(device: &Device, len: usize, first: u32, step: u32) -> Result<Buffer<u32>> {
    let mut out = device.unwritten(len)?;
    if let Some(out) = out.host_mut() {
        cpu::iota(out, first, step);
    } else if len > 0 {
        gpu::iota(&mut out, first, step)?;
    }
    Ok(out)
}

/// The number nearest to each element, ties to even.
///
/// # Errors
/// Those of the device.
pub fn u32_to_f32(x: &Buffer<u32>) -> Result<Buffer<f32>> {
    convert(table::Cast::U32ToF32, x)
}

/// The number nearest to each element, ties to even.
///
/// # Errors
/// Those of the device.
pub fn i32_to_f32(x: &Buffer<i32>) -> Result<Buffer<f32>> {
    convert(table::Cast::I32ToF32, x)
}

/// Each element without its fraction, saturating at 0 and `u32::MAX`; 0 for a NaN.
///
/// # Errors
/// Those of the device.
pub fn f32_to_u32(x: &Buffer<f32>) -> Result<Buffer<u32>> {
    convert(table::Cast::F32ToU32, x)
}

/// Each element without its fraction, saturating at `i32::MIN` and `i32::MAX`; 0 for a NaN.
///
/// # Errors
/// Those of the device.
pub fn f32_to_i32(x: &Buffer<f32>) -> Result<Buffer<i32>> {
    convert(table::Cast::F32ToI32, x)
}

/// [`convert::int8_exponent`](crate::convert::int8_exponent) of each element.
pub(crate) fn int8_exponent(x: &Buffer<f32>) -> Result<Buffer<i32>> {
    convert(table::Cast::Int8Exponent, x)
}

fn convert<A: Element, B: Element>(op: table::Cast, x: &Buffer<A>) -> Result<Buffer<B>> {
    let mut out = x.device().unwritten(x.len())?;
    run(op.into(), [1, x.len()], &[Place::Full(x)], &mut out)?;
    Ok(out)
}

fn device_of<'a, T: Element, const N: usize>(
    what: &str,
    buffers: [Option<&'a Buffer<T>>; N],
) -> Result<&'a Device> {
    buffers
        .into_iter()
        .flatten()
        .next()
        .map(Buffer::device)
        .ok_or_else(|| no_buffer(what))
}

/// A representative of each variant of this module's kernels.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    gpu::kernels(profile)
}
