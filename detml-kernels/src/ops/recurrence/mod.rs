//! Linear recurrences over time, forward and backward.
//!
//! # Order
//! With `h[-1]` the initial state (+0 if none is given), for ascending t
//! - `h[t] = fma(a[t], h[t - 1], b[t])`,
//!
//! for each member of the batch and each channel by itself (`N7`). Backward, with `r` the gradient
//! of the last state (+0 if none is given), for descending t
//! - `g[t] = r + dh[t]`, the gradient of `b[t]`;
//! - `da[t] = g[t] * h[t - 1]`;
//! - `r = a[t] * g[t]`, in the end the gradient of the initial state,
//!
//! each rounded: so a recurrence over a whole sequence and one over its parts, each begun with the
//! state (backward: the gradient) that the other left, have the same bits, step by step too. The
//! price is that time is not split: there are as many independent chains as members and channels.
//! A NaN is stored as 0x7fc00000 (`N11`).

mod cpu;
mod gpu;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;

use crate::device::{Buffer, Device};
use crate::ops::same_device;
use crate::ops::tile::check_len;
use detml_core::{Error, Result};

pub(crate) use cpu::{Shared, for_parts};
pub(crate) use gpu::kernels;

/// The result of [`linear`].
#[derive(Debug)]
pub struct Recurrence {
    /// Every state, `[batch, time, channels]`.
    pub states: Buffer<f32>,
    /// The last ones, `[batch, channels]`.
    pub last: Buffer<f32>,
}

/// The result of [`linear_backward`].
#[derive(Debug)]
pub struct RecurrenceGradients {
    /// Of the factors, `[batch, time, channels]`.
    pub a: Buffer<f32>,
    /// Of the summands, `[batch, time, channels]`.
    pub b: Buffer<f32>,
    /// Of the initial state, `[batch, channels]`.
    pub initial: Buffer<f32>,
}

/// Every state of `h[t] = a[t] * h[t - 1] + b[t]` in [the stated order](self#order). `a` and `b`
/// have the shape `[batch, time, channels]`, `initial` `[batch, channels]`.
///
/// ```
/// use detml_kernels::{Device, ops::recurrence::linear};
///
/// let device = Device::cpu();
/// let (a, b) = (device.upload(&[0.5f32; 3])?, device.upload(&[1.0f32; 3])?);
/// let h = linear(&a, &b, None, [1, 3, 1])?;
/// assert_eq!(device.read(&h.states)?, [1.0, 1.5, 1.75]);
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// `Shape` if a buffer has not that shape or more than 2^31 elements; `InvalidParameter` if they
/// are on different devices; what the device reports.
pub fn linear(
    a: &Buffer<f32>,
    b: &Buffer<f32>,
    initial: Option<&Buffer<f32>>,
    shape: [usize; 3],
) -> Result<Recurrence> {
    linear_by(a, b, initial, shape, None)
}

/// How a GPU takes chains through time, to force in tests (`N8`).
type Way = Option<gpu::Way>;

fn linear_by(
    a: &Buffer<f32>,
    b: &Buffer<f32>,
    initial: Option<&Buffer<f32>>,
    shape: [usize; 3],
    way: Way,
) -> Result<Recurrence> {
    let op = "linear recurrence";
    let [batch, time, channels] = shape;
    check(op, shape, &[Some(a), Some(b)], &[initial])?;
    let device = a.device();
    let mut states = device.empty::<f32>(a.len())?;
    let mut last = device.empty::<f32>(batch * channels)?;
    if last.is_empty() {
        return Ok(Recurrence { states, last });
    }
    if let (Some(simd), Some(a), Some(b), Some(states), Some(last)) = (
        device.simd(),
        a.host(),
        b.host(),
        states.host_mut(),
        last.host_mut(),
    ) {
        let initial = initial.and_then(Buffer::host);
        cpu::forward(simd, [time, channels], a, b, initial, states, last);
    } else {
        gpu::forward(a, b, initial, shape, (&mut states, &mut last), way)?;
    }
    Ok(Recurrence { states, last })
}

/// The gradients of [`linear`], given those of every state, `[batch, time, channels]`, and, beyond
/// these, of the last ones, `[batch, channels]`.
///
/// # Errors
/// As [`linear`].
pub fn linear_backward(
    a: &Buffer<f32>,
    states: &Buffer<f32>,
    initial: Option<&Buffer<f32>>,
    gradient: &Buffer<f32>,
    gradient_last: Option<&Buffer<f32>>,
    shape: [usize; 3],
) -> Result<RecurrenceGradients> {
    backward_by(a, states, initial, gradient, gradient_last, shape, None)
}

fn backward_by(
    a: &Buffer<f32>,
    states: &Buffer<f32>,
    initial: Option<&Buffer<f32>>,
    gradient: &Buffer<f32>,
    gradient_last: Option<&Buffer<f32>>,
    shape: [usize; 3],
    way: Way,
) -> Result<RecurrenceGradients> {
    let op = "linear recurrence, backward";
    let [batch, time, channels] = shape;
    let full = [Some(a), Some(states), Some(gradient)];
    check(op, shape, &full, &[initial, gradient_last])?;
    let device = a.device();
    let mut out = RecurrenceGradients {
        a: device.empty(a.len())?,
        b: device.empty(a.len())?,
        initial: device.empty(batch * channels)?,
    };
    if out.initial.is_empty() {
        return Ok(out);
    }
    let inputs = Inputs {
        a,
        states,
        initial,
        gradient,
        gradient_last,
    };
    match device.simd() {
        Some(simd) => cpu::backward(simd, [time, channels], &inputs, &mut out),
        None => gpu::backward(&inputs, shape, &mut out, way)?,
    }
    Ok(out)
}

/// What the backward recurrence reads.
struct Inputs<'a> {
    a: &'a Buffer<f32>,
    states: &'a Buffer<f32>,
    initial: Option<&'a Buffer<f32>>,
    gradient: &'a Buffer<f32>,
    gradient_last: Option<&'a Buffer<f32>>,
}

fn check(
    op: &str,
    [batch, time, channels]: [usize; 3],
    full: &[Option<&Buffer<f32>>],
    step: &[Option<&Buffer<f32>>],
) -> Result<()> {
    let device: Option<&Device> = full.iter().flatten().next().map(|x| x.device());
    let sizes = [vec![batch, time, channels], vec![batch, channels]];
    for (buffers, size) in [full, step].into_iter().zip(sizes) {
        for x in buffers.iter().flatten() {
            shape_is(op, x.len(), &size)?;
            device.map_or(Ok(()), |device| same_device(device, x.device()))?;
        }
    }
    // The states are there without a step, too.
    let states = batch.saturating_mul(channels);
    check_len(op, states)
}

/// Refuses buffers whose elements are not those of a shape.
pub(crate) fn shape_is(op: &str, len: usize, shape: &[usize]) -> Result<()> {
    let product = shape
        .iter()
        .try_fold(1usize, |product, n| product.checked_mul(*n));
    if product == Some(len) {
        check_len(op, len)
    } else {
        Err(Error::shape(op, format_args!("{shape:?} elements"), len))
    }
}
