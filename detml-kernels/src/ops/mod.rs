//! Operations.
pub mod trial;

use crate::device::Kernel;
use crate::ieee::FloatProfile;

/// A representative of every kernel variant: what the lint and the codegen proofs walk.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    vec![trial::kernel(profile)]
}
