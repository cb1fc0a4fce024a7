//! The contract as code.

use super::{Layout, Problem, finish};
use crate::ieee::Ieee;

/// The product of any problem, `c` included, element by element.
pub(super) fn gemm(
    p: &Problem,
    (a, la): (&[f32], Layout),
    (b, lb): (&[f32], Layout),
    (c, lc): (&mut [f32], Layout),
) {
    for batch in 0..p.batch {
        for i in 0..p.m {
            for j in 0..p.n {
                let total = total(p, |k| (a[la.at(batch, i, k)], b[lb.at(batch, k, j)]));
                let c = &mut c[lc.at(batch, i, j)];
                *c = finish(Ieee::PLAIN, total, p.alpha, p.beta, *c, true, p.added());
            }
        }
    }
}

/// One element's sum (`N6`).
pub(super) fn total(p: &Problem, term: impl Fn(usize) -> (f32, f32)) -> f32 {
    let mut total = 0.0;
    for from in (0..p.k).step_by(p.panel) {
        let mut sum = 0.0;
        for k in from..p.k.min(from + p.panel) {
            let (a, b) = term(k);
            sum = Ieee::PLAIN.fma(a, b, sum);
        }
        total = if from == 0 {
            sum
        } else {
            Ieee::PLAIN.add(total, sum)
        };
    }
    total
}
