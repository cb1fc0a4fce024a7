//! Large blocks of host memory, used again: to have fresh pages mapped can take longer than the
//! work on them.

use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

/// Bytes of a block that is worth keeping, at least; the allocator keeps smaller ones itself.
const LEAST: usize = 1 << 20;
/// Bytes that are kept of each kind of block, at most.
const MOST: usize = 256 << 20;

/// What blocks are made of.
pub trait Word: Copy + Default + Send + 'static {
    /// The blocks that wait for their next use, the oldest first.
    fn kept() -> &'static Mutex<Vec<Vec<Self>>>;
}

macro_rules! words {
    ($($T:ty),+) => {
        $(
            impl Word for $T {
                fn kept() -> &'static Mutex<Vec<Vec<Self>>> {
                    static KEPT: Mutex<Vec<Vec<$T>>> = Mutex::new(Vec::new());
                    &KEPT
                }
            }
        )+
    };
}
words!(f32, u32, i32, u64);

/// `len` words of any value, if a block of about this size was kept.
pub(super) fn take<T: Word>(len: usize) -> Option<Vec<T>> {
    if len.saturating_mul(size_of::<T>()) < LEAST {
        return None;
    }
    let mut kept = T::kept().lock().ok()?;
    // Not a much larger one, which would be missed elsewhere.
    let fits = |block: &Vec<T>| block.len() >= len && block.len() - len <= len / 4;
    let at = kept.iter().rposition(fits)?;
    let mut block = kept.remove(at);
    drop(kept);
    block.truncate(len);
    Some(block)
}

/// `len` words of any value, for a buffer.
pub(crate) fn words(len: usize) -> Vec<u32> {
    take(len).unwrap_or_else(|| vec![0; len])
}

/// Keeps a block, or gives it back to the system if it is small or there are enough.
pub(super) fn keep<T: Word>(block: Vec<T>) {
    let bytes = |block: &Vec<T>| block.capacity() * size_of::<T>();
    if bytes(&block) < LEAST || bytes(&block) > MOST {
        return;
    }
    let mut dropped = Vec::new();
    if let Ok(mut kept) = T::kept().lock() {
        kept.push(block);
        let mut all: usize = kept.iter().map(bytes).sum();
        while all > MOST {
            let oldest = kept.remove(0);
            all -= bytes(&oldest);
            dropped.push(oldest);
        }
    }
    // Unlocked by now.
    drop(dropped);
}

/// Words of any value, kept for the next use when dropped.
pub(crate) struct Scratch<T: Word>(Vec<T>);

impl<T: Word> Scratch<T> {
    pub(crate) fn new(len: usize) -> Self {
        Self(take(len).unwrap_or_else(|| vec![T::default(); len]))
    }
}

impl<T: Word> Deref for Scratch<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Word> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: Word> Drop for Scratch<T> {
    fn drop(&mut self) {
        keep(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_and_are_bounded() {
        // A size that no other test asks for.
        let len = (LEAST + 4096 + 8) / 8;
        let first = Scratch::<u64>::new(len);
        let place = first.as_ptr();
        drop(first);
        let again = Scratch::<u64>::new(len - 7);
        assert_eq!((again.as_ptr(), again.len()), (place, len - 7));
        assert_ne!(Scratch::<u64>::new(len).as_ptr(), place);
        keep(vec![0u64; MOST / 8 + 1]);
        for _ in 0..5 {
            keep(vec![0u64; MOST / 32]);
        }
        let kept: usize = u64::kept().lock().unwrap().iter().map(Vec::capacity).sum();
        assert!(8 * kept <= MOST, "{kept} words");
    }
}
