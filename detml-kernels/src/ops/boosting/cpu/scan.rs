//! The search for the best split of a node in a group's histograms.

use super::super::arith::*;
use super::super::bounded::{Bounds, REFUSED, bounded_key, ordered};
use super::histogram::Entry;
use super::{Sums, Units};
use crate::ieee::Ieee;

/// The scores of all splits of a feature of `count` bins: with missing values to the left, then to
/// the right.
#[inline(always)]
pub(super) fn all_scores(
    ieee: &Ieee,
    prefix: &mut Prefix,
    count: usize,
    missing: Sums,
    whole: Sums,
    units: &Units,
) -> [[i32; 256]; 2] {
    let end = count.next_multiple_of(LANES);
    prefix.g[count..end].fill(0);
    prefix.h[count..end].fill(0);
    let mut keys = [[0; 256]; 2];
    for (extra, keys) in [missing, Sums::default()].into_iter().zip(&mut keys) {
        scores(ieee, &Free, prefix, count, extra, whole, units, keys);
    }
    keys
}

/// The best split found so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Best {
    pub(super) score: f32,
    pub(super) feature: u32,
    pub(super) bin: u8,
    pub(super) missing_left: bool,
    pub(super) left: Sums,
}

/// Sums over the bins up to and including each one.
pub(super) struct Prefix {
    g: [i64; 256],
    h: [i64; 256],
}

impl Prefix {
    pub(super) fn new() -> Self {
        Self {
            g: [0; 256],
            h: [0; 256],
        }
    }

    #[inline(always)]
    pub(super) fn set(&mut self, bin: usize, sums: Sums) {
        self.g[bin] = sums.g;
        self.h[bin] = sums.h;
    }
}

impl From<Entry> for Sums {
    #[inline(always)]
    fn from(entry: Entry) -> Self {
        Self {
            g: entry.g,
            h: entry.h,
        }
    }
}

impl From<Sums> for Entry {
    #[inline(always)]
    fn from(sums: Sums) -> Self {
        Self {
            g: sums.g,
            h: sums.h,
        }
    }
}

/// How splits of a node by a feature are scored.
pub(super) trait Rule {
    /// The key of a split that is not allowed.
    const NONE: i32;

    /// A split's score as an integer of the same order.
    fn key(&self, ieee: &Ieee, gl: f32, hl: f32, gr: f32, hr: f32, p: &Penalty) -> i32;

    /// The key of a score, and the other way round.
    fn order(bits: u32) -> u32;
}

/// Without monotone constraints.
pub(super) struct Free;

impl Rule for Free {
    const NONE: i32 = NO_SPLIT as i32;

    #[inline(always)]
    fn key(&self, ieee: &Ieee, gl: f32, hl: f32, gr: f32, hr: f32, p: &Penalty) -> i32 {
        split_score(ieee, gl, hl, gr, hr, p).to_bits() as i32
    }

    /// None is a NaN, -0 or below `NO_SPLIT`.
    #[inline(always)]
    fn order(bits: u32) -> u32 {
        bits
    }
}

/// With bounds, and the feature's way.
pub(super) struct Within {
    pub(super) bounds: Bounds,
    pub(super) way: i8,
}

impl Rule for Within {
    const NONE: i32 = REFUSED as i32;

    #[inline(always)]
    fn key(&self, ieee: &Ieee, gl: f32, hl: f32, gr: f32, hr: f32, p: &Penalty) -> i32 {
        bounded_key(ieee, gl, hl, gr, hr, p, &self.bounds, self.way.into())
    }

    #[inline(always)]
    fn order(bits: u32) -> u32 {
        ordered(bits)
    }
}

/// The better of `best` and the splits of one feature of `count` bins.
///
/// Features come in ascending order: among equal scores the earlier stays (`N10`).
#[inline(always)]
pub(super) fn better<R: Rule>(
    ieee: &Ieee,
    rule: &R,
    best: &mut Option<Best>,
    feature: u32,
    prefix: &mut Prefix,
    count: usize,
    missing: Sums,
    whole: Sums,
    units: &Units,
) {
    let end = count.next_multiple_of(LANES);
    prefix.g[count..end].fill(0);
    prefix.h[count..end].fill(0);
    let mut left = [0; 256];
    let mut top = scores(ieee, rule, prefix, count, missing, whole, units, &mut left);
    let mut right = [0; 256];
    let both = missing != Sums::default();
    if both {
        let none = Sums::default();
        top = top.max(scores(
            ieee, rule, prefix, count, none, whole, units, &mut right,
        ));
    }
    let than = best.map_or(R::NONE, |best| R::order(best.score.to_bits()) as i32);
    if top <= than {
        return;
    }
    let found = (0..count).find(|&bin| left[bin] == top || (both && right[bin] == top));
    if let Some(bin) = found {
        let missing_left = left[bin] == top;
        let upto = Sums {
            g: prefix.g[bin],
            h: prefix.h[bin],
        };
        *best = Some(Best {
            score: f32::from_bits(R::order(top as u32)),
            feature,
            bin: bin as u8,
            missing_left,
            left: if missing_left { upto + missing } else { upto },
        });
    }
}

/// Bins beyond the last are computed too, to fill whole vectors, and then overwritten.
const LANES: usize = 16;

/// The scores of a split after each bin, `extra` going to the left. Returns the highest.
#[inline(always)]
fn scores<R: Rule>(
    ieee: &Ieee,
    rule: &R,
    prefix: &Prefix,
    count: usize,
    extra: Sums,
    whole: Sums,
    units: &Units,
    scores: &mut [i32; 256],
) -> i32 {
    let end = count.next_multiple_of(LANES);
    let (g, h, out) = (&prefix.g[..end], &prefix.h[..end], &mut scores[..end]);
    for i in 0..end {
        let (gl, hl) = (g[i] + extra.g, h[i] + extra.h);
        let (gr, hr) = (whole.g - gl, whole.h - hl);
        let of = |x: i64| unit(ieee, x as f32);
        out[i] = rule.key(ieee, of(gl), of(hl), of(gr), of(hr), &units.penalty);
    }
    out[count..].fill(R::NONE);
    out.iter().fold(R::NONE, |top, &score| top.max(score))
}
