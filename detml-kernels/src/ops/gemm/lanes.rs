//! The vectors that CPU micro-kernels are written in.
//!
//! Each operation is that of [`Ieee`] in every lane: the instructions are IEEE-754's fused
//! multiply-add and addition (`N1`).

use super::cpu::{Kernel, Micro};
use crate::device::Loop;
#[cfg(target_arch = "x86_64")]
use crate::device::simd::{avx2, avx512};
use crate::ieee::Ieee;
use std::marker::PhantomData;

/// A vector of binary32 in registers, and the shape of the micro-kernel written in it.
///
/// The vectors of an instruction set may only be used where the CPU has it, and all but
/// [`dispatch`](Self::dispatch) only inside of that.
pub(in crate::ops) trait Lanes: Copy {
    /// Lanes.
    const WIDTH: usize;
    /// Rows of the largest micro-kernel.
    const ROWS: usize;
    /// Vectors in a row of the largest micro-kernel.
    const VECTORS: usize;

    /// Runs a loop compiled for the instruction set.
    fn dispatch<B: Loop>(body: B) -> B::Output;
    /// `x` in every lane.
    fn splat(x: f32) -> Self;
    /// The first [`WIDTH`](Self::WIDTH) elements.
    fn load(x: &[f32]) -> Self;
    /// Writes the first [`WIDTH`](Self::WIDTH) elements.
    fn store(self, x: &mut [f32]);
    /// `self * b + c`, rounded once.
    fn fma(self, b: Self, c: Self, ieee: Ieee) -> Self;
    /// `self + b`.
    fn add(self, b: Self, ieee: Ieee) -> Self;
    /// Writes 8 elements of each of 8 rows, `from` apart, as 8 columns, `to` apart.
    #[inline(always)]
    fn transpose(rows: &[f32], from: usize, out: &mut [f32], to: usize) {
        for i in 0..8 {
            for (j, x) in out[i * to..][..8].iter_mut().enumerate() {
                *x = rows[j * from + i];
            }
        }
    }
    /// Runs a micro-kernel of at most [`ROWS`](Self::ROWS) rows and
    /// [`VECTORS`](Self::VECTORS) vectors.
    fn micro(micro: Micro<'_>);
}

/// Picks the micro-kernel of the given rows and vectors.
macro_rules! micro {
    ($rows:tt x [$($vectors:literal)+]) => {
        fn micro(micro: Micro<'_>) {
            match micro.vectors {
                $($vectors => micro!(@ micro, $rows, $vectors),)+
                other => unreachable!("a micro-kernel of {other} vectors"),
            }
        }
    };
    (@ $micro:ident, [$($rows:literal)+], $vectors:literal) => {
        match $micro.rows {
            $($rows => Self::dispatch(Kernel::<Self, $rows, $vectors> {
                micro: $micro,
                lanes: PhantomData,
            }),)+
            other => unreachable!("a micro-kernel of {other} rows"),
        }
    };
}

/// Four lanes for any CPU.
impl Lanes for [f32; 4] {
    const WIDTH: usize = 4;
    const ROWS: usize = 4;
    const VECTORS: usize = 1;

    #[inline(always)]
    fn dispatch<B: Loop>(body: B) -> B::Output {
        body.run(Ieee::PLAIN)
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        [x; 4]
    }

    #[inline(always)]
    fn load(x: &[f32]) -> Self {
        [x[0], x[1], x[2], x[3]]
    }

    #[inline(always)]
    fn store(self, x: &mut [f32]) {
        x[..4].copy_from_slice(&self);
    }

    #[inline(always)]
    fn fma(self, b: Self, c: Self, ieee: Ieee) -> Self {
        std::array::from_fn(|i| ieee.fma(self[i], b[i], c[i]))
    }

    #[inline(always)]
    fn add(self, b: Self, ieee: Ieee) -> Self {
        std::array::from_fn(|i| ieee.add(self[i], b[i]))
    }

    micro! { [1 2 3 4] x [1] }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! lanes {
    ($vector:ty, $dispatch:expr, $width:literal, $rows:literal x $vectors:literal, $kernels:tt x $widths:tt,
     [$($transpose:ident)?],
     $splat:ident, $load:ident, $store:ident, $fma:expr, $add:ident) => {
        impl Lanes for $vector {
            const WIDTH: usize = $width;
            const ROWS: usize = $rows;
            const VECTORS: usize = $vectors;

            #[inline(always)]
            fn dispatch<B: Loop>(body: B) -> B::Output {
                $dispatch(body)
            }

            #[inline(always)]
            fn splat(x: f32) -> Self {
                // SAFETY: the trait's contract: this runs where the instructions exist.
                unsafe { $splat(x) }
            }

            #[inline(always)]
            fn load(x: &[f32]) -> Self {
                let x = &x[..$width];
                // SAFETY: as above, and the slice holds the vector.
                unsafe { $load(x.as_ptr()) }
            }

            #[inline(always)]
            fn store(self, x: &mut [f32]) {
                let x = &mut x[..$width];
                // SAFETY: as in `load`.
                unsafe { $store(x.as_mut_ptr(), self) }
            }

            #[inline(always)]
            fn fma(self, b: Self, c: Self, _: Ieee) -> Self {
                // SAFETY: as in `splat`.
                unsafe { $fma(self, b, c) }
            }

            #[inline(always)]
            fn add(self, b: Self, _: Ieee) -> Self {
                // SAFETY: as in `splat`.
                unsafe { $add(self, b) }
            }

            $(
                #[inline(always)]
                fn transpose(rows: &[f32], from: usize, out: &mut [f32], to: usize) {
                    let rows = &rows[..7 * from + 8];
                    let out = &mut out[..7 * to + 8];
                    // SAFETY: as in `splat`, and the slices hold every row and column.
                    unsafe { $transpose(rows.as_ptr(), from, out.as_mut_ptr(), to) }
                }
            )?

            micro! { $kernels x $widths }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    /// [`Lanes::transpose`], whose bounds the caller has checked.
    #[inline]
    #[target_feature(enable = "avx")]
    unsafe fn transpose(rows: *const f32, from: usize, out: *mut f32, to: usize) {
        // Halves of rows i and i + 4 side by side, so that no later step crosses the halves.
        let pair = |i: usize, at: usize| {
            // SAFETY: the caller's promise.
            let (low, high) = unsafe {
                (
                    _mm_loadu_ps(rows.add(i * from + at)),
                    _mm_loadu_ps(rows.add((i + 4) * from + at)),
                )
            };
            _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high)
        };
        for at in [0, 4] {
            let [r0, r1, r2, r3] = [pair(0, at), pair(1, at), pair(2, at), pair(3, at)];
            let (a, b) = (_mm256_unpacklo_ps(r0, r1), _mm256_unpackhi_ps(r0, r1));
            let (c, d) = (_mm256_unpacklo_ps(r2, r3), _mm256_unpackhi_ps(r2, r3));
            let columns = [
                _mm256_shuffle_ps::<0x44>(a, c),
                _mm256_shuffle_ps::<0xee>(a, c),
                _mm256_shuffle_ps::<0x44>(b, d),
                _mm256_shuffle_ps::<0xee>(b, d),
            ];
            for (i, column) in columns.into_iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { _mm256_storeu_ps(out.add((at + i) * to), column) }
            }
        }
    }

    lanes! {
        __m256, |body| {
            // SAFETY: the trait's contract.
            unsafe { avx2(body) }
        }, 8, 6 x 2, [1 2 3 4 5 6] x [1 2], [transpose],
        _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_fmadd_ps, _mm256_add_ps
    }
    lanes! {
        __m512, |body| {
            // SAFETY: the trait's contract.
            unsafe { avx512(body) }
        }, 16, 12 x 2, [1 2 3 4 5 6 7 8 9 10 11 12] x [1 2], [transpose],
        _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_fmadd_ps, _mm512_add_ps
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::*;
    use std::arch::aarch64::*;

    lanes! {
        float32x4_t, |body: B| body.run(Ieee::FMA), 4, 8 x 3, [1 2 3 4 5 6 7 8] x [1 2 3], [],
        vdupq_n_f32, vld1q_f32, vst1q_f32, |a, b, c| vfmaq_f32(c, a, b), vaddq_f32
    }
}
