//! The selective scan of state space models (Mamba: Gu and Dao, 2023), forward and backward.
//!
//! Shapes: `u`, `delta`, `z` and the output are `[batch, time, channels]`, `a` is
//! `[channels, states]`, `b` and `c` are `[batch, time, states]`, `d` and `bias` `[channels]`,
//! states `[batch, channels, states]`.
//!
//! # Order
//! For each member of the batch and each channel, with `h` the initial states (+0 if none are
//! given), for ascending t, every operation rounded:
//! - `x = delta + bias` (`delta` without a bias), `dt = softplus(x)` (`x` without softplus),
//!   `v = dt * u`;
//! - for each state n `h[n] = fma(exp(dt * a[n]), h[n], v * b[n])`;
//! - `y`: states go in fours, each a chain `s = fma(c[n], h[n], s)` over ascending n from +0, the
//!   fours' sums added in ascending order beginning with the first one's; then `fma(d, u, y)` if
//!   there is a `d`;
//! - the output `y`, or `y * silu(z)` if there is a `z`.
//!
//! Backward, with `r` the gradients of the last states (+0 if none are given) and `o` that of the
//! output, for descending t:
//! - `dy = o * silu(z)` (`o` without `z`), and
//!   `dz = (o * y) * (s * fma(z, 1 - s, 1))` with `s = sigmoid(z)`;
//! - for each state `g = fma(dy, c, r)`, `r = exp(dt * a) * g`, `w = r * h` with `h` from before
//!   the step;
//! - `e`, the sum over the states of `w * a`, and `f`, that of `g * b`, both in the shape of `y`;
//! - `du = dt * f`, then `fma(d, dy, du)` if there is a `d`;
//! - `dx = fma(u, f, e)`, times `sigmoid(x)` with softplus: the gradient of `delta`.
//!
//! Over channels, the gradients of `b` and `c` sum `fma(g, v, s)` and `fma(dy, h, s)`: panels of 32
//! channels, each one chain over ascending channels from +0, folded in ascending order. Over time,
//! those of `a`, `d` and `bias` sum `fma(w, dt, s)`, `fma(dy, u, s)` and `s + dx`: panels of 64
//! steps, counted from the start, each one chain over descending time from +0, folded in descending
//! order beginning with the last one's; then over the members in ascending order (`N5`).
//!
//! Steps from a member's length on, where lengths are given, do not exist: they change no state,
//! their outputs and gradients are +0 whatever lies there. A NaN is stored as 0x7fc00000 (`N11`).
//!
//! Time is not split, so a sequence in parts, or step by step, has the bits of the whole (`N7`):
//! each part begins with the last states of the one before.

mod cpu;
mod gpu;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;

use super::recurrence::shape_is;
use crate::device::{Buffer, Device};
use crate::ieee::Ieee;
use crate::math::{sigmoid, softplus};
use crate::ops::same_device;
use cubecl::prelude::*;
use detml_core::{Error, Result};

pub(crate) use gpu::kernels;

/// Channels of a panel.
const CHANNELS: usize = 32;
/// Steps of a panel, and from a checkpoint to the next.
const STEPS: usize = 64;

/// Sizes of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Sequences.
    pub batch: usize,
    /// Steps.
    pub time: usize,
    /// Channels.
    pub channels: usize,
    /// States of a channel.
    pub states: usize,
}

/// What a scan reads; see [the shapes](self).
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    /// The sizes.
    pub shape: Shape,
    /// The input.
    pub u: &'a Buffer<f32>,
    /// The lengths of the steps, before bias and softplus.
    pub delta: &'a Buffer<f32>,
    /// The rates.
    pub a: &'a Buffer<f32>,
    /// How the input enters the states.
    pub b: &'a Buffer<f32>,
    /// How the states enter the output.
    pub c: &'a Buffer<f32>,
    /// What of the input goes to the output directly.
    pub d: Option<&'a Buffer<f32>>,
    /// The gate.
    pub z: Option<&'a Buffer<f32>>,
    /// Added to `delta`.
    pub bias: Option<&'a Buffer<f32>>,
    /// Whether the softplus of `delta` is taken.
    pub softplus: bool,
    /// The states before the first step.
    pub initial: Option<&'a Buffer<f32>>,
    /// Steps of each member, `[batch]`; more than there are count as all.
    pub lengths: Option<&'a Buffer<u32>>,
}

impl<'a> Scan<'a> {
    /// A scan without any option.
    pub fn new(
        shape: Shape,
        u: &'a Buffer<f32>,
        delta: &'a Buffer<f32>,
        a: &'a Buffer<f32>,
        b: &'a Buffer<f32>,
        c: &'a Buffer<f32>,
    ) -> Self {
        Self {
            shape,
            u,
            delta,
            a,
            b,
            c,
            d: None,
            z: None,
            bias: None,
            softplus: false,
            initial: None,
            lengths: None,
        }
    }

    fn has(&self) -> Has {
        Has {
            d: self.d.is_some(),
            z: self.z.is_some(),
            bias: self.bias.is_some(),
            softplus: self.softplus,
            initial: self.initial.is_some(),
            lengths: self.lengths.is_some(),
        }
    }

    fn check(&self, op: &str) -> Result<()> {
        let s = self.shape;
        let steps = [s.batch, s.time, s.channels];
        let inputs = [s.batch, s.time, s.states];
        let each = [s.channels];
        for (x, shape) in [
            (Some(self.u), &steps[..]),
            (Some(self.delta), &steps),
            (self.z, &steps),
            (Some(self.a), &[s.channels, s.states]),
            (Some(self.b), &inputs),
            (Some(self.c), &inputs),
            (self.d, &each),
            (self.bias, &each),
            (self.initial, &[s.batch, s.channels, s.states]),
        ] {
            if let Some(x) = x {
                shape_is(op, x.len(), shape)?;
                same_device(self.u.device(), x.device())?;
            }
        }
        if let Some(x) = self.lengths {
            shape_is(op, x.len(), &[s.batch])?;
            same_device(self.u.device(), x.device())?;
        }
        // The states, the checkpoints and the sums over panels are counted in 32 bits, too.
        let panels = s.channels.div_ceil(CHANNELS);
        for parts in [
            [s.batch, s.time.div_ceil(STEPS).max(8), s.channels, s.states],
            [s.batch, s.time, panels, s.states],
            [s.batch, s.channels.max(1), s.time.max(1), 1],
        ] {
            let count = parts.into_iter().fold(1usize, usize::saturating_mul);
            super::tile::check_len(op, count)?;
        }
        Ok(())
    }
}

/// Which options a scan has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Has {
    d: bool,
    z: bool,
    bias: bool,
    softplus: bool,
    initial: bool,
    lengths: bool,
}

/// The result of [`selective_scan`].
#[derive(Debug)]
pub struct Scanned {
    /// The output, `[batch, time, channels]`.
    pub y: Buffer<f32>,
    /// The last states, `[batch, channels, states]`.
    pub last: Buffer<f32>,
}

/// The states before every 64th step, from which [`selective_scan_backward`] computes the others
/// again: `states / 64` of the output's size.
#[derive(Debug)]
pub struct Checkpoints {
    /// `[batch, time / 64, states, channels]`
    states: Buffer<f32>,
    shape: Shape,
}

/// The result of [`selective_scan_backward`], each of the shape of what it is the gradient of.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct ScanGradients {
    pub u: Buffer<f32>,
    pub delta: Buffer<f32>,
    pub a: Buffer<f32>,
    pub b: Buffer<f32>,
    pub c: Buffer<f32>,
    pub d: Option<Buffer<f32>>,
    pub z: Option<Buffer<f32>>,
    pub bias: Option<Buffer<f32>>,
    /// Of the initial states, whether given or not.
    pub initial: Buffer<f32>,
}

/// A scan in [the stated order](self#order).
///
/// ```
/// use detml_kernels::{Device, ops::selective_scan::{Scan, Shape, selective_scan}};
///
/// let device = Device::cpu();
/// let shape = Shape { batch: 1, time: 3, channels: 1, states: 1 };
/// let one = device.upload(&[1.0f32; 3])?;
/// // Without decay the states sum up the input.
/// let a = device.upload(&[0.0f32])?;
/// let scanned = selective_scan(&Scan::new(shape, &one, &one, &a, &one, &one))?;
/// assert_eq!(device.read(&scanned.y)?, [1.0, 2.0, 3.0]);
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// `Shape` if a buffer has not its shape, or something has more than 2^31 elements;
/// `InvalidParameter` if buffers are on different devices; `Unsupported` on a GPU for more states
/// than its shared memory holds the sums of (64 at least forward, 32 backward); what the device
/// reports.
pub fn selective_scan(scan: &Scan<'_>) -> Result<Scanned> {
    Ok(run(scan, false, None)?.0)
}

/// [`selective_scan`], keeping what its gradients need.
///
/// # Errors
/// As [`selective_scan`].
pub fn selective_scan_saving(scan: &Scan<'_>) -> Result<(Scanned, Checkpoints)> {
    let (scanned, states) = run(scan, true, None)?;
    let checkpoints = Checkpoints {
        states,
        shape: scan.shape,
    };
    Ok((scanned, checkpoints))
}

fn run(scan: &Scan<'_>, save: bool, block: Option<u32>) -> Result<(Scanned, Buffer<f32>)> {
    scan.check("selective scan")?;
    let s = scan.shape;
    let device = scan.u.device();
    let kept = match save {
        true => s.batch * s.time.div_ceil(STEPS) * s.channels * s.states,
        false => 0,
    };
    let mut out = Scanned {
        y: device.empty(scan.u.len())?,
        last: device.empty(s.batch * s.channels * s.states)?,
    };
    let mut checkpoints = device.empty(kept)?;
    if s.batch * s.channels > 0 {
        match device.simd() {
            Some(simd) => cpu::forward(simd, scan, &mut out, save.then_some(&mut checkpoints)),
            None => gpu::forward(scan, &mut out, save.then_some(&mut checkpoints), block)?,
        }
    }
    Ok((out, checkpoints))
}

/// The gradients of everything that a scan reads, given that of its output and, beyond it, of the
/// last states, in [the stated order](self#order).
///
/// Besides the results it takes the sums of panels, `2 * states / 32` of the output's size, and 8
/// times the states.
///
/// # Errors
/// As [`selective_scan`], and `Shape` if the checkpoints are of a scan of another shape.
pub fn selective_scan_backward(
    scan: &Scan<'_>,
    checkpoints: &Checkpoints,
    gradient: &Buffer<f32>,
    gradient_last: Option<&Buffer<f32>>,
) -> Result<ScanGradients> {
    back(scan, checkpoints, gradient, gradient_last, None)
}

fn back(
    scan: &Scan<'_>,
    checkpoints: &Checkpoints,
    gradient: &Buffer<f32>,
    gradient_last: Option<&Buffer<f32>>,
    block: Option<u32>,
) -> Result<ScanGradients> {
    let op = "selective scan, backward";
    scan.check(op)?;
    let s = scan.shape;
    if checkpoints.shape != s {
        return Err(Error::shape(
            op,
            format_args!("checkpoints of {s:?}"),
            format_args!("those of {:?}", checkpoints.shape),
        ));
    }
    let device: &Device = scan.u.device();
    same_device(device, checkpoints.states.device())?;
    shape_is(op, gradient.len(), &[s.batch, s.time, s.channels])?;
    same_device(device, gradient.device())?;
    if let Some(last) = gradient_last {
        shape_is(op, last.len(), &[s.batch, s.channels, s.states])?;
        same_device(device, last.device())?;
    }
    let part = |has: bool, len: usize| match has {
        true => device.empty::<f32>(len).map(Some),
        false => Ok(None),
    };
    let mut out = ScanGradients {
        u: device.empty(scan.u.len())?,
        delta: device.empty(scan.u.len())?,
        a: device.empty(scan.a.len())?,
        b: device.empty(scan.b.len())?,
        c: device.empty(scan.c.len())?,
        d: part(scan.d.is_some(), s.channels)?,
        z: part(scan.z.is_some(), scan.u.len())?,
        bias: part(scan.bias.is_some(), s.channels)?,
        initial: device.empty(s.batch * s.channels * s.states)?,
    };
    let panels = s.channels.div_ceil(CHANNELS);
    let mut parts = Parts {
        a: device.empty(s.batch * s.channels * s.states)?,
        b: device.empty(panels * scan.b.len())?,
        c: device.empty(panels * scan.b.len())?,
        d: part(scan.d.is_some(), s.batch * s.channels)?,
        bias: part(scan.bias.is_some(), s.batch * s.channels)?,
    };
    if s.batch * s.channels > 0 {
        match device.simd() {
            Some(simd) => cpu::backward(
                simd,
                scan,
                &checkpoints.states,
                gradient,
                gradient_last,
                &mut out,
                &mut parts,
            ),
            None => gpu::backward(
                scan,
                &checkpoints.states,
                gradient,
                gradient_last,
                &mut out,
                &mut parts,
                block,
            )?,
        }
    }
    let mut folds = vec![
        (&parts.a, s.batch, &mut out.a),
        (&parts.b, panels, &mut out.b),
        (&parts.c, panels, &mut out.c),
    ];
    folds.extend(
        parts
            .d
            .as_ref()
            .zip(out.d.as_mut())
            .map(|(x, y)| (x, s.batch, y)),
    );
    folds.extend((parts.bias.as_ref().zip(out.bias.as_mut())).map(|(x, y)| (x, s.batch, y)));
    for (from, count, to) in folds {
        if to.is_empty() {
            continue;
        }
        match (from.host(), device.is_cpu()) {
            (Some(from), true) => {
                if let Some(to) = to.host_mut() {
                    cpu::fold(from, count, to);
                }
            }
            _ => gpu::fold(from, count, to)?,
        }
    }
    Ok(out)
}

/// The gradients that are sums, in parts that follow each other: a part for each member of the
/// batch, or for each panel of channels.
struct Parts {
    a: Buffer<f32>,
    b: Buffer<f32>,
    c: Buffer<f32>,
    d: Option<Buffer<f32>>,
    bias: Option<Buffer<f32>>,
}

/// The length of a step from `delta + bias`.
#[cube]
#[inline(always)]
fn step_length(ieee: &Ieee, x: f32, #[comptime] soft: bool) -> f32 {
    if comptime!(soft) {
        softplus(ieee, x)
    } else {
        x
    }
}

/// The gradient of `delta` from that of the step's length.
#[cube]
#[inline(always)]
fn length_slope(ieee: &Ieee, x: f32, gradient: f32, #[comptime] soft: bool) -> f32 {
    if comptime!(soft) {
        ieee.mul(gradient, sigmoid(ieee, x))
    } else {
        gradient
    }
}

/// The derivative of silu.
#[cube]
#[inline(always)]
fn gate_slope(ieee: &Ieee, z: f32) -> f32 {
    let s = sigmoid(ieee, z);
    ieee.mul(s, ieee.fma(z, ieee.sub(1.0f32, s), 1.0f32))
}
