//! The functions that are no more than a method of [`Ieee`].

use crate::ieee::Ieee;
use crate::prim;
use cubecl::prelude::*;

macro_rules! methods {
    ($($name:ident($($arg:ident),+) -> $ret:ty = $method:ident;)+) => {$(
        #[cube]
        #[inline(always)]
        pub(super) fn $name(ieee: &Ieee, $($arg: f32),+) -> $ret {
            ieee.$method($($arg),+)
        }
    )+};
}

methods! {
    neg(x) -> f32 = neg;
    abs(x) -> f32 = abs;
    sqrt(x) -> f32 = sqrt;
    floor(x) -> f32 = floor;
    ceil(x) -> f32 = ceil;
    trunc(x) -> f32 = trunc;
    round(x) -> f32 = round_ties_even;
    add(a, b) -> f32 = add;
    sub(a, b) -> f32 = sub;
    mul(a, b) -> f32 = mul;
    div(a, b) -> f32 = div;
    min(a, b) -> f32 = min;
    max(a, b) -> f32 = max;
    copysign(a, b) -> f32 = copysign;
    lt(a, b) -> bool = lt;
    le(a, b) -> bool = le;
    gt(a, b) -> bool = gt;
    ge(a, b) -> bool = ge;
    eq(a, b) -> bool = eq;
    ne(a, b) -> bool = ne;
    fma(a, b, c) -> f32 = fma;
}

#[cube]
#[inline(always)]
pub(super) fn sign(ieee: &Ieee, x: f32) -> f32 {
    let zero = prim::from_bits(0u32);
    let one = ieee.copysign(prim::from_bits(0x3f80_0000u32), x);
    ieee.select(ieee.eq(x, zero) || ieee.is_nan(x), x, one)
}

#[cube]
#[inline(always)]
pub(super) fn square(ieee: &Ieee, x: f32) -> f32 {
    ieee.mul(x, x)
}

#[cube]
#[inline(always)]
pub(super) fn recip(ieee: &Ieee, x: f32) -> f32 {
    ieee.div(prim::from_bits(0x3f80_0000u32), x)
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
    ieee.mul(d, d)
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
