//! What the tests of the arithmetic share: bit patterns and an exact reference.

/// A sequence of words (Weyl sequence through a mixer), the same in every run.
pub(crate) struct Words(u64);

impl Words {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Any bit pattern.
    pub(crate) fn bits(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// A number whose exponent field is within `spread` of `near`'s.
    pub(crate) fn near(&mut self, near: u32, spread: u32) -> u32 {
        let word = self.next();
        let e = ((near >> 23) & 255) as i64 + (word >> 40) as i64 % (2 * spread as i64 + 1)
            - spread as i64;
        ((e.clamp(0, 255) as u32) << 23) | (word as u32 & 0x807f_ffff)
    }
}

const EXPONENTS: [u32; 26] = [
    0, 1, 2, 3, 23, 24, 25, 63, 64, 102, 103, 125, 126, 127, 128, 129, 149, 150, 151, 157, 158,
    190, 230, 253, 254, 255,
];
const FRACTIONS: [u32; 8] = [
    0, 1, 2, 0x3f_ffff, 0x40_0000, 0x40_0001, 0x7f_fffe, 0x7f_ffff,
];

/// 416 patterns: every kind of number at the ends of its range, both signs.
pub(crate) fn boundaries() -> Vec<u32> {
    patterns(&EXPONENTS, &FRACTIONS)
}

/// 120 of them, for triples.
pub(crate) fn few_boundaries() -> Vec<u32> {
    patterns(
        &[0, 1, 2, 24, 63, 103, 126, 127, 128, 150, 191, 254],
        &[0, 1, 0x40_0000, 0x7f_ffff],
    )
    .into_iter()
    .chain(patterns(&[127, 139, 140], &[0x800, 0x1000, 0x5a_827a]))
    .chain([
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0xff80_0001,
        0x2000_05a9,
        0x1fff_f4ae,
    ])
    .collect()
}

fn patterns(exponents: &[u32], fractions: &[u32]) -> Vec<u32> {
    let mut all = Vec::new();
    for &e in exponents {
        for &f in fractions {
            all.push((e << 23) | f);
            all.push((1 << 31) | (e << 23) | f);
        }
    }
    all
}

/// The bits of `x`, a NaN as the one that kernels store.
pub(crate) fn canonical(x: f32) -> u32 {
    if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() }
}

/// A sum of numbers without rounding: a two's complement integer in units of 2^-320.
#[derive(Clone)]
pub(crate) struct Exact([u64; 11]);

impl Exact {
    pub(crate) fn zero() -> Self {
        Self([0; 11])
    }

    /// Adds `m * 2^e` with the given sign; `-298 <= e <= 208`.
    pub(crate) fn add(&mut self, negative: bool, m: u64, e: i32) {
        let at = (e + 320) as usize;
        let wide = (m as u128) << (at % 64);
        let mut term = [0u64; 11];
        term[at / 64] = wide as u64;
        term[at / 64 + 1] = (wide >> 64) as u64;
        if negative {
            negate(&mut term);
        }
        let mut carry = 0;
        for (to, from) in self.0.iter_mut().zip(term) {
            let sum = *to as u128 + from as u128 + carry;
            *to = sum as u64;
            carry = sum >> 64;
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }

    /// The nearest binary32, ties to even; +0 for zero.
    pub(crate) fn round(&self) -> u32 {
        let mut w = self.0;
        let negative = w[10] >> 63 == 1;
        if negative {
            negate(&mut w);
        }
        let bit = |i: usize| (w[i / 64] >> (i % 64)) & 1;
        let Some(top) = (0..704).rev().find(|i| bit(*i) == 1) else {
            return 0;
        };
        // The last bit kept: 23 below the top, but not below 2^-149.
        let last = top.saturating_sub(23).max(320 - 149);
        let kept = (last..=top).rev().fold(0, |k, i| (k << 1) | bit(i));
        let half = bit(last - 1);
        let rest = (0..last - 1).any(|i| bit(i) == 1);
        let rounded = kept + u64::from(half == 1 && (rest || kept & 1 == 1));
        // Each unit of `last` above that of subnormals is one step of the exponent field.
        let field = (last - (320 - 149)) as u64;
        let magnitude = ((field << 23) + rounded).min(0x7f80_0000);
        magnitude as u32 | (u32::from(negative) << 31)
    }
}

fn negate(w: &mut [u64; 11]) {
    let mut carry = true;
    for x in w.iter_mut() {
        let (y, c) = (!*x).overflowing_add(u64::from(carry));
        *x = y;
        carry = c;
    }
}

/// Sign, integer significand and exponent of a finite number.
pub(crate) fn split(x: u32) -> (bool, u64, i32) {
    let e = (x >> 23) & 255;
    let f = u64::from(x & 0x7f_ffff);
    let m = if e == 0 { f } else { f | 0x80_0000 };
    (x >> 31 == 1, m, e.max(1) as i32 - 150)
}

/// `a * b + c` of IEEE-754 from the exact sum.
pub(crate) fn exact_fma(a: u32, b: u32, c: u32) -> u32 {
    let [fa, fb, fc] = [a, b, c].map(f32::from_bits);
    if !(fa.is_finite() && fb.is_finite() && fc.is_finite()) {
        // No rounding: what is infinite or NaN is so in binary64, where nothing overflows.
        return canonical((fa as f64 * fb as f64 + fc as f64) as f32);
    }
    let (sa, ma, ea) = split(a);
    let (sb, mb, eb) = split(b);
    let (sc, mc, ec) = split(c);
    let mut sum = Exact::zero();
    sum.add(sa != sb, ma * mb, ea + eb);
    sum.add(sc, mc, ec);
    if sum.is_zero() {
        let product_zero = ma == 0 || mb == 0;
        let both_negative = (sa != sb) && sc && (product_zero == (mc == 0));
        return u32::from(both_negative) << 31;
    }
    sum.round()
}
