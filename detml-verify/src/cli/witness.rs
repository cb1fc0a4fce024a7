//! `detml witness`.

use super::{Choice, device};
use detml_core::{Backend, Error, Result, write_atomic};
use detml_verify::judge::Verdict;
use detml_verify::run::witness;
use detml_verify::signature::Signer;
use detml_verify::witness::signed;
use std::io::Write;
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
    /// The file of the key that signs, made if it is absent; else the user's.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// No signature: what `verify` asks of its own processes.
    #[arg(long, hide = true, conflicts_with = "key")]
    unsigned: bool,
    #[command(flatten)]
    choice: Choice,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let device = device(args.backend)?;
    let called = args.called.as_deref();
    let selection = args.choice.selection();
    // A key that can't be had is told before lanes run.
    let signer = match &args.key {
        _ if args.unsigned => None,
        Some(path) => Some(Signer::of_file(path)?),
        None => Some(Signer::of_user()?),
    };
    let mut bytes = Vec::new();
    witness(&device, called, &selection, |line| {
        line.write(&mut bytes).map_err(|e| Error::io(&args.out, &e))
    })?;
    if let Some(signer) = &signer {
        bytes = signed(bytes, signer);
    }
    if args.out == Path::new("-") {
        let mut out = std::io::stdout().lock();
        out.write_all(&bytes).map_err(|e| Error::io("-", &e))?;
    } else {
        write_atomic(&args.out, &bytes)?;
        println!("{device}: {}", args.out.display());
        if let Some(signer) = &signer {
            println!("signed by {}", signer.public_key());
        }
    }
    Ok(Verdict::Verified)
}
