//! Loops over blocks of a row: slices where the elements lie side by side, else a block gathered or
//! spread into a buffer on the stack.

use super::Place;
use super::table::{Apply, Op, Visitor};
use crate::device::{Loop, Simd};
use crate::ieee::Ieee;
use crate::math;
use crate::ops::parallel::for_chunks;

/// Words gathered at a time.
const BLOCK: usize = 1024;
/// Angles whose largest decides how they are reduced.
const ANGLES: usize = 256;
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

    /// The words of row `r` from column `c` on, as many as `own`; `at` is the place of the first
    /// in the output. The buffer of a scalar already holds it everywhere.
    #[inline(always)]
    fn block<'b>(
        &self,
        r: usize,
        c: usize,
        at: usize,
        own: &[u32],
        buffer: &'b mut [u32; BLOCK],
    ) -> &'b [u32]
    where
        'a: 'b,
    {
        let n = own.len();
        match *self {
            Self::Scalar(_) => {}
            Self::Full(words) => return &words[at..at + n],
            Self::Own => buffer[..n].copy_from_slice(own),
            Self::Strided {
                words,
                row_stride,
                column_stride,
            } => {
                let first = r * row_stride + c * column_stride;
                match column_stride {
                    0 => buffer[..n].fill(words[first]),
                    1 => return &words[first..first + n],
                    _ => {
                        for (i, word) in buffer[..n].iter_mut().enumerate() {
                            *word = words[first + i * column_stride];
                        }
                    }
                }
            }
        }
        &buffer[..n]
    }
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
        let threads = out.len() > TASK;
        for_chunks(out, TASK, threads, &task);
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
        let mut longest = usize::MAX;
        for (source, buffer) in self.operands.iter().zip(&mut buffers) {
            if let Source::Scalar(value) = *source {
                buffer.fill(value);
            }
            if !matches!(source, Source::Full(_)) {
                longest = BLOCK;
            }
        }
        let (mut r, mut c) = (self.first / self.columns, self.first % self.columns);
        let mut done = 0;
        while done < self.out.len() {
            let n = (self.columns - c).min(self.out.len() - done).min(longest);
            let out = &mut self.out[done..done + n];
            let mut operands: [&[u32]; 3] = [&[]; 3];
            for ((words, source), buffer) in
                operands.iter_mut().zip(self.operands).zip(&mut buffers)
            {
                *words = source.block(r, c, self.first + done, out, buffer);
            }
            apply::<A>(&ieee, out, operands);
            done += n;
            c += n;
            if c == self.columns {
                (r, c) = (r + 1, 0);
            }
        }
    }
}

/// One loop a function: a scalar is a slice like any other.
#[inline(always)]
fn apply<A: Apply>(ieee: &Ieee, out: &mut [u32], [a, b, c]: [&[u32]; 3]) {
    match A::ARITY {
        1 => {
            if A::ANGLE {
                for (out, a) in out.chunks_mut(ANGLES).zip(a.chunks(ANGLES)) {
                    by_angle::<A>(ieee, out, a);
                }
            } else {
                let mut any = 0;
                for (o, a) in out.iter_mut().zip(a) {
                    *o = A::apply(ieee, *a, 0, 0);
                    any |= *o;
                }
                several(any);
            }
        }
        2 => {
            let mut any = 0;
            for ((o, a), b) in out.iter_mut().zip(a).zip(b) {
                *o = A::apply(ieee, *a, *b, 0);
                any |= *o;
            }
            several(any);
        }
        _ => {
            for (((o, a), b), c) in out.iter_mut().zip(a).zip(b).zip(c) {
                *o = A::apply(ieee, *a, *b, *c);
            }
        }
    }
}

/// Takes the union of a loop's results: only in a loop with a reduction do compilers keep several
/// vectors in flight, and the functions are long chains of dependent operations.
#[inline(always)]
fn several(any: u32) {
    std::hint::black_box(any);
}

/// A loop for small angles, one for most, one for all, by the largest.
#[inline(always)]
fn by_angle<A: Apply>(ieee: &Ieee, out: &mut [u32], a: &[u32]) {
    let mut most = 0;
    for a in a {
        most = most.max(a & 0x7fff_ffff);
    }
    let mut any = 0;
    if most < math::QUARTER_PI {
        for (o, a) in out.iter_mut().zip(a) {
            *o = A::reduced(ieee, *a, math::reduce_near(ieee.abs(f32::from_bits(*a))));
            any |= *o;
        }
    } else if most < math::MIDDLE {
        for (o, a) in out.iter_mut().zip(a) {
            *o = A::reduced(
                ieee,
                *a,
                math::reduce_middle(ieee, ieee.abs(f32::from_bits(*a))),
            );
            any |= *o;
        }
    } else {
        for (o, a) in out.iter_mut().zip(a) {
            *o = A::reduced(
                ieee,
                *a,
                math::reduce_any(ieee, ieee.abs(f32::from_bits(*a))),
            );
            any |= *o;
        }
    }
    several(any);
}

pub(super) fn iota(out: &mut [u32], first: u32, step: u32) {
    for_chunks(out, TASK, true, &|i, out| {
        let first = first.wrapping_add(step.wrapping_mul(i as u32));
        for (i, x) in out.iter_mut().enumerate() {
            *x = first.wrapping_add(step.wrapping_mul(i as u32));
        }
    });
}
