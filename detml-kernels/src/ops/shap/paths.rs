//! Trees as paths from the root to a leaf.

use super::rule::{MOST, Rule};
use super::{Interventional, NAN, SEGMENT, Set, passes};
use crate::ieee::Ieee;
use crate::ops::forest::{Forest, Node};
use detml_core::{Error, Result};
use rayon::prelude::*;

/// The paths of all trees that split, output by output, trees in order, leaves by ascending node.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    pub(super) features: usize,
    pub(super) outputs: usize,
    /// The features of splits, ascending. What follows counts within them: in slots.
    pub(super) used: Vec<u32>,
    /// Segments of an output's trees.
    pub(super) segments: usize,
    /// Where the paths of each output's segments start, and where the last one's end.
    pub(super) cells: Vec<u32>,
    /// Where each path's steps start, and where the last one's end.
    pub(super) starts: Vec<u32>,
    pub(super) leaves: Vec<f32>,
    pub(super) steps: Vec<Step>,
    /// Features of the longest path.
    pub(super) longest: usize,
}

/// A feature of a path, ascending within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) slot: u32,
    /// 1 if missing values pass, else 0.
    pub(super) missing: u32,
    /// The keys from `low` to `low + width` pass.
    pub(super) low: u32,
    pub(super) width: u32,
}

/// What a rule's formulas need at each node.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// The nodes `t`; `1 - t` is [`mirror`](Self::mirror).
    pub(super) nodes: Vec<f32>,
    pub(super) weights: Vec<f32>,
    /// `-1 / (1 - t)`.
    pub(super) closed: Vec<f32>,
}

impl Tables {
    pub(super) fn new(rule: &Rule) -> Self {
        let nodes = rule.nodes();
        let closed = nodes
            .iter()
            .rev()
            .map(|&mirror| Ieee::PLAIN.div(-1.0, mirror));
        Self {
            closed: closed.collect(),
            weights: rule.weights(),
            nodes,
        }
    }

    pub(super) fn points(&self) -> usize {
        self.nodes.len()
    }

    /// `1 - t` of a node.
    #[inline(always)]
    pub(super) fn mirror(&self, node: usize) -> f32 {
        self.nodes[self.nodes.len() - 1 - node]
    }
}

impl Paths {
    /// Whether no tree splits.
    pub(super) fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    pub(super) fn slots(&self) -> usize {
        self.used.len()
    }

    /// The steps of a path.
    #[inline(always)]
    pub(super) fn range(&self, path: usize) -> std::ops::Range<usize> {
        self.starts[path] as usize..self.starts[path + 1] as usize
    }

    /// The paths of a cell.
    #[inline(always)]
    pub(super) fn cell(&self, cell: usize) -> std::ops::Range<usize> {
        self.cells[cell] as usize..self.cells[cell + 1] as usize
    }
}

/// A merged feature on the way down a tree.
#[derive(Clone, Copy)]
struct Merged {
    feature: u32,
    missing: bool,
    low: u32,
    high: u32,
    share: f64,
}

/// A tree's paths; leaves at the root have none.
#[derive(Default)]
struct Branches {
    /// Features of each path.
    lengths: Vec<usize>,
    leaves: Vec<f32>,
    merged: Vec<Merged>,
    /// The tree's expected value.
    expected: f64,
}

/// Takes a tree apart; without covers all shares are 1/2.
fn branches(nodes: &[Node], covers: Option<&[f32]>) -> Result<Branches> {
    let mut all = Branches::default();
    // The way to each node and its share of the root's cover, kept until the node's turn.
    let mut ways: Vec<Option<(Vec<Merged>, f64)>> = Vec::new();
    ways.resize_with(nodes.len(), || None);
    ways[0] = Some((Vec::new(), 1.0));
    for (i, node) in nodes.iter().enumerate() {
        let Some((way, share)) = ways[i].take() else {
            return Err(Error::internal(format!("no way to node {i} of a tree")));
        };
        if node.left == 0 {
            all.expected += f64::from(node.value) * share;
            if !way.is_empty() {
                all.lengths.push(way.len());
                all.leaves.push(node.value);
                all.merged.extend(way);
            }
            continue;
        }
        let left = node.left as usize;
        let ratio = |child: usize| match covers {
            Some(covers) if covers[i] > 0.0 => f64::from(covers[child]) / f64::from(covers[i]),
            _ => 0.5,
        };
        let ratios = [ratio(left), ratio(left + 1)];
        let right = merge(way.clone(), node, false, ratios[1])?;
        ways[left] = Some((merge(way, node, true, ratios[0])?, share * ratios[0]));
        ways[left + 1] = Some((right, share * ratios[1]));
    }
    Ok(all)
}

/// The way on to a child.
fn merge(mut way: Vec<Merged>, node: &Node, left: bool, ratio: f64) -> Result<Vec<Merged>> {
    let at = way.partition_point(|step| step.feature < node.feature);
    if way.get(at).is_none_or(|step| step.feature != node.feature) {
        if way.len() == MOST {
            return Err(Error::unsupported(
                format!("a path with splits on more than {MOST} features"),
                "their Shapley values aren't computed exactly",
            ));
        }
        let whole = Merged {
            feature: node.feature,
            missing: true,
            low: 0,
            high: Ieee::PLAIN.order_key(f32::INFINITY),
            share: 1.0,
        };
        way.insert(at, whole);
    }
    let step = &mut way[at];
    let key = Ieee::PLAIN.order_key(node.threshold);
    if left {
        step.high = step.high.min(key);
    } else {
        // The key of no number is the greatest one.
        step.low = step.low.max(key + 1);
    }
    step.missing &= node.missing_left == left;
    step.share *= ratio;
    Ok(way)
}

fn check_covers(forest: &Forest, covers: &[f32]) -> Result<()> {
    if covers.len() != forest.nodes().len() {
        return Err(Error::shape("covers", forest.nodes().len(), covers.len()));
    }
    let refuse = |row: usize, expected: String| {
        Err(Error::InvalidValue {
            what: "covers".into(),
            row,
            expected,
            got: covers[row].to_string(),
        })
    };
    if let Some(node) = covers.iter().position(|x| !(x.is_finite() && *x >= 0.0)) {
        return refuse(node, "a finite number, 0 or above".into());
    }
    for pair in forest.starts().windows(2) {
        for (i, node) in forest.nodes()[pair[0]..pair[1]].iter().enumerate() {
            let parent = covers[pair[0] + i];
            for child in (node.left..node.left + 2).filter(|_| node.left != 0) {
                let child = pair[0] + child as usize;
                // Sums of Hessians round, each in its own way.
                if f64::from(covers[child]) > f64::from(parent) * 1.0625 {
                    return refuse(child, format!("at most the parent's {parent}"));
                }
            }
        }
    }
    Ok(())
}

/// The paths, the shares of their steps, and the expected margins.
pub(super) fn dependent(forest: &Forest, covers: &[f32]) -> Result<(Paths, Vec<f32>, Vec<f32>)> {
    check_covers(forest, covers)?;
    let trees = take_apart(forest, Some(covers))?;
    let outputs = forest.base().len();
    let mut expected: Vec<f64> = forest.base().iter().map(|&base| f64::from(base)).collect();
    for (tree, branches) in trees.iter().enumerate() {
        expected[tree % outputs] += branches.expected;
    }
    let (paths, shares) = join(forest, &trees)?;
    Ok((paths, shares, expected.iter().map(|&e| e as f32).collect()))
}

fn take_apart(forest: &Forest, covers: Option<&[f32]>) -> Result<Vec<Branches>> {
    let starts: Vec<(usize, usize)> = forest.starts().windows(2).map(|s| (s[0], s[1])).collect();
    let trees: Vec<Result<Branches>> = starts
        .into_par_iter()
        .map(|(first, end)| {
            branches(
                &forest.nodes()[first..end],
                covers.map(|covers| &covers[first..end]),
            )
        })
        .collect();
    trees.into_iter().collect()
}

fn join(forest: &Forest, trees: &[Branches]) -> Result<(Paths, Vec<f32>)> {
    let outputs = forest.base().len();
    let total: usize = trees.iter().map(|tree| tree.merged.len()).sum();
    if total > 1 << 31 {
        return Err(Error::unsupported(
            format!("a forest of {total} features on its paths"),
            "at most 2^31 are taken",
        ));
    }
    let splits = forest.nodes().iter().filter(|node| node.left != 0);
    let mut used: Vec<u32> = splits.map(|node| node.feature).collect();
    used.sort_unstable();
    used.dedup();
    let leaves = trees.iter().map(|tree| tree.leaves.len()).sum();
    let mut paths = Paths {
        features: forest.features(),
        outputs,
        segments: (trees.len() / outputs).div_ceil(SEGMENT),
        cells: vec![0],
        starts: reserve(leaves + 1)?,
        leaves: reserve(leaves)?,
        steps: reserve(total)?,
        longest: 0,
        used,
    };
    let mut shares = reserve(total)?;
    paths.starts.push(0);
    for output in 0..outputs {
        let turns = trees[output.min(trees.len())..].iter().step_by(outputs);
        for (turn, tree) in turns.enumerate() {
            if turn > 0 && turn % SEGMENT == 0 {
                paths.cells.push(paths.leaves.len() as u32);
            }
            paths.leaves.extend(&tree.leaves);
            for &length in &tree.lengths {
                let start = paths.starts[paths.starts.len() - 1];
                paths.starts.push(start + length as u32);
                paths.longest = paths.longest.max(length);
            }
            for merged in &tree.merged {
                let slot = paths.used.partition_point(|&f| f < merged.feature) as u32;
                // Where no number passes, the span is of a key that none has, nor has NaN.
                let (low, width) = match merged.high.checked_sub(merged.low) {
                    Some(width) => (merged.low, width),
                    None => (NAN - 1, 0),
                };
                paths.steps.push(Step {
                    slot,
                    missing: u32::from(merged.missing),
                    low,
                    width,
                });
                shares.push(merged.share as f32);
            }
        }
        if paths.segments > 0 {
            paths.cells.push(paths.leaves.len() as u32);
        }
    }
    Ok((paths, shares))
}

fn reserve<T>(len: usize) -> Result<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(len).map_err(|_| Error::OutOfMemory {
        device: "cpu".into(),
        requested: (len as u64).saturating_mul(size_of::<T>() as u64),
    })?;
    Ok(all)
}

/// The paths and what a background does on them.
pub(super) fn interventional(
    forest: &Forest,
    background: &[f32],
    rows: usize,
) -> Result<Interventional> {
    let trees = take_apart(forest, None)?;
    let outputs = forest.base().len();
    let (paths, _) = join(forest, &trees)?;
    let mut keys: Vec<u32> = reserve(paths.slots().saturating_mul(rows))?;
    for &feature in &paths.used {
        let column = background.iter().skip(feature as usize);
        keys.extend(
            column
                .step_by(paths.features)
                .map(|&x| Ieee::PLAIN.order_key(x)),
        );
    }
    let sets: Vec<Vec<(u32, usize)>> = (0..paths.leaves.len())
        .into_par_iter()
        .map(|path| passed(&paths.steps[paths.range(path)], &keys, rows))
        .collect();
    let total: usize = sets.iter().map(Vec::len).sum();
    if total > 1 << 31 {
        return Err(Error::unsupported(
            format!("a background that passes {total} sets of features"),
            "at most 2^31 are taken; fewer rows pass fewer",
        ));
    }
    let mut expected: Vec<f64> = forest.base().iter().map(|&base| f64::from(base)).collect();
    // Trees without splits have no path.
    for (tree, branches) in trees.iter().enumerate() {
        if branches.leaves.is_empty() {
            expected[tree % outputs] += branches.expected;
        }
    }
    let mut starts: Vec<u32> = reserve(sets.len() + 1)?;
    starts.push(0);
    let mut all: Vec<Set> = reserve(total)?;
    for (output, expected) in expected.iter_mut().enumerate() {
        for segment in 0..paths.segments {
            for path in paths.cell(output * paths.segments + segment) {
                let leaf = f64::from(paths.leaves[path]);
                let every = full(paths.range(path).len());
                for &(passed, count) in &sets[path] {
                    let value = leaf * count as f64 / rows as f64;
                    if passed == every {
                        *expected += value;
                    }
                    all.push(Set {
                        passed,
                        value: value as f32,
                    });
                }
                starts.push(all.len() as u32);
            }
        }
    }
    Ok(Interventional {
        starts,
        sets: all,
        orders: orders(),
        expected: expected.iter().map(|&e| e as f32).collect(),
        paths,
    })
}

/// The set of all of a path's features.
#[inline(always)]
pub(super) fn full(length: usize) -> u32 {
    u32::MAX >> (32 - length)
}

/// The sets of a path's features that rows pass, ascending, each with its number of rows.
fn passed(steps: &[Step], keys: &[u32], rows: usize) -> Vec<(u32, usize)> {
    let mut sets = vec![0; rows];
    for (bit, step) in steps.iter().enumerate() {
        let column = &keys[step.slot as usize * rows..][..rows];
        for (set, &key) in sets.iter_mut().zip(column) {
            *set |= passes(key, step.low, step.width, step.missing) << bit;
        }
    }
    sets.sort_unstable();
    let runs = sets.chunk_by(|a, b| a == b);
    runs.map(|run| (run[0], run.len())).collect()
}

/// Of `a` features that raise a worth by all of it and `b` that must not come before, the share of
/// orders in which a given one of the first comes last of them and before the others:
/// `(a - 1)! b! / (a + b)!` at `a (MOST + 1) + b`; 0 for `a` of 0.
fn orders() -> Vec<f32> {
    let mut table = Vec::with_capacity((MOST + 1) * (MOST + 1));
    for a in 0..=MOST {
        // Of (a - 1)! b! / (a + b)! the step from b - 1 to b is b / (a + b).
        let mut share = 1.0 / a as f64;
        for b in 0..=MOST {
            if b > 0 {
                share *= b as f64 / (a + b) as f64;
            }
            table.push(if a == 0 { 0.0 } else { share as f32 });
        }
    }
    table
}
