//! Scaled dot-product attention, forward and backward, without its matrix of weights.
//!
//! Queries are `[batch, heads, queries, width]`, keys and values `[batch, kv_heads, keys, width]`,
//! all contiguous. Query head `h` reads key head `h / (heads / kv_heads)`. A query sees the keys
//! below a limit: all of them, those of its [causal](Attention::causal) past, and of these the first
//! `lengths[b]`. A key that it does not see takes no part for it, whatever it holds.
//!
//! # Order
//! The score of a query and a key is their product over the width in the order of
//! [matrix products](super::gemm#order-n6), times `scale`, rounded (`N6`).
//!
//! The keys are cut into **segments of [`SEGMENT`]** (1024) and these into **blocks of [`BLOCK`]**
//! (64), from key 0 on. A segment starts with `m` the lowest finite number, `l` and `o` +0, and
//! takes the blocks in ascending order, of the keys that the query sees:
//! - `n` is the largest of `m` and the block's scores, passing over NaN, and `c = w(m - n)`;
//! - the key's weight is `p = w(score - n)`;
//! - `l = fma(l, c, s)` with `s` the sum of the weights in the tree of `N5` over 64 lanes: key `j`
//!   of the block takes key `j + 32`, then `j + 16`, down to key 0, missing ones being +0;
//! - `o = o * c`, rounded, then `o = fma(p, v, o)` over the block's keys in ascending order;
//! - `m = n`.
//!
//! `w(x)` is e^x ([`exp`](fn@crate::math::exp)), and +0 below x = -87. The segments meet in ascending
//! order, beginning with `M` the lowest finite number, `L` and `O` +0: `N` is the larger of `M` and
//! `m`, `a = w(M - N)`, `b = w(m - N)`, `L = fma(l, b, L * a)`, `O = fma(o, b, O * a)`, `M = N`,
//! products rounded. The output is `O / L` and the log-sum-exp `M + ln(L)`.
//!
//! Backward, with the outputs and log-sum-exps of the forward pass: `p = w(score - log_sum_exp)`,
//! `D` the product over the width of `d_out` and `out`, `e` that of `d_out` and the value (`N6`),
//! and the score's gradient is `g = p * (e - D)`, each rounded. The sums of products `g * key` over
//! keys (for queries), `g * query` (for keys) and `p * d_out` (for values) over queries are chains
//! of fused multiply-adds from +0 over panels of 256 places in ascending order, whose sums are
//! added in ascending order to +0 (`N6`); those of queries and keys are times `scale` in the end,
//! rounded. Where several heads read a key, the queries' places go on from head to head. Pairs that
//! don't see each other are left out.
//!
//! So the bits for a query depend on it and the keys it sees alone (`N7`): decoding step by step
//! equals a prefill, and neither padding nor other members of the batch show.
//!
//! # Edge cases
//! A zero is stored as +0 and a NaN as 0x7fc00000 (`N11`). A query that sees no key has an output of
//! zeros, the log-sum-exp -inf and gradients of zeros, and a key that no query sees has gradients
//! of zeros. A query with a score that is NaN or +inf, or with none above -inf, is NaN.
//!
//! # Memory
//! Besides inputs and results: forward, nothing but a few numbers for each query (a group of few
//! queries on a GPU: `width + 2` numbers for each query and segment); backward, one number for each
//! query; on the CPU a few tiles of 32 rows for each thread.

mod cpu;
mod gpu;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;

use crate::device::{Buffer, Device, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::same_device;
use crate::prim;
use cubecl::prelude::*;
use detml_core::{Error, Result};

/// Keys whose weights refer to one maximum: a part of the contract.
pub const BLOCK: usize = 64;
/// Keys whose blocks follow each other: a part of the contract.
pub const SEGMENT: usize = 1024;
/// Where a maximum begins: the lowest finite number.
const LOWEST: f32 = f32::MIN;

/// The shapes of an attention and what its queries see.
///
/// ```
/// use detml_kernels::{Device, ops::attention::{Attention, attention}};
///
/// let device = Device::cpu();
/// // Two queries and two keys of width 1.
/// let q = device.upload(&[1.0, 1.0])?;
/// let k = device.upload(&[0.0, 0.0])?;
/// let v = device.upload(&[2.0, 4.0])?;
/// let shape = Attention::new(1, 1, [2, 2], 1).causal();
/// let y = attention(&shape, &q, &k, &v, None)?;
/// assert_eq!(device.read(&y.out)?, [2.0, 3.0]);
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
    /// The first query's place among the keys.
    first: Option<i64>,
    scale: Option<f32>,
}

impl Attention {
    /// `heads` heads for queries as for keys, every query seeing every key, scores times
    /// `1 / sqrt(width)`.
    pub fn new(batch: usize, heads: usize, [queries, keys]: [usize; 2], width: usize) -> Self {
        Self {
            batch,
            heads,
            kv_heads: heads,
            queries,
            keys,
            width,
            first: None,
            scale: None,
        }
    }

    /// Heads of the keys and values, of which `heads` is a multiple.
    pub fn kv_heads(mut self, kv_heads: usize) -> Self {
        self.kv_heads = kv_heads;
        self
    }

    /// Query `i` sees keys up to `i + keys - queries`: the last query sees all.
    pub fn causal(self) -> Self {
        let first = self.keys as i64 - self.queries as i64;
        self.causal_from(first)
    }

    /// Query `i` sees keys up to `i + first`: `first` is the place of the first query among the
    /// keys, as where the keys are a cache that has room for more.
    pub fn causal_from(mut self, first: i64) -> Self {
        self.first = Some(first);
        self
    }

    /// The factor of scores, instead of `1 / sqrt(width)`: the square root and the quotient rounded.
    pub fn scale(mut self, scale: f32) -> Self {
        self.scale = Some(scale);
        self
    }

    fn check(&self) -> Result<Problem> {
        if self.width == 0 {
            return Err(Error::parameter("width", "at least 1", 0));
        }
        if self.kv_heads == 0 || self.heads % self.kv_heads != 0 {
            return Err(Error::parameter(
                "kv_heads",
                format!("a divisor of {} heads", self.heads),
                self.kv_heads,
            ));
        }
        let size = |parts: [usize; 4]| {
            parts
                .into_iter()
                .try_fold(1usize, usize::checked_mul)
                .filter(|size| *size <= isize::MAX as usize / size_of::<f32>())
                .ok_or_else(|| {
                    Error::shape(
                        "attention",
                        "sizes that memory can hold",
                        format!("{parts:?}"),
                    )
                })
        };
        let query_size = size([self.batch, self.heads, self.queries, self.width])?;
        let key_size = size([self.batch, self.kv_heads, self.keys, self.width])?;
        // Sizes of nothing may hide large factors.
        for part in [self.batch, self.heads, self.queries, self.keys, self.width] {
            if part > i32::MAX as usize {
                return Err(Error::unsupported(
                    format!("an attention with a dimension of {part}"),
                    "a dimension is at most 2^31 - 1",
                ));
            }
        }
        let ieee = Ieee::PLAIN;
        Ok(Problem {
            batch: self.batch,
            heads: self.heads,
            kv_heads: self.kv_heads,
            queries: self.queries,
            keys: self.keys,
            width: self.width,
            // Without it the first query sees all keys.
            first: self.first.unwrap_or(self.keys as i64),
            scale: self
                .scale
                .unwrap_or_else(|| ieee.div(1.0, ieee.sqrt(ieee.from_u32(self.width as u32)))),
            query_size,
            key_size,
        })
    }
}

/// An [`Attention`] that has been checked.
#[derive(Clone, Copy, Debug)]
struct Problem {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
    first: i64,
    scale: f32,
    query_size: usize,
    key_size: usize,
}

impl Problem {
    /// Queries of all heads and members.
    fn rows(&self) -> usize {
        self.batch * self.heads * self.queries
    }

    /// Query heads that read one key head.
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// The keys that query `i` of a member sees: the first so many. `lengths` may be empty.
    fn visible(&self, lengths: &[u32], batch: usize, i: usize) -> usize {
        let length = lengths
            .get(batch)
            .map_or(self.keys, |n| self.keys.min(*n as usize));
        let causal = (i as i64).saturating_add(self.first).saturating_add(1);
        causal.clamp(0, length as i64) as usize
    }

    /// The member, key head and query of a row.
    #[cfg(test)]
    fn place(&self, row: usize) -> (usize, usize, usize) {
        let head = row / self.queries;
        (
            head / self.heads,
            head % self.heads / self.group(),
            row % self.queries,
        )
    }

    /// The keys or values of a head.
    fn head<'a>(&self, x: &'a [f32], batch: usize, head: usize) -> &'a [f32] {
        let size = self.keys * self.width;
        &x[(batch * self.kv_heads + head) * size..][..size]
    }

    #[cfg(test)]
    fn row<'a>(&self, x: &'a [f32], row: usize) -> &'a [f32] {
        &x[row * self.width..][..self.width]
    }
}

/// The larger one, `m` where `s` is NaN.
#[cube]
#[inline(always)]
fn larger(ieee: &Ieee, m: f32, s: f32) -> f32 {
    ieee.select(ieee.lt(m, s), s, m)
}

/// `x` as it is stored: neither -0 nor a NaN but the canonical one.
#[cube]
#[inline(always)]
fn finish(ieee: &Ieee, x: f32) -> f32 {
    let bits = prim::bits(ieee.canonical(x));
    prim::from_bits(prim::select_u32(bits == 0x8000_0000u32, 0u32, bits))
}

/// What [`attention`] gives.
#[derive(Debug)]
pub struct Output {
    /// `[batch, heads, queries, width]`.
    pub out: Buffer<f32>,
    /// The logarithm of the sum of e^score for each query, `[batch, heads, queries]`.
    pub log_sum_exp: Buffer<f32>,
}

/// What [`attention_backward`] gives, each of its input's shape.
#[derive(Debug)]
pub struct Gradients {
    /// Of the queries.
    pub q: Buffer<f32>,
    /// Of the keys.
    pub k: Buffer<f32>,
    /// Of the values.
    pub v: Buffer<f32>,
}

/// `softmax(scale * q k^T) v`, see [the order](self#order).
///
/// `lengths` has for each member of the batch the number of keys that exist; one beyond `keys`
/// counts as `keys`.
///
/// # Errors
/// `InvalidParameter` for a width of 0, `kv_heads` that don't divide `heads` or buffers on different
/// devices; `Shape` if a buffer has not the size of its shape; `Unsupported` where a GPU can't
/// index a buffer; what the device reports.
pub fn attention(
    shape: &Attention,
    q: &Buffer<f32>,
    k: &Buffer<f32>,
    v: &Buffer<f32>,
    lengths: Option<&Buffer<u32>>,
) -> Result<Output> {
    forward(shape, [q, k, v], lengths, Schedule::default())
}

/// The gradients of [`attention`], where `d_out` is that of its output.
///
/// # Errors
/// As [`attention`].
pub fn attention_backward(
    shape: &Attention,
    q: &Buffer<f32>,
    k: &Buffer<f32>,
    v: &Buffer<f32>,
    lengths: Option<&Buffer<u32>>,
    output: &Output,
    d_out: &Buffer<f32>,
) -> Result<Gradients> {
    backward(
        shape,
        [q, k, v],
        lengths,
        output,
        d_out,
        Schedule::default(),
    )
}

/// How an attention is computed; no choice shows in the bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Schedule {
    gpu: gpu::Plan,
}

fn size(what: &str, buffer: usize, expected: usize) -> Result<()> {
    if buffer == expected {
        return Ok(());
    }
    Err(Error::shape(
        "attention",
        format!("{expected} elements of {what}"),
        buffer,
    ))
}

fn check(
    shape: &Attention,
    [q, k, v]: [&Buffer<f32>; 3],
    lengths: Option<&Buffer<u32>>,
) -> Result<(Problem, Device)> {
    let p = shape.check()?;
    let device = q.device();
    size("q", q.len(), p.query_size)?;
    size("k", k.len(), p.key_size)?;
    size("v", v.len(), p.key_size)?;
    same_device(device, k.device())?;
    same_device(device, v.device())?;
    if let Some(lengths) = lengths {
        size("lengths", lengths.len(), p.batch)?;
        same_device(device, lengths.device())?;
    }
    Ok((p, device.clone()))
}

fn forward(
    shape: &Attention,
    inputs: [&Buffer<f32>; 3],
    lengths: Option<&Buffer<u32>>,
    schedule: Schedule,
) -> Result<Output> {
    let (p, device) = check(shape, inputs, lengths)?;
    let mut out = device.empty(p.query_size)?;
    let mut log_sum_exp = device.empty(p.rows())?;
    if p.rows() > 0 {
        if let (Some(simd), [Some(q), Some(k), Some(v)], Some(o), Some(sums)) = (
            device.simd(),
            inputs.map(Buffer::host),
            out.host_mut(),
            log_sum_exp.host_mut(),
        ) {
            let lengths = lengths.and_then(Buffer::host).unwrap_or(&[]);
            cpu::forward(simd, &p, [q, k, v], lengths, o, sums);
        } else {
            gpu::forward(
                &device,
                &p,
                inputs,
                lengths,
                &mut out,
                &mut log_sum_exp,
                schedule.gpu,
            )?;
        }
    }
    Ok(Output { out, log_sum_exp })
}

fn backward(
    shape: &Attention,
    inputs: [&Buffer<f32>; 3],
    lengths: Option<&Buffer<u32>>,
    output: &Output,
    d_out: &Buffer<f32>,
    schedule: Schedule,
) -> Result<Gradients> {
    let (p, device) = check(shape, inputs, lengths)?;
    size("the output", output.out.len(), p.query_size)?;
    size("d_out", d_out.len(), p.query_size)?;
    size("log-sum-exps", output.log_sum_exp.len(), p.rows())?;
    for buffer in [&output.out, &output.log_sum_exp, d_out] {
        same_device(&device, buffer.device())?;
    }
    let mut gradients = Gradients {
        q: device.empty(p.query_size)?,
        k: device.empty(p.key_size)?,
        v: device.empty(p.key_size)?,
    };
    let known = [&output.out, &output.log_sum_exp, d_out];
    if let (Some(simd), [Some(q), Some(k), Some(v)], [Some(out), Some(sums), Some(d_out)]) = (
        device.simd(),
        inputs.map(Buffer::host),
        known.map(Buffer::host),
    ) {
        let Gradients {
            q: dq,
            k: dk,
            v: dv,
        } = &mut gradients;
        if let (Some(dq), Some(dk), Some(dv)) = (dq.host_mut(), dk.host_mut(), dv.host_mut()) {
            let lengths = lengths.and_then(Buffer::host).unwrap_or(&[]);
            let known = [out, sums, d_out];
            cpu::backward(simd, &p, [q, k, v], lengths, known, [dq, dk, dv])?;
        }
    } else {
        gpu::backward(
            &device,
            &p,
            inputs,
            lengths,
            known,
            &mut gradients,
            schedule.gpu,
        )?;
    }
    Ok(gradients)
}

/// Tiles of [`attention_scheduled`]: rows, rows of a unit, and columns.
#[doc(hidden)]
pub const SCHEDULES: [&str; 9] = [
    "128x8x64",
    "128x8x128",
    "64x8x64",
    "64x8x128",
    "64x4x64",
    "64x4x128",
    "32x4x64",
    "32x4x128",
    "16x4x32",
];

fn schedule(name: &str) -> Result<Schedule> {
    let (tile, split) = match name.strip_suffix("+split") {
        Some(tile) => (tile, Some(true)),
        None if name.is_empty() => return Ok(Schedule::default()),
        None => (name, Some(false)),
    };
    let gpu = gpu::Plan {
        tile: gpu::Tile::named(tile),
        split,
    };
    match gpu.tile {
        Some(_) => Ok(Schedule { gpu }),
        None => Err(Error::parameter(
            "schedule",
            "ROWSxEACHxCOLUMNS[+split]",
            name,
        )),
    }
}

/// [`attention`] by a schedule named as `ROWSxEACHxCOLUMNS[+split]`, for benchmarks: the bits are
/// the same.
#[doc(hidden)]
pub fn attention_scheduled(
    name: &str,
    shape: &Attention,
    q: &Buffer<f32>,
    k: &Buffer<f32>,
    v: &Buffer<f32>,
    lengths: Option<&Buffer<u32>>,
) -> Result<Output> {
    forward(shape, [q, k, v], lengths, schedule(name)?)
}

/// [`attention_backward`], likewise.
#[doc(hidden)]
pub fn attention_backward_scheduled(
    name: &str,
    shape: &Attention,
    q: &Buffer<f32>,
    k: &Buffer<f32>,
    v: &Buffer<f32>,
    lengths: Option<&Buffer<u32>>,
    output: &Output,
    d_out: &Buffer<f32>,
) -> Result<Gradients> {
    backward(shape, [q, k, v], lengths, output, d_out, schedule(name)?)
}

/// A representative of each variant of every kernel.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    gpu::kernels(profile)
}
