//! `detml doctor`.

use detml_core::{Error, NUMERIC_PROFILE, Result, current_backend, current_numeric_mode};
use detml_kernels::Simd;
use detml_verify::column::{level, present};
use detml_verify::judge::Verdict;
use detml_verify::run::float_profile;
use detml_verify::table::Table;

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<Verdict> {
    println!("detml {}, {NUMERIC_PROFILE}", env!("CARGO_PKG_VERSION"));
    println!(
        "{} {}, {} threads, levels: {}",
        std::env::consts::OS,
        std::env::consts::ARCH,
        std::thread::available_parallelism().map_or(1, usize::from),
        Simd::available()
            .into_iter()
            .map(level)
            .collect::<Vec<_>>()
            .join(" ")
    );
    println!(
        "chosen: backend {}, level {}, numeric mode {}",
        current_backend()?,
        level(Simd::current()?),
        current_numeric_mode()?
    );
    println!();
    let mut refused = false;
    for here in present() {
        let name = match here.simd {
            Some(simd) => format!("cpu ({})", level(simd)),
            None => here.backend.to_string(),
        };
        match &here.device {
            Ok(device) => println!(
                "{name:<14} present  {} [{}] as {}",
                device.name(),
                float_profile(device)?,
                here.column
            ),
            Err(Error::DeviceUnavailable { reason, .. }) => {
                println!("{name:<14} absent   {reason}");
            }
            Err(error) => {
                refused = true;
                println!("{name:<14} REFUSED  {error}");
            }
        }
    }
    println!();
    let table = Table::built_in()?;
    println!(
        "reference: {} results of {} lanes",
        table.entries.len(),
        table
            .entries
            .keys()
            .map(|k| &k.lane)
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    );
    for column in &table.columns {
        let seen = table
            .entries
            .values()
            .filter(|e| e.witnesses.contains(column.letter))
            .count();
        match &column.evidence {
            Some(e) => println!(
                "  {:<18} {seen} witnessed {} on {} ({})",
                column.name, e.date, e.device, e.toolchain
            ),
            None => println!("  {:<18} OWED", column.name),
        }
    }
    Ok(if refused {
        Verdict::Refused
    } else {
        Verdict::Verified
    })
}
