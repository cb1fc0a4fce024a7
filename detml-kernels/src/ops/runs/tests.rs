use super::*;
use crate::device::Device;
use crate::ops::sort::plain::{Compare, argsort};
use crate::suite::*;

/// (start, length) of each run, by comparison of neighbours.
fn plain<K: Compare>(keys: &[K]) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for (i, key) in keys.iter().enumerate() {
        match runs.last_mut() {
            Some((_, length)) if key.compare(keys[i - 1], Order::Ascending).is_eq() => *length += 1,
            _ => runs.push((i as u32, 1)),
        }
    }
    runs
}

fn equals_plain<K: Key + Compare>(device: &Device, keys: &[K]) {
    let got = runs(&device.upload(keys).unwrap()).unwrap();
    let (starts, lengths): (Vec<u32>, Vec<u32>) = plain(keys).into_iter().unzip();
    assert!(device.read(&got.starts).unwrap() == starts);
    assert!(device.read(&got.lengths).unwrap() == lengths);
    let raw: &[u32] = bytemuck::cast_slice(keys);
    for (first, start) in device.read(&got.keys).unwrap().iter().zip(&starts) {
        let mut bits = raw[*start as usize];
        if K::KIND.is_float() && f32::from_bits(bits).is_nan() {
            bits = 0x7fc0_0000;
        }
        assert_eq!(bytemuck::cast::<K, u32>(*first), bits);
    }
}

fn unique_keys(device: &Device) {
    for n in [0u32, 1, 255, 256, 257, 70_000] {
        let words: Vec<u32> = (0..n).map(|i| hash(1, i) % 50).collect();
        equals_plain(device, &words);
        let sorted: Vec<u32> = argsort(&words, Order::Ascending)
            .iter()
            .map(|i| words[*i as usize])
            .collect();
        equals_plain(device, &sorted);
        equals_plain(device, &vec![7i32; n as usize]);
        let specials: Vec<f32> = (0..n)
            .map(|i| {
                let h = hash(2, i) as usize % 6;
                f32::from_bits([0, 0x8000_0000, 0x7fc0_0000, 0xffff_ffff, 1, 2][h])
            })
            .collect();
        equals_plain(device, &specials);
        equals_plain(device, &any_bits(3, n as usize));
    }
}

backend_suite! { unique_keys }

/// Runs by bits instead of by order are seen by the suite's keys.
#[test]
fn equal_bits_are_another_thing() {
    let keys = [0.0, -0.0, f32::NAN, -f32::NAN];
    let bits = keys.map(f32::to_bits);
    assert_eq!(plain(&keys), [(0, 2), (2, 2)]);
    assert_ne!(plain(&bits), plain(&keys));
}
