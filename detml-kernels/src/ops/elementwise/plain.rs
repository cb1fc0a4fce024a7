//! The contract in a few lines.

use super::Place;
use super::table::{Op, apply};
use crate::ieee::Ieee;

/// Element `(r, c)` is `op` of the operands' elements `(r, c)`.
pub(super) fn run(op: Op, shape: [usize; 2], operands: &[Place<'_>], own: &[u32]) -> Vec<u32> {
    let mut out = Vec::new();
    for r in 0..shape[0] {
        for c in 0..shape[1] {
            let at = r * shape[1] + c;
            let mut words = [0; 3];
            for (word, place) in words.iter_mut().zip(operands) {
                *word = match *place {
                    Place::Scalar(value) => value,
                    Place::Own => own[at],
                    Place::Full(buffer) => buffer.words().unwrap()[at],
                    Place::Strided {
                        buffer,
                        offset,
                        row_stride,
                        column_stride,
                    } => buffer.words().unwrap()[offset + r * row_stride + c * column_stride],
                };
            }
            out.push(apply(&Ieee::PLAIN, words[0], words[1], words[2], op));
        }
    }
    out
}
