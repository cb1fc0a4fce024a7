//! Gauss and Legendre's rules on (0, 1), by `scripts/shap.py`.

/// A rule of `n` nodes: exact for polynomials of a degree up to `2 n - 1`.
#[derive(Debug)]
pub(super) struct Rule {
    /// Bits of the nodes, ascending; `1 - node` is the node as far from the end.
    nodes: &'static [u32],
    /// Bits of the weights, of which the sum is 1.
    weights: &'static [u32],
}

impl Rule {
    /// Number of nodes.
    pub(super) fn points(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn nodes(&self) -> Vec<f32> {
        self.nodes.iter().map(|&x| f32::from_bits(x)).collect()
    }

    pub(super) fn weights(&self) -> Vec<f32> {
        self.weights.iter().map(|&x| f32::from_bits(x)).collect()
    }
}

/// The most features on a path that a rule is exact for.
pub(super) const MOST: usize = 32;

/// The least rule for paths of `features` features, at most [`MOST`].
pub(super) fn of(features: usize) -> &'static Rule {
    let fits = |rule: &&Rule| 2 * rule.points() >= features;
    RULES.iter().find(fits).unwrap_or(&RULES[RULES.len() - 1])
}

pub(super) static RULES: [Rule; 7] = [
    Rule {
        nodes: &[0x3e58_658c, 0x3f49_e69d],
        weights: &[0x3f00_0000, 0x3f00_0000],
    },
    Rule {
        nodes: &[0x3de6_d021, 0x3f00_0000, 0x3f63_25fc],
        weights: &[0x3e8e_38e4, 0x3ee3_8e39, 0x3e8e_38e4],
    },
    Rule {
        nodes: &[0x3d8e_3248, 0x3ea8_f701, 0x3f2b_8480, 0x3f6e_39b7],
        weights: &[0x3e32_1a08, 0x3ea6_f2fc, 0x3ea6_f2fc, 0x3e32_1a08],
    },
    Rule {
        nodes: &[
            0x3d0a_4d6c,
            0x3e2d_75f7,
            0x3ec2_e9da,
            0x3f1e_8b13,
            0x3f54_a282,
            0x3f77_5b29,
        ],
        weights: &[
            0x3daf_6fb0,
            0x3e38_b5be,
            0x3e6f_926a,
            0x3e6f_926a,
            0x3e38_b5be,
            0x3daf_6fb0,
        ],
    },
    Rule {
        nodes: &[
            0x3ca2_a71a,
            0x3dd0_36aa,
            0x3e72_ed6a,
            0x3ed1_0a6d,
            0x3f17_7ac9,
            0x3f43_44a5,
            0x3f65_f92b,
            0x3f7a_eac7,
        ],
        weights: &[
            0x3d4f_50e8,
            0x3de3_b7db,
            0x3e20_9e28,
            0x3e39_b1b0,
            0x3e39_b1b0,
            0x3e20_9e28,
            0x3de3_b7db,
            0x3d4f_50e8,
        ],
    },
    Rule {
        nodes: &[
            0x3c17_0e27,
            0x3d44_5e2c,
            0x3deb_9ea2,
            0x3e53_4b10,
            0x3ea1_d5cb,
            0x3edf_f0b4,
            0x3f10_07a6,
            0x3f2f_151a,
            0x3f4b_2d3c,
            0x3f62_8c2c,
            0x3f73_ba1d,
            0x3f7d_a3c7,
        ],
        weights: &[
            0x3cc1_3aed,
            0x3d5b_0301,
            0x3da3_eb93,
            0x3dd0_0b1f,
            0x3def_18ab,
            0x3dff_2067,
            0x3dff_2067,
            0x3def_18ab,
            0x3dd0_0b1f,
            0x3da3_eb93,
            0x3d5b_0301,
            0x3cc1_3aed,
        ],
    },
    Rule {
        nodes: &[
            0x3bad_a7b3,
            0x3ce3_054d,
            0x3d89_97f9,
            0x3dfa_7744,
            0x3e43_a5ba,
            0x3e8a_bf6a,
            0x3eb7_e8d4,
            0x3ee7_ad43,
            0x3f0c_295f,
            0x3f24_0b96,
            0x3f3a_a04b,
            0x3f4f_1692,
            0x3f60_b117,
            0x3f6e_cd01,
            0x3f78_e7d6,
            0x3f7e_a4b1,
        ],
        weights: &[
            0x3c5e_6ed6,
            0x3cfe_fd8d,
            0x3d42_e277,
            0x3d7f_3d79,
            0x3d99_2fb1,
            0x3dad_375e,
            0x3dba_fc64,
            0x3dc1_ff57,
            0x3dc1_ff57,
            0x3dba_fc64,
            0x3dad_375e,
            0x3d99_2fb1,
            0x3d7f_3d79,
            0x3d42_e277,
            0x3cfe_fd8d,
            0x3c5e_6ed6,
        ],
    },
];
