//! Compiled kernels on disk, across processes.
//!
//! A file is named by a digest of everything that its contents follow from: the sources of this
//! crate, the kernel's name, variant and profile, the device's architecture and limits, the
//! compiler's version. So a changed kernel, compiler or device never meets an old file, and files
//! are never invalidated, only crowded out. CubeCL's version is pinned in this crate's manifest;
//! who patches it clears the folder or sets `DETML_CACHE=off`.

use detml_core::BitHash;
use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

/// The layout of files: another one lives in another folder.
const LAYOUT: &str = "kernels-1";
const MAGIC: &[u8; 8] = b"detmlk-1";
/// Bytes of all files, beyond which the oldest go.
const MOST: u64 = 1 << 29;
/// Files written between two looks at their sum.
const ROUND: u32 = 64;

/// A folder of compiled kernels.
pub(super) struct Cache {
    folder: PathBuf,
    most: u64,
    written: AtomicU32,
}

impl Cache {
    /// The folder that the environment names: `DETML_CACHE_DIR`, else `detml` in `XDG_CACHE_HOME`
    /// or in `.cache` at home. None with `DETML_CACHE=off` or where there is no home.
    pub(super) fn of_user() -> Option<Self> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if variable("DETML_CACHE").is_some_and(|value| value == "off") {
            return None;
        }
        let folder = match (variable("DETML_CACHE_DIR"), variable("XDG_CACHE_HOME")) {
            (Some(own), _) => PathBuf::from(own),
            (None, Some(shared)) => PathBuf::from(shared).join("detml"),
            (None, None) => std::env::home_dir()
                .filter(|home| home.is_absolute())?
                .join(".cache/detml"),
        };
        Some(Self::new(folder, MOST))
    }

    fn new(folder: PathBuf, most: u64) -> Self {
        Self {
            folder: folder.join(LAYOUT),
            most,
            written: AtomicU32::new(0),
        }
    }

    /// What everything that a compiled kernel follows from is called.
    pub(super) fn name(parts: &[&str]) -> BitHash {
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part.as_bytes());
        }
        BitHash::of_bytes(&bytes)
    }

    fn path(&self, name: &BitHash) -> PathBuf {
        self.folder.join(name.to_hex())
    }

    /// The compiled kernel of that name, if its file is there and whole.
    pub(super) fn get(&self, name: &BitHash) -> Option<Vec<u8>> {
        let mut file = fs::File::open(self.path(name)).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let rest = bytes.strip_prefix(MAGIC)?;
        let (digest, image) = rest.split_at_checked(64)?;
        (digest == Self::digest(name, image).as_bytes()).then(|| image.to_vec())
    }

    /// Keeps `image`. A failure is none: the kernel will be compiled again.
    pub(super) fn put(&self, name: &BitHash, image: &[u8]) {
        if self.write(name, image).is_ok()
            && self.written.fetch_add(1, Ordering::Relaxed) % ROUND == 0
        {
            let _ = self.shrink();
        }
    }

    /// A digest of a file's contents and its name, so that neither a torn nor a misplaced file
    /// passes.
    fn digest(name: &BitHash, image: &[u8]) -> String {
        let mut bytes = name.to_hex().into_bytes();
        bytes.extend(image);
        BitHash::of_bytes(&bytes).to_hex()
    }

    /// Readers see the whole file or none: it takes its name when it is written.
    fn write(&self, name: &BitHash, image: &[u8]) -> io::Result<()> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        fs::create_dir_all(&self.folder)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let draft = self.folder.join(format!("draft-{process}-{number}"));
        let written = fs::File::create_new(&draft).and_then(|mut file| {
            file.write_all(MAGIC)?;
            file.write_all(Self::digest(name, image).as_bytes())?;
            file.write_all(image)?;
            fs::rename(&draft, self.path(name))
        });
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        written
    }

    /// Removes the files written first until half of the room is free, if it is used up.
    fn shrink(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let about = entry.metadata()?;
            let age = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            files.push((age, about.len(), entry.path()));
        }
        let mut sum: u64 = files.iter().map(|(_, len, _)| len).sum();
        if sum <= self.most {
            return Ok(());
        }
        files.sort();
        for (_, len, path) in files {
            if sum <= self.most / 2 {
                break;
            }
            fs::remove_file(path)?;
            sum -= len;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(test: &str, most: u64) -> Cache {
        let process = std::process::id();
        let folder = std::env::temp_dir().join(format!("detml-cache-{test}-{process}"));
        let _ = fs::remove_dir_all(&folder);
        Cache::new(folder, most)
    }

    fn done(cache: Cache) {
        fs::remove_dir_all(cache.folder.parent().unwrap()).unwrap();
    }

    #[test]
    fn names_tell_every_part_apart() {
        let names = [
            &["text", "13.0", "sm_90a"][..],
            &["text", "13.0", "sm_80"],
            &["text", "13.1", "sm_90a"],
            &["texu", "13.0", "sm_90a"],
            &["text1", "3.0", "sm_90a"],
            &["text", "13.0sm_90a"],
        ]
        .map(|parts| Cache::name(parts).to_hex());
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name), "{i}");
        }
    }

    #[test]
    fn what_is_put_is_got() {
        let cache = empty("got", MOST);
        let (one, other) = (Cache::name(&["one"]), Cache::name(&["other"]));
        assert_eq!(cache.get(&one), None);
        cache.put(&one, b"image");
        cache.put(&other, b"");
        assert_eq!(cache.get(&one).unwrap(), b"image");
        assert_eq!(cache.get(&other).unwrap(), b"");
        cache.put(&one, b"another image");
        assert_eq!(cache.get(&one).unwrap(), b"another image");
        done(cache);
    }

    /// A file that is cut off, changed in any byte, or another kernel's is as good as none, and
    /// is written anew.
    #[test]
    fn damaged_files_are_ignored() {
        let cache = empty("damage", MOST);
        let (name, other) = (Cache::name(&["one"]), Cache::name(&["other"]));
        let image: Vec<u8> = (0..100).collect();
        cache.put(&name, &image);
        let path = cache.path(&name);
        let whole = fs::read(&path).unwrap();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(cache.get(&name), None, "cut to {len}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            assert_eq!(cache.get(&name), None, "changed at {at}");
        }
        cache.put(&name, &image);
        assert_eq!(cache.get(&name).unwrap(), image);
        fs::copy(&path, cache.path(&other)).unwrap();
        assert_eq!(cache.get(&other), None, "misplaced");
        done(cache);
    }

    #[test]
    fn the_oldest_files_make_room() {
        let cache = empty("room", 4000);
        for i in 0..10u64 {
            let name = Cache::name(&[&i.to_string()]);
            cache.write(&name, &[0; 500]).unwrap();
            let age = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 + i);
            let file = fs::File::options().append(true).open(cache.path(&name));
            file.unwrap().set_modified(age).unwrap();
        }
        cache.shrink().unwrap();
        let there: Vec<u64> = (0..10)
            .filter(|i| cache.get(&Cache::name(&[&i.to_string()])).is_some())
            .collect();
        assert_eq!(there, [7, 8, 9]);
        cache.shrink().unwrap();
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 3);
        done(cache);
    }

    /// A folder that can't be written is no error.
    #[test]
    fn a_cache_may_be_out_of_order() {
        let file = std::env::temp_dir().join(format!("detml-no-folder-{}", std::process::id()));
        fs::write(&file, "a file").unwrap();
        let cache = Cache::new(file.clone(), MOST);
        let name = Cache::name(&["one"]);
        cache.put(&name, b"image");
        assert_eq!(cache.get(&name), None);
        fs::remove_file(file).unwrap();
    }
}
