//! Lanes: configurations of operations and estimators whose results are hashed.

mod attention;
pub(crate) mod boosting;
mod conv;
mod elementwise;
mod explain;
mod gemm;
mod host;
mod layout;
mod near;
mod order;
mod recurrence;
mod reduce;
mod rowwise;

use crate::fixtures::Fixture;
use detml_core::{BitHash, BitHasher, HashScalar, Result};
use detml_kernels::{Buffer, Device, Element};

/// The hashes of a lane's results by part.
pub type Parts = Vec<(&'static str, BitHash)>;

type Run = dyn Fn(&Device, &Fixture) -> Result<Parts> + Send + Sync;
type Takes = fn(&Fixture) -> Result<(), &'static str>;

/// One configuration of an operation or estimator.
pub struct Lane {
    /// Its name in the reference table, family first: `reduce/sum`.
    pub name: String,
    /// Whether it is part of the quick choice.
    pub quick: bool,
    /// Whether the host computes it whatever the backend: no other column can witness it.
    pub host: bool,
    takes: Takes,
    run: Box<Run>,
}

impl Lane {
    fn new(
        name: impl Into<String>,
        run: impl Fn(&Device, &Fixture) -> Result<Parts> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            quick: true,
            host: false,
            takes: |_| Ok(()),
            run: Box::new(run),
        }
    }

    /// A lane of one result.
    fn of<T: Element + HashScalar>(
        name: impl Into<String>,
        run: impl Fn(&Device, &Fixture) -> Result<Buffer<T>> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |device, fixture| {
            Ok(vec![("result", hash(device, &run(device, fixture)?)?)])
        })
    }

    fn on_host(mut self) -> Self {
        self.host = true;
        self
    }

    fn slow(mut self) -> Self {
        self.quick = false;
        self
    }

    fn takes(mut self, takes: Takes) -> Self {
        self.takes = takes;
        self
    }

    /// Why the lane does not run on a fixture and device, if so.
    pub fn refuses(&self, device: &Device, fixture: &Fixture) -> Option<&'static str> {
        if self.host && !device.is_cpu() {
            return Some("computed on the host");
        }
        (self.takes)(fixture).err()
    }

    /// Runs the lane's code on a device and hashes its results.
    ///
    /// # Errors
    /// Those of the operations.
    pub fn run(&self, device: &Device, fixture: &Fixture) -> Result<Parts> {
        (self.run)(device, fixture)
    }
}

/// Every lane.
pub fn lanes() -> Vec<Lane> {
    let mut all = Vec::new();
    all.extend(elementwise::lanes());
    all.extend(reduce::lanes());
    all.extend(rowwise::lanes());
    all.extend(gemm::lanes());
    all.extend(conv::lanes());
    all.extend(attention::lanes());
    all.extend(order::lanes());
    all.extend(layout::lanes());
    all.extend(near::lanes());
    all.extend(recurrence::lanes());
    all.extend(boosting::lanes());
    all.extend(explain::lanes());
    all.extend(host::lanes());
    all
}

/// The fixture's features on a device.
fn upload(device: &Device, fixture: &Fixture) -> Result<Buffer<f32>> {
    device.upload(&fixture.x)
}

/// The fixture's features from one `n`-th on: an operand that is no copy of the first.
fn rotated(device: &Device, fixture: &Fixture, n: usize) -> Result<Buffer<f32>> {
    let mut x = fixture.x.clone();
    let by = x.len() / n;
    x.rotate_left(by);
    device.upload(&x)
}

/// The hash of a buffer's bits.
fn hash<T: Element + HashScalar>(device: &Device, buffer: &Buffer<T>) -> Result<BitHash> {
    let values = device.read(buffer)?;
    Ok(BitHasher::new("buffer")
        .array("values", &[values.len()], &values)
        .finish())
}

/// `SomeName` as `some-name`.
fn kebab(name: impl std::fmt::Debug) -> String {
    let mut text = String::new();
    for c in format!("{name:?}").chars() {
        if c.is_ascii_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::is_name;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_fit_the_table() {
        let lanes = lanes();
        let names: BTreeSet<_> = lanes.iter().map(|l| l.name.as_str()).collect();
        assert_eq!(names.len(), lanes.len());
        assert!(names.into_iter().all(is_name));
        #[derive(Debug)]
        struct F32ToU32;
        assert_eq!(kebab(F32ToU32), "f32-to-u32");
    }
}
