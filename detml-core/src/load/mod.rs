//! Files in, [`Dataset`]s out. Whatever stands in a file, the answer is data or an error that
//! says where; memory is reserved for what was read, not for what a header claims.

mod csv;
mod libsvm;
mod npy;

use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

pub use self::csv::CsvOptions;
pub use self::npy::{NpyArray, NpyElement, read_npy, read_npz, write_npy};

use crate::{Dataset, Error, Result};

impl Dataset {
    /// Reads a CSV file, plain or gzip, with a header line and numbers below it.
    ///
    /// An empty cell, `NA`, `N/A`, `NaN` or `null` is a missing value (NaN). Numbers are
    /// rounded once, from the decimal text to `f32`. For text columns or other separators see
    /// [`CsvOptions`].
    ///
    /// # Errors
    /// [`Error::Parse`] with the line for text where a number belongs, rows of unequal length,
    /// a name given twice, a row beyond 64 MiB, or bytes that aren't UTF-8;
    /// [`Error::Empty`] without rows; [`Error::Io`] (broken gzip too).
    pub fn from_csv(path: impl AsRef<Path>) -> Result<Self> {
        CsvOptions::new().load(path)
    }

    /// Reads features (rows x columns) from one npy file and a target from another.
    ///
    /// # Errors
    /// As [`read_npy`] and [`Dataset::from_arrays`]; [`Error::Shape`] for another number of
    /// axes.
    pub fn from_npy(features: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<Self> {
        let features = read_npy(features)?.into_matrix()?;
        let target = read_npy(target)?.into_vector()?;
        Self::from_arrays(features, target)
    }

    /// Reads features (rows x columns) and a target from two arrays of an npz file.
    ///
    /// # Errors
    /// As [`read_npz`] and [`Dataset::from_arrays`]; [`Error::MissingColumn`] for a name that
    /// isn't there; [`Error::Shape`] for another number of axes.
    pub fn from_npz(path: impl AsRef<Path>, features: &str, target: &str) -> Result<Self> {
        let mut arrays = read_npz(path.as_ref())?;
        let mut take = |name: &str| {
            arrays.remove(name).ok_or_else(|| Error::MissingColumn {
                what: path.as_ref().display().to_string(),
                name: name.into(),
                available: crate::dataset::list(&arrays.keys().cloned().collect::<Vec<_>>()),
            })
        };
        let target = take(target)?;
        Self::from_arrays(take(features)?.into_matrix()?, target.into_vector()?)
    }

    /// Reads a file in the format of LIBSVM and SVMrank, plain or gzip: on each line a target,
    /// optionally `qid:group`, then `column:value` with columns from 1, ascending; a column
    /// that isn't named is 0. Features are named `x0`, `x1` and so on.
    ///
    /// # Errors
    /// [`Error::Parse`] with the line; [`Error::Empty`] without rows; [`Error::OutOfMemory`]
    /// if the dense table would be out of all proportion to the file; [`Error::Io`].
    pub fn from_libsvm(path: impl AsRef<Path>) -> Result<Self> {
        libsvm::parse(open(path.as_ref())?)
    }
}

/// Bytes that one row may have.
const MAX_LINE: u64 = 64 << 20;

/// A text, unpacked, read line by line.
struct Text<'a> {
    source: Box<dyn BufRead + 'a>,
    origin: String,
    line: u64,
}

impl<'a> Text<'a> {
    fn new(source: impl Read + 'a, origin: &str) -> Result<Self> {
        let mut source = BufReader::with_capacity(1 << 16, source);
        let start = source
            .fill_buf()
            .map_err(|error| Error::io(origin, &error))?;
        let source: Box<dyn BufRead + 'a> = if start.starts_with(&[0x1f, 0x8b]) {
            let unpacked = flate2::bufread::MultiGzDecoder::new(source);
            Box::new(BufReader::with_capacity(1 << 16, unpacked))
        } else {
            Box::new(source)
        };
        Ok(Self {
            source,
            origin: origin.into(),
            line: 0,
        })
    }

    /// Appends the next line with its line end; false at the end of the text.
    fn append_line(&mut self, bytes: &mut Vec<u8>) -> Result<bool> {
        let room = MAX_LINE.saturating_sub(bytes.len() as u64);
        let got = (&mut self.source)
            .take(room + 1)
            .read_until(b'\n', bytes)
            .map_err(|error| Error::io(&self.origin, &error))?;
        self.line += u64::from(got > 0);
        if got as u64 > room {
            let expected = format!("at most {MAX_LINE} bytes in a row");
            return Err(self.refuse(self.line, expected, "more"));
        }
        Ok(got > 0)
    }

    fn refuse(&self, line: u64, expected: impl Display, got: impl Display) -> Error {
        Error::parse(&self.origin, line, expected, got)
    }
}

fn open(path: &Path) -> Result<Text<'static>> {
    let file = File::open(path).map_err(|error| Error::io(path, &error))?;
    Text::new(file, &path.display().to_string())
}

/// A cell from a file, fit to be shown in an error.
fn shown(cell: &str) -> String {
    const SHOWN: usize = 60;
    let mut text: String = cell.chars().take(SHOWN).collect();
    if text.len() < cell.len() {
        text.push_str("...");
    }
    format!("`{}`", text.escape_debug())
}
