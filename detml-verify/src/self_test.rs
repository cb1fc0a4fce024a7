//! Does the verifier see what is wrong? Faults of several kinds, each put in on purpose.

use crate::fixtures::{Fixture, fixtures};
use crate::lanes::boosting::trees::{self, Fault};
use crate::lanes::{Lane, lanes};
use crate::run::hashes;
use crate::table::{Key, Table};
use detml_core::{BitHasher, Error, Result};
use detml_kernels::Device;
use detml_kernels::codegen::sum_in_another_order;
use std::collections::BTreeMap;

/// One fault and what the verifier made of it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The lane, the fixture and the fault.
    pub name: String,
    /// Whether the lane without the fault has the reference's bits.
    pub sound: bool,
    /// Whether the lane with the fault has others.
    pub seen: bool,
    /// The expected hash and the one with the fault.
    pub hashes: (String, String),
}

impl Trial {
    /// Whether all is as it must be.
    pub fn passed(&self) -> bool {
        self.sound && self.seen
    }
}

/// Lanes whose input is put off by an ulp, with the part that must show it.
const INPUT: [(&str, &str); 3] = [
    ("map/exp", "result"),
    ("gemm/nn", "result"),
    ("sort/ascending", "keys"),
];
/// The sum whose order is changed, and its part.
const ORDER: (&str, &str) = ("reduce/sum", "whole");

/// The faults in the search for splits.
const SPLITS: [(Fault, &str); 2] = [
    (Fault::Ties, "ties to the highest feature"),
    (Fault::Bin, "one row one bin too high"),
];

/// One input an ulp off in each of some lanes, one sum in another order, and where the device
/// boosts, trees whose ties break the wrong way and trees with a row in the wrong bin.
///
/// # Errors
/// Those of the lanes; `Parse` if the table lacks a lane.
pub fn self_test(table: &Table, device: &Device) -> Result<Vec<Trial>> {
    let lanes = lanes();
    let fixture = fixtures()
        .into_iter()
        .find(|fixture| fixture.name == "normal")
        .ok_or_else(|| Error::internal("no fixture `normal`"))?;
    let mut trials = Vec::new();
    for (name, part) in INPUT {
        let lane = find(&lanes, name)?;
        let sound = hashes(device, lane, &fixture)?;
        let off = hashes(device, lane, &fixture.one_ulp_off())?;
        let faulty = off.get(part).cloned().unwrap_or_default();
        let what = "one input one ulp off";
        trials.push(trial(table, lane, &fixture, part, what, &sound, faulty)?);
    }
    let lane = find(&lanes, ORDER.0)?;
    let sound = hashes(device, lane, &fixture)?;
    let sum = device.read(&sum_in_another_order(&device.upload(&fixture.x)?)?)?;
    // As the lane hashes its result.
    let faulty = BitHasher::new("buffer")
        .array("values", &[sum.len()], &sum)
        .finish()
        .to_string();
    let what = "the sum in another order";
    trials.push(trial(table, lane, &fixture, ORDER.1, what, &sound, faulty)?);
    let lane = find(&lanes, trees::NAME)?;
    let sound = match hashes(device, lane, &fixture) {
        Err(Error::Unsupported { .. }) => return Ok(trials),
        sound => sound?,
    };
    for (fault, what) in SPLITS {
        let faulty = trees::grow(device, &fixture, Some(fault))?.to_string();
        trials.push(trial(
            table,
            lane,
            &fixture,
            trees::PART,
            what,
            &sound,
            faulty,
        )?);
    }
    Ok(trials)
}

fn find<'a>(lanes: &'a [Lane], name: &str) -> Result<&'a Lane> {
    lanes
        .iter()
        .find(|lane| lane.name == name)
        .ok_or_else(|| Error::internal(format!("no lane {name}")))
}

fn trial(
    table: &Table,
    lane: &Lane,
    fixture: &Fixture,
    part: &str,
    what: &str,
    sound: &BTreeMap<String, String>,
    faulty: String,
) -> Result<Trial> {
    let key = Key::new(&lane.name, fixture.name, part);
    let entry = table.entries.get(&key).ok_or_else(|| {
        Error::parse(
            "the reference table",
            0,
            format!("an entry for {key}"),
            "none",
        )
    })?;
    Ok(Trial {
        name: format!("{key}: {what}"),
        sound: sound.get(part) == Some(&entry.hash),
        seen: faulty != entry.hash,
        hashes: (entry.hash.clone(), faulty),
    })
}
