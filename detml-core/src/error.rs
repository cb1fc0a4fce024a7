use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::NumericMode;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong in detml.
///
/// Each variant says what was expected, what was got and where. Rows and columns count from
/// zero, lines of files from one.
///
/// ```
/// use detml_core::Error;
///
/// let error = Error::parameter("learning_rate", "a finite number above 0", f32::NAN);
/// assert_eq!(
///     error.to_string(),
///     "parameter `learning_rate`: expected a finite number above 0, got NaN"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two shapes that must agree don't.
    #[error("{op}: expected shape {expected}, got {got}")]
    Shape {
        /// The operation that refused.
        op: String,
        /// The shape it needs.
        expected: String,
        /// The shape it was given.
        got: String,
    },
    /// Something that must hold at least one element holds none.
    #[error("{what} is empty; at least one element is needed")]
    Empty {
        /// What was empty.
        what: String,
    },
    /// A NaN or an infinity where the operation refuses one.
    #[error("{what}: expected a finite number at row {row}, column {column}, got {got}")]
    NonFinite {
        /// The array that was checked.
        what: String,
        /// Row of the first offender.
        row: usize,
        /// Column of the first offender (0 for vectors).
        column: usize,
        /// The offender.
        got: f64,
    },
    /// A value of an array lies outside its domain (a negative weight, say).
    #[error("{what}: expected {expected} at row {row}, got {got}")]
    InvalidValue {
        /// The array that was checked.
        what: String,
        /// Row of the first offender.
        row: usize,
        /// The domain.
        expected: String,
        /// The offender.
        got: String,
    },
    /// A hyperparameter lies outside its domain.
    #[error("parameter `{name}`: expected {expected}, got {got}")]
    InvalidParameter {
        /// Its name in the builder.
        name: String,
        /// The domain.
        expected: String,
        /// The value given.
        got: String,
    },
    /// A combination which detml doesn't offer.
    #[error("{what} is not supported: {reason}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// Why it is refused, and what works instead.
        reason: String,
    },
    /// A class label outside the known classes.
    #[error("label at row {row}: expected {expected}, got {got}")]
    LabelOutOfRange {
        /// Row of the first offender.
        row: usize,
        /// The known classes.
        expected: String,
        /// The label found.
        got: String,
    },
    /// The data has other features than the model was fitted on.
    #[error("features: the model was fitted on {expected}, got {got}")]
    FeatureMismatch {
        /// The features of the fit.
        expected: String,
        /// The features given.
        got: String,
    },
    /// A column that the data set doesn't hold.
    #[error("no column `{name}` in {what}; it has {available}")]
    MissingColumn {
        /// The data set or file.
        what: String,
        /// The column asked for.
        name: String,
        /// The columns it has.
        available: String,
    },
    /// A device computes something which detml can neither use nor emulate.
    #[error("device {device} refused: {property} must give {expected}, gave {got}")]
    DeviceRefused {
        /// The device's name.
        device: String,
        /// The property that failed.
        property: String,
        /// What IEEE 754 asks for.
        expected: String,
        /// What the device gave.
        got: String,
    },
    /// A device that isn't there, or whose driver can't be opened.
    #[error("device {device} is not available: {reason}")]
    DeviceUnavailable {
        /// The device asked for.
        device: String,
        /// Why it can't be had.
        reason: String,
    },
    /// A device which stopped answering; its buffers are gone.
    #[error("device {device} was lost: {reason}")]
    DeviceLost {
        /// The device's name.
        device: String,
        /// What the driver said.
        reason: String,
    },
    /// An allocation that doesn't fit.
    #[error("{device}: out of memory, {requested} bytes asked for")]
    OutOfMemory {
        /// The device, or `cpu`.
        device: String,
        /// Bytes asked for; 0 where the driver doesn't say.
        requested: u64,
    },
    /// A kernel that the device's compiler refused.
    #[error("kernel `{kernel}` does not compile: {reason}")]
    KernelCompilation {
        /// The kernel's name.
        kernel: String,
        /// What the compiler said.
        reason: String,
    },
    /// A numeric mode which this estimator doesn't have.
    #[error(
        "{estimator} has no numeric mode `{requested}`; it offers {}",
        modes(offered)
    )]
    NumericModeUnsupported {
        /// The estimator.
        estimator: String,
        /// The mode asked for.
        requested: NumericMode,
        /// The modes it has.
        offered: Vec<NumericMode>,
    },
    /// Text or bytes that don't follow their format.
    #[error("{origin}, line {line}: expected {expected}, got {got}")]
    Parse {
        /// The file, or the name of the text.
        origin: String,
        /// Line, from one (0 where the format has no lines).
        line: u64,
        /// What belongs there, naming the column where there is one.
        expected: String,
        /// What stands there.
        got: String,
    },
    /// A model file that is damaged, hostile or from another world.
    #[error("model file {origin}: {reason}")]
    ModelFile {
        /// The file, or `<bytes>`.
        origin: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused to read or write.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The caller's callback asked to stop before the work was done.
    #[error("{what} was stopped by its progress callback")]
    Stopped {
        /// The work that was stopped.
        what: String,
    },
    /// A fault of detml's own. Please report it.
    #[error("internal error in {what}; please report it")]
    Internal {
        /// Where, and what was found.
        what: String,
    },
}

fn modes(offered: &[NumericMode]) -> String {
    let names: Vec<String> = offered.iter().map(|mode| format!("`{mode}`")).collect();
    names.join(", ")
}

impl Error {
    /// [`Error::Shape`] from anything that can be shown.
    pub fn shape(op: impl Into<String>, expected: impl Display, got: impl Display) -> Self {
        Self::Shape {
            op: op.into(),
            expected: expected.to_string(),
            got: got.to_string(),
        }
    }

    /// [`Error::Empty`].
    pub fn empty(what: impl Into<String>) -> Self {
        Self::Empty { what: what.into() }
    }

    /// [`Error::InvalidParameter`] from anything that can be shown.
    pub fn parameter(name: impl Into<String>, expected: impl Display, got: impl Display) -> Self {
        Self::InvalidParameter {
            name: name.into(),
            expected: expected.to_string(),
            got: got.to_string(),
        }
    }

    /// [`Error::Unsupported`].
    pub fn unsupported(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unsupported {
            what: what.into(),
            reason: reason.into(),
        }
    }

    /// [`Error::Parse`] from anything that can be shown.
    pub fn parse(
        origin: impl Into<String>,
        line: u64,
        expected: impl Display,
        got: impl Display,
    ) -> Self {
        Self::Parse {
            origin: origin.into(),
            line,
            expected: expected.to_string(),
            got: got.to_string(),
        }
    }

    /// [`Error::ModelFile`].
    pub fn model_file(origin: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::ModelFile {
            origin: origin.into(),
            reason: reason.into(),
        }
    }

    /// [`Error::Io`] for `path`.
    pub fn io(path: impl AsRef<Path>, error: &std::io::Error) -> Self {
        Self::Io {
            path: path.as_ref().to_path_buf(),
            reason: error.to_string(),
        }
    }

    /// [`Error::Internal`].
    pub fn internal(what: impl Into<String>) -> Self {
        Self::Internal { what: what.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_travel_between_threads_and_stay_small() {
        fn check<T: Clone + Send + Sync + std::error::Error + 'static>() {}
        check::<Error>();
        // clippy's limit for a `Result` that is passed by value.
        assert!(size_of::<Error>() <= 128);
    }

    #[test]
    fn a_missing_mode_names_those_offered() {
        let error = Error::NumericModeUnsupported {
            estimator: "Ridge".into(),
            requested: NumericMode::Fast,
            offered: vec![NumericMode::Identical, NumericMode::Deterministic],
        };
        assert_eq!(
            error.to_string(),
            "Ridge has no numeric mode `fast`; it offers `identical`, `deterministic`"
        );
    }
}
