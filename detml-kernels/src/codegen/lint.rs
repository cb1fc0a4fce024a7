//! Rules on a kernel's intermediate representation.
//!
//! What may touch a float is a closed list: loads, stores, selects and bit casts, and, where the
//! kernel's [`FloatProfile`] says native, `+ - / sqrt fma < <= ==` and conversions from and to
//! 32-bit integers. Everything else is a [`Violation`]: a bare product (`N2`), a function of the
//! vendor's (`N4`), a float atomic (`N9`), anything done by planes (`N5`, `N8`), a relaxed math
//! mode, another float type (`N13`), and arithmetic between literals, which CubeCL folds by rules
//! of its own (`x + 0` to `x`, `0 / x` to `0`, constants in binary64).

use crate::device::Kernel;
use crate::ieee::{FloatProfile, Path};
use cubecl::ir::{
    Arithmetic, Branch, Builtin, Comparison, ConstantValue, ElemType, FloatKind, Instruction,
    IntKind, NonSemantic, Operation, Operator, Scope, StorageType, UIntKind, Variable,
    VariableKind,
};
use std::collections::BTreeSet;
use std::fmt;

/// A rule that a kernel's representation must obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// A float product outside a fused multiply-add, which a compiler may contract (`N2`).
    BareProduct,
    /// A float operation besides `+ - / sqrt fma` (`N4`).
    VendorFunction,
    /// A float comparison besides `< <= ==`.
    VendorComparison,
    /// A float operation that the kernel's profile says is emulated (`N15`).
    NotNative,
    /// A float atomic (`N9`).
    FloatAtomic,
    /// An operation between the threads of a plane, or the plane's width or position (`N5`, `N8`).
    Plane,
    /// A matrix instruction: its order and precision are the vendor's (`N6`).
    MatrixUnit,
    /// A relaxed math mode (`N2`).
    FastMath,
    /// A float other than binary32 (`N1`, `N13`).
    FloatType,
    /// Float arithmetic with literals that CubeCL or a compiler may fold.
    Folding,
    /// A literal that some target does not print: -0, infinity, NaN.
    Literal,
    /// A copy engine or barrier that not every target has.
    NotPortable,
}

/// An instruction that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The kernel's name and variant.
    pub kernel: String,
    /// The rule it breaks.
    pub rule: Rule,
    /// The instruction as CubeCL prints it.
    pub instruction: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {:?}: {}",
            self.kernel,
            self.rule,
            self.instruction.trim()
        )
    }
}

/// How many scalar float operations a kernel's representation holds, loops counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Fused multiply-adds, those that are products included.
    pub fma: usize,
    /// Sums and differences.
    pub add: usize,
    /// Divisions.
    pub div: usize,
    /// Square roots.
    pub sqrt: usize,
}

/// What breaks a rule in `kernel`; empty if nothing does.
pub fn lint(kernel: &Kernel) -> Vec<Violation> {
    walk(kernel).violations
}

/// The float operations of `kernel`.
pub fn census(kernel: &Kernel) -> Census {
    walk(kernel).census
}

fn walk(kernel: &Kernel) -> Lint {
    let definition = kernel.definition(None);
    let mut lint = Lint {
        kernel: format!("{kernel:?}"),
        profile: kernel.profile(),
        literals: BTreeSet::new(),
        census: Census::default(),
        violations: Vec::new(),
    };
    for buffer in &definition.buffers {
        if let Some(rule) = wrong_type(buffer.ty.storage_type()) {
            lint.report(rule, format!("buffer {} of {}", buffer.id, buffer.ty));
        }
    }
    for scalar in &definition.scalars {
        if let Some(rule) = wrong_type(scalar.ty) {
            lint.report(rule, format!("scalars of {}", scalar.ty));
        }
    }
    lint.scope(&definition.body);
    lint
}

struct Lint {
    kernel: String,
    profile: FloatProfile,
    /// Immutable locals whose value is a literal's.
    literals: BTreeSet<u32>,
    census: Census,
    violations: Vec<Violation>,
}

impl Lint {
    fn report(&mut self, rule: Rule, instruction: String) {
        self.violations.push(Violation {
            kernel: self.kernel.clone(),
            rule,
            instruction,
        });
    }

    fn scope(&mut self, scope: &Scope) {
        for (array, data) in &scope.const_arrays {
            for variable in std::iter::once(array).chain(data) {
                if let Some(rule) = self.wrong_variable(variable) {
                    self.report(rule, format!("constant array {array}: {variable}"));
                }
            }
        }
        for instruction in &scope.instructions {
            self.instruction(instruction);
        }
    }

    fn instruction(&mut self, instruction: &Instruction) {
        let inputs = self.descend(instruction);
        let mut rules = BTreeSet::new();
        if !instruction.modes.fp_math_mode.is_empty() {
            rules.insert(Rule::FastMath);
        }
        for variable in inputs.iter().chain(&instruction.out) {
            rules.extend(self.wrong_variable(variable));
        }
        match &instruction.operation {
            Operation::Arithmetic(op) => rules.extend(self.arithmetic(op, instruction, &inputs)),
            Operation::Comparison(op) => rules.extend(self.comparison(op, &inputs)),
            Operation::Operator(Operator::Cast(op)) => {
                rules.extend(self.cast(&op.input, instruction.out.as_ref()));
            }
            Operation::Plane(_) => {
                rules.insert(Rule::Plane);
            }
            Operation::CoopMma(_) => {
                rules.insert(Rule::MatrixUnit);
            }
            Operation::Barrier(_) | Operation::Tma(_) => {
                rules.insert(Rule::NotPortable);
            }
            Operation::Copy(_)
            | Operation::Bitwise(_)
            | Operation::Operator(_)
            | Operation::Atomic(_)
            | Operation::Metadata(_)
            | Operation::Branch(_)
            | Operation::Synchronization(_)
            | Operation::NonSemantic(_)
            | Operation::Marker(_) => {}
        }
        self.follow_literals(instruction, &inputs);
        for rule in rules {
            self.report(rule, instruction.to_string());
        }
    }

    /// Goes into the scopes of an instruction; the variables that it reads itself.
    fn descend(&mut self, instruction: &Instruction) -> Vec<Variable> {
        if let Operation::Branch(branch) = &instruction.operation {
            match branch {
                Branch::If(op) => self.scope(&op.scope),
                Branch::IfElse(op) => {
                    self.scope(&op.scope_if);
                    self.scope(&op.scope_else);
                }
                Branch::Switch(op) => {
                    self.scope(&op.scope_default);
                    for (_, scope) in &op.cases {
                        self.scope(scope);
                    }
                }
                Branch::RangeLoop(op) => self.scope(&op.scope),
                Branch::Loop(op) => self.scope(&op.scope),
                Branch::Return | Branch::Break | Branch::Unreachable => {}
            }
        }
        inputs(instruction)
    }

    fn arithmetic(
        &mut self,
        op: &Arithmetic,
        instruction: &Instruction,
        inputs: &[Variable],
    ) -> Vec<Rule> {
        if !inputs.iter().chain(&instruction.out).any(is_float) {
            return Vec::new();
        }
        let width = instruction.out.map_or(1, |out| out.vector_size().max(1));
        let native = self.profile.subnormal == Path::Native;
        let allowed = match op {
            Arithmetic::Add(_) | Arithmetic::Sub(_) => {
                self.census.add += width;
                native
            }
            Arithmetic::Div(_) => {
                self.census.div += width;
                native && self.profile.div == Path::Native
            }
            Arithmetic::Sqrt(_) => {
                self.census.sqrt += width;
                native && self.profile.sqrt == Path::Native
            }
            Arithmetic::Fma(fma) => {
                self.census.fma += width;
                // A product is right however the device rounds its sum with -0.
                native && (self.profile.fma == Path::Native || is_run_time_zero(&fma.c))
            }
            Arithmetic::Mul(_) => return vec![Rule::BareProduct],
            _ => return vec![Rule::VendorFunction],
        };
        let mut rules = Vec::new();
        if !allowed {
            rules.push(Rule::NotNative);
        }
        let literal = |v: &Variable| self.is_literal(v);
        let folds = inputs.iter().all(literal)
            || match op {
                // Known to be a zero or one only if it is a number in the text.
                Arithmetic::Add(op) => is_constant(&op.lhs, 0) || is_constant(&op.rhs, 0),
                Arithmetic::Sub(op) => is_constant(&op.rhs, 0),
                // Compilers divide by a power of two by a product, which they contract.
                Arithmetic::Div(op) => is_constant(&op.lhs, 0) || literal(&op.rhs),
                // A sum of literals -0 is a bare product again.
                Arithmetic::Fma(op) => is_constant(&op.c, 0) || (literal(&op.a) && literal(&op.b)),
                _ => false,
            };
        if folds {
            rules.push(Rule::Folding);
        }
        rules
    }

    fn comparison(&self, op: &Comparison, inputs: &[Variable]) -> Option<Rule> {
        if !inputs.iter().any(is_float) {
            return None;
        }
        match op {
            Comparison::Lower(_) | Comparison::LowerEqual(_) | Comparison::Equal(_) => {
                (self.profile.subnormal != Path::Native).then_some(Rule::NotNative)
            }
            _ => Some(Rule::VendorComparison),
        }
    }

    fn cast(&self, input: &Variable, out: Option<&Variable>) -> Option<Rule> {
        let out = out?;
        let word = |v: &Variable| {
            matches!(
                v.elem_type(),
                ElemType::Int(IntKind::I32) | ElemType::UInt(UIntKind::U32)
            )
        };
        match (is_float(input), is_float(out)) {
            (false, false) => None,
            // Other float types are reported as such.
            (true, true) => None,
            (true, false) if !word(out) => Some(Rule::VendorFunction),
            (false, true) if !word(input) => Some(Rule::VendorFunction),
            (false, true) if self.is_literal(input) => Some(Rule::Folding),
            _ if self.profile.subnormal == Path::Native && self.profile.convert == Path::Native => {
                None
            }
            _ => Some(Rule::NotNative),
        }
    }

    fn wrong_variable(&self, variable: &Variable) -> Option<Rule> {
        if let VariableKind::Builtin(
            Builtin::PlaneDim | Builtin::PlanePos | Builtin::UnitPosPlane,
        ) = variable.kind
        {
            return Some(Rule::Plane);
        }
        if let Some(ConstantValue::Float(x)) = variable.as_const()
            && (!x.is_finite() || (x == 0.0 && x.is_sign_negative()))
        {
            return Some(Rule::Literal);
        }
        if let cubecl::ir::Type::Semantic(_) = variable.ty {
            return Some(Rule::NotPortable);
        }
        wrong_type(variable.storage_type())
    }

    fn is_literal(&self, variable: &Variable) -> bool {
        match variable.kind {
            VariableKind::Constant(_) => true,
            VariableKind::LocalConst { id } => self.literals.contains(&id),
            _ => false,
        }
    }

    fn follow_literals(&mut self, instruction: &Instruction, inputs: &[Variable]) {
        let Some(VariableKind::LocalConst { id }) = instruction.out.map(|out| out.kind) else {
            return;
        };
        let carries = match &instruction.operation {
            Operation::Copy(_) | Operation::Arithmetic(_) | Operation::Bitwise(_) => true,
            Operation::Operator(op) => matches!(
                op,
                Operator::Cast(_) | Operator::Reinterpret(_) | Operator::InitVector(_)
            ),
            _ => false,
        };
        if carries && !inputs.is_empty() && inputs.iter().all(|v| self.is_literal(v)) {
            self.literals.insert(id);
        }
    }
}

/// The variables that an instruction reads itself, not those of the scopes within it.
pub(super) fn inputs(instruction: &Instruction) -> Vec<Variable> {
    match &instruction.operation {
        Operation::Branch(branch) => match branch {
            Branch::If(op) => vec![op.cond],
            Branch::IfElse(op) => vec![op.cond],
            Branch::Switch(op) => vec![op.value],
            Branch::RangeLoop(op) => [op.start, op.end].into_iter().chain(op.step).collect(),
            Branch::Loop(_) | Branch::Return | Branch::Break | Branch::Unreachable => Vec::new(),
        },
        Operation::Copy(input) => vec![*input],
        Operation::Operator(op) => operands(op),
        Operation::NonSemantic(NonSemantic::Print { args, .. }) => args.clone(),
        other => cubecl::ir::OperationReflect::args(other).unwrap_or_default(),
    }
}

fn operands(op: &Operator) -> Vec<Variable> {
    match op {
        Operator::Index(op) | Operator::UncheckedIndex(op) => vec![op.list, op.index],
        Operator::IndexAssign(op) | Operator::UncheckedIndexAssign(op) => {
            vec![op.index, op.value]
        }
        Operator::CopyMemory(op) => vec![op.out_index, op.input, op.in_index],
        Operator::CopyMemoryBulk(op) => vec![op.out_index, op.input, op.in_index],
        Operator::InitVector(op) => op.inputs.clone(),
        Operator::And(op) | Operator::Or(op) => vec![op.lhs, op.rhs],
        Operator::Not(op) | Operator::Cast(op) | Operator::Reinterpret(op) => vec![op.input],
        Operator::Select(op) => vec![op.cond, op.then, op.or_else],
    }
}

pub(super) fn is_float(variable: &Variable) -> bool {
    !matches!(variable.ty, cubecl::ir::Type::Semantic(_)) && variable.elem_type().is_float()
}

fn wrong_type(ty: StorageType) -> Option<Rule> {
    match ty {
        StorageType::Atomic(ElemType::Float(_)) => Some(Rule::FloatAtomic),
        StorageType::Scalar(ElemType::Float(kind)) if kind != FloatKind::F32 => {
            Some(Rule::FloatType)
        }
        StorageType::Packed(ElemType::Float(_), _) => Some(Rule::FloatType),
        StorageType::Opaque(_) => Some(Rule::NotPortable),
        _ => None,
    }
}

fn is_constant(variable: &Variable, value: i64) -> bool {
    variable.is_constant(value)
}

/// The hidden first scalar of every kernel, -0.
pub(super) fn is_run_time_zero(variable: &Variable) -> bool {
    variable.kind == VariableKind::GlobalScalar(0) && is_float(variable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::{PROFILES, kernels, sabotages};

    #[test]
    fn every_kernel_obeys() {
        for (name, profile) in PROFILES {
            let kernels = kernels(profile);
            assert!(!kernels.is_empty());
            for kernel in kernels {
                let violations = lint(&kernel);
                assert!(
                    violations.is_empty(),
                    "{name}: {}",
                    violations
                        .iter()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>()
                        .join("\n")
                );
                if profile == FloatProfile::EMULATED {
                    assert_eq!(census(&kernel), Census::default(), "{kernel:?}");
                }
            }
        }
    }

    #[test]
    fn names_and_variants_are_unique() {
        for (_, profile) in PROFILES {
            let mut seen = BTreeSet::new();
            for kernel in kernels(profile) {
                assert!(seen.insert(format!("{kernel:?}")), "{kernel:?} twice");
            }
        }
    }

    #[test]
    fn every_sabotage_is_caught() {
        for (rule, kernel) in sabotages() {
            let violations = lint(&kernel);
            assert!(
                violations.iter().any(|v| v.rule == rule),
                "{kernel:?} breaks {rule:?}, seen: {violations:?}"
            );
        }
    }
}
