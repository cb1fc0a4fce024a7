//! Products of matrices.
//!
//! # Order (`N6`)
//! Each element is `sum over k of a[i, k] * b[k, j]`, formed in one order whatever the shapes,
//! layouts, batch, device or number of threads:
//! - k is cut into panels of [`PANEL`] terms, the last one as long as it needs to be;
//! - a panel's sum is one chain of fused multiply-adds over ascending k that starts from +0;
//! - the panels' sums are added in ascending order, beginning with the first one's sum.
//!
//! With `total` the result of that (+0 for k = 0), the element stored is
//! - `alpha * total`, where `beta` is zero (of either sign): `c` is not read;
//! - `fma(beta, c, alpha * total)` else: the product with `alpha` rounded, then one fma.
//!
//! `alpha` is always a factor: `alpha = 0` makes NaN of an infinite total, and -0 of a negative
//! one. A NaN is stored as 0x7fc00000 (`N11`): whether a chain of additions and fused
//! multiply-adds ends in a NaN does not depend on the sign or payload of the NaN it met, so
//! replacing the NaN at the end is enough.
//!
//! An element depends on its row of `a` and its column of `b` alone (`N7`).
//!
//! # Memory on a CPU
//! Each thread keeps at most 3 MiB between products: packed blocks of the operands and, where
//! they can't stand in `c`, totals. A product whose `c` is small and whose k is long also holds
//! sums of panels, at most 2 MiB for each thread and 3 MiB besides.

pub(in crate::ops) mod cpu;
mod gpu;
pub(in crate::ops) mod lanes;
#[cfg(test)]
mod plain;

use crate::device::{Buffer, Device, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use crate::ops::same_device;
use cubecl::prelude::*;
use detml_core::{Error, Result};

/// Terms in a panel (`N6`): a part of the contract, see `docs/numerics.md`.
pub const PANEL: usize = 256;

/// A matrix, or a batch of them, in a buffer.
///
/// Element `(i, j)` of member `b` is the buffer's element
/// `offset + b * batch_stride + i * row_stride + j * column_stride`. Any strides will do, also 0,
/// which repeats a row, a column or a matrix.
///
/// ```
/// use detml_kernels::{Device, ops::gemm::{Matrix, matmul}};
///
/// let device = Device::cpu();
/// let a = device.upload(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// // [1 2 3; 4 5 6] times its transpose.
/// let a = Matrix::new(&a, 2, 3);
/// let c = matmul(a, a.transposed())?;
/// assert_eq!(device.read(&c)?, [14.0, 32.0, 32.0, 77.0]);
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    buffer: &'a Buffer<f32>,
    layout: Layout,
}

/// A matrix, or a batch of them, that is written: each row lies in one piece.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    buffer: &'a mut Buffer<f32>,
    layout: Layout,
}

/// Where the elements of a batch of matrices lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) offset: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_stride: usize,
    pub(crate) column_stride: usize,
    pub(crate) batch_stride: usize,
}

impl Layout {
    fn new(rows: usize, columns: usize) -> Self {
        Self {
            offset: 0,
            rows,
            columns,
            row_stride: columns,
            column_stride: 1,
            batch_stride: rows.saturating_mul(columns),
        }
    }

    /// The elements that the buffer must hold for a batch of `batch`.
    fn needed(&self, batch: usize) -> Option<usize> {
        if batch == 0 || self.rows == 0 || self.columns == 0 {
            return Some(0);
        }
        let span = |n: usize, stride: usize| (n - 1).checked_mul(stride);
        self.offset
            .checked_add(span(batch, self.batch_stride)?)?
            .checked_add(span(self.rows, self.row_stride)?)?
            .checked_add(span(self.columns, self.column_stride)?)?
            .checked_add(1)
    }

    /// The place of an element.
    #[cfg(test)]
    pub(crate) fn at(&self, batch: usize, row: usize, column: usize) -> usize {
        self.offset
            + batch * self.batch_stride
            + row * self.row_stride
            + column * self.column_stride
    }

    fn check(&self, op: &str, what: &str, batch: usize, len: usize) -> Result<()> {
        match self.needed(batch) {
            Some(needed) if needed <= len => Ok(()),
            needed => Err(Error::shape(
                op,
                format_args!(
                    "at least {} elements for {what}",
                    needed.map_or("2^64".into(), |n| n.to_string())
                ),
                len,
            )),
        }
    }
}

impl<'a> Matrix<'a> {
    /// `rows` rows of `columns` elements, one after the other from the buffer's start; the
    /// members of a batch follow each other.
    pub fn new(buffer: &'a Buffer<f32>, rows: usize, columns: usize) -> Self {
        Self {
            buffer,
            layout: Layout::new(rows, columns),
        }
    }

    /// The first element's place in the buffer.
    pub fn offset(mut self, offset: usize) -> Self {
        self.layout.offset = offset;
        self
    }

    /// Elements from a row to the next and from a column to the next.
    pub fn strides(mut self, row: usize, column: usize) -> Self {
        self.layout.row_stride = row;
        self.layout.column_stride = column;
        self
    }

    /// Elements from a member of a batch to the next; 0 gives all the same matrix.
    pub fn batch_stride(mut self, stride: usize) -> Self {
        self.layout.batch_stride = stride;
        self
    }

    /// Rows and columns exchanged; nothing moves.
    pub fn transposed(mut self) -> Self {
        let layout = &mut self.layout;
        std::mem::swap(&mut layout.rows, &mut layout.columns);
        std::mem::swap(&mut layout.row_stride, &mut layout.column_stride);
        self
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.layout.rows
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.layout.columns
    }
}

impl<'a> MatrixMut<'a> {
    /// `rows` rows of `columns` elements, one after the other from the buffer's start; the
    /// members of a batch follow each other.
    pub fn new(buffer: &'a mut Buffer<f32>, rows: usize, columns: usize) -> Self {
        Self {
            buffer,
            layout: Layout::new(rows, columns),
        }
    }

    /// The first element's place in the buffer.
    pub fn offset(mut self, offset: usize) -> Self {
        self.layout.offset = offset;
        self
    }

    /// Elements from a row to the next; at least the number of columns.
    pub fn row_stride(mut self, stride: usize) -> Self {
        self.layout.row_stride = stride;
        self
    }

    /// Elements from a member of a batch to the next, which must not overlap.
    pub fn batch_stride(mut self, stride: usize) -> Self {
        self.layout.batch_stride = stride;
        self
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.layout.rows
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.layout.columns
    }
}

/// The numbers of a product, its shapes already known to agree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem {
    pub(crate) batch: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
    /// [`PANEL`], but for tests that show that it matters.
    pub(crate) panel: usize,
}

impl Problem {
    /// Whether `alpha` changes anything.
    pub(crate) fn scaled(&self) -> bool {
        self.alpha != 1.0
    }

    /// Whether `c` is read.
    pub(crate) fn added(&self) -> bool {
        self.beta != 0.0
    }
}

/// The element stored for a sum.
#[cube]
#[inline(always)]
pub(crate) fn finish(
    ieee: Ieee,
    total: f32,
    alpha: f32,
    beta: f32,
    c: f32,
    #[comptime] scaled: bool,
    #[comptime] added: bool,
) -> f32 {
    let mut x = total;
    if comptime!(scaled) {
        x = ieee.mul(alpha, x);
    }
    if comptime!(added) {
        x = ieee.fma(beta, c, x);
    }
    ieee.canonical(x)
}

/// `c = alpha * a * b + beta * c`, see [the order](self#order-n6).
///
/// # Errors
/// `Shape` if the matrices do not fit together, a buffer is too short, or rows of `c` overlap;
/// `InvalidParameter` if the buffers are on different devices; what the device reports.
pub fn gemm(alpha: f32, a: Matrix<'_>, b: Matrix<'_>, beta: f32, c: MatrixMut<'_>) -> Result<()> {
    gemm_batched(1, alpha, a, b, beta, c)
}

/// [`gemm`] for each member of a batch.
///
/// # Errors
/// As [`gemm`], and `Shape` if members of `c` overlap.
pub fn gemm_batched(
    batch: usize,
    alpha: f32,
    a: Matrix<'_>,
    b: Matrix<'_>,
    beta: f32,
    c: MatrixMut<'_>,
) -> Result<()> {
    let problem = check(batch, alpha, &a, &b, beta, &c)?;
    run(&problem, a, b, c, Schedule::default())
}

/// `a * b` in a new buffer, row after row.
///
/// # Errors
/// As [`gemm`].
pub fn matmul(a: Matrix<'_>, b: Matrix<'_>) -> Result<Buffer<f32>> {
    matmul_batched(1, a, b)
}

/// [`matmul`] for each member of a batch; the products follow each other.
///
/// # Errors
/// As [`gemm`].
pub fn matmul_batched(batch: usize, a: Matrix<'_>, b: Matrix<'_>) -> Result<Buffer<f32>> {
    let (m, n) = (a.rows(), b.columns());
    let device = a.buffer.device();
    let len = batch
        .checked_mul(m)
        .and_then(|x| x.checked_mul(n))
        .filter(|len| *len <= isize::MAX as usize / size_of::<f32>())
        .ok_or_else(|| {
            Error::shape(
                "matmul",
                "an output that memory can hold",
                format_args!("{batch} of {m} x {n}"),
            )
        })?;
    // The inputs are checked before memory is asked for.
    agree("matmul", batch, &a, &b)?;
    let mut c = device.empty(len)?;
    gemm_batched(batch, 1.0, a, b, 0.0, MatrixMut::new(&mut c, m, n))?;
    Ok(c)
}

fn agree(op: &str, batch: usize, a: &Matrix<'_>, b: &Matrix<'_>) -> Result<()> {
    if a.columns() != b.rows() {
        return Err(Error::shape(
            op,
            format_args!("{} rows of b, as a has columns", a.columns()),
            b.rows(),
        ));
    }
    a.layout.check(op, "a", batch, a.buffer.len())?;
    b.layout.check(op, "b", batch, b.buffer.len())
}

fn check(
    batch: usize,
    alpha: f32,
    a: &Matrix<'_>,
    b: &Matrix<'_>,
    beta: f32,
    c: &MatrixMut<'_>,
) -> Result<Problem> {
    let op = "gemm";
    agree(op, batch, a, b)?;
    let (m, n, k) = (a.rows(), b.columns(), a.columns());
    if (c.rows(), c.columns()) != (m, n) {
        return Err(Error::shape(
            op,
            format_args!("c of {m} x {n}"),
            format_args!("{} x {}", c.rows(), c.columns()),
        ));
    }
    c.layout.check(op, "c", batch, c.buffer.len())?;
    if m > 1 && c.layout.row_stride < n {
        return Err(Error::shape(
            op,
            format_args!("rows of c at least {n} elements apart"),
            c.layout.row_stride,
        ));
    }
    let member = Layout {
        offset: 0,
        ..c.layout
    };
    let member = member.needed(1).unwrap_or(usize::MAX);
    if batch > 1 && c.layout.batch_stride < member {
        return Err(Error::shape(
            op,
            format_args!("members of c at least {member} elements apart"),
            c.layout.batch_stride,
        ));
    }
    same_device(c.buffer.device(), a.buffer.device())?;
    same_device(c.buffer.device(), b.buffer.device())?;
    Ok(Problem {
        batch,
        m,
        n,
        k,
        alpha,
        beta,
        panel: PANEL,
    })
}

/// How a product is computed; no choice shows in the bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Schedule {
    cpu: cpu::Plan,
    gpu: gpu::Plan,
}

fn run(
    problem: &Problem,
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: MatrixMut<'_>,
    schedule: Schedule,
) -> Result<()> {
    if problem.batch == 0 || problem.m == 0 || problem.n == 0 {
        return Ok(());
    }
    let device: Device = c.buffer.device().clone();
    let (la, lb, lc) = (a.layout, b.layout, c.layout);
    if let (Some(simd), Some(x), Some(y), Some(z)) = (
        device.simd(),
        a.buffer.host(),
        b.buffer.host(),
        c.buffer.host_mut(),
    ) {
        let a = cpu::Source {
            data: x.get(la.offset..).unwrap_or_default(),
            lane: la.row_stride,
            k: la.column_stride,
            batch: la.batch_stride,
        };
        let b = cpu::Source {
            data: y.get(lb.offset..).unwrap_or_default(),
            lane: lb.column_stride,
            k: lb.row_stride,
            batch: lb.batch_stride,
        };
        let c = cpu::Target::new(&mut z[lc.offset..], lc.row_stride, 1, lc.batch_stride);
        cpu::gemm(simd, problem, a, b, c, schedule.cpu);
        return Ok(());
    }
    let source = |buffer, layout: Layout, [lane, k]: [usize; 2]| gpu::Source {
        buffer,
        offset: layout.offset,
        axes: gpu::Axes::Strides([lane, k]),
        batch: layout.batch_stride,
    };
    let a = source(a.buffer, la, [la.row_stride, la.column_stride]);
    let b = source(b.buffer, lb, [lb.column_stride, lb.row_stride]);
    let place = gpu::Place {
        offset: lc.offset,
        axes: gpu::Axes::Strides([lc.row_stride, lc.column_stride]),
        batch: lc.batch_stride,
    };
    gpu::gemm(&device, problem, a, b, c.buffer, place, schedule.gpu)
}

/// [`gemm_batched`] with `alpha = 1`, `beta = 0` by a schedule, for benchmarks: the bits are those
/// of the default one. A schedule is words joined by `+`: a tile
/// `ROWSxCOLUMNSxDEPTHxUNIT_ROWSxUNIT_COLUMNS`, `registers` or `shared` (where panels fold),
/// `split` or `whole`, `swap` or `keep`, `pack` or `direct`,
/// `thin` or `tiled`. What isn't named is chosen by shape.
#[doc(hidden)]
pub fn gemm_scheduled(
    schedule: &str,
    batch: usize,
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: MatrixMut<'_>,
) -> Result<()> {
    let mut plan = gpu::Plan::default();
    for word in schedule.split('+') {
        match word {
            "registers" => plan.fold = Some(gpu::Fold::Registers),
            "shared" => plan.fold = Some(gpu::Fold::Shared),
            "split" | "whole" => plan.split = Some(word == "split"),
            "swap" | "keep" => plan.swap = Some(word == "swap"),
            "pack" | "direct" => plan.pack = Some(word == "pack"),
            "thin" | "tiled" => plan.thin = Some(word == "thin"),
            tile => match gpu::Tile::parse(tile) {
                Some(tile) => plan.tile = Some(tile),
                None => {
                    return Err(Error::parameter("schedule", "words joined by +", schedule));
                }
            },
        }
    }
    let problem = check(batch, 1.0, &a, &b, 0.0, &c)?;
    let schedule = Schedule {
        gpu: plan,
        ..Schedule::default()
    };
    run(&problem, a, b, c, schedule)
}

/// Where operands and an output of [`product`] lie.
pub(crate) use gpu::{Axes, Place, Source};

/// The product of operands that lie anywhere on a GPU, also where tables say, in
/// [the order](self#order-n6): `alpha * a * b + beta * c` for each member of a batch. Of `p.m`,
/// `p.n` and `p.batch` none is 0; `p.panel` is [`PANEL`].
///
/// Tables hold a place for every lane (row of `a`, column of `b`) and term, or row and column of
/// `c`; an element lies at `offset + member * batch + first[lane] + second[term]`. The caller
/// has seen to it that all elements lie in their buffers, and that those of `c` are apart.
///
/// # Errors
/// What the device reports.
pub(crate) fn product(
    p: &Problem,
    a: Source<'_>,
    b: Source<'_>,
    c: &mut Buffer<f32>,
    place: Place<'_>,
) -> Result<()> {
    let device = c.device().clone();
    gpu::gemm(&device, p, a, b, c, place, gpu::Plan::default())
}

/// A representative of each variant of every kernel.
pub(crate) fn kernels(profile: FloatProfile) -> Vec<Kernel> {
    gpu::kernels(profile)
}

#[cfg(test)]
mod tests;
