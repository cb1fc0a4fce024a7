//! Splits by categories as splits by thresholds.
//!
//! A category is a code from 0 on, a number is that of its integer part. So a set of codes is a
//! set of intervals, and a split by it is a search tree over them, each of whose leaves holds a
//! copy of the left or the right subtree. Below, what a path knows of a feature leaves out whatever
//! can't be reached, so that a second split of the same feature copies nothing twice.

use super::tree::{Kind, Origin, leaf};
use detml_core::Result;
use detml_kernels::ops::forest::Node;
use std::rc::Rc;

/// Nodes of a tree with copies. LightGBM's trees of 31 leaves over sets of tens of codes have a
/// few hundred.
const MAX_NODES: usize = 1 << 16;
pub(super) const TOO_MANY: &str =
    "fit with smaller sets of categories, or encode categories as numbers";
/// The first code that `f32` can't part from its neighbours.
const END: i64 = 1 << 24;

/// A set of codes, as intervals that cover all numbers.
pub(super) struct Categories {
    intervals: Rc<[Interval]>,
}

/// The numbers up to `upto` that aren't in the interval before.
#[derive(Clone, Copy)]
struct Interval {
    upto: f32,
    left: bool,
}

impl Categories {
    /// The `codes` go to the left or else to the right, all others to the other side. Numbers up
    /// to `none` have no code.
    pub(super) fn new(
        origin: Origin,
        tree: usize,
        codes: &[i64],
        left: bool,
        none: f32,
    ) -> Result<Self> {
        if let Some(code) = codes.iter().find(|code| !(0..END).contains(*code)) {
            return Err(origin.refuse_tree(
                tree,
                format_args!("expected categories from 0 to {}, got {code}", END - 1),
            ));
        }
        let mut codes = codes.to_vec();
        codes.sort_unstable();
        codes.dedup();
        let mut intervals = Vec::new();
        for run in codes.chunk_by(|a, b| a + 1 == *b) {
            let [Some(&first), Some(&last)] = [run.first(), run.last()] else {
                continue;
            };
            intervals.push(Interval {
                upto: if first == 0 {
                    none
                } else {
                    (first as f32).next_down()
                },
                left: !left,
            });
            intervals.push(Interval {
                upto: ((last + 1) as f32).next_down(),
                left,
            });
        }
        intervals.push(Interval {
            upto: f32::INFINITY,
            left: !left,
        });
        Ok(Self {
            intervals: intervals.into(),
        })
    }
}

/// What a path knows of a feature.
#[derive(Clone, Copy)]
struct Known {
    feature: u32,
    /// The number is above this one.
    above: Option<f32>,
    upto: f32,
    /// Whether it may be missing.
    missing: bool,
}

/// A part of a tree that remains to be written.
#[derive(Clone)]
enum Part {
    /// The subtree at a place.
    Node { place: usize, known: Rc<[Known]> },
    /// The part of a split whose numbers lie in some of its intervals.
    Search {
        place: usize,
        known: Rc<[Known]>,
        this: Known,
        intervals: Rc<[Interval]>,
    },
}

/// The nodes level by level, and the place that each had. Of the `kinds`, level by level, children
/// are placed in the order of their parents.
pub(super) fn unfold(
    origin: Origin,
    tree: usize,
    kinds: &[Kind],
) -> Result<(Vec<Node>, Vec<usize>)> {
    let mut next = 1;
    let lefts: Vec<usize> = kinds
        .iter()
        .map(|kind| match kind {
            Kind::Leaf => 0,
            _ => {
                next += 2;
                next - 2
            }
        })
        .collect();
    let mut nodes = Vec::new();
    let mut places = Vec::new();
    let mut parts = vec![Part::Node {
        place: 0,
        known: Rc::new([]),
    }];
    while let Some(part) = parts.get(nodes.len()).cloned() {
        if parts.len() > MAX_NODES {
            return Err(origin.unsupported(
                format_args!(
                    "a tree whose splits by categories take more than {MAX_NODES} splits by thresholds (tree {tree})"
                ),
                TOO_MANY,
            ));
        }
        let (node, place, children) = written(kinds, &lefts, part);
        let left = if children.is_some() {
            parts.len() as u32
        } else {
            0
        };
        nodes.push(Node { left, ..node });
        places.push(place);
        parts.extend(children.into_iter().flatten());
    }
    Ok((nodes, places))
}

/// The node that a part begins with, the place it had, and the parts below.
fn written(kinds: &[Kind], lefts: &[usize], mut part: Part) -> (Node, usize, Option<[Part; 2]>) {
    loop {
        part = match part {
            Part::Node { place, known } => match kinds[place] {
                Kind::Leaf => return (leaf(0.0), place, None),
                Kind::Split {
                    feature, threshold, ..
                } => {
                    let all = [
                        Interval {
                            upto: threshold,
                            left: true,
                        },
                        Interval {
                            upto: f32::INFINITY,
                            left: false,
                        },
                    ];
                    search(place, known, feature, &all)
                }
                Kind::Category {
                    feature, ref set, ..
                } => search(place, known, feature, &set.intervals),
            },
            Part::Search {
                place,
                known,
                this,
                intervals,
            } => {
                let (feature, missing_left) = match kinds[place] {
                    Kind::Split {
                        feature,
                        missing_left,
                        ..
                    }
                    | Kind::Category {
                        feature,
                        missing_left,
                        ..
                    } => (feature, missing_left),
                    Kind::Leaf => return (leaf(0.0), place, None),
                };
                // The subtree on a side, under what is known now.
                let below = |left: bool, this: Known| Part::Node {
                    place: lefts[place] + usize::from(!left),
                    known: known.iter().copied().chain([this]).collect(),
                };
                let node = |threshold, missing_left| Node {
                    left: 0,
                    feature,
                    threshold,
                    missing_left,
                    value: 0.0,
                };
                match intervals[..] {
                    // Only missing values come here.
                    [] => below(missing_left, this),
                    [only] if !this.missing || only.left == missing_left => below(only.left, this),
                    [only] => {
                        let numbers = Known {
                            missing: false,
                            ..this
                        };
                        let no_number = Known {
                            above: Some(f32::INFINITY),
                            ..this
                        };
                        let parts = [below(only.left, numbers), below(missing_left, no_number)];
                        return (node(f32::INFINITY, false), place, Some(parts));
                    }
                    _ => {
                        let (low, high) = intervals.split_at(intervals.len() / 2);
                        let threshold = low.last().map_or(f32::INFINITY, |last| last.upto);
                        // With two intervals or more, one of them is on the side of missing values.
                        let missing_low = low.iter().any(|part| part.left == missing_left);
                        let search = |intervals: &[Interval], above, upto, missing| Part::Search {
                            place,
                            known: known.clone(),
                            this: Known {
                                above,
                                upto,
                                missing: this.missing && missing,
                                ..this
                            },
                            intervals: intervals.into(),
                        };
                        let parts = [
                            search(low, this.above, threshold, missing_low),
                            search(high, Some(threshold), this.upto, !missing_low),
                        ];
                        return (node(threshold, missing_low), place, Some(parts));
                    }
                }
            }
        };
    }
}

/// The split at a place, over what of its intervals can be reached.
fn search(place: usize, known: Rc<[Known]>, feature: u32, all: &[Interval]) -> Part {
    let this = known.iter().rev().find(|known| known.feature == feature);
    let this = this.copied().unwrap_or(Known {
        feature,
        above: None,
        upto: f32::INFINITY,
        missing: true,
    });
    let known = known.iter().filter(|known| known.feature != feature);
    let known = known.copied().collect();
    let mut intervals: Vec<Interval> = Vec::new();
    let mut before = None;
    for &interval in all {
        // Something in (before, upto] is in (above, upto of what is known].
        let reaches = this.above.is_none_or(|above| interval.upto > above)
            && before.is_none_or(|before| before < this.upto)
            && before.is_none_or(|before| before < interval.upto);
        before = Some(interval.upto);
        if !reaches {
            continue;
        }
        match intervals.last_mut() {
            Some(last) if last.left == interval.left => last.upto = interval.upto,
            _ => intervals.push(interval),
        }
    }
    Part::Search {
        place,
        known,
        this,
        intervals: intervals.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Levelled;
    use super::*;
    use detml_core::Error;
    use proptest::prelude::*;

    const ORIGIN: Origin = Origin("test");

    #[derive(Clone, Debug)]
    enum Rule {
        Number(f32),
        Codes(Vec<i64>, bool, f32),
    }

    /// A complete tree of splits over two features; node `k` has the children `2 k + 1` and
    /// `2 k + 2`.
    #[derive(Clone, Debug)]
    struct Plan(Vec<(u32, Rule, bool)>);

    impl Plan {
        fn levelled(&self) -> Result<Levelled> {
            let splits = self.0.len();
            Levelled::new(ORIGIN, 0, 2 * splits + 1, |node| {
                let Some((feature, rule, missing_left)) = self.0.get(node).cloned() else {
                    return Ok(Kind::Leaf);
                };
                let (left, right) = (2 * node + 1, 2 * node + 2);
                Ok(match rule {
                    Rule::Number(threshold) => Kind::Split {
                        feature,
                        threshold,
                        missing_left,
                        left,
                        right,
                    },
                    Rule::Codes(codes, on_left, none) => Kind::Category {
                        feature,
                        set: Categories::new(ORIGIN, 0, &codes, on_left, none)?,
                        missing_left,
                        left,
                        right,
                    },
                })
            })
        }

        fn leaf(&self, x: [f32; 2]) -> usize {
            let mut at = 0;
            while let Some((feature, rule, missing_left)) = self.0.get(at) {
                let x = x[*feature as usize];
                let left = match rule {
                    _ if x.is_nan() => *missing_left,
                    Rule::Number(threshold) => x <= *threshold,
                    Rule::Codes(codes, left, none) => {
                        (x > *none && codes.contains(&(x as i64))) == *left
                    }
                };
                at = 2 * at + 2 - usize::from(left);
            }
            at
        }
    }

    fn plan() -> impl Strategy<Value = Plan> {
        let rule = prop_oneof![
            1 => (-2i8..12).prop_map(|t| Rule::Number(f32::from(t) / 2.0)),
            3 => (
                prop::collection::vec(0i64..9, 0..7),
                any::<bool>(),
                prop::sample::select(vec![-1.0, -1e-45]),
            ).prop_map(|(codes, left, none)| Rule::Codes(codes, left, none)),
        ];
        prop::collection::vec((0u32..2, rule, any::<bool>()), 1..16).prop_map(Plan)
    }

    fn number() -> impl Strategy<Value = f32> {
        prop_oneof![
            4 => (-4i8..22).prop_map(|x| f32::from(x) / 2.0),
            1 => Just(f32::NAN),
            1 => prop::sample::select(vec![
                -0.0, 1e-45, -1e-45, 0.99999994, 3.9999998, 1e9, f32::INFINITY, f32::NEG_INFINITY,
            ]),
        ]
    }

    proptest! {
        #[test]
        fn thresholds_send_rows_where_sets_send_them(
            plan in plan(),
            rows in prop::collection::vec([number(), number()], 20),
        ) {
            let tree = plan.levelled().unwrap();
            prop_assert_eq!(tree.reached(), 2 * plan.0.len() + 1);
            let nodes = tree.with_values(|source| source as f32);
            for x in rows {
                let mut at = 0;
                while nodes[at].left != 0 {
                    let node = nodes[at];
                    let x = x[node.feature as usize];
                    let left = if x.is_nan() { node.missing_left } else { x <= node.threshold };
                    at = node.left as usize + usize::from(!left);
                }
                prop_assert_eq!(nodes[at].value as usize, plan.leaf(x), "{:?}", x);
            }
        }
    }

    #[test]
    fn sets_that_take_too_many_nodes_are_refused() {
        let codes: Vec<i64> = (0..100_000).map(|code| 2 * code).collect();
        let plan = Plan(vec![(0, Rule::Codes(codes, true, -1.0), true)]);
        assert!(matches!(plan.levelled(), Err(Error::Unsupported { .. })));
        for code in [-1, END] {
            let plan = Plan(vec![(0, Rule::Codes(vec![code], true, -1.0), true)]);
            assert!(matches!(plan.levelled(), Err(Error::ModelFile { .. })));
        }
    }
}
