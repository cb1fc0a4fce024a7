use super::*;
use crate::device::Device;
use crate::suite::{assert_words, backend_suite, hash};

backend_suite! { shapes, batches, bits_stay, refusals }

fn numbers(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| hash(3, i)).collect()
}

fn shapes(device: &Device) {
    for [rows, columns] in [
        [1, 1],
        [1, 7],
        [7, 1],
        [0, 5],
        [5, 0],
        [3, 4],
        [31, 33],
        [32, 32],
        [64, 96],
        [65, 40],
        [200, 333],
        [1, 5000],
        [5000, 1],
    ] {
        let x = numbers(rows * columns);
        let got = transpose(&device.upload(&x).unwrap(), [rows, columns]).unwrap();
        let expected = plain::transpose(&x, rows, columns);
        assert_words(
            &format!("{rows} x {columns}"),
            &device.read(&got).unwrap(),
            &expected,
        );
    }
}

fn batches(device: &Device) {
    let x = numbers(7 * 40 * 50);
    let got = transpose_batch(&device.upload(&x).unwrap(), [7, 40, 50]).unwrap();
    let expected: Vec<_> = x
        .chunks(2000)
        .flat_map(|x| plain::transpose(x, 40, 50))
        .collect();
    assert_words("batch", &device.read(&got).unwrap(), &expected);
}

fn bits_stay(device: &Device) {
    let x: Vec<f32> = [0xffc0_0001u32, 0x7f80_0001, 0x8000_0000, 1]
        .map(f32::from_bits)
        .into();
    let got = transpose(&device.upload(&x).unwrap(), [2, 2]).unwrap();
    let got: Vec<_> = device
        .read(&got)
        .unwrap()
        .iter()
        .map(|x| x.to_bits())
        .collect();
    assert_eq!(got, [0xffc0_0001, 0x8000_0000, 0x7f80_0001, 1]);
}

fn refusals(device: &Device) {
    let x = device.upload(&[0u32; 6]).unwrap();
    for shape in [[2, 2], [4, 2], [usize::MAX, 3], [0, 6]] {
        let error = transpose(&x, shape).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    }
}

/// Sabotage: the shape read the wrong way round shows.
#[test]
fn a_wrong_stride_shows() {
    let x = numbers(6 * 5);
    assert_ne!(plain::transpose(&x, 6, 5), plain::transpose(&x, 5, 6));
}
