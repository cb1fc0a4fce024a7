use super::*;
use crate::testing::{Words, boundaries, canonical, exact_fma, few_boundaries};

fn float(x: u32) -> f32 {
    f32::from_bits(x)
}

#[track_caller]
fn same(name: &str, args: &[u32], got: u32, want: u32) {
    assert_eq!(
        got, want,
        "{name} of {args:08x?}: got {got:08x}, expected {want:08x}"
    );
}

/// The host's add, sub, mul, div, sqrt and comparisons are IEEE-754's.
fn check_pair(a: u32, b: u32) {
    let (x, y) = (float(a), float(b));
    same("add", &[a, b], add(a, b), canonical(x + y));
    same("sub", &[a, b], sub(a, b), canonical(x - y));
    same("mul", &[a, b], mul(a, b), canonical(x * y));
    same("div", &[a, b], div(a, b), canonical(x / y));
    assert_eq!(lt(a, b), x < y, "lt of {a:08x} {b:08x}");
    assert_eq!(le(a, b), x <= y, "le of {a:08x} {b:08x}");
    assert_eq!(eq(a, b), x == y, "eq of {a:08x} {b:08x}");
}

fn check_one(a: u32) {
    let x = float(a);
    same("sqrt", &[a], sqrt(a), canonical(x.sqrt()));
    same("from_u32", &[a], from_u32(a), (a as f32).to_bits());
    same(
        "from_i32",
        &[a],
        from_i32(a as i32),
        (a as i32 as f32).to_bits(),
    );
    same("to_u32", &[a], to_u32(a), x as u32);
    same("to_i32", &[a], to_i32(a) as u32, x as i32 as u32);
    assert_eq!(is_nan(a), x.is_nan());
}

fn check_fma(a: u32, b: u32, c: u32) {
    same("fma", &[a, b, c], fma(a, b, c), exact_fma(a, b, c));
}

#[test]
fn pairs_of_boundaries() {
    let all = boundaries();
    for &a in &all {
        check_one(a);
        for &b in &all {
            check_pair(a, b);
        }
    }
}

#[test]
fn triples_of_boundaries() {
    let all = few_boundaries();
    for &a in &all {
        for &b in &all {
            for &c in &all {
                check_fma(a, b, c);
            }
        }
    }
}

#[test]
fn random_pairs() {
    let mut words = Words::new(1);
    for _ in 0..1_500_000 {
        let a = words.bits();
        let b = words.bits();
        check_one(a);
        check_pair(a, b);
        check_pair(a, words.near(a, 30));
    }
}

#[test]
fn random_triples() {
    let mut words = Words::new(2);
    for _ in 0..700_000 {
        let a = words.bits();
        let b = words.bits();
        check_fma(a, b, words.bits());
        let product = mul(a, b);
        check_fma(a, b, words.near(product, 50));
        // Cancellation down to the rounding error of the product, and one unit beside it.
        check_fma(a, b, product ^ SIGN);
        check_fma(a, b, prim::wrapping_add(product ^ SIGN, 1));
    }
}

#[test]
fn half_width_products_leave_their_rounding_error() {
    let mut words = Words::new(3);
    for _ in 0..200_000 {
        // Significands of 13 bits: the product has 25 or 26.
        let w = words.next();
        let a = 0x3f80_0000 | (((w as u32 & 0xfff) | 1) << 11);
        let b = 0x3f80_0000 | (((w >> 32) as u32 & 0xfff | 1) << 11);
        let c = mul(a, b) ^ SIGN;
        let exact = (float(a) as f64) * (float(b) as f64) + float(c) as f64;
        same("fma", &[a, b, c], fma(a, b, c), (exact as f32).to_bits());
        same("add", &[a, b, c], add(mul(a, b), c), 0);
    }
}

#[test]
fn p1_fused_and_unfused_differ() {
    let a = 0x3f80_0800; // 1 + 2^-12
    let c = 0xbf80_1000; // -(1 + 2^-11)
    same("fma", &[a, a, c], fma(a, a, c), 0x3380_0000); // 2^-24
    same("mul, add", &[a, a, c], add(mul(a, a), c), 0);
    same("mul, sub", &[a, a, c], sub(mul(a, a), c ^ SIGN), 0);
    same("sub, mul", &[a, a, c], sub(c ^ SIGN, mul(a, a)), 0);
}

#[test]
fn p3_underflow_is_rounded_not_flushed() {
    for (a, b) in [(0x2000_05a9, 0x1fff_f4ae), (0x2000_0001, 0x1fff_fffe)] {
        same("mul", &[a, b], mul(a, b), (float(a) * float(b)).to_bits());
        assert!(mul(a, b) > 0x007f_0000 && mul(a, b) <= 0x0080_0000);
    }
}

#[test]
fn p4_sums_are_not_reassociated() {
    let big = 1e8f32.to_bits();
    let one = 1f32.to_bits();
    same("sub", &[big, one], sub(add(big, one), big), 0);
    let (a, b) = (0x3f80_0000, 0x3380_0001);
    let s = add(a, b);
    let bb = sub(s, a);
    let err = add(sub(a, sub(s, bb)), sub(b, bb));
    same("two-sum error", &[a, b], err, sub(b, bb));
    assert_ne!(err, 0);
}

#[test]
fn p5_special_values() {
    let (inf, zero, minus_zero) = (INFINITY, 0, SIGN);
    same("0/0", &[], div(zero, zero), NAN);
    same("inf-inf", &[], sub(inf, inf), NAN);
    same("sqrt(-1)", &[], sqrt(0xbf80_0000), NAN);
    same("1/-0", &[], div(0x3f80_0000, minus_zero), inf | SIGN);
    same("0*inf", &[], mul(zero, inf), NAN);
    same("inf*0+NaN", &[], fma(inf, zero, 0xff80_0001), NAN);
    same("-0 + -0", &[], add(minus_zero, minus_zero), minus_zero);
    same("-0 + +0", &[], add(minus_zero, zero), zero);
    same("sqrt(-0)", &[], sqrt(minus_zero), minus_zero);
}

#[test]
fn p6_conversions() {
    same("2^24+1", &[], from_u32((1 << 24) + 1), 0x4b80_0000);
    same("2^24+3", &[], from_u32((1 << 24) + 3), 0x4b80_0002);
    same("2^31+127", &[], from_u32((1 << 31) + 127), 0x4f00_0000);
    same("2^31+128", &[], from_u32((1 << 31) + 128), 0x4f00_0000);
    same("2^31+129", &[], from_u32((1 << 31) + 129), 0x4f00_0001);
    same("u32::MAX", &[], from_u32(u32::MAX), 0x4f80_0000);
    same("i32::MIN", &[], from_i32(i32::MIN), 0xcf00_0000);
    assert_eq!(to_i32(0xbf00_0000), 0);
    assert_eq!(to_i32(0x4f00_0000), i32::MAX);
    assert_eq!(to_i32(0xcf00_0000), i32::MIN);
    assert_eq!(to_i32(NAN | SIGN), 0);
    assert_eq!(to_u32(0xbf80_0000), 0);
    assert_eq!(to_u32(0x4f80_0000), u32::MAX);
}
