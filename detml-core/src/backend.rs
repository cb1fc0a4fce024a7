use std::cell::Cell;
use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;
use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Where operations run. Results have the same bits on each; only speed differs.
///
/// Written and read as `cpu`, `cuda:0`, `hip:1`, `wgpu:0` or `auto`; a device without a
/// number is number 0.
///
/// ```
/// use detml_core::Backend;
///
/// assert_eq!("cuda:1".parse(), Ok(Backend::Cuda(1)));
/// assert_eq!("wgpu".parse(), Ok(Backend::Wgpu(0)));
/// assert_eq!(Backend::Hip(0).to_string(), "hip:0");
/// assert!("tpu".parse::<Backend>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Backend {
    /// The host's processor; always there.
    #[default]
    Cpu,
    /// An NVIDIA GPU, by its CUDA ordinal.
    Cuda(usize),
    /// An AMD GPU, by its HIP ordinal.
    Hip(usize),
    /// A Vulkan or Metal device, by its number in wgpu's list.
    Wgpu(usize),
    /// The fastest device present which passes the conformance probe.
    Auto,
}

impl Backend {
    const VARIABLE: &'static str = "DETML_BACKEND";

    /// The kind without the device number: `cpu`, `cuda`, `hip`, `wgpu` or `auto`.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda(_) => "cuda",
            Self::Hip(_) => "hip",
            Self::Wgpu(_) => "wgpu",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu | Self::Auto => f.pad(self.kind()),
            Self::Cuda(index) | Self::Hip(index) | Self::Wgpu(index) => {
                f.pad(&format!("{}:{index}", self.kind()))
            }
        }
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text, "backend")
    }
}

impl From<Backend> for String {
    fn from(backend: Backend) -> Self {
        backend.to_string()
    }
}

impl TryFrom<String> for Backend {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

fn parse(text: &str, name: &str) -> Result<Backend> {
    let refuse = || {
        Error::parameter(
            name,
            "`cpu`, `auto`, or `cuda`, `hip` or `wgpu` with an optional `:number`",
            format_args!("`{}`", text.escape_default()),
        )
    };
    let lower = text.trim().to_ascii_lowercase();
    let (kind, index) = match lower.split_once(':') {
        None => (lower.as_str(), None),
        Some((kind, digits)) => {
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(refuse());
            }
            (kind, Some(digits.parse().map_err(|_| refuse())?))
        }
    };
    match (kind, index) {
        ("cpu", None) => Ok(Backend::Cpu),
        ("auto", None) => Ok(Backend::Auto),
        ("cuda", index) => Ok(Backend::Cuda(index.unwrap_or(0))),
        ("hip", index) => Ok(Backend::Hip(index.unwrap_or(0))),
        ("wgpu", index) => Ok(Backend::Wgpu(index.unwrap_or(0))),
        _ => Err(refuse()),
    }
}

thread_local! {
    static SCOPE: Cell<Option<Backend>> = const { Cell::new(None) };
}
static DEFAULT: RwLock<Option<Backend>> = RwLock::new(None);

struct Restore(Option<Backend>);

impl Drop for Restore {
    fn drop(&mut self) {
        SCOPE.set(self.0);
    }
}

/// Runs `work` with `backend` chosen on this thread, whatever the environment says.
///
/// Scopes nest; the former choice comes back at the end, also when `work` panics. The choice
/// belongs to the calling thread: it isn't seen by threads which `work` starts.
///
/// ```
/// use detml_core::{Backend, current_backend, with_backend};
///
/// let inside = with_backend(Backend::Cuda(1), current_backend);
/// assert_eq!(inside, Ok(Backend::Cuda(1)));
/// ```
pub fn with_backend<R>(backend: Backend, work: impl FnOnce() -> R) -> R {
    let _restore = Restore(SCOPE.replace(Some(backend)));
    work()
}

/// Sets the backend of the whole process, for where no scope and no `DETML_BACKEND` says
/// otherwise.
pub fn set_default_backend(backend: Backend) {
    *DEFAULT.write().unwrap_or_else(PoisonError::into_inner) = Some(backend);
}

/// The backend chosen now: the innermost [`with_backend`] scope, else the environment
/// variable `DETML_BACKEND`, else [`set_default_backend`], else [`Backend::Cpu`].
///
/// # Errors
/// [`Error::InvalidParameter`] if `DETML_BACKEND` decides and names no backend.
pub fn current_backend() -> Result<Backend> {
    resolve(
        SCOPE.get(),
        std::env::var_os(Backend::VARIABLE).as_deref(),
        *DEFAULT.read().unwrap_or_else(PoisonError::into_inner),
    )
}

fn resolve(
    scope: Option<Backend>,
    variable: Option<&OsStr>,
    default: Option<Backend>,
) -> Result<Backend> {
    if let Some(backend) = scope {
        return Ok(backend);
    }
    // An empty variable is what `DETML_BACKEND= command` sets: no choice.
    if let Some(text) = variable.filter(|text| !text.is_empty()) {
        return parse(&text.to_string_lossy(), Backend::VARIABLE);
    }
    Ok(default.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for backend in [
            Backend::Cpu,
            Backend::Auto,
            Backend::Cuda(0),
            Backend::Hip(3),
            Backend::Wgpu(12),
        ] {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        assert_eq!(" CUDA:2 ".parse(), Ok(Backend::Cuda(2)));
        for bad in [
            "",
            "gpu",
            "cpu:0",
            "auto:1",
            "cuda:",
            "cuda:+1",
            "cuda:-1",
            "cuda:1:2",
            "cuda: 1",
            "wgpu:99999999999999999999999",
        ] {
            assert!(
                matches!(bad.parse::<Backend>(), Err(Error::InvalidParameter { .. })),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn scopes_nest_and_survive_a_panic() {
        let outer = with_backend(Backend::Cuda(0), || {
            let inner = with_backend(Backend::Wgpu(1), current_backend);
            assert_eq!(inner, Ok(Backend::Wgpu(1)));
            let unwound = std::panic::catch_unwind(|| {
                with_backend(Backend::Hip(0), || std::panic::resume_unwind(Box::new(())))
            });
            assert!(unwound.is_err());
            current_backend()
        });
        assert_eq!(outer, Ok(Backend::Cuda(0)));
        assert_eq!(SCOPE.get(), None);
    }

    #[test]
    fn scope_beats_variable_beats_default() {
        let (scope, default) = (Some(Backend::Cuda(1)), Some(Backend::Hip(0)));
        let variable = Some(OsStr::new("wgpu:2"));
        assert_eq!(resolve(scope, variable, default), Ok(Backend::Cuda(1)));
        assert_eq!(resolve(None, variable, default), Ok(Backend::Wgpu(2)));
        assert_eq!(resolve(None, None, default), Ok(Backend::Hip(0)));
        assert_eq!(resolve(None, Some(OsStr::new("")), None), Ok(Backend::Cpu));
        assert_eq!(
            resolve(None, Some(OsStr::new("gpu!")), default)
                .unwrap_err()
                .to_string(),
            "parameter `DETML_BACKEND`: expected `cpu`, `auto`, or `cuda`, `hip` or `wgpu` \
             with an optional `:number`, got `gpu!`"
        );
    }
}
