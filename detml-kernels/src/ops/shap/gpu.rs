//! A unit for each row and segment of trees, which walks the segment's paths in their order.
//!
//! Neighbouring units have neighbouring rows and the same paths, so what is read of a path is one
//! word for a whole plane, and keys and sums lie slot by slot, row after row.

use super::paths::{Paths, Tables};
use super::rule::{MOST, RULES};
use super::{Interventional, NAN, PathDependent, factor, ones, passes, ratio};
use crate::device::{Buffer, Device, Kernel, args, zeros};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::grid;
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Error, Result};
use rayon::prelude::*;

type Words = Vector<u32, Const<4>>;

const UNITS: u32 = 128;
/// Numbers of a kind that a device holds at a time: rows are independent, so parts can't show.
const PART: usize = 1 << 26;
/// The side of the table of orders.
const SIDE: u32 = MOST as u32 + 1;

/// The keys of the used features of `rows` rows, slot by slot.
#[cube]
fn keys(
    ieee: &Ieee,
    x: &Array<f32>,
    used: &Array<u32>,
    out: &mut Array<u32>,
    features: u32,
    rows: u32,
    total: u32,
) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < total {
        let slot = i / rows;
        let row = i - slot * rows;
        out[i as usize] = ieee.order_key(x[(row * features + used[slot as usize]) as usize]);
    }
}

/// Looks up which features of a path pass, bit by bit.
#[cube]
fn look(keys: &Array<u32>, steps: &Array<Words>, first: u32, end: u32, row: u32, rows: u32) -> u32 {
    let mut pass = 0u32;
    for at in first..end {
        let step = steps[at as usize];
        let key = keys[((step[0] >> 1u32) * rows + row) as usize];
        pass |= passes(key, step[1], step[2], step[0] & 1u32) << (at - first);
    }
    pass
}

/// The products of a path's factors.
#[cube]
fn multiply(
    ieee: &Ieee,
    steps: &Array<Words>,
    weights: &Array<f32>,
    nodes: &Array<f32>,
    products: &mut Array<f32>,
    first: u32,
    end: u32,
    pass: u32,
    #[comptime] points: u32,
    #[comptime] unroll: bool,
) {
    #[unroll(unroll)]
    for q in 0..points {
        products[q as usize] = weights[q as usize];
    }
    for at in first..end {
        let share = prim::from_bits(steps[at as usize][3]);
        let open = (pass >> (at - first)) & 1u32;
        #[unroll(unroll)]
        for q in 0..points {
            let mirror = nodes[(comptime!(points - 1) - q) as usize];
            let factor = factor(ieee, share, mirror, nodes[q as usize], open);
            products[q as usize] = ieee.mul(products[q as usize], factor);
        }
    }
}

/// `steps` hold: twice the slot, and 1 if missing values pass; the lowest key that does; the span of
/// keys; the share. `table` holds a rule's nodes and what closed features' ratios are.
#[cube]
fn path_values(
    ieee: &Ieee,
    keys: &Array<u32>,
    cells: &Array<u32>,
    starts: &Array<u32>,
    leaves: &Array<f32>,
    steps: &Array<Words>,
    ratios: &Array<f32>,
    weights: &Array<f32>,
    table: &Array<f32>,
    out: &mut Array<f32>,
    rows: u32,
    slots: u32,
    total: u32,
    #[comptime] points: u32,
    #[comptime] unroll: bool,
) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < total {
        let cell = i / rows;
        let row = i - cell * rows;
        let base = cell * slots * rows + row;
        for slot in 0..slots {
            out[(base + slot * rows) as usize] = 0.0f32;
        }
        let mut nodes = Array::<f32>::new(comptime!(points as usize));
        let mut closed = Array::<f32>::new(comptime!(points as usize));
        let mut products = Array::<f32>::new(comptime!(points as usize));
        #[unroll(unroll)]
        for q in 0..points {
            nodes[q as usize] = table[q as usize];
            closed[q as usize] = table[(points + q) as usize];
        }
        for path in cells[cell as usize]..cells[(cell + 1u32) as usize] {
            let first = starts[path as usize];
            let end = starts[(path + 1u32) as usize];
            let leaf = leaves[path as usize];
            let pass = look(keys, steps, first, end, row, rows);
            multiply(
                ieee,
                steps,
                weights,
                &nodes,
                &mut products,
                first,
                end,
                pass,
                points,
                unroll,
            );
            let mut shut = 0.0f32;
            #[unroll(unroll)]
            for q in 0..points {
                shut = ieee.fma(products[q as usize], closed[q as usize], shut);
            }
            for at in first..end {
                let mut sum = 0.0f32;
                #[unroll(unroll)]
                for q in 0..points {
                    sum = ieee.fma(
                        products[q as usize],
                        ratios[(at * points + q) as usize],
                        sum,
                    );
                }
                let open = (pass >> (at - first)) & 1u32;
                let sum = ieee.select(open == 1u32, sum, shut);
                let to = (base + (steps[at as usize][0] >> 1u32) * rows) as usize;
                out[to] = ieee.fma(leaf, sum, out[to]);
            }
        }
    }
}

/// As [`path_values`], for pairs of slots `low < high`, at `high (high - 1) / 2 + low`.
#[cube]
fn path_pairs(
    ieee: &Ieee,
    keys: &Array<u32>,
    cells: &Array<u32>,
    starts: &Array<u32>,
    leaves: &Array<f32>,
    steps: &Array<Words>,
    ratios: &Array<f32>,
    weights: &Array<f32>,
    table: &Array<f32>,
    out: &mut Array<f32>,
    rows: u32,
    pairs: u32,
    total: u32,
    #[comptime] points: u32,
    #[comptime] unroll: bool,
) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < total {
        let cell = i / rows;
        let row = i - cell * rows;
        let base = cell * pairs * rows + row;
        for pair in 0..pairs {
            out[(base + pair * rows) as usize] = 0.0f32;
        }
        let mut nodes = Array::<f32>::new(comptime!(points as usize));
        let mut closed = Array::<f32>::new(comptime!(points as usize));
        let mut products = Array::<f32>::new(comptime!(points as usize));
        let mut without = Array::<f32>::new(comptime!(points as usize));
        #[unroll(unroll)]
        for q in 0..points {
            nodes[q as usize] = table[q as usize];
            closed[q as usize] = table[(points + q) as usize];
        }
        for path in cells[cell as usize]..cells[(cell + 1u32) as usize] {
            let first = starts[path as usize];
            let end = starts[(path + 1u32) as usize];
            let half = ieee.mul(leaves[path as usize], 0.5f32);
            let pass = look(keys, steps, first, end, row, rows);
            multiply(
                ieee,
                steps,
                weights,
                &nodes,
                &mut products,
                first,
                end,
                pass,
                points,
                unroll,
            );
            for a in first..end {
                let low = steps[a as usize][0] >> 1u32;
                let open_a = ((pass >> (a - first)) & 1u32) == 1u32;
                #[unroll(unroll)]
                for q in 0..points {
                    let ratio = ratios[(a * points + q) as usize];
                    let ratio = ieee.select(open_a, ratio, closed[q as usize]);
                    without[q as usize] = ieee.mul(products[q as usize], ratio);
                }
                for b in a + 1u32..end {
                    let high = steps[b as usize][0] >> 1u32;
                    let open_b = ((pass >> (b - first)) & 1u32) == 1u32;
                    let mut sum = 0.0f32;
                    #[unroll(unroll)]
                    for q in 0..points {
                        let ratio = ratios[(b * points + q) as usize];
                        let ratio = ieee.select(open_b, ratio, closed[q as usize]);
                        sum = ieee.fma(without[q as usize], ratio, sum);
                    }
                    let pair = high * (high - 1u32) / 2u32 + low;
                    let to = (base + pair * rows) as usize;
                    out[to] = ieee.fma(half, sum, out[to]);
                }
            }
        }
    }
}

/// As [`path_values`], against the sets of features that the background passes.
#[cube]
fn against(
    ieee: &Ieee,
    keys: &Array<u32>,
    cells: &Array<u32>,
    starts: &Array<u32>,
    steps: &Array<Words>,
    set_starts: &Array<u32>,
    sets: &Array<u32>,
    worths: &Array<f32>,
    orders: &Array<f32>,
    out: &mut Array<f32>,
    rows: u32,
    slots: u32,
    total: u32,
) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < total {
        let cell = i / rows;
        let row = i - cell * rows;
        let base = cell * slots * rows + row;
        for slot in 0..slots {
            out[(base + slot * rows) as usize] = 0.0f32;
        }
        for path in cells[cell as usize]..cells[(cell + 1u32) as usize] {
            let first = starts[path as usize];
            let end = starts[(path + 1u32) as usize];
            let full = NAN >> (32u32 - (end - first));
            let mine = look(keys, steps, first, end, row, rows);
            for set in set_starts[path as usize]..set_starts[(path + 1u32) as usize] {
                let passed = sets[set as usize];
                if (mine | passed) == full {
                    let other = mine ^ passed;
                    let a = ones(mine & other);
                    let b = ones(passed & other);
                    let gain = orders[(a * SIDE + b) as usize];
                    let loss = ieee.neg(orders[(b * SIDE + a) as usize]);
                    let worth = worths[set as usize];
                    for at in first..end {
                        let bit = at - first;
                        let share = ieee.select(((mine >> bit) & 1u32) == 1u32, gain, loss);
                        let to = (base + (steps[at as usize][0] >> 1u32) * rows) as usize;
                        if ((other >> bit) & 1u32) == 1u32 {
                            out[to] = ieee.fma(share, worth, out[to]);
                        }
                    }
                }
            }
        }
    }
}

/// The sum over the segments of an output, `size` sums a cell.
#[cube]
fn folded(
    ieee: &Ieee,
    parts: &Array<f32>,
    output: u32,
    at: u32,
    row: u32,
    rows: u32,
    size: u32,
    segments: u32,
) -> f32 {
    let first = output * segments;
    let mut sum = parts[((first * size + at) * rows + row) as usize];
    for segment in 1..segments {
        let cell = first + segment;
        sum = ieee.add(sum, parts[((cell * size + at) * rows + row) as usize]);
    }
    ieee.canonical(sum)
}

/// The values (rows x outputs x slots).
#[cube]
fn fold(
    ieee: &Ieee,
    parts: &Array<f32>,
    out: &mut Array<f32>,
    rows: u32,
    slots: u32,
    outputs: u32,
    segments: u32,
    total: u32,
) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < total {
        let slot = i % slots;
        let output = i / slots % outputs;
        let row = i / (slots * outputs);
        out[i as usize] = folded(ieee, parts, output, slot, row, rows, slots, segments);
    }
}

/// The interaction values (rows x outputs x slots x slots), a row of a matrix for each unit.
#[cube]
fn fold_pairs(
    ieee: &Ieee,
    values: &Array<f32>,
    parts: &Array<f32>,
    out: &mut Array<f32>,
    rows: u32,
    slots: u32,
    outputs: u32,
    segments: u32,
    total: u32,
) {
    let i = CUBE_POS as u32 * UNITS + UNIT_POS;
    if i < total {
        let slot = i % slots;
        let output = i / slots % outputs;
        let row = i / (slots * outputs);
        let pairs = slots * (slots - 1u32) / 2u32;
        let mut sum = 0.0f32;
        for other in 0..slots {
            if other != slot {
                let low = prim::select_u32(other < slot, other, slot);
                let high = prim::select_u32(other < slot, slot, other);
                let at = high * (high - 1u32) / 2u32 + low;
                let value = folded(ieee, parts, output, at, row, rows, pairs, segments);
                out[(i * slots + other) as usize] = value;
                sum = ieee.add(sum, value);
            }
        }
        let own = ieee.canonical(ieee.sub(values[i as usize], sum));
        out[(i * slots + slot) as usize] = own;
    }
}

fn keys_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("shap_keys", profile, (), CubeDim::new_1d(UNITS), |d| {
        let ieee = d.ieee();
        let (x, used, out) = (d.input(), d.input(), d.output());
        let [features, rows, total] = [(); 3].map(|()| d.scalar::<u32>());
        keys::expand(d.scope(), ieee, x, used, out, features, rows, total);
    })
}

/// The kernel of values or of pairs.
fn paths_kernel(name: &'static str, profile: FloatProfile, points: usize) -> Kernel {
    let points = points as u32;
    let unroll = profile.direct();
    Kernel::new(name, profile, points, CubeDim::new_1d(UNITS), move |d| {
        let ieee = d.ieee();
        let (keys, cells, starts) = (d.input(), d.input(), d.input());
        let (leaves, steps, ratios) = (d.input(), d.input::<Words>(), d.input());
        let (weights, table, out) = (d.input(), d.input(), d.output());
        let [rows, size, total] = [(); 3].map(|()| d.scalar::<u32>());
        let expand = match name {
            VALUES => path_values::expand,
            _ => path_pairs::expand,
        };
        expand(
            d.scope(),
            ieee,
            keys,
            cells,
            starts,
            leaves,
            steps,
            ratios,
            weights,
            table,
            out,
            rows,
            size,
            total,
            points,
            unroll,
        );
    })
}

const VALUES: &str = "shap_values";
const PAIRS: &str = "shap_pairs";

fn against_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new(
        "shap_background",
        profile,
        (),
        CubeDim::new_1d(UNITS),
        |d| {
            let ieee = d.ieee();
            let (keys, cells, starts) = (d.input(), d.input(), d.input());
            let (steps, set_starts, sets) = (d.input::<Words>(), d.input(), d.input());
            let (worths, orders, out) = (d.input(), d.input(), d.output());
            let [rows, slots, total] = [(); 3].map(|()| d.scalar::<u32>());
            against::expand(
                d.scope(),
                ieee,
                keys,
                cells,
                starts,
                steps,
                set_starts,
                sets,
                worths,
                orders,
                out,
                rows,
                slots,
                total,
            );
        },
    )
}

fn fold_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("shap_fold", profile, (), CubeDim::new_1d(UNITS), |d| {
        let ieee = d.ieee();
        let (parts, out) = (d.input(), d.output());
        let [rows, slots, outputs, segments, total] = [(); 5].map(|()| d.scalar::<u32>());
        fold::expand(
            d.scope(),
            ieee,
            parts,
            out,
            rows,
            slots,
            outputs,
            segments,
            total,
        );
    })
}

fn fold_pairs_kernel(profile: FloatProfile) -> Kernel {
    Kernel::new(
        "shap_fold_pairs",
        profile,
        (),
        CubeDim::new_1d(UNITS),
        |d| {
            let ieee = d.ieee();
            let (values, parts, out) = (d.input(), d.input(), d.output());
            let [rows, slots, outputs, segments, total] = [(); 5].map(|()| d.scalar::<u32>());
            fold_pairs::expand(
                d.scope(),
                ieee,
                values,
                parts,
                out,
                rows,
                slots,
                outputs,
                segments,
                total,
            );
        },
    )
}

/// Paths on a device.
struct Uploaded<'a> {
    device: &'a Device,
    profile: FloatProfile,
    paths: &'a Paths,
    used: Buffer<u32>,
    cells: Buffer<u32>,
    starts: Buffer<u32>,
    leaves: Buffer<f32>,
    steps: Buffer<u32>,
}

impl<'a> Uploaded<'a> {
    fn new(device: &'a Device, paths: &'a Paths, shares: &[f32]) -> Result<Self> {
        let mut words = Vec::with_capacity(4 * paths.steps.len());
        for (i, step) in paths.steps.iter().enumerate() {
            let share = shares.get(i).map_or(0, |share| share.to_bits());
            words.extend([2 * step.slot + step.missing, step.low, step.width, share]);
        }
        Ok(Self {
            device,
            profile: device.profile()?,
            paths,
            used: device.upload(&paths.used)?,
            cells: device.upload(&paths.cells)?,
            starts: device.upload(&paths.starts)?,
            leaves: device.upload(&paths.leaves)?,
            steps: device.upload_vec(words)?,
        })
    }

    fn cells(&self) -> usize {
        self.paths.outputs * self.paths.segments
    }

    /// Rows at a time where a cell has `size` sums and a row `results` numbers.
    fn rows(&self, size: usize, results: usize) -> Result<usize> {
        let sums = size.saturating_mul(self.cells());
        let most = self.paths.features.max(sums).max(results);
        if most > 1 << 31 {
            return Err(Error::unsupported(
                format!("{most} numbers for each row on a GPU"),
                "at most 2^31",
            ));
        }
        Ok((PART / most).max(1))
    }

    /// The keys of some rows, row by row given.
    fn keys(&self, x: &[f32], rows: usize) -> Result<Buffer<u32>> {
        let total = rows * self.paths.slots();
        let x = self.device.upload(x)?;
        let keys = self.device.empty::<u32>(total)?;
        self.device.launch(
            &keys_kernel(self.profile),
            grid(total, UNITS as usize)?,
            args![
                &x,
                &self.used,
                &keys,
                self.paths.features as u32,
                rows as u32,
                total as u32
            ],
        )?;
        Ok(keys)
    }

    /// The sums of each cell for values or pairs.
    fn sums(
        &self,
        name: &'static str,
        ruled: &Ruled,
        keys: &Buffer<u32>,
        rows: usize,
        size: usize,
    ) -> Result<Buffer<f32>> {
        let total = self.cells() * rows;
        let sums = self.device.empty::<f32>(self.cells() * size * rows)?;
        self.device.launch(
            &paths_kernel(name, self.profile, ruled.points),
            grid(total, UNITS as usize)?,
            args![
                keys,
                &self.cells,
                &self.starts,
                &self.leaves,
                self.steps.vectors(4),
                &ruled.ratios,
                &ruled.weights,
                &ruled.table,
                &sums,
                rows as u32,
                size as u32,
                total as u32
            ],
        )?;
        Ok(sums)
    }

    /// The values (rows x outputs x slots).
    fn fold(&self, sums: &Buffer<f32>, rows: usize) -> Result<Buffer<f32>> {
        let (slots, outputs) = (self.paths.slots(), self.paths.outputs);
        let total = rows * outputs * slots;
        let out = self.device.empty::<f32>(total)?;
        self.device.launch(
            &fold_kernel(self.profile),
            grid(total, UNITS as usize)?,
            args![
                sums,
                &out,
                rows as u32,
                slots as u32,
                outputs as u32,
                self.paths.segments as u32,
                total as u32
            ],
        )?;
        Ok(out)
    }

    /// Puts values (rows x outputs x slots) to their places.
    fn spread(&self, values: &Buffer<f32>, out: &mut [f32]) -> Result<()> {
        let values = self.device.read(values)?;
        out.par_chunks_mut(self.paths.features + 1)
            .zip(values.par_chunks(self.paths.slots()))
            .for_each(|(out, values)| {
                for (&feature, &value) in self.paths.used.iter().zip(values) {
                    out[feature as usize] = value;
                }
            });
        Ok(())
    }
}

/// What a rule adds to the paths.
struct Ruled {
    points: usize,
    ratios: Buffer<f32>,
    weights: Buffer<f32>,
    table: Buffer<f32>,
}

impl Ruled {
    fn new(device: &Device, shares: &[f32], tables: &Tables) -> Result<Self> {
        let points = tables.points();
        let total = shares.len().saturating_mul(points);
        if total > 1 << 31 {
            return Err(Error::unsupported(
                format!("a forest of {total} features and nodes on a GPU"),
                "at most 2^31",
            ));
        }
        let mut ratios = zeros(total)?;
        ratios
            .par_chunks_mut(points)
            .zip(shares)
            .for_each(|(ratios, &share)| {
                for (node, to) in ratios.iter_mut().enumerate() {
                    *to = ratio(Ieee::PLAIN, share, tables.mirror(node), tables.nodes[node]);
                }
            });
        let table = [&tables.nodes[..], &tables.closed].concat();
        Ok(Self {
            points,
            ratios: device.upload_vec(ratios)?,
            weights: device.upload(&tables.weights)?,
            table: device.upload_vec(table)?,
        })
    }
}

pub(super) fn values(
    device: &Device,
    shap: &PathDependent,
    x: &[f32],
    rows: usize,
    out: &mut [f32],
) -> Result<()> {
    let paths = &shap.paths;
    let uploaded = Uploaded::new(device, paths, &shap.shares)?;
    let ruled = Ruled::new(device, &shap.shares, &shap.tables)?;
    let slots = paths.slots();
    let each = uploaded.rows(slots, paths.outputs * slots)?.min(rows);
    let size = paths.outputs * (paths.features + 1);
    for (x, out) in x
        .chunks(each * paths.features)
        .zip(out.chunks_mut(each * size))
    {
        let rows = out.len() / size;
        let keys = uploaded.keys(x, rows)?;
        let sums = uploaded.sums(VALUES, &ruled, &keys, rows, slots)?;
        uploaded.spread(&uploaded.fold(&sums, rows)?, out)?;
    }
    Ok(())
}

pub(super) fn interactions(
    device: &Device,
    shap: &PathDependent,
    x: &[f32],
    rows: usize,
    out: &mut [f32],
) -> Result<()> {
    let paths = &shap.paths;
    let uploaded = Uploaded::new(device, paths, &shap.shares)?;
    let ruled = Ruled::new(device, &shap.shares, &shap.tables)?;
    let (slots, outputs, side) = (paths.slots(), paths.outputs, paths.features + 1);
    let pairs = slots * (slots - 1) / 2;
    let matrix = slots.saturating_mul(slots);
    let each = uploaded.rows(pairs.max(slots), outputs.saturating_mul(matrix))?;
    let each = each.min(rows);
    for (x, out) in x
        .chunks(each * paths.features)
        .zip(out.chunks_mut(each * outputs * side * side))
    {
        let rows = out.len() / (outputs * side * side);
        let keys = uploaded.keys(x, rows)?;
        let sums = uploaded.sums(VALUES, &ruled, &keys, rows, slots)?;
        let values = uploaded.fold(&sums, rows)?;
        let sums = match pairs {
            // A buffer that nothing reads.
            0 => device.empty(1)?,
            _ => uploaded.sums(PAIRS, &ruled, &keys, rows, pairs)?,
        };
        let total = rows * outputs * slots;
        let matrices = device.empty::<f32>(total * slots)?;
        device.launch(
            &fold_pairs_kernel(uploaded.profile),
            grid(total, UNITS as usize)?,
            args![
                &values,
                &sums,
                &matrices,
                rows as u32,
                slots as u32,
                outputs as u32,
                paths.segments as u32,
                total as u32
            ],
        )?;
        let matrices = device.read(&matrices)?;
        out.par_chunks_mut(side * side)
            .zip(matrices.par_chunks(matrix))
            .for_each(|(out, matrix)| {
                for (&feature, from) in paths.used.iter().zip(matrix.chunks_exact(slots)) {
                    let out = &mut out[feature as usize * side..][..side];
                    for (&feature, &value) in paths.used.iter().zip(from) {
                        out[feature as usize] = value;
                    }
                }
            });
    }
    Ok(())
}

pub(super) fn interventional(
    device: &Device,
    shap: &Interventional,
    x: &[f32],
    rows: usize,
    out: &mut [f32],
) -> Result<()> {
    let paths = &shap.paths;
    let uploaded = Uploaded::new(device, paths, &[])?;
    let set_starts = device.upload(&shap.starts)?;
    let sets = device.upload_vec(shap.sets.iter().map(|set| set.passed).collect())?;
    let worths = device.upload_vec(shap.sets.iter().map(|set| set.value).collect())?;
    let orders = device.upload(&shap.orders)?;
    let slots = paths.slots();
    let each = uploaded.rows(slots, paths.outputs * slots)?.min(rows);
    let size = paths.outputs * (paths.features + 1);
    for (x, out) in x
        .chunks(each * paths.features)
        .zip(out.chunks_mut(each * size))
    {
        let rows = out.len() / size;
        let keys = uploaded.keys(x, rows)?;
        let total = uploaded.cells() * rows;
        let sums = device.empty::<f32>(total * slots)?;
        device.launch(
            &against_kernel(uploaded.profile),
            grid(total, UNITS as usize)?,
            args![
                &keys,
                &uploaded.cells,
                &uploaded.starts,
                uploaded.steps.vectors(4),
                &set_starts,
                &sets,
                &worths,
                &orders,
                &sums,
                rows as u32,
                slots as u32,
                total as u32
            ],
        )?;
        uploaded.spread(&uploaded.fold(&sums, rows)?, out)?;
    }
    Ok(())
}

/// The kernels.
pub(super) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let mut all = vec![
        keys_kernel(profile),
        against_kernel(profile),
        fold_kernel(profile),
        fold_pairs_kernel(profile),
    ];
    for rule in &RULES {
        all.push(paths_kernel(VALUES, profile, rule.points()));
        all.push(paths_kernel(PAIRS, profile, rule.points()));
    }
    all
}
