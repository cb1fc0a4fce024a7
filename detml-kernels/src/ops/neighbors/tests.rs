use super::*;
use crate::device::Device;
use crate::suite::*;
use proptest::prelude::*;

/// Numbers near 1 on a coarse grid, so that distances tie; now and then a zero of either sign, an
/// infinity, a NaN, a subnormal or anything.
fn spiced(seed: u32, n: usize) -> Vec<f32> {
    (0..n as u32)
        .map(|i| {
            let h = hash(seed, i);
            match h % 500 {
                0 => f32::from_bits(h & 0x8000_0000),
                1 => f32::from_bits(0x7f80_0000 | (h & 0x8000_0000)),
                2 => f32::from_bits(0x7f80_0001 | h),
                3..5 => f32::from_bits(h & 0x807f_ffff),
                5..8 => f32::from_bits(h.rotate_left(9)),
                _ => ((h >> 9) % 16) as f32 - 7.5,
            }
        })
        .collect()
}

fn words(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[track_caller]
fn equals_plain(device: &Device, x: &[f32], y: &[f32], shape: [usize; 3], k: usize, plan: Plan) {
    let (queries, points) = (device.upload(x).unwrap(), device.upload(y).unwrap());
    for metric in Metric::ALL {
        let what = format!("{metric:?} {shape:?}, k = {k}, {plan:?}");
        let near = nearest_by(metric, &queries, &points, shape, k, plan).unwrap();
        let (distances, indices) = plain::nearest(metric, x, y, shape, k);
        assert_eq!(near.k, k.min(shape[1]), "{what}");
        assert_words(&what, &device.read(&near.indices).unwrap(), &indices);
        assert_bits(&what, &device.read(&near.distances).unwrap(), &distances);
    }
}

#[track_caller]
fn matrix_equals_plain(device: &Device, x: &[f32], y: &[f32], shape: [usize; 3], plan: Plan) {
    let (queries, points) = (device.upload(x).unwrap(), device.upload(y).unwrap());
    for metric in Metric::ALL {
        let what = format!("{metric:?} {shape:?}, {plan:?}");
        let all = pairwise_by(metric, &queries, &points, shape, plan).unwrap();
        let expected = plain::pairwise(metric, x, y, shape);
        assert_bits(&what, &device.read(&all).unwrap(), &expected);
    }
}

fn shapes(device: &Device) {
    for (q, n, d) in [
        (0, 3, 2),
        (3, 0, 2),
        (2, 3, 0),
        (1, 1, 1),
        (5, 33, 3),
        (33, 70, 4),
        (3, 130, 9),
        (40, 31, 8),
    ] {
        let (x, y) = (spiced(1, q * d), spiced(2, n * d));
        for k in [0, 1, 10, n, n + 1] {
            equals_plain(device, &x, &y, [q, n, d], k, Plan::default());
        }
        matrix_equals_plain(device, &x, &y, [q, n, d], Plan::default());
    }
}

/// More than one panel, and lists longer than those in shared memory.
fn deep(device: &Device) {
    for (q, n, d, k) in [(2, 40, 256, 3), (3, 35, 513, 5), (2, 1100, 2, 100)] {
        let (x, y) = (spiced(3, q * d), spiced(4, n * d));
        equals_plain(device, &x, &y, [q, n, d], k, Plan::default());
    }
    let (x, y) = (spiced(5, 3 * 300), spiced(6, 7 * 300));
    matrix_equals_plain(device, &x, &y, [3, 7, 300], Plan::default());
}

/// No tile, split or batch shows (`N8`).
fn schedules(device: &Device) {
    let [q, n, d] = [37, 300, 12];
    let (x, y) = (spiced(7, q * d), spiced(8, n * d));
    let (cpu, gpu) = (cpu::Plan::default(), gpu::Plan::default());
    if device.is_cpu() {
        for (block, splits) in [(1, 1), (5, 2), (37, 3), (100, 50)] {
            let cpu = cpu::Plan {
                block: Some(block),
                splits: Some(splits),
            };
            for k in [1, 70] {
                equals_plain(device, &x, &y, [q, n, d], k, Plan { cpu, gpu });
            }
        }
    } else {
        let roomy = !matches!(device.backend(), detml_core::Backend::Wgpu(_));
        for tile in gpu::Tile::ALL {
            if tile != gpu::Tile::SMALL && !roomy {
                continue;
            }
            for (splits, batch) in [(1, 37), (2, 5), (100, 36)] {
                let gpu = gpu::Plan {
                    tile: Some(tile),
                    splits: Some(splits),
                    batch: Some(batch),
                };
                for k in [1, tile.longest(), 70] {
                    equals_plain(device, &x, &y, [q, n, d], k, Plan { cpu, gpu });
                }
            }
            let d = 260;
            let (x, y) = (spiced(7, 40 * d), spiced(8, 130 * d));
            let gpu = gpu::Plan {
                tile: Some(tile),
                ..gpu
            };
            equals_plain(device, &x, &y, [40, 130, d], 7, Plan { cpu, gpu });
            matrix_equals_plain(device, &x, &y, [40, 130, d], Plan { cpu, gpu });
        }
    }
}

/// C3: the lowest index wins among equal distances, and NaN comes last, by index too.
fn c3_equal_distances_and_nan(device: &Device) {
    let points = device
        .upload(&[5.0f32, f32::NAN, 5.0, 6.0, 4.0, f32::INFINITY, -f32::NAN])
        .unwrap();
    let query = device.upload(&[5.0f32]).unwrap();
    let near = nearest(Metric::SquaredEuclidean, &query, &points, [1, 7, 1], 7).unwrap();
    assert_eq!(device.read(&near.indices).unwrap(), [0, 2, 3, 4, 5, 1, 6]);
    assert_eq!(
        words(&device.read(&near.distances).unwrap()),
        [
            0,
            0,
            0x3f80_0000,
            0x3f80_0000,
            0x7f80_0000,
            0x7fc0_0000,
            0x7fc0_0000
        ]
    );
    let near = nearest(Metric::InnerProduct, &query, &points, [1, 7, 1], 4).unwrap();
    assert_eq!(device.read(&near.indices).unwrap(), [5, 3, 0, 2]);
    assert_eq!(
        device.read(&near.distances).unwrap(),
        [f32::INFINITY, 30.0, 25.0, 25.0]
    );
    assert!(nearest(Metric::Manhattan, &query, &points, [1, 4, 2], 1).is_err());
}

/// N7: a query's row is the same alone and in a batch, a point's the same among others.
fn n7_rows_do_not_depend_on_the_batch(device: &Device) {
    let [q, n, d, k] = [34, 90, 5, 6];
    let (x, y) = (spiced(9, q * d), spiced(10, n * d));
    let (queries, points) = (device.upload(&x).unwrap(), device.upload(&y).unwrap());
    let metric = Metric::SquaredEuclidean;
    let all = nearest(metric, &queries, &points, [q, n, d], k).unwrap();
    let all = device.read(&all.distances).unwrap();
    for i in [0, 17, 33] {
        let query = device.upload(&x[i * d..][..d]).unwrap();
        let one = nearest(metric, &query, &points, [1, n, d], k).unwrap();
        assert_bits(
            "a query alone",
            &device.read(&one.distances).unwrap(),
            &all[i * k..][..k],
        );
    }
}

fn any_bits_any_shape(device: &Device) {
    let bits = prop::collection::vec(any::<u32>(), 1..1500);
    let cases = (bits, any::<u32>(), 1usize..40, 1usize..40, 0usize..50);
    for_all(device, [64, 8], cases, |(bits, mask, q, d, k)| {
        let values: Vec<f32> = bits.iter().map(|b| f32::from_bits(b & mask)).collect();
        let rows = values.len() / d;
        let q = q.min(rows);
        let (x, y) = (&values[..q * d], &values[q * d..rows * d]);
        equals_plain(device, x, y, [q, rows - q, d], k, Plan::default());
        matrix_equals_plain(device, x, y, [q, rows - q, d], Plan::default());
    });
}

backend_suite! {
    shapes, deep, schedules, c3_equal_distances_and_nan, n7_rows_do_not_depend_on_the_batch,
    any_bits_any_shape
}

/// Another order of the sum, an expanded square or another tie shows in the suite's data.
#[test]
fn mistakes_show() {
    let [q, n, d] = [5, 33, 40];
    let (x, y) = (moderate(1, q * d), moderate(2, n * d));
    let right = words(&plain::pairwise(
        Metric::SquaredEuclidean,
        &x,
        &y,
        [q, n, d],
    ));
    let sums = |term: &dyn Fn(f32, &mut dyn Iterator<Item = (f32, f32)>) -> f32| {
        let mut out = Vec::new();
        for i in 0..q {
            for j in 0..n {
                let (a, b) = (plain::row(&x, i, d), plain::row(&y, j, d));
                let mut pairs = a.iter().copied().zip(b.iter().copied());
                out.push(term(0.0, &mut pairs).to_bits());
            }
        }
        out
    };
    let ieee = Ieee::PLAIN;
    let unfused = sums(&|s, pairs| {
        pairs.fold(s, |s, (q, x)| {
            let t = ieee.sub(q, x);
            ieee.add(s, ieee.mul(t, t))
        })
    });
    assert_ne!(unfused, right);
    let backwards = sums(&|s, pairs| {
        let pairs: Vec<_> = pairs.collect();
        pairs.into_iter().rev().fold(s, |s, (q, x)| {
            let t = ieee.sub(q, x);
            ieee.fma(t, t, s)
        })
    });
    assert_ne!(backwards, right);
    let expanded = sums(&|s, pairs| {
        let (mut a, mut b, mut c) = (s, s, s);
        for (q, x) in pairs {
            a = ieee.fma(q, q, a);
            b = ieee.fma(q, x, b);
            c = ieee.fma(x, x, c);
        }
        ieee.add(ieee.fma(-2.0, b, a), c)
    });
    assert_ne!(expanded, right);
    // The last of equal distances.
    let (x, y) = (spiced(1, 3), spiced(2, 99));
    let (distances, indices) = plain::nearest(Metric::SquaredEuclidean, &x, &y, [3, 99, 1], 99);
    assert!((1..297).any(|i| {
        i % 99 != 0 && distances[i] == distances[i - 1] && indices[i] > indices[i - 1]
    }));
}

/// Values of `scripts/near_recurrence.py`.
#[test]
fn matches_binary64() {
    const SQUARED: [f64; 6] = [
        191.56255440606077,
        183.21163217923873,
        190.64764490780678,
        198.32958320508584,
        208.07108035375794,
        202.55678186014882,
    ];
    const MANHATTAN: [f64; 6] = [
        191.79540872573853,
        187.72191035747528,
        192.48094391822815,
        198.1770292520523,
        204.7854630947113,
        201.07009303569794,
    ];
    const INNER: [f64; 6] = [
        2.776526189366024,
        0.9193238818872516,
        -0.03357055406561926,
        6.334582029051646,
        -4.5688299661742064,
        0.9534312089615042,
    ];
    let small = |seed: u32, n: u32| -> Vec<f32> {
        (0..n)
            .map(|i| (hash(seed, i) >> 8) as f32 / 8_388_608.0 - 1.0)
            .collect()
    };
    let (x, y) = (small(1, 600), small(2, 900));
    for (metric, expected) in Metric::ALL.into_iter().zip([SQUARED, MANHATTAN, INNER]) {
        let got = plain::pairwise(metric, &x, &y, [2, 3, 300]);
        for (got, expected) in got.iter().zip(expected) {
            // Some units in the last place of 200.
            let error = (f64::from(*got) - expected).abs();
            assert!(error < 1.5e-4, "{metric:?}: {got}, expected {expected}");
        }
    }
}
