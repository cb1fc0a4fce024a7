//! The GPU path: products of matrices whose elements tables say, and direct sums.
//!
//! Images are first copied with their padding. Then the element that place j sees as term k lies
//! at `lanes[j] + terms[k]`, and [products](crate::ops::gemm) take such tables for operands. A
//! data gradient is one product for each residue class, into the places of the class; the terms
//! of a weight gradient are the places of all images.
//!
//! Groups with few output channels would leave most of a tile idle: there a unit forms the elements of
//! all rows at some neighbouring places, which share what they read.

use super::{Sums, finish, outside};
use crate::device::{Arg, Buffer, Definition, Device, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::gemm::{Axes, Place, Problem, Source, product};
use crate::ops::grid;
use crate::prim;
use cubecl::prelude::*;
use detml_core::Result;

/// A schedule to force in tests; the default is chosen by shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Whether the sums are products of matrices.
    pub(super) product: Option<bool>,
    /// Whether a unit forms elements of several rows and places where they are not.
    pub(super) strips: Option<bool>,
    /// Elements that the sums of panels may take at a time where they are not.
    pub(super) split: Option<usize>,
}

/// Elements that the panels of a weight gradient may take.
const SPLIT: usize = 1 << 25;
/// Rows from which on sums are products.
const PRODUCT: usize = 4;
/// Neighbouring places that a unit takes.
const PLACES: usize = 8;
/// Terms of a product's stage divide its panels.
const STAGE: usize = 16;
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

/// What a unit of [`strip`] forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Strip {
    /// Rows: all of the group's.
    rows: u32,
    /// Neighbouring places of a line.
    places: u32,
    added: bool,
}

/// The planes that terms are read from, with what they see beyond the source in them.
#[derive(CubeType)]
struct Padded {
    row: u32,
    plane: u32,
    /// Where the first term's element under the first place lies.
    first: u32,
}

/// A unit for all rows of a group at some neighbouring places.
#[cube]
fn strip(
    ieee: &Ieee,
    source: &Array<f32>,
    w: &Array<f32>,
    bias: &Array<f32>,
    out: &mut Array<f32>,
    p: &Geometry,
    padded: &Padded,
    zero: f32,
    total: u32,
    #[comptime] s: Strip,
    #[comptime] unroll: bool,
) {
    let rows = comptime!(s.rows);
    let places = comptime!(s.places);
    let index = CUBE_POS as u32 * UNITS + UNIT_POS;
    if index < total {
        let strips = (p.x.len + (places - 1u32)) / places;
        let j = index % strips * places;
        let rest = index / strips;
        let i = rest % p.y.len;
        let member = rest / p.y.len;
        let group = member % p.groups;
        let mut sums = Array::<f32>::new(comptime!((s.rows * s.places) as usize));
        let mut totals = Array::<f32>::new(comptime!((s.rows * s.places) as usize));
        let mut from = Array::<u32>::new(comptime!(s.places as usize));
        let mut seen = Array::<f32>::new(comptime!(s.places as usize));
        let line = member * p.channels * padded.plane + padded.first + i * p.y.scale * padded.row;
        #[unroll]
        for q in 0..places {
            // The last places of a line may be several units'; one writes them.
            let column = prim::select_u32(j + q < p.x.len, j + q, p.x.len - 1u32);
            from[q as usize] = line + column * p.x.scale;
        }
        #[unroll]
        for e in 0..comptime!(s.rows * s.places) {
            sums[e as usize] = zero;
            totals[e as usize] = zero;
        }
        let mut k = 0u32;
        let mut folded = 0u32;
        for c in 0..p.channels {
            let taps =
                group * p.group + c * p.channel + p.y.tap_first * p.kernel_row + p.x.tap_first;
            for r in 0..p.y.taps {
                let mut at = c * padded.plane + r * p.y.step * padded.row;
                let mut tap = taps + r * p.y.tap_step * p.kernel_row;
                for _ in 0..p.x.taps {
                    #[unroll]
                    for q in 0..places {
                        seen[q as usize] = source[(from[q as usize] + at) as usize];
                    }
                    #[unroll(unroll)]
                    for row in 0..rows {
                        let weight = w[(tap + row * p.row) as usize];
                        #[unroll(unroll)]
                        for q in 0..places {
                            let e = row * places + q;
                            // `N6`: chains over ascending k, the panels' sums in order.
                            sums[e as usize] = ieee.fma(seen[q as usize], weight, sums[e as usize]);
                        }
                    }
                    at += p.x.step;
                    tap += p.x.tap_step;
                    k += 1u32;
                    if k == p.panel {
                        #[unroll]
                        for e in 0..comptime!(s.rows * s.places) {
                            totals[e as usize] =
                                panel(ieee, totals[e as usize], sums[e as usize], folded);
                            sums[e as usize] = zero;
                        }
                        folded += 1u32;
                        k = 0u32;
                    }
                }
            }
        }
        if k > 0u32 {
            #[unroll]
            for e in 0..comptime!(s.rows * s.places) {
                totals[e as usize] = panel(ieee, totals[e as usize], sums[e as usize], folded);
            }
        }
        #[unroll(unroll)]
        for row in 0..rows {
            let output = member * rows + row;
            let mut b = zero;
            if comptime!(s.added) {
                b = bias[(group * rows + row) as usize];
            }
            let place = (output * p.plane_rows + p.y.place_first + i * p.y.place_step)
                * p.plane_columns
                + p.x.place_first
                + j * p.x.place_step;
            #[unroll(unroll)]
            for q in 0..places {
                if j + q < p.x.len {
                    out[(place + q * p.x.place_step) as usize] =
                        finish(*ieee, totals[(row * places + q) as usize], b, s.added);
                }
            }
        }
    }
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

/// Copies planes with +0 around them.
#[cube]
fn pad(
    x: &Array<f32>,
    out: &mut Array<f32>,
    zero: f32,
    rows: u32,
    columns: u32,
    above: u32,
    left: u32,
    padded_rows: u32,
    padded_columns: u32,
    total: u32,
) {
    let index = CUBE_POS as u32 * UNITS + UNIT_POS;
    if index < total {
        let column = index % padded_columns - left;
        let rest = index / padded_columns;
        let row = rest % padded_rows - above;
        let plane = rest / padded_rows;
        // What lies before the first is as far beyond the last as words go.
        let inside = (row < rows) & (column < columns);
        let place = prim::select_u32(inside, (plane * rows + row) * columns + column, 0u32);
        let mut value = zero;
        if inside {
            value = x[place as usize];
        }
        out[index as usize] = value;
    }
}

/// Places along three indices, last one fastest, each with its distance.
#[cube]
fn table(
    out: &mut Array<u32>,
    first: u32,
    far: u32,
    middle: u32,
    near: u32,
    middle_count: u32,
    near_count: u32,
    total: u32,
) {
    let index = CUBE_POS as u32 * UNITS + UNIT_POS;
    if index < total {
        let rest = index / near_count;
        out[index as usize] = first
            + rest / middle_count * far
            + rest % middle_count * middle
            + index % near_count * near;
    }
}

/// Puts a channel's bias into each element of its planes.
#[cube]
fn spread(bias: &Array<f32>, out: &mut Array<f32>, channels: u32, plane: u32, total: u32) {
    let index = CUBE_POS as u32 * UNITS + UNIT_POS;
    if index < total {
        out[index as usize] = bias[(index / plane % channels) as usize];
    }
}

fn pad_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("conv_pad", profile, (), CubeDim::new_1d(UNITS), |d| {
        let (x, out, zero) = (d.input(), d.output(), d.scalar());
        let [rows, columns, above, left] = [(); 4].map(|()| d.scalar());
        let [padded_rows, padded_columns, total] = [(); 3].map(|()| d.scalar());
        pad::expand(
            d.scope(),
            x,
            out,
            zero,
            rows,
            columns,
            above,
            left,
            padded_rows,
            padded_columns,
            total,
        );
    })
}

fn table_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("conv_table", profile, (), CubeDim::new_1d(UNITS), |d| {
        let out = d.output();
        let [first, far, middle, near] = [(); 4].map(|()| d.scalar());
        let [middle_count, near_count, total] = [(); 3].map(|()| d.scalar());
        table::expand(
            d.scope(),
            out,
            first,
            far,
            middle,
            near,
            middle_count,
            near_count,
            total,
        );
    })
}

fn spread_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("conv_bias", profile, (), CubeDim::new_1d(UNITS), |d| {
        let (bias, out) = (d.input(), d.output());
        let [channels, plane, total] = [(); 3].map(|()| d.scalar());
        spread::expand(d.scope(), bias, out, channels, plane, total);
    })
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

fn strip_kernel(profile: FloatProfile, s: Strip) -> Kernel {
    let unroll = profile.direct();
    let units = CubeDim::new_1d(UNITS);
    Kernel::new("conv_strip", profile, s, units, move |d| {
        let ieee = d.ieee();
        let (source, w) = (d.input::<f32>(), d.input::<f32>());
        let bias = if s.added { d.input() } else { w.clone() };
        let out = d.output::<f32>();
        let p = geometry(d);
        let padded = PaddedExpand {
            row: d.scalar(),
            plane: d.scalar(),
            first: d.scalar(),
        };
        let (zero, total) = (d.scalar(), d.scalar());
        strip::expand(
            d.scope(),
            ieee,
            source,
            w,
            bias,
            out,
            p,
            padded,
            zero,
            total,
            s,
            unroll,
        );
    })
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

/// Planes as they lie, padded where that is needed.
struct Planes<'a> {
    buffer: &'a Buffer<f32>,
    /// Elements of a row and of a plane.
    row: usize,
    plane: usize,
    /// Rows and columns before the source's first.
    before: [usize; 2],
}

impl Planes<'_> {
    /// The place of the first term's element under the first place.
    fn first(&self, p: &Sums) -> isize {
        let [row, column] = [0, 1].map(|i| p.axes[i].first + self.before[i] as isize);
        row * self.row as isize + column
    }

    /// The places of terms, channel after channel.
    fn terms(&self, device: &Device, p: &Sums) -> Result<Buffer<u32>> {
        let [rows, columns] = p.axes;
        let apart = [
            self.plane as isize,
            rows.step * self.row as isize,
            columns.step,
        ];
        let counts = [p.channels, rows.taps, columns.taps];
        places(device, self.first(p), apart, counts)
    }

    /// The places of lanes, image after image.
    fn lanes(&self, device: &Device, p: &Sums) -> Result<Buffer<u32>> {
        let [rows, columns] = p.axes;
        let apart = [
            p.groups * p.channels * self.plane,
            rows.scale * self.row,
            columns.scale,
        ];
        places(
            device,
            0,
            apart.map(|n| n as isize),
            [p.images, rows.len, columns.len],
        )
    }
}

/// A table of places along three indices, last one fastest.
fn places(
    device: &Device,
    first: isize,
    apart: [isize; 3],
    counts: [usize; 3],
) -> Result<Buffer<u32>> {
    let total = counts.iter().product::<usize>();
    let out = device.empty::<u32>(total)?;
    let mut args = vec![Arg::from(&out), Arg::U32(first as u32)];
    args.extend(apart.map(|n| Arg::U32(n as u32)));
    args.extend([counts[1], counts[2], total].map(|n| Arg::U32(n as u32)));
    let kernel = table_kernel(device.profile()?);
    device.launch(&kernel, grid(total, UNITS as usize)?, &args)?;
    Ok(out)
}

/// Runs `work` on the planes of `source`, copied with their padding if any of `sums` sees it.
fn with_planes(
    device: &Device,
    sums: &[Sums],
    source: &Buffer<f32>,
    work: impl FnOnce(Planes<'_>) -> Result<()>,
) -> Result<()> {
    let [above, left] = [outside(sums, 0), outside(sums, 1)];
    let p = &sums[0];
    let [rows, columns] = p.axes.map(|axis| axis.source);
    let [padded_rows, padded_columns] = [above[0] + rows + above[1], left[0] + columns + left[1]];
    let planes = |buffer| Planes {
        buffer,
        row: padded_columns,
        plane: padded_rows * padded_columns,
        before: [above[0], left[0]],
    };
    if (above, left) == ([0; 2], [0; 2]) {
        return work(planes(source));
    }
    let total = p.images * p.groups * p.channels * padded_rows * padded_columns;
    let padded = device.empty::<f32>(total)?;
    let mut args = vec![Arg::from(source), Arg::from(&padded), Arg::F32(0.0)];
    args.extend(
        [
            rows,
            columns,
            above[0],
            left[0],
            padded_rows,
            padded_columns,
            total,
        ]
        .map(|n| Arg::U32(n as u32)),
    );
    let kernel = pad_kernel(device.profile()?);
    device.launch(&kernel, grid(total, UNITS as usize)?, &args)?;
    work(planes(&padded))
}

/// The product whose sums are `p`, `k` terms each.
fn problem(p: &Sums, n: usize, k: usize, added: bool) -> Problem {
    Problem {
        batch: p.groups,
        m: p.rows,
        n,
        k,
        alpha: 1.0,
        // `fma(1, bias, total)` is their sum, rounded.
        beta: if added { 1.0 } else { 0.0 },
        panel: p.panel,
    }
}

/// Runs sums over the same source whose places fill the output.
pub(super) fn sums(
    device: &Device,
    sums: &[Sums],
    source: &Buffer<f32>,
    w: &Buffer<f32>,
    bias: Option<&Buffer<f32>>,
    out: &mut Buffer<f32>,
    plan: Plan,
) -> Result<()> {
    let p = &sums[0];
    let fits = !source.is_empty() && p.panel % STAGE == 0;
    if !fits || !plan.product.unwrap_or(p.rows >= PRODUCT) {
        let strips = plan.strips.unwrap_or(true) && p.rows < PRODUCT;
        if !strips || source.is_empty() {
            for p in sums {
                direct_sums(device, p, source, w, bias, out)?;
            }
            return Ok(());
        }
        return with_planes(device, sums, source, |planes| {
            for p in sums {
                strip_sums(device, p, &planes, w, bias, out)?;
            }
            Ok(())
        });
    }
    let plane = p.plane[0] * p.plane[1];
    if let Some(bias) = bias {
        let channels = p.groups * p.rows;
        let total = out.len();
        let mut args = vec![Arg::from(bias), Arg::from(&*out)];
        args.extend([channels, plane, total].map(|n| Arg::U32(n as u32)));
        let kernel = spread_kernel(device.profile()?);
        device.launch(&kernel, grid(total, UNITS as usize)?, &args)?;
    }
    with_planes(device, sums, source, |planes| {
        for p in sums {
            if p.terms() == 0 {
                direct_sums(device, p, source, w, bias, out)?;
                continue;
            }
            let [rows, columns] = p.axes;
            let first = (rows.tap_first * p.kernel_row + columns.tap_first) as isize;
            let apart = [p.channel, rows.tap_step * p.kernel_row, columns.tap_step];
            let weights = [
                places(device, 0, [0, 0, p.row as isize], [1, 1, p.rows])?,
                places(
                    device,
                    first,
                    apart.map(|n| n as isize),
                    [p.channels, rows.taps, columns.taps],
                )?,
            ];
            let whole = p.row == p.terms() && p.channel == rows.taps * columns.taps;
            let seen = [planes.lanes(device, p)?, planes.terms(device, p)?];
            let first = (rows.place_first * p.plane[1] + columns.place_first) as isize;
            let apart = [
                p.groups * p.rows * plane,
                rows.place_step * p.plane[1],
                columns.place_step,
            ];
            let results = [
                places(device, 0, [0, 0, plane as isize], [1, 1, p.rows])?,
                places(
                    device,
                    first,
                    apart.map(|n| n as isize),
                    [p.images, rows.len, columns.len],
                )?,
            ];
            product(
                &problem(p, p.images * p.places(), p.terms(), bias.is_some()),
                Source {
                    buffer: w,
                    offset: 0,
                    axes: if whole {
                        Axes::Strides([p.row, 1])
                    } else {
                        Axes::Tables([&weights[0], &weights[1]])
                    },
                    batch: p.group,
                },
                Source {
                    buffer: planes.buffer,
                    offset: 0,
                    axes: Axes::Tables([&seen[0], &seen[1]]),
                    batch: p.channels * planes.plane,
                },
                out,
                Place {
                    offset: 0,
                    axes: Axes::Tables([&results[0], &results[1]]),
                    batch: p.rows * plane,
                },
            )?;
        }
        Ok(())
    })
}

fn direct_sums(
    device: &Device,
    p: &Sums,
    source: &Buffer<f32>,
    w: &Buffer<f32>,
    bias: Option<&Buffer<f32>>,
    out: &Buffer<f32>,
) -> Result<()> {
    let kernel = direct_kernel(device.profile()?, bias.is_some());
    let total = p.images * p.groups * p.rows * p.places();
    let mut args = vec![Arg::from(source), Arg::from(w)];
    args.extend(bias.map(Arg::from));
    args.push(Arg::from(out));
    args.extend(geometry_args(p));
    args.extend([Arg::F32(0.0), Arg::U32(total as u32)]);
    device.launch(&kernel, grid(total, UNITS as usize)?, &args)
}

fn strip_sums(
    device: &Device,
    p: &Sums,
    planes: &Planes<'_>,
    w: &Buffer<f32>,
    bias: Option<&Buffer<f32>>,
    out: &Buffer<f32>,
) -> Result<()> {
    let columns = p.axes[1].len;
    let strip = Strip {
        rows: p.rows as u32,
        places: if columns < PLACES { 1 } else { PLACES as u32 },
        added: bias.is_some(),
    };
    let total = p.images * p.groups * p.axes[0].len * columns.div_ceil(strip.places as usize);
    let mut args = vec![Arg::from(planes.buffer), Arg::from(w)];
    args.extend(bias.map(Arg::from));
    args.push(Arg::from(out));
    args.extend(geometry_args(p));
    args.extend([planes.row, planes.plane, planes.first(p) as usize].map(|n| Arg::U32(n as u32)));
    args.extend([Arg::F32(0.0), Arg::U32(total as u32)]);
    let kernel = strip_kernel(device.profile()?, strip);
    device.launch(&kernel, grid(total, UNITS as usize)?, &args)
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
    let fits = !x.is_empty() && !y.is_empty() && p.panel % STAGE == 0;
    if !fits || !plan.product.unwrap_or(p.rows >= PRODUCT) {
        return direct_weight_sums(device, p, x, y, out, plan);
    }
    with_planes(device, std::slice::from_ref(p), x, |planes| {
        let [rows, columns] = p.axes;
        let each = p.places();
        let gradients = [
            places(device, 0, [0, 0, each as isize], [1, 1, p.rows])?,
            places(
                device,
                0,
                [(p.groups * p.rows * each) as isize, columns.len as isize, 1],
                [p.images, rows.len, columns.len],
            )?,
        ];
        let seen = [planes.terms(device, p)?, planes.lanes(device, p)?];
        product(
            &problem(p, p.terms(), p.images * each, false),
            Source {
                buffer: y,
                offset: 0,
                axes: Axes::Tables([&gradients[0], &gradients[1]]),
                batch: p.rows * each,
            },
            Source {
                buffer: planes.buffer,
                offset: 0,
                axes: Axes::Tables([&seen[0], &seen[1]]),
                batch: p.channels * planes.plane,
            },
            out,
            Place {
                offset: 0,
                axes: Axes::Strides([p.terms(), 1]),
                batch: p.rows * p.terms(),
            },
        )
    })
}

fn direct_weight_sums(
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
        pad_kernel(profile),
        table_kernel(profile),
        spread_kernel(profile),
    ];
    for (rows, places, added) in [(1, 1, true), (1, 8, true), (2, 8, false), (3, 8, false)] {
        all.push(strip_kernel(
            profile,
            Strip {
                rows,
                places,
                added,
            },
        ));
    }
    for (first, last) in [(true, true), (true, false), (false, false), (false, true)] {
        all.push(fold_kernel(profile, first, last));
    }
    all
}
