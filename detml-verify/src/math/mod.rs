//! Worst errors of the elementary functions of [`detml_kernels::math`] (rule N4).
//!
//! The error of a result is its distance from the exact value, in units of the last place that
//! the exact value has in binary32: 2^(e-23) for a value whose rounding has exponent e, never less
//! than 2^-149. A correctly rounded function stays within 0.5. Values beyond the largest number
//! count as 2^128 where the other side is finite. A NaN other than 0x7FC00000, a NaN or a sign of
//! zero in the wrong place count as infinite errors.
//!
//! The exact values are binary64 ones of the `libm` crate and of compositions of its functions, good
//! to some 1e-15, which shifts an error by less than 1e-6; `tests/math.rs` holds them against
//! mpmath's values.

mod reference;

use detml_kernels::{ieee::Ieee, math};
use rayon::prelude::*;

/// One elementary function, the bound it states, and its exact values.
#[derive(Clone, Copy)]
pub struct MathFunction {
    name: &'static str,
    bound: f64,
    rule: Rule,
    kind: Kind,
}

/// What an error is measured in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Units in the last place of the result.
    Result,
    /// For negative arguments, of the result or of 1, whichever is larger.
    ResultOrOneBelowZero,
}

#[derive(Clone, Copy)]
enum Kind {
    One {
        run: fn(&[f32], &mut [f32]),
        exact: fn(f64) -> f64,
    },
    Two {
        run: fn(&[f32], &[u32], &mut [f32]),
        exact: fn(f64, u32) -> f64,
        /// Second arguments that leave neither zeros nor infinities, from a word and the first.
        second: fn(u32, f32) -> u32,
    },
}

/// How many arguments a sweep takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Every `stride`-th bit pattern (of one argument), 2^33 / `stride` pairs (of two), and the
    /// neighbourhoods of boundaries.
    Stride(u32),
    /// All 2^32 bit patterns; 2^31 pairs of two arguments.
    Exhaustive,
}

/// What a sweep found.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// The worst error, in units in the last place.
    pub worst: f64,
    /// Where: the bits of the argument or arguments.
    pub at: (u32, Option<u32>),
    /// How many arguments were tried.
    pub count: u64,
    /// How many of them had an error above the stated bound.
    pub above: u64,
    /// How many results were the correctly rounded ones.
    pub correct: u64,
}

impl Sweep {
    const EMPTY: Self = Self {
        worst: 0.0,
        at: (0, None),
        count: 0,
        above: 0,
        correct: 0,
    };

    /// Both together. The worse error stays; of equals, that at the lesser bits, so that the order
    /// of the parts doesn't show.
    fn merge(self, other: Self) -> Self {
        let other_is_worse =
            other.worst > self.worst || (other.worst == self.worst && other.at < self.at);
        let (worst, at) = if other_is_worse {
            (other.worst, other.at)
        } else {
            (self.worst, self.at)
        };
        Self {
            worst,
            at,
            count: self.count + other.count,
            above: self.above + other.above,
            correct: self.correct + other.correct,
        }
    }
}

/// Every function of one or two arguments that [`detml_kernels::math`] has.
pub fn functions() -> &'static [MathFunction] {
    FUNCTIONS
}

impl MathFunction {
    /// Its name in [`detml_kernels::math`].
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The worst error that its documentation allows, in units in the last place.
    pub fn bound(&self) -> f64 {
        self.bound
    }

    /// How many arguments it takes.
    pub fn arguments(&self) -> usize {
        match self.kind {
            Kind::One { .. } => 1,
            Kind::Two { .. } => 2,
        }
    }

    /// What its errors are measured in.
    pub fn rule(&self) -> &'static str {
        match self.rule {
            Rule::Result => "ulp of the result",
            Rule::ResultOrOneBelowZero => {
                "ulp of the result; for x < 0 of the result or 1, whichever is larger"
            }
        }
    }

    /// The function's own result. Of a function of one argument, `y` is ignored; `powi` takes the
    /// bits of its exponent.
    pub fn value(&self, x: f32, y: u32) -> f32 {
        let mut result = [0.0];
        match self.kind {
            Kind::One { run, .. } => run(&[x], &mut result),
            Kind::Two { run, .. } => run(&[x], &[y], &mut result),
        }
        result[0]
    }

    /// The exact value, to binary64.
    pub fn exact(&self, x: f32, y: u32) -> f64 {
        match self.kind {
            Kind::One { exact, .. } => exact(f64::from(x)),
            Kind::Two { exact, .. } => exact(f64::from(x), y),
        }
    }

    /// The error of `got` for the argument `x` where `exact` is right.
    pub fn error(&self, x: f32, got: f32, exact: f64) -> f64 {
        let least = if self.rule == Rule::ResultOrOneBelowZero && x < 0.0 {
            1.0
        } else {
            0.0
        };
        error(got, exact, least)
    }

    /// Tries many arguments on the threads of the rayon pool that it is called in.
    pub fn sweep(&self, effort: Effort) -> Sweep {
        match self.kind {
            Kind::One { run, exact, .. } => self.sweep_one(run, exact, effort),
            Kind::Two {
                run, exact, second, ..
            } => self.sweep_two(run, exact, second, effort),
        }
    }

    fn sweep_one(
        &self,
        run: fn(&[f32], &mut [f32]),
        exact: fn(f64) -> f64,
        effort: Effort,
    ) -> Sweep {
        let block = |xs: &[f32]| {
            let mut ys = vec![0.0; xs.len()];
            run(xs, &mut ys);
            let mut found = Sweep::EMPTY;
            for (x, y) in xs.iter().zip(&ys) {
                let exact = exact(f64::from(*x));
                self.count(&mut found, *x, None, *y, exact);
            }
            found
        };
        let stride = match effort {
            Effort::Stride(stride) => u64::from(stride.max(1)),
            Effort::Exhaustive => 1,
        };
        let patterns = (1u64 << 32).div_ceil(stride);
        let all = (0..patterns.div_ceil(BLOCK))
            .into_par_iter()
            .map(|b| {
                let indices = b * BLOCK..((b + 1) * BLOCK).min(patterns);
                let xs: Vec<f32> = indices
                    .map(|i| f32::from_bits((i * stride) as u32))
                    .collect();
                block(&xs)
            })
            .reduce(|| Sweep::EMPTY, Sweep::merge);
        if stride == 1 {
            return all;
        }
        let near = boundaries();
        near.par_chunks(BLOCK as usize)
            .map(block)
            .reduce(|| Sweep::EMPTY, Sweep::merge)
            .merge(all)
    }

    fn sweep_two(
        &self,
        run: fn(&[f32], &[u32], &mut [f32]),
        exact: fn(f64, u32) -> f64,
        second: fn(u32, f32) -> u32,
        effort: Effort,
    ) -> Sweep {
        let block = |xs: &[f32], ys: &[u32]| {
            let mut results = vec![0.0; xs.len()];
            run(xs, ys, &mut results);
            let mut found = Sweep::EMPTY;
            for ((x, y), r) in xs.iter().zip(ys).zip(&results) {
                let exact = exact(f64::from(*x), *y);
                self.count(&mut found, *x, Some(*y), *r, exact);
            }
            found
        };
        let pairs = match effort {
            Effort::Stride(stride) => (1u64 << 33) / u64::from(stride.max(4)),
            Effort::Exhaustive => 1u64 << 31,
        };
        let random = (0..pairs.div_ceil(BLOCK))
            .into_par_iter()
            .map(|b| {
                let indices = b * BLOCK..((b + 1) * BLOCK).min(pairs);
                let (xs, ys): (Vec<f32>, Vec<u32>) = indices
                    .map(|i| {
                        let word = mix(i);
                        let x = first((word >> 32) as u32, i);
                        // One of eight second arguments is any bit pattern.
                        let y = match i & 7 {
                            0 => word as u32,
                            _ => second(word as u32, x),
                        };
                        (x, y)
                    })
                    .unzip();
                block(&xs, &ys)
            })
            .reduce(|| Sweep::EMPTY, Sweep::merge);
        // Special values with special values.
        let few = few_boundaries();
        few.par_iter()
            .map(|x| {
                let xs = vec![*x; few.len()];
                let ys: Vec<u32> = few.iter().map(|y| y.to_bits()).collect();
                block(&xs, &ys)
            })
            .reduce(|| Sweep::EMPTY, Sweep::merge)
            .merge(random)
    }

    fn count(&self, found: &mut Sweep, x: f32, y: Option<u32>, got: f32, exact: f64) {
        let error = self.error(x, got, exact);
        found.count += 1;
        found.above += u64::from(error > self.bound);
        found.correct += u64::from(error <= 0.5);
        let at = (x.to_bits(), y);
        if error > found.worst || (error == found.worst && at < found.at) {
            found.worst = error;
            found.at = at;
        }
    }
}

const BLOCK: u64 = 1 << 14;

/// See the module: the distance of `got` from `exact` in units of the last place of `exact`, or of
/// `least` if that is larger.
fn error(got: f32, exact: f64, least: f64) -> f64 {
    if exact.is_nan() || got.is_nan() {
        let right = exact.is_nan() && got.to_bits() == 0x7fc0_0000;
        return if right { 0.0 } else { f64::INFINITY };
    }
    if got == 0.0 && got.is_sign_negative() != exact.is_sign_negative() {
        return f64::INFINITY;
    }
    let rounded = (exact as f32).abs().max(least as f32);
    if f64::from(got) == exact {
        return 0.0;
    }
    // An infinity on one side only.
    let bounded = |v: f64| v.clamp(-BEYOND, BEYOND);
    let exponent = ((rounded.to_bits() >> 23) as i32).clamp(1, 254) - 127;
    (bounded(f64::from(got)) - bounded(exact)).abs() / power_of_two(exponent - 23)
}

/// 2^128.
const BEYOND: f64 = 340_282_366_920_938_463_463_374_607_431_768_211_456.0;

fn power_of_two(e: i32) -> f64 {
    f64::from_bits(((1023 + e) as u64) << 52)
}

/// A word from a counter (SplitMix64).
fn mix(counter: u64) -> u64 {
    let z = counter.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A first argument: any bit pattern, or a number near 1 by up to a factor of 4 or of 1 + 2^-10.
fn first(word: u32, i: u64) -> f32 {
    f32::from_bits(match (i >> 3) & 3 {
        0 => word,
        1 => 0x3f80_0000 + (word >> 14) - (1 << 17),
        _ => 0x3e80_0000 + (word >> 7) % 0x0200_0000,
    })
}

/// Arguments around which a piece of a function may begin or end.
const LANDMARKS: [f64; 58] = [
    0.125,
    0.207_106_78,
    0.25,
    0.333_333_33,
    0.346_573_59,
    0.414_213_56,
    0.461_632_14,
    0.5,
    0.666_666_67,
    0.693_147_18,
    0.707_106_78,
    0.785_398_16,
    0.8814,
    1.0,
    1.25,
    1.333_333_3,
    1.414_213_6,
    1.461_632_1,
    1.570_796_3,
    1.875,
    2.0,
    2.356_194_5,
    2.5,
    3.0,
    3.141_592_7,
    4.0,
    4.712_389,
    5.0,
    6.283_185_3,
    8.0,
    9.0,
    10.0,
    10.5,
    12.0,
    14.5,
    15.0,
    17.33,
    20.0,
    32.0,
    37.93,
    38.53,
    45.0,
    45.15,
    64.0,
    87.34,
    88.72,
    89.42,
    92.0,
    103.97,
    104.0,
    112.0,
    126.0,
    128.0,
    149.0,
    150.0,
    160.0,
    8_388_608.0,
    4.085_003_4e36,
];

/// Both ends of every binade, and the neighbourhoods of the landmarks, of both signs.
fn boundaries() -> Vec<f32> {
    let mut all = Vec::new();
    for exponent in 0u32..=255 {
        for step in 0..32 {
            all.push((exponent << 23) + step);
            all.push((exponent << 23) + 0x7f_ffff - step);
        }
    }
    for x in LANDMARKS {
        let bits = (x as f32).to_bits();
        all.extend(bits - 512..=bits + 512);
    }
    all.iter()
        .flat_map(|b| [f32::from_bits(*b), f32::from_bits(*b | 1 << 31)])
        .collect()
}

fn few_boundaries() -> Vec<f32> {
    let mut all = Vec::new();
    for exponent in (0u32..=255).filter(|e| {
        *e < 3
            || *e > 252
            || e.is_multiple_of(25)
            || (124..132).contains(e)
            || (148..153).contains(e)
    }) {
        for fraction in [0, 1, 2, 0x40_0000, 0x7f_fffe, 0x7f_ffff] {
            all.push((exponent << 23) + fraction);
        }
    }
    all.iter()
        .flat_map(|b| [f32::from_bits(*b), f32::from_bits(*b | 1 << 31)])
        .collect()
}

/// A loop over a function, with the fused instructions that the CPU has.
macro_rules! run {
    ($xs:ident, $ys:ident, |$ieee:ident, $at:ident| $value:expr) => {{
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            #[target_feature(enable = "avx2,fma")]
            fn fused(xs: &[f32], ys: Rest<'_>) {
                let $ieee = &Ieee::FMA;
                run!(@loop xs, ys, $at, $value);
            }
            // SAFETY: the CPU has both features.
            return unsafe { fused($xs, $ys) };
        }
        #[cfg(target_arch = "aarch64")]
        let $ieee = &Ieee::FMA;
        #[cfg(not(target_arch = "aarch64"))]
        let $ieee = &Ieee::PLAIN;
        run!(@loop $xs, $ys, $at, $value);
    }};
    (@loop $xs:ident, $ys:ident, $at:ident, $value:expr) => {{
        let (seconds, results) = $ys;
        let n = $xs.len().min(results.len());
        let _ = seconds;
        for i in 0..n {
            let $at = ($xs[i], seconds.get(i).copied().unwrap_or(0));
            results[i] = $value;
        }
    }};
}

type Rest<'a> = (&'a [u32], &'a mut [f32]);

macro_rules! one {
    ($name:ident, $bound:literal) => {
        one!($name, $bound, Rule::Result)
    };
    ($name:ident, $bound:literal, $rule:expr) => {
        MathFunction {
            name: stringify!($name),
            bound: $bound,
            rule: $rule,
            kind: Kind::One {
                run: {
                    fn run(xs: &[f32], ys: &mut [f32]) {
                        let rest: Rest<'_> = (&[], ys);
                        run!(xs, rest, |ieee, at| math::$name(ieee, at.0))
                    }
                    run
                },
                exact: reference::$name,
            },
        }
    };
}

macro_rules! two {
    ($name:ident, $bound:literal, |$word:ident, $x:ident| $second:expr, |$y:ident| $convert:expr) => {
        MathFunction {
            name: stringify!($name),
            bound: $bound,
            rule: Rule::Result,
            kind: Kind::Two {
                run: {
                    fn run(xs: &[f32], seconds: &[u32], ys: &mut [f32]) {
                        let rest: Rest<'_> = (seconds, ys);
                        run!(xs, rest, |ieee, at| {
                            let $y = at.1;
                            math::$name(ieee, at.0, $convert)
                        })
                    }
                    run
                },
                exact: |x, $y| reference::$name(x, $convert.into()),
                second: |$word, $x| $second,
            },
        }
    };
}

/// An exponent for which x^y is neither 0 nor infinite, by the word's choice of the result.
fn exponent_for(word: u32, x: f32) -> f64 {
    let log = libm::log2(f64::from(x.abs()));
    let target = f64::from(word) / f64::from(u32::MAX) * 280.0 - 150.0;
    if log == 0.0 || !log.is_finite() {
        target
    } else {
        target / log
    }
}

static FUNCTIONS: &[MathFunction] = &[
    one!(exp, 1.0),
    one!(exp2, 1.0),
    one!(exp10, 1.0),
    one!(expm1, 1.0),
    one!(ln, 1.0),
    one!(log1p, 1.0),
    one!(log2, 1.0),
    one!(log10, 1.0),
    two!(
        pow,
        1.0,
        |word, x| {
            let y = exponent_for(word, x) as f32;
            // Negative bases need integers.
            (if x < 0.0 { y.round() } else { y }).to_bits()
        },
        |y| f32::from_bits(y)
    ),
    two!(
        powi,
        1.0,
        |word, x| (exponent_for(word, x) as i32) as u32,
        |y| y as i32
    ),
    one!(sin, 1.0),
    one!(cos, 1.0),
    one!(tan, 1.0),
    one!(asin, 1.0),
    one!(acos, 1.0),
    one!(atan, 1.0),
    two!(
        atan2,
        1.0,
        |word, x| {
            // A few binades either way.
            let exponent = (x.to_bits() >> 23 & 255) as i32 + (word >> 20 & 15) as i32 - 8;
            (word & 0x807f_ffff) | (exponent.clamp(0, 254) as u32) << 23
        },
        |y| f32::from_bits(y)
    ),
    one!(sinh, 1.0),
    one!(cosh, 1.0),
    one!(tanh, 1.0),
    one!(sigmoid, 1.0),
    one!(log_sigmoid, 1.0),
    one!(softplus, 1.0),
    one!(silu, 1.0),
    one!(erf, 1.0),
    one!(erfc, 1.0),
    one!(gelu, 1.0),
    one!(gelu_tanh, 1.0),
    one!(lgamma, 2.0, Rule::ResultOrOneBelowZero),
    one!(digamma, 2.0, Rule::ResultOrOneBelowZero),
    one!(cbrt, 1.0),
    one!(rsqrt, 1.0),
    two!(
        hypot,
        1.0,
        |word, x| {
            let exponent = (x.to_bits() >> 23 & 255) as i32 + (word >> 20 & 15) as i32 - 8;
            (word & 0x807f_ffff) | (exponent.clamp(0, 254) as u32) << 23
        },
        |y| f32::from_bits(y)
    ),
];
