use super::*;
use crate::suite::{any_bits, backend_suite, for_all, hash, moderate};
use proptest::prelude::*;

fn growth() -> Growth {
    Growth {
        max_depth: 4,
        learning_rate: 0.3,
        seed: Seed(7),
        ..Growth::default()
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
            let number = (sum + noise) as f32 * 0.37;
            match loss {
                Loss::Gamma => number + 0.125,
                Loss::Poisson { .. } | Loss::Tweedie { .. } | Loss::SquaredLog => {
                    ((sum + noise) / 7 % 9) as f32
                }
                _ => match loss.classes() {
                    Some(classes) => ((sum + noise) / 7 % classes as u32) as f32,
                    None => number - 5.0,
                },
            }
        })
        .collect::<Vec<f32>>();
    // Several targets are the first one at several scales.
    let targets = (0..loss.targets())
        .flat_map(|i| targets.iter().map(move |y| y * (1.0 - 0.7 * i as f32)))
        .collect();
    Table {
        bins,
        targets,
        weights: None,
    }
}

/// Trees and margins of all sets after `rounds` rounds.
fn run(booster: Booster, rounds: usize, evals: usize) -> (Vec<Tree>, Vec<Vec<u32>>) {
    try_run(booster, rounds, evals).unwrap()
}

fn try_run(
    mut booster: Booster,
    rounds: usize,
    evals: usize,
) -> Result<(Vec<Tree>, Vec<Vec<u32>>)> {
    for _ in 0..rounds {
        booster.round()?;
    }
    let trees = booster.take_trees()?;
    let bits = |margins: Vec<f32>| margins.into_iter().map(f32::to_bits).collect();
    let mut margins = vec![bits(booster.margins()?)];
    for set in 0..evals {
        margins.push(bits(booster.eval_margins(set)?));
    }
    Ok((trees, margins))
}

fn compare(
    device: &Device,
    what: &str,
    train: Table,
    evals: Vec<Table>,
    loss: Loss,
    growth: Growth,
) -> Vec<Tree> {
    compare_scheduled(device, what, train, evals, loss, growth, |_| {})
}

fn compare_scheduled(
    device: &Device,
    what: &str,
    train: Table,
    evals: Vec<Table>,
    loss: Loss,
    growth: Growth,
    change: impl Fn(&mut gpu::Schedule),
) -> Vec<Tree> {
    let free = Constraints::default();
    compare_constrained(device, what, train, evals, loss, growth, &free, change)
}

fn compare_constrained(
    device: &Device,
    what: &str,
    train: Table,
    evals: Vec<Table>,
    loss: Loss,
    growth: Growth,
    constraints: &Constraints,
    change: impl Fn(&mut gpu::Schedule),
) -> Vec<Tree> {
    // Far from the targets, Hessians of likelihoods vanish or leave no gain.
    let base: Vec<f32> = match loss.log_link() {
        true => vec![2.5],
        false => moderate(3, loss.outputs()),
    };
    let sets = evals.len();
    let plain = Booster::plain(
        train.clone(),
        evals.clone(),
        loss,
        &base,
        growth,
        constraints,
    );
    let plain = try_run(plain.unwrap(), 4, sets);
    let tuned = Booster::scheduled(
        device,
        train,
        evals,
        loss,
        &base,
        growth,
        constraints,
        change,
    );
    let tuned = try_run(tuned.unwrap(), 4, sets);
    let (plain, tuned) = match (plain, tuned) {
        // A step may go too far: everywhere then.
        (Err(plain), Err(tuned)) => {
            assert_eq!(tuned.to_string(), plain.to_string(), "{what}");
            return Vec::new();
        }
        (plain, tuned) => (plain.unwrap(), tuned.unwrap()),
    };
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

/// One of each kind that has formulas of its own.
const ALL: [Loss; 15] = [
    LOSSES[0],
    LOSSES[1],
    LOSSES[2],
    Loss::SquaredTargets { targets: 3 },
    Loss::Absolute,
    Loss::Quantile { alpha: 0.8 },
    Loss::Mape,
    Loss::Huber { delta: 0.9 },
    Loss::PseudoHuber { delta: 1.5 },
    Loss::Expectile { alpha: 0.3 },
    Loss::Poisson {
        max_delta_step: 0.7,
    },
    Loss::Gamma,
    Loss::Tweedie {
        variance_power: 1.5,
    },
    Loss::SquaredLog,
    Loss::OneVsAll { classes: 3 },
];

/// Those whose leaves are renewed.
fn renewed() -> impl Iterator<Item = Loss> {
    ALL.into_iter()
        .filter(|loss| loss.renewed_quantile().is_some())
}

fn losses(device: &Device) {
    for loss in ALL {
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
    for (i, loss) in ALL.into_iter().enumerate() {
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
        if i < LOSSES.len() {
            let left = splits().filter(|node| node.missing_left).count();
            assert!(left > 0 && left < splits().count());
        }
    }
}

fn sampling_draws_rows_and_features(device: &Device) {
    for loss in ALL {
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

/// Fewer leaves than splits that are worth it, of both policies; levels of more nodes than there is
/// room for.
fn leaves_are_limited(device: &Device) {
    let counts = [30, 9, 60, 200, 17];
    for (leaves, depth, bytes) in [
        (2, 6, 1 << 20),
        (7, 4, 1 << 20),
        (31, 14, 1 << 20),
        (40, 9, 1),
        (100, 14, 1 << 28),
    ] {
        for grow_policy in [GrowPolicy::DepthWise, GrowPolicy::LossGuide] {
            let train = table(67, 400, &counts, 4, Loss::Logistic);
            let evals = vec![table(2, 40, &counts, 5, Loss::Logistic)];
            let growth = Growth {
                max_depth: depth,
                max_leaves: leaves,
                grow_policy,
                min_child_weight: 0.0,
                subsample: if leaves == 40 { 0.7 } else { 1.0 },
                colsample_bynode: if leaves == 7 { 0.7 } else { 1.0 },
                ..growth()
            };
            let what = format!("{leaves} leaves, depth {depth}, {grow_policy:?}");
            let trees = compare_scheduled(
                device,
                &what,
                train,
                evals,
                Loss::Logistic,
                growth,
                |schedule| schedule.histogram_bytes = bytes,
            );
            let full = |tree: &Tree| tree.nodes.len() == 2 * leaves as usize - 1;
            assert!(trees.iter().any(full), "{what}");
        }
    }
}

/// Gains that fall and rise along paths, and equal ones: the strongest open leaf is not the one of
/// the highest minimum along its path.
fn guided_growth_takes_the_strongest_leaf(device: &Device) {
    // Feature 0 parts rows in two halves at little gain; features 1 and 2 part the halves at a
    // higher one, of which the right half's is the highest.
    let codes = |row: usize| [(row % 2) as u8, (row / 2 % 2) as u8, (row / 4 % 2) as u8];
    let train = Table {
        bins: Bins::new(64, (0..64).flat_map(codes).collect(), vec![2, 2, 2]).unwrap(),
        targets: (0..64)
            .map(|row| {
                let [a, b, c] = codes(row).map(f32::from);
                let sign = 2.0 * b - 1.0;
                match a {
                    0.0 => 2.0 * sign + c,
                    _ => 1.0 - 3.0 * sign,
                }
            })
            .collect(),
        weights: None,
    };
    for leaves in 2..8 {
        let growth = Growth {
            max_leaves: leaves,
            grow_policy: GrowPolicy::LossGuide,
            min_child_weight: 0.0,
            lambda: 0.0,
            ..growth()
        };
        let what = format!("{leaves} leaves");
        compare(device, &what, train.clone(), vec![], Loss::Squared, growth);
    }
}

fn constraints_of(monotone: &[i8], interactions: &[&[u32]]) -> Constraints {
    Constraints {
        monotone: monotone.to_vec(),
        interactions: interactions.iter().map(|group| group.to_vec()).collect(),
    }
}

/// Ways of all kinds, with penalties, draws, limits and levels of more nodes than there is room for.
fn monotone_constraints(device: &Device) {
    let counts = [30, 9, 60, 200, 17];
    for (i, loss) in LOSSES.into_iter().enumerate() {
        let train = table(71 + i as u32, 300, &counts, 4, loss);
        let evals = vec![table(2, 40, &counts, 5, loss)];
        let growth = Growth {
            max_depth: 7,
            min_child_weight: 0.0,
            alpha: [0.0, 0.05, 0.0][i],
            lambda: [0.0, 1.0, 0.5][i],
            max_leaves: [0, 0, 12][i],
            grow_policy: GrowPolicy::LossGuide,
            colsample_bynode: [1.0, 0.7, 1.0][i],
            ..growth()
        };
        let ways = constraints_of(
            &[[1, -1, 1, 0, -1], [0, 1, 0, -1, 1], [-1, 0, -1, -1, -1]][i],
            &[],
        );
        let bytes = [1 << 20, 1, 1 << 20][i];
        let what = format!("{loss:?}");
        let trees = compare_constrained(
            device,
            &what,
            train.clone(),
            evals,
            loss,
            growth,
            &ways,
            |schedule| schedule.histogram_bytes = bytes,
        );
        // On every path below a split by a feature with a way, leaves keep apart.
        for tree in &trees {
            for node in tree.nodes.iter().filter(|node| node.left != 0) {
                let way = f32::from(ways.monotone[node.feature as usize]);
                let [low, high] = [0, 1].map(|side| leaves_below(tree, node.left + side));
                let apart = |l: &f32| high.iter().all(|r| (r - l) * way >= 0.0);
                assert!(low.iter().all(apart), "{what}: {node:?}");
            }
        }
        let free = compare(device, &what, train, vec![], loss, growth);
        assert_ne!(free, trees);
    }
}

fn leaves_below(tree: &Tree, node: u32) -> Vec<f32> {
    match tree.nodes[node as usize] {
        Node { left: 0, value, .. } => vec![value],
        Node { left, .. } => [left, left + 1]
            .into_iter()
            .flat_map(|child| leaves_below(tree, child))
            .collect(),
    }
}

/// Without ways nothing is moved, so scores are those of free growth.
fn ways_that_do_not_bind_change_nothing(device: &Device) {
    let train = table(75, 200, &[1, 9, 60], 0, Loss::Squared);
    let growth = Growth {
        alpha: 0.5,
        ..growth()
    };
    // Feature 0 has one bin: its way never acts.
    let ways = constraints_of(&[1, 0, 0], &[]);
    let loss = Loss::Squared;
    let bound = compare_constrained(
        device,
        "ways",
        train.clone(),
        vec![],
        loss,
        growth,
        &ways,
        |_| {},
    );
    let free = compare(device, "free", train, vec![], loss, growth);
    assert_eq!(bound, free);
}

/// Groups that overlap, features in none, and more groups than bits in a word.
fn interaction_constraints(device: &Device) {
    let counts = [30, 9, 60, 20, 17, 12];
    let many: Vec<Vec<u32>> = (0..50).map(|i| vec![i % 6, (i / 6 + 1 + i) % 6]).collect();
    let many: Vec<&[u32]> = many
        .iter()
        .filter(|group| group[0] != group[1])
        .map(Vec::as_slice)
        .collect();
    let some: Vec<&[u32]> = vec![&[0, 1], &[1, 2, 3]];
    for (i, groups) in [some.clone(), many, some, vec![&[5][..]]]
        .into_iter()
        .enumerate()
    {
        let train = table(81 + i as u32, 300, &counts, 4, Loss::Squared);
        let evals = vec![table(2, 40, &counts, 5, Loss::Squared)];
        let growth = Growth {
            max_depth: 6,
            min_child_weight: 0.0,
            max_leaves: if i == 1 { 20 } else { 0 },
            grow_policy: GrowPolicy::LossGuide,
            colsample_bynode: if i == 2 { 0.7 } else { 1.0 },
            colsample_bylevel: if i == 2 { 0.8 } else { 1.0 },
            ..growth()
        };
        let ways: &[i8] = if i == 3 { &[0, 1, 0, 0, -1, 0] } else { &[] };
        let constraints = constraints_of(ways, &groups);
        let trees = compare_constrained(
            device,
            &format!("interactions {i}"),
            train,
            evals,
            Loss::Squared,
            growth,
            &constraints,
            |schedule| {
                if i == 2 {
                    schedule.histogram_bytes = 1;
                }
            },
        );
        for tree in &trees {
            paths(tree, 0, &mut Vec::new(), &mut |path| {
                let together = groups
                    .iter()
                    .any(|group| path.iter().all(|f| group.contains(f)));
                let alone = path.iter().all(|f| f == &path[0]);
                assert!(together || alone, "{path:?}");
            });
        }
        assert!(trees.iter().any(|tree| tree.nodes.len() > 9));
    }
}

fn paths(tree: &Tree, at: u32, path: &mut Vec<u32>, check: &mut impl FnMut(&[u32])) {
    let node = tree.nodes[at as usize];
    if node.left == 0 {
        if !path.is_empty() {
            check(path);
        }
        return;
    }
    path.push(node.feature);
    paths(tree, node.left, path, check);
    paths(tree, node.left + 1, path, check);
    path.pop();
}

/// Without a limit, or with one that doesn't bind, policies are alike.
fn a_limit_that_does_not_bind_changes_nothing(device: &Device) {
    let train = table(66, 300, &[30, 9, 60], 4, Loss::Squared);
    let of = |max_leaves: u32, grow_policy: GrowPolicy| {
        let growth = Growth {
            max_leaves,
            grow_policy,
            ..growth()
        };
        let booster = Booster::new(device, train.clone(), vec![], Loss::Squared, &[0.5], growth);
        run(booster.unwrap(), 3, 0)
    };
    let expected = of(0, GrowPolicy::DepthWise);
    for leaves in [0, 16, 300] {
        for policy in [GrowPolicy::DepthWise, GrowPolicy::LossGuide] {
            assert_eq!(of(leaves, policy), expected, "{leaves} {policy:?}");
        }
    }
    assert_ne!(of(4, GrowPolicy::LossGuide), expected);
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

/// Levels that have more nodes than a GPU has room for.
fn deep_trees_in_batches(device: &Device) {
    let counts = [30, 9, 60, 200, 17];
    for (rows, sampled, bytes) in [(300, false, 1), (300, true, 300_000), (7, false, 1)] {
        let train = table(60, rows, &counts, 4, Loss::Squared);
        let growth = Growth {
            max_depth: 12,
            min_child_weight: 0.0,
            lambda: 0.0,
            subsample: if sampled { 0.8 } else { 1.0 },
            colsample_bytree: if sampled { 0.8 } else { 1.0 },
            colsample_bylevel: if sampled { 0.8 } else { 1.0 },
            colsample_bynode: if sampled { 0.5 } else { 1.0 },
            ..growth()
        };
        let trees = compare_scheduled(
            device,
            &format!("{rows} rows, {bytes} bytes"),
            train,
            vec![],
            Loss::Squared,
            growth,
            |schedule| schedule.histogram_bytes = bytes,
        );
        assert!(trees.iter().all(|tree| tree.nodes.len() > rows / 2));
    }
}

/// A level's histograms would take 318 MB: more than one buffer of Mesa's CPU driver, for one.
fn histograms_need_not_fit(device: &Device) {
    let train = table(68, 300, &[5; 260], 0, Loss::Squared);
    let growth = Growth {
        max_depth: 12,
        ..growth()
    };
    let mut booster = Booster::new(device, train, vec![], Loss::Squared, &[0.0], growth).unwrap();
    assert!(booster.take_trees().unwrap().is_empty());
}

/// Chunks, groups of features and the room for trees don't show.
fn schedules(device: &Device) {
    let counts = [30, 9, 60, 200, 17, 0, 3, 90, 8];
    let train = table(65, 2_000, &counts, 4, LOSSES[2]);
    for (group, held, chunk, tree_words) in
        [(2, 2, 256, 1), (1, 1, 512, 200), (2, 4, 4096, 1 << 18)]
    {
        let growth = Growth {
            colsample_bytree: if group == 1 { 0.5 } else { 1.0 },
            max_depth: 3,
            ..growth()
        };
        let what = format!("group {group}, {held} held, chunk {chunk}");
        let change = |schedule: &mut gpu::Schedule| {
            *schedule = gpu::Schedule {
                group,
                held,
                chunk,
                tree_words,
                ..*schedule
            }
        };
        compare_scheduled(
            device,
            &what,
            train.clone(),
            vec![],
            LOSSES[2],
            growth,
            change,
        );
    }
}

/// More features than a cube has units.
fn many_features(device: &Device) {
    let counts: Vec<u16> = (0..300).map(|f| 1 + f % 5).collect();
    let train = table(70, 40, &counts, 9, Loss::Logistic);
    for share in [1.0, 0.3] {
        let growth = Growth {
            max_depth: 3,
            min_child_weight: 0.0,
            colsample_bytree: share,
            colsample_bynode: share,
            ..growth()
        };
        let what = format!("share {share}");
        compare(device, &what, train.clone(), vec![], Loss::Logistic, growth);
    }
}

/// Trees can be had at any time, and growing goes on.
fn trees_come_in_parts(device: &Device) {
    let loss = Loss::Softmax { classes: 3 };
    let train = table(80, 90, &[9, 40, 7], 5, loss);
    let base = [0.5, -0.25, 0.0];
    let all = run(
        Booster::plain(
            train.clone(),
            vec![],
            loss,
            &base,
            growth(),
            &Constraints::default(),
        )
        .unwrap(),
        5,
        0,
    );
    let mut booster = Booster::new(device, train, vec![], loss, &base, growth()).unwrap();
    let mut trees = booster.take_trees().unwrap();
    assert!(trees.is_empty());
    for rounds in [2, 0, 1, 2] {
        for _ in 0..rounds {
            booster.round().unwrap();
        }
        let more = booster.take_trees().unwrap();
        assert_eq!(more.len(), 3 * rounds);
        trees.extend(more);
    }
    assert_eq!(trees, all.0);
}

/// Leaves of many rows and of few, ties, weights of any size, and leaves renewed in batches.
fn renewed_leaves(device: &Device) {
    for (i, loss) in renewed().enumerate() {
        for (rows, depth, batch) in [(9_000, 2, 1 << 14), (200, 9, 7), (1, 3, 1)] {
            let mut train = table(100 + i as u32, rows, &[30, 9, 60], 4, loss);
            for y in &mut train.targets {
                *y = y.round();
            }
            let size = |row: usize| 2f32.powi((hash(101, row as u32) % 40) as i32 - 20);
            train.weights = Some((0..rows).map(|row| size(row) * 1.7).collect());
            let growth = Growth {
                max_depth: depth,
                min_child_weight: 0.0,
                lambda: 0.0,
                subsample: if depth == 9 { 0.7 } else { 1.0 },
                ..growth()
            };
            let what = format!("{loss:?}, {rows} rows");
            let change = |schedule: &mut gpu::Schedule| schedule.renewed = batch;
            compare_scheduled(device, &what, train, vec![], loss, growth, change);
        }
    }
    // No row is drawn.
    let growth = Growth {
        subsample: 1e-9,
        ..growth()
    };
    let train = table(99, 30, &[4, 9], 4, Loss::Absolute);
    let trees = compare(
        device,
        "nothing drawn",
        train,
        vec![],
        Loss::Absolute,
        growth,
    );
    assert!(trees.iter().all(|tree| tree.nodes[0].value == 0.0));
}

/// A quantile next to the one that is asked for must be seen.
fn another_quantile_shows(device: &Device) {
    let of = |alpha: f32| {
        let loss = Loss::Quantile { alpha };
        let train = Table {
            bins: Bins::new(10, vec![0; 10], vec![1]).unwrap(),
            targets: (0..10).map(|i| (i * 7 % 10) as f32).collect(),
            weights: None,
        };
        let growth = Growth {
            learning_rate: 1.0,
            ..growth()
        };
        let mut booster = Booster::new(device, train, vec![], loss, &[0.0], growth).unwrap();
        booster.round().unwrap();
        booster.take_trees().unwrap()[0].nodes[0].value
    };
    assert_eq!([0.5, 0.500_000_06, 0.499_999_97].map(of), [4.0, 5.0, 4.0]);
    assert_eq!(
        [1e-9, 0.25, 0.875, 0.999_999_9].map(of),
        [0.0, 2.0, 8.0, 9.0]
    );
}

/// Gradients from outside: those of the squared loss give its trees.
fn given_gradients(device: &Device) {
    let train = table(110, 300, &[30, 9, 60], 4, Loss::Squared);
    let free = Constraints::default();
    let plain = Booster::plain(
        train.clone(),
        vec![],
        Loss::Squared,
        &[0.5],
        growth(),
        &free,
    );
    let expected = run(plain.unwrap(), 3, 0);
    let targets = train.targets.clone();
    let mut booster = Booster::new(device, train, vec![], Loss::Given, &[0.5], growth()).unwrap();
    assert!(matches!(booster.round(), Err(Error::Unsupported { .. })));
    let h = vec![1.0; 300];
    for _ in 0..3 {
        let margins = booster.margins().unwrap();
        let g: Vec<f32> = margins.iter().zip(&targets).map(|(m, y)| m - y).collect();
        booster.round_with(&g, &h).unwrap();
    }
    let short = booster.round_with(&h[1..], &h);
    assert!(matches!(short, Err(Error::Shape { .. })));
    let mut negative = h.clone();
    negative[7] = -1.0;
    let refused = booster.round_with(&h, &negative);
    assert!(matches!(refused, Err(Error::InvalidValue { row: 7, .. })));
    let margins = booster.margins().unwrap();
    let bits: Vec<u32> = margins.into_iter().map(f32::to_bits).collect();
    assert_eq!(booster.take_trees().unwrap(), expected.0);
    assert_eq!(bits, expected.1[0]);
    let told = booster.round_with(&[f32::NAN; 300], &h);
    let told = told.and_then(|()| booster.take_trees());
    assert!(matches!(told, Err(Error::NonFinite { .. })));
}

/// Targets, weights and base margins of any finite bits: the same outcome everywhere.
fn any_targets(device: &Device) {
    let plain = Device::cpu_with(crate::Simd::Plain);
    for (i, loss) in ALL.into_iter().enumerate() {
        if loss.classes().is_some() {
            continue;
        }
        let finite = |seed: u32, count: usize| -> Vec<f32> {
            let fold = |x: f32| if x.is_finite() { x } else { 0.5 };
            any_bits(seed, count).into_iter().map(fold).collect()
        };
        let rows = 60;
        let mut train = table(120 + i as u32, rows, &[9, 40, 7], 5, loss);
        train.targets = finite(i as u32, rows * loss.targets());
        if loss.check_targets(&train.targets).is_err() {
            train.targets = train.targets.iter().map(|y| y.abs().max(1e-30)).collect();
        }
        let weights = finite(77, rows).into_iter().map(|w| w.abs().max(1e-40));
        for weights in [None, Some(weights.collect::<Vec<f32>>())] {
            train.weights = weights;
            for base in [0.0, -80.0, 90.0] {
                let outcome = |device: &Device| {
                    let base = vec![base; loss.outputs()];
                    let growth = Growth {
                        min_child_weight: 0.0,
                        ..growth()
                    };
                    let mut booster =
                        Booster::new(device, train.clone(), vec![], loss, &base, growth).unwrap();
                    let mut error = None;
                    for _ in 0..3 {
                        error = error.or(booster.round().err());
                    }
                    let error = error.or_else(|| booster.take_trees().err());
                    let trees = booster.take_trees().unwrap_or_default();
                    let margins = booster.margins().unwrap_or_default();
                    let bits: Vec<u32> = margins.into_iter().map(f32::to_bits).collect();
                    (
                        error.map(|error| error.to_string()),
                        format!("{trees:?}"),
                        bits,
                    )
                };
                let (got, expected) = (outcome(device), outcome(&plain));
                // A fit that ends well has handed its trees to the look for an error.
                assert_eq!(got, expected, "{loss:?} from {base}");
            }
        }
    }
}

/// A gradient that overflows ends the fit with the same error everywhere; what was grown before
/// stays.
fn overflow_is_an_error(device: &Device) {
    for (loss, rate) in [(LOSSES[0], 100.0), (LOSSES[2], 3e38)] {
        overflow(device, loss, rate);
    }
}

fn overflow(device: &Device, loss: Loss, learning_rate: f32) {
    let mut train = table(90, 50, &[9, 40, 7], 5, loss);
    if loss == Loss::Squared {
        // A leaf of a hundred times the margin: each round is worse than the last one.
        train.targets[17] = 1e36;
        train.targets[31] = -3e36;
    }
    let base = vec![0.0; loss.outputs()];
    let growth = Growth {
        learning_rate,
        lambda: 0.0,
        min_child_weight: 0.0,
        ..growth()
    };
    let outcome = |device: &Device| {
        let mut booster = Booster::new(
            device,
            train.clone(),
            vec![train.clone()],
            loss,
            &base,
            growth,
        )
        .unwrap();
        let mut error = None;
        for _ in 0..8 {
            // A GPU may tell later.
            error = error.or(booster.round().err());
        }
        let error = error.or_else(|| booster.take_trees().err());
        let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        (
            error.unwrap().to_string(),
            booster.round().unwrap_err().to_string(),
            booster.take_trees().unwrap(),
            bits(booster.margins().unwrap()),
            bits(booster.eval_margins(0).unwrap()),
        )
    };
    let expected = outcome(&Device::cpu_with(crate::Simd::Plain));
    assert!(expected.0.contains("round") && !expected.2.is_empty());
    assert_eq!(outcome(device), expected);
    // Whichever method waits first has the error.
    let mut booster =
        Booster::new(device, train.clone(), vec![train], loss, &base, growth).unwrap();
    let error = (0..8).find_map(|_| {
        let told = booster.round();
        told.and_then(|()| booster.eval_margins(0)).err()
    });
    assert_eq!(error.unwrap().to_string(), expected.0);
}

/// A wrong rule for ties or a bin too far shows.
fn mistakes_show(device: &Device) {
    let loss = Loss::Squared;
    // Features 1 and 2 are one and the same, and so are the splits by them.
    let codes = |row: usize| {
        let code = (row % 5) as u8;
        [(row % 3) as u8, code, code]
    };
    let train = Table {
        bins: Bins::new(60, (0..60).flat_map(codes).collect(), vec![4, 7, 7]).unwrap(),
        targets: (0..60).map(|row| (row % 5 * 2 + row % 3) as f32).collect(),
        weights: None,
    };
    let trees = compare(device, "ties", train.clone(), vec![], loss, growth());
    let right = |node: &Node| node.left == 0 || (node.feature != 2 && node.missing_left);
    assert!(trees.iter().flat_map(|tree| &tree.nodes).all(right));
    // Bins 2 and 3 of feature 0 split alike: 3 is empty.
    assert!(
        trees
            .iter()
            .flat_map(|tree| &tree.nodes)
            .all(|node| node.feature != 0 || node.bin < 2)
    );

    let mut moved = train.clone();
    for code in &mut moved.bins.codes[7 * 3 + 1..][..2] {
        *code += 1;
    }
    let of = |table: Table| {
        let mut booster = Booster::new(device, table, vec![], loss, &[0.5], growth()).unwrap();
        booster.round().unwrap();
        (booster.take_trees().unwrap(), booster.margins().unwrap())
    };
    let mut reversed = train.clone();
    for row in reversed.bins.codes.chunks_exact_mut(3) {
        row.swap(0, 2);
    }
    reversed.bins.counts.swap(0, 2);
    let good = of(train);
    assert_ne!(of(moved).1, good.1, "a bin too far");
    let tie = of(reversed);
    // The same rows go the same ways, but the tie goes to the feature that is now the lower one.
    assert_eq!(tie.1, good.1);
    assert_ne!(tie.0, good.0);
}

/// Symmetric trees, with draws, penalties, nodes without rows, and levels of more nodes than there
/// is room for.
fn symmetric_trees(device: &Device) {
    let counts = [30, 9, 60, 200, 17];
    for (i, loss) in LOSSES.into_iter().enumerate() {
        let train = table(91 + i as u32, [150, 40, 300][i], &counts, 4, loss);
        let evals = vec![table(2, 40, &counts, 5, loss)];
        let growth = Growth {
            grow_policy: GrowPolicy::Symmetric,
            max_depth: [5, 7, 3][i],
            lambda: [0.0, 1.0, 3.0][i],
            alpha: [0.0, 0.1, 0.0][i],
            min_child_weight: [0.0, 1.0, 2.0][i],
            colsample_bytree: [1.0, 0.8, 1.0][i],
            colsample_bylevel: [0.7, 0.8, 1.0][i],
            subsample: [1.0, 1.0, 0.7][i],
            ..growth()
        };
        let bytes = [1 << 20, 1, 1 << 28][i];
        let trees = compare_scheduled(
            device,
            &format!("{loss:?}"),
            train,
            evals,
            loss,
            growth,
            |schedule| schedule.histogram_bytes = bytes,
        );
        // Complete, and with one split a level.
        for tree in &trees {
            let mut first = 0;
            while first < tree.nodes.len() {
                let level = &tree.nodes[first..2 * first + 1];
                let split = |node: &Node| (node.left != 0, node.feature, node.bin);
                assert!(level.iter().all(|node| split(node) == split(&level[0])));
                first = 2 * first + 1;
            }
            assert_eq!(first, tree.nodes.len());
        }
        assert!(trees.iter().any(|tree| tree.nodes.len() > 7));
    }
}

backend_suite! {
    symmetric_trees,
    monotone_constraints,
    ways_that_do_not_bind_change_nothing,
    interaction_constraints,
    leaves_are_limited,
    guided_growth_takes_the_strongest_leaf,
    a_limit_that_does_not_bind_changes_nothing,
    losses,
    missing_values_weights_and_penalties,
    sampling_draws_rows_and_features,
    small_and_degenerate_sets,
    many_rows,
    extreme_scales,
    deep_trees_in_batches,
    histograms_need_not_fit,
    schedules,
    many_features,
    trees_come_in_parts,
    renewed_leaves,
    another_quantile_shows,
    given_gradients,
    any_targets,
    any_table,
    overflow_is_an_error,
    mistakes_show,
}

/// Any table, loss and growth.
fn any_table(device: &Device) {
    let share = || prop_oneof![Just(1.0f32), 0.3f32..1.0];
    let penalty = || prop_oneof![Just(0.0f32), 0.0f32..3.0];
    let growths = (
        (0u32..6, 0.01f32..2.0, any::<u64>()),
        (
            prop_oneof![Just(0u32), 2u32..12],
            prop_oneof![
                Just(GrowPolicy::DepthWise),
                Just(GrowPolicy::LossGuide),
                Just(GrowPolicy::Symmetric),
            ],
        ),
        [penalty(), penalty(), penalty(), penalty()],
        [share(), share(), share(), share()],
    );
    let tables = (
        any::<u16>(),
        1usize..200,
        prop::collection::vec(0u16..=255, 0..9),
        0u32..5,
        0..ALL.len(),
        any::<bool>(),
    );
    for_all(
        device,
        [64, 8],
        (tables, growths),
        |(of_table, of_growth)| {
            let (seed, rows, counts, missing, which, weighted) = of_table;
            let ((max_depth, learning_rate, draws), leaves, penalties, shares) = of_growth;
            let (max_leaves, grow_policy) = leaves;
            let loss = ALL[which];
            let mut train = table(seed.into(), rows, &counts, missing, loss);
            if weighted {
                train.weights = Some((0..rows).map(|i| (1 + i % 7) as f32 * 0.3).collect());
            }
            let evals = vec![table(u32::from(seed) + 9, 5, &counts, missing, loss)];
            let [lambda, alpha, gamma, min_child_weight] = penalties;
            let [
                subsample,
                colsample_bytree,
                colsample_bylevel,
                colsample_bynode,
            ] = shares;
            let growth = Growth {
                max_depth,
                max_leaves,
                grow_policy,
                learning_rate,
                lambda,
                alpha,
                gamma,
                min_child_weight,
                subsample,
                colsample_bytree,
                colsample_bylevel,
                colsample_bynode,
                seed: Seed(draws),
            };
            let growth = match grow_policy {
                GrowPolicy::Symmetric => Growth {
                    max_leaves: 0,
                    colsample_bynode: 1.0,
                    ..growth
                },
                _ => growth,
            };
            compare(device, "any table", train, evals, loss, growth);
        },
    );
}

#[test]
fn sets_and_classes_that_are_not_there() {
    let train = table(1, 30, &[5], 0, Loss::Squared);
    let evals = vec![table(2, 7, &[5], 0, Loss::Squared)];
    let device = Device::cpu();
    let booster = Booster::new(&device, train, evals, Loss::Squared, &[0.0], growth()).unwrap();
    assert_eq!(booster.eval_margins(0).unwrap().len(), 7);
    for set in [1, usize::MAX] {
        let error = booster.eval_margins(set).unwrap_err();
        assert!(matches!(error, Error::InvalidParameter { .. }), "{error}");
    }
    for loss in [Loss::Squared, Loss::Gamma, Loss::Given] {
        let error = probabilities(&device, loss, &[1.0]).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
    let some = vec![0.0, 1.0, -90.0, f32::INFINITY];
    let same = predictions(&device, Loss::Huber { delta: 1.0 }, some.clone()).unwrap();
    assert_eq!(same, some);
    let powers = predictions(&device, Loss::Gamma, some).unwrap();
    assert_eq!(powers[0], 1.0);
    assert!(powers[2] > 0.0 && powers[3] == f32::INFINITY);
    for classes in [0, 3, 1 << 54, usize::MAX] {
        let loss = Loss::Softmax { classes };
        assert_eq!(probabilities(&device, loss, &[]).is_ok(), classes > 0);
        let error = probabilities(&device, loss, &[1.0; 4]).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    }
}

#[test]
fn parameters_and_targets_outside_their_domain_are_refused() {
    let device = Device::cpu();
    let outcome = |loss: Loss, y: f32| {
        let mut train = table(1, 30, &[5], 0, Loss::Squared);
        train.targets = vec![1.0; 30 * loss.targets()];
        train.targets[4] = y;
        let base = vec![0.0; loss.outputs()];
        Booster::new(&device, train, vec![], loss, &base, growth()).map(|_| ())
    };
    let bad = [f32::NAN, 0.0, -1.0, f32::INFINITY];
    for (name, of) in [
        (
            "alpha",
            (|alpha| Loss::Quantile { alpha }) as fn(f32) -> Loss,
        ),
        ("alpha", |alpha| Loss::Expectile { alpha }),
        ("delta", |delta| Loss::Huber { delta }),
        ("delta", |delta| Loss::PseudoHuber { delta }),
        ("variance_power", |variance_power| Loss::Tweedie {
            variance_power,
        }),
    ] {
        for x in bad {
            match outcome(of(x), 1.0) {
                Err(Error::InvalidParameter { name: got, .. }) => assert_eq!(got, name),
                other => panic!("{name} {x}: {other:?}"),
            }
        }
    }
    let step = |max_delta_step| Loss::Poisson { max_delta_step };
    for loss in [step(-0.5), step(f32::NAN), Loss::OneVsAll { classes: 1 }] {
        let refused = outcome(loss, 1.0);
        assert!(
            matches!(refused, Err(Error::InvalidParameter { .. })),
            "{loss:?}"
        );
    }
    for (loss, lowest, below) in [
        (step(0.0), 0.0, -1e-30),
        (
            Loss::Tweedie {
                variance_power: 1.1,
            },
            0.0,
            -1e-30,
        ),
        (Loss::Gamma, 1e-30, 0.0),
        (Loss::SquaredLog, -0.999_999, -1.0),
        (Loss::OneVsAll { classes: 3 }, 2.0, 3.0),
        (Loss::SquaredTargets { targets: 2 }, -1e30, f32::INFINITY),
        (Loss::Absolute, -1e30, f32::NAN),
    ] {
        outcome(loss, lowest).unwrap();
        let refused = outcome(loss, below);
        assert!(
            matches!(refused, Err(Error::LabelOutOfRange { row: 4, .. })),
            "{loss:?}"
        );
    }
}

#[test]
fn the_best_quantile_of_targets() {
    let y = [4.0, -1.0, 2.0, 2.0, 9.0];
    let of = |loss, weights: Option<&[f32]>| best_quantile(loss, &y, weights);
    assert_eq!(of(Loss::Absolute, None), Some(2.0));
    assert_eq!(of(Loss::Quantile { alpha: 0.8 }, None), Some(9.0));
    assert_eq!(of(Loss::Quantile { alpha: 0.75 }, None), Some(4.0));
    let weights = [1.0, 9.0, 1.0, 1.0, 1.0];
    assert_eq!(of(Loss::Absolute, Some(&weights)), Some(-1.0));
    // Relative weights 1/4, 1, 1/2, 1/2, 1/9.
    assert_eq!(of(Loss::Mape, None), Some(2.0));
    assert_eq!(of(Loss::Squared, None), None);
    assert_eq!(best_quantile(Loss::Absolute, &[], None), None);
}
