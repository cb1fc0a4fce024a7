//! What stands in AMD's assembly and in a disassembly of its machine code.

use std::collections::BTreeMap;

/// The instructions of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Isa {
    /// How often each float operation stands there, halves of paired instructions on their own and
    /// without their encoding (`v_fma_f32`).
    pub floats: BTreeMap<String, usize>,
    /// Maxima of a number and +0.
    pub positive_parts: usize,
    /// What computes with other numbers than binary32, approximates, or changes how floats are
    /// rounded or flushed.
    pub forbidden: Vec<String>,
}

/// How many of an operation's results an instruction computes.
fn width(name: &str) -> usize {
    if name.starts_with("v_pk_") { 2 } else { 1 }
}

impl Isa {
    fn count(&self, names: &[&str]) -> usize {
        names
            .iter()
            .map(|name| width(name) * self.floats.get(*name).copied().unwrap_or(0))
            .sum()
    }

    /// Fused multiply-adds.
    pub(super) fn fused(&self) -> usize {
        self.count(&[
            "v_fma_f32",
            "v_fmac_f32",
            "v_fmaak_f32",
            "v_fmamk_f32",
            "v_pk_fma_f32",
        ])
    }

    /// Products that are rounded.
    pub(super) fn products(&self) -> usize {
        self.count(&["v_mul_f32", "v_pk_mul_f32"])
    }

    /// Quotients: the last instruction of the correctly rounded sequence.
    pub(super) fn quotients(&self) -> usize {
        self.count(&["v_div_fixup_f32"])
    }

    /// Square roots: each begins a correctly rounded sequence.
    pub(super) fn roots(&self) -> usize {
        self.count(&["v_sqrt_f32"])
    }

    /// Reciprocals that begin a division of floats.
    pub(super) fn reciprocals(&self) -> usize {
        self.count(&["v_rcp_f32"])
    }

    /// Reciprocals that begin a division of integers.
    pub(super) fn integer_reciprocals(&self) -> usize {
        self.count(&["v_rcp_iflag_f32"])
    }
}

/// Operations that are exact or correctly rounded, and the parts of division and square root.
const ALLOWED: [&str; 24] = [
    "v_add_f32",
    "v_sub_f32",
    "v_pk_add_f32",
    "v_mul_f32",
    "v_pk_mul_f32",
    "v_fma_f32",
    "v_fmac_f32",
    "v_fmaak_f32",
    "v_fmamk_f32",
    "v_pk_fma_f32",
    "v_div_scale_f32",
    "v_div_fmas_f32",
    "v_div_fixup_f32",
    "v_rcp_f32",
    "v_rcp_iflag_f32",
    "v_sqrt_f32",
    "v_cvt_f32_u32",
    "v_cvt_f32_i32",
    "v_cvt_f32_ubyte0",
    "v_cvt_f32_ubyte1",
    "v_cvt_f32_ubyte2",
    "v_cvt_f32_ubyte3",
    "v_cvt_u32_f32",
    "v_cvt_i32_f32",
];

/// Reads assembly as clang prints it or a listing of llvm-objdump's.
pub(super) fn read(text: &str) -> Isa {
    let mut isa = Isa::default();
    for line in instructions(text) {
        if ["s_setreg", "s_denorm_mode", "s_round_mode"]
            .iter()
            .any(|name| line.starts_with(name))
        {
            isa.forbidden.push(line.to_owned());
        }
        // Two operations in one instruction: `v_dual_mul_f32 v1, v2, v3 :: v_dual_mov_b32 v4, v5`.
        for operation in line.split("::") {
            let operation = operation.trim();
            let (name, operands) = operation
                .split_once(char::is_whitespace)
                .unwrap_or((operation, ""));
            if let Some(name) = float(name) {
                let modified = ["clamp", "mul:", "div:"]
                    .iter()
                    .any(|m| operands.contains(m));
                let known = match &*name {
                    "v_max_f32" | "v_min_f32" => match extreme(operands) {
                        Extreme::Nonzero => true,
                        Extreme::Zero => {
                            isa.positive_parts += 1;
                            name == "v_max_f32"
                        }
                        Extreme::Two => false,
                    },
                    name => ALLOWED.contains(&name) || name.starts_with("v_cmp_"),
                };
                if !known || modified {
                    isa.forbidden.push(operation.to_owned());
                }
                *isa.floats.entry(name).or_insert(0) += 1;
            }
        }
    }
    isa
}

/// What a maximum or minimum is taken of.
enum Extreme {
    /// A number and a constant besides zero, or a number and itself: a NaN gives the constant and
    /// equal numbers have equal bits, as where LLVM puts it for a comparison and a choice.
    Nonzero,
    /// A number and +0. Of zeros the maximum is +0, so it is that of a choice which gives +0
    /// unless the number is greater; of a minimum the same can't be said.
    Zero,
    /// Two numbers, whose zeros or NaN may differ from a choice's.
    Two,
}

fn extreme(operands: &str) -> Extreme {
    let operands: Vec<&str> = operands.split(',').map(str::trim).collect();
    let [_, a, b] = operands[..] else {
        return Extreme::Two;
    };
    let mut constants = [a, b].into_iter().filter(|operand| {
        let digits = operand.trim_start_matches('-');
        digits.starts_with(|c: char| c.is_ascii_digit())
    });
    match constants.next_back() {
        _ if a == b => Extreme::Nonzero,
        Some("0") => Extreme::Zero,
        Some("0x80000000") | None => Extreme::Two,
        Some(_) => Extreme::Nonzero,
    }
}

/// The lines of a kernel's code that are instructions, without comments.
fn instructions(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.strip_prefix('\t')?;
        let line = line.split([';']).next()?.split("//").next()?.trim();
        (line.starts_with(|c: char| c.is_ascii_lowercase()) && !line.ends_with(':')).then_some(line)
    })
}

/// The name of an operation on floats, without its encoding and pairing.
fn float(name: &str) -> Option<String> {
    let floats = ["f16", "bf16", "f32", "f64", "f8", "fp8", "bf8", "xf32"];
    let matrix = [
        "mfma", "smfmac", "wmma", "swmmac", "dot2", "dot2c", "dot4", "dot8",
    ];
    let parts: Vec<&str> = name.split('_').collect();
    if !parts
        .iter()
        .any(|part| floats.contains(part) || matrix.contains(part))
    {
        return None;
    }
    let kept: Vec<&str> = parts
        .into_iter()
        .filter(|part| !["e32", "e64", "sdwa", "dual"].contains(part))
        .map(|part| match part {
            "cmpx" => "cmp",
            // The difference with its operands exchanged.
            "subrev" => "sub",
            other => other,
        })
        .collect();
    Some(kept.join("_"))
}

/// The code of kernel `name` in assembly, without comments: what is encoded, up to the descriptor.
pub(super) fn code(assembly: &str, name: &str) -> Vec<String> {
    let start = format!("{name}:");
    assembly
        .lines()
        .skip_while(|line| !line.starts_with(&start))
        .take_while(|line| !line.contains(".amdhsa_kernel"))
        .map(|line| {
            line.split(';')
                .next()
                .unwrap_or_default()
                .trim_end()
                .to_owned()
        })
        .filter(|line| !line.is_empty())
        .collect()
}

/// A number of the kernel's descriptor, such as `float_denorm_mode_32`.
pub(super) fn descriptor(assembly: &str, field: &str) -> Option<u64> {
    let name = format!(".amdhsa_{field}");
    assembly.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == name).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
k:                                      ; @k
; %bb.0:
\ts_load_dwordx2 s[0:1], s[4:5], 0x0
\tv_fmac_f32_e32 v1, v2, v3              ; a comment: v_exp_f32
\tv_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]
\tv_dual_mul_f32 v10, v24, v20 :: v_dual_add_f32 v17, v27, v17
\tv_dual_mov_b32 v0, 1.0 :: v_dual_fmac_f32 v1, v2, v3
\tv_cmp_class_f32_e64 vcc_lo, v21, 0x260
\tv_subrev_f32_e32 v1, v2, v3
\tglobal_store_dword v[0:1], v2, off
.LBB0_2:
\ts_endpgm
\t.amdhsa_kernel k
\t\t.amdhsa_float_denorm_mode_32 3
\t\t.amdhsa_private_segment_fixed_size 48
\t.end_amdhsa_kernel
";

    #[test]
    fn operations_are_counted() {
        let isa = read(TEXT);
        assert_eq!((isa.fused(), isa.products()), (4, 1));
        assert_eq!(isa.floats.values().sum::<usize>(), 7);
        assert!(isa.forbidden.is_empty(), "{:?}", isa.forbidden);
        assert_eq!(isa.floats["v_sub_f32"], 1);
        assert_eq!(descriptor(TEXT, "float_denorm_mode_32"), Some(3));
        assert_eq!(descriptor(TEXT, "private_segment_fixed_size"), Some(48));
        assert_eq!(descriptor(TEXT, "float_round_mode_32"), None);
    }

    #[test]
    fn a_disassembly_reads_the_same() {
        let listing = "\n0000000000001900 <k>:\n\
             \tv_fmac_f32_e32 v1, v2, v3                // 000000001908: 3B020702\n\
             \tv_dual_mov_b32 v0, 1.0 :: v_dual_fmac_f32 v1, v2, v3 // 000000001910: CA000100\n";
        let isa = read(listing);
        assert_eq!((isa.fused(), isa.floats.len()), (2, 1));
    }

    #[test]
    fn code_is_compared_without_comments() {
        let code = code(TEXT, "k");
        assert_eq!(code[0], "k:");
        assert!(code.contains(&"\tv_fmac_f32_e32 v1, v2, v3".to_owned()));
        assert!(code.contains(&".LBB0_2:".to_owned()));
        assert_eq!(code.last().unwrap(), "\ts_endpgm");
    }

    #[test]
    fn relaxed_instructions_are_seen() {
        for bad in [
            "v_exp_f32_e32 v1, v2",
            "v_log_f32_e32 v1, v2",
            "v_sin_f32_e32 v1, v2",
            "v_rsq_f32_e32 v1, v2",
            "v_mad_f32 v1, v2, v3, v4",
            "v_fma_mix_f32 v1, v2, v3, v4",
            "v_cvt_f16_f32_e32 v1, v2",
            "v_cvt_pkrtz_f16_f32 v1, v2, v3",
            "v_fma_f64 v[0:1], v[2:3], v[4:5], v[6:7]",
            "v_dot2_f32_f16 v1, v2, v3, v4",
            "v_mfma_f32_32x32x2f32 a[0:31], v2, v3, a[0:31]",
            "v_add_f32_e64 v1, v2, v3 clamp",
            "v_mul_f32_e64 v1, v2, v3 mul:2",
            "v_max_f32_e32 v1, v2, v3",
            "v_min_f32_e32 v1, 0, v3",
            "v_med3_f32 v1, v2, 0, 1.0",
            "v_add_f32_dpp v1, v2, v3 row_shr:1",
            "global_atomic_add_f32 v[0:1], v2, off",
            "ds_add_f32 v0, v1",
            "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0",
            "s_denorm_mode 0",
            "v_dual_mov_b32 v0, 1.0 :: v_dual_max_f32 v1, v2, v3",
        ] {
            let isa = read(&format!("\t{bad}\n"));
            assert!(!isa.forbidden.is_empty(), "{bad}");
        }
        let fine = read("\tv_add_u32_e64 v1, v2, v3 clamp\n\tv_add_f32_e64 v1, -v2, |v3|\n");
        assert!(fine.forbidden.is_empty(), "{:?}", fine.forbidden);
        let constants = read(
            "\tv_max_f32_e32 v1, 1.0, v2\n\tv_min_f32_e32 v1, 0x42b00000, v2\n\
             \tv_max_f32_e32 v1, v1, v1\n\tv_max_f32_e32 v1, 0, v2\n",
        );
        assert!(constants.forbidden.is_empty(), "{:?}", constants.forbidden);
        assert_eq!(constants.positive_parts, 1);
    }
}
