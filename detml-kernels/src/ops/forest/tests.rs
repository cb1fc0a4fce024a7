use super::*;
use crate::suite::{any_bits, assert_bits, backend_suite, hash};

/// A tree of `splits` splits at any numbers but NaN.
fn tree(seed: u32, features: u32, splits: u32) -> Vec<Node> {
    let draw = |i: u32| hash(seed, i);
    let mut inner = 0;
    let mut open = 1;
    let mut nodes = Vec::new();
    while open > 0 {
        let i = nodes.len() as u32;
        open -= 1;
        // The last open node must split as long as splits are owed.
        let split = inner < splits && (open == 0 || draw(4 * i) % 4 != 0);
        let threshold = f32::from_bits(draw(4 * i + 1));
        nodes.push(if split {
            inner += 1;
            open += 2;
            Node {
                left: 2 * inner - 1,
                feature: draw(4 * i + 2) % features,
                threshold: if threshold.is_nan() {
                    f32::NEG_INFINITY
                } else {
                    threshold
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
    nodes
}

fn forest(seed: u32, features: u32, trees: u32, outputs: usize) -> Forest {
    let mut starts = vec![0];
    let mut nodes = Vec::new();
    for i in 0..trees {
        nodes.extend(tree(
            seed + i,
            features,
            if features == 0 { 0 } else { i % 23 },
        ));
        starts.push(nodes.len());
    }
    let base = (0..outputs).map(|i| i as f32 * 0.3 - 1.0).collect();
    Forest::new(features as usize, base, starts, nodes).unwrap()
}

fn equal_the_plain_sum(device: &Device) {
    for (features, trees, outputs, rows) in [
        (5, 40, 1, 300),
        (1, 9, 3, 65),
        (33, 24, 2, 17),
        (3, 0, 1, 4),
        (0, 6, 2, 5),
        (4, 30, 1, 0),
        (2, 5, 5, 1),
        (7, 46, 2, 3000),
    ] {
        let forest = forest(7, features, trees, outputs);
        let mut x = any_bits(9, rows * features as usize);
        // One block without NaN, so that both ways are taken.
        for value in x.iter_mut().take(64 * features as usize) {
            *value = if value.is_nan() { 0.25 } else { *value };
        }
        let got = forest.margins(device, &x, rows).unwrap();
        assert_bits(
            &format!("{features} x {trees}"),
            &got,
            &plain::margins(&forest, &x, rows),
        );
    }
}

/// Adding the trees in another order must be seen.
fn another_order_shows(device: &Device) {
    let forest = forest(7, 5, 40, 1);
    let x = any_bits(9, 500);
    let got = forest.margins(device, &x, 100).unwrap();
    let mut trees: Vec<&[Node]> = forest
        .starts
        .windows(2)
        .map(|s| &forest.nodes[s[0]..s[1]])
        .collect();
    trees.reverse();
    let mut starts = vec![0];
    for tree in &trees {
        starts.push(starts.last().unwrap() + tree.len());
    }
    let turned = Forest::new(5, forest.base.clone(), starts, trees.concat()).unwrap();
    assert_ne!(got, turned.margins(device, &x, 100).unwrap());
}

backend_suite! { equal_the_plain_sum, another_order_shows }

/// Case F4 of damaged models.
#[test]
fn f4_hostile_trees_are_refused() {
    let base = forest(7, 5, 8, 1);
    let (at, _) = base
        .nodes
        .iter()
        .enumerate()
        .rev()
        .find(|(_, node)| node.left != 0)
        .unwrap();
    let leaf = base.nodes.len() - 1;
    type Change<'a> = &'a dyn Fn(&mut Vec<f32>, &mut Vec<usize>, &mut Vec<Node>);
    let refuse = |what: &str, change: Change<'_>| {
        let (mut margins, mut starts, mut nodes) =
            (base.base.clone(), base.starts.clone(), base.nodes.clone());
        change(&mut margins, &mut starts, &mut nodes);
        let result = Forest::new(5, margins, starts, nodes);
        assert!(
            matches!(
                result,
                Err(Error::InvalidValue { .. } | Error::Empty { .. })
            ),
            "{what}: {result:?}"
        );
    };
    refuse("itself as child", &|_, _, nodes| {
        nodes[at].left = (at - base.starts[7]) as u32
    });
    refuse("root as child", &|_, _, nodes| nodes[at].left = u32::MAX);
    refuse("cycle", &|_, _, nodes| nodes[leaf].left = 1);
    refuse("two parents", &|_, _, nodes| nodes[at].left -= 2);
    refuse("no children", &|_, _, nodes| nodes[at].left = 0);
    refuse("feature", &|_, _, nodes| nodes[at].feature = 5);
    refuse("threshold", &|_, _, nodes| nodes[at].threshold = f32::NAN);
    refuse("leaf", &|_, _, nodes| nodes[leaf].value = f32::INFINITY);
    refuse("base", &|base, _, _| base[0] = f32::NAN);
    refuse("no base", &|base, _, _| base.clear());
    refuse("truncated", &|_, _, nodes| nodes.truncate(leaf));
    refuse("starts", &|_, starts, _| starts[3] += 1);
    refuse("starts turned", &|_, starts, _| starts.swap(2, 3));
    refuse("no starts", &|_, starts, _| starts.clear());
    refuse("outputs", &|base, _, _| base.resize(3, 0.0));
}

#[test]
fn rows_that_take_no_features_may_be_too_many() {
    let leaf = Node {
        left: 0,
        feature: 0,
        threshold: 0.0,
        missing_left: true,
        value: 1.5,
    };
    let forest = Forest::new(0, vec![0.25], vec![0, 1], vec![leaf]).unwrap();
    let device = Device::cpu();
    assert_eq!(forest.margins(&device, &[], 3).unwrap(), [1.75; 3]);
    for rows in [usize::MAX, usize::MAX / 4, 1 << 45] {
        let error = forest.margins(&device, &[], rows).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    }
}
