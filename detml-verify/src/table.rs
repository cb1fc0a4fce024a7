//! The reference table: lane x fixture x part -> hash, and the columns that witnessed it.
//!
//! One line an entry, tab-separated, in order, so that a change shows in a review. Lines are, here
//! with spaces for tabs:
//!
//! ```text
//! profile  detml.f32.v1
//! version  0.1.0
//! column  p  cpu-x86_64-plain  2026-11-29  a device  a compiler
//! column  h  hip  owed
//! boosting/logistic  ties  model  0123456789abcdef0123456789abcdef  p
//! ```

use crate::witness::Witness;
use detml_core::{BitHasher, Error, NUMERIC_PROFILE, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// What is hashed of a lane on a fixture.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// One configuration of an operation or estimator.
    pub lane: String,
    /// The data set.
    pub fixture: String,
    /// Which result.
    pub part: String,
}

impl Key {
    /// A key of three names.
    pub fn new(lane: &str, fixture: &str, part: &str) -> Self {
        Self {
            lane: lane.into(),
            fixture: fixture.into(),
            part: part.into(),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}: {}", self.lane, self.fixture, self.part)
    }
}

/// An expected hash and who has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// 128 bits of the hash, as 32 hexadecimal digits.
    pub hash: String,
    /// Letters of the columns that computed it.
    pub witnesses: String,
}

/// A kind of device that results are compared on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its letter in the entries.
    pub letter: char,
    /// Its name, such as `cuda-sm90`.
    pub name: String,
    /// When, on what and with what it was last witnessed; `None` if never.
    pub evidence: Option<Evidence>,
}

/// What a column was witnessed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Day, as `YYYY-MM-DD`.
    pub date: String,
    /// What the driver calls the device.
    pub device: String,
    /// Compilers.
    pub toolchain: String,
}

/// The reference table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The version of detml that wrote it.
    pub version: String,
    /// The columns, in the table's order.
    pub columns: Vec<Column>,
    /// The entries, in order.
    pub entries: BTreeMap<Key, Entry>,
}

/// The columns that detml promises, with their letters.
const COLUMNS: [(char, &str); 11] = [
    ('p', "cpu-x86_64-plain"),
    ('2', "cpu-x86_64-avx2"),
    ('5', "cpu-x86_64-avx512"),
    ('b', "cpu-aarch64-plain"),
    ('a', "cpu-aarch64-neon"),
    ('l', "vulkan-lavapipe"),
    ('s', "vulkan-swiftshader"),
    ('v', "vulkan-nvidia"),
    ('c', "cuda-sm90"),
    ('h', "hip"),
    ('m', "metal"),
];

/// A table that no build of detml comes near; a larger file is refused unread.
const MAX_BYTES: u64 = 64 << 20;
/// Bytes that a name or a line of text may have.
pub(crate) const MAX_NAME: usize = 200;

impl Default for Table {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            columns: COLUMNS
                .iter()
                .map(|(letter, name)| Column {
                    letter: *letter,
                    name: (*name).into(),
                    evidence: None,
                })
                .collect(),
            entries: BTreeMap::new(),
        }
    }
}

impl Table {
    /// The table that this build of detml was made with.
    ///
    /// # Errors
    /// `Parse` if it is damaged.
    pub fn built_in() -> Result<Self> {
        Self::parse(
            include_str!("../../fixtures/reference.tsv"),
            "fixtures/reference.tsv",
        )
    }

    /// Reads a table.
    ///
    /// # Errors
    /// `Io`; `Parse` names the first line that is not as [this module](self) says.
    pub fn load(path: &Path) -> Result<Self> {
        let length = std::fs::metadata(path)
            .map_err(|e| Error::io(path, &e))?
            .len();
        let origin = path.display().to_string();
        if length > MAX_BYTES {
            return Err(Error::parse(
                origin,
                0,
                format!("at most {MAX_BYTES} bytes"),
                length,
            ));
        }
        let bytes = std::fs::read(path).map_err(|e| Error::io(path, &e))?;
        let text = String::from_utf8(bytes)
            .map_err(|e| Error::parse(&origin, 0, "UTF-8 text", e.utf8_error()))?;
        Self::parse(&text, &origin)
    }

    /// Reads a table from text; `origin` names it in errors.
    ///
    /// # Errors
    /// `Parse`.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let mut table = Self {
            version: String::new(),
            columns: Vec::new(),
            entries: BTreeMap::new(),
        };
        let mut profile = false;
        let mut last: Option<Key> = None;
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            let refuse = |expected: &str, got: &str| {
                let got: String = got.escape_debug().take(80).collect();
                Error::parse(origin, number as u64 + 1, expected, format!("`{got}`"))
            };
            let cells: Vec<&str> = line.split('\t').collect();
            if !profile {
                if cells != ["profile", NUMERIC_PROFILE] {
                    return Err(refuse(&format!("the profile {NUMERIC_PROFILE}"), line));
                }
                profile = true;
                continue;
            }
            match cells[..] {
                ["version", version] if table.entries.is_empty() && is_name(version) => {
                    table.version = version.into();
                }
                ["column", letter, name, ref evidence @ ..] if table.entries.is_empty() => {
                    let mut letters = letter.chars();
                    let (Some(letter), None) = (letters.next(), letters.next()) else {
                        return Err(refuse("a column's letter", letter));
                    };
                    if !letter.is_ascii_alphanumeric()
                        || table.columns.iter().any(|c| c.letter == letter)
                    {
                        return Err(refuse(
                            "a letter or digit that is free",
                            &letter.to_string(),
                        ));
                    }
                    if !is_name(name) || table.columns.iter().any(|c| c.name == name) {
                        return Err(refuse("a new column's name", name));
                    }
                    let evidence = match evidence {
                        ["owed"] => None,
                        [date, device, toolchain]
                            if [date, device, toolchain].iter().all(|t| is_text(t)) =>
                        {
                            Some(Evidence {
                                date: (*date).into(),
                                device: (*device).into(),
                                toolchain: (*toolchain).into(),
                            })
                        }
                        _ => return Err(refuse("`owed`, or date, device and toolchain", line)),
                    };
                    table.columns.push(Column {
                        letter,
                        name: name.into(),
                        evidence,
                    });
                }
                [lane, fixture, part, hash, witnesses] => {
                    if ![lane, fixture, part].into_iter().all(is_name) {
                        return Err(refuse("the names of lane, fixture and part", line));
                    }
                    if !is_hash(hash) {
                        return Err(refuse("a hash of 32 hexadecimal digits", hash));
                    }
                    let known = |c: char| table.columns.iter().any(|column| column.letter == c);
                    let twice = |c: char| witnesses.matches(c).count() > 1;
                    if witnesses.is_empty() || !witnesses.chars().all(|c| known(c) && !twice(c)) {
                        return Err(refuse("letters of columns, each once", witnesses));
                    }
                    let key = Key::new(lane, fixture, part);
                    if last.as_ref().is_some_and(|last| *last >= key) {
                        return Err(refuse("an entry after the one above it", line));
                    }
                    last = Some(key.clone());
                    table.entries.insert(
                        key,
                        Entry {
                            hash: hash.into(),
                            witnesses: witnesses.into(),
                        },
                    );
                }
                _ => return Err(refuse("an entry of five cells", line)),
            }
        }
        if !profile || table.version.is_empty() {
            return Err(Error::parse(
                origin,
                0,
                "a profile and a version",
                "neither or one of them",
            ));
        }
        Ok(table)
    }

    /// The table as text.
    pub fn to_text(&self) -> String {
        let mut text = String::from(
            "# Reference hashes of detml, see docs/verification.md. \
             Written by `detml verify --bless`.\n",
        );
        // Writing to a string can't fail.
        let _ = writeln!(
            text,
            "profile\t{NUMERIC_PROFILE}\nversion\t{}",
            self.version
        );
        for column in &self.columns {
            let _ = write!(text, "column\t{}\t{}\t", column.letter, column.name);
            let _ = match &column.evidence {
                None => writeln!(text, "owed"),
                Some(e) => writeln!(text, "{}\t{}\t{}", e.date, e.device, e.toolchain),
            };
        }
        for (key, entry) in &self.entries {
            let _ = writeln!(
                text,
                "{}\t{}\t{}\t{}\t{}",
                key.lane, key.fixture, key.part, entry.hash, entry.witnesses
            );
        }
        text
    }

    /// A hash of what is expected of every lane, fixture and part, whoever witnessed it: witnesses
    /// of builds with one digest can be compared.
    pub fn digest(&self) -> String {
        let mut hasher = BitHasher::new("reference");
        for (key, entry) in &self.entries {
            for (tag, text) in [
                ("lane", &key.lane),
                ("fixture", &key.fixture),
                ("part", &key.part),
                ("hash", &entry.hash),
            ] {
                hasher.text(tag, text);
            }
        }
        hasher.finish().to_string()
    }

    /// Adds the promised columns that it lacks, in their order and before others.
    pub fn complete(&mut self) {
        for (at, column) in Self::default().columns.into_iter().enumerate() {
            let known = |c: &Column| c.name == column.name || c.letter == column.letter;
            if !self.columns.iter().any(known) {
                self.columns.insert(at.min(self.columns.len()), column);
            }
        }
        self.sort_letters();
    }

    /// Takes the hashes of a witness as the expected ones. An entry that changes loses its
    /// witnesses; one that `covers` and the witness lacks goes.
    pub fn bless(&mut self, witness: &Witness, covers: impl Fn(&Key) -> bool) {
        let letter = self.take_evidence(witness);
        self.entries
            .retain(|key, _| !covers(key) || witness.hashes.contains_key(key));
        for (key, hash) in &witness.hashes {
            match self.entries.get_mut(key) {
                Some(entry) if entry.hash == *hash => add(&mut entry.witnesses, letter),
                Some(entry) => {
                    entry.hash.clone_from(hash);
                    entry.witnesses = letter.into();
                }
                None => {
                    self.entries.insert(
                        key.clone(),
                        Entry {
                            hash: hash.clone(),
                            witnesses: letter.into(),
                        },
                    );
                }
            }
        }
        self.sort_letters();
    }

    /// Notes that a witness computed what the table expects; what it computed otherwise loses
    /// the witness's letter, and an entry without a witness goes.
    pub fn merge(&mut self, witness: &Witness) {
        let letter = self.take_evidence(witness);
        for (key, hash) in &witness.hashes {
            if let Some(entry) = self.entries.get_mut(key) {
                if entry.hash == *hash {
                    add(&mut entry.witnesses, letter);
                } else {
                    entry.witnesses.retain(|c| c != letter);
                }
            }
        }
        self.entries.retain(|_, entry| !entry.witnesses.is_empty());
        self.sort_letters();
    }

    fn take_evidence(&mut self, witness: &Witness) -> char {
        let evidence = Evidence {
            date: witness.head.date.clone(),
            device: witness.head.device.clone(),
            toolchain: witness.head.toolchain.clone(),
        };
        if let Some(column) = self
            .columns
            .iter_mut()
            .find(|c| c.name == witness.head.column)
        {
            column.evidence = Some(evidence);
            return column.letter;
        }
        let free = ('a'..='z')
            .chain('A'..='Z')
            .chain('0'..='9')
            .find(|c| self.columns.iter().all(|column| column.letter != *c))
            // 62 kinds of devices are more than there are.
            .unwrap_or('?');
        self.columns.push(Column {
            letter: free,
            name: witness.head.column.clone(),
            evidence: Some(evidence),
        });
        free
    }

    /// Letters stand in the order of the columns.
    fn sort_letters(&mut self) {
        let order: Vec<char> = self.columns.iter().map(|c| c.letter).collect();
        for entry in self.entries.values_mut() {
            entry.witnesses = order
                .iter()
                .filter(|c| entry.witnesses.contains(**c))
                .collect();
        }
    }
}

fn add(letters: &mut String, letter: char) {
    if !letters.contains(letter) {
        letters.push(letter);
    }
}

/// A word of letters, digits and `-_/+.:`.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_/+.:".contains(&b))
}

/// A line of text without control characters.
pub(crate) fn is_text(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_NAME && !text.chars().any(char::is_control)
}

pub(crate) fn is_hash(text: &str) -> bool {
    text.len() == 32
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::witness::head;

    const HASH: &str = "0123456789abcdef0123456789abcdef";

    fn witness(column: &str, hash: &str) -> Witness {
        Witness {
            head: head(column),
            hashes: BTreeMap::from([(Key::new("reduce/sum", "ties", "result"), hash.into())]),
            ..Witness::default()
        }
    }

    #[test]
    fn text_round_trips() {
        let mut table = Table::default();
        table.bless(&witness("cpu-x86_64-plain", HASH), |_| true);
        table.merge(&witness("cuda-sm90", HASH));
        table.merge(&witness("cuda-sm120", HASH));
        let entry = table.entries.values().next().unwrap();
        assert_eq!(entry.witnesses, "pcd");
        assert_eq!(Table::parse(&table.to_text(), "test"), Ok(table.clone()));
        // Another hash is no witness.
        table.merge(&witness("cuda-sm90", &HASH.replace('0', "1")));
        assert_eq!(table.entries.values().next().unwrap().witnesses, "pd");
        // A new expectation has one witness.
        table.bless(&witness("cpu-x86_64-avx2", &HASH.replace('0', "1")), |_| {
            true
        });
        assert_eq!(table.entries.values().next().unwrap().witnesses, "2");
        // What no longer exists goes.
        let gone = Witness {
            hashes: BTreeMap::new(),
            ..witness("cpu-x86_64-plain", HASH)
        };
        table.bless(&gone, |_| true);
        assert!(table.entries.is_empty());
    }

    #[test]
    fn the_built_in_table_is_whole() {
        let table = Table::built_in().unwrap();
        let again = Table::parse(&table.to_text(), "again").unwrap();
        assert_eq!(table, again);
    }

    #[test]
    fn parts_that_must_agree_do() {
        let table = Table::built_in().unwrap();
        let mut pairs = 0;
        for (key, entry) in &table.entries {
            for (part, other) in crate::lanes::boosting::SAME {
                if key.lane.starts_with("boosting/") && key.part == part {
                    let other = Key::new(&key.lane, &key.fixture, other);
                    assert_eq!(entry.hash, table.entries[&other].hash, "{key}");
                    pairs += 1;
                }
            }
        }
        assert!(pairs > 100, "{pairs}");
    }

    #[test]
    fn hostile_tables_are_refused_with_the_line() {
        let head = format!("profile\t{NUMERIC_PROFILE}\nversion\t0.1.0\ncolumn\tp\tcpu\towed\n");
        let good = format!("a\tb\tc\t{HASH}\tp\n");
        assert!(Table::parse(&format!("{head}{good}"), "t").is_ok());
        for (line, bad) in [
            (0, String::new()),
            (0, format!("profile\t{NUMERIC_PROFILE}\n")),
            (1, "profile\tdetml.f32.v0\nversion\t0.1.0\n".into()),
            (1, good.clone()),
            (4, format!("{head}a\tb\tc\t{HASH}\n")),
            (4, format!("{head}a\tb\tc\t{HASH}\tq\n")),
            (4, format!("{head}a\tb\tc\t{HASH}\tpp\n")),
            (4, format!("{head}a\tb\tc\t{HASH}\t\n")),
            (4, format!("{head}a\tb\tc\t{}\tp\n", &HASH[1..])),
            (4, format!("{head}a\tb\tc\t{}\tp\n", HASH.to_uppercase())),
            (4, format!("{head}a\tb c\tc\t{HASH}\tp\n")),
            (4, format!("{head}{}\tb\tc\t{HASH}\tp\n", "x".repeat(5000))),
            (5, format!("{head}{good}{good}")),
            (5, format!("{head}{good}column\tq\tgpu\towed\n")),
            (4, format!("{head}column\tp\tgpu\towed\n")),
            (4, format!("{head}column\tq\tcpu\towed\n")),
            (4, format!("{head}column\tqq\tgpu\towed\n")),
            (4, format!("{head}column\tq\tgpu\t2026-11-29\n")),
            (4, format!("{head}\u{1b}[2J\n")),
        ] {
            match Table::parse(&bad, "t") {
                Err(Error::Parse { line: at, .. }) => assert_eq!(at, line, "{bad}"),
                other => panic!("{bad:?}: {other:?}"),
            }
        }
    }
}
