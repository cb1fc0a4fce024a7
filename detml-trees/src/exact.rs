//! Sums and means that no order of rows can change.

/// A sum as an integer times a power of two.
///
/// The integers are the numbers times the power of two that puts the largest below `2^60`,
/// rounded to nearest, ties to even: exact for all that are within a factor `2^36` of it. Sums of
/// fewer than `2^32` rows stay below `2^92`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExactSum {
    integer: i128,
    /// The sum is `integer * 2^-shift`.
    shift: i32,
}

/// The sum of finite numbers.
pub(crate) fn sum(numbers: impl Iterator<Item = f32> + Clone) -> ExactSum {
    let largest = numbers.clone().fold(
        0f32,
        |largest, x| if x.abs() > largest { x.abs() } else { largest },
    );
    // 2^-149 <= largest < 2^128: the factor and the products are within binary64.
    let shift = if largest == 0.0 {
        0
    } else {
        59 - exponent(largest)
    };
    let factor = power_of_two(shift);
    let integer = numbers
        .map(|x| i128::from((f64::from(x) * factor).round_ties_even() as i64))
        .sum();
    ExactSum { integer, shift }
}

/// The `e` of `2^e <= x < 2^(e+1)`; every binary32 is a normal binary64.
fn exponent(x: f32) -> i32 {
    (f64::from(x).to_bits() >> 52 & 0x7ff) as i32 - 1023
}

fn power_of_two(n: i32) -> f64 {
    f64::from_bits(((n + 1023).clamp(0, 2046) as u64) << 52)
}

impl ExactSum {
    /// The quotient of two sums, the second above 0, as the nearest `f32`, ties to even.
    pub(crate) fn over(self, other: Self) -> f32 {
        let (mut a, b) = (self.integer.unsigned_abs(), other.integer.unsigned_abs());
        if a == 0 || b == 0 {
            return 0.0;
        }
        // At least 30 significant bits of the quotient: a << up stays below 2^125.
        let up = 30 + bits(b) - bits(a);
        a <<= up.max(0);
        let mut quotient = a / b;
        let mut sticky = a % b != 0;
        let mut shift = self.shift - other.shift + up.max(0);
        // To 40 bits at most, so that what follows is exact in binary64 until the last rounding.
        let excess = (bits(quotient) - 40).max(0);
        sticky |= quotient & ((1 << excess) - 1) != 0;
        quotient >>= excess;
        shift -= excess;
        // The sticky bit below keeps a rest from passing for a tie.
        let odd = (quotient << 1 | u128::from(sticky)) as f64;
        let magnitude = (odd * power_of_two(-shift - 1)) as f32;
        if self.integer < 0 {
            -magnitude
        } else {
            magnitude
        }
    }
}

fn bits(x: u128) -> i32 {
    128 - x.leading_zeros() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(numbers: &[f32]) -> f32 {
        sum(numbers.iter().copied()).over(sum(numbers.iter().map(|_| 1.0)))
    }

    #[test]
    fn the_mean_of_equal_numbers_is_the_number() {
        for bits in [
            1,
            3,
            0x007f_ffff,
            0x0080_0000,
            0x3dcc_cccd,
            0xc2f6_e979,
            0x7f7f_ffff,
            0x8000_0001,
        ] {
            let x = f32::from_bits(bits);
            for n in [1, 2, 3, 7, 100_003] {
                assert_eq!(mean(&vec![x; n]).to_bits(), bits, "{x:e} x {n}");
            }
        }
    }

    #[test]
    fn means_are_rounded_once() {
        assert_eq!(mean(&[1.0, 2.0, 2.0]), (5.0f64 / 3.0) as f32);
        // A tie between two neighbours goes to the even one.
        assert_eq!(mean(&[1.0, 1.0 + f32::EPSILON]), 1.0);
        assert_eq!(
            mean(&[1.0 + f32::EPSILON, 1.0 + 2.0 * f32::EPSILON]),
            1.0 + 2.0 * f32::EPSILON
        );
        assert_eq!(mean(&[-0.0, 0.0]).to_bits(), 0);
    }

    #[test]
    fn order_does_not_show() {
        let mut numbers: Vec<f32> = (0..1000)
            .map(|i| (i as f32 * 0.7).sin() * 1e-3f32.powi(i % 5))
            .collect();
        let forward = mean(&numbers);
        numbers.reverse();
        assert_eq!(mean(&numbers).to_bits(), forward.to_bits());
        let total: f64 = numbers.iter().map(|&x| f64::from(x)).sum();
        assert!((f64::from(forward) - total / 1000.0).abs() <= total.abs() * 1e-10 + 1e-12);
    }
}
