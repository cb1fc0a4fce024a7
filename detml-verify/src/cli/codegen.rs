//! `detml codegen`.

use detml_core::Result;
use detml_verify::codegen::{Findings, Nvrtc, Tools, prove_cuda, prove_representation};
use detml_verify::judge::Verdict;
use std::path::PathBuf;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the text of every kernel for every target into this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The folder of libnvrtc.so: compile every kernel with and without contraction.
    #[arg(long, value_name = "DIR")]
    nvrtc: Option<PathBuf>,
    /// nvdisasm, to compare machine code too.
    #[arg(long, value_name = "FILE", requires = "nvrtc")]
    nvdisasm: Option<PathBuf>,
    /// Architectures to compile for: virtual (PTX only) or real.
    #[arg(long, value_delimiter = ',', default_value = "compute_80,sm_90a")]
    arch: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let mut proved = true;
    if let Some(folder) = &args.out {
        let files = detml_verify::codegen::write_texts(folder)?;
        println!("{files} texts in {}", folder.display());
    }
    proved &= report("representation", &prove_representation());
    if let Some(folder) = &args.nvrtc {
        let tools = Tools {
            nvrtc: folder.clone(),
            nvdisasm: args.nvdisasm.clone(),
            architectures: args.arch.clone(),
        };
        println!("NVRTC {}", Nvrtc::open(folder)?.version()?);
        let start = Instant::now();
        let findings = prove_cuda(&tools)?;
        proved &= report("CUDA code", &findings);
        println!(
            "{} compilations with and without contraction, {} fused operations in each, {:.1} s",
            findings.compilations,
            findings.fused,
            start.elapsed().as_secs_f64()
        );
    }
    Ok(if proved {
        Verdict::Verified
    } else {
        Verdict::Mismatch
    })
}

fn report(what: &str, findings: &Findings) -> bool {
    for failure in &findings.failures {
        println!("FAILED {what}: {failure}");
    }
    let proved = findings.failures.is_empty();
    println!(
        "{what}: {} kernels, {}",
        findings.kernels,
        if proved { "proved" } else { "NOT proved" }
    );
    proved
}
