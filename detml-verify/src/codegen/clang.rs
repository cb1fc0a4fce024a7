//! A clang with AMD's targets, which needs neither a GPU nor ROCm.

use super::isa::{self, Isa};
use detml_core::{Error, Result};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Stands where a kernel's text includes HIP's headers.
const HEADER: &str = include_str!("hip_runtime.h");

/// How much a compilation may contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contraction {
    /// As the driver's compiler is called: clang's default for HIP, which heeds the text's pragma.
    Product,
    /// Wherever a product meets a sum. The text must not forbid it.
    Always,
}

/// An open clang.
pub struct Clang {
    clang: PathBuf,
    objdump: Option<PathBuf>,
    /// Holds the headers, and objects for a moment.
    folder: PathBuf,
}

impl Clang {
    /// Makes `clang` ready, and `objdump` to look at machine code too.
    ///
    /// # Errors
    /// `Io` if the headers can't be written.
    pub fn open(clang: &Path, objdump: Option<&Path>) -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("detml-amd-{process}-{number}"));
        let headers = folder.join("hip");
        std::fs::create_dir_all(&headers).map_err(|e| Error::io(&headers, &e))?;
        for name in ["hip_runtime.h", "hip_fp16.h"] {
            let header = headers.join(name);
            std::fs::write(&header, HEADER).map_err(|e| Error::io(&header, &e))?;
        }
        Ok(Self {
            clang: clang.to_owned(),
            objdump: objdump.map(Path::to_owned),
            folder,
        })
    }

    /// What clang calls itself.
    ///
    /// # Errors
    /// `Io` or `Unsupported` if it doesn't run.
    pub fn version(&self) -> Result<String> {
        let output = self.run(Command::new(&self.clang).arg("--version"), "")?;
        Ok(output.lines().next().unwrap_or_default().to_owned())
    }

    /// LLVM's representation of `source`, optimised, as the code generator gets it.
    ///
    /// # Errors
    /// `Unsupported` with clang's messages.
    pub fn representation(&self, source: &str, arch: &str) -> Result<String> {
        self.compile(source, arch, Contraction::Product, &["-S", "-emit-llvm"])
    }

    /// The assembly of `source`.
    ///
    /// # Errors
    /// `Unsupported` with clang's messages.
    pub fn assembly(&self, source: &str, arch: &str, contraction: Contraction) -> Result<String> {
        self.compile(source, arch, contraction, &["-S"])
    }

    /// The assembly of `source` from a code generator that places no block twice.
    ///
    /// # Errors
    /// `Unsupported` with clang's messages.
    pub fn placed_once(&self, source: &str, arch: &str) -> Result<String> {
        let options = ["-S", "-mllvm", "-tail-dup-placement=false"];
        self.compile(source, arch, Contraction::Product, &options)
    }

    /// The instructions of the machine code of `source`; none without a disassembler.
    ///
    /// # Errors
    /// `Unsupported` with the tools' messages.
    pub(super) fn machine_code(&self, source: &str, arch: &str) -> Result<Option<Isa>> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let Some(objdump) = &self.objdump else {
            return Ok(None);
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let object = self.folder.join(format!("{number}.o"));
        let path = object.to_string_lossy();
        let options = ["-c", "--no-gpu-bundle-output", "-o", &*path];
        self.compile(source, arch, Contraction::Product, &options)?;
        let mut command = Command::new(objdump);
        command.args(["-d", "--no-show-raw-insn"]).arg(&object);
        let listing = self.run(&mut command, "");
        let _ = std::fs::remove_file(&object);
        Ok(Some(isa::read(&listing?)))
    }

    fn compile(
        &self,
        source: &str,
        arch: &str,
        contraction: Contraction,
        options: &[&str],
    ) -> Result<String> {
        let mut command = Command::new(&self.clang);
        // Those with which CubeCL calls HIP's run-time compiler, and what stands in for ROCm.
        command.args(["-x", "hip", "-std=c++17", "-O3", "--cuda-device-only"]);
        command
            .args(["-nogpuinc", "-nogpulib", "-I"])
            .arg(&self.folder);
        command.arg(format!("--offload-arch={arch}"));
        match contraction {
            Contraction::Product => {}
            Contraction::Always => drop(command.arg("-ffp-contract=fast")),
        }
        if !options.contains(&"-o") {
            command.args(["-o", "-"]);
        }
        self.run(command.args(options).arg("-"), source)
    }

    /// What a command prints that reads `input`.
    fn run(&self, command: &mut Command, input: &str) -> Result<String> {
        let program = PathBuf::from(command.get_program());
        let failed = |e: &std::io::Error| Error::io(&program, e);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| failed(&e))?;
        // Clang reads all of its input before it writes; one that ended says so below.
        if let Some(mut pipe) = child.stdin.take() {
            let _ = pipe.write_all(input.as_bytes());
        }
        let output = child.wait_with_output().map_err(|e| failed(&e))?;
        if !output.status.success() {
            let messages = String::from_utf8_lossy(&output.stderr);
            return Err(Error::unsupported(
                program.display().to_string(),
                messages.chars().take(4000).collect::<String>(),
            ));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Clang {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
