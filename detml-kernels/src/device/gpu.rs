//! The only place that touches CubeCL's launch and compile API.

use super::checked;
use super::kernel::Kernel;
use super::text::Language;
use crate::device::Arg;
use cubecl::ir::{AddressType, DeviceProperties, StorageType};
use cubecl::prelude::*;
use cubecl::server::{Handle, KernelArguments, ServerError};
use cubecl_core::InfoBuilder;
use cubecl_core::prelude::CompiledKernel;
use cubecl_core::{CompilationError, CubeTask, ExecutionMode, Runtime};
use detml_core::{Error, Result};
use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, RwLock};

/// An open device.
pub(crate) struct Gpu {
    /// The backend and index, as errors name the device.
    label: String,
    client: Client,
    properties: Arc<DeviceProperties>,
    /// The kernels that have been compiled.
    compiled: Mutex<BTreeSet<(&'static str, Arc<str>)>>,
    /// Held alone by a first launch, so that no other thread gets its error or loses work by it.
    turn: RwLock<()>,
}

/// Bytes of an allocation from which on it is worth waiting for CubeCL's thread to learn whether
/// there was room for it.
const LARGE: usize = 1 << 20;

/// A connection to one device of any GPU backend.
enum Client {
    #[cfg(feature = "cuda")]
    Cuda(ComputeClient<cubecl_cuda::CudaRuntime>),
    #[cfg(feature = "hip")]
    Hip(ComputeClient<cubecl_hip::HipRuntime>),
    #[cfg(feature = "wgpu")]
    Wgpu(ComputeClient<cubecl_wgpu::WgpuRuntime>),
}

macro_rules! with_client {
    ($self:expr, $client:ident => $body:expr) => {
        match $self {
            #[cfg(feature = "cuda")]
            Client::Cuda($client) => $body,
            #[cfg(feature = "hip")]
            Client::Hip($client) => $body,
            #[cfg(feature = "wgpu")]
            Client::Wgpu($client) => $body,
        }
    };
}

impl Gpu {
    #[cfg(feature = "cuda")]
    pub(crate) fn cuda(index: usize) -> Result<(Self, String)> {
        let device = format!("cuda:{index}");
        let unavailable = |reason: String| Error::DeviceUnavailable {
            device: device.clone(),
            reason,
        };
        let (count, name) = guard(&device, || {
            // SAFETY: both calls only try to open the driver's shared libraries.
            let present = unsafe {
                cudarc::driver::sys::is_culib_present() && cudarc::nvrtc::sys::is_culib_present()
            };
            if !present {
                return Err("the CUDA driver (libcuda) or NVRTC (libnvrtc) can't be opened".into());
            }
            let error = |e: cudarc::driver::result::DriverError| e.to_string();
            cudarc::driver::result::init().map_err(error)?;
            let count = cudarc::driver::result::device::get_count().map_err(error)? as usize;
            if index >= count {
                return Ok((count, String::new()));
            }
            let id = cudarc::driver::result::device::get(index as i32).map_err(error)?;
            let name = cudarc::driver::result::device::get_name(id).map_err(error)?;
            use cudarc::driver::sys::CUdevice_attribute::{
                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
            };
            // SAFETY: `id` is a device that the driver has just named.
            let capability = |part| unsafe {
                cudarc::driver::result::device::get_attribute(id, part).map_err(error)
            };
            let name = format!("{name} (sm_{}{})", capability(MAJOR)?, capability(MINOR)?);
            Ok::<_, String>((count, name))
        })?
        .map_err(unavailable)?;
        if index >= count {
            return Err(unavailable(format!("there are {count} CUDA devices")));
        }
        let client = connect(&device, &cubecl_cuda::CudaDevice::new(index))?;
        Ok((Self::new(device, Client::Cuda(client)), name))
    }

    #[cfg(feature = "hip")]
    pub(crate) fn hip(index: usize) -> Result<(Self, String)> {
        let device = format!("hip:{index}");
        let unavailable = |reason: String| Error::DeviceUnavailable {
            device: device.clone(),
            reason,
        };
        let available = guard(&device, cubecl_hip_sys::is_available)?;
        if !available {
            return Err(unavailable(
                "the HIP runtime (libamdhip64) or its compiler (libhiprtc) can't be opened".into(),
            ));
        }
        let count = guard(&device, || {
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
        let client = connect(&device, &cubecl_hip::AmdDevice::new(index))?;
        Ok((Self::new(device.clone(), Client::Hip(client)), device))
    }

    #[cfg(feature = "wgpu")]
    pub(crate) fn wgpu(index: usize) -> Result<(Self, String)> {
        use cubecl_wgpu::WgpuDevice;
        let device = format!("wgpu:{index}");
        let adapters = guard(&device, wgpu_adapters)?;
        let Some((_, name)) = adapters.get(index).cloned() else {
            return Err(Error::DeviceUnavailable {
                device,
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
        let client = connect(&device, &id)?;
        Ok((Self::new(device, Client::Wgpu(client)), name))
    }

    fn language(&self) -> Language {
        match self.client {
            #[cfg(feature = "cuda")]
            Client::Cuda(_) => Language::Cuda,
            #[cfg(feature = "hip")]
            Client::Hip(_) => Language::Hip,
            #[cfg(feature = "wgpu")]
            Client::Wgpu(_) => Language::SpirV,
        }
    }

    fn new(label: String, client: Client) -> Self {
        let properties = Arc::new(with_client!(&client, client => client.properties().clone()));
        Self {
            label,
            client,
            properties,
            compiled: Mutex::default(),
            turn: RwLock::default(),
        }
    }

    /// Refuses what no single allocation of the device can hold.
    pub(crate) fn check_size(&self, len: usize, size: usize) -> Result<()> {
        let bytes = len.saturating_mul(size) as u64;
        // Kernels index with 32 bits.
        if len <= u32::MAX as usize && bytes <= self.properties.memory.max_page_size {
            Ok(())
        } else {
            Err(Error::OutOfMemory {
                device: self.label.clone(),
                requested: bytes,
            })
        }
    }

    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<Handle> {
        self.reserved(
            bytes.len(),
            || with_client!(&self.client, client => client.create_from_slice(bytes)),
        )
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<Handle> {
        self.reserved(
            bytes,
            || with_client!(&self.client, client => client.empty(bytes)),
        )
    }

    /// The memory that `work` asks for. CubeCL's thread allocates later and keeps a failure to
    /// itself: launches that touch such memory are dropped.
    fn reserved(&self, bytes: usize, work: impl FnOnce() -> Handle) -> Result<Handle> {
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

    pub(crate) fn read(&self, handle: Handle) -> Result<Vec<u8>> {
        self.guard(|| with_client!(&self.client, client => client.read_one(handle)))?
            .map(|bytes| bytes.to_vec())
            .map_err(|error| self.server_error(None, &error))
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.guard(
            || with_client!(&self.client, client => cubecl::future::block_on(client.sync())),
        )?
        .map_err(|error| self.server_error(None, &error))
    }

    /// `work` beside that of other threads, but for first launches.
    fn guard<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let _shared = self.turn.read().unwrap_or_else(|e| e.into_inner());
        guard(&self.label, work)
    }

    pub(crate) fn launch(
        &self,
        kernel: &Kernel,
        cubes: (u32, u32, u32),
        args: &[Arg<'_>],
    ) -> Result<()> {
        if !checked::wanted() {
            return self.launch_with(kernel, cubes, args, None);
        }
        self.launch_checked(kernel, cubes, args)
    }

    /// Checks every access, waits and reports what lies outside its array.
    pub(crate) fn launch_checked(
        &self,
        kernel: &Kernel,
        cubes: (u32, u32, u32),
        args: &[Arg<'_>],
    ) -> Result<()> {
        let faults = self.upload(&[0; 4 * checked::FAULT_WORDS])?;
        self.launch_with(kernel, cubes, args, Some(&faults))?;
        let bytes = self.read(faults)?;
        let word = |i: usize| {
            bytes[4 * i..][..4]
                .iter()
                .rev()
                .fold(0u32, |word, &byte| word << 8 | u32::from(byte))
        };
        let Some(access) = (word(0) as usize).checked_sub(1) else {
            return Ok(());
        };
        let (_, accesses) = kernel.checked_definition(Some(&self.properties));
        Err(Error::internal(format!(
            "{kernel:?} on {}: index {} is outside the array in `{}`",
            self.label,
            word(1),
            accesses.get(access).map_or("?", |access| access.trim()),
        )))
    }

    fn launch_with(
        &self,
        kernel: &Kernel,
        cubes: (u32, u32, u32),
        args: &[Arg<'_>],
        faults: Option<&Handle>,
    ) -> Result<()> {
        let device = &self.label;
        let limits = &self.properties.hardware;
        let units = kernel.units();
        if units.num_elems() > limits.max_units_per_cube {
            return Err(Error::KernelCompilation {
                kernel: kernel.name().into(),
                reason: format!(
                    "{} units a cube, {device} allows {}",
                    units.num_elems(),
                    limits.max_units_per_cube
                ),
            });
        }
        let most = limits.max_cube_count;
        if cubes.0 > most.0 || cubes.1 > most.1 || cubes.2 > most.2 {
            return Err(Error::KernelCompilation {
                kernel: kernel.name().into(),
                reason: format!("{cubes:?} cubes, {device} allows {most:?}"),
            });
        }
        let mut arguments = KernelArguments::new();
        let mut info = InfoBuilder::default();
        info.scalars.push(-0.0f32);
        info.scalars.push(0u32);
        for arg in args {
            match arg {
                Arg::Buffer { handle, len, width } => {
                    let vectors = (*len / *width) as u64;
                    info.metadata
                        .register_array(vectors, vectors, AddressType::U32);
                    arguments.buffers.push((*handle).clone().binding());
                }
                Arg::F32(x) => info.scalars.push(*x),
                Arg::U32(x) => info.scalars.push(*x),
                Arg::I32(x) => info.scalars.push(*x),
            }
        }
        if let Some(faults) = faults {
            let words = checked::FAULT_WORDS as u64;
            info.metadata.register_array(words, words, AddressType::U32);
            arguments.buffers.push(faults.clone().binding());
        }
        arguments.info = info.finish(AddressType::U32);
        let count = CubeCount::Static(cubes.0, cubes.1, cubes.2);
        let launch = || {
            with_client!(&self.client, client => {
                let task = Box::new(Task {
                    kernel: kernel.clone(),
                    language: self.language(),
                    properties: self.properties.clone(),
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
        let compiled = || self.compiled.lock().unwrap_or_else(|e| e.into_inner());
        let key = kernel.key();
        if compiled().contains(&key) {
            return self.guard(launch);
        }
        // CubeCL's thread compiles it now, and hands what that meets to whoever waits first.
        let _alone = self.turn.write().unwrap_or_else(|e| e.into_inner());
        guard(&self.label, launch)?;
        guard(
            &self.label,
            || with_client!(&self.client, client => client.flush()),
        )?
        .map_err(|error| self.server_error(Some(kernel.name()), &error))?;
        compiled().insert(key);
        Ok(())
    }

    /// Our error for one of CubeCL's that was met while `kernel` was launched first.
    fn server_error(&self, kernel: Option<&str>, error: &ServerError) -> Error {
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
                self.server_error(kernel, &errors[0])
            }
            other => Error::DeviceLost {
                device,
                reason: other.to_string(),
            },
        }
    }
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

/// Runs what may panic inside CubeCL and turns the panic into a lost device.
fn guard<T>(device: &str, work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| Error::DeviceLost {
        device: device.into(),
        reason: panic_message(&*panic),
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .unwrap_or_else(|| "unknown".into())
}

/// Compiles a [`Kernel`], with the chance to rewrite its text before the driver sees it.
struct Task {
    kernel: Kernel,
    /// The language of compilers that don't name theirs.
    language: Language,
    properties: Arc<DeviceProperties>,
    /// Whether it has an output for faults.
    checked: bool,
}

impl cubecl_core::prelude::KernelMetadata for Task {
    fn name(&self) -> &'static str {
        self.kernel.name()
    }

    fn id(&self) -> KernelId {
        KernelId::new::<Self>()
            .address_type(AddressType::U32)
            .cube_dim(self.kernel.units())
            .info((self.kernel.key(), self.checked))
    }

    fn address_type(&self) -> StorageType {
        AddressType::U32.unsigned_type()
    }
}

impl<C: cubecl_core::Compiler> CubeTask<C> for Task {
    fn compile(
        &self,
        compiler: &mut C,
        options: &C::CompilationOptions,
        mode: ExecutionMode,
        address_type: StorageType,
    ) -> std::result::Result<CompiledKernel<C>, CompilationError> {
        let properties = Some(&*self.properties);
        let definition = if self.checked {
            self.kernel.checked_definition(properties).0
        } else {
            self.kernel.definition(properties)
        };
        let compiled = compiler.compile(definition, options, mode, address_type)?;
        let language = match compiler.extension() {
            "msl" => Language::Metal,
            "spv" => Language::SpirV,
            "wgsl" => Language::Wgsl,
            _ => self.language,
        };
        let source = self.kernel.text(language, &compiled.to_string());
        Ok(CompiledKernel {
            entrypoint_name: self.kernel.name().into(),
            debug_name: Some(self.kernel.name()),
            source,
            repr: Some(compiled),
            cube_dim: self.kernel.units(),
            debug_info: None,
        })
    }
}
