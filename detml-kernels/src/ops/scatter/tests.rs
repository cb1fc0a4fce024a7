use super::*;
use crate::device::Device;
use crate::suite::{assert_words, backend_suite, hash};

backend_suite! { shapes_and_duplicates, refusals }

fn numbers(seed: u32, n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| hash(seed, i)).collect()
}

fn shapes_and_duplicates(device: &Device) {
    for [r, c, n] in [
        [5, 1, 9],
        [5, 3, 9],
        [5, 4, 0],
        [300, 28, 1000],
        [3000, 8, 100],
        [7, 333, 500],
        [0, 3, 4],
        [3, 0, 4],
        [1, 1, 70_000],
        [2000, 1, 300],
    ] {
        let (old, x) = (numbers(1, r * c), numbers(2, n * c));
        let index: Vec<u32> = numbers(3, n)
            .iter()
            .map(|&h| if h % 50 == 0 { h } else { h % r.max(1) as u32 })
            .collect();
        let mut out = device.upload(&old).unwrap();
        let (i, here) = (device.upload(&index).unwrap(), device.upload(&x).unwrap());
        rows(&mut out, [r, c], &i, &here).unwrap();
        let mut expected = old.clone();
        if c > 0 {
            plain::rows(&mut expected, c, &index, &x);
        }
        assert_words(
            &format!("{r} x {c}"),
            &device.read(&out).unwrap(),
            &expected,
        );
        if device.is_cpu() || expected.is_empty() || x.is_empty() {
            continue;
        }
        for by_row in [false, true] {
            let mut out = device.upload(&old).unwrap();
            gpu::run_by(by_row, &mut out, r, c, &i, &here).unwrap();
            assert_words(
                &format!("{r} x {c}, by row: {by_row}"),
                &device.read(&out).unwrap(),
                &expected,
            );
        }
    }
    let mut out = device.upload(&[0i32; 3]).unwrap();
    let (i, x) = (
        device.upload(&[1, 1, 0]).unwrap(),
        device.upload(&[-1i32, -2, -3]).unwrap(),
    );
    elements(&mut out, &i, &x).unwrap();
    assert_eq!(device.read(&out).unwrap(), [-3, -2, 0]);
}

fn refusals(device: &Device) {
    let mut out = device.upload(&[0u32; 6]).unwrap();
    let (x, i) = (
        device.upload(&[0u32; 4]).unwrap(),
        device.upload(&[0u32; 2]).unwrap(),
    );
    for shape in [[2, 2], [2, 3], [usize::MAX, 3]] {
        let error = rows(&mut out, shape, &i, &x).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    }
}

/// Sabotage: the first of equal indices instead of the last shows.
#[test]
fn the_first_winner_shows() {
    let (index, x) = ([0, 1, 0], [7, 8, 9]);
    let mut right = [0; 2];
    plain::rows(&mut right, 1, &index, &x);
    let mut first = [0; 2];
    for (i, x) in index.iter().zip(x).rev() {
        first[*i as usize] = x;
    }
    assert_ne!(right, first);
}
