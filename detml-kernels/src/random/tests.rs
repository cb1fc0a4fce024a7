use super::*;
use crate::device::{Device, Kernel, args};
use crate::ieee::FloatProfile;
use crate::suite::backend_suite;
use crate::testing::Words;
use detml_core::{Error, Seed};

const DRAWS: Philox4x32 = Philox4x32::new(Seed(0x1122_3344_5566_7788), 9);

fn block(w: [u32; 4]) -> Block {
    let [w0, w1, w2, w3] = w;
    Block { w0, w1, w2, w3 }
}

/// `kat_vectors` of Random123 1.14, the lines of philox4x32 with 10 rounds.
#[test]
fn random123_known_answers() {
    let ones = u32::MAX;
    for (counter, key, answer) in [
        (
            [0; 4],
            [0; 2],
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
        ),
        (
            [ones; 4],
            [ones; 2],
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
        ),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ] {
        assert_eq!(philox4x32_10(block(counter), key[0], key[1]), block(answer));
    }
}

#[test]
fn elements_equal_those_of_the_core() {
    let draws = Philox::from(DRAWS);
    let m = Ieee::PLAIN;
    let mut index = Words::new(51);
    for i in (0..1000).chain((0..1000).map(|_| index.next())) {
        let (low, high) = (i as u32, (i >> 32) as u32);
        assert_eq!(draws.word(low, high), DRAWS.word(i));
        assert_eq!(draws.block(low, high, 0), block(DRAWS.block(i)));
        assert_eq!(draws.uniform(&m, low, high), DRAWS.uniform(i));
        for n in [0, 1, 2, 6, 1000, (1 << 31) + 1, 0xc000_0001, u32::MAX] {
            assert_eq!(draws.below(n, low, high), DRAWS.below(n, i), "below {n}");
        }
    }
}

#[test]
fn ranges_equal_their_elements() {
    let draws = Philox::from(DRAWS);
    let m = Ieee::PLAIN;
    for first in [0, 1, 2, 3, 7, (1 << 32) - 2, (1 << 34) - 5, u64::MAX - 20] {
        for n in [0, 1, 2, 3, 4, 5, 17] {
            let index = (first..).take(n).map(|i| (i as u32, (i >> 32) as u32));
            let each = |f: &dyn Fn(u32, u32) -> f32| index.clone().map(|(l, h)| f(l, h)).collect();
            let w: Vec<u32> = index.clone().map(|(l, h)| draws.word(l, h)).collect();
            assert_eq!(words(DRAWS, first, n).unwrap(), w);
            let u: Vec<f32> = each(&|l, h| draws.uniform(&m, l, h));
            assert_eq!(uniform(DRAWS, first, n).unwrap(), u);
            let u: Vec<f32> = each(&|l, h| draws.uniform_positive(&m, l, h));
            assert_eq!(uniform_positive(DRAWS, first, n).unwrap(), u);
            let z: Vec<f32> = each(&|l, h| draws.normal(&m, l, h));
            assert_eq!(normal(DRAWS, first, n).unwrap(), z);
            let b: Vec<bool> = index
                .clone()
                .map(|(l, h)| draws.bernoulli(&m, 0.3, l, h))
                .collect();
            assert_eq!(bernoulli(DRAWS, first, n, 0.3).unwrap(), b);
        }
    }
}

/// Known bits: a change of any of them is a change of the profile.
#[test]
fn known_answers() {
    let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let draws = Philox4x32::new(Seed(7), 1);
    assert_eq!(
        bits(uniform(draws, 0, 8).unwrap()),
        [
            0x3efd_75da,
            0x3e2f_db64,
            0x3e9f_5876,
            0x3e66_b3b0,
            0x3f63_2925,
            0x3f59_8f06,
            0x3f44_9554,
            0x3eb1_a864
        ]
    );
    assert_eq!(
        bits(normal(draws, 0, 8).unwrap()),
        [
            0x3f0f_570b,
            0x3f85_cd7c,
            0x3e71_e3f0,
            0x3fc1_3879,
            0x3e92_ee9c,
            0xbeca_aa97,
            0xbed4_fad3,
            0x3f18_8f9b
        ]
    );
    assert_eq!(
        bits(normal(draws, 1 << 40, 4).unwrap()),
        [0x3c7e_ba22, 0x3f79_3f5f, 0x3feb_56b7, 0x3fdd_dc20]
    );
}

#[test]
fn ends_of_the_ranges() {
    let m = Ieee::PLAIN;
    assert_eq!(uniform_of(&m, 255), 0.0);
    assert_eq!(uniform_of(&m, u32::MAX), 1.0 - f32::EPSILON / 2.0);
    assert_eq!(uniform_positive_of(&m, 0), f32::EPSILON / 2.0);
    assert_eq!(uniform_positive_of(&m, u32::MAX), 1.0);
    for (p, word, yes) in [
        (0.0, 0, false),
        (-1.0, 0, false),
        (f32::NAN, 0, false),
        (1.0, u32::MAX, true),
        (f32::INFINITY, u32::MAX, true),
        (0.5, 0x7fff_ffff, true),
        (0.5, 0x8000_0000, false),
        (2f32.powi(-32), 0, true),
        (2f32.powi(-32), 1, false),
        (2f32.powi(-33), 0, false),
    ] {
        assert_eq!(bernoulli_of(&m, p, word), yes, "{p} {word}");
    }
    // The largest radius, and the angles of whole quarters.
    let pair = |w, v| normal_pair(&m, w, v);
    let largest = (64.0 * std::f64::consts::LN_2).sqrt() as f32;
    assert!((pair(0, 0).first - largest).abs() < 1e-6);
    assert_eq!(pair(0, 0).second, 0.0);
    assert_eq!(pair(0, 1 << 30).first, 0.0);
    assert_eq!(pair(0, 1 << 30).second, pair(0, 0).first);
    assert_eq!(pair(0, 2 << 30).first, -pair(0, 0).first);
    assert_eq!(pair(0, 3 << 30).second, -pair(0, 0).first);
    assert_eq!(pair(u32::MAX, 0).first, 0.0);
}

/// The largest error of a normal pair, in units in the last place.
fn error_of(w: u32, v: u32) -> f64 {
    let u = f64::from((w | 1) as f32) * 2f64.powi(-32);
    let radius = (-2.0 * u.ln()).sqrt();
    let angle = f64::from(v) * 2f64.powi(-32) * std::f64::consts::TAU;
    // Exact quarters: binary64 has no exact half turn.
    let (sine, cosine) = match v & 0x3fff_ffff {
        0 => [(0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0)][(v >> 30) as usize],
        _ => angle.sin_cos(),
    };
    let pair = normal_pair(&Ieee::PLAIN, w, v);
    let unit = |x: f64| 2f64.powi((x.abs().log2().floor() as i32).max(-126) - 23);
    [(pair.first, radius * cosine), (pair.second, radius * sine)]
        .map(|(got, want)| match want {
            0.0 => f64::from(got).abs(),
            _ => (f64::from(got) - want).abs() / unit(want),
        })
        .into_iter()
        .fold(0.0, f64::max)
}

#[test]
fn normals_follow_their_formula() {
    let mut words = Words::new(52);
    let mut worst: f64 = 0.0;
    for _ in 0..400_000 {
        let word = words.next();
        let (w, v) = (word as u32, (word >> 32) as u32);
        worst = worst.max(error_of(w, v));
        // Near the ends of the radius and of the quarters.
        worst = worst.max(error_of(w >> (v % 32), v));
        worst = worst.max(error_of(
            !(w >> (v % 32)),
            (v & 0xe000_0000) + (w >> (v % 29 + 3)),
        ));
    }
    println!("worst error: {worst:.3} units in the last place");
    assert!(worst < 8.0, "{worst}");
}

/// Within five standard deviations.
#[track_caller]
fn near(what: &str, got: f64, mean: f64, deviation: f64) {
    assert!(
        (got - mean).abs() < 5.0 * deviation,
        "{what}: {got}, expected {mean} +- {deviation}"
    );
}

#[test]
fn uniform_numbers_are_uniform() {
    let n = 1 << 20;
    let x = uniform(Philox4x32::new(Seed(1), 0), 0, n).unwrap();
    let (n, x): (f64, Vec<f64>) = (n as f64, x.into_iter().map(f64::from).collect());
    assert!(x.iter().all(|u| (0.0..1.0).contains(u)));
    near(
        "mean",
        x.iter().sum::<f64>() / n,
        0.5,
        (1.0 / 12.0 / n).sqrt(),
    );
    let squares = x.iter().map(|u| u * u).sum::<f64>() / n;
    near("mean square", squares, 1.0 / 3.0, (4.0 / 45.0 / n).sqrt());
    for lag in [1, 2, 3, 4, 8] {
        let products = x.iter().zip(&x[lag..]).map(|(a, b)| (a - 0.5) * (b - 0.5));
        near(
            "serial product",
            products.sum::<f64>() / n,
            0.0,
            1.0 / 12.0 / n.sqrt(),
        );
    }
    let mut counts = [0.0; 256];
    for u in &x {
        counts[(u * 256.0) as usize] += 1.0;
    }
    let expected = n / 256.0;
    let chi: f64 = counts
        .iter()
        .map(|c: &f64| (c - expected).powi(2) / expected)
        .sum();
    near("chi square", chi, 255.0, (2.0 * 255.0f64).sqrt());
}

#[test]
fn streams_and_seeds_are_independent() {
    let n = 1 << 16;
    let row = |seed, stream| uniform(Philox4x32::new(Seed(seed), stream), 0, n).unwrap();
    let base = row(1, 0);
    for other in [row(1, 1), row(2, 0), row(1 << 32 | 1, 0), row(1, 1 << 31)] {
        let products = base.iter().zip(&other);
        let sum: f64 = products
            .map(|(a, b)| f64::from(a - 0.5) * f64::from(b - 0.5))
            .sum();
        near(
            "product",
            sum / n as f64,
            0.0,
            1.0 / 12.0 / (n as f64).sqrt(),
        );
    }
}

#[test]
fn normal_numbers_are_normal() {
    let n = 1 << 20;
    let x = normal(Philox4x32::new(Seed(3), 0), 0, n).unwrap();
    let (n, x): (f64, Vec<f64>) = (n as f64, x.into_iter().map(f64::from).collect());
    let moment = |k: i32| x.iter().map(|z| z.powi(k)).sum::<f64>() / n;
    near("mean", moment(1), 0.0, (1.0 / n).sqrt());
    near("variance", moment(2), 1.0, (2.0 / n).sqrt());
    near("third moment", moment(3), 0.0, (15.0 / n).sqrt());
    near("fourth moment", moment(4), 3.0, (96.0 / n).sqrt());
    let pairs = x.chunks_exact(2).map(|p| p[0] * p[1]).sum::<f64>() / (n / 2.0);
    near("product of a pair", pairs, 0.0, (2.0 / n).sqrt());
    let squares = x
        .chunks_exact(2)
        .map(|p| p[0] * p[0] * p[1] * p[1])
        .sum::<f64>()
        / (n / 2.0);
    near(
        "product of squares of a pair",
        squares,
        1.0,
        (8.0 * 2.0 / n).sqrt(),
    );
    // The normal distribution function at 0.5, 1, 2, 3 and 4.
    for (bound, below) in [
        (0.5, 0.691_462_461_274_013),
        (1.0, 0.841_344_746_068_543),
        (2.0, 0.977_249_868_051_821),
        (3.0, 0.998_650_101_968_370),
        (4.0, 0.999_968_328_758_167),
    ] {
        let deviation = (below * (1.0 - below) / n).sqrt();
        let share = |c: usize| c as f64 / n;
        let up = share(x.iter().filter(|z| **z < bound).count());
        let down = share(x.iter().filter(|z| **z > -bound).count());
        near("share below", up, below, deviation);
        near("share above", down, below, deviation);
    }
}

#[test]
fn bernoulli_draws_have_their_probability() {
    let n = 1 << 18;
    for p in [0.001, 0.1, 0.5, 0.9] {
        let yes = bernoulli(Philox4x32::new(Seed(4), 0), 0, n, p).unwrap();
        let share = yes.iter().filter(|y| **y).count() as f64 / n as f64;
        let p = f64::from(p);
        near("share", share, p, (p * (1.0 - p) / n as f64).sqrt());
    }
}

/// One word for each kind of draw.
const KINDS: u32 = 6;

#[cube]
#[inline(always)]
fn draw(m: &Ieee, draws: Philox, low: u32, high: u32, #[comptime] kind: u32) -> u32 {
    if comptime!(kind == 0) {
        draws.word(low, high)
    } else if comptime!(kind == 1) {
        prim::bits(draws.uniform(m, low, high))
    } else if comptime!(kind == 2) {
        prim::bits(draws.uniform_positive(m, low, high))
    } else if comptime!(kind == 3) {
        prim::bits(draws.normal(m, low, high))
    } else if comptime!(kind == 4) {
        prim::select_u32(draws.bernoulli(m, 0.375f32, low, high), 1u32, 0u32)
    } else {
        draws.below((low & 0xffu32) + 0x8000_0001u32, low, high)
    }
}

#[cube]
fn draw_kernel(m: Ieee, seed: u32, stream: u32, out: &mut Array<u32>, #[comptime] kind: u32) {
    let i = ABSOLUTE_POS;
    if i < out.len() {
        let draws = Philox::from_words(seed, 5u32, stream);
        let low = prim::wrapping_add(i as u32, 0xffff_ff00u32);
        out[i] = draw(&m, draws, low, i as u32 & 3u32, kind);
    }
}

fn devices_draw_alike(device: &Device) {
    let n = 4096;
    let draws = Philox::from_words(77, 5, 3);
    for kind in 0..KINDS {
        struct Draw(Philox, u32, u32);
        impl Loop for Draw {
            type Output = Vec<u32>;
            #[inline(always)]
            fn run(self, m: Ieee) -> Vec<u32> {
                let mut out = vec![0; self.1 as usize];
                for (out, i) in out.iter_mut().zip(0u32..) {
                    *out = draw(&m, self.0, i.wrapping_add(0xffff_ff00), i & 3, self.2);
                }
                out
            }
        }
        let want = Draw(draws, n, kind).run(Ieee::EMULATED);
        let got = match device.simd() {
            Some(simd) => simd.dispatch(Draw(draws, n, kind)),
            None => {
                let profile: FloatProfile = device.profile().unwrap();
                let units = CubeDim::new_1d(64);
                let kernel = Kernel::new("random_test", profile, kind, units, move |d| {
                    let ieee = d.ieee();
                    let out = d.output::<u32>();
                    let (seed, stream) = (d.scalar::<u32>(), d.scalar::<u32>());
                    draw_kernel::expand(d.scope(), ieee, seed, stream, out, kind);
                });
                let mut out = device.empty::<u32>(n as usize).unwrap();
                let cubes = (n.div_ceil(64), 1, 1);
                device
                    .launch(&kernel, cubes, args![&mut out, 77u32, 3u32])
                    .unwrap();
                device.read(&out).unwrap()
            }
        };
        assert_eq!(got, want, "kind {kind} on {device}");
    }
}

backend_suite! { devices_draw_alike }

#[test]
fn absurd_numbers_of_draws_are_refused() {
    let draws = Philox4x32::named(Seed(1), "absurd");
    for n in [usize::MAX, usize::MAX / 2, usize::MAX / 8] {
        for first in [0, 3, u64::MAX] {
            let refused = |error: Option<Error>| matches!(error, Some(Error::OutOfMemory { .. }));
            assert!(refused(words(draws, first, n).err()));
            assert!(refused(normal(draws, first, n).err()));
            // Even one byte a draw.
            assert!(refused(bernoulli(draws, first, n, 0.5).err()));
        }
    }
    // The row of words ends where the counter does and goes on from its start.
    let around = words(draws, u64::MAX - 1, 4).unwrap();
    assert_eq!(around.len(), 4);
}
