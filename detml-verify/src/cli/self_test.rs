//! `detml self-test`.

use super::{Reference, device};
use detml_core::{Backend, Result};
use detml_verify::judge::Verdict;
use detml_verify::self_test::self_test;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The device; else what `DETML_BACKEND` says.
    #[arg(long)]
    backend: Option<Backend>,
    #[command(flatten)]
    reference: Reference,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let device = device(args.backend)?;
    println!("{device}");
    let trials = self_test(&args.reference.table()?, &device)?;
    for trial in &trials {
        let state = |divergent| if divergent { "DIVERGENT" } else { "IDENTICAL" };
        println!("without the fault  {}  {}", state(!trial.sound), trial.name);
        println!(
            "with the fault     {}  expected {}, got {}",
            state(trial.seen),
            trial.hashes.0,
            trial.hashes.1
        );
    }
    let passed = trials.iter().filter(|t| t.passed()).count();
    println!("{passed} of {} faults seen, and only those", trials.len());
    Ok(if passed == trials.len() {
        Verdict::Verified
    } else {
        Verdict::Mismatch
    })
}
