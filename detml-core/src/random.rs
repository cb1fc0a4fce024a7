//! Counter-keyed randomness (N12): a draw is a function of (seed, stream, element index)
//! alone, never of a thread, a grid or the order of calls.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The seed of everything random in one call.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seed(pub u64);

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Ten rounds of Philox4x32 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy
/// as 1, 2, 3", SC 2011), the function of Random123.
#[must_use]
pub const fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    let mut round = 0;
    while round < 10 {
        let p0 = MULTIPLIERS[0] as u64 * c0 as u64;
        let p1 = MULTIPLIERS[1] as u64 * c2 as u64;
        (c0, c1, c2, c3) = (
            (p1 >> 32) as u32 ^ c1 ^ k0,
            p1 as u32,
            (p0 >> 32) as u32 ^ c3 ^ k1,
            p0 as u32,
        );
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
        round += 1;
    }
    [c0, c1, c2, c3]
}

/// Draws of one (seed, stream), addressed by element index.
///
/// The block of an index is `philox4x32_10([index low, index high, stream, attempt],
/// [seed low, seed high])`, where `attempt` is 0 but for draws that reject values.
///
/// ```
/// use detml_core::{Philox4x32, Seed};
///
/// let draws = Philox4x32::new(Seed(7), 0);
/// let dice: Vec<u32> = (0..4).map(|i| 1 + draws.below(6, i)).collect();
/// // Any draw can be had alone, in any order.
/// assert_eq!(1 + draws.below(6, 3), dice[3]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Philox4x32 {
    key: [u32; 2],
    stream: u32,
}

impl Philox4x32 {
    /// The draws of `stream` under `seed`. Streams of one seed are independent.
    #[must_use]
    pub const fn new(seed: Seed, stream: u32) -> Self {
        Self {
            key: [seed.0 as u32, (seed.0 >> 32) as u32],
            stream,
        }
    }

    /// The draws of the stream whose number is the first four bytes, little-endian, of the
    /// BLAKE3 hash of `name`: so that two purposes under one seed don't share draws.
    #[must_use]
    pub fn named(seed: Seed, name: &str) -> Self {
        let hash = blake3::hash(name.as_bytes());
        let [a, b, c, d, ..] = *hash.as_bytes();
        Self::new(seed, u32::from_le_bytes([a, b, c, d]))
    }

    /// The seed.
    #[must_use]
    pub const fn seed(&self) -> Seed {
        Seed(((self.key[1] as u64) << 32) | self.key[0] as u64)
    }

    /// The number of the stream.
    #[must_use]
    pub const fn stream(&self) -> u32 {
        self.stream
    }

    /// The four words of `index`.
    #[must_use]
    pub const fn block(&self, index: u64) -> [u32; 4] {
        self.attempt(index, 0)
    }

    const fn attempt(&self, index: u64, attempt: u32) -> [u32; 4] {
        let counter = [index as u32, (index >> 32) as u32, self.stream, attempt];
        philox4x32_10(counter, self.key)
    }

    /// Element `index` of an endless row of words: word `index % 4` of block `index / 4`.
    #[must_use]
    pub const fn word(&self, index: u64) -> u32 {
        self.block(index / 4)[(index % 4) as usize]
    }

    /// Element `index` of an endless row of uniform numbers in `[0, 1)`, multiples of 2^-24:
    /// the upper 24 bits of [`word`](Self::word).
    #[must_use]
    pub const fn uniform(&self, index: u64) -> f32 {
        // Both the conversion and the product by a power of two are exact.
        (self.word(index) >> 8) as f32 * f32::from_bits(0x3380_0000)
    }

    /// A number in `0..n`, each equally likely; 0 for `n` = 0.
    ///
    /// Lemire's multiply-and-reject over the words of the index's blocks, attempt by attempt.
    #[must_use]
    pub const fn below(&self, n: u32, index: u64) -> u32 {
        if n < 2 {
            return 0;
        }
        // 2^32 mod n: products whose low word lies below it would count some values twice.
        let excess = n.wrapping_neg() % n;
        let mut attempt = 0;
        loop {
            let words = self.attempt(index, attempt);
            let mut at = 0;
            while at < 4 {
                let product = words[at] as u64 * n as u64;
                if product as u32 >= excess {
                    return (product >> 32) as u32;
                }
                at += 1;
            }
            attempt = attempt.wrapping_add(1);
        }
    }

    /// A permutation of `0..n`: the indices in the order of their words ([`word`](Self::word)),
    /// equal words by index, as a stable sort on any device gives it.
    ///
    /// Any two indices are as likely in either order, up to the 2^-32 of equal words.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for `n` of 2^32 or more.
    pub fn permutation(&self, n: usize) -> Result<Vec<u32>> {
        self.sample(n, n)
    }

    /// A sample of `k` of `0..n` without replacement: the first `k` of
    /// [`permutation`](Self::permutation), all of it for `k` above `n`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for `n` of 2^32 or more.
    pub fn sample(&self, n: usize, k: usize) -> Result<Vec<u32>> {
        if u32::try_from(n).is_err() {
            return Err(Error::unsupported(
                format!("a permutation of {n} elements"),
                "indices are 32 bits wide",
            ));
        }
        let blocks = 0..n.div_ceil(4) as u64;
        let words = blocks.flat_map(|block| self.block(block)).take(n);
        let keys = words.zip(0u64..);
        let mut keys: Vec<u64> = keys.map(|(word, i)| (u64::from(word) << 32) | i).collect();
        if k < n {
            keys.select_nth_unstable(k);
            keys.truncate(k);
        }
        keys.sort_unstable();
        Ok(keys.into_iter().map(|key| key as u32).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `kat_vectors` of Random123 1.14, the lines of philox4x32 with 10 rounds.
    #[test]
    fn random123_known_answers() {
        let ones = u32::MAX;
        let known = [
            (
                [0; 4],
                [0; 2],
                [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
            ),
            (
                [ones; 4],
                [ones; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, answer) in known {
            assert_eq!(philox4x32_10(counter, key), answer);
        }
    }

    #[test]
    fn the_counter_layout_is_fixed() {
        let draws = Philox4x32::new(Seed(0x1122_3344_5566_7788), 9);
        let index = 0x0000_0005_0000_0006;
        assert_eq!(
            draws.block(index),
            philox4x32_10([6, 5, 9, 0], [0x5566_7788, 0x1122_3344])
        );
        assert_eq!(draws.word(4 * index + 3), draws.block(index)[3]);
        assert_eq!((draws.seed().0, draws.stream()), (0x1122_3344_5566_7788, 9));
    }

    #[test]
    fn below_reaches_each_value_alike_and_nothing_else() {
        let draws = Philox4x32::new(Seed(1), 0);
        let mut counts = [0u32; 7];
        for i in 0..70_000 {
            counts[draws.below(7, i) as usize] += 1;
        }
        // Five standard deviations of a binomial(70,000, 1/7) are 463.
        assert!(
            counts.iter().all(|&n| n.abs_diff(10_000) < 463),
            "{counts:?}"
        );
        assert_eq!((draws.below(0, 1), draws.below(1, 1)), (0, 0));
    }

    #[test]
    fn below_goes_on_after_a_block_without_an_acceptable_word() {
        // Nearly half of all words are rejected, so one block in sixteen holds none.
        let (draws, n) = (Philox4x32::new(Seed(3), 1), (1 << 31) + 1);
        let excess = n - 2;
        let rejected = |words: [u32; 4]| {
            words
                .iter()
                .all(|&word| ((u64::from(word) * u64::from(n)) as u32) < excess)
        };
        let empty: Vec<u64> = (0..2_000).filter(|&i| rejected(draws.block(i))).collect();
        assert!(!empty.is_empty());
        for i in empty {
            assert!(draws.below(n, i) < n);
        }
    }

    #[test]
    fn permutations_hold_each_index_once() {
        let draws = Philox4x32::new(Seed(7), 2);
        for n in [0, 1, 2, 1_000] {
            let mut order = draws.permutation(n).unwrap();
            if n == 1_000 {
                assert_ne!(order, (0..1_000).collect::<Vec<_>>());
            }
            order.sort_unstable();
            assert!(order.iter().copied().eq(0..n as u32));
        }
        assert_ne!(
            draws.permutation(50),
            Philox4x32::new(Seed(8), 2).permutation(50)
        );
    }

    #[test]
    fn permutations_order_indices_by_their_words() {
        let draws = Philox4x32::new(Seed(7), 2);
        let order = draws.permutation(501).unwrap();
        let key = |i: u32| (draws.word(u64::from(i)), i);
        assert!(order.windows(2).all(|pair| key(pair[0]) < key(pair[1])));
        for k in [0, 1, 250, 500, 501] {
            assert_eq!(draws.sample(501, k).unwrap(), order[..k]);
        }
        assert_eq!(draws.sample(3, 9).unwrap().len(), 3);
    }

    #[test]
    fn all_orders_of_four_are_as_likely() {
        let mut counts = std::collections::BTreeMap::new();
        for seed in 0..24_000 {
            let order = Philox4x32::new(Seed(seed), 5).permutation(4).unwrap();
            *counts.entry(order).or_insert(0u32) += 1;
        }
        // Five standard deviations of a binomial(24,000, 1/24) are 155.
        assert_eq!(counts.len(), 24);
        assert!(
            counts.values().all(|n| n.abs_diff(1_000) < 155),
            "{counts:?}"
        );
    }

    #[test]
    fn uniform_stays_below_one() {
        let draws = Philox4x32::new(Seed(5), 0);
        let numbers: Vec<f32> = (0..10_000).map(|i| draws.uniform(i)).collect();
        assert!(numbers.iter().all(|u| (0.0..1.0).contains(u)));
        assert_eq!(
            (u32::MAX >> 8) as f32 * f32::from_bits(0x3380_0000),
            1.0 - f32::EPSILON / 2.0
        );
    }
}
