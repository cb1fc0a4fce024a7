//! The contract in a few lines.

pub(super) fn rows(out: &mut [u32], columns: usize, index: &[u32], x: &[u32]) {
    for (i, x) in index.iter().zip(x.chunks(columns)) {
        if let Some(row) = out.chunks_mut(columns).nth(*i as usize) {
            row.copy_from_slice(x);
        }
    }
}
