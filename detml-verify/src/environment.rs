//! What a witness tells of the machine that it was made on. Whatever the system does not tell is
//! called `unknown`.

use crate::table::MAX_NAME;
use detml_core::Backend;
use detml_kernels::Device;
use std::path::Path;
use std::process::Command;

pub(crate) const UNKNOWN: &str = "unknown";

/// A line of text as a witness may hold it: control characters made spaces, at most
/// `most` bytes.
pub(crate) fn line(text: &str, most: usize) -> String {
    let mut line = String::new();
    for c in text.trim().chars() {
        if line.len() + c.len_utf8() > most {
            break;
        }
        line.push(if c.is_control() { ' ' } else { c });
    }
    match line.trim() {
        "" => UNKNOWN.into(),
        line => line.to_owned(),
    }
}

fn short(text: Option<String>) -> String {
    line(&text.unwrap_or_default(), MAX_NAME)
}

fn file(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// What a program of the system prints.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    String::from_utf8(output.stdout).ok()
}

/// The value of the first line that starts with `name`, up to `separator`.
fn value(text: &str, name: &str, separator: char) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    let (_, value) = line.split_once(separator)?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// The operating system, its version and its kernel's.
pub(crate) fn system() -> String {
    short(if cfg!(target_os = "macos") {
        output("sw_vers", &["-productVersion"]).map(|version| format!("macOS {}", version.trim()))
    } else if cfg!(windows) {
        output("cmd", &["/C", "ver"])
    } else {
        let name = file("/etc/os-release").and_then(|text| value(&text, "PRETTY_NAME", '='));
        let name = name.unwrap_or_else(|| std::env::consts::OS.into());
        let kernel = file("/proc/sys/kernel/osrelease").unwrap_or_default();
        Some(format!("{name}, kernel {}", kernel.trim()))
    })
}

/// The model of the CPU.
pub(crate) fn cpu() -> String {
    short(if cfg!(target_os = "macos") {
        output("sysctl", &["-n", "machdep.cpu.brand_string"])
    } else if cfg!(windows) {
        std::env::var("PROCESSOR_IDENTIFIER").ok()
    } else {
        file("/proc/cpuinfo").and_then(|text| value(&text, "model name", ':'))
    })
}

/// The driver of a device; `none` for the CPU.
pub(crate) fn driver(device: &Device) -> String {
    short(match device.backend() {
        Backend::Cpu | Backend::Auto => Some("none".into()),
        Backend::Cuda(_) => {
            file("/proc/driver/nvidia/version").and_then(|text| value(&text, "NVRM version", ':'))
        }
        Backend::Hip(_) => {
            let root = std::env::var("ROCM_PATH").unwrap_or_else(|_| "/opt/rocm".into());
            file(Path::new(&root).join(".info/version"))
                .map(|version| format!("ROCm {}", version.trim()))
        }
        // Part of the system.
        Backend::Wgpu(_) if cfg!(target_os = "macos") => Some(system()),
        // `llvmpipe (LLVM 15.0.6, 256 bits) (Mesa 22.3.6 (LLVM 15.0.6))`
        Backend::Wgpu(_) => device
            .name()
            .find(") (")
            .map(|at| &device.name()[at + 3..])
            .or_else(|| device.name().split_once(" (").map(|(_, driver)| driver))
            .map(|driver| driver.strip_suffix(')').unwrap_or(driver).to_owned()),
    })
}

/// The features that this build has beyond the default.
pub(crate) fn features() -> String {
    let all = [
        ("cuda", cfg!(feature = "cuda")),
        ("hip", cfg!(feature = "hip")),
        ("wgpu", cfg!(feature = "wgpu")),
        ("codegen", cfg!(feature = "codegen")),
    ];
    let has: Vec<_> = all
        .iter()
        .filter(|(_, has)| *has)
        .map(|(n, _)| *n)
        .collect();
    if has.is_empty() {
        return "none".into();
    }
    has.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::is_text;

    #[test]
    fn what_is_told_fits_a_line() {
        for text in [system(), cpu(), features(), driver(&Device::cpu())] {
            assert!(is_text(&text), "{text:?}");
        }
        assert_eq!(line("\u{1b}[31m\nx\0", 9), "[31m x");
        assert_eq!(line("äöü", 3), "ä");
        assert_eq!(line(" \n", 9), UNKNOWN);
    }
}
