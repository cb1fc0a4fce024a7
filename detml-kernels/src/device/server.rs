//! HIP and Vulkan or Metal, through CubeCL's servers.

use super::Arg;
use super::gpu::{Memory, Task, foreign, guard, info, memories};
use super::kernel::{Kernel, Key};
use super::text::Language;
use cubecl::ir::DeviceProperties;
use cubecl::prelude::*;
use cubecl::server::{Handle, KernelArguments, ServerError};
use cubecl_core::Runtime;
use detml_core::{Error, Result};
use std::collections::HashSet;
use std::sync::{Arc, RwLock};

/// Bytes of an allocation from which on it is worth waiting for CubeCL's thread to learn whether
/// there was room for it.
const LARGE: usize = 1 << 20;

pub(super) struct Server {
    label: String,
    client: Client,
    /// The kernels that have been compiled.
    compiled: RwLock<HashSet<(Key, bool)>>,
    /// Held alone by a first launch, so that no other thread gets its error or loses work by it.
    turn: RwLock<()>,
}

/// A connection to one device of a backend.
enum Client {
    #[cfg(feature = "hip")]
    Hip(ComputeClient<cubecl_hip::HipRuntime>),
    #[cfg(feature = "wgpu")]
    Wgpu(ComputeClient<cubecl_wgpu::WgpuRuntime>),
}

macro_rules! with_client {
    ($self:expr, $client:ident => $body:expr) => {
        match $self {
            #[cfg(feature = "hip")]
            Client::Hip($client) => $body,
            #[cfg(feature = "wgpu")]
            Client::Wgpu($client) => $body,
        }
    };
}

impl Server {
    #[cfg(feature = "hip")]
    pub(super) fn hip(label: &str, index: usize) -> Result<(Self, String, DeviceProperties)> {
        let unavailable = |reason: String| Error::DeviceUnavailable {
            device: label.into(),
            reason,
        };
        let available = guard(label, cubecl_hip_sys::is_available)?;
        if !available {
            return Err(unavailable(
                "the HIP runtime (libamdhip64) or its compiler (libhiprtc) can't be opened".into(),
            ));
        }
        let count = guard(label, || {
            let mut count = 0;
            // SAFETY: the runtime is open and `count` outlives the call.
            let status = unsafe { cubecl_hip_sys::hipGetDeviceCount(&mut count) };
            if status == cubecl_hip_sys::HIP_SUCCESS {
                count as usize
            } else {
                0
            }
        })?;
        if index >= count {
            return Err(unavailable(format!("there are {count} HIP devices")));
        }
        let name = guard(label, || hip_name(index))?.unwrap_or_else(|| label.into());
        let client = connect(label, &cubecl_hip::AmdDevice::new(index))?;
        Ok(Self::new(label, Client::Hip(client), name))
    }

    #[cfg(feature = "wgpu")]
    pub(super) fn wgpu(label: &str, index: usize) -> Result<(Self, String, DeviceProperties)> {
        use cubecl_wgpu::WgpuDevice;
        let adapters = guard(label, wgpu_adapters)?;
        let Some((_, name)) = adapters.get(index).cloned() else {
            return Err(Error::DeviceUnavailable {
                device: label.into(),
                reason: format!("there are {} adapters", adapters.len()),
            });
        };
        // CubeCL numbers the adapters of each type on their own.
        let kind = adapters[index].0;
        let nth = adapters[..index].iter().filter(|a| a.0 == kind).count();
        let id = match kind {
            wgpu::DeviceType::DiscreteGpu => WgpuDevice::DiscreteGpu(nth),
            wgpu::DeviceType::IntegratedGpu => WgpuDevice::IntegratedGpu(nth),
            wgpu::DeviceType::VirtualGpu => WgpuDevice::VirtualGpu(nth),
            wgpu::DeviceType::Cpu => WgpuDevice::Cpu,
            wgpu::DeviceType::Other => WgpuDevice::DefaultDevice,
        };
        let client = connect(label, &id)?;
        Ok(Self::new(label, Client::Wgpu(client), name))
    }

    fn new(label: &str, client: Client, name: String) -> (Self, String, DeviceProperties) {
        let properties = with_client!(&client, client => client.properties().clone());
        let server = Self {
            label: label.into(),
            client,
            compiled: RwLock::default(),
            turn: RwLock::default(),
        };
        (server, name, properties)
    }

    fn language(&self) -> Language {
        match self.client {
            #[cfg(feature = "hip")]
            Client::Hip(_) => Language::Hip,
            #[cfg(feature = "wgpu")]
            Client::Wgpu(_) => Language::SpirV,
        }
    }

    pub(super) fn upload(&self, bytes: &[u8]) -> Result<Handle> {
        self.place(
            bytes.len(),
            || with_client!(&self.client, client => client.create_from_slice(bytes)),
        )
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<Handle> {
        self.place(
            bytes,
            || with_client!(&self.client, client => client.empty(bytes)),
        )
    }

    /// The memory that `work` asks for. CubeCL's thread allocates later and keeps a failure to
    /// itself: launches that touch such memory are dropped.
    fn place(&self, bytes: usize, work: impl FnOnce() -> Handle) -> Result<Handle> {
        let handle = self.guard(work)?;
        if bytes >= LARGE {
            let memory = handle.clone();
            let there = self.guard(
                || with_client!(&self.client, client => client.get_resource(memory).map(drop)),
            );
            if !matches!(there, Ok(Ok(()))) {
                return Err(Error::OutOfMemory {
                    device: self.label.clone(),
                    requested: bytes as u64,
                });
            }
        }
        Ok(handle)
    }

    pub(super) fn read(&self, handle: &Handle, to: &mut [u8]) -> Result<()> {
        let handle = handle.clone();
        let bytes = self
            .guard(|| with_client!(&self.client, client => client.read_one(handle)))?
            .map_err(|error| self.error(None, &error))?;
        let Some(bytes) = bytes.get(..to.len()) else {
            return Err(Error::internal(format!(
                "reading {} bytes from {}: got {}",
                to.len(),
                self.label,
                bytes.len()
            )));
        };
        to.copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.guard(
            || with_client!(&self.client, client => cubecl::future::block_on(client.sync())),
        )?
        .map_err(|error| self.error(None, &error))
    }

    /// Bytes that CubeCL has taken from the device.
    pub(super) fn reserved(&self) -> Result<u64> {
        self.guard(|| with_client!(&self.client, client => client.memory_usage()))?
            .map(|usage| usage.bytes_reserved)
            .map_err(|error| self.error(None, &error))
    }

    /// `work` beside that of other threads, but for first launches.
    fn guard<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let _shared = self.turn.read().unwrap_or_else(|e| e.into_inner());
        guard(&self.label, work)
    }

    pub(super) fn launch(
        &self,
        kernel: &Kernel,
        properties: &Arc<DeviceProperties>,
        cubes: (u32, u32, u32),
        args: &[Arg<'_>],
        faults: Option<&Memory>,
    ) -> Result<()> {
        let mut arguments = KernelArguments::new();
        for memory in memories(args, faults) {
            let handle = memory.handle().ok_or_else(|| foreign(&self.label))?;
            arguments.buffers.push(handle.clone().binding());
        }
        arguments.info = info(args, faults);
        let count = CubeCount::Static(cubes.0, cubes.1, cubes.2);
        let launch = || {
            with_client!(&self.client, client => {
                let task = Box::new(Task {
                    kernel: kernel.clone(),
                    language: self.language(),
                    properties: properties.clone(),
                    checked: faults.is_some(),
                });
                if faults.is_some() {
                    client.launch(task, count, arguments);
                } else {
                    // SAFETY: each kernel keeps its indices below the lengths that the operation
                    // which launches it has checked its arguments against. With `DETML_CHECKED=1`
                    // the suites run with every index compared with its array's length.
                    unsafe { client.launch_unchecked(task, count, arguments) }
                }
            })
        };
        let key = (kernel.key(), faults.is_some());
        let compiled = self.compiled.read().unwrap_or_else(|e| e.into_inner());
        let known = compiled.contains(&key);
        drop(compiled);
        if known {
            return self.guard(launch);
        }
        // CubeCL's thread compiles it now, and hands what that meets to whoever waits first.
        let _alone = self.turn.write().unwrap_or_else(|e| e.into_inner());
        guard(&self.label, launch)?;
        guard(
            &self.label,
            || with_client!(&self.client, client => client.flush()),
        )?
        .map_err(|error| self.error(Some(kernel.name()), &error))?;
        let mut compiled = self.compiled.write().unwrap_or_else(|e| e.into_inner());
        compiled.insert(key);
        Ok(())
    }

    /// Our error for one of CubeCL's that was met while `kernel` was launched first.
    fn error(&self, kernel: Option<&str>, error: &ServerError) -> Error {
        use cubecl::server::{IoError, LaunchError};
        let device = self.label.clone();
        match error {
            ServerError::Io(IoError::BufferTooBig { size, .. })
            | ServerError::Launch(LaunchError::IoError(IoError::BufferTooBig { size, .. })) => {
                Error::OutOfMemory {
                    device,
                    requested: *size,
                }
            }
            // It doesn't say how much.
            ServerError::Launch(LaunchError::OutOfMemory { .. }) => Error::OutOfMemory {
                device,
                requested: 0,
            },
            ServerError::Launch(
                error @ (LaunchError::CompilationError(_) | LaunchError::TooManyResources(_)),
            ) => Error::KernelCompilation {
                kernel: kernel.map_or_else(|| format!("one on {device}"), str::to_owned),
                reason: error.to_string(),
            },
            ServerError::ServerUnhealthy { errors, .. } if !errors.is_empty() => {
                self.error(kernel, &errors[0])
            }
            other => Error::DeviceLost {
                device,
                reason: other.to_string(),
            },
        }
    }
}

/// The `index`-th HIP device's name and architecture.
#[cfg(feature = "hip")]
fn hip_name(index: usize) -> Option<String> {
    use std::ffi::{CStr, c_char};
    // SAFETY: a structure of numbers and characters, for which zeros are values.
    let mut properties: cubecl_hip_sys::hipDeviceProp_tR0600 = unsafe { std::mem::zeroed() };
    // SAFETY: the runtime is open and `properties` outlives the call.
    let status =
        unsafe { cubecl_hip_sys::hipGetDevicePropertiesR0600(&mut properties, index as i32) };
    let text = |bytes: &[c_char]| {
        let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
        let text = CStr::from_bytes_until_nul(&bytes).ok()?;
        Some(text.to_string_lossy().into_owned())
    };
    let (name, architecture) = (text(&properties.name)?, text(&properties.gcnArchName)?);
    (status == cubecl_hip_sys::HIP_SUCCESS).then(|| format!("{name} ({architecture})"))
}

/// Opens a device that is there.
fn connect<R: Runtime>(label: &str, device: &R::Device) -> Result<ComputeClient<R>> {
    guard(label, || {
        let mut client = R::client(device);
        // SAFETY: all work of a process on one device goes through this one stream, whichever
        // thread asks for it, so there is no other stream to be ordered against.
        unsafe { client.set_stream(cubecl_core::stream_id::StreamId { value: 0 }) }
        client
    })
}

/// The adapters that wgpu can see through the platform's API, in its order.
#[cfg(feature = "wgpu")]
fn wgpu_adapters() -> Vec<(wgpu::DeviceType, String)> {
    use cubecl_wgpu::{AutoGraphicsApi, GraphicsApi};
    let backend = AutoGraphicsApi::backend();
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: backend.into(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    cubecl::future::block_on(instance.enumerate_adapters(backend.into()))
        .into_iter()
        .map(|adapter| {
            let info = adapter.get_info();
            (
                info.device_type,
                format!("{} ({})", info.name, info.driver_info),
            )
        })
        .collect()
}
