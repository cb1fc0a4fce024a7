use std::fmt;

use ndarray::{ArrayBase, Data, Dimension};

/// The hash of a result's bits: BLAKE3, 256 bits held, 128 shown.
///
/// Two results with equal hashes have the same bits. [`Display`](fmt::Display) prints the
/// first 16 bytes as 32 hexadecimal digits; [`to_hex`](Self::to_hex) prints all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BitHash([u8; 32]);

impl BitHash {
    /// The hash of bytes as they are, such as those of a file.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// All 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// All 256 bits as 64 hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl fmt::Display for BitHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex(&self.0[..16]))
    }
}

impl fmt::Debug for BitHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BitHash({self})")
    }
}

/// Anything whose bits can be hashed: arrays, fitted models, data sets.
///
/// ```
/// use detml_core::BitHashed;
/// use ndarray::arr1;
///
/// // Equal numbers, other bits.
/// assert_ne!(arr1(&[0.0f32]).bit_hash(), arr1(&[-0.0f32]).bit_hash());
/// ```
pub trait BitHashed {
    /// The hash of its bits.
    fn bit_hash(&self) -> BitHash;
}

/// A number which [`BitHasher`] takes.
///
/// Implemented for `u8`, `i32`, `u32`, `u64`, `f32` and `f64`.
pub trait HashScalar: Copy + sealed::Sealed {
    #[doc(hidden)]
    const KIND: u8;
    #[doc(hidden)]
    const WIDTH: usize;
    #[doc(hidden)]
    fn write(self, out: &mut [u8]);
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! scalar {
    ($($kind:literal $number:ty),*) => {$(
        impl sealed::Sealed for $number {}
        impl HashScalar for $number {
            const KIND: u8 = $kind;
            const WIDTH: usize = size_of::<$number>();
            fn write(self, out: &mut [u8]) {
                // `to_le_bytes` of a float keeps its bits, those of a NaN too.
                out.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
scalar!(b'b' u8, b'i' i32, b'u' u32, b'U' u64, b'f' f32, b'F' f64);

/// Builds a [`BitHash`] from named arrays.
///
/// Each entry is hashed as: kind (one byte), length of the tag and the tag, number of axes,
/// length of each axis, number of elements, elements; all integers 64 bits, everything
/// little-endian. So neither a moved boundary between two arrays nor another shape goes
/// unseen. Floats are hashed by their bits as they are; a NaN isn't made canonical, since a
/// stray NaN payload in a result is a difference (N11).
///
/// ```
/// use detml_core::BitHasher;
///
/// let mut hasher = BitHasher::new("my model v1");
/// hasher.array("weights", &[2, 1], &[0.5f32, -0.25]);
/// hasher.text("link", "logit");
/// println!("{}", hasher.finish());
/// ```
#[derive(Clone, Debug)]
pub struct BitHasher {
    hasher: blake3::Hasher,
}

impl BitHasher {
    /// An empty hasher; `domain` keeps hashes of different things apart.
    #[must_use]
    pub fn new(domain: &str) -> Self {
        let mut hasher = Self {
            hasher: blake3::Hasher::new(),
        };
        hasher.head(b'D', domain, &[]);
        hasher
    }

    /// Adds numbers in row-major order with their shape.
    pub fn array<T: HashScalar>(&mut self, tag: &str, shape: &[usize], values: &[T]) -> &mut Self {
        self.elements(tag, shape, values.len(), values.iter().copied())
    }

    /// Adds an array of any layout in row-major order with its shape.
    pub fn ndarray<S, D>(&mut self, tag: &str, array: &ArrayBase<S, D>) -> &mut Self
    where
        S: Data,
        S::Elem: HashScalar,
        D: Dimension,
    {
        match array.as_slice() {
            Some(values) => self.array(tag, array.shape(), values),
            None => self.elements(tag, array.shape(), array.len(), array.iter().copied()),
        }
    }

    /// Adds one number.
    pub fn scalar<T: HashScalar>(&mut self, tag: &str, value: T) -> &mut Self {
        self.array(tag, &[], &[value])
    }

    /// Adds a text.
    pub fn text(&mut self, tag: &str, text: &str) -> &mut Self {
        self.head(b'S', tag, &[]);
        self.length(text.len());
        self.hasher.update(text.as_bytes());
        self
    }

    /// Adds the hash of a part.
    pub fn part(&mut self, tag: &str, part: &BitHash) -> &mut Self {
        self.head(b'H', tag, &[]);
        self.hasher.update(&part.0);
        self
    }

    /// The hash of all that was added.
    #[must_use]
    pub fn finish(&self) -> BitHash {
        BitHash(*self.hasher.finalize().as_bytes())
    }

    fn length(&mut self, length: usize) {
        self.hasher.update(&(length as u64).to_le_bytes());
    }

    fn head(&mut self, kind: u8, tag: &str, shape: &[usize]) {
        self.hasher.update(&[kind]);
        self.length(tag.len());
        self.hasher.update(tag.as_bytes());
        self.length(shape.len());
        for &axis in shape {
            self.length(axis);
        }
    }

    fn elements<T: HashScalar>(
        &mut self,
        tag: &str,
        shape: &[usize],
        length: usize,
        values: impl Iterator<Item = T>,
    ) -> &mut Self {
        self.head(T::KIND, tag, shape);
        self.length(length);
        let mut block = [0u8; 8192];
        let mut used = 0;
        for value in values {
            if used == block.len() {
                self.hasher.update(&block);
                used = 0;
            }
            value.write(&mut block[used..used + T::WIDTH]);
            used += T::WIDTH;
        }
        self.hasher.update(&block[..used]);
        self
    }
}

impl<S, D> BitHashed for ArrayBase<S, D>
where
    S: Data,
    S::Elem: HashScalar,
    D: Dimension,
{
    fn bit_hash(&self) -> BitHash {
        BitHasher::new("array").ndarray("", self).finish()
    }
}

impl<T: HashScalar> BitHashed for [T] {
    fn bit_hash(&self) -> BitHash {
        BitHasher::new("array")
            .array("", &[self.len()], self)
            .finish()
    }
}

impl<T: HashScalar> BitHashed for Vec<T> {
    fn bit_hash(&self) -> BitHash {
        self.as_slice().bit_hash()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, arr1};

    #[test]
    fn the_layout_is_fixed() {
        let mut bytes = Vec::new();
        let length = |bytes: &mut Vec<u8>, n: u64| bytes.extend_from_slice(&n.to_le_bytes());
        bytes.push(b'D');
        length(&mut bytes, 1);
        bytes.push(b'd');
        length(&mut bytes, 0);
        bytes.push(b'f');
        length(&mut bytes, 2);
        bytes.extend_from_slice(b"ab");
        for n in [2, 1, 3, 3] {
            length(&mut bytes, n);
        }
        for bits in [0x3f80_0000u32, 0x8000_0000, 0xffc0_0001] {
            bytes.extend_from_slice(&bits.to_le_bytes());
        }
        let mut hasher = BitHasher::new("d");
        hasher.array("ab", &[1, 3], &[1.0f32, -0.0, f32::from_bits(0xffc0_0001)]);
        assert_eq!(hasher.finish().as_bytes(), blake3::hash(&bytes).as_bytes());
        assert_eq!(hasher.finish().to_string().len(), 32);
        assert!(
            hasher
                .finish()
                .to_hex()
                .starts_with(&hasher.finish().to_string())
        );
    }

    #[test]
    fn one_bit_a_boundary_a_shape_and_a_kind_all_show() {
        let base = [1.0f32, 2.0];
        let hash = base.bit_hash();
        assert_ne!(
            hash,
            [1.0f32, f32::from_bits(2.0f32.to_bits() + 1)].bit_hash()
        );
        assert_ne!(hash, [1.0f32.to_bits(), 2.0f32.to_bits()].bit_hash());
        assert_ne!(
            hash,
            Array2::from_shape_vec((1, 2), base.to_vec())
                .unwrap()
                .bit_hash()
        );
        let parts = |a: &[f32], b: &[f32]| {
            let mut hasher = BitHasher::new("parts");
            hasher.array("a", &[a.len()], a).array("b", &[b.len()], b);
            hasher.finish()
        };
        assert_ne!(parts(&base[..1], &base[1..]), parts(&base, &[]));
    }

    #[test]
    fn layout_in_memory_and_length_of_the_block_do_not_show() {
        let values: Vec<f32> = (0..5_000).map(|i| i as f32).collect();
        let rows = Array2::from_shape_vec((50, 100), values.clone()).unwrap();
        let mut columns = Array2::zeros((100, 50)).reversed_axes();
        columns.assign(&rows);
        assert!(columns.as_slice().is_none());
        assert_eq!(rows.bit_hash(), columns.bit_hash());
        assert_eq!(values.bit_hash(), arr1(&values).bit_hash());
    }
}
