//! The contract as code.

pub(crate) fn counts(bins: &[u32], n_bins: usize) -> Vec<u32> {
    let mut counts = vec![0; n_bins];
    for b in bins {
        if let Some(c) = counts.get_mut(*b as usize) {
            *c += 1;
        }
    }
    counts
}

pub(crate) fn sums(bins: &[u32], weights: impl Iterator<Item = i64>, n_bins: usize) -> Vec<i64> {
    let mut sums = vec![0; n_bins];
    for (b, w) in bins.iter().zip(weights) {
        if let Some(s) = sums.get_mut(*b as usize) {
            *s += w;
        }
    }
    sums
}

pub(crate) fn extremes(bins: &[u32], values: &[f32], n_bins: usize) -> Vec<(f32, f32)> {
    (0..n_bins as u32)
        .map(|b| {
            let mut of_bin: Vec<f32> = bins
                .iter()
                .zip(values)
                .filter(|(at, v)| **at == b && !v.is_nan())
                .map(|(_, v)| *v)
                .collect();
            of_bin.sort_by(f32::total_cmp);
            match of_bin[..] {
                [] => (f32::NAN, f32::NAN),
                [min, ..] => (min, of_bin[of_bin.len() - 1]),
            }
        })
        .collect()
}
