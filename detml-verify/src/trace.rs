//! Traces: a hash after each stage of a longer computation, to find where two devices part.

use detml_core::{Error, NUMERIC_PROFILE, Result};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The hash after one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// What was done, in order and unique: `dense: gemm`.
    pub stage: String,
    /// The hash of the result, 32 hexadecimal digits.
    pub hash: String,
}

/// The head of a trace file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The numerical contract.
    pub profile: String,
    /// The version of detml.
    pub version: String,
    /// The kind of device.
    pub column: String,
    /// The data set.
    pub fixture: String,
}

/// A trace: its head and its stages in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Where it was made.
    pub head: Head,
    /// The stages.
    pub stages: Vec<Stage>,
}

/// How two traces compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Every stage has the same hash.
    Equal(usize),
    /// The first stage that differs, its number from 0, and the two hashes.
    Differs {
        /// The stage's number.
        at: usize,
        /// Its name.
        stage: String,
        /// The first trace's hash.
        left: String,
        /// The second one's.
        right: String,
    },
    /// The traces are not of the same computation.
    Unlike(String),
}

const MAX_BYTES: u64 = 64 << 20;

impl Trace {
    /// Reads a trace file: a head and a stage on each further line, as JSON.
    ///
    /// # Errors
    /// `Io`; `Parse` names the first line that is none.
    pub fn load(path: &Path) -> Result<Self> {
        let file = std::fs::File::open(path).map_err(|e| Error::io(path, &e))?;
        let origin = path.display().to_string();
        let mut head = None;
        let mut stages = Vec::new();
        for (number, line) in BufReader::new(file.take(MAX_BYTES)).lines().enumerate() {
            let refuse = |expected: &str, got: String| {
                Error::parse(&origin, number as u64 + 1, expected, got)
            };
            let line = line.map_err(|e| refuse("a line of text", e.to_string()))?;
            if head.is_none() {
                let read: Head = serde_json::from_str(&line)
                    .map_err(|e| refuse("the head of a trace", e.to_string()))?;
                if read.profile != NUMERIC_PROFILE {
                    let got = read.profile.escape_debug().to_string();
                    return Err(refuse(NUMERIC_PROFILE, got));
                }
                head = Some(read);
            } else {
                let stage =
                    serde_json::from_str(&line).map_err(|e| refuse("a stage", e.to_string()))?;
                stages.push(stage);
            }
        }
        let head =
            head.ok_or_else(|| Error::parse(&origin, 1, "the head of a trace", "nothing"))?;
        Ok(Self { head, stages })
    }

    /// The trace as lines of JSON.
    ///
    /// # Errors
    /// `Internal` if it can't be written as JSON.
    pub fn to_text(&self) -> Result<String> {
        let json = |e: serde_json::Error| Error::internal(e.to_string());
        let mut text = serde_json::to_string(&self.head).map_err(json)?;
        text.push('\n');
        for stage in &self.stages {
            text.push_str(&serde_json::to_string(stage).map_err(json)?);
            text.push('\n');
        }
        Ok(text)
    }

    /// Compares two traces of one computation, stage by stage.
    pub fn compare(&self, other: &Self) -> Comparison {
        if self.head.fixture != other.head.fixture {
            return Comparison::Unlike(format!(
                "one is of fixture {}, the other of {}",
                self.head.fixture, other.head.fixture
            ));
        }
        for (at, (left, right)) in self.stages.iter().zip(&other.stages).enumerate() {
            if left.stage != right.stage {
                return Comparison::Unlike(format!(
                    "stage {at} is `{}` in one and `{}` in the other",
                    left.stage, right.stage
                ));
            }
            if left.hash != right.hash {
                return Comparison::Differs {
                    at,
                    stage: left.stage.clone(),
                    left: left.hash.clone(),
                    right: right.hash.clone(),
                };
            }
        }
        if self.stages.len() != other.stages.len() {
            return Comparison::Unlike(format!(
                "one has {} stages, the other {}",
                self.stages.len(),
                other.stages.len()
            ));
        }
        Comparison::Equal(self.stages.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(hashes: &[&str]) -> Trace {
        Trace {
            head: Head {
                profile: NUMERIC_PROFILE.into(),
                version: "0.1.0".into(),
                column: "cpu".into(),
                fixture: "ties".into(),
            },
            stages: hashes
                .iter()
                .enumerate()
                .map(|(i, hash)| Stage {
                    stage: format!("stage {i}"),
                    hash: (*hash).into(),
                })
                .collect(),
        }
    }

    #[test]
    fn the_first_difference_is_named() {
        let a = trace(&["x", "y", "z"]);
        assert_eq!(a.compare(&a), Comparison::Equal(3));
        match a.compare(&trace(&["x", "q", "q"])) {
            Comparison::Differs { at: 1, stage, .. } => assert_eq!(stage, "stage 1"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            a.compare(&trace(&["x", "y"])),
            Comparison::Unlike(_)
        ));
    }
}
