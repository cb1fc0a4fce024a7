//! The GPU path.

use super::{Sums, finish};
use crate::device::{Arg, Buffer, Definition, Device, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::grid;
use crate::prim;
use cubecl::prelude::*;
use detml_core::Result;

/// A schedule to force in tests; the default is chosen by shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Elements that the sums of panels may take at a time.
    pub(super) split: Option<usize>,
}

/// Elements that the panels of a weight gradient may take.
const SPLIT: usize = 1 << 25;
const UNITS: u32 = 256;

/// One axis of [`Sums`]. Numbers that may be negative are two's complements: what lies before
/// the source is as far beyond it as words go.
#[derive(CubeType)]
struct Axis {
    len: u32,
    source: u32,
    first: u32,
    scale: u32,
    step: u32,
    taps: u32,
    tap_first: u32,
    tap_step: u32,
    place_first: u32,
    place_step: u32,
}

/// [`Sums`] without the numbers that only lead to offsets.
#[derive(CubeType)]
struct Geometry {
    y: Axis,
    x: Axis,
    images: u32,
    groups: u32,
    rows: u32,
    channels: u32,
    group: u32,
    row: u32,
    channel: u32,
    kernel_row: u32,
    plane_rows: u32,
    plane_columns: u32,
    panel: u32,
}

fn axis(d: &mut Definition) -> AxisExpand {
    AxisExpand {
        len: d.scalar(),
        source: d.scalar(),
        first: d.scalar(),
        scale: d.scalar(),
        step: d.scalar(),
        taps: d.scalar(),
        tap_first: d.scalar(),
        tap_step: d.scalar(),
        place_first: d.scalar(),
        place_step: d.scalar(),
    }
}

fn geometry(d: &mut Definition) -> GeometryExpand {
    GeometryExpand {
        y: axis(d),
        x: axis(d),
        images: d.scalar(),
        groups: d.scalar(),
        rows: d.scalar(),
        channels: d.scalar(),
        group: d.scalar(),
        row: d.scalar(),
        channel: d.scalar(),
        kernel_row: d.scalar(),
        plane_rows: d.scalar(),
        plane_columns: d.scalar(),
        panel: d.scalar(),
    }
}

fn geometry_args<'a>(p: &Sums) -> Vec<Arg<'a>> {
    let axes = p.axes.into_iter().flat_map(|a| {
        [
            a.len as u32,
            a.source as u32,
            a.first as u32,
            a.scale as u32,
            a.step as u32,
            a.taps as u32,
            a.tap_first as u32,
            a.tap_step as u32,
            a.place_first as u32,
            a.place_step as u32,
        ]
    });
    let rest = [
        p.images,
        p.groups,
        p.rows,
        p.channels,
        p.group,
        p.row,
        p.channel,
        p.kernel_row,
        p.plane[0],
        p.plane[1],
        p.panel,
    ];
    axes.chain(rest.map(|n| n as u32)).map(Arg::U32).collect()
}

/// A unit for each element of the result.
#[cube]
fn direct(
    ieee: &Ieee,
    source: &Array<f32>,
    w: &Array<f32>,
    bias: &Array<f32>,
    out: &mut Array<f32>,
    p: &Geometry,
    zero: f32,
    total: u32,
    #[comptime] added: bool,
) {
    let index = CUBE_POS as u32 * UNITS + UNIT_POS;
    if index < total {
        let j = index % p.x.len;
        let rest = index / p.x.len;
        let i = rest % p.y.len;
        // Member, row.
        let output = rest / p.y.len;
        let member = output / p.rows;
        let group = member % p.groups;
        let row = output % p.rows;
        let y = p.y.first + i * p.y.scale;
        let x = p.x.first + j * p.x.scale;
        let mut sum = zero;
        let mut totals = zero;
        let mut k = 0u32;
        let mut folded = 0u32;
        for c in 0..p.channels {
            let plane = (member * p.channels + c) * p.y.source * p.x.source;
            let taps = group * p.group
                + row * p.row
                + c * p.channel
                + p.y.tap_first * p.kernel_row
                + p.x.tap_first;
            for r in 0..p.y.taps {
                let y = y + r * p.y.step;
                let above = y < p.y.source;
                for t in 0..p.x.taps {
                    let x = x + t * p.x.step;
                    let inside = above & (x < p.x.source);
                    let place = prim::select_u32(inside, plane + y * p.x.source + x, 0u32);
                    let mut seen = zero;
                    if inside {
                        seen = source[place as usize];
                    }
                    let at = taps + r * p.y.tap_step * p.kernel_row + t * p.x.tap_step;
                    // `N6`: chains over ascending k, the panels' sums in order.
                    sum = ieee.fma(seen, w[at as usize], sum);
                    k += 1u32;
                    if k == p.panel {
                        totals = panel(ieee, totals, sum, folded);
                        folded += 1u32;
                        k = 0u32;
                        sum = zero;
                    }
                }
            }
        }
        if k > 0u32 {
            totals = panel(ieee, totals, sum, folded);
        }
        let mut b = zero;
        if comptime!(added) {
            b = bias[(group * p.rows + row) as usize];
        }
        let place = (output * p.plane_rows + p.y.place_first + i * p.y.place_step)
            * p.plane_columns
            + p.x.place_first
            + j * p.x.place_step;
        out[place as usize] = finish(*ieee, totals, b, added);
    }
}

/// The totals with one more panel's sum.
#[cube]
fn panel(ieee: &Ieee, totals: f32, sum: f32, folded: u32) -> f32 {
    let mut x = sum;
    if folded > 0u32 {
        x = ieee.add(totals, sum);
    }
    x
}

/// A unit for each weight and each panel of places, from panel `first` on.
#[cube]
fn direct_weights(
    ieee: &Ieee,
    x: &Array<f32>,
    y: &Array<f32>,
    sums: &mut Array<f32>,
    p: &Geometry,
    zero: f32,
    weights: u32,
    first: u32,
    total: u32,
) {
    let index = CUBE_POS as u32 * UNITS + UNIT_POS;
    if index < total {
        let weight = index % weights;
        let t = weight % p.x.taps;
        let rest = weight / p.x.taps;
        let r = rest % p.y.taps;
        let rest = rest / p.y.taps;
        let c = rest % p.channels;
        let output = rest / p.channels;
        let group = output / p.rows;
        let places = p.y.len * p.x.len;
        let from = (first + index / weights) * p.panel;
        let all = p.images * places;
        let to = prim::select_u32(from + p.panel < all, from + p.panel, all);
        let mut n = from / places;
        let mut place = from % places;
        let mut i = place / p.x.len;
        let mut j = place % p.x.len;
        let outputs = p.groups * p.rows;
        let mut sum = zero;
        for _ in from..to {
            let row = p.y.first + i * p.y.scale + r * p.y.step;
            let column = p.x.first + j * p.x.scale + t * p.x.step;
            let plane = (n * p.groups + group) * p.channels + c;
            let inside = (row < p.y.source) & (column < p.x.source);
            let at = (plane * p.y.source + row) * p.x.source + column;
            let at = prim::select_u32(inside, at, 0u32);
            let mut seen = zero;
            if inside {
                seen = x[at as usize];
            }
            let gradient = y[((n * outputs + output) * places + place) as usize];
            // `N6`: a chain over ascending k.
            sum = ieee.fma(seen, gradient, sum);
            place += 1u32;
            j += 1u32;
            if j == p.x.len {
                j = 0u32;
                i += 1u32;
            }
            if place == places {
                place = 0u32;
                i = 0u32;
                n += 1u32;
            }
        }
        sums[index as usize] = sum;
    }
}

/// Adds the sums of `panels` panels in order (`N6`) to those before them.
#[cube]
fn fold(
    ieee: &Ieee,
    sums: &Array<f32>,
    out: &mut Array<f32>,
    weights: u32,
    panels: u32,
    #[comptime] first: bool,
    #[comptime] last: bool,
) {
    let index = CUBE_POS as u32 * UNITS + UNIT_POS;
    if index < weights {
        let mut x = sums[index as usize];
        if comptime!(!first) {
            x = ieee.add(out[index as usize], x);
        }
        for panel in 1..panels {
            x = ieee.add(x, sums[(panel * weights + index) as usize]);
        }
        if comptime!(last) {
            x = ieee.canonical(x);
        }
        out[index as usize] = x;
    }
}

fn direct_kernel(profile: FloatProfile, added: bool) -> Kernel {
    Kernel::new(
        "conv_direct",
        profile,
        added,
        CubeDim::new_1d(UNITS),
        move |d| {
            let ieee = d.ieee();
            let (source, w) = (d.input::<f32>(), d.input::<f32>());
            let bias = if added { d.input() } else { w.clone() };
            let out = d.output::<f32>();
            let p = geometry(d);
            let (zero, total) = (d.scalar(), d.scalar());
            direct::expand(d.scope(), ieee, source, w, bias, out, p, zero, total, added);
        },
    )
}

fn direct_weights_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new(
        "conv_direct_weights",
        profile,
        (),
        CubeDim::new_1d(UNITS),
        move |d| {
            let ieee = d.ieee();
            let (x, y, sums) = (d.input(), d.input(), d.output());
            let p = geometry(d);
            let zero = d.scalar();
            let [weights, first, total] = [(); 3].map(|()| d.scalar());
            direct_weights::expand(d.scope(), ieee, x, y, sums, p, zero, weights, first, total);
        },
    )
}

fn fold_kernel(profile: FloatProfile, first: bool, last: bool) -> Kernel {
    Kernel::new(
        "conv_fold",
        profile,
        (first, last),
        CubeDim::new_1d(UNITS),
        move |d| {
            let ieee = d.ieee();
            let (sums, out) = (d.input(), d.output());
            let (weights, panels) = (d.scalar(), d.scalar());
            fold::expand(d.scope(), ieee, sums, out, weights, panels, first, last);
        },
    )
}

/// Runs sums over the same source whose places fill the output.
pub(super) fn sums(
    device: &Device,
    sums: &[Sums],
    source: &Buffer<f32>,
    w: &Buffer<f32>,
    bias: Option<&Buffer<f32>>,
    out: &mut Buffer<f32>,
    _plan: Plan,
) -> Result<()> {
    let kernel = direct_kernel(device.profile()?, bias.is_some());
    for p in sums {
        let total = p.images * p.groups * p.rows * p.places();
        let mut args = vec![Arg::from(source), Arg::from(w)];
        args.extend(bias.map(Arg::from));
        args.push(Arg::from(&*out));
        args.extend(geometry_args(p));
        args.extend([Arg::F32(0.0), Arg::U32(total as u32)]);
        device.launch(&kernel, grid(total, UNITS as usize)?, &args)?;
    }
    Ok(())
}

/// The weight gradient of the convolution `p`.
pub(super) fn weights(
    device: &Device,
    p: &Sums,
    x: &Buffer<f32>,
    y: &Buffer<f32>,
    out: &mut Buffer<f32>,
    plan: Plan,
) -> Result<()> {
    let profile = device.profile()?;
    let weights = out.len();
    // With no place there is one panel of nothing.
    let panels = (p.images * p.places()).div_ceil(p.panel).max(1);
    let at_once = (plan.split.unwrap_or(SPLIT) / weights).clamp(1, panels);
    let sums = device.empty::<f32>(at_once * weights)?;
    for first in (0..panels).step_by(at_once) {
        let count = at_once.min(panels - first);
        let total = count * weights;
        let mut args = vec![Arg::from(x), Arg::from(y), Arg::from(&sums)];
        args.extend(geometry_args(p));
        args.extend([
            Arg::F32(0.0),
            Arg::U32(weights as u32),
            Arg::U32(first as u32),
            Arg::U32(total as u32),
        ]);
        device.launch(
            &direct_weights_kernel(profile),
            grid(total, UNITS as usize)?,
            &args,
        )?;
        let fold = fold_kernel(profile, first == 0, first + count == panels);
        let args = [
            Arg::from(&sums),
            Arg::from(&*out),
            Arg::U32(weights as u32),
            Arg::U32(count as u32),
        ];
        device.launch(&fold, grid(weights, UNITS as usize)?, &args)?;
    }
    Ok(())
}

/// Each kernel.
pub(super) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let mut all = vec![
        direct_kernel(profile, false),
        direct_kernel(profile, true),
        direct_weights_kernel(profile),
    ];
    for (first, last) in [(true, true), (true, false), (false, false), (false, true)] {
        all.push(fold_kernel(profile, first, last));
    }
    all
}
