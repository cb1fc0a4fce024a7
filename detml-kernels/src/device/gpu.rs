//! The only place that touches CubeCL's launch and compile API.

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
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// An open device.
pub(crate) struct Gpu {
    /// The backend and index, as errors name the device.
    label: String,
    client: Client,
    properties: Arc<DeviceProperties>,
}

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
        self.guard(|| with_client!(&self.client, client => client.create_from_slice(bytes)))
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<Handle> {
        self.guard(|| with_client!(&self.client, client => client.empty(bytes)))
    }

    pub(crate) fn read(&self, handle: Handle) -> Result<Vec<u8>> {
        self.guard(|| with_client!(&self.client, client => client.read_one(handle)))?
            .map(|bytes| bytes.to_vec())
            .map_err(|error| self.server_error(&error))
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.guard(
            || with_client!(&self.client, client => cubecl::future::block_on(client.sync())),
        )?
        .map_err(|error| self.server_error(&error))
    }

    fn guard<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        guard(&self.label, work)
    }

    pub(crate) fn launch(
        &self,
        kernel: &Kernel,
        cubes: (u32, u32, u32),
        args: &[Arg<'_>],
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
        arguments.info = info.finish(AddressType::U32);
        let count = CubeCount::Static(cubes.0, cubes.1, cubes.2);
        self.guard(|| {
            with_client!(&self.client, client => {
                let task = Box::new(Task {
                    kernel: kernel.clone(),
                    language: self.language(),
                    properties: self.properties.clone(),
                });
                // SAFETY: each kernel keeps its indices below the lengths that the operation
                // which launches it has checked its arguments against.
                unsafe { client.launch_unchecked(task, count, arguments) }
            })
        })
    }

    fn server_error(&self, error: &ServerError) -> Error {
        use cubecl::server::{IoError, LaunchError};
        let device = self.label.clone();
        match error {
            ServerError::Io(IoError::BufferTooBig { size, .. }) => Error::OutOfMemory {
                device,
                requested: *size,
            },
            ServerError::Launch(
                error @ (LaunchError::CompilationError(_) | LaunchError::TooManyResources(_)),
            ) => Error::KernelCompilation {
                kernel: device,
                reason: error.to_string(),
            },
            ServerError::ServerUnhealthy { errors, .. } if !errors.is_empty() => {
                self.server_error(&errors[0])
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
}

impl cubecl_core::prelude::KernelMetadata for Task {
    fn name(&self) -> &'static str {
        self.kernel.name()
    }

    fn id(&self) -> KernelId {
        KernelId::new::<Self>()
            .address_type(AddressType::U32)
            .cube_dim(self.kernel.units())
            .info(self.kernel.key())
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
        let definition = self.kernel.definition(Some(&self.properties));
        let compiled = compiler.compile(definition, options, mode, address_type)?;
        let language = match compiler.extension() {
            "msl" => Language::Metal,
            "spv" => Language::SpirV,
            "wgsl" => Language::Wgsl,
            _ => self.language,
        };
        let source = super::text::without_contraction(language, &compiled.to_string());
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
