use super::*;
use crate::device::{Device, Kernel, args};
use crate::ieee::FloatProfile;
use crate::suite::backend_suite;
use crate::testing::{Words, boundaries, canonical};

fn canonical_bf16(x: bf16) -> u16 {
    if x.is_nan() { 0x7fc0 } else { x.to_bits() }
}

fn canonical_f16(x: f16) -> u16 {
    if x.is_nan() { 0x7e00 } else { x.to_bits() }
}

#[test]
fn every_narrow_number_decodes_and_comes_back() {
    for h in 0..=u16::MAX {
        let word = u32::from(h);
        let (b, f) = (bf16::from_bits(h), f16::from_bits(h));
        assert_eq!(
            bf16_to_f32(word).to_bits(),
            canonical(b.to_f32()),
            "bf16 {h:04x}"
        );
        assert_eq!(
            f16_to_f32(word).to_bits(),
            canonical(f.to_f32()),
            "f16 {h:04x}"
        );
        assert_eq!(f32_to_bf16(bf16_to_f32(word)) as u16, canonical_bf16(b));
        assert_eq!(f32_to_f16(f16_to_f32(word)) as u16, canonical_f16(f));
        // The bits above don't matter.
        assert_eq!(
            bf16_to_f32(word | 0xabcd_0000).to_bits(),
            bf16_to_f32(word).to_bits()
        );
        assert_eq!(
            f16_to_f32(word | 0xabcd_0000).to_bits(),
            f16_to_f32(word).to_bits()
        );
    }
}

fn check_encoding(bits: u32) {
    let x = f32::from_bits(bits);
    let b = canonical_bf16(bf16::from_f32(x));
    let h = canonical_f16(f16::from_f32(x));
    assert_eq!(f32_to_bf16(x), u32::from(b), "bf16 of {bits:08x}");
    assert_eq!(f32_to_f16(x), u32::from(h), "f16 of {bits:08x}");
}

#[test]
fn encoding_rounds_to_nearest_even() {
    boundaries().into_iter().for_each(check_encoding);
    // Around every narrow number and every tie between two of them.
    for h in 0..=u16::MAX {
        let wide = [bf16_to_f32(u32::from(h)), f16_to_f32(u32::from(h))].map(f32::to_bits);
        for x in wide {
            for near in [0, 1, 0x800, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001] {
                check_encoding(x.wrapping_add(near));
                check_encoding(x.wrapping_sub(near));
            }
        }
    }
    for bits in (0..=u32::MAX).step_by(1021) {
        check_encoding(bits);
    }
    // Subnormals of f16, where the ties move with the exponent.
    let mut words = Words::new(31);
    for _ in 0..400_000 {
        let x = words.near(0x3600_0000, 8);
        check_encoding(x);
        check_encoding(x & 0xffff_8000);
        check_encoding(x & 0xfff8_0000);
    }
}

#[test]
fn words_hold_halves_and_bytes() {
    let mut words = Words::new(32);
    for _ in 0..10_000 {
        let w = words.bits();
        assert_eq!(join_halves(low_half(w), high_half(w)), w);
        assert_eq!(
            join_halves(w, w.swap_bytes()),
            (w & 0xffff) | (w.swap_bytes() << 16)
        );
        let bytes = w.to_le_bytes().map(|b| i32::from(b as i8));
        assert_eq!([0, 1, 2, 3].map(|lane| byte(w, lane)), bytes);
        assert_eq!(join_bytes(bytes[0], bytes[1], bytes[2], bytes[3]), w);
    }
}

#[test]
fn int8_scales_are_the_least_that_fit() {
    let m = Ieee::PLAIN;
    let check = |bits: u32| {
        let largest = f32::from_bits(bits & MAGNITUDE);
        let e = int8_exponent(&m, largest);
        assert_eq!(int8_exponent(&m, -largest), e);
        assert_eq!(int8_exponent(&Ieee::EMULATED, largest), e);
        if largest.is_finite() && largest > 0.0 {
            let fits = |e: i32| largest as f64 <= 127.0 * 2f64.powi(e);
            assert!(fits(e) || e == 121, "{largest:e} does not fit exponent {e}");
            assert!(
                !fits(e - 1) || e == -149,
                "{largest:e} fits below exponent {e}"
            );
            let q = f32_to_int8(&m, largest, e);
            assert!(
                e == -149 || (64..=127).contains(&q),
                "{largest:e} has code {q}"
            );
        }
    };
    boundaries().into_iter().for_each(check);
    let mut words = Words::new(33);
    for _ in 0..100_000 {
        let w = words.bits();
        check(w);
        check((w & 0xff80_0000) | 0x007e_0000);
        check((w & 0xff80_0000) | 0x007e_0001);
    }
    assert_eq!(int8_exponent(&m, 0.0), 0);
    assert_eq!(int8_exponent(&m, f32::NAN), 0);
    assert_eq!(int8_exponent(&m, f32::INFINITY), 121);
    assert_eq!(int8_exponent(&m, f32::MAX), 121);
}

#[test]
fn int8_codes_round_trip_and_saturate() {
    let m = Ieee::PLAIN;
    for e in -149..=121 {
        for q in -127..=127 {
            let x = int8_to_f32(&m, q, e);
            assert_eq!(x as f64, q as f64 * 2f64.powi(e));
            assert_eq!(f32_to_int8(&m, x, e), q);
        }
    }
    for (x, q) in [
        (0.5, 0),
        (1.5, 2),
        (2.5, 2),
        (-2.5, -2),
        (126.5, 126),
        (127.5, 127),
        (-128.0, -127),
        (f32::INFINITY, 127),
        (f32::NEG_INFINITY, -127),
        (f32::NAN, 0),
        (-0.0, 0),
    ] {
        assert_eq!(f32_to_int8(&m, x, 0), q, "{x}");
    }
    assert_eq!(f32_to_int8(&m, 1.0, i32::MIN), 127);
    assert_eq!(f32_to_int8(&m, f32::MAX, i32::MAX), 0);
    let x = [1.0, f32::NAN, f32::INFINITY, -3.0];
    let q = Int8::encode(&x).unwrap();
    assert_eq!((q.exponent, &q.codes[..]), (-5, &[32, 0, 127, -96][..]));
    assert_eq!(Int8::encode(&[]).unwrap().decode().unwrap(), [0.0; 0]);
}

#[test]
fn slices_equal_their_elements() {
    let mut words = Words::new(34);
    let x: Vec<f32> = (0..1003).map(|_| f32::from_bits(words.bits())).collect();
    for (x, b) in x.iter().zip(encode_bf16(&x).unwrap()) {
        assert_eq!(u32::from(b.to_bits()), f32_to_bf16(*x));
    }
    let halves: Vec<f16> = x
        .iter()
        .map(|x| f16::from_bits(x.to_bits() as u16))
        .collect();
    for (h, x) in halves.iter().zip(decode_f16(&halves).unwrap()) {
        assert_eq!(canonical(x), canonical(h.to_f32()));
    }
    assert_eq!(encode_f16(&x).unwrap().len(), x.len());
    let back = decode_bf16(&encode_bf16(&x).unwrap()).unwrap();
    assert_eq!(encode_bf16(&back).unwrap().len(), x.len());
}

/// Two words for each input word: the encodings, and a digest of the decodings.
#[cube]
#[inline(always)]
fn convert(m: Ieee, x: u32, #[comptime] second: bool) -> u32 {
    let f = prim::from_bits(x);
    if comptime!(second) {
        let e = int8_exponent(&m, f);
        let q = f32_to_int8(&m, prim::from_bits(x ^ 0x0155_5555u32), e);
        let d = prim::bits(m.canonical(int8_to_f32(&m, byte(x, 3u32), e)));
        let w = join_bytes(q, byte(x, 1u32), e, byte(x, 2u32));
        prim::wrapping_add(
            prim::wrapping_mul(w, 5u32),
            prim::bits(bf16_to_f32(x)) ^ prim::wrapping_mul(prim::bits(f16_to_f32(x)), 3u32) ^ d,
        )
    } else {
        join_halves(f32_to_bf16(f), f32_to_f16(f))
    }
}

#[cube]
fn convert_kernel(m: Ieee, x: &Array<u32>, out: &mut Array<u32>) {
    let i = ABSOLUTE_POS;
    if i < x.len() {
        out[2 * i] = convert(m, x[i], false);
        out[2 * i + 1] = convert(m, x[i], true);
    }
}

fn kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("convert_test", profile, (), CubeDim::new_1d(64), |d| {
        let ieee = d.ieee();
        let (x, out) = (d.input::<u32>(), d.output::<u32>());
        convert_kernel::expand(d.scope(), ieee, x, out);
    })
}

struct Convert<'a>(&'a [u32]);
impl Loop for Convert<'_> {
    type Output = Vec<u32>;
    #[inline(always)]
    fn run(self, m: Ieee) -> Vec<u32> {
        let mut out = vec![0; 2 * self.0.len()];
        for (out, &x) in out.chunks_exact_mut(2).zip(self.0) {
            out[0] = convert(m, x, false);
            out[1] = convert(m, x, true);
        }
        out
    }
}

fn devices_convert_alike(device: &Device) {
    let mut words = Words::new(35);
    let mut x = boundaries();
    x.extend((0..=u16::MAX).map(|h| u32::from(h) << 13));
    x.extend((0..30_000).map(|_| words.bits()));
    x.extend((0..10_000).map(|_| words.near(0x3600_0000, 12)));
    let want = Convert(&x).run(Ieee::EMULATED);
    let got = match device.simd() {
        Some(simd) => simd.dispatch(Convert(&x)),
        None => {
            let mut out = device.empty::<u32>(2 * x.len()).unwrap();
            let input = device.upload(&x).unwrap();
            let cubes = ((x.len() as u32).div_ceil(64), 1, 1);
            let kernel = kernel(device.profile().unwrap());
            device
                .launch(&kernel, cubes, args![&input, &mut out])
                .unwrap();
            device.read(&out).unwrap()
        }
    };
    for (i, (g, w)) in got.iter().zip(&want).enumerate() {
        assert_eq!(g, w, "word {} of {:08x} on {device}", i % 2, x[i / 2]);
    }
}

backend_suite! { devices_convert_alike }
