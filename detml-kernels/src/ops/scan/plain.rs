//! The contract as code.

pub(crate) fn exclusive(x: &[u32]) -> (Vec<u32>, u32) {
    let mut sum = 0u32;
    let out = x
        .iter()
        .map(|v| {
            let before = sum;
            sum = sum.wrapping_add(*v);
            before
        })
        .collect();
    (out, sum)
}

pub(crate) fn inclusive(x: &[u32]) -> Vec<u32> {
    let (before, _) = exclusive(x);
    before
        .iter()
        .zip(x)
        .map(|(b, v)| b.wrapping_add(*v))
        .collect()
}

pub(crate) fn compact(flags: &[u32]) -> Vec<u32> {
    (0..flags.len() as u32)
        .filter(|i| flags[*i as usize] != 0)
        .collect()
}

pub(crate) fn partition(flags: &[u32]) -> (Vec<u32>, u32) {
    let mut indices = compact(flags);
    let left = indices.len() as u32;
    indices.extend((0..flags.len() as u32).filter(|i| flags[*i as usize] == 0));
    (indices, left)
}
