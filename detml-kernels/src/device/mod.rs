//! Devices, buffers and launches.
//!
//! Everything that touches CubeCL's launch and compile API is in this module. An operation
//! describes its kernel as a [`Kernel`] value, which knows neither runtime nor device, and
//! [`Device::launch`] runs it.

mod buffer;
#[cfg(any(feature = "cuda", test))]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
mod cache;
#[cfg(feature = "gpu")]
mod checked;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "gpu")]
mod gpu;
mod kernel;
#[cfg(feature = "emulated")]
mod metal;
mod pool;
mod probe;
#[cfg(any(feature = "hip", feature = "wgpu"))]
mod server;
pub mod simd;
#[cfg(test)]
mod tests;
pub mod text;

pub(crate) use buffer::zeros;
pub use buffer::{Buffer, Element};
pub(crate) use kernel::scopes;
pub use kernel::{Definition, Kernel};
pub(crate) use pool::{Scratch, words};
pub(crate) use probe::kernel as probe_kernel;
pub(crate) use simd::Loop;
pub use simd::Simd;

use crate::ieee::FloatProfile;
use detml_core::{Backend, Error, Result, current_backend};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
#[cfg(feature = "gpu")]
use std::sync::OnceLock;
use std::sync::{Arc, Mutex};

/// A CPU or GPU that computes. Cheap to clone.
///
/// ```
/// use detml_kernels::Device;
///
/// let device = Device::cpu();
/// let buffer = device.upload(&[1.0f32, 2.0, 3.0])?;
/// assert_eq!(device.read(&buffer)?, [1.0, 2.0, 3.0]);
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    backend: Backend,
    /// What the driver calls it.
    name: String,
    kind: Kind,
}

enum Kind {
    Cpu(Simd),
    #[cfg(feature = "gpu")]
    Gpu {
        gpu: Box<gpu::Gpu>,
        profile: OnceLock<Result<FloatProfile>>,
    },
}

/// Bytes of a GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// What the buffers of this process hold now.
    pub held: u64,
    /// What they held at most, since the start or [`Device::reset_memory_peak`].
    pub peak: u64,
    /// What this process has taken from the device, to be used again and again.
    pub reserved: u64,
}

/// One argument of a launch.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    /// `len` elements seen as vectors of `width`.
    #[cfg(feature = "gpu")]
    Buffer {
        memory: &'a gpu::Memory,
        len: usize,
        width: usize,
    },
    /// There is no GPU to pass it to.
    #[cfg(not(feature = "gpu"))]
    Buffer(PhantomData<&'a ()>),
    F32(f32),
    U32(u32),
    I32(i32),
}

impl<'a, T: Element> From<&'a Buffer<T>> for Arg<'a> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        buffer.vectors(1)
    }
}

impl<'a, T: Element> From<&'a mut Buffer<T>> for Arg<'a> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        buffer.vectors(1)
    }
}

impl From<f32> for Arg<'_> {
    fn from(x: f32) -> Self {
        Self::F32(x)
    }
}

impl From<u32> for Arg<'_> {
    fn from(x: u32) -> Self {
        Self::U32(x)
    }
}

impl From<i32> for Arg<'_> {
    fn from(x: i32) -> Self {
        Self::I32(x)
    }
}

impl<T: Element> Buffer<T> {
    /// The buffer as an argument of a kernel that sees it as vectors of `width` elements.
    ///
    /// # Panics
    /// In a launch on the CPU device, which runs no kernels: operations dispatch before it.
    pub(crate) fn vectors(&self, width: usize) -> Arg<'_> {
        match &self.storage {
            #[cfg(feature = "gpu")]
            buffer::Storage::Gpu(memory) => Arg::Buffer {
                memory,
                len: self.len,
                width,
            },
            buffer::Storage::Host(_) => {
                let _ = width;
                unreachable!("a kernel was launched on the CPU device")
            }
        }
    }
}

/// The arguments of a launch, in the order in which the kernel's definition declares them.
macro_rules! args {
    ($($arg:expr),* $(,)?) => { &[$($crate::device::Arg::from($arg)),*] };
}
pub(crate) use args;

impl Device {
    /// The CPU, at the level of [`Simd::current`] or, where `DETML_SIMD` is wrong, the best one;
    /// [`Device::for_backend`] reports the error.
    pub fn cpu() -> Self {
        Self::cpu_with(Simd::current().unwrap_or_else(|_| Simd::best()))
    }

    /// The CPU at a given level, or at the best one where this CPU lacks it. The bits are the same.
    pub fn cpu_with(simd: Simd) -> Self {
        let simd = if simd.is_available() {
            simd
        } else {
            Simd::best()
        };
        Self {
            inner: Arc::new(Inner {
                backend: Backend::Cpu,
                name: format!("cpu {} {simd:?}", std::env::consts::ARCH).to_lowercase(),
                kind: Kind::Cpu(simd),
            }),
        }
    }

    /// The `index`-th CUDA device.
    ///
    /// # Errors
    /// `DeviceUnavailable` without the `cuda` feature, driver or device, `DeviceRefused` if it
    /// fails the conformance probe.
    pub fn cuda(index: usize) -> Result<Self> {
        Self::for_backend(Backend::Cuda(index))
    }

    /// The `index`-th HIP device. Errors as [`cuda`](Self::cuda).
    pub fn hip(index: usize) -> Result<Self> {
        Self::for_backend(Backend::Hip(index))
    }

    /// The `index`-th adapter of wgpu: Metal on macOS, Vulkan elsewhere. Errors as
    /// [`cuda`](Self::cuda).
    pub fn wgpu(index: usize) -> Result<Self> {
        Self::for_backend(Backend::Wgpu(index))
    }

    /// The device that the scope, the environment or the process chose
    /// (see [`current_backend`]).
    ///
    /// # Errors
    /// As [`for_backend`](Self::for_backend); `InvalidParameter` if `DETML_BACKEND` is wrong.
    pub fn current() -> Result<Self> {
        Self::for_backend(current_backend()?)
    }

    /// The device of a backend. [`Backend::Auto`] is the first of CUDA, HIP, wgpu that is present
    /// and passes the probe, else the CPU.
    ///
    /// A device is opened and probed once in a process.
    ///
    /// # Errors
    /// As [`cuda`](Self::cuda).
    pub fn for_backend(backend: Backend) -> Result<Self> {
        match backend {
            Backend::Cpu => Ok(Self::cpu_with(Simd::current()?)),
            Backend::Auto => {
                for backend in [Backend::Cuda(0), Backend::Hip(0), Backend::Wgpu(0)] {
                    if let Ok(device) = Self::for_backend(backend) {
                        return Ok(device);
                    }
                }
                Ok(Self::cpu_with(Simd::current()?))
            }
            gpu => {
                let device = Self::open(gpu)?;
                device.profile()?;
                Ok(device)
            }
        }
    }

    /// Opens a GPU without asking whether it conforms.
    pub(crate) fn open(backend: Backend) -> Result<Self> {
        static OPEN: Mutex<BTreeMap<String, Result<Device>>> = Mutex::new(BTreeMap::new());
        let mut open = OPEN.lock().unwrap_or_else(|e| e.into_inner());
        open.entry(backend.to_string())
            .or_insert_with(|| Self::connect(backend))
            .clone()
    }

    fn connect(backend: Backend) -> Result<Self> {
        #[cfg(feature = "gpu")]
        let device = |(gpu, name)| {
            Ok(Self {
                inner: Arc::new(Inner {
                    backend,
                    name,
                    kind: Kind::Gpu {
                        gpu: Box::new(gpu),
                        profile: OnceLock::new(),
                    },
                }),
            })
        };
        match backend {
            #[cfg(feature = "cuda")]
            Backend::Cuda(index) => device(gpu::Gpu::cuda(index)?),
            #[cfg(feature = "hip")]
            Backend::Hip(index) => device(gpu::Gpu::hip(index)?),
            #[cfg(feature = "emulated")]
            Backend::Wgpu(index) if cfg!(not(feature = "wgpu")) || metal::wanted() => {
                device(gpu::Gpu::metal(index)?)
            }
            #[cfg(feature = "wgpu")]
            Backend::Wgpu(index) => device(gpu::Gpu::wgpu(index)?),
            other => Err(Error::DeviceUnavailable {
                device: other.to_string(),
                reason: format!("this build has not the feature `{}`", other.kind()),
            }),
        }
    }

    /// The backend and index.
    pub fn backend(&self) -> Backend {
        self.inner.backend
    }

    /// What the driver calls the device; for the CPU its architecture and level.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The level of CPU loops, if this is the CPU.
    pub fn simd(&self) -> Option<Simd> {
        match self.inner.kind {
            Kind::Cpu(simd) => Some(simd),
            #[cfg(feature = "gpu")]
            Kind::Gpu { .. } => None,
        }
    }

    /// Whether this is the CPU.
    pub fn is_cpu(&self) -> bool {
        self.simd().is_some()
    }

    /// Whether kernels go to it in Metal's language.
    fn is_metal(&self) -> bool {
        #[cfg(feature = "emulated")]
        if let Kind::Gpu { gpu, .. } = &self.inner.kind
            && gpu.is_metal_text()
        {
            return true;
        }
        cfg!(target_os = "macos") && matches!(self.backend(), Backend::Wgpu(_))
    }

    /// Bytes of shared memory that a cube may have; 0 for the CPU.
    pub(crate) fn shared_memory(&self) -> usize {
        match &self.inner.kind {
            Kind::Cpu(_) => 0,
            #[cfg(feature = "gpu")]
            Kind::Gpu { gpu, .. } => gpu.shared_memory(),
        }
    }

    /// What the device computes itself and what is emulated on it, as the probe found (`N15`).
    ///
    /// # Errors
    /// `DeviceRefused` if it fails a property that can't be emulated.
    pub fn profile(&self) -> Result<FloatProfile> {
        match &self.inner.kind {
            Kind::Cpu(Simd::Plain) => Ok(FloatProfile::NO_FMA),
            Kind::Cpu(_) => Ok(FloatProfile::NATIVE),
            #[cfg(feature = "gpu")]
            Kind::Gpu { profile, .. } => profile.get_or_init(|| probe::probe(self)).clone(),
        }
    }

    /// Copies `data` to the device.
    ///
    /// # Errors
    /// `OutOfMemory`, `DeviceLost`.
    pub fn upload<T: Element>(&self, data: &[T]) -> Result<Buffer<T>> {
        match &self.inner.kind {
            Kind::Cpu(_) => Ok(Buffer::from_memory(self, buffer::upload(data)?)),
            #[cfg(feature = "gpu")]
            Kind::Gpu { gpu, .. } => {
                let memory = if data.is_empty() {
                    gpu.allocate(size_of::<T>())?
                } else {
                    gpu.check_size(data.len(), size_of::<T>())?;
                    gpu.upload(bytemuck::cast_slice(data))?
                };
                Ok(self.buffer(memory, data.len()))
            }
        }
    }

    /// Takes `data`; on the CPU without a copy. Errors as [`upload`](Self::upload).
    pub fn upload_vec<T: Element>(&self, data: Vec<T>) -> Result<Buffer<T>> {
        if self.is_cpu() {
            Ok(Buffer::from_host(self, data))
        } else {
            self.upload(&data)
        }
    }

    /// `len` elements whose values are not defined on the CPU either.
    ///
    /// # Errors
    /// As [`empty`](Self::empty).
    pub(crate) fn unwritten<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        match self.is_cpu() {
            true => Ok(Buffer::from_memory(self, buffer::unwritten(len)?)),
            false => self.empty(len),
        }
    }

    /// `len` elements whose values are not defined (zeros on the CPU).
    ///
    /// # Errors
    /// `OutOfMemory`, `DeviceLost`.
    pub fn empty<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        match &self.inner.kind {
            Kind::Cpu(_) => Ok(Buffer::from_memory(self, buffer::empty(len)?)),
            #[cfg(feature = "gpu")]
            Kind::Gpu { gpu, .. } => {
                gpu.check_size(len, size_of::<T>())?;
                let memory = gpu.allocate(len.max(1) * size_of::<T>())?;
                Ok(self.buffer(memory, len))
            }
        }
    }

    /// Copies a buffer of this device to the host. Waits for the work that fills it.
    ///
    /// # Errors
    /// Whatever that work met: `OutOfMemory`, `KernelCompilation`, `DeviceLost`; `Internal` if the
    /// buffer is another device's.
    pub fn read<T: Element>(&self, buffer: &Buffer<T>) -> Result<Vec<T>> {
        match (&self.inner.kind, &buffer.storage) {
            (_, buffer::Storage::Host(data)) => buffer::copy(data.elements()),
            #[cfg(feature = "gpu")]
            (Kind::Gpu { gpu, .. }, buffer::Storage::Gpu(memory)) => {
                let mut data = zeros::<T>(buffer.len())?;
                if !buffer.is_empty() {
                    gpu.read(memory, bytemuck::cast_slice_mut(&mut data))?;
                }
                Ok(data)
            }
            #[cfg(feature = "gpu")]
            (Kind::Cpu(_), buffer::Storage::Gpu(_)) => buffer.device.read(buffer),
        }
    }

    /// Waits until all work is done. Errors as [`read`](Self::read).
    pub fn sync(&self) -> Result<()> {
        match &self.inner.kind {
            Kind::Cpu(_) => Ok(()),
            #[cfg(feature = "gpu")]
            Kind::Gpu { gpu, .. } => gpu.sync(),
        }
    }

    /// Puts `cubes` cubes of `kernel` in the queue. A launch of no cubes does nothing.
    ///
    /// # Errors
    /// `KernelCompilation`, met by a kernel's first launch; `OutOfMemory`, `DeviceLost`.
    pub(crate) fn launch(
        &self,
        kernel: &Kernel,
        cubes: (u32, u32, u32),
        args: &[Arg<'_>],
    ) -> Result<()> {
        if cubes.0 == 0 || cubes.1 == 0 || cubes.2 == 0 {
            return Ok(());
        }
        match &self.inner.kind {
            Kind::Cpu(_) => {
                let _ = args;
                Err(Error::internal(format!("launch of {kernel:?} on the CPU")))
            }
            #[cfg(feature = "gpu")]
            Kind::Gpu { gpu, .. } => gpu.launch(kernel, cubes, args),
        }
    }

    /// The memory that buffers of a GPU take; `None` on the CPU.
    ///
    /// # Errors
    /// `DeviceLost`.
    pub fn memory_use(&self) -> Result<Option<MemoryUse>> {
        match &self.inner.kind {
            Kind::Cpu(_) => Ok(None),
            #[cfg(feature = "gpu")]
            Kind::Gpu { gpu, .. } => gpu.memory_use().map(Some),
        }
    }

    /// Makes what is held now the [`peak`](MemoryUse::peak).
    pub fn reset_memory_peak(&self) {
        match &self.inner.kind {
            Kind::Cpu(_) => {}
            #[cfg(feature = "gpu")]
            Kind::Gpu { gpu, .. } => gpu.reset_peak(),
        }
    }

    #[cfg(feature = "gpu")]
    fn buffer<T: Element>(&self, memory: gpu::Memory, len: usize) -> Buffer<T> {
        Buffer {
            storage: buffer::Storage::Gpu(memory),
            len,
            device: self.clone(),
            _type: PhantomData,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.inner.backend, self.inner.name)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}
