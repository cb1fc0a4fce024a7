//! Trees on bins, without the estimator: what faults in the search for splits are put into.

use crate::fixtures::{Fixture, order};
use crate::lanes::Lane;
use detml_core::{BitHash, BitHasher, Result};
use detml_kernels::Device;
use detml_kernels::ops::boosting::{Bins, Booster, Growth, Loss, MISSING, Node, Table, Tree};

/// The lane's name and part.
pub(crate) const NAME: &str = "boosting/trees";
pub(crate) const PART: &str = "trees";

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Ties between splits go to the highest feature.
    Ties,
    /// One row lies one bin too high, on the other side of the first split.
    Bin,
}

/// The trees' hash on a fixture whose columns are there twice, so that every split ties.
pub(crate) fn grow(device: &Device, f: &Fixture, fault: Option<Fault>) -> Result<BitHash> {
    let (codes, features) = (codes(f), 2 * f.columns);
    let trees = match fault {
        None => boost(device, f, codes)?,
        Some(Fault::Ties) => {
            let reversed = codes.chunks_exact(features).flat_map(|row| {
                let mut row = row.to_vec();
                row.reverse();
                row
            });
            let mut trees = boost(device, f, reversed.collect())?;
            for node in trees.iter_mut().flat_map(|tree| &mut tree.nodes) {
                if node.left != 0 {
                    node.feature = features as u32 - 1 - node.feature;
                }
            }
            trees
        }
        Some(Fault::Bin) => {
            let mut codes = codes;
            let trees = boost(device, f, codes.clone())?;
            if let Some(root) = trees.iter().map(|tree| tree.nodes[0]).find(|n| n.left != 0) {
                let column = root.feature as usize % f.columns;
                let row = codes
                    .chunks_exact_mut(features)
                    .find(|row| row[column] == root.bin);
                if let Some(row) = row {
                    row[column] += 1;
                    row[column + f.columns] += 1;
                }
            }
            boost(device, f, codes)?
        }
    };
    Ok(hash(&trees))
}

/// The values' ranks in their columns, twice.
fn codes(f: &Fixture) -> Vec<u8> {
    let columns: Vec<Vec<u8>> = (0..f.columns)
        .map(|column| {
            let values = (0..f.rows).map(|row| f.row(row)[column]);
            let mut sorted: Vec<u32> = values.clone().map(order).collect();
            sorted.sort_unstable();
            sorted.dedup();
            values
                .map(|x| match x.is_nan() {
                    true => MISSING,
                    false => {
                        let at = sorted.partition_point(|other| *other < order(x));
                        (at * 253 / sorted.len().max(2)) as u8
                    }
                })
                .collect()
        })
        .collect();
    (0..f.rows)
        .flat_map(|row| {
            let once = columns.iter().map(move |codes| codes[row]);
            once.clone().chain(once)
        })
        .collect()
}

fn boost(device: &Device, f: &Fixture, codes: Vec<u8>) -> Result<Vec<Tree>> {
    let table = Table {
        bins: Bins::new(f.rows, codes, vec![255; 2 * f.columns])?,
        targets: f.binary.clone(),
        weights: None,
    };
    let growth = Growth {
        max_depth: 4,
        learning_rate: 0.3,
        ..Growth::default()
    };
    let mut booster = Booster::new(device, table, Vec::new(), Loss::Logistic, &[0.0], growth)?;
    for _ in 0..3 {
        booster.round()?;
    }
    booster.take_trees()
}

fn hash(trees: &[Tree]) -> BitHash {
    let mut hasher = BitHasher::new("trees");
    for tree in trees {
        let words = |of: fn(&Node) -> u32| tree.nodes.iter().map(of).collect::<Vec<_>>();
        let shape = [tree.nodes.len()];
        for (tag, of) in [
            ("left", (|node| node.left) as fn(&Node) -> u32),
            ("feature", |node| node.feature),
            ("bin", |node| u32::from(node.bin)),
            ("missing left", |node| u32::from(node.missing_left)),
            ("value", |node| node.value.to_bits()),
            ("gain", |node| node.gain.to_bits()),
            ("cover", |node| node.cover.to_bits()),
        ] {
            hasher.array(tag, &shape, &words(of));
        }
    }
    hasher.finish()
}

pub(super) fn lane() -> Lane {
    Lane::new(NAME, |device, f| Ok(vec![(PART, grow(device, f, None)?)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::fixtures;

    #[test]
    fn faults_show_where_there_are_splits() {
        let device = Device::cpu();
        for f in fixtures().iter().filter(|f| f.rows > 3 && !f.large) {
            let sound = grow(&device, f, None).unwrap();
            for fault in [Fault::Ties, Fault::Bin] {
                let faulty = grow(&device, f, Some(fault)).unwrap();
                assert_ne!(faulty, sound, "{} {fault:?}", f.name);
            }
        }
    }
}
