//! Bounds checks put into a kernel's representation.
//!
//! With `DETML_CHECKED=1` each access to an array is preceded by a comparison of its index with
//! the array's length. What lies beyond is noted in one more buffer, and the launch, which waits
//! for it, ends in an error that names the kernel and the access. CubeCL's own checked mode only
//! makes such accesses harmless: a result that doesn't hang on them stays right, and a fault
//! unseen.

use super::kernel::scopes;
use cubecl::ir::{Branch, Instruction, ManagedVariable, Operation, Operator, Scope};
use cubecl::ir::{Variable, VariableKind};
use cubecl::prelude::*;
use std::sync::LazyLock;

/// What a faulty launch leaves: which access, one more than its number, and the index.
pub(super) const FAULT_WORDS: usize = 2;

/// Whether every launch of this process is checked.
pub(super) fn wanted() -> bool {
    static WANTED: LazyLock<bool> =
        LazyLock::new(|| std::env::var("DETML_CHECKED").is_ok_and(|value| value == "1"));
    *WANTED
}

/// The checks of one kernel.
pub(super) struct Checks {
    /// The last faulty access of a unit, 0 if there is none.
    fault: NativeExpand<u32>,
    /// Its index.
    index: NativeExpand<u32>,
    /// The accesses, as CubeCL prints them.
    pub(super) accesses: Vec<String>,
}

#[cube]
fn note(fault: u32, index: u32, at: usize, len: usize, #[comptime] access: u32) -> (u32, u32) {
    let inside = at < len;
    (
        select(inside, fault, access),
        select(inside, index, at as u32),
    )
}

#[cube]
fn report(faults: &mut Array<u32>, fault: u32, index: u32) {
    if fault != 0u32 {
        faults[0] = fault;
        faults[1] = index;
    }
}

impl Checks {
    /// To be called before the kernel's own code is written.
    pub(super) fn begin(scope: &mut Scope) -> Self {
        let mut zero = || {
            let variable = NativeExpand::<u32>::from(scope.create_local_mut(u32::cube_type()));
            assign::expand_no_check::<u32>(scope, 0u32.into(), variable.clone());
            variable
        };
        Self {
            fault: zero(),
            index: zero(),
            accesses: Vec::new(),
        }
    }

    /// Checks every access in `body`, and at its ends writes the last faulty one to `faults`.
    pub(super) fn insert(&mut self, body: &mut Scope, faults: &NativeExpand<Array<u32>>) {
        self.walk(body, faults);
        self.report(body, faults);
    }

    fn report(&self, scope: &mut Scope, faults: &NativeExpand<Array<u32>>) {
        let (fault, index) = (self.fault.clone(), self.index.clone());
        report::expand(scope, faults.clone(), fault, index);
    }

    fn walk(&mut self, scope: &mut Scope, faults: &NativeExpand<Array<u32>>) {
        for mut instruction in std::mem::take(&mut scope.instructions) {
            for (list, index) in accesses(&instruction) {
                self.check(scope, list, index, &instruction);
            }
            match &mut instruction.operation {
                Operation::Branch(Branch::Return) => self.report(scope, faults),
                Operation::Branch(branch) => {
                    for inner in scopes(branch) {
                        self.walk(inner, faults);
                    }
                }
                _ => {}
            }
            scope.instructions.push(instruction);
        }
    }

    fn check(&mut self, scope: &mut Scope, list: Variable, at: Variable, whole: &Instruction) {
        let len = match list.kind {
            VariableKind::GlobalInputArray(_) | VariableKind::GlobalOutputArray(_) => {
                let list = NativeExpand::<Array<u32>>::from(ManagedVariable::Plain(list));
                list.__expand_len_method(scope)
            }
            VariableKind::SharedArray { length, .. }
            | VariableKind::LocalArray { length, .. }
            | VariableKind::ConstantArray { length, .. } => {
                let inside = at
                    .as_const()
                    .is_some_and(|at| (at.as_u64() as usize) < length);
                if inside {
                    return;
                }
                length.into()
            }
            // The components of a vector are no memory.
            _ => return,
        };
        self.accesses.push(whole.to_string());
        let access = self.accesses.len() as u32;
        let at = NativeExpand::<usize>::from(ManagedVariable::Plain(at));
        let (fault, index) = (self.fault.clone(), self.index.clone());
        let (fault, index) = note::expand(scope, fault, index, at, len, access);
        assign::expand_no_check::<u32>(scope, fault, self.fault.clone());
        assign::expand_no_check::<u32>(scope, index, self.index.clone());
    }
}

/// The arrays and indices of an instruction.
fn accesses(instruction: &Instruction) -> Vec<(Variable, Variable)> {
    let Operation::Operator(op) = &instruction.operation else {
        return Vec::new();
    };
    let to = |index| instruction.out.map(|out| (out, index));
    match op {
        Operator::Index(op) | Operator::UncheckedIndex(op) => vec![(op.list, op.index)],
        Operator::IndexAssign(op) | Operator::UncheckedIndexAssign(op) => {
            to(op.index).into_iter().collect()
        }
        Operator::CopyMemory(op) => to(op.out_index)
            .into_iter()
            .chain([(op.input, op.in_index)])
            .collect(),
        _ => Vec::new(),
    }
}
