//! Softmax and normalisation of the rows of a row-major matrix, and their gradients.
//!
//! Sums are those of `N5` over a row (over a column for the gradients of weights), maxima are
//! exact, exponentials and logarithms those of [`math`](crate::math). `n` is the number of columns.
//!
//! | operation | result for an element `x` |
//! |---|---|
//! | [`softmax`] | `exp(x - m) * (1 / s)`, `m` the maximum, `s` the sum of `exp(x - m)` |
//! | [`log_softmax`] | `(x - m) - ln(s)` |
//! | [`layer_norm`] | `(x - mean) * scale`, `scale = 1 / sqrt(variance + eps)`, then `fma(_, w, b)` |
//! | [`rms_norm`] | `x * scale`, `scale = 1 / sqrt(sum of squares / n + eps)`, then `_ * w` |
//! | [`softmax_backward`] | `y * (dy - s)`, `s` the sum of `fma(dy, y, _)` |
//! | [`log_softmax_backward`] | `fma(-exp(y), s, dy)`, `s` the sum of `dy` |
//! | [`layer_norm_backward`] | `scale * fma(-h, q / n, g - p / n)`, `h = (x - mean) * scale`, `g = dy * w`, `p` the sum of `g`, `q` that of `fma(g, h, _)` |
//! | [`rms_norm_backward`] | `scale * fma(-h, q / n, g)`, `h = x * scale` |
//! | gradient of a weight | the sum of `fma(dy, h, _)` over its column |
//! | gradient of a bias | the sum of `dy` over its column |
//!
//! Every operation written is rounded. Mean and variance are those of
//! [`mean_variance`](super::reduce::mean_variance) with `ddof` 0. A sum whose lanes may hold -0
//! (those of products) counts as +0 if it is zero.
//!
//! # Edge cases
//! Rows of no element give nothing, a mean and a scale of NaN. In softmax and log-softmax a row
//! that holds a NaN or +inf, or nothing but -inf, is all NaN; beside finite elements -inf gives +0
//! and -inf. In a layer norm a row with a NaN or an infinity is all NaN; in an RMS norm a NaN makes
//! the row NaN, and an infinity makes the finite elements zeros and itself NaN. Equal elements
//! give zeros in a layer norm if `eps` is above 0, NaN if it is 0.
//!
//! # Memory
//! The results, and up to four numbers for each row and segment of 4096 (rows longer than 8192 on
//! Vulkan and Metal, than 32768 on CUDA and HIP), or each column and 4096 rows. On a CPU 64 KiB for
//! each thread beside it.

mod cpu;
mod gpu;
#[cfg(test)]
mod plain;
mod terms;
#[cfg(test)]
mod tests;

#[cfg(test)]
use super::reduce::LANES;
use super::reduce::{self, Axis, SEGMENT};
use super::{elementwise, same_device};
use crate::device::{Buffer, Kernel};
use crate::ieee::FloatProfile;
use detml_core::{Error, Result};
use terms::Op;

/// An operation's operands.
struct Job<'a> {
    op: Op,
    x: &'a Buffer<f32>,
    /// The gradient of the results.
    y: Option<&'a Buffer<f32>>,
    weight: Option<&'a Buffer<f32>>,
    bias: Option<&'a Buffer<f32>>,
    mean: Option<&'a Buffer<f32>>,
    scale: Option<&'a Buffer<f32>>,
    rows: usize,
    columns: usize,
    eps: f32,
    /// Taken from the number of elements that a variance is over.
    ddof: u32,
}

impl<'a> Job<'a> {
    fn new(op: Op, x: &'a Buffer<f32>, [rows, columns]: [usize; 2]) -> Result<Self> {
        check("rows", x, rows.checked_mul(columns), x)?;
        if columns > u32::MAX as usize || rows > u32::MAX as usize {
            return Err(Error::unsupported(
                format!("a matrix of {rows} x {columns}"),
                "rows and columns are fewer than 2^32",
            ));
        }
        Ok(Self {
            op,
            x,
            y: None,
            weight: None,
            bias: None,
            mean: None,
            scale: None,
            rows,
            columns,
            eps: 0.0,
            ddof: 0,
        })
    }

    fn gradient(mut self, y: &'a Buffer<f32>) -> Result<Self> {
        check("the gradient", y, Some(self.x.len()), self.x)?;
        self.y = Some(y);
        Ok(self)
    }

    fn weight(mut self, weight: Option<&'a Buffer<f32>>) -> Result<Self> {
        if let Some(weight) = weight {
            check("weight", weight, Some(self.columns), self.x)?;
        }
        self.weight = weight;
        Ok(self)
    }

    fn bias(mut self, bias: Option<&'a Buffer<f32>>) -> Result<Self> {
        if let Some(bias) = bias {
            check("bias", bias, Some(self.columns), self.x)?;
        }
        self.bias = bias;
        Ok(self)
    }

    fn eps(mut self, eps: f32) -> Result<Self> {
        if !(eps >= 0.0 && eps.is_finite()) {
            return Err(Error::parameter("eps", "a finite number, 0 or more", eps));
        }
        self.eps = eps;
        Ok(self)
    }

    fn moments(mut self, norm: &'a Normalized, with_mean: bool) -> Result<Self> {
        if with_mean {
            let missing = || Error::parameter("norm", "that of a layer norm", "one without means");
            let mean = norm.mean.as_ref().ok_or_else(missing)?;
            check("means", mean, Some(self.rows), self.x)?;
            self.mean = Some(mean);
        }
        check("scales", &norm.scale, Some(self.rows), self.x)?;
        self.scale = Some(&norm.scale);
        Ok(self)
    }

    /// Whether there is a weight, and a bias.
    fn given(&self) -> [bool; 2] {
        [self.weight.is_some(), self.bias.is_some()]
    }

    fn run(&self, to: gpu::Outputs<'_>) -> Result<()> {
        if self.rows == 0 || self.columns == 0 {
            return Ok(());
        }
        match self.x.device().simd() {
            Some(simd) => cpu::run(simd, self, to),
            None => gpu::run(self, to),
        }
    }

    /// The results where there are no others.
    fn results(&self) -> Result<Buffer<f32>> {
        let mut out = self.x.device().empty(self.x.len())?;
        self.run(gpu::Outputs {
            out: &mut out,
            first: None,
            scale: None,
        })?;
        Ok(out)
    }

    fn normalized(&self) -> Result<Normalized> {
        let device = self.x.device();
        let mut out = device.empty(if self.op.maps() { self.x.len() } else { 0 })?;
        let with_mean = self.op.first() == terms::First::Mean;
        if self.columns == 0 {
            let nothing = || elementwise::fill(device, self.rows, f32::NAN);
            return Ok(Normalized {
                out,
                mean: if with_mean { Some(nothing()?) } else { None },
                scale: nothing()?,
            });
        }
        let mut mean = if with_mean {
            Some(device.empty(self.rows)?)
        } else {
            None
        };
        let mut scale = device.empty(self.rows)?;
        self.run(gpu::Outputs {
            out: &mut out,
            first: mean.as_mut(),
            scale: Some(&mut scale),
        })?;
        Ok(Normalized { out, mean, scale })
    }

    /// The gradients of weight and bias.
    fn parameters(&self) -> Result<(Buffer<f32>, Option<Buffer<f32>>)> {
        let device = self.x.device();
        let segments = self.rows.div_ceil(SEGMENT);
        let shape = [segments, self.columns];
        let mut weight = device.empty(segments * self.columns)?;
        let mut bias = if self.mean.is_some() {
            Some(device.empty(segments * self.columns)?)
        } else {
            None
        };
        if self.rows > 0 && self.columns > 0 {
            match device.simd() {
                Some(simd) => cpu::parameters(simd, self, &mut weight, bias.as_mut())?,
                None => gpu::parameters(self, &mut weight, bias.as_mut())?,
            }
        }
        let total = |x: Buffer<f32>| {
            if segments == 1 {
                Ok(x)
            } else {
                reduce::sum(&x, Axis::EachColumn, shape)
            }
        };
        Ok((total(weight)?, bias.map(total).transpose()?))
    }
}

fn check(
    what: &str,
    buffer: &Buffer<f32>,
    expected: Option<usize>,
    beside: &Buffer<f32>,
) -> Result<()> {
    if expected != Some(buffer.len()) {
        return Err(Error::shape(
            "rowwise",
            match expected {
                Some(n) => format!("{what} of {n} elements"),
                None => format!("{what} that a buffer can hold"),
            },
            format!("{} elements", buffer.len()),
        ));
    }
    same_device(beside.device(), buffer.device())
}

/// The softmax of each row of `x`, a matrix of `shape` (rows, columns).
///
/// ```
/// use detml_kernels::Device;
/// use detml_kernels::ops::rowwise::softmax;
///
/// let device = Device::cpu();
/// let x = device.upload(&[1.0f32, 1.0, f32::NEG_INFINITY, 0.0])?;
/// assert_eq!(device.read(&softmax(&x, [2, 2])?)?, [0.5, 0.5, 0.0, 1.0]);
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// `Shape` if `x` is not of the shape, those of the device.
pub fn softmax(x: &Buffer<f32>, shape: [usize; 2]) -> Result<Buffer<f32>> {
    Job::new(Op::Softmax, x, shape)?.results()
}

/// The logarithms of the softmax of each row.
///
/// # Errors
/// As [`softmax`].
pub fn log_softmax(x: &Buffer<f32>, shape: [usize; 2]) -> Result<Buffer<f32>> {
    Job::new(Op::LogSoftmax, x, shape)?.results()
}

/// The gradient of [`softmax`]'s operand from its result `y` and the gradient `dy` of that.
///
/// # Errors
/// As [`softmax`], likewise for `dy`; `InvalidParameter` if they are on different devices.
pub fn softmax_backward(
    y: &Buffer<f32>,
    dy: &Buffer<f32>,
    shape: [usize; 2],
) -> Result<Buffer<f32>> {
    Job::new(Op::SoftmaxBackward, y, shape)?
        .gradient(dy)?
        .results()
}

/// The gradient of [`log_softmax`]'s operand from its result `y` and the gradient `dy` of that.
///
/// # Errors
/// As [`softmax_backward`].
pub fn log_softmax_backward(
    y: &Buffer<f32>,
    dy: &Buffer<f32>,
    shape: [usize; 2],
) -> Result<Buffer<f32>> {
    Job::new(Op::LogSoftmaxBackward, y, shape)?
        .gradient(dy)?
        .results()
}

/// Normalised rows, and what they were normalised by.
#[derive(Debug)]
pub struct Normalized {
    /// The results.
    pub out: Buffer<f32>,
    /// Each row's mean, of a layer norm.
    pub mean: Option<Buffer<f32>>,
    /// Each row's `1 / sqrt(_ + eps)`.
    pub scale: Buffer<f32>,
}

/// Each row of `x`, a matrix of `shape` (rows, columns), less its mean and over the root of its
/// variance and `eps`; then times `weight` and plus `bias`, column by column, if they are given.
///
/// ```
/// use detml_kernels::Device;
/// use detml_kernels::ops::rowwise::layer_norm;
///
/// let device = Device::cpu();
/// let x = device.upload(&[1.0f32, 3.0, 5.0, 7.0])?;
/// let bias = device.upload(&[0.0f32, 10.0])?;
/// let norm = layer_norm(&x, [2, 2], None, Some(&bias), 0.0)?;
/// assert_eq!(device.read(&norm.out)?, [-1.0, 11.0, -1.0, 11.0]);
/// assert_eq!(device.read(&norm.scale)?, [1.0, 1.0]);
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// `Shape` if a buffer is not of its shape, `InvalidParameter` if `eps` is negative or not finite
/// or the buffers are on different devices, those of the device.
pub fn layer_norm(
    x: &Buffer<f32>,
    shape: [usize; 2],
    weight: Option<&Buffer<f32>>,
    bias: Option<&Buffer<f32>>,
    eps: f32,
) -> Result<Normalized> {
    Job::new(Op::LayerNorm, x, shape)?
        .weight(weight)?
        .bias(bias)?
        .eps(eps)?
        .normalized()
}

/// Each row over the root of the mean of its squares and `eps`; then times `weight`, column by
/// column, if it is given.
///
/// # Errors
/// As [`layer_norm`].
pub fn rms_norm(
    x: &Buffer<f32>,
    shape: [usize; 2],
    weight: Option<&Buffer<f32>>,
    eps: f32,
) -> Result<Normalized> {
    Job::new(Op::RmsNorm, x, shape)?
        .weight(weight)?
        .eps(eps)?
        .normalized()
}

/// The gradient of [`layer_norm`]'s operand `x` from the gradient `dy` of its results.
///
/// # Errors
/// As [`layer_norm`]; `InvalidParameter` if `norm` is not that of a layer norm.
pub fn layer_norm_backward(
    x: &Buffer<f32>,
    dy: &Buffer<f32>,
    shape: [usize; 2],
    weight: Option<&Buffer<f32>>,
    norm: &Normalized,
) -> Result<Buffer<f32>> {
    Job::new(Op::LayerNormBackward, x, shape)?
        .gradient(dy)?
        .weight(weight)?
        .moments(norm, true)?
        .results()
}

/// The gradients of [`layer_norm`]'s weight and bias.
///
/// # Errors
/// As [`layer_norm_backward`].
pub fn layer_norm_parameters(
    x: &Buffer<f32>,
    dy: &Buffer<f32>,
    shape: [usize; 2],
    norm: &Normalized,
) -> Result<(Buffer<f32>, Buffer<f32>)> {
    let job = Job::new(Op::LayerNormBackward, x, shape)?
        .gradient(dy)?
        .moments(norm, true)?;
    let (weight, bias) = job.parameters()?;
    let missing = || Error::internal("a layer norm has a gradient of its bias");
    Ok((weight, bias.ok_or_else(missing)?))
}

/// The gradient of [`rms_norm`]'s operand `x` from the gradient `dy` of its results.
///
/// # Errors
/// As [`rms_norm`].
pub fn rms_norm_backward(
    x: &Buffer<f32>,
    dy: &Buffer<f32>,
    shape: [usize; 2],
    weight: Option<&Buffer<f32>>,
    norm: &Normalized,
) -> Result<Buffer<f32>> {
    Job::new(Op::RmsNormBackward, x, shape)?
        .gradient(dy)?
        .weight(weight)?
        .moments(norm, false)?
        .results()
}

/// The gradient of [`rms_norm`]'s weight.
///
/// # Errors
/// As [`rms_norm`].
pub fn rms_norm_parameters(
    x: &Buffer<f32>,
    dy: &Buffer<f32>,
    shape: [usize; 2],
    norm: &Normalized,
) -> Result<Buffer<f32>> {
    let job = Job::new(Op::RmsNormBackward, x, shape)?
        .gradient(dy)?
        .moments(norm, false)?;
    Ok(job.parameters()?.0)
}

/// The mean and the variance of each row, if they are best found together: one read for both.
pub(super) fn moments(
    x: &Buffer<f32>,
    shape: [usize; 2],
    ddof: u32,
) -> Result<Option<(Buffer<f32>, Buffer<f32>)>> {
    let [_, columns] = shape;
    let device = x.device();
    // On a CPU threads own whole rows.
    if columns == 0 || columns > SEGMENT && (device.is_cpu() || !gpu::keeps(device, columns)?) {
        return Ok(None);
    }
    let mut job = Job::new(Op::Moments, x, shape)?;
    job.ddof = ddof;
    let Normalized { mean, scale, .. } = job.normalized()?;
    Ok(mean.map(|mean| (mean, scale)))
}

/// A representative of each variant of this module's kernels.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    gpu::kernels(profile)
}
