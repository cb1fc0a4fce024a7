//! `detml math`.

use detml_core::{Error, Result};
use detml_verify::judge::Verdict;
use detml_verify::math::{Effort, functions};
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// All 2^32 arguments; of functions of two arguments 2^31 pairs. Minutes for each function.
    #[arg(long, conflicts_with = "stride")]
    exhaustive: bool,
    /// Every how many bit patterns; neighbourhoods of boundaries are always taken.
    #[arg(long, default_value_t = 1021, value_parser = clap::value_parser!(u32).range(1..))]
    stride: u32,
    /// Only functions whose name holds this.
    #[arg(long, value_name = "PART")]
    function: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let effort = if args.exhaustive {
        Effort::Exhaustive
    } else {
        Effort::Stride(args.stride)
    };
    let part = args.function.as_deref().unwrap_or_default();
    let chosen: Vec<_> = functions()
        .iter()
        .filter(|f| f.name().contains(part))
        .collect();
    if chosen.is_empty() {
        let names: Vec<_> = functions().iter().map(|f| f.name()).collect();
        return Err(Error::parameter(
            "function",
            format!("a part of one of: {}", names.join(" ")),
            format!("`{}`", part.escape_debug()),
        ));
    }
    println!("| function | stated | worst error | at | arguments | correctly rounded |");
    println!("|---|---|---|---|---|---|");
    let start = Instant::now();
    let mut above = 0;
    for f in chosen {
        let found = f.sweep(effort);
        let (x, y) = found.at;
        let mut at = format!("{x:08x}");
        if let Some(y) = y {
            at = format!("{at}, {y:08x}");
        }
        let star = if f.rule().contains(';') { "*" } else { "" };
        println!(
            "| {}{star} | {} | {:.4} | {at} | {} | {:.2} % |",
            f.name(),
            f.bound(),
            found.worst,
            found.count,
            100.0 * found.correct as f64 / found.count.max(1) as f64
        );
        if found.above > 0 {
            println!(
                "FAILED {}: {} arguments above the stated bound",
                f.name(),
                found.above
            );
        }
        above += found.above;
    }
    println!();
    println!(
        "Errors in units in the last place (* below 0: of the result or of 1, whichever is \
         larger); arguments as bits."
    );
    eprintln!("{:.0} s", start.elapsed().as_secs_f64());
    Ok(if above == 0 {
        Verdict::Verified
    } else {
        Verdict::Mismatch
    })
}
