//! The order of a fold (`N5`) in a few lines.

use super::fold::{Fold, State};
use super::{LANES, SEGMENT};
use crate::ieee::Ieee;

/// The fold of `x` in its shape.
pub(crate) fn fold<F: Fold>(x: &[u32], shift: u32) -> State {
    let ieee = &Ieee::PLAIN;
    let mut parts = Vec::new();
    for (k, segment) in x.chunks(SEGMENT).enumerate() {
        let mut lanes = [F::start(); LANES];
        for (i, &x) in segment.iter().enumerate() {
            let lane = &mut lanes[i % LANES];
            *lane = F::step(ieee, *lane, x, (k * SEGMENT + i) as u32, shift);
        }
        parts.push(tree::<F>(lanes));
    }
    // The segments' states are folded as elements are.
    while parts.len() > 1 {
        parts = parts
            .chunks(SEGMENT)
            .map(|segment| {
                let mut lanes = [F::start(); LANES];
                for (i, &part) in segment.iter().enumerate() {
                    let lane = &mut lanes[i % LANES];
                    *lane = F::join(ieee, *lane, part);
                }
                tree::<F>(lanes)
            })
            .collect();
    }
    parts.pop().unwrap_or(F::start())
}

/// The upper half of the lanes joins the lower half until one is left.
fn tree<F: Fold>(mut lanes: [State; LANES]) -> State {
    let mut half = LANES / 2;
    while half > 0 {
        for j in 0..half {
            lanes[j] = F::join(&Ieee::PLAIN, lanes[j], lanes[j + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Folds and finishes.
pub(crate) fn result<F: Fold>(x: &[u32], shift: u32, ddof: u32) -> u32 {
    let state = fold::<F>(x, shift);
    F::finish(&Ieee::PLAIN, state, x.len() as u32, ddof)
}
