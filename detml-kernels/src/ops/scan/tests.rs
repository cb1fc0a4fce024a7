use super::*;
use crate::device::Device;
use crate::suite::*;
use proptest::prelude::*;

const LENGTHS: [usize; 12] = [
    0, 1, 2, 255, 256, 257, 2047, 2048, 2049, 4097, 65_537, 100_000,
];

fn words(seed: u32, n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| hash(seed, i)).collect()
}

fn sums_equal_plain(device: &Device, x: &[u32]) {
    let buffer = device.upload(x).unwrap();
    let (expected, sum) = plain::exclusive(x);
    let (got, total) = exclusive_with_total(&buffer).unwrap();
    assert!(device.read(&got).unwrap() == expected, "n = {}", x.len());
    assert_eq!(device.read(&total).unwrap(), [sum], "n = {}", x.len());
    let got = inclusive(&buffer).unwrap();
    assert!(device.read(&got).unwrap() == plain::inclusive(x));
}

fn prefix_sums(device: &Device) {
    for n in LENGTHS {
        sums_equal_plain(device, &words(1, n));
    }
    sums_equal_plain(device, &vec![1; 5000]);
    sums_equal_plain(device, &vec![u32::MAX; 5000]);
}

fn signed(device: &Device) {
    let x: Vec<i32> = words(2, 3000).iter().map(|w| *w as i32).collect();
    let got = device.read(&exclusive(&device.upload(&x).unwrap()).unwrap());
    let mut sum = 0i32;
    for (i, (g, v)) in got.unwrap().iter().zip(&x).enumerate() {
        assert_eq!(*g, sum, "element {i}");
        sum = sum.wrapping_add(*v);
    }
}

/// Several chunks of several steps.
fn deep(device: &Device) {
    let x = words(3, 2048 * 2048 + 3);
    let got = exclusive_with_total(&device.upload(&x).unwrap()).unwrap();
    let (expected, sum) = plain::exclusive(&x);
    assert!(device.read(&got.0).unwrap() == expected);
    assert_eq!(device.read(&got.1).unwrap(), [sum]);
}

fn flags_equal_plain(device: &Device, flags: &[u32]) {
    let buffer = device.upload(flags).unwrap();
    let got = compact(&buffer).unwrap();
    assert!(device.read(&got).unwrap() == plain::compact(flags));
    let got = partition(&buffer).unwrap();
    let (indices, left) = plain::partition(flags);
    assert!(device.read(&got.indices).unwrap() == indices);
    assert_eq!(device.read(&got.left).unwrap(), [left]);
}

fn flags(device: &Device) {
    for n in LENGTHS {
        for one_in in [1, 2, 3, 1000] {
            let flags: Vec<u32> = words(n as u32, n)
                .iter()
                .map(|w| if w % one_in == 0 { w | 1 } else { 0 })
                .collect();
            flags_equal_plain(device, &flags);
        }
        flags_equal_plain(device, &vec![0; n]);
    }
}

/// However many chunks there are, each of one step or of many.
fn shares_do_not_show(device: &Device) {
    if device.is_cpu() {
        return;
    }
    for n in [1, 4095, 4096, 8192, 20_480, 40_001, 98_304] {
        let x = words(5, n);
        let buffer = device.upload(&x).unwrap();
        let flags: Vec<u32> = x.iter().map(|w| w & 2).collect();
        let flag_buffer = device.upload(&flags).unwrap();
        for chunks in [1, 2, 5, 1000] {
            for inclusive in [false, true] {
                let (got, total) = gpu::scan_in(&buffer, inclusive, chunks).unwrap();
                let expected = match inclusive {
                    false => plain::exclusive(&x).0,
                    true => plain::inclusive(&x),
                };
                assert!(device.read(&got).unwrap() == expected, "{n} in {chunks}");
                assert_eq!(device.read(&total).unwrap(), [plain::exclusive(&x).1]);
            }
            let got = gpu::compact_in(&flag_buffer, chunks).unwrap();
            assert!(device.read(&got).unwrap() == plain::compact(&flags));
            let got = gpu::partition_in(&flag_buffer, chunks).unwrap();
            let (indices, left) = plain::partition(&flags);
            assert!(device.read(&got.indices).unwrap() == indices);
            assert_eq!(device.read(&got.left).unwrap(), [left]);
        }
    }
}

backend_suite! { prefix_sums, signed, deep, flags, shares_do_not_show, chunks_do_not_show }

/// A base one tile late is seen.
#[test]
fn a_wrong_base_differs() {
    let x = words(4, 4096);
    let (mut wrong, _) = plain::exclusive(&x);
    let late = plain::exclusive(&x[2048..]).0;
    wrong[2048..].copy_from_slice(&late);
    assert!(wrong != plain::exclusive(&x).0);
}

#[test]
fn too_long_a_row_is_refused() {
    assert!(check_len("scan", 1 << 31).is_ok());
    let error = check_len("scan", (1 << 31) + 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "scan: expected shape at most 2147483648 elements, got 2147483649"
    );
}

fn chunks_do_not_show(device: &Device) {
    let words = prop::collection::vec(any::<u32>(), 0..2000);
    for_all(device, [64, 8], (words, 0usize..2000), |(x, cut)| {
        let cut = cut.min(x.len());
        let (a, first) = plain::exclusive(&x[..cut]);
        let (b, _) = plain::exclusive(&x[cut..]);
        let joined: Vec<u32> = a
            .into_iter()
            .chain(b.iter().map(|v| v.wrapping_add(first)))
            .collect();
        let sums = exclusive(&device.upload(&x).unwrap()).unwrap();
        assert_eq!(device.read(&sums).unwrap(), joined);
    });
}
