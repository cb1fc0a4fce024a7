//! The functions that are little more than a method of [`Ieee`]. NaN results are canonical (`N11`).

use crate::convert;
use crate::ieee::Ieee;
use crate::prim;
use cubecl::prelude::*;

macro_rules! methods {
    ($($name:ident($($arg:ident),+) = $method:ident;)+) => {$(
        #[cube]
        #[inline(always)]
        pub(super) fn $name(ieee: &Ieee, $($arg: f32),+) -> f32 {
            ieee.canonical(ieee.$method($($arg),+))
        }
    )+};
}

methods! {
    neg(x) = neg;
    abs(x) = abs;
    sqrt(x) = sqrt;
    floor(x) = floor;
    ceil(x) = ceil;
    trunc(x) = trunc;
    round(x) = round_ties_even;
    add(a, b) = add;
    sub(a, b) = sub;
    mul(a, b) = mul;
    div(a, b) = div;
    copysign(a, b) = copysign;
    fma(a, b, c) = fma;
}

macro_rules! plain_methods {
    ($($name:ident($($arg:ident),+) -> $ret:ty;)+) => {$(
        #[cube]
        #[inline(always)]
        pub(super) fn $name(ieee: &Ieee, $($arg: f32),+) -> $ret {
            ieee.$name($($arg),+)
        }
    )+};
}

plain_methods! {
    min(a, b) -> f32;
    max(a, b) -> f32;
    lt(a, b) -> bool;
    le(a, b) -> bool;
    gt(a, b) -> bool;
    ge(a, b) -> bool;
    eq(a, b) -> bool;
    ne(a, b) -> bool;
}

#[cube]
#[inline(always)]
pub(super) fn sign(ieee: &Ieee, x: f32) -> f32 {
    let zero = prim::from_bits(0u32);
    let one = ieee.copysign(prim::from_bits(0x3f80_0000u32), x);
    ieee.canonical(ieee.select(ieee.eq(x, zero) || ieee.is_nan(x), x, one))
}

#[cube]
#[inline(always)]
pub(super) fn square(ieee: &Ieee, x: f32) -> f32 {
    ieee.canonical(ieee.mul(x, x))
}

#[cube]
#[inline(always)]
pub(super) fn recip(ieee: &Ieee, x: f32) -> f32 {
    ieee.canonical(ieee.div(prim::from_bits(0x3f80_0000u32), x))
}

#[cube]
#[inline(always)]
pub(super) fn relu(ieee: &Ieee, x: f32) -> f32 {
    ieee.max(x, prim::from_bits(0u32))
}

#[cube]
#[inline(always)]
pub(super) fn squared_difference(ieee: &Ieee, a: f32, b: f32) -> f32 {
    let d = ieee.sub(a, b);
    ieee.canonical(ieee.mul(d, d))
}

#[cube]
#[inline(always)]
pub(super) fn clamp(ieee: &Ieee, x: f32, low: f32, high: f32) -> f32 {
    ieee.min(ieee.max(x, low), high)
}

#[cube]
#[inline(always)]
pub(super) fn choose(_ieee: &Ieee, c: u32, a: u32, b: u32) -> u32 {
    prim::select_u32(c != 0u32, a, b)
}

#[cube]
#[inline(always)]
pub(super) fn copy(_ieee: &Ieee, x: u32) -> u32 {
    x
}

#[cube]
#[inline(always)]
pub(super) fn u32_to_f32(ieee: &Ieee, x: u32) -> u32 {
    prim::bits(ieee.from_u32(x))
}

#[cube]
#[inline(always)]
pub(super) fn i32_to_f32(ieee: &Ieee, x: u32) -> u32 {
    prim::bits(ieee.from_i32(prim::as_i32(x)))
}

#[cube]
#[inline(always)]
pub(super) fn f32_to_u32(ieee: &Ieee, x: u32) -> u32 {
    ieee.to_u32(prim::from_bits(x))
}

#[cube]
#[inline(always)]
pub(super) fn f32_to_i32(ieee: &Ieee, x: u32) -> u32 {
    prim::as_u32(ieee.to_i32(prim::from_bits(x)))
}

#[cube]
#[inline(always)]
pub(super) fn int8_exponent(ieee: &Ieee, x: u32) -> u32 {
    prim::as_u32(convert::int8_exponent(ieee, prim::from_bits(x)))
}
