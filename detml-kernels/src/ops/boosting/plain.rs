//! The contract in few lines: every tuned path must equal this bit for bit.

use super::arith::*;
use super::bounded::*;
use super::formulas::*;
use super::sampling::{Columns, Rows};
use super::symmetric::{kept_score, share};
use super::*;
use crate::ieee::Ieee;
use crate::math::{exp, sigmoid};

pub(super) struct Plain {
    train: Table,
    evals: Vec<Table>,
    loss: Loss,
    growth: Growth,
    constraints: Constraints,
    /// Margins of the training set and the eval sets, output by output.
    margins: Vec<Vec<f32>>,
    given: Vec<Gradient>,
    rounds: u32,
}

struct Grown {
    leaf: Node,
    rows: Vec<usize>,
    /// See `sampling::Columns`: places are ordered by depth, then from the left to the right.
    place: u64,
    bounds: Bounds,
    /// The features of the splits above.
    path: Vec<u32>,
    /// The best split, if it is worth it, with its gain.
    split: Option<(Best, f32)>,
    children: Option<[usize; 2]>,
}

struct Best {
    score: f32,
    feature: usize,
    bin: u8,
    missing_left: bool,
}

impl Plain {
    pub(super) fn new(
        train: Table,
        evals: Vec<Table>,
        loss: Loss,
        base: &[f32],
        growth: Growth,
        constraints: Constraints,
    ) -> Self {
        let margins = std::iter::once(&train)
            .chain(&evals)
            .map(|table| {
                let rows = table.bins.rows;
                base.iter()
                    .flat_map(|&b| std::iter::repeat_n(b, rows))
                    .collect()
            })
            .collect();
        Self {
            train,
            evals,
            loss,
            growth,
            constraints,
            margins,
            given: Vec::new(),
            rounds: 0,
        }
    }

    pub(super) fn give(&mut self, g: &[f32], h: &[f32]) {
        self.given = g.iter().zip(h).map(|(&g, &h)| Gradient { g, h }).collect();
    }

    pub(super) fn margins(&self, table: usize) -> &[f32] {
        &self.margins[table]
    }

    pub(super) fn round(&mut self) -> Result<Vec<Tree>> {
        let outputs = self.loss.outputs();
        let sample = Rows::new(&self.growth, self.rounds);
        let gradients: Vec<Vec<Gradient>> = (0..outputs)
            .map(|output| {
                (0..self.train.bins.rows)
                    .map(|row| self.gradient(row, output))
                    .collect()
            })
            .collect();
        for (output, gradients) in gradients.iter().enumerate() {
            let (g, h): (Vec<f32>, Vec<f32>) = gradients.iter().map(|x| (x.g, x.h)).unzip();
            if let Some((row, got)) = first_not_finite(&g, &h) {
                return Err(not_finite(self.rounds, row, output, got));
            }
        }
        let mut trees = Vec::new();
        for (output, gradients) in gradients.iter().enumerate() {
            let number = self.rounds * outputs as u32 + output as u32;
            let mut tree = self.grow(gradients, sample, number);
            self.renew(&mut tree, sample);
            let tables = std::iter::once(&self.train).chain(&self.evals);
            for (table, margins) in tables.zip(&mut self.margins) {
                let n = table.bins.rows;
                for row in 0..n {
                    let margin = &mut margins[output * n + row];
                    *margin = Ieee::PLAIN.add(*margin, leaf(&tree, &table.bins, row).value);
                }
            }
            trees.push(tree);
        }
        self.rounds += 1;
        Ok(trees)
    }

    fn gradient(&self, row: usize, output: usize) -> Gradient {
        let (ieee, n) = (Ieee::PLAIN, self.train.bins.rows);
        let margin = |output: usize| self.margins[0][output * n + row];
        let y = match self.loss {
            Loss::SquaredTargets { .. } => self.train.targets[output * n + row],
            _ => self.train.targets[row],
        };
        let own = margin(output);
        let w = self.train.weights.as_ref().map_or(1.0, |w| w[row]);
        match self.loss {
            Loss::Squared | Loss::SquaredTargets { .. } => squared_gradient(&ieee, own, y, w),
            Loss::Absolute => absolute_gradient(&ieee, own, y, w),
            Loss::Quantile { alpha } => quantile_gradient(&ieee, own, y, w, alpha),
            Loss::Mape => mape_gradient(&ieee, own, y, w),
            Loss::Huber { delta } => huber_gradient(&ieee, own, y, w, delta),
            Loss::PseudoHuber { delta } => pseudo_huber_gradient(&ieee, own, y, w, delta),
            Loss::Expectile { alpha } => expectile_gradient(&ieee, own, y, w, alpha),
            Loss::Poisson { max_delta_step } => poisson_gradient(&ieee, own, y, w, max_delta_step),
            Loss::Gamma => gamma_gradient(&ieee, own, y, w),
            Loss::Tweedie { variance_power } => tweedie_gradient(&ieee, own, y, w, variance_power),
            Loss::SquaredLog => squared_log_gradient(&ieee, own, y, w),
            Loss::Given => self.given[row],
            Loss::Logistic => logistic_gradient(&ieee, sigmoid(&ieee, own), y, w),
            Loss::OneVsAll { .. } => {
                let y = if y == output as f32 { 1.0 } else { 0.0 };
                logistic_gradient(&ieee, sigmoid(&ieee, own), y, w)
            }
            Loss::Softmax { classes } => {
                let top =
                    (1..classes).fold(
                        margin(0),
                        |top, k| if margin(k) > top { margin(k) } else { top },
                    );
                let e = |k: usize| exp(&ieee, ieee.sub(margin(k), top));
                let sum = (0..classes).fold(0.0, |sum, k| ieee.add(sum, e(k)));
                let y = if y == output as f32 { 1.0 } else { 0.0 };
                softmax_gradient(&ieee, ieee.div(e(output), sum), y, w)
            }
        }
    }

    /// The leaves of a tree as quantiles, in real numbers where the contract has integers.
    fn renew(&self, tree: &mut Tree, sample: Option<Rows>) {
        let Some(alpha) = self.loss.renewed_quantile() else {
            return;
        };
        let (ieee, n) = (&Ieee::PLAIN, self.train.bins.rows);
        let weight = |row: usize| {
            let w = self.train.weights.as_ref().map_or(1.0, |w| w[row]);
            match self.loss {
                Loss::Mape => w / self.train.targets[row].abs().max(1.0),
                _ => w,
            }
        };
        let largest = (0..n).map(weight).fold(0f32, f32::max);
        let unit = 2f64.powi(29 - f64::from(largest).log2().floor() as i32);
        let fixed = |row: usize| (f64::from(weight(row)) * unit).round_ties_even().max(1.0) as u128;
        for at in 0..tree.nodes.len() {
            let drawn = |row: &usize| sample.is_none_or(|sample| sample.holds(*row));
            let own =
                |row: &usize| std::ptr::eq(leaf(tree, &self.train.bins, *row), &tree.nodes[at]);
            let mut rows: Vec<(f32, u128)> = (0..n)
                .filter(drawn)
                .filter(own)
                .map(|row| {
                    (
                        ieee.sub(self.train.targets[row], self.margins[0][row]),
                        fixed(row),
                    )
                })
                .collect();
            rows.sort_by(|a, b| a.0.total_cmp(&b.0));
            let total: u128 = rows.iter().map(|row| row.1).sum();
            let share = (f64::from(alpha) * 2f64.powi(32)).round() as u128;
            let enough = |&(residual, _): &(f32, u128)| {
                let lower = rows.iter().filter(|row| row.0 <= residual);
                lower.map(|row| row.1).sum::<u128>() << 32 >= share * total
            };
            let residual = rows.iter().copied().find(enough).map_or(0.0, |row| row.0);
            tree.nodes[at].value = ieee.mul(residual, self.growth.learning_rate) + 0.0;
        }
    }

    fn grow(&self, gradients: &[Gradient], sample: Option<Rows>, number: u32) -> Tree {
        let (ieee, bins, growth) = (&Ieee::PLAIN, &self.train.bins, &self.growth);
        let largest = |of: fn(&Gradient) -> f32| {
            gradients
                .iter()
                .map(|x| of(x).abs().to_bits())
                .max()
                .unwrap_or(0)
        };
        let (sg, sh) = (
            shift_of(ieee, largest(|x| x.g)),
            shift_of(ieee, largest(|x| x.h)),
        );
        let fixed = |x: f32, s: i32| {
            i64::from(quantise(
                ieee,
                x,
                half_factor(ieee, s),
                last_factor(ieee, s),
            ))
        };
        let sums: Vec<[i64; 2]> = gradients
            .iter()
            .enumerate()
            .map(|(row, x)| match sample {
                Some(sample) if !sample.holds(row) => [0, 0],
                _ => [fixed(x.g, sg), fixed(x.h, sh)],
            })
            .collect();
        let total = |rows: &[usize]| rows.iter().fold([0, 0], |t, &row| plus(t, sums[row]));
        let penalty = scale_penalty(
            ieee,
            &Penalty {
                lambda: growth.lambda,
                alpha: growth.alpha,
                gamma: growth.gamma,
                min_weight: growth.min_child_weight,
            },
            sg,
            sh,
        );
        let float = |x: i64| unit(ieee, x as f32);
        let columns = Columns::new(growth, bins.features(), number);
        let bounded = self.constraints.monotone.iter().any(|way| *way != 0);
        // Whether some group holds a path and a feature; one in no group is alone.
        let allowed = |path: &[u32], feature: u32| {
            let groups = &self.constraints.interactions;
            let holds = |group: &Vec<u32>| {
                group.contains(&feature) && path.iter().all(|above| group.contains(above))
            };
            let alone = !groups.iter().any(|group| group.contains(&feature))
                && path.iter().all(|above| *above == feature);
            groups.is_empty() || alone || groups.iter().any(holds)
        };
        let best_of = |rows: &[usize], place: u64, bounds: &Bounds, path: &[u32]| {
            let whole = total(rows);
            let mut best: Option<Best> = None;
            for feature in columns.of_node(place) {
                if !allowed(path, feature) {
                    continue;
                }
                let feature = feature as usize;
                for bin in 0..bins.counts[feature] {
                    for missing_left in [true, false] {
                        let bin = bin as u8;
                        let side: Vec<usize> = rows
                            .iter()
                            .copied()
                            .filter(|&row| goes_left(code(bins, row, feature), bin, missing_left))
                            .collect();
                        let left = total(&side);
                        let right = [whole[0] - left[0], whole[1] - left[1]];
                        let [gl, hl, gr, hr] = [left[0], left[1], right[0], right[1]].map(float);
                        let score = if bounded {
                            let way = self.constraints.monotone[feature].into();
                            let key = bounded_key(ieee, gl, hl, gr, hr, &penalty, bounds, way);
                            if key == REFUSED as i32 {
                                continue;
                            }
                            f32::from_bits(ordered(key as u32))
                        } else {
                            split_score(ieee, gl, hl, gr, hr, &penalty)
                        };
                        if score == f32::from_bits(NO_SPLIT) && !bounded {
                            continue;
                        }
                        if best.as_ref().is_none_or(|best| score > best.score) {
                            best = Some(Best {
                                score,
                                feature,
                                bin,
                                missing_left,
                            });
                        }
                    }
                }
            }
            let (g, h) = (float(whole[0]), float(whole[1]));
            let own = match bounded {
                false => score(ieee, g, h, &penalty),
                true => bounded_score(ieee, g, h, &penalty, bounds),
            };
            let best = best?;
            let gain = gain(ieee, best.score, own);
            accept(ieee, gain, own.abs(), &penalty).then(|| (best, true_gain(ieee, gain, sg, sh)))
        };
        // `above` are the bounds that the node's own weight is moved into.
        let new = |rows: Vec<usize>, place: u64, above: Bounds, bounds: Bounds, path: Vec<u32>| {
            let [g, h] = total(&rows).map(float);
            let w = weight(ieee, g, h, &penalty, &above);
            let rate = growth.learning_rate;
            Grown {
                leaf: Node {
                    value: match bounded {
                        false => leaf_value(ieee, g, h, &penalty, sg, sh, rate),
                        true => bounded_value(ieee, w, h, sg, sh, rate),
                    },
                    cover: true_weight(ieee, h, sh),
                    ..Node::LEAF
                },
                split: match place.ilog2() < growth.max_depth {
                    true => best_of(&rows, place, &bounds, &path),
                    false => None,
                },
                rows,
                place,
                bounds,
                path,
                children: None,
            }
        };
        if growth.symmetric() {
            let side = |rows: &[usize], feature: usize, bin: u8, missing_left: bool| {
                let goes = |row: &&usize| goes_left(code(bins, **row, feature), bin, missing_left);
                rows.iter().partition::<Vec<usize>, _>(goes)
            };
            let kept = |rows: &[usize]| {
                let [g, h] = total(rows).map(float);
                kept_score(ieee, g, h, &penalty)
            };
            let shared = |rows: &[usize], left: &[usize]| {
                let (whole, left) = (total(rows), total(left));
                let [gl, hl] = left.map(float);
                let [gr, hr] = [whole[0] - left[0], whole[1] - left[1]].map(float);
                share(ieee, gl, hl, gr, hr, &penalty, kept(rows))
            };
            let free = |rows: &[usize]| {
                let [g, h] = total(rows).map(float);
                Node {
                    value: leaf_value(ieee, g, h, &penalty, sg, sh, growth.learning_rate),
                    cover: true_weight(ieee, h, sh),
                    ..Node::LEAF
                }
            };
            let mut level: Vec<Vec<usize>> = vec![(0..bins.rows).collect()];
            let mut nodes = vec![free(&level[0])];
            for depth in 0..growth.max_depth {
                let mut best: Option<(f32, usize, u8, bool)> = None;
                for feature in columns.of_node(1 << depth) {
                    let feature = feature as usize;
                    for bin in 0..bins.counts[feature] as u8 {
                        for missing_left in [true, false] {
                            let sum = level.iter().fold(0.0, |sum, rows| {
                                let (left, _) = side(rows, feature, bin, missing_left);
                                let left: Vec<usize> = left;
                                ieee.add(sum, shared(rows, &left))
                            });
                            if best.is_none_or(|best| sum > best.0) {
                                best = Some((sum, feature, bin, missing_left));
                            }
                        }
                    }
                }
                let own = level
                    .iter()
                    .fold(0.0, |sum, rows| ieee.add(sum, kept(rows)));
                let Some((sum, feature, bin, missing_left)) = best else {
                    break;
                };
                if !accept(ieee, gain(ieee, sum, own), own, &penalty) {
                    break;
                }
                let first = nodes.len() - level.len();
                let mut next = Vec::new();
                for (i, rows) in level.iter().enumerate() {
                    let (left, right) = side(rows, feature, bin, missing_left);
                    let more = ieee.sub(shared(rows, &left), kept(rows));
                    nodes[first + i] = Node {
                        left: nodes.len() as u32,
                        feature: feature as u32,
                        bin,
                        missing_left,
                        value: 0.0,
                        gain: true_gain(ieee, if more > 0.0 { more } else { 0.0 }, sg, sh),
                        cover: nodes[first + i].cover,
                    };
                    nodes.push(free(&left));
                    nodes.push(free(&right));
                    next.push(left);
                    next.push(right);
                }
                level = next;
            }
            return Tree { nodes };
        }
        let mut grown = vec![new(
            (0..bins.rows).collect(),
            1,
            Bounds::ALL,
            Bounds::ALL,
            Vec::new(),
        )];
        let mut leaves = 1;
        // The strongest open leaf, again and again.
        while growth.max_leaves == 0 || leaves < growth.max_leaves {
            let strength = |at: &usize| {
                let gain = grown[*at].split.as_ref().map_or(0.0, |(_, gain)| *gain);
                let gain = match growth.grow_policy {
                    GrowPolicy::LossGuide => gain.to_bits(),
                    _ => 0,
                };
                (gain, std::cmp::Reverse(grown[*at].place))
            };
            let open = |at: &usize| grown[*at].split.is_some() && grown[*at].children.is_none();
            let Some(at) = (0..grown.len()).filter(open).max_by_key(strength) else {
                break;
            };
            let Some((best, _)) = &grown[at].split else {
                break;
            };
            let (left, right): (Vec<usize>, Vec<usize>) =
                grown[at].rows.iter().partition(|&&row| {
                    goes_left(code(bins, row, best.feature), best.bin, best.missing_left)
                });
            let (place, bounds) = (grown[at].place, grown[at].bounds);
            let mut path = grown[at].path.clone();
            path.push(best.feature as u32);
            let [l, r] = [&left, &right].map(|rows| {
                let [g, h] = total(rows).map(float);
                weight(ieee, g, h, &penalty, &bounds)
            });
            let way = self.constraints.monotone.get(best.feature);
            let way = i32::from(way.copied().unwrap_or(0));
            let below = [false, true].map(|right| bounds_below(ieee, &bounds, l, r, way, right));
            grown[at].children = Some([grown.len(), grown.len() + 1]);
            grown.push(new(left, 2 * place, bounds, below[0], path.clone()));
            grown.push(new(right, 2 * place + 1, bounds, below[1], path));
            leaves += 1;
        }
        // Level by level.
        let mut order = vec![0];
        let mut nodes = Vec::new();
        while let Some(&at) = order.get(nodes.len()) {
            let Grown { leaf, split, .. } = &grown[at];
            nodes.push(match (&grown[at].children, split) {
                (Some(children), Some((best, gain))) => {
                    order.extend(children);
                    Node {
                        left: order.len() as u32 - 2,
                        feature: best.feature as u32,
                        bin: best.bin,
                        missing_left: best.missing_left,
                        value: 0.0,
                        gain: *gain,
                        cover: leaf.cover,
                    }
                }
                _ => *leaf,
            });
        }
        Tree { nodes }
    }
}

fn plus(a: [i64; 2], b: [i64; 2]) -> [i64; 2] {
    [a[0] + b[0], a[1] + b[1]]
}

fn code(bins: &Bins, row: usize, feature: usize) -> u8 {
    bins.codes[row * bins.features() + feature]
}

fn goes_left(code: u8, bin: u8, missing_left: bool) -> bool {
    if code == MISSING {
        missing_left
    } else {
        code <= bin
    }
}

fn leaf<'a>(tree: &'a Tree, bins: &Bins, row: usize) -> &'a Node {
    let mut node = &tree.nodes[0];
    while node.left != 0 {
        let left = goes_left(
            code(bins, row, node.feature as usize),
            node.bin,
            node.missing_left,
        );
        node = &tree.nodes[node.left as usize + usize::from(!left)];
    }
    node
}
