use super::*;
use crate::suite::{cpu_suite, hash, moderate};

fn growth() -> Growth {
    Growth {
        max_depth: 4,
        learning_rate: 0.3,
        lambda: 1.0,
        alpha: 0.0,
        gamma: 0.0,
        min_child_weight: 1.0,
        subsample: 1.0,
        colsample_bytree: 1.0,
        colsample_bylevel: 1.0,
        colsample_bynode: 1.0,
        seed: Seed(7),
    }
}

/// Codes below `counts`, one in `missing` missing (0: none).
fn bins(seed: u32, rows: usize, counts: &[u16], missing: u32) -> Bins {
    let code = |i: usize| {
        let (draw, count) = (hash(seed, i as u32), u32::from(counts[i % counts.len()]));
        let lost = missing != 0 && (draw >> 8).is_multiple_of(missing);
        if lost || count == 0 {
            MISSING
        } else {
            ((draw >> 16) % count) as u8
        }
    };
    Bins::new(
        rows,
        (0..rows * counts.len()).map(code).collect(),
        counts.to_vec(),
    )
    .unwrap()
}

fn table(seed: u32, rows: usize, counts: &[u16], missing: u32, loss: Loss) -> Table {
    let bins = bins(seed, rows, counts, missing);
    let targets = (0..rows)
        .map(|row| {
            let codes = &bins.codes[row * counts.len()..][..counts.len()];
            let noise = hash(seed + 1, row as u32) % 64;
            let sum: u32 = codes
                .iter()
                .enumerate()
                .map(|(i, &c)| u32::from(c) * (i as u32 % 3))
                .sum();
            match loss {
                Loss::Squared => (sum + noise) as f32 * 0.37 - 5.0,
                Loss::Logistic => ((sum + noise) / 7 % 2) as f32,
                Loss::Softmax { classes } => ((sum + noise) / 7 % classes as u32) as f32,
            }
        })
        .collect();
    Table {
        bins,
        targets,
        weights: None,
    }
}

/// Trees and margins of all sets after `rounds` rounds.
fn run(mut booster: Booster, rounds: usize, evals: usize) -> (Vec<Tree>, Vec<Vec<u32>>) {
    for _ in 0..rounds {
        booster.round().unwrap();
    }
    let trees = booster.take_trees().unwrap();
    let bits = |margins: Vec<f32>| margins.into_iter().map(f32::to_bits).collect();
    let mut margins = vec![bits(booster.margins().unwrap())];
    margins.extend((0..evals).map(|set| bits(booster.eval_margins(set).unwrap())));
    (trees, margins)
}

fn compare(
    device: &Device,
    what: &str,
    train: Table,
    evals: Vec<Table>,
    loss: Loss,
    growth: Growth,
) -> Vec<Tree> {
    let base: Vec<f32> = moderate(3, loss.outputs());
    let sets = evals.len();
    let plain = run(
        Booster::plain(train.clone(), evals.clone(), loss, &base, growth).unwrap(),
        4,
        sets,
    );
    let tuned = run(
        Booster::new(device, train, evals, loss, &base, growth).unwrap(),
        4,
        sets,
    );
    assert_eq!(tuned.0.len(), plain.0.len(), "{what}");
    for (i, (tuned, plain)) in tuned.0.iter().zip(&plain.0).enumerate() {
        assert_eq!(
            tuned.nodes.len(),
            plain.nodes.len(),
            "{what}: nodes of tree {i}"
        );
        for (j, (tuned, plain)) in tuned.nodes.iter().zip(&plain.nodes).enumerate() {
            assert!(
                same(tuned, plain),
                "{what}: tree {i}, node {j}: {tuned:?}, expected {plain:?}"
            );
        }
    }
    assert_eq!(tuned.1, plain.1, "{what}: margins");
    plain.0
}

fn same(a: &Node, b: &Node) -> bool {
    let words = |n: &Node| {
        [
            n.left,
            n.feature,
            n.bin.into(),
            n.missing_left.into(),
            n.value.to_bits(),
            n.gain.to_bits(),
            n.cover.to_bits(),
        ]
    };
    words(a) == words(b)
}

const LOSSES: [Loss; 3] = [Loss::Squared, Loss::Logistic, Loss::Softmax { classes: 3 }];

fn losses(device: &Device) {
    for loss in LOSSES {
        let train = table(1, 150, &[5, 20, 1, 255, 2, 9, 33, 7, 3], 0, loss);
        let evals = vec![
            table(2, 40, train.bins.counts(), 5, loss),
            table(3, 1, train.bins.counts(), 0, loss),
        ];
        let trees = compare(device, &format!("{loss:?}"), train, evals, loss, growth());
        assert!(
            trees.iter().any(|tree| tree.nodes.len() > 5),
            "{loss:?} grew nothing"
        );
    }
}

fn missing_values_weights_and_penalties(device: &Device) {
    for (i, loss) in LOSSES.into_iter().enumerate() {
        let mut train = table(10 + i as u32, 150, &[0, 12, 40, 3], 3, loss);
        train.weights = Some(moderate(4, 150).into_iter().map(f32::abs).collect());
        let growth = Growth {
            lambda: 0.5,
            alpha: 0.25,
            gamma: 0.125,
            min_child_weight: 3.0,
            max_depth: 3,
            ..growth()
        };
        let trees = compare(device, &format!("{loss:?}"), train, vec![], loss, growth);
        let splits = || {
            trees
                .iter()
                .flat_map(|tree| &tree.nodes)
                .filter(|node| node.left != 0)
        };
        assert!(splits().any(|node| node.missing_left) && splits().any(|node| !node.missing_left));
    }
}

fn sampling_draws_rows_and_features(device: &Device) {
    for loss in LOSSES {
        let train = table(20, 150, &[5, 20, 8, 30, 2, 9, 33, 7, 3, 11], 6, loss);
        let growth = Growth {
            subsample: 0.6,
            colsample_bytree: 0.7,
            colsample_bylevel: 0.8,
            colsample_bynode: 0.6,
            ..growth()
        };
        compare(device, &format!("{loss:?}"), train, vec![], loss, growth);
    }
}

fn small_and_degenerate_sets(device: &Device) {
    let loss = Loss::Squared;
    for (what, rows, counts, missing, depth) in [
        ("one row", 1, &[1, 1][..], 0, 6),
        ("two rows", 2, &[2, 2], 0, 6),
        ("no feature", 9, &[], 0, 6),
        ("all missing", 9, &[0, 0], 0, 6),
        ("depth 0", 30, &[4, 9], 0, 0),
        ("depth 1", 30, &[4, 9], 4, 1),
        ("deep", 60, &[30, 9, 60], 4, 12),
    ] {
        let mut train = table(30, rows, counts, missing, loss);
        if counts.is_empty() {
            train.targets = vec![1.0; rows];
        }
        let growth = Growth {
            max_depth: depth,
            min_child_weight: 0.0,
            lambda: 0.0,
            ..growth()
        };
        compare(device, what, train, vec![], loss, growth);
    }
}

/// Enough rows for several blocks, nodes built in pieces, and features in several groups.
fn many_rows(device: &Device) {
    let counts = [3, 40, 2, 255, 200, 5, 17, 9];
    let train = table(50, 9_000, &counts, 7, Loss::Logistic);
    let growth = Growth {
        max_depth: 2,
        subsample: 0.9,
        ..growth()
    };
    compare(device, "many rows", train, vec![], Loss::Logistic, growth);
}

/// Gradients near the ends of binary32, where a scale is beyond it.
fn extreme_scales(device: &Device) {
    for (targets, weights) in [
        (1e38f32, 1.0f32),
        (1e-38, 1.0),
        (1e-42, 1.0),
        (1.0, 1e30),
        (1.0, 1e-40),
        (1e30, 1e-30),
    ] {
        let mut train = table(40, 80, &[9, 30], 0, Loss::Squared);
        for y in &mut train.targets {
            *y = *y * 1e-2 * targets;
        }
        train.weights = Some(vec![weights; 80]);
        for lambda in [0.0, 1.0] {
            let growth = Growth {
                lambda,
                min_child_weight: 0.0,
                ..growth()
            };
            let what = format!("{targets:e} {weights:e} {lambda}");
            compare(device, &what, train.clone(), vec![], Loss::Squared, growth);
        }
    }
}

cpu_suite! { losses, missing_values_weights_and_penalties, sampling_draws_rows_and_features, small_and_degenerate_sets, many_rows, extreme_scales }
