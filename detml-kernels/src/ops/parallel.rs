//! Threads over disjoint parts of an output.

use rayon::prelude::*;

/// `f(i, part)` for each `chunk` elements of `data`, of which the first is element `i`; on the
/// threads of the pool if `threads`, else here.
///
/// The work is behind a pointer, so that the scheduling is compiled once, not once for each
/// caller.
pub(crate) fn for_chunks<T: Send>(
    data: &mut [T],
    chunk: usize,
    threads: bool,
    f: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    if threads {
        data.par_chunks_mut(chunk)
            .enumerate()
            .for_each(|(i, part)| f(i * chunk, part));
    } else {
        for (i, part) in data.chunks_mut(chunk).enumerate() {
            f(i * chunk, part);
        }
    }
}

/// `f` for each task, on the threads of the pool if there are several. Compiled once for each kind
/// of task, as [`for_chunks`] is.
pub(crate) fn for_each<T: Send>(tasks: Vec<T>, f: &(dyn Fn(T) + Sync)) {
    if tasks.len() < 2 {
        tasks.into_iter().for_each(f);
    } else {
        tasks.into_par_iter().for_each(f);
    }
}
