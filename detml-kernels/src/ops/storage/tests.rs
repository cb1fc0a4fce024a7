use super::*;
use crate::device::Device;
use crate::suite::{any_bits, assert_bits, assert_words, backend_suite, moderate};
use crate::testing::boundaries;

backend_suite! { halves, bytes, refusals }

fn halves(device: &Device) {
    for n in [0, 1, 2, 3, 255, 256, 257, 1000, 100_001] {
        let mut x = any_bits(n as u32, n);
        for (x, b) in x.iter_mut().zip(boundaries()) {
            *x = f32::from_bits(b);
        }
        let here = device.upload(&x).unwrap();
        for half in [Half::Bf16, Half::F16] {
            let code = |x: &f32| encode_half(*x, half);
            let expected: Vec<u32> = x
                .chunks(2)
                .map(|x| code(&x[0]) | x.get(1).map_or(0, code) << 16)
                .collect();
            let packed = encode(half, &here).unwrap();
            assert_words(
                &format!("{half:?} {n}"),
                &device.read(&packed).unwrap(),
                &expected,
            );
            let back = device.read(&decode(half, &packed, n).unwrap()).unwrap();
            let expected: Vec<f32> = x.iter().map(|x| decode_half(code(x), half)).collect();
            assert_bits(&format!("{half:?} {n}"), &back, &expected);
        }
    }
}

fn bytes(device: &Device) {
    for [rows, columns] in [[1, 1], [3, 4], [5, 7], [4, 129], [0, 3], [3, 0], [70, 300]] {
        let mut x = moderate(columns as u32, rows * columns);
        for (i, x) in x.iter_mut().enumerate().skip(5).step_by(61) {
            *x = f32::from_bits(boundaries()[i % 416]);
        }
        let q = encode_int8(&device.upload(&x).unwrap(), [rows, columns]).unwrap();
        let (mut codes, mut exponents, mut back) = (Vec::new(), Vec::new(), Vec::new());
        for row in (0..rows).map(|r| &x[r * columns..(r + 1) * columns]) {
            let row = convert::Int8::encode(row).unwrap();
            back.extend(row.decode().unwrap());
            exponents.push(row.exponent);
            for code in row.codes.chunks(4) {
                let byte = |i: usize| u32::from(code.get(i).map_or(0, |&c| c as u8));
                codes.push(byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24);
            }
        }
        assert_eq!(device.read(&q.exponents).unwrap(), exponents);
        assert_words(
            &format!("{rows} x {columns}"),
            &device.read(&q.codes).unwrap(),
            &codes,
        );
        let decoded = device.read(&decode_int8(&q).unwrap()).unwrap();
        assert_bits(&format!("{rows} x {columns}"), &decoded, &back);
    }
}

fn refusals(device: &Device) {
    let words = device.upload(&[0u32; 3]).unwrap();
    for len in [4, 7] {
        let error = decode(Half::F16, &words, len).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    }
    let x = device.upload(&[0.0f32; 3]).unwrap();
    let error = encode_int8(&x, [2, 2]).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
    let mut q = encode_int8(&x, [1, 3]).unwrap();
    for shape in [[1, 5], [2, 1], [usize::MAX, 5]] {
        q.shape = shape;
        let error = decode_int8(&q).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    }
}

/// Sabotage: cutting bits off instead of rounding shows.
#[test]
fn truncation_shows() {
    let x = moderate(1, 100);
    let cut = |x: &f32| x.to_bits() >> 16;
    assert!(x.iter().any(|x| encode_half(*x, Half::Bf16) != cut(x)));
}
