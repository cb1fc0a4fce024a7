//! What operations over tiles of a long row share.

use crate::device::Definition;
use cubecl::prelude::*;
use detml_core::{Error, Result};

/// The longest row that operations with 32-bit positions take: a kernel's last tile may reach a
/// little beyond the end without wrapping.
const MAX_LEN: usize = 1 << 31;

/// Refuses rows whose positions don't fit 32 bits, on every device alike.
pub(crate) fn check_len(op: &str, len: usize) -> Result<()> {
    if len <= MAX_LEN {
        Ok(())
    } else {
        Err(Error::shape(
            op,
            format_args!("at most {MAX_LEN} elements"),
            len,
        ))
    }
}

/// Refuses matrices whose shape isn't that of their elements.
pub(crate) fn check_matrix(op: &str, len: usize, rows: usize, cols: usize) -> Result<()> {
    if rows.checked_mul(cols) == Some(len) {
        check_len(op, len)
    } else {
        Err(Error::shape(
            op,
            format_args!("{rows} x {cols} elements"),
            len,
        ))
    }
}

/// Slices of the given lengths, in order, of a row at least as long as all of them.
pub(crate) fn split<T>(
    mut row: &mut [T],
    lengths: impl IntoIterator<Item = usize>,
) -> Vec<&mut [T]> {
    lengths
        .into_iter()
        .map(|length| {
            let (head, tail) = std::mem::take(&mut row).split_at_mut(length);
            row = tail;
            head
        })
        .collect()
}

/// Four words, one load or store.
pub(crate) type Four = Vector<u32, Const<4>>;

/// An array of words, seen as vectors of four where its length divides by four.
#[derive(CubeType)]
pub(crate) struct Wide {
    /// Of no meaning unless `vectors`.
    pub(crate) fours: Array<Four>,
    /// Of no meaning if `vectors`.
    pub(crate) words: Array<u32>,
    #[cube(comptime)]
    vectors: bool,
}

/// Declares an input; its argument is `buffer.vectors(4)` if `vectors`.
pub(crate) fn wide_input(d: &mut Definition, vectors: bool) -> WideExpand {
    let (fours, words) = if vectors {
        let fours = d.input::<Four>();
        (fours.clone(), fours.expand.into())
    } else {
        let words = d.input::<u32>();
        (words.expand.clone().into(), words)
    };
    WideExpand {
        fours,
        words,
        vectors,
    }
}

/// As [`wide_input`], an output.
pub(crate) fn wide_output(d: &mut Definition, vectors: bool) -> WideExpand {
    let (fours, words) = if vectors {
        let fours = d.output::<Four>();
        (fours.clone(), fours.expand.into())
    } else {
        let words = d.output::<u32>();
        (words.expand.clone().into(), words)
    };
    WideExpand {
        fours,
        words,
        vectors,
    }
}

/// The words from `4 v` on; 0 for those that are not below `n`.
#[cube]
pub(crate) fn four(x: &Wide, v: u32, n: u32) -> Four {
    let mut r = Four::empty();
    if comptime!(x.vectors) {
        r = Four::new(0u32);
        if v < n / 4u32 {
            r = x.fours[v as usize];
        }
    } else {
        #[unroll]
        for l in 0..4u32 {
            // Each element is assigned once: CubeCL 0.10.0 merges assignments to a vector by
            // their number.
            let mut word = 0u32;
            let i = 4u32 * v + l;
            if i < n {
                word = x.words[i as usize];
            }
            r[l as usize] = word;
        }
    }
    r
}

/// Sum modulo 2^32 of `value` over the units before this one, and over all units of the cube.
///
/// `scratch` holds twice the units, a power of two. It may be used again at once.
#[cube]
pub(crate) fn cube_scan(
    value: u32,
    scratch: &mut SharedMemory<u32>,
    #[comptime] units: u32,
) -> (u32, u32) {
    let unit = UNIT_POS as usize;
    let units = comptime!(units as usize);
    let mut sum = value;
    // The two halves take turns.
    let mut half = 0usize;
    let mut distance = 1usize;
    scratch[unit] = value;
    sync_cube();
    for _ in 0..comptime!(units.ilog2()) {
        if unit >= distance {
            sum += scratch[half + unit - distance];
        }
        half = units - half;
        scratch[half + unit] = sum;
        sync_cube();
        distance *= 2usize;
    }
    let total = scratch[half + units - 1];
    sync_cube();
    (sum - value, total)
}
