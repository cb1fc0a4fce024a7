//! Metal's text run on the CPU, for tests on machines that are no Macs: each kernel's MSL goes to
//! the emulator that `DETML_METAL_EMULATOR` names (see `detml-verify/emulator`). It takes the place
//! of wgpu's first device. What it shows, it shows of the text, not of Apple's compiler.

use super::Arg;
use super::gpu::{Memory, Task, foreign, guard, info, memories};
use super::kernel::{Kernel, Key};
use super::text::Language;
use cubecl::ir::{
    AddressType, DeviceProperties, HardwareProperties, MemoryDeviceProperties, VectorSize,
};
use cubecl_core::{CubeTask, ExecutionMode};
use cubecl_cpp::metal::MslDialect;
use cubecl_cpp::shared::{CompilationOptions, CppCompiler, CppSupportedFeatures};
use detml_core::{Error, Result};
use libloading::Library;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The variable that holds the emulator's path.
const VARIABLE: &str = "DETML_METAL_EMULATOR";

/// Bytes for a message of the emulator's, its end included.
const MESSAGE: usize = 1 << 14;

type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type Compile =
    unsafe extern "C" fn(*const c_char, *const c_char, *mut c_char, usize) -> *mut c_void;
type Launch = unsafe extern "C" fn(
    *mut c_void,
    *const u32,
    *const u32,
    *const *mut c_void,
    usize,
    *mut c_char,
    usize,
) -> i32;
type Describe = unsafe extern "C" fn() -> *const c_char;

struct Emulator {
    allocate: Allocate,
    free: Free,
    compile: Compile,
    launch: Launch,
    held: AtomicU64,
    _library: Library,
}

pub(super) struct Metal {
    label: String,
    emulator: Arc<Emulator>,
    /// What was compiled, or why it could not be. Held during a launch: there is one queue.
    kernels: Mutex<HashMap<(Key, bool), Compiled>>,
}

/// A kernel as the emulator knows it.
#[derive(Clone, Copy)]
struct Compiled(NonNull<c_void>);

// SAFETY: the emulator keeps kernels for ever and looks at none but in a launch, of which there is
// one at a time.
unsafe impl Send for Compiled {}

/// Memory of the emulator's.
pub(super) struct Block {
    at: NonNull<c_void>,
    bytes: usize,
    emulator: Arc<Emulator>,
}

// SAFETY: it is read and written in launches and copies, which `Metal` makes one at a time.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        self.emulator
            .held
            .fetch_sub(self.bytes as u64, Ordering::Relaxed);
        // SAFETY: `at` came from `allocate`, and no launch that uses it is running, since each is
        // waited for.
        unsafe { (self.emulator.free)(self.at.as_ptr()) }
    }
}

/// Whether the emulator takes the place of wgpu's devices.
pub(super) fn wanted() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

impl Metal {
    pub(super) fn open(label: &str, index: usize) -> Result<(Self, String, DeviceProperties)> {
        let unavailable = |reason: String| Error::DeviceUnavailable {
            device: label.into(),
            reason,
        };
        let path = std::env::var_os(VARIABLE)
            .ok_or_else(|| unavailable(format!("{VARIABLE} is not set")))?;
        if index > 0 {
            return Err(unavailable("there is 1 emulated device".into()));
        }
        // SAFETY: whoever sets the variable vouches for the library, as for `LD_LIBRARY_PATH`; its
        // functions have the types given here.
        let (emulator, name) = unsafe {
            let library = Library::new(&path).map_err(|error| unavailable(error.to_string()))?;
            let missing = |error: libloading::Error| unavailable(error.to_string());
            let describe: Describe = *library.get(b"detml_metal_describe").map_err(missing)?;
            let emulator = Emulator {
                allocate: *library.get(b"detml_allocate").map_err(missing)?,
                free: *library.get(b"detml_free").map_err(missing)?,
                compile: *library.get(b"detml_metal_compile").map_err(missing)?,
                launch: *library.get(b"detml_metal_launch").map_err(missing)?,
                held: AtomicU64::new(0),
                _library: library,
            };
            let name = CStr::from_ptr(describe()).to_string_lossy().into_owned();
            (emulator, name)
        };
        let metal = Self {
            label: label.into(),
            emulator: Arc::new(emulator),
            kernels: Mutex::default(),
        };
        Ok((metal, name, properties()))
    }

    pub(super) fn upload(&self, bytes: &[u8]) -> Result<Block> {
        let block = self.allocate(bytes.len())?;
        // SAFETY: the block is new and holds as many bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), block.at.as_ptr().cast(), bytes.len());
        }
        Ok(block)
    }

    /// Memory that the emulator has filled with patterns that are NaN.
    pub(super) fn allocate(&self, bytes: usize) -> Result<Block> {
        // SAFETY: it takes any size.
        let at = NonNull::new(unsafe { (self.emulator.allocate)(bytes) }).ok_or_else(|| {
            Error::OutOfMemory {
                device: self.label.clone(),
                requested: bytes as u64,
            }
        })?;
        self.emulator
            .held
            .fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(Block {
            at,
            bytes,
            emulator: self.emulator.clone(),
        })
    }

    pub(super) fn read(&self, block: &Block, to: &mut [u8]) -> Result<()> {
        if to.len() > block.bytes {
            return Err(Error::internal(format!(
                "reading {} bytes of {} from {}",
                to.len(),
                block.bytes,
                self.label
            )));
        }
        let _alone = self.kernels.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: the block holds as many bytes, and no launch is running.
        unsafe {
            std::ptr::copy_nonoverlapping(block.at.as_ptr().cast(), to.as_mut_ptr(), to.len());
        }
        Ok(())
    }

    pub(super) fn reserved(&self) -> u64 {
        self.emulator.held.load(Ordering::Relaxed)
    }

    pub(super) fn launch(
        &self,
        kernel: &Kernel,
        properties: &Arc<DeviceProperties>,
        cubes: (u32, u32, u32),
        args: &[Arg<'_>],
        faults: Option<&Memory>,
    ) -> Result<()> {
        let mut pointers = Vec::new();
        for memory in memories(args, faults) {
            let block = memory.metal().ok_or_else(|| foreign(&self.label))?;
            pointers.push(block.at.as_ptr());
        }
        let mut info = info(args, faults);
        pointers.push(info.data.as_mut_ptr().cast());
        let mut kernels = self.kernels.lock().unwrap_or_else(|e| e.into_inner());
        let key = (kernel.key(), faults.is_some());
        let compiled = match kernels.get(&key) {
            Some(compiled) => *compiled,
            None => {
                let compiled = self.compile(kernel, properties, faults.is_some())?;
                kernels.insert(key, compiled);
                compiled
            }
        };
        let units = kernel.units();
        let mut message = vec![0 as c_char; MESSAGE];
        // SAFETY: the kernel was compiled from text whose arguments these are, all of which live
        // until the launch has returned, after the last of its threads.
        let status = unsafe {
            (self.emulator.launch)(
                compiled.0.as_ptr(),
                [cubes.0, cubes.1, cubes.2].as_ptr(),
                [units.x, units.y, units.z].as_ptr(),
                pointers.as_ptr(),
                pointers.len(),
                message.as_mut_ptr(),
                message.len(),
            )
        };
        if status == 0 {
            return Ok(());
        }
        Err(Error::DeviceLost {
            device: self.label.clone(),
            reason: format!("{kernel:?}: {}", text_of(&message)),
        })
    }

    fn compile(
        &self,
        kernel: &Kernel,
        properties: &Arc<DeviceProperties>,
        checked: bool,
    ) -> Result<Compiled> {
        let refused = |reason: String| Error::KernelCompilation {
            kernel: kernel.name().into(),
            reason,
        };
        let task = Task {
            kernel: kernel.clone(),
            language: Language::Metal,
            properties: properties.clone(),
            checked,
        };
        let mode = match checked {
            true => ExecutionMode::Checked,
            false => ExecutionMode::Unchecked,
        };
        let mut compiler = CppCompiler::<MslDialect>::default();
        let options = CompilationOptions {
            warp_size: 32,
            supports_features: CppSupportedFeatures::default(),
        };
        let address = AddressType::U32.unsigned_type();
        // CubeCL panics on what it can't print.
        let compile = || task.compile(&mut compiler, &options, mode, address);
        let compiled = guard(&self.label, compile)?.map_err(|error| refused(error.to_string()))?;
        let source = CString::new(compiled.source).map_err(|error| refused(error.to_string()))?;
        let entry = CString::new(kernel.name()).map_err(|error| refused(error.to_string()))?;
        let mut message = vec![0 as c_char; MESSAGE];
        // SAFETY: both texts end with 0, and the message has the room that is told.
        let handle = unsafe {
            (self.emulator.compile)(
                source.as_ptr(),
                entry.as_ptr(),
                message.as_mut_ptr(),
                message.len(),
            )
        };
        NonNull::new(handle)
            .map(Compiled)
            .ok_or_else(|| refused(text_of(&message)))
    }
}

fn text_of(message: &[c_char]) -> String {
    let bytes: Vec<u8> = message
        .iter()
        .map(|c| *c as u8)
        .take_while(|c| *c != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What every Mac with Apple's own GPU has (Metal Feature Set Tables, families Apple7 and up).
fn properties() -> DeviceProperties {
    DeviceProperties::new(
        Default::default(),
        MemoryDeviceProperties {
            max_page_size: 1 << 32,
            alignment: 32,
        },
        HardwareProperties {
            load_width: 128,
            plane_size_min: 32,
            plane_size_max: 32,
            max_bindings: 31,
            max_shared_memory_size: 32 << 10,
            max_cube_count: (u16::MAX.into(), u16::MAX.into(), u16::MAX.into()),
            max_units_per_cube: 1024,
            max_cube_dim: (1024, 1024, 1024),
            num_streaming_multiprocessors: None,
            num_tensor_cores: None,
            min_tensor_cores_dim: None,
            num_cpu_cores: None,
            max_vector_size: VectorSize::MAX,
        },
        cubecl_core::profile::TimingMethod::System,
    )
}
