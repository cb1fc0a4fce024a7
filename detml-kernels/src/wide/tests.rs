use super::*;
use crate::device::{Device, Kernel, args};
use crate::ieee::FloatProfile;
use crate::suite::backend_suite;
use crate::testing::{Exact, Words, boundaries, split};

fn integers() -> Vec<i64> {
    let mut all = vec![0, 1, -1, i64::MAX, i64::MIN, i64::MIN + 1];
    for n in 1..63 {
        for d in [-1, 0, 1] {
            all.push((1i64 << n) + d);
            all.push(-(1i64 << n) + d);
            all.push((0x5555_5555_5555_5555 >> n) + d);
        }
    }
    let mut words = Words::new(41);
    // Any length, so that every carry and every rounding position is met.
    all.extend((0..2_000).map(|_| (words.next() as i64) >> (words.next() % 64)));
    all
}

fn wide(x: i64) -> I64 {
    x.into()
}

#[test]
fn pairs_add_compare_and_shift_as_i64() {
    let all = integers();
    for (i, &x) in all.iter().enumerate() {
        let a = wide(x);
        assert_eq!(i64::from(a), x);
        assert_eq!(i64::from(a.neg()), x.wrapping_neg());
        assert_eq!((a.is_negative(), a.is_zero()), (x < 0, x == 0));
        for n in 0..64 {
            assert_eq!(i64::from(a.shift_left(n)), x << n, "{x} << {n}");
            assert_eq!(i64::from(a.shift_right(n)), x >> n, "{x} >> {n}");
        }
        let few = all.iter().skip(i % 7).step_by(7);
        for &y in few.chain([&x, &x.wrapping_add(1), &(x ^ (1 << 32))]) {
            let b = wide(y);
            assert_eq!(i64::from(a.add(b)), x.wrapping_add(y), "{x} + {y}");
            assert_eq!(i64::from(a.sub(b)), x.wrapping_sub(y), "{x} - {y}");
            assert_eq!(a.less(b), x < y, "{x} < {y}");
            assert_eq!(a.less_or_equal(b), x <= y, "{x} <= {y}");
            assert_eq!(a.equals(b), x == y, "{x} == {y}");
            assert_eq!(i64::from(a.select(x < y, b)), x.min(y));
        }
    }
}

#[test]
fn products_are_exact() {
    let mut words = Words::new(42);
    let ends = [0, 1, 2, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, u32::MAX];
    let random: Vec<u32> = (0..2_000)
        .map(|_| words.bits() >> (words.next() % 32))
        .collect();
    for &a in ends.iter().chain(&random) {
        assert_eq!(i64::from(I64::from_u32(a)), i64::from(a));
        assert_eq!(i64::from(I64::from_i32(a as i32)), i64::from(a as i32));
        for &b in ends.iter().chain(random.iter().step_by(17)) {
            let unsigned = i64::from(I64::product_u32(a, b));
            assert_eq!(unsigned as u64, u64::from(a) * u64::from(b));
            let signed = i64::from(a as i32) * i64::from(b as i32);
            assert_eq!(i64::from(I64::product_i32(a as i32, b as i32)), signed);
        }
    }
}

#[test]
fn conversion_to_f32_is_nearest_even() {
    for x in integers() {
        assert_eq!(wide(x).to_f32().to_bits(), (x as f32).to_bits(), "{x}");
        for n in [
            -300, -213, -212, -190, -175, -150, -149, -120, -40, -1, 1, 64, 65, 100, 127, 200,
        ] {
            let mut exact = Exact::zero();
            exact.add(x < 0, x.unsigned_abs(), n.clamp(-300, 190));
            let got = wide(x).to_f32_scaled(n).to_bits();
            assert_eq!(got, exact.round(), "{x} * 2^{n}");
        }
    }
    assert_eq!(wide(-1).to_f32_scaled(i32::MIN).to_bits(), 0x8000_0000);
    assert_eq!(wide(-1).to_f32_scaled(i32::MAX), f32::NEG_INFINITY);
}

/// From the parts of the number, in 128 bits.
fn fixed(x: f32, n: i32) -> i64 {
    if x.is_nan() {
        return 0;
    }
    let most = i128::from(i64::MAX);
    let (negative, m, e) = split(x.to_bits());
    let e = e + n;
    let magnitude = if x.is_infinite() || (m != 0 && e > 64) {
        most
    } else if e >= 0 {
        i128::from(m) << e.min(64)
    } else {
        let unit = 1i128 << (-e).min(100);
        let (q, r) = (i128::from(m) / unit, i128::from(m) % unit);
        q + i128::from(2 * r > unit || (2 * r == unit && q % 2 == 1))
    };
    let magnitude = magnitude.min(most) as i64;
    if negative { -magnitude } else { magnitude }
}

#[test]
fn fixed_point_is_nearest_even_and_saturates() {
    let mut words = Words::new(43);
    let check = |x: u32, n: i32| {
        let x = f32::from_bits(x);
        let got = i64::from(I64::from_f32_scaled(x, n));
        assert_eq!(got, fixed(x, n), "{x:e} * 2^{n}");
    };
    for x in boundaries() {
        for n in -170..=220 {
            check(x, n);
        }
    }
    for _ in 0..300_000 {
        let x = words.bits();
        check(x, (words.next() % 300) as i32 - 130);
        // Ties and their neighbours.
        check(
            x & 0xffff_0000 | (x & 1),
            127 - ((x >> 23) & 255) as i32 + (x & 15) as i32,
        );
    }
    assert_eq!(
        i64::from(I64::from_f32_scaled(f32::INFINITY, i32::MIN)),
        i64::MAX
    );
    assert_eq!(
        i64::from(I64::from_f32_scaled(f32::MIN_POSITIVE, i32::MAX)),
        i64::MAX
    );
    assert_eq!(i64::from(I64::from_f32_scaled(-0.0, 5)), 0);
}

/// A word that depends on every operation.
#[cube]
#[inline(always)]
fn digest(a: u32, b: u32, c: u32, d: u32) -> u32 {
    let x = I64::new(a, b);
    let y = I64::new(c, d);
    let n = a & 63u32;
    let z = x.add(y).shift_left(n).sub(x.shift_right(d & 63u32));
    let z = z.add(I64::product_i32(prim::as_i32(b), prim::as_i32(d)));
    let z = z.sub(I64::product_u32(a, c).neg());
    let z = z.add(I64::from_f32_scaled(
        prim::from_bits(a),
        prim::as_i32(b & 255u32) - 128i32,
    ));
    let z = x.select(x.less(y), z);
    let bits =
        prim::bits(z.to_f32()) ^ prim::bits(z.to_f32_scaled(prim::as_i32(c & 255u32) - 200i32));
    let flags = flag(x.less(y)) + 2u32 * flag(x.less_or_equal(y)) + 4u32 * flag(x.equals(y));
    let more = flag(z.is_negative()) + 2u32 * flag(z.is_zero());
    prim::wrapping_add(
        prim::wrapping_mul(z.hi ^ bits, 0x9e37_79b9u32),
        z.lo ^ flags ^ (more << 8u32),
    )
}

#[cube]
fn digest_kernel(x: &Array<u32>, out: &mut Array<u32>) {
    let i = ABSOLUTE_POS;
    if i < out.len() {
        out[i] = digest(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
    }
}

fn devices_compute_alike(device: &Device) {
    let mut x: Vec<u32> = Vec::new();
    for pair in integers().windows(2) {
        for y in [pair[1], pair[0], pair[0].wrapping_add(1)] {
            let (a, b) = (wide(pair[0]), wide(y));
            x.extend([a.hi, a.lo, b.hi, b.lo]);
        }
    }
    let want: Vec<u32> = x
        .chunks(4)
        .map(|w| digest(w[0], w[1], w[2], w[3]))
        .collect();
    if device.is_cpu() {
        return;
    }
    let kernel = Kernel::new(
        "wide_test",
        FloatProfile::EMULATED,
        (),
        CubeDim::new_1d(64),
        |d| {
            let (x, out) = (d.input::<u32>(), d.output::<u32>());
            digest_kernel::expand(d.scope(), x, out);
        },
    );
    let input = device.upload(&x).unwrap();
    let mut out = device.empty::<u32>(want.len()).unwrap();
    let cubes = ((want.len() as u32).div_ceil(64), 1, 1);
    device
        .launch(&kernel, cubes, args![&input, &mut out])
        .unwrap();
    assert_eq!(device.read(&out).unwrap(), want);
}

backend_suite! { devices_compute_alike }
