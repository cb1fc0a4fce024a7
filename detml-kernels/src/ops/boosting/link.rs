//! From margins to probabilities.

use super::Loss;
use crate::device::{Device, Kernel, Loop, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::math::{exp, sigmoid};
use crate::ops::elementwise::{self, Unary};
use crate::ops::grid;
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Error, Result};
use rayon::prelude::*;

const ROWS: usize = 1024;

/// What is predicted of margins where that is a number: `e^margin` with a
/// [logarithmic link](Loss::log_link), else the margin itself.
///
/// # Errors
/// Those of the device.
pub fn predictions(device: &Device, loss: Loss, margins: Vec<f32>) -> Result<Vec<f32>> {
    if !loss.log_link() {
        return Ok(margins);
    }
    let mut values = device.upload_vec(margins)?;
    elementwise::map_assign(Unary::Exp, &mut values)?;
    device.read(&values)
}

/// Class probabilities (rows x classes) of margins (rows x outputs), both row by row.
///
/// Logistic: `1 - p` and `p = sigmoid(margin)`. Softmax: `e^(margin - top) / sum`, `top` the
/// highest margin of the row, the sum over classes in their order. One versus all:
/// `sigmoid(margin) / sum`, the sum likewise; `1 / classes` where the sum is 0. NaN where a margin
/// is NaN or, with softmax, the top is infinite (`N11`).
///
/// # Errors
/// `Unsupported` for the loss of a regressor; `Shape` if the margins don't fill their rows;
/// those of the device.
pub fn probabilities(device: &Device, loss: Loss, margins: &[f32]) -> Result<Vec<f32>> {
    if loss.classes().is_none() {
        return Err(Error::unsupported(
            "probabilities of a regressor",
            "its margins are the predictions",
        ));
    }
    let classes = loss.outputs();
    if classes == 0 || !margins.len().is_multiple_of(classes) {
        let expected = format_args!("rows x {classes}");
        return Err(Error::shape("margins", expected, margins.len()));
    }
    let Some(simd) = device.simd() else {
        return on_gpu(device, loss, margins, classes);
    };
    if loss == Loss::Logistic {
        let mut all = vec![0.0; margins.len() * 2];
        all.par_chunks_mut(2 * ROWS)
            .zip(margins.par_chunks(ROWS))
            .for_each(|(out, margins)| simd.dispatch(Logistic { out, margins }));
        return Ok(all);
    }
    let mut all = margins.to_vec();
    all.par_chunks_mut(ROWS.saturating_mul(classes))
        .for_each(|out| match loss {
            Loss::OneVsAll { .. } => simd.dispatch(OneVsAll { out, classes }),
            _ => simd.dispatch(Softmax { out, classes }),
        });
    Ok(all)
}

struct Logistic<'a> {
    out: &'a mut [f32],
    margins: &'a [f32],
}

impl Loop for Logistic<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        for (out, &margin) in self.out.chunks_exact_mut(2).zip(self.margins) {
            let p = sigmoid(&ieee, margin);
            out[0] = ieee.canonical(ieee.sub(1.0, p));
            out[1] = p;
        }
    }
}

struct Softmax<'a> {
    out: &'a mut [f32],
    classes: usize,
}

impl Loop for Softmax<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        for row in self.out.chunks_exact_mut(self.classes) {
            let mut top = row[0];
            for &margin in &*row {
                top = ieee.select(ieee.lt(top, margin), margin, top);
            }
            let mut sum = 0.0;
            for x in &mut *row {
                *x = exp(&ieee, ieee.sub(*x, top));
                sum = ieee.add(sum, *x);
            }
            for x in row {
                *x = ieee.canonical(ieee.div(*x, sum));
            }
        }
    }
}

struct OneVsAll<'a> {
    out: &'a mut [f32],
    classes: usize,
}

impl Loop for OneVsAll<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let classes = self.classes as u32;
        for row in self.out.chunks_exact_mut(self.classes) {
            let mut sum = 0.0;
            for x in &mut *row {
                *x = sigmoid(&ieee, *x);
                sum = ieee.add(sum, *x);
            }
            for x in row {
                *x = part(&ieee, *x, sum, classes);
            }
        }
    }
}

/// A class's part of the sum; all alike where it is 0.
#[cube]
#[inline(always)]
fn part(ieee: &Ieee, p: f32, sum: f32, classes: u32) -> f32 {
    let none = ieee.eq(sum, prim::from_bits(0u32));
    let one = prim::from_bits(0x3f80_0000u32);
    let above = ieee.select(none, one, p);
    let below = ieee.select(none, ieee.from_u32(classes), sum);
    ieee.canonical(ieee.div(above, below))
}

/// Units of a cube.
const UNITS: u32 = 128;
/// Margins that are uploaded at a time: rows are independent, so the parts can't show.
const PART: usize = 1 << 26;

/// As [`Logistic`], a unit a row.
#[cube]
fn logistic(ieee: &Ieee, margins: &Array<f32>, out: &mut Array<f32>, rows: u32) {
    let row = CUBE_POS as u32 * UNITS + UNIT_POS;
    if row < rows {
        let p = sigmoid(ieee, margins[row as usize]);
        out[(2u32 * row) as usize] = ieee.canonical(ieee.sub(1.0f32, p));
        out[(2u32 * row + 1u32) as usize] = p;
    }
}

/// As [`Softmax`], a unit a row.
#[cube]
fn softmax(ieee: &Ieee, margins: &Array<f32>, out: &mut Array<f32>, rows: u32, classes: u32) {
    let row = CUBE_POS as u32 * UNITS + UNIT_POS;
    if row < rows {
        let first = row * classes;
        let mut top = margins[first as usize];
        for class in 1..classes {
            let margin = margins[(first + class) as usize];
            top = ieee.select(ieee.lt(top, margin), margin, top);
        }
        let mut sum = 0.0f32;
        for class in 0..classes {
            let at = (first + class) as usize;
            let x = exp(ieee, ieee.sub(margins[at], top));
            out[at] = x;
            sum = ieee.add(sum, x);
        }
        for class in 0..classes {
            let at = (first + class) as usize;
            out[at] = ieee.canonical(ieee.div(out[at], sum));
        }
    }
}

/// As [`OneVsAll`], a unit a row.
#[cube]
fn one_vs_all(ieee: &Ieee, margins: &Array<f32>, out: &mut Array<f32>, rows: u32, classes: u32) {
    let row = CUBE_POS as u32 * UNITS + UNIT_POS;
    if row < rows {
        let first = row * classes;
        let mut sum = 0.0f32;
        for class in 0..classes {
            let at = (first + class) as usize;
            let p = sigmoid(ieee, margins[at]);
            out[at] = p;
            sum = ieee.add(sum, p);
        }
        for class in 0..classes {
            let at = (first + class) as usize;
            out[at] = part(ieee, out[at], sum, classes);
        }
    }
}

fn kernel(profile: FloatProfile, loss: Loss) -> Kernel {
    let units = CubeDim::new_1d(UNITS);
    if loss == Loss::Logistic {
        return Kernel::new("link_logistic", profile, (), units, |d| {
            let (ieee, margins, out, rows) = (d.ieee(), d.input(), d.output(), d.scalar());
            logistic::expand(d.scope(), ieee, margins, out, rows);
        });
    }
    if matches!(loss, Loss::OneVsAll { .. }) {
        return Kernel::new("link_one_vs_all", profile, (), units, |d| {
            let (ieee, margins, out) = (d.ieee(), d.input(), d.output());
            let (rows, classes) = (d.scalar(), d.scalar());
            one_vs_all::expand(d.scope(), ieee, margins, out, rows, classes);
        });
    }
    Kernel::new("link_softmax", profile, (), units, |d| {
        let (ieee, margins, out) = (d.ieee(), d.input(), d.output());
        let (rows, classes) = (d.scalar(), d.scalar());
        softmax::expand(d.scope(), ieee, margins, out, rows, classes);
    })
}

fn on_gpu(device: &Device, loss: Loss, margins: &[f32], outputs: usize) -> Result<Vec<f32>> {
    if outputs > PART {
        return Err(Error::unsupported(
            format!("probabilities of {outputs} classes on a GPU"),
            format!("at most {PART}"),
        ));
    }
    let kernel = kernel(device.profile()?, loss);
    let mut all = Vec::new();
    for margins in margins.chunks(PART / outputs * outputs) {
        let rows = margins.len() / outputs;
        let x = device.upload(margins)?;
        let grid = grid(rows, UNITS as usize)?;
        let rows = rows as u32;
        if loss == Loss::Logistic {
            let out = device.empty::<f32>(2 * margins.len())?;
            device.launch(&kernel, grid, args![&x, &out, rows])?;
            all.extend(device.read(&out)?);
        } else {
            let out = device.empty::<f32>(margins.len())?;
            device.launch(&kernel, grid, args![&x, &out, rows, outputs as u32])?;
            all.extend(device.read(&out)?);
        }
    }
    Ok(all)
}

/// The kernels of [`probabilities`].
pub(crate) fn link_kernels(profile: FloatProfile) -> Vec<Kernel> {
    let (softmax, one_vs_all) = (Loss::Softmax { classes: 2 }, Loss::OneVsAll { classes: 2 });
    [Loss::Logistic, softmax, one_vs_all]
        .map(|loss| kernel(profile, loss))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{any_bits, assert_bits, backend_suite, moderate};

    /// The contract in few lines.
    fn plain(loss: Loss, margins: &[f32]) -> Vec<f32> {
        let ieee = Ieee::PLAIN;
        if let Loss::OneVsAll { classes } = loss {
            let mut all = Vec::new();
            for row in margins.chunks(classes) {
                let p: Vec<f32> = row.iter().map(|&x| sigmoid(&ieee, x)).collect();
                let sum = p.iter().fold(0.0, |sum, &p| ieee.add(sum, p));
                all.extend(p.iter().map(|&p| match sum {
                    0.0 => 1.0 / classes as f32,
                    _ => ieee.canonical(ieee.div(p, sum)),
                }));
            }
            return all;
        }
        let Loss::Softmax { classes } = loss else {
            let pair = |&margin: &f32| {
                let p = sigmoid(&ieee, margin);
                [ieee.canonical(ieee.sub(1.0, p)), p]
            };
            return margins.iter().flat_map(pair).collect();
        };
        let mut all = Vec::new();
        for row in margins.chunks(classes) {
            let highest = |top: f32, &x: &f32| if top < x { x } else { top };
            let top = row.iter().fold(row[0], highest);
            let powers: Vec<f32> = row.iter().map(|&x| exp(&ieee, ieee.sub(x, top))).collect();
            let sum = powers.iter().fold(0.0, |sum, &x| ieee.add(sum, x));
            all.extend(powers.iter().map(|&x| ieee.canonical(ieee.div(x, sum))));
        }
        all
    }

    fn equal_the_plain_link(device: &Device) {
        for (loss, outputs) in [
            (Loss::Logistic, 1),
            (Loss::Softmax { classes: 1 }, 1),
            (Loss::Softmax { classes: 3 }, 3),
            (Loss::Softmax { classes: 7 }, 7),
            (Loss::OneVsAll { classes: 2 }, 2),
            (Loss::OneVsAll { classes: 5 }, 5),
        ] {
            for rows in [0, 1, 300] {
                let len = rows * outputs;
                let near: Vec<f32> = moderate(5, len).iter().map(|x| x * 4.0).collect();
                for margins in [any_bits(3, len), near] {
                    let got = probabilities(device, loss, &margins).unwrap();
                    let what = format!("{device}: {loss:?}, {rows} rows");
                    assert_bits(&what, &got, &plain(loss, &margins));
                }
            }
        }
    }

    /// A sum in another order of the classes must be seen.
    fn another_order_shows(device: &Device) {
        let loss = Loss::Softmax { classes: 7 };
        let margins = moderate(9, 700);
        let turn = |rows: &[f32]| -> Vec<f32> {
            let turned = rows.chunks(7).flat_map(|row| row.iter().rev().copied());
            turned.collect()
        };
        let got = probabilities(device, loss, &margins).unwrap();
        let other = turn(&probabilities(device, loss, &turn(&margins)).unwrap());
        assert_ne!(got, other);
    }

    backend_suite! { equal_the_plain_link, another_order_shows }
}
