use super::*;
use crate::device::Device;
use crate::suite::*;
use proptest::prelude::*;

/// Bin numbers, one in sixteen beyond the last bin.
fn bins(seed: u32, n: usize, n_bins: usize) -> Vec<u32> {
    (0..n as u32)
        .map(|i| match hash(seed, i) {
            h if h & 15 == 0 => h | n_bins as u32,
            h => (h >> 4) % n_bins.max(1) as u32,
        })
        .collect()
}

fn equals_plain(device: &Device, bins: &[u32], words: &[u32], n_bins: usize) {
    let what = format!("{} elements, {n_bins} bins", bins.len());
    let buffer = device.upload(bins).unwrap();
    let got = device.read(&counts(&buffer, n_bins).unwrap()).unwrap();
    assert!(got == plain::counts(bins, n_bins), "counts, {what}");

    let unsigned = device.upload(words).unwrap();
    let got = sums(&buffer, &unsigned, n_bins).unwrap().read().unwrap();
    let wide = words.iter().map(|w| i64::from(*w));
    assert!(got == plain::sums(bins, wide, n_bins), "u32 sums, {what}");

    let signed: Vec<i32> = words.iter().map(|w| *w as i32).collect();
    let wide = signed.iter().map(|w| i64::from(*w));
    let signed = device.upload(&signed).unwrap();
    let got = sums(&buffer, &signed, n_bins).unwrap().read().unwrap();
    assert!(got == plain::sums(bins, wide, n_bins), "i32 sums, {what}");
}

fn extremes_equal_plain(device: &Device, bins: &[u32], values: &[f32], n_bins: usize) {
    let buffers = (device.upload(bins).unwrap(), device.upload(values).unwrap());
    let got = extremes(&buffers.0, &buffers.1, n_bins).unwrap();
    let (min, max): (Vec<f32>, Vec<f32>) =
        plain::extremes(bins, values, n_bins).into_iter().unzip();
    assert_bits("min", &device.read(&got.min).unwrap(), &min);
    assert_bits("max", &device.read(&got.max).unwrap(), &max);
}

fn counts_and_sums(device: &Device) {
    for n_bins in [0, 1, 2, 255, 256, 257, 2048, 2049, 4096, 4097, 65_536] {
        for n in [0, 1, 255, 257, 20_000] {
            let words: Vec<u32> = (0..n as u32).map(|i| hash(1, i)).collect();
            equals_plain(device, &bins(2, n, n_bins), &words, n_bins);
        }
    }
}

/// All elements in one bin; weights at the ends of their range, so that every addition carries
/// or borrows.
fn carries(device: &Device) {
    for n in [256usize, 100_000] {
        for n_bins in [3, 5000] {
            let one = vec![1u32; n];
            for word in [u32::MAX, i32::MAX as u32, i32::MIN as u32, 1] {
                equals_plain(device, &one, &vec![word; n], n_bins);
            }
            let mixed: Vec<u32> = (0..n as u32)
                .map(|i| [u32::MAX, 1, 0x8000_0000, 0x7fff_ffff][hash(3, i) as usize & 3])
                .collect();
            equals_plain(device, &one, &mixed, n_bins);
        }
    }
}

fn least_and_greatest(device: &Device) {
    for n_bins in [1, 10, 300, 5000] {
        let n = 3000;
        let bins = bins(4, n, n_bins);
        extremes_equal_plain(device, &bins, &any_bits(5, n), n_bins);
        let zeros: Vec<f32> = (0..n as u32)
            .map(|i| [0.0, -0.0, f32::NAN, 1e-45][hash(6, i) as usize & 3])
            .collect();
        extremes_equal_plain(device, &bins, &zeros, n_bins);
    }
    extremes_equal_plain(device, &[], &[], 2);
    extremes_equal_plain(device, &[0, 1, 0], &[f32::NAN, -0.0, -f32::NAN], 3);
}

fn refusals(device: &Device) {
    let bins = device.upload(&[1u32, 2, 3]).unwrap();
    let weights = device.upload(&[1u32, 2]).unwrap();
    let error = sums(&bins, &weights, 4).unwrap_err();
    assert_eq!(
        error.to_string(),
        "sums: expected shape 3 elements, one a bin number, got 2"
    );
    assert!(counts(&bins, (1 << 31) + 1).is_err());
}

backend_suite! { counts_and_sums, carries, least_and_greatest, refusals, any_words }

/// 32-bit sums would lose what the suite's weights carry.
#[test]
fn narrow_sums_differ() {
    let bins = vec![1u32; 256];
    let exact = plain::sums(&bins, bins.iter().map(|_| i64::from(u32::MAX)), 2);
    let narrow = bins.iter().fold(0u32, |s, _| s.wrapping_add(u32::MAX));
    assert_ne!(exact[1], i64::from(narrow));
}

/// The number of threads is not in the result.
#[test]
fn any_number_of_threads() {
    let device = Device::cpu();
    let (n, n_bins) = (300_000, 100);
    let bins = device.upload(&bins(7, n, n_bins)).unwrap();
    let words: Vec<u32> = (0..n as u32).map(|i| hash(8, i)).collect();
    let words = device.upload(&words).unwrap();
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap()
            .install(|| sums(&bins, &words, n_bins).unwrap().read().unwrap())
    };
    let one = with(1);
    for threads in [2, 3, 7] {
        assert!(with(threads) == one, "{threads} threads");
    }
}

fn any_words(device: &Device) {
    let pairs = prop::collection::vec((0u32..40, any::<u32>()), 0..500);
    for_all(device, [64, 8], (pairs, 0usize..50), |(pairs, n_bins)| {
        let (bins, words): (Vec<u32>, Vec<u32>) = pairs.into_iter().unzip();
        equals_plain(device, &bins, &words, n_bins);
        let values: Vec<f32> = words.iter().map(|w| f32::from_bits(*w)).collect();
        extremes_equal_plain(device, &bins, &values, n_bins);
    });
}
