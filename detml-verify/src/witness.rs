//! What one device computed: a file of JSON lines that another machine can judge.
//!
//! The first line is the head, each further one a result of a lane, the last one says that the
//! witness is whole.

use crate::table::{Key, is_hash, is_name, is_text};
use detml_core::{Error, NUMERIC_PROFILE, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

/// The hashes that one column computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    /// The kind of device, see [`crate::column`].
    pub column: String,
    /// What the driver calls it.
    pub device: String,
    /// How it computes what it does not do by IEEE-754 (`N15`).
    pub float_profile: String,
    /// Compilers.
    pub toolchain: String,
    /// Day, as `YYYY-MM-DD`.
    pub date: String,
    /// The version of detml.
    pub version: String,
    /// Hashes by lane, fixture and part.
    pub hashes: BTreeMap<Key, String>,
    /// Lanes that a device refused or failed at, with the reason.
    pub refused: BTreeMap<(String, String), String>,
    /// Lanes that say they don't take a fixture, with the reason.
    pub not_applicable: BTreeMap<(String, String), String>,
}

/// A line of a witness file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    /// The first line.
    Witness {
        /// The numerical contract.
        profile: String,
        /// The version of detml.
        version: String,
        /// The kind of device.
        column: String,
        /// What the driver calls it.
        device: String,
        /// How it computes.
        float_profile: String,
        /// Compilers.
        toolchain: String,
        /// Day.
        date: String,
    },
    /// The parts of a lane on a fixture.
    Hashes {
        /// The lane.
        lane: String,
        /// The fixture.
        fixture: String,
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

/// The longest line that is read.
const MAX_LINE: u64 = 1 << 20;
/// The most lines that are read.
const MAX_LINES: usize = 1_000_000;

impl Witness {
    /// Reads a witness file.
    ///
    /// # Errors
    /// `Io`; `Parse` names the first line that is not one of a witness, a file that is not whole
    /// included.
    pub fn load(path: &Path) -> Result<Self> {
        let file = std::fs::File::open(path).map_err(|e| Error::io(path, &e))?;
        Self::read(BufReader::new(file), &path.display().to_string())
    }

    /// Reads a witness; `origin` names it in errors.
    ///
    /// # Errors
    /// As [`load`](Self::load).
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
            match (line, &mut witness) {
                (
                    Line::Witness {
                        profile,
                        version,
                        column,
                        device,
                        float_profile,
                        toolchain,
                        date,
                    },
                    None,
                ) => {
                    if profile != NUMERIC_PROFILE {
                        return Err(refuse(NUMERIC_PROFILE, &profile.escape_debug().to_string()));
                    }
                    if !is_name(&column) || !is_name(&version) || !is_name(&date) {
                        return Err(refuse("names of column, version and date", "others"));
                    }
                    if ![&device, &float_profile, &toolchain]
                        .into_iter()
                        .all(|t| is_text(t))
                    {
                        return Err(refuse("device, profile and toolchain", "no plain text"));
                    }
                    witness = Some(Self {
                        column,
                        device,
                        float_profile,
                        toolchain,
                        date,
                        version,
                        ..Self::default()
                    });
                }
                (_, None) => return Err(refuse("the head of a witness", "another line")),
                (Line::Witness { .. }, Some(_)) => {
                    return Err(refuse("one head", "a second one"));
                }
                (
                    Line::Hashes {
                        lane,
                        fixture,
                        parts,
                    },
                    Some(witness),
                ) => {
                    if !is_name(&lane) || !is_name(&fixture) {
                        return Err(refuse("names of lane and fixture", "others"));
                    }
                    for (part, hash) in parts {
                        if !is_name(&part) || !is_hash(&hash) {
                            return Err(refuse("a part's name and hash", "others"));
                        }
                        let key = Key::new(&lane, &fixture, &part);
                        if witness.hashes.insert(key, hash).is_some() {
                            return Err(refuse("each part once", &format!("{lane} twice")));
                        }
                    }
                }
                (
                    Line::Refused {
                        lane,
                        fixture,
                        reason,
                    },
                    Some(witness),
                ) => {
                    witness.refused.insert((lane, fixture), reason);
                }
                (
                    Line::NotApplicable {
                        lane,
                        fixture,
                        reason,
                    },
                    Some(witness),
                ) => {
                    witness.not_applicable.insert((lane, fixture), reason);
                }
                (Line::End { lines }, Some(_)) => {
                    if lines + 2 != number {
                        return Err(refuse(
                            &format!("{lines} lines"),
                            &(number.saturating_sub(2)).to_string(),
                        ));
                    }
                    return witness.ok_or_else(|| refuse("a head", "none"));
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
            Line::Witness {
                profile: NUMERIC_PROFILE.into(),
                version: "0.1.0".into(),
                column: "cuda-sm90".into(),
                device: "NVIDIA H200".into(),
                float_profile: "native".into(),
                toolchain: "rustc 1".into(),
                date: "2026-11-29".into(),
            },
            Line::Hashes {
                lane: "reduce/sum".into(),
                fixture: "ties".into(),
                parts: BTreeMap::from([("result".into(), "0".repeat(32))]),
            },
            Line::Refused {
                lane: "gemm/nn".into(),
                fixture: "ties".into(),
                reason: "device lost".into(),
            },
            Line::End { lines: 2 },
        ]
    }

    fn bytes(lines: &[Line]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines {
            line.write(&mut bytes).unwrap();
        }
        bytes
    }

    #[test]
    fn a_witness_round_trips() {
        let witness = Witness::read(&bytes(&lines())[..], "w").unwrap();
        assert_eq!(witness.column, "cuda-sm90");
        assert_eq!(witness.hashes.len(), 1);
        assert_eq!(witness.refused.len(), 1);
    }

    #[test]
    fn damaged_witnesses_are_refused() {
        let whole = bytes(&lines());
        for end in 0..whole.len() {
            assert!(
                matches!(Witness::read(&whole[..end], "w"), Err(Error::Parse { .. })),
                "{end} bytes"
            );
        }
        let mut doubled = lines();
        doubled.insert(1, doubled[1].clone());
        doubled[4] = Line::End { lines: 3 };
        assert!(Witness::read(&bytes(&doubled)[..], "w").is_err());
        let mut headless = lines();
        headless.remove(0);
        assert!(Witness::read(&bytes(&headless)[..], "w").is_err());
        let hostile = b"{\"witness\":[[[[[[[[[[[[[[[[\n".to_vec();
        assert!(Witness::read(&hostile[..], "w").is_err());
        let endless = vec![b'x'; 3 << 20];
        assert!(Witness::read(&endless[..], "w").is_err());
    }
}
