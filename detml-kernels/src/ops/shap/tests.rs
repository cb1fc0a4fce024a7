use super::*;
use crate::ops::forest::Node;
use crate::suite::{any_bits, assert_bits, backend_suite, hash};

/// A tree of `splits` splits, with covers that are no sums of each other's.
fn tree(seed: u32, features: u32, splits: u32, deep: bool) -> (Vec<Node>, Vec<f32>) {
    let draw = |i: u32| hash(seed, i);
    let (mut inner, mut open) = (0, 1);
    let mut nodes = Vec::new();
    while open > 0 {
        let i = nodes.len() as u32;
        open -= 1;
        // The last open node must split as long as splits are owed; deep trees split no other.
        let split = inner < splits && (open == 0 || (!deep && draw(4 * i) % 4 != 0));
        let threshold = f32::from_bits(draw(4 * i + 1));
        nodes.push(if split {
            inner += 1;
            open += 2;
            Node {
                left: 2 * inner - 1,
                feature: match deep {
                    true => (inner + seed) % features,
                    false => draw(4 * i + 2) % features,
                },
                threshold: match draw(4 * i + 2) >> 28 {
                    0 => f32::INFINITY,
                    1 => f32::NEG_INFINITY,
                    2 => -0.0,
                    _ if threshold.is_nan() => 0.0,
                    _ => threshold,
                },
                missing_left: draw(4 * i + 3) % 2 == 0,
                value: 0.0,
            }
        } else {
            Node {
                left: 0,
                feature: 0,
                threshold: 0.0,
                missing_left: true,
                value: (draw(4 * i + 1) >> 8) as f32 * 1e-7 - 0.5,
            }
        });
    }
    let mut covers = vec![0.0; nodes.len()];
    covers[0] = 1000.0;
    for (i, node) in nodes.iter().enumerate().filter(|(_, node)| node.left != 0) {
        let part = (draw(7 * i as u32) % 101) as f32 / 100.0;
        let left = node.left as usize;
        // Some nodes weigh nothing.
        covers[left] = covers[i] * part;
        covers[left + 1] = covers[i] * (1.0 - part);
    }
    (nodes, covers)
}

fn forest(seed: u32, [features, trees, outputs]: [u32; 3], deep: bool) -> (Forest, Vec<f32>) {
    let mut starts = vec![0];
    let (mut nodes, mut covers) = (Vec::new(), Vec::new());
    for i in 0..trees {
        let splits = match features {
            0 => 0,
            _ if deep => 40,
            _ => i % 15,
        };
        let (tree, weights) = tree(seed + i, features, splits, deep);
        nodes.extend(tree);
        covers.extend(weights);
        starts.push(nodes.len());
    }
    let base = (0..outputs).map(|i| i as f32 * 0.3 - 1.0).collect();
    (
        Forest::new(features as usize, base, starts, nodes).unwrap(),
        covers,
    )
}

/// Any bits, and for every third number a threshold or the next number above one.
fn rows_of(forest: &Forest, rows: usize) -> Vec<f32> {
    let mut x = any_bits(9, rows * forest.features());
    let nodes: Vec<&Node> = forest.nodes().iter().filter(|n| n.left != 0).collect();
    if nodes.is_empty() {
        return x;
    }
    for (i, x) in x.iter_mut().enumerate().filter(|(i, _)| i % 3 != 0) {
        let column = (i % forest.features()) as u32;
        let near = nodes
            .iter()
            .cycle()
            .skip(hash(3, i as u32) as usize % nodes.len());
        if let Some(node) = near.take(nodes.len()).find(|node| node.feature == column) {
            let key = Ieee::PLAIN.order_key(node.threshold) + hash(5, i as u32) % 2;
            *x = Ieee::PLAIN.from_total_key(key);
        }
    }
    x
}

const FORESTS: [([u32; 3], usize, bool); 13] = [
    ([5, 40, 1], 300, false),
    ([1, 9, 3], 65, false),
    ([33, 34, 2], 17, false),
    ([3, 0, 1], 4, false),
    ([0, 6, 2], 5, false),
    ([4, 30, 1], 0, false),
    ([2, 5, 5], 1, false),
    ([7, 46, 2], 131, false),
    ([9, 3, 1], 19, true),
    ([4, 3, 1], 19, true),
    ([16, 2, 1], 9, true),
    ([24, 2, 1], 9, true),
    ([32, 4, 2], 33, true),
];

/// Each output's numbers with the expected margin behind them.
fn with_expected(outputs: Vec<Vec<f32>>, expected: &[f32]) -> Vec<f32> {
    let rows = outputs.into_iter().zip(expected);
    rows.flat_map(|(mut row, &expected)| {
        row.push(expected);
        row
    })
    .collect()
}

fn values_equal_the_plain_sums(device: &Device) {
    for (i, (shape, rows, deep)) in FORESTS.into_iter().enumerate() {
        let (forest, covers) = forest(7 + i as u32, shape, deep);
        let x = rows_of(&forest, rows);
        let shap = PathDependent::new(&forest, &covers).unwrap();
        let got = shap.values(device, &x, rows).unwrap();
        let mut expected = Vec::new();
        for row in 0..rows {
            let x = &x[row * forest.features()..][..forest.features()];
            let values = plain::values(&forest, &covers, x);
            expected.extend(with_expected(values, shap.expected()));
        }
        assert_bits(&format!("{shape:?}"), &got, &expected);
    }
}

fn interactions_equal_the_plain_sums(device: &Device) {
    for (i, (shape, rows, deep)) in FORESTS.into_iter().enumerate() {
        let rows = rows.min(40);
        let (forest, covers) = forest(27 + i as u32, shape, deep);
        let features = forest.features();
        let x = rows_of(&forest, rows);
        let shap = PathDependent::new(&forest, &covers).unwrap();
        let got = shap.interactions(device, &x, rows).unwrap();
        let mut expected = Vec::new();
        for row in 0..rows {
            let x = &x[row * features..][..features];
            let matrices = plain::interactions(&forest, &covers, x);
            for (matrix, &bias) in matrices.iter().zip(shap.expected()) {
                for row in matrix.chunks_exact(features.max(1)) {
                    expected.extend(row);
                    expected.push(0.0);
                }
                expected.extend(std::iter::repeat_n(0.0, features));
                expected.push(bias);
            }
        }
        assert_bits(&format!("{shape:?}"), &got, &expected);
    }
}

fn a_background_equals_the_plain_sums(device: &Device) {
    for (i, (shape, rows, deep)) in FORESTS.into_iter().enumerate() {
        let rows = rows.min(70);
        let (forest, _) = forest(47 + i as u32, shape, deep);
        let features = forest.features();
        let x = rows_of(&forest, rows + 21);
        let (background, x) = x.split_at(21 * features);
        let shap = Interventional::new(&forest, background, 21).unwrap();
        let got = shap.values(device, x, rows).unwrap();
        let mut expected = Vec::new();
        for row in 0..rows {
            let values = match features {
                0 => vec![Vec::new(); forest.base().len()],
                _ => plain::interventional(&forest, background, &x[row * features..][..features]),
            };
            expected.extend(with_expected(values, shap.expected()));
        }
        assert_bits(&format!("{shape:?}"), &got, &expected);
    }
}

/// Leaves so large that sums overflow, to infinities and then to NaN.
fn overflows_have_one_bit_pattern(device: &Device) {
    let (base, covers) = forest(7, [5, 40, 1], false);
    let nodes = base.nodes().iter().map(|node| Node {
        value: node.value * 2.5e38,
        ..*node
    });
    let starts = base.starts().to_vec();
    let forest = Forest::new(5, vec![0.0], starts, nodes.collect()).unwrap();
    let x = rows_of(&forest, 200);
    let shap = PathDependent::new(&forest, &covers).unwrap();
    let got = shap.values(device, &x, 200).unwrap();
    assert!(got.iter().any(|x| x.is_infinite()) && got.iter().any(|x| x.is_nan()));
    let matrices = shap.interactions(device, &x, 200).unwrap();
    assert!(matrices.iter().any(|x| x.is_nan()));
    let against = Interventional::new(&forest, &x[..50], 10).unwrap();
    let others = against.values(device, &x, 200).unwrap();
    for row in 0..200 {
        let x5 = &x[row * 5..][..5];
        let expected = &plain::values(&forest, &covers, x5)[0];
        assert_bits("values", &got[row * 6..][..5], expected);
        let expected = &plain::interactions(&forest, &covers, x5)[0];
        for i in 0..5 {
            let row = &matrices[row * 36 + i * 6..][..5];
            assert_bits("interactions", row, &expected[i * 5..][..5]);
        }
        let expected = &plain::interventional(&forest, &x[..50], x5)[0];
        assert_bits("background", &others[row * 6..][..5], expected);
    }
}

/// A first segment of trees sums to +inf, the second one to -inf: NaN comes up in the fold.
fn folds_of_infinities_have_one_bit_pattern(device: &Device) {
    let mut nodes = Vec::new();
    for tree in 0..2 * SEGMENT {
        let largest = if tree < SEGMENT { 3e38 } else { -3e38 };
        let node = |left, feature, value| Node {
            left,
            feature,
            threshold: 0.0,
            missing_left: true,
            value,
        };
        nodes.extend([node(1, 0, 0.0), node(3, 1, 0.0), node(5, 1, 0.0)]);
        nodes.push(node(0, 0, largest));
        nodes.extend([node(0, 0, 0.0); 3]);
    }
    let starts = (0..=2 * SEGMENT).map(|tree| 7 * tree).collect();
    let covers = [4.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0].repeat(2 * SEGMENT);
    let forest = Forest::new(2, vec![0.0], starts, nodes).unwrap();
    let x = [-1.0, -1.0, -1.0, 1.0, 1.0, 1.0];
    let shap = PathDependent::new(&forest, &covers).unwrap();
    let values = shap.values(device, &x, 3).unwrap();
    let matrices = shap.interactions(device, &x, 3).unwrap();
    let against = Interventional::new(&forest, &x[4..], 1).unwrap();
    let others = against.values(device, &x, 3).unwrap();
    assert!(values[0].is_nan() && matrices[1].is_nan() && others[0].is_nan());
    for (row, x) in x.chunks_exact(2).enumerate() {
        let expected = &plain::values(&forest, &covers, x)[0];
        assert_bits("values", &values[3 * row..][..2], expected);
        let expected = &plain::interactions(&forest, &covers, x)[0];
        assert_bits("interactions", &matrices[9 * row..][..2], &expected[..2]);
        let row = &matrices[9 * row + 3..][..2];
        assert_bits("interactions", row, &expected[2..]);
    }
    let expected = &plain::interventional(&forest, &x[4..], &x[..2])[0];
    assert_bits("background", &others[..2], expected);
}

/// Adding the trees in another order must be seen.
fn another_order_shows(device: &Device) {
    let (forest, covers) = forest(7, [5, 40, 1], false);
    let x = rows_of(&forest, 100);
    let (mut starts, mut nodes, mut turned) = (vec![0], Vec::new(), Vec::new());
    for pair in forest.starts().windows(2).rev() {
        nodes.extend(&forest.nodes()[pair[0]..pair[1]]);
        turned.extend(&covers[pair[0]..pair[1]]);
        starts.push(nodes.len());
    }
    let other = Forest::new(5, forest.base().to_vec(), starts, nodes).unwrap();
    let one = PathDependent::new(&forest, &covers).unwrap();
    let other = PathDependent::new(&other, &turned).unwrap();
    let values = |shap: &PathDependent| shap.values(device, &x, 100).unwrap();
    assert_ne!(values(&one), values(&other));
}

/// A row's bits don't depend on those around it.
fn rows_are_alone(device: &Device) {
    let (forest, covers) = forest(7, [7, 20, 2], false);
    let x = rows_of(&forest, 150);
    let shap = PathDependent::new(&forest, &covers).unwrap();
    let against = Interventional::new(&forest, &x[..70], 10).unwrap();
    let values = shap.values(device, &x, 150).unwrap();
    let matrices = shap.interactions(device, &x, 150).unwrap();
    let others = against.values(device, &x, 150).unwrap();
    for row in [0, 1, 15, 16, 63, 64, 149] {
        let x = &x[row * 7..][..7];
        assert_bits(
            "values",
            &shap.values(device, x, 1).unwrap(),
            &values[row * 16..][..16],
        );
        let matrix = shap.interactions(device, x, 1).unwrap();
        assert_bits("interactions", &matrix, &matrices[row * 128..][..128]);
        let other = against.values(device, x, 1).unwrap();
        assert_bits("background", &other, &others[row * 16..][..16]);
    }
}

backend_suite! {
    values_equal_the_plain_sums,
    interactions_equal_the_plain_sums,
    a_background_equals_the_plain_sums,
    overflows_have_one_bit_pattern,
    folds_of_infinities_have_one_bit_pattern,
    another_order_shows,
    rows_are_alone,
}

/// What a set of known features is worth for a tree, by the definition.
fn worth(nodes: &[Node], covers: &[f32], x: &[f32], known: u32) -> f64 {
    fn below(nodes: &[Node], covers: &[f32], x: &[f32], known: u32, at: usize) -> f64 {
        let node = &nodes[at];
        if node.left == 0 {
            return f64::from(node.value);
        }
        let left = node.left as usize;
        let go = |child| below(nodes, covers, x, known, child);
        if known >> node.feature & 1 == 1 {
            let value = x[node.feature as usize];
            let to_left = if value.is_nan() {
                node.missing_left
            } else {
                value <= node.threshold
            };
            return go(left + usize::from(!to_left));
        }
        let shares = match covers[at] {
            0.0 => [0.5; 2],
            all => [left, left + 1].map(|child| f64::from(covers[child]) / f64::from(all)),
        };
        shares[0] * go(left) + shares[1] * go(left + 1)
    }
    below(nodes, covers, x, known, 0)
}

/// Shapley and interaction values of a game of `n` players by the definition.
fn shapley(n: usize, game: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let factorial = |k: usize| (1..=k).fold(1.0, |f, k| f * k as f64);
    let (mut values, mut pairs) = (vec![0.0; n], vec![0.0; n * n]);
    for set in 0..1usize << n {
        let size = set.count_ones() as usize;
        for i in (0..n).filter(|i| set >> i & 1 == 0) {
            let with = set | 1 << i;
            let share = factorial(size) * factorial(n - size - 1) / factorial(n);
            values[i] += share * (game[with] - game[set]);
            for j in (0..n).filter(|j| with >> j & 1 == 0) {
                let both = game[with | 1 << j] - game[with] - game[set | 1 << j] + game[set];
                let share = factorial(size) * factorial(n - size - 2) / factorial(n - 1);
                pairs[i * n + j] += share * both / 2.0;
            }
        }
    }
    for i in 0..n {
        let others: f64 = (0..n).map(|j| pairs[i * n + j]).sum();
        pairs[i * n + i] = values[i] - others;
    }
    (values, pairs)
}

/// The game of a forest's only output.
fn game(forest: &Forest, covers: &[f32], x: &[f32]) -> Vec<f64> {
    let trees: Vec<_> = forest.starts().windows(2).collect();
    (0..1u32 << forest.features())
        .map(|known| {
            let worth =
                |s: &&[usize]| worth(&forest.nodes()[s[0]..s[1]], &covers[s[0]..s[1]], x, known);
            trees.iter().map(worth).sum()
        })
        .collect()
}

/// The sum of the leaves' magnitudes: what errors are measured by.
fn scale(forest: &Forest) -> f64 {
    let trees = forest.starts().windows(2);
    let largest = |s: &[usize]| {
        let values = forest.nodes()[s[0]..s[1]].iter().map(|n| n.value.abs());
        f64::from(values.fold(0.0, f32::max))
    };
    trees.map(largest).sum()
}

/// The error against `f64` sums over all subsets, in units of the largest leaves' sum.
#[test]
fn values_are_those_of_the_definition() {
    let device = Device::cpu();
    let mut worst = [0.0f64; 3];
    for (shape, deep) in [
        ([8, 25, 1], false),
        ([5, 17, 1], false),
        ([2, 7, 1], false),
        ([10, 1, 1], true),
        ([12, 2, 1], true),
    ] {
        let (forest, covers) = forest(70, shape, deep);
        let n = forest.features();
        let rows = if deep { 3 } else { 20 };
        let x = rows_of(&forest, rows + 10);
        let (background, x) = x.split_at(10 * n);
        let shap = PathDependent::new(&forest, &covers).unwrap();
        let against = Interventional::new(&forest, background, 10).unwrap();
        let values = shap.values(&device, x, rows).unwrap();
        let matrices = shap.interactions(&device, x, rows).unwrap();
        let others = against.values(&device, x, rows).unwrap();
        let scale = scale(&forest);
        let mut error = |kind: usize, got: f32, exact: f64| {
            worst[kind] = worst[kind].max((f64::from(got) - exact).abs() / scale);
        };
        for row in 0..rows {
            let x = &x[row * n..][..n];
            let all = game(&forest, &covers, x);
            let (exact, pairs) = shapley(n, &all);
            for i in 0..n {
                error(0, values[row * (n + 1) + i], exact[i]);
                for j in 0..n {
                    let at = (row * (n + 1) + i) * (n + 1) + j;
                    error(1, matrices[at], pairs[i * n + j]);
                }
            }
            error(
                0,
                values[row * (n + 1) + n],
                all[0] + f64::from(forest.base()[0]),
            );
            // A row whose unknown features are another's.
            let mut mean = vec![0.0; all.len()];
            for other in background.chunks_exact(n) {
                for (known, mean) in mean.iter_mut().enumerate() {
                    let mixed: Vec<f32> = (0..n)
                        .map(|i| if known >> i & 1 == 1 { x[i] } else { other[i] })
                        .collect();
                    let margin = game(&forest, &covers, &mixed)[all.len() - 1];
                    *mean += margin / 10.0;
                }
                if n > 8 {
                    break;
                }
            }
            if n <= 8 {
                let (exact, _) = shapley(n, &mean);
                for i in 0..n {
                    error(2, others[row * (n + 1) + i], exact[i]);
                }
                error(
                    2,
                    others[row * (n + 1) + n],
                    mean[0] + f64::from(forest.base()[0]),
                );
            }
        }
    }
    println!("worst errors {worst:?}");
    assert!(worst.iter().all(|&error| error < 2e-7), "{worst:?}");
}

/// A tree that splits on each of its features once.
fn chain(features: u32) -> (Vec<Node>, Vec<f32>) {
    let mut nodes = Vec::new();
    for i in 0..features {
        let node = |left, feature, value| Node {
            left,
            feature,
            threshold: 0.5,
            missing_left: false,
            value,
        };
        if i > 0 {
            nodes.push(node(0, 0, i as f32));
        }
        nodes.push(node(2 * i + 1, i, 0.0));
    }
    let leaf = |value| Node {
        left: 0,
        feature: 0,
        threshold: 0.0,
        missing_left: true,
        value,
    };
    nodes.extend([leaf(-1.0), leaf(2.0)]);
    let mut covers = vec![1.0; nodes.len()];
    let mut all = 1.0;
    for i in (0..nodes.len()).rev().filter(|&i| nodes[i].left != 0) {
        all += 1.0;
        covers[i] = all;
    }
    (nodes, covers)
}

#[test]
fn paths_of_32_features_are_the_longest() {
    let device = Device::cpu();
    let (nodes, covers) = chain(32);
    let forest = Forest::new(32, vec![0.5], vec![0, nodes.len()], nodes).unwrap();
    let shap = PathDependent::new(&forest, &covers).unwrap();
    let x: Vec<f32> = (0..32 * 40).map(|i| (hash(1, i) % 3) as f32).collect();
    let values = shap.values(&device, &x, 40).unwrap();
    let margins = forest.margins(&device, &x, 40).unwrap();
    for (row, margin) in values.chunks_exact(33).zip(margins) {
        let sum: f64 = row.iter().map(|&v| f64::from(v)).sum();
        // Of 32 leaves up to 31.
        assert!((sum - f64::from(margin)).abs() < 1e-4, "{sum} {margin}");
    }
    let (nodes, covers) = chain(33);
    let forest = Forest::new(33, vec![0.5], vec![0, nodes.len()], nodes).unwrap();
    for error in [
        PathDependent::new(&forest, &covers).map(drop),
        Interventional::new(&forest, &[0.0; 33], 1).map(drop),
    ] {
        assert!(matches!(error, Err(Error::Unsupported { .. })), "{error:?}");
    }
}

#[test]
fn hostile_covers_are_refused() {
    let (forest, covers) = forest(7, [5, 8, 1], false);
    let refuse = |what: &str, change: &dyn Fn(&mut Vec<f32>)| {
        let mut covers = covers.clone();
        change(&mut covers);
        let result = PathDependent::new(&forest, &covers);
        assert!(
            matches!(
                result,
                Err(Error::InvalidValue { .. } | Error::Shape { .. })
            ),
            "{what}: {result:?}"
        );
    };
    refuse("too few", &|covers| covers.truncate(3));
    refuse("too many", &|covers| covers.push(1.0));
    refuse("NaN", &|covers| covers[1] = f32::NAN);
    refuse("infinite", &|covers| covers[1] = f32::INFINITY);
    refuse("negative", &|covers| covers[2] = -1.0);
    let inner = forest.nodes().iter().position(|node| node.left != 0);
    let first = forest.starts().iter().rev().find(|&&s| s <= inner.unwrap());
    let child = first.unwrap() + forest.nodes()[inner.unwrap()].left as usize;
    refuse("above the parent's", &|covers| {
        covers[child] = covers[inner.unwrap()] * 1.07;
    });
    let device = Device::cpu();
    let shap = PathDependent::new(&forest, &covers).unwrap();
    let error = shap.values(&device, &[0.0; 9], 2).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
    let error = Interventional::new(&forest, &[0.0; 9], 2).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
    let error = Interventional::new(&forest, &[], 0).unwrap_err();
    assert!(matches!(error, Error::Empty { .. }), "{error}");
}

/// Rules integrate powers as far as they should.
#[test]
fn rules_are_exact() {
    for rule in &rule::RULES {
        let (nodes, weights) = (rule.nodes(), rule.weights());
        for power in 0..2 * rule.points() as i32 {
            let terms = nodes.iter().zip(&weights);
            let sum: f64 = terms
                .map(|(&t, &w)| f64::from(w) * f64::from(t).powi(power))
                .sum();
            let exact = 1.0 / f64::from(power + 1);
            assert!((sum / exact - 1.0).abs() < 2e-6, "{rule:?} {power} {sum}");
        }
    }
    assert_eq!(rule::of(0).points(), 2);
    assert_eq!(rule::of(5).points(), 3);
    assert_eq!(rule::of(32).points(), 16);
}

/// A path's values in `f64`, by the sizes of the sets that the others form: all terms have one
/// sign, and nothing is divided out again.
fn by_sizes(steps: &[plain::Step], leaf: f64, values: &mut [f64]) {
    let n = steps.len();
    for (i, step) in steps.iter().enumerate() {
        let mut sizes = vec![0.0; n];
        sizes[0] = 1.0;
        for (_, other) in steps.iter().enumerate().filter(|(j, _)| *j != i) {
            for k in (0..n).rev() {
                let below = if k > 0 && other.pass {
                    sizes[k - 1]
                } else {
                    0.0
                };
                sizes[k] = sizes[k] * other.share + below;
            }
        }
        // k! (n - 1 - k)! / n!
        let mut weight = 1.0 / n as f64;
        let mut sum = 0.0;
        for (k, size) in sizes.iter().enumerate() {
            sum += weight * size;
            weight *= (k + 1) as f64 / (n - 1 - k).max(1) as f64;
        }
        let pass = f64::from(u8::from(step.pass));
        values[step.feature as usize] += leaf * (pass - step.share) * sum;
    }
}

/// The error on long paths, in units of the largest leaves' sum.
#[test]
fn long_paths_are_accurate() {
    let mut worst = 0.0f64;
    for (seed, features) in [(3, 16), (5, 24), (7, 32), (11, 32)] {
        let (forest, covers) = forest(seed, [features, 5, 1], true);
        let n = features as usize;
        let x = rows_of(&forest, 100);
        let shap = PathDependent::new(&forest, &covers).unwrap();
        let got = shap.values(&Device::cpu(), &x, 100).unwrap();
        for (x, got) in x.chunks_exact(n).zip(got.chunks_exact(n + 1)) {
            let mut exact = vec![0.0; n];
            for s in forest.starts().windows(2) {
                let nodes = &forest.nodes()[s[0]..s[1]];
                for (steps, leaf) in plain::ways(nodes, &covers[s[0]..s[1]], x) {
                    by_sizes(&steps, f64::from(leaf), &mut exact);
                }
            }
            for (&got, exact) in got.iter().zip(exact) {
                worst = worst.max((f64::from(got) - exact).abs() / scale(&forest));
            }
        }
    }
    println!("worst error {worst:e}");
    assert!(worst < 1e-6, "{worst:e}");
}
