use super::*;
use crate::{
    ieee::Ieee,
    testing::{Words, boundaries},
};
use rayon::prelude::*;

type Unary = fn(&Ieee, f32) -> f32;

macro_rules! unary {
    ($($name:ident),+ $(,)?) => { &[$((stringify!($name), $name as Unary)),+] };
}

const UNARY: &[(&str, Unary)] = unary![
    exp,
    exp2,
    exp10,
    expm1,
    ln,
    log1p,
    log2,
    log10,
    sigmoid,
    silu,
    softplus,
    log_sigmoid,
    tanh,
    sinh,
    cosh,
    rsqrt,
    cbrt,
    erf,
    erfc,
    gelu,
    gelu_tanh,
];

/// Any bit pattern, and numbers around 1 where most functions do their work.
fn inputs(seed: u64, count: usize) -> Vec<u32> {
    let mut words = Words::new(seed);
    let mut all = boundaries();
    all.extend((0..count / 2).map(|_| words.bits()));
    all.extend((0..count / 2).map(|_| words.near(0x3f80_0000, 8)));
    all
}

#[test]
fn native_plain_and_emulated_agree() {
    UNARY.par_iter().for_each(|(name, f)| {
        for x in inputs(1, 100_000) {
            let x = f32::from_bits(x);
            let native = f(&Ieee::FMA, x).to_bits();
            assert_eq!(native, f(&Ieee::PLAIN, x).to_bits(), "{name}({x:e}) plain");
            let emulated = f(&Ieee::EMULATED, x).to_bits();
            assert_eq!(native, emulated, "{name}({x:e}) emulated");
        }
    });
}

#[test]
fn nan_gives_the_canonical_nan() {
    for (name, f) in UNARY {
        for x in [
            0x7f80_0001,
            0x7fc0_0000,
            0x7fff_ffff,
            0xff80_0001,
            0xffff_ffff,
        ] {
            let y = f(&Ieee::PLAIN, f32::from_bits(x)).to_bits();
            assert_eq!(y, 0x7fc0_0000, "{name} of NaN {x:08x}");
        }
    }
}

/// `f` at each argument has these bits.
fn check(f: Unary, table: &[(f32, f32)]) {
    for (x, want) in table {
        let got = f(&Ieee::PLAIN, *x);
        assert_eq!(
            got.to_bits(),
            want.to_bits(),
            "f({x:e}): {got:e}, want {want:e}"
        );
    }
}

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::from_bits(0x7fc0_0000);
/// The least positive number.
const TINY: f32 = f32::from_bits(1);
const BELOW_ONE: f32 = f32::from_bits(0x3f7f_ffff);

#[test]
fn special_values_of_exponentials() {
    check(
        exp,
        &[
            (-INF, 0.0),
            (-104.0, 0.0),
            (-3.4e38, 0.0),
            (-0.0, 1.0),
            (TINY, 1.0),
            (-TINY, 1.0),
            (f32::from_bits(0x42b1_7217), f32::from_bits(0x7f7f_ff84)),
            (f32::from_bits(0x42b1_7218), INF),
            (INF, INF),
        ],
    );
    check(
        exp2,
        &[
            (-INF, 0.0),
            (-150.0, 0.0),
            (-149.0, TINY),
            (-126.0, f32::MIN_POSITIVE),
            (-0.0, 1.0),
            (10.0, 1024.0),
            (127.0, f32::from_bits(0x7f00_0000)),
            (128.0, INF),
            (INF, INF),
        ],
    );
    check(
        exp10,
        &[
            (-INF, 0.0),
            (-46.0, 0.0),
            (0.0, 1.0),
            (1.0, 10.0),
            (10.0, 1e10),
            (39.0, INF),
            (INF, INF),
        ],
    );
    check(
        expm1,
        &[
            (-INF, -1.0),
            (-1e30, -1.0),
            (-20.0, -1.0),
            (-0.0, -0.0),
            (0.0, 0.0),
            (TINY, TINY),
            (-TINY, -TINY),
            (89.0, INF),
            (INF, INF),
        ],
    );
}

#[test]
fn special_values_of_logarithms() {
    for f in [ln, log2, log10] {
        check(
            f,
            &[
                (0.0, -INF),
                (-0.0, -INF),
                (-TINY, NAN),
                (-1.0, NAN),
                (-INF, NAN),
                (1.0, 0.0),
                (INF, INF),
            ],
        );
    }
    for k in -149..128 {
        let x = 2f64.powi(k) as f32;
        check(log2, &[(x, k as f32)]);
    }
    check(log10, &[(10.0, 1.0), (1e10, 10.0)]);
    check(
        log1p,
        &[
            (-1.0, -INF),
            (-1.000_000_1, NAN),
            (-INF, NAN),
            (-0.0, -0.0),
            (0.0, 0.0),
            (TINY, TINY),
            (-TINY, -TINY),
            (INF, INF),
        ],
    );
}

/// Case N4: where naive forms overflow, cancel or flush. The values away from the special ones
/// are mpmath's.
#[test]
fn n4_tails_of_logistic_functions() {
    check(
        exp,
        &[
            (45.0, 3.4934271e19),
            (-45.0, 2.8625186e-20),
            (88.0, 1.6516363e38),
            (-88.0, 6.0546014e-39),
            (104.0, INF),
            (-104.0, 0.0),
        ],
    );
    check(
        sigmoid,
        &[
            (-INF, 0.0),
            (-104.0, 0.0),
            (-88.0, 6.0546014e-39),
            (-45.0, 2.8625186e-20),
            (-0.0, 0.5),
            (TINY, 0.5),
            (45.0, 1.0),
            (104.0, 1.0),
            (INF, 1.0),
        ],
    );
    check(
        softplus,
        &[
            (-INF, 0.0),
            (-104.0, 0.0),
            (-88.0, 6.0546014e-39),
            (-45.0, 2.8625186e-20),
            (-0.0, 0.693_147_2),
            (TINY, 0.693_147_2),
            (45.0, 45.0),
            (88.0, 88.0),
            (104.0, 104.0),
            (INF, INF),
        ],
    );
    check(
        log_sigmoid,
        &[
            (-INF, -INF),
            (-104.0, -104.0),
            (0.0, -0.693_147_2),
            (88.0, -6.0546014e-39),
            (104.0, -0.0),
            (INF, -0.0),
        ],
    );
    check(
        silu,
        &[
            (-INF, -0.0),
            (-3e38, -0.0),
            (-88.0, -5.328_049_668e-37),
            (-0.0, -0.0),
            (0.0, 0.0),
            (TINY, 0.0),
            (88.0, 88.0),
            (INF, INF),
        ],
    );
    check(
        silu,
        &[(f32::from_bits(2), TINY), (BELOW_ONE, 0.731_058_54)],
    );
}

/// Case N4, the hyperbolic and Gaussian functions.
#[test]
fn n4_tails_of_tanh_and_gelu() {
    check(
        tanh,
        &[
            (-INF, -1.0),
            (-104.0, -1.0),
            (-45.0, -1.0),
            (-TINY, -TINY),
            (-0.0, -0.0),
            (0.0, 0.0),
            (TINY, TINY),
            (f32::MIN_POSITIVE, f32::MIN_POSITIVE),
            (45.0, 1.0),
            (88.0, 1.0),
            (INF, 1.0),
        ],
    );
    check(
        gelu,
        &[
            (-INF, -0.0),
            (-3e38, -0.0),
            (-88.0, -0.0),
            (-14.5, -0.0),
            (-13.0, -7.952_313_72e-38),
            (-0.0, -0.0),
            (0.0, 0.0),
            (f32::from_bits(2), TINY),
            (45.0, 45.0),
            (3e38, 3e38),
            (INF, INF),
        ],
    );
    check(
        gelu_tanh,
        &[
            (-INF, -0.0),
            (-45.0, -0.0),
            (-10.0, -1.204_092_35e-37),
            (-0.0, -0.0),
            (0.0, 0.0),
            (f32::from_bits(2), TINY),
            (45.0, 45.0),
            (INF, INF),
        ],
    );
    check(
        erf,
        &[
            (-INF, -1.0),
            (-0.0, -0.0),
            (0.0, 0.0),
            (4.0, 1.0),
            (INF, 1.0),
        ],
    );
    check(
        erfc,
        &[
            (-INF, 2.0),
            (-4.0, 2.0),
            (-0.0, 1.0),
            (TINY, 1.0),
            (10.0, 2.088_487_6e-45),
            (10.1, 0.0),
            (INF, 0.0),
        ],
    );
    check(
        sinh,
        &[
            (-INF, -INF),
            (-0.0, -0.0),
            (TINY, TINY),
            (89.5, INF),
            (89.0, 2.244_806_41e38),
            (INF, INF),
        ],
    );
    check(
        cosh,
        &[
            (-INF, INF),
            (-0.0, 1.0),
            (89.5, INF),
            (89.0, 2.244_806_41e38),
            (INF, INF),
        ],
    );
}

#[test]
fn special_values_of_roots() {
    check(
        rsqrt,
        &[
            (0.0, INF),
            (-0.0, -INF),
            (-TINY, NAN),
            (-INF, NAN),
            (4.0, 0.5),
            (f32::from_bits(2), f32::from_bits(0x6480_0000)),
            (INF, 0.0),
        ],
    );
    check(
        cbrt,
        &[
            (-INF, -INF),
            (-27.0, -3.0),
            (-0.0, -0.0),
            (0.0, 0.0),
            (f32::from_bits(8), 2.238_069_37e-15),
            (1e15, 1e5),
            (INF, INF),
        ],
    );
    let hypot = |x, y| hypot(&Ieee::PLAIN, x, y);
    let (a, b) = (f64::from(3e38f32), f64::from(4e37f32));
    let want = (a * a + b * b).sqrt() as f32;
    assert_eq!(hypot(3e38, 4e37).to_bits(), want.to_bits());
    assert_eq!(hypot(3e38, 3e38), INF);
    assert_eq!(hypot(f32::from_bits(3), f32::from_bits(4)).to_bits(), 5);
    assert_eq!(hypot(-0.0, -0.0).to_bits(), 0);
    assert_eq!(hypot(-INF, NAN), INF);
    assert_eq!(hypot(NAN, 1.0).to_bits(), 0x7fc0_0000);
}
