use super::*;
use crate::device::Device;
use crate::suite::{assert_words, backend_suite, hash};

backend_suite! { shapes, bits_stay, checks, refusals }

fn numbers(seed: u32, n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| hash(seed, i)).collect()
}

fn shapes(device: &Device) {
    for [r, c, n] in [
        [5, 1, 9],
        [5, 3, 9],
        [5, 4, 9],
        [300, 28, 1000],
        [7, 333, 50],
        [3, 0, 4],
        [0, 3, 4],
        [4, 4, 0],
        [1000, 1, 70_000],
    ] {
        let x = numbers(1, r * c);
        let here = device.upload(&x).unwrap();
        for (of, bound) in [(Of::Rows, r), (Of::Columns, c)] {
            if of == Of::Columns && r * n > 1_000_000 {
                continue;
            }
            // One in fifty beyond the matrix.
            let index: Vec<u32> = numbers(2, n)
                .iter()
                .map(|&h| {
                    if h % 50 == 0 {
                        h
                    } else {
                        h % bound.max(1) as u32
                    }
                })
                .collect();
            let i = device.upload(&index).unwrap();
            let got = gather(of, &here, [r, c], &i).unwrap();
            let expected = plain::gather(of, &x, [r, c], &index);
            assert_words(
                &format!("{of:?} {r} x {c}"),
                &device.read(&got).unwrap(),
                &expected,
            );
        }
    }
}

fn bits_stay(device: &Device) {
    let x: Vec<f32> = [0xffc0_0001u32, 0x7f80_0001, 0x8000_0000, 1]
        .map(f32::from_bits)
        .into();
    let (x, i) = (
        device.upload(&x).unwrap(),
        device.upload(&[3u32, 0, 1, 9]).unwrap(),
    );
    let got = device.read(&elements(&x, &i).unwrap()).unwrap();
    let got: Vec<_> = got.iter().map(|x| x.to_bits()).collect();
    assert_eq!(got, [1, 0xffc0_0001, 0x7f80_0001, 0]);
}

fn checks(device: &Device) {
    let index = device.upload(&[3u32, 0, 7, 9]).unwrap();
    check(&index, 10).unwrap();
    let error = check(&index, 7).unwrap_err();
    assert!(
        matches!(error, Error::InvalidValue { row: 2, .. }),
        "{error}"
    );
    check(&device.upload(&[]).unwrap(), 0).unwrap();
}

fn refusals(device: &Device) {
    let (x, i) = (
        device.upload(&[0i32; 6]).unwrap(),
        device.upload(&[0u32; 2]).unwrap(),
    );
    for shape in [[2, 2], [usize::MAX, 3], [0, usize::MAX]] {
        let error = rows(&x, shape, &i).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    }
}

/// Sabotage: an index that is held within the matrix instead of giving zeros shows.
#[test]
fn a_clamped_index_shows() {
    let x = [5, 6];
    let right = plain::gather(Of::Rows, &x, [2, 1], &[7]);
    let clamped = plain::gather(Of::Rows, &x, [2, 1], &[1]);
    assert_ne!(right, clamped);
}
