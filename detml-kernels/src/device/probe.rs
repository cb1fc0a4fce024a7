//! The conformance probe (`N15`): which of a device's operations are IEEE-754's.
//!
//! A kernel runs every operation over golden patterns (products that tell fused from unfused,
//! flushed from gradual, reassociated from written order) and over any-bit patterns. The
//! expected words come from the integer-only arithmetic on the host, so they owe nothing to the
//! host's own floating point.

use super::{Device, Kernel, args};
use crate::ieee::{FloatProfile, Ieee, Path};
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Backend, Error, Result};

/// What the probe asks of a device, in the order of the kernel's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Property {
    Move,
    Integer,
    Add,
    Sub,
    Mul,
    UncontractedAdd,
    UncontractedSub,
    UncontractedChain,
    Order,
    Compare,
    Fma,
    Div,
    Sqrt,
    Convert,
    Itself,
    Logic,
}

impl Property {
    const ALL: [Self; 16] = [
        Self::Move,
        Self::Integer,
        Self::Add,
        Self::Sub,
        Self::Mul,
        Self::UncontractedAdd,
        Self::UncontractedSub,
        Self::UncontractedChain,
        Self::Order,
        Self::Compare,
        Self::Fma,
        Self::Div,
        Self::Sqrt,
        Self::Convert,
        Self::Itself,
        Self::Logic,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Move => "moves that keep every bit",
            Self::Integer => "32-bit integer arithmetic",
            Self::Add => "addition",
            Self::Sub => "subtraction",
            Self::Mul => "multiplication",
            Self::UncontractedAdd => "a product rounded before a sum",
            Self::UncontractedSub => "a product rounded before a difference",
            Self::UncontractedChain => "a loop-carried sum of rounded products",
            Self::Order => "sums in written order",
            Self::Compare => "comparison",
            Self::Fma => "fused multiply-add",
            Self::Div => "division",
            Self::Sqrt => "square root",
            Self::Convert => "conversion of integers",
            Self::Itself => "a value less, over and compared with itself",
            Self::Logic => "logic of comparisons",
        }
    }
}

/// One word for each property, the same source on the host and on the device.
#[cube]
#[inline(always)]
fn observe(ieee: Ieee, a: f32, b: f32, c: f32, #[comptime] property: u32) -> u32 {
    let x = prim::bits(a);
    let y = prim::bits(b);
    if comptime!(property == 0) {
        x
    } else if comptime!(property == 1) {
        let product = prim::wrapping_add(prim::wrapping_mul(x, y), prim::mul_hi(x, y));
        let shifted = (x << (y & 31u32)) ^ (y >> (x & 31u32));
        prim::wrapping_sub(product, shifted) ^ prim::leading_zeros(x)
    } else if comptime!(property == 2) {
        prim::bits(ieee.canonical(ieee.add(a, b)))
    } else if comptime!(property == 3) {
        prim::bits(ieee.canonical(ieee.sub(a, b)))
    } else if comptime!(property == 4) {
        prim::bits(ieee.canonical(ieee.mul(a, b)))
    } else if comptime!(property == 5) {
        let product = ieee.mul(a, b);
        prim::bits(ieee.canonical(ieee.add(product, c)))
    } else if comptime!(property == 6) {
        let d = ieee.sub(ieee.mul(a, b), c);
        let e = ieee.sub(c, ieee.mul(b, a));
        prim::wrapping_add(
            prim::bits(ieee.canonical(d)),
            prim::wrapping_mul(prim::bits(ieee.canonical(e)), 3u32),
        )
    } else if comptime!(property == 7) {
        let mut sum = c;
        let mut factor = a;
        #[unroll]
        for _ in 0..4u32 {
            sum = ieee.add(sum, ieee.mul(factor, b));
            factor = ieee.neg(factor);
        }
        prim::bits(ieee.canonical(sum))
    } else if comptime!(property == 8) {
        let sum = ieee.add(a, b);
        let back = ieee.sub(sum, a);
        prim::bits(ieee.canonical(ieee.add(ieee.sub(b, back), ieee.sub(a, ieee.sub(sum, back)))))
    } else if comptime!(property == 9) {
        let order = flag(ieee.lt(a, b), 1u32) | flag(ieee.le(a, b), 2u32);
        let zero = ieee.eq(a, prim::from_bits(0u32));
        order | flag(ieee.eq(a, b), 4u32) | flag(zero, 8u32)
    } else if comptime!(property == 10) {
        prim::bits(ieee.canonical(ieee.fma(a, b, c)))
    } else if comptime!(property == 11) {
        prim::bits(ieee.canonical(ieee.div(a, b)))
    } else if comptime!(property == 12) {
        prim::bits(ieee.canonical(ieee.sqrt(a)))
    } else if comptime!(property == 13) {
        let u = prim::bits(ieee.from_u32(x));
        let i = prim::bits(ieee.from_i32(prim::as_i32(x)));
        prim::wrapping_add(u, prim::wrapping_mul(i, 3u32))
    } else if comptime!(property == 14) {
        // `a - a` is no 0, `a / a` no 1 and `a == a` not true for an infinity, a zero or a NaN.
        let d = prim::bits(ieee.canonical(ieee.sub(a, a)));
        let q = prim::bits(ieee.canonical(ieee.div(a, a)));
        let f = flag(ieee.eq(a, a), 1u32) | flag(ieee.le(a, a), 2u32) | flag(ieee.lt(a, a), 4u32);
        itself(d, q, f)
    } else {
        // `!(a < b)` is no `a >= b`, and `a < b && a < c` no `a < min(b, c)`, with a NaN.
        let not = flag(!ieee.lt(a, b), 1u32) | flag(!ieee.le(a, b), 2u32);
        let low =
            flag(ieee.lt(a, b) && ieee.lt(a, c), 4u32) | flag(ieee.lt(a, b) || ieee.lt(a, c), 8u32);
        let high = flag(ieee.le(b, a) && ieee.le(c, a), 16u32)
            | flag(ieee.le(b, a) || ieee.le(c, a), 32u32);
        not | low | high
    }
}

#[cube]
#[inline(always)]
fn flag(c: bool, bit: u32) -> u32 {
    prim::select_u32(c, bit, 0u32)
}

#[cube]
#[inline(always)]
fn itself(difference: u32, quotient: u32, flags: u32) -> u32 {
    let word = prim::wrapping_add(difference, prim::wrapping_mul(quotient, 3u32));
    prim::wrapping_add(word, prim::wrapping_mul(flags, 5u32))
}

#[cube]
fn probe_kernel(
    ieee: Ieee,
    a: &Array<f32>,
    b: &Array<f32>,
    c: &Array<f32>,
    out: &mut Array<u32>,
    n: u32,
    #[comptime] properties: u32,
) {
    let i = ABSOLUTE_POS as u32;
    if i < n {
        let at = i as usize;
        #[unroll]
        for property in 0..properties {
            out[(property * n + i) as usize] = observe(ieee, a[at], b[at], c[at], property);
        }
    }
}

const UNITS: u32 = 64;

pub(crate) fn kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("probe", profile, (), CubeDim::new_1d(UNITS), |d| {
        let ieee = d.ieee();
        let (a, b, c) = (d.input::<f32>(), d.input::<f32>(), d.input::<f32>());
        let (out, n) = (d.output::<u32>(), d.scalar::<u32>());
        probe_kernel::expand(d.scope(), ieee, a, b, c, out, n, Property::ALL.len() as u32);
    })
}

/// Triples of words; the golden ones are P1-P6 of the cases that broke other libraries.
fn patterns() -> Vec<[u32; 3]> {
    let f = f32::to_bits;
    let mut patterns = vec![
        // 0 if unfused, 2^-24 if fused.
        [
            f(1.0 + 1.0 / 4096.0),
            f(1.0 + 1.0 / 4096.0),
            f(-(1.0 + 1.0 / 2048.0)),
        ],
        // Flushed before or after rounding.
        [0x2000_05a9, 0x1fff_f4ae, 0],
        [0x2000_0001, 0x1fff_fffe, 0],
        // Reassociation.
        [f(1e8), f(1.0), f(-1e8)],
        [f(1.0), f(1e8), f(-1e8)],
        // NaN from no NaN, signed zeros and infinities.
        [0, 0, 0],
        [0x8000_0000, 0, 0x8000_0000],
        [0, 0x8000_0000, 0],
        [0x7f80_0000, 0xff80_0000, 0x7f80_0000],
        [0x7f80_0000, 0, 0x3f80_0000],
        [f(-1.0), 0x8000_0000, 0x7f80_0000],
        // Infinities and NaN against themselves and beside numbers.
        [0xff80_0000, 0xff80_0000, 0x7fc0_0000],
        [0x7fc0_0000, 0x7fc0_0000, 0x7fc0_0000],
        [0xffc0_0001, f(1.0), f(2.0)],
        [f(1.0), f(2.0), 0x7fc0_0000],
        [f(1.0), 0x7fc0_0000, f(2.0)],
        [f(2.0), f(1.0), 0x7fc0_0000],
        [f(2.0), 0x7fc0_0000, f(1.0)],
        // u32 -> f32: 2^24 + 1, 2^31 + 127, 2^31 + 128, 2^32 - 1.
        [0x0100_0001, f(1.0), 0],
        [0x8000_007f, f(1.0), 0],
        [0x8000_0080, f(1.0), 0],
        [0xffff_ffff, f(1.0), 0],
        // Overflow and underflow at the ends.
        [0x7f7f_ffff, 0x7f7f_ffff, 0xff7f_ffff],
        [0x7f7f_ffff, f(1.0 + f32::EPSILON), 0xff7f_ffff],
        [0x0080_0000, f(0.5), 0],
        [0x0000_0001, f(0.5), 0x0000_0001],
        [0x0000_0001, 0x0000_0001, 0x8000_0001],
        [0x007f_ffff, f(2.0), 0x8000_0001],
        [0x0080_0001, 0x8080_0000, 0x0000_0001],
    ];
    let ones = [
        0x3f80_0000u32,
        0xbf80_0000,
        0x007f_ffff,
        0x0080_0000,
        0x7f7f_ffff,
        0x7f80_0000,
    ];
    for a in ones {
        for b in ones {
            patterns.push([a, b, 0x8000_0001]);
        }
    }
    let mut counter = 0u32;
    let mut word = || {
        counter = counter.wrapping_add(0x9e37_79b9);
        let mut x = counter;
        x = (x ^ (x >> 16)).wrapping_mul(0x21f0_aaad);
        x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
        x ^ (x >> 15)
    };
    // Random triples of half-width mantissas with c = -fl(a * b): fused gives the rounding error.
    for _ in 0..1024 {
        let near_one = |w: u32, e: u32| (w & 0x807f_ffff) | ((120 + (e & 15)) << 23);
        let (a, b) = (near_one(word(), word()), near_one(word(), word()));
        let product = Ieee::EMULATED.mul(f32::from_bits(a), f32::from_bits(b));
        patterns.push([a, b, product.to_bits() ^ 0x8000_0000]);
    }
    // Any bit pattern.
    for _ in 0..2048 {
        patterns.push([word(), word(), word()]);
    }
    // Results around the smallest normal.
    for _ in 0..1024 {
        let small = |w: u32, e: u32| (w & 0x807f_ffff) | ((e % 12) << 23);
        let half = |w: u32| (w & 0x807f_ffff) | ((103 + (w >> 8) % 26) << 23);
        patterns.push([small(word(), word()), half(word()), small(word(), word())]);
        patterns.push([small(word(), word()), small(word(), word()), half(word())]);
    }
    patterns
}

/// The first pattern on which `device`, computing as `profile` says, is wrong about a property.
struct Failure {
    property: Property,
    expected: String,
    got: String,
}

fn failures(device: &Device, profile: FloatProfile) -> Result<Vec<Failure>> {
    failures_of(device, &kernel(profile))
}

fn failures_of(device: &Device, kernel: &Kernel) -> Result<Vec<Failure>> {
    let patterns = patterns();
    let n = patterns.len();
    let column = |k: usize| -> Vec<f32> { patterns.iter().map(|p| f32::from_bits(p[k])).collect() };
    let (a, b, c) = (column(0), column(1), column(2));
    let (da, db, dc) = (device.upload(&a)?, device.upload(&b)?, device.upload(&c)?);
    let mut out = device.empty::<u32>(n * Property::ALL.len())?;
    let cubes = (n as u32).div_ceil(UNITS);
    device.launch(
        kernel,
        (cubes, 1, 1),
        args![&da, &db, &dc, &mut out, n as u32],
    )?;
    let got = device.read(&out)?;
    let mut failures = Vec::new();
    for (k, property) in Property::ALL.into_iter().enumerate() {
        for i in 0..n {
            let expected = observe(Ieee::EMULATED, a[i], b[i], c[i], k as u32);
            let got = got[k * n + i];
            if got != expected {
                let [a, b, c] = patterns[i];
                failures.push(Failure {
                    property,
                    expected: format!("{expected:08x} for ({a:08x}, {b:08x}, {c:08x})"),
                    got: format!("{got:08x}"),
                });
                break;
            }
        }
    }
    Ok(failures)
}

/// The fastest profile under which the device gives the contract's bits.
///
/// Starts from everything native and gives up what fails, until nothing does.
///
/// # Errors
/// `DeviceRefused` names the first property that is wrong however it is computed.
pub(super) fn probe(device: &Device) -> Result<FloatProfile> {
    // Vulkan lets its compilers rewrite any expression, whether or not a pattern shows it.
    let mut profile = FloatProfile {
        opaque: matches!(device.backend(), Backend::Wgpu(_)) && !device.is_metal(),
        ..FloatProfile::NATIVE
    };
    loop {
        let failures = failures(device, profile)?;
        if failures.is_empty() {
            return Ok(profile);
        }
        let Some(next) = without(profile, failures.iter().map(|f| f.property)) else {
            return Err(refusal(device, failures));
        };
        profile = next;
    }
}

/// `profile` without what failed, or `None` if nothing is left to give up.
fn without(
    profile: FloatProfile,
    failed: impl IntoIterator<Item = Property>,
) -> Option<FloatProfile> {
    use Property::*;
    let mut next = profile;
    for property in failed {
        match property {
            Move | Integer => return None,
            Fma => next.fma = Path::Emulated,
            Div => next.div = Path::Emulated,
            Sqrt => next.sqrt = Path::Emulated,
            Convert => next.convert = Path::Emulated,
            // A compiler that rewrites expressions can't rewrite what it can't see through.
            UncontractedAdd | UncontractedSub | UncontractedChain | Order | Itself | Logic
                if !profile.opaque =>
            {
                next.opaque = true;
            }
            // Sums or products that can't be trusted leave integer code only.
            _ => next.subnormal = Path::Emulated,
        }
    }
    // What fails although it is emulated, or can't be emulated alone, takes the rest with it.
    if next == profile || next.subnormal == Path::Emulated {
        next = FloatProfile::EMULATED;
    }
    (profile != FloatProfile::EMULATED).then_some(next)
}

fn refusal(device: &Device, failures: Vec<Failure>) -> Error {
    let Some(failure) = failures.into_iter().next() else {
        return Error::internal(format!("probe of {device}"));
    };
    Error::DeviceRefused {
        device: device.to_string(),
        property: failure.property.name().into(),
        expected: failure.expected,
        got: failure.got,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::*;

    /// The host's own arithmetic, at each level, passes what it asks of devices.
    fn host_agrees(device: &Device) {
        let ieee = match device.profile().unwrap() {
            FloatProfile::NATIVE => Ieee::FMA,
            _ => Ieee::PLAIN,
        };
        if !device.is_cpu() {
            return;
        }
        for [a, b, c] in patterns() {
            let [a, b, c] = [a, b, c].map(f32::from_bits);
            for k in 0..Property::ALL.len() as u32 {
                assert_eq!(
                    observe(ieee, a, b, c, k),
                    observe(Ieee::EMULATED, a, b, c, k),
                    "{} of {a:e} {b:e} {c:e}",
                    Property::ALL[k as usize].name()
                );
            }
        }
    }

    /// Each present device conforms under the profile that the probe chose for it.
    fn conforms(device: &Device) {
        let profile = device.profile().unwrap();
        println!("{device}: {profile:?}");
        if !device.is_cpu() {
            assert!(failures(device, profile).unwrap().is_empty());
            assert!(failures(device, FloatProfile::EMULATED).unwrap().is_empty());
        }
    }

    /// What a compiler makes of `Itself` and `Logic` that takes numbers for real ones.
    #[cube]
    #[inline(always)]
    fn folded(ieee: Ieee, a: f32, b: f32, c: f32, #[comptime] logic: bool) -> u32 {
        if comptime!(logic) {
            let not = flag(ieee.le(b, a), 1u32) | flag(ieee.lt(b, a), 2u32);
            let least = prim::select(ieee.lt(b, c) || ieee.is_nan(c), b, c);
            let most = prim::select(ieee.lt(c, b) || ieee.is_nan(c), b, c);
            let low = flag(ieee.lt(a, least), 4u32) | flag(ieee.lt(a, most), 8u32);
            not | low | flag(ieee.le(most, a), 16u32) | flag(ieee.le(least, a), 32u32)
        } else {
            itself(0u32, 0x3f80_0000u32, 3u32)
        }
    }

    #[cube]
    fn folding_kernel(
        ieee: Ieee,
        a: &Array<f32>,
        b: &Array<f32>,
        c: &Array<f32>,
        out: &mut Array<u32>,
        n: u32,
        #[comptime] properties: u32,
    ) {
        let i = ABSOLUTE_POS as u32;
        if i < n {
            let at = i as usize;
            #[unroll]
            for property in 0..properties {
                let to = (property * n + i) as usize;
                if comptime!(property >= 14) {
                    out[to] = folded(ieee, a[at], b[at], c[at], property == 15);
                } else {
                    out[to] = observe(ieee, a[at], b[at], c[at], property);
                }
            }
        }
    }

    /// A device whose compiler folds `x - x`, `x == x` and negated comparisons is found out, and
    /// told apart from one that computes wrongly.
    fn a_fold_is_named(device: &Device) {
        if device.is_cpu() {
            return;
        }
        let profile = device.profile().unwrap();
        let kernel = Kernel::new("folding", profile, (), CubeDim::new_1d(UNITS), |d| {
            let ieee = d.ieee();
            let (a, b, c) = (d.input::<f32>(), d.input::<f32>(), d.input::<f32>());
            let (out, n) = (d.output::<u32>(), d.scalar::<u32>());
            let properties = Property::ALL.len() as u32;
            folding_kernel::expand(d.scope(), ieee, a, b, c, out, n, properties);
        });
        let found: Vec<Property> = failures_of(device, &kernel)
            .unwrap()
            .iter()
            .map(|failure| failure.property)
            .collect();
        assert_eq!(found, [Property::Itself, Property::Logic]);
        // What the compiler makes of operands that it can see through.
        let open = FloatProfile {
            opaque: false,
            ..profile
        };
        for failure in failures(device, open).unwrap() {
            let Failure { expected, got, .. } = &failure;
            println!(
                "{device} without opaque operands: {} must give {expected}, gave {got}",
                failure.property.name()
            );
            assert!(profile.opaque);
        }
    }

    backend_suite! { host_agrees, conforms, a_fold_is_named }

    /// As [`a_fold_is_named`], on the host.
    #[test]
    fn folds_are_seen() {
        for (k, logic) in [(14, false), (15, true)] {
            let seen = patterns().into_iter().filter(|&[a, b, c]| {
                let [a, b, c] = [a, b, c].map(f32::from_bits);
                folded(Ieee::EMULATED, a, b, c, logic) != observe(Ieee::EMULATED, a, b, c, k)
            });
            assert!(seen.count() > 20, "{}", Property::ALL[k as usize].name());
        }
    }

    #[test]
    fn what_fails_is_given_up_step_by_step() {
        use Property::*;
        let native = FloatProfile::NATIVE;
        let fma = without(native, [Fma, Div]).unwrap();
        assert_eq!(
            (fma.fma, fma.div, fma.sqrt),
            (Path::Emulated, Path::Emulated, Path::Native)
        );
        for folds in [Order, Itself, Logic] {
            let opaque = without(native, [folds]).unwrap();
            assert_eq!((opaque.opaque, opaque.subnormal), (true, Path::Native));
            // Operands that are opaque and yet folded leave integer code.
            assert_eq!(without(opaque, [folds]), Some(FloatProfile::EMULATED));
        }
        assert_eq!(
            without(native, [Add, Sub, Order]),
            Some(FloatProfile::EMULATED)
        );
        // What fails though emulated leaves integer code, and after that nothing.
        assert_eq!(without(fma, [Fma]), Some(FloatProfile::EMULATED));
        assert_eq!(without(FloatProfile::EMULATED, [Fma]), None);
        assert_eq!(without(native, [Integer]), None);
    }

    /// A host that fuses where nothing is written fails on the golden patterns.
    #[test]
    fn a_contraction_is_seen() {
        let seen = patterns().into_iter().filter(|&[a, b, c]| {
            let [a, b, c] = [a, b, c].map(f32::from_bits);
            let honest = observe(Ieee::EMULATED, a, b, c, 5);
            Ieee::EMULATED
                .canonical(Ieee::EMULATED.fma(a, b, c))
                .to_bits()
                != honest
        });
        assert!(seen.count() > 1000);
    }

    /// A device that flushes subnormals fails on addition, multiplication and comparison.
    #[test]
    fn a_flush_is_seen() {
        let flush = |x: f32| if x.is_subnormal() { x * 0.0 } else { x };
        let sums = patterns().into_iter().filter(|&[a, b, _]| {
            let [a, b] = [a, b].map(f32::from_bits);
            let honest = observe(Ieee::EMULATED, a, b, 0.0, 2);
            Ieee::EMULATED
                .canonical(flush(Ieee::EMULATED.add(flush(a), flush(b))))
                .to_bits()
                != honest
        });
        assert!(sums.count() > 100);
    }
}
