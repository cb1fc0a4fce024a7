//! Every operation on every device gives the bits of the integer code.

use super::*;
use crate::device::{Device, Kernel, Loop, args};
use crate::suite::backend_suite;

/// The operations, numbered; results as bits with the one NaN.
const OPERATIONS: u32 = 25;

#[cube]
#[inline(always)]
fn operation(m: Ieee, #[comptime] which: u32, a: u32, b: u32, c: u32) -> u32 {
    let x = prim::from_bits(a);
    let y = prim::from_bits(b);
    let z = prim::from_bits(c);
    if comptime!(which == 0) {
        stored(m, m.add(x, y))
    } else if comptime!(which == 1) {
        stored(m, m.sub(x, y))
    } else if comptime!(which == 2) {
        stored(m, m.mul(x, y))
    } else if comptime!(which == 3) {
        stored(m, m.fma(x, y, z))
    } else if comptime!(which == 4) {
        stored(m, m.div(x, y))
    } else if comptime!(which == 5) {
        stored(m, m.sqrt(x))
    } else if comptime!(which == 6) {
        stored(m, m.min(x, y))
    } else if comptime!(which == 7) {
        stored(m, m.max(x, y))
    } else if comptime!(which == 8) {
        stored(m, m.floor(x))
    } else if comptime!(which == 9) {
        stored(m, m.ceil(x))
    } else if comptime!(which == 10) {
        stored(m, m.trunc(x))
    } else if comptime!(which == 11) {
        stored(m, m.round_ties_even(x))
    } else if comptime!(which == 12) {
        stored(m, m.scale(x, prim::as_i32(b) % 300i32))
    } else if comptime!(which == 13) {
        stored(m, m.copysign(x, y))
    } else if comptime!(which == 14) {
        stored(m, m.neg(m.abs(x)))
    } else if comptime!(which == 15) {
        prim::bits(m.from_u32(a))
    } else if comptime!(which == 16) {
        prim::bits(m.from_i32(prim::as_i32(a)))
    } else if comptime!(which == 17) {
        m.to_u32(x)
    } else if comptime!(which == 18) {
        prim::as_u32(m.to_i32(x))
    } else if comptime!(which == 19) {
        prim::as_u32(m.exponent(x))
    } else if comptime!(which == 20) {
        m.total_key(x)
    } else if comptime!(which == 21) {
        m.order_key(x)
    } else if comptime!(which == 22) {
        prim::bits(m.from_total_key(a))
    } else if comptime!(which == 23) {
        // A product and a sum that must stay two operations.
        stored(m, m.add(m.mul(x, y), z))
    } else {
        let low = flag(m.lt(x, y)) + 2u32 * flag(m.le(x, y)) + 4u32 * flag(m.eq(x, y));
        let high = flag(m.gt(x, y)) + 2u32 * flag(m.ge(x, y)) + 4u32 * flag(m.ne(x, y));
        low + 8u32 * high + 64u32 * flag(m.is_nan(x)) + 128u32 * flag(m.is_finite(x))
    }
}

#[cube]
#[inline(always)]
fn stored(m: Ieee, x: f32) -> u32 {
    prim::bits(m.canonical(x))
}

#[cube]
#[inline(always)]
fn flag(c: bool) -> u32 {
    prim::select_u32(c, 1u32, 0u32)
}

#[cube]
fn operation_kernel(
    m: Ieee,
    #[comptime] which: u32,
    a: &Array<u32>,
    b: &Array<u32>,
    c: &Array<u32>,
    out: &mut Array<u32>,
) {
    let i = ABSOLUTE_POS;
    if i < out.len() {
        out[i] = operation(m, which, a[i], b[i], c[i]);
    }
}

fn kernel(profile: FloatProfile, which: u32) -> Kernel {
    Kernel::new("ieee_test", profile, which, CubeDim::new_1d(64), move |d| {
        let ieee = d.ieee();
        let (a, b, c) = (d.input::<u32>(), d.input::<u32>(), d.input::<u32>());
        let out = d.output::<u32>();
        operation_kernel::expand(d.scope(), ieee, which, a, b, c, out);
    })
}

struct Operation<'a> {
    which: u32,
    args: &'a [[u32; 3]],
}

impl Loop for Operation<'_> {
    type Output = Vec<u32>;
    #[inline(always)]
    fn run(self, m: Ieee) -> Vec<u32> {
        let mut out = vec![0; self.args.len()];
        for (out, &[a, b, c]) in out.iter_mut().zip(self.args) {
            *out = operation(m, self.which, a, b, c);
        }
        out
    }
}

fn triples() -> Vec<[u32; 3]> {
    let few = few_boundaries();
    let mut words = Words::new(21);
    let mut all = Vec::new();
    for &a in &few {
        for &b in &few {
            let product = soft::mul(a, b);
            all.push([a, b, product ^ SIGN]);
            all.push([a, b, few[words.bits() as usize % few.len()]]);
        }
    }
    for _ in 0..20_000 {
        let (a, b) = (words.bits(), words.bits());
        let near = words.near(a, 28);
        let product = soft::mul(a, b);
        all.push([a, b, words.near(product, 50)]);
        all.push([a, near, product ^ SIGN]);
        all.push([
            near,
            b,
            prim::wrapping_add(soft::mul(near, b) ^ SIGN, b & 1),
        ]);
        // Integers and halves.
        all.push([
            words.near(0x4a00_0000, 20),
            words.near(0x3f80_0000, 2),
            near,
        ]);
    }
    all
}

fn equals(device: &Device, profile: FloatProfile, all: &[[u32; 3]]) {
    let columns = [0, 1, 2].map(|i| {
        let column: Vec<u32> = all.iter().map(|t| t[i]).collect();
        device.upload(&column).unwrap()
    });
    let [a, b, c] = &columns;
    for which in 0..OPERATIONS {
        let want = Operation { which, args: all }.run(Ieee::EMULATED);
        let got = match device.simd() {
            Some(simd) => simd.dispatch(Operation { which, args: all }),
            None => {
                let mut out = device.empty::<u32>(all.len()).unwrap();
                let cubes = (all.len() as u32).div_ceil(64);
                device
                    .launch(
                        &kernel(profile, which),
                        (cubes, 1, 1),
                        args![a, b, c, &mut out],
                    )
                    .unwrap();
                device.read(&out).unwrap()
            }
        };
        let wrong = (0..all.len()).filter(|&i| got[i] != want[i]).count();
        if let Some(i) = (0..all.len()).find(|&i| got[i] != want[i]) {
            panic!(
                "operation {which} of {:08x?} on {device}: got {:08x}, expected {:08x}; \
                 {wrong} of {} differ under {profile:?}",
                all[i],
                got[i],
                want[i],
                all.len()
            );
        }
    }
}

fn by_its_profile(device: &Device) {
    equals(device, device.profile().unwrap(), &triples());
}

/// The integer code relies on no float arithmetic, whatever the device.
fn by_integer_code(device: &Device) {
    equals(device, FloatProfile::EMULATED, &triples());
}

backend_suite! { by_its_profile, by_integer_code }
