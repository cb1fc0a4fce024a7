//! Records of what was proved of kernels' code: which texts, for which column, at which layer.
//! Written by the commands that prove (`--record FILE`), never by hand.
//!
//! A file below `fixtures/proofs/` first names columns and layers, then the texts that hold for them, by
//! their hashes in `fixtures/codegen/manifest.tsv` and the numbers of the lines above, counted from 0
//! (here with spaces for tabs):
//!
//! ```text
//! # column  layer  date  toolchain  language  profiles
//! hip-gfx90a  text  2026-11-30  clang 19.1.7  Hip  native,emulated
//! hip-gfx90a  machine  2026-11-30  clang 19.1.7  Hip  native,emulated
//! # text  lines
//! 0123456789abcdef0123456789abcdef  0,1
//! ```
//!
//! A text that changes has another hash, so what was proved of the old one no longer counts, and
//! only what changed needs proving again.

use crate::table::{is_hash, is_name, is_text};
use crate::witness::today;
use detml_core::{Error, Result, write_atomic};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::path::Path;

/// How near to a device a proof comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// The code that detml hands to the vendor's compiler, or that compiler's own representation
    /// (PTX, LLVM's), was checked.
    Text,
    /// Machine code was checked.
    Machine,
    /// Code was run on the device.
    Executed,
    /// Code was run by something that stands in for the device.
    Emulated,
}

impl Layer {
    /// All layers, in the order of their names' meaning.
    pub const ALL: [Self; 4] = [Self::Text, Self::Machine, Self::Executed, Self::Emulated];

    /// Its name in a file of records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Machine => "machine",
            Self::Executed => "executed",
            Self::Emulated => "emulated",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What was proved of one column at one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The kind of device: `cuda-sm90`, `hip-gfx942`.
    pub column: String,
    /// What was looked at.
    pub layer: Layer,
    /// Day of the last proof, as `YYYY-MM-DD`.
    pub date: String,
    /// Compilers and other tools.
    pub toolchain: String,
    /// The language of the texts: `Cuda`, `Hip`.
    pub language: String,
    /// The profiles that the column's kernels come in.
    pub profiles: Vec<String>,
    /// The hashes of the texts that hold.
    pub proved: BTreeSet<String>,
    /// Those of texts that were found not to hold: they leave a file that they are [recorded](record)
    /// in, which does not hold them itself.
    pub refuted: BTreeSet<String>,
}

impl Record {
    /// A record of today.
    pub fn new(
        column: &str,
        layer: Layer,
        toolchain: &str,
        language: &str,
        profiles: &[&str],
        proved: BTreeSet<String>,
    ) -> Self {
        Self {
            column: column.into(),
            layer,
            date: today(),
            toolchain: toolchain.into(),
            language: language.into(),
            profiles: profiles.iter().map(|name| (*name).to_owned()).collect(),
            proved,
            refuted: BTreeSet::new(),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.split('\t').collect();
        let [column, layer, date, toolchain, language, profiles] = cells[..] else {
            return None;
        };
        let record = Self {
            column: column.into(),
            layer: Layer::ALL.into_iter().find(|l| l.name() == layer)?,
            date: date.into(),
            toolchain: toolchain.into(),
            language: language.into(),
            profiles: profiles.split(',').map(str::to_owned).collect(),
            proved: BTreeSet::new(),
            refuted: BTreeSet::new(),
        };
        record.is_sound().then_some(record)
    }

    fn is_sound(&self) -> bool {
        is_name(&self.column)
            && is_name(&self.date)
            && is_name(&self.language)
            && is_text(&self.toolchain)
            && !self.profiles.is_empty()
            && self.profiles.iter().all(|name| is_name(name))
            && self.proved.iter().all(|hash| is_hash(hash))
    }

    /// How many of the column's kernels, as `manifest` has them, are proved, and how many there
    /// are.
    pub(crate) fn count(&self, manifest: &str) -> (usize, usize) {
        let texts = texts_of(manifest, &self.language);
        let mine = || {
            texts
                .iter()
                .filter(|text| self.profiles.iter().any(|name| name == text.profile))
        };
        let proved = mine().filter(|text| self.proved.contains(text.hash));
        (proved.count(), mine().count())
    }
}

/// The records of one or more files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    records: BTreeMap<(String, Layer), Record>,
}

const HEAD: &str = "\
# What was proved of kernels, see docs/verification.md. Written by commands with `--record`.
# column\tlayer\tdate\ttoolchain\tlanguage\tprofiles
";
const TEXTS: &str = "# text\tlines\n";

impl Records {
    /// Reads records; `origin` names it in errors.
    ///
    /// # Errors
    /// `Parse` names the first line that is not as [this module](self) says.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let mut heads: Vec<Record> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            let refuse = |expected: &str| {
                let got: String = line.escape_debug().take(80).collect();
                Error::parse(origin, number as u64 + 1, expected, format!("`{got}`"))
            };
            if let Some((hash, lines)) = line.split_once('\t').filter(|(cell, _)| is_hash(cell)) {
                for at in lines.split(',') {
                    let head = at.parse().ok().and_then(|at: usize| heads.get_mut(at));
                    let head = head.ok_or_else(|| refuse("numbers of lines above"))?;
                    if !head.proved.insert(hash.to_owned()) {
                        return Err(refuse("each text once"));
                    }
                }
                continue;
            }
            let record = Record::parse(line).ok_or_else(|| refuse("a record of six cells"))?;
            let same =
                |other: &Record| (&other.column, other.layer) == (&record.column, record.layer);
            if heads.iter().any(same) {
                return Err(refuse("each column and layer once"));
            }
            heads.push(record);
        }
        let mut records = Self::default();
        for record in heads {
            records.add(record);
        }
        Ok(records)
    }

    /// Reads a file; one that is absent holds none.
    ///
    /// # Errors
    /// `Io`; `Parse`.
    pub fn load(file: &Path) -> Result<Self> {
        if !file.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(file).map_err(|e| Error::io(file, &e))?;
        Self::parse(&text, &file.display().to_string())
    }

    /// Reads every `.tsv` of a folder; a folder that is absent holds none.
    ///
    /// # Errors
    /// `Io`; `Parse` names the first line that is not as [this module](self) says, one that stands
    /// in two files included.
    pub fn load_folder(folder: &Path) -> Result<Self> {
        let mut all = Self::default();
        if !folder.exists() {
            return Ok(all);
        }
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .map_err(|e| Error::io(folder, &e))?
            .filter_map(|entry| entry.ok().map(|e| e.path()))
            .filter(|path| path.extension().is_some_and(|end| end == "tsv"))
            .collect();
        files.sort();
        for file in files {
            for (_, record) in Self::load(&file)?.records {
                let name = format!("{} {}", record.column, record.layer);
                if all.add(record).is_some() {
                    let expected = "each column and layer in one file";
                    return Err(Error::parse(file.display().to_string(), 0, expected, name));
                }
            }
        }
        Ok(all)
    }

    /// Takes a record in place of that of its column and layer, which it gives back.
    pub fn add(&mut self, record: Record) -> Option<Record> {
        let key = (record.column.clone(), record.layer);
        self.records.insert(key, record)
    }

    /// The records, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.values()
    }

    /// The record of a column and layer.
    pub fn get(&self, column: &str, layer: Layer) -> Option<&Record> {
        self.records.get(&(column.to_owned(), layer))
    }

    /// Whether a text was proved for a column at a layer with this toolchain.
    pub fn holds(&self, column: &str, layer: Layer, toolchain: &str, hash: &str) -> bool {
        self.get(column, layer)
            .is_some_and(|record| record.toolchain == toolchain && record.proved.contains(hash))
    }

    /// The records as the text of a file.
    pub fn to_text(&self) -> String {
        let mut text = String::from(HEAD);
        let mut lines: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (at, r) in self.iter().enumerate() {
            // Writing to a string can't fail.
            let _ = writeln!(
                text,
                "{}\t{}\t{}\t{}\t{}\t{}",
                r.column,
                r.layer,
                r.date,
                r.toolchain,
                r.language,
                r.profiles.join(",")
            );
            for hash in &r.proved {
                lines.entry(hash).or_default().push(at.to_string());
            }
        }
        text.push_str(TEXTS);
        for (hash, at) in lines {
            let _ = writeln!(text, "{hash}\t{}", at.join(","));
        }
        text
    }
}

/// Writes records into `file`. What a record there of the same column and layer says of other
/// texts stays, if they were proved with the same toolchain; what was refuted goes.
///
/// # Errors
/// `Io`; `Parse` if the file is damaged; `InvalidParameter` if a record holds what no line can.
pub fn record(file: &Path, new: impl IntoIterator<Item = Record>) -> Result<()> {
    let mut records = Records::load(file)?;
    for mut record in new {
        if !record.is_sound() {
            return Err(Error::parameter(
                "record",
                "names and lines of text",
                format!("{record:?}"),
            ));
        }
        if let Some(before) = records.get(&record.column, record.layer)
            && before.toolchain == record.toolchain
        {
            record.proved.extend(before.proved.iter().cloned());
        }
        let refuted = std::mem::take(&mut record.refuted);
        record.proved.retain(|hash| !refuted.contains(hash));
        records.add(record);
    }
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, &e))?;
    }
    write_atomic(file, records.to_text().as_bytes())
}

/// Takes the texts that `manifest` no longer has out of every file of a folder.
///
/// # Errors
/// `Io`; `Parse` if a file is damaged.
pub fn forget(folder: &Path, manifest: &str) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).map_err(|e| Error::io(folder, &e))? {
        let file = entry.map_err(|e| Error::io(folder, &e))?.path();
        if file.extension().is_none_or(|end| end != "tsv") {
            continue;
        }
        let mut records = Records::load(&file)?;
        for record in records.records.values_mut() {
            let texts = texts_of(manifest, &record.language);
            let today: BTreeSet<&str> = texts.iter().map(|text| text.hash).collect();
            record.proved.retain(|hash| today.contains(hash.as_str()));
        }
        write_atomic(&file, records.to_text().as_bytes())?;
    }
    Ok(())
}

/// A text of a manifest in one language.
pub(crate) struct Text<'a> {
    pub(crate) profile: &'a str,
    pub(crate) hash: &'a str,
}

/// The texts that a manifest has in one language. Languages are called `Cuda`, `Hip`, `Metal`,
/// `Wgsl` and `SpirV`.
pub(crate) fn texts_of<'a>(manifest: &'a str, language: &str) -> Vec<Text<'a>> {
    let head = manifest
        .lines()
        .find(|line| line.starts_with("# profile\t"));
    let at = head.and_then(|head| head.split('\t').position(|name| name == language));
    let Some(at) = at else {
        return Vec::new();
    };
    manifest
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            let hash = *cells.get(at).filter(|hash| **hash != "-")?;
            Some(Text {
                profile: cells[0],
                hash,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = include_str!("../../fixtures/codegen/manifest.tsv");

    /// Two texts of the manifest and one that is gone.
    fn hashes() -> [String; 3] {
        let texts = texts_of(MANIFEST, "Cuda");
        [texts[0].hash.into(), texts[1].hash.into(), "0".repeat(32)]
    }

    fn one(layer: Layer, proved: &[String]) -> Record {
        let proved = proved.iter().cloned().collect();
        Record::new(
            "cuda-sm80",
            layer,
            "NVRTC 13.0",
            "Cuda",
            &["emulated"],
            proved,
        )
    }

    #[test]
    fn records_grow_and_forget_texts_that_are_gone() {
        let [a, b, gone] = hashes();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new/cuda.tsv");
        record(&file, [one(Layer::Text, &[a.clone(), gone.clone()])]).unwrap();
        let all = Records::load(&file).unwrap();
        assert!(all.holds("cuda-sm80", Layer::Text, "NVRTC 13.0", &gone));
        let more = [
            one(Layer::Text, std::slice::from_ref(&b)),
            one(Layer::Machine, &[]),
        ];
        record(&file, more).unwrap();
        assert!(
            Records::load(&file)
                .unwrap()
                .holds("cuda-sm80", Layer::Text, "NVRTC 13.0", &gone)
        );
        forget(file.parent().unwrap(), MANIFEST).unwrap();
        let all = Records::load_folder(file.parent().unwrap()).unwrap();
        assert_eq!(all.iter().count(), 2);
        for (hash, known) in [(&a, true), (&b, true), (&gone, false)] {
            assert_eq!(
                all.holds("cuda-sm80", Layer::Text, "NVRTC 13.0", hash),
                known
            );
            assert!(!all.holds("cuda-sm80", Layer::Machine, "NVRTC 13.0", hash));
            assert!(!all.holds("cuda-sm80", Layer::Text, "NVRTC 14.0", hash));
        }
        let count = all.get("cuda-sm80", Layer::Text).unwrap().count(MANIFEST);
        assert_eq!((count.0, count.1 > 100), (2, true));
        // What no longer holds goes.
        let refuting = Record {
            refuted: [b.clone()].into(),
            ..one(Layer::Text, &[])
        };
        record(&file, [refuting]).unwrap();
        let all = Records::load(&file).unwrap();
        for (hash, known) in [(&a, true), (&b, false)] {
            assert_eq!(
                all.holds("cuda-sm80", Layer::Text, "NVRTC 13.0", hash),
                known
            );
        }
        // What another toolchain proved does not count for this one.
        let other = Record {
            toolchain: "NVRTC 14.0".into(),
            ..one(Layer::Text, std::slice::from_ref(&b))
        };
        record(&file, [other]).unwrap();
        assert!(
            !Records::load(&file)
                .unwrap()
                .holds("cuda-sm80", Layer::Text, "NVRTC 14.0", &a)
        );
        // The same column and layer in a second file is told.
        record(&file.with_file_name("twin.tsv"), [one(Layer::Text, &[])]).unwrap();
        assert!(Records::load_folder(file.parent().unwrap()).is_err());
    }

    #[test]
    fn damaged_records_are_refused() {
        let [a, b, _] = hashes();
        let mut records = Records::default();
        records.add(one(Layer::Text, &[a.clone(), b]));
        records.add(one(Layer::Machine, std::slice::from_ref(&a)));
        let text = records.to_text();
        assert_eq!(Records::parse(&text, "t").unwrap(), records);
        let head = text.lines().nth(2).unwrap();
        for bad in [
            format!("{text}{head}\n"),
            text.replace("machine", "guessed"),
            text.replace("cuda-sm80", "cuda sm80"),
            format!("{text}{a}\t0\n"),
            format!("{text}{}\t2\n", "1".repeat(32)),
            format!("{text}{}\t-1\n", "1".repeat(32)),
            text.replace(&a, &a[1..]),
        ] {
            assert!(Records::parse(&bad, "t").is_err(), "{bad}");
        }
        let unsound = Record {
            toolchain: "a\tb".into(),
            ..one(Layer::Text, &[])
        };
        let folder = tempfile::tempdir().unwrap();
        assert!(record(&folder.path().join("t.tsv"), [unsound]).is_err());
    }

    #[test]
    fn every_language_of_the_manifest_has_texts() {
        for language in ["Cuda", "Hip", "Metal", "Wgsl", "SpirV"] {
            let texts = texts_of(MANIFEST, language);
            assert!(
                texts.len() > 100 && texts.iter().all(|t| is_hash(t.hash)),
                "{language}"
            );
        }
        assert!(texts_of(MANIFEST, "Fortran").is_empty());
    }
}
