//! The CPU path: the channels of a panel along the vectors, threads over members and panels.

use super::{
    CHANNELS, Parts, STEPS, Scan, ScanGradients, Scanned, Shape, gate_slope, length_slope,
    step_length,
};
use crate::device::{Buffer, Loop, Simd};
use crate::ieee::Ieee;
use crate::math::{exp, silu};
use crate::ops::parallel::for_chunks;
use crate::ops::recurrence::{Shared, for_parts};
use std::ops::Range;

/// A number for each channel of a panel; those beyond the last one are +0.
type Lanes = [f32; CHANNELS];

/// Host slices of what a scan reads.
struct Inputs<'a> {
    shape: Shape,
    u: &'a [f32],
    delta: &'a [f32],
    a: &'a [f32],
    b: &'a [f32],
    c: &'a [f32],
    d: Option<&'a [f32]>,
    z: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
    softplus: bool,
    initial: Option<&'a [f32]>,
    lengths: Option<&'a [u32]>,
}

impl<'a> Inputs<'a> {
    fn new(scan: &Scan<'a>) -> Self {
        fn host(x: &Buffer<f32>) -> &[f32] {
            x.host().unwrap_or_default()
        }
        Self {
            shape: scan.shape,
            u: host(scan.u),
            delta: host(scan.delta),
            a: host(scan.a),
            b: host(scan.b),
            c: host(scan.c),
            d: scan.d.map(host),
            z: scan.z.map(host),
            bias: scan.bias.map(host),
            softplus: scan.softplus,
            initial: scan.initial.map(host),
            lengths: scan.lengths.and_then(Buffer::host),
        }
    }

    fn panel(&self, member: usize, part: Range<usize>) -> Panel<'_> {
        let Shape { time, states, .. } = self.shape;
        let steps = match self.lengths {
            Some(lengths) => time.min(lengths[member] as usize),
            None => time,
        };
        let each =
            |x: Option<&[f32]>| x.map_or([0.0; CHANNELS], |x| row(x, part.start, part.len()));
        let mut rates = vec![[0.0; CHANNELS]; states];
        for (lane, channel) in part.clone().enumerate() {
            for (n, rate) in rates.iter_mut().enumerate() {
                rate[lane] = self.a[channel * states + n];
            }
        }
        Panel {
            x: self,
            member,
            first: part.start,
            width: part.len(),
            steps,
            rates,
            d: each(self.d),
            bias: each(self.bias),
        }
    }
}

/// One member's channels of a panel.
struct Panel<'a> {
    x: &'a Inputs<'a>,
    member: usize,
    first: usize,
    width: usize,
    /// Steps that exist.
    steps: usize,
    rates: Vec<Lanes>,
    d: Lanes,
    bias: Lanes,
}

/// `width` numbers from `at` on.
#[inline(always)]
fn row(x: &[f32], at: usize, width: usize) -> Lanes {
    let mut lanes = [0.0; CHANNELS];
    lanes[..width].copy_from_slice(&x[at..at + width]);
    lanes
}

/// What a step reads and makes of it.
#[derive(Clone, Copy)]
struct Step {
    u: Lanes,
    /// `delta` with its bias.
    x: Lanes,
    dt: Lanes,
    v: Lanes,
}

impl Panel<'_> {
    /// The place of a step's first channel.
    #[inline(always)]
    fn at(&self, t: usize) -> usize {
        let Shape { time, channels, .. } = self.x.shape;
        (self.member * time + t) * channels + self.first
    }

    /// The place of a step's first state in `b` and `c`.
    #[inline(always)]
    fn inputs(&self, t: usize) -> usize {
        (self.member * self.x.shape.time + t) * self.x.shape.states
    }

    /// The place of state `n` of a lane in buffers of states.
    #[inline(always)]
    fn state(&self, lane: usize, n: usize) -> usize {
        let Shape {
            channels, states, ..
        } = self.x.shape;
        (self.member * channels + self.first + lane) * states + n
    }

    /// The place of the lanes of state `n` in the checkpoint of a chunk.
    #[inline(always)]
    fn checkpoint(&self, chunk: usize, n: usize) -> usize {
        let Shape {
            time,
            channels,
            states,
            ..
        } = self.x.shape;
        ((self.member * time.div_ceil(STEPS) + chunk) * states + n) * channels + self.first
    }

    /// States from a buffer of them, or +0.
    fn states_of(&self, x: Option<&[f32]>) -> Vec<Lanes> {
        let mut h = vec![[0.0; CHANNELS]; self.x.shape.states];
        if let Some(x) = x {
            for (n, h) in h.iter_mut().enumerate() {
                for (lane, h) in h[..self.width].iter_mut().enumerate() {
                    *h = x[self.state(lane, n)];
                }
            }
        }
        h
    }

    /// Writes states to a buffer of them.
    fn store_states(&self, h: &[Lanes], out: Shared<'_>) {
        for lane in 0..self.width {
            // SAFETY: each member and channel is one task's, which holds one slice at a time.
            let out = unsafe { out.part(self.state(lane, 0), h.len()) };
            for (out, h) in out.iter_mut().zip(h) {
                *out = Ieee::PLAIN.canonical(h[lane]);
            }
        }
    }

    /// Writes a row of lanes.
    #[inline(always)]
    fn store(&self, ieee: Ieee, lanes: &Lanes, out: Shared<'_>, at: usize) {
        // SAFETY: as in `store_states`.
        let out = unsafe { out.part(at, self.width) };
        for (out, x) in out.iter_mut().zip(lanes) {
            *out = ieee.canonical(*x);
        }
    }

    #[inline(always)]
    fn step(&self, ieee: Ieee, t: usize) -> Step {
        let (at, width) = (self.at(t), self.width);
        let mut x = row(self.x.delta, at, width);
        let u = row(self.x.u, at, width);
        if self.x.bias.is_some() {
            for l in 0..CHANNELS {
                x[l] = ieee.add(x[l], self.bias[l]);
            }
        }
        let mut dt = x;
        if self.x.softplus {
            for l in 0..CHANNELS {
                dt[l] = step_length(&ieee, x[l], true);
            }
        }
        let mut v = [0.0; CHANNELS];
        for l in 0..CHANNELS {
            v[l] = ieee.mul(dt[l], u[l]);
        }
        Step { u, x, dt, v }
    }

    /// The states after a step, and the factors of those before it.
    #[inline(always)]
    fn advance(&self, ieee: Ieee, t: usize, step: &Step, h: &mut [Lanes], decays: &mut [Lanes]) {
        let states = self.x.shape.states;
        let b = &self.x.b[self.inputs(t)..][..states];
        for n in 0..states {
            let (rate, h, decay) = (&self.rates[n], &mut h[n], &mut decays[n]);
            for l in 0..CHANNELS {
                decay[l] = exp(&ieee, ieee.mul(step.dt[l], rate[l]));
                h[l] = ieee.fma(decay[l], h[l], ieee.mul(step.v[l], b[n]));
            }
        }
    }

    /// The output before its gate.
    #[inline(always)]
    fn output(&self, ieee: Ieee, t: usize, step: &Step, h: &[Lanes]) -> Lanes {
        let c = &self.x.c[self.inputs(t)..][..h.len()];
        let mut y = Sum::new();
        for n in 0..h.len() {
            let s = y.four(ieee, n);
            for l in 0..CHANNELS {
                s[l] = ieee.fma(c[n], h[n][l], s[l]);
            }
        }
        let mut y = y.end(ieee);
        if self.x.d.is_some() {
            for l in 0..CHANNELS {
                y[l] = ieee.fma(self.d[l], step.u[l], y[l]);
            }
        }
        y
    }
}

/// A sum over states: chains of four, folded.
struct Sum {
    total: Lanes,
    four: Lanes,
    fours: usize,
}

impl Sum {
    #[inline(always)]
    fn new() -> Self {
        Self {
            total: [0.0; CHANNELS],
            four: [0.0; CHANNELS],
            fours: 0,
        }
    }

    /// The chain that takes state `n`.
    #[inline(always)]
    fn four(&mut self, ieee: Ieee, n: usize) -> &mut Lanes {
        if n > 0 && n % 4 == 0 {
            self.total = self.end(ieee);
            self.four = [0.0; CHANNELS];
            self.fours += 1;
        }
        &mut self.four
    }

    #[inline(always)]
    fn end(&self, ieee: Ieee) -> Lanes {
        if self.fours == 0 {
            return self.four;
        }
        let mut total = self.total;
        for l in 0..CHANNELS {
            total[l] = ieee.add(total[l], self.four[l]);
        }
        total
    }
}

struct Forward<'a> {
    panel: &'a Panel<'a>,
    h: &'a mut [Lanes],
    decays: &'a mut [Lanes],
    y: Shared<'a>,
    checkpoints: Option<Shared<'a>>,
}

impl Loop for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let p = self.panel;
        for t in 0..p.steps {
            if let Some(checkpoints) = self.checkpoints
                && t % STEPS == 0
            {
                for (n, h) in self.h.iter().enumerate() {
                    p.store(ieee, h, checkpoints, p.checkpoint(t / STEPS, n));
                }
            }
            let step = p.step(ieee, t);
            p.advance(ieee, t, &step, self.h, self.decays);
            let mut y = p.output(ieee, t, &step, self.h);
            if let Some(z) = p.x.z {
                let z = row(z, p.at(t), p.width);
                for l in 0..CHANNELS {
                    y[l] = ieee.mul(y[l], silu(&ieee, z[l]));
                }
            }
            p.store(ieee, &y, self.y, p.at(t));
        }
    }
}

pub(super) fn forward(
    simd: Simd,
    scan: &Scan<'_>,
    out: &mut Scanned,
    checkpoints: Option<&mut Buffer<f32>>,
) {
    let x = Inputs::new(scan);
    let checkpoints = checkpoints.and_then(Buffer::host_mut).map(Shared::new);
    let (Some(y), Some(last)) = (out.y.host_mut(), out.last.host_mut()) else {
        return;
    };
    // Steps that don't exist stay +0.
    let (y, last) = (Shared::new(y), Shared::new(last));
    let s = scan.shape;
    let total = scan.u.len().saturating_mul(s.states + 1);
    for_parts(s.batch, s.channels, CHANNELS, total, &|member, part| {
        let panel = x.panel(member, part);
        let mut h = panel.states_of(x.initial);
        let mut decays = vec![[0.0; CHANNELS]; s.states];
        simd.dispatch(Forward {
            panel: &panel,
            h: &mut h,
            decays: &mut decays,
            y,
            checkpoints,
        });
        panel.store_states(&h, last);
    });
}

/// Where the gradients go.
#[derive(Clone, Copy)]
struct Outputs<'a> {
    u: Shared<'a>,
    delta: Shared<'a>,
    z: Option<Shared<'a>>,
    /// Sums of this panel.
    b: Shared<'a>,
    c: Shared<'a>,
}

/// Sums over time.
struct OverTime {
    /// Whether a panel has been taken.
    begun: bool,
    a: Vec<Lanes>,
    d: Lanes,
    bias: Lanes,
}

/// The steps of a chunk, backward.
struct Chunk<'a> {
    panel: &'a Panel<'a>,
    chunk: usize,
    checkpoints: &'a [f32],
    gradient: &'a [f32],
    /// The gradients of the states, carried from step to step.
    r: &'a mut [Lanes],
    /// States of each step, those before the first one first, and factors.
    h: &'a mut [Lanes],
    decays: &'a mut [Lanes],
    g: &'a mut [Lanes],
    sums: &'a mut OverTime,
    /// The sums of this chunk.
    a: &'a mut [Lanes],
    out: Outputs<'a>,
}

impl Loop for Chunk<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let (p, x) = (self.panel, self.panel.x);
        let states = x.shape.states;
        let from = self.chunk * STEPS;
        let count = STEPS.min(p.steps - from);
        for n in 0..states {
            self.h[n] = row(self.checkpoints, p.checkpoint(self.chunk, n), p.width);
            self.a[n] = [0.0; CHANNELS];
        }
        let empty = Step {
            u: [0.0; CHANNELS],
            x: [0.0; CHANNELS],
            dt: [0.0; CHANNELS],
            v: [0.0; CHANNELS],
        };
        let mut steps = [empty; STEPS];
        for s in 0..count {
            steps[s] = p.step(ieee, from + s);
            let (before, after) = self.h[s * states..].split_at_mut(states);
            let after = &mut after[..states];
            after.copy_from_slice(before);
            let decays = &mut self.decays[s * states..][..states];
            p.advance(ieee, from + s, &steps[s], after, decays);
        }
        let (mut d, mut bias) = ([0.0; CHANNELS], [0.0; CHANNELS]);
        for s in (0..count).rev() {
            let t = from + s;
            let (at, step) = (p.at(t), &steps[s]);
            let before = &self.h[s * states..][..states];
            let after = &self.h[(s + 1) * states..][..states];
            let decays = &self.decays[s * states..][..states];
            let mut dy = row(self.gradient, at, p.width);
            if let Some(z) = x.z {
                let z = row(z, at, p.width);
                let y = p.output(ieee, t, step, after);
                let mut dz = [0.0; CHANNELS];
                for l in 0..CHANNELS {
                    dz[l] = ieee.mul(ieee.mul(dy[l], y[l]), gate_slope(&ieee, z[l]));
                    dy[l] = ieee.mul(dy[l], silu(&ieee, z[l]));
                }
                if let Some(out) = self.out.z {
                    p.store(ieee, &dz, out, at);
                }
            }
            let b = &x.b[p.inputs(t)..][..states];
            let c = &x.c[p.inputs(t)..][..states];
            let (mut e, mut f) = (Sum::new(), Sum::new());
            for n in 0..states {
                let (r, g, a) = (&mut self.r[n], &mut self.g[n], &mut self.a[n]);
                let (e, f) = (e.four(ieee, n), f.four(ieee, n));
                for l in 0..CHANNELS {
                    g[l] = ieee.fma(dy[l], c[n], r[l]);
                    r[l] = ieee.mul(decays[n][l], g[l]);
                    let w = ieee.mul(r[l], before[n][l]);
                    a[l] = ieee.fma(w, step.dt[l], a[l]);
                    e[l] = ieee.fma(w, p.rates[n][l], e[l]);
                    f[l] = ieee.fma(g[l], b[n], f[l]);
                }
            }
            let (e, f) = (e.end(ieee), f.end(ieee));
            let (mut du, mut dx) = ([0.0; CHANNELS], [0.0; CHANNELS]);
            for l in 0..CHANNELS {
                du[l] = ieee.mul(step.dt[l], f[l]);
                dx[l] = ieee.fma(step.u[l], f[l], e[l]);
            }
            if x.d.is_some() {
                for l in 0..CHANNELS {
                    du[l] = ieee.fma(p.d[l], dy[l], du[l]);
                }
            }
            if x.softplus {
                for l in 0..CHANNELS {
                    dx[l] = length_slope(&ieee, step.x[l], dx[l], true);
                }
            }
            for l in 0..CHANNELS {
                d[l] = ieee.fma(dy[l], step.u[l], d[l]);
                bias[l] = ieee.add(bias[l], dx[l]);
            }
            p.store(ieee, &du, self.out.u, at);
            p.store(ieee, &dx, self.out.delta, at);
            over_channels(ieee, p, self.g, &step.v, self.out.b, t);
            over_channels(ieee, p, after, &dy, self.out.c, t);
        }
        let sums = self.sums;
        if sums.begun {
            for l in 0..CHANNELS {
                sums.d[l] = ieee.add(sums.d[l], d[l]);
                sums.bias[l] = ieee.add(sums.bias[l], bias[l]);
            }
            for n in 0..states {
                for l in 0..CHANNELS {
                    sums.a[n][l] = ieee.add(sums.a[n][l], self.a[n][l]);
                }
            }
        } else {
            (sums.d, sums.bias) = (d, bias);
            sums.a.copy_from_slice(self.a);
        }
        sums.begun = true;
    }
}

/// The sums over the panel's channels of `x * y`, of every state.
#[inline(always)]
fn over_channels(ieee: Ieee, p: &Panel<'_>, x: &[Lanes], y: &Lanes, out: Shared<'_>, t: usize) {
    const SIDE: usize = 8;
    let Shape { batch, time, .. } = p.x.shape;
    let panel = p.first / CHANNELS * batch * time * x.len();
    // SAFETY: each panel and step is one task's, which holds one slice at a time.
    let out = unsafe { out.part(panel + p.inputs(t), x.len()) };
    for n in (0..x.len()).step_by(SIDE) {
        let few = x.len() - n;
        // Chains side by side.
        let mut s = [0.0; SIDE];
        for l in 0..p.width {
            for i in 0..SIDE {
                let from = if i < few { n + i } else { n };
                s[i] = ieee.fma(x[from][l], y[l], s[i]);
            }
        }
        for (out, s) in out[n..].iter_mut().zip(s) {
            *out = ieee.canonical(s);
        }
    }
}

pub(super) fn backward(
    simd: Simd,
    scan: &Scan<'_>,
    checkpoints: &Buffer<f32>,
    gradient: &Buffer<f32>,
    gradient_last: Option<&Buffer<f32>>,
    out: &mut ScanGradients,
    parts: &mut Parts,
) {
    let x = Inputs::new(scan);
    let s = scan.shape;
    fn shared(x: &mut Buffer<f32>) -> Shared<'_> {
        Shared::new(x.host_mut().unwrap_or_default())
    }
    let outputs = Outputs {
        u: shared(&mut out.u),
        delta: shared(&mut out.delta),
        z: out.z.as_mut().map(shared),
        b: shared(&mut parts.b),
        c: shared(&mut parts.c),
    };
    let (initial, rates) = (shared(&mut out.initial), shared(&mut parts.a));
    let d = parts.d.as_mut().map(shared);
    let bias = parts.bias.as_mut().map(shared);
    let (Some(checkpoints), Some(gradient)) = (checkpoints.host(), gradient.host()) else {
        return;
    };
    let last = gradient_last.and_then(Buffer::host);
    let total = scan.u.len().saturating_mul(s.states + 1);
    for_parts(s.batch, s.channels, CHANNELS, total, &|member, part| {
        let panel = x.panel(member, part);
        let lanes = |n: usize| vec![[0.0; CHANNELS]; n * s.states];
        let mut r = panel.states_of(last);
        let mut h = lanes(STEPS + 1);
        let [mut decays, mut g, mut a] = [lanes(STEPS), lanes(1), lanes(1)];
        let mut sums = OverTime {
            begun: false,
            a: lanes(1),
            d: [0.0; CHANNELS],
            bias: [0.0; CHANNELS],
        };
        for chunk in (0..panel.steps.div_ceil(STEPS)).rev() {
            simd.dispatch(Chunk {
                panel: &panel,
                chunk,
                checkpoints,
                gradient,
                r: &mut r,
                h: &mut h,
                decays: &mut decays,
                g: &mut g,
                sums: &mut sums,
                a: &mut a,
                out: outputs,
            });
        }
        panel.store_states(&r, initial);
        panel.store_states(&sums.a, rates);
        let at = member * s.channels + panel.first;
        for (sum, out) in [(&sums.d, d), (&sums.bias, bias)] {
            if let Some(out) = out {
                panel.store(Ieee::PLAIN, sum, out, at);
            }
        }
    });
}

/// Adds `count` parts that follow each other, in their order.
pub(super) fn fold(from: &[f32], count: usize, to: &mut [f32]) {
    let len = to.len();
    for_chunks(to, 1 << 14, count * len > 1 << 18, &|first, to| {
        for part in 0..count {
            let from = &from[part * len + first..][..to.len()];
            for (to, x) in to.iter_mut().zip(from) {
                *to = if part == 0 {
                    *x
                } else {
                    Ieee::PLAIN.add(*to, *x)
                };
            }
        }
        for to in to {
            *to = Ieee::PLAIN.canonical(*to);
        }
    });
}
