//! CUDA, straight through its driver: CubeCL writes a kernel's text, the rest is done here.
//!
//! CubeCL's own server would put a thread, two closures and several look-ups before each launch and
//! would not take code that is already compiled. Here a launch is the driver's call on the calling
//! thread, memory comes from a pool whose every byte is counted, and compiled kernels are kept on
//! disk.
//!
//! All work of a process on one device goes through one stream, in the order in which the host
//! asks for it. So memory can be used again as soon as the host gives it back: what still reads it
//! comes first.

use super::Arg;
use super::cache::Cache;
use super::gpu::{Memory, Task, foreign, guard, info, memories};
use super::kernel::{Kernel, Key};
use super::text::Language;
use cubecl::ir::{AddressType, DeviceProperties};
use cubecl_core::{CubeTask, ExecutionMode, Runtime};
use cubecl_cuda::CudaRuntime;
use cudarc::driver::{DriverError, result as driver, sys};
use cudarc::nvrtc::{result as nvrtc, sys as compiler};
use detml_core::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

type Compiler = <CudaRuntime as Runtime>::Compiler;

/// Buffers of one launch.
const MOST_BUFFERS: usize = 32;
/// Bytes that are copied aside before an upload, so that the host need not wait for it.
const STAGED: usize = 1 << 16;
/// Bytes copied aside before the host waits after all.
const MOST_STAGED: usize = 1 << 22;

/// An open device. It is never closed.
pub(super) struct Cuda {
    label: String,
    pool: Arc<Pool>,
    stream: sys::CUstream,
    /// As the compiler is told it.
    architecture: String,
    functions: RwLock<HashMap<(Key, bool), Function>>,
    /// Uploads that may still be read.
    staged: Mutex<Vec<Box<[u8]>>>,
    cache: Option<Cache>,
}

// SAFETY: contexts, streams and functions of the driver may be used by any thread.
unsafe impl Send for Cuda {}
// SAFETY: as above; what changes is behind locks.
unsafe impl Sync for Cuda {}

/// A kernel's code on the device.
#[derive(Clone, Copy)]
struct Function {
    handle: sys::CUfunction,
    /// Bytes of shared memory.
    shared: u32,
}

/// A kernel's code in memory or on disk.
struct Code {
    image: Vec<u8>,
    shared: u32,
}

impl Code {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.shared.to_le_bytes().to_vec();
        bytes.extend(&self.image);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (shared, image) = bytes.split_first_chunk::<4>()?;
        Some(Self {
            image: image.to_vec(),
            shared: u32::from_le_bytes(*shared),
        })
    }
}

/// A piece of device memory; the pool has it again when it is dropped.
pub(super) struct Block {
    address: u64,
    bytes: usize,
    pool: Arc<Pool>,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.pool.give(self.address, self.bytes);
    }
}

/// Memory taken from the device, in use or free.
struct Pool {
    context: sys::CUcontext,
    /// Bytes that may lie free.
    most_free: usize,
    free: Mutex<Free>,
}

// SAFETY: a context may be used by any thread.
unsafe impl Send for Pool {}
// SAFETY: as above; what changes is behind a lock.
unsafe impl Sync for Pool {}

#[derive(Default)]
struct Free {
    /// Addresses by size.
    blocks: BTreeMap<usize, Vec<u64>>,
    bytes: usize,
    /// Bytes taken from the device, free or not.
    reserved: usize,
}

impl Free {
    /// A block of at least `bytes`, and at most a quarter more.
    fn take(&mut self, bytes: usize) -> Option<(u64, usize)> {
        let (&size, addresses) = self.blocks.range_mut(bytes..=bytes + bytes / 4).next()?;
        let address = addresses.pop()?;
        if addresses.is_empty() {
            self.blocks.remove(&size);
        }
        self.bytes -= size;
        Some((address, size))
    }

    fn put(&mut self, address: u64, bytes: usize) {
        self.blocks.entry(bytes).or_default().push(address);
        self.bytes += bytes;
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Makes the device that of the calling thread.
    fn enter(&self) -> std::result::Result<(), DriverError> {
        // SAFETY: the context is retained for ever.
        unsafe { driver::ctx::set_current(self.context) }
    }

    /// Whole pages of the device or, if it is less, of the driver's smallest pieces.
    fn round(bytes: usize) -> usize {
        let unit = if bytes < 1 << 20 { 512 } else { 1 << 21 };
        bytes.max(1).div_ceil(unit) * unit
    }

    fn take(&self, bytes: usize) -> std::result::Result<(u64, usize), DriverError> {
        let size = Self::round(bytes);
        if let Some(found) = self.lock().take(size) {
            return Ok(found);
        }
        self.enter()?;
        // SAFETY: a call without preconditions but a current context.
        let allocate = || unsafe { driver::malloc_sync(size) };
        let address = match allocate() {
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                self.release();
                allocate()?
            }
            other => other?,
        };
        self.lock().reserved += size;
        Ok((address, size))
    }

    fn give(&self, address: u64, bytes: usize) {
        let mut free = self.lock();
        if free.bytes + bytes <= self.most_free {
            free.put(address, bytes);
            return;
        }
        free.reserved -= bytes;
        drop(free);
        self.free(address);
    }

    /// Gives the device what lies free.
    fn release(&self) {
        let mut free = self.lock();
        let blocks = std::mem::take(&mut free.blocks);
        free.reserved -= free.bytes;
        free.bytes = 0;
        drop(free);
        for address in blocks.into_values().flatten() {
            self.free(address);
        }
    }

    fn free(&self, address: u64) {
        if self.enter().is_ok() {
            // SAFETY: the address is one that the driver gave and nobody holds. The call waits for
            // all work of the device. Its failure leaves the memory taken: nothing else can be
            // done about it.
            let _ = unsafe { driver::free_sync(address) };
        }
    }
}

impl Cuda {
    /// Opens device `index`; its name and properties.
    pub(super) fn open(label: &str, index: usize) -> Result<(Self, String, DeviceProperties)> {
        let unavailable = |reason: String| Error::DeviceUnavailable {
            device: label.into(),
            reason,
        };
        guard(label, || Self::find(label, index))?.map_err(unavailable)
    }

    fn find(
        label: &str,
        index: usize,
    ) -> std::result::Result<(Self, String, DeviceProperties), String> {
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        // SAFETY: both calls only try to open the driver's shared libraries.
        let present = unsafe { sys::is_culib_present() && compiler::is_culib_present() };
        if !present {
            return Err("the CUDA driver (libcuda) or NVRTC (libnvrtc) can't be opened".into());
        }
        let error = |e: DriverError| e.to_string();
        driver::init().map_err(error)?;
        let count = driver::device::get_count().map_err(error)? as usize;
        if index >= count {
            return Err(format!("there are {count} CUDA devices"));
        }
        let id = driver::device::get(index as i32).map_err(error)?;
        let name = driver::device::get_name(id).map_err(error)?;
        // SAFETY: `id` is a device that the driver has just named.
        let capability = |part| unsafe { driver::device::get_attribute(id, part).map_err(error) };
        let (major, minor) = (capability(MAJOR)?, capability(MINOR)?);
        if major < 7 {
            return Err(format!("{name} is sm_{major}{minor}, older than sm_70"));
        }
        // Code for one architecture alone may use all it has, as CubeCL's kernels do.
        let own = if major >= 9 { "a" } else { "" };
        let properties = CudaRuntime::client(&cubecl_cuda::CudaDevice::new(index))
            .properties()
            .clone();
        // SAFETY: `id` is a device; the context is never released.
        let context = unsafe { driver::primary_ctx::retain(id) }.map_err(error)?;
        // SAFETY: as above.
        unsafe { driver::ctx::set_current(context) }.map_err(error)?;
        let stream =
            driver::stream::create(driver::stream::StreamKind::NonBlocking).map_err(error)?;
        let pool = Pool {
            context,
            // A quarter of the device's memory is `max_page_size`.
            most_free: 2 * properties.memory.max_page_size as usize,
            free: Mutex::default(),
        };
        let cuda = Self {
            label: label.into(),
            pool: Arc::new(pool),
            stream,
            architecture: format!("sm_{major}{minor}{own}"),
            functions: RwLock::default(),
            staged: Mutex::default(),
            cache: Cache::of_user(),
        };
        Ok((cuda, format!("{name} (sm_{major}{minor})"), properties))
    }

    /// Our error for one of the driver's.
    fn error(&self, error: DriverError) -> Error {
        let device = self.label.clone();
        match error.0 {
            // It doesn't say how much.
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::OutOfMemory {
                device,
                requested: 0,
            },
            _ => Error::DeviceLost {
                device,
                reason: error.to_string(),
            },
        }
    }

    fn enter(&self) -> Result<()> {
        self.pool.enter().map_err(|e| self.error(e))
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<Block> {
        let (address, size) = self.pool.take(bytes).map_err(|e| match self.error(e) {
            Error::OutOfMemory { device, .. } => Error::OutOfMemory {
                device,
                requested: bytes as u64,
            },
            other => other,
        })?;
        Ok(Block {
            address,
            bytes: size,
            pool: self.pool.clone(),
        })
    }

    pub(super) fn upload(&self, bytes: &[u8]) -> Result<Block> {
        let block = self.allocate(bytes.len())?;
        self.enter()?;
        if bytes.len() > STAGED {
            self.copy_in(&block, bytes)?;
            self.wait()?;
            return Ok(block);
        }
        let mut staged = self.staged.lock().unwrap_or_else(|e| e.into_inner());
        if staged.len() * STAGED >= MOST_STAGED {
            self.wait()?;
            staged.clear();
        }
        let bytes: Box<[u8]> = bytes.into();
        let copied = self.copy_in(&block, &bytes);
        staged.push(bytes);
        copied.map(|()| block)
    }

    /// `bytes` must stay until the stream has come so far.
    fn copy_in(&self, block: &Block, bytes: &[u8]) -> Result<()> {
        // SAFETY: the block holds that many bytes; both callers keep `bytes` until they have
        // waited.
        unsafe { driver::memcpy_htod_async(block.address, bytes, self.stream) }
            .map_err(|e| self.error(e))
    }

    pub(super) fn read(&self, block: &Block, to: &mut [u8]) -> Result<()> {
        if to.len() > block.bytes {
            return Err(Error::internal(format!(
                "reading {} bytes of {} on {}",
                to.len(),
                block.bytes,
                self.label
            )));
        }
        self.enter()?;
        // SAFETY: the block holds that many bytes; `to` is borrowed until the wait ends.
        let copied = unsafe { driver::memcpy_dtoh_async(to, block.address, self.stream) };
        self.wait()?;
        copied.map_err(|e| self.error(e))
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.enter()?;
        let mut staged = self.staged.lock().unwrap_or_else(|e| e.into_inner());
        let done = std::mem::take(&mut *staged);
        drop(staged);
        let waited = self.wait();
        drop(done);
        waited
    }

    fn wait(&self) -> Result<()> {
        // SAFETY: the stream is never destroyed.
        unsafe { driver::stream::synchronize(self.stream) }.map_err(|e| self.error(e))
    }

    /// Bytes taken from the device.
    pub(super) fn reserved(&self) -> u64 {
        self.pool.lock().reserved as u64
    }

    pub(super) fn launch(
        &self,
        kernel: &Kernel,
        properties: &Arc<DeviceProperties>,
        cubes: (u32, u32, u32),
        args: &[Arg<'_>],
        faults: Option<&Memory>,
    ) -> Result<()> {
        let function = self.function(kernel, properties, faults.is_some())?;
        let mut addresses = [0u64; MOST_BUFFERS];
        let mut count = 0;
        for memory in memories(args, faults) {
            let block = memory.block().ok_or_else(|| foreign(&self.label))?;
            let Some(address) = addresses.get_mut(count) else {
                return Err(Error::internal(format!("too many buffers for {kernel:?}")));
            };
            *address = block.address;
            count += 1;
        }
        let mut info = info(args, faults);
        // The buffers' addresses, then the structure of scalars and lengths.
        let mut parameters = [std::ptr::null_mut::<c_void>(); MOST_BUFFERS + 1];
        for (parameter, address) in parameters.iter_mut().zip(&mut addresses[..count]) {
            *parameter = std::ptr::from_mut(address).cast();
        }
        parameters[count] = info.data.as_mut_ptr().cast();
        let units = kernel.units();
        self.enter()?;
        // SAFETY: the parameters are those that the kernel's definition declares, in its order, and
        // the driver copies them. Each kernel keeps its indices below the lengths that the operation
        // which launches it has checked its arguments against; with `DETML_CHECKED=1` the suites
        // run with every index compared with its array's length. Memory that the launch uses is
        // given to others only after it in the stream.
        let launched = unsafe {
            driver::launch_kernel(
                function.handle,
                cubes,
                (units.x, units.y, units.z),
                function.shared,
                self.stream,
                &mut parameters[..=count],
            )
        };
        launched.map_err(|e| match e.0 {
            sys::CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
            | sys::CUresult::CUDA_ERROR_INVALID_VALUE => self.not_compiled(kernel, e.to_string()),
            _ => self.error(e),
        })
    }

    fn not_compiled(&self, kernel: &Kernel, reason: String) -> Error {
        Error::KernelCompilation {
            kernel: kernel.name().into(),
            reason,
        }
    }

    fn function(
        &self,
        kernel: &Kernel,
        properties: &Arc<DeviceProperties>,
        checked: bool,
    ) -> Result<Function> {
        let key = (kernel.key(), checked);
        let functions = self.functions.read().unwrap_or_else(|e| e.into_inner());
        if let Some(function) = functions.get(&key) {
            return Ok(*function);
        }
        drop(functions);
        // Threads compile beside each other, if need be the same.
        let function = self.compile(kernel, properties, checked)?;
        let mut functions = self.functions.write().unwrap_or_else(|e| e.into_inner());
        Ok(*functions.entry(key).or_insert(function))
    }

    fn compile(
        &self,
        kernel: &Kernel,
        properties: &Arc<DeviceProperties>,
        checked: bool,
    ) -> Result<Function> {
        let Some(cache) = &self.cache else {
            let code = self.translate(kernel, properties, checked)?;
            return self.load(kernel, &code);
        };
        // All that the code follows from. Writing the text takes longer than reading the code, so
        // it is not in the name, but the sources that write it are.
        let name = Cache::name(&[
            env!("DETML_KERNELS_SOURCES"),
            &format!("{kernel:?}"),
            &format!("{:?} {checked}", kernel.units()),
            &format!("{:?}", properties.hardware),
            &self.architecture,
            &compiler_version(),
        ]);
        if let Some(function) = cache
            .get(&name)
            .and_then(|bytes| Code::from_bytes(&bytes))
            .and_then(|code| self.load(kernel, &code).ok())
        {
            return Ok(function);
        }
        let code = self.translate(kernel, properties, checked)?;
        cache.put(&name, &code.to_bytes());
        self.load(kernel, &code)
    }

    /// The kernel's machine code.
    fn translate(
        &self,
        kernel: &Kernel,
        properties: &Arc<DeviceProperties>,
        checked: bool,
    ) -> Result<Code> {
        let task = Task {
            kernel: kernel.clone(),
            language: Language::Cuda,
            properties: properties.clone(),
            checked,
        };
        let mut options = <Compiler as cubecl_core::Compiler>::CompilationOptions::default();
        // Scalars and lengths are a parameter, not a buffer.
        options.supports_features.grid_constants = true;
        let mode = if checked {
            ExecutionMode::Checked
        } else {
            ExecutionMode::Unchecked
        };
        let printed = guard(&self.label, || {
            let address = AddressType::U32.unsigned_type();
            CubeTask::<Compiler>::compile(&task, &mut Compiler::default(), &options, mode, address)
        })?
        .map_err(|e| self.not_compiled(kernel, e.to_string()))?;
        let shared = printed.repr.map_or(0, |repr| repr.shared_memory_size());
        let most = properties.hardware.max_shared_memory_size;
        if shared > most {
            let reason = format!("{shared} bytes of shared memory, {} has {most}", self.label);
            return Err(self.not_compiled(kernel, reason));
        }
        let source = printed.source;
        let mut options = vec![format!("--gpu-architecture={}", self.architecture)];
        if source.contains("#include") {
            if let Some(path) = cubecl_cuda::install::cuda_path() {
                options.push(format!("--include-path={}/include", path.display()));
            }
        }
        let image = translate(&source, &options).map_err(|e| self.not_compiled(kernel, e))?;
        Ok(Code {
            image,
            shared: shared as u32,
        })
    }

    fn load(&self, kernel: &Kernel, code: &Code) -> Result<Function> {
        use sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as SHARED;
        let Code { image, shared } = code;
        let shared = *shared;
        self.enter()?;
        let name =
            CString::new(kernel.name()).map_err(|e| self.not_compiled(kernel, e.to_string()))?;
        // SAFETY: the image is one that the compiler has made, whole, and names the entry point.
        let handle = unsafe {
            driver::module::load_data(image.as_ptr().cast())
                .and_then(|module| driver::module::get_function(module, name))
                .and_then(|handle| {
                    if shared > 0 {
                        driver::function::set_function_attribute(handle, SHARED, shared as i32)?;
                    }
                    Ok(handle)
                })
        }
        .map_err(|e| match e.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => self.error(e),
            _ => self.not_compiled(kernel, e.to_string()),
        })?;
        Ok(Function { handle, shared })
    }
}

/// What the compiler calls itself.
fn compiler_version() -> String {
    let (mut major, mut minor): (c_int, c_int) = (0, 0);
    // SAFETY: both outlive the call. A failure leaves 0.0, which is a version like any other.
    let _ = unsafe { compiler::nvrtcVersion(&mut major, &mut minor) };
    format!("NVRTC {major}.{minor}")
}

/// A program in the compiler's memory.
struct Program(compiler::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was created and is destroyed once.
        let _ = unsafe { nvrtc::destroy_program(self.0) };
    }
}

/// Machine code of CUDA text.
fn translate(source: &str, options: &[String]) -> std::result::Result<Vec<u8>, String> {
    let text = CString::new(source).map_err(|e| e.to_string())?;
    let failed = |e: nvrtc::NvrtcError| format!("{e:?}");
    let program = Program(nvrtc::create_program(&text, None).map_err(failed)?);
    // SAFETY: the program is there until the end of this function.
    if let Err(error) = unsafe { nvrtc::compile_program(program.0, options) } {
        // SAFETY: as above.
        let log = unsafe { nvrtc::get_program_log(program.0) }.unwrap_or_default();
        let log: Vec<u8> = log
            .iter()
            .map(|&c| c as u8)
            .take_while(|&c| c != 0)
            .collect();
        let log = String::from_utf8_lossy(&log);
        return Err(format!("{error:?}\n{log}\n{source}"));
    }
    let mut size = 0;
    // SAFETY: the program has been compiled for a real architecture, so there is machine code.
    unsafe { compiler::nvrtcGetCUBINSize(program.0, &mut size) }
        .result()
        .map_err(failed)?;
    let mut image = vec![0u8; size];
    // SAFETY: as above, and the image has the size asked for.
    unsafe { compiler::nvrtcGetCUBIN(program.0, image.as_mut_ptr().cast::<c_char>()) }
        .result()
        .map_err(failed)?;
    Ok(image)
}
