//! Adds the panels' sums of a split schedule.

use super::product::{Output, Write};
use super::{OutputExpand, output};
use crate::device::Kernel;
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::gemm::finish;
use cubecl::prelude::*;

/// What `fold` does besides adding panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Folding {
    /// Whether the panels are the first ones.
    pub(super) first: bool,
    /// Whether they are the last ones.
    pub(super) last: bool,
    pub(super) scaled: bool,
    pub(super) added: bool,
    /// How the output is written by the last ones: not by vectors.
    pub(super) write: Write,
}

/// Adds the sums of `panels` panels in order (`N6`), `total` elements each, row after row of `n`.
#[cube]
fn fold(
    ieee: &Ieee,
    sums: &Array<f32>,
    totals: &mut Array<f32>,
    out: &mut Output,
    total: u32,
    panels: u32,
    m: u32,
    n: u32,
    alpha: f32,
    beta: f32,
    #[comptime] v: Folding,
) {
    let at = CUBE_POS as u32 * 256u32 + UNIT_POS;
    if at < total {
        let mut x = sums[at as usize];
        if comptime!(!v.first) {
            x = ieee.add(totals[at as usize], x);
        }
        for panel in 1..panels {
            x = ieee.add(x, sums[(panel * total + at) as usize]);
        }
        if comptime!(v.last) {
            let row = at / n;
            let batch = row / m;
            let place = out.offset
                + batch * out.batch
                + out.row_at(row - batch * m)
                + out.column_at(at - row * n);
            let mut c = 0.0f32;
            if comptime!(v.added) {
                c = out.words[place as usize];
            }
            out.words[place as usize] = finish(*ieee, x, alpha, beta, c, v.scaled, v.added);
        } else {
            totals[at as usize] = x;
        }
    }
}

pub(super) fn kernel(profile: FloatProfile, v: Folding) -> Kernel {
    Kernel::new("gemm_fold", profile, v, CubeDim::new_1d(256), move |d| {
        let ieee = d.ieee();
        let sums = d.input::<f32>();
        // Where all is done at once there are no totals between.
        let totals = if v.first && v.last {
            None
        } else {
            Some(d.output::<f32>())
        };
        let out = if v.last {
            output(d, v.write)
        } else {
            let words = totals.clone().unwrap_or_else(|| sums.clone());
            OutputExpand {
                wide: words.expand.clone().into(),
                rows: words.expand.clone().into(),
                columns: words.expand.clone().into(),
                words,
                offset: 0u32.into(),
                row: 0u32.into(),
                column: 0u32.into(),
                batch: 0u32.into(),
                write: Write::Words,
            }
        };
        let totals = totals.unwrap_or_else(|| out.words.clone());
        let [total, panels, m, n] = [(); 4].map(|()| d.scalar::<u32>());
        let (alpha, beta) = (d.scalar::<f32>(), d.scalar::<f32>());
        fold::expand(
            d.scope(),
            ieee,
            sums,
            totals,
            out,
            total,
            panels,
            m,
            n,
            alpha,
            beta,
            v,
        );
    })
}
