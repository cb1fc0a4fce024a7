//! A GPU as operations see it: memory and launches, whichever runtime serves it.

use super::checked;
#[cfg(feature = "cuda")]
use super::cuda;
use super::kernel::Kernel;
#[cfg(feature = "emulated")]
use super::metal;
#[cfg(any(feature = "hip", feature = "wgpu"))]
use super::server;
use super::text::Language;
use super::{Arg, MemoryUse};
use cubecl::ir::{AddressType, DeviceProperties, StorageType};
use cubecl::prelude::*;
use cubecl_core::InfoBuilder;
use cubecl_core::prelude::CompiledKernel;
use cubecl_core::{CompilationError, CubeTask, ExecutionMode};
use detml_core::{Error, Result};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open device.
pub(crate) struct Gpu {
    /// The backend and index, as errors name the device.
    label: String,
    runtime: Runtime,
    properties: Arc<DeviceProperties>,
    account: Arc<Account>,
}

/// What serves the device.
enum Runtime {
    #[cfg(feature = "cuda")]
    Cuda(cuda::Cuda),
    #[cfg(any(feature = "hip", feature = "wgpu"))]
    Server(server::Server),
    #[cfg(feature = "emulated")]
    Metal(metal::Metal),
}

/// The bytes that buffers hold now and held at most.
#[derive(Default)]
struct Account {
    now: AtomicU64,
    most: AtomicU64,
}

/// Memory of a device; free again when it is dropped.
pub(crate) struct Memory {
    place: Place,
    bytes: u64,
    account: Arc<Account>,
}

/// Memory as its runtime knows it.
enum Place {
    #[cfg(feature = "cuda")]
    Cuda(cuda::Block),
    #[cfg(any(feature = "hip", feature = "wgpu"))]
    Server(cubecl::server::Handle),
    #[cfg(feature = "emulated")]
    Metal(metal::Block),
}

impl Memory {
    #[cfg(feature = "cuda")]
    pub(super) fn block(&self) -> Option<&cuda::Block> {
        match &self.place {
            Place::Cuda(block) => Some(block),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }

    #[cfg(any(feature = "hip", feature = "wgpu"))]
    pub(super) fn handle(&self) -> Option<&cubecl::server::Handle> {
        match &self.place {
            Place::Server(handle) => Some(handle),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }

    #[cfg(feature = "emulated")]
    pub(super) fn metal(&self) -> Option<&metal::Block> {
        match &self.place {
            Place::Metal(block) => Some(block),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.account.now.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A NaN, a large index and a large count.
#[cfg(feature = "emulated")]
const POISON: u32 = 0x7fa5_a5a5;

/// Memory of another device.
pub(super) fn foreign(label: &str) -> Error {
    Error::internal(format!("memory of another device on {label}"))
}

impl Gpu {
    #[cfg(feature = "cuda")]
    pub(crate) fn cuda(index: usize) -> Result<(Self, String)> {
        let label = format!("cuda:{index}");
        let (cuda, name, properties) = cuda::Cuda::open(&label, index)?;
        Ok((Self::new(label, Runtime::Cuda(cuda), properties), name))
    }

    #[cfg(feature = "hip")]
    pub(crate) fn hip(index: usize) -> Result<(Self, String)> {
        let label = format!("hip:{index}");
        let (server, name, properties) = server::Server::hip(&label, index)?;
        Ok((Self::new(label, Runtime::Server(server), properties), name))
    }

    #[cfg(feature = "wgpu")]
    pub(crate) fn wgpu(index: usize) -> Result<(Self, String)> {
        let label = format!("wgpu:{index}");
        let (server, name, properties) = server::Server::wgpu(&label, index)?;
        Ok((Self::new(label, Runtime::Server(server), properties), name))
    }

    /// The emulator of Metal, in the place of wgpu's first device.
    #[cfg(feature = "emulated")]
    pub(crate) fn metal(index: usize) -> Result<(Self, String)> {
        let label = format!("wgpu:{index}");
        let (metal, name, properties) = metal::Metal::open(&label, index)?;
        Ok((Self::new(label, Runtime::Metal(metal), properties), name))
    }

    fn new(label: String, runtime: Runtime, properties: DeviceProperties) -> Self {
        Self {
            label,
            runtime,
            properties: Arc::new(properties),
            account: Arc::default(),
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

    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<Memory> {
        let place = match &self.runtime {
            #[cfg(feature = "cuda")]
            Runtime::Cuda(cuda) => Place::Cuda(cuda.upload(bytes)?),
            #[cfg(any(feature = "hip", feature = "wgpu"))]
            Runtime::Server(server) => Place::Server(server.upload(bytes)?),
            #[cfg(feature = "emulated")]
            Runtime::Metal(metal) => Place::Metal(metal.upload(bytes)?),
        };
        Ok(self.memory(place, bytes.len()))
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<Memory> {
        // What pools hand out again holds plausible numbers. More than some is not meant to be used.
        #[cfg(feature = "emulated")]
        if bytes <= 64 << 20 && std::env::var_os("DETML_POISON").is_some() {
            let words = vec![POISON; bytes.div_ceil(size_of::<u32>())];
            return self.upload(&bytemuck::cast_slice(&words)[..bytes]);
        }
        let place = match &self.runtime {
            #[cfg(feature = "cuda")]
            Runtime::Cuda(cuda) => Place::Cuda(cuda.allocate(bytes)?),
            #[cfg(any(feature = "hip", feature = "wgpu"))]
            Runtime::Server(server) => Place::Server(server.allocate(bytes)?),
            #[cfg(feature = "emulated")]
            Runtime::Metal(metal) => Place::Metal(metal.allocate(bytes)?),
        };
        Ok(self.memory(place, bytes))
    }

    fn memory(&self, place: Place, bytes: usize) -> Memory {
        let bytes = bytes as u64;
        let now = self.account.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.account.most.fetch_max(now, Ordering::Relaxed);
        Memory {
            place,
            bytes,
            account: self.account.clone(),
        }
    }

    /// Waits for the work that fills `memory` and copies its first bytes to `to`.
    pub(crate) fn read(&self, memory: &Memory, to: &mut [u8]) -> Result<()> {
        match &self.runtime {
            #[cfg(feature = "cuda")]
            Runtime::Cuda(cuda) => {
                cuda.read(memory.block().ok_or_else(|| foreign(&self.label))?, to)
            }
            #[cfg(any(feature = "hip", feature = "wgpu"))]
            Runtime::Server(server) => {
                server.read(memory.handle().ok_or_else(|| foreign(&self.label))?, to)
            }
            #[cfg(feature = "emulated")]
            Runtime::Metal(metal) => {
                metal.read(memory.metal().ok_or_else(|| foreign(&self.label))?, to)
            }
        }
    }

    pub(crate) fn sync(&self) -> Result<()> {
        match &self.runtime {
            #[cfg(feature = "cuda")]
            Runtime::Cuda(cuda) => cuda.sync(),
            #[cfg(any(feature = "hip", feature = "wgpu"))]
            Runtime::Server(server) => server.sync(),
            // It waits for each launch.
            #[cfg(feature = "emulated")]
            Runtime::Metal(_) => Ok(()),
        }
    }

    pub(crate) fn memory_use(&self) -> Result<MemoryUse> {
        let reserved = match &self.runtime {
            #[cfg(feature = "cuda")]
            Runtime::Cuda(cuda) => cuda.reserved(),
            #[cfg(any(feature = "hip", feature = "wgpu"))]
            Runtime::Server(server) => server.reserved()?,
            #[cfg(feature = "emulated")]
            Runtime::Metal(metal) => metal.reserved(),
        };
        Ok(MemoryUse {
            held: self.account.now.load(Ordering::Relaxed),
            peak: self.account.most.load(Ordering::Relaxed),
            reserved,
        })
    }

    /// What is held now becomes the peak.
    pub(crate) fn reset_peak(&self) {
        let now = self.account.now.load(Ordering::Relaxed);
        self.account.most.store(now, Ordering::Relaxed);
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
        let mut words = [0u32; checked::FAULT_WORDS];
        let faults = self.upload(bytemuck::cast_slice(&words))?;
        self.launch_with(kernel, cubes, args, Some(&faults))?;
        self.read(&faults, bytemuck::cast_slice_mut(&mut words))?;
        let Some(access) = (words[0] as usize).checked_sub(1) else {
            return Ok(());
        };
        let (_, accesses) = kernel.checked_definition(Some(&self.properties));
        Err(Error::internal(format!(
            "{kernel:?} on {}: index {} is outside the array in `{}`",
            self.label,
            words[1],
            accesses.get(access).map_or("?", |access| access.trim()),
        )))
    }

    /// Whether the emulator of Metal serves it.
    #[cfg(feature = "emulated")]
    pub(super) fn is_metal_text(&self) -> bool {
        matches!(self.runtime, Runtime::Metal(_))
    }

    /// Bytes of shared memory that a cube may have.
    pub(super) fn shared_memory(&self) -> usize {
        self.properties.hardware.max_shared_memory_size
    }

    fn launch_with(
        &self,
        kernel: &Kernel,
        cubes: (u32, u32, u32),
        args: &[Arg<'_>],
        faults: Option<&Memory>,
    ) -> Result<()> {
        #[cfg(test)]
        let kernel = &crate::codegen::mutation::hook::as_asked(kernel);
        #[cfg(test)]
        obeys_the_rules(kernel);
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
        match &self.runtime {
            #[cfg(feature = "cuda")]
            Runtime::Cuda(cuda) => cuda.launch(kernel, &self.properties, cubes, args, faults),
            #[cfg(any(feature = "hip", feature = "wgpu"))]
            Runtime::Server(server) => server.launch(kernel, &self.properties, cubes, args, faults),
            #[cfg(feature = "emulated")]
            Runtime::Metal(metal) => metal.launch(kernel, &self.properties, cubes, args, faults),
        }
    }
}

/// Suites launch variants that no list of representatives holds: each is linted once.
#[cfg(test)]
fn obeys_the_rules(kernel: &Kernel) {
    use std::collections::HashSet;
    use std::sync::Mutex;
    static SEEN: Mutex<Option<HashSet<super::kernel::Key>>> = Mutex::new(None);
    let mut seen = SEEN.lock().unwrap_or_else(|e| e.into_inner());
    if seen.get_or_insert_default().insert(kernel.key()) {
        drop(seen);
        let violations = crate::codegen::lint::lint(kernel);
        assert!(violations.is_empty(), "{violations:?}");
    }
}

/// The memory of a launch's buffers, in order, that of faults last.
pub(super) fn memories<'a>(
    args: &'a [Arg<'_>],
    faults: Option<&'a Memory>,
) -> impl Iterator<Item = &'a Memory> {
    let buffers = args.iter().filter_map(|arg| match arg {
        Arg::Buffer { memory, .. } => Some(*memory),
        _ => None,
    });
    buffers.chain(faults)
}

/// The words that a launch hands its kernel beside buffers: scalars, then the buffers' lengths.
pub(super) fn info(
    args: &[Arg<'_>],
    faults: Option<&Memory>,
) -> cubecl::server::MetadataBindingInfo {
    thread_local! {
        // Kept for the memory that it has grown to.
        static BUILDER: Cell<InfoBuilder> = Cell::default();
    }
    let mut info = BUILDER.take();
    info.scalars.push(-0.0f32);
    info.scalars.push(0u32);
    for arg in args {
        match arg {
            Arg::Buffer { len, width, .. } => {
                let vectors = (*len / *width) as u64;
                info.metadata
                    .register_array(vectors, vectors, AddressType::U32);
            }
            Arg::F32(x) => info.scalars.push(*x),
            Arg::U32(x) => info.scalars.push(*x),
            Arg::I32(x) => info.scalars.push(*x),
        }
    }
    if faults.is_some() {
        let words = checked::FAULT_WORDS as u64;
        info.metadata.register_array(words, words, AddressType::U32);
    }
    let words = info.finish(AddressType::U32);
    BUILDER.set(info);
    words
}

/// Runs what may panic inside CubeCL and turns the panic into a lost device.
pub(super) fn guard<T>(device: &str, work: impl FnOnce() -> T) -> Result<T> {
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
pub(super) struct Task {
    pub(super) kernel: Kernel,
    /// The language of compilers that don't name theirs.
    pub(super) language: Language,
    pub(super) properties: Arc<DeviceProperties>,
    /// Whether it has an output for faults.
    pub(super) checked: bool,
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
