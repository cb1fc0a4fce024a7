use super::*;
use crate::device::Device;
use crate::ops::sort::plain::Compare;
use crate::suite::*;
use proptest::prelude::*;

const ORDERS: [Order; 2] = [Order::Ascending, Order::Descending];

fn equals_plain<K: Key + Compare>(device: &Device, x: &[K], rows: usize, cols: usize, k: usize) {
    let buffer = device.upload(x).unwrap();
    for order in ORDERS {
        let what = format!("{rows} x {cols}, k = {k}, {order:?}");
        let best = topk(&buffer, rows, cols, k, order).unwrap();
        let expected = plain::topk(x, cols, k, order);
        assert_eq!(best.k, k.min(cols), "{what}");
        assert!(
            device.read(&best.indices).unwrap() == expected,
            "indices, {what}"
        );
        let values = device.read(&best.values).unwrap();
        let raw: &[u32] = bytemuck::cast_slice(x);
        for (at, (v, i)) in values.iter().zip(&expected).enumerate() {
            let mut bits = raw[at / best.k * cols + *i as usize];
            if K::KIND.is_float() && f32::from_bits(bits).is_nan() {
                bits = 0x7fc0_0000;
            }
            assert_eq!(bytemuck::cast::<K, u32>(*v), bits, "value {at}, {what}");
        }
    }
}

/// Any bit pattern; one in four a zero of either sign, one in eight a NaN.
fn hostile(seed: u32, n: usize) -> Vec<f32> {
    any_bits(seed, n)
        .into_iter()
        .map(|x| match x.to_bits() % 8 {
            0 | 1 => f32::from_bits(x.to_bits() & 0x8000_0000),
            2 => f32::from_bits(x.to_bits() | 0x7f80_0001),
            _ => x,
        })
        .collect()
}

fn rows(device: &Device) {
    for (rows, cols) in [
        (0, 3),
        (3, 0),
        (1, 1),
        (5, 3),
        (70, 64),
        (3, 65),
        (4, 257),
        (2, 2048),
        (3, 2049),
        (1, 65_537),
    ] {
        let x = hostile(1, rows * cols);
        for k in [0, 1, 5, 64, cols, cols + 1] {
            equals_plain(device, &x, rows, cols, k);
        }
    }
}

fn deep(device: &Device) {
    let x = hostile(2, 100_000);
    for k in [1, 1000, 1024, 1025] {
        equals_plain(device, &x, 2, 50_000, k);
    }
    // More cubes than one dimension of a grid has.
    equals_plain(device, &hostile(4, 210_003), 70_001, 3, 2);
    let x: Vec<i32> = (0..5000).map(|i| hash(3, i) as i32 % 100).collect();
    equals_plain(device, &x, 2, 2500, 300);
    let x: Vec<u32> = (0..5000).map(|i| hash(3, i)).collect();
    equals_plain(device, &x, 2, 2500, 300);
}

/// However rows are cut into groups, or into tiles.
fn cuts_do_not_show(device: &Device) {
    if device.is_cpu() {
        return;
    }
    // One group after another full of the first keys; all keys alike; any.
    let runs: Vec<f32> = (0..20_003).map(|i| (i / 300) as f32).collect();
    let nan = vec![f32::NAN; 20_003];
    for (x, rows, cols) in [
        (runs, 1, 20_003),
        (nan, 1, 20_003),
        (hostile(7, 9004), 4, 2251),
        (hostile(8, 9000), 3, 3000),
    ] {
        let buffer = device.upload(&x).unwrap();
        for (k, few) in [(1, 64), (7, 64), (7, 100_000), (100, 1000), (2100, 9000)] {
            let order = ORDERS[few / 64 % 2];
            let expected = plain::topk(&x, cols, k, order);
            let what = format!("{rows} x {cols}, k = {k} of {few}, {order:?}");
            if let Some(best) = gpu::of_groups(&buffer, rows, cols, k, order, few).unwrap() {
                assert!(device.read(&best.indices).unwrap() == expected, "{what}");
            }
            let best = gpu::of_tiles(&buffer, rows, cols, k, order).unwrap();
            assert!(device.read(&best.indices).unwrap() == expected, "{what}");
        }
    }
}

/// N5: ties go to the lowest index, -0 and +0 tie, NaN is chosen last, subnormals are numbers.
fn n5_ties_zeros_nan_subnormals(device: &Device) {
    let x = [-0.0, f32::NAN, 0.0, 1e-45, -1e-45, 0.0, -f32::NAN, 1e-45];
    let buffer = device.upload(&x).unwrap();
    let top = topk(&buffer, 1, 8, 5, Order::Descending).unwrap();
    assert_eq!(device.read(&top.indices).unwrap(), [3, 7, 0, 2, 5]);
    let bits: Vec<u32> = device
        .read(&top.values)
        .unwrap()
        .iter()
        .map(|v| v.to_bits())
        .collect();
    assert_eq!(bits, [1, 1, 0x8000_0000, 0, 0]);
    let all = topk(&buffer, 1, 8, 100, Order::Ascending).unwrap();
    assert_eq!(device.read(&all.indices).unwrap(), [4, 0, 2, 5, 3, 7, 1, 6]);
    let values = device.read(&all.values).unwrap();
    assert_eq!(values[6].to_bits(), 0x7fc0_0000);
    assert_eq!(values[7].to_bits(), 0x7fc0_0000);
    // Rows of NaN and of one value.
    equals_plain(device, &vec![f32::NAN; 9000], 3, 3000, 7);
    equals_plain(device, &vec![2.5f32; 9000], 3, 3000, 7);
}

/// C3: the lowest index wins among equal distances.
fn c3_equal_distances(device: &Device) {
    let x = device.upload(&[5.0f32; 4]).unwrap();
    let near = topk(&x, 1, 4, 2, Order::Ascending).unwrap();
    assert_eq!(device.read(&near.indices).unwrap(), [0, 1]);
}

/// C6: more neighbours asked for than there are.
fn c6_more_than_there_are(device: &Device) {
    let x = device.upload(&[3.0f32, 1.0, 2.0]).unwrap();
    let near = topk(&x, 1, 3, 10, Order::Ascending).unwrap();
    assert_eq!(near.k, 3);
    assert_eq!(device.read(&near.indices).unwrap(), [1, 2, 0]);
    assert!(topk(&x, 2, 2, 1, Order::Ascending).is_err());
}

backend_suite! {
    rows, deep, n5_ties_zeros_nan_subnormals, c3_equal_distances, c6_more_than_there_are,
    cuts_do_not_show, any_bits_any_shape
}

/// The last of two equal keys, or a NaN above infinity, is seen by the suite's keys.
#[test]
fn wrong_orders_differ() {
    let x = hostile(1, 257);
    let right = plain::topk(&x, 257, 5, Order::Ascending);
    let wrong = |compare: &dyn Fn(&u32, &u32) -> std::cmp::Ordering| {
        let mut indices: Vec<u32> = (0..257).collect();
        indices.sort_by(compare);
        indices
    };
    let key = |i: &u32| x[*i as usize];
    let highest = wrong(&|a, b| key(a).compare(key(b), Order::Descending).then(b.cmp(a)));
    let right_down = plain::topk(&x, 257, 257, Order::Descending);
    assert_ne!(highest, right_down);
    let total = wrong(&|a, b| key(a).total_cmp(&key(b)));
    assert_ne!(total[..5], right);
}

fn any_bits_any_shape(device: &Device) {
    let bits = prop::collection::vec(any::<u32>(), 0..9000);
    let cases = (bits, any::<u32>(), 1usize..5000, 0usize..500);
    for_all(device, [64, 12], cases, |(bits, mask, cols, k)| {
        let rows = bits.len() / cols;
        let x: Vec<f32> = bits[..rows * cols]
            .iter()
            .map(|b| f32::from_bits(b & mask))
            .collect();
        equals_plain(device, &x, rows, cols, k);
    });
}
