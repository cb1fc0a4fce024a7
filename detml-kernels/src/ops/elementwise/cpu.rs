//! Loops over blocks of a row: slices where the elements lie side by side, single words where one
//! stands for all, else a block gathered into a buffer on the stack.

use super::Place;
use super::table::{Apply, Op, Visitor};
use crate::device::{Loop, Simd};
use crate::ieee::Ieee;
use rayon::prelude::*;

/// Words gathered at a time.
const BLOCK: usize = 1024;
/// Words that are worth a task of their own.
const TASK: usize = 1 << 16;

/// Computes `out`, `shape[0]` rows of `shape[1]` words.
pub(super) fn run(simd: Simd, op: Op, shape: [usize; 2], operands: &[Place<'_>], out: &mut [u32]) {
    let operands: Vec<Source<'_>> = operands.iter().map(Source::new).collect();
    // Without strides the rows are one.
    let strided = operands.iter().any(|o| matches!(o, Source::Strided { .. }));
    let columns = if strided { shape[1] } else { out.len() };
    op.visit(Run {
        simd,
        columns,
        operands: &operands,
        out,
    });
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Scalar(u32),
    Full(&'a [u32]),
    Own,
    Strided {
        words: &'a [u32],
        row_stride: usize,
        column_stride: usize,
    },
}

impl<'a> Source<'a> {
    fn new(place: &Place<'a>) -> Self {
        match *place {
            Place::Scalar(value) => Self::Scalar(value),
            Place::Own => Self::Own,
            Place::Full(buffer) => Self::Full(buffer.words().unwrap_or(&[])),
            Place::Strided {
                buffer,
                offset,
                row_stride,
                column_stride,
            } => Self::Strided {
                words: buffer.words().and_then(|w| w.get(offset..)).unwrap_or(&[]),
                row_stride,
                column_stride,
            },
        }
    }

    /// The words of row `r` from column `c` on; `at` is the place of the first in the output.
    #[inline(always)]
    fn block<'b>(
        &self,
        r: usize,
        c: usize,
        at: usize,
        own: &[u32],
        buffer: &'b mut [u32; BLOCK],
    ) -> Block<'b>
    where
        'a: 'b,
    {
        let n = own.len();
        match *self {
            Self::Scalar(value) => Block::Scalar(value),
            Self::Full(words) => Block::Slice(&words[at..at + n]),
            Self::Own => {
                buffer[..n].copy_from_slice(own);
                Block::Slice(&buffer[..n])
            }
            Self::Strided {
                words,
                row_stride,
                column_stride,
            } => {
                let first = r * row_stride + c * column_stride;
                match column_stride {
                    0 => Block::Scalar(words[first]),
                    1 => Block::Slice(&words[first..first + n]),
                    _ => {
                        for (i, word) in buffer[..n].iter_mut().enumerate() {
                            *word = words[first + i * column_stride];
                        }
                        Block::Slice(&buffer[..n])
                    }
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Block<'a> {
    Scalar(u32),
    Slice(&'a [u32]),
}

struct Run<'a> {
    simd: Simd,
    columns: usize,
    operands: &'a [Source<'a>],
    out: &'a mut [u32],
}

impl Visitor for Run<'_> {
    type Output = ();

    fn visit<A: Apply>(self) {
        let Self {
            simd,
            columns,
            operands,
            out,
        } = self;
        let task = |first: usize, out: &mut [u32]| {
            simd.dispatch(Task::<A> {
                columns,
                operands,
                first,
                out,
                _apply: std::marker::PhantomData,
            });
        };
        if out.len() <= TASK {
            task(0, out);
        } else {
            out.par_chunks_mut(TASK)
                .enumerate()
                .for_each(|(i, out)| task(i * TASK, out));
        }
    }
}

/// The output's elements from `first` on, in blocks that end where a row does.
struct Task<'a, A> {
    columns: usize,
    operands: &'a [Source<'a>],
    first: usize,
    out: &'a mut [u32],
    _apply: std::marker::PhantomData<A>,
}

impl<A: Apply> Loop for Task<'_, A> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let mut buffers = [[0; BLOCK]; 3];
        let (mut r, mut c) = (self.first / self.columns, self.first % self.columns);
        let mut done = 0;
        while done < self.out.len() {
            let mut n = (self.columns - c).min(self.out.len() - done);
            if self.blocks() {
                n = n.min(BLOCK);
            }
            let out = &mut self.out[done..done + n];
            let mut blocks = [Block::Scalar(0); 3];
            for ((block, source), buffer) in blocks.iter_mut().zip(self.operands).zip(&mut buffers)
            {
                *block = source.block(r, c, self.first + done, out, buffer);
            }
            block::<A>(&ieee, out, blocks);
            done += n;
            c += n;
            if c == self.columns {
                (r, c) = (r + 1, 0);
            }
        }
    }
}

impl<A: Apply> Task<'_, A> {
    /// Whether an operand may need a buffer, or a third one may have to be spread.
    #[inline(always)]
    fn blocks(&self) -> bool {
        A::ARITY == 3
            || self
                .operands
                .iter()
                .any(|o| matches!(o, Source::Own | Source::Strided { .. }))
    }
}

#[inline(always)]
fn block<A: Apply>(ieee: &Ieee, out: &mut [u32], operands: [Block<'_>; 3]) {
    if A::ARITY == 3 {
        let n = out.len();
        let mut spread = [[0; BLOCK]; 3];
        let mut slices: [&[u32]; 3] = [&[]; 3];
        for ((slice, operand), spread) in slices.iter_mut().zip(operands).zip(&mut spread) {
            *slice = match operand {
                Block::Slice(x) => &x[..n],
                Block::Scalar(x) => {
                    spread[..n].fill(x);
                    &spread[..n]
                }
            };
        }
        let [a, b, c] = slices;
        for (((o, a), b), c) in out.iter_mut().zip(a).zip(b).zip(c) {
            *o = A::apply(ieee, *a, *b, *c);
        }
        return;
    }
    // A unary function is not compiled into the loops of two operands.
    let second = if A::ARITY == 1 {
        Block::Scalar(0)
    } else {
        operands[1]
    };
    match (operands[0], second) {
        (Block::Slice(a), Block::Slice(b)) if A::ARITY == 2 => {
            for ((o, a), b) in out.iter_mut().zip(a).zip(b) {
                *o = A::apply(ieee, *a, *b, 0);
            }
        }
        (Block::Scalar(a), Block::Slice(b)) if A::ARITY == 2 => {
            for (o, b) in out.iter_mut().zip(b) {
                *o = A::apply(ieee, a, *b, 0);
            }
        }
        (Block::Slice(a), Block::Scalar(b)) => {
            for (o, a) in out.iter_mut().zip(a) {
                *o = A::apply(ieee, *a, b, 0);
            }
        }
        (Block::Scalar(a), Block::Scalar(b)) => out.fill(A::apply(ieee, a, b, 0)),
        (_, Block::Slice(_)) => {}
    }
}

pub(super) fn iota(out: &mut [u32], first: u32, step: u32) {
    out.par_chunks_mut(TASK).enumerate().for_each(|(i, out)| {
        let first = first.wrapping_add(step.wrapping_mul((i * TASK) as u32));
        for (i, x) in out.iter_mut().enumerate() {
            *x = first.wrapping_add(step.wrapping_mul(i as u32));
        }
    });
}
