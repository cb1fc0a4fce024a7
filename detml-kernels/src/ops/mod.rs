//! Operations on buffers: for each a contract, a GPU kernel, a CPU loop and a plain reference,
//! side by side.

pub mod attention;
pub mod boosting;
pub mod conv;
pub mod elementwise;
pub mod forest;
pub mod gather;
pub mod gemm;
pub mod histogram;
pub mod neighbors;
pub(crate) mod order;
pub(crate) mod parallel;
pub mod recurrence;
pub mod reduce;
pub mod rowwise;
pub mod runs;
pub mod scan;
pub mod scatter;
pub mod segment;
pub mod selective_scan;
pub mod shap;
#[cfg(test)]
mod shapes;
pub mod sort;
pub mod storage;
pub(crate) mod tile;
pub mod topk;
pub mod transpose;

use crate::device::{Arg, Buffer, Device, Element, Kernel};
use crate::ieee::FloatProfile;
use detml_core::{Error, Result};

/// A representative of each variant of every kernel, written for a profile.
///
/// The lint over their intermediate representation and the checks of emitted code walk it.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    [
        attention::kernels(profile),
        boosting::kernels(profile),
        boosting::link_kernels(profile),
        conv::kernels(profile),
        elementwise::kernels(profile),
        forest::kernels(profile),
        gather::kernels(profile),
        gemm::kernels(profile),
        histogram::kernels(profile),
        neighbors::kernels(profile),
        recurrence::kernels(profile),
        reduce::kernels(profile),
        rowwise::kernels(profile),
        runs::kernels(profile),
        scan::kernels(profile),
        scatter::kernels(profile),
        segment::kernels(profile),
        selective_scan::kernels(profile),
        shap::kernels(profile),
        sort::kernels(profile),
        storage::kernels(profile),
        topk::kernels(profile),
        transpose::kernels(profile),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A buffer of whatever element type, as words.
pub(crate) trait AnyBuffer {
    /// Number of elements.
    fn size(&self) -> usize;
    fn on(&self) -> &Device;
    /// The elements' bits, if on the CPU.
    fn words(&self) -> Option<&[u32]>;
    fn words_mut(&mut self) -> Option<&mut [u32]>;
    /// The argument of a launch, see [`Buffer::vectors`].
    fn arg(&self, width: usize) -> Arg<'_>;
}

impl<T: Element> AnyBuffer for Buffer<T> {
    fn size(&self) -> usize {
        self.len()
    }

    fn on(&self) -> &Device {
        self.device()
    }

    fn words(&self) -> Option<&[u32]> {
        self.host().map(bytemuck::cast_slice)
    }

    fn words_mut(&mut self) -> Option<&mut [u32]> {
        self.host_mut().map(bytemuck::cast_slice_mut)
    }

    fn arg(&self, width: usize) -> Arg<'_> {
        self.vectors(width)
    }
}

/// Refuses operands that live on different devices; levels of the CPU are one device.
pub(crate) fn same_device(a: &Device, b: &Device) -> Result<()> {
    if a.backend() == b.backend() {
        Ok(())
    } else {
        Err(Error::parameter(
            "operand",
            format!("a buffer on {a}"),
            format!("one on {b}"),
        ))
    }
}

/// The cubes that cover `total` elements, `each` a cube; kernels find their own by `CUBE_POS`.
///
/// There are at most 65,535 cubes a dimension, so there may be some more than needed.
pub(crate) fn grid(total: usize, each: usize) -> Result<(u32, u32, u32)> {
    // Indices of the surplus cubes stay within 32 bits too.
    if total > (u32::MAX - (1 << 20)) as usize {
        return Err(Error::unsupported(
            format!("an operation on {total} elements"),
            "a GPU operation takes at most 4,293,918,719",
        ));
    }
    let cubes = total.div_ceil(each) as u32;
    let y = cubes.div_ceil(65_535).max(1);
    Ok((cubes.div_ceil(y), y, 1))
}
