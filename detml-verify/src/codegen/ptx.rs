//! What stands in PTX and machine code.

use detml_core::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a PTX text holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Fused multiply-adds of floats.
    pub fused: usize,
    /// Float multiplies.
    pub bare_products: usize,
    /// Float operations that round or compare, those above included.
    pub arithmetic: usize,
    /// Approximations, flushes to zero, and floats other than binary32.
    pub forbidden: Vec<String>,
}

/// The operation of each instruction line, without its predicate.
fn operations(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines().filter_map(|line| {
        let line = line.trim();
        let line = match line.strip_prefix('@') {
            Some(rest) => rest.split_once(char::is_whitespace)?.1.trim_start(),
            None => line,
        };
        let operation = line.split([' ', '\t', ';']).next()?;
        (operation.contains('.') && !operation.starts_with(['.', '/', '%'])).then_some(operation)
    })
}

pub(super) fn census(ptx: &str) -> Census {
    let mut census = Census::default();
    for operation in operations(ptx) {
        let mut parts = operation.split('.');
        let name = parts.next().unwrap_or_default();
        let modifiers: Vec<&str> = parts.collect();
        let has = |wanted: &str| modifiers.contains(&wanted);
        // Moves of bits are no arithmetic.
        let moves = matches!(name, "ld" | "ldu" | "st" | "mov" | "selp" | "shfl" | "prmt");
        let other_floats = ["f16", "f16x2", "bf16", "bf16x2", "tf32", "f64"];
        if has("approx")
            || has("full")
            || has("ftz")
            || (!moves && other_floats.iter().any(|ty| has(ty)))
        {
            census.forbidden.push(operation.to_owned());
        }
        if moves || !has("f32") {
            continue;
        }
        census.arithmetic += 1;
        match name {
            "fma" => census.fused += 1,
            "mul" => census.bare_products += 1,
            // Correctly rounded or exact, in every mode that is not forbidden above.
            "add" | "sub" | "div" | "rcp" | "sqrt" | "setp" | "set" | "cvt" | "abs" | "neg"
            | "min" | "max" => {}
            _ => census.forbidden.push(operation.to_owned()),
        }
    }
    census
}

/// A PTX text as it must be with and without contraction: without comments, and with the
/// rounding that is the default anyway left out.
pub fn fingerprint(ptx: &str) -> String {
    ptx.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| {
            let mut line = line.to_owned();
            for name in ["add", "sub", "mul"] {
                line = line.replace(&format!("{name}.rn.f32"), &format!("{name}.f32"));
            }
            line + "\n"
        })
        .collect()
}

/// What stands in a cubin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sass {
    /// How often each float operation does.
    pub(super) floats: BTreeMap<String, usize>,
    /// Loads from and stores to a thread's own memory, where what leaves the registers goes.
    pub(super) local: usize,
}

/// Disassembles a cubin.
pub(super) fn sass(nvdisasm: &Path, cubin: &[u8]) -> Result<Sass> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(format!("detml-{process}-{number}.cubin"));
    std::fs::write(&path, cubin).map_err(|e| Error::io(&path, &e))?;
    let output = Command::new(nvdisasm).arg("-c").arg(&path).output();
    let _ = std::fs::remove_file(&path);
    let output = output.map_err(|e| Error::io(nvdisasm, &e))?;
    if !output.status.success() {
        return Err(Error::unsupported(
            "nvdisasm",
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ));
    }
    Ok(read(&String::from_utf8_lossy(&output.stdout)))
}

fn read(text: &str) -> Sass {
    let mut sass = Sass::default();
    for line in text.lines() {
        // `        /*0040*/                   @!P0 FFMA R0, R3, R4, R5 ;`
        let Some((_, rest)) = line.split_once("*/") else {
            continue;
        };
        let name = rest
            .split_whitespace()
            .find(|word| !word.starts_with('@'))
            .unwrap_or_default();
        let base = name.split('.').next().unwrap_or_default();
        match base {
            // HFMA2 with no register operand is how constants are loaded.
            "FFMA" | "FFMA2" | "FMUL" | "FMUL2" | "FADD" | "FADD2" | "MUFU" | "FSETP" | "FMNMX"
            | "DFMA" | "DMUL" | "DADD" | "HFMA2" | "HMUL2" | "HADD2" | "HMMA" => {
                *sass.floats.entry(base.to_owned()).or_insert(0) += 1;
            }
            "LDL" | "STL" => sass.local += 1,
            _ => {}
        }
    }
    sass
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUSED: &str = "\tfma.rn.f32 \t%f5, %f2, %f3, %f4;\n\tst.global.f32 \t[%rd10], %f5;\n";
    const APART: &str = "\tmul.rn.f32 \t%f4, %f2, %f3;\n@%p1 add.rn.f32 \t%f6, %f4, %f5;\n\tret;\n";

    #[test]
    fn operations_are_told_apart() {
        let fused = census(FUSED);
        assert_eq!(
            (fused.fused, fused.bare_products, fused.arithmetic),
            (1, 0, 1)
        );
        let apart = census(APART);
        assert_eq!(
            (apart.fused, apart.bare_products, apart.arithmetic),
            (0, 1, 2)
        );
        assert_ne!(fingerprint(FUSED), fingerprint(APART));
        assert_eq!(
            fingerprint("// a\nadd.rn.f32 %f1, %f2, %f3;"),
            fingerprint("// b\nadd.f32 %f1, %f2, %f3;")
        );
    }

    #[test]
    fn machine_code_is_counted() {
        let sass = read(
            "  .headerflags\t@\"EF_CUDA_SM90\"\n\
             \t/*0000*/ LDC R1, c[0x0][0x28] ;\n\
             \t/*0040*/ @!P0 FFMA R0, R3, R4, R5 ;\n\
             \t/*0050*/ FADD.FTZ R0, R3, R4 ;\n\
             \t/*0060*/ STL.64 [R1+0x8], R4 ;\n\
             \t/*0070*/ @P1 LDL R4, [R1] ;\n\
             \t/*0080*/ LDG.E R4, desc[UR4][R2.64] ;\n",
        );
        let floats = [("FADD".to_owned(), 1), ("FFMA".to_owned(), 1)];
        assert_eq!(sass.floats, BTreeMap::from(floats));
        assert_eq!(sass.local, 2);
    }

    #[test]
    fn relaxed_instructions_are_seen() {
        for bad in [
            "ex2.approx.ftz.f32 %f1, %f2;",
            "div.full.f32 %f1, %f2, %f3;",
            "add.ftz.f32 %f1, %f2, %f3;",
            "fma.rn.f64 %fd1, %fd2, %fd3, %fd4;",
            "cvt.rn.f16.f32 %h1, %f1;",
            "red.global.add.f32 [%rd1], %f1;",
        ] {
            assert!(!census(bad).forbidden.is_empty(), "{bad}");
        }
        assert!(census("div.rn.f32 %f1, %f2, %f3;").forbidden.is_empty());
    }
}
