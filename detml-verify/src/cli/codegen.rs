//! `detml codegen`.

use detml_core::{Error, Result};
use detml_verify::codegen::amd::{AmdTools, prove_amd};
use detml_verify::codegen::{Findings, Tools, prove_cuda, prove_manifest, prove_representation};
use detml_verify::judge::Verdict;
use detml_verify::proofs::{Record, Records, forget, record};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the text of every kernel for every target into this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// With --out, --nvrtc or --amd: only kernels whose name holds this.
    #[arg(long, value_name = "PART", default_value = "")]
    kernels: String,
    /// Compare the hash of every text with this file's.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "fixtures/codegen/manifest.tsv"
    )]
    manifest: Option<PathBuf>,
    /// Write the hashes to the manifest instead, after kernels have changed.
    #[arg(long, requires = "manifest")]
    bless: bool,
    /// The folder of libnvrtc.so: compile every kernel with and without contraction.
    #[arg(long, value_name = "DIR")]
    nvrtc: Option<PathBuf>,
    /// nvdisasm, to compare machine code too.
    #[arg(long, value_name = "FILE", requires = "nvrtc")]
    nvdisasm: Option<PathBuf>,
    /// NVIDIA's architectures to compile for: virtual (PTX only) or real.
    #[arg(long, value_delimiter = ',', default_value = "compute_80,sm_90a")]
    arch: Vec<String>,
    /// With --nvdisasm: hot kernels must stay in their registers.
    #[arg(long, requires = "nvdisasm")]
    spills: bool,
    /// Write which texts --nvrtc or --amd proved into this file of records, for the support matrix;
    /// what it says was proved with the same tools is not proved again.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// With --record: prove everything again.
    #[arg(long, requires = "record")]
    again: bool,
    /// A clang with AMD's targets: compile every kernel with and without contraction.
    #[arg(long, value_name = "FILE")]
    amd: Option<PathBuf>,
    /// The llvm-objdump of that clang, to compare machine code too.
    #[arg(long, value_name = "FILE", requires = "amd")]
    objdump: Option<PathBuf>,
    /// AMD's architectures to compile for.
    #[arg(long, value_delimiter = ',', default_value = "gfx90a,gfx942,gfx1100")]
    amd_arch: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let mut proved = true;
    if let Some(folder) = &args.out {
        let files = detml_verify::codegen::write_texts(folder, &args.kernels)?;
        println!("{files} texts in {}", folder.display());
    }
    if let Some(file) = &args.manifest {
        let findings = prove_manifest(file, args.bless)?;
        if args.bless {
            let text = std::fs::read_to_string(file).map_err(|e| Error::io(file, &e))?;
            // Records lie beside the manifest's folder.
            if let Some(folder) = file.parent().and_then(Path::parent) {
                forget(&folder.join("proofs"), &text)?;
            }
            println!("{} kernels in {}", findings.kernels, file.display());
        } else {
            proved &= report("texts of the manifest", &findings);
        }
    }
    proved &= report("representation", &prove_representation());
    let known = match &args.record {
        Some(file) if !args.again => Records::load(file)?,
        _ => Records::default(),
    };
    if let Some(folder) = &args.nvrtc {
        let tools = Tools {
            nvrtc: folder.clone(),
            nvdisasm: args.nvdisasm.clone(),
            architectures: args.arch.clone(),
            spills: args.spills,
            kernels: args.kernels.clone(),
            known: known.clone(),
        };
        let start = Instant::now();
        let findings = prove_cuda(&tools)?;
        proved &= finish(
            args,
            "CUDA code",
            &findings,
            start,
            tools.records(&findings),
        )?;
    }
    if let Some(clang) = &args.amd {
        let tools = AmdTools {
            clang: clang.clone(),
            objdump: args.objdump.clone(),
            architectures: args.amd_arch.clone(),
            kernels: args.kernels.clone(),
            known,
        };
        let start = Instant::now();
        let findings = prove_amd(&tools)?;
        proved &= finish(args, "AMD code", &findings, start, tools.records(&findings))?;
    }
    Ok(if proved {
        Verdict::Verified
    } else {
        Verdict::Mismatch
    })
}

/// Tells how a proof over compilers' code went and leaves its records.
fn finish(
    args: &Args,
    what: &str,
    findings: &Findings,
    start: Instant,
    records: Vec<Record>,
) -> Result<bool> {
    println!("{}", findings.toolchain);
    for note in &findings.notes {
        println!("{note}");
    }
    let proved = report(what, findings);
    if let Some(file) = &args.record {
        record(file, records)?;
    }
    println!(
        "{} compilations with and without contraction, {} fused operations in each, {} known \
         before, {:.1} s",
        findings.compilations,
        findings.fused,
        findings.known,
        start.elapsed().as_secs_f64()
    );
    Ok(proved)
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
