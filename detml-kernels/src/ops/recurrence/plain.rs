//! The contract as code.

use crate::ieee::Ieee;

/// States and last states; `at` is the place of a step, `state` that of a chain.
pub(super) fn linear(
    a: &[f32],
    b: &[f32],
    initial: Option<&[f32]>,
    [batch, time, channels]: [usize; 3],
) -> (Vec<f32>, Vec<f32>) {
    let ieee = Ieee::PLAIN;
    let mut states = vec![0.0; batch * time * channels];
    let mut last = vec![0.0; batch * channels];
    for chain in 0..batch * channels {
        let mut h = initial.map_or(0.0, |x| x[chain]);
        for t in 0..time {
            let at = (chain / channels * time + t) * channels + chain % channels;
            h = ieee.fma(a[at], h, b[at]);
            states[at] = ieee.canonical(h);
        }
        last[chain] = ieee.canonical(h);
    }
    (states, last)
}

/// Gradients of factors, summands and initial states.
pub(super) fn backward(
    a: &[f32],
    states: &[f32],
    initial: Option<&[f32]>,
    gradient: &[f32],
    gradient_last: Option<&[f32]>,
    [batch, time, channels]: [usize; 3],
) -> [Vec<f32>; 3] {
    let ieee = Ieee::PLAIN;
    let mut da = vec![0.0; batch * time * channels];
    let mut db = da.clone();
    let mut first = vec![0.0; batch * channels];
    for chain in 0..batch * channels {
        let mut r = gradient_last.map_or(0.0, |x| x[chain]);
        for t in (0..time).rev() {
            let at = (chain / channels * time + t) * channels + chain % channels;
            let before = match t {
                0 => initial.map_or(0.0, |x| x[chain]),
                _ => states[at - channels],
            };
            let g = ieee.add(r, gradient[at]);
            da[at] = ieee.canonical(ieee.mul(g, before));
            db[at] = ieee.canonical(g);
            r = ieee.mul(a[at], g);
        }
        first[chain] = ieee.canonical(r);
    }
    [da, db, first]
}
