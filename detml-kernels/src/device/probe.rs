//! x
use super::Device;
use crate::ieee::FloatProfile;
use detml_core::Result;
pub(super) fn probe(_device: &Device) -> Result<FloatProfile> {
    Ok(FloatProfile::NATIVE)
}
