//! `detml witness`.

use super::{Choice, device};
use detml_core::{Backend, Error, Result, write_atomic};
use detml_verify::judge::Verdict;
use detml_verify::run::witness;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file to write; `-` is the standard output.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The device: `cpu`, `cuda:0`, `hip:0`, `wgpu:0`; else what `DETML_BACKEND` says. The level
    /// of the CPU is `DETML_SIMD`'s.
    #[arg(long)]
    backend: Option<Backend>,
    /// What to call the device, instead of its own name: `QEMU 11`, for one.
    #[arg(long, value_name = "NAME")]
    called: Option<String>,
    #[command(flatten)]
    choice: Choice,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let device = device(args.backend)?;
    let called = args.called.as_deref();
    let selection = args.choice.selection();
    if args.out == Path::new("-") {
        let mut out = std::io::stdout().lock();
        witness(&device, called, &selection, |line| {
            line.write(&mut out).map_err(|e| Error::io("-", &e))
        })?;
    } else {
        let mut bytes = Vec::new();
        witness(&device, called, &selection, |line| {
            line.write(&mut bytes).map_err(|e| Error::io(&args.out, &e))
        })?;
        write_atomic(&args.out, &bytes)?;
        println!("{device}: {}", args.out.display());
    }
    Ok(Verdict::Verified)
}
