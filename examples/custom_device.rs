//! Runs one fit on the CPU and again on a device of your choice, and compares the bits:
//! `custom_device cpu`, `custom_device wgpu:0`, ... A device that is missing or fails the
//! conformance probe is an error that says so.

use detml::prelude::*;
use detml::{Device, Result};

fn main() -> Result<()> {
    let chosen: Backend = match std::env::args().nth(1) {
        Some(name) => name.parse()?,
        None => Backend::Auto,
    };
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/fixtures/data/breast_cancer.csv"
    );
    let data = Dataset::from_csv(path)?.target("benign")?;
    let boosting = GradientBoosting::classifier().n_trees(50).max_depth(4);

    let mut hashes = Vec::new();
    for backend in [Backend::Cpu, chosen] {
        // A device that is missing or fails the conformance probe is an error here, by name.
        println!("{backend}: {}", Device::for_backend(backend)?);
        let model = with_backend(backend, || boosting.fit(&data))?;
        println!("{}\nmodel {}\n", model.report(), model.bit_hash());
        hashes.push(model.bit_hash());
    }
    println!("same bits: {}", hashes[0] == hashes[1]);
    Ok(())
}
