//! What one device computed: a signed file of JSON lines that another machine can judge.
//!
//! The first line is the head, each further one a result of a lane, the last but one says that the
//! witness is whole, and the last one is the [`signature`] of all bytes above it.

use crate::signature::{self, Signer};
use crate::table::{Key, is_hash, is_name, is_text};
use detml_core::{Error, NUMERIC_PROFILE, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The hashes that one column computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    /// Where and with what.
    pub head: Head,
    /// The public key that signed it; empty if it comes from this program's own process.
    pub key: String,
    /// Hashes by lane, fixture and part.
    pub hashes: BTreeMap<Key, String>,
    /// Lanes that a device refused or failed at, with the reason.
    pub refused: BTreeMap<(String, String), String>,
    /// Lanes that say they don't take a fixture, with the reason.
    pub not_applicable: BTreeMap<(String, String), String>,
}

/// The first line of a witness file: what computed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Which form the file has: [`FORMAT`].
    pub format: u32,
    /// The numerical contract.
    pub profile: String,
    /// The version of detml.
    pub version: String,
    /// What this build expects of lanes and fixtures: [`Table::digest`](crate::table::Table::digest).
    pub reference: String,
    /// The kind of device, see [`crate::column`].
    pub column: String,
    /// What the driver calls the device.
    pub device: String,
    /// The driver and its version.
    pub driver: String,
    /// How the device computes what it does not do by IEEE-754 (`N15`).
    pub float_profile: String,
    /// The operating system and its kernel.
    pub system: String,
    /// The architecture of the CPU, as Rust calls it.
    pub arch: String,
    /// The model of the CPU.
    pub cpu: String,
    /// Compilers.
    pub toolchain: String,
    /// The features of the build.
    pub features: String,
    /// Day, as `YYYY-MM-DD`.
    pub date: String,
}

/// The form of witness files that this version writes and reads.
pub const FORMAT: u32 = 2;

impl Head {
    /// What is wrong with it.
    fn fault(&self) -> Option<&'static str> {
        if self.format != FORMAT {
            return Some("another format");
        }
        let names = [
            &self.profile,
            &self.version,
            &self.column,
            &self.arch,
            &self.date,
        ];
        if !names.into_iter().all(|name| is_name(name)) {
            return Some("no names of profile, version, column, architecture and date");
        }
        if !is_hash(&self.reference) {
            return Some("no digest of the reference");
        }
        let texts = [
            &self.device,
            &self.driver,
            &self.float_profile,
            &self.system,
            &self.cpu,
            &self.toolchain,
            &self.features,
        ];
        (!texts.into_iter().all(|text| is_text(text))).then_some("no plain text")
    }
}

/// A line of a witness file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    /// The first line.
    Witness(Box<Head>),
    /// The parts of a lane on a fixture.
    Hashes {
        /// The lane.
        lane: String,
        /// The fixture.
        fixture: String,
        /// How long it took, hashing included.
        microseconds: u64,
        /// Hashes by part.
        parts: BTreeMap<String, String>,
    },
    /// A lane that the device refused or failed at.
    Refused {
        /// The lane.
        lane: String,
        /// The fixture.
        fixture: String,
        /// Why.
        reason: String,
    },
    /// A lane that does not take a fixture.
    NotApplicable {
        /// The lane.
        lane: String,
        /// The fixture.
        fixture: String,
        /// Why.
        reason: String,
    },
    /// The last line.
    End {
        /// How many lines there are between the first and the last.
        lines: usize,
        /// How long all took.
        microseconds: u64,
    },
}

impl Line {
    /// Writes the line and its end.
    ///
    /// # Errors
    /// The operating system's.
    pub fn write(&self, to: &mut impl Write) -> std::io::Result<()> {
        serde_json::to_writer(&mut *to, self)?;
        to.write_all(b"\n")?;
        to.flush()
    }
}

/// The longest reason that a line may give.
pub(crate) const MAX_REASON: usize = 1000;
/// The longest file that is read.
const MAX_BYTES: u64 = 16 << 20;
/// The longest line that is read.
const MAX_LINE: u64 = 1 << 20;
/// The most lines that are read.
const MAX_LINES: usize = 1_000_000;

impl Witness {
    /// Reads a signed witness file.
    ///
    /// # Errors
    /// `Io`; `Parse` names what is not as in a file that [`signed`] made: bytes that its signature
    /// does not cover, and lines that are not those of a witness. Files of more than 16 MiB are
    /// refused.
    pub fn load(path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|e| Error::io(path, &e))?;
        let origin = path.display().to_string();
        if bytes.len() as u64 > MAX_BYTES {
            let expected = format!("at most {MAX_BYTES} bytes");
            return Err(Error::parse(origin, 0, expected, "more"));
        }
        Self::from_signed(&bytes, &origin)
    }

    /// Reads the bytes of a signed witness file; `origin` names it in errors.
    ///
    /// # Errors
    /// `Parse`, as [`load`](Self::load).
    pub fn from_signed(bytes: &[u8], origin: &str) -> Result<Self> {
        let (mut content, key) = signature::verified(bytes, origin)?;
        let witness = Self::read(&mut content, origin)?;
        if !content.is_empty() {
            return Err(Error::parse(
                origin,
                0,
                "nothing after the line `end`",
                "more",
            ));
        }
        Ok(Self { key, ..witness })
    }

    /// Reads a witness without a signature, from this program's own process; `origin` names it in
    /// errors.
    ///
    /// # Errors
    /// `Io`; `Parse` names the first line that is not one of a witness, one that is not whole
    /// included.
    pub fn read(mut source: impl BufRead, origin: &str) -> Result<Self> {
        let mut witness: Option<Self> = None;
        let mut bytes = Vec::new();
        for number in 1..=MAX_LINES {
            let refuse =
                |expected: &str, got: &str| Error::parse(origin, number as u64, expected, got);
            bytes.clear();
            source
                .by_ref()
                .take(MAX_LINE)
                .read_until(b'\n', &mut bytes)
                .map_err(|e| Error::io(origin, &e))?;
            if bytes.is_empty() {
                return Err(refuse("the line `end`", "the end of the file"));
            }
            if bytes.pop() != Some(b'\n') {
                return Err(refuse("a whole line", "one that is cut off or too long"));
            }
            let line: Line = serde_json::from_slice(&bytes)
                .map_err(|e| refuse("a line of a witness", &e.to_string()))?;
            let Some(witness) = &mut witness else {
                let Line::Witness(head) = line else {
                    return Err(refuse("the head of a witness", "another line"));
                };
                if let Some(fault) = head.fault() {
                    return Err(refuse("the head of a witness", fault));
                }
                witness = Some(Self {
                    head: *head,
                    ..Self::default()
                });
                continue;
            };
            match line {
                Line::Witness(_) => return Err(refuse("one head", "a second one")),
                Line::End { lines, .. } => {
                    if lines.checked_add(2) != Some(number) {
                        let got = (number - 2).to_string();
                        return Err(refuse(&format!("{lines} lines"), &got));
                    }
                    return Ok(std::mem::take(witness));
                }
                line => {
                    if let Err(fault) = witness.take(line) {
                        return Err(refuse("a result of a lane", fault));
                    }
                }
            }
        }
        Err(Error::parse(
            origin,
            MAX_LINES as u64,
            "the line `end`",
            "further lines",
        ))
    }

    /// Takes the line of a lane's results, or says what is wrong with it.
    fn take(&mut self, line: Line) -> std::result::Result<(), &'static str> {
        let (lane, fixture) = match &line {
            Line::Hashes { lane, fixture, .. }
            | Line::Refused { lane, fixture, .. }
            | Line::NotApplicable { lane, fixture, .. } => (lane.clone(), fixture.clone()),
            Line::Witness(_) | Line::End { .. } => return Err("another line"),
        };
        if !is_name(&lane) || !is_name(&fixture) {
            return Err("no names of lane and fixture");
        }
        let one = (lane, fixture);
        if self.has_hashes(&one.0, &one.1)
            || self.refused.contains_key(&one)
            || self.not_applicable.contains_key(&one)
        {
            return Err("a lane twice on a fixture");
        }
        let is_reason =
            |text: &str| text.len() <= MAX_REASON && !text.chars().any(char::is_control);
        match line {
            Line::Hashes { parts, .. } => {
                for (part, hash) in parts {
                    if !is_name(&part) || !is_hash(&hash) {
                        return Err("no name and hash of a part");
                    }
                    self.hashes.insert(Key::new(&one.0, &one.1, &part), hash);
                }
            }
            Line::Refused { reason, .. } if is_reason(&reason) => {
                self.refused.insert(one, reason);
            }
            Line::NotApplicable { reason, .. } if is_reason(&reason) => {
                self.not_applicable.insert(one, reason);
            }
            _ => return Err("a reason that is no line of text"),
        }
        Ok(())
    }

    /// Whether it has a part of a lane on a fixture.
    pub fn has_hashes(&self, lane: &str, fixture: &str) -> bool {
        let first = Key::new(lane, fixture, "");
        let next = self.hashes.range(first..).next();
        next.is_some_and(|(key, _)| key.lane == lane && key.fixture == fixture)
    }

    /// # Errors
    /// `Parse` if it is of another numerical contract than this build's.
    pub fn expect_profile(&self, origin: &str) -> Result<()> {
        if self.head.profile == NUMERIC_PROFILE {
            return Ok(());
        }
        Err(Error::parse(origin, 1, NUMERIC_PROFILE, &self.head.profile))
    }
}

/// The bytes of a file with this content, signed.
pub fn signed(content: Vec<u8>, signer: &Signer) -> Vec<u8> {
    let line = signer.line(&content);
    [content, line.into_bytes()].concat()
}

/// Today (UTC), as `YYYY-MM-DD`.
pub fn today() -> String {
    date(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
    )
}

/// The day of a number of seconds since 1970, as `YYYY-MM-DD` (UTC).
pub fn date(seconds: u64) -> String {
    // Days from 0000-03-01, so that the leap day is a year's last (Hinnant, "chrono-compatible
    // low-level date algorithms").
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day = days % 146_097;
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{of_month:02}")
}

/// A head for tests.
#[cfg(test)]
pub(crate) fn head(column: &str) -> Head {
    let text = |text: &str| text.to_owned();
    Head {
        format: FORMAT,
        profile: NUMERIC_PROFILE.into(),
        version: text("0.1.0"),
        reference: "0".repeat(32),
        column: text(column),
        device: text("a device"),
        driver: text("a driver"),
        float_profile: text("native"),
        system: text("a system"),
        arch: text("x86_64"),
        cpu: text("a CPU"),
        toolchain: text("a compiler"),
        features: text("none"),
        date: text("2026-11-29"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_the_calendars() {
        for (seconds, day) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (1_764_374_400, "2025-11-29"),
            (1_795_910_400, "2026-11-29"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(seconds), day);
        }
    }

    fn lines() -> Vec<Line> {
        vec![
            Line::Witness(Box::new(head("cuda-sm90"))),
            Line::Hashes {
                lane: "reduce/sum".into(),
                fixture: "ties".into(),
                microseconds: 7,
                parts: BTreeMap::from([("result".into(), "0".repeat(32))]),
            },
            Line::Refused {
                lane: "gemm/nn".into(),
                fixture: "ties".into(),
                reason: "device lost".into(),
            },
            Line::End {
                lines: 2,
                microseconds: 9,
            },
        ]
    }

    fn bytes(lines: &[Line]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines {
            line.write(&mut bytes).unwrap();
        }
        bytes
    }

    fn signer() -> (tempfile::TempDir, Signer) {
        let folder = tempfile::tempdir().unwrap();
        let signer = Signer::of_file(&folder.path().join("key")).unwrap();
        (folder, signer)
    }

    fn is_malformed(bytes: &[u8]) -> bool {
        matches!(Witness::from_signed(bytes, "w"), Err(Error::Parse { .. }))
    }

    #[test]
    fn a_witness_round_trips() {
        let (_folder, signer) = signer();
        let file = signed(bytes(&lines()), &signer);
        let witness = Witness::from_signed(&file, "w").unwrap();
        assert_eq!(witness.head, head("cuda-sm90"));
        assert_eq!(witness.key, signer.public_key());
        assert_eq!(witness.hashes.len(), 1);
        assert_eq!(witness.refused.len(), 1);
        assert!(witness.has_hashes("reduce/sum", "ties"));
        assert!(!witness.has_hashes("gemm/nn", "ties"));
    }

    /// Whatever is cut off, added or flipped, it is an error with a type.
    #[test]
    fn every_changed_bit_and_every_cut_is_malformed() {
        let (_folder, signer) = signer();
        let file = signed(bytes(&lines()), &signer);
        for end in 0..file.len() {
            assert!(is_malformed(&file[..end]), "{end} bytes");
            assert!(is_malformed(&file[end + 1..]), "from {end} on");
        }
        for bit in 0..8 * file.len() {
            let mut changed = file.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(is_malformed(&changed), "bit {bit}");
        }
        for more in ["\n", " ", "{}", "\0"] {
            assert!(is_malformed(&[&file[..], more.as_bytes()].concat()));
        }
        // Signed by somebody else, and unsigned.
        let (_other, other) = self::signer();
        let content = bytes(&lines());
        let swapped = String::from_utf8(file.clone())
            .unwrap()
            .replace(&signer.public_key(), &other.public_key());
        assert!(is_malformed(swapped.as_bytes()));
        assert!(is_malformed(&content));
        assert!(is_malformed(&signed(file, &other)));
    }

    /// A signature says who wrote, not that it is sense.
    #[test]
    fn signed_nonsense_is_malformed() {
        let (_folder, signer) = signer();
        let check = |lines: &[Line]| {
            assert!(is_malformed(&signed(bytes(lines), &signer)), "{lines:?}");
        };
        let whole = lines();
        for i in 0..whole.len() {
            let mut less = whole.clone();
            less.remove(i);
            check(&less);
            let mut more = whole.clone();
            more.insert(i, whole[i].clone());
            check(&more);
        }
        check(&[&whole[..], &whole[..1]].concat());
        let mut doubled = whole.clone();
        doubled.insert(1, doubled[1].clone());
        doubled[4] = Line::End {
            lines: 3,
            microseconds: 0,
        };
        check(&doubled);
        let changes: [fn(&mut Head); 5] = [
            |head| head.device = "\u{1b}[2J".into(),
            |head| head.column = "a b".into(),
            |head| head.reference = String::new(),
            |head| head.cpu = "x".repeat(300),
            |head| head.format = 1,
        ];
        for change in changes {
            let mut other = whole.clone();
            if let Line::Witness(head) = &mut other[0] {
                change(head);
            }
            check(&other);
        }
        let mut escape = whole.clone();
        escape[2] = Line::Refused {
            lane: "gemm/nn".into(),
            fixture: "ties".into(),
            reason: "\u{1b}[2J".into(),
        };
        check(&escape);
        for hostile in [
            b"{\"witness\":[[[[[[[[[[[[[[[[\n".to_vec(),
            [vec![b'['; 1 << 16], vec![b'\n']].concat(),
            vec![b'\n'; 1 << 16],
            [vec![b'x'; 3 << 20], vec![b'\n']].concat(),
            b"{\"end\":{\"lines\":18446744073709551615,\"microseconds\":0}}\n".repeat(2),
            vec![0xff, b'\n'],
        ] {
            assert!(is_malformed(&signed(hostile, &signer)));
        }
    }

    #[test]
    fn a_file_beyond_the_bound_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        assert!(matches!(Witness::load(&path), Err(Error::Parse { .. })));
    }
}
