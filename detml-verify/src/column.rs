//! Columns: the kinds of devices that results are compared on.

use detml_core::{Backend, Error};
use detml_kernels::{Device, Simd};

/// A device of this machine, or why there is none.
#[derive(Clone, Debug)]
pub struct Present {
    /// The column's name, such as `cuda-sm90`.
    pub column: String,
    /// The backend to ask for.
    pub backend: Backend,
    /// The level to ask for, if it is the CPU.
    pub simd: Option<Simd>,
    /// The device, if it is there and passes the probe.
    pub device: Result<Device, Error>,
}

/// In the name of what runs kernels' text on the CPU, so that no such column has a device's name.
const EMULATOR: &str = "detml emulator";

/// The name of a level, as `DETML_SIMD` takes it.
pub fn level(simd: Simd) -> String {
    format!("{simd:?}").to_lowercase()
}

/// The column of a device.
pub fn column(device: &Device) -> String {
    let name = device.name();
    match device.backend() {
        Backend::Cpu | Backend::Auto => format!(
            "cpu-{}-{}",
            std::env::consts::ARCH,
            device.simd().map_or_else(|| "plain".into(), level)
        ),
        Backend::Cuda(_) => format!("cuda-{}", architecture(name)),
        Backend::Hip(_) if name.contains(EMULATOR) => match name.contains("gfx9") {
            true => "hip-emulated-wave64".into(),
            false => "hip-emulated-wave32".into(),
        },
        Backend::Hip(_) => "hip".into(),
        Backend::Wgpu(_) if name.contains(EMULATOR) => "metal-text".into(),
        Backend::Wgpu(_) if cfg!(target_os = "macos") => "metal".into(),
        Backend::Wgpu(_) => {
            let lower = name.to_lowercase();
            let known = [
                ("llvmpipe", "lavapipe"),
                ("swiftshader", "swiftshader"),
                ("nvidia", "nvidia"),
                ("radv", "radv"),
                ("amd", "amd"),
                ("intel", "intel"),
            ];
            let driver = known
                .iter()
                .find(|(part, _)| lower.contains(part))
                .map_or("other", |(_, driver)| driver);
            format!("vulkan-{driver}")
        }
    }
}

/// `sm90` of `NVIDIA H200 (sm_90)`.
fn architecture(name: &str) -> String {
    name.split(['(', ')', ' '])
        .find(|word| word.starts_with("sm_"))
        .map_or_else(|| "other".into(), |word| word.replace('_', ""))
}

/// Every level of this CPU and every device of every backend of this build, and for each backend
/// that has none the reason.
pub fn present() -> Vec<Present> {
    let mut all: Vec<Present> = Simd::available()
        .into_iter()
        .map(|simd| {
            let device = Device::cpu_with(simd);
            Present {
                column: column(&device),
                backend: Backend::Cpu,
                simd: Some(simd),
                device: Ok(device),
            }
        })
        .collect();
    for backend in [Backend::Cuda, Backend::Hip, Backend::Wgpu] {
        // Adapters that wgpu lists twice are looked at twice.
        for index in 0..16 {
            let backend = backend(index);
            let device = Device::for_backend(backend);
            let absent = matches!(device, Err(Error::DeviceUnavailable { .. }));
            if absent && index > 0 {
                break;
            }
            all.push(Present {
                column: device
                    .as_ref()
                    .map_or_else(|_| backend.kind().into(), column),
                backend,
                simd: None,
                device,
            });
            if absent {
                break;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_this_cpu_are_columns() {
        let all = present();
        assert_eq!(
            all[0].column,
            format!("cpu-{}-plain", std::env::consts::ARCH)
        );
        for simd in Simd::available() {
            assert!(all.iter().any(|p| p.simd == Some(simd)));
        }
        for backend in ["cuda", "hip", "wgpu"] {
            assert!(all.iter().any(|p| p.backend.kind() == backend));
        }
    }

    #[test]
    fn architectures_are_read_from_names() {
        assert_eq!(architecture("NVIDIA H200 (sm_90)"), "sm90");
        assert_eq!(architecture("NVIDIA H200"), "other");
    }
}
