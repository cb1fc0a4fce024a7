//! The contract as code.

use super::Order;
use crate::ops::sort::plain::{Compare, argsort};

pub(crate) fn topk<K: Compare>(x: &[K], cols: usize, k: usize, order: Order) -> Vec<u32> {
    x.chunks(cols.max(1))
        .flat_map(|row| argsort(row, order).into_iter().take(k).collect::<Vec<_>>())
        .collect()
}
