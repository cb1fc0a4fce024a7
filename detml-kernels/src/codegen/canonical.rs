//! What of a kernel's text is the kernel's own. CubeCL walks tables without an order: from run to
//! run definitions stand in another order, arrays lie elsewhere in shared memory, and its optimiser
//! for SPIR-V numbers values anew and shares or moves operations without effects in other ways.

use crate::device::text::Language;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The same of every text of a kernel.
pub(super) fn canonical(language: Language, text: &str) -> String {
    match language {
        Language::SpirV => instructions(text),
        _ => in_order(text),
    }
}

/// `text` with neighbouring definitions of vectors, declarations of variables and of arrays in
/// shared memory in order, without where in it they lie. None refers to another.
fn in_order(text: &str) -> String {
    let text = without_places(text);
    let mut out = String::with_capacity(text.len());
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.peek() {
        let kind = Kind::of(line);
        let mut run = Vec::new();
        while let Some(line) = lines.next_if(|line| Kind::of(line) == kind) {
            let mut item = line.to_owned();
            // Both end with the line that they are about.
            let ends = match kind {
                Kind::Vector => "};",
                Kind::Shared => "dynamic_shared_mem[]);",
                _ => "",
            };
            while !item.trim_end().ends_with(ends) {
                let Some(line) = lines.next() else { break };
                item += line;
            }
            run.push(item);
            // Metal's vectors have empty lines between them.
            while kind == Kind::Vector && lines.next_if_eq(&"\n").is_some() {}
        }
        if kind != Kind::Other {
            run.sort_unstable();
        }
        run.iter().for_each(|item| out += item);
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Vector,
    Variable,
    Shared,
    Other,
}

impl Kind {
    fn of(line: &str) -> Self {
        if line.starts_with("struct __align__(") || line.starts_with("struct alignas(") {
            Self::Vector
        } else if line.starts_with("// Shared ") {
            Self::Shared
        } else if declares_variable(line) {
            Self::Variable
        } else {
            Self::Other
        }
    }
}

/// `float l_mut_7;` or, in WGSL, `var l_mut_7: f32;`.
fn declares_variable(line: &str) -> bool {
    let Some(line) = line.trim().strip_suffix(';') else {
        return false;
    };
    let mut words = line.split(' ');
    let is_variable = |word: Option<&str>| word.is_some_and(|word| word.starts_with("l_mut_"));
    match words.next() {
        Some("var") => is_variable(words.next()) && !line.contains('='),
        Some(_) => is_variable(words.next()) && words.next().is_none(),
        None => false,
    }
}

/// `text` without the numbers in `dynamic_shared_mem[1024]`.
fn without_places(text: &str) -> String {
    const NAME: &str = "dynamic_shared_mem[";
    let mut parts = text.split(NAME);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out += NAME;
        out += part.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out
}

/// Every instruction that occurs in SPIR-V, values without their numbers, in order; with how often
/// it occurs if it synchronises.
fn instructions(text: &str) -> String {
    let mut instructions: BTreeMap<String, usize> = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        // The head counts the values.
        if line.is_empty() || line.starts_with(';') {
            continue;
        }
        let line = match line.split_once(" = ") {
            Some((result, rest)) if result.starts_with('%') => rest,
            _ => line,
        };
        let words = line.split_whitespace();
        let instruction: Vec<&str> = match line.split_whitespace().next() {
            // How many ways lead to it depends on what was moved.
            Some("OpPhi") => vec!["OpPhi"],
            // The values that the kernel uses come last, in any order.
            Some("OpEntryPoint") => words.take(4).map(unnumbered).collect(),
            _ => words.map(unnumbered).collect(),
        };
        *instructions.entry(instruction.join(" ")).or_insert(0) += 1;
    }
    let mut out = String::new();
    for (instruction, count) in instructions {
        let synchronises = ["OpAtomic", "OpControlBarrier", "OpMemoryBarrier"]
            .iter()
            .any(|op| instruction.starts_with(op));
        // Writing to a string can't fail.
        let _ = match synchronises {
            true => writeln!(out, "{count} {instruction}"),
            false => writeln!(out, "{instruction}"),
        };
    }
    out
}

fn unnumbered(word: &str) -> &str {
    if word.starts_with('%') { "%" } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The middle three of `lines` may stand in any order.
    fn in_any_order(lines: [&str; 5]) {
        let [first, a, b, c, last] = lines;
        let expected = canonical(Language::Hip, &lines.concat());
        for middle in [[c, b, a], [b, c, a]] {
            let text = [first, &middle.concat(), last].concat();
            assert_eq!(canonical(Language::Hip, &text), expected);
        }
        let text = [first, b, c, last].concat();
        assert_ne!(canonical(Language::Hip, &text), expected);
    }

    #[test]
    fn the_order_of_definitions_does_not_show() {
        for start in ["struct __align__(8)", "\nstruct alignas(8)"] {
            let [two, four, uint] = ["float_2", "float_4", "uint_2"]
                .map(|v| format!("{start} {v} {{\n    float i_0;\n}};\n"));
            let info = "struct info_st {\n    int y;\n};\nvoid k() {}";
            in_any_order(["typedef int x;\n\n", &two, &four, &uint, info]);
        }
        in_any_order([
            "float l_arr_3[64];\n\n",
            "bool l_mut_44;\n",
            "float l_mut_7;\n",
            "float_4 l_mut_12;\n",
            "const uint32 l_0 = info.scalars_uint32[15];\nl_mut_7 = 1.0;\n",
        ]);
        in_any_order([
            "fn k() {\n",
            "var l_mut_40: bool;\n",
            "var l_mut_41: f32;\n",
            "var l_mut_7: u32;\n",
            "let l_0 = 1;\nl_mut_40 = true;\n",
        ]);
        let array = |i: usize, at: usize| {
            format!(
                "// Shared array size: 512, 2048 bytes\n\
                 float *shared_memory_{i} = reinterpret_cast<float*>(&dynamic_shared_mem[{at}]);\n"
            )
        };
        in_any_order(["{\n", &array(0, 0), &array(1, 64), &array(2, 1024), "x;\n"]);
        assert_eq!(
            canonical(Language::Cuda, &array(1, 64)),
            canonical(Language::Cuda, &array(1, 128))
        );
    }

    #[test]
    fn the_order_of_statements_shows() {
        for text in [
            "float l_mut_2 = 1.0;\nfloat l_mut_1 = l_mut_2;\n",
            "var l_mut_2 = 1.0;\nvar l_mut_1 = l_mut_2;\n",
            "l_mut_2 = fma(a, b, c);\nl_mut_1 = l_mut_2;\n",
        ] {
            assert_eq!(canonical(Language::Cuda, text), text);
        }
    }

    const TEXT: &str = "\
; Bound: 90
OpEntryPoint GLCompute %1 \"k\" %2 %3
OpDecorate %2 Binding 0
OpDecorate %3 Binding 1
%4 = OpTypeFloat 32
%5 = OpConstant %4 1.5
%6 = OpLabel
%8 = OpBitcast %4 %3
%10 = OpPhi %4 %5 %6 %12 %9
OpControlBarrier %1 %1 %2
%12 = OpFAdd %4 %11 %8
OpStore %2 %12
";

    #[test]
    fn what_the_optimiser_changes_does_not_show() {
        let other = TEXT
            .replace("%2 %3\n", "%3 %2\n")
            .replace("%5 %6 %12 %9", "%5 %6")
            .replace("%12", "%77")
            .replace("Bound: 90", "Bound: 78")
            .replace("OpStore", "%13 = OpBitcast %4 %5\nOpStore");
        let [other, text] = [&other, TEXT].map(|text| canonical(Language::SpirV, text));
        assert_eq!(other, text);
    }

    #[test]
    fn other_instructions_show() {
        let barrier = "OpControlBarrier %1 %1 %2\n";
        for (from, to) in [
            ("1.5", "1.25"),
            ("OpFAdd", "OpFSub"),
            ("Binding 1", "Binding 2"),
            ("\"k\"", "\"l\""),
            (barrier, ""),
            (barrier, &barrier.repeat(2)),
        ] {
            let other = TEXT.replace(from, to);
            assert_ne!(other, TEXT);
            let [other, text] = [&other, TEXT].map(|text| canonical(Language::SpirV, text));
            assert_ne!(other, text, "{from} to {to}");
        }
    }
}
