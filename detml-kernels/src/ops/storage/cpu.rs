//! Loops over chunks of words.

use super::{Half, decode_half, encode_half};
use crate::convert;
use crate::device::{Loop, Simd};
use crate::ieee::Ieee;
use rayon::prelude::*;

/// Words that are worth a task of their own.
const TASK: usize = 1 << 15;

macro_rules! each {
    ($simd:expr, |$ieee:ident, $x:ident: $X:ty, $out:ident: $Out:ty| $body:block) => {{
        struct Each<'a> {
            x: &'a [$X],
            out: &'a mut [$Out],
        }
        impl Loop for Each<'_> {
            type Output = ();
            #[inline(always)]
            #[allow(unused_variables)]
            fn run(self, $ieee: Ieee) {
                let Self { x: $x, out: $out } = self;
                $body
            }
        }
        |x, out| $simd.dispatch(Each { x, out })
    }};
}

pub(super) fn encode(simd: Simd, half: Half, x: &[f32], out: &mut [u32]) {
    macro_rules! of {
        ($half:expr) => {
            each!(simd, |ieee, x: f32, out: u32| {
                let pairs = x.chunks_exact(2);
                if let ([last], Some(out)) = (pairs.remainder(), out.last_mut()) {
                    *out = encode_half(*last, $half);
                }
                for (out, x) in out.iter_mut().zip(pairs) {
                    let (low, high) = (encode_half(x[0], $half), encode_half(x[1], $half));
                    *out = convert::join_halves(low, high);
                }
            })
        };
    }
    let chunks = out.par_chunks_mut(TASK).zip(x.par_chunks(2 * TASK));
    match half {
        Half::Bf16 => chunks.for_each(|(out, x)| of!(Half::Bf16)(x, out)),
        Half::F16 => chunks.for_each(|(out, x)| of!(Half::F16)(x, out)),
    }
}

pub(super) fn decode(simd: Simd, half: Half, words: &[u32], out: &mut [f32]) {
    macro_rules! of {
        ($half:expr) => {
            each!(simd, |ieee, words: u32, out: f32| {
                let mut pairs = out.chunks_exact_mut(2);
                for (out, word) in (&mut pairs).zip(words) {
                    out[0] = decode_half(convert::low_half(*word), $half);
                    out[1] = decode_half(convert::high_half(*word), $half);
                }
                if let ([out], Some(word)) = (pairs.into_remainder(), words.last()) {
                    *out = decode_half(convert::low_half(*word), $half);
                }
            })
        };
    }
    let chunks = out.par_chunks_mut(2 * TASK).zip(words.par_chunks(TASK));
    match half {
        Half::Bf16 => chunks.for_each(|(out, words)| of!(Half::Bf16)(words, out)),
        Half::F16 => chunks.for_each(|(out, words)| of!(Half::F16)(words, out)),
    }
}

pub(super) fn encode_int8(
    simd: Simd,
    x: &[f32],
    columns: usize,
    exponents: &[i32],
    codes: &mut [u32],
) {
    struct Row<'a>(&'a [f32], i32, &'a mut [u32]);
    impl Loop for Row<'_> {
        type Output = ();
        #[inline(always)]
        fn run(self, ieee: Ieee) {
            for (out, x) in self.2.iter_mut().zip(self.0.chunks(4)) {
                let code = |i: usize| {
                    x.get(i)
                        .map_or(0, |&x| convert::f32_to_int8(&ieee, x, self.1))
                };
                *out = convert::join_bytes(code(0), code(1), code(2), code(3));
            }
        }
    }
    if columns > 0 {
        codes
            .par_chunks_mut(columns.div_ceil(4))
            .zip(x.par_chunks(columns))
            .zip(exponents)
            .for_each(|((codes, x), &e)| simd.dispatch(Row(x, e, codes)));
    }
}

pub(super) fn decode_int8(
    simd: Simd,
    codes: &[u32],
    columns: usize,
    exponents: &[i32],
    out: &mut [f32],
) {
    struct Row<'a>(&'a [u32], i32, &'a mut [f32]);
    impl Loop for Row<'_> {
        type Output = ();
        #[inline(always)]
        fn run(self, ieee: Ieee) {
            for (out, &word) in self.2.chunks_mut(4).zip(self.0) {
                for (lane, out) in out.iter_mut().enumerate() {
                    *out = convert::int8_to_f32(&ieee, convert::byte(word, lane as u32), self.1);
                }
            }
        }
    }
    if columns > 0 {
        out.par_chunks_mut(columns)
            .zip(codes.par_chunks(columns.div_ceil(4)))
            .zip(exponents)
            .for_each(|((out, codes), &e)| simd.dispatch(Row(codes, e, out)));
    }
}
