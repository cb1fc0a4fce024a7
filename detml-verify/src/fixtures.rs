//! Hostile data sets, made by integer code from a counter: no float arithmetic that a host could
//! do its own way makes any of them.

use std::ops::Range;

/// A data set with targets of every kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixture {
    /// Its name in the reference table.
    pub name: &'static str,
    /// What makes it hostile.
    pub what: &'static str,
    /// Rows of the features.
    pub rows: usize,
    /// Columns of the features.
    pub columns: usize,
    /// Features, row by row.
    pub x: Vec<f32>,
    /// A real target for each row, finite and exact in 24 bits.
    pub real: Vec<f32>,
    /// A class of 0 or 1 for each row.
    pub binary: Vec<f32>,
    /// A class of 0, 1 or 2 for each row.
    pub ternary: Vec<f32>,
    /// A weight for each row, some of them 0.
    pub weights: Vec<f32>,
    /// Whether it holds NaN.
    pub missing: bool,
    /// Whether it holds infinities, or NaN of any payload.
    pub wild: bool,
    /// Whether it is left out unless everything is asked for.
    pub large: bool,
}

impl Fixture {
    /// The features of one row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.x[row * self.columns..][..self.columns]
    }

    /// The features of some rows.
    pub fn rows(&self, rows: Range<usize>) -> &[f32] {
        &self.x[rows.start * self.columns..rows.end * self.columns]
    }

    /// The same with one feature moved to the next number away from zero, and nothing else: the
    /// first of the largest ones that are finite. A data set of zeros stays.
    pub fn one_ulp_off(&self) -> Self {
        let mut other = self.clone();
        let mut at: Option<usize> = None;
        for (i, x) in other.x.iter().enumerate() {
            let largest = at.map_or(0.0, |at| other.x[at].abs());
            if x.is_finite() && x.abs() < f32::MAX && x.abs() > largest {
                at = Some(i);
            }
        }
        if let Some(at) = at {
            other.x[at] = f32::from_bits(other.x[at].to_bits() + 1);
        }
        other
    }
}

/// A 32-bit mix with full avalanche: word `i` of stream `seed`.
pub fn word(seed: u32, i: u32) -> u32 {
    let mut x = i
        .wrapping_add(seed.wrapping_mul(0x9e37_79b9))
        .wrapping_add(0x85eb_ca6b);
    x = (x ^ (x >> 16)).wrapping_mul(0x21f0_aaad);
    x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
    x ^ (x >> 15)
}

/// A bell around 0 from -4 to 4 with 24 significant bits: the sum of four 16-bit words, its
/// significand filled up with further bits, so that sums of such numbers round.
fn bell(seed: u32, i: u32) -> f32 {
    let (a, b) = (word(seed, 2 * i), word(seed, 2 * i + 1));
    let sum = (a & 0xffff) + (a >> 16) + (b & 0xffff) + (b >> 16);
    let bits = times_power(sum as i32 - 0x1_fffe, -15).to_bits();
    if bits << 1 == 0 {
        return 0.0;
    }
    let free = bits.trailing_zeros().min(23);
    f32::from_bits(bits | (word(!seed, i) & ((1 << free) - 1)))
}

/// `n * 2^e` for `|n| < 2^24` and a normal result: exact.
fn times_power(n: i32, e: i32) -> f32 {
    let power = f32::from_bits(((127 + e) as u32) << 23);
    n as f32 * power
}

/// A word that orders as the numbers do, NaN last.
pub(crate) fn order(x: f32) -> u32 {
    let bits = x.to_bits();
    if x.is_nan() {
        u32::MAX
    } else if bits >> 31 == 1 {
        !bits
    } else {
        bits | 0x8000_0000
    }
}

struct Maker {
    name: &'static str,
    what: &'static str,
    rows: usize,
    columns: usize,
    large: bool,
}

impl Maker {
    fn fill(self, value: impl Fn(usize, usize, u32) -> f32) -> Fixture {
        let (rows, columns) = (self.rows, self.columns);
        let x: Vec<f32> = (0..rows * columns)
            .map(|i| value(i / columns, i % columns, i as u32))
            .collect();
        self.with(x)
    }

    /// Adds targets that hang on the features' order within their columns, by integers.
    fn with(self, x: Vec<f32>) -> Fixture {
        let (rows, columns) = (self.rows, self.columns);
        // Rank of each value among the distinct ones of its column, 0..=255.
        let ranks: Vec<Vec<i32>> = (0..columns)
            .map(|c| {
                let keys: Vec<u32> = (0..rows).map(|r| order(x[r * columns + c])).collect();
                let mut sorted = keys.clone();
                sorted.sort_unstable();
                sorted.dedup();
                keys.iter()
                    .map(|k| {
                        let at = sorted.partition_point(|other| other < k);
                        (at * 255 / sorted.len().saturating_sub(1).max(1)) as i32
                    })
                    .collect()
            })
            .collect();
        let signal: Vec<i32> = (0..rows)
            .map(|r| {
                let rank = |c: usize| ranks[c % columns][r];
                let noise = (word(0x7a26_e700, r as u32) >> 27) as i32;
                3 * rank(0) - 2 * rank(1) + (rank(0) & rank(2)) + noise - 16
            })
            .collect();
        let mut sorted = signal.clone();
        sorted.sort_unstable();
        let at = |num: usize, den: usize| sorted.get(rows * num / den).copied().unwrap_or(0);
        let (median, low, high) = (at(1, 2), at(1, 3), at(2, 3));
        let class = |yes: bool| if yes { 1.0 } else { 0.0 };
        Fixture {
            name: self.name,
            what: self.what,
            rows,
            columns,
            missing: x.iter().any(|v| v.is_nan()),
            wild: x
                .iter()
                .any(|v| v.is_infinite() || (v.is_nan() && v.to_bits() != 0x7fc0_0000)),
            real: signal.iter().map(|&s| times_power(s, -6)).collect(),
            binary: signal.iter().map(|&s| class(s >= median)).collect(),
            ternary: signal
                .iter()
                .map(|&s| class(s >= low) + class(s >= high))
                .collect(),
            weights: (0..rows)
                .map(|r| times_power((word(0x3e16_4707, r as u32) % 9) as i32, -2))
                .collect(),
            x,
            large: self.large,
        }
    }
}

/// Every fixture, the same in every run and on every host.
pub fn fixtures() -> Vec<Fixture> {
    let maker = |name, what, rows, columns| Maker {
        name,
        what,
        rows,
        columns,
        large: false,
    };
    vec![
        maker("normal", "bell-shaped", 1000, 8).fill(|_, _, i| bell(1, i)),
        maker("ties", "integers from -3 to 3", 600, 5)
            .fill(|_, _, i| (word(2, i) % 7) as f32 - 3.0),
        maker("wide", "columns on scales 2^-13 to 2^13", 500, 9).fill(|_, c, i| {
            let scale = c as i32 * 26 / 8 - 13;
            bell(3, i) * f32::from_bits(((127 + scale) as u32) << 23)
        }),
        maker("subnormal", "below 2^-126, and its neighbours", 300, 4)
            .fill(|_, _, i| f32::from_bits(word(4, i) & 0x80ff_ffff)),
        maker(
            "duplicates",
            "rows thrice, a constant column, a column of both zeros",
            402,
            6,
        )
        .fill(|r, c, _| match c {
            4 => 1234.0,
            5 if r % 2 == 0 => -0.0,
            5 => 0.0,
            _ => bell(5, (r / 3 * 6 + c) as u32),
        }),
        maker("negative", "below zero", 350, 7)
            .fill(|_, _, i| f32::from_bits(bell(6, i).to_bits() | 0x8000_0000)),
        maker(
            "missing",
            "one in seven is NaN, one column throughout",
            700,
            6,
        )
        .fill(|_, c, i| {
            if c == 3 || word(7, i).is_multiple_of(7) {
                f32::from_bits(0x7fc0_0000)
            } else {
                bell(8, i)
            }
        }),
        maker("huge", "up to the largest number, sums overflow", 300, 5)
            .fill(|_, _, i| f32::from_bits(0x7e00_0000 | (word(9, i) & 0x817f_ffff))),
        maker("tiny", "three rows", 3, 2).fill(|_, _, i| bell(10, i)),
        maker("single", "one row, one column", 1, 1).fill(|_, _, _| 0.5),
        maker(
            "bits",
            "any bit pattern, NaN payloads and infinities",
            512,
            8,
        )
        .fill(|_, _, i| match i % 61 {
            0 => f32::INFINITY,
            1 => f32::NEG_INFINITY,
            2 => f32::from_bits(0xffc0_0001),
            _ => f32::from_bits(word(11, i)),
        }),
        Maker {
            large: true,
            ..maker("odd", "12,345 rows of 17", 12_345, 17)
        }
        .fill(|_, _, i| bell(12, i)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use detml_core::BitHasher;
    use std::collections::BTreeSet;

    #[test]
    fn fixtures_are_what_they_say() {
        let all = fixtures();
        let find = |name: &str| all.iter().find(|f| f.name == name).unwrap();
        assert_eq!(
            all.iter().map(|f| f.name).collect::<BTreeSet<_>>().len(),
            all.len()
        );
        for f in &all {
            assert_eq!(f.x.len(), f.rows * f.columns, "{}", f.name);
            for target in [&f.real, &f.binary, &f.ternary, &f.weights] {
                assert_eq!(target.len(), f.rows);
                assert!(target.iter().all(|v| v.is_finite()), "{}", f.name);
            }
            assert_eq!(f.wild, f.name == "bits");
            assert_eq!(f.missing, matches!(f.name, "missing" | "bits"));
        }
        assert!(find("subnormal").x.iter().any(|v| v.is_subnormal()));
        assert!(
            find("huge")
                .x
                .iter()
                .all(|v| v.abs() > 1e37 && v.is_finite())
        );
        assert!(find("negative").x.iter().all(|v| v.is_sign_negative()));
        let wide = find("wide");
        assert!(wide.x.iter().any(|v| *v != 0.0 && v.abs() < 1e-4));
        assert!(wide.x.iter().any(|v| v.abs() > 4096.0));
        let duplicates = find("duplicates");
        assert_eq!(duplicates.row(0)[..4], duplicates.row(2)[..4]);
        for classes in [2.0, 3.0] {
            let normal = find("normal");
            let target = if classes == 2.0 {
                &normal.binary
            } else {
                &normal.ternary
            };
            let seen: BTreeSet<u32> = target.iter().map(|v| *v as u32).collect();
            assert_eq!(seen.len(), classes as usize);
        }
    }

    #[test]
    fn fixtures_are_frozen() {
        // Every hash of the reference table rests on these.
        let mut hasher = BitHasher::new("fixtures");
        for f in fixtures() {
            for values in [&f.x, &f.real, &f.binary, &f.ternary, &f.weights] {
                hasher.array(f.name, &[values.len()], values);
            }
        }
        assert_eq!(
            hasher.finish().to_string(),
            "aba59e349c46c270ff1b699adf08075e"
        );
    }

    #[test]
    fn one_ulp_is_one_ulp() {
        for f in fixtures() {
            let g = f.one_ulp_off();
            let changed: Vec<_> = (0..f.x.len())
                .filter(|&i| f.x[i].to_bits() != g.x[i].to_bits())
                .collect();
            assert_eq!(changed.len(), 1, "{}", f.name);
            assert_eq!(
                g.x[changed[0]].to_bits(),
                f.x[changed[0]].to_bits() + 1,
                "{}",
                f.name
            );
        }
    }
}
