//! Integer-only binary32 arithmetic in 32-bit words.
use crate::prim;
use cubecl::prelude::*;
#[cube]
#[inline(always)]
pub(crate) fn add(a: u32, b: u32) -> u32 {
    prim::wrapping_add(a, b)
}
