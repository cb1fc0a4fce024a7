//! Shapley values of trees.

use super::{Case, Scale, numbers, words};
use detml_core::{Error, Result};
use detml_kernels::ops::forest::{Forest, Node};
use detml_kernels::ops::shap::{Interventional, PathDependent};

const FEATURES: usize = 20;
const DEPTH: usize = 6;
/// Rows of the background.
const BACKGROUND: usize = 100;

/// Full trees of random splits, and the covers of rows that part evenly.
fn forest(trees: usize) -> Result<(Forest, Vec<f32>)> {
    let inner = (1 << DEPTH) - 1;
    let size = 2 * inner + 1;
    let features = words(trees * size);
    let values = numbers(trees * size);
    let node = |i: usize| match i % size {
        at if at < inner => Node {
            left: 2 * at as u32 + 1,
            feature: features[i] % FEATURES as u32,
            threshold: values[i],
            missing_left: true,
            value: 0.0,
        },
        _ => Node {
            left: 0,
            feature: 0,
            threshold: 0.0,
            missing_left: true,
            value: values[i],
        },
    };
    let nodes: Vec<Node> = (0..trees * size).map(node).collect();
    let covers = (0..nodes.len()).map(|i| 1.0 / (1 << (i % size + 1).ilog2()) as f32);
    let covers = covers.collect();
    let starts = (0..=trees).map(|tree| tree * size).collect();
    Ok((Forest::new(FEATURES, vec![0.0], starts, nodes)?, covers))
}

/// `which` explanation of `rows` rows.
fn case(which: &'static str, rows: usize, trees: usize) -> Case {
    let side = FEATURES + 1;
    let each = match which {
        "interactions" => side * side,
        _ => side,
    };
    let name = format!("{which} {rows}x{FEATURES}, {trees} trees of depth {DEPTH}");
    Case::new(
        "explain",
        name,
        4 * rows * (FEATURES + each),
        0,
        move |device| {
            let (forest, covers) = forest(trees)?;
            let x = numbers(rows * FEATURES);
            let shap = PathDependent::new(&forest, &covers)?;
            let background = numbers((BACKGROUND + 7) * FEATURES);
            let background = &background[7 * FEATURES..];
            let against = Interventional::new(&forest, background, BACKGROUND)?;
            let device = device.clone();
            Ok(move || -> Result<()> {
                let found = match which {
                    "values" => shap.values(&device, &x, rows)?,
                    "interactions" => shap.interactions(&device, &x, rows)?,
                    _ => against.values(&device, &x, rows)?,
                };
                match found.is_empty() {
                    true => Err(Error::empty("explanations")),
                    false => Ok(()),
                }
            })
        },
    )
}

pub(crate) fn cases(scale: Scale) -> Vec<Case> {
    let (many, few) = match scale.gpu {
        true => (1_000_000, 100_000),
        false => (2000, 200),
    };
    vec![
        case("values", many, 200),
        case("values", 100, 200),
        case("interactions", few, 200),
        case("background", few, 200),
    ]
}
