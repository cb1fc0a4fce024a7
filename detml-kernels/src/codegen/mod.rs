//! What kernels are made of, without a device: the rules their representation must obey
//! ([`lint`]) and, with the feature `codegen`, their text for every target (`text`) and one hash for
//! each (`manifest`).

#[cfg(feature = "codegen")]
mod canonical;
pub mod lint;
#[cfg(feature = "codegen")]
pub mod manifest;
pub mod mutation;
mod sabotage;
#[cfg(feature = "codegen")]
pub mod text;

pub use sabotage::{sabotages, sum_in_another_order};

use crate::device::Kernel;
use crate::ieee::{FloatProfile, Path};

/// A representative of every kernel variant of every operation and the conformance probe, written for `profile`.
pub fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    std::iter::once(crate::device::probe_kernel(profile))
        .chain(crate::ops::kernels(profile))
        .collect()
}

/// The profiles that kernels are checked in: everything native (CUDA, HIP), a compiler that
/// rewrites expressions and does not fuse (Vulkan), everything emulated.
pub const PROFILES: [(&str, FloatProfile); 3] = [
    ("native", FloatProfile::NATIVE),
    (
        "vulkan",
        FloatProfile {
            fma: Path::Emulated,
            opaque: true,
            ..FloatProfile::NATIVE
        },
    ),
    ("emulated", FloatProfile::EMULATED),
];
