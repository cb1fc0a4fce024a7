//! The GPU path.

use super::{Gradients, Problem};
use crate::device::{Buffer, Device, Kernel};
use crate::ieee::FloatProfile;
use detml_core::{Error, Result};

/// A schedule to force; the default is chosen by shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {}

pub(super) fn forward(
    _device: &Device,
    _p: &Problem,
    _inputs: [&Buffer<f32>; 3],
    _lengths: Option<&Buffer<u32>>,
    _out: &mut Buffer<f32>,
    _sums: &mut Buffer<f32>,
    _plan: Plan,
) -> Result<()> {
    Err(Error::unsupported("attention", "there is no GPU path yet"))
}

pub(super) fn backward(
    _device: &Device,
    _p: &Problem,
    _inputs: [&Buffer<f32>; 3],
    _lengths: Option<&Buffer<u32>>,
    _known: [&Buffer<f32>; 3],
    _gradients: &mut Gradients,
    _plan: Plan,
) -> Result<()> {
    Err(Error::unsupported("attention", "there is no GPU path yet"))
}

pub(super) fn kernels(_profile: FloatProfile) -> Vec<Kernel> {
    Vec::new()
}
