//! Counter-keyed random numbers (`N12`): every draw is a function of (seed, stream, element
//! index) alone, the same on the host and in kernels.
//!
//! The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as
//! easy as 1, 2, 3", SC 2011), with the layout of [`detml_core::Philox4x32`]: block `b` of a
//! stream is `philox(counter = [b low, b high, stream, attempt], key = [seed low, seed high])`
//! with `attempt` 0, and element `i` of its endless row of words is word `i % 4` of block
//! `i / 4`. Uniform, normal and Bernoulli draws take element `i`'s word or words of that row;
//! integers below `n`, which may reject words, take block `i` for themselves and go on with
//! attempt 1, 2, ... of it. So two kinds of draws under one seed need two streams.
//!
//! [`Philox`] draws single elements in `#[cube]` code; the functions on ranges of elements run
//! on the host. Permutations and samples without replacement order indices by their words:
//! [`Philox4x32::permutation`] is what a stable sort of [`words`] gives on any device. Integers
//! below the number of rows are a sample with replacement.

use crate::device::{Loop, Simd, zeros};
use crate::ieee::Ieee;
use crate::{math, prim};
use cubecl::prelude::*;
use detml_core::{Philox4x32, Result};

/// The four words of one block.
#[derive(CubeType, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Word 0.
    pub w0: u32,
    /// Word 1.
    pub w1: u32,
    /// Word 2.
    pub w2: u32,
    /// Word 3.
    pub w3: u32,
}

/// Two independent draws.
#[derive(CubeType, Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The even element.
    pub first: f32,
    /// The odd element.
    pub second: f32,
}

/// The draws of one (seed, stream), by element index.
///
/// Indices are two words, `low` and `high`.
#[derive(CubeType, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Philox {
    seed_low: u32,
    seed_high: u32,
    stream: u32,
}

/// Ten rounds of Philox4x32 of counter `c` under the key (`k0`, `k1`).
#[cube]
#[inline(always)]
pub fn philox4x32_10(c: Block, k0: u32, k1: u32) -> Block {
    let mut c0 = c.w0;
    let mut c1 = c.w1;
    let mut c2 = c.w2;
    let mut c3 = c.w3;
    #[unroll]
    for round in 0..10u32 {
        // The key is raised by the Weyl constants from round to round.
        let r0 = prim::wrapping_add(k0, prim::wrapping_mul(0x9e37_79b9u32, round));
        let r1 = prim::wrapping_add(k1, prim::wrapping_mul(0xbb67_ae85u32, round));
        let h0 = prim::mul_hi(0xd251_1f53u32, c0);
        let l0 = prim::wrapping_mul(0xd251_1f53u32, c0);
        let h1 = prim::mul_hi(0xcd9e_8d57u32, c2);
        let l1 = prim::wrapping_mul(0xcd9e_8d57u32, c2);
        c0 = h1 ^ c1 ^ r0;
        c1 = l1;
        c2 = h0 ^ c3 ^ r1;
        c3 = l0;
    }
    Block {
        w0: c0,
        w1: c1,
        w2: c2,
        w3: c3,
    }
}

impl From<Philox4x32> for Philox {
    fn from(draws: Philox4x32) -> Self {
        let seed = draws.seed().0;
        Self {
            seed_low: seed as u32,
            seed_high: (seed >> 32) as u32,
            stream: draws.stream(),
        }
    }
}

#[cube]
impl Philox {
    /// The draws of `stream` under the seed of two words.
    #[inline(always)]
    pub fn from_words(seed_low: u32, seed_high: u32, stream: u32) -> Philox {
        Philox {
            seed_low,
            seed_high,
            stream,
        }
    }

    /// Block `high * 2^32 + low`; `attempt` is 0 but for draws that reject words.
    #[inline(always)]
    pub fn block(&self, low: u32, high: u32, attempt: u32) -> Block {
        let counter = Block {
            w0: low,
            w1: high,
            w2: self.stream,
            w3: attempt,
        };
        philox4x32_10(counter, self.seed_low, self.seed_high)
    }

    /// The block that holds the word of an element.
    #[inline(always)]
    fn block_of(&self, low: u32, high: u32) -> Block {
        self.block((low >> 2u32) | (high << 30u32), high >> 2u32, 0u32)
    }

    /// An element of the endless row of words.
    #[inline(always)]
    pub fn word(&self, low: u32, high: u32) -> u32 {
        let b = self.block_of(low, high);
        let even = (low & 1u32) == 0u32;
        let first = prim::select_u32(even, b.w0, b.w1);
        let second = prim::select_u32(even, b.w2, b.w3);
        prim::select_u32((low & 2u32) == 0u32, first, second)
    }

    /// A number in `[0, 1)`, a multiple of 2^-24.
    #[inline(always)]
    pub fn uniform(&self, ieee: &Ieee, low: u32, high: u32) -> f32 {
        uniform_of(ieee, self.word(low, high))
    }

    /// A number in `(0, 1]`, a multiple of 2^-24.
    #[inline(always)]
    pub fn uniform_positive(&self, ieee: &Ieee, low: u32, high: u32) -> f32 {
        uniform_positive_of(ieee, self.word(low, high))
    }

    /// A standard normal number, see [`normal_pair()`]; elements `2k` and `2k + 1` come from their
    /// two words together.
    #[inline(always)]
    pub fn normal(&self, ieee: &Ieee, low: u32, high: u32) -> f32 {
        let b = self.block_of(low, high);
        let front = (low & 2u32) == 0u32;
        let w = prim::select_u32(front, b.w0, b.w2);
        let v = prim::select_u32(front, b.w1, b.w3);
        let pair = normal_pair(ieee, w, v);
        prim::select((low & 1u32) == 0u32, pair.first, pair.second)
    }

    /// True with probability `p` rounded down to a multiple of 2^-32; never for `p` of 0, below,
    /// or NaN, always from 1 on.
    #[inline(always)]
    pub fn bernoulli(&self, ieee: &Ieee, p: f32, low: u32, high: u32) -> bool {
        bernoulli_of(ieee, p, self.word(low, high))
    }

    /// An integer in `0..n`, each equally likely; 0 for `n` of 0.
    ///
    /// Lemire's multiply-and-reject ("Fast random integer generation in an interval", 2019): the
    /// first of the four words of the element's own block whose 64-bit product with `n` has a low
    /// word of at least `2^32 mod n` gives the product's high word; if none has, attempt 1 of the
    /// block follows, then 2, up to 63 (a chance below 2^-256), after which the last word counts.
    #[inline(always)]
    pub fn below(&self, n: u32, low: u32, high: u32) -> u32 {
        let n = prim::select_u32(n == 0u32, 1u32, n);
        let excess = prim::wrapping_sub(0u32, n) % n;
        let mut result = 0u32;
        let mut attempt = 0u32;
        while attempt < 64u32 {
            let b = self.block(low, high, attempt);
            let a0 = prim::wrapping_mul(b.w0, n) >= excess;
            let a1 = prim::wrapping_mul(b.w1, n) >= excess;
            let a2 = prim::wrapping_mul(b.w2, n) >= excess;
            let a3 = prim::wrapping_mul(b.w3, n) >= excess;
            let w = prim::select_u32(a2, b.w2, b.w3);
            let w = prim::select_u32(a1, b.w1, w);
            let w = prim::select_u32(a0, b.w0, w);
            result = prim::mul_hi(w, n);
            attempt = prim::select_u32(a0 || a1 || a2 || a3, 64u32, attempt + 1u32);
        }
        result
    }
}

/// The number in `[0, 1)` of a word: its upper 24 bits times 2^-24.
#[cube]
#[inline(always)]
pub fn uniform_of(ieee: &Ieee, word: u32) -> f32 {
    // Exact, and so is the product.
    let k = ieee.from_u32(word >> 8u32);
    ieee.mul(k, prim::from_bits(0x3380_0000u32))
}

/// The number in `(0, 1]` of a word: its upper 24 bits plus 1, times 2^-24.
#[cube]
#[inline(always)]
pub fn uniform_positive_of(ieee: &Ieee, word: u32) -> f32 {
    let k = ieee.from_u32((word >> 8u32) + 1u32);
    ieee.mul(k, prim::from_bits(0x3380_0000u32))
}

/// Whether a word says yes with probability `p`, see [`Philox::bernoulli`].
#[cube]
#[inline(always)]
pub fn bernoulli_of(ieee: &Ieee, p: f32, word: u32) -> bool {
    let limit = ieee.to_u32(ieee.scale(p, 32i32));
    word < limit || ieee.ge(p, 1.0f32)
}

/// Two standard normal numbers of two words, by Box and Muller: radius `sqrt(-2 ln u)` with
/// `u = (w | 1) * 2^-32` rounded to binary32, angle `v * 2^-32` of a turn; cosine, then sine.
///
/// Magnitudes reach 6.66. Against the same formula without further rounding the error is below
/// 8 units in the last place (7.2 is the worst seen).
#[cube]
#[inline(always)]
pub fn normal_pair(ieee: &Ieee, w: u32, v: u32) -> Pair {
    let u = ieee.mul(ieee.from_u32(w | 1u32), prim::from_bits(0x2f80_0000u32));
    let l = ieee.abs(math::ln(ieee, u));
    let radius = ieee.sqrt(ieee.add(l, l));
    let turn = turn(ieee, v);
    Pair {
        first: ieee.mul(radius, turn.first),
        second: ieee.mul(radius, turn.second),
    }
}

/// Cosine and sine of `v * 2^-32` turns.
#[cube]
#[inline(always)]
fn turn(ieee: &Ieee, v: u32) -> Pair {
    // The nearest quarter turn, and what is left of it: an eighth of a turn at most.
    let quarter = prim::wrapping_add(v, 0x2000_0000u32) >> 30u32;
    let left = prim::as_i32(prim::wrapping_sub(v, quarter << 30u32));
    // 2 pi * 2^-32.
    let x = ieee.mul(ieee.from_i32(left), prim::from_bits(0x30c9_0fdbu32));
    // Taylor's series: the first term left out is below 2^-29 of the result.
    let z = ieee.mul(x, x);
    let s = ieee.fma(
        z,
        prim::from_bits(0x3638_ef1du32),
        prim::from_bits(0xb950_0d01u32),
    );
    let s = ieee.fma(z, s, prim::from_bits(0x3c08_8889u32));
    let s = ieee.fma(z, s, prim::from_bits(0xbe2a_aaabu32));
    let sine = ieee.fma(ieee.mul(x, z), s, x);
    let c = ieee.fma(
        z,
        prim::from_bits(0xb493_f27eu32),
        prim::from_bits(0x37d0_0d01u32),
    );
    let c = ieee.fma(z, c, prim::from_bits(0xbab6_0b61u32));
    let c = ieee.fma(z, c, prim::from_bits(0x3d2a_aaabu32));
    let c = ieee.fma(z, c, prim::from_bits(0xbf00_0000u32));
    let cosine = ieee.fma(z, c, 1.0f32);
    // A quarter turn takes (cos, sin) to (-sin, cos).
    let odd = (quarter & 1u32) != 0u32;
    let first = prim::bits(prim::select(odd, sine, cosine));
    let second = prim::bits(prim::select(odd, cosine, sine));
    let first_sign = ((quarter ^ (quarter >> 1u32)) & 1u32) << 31u32;
    let second_sign = (quarter >> 1u32) << 31u32;
    Pair {
        first: prim::from_bits(first ^ first_sign),
        second: prim::from_bits(second ^ second_sign),
    }
}

/// Declares draws of elements `first..first + n`, each a function of its word.
macro_rules! rows {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty)?) -> $to:ty, |$m:ident, $b:ident| $body:expr) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// `Error::InvalidParameter` if `DETML_SIMD` forces a level that this CPU lacks;
        /// `Error::OutOfMemory`.
        pub fn $name(draws: Philox4x32, first: u64, n: usize $(, $arg: $ty)?) -> Result<Vec<$to>> {
            struct Row<'a> {
                draws: Philox,
                first: u64,
                out: &'a mut [$to],
                $($arg: $ty,)?
            }
            impl Loop for Row<'_> {
                type Output = ();
                #[inline(always)]
                fn run(self, $m: Ieee) {
                    let Row { draws, first, out, $($arg)? } = self;
                    for (i, four) in (0u64..).zip(out.chunks_exact_mut(4)) {
                        let i = (first / 4).wrapping_add(i);
                        let $b = draws.block(i as u32, (i >> 32) as u32, 0);
                        four.copy_from_slice(&$body);
                    }
                }
            }
            let simd = Simd::current()?;
            // Whole blocks, then the ends are cut off.
            let skip = (first % 4) as usize;
            let blocks = n.saturating_add(skip).div_ceil(4);
            let mut all = zeros::<$to>(blocks.saturating_mul(4))?;
            let out = &mut all[..];
            simd.dispatch(Row { draws: draws.into(), first, out, $($arg)? });
            all.truncate(skip + n);
            all.drain(..skip);
            Ok(all)
        }
    };
}

rows! {
    /// Elements `first..first + n` of the row of words.
    words() -> u32, |_m, b| [b.w0, b.w1, b.w2, b.w3]
}
rows! {
    /// Elements `first..first + n` of the row of uniform numbers in `[0, 1)`, see
    /// [`Philox::uniform`].
    ///
    /// ```
    /// use detml_core::{Philox4x32, Seed};
    /// use detml_kernels::random;
    ///
    /// let draws = Philox4x32::named(Seed(7), "noise");
    /// let all = random::uniform(draws, 0, 1000)?;
    /// // Any part can be had alone.
    /// assert_eq!(random::uniform(draws, 990, 10)?, all[990..]);
    /// # Ok::<(), detml_core::Error>(())
    /// ```
    uniform() -> f32, |m, b| [
        uniform_of(&m, b.w0),
        uniform_of(&m, b.w1),
        uniform_of(&m, b.w2),
        uniform_of(&m, b.w3),
    ]
}
rows! {
    /// Elements `first..first + n` of the row of uniform numbers in `(0, 1]`, see
    /// [`Philox::uniform_positive`].
    uniform_positive() -> f32, |m, b| [
        uniform_positive_of(&m, b.w0),
        uniform_positive_of(&m, b.w1),
        uniform_positive_of(&m, b.w2),
        uniform_positive_of(&m, b.w3),
    ]
}
rows! {
    /// Elements `first..first + n` of the row of standard normal numbers, see
    /// [`Philox::normal`].
    normal() -> f32, |m, b| {
        let front = normal_pair(&m, b.w0, b.w1);
        let back = normal_pair(&m, b.w2, b.w3);
        [front.first, front.second, back.first, back.second]
    }
}
rows! {
    /// Elements `first..first + n` of the row of yes with probability `p`, see
    /// [`Philox::bernoulli`].
    bernoulli(p: f32) -> bool, |m, b| [
        bernoulli_of(&m, p, b.w0),
        bernoulli_of(&m, p, b.w1),
        bernoulli_of(&m, p, b.w2),
        bernoulli_of(&m, p, b.w3),
    ]
}

#[cfg(test)]
mod tests;
