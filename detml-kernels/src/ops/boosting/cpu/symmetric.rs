//! The search for the split that all nodes of a level share: see
//! [`symmetric`](super::super::symmetric).
//!
//! A group of features is taken through all nodes in order, its histograms built in cache one after
//! the other and none kept.

use super::super::symmetric::{kept_score, share};
use super::scan::all_scores;
use super::*;

/// Sums over nodes for each bin: with missing values to the left, then to the right.
type Totals = [[f32; 256]; 2];

/// Reads a group's histograms of a node out of the room where they were built, leaving it zeroed,
/// and adds the node to the totals.
struct Tally<'a> {
    group: &'a Group,
    wanted: &'a [u32],
    whole: Sums,
    own: f32,
    units: &'a Units,
    scratch: &'a mut Scratch,
    totals: &'a mut [Totals],
}

impl Loop for Tally<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let mut prefix = Prefix::new();
        let features = self.group.features.iter().zip(&self.group.counts);
        for ((k, (feature, &count)), totals) in features.enumerate().zip(self.totals) {
            let count = usize::from(count);
            let built = &mut self.scratch[k];
            let missing = Sums::from(std::mem::take(&mut built[usize::from(MISSING)]));
            let mut upto = Sums::default();
            for (bin, entry) in built[..count].iter_mut().enumerate() {
                upto = upto + Sums::from(std::mem::take(entry));
                prefix.set(bin, upto);
            }
            if self.wanted.binary_search(feature).is_err() {
                continue;
            }
            let keys = all_scores(&ieee, &mut prefix, count, missing, self.whole, self.units);
            for (totals, keys) in totals.iter_mut().zip(&keys) {
                for (total, &key) in totals[..count].iter_mut().zip(keys) {
                    let refused = key == NO_SPLIT as i32;
                    let share = ieee.select(refused, self.own, f32::from_bits(key as u32));
                    *total = ieee.add(*total, share);
                }
            }
        }
    }
}

impl Cpu {
    /// For each node of a level the split that all of them share, with its own gain; `None` if
    /// none is worth it.
    pub(super) fn find_symmetric(
        &self,
        level: &mut [Active],
        groups: &[Group],
        columns: &Columns,
        units: &Units,
    ) -> Option<Vec<(Best, f32)>> {
        let ieee = &Ieee::PLAIN;
        let float = |x: i64| unit(ieee, x as f32);
        let kept = |sums: Sums| kept_score(ieee, float(sums.g), float(sums.h), &units.penalty);
        let wanted = columns.of_node(level.first()?.place);
        let nodes = &*level;
        let pieces = (3 * rayon::current_num_threads()).div_ceil(groups.len().max(1));
        let found = groups.par_iter().map(|group| {
            let mut totals = vec![[[0.0; 256]; 2]; group.features.len()];
            for (node, active) in nodes.iter().enumerate() {
                self.pool.with_scratch(|scratch| {
                    let pieces = pieces.min(active.rows / 16_384).max(1);
                    self.build(node, group, &self.blocks, pieces, scratch);
                    self.simd.dispatch(Tally {
                        group,
                        wanted: &wanted,
                        whole: active.sums,
                        own: kept(active.sums),
                        units,
                        scratch,
                        totals: &mut totals,
                    });
                });
            }
            best_of_group(group, &wanted, &totals)
        });
        let best = best_of(found.collect::<Vec<_>>().into_iter())?;
        let own = nodes
            .iter()
            .fold(0.0, |own, active| ieee.add(own, kept(active.sums)));
        if !accept(ieee, gain(ieee, best.score, own), own, &units.penalty) {
            return None;
        }
        let group = Group {
            features: vec![best.feature],
            counts: vec![self.bins.counts[best.feature as usize]],
        };
        let split = |(node, active): (usize, &Active)| {
            let left = self.pool.with_scratch(|scratch| {
                self.build(node, &group, &self.blocks, 1, scratch);
                let mut left = Sums::default();
                for (bin, entry) in scratch[0].iter_mut().enumerate() {
                    let sums = Sums::from(std::mem::take(entry));
                    let goes = match bin == usize::from(MISSING) {
                        true => best.missing_left,
                        false => bin <= usize::from(best.bin),
                    };
                    if goes {
                        left = left + sums;
                    }
                }
                left
            });
            let right = active.sums - left;
            let own = kept(active.sums);
            let [gl, hl, gr, hr] = [left.g, left.h, right.g, right.h].map(float);
            let score = share(ieee, gl, hl, gr, hr, &units.penalty, own);
            let more = ieee.sub(score, own);
            let more = ieee.select(ieee.lt(0.0, more), more, 0.0);
            let best = Best {
                score,
                left,
                ..best
            };
            (best, true_gain(ieee, more, units.sg, units.sh))
        };
        let nodes: Vec<(usize, &Active)> = nodes.iter().enumerate().collect();
        Some(nodes.into_par_iter().map(split).collect())
    }
}

/// The best split of a group, the lowest feature, bin, and missing values to the left among equals.
fn best_of_group(group: &Group, wanted: &[u32], totals: &[Totals]) -> Option<Best> {
    let mut best: Option<Best> = None;
    let features = group.features.iter().zip(&group.counts);
    for ((&feature, &count), totals) in features.zip(totals) {
        if wanted.binary_search(&feature).is_err() {
            continue;
        }
        for bin in 0..usize::from(count) {
            for (side, missing_left) in [(0, true), (1, false)] {
                let score = totals[side][bin];
                if best.is_none_or(|best| score > best.score) {
                    best = Some(Best {
                        score,
                        feature,
                        bin: bin as u8,
                        missing_left,
                        left: Sums::default(),
                    });
                }
            }
        }
    }
    best
}
