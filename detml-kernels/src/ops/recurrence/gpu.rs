//! The GPU path: a unit takes a chain through time, the loads of the next steps under way while it
//! computes the present ones. Units side by side have channels side by side.

use super::{Inputs, RecurrenceGradients};
use crate::device::{Arg, Buffer, Kernel};
use crate::ieee::{FloatProfile, Ieee, Path};
use crate::ops::grid;
use cubecl::prelude::*;
use detml_core::Result;

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
    crate::prim::from_bits(crate::prim::bits(chains.nothing) ^ 0x8000_0000u32)
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

fn native(profile: FloatProfile) -> bool {
    profile.fma == Path::Native && profile.subnormal == Path::Native
}

fn forward_kernel(profile: FloatProfile, v: Variant) -> Kernel {
    let unroll = native(profile);
    let units = CubeDim::new_1d(UNITS);
    Kernel::new("recurrence", profile, v, units, move |d| {
        let ieee = d.ieee();
        let (a, b) = (d.input::<f32>(), d.input::<f32>());
        // What a variant doesn't use is not among its arguments.
        let initial = if v.initial {
            d.input::<f32>()
        } else {
            a.clone()
        };
        let (states, last) = (d.output::<f32>(), d.output::<f32>());
        let chains = ChainsExpand {
            count: d.scalar(),
            time: d.scalar(),
            channels: d.scalar(),
            nothing: d.scalar(),
        };
        let scope = d.scope();
        forward_steps::expand(scope, ieee, a, b, initial, states, last, chains, v, unroll);
    })
}

fn backward_kernel(profile: FloatProfile, v: Variant) -> Kernel {
    let unroll = native(profile);
    let units = CubeDim::new_1d(UNITS);
    Kernel::new("recurrence_back", profile, v, units, move |d| {
        let ieee = d.ieee();
        let (a, states, gradient) = (d.input::<f32>(), d.input::<f32>(), d.input::<f32>());
        let initial = if v.initial {
            d.input::<f32>()
        } else {
            a.clone()
        };
        let last = if v.last { d.input::<f32>() } else { a.clone() };
        let [da, db, first] = std::array::from_fn(|_| d.output::<f32>());
        let chains = ChainsExpand {
            count: d.scalar(),
            time: d.scalar(),
            channels: d.scalar(),
            nothing: d.scalar(),
        };
        backward_steps::expand(
            d.scope(),
            ieee,
            a,
            states,
            gradient,
            initial,
            last,
            da,
            db,
            first,
            chains,
            v,
            unroll,
        );
    })
}

/// Steps ahead: the fewer the chains, the more of each must be under way.
fn choose(chains: usize) -> u32 {
    match chains {
        0..=49_151 => 16,
        _ => 8,
    }
}

/// What can be chosen.
#[cfg(test)]
pub(super) const AHEAD: [u32; 3] = [8, 16, 32];

pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    [(8, true), (16, false)]
        .into_iter()
        .flat_map(|(ahead, given)| {
            let v = Variant {
                ahead,
                initial: given,
                last: given,
            };
            let forward = Variant { last: false, ..v };
            [
                forward_kernel(profile, forward),
                backward_kernel(profile, v),
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
    ahead: Option<u32>,
) -> Result<()> {
    let device = a.device();
    let chains = shape[0] * shape[2];
    let v = Variant {
        ahead: ahead.unwrap_or_else(|| choose(chains)),
        initial: initial.is_some(),
        last: false,
    };
    let mut arguments = vec![Arg::from(a), Arg::from(b)];
    arguments.extend(initial.map(Arg::from));
    arguments.extend([Arg::from(states), Arg::from(last)]);
    arguments.extend(scalars(shape));
    device.launch(
        &forward_kernel(device.profile()?, v),
        grid(chains, UNITS as usize)?,
        &arguments,
    )
}

pub(super) fn backward(
    inputs: &Inputs<'_>,
    shape: [usize; 3],
    out: &mut RecurrenceGradients,
    ahead: Option<u32>,
) -> Result<()> {
    let device = inputs.a.device();
    let chains = shape[0] * shape[2];
    let v = Variant {
        ahead: ahead.unwrap_or_else(|| choose(chains)),
        initial: inputs.initial.is_some(),
        last: inputs.gradient_last.is_some(),
    };
    let mut arguments = Vec::from([inputs.a, inputs.states, inputs.gradient].map(Arg::from));
    arguments.extend(inputs.initial.map(Arg::from));
    arguments.extend(inputs.gradient_last.map(Arg::from));
    arguments.extend([&mut out.a, &mut out.b, &mut out.initial].map(Arg::from));
    arguments.extend(scalars(shape));
    device.launch(
        &backward_kernel(device.profile()?, v),
        grid(chains, UNITS as usize)?,
        &arguments,
    )
}
