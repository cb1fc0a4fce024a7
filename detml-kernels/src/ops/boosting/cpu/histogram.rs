//! Histograms of quantised gradients.

use std::sync::{Mutex, PoisonError};

/// The sums of one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub(super) struct Entry {
    pub(super) g: i64,
    pub(super) h: i64,
}

/// Features whose histograms are built together.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) features: Vec<u32>,
    /// Their numbers of bins.
    pub(super) counts: Vec<u16>,
}

impl Group {
    /// Features of a group at most.
    pub(super) const MOST: usize = 8;
    /// Bytes of a group's histograms at most: the greater part of a 32 KiB first level cache.
    const BYTES: usize = 24 << 10;

    /// Entries in a [`Histogram`]: the bins of each feature and one for missing values.
    pub(super) fn entries(&self) -> usize {
        self.counts
            .iter()
            .map(|&count| usize::from(count) + 1)
            .sum()
    }
}

/// Cuts features into groups of like size.
pub(super) fn groups(features: &[u32], counts: &[u16]) -> Vec<Group> {
    let bytes = |feature: &u32| (usize::from(counts[*feature as usize]) + 1) * size_of::<Entry>();
    let total: usize = features.iter().map(bytes).sum();
    let share = total.div_ceil(total.div_ceil(Group::BYTES).max(1));
    let mut groups: Vec<Group> = Vec::new();
    let mut filled = usize::MAX;
    for feature in features {
        let full = groups
            .last()
            .is_none_or(|group| group.features.len() == Group::MOST);
        // A feature joins if more of it lies within the share than beyond.
        if full || filled + bytes(feature) / 2 > share {
            groups.push(Group {
                features: Vec::new(),
                counts: Vec::new(),
            });
            filled = 0;
        }
        if let Some(group) = groups.last_mut() {
            group.features.push(*feature);
            group.counts.push(counts[*feature as usize]);
        }
        filled += bytes(feature);
    }
    groups
}

/// The histograms of one node, group by group, each feature's bins and then its missing values.
pub(super) type Histogram = Box<[Entry]>;

/// The room in which a group's histograms are built; all zeros while it is not in use.
pub(super) type Scratch = Box<[[Entry; 256]; Group::MOST]>;

/// Memory that is used again and again.
pub(super) struct Pool {
    entries: usize,
    histograms: Mutex<Vec<Histogram>>,
    /// Histograms that may still be allocated.
    left: Mutex<usize>,
    scratch: Mutex<Vec<Scratch>>,
}

impl Pool {
    /// Beyond this, histograms are not kept and both children are built from their rows.
    const BYTES: usize = 1 << 30;

    pub(super) fn new(counts: &[u16]) -> Self {
        let entries: usize = counts.iter().map(|&count| usize::from(count) + 1).sum();
        Self {
            entries,
            histograms: Mutex::default(),
            left: Mutex::new(Self::BYTES / (entries * size_of::<Entry>()).max(1)),
            scratch: Mutex::default(),
        }
    }

    /// A histogram of any content, if there is room.
    pub(super) fn take(&self) -> Option<Histogram> {
        if let Some(histogram) = lock(&self.histograms).pop() {
            return Some(histogram);
        }
        let mut left = lock(&self.left);
        *left = left.checked_sub(1)?;
        Some(vec![Entry::default(); self.entries].into())
    }

    pub(super) fn put(&self, histogram: Histogram) {
        lock(&self.histograms).push(histogram);
    }

    pub(super) fn put_all(&self, histograms: impl IntoIterator<Item = Histogram>) {
        lock(&self.histograms).extend(histograms);
    }

    /// Lends zeroed room; `work` must leave it zeroed.
    pub(super) fn with_scratch<T>(&self, work: impl FnOnce(&mut Scratch) -> T) -> T {
        let held = lock(&self.scratch).pop();
        let mut scratch = held.unwrap_or_else(|| Box::new([[Entry::default(); 256]; Group::MOST]));
        let result = work(&mut scratch);
        lock(&self.scratch).push(scratch);
        result
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds rows to the histograms of a group.
///
/// `codes` holds `features` codes for each of the rows that `fixed` has gradients for. With `all`,
/// `rows` is all of these.
#[inline(always)]
pub(super) fn add_rows(
    histogram: &mut [[Entry; 256]; Group::MOST],
    group: &Group,
    codes: &[u8],
    features: usize,
    fixed: &[[i32; 2]],
    rows: &[u16],
    all: bool,
) {
    macro_rules! dispatch {
        ($($n:literal),*) => {
            match group.features.len() {
                $($n => {
                    let Some(histogram) = histogram.first_chunk_mut::<$n>() else { return };
                    let mut offsets = [0; $n];
                    for (offset, &feature) in offsets.iter_mut().zip(&group.features) {
                        *offset = feature as usize;
                    }
                    let table = Rows { codes, features, fixed };
                    let first = offsets[0];
                    let adjacent = offsets.iter().enumerate().all(|(i, &o)| o == first + i);
                    match (adjacent, all) {
                        (true, true) => table.add_all(histogram, first),
                        (true, false) => table.add_adjacent(histogram, rows, first),
                        (false, _) => table.add_scattered(histogram, rows, offsets),
                    }
                })*
                _ => {}
            }
        };
    }
    dispatch!(1, 2, 3, 4, 5, 6, 7, 8);
}

struct Rows<'a> {
    codes: &'a [u8],
    features: usize,
    fixed: &'a [[i32; 2]],
}

impl Rows<'_> {
    #[inline(always)]
    fn add_all<const G: usize>(&self, histogram: &mut [[Entry; 256]; G], first: usize) {
        for (codes, &fixed) in self.codes.chunks_exact(self.features).zip(self.fixed) {
            let Some(codes) = codes
                .get(first..)
                .and_then(|codes| codes.first_chunk::<G>())
            else {
                return;
            };
            add(histogram, fixed, codes);
        }
    }

    /// Adds rows to the histograms of features that follow each other.
    #[inline(always)]
    fn add_adjacent<const G: usize>(
        &self,
        histogram: &mut [[Entry; 256]; G],
        rows: &[u16],
        first: usize,
    ) {
        for (i, &row) in rows.iter().enumerate() {
            self.ask(rows, i, first);
            let row = usize::from(row);
            let codes = self.codes.get(row * self.features + first..);
            if let (Some(codes), Some(&fixed)) = (
                codes.and_then(|codes| codes.first_chunk()),
                self.fixed.get(row),
            ) {
                add(histogram, fixed, codes);
            }
        }
    }

    #[inline(always)]
    fn add_scattered<const G: usize>(
        &self,
        histogram: &mut [[Entry; 256]; G],
        rows: &[u16],
        offsets: [usize; G],
    ) {
        for (i, &row) in rows.iter().enumerate() {
            self.ask(rows, i, offsets[0]);
            let row = usize::from(row);
            let all = &self.codes[row * self.features..][..self.features];
            let mut codes = [0; G];
            for k in 0..G {
                codes[k] = all[offsets[k]];
            }
            add(histogram, self.fixed[row], &codes);
        }
    }

    /// Asks for the codes of a row further on.
    #[inline(always)]
    fn ask(&self, rows: &[u16], i: usize, offset: usize) {
        const AHEAD: usize = 24;
        if let Some(&row) = rows.get(i + AHEAD) {
            prefetch(self.codes, usize::from(row) * self.features + offset);
        }
    }
}

#[inline(always)]
fn add<const G: usize>(histogram: &mut [[Entry; 256]; G], fixed: [i32; 2], codes: &[u8; G]) {
    let [g, h] = fixed.map(i64::from);
    for k in 0..G {
        let bin = &mut histogram[k][usize::from(codes[k])];
        *bin = Entry {
            g: bin.g + g,
            h: bin.h + h,
        };
    }
}

#[inline(always)]
fn prefetch(codes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(code) = codes.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint; the address is that of a code.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(code).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (codes, at);
}
