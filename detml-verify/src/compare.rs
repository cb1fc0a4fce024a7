//! Comparing two witness files, with no reference table at hand.

use crate::judge::Verdict;
use crate::table::Key;
use crate::witness::Witness;
use std::collections::BTreeSet;

/// How two witnesses compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Every lane that either has, both have, with the same bits.
    Agree {
        /// Results that both have.
        results: usize,
        /// Lanes on fixtures that one has and the other declares it does not take.
        not_applicable: usize,
    },
    /// Results differ, or a part is in one only of a lane that both ran.
    Mismatch {
        /// Those, in order, each with the hash of the first and of the second.
        differing: Vec<(Key, Option<String>, Option<String>)>,
        /// Results that both have and that are equal.
        equal: usize,
    },
    /// They are not of one computation: the reason.
    Incomparable(String),
    /// What both have is equal, but one lacks lanes that the other ran, or both ran nothing.
    Incomplete {
        /// Results that both have.
        results: usize,
        /// How many lanes on fixtures the first lacks, and the second.
        lacking: [usize; 2],
        /// The first lane on a fixture that one lacks.
        first: Option<(String, String)>,
    },
}

impl Agreement {
    /// The process's exit code.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Agree { .. } => Verdict::Verified,
            Self::Mismatch { .. } => Verdict::Mismatch,
            Self::Incomparable(_) => Verdict::Incomparable,
            Self::Incomplete { .. } => Verdict::Incomplete,
        }
    }
}

/// The lanes on fixtures that a witness ran.
fn ran(witness: &Witness) -> BTreeSet<(&str, &str)> {
    let keys = witness.hashes.keys();
    keys.map(|key| (key.lane.as_str(), key.fixture.as_str()))
        .collect()
}

/// Compares two witnesses. That builds expect different things comes before bits that differ, and
/// these before lanes that one lacks: those that it did not run, or that its device refused.
/// Lanes that a witness declares not to take (because only the host computes them, for one) it does
/// not lack.
pub fn compare(a: &Witness, b: &Witness) -> Agreement {
    for (what, x, y) in [
        ("numerical contracts", &a.head.profile, &b.head.profile),
        ("references", &a.head.reference, &b.head.reference),
    ] {
        if x != y {
            return Agreement::Incomparable(format!("the {what} are {x} and {y}"));
        }
    }
    let both: BTreeSet<&Key> = a.hashes.keys().chain(b.hashes.keys()).collect();
    let (ran_a, ran_b) = (ran(a), ran(b));
    let (mut differing, mut equal) = (Vec::new(), 0);
    for key in both {
        let one = (key.lane.as_str(), key.fixture.as_str());
        if !ran_a.contains(&one) || !ran_b.contains(&one) {
            continue;
        }
        let (x, y) = (a.hashes.get(key), b.hashes.get(key));
        if x == y {
            equal += 1;
        } else {
            differing.push((key.clone(), x.cloned(), y.cloned()));
        }
    }
    if !differing.is_empty() {
        return Agreement::Mismatch { differing, equal };
    }
    let (mut lacking, mut not_applicable, mut first) = ([0; 2], 0, None);
    for one in ran_a.symmetric_difference(&ran_b) {
        let by = usize::from(ran_a.contains(one));
        let named = (one.0.to_owned(), one.1.to_owned());
        if [a, b][by].not_applicable.contains_key(&named) {
            not_applicable += 1;
        } else {
            lacking[by] += 1;
            first.get_or_insert(named);
        }
    }
    // Refused by both.
    for one in a.refused.keys().filter(|one| b.refused.contains_key(*one)) {
        lacking = lacking.map(|n| n + 1);
        first.get_or_insert(one.clone());
    }
    if lacking != [0; 2] || equal == 0 {
        return Agreement::Incomplete {
            results: equal,
            lacking,
            first,
        };
    }
    Agreement::Agree {
        results: equal,
        not_applicable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::witness::head;

    fn witness(lanes: &[(&str, char)]) -> Witness {
        Witness {
            head: head("cpu-x86_64-plain"),
            hashes: lanes
                .iter()
                .map(|(lane, hash)| (Key::new(lane, "ties", "out"), hash.to_string().repeat(32)))
                .collect(),
            ..Witness::default()
        }
    }

    fn ties(lane: &str) -> (String, String) {
        (lane.into(), "ties".into())
    }

    #[test]
    fn equal_bits_agree() {
        let a = witness(&[("a", '1'), ("b", '2')]);
        let mut b = a.clone();
        b.head = head("hip");
        let agree = Agreement::Agree {
            results: 2,
            not_applicable: 0,
        };
        assert_eq!(compare(&a, &b), agree);
        // What a device says it does not offer, it does not lack.
        b.hashes.pop_last();
        b.not_applicable.insert(ties("b"), "host".into());
        let agree = Agreement::Agree {
            results: 1,
            not_applicable: 1,
        };
        assert_eq!(compare(&a, &b), agree);
        assert_eq!(compare(&b, &a).verdict(), Verdict::Verified);
    }

    #[test]
    fn other_bits_come_before_lanes_that_are_lacking() {
        let a = witness(&[("a", '1'), ("b", '2')]);
        let b = witness(&[("b", '3'), ("c", '2')]);
        let Agreement::Mismatch { differing, equal } = compare(&a, &b) else {
            panic!("{:?}", compare(&a, &b));
        };
        assert_eq!((differing.len(), equal), (1, 0));
        assert_eq!(differing[0].0, Key::new("b", "ties", "out"));
        // A part that one lacks of a lane that both ran.
        let mut more = a.clone();
        let extra = Key::new("a", "ties", "model");
        more.hashes.insert(extra.clone(), "4".repeat(32));
        let Agreement::Mismatch { differing, equal } = compare(&a, &more) else {
            panic!("{:?}", compare(&a, &more));
        };
        assert_eq!(equal, 2);
        assert_eq!(differing, [(extra, None, Some("4".repeat(32)))]);
    }

    #[test]
    fn other_contracts_and_references_are_incomparable() {
        let a = witness(&[("a", '1')]);
        for change in [
            |w: &mut Witness| w.head.profile = "detml.f32.v9".into(),
            |w: &mut Witness| w.head.reference = "f".repeat(32),
        ] {
            let mut b = witness(&[("a", '2')]);
            change(&mut b);
            assert_eq!(compare(&a, &b).verdict(), Verdict::Incomparable);
        }
    }

    #[test]
    fn lanes_that_one_lacks_are_counted() {
        let a = witness(&[("a", '1'), ("b", '2'), ("c", '3')]);
        let mut b = witness(&[("a", '1')]);
        b.refused.insert(ties("b"), "lost".into());
        let expected = Agreement::Incomplete {
            results: 1,
            lacking: [0, 2],
            first: Some(ties("b")),
        };
        assert_eq!(compare(&a, &b), expected);
        assert_eq!(compare(&b, &a).verdict(), Verdict::Incomplete);
        // Nothing at all is no agreement.
        let empty = witness(&[]);
        assert_eq!(compare(&empty, &empty).verdict(), Verdict::Incomplete);
        let mut refused = witness(&[("a", '1')]);
        refused.refused.insert(ties("b"), "lost".into());
        assert_eq!(compare(&refused, &refused).verdict(), Verdict::Incomplete);
    }
}
