use super::*;
use crate::ops::reduce::plain;
use crate::suite::{assert_words, backend_suite, hash, moderate};

backend_suite! { groups, long_groups, empty_groups, neighbours_do_not_show, refusals, unsorted_keys_are_refused }

fn words(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Sorted keys below `groups` whose runs have any length, some none.
fn keys(seed: u32, n: usize, groups: usize) -> Vec<u32> {
    let mut keys: Vec<u32> = (0..n as u32)
        .map(|i| {
            let h = u64::from(hash(seed, i));
            // Squared: low keys are frequent.
            ((((h * h) >> 32) * groups as u64) >> 32) as u32
        })
        .collect();
    keys.sort_unstable();
    keys
}

fn check<F: Traits>(device: &Device, x: &[f32], columns: usize, keys: &[u32], groups: usize) {
    let segments = Segments::of_sorted_keys(&device.upload(keys).unwrap(), groups).unwrap();
    assert_eq!(segments.len(), groups);
    let shift = if F::KIND.shifted {
        moderate(5, groups * columns)
    } else {
        Vec::new()
    };
    let (x_here, shift_here) = (device.upload(x).unwrap(), device.upload(&shift).unwrap());
    let given = F::KIND.shifted.then_some(&shift_here as &dyn AnyBuffer);
    let got: Buffer<u32> = super::fold::<F, _>(&x_here, columns, &segments, given, 1).unwrap();
    let mut expected = Vec::new();
    for g in 0..groups {
        for c in 0..columns {
            let line: Vec<u32> = keys
                .iter()
                .zip(x.chunks(columns))
                .filter(|(key, _)| **key as usize == g)
                .map(|(_, row)| row[c].to_bits())
                .collect();
            let shift = shift.get(g * columns + c).map_or(0, |x| x.to_bits());
            expected.push(plain::result::<F>(&line, shift, 1));
        }
    }
    let what = format!("{} {groups} groups of {columns} columns", F::KIND.name);
    assert_words(&what, &device.read(&got).unwrap(), &expected);
}

fn groups(device: &Device) {
    for (n, columns, groups) in [
        (1, 1, 1),
        (100, 1, 7),
        (100, 3, 7),
        (1000, 28, 5),
        (500, 1, 400),
        (3000, 40, 2),
    ] {
        let x = moderate(n as u32, n * columns);
        let keys = keys(n as u32, n, groups);
        check::<fold::Sum>(device, &x, columns, &keys, groups);
        check::<fold::Variance>(device, &x, columns, &keys, groups);
        check::<fold::ArgMax>(device, &x, columns, &keys, groups);
        // Rows whose keys are beyond the groups are in none.
        check::<fold::Sum>(device, &x, columns, &keys, groups / 2);
    }
    let x = moderate(1, 300);
    let keys = keys(2, 150, 9);
    check::<fold::Mean>(device, &x, 2, &keys, 9);
    check::<fold::Min>(device, &x, 2, &keys, 9);
    check::<fold::Max>(device, &x, 2, &keys, 9);
    check::<fold::ArgMin>(device, &x, 2, &keys, 9);
    check::<fold::SumSquares>(device, &x, 2, &keys, 9);
    check::<fold::SumWords>(device, &x, 2, &keys, 9);
    check::<fold::Count>(device, &x, 2, &keys, 9);
}

fn long_groups(device: &Device) {
    for (n, columns, groups) in [(20_000, 1, 3), (20_000, 3, 4), (70_000, 1, 1)] {
        let x = moderate(n as u32, n * columns);
        let keys = keys(n as u32, n, groups);
        check::<fold::Sum>(device, &x, columns, &keys, groups);
        check::<fold::Variance>(device, &x, columns, &keys, groups);
        check::<fold::ArgMin>(device, &x, columns, &keys, groups);
    }
}

fn empty_groups(device: &Device) {
    let x = device.upload(&[3.0f32, 1.0]).unwrap();
    let keys = device.upload(&[1u32, 1]).unwrap();
    let s = Segments::of_sorted_keys(&keys, 3).unwrap();
    assert_eq!(device.read(s.offsets()).unwrap(), [0, 0, 2, 2]);
    let bits = |x: Result<Buffer<f32>>| words(&device.read(&x.unwrap()).unwrap());
    let nan = 0x7fc0_0000;
    assert_eq!(bits(sum(&x, 1, &s)), [0, 4.0f32.to_bits(), 0]);
    assert_eq!(bits(mean(&x, 1, &s)), [nan, 2.0f32.to_bits(), nan]);
    assert_eq!(bits(min(&x, 1, &s)), [nan, 1.0f32.to_bits(), nan]);
    assert_eq!(bits(max(&x, 1, &s)), [nan, 3.0f32.to_bits(), nan]);
    assert_eq!(
        bits(mean_variance(&x, 1, &s, 0).map(|r| r.1)),
        [nan, 1.0f32.to_bits(), nan]
    );
    assert_eq!(
        device.read(&argmin(&x, 1, &s).unwrap()).unwrap(),
        [u32::MAX, 1, u32::MAX]
    );
    let none = Segments::of_offsets(device, &[0]).unwrap();
    assert!(none.is_empty());
    assert!(sum(&x, 1, &none).unwrap().is_empty());
    assert!(sum(&device.upload(&[]).unwrap(), 0, &s).unwrap().is_empty());
}

/// `N7`: a group's bits are those it has alone.
fn neighbours_do_not_show(device: &Device) {
    let x = moderate(8, 9000);
    let here = device.upload(&x).unwrap();
    let alone = |from: usize, to: usize| {
        let x = device.upload(&x[from..to]).unwrap();
        device
            .read(&reduce::sum(&x, reduce::Axis::Whole, [1, to - from]).unwrap())
            .unwrap()[0]
    };
    let s = Segments::of_offsets(device, &[3, 100, 5500, 9000]).unwrap();
    let got = device.read(&sum(&here, 1, &s).unwrap()).unwrap();
    assert_eq!(got, [alone(3, 100), alone(100, 5500), alone(5500, 9000)]);
}

fn refusals(device: &Device) {
    let error = Segments::of_offsets(device, &[]).unwrap_err();
    assert!(matches!(error, Error::InvalidParameter { .. }), "{error}");
    let error = Segments::of_offsets(device, &[0, 5, 4]).unwrap_err();
    assert!(matches!(error, Error::InvalidParameter { .. }), "{error}");
    let s = Segments::of_offsets(device, &[0, 2, 4]).unwrap();
    let x = device.upload(&[0.0f32; 7]).unwrap();
    for columns in [2, 3, 8, 0, usize::MAX] {
        let error = sum(&x, columns, &s).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    }
    let error = Segments::of_sorted_keys(&device.upload(&[]).unwrap(), usize::MAX).unwrap_err();
    assert!(matches!(error, Error::InvalidParameter { .. }), "{error}");
}

/// Keys that don't ascend are refused wherever the descent is.
fn unsorted_keys_are_refused(device: &Device) {
    for n in [2, 3, 255, 256, 257, 9000] {
        let sorted = keys(n as u32, n, 50);
        assert!(Segments::of_sorted_keys(&device.upload(&sorted).unwrap(), 50).is_ok());
        for at in [0, (n - 2) / 2, n - 2] {
            let mut keys = sorted.clone();
            // The first descent.
            keys[at] = u32::MAX;
            keys[at + 1] = u32::MAX - 1;
            match Segments::of_sorted_keys(&device.upload(&keys).unwrap(), 50) {
                Err(Error::InvalidParameter { name, got, .. }) => {
                    assert_eq!(name, "keys");
                    assert_eq!(got, format!("a lower key after the one at {at}"));
                }
                other => panic!("{n} keys, descent at {at}: {other:?}"),
            }
        }
    }
}

/// Sabotage: segments cut where a group lies instead of from its own first row show. (Lanes alone
/// would not: turning them round leaves the tree's pairs as they are.)
#[test]
fn cuts_by_row_show() {
    let differ = (0..20).filter(|&seed| {
        let x = words(&moderate(seed, 6000));
        let right = plain::result::<fold::Sum>(&x[37..], 0, 0);
        let mut padded = vec![0; 37];
        padded.extend(&x[37..]);
        right != plain::result::<fold::Sum>(&padded, 0, 0)
    });
    // One sum may round alike in two orders.
    assert!(differ.count() >= 5);
}
