//! Convolutions in two dimensions and their gradients.
//!
//! Images lie as `[image, channel, row, column]`, weights as
//! `[output channel, channel of the group, kernel row, kernel column]`, both without gaps. As in
//! other libraries the kernel is not turned round: with stride `s`, padding `p` and dilation `d`
//!
//! `y[n, f, i, j] = sum x[n, c, i * s + r * d - p, j * s + t * d - p] * w[f, c, r, t] (+ bias[f])`
//!
//! over the channels `c` of `f`'s group, kernel rows `r` and kernel columns `t`.
//!
//! # Order (`N6`)
//! Each element is one sum over k in the order of [products](super::gemm#order-n6): panels of
//! [`PANEL`] terms, in each one chain of fused multiply-adds from +0, the panels' sums added in
//! ascending order. k runs, last index fastest, over
//! - [`conv2d`]: (channel of the group, kernel row, kernel column);
//! - [`data_gradient`]: (output channel of the group, kernel row, kernel column), kernel rows and
//!   columns of the element's **residue class** alone: those `r` for which
//!   `i + p - r * d` divides by the stride, whether or not the output has that row;
//! - [`weight_gradient`]: (image, output row, output column).
//!
//! What lies outside the input, or outside the output for the data gradient, takes part as +0: an
//! infinite weight in the padding makes a NaN. A sum of nothing is +0. A bias is added to the
//! total, rounded. A NaN is stored as 0x7fc00000 (`N11`).
//!
//! No element depends on another image, on the number of images, or on another group (`N7`).
//!
//! # Memory
//! Besides the result: on a CPU up to 16 MiB of padded images at a time, or one image, and the
//! weights once more; for [`weight_gradient`] all images, padded, where there is padding or a
//! stride, and the result some times over. Groups of few channels keep a few planes a thread.
//! On a GPU the images, padded, where there is padding; four bytes for each place of an image or
//! term; and for [`weight_gradient`] up to 128 MiB of sums of panels.

mod cpu;
mod gpu;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;

use crate::device::{Buffer, Device, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::gemm::PANEL;
use crate::ops::same_device;
use crate::ops::tile::check_len;
use cubecl::prelude::*;
use detml_core::{Error, Result};

/// How a kernel is laid over an image: stride, padding, dilation and groups.
///
/// ```
/// use detml_kernels::{Device, ops::conv::{Conv2d, conv2d}};
///
/// let device = Device::cpu();
/// let x = device.upload(&[1.0, 2.0, 3.0, 4.0])?;
/// let w = device.upload(&[1.0, 10.0, 100.0, 1000.0])?;
/// // One image of one channel, 2 x 2; a row and a column of zeros above and to the left.
/// let conv = Conv2d::new().padding([[1, 0], [1, 0]]);
/// let y = conv2d(&conv, &x, [1, 1, 2, 2], &w, [1, 1, 2, 2], None)?;
/// assert_eq!(device.read(&y)?, [1000.0, 2100.0, 3010.0, 4321.0]);
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv2d {
    stride: [usize; 2],
    padding: [[usize; 2]; 2],
    dilation: [usize; 2],
    groups: usize,
}

impl Default for Conv2d {
    fn default() -> Self {
        Self::new()
    }
}

impl Conv2d {
    /// Stride 1, no padding, dilation 1, one group.
    pub const fn new() -> Self {
        Self {
            stride: [1; 2],
            padding: [[0; 2]; 2],
            dilation: [1; 2],
            groups: 1,
        }
    }

    /// Rows and columns from an output to the next, at least 1.
    pub const fn stride(mut self, stride: [usize; 2]) -> Self {
        self.stride = stride;
        self
    }

    /// Zeros above and below, to the left and to the right; may exceed the image.
    pub const fn padding(mut self, padding: [[usize; 2]; 2]) -> Self {
        self.padding = padding;
        self
    }

    /// Rows and columns from a weight to the next, at least 1.
    pub const fn dilation(mut self, dilation: [usize; 2]) -> Self {
        self.dilation = dilation;
        self
    }

    /// Groups into which channels are cut; outputs see the channels of their own group.
    pub const fn groups(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }

    /// The shape of the result for images of shape `x` and weights of shape `w`.
    ///
    /// # Errors
    /// `InvalidParameter` for a stride, dilation or number of groups of 0; `Shape` where channels
    /// don't divide into the groups or don't fit together, for an empty kernel, for a kernel that
    /// is larger than the padded image, and for more than 2^31 elements.
    pub fn output(&self, x: [usize; 4], w: [usize; 4]) -> Result<[usize; 4]> {
        self.shape(x, w).map(|shape| shape.y)
    }

    fn shape(&self, x: [usize; 4], w: [usize; 4]) -> Result<Shape> {
        for (name, n) in [
            ("stride", self.stride[0]),
            ("stride", self.stride[1]),
            ("dilation", self.dilation[0]),
            ("dilation", self.dilation[1]),
            ("groups", self.groups),
        ] {
            if n == 0 || n > 1 << 31 {
                return Err(Error::parameter(name, "1 to 2^31", n));
            }
        }
        let refuse = |expected: String, got: String| Err(Error::shape(OP, expected, got));
        if w[0] % self.groups != 0 {
            return refuse(
                format!("output channels in {} equal groups", self.groups),
                w[0].to_string(),
            );
        }
        if w[1].checked_mul(self.groups) != Some(x[1]) {
            return refuse(
                format!("{} channels in {} groups", x[1], self.groups),
                format!("weights for {} channels a group", w[1]),
            );
        }
        if w[2] == 0 || w[3] == 0 {
            return refuse(
                "a kernel of at least 1 x 1".into(),
                format!("{} x {}", w[2], w[3]),
            );
        }
        let mut y = [x[0], w[0], 0, 0];
        let mut padded = x;
        for axis in 0..2 {
            let [low, high] = self.padding[axis];
            let size = low
                .checked_add(high)
                .and_then(|p| p.checked_add(x[2 + axis]));
            let extent = (w[2 + axis] - 1)
                .checked_mul(self.dilation[axis])
                .and_then(|n| n.checked_add(1));
            let what = ["rows", "columns"][axis];
            let (Some(size), Some(extent)) = (size, extent) else {
                return refuse(format!("fewer than 2^64 {what}"), "more".into());
            };
            if extent > size {
                return refuse(
                    format!("a kernel of at most the {size} {what} of the padded image"),
                    extent.to_string(),
                );
            }
            padded[2 + axis] = size;
            y[2 + axis] = (size - extent) / self.stride[axis] + 1;
        }
        // Places fit 32 bits on every device alike.
        for shape in [padded, w, y] {
            check_len(OP, shape.into_iter().fold(1, usize::saturating_mul))?;
            for n in shape {
                check_len(OP, n)?;
            }
        }
        Ok(Shape {
            conv: *self,
            x,
            w,
            y,
        })
    }
}

const OP: &str = "conv2d";

/// A convolution whose shapes are known to agree.
#[derive(Clone, Copy, Debug)]
struct Shape {
    conv: Conv2d,
    x: [usize; 4],
    w: [usize; 4],
    y: [usize; 4],
}

/// One axis of a sum over taps: through tap `t` the output's place `q` sees the source's
/// element `first + q * scale + t * step`, +0 where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    /// Places, and elements of the source.
    len: usize,
    source: usize,
    first: isize,
    scale: usize,
    step: isize,
    taps: usize,
    /// Tap `t` is the kernel's `tap_first + t * tap_step`.
    tap_first: usize,
    tap_step: usize,
    /// Place `q` is the output's element `place_first + q * place_step`.
    place_first: usize,
    place_step: usize,
}

impl Axis {
    /// What lies before the source's first element and beyond its last one.
    fn outside(&self) -> [usize; 2] {
        if self.len == 0 || self.taps == 0 {
            return [0, 0];
        }
        let along = (self.taps - 1) as isize * self.step;
        let low = self.first + along.min(0);
        let high = self.first + ((self.len - 1) * self.scale) as isize + along.max(0);
        [
            (-low).max(0) as usize,
            (high + 1 - self.source as isize).max(0) as usize,
        ]
    }
}

/// Sums over the channels of a group and the taps of a kernel: a convolution, or the part of a
/// data gradient whose elements are of one residue class.
#[derive(Clone, Copy, Debug)]
struct Sums {
    images: usize,
    groups: usize,
    /// Channels of a group, of the output and of the source.
    rows: usize,
    channels: usize,
    axes: [Axis; 2],
    /// From one group, row, channel and kernel row of the weights to the next.
    group: usize,
    row: usize,
    channel: usize,
    kernel_row: usize,
    /// Rows and columns of the output.
    plane: [usize; 2],
    /// [`PANEL`], but for tests that show that it matters.
    panel: usize,
}

impl Sums {
    /// Terms of a sum.
    fn terms(&self) -> usize {
        self.channels * self.axes[0].taps * self.axes[1].taps
    }

    /// Places of a plane that the sums fill.
    fn places(&self) -> usize {
        self.axes[0].len * self.axes[1].len
    }
}

/// What all of `sums` see before and behind an axis of the source.
fn outside(sums: &[Sums], axis: usize) -> [usize; 2] {
    sums.iter().fold([0, 0], |[low, high], s| {
        let [l, h] = s.axes[axis].outside();
        [low.max(l), high.max(h)]
    })
}

impl Shape {
    /// The sums of the convolution itself.
    fn forward(&self, panel: usize) -> Sums {
        let axis = |i: usize| Axis {
            len: self.y[2 + i],
            source: self.x[2 + i],
            first: -(self.conv.padding[i][0] as isize),
            // A stride that leads nowhere must not take memory.
            scale: if self.y[2 + i] > 1 {
                self.conv.stride[i]
            } else {
                1
            },
            step: self.conv.dilation[i] as isize,
            taps: self.w[2 + i],
            tap_first: 0,
            tap_step: 1,
            place_first: 0,
            place_step: 1,
        };
        let kernel = self.w[2] * self.w[3];
        let rows = self.w[0] / self.conv.groups;
        Sums {
            images: self.x[0],
            groups: self.conv.groups,
            rows,
            channels: self.w[1],
            axes: [axis(0), axis(1)],
            group: rows * self.w[1] * kernel,
            row: self.w[1] * kernel,
            channel: kernel,
            kernel_row: self.w[3],
            plane: [self.y[2], self.y[3]],
            panel,
        }
    }

    /// The residue classes of an axis that have elements, see [the order](self#order-n6).
    fn classes(&self, i: usize) -> Vec<Axis> {
        let (stride, dilation) = (self.conv.stride[i], self.conv.dilation[i]);
        let (size, low) = (self.x[2 + i], self.conv.padding[i][0]);
        let common = gcd(stride, dilation);
        // Kernel elements that share a residue lie this far apart.
        let apart = stride / common;
        let mut classes = Vec::new();
        for first in 0..size.min(stride) {
            // Element `first + q * stride`.
            let residue = (first + low) % stride;
            let tap = (0..apart.min(self.w[2 + i])).find(|r| r * dilation % stride == residue);
            let offset = (first + low) as isize - (tap.unwrap_or(0) * dilation) as isize;
            classes.push(Axis {
                len: (size - first).div_ceil(stride),
                source: self.y[2 + i],
                first: offset.div_euclid(stride as isize),
                scale: 1,
                step: -((dilation / common) as isize),
                taps: tap.map_or(0, |r| (self.w[2 + i] - r).div_ceil(apart)),
                tap_first: tap.unwrap_or(0),
                tap_step: apart,
                place_first: first,
                place_step: stride,
            });
        }
        classes
    }

    /// The sums of the data gradient: their places are all of the input's elements.
    fn backward(&self, panel: usize) -> Vec<Sums> {
        let forward = self.forward(panel);
        let (rows, columns) = (self.classes(0), self.classes(1));
        let mut all = Vec::with_capacity(rows.len() * columns.len());
        for row in rows {
            for column in &columns {
                all.push(Sums {
                    rows: forward.channels,
                    channels: forward.rows,
                    row: forward.channel,
                    channel: forward.row,
                    axes: [row, *column],
                    plane: [self.x[2], self.x[3]],
                    ..forward
                });
            }
        }
        all
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The element stored for a sum.
#[cube]
#[inline(always)]
fn finish(ieee: Ieee, total: f32, bias: f32, #[comptime] added: bool) -> f32 {
    let mut x = total;
    if comptime!(added) {
        x = ieee.add(x, bias);
    }
    ieee.canonical(x)
}

/// How a convolution is computed; no choice shows in the bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Schedule {
    cpu: cpu::Plan,
    gpu: gpu::Plan,
}

/// The convolution of images `x` with weights `w`, and `bias[f]` added to output channel `f`;
/// see [the module](self).
///
/// # Errors
/// As [`Conv2d::output`]; `Shape` if a buffer is not of its shape; `InvalidParameter` if the
/// buffers are on different devices; what the device reports.
pub fn conv2d(
    conv: &Conv2d,
    x: &Buffer<f32>,
    x_shape: [usize; 4],
    w: &Buffer<f32>,
    w_shape: [usize; 4],
    bias: Option<&Buffer<f32>>,
) -> Result<Buffer<f32>> {
    let shape = conv.shape(x_shape, w_shape)?;
    check("x", x, x_shape)?;
    check("w", w, w_shape)?;
    if let Some(bias) = bias {
        check("the bias", bias, [1, w_shape[0], 1, 1])?;
        same_device(x.device(), bias.device())?;
    }
    same_device(x.device(), w.device())?;
    run_sums(
        &[shape.forward(PANEL)],
        x,
        w,
        bias,
        shape.y,
        Schedule::default(),
    )
}

/// The gradient of [`conv2d`] with respect to its images, of shape `x_shape`, from that with
/// respect to its result.
///
/// # Errors
/// As [`conv2d`], and `Shape` if the gradient with the padding that the kernel asks for has more
/// than 2^31 elements.
pub fn data_gradient(
    conv: &Conv2d,
    y: &Buffer<f32>,
    w: &Buffer<f32>,
    w_shape: [usize; 4],
    x_shape: [usize; 4],
) -> Result<Buffer<f32>> {
    let shape = conv.shape(x_shape, w_shape)?;
    check("the gradient", y, shape.y)?;
    check("w", w, w_shape)?;
    same_device(y.device(), w.device())?;
    let sums = shape.backward(PANEL);
    let sides = [0, 1].map(|i| {
        let [low, high] = outside(&sums, i);
        low.saturating_add(shape.y[2 + i]).saturating_add(high)
    });
    let padded = [shape.y[0], shape.y[1], sides[0], sides[1]];
    check_len(OP, padded.into_iter().fold(1, usize::saturating_mul))?;
    run_sums(&sums, y, w, None, x_shape, Schedule::default())
}

/// The gradient of [`conv2d`] with respect to its weights, of shape `w_shape`, from that with
/// respect to its result.
///
/// # Errors
/// As [`conv2d`].
pub fn weight_gradient(
    conv: &Conv2d,
    x: &Buffer<f32>,
    x_shape: [usize; 4],
    y: &Buffer<f32>,
    w_shape: [usize; 4],
) -> Result<Buffer<f32>> {
    let shape = conv.shape(x_shape, w_shape)?;
    check("x", x, x_shape)?;
    check("the gradient", y, shape.y)?;
    same_device(x.device(), y.device())?;
    run_weights(&shape.forward(PANEL), x, y, w_shape, Schedule::default())
}

fn check(what: &str, buffer: &Buffer<f32>, shape: [usize; 4]) -> Result<()> {
    let needed = shape.iter().product::<usize>();
    if buffer.len() == needed {
        Ok(())
    } else {
        let [a, b, c, d] = shape;
        Err(Error::shape(
            OP,
            format_args!("{a} x {b} x {c} x {d} = {needed} elements for {what}"),
            buffer.len(),
        ))
    }
}

/// All of `sums`, whose places together are every element of a result of shape `out`.
fn run_sums(
    sums: &[Sums],
    source: &Buffer<f32>,
    w: &Buffer<f32>,
    bias: Option<&Buffer<f32>>,
    out: [usize; 4],
    schedule: Schedule,
) -> Result<Buffer<f32>> {
    let device: Device = source.device().clone();
    let mut result = device.empty(out.iter().product())?;
    if result.is_empty() {
        return Ok(result);
    }
    if let (Some(simd), Some(source), Some(w), Some(result)) =
        (device.simd(), source.host(), w.host(), result.host_mut())
    {
        let bias = bias.and_then(Buffer::host);
        cpu::sums(simd, sums, source, w, bias, result, schedule.cpu)?;
    } else {
        gpu::sums(&device, sums, source, w, bias, &mut result, schedule.gpu)?;
    }
    Ok(result)
}

/// The weight gradient of the convolution whose sums are `p`.
fn run_weights(
    p: &Sums,
    x: &Buffer<f32>,
    y: &Buffer<f32>,
    out: [usize; 4],
    schedule: Schedule,
) -> Result<Buffer<f32>> {
    let device: Device = x.device().clone();
    let mut result = device.empty(out.iter().product())?;
    if result.is_empty() {
        return Ok(result);
    }
    if let (Some(simd), Some(x), Some(y), Some(result)) =
        (device.simd(), x.host(), y.host(), result.host_mut())
    {
        cpu::weights(simd, p, x, y, result, schedule.cpu)?;
    } else {
        gpu::weights(&device, p, x, y, &mut result, schedule.gpu)?;
    }
    Ok(result)
}

/// A representative of each variant of every kernel.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    gpu::kernels(profile)
}
