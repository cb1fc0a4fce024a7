//! The contract in few lines: each leaf's way is looked up in the tree itself.

use super::SEGMENT;
use super::rule;
use crate::ieee::Ieee;
use crate::ops::forest::{Forest, Node};

const IEEE: Ieee = Ieee::PLAIN;

/// A feature on the way to a leaf.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) feature: u32,
    pub(super) pass: bool,
    pub(super) share: f64,
}

fn goes_left(node: &Node, value: f32) -> bool {
    if value.is_nan() {
        node.missing_left
    } else {
        value <= node.threshold
    }
}

/// The ways of a row to the leaves (features ascending) with the leaves' values.
pub(super) fn ways(nodes: &[Node], covers: &[f32], x: &[f32]) -> Vec<(Vec<Step>, f32)> {
    let mut parents = vec![usize::MAX; nodes.len()];
    for (i, node) in nodes.iter().enumerate().filter(|(_, node)| node.left != 0) {
        parents[node.left as usize] = i;
        parents[node.left as usize + 1] = i;
    }
    let leaves = (0..nodes.len()).filter(|&i| nodes[i].left == 0);
    let way = |leaf: usize| {
        let mut splits = Vec::new();
        let mut at = leaf;
        while parents[at] != usize::MAX {
            splits.push((parents[at], at));
            at = parents[at];
        }
        splits.reverse();
        let mut steps: Vec<Step> = Vec::new();
        for (parent, child) in splits {
            let node = &nodes[parent];
            let left = child == node.left as usize;
            let pass = goes_left(node, x[node.feature as usize]) == left;
            let share = match covers[parent] {
                0.0 => 0.5,
                cover => f64::from(covers[child]) / f64::from(cover),
            };
            match steps.iter_mut().find(|step| step.feature == node.feature) {
                Some(step) => {
                    step.pass &= pass;
                    step.share *= share;
                }
                None => steps.push(Step {
                    feature: node.feature,
                    pass,
                    share,
                }),
            }
        }
        steps.sort_by_key(|step| step.feature);
        (steps, nodes[leaf].value)
    };
    leaves.map(way).collect()
}

/// Adds up `size` sums for each output: `add` gives each leaf's, in order.
fn folded(forest: &Forest, size: usize, mut add: impl FnMut(usize, &mut [f32])) -> Vec<Vec<f32>> {
    let outputs = forest.base().len();
    let fold = |output: usize| {
        let trees: Vec<usize> = (output..forest.trees()).step_by(outputs).collect();
        let mut sums = vec![0.0; size];
        for (segment, trees) in trees.chunks(SEGMENT).enumerate() {
            let mut part = vec![0.0; size];
            for &tree in trees {
                add(tree, &mut part);
            }
            for (sum, part) in sums.iter_mut().zip(part) {
                *sum = if segment == 0 {
                    part
                } else {
                    IEEE.add(*sum, part)
                };
            }
        }
        for sum in &mut sums {
            *sum = IEEE.canonical(*sum);
        }
        sums
    };
    (0..outputs).map(fold).collect()
}

/// The trees, their covers and the longest way.
struct Trees<'a> {
    trees: Vec<(&'a [Node], &'a [f32])>,
    longest: usize,
}

fn trees<'a>(forest: &'a Forest, covers: &'a [f32]) -> Trees<'a> {
    let trees: Vec<_> = forest
        .starts()
        .windows(2)
        .map(|s| (&forest.nodes()[s[0]..s[1]], &covers[s[0]..s[1]]))
        .collect();
    let x = vec![0.0; forest.features()];
    let all = trees
        .iter()
        .flat_map(|(nodes, covers)| ways(nodes, covers, &x));
    let longest = all.map(|(steps, _)| steps.len()).max().unwrap_or(0);
    Trees { trees, longest }
}

/// The rule's nodes, their mirrors and weights.
fn rule_of(longest: usize) -> Vec<[f32; 3]> {
    let rule = rule::of(longest);
    let (nodes, weights) = (rule.nodes(), rule.weights());
    let mirrored = nodes.iter().zip(nodes.iter().rev()).zip(weights);
    mirrored.map(|((&t, &s), w)| [t, s, w]).collect()
}

fn products(rule: &[[f32; 3]], steps: &[Step]) -> Vec<f32> {
    rule.iter()
        .map(|&[t, s, w]| {
            steps.iter().fold(w, |p, step| {
                let open = if step.pass { t } else { 0.0 };
                IEEE.mul(p, IEEE.fma(step.share as f32, s, open))
            })
        })
        .collect()
}

fn ratio(step: &Step, [t, s, _]: [f32; 3]) -> f32 {
    let z = step.share as f32;
    if step.pass {
        IEEE.div(IEEE.sub(1.0, z), IEEE.fma(z, s, t))
    } else {
        IEEE.div(-1.0, s)
    }
}

pub(super) fn values(forest: &Forest, covers: &[f32], x: &[f32]) -> Vec<Vec<f32>> {
    let all = trees(forest, covers);
    let rule = rule_of(all.longest);
    folded(forest, forest.features(), |tree, sums| {
        let (nodes, covers) = all.trees[tree];
        for (steps, leaf) in ways(nodes, covers, x) {
            let products = products(&rule, &steps);
            for step in &steps {
                let chain = products.iter().zip(&rule);
                let a = chain.fold(0.0, |a, (&p, &q)| IEEE.fma(p, ratio(step, q), a));
                let sum = &mut sums[step.feature as usize];
                *sum = IEEE.fma(leaf, a, *sum);
            }
        }
    })
}

/// A matrix for each output.
pub(super) fn interactions(forest: &Forest, covers: &[f32], x: &[f32]) -> Vec<Vec<f32>> {
    let features = forest.features();
    let all = trees(forest, covers);
    let rule = rule_of(all.longest);
    let mut matrices = folded(forest, features * features, |tree, sums| {
        let (nodes, covers) = all.trees[tree];
        for (steps, leaf) in ways(nodes, covers, x) {
            let products = products(&rule, &steps);
            for (n, i) in steps.iter().enumerate() {
                for j in &steps[n + 1..] {
                    let chain = products.iter().zip(&rule);
                    let a = chain.fold(0.0, |a, (&p, &q)| {
                        IEEE.fma(IEEE.mul(p, ratio(i, q)), ratio(j, q), a)
                    });
                    let (i, j) = (i.feature as usize, j.feature as usize);
                    let sum = IEEE.fma(IEEE.mul(leaf, 0.5), a, sums[i * features + j]);
                    sums[i * features + j] = sum;
                    sums[j * features + i] = sum;
                }
            }
        }
    });
    for (matrix, values) in matrices.iter_mut().zip(values(forest, covers, x)) {
        for (i, row) in matrix.chunks_exact_mut(features.max(1)).enumerate() {
            let sum = row.iter().fold(0.0, |sum, &pair| IEEE.add(sum, pair));
            row[i] = IEEE.canonical(IEEE.sub(values[i], sum));
        }
    }
    matrices
}

/// `background` is row by row.
pub(super) fn interventional(forest: &Forest, background: &[f32], x: &[f32]) -> Vec<Vec<f32>> {
    let covers = vec![0.0; forest.nodes().len()];
    let all = trees(forest, &covers);
    let rows = background.len() / forest.features();
    folded(forest, forest.features(), |tree, sums| {
        let (nodes, covers) = all.trees[tree];
        let mine = ways(nodes, covers, x);
        let others: Vec<_> = background
            .chunks_exact(forest.features())
            .map(|row| ways(nodes, covers, row))
            .collect();
        for (path, (steps, leaf)) in mine.iter().enumerate() {
            let mut sets: Vec<u32> = others
                .iter()
                .map(|ways| {
                    let steps = ways[path].0.iter().enumerate();
                    steps.fold(0, |set, (bit, step)| set | u32::from(step.pass) << bit)
                })
                .collect();
            sets.sort_unstable();
            for run in sets.chunk_by(|a, b| a == b) {
                let worth = (f64::from(*leaf) * run.len() as f64 / rows as f64) as f32;
                let passed = |bit: usize| run[0] >> bit & 1 == 1;
                let pairs = || steps.iter().enumerate().map(|(i, s)| (s.pass, passed(i)));
                if pairs().any(|pair| pair == (false, false)) {
                    continue;
                }
                let a = pairs().filter(|&pair| pair == (true, false)).count();
                let b = pairs().filter(|&pair| pair == (false, true)).count();
                for (bit, step) in steps.iter().enumerate() {
                    let share = match (step.pass, passed(bit)) {
                        (true, false) => share_of_orders(a, b),
                        (false, true) => -share_of_orders(b, a),
                        _ => continue,
                    };
                    let sum = &mut sums[step.feature as usize];
                    *sum = IEEE.fma(share, worth, *sum);
                }
            }
        }
    })
}

/// `(a - 1)! b! / (a + b)!`
fn share_of_orders(a: usize, b: usize) -> f32 {
    let mut share = 1.0 / a as f64;
    for b in 1..=b {
        share *= b as f64 / (a + b) as f64;
    }
    share as f32
}
