//! The computations that are traced stage by stage.

use crate::column::column;
use crate::fixtures::Fixture;
use crate::trace::{Head, Stage, Trace};
use detml_core::{BitHash, BitHashed, BitHasher, HashScalar, NUMERIC_PROFILE, Result};
use detml_kernels::ops::elementwise::{Binary, Operand, Unary, map, zip_matrix};
use detml_kernels::ops::gather;
use detml_kernels::ops::gemm::{Matrix, matmul};
use detml_kernels::ops::reduce::{self, Axis};
use detml_kernels::ops::sort::{self, Order};
use detml_kernels::{Buffer, Device};

struct Recorder<'a> {
    device: &'a Device,
    stages: Vec<Stage>,
}

impl Recorder<'_> {
    fn hash(&mut self, stage: &str, hash: BitHash) {
        self.stages.push(Stage {
            stage: stage.into(),
            hash: hash.to_string(),
        });
    }

    fn buffer<T: detml_kernels::Element + HashScalar>(
        &mut self,
        stage: &str,
        buffer: &Buffer<T>,
    ) -> Result<()> {
        let values = self.device.read(buffer)?;
        let hash = BitHasher::new("buffer")
            .array("values", &[values.len()], &values)
            .finish();
        self.hash(stage, hash);
        Ok(())
    }
}

/// Runs a chain of dense operations, and one of sorts and moves, and boosting round by round.
///
/// # Errors
/// Those of the operations.
pub fn trace(device: &Device, fixture: &Fixture) -> Result<Trace> {
    let mut recorder = Recorder {
        device,
        stages: Vec::new(),
    };
    recorder.hash("data", fixture.x.bit_hash());
    dense(&mut recorder, fixture)?;
    order(&mut recorder, fixture)?;
    boosting(&mut recorder, fixture)?;
    Ok(Trace {
        head: Head {
            profile: NUMERIC_PROFILE.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            column: column(device),
            fixture: fixture.name.into(),
        },
        stages: recorder.stages,
    })
}

/// Standardised columns, their products, and a softmax over rows.
fn dense(r: &mut Recorder<'_>, f: &Fixture) -> Result<()> {
    let x = r.device.upload(&f.x)?;
    let (n, c) = (f.rows, f.columns);
    let (mean, variance) = reduce::mean_variance(&x, Axis::EachColumn, [n, c], 0)?;
    r.buffer("dense: column means", &mean)?;
    r.buffer("dense: column variances", &variance)?;
    let centred = zip_matrix(Binary::Sub, [n, c], &x, Operand::row(&mean))?;
    r.buffer("dense: centred", &centred)?;
    let scale = map(Unary::Rsqrt, &variance)?;
    r.buffer("dense: reciprocal deviations", &scale)?;
    let scaled = zip_matrix(Binary::Mul, [n, c], &centred, Operand::row(&scale))?;
    r.buffer("dense: standardised", &scaled)?;
    let z = Matrix::new(&scaled, n, c);
    let gram = matmul(z.transposed(), z)?;
    r.buffer("dense: products of columns", &gram)?;
    let mixed = matmul(z, Matrix::new(&gram, c, c))?;
    r.buffer("dense: mixed", &mixed)?;
    let largest = reduce::max(&mixed, Axis::EachRow, [n, c])?;
    r.buffer("dense: row maxima", &largest)?;
    let shifted = zip_matrix(Binary::Sub, [n, c], &mixed, Operand::column(&largest))?;
    let powers = map(Unary::Exp, &shifted)?;
    r.buffer("dense: exponentials", &powers)?;
    let sums = reduce::sum(&powers, Axis::EachRow, [n, c])?;
    r.buffer("dense: row sums", &sums)?;
    let softmax = zip_matrix(Binary::Div, [n, c], &powers, Operand::column(&sums))?;
    r.buffer("dense: softmax", &softmax)
}

fn order(r: &mut Recorder<'_>, f: &Fixture) -> Result<()> {
    let x = r.device.upload(&f.x)?;
    let indices = sort::argsort(&x, Order::Ascending)?;
    r.buffer("order: indices", &indices)?;
    let sorted = gather::elements(&x, &indices)?;
    r.buffer("order: gathered", &sorted)?;
    let best = reduce::argmax(&x, Axis::EachColumn, [f.rows, f.columns])?;
    r.buffer("order: largest of each column", &best)
}

/// A fit of `k` rounds begins with that of fewer: the first number of rounds whose model differs
/// names the round.
fn boosting(r: &mut Recorder<'_>, f: &Fixture) -> Result<()> {
    use crate::lanes::boosting::{Fit, fit, margins};
    for rounds in 1..=6 {
        let model = fit(r.device, f, &Fit::logistic(rounds))?;
        r.hash(&format!("boosting: {rounds} rounds"), model.bit_hash());
        if rounds == 6 {
            r.hash("boosting: margins", margins(r.device, &model, f, &f.x)?);
        }
    }
    Ok(())
}
