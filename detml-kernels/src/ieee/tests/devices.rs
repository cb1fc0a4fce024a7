//! Every operation on every device gives the bits of the integer code.

use super::*;
use crate::device::{Device, Kernel, Loop, args};
use crate::suite::backend_suite;

/// The operations, numbered; results as bits with the one NaN.
const OPERATIONS: u32 = 30;

#[cube]
#[inline(always)]
fn operation(m: Ieee, #[comptime] which: u32, a: u32, b: u32, c: u32) -> u32 {
    let x = prim::from_bits(a);
    let y = prim::from_bits(b);
    let z = prim::from_bits(c);
    if comptime!(which == 0) {
        stored(m, m.add(x, y))
    } else if comptime!(which == 1) {
        stored(m, m.sub(x, y))
    } else if comptime!(which == 2) {
        stored(m, m.mul(x, y))
    } else if comptime!(which == 3) {
        stored(m, m.fma(x, y, z))
    } else if comptime!(which == 4) {
        stored(m, m.div(x, y))
    } else if comptime!(which == 5) {
        stored(m, m.sqrt(x))
    } else if comptime!(which == 6) {
        stored(m, m.min(x, y))
    } else if comptime!(which == 7) {
        stored(m, m.max(x, y))
    } else if comptime!(which == 8) {
        stored(m, m.floor(x))
    } else if comptime!(which == 9) {
        stored(m, m.ceil(x))
    } else if comptime!(which == 10) {
        stored(m, m.trunc(x))
    } else if comptime!(which == 11) {
        stored(m, m.round_ties_even(x))
    } else if comptime!(which == 12) {
        stored(m, m.scale(x, prim::as_i32(b) % 300i32))
    } else if comptime!(which == 13) {
        stored(m, m.copysign(x, y))
    } else if comptime!(which == 14) {
        stored(m, m.neg(m.abs(x)))
    } else if comptime!(which == 15) {
        prim::bits(m.from_u32(a))
    } else if comptime!(which == 16) {
        prim::bits(m.from_i32(prim::as_i32(a)))
    } else if comptime!(which == 17) {
        m.to_u32(x)
    } else if comptime!(which == 18) {
        prim::as_u32(m.to_i32(x))
    } else if comptime!(which == 19) {
        prim::as_u32(m.exponent(x))
    } else if comptime!(which == 20) {
        m.total_key(x)
    } else if comptime!(which == 21) {
        m.order_key(x)
    } else if comptime!(which == 22) {
        prim::bits(m.from_total_key(a))
    } else if comptime!(which == 23) {
        // A product and a sum that must stay two operations.
        stored(m, m.add(m.mul(x, y), z))
    } else if comptime!(which == 25) {
        let product = m.mul(x, y);
        stored(m, m.sub(product, z))
    } else if comptime!(which == 26) {
        stored(m, m.sub(z, m.mul(x, y)))
    } else if comptime!(which == 27) {
        let mut acc = z;
        for _ in 0..3u32 {
            acc = m.add(acc, m.mul(x, y));
        }
        stored(m, acc)
    } else if comptime!(which == 28) {
        stored(m, m.sub(m.add(x, y), x))
    } else if comptime!(which == 29) {
        // The error of a sum.
        let sum = m.add(x, y);
        let back = m.sub(sum, x);
        stored(m, m.add(m.sub(x, m.sub(sum, back)), m.sub(y, back)))
    } else {
        let low = flag(m.lt(x, y)) + 2u32 * flag(m.le(x, y)) + 4u32 * flag(m.eq(x, y));
        let high = flag(m.gt(x, y)) + 2u32 * flag(m.ge(x, y)) + 4u32 * flag(m.ne(x, y));
        low + 8u32 * high + 64u32 * flag(m.is_nan(x)) + 128u32 * flag(m.is_finite(x))
    }
}

#[cube]
#[inline(always)]
fn stored(m: Ieee, x: f32) -> u32 {
    prim::bits(m.canonical(x))
}

#[cube]
#[inline(always)]
fn flag(c: bool) -> u32 {
    prim::select_u32(c, 1u32, 0u32)
}

#[cube]
fn operation_kernel(
    m: Ieee,
    #[comptime] which: u32,
    a: &Array<u32>,
    b: &Array<u32>,
    c: &Array<u32>,
    out: &mut Array<u32>,
) {
    let i = ABSOLUTE_POS;
    if i < out.len() {
        out[i] = operation(m, which, a[i], b[i], c[i]);
    }
}

fn kernel(profile: FloatProfile, which: u32) -> Kernel {
    Kernel::new("ieee_test", profile, which, CubeDim::new_1d(64), move |d| {
        let ieee = d.ieee();
        let (a, b, c) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let out = d.output::<u32>();
        operation_kernel::expand(d.scope(), ieee, which, a, b, c, out);
    })
}

struct Operation<'a> {
    which: u32,
    args: &'a [[u32; 3]],
}

impl Loop for Operation<'_> {
    type Output = Vec<u32>;
    #[inline(always)]
    fn run(self, m: Ieee) -> Vec<u32> {
        let mut out = vec![0; self.args.len()];
        for (out, &[a, b, c]) in out.iter_mut().zip(self.args) {
            *out = operation(m, self.which, a, b, c);
        }
        out
    }
}

fn triples() -> Vec<[u32; 3]> {
    let few = few_boundaries();
    let mut words = Words::new(21);
    let mut all = Vec::new();
    for &a in &few {
        for &b in &few {
            let product = soft::mul(a, b);
            all.push([a, b, product ^ SIGN]);
            all.push([a, b, few[words.bits() as usize % few.len()]]);
        }
    }
    for _ in 0..20_000 {
        let (a, b) = (words.bits(), words.bits());
        let near = words.near(a, 28);
        let product = soft::mul(a, b);
        all.push([a, b, words.near(product, 50)]);
        all.push([a, near, product ^ SIGN]);
        all.push([
            near,
            b,
            prim::wrapping_add(soft::mul(near, b) ^ SIGN, b & 1),
        ]);
        // Integers and halves.
        all.push([
            words.near(0x4a00_0000, 20),
            words.near(0x3f80_0000, 2),
            near,
        ]);
    }
    all
}

/// What `device` makes of operation `which`.
fn results(device: &Device, profile: FloatProfile, which: u32, all: &[[u32; 3]]) -> Vec<u32> {
    if let Some(simd) = device.simd() {
        return simd.dispatch(Operation { which, args: all });
    }
    let columns = [0, 1, 2].map(|i| {
        let column: Vec<u32> = all.iter().map(|t| t[i]).collect();
        device.upload(&column).unwrap()
    });
    let [a, b, c] = &columns;
    let mut out = device.empty::<u32>(all.len()).unwrap();
    let cubes = (all.len() as u32).div_ceil(64);
    let kernel = kernel(profile, which);
    device
        .launch(&kernel, (cubes, 1, 1), args![a, b, c, &mut out])
        .unwrap();
    device.read(&out).unwrap()
}

fn equals(device: &Device, profile: FloatProfile, all: &[[u32; 3]]) {
    for which in 0..OPERATIONS {
        let want = Operation { which, args: all }.run(Ieee::EMULATED);
        let got = results(device, profile, which, all);
        let wrong = (0..all.len()).filter(|&i| got[i] != want[i]).count();
        if let Some(i) = (0..all.len()).find(|&i| got[i] != want[i]) {
            panic!(
                "operation {which} of {:08x?} on {device}: got {:08x}, expected {:08x}; \
                 {wrong} of {} differ under {profile:?}",
                all[i],
                got[i],
                want[i],
                all.len()
            );
        }
    }
}

fn by_its_profile(device: &Device) {
    equals(device, device.profile().unwrap(), &triples());
}

/// The integer code relies on no float arithmetic, whatever the device.
fn by_integer_code(device: &Device) {
    equals(device, FloatProfile::EMULATED, &triples());
}

/// Operations of the cases P1-P6 by their numbers above.
const ADD: u32 = 0;
const SUB: u32 = 1;
const MUL: u32 = 2;
const FMA: u32 = 3;
const DIV: u32 = 4;
const SQRT: u32 = 5;
const MIN: u32 = 6;
const MAX: u32 = 7;
const FROM_U32: u32 = 15;
const FROM_I32: u32 = 16;
const TO_U32: u32 = 17;
const TO_I32: u32 = 18;
const MUL_ADD: u32 = 23;
const MUL_SUB: u32 = 25;
const SUB_MUL: u32 = 26;
const CHAIN: u32 = 27;
const SUM_BACK: u32 = 28;
const SUM_ERROR: u32 = 29;

/// Known results, whoever computes them.
fn known(device: &Device, cases: &[(u32, [u32; 3], u32)]) {
    let profile = device.profile().unwrap();
    for which in 0..OPERATIONS {
        let of = cases.iter().filter(|case| case.0 == which);
        let (args, want): (Vec<_>, Vec<_>) = of.map(|case| (case.1, case.2)).unzip();
        if args.is_empty() {
            continue;
        }
        let got = results(device, profile, which, &args);
        for ((args, got), want) in args.iter().zip(got).zip(want) {
            assert!(
                got == want,
                "operation {which} of {args:08x?} on {device}: got {got:08x}, expected {want:08x}"
            );
        }
    }
}

/// 1 + 2^-12 squared is 1 + 2^-11 + 2^-24, a tie that rounds down: 2^-24 shows where it is fused.
fn p1_products_are_fused_only_where_written(device: &Device) {
    let (a, c, d) = (0x3f80_0800, 0xbf80_1000, 0x3f80_1000);
    known(
        device,
        &[
            (FMA, [a, a, c], 0x3380_0000),
            (MUL_ADD, [a, a, c], 0),
            (MUL_SUB, [a, a, d], 0),
            (SUB_MUL, [a, a, d], 0),
            // 0, then the product, then twice it.
            (CHAIN, [a, a, c], 0x4000_1000),
        ],
    );
}

/// `c` is the rounded product's negative: unfused gives +0, fused the rounding error.
fn p2_the_rounding_error_of_a_product(device: &Device) {
    let mut words = Words::new(22);
    let mut cases = Vec::new();
    let mut errors = 0;
    for _ in 0..500 {
        // Significands of 13 to 24 bits around 1: no product is exact, none underflows.
        let [a, b] = [words.bits(), words.bits()]
            .map(|w| (w & 0x807f_ffff) | 0x0000_0401 | (120 + (w >> 24 & 15)) << 23);
        let product = float(a) as f64 * float(b) as f64;
        let rounded = product as f32;
        let error = (product - f64::from(rounded)) as f32;
        errors += usize::from(error != 0.0);
        let c = (-rounded).to_bits();
        cases.push((FMA, [a, b, c], error.to_bits()));
        cases.push((MUL_ADD, [a, b, c], 0));
        cases.push((SUB_MUL, [a, b, rounded.to_bits()], 0));
    }
    assert!(errors > 450, "{errors}");
    known(device, &cases);
}

/// Two products just below the least normal that round up to it: a flush before rounding makes
/// them 0, one after rounding doesn't.
fn p3_underflow_is_gradual(device: &Device) {
    let tiny = |a: u32, b: u32| ((float(a) as f64 * float(b) as f64) as f32).to_bits();
    let pairs = [(0x2000_05a9, 0x1fff_f4ae), (0x2000_0001, 0x1fff_fffe)];
    let cases = pairs.map(|(a, b)| (MUL, [a, b, 0], tiny(a, b)));
    assert_eq!(cases.map(|case| case.2), [0x0080_0000, 0x0080_0000]);
    known(device, &cases);
    known(
        device,
        &[
            (MUL, [0x0080_0000, 0x3f00_0000, 0], 0x0040_0000),
            (ADD, [0x0000_0001, 0x0000_0001, 0], 0x0000_0002),
            (SUB, [0x0080_0001, 0x0080_0000, 0], 0x0000_0001),
            (DIV, [0x0080_0000, 0x4000_0000, 0], 0x0040_0000),
            (SQRT, [0x0000_0001, 0, 0], 0x1a35_04f3),
        ],
    );
}

fn p4_sums_stay_as_written(device: &Device) {
    let f = f32::to_bits;
    known(
        device,
        &[
            (SUM_BACK, [f(1e8), f(1.0), 0], 0),
            (SUM_BACK, [f(1.0), f(1e8), 0], f(1e8)),
            (SUM_ERROR, [f(1e8), f(1.0), 0], f(1.0)),
            (SUM_ERROR, [f(1.0), f(1e8), 0], f(1.0)),
            (SUM_ERROR, [f(1.0), 0x3380_0001, 0], 0xb37f_fffe),
            (SUM_ERROR, [f(3.0), f(4.0), 0], 0),
        ],
    );
}

fn p5_nan_zeros_and_infinities(device: &Device) {
    let (inf, one) = (INFINITY, ONE);
    let mut cases = vec![
        (DIV, [0, 0, 0], NAN),
        (DIV, [inf, inf, 0], NAN),
        (SUB, [inf, inf, 0], NAN),
        (ADD, [inf, inf | SIGN, 0], NAN),
        (MUL, [0, inf, 0], NAN),
        (FMA, [inf, 0, 0xff80_0001], NAN),
        (SQRT, [one | SIGN, 0, 0], NAN),
        (SQRT, [SIGN, 0, 0], SIGN),
        (DIV, [one, SIGN, 0], inf | SIGN),
        (ADD, [SIGN, SIGN, 0], SIGN),
        (ADD, [SIGN, 0, 0], 0),
        (SUB, [one, one, 0], 0),
    ];
    for (a, b) in [(SIGN, 0), (0, SIGN)] {
        cases.push((MAX, [a, b, 0], 0));
        cases.push((MIN, [a, b, 0], SIGN));
    }
    // NaN of any sign and payload comes out as the one NaN.
    for nan in [0x7f80_0001, 0xff80_0001, 0xffff_ffff] {
        for op in [ADD, SUB, MUL, DIV, MIN, MAX] {
            cases.push((op, [nan, one, 0], NAN));
            cases.push((op, [one, nan, 0], NAN));
        }
        cases.push((SQRT, [nan, 0, 0], NAN));
    }
    known(device, &cases);
}

fn p6_conversions_round_to_nearest_even(device: &Device) {
    let two31 = 0x4f00_0000;
    known(
        device,
        &[
            (FROM_U32, [(1 << 24) + 1, 0, 0], 0x4b80_0000),
            (FROM_U32, [(1 << 24) + 3, 0, 0], 0x4b80_0002),
            (FROM_U32, [(1 << 31) + 127, 0, 0], two31),
            (FROM_U32, [(1 << 31) + 128, 0, 0], two31),
            (FROM_U32, [(1 << 31) + 129, 0, 0], two31 + 1),
            (FROM_U32, [u32::MAX, 0, 0], 0x4f80_0000),
            (FROM_I32, [i32::MIN as u32, 0, 0], two31 | SIGN),
            (FROM_I32, [u32::MAX, 0, 0], ONE | SIGN),
            (TO_I32, [HALF | SIGN, 0, 0], 0),
            (TO_I32, [two31, 0, 0], i32::MAX as u32),
            (TO_I32, [two31 | SIGN, 0, 0], i32::MIN as u32),
            (TO_I32, [NAN | SIGN, 0, 0], 0),
            (TO_U32, [ONE | SIGN, 0, 0], 0),
            (TO_U32, [two31, 0, 0], 1 << 31),
            (TO_U32, [INFINITY, 0, 0], u32::MAX),
            (TO_U32, [NAN, 0, 0], 0),
        ],
    );
}

backend_suite! {
    by_its_profile,
    by_integer_code,
    p1_products_are_fused_only_where_written,
    p2_the_rounding_error_of_a_product,
    p3_underflow_is_gradual,
    p4_sums_stay_as_written,
    p5_nan_zeros_and_infinities,
    p6_conversions_round_to_nearest_even,
}
