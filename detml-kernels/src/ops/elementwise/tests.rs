use super::*;
use crate::suite::{assert_words, backend_suite, for_all, hash};
use crate::testing::boundaries;

backend_suite! {
    functions_of_one,
    functions_of_more,
    arguments_of_every_tier,
    n6_tails_and_empty,
    n6_operands_of_every_kind,
    any_shape_and_stride,
    public_functions,
    fills_and_counts,
    casts,
    refusals,
}

/// Patterns of interest among any bits.
fn hostile(seed: u32, n: usize) -> Vec<u32> {
    let b = boundaries();
    (0..n as u32)
        .map(|i| match hash(seed, i) {
            h if h % 3 == 0 => hash(seed ^ h, i),
            h => b[h as usize % b.len()],
        })
        .collect()
}

#[derive(Clone, Debug)]
enum Given {
    Scalar(u32),
    Full(Vec<u32>),
    Own,
    Strided(Vec<u32>, usize, usize, usize),
}

impl Given {
    fn upload(&self, device: &Device) -> Option<Buffer<u32>> {
        match self {
            Self::Full(x) | Self::Strided(x, ..) => Some(device.upload(x).unwrap()),
            _ => None,
        }
    }

    fn place<'a>(&self, buffer: &'a Option<Buffer<u32>>) -> Place<'a> {
        match (self, buffer) {
            (Self::Full(_), Some(buffer)) => Place::Full(buffer),
            (Self::Strided(_, offset, row_stride, column_stride), Some(buffer)) => Place::Strided {
                buffer,
                offset: *offset,
                row_stride: *row_stride,
                column_stride: *column_stride,
            },
            (Self::Scalar(x), _) => Place::Scalar(*x),
            _ => Place::Own,
        }
    }
}

/// What the device makes of the operands, and what the contract says.
fn both(
    device: &Device,
    op: Op,
    shape: [usize; 2],
    operands: &[Given],
    own: &[u32],
) -> [Vec<u32>; 2] {
    let buffers: Vec<_> = operands.iter().map(|o| o.upload(device)).collect();
    let places: Vec<_> = operands
        .iter()
        .zip(&buffers)
        .map(|(o, b)| o.place(b))
        .collect();
    let mut out = device.upload(own).unwrap();
    run(op, shape, &places, &mut out).unwrap();
    let got = device.read(&out).unwrap();

    let cpu = Device::cpu();
    let buffers: Vec<_> = operands.iter().map(|o| o.upload(&cpu)).collect();
    let places: Vec<_> = operands
        .iter()
        .zip(&buffers)
        .map(|(o, b)| o.place(b))
        .collect();
    [got, plain::run(op, shape, &places, own)]
}

#[track_caller]
fn check(device: &Device, op: Op, shape: [usize; 2], operands: &[Given], own: &[u32]) {
    let [got, expected] = both(device, op, shape, operands, own);
    assert_words(&format!("{op:?} {shape:?}"), &got, &expected);
}

fn functions_of_one(device: &Device) {
    every_function(device, |op| op.arity() == 1);
}

fn functions_of_more(device: &Device) {
    every_function(device, |op| op.arity() > 1);
}

fn every_function(device: &Device, which: fn(&Op) -> bool) {
    let n = 1000;
    for (seed, op) in Op::all().filter(which).enumerate() {
        let operands: Vec<_> = (0..op.arity() as u32)
            .map(|i| Given::Full(hostile(seed as u32 * 3 + i, n)))
            .collect();
        let [got, expected] = both(device, op, [1, n], &operands, &vec![0; n]);
        assert_words(&format!("{op:?}"), &got, &expected);
        if matches!(op, Op::Unary(_) | Op::Binary(_) | Op::Ternary(_)) {
            let nans = got.iter().filter(|x| f32::from_bits(**x).is_nan());
            assert!(
                nans.into_iter().all(|x| *x == 0x7fc0_0000),
                "{op:?} leaves a NaN as it was"
            );
        }
    }
}

/// Loops that look at the largest argument of a block, on either side of every limit.
fn arguments_of_every_tier(device: &Device) {
    for (seed, op) in [Unary::Sin, Unary::Cos, Unary::Tan].into_iter().enumerate() {
        for limit in [
            0x3f49_0fda,
            0x3f49_0fdb,
            0x4aff_ffff,
            0x4b00_0000,
            0x7f80_0000,
        ] {
            let n = 1100;
            let mut x: Vec<u32> = (0..n as u32)
                .map(|i| {
                    let h = hash(seed as u32, i);
                    (hash(h, limit) % limit) | (h & 0x8000_0000)
                })
                .collect();
            // Half of them lie at the limit.
            for (i, x) in x.iter_mut().enumerate().skip(n / 2) {
                *x = (limit - (i % 7) as u32) | (*x & 0x8000_0000);
            }
            x[300] = limit;
            x[301] = 0x8000_0000;
            x[302] = 0;
            x[303] = 1;
            check(device, op.into(), [1, n], &[Given::Full(x)], &vec![0; n]);
        }
    }
}

fn n6_tails_and_empty(device: &Device) {
    for n in [
        0, 1, 2, 3, 4, 5, 255, 256, 257, 1023, 1024, 1025, 2052, 4099,
    ] {
        let operands = [Given::Full(hostile(1, n)), Given::Full(hostile(2, n))];
        check(device, Binary::Sub.into(), [n, 1], &operands, &vec![7; n]);
    }
    for shape in [[0, 5], [5, 0], [0, 0]] {
        let operands = [Given::Own, Given::Strided(vec![1, 2, 3, 4, 5], 0, 1, 1)];
        check(device, Binary::Sub.into(), shape, &operands, &[]);
    }
}

fn n6_operands_of_every_kind(device: &Device) {
    for shape in [[7usize, 12usize], [5, 13]] {
        let [rows, columns] = shape;
        let n = rows * columns;
        let own = hostile(5, n);
        let given = |seed: u32| {
            [
                Given::Scalar(hostile(seed, 9)[8]),
                Given::Full(hostile(seed + 1, n)),
                Given::Own,
                // A row, a column, one element for all (stride 0), the transpose, a slice.
                Given::Strided(hostile(seed + 2, columns), 0, 0, 1),
                Given::Strided(hostile(seed + 3, rows), 0, 1, 0),
                Given::Strided(hostile(seed + 4, 3), 2, 0, 0),
                Given::Strided(hostile(seed + 5, n), 0, 1, rows),
                Given::Strided(hostile(seed + 6, 4 * n + 40), 3, 2 * columns, 2),
            ]
        };
        for a in given(10) {
            check(
                device,
                Unary::Neg.into(),
                shape,
                std::slice::from_ref(&a),
                &own,
            );
            for b in given(20) {
                check(device, Binary::Sub.into(), shape, &[a.clone(), b], &own);
            }
            let third = [a.clone(), Given::Own, Given::Full(hostile(40, n))];
            check(device, Ternary::Fma.into(), shape, &third, &own);
        }
    }
}

fn any_shape_and_stride(device: &Device) {
    let operand = |seed: u32, rows: usize, columns: usize, kind: u32, rs: usize, cs: usize| {
        let last = 2 + rows.saturating_sub(1) * rs + columns.saturating_sub(1) * cs;
        match kind {
            0 => Given::Scalar(hash(seed, 1)),
            1 => Given::Own,
            2 => Given::Full(hostile(seed, rows * columns)),
            _ => Given::Strided(hostile(seed, last + 1), 2, rs, cs),
        }
    };
    let any = (
        0..40usize,
        0..90usize,
        0..u32::MAX,
        0..6u32,
        0..6u32,
        0..5usize,
        0..5usize,
    );
    for_all(
        device,
        [200, 40],
        any,
        |(rows, columns, seed, a, b, rs, cs)| {
            let own = hostile(seed, rows * columns);
            let operands = [
                operand(seed ^ 1, rows, columns, a, rs, cs),
                operand(seed ^ 2, rows, columns, b, cs, rs),
            ];
            let [got, expected] =
                both(device, Binary::Sub.into(), [rows, columns], &operands, &own);
            assert_eq!(got, expected);
        },
    );
}

fn public_functions(device: &Device) {
    let x = device
        .upload(&[1.0f32, -4.0, 9.0, 16.0, -0.0, 3.0])
        .unwrap();
    let row = device.upload(&[1.0f32, 2.0, 3.0]).unwrap();
    let column = device.upload(&[10.0f32, 20.0]).unwrap();
    let read = |x: Result<Buffer<f32>>| device.read(&x.unwrap()).unwrap();
    assert_eq!(read(map(Unary::Abs, &x)), [1.0, 4.0, 9.0, 16.0, 0.0, 3.0]);
    assert_eq!(
        read(zip(Binary::Max, 2.0, &x)),
        [2.0, 2.0, 9.0, 16.0, 2.0, 3.0]
    );
    let shape = [2, 3];
    let (r, c) = (Operand::row(&row), Operand::column(&column));
    assert_eq!(
        read(zip_matrix(Binary::Add, shape, c, r)),
        [11.0, 12.0, 13.0, 21.0, 22.0, 23.0]
    );
    assert_eq!(
        read(zip_matrix(Binary::Add, shape, &x, r)),
        [2.0, -2.0, 12.0, 17.0, 2.0, 6.0]
    );
    assert_eq!(
        read(zip_matrix(
            Binary::Sub,
            [3, 2],
            Operand::strided(&x, 0, 1, 3),
            1.0
        )),
        [0.0, 15.0, -5.0, -1.0, 8.0, 2.0]
    );
    assert_eq!(
        read(zip3(Ternary::Fma, shape, &x, r, c)),
        [11.0, 2.0, 37.0, 36.0, 20.0, 29.0]
    );
    let mask = compare(Comparison::Lt, shape, &x, 3.0).unwrap();
    assert_eq!(device.read(&mask).unwrap(), [1, 1, 0, 0, 1, 0]);
    assert_eq!(
        read(select(shape, &mask, r, &x)),
        [1.0, 2.0, 9.0, 16.0, 2.0, 3.0]
    );
    let mut y = materialize(shape, r).unwrap();
    zip_assign(Binary::Mul, shape, &mut y, c).unwrap();
    assert_eq!(
        device.read(&y).unwrap(),
        [10.0, 20.0, 30.0, 20.0, 40.0, 60.0]
    );
    zip3_assign(
        Ternary::Clamp,
        shape,
        &mut y,
        15.0,
        Operand::column(&column),
    )
    .unwrap();
    assert_eq!(
        device.read(&y).unwrap(),
        [10.0, 10.0, 10.0, 20.0, 20.0, 20.0]
    );
    map_assign(Unary::Square, &mut y).unwrap();
    assert_eq!(device.read(&y).unwrap()[..3], [100.0; 3]);
}

fn fills_and_counts(device: &Device) {
    assert_eq!(
        device.read(&fill(device, 5, -3i32).unwrap()).unwrap(),
        [-3; 5]
    );
    assert!(fill(device, 0, 1.0f32).unwrap().is_empty());
    assert!(iota(device, 0, 1, 1).unwrap().is_empty());
    for n in [1, 300, 100_003] {
        let x = device
            .read(&iota(device, n, 5, 3_000_000_000).unwrap())
            .unwrap();
        let expected: Vec<_> = (0..n as u64)
            .map(|i| (5 + i * 3_000_000_000) as u32)
            .collect();
        assert_words("iota", &x, &expected);
    }
}

fn casts(device: &Device) {
    let (max, nan) = (u32::MAX, f32::NAN);
    let x = device
        .upload(&[0, 1, 16_777_217, 16_777_219, 2_147_483_775, max])
        .unwrap();
    let y = device.read(&u32_to_f32(&x).unwrap()).unwrap();
    assert_eq!(
        y,
        [
            0.0,
            1.0,
            16_777_216.0,
            16_777_220.0,
            2_147_483_648.0,
            4_294_967_296.0
        ]
    );
    let x = device.upload(&[i32::MIN, -16_777_219, -1]).unwrap();
    let y = device.read(&i32_to_f32(&x).unwrap()).unwrap();
    assert_eq!(y, [-2_147_483_648.0, -16_777_220.0, -1.0]);
    let x = device
        .upload(&[-0.5f32, 1.9, -1.9, 2_147_483_648.0, -3e9, 1e30, nan])
        .unwrap();
    let y = device.read(&f32_to_u32(&x).unwrap()).unwrap();
    assert_eq!(y, [0, 1, 0, 1 << 31, 0, max, 0]);
    let y = device.read(&f32_to_i32(&x).unwrap()).unwrap();
    assert_eq!(y, [0, 1, -1, i32::MAX, i32::MIN, i32::MAX, 0]);
}

fn refusals(device: &Device) {
    let (x, y) = (
        device.upload(&[1.0f32; 6]).unwrap(),
        device.upload(&[1.0f32; 5]).unwrap(),
    );
    let shape = |r: Result<Buffer<f32>>| {
        let error = r.unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    };
    shape(zip(Binary::Add, &x, &y));
    shape(zip_matrix(Binary::Add, [2, 3], &x, Operand::row(&y)));
    shape(zip_matrix(Binary::Add, [2, 3], &x, Operand::column(&y)));
    shape(zip_matrix(
        Binary::Add,
        [2, 3],
        &x,
        Operand::strided(&y, 0, 1, 2),
    ));
    shape(zip_matrix(
        Binary::Add,
        [2, 3],
        &x,
        Operand::strided(&y, 0, usize::MAX, 2),
    ));
    shape(zip_matrix(Binary::Add, [usize::MAX, 2], &x, &y));
    shape(
        zip_into(Binary::Add, [2, 3], &x, 1.0, &mut device.empty(5).unwrap()).map(|()| x_like(&x)),
    );
    let error = zip(Binary::Add, 1.0, 2.0).unwrap_err();
    assert!(matches!(error, Error::InvalidParameter { .. }), "{error}");
    if !device.is_cpu() {
        let far = Device::cpu().upload(&[1.0f32; 6]).unwrap();
        let error = zip(Binary::Add, &x, &far).unwrap_err();
        assert!(matches!(error, Error::InvalidParameter { .. }), "{error}");
    }
}

fn x_like(x: &Buffer<f32>) -> Buffer<f32> {
    x.device().empty(x.len()).unwrap()
}

/// Sabotage: each wrong rule shows on the inputs of these tests.
#[test]
fn wrong_rules_show() {
    let (a, b) = (hostile(1, 1000), hostile(2, 1000));
    let cpu = Device::cpu();
    let differ = |op: Op, wrong: fn(f32, f32) -> f32| {
        let operands = [Given::Full(a.clone()), Given::Full(b.clone())];
        let [right, _] = both(&cpu, op, [1, 1000], &operands, &vec![0; 1000]);
        let f = f32::from_bits;
        let wrong = |i: usize| wrong(f(a[i]), f(b[i])).to_bits();
        (0..1000).filter(|&i| right[i] != wrong(i)).count()
    };
    // A NaN with its payload, a NaN that loses, -0 equal to +0, no subnormals.
    assert!(
        differ(Binary::Add.into(), |a, b| if a.is_nan() {
            a
        } else {
            a + b
        }) > 0
    );
    assert!(
        differ(Binary::Min.into(), |a, b| if b.is_nan() {
            a
        } else {
            a.min(b)
        }) > 0
    );
    assert!(differ(Binary::Max.into(), |a, b| if a < b { b } else { a }) > 0);
    fn flushed(x: f32) -> f32 {
        if x.is_subnormal() { 0.0 * x } else { x }
    }
    assert!(differ(Binary::Mul.into(), |a, b| flushed(flushed(a) * flushed(b))) > 0);
}

/// The functions are the host's own where the host has IEEE-754's.
#[test]
fn basic_functions_are_the_hosts() {
    let (a, b) = (hostile(3, 3000), hostile(4, 3000));
    let f = f32::from_bits;
    let cases: [(Binary, fn(f32, f32) -> f32); 6] = [
        (Binary::Add, |a, b| a + b),
        (Binary::Sub, |a, b| a - b),
        (Binary::Mul, |a, b| a * b),
        (Binary::Div, |a, b| a / b),
        (Binary::SquaredDifference, |a, b| (a - b) * (a - b)),
        (Binary::Copysign, |a, b| {
            if b.is_nan() { a.abs() } else { a.copysign(b) }
        }),
    ];
    for (op, host) in cases {
        let operands = [Given::Full(a.clone()), Given::Full(b.clone())];
        let [got, _] = both(
            &Device::cpu(),
            op.into(),
            [1, 3000],
            &operands,
            &vec![0; 3000],
        );
        let expected: Vec<_> = a
            .iter()
            .zip(&b)
            .map(|(a, b)| crate::testing::canonical(host(f(*a), f(*b))))
            .collect();
        assert_words(&format!("{op:?}"), &got, &expected);
    }
    let cases: [(Unary, fn(f32) -> f32); 9] = [
        (Unary::Neg, |x| -x),
        (Unary::Abs, f32::abs),
        (Unary::Sqrt, f32::sqrt),
        (Unary::Recip, |x| 1.0 / x),
        (Unary::Floor, f32::floor),
        (Unary::Ceil, f32::ceil),
        (Unary::Trunc, f32::trunc),
        (Unary::Round, f32::round_ties_even),
        (Unary::Relu, |x| if x.is_nan() || x > 0.0 { x } else { 0.0 }),
    ];
    for (op, host) in cases {
        let [got, _] = both(
            &Device::cpu(),
            op.into(),
            [1, 3000],
            &[Given::Full(a.clone())],
            &vec![0; 3000],
        );
        let expected: Vec<_> = a
            .iter()
            .map(|a| crate::testing::canonical(host(f(*a))))
            .collect();
        assert_words(&format!("{op:?}"), &got, &expected);
    }
}
