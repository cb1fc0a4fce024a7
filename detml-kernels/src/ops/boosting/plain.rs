//! The contract in few lines: every tuned path must equal this bit for bit.

use super::arith::*;
use super::formulas::*;
use super::sampling::{Columns, Rows};
use super::*;
use crate::ieee::Ieee;
use crate::math::{exp, sigmoid};

pub(super) struct Plain {
    train: Table,
    evals: Vec<Table>,
    loss: Loss,
    growth: Growth,
    /// Margins of the training set and the eval sets, output by output.
    margins: Vec<Vec<f32>>,
    given: Vec<Gradient>,
    rounds: u32,
}

struct Grown {
    node: Node,
    rows: Vec<usize>,
    place: u64,
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
        let leaf = |rows: &[usize]| {
            let [g, h] = total(rows).map(float);
            Node {
                left: 0,
                feature: 0,
                bin: 0,
                missing_left: true,
                value: leaf_value(ieee, g, h, &penalty, sg, sh, growth.learning_rate),
                gain: 0.0,
                cover: true_weight(ieee, h, sh),
            }
        };
        let all: Vec<usize> = (0..bins.rows).collect();
        let mut grown = vec![Grown {
            node: leaf(&all),
            rows: all,
            place: 1,
        }];
        let mut at = 0;
        while at < grown.len() {
            let Grown { rows, place, .. } = &grown[at];
            let (rows, place) = (rows.clone(), *place);
            if place.ilog2() < growth.max_depth {
                let whole = total(&rows);
                let mut best: Option<Best> = None;
                for feature in columns.of_node(place) {
                    let feature = feature as usize;
                    for bin in 0..bins.counts[feature] {
                        for missing_left in [true, false] {
                            let bin = bin as u8;
                            let side: Vec<usize> = rows
                                .iter()
                                .copied()
                                .filter(|&row| {
                                    goes_left(code(bins, row, feature), bin, missing_left)
                                })
                                .collect();
                            let left = total(&side);
                            let right = [whole[0] - left[0], whole[1] - left[1]];
                            let score = split_score(
                                ieee,
                                float(left[0]),
                                float(left[1]),
                                float(right[0]),
                                float(right[1]),
                                &penalty,
                            );
                            if score > best.as_ref().map_or(f32::from_bits(NO_SPLIT), |b| b.score) {
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
                let own = score(ieee, float(whole[0]), float(whole[1]), &penalty);
                if let Some(best) = best
                    && accept(ieee, gain(ieee, best.score, own), own, &penalty)
                {
                    let (left, right): (Vec<usize>, Vec<usize>) = rows.iter().partition(|&&row| {
                        goes_left(code(bins, row, best.feature), best.bin, best.missing_left)
                    });
                    grown[at].node = Node {
                        left: grown.len() as u32,
                        feature: best.feature as u32,
                        bin: best.bin,
                        missing_left: best.missing_left,
                        value: 0.0,
                        gain: true_gain(ieee, gain(ieee, best.score, own), sg, sh),
                        cover: grown[at].node.cover,
                    };
                    grown.push(Grown {
                        node: leaf(&left),
                        rows: left,
                        place: 2 * place,
                    });
                    grown.push(Grown {
                        node: leaf(&right),
                        rows: right,
                        place: 2 * place + 1,
                    });
                }
            }
            at += 1;
        }
        Tree {
            nodes: grown.into_iter().map(|grown| grown.node).collect(),
        }
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
