//! Encoding has a unit for each word, decoding one for each number.

use super::{Half, decode_half, encode_half};
use crate::convert;
use crate::device::{Buffer, Kernel, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::grid;
use cubecl::prelude::*;
use detml_core::Result;

const UNITS: u32 = 256;

#[cube]
fn pack_halves(x: &Array<f32>, out: &mut Array<u32>, len: u32, #[comptime] half: Half) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < len / 2u32 {
        let low = encode_half(x[(2u32 * i) as usize], half);
        let high = encode_half(x[(2u32 * i + 1u32) as usize], half);
        out[i as usize] = convert::join_halves(low, high);
    } else {
        if 2u32 * i + 1u32 == len {
            out[i as usize] = encode_half(x[(2u32 * i) as usize], half);
        }
    }
}

#[cube]
fn unpack_halves(words: &Array<u32>, out: &mut Array<f32>, len: u32, #[comptime] half: Half) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < len {
        let word = words[(i / 2u32) as usize];
        out[i as usize] = decode_half((word >> ((i & 1u32) << 4u32)) & 0xffffu32, half);
    }
}

#[cube]
fn pack_bytes(
    ieee: &Ieee,
    x: &Array<f32>,
    exponents: &Array<i32>,
    out: &mut Array<u32>,
    columns: u32,
    total: u32,
) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < total {
        let words = (columns + 3u32) / 4u32;
        let row = i / words;
        let column = (i - row * words) * 4u32;
        let e = exponents[row as usize];
        let first = row * columns + column;
        let mut codes = Array::<i32>::new(4usize);
        #[unroll]
        for lane in 0..4u32 {
            codes[lane as usize] = 0i32;
            if column + lane < columns {
                codes[lane as usize] = convert::f32_to_int8(ieee, x[(first + lane) as usize], e);
            }
        }
        out[i as usize] = convert::join_bytes(codes[0], codes[1], codes[2], codes[3]);
    }
}

#[cube]
fn unpack_bytes(
    ieee: &Ieee,
    codes: &Array<u32>,
    exponents: &Array<i32>,
    out: &mut Array<f32>,
    columns: u32,
    total: u32,
) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < total {
        let words = (columns + 3u32) / 4u32;
        let row = i / columns;
        let column = i - row * columns;
        let word = codes[(row * words + column / 4u32) as usize];
        let code = convert::byte(word, column);
        out[i as usize] = convert::int8_to_f32(ieee, code, exponents[row as usize]);
    }
}

fn pack_kernel(profile: FloatProfile, half: Half) -> Kernel {
    Kernel::new(
        "pack_halves",
        profile,
        half,
        CubeDim::new_1d(UNITS),
        move |d| {
            let (x, out, len) = (d.input::<f32>(), d.output::<u32>(), d.scalar::<u32>());
            pack_halves::expand(d.scope(), x, out, len, half);
        },
    )
}

fn unpack_kernel(profile: FloatProfile, half: Half) -> Kernel {
    Kernel::new(
        "unpack_halves",
        profile,
        half,
        CubeDim::new_1d(UNITS),
        move |d| {
            let (x, out, len) = (d.input::<u32>(), d.output::<f32>(), d.scalar::<u32>());
            unpack_halves::expand(d.scope(), x, out, len, half);
        },
    )
}

fn pack_int8_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("pack_bytes", profile, (), CubeDim::new_1d(UNITS), |d| {
        let ieee = d.ieee();
        let (x, exponents, out) = (d.input::<f32>(), d.input::<i32>(), d.output::<u32>());
        let [columns, total] = [(); 2].map(|()| d.scalar::<u32>());
        pack_bytes::expand(d.scope(), ieee, x, exponents, out, columns, total);
    })
}

fn unpack_int8_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("unpack_bytes", profile, (), CubeDim::new_1d(UNITS), |d| {
        let ieee = d.ieee();
        let (codes, exponents, out) = (d.input::<u32>(), d.input::<i32>(), d.output::<f32>());
        let [columns, total] = [(); 2].map(|()| d.scalar::<u32>());
        unpack_bytes::expand(d.scope(), ieee, codes, exponents, out, columns, total);
    })
}

pub(super) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    vec![
        pack_kernel(profile, Half::Bf16),
        pack_kernel(profile, Half::F16),
        unpack_kernel(profile, Half::Bf16),
        unpack_kernel(profile, Half::F16),
        pack_int8_kernel(profile),
        unpack_int8_kernel(profile),
    ]
}

pub(super) fn encode(half: Half, x: &Buffer<f32>, out: &mut Buffer<u32>) -> Result<()> {
    let device = x.device();
    let cubes = grid(out.len(), UNITS as usize)?;
    let kernel = pack_kernel(device.profile()?, half);
    if out.is_empty() {
        return Ok(());
    }
    device.launch(&kernel, cubes, args![x, out, x.len() as u32])
}

pub(super) fn decode(half: Half, words: &Buffer<u32>, out: &mut Buffer<f32>) -> Result<()> {
    let device = words.device();
    if out.is_empty() {
        return Ok(());
    }
    let len = out.len();
    let kernel = unpack_kernel(device.profile()?, half);
    device.launch(
        &kernel,
        grid(len, UNITS as usize)?,
        args![words, out, len as u32],
    )
}

pub(super) fn encode_int8(
    x: &Buffer<f32>,
    columns: usize,
    exponents: &Buffer<i32>,
    codes: &mut Buffer<u32>,
) -> Result<()> {
    let device = x.device();
    if codes.is_empty() {
        return Ok(());
    }
    let total = codes.len();
    device.launch(
        &pack_int8_kernel(device.profile()?),
        grid(total, UNITS as usize)?,
        args![x, exponents, codes, columns as u32, total as u32],
    )
}

pub(super) fn decode_int8(
    codes: &Buffer<u32>,
    columns: usize,
    exponents: &Buffer<i32>,
    out: &mut Buffer<f32>,
) -> Result<()> {
    let device = codes.device();
    if out.is_empty() {
        return Ok(());
    }
    let total = out.len();
    device.launch(
        &unpack_int8_kernel(device.profile()?),
        grid(total, UNITS as usize)?,
        args![codes, exponents, out, columns as u32, total as u32],
    )
}
