//! Stamps a test suite out for every backend.

use crate::device::{Device, Simd};
use detml_core::{Backend, Error};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestRunner};

/// A device that a suite runs on, or why it can't.
///
/// An absent device reads OWED in the output; with `DETML_REQUIRE_DEVICES` set it fails.
pub(crate) fn device(backend: Backend) -> Option<Device> {
    match Device::for_backend(backend) {
        Ok(device) => Some(device),
        Err(Error::DeviceUnavailable { device, reason }) => {
            assert!(
                std::env::var_os("DETML_REQUIRE_DEVICES").is_none(),
                "{device} is required: {reason}"
            );
            println!("OWED {device}: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The CPU at a level, or `None` with OWED in the output where this CPU lacks it.
pub(crate) fn cpu(simd: Simd) -> Option<Device> {
    if simd.is_available() {
        Some(Device::cpu_with(simd))
    } else {
        println!("OWED cpu {simd:?}: this CPU lacks it");
        None
    }
}

/// `backend_suite! { a, b }` makes tests `cpu_plain::a`, `cpu_avx2::a`, ..., `wgpu::a` of the
/// functions `fn a(device: &Device)` in the enclosing module.
macro_rules! backend_suite {
    ($($test:ident),+ $(,)?) => {
        $crate::suite::cpu_suite!($($test),+);
        #[cfg(feature = "cuda")]
        $crate::suite::backend_suite!(@ cuda, $crate::suite::device(detml_core::Backend::Cuda(0)), $($test),+);
        #[cfg(feature = "hip")]
        $crate::suite::backend_suite!(@ hip, $crate::suite::device(detml_core::Backend::Hip(0)), $($test),+);
        #[cfg(any(feature = "wgpu", feature = "emulated"))]
        $crate::suite::backend_suite!(@ wgpu, $crate::suite::device(detml_core::Backend::Wgpu(0)), $($test),+);
    };
    (@ $backend:ident, $device:expr, $($test:ident),+) => {
        mod $backend {
            $(
                #[test]
                fn $test() {
                    if let Some(device) = $device {
                        super::$test(&device);
                    }
                }
            )+
        }
    };
}
pub(crate) use backend_suite;

/// As [`backend_suite`], for what has no GPU path: the CPU levels alone.
macro_rules! cpu_suite {
    ($($test:ident),+ $(,)?) => {
        $crate::suite::backend_suite!(@ cpu_plain, $crate::suite::cpu($crate::Simd::Plain), $($test),+);
        $crate::suite::backend_suite!(@ cpu_neon, $crate::suite::cpu($crate::Simd::Neon), $($test),+);
        $crate::suite::backend_suite!(@ cpu_avx2, $crate::suite::cpu($crate::Simd::Avx2), $($test),+);
        $crate::suite::backend_suite!(@ cpu_avx512, $crate::suite::cpu($crate::Simd::Avx512), $($test),+);
    };
}
pub(crate) use cpu_suite;

/// Draws values and checks each, `[on the CPU, on a GPU]` so many, times `DETML_FUZZ` if that is
/// set. The draws are new in each run, and the values that fail are made small and printed.
pub(crate) fn for_all<S: Strategy>(
    device: &Device,
    cases: [u32; 2],
    values: S,
    check: impl Fn(S::Value),
) {
    let times = std::env::var("DETML_FUZZ").map_or(1, |times| {
        times
            .parse()
            .unwrap_or_else(|_| panic!("DETML_FUZZ={times}: expected a whole number"))
    });
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(cases[usize::from(!device.is_cpu())].saturating_mul(times))
    };
    TestRunner::new(config)
        .run(&values, |value| {
            check(value);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{device}: {error}"));
}

/// Asserts equal bits, naming the first element that differs.
#[track_caller]
pub(crate) fn assert_bits(what: &str, got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!(
            g.to_bits() == e.to_bits(),
            "{what}: element {i} is {g:e} ({:08x}), expected {e:e} ({:08x})",
            g.to_bits(),
            e.to_bits()
        );
    }
}

/// As [`assert_bits`], for words.
#[track_caller]
pub(crate) fn assert_words(what: &str, got: &[u32], expected: &[u32]) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!(g == e, "{what}: element {i} is {g:08x}, expected {e:08x}");
    }
}

/// `n` words from a counter: any bit pattern, NaN, infinities and subnormals included.
pub(crate) fn any_bits(seed: u32, n: usize) -> Vec<f32> {
    (0..n as u32)
        .map(|i| f32::from_bits(hash(seed, i)))
        .collect()
}

/// `n` finite numbers of magnitude around 1, both signs.
pub(crate) fn moderate(seed: u32, n: usize) -> Vec<f32> {
    (0..n as u32)
        .map(|i| {
            let h = hash(seed, i);
            // Exponents 2^-8 ... 2^7.
            f32::from_bits((h & 0x807f_ffff) | ((119 + (h >> 23 & 15)) << 23))
        })
        .collect()
}

/// An integer mix with full avalanche.
pub(crate) fn hash(seed: u32, i: u32) -> u32 {
    let mut x = i
        .wrapping_add(seed.wrapping_mul(0x9e37_79b9))
        .wrapping_add(0x85eb_ca6b);
    x = (x ^ (x >> 16)).wrapping_mul(0x21f0_aaad);
    x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
    x ^ (x >> 15)
}
