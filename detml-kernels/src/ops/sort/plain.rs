//! The contract as code.

use super::Order;
use std::cmp::Ordering;

pub(crate) trait Compare: Copy {
    fn compare(self, other: Self, order: Order) -> Ordering;
}

fn directed(ordering: Ordering, order: Order) -> Ordering {
    match order {
        Order::Ascending => ordering,
        Order::Descending => ordering.reverse(),
    }
}

impl Compare for u32 {
    fn compare(self, other: Self, order: Order) -> Ordering {
        directed(self.cmp(&other), order)
    }
}

impl Compare for i32 {
    fn compare(self, other: Self, order: Order) -> Ordering {
        directed(self.cmp(&other), order)
    }
}

impl Compare for f32 {
    fn compare(self, other: Self, order: Order) -> Ordering {
        match self.partial_cmp(&other) {
            Some(ordering) => directed(ordering, order),
            // NaN last, whatever the direction.
            None => self.is_nan().cmp(&other.is_nan()),
        }
    }
}

pub(crate) fn argsort<K: Compare>(keys: &[K], order: Order) -> Vec<u32> {
    let mut indices: Vec<u32> = (0..keys.len() as u32).collect();
    indices.sort_by(|a, b| {
        let (x, y) = (keys[*a as usize], keys[*b as usize]);
        x.compare(y, order).then(a.cmp(b))
    });
    indices
}

pub(crate) fn argsort_rows<K: Compare>(keys: &[K], cols: usize, order: Order) -> Vec<u32> {
    keys.chunks(cols.max(1))
        .flat_map(|row| argsort(row, order))
        .collect()
}
