//! The GPU path: a unit takes a chain through time, the loads of the next steps under way while it
//! computes the present ones. Units side by side have channels side by side.
//!
//! Where chains are too few to keep the memory busy, a cube takes a few of them: all of its units
//! load a tile of steps ahead and store the one before, and some walk the chains through shared
//! memory.

use super::{Inputs, RecurrenceGradients};
use crate::device::{Arg, Buffer, Definition, Device, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::grid;
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Backend, Result};

/// Few, so that few chains reach all multiprocessors evenly.
const UNITS: u32 = 32;

/// What changes the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Variant {
    /// Steps whose loads are under way at once.
    ahead: u32,
    /// Whether an initial state is given.
    initial: bool,
    /// Whether a gradient of the last state is given; backward only.
    last: bool,
}

/// What units know of their chains: their number and place, and -0.
#[derive(CubeType)]
struct Chains {
    count: u32,
    time: u32,
    channels: u32,
    nothing: f32,
}

/// Loads the steps `from..from + ahead`; a step beyond the last one leaves the state as it is.
#[cube]
fn load(
    a: &Array<f32>,
    b: &Array<f32>,
    chains: &Chains,
    base: u32,
    from: u32,
    into_a: &mut Array<f32>,
    into_b: &mut Array<f32>,
    #[comptime] v: Variant,
    #[comptime] unroll: bool,
) {
    #[unroll(unroll)]
    for s in 0..v.ahead {
        let mut x = 1.0f32;
        let mut y = chains.nothing;
        if from + s < chains.time {
            let at = base + (from + s) * chains.channels;
            x = a[at as usize];
            y = b[at as usize];
        }
        into_a[s as usize] = x;
        into_b[s as usize] = y;
    }
}

#[cube]
fn forward_steps(
    ieee: &Ieee,
    a: &Array<f32>,
    b: &Array<f32>,
    initial: &Array<f32>,
    states: &mut Array<f32>,
    last: &mut Array<f32>,
    chains: &Chains,
    #[comptime] v: Variant,
    #[comptime] unroll: bool,
) {
    let chain = CUBE_POS as u32 * UNITS + UNIT_POS;
    if chain < chains.count {
        let member = chain / chains.channels;
        let base = member * (chains.time - 1u32) * chains.channels + chain;
        let mut h = ieee.neg(chains.nothing);
        if comptime!(v.initial) {
            h = initial[chain as usize];
        }
        let size = comptime!(v.ahead as usize);
        let mut next_a = Array::<f32>::new(size);
        let mut next_b = Array::<f32>::new(size);
        let mut this_a = Array::<f32>::new(size);
        let mut this_b = Array::<f32>::new(size);
        load(
            a,
            b,
            chains,
            base,
            0u32,
            &mut next_a,
            &mut next_b,
            v,
            unroll,
        );
        for block in 0..(chains.time + (v.ahead - 1u32)) / v.ahead {
            let from = block * v.ahead;
            #[unroll(unroll)]
            for s in 0..v.ahead {
                this_a[s as usize] = next_a[s as usize];
                this_b[s as usize] = next_b[s as usize];
            }
            let ahead = from + v.ahead;
            load(
                a,
                b,
                chains,
                base,
                ahead,
                &mut next_a,
                &mut next_b,
                v,
                unroll,
            );
            #[unroll(unroll)]
            for s in 0..v.ahead {
                h = ieee.fma(this_a[s as usize], h, this_b[s as usize]);
                if from + s < chains.time {
                    let at = base + (from + s) * chains.channels;
                    states[at as usize] = ieee.canonical(h);
                }
            }
        }
        last[chain as usize] = ieee.canonical(h);
    }
}

/// Loads the steps `from, from - 1, ...` before step `from`, which is not among them.
#[cube]
fn load_back(
    a: &Array<f32>,
    states: &Array<f32>,
    gradient: &Array<f32>,
    initial: &Array<f32>,
    chains: &Chains,
    chain: u32,
    base: u32,
    done: u32,
    into: &mut Array<f32>,
    #[comptime] v: Variant,
    #[comptime] unroll: bool,
) {
    #[unroll(unroll)]
    for s in 0..v.ahead {
        let mut x = 1.0f32;
        let mut g = chains.nothing;
        let mut h = ieee_zero(chains);
        if done + s < chains.time {
            let t = chains.time - 1u32 - done - s;
            let at = base + t * chains.channels;
            x = a[at as usize];
            g = gradient[at as usize];
            if t > 0u32 {
                h = states[(at - chains.channels) as usize];
            } else if comptime!(v.initial) {
                h = initial[chain as usize];
            }
        }
        into[s as usize] = x;
        into[(v.ahead + s) as usize] = g;
        into[(2u32 * v.ahead + s) as usize] = h;
    }
}

/// +0, which no compiler knows.
#[cube]
fn ieee_zero(chains: &Chains) -> f32 {
    prim::from_bits(prim::bits(chains.nothing) ^ 0x8000_0000u32)
}

#[cube]
fn backward_steps(
    ieee: &Ieee,
    a: &Array<f32>,
    states: &Array<f32>,
    gradient: &Array<f32>,
    initial: &Array<f32>,
    gradient_last: &Array<f32>,
    da: &mut Array<f32>,
    db: &mut Array<f32>,
    first: &mut Array<f32>,
    chains: &Chains,
    #[comptime] v: Variant,
    #[comptime] unroll: bool,
) {
    let chain = CUBE_POS as u32 * UNITS + UNIT_POS;
    if chain < chains.count {
        let member = chain / chains.channels;
        let base = member * (chains.time - 1u32) * chains.channels + chain;
        let mut r = ieee_zero(chains);
        if comptime!(v.last) {
            r = gradient_last[chain as usize];
        }
        let size = comptime!(3 * v.ahead as usize);
        let mut next = Array::<f32>::new(size);
        let mut this = Array::<f32>::new(size);
        load_back(
            a, states, gradient, initial, chains, chain, base, 0u32, &mut next, v, unroll,
        );
        for block in 0..(chains.time + (v.ahead - 1u32)) / v.ahead {
            let done = block * v.ahead;
            #[unroll(unroll)]
            for s in 0..3u32 * v.ahead {
                this[s as usize] = next[s as usize];
            }
            let more = done + v.ahead;
            load_back(
                a, states, gradient, initial, chains, chain, base, more, &mut next, v, unroll,
            );
            #[unroll(unroll)]
            for s in 0..v.ahead {
                let g = ieee.add(r, this[(v.ahead + s) as usize]);
                r = ieee.mul(this[s as usize], g);
                if done + s < chains.time {
                    let t = chains.time - 1u32 - done - s;
                    let at = (base + t * chains.channels) as usize;
                    da[at] = ieee.canonical(ieee.mul(g, this[(2u32 * v.ahead + s) as usize]));
                    db[at] = ieee.canonical(g);
                }
            }
        }
        first[chain as usize] = ieee.canonical(r);
    }
}

fn chains(d: &mut Definition) -> ChainsExpand {
    ChainsExpand {
        count: d.scalar(),
        time: d.scalar(),
        channels: d.scalar(),
        nothing: d.scalar(),
    }
}

fn forward_kernel(profile: FloatProfile, way: Way, initial: bool) -> Kernel {
    let unroll = profile.direct();
    let units = CubeDim::new_1d(way.units());
    let variant = (way, initial);
    Kernel::new("recurrence", profile, variant, units, move |d| {
        let ieee = d.ieee();
        let (a, b) = (d.input::<f32>(), d.input::<f32>());
        // What a variant doesn't use is not among its arguments.
        let first = if initial { d.input::<f32>() } else { a.clone() };
        let (states, last) = (d.output::<f32>(), d.output::<f32>());
        let chains = chains(d);
        let scope = d.scope();
        match way {
            Way::Ahead(ahead) => {
                let v = Variant {
                    ahead,
                    initial,
                    last: false,
                };
                forward_steps::expand(scope, ieee, a, b, first, states, last, chains, v, unroll);
            }
            Way::Tiles(tile) => {
                let v = Tiled {
                    tile,
                    initial,
                    last: false,
                };
                forward_tiles::expand(scope, ieee, a, b, first, states, last, chains, v, unroll);
            }
        }
    })
}

fn backward_kernel(profile: FloatProfile, way: Way, initial: bool, last: bool) -> Kernel {
    let unroll = profile.direct();
    let units = CubeDim::new_1d(way.units());
    let variant = (way, initial, last);
    Kernel::new("recurrence_back", profile, variant, units, move |d| {
        let ieee = d.ieee();
        let (a, states, gradient) = (d.input::<f32>(), d.input::<f32>(), d.input::<f32>());
        let before = if initial { d.input::<f32>() } else { a.clone() };
        let end = if last { d.input::<f32>() } else { a.clone() };
        let [da, db, first] = std::array::from_fn(|_| d.output::<f32>());
        let chains = chains(d);
        let scope = d.scope();
        match way {
            Way::Ahead(ahead) => {
                let v = Variant {
                    ahead,
                    initial,
                    last,
                };
                backward_steps::expand(
                    scope, ieee, a, states, gradient, before, end, da, db, first, chains, v, unroll,
                );
            }
            Way::Tiles(tile) => {
                let v = Tiled {
                    tile,
                    initial,
                    last,
                };
                backward_tiles::expand(
                    scope, ieee, a, states, gradient, before, end, da, db, first, chains, v, unroll,
                );
            }
        }
    })
}

/// What changes the code where a cube takes chains through tiles of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tiled {
    tile: Tile,
    initial: bool,
    last: bool,
}

/// Chains and steps of a tile, and units that load it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    pub(super) chains: u32,
    pub(super) steps: u32,
    pub(super) units: u32,
}

impl Tile {
    const fn places(self) -> usize {
        (self.chains * self.steps) as usize
    }

    /// Places of one unit.
    const fn own(self) -> u32 {
        self.chains * self.steps / self.units
    }
}

/// Steps that a walking unit takes from shared memory at once.
const STRIDE: u32 = 8;

/// Where a unit's place is, in the steps from `done` on.
#[cube]
fn step_of(i: u32, #[comptime] tile: Tile) -> u32 {
    (i * tile.units + UNIT_POS) / tile.chains
}

/// The words of the tile that begins with step `from`, as [`load`].
#[cube]
fn load_tile(
    a: &Array<f32>,
    b: &Array<f32>,
    chains: &Chains,
    base: u32,
    live: bool,
    from: u32,
    into_a: &mut Array<f32>,
    into_b: &mut Array<f32>,
    #[comptime] tile: Tile,
    #[comptime] unroll: bool,
) {
    #[unroll(unroll)]
    for i in 0..comptime!(tile.own()) {
        let t = from + step_of(i, tile);
        let mut x = 1.0f32;
        let mut y = chains.nothing;
        if live && t < chains.time {
            let at = (base + t * chains.channels) as usize;
            x = a[at];
            y = b[at];
        }
        into_a[i as usize] = x;
        into_b[i as usize] = y;
    }
}

/// The chain of all places of a unit, and the chain that it walks if it does.
#[derive(CubeType)]
struct Group {
    /// Index of the first step of the chain of this unit's places.
    base: u32,
    chain: u32,
    live: bool,
}

#[cube]
fn group(chains: &Chains, #[comptime] tile: Tile) -> Group {
    let groups = (chains.channels + comptime!(tile.chains - 1)) / tile.chains;
    let cube = CUBE_POS as u32;
    let member = cube / groups;
    let channel = (cube - member * groups) * tile.chains + UNIT_POS % tile.chains;
    let chain = member * chains.channels + channel;
    Group {
        base: member * chains.time * chains.channels + channel,
        chain,
        live: channel < chains.channels && chain < chains.count,
    }
}

#[cube]
fn forward_tiles(
    ieee: &Ieee,
    a: &Array<f32>,
    b: &Array<f32>,
    initial: &Array<f32>,
    states: &mut Array<f32>,
    last: &mut Array<f32>,
    chains: &Chains,
    #[comptime] v: Tiled,
    #[comptime] unroll: bool,
) {
    let tile = comptime!(v.tile);
    let own = comptime!(tile.own());
    let p = group(chains, tile);
    let walks = UNIT_POS < tile.chains;
    let mut h = ieee_zero(chains);
    if comptime!(v.initial) {
        if p.live && walks {
            h = initial[p.chain as usize];
        }
    }
    let mut shared_a = SharedMemory::<f32>::new(comptime!(tile.places()));
    let mut shared_b = SharedMemory::<f32>::new(comptime!(tile.places()));
    let mut next_a = Array::<f32>::new(comptime!(own as usize));
    let mut next_b = Array::<f32>::new(comptime!(own as usize));
    load_tile(
        a,
        b,
        chains,
        p.base,
        p.live,
        0u32,
        &mut next_a,
        &mut next_b,
        tile,
        unroll,
    );
    for k in 0..(chains.time + comptime!(tile.steps - 1)) / tile.steps {
        let from = k * tile.steps;
        #[unroll(unroll)]
        for i in 0..own {
            let at = (i * tile.units + UNIT_POS) as usize;
            shared_a[at] = next_a[i as usize];
            shared_b[at] = next_b[i as usize];
        }
        sync_cube();
        let ahead = from + tile.steps;
        load_tile(
            a,
            b,
            chains,
            p.base,
            p.live,
            ahead,
            &mut next_a,
            &mut next_b,
            tile,
            unroll,
        );
        if walks {
            let mut x = Array::<f32>::new(comptime!(STRIDE as usize));
            let mut y = Array::<f32>::new(comptime!(STRIDE as usize));
            let mut this_x = Array::<f32>::new(comptime!(STRIDE as usize));
            let mut this_y = Array::<f32>::new(comptime!(STRIDE as usize));
            walk_load(&shared_a, &shared_b, 0u32, &mut x, &mut y, tile);
            for j in 0..comptime!(tile.steps / STRIDE) {
                let begin = j * STRIDE;
                #[unroll]
                for s in 0..STRIDE {
                    this_x[s as usize] = x[s as usize];
                    this_y[s as usize] = y[s as usize];
                }
                // The last turn loads what it won't use.
                let more = begin + STRIDE;
                let more = prim::select_u32(more < tile.steps, more, 0u32);
                walk_load(&shared_a, &shared_b, more, &mut x, &mut y, tile);
                #[unroll]
                for s in 0..STRIDE {
                    h = ieee.fma(this_x[s as usize], h, this_y[s as usize]);
                    shared_b[((begin + s) * tile.chains + UNIT_POS) as usize] = h;
                }
            }
        }
        sync_cube();
        // Each unit stores the places that it overwrites next.
        #[unroll(unroll)]
        for i in 0..own {
            let t = from + step_of(i, tile);
            if p.live && t < chains.time {
                let h = shared_b[(i * tile.units + UNIT_POS) as usize];
                states[(p.base + t * chains.channels) as usize] = ieee.canonical(h);
            }
        }
    }
    if p.live && walks {
        last[p.chain as usize] = ieee.canonical(h);
    }
}

/// A walking unit's words of the steps from `from` on.
#[cube]
fn walk_load(
    shared_x: &SharedMemory<f32>,
    shared_y: &SharedMemory<f32>,
    from: u32,
    x: &mut Array<f32>,
    y: &mut Array<f32>,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for s in 0..STRIDE {
        let at = ((from + s) * tile.chains + UNIT_POS) as usize;
        x[s as usize] = shared_x[at];
        y[s as usize] = shared_y[at];
    }
}

/// The words of the tile that begins `done` steps before the end, as [`load_back`].
#[cube]
fn load_tile_back(
    a: &Array<f32>,
    states: &Array<f32>,
    gradient: &Array<f32>,
    initial: &Array<f32>,
    chains: &Chains,
    p: &Group,
    done: u32,
    into: &mut Array<f32>,
    #[comptime] v: Tiled,
    #[comptime] unroll: bool,
) {
    let own = comptime!(v.tile.own());
    #[unroll(unroll)]
    for i in 0..own {
        let past = done + step_of(i, comptime!(v.tile));
        let mut x = 1.0f32;
        let mut g = chains.nothing;
        let mut h = ieee_zero(chains);
        if p.live && past < chains.time {
            let t = chains.time - 1u32 - past;
            let at = p.base + t * chains.channels;
            x = a[at as usize];
            g = gradient[at as usize];
            if t > 0u32 {
                h = states[(at - chains.channels) as usize];
            } else if comptime!(v.initial) {
                h = initial[p.chain as usize];
            }
        }
        into[i as usize] = x;
        into[(own + i) as usize] = g;
        into[(2u32 * own + i) as usize] = h;
    }
}

#[cube]
fn backward_tiles(
    ieee: &Ieee,
    a: &Array<f32>,
    states: &Array<f32>,
    gradient: &Array<f32>,
    initial: &Array<f32>,
    gradient_last: &Array<f32>,
    da: &mut Array<f32>,
    db: &mut Array<f32>,
    first: &mut Array<f32>,
    chains: &Chains,
    #[comptime] v: Tiled,
    #[comptime] unroll: bool,
) {
    let tile = comptime!(v.tile);
    let own = comptime!(tile.own());
    let p = group(chains, tile);
    let walks = UNIT_POS < tile.chains;
    let mut r = ieee_zero(chains);
    if comptime!(v.last) {
        if p.live && walks {
            r = gradient_last[p.chain as usize];
        }
    }
    let mut shared_a = SharedMemory::<f32>::new(comptime!(tile.places()));
    let mut shared_g = SharedMemory::<f32>::new(comptime!(tile.places()));
    let mut next = Array::<f32>::new(comptime!(3 * own as usize));
    let mut before = Array::<f32>::new(comptime!(own as usize));
    load_tile_back(
        a, states, gradient, initial, chains, &p, 0u32, &mut next, v, unroll,
    );
    for k in 0..(chains.time + comptime!(tile.steps - 1)) / tile.steps {
        let done = k * tile.steps;
        #[unroll(unroll)]
        for i in 0..own {
            let at = (i * tile.units + UNIT_POS) as usize;
            shared_a[at] = next[i as usize];
            shared_g[at] = next[(own + i) as usize];
            before[i as usize] = next[(2u32 * own + i) as usize];
        }
        sync_cube();
        let more = done + tile.steps;
        load_tile_back(
            a, states, gradient, initial, chains, &p, more, &mut next, v, unroll,
        );
        if walks {
            let mut x = Array::<f32>::new(comptime!(STRIDE as usize));
            let mut y = Array::<f32>::new(comptime!(STRIDE as usize));
            let mut this_x = Array::<f32>::new(comptime!(STRIDE as usize));
            let mut this_y = Array::<f32>::new(comptime!(STRIDE as usize));
            walk_load(&shared_a, &shared_g, 0u32, &mut x, &mut y, tile);
            for j in 0..comptime!(tile.steps / STRIDE) {
                let begin = j * STRIDE;
                #[unroll]
                for s in 0..STRIDE {
                    this_x[s as usize] = x[s as usize];
                    this_y[s as usize] = y[s as usize];
                }
                let more = begin + STRIDE;
                let more = prim::select_u32(more < tile.steps, more, 0u32);
                walk_load(&shared_a, &shared_g, more, &mut x, &mut y, tile);
                #[unroll]
                for s in 0..STRIDE {
                    let g = ieee.add(r, this_y[s as usize]);
                    r = ieee.mul(this_x[s as usize], g);
                    shared_g[((begin + s) * tile.chains + UNIT_POS) as usize] = g;
                }
            }
        }
        sync_cube();
        #[unroll(unroll)]
        for i in 0..own {
            let past = done + step_of(i, tile);
            if p.live && past < chains.time {
                let t = chains.time - 1u32 - past;
                let at = (p.base + t * chains.channels) as usize;
                let g = shared_g[(i * tile.units + UNIT_POS) as usize];
                da[at] = ieee.canonical(ieee.mul(g, before[i as usize]));
                db[at] = ieee.canonical(g);
            }
        }
    }
    if p.live && walks {
        first[p.chain as usize] = ieee.canonical(r);
    }
}

/// How chains are taken through time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Way {
    /// A unit to a chain, so many steps ahead.
    Ahead(u32),
    Tiles(Tile),
}

impl Way {
    /// The fewer the chains, the more of each must be under way.
    fn choose(device: &Device, [batch, time, channels]: [usize; 3], back: bool) -> Self {
        let chains = batch * channels;
        // Tiles take more shared memory than others promise.
        let roomy = matches!(device.backend(), Backend::Cuda(_) | Backend::Hip(_));
        let most = if back { 20_480 } else { 65_536 };
        if roomy && chains <= most && time >= 256 {
            let (chains, steps) = match (chains, back) {
                (0..=4096, false) => (16, 256),
                (0..=4096, true) => (16, 128),
                _ => (32, 32),
            };
            return Self::Tiles(Tile {
                chains,
                steps,
                units: 256,
            });
        }
        match chains {
            0..=49_151 => Self::Ahead(16),
            _ => Self::Ahead(8),
        }
    }
}

/// What can be chosen, and some small tiles.
#[cfg(test)]
pub(super) const WAYS: [Way; 7] = [
    Way::Ahead(8),
    Way::Ahead(16),
    Way::Ahead(32),
    Way::Tiles(Tile {
        chains: 4,
        steps: 8,
        units: 32,
    }),
    Way::Tiles(Tile {
        chains: 16,
        steps: 128,
        units: 256,
    }),
    Way::Tiles(Tile {
        chains: 32,
        steps: 32,
        units: 256,
    }),
    Way::Tiles(Tile {
        chains: 16,
        steps: 256,
        units: 256,
    }),
];

impl Way {
    fn units(self) -> u32 {
        match self {
            Self::Ahead(_) => UNITS,
            Self::Tiles(tile) => tile.units,
        }
    }

    fn cubes(self, [batch, _, channels]: [usize; 3]) -> Result<(u32, u32, u32)> {
        match self {
            Self::Ahead(_) => grid(batch * channels, UNITS as usize),
            Self::Tiles(tile) => grid(batch * channels.div_ceil(tile.chains as usize), 1),
        }
    }
}

pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let tile = Tile {
        chains: 16,
        steps: 128,
        units: 256,
    };
    [
        (Way::Ahead(8), true),
        (Way::Ahead(16), false),
        (Way::Tiles(tile), true),
        (Way::Tiles(tile), false),
    ]
    .into_iter()
    .flat_map(|(way, given)| {
        [
            forward_kernel(profile, way, given),
            backward_kernel(profile, way, given, given),
        ]
    })
    .collect()
}

fn scalars([batch, time, channels]: [usize; 3]) -> [Arg<'static>; 4] {
    [
        Arg::from((batch * channels) as u32),
        Arg::from(time as u32),
        Arg::from(channels as u32),
        Arg::from(-0.0f32),
    ]
}

pub(super) fn forward(
    a: &Buffer<f32>,
    b: &Buffer<f32>,
    initial: Option<&Buffer<f32>>,
    shape: [usize; 3],
    (states, last): (&mut Buffer<f32>, &mut Buffer<f32>),
    way: Option<Way>,
) -> Result<()> {
    let device = a.device();
    let way = way.unwrap_or_else(|| Way::choose(device, shape, false));
    let mut arguments = vec![Arg::from(a), Arg::from(b)];
    arguments.extend(initial.map(Arg::from));
    arguments.extend([Arg::from(states), Arg::from(last)]);
    arguments.extend(scalars(shape));
    let kernel = forward_kernel(device.profile()?, way, initial.is_some());
    device.launch(&kernel, way.cubes(shape)?, &arguments)
}

pub(super) fn backward(
    inputs: &Inputs<'_>,
    shape: [usize; 3],
    out: &mut RecurrenceGradients,
    way: Option<Way>,
) -> Result<()> {
    let device = inputs.a.device();
    let way = way.unwrap_or_else(|| Way::choose(device, shape, true));
    let mut arguments = Vec::from([inputs.a, inputs.states, inputs.gradient].map(Arg::from));
    arguments.extend(inputs.initial.map(Arg::from));
    arguments.extend(inputs.gradient_last.map(Arg::from));
    arguments.extend([&mut out.a, &mut out.b, &mut out.initial].map(Arg::from));
    arguments.extend(scalars(shape));
    let [initial, last] = [inputs.initial, inputs.gradient_last].map(|x| x.is_some());
    let kernel = backward_kernel(device.profile()?, way, initial, last);
    device.launch(&kernel, way.cubes(shape)?, &arguments)
}
