//! Copies of operands in the order in which micro-kernels read them.

use super::Source;
use crate::device::Loop;
use crate::ieee::Ieee;
use crate::ops::gemm::lanes::{Lanes, prefetch};
use std::marker::PhantomData;

/// Elements that packed operands need behind their own: stores go beyond the last row.
pub(super) const SLACK: usize = 16;

/// Copies `k` terms of `lanes` lanes to slivers of `width` lanes, one after the other, each `k`
/// rows of `width`. What a last, narrower sliver does not fill may be anything.
pub(super) struct Pack<'a, L> {
    pub(super) source: Source<'a>,
    pub(super) lanes: usize,
    pub(super) k: usize,
    pub(super) width: usize,
    /// How many terms on to ask for what comes next, where terms follow each other; 0 does not.
    pub(super) ahead: usize,
    /// [`SLACK`] elements longer than the slivers; the slack may be written.
    pub(super) out: &'a mut [f32],
    pub(super) lanes_type: PhantomData<L>,
}

impl<L: Lanes> Loop for Pack<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: Ieee) {
        let Self {
            source: Source { data, lane, .. },
            lanes,
            k,
            width,
            ahead,
            out,
            ..
        } = self;
        if k == 0 || lanes == 0 {
            return;
        }
        let stride = self.source.k;
        if lane == 1 {
            copy::<L>(data, stride, lanes, k, width, out);
            return;
        }
        if width == 1 && stride == 1 {
            for (l, out) in out.chunks_exact_mut(k).enumerate().take(lanes) {
                out.copy_from_slice(&data[l * lane..][..k]);
            }
            return;
        }
        for (sliver, first) in (0..lanes).step_by(width).enumerate() {
            let lanes = width.min(lanes - first);
            let data = &data[first * lane..];
            let out = &mut out[sliver * width * k..][..width * k + SLACK];
            if stride == 1 && k >= 8 {
                turn::<L>(data, lane, lanes, k, width, ahead, out);
            } else {
                for l in 0..lanes {
                    for k in 0..k {
                        out[k * width + l] = data[l * lane + k * stride];
                    }
                }
            }
        }
    }
}

/// A sliver of lanes whose terms lie side by side.
#[inline(always)]
fn turn<L: Lanes>(
    data: &[f32],
    lane: usize,
    lanes: usize,
    k: usize,
    width: usize,
    ahead: usize,
    out: &mut [f32],
) {
    assert!((lanes - 1).saturating_mul(lane).saturating_add(k) <= data.len());
    assert!(8 <= k && lanes <= width && width * k + SLACK <= out.len());
    // Groups of eight lanes, the last one first: what it writes beyond its lanes, the others
    // write again. So do later terms with what earlier ones wrote beyond their row.
    for first in (0..lanes.div_ceil(8)).rev().map(|group| 8 * group) {
        // A group that is not whole repeats its last lane.
        let row = |l: usize| {
            data.as_ptr()
                .wrapping_add((first + l).min(lanes - 1) * lane)
        };
        let rows = std::array::from_fn(row);
        let (soon, ahead) = (ahead > 0, rows.map(|row| row.wrapping_add(ahead)));
        for from in (0..k).step_by(8) {
            // The last block overlaps the one before rather than be shorter.
            let at = from.min(k - 8);
            if soon {
                for row in ahead {
                    prefetch(row.wrapping_add(at));
                }
            }
            // SAFETY: the slices hold all (asserted above): 8 lanes of the last row end before
            // the slack does.
            unsafe { L::turn(rows, at, out.as_mut_ptr().add(at * width + first), width) }
        }
    }
}

/// Rows that are copied sliver by sliver before the next ones: with more, rows some power of two
/// apart push each other out of the cache.
const BLOCK: usize = 8;
/// Slivers for which a block of rows is copied before the next one.
const GROUP: usize = 16;

/// Slivers of terms whose lanes lie side by side.
#[inline(always)]
fn copy<L: Lanes>(
    data: &[f32],
    stride: usize,
    lanes: usize,
    k: usize,
    width: usize,
    out: &mut [f32],
) {
    assert!((k - 1).saturating_mul(stride).saturating_add(lanes) <= data.len());
    assert!(lanes.div_ceil(width) * width * k <= out.len());
    for group in (0..lanes).step_by(GROUP * width) {
        let end = lanes.min(group + GROUP * width);
        for block in (0..k).step_by(BLOCK) {
            let rows = BLOCK.min(k - block);
            for row in 0..rows {
                let next = (block + BLOCK + row) * stride + group;
                for line in 0..(end - group).div_ceil(16) {
                    prefetch(data.as_ptr().wrapping_add(next + 16 * line));
                }
            }
            for first in (group..end).step_by(width) {
                let lanes = width.min(end - first);
                let from = data.as_ptr().wrapping_add(block * stride + first);
                let to = out.as_mut_ptr().wrapping_add(first * k + block * width);
                // Widths that the compiler knows are copied in registers.
                // SAFETY: both slices hold all rows (asserted above).
                unsafe {
                    if lanes == width && width == L::WIDTH * L::VECTORS {
                        copy_rows::<L>(from, stride, L::WIDTH * L::VECTORS, rows, width, to, true);
                    } else {
                        let last = block + rows == k;
                        copy_rows::<L>(from, stride, lanes, rows, width, to, last);
                    }
                }
            }
        }
    }
}

/// Copies `k` rows of `lanes`; but the last one of a sliver (`last`) may be written beyond its
/// lanes up to a vector, since rows are written in ascending order.
///
/// # Safety
/// The rows can be read and, with that much beyond, written.
#[inline(always)]
unsafe fn copy_rows<L: Lanes>(
    data: *const f32,
    stride: usize,
    lanes: usize,
    k: usize,
    width: usize,
    out: *mut f32,
    last: bool,
) {
    let (whole, tail) = (lanes / L::WIDTH, lanes % L::WIDTH);
    for row in 0..k {
        // SAFETY: the caller's promise.
        unsafe {
            let (data, out) = (data.add(row * stride), out.add(row * width));
            for v in 0..whole {
                L::load_at(data.add(v * L::WIDTH)).store_at(out.add(v * L::WIDTH));
            }
            if tail > 0 {
                let (data, out) = (data.add(whole * L::WIDTH), out.add(whole * L::WIDTH));
                let part = L::load_part(data, tail);
                if last && row + 1 == k {
                    part.store_part(out, tail);
                } else {
                    part.store_at(out);
                }
            }
        }
    }
}
