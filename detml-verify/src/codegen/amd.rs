//! Proofs over the code that AMD's compiler makes of every kernel.
//!
//! Three things are shown for each kernel and architecture, of LLVM's representation (R), which the
//! code generator starts from, and of the assembly (A):
//!
//! 1. In R no float operation carries a flag that allows another result, and there is none besides
//!    `+ - / sqrt fma`, comparisons, conversions of words, absolute values and products. LLVM makes
//!    a product of a quotient by a power of two, nothing else.
//! 2. A is the same, line by line, as the driver's compiler is called, and with contraction asked
//!    for everywhere and the text's pragma against it turned around: there is nothing to contract.
//! 3. The operations of A, each block placed once, are explained by those of R. A quotient is a correctly rounded sequence
//!    with a reciprocal, a product and five fused operations, a square root one with `v_sqrt_f32`,
//!    two products and two fused operations; integers are divided by way of `v_rcp_iflag_f32` and
//!    a product. No other approximation, function or number format occurs.
//!
//! Kernels of integer code have no float operation in R; their A is not looked at.
//!
//! And the kernel's descriptor must ask for rounding to nearest even with subnormals kept.

use super::clang::{Clang, Contraction};
use super::{Findings, isa, llvm};
use crate::proofs::{Layer, Record, Records};
use detml_core::{Error, Result};
use detml_kernels::codegen::sabotages;
use detml_kernels::codegen::text::text;
use detml_kernels::device::Kernel;
use detml_kernels::device::text::Language;
use detml_kernels::ieee::FloatProfile;
use rayon::prelude::*;
use std::path::PathBuf;

/// Where the tools are and what to compile for.
#[derive(Clone, Debug)]
pub struct AmdTools {
    /// A clang with AMD's targets.
    pub clang: PathBuf,
    /// The disassembler of the same LLVM; without it only assembly is looked at.
    pub objdump: Option<PathBuf>,
    /// Architectures, such as `gfx942`.
    pub architectures: Vec<String>,
    /// Only kernels whose name holds this.
    pub kernels: String,
    /// What is proved already and need not be again.
    pub known: Records,
}

impl AmdTools {
    /// What is proved where a kernel holds for an architecture.
    fn cells(&self, architecture: &str) -> Vec<(String, Layer)> {
        let column = format!("hip-{architecture}");
        let mut cells = vec![(column.clone(), Layer::Text)];
        if self.objdump.is_some() {
            cells.push((column, Layer::Machine));
        }
        cells
    }

    /// The records of what [`prove_amd`] found.
    pub fn records(&self, findings: &Findings) -> Vec<Record> {
        findings.records(Language::Hip, |arch| self.cells(arch))
    }
}

/// What was seen in the code of one kernel.
#[derive(Clone, Debug, Default)]
struct Seen {
    fused: usize,
    /// Bytes a thread that did not fit its registers.
    scratch: u64,
    failures: Vec<String>,
}

/// Compiles every kernel's HIP text for every architecture and checks the code. The notes of the
/// findings name the kernels that leave their registers.
///
/// # Errors
/// `Io`, `Unsupported` if the tools can't be run or refuse a text; `KernelCompilation`.
pub fn prove_amd(tools: &AmdTools) -> Result<Findings> {
    let clang = Clang::open(&tools.clang, tools.objdump.as_deref())?;
    let mut findings = Findings {
        toolchain: clang.version()?,
        ..Findings::default()
    };
    for (_, kernel) in sabotages() {
        if !SHOWN.contains(&kernel.name()) {
            continue;
        }
        for arch in &tools.architectures {
            if check(&clang, &kernel, arch)?.failures.is_empty() {
                findings.failures.push(format!(
                    "{arch}: nothing seen in the code of sabotage {}",
                    kernel.name()
                ));
            }
        }
    }
    let jobs = findings.jobs(
        &tools.architectures,
        &tools.kernels,
        Language::Hip,
        &tools.known,
        |arch| tools.cells(arch),
        |_| false,
    )?;
    let checked: Vec<_> = jobs
        .into_par_iter()
        .map(|job| Ok((check(&clang, &job.kernel, job.architecture)?, job)))
        .collect::<Result<_>>()?;
    for (seen, job) in checked {
        findings.fused += seen.fused;
        if seen.scratch > 0 {
            let bytes = seen.scratch;
            findings
                .notes
                .push(format!("{job}: {bytes} bytes of scratch a thread"));
        }
        findings.note(&job, &seen.failures);
    }
    Ok(findings)
}

/// The sabotages that must show in HIP's code. What the others do wrong is the lint's to see:
/// CubeCL has no relaxed math for HIP, and what LLVM folds is exact.
const SHOWN: [&str; 5] = [
    "bare_product",
    "literal_zero",
    "vendor_function",
    "float_type",
    "float_atomic",
];

/// What stands in the code more often than the representation explains.
fn unexplained(seen: &isa::Isa, from: &llvm::Operations) -> Vec<String> {
    // The code generator finds common parts that the optimiser left, so there may be fewer.
    let counts = [
        (
            "fused operations",
            seen.fused(),
            from.fused + 5 * from.quotients + 2 * from.roots,
        ),
        (
            "products",
            seen.products(),
            from.products + from.quotients + 2 * from.roots + seen.integer_reciprocals(),
        ),
        ("quotients", seen.quotients(), from.quotients),
        ("reciprocals", seen.reciprocals(), seen.quotients()),
        ("square roots", seen.roots(), from.roots),
        (
            "reciprocals for integers",
            seen.integer_reciprocals(),
            from.integer_divisions,
        ),
        ("maxima with +0", seen.positive_parts, from.positive_parts),
    ];
    counts
        .into_iter()
        .filter(|(_, seen, explained)| seen > explained)
        .map(|(what, seen, explained)| format!("{seen} {what}, {explained} explained"))
        .collect()
}

fn check(clang: &Clang, kernel: &Kernel, arch: &str) -> Result<Seen> {
    let source = text(kernel, Language::Hip)?;
    let hostile = source.replacen(
        "#pragma clang fp contract(off)",
        "#pragma clang fp contract(fast)",
        1,
    );
    let named = |error| match error {
        Error::Unsupported { what, reason } => Error::Unsupported {
            what: format!("{what} on {kernel:?} for {arch}"),
            reason,
        },
        other => other,
    };
    let from = llvm::read(&clang.representation(&source, arch).map_err(named)?);
    let mut failures: Vec<String> = from
        .forbidden
        .iter()
        .map(|line| format!("forbidden `{line}`"))
        .collect();
    if kernel.profile() == FloatProfile::EMULATED {
        if from.arithmetic > 0 {
            let count = from.arithmetic;
            failures.push(format!(
                "{count} float operations in a kernel of integer code"
            ));
        }
        return Ok(Seen {
            failures,
            ..Seen::default()
        });
    }
    let product = clang
        .assembly(&source, arch, Contraction::Product)
        .map_err(named)?;
    let code = isa::code(&product, kernel.name());
    if code.is_empty() {
        failures.push("no code".to_owned());
    }
    let other = clang
        .assembly(&hostile, arch, Contraction::Always)
        .map_err(named)?;
    if isa::code(&other, kernel.name()) != code {
        failures.push(format!(
            "contraction changes the code: {} fused operations, {} with it",
            isa::read(&product).fused(),
            isa::read(&other).fused()
        ));
    }
    let seen = isa::read(&product);
    failures.extend(
        seen.forbidden
            .iter()
            .map(|line| format!("forbidden `{line}`")),
    );
    let mut excess = unexplained(&seen, &from);
    if !excess.is_empty() {
        // Blocks may have been placed twice, for fewer jumps.
        let once = clang.placed_once(&source, arch).map_err(named)?;
        excess = unexplained(&isa::read(&once), &from);
    }
    failures.extend(excess);
    if let Some(machine) = clang.machine_code(&source, arch).map_err(named)?
        && machine != seen
    {
        failures.push(format!("machine code {machine:?}, assembly {seen:?}"));
    }
    for (field, wanted) in [("float_denorm_mode_32", 3), ("float_round_mode_32", 0)] {
        if isa::descriptor(&product, field) != Some(wanted) {
            failures.push(format!("{field} is {:?}", isa::descriptor(&product, field)));
        }
    }
    Ok(Seen {
        fused: seen.fused(),
        scratch: isa::descriptor(&product, "private_segment_fixed_size").unwrap_or(0),
        failures,
    })
}
