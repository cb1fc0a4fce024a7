//! `detml verify`.

use super::{Choice, Reference};
use detml_core::{Backend, Error, Result, write_atomic};
use detml_kernels::Device;
use detml_verify::column::{Present, level, present};
use detml_verify::judge::{Report, State, Verdict, absent, judge};
use detml_verify::run::Selection;
use detml_verify::table::{Key, Table};
use detml_verify::witness::Witness;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    choice: Choice,
    /// Only this device: `cpu` (all its levels), `cuda:0`, `hip:0`, `wgpu:0`. It must be there.
    #[arg(long)]
    backend: Option<Backend>,
    /// Judge files that `detml witness` wrote instead of running lanes here.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "backend")]
    witness: Vec<PathBuf>,
    #[command(flatten)]
    reference: Reference,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// For developers: take what the plain level of the CPU computes as the reference, note which
    /// other columns agree, and write the table. With `--witness`, only note who agrees.
    #[arg(long, value_name = "FILE", num_args = 0..=1,
          default_missing_value = "fixtures/reference.tsv")]
    bless: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let selection = args.choice.selection();
    let mut table = match (&args.bless, &args.reference.reference) {
        (Some(path), None) if path.exists() => Table::load(path)?,
        (Some(_), None) => Table::default(),
        _ => args.reference.table()?,
    };
    if args.bless.is_some() {
        table.complete();
    }
    let mut columns = Vec::new();
    if args.witness.is_empty() {
        let (lanes, fixtures) = selection.resolve()?;
        let mut here = present();
        if let Some(backend) = args.backend {
            // It must be there; `auto` is one of them.
            let backend = Device::for_backend(backend)?.backend();
            here.retain(|p| p.backend == backend);
        }
        let expected = |table: &Table| {
            table
                .entries
                .keys()
                .filter(|key| {
                    lanes.iter().any(|lane| lane.name == key.lane)
                        && fixtures.iter().any(|fixture| fixture.name == key.fixture)
                })
                .count()
        };
        for column in &here {
            match (&column.device, args.backend) {
                (Ok(_), _) => match compute(column, &args.choice) {
                    Ok(witness) => {
                        if args.bless.is_some() {
                            bless(&mut table, &witness, &selection);
                        }
                        columns.push(judge(&table, &witness));
                    }
                    Err(error) => columns.push(absent(
                        &table,
                        &column.column,
                        expected(&table),
                        State::Refused,
                        &error.to_string(),
                    )),
                },
                // The device that was asked for.
                (Err(error), Some(_)) => return Err(error.clone()),
                // Told at the columns of the table.
                (Err(Error::DeviceUnavailable { .. }), None) => {}
                (Err(error), None) => columns.push(absent(
                    &table,
                    &column.column,
                    expected(&table),
                    State::Refused,
                    &error.to_string(),
                )),
            }
        }
        if args.backend.is_none() {
            for column in &table.columns {
                if columns.iter().all(|c| c.column != column.name) {
                    let reason = why_absent(&column.name, &here);
                    let count = expected(&table);
                    columns.push(absent(&table, &column.name, count, State::Owed, &reason));
                }
            }
        }
    } else {
        for path in &args.witness {
            let witness = match Witness::load(path) {
                Err(error @ Error::Parse { .. }) => {
                    println!("MALFORMED: {error}");
                    return Ok(Verdict::Malformed);
                }
                witness => witness?,
            };
            witness.expect_profile(&path.display().to_string())?;
            if args.bless.is_some() {
                table.merge(&witness);
            }
            columns.push(judge(&table, &witness));
        }
    }
    if let Some(path) = &args.bless {
        write_atomic(path, table.to_text().as_bytes())?;
    }
    let report = Report::new(columns);
    if args.json {
        let text =
            serde_json::to_string_pretty(&report).map_err(|e| Error::internal(e.to_string()))?;
        println!("{text}");
    } else {
        print!("{}", report.to_text(&selection));
    }
    Ok(report.verdict)
}

/// Why no device of a column is here.
fn why_absent(column: &str, here: &[Present]) -> String {
    let kind = match column.split('-').next().unwrap_or_default() {
        "cpu" => return "this CPU is another or lacks the level".into(),
        "vulkan" | "metal" => "wgpu",
        other => other,
    };
    here.iter()
        .filter(|p| p.backend.kind() == kind)
        .find_map(|p| match &p.device {
            Err(Error::DeviceUnavailable { reason, .. }) => Some(reason.clone()),
            _ => None,
        })
        .unwrap_or_else(|| "not on this machine".into())
}

/// The plain level of the CPU decides; the others are asked whether they agree.
fn bless(table: &mut Table, witness: &Witness, selection: &Selection) {
    if witness.head.column.ends_with("-plain") {
        let whole = selection.lanes.is_none()
            && selection.fixtures.is_none()
            && selection.depth == detml_verify::run::Depth::All;
        let ran = |key: &Key| {
            let one = (key.lane.clone(), key.fixture.clone());
            witness
                .hashes
                .keys()
                .any(|k| k.lane == key.lane && k.fixture == key.fixture)
                || witness.not_applicable.contains_key(&one)
        };
        table.version = env!("CARGO_PKG_VERSION").into();
        table.bless(witness, |key| whole || ran(key));
    } else {
        table.merge(witness);
    }
}

/// Runs the lanes on one column in a process of its own: a level of the CPU is chosen for a whole
/// process, and a device that is lost takes no other column with it.
fn compute(column: &Present, choice: &Choice) -> Result<Witness> {
    let broken = |what: String| Error::internal(format!("column {}: {what}", column.column));
    let program = std::env::current_exe().map_err(|e| broken(e.to_string()))?;
    let mut command = Command::new(program);
    command
        .args(["witness", "--out=-", "--unsigned"])
        .arg(format!("--backend={}", column.backend))
        .args(choice.arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if let Some(simd) = column.simd {
        command.env("DETML_SIMD", level(simd));
    }
    let mut child = command.spawn().map_err(|e| broken(e.to_string()))?;
    let out = child
        .stdout
        .take()
        .ok_or_else(|| broken("no output".into()))?;
    let witness = Witness::read(BufReader::new(out), &column.column);
    let status = child.wait().map_err(|e| broken(e.to_string()))?;
    if !status.success() {
        return Err(broken(format!("its process ended with {status}")));
    }
    witness
}
