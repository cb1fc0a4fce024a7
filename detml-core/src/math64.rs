//! Elementary functions on f64 for host arithmetic (N4, N14): IEEE additions, products and
//! divisions alone, no fused operation, nothing of the platform's libm. At most 1 ulp from the
//! exact result; checked against mpmath (`tests/reference/math64.py`, which also made the
//! tables).

/// e to the power `x`.
///
/// `exp(-inf)` is 0, `exp(inf)` and everything beyond 709.79 infinity, `exp(NaN)` the one NaN.
///
/// ```
/// use detml_core::math64;
///
/// assert_eq!(math64::exp(0.0), 1.0);
/// assert_eq!(math64::exp(-746.0), 0.0);
/// ```
#[must_use]
pub fn exp(x: f64) -> f64 {
    if x.is_nan() {
        return NAN;
    }
    if x > 709.8 {
        return f64::INFINITY;
    }
    if x < -745.2 {
        return 0.0;
    }
    // x = k * ln(2) / 32 + r with |r| below 0.0109. The high part of the step has 37 bits, k
    // has 16, so the product is exact, and the difference too (Sterbenz).
    let k = (x * f64::from_bits(STEPS_PER_UNIT) + 0.5).floor();
    let r = (x - k * f64::from_bits(STEP.0)) - k * f64::from_bits(STEP.1);
    // Taylor's series; the first term left out is below 2^-67.
    let mut series = 1.0 / 5040.0;
    for factor in [720.0, 120.0, 24.0, 6.0, 2.0] {
        series = 1.0 / factor + r * series;
    }
    let p = r + (r * r) * series;
    let k = k as i32;
    let (high, low) = EXP[(k & 31) as usize];
    let (high, low) = (f64::from_bits(high), f64::from_bits(low));
    let y = high + (low + high * p);
    // y lies in [0.98, 2). Every factor but the last leaves the product exact.
    match k >> 5 {
        e @ -1021..=1023 => y * power_of_two(e),
        e if e > 0 => y * 2.0 * power_of_two(e - 1),
        e => y * power_of_two(e + 128) * power_of_two(-128),
    }
}

/// 2^e for a normal result.
fn power_of_two(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// The natural logarithm of `x`.
///
/// `ln(0)` (of either sign) is minus infinity, `ln(inf)` infinity; for negative `x` and NaN
/// the one NaN.
///
/// ```
/// use detml_core::math64;
///
/// assert_eq!(math64::ln(1.0).to_bits(), 0);
/// assert_eq!(math64::ln(0.0), f64::NEG_INFINITY);
/// ```
#[must_use]
pub fn ln(x: f64) -> f64 {
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x.is_nan() || x < 0.0 {
        return NAN;
    }
    if x == f64::INFINITY {
        return x;
    }
    // x = m * 2^e with m between the roots of 1/2 and 2; subnormals by 2^54 first, exactly.
    let (bits, shift) = if x < f64::MIN_POSITIVE {
        ((x * power_of_two(54)).to_bits(), 54)
    } else {
        (x.to_bits(), 0)
    };
    let mut e = (bits >> 52) as i32 - 1023 - shift;
    let mut m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        e += 1;
    }
    // m * inverse = 1 + r. The inverse has 21 bits and each half of m at most 27, so both
    // products and the difference are exact; (r, rest) is their exact sum.
    let (inverse, high, low) = LN[(m * 128.0 + 0.5) as usize - 90];
    let inverse = f64::from_bits(inverse);
    let upper = f64::from_bits(m.to_bits() & !0x07ff_ffff);
    let a = upper * inverse - 1.0;
    let b = (m - upper) * inverse;
    let r = a + b;
    let rest = if a.abs() >= b.abs() {
        (a - r) + b
    } else {
        (b - r) + a
    };
    // ln(1 + r) - r; the first term left out is below 2^-64 of r.
    let mut series = -1.0 / 8.0;
    for factor in [7.0, -6.0, 5.0, -4.0, 3.0, -2.0] {
        series = 1.0 / factor + r * series;
    }
    let p = (r * r) * series;
    // Multiples of 2^-42 below 2^10, so this sum is exact; it is 0 or larger than r.
    let e = f64::from(e);
    let main = e * f64::from_bits(LN_2.0) + f64::from_bits(high);
    let minor = e * f64::from_bits(LN_2.1) + f64::from_bits(low);
    if main == 0.0 {
        return r + (rest + p);
    }
    let sum = main + r;
    sum + (((main - sum) + r) + (rest + minor + p))
}

const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

/// 2^(j/32) as a sum of two, as bits.
const EXP: [(u64, u64); 32] = [
    (0x3ff0000000000000, 0x0000000000000000),
    (0x3ff059b0d3158574, 0x3c8d73e2a475b465),
    (0x3ff0b5586cf9890f, 0x3c98a62e4adc610b),
    (0x3ff11301d0125b51, 0xbc96c51039449b3a),
    (0x3ff172b83c7d517b, 0xbc819041b9d78a76),
    (0x3ff1d4873168b9aa, 0x3c9e016e00a2643c),
    (0x3ff2387a6e756238, 0x3c99b07eb6c70573),
    (0x3ff29e9df51fdee1, 0x3c8612e8afad1255),
    (0x3ff306fe0a31b715, 0x3c86f46ad23182e4),
    (0x3ff371a7373aa9cb, 0xbc963aeabf42eae2),
    (0x3ff3dea64c123422, 0x3c8ada0911f09ebc),
    (0x3ff44e086061892d, 0x3c489b7a04ef80d0),
    (0x3ff4bfdad5362a27, 0x3c7d4397afec42e2),
    (0x3ff5342b569d4f82, 0xbc807abe1db13cad),
    (0x3ff5ab07dd485429, 0x3c96324c054647ad),
    (0x3ff6247eb03a5585, 0xbc9383c17e40b497),
    (0x3ff6a09e667f3bcd, 0xbc9bdd3413b26456),
    (0x3ff71f75e8ec5f74, 0xbc816e4786887a99),
    (0x3ff7a11473eb0187, 0xbc841577ee04992f),
    (0x3ff82589994cce13, 0xbc9d4c1dd41532d8),
    (0x3ff8ace5422aa0db, 0x3c96e9f156864b27),
    (0x3ff93737b0cdc5e5, 0xbc675fc781b57ebc),
    (0x3ff9c49182a3f090, 0x3c7c7c46b071f2be),
    (0x3ffa5503b23e255d, 0xbc9d2f6edb8d41e1),
    (0x3ffae89f995ad3ad, 0x3c97a1cd345dcc81),
    (0x3ffb7f76f2fb5e47, 0xbc75584f7e54ac3b),
    (0x3ffc199bdd85529c, 0x3c811065895048dd),
    (0x3ffcb720dcef9069, 0x3c7503cbd1e949db),
    (0x3ffd5818dcfba487, 0x3c82ed02d75b3707),
    (0x3ffdfc97337b9b5f, 0xbc91a5cd4f184b5c),
    (0x3ffea4afa2a490da, 0xbc9e9c23179c2893),
    (0x3fff50765b6e4540, 0x3c99d3e12dd8a18b),
];

/// ln(2)/32 as a sum of two, the first a multiple of 2^-42.
const STEP: (u64, u64) = (0x3f962e42fefa0000, 0x3d2cf79abc9e3b3a);
/// 32/ln(2).
const STEPS_PER_UNIT: u64 = 0x40471547652b82fe;
/// ln(2) as a sum of two, the first a multiple of 2^-42.
const LN_2: (u64, u64) = (0x3fe62e42fefa3800, 0x3d2ef35793c76730);

/// For j from 90 to 181: 128/j to 20 places, and minus its logarithm as a sum of two, the
/// first a multiple of 2^-42.
const LN: [(u64, u64, u64); 92] = [
    (0x3ff6c16c00000000, 0xbfd68ac7fe9c7000, 0x3d382f966ca9df86),
    (0x3ff6816800000000, 0xbfd5d5bd9f596000, 0x3d0e0b2a0b4f1089),
    (0x3ff642c800000000, 0xbfd522ad0738a000, 0xbd1d7ce0ad74385d),
    (0x3ff6058100000000, 0xbfd4718caa71c000, 0xbd1b68637d88fc52),
    (0x3ff5c98800000000, 0xbfd3c251f7333000, 0xbd103b54ab5c12a2),
    (0x3ff58ed200000000, 0xbfd314f151d36000, 0x3d2df27adab93cc5),
    (0x3ff5555500000000, 0xbfd269611134e000, 0x3d39b61f25a77bba),
    (0x3ff51d0800000000, 0xbfd1bf99a35a7000, 0x3d322c895706cbcf),
    (0x3ff4e5e100000000, 0xbfd1178f9227e000, 0xbd21cef1cf876496),
    (0x3ff4afd700000000, 0xbfd07139884d5000, 0xbd36d7cdd268ff21),
    (0x3ff47ae100000000, 0xbfcf991aacb3c000, 0x3d3f2d04dbc77304),
    (0x3ff446f800000000, 0xbfce530c7fe70000, 0xbd33a4242515d8a1),
    (0x3ff4141400000000, 0xbfcd103772656000, 0x3d0c4a7e7861a190),
    (0x3ff3e22d00000000, 0xbfcbd088e83be000, 0x3d3457e21fd9897b),
    (0x3ff3b13b00000000, 0xbfca93ecbc8ae000, 0x3d2972435100cc14),
    (0x3ff3813800000000, 0xbfc95a5a5cf70000, 0xbd03f22855f654c3),
    (0x3ff3521d00000000, 0xbfc823c18551a000, 0xbd1deddb9a6873d8),
    (0x3ff323e300000000, 0xbfc6f0109b756000, 0xbd2bea71f3998859),
    (0x3ff2f68500000000, 0xbfc5bf422b544000, 0x3d257811d91ef704),
    (0x3ff2c9fb00000000, 0xbfc4913b7333c000, 0x3d3dc0436ce6a50c),
    (0x3ff29e4100000000, 0xbfc365fb90158000, 0xbd3da45f4c7a96df),
    (0x3ff2735100000000, 0xbfc23d731a49c000, 0x3d0bf5b8452eedb5),
    (0x3ff2492500000000, 0xbfc117918227e000, 0x3d221086a1d2fa96),
    (0x3ff21fb800000000, 0xbfbfe89839dbc000, 0x3d08d355abd9940a),
    (0x3ff1f70400000000, 0xbfbda72063844000, 0x3d31ddb06a6b91e1),
    (0x3ff1cf0700000000, 0xbfbb6acd2dad4000, 0xbd3069e015fc4fff),
    (0x3ff1a7b900000000, 0xbfb93358dd594000, 0x3d165d48685ac935),
    (0x3ff1811800000000, 0xbfb700d20aeac000, 0xbcd83d1b3de684ff),
    (0x3ff15b1e00000000, 0xbfb4d30bdd208000, 0x3d3073a28fa4a459),
    (0x3ff135c800000000, 0xbfb2aa03a4470000, 0xbd37248ba85c75ec),
    (0x3ff1111100000000, 0xbfb08597b59e4000, 0x3d19e5dd715ee582),
    (0x3ff0ecf500000000, 0xbfaccb670ddd8000, 0xbd144f0c5eb5d185),
    (0x3ff0c97100000000, 0xbfa894a0949f8000, 0xbd2cb334d0604118),
    (0x3ff0a68100000000, 0xbfa466ad942e0000, 0x3d2c7a7375e7a7d3),
    (0x3ff0842100000000, 0xbfa0415c89e78000, 0x3d3dfdc7f46c6fc0),
    (0x3ff0624e00000000, 0xbf98493028c90000, 0x3d31185d123e5b7e),
    (0x3ff0410400000000, 0xbf90205258930000, 0xbd3591d27c392ec1),
    (0x3ff0204100000000, 0xbf80105475880000, 0x3d099ed21ce675dc),
    (0x3ff0000000000000, 0x0000000000000000, 0x0000000000000000),
    (0x3fefc08000000000, 0x3f7fdfaa6b140000, 0xbd398770e7341672),
    (0x3fef81f800000000, 0x3f8fc0b0b0fc0000, 0x3cef8f3e86147e01),
    (0x3fef446600000000, 0x3f97b90e87d60000, 0xbd2daeab805daeed),
    (0x3fef07c200000000, 0x3f9f82990e780000, 0x3d29c0267c68b48f),
    (0x3feecc0800000000, 0x3fa39e82b9ff0000, 0xbd3e302b8487c536),
    (0x3fee913200000000, 0x3fa7745376330000, 0xbd2b73b9d8eab34a),
    (0x3fee573a00000000, 0x3fab42eab1198000, 0x3d2da2c34eee7648),
    (0x3fee1e1e00000000, 0x3faf0a32c0118000, 0xbd2c599e828be3e6),
    (0x3fede5d600000000, 0x3fb1653e8ea38000, 0x3d37f2e8f6224536),
    (0x3fedae6000000000, 0x3fb341db961bc000, 0x3d39d092aed8cba6),
    (0x3fed77b600000000, 0x3fb51b0a1f060000, 0x3d3c61692f7a3dd1),
    (0x3fed41d400000000, 0x3fb6f0d38ae58000, 0xbd3434641b10f0bd),
    (0x3fed0cb600000000, 0x3fb8c341f631c000, 0xbd3d5d0a66b1000c),
    (0x3fecd85600000000, 0x3fba9271fa4b0000, 0xbd3f549ad0747f8f),
    (0x3feca4b400000000, 0x3fbc5e4bcf5c0000, 0xbd3274eb0936b570),
    (0x3fec71c800000000, 0x3fbe26ff6e2b0000, 0x3d32e5e93fdd5937),
    (0x3fec3f9000000000, 0x3fbfec8831dc0000, 0x3d333aa93b51a061),
    (0x3fec0e0800000000, 0x3fc0d779fcd0a000, 0x3d14cb30ef8beba7),
    (0x3febdd2c00000000, 0x3fc1b728b52f6000, 0x3d384851f2722772),
    (0x3febacfa00000000, 0x3fc2954eb8200000, 0x3d2ccd2e7e07238f),
    (0x3feb7d6c00000000, 0x3fc371fd401ea000, 0xbd3e8f886106753d),
    (0x3feb4e8200000000, 0x3fc44d2a0ccb8000, 0xbcffb305f3c08ab6),
    (0x3feb203600000000, 0x3fc526e713a1c000, 0xbd34beba33852786),
    (0x3feaf28600000000, 0x3fc5ff33f0a7a000, 0x3cc3c8ad0cb5ddec),
    (0x3feac57000000000, 0x3fc6d6106719e000, 0xbd3b46e556bdf211),
    (0x3fea98f000000000, 0x3fc7ab860210e000, 0x3d1048ddfb597060),
    (0x3fea6d0200000000, 0x3fc87f9eb520c000, 0x3d37d3203341831c),
    (0x3fea41a400000000, 0x3fc9525b1cf46000, 0xbd3217137d49c039),
    (0x3fea16d400000000, 0x3fca23bbffe2c000, 0xbd3531cd91ddf460),
    (0x3fe9ec8e00000000, 0x3fcaf3cc2e80c000, 0x3d306db1dc1ede2c),
    (0x3fe9c2d200000000, 0x3fcbc283042da000, 0xbd2d6358f1682cc0),
    (0x3fe9999a00000000, 0x3fcc8ff5c79aa000, 0xbd0de53e4d28b97b),
    (0x3fe970e400000000, 0x3fcd5c264b4fe000, 0xbd395547a8f12b3a),
    (0x3fe948b000000000, 0x3fce270c6e2b0000, 0x3d37cbd522655edd),
    (0x3fe920fc00000000, 0x3fcef0aa2bdc6000, 0x3d296947656c00ec),
    (0x3fe8f9c200000000, 0x3fcfb9162d5e4000, 0x3d19d46a30b36357),
    (0x3fe8d30200000000, 0x3fd040246cb4d000, 0x3d276ad6d1ea313f),
    (0x3fe8acba00000000, 0x3fd0a3227273a000, 0xbd29d506ca2aed96),
    (0x3fe886e600000000, 0x3fd1058bd1ae5000, 0xbd34799d81922822),
    (0x3fe8618600000000, 0x3fd1675cebaba000, 0x3d38b80e7374ab1a),
    (0x3fe83c9800000000, 0x3fd1c8976169a000, 0xbd21e8223a76fedf),
    (0x3fe8181800000000, 0x3fd229423bcf8000, 0xbd39e976f595b40d),
    (0x3fe7f40600000000, 0x3fd2895a0bde8000, 0x3d3a8f7ad24be946),
    (0x3fe7d06000000000, 0x3fd2e8e0bae12000, 0x3d34c2700879c369),
    (0x3fe7ad2200000000, 0x3fd347ddb2988000, 0xbd25354dd4bc8092),
    (0x3fe78a4c00000000, 0x3fd3a64db5695000, 0xbd3938e30bb373f6),
    (0x3fe767dc00000000, 0x3fd40432f686b000, 0x3d2e2deaca7c014d),
    (0x3fe745d200000000, 0x3fd4618a421c6000, 0x3d2a13e7cbd9c022),
    (0x3fe7242800000000, 0x3fd4be60f5778000, 0xbd2cb9252c4b03d4),
    (0x3fe702e000000000, 0x3fd51aae872e0000, 0xbd374bd8c5b5272c),
    (0x3fe6e1f800000000, 0x3fd5767577456000, 0xbcf2eadf0af80b60),
    (0x3fe6c16c00000000, 0x3fd5d1bdff581000, 0xbd3856bdc9726ce2),
    (0x3fe6a13c00000000, 0x3fd62c8542b9d000, 0x3d22397d8a9bce27),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_one_ulp_of_mpmath() {
        let mut worst = [(0.0, 0.0); 2];
        for line in include_str!("../tests/reference/math64.csv").lines() {
            let cells: Vec<&str> = line.split(',').collect();
            let [x, high, rest] =
                [1, 2, 3].map(|i| f64::from_bits(u64::from_str_radix(cells[i], 16).unwrap()));
            let (which, got) = match cells[0] {
                "exp" => (0, exp(x)),
                _ => (1, ln(x)),
            };
            if high == 0.0 || high.is_infinite() {
                assert_eq!(got.to_bits(), high.to_bits(), "{line}");
                continue;
            }
            let ulp = high.abs().next_up() - high.abs();
            let error = ((got - high) / ulp - rest).abs();
            if error > worst[which].0 {
                worst[which] = (error, x);
            }
        }
        println!("exp {:?}, ln {:?}", worst[0], worst[1]);
        // Zero would mean that nothing was read.
        assert!(worst.iter().all(|w| w.0 > 0.4 && w.0 <= 1.0), "{worst:?}");
    }

    #[test]
    fn special_values() {
        let nan = 0x7ff8_0000_0000_0000;
        for (got, bits) in [
            (exp(f64::NAN), nan),
            (exp(f64::from_bits(0xffff_ffff_ffff_ffff)), nan),
            (exp(f64::INFINITY), f64::INFINITY.to_bits()),
            (exp(f64::MAX), f64::INFINITY.to_bits()),
            (exp(f64::NEG_INFINITY), 0),
            (exp(f64::MIN), 0),
            (exp(-0.0), 1f64.to_bits()),
            (ln(f64::NAN), nan),
            (ln(-1.0), nan),
            (ln(f64::NEG_INFINITY), nan),
            (ln(-f64::from_bits(1)), nan),
            (ln(-0.0), f64::NEG_INFINITY.to_bits()),
            (ln(f64::INFINITY), f64::INFINITY.to_bits()),
            (ln(1.0), 0),
        ] {
            assert_eq!(got.to_bits(), bits);
        }
    }
}
