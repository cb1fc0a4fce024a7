//! The total order of keys (`N10`), in one place for sorts and selections.

use crate::ieee::Ieee;
use crate::prim;
use cubecl::prelude::*;

/// Which end of the keys comes first. In both a NaN comes last and -0 equals +0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// The smallest key first.
    #[default]
    Ascending,
    /// The largest key first; equal keys stay in the order of their indices.
    Descending,
}

/// The type of a key seen as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    U32,
    I32,
    F32,
}

impl Kind {
    pub(crate) const fn is_float(self) -> bool {
        matches!(self, Self::F32)
    }

    /// The bits of a key that are inverted in its [`rank`].
    pub(crate) const fn flip(self, order: Order) -> u32 {
        let sign = match self {
            Self::I32 => 0x8000_0000,
            Self::U32 | Self::F32 => 0,
        };
        match order {
            Order::Ascending => sign,
            Order::Descending => !sign,
        }
    }
}

/// A word that orders as the key whose bits are `raw` does; smaller comes first. `flip` is the
/// kind's for the order.
#[cube]
#[inline(always)]
pub(crate) fn rank(ieee: Ieee, raw: u32, flip: u32, #[comptime] float: bool) -> u32 {
    if comptime!(float) {
        let key = ieee.order_key(prim::from_bits(raw));
        // NaN stays last.
        prim::select_u32(key == u32::MAX, key, key ^ flip)
    } else {
        raw ^ flip
    }
}

/// `raw`, the bits of a NaN as those of the one that leaves an operation (`N11`).
#[cube]
#[inline(always)]
pub(crate) fn stored(ieee: Ieee, raw: u32, #[comptime] float: bool) -> u32 {
    if comptime!(float) {
        prim::bits(ieee.canonical(prim::from_bits(raw)))
    } else {
        raw
    }
}
