//! What stands in LLVM's representation of a kernel.

use std::collections::HashMap;

/// The float operations of a kernel as its code generator gets them, vectors' elements counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Operations {
    /// Fused multiply-adds.
    pub fused: usize,
    /// Products that are rounded.
    pub products: usize,
    /// Quotients.
    pub quotients: usize,
    /// Square roots.
    pub roots: usize,
    /// Divisions and remainders of integers, which are done by floats.
    pub integer_divisions: usize,
    /// Choices of a number if it is above +0, else +0.
    pub positive_parts: usize,
    /// Additions, comparisons and conversions too.
    pub arithmetic: usize,
    /// What an optimiser may compute otherwise, or computes with other floats than binary32.
    pub forbidden: Vec<String>,
}

/// Flags that let an optimiser change a result.
const FLAGS: [&str; 8] = [
    "fast", "contract", "reassoc", "arcp", "afn", "nnan", "ninf", "nsz",
];

/// Functions of floats that are exact.
const EXACT: [&str; 2] = ["llvm.fabs.", "llvm.copysign."];

/// Reads the functions of a module.
pub(super) fn read(text: &str) -> Operations {
    let mut operations = Operations::default();
    let mut inside = false;
    // The number that each value compares with +0.
    let mut positive = HashMap::new();
    for line in text.lines() {
        if line.starts_with("define ") {
            inside = true;
        } else if line.starts_with('}') {
            inside = false;
        } else if inside {
            let line = line.trim();
            operations.instruction(line);
            operations.positive_parts += positive_part(line, &mut positive);
        }
    }
    operations
}

/// How many numbers a line makes +0 where they are not above it.
fn positive_part<'a>(line: &'a str, positive: &mut HashMap<&'a str, &'a str>) -> usize {
    let zero = |text: &str| text == "0.000000e+00" || text == "zeroinitializer";
    let Some((name, text)) = line.split_once(" = ") else {
        return 0;
    };
    if let Some(rest) = text.strip_prefix("fcmp ogt ") {
        if let Some((number, other)) = rest.split_once(", ")
            && zero(other)
        {
            positive.insert(name, value(number));
        }
        return 0;
    }
    let parts: Vec<&str> = text.split(", ").collect();
    match parts[..] {
        [condition, number, other]
            if condition.starts_with("select ")
                && zero(value(other))
                && positive.get(value(condition)) == Some(&value(number)) =>
        {
            if condition.contains('<') {
                width(condition)
            } else {
                1
            }
        }
        _ => 0,
    }
}

/// Whether the second factor of a product is a power of two, as in `fmul float %1, 5.000000e-01`.
fn by_power_of_two(text: &str) -> bool {
    let Some((_, factor)) = text.split_once(", ") else {
        return false;
    };
    let factors = factor.trim_start_matches('<').trim_end_matches('>');
    factors.split(", ").all(|factor| {
        let number = value(factor);
        let number = match number.strip_prefix("0x") {
            // LLVM prints what has no short decimal as the bits of a double.
            Some(bits) => u64::from_str_radix(bits, 16).map(f64::from_bits).ok(),
            None => number.parse().ok(),
        };
        number.is_some_and(|x: f64| x.is_normal() && x.to_bits().trailing_zeros() >= 52)
    })
}

/// The value of `<2 x float> %12`.
fn value(operand: &str) -> &str {
    operand.rsplit(' ').next().unwrap_or(operand)
}

/// How many elements the first vector of a line has; one if there is none.
fn width(line: &str) -> usize {
    line.split_once('<')
        .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok())
        .unwrap_or(1)
}

impl Operations {
    fn instruction(&mut self, line: &str) {
        let text = line.split_once(" = ").map_or(line, |(_, text)| text);
        let mut words = text
            .split_whitespace()
            .skip_while(|word| ["tail", "notail", "musttail"].contains(word));
        let Some(opcode) = words.next() else {
            return;
        };
        let rest: Vec<&str> = words.collect();
        let name = |word: &str| word.split(|c: char| !c.is_alphanumeric()).next() == Some(word);
        let tokens = text.split(|c: char| !(c.is_alphanumeric() || "._".contains(c)));
        let other_float = tokens
            .clone()
            .any(|t| ["half", "bfloat", "double", "fp128", "x86_fp80"].contains(&t));
        let mut wrong = other_float;
        // Flags come before the type.
        let flagged = |words: &[&str]| {
            words
                .iter()
                .take_while(|word| name(word))
                .any(|word| FLAGS.contains(word))
        };
        let width = width(text);
        match opcode {
            "fadd" | "fsub" | "fneg" | "fmul" | "fdiv" | "fcmp" | "uitofp" | "sitofp"
            | "fptoui" | "fptosi" => {
                // It turns the bit of the sign, as integer code does.
                if opcode != "fneg" {
                    self.arithmetic += width;
                }
                match opcode {
                    "fmul" => {
                        self.products += width;
                        wrong |= !by_power_of_two(text);
                    }
                    "fdiv" => self.quotients += width,
                    _ => {}
                }
                wrong |= flagged(&rest);
            }
            "frem" | "fptrunc" | "fpext" => wrong = true,
            "udiv" | "urem" | "sdiv" | "srem" => self.integer_divisions += width,
            "atomicrmw" => {
                wrong |= rest
                    .iter()
                    .take(3)
                    .any(|w| ["fadd", "fsub", "fmax", "fmin"].contains(w));
            }
            "call" => {
                let callee = text.split_once('@').map_or("", |(_, name)| name);
                let callee = callee.split('(').next().unwrap_or_default();
                let floats = tokens.clone().any(|t| t == "float");
                if callee.starts_with("llvm.fma.") {
                    self.fused += width;
                    self.arithmetic += width;
                } else if callee.starts_with("llvm.sqrt.") {
                    self.roots += width;
                    self.arithmetic += width;
                } else if floats && !EXACT.iter().any(|name| callee.starts_with(name)) {
                    wrong = true;
                }
                wrong |= flagged(&rest);
            }
            // Clang marks choices whatever the pragma says; there is nothing in one to contract.
            "select" | "phi" => {
                let flags: Vec<&str> = rest.iter().copied().filter(|w| *w != "contract").collect();
                wrong |= flagged(&flags);
            }
            _ => {}
        }
        if wrong {
            self.forbidden.push(line.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &str) -> Operations {
        read(&format!(
            "declare float @llvm.exp.f32(float) #1\ndefine void @k() {{\n{lines}\n}}\n"
        ))
    }

    #[test]
    fn operations_are_counted() {
        let operations = of("\
  %1 = tail call noundef float @llvm.fma.f32(float %22, float %21, float %30)
  %2 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %a, <2 x float> %b, <2 x float> %c)
  %3 = fdiv float %1, %21
  %4 = tail call noundef float @llvm.sqrt.f32(float %3)
  %5 = fmul <2 x float> %2, <float 5.000000e-01, float 5.000000e-01>
  %6 = fmul float %4, 0x3810000000000000
  %7 = udiv i32 %q, %r
  %8 = tail call i32 @llvm.umin.i32(i32 %7, i32 4)
  %9 = select contract i1 %c, float %6, float %4
  %12 = fcmp ogt <2 x float> %5, zeroinitializer
  %13 = select <2 x i1> %12, <2 x float> %5, <2 x float> zeroinitializer
  %14 = select <2 x i1> %12, <2 x float> %2, <2 x float> zeroinitializer
  %10 = tail call float @llvm.fabs.f32(float %9)
  %15 = fneg float %10
  %11 = fcmp olt float %10, %6
  store float %10, ptr addrspace(1) %p, align 4");
        assert_eq!(operations.forbidden, [""; 0]);
        assert_eq!(
            operations,
            Operations {
                fused: 3,
                products: 3,
                quotients: 1,
                roots: 1,
                integer_divisions: 1,
                positive_parts: 2,
                arithmetic: 11,
                forbidden: Vec::new(),
            }
        );
    }

    #[test]
    fn relaxed_operations_are_seen() {
        for bad in [
            "%1 = fmul float %a, %b",
            "%1 = fmul float %a, 3.000000e+00",
            "%1 = fmul contract float %a, 5.000000e-01",
            "%1 = fadd reassoc nsz float %a, %b",
            "%1 = fdiv arcp float %a, %b",
            "%1 = select nnan i1 %c, float %a, float %b",
            "%1 = tail call contract float @llvm.fma.f32(float %a, float %b, float %c)",
            "%1 = tail call float @llvm.fmuladd.f32(float %a, float %b, float %c)",
            "%1 = tail call float @llvm.exp.f32(float %a)",
            "%1 = tail call float @llvm.amdgcn.rcp.f32(float %a)",
            "%1 = fptrunc float %a to half",
            "%1 = fpext float %a to double",
            "%1 = fmul double %a, %b",
            "%1 = frem float %a, %b",
            "%1 = atomicrmw fadd ptr addrspace(1) %p, float %a monotonic, align 4",
        ] {
            assert_eq!(of(bad).forbidden.len(), 1, "{bad}");
        }
    }
}
