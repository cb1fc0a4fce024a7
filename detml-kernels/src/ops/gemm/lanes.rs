//! The vectors that CPU micro-kernels are written in.
//!
//! Each operation is that of [`Ieee`] in every lane: the instructions are IEEE-754's fused
//! multiply-add and addition (`N1`).

use super::cpu::Micro;
use super::cpu::kernel::{Chains, Kernel};
use crate::device::Loop;
#[cfg(target_arch = "x86_64")]
use crate::device::simd::{avx2, avx512};
use crate::ieee::Ieee;
use std::marker::PhantomData;

/// A vector of binary32 in registers, and the shapes of the micro-kernels written in it.
///
/// The vectors of an instruction set may only be used where the CPU has it, and all but
/// [`dispatch`](Self::dispatch) only inside of that.
pub(in crate::ops) trait Lanes: Copy {
    /// Lanes.
    const WIDTH: usize;
    /// Rows of the largest micro-kernel.
    const ROWS: usize;
    /// Vectors in a row of a micro-kernel of any number of rows.
    const VECTORS: usize;
    /// Up to so many rows, micro-kernels may have [`WIDE`](Self::WIDE) vectors in a row.
    const FEW: usize;
    /// Vectors in a row of the widest micro-kernel.
    const WIDE: usize;

    /// Runs a loop compiled for the instruction set.
    fn dispatch<B: Loop>(body: B) -> B::Output;
    /// `x` in every lane.
    fn splat(x: f32) -> Self;
    /// [`WIDTH`](Self::WIDTH) elements.
    ///
    /// # Safety
    /// They can be read.
    unsafe fn load_at(x: *const f32) -> Self;
    /// Writes [`WIDTH`](Self::WIDTH) elements.
    ///
    /// # Safety
    /// They can be written.
    unsafe fn store_at(self, x: *mut f32);
    /// `self * b + c`, rounded once.
    fn fma(self, b: Self, c: Self, ieee: Ieee) -> Self;
    /// `self + b`.
    fn add(self, b: Self, ieee: Ieee) -> Self;
    /// `self * b`.
    fn mul(self, b: Self, ieee: Ieee) -> Self;
    /// The one NaN in place of every NaN (`N11`).
    fn canonical(self, ieee: Ieee) -> Self;

    /// `n` elements, the other lanes zeros.
    ///
    /// # Safety
    /// They can be read.
    #[inline(always)]
    unsafe fn load_part(x: *const f32, n: usize) -> Self {
        let mut all = [0.0; 16];
        for i in 0..n.min(Self::WIDTH) {
            // SAFETY: the caller's promise.
            all[i] = unsafe { *x.add(i) };
        }
        // SAFETY: no vector is longer.
        unsafe { Self::load_at(all.as_ptr()) }
    }
    /// Writes the first `n` lanes.
    ///
    /// # Safety
    /// The elements can be written.
    #[inline(always)]
    unsafe fn store_part(self, x: *mut f32, n: usize) {
        let mut all = [0.0; 16];
        // SAFETY: no vector is longer.
        unsafe { self.store_at(all.as_mut_ptr()) };
        for i in 0..n.min(Self::WIDTH) {
            // SAFETY: the caller's promise.
            unsafe { *x.add(i) = all[i] };
        }
    }
    /// Writes 8 elements of each of 8 rows as 8 columns, `to` apart, in ascending order.
    ///
    /// # Safety
    /// They can be read and written.
    #[inline(always)]
    unsafe fn turn(rows: [*const f32; 8], at: usize, out: *mut f32, to: usize) {
        for i in 0..8 {
            for (j, row) in rows.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { *out.add(i * to + j) = *row.add(at + i) }
            }
        }
    }
    /// Four elements of each of [`WIDTH`](Self::WIDTH) rows, `lane` apart, as four vectors.
    ///
    /// # Safety
    /// They can be read.
    #[inline(always)]
    unsafe fn turned(rows: *const f32, lane: usize) -> [Self; 4] {
        let mut all = [[0.0f32; 16]; 4];
        for i in 0..Self::WIDTH {
            for t in 0..4 {
                // SAFETY: the caller's promise.
                all[t][i] = unsafe { *rows.add(i * lane + t) };
            }
        }
        let mut out = [Self::splat(0.0); 4];
        for t in 0..4 {
            // SAFETY: no vector is longer.
            out[t] = unsafe { Self::load_at(all[t].as_ptr()) };
        }
        out
    }
    /// The first [`WIDTH`](Self::WIDTH) elements.
    #[inline(always)]
    fn load(x: &[f32]) -> Self {
        let x = &x[..Self::WIDTH];
        // SAFETY: the slice holds the vector.
        unsafe { Self::load_at(x.as_ptr()) }
    }
    /// Writes the first [`WIDTH`](Self::WIDTH) elements.
    #[inline(always)]
    fn store(self, x: &mut [f32]) {
        let x = &mut x[..Self::WIDTH];
        // SAFETY: as in `load`.
        unsafe { self.store_at(x.as_mut_ptr()) }
    }
    /// Writes 8 elements of each of 8 rows, `from` apart, as 8 columns, `to` apart.
    #[inline(always)]
    fn transpose(rows: &[f32], from: usize, out: &mut [f32], to: usize) {
        let rows = &rows[..7 * from + 8];
        let out = &mut out[..7 * to + 8];
        let rows = std::array::from_fn(|i| rows[i * from..].as_ptr());
        // SAFETY: the slices hold every row and column.
        unsafe { Self::turn(rows, 0, out.as_mut_ptr(), to) }
    }
    /// Runs a micro-kernel of at most [`ROWS`](Self::ROWS) rows and
    /// [`VECTORS`](Self::VECTORS) vectors, or [`FEW`](Self::FEW) and [`WIDE`](Self::WIDE).
    fn chains(chains: Chains<'_>);
    /// The same, from packed operands to packed totals.
    #[inline(always)]
    fn micro(micro: Micro<'_>) {
        Self::chains(micro.chains(Self::ROWS, Self::WIDTH, Self::WIDTH * Self::VECTORS));
    }
}

/// Asks for the line around `x` to be brought near; any address will do.
#[inline(always)]
pub(in crate::ops) fn prefetch(x: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which SSE, part of every x86-64, has; it does not fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(x.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = x;
}

/// Picks the micro-kernel of the given rows and vectors.
macro_rules! micro {
    ($($rows:tt x $vectors:tt),+) => {
        fn chains(chains: Chains<'_>) {
            $(micro!(@ chains, $rows, $vectors);)+
            unreachable!("a micro-kernel of {} x {}", chains.rows, chains.vectors)
        }
    };
    (@ $micro:ident, $rows:tt, [$($vectors:literal)+]) => {
        match $micro.vectors {
            $($vectors => micro!(@@ $micro, $rows, $vectors),)+
            _ => {}
        }
    };
    (@@ $micro:ident, [$($rows:literal)+], $vectors:literal) => {
        match $micro.rows {
            $($rows => return Self::dispatch(Kernel::<Self, $rows, $vectors> {
                chains: $micro,
                lanes: PhantomData,
            }),)+
            _ => {}
        }
    };
}

/// Four lanes for any CPU.
impl Lanes for [f32; 4] {
    const WIDTH: usize = 4;
    const ROWS: usize = 4;
    const VECTORS: usize = 1;
    const FEW: usize = 0;
    const WIDE: usize = 1;

    #[inline(always)]
    fn dispatch<B: Loop>(body: B) -> B::Output {
        body.run(Ieee::PLAIN)
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        [x; 4]
    }

    #[inline(always)]
    unsafe fn load_at(x: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { x.cast::<Self>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store_at(self, x: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { x.cast::<Self>().write_unaligned(self) }
    }

    #[inline(always)]
    fn fma(self, b: Self, c: Self, ieee: Ieee) -> Self {
        std::array::from_fn(|i| ieee.fma(self[i], b[i], c[i]))
    }

    #[inline(always)]
    fn add(self, b: Self, ieee: Ieee) -> Self {
        std::array::from_fn(|i| ieee.add(self[i], b[i]))
    }

    #[inline(always)]
    fn mul(self, b: Self, ieee: Ieee) -> Self {
        std::array::from_fn(|i| ieee.mul(self[i], b[i]))
    }

    #[inline(always)]
    fn canonical(self, ieee: Ieee) -> Self {
        std::array::from_fn(|i| ieee.canonical(self[i]))
    }

    micro! { [1 2 3 4] x [1] }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! lanes {
    ($vector:ty, $dispatch:expr, $width:literal, $rows:literal x $vectors:literal,
     $few:literal x $wide:literal, [$($kernels:tt)+], { $($own:tt)* },
     $splat:ident, $load:ident, $store:ident, $fma:expr, $add:ident, $mul:ident, $nan:expr) => {
        impl Lanes for $vector {
            const WIDTH: usize = $width;
            const ROWS: usize = $rows;
            const VECTORS: usize = $vectors;
            const FEW: usize = $few;
            const WIDE: usize = $wide;

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
            unsafe fn load_at(x: *const f32) -> Self {
                // SAFETY: as above, and the caller's promise.
                unsafe { $load(x) }
            }

            #[inline(always)]
            unsafe fn store_at(self, x: *mut f32) {
                // SAFETY: as in `load_at`.
                unsafe { $store(x, self) }
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

            #[inline(always)]
            fn mul(self, b: Self, _: Ieee) -> Self {
                // SAFETY: as in `splat`.
                unsafe { $mul(self, b) }
            }

            #[inline(always)]
            fn canonical(self, _: Ieee) -> Self {
                // SAFETY: as in `splat`.
                unsafe { $nan(self, $splat(f32::from_bits(0x7fc0_0000))) }
            }

            $($own)*

            micro! { $($kernels)+ }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    /// [`Lanes::turn`].
    #[inline]
    #[target_feature(enable = "avx")]
    unsafe fn turn(rows: [*const f32; 8], at: usize, out: *mut f32, to: usize) {
        // Halves of rows i and i + 4 side by side, so that no later step crosses the halves.
        let pair = |i: usize, at: usize| {
            // SAFETY: the caller's promise.
            let (low, high) = unsafe {
                (
                    _mm_loadu_ps(rows[i].add(at)),
                    _mm_loadu_ps(rows[i + 4].add(at)),
                )
            };
            _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high)
        };
        for half in [0, 4] {
            let [r0, r1, r2, r3] = std::array::from_fn(|i| pair(i, at + half));
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
                unsafe { _mm256_storeu_ps(out.add((half + i) * to), column) }
            }
        }
    }

    /// The first `n` of eight lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn first(n: usize) -> __m256i {
        let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lane)
    }

    /// Elements of each quarter of four vectors as those of four others.
    macro_rules! columns {
        ($x:expr, $low:ident, $high:ident, $shuffle:ident) => {{
            let [a, b, c, d] = $x;
            let (ab, ab_high) = ($low(a, b), $high(a, b));
            let (cd, cd_high) = ($low(c, d), $high(c, d));
            [
                $shuffle::<0x44>(ab, cd),
                $shuffle::<0xee>(ab, cd),
                $shuffle::<0x44>(ab_high, cd_high),
                $shuffle::<0xee>(ab_high, cd_high),
            ]
        }};
    }

    /// [`Lanes::turned`].
    #[inline]
    #[target_feature(enable = "avx")]
    unsafe fn turned8(rows: *const f32, lane: usize) -> [__m256; 4] {
        // SAFETY: the caller's promise.
        let row = |i: usize| unsafe { _mm_loadu_ps(rows.add(i * lane)) };
        let pair = |i| _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(row(i)), row(i + 4));
        let x = [pair(0), pair(1), pair(2), pair(3)];
        columns!(x, _mm256_unpacklo_ps, _mm256_unpackhi_ps, _mm256_shuffle_ps)
    }

    /// [`Lanes::turned`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn turned16(rows: *const f32, lane: usize) -> [__m512; 4] {
        // SAFETY: the caller's promise.
        let row = |i: usize| unsafe { _mm_loadu_ps(rows.add(i * lane)) };
        let four = |i| {
            let x = _mm512_castps128_ps512(row(i));
            let x = _mm512_insertf32x4::<1>(x, row(i + 4));
            let x = _mm512_insertf32x4::<2>(x, row(i + 8));
            _mm512_insertf32x4::<3>(x, row(i + 12))
        };
        let x = [four(0), four(1), four(2), four(3)];
        columns!(x, _mm512_unpacklo_ps, _mm512_unpackhi_ps, _mm512_shuffle_ps)
    }

    macro_rules! turned {
        ($turned:ident) => {
            #[inline(always)]
            unsafe fn turned(rows: *const f32, lane: usize) -> [Self; 4] {
                // SAFETY: as in `splat`, and the caller's promise.
                unsafe { $turned(rows, lane) }
            }

            #[inline(always)]
            unsafe fn turn(rows: [*const f32; 8], at: usize, out: *mut f32, to: usize) {
                // SAFETY: as in `splat`, and the caller's promise.
                unsafe { turn(rows, at, out, to) }
            }
        };
    }

    lanes! {
        __m256, |body| {
            // SAFETY: the trait's contract.
            unsafe { avx2(body) }
        }, 8, 6 x 2, 3 x 4, [[1 2 3 4 5 6] x [1 2], [1 2 3] x [3 4]],
        {
            #[inline(always)]
            unsafe fn load_part(x: *const f32, n: usize) -> Self {
                // SAFETY: as in `load_at`; masked lanes are not touched.
                unsafe { _mm256_maskload_ps(x, first(n)) }
            }

            #[inline(always)]
            unsafe fn store_part(self, x: *mut f32, n: usize) {
                // SAFETY: as in `load_part`.
                unsafe { _mm256_maskstore_ps(x, first(n), self) }
            }

            turned!(turned8);
        },
        _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_fmadd_ps, _mm256_add_ps,
        _mm256_mul_ps,
        |x, nan| _mm256_blendv_ps(x, nan, _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x))
    }
    lanes! {
        __m512, |body| {
            // SAFETY: the trait's contract.
            unsafe { avx512(body) }
        }, 16, 12 x 2, 6 x 4, [[1 2 3 4 5 6 7 8 9 10 11 12] x [1 2], [1 2 3 4 5 6] x [3 4]],
        {
            #[inline(always)]
            unsafe fn load_part(x: *const f32, n: usize) -> Self {
                let mask = ((1u32 << n.min(16)) - 1) as u16;
                // SAFETY: as in `load_at`; masked lanes are not touched.
                unsafe { _mm512_maskz_loadu_ps(mask, x) }
            }

            #[inline(always)]
            unsafe fn store_part(self, x: *mut f32, n: usize) {
                let mask = ((1u32 << n.min(16)) - 1) as u16;
                // SAFETY: as in `load_part`.
                unsafe { _mm512_mask_storeu_ps(x, mask, self) }
            }

            turned!(turned16);
        },
        _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_fmadd_ps, _mm512_add_ps,
        _mm512_mul_ps,
        |x, nan| _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x), nan)
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::*;
    use std::arch::aarch64::*;

    lanes! {
        float32x4_t, |body: B| body.run(Ieee::FMA), 4, 8 x 3, 0 x 3,
        [[1 2 3 4 5 6 7 8] x [1 2 3]], {},
        vdupq_n_f32, vld1q_f32, vst1q_f32, |a, b, c| vfmaq_f32(c, a, b), vaddq_f32, vmulq_f32,
        |x, nan| vbslq_f32(vceqq_f32(x, x), x, nan)
    }
}
