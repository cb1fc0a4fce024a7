//! Records of what was proved of kernels where no witness tells it: a line for each column and
//! layer, written by the commands that prove (`--record FILE`), never by hand.
//!
//! A file below `fixtures/proofs/` holds lines of ten cells, in order, here with spaces for tabs:
//!
//! ```text
//! # column  layer  date  device  toolchain  unit  proved  of  failures  texts
//! hip-gfx942  machine  2026-11-30  -  clang 19.1.7  kernels  774  774  0  0123456789abcdef0123456789abcdef
//! ```
//!
//! `texts` is [`texts`] of the language that was proved, at the time: what is proved of other texts
//! than today's shows as such in `SUPPORT_MATRIX.md`.

use crate::table::{is_hash, is_name, is_text};
use crate::witness::today;
use detml_core::{BitHasher, Error, Result, write_atomic};
use std::collections::BTreeMap;
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
    /// The kind of device: `cuda-sm90`, `hip-gfx942`, `hip-emulated-gfx942-wave64`, `metal-text`.
    pub column: String,
    /// What was looked at.
    pub layer: Layer,
    /// Day, as `YYYY-MM-DD`.
    pub date: String,
    /// What ran the code; `-` where none ran.
    pub device: String,
    /// Compilers and other tools.
    pub toolchain: String,
    /// What is counted: `kernels`, `lanes`, `tests`.
    pub unit: String,
    /// How many hold.
    pub proved: usize,
    /// How many there are.
    pub of: usize,
    /// How many findings speak against it.
    pub failures: usize,
    /// [`texts`] of the language when it was proved; `-` where no text is meant.
    pub texts: String,
}

impl Record {
    /// A record of today of the texts in `language` (see [`texts`]) as they are now. Of `of` units
    /// `proved` hold.
    pub fn new(column: &str, layer: Layer, language: &str, proved: usize, of: usize) -> Self {
        Self {
            column: column.into(),
            layer,
            date: today(),
            device: "-".into(),
            toolchain: "-".into(),
            unit: "kernels".into(),
            proved,
            of,
            failures: 0,
            texts: texts(language),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.split('\t').collect();
        let [
            column,
            layer,
            date,
            device,
            toolchain,
            unit,
            proved,
            of,
            failures,
            texts,
        ] = cells[..]
        else {
            return None;
        };
        let record = Self {
            column: column.into(),
            layer: Layer::ALL.into_iter().find(|l| l.name() == layer)?,
            date: date.into(),
            device: device.into(),
            toolchain: toolchain.into(),
            unit: unit.into(),
            proved: proved.parse().ok()?,
            of: of.parse().ok()?,
            failures: failures.parse().ok()?,
            texts: texts.into(),
        };
        record.is_sound().then_some(record)
    }

    fn is_sound(&self) -> bool {
        is_name(&self.column)
            && is_name(&self.date)
            && is_name(&self.unit)
            && is_text(&self.device)
            && is_text(&self.toolchain)
            && self.proved <= self.of
            && (self.texts == "-" || is_hash(&self.texts))
    }
}

/// The records of one or more files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    records: BTreeMap<(String, Layer), Record>,
}

const HEAD: &str = "\
# What was proved of kernels, see docs/verification.md. Written by commands with `--record`.
# column\tlayer\tdate\tdevice\ttoolchain\tunit\tproved\tof\tfailures\ttexts
";

impl Records {
    /// Reads records; `origin` names them in errors.
    ///
    /// # Errors
    /// `Parse` names the first line that is not as [this module](self) says.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let mut records = Self::default();
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            let refuse = |expected: &str| {
                let got: String = line.escape_debug().take(80).collect();
                Error::parse(origin, number as u64 + 1, expected, format!("`{got}`"))
            };
            let record = Record::parse(line).ok_or_else(|| refuse("a record of ten cells"))?;
            if records.add(record).is_some() {
                return Err(refuse("each column and layer once"));
            }
        }
        Ok(records)
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
            let origin = file.display().to_string();
            let text = std::fs::read_to_string(&file).map_err(|e| Error::io(&file, &e))?;
            for (_, record) in Self::parse(&text, &origin)?.records {
                let name = format!("{} {}", record.column, record.layer);
                if all.add(record).is_some() {
                    let expected = "each column and layer in one file";
                    return Err(Error::parse(origin, 0, expected, name));
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

    /// The records as the text of a file.
    pub fn to_text(&self) -> String {
        let mut text = String::from(HEAD);
        for r in self.iter() {
            // Writing to a string can't fail.
            let _ = writeln!(
                text,
                "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
                r.column,
                r.layer,
                r.date,
                r.device,
                r.toolchain,
                r.unit,
                r.proved,
                r.of,
                r.failures,
                r.texts
            );
        }
        text
    }
}

/// Writes records into `file`, in place of those of the same columns and layers; the others stay.
///
/// # Errors
/// `Io`; `Parse` if the file is damaged; `InvalidParameter` if a record holds what no line can.
pub fn record(file: &Path, new: impl IntoIterator<Item = Record>) -> Result<()> {
    let mut records = if file.exists() {
        let text = std::fs::read_to_string(file).map_err(|e| Error::io(file, &e))?;
        Records::parse(&text, &file.display().to_string())?
    } else {
        Records::default()
    };
    for record in new {
        if !record.is_sound() {
            return Err(Error::parameter(
                "record",
                "names and lines of text",
                format!("{record:?}"),
            ));
        }
        records.add(record);
    }
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, &e))?;
    }
    write_atomic(file, records.to_text().as_bytes())
}

/// The hashes of the texts of all kernels in one language as
/// `fixtures/codegen/manifest.tsv` of this build has them, as one hash; `-` if it has no such
/// language. Languages are called `Cuda`, `Hip`, `Metal`, `Wgsl` and `SpirV`.
pub fn texts(language: &str) -> String {
    let manifest = include_str!("../../fixtures/codegen/manifest.tsv");
    texts_of(manifest, language).map_or_else(|| "-".into(), |(_, hash)| hash)
}

/// How many texts in one language a manifest has, and their hashes as one.
pub(crate) fn texts_of(manifest: &str, language: &str) -> Option<(usize, String)> {
    let head = manifest
        .lines()
        .find(|line| line.starts_with("# profile\t"))?;
    let at = head.split('\t').position(|name| name == language)?;
    let texts: Vec<String> = manifest
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            let hash = *cells.get(at).filter(|hash| **hash != "-")?;
            Some(format!("{}\t{}\t{hash}\n", cells[0], cells[1]))
        })
        .collect();
    let hash = BitHasher::new("texts")
        .text("lines", &texts.concat())
        .finish();
    Some((texts.len(), hash.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Record {
        Record {
            device: "a CPU".into(),
            toolchain: "clang 19".into(),
            ..Record::new("metal-text", Layer::Emulated, "Metal", 387, 388)
        }
    }

    #[test]
    fn records_replace_those_of_their_column_and_layer() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new/metal.tsv");
        record(&file, [one()]).unwrap();
        let other = Record {
            layer: Layer::Text,
            ..one()
        };
        let again = Record {
            proved: 388,
            ..one()
        };
        record(&file, [again.clone(), other.clone()]).unwrap();
        let all = Records::load_folder(file.parent().unwrap()).unwrap();
        assert_eq!(all.iter().count(), 2);
        assert_eq!(all.get("metal-text", Layer::Emulated), Some(&again));
        assert_eq!(all.get("metal-text", Layer::Text), Some(&other));
        // The same column and layer in a second file is told.
        record(&file.with_file_name("twin.tsv"), [other]).unwrap();
        assert!(Records::load_folder(file.parent().unwrap()).is_err());
    }

    #[test]
    fn damaged_records_are_refused() {
        let mut records = Records::default();
        records.add(one());
        let text = records.to_text();
        assert_eq!(Records::parse(&text, "t").unwrap(), records);
        let line = text.lines().last().unwrap();
        for bad in [
            format!("{line}\n{line}"),
            line.replace("emulated", "guessed"),
            line.replace("387", "389"),
            line.replace("387", "-1"),
            line.replace("metal-text", "metal text"),
            format!("{line}\tmore"),
        ] {
            assert!(Records::parse(&bad, "t").is_err(), "{bad}");
        }
        let unsound = Record {
            toolchain: "a\tb".into(),
            ..one()
        };
        let folder = tempfile::tempdir().unwrap();
        assert!(record(&folder.path().join("t.tsv"), [unsound]).is_err());
    }

    #[test]
    fn every_language_of_the_manifest_has_texts() {
        for language in ["Cuda", "Hip", "Metal", "Wgsl", "SpirV"] {
            assert!(is_hash(&texts(language)), "{language}");
        }
        assert_eq!(texts("Fortran"), "-");
        assert_ne!(texts("Cuda"), texts("Hip"));
    }
}
