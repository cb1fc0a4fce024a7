//! The CPU path: channels along the vectors, threads over members of the batch and channels.

use super::{Inputs, RecurrenceGradients};
use crate::device::{Buffer, Loop, Simd};
use crate::ieee::Ieee;
use rayon::prelude::*;
use std::marker::PhantomData;
use std::ops::Range;

/// Channels of a task, at most.
const CHANNELS: usize = 256;
/// Elements below which threads cost more than they bring.
const SERIAL: usize = 1 << 15;

/// An array that several threads write in disjoint places.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    data: *mut f32,
    len: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

// SAFETY: tasks reach disjoint elements, see `Shared::part`.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    pub(crate) fn new(data: &'a mut [f32]) -> Self {
        Self {
            data: data.as_mut_ptr(),
            len: data.len(),
            lifetime: PhantomData,
        }
    }

    /// `len` elements from `at` on; none where there are not so many.
    ///
    /// # Safety
    /// While the slice lives, nobody reaches any of its elements by another one.
    #[inline(always)]
    pub(crate) unsafe fn part(self, at: usize, len: usize) -> &'a mut [f32] {
        if at > self.len || len > self.len - at {
            return &mut [];
        }
        // SAFETY: the elements exist, and the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(at), len) }
    }
}

/// `work(member, channels)` for every member of a batch and all channels, no more than `most` of
/// those at a time; by threads where there are `total` elements that are worth it.
pub(crate) fn for_parts(
    batch: usize,
    channels: usize,
    most: usize,
    total: usize,
    work: &(dyn Fn(usize, Range<usize>) + Sync),
) {
    let parts = channels.div_ceil(most);
    let part = |index: usize| {
        let from = index % parts * most;
        work(index / parts, from..(from + most).min(channels));
    };
    if total < SERIAL || batch * parts < 2 {
        (0..batch * parts).for_each(part);
    } else {
        (0..batch * parts).into_par_iter().for_each(part);
    }
}

/// `out = fma(a, h, b)`.
struct Step<'a> {
    a: &'a [f32],
    h: &'a [f32],
    b: &'a [f32],
    out: &'a mut [f32],
}

impl Loop for Step<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let n = self.out.len();
        let (a, b, h) = (&self.a[..n], &self.b[..n], &self.h[..n]);
        for i in 0..n {
            self.out[i] = ieee.canonical(ieee.fma(a[i], h[i], b[i]));
        }
    }
}

pub(super) fn forward(
    simd: Simd,
    [time, channels]: [usize; 2],
    a: &[f32],
    b: &[f32],
    initial: Option<&[f32]>,
    states: &mut [f32],
    last: &mut [f32],
) {
    let batch = last.len() / channels;
    let (states, last) = (Shared::new(states), Shared::new(last));
    for_parts(batch, channels, CHANNELS, a.len(), &|member, part| {
        let n = part.len();
        let chain = member * channels + part.start;
        let mut before = [0.0; CHANNELS];
        if let Some(initial) = initial {
            before[..n].copy_from_slice(&initial[chain..][..n]);
        }
        for t in 0..time {
            let at = (member * time + t) * channels + part.start;
            // SAFETY: each member and channel is one task's, which holds one step at a time.
            let out = unsafe { states.part(at, n) };
            simd.dispatch(Step {
                a: &a[at..][..n],
                h: &before[..n],
                b: &b[at..][..n],
                out,
            });
            before[..n].copy_from_slice(out);
        }
        // SAFETY: as above.
        let last = unsafe { last.part(chain, n) };
        for (last, h) in last.iter_mut().zip(&before) {
            *last = Ieee::PLAIN.canonical(*h);
        }
    });
}

struct Back<'a> {
    a: &'a [f32],
    before: &'a [f32],
    gradient: &'a [f32],
    r: &'a mut [f32],
    da: &'a mut [f32],
    db: &'a mut [f32],
}

impl Loop for Back<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, ieee: Ieee) {
        let n = self.r.len();
        let (a, before, gradient) = (&self.a[..n], &self.before[..n], &self.gradient[..n]);
        let (da, db) = (&mut self.da[..n], &mut self.db[..n]);
        for i in 0..n {
            let g = ieee.add(self.r[i], gradient[i]);
            da[i] = ieee.canonical(ieee.mul(g, before[i]));
            db[i] = ieee.canonical(g);
            self.r[i] = ieee.mul(a[i], g);
        }
    }
}

pub(super) fn backward(
    simd: Simd,
    [time, channels]: [usize; 2],
    inputs: &Inputs<'_>,
    out: &mut RecurrenceGradients,
) {
    let (Some(a), Some(states), Some(gradient), Some(da), Some(db), Some(first)) = (
        inputs.a.host(),
        inputs.states.host(),
        inputs.gradient.host(),
        out.a.host_mut(),
        out.b.host_mut(),
        out.initial.host_mut(),
    ) else {
        return;
    };
    let initial = inputs.initial.and_then(Buffer::host);
    let gradient_last = inputs.gradient_last.and_then(Buffer::host);
    let batch = first.len() / channels;
    let [da, db, first] = [Shared::new(da), Shared::new(db), Shared::new(first)];
    for_parts(batch, channels, CHANNELS, a.len(), &|member, part| {
        let n = part.len();
        let chain = member * channels + part.start;
        let start = match initial {
            Some(initial) => &initial[chain..][..n],
            None => &[0.0; CHANNELS][..n],
        };
        let mut r = [0.0; CHANNELS];
        if let Some(last) = gradient_last {
            r[..n].copy_from_slice(&last[chain..][..n]);
        }
        for t in (0..time).rev() {
            let at = (member * time + t) * channels + part.start;
            // SAFETY: each member and channel is one task's, which holds one step at a time.
            let (da, db) = unsafe { (da.part(at, n), db.part(at, n)) };
            simd.dispatch(Back {
                a: &a[at..][..n],
                before: match t {
                    0 => start,
                    _ => &states[at - channels..][..n],
                },
                gradient: &gradient[at..][..n],
                r: &mut r[..n],
                da,
                db,
            });
        }
        // SAFETY: as above.
        let first = unsafe { first.part(chain, n) };
        for (first, r) in first.iter_mut().zip(&r) {
            *first = Ieee::PLAIN.canonical(*r);
        }
    });
}
