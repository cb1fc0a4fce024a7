//! Is every kernel watched? Mistakes of each kind are put into each kernel, by rule
//! ([`detml_kernels::codegen::mutation`]), and the lint or a test of the suites must see them.
//!
//! Products that could be contracted are the lint's to see, all of them. The other kinds are shown
//! to the suites: the test binary of detml-kernels puts one mistake into every kernel of a name that
//! it launches, and one of the tests that launch it must fail. Of the places that a kernel has for a
//! kind, some are tried, spread over all of them.
//!
//! The table holds a line for each kernel and kind, tab-separated and in order: the kernel, the
//! kind, `caught`, `survived`, `owed` or `n/a`, the number of places, how many were tried, how many of these
//! were caught, and who caught the first one, or why there is none.

use crate::table::{is_name, is_text};
use detml_core::{Error, Result};
use detml_kernels::codegen::lint::{Rule, lint};
use detml_kernels::codegen::mutation::{Kind, Places, mutated, places};
use detml_kernels::codegen::{PROFILES, kernels};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Mistakes that no test can see, with the reason.
pub const EXCUSED: [(&str, Kind, &str); 0] = [];

/// How it went for a kernel and a kind of mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Places for it; of a kernel of several variants the most that one has.
    pub places: usize,
    /// Places that were tried.
    pub tried: usize,
    /// Of these, those that were seen.
    pub caught: usize,
    /// The first that saw one: `lint` or a test; or why there is none.
    pub by: String,
}

impl Row {
    /// `caught`, `survived`, `owed` (not tried) or `n/a` (no place for it).
    pub fn outcome(&self) -> &'static str {
        match (self.places, self.tried, self.caught) {
            (0, _, _) => "n/a",
            (_, 0, _) => "owed",
            (_, _, 0) => "survived",
            _ => "caught",
        }
    }

    /// A row of a kernel with this many places, none tried.
    fn untried(kind: Kind, places: usize) -> Self {
        let by = if places == 0 {
            kind.absence()
        } else {
            "nobody"
        };
        Self {
            places,
            tried: 0,
            caught: 0,
            by: by.into(),
        }
    }
}

/// The rows by kernel and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sabotage {
    /// The rows.
    pub rows: BTreeMap<(String, Kind), Row>,
}

const HEAD: &str = "\
# Mistakes put into every kernel, see docs/verification.md. Written by `detml sabotage`.
# kernel\tkind\toutcome\tplaces\ttried\tcaught\tby
";

impl Sabotage {
    /// The table that this build of detml was made with.
    ///
    /// # Errors
    /// `Parse` if it is damaged.
    pub fn built_in() -> Result<Self> {
        Self::parse(
            include_str!("../../fixtures/codegen/sabotage.tsv"),
            "fixtures/codegen/sabotage.tsv",
        )
    }

    /// Reads a table; `origin` names it in errors.
    ///
    /// # Errors
    /// `Parse` names the first line that is not as [this module](self) says.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let mut table = Self::default();
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            let refuse = || {
                let got: String = line.escape_debug().take(80).collect();
                Error::parse(origin, number as u64 + 1, "a row of seven cells", got)
            };
            let (key, row) = parse(line).ok_or_else(refuse)?;
            if table.rows.insert(key, row).is_some() {
                return Err(refuse());
            }
        }
        Ok(table)
    }

    /// The table as text.
    pub fn to_text(&self) -> String {
        let mut text = String::from(HEAD);
        for ((kernel, kind), row) in &self.rows {
            // Writing to a string can't fail.
            let _ = writeln!(
                text,
                "{kernel}\t{kind}\t{}\t{}\t{}\t{}\t{}",
                row.outcome(),
                row.places,
                row.tried,
                row.caught,
                row.by
            );
        }
        text
    }

    /// How many rows have an outcome.
    pub fn count(&self, outcome: &str) -> usize {
        let rows = self.rows.values();
        rows.filter(|row| row.outcome() == outcome).count()
    }

    /// What is wrong with the table: kernels and kinds that it lacks, and mistakes that nothing
    /// saw and nobody has [excused](EXCUSED).
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let names = names();
        for name in &names {
            for kind in Kind::ALL {
                if !self.rows.contains_key(&(name.clone(), kind)) {
                    faults.push(format!("no row for {name}, {kind}"));
                }
            }
        }
        for ((name, kind), row) in &self.rows {
            let excused = EXCUSED.iter().any(|(n, k, _)| n == name && k == kind);
            if !names.contains(name) {
                faults.push(format!("no kernel {name}"));
            }
            if (row.outcome() == "survived") != excused {
                faults.push(format!("{name}, {kind}: {}", row.outcome()));
            }
        }
        faults
    }
}

fn parse(line: &str) -> Option<((String, Kind), Row)> {
    let cells: Vec<&str> = line.split('\t').collect();
    let [kernel, kind, outcome, places, tried, caught, by] = cells[..] else {
        return None;
    };
    let kind = Kind::ALL.into_iter().find(|k| k.name() == kind)?;
    let row = Row {
        places: places.parse().ok()?,
        tried: tried.parse().ok()?,
        caught: caught.parse().ok()?,
        by: by.into(),
    };
    let sound = is_name(kernel)
        && is_text(by)
        && row.caught <= row.tried
        && row.tried <= row.places
        && row.outcome() == outcome;
    sound.then_some(((kernel.into(), kind), row))
}

/// The names of all kernels.
pub fn names() -> BTreeSet<String> {
    PROFILES
        .iter()
        .flat_map(|(_, profile)| kernels(*profile))
        .map(|kernel| kernel.name().to_owned())
        .collect()
}

/// What needs no device: the contraction of every product, which the lint must see, and how many
/// places each kernel has for the other kinds. Rows of those are `before`'s where the kernel has as
/// many places as then.
pub fn begin(before: &Sabotage) -> Sabotage {
    let mut rows: BTreeMap<(String, Kind), Row> = BTreeMap::new();
    for kernel in PROFILES.iter().flat_map(|(_, profile)| kernels(*profile)) {
        for kind in Kind::ALL {
            let count = places(&kernel, kind);
            let key = (kernel.name().to_owned(), kind);
            let row = rows.entry(key).or_insert_with(|| Row::untried(kind, 0));
            if kind != Kind::Contraction {
                *row = Row::untried(kind, count.max(row.places));
                continue;
            }
            let wrong = mutated(&kernel, kind, Places::All);
            let seen = lint(&wrong)
                .iter()
                .filter(|violation| violation.rule == Rule::BareProduct)
                .count();
            row.places += count;
            row.tried += count;
            row.caught += seen.min(count);
            if seen > 0 {
                row.by = "lint".into();
            }
        }
    }
    for (key, row) in &mut rows {
        if key.1 != Kind::Contraction
            && let Some(known) = before.rows.get(key)
            && known.places == row.places
        {
            *row = known.clone();
        }
    }
    Sabotage { rows }
}

/// Where the suites are and how much is tried.
#[derive(Clone, Debug)]
pub struct Suites {
    /// The test binary of detml-kernels.
    pub binary: PathBuf,
    /// Which tests, by a part of the name: `cuda::`.
    pub tests: String,
    /// What the tests launch, written here by a run without mistakes, and read if it is there.
    pub launched: PathBuf,
    /// How many places are tried for each kernel and kind; if none is caught, three times as many.
    pub tries: usize,
    /// Only kernels whose name holds this.
    pub kernels: String,
    /// How many tests run at a time.
    pub jobs: usize,
    /// Whether rows are made anew that have an outcome already.
    pub again: bool,
}

/// A test that launches a kernel, and the places that its variants have at most, by kind.
type Launches = BTreeMap<String, BTreeMap<String, [usize; Kind::ALL.len()]>>;

/// Puts each kind of mistake into each kernel and runs the tests that launch it, the quickest
/// first, until one fails. `save` gets the table after each row; rows that are not chosen, and
/// unless `again` those that were caught, are `before`'s.
///
/// # Errors
/// `Io`; `Internal` if the suites fail without any mistake.
pub fn sabotage(
    suites: &Suites,
    before: &Sabotage,
    mut save: impl FnMut(&Sabotage) -> Result<()> + Send,
) -> Result<Sabotage> {
    if !suites.launched.exists() {
        let threads = format!("--test-threads={}", suites.jobs);
        let limit = Duration::from_secs(3600);
        let whole = run(suites, &[suites.tests.as_str(), &threads], limit, |c| {
            c.env("DETML_LAUNCHED", &suites.launched);
        })?;
        if let Outcome::Failed(text) = whole {
            let _ = std::fs::remove_file(&suites.launched);
            return Err(Error::internal(format!("without a mistake: {text}")));
        }
    }
    let text =
        std::fs::read_to_string(&suites.launched).map_err(|e| Error::io(&suites.launched, &e))?;
    let (launches, durations) = read_launches(&text, &suites.launched)?;
    let table = begin(before);
    let none = BTreeMap::new();
    let mut chosen = Vec::new();
    for (key, row) in &table.rows {
        let (name, kind) = key;
        let settled = row.places == 0 || (row.caught > 0 && !suites.again);
        if *kind == Kind::Contraction || settled || !name.contains(&suites.kernels) {
            continue;
        }
        let at = Kind::ALL.iter().position(|k| k == kind).unwrap_or(0);
        let tests = launches.get(name).unwrap_or(&none);
        let mut able: Vec<_> = tests.iter().filter(|(_, counts)| counts[at] > 0).collect();
        able.sort_by(|(a, _), (b, _)| durations[*a].total_cmp(&durations[*b]));
        let able: Vec<&str> = able.iter().map(|(test, _)| test.as_str()).collect();
        // Where no test launches a kernel with a place for it, the row stays owed.
        if !able.is_empty() {
            chosen.push((key.clone(), row.places, able));
        }
    }
    // What takes long begins first.
    chosen.sort_by(|(_, _, a), (_, _, b)| {
        let least = |tests: &[&str]| tests.first().map_or(0.0, |test| durations[*test]);
        least(b).total_cmp(&least(a))
    });
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(suites.jobs)
        .build()
        .map_err(|error| Error::internal(format!("{} threads: {error}", suites.jobs)))?;
    let shared = Mutex::new((table, &mut save));
    pool.install(|| {
        chosen
            .into_par_iter()
            .with_max_len(1)
            .try_for_each(|(key, places, able)| {
                let row = try_places(suites, &key.0, key.1, places, &able, &durations)?;
                let mut shared = shared
                    .lock()
                    .map_err(|_| Error::internal("a thread died"))?;
                let (table, save) = &mut *shared;
                table.rows.insert(key, row);
                save(table)
            })
    })?;
    let shared = shared.into_inner();
    Ok(shared.map_err(|_| Error::internal("a thread died"))?.0)
}

/// Tries some places of a kernel.
fn try_places(
    suites: &Suites,
    kernel: &str,
    kind: Kind,
    places: usize,
    tests: &[&str],
    durations: &BTreeMap<String, f64>,
) -> Result<Row> {
    let mut row = Row::untried(kind, places);
    for parts in [suites.tries, 3 * suites.tries] {
        let parts = parts.min(places);
        if parts == row.tried {
            break;
        }
        row.tried = parts;
        for part in 0..parts {
            let mistake = format!("{kind}:{kernel}:{part}/{parts}");
            let by = tests.iter().find_map(|test| {
                // A mistake may make a loop endless.
                let limit = Duration::from_secs_f64(30.0 + 10.0 * durations[*test]);
                let seen = run(suites, &["--exact", test], limit, |command| {
                    command.env("DETML_SABOTAGE", &mistake);
                });
                match seen {
                    Ok(Outcome::Passed) => None,
                    // A mistake that CubeCL can't print is none.
                    Ok(Outcome::Failed(text)) if is_invalid(&text) => None,
                    Ok(Outcome::Failed(_)) => Some(Ok((*test).to_owned())),
                    Ok(Outcome::Hung) => Some(Ok(format!("{test} (time limit)"))),
                    Err(error) => Some(Err(error)),
                }
            });
            if let Some(by) = by.transpose()? {
                if row.caught == 0 {
                    row.by = by;
                }
                row.caught += 1;
            }
        }
        if row.caught > 0 {
            break;
        }
    }
    Ok(row)
}

fn is_invalid(text: &str) -> bool {
    [
        "KernelCompilation",
        "DeviceLost",
        "BareProduct",
        "no entry found",
    ]
    .iter()
    .any(|word| text.contains(word))
}

enum Outcome {
    Passed,
    Failed(String),
    Hung,
}

/// Runs tests of the binary.
fn run(
    suites: &Suites,
    arguments: &[&str],
    limit: Duration,
    set: impl Fn(&mut Command),
) -> Result<Outcome> {
    let failed = |e: std::io::Error| Error::io(&suites.binary, &e);
    let mut command = Command::new(&suites.binary);
    command
        .args(arguments)
        .env("DETML_REQUIRE_DEVICES", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    set(&mut command);
    let mut child = command.spawn().map_err(failed)?;
    let mut out = child.stdout.take();
    // The end of the text, read while the child writes.
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(out) = &mut out {
            let _ = out.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if start.elapsed() > limit {
            child.kill().map_err(failed)?;
            let _ = child.wait();
            return Ok(Outcome::Hung);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let text = reader.join().unwrap_or_default();
    Ok(if status.success() {
        Outcome::Passed
    } else {
        Outcome::Failed(text)
    })
}

/// Which tests launch a kernel, and how long each test takes at most.
fn read_launches(text: &str, origin: &Path) -> Result<(Launches, BTreeMap<String, f64>)> {
    let mut launches = Launches::new();
    let mut spans: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let refuse = || {
            let origin = origin.display().to_string();
            Error::parse(origin, number as u64 + 1, "a launch", line)
        };
        let cells: Vec<&str> = line.split('\t').collect();
        let [test, kernel, seconds, counts @ ..] = &cells[..] else {
            return Err(refuse());
        };
        let seconds: f64 = seconds.parse().map_err(|_| refuse())?;
        if counts.len() != Kind::ALL.len() {
            return Err(refuse());
        }
        let span = spans
            .entry((*test).to_owned())
            .or_insert((seconds, seconds));
        span.1 = span.1.max(seconds);
        let most = launches
            .entry((*kernel).to_owned())
            .or_default()
            .entry((*test).to_owned())
            .or_default();
        for (most, count) in most.iter_mut().zip(counts) {
            *most = (*most).max(count.parse().map_err(|_| refuse())?);
        }
    }
    let durations = spans
        .into_iter()
        .map(|(test, (from, to))| (test, to - from))
        .collect();
    Ok((launches, durations))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_watched() {
        let table = Sabotage::built_in().unwrap();
        let faults = table.faults();
        assert!(
            faults.is_empty(),
            "{}\nrun .ci/proofs-sabotage, which writes the table anew",
            faults.join("\n")
        );
        assert_eq!(Sabotage::parse(&table.to_text(), "t").unwrap(), table);
    }

    #[test]
    fn what_needs_no_device_is_as_the_table_says() {
        let table = Sabotage::built_in().unwrap();
        for (key, row) in begin(&Sabotage::default()).rows {
            let known = &table.rows[&key];
            assert_eq!(known.places, row.places, "{key:?}");
            if key.1 == Kind::Contraction {
                assert_eq!(known, &row, "{key:?}");
                assert_eq!(row.caught, row.places, "{key:?}");
            }
        }
    }

    /// A kernel without a row, a row without a kernel and a mistake that nothing saw are told.
    #[test]
    fn the_check_can_fail() {
        let sound = Sabotage::built_in().unwrap();
        let key = ("gemm".to_owned(), Kind::Contraction);
        let mut less = sound.clone();
        less.rows.remove(&key);
        assert_eq!(less.faults(), ["no row for gemm, contraction"]);
        let mut survived = sound.clone();
        if let Some(row) = survived.rows.get_mut(&key) {
            row.caught = 0;
        }
        assert_eq!(survived.faults(), ["gemm, contraction: survived"]);
        let mut more = sound.clone();
        let row = sound.rows[&key].clone();
        more.rows.insert(("phantom".into(), Kind::Contraction), row);
        assert_eq!(more.faults(), ["no kernel phantom"]);
        for bad in [
            "gemm\torder\tcaught\t1\t2\t1\tx",
            "gemm\torder\tn/a\t1\t1\t1\tx",
            "gemm",
        ] {
            assert!(Sabotage::parse(bad, "t").is_err(), "{bad}");
        }
    }

    #[test]
    fn launches_are_read() {
        let text =
            "a\tgemm\t0.5\t1\t2\t3\t4\t5\na\tgemm\t2.0\t9\t0\t0\t0\t0\nb\tfill\t1\t0\t0\t0\t0\t1\n";
        let (launches, durations) = read_launches(text, Path::new("t")).unwrap();
        assert_eq!(launches["gemm"]["a"], [9, 2, 3, 4, 5]);
        assert_eq!((durations["a"], durations["b"]), (1.5, 0.0));
        assert!(read_launches("a\tgemm\tx\t1", Path::new("t")).is_err());
    }
}
