//! Which splits a tree of few leaves makes.
//!
//! # The rule
//! A node's best split, its gain, and whether it is worth making depend on the node's rows alone,
//! not on what happens elsewhere in the tree. Growing to `L` leaves means: `L - 1` times, or until
//! no leaf has a split worth making, split the *strongest* open leaf. Of two nodes the stronger
//! one has the higher gain (as [`Node::gain`](super::Node::gain) reports it), of equal gains the
//! lower depth, at equal depth the place further to the left (`N10`).
//! [`DepthWise`](GrowPolicy::DepthWise) takes all gains for equal. No two nodes are equally
//! strong.
//!
//! # Why levels suffice
//! Say that the rule splits every node that is worth it, one after the other: this is the *order*
//! of all nodes, and a tree of `L` leaves makes the first `L - 1` splits of it.
//!
//! - *The order of two nodes depends on their paths alone.* If one is an ancestor of the other, it
//!   comes first. Otherwise they part below a node `w`; let `a` be the weakest node on the path
//!   from below `w` to `u`, and `b` the weakest on the one to `v`. If `a` is stronger than `b`,
//!   `u` comes before `v`: as long as `u` has not been split, some node of its path is an open leaf
//!   (from the split of `w` on), at least as strong as `a` and thus stronger than `b`, so that `b`
//!   isn't split yet, nor is `v` below it.
//! - Hence nodes that are not known yet never change the order of the known ones, they only move
//!   them back. A node that isn't among the first `L - 1` of the known ones never will be, and
//!   neither will what is below it. So a level is complete when the nodes among the first `L - 1`
//!   known so far have been split, and at the end the first `L - 1` of all are left. Nodes that
//!   others have pushed out meanwhile become leaves again.
//! - *Where a new node goes.* Its parent stands in the order; from there on the new node is an open
//!   leaf. It is split as soon as the node to be split otherwise is weaker than itself: it goes
//!   before the first node after its parent that is weaker. Of two new nodes before the same one,
//!   both are open by then, and the stronger goes first.
//!
//! The minimum of the gains of a whole path would not do as a key: all nodes below one of low gain
//! would tie, whichever of them is the strongest.

use super::{Growth, Node, Tree};

/// Which splits are made if leaves are few.
///
/// `max_leaves` bounds the leaves of a tree. Without such a bound, and where it doesn't bind,
/// `DepthWise` and `LossGuide` alike make every split that is worth it down to `max_depth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrowPolicy {
    /// Level by level, from the left to the right: XGBoost's `depthwise`.
    #[default]
    DepthWise,
    /// The leaf whose split gains most first: XGBoost's `lossguide`, LightGBM's leaf-wise growth.
    /// Of equal gains the lower depth goes first, at equal depth the left one; XGBoost takes the
    /// node that was made first, LightGBM the lower number of a leaf.
    LossGuide,
    /// All nodes of a level have one split, the one that gains most in all of them together:
    /// CatBoost's `SymmetricTree`. `max_depth` is 16 at most, `max_leaves` has to be 0, features
    /// are not drawn for nodes, and there are no constraints.
    Symmetric,
}

/// The splits of a tree at most, if that is a limit.
pub(super) fn most_splits(growth: &Growth, rows: usize) -> Option<usize> {
    let leaves = growth.max_leaves as usize;
    let full = 1usize.checked_shl(growth.max_depth).unwrap_or(usize::MAX);
    (leaves != 0 && leaves < full.min(rows)).then(|| leaves - 1)
}

/// What of a gain counts, as a mask of its bits: the order of gains is that of their bits.
pub(super) fn gain_mask(policy: GrowPolicy) -> u32 {
    match policy {
        GrowPolicy::LossGuide => u32::MAX,
        GrowPolicy::DepthWise | GrowPolicy::Symmetric => 0,
    }
}

/// A node that is split: its number in the grown tree and what counts of its gain.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    node: u32,
    gain: u32,
}

/// Nodes that are passed at once if none of them is weaker.
const STEP: usize = 64;

/// The first splits known so far, in order.
pub(super) struct Guide {
    most: usize,
    mask: u32,
    order: Vec<Ranked>,
    /// Where the nodes of the last level that are split stand in the order.
    parents: Vec<usize>,
}

impl Guide {
    /// `None` if there is no limit.
    pub(super) fn new(growth: &Growth, rows: usize) -> Option<Self> {
        Some(Self {
            most: most_splits(growth, rows)?,
            mask: gain_mask(growth.grow_policy),
            order: Vec::new(),
            parents: Vec::new(),
        })
    }

    /// Takes the gains of a level, the first of whose nodes has the number `first`: the root, or
    /// the children of the nodes that were split last. Says which are to be split.
    pub(super) fn admit(&mut self, first: usize, gains: &[Option<f32>]) -> Vec<bool> {
        let weakest: Vec<u32> = self
            .order
            .chunks(STEP)
            .map(|old| old.iter().fold(u32::MAX, |least, old| least.min(old.gain)))
            .collect();
        // What is new, with the number of old ones before it.
        let mut new: Vec<(usize, Ranked)> = Vec::new();
        for (i, gain) in gains.iter().enumerate() {
            let Some(gain) = gain else { continue };
            let ranked = Ranked {
                node: (first + i) as u32,
                gain: gain.to_bits() & self.mask,
            };
            let after = self.parents.get(i / 2).map_or(0, |parent| parent + 1);
            let mut gap = after;
            while let Some(old) = self.order.get(gap) {
                if gap.is_multiple_of(STEP) && weakest[gap / STEP] >= ranked.gain {
                    gap = (gap + STEP).min(self.order.len());
                } else if old.gain >= ranked.gain {
                    gap += 1;
                } else {
                    break;
                }
            }
            new.push((gap, ranked));
        }
        new.sort_unstable_by_key(|&(gap, ranked)| (gap, !ranked.gain, ranked.node));
        let old = std::mem::take(&mut self.order);
        let mut new = new.into_iter().peekable();
        for at in 0..=old.len() {
            while let Some((_, ranked)) = new.next_if(|&(gap, _)| gap == at) {
                self.order.push(ranked);
            }
            self.order.extend(old.get(at));
        }
        self.order.truncate(self.most);
        let mut places = vec![None; gains.len()];
        for (at, ranked) in self.order.iter().enumerate() {
            if let Some(i) = (ranked.node as usize).checked_sub(first) {
                places[i] = Some(at);
            }
        }
        self.parents = places.iter().flatten().copied().collect();
        places.iter().map(Option::is_some).collect()
    }

    /// The tree of the splits that are left, from the grown one and the values of its nodes as
    /// leaves, and for each node that was grown the value of the leaf that its rows end in. (For
    /// one that is split still it means nothing.)
    pub(super) fn prune(&self, grown: &[Node], values: &[f32]) -> (Tree, Vec<f32>) {
        let mut kept = vec![false; grown.len()];
        for ranked in &self.order {
            kept[ranked.node as usize] = true;
        }
        let mut ends = values.to_vec();
        let mut nodes = Vec::with_capacity(2 * self.order.len() + 1);
        // The nodes that are left come in order, and so do the children of those that are split.
        let mut left = vec![false; grown.len()];
        let mut next = 1;
        for (i, node) in grown.iter().enumerate() {
            let stays = i == 0 || left[i];
            let splits = stays && kept[i];
            if node.left != 0 {
                let child = node.left as usize;
                for child in [child, child + 1] {
                    left[child] = splits;
                    if !splits {
                        ends[child] = ends[i];
                    }
                }
            }
            if splits {
                nodes.push(Node {
                    left: next,
                    ..*node
                });
                next += 2;
            } else if stays {
                nodes.push(Node {
                    value: values[i],
                    cover: node.cover,
                    ..Node::LEAF
                });
            }
        }
        (Tree { nodes }, ends)
    }
}

impl Node {
    /// A leaf of no value.
    pub(super) const LEAF: Self = Self {
        left: 0,
        feature: 0,
        bin: 0,
        missing_left: true,
        value: 0.0,
        gain: 0.0,
        cover: 0.0,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::hash;
    use std::collections::BTreeSet;

    /// A complete tree with many equal gains and nodes that aren't worth a split: what levels leave
    /// are the splits that the rule makes one after the other.
    #[test]
    fn levels_leave_what_the_rule_splits() {
        const DEPTH: u32 = 10;
        for (seed, kinds) in [(1, 3), (2, 40), (3, 1 << 20)] {
            let gain = |place: usize| {
                let draw = hash(seed, place as u32);
                let worth = !draw.is_multiple_of(17) && place.ilog2() < DEPTH;
                worth.then(|| ((draw >> 8) % kinds) as f32)
            };
            for most in [1, 2, 30, 63, 64, 65, 200, 500, 2000] {
                for grow_policy in [GrowPolicy::DepthWise, GrowPolicy::LossGuide] {
                    let mask = gain_mask(grow_policy);
                    let mut expected = BTreeSet::new();
                    let mut open = vec![1];
                    while expected.len() < most {
                        let strength = |place: &usize| {
                            let gain = gain(*place).map(|gain| gain.to_bits() & mask);
                            (gain, std::cmp::Reverse(*place))
                        };
                        let Some(&best) = open.iter().max_by_key(|place| strength(place)) else {
                            break;
                        };
                        if gain(best).is_none() {
                            break;
                        }
                        open.retain(|place| *place != best);
                        open.extend([2 * best, 2 * best + 1]);
                        expected.insert(best);
                    }
                    let mut guide = Guide {
                        most,
                        mask,
                        order: Vec::new(),
                        parents: Vec::new(),
                    };
                    let mut places = vec![1];
                    let mut level = vec![1];
                    while !level.is_empty() {
                        let gains: Vec<_> = level.iter().map(|place| gain(*place)).collect();
                        let split = guide.admit(places.len() - level.len(), &gains);
                        let parents = level.iter().zip(split).filter(|(_, split)| *split);
                        level = parents
                            .flat_map(|(place, _)| [2 * place, 2 * place + 1])
                            .collect();
                        places.extend(&level);
                    }
                    let left: BTreeSet<usize> = guide
                        .order
                        .iter()
                        .map(|ranked| places[ranked.node as usize])
                        .collect();
                    assert_eq!(left, expected, "{seed} {most} {grow_policy:?}");
                }
            }
        }
    }
}
