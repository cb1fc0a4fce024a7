//! CUDA's run-time compiler, opened from a folder; it needs no GPU.

use detml_core::{Error, Result};
use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;

type Program = *mut c_void;

/// An open NVRTC.
pub struct Nvrtc {
    library: Library,
    /// NVRTC looks for it by name: it must be loaded already.
    _builtins: Option<Library>,
}

/// What NVRTC made of a source.
pub struct Compiled {
    pub(super) ptx: String,
    pub(super) cubin: Vec<u8>,
}

impl Nvrtc {
    /// Opens the `libnvrtc.so` of `folder`.
    ///
    /// # Errors
    /// `Unsupported` if there is none that can be opened.
    pub fn open(folder: &Path) -> Result<Self> {
        let refused = |reason: String| Error::unsupported("NVRTC", reason);
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .map_err(|e| Error::io(folder, &e))?
            .filter_map(|entry| entry.ok().map(|e| e.path()))
            .filter(|path| {
                path.file_name().is_some_and(|name| {
                    let name = name.to_string_lossy();
                    name.starts_with("libnvrtc") && !name.contains(".alt.")
                })
            })
            .collect();
        names.sort();
        let named = |start: &str| {
            names
                .iter()
                .find(|path| {
                    path.file_name()
                        .is_some_and(|name| name.to_string_lossy().starts_with(start))
                })
                .cloned()
        };
        let path = named("libnvrtc.so")
            .ok_or_else(|| refused(format!("no libnvrtc.so in {}", folder.display())))?;
        // SAFETY: NVIDIA's libraries run no code of their own on loading.
        let open = |path: &Path| unsafe { Library::new(path) }.map_err(|e| refused(e.to_string()));
        Ok(Self {
            _builtins: named("libnvrtc-builtins.so")
                .map(|path| open(&path))
                .transpose()?,
            library: open(&path)?,
        })
    }

    /// `major.minor`.
    ///
    /// # Errors
    /// `Unsupported` if the library lacks the call.
    pub fn version(&self) -> Result<String> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the signature is NVRTC's.
        let status = unsafe {
            let call = self.symbol::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(
                b"nvrtcVersion\0",
            )?;
            call(&mut major, &mut minor)
        };
        self.check("nvrtcVersion", status)?;
        Ok(format!("{major}.{minor}"))
    }

    /// Compiles `source` for `arch`, letting the compiler contract or not.
    ///
    /// # Errors
    /// `KernelCompilation` with NVRTC's log.
    pub fn compile(&self, source: &str, arch: &str, contract: bool) -> Result<Compiled> {
        let source = CString::new(source)
            .map_err(|_| Error::internal("a kernel's text holds a zero byte"))?;
        let options = [
            format!("--gpu-architecture={arch}"),
            format!("--fmad={contract}"),
        ]
        .map(|text| CString::new(text).unwrap_or_default());
        let pointers = options.each_ref().map(|text| text.as_ptr());
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: the signatures are NVRTC's; every pointer is to memory that outlives its call,
        // and a program is destroyed once.
        unsafe {
            type Create = unsafe extern "C" fn(
                *mut Program,
                *const c_char,
                *const c_char,
                c_int,
                *const *const c_char,
                *const *const c_char,
            ) -> c_int;
            let create = self.symbol::<Create>(b"nvrtcCreateProgram\0")?;
            let status = create(
                &mut program,
                source.as_ptr(),
                std::ptr::null(),
                0,
                std::ptr::null(),
                std::ptr::null(),
            );
            self.check("nvrtcCreateProgram", status)?;
            let compile =
                self.symbol::<unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int>(
                    b"nvrtcCompileProgram\0",
                )?;
            let compiled = compile(program, pointers.len() as c_int, pointers.as_ptr());
            let result = if compiled == 0 {
                self.output(program, b"nvrtcGetPTXSize\0", b"nvrtcGetPTX\0")
                    .and_then(|ptx| {
                        // A virtual architecture has no machine code.
                        let cubin = if arch.starts_with("sm_") {
                            self.output(program, b"nvrtcGetCUBINSize\0", b"nvrtcGetCUBIN\0")?
                        } else {
                            Vec::new()
                        };
                        Ok(Compiled {
                            ptx: text(ptx),
                            cubin,
                        })
                    })
            } else {
                let log = self
                    .output(
                        program,
                        b"nvrtcGetProgramLogSize\0",
                        b"nvrtcGetProgramLog\0",
                    )
                    .map(text)
                    .unwrap_or_default();
                Err(Error::KernelCompilation {
                    kernel: arch.into(),
                    reason: log,
                })
            };
            let destroy = self
                .symbol::<unsafe extern "C" fn(*mut Program) -> c_int>(b"nvrtcDestroyProgram\0")?;
            destroy(&mut program);
            result
        }
    }

    /// # Safety
    /// `program` must be a live program, and the names those of a size and a copy function.
    unsafe fn output(&self, program: Program, size: &[u8], copy: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = 0usize;
        // SAFETY: the signature is NVRTC's.
        let status = unsafe {
            let call = self.symbol::<unsafe extern "C" fn(Program, *mut usize) -> c_int>(size)?;
            call(program, &mut bytes)
        };
        self.check("size", status)?;
        let mut buffer = vec![0u8; bytes];
        // SAFETY: the buffer is as long as NVRTC said.
        let status = unsafe {
            let call = self.symbol::<unsafe extern "C" fn(Program, *mut u8) -> c_int>(copy)?;
            call(program, buffer.as_mut_ptr())
        };
        self.check("copy", status)?;
        Ok(buffer)
    }

    /// # Safety
    /// `T` must be the signature of the function.
    unsafe fn symbol<T>(&self, name: &[u8]) -> Result<libloading::Symbol<'_, T>> {
        // SAFETY: the caller's.
        unsafe { self.library.get(name) }.map_err(|e| Error::unsupported("NVRTC", e.to_string()))
    }

    fn check(&self, call: &str, status: c_int) -> Result<()> {
        if status == 0 {
            Ok(())
        } else {
            Err(Error::unsupported(
                "NVRTC",
                format!("{call} returned {status}"),
            ))
        }
    }
}

/// A C string's bytes as text.
fn text(mut bytes: Vec<u8>) -> String {
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
