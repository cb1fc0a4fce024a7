//! Proofs over the code that compilers make of every kernel, without a device.
//!
//! CUDA's run-time compiler and AMD's clang are run on each kernel with and without contraction: a
//! kernel that leaves them nothing to contract gives the same code both ways.

pub mod amd;
mod clang;
mod isa;
mod llvm;
mod nvrtc;
mod ptx;

pub use clang::Clang;
pub use nvrtc::Nvrtc;
pub use ptx::{Census, fingerprint};

use crate::proofs::{Layer, Record, Records};
use detml_core::{Error, Result};
use detml_kernels::codegen::lint::{Rule, lint};
use detml_kernels::codegen::manifest::{Manifest, hash_of};
use detml_kernels::codegen::text::{LANGUAGES, extension, has_text, text};
use detml_kernels::codegen::{PROFILES, kernels, sabotages};
use detml_kernels::device::Kernel;
use detml_kernels::device::text::Language;
use detml_kernels::ieee::{FloatProfile, Path as Computed};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Where NVIDIA's tools are and what to compile for.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The folder of `libnvrtc.so`.
    pub nvrtc: PathBuf,
    /// The disassembler; without it machine code is not looked at.
    pub nvdisasm: Option<PathBuf>,
    /// Architectures: virtual ones (`compute_80`, PTX only) or real ones (`sm_90a`).
    pub architectures: Vec<String>,
    /// Whether hot kernels are disassembled to see that they stay in their registers.
    pub spills: bool,
    /// Only kernels whose name holds this.
    pub kernels: String,
    /// What is proved already and need not be again.
    pub known: Records,
}

/// What hot kernels' names start with: those that a computation spends its time in.
pub const HOT: [&str; 11] = [
    "attention",
    "boosting_histogram",
    "conv",
    "elementwise",
    "gemm",
    "histogram",
    "reduce",
    "rowwise",
    "scan",
    "selective_scan",
    "sort",
];

/// What is known to leave its registers: a part of the kernel with its variant, and why.
const SPILLS: [(&str, &str); 0] = [];

/// How a proof went for one architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The profiles of its kernels.
    pub profiles: Vec<&'static str>,
    /// The hashes of the texts that hold.
    pub proved: BTreeSet<String>,
    /// Those of texts that do not.
    pub refuted: BTreeSet<String>,
}

/// What the proofs found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What proved.
    pub toolchain: String,
    /// Kernels that were checked, each counted once for a profile.
    pub kernels: usize,
    /// Compilations that were compared.
    pub compilations: usize,
    /// Kernels, each counted once for an architecture, that were proved before.
    pub known: usize,
    /// Fused operations in the code of all compilations.
    pub fused: usize,
    /// How it went for each architecture.
    pub targets: BTreeMap<String, Target>,
    /// What is worth knowing and not wrong.
    pub notes: Vec<String>,
    /// What is wrong; empty if all is proved.
    pub failures: Vec<String>,
}

/// A kernel to prove for an architecture.
struct Job<'a> {
    profile: &'static str,
    kernel: Kernel,
    hash: String,
    architecture: &'a str,
}

impl Findings {
    /// The kernels whose name holds `part` for each architecture, but for those that are not `due`
    /// and of which `known` has what `cells` says.
    fn jobs<'a>(
        &mut self,
        architectures: &'a [String],
        part: &str,
        language: Language,
        known: &Records,
        cells: impl Fn(&str) -> Vec<(String, Layer)> + Sync,
        due: impl Fn(&Kernel) -> bool + Sync,
    ) -> Result<Vec<Job<'a>>> {
        let mut all = Vec::new();
        for (profile, floats) in PROFILES {
            // The remaining profile is that of Vulkan's compilers.
            if floats.opaque {
                continue;
            }
            // Integer code has nothing that an architecture could show.
            let count = if floats == FloatProfile::EMULATED {
                1
            } else {
                architectures.len()
            };
            for architecture in &architectures[..count.min(architectures.len())] {
                let target = self.targets.entry(architecture.clone()).or_default();
                target.profiles.push(profile);
            }
            for kernel in kernels(floats) {
                if kernel.name().contains(part) {
                    self.kernels += 1;
                    all.push((profile, kernel, count));
                }
            }
        }
        let toolchain = &self.toolchain;
        let jobs: Vec<(Vec<Job<'a>>, usize)> = all
            .into_par_iter()
            .map(|(profile, kernel, count)| {
                let hash = hash_of(&kernel, language)?;
                let mut jobs = Vec::new();
                for architecture in architectures.iter().take(count) {
                    let cells = cells(architecture);
                    let mut held = cells
                        .iter()
                        .map(|(column, layer)| known.holds(column, *layer, toolchain, &hash));
                    if due(&kernel) || !held.all(|held| held) {
                        jobs.push(Job {
                            profile,
                            kernel: kernel.clone(),
                            hash: hash.clone(),
                            architecture,
                        });
                    }
                }
                let known = count.min(architectures.len()) - jobs.len();
                Ok((jobs, known))
            })
            .collect::<Result<_>>()?;
        self.known = jobs.iter().map(|(_, known)| known).sum();
        let jobs: Vec<Job<'a>> = jobs.into_iter().flat_map(|(jobs, _)| jobs).collect();
        self.compilations = jobs.len();
        Ok(jobs)
    }

    /// Notes how it went for a job.
    fn note(&mut self, job: &Job<'_>, failures: &[String]) {
        let of = self.targets.entry(job.architecture.to_owned()).or_default();
        let texts = if failures.is_empty() {
            &mut of.proved
        } else {
            &mut of.refuted
        };
        texts.insert(job.hash.clone());
        let failures = failures.iter().map(|what| format!("{job}: {what}"));
        self.failures.extend(failures);
    }

    /// A record for each architecture and each of the columns and layers that `cells` names for it.
    fn records(
        &self,
        language: Language,
        cells: impl Fn(&str) -> Vec<(String, Layer)>,
    ) -> Vec<Record> {
        let mut records = Vec::new();
        let language = format!("{language:?}");
        for (architecture, of) in &self.targets {
            for (column, layer) in cells(architecture) {
                let proved = of.proved.clone();
                records.push(Record {
                    refuted: of.refuted.clone(),
                    ..Record::new(
                        &column,
                        layer,
                        &self.toolchain,
                        &language,
                        &of.profiles,
                        proved,
                    )
                });
            }
        }
        records
    }
}

impl std::fmt::Display for Job<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, variant) = (self.kernel.name(), self.kernel.variant());
        write!(
            f,
            "{}, {}: {name}[{variant}]",
            self.profile, self.architecture
        )
    }
}

/// Writes the text of every kernel whose name holds `part`, for every target and profile, below
/// `folder`.
///
/// # Errors
/// `Io`; `KernelCompilation` if a kernel can't be printed.
pub fn write_texts(folder: &Path, part: &str) -> Result<usize> {
    let mut jobs = Vec::new();
    for (name, profile) in PROFILES {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, &e))?;
        let numbered = kernels(profile).into_iter().enumerate();
        jobs.extend(
            numbered
                .filter(|(_, kernel)| kernel.name().contains(part))
                .map(|(i, kernel)| (folder.clone(), i, kernel)),
        );
    }
    jobs.into_par_iter()
        .map(|(folder, i, kernel)| {
            let mut written = 0;
            for language in LANGUAGES {
                if !has_text(&kernel, language) {
                    continue;
                }
                let file = format!("{i:03}-{}.{}", kernel.name(), extension(language));
                let path = folder.join(file);
                std::fs::write(&path, text(&kernel, language)?)
                    .map_err(|e| Error::io(&path, &e))?;
                written += 1;
            }
            Ok(written)
        })
        .try_reduce(|| 0, |a, b| Ok(a + b))
}

/// Compares the hashes of all texts with those of `file`, or writes them there.
///
/// # Errors
/// `Io`; `Parse` if the file is damaged; `KernelCompilation` if a kernel can't be printed.
pub fn prove_manifest(file: &Path, bless: bool) -> Result<Findings> {
    let manifest = Manifest::of_kernels()?;
    let mut findings = Findings {
        kernels: manifest.kernels(),
        ..Findings::default()
    };
    let failed = |e: std::io::Error| Error::io(file, &e);
    if bless {
        std::fs::write(file, manifest.to_string()).map_err(failed)?;
        return Ok(findings);
    }
    let reference = std::fs::read_to_string(file).map_err(failed)?;
    let reference = Manifest::parse(&reference, &file.display().to_string())?;
    findings.failures = manifest.differences(&reference);
    Ok(findings)
}

/// Lints every kernel in every profile, and every sabotage.
pub fn prove_representation() -> Findings {
    let mut findings = Findings::default();
    for (rule, kernel) in sabotages() {
        if !lint(&kernel).iter().any(|v| v.rule == rule) {
            findings.failures.push(format!(
                "the lint does not see {rule:?} in sabotage {}",
                kernel.name()
            ));
        }
    }
    for (name, profile) in PROFILES {
        for kernel in kernels(profile) {
            findings.kernels += 1;
            for violation in lint(&kernel) {
                findings.failures.push(format!("{name}: {violation}"));
            }
        }
    }
    findings
}

/// Compiles every kernel's CUDA text with and without contraction and compares the code.
///
/// # Errors
/// `Unsupported` if the tools can't be opened or fail; `KernelCompilation`.
pub fn prove_cuda(tools: &Tools) -> Result<Findings> {
    let nvrtc = Nvrtc::open(&tools.nvrtc)?;
    let mut findings = Findings {
        toolchain: format!("NVRTC {}", nvrtc.version()?),
        ..Findings::default()
    };
    for (rule, kernel) in sabotages() {
        // What breaks a rule without showing in the code is the lint's alone.
        if !matches!(
            rule,
            Rule::BareProduct | Rule::VendorFunction | Rule::FastMath
        ) {
            continue;
        }
        for arch in &tools.architectures {
            if check(&nvrtc, tools, &kernel, arch)?.failures.is_empty() {
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
        Language::Cuda,
        &tools.known,
        |arch| tools.cells(arch),
        |kernel| tools.spills && must_not_spill(kernel),
    )?;
    let checked: Vec<_> = jobs
        .into_par_iter()
        .map(|job| Ok((check(&nvrtc, tools, &job.kernel, job.architecture)?, job)))
        .collect::<Result<_>>()?;
    for (seen, job) in checked {
        findings.fused += seen.fused;
        findings.note(&job, &seen.failures);
        if seen.spills > 0 {
            // Slow, but the same bits.
            let count = seen.spills;
            findings.failures.push(format!(
                "{job}: {count} loads and stores of what left the registers"
            ));
        }
    }
    for (part, why) in SPILLS {
        findings
            .notes
            .push(format!("may leave its registers: {part}: {why}"));
    }
    Ok(findings)
}

impl Tools {
    /// What is proved where a kernel holds for an architecture.
    fn cells(&self, architecture: &str) -> Vec<(String, Layer)> {
        let number: String = architecture.chars().filter(char::is_ascii_digit).collect();
        let column = format!("cuda-sm{number}");
        let mut cells = vec![(column.clone(), Layer::Text)];
        if self.nvdisasm.is_some() && architecture.starts_with("sm_") {
            cells.push((column, Layer::Machine));
        }
        cells
    }

    /// The records of what [`prove_cuda`] found.
    pub fn records(&self, findings: &Findings) -> Vec<Record> {
        findings.records(Language::Cuda, |arch| self.cells(arch))
    }
}

/// Whether a kernel must stay in its registers.
fn must_not_spill(kernel: &Kernel) -> bool {
    let known = |part: &str| format!("{}[{}]", kernel.name(), kernel.variant()).contains(part);
    kernel.profile() == FloatProfile::NATIVE
        && HOT.iter().any(|start| kernel.name().starts_with(start))
        && !SPILLS.iter().any(|(part, _)| known(part))
}

/// What was seen in the code of one kernel.
struct Seen {
    fused: usize,
    /// Loads and stores of a hot kernel's own memory.
    spills: usize,
    failures: Vec<String>,
}

fn check(nvrtc: &Nvrtc, tools: &Tools, kernel: &Kernel, arch: &str) -> Result<Seen> {
    let source = text(kernel, Language::Cuda)?;
    let compile = |contract| {
        nvrtc
            .compile(&source, arch, contract)
            .map_err(|error| match error {
                Error::KernelCompilation { reason, .. } => Error::KernelCompilation {
                    kernel: format!("{kernel:?} for {arch}"),
                    reason,
                },
                other => other,
            })
    };
    let (free, strict) = (compile(true)?, compile(false)?);
    let census = ptx::census(&free.ptx);
    let mut failures = Vec::new();
    let mut spills = 0;
    // NVRTC chooses anew in each run what it computes addresses from. What contraction changes
    // would differ in every run.
    let [mut with, mut without] = [&free, &strict].map(|code| vec![ptx::fingerprint(&code.ptx)]);
    while !with.iter().any(|code| without.contains(code)) && with.len() < 12 {
        with.push(ptx::fingerprint(&compile(true)?.ptx));
        without.push(ptx::fingerprint(&compile(false)?.ptx));
    }
    if !with.iter().any(|code| without.contains(code)) {
        failures.push(format!(
            "contraction changes the PTX: {} fused operations with, {} without",
            census.fused,
            ptx::census(&strict.ptx).fused
        ));
    }
    if census.bare_products > 0 {
        failures.push(format!(
            "{} float products outside a fused operation",
            census.bare_products
        ));
    }
    for instruction in &census.forbidden {
        failures.push(format!("forbidden instruction `{instruction}`"));
    }
    if kernel.profile() == FloatProfile::EMULATED && census.arithmetic > 0 {
        failures.push(format!(
            "{} float operations in a kernel of integer code",
            census.arithmetic
        ));
    }
    if kernel.profile().fma != Computed::Native && census.fused > 0 {
        failures.push(format!("{} fused operations", census.fused));
    }
    // Equal bytes need no disassembly.
    if let Some(nvdisasm) = &tools.nvdisasm
        && !free.cubin.is_empty()
    {
        let code = |cubin| ptx::sass(nvdisasm, cubin);
        if free.cubin != strict.cubin {
            let (free, strict) = (code(&free.cubin)?.floats, code(&strict.cubin)?.floats);
            if free != strict {
                failures.push(format!(
                    "contraction changes the machine code: {free:?} with, {strict:?} without"
                ));
            }
        }
        if tools.spills && must_not_spill(kernel) {
            spills = code(&free.cubin)?.local;
        }
    }
    Ok(Seen {
        fused: census.fused,
        spills,
        failures,
    })
}
