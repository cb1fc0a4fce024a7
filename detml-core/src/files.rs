use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// Writes `bytes` to `path`, whole or not at all: to a new file in the same folder, which is
/// then renamed. An older file of that name stays as it was until then.
///
/// # Errors
/// [`Error::Io`]; nothing is left behind.
pub fn write_atomic(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let path = path.as_ref();
    let (file, temporary) = create_beside(path)?;
    let written = write_and_rename(file, &temporary, path, bytes);
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(|error| Error::io(path, &error))
}

/// Bytes of an array of this shape, or `None` if no array can be so large. A zero axis doesn't
/// hide that the others overflow.
pub(crate) fn byte_length(width: usize, shape: &[usize]) -> Option<usize> {
    let mut others = shape.iter().filter(|&&axis| axis > 0);
    let largest = others
        .try_fold(width, |size, &axis| size.checked_mul(axis))
        .filter(|&size| size <= isize::MAX as usize)?;
    Some(if shape.contains(&0) { 0 } else { largest })
}

fn create_beside(path: &Path) -> Result<(File, PathBuf)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let Some(name) = path.file_name() else {
        return Err(Error::Io {
            path: path.to_path_buf(),
            reason: "the path names no file".into(),
        });
    };
    loop {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        hidden.push(format!(".{}.{number}.tmp", std::process::id()));
        let temporary = path.with_file_name(hidden);
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
        {
            Ok(file) => return Ok((file, temporary)),
            // Left by a process that had our number and died.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::io(path, &error)),
        }
    }
}

fn write_and_rename(
    mut file: File,
    temporary: &Path,
    path: &Path,
    bytes: &[u8],
) -> std::io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_whole_files_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        write_atomic(&path, b"old").unwrap();
        write_atomic(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");

        // A folder can't be replaced by a file.
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        fs::write(taken.join("inside"), b"").unwrap();
        assert!(matches!(write_atomic(&taken, b"x"), Err(Error::Io { .. })));
        let missing = folder.path().join("none/model");
        assert!(matches!(write_atomic(missing, b"x"), Err(Error::Io { .. })));
        assert!(matches!(write_atomic("/", b"x"), Err(Error::Io { .. })));
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["model", "taken"]);
    }
}
