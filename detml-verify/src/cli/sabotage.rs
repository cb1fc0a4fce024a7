//! `detml sabotage`.

use detml_core::{Error, Result, write_atomic};
use detml_verify::judge::Verdict;
use detml_verify::sabotage::{Sabotage, Suites, begin, sabotage};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The test binary of detml-kernels, with the features of the devices to be used; without it
    /// only the lint is asked.
    #[arg(long, value_name = "FILE", requires = "launched")]
    suites: Option<PathBuf>,
    /// Only tests whose name holds this: those of a device whose arithmetic is native.
    #[arg(long, value_name = "PART", default_value = "hip::")]
    tests: String,
    /// What each test launches: written by a run without mistakes, read if it is there.
    #[arg(long, value_name = "FILE")]
    launched: Option<PathBuf>,
    /// Places that are tried for each kernel and kind of mistake.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    tries: u8,
    /// Only kernels whose name holds this.
    #[arg(long, value_name = "PART", default_value = "")]
    kernels: String,
    /// Tests that run at a time; by default half as many as the machine has threads.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Also tries again what was caught before.
    #[arg(long)]
    again: bool,
    /// The table to write; it keeps its rows of kernels that are not chosen.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "fixtures/codegen/sabotage.tsv"
    )]
    out: PathBuf,
}

fn jobs() -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    threads.div_ceil(2)
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let before = if args.out.exists() {
        let text = std::fs::read_to_string(&args.out).map_err(|e| Error::io(&args.out, &e))?;
        Sabotage::parse(&text, &args.out.display().to_string())?
    } else {
        Sabotage::default()
    };
    let save = |table: &Sabotage| write_atomic(&args.out, table.to_text().as_bytes());
    let table = match (&args.suites, &args.launched) {
        (Some(binary), Some(launched)) => {
            let suites = Suites {
                binary: binary.clone(),
                tests: args.tests.clone(),
                launched: launched.clone(),
                tries: args.tries.into(),
                kernels: args.kernels.clone(),
                jobs: args.jobs.map_or_else(jobs, usize::from),
                again: args.again,
            };
            sabotage(&suites, &before, save)?
        }
        _ => begin(&before),
    };
    save(&table)?;
    for outcome in ["caught", "survived", "owed", "n/a"] {
        println!("{:>5} {outcome}", table.count(outcome));
    }
    let faults = table.faults();
    for fault in &faults {
        println!("FAILED {fault}");
    }
    Ok(if faults.is_empty() {
        Verdict::Verified
    } else {
        Verdict::Mismatch
    })
}
