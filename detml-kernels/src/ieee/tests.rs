mod devices;

use super::*;
use crate::testing::{Words, boundaries, canonical, exact_fma, few_boundaries};

/// Every arithmetic a host has; all must give the same bits.
const ALL: [(&str, Ieee); 3] = [
    ("fma", Ieee::FMA),
    ("plain", Ieee::PLAIN),
    ("emulated", Ieee::EMULATED),
];

fn float(x: u32) -> f32 {
    f32::from_bits(x)
}

#[track_caller]
fn same(name: &str, args: &[f32], got: u32, want: u32) {
    assert_eq!(
        got,
        want,
        "{name} of {:08x?}: got {got:08x}, expected {want:08x}",
        args.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    );
}

fn check_one(level: &str, m: Ieee, a: u32) {
    let x = float(a);
    let name = |op: &str| format!("{level} {op}");
    let unary = |op, got: f32, want: f32| same(&name(op), &[x], canonical(got), canonical(want));
    unary("sqrt", m.sqrt(x), x.sqrt());
    unary("floor", m.floor(x), x.floor());
    unary("ceil", m.ceil(x), x.ceil());
    unary("trunc", m.trunc(x), x.trunc());
    unary("round", m.round_ties_even(x), x.round_ties_even());
    unary("from_u32", m.from_u32(a), a as f32);
    unary("from_i32", m.from_i32(a as i32), a as i32 as f32);
    same(&name("neg"), &[x], m.neg(x).to_bits(), (-x).to_bits());
    same(&name("abs"), &[x], m.abs(x).to_bits(), x.abs().to_bits());
    same(
        &name("canonical"),
        &[x],
        m.canonical(x).to_bits(),
        canonical(x),
    );
    same(&name("to_u32"), &[x], m.to_u32(x), x as u32);
    same(&name("to_i32"), &[x], m.to_i32(x) as u32, x as i32 as u32);
    assert_eq!(m.is_nan(x), x.is_nan());
    assert_eq!(m.is_finite(x), x.is_finite());
    // Every binary32 is normal in binary64.
    let exponent = match x.abs() {
        0.0 => i32::MIN,
        y if y < f32::INFINITY => ((y as f64).to_bits() >> 52) as i32 - 1023,
        _ => i32::MAX,
    };
    assert_eq!(m.exponent(x), exponent, "{level} exponent of {a:08x}");
    same(
        &name("total key round trip"),
        &[x],
        m.from_total_key(m.total_key(x)).to_bits(),
        canonical(x),
    );
}

fn check_pair(level: &str, m: Ieee, a: u32, b: u32) {
    let (x, y) = (float(a), float(b));
    let binary = |op, got: f32, want: f32| {
        same(
            &format!("{level} {op}"),
            &[x, y],
            canonical(got),
            canonical(want),
        );
    };
    binary("add", m.add(x, y), x + y);
    binary("sub", m.sub(x, y), x - y);
    binary("mul", m.mul(x, y), x * y);
    binary("div", m.div(x, y), x / y);
    for (op, got, want) in [
        ("lt", m.lt(x, y), x < y),
        ("le", m.le(x, y), x <= y),
        ("gt", m.gt(x, y), x > y),
        ("ge", m.ge(x, y), x >= y),
        ("eq", m.eq(x, y), x == y),
        ("ne", m.ne(x, y), x != y),
    ] {
        assert_eq!(got, want, "{level} {op} of {a:08x} {b:08x}");
    }

    // The total order without NaN is that of the keys; with one, min and max are NaN.
    let nan = x.is_nan() || y.is_nan();
    let (lower, upper) = match x.total_cmp(&y).is_lt() {
        true => (x, y),
        false => (y, x),
    };
    let pick = |z: f32| if nan { 0x7fc0_0000 } else { z.to_bits() };
    same("min", &[x, y], m.min(x, y).to_bits(), pick(lower));
    same("max", &[x, y], m.max(x, y).to_bits(), pick(upper));
    if nan {
        let most = [x, y].map(|z| (z.is_nan(), m.total_key(z), m.order_key(z)));
        for (is_nan, total, order) in most {
            assert_eq!(total == u32::MAX, is_nan);
            assert_eq!(order == u32::MAX, is_nan);
        }
    } else {
        assert_eq!(m.total_key(x).cmp(&m.total_key(y)), x.total_cmp(&y));
        assert_eq!(Some(m.order_key(x).cmp(&m.order_key(y))), x.partial_cmp(&y));
    }
    let sign = if y.is_nan() { 1.0 } else { y };
    same(
        "copysign",
        &[x, y],
        m.copysign(x, y).to_bits(),
        x.copysign(sign).to_bits(),
    );
}

fn check_fma(a: u32, b: u32, c: u32) {
    let want = exact_fma(a, b, c);
    let [x, y, z] = [a, b, c].map(float);
    for (level, m) in ALL {
        same(
            &format!("{level} fma"),
            &[x, y, z],
            canonical(m.fma(x, y, z)),
            want,
        );
    }
}

/// `x * 2^n` through binary64, where it is exact for these `n` (or far out of range).
fn scaled(x: f32, n: i32) -> f32 {
    let power = f64::from_bits(((n.clamp(-600, 600) + 1023) as u64) << 52);
    (x as f64 * power) as f32
}

#[test]
fn pairs_of_boundaries() {
    let all = boundaries();
    for (level, m) in ALL {
        for &a in &all {
            check_one(level, m, a);
            for &b in &all {
                check_pair(level, m, a, b);
            }
        }
    }
}

#[test]
fn random_pairs() {
    let mut words = Words::new(11);
    for _ in 0..300_000 {
        let (a, b) = (words.bits(), words.bits());
        for (level, m) in ALL {
            check_one(level, m, a);
            check_one(level, m, words.near(0x4480_0000, 26));
            check_pair(level, m, a, b);
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
fn random_triples() {
    let mut words = Words::new(12);
    for _ in 0..400_000 {
        let (a, b) = (words.bits(), words.bits());
        let product = Ieee::PLAIN.mul(float(a), float(b)).to_bits();
        check_fma(a, b, words.bits());
        check_fma(a, b, words.near(product, 60));
        check_fma(a, b, product ^ SIGN);
        check_fma(a, b, prim::wrapping_add(product ^ SIGN, 1));
        // Halves of a unit in the last place, and a little beside them: what rounding twice
        // gets wrong. Exponents 24 to 30 apart, products with few bits.
        let few = (a & 0xfff8_0000) | (b & 1);
        let product = Ieee::PLAIN
            .mul(float(few), float(b & 0xffff_0001))
            .to_bits();
        check_fma(few, b & 0xffff_0001, words.near(product, 32) & 0xfff0_0001);
    }
}

#[test]
fn subnormal_results_of_fma_are_rounded_once() {
    let mut words = Words::new(13);
    for _ in 0..400_000 {
        let a = words.near(0x2000_0000, 14);
        let b = words.near(0x2000_0000, 14);
        check_fma(a, b, words.near(0, 30));
        check_fma(a, b, words.bits() & 0x8000_0003);
    }
}

#[test]
fn fma_does_not_round_twice() {
    // 1 + 2^-23 + (2^-24 - 2^-70): binary64 makes it the tie above, which goes the wrong way.
    let (a, b, c) = (0x3380_0001, 0x3f7f_fffe, 0x3f80_0001);
    let twice = (float(a) as f64 * float(b) as f64 + float(c) as f64) as f32;
    assert_eq!(twice.to_bits(), 0x3f80_0002);
    assert_eq!(exact_fma(a, b, c), 0x3f80_0001);
    check_fma(a, b, c);
    check_fma(a, b ^ SIGN, c ^ SIGN);
}

#[test]
fn scaling_rounds_once() {
    let mut words = Words::new(14);
    let check = |x: u32, n: i32| {
        for (level, m) in ALL {
            let got = canonical(m.scale(float(x), n));
            let want = canonical(scaled(float(x), n));
            assert_eq!(
                got, want,
                "{level} scale of {x:08x} by {n}: {got:08x}, {want:08x}"
            );
        }
    };
    for x in boundaries() {
        for n in (-330..=330).chain([i32::MIN, i32::MIN + 1, i32::MAX, 1 << 23, -(1 << 23)]) {
            check(x, n);
        }
    }
    for _ in 0..300_000 {
        let x = words.bits();
        let n = words.next() as i32 % 310;
        check(x, n);
        // Into the subnormals.
        check(x, -(((x >> 23) & 255) as i32) + (n % 30));
    }
    for n in -126..=127 {
        assert_eq!(Ieee::FMA.power_of_two(n), scaled(1.0, n));
    }
}

#[test]
fn p1_a_product_is_fused_only_where_written() {
    let (a, c) = (float(0x3f80_0800), float(0xbf80_1000));
    for (level, m) in ALL {
        let name = |op| format!("{level} {op}");
        same(&name("a*b+c"), &[a, c], m.add(m.mul(a, a), c).to_bits(), 0);
        same(
            &name("a*b-c"),
            &[a, c],
            m.sub(m.mul(a, a), m.neg(c)).to_bits(),
            0,
        );
        same(
            &name("c-a*b"),
            &[a, c],
            m.sub(m.neg(c), m.mul(a, a)).to_bits(),
            0,
        );
        let product = m.mul(a, a);
        same(&name("named"), &[a, c], m.add(product, c).to_bits(), 0);
        let mut acc = c;
        for factor in [a, 0.0, a] {
            acc = m.add(acc, m.mul(factor, factor));
        }
        same(&name("loop"), &[a, c], acc.to_bits(), m.mul(a, a).to_bits());
        same(&name("fma"), &[a, c], m.fma(a, a, c).to_bits(), 0x3380_0000);
    }
}

#[test]
fn p5_nan_is_one_value_and_zeros_have_an_order() {
    for (level, m) in ALL {
        let nans = [
            m.div(0.0, 0.0),
            m.sub(f32::INFINITY, f32::INFINITY),
            m.sqrt(-1.0),
            float(0xff80_0001),
            float(0x7f80_0001),
        ];
        for x in nans {
            same(level, &[x], m.canonical(x).to_bits(), NAN);
            same(level, &[x], m.max(x, 1.0).to_bits(), NAN);
            same(level, &[x], m.min(1.0, x).to_bits(), NAN);
        }
        same(level, &[], m.div(1.0, -0.0).to_bits(), 0xff80_0000);
        for (x, y) in [(-0.0, 0.0), (0.0, -0.0)] {
            same(level, &[x, y], m.max(x, y).to_bits(), 0);
            same(level, &[x, y], m.min(x, y).to_bits(), SIGN);
        }
    }
}
