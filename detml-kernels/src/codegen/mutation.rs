//! Mistakes put into kernels by rule rather than by hand, so that every kernel can be shown to be
//! watched: a mutation rewrites one place of a kernel's representation, and the lint or a suite must
//! see it.

use super::lint::{inputs, is_float, is_run_time_zero};
use crate::device::{Kernel, scopes};
use cubecl::ir::{
    Arithmetic, BinaryOperator, Bitwise, Branch, Comparison, ConstantValue, Instruction, Operation,
    OperationReflect, Operator, Scope, Variable, VariableKind,
};
use std::collections::{HashMap, HashSet};
use std::fmt;

/// A kind of mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A product that a compiler may fuse: the run-time -0 that guards it is gone (`N2`).
    Contraction,
    /// Three numbers summed from the other side, or a loop that sums walked from its end (`N5`).
    Order,
    /// `<` between what was loaded or computed becomes `<=`, and `<=` becomes `<` (`N10`).
    Tie,
    /// A NaN is let through as it is (`N11`).
    Nan,
    /// The last element within a bound is left out.
    Tail,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Contraction,
        Self::Order,
        Self::Tie,
        Self::Nan,
        Self::Tail,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Contraction => "contraction",
            Self::Order => "order",
            Self::Tie => "tie",
            Self::Nan => "nan",
            Self::Tail => "tail",
        }
    }

    /// Why a kernel without a place for it has none.
    pub fn absence(self) -> &'static str {
        match self {
            Self::Contraction => "no product of floats",
            Self::Order => "no sum of three floats and no loop over floats",
            Self::Tie => "compares no two values",
            Self::Nan => "chooses no NaN",
            Self::Tail => "no bound on an index",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which of the places where a mistake can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// All at once.
    All,
    /// One, counted from 0.
    One(usize),
}

/// How many places a kernel has for a kind of mistake.
pub fn places(kernel: &Kernel, kind: Kind) -> usize {
    let mut body = kernel.definition(None).body;
    Mutation::new(kind, None, &body).apply(&mut body)
}

/// The kernel with the mistake in it.
pub fn mutated(kernel: &Kernel, kind: Kind, places: Places) -> Kernel {
    kernel.amended((kind, places), move |body| {
        Mutation::new(kind, Some(places), body).apply(body);
    })
}

struct Mutation {
    kind: Kind,
    wanted: Option<Places>,
    seen: usize,
    facts: Facts,
    /// What the mutable locals of the scope at hand were last given.
    given: HashMap<VariableKind, Variable>,
}

impl Mutation {
    fn new(kind: Kind, wanted: Option<Places>, body: &Scope) -> Self {
        Self {
            kind,
            wanted,
            seen: 0,
            facts: Facts::of(body),
            given: HashMap::new(),
        }
    }

    /// The number of places.
    fn apply(mut self, body: &mut Scope) -> usize {
        self.scope(body);
        self.seen
    }

    fn scope(&mut self, scope: &mut Scope) {
        self.given.clear();
        for mut instruction in std::mem::take(&mut scope.instructions) {
            if let Operation::Branch(branch) = &mut instruction.operation {
                for inner in scopes(branch) {
                    self.scope(inner);
                }
                self.given.clear();
            }
            if let Some(change) = self.change(&instruction) {
                let here = match self.wanted {
                    None => false,
                    Some(Places::All) => true,
                    Some(Places::One(at)) => at == self.seen,
                };
                self.seen += 1;
                if here {
                    change.make(scope, &mut instruction);
                }
            }
            if let Some(out) = instruction.out
                && matches!(out.kind, VariableKind::LocalMut { .. })
            {
                match &instruction.operation {
                    Operation::Copy(value) => self.given.insert(out.kind, *value),
                    _ => self.given.remove(&out.kind),
                };
            }
            scope.instructions.push(instruction);
        }
        self.given.clear();
    }

    /// What would be changed of an instruction.
    fn change(&self, instruction: &Instruction) -> Option<Change> {
        let operation = &instruction.operation;
        match (self.kind, operation) {
            (Kind::Contraction, Operation::Arithmetic(Arithmetic::Fma(op))) => {
                is_run_time_zero(&op.c).then_some(Change::Bare)
            }
            (Kind::Order, Operation::Arithmetic(Arithmetic::Add(op))) => self.chain(op),
            (Kind::Order, Operation::Branch(Branch::RangeLoop(op))) => {
                let plain = !op.inclusive && op.step.is_none();
                (plain && computes(&op.scope)).then_some(Change::Backwards)
            }
            (Kind::Tie, Operation::Comparison(op)) => {
                let (Comparison::Lower(pair)
                | Comparison::LowerEqual(pair)
                | Comparison::Greater(pair)
                | Comparison::GreaterEqual(pair)) = op
                else {
                    return None;
                };
                (self.facts.is_data(&pair.lhs) && self.facts.is_data(&pair.rhs))
                    .then_some(Change::Tied)
            }
            (Kind::Nan, Operation::Operator(Operator::Select(op))) => {
                if self.is_nan(&op.then) {
                    Some(Change::Only(op.or_else))
                } else if self.is_nan(&op.or_else) {
                    Some(Change::Only(op.then))
                } else {
                    None
                }
            }
            (Kind::Tail, Operation::Comparison(Comparison::Lower(op))) => {
                let index = !self.facts.is_data(&op.lhs) && op.lhs.as_const().is_none();
                (index && !is_float(&op.lhs)).then_some(Change::Shorter)
            }
            (Kind::Tail, Operation::Branch(Branch::RangeLoop(op))) => {
                (!op.inclusive && op.step.is_none() && op.end.as_const().is_none())
                    .then_some(Change::Sooner)
            }
            _ => None,
        }
    }

    /// `(x + y) + z` as `x + (y + z)`.
    fn chain(&self, op: &BinaryOperator) -> Option<Change> {
        if !is_float(&op.lhs) {
            return None;
        }
        [(op.lhs, op.rhs), (op.rhs, op.lhs)]
            .into_iter()
            .find_map(|(sum, z)| {
                let (x, y) = self.sum(&sum)?;
                let still = |v: &Variable| v.is_immutable();
                (still(&x) && still(&y)).then_some(Change::Regrouped { x, y, z })
            })
    }

    /// What was added to make a value.
    fn sum(&self, value: &Variable) -> Option<(Variable, Variable)> {
        match &self.origin(value)?.operation {
            Operation::Arithmetic(Arithmetic::Add(op)) => Some((op.lhs, op.rhs)),
            _ => None,
        }
    }

    /// The instruction that made a value, which may have gone by way of its bits, hidden from
    /// compilers by an exclusive or with a run-time zero.
    fn origin(&self, value: &Variable) -> Option<&Instruction> {
        let kind = self.given.get(&value.kind).map_or(value.kind, |v| v.kind);
        let made = self.facts.made.get(&kind)?;
        match &made.operation {
            Operation::Copy(from) => self.origin(from),
            Operation::Operator(Operator::Reinterpret(op)) => self.origin(&op.input),
            Operation::Bitwise(Bitwise::BitwiseXor(op)) if !self.facts.is_data(&op.rhs) => {
                self.origin(&op.lhs)
            }
            _ => Some(made),
        }
    }

    /// Whether a value is the canonical NaN, or the key of NaN.
    fn is_nan(&self, value: &Variable) -> bool {
        const NAN: u64 = 0x7fc0_0000;
        if let Some(constant) = value.as_const() {
            let bits = match constant {
                ConstantValue::UInt(bits) => bits,
                ConstantValue::Int(bits) => u64::from(bits as u32),
                _ => return false,
            };
            return bits == NAN || bits == u64::from(u32::MAX);
        }
        match self.facts.made.get(&value.kind).map(|made| &made.operation) {
            Some(Operation::Copy(from)) => self.is_nan(from),
            Some(Operation::Operator(Operator::Reinterpret(op) | Operator::Cast(op))) => {
                self.is_nan(&op.input)
            }
            _ => false,
        }
    }
}

/// What is changed at a place.
enum Change {
    Bare,
    Regrouped {
        x: Variable,
        y: Variable,
        z: Variable,
    },
    Backwards,
    Tied,
    Only(Variable),
    Shorter,
    Sooner,
}

impl Change {
    /// Changes an instruction; what must come before it goes to the end of `scope`.
    fn make(self, scope: &mut Scope, instruction: &mut Instruction) {
        match (self, &mut instruction.operation) {
            (Self::Bare, operation @ Operation::Arithmetic(Arithmetic::Fma(_))) => {
                if let Operation::Arithmetic(Arithmetic::Fma(op)) = operation {
                    let product = pair(op.a, op.b);
                    *operation = Arithmetic::Mul(product).into();
                }
            }
            (Self::Regrouped { x, y, z }, operation) => {
                let rest = define(scope, y, Arithmetic::Add(pair(y, z)));
                *operation = Arithmetic::Add(pair(x, rest)).into();
            }
            (Self::Backwards, Operation::Branch(Branch::RangeLoop(op))) => {
                let mut body = std::mem::take(&mut op.scope.instructions);
                let one = constant(1, &op.i);
                let last = define(&mut op.scope, op.i, Arithmetic::Sub(pair(op.end, one)));
                let done = define(&mut op.scope, op.i, Arithmetic::Sub(pair(op.i, op.start)));
                let at = define(&mut op.scope, op.i, Arithmetic::Sub(pair(last, done)));
                for instruction in &mut body {
                    replace(instruction, op.i, at);
                }
                op.scope.instructions.extend(body);
            }
            (Self::Tied, Operation::Comparison(op)) => {
                *op = match op.clone() {
                    Comparison::Lower(pair) => Comparison::LowerEqual(pair),
                    Comparison::LowerEqual(pair) => Comparison::Lower(pair),
                    Comparison::Greater(pair) => Comparison::GreaterEqual(pair),
                    Comparison::GreaterEqual(pair) => Comparison::Greater(pair),
                    other => other,
                };
            }
            (Self::Only(value), operation) => *operation = Operation::Copy(value),
            (Self::Shorter, Operation::Comparison(Comparison::Lower(op))) => {
                let one = constant(1, &op.lhs);
                op.lhs = define(scope, op.lhs, Arithmetic::Add(pair(op.lhs, one)));
            }
            (Self::Sooner, Operation::Branch(Branch::RangeLoop(op))) => {
                // An empty range stays one.
                let one = constant(1, &op.end);
                let some = Comparison::Lower(pair(op.start, op.end));
                let truth = Variable::constant(ConstantValue::Bool(true), bool_type());
                let some = define(scope, truth, some);
                let less = define(scope, op.end, Arithmetic::Sub(pair(op.end, one)));
                let select = cubecl::ir::Select {
                    cond: some,
                    then: less,
                    or_else: op.end,
                };
                op.end = define(scope, op.end, Operator::Select(select));
            }
            _ => {}
        }
    }
}

fn bool_type() -> cubecl::ir::Type {
    cubecl::ir::Type::scalar(cubecl::ir::ElemType::Bool)
}

fn pair(lhs: Variable, rhs: Variable) -> BinaryOperator {
    BinaryOperator { lhs, rhs }
}

fn constant(value: u64, like: &Variable) -> Variable {
    Variable::constant(ConstantValue::UInt(value), like.ty)
}

/// A new value of the type of `like`, made at the end of `scope`.
fn define(scope: &mut Scope, like: Variable, operation: impl Into<Operation>) -> Variable {
    let out = *scope.create_local(like.ty);
    scope.instructions.push(Instruction::new(operation, out));
    out
}

/// Whether float arithmetic, or words that become floats, are in a scope.
fn computes(scope: &Scope) -> bool {
    scope.instructions.iter().any(|instruction| {
        let mut inner = instruction.clone();
        if let Operation::Branch(branch) = &mut inner.operation {
            return scopes(branch).into_iter().any(|scope| computes(scope));
        }
        let kind = matches!(
            instruction.operation,
            Operation::Arithmetic(_) | Operation::Operator(Operator::Reinterpret(_))
        );
        kind && instruction.out.as_ref().is_some_and(is_float)
    })
}

/// Puts `to` in the place of `from` in all that an instruction reads.
fn replace(instruction: &mut Instruction, from: Variable, to: Variable) {
    let put = |v: &mut Variable| {
        if v.kind == from.kind {
            v.kind = to.kind;
        }
    };
    match &mut instruction.operation {
        Operation::Copy(input) => put(input),
        Operation::Branch(branch) => {
            match branch {
                Branch::If(op) => put(&mut op.cond),
                Branch::IfElse(op) => put(&mut op.cond),
                Branch::Switch(op) => put(&mut op.value),
                Branch::RangeLoop(op) => {
                    put(&mut op.start);
                    put(&mut op.end);
                    op.step.iter_mut().for_each(put);
                }
                Branch::Loop(_) | Branch::Return | Branch::Break | Branch::Unreachable => {}
            }
            for inner in scopes(branch) {
                for instruction in &mut inner.instructions {
                    replace(instruction, from, to);
                }
            }
        }
        Operation::Operator(op) => match op {
            Operator::Index(op) | Operator::UncheckedIndex(op) => {
                put(&mut op.list);
                put(&mut op.index);
            }
            Operator::IndexAssign(op) | Operator::UncheckedIndexAssign(op) => {
                put(&mut op.index);
                put(&mut op.value);
            }
            Operator::CopyMemory(op) => {
                put(&mut op.out_index);
                put(&mut op.input);
                put(&mut op.in_index);
            }
            Operator::CopyMemoryBulk(op) => {
                put(&mut op.out_index);
                put(&mut op.input);
                put(&mut op.in_index);
            }
            Operator::InitVector(op) => op.inputs.iter_mut().for_each(put),
            Operator::And(op) | Operator::Or(op) => {
                put(&mut op.lhs);
                put(&mut op.rhs);
            }
            Operator::Not(op) | Operator::Cast(op) | Operator::Reinterpret(op) => {
                put(&mut op.input);
            }
            Operator::Select(op) => {
                put(&mut op.cond);
                put(&mut op.then);
                put(&mut op.or_else);
            }
        },
        other => {
            let Some(mut args) = other.args() else {
                return;
            };
            args.iter_mut().for_each(put);
            if let Some(replaced) = Operation::from_code_and_args(other.op_code(), &args) {
                *other = replaced;
            }
        }
    }
}

/// What is known of a kernel's values.
#[derive(Default)]
struct Facts {
    /// What made each immutable local.
    made: HashMap<VariableKind, Instruction>,
    /// What hangs on the elements of arrays, not on positions and scalars alone.
    data: HashSet<VariableKind>,
}

impl Facts {
    fn of(body: &Scope) -> Self {
        let mut facts = Self::default();
        // A loop hands on what its end has made to its start.
        loop {
            let before = facts.data.len();
            facts.scope(&mut body.clone());
            if facts.data.len() == before {
                return facts;
            }
        }
    }

    fn scope(&mut self, scope: &mut Scope) {
        for instruction in &mut scope.instructions {
            if let Operation::Branch(branch) = &mut instruction.operation {
                for inner in scopes(branch) {
                    self.scope(inner);
                }
            }
            let Some(out) = instruction.out else {
                continue;
            };
            if matches!(out.kind, VariableKind::LocalConst { .. }) {
                self.made
                    .entry(out.kind)
                    .or_insert_with(|| instruction.clone());
            }
            if matches!(instruction.operation, Operation::Atomic(_))
                || inputs(instruction).iter().any(|v| self.is_data(v))
            {
                self.data.insert(out.kind);
            }
        }
    }

    fn is_data(&self, value: &Variable) -> bool {
        matches!(
            value.kind,
            VariableKind::GlobalInputArray(_)
                | VariableKind::GlobalOutputArray(_)
                | VariableKind::SharedArray { .. }
        ) || self.data.contains(&value.kind)
    }
}

/// What tests of suites are told by the environment: to put a mistake into the kernels that they
/// launch, and to write down which those are.
#[cfg(test)]
pub(crate) mod hook {
    use super::{Kernel, Kind, Places, mutated, places};
    use std::collections::HashMap;
    use std::io::Write;
    use std::sync::{LazyLock, Mutex};
    use std::time::Instant;

    /// `KIND:KERNEL:PART/PARTS`: of the places that a kernel of this name has for the kind of
    /// mistake, the one at this fraction.
    const MISTAKE: &str = "DETML_SABOTAGE";
    /// The file that takes a line for each launch of a kernel that a test had not launched yet: the
    /// test, the kernel, the seconds since the process began, and the places for each kind.
    const LAUNCHED: &str = "DETML_LAUNCHED";

    struct Mistake {
        kind: Kind,
        kernel: String,
        part: usize,
        parts: usize,
    }

    static ASKED: LazyLock<Option<Mistake>> = LazyLock::new(|| {
        let text = std::env::var(MISTAKE).ok()?;
        let cells: Vec<&str> = text.split([':', '/']).collect();
        let [kind, kernel, part, parts] = cells[..] else {
            panic!("{MISTAKE}={text}");
        };
        Some(Mistake {
            kind: *Kind::ALL.iter().find(|k| k.name() == kind).unwrap(),
            kernel: kernel.into(),
            part: part.parse().unwrap(),
            parts: parts.parse().unwrap(),
        })
    });

    /// The kernel, or the one with the mistake that was asked for.
    pub(crate) fn as_asked(kernel: &Kernel) -> Kernel {
        static MADE: Mutex<Option<HashMap<String, Kernel>>> = Mutex::new(None);
        note(kernel);
        let Some(asked) = ASKED.as_ref().filter(|m| m.kernel == kernel.name()) else {
            return kernel.clone();
        };
        let mut made = MADE.lock().unwrap_or_else(|e| e.into_inner());
        made.get_or_insert_default()
            .entry(format!("{kernel:?}"))
            .or_insert_with(|| {
                let count = places(kernel, asked.kind);
                if count == 0 {
                    return kernel.clone();
                }
                let last = (asked.parts - 1).max(1);
                let at = Places::One((count - 1) * asked.part / last);
                mutated(kernel, asked.kind, at)
            })
            .clone()
    }

    fn note(kernel: &Kernel) {
        static SEEN: LazyLock<Mutex<HashMap<(String, String), ()>>> = LazyLock::new(Mutex::default);
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        let Some(path) = std::env::var_os(LAUNCHED) else {
            return;
        };
        let seconds = START.elapsed().as_secs_f64();
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        let one = (test.clone(), format!("{kernel:?}"));
        let mut seen = SEEN.lock().unwrap_or_else(|e| e.into_inner());
        if seen.insert(one, ()).is_some() {
            return;
        }
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        let counts: Vec<String> = Kind::ALL
            .iter()
            .map(|kind| places(kernel, *kind).to_string())
            .collect();
        let name = kernel.name();
        let counts = counts.join("\t");
        writeln!(file, "{test}\t{name}\t{seconds:.3}\t{counts}").unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::lint::{Rule, lint};
    use crate::codegen::{PROFILES, kernels};
    use crate::ieee::FloatProfile;

    /// Each product of each kernel, stripped of its -0, is seen by the lint.
    #[test]
    fn every_bare_product_is_seen() {
        for (name, profile) in PROFILES {
            let mut all = 0;
            for kernel in kernels(profile) {
                let products = places(&kernel, Kind::Contraction);
                let seen = lint(&mutated(&kernel, Kind::Contraction, Places::All))
                    .iter()
                    .filter(|v| v.rule == Rule::BareProduct)
                    .count();
                assert_eq!(seen, products, "{name}: {kernel:?}");
                all += products;
            }
            assert_eq!(all == 0, profile == FloatProfile::EMULATED, "{name}: {all}");
        }
    }
}
