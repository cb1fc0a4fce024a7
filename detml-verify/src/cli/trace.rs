//! `detml trace`.

use super::device;
use detml_core::{Backend, Error, Result, with_backend, write_atomic};
use detml_verify::fixtures::fixtures;
use detml_verify::judge::Verdict;
use detml_verify::stages::trace;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file to write; `-` is the standard output.
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
    /// The device; else what `DETML_BACKEND` says.
    #[arg(long)]
    backend: Option<Backend>,
    /// The data set.
    #[arg(long, default_value = "normal")]
    fixture: String,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let all = fixtures();
    let Some(fixture) = all.iter().find(|f| f.name == args.fixture) else {
        let names: Vec<_> = all.iter().map(|f| f.name).collect();
        return Err(Error::parameter(
            "fixture",
            format!("one of: {}", names.join(" ")),
            format!("`{}`", args.fixture.escape_debug()),
        ));
    };
    let device = device(args.backend)?;
    let text = with_backend(device.backend(), || trace(&device, fixture))?.to_text()?;
    if args.out == Path::new("-") {
        print!("{text}");
    } else {
        write_atomic(&args.out, text.as_bytes())?;
    }
    Ok(Verdict::Verified)
}
