//! Judging what columns computed against the reference table.

use crate::run::Selection;
use crate::table::{Key, Table};
use crate::witness::Witness;
use detml_core::NUMERIC_PROFILE;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What is known of one result on one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    /// The bits are those of the reference.
    Identical,
    /// Other bits.
    Divergent,
    /// Not computed here.
    Owed,
    /// A device refused, or failed at, the lane.
    Refused,
    /// The lane says it does not take the fixture.
    #[serde(rename = "N/A")]
    NotApplicable,
    /// There is nothing to compare with.
    Unreferenced,
}

/// How a verification ends: the process's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Verdict {
    /// Every result that was computed has the reference's bits.
    Verified = 0,
    /// At least one has other bits.
    Mismatch = 1,
    /// The command line, or a filter in it, is wrong.
    Usage = 2,
    /// A device refused or failed at a lane.
    Refused = 3,
    /// Nothing could be run.
    CannotRun = 4,
    /// At least one result has no reference.
    NoReference = 5,
    /// Two files are not of one computation.
    Incomparable = 6,
    /// A file lacks lanes that another has.
    Incomplete = 7,
    /// A file is damaged, or its signature is not that of its bytes.
    Malformed = 8,
}

/// The judgement on one column.
#[derive(Clone, Debug, Serialize)]
pub struct ColumnReport {
    /// Its name.
    pub column: String,
    /// What the driver calls the device; empty if it is not here.
    pub device: String,
    /// How it computes.
    pub float_profile: String,
    /// Why the whole column is owed or refused, if it is.
    pub reason: Option<String>,
    /// Results by state.
    pub counts: BTreeMap<State, usize>,
    /// Every result that is neither identical nor not applicable, with what was expected and
    /// got, or the reason.
    pub notes: Vec<Note>,
    /// Why lanes did not take fixtures, with how many.
    pub not_applicable: BTreeMap<String, usize>,
}

/// A result that needs a look.
#[derive(Clone, Debug, Serialize)]
pub struct Note {
    /// Its state.
    pub state: State,
    /// The lane.
    pub lane: String,
    /// The fixture.
    pub fixture: String,
    /// The part; empty for a whole lane.
    pub part: String,
    /// What was expected and got, or the reason.
    pub detail: String,
}

/// The judgement on all columns.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The numerical contract.
    pub profile: &'static str,
    /// The version of this build.
    pub version: &'static str,
    /// How it ends.
    pub verdict: Verdict,
    /// The columns.
    pub columns: Vec<ColumnReport>,
}

/// A column's results against the table. What the table expects of the lanes and fixtures that
/// ran, and the witness lacks, is divergent.
pub fn judge(table: &Table, witness: &Witness) -> ColumnReport {
    let mut report = ColumnReport {
        column: witness.head.column.clone(),
        device: witness.head.device.clone(),
        float_profile: witness.head.float_profile.clone(),
        reason: None,
        counts: BTreeMap::new(),
        notes: Vec::new(),
        not_applicable: BTreeMap::new(),
    };
    for (key, hash) in &witness.hashes {
        match table.entries.get(key) {
            Some(entry) if entry.hash == *hash => report.count(State::Identical),
            Some(entry) => report.note(
                State::Divergent,
                key,
                format!("expected {}, got {hash}", entry.hash),
            ),
            None => report.note(State::Unreferenced, key, format!("got {hash}")),
        }
    }
    for (key, entry) in &table.entries {
        if !witness.hashes.contains_key(key) && witness.has_hashes(&key.lane, &key.fixture) {
            report.note(
                State::Divergent,
                key,
                format!("expected {}, got nothing", entry.hash),
            );
        }
    }
    for ((lane, fixture), reason) in &witness.refused {
        report.note(State::Refused, &Key::new(lane, fixture, ""), reason.clone());
    }
    for reason in witness.not_applicable.values() {
        report.count(State::NotApplicable);
        *report.not_applicable.entry(reason.clone()).or_insert(0) += 1;
    }
    report
}

/// A column that did not run here, with the number of results that it would have had.
pub fn absent(
    table: &Table,
    column: &str,
    results: usize,
    state: State,
    reason: &str,
) -> ColumnReport {
    let known = table.columns.iter().find(|c| c.name == column);
    let last = known.and_then(|c| c.evidence.as_ref());
    let mut reason = reason.to_owned();
    if let Some(e) = last {
        let _ = write!(reason, "; last witnessed {} on {}", e.date, e.device);
    } else if known.is_some() {
        reason.push_str("; never witnessed");
    }
    ColumnReport {
        column: column.into(),
        device: String::new(),
        float_profile: String::new(),
        reason: Some(reason),
        counts: BTreeMap::from([(state, results)]),
        notes: Vec::new(),
        not_applicable: BTreeMap::new(),
    }
}

impl ColumnReport {
    fn count(&mut self, state: State) {
        *self.counts.entry(state).or_insert(0) += 1;
    }

    fn note(&mut self, state: State, key: &Key, detail: String) {
        self.count(state);
        self.notes.push(Note {
            state,
            lane: key.lane.clone(),
            fixture: key.fixture.clone(),
            part: key.part.clone(),
            detail,
        });
    }

    fn has(&self, state: State) -> bool {
        self.counts.get(&state).is_some_and(|n| *n > 0)
    }
}

impl Report {
    /// The columns' reports with the verdict that follows from them: a mismatch before a missing
    /// reference before a refusal.
    pub fn new(columns: Vec<ColumnReport>) -> Self {
        let any = |state| columns.iter().any(|c| c.has(state));
        let verdict = if any(State::Divergent) {
            Verdict::Mismatch
        } else if any(State::Unreferenced) {
            Verdict::NoReference
        } else if any(State::Refused) {
            Verdict::Refused
        } else if any(State::Identical) {
            Verdict::Verified
        } else {
            Verdict::CannotRun
        };
        Self {
            profile: NUMERIC_PROFILE,
            version: env!("CARGO_PKG_VERSION"),
            verdict,
            columns,
        }
    }

    /// The report as a table for people.
    pub fn to_text(&self, selection: &Selection) -> String {
        let mut text = String::new();
        let states = [
            (State::Identical, "IDENTICAL"),
            (State::Divergent, "DIVERGENT"),
            (State::Unreferenced, "NO REFERENCE"),
            (State::Refused, "REFUSED"),
            (State::NotApplicable, "N/A"),
            (State::Owed, "OWED"),
        ];
        let width = self
            .columns
            .iter()
            .map(|c| c.column.len())
            .max()
            .unwrap_or(0)
            .max(6);
        let _ = writeln!(
            text,
            "detml {} verifies {}, {:?} choice",
            self.version, self.profile, selection.depth
        );
        let _ = write!(text, "{:width$}", "column");
        for (_, name) in states {
            let _ = write!(text, "  {name:>9}");
        }
        text.push('\n');
        for column in &self.columns {
            let _ = write!(text, "{:width$}", column.column);
            for (state, name) in states {
                let n = column.counts.get(&state).copied().unwrap_or(0);
                let wide = name.len().max(9);
                if n == 0 {
                    let _ = write!(text, "  {:>wide$}", ".");
                } else {
                    let _ = write!(text, "  {n:>wide$}");
                }
            }
            let what = match &column.reason {
                Some(reason) => reason.clone(),
                None => format!("{} ({})", column.device, column.float_profile),
            };
            let _ = writeln!(text, "  {what}");
        }
        const SHOWN: usize = 20;
        for column in &self.columns {
            for (reason, count) in &column.not_applicable {
                let _ = writeln!(text, "N/A {}: {count}: {reason}", column.column);
            }
            for note in column.notes.iter().take(SHOWN) {
                let name = states
                    .iter()
                    .find(|(state, _)| *state == note.state)
                    .map_or("", |(_, name)| name);
                let part = if note.part.is_empty() {
                    String::new()
                } else {
                    format!(", {}", note.part)
                };
                let _ = writeln!(
                    text,
                    "{name} {}: {} on {}{part}: {}",
                    column.column, note.lane, note.fixture, note.detail
                );
            }
            if column.notes.len() > SHOWN {
                let _ = writeln!(
                    text,
                    "{}: {} more",
                    column.column,
                    column.notes.len() - SHOWN
                );
            }
        }
        let _ = writeln!(
            text,
            "{}",
            match self.verdict {
                Verdict::Verified => "VERIFIED",
                Verdict::Mismatch => "MISMATCH",
                Verdict::Usage => "USAGE",
                Verdict::Refused => "REFUSED",
                Verdict::CannotRun => "CANNOT RUN",
                Verdict::NoReference => "NO REFERENCE",
                Verdict::Incomparable => "INCOMPARABLE",
                Verdict::Incomplete => "INCOMPLETE",
                Verdict::Malformed => "MALFORMED",
            }
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::witness::head;

    fn witness(hash: char) -> Witness {
        Witness {
            head: head("cpu-x86_64-plain"),
            hashes: BTreeMap::from([
                (Key::new("a", "ties", "result"), hash.to_string().repeat(32)),
                (Key::new("b", "ties", "result"), "b".repeat(32)),
            ]),
            ..Witness::default()
        }
    }

    #[test]
    fn verdicts_follow_the_worst_state() {
        let mut table = Table::default();
        let verdict = |table: &Table, w: &Witness| Report::new(vec![judge(table, w)]).verdict;
        assert_eq!(verdict(&table, &witness('a')), Verdict::NoReference);
        table.bless(&witness('a'), |_| true);
        assert_eq!(verdict(&table, &witness('a')), Verdict::Verified);
        assert_eq!(verdict(&table, &witness('f')), Verdict::Mismatch);
        let mut refused = witness('a');
        refused.hashes.retain(|k, _| k.lane == "a");
        refused
            .refused
            .insert(("b".into(), "ties".into()), "lost".into());
        assert_eq!(verdict(&table, &refused), Verdict::Refused);
        let owed = absent(&table, "metal", 2, State::Owed, "not here");
        assert_eq!(Report::new(vec![owed]).verdict, Verdict::CannotRun);
    }

    #[test]
    fn a_part_that_is_gone_is_divergent() {
        let mut table = Table::default();
        let mut full = witness('a');
        full.hashes
            .insert(Key::new("a", "ties", "model"), "c".repeat(32));
        table.bless(&full, |_| true);
        let report = judge(&table, &witness('a'));
        assert_eq!(report.counts[&State::Divergent], 1);
        // A lane that did not run is nobody's fault.
        let mut one = witness('a');
        one.hashes.retain(|k, _| k.lane == "b");
        assert!(!judge(&table, &one).has(State::Divergent));
    }
}
