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
    sin,
    cos,
    tan,
    atan,
    asin,
    acos,
    lgamma,
    digamma,
];

type Binary = fn(&Ieee, u32, u32) -> u32;

const BINARY: &[(&str, Binary)] = &[
    ("pow", |i, x, y| {
        pow(i, f32::from_bits(x), f32::from_bits(y)).to_bits()
    }),
    ("powi", |i, x, y| {
        powi(i, f32::from_bits(x), (y as i32) >> (y & 31)).to_bits()
    }),
    ("atan2", |i, x, y| {
        atan2(i, f32::from_bits(x), f32::from_bits(y)).to_bits()
    }),
    ("hypot", |i, x, y| {
        hypot(i, f32::from_bits(x), f32::from_bits(y)).to_bits()
    }),
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
fn native_plain_and_emulated_agree_on_two_arguments() {
    let pairs: Vec<(u32, u32)> = {
        let mut words = Words::new(2);
        let all = inputs(3, 100_000);
        all.iter()
            .map(|x| {
                let y = words.bits();
                // Half of the second arguments make results that neither vanish nor overflow.
                (
                    *x,
                    if y & 1 == 0 {
                        y
                    } else {
                        words.near(0x4080_0000, 4)
                    },
                )
            })
            .collect()
    };
    for (name, f) in BINARY {
        pairs.par_iter().for_each(|(x, y)| {
            let native = f(&Ieee::FMA, *x, *y);
            assert_eq!(
                native,
                f(&Ieee::PLAIN, *x, *y),
                "{name}({x:08x}, {y:08x}) plain"
            );
            assert_eq!(
                native,
                f(&Ieee::EMULATED, *x, *y),
                "{name}({x:08x}, {y:08x}) emulated"
            );
        });
    }
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
            // The exact value lies just above half of the smallest number.
            (TINY, TINY),
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

#[test]
fn reductions_of_angles_agree() {
    type Of = (Unary, fn(&Ieee, f32, Reduced) -> f32);
    let all: [Of; 3] = [(sin, sin_reduced), (cos, cos_reduced), (tan, tan_reduced)];
    let step = 997;
    let magnitudes = (0..0x7f80_0000u32.div_ceil(step)).map(|i| i * step);
    let edges = [QUARTER_PI - 1, QUARTER_PI, MIDDLE - 1, MIDDLE];
    let magnitudes: Vec<_> = magnitudes.chain(edges).collect();
    magnitudes.into_par_iter().for_each(|magnitude| {
        let ieee = &Ieee::PLAIN;
        for x in [magnitude, magnitude | 0x8000_0000] {
            let (x, a) = (f32::from_bits(x), f32::from_bits(magnitude));
            for (f, reduced) in all {
                let want = f(ieee, x).to_bits();
                let of = |r| reduced(ieee, x, r).to_bits();
                assert_eq!(of(reduce_any(ieee, a)), want, "{x:e}");
                if magnitude < MIDDLE {
                    assert_eq!(of(reduce_middle(ieee, a)), want, "{x:e}");
                }
                if magnitude < QUARTER_PI {
                    assert_eq!(of(reduce_near(a)), want, "{x:e}");
                }
            }
        }
    });
}

#[test]
fn sin_cos_gives_both() {
    for x in inputs(4, 20_000) {
        let x = f32::from_bits(x);
        let both = sin_cos(&Ieee::PLAIN, x);
        assert_eq!(both.sin.to_bits(), sin(&Ieee::PLAIN, x).to_bits(), "{x:e}");
        assert_eq!(both.cos.to_bits(), cos(&Ieee::PLAIN, x).to_bits(), "{x:e}");
    }
}

#[test]
fn special_values_of_trigonometric_functions() {
    for f in [sin, cos, tan] {
        check(f, &[(INF, NAN), (-INF, NAN)]);
    }
    for f in [sin, tan, atan, asin] {
        check(f, &[(0.0, 0.0), (-0.0, -0.0), (TINY, TINY), (-TINY, -TINY)]);
    }
    // Huge arguments, and the binary32 that comes closest to a multiple of pi/2.
    check(
        sin,
        &[(3.402_823_5e38, -0.521_876_523), (1e22, -0.734_081_535)],
    );
    check(cos, &[(-0.0, 1.0), (3.402_823_5e38, 0.853_021_04)]);
    check(
        atan,
        &[(INF, 1.570_796_4), (-INF, -1.570_796_4), (1.0, 0.785_398_2)],
    );
    check(
        asin,
        &[
            (1.0, 1.570_796_4),
            (-1.0, -1.570_796_4),
            (1.000_000_1, NAN),
            (-INF, NAN),
        ],
    );
    check(
        acos,
        &[
            (1.0, 0.0),
            (-1.0, 3.141_592_7),
            (0.0, 1.570_796_4),
            (-1.000_000_1, NAN),
            (INF, NAN),
        ],
    );
    let pi = 3.141_592_7;
    for (y, x, want) in [
        (0.0, 0.0, 0.0),
        (-0.0, 0.0, -0.0),
        (0.0, -0.0, pi),
        (-0.0, -0.0, -pi),
        (0.0, -TINY, pi),
        (TINY, 0.0, 1.570_796_4),
        (-1.0, -0.0, -1.570_796_4),
        (INF, INF, 0.785_398_2),
        (-INF, -INF, -2.356_194_5),
        (1.0, -INF, pi),
        (-1.0, INF, -0.0),
        (INF, 3e38, 1.570_796_4),
        (TINY, TINY, 0.785_398_2),
        (3e38, -3e38, 2.356_194_5),
        (TINY, 1e30, 0.0),
        (NAN, 1.0, NAN),
        (-1.0, NAN, NAN),
    ] {
        assert_eq!(
            atan2(&Ieee::PLAIN, y, x).to_bits(),
            f32::to_bits(want),
            "atan2({y:e}, {x:e})"
        );
    }
}

#[test]
fn special_values_of_powers() {
    for (x, y, want) in [
        (NAN, 0.0, 1.0),
        (1.0, NAN, 1.0),
        (NAN, 1.0, NAN),
        (2.0, NAN, NAN),
        (-1.0, INF, 1.0),
        (-1.0, -INF, 1.0),
        (-0.5, INF, 0.0),
        (-2.0, INF, INF),
        (-2.0, -INF, 0.0),
        (0.5, -INF, INF),
        (0.0, -INF, INF),
        (-0.0, 3.0, -0.0),
        (-0.0, 2.0, 0.0),
        (-0.0, -3.0, -INF),
        (-0.0, -2.5, INF),
        (0.0, 0.5, 0.0),
        (-INF, 3.0, -INF),
        (-INF, -3.0, -0.0),
        (-INF, 2.5, INF),
        (INF, -1.0, 0.0),
        (-2.0, 0.5, NAN),
        (-2.0, 3.0, -8.0),
        (-2.0, 16_777_216.0, INF),
        (-1.0, 16_777_215.0, -1.0),
        (-1.0, 8_388_607.5, NAN),
        (-1.0, 1e30, 1.0),
        (2.0, -149.0, TINY),
        (2.0, -150.0, 0.0),
        (2.0, 127.0, f32::from_bits(0x7f00_0000)),
        (2.0, 128.0, INF),
        (3.0, 4.0, 81.0),
        (TINY, TINY, 1.0),
        (3e38, 3e38, INF),
        (3e38, -3e38, 0.0),
    ] {
        assert_eq!(
            pow(&Ieee::PLAIN, x, y).to_bits(),
            f32::to_bits(want),
            "pow({x:e}, {y:e})"
        );
    }
    for (x, n, want) in [
        (NAN, 0, 1.0),
        (NAN, 1, NAN),
        (-0.0, i32::MAX, -0.0),
        (-0.0, i32::MIN, INF),
        (0.0, -1, INF),
        (-0.0, -1, -INF),
        (-INF, 3, -INF),
        (-INF, -2, 0.0),
        (-3.0, 3, -27.0),
        (-1.0, i32::MAX, -1.0),
        (BELOW_ONE, 1 << 30, 1.603_807_83e-28),
        (2.0, -149, TINY),
        (7.0, 1, 7.0),
    ] {
        assert_eq!(
            powi(&Ieee::PLAIN, x, n).to_bits(),
            f32::to_bits(want),
            "powi({x:e}, {n})"
        );
    }
}

#[test]
fn special_values_of_gamma_functions() {
    check(
        lgamma,
        &[
            (-INF, INF),
            (-1e10, INF),
            (-8_388_609.0, INF),
            (-3.0, INF),
            (-0.0, INF),
            (0.0, INF),
            (TINY, 103.278_93),
            (-TINY, 103.278_93),
            (1.0, 0.0),
            (2.0, 0.0),
            (3.0, 0.693_147_2),
            (4.1e36, INF),
            (INF, INF),
        ],
    );
    check(
        digamma,
        &[
            (-INF, NAN),
            (-1e10, NAN),
            (-1.0, NAN),
            (-0.0, INF),
            (0.0, -INF),
            (TINY, -INF),
            (-TINY, INF),
            (1e-38, -1.000_000_06e38),
            (1.0, -0.577_215_7),
            (INF, INF),
        ],
    );
}
