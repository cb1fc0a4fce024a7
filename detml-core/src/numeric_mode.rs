use std::cell::Cell;
use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;
use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// How far a result's bits are promised.
///
/// Written and read as `identical`, `deterministic` or `fast`. An estimator which lacks a
/// mode refuses it by name ([`Error::NumericModeUnsupported`]); it never falls back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NumericMode {
    /// The same bits on every device of every vendor.
    #[default]
    Identical,
    /// The same bits on each run with the same device and software.
    Deterministic,
    /// No promise about bits.
    Fast,
}

const VARIABLE: &str = "DETML_NUMERIC_MODE";

impl fmt::Display for NumericMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Identical => "identical",
            Self::Deterministic => "deterministic",
            Self::Fast => "fast",
        })
    }
}

impl FromStr for NumericMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text, "numeric mode")
    }
}

fn parse(text: &str, name: &str) -> Result<NumericMode> {
    match text.trim().to_ascii_lowercase().as_str() {
        "identical" => Ok(NumericMode::Identical),
        "deterministic" => Ok(NumericMode::Deterministic),
        "fast" => Ok(NumericMode::Fast),
        _ => Err(Error::parameter(
            name,
            "`identical`, `deterministic` or `fast`",
            format_args!("`{}`", text.escape_default()),
        )),
    }
}

thread_local! {
    static SCOPE: Cell<Option<NumericMode>> = const { Cell::new(None) };
}
static DEFAULT: RwLock<Option<NumericMode>> = RwLock::new(None);

struct Restore(Option<NumericMode>);

impl Drop for Restore {
    fn drop(&mut self) {
        SCOPE.set(self.0);
    }
}

/// Runs `work` with `mode` chosen on this thread, whatever the environment says.
///
/// Scopes nest; the former choice comes back at the end, also when `work` panics. The choice
/// belongs to the calling thread: it isn't seen by threads which `work` starts.
pub fn with_numeric_mode<R>(mode: NumericMode, work: impl FnOnce() -> R) -> R {
    let _restore = Restore(SCOPE.replace(Some(mode)));
    work()
}

/// Sets the numeric mode of the whole process, for where no scope and no
/// `DETML_NUMERIC_MODE` says otherwise.
pub fn set_default_numeric_mode(mode: NumericMode) {
    *DEFAULT.write().unwrap_or_else(PoisonError::into_inner) = Some(mode);
}

/// The numeric mode chosen now: the innermost [`with_numeric_mode`] scope, else the
/// environment variable `DETML_NUMERIC_MODE`, else [`set_default_numeric_mode`], else
/// [`NumericMode::Identical`].
///
/// # Errors
/// [`Error::InvalidParameter`] if `DETML_NUMERIC_MODE` decides and names no mode.
pub fn current_numeric_mode() -> Result<NumericMode> {
    resolve(
        SCOPE.get(),
        std::env::var_os(VARIABLE).as_deref(),
        *DEFAULT.read().unwrap_or_else(PoisonError::into_inner),
    )
}

/// The numeric mode chosen now, if it is one of those `estimator` offers.
///
/// ```
/// use detml_core::{NumericMode, require_numeric_mode, with_numeric_mode};
///
/// let offered = [NumericMode::Identical];
/// assert!(require_numeric_mode("Ridge", &offered).is_ok());
/// with_numeric_mode(NumericMode::Fast, || {
///     assert!(require_numeric_mode("Ridge", &offered).is_err());
/// });
/// ```
///
/// # Errors
/// [`Error::NumericModeUnsupported`] if it isn't; those of [`current_numeric_mode`].
pub fn require_numeric_mode(estimator: &str, offered: &[NumericMode]) -> Result<NumericMode> {
    let requested = current_numeric_mode()?;
    if offered.contains(&requested) {
        return Ok(requested);
    }
    Err(Error::NumericModeUnsupported {
        estimator: estimator.into(),
        requested,
        offered: offered.to_vec(),
    })
}

fn resolve(
    scope: Option<NumericMode>,
    variable: Option<&OsStr>,
    default: Option<NumericMode>,
) -> Result<NumericMode> {
    if let Some(mode) = scope {
        return Ok(mode);
    }
    if let Some(text) = variable.filter(|text| !text.is_empty()) {
        return parse(&text.to_string_lossy(), VARIABLE);
    }
    Ok(default.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_beats_variable_beats_default() {
        let fast = Some(OsStr::new("Fast"));
        assert_eq!(
            resolve(Some(NumericMode::Deterministic), fast, None),
            Ok(NumericMode::Deterministic)
        );
        assert_eq!(
            resolve(None, fast, Some(NumericMode::Deterministic)),
            Ok(NumericMode::Fast)
        );
        assert_eq!(
            resolve(None, None, Some(NumericMode::Deterministic)),
            Ok(NumericMode::Deterministic)
        );
        assert_eq!(resolve(None, None, None), Ok(NumericMode::Identical));
        assert!(matches!(
            resolve(None, Some(OsStr::new("exact")), None),
            Err(Error::InvalidParameter { .. })
        ));
    }

    #[test]
    fn scopes_nest_and_survive_a_panic() {
        with_numeric_mode(NumericMode::Deterministic, || {
            let unwound = std::panic::catch_unwind(|| {
                with_numeric_mode(NumericMode::Fast, || {
                    assert_eq!(current_numeric_mode(), Ok(NumericMode::Fast));
                    std::panic::resume_unwind(Box::new(()))
                })
            });
            assert!(unwound.is_err());
            assert_eq!(current_numeric_mode(), Ok(NumericMode::Deterministic));
        });
        assert_eq!(SCOPE.get(), None);
    }
}
