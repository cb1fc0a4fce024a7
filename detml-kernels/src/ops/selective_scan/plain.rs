//! The contract as code.

use super::{CHANNELS, STEPS, Shape, gate_slope};
use crate::ieee::Ieee;
use crate::math::{exp, sigmoid, silu, softplus};

/// Host copies of what a scan reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    pub(super) shape: Shape,
    pub(super) u: Vec<f32>,
    pub(super) delta: Vec<f32>,
    pub(super) a: Vec<f32>,
    pub(super) b: Vec<f32>,
    pub(super) c: Vec<f32>,
    pub(super) d: Option<Vec<f32>>,
    pub(super) z: Option<Vec<f32>>,
    pub(super) bias: Option<Vec<f32>>,
    pub(super) softplus: bool,
    pub(super) initial: Option<Vec<f32>>,
    pub(super) lengths: Option<Vec<u32>>,
    pub(super) gradient: Vec<f32>,
    pub(super) gradient_last: Option<Vec<f32>>,
}

/// Everything that a scan gives, forward and backward.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) y: Vec<f32>,
    pub(super) last: Vec<f32>,
    pub(super) du: Vec<f32>,
    pub(super) ddelta: Vec<f32>,
    pub(super) da: Vec<f32>,
    pub(super) db: Vec<f32>,
    pub(super) dc: Vec<f32>,
    pub(super) dd: Vec<f32>,
    pub(super) dz: Vec<f32>,
    pub(super) dbias: Vec<f32>,
    pub(super) dinitial: Vec<f32>,
}

const IEEE: Ieee = Ieee::PLAIN;

/// The sum over the states of `x * y`.
fn over_states(pairs: &[(f32, f32)]) -> f32 {
    let chain = |four: &[(f32, f32)]| {
        let mut s = 0.0;
        for (x, y) in four {
            s = IEEE.fma(*x, *y, s);
        }
        s
    };
    fold(pairs.chunks(4).map(chain))
}

/// Parts added in their order, beginning with the first.
fn fold(mut parts: impl Iterator<Item = f32>) -> f32 {
    let first = parts.next().unwrap_or(0.0);
    let mut total = first;
    for part in parts {
        total = IEEE.add(total, part);
    }
    total
}

/// The sum over time of a term, given for each step of a member.
fn over_time(steps: usize, term: impl Fn(usize, f32) -> f32) -> f32 {
    let panel = |p: usize| {
        let mut s = 0.0;
        for t in (p * STEPS..steps.min((p + 1) * STEPS)).rev() {
            s = term(t, s);
        }
        s
    };
    fold((0..steps.div_ceil(STEPS)).rev().map(panel))
}

pub(super) fn scan(x: &Data) -> Results {
    let Shape {
        batch,
        time,
        channels,
        states,
    } = x.shape;
    let step = |member: usize, t: usize, channel: usize| (member * time + t) * channels + channel;
    let zeros = |n: usize| vec![0.0f32; n];
    let mut out = Results {
        y: zeros(batch * time * channels),
        last: zeros(batch * channels * states),
        du: zeros(batch * time * channels),
        ddelta: zeros(batch * time * channels),
        dz: zeros(batch * time * channels),
        dinitial: zeros(batch * channels * states),
        ..Results::default()
    };
    // What the sums over channels and time take, by step and state.
    let all = batch * time * channels * states;
    let (mut g_of, mut h_of, mut w_of) = (zeros(all), zeros(all), zeros(all));
    let [mut dt_of, mut v_of, mut dy_of] = [(); 3].map(|()| zeros(batch * time * channels));
    let steps = |member: usize| match &x.lengths {
        Some(lengths) => time.min(lengths[member] as usize),
        None => time,
    };
    for member in 0..batch {
        for channel in 0..channels {
            let chain = member * channels + channel;
            let rate = |n: usize| x.a[channel * states + n];
            let mut h: Vec<f32> = match &x.initial {
                Some(initial) => initial[chain * states..][..states].to_vec(),
                None => zeros(states),
            };
            let mut before = Vec::new();
            let mut y_of = Vec::new();
            for t in 0..steps(member) {
                let at = step(member, t, channel);
                let b = &x.b[(member * time + t) * states..][..states];
                let c = &x.c[(member * time + t) * states..][..states];
                let mut dt = x.delta[at];
                if let Some(bias) = &x.bias {
                    dt = IEEE.add(dt, bias[channel]);
                }
                if x.softplus {
                    dt = softplus(&IEEE, dt);
                }
                let v = IEEE.mul(dt, x.u[at]);
                before.push(h.clone());
                for n in 0..states {
                    let decay = exp(&IEEE, IEEE.mul(dt, rate(n)));
                    h[n] = IEEE.fma(decay, h[n], IEEE.mul(v, b[n]));
                    h_of[at * states + n] = h[n];
                }
                let pairs: Vec<_> = c.iter().copied().zip(h.iter().copied()).collect();
                let mut y = over_states(&pairs);
                if let Some(d) = &x.d {
                    y = IEEE.fma(d[channel], x.u[at], y);
                }
                y_of.push(y);
                if let Some(z) = &x.z {
                    y = IEEE.mul(y, silu(&IEEE, z[at]));
                }
                out.y[at] = y;
                (dt_of[at], v_of[at]) = (dt, v);
            }
            out.last[chain * states..][..states].copy_from_slice(&h);

            let mut r = match &x.gradient_last {
                Some(last) => last[chain * states..][..states].to_vec(),
                None => zeros(states),
            };
            for t in (0..steps(member)).rev() {
                let at = step(member, t, channel);
                let b = &x.b[(member * time + t) * states..][..states];
                let c = &x.c[(member * time + t) * states..][..states];
                let (dt, u) = (dt_of[at], x.u[at]);
                let mut dy = x.gradient[at];
                if let Some(z) = &x.z {
                    let slope = gate_slope(&IEEE, z[at]);
                    out.dz[at] = IEEE.mul(IEEE.mul(dy, y_of[t]), slope);
                    dy = IEEE.mul(dy, silu(&IEEE, z[at]));
                }
                let (mut e, mut f) = (Vec::new(), Vec::new());
                for n in 0..states {
                    let g = IEEE.fma(dy, c[n], r[n]);
                    r[n] = IEEE.mul(exp(&IEEE, IEEE.mul(dt, rate(n))), g);
                    let w = IEEE.mul(r[n], before[t][n]);
                    e.push((w, rate(n)));
                    f.push((g, b[n]));
                    g_of[at * states + n] = g;
                    w_of[at * states + n] = w;
                }
                let f = over_states(&f);
                let mut dx = IEEE.fma(u, f, over_states(&e));
                if x.softplus {
                    let mut x_ = x.delta[at];
                    if let Some(bias) = &x.bias {
                        x_ = IEEE.add(x_, bias[channel]);
                    }
                    dx = IEEE.mul(dx, sigmoid(&IEEE, x_));
                }
                out.ddelta[at] = dx;
                out.du[at] = IEEE.mul(dt, f);
                if let Some(d) = &x.d {
                    out.du[at] = IEEE.fma(d[channel], dy, out.du[at]);
                }
                dy_of[at] = dy;
            }
            out.dinitial[chain * states..][..states].copy_from_slice(&r);
        }
    }
    // Over channels.
    for member in 0..batch {
        for t in 0..time {
            for n in 0..states {
                let panel = |first: usize, pair: &dyn Fn(usize) -> (f32, f32)| {
                    let mut s = 0.0;
                    for channel in first..channels.min(first + CHANNELS) {
                        let (x, y) = pair(step(member, t, channel));
                        s = IEEE.fma(x, y, s);
                    }
                    s
                };
                let firsts = || (0..channels).step_by(CHANNELS);
                let real = t < steps(member);
                let b = fold(firsts().map(|p| panel(p, &|at| (g_of[at * states + n], v_of[at]))));
                let c = fold(firsts().map(|p| panel(p, &|at| (dy_of[at], h_of[at * states + n]))));
                out.db.push(if real { b } else { 0.0 });
                out.dc.push(if real { c } else { 0.0 });
            }
        }
    }
    // Over time, then over the members.
    for channel in 0..channels {
        let sum = |term: &dyn Fn(usize, f32) -> f32| {
            let of = |member| over_time(steps(member), |t, s| term(step(member, t, channel), s));
            fold((0..batch).map(of))
        };
        for n in 0..states {
            out.da
                .push(sum(&|at, s| IEEE.fma(w_of[at * states + n], dt_of[at], s)));
        }
        out.dd.push(sum(&|at, s| IEEE.fma(dy_of[at], x.u[at], s)));
        out.dbias.push(sum(&|at, s| IEEE.add(s, out.ddelta[at])));
    }
    for values in [
        &mut out.y,
        &mut out.last,
        &mut out.du,
        &mut out.ddelta,
        &mut out.da,
        &mut out.db,
        &mut out.dc,
        &mut out.dd,
        &mut out.dz,
        &mut out.dbias,
        &mut out.dinitial,
    ] {
        for value in values {
            *value = IEEE.canonical(*value);
        }
    }
    out
}
