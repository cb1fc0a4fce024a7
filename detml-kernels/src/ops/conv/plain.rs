//! The contract as code.

use super::Shape;
use crate::ieee::Ieee;

const IEEE: Ieee = Ieee::PLAIN;

/// A sum of products in panels (`N6`).
fn total(panel: usize, terms: &[(f32, f32)]) -> f32 {
    let mut total = None;
    for terms in terms.chunks(panel) {
        let sum = terms.iter().fold(0.0, |sum, &(a, b)| IEEE.fma(a, b, sum));
        total = Some(total.map_or(sum, |total| IEEE.add(total, sum)));
    }
    total.unwrap_or(0.0)
}

/// Element `(image, channel, row, column)` of planes of a shape, +0 outside.
fn at(data: &[f32], shape: [usize; 4], n: usize, c: usize, i: isize, j: isize) -> f32 {
    let [_, channels, rows, columns] = shape;
    if i < 0 || j < 0 || i >= rows as isize || j >= columns as isize {
        return 0.0;
    }
    data[((n * channels + c) * rows + i as usize) * columns + j as usize]
}

/// `f` for each place of an array of a shape, last index fastest.
fn each(shape: [usize; 4], mut f: impl FnMut([usize; 4]) -> f32) -> Vec<f32> {
    let mut all = Vec::new();
    for a in 0..shape[0] {
        for b in 0..shape[1] {
            for c in 0..shape[2] {
                all.extend((0..shape[3]).map(|d| f([a, b, c, d])));
            }
        }
    }
    all
}

impl Shape {
    /// The element of the input under output place `q` and kernel element `r` of an axis.
    fn under(&self, axis: usize, q: usize, r: usize) -> isize {
        let conv = &self.conv;
        (q * conv.stride[axis] + r * conv.dilation[axis]) as isize - conv.padding[axis][0] as isize
    }

    /// The output's place that sees input element `i` through kernel element `r`, if that divides.
    fn above(&self, axis: usize, i: usize, r: usize) -> Option<isize> {
        let conv = &self.conv;
        let stride = conv.stride[axis] as isize;
        let q = (i + conv.padding[axis][0]) as isize - (r * conv.dilation[axis]) as isize;
        (q % stride == 0).then_some(q / stride)
    }
}

pub(super) fn forward(
    s: &Shape,
    panel: usize,
    x: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
) -> Vec<f32> {
    let [_, channels, kernel_rows, kernel_columns] = s.w;
    let each_group = s.w[0] / s.conv.groups;
    each(s.y, |[n, f, i, j]| {
        let mut terms = Vec::new();
        for c in 0..channels {
            for r in 0..kernel_rows {
                for t in 0..kernel_columns {
                    let channel = f / each_group * channels + c;
                    let x = at(x, s.x, n, channel, s.under(0, i, r), s.under(1, j, t));
                    terms.push((
                        x,
                        w[((f * channels + c) * kernel_rows + r) * kernel_columns + t],
                    ));
                }
            }
        }
        let total = total(panel, &terms);
        IEEE.canonical(bias.map_or(total, |b| IEEE.add(total, b[f])))
    })
}

pub(super) fn data_gradient(s: &Shape, panel: usize, y: &[f32], w: &[f32]) -> Vec<f32> {
    let [_, channels, kernel_rows, kernel_columns] = s.w;
    let each_group = s.w[0] / s.conv.groups;
    each(s.x, |[n, c, i, j]| {
        let mut terms = Vec::new();
        for f in c / channels * each_group..(c / channels + 1) * each_group {
            for r in 0..kernel_rows {
                for t in 0..kernel_columns {
                    let (Some(q), Some(u)) = (s.above(0, i, r), s.above(1, j, t)) else {
                        continue;
                    };
                    let place = (f * channels + c % channels) * kernel_rows + r;
                    terms.push((at(y, s.y, n, f, q, u), w[place * kernel_columns + t]));
                }
            }
        }
        IEEE.canonical(total(panel, &terms))
    })
}

pub(super) fn weight_gradient(s: &Shape, panel: usize, x: &[f32], y: &[f32]) -> Vec<f32> {
    let each_group = s.w[0] / s.conv.groups;
    each(s.w, |[f, c, r, t]| {
        let mut terms = Vec::new();
        for n in 0..s.y[0] {
            for i in 0..s.y[2] {
                for j in 0..s.y[3] {
                    let channel = f / each_group * s.w[1] + c;
                    let x = at(x, s.x, n, channel, s.under(0, i, r), s.under(1, j, t));
                    terms.push((x, at(y, s.y, n, f, i as isize, j as isize)));
                }
            }
        }
        IEEE.canonical(total(panel, &terms))
    })
}
