//! Typed memory on a device.

use super::{Device, pool};
use bytemuck::{Pod, Zeroable};
use cubecl::prelude::CubePrimitive;
use detml_core::{Error, Result};
use std::alloc::{Layout, alloc_zeroed};
use std::fmt;
use std::marker::PhantomData;

mod sealed {
    pub trait Sealed: crate::device::pool::Word {}
    impl Sealed for f32 {}
    impl Sealed for u32 {}
    impl Sealed for i32 {}
}

/// A type that buffers hold: `f32`, `u32` or `i32`.
///
/// Narrower data is packed into words: not every target can address less than 32 bits.
pub trait Element:
    sealed::Sealed + Pod + CubePrimitive + fmt::Debug + Default + PartialEq + Send + Sync + 'static
{
}

impl Element for f32 {}
impl Element for u32 {}
impl Element for i32 {}

pub(crate) enum Storage<T> {
    Host(Host<T>),
    #[cfg(feature = "gpu")]
    Gpu(super::gpu::Memory),
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Host memory of a buffer.
///
/// The elements begin with a cache line wherever this crate allocates them: vectors of 64 bytes
/// that lie across two lines cost two accesses each.
pub(crate) struct Host<T> {
    memory: Vec<T>,
    first: usize,
    len: usize,
}

impl<T: Element> Host<T> {
    /// Elements that are allocated for `len`.
    fn room(len: usize) -> Result<usize> {
        let more = if len.saturating_mul(size_of::<T>()) < LINE {
            0
        } else {
            LINE / size_of::<T>() - 1
        };
        len.checked_add(more).ok_or_else(|| out_of_memory::<T>(len))
    }

    /// Where the first line begins, if there is room before it.
    fn first(memory: *const T, len: usize, room: usize) -> usize {
        let first = memory.align_offset(LINE);
        if first <= room - len { first } else { 0 }
    }

    /// In `memory` of [`room`](Self::room) elements.
    fn within(memory: Vec<T>, len: usize) -> Self {
        Self {
            first: Self::first(memory.as_ptr(), len, memory.len()),
            memory,
            len,
        }
    }

    pub(super) fn elements(&self) -> &[T] {
        &self.memory[self.first..self.first + self.len]
    }

    fn elements_mut(&mut self) -> &mut [T] {
        &mut self.memory[self.first..self.first + self.len]
    }
}

/// A row of `len` elements on a device.
///
/// A buffer on the CPU device is ordinary memory, see [`host`](Self::host); one on a GPU is
/// reached by [`Device::read`].
/// Large ones (1 MiB and more) leave their host memory to later ones, at most 256 MiB of each
/// element type at a time.
pub struct Buffer<T: Element> {
    pub(super) storage: Storage<T>,
    pub(super) len: usize,
    pub(super) device: Device,
    pub(super) _type: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    pub(crate) fn from_host(device: &Device, data: Vec<T>) -> Self {
        let whole = Host {
            first: 0,
            len: data.len(),
            memory: data,
        };
        Self::from_memory(device, whole)
    }

    pub(super) fn from_memory(device: &Device, data: Host<T>) -> Self {
        Self {
            len: data.len,
            storage: Storage::Host(data),
            device: device.clone(),
            _type: PhantomData,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that holds the elements.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The elements, if the buffer is on the CPU device.
    pub fn host(&self) -> Option<&[T]> {
        match &self.storage {
            Storage::Host(data) => Some(data.elements()),
            #[cfg(feature = "gpu")]
            Storage::Gpu(_) => None,
        }
    }

    /// The elements for writing, if the buffer is on the CPU device.
    pub fn host_mut(&mut self) -> Option<&mut [T]> {
        match &mut self.storage {
            Storage::Host(data) => Some(data.elements_mut()),
            #[cfg(feature = "gpu")]
            Storage::Gpu(_) => None,
        }
    }
}

impl<T: Element> Drop for Buffer<T> {
    fn drop(&mut self) {
        #[cfg_attr(not(feature = "gpu"), allow(irrefutable_let_patterns))]
        if let Storage::Host(data) = &mut self.storage {
            pool::keep(std::mem::take(&mut data.memory));
        }
    }
}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Buffer<{}>[{}] on {}",
            std::any::type_name::<T>(),
            self.len,
            self.device
        )
    }
}

/// `len` zeros in host memory, which the system may map only when they are touched.
///
/// # Errors
/// `OutOfMemory` where `vec!` would end the process.
pub(crate) fn zeros<T: Zeroable + Copy>(len: usize) -> Result<Vec<T>> {
    let Ok(layout) = Layout::array::<T>(len) else {
        return Err(out_of_memory::<T>(len));
    };
    if layout.size() == 0 {
        return Ok(vec![T::zeroed(); len]);
    }
    // SAFETY: the layout has a size. Zeroed memory holds `len` values of a `Zeroable` type, and
    // memory of the global allocator with this layout is what a `Vec` of this capacity frees.
    unsafe {
        let memory = alloc_zeroed(layout).cast::<T>();
        if memory.is_null() {
            return Err(out_of_memory::<T>(len));
        }
        Ok(Vec::from_raw_parts(memory, len, len))
    }
}

/// `len` zeros for a buffer. Errors as [`zeros`].
pub(super) fn empty<T: Element>(len: usize) -> Result<Host<T>> {
    let memory = zeros(Host::<T>::room(len)?).map_err(|_| out_of_memory::<T>(len))?;
    Ok(Host::within(memory, len))
}

/// `len` elements of any value. Errors as [`zeros`].
pub(super) fn unwritten<T: Element>(len: usize) -> Result<Host<T>> {
    match pool::take(Host::<T>::room(len)?) {
        Some(block) => Ok(Host::within(block, len)),
        None => empty(len),
    }
}

/// A copy of `data` for a buffer. Errors as [`zeros`].
pub(super) fn upload<T: Element>(data: &[T]) -> Result<Host<T>> {
    let (len, room) = (data.len(), Host::<T>::room(data.len())?);
    let mut memory = Vec::new();
    memory
        .try_reserve_exact(room)
        .map_err(|_| out_of_memory::<T>(len))?;
    memory.resize(Host::first(memory.as_ptr(), len, room), T::default());
    memory.extend_from_slice(data);
    memory.resize(room, T::default());
    Ok(Host::within(memory, len))
}

/// A copy of `data`. Errors as [`zeros`].
pub(super) fn copy<T: Copy>(data: &[T]) -> Result<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(data.len())
        .map_err(|_| out_of_memory::<T>(data.len()))?;
    all.extend_from_slice(data);
    Ok(all)
}

fn out_of_memory<T>(len: usize) -> Error {
    Error::OutOfMemory {
        device: "cpu".into(),
        requested: (len as u64).saturating_mul(size_of::<T>() as u64),
    }
}
