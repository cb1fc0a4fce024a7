//! What models of trees share: margins, and trees in model files.

use detml_core::{DesignRules, Error, ExecutionReport, ModelFile, Result};
use detml_kernels::Device;
use detml_kernels::ops::forest::{Forest, Node};
use ndarray::{Array2, ArrayView2, CowArray, Ix2};
use std::time::Instant;

/// What features may hold.
pub(crate) fn rules() -> DesignRules {
    DesignRules::supervised().allow_nan().allow_infinite()
}

/// Does and times an operation of a device.
pub(crate) fn timed<T>(
    report: &mut ExecutionReport,
    operation: &'static str,
    device: &Device,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let started = Instant::now();
    let done = work()?;
    report.record(
        operation,
        device.backend(),
        device.name().to_owned(),
        None,
        started.elapsed().as_secs_f64(),
    );
    Ok(done)
}

/// Numbers row by row as a table.
pub(crate) fn shaped(rows: usize, columns: usize, values: Vec<f32>) -> Result<Array2<f32>> {
    Array2::from_shape_vec((rows, columns), values)
        .map_err(|error| Error::internal(format!("margins: {error}")))
}

/// `x` row by row.
pub(crate) fn standard(x: ArrayView2<'_, f32>) -> CowArray<'_, f32, Ix2> {
    if x.is_standard_layout() {
        CowArray::from(x)
    } else {
        CowArray::from(x.as_standard_layout().into_owned())
    }
}

/// The margins (rows x outputs) of `x` (rows x features).
///
/// # Errors
/// `FeatureMismatch` for another number of columns; those of the device.
pub(crate) fn margins_on(
    forest: &Forest,
    device: &Device,
    x: ArrayView2<'_, f32>,
) -> Result<(Array2<f32>, ExecutionReport)> {
    rules().check_features(x, forest.features())?;
    let rows = x.nrows();
    let x = standard(x);
    let mut report = ExecutionReport::new();
    let margins = timed(&mut report, "forest", device, || {
        forest.margins(device, x.as_slice().unwrap_or_default(), rows)
    })?;
    Ok((shaped(rows, forest.base().len(), margins)?, report))
}

/// Puts trees into a model file: the parameter `n_features`, the tensors `base` and `starts`, and one
/// for each field of the nodes.
pub(crate) fn write(file: ModelFile, forest: &Forest) -> ModelFile {
    let nodes = forest.nodes();
    let starts: Vec<u32> = forest.starts().iter().map(|&start| start as u32).collect();
    let words = |of: fn(&Node) -> u32| nodes.iter().map(of).collect::<Vec<u32>>();
    let floats = |of: fn(&Node) -> f32| nodes.iter().map(of).collect::<Vec<f32>>();
    let missing: Vec<u8> = nodes
        .iter()
        .map(|node| u8::from(node.missing_left))
        .collect();
    file.with_param("n_features", forest.features())
        .with_slice("base", forest.base())
        .with_slice("starts", &starts)
        .with_slice("left", &words(|node| node.left))
        .with_slice("feature", &words(|node| node.feature))
        .with_slice("threshold", &floats(|node| node.threshold))
        .with_slice("missing_left", &missing)
        .with_slice("value", &floats(|node| node.value))
}

/// Reads what [`write`] wrote.
///
/// # Errors
/// `ModelFile`'s for whatever is not as [`Forest::new`] takes it.
pub(crate) fn read(file: &ModelFile) -> Result<Forest> {
    let left: Vec<u32> = file.vector("left")?;
    let feature: Vec<u32> = file.vector("feature")?;
    let threshold: Vec<f32> = file.vector("threshold")?;
    let missing: Vec<u8> = file.vector("missing_left")?;
    let value: Vec<f32> = file.vector("value")?;
    let count = left.len();
    for (name, length) in [
        ("feature", feature.len()),
        ("threshold", threshold.len()),
        ("missing_left", missing.len()),
        ("value", value.len()),
    ] {
        if length != count {
            return Err(file.refuse(format!(
                "tensor `{name}`: expected {count} nodes, got {length}"
            )));
        }
    }
    if let Some(node) = missing.iter().position(|&byte| byte > 1) {
        return Err(file.refuse(format!(
            "tensor `missing_left`: expected 0 or 1 at node {node}, got {}",
            missing[node]
        )));
    }
    let nodes = (0..count)
        .map(|i| Node {
            left: left[i],
            feature: feature[i],
            threshold: threshold[i],
            missing_left: missing[i] == 1,
            value: value[i],
        })
        .collect();
    let starts: Vec<u32> = file.vector("starts")?;
    let starts = starts.into_iter().map(|start| start as usize).collect();
    let (features, base) = (file.param("n_features")?, file.vector("base")?);
    Forest::new(features, base, starts, nodes).map_err(|error| file.refuse(error.to_string()))
}
