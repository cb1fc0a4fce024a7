use super::fold::*;
use super::*;
use crate::device::Device;
use crate::ieee::Path;
use crate::suite::{any_bits, assert_words, backend_suite, for_all, hash, moderate};

backend_suite! {
    rows_of_every_length,
    columns_of_every_shape,
    every_fold,
    long_rows_and_columns,
    three_levels,
    any_shape,
    n8_tiles_of_columns_do_not_show,
    nothing,
    the_empty_and_the_wrong,
    n1_variance_of_large_means,
    n5_ties_zeros_and_nan,
}

fn words(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Few numbers, so that they tie, zeros, infinities, NaN and subnormals.
fn ties(seed: u32, n: usize) -> Vec<u32> {
    let few = [
        0x8000_0000,
        0,
        1,
        0x8000_0001,
        0x3f80_0000,
        0xbf80_0000,
        0x7f80_0000,
        0xffc0_0001,
    ];
    (0..n as u32)
        .map(|i| {
            let h = hash(seed, i);
            // A NaN is rare: it hides everything else.
            few[h as usize % if h % 1000 == 7 { 8 } else { 7 }]
        })
        .collect()
}

/// The device's results and the contract's for each row or column.
fn both<F: Traits>(
    device: &Device,
    x: &[u32],
    [rows, columns]: [usize; 2],
    by_column: bool,
) -> [Vec<u32>; 2] {
    let shape = Shape {
        rows,
        columns,
        by_column,
    };
    let shift: Vec<u32> = if F::KIND.shifted {
        words(&moderate(77, shape.results()))
    } else {
        Vec::new()
    };
    let here = device.upload(x).unwrap();
    let shift_here = device.upload(&shift).unwrap();
    let mut out = device
        .upload(&vec![0x0bad_0bad_u32; shape.results()])
        .unwrap();
    let given = F::KIND.shifted.then_some(&shift_here as &dyn AnyBuffer);
    run::<F>(&here, shape, given, 1, &mut out).unwrap();
    let expected = (0..shape.results())
        .map(|i| {
            let line: Vec<u32> = (0..shape.n())
                .map(|k| {
                    if by_column {
                        x[k * columns + i]
                    } else {
                        x[i * columns + k]
                    }
                })
                .collect();
            plain::result::<F>(&line, shift.get(i).copied().unwrap_or(0), 1)
        })
        .collect();
    [device.read(&out).unwrap(), expected]
}

#[track_caller]
fn check<F: Traits>(device: &Device, x: &[u32], shape: [usize; 2], by_column: bool) {
    let [got, expected] = both::<F>(device, x, shape, by_column);
    assert_words(
        &format!("{} {shape:?} by_column: {by_column}", F::KIND.name),
        &got,
        &expected,
    );
}

/// Whether fused multiply-add is long integer code: kernels that hold many take seconds to compile.
fn slow(device: &Device) -> bool {
    !device.is_cpu() && device.profile().unwrap().fma != Path::Native
}

fn rows_of_every_length(device: &Device) {
    for columns in [
        1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 28, 32, 33, 64, 65, 100, 127, 128, 129, 132, 300,
    ] {
        for rows in [1, 70] {
            let x = words(&moderate(columns as u32, rows * columns));
            check::<Sum>(device, &x, [rows, columns], false);
            if !slow(device) || matches!(columns, 7 | 300) {
                check::<Variance>(device, &x, [rows, columns], false);
            }
        }
    }
}

fn columns_of_every_shape(device: &Device) {
    for rows in [1, 2, 5, 16, 17, 60, 128, 129, 500] {
        for columns in [1, 2, 3, 9, 32, 33, 70, 300] {
            let x = words(&moderate((rows * columns) as u32, rows * columns));
            check::<Sum>(device, &x, [rows, columns], true);
            if !slow(device) || matches!((rows, columns), (5, 3) | (500, 70)) {
                check::<Variance>(device, &x, [rows, columns], true);
            }
        }
    }
}

fn every_fold(device: &Device) {
    fn of<F: Traits>(device: &Device) {
        let (rows, columns) = (6, 150);
        let n = rows * columns;
        for x in [
            words(&moderate(1, n)),
            words(&any_bits(2, n)),
            ties(3, n),
            vec![0; n],
        ] {
            check::<F>(device, &x, [rows, columns], false);
            check::<F>(device, &x, [columns, rows], true);
        }
    }
    of::<Sum>(device);
    of::<Mean>(device);
    of::<SumSquares>(device);
    of::<Variance>(device);
    of::<Min>(device);
    of::<Max>(device);
    of::<ArgMin>(device);
    of::<ArgMax>(device);
    of::<LargestFinite>(device);
    of::<Any>(device);
    of::<All>(device);
    of::<Count>(device);
    of::<SumWords>(device);
    of::<MinWord>(device);
    of::<MaxWord>(device);
}

fn long_rows_and_columns(device: &Device) {
    for n in [4095, 4096, 4097, 8192, 3 * 4096 + 130, 70_001] {
        let x = words(&moderate(n as u32, 3 * n));
        check::<Sum>(device, &x, [3, n], false);
        check::<Sum>(device, &x, [n, 3], true);
        check::<Variance>(device, &x, [1, 3 * n], false);
        check::<Variance>(device, &x, [n, 3], true);
        let x = ties(n as u32, 2 * n);
        check::<ArgMin>(device, &x, [2, n], false);
        check::<ArgMax>(device, &x, [n, 2], true);
    }
}

/// More segments than one segment holds.
fn three_levels(device: &Device) {
    let n = SEGMENT * SEGMENT + 5;
    let x = words(&moderate(9, n));
    check::<Sum>(device, &x, [1, n], false);
}

fn any_shape(device: &Device) {
    let shapes = (0..60usize, 0..400usize, 0..u32::MAX);
    for_all(device, [150, 30], shapes, |(rows, columns, seed)| {
        let x = words(&moderate(seed, rows * columns));
        for by_column in [false, true] {
            let [got, expected] = both::<Sum>(device, &x, [rows, columns], by_column);
            assert_eq!(got, expected);
            let [got, expected] = both::<ArgMax>(device, &x, [rows, columns], by_column);
            assert_eq!(got, expected);
        }
    });
}

fn n8_tiles_of_columns_do_not_show(device: &Device) {
    fn of<F: Traits>(device: &Device, shape: [usize; 2]) {
        let [rows, columns] = shape;
        let x = words(&moderate(3, rows * columns));
        let shift = words(&moderate(4, columns));
        let expected: Vec<u32> = (0..columns)
            .map(|c| {
                let column: Vec<u32> = x.iter().skip(c).step_by(columns).copied().collect();
                plain::result::<F>(&column, shift[c], 1)
            })
            .collect();
        let (x, shift) = (device.upload(&x).unwrap(), device.upload(&shift).unwrap());
        for plan in columns::Plan::candidates(columns::Fold::One(F::KIND), shape) {
            let out = device.upload(&vec![0x0bad_0bad_u32; columns]).unwrap();
            let inputs = columns::Inputs {
                x: &x,
                y: None,
                scale: None,
                mean: None,
                shift: F::KIND.shifted.then_some(&shift as &dyn AnyBuffer),
                ddof: 1,
            };
            columns::launch(plan, shape, &inputs, [out.arg(1)]).unwrap();
            let what = format!("{} {shape:?} {plan:?}", F::KIND.name);
            assert_words(&what, &device.read(&out).unwrap(), &expected);
        }
    }
    if device.is_cpu() {
        return;
    }
    for shape in [[300, 28], [130, 40], [70, 9]] {
        of::<Sum>(device, shape);
        if !slow(device) {
            of::<Variance>(device, shape);
            of::<ArgMax>(device, shape);
        }
    }
}

fn nothing(device: &Device) {
    let x = device.upload::<f32>(&[]).unwrap();
    let w = device.upload::<u32>(&[]).unwrap();
    let bits = |x: Result<Buffer<f32>>| words(&device.read(&x.unwrap()).unwrap());
    let read = |x: Result<Buffer<u32>>| device.read(&x.unwrap()).unwrap();
    for (axis, shape, results) in [
        (Axis::EachRow, [3, 0], 3),
        (Axis::EachColumn, [0, 3], 3),
        (Axis::Whole, [0, 3], 1),
        (Axis::EachRow, [0, 3], 0),
    ] {
        assert_eq!(bits(sum(&x, axis, shape)), vec![0; results]);
        assert_eq!(bits(sum_squares(&x, axis, shape)), vec![0; results]);
        assert_eq!(bits(mean(&x, axis, shape)), vec![0x7fc0_0000; results]);
        assert_eq!(
            bits(variance(&x, axis, shape, 0)),
            vec![0x7fc0_0000; results]
        );
        assert_eq!(read(any(&w, axis, shape)), vec![0; results]);
        assert_eq!(read(all(&w, axis, shape)), vec![1; results]);
        assert_eq!(read(count(&w, axis, shape)), vec![0; results]);
        for error in [
            min(&x, axis, shape).err(),
            max(&x, axis, shape).err(),
            argmin(&x, axis, shape).err(),
            argmax(&x, axis, shape).err(),
            max_words(&w, axis, shape).err(),
        ] {
            if results > 0 {
                assert!(matches!(error, Some(Error::Empty { .. })), "{error:?}");
            } else {
                assert_eq!(error, None);
            }
        }
    }
}

fn the_empty_and_the_wrong(device: &Device) {
    let x = device.upload(&[1.0f32; 6]).unwrap();
    for shape in [[2, 4], [7, 1], [usize::MAX, 2], [0, 0]] {
        let error = sum(&x, Axis::EachRow, shape).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    }
    // One degree of freedom too few.
    let v = variance(&x, Axis::EachRow, [6, 1], 1).unwrap();
    assert_eq!(words(&device.read(&v).unwrap()), [0x7fc0_0000; 6]);
    let v = variance(&x, Axis::EachRow, [3, 2], u32::MAX).unwrap();
    assert_eq!(words(&device.read(&v).unwrap()), [0x7fc0_0000; 3]);
}

/// Case N1: layer norm's rows, against f64.
fn n1_variance_of_large_means(device: &Device) {
    let n = 256;
    let mut x = Vec::new();
    for mean in [100.0f64, 1e3, 1e4, 4e4, 8e4] {
        x.extend((0..n).map(|i| (mean + 1e-3 * f64::from(i)) as f32));
    }
    x.extend([1234.0f32; 256]);
    x.extend([1234.1f32; 256]);
    let rows = x.len() / 256;
    let b = device.upload(&x).unwrap();
    let v = device
        .read(&variance(&b, Axis::EachRow, [rows, 256], 0).unwrap())
        .unwrap();
    for (r, row) in x.chunks(256).enumerate() {
        let m = row.iter().map(|&x| f64::from(x)).sum::<f64>() / 256.0;
        let exact = row.iter().map(|&x| (f64::from(x) - m).powi(2)).sum::<f64>() / 256.0;
        let error = (f64::from(v[r]) - exact).abs();
        // Of 1e10, the square of the largest mean, f32 keeps no digit of these variances.
        assert!(error <= 2e-6 * exact, "row {r}: {} for {exact}", v[r]);
    }
    assert_eq!(v[rows - 2..], [0.0, 0.0]);

    // Equal numbers whose squares overflow have no variance; deviations whose squares do, an
    // infinite one.
    let mut x = vec![1e30f32; 256];
    x.extend((0..256).map(|i| if i % 2 == 0 { 1e30 } else { -1e30 }));
    x.extend((0..256).map(|i| if i == 0 { f32::INFINITY } else { 1.0 }));
    let b = device.upload(&x).unwrap();
    let v = device
        .read(&variance(&b, Axis::EachRow, [3, 256], 0).unwrap())
        .unwrap();
    assert_eq!(v[..2], [0.0, f32::INFINITY]);
    assert_eq!(v[2].to_bits(), 0x7fc0_0000);

    // A column of one value, huge; one over `n - 1`.
    let b = device.upload(&[3e10f32; 99]).unwrap();
    let v = device
        .read(&variance(&b, Axis::EachColumn, [33, 3], 1).unwrap())
        .unwrap();
    assert_eq!(v, [0.0; 3]);
    let b = device.upload(&[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    let v = device
        .read(&variance(&b, Axis::EachColumn, [4, 1], 1).unwrap())
        .unwrap();
    assert_eq!(v, [5.0 / 3.0]);
}

/// Case N5: argmax and argmin with ties, zeros, NaN and subnormals.
fn n5_ties_zeros_and_nan(device: &Device) {
    let (inf, nan, tiny) = (f32::INFINITY, f32::NAN, f32::from_bits(1));
    let rows = [
        [1.0, 3.0, 3.0, 2.0],
        [-0.0, 0.0, -0.0, 0.0],
        [0.0, -0.0, 0.0, -0.0],
        [nan, inf, -inf, nan],
        [inf, nan, -nan, 0.0],
        [tiny, -tiny, 0.0, tiny],
        [-inf, -inf, -inf, -inf],
        [nan, -nan, nan, nan],
    ];
    let x: Vec<f32> = rows.concat();
    let b = device.upload(&x).unwrap();
    let shape = [rows.len(), 4];
    let read = |x: Result<Buffer<u32>>| device.read(&x.unwrap()).unwrap();
    let bits = |x: Result<Buffer<f32>>| words(&device.read(&x.unwrap()).unwrap());
    assert_eq!(
        read(argmax(&b, Axis::EachRow, shape)),
        [1, 0, 0, 0, 1, 0, 0, 0]
    );
    assert_eq!(
        read(argmin(&b, Axis::EachRow, shape)),
        [0, 0, 0, 0, 1, 1, 0, 0]
    );
    let c = 0x7fc0_0000;
    let (i, t) = (inf.to_bits(), tiny.to_bits());
    assert_eq!(
        bits(max(&b, Axis::EachRow, shape)),
        [3.0f32.to_bits(), 0, 0, c, c, t, (-inf).to_bits(), c]
    );
    assert_eq!(
        bits(min(&b, Axis::EachRow, shape)),
        [
            1.0f32.to_bits(),
            1 << 31,
            1 << 31,
            c,
            c,
            t | 1 << 31,
            (-inf).to_bits(),
            c
        ]
    );
    assert_eq!(i, 0x7f80_0000);
    // The whole: the first NaN.
    assert_eq!(read(argmax(&b, Axis::Whole, shape)), [12]);
    assert_eq!(read(argmin(&b, Axis::Whole, shape)), [12]);
}

/// The contract for sums in its own words, next to the general one.
#[test]
fn the_order_of_a_sum() {
    fn sum_of(x: &[f32]) -> f32 {
        if x.len() <= 4096 {
            let mut lanes = [0.0f32; 128];
            for (i, x) in x.iter().enumerate() {
                lanes[i % 128] += x;
            }
            for half in [64, 32, 16, 8, 4, 2, 1] {
                for j in 0..half {
                    lanes[j] += lanes[j + half];
                }
            }
            return lanes[0];
        }
        sum_of(&x.chunks(4096).map(sum_of).collect::<Vec<_>>())
    }
    for n in [0, 1, 100, 129, 5000, 300_000] {
        let x = moderate(n as u32, n);
        assert_eq!(
            plain::result::<Sum>(&words(&x), 0, 0),
            sum_of(&x).to_bits(),
            "{n}"
        );
    }
}

/// Sabotage: every other order shows, as does a wrong rule for ties, zeros and NaN.
#[test]
fn wrong_orders_show() {
    let device = Device::cpu();
    let n = 10_000;
    let in_lanes = |x: &[f32], lanes: usize| {
        let mut l = vec![0.0f32; lanes];
        for (i, x) in x.iter().enumerate() {
            l[i % lanes] += x;
        }
        let mut half = lanes / 2;
        while half > 0 {
            for j in 0..half {
                l[j] += l[j + half];
            }
            half /= 2;
        }
        l[0]
    };
    let segments = |x: &[f32], size: usize, lanes: usize| {
        let parts: Vec<_> = x.chunks(size).map(|x| in_lanes(x, lanes)).collect();
        in_lanes(&parts, lanes)
    };
    // One sum may round alike in two orders.
    let mut seen = [0; 4];
    for seed in 0..20 {
        let x = moderate(seed, n);
        let [right, _] = both::<Sum>(&device, &words(&x), [1, n], false);
        assert_eq!(segments(&x, 4096, 128).to_bits(), right[0]);
        let wrong = [
            segments(&x, 4096, 64),
            segments(&x, 2048, 128),
            segments(&x, n, 128),
            x.iter().sum(),
        ];
        for (seen, wrong) in seen.iter_mut().zip(wrong) {
            *seen += u32::from(wrong.to_bits() != right[0]);
        }
    }
    assert!(seen.iter().all(|&n| n >= 5), "{seen:?}");
    // The mean's error left in the variance.
    let x: Vec<f32> = (0..256).map(|i| 8e4 + 1e-3 * i as f32).collect();
    let b = device.upload(&x).unwrap();
    let (m, v) = mean_variance(&b, Axis::Whole, [1, 256], 0).unwrap();
    let m = m.host().unwrap()[0];
    let d: Vec<f32> = x.iter().map(|x| (x - m) * (x - m)).collect();
    assert_ne!(v.host().unwrap()[0], in_lanes(&d, 128) / 256.0);
    // The last of equal elements.
    let x = words(&[3.0, 1.0, 3.0]);
    let [right, _] = both::<ArgMax>(&device, &x, [1, 3], false);
    let last = (0..3).max_by_key(|&i| f32::from_bits(x[i]) as i32).unwrap();
    assert_ne!(right[0], last as u32);
    // Zeros that are equal.
    let x = words(&[0.0, -0.0]);
    let [right, _] = both::<Min>(&device, &x, [1, 2], false);
    let equal = if f32::from_bits(x[1]) < f32::from_bits(x[0]) {
        x[1]
    } else {
        x[0]
    };
    assert_ne!(right[0], equal);
}
