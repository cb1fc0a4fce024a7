use super::plain::Compare;
use super::*;
use crate::device::Device;
use crate::suite::*;
use proptest::prelude::*;

const ORDERS: [Order; 2] = [Order::Ascending, Order::Descending];
const LENGTHS: [usize; 12] = [
    0, 1, 2, 255, 256, 257, 2047, 2048, 2049, 5000, 65_537, 100_000,
];

fn canonical<K: Key>(keys: &[K]) -> Vec<u32> {
    bytemuck::cast_slice::<K, u32>(keys)
        .iter()
        .map(|raw| match f32::from_bits(*raw) {
            x if K::KIND == crate::ops::order::Kind::F32 && x.is_nan() => 0x7fc0_0000,
            _ => *raw,
        })
        .collect()
}

fn sorts_equal_plain<K: Key + Compare>(device: &Device, what: &str, keys: &[K]) {
    let buffer = device.upload(keys).unwrap();
    // Payload with repeats: its order shows that only the keys decide.
    let values: Vec<u32> = (0..keys.len() as u32).map(|i| hash(9, i) % 7).collect();
    let values_in = device.upload(&values).unwrap();
    let raw = canonical(keys);
    for order in ORDERS {
        let indices = plain::argsort(keys, order);
        let sorted: Vec<u32> = indices.iter().map(|i| raw[*i as usize]).collect();
        let moved: Vec<u32> = indices.iter().map(|i| values[*i as usize]).collect();
        let what = format!("{what}, {} keys, {order:?}", keys.len());

        let got = device.read(&argsort(&buffer, order).unwrap()).unwrap();
        assert!(got == indices, "argsort, {what}");
        let got = device.read(&sort(&buffer, order).unwrap()).unwrap();
        let got: &[u32] = bytemuck::cast_slice(&got);
        assert!(got == sorted, "sort, {what}");
        let (keys, values) = sort_by_key(&buffer, &values_in, order).unwrap();
        let keys = device.read(&keys).unwrap();
        let keys: &[u32] = bytemuck::cast_slice(&keys);
        assert!(keys == sorted, "keys of sort_by_key, {what}");
        assert!(
            device.read(&values).unwrap() == moved,
            "values of sort_by_key, {what}"
        );
    }
}

/// However large the tiles are.
fn tiles_do_not_show(device: &Device) {
    if device.is_cpu() {
        return;
    }
    for (rows, cols) in [(1, 20_001), (3, 5000), (40, 130)] {
        let x = any_bits(11, rows * cols);
        let x: Vec<f32> = (0..x.len())
            .map(|i| match i % 9 {
                0 => -0.0,
                1 => 0.0,
                2 => f32::NAN,
                _ => x[i],
            })
            .collect();
        let keys = device.upload(&x).unwrap();
        let raw = canonical(&x);
        for order in ORDERS {
            let expected = plain::argsort_rows(&x, cols, order);
            let sorted: Vec<u32> = expected
                .iter()
                .enumerate()
                .map(|(at, i)| raw[at / cols * cols + *i as usize])
                .collect();
            for units in gpu::UNITS {
                let what = format!("{rows} x {cols}, {order:?}, {units} units");
                let got = gpu::argsort(
                    &keys,
                    rows,
                    cols,
                    crate::ops::order::Kind::F32,
                    order,
                    units,
                )
                .unwrap();
                assert!(device.read(&got).unwrap() == expected, "{what}");
                let got = gpu::sort(
                    &keys,
                    rows,
                    cols,
                    crate::ops::order::Kind::F32,
                    order,
                    units,
                )
                .unwrap();
                let got = device.read(&got).unwrap();
                assert!(bytemuck::cast_slice::<f32, u32>(&got) == sorted, "{what}");
                if rows == 1 {
                    let (got, places) = gpu::sort_by_key(
                        &keys,
                        &device.upload(&raw).unwrap(),
                        crate::ops::order::Kind::F32,
                        order,
                        units,
                    )
                    .unwrap();
                    let got = device.read(&got).unwrap();
                    assert!(bytemuck::cast_slice::<f32, u32>(&got) == sorted, "{what}");
                    assert!(device.read(&places).unwrap() == sorted, "{what}");
                }
            }
        }
    }
}

fn any_keys(device: &Device) {
    for n in LENGTHS {
        let keys: Vec<u32> = (0..n as u32).map(|i| hash(1, i)).collect();
        sorts_equal_plain(device, "any u32", &keys);
        sorts_equal_plain(device, "any f32", &any_bits(3, n));
    }
    for n in [0, 257, 5000] {
        let keys: Vec<i32> = (0..n).map(|i| hash(2, i) as i32).collect();
        sorts_equal_plain(device, "any i32", &keys);
    }
}

/// Many ties, where stability decides, and keys in special arrangements.
fn ties_and_arrangements(device: &Device) {
    for n in [256u32, 2049, 70_000] {
        let specials: Vec<f32> = (0..n)
            .map(|i| SPECIAL[(hash(4, i) % SPECIAL.len() as u32) as usize])
            .map(f32::from_bits)
            .collect();
        sorts_equal_plain(device, "special numbers", &specials);
        let few: Vec<u32> = (0..n).map(|i| hash(5, i) % 3).collect();
        sorts_equal_plain(device, "three values", &few);
        sorts_equal_plain(device, "all equal", &vec![0xdead_beef_u32; n as usize]);
    }
    for n in [257u32, 2048, 70_000] {
        let sorted: Vec<u32> = (0..n).map(|i| i * 5).collect();
        let reverse: Vec<u32> = sorted.iter().rev().copied().collect();
        sorts_equal_plain(device, "sorted", &sorted);
        sorts_equal_plain(device, "reverse", &reverse);
        // Only the digits of one byte differ.
        let high: Vec<u32> = (0..n).map(|i| hash(6, i) & 0x00ff_0000).collect();
        sorts_equal_plain(device, "one digit", &high);
    }
}

/// Zeros of both signs, NaN of both signs and several payloads, subnormals, infinities.
const SPECIAL: [u32; 12] = [
    0,
    0x8000_0000,
    0x7fc0_0000,
    0xffc0_0001,
    0x7f80_0001,
    1,
    0x8000_0001,
    0x7f80_0000,
    0xff80_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x007f_ffff,
];

fn rows(device: &Device) {
    for (rows, cols) in [
        (0, 5),
        (5, 0),
        (1, 1),
        (7, 1),
        (1000, 1),
        (300, 10),
        (3, 511),
        (3, 512),
        (2, 2049),
        (28, 3000),
        (70_000, 2),
    ] {
        let keys: Vec<f32> = any_bits(7, rows * cols)
            .into_iter()
            .map(|x| {
                if x.to_bits() & 3 == 0 {
                    f32::from_bits(x.to_bits() & 0x8000_0000)
                } else {
                    x
                }
            })
            .collect();
        let buffer = device.upload(&keys).unwrap();
        for order in ORDERS {
            let expected = plain::argsort_rows(&keys, cols, order);
            let got = argsort_rows(&buffer, rows, cols, order).unwrap();
            assert!(device.read(&got).unwrap() == expected, "{rows} x {cols}");
            let raw = canonical(&keys);
            let sorted: Vec<u32> = (0..rows * cols)
                .map(|at| raw[at / cols * cols + expected[at] as usize])
                .collect();
            let got = sort_rows(&buffer, rows, cols, order).unwrap();
            let got = device.read(&got).unwrap();
            assert!(
                bytemuck::cast_slice::<f32, u32>(&got) == sorted,
                "{rows} x {cols}"
            );
        }
    }
}

fn refusals(device: &Device) {
    let keys = device.upload(&[1u32, 2, 3]).unwrap();
    let values = device.upload(&[1u32, 2]).unwrap();
    let error = sort_by_key(&keys, &values, Order::Ascending).unwrap_err();
    assert_eq!(
        error.to_string(),
        "sort_by_key: expected shape 3 values, got 2"
    );
    let error = sort_rows(&keys, 2, 2, Order::Ascending).unwrap_err();
    assert_eq!(
        error.to_string(),
        "sort: expected shape 2 x 2 elements, got 3"
    );
    assert!(argsort_rows(&keys, usize::MAX, 3, Order::Ascending).is_err());
}

backend_suite! { tiles_do_not_show, any_keys, ties_and_arrangements, rows, refusals, any_bits_any_length }

/// N5, N10: ties keep their order, zeros tie, NaN is last in both directions.
#[test]
fn n5_special_keys_by_hand() {
    let device = Device::cpu();
    let keys = [
        f32::NAN,
        0.0,
        -0.0,
        1e-45,
        -1e-45,
        f32::INFINITY,
        -f32::NAN,
        0.0,
    ];
    let buffer = device.upload(&keys).unwrap();
    let up = argsort(&buffer, Order::Ascending).unwrap();
    assert_eq!(device.read(&up).unwrap(), [4, 1, 2, 7, 3, 5, 0, 6]);
    let down = argsort(&buffer, Order::Descending).unwrap();
    assert_eq!(device.read(&down).unwrap(), [5, 3, 1, 2, 7, 4, 0, 6]);
}

/// An unstable order, ordered zeros and a NaN that is first are all seen by the suite's keys.
#[test]
fn wrong_orders_differ() {
    let keys: Vec<f32> = (0..256)
        .map(|i| f32::from_bits(SPECIAL[(hash(4, i) % SPECIAL.len() as u32) as usize]))
        .collect();
    let right = plain::argsort(&keys, Order::Ascending);
    let wrong = |compare: &dyn Fn(u32, u32) -> std::cmp::Ordering| {
        let mut indices: Vec<u32> = (0..256).collect();
        indices.sort_by(|a, b| compare(*a, *b));
        indices
    };
    let key = |i: u32| keys[i as usize];
    let by_key = |a, b| key(a).compare(key(b), Order::Ascending);
    assert_eq!(wrong(&by_key), right);
    assert_ne!(wrong(&|a, b| by_key(a, b).then(b.cmp(&a))), right);
    assert_ne!(wrong(&|a, b| key(a).total_cmp(&key(b))), right);
    let nan_first = |a: u32, b: u32| key(b).is_nan().cmp(&key(a).is_nan()).then(by_key(a, b));
    assert_ne!(wrong(&nan_first), right);
}

/// Rows beyond the cache, which the CPU parts by their top digits first.
#[test]
fn long_rows() {
    let device = Device::cpu();
    let n = 300_001;
    for mask in [u32::MAX, 0, 0xff, 0x00ff_0000, 0x0300_0011] {
        let keys: Vec<u32> = (0..n).map(|i| hash(9, i) & mask).collect();
        sorts_equal_plain(&device, "masked", &keys);
    }
    // Nearly all in one part.
    let keys: Vec<f32> = any_bits(10, n as usize)
        .into_iter()
        .map(|x| match x.to_bits() % 50 {
            0 => x,
            _ => f32::from_bits(x.to_bits() >> 8 | 0x3f00_0000),
        })
        .collect();
    sorts_equal_plain(&device, "skewed", &keys);
}

/// The number of threads is not in the result.
#[test]
fn any_number_of_threads() {
    let device = Device::cpu();
    let keys = device.upload(&any_bits(8, 200_001)).unwrap();
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| {
            let sorted = argsort(&keys, Order::Ascending).unwrap();
            device.read(&sorted).unwrap()
        })
    };
    let one = with(1);
    for threads in [2, 3, 7] {
        assert!(with(threads) == one, "{threads} threads");
    }
}

fn any_bits_any_length(device: &Device) {
    let keys = prop::collection::vec(any::<u32>(), 0..3000);
    for_all(device, [64, 8], (keys, any::<u32>()), |(bits, mask)| {
        let keys: Vec<f32> = bits.iter().map(|b| f32::from_bits(b & mask)).collect();
        sorts_equal_plain(device, "any keys", &keys);
    });
}
