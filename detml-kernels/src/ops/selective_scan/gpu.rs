//! The GPU path: a cube takes a panel of 32 channels of one member through time, a unit some fours
//! of a channel's states.
//!
//! Some steps at a time, what all states of a channel share is computed once and staged with `b`
//! and `c` in shared memory; units advance their states and leave the sums of their fours there,
//! and fold them. Backward, a unit computes its states again: from a checkpoint to the beginning of
//! each block of steps, and those of a block in registers. States and their gradients go through
//! shared memory to the units that sum them over the panel's channels.

// Branches on compile-time values may differ in nothing else.
#![allow(clippy::if_same_then_else)]

use super::{
    CHANNELS, Has, Parts, STEPS, Scan, ScanGradients, Scanned, Shape, gate_slope, length_slope,
    step_length,
};
use crate::device::{Arg, Buffer, Definition, Device, Kernel, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::math::{exp_near, exp_some_nan, silu};
use crate::ops::grid;
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Backend, Error, Result};

const LANES: u32 = CHANNELS as u32;
const CHUNK: u32 = STEPS as u32;
/// Words from a state's lanes to the next one's, so that units that read a lane of different states
/// don't meet in a bank.
const PITCH: u32 = LANES + 1;

/// What changes the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Variant {
    states: u32,
    /// Steps of a block.
    block: u32,
    has: Has,
    /// Forward: whether checkpoints are kept. Backward: whether a gradient of the last states is
    /// given.
    extra: bool,
}

impl Variant {
    /// Fours of states.
    const fn fours(self) -> u32 {
        if self.states == 0 {
            1
        } else {
            self.states.div_ceil(4)
        }
    }

    /// Units of a channel.
    const fn across(self) -> u32 {
        if self.fours() < 8 { self.fours() } else { 8 }
    }

    /// Fours of a unit.
    const fn each(self) -> u32 {
        self.fours().div_ceil(self.across())
    }

    const fn units(self) -> u32 {
        LANES * self.across()
    }

    /// Places for the states of all units.
    const fn places(self) -> u32 {
        self.across() * self.each() * 4
    }

    /// States of a unit.
    const fn own(self) -> u32 {
        self.each() * 4
    }

    /// Whether every place holds a state.
    const fn full(self) -> bool {
        self.places() == self.states
    }

    /// Words of shared memory.
    const fn forward_words(self) -> u32 {
        self.block * (2 * LANES + 2 * self.places() + self.places() / 4 * LANES)
    }

    const fn backward_words(self) -> u32 {
        self.block
            * (5 * LANES
                + 2 * self.places()
                + 3 * self.places() / 4 * LANES
                + 2 * self.places() * PITCH)
    }
}

#[derive(CubeType)]
struct Input {
    u: Array<f32>,
    delta: Array<f32>,
    a: Array<f32>,
    b: Array<f32>,
    c: Array<f32>,
    d: Array<f32>,
    bias: Array<f32>,
    z: Array<f32>,
    lengths: Array<u32>,
    batch: u32,
    time: u32,
    channels: u32,
    chunks: u32,
    /// +0, which no compiler knows.
    zero: f32,
}

/// What a unit is.
#[derive(CubeType)]
struct Spot {
    member: u32,
    /// Its channel's place in the panel, its channel, and that or the last one.
    lane: u32,
    channel: u32,
    own: u32,
    /// Its place among the units of its channel.
    part: u32,
    /// Steps of the member.
    steps: u32,
}

#[cube]
fn spot(x: &Input, cube: u32, #[comptime] v: Variant) -> Spot {
    let panels = (x.channels + (LANES - 1u32)) / LANES;
    let member = cube / panels;
    let lane = UNIT_POS % LANES;
    let channel = cube % panels * LANES + lane;
    let mut steps = x.time;
    if comptime!(v.has.lengths) {
        let length = x.lengths[member as usize];
        steps = prim::select_u32(length < steps, length, steps);
    }
    Spot {
        member,
        lane,
        channel,
        own: prim::select_u32(channel < x.channels, channel, x.channels - 1u32),
        part: UNIT_POS / LANES,
        steps,
    }
}

/// The state of a unit's `i`-th place.
#[cube]
fn state_of(p: &Spot, i: u32, #[comptime] v: Variant) -> u32 {
    (i / 4u32 * comptime!(v.across()) + p.part) * 4u32 + i % 4u32
}

/// The place of a step of this channel.
#[cube]
fn place(x: &Input, p: &Spot, t: u32) -> u32 {
    (p.member * x.time + t) * x.channels + p.own
}

/// `delta` with its bias.
#[cube]
fn with_bias(ieee: &Ieee, x: &Input, p: &Spot, delta: f32, #[comptime] v: Variant) -> f32 {
    let mut y = delta;
    if comptime!(v.has.bias) {
        y = ieee.add(y, x.bias[p.own as usize]);
    }
    y
}

/// What a unit stages of the steps of a block, on its way from memory.
#[derive(CubeType)]
struct Ahead {
    delta: Array<f32>,
    u: Array<f32>,
    z: Array<f32>,
    b: Array<f32>,
    c: Array<f32>,
}

impl Variant {
    /// Steps of a block that a unit stages what all states share of.
    const fn turns(self) -> u32 {
        self.block.div_ceil(self.across())
    }

    /// Numbers of `b` that a unit stages.
    const fn items(self) -> u32 {
        (self.block * self.states).div_ceil(self.units())
    }
}

#[cube]
fn ahead(#[comptime] v: Variant) -> Ahead {
    let turns = comptime!(v.turns() as usize);
    let items = comptime!(v.items().max(1) as usize);
    Ahead {
        delta: Array::<f32>::new(turns),
        u: Array::<f32>::new(turns),
        z: Array::<f32>::new(turns),
        b: Array::<f32>::new(items),
        c: Array::<f32>::new(items),
    }
}

/// Loads what [`put`] stages of the steps `from..from + block`, and `z` if `forward`.
#[cube]
fn fetch(
    x: &Input,
    p: &Spot,
    from: u32,
    to: &mut Ahead,
    #[comptime] v: Variant,
    #[comptime] with_c: bool,
    #[comptime] forward: bool,
    #[comptime] unroll: bool,
) {
    #[unroll(unroll)]
    for j in 0..comptime!(v.turns()) {
        let s = j * comptime!(v.across()) + p.part;
        if s < v.block && from + s < p.steps {
            let at = place(x, p, from + s) as usize;
            to.delta[j as usize] = x.delta[at];
            to.u[j as usize] = x.u[at];
            if comptime!(forward && v.has.z) {
                to.z[j as usize] = x.z[at];
            }
        }
    }
    if comptime!(v.states > 0) {
        #[unroll(unroll)]
        for j in 0..comptime!(v.items()) {
            let item = j * comptime!(v.units()) + UNIT_POS;
            let s = item / comptime!(v.states.max(1));
            let n = item % comptime!(v.states.max(1));
            if s < v.block && from + s < p.steps {
                let at = ((p.member * x.time + from + s) * comptime!(v.states) + n) as usize;
                to.b[j as usize] = x.b[at];
                if comptime!(with_c) {
                    to.c[j as usize] = x.c[at];
                }
            }
        }
    }
}

/// Stages what the steps `from..from + block` need in every state: `dt`, `v`, `b`, `c`.
#[cube]
fn put(
    ieee: &Ieee,
    x: &Input,
    p: &Spot,
    from: u32,
    ahead: &Ahead,
    dt: &mut SharedMemory<f32>,
    vs: &mut SharedMemory<f32>,
    b: &mut SharedMemory<f32>,
    c: &mut SharedMemory<f32>,
    #[comptime] v: Variant,
    #[comptime] with_c: bool,
    #[comptime] unroll: bool,
) {
    #[unroll(unroll)]
    for j in 0..comptime!(v.turns()) {
        let s = j * comptime!(v.across()) + p.part;
        if s < v.block && from + s < p.steps {
            let delta = with_bias(ieee, x, p, ahead.delta[j as usize], v);
            let length = step_length(ieee, delta, v.has.softplus);
            let at = (s * LANES + p.lane) as usize;
            dt[at] = length;
            vs[at] = ieee.mul(length, ahead.u[j as usize]);
        }
    }
    if comptime!(v.states > 0) {
        #[unroll(unroll)]
        for j in 0..comptime!(v.items()) {
            let item = j * comptime!(v.units()) + UNIT_POS;
            let s = item / comptime!(v.states.max(1));
            let n = item % comptime!(v.states.max(1));
            if s < v.block && from + s < p.steps {
                let to = (s * comptime!(v.places()) + n) as usize;
                b[to] = ahead.b[j as usize];
                if comptime!(with_c) {
                    c[to] = ahead.c[j as usize];
                }
            }
        }
    }
}

/// [`fetch`] and [`put`].
#[cube]
fn stage(
    ieee: &Ieee,
    x: &Input,
    p: &Spot,
    from: u32,
    dt: &mut SharedMemory<f32>,
    vs: &mut SharedMemory<f32>,
    b: &mut SharedMemory<f32>,
    c: &mut SharedMemory<f32>,
    #[comptime] v: Variant,
    #[comptime] with_c: bool,
    #[comptime] unroll: bool,
) {
    let mut next = ahead(v);
    fetch(x, p, from, &mut next, v, with_c, false, unroll);
    put(ieee, x, p, from, &next, dt, vs, b, c, v, with_c, unroll);
}

/// The largest magnitude of a unit's rates; NaN if there is one.
#[cube]
fn largest(ieee: &Ieee, rate: &Array<f32>, #[comptime] v: Variant) -> f32 {
    let mut most = 0u32;
    for i in 0..comptime!(v.own()) {
        let bits = prim::bits(ieee.abs(rate[i as usize]));
        most = prim::select_u32(most < bits, bits, most);
    }
    prim::from_bits(most)
}

/// What a unit's states decay by in a step: the exponentials of `length` times their rates, of
/// which none has a greater magnitude than `most`.
#[cube]
fn decays(
    ieee: &Ieee,
    length: f32,
    rate: &Array<f32>,
    most: f32,
    into: &mut Array<f32>,
    at: u32,
    #[comptime] v: Variant,
    #[comptime] unroll: bool,
) {
    #[unroll(unroll)]
    for i in 0..comptime!(v.own()) {
        into[(at + i) as usize] = ieee.mul(length, rate[i as usize]);
    }
    if comptime!(unroll) {
        // Rounding keeps the order of products.
        if ieee.le(ieee.mul(ieee.abs(length), most), 87.0f32) {
            #[unroll]
            for i in 0..comptime!(v.own()) {
                into[(at + i) as usize] = exp_near(ieee, into[(at + i) as usize]);
            }
        } else {
            #[unroll]
            for i in 0..comptime!(v.own()) {
                into[(at + i) as usize] = exp_some_nan(ieee, into[(at + i) as usize]);
            }
        }
    } else {
        for i in 0..comptime!(v.own()) {
            into[(at + i) as usize] = exp_some_nan(ieee, into[(at + i) as usize]);
        }
    }
}

/// A state after a step.
#[cube]
fn next_state(ieee: &Ieee, decay: f32, h: f32, v: f32, b: f32) -> f32 {
    ieee.fma(decay, h, ieee.mul(v, b))
}

/// A step of a chain over states; places without a state take no part.
#[cube]
fn chain(ieee: &Ieee, a: f32, b: f32, s: f32, state: u32, #[comptime] v: Variant) -> f32 {
    let next = ieee.fma(a, b, s);
    if comptime!(v.full()) {
        next
    } else {
        prim::select(state < v.states, next, s)
    }
}

/// The fours' sums of a step, folded.
#[cube]
fn fold_fours(
    ieee: &Ieee,
    sums: &SharedMemory<f32>,
    s: u32,
    lane: u32,
    #[comptime] v: Variant,
) -> f32 {
    let at = s * comptime!(v.places() / 4 * LANES) + lane;
    let mut total = sums[at as usize];
    for q in 1..comptime!(v.fours()) {
        total = ieee.add(total, sums[(at + q * LANES) as usize]);
    }
    total
}

/// This unit's rates; those of places without a state are any.
#[cube]
fn rates(x: &Input, p: &Spot, into: &mut Array<f32>, #[comptime] v: Variant) {
    for i in 0..comptime!(v.own()) {
        let n = state_of(p, i, v);
        let mut rate = 0.0f32;
        if n < v.states {
            rate = x.a[(p.own * v.states + n) as usize];
        }
        into[i as usize] = rate;
    }
}

/// The place of a state in buffers of states.
#[cube]
fn state_place(x: &Input, p: &Spot, n: u32, #[comptime] v: Variant) -> u32 {
    (p.member * x.channels + p.own) * v.states + n
}

#[cube]
fn forward_steps(
    ieee: &Ieee,
    x: &Input,
    initial: &Array<f32>,
    out: &mut Array<f32>,
    last: &mut Array<f32>,
    checkpoints: &mut Array<f32>,
    #[comptime] v: Variant,
    #[comptime] unroll: bool,
) {
    let cube = CUBE_POS as u32;
    if cube < x.batch * ((x.channels + (LANES - 1u32)) / LANES) {
        let p = spot(x, cube, v);
        let live = p.channel < x.channels;
        let own = comptime!(v.own());
        let mut dt = SharedMemory::<f32>::new(comptime!((v.block * LANES) as usize));
        let mut vs = SharedMemory::<f32>::new(comptime!((v.block * LANES) as usize));
        let mut b = SharedMemory::<f32>::new(comptime!((v.block * v.places()) as usize));
        let mut c = SharedMemory::<f32>::new(comptime!((v.block * v.places()) as usize));
        let mut sums =
            SharedMemory::<f32>::new(comptime!((v.block * v.places() / 4 * LANES) as usize));
        let mut h = Array::<f32>::new(comptime!(own as usize));
        let mut rate = Array::<f32>::new(comptime!(own as usize));
        rates(x, &p, &mut rate, v);
        for i in 0..own {
            let n = state_of(&p, i, v);
            let mut value = x.zero;
            if comptime!(v.has.initial) {
                if n < v.states {
                    value = initial[state_place(x, &p, n, v) as usize];
                }
            }
            h[i as usize] = value;
        }

        let most = largest(ieee, &rate, v);
        let mut decay = Array::<f32>::new(comptime!(own as usize));
        let mut this_u = Array::<f32>::new(comptime!(v.turns() as usize));
        let mut this_z = Array::<f32>::new(comptime!(v.turns() as usize));
        let mut next = ahead(v);
        fetch(x, &p, 0u32, &mut next, v, true, true, unroll);
        for k in 0..(p.steps + (v.block - 1u32)) / v.block {
            let from = k * v.block;
            if comptime!(v.extra) {
                if live && from % CHUNK == 0u32 {
                    let base = (p.member * x.chunks + from / CHUNK) * v.states;
                    for i in 0..own {
                        let n = state_of(&p, i, v);
                        if n < v.states {
                            let to = (base + n) * x.channels + p.channel;
                            checkpoints[to as usize] = ieee.canonical(h[i as usize]);
                        }
                    }
                }
            }
            put(
                ieee, x, &p, from, &next, &mut dt, &mut vs, &mut b, &mut c, v, true, unroll,
            );
            #[unroll(unroll)]
            for j in 0..comptime!(v.turns()) {
                this_u[j as usize] = next.u[j as usize];
                if comptime!(v.has.z) {
                    this_z[j as usize] = next.z[j as usize];
                }
            }
            fetch(x, &p, from + v.block, &mut next, v, true, true, unroll);
            sync_cube();
            #[unroll(unroll)]
            for s in 0..v.block {
                if from + s < p.steps {
                    let length = dt[(s * LANES + p.lane) as usize];
                    let input = vs[(s * LANES + p.lane) as usize];
                    decays(ieee, length, &rate, most, &mut decay, 0u32, v, unroll);
                    #[unroll(unroll)]
                    for q in 0..comptime!(v.each()) {
                        let mut sum = x.zero;
                        #[unroll(unroll)]
                        for l in 0..4u32 {
                            let i = q * 4u32 + l;
                            let n = state_of(&p, i, v);
                            let at = (s * comptime!(v.places()) + n) as usize;
                            let new =
                                next_state(ieee, decay[i as usize], h[i as usize], input, b[at]);
                            h[i as usize] = new;
                            sum = chain(ieee, c[at], new, sum, n, v);
                        }
                        let four = q * comptime!(v.across()) + p.part;
                        let to = (s * comptime!(v.places() / 4) + four) * LANES + p.lane;
                        sums[to as usize] = sum;
                    }
                }
            }
            sync_cube();
            #[unroll(unroll)]
            for j in 0..comptime!(v.turns()) {
                let s = j * comptime!(v.across()) + p.part;
                let t = from + s;
                if s < v.block && t < p.steps && live {
                    let mut y = fold_fours(ieee, &sums, s, p.lane, v);
                    if comptime!(v.has.d) {
                        y = ieee.fma(x.d[p.own as usize], this_u[j as usize], y);
                    }
                    if comptime!(v.has.z) {
                        y = ieee.mul(y, silu(ieee, this_z[j as usize]));
                    }
                    out[place(x, &p, t) as usize] = ieee.canonical(y);
                }
            }
        }

        if live {
            let mut t = p.steps + p.part;
            while t < x.time {
                out[place(x, &p, t) as usize] = 0.0f32;
                t += comptime!(v.across());
            }
            for i in 0..own {
                let n = state_of(&p, i, v);
                if n < v.states {
                    last[state_place(x, &p, n, v) as usize] = ieee.canonical(h[i as usize]);
                }
            }
        }
    }
}

#[derive(CubeType)]
struct Gradients {
    u: Array<f32>,
    delta: Array<f32>,
    z: Array<f32>,
    initial: Array<f32>,
    /// Sums of members and panels.
    a: Array<f32>,
    b: Array<f32>,
    c: Array<f32>,
    d: Array<f32>,
    bias: Array<f32>,
    /// States before the blocks of a chunk.
    states: Array<f32>,
}

#[cube]
fn backward_steps(
    ieee: &Ieee,
    x: &Input,
    checkpoints: &Array<f32>,
    gradient: &Array<f32>,
    gradient_last: &Array<f32>,
    out: &mut Gradients,
    #[comptime] v: Variant,
    #[comptime] unroll: bool,
) {
    let cube = CUBE_POS as u32;
    let panels = (x.channels + (LANES - 1u32)) / LANES;
    if cube < x.batch * panels {
        let p = spot(x, cube, v);
        let live = p.channel < x.channels;
        let own = comptime!(v.own());
        let size = comptime!((v.block * LANES) as usize);
        let mut dt = SharedMemory::<f32>::new(size);
        let mut vs = SharedMemory::<f32>::new(size);
        let mut dys = SharedMemory::<f32>::new(size);
        let mut dxs = SharedMemory::<f32>::new(size);
        let mut b = SharedMemory::<f32>::new(comptime!((v.block * v.places()) as usize));
        let mut c = SharedMemory::<f32>::new(comptime!((v.block * v.places()) as usize));
        let fours = comptime!((v.block * v.places() / 4 * LANES) as usize);
        let mut y_sums = SharedMemory::<f32>::new(comptime!(if v.has.z { fours } else { 1 }));
        let mut e_sums = SharedMemory::<f32>::new(fours);
        let mut f_sums = SharedMemory::<f32>::new(fours);
        let all = comptime!((v.block * v.places() * PITCH) as usize);
        let mut h_of = SharedMemory::<f32>::new(all);
        let mut g_of = SharedMemory::<f32>::new(all);

        let mut h = Array::<f32>::new(comptime!(((v.block + 1) * own) as usize));
        let mut decay = Array::<f32>::new(comptime!((v.block * own) as usize));
        let mut rate = Array::<f32>::new(comptime!(own as usize));
        let mut r = Array::<f32>::new(comptime!(own as usize));
        let mut sum_a = Array::<f32>::new(comptime!(own as usize));
        let mut total_a = Array::<f32>::new(comptime!(own as usize));
        let (mut sum_d, mut total_d) = (x.zero, x.zero);
        let (mut sum_bias, mut total_bias) = (x.zero, x.zero);
        rates(x, &p, &mut rate, v);
        let most = largest(ieee, &rate, v);
        for i in 0..own {
            let n = state_of(&p, i, v);
            let mut value = x.zero;
            if comptime!(v.extra) {
                if n < v.states {
                    value = gradient_last[state_place(x, &p, n, v) as usize];
                }
            }
            r[i as usize] = value;
            total_a[i as usize] = x.zero;
        }

        let chunks = (p.steps + (CHUNK - 1u32)) / CHUNK;
        for chunk_back in 0..chunks {
            let chunk = chunks - 1u32 - chunk_back;
            let start = chunk * CHUNK;
            let left = p.steps - start;
            let count = prim::select_u32(left < CHUNK, left, CHUNK);
            let blocks = (count + (v.block - 1u32)) / v.block;

            // The states before each block; what is stored is read by the same unit.
            for i in 0..own {
                let n = state_of(&p, i, v);
                let mut value = x.zero;
                if n < v.states {
                    let base = (p.member * x.chunks + chunk) * v.states;
                    value = checkpoints[((base + n) * x.channels + p.own) as usize];
                }
                h[i as usize] = value;
                sum_a[i as usize] = x.zero;
            }
            for k in 0..blocks {
                let base = (p.member * comptime!(CHUNK / v.block) + k) * v.states;
                for i in 0..own {
                    let n = state_of(&p, i, v);
                    if n < v.states && live {
                        let to = (base + n) * x.channels + p.channel;
                        out.states[to as usize] = h[i as usize];
                    }
                }
                if k + 1u32 < blocks {
                    let from = start + k * v.block;
                    stage(
                        ieee, x, &p, from, &mut dt, &mut vs, &mut b, &mut c, v, false, unroll,
                    );
                    sync_cube();
                    for s in 0..v.block {
                        let length = dt[(s * LANES + p.lane) as usize];
                        let input = vs[(s * LANES + p.lane) as usize];
                        decays(ieee, length, &rate, most, &mut decay, 0u32, v, unroll);
                        #[unroll(unroll)]
                        for i in 0..own {
                            let n = state_of(&p, i, v);
                            let at = (s * comptime!(v.places()) + n) as usize;
                            let factor = decay[i as usize];
                            h[i as usize] = next_state(ieee, factor, h[i as usize], input, b[at]);
                        }
                    }
                    sync_cube();
                }
            }

            for k_back in 0..blocks {
                let k = blocks - 1u32 - k_back;
                let from = start + k * v.block;
                stage(
                    ieee, x, &p, from, &mut dt, &mut vs, &mut b, &mut c, v, true, unroll,
                );
                for j in 0..comptime!(v.block.div_ceil(v.across())) {
                    let s = j * comptime!(v.across()) + p.part;
                    if s < v.block && from + s < p.steps {
                        let at = place(x, &p, from + s) as usize;
                        let mut dy = gradient[at];
                        if comptime!(v.has.z) {
                            dy = ieee.mul(dy, silu(ieee, x.z[at]));
                        }
                        dys[(s * LANES + p.lane) as usize] = dy;
                    }
                }
                for i in 0..own {
                    let n = state_of(&p, i, v);
                    let mut value = x.zero;
                    if n < v.states && live {
                        let base = (p.member * comptime!(CHUNK / v.block) + k) * v.states;
                        value = out.states[((base + n) * x.channels + p.channel) as usize];
                    }
                    h[i as usize] = value;
                }
                sync_cube();
                #[unroll(unroll)]
                for s in 0..v.block {
                    if from + s < p.steps {
                        let length = dt[(s * LANES + p.lane) as usize];
                        let input = vs[(s * LANES + p.lane) as usize];
                        decays(ieee, length, &rate, most, &mut decay, s * own, v, unroll);
                        #[unroll(unroll)]
                        for q in 0..comptime!(v.each()) {
                            let mut sum = x.zero;
                            #[unroll(unroll)]
                            for l in 0..4u32 {
                                let i = q * 4u32 + l;
                                let n = state_of(&p, i, v);
                                let at = (s * comptime!(v.places()) + n) as usize;
                                let before = (s * own + i) as usize;
                                let new = next_state(ieee, decay[before], h[before], input, b[at]);
                                h[((s + 1u32) * own + i) as usize] = new;
                                if comptime!(v.has.z) {
                                    sum = chain(ieee, c[at], new, sum, n, v);
                                }
                                h_of[at * comptime!(PITCH as usize) + p.lane as usize] = new;
                            }
                            if comptime!(v.has.z) {
                                let four = q * comptime!(v.across()) + p.part;
                                let to = (s * comptime!(v.places() / 4) + four) * LANES + p.lane;
                                y_sums[to as usize] = sum;
                            }
                        }
                    }
                }
                #[unroll(unroll)]
                for back in 0..v.block {
                    let s = comptime!(v.block - 1) - back;
                    if from + s < p.steps {
                        let length = dt[(s * LANES + p.lane) as usize];
                        let dy = dys[(s * LANES + p.lane) as usize];
                        #[unroll(unroll)]
                        for q in 0..comptime!(v.each()) {
                            let (mut e, mut f) = (x.zero, x.zero);
                            #[unroll(unroll)]
                            for l in 0..4u32 {
                                let i = q * 4u32 + l;
                                let n = state_of(&p, i, v);
                                let at = (s * comptime!(v.places()) + n) as usize;
                                let before = (s * own + i) as usize;
                                let g = ieee.fma(dy, c[at], r[i as usize]);
                                let carried = ieee.mul(decay[before], g);
                                r[i as usize] = carried;
                                let w = ieee.mul(carried, h[before]);
                                sum_a[i as usize] = ieee.fma(w, length, sum_a[i as usize]);
                                e = chain(ieee, w, rate[i as usize], e, n, v);
                                f = chain(ieee, g, b[at], f, n, v);
                                g_of[at * comptime!(PITCH as usize) + p.lane as usize] = g;
                            }
                            let four = q * comptime!(v.across()) + p.part;
                            let to = (s * comptime!(v.places() / 4) + four) * LANES + p.lane;
                            e_sums[to as usize] = e;
                            f_sums[to as usize] = f;
                        }
                    }
                }
                sync_cube();
                for j in 0..comptime!(v.block.div_ceil(v.across())) {
                    let s = j * comptime!(v.across()) + p.part;
                    let t = from + s;
                    if s < v.block && t < p.steps {
                        let at = place(x, &p, t) as usize;
                        let here = (s * LANES + p.lane) as usize;
                        let e = fold_fours(ieee, &e_sums, s, p.lane, v);
                        let f = fold_fours(ieee, &f_sums, s, p.lane, v);
                        let u = x.u[at];
                        let mut du = ieee.mul(dt[here], f);
                        if comptime!(v.has.d) {
                            du = ieee.fma(x.d[p.own as usize], dys[here], du);
                        }
                        let dx = ieee.fma(u, f, e);
                        let length = with_bias(ieee, x, &p, x.delta[at], v);
                        let dx = length_slope(ieee, length, dx, v.has.softplus);
                        dxs[here] = dx;
                        if live {
                            out.u[at] = ieee.canonical(du);
                            out.delta[at] = ieee.canonical(dx);
                            if comptime!(v.has.z) {
                                let mut y = fold_fours(ieee, &y_sums, s, p.lane, v);
                                if comptime!(v.has.d) {
                                    y = ieee.fma(x.d[p.own as usize], u, y);
                                }
                                let slope = gate_slope(ieee, x.z[at]);
                                let dz = ieee.mul(ieee.mul(gradient[at], y), slope);
                                out.z[at] = ieee.canonical(dz);
                            }
                        }
                    }
                }
                if comptime!(v.states > 0) {
                    // Over the channels of the panel.
                    let first = p.channel - p.lane;
                    let rest = x.channels - first;
                    let width = prim::select_u32(rest < LANES, rest, LANES);
                    let base = (first / LANES * x.batch + p.member) * x.time + from;
                    for j in 0..comptime!((v.block * v.states).div_ceil(v.units())) {
                        let item = j * comptime!(v.units()) + UNIT_POS;
                        let s = item / comptime!(v.states.max(1));
                        let n = item % comptime!(v.states.max(1));
                        if s < v.block && from + s < p.steps {
                            let row = (s * comptime!(v.places()) + n) * PITCH;
                            let (mut db, mut dc) = (x.zero, x.zero);
                            for l in 0..width {
                                let at = (row + l) as usize;
                                let lane = (s * LANES + l) as usize;
                                db = ieee.fma(g_of[at], vs[lane], db);
                                dc = ieee.fma(h_of[at], dys[lane], dc);
                            }
                            let to = ((base + s) * comptime!(v.states) + n) as usize;
                            out.b[to] = ieee.canonical(db);
                            out.c[to] = ieee.canonical(dc);
                        }
                    }
                }
                if comptime!(v.has.d || v.has.bias) {
                    sync_cube();
                    if p.part == 0u32 {
                        for back in 0..v.block {
                            let s = comptime!(v.block - 1) - back;
                            if from + s < p.steps {
                                let here = (s * LANES + p.lane) as usize;
                                let u = x.u[place(x, &p, from + s) as usize];
                                sum_d = ieee.fma(dys[here], u, sum_d);
                                sum_bias = ieee.add(sum_bias, dxs[here]);
                            }
                        }
                    }
                }
                sync_cube();
            }

            // The panel of steps: the last one's sum, then the others' added.
            if chunk_back == 0u32 {
                total_d = sum_d;
                total_bias = sum_bias;
            } else {
                total_d = ieee.add(total_d, sum_d);
                total_bias = ieee.add(total_bias, sum_bias);
            }
            sum_d = x.zero;
            sum_bias = x.zero;
            for i in 0..own {
                let i = i as usize;
                if chunk_back == 0u32 {
                    total_a[i] = sum_a[i];
                } else {
                    total_a[i] = ieee.add(total_a[i], sum_a[i]);
                }
            }
        }

        if live {
            let mut t = p.steps + p.part;
            while t < x.time {
                let at = place(x, &p, t) as usize;
                out.u[at] = 0.0f32;
                out.delta[at] = 0.0f32;
                if comptime!(v.has.z) {
                    out.z[at] = 0.0f32;
                }
                t += comptime!(v.across());
            }
            for i in 0..own {
                let n = state_of(&p, i, v);
                if n < v.states {
                    let at = state_place(x, &p, n, v) as usize;
                    out.initial[at] = ieee.canonical(r[i as usize]);
                    out.a[at] = ieee.canonical(total_a[i as usize]);
                }
            }
            if p.part == 0u32 {
                let at = (p.member * x.channels + p.channel) as usize;
                if comptime!(v.has.d) {
                    out.d[at] = ieee.canonical(total_d);
                }
                if comptime!(v.has.bias) {
                    out.bias[at] = ieee.canonical(total_bias);
                }
            }
        }
        // Steps that don't exist have no gradients.
        let base = ((p.channel - p.lane) / LANES * x.batch + p.member) * x.time;
        let mut item = p.steps * v.states + UNIT_POS;
        while item < x.time * v.states {
            let to = (base * v.states + item) as usize;
            out.b[to] = 0.0f32;
            out.c[to] = 0.0f32;
            item += comptime!(v.units());
        }
    }
}

/// Adds `count` parts that follow each other, in their order.
#[cube]
fn fold_parts(ieee: Ieee, from: &Array<f32>, to: &mut Array<f32>, len: u32, count: u32) {
    let at = CUBE_POS as u32 * 256u32 + UNIT_POS;
    if at < len {
        let mut total = 0.0f32;
        if count > 0u32 {
            total = from[at as usize];
        }
        for part in 1..count {
            total = ieee.add(total, from[(part * len + at) as usize]);
        }
        to[at as usize] = ieee.canonical(total);
    }
}

fn input(d: &mut Definition, v: Variant) -> InputExpand {
    let [u, delta, a, b, c] = std::array::from_fn(|_| d.input::<f32>());
    // What a variant doesn't use is not among its arguments.
    let mut optional = |has: bool| if has { d.input::<f32>() } else { u.clone() };
    let skip = optional(v.has.d);
    let bias = optional(v.has.bias);
    let z = optional(v.has.z);
    let lengths = if v.has.lengths {
        d.input::<u32>()
    } else {
        u.expand.clone().into()
    };
    InputExpand {
        u,
        delta,
        a,
        b,
        c,
        d: skip,
        bias,
        z,
        lengths,
        batch: d.scalar(),
        time: d.scalar(),
        channels: d.scalar(),
        chunks: d.scalar(),
        zero: d.scalar(),
    }
}

fn forward_kernel(profile: FloatProfile, v: Variant) -> Kernel {
    let unroll = profile.direct();
    let units = CubeDim::new_1d(v.units());
    Kernel::new("selective_scan", profile, v, units, move |d| {
        let ieee = d.ieee();
        let x = input(d, v);
        let initial = if v.has.initial {
            d.input::<f32>()
        } else {
            x.u.clone()
        };
        let (out, last) = (d.output::<f32>(), d.output::<f32>());
        let checkpoints = if v.extra {
            d.output::<f32>()
        } else {
            out.clone()
        };
        let scope = d.scope();
        forward_steps::expand(scope, ieee, x, initial, out, last, checkpoints, v, unroll);
    })
}

fn backward_kernel(profile: FloatProfile, v: Variant) -> Kernel {
    let unroll = profile.direct();
    let units = CubeDim::new_1d(v.units());
    Kernel::new("selective_scan_back", profile, v, units, move |d| {
        let ieee = d.ieee();
        let x = input(d, v);
        let (checkpoints, gradient) = (d.input::<f32>(), d.input::<f32>());
        let last = if v.extra {
            d.input::<f32>()
        } else {
            x.u.clone()
        };
        let [u, delta, initial, a, b, c, states] = std::array::from_fn(|_| d.output::<f32>());
        let mut optional = |has: bool| if has { d.output::<f32>() } else { u.clone() };
        let (skip, bias) = (optional(v.has.d), optional(v.has.bias));
        let z = optional(v.has.z);
        let out = GradientsExpand {
            u,
            delta,
            z,
            initial,
            a,
            b,
            c,
            d: skip,
            bias,
            states,
        };
        let scope = d.scope();
        backward_steps::expand(scope, ieee, x, checkpoints, gradient, last, out, v, unroll);
    })
}

fn fold_kernel(profile: FloatProfile) -> Kernel {
    let units = CubeDim::new_1d(256);
    Kernel::new("selective_scan_fold", profile, (), units, |d| {
        let ieee = d.ieee();
        let (from, to) = (d.input::<f32>(), d.output::<f32>());
        let (len, count) = (d.scalar::<u32>(), d.scalar::<u32>());
        fold_parts::expand(d.scope(), ieee, from, to, len, count);
    })
}

pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    let every = |has: bool| Has {
        d: has,
        z: has,
        bias: has,
        softplus: has,
        initial: has,
        lengths: has,
    };
    let mut kernels = vec![fold_kernel(profile)];
    for (states, block, has) in [(16, 8, true), (3, 2, true), (16, 2, false)] {
        let v = Variant {
            states,
            block,
            has: every(has),
            extra: has,
        };
        kernels.push(forward_kernel(profile, v));
        kernels.push(backward_kernel(profile, v));
    }
    kernels
}

/// What can be chosen.
pub(super) const BLOCKS: [u32; 4] = [8, 4, 2, 1];

/// Steps of a block: the most whose sums find room.
fn choose(
    device: &Device,
    v: Variant,
    words: fn(Variant) -> u32,
    block: Option<u32>,
) -> Result<Variant> {
    // Others need not have more than 16 KiB of shared memory; of 48 KiB four cubes fit.
    let roomy = matches!(device.backend(), Backend::Cuda(_) | Backend::Hip(_));
    let room = if roomy { 12 << 10 } else { 4 << 10 };
    BLOCKS
        .into_iter()
        .filter(|b| block.is_none_or(|block| block == *b))
        .map(|block| Variant { block, ..v })
        .find(|v| words(*v) <= room)
        .ok_or_else(|| {
            Error::unsupported(
                format!("a selective scan of {} states", v.states),
                "a step's sums don't fit the shared memory of a GPU",
            )
        })
}

fn arguments<'a>(scan: &Scan<'a>) -> Vec<Arg<'a>> {
    let s = scan.shape;
    let mut arguments = Vec::from([scan.u, scan.delta, scan.a, scan.b, scan.c].map(Arg::from));
    for optional in [scan.d, scan.bias, scan.z] {
        arguments.extend(optional.map(Arg::from));
    }
    arguments.extend(scan.lengths.map(Arg::from));
    let chunks = s.time.div_ceil(STEPS);
    arguments.extend([s.batch, s.time, s.channels, chunks].map(|n| Arg::from(n as u32)));
    arguments.push(Arg::from(0.0f32));
    arguments
}

fn cubes(s: Shape) -> Result<(u32, u32, u32)> {
    grid(s.batch * s.channels.div_ceil(CHANNELS), 1)
}

pub(super) fn forward(
    scan: &Scan<'_>,
    out: &mut Scanned,
    checkpoints: Option<&mut Buffer<f32>>,
    block: Option<u32>,
) -> Result<()> {
    let device = scan.u.device();
    let v = Variant {
        states: scan.shape.states as u32,
        block: 1,
        has: scan.has(),
        extra: checkpoints.is_some(),
    };
    let v = choose(device, v, Variant::forward_words, block)?;
    let mut arguments = arguments(scan);
    arguments.extend(scan.initial.map(Arg::from));
    arguments.extend([Arg::from(&mut out.y), Arg::from(&mut out.last)]);
    arguments.extend(checkpoints.map(Arg::from));
    device.launch(
        &forward_kernel(device.profile()?, v),
        cubes(scan.shape)?,
        &arguments,
    )
}

pub(super) fn backward(
    scan: &Scan<'_>,
    checkpoints: &Buffer<f32>,
    gradient: &Buffer<f32>,
    gradient_last: Option<&Buffer<f32>>,
    out: &mut ScanGradients,
    parts: &mut Parts,
    block: Option<u32>,
) -> Result<()> {
    let device = scan.u.device();
    let s = scan.shape;
    let v = Variant {
        states: s.states as u32,
        block: 1,
        has: scan.has(),
        extra: gradient_last.is_some(),
    };
    let v = choose(device, v, Variant::backward_words, block)?;
    let blocks = STEPS / v.block as usize;
    let mut states = device.empty::<f32>(s.batch * blocks * s.states * s.channels)?;
    let mut arguments = arguments(scan);
    arguments.extend([Arg::from(checkpoints), Arg::from(gradient)]);
    arguments.extend(gradient_last.map(Arg::from));
    arguments.extend([&mut out.u, &mut out.delta, &mut out.initial].map(Arg::from));
    arguments.extend([&mut parts.a, &mut parts.b, &mut parts.c, &mut states].map(Arg::from));
    for optional in [&mut parts.d, &mut parts.bias, &mut out.z] {
        arguments.extend(optional.as_mut().map(Arg::from));
    }
    device.launch(
        &backward_kernel(device.profile()?, v),
        cubes(s)?,
        &arguments,
    )
}

pub(super) fn fold(from: &Buffer<f32>, count: usize, to: &mut Buffer<f32>) -> Result<()> {
    let device = from.device();
    let len = to.len();
    device.launch(
        &fold_kernel(device.profile()?),
        grid(len, 256)?,
        args![from, to, len as u32, count as u32],
    )
}
