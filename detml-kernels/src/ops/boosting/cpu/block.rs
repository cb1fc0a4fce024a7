//! A block of at most 2^16 rows with all that changes about them.

use super::super::arith::*;
use super::super::formulas::*;
use super::super::renewal::residual_key;
use super::super::sampling::Rows;
use super::super::{Bins, Loss, MISSING, Table, Tree, first_not_finite};
use super::Sums;
use super::histogram::{Entry, Group, add_rows};
use crate::device::{Loop, Simd};
use crate::ieee::Ieee;
use crate::math::{exp, sigmoid};

pub(super) struct Block {
    /// Number of its first row in the training set.
    pub(super) first: usize,
    len: usize,
    /// Bin codes feature by feature; the training set has them row by row.
    columns: Vec<u8>,
    targets: Vec<f32>,
    weights: Option<Vec<f32>>,
    /// Margins, gradients and Hessians, output by output.
    margins: Vec<f32>,
    g: Vec<f32>,
    h: Vec<f32>,
    /// The largest gradient and Hessian of each output, as bits.
    largest: Vec<[u32; 2]>,
    /// The quantised gradients and Hessians of the tree in hand.
    fixed: Vec<[i32; 2]>,
    sums: Sums,
    /// The drawn rows, node by node of the level in hand.
    rows: Vec<u16>,
    next_rows: Vec<u16>,
    segments: Vec<Segment>,
    next_segments: Vec<Segment>,
    /// The rows that were not drawn.
    idle: Vec<u16>,
    /// Rows of nodes that are not split, whose values come later, and for each of these nodes its
    /// number in the tree and the number of its rows.
    ended: Vec<u16>,
    runs: Vec<(u32, u32)>,
}

/// Where a node's rows stand in the row list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    start: u32,
    end: u32,
}

impl Segment {
    pub(super) fn len(self) -> usize {
        (self.end - self.start) as usize
    }
}

/// What becomes of a node of the level in hand.
#[derive(Clone, Copy, Debug)]
pub(super) enum Divide {
    /// It stays a leaf of this value.
    Leaf(f32),
    /// It isn't split: this is its number in the grown tree, whose leaves have no value yet.
    End(u32),
    Split {
        feature: usize,
        bin: u8,
        missing_left: bool,
        /// The number of its left child in the grown tree.
        left: u32,
        /// The values of its children, should they be leaves.
        values: [f32; 2],
    },
}

impl Block {
    pub(super) fn new(table: &Table, first: usize, len: usize, base: &[f32]) -> Self {
        let features = table.bins.features();
        let codes = &table.bins.codes[first * features..][..len * features];
        let mut columns = vec![0; codes.len()];
        if len > 0 {
            for (feature, column) in columns.chunks_exact_mut(len).enumerate() {
                for (code, row) in column.iter_mut().zip(codes.chunks_exact(features)) {
                    *code = row[feature];
                }
            }
        }
        let wide = len * base.len();
        Self {
            first,
            len,
            columns,
            targets: table
                .targets
                .chunks_exact(table.bins.rows.max(1))
                .flat_map(|targets| &targets[first..][..len])
                .copied()
                .collect(),
            weights: table.weights.as_ref().map(|w| w[first..][..len].to_vec()),
            margins: base
                .iter()
                .flat_map(|&b| std::iter::repeat_n(b, len))
                .collect(),
            g: vec![0.0; wide],
            h: vec![0.0; wide],
            largest: vec![[0; 2]; base.len()],
            fixed: vec![[0; 2]; len],
            sums: Sums::default(),
            rows: vec![0; len],
            next_rows: vec![0; len],
            segments: Vec::new(),
            next_segments: Vec::new(),
            idle: Vec::new(),
            ended: Vec::new(),
            runs: Vec::new(),
        }
    }

    pub(super) fn margins(&self) -> impl Iterator<Item = &[f32]> {
        self.margins.chunks_exact(self.len.max(1))
    }

    pub(super) fn largest(&self, output: usize) -> [u32; 2] {
        self.largest[output]
    }

    pub(super) fn sums(&self) -> Sums {
        self.sums
    }

    pub(super) fn segment(&self, node: usize) -> Segment {
        self.segments[node]
    }

    /// The first row whose gradient or Hessian isn't finite, and that number.
    pub(super) fn not_finite(&self, output: usize) -> Option<(usize, f32)> {
        let g = &self.g[output * self.len..][..self.len];
        let h = &self.h[output * self.len..][..self.len];
        first_not_finite(g, h).map(|(row, got)| (self.first + row, got))
    }

    /// Gradients of all outputs at the current margins.
    pub(super) fn gradients(&mut self, simd: Simd, loss: Loss) {
        simd.dispatch(Gradients { block: self, loss });
    }

    /// Takes its part of the gradients of the whole set.
    pub(super) fn give(&mut self, g: &[f32], h: &[f32]) {
        self.g.copy_from_slice(&g[self.first..][..self.len]);
        self.h.copy_from_slice(&h[self.first..][..self.len]);
        let most = |of: &[f32]| of.iter().fold(0, |most, &x| larger(most, x));
        self.largest[0] = [most(&self.g), most(&self.h)];
    }

    /// The keys of the residuals of the only output.
    pub(super) fn residuals(&self) -> Vec<u32> {
        let rows = self.margins.iter().zip(&self.targets);
        rows.map(|(&margin, &y)| residual_key(&Ieee::PLAIN, margin, y))
            .collect()
    }

    /// Adds a tree to the margins of the only output; `leaves` holds the leaf of each row of the
    /// whole set.
    pub(super) fn add_leaves(&mut self, leaves: &[u32], tree: &Tree) {
        let leaves = &leaves[self.first..][..self.len];
        for (margin, &leaf) in self.margins.iter_mut().zip(leaves) {
            *margin = Ieee::PLAIN.add(*margin, tree.nodes[leaf as usize].value);
        }
    }

    /// Quantises the gradients of one output and puts the drawn rows at the root.
    pub(super) fn start_tree(
        &mut self,
        simd: Simd,
        output: usize,
        sg: i32,
        sh: i32,
        sample: Option<Rows>,
    ) {
        self.sums = simd.dispatch(Quantise {
            g: &self.g[output * self.len..][..self.len],
            h: &self.h[output * self.len..][..self.len],
            fixed: &mut self.fixed,
            sg,
            sh,
        });
        self.idle.clear();
        self.ended.clear();
        self.runs.clear();
        let mut drawn = 0;
        match sample {
            None => {
                for row in 0..self.len {
                    self.rows[row] = row as u16;
                }
                drawn = self.len;
            }
            Some(sample) => {
                self.sums = Sums::default();
                for row in 0..self.len {
                    if sample.holds(self.first + row) {
                        self.rows[drawn] = row as u16;
                        drawn += 1;
                        let [g, h] = self.fixed[row];
                        self.sums = self.sums
                            + Sums {
                                g: i64::from(g),
                                h: i64::from(h),
                            };
                    } else {
                        self.idle.push(row as u16);
                    }
                }
            }
        }
        self.segments.clear();
        self.segments.push(Segment {
            start: 0,
            end: drawn as u32,
        });
    }

    /// Adds the rows of a node to the histograms of a group.
    #[inline(always)]
    pub(super) fn add_to(
        &self,
        node: usize,
        group: &Group,
        codes: &[u8],
        features: usize,
        histogram: &mut [[Entry; 256]; Group::MOST],
    ) {
        let segment = self.segments[node];
        let rows = &self.rows[segment.start as usize..segment.end as usize];
        let codes = &codes[self.first * features..][..self.len * features];
        let all = rows.len() == self.len;
        add_rows(histogram, group, codes, features, &self.fixed, rows, all);
    }

    /// Divides the segments of a level into those of the next, and adds the leaves to the
    /// margins.
    pub(super) fn partition(&mut self, output: usize, divides: &[Divide]) {
        self.next_segments.clear();
        let margins = &mut self.margins[output * self.len..][..self.len];
        for (segment, divide) in self.segments.iter().zip(divides) {
            let (start, end) = (segment.start as usize, segment.end as usize);
            let rows = &self.rows[start..end];
            match *divide {
                Divide::Leaf(value) => add_leaf(margins, rows, value),
                Divide::End(node) => {
                    self.ended.extend_from_slice(rows);
                    self.runs.push((node, rows.len() as u32));
                }
                Divide::Split {
                    feature,
                    bin,
                    missing_left,
                    ..
                } => {
                    let column = &self.columns[feature * self.len..][..self.len];
                    let middle = start
                        + divide_rows(
                            column,
                            rows,
                            bin,
                            missing_left,
                            &mut self.next_rows[start..end],
                        );
                    for (start, end) in [(start, middle), (middle, end)] {
                        self.next_segments.push(Segment {
                            start: start as u32,
                            end: end as u32,
                        });
                    }
                }
            }
        }
        std::mem::swap(&mut self.rows, &mut self.next_rows);
        std::mem::swap(&mut self.segments, &mut self.next_segments);
    }

    /// Adds the leaves of the deepest level to the margins, those of rows not drawn, and those of
    /// nodes that ended before, by their numbers in the grown tree (if `ends` has values).
    pub(super) fn finish(
        &mut self,
        output: usize,
        divides: &[Divide],
        ends: &[f32],
        tree: &Tree,
        bins: &Bins,
    ) {
        let margins = &mut self.margins[output * self.len..][..self.len];
        let mut ended = &self.ended[..];
        for &(node, count) in &self.runs {
            let (rows, rest) = ended.split_at(count as usize);
            add_leaf(margins, rows, ends[node as usize]);
            ended = rest;
        }
        for (segment, divide) in self.segments.iter().zip(divides) {
            let rows = &self.rows[segment.start as usize..segment.end as usize];
            match *divide {
                Divide::Leaf(value) => add_leaf(margins, rows, value),
                Divide::End(node) => add_leaf(margins, rows, ends[node as usize]),
                Divide::Split {
                    feature,
                    bin,
                    missing_left,
                    left,
                    values,
                } => {
                    let left = left as usize;
                    let values = match ends.get(left..left + 2) {
                        Some(ends) => [ends[0], ends[1]],
                        None => values,
                    };
                    let column = &self.columns[feature * self.len..][..self.len];
                    let off = u8::from(missing_left);
                    for &row in rows {
                        let row = usize::from(row);
                        let left = column[row].wrapping_add(off) <= bin + off;
                        let value = if left { values[0] } else { values[1] };
                        margins[row] = Ieee::PLAIN.add(margins[row], value);
                    }
                }
            }
        }
        for &row in &self.idle {
            let row = usize::from(row);
            margins[row] = Ieee::PLAIN.add(margins[row], leaf_of(tree, bins, self.first + row));
        }
    }
}

fn add_leaf(margins: &mut [f32], rows: &[u16], value: f32) {
    for &row in rows {
        let margin = &mut margins[usize::from(row)];
        *margin = Ieee::PLAIN.add(*margin, value);
    }
}

/// Puts the rows that go left first and the others last, in reverse; returns how many go left.
///
/// Each row is written to both ends of the gap that is left; the pointer of its side moves on, so
/// the other copy is overwritten.
#[inline(always)]
fn divide_rows(column: &[u8], rows: &[u16], bin: u8, missing_left: bool, out: &mut [u16]) -> usize {
    // With missing values going left, codes are turned by one so that theirs is the lowest. A
    // split is at bin 254 at most.
    let off = u8::from(missing_left);
    let limit = bin + off;
    let (mut left, mut right) = (0, rows.len());
    for &row in rows {
        let goes = column[usize::from(row)].wrapping_add(off) <= limit;
        out[left] = row;
        out[right - 1] = row;
        left += usize::from(goes);
        right -= usize::from(!goes);
    }
    left
}

/// The value of the leaf that a row falls into.
pub(super) fn leaf_of(tree: &Tree, bins: &Bins, row: usize) -> f32 {
    let codes = &bins.codes[row * bins.features()..][..bins.features()];
    let mut node = &tree.nodes[0];
    while node.left != 0 {
        let code = codes[node.feature as usize];
        let left = if code == MISSING {
            node.missing_left
        } else {
            code <= node.bin
        };
        node = &tree.nodes[node.left as usize + usize::from(!left)];
    }
    node.value
}

/// Rows whose weights or sums are at hand.
const ROWS: usize = 256;

struct Gradients<'a> {
    block: &'a mut Block,
    loss: Loss,
}

impl Loop for Gradients<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let Self { block, loss } = self;
        match loss {
            Loss::Squared => each_output(&ieee, block, Squared),
            Loss::SquaredTargets { .. } => each_output(&ieee, block, Squared),
            Loss::Absolute => each_output(&ieee, block, Absolute),
            Loss::Quantile { alpha } => each_output(&ieee, block, Quantile(alpha)),
            Loss::Mape => each_output(&ieee, block, Mape),
            Loss::Huber { delta } => each_output(&ieee, block, Huber(delta)),
            Loss::PseudoHuber { delta } => each_output(&ieee, block, PseudoHuber(delta)),
            Loss::Expectile { alpha } => each_output(&ieee, block, Expectile(alpha)),
            Loss::Poisson { max_delta_step } => each_output(&ieee, block, Poisson(max_delta_step)),
            Loss::Gamma => each_output(&ieee, block, Gamma),
            Loss::Tweedie { variance_power } => each_output(&ieee, block, Tweedie(variance_power)),
            Loss::SquaredLog => each_output(&ieee, block, SquaredLog),
            Loss::Logistic => each_output(&ieee, block, Logistic),
            Loss::OneVsAll { .. } => each_output(&ieee, block, OneVsAll),
            Loss::Softmax { classes } => softmax(&ieee, block, classes),
            Loss::Given => {}
        }
    }
}

/// The loss of one margin. A type, since a closure may be compiled apart, for the plain level.
trait Single: Copy {
    fn gradient(self, ieee: &Ieee, margin: f32, y: f32, w: f32) -> Gradient;

    /// What a target is to an output.
    #[inline(always)]
    fn target(self, y: f32, _output: usize) -> f32 {
        y
    }
}

macro_rules! single {
    ($($name:ident $(($parameter:ident))? => $gradient:ident,)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $name $((single!(@f32 $parameter)))?;

            impl Single for $name {
                #[inline(always)]
                fn gradient(self, ieee: &Ieee, margin: f32, y: f32, w: f32) -> Gradient {
                    $(let Self($parameter) = self;)?
                    $gradient(ieee, margin, y, w $(, $parameter)?)
                }
            }
        )*
    };
    (@f32 $parameter:ident) => { f32 };
}

single! {
    Squared => squared_gradient,
    Absolute => absolute_gradient,
    Quantile(alpha) => quantile_gradient,
    Mape => mape_gradient,
    Huber(delta) => huber_gradient,
    PseudoHuber(delta) => pseudo_huber_gradient,
    Expectile(alpha) => expectile_gradient,
    Poisson(step) => poisson_gradient,
    Gamma => gamma_gradient,
    Tweedie(power) => tweedie_gradient,
    SquaredLog => squared_log_gradient,
}

#[derive(Clone, Copy)]
struct Logistic;

impl Single for Logistic {
    #[inline(always)]
    fn gradient(self, ieee: &Ieee, margin: f32, y: f32, w: f32) -> Gradient {
        logistic_gradient(ieee, sigmoid(ieee, margin), y, w)
    }
}

#[derive(Clone, Copy)]
struct OneVsAll;

impl Single for OneVsAll {
    #[inline(always)]
    fn gradient(self, ieee: &Ieee, margin: f32, y: f32, w: f32) -> Gradient {
        Logistic.gradient(ieee, margin, y, w)
    }

    #[inline(always)]
    fn target(self, y: f32, output: usize) -> f32 {
        if y == output as f32 { 1.0 } else { 0.0 }
    }
}

/// Each output by itself; its own targets if there are several.
#[inline(always)]
fn each_output<L: Single>(ieee: &Ieee, block: &mut Block, loss: L) {
    let n = block.len;
    let several = block.targets.len() > n;
    for output in 0..block.largest.len() {
        let of_output = output * n..(output + 1) * n;
        let (g, h) = (
            &mut block.g[of_output.clone()],
            &mut block.h[of_output.clone()],
        );
        let margins = &block.margins[of_output.clone()];
        let targets = &block.targets[if several { of_output } else { 0..n }];
        let mut largest = [0, 0];
        for start in (0..n).step_by(ROWS) {
            let end = (start + ROWS).min(n);
            let mut weights = [1.0; ROWS];
            if let Some(given) = &block.weights {
                weights[..end - start].copy_from_slice(&given[start..end]);
            }
            let rows = g[start..end]
                .iter_mut()
                .zip(&mut h[start..end])
                .zip(&margins[start..end])
                .zip(&targets[start..end])
                .zip(&weights);
            for ((((g, h), &margin), &y), &w) in rows {
                let x = loss.gradient(ieee, margin, loss.target(y, output), w);
                (*g, *h) = (x.g, x.h);
                largest = [larger(largest[0], x.g), larger(largest[1], x.h)];
            }
        }
        block.largest[output] = largest;
    }
}

#[inline(always)]
fn softmax(ieee: &Ieee, block: &mut Block, classes: usize) {
    let n = block.len;
    let mut largest = vec![[0, 0]; classes];
    for start in (0..n).step_by(ROWS) {
        let rows = (n - start).min(ROWS);
        let mut top = [0.0; ROWS];
        let mut sum = [0.0; ROWS];
        for class in 0..classes {
            let margins = &block.margins[class * n + start..][..rows];
            for (top, &margin) in top.iter_mut().zip(margins) {
                *top = ieee.select(class == 0 || ieee.lt(*top, margin), margin, *top);
            }
        }
        for class in 0..classes {
            let margins = &block.margins[class * n + start..][..rows];
            let e = &mut block.g[class * n + start..][..rows];
            for i in 0..rows {
                e[i] = exp(ieee, ieee.sub(margins[i], top[i]));
                sum[i] = ieee.add(sum[i], e[i]);
            }
        }
        let targets = &block.targets[start..][..rows];
        let mut weights = [1.0; ROWS];
        if let Some(given) = &block.weights {
            weights[..rows].copy_from_slice(&given[start..][..rows]);
        }
        for (class, largest) in largest.iter_mut().enumerate() {
            let g = &mut block.g[class * n + start..][..rows];
            let h = &mut block.h[class * n + start..][..rows];
            let label = class as f32;
            for i in 0..rows {
                let p = ieee.div(g[i], sum[i]);
                let y = ieee.select(ieee.eq(targets[i], label), 1.0, 0.0);
                let x = softmax_gradient(ieee, p, y, weights[i]);
                (g[i], h[i]) = (x.g, x.h);
                *largest = [larger(largest[0], x.g), larger(largest[1], x.h)];
            }
        }
    }
    block.largest = largest;
}

/// The larger of a magnitude as bits and that of `x`: an integer maximum, free of order.
#[inline(always)]
fn larger(bits: u32, x: f32) -> u32 {
    bits.max(x.to_bits() & 0x7fff_ffff)
}

struct Quantise<'a> {
    g: &'a [f32],
    h: &'a [f32],
    fixed: &'a mut [[i32; 2]],
    sg: i32,
    sh: i32,
}

impl Loop for Quantise<'_> {
    type Output = Sums;
    #[inline(always)]
    fn run(self, ieee: Ieee) -> Sums {
        let factors = |shift| (half_factor(&ieee, shift), last_factor(&ieee, shift));
        let ((g1, g2), (h1, h2)) = (factors(self.sg), factors(self.sh));
        let mut sums = Sums::default();
        for ((fixed, &g), &h) in self.fixed.iter_mut().zip(self.g).zip(self.h) {
            let (g, h) = (quantise(&ieee, g, g1, g2), quantise(&ieee, h, h1, h2));
            *fixed = [g, h];
            sums.g += i64::from(g);
            sums.h += i64::from(h);
        }
        sums
    }
}
