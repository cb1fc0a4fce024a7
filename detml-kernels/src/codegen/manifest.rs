//! One hash for the text of every kernel in every language, so that a change of what drivers get
//! shows in a review.
//!
//! `fixtures/codegen/manifest.tsv` holds a line for each kernel and profile, tab-separated and in
//! order: the profile, the kernel with its variant, and 128 bits of BLAKE3 for each of
//! [`LANGUAGES`], or `-` where there is no text. Hashed is what is the same
//! in every run: definitions in order, without places in shared memory; of SPIR-V, which CubeCL's
//! optimiser writes anew in each run, only the interface, which instructions occur, and how often
//! those that synchronise do.

use super::canonical::canonical;
use super::text::{LANGUAGES, has_text, text};
use super::{PROFILES, kernels};
use crate::device::Kernel;
use crate::device::text::Language;
use detml_core::{BitHash, Error, Result};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write;

const HEAD: &str = "\
# Hashes of the text of every kernel: `detml codegen --manifest` compares, `--bless` writes.
";
/// Stands where a kernel has no text in a language.
const NONE: &str = "-";

/// The hashes of all texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// By profile and kernel, in the order of [`LANGUAGES`].
    entries: BTreeMap<(String, String), [String; LANGUAGES.len()]>,
}

impl Manifest {
    /// Prints every kernel in every language, on all cores.
    ///
    /// # Errors
    /// `KernelCompilation` if CubeCL refuses a kernel.
    pub fn of_kernels() -> Result<Self> {
        let jobs: Vec<_> = PROFILES
            .iter()
            .flat_map(|(name, profile)| kernels(*profile).into_iter().map(move |k| (*name, k)))
            .collect();
        let entries = jobs
            .into_par_iter()
            .map(|(profile, kernel)| Ok((key(profile, &kernel), hashes(&kernel)?)))
            .collect::<Result<_>>()?;
        Ok(Self { entries })
    }

    /// Reads a manifest; `origin` names it in errors.
    ///
    /// # Errors
    /// `Parse` names the first line that is not as [this module](self) says.
    pub fn parse(source: &str, origin: &str) -> Result<Self> {
        let mut manifest = Self::default();
        for (number, line) in source.lines().enumerate() {
            if line.starts_with('#') {
                continue;
            }
            let refuse = |expected: &str| {
                let got: String = line.escape_debug().take(80).collect();
                Error::parse(origin, number as u64 + 1, expected, format!("`{got}`"))
            };
            let mut cells = line.split('\t').map(str::to_owned);
            let (Some(profile), Some(kernel)) = (cells.next(), cells.next()) else {
                return Err(refuse("a profile and a kernel"));
            };
            let hashes: [String; LANGUAGES.len()] = cells
                .collect::<Vec<_>>()
                .try_into()
                .map_err(|_| refuse("a hash for each language"))?;
            let is_hash = |cell: &String| {
                cell == NONE || (cell.len() == 32 && cell.bytes().all(|b| b.is_ascii_hexdigit()))
            };
            if !hashes.iter().all(is_hash) {
                return Err(refuse("hashes of 32 hexadecimal digits"));
            }
            let key = (profile, kernel);
            if let Some((last, _)) = manifest.entries.last_key_value()
                && *last >= key
            {
                return Err(refuse("a kernel after the one above it"));
            }
            manifest.entries.insert(key, hashes);
        }
        Ok(manifest)
    }

    /// Kernels, each counted once for a profile.
    pub fn kernels(&self) -> usize {
        self.entries.len()
    }

    /// What is changed, new or missing against `reference`, a line each; empty if nothing is.
    pub fn differences(&self, reference: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for ((profile, kernel), hashes) in &self.entries {
            let Some(expected) = reference.entries.get(&(profile.clone(), kernel.clone())) else {
                lines.push(format!("new: {profile}, {kernel}"));
                continue;
            };
            let changed: Vec<String> = LANGUAGES
                .iter()
                .zip(hashes.iter().zip(expected))
                .filter(|(_, (now, before))| now != before)
                .map(|(language, _)| format!("{language:?}"))
                .collect();
            if !changed.is_empty() {
                lines.push(format!(
                    "changed: {profile}, {kernel}: {}",
                    changed.join(", ")
                ));
            }
        }
        for key in reference.entries.keys() {
            if !self.entries.contains_key(key) {
                lines.push(format!("missing: {}, {}", key.0, key.1));
            }
        }
        lines
    }
}

/// As the file holds it.
impl std::fmt::Display for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(HEAD)?;
        let languages: Vec<_> = LANGUAGES.map(|language| format!("{language:?}")).into();
        writeln!(f, "# profile\tkernel\t{}", languages.join("\t"))?;
        for ((profile, kernel), hashes) in &self.entries {
            writeln!(f, "{profile}\t{kernel}\t{}", hashes.join("\t"))?;
        }
        Ok(())
    }
}

fn key(profile: &str, kernel: &Kernel) -> (String, String) {
    let mut name = String::new();
    // The profile has a cell of its own.
    let _ = write!(name, "{}[{}]", kernel.name(), kernel.variant());
    (profile.to_owned(), name.replace(['\t', '\n'], " "))
}

fn hashes(kernel: &Kernel) -> Result<[String; LANGUAGES.len()]> {
    let mut hashes = [const { String::new() }; LANGUAGES.len()];
    for (hash, language) in hashes.iter_mut().zip(LANGUAGES) {
        *hash = if has_text(kernel, language) {
            hash_of(kernel, language)?
        } else {
            NONE.into()
        };
    }
    Ok(hashes)
}

/// The hash of a kernel's text in a language, as the manifest has it.
///
/// # Errors
/// `KernelCompilation` if CubeCL refuses the kernel.
pub fn hash_of(kernel: &Kernel, language: Language) -> Result<String> {
    let source = text(kernel, language)?;
    if !source.contains(kernel.name()) {
        return Err(Error::internal(format!(
            "{kernel:?} in {language:?} lacks its entry point: {source}"
        )));
    }
    let source = canonical(language, &source);
    Ok(BitHash::of_bytes(source.as_bytes()).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints all kernels: minutes.
    #[test]
    fn every_kernel_has_the_text_of_the_manifest() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../fixtures/codegen/manifest.tsv"
        );
        let reference = std::fs::read_to_string(file).unwrap();
        let reference = Manifest::parse(&reference, file).unwrap();
        let manifest = Manifest::of_kernels().unwrap();
        let differences = manifest.differences(&reference);
        assert!(
            differences.is_empty(),
            "texts of kernels differ from the manifest's; if they are meant to, \
             `cargo run -p detml-verify --features codegen -- codegen --manifest --bless`:\n{}",
            differences.join("\n")
        );
        assert_eq!(manifest, reference);
    }

    fn sample() -> Manifest {
        let entry = |kernel: &str, digit: &str| {
            let hashes = std::array::from_fn(|i| match i {
                4 => NONE.to_owned(),
                _ => digit.repeat(32),
            });
            (("native".to_owned(), kernel.to_owned()), hashes)
        };
        Manifest {
            entries: [entry("a[1]", "0"), entry("b[(2, 3)]", "f")].into(),
        }
    }

    #[test]
    fn manifests_survive_their_file() {
        let sample = sample();
        assert_eq!(Manifest::parse(&sample.to_string(), "x").unwrap(), sample);
    }

    #[test]
    fn differences_are_named() {
        let reference = sample();
        let mut now = sample();
        assert!(now.differences(&reference).is_empty());
        let key = ("native".to_owned(), "a[1]".to_owned());
        now.entries.get_mut(&key).unwrap()[2] = "1".repeat(32);
        let b = ("native".to_owned(), "b[(2, 3)]".to_owned());
        let hashes = now.entries.remove(&b).unwrap();
        now.entries
            .insert(("native".to_owned(), "c".to_owned()), hashes);
        assert_eq!(
            now.differences(&reference),
            [
                "changed: native, a[1]: Metal",
                "new: native, c",
                "missing: native, b[(2, 3)]"
            ]
        );
    }

    #[test]
    fn damaged_manifests_are_refused() {
        let text = sample().to_string();
        let last = text.lines().last().unwrap();
        for bad in [
            text.replace("ffff", "fff"),
            text.replace("0000", "000g"),
            text.replace("\t-", ""),
            format!("{text}{last}\n"),
            format!("{text}native\n"),
        ] {
            assert!(Manifest::parse(&bad, "x").is_err(), "{bad}");
        }
    }
}
