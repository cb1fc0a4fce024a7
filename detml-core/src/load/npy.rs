use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use ndarray::{Array, Array1, Array2, ArrayBase, ArrayD, Data, Dimension, IxDyn, ShapeBuilder};

use crate::files::byte_length;
use crate::{Error, Result, write_atomic};

/// Bytes of header that a file may claim; NumPy writes less than 200.
const MAX_HEADER: usize = 1 << 16;
/// Axes that an array may have, NumPy's own limit.
const MAX_AXES: usize = 64;

/// An array from an npy file, with the element type it was written with.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say all")]
pub enum NpyArray {
    F32(ArrayD<f32>),
    F64(ArrayD<f64>),
    I32(ArrayD<i32>),
    I64(ArrayD<i64>),
    U8(ArrayD<u8>),
    Bool(ArrayD<bool>),
}

impl NpyArray {
    /// The length of each axis; empty for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::F32(array) => array.shape(),
            Self::F64(array) => array.shape(),
            Self::I32(array) => array.shape(),
            Self::I64(array) => array.shape(),
            Self::U8(array) => array.shape(),
            Self::Bool(array) => array.shape(),
        }
    }

    /// The numbers as f32, each rounded once to the nearest (ties to even); `true` is 1.
    #[must_use]
    pub fn into_f32(self) -> ArrayD<f32> {
        match self {
            Self::F32(array) => array,
            Self::F64(array) => array.mapv(|value| value as f32),
            Self::I32(array) => array.mapv(|value| value as f32),
            Self::I64(array) => array.mapv(|value| value as f32),
            Self::U8(array) => array.mapv(f32::from),
            Self::Bool(array) => array.mapv(|value| f32::from(u8::from(value))),
        }
    }

    /// A matrix of f32, as [`into_f32`](Self::into_f32).
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are two axes.
    pub fn into_matrix(self) -> Result<Array2<f32>> {
        self.into_axes("a matrix (2 axes)")
    }

    /// A vector of f32, as [`into_f32`](Self::into_f32). A matrix of one column counts as a
    /// vector.
    ///
    /// # Errors
    /// [`Error::Shape`] for any other number of axes.
    pub fn into_vector(self) -> Result<Array1<f32>> {
        match *self.shape() {
            [_, 1] => Ok(self.into_matrix()?.remove_axis(ndarray::Axis(1))),
            _ => self.into_axes("a vector (1 axis)"),
        }
    }

    fn into_axes<D: Dimension>(self, expected: &str) -> Result<Array<f32, D>> {
        let got = format!("{:?}", self.shape());
        self.into_f32()
            .into_dimensionality()
            .map_err(|_| Error::shape("npy array", expected, got))
    }
}

/// An element which [`write_npy`] takes: `f32`, `f64`, `i32`, `i64` or `u8`.
pub trait NpyElement: Copy + sealed::Element {}

mod sealed {
    pub trait Element: Sized {
        const DESCR: &'static str;
        const WIDTH: usize;
        fn read(bytes: &[u8], big: bool) -> Self;
        fn write(self, out: &mut Vec<u8>);
    }
}

macro_rules! element {
    ($($number:ty: $descr:literal),*) => {$(
        impl NpyElement for $number {}
        impl sealed::Element for $number {
            const DESCR: &'static str = $descr;
            const WIDTH: usize = size_of::<$number>();
            fn read(bytes: &[u8], big: bool) -> Self {
                let read = if big { Self::from_be_bytes } else { Self::from_le_bytes };
                // Callers cut the bytes to this width.
                bytes.try_into().map_or_else(|_| Default::default(), read)
            }
            fn write(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
element!(f32: "<f4", f64: "<f8", i32: "<i4", i64: "<i8", u8: "|u1");

/// Reads an npy file (versions 1 to 3) of `f32`, `f64`, `i32`, `i64`, `u8` or `bool`, of
/// either byte order, in C or Fortran order.
///
/// # Errors
/// [`Error::Io`]; [`Error::Parse`] for a header that isn't NumPy's, a shape that overflows or
/// doesn't match the file's length; [`Error::Unsupported`] for other element types.
pub fn read_npy(path: impl AsRef<Path>) -> Result<NpyArray> {
    let path = path.as_ref();
    let failed = |error: std::io::Error| Error::io(path, &error);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let length = metadata.is_file().then_some(metadata.len());
    let reader = BufReader::with_capacity(1 << 16, file);
    parse(reader, length, &path.display().to_string())
}

/// Reads all arrays of an npz file (a zip of npy files), by name.
///
/// # Errors
/// As [`read_npy`], and [`Error::Parse`] for a broken zip.
pub fn read_npz(path: impl AsRef<Path>) -> Result<BTreeMap<String, NpyArray>> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|error| Error::io(path, &error))?;
    unpack(BufReader::new(file), &path.display().to_string())
}

fn unpack(file: impl Read + std::io::Seek, origin: &str) -> Result<BTreeMap<String, NpyArray>> {
    let broken =
        |error: zip::result::ZipError| Error::parse(origin, 0, "a zip archive of npy files", error);
    let mut archive = zip::ZipArchive::new(file).map_err(broken)?;
    let mut arrays = BTreeMap::new();
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(broken)?;
        let name = entry.name().to_owned();
        let Some(name) = name.strip_suffix(".npy") else {
            return Err(Error::parse(
                origin,
                0,
                "entries named `*.npy`",
                super::shown(&name),
            ));
        };
        // The entry's own claim of its length isn't believed.
        let array = parse(
            entry,
            None,
            &format!("{origin}, array {}", super::shown(name)),
        )?;
        if arrays.insert(name.to_owned(), array).is_some() {
            return Err(Error::parse(
                origin,
                0,
                "distinct names",
                format_args!("{} twice", super::shown(name)),
            ));
        }
    }
    Ok(arrays)
}

/// Writes an array of any layout as an npy file (version 1, C order, little-endian), whole or
/// not at all.
///
/// ```
/// use detml_core::{read_npy, write_npy};
/// use ndarray::array;
///
/// let path = std::env::temp_dir().join(format!("detml-{}.npy", std::process::id()));
/// write_npy(&path, &array![[1.0f32, 2.0], [3.0, 4.0]])?;
/// let read = read_npy(&path)?.into_matrix()?;
/// assert_eq!(read, array![[1.0, 2.0], [3.0, 4.0]]);
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), detml_core::Error>(())
/// ```
///
/// # Errors
/// [`Error::Io`].
pub fn write_npy<S, D>(path: impl AsRef<Path>, array: &ArrayBase<S, D>) -> Result<()>
where
    S: Data<Elem: NpyElement>,
    D: Dimension,
{
    write_atomic(path, &to_bytes(array))
}

fn to_bytes<S, D>(array: &ArrayBase<S, D>) -> Vec<u8>
where
    S: Data<Elem: NpyElement>,
    D: Dimension,
{
    use sealed::Element;
    let axes: Vec<String> = array.shape().iter().map(usize::to_string).collect();
    let comma = if axes.len() == 1 { "," } else { "" };
    let mut header = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        S::Elem::DESCR,
        axes.join(", ")
    );
    // Magic, version and length take 10 bytes; data begins at a multiple of 64.
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = Vec::with_capacity(10 + header.len() + array.len() * S::Elem::WIDTH);
    bytes.extend_from_slice(b"\x93NUMPY\x01\x00");
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    for &value in array {
        value.write(&mut bytes);
    }
    bytes
}

/// `length` is what the source holds in all, where that is known for sure.
fn parse(mut source: impl Read, length: Option<u64>, origin: &str) -> Result<NpyArray> {
    let refuse = |expected: &str, got: String| Error::parse(origin, 0, expected, got);
    let mut read = |bytes: &mut [u8]| {
        source.read_exact(bytes).map_err(|error| {
            if error.kind() == std::io::ErrorKind::UnexpectedEof {
                refuse("an npy header", "the end".into())
            } else {
                Error::io(origin, &error)
            }
        })
    };
    let mut magic = [0; 8];
    read(&mut magic)?;
    if magic[..6] != *b"\x93NUMPY" {
        return Err(refuse("npy's magic bytes", format!("{:02x?}", &magic[..6])));
    }
    let (header_length, start) = match magic[6] {
        1 => {
            let mut bytes = [0; 2];
            read(&mut bytes)?;
            (usize::from(u16::from_le_bytes(bytes)), 10)
        }
        2 | 3 => {
            let mut bytes = [0; 4];
            read(&mut bytes)?;
            (u32::from_le_bytes(bytes) as usize, 12)
        }
        version => return Err(refuse("npy version 1, 2 or 3", version.to_string())),
    };
    if header_length > MAX_HEADER {
        return Err(refuse(
            "a header of at most 65536 bytes",
            header_length.to_string(),
        ));
    }
    let mut text = vec![0; header_length];
    read(&mut text)?;
    let header = Header::parse(&text).map_err(|(expected, place)| {
        refuse(
            expected,
            format!("something else at byte {place} of the header"),
        )
    })?;
    let data = length.map(|length| length.saturating_sub((start + header_length) as u64));

    let body = Body {
        header: &header,
        length: data,
        origin,
    };
    let (order, kind) = header.descr.split_at_checked(1).unwrap_or(("", ""));
    let big = order == ">";
    match (order, kind) {
        ("<" | ">", "f4") => body.read(source, big).map(NpyArray::F32),
        ("<" | ">", "f8") => body.read(source, big).map(NpyArray::F64),
        ("<" | ">", "i4") => body.read(source, big).map(NpyArray::I32),
        ("<" | ">", "i8") => body.read(source, big).map(NpyArray::I64),
        ("|" | "<" | ">", "u1") => body.read(source, big).map(NpyArray::U8),
        ("|" | "<" | ">", "b1") => {
            let bytes: ArrayD<u8> = body.read(source, big)?;
            Ok(NpyArray::Bool(bytes.mapv(|byte| byte != 0)))
        }
        _ => Err(Error::unsupported(
            format!("{origin}: element type {}", super::shown(&header.descr)),
            "npy files of f4, f8, i4, i8, u1 and b1 are read",
        )),
    }
}

struct Body<'a> {
    header: &'a Header,
    length: Option<u64>,
    origin: &'a str,
}

impl Body<'_> {
    fn read<T: sealed::Element>(&self, mut source: impl Read, big: bool) -> Result<ArrayD<T>> {
        let shape = &self.header.shape;
        let refuse = |got: String| {
            Error::parse(
                self.origin,
                0,
                format_args!("the data of shape {shape:?}"),
                got,
            )
        };
        let Some(size) = byte_length(T::WIDTH, shape) else {
            return Err(refuse("a size that overflows".into()));
        };
        if let Some(length) = self.length.filter(|&length| length != size as u64) {
            return Err(refuse(format!("{length} bytes where {size} belong")));
        }
        let mut values: Vec<T> = Vec::new();
        // Room for all of it only where the file is known to hold as much.
        let reserved = self.length.map_or(0, |_| size / T::WIDTH);
        values
            .try_reserve_exact(reserved)
            .map_err(|_| Error::OutOfMemory {
                device: "cpu".into(),
                requested: size as u64,
            })?;
        let mut chunk = vec![0; size.min(1 << 16)];
        let mut left = size;
        while left > 0 {
            let part = &mut chunk[..left.min(1 << 16)];
            source.read_exact(part).map_err(|error| {
                if error.kind() == std::io::ErrorKind::UnexpectedEof {
                    refuse(format!("fewer than {size} bytes"))
                } else {
                    Error::io(self.origin, &error)
                }
            })?;
            let part = part.chunks_exact(T::WIDTH);
            values.extend(part.map(|bytes| T::read(bytes, big)));
            left -= left.min(1 << 16);
        }
        match source.read(&mut [0]) {
            Ok(0) => {}
            Ok(_) => return Err(refuse(format!("more than {size} bytes"))),
            Err(error) => return Err(Error::io(self.origin, &error)),
        }
        let shape = IxDyn(shape).set_f(self.header.fortran_order);
        let array = ArrayD::from_shape_vec(shape, values)
            .map_err(|error| refuse(format!("a shape that can't be: {error}")))?;
        if array.is_standard_layout() {
            return Ok(array);
        }
        let axes = array.raw_dim();
        let values: Vec<T> = array.into_iter().collect();
        ArrayD::from_shape_vec(axes, values)
            .map_err(|error| Error::internal(format!("npy layout: {error}")))
    }
}

/// The Python literal `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// What was expected, and at which byte of the header.
type Fault = (&'static str, usize);

impl Header {
    fn parse(text: &[u8]) -> std::result::Result<Self, Fault> {
        let mut cursor = Cursor { text, at: 0 };
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        cursor.expect(b'{', "`{`")?;
        while !cursor.accept(b'}') {
            let place = cursor.at;
            let key = cursor.string()?;
            cursor.expect(b':', "`:`")?;
            let fresh = match key.as_str() {
                "descr" => descr.replace(cursor.string()?).is_none(),
                "fortran_order" => fortran_order.replace(cursor.boolean()?).is_none(),
                "shape" => shape.replace(cursor.tuple()?).is_none(),
                _ => false,
            };
            if !fresh {
                return Err(("`descr`, `fortran_order` and `shape`, once each", place));
            }
            if !cursor.accept(b',') {
                cursor.expect(b'}', "`,` or `}`")?;
                break;
            }
        }
        cursor.skip_spaces();
        if cursor.at != text.len() {
            return Err(("nothing after `}`", cursor.at));
        }
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) => Ok(Self {
                descr,
                fortran_order,
                shape,
            }),
            _ => Err((
                "`descr`, `fortran_order` and `shape`, once each",
                text.len(),
            )),
        }
    }
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn accept(&mut self, byte: u8) -> bool {
        self.skip_spaces();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> std::result::Result<(), Fault> {
        if self.accept(byte) {
            Ok(())
        } else {
            Err((what, self.at))
        }
    }

    fn string(&mut self) -> std::result::Result<String, Fault> {
        let fault = "a quoted text without escapes";
        self.skip_spaces();
        let place = self.at;
        let Some(quote @ (b'\'' | b'"')) = self.peek() else {
            return Err((fault, place));
        };
        let rest = &self.text[place + 1..];
        let length = rest.iter().position(|&byte| byte == quote);
        let text = length.and_then(|length| std::str::from_utf8(&rest[..length]).ok());
        match text {
            Some(text) if !text.contains('\\') => {
                self.at = place + text.len() + 2;
                Ok(text.into())
            }
            _ => Err((fault, place)),
        }
    }

    fn boolean(&mut self) -> std::result::Result<bool, Fault> {
        self.skip_spaces();
        for (word, value) in [("True", true), ("False", false)] {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(("`True` or `False`", self.at))
    }

    fn tuple(&mut self) -> std::result::Result<Vec<usize>, Fault> {
        self.expect(b'(', "`(`")?;
        let mut axes = Vec::new();
        while !self.accept(b')') {
            let begin = self.at;
            while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                self.at += 1;
            }
            let digits = std::str::from_utf8(&self.text[begin..self.at]).unwrap_or_default();
            axes.push(
                digits
                    .parse()
                    .map_err(|_| ("the length of an axis", begin))?,
            );
            if axes.len() > MAX_AXES {
                return Err(("at most 64 axes", begin));
            }
            if !self.accept(b',') {
                self.expect(b')', "`,` or `)`")?;
                break;
            }
        }
        Ok(axes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::*;
    use ndarray::{arr0, array};
    use proptest::prelude::*;

    fn npy(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    fn header(descr: &str, fortran: &str, shape: &str) -> String {
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}  \n")
    }

    /// Reads both as a file of known length and as a stream.
    fn read(bytes: &[u8]) -> Result<NpyArray> {
        let file = parse(bytes, Some(bytes.len() as u64), "test");
        let stream = parse(bytes, None, "test");
        // Their errors about the length differ in words only.
        assert_eq!(file.is_ok(), stream.is_ok(), "{file:?} {stream:?}");
        file
    }

    #[test]
    fn element_types_and_orders() {
        let f4: Vec<u8> = [1.5f32, -0.0, 3.0, 4.0, 5.0, 6.0]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        let rows = array![[1.5f32, -0.0, 3.0], [4.0, 5.0, 6.0]];
        assert_eq!(
            read(&npy(&header("<f4", "False", "(2, 3)"), &f4)),
            Ok(NpyArray::F32(rows.into_dyn()))
        );
        let fortran = read(&npy(&header("<f4", "True", "(2, 3)"), &f4)).unwrap();
        let NpyArray::F32(fortran) = fortran else {
            panic!("{fortran:?}")
        };
        assert!(fortran.is_standard_layout());
        assert_eq!(
            fortran,
            array![[1.5, 3.0, 5.0], [-0.0, 4.0, 6.0]].into_dyn()
        );

        for (descr, data, expected) in [
            ("<f8", 0.1f64.to_le_bytes().to_vec(), 0.1f32),
            (">f8", 0.1f64.to_be_bytes().to_vec(), 0.1),
            (">f4", 0.1f32.to_be_bytes().to_vec(), 0.1),
            ("<i4", (-7i32).to_le_bytes().to_vec(), -7.0),
            ("<i8", 16_777_217i64.to_le_bytes().to_vec(), 16_777_216.0),
            ("|u1", vec![200], 200.0),
            ("|b1", vec![1], 1.0),
        ] {
            for (shape, axes) in [("()", 0), ("(1,)", 1), ("(1, 1)", 2)] {
                let array = read(&npy(&header(descr, "False", shape), &data)).unwrap();
                assert_eq!(array.shape().len(), axes);
                assert_eq!(array.into_f32().first(), Some(&expected), "{descr}");
            }
        }
    }

    #[test]
    fn longer_headers_of_versions_2_and_3() {
        let text = header("|u1", "False", "(2,)");
        for version in [2, 3] {
            let mut bytes = vec![0x93, b'N', b'U', b'M', b'P', b'Y', version, 0];
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
            bytes.extend_from_slice(&[3, 4]);
            assert_eq!(read(&bytes), Ok(NpyArray::U8(array![3, 4].into_dyn())));
        }
    }

    #[test]
    fn hostile_headers_are_refused() {
        let big = usize::MAX.to_string();
        let cases = [
            (b"".to_vec(), "got the end"),
            (b"\x93NUMPX\x01\x00\x00\x00".to_vec(), "magic"),
            (b"\x93NUMPY\x04\x00\x00\x00".to_vec(), "version 1, 2 or 3"),
            (
                b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(),
                "at most 65536",
            ),
            (b"\x93NUMPY\x01\x00\xff\xff{".to_vec(), "got the end"),
            (npy("", &[]), "`{`"),
            (npy("{'descr': '<f4'}", &[]), "once each"),
            (npy("{'descr': '<f4', 'descr': '<f4'}", &[]), "once each"),
            (npy("{'x': '<f4'}", &[]), "once each"),
            (npy("{'descr': '<f4", &[]), "a quoted text"),
            (
                npy(&(header("|u1", "False", "()") + "x"), &[1]),
                "nothing after",
            ),
            (
                npy(&header("|u1", "false", "()"), &[1]),
                "`True` or `False`",
            ),
            (
                npy(&header("|u1", "False", "(-1,)"), &[]),
                "the length of an axis",
            ),
            (npy(&header("|u1", "False", "(1 1)"), &[1]), "`,` or `)`"),
            (
                npy(&header("|u1", "False", "(99999999999999999999,)"), &[]),
                "the length of an axis",
            ),
            (
                npy(&header("<f8", "False", &format!("({big},)")), &[]),
                "overflows",
            ),
            (
                npy(&header("|u1", "False", &format!("({big}, 2, 0)")), &[]),
                "overflows",
            ),
            (
                npy(&header("<f4", "False", "(1000000, 1000000)"), &[0; 8]),
                "bytes where 4000000000000 belong",
            ),
            (
                npy(&header("<f4", "False", "(2,)"), &[0; 7]),
                "7 bytes where 8",
            ),
            (
                npy(&header("<f4", "False", "(2,)"), &[0; 9]),
                "9 bytes where 8",
            ),
            (
                npy(
                    &header("|u1", "False", &format!("({})", "1,".repeat(65))),
                    &[0],
                ),
                "at most 64 axes",
            ),
            (
                npy(&header("<f2", "False", "(1,)"), &[0; 2]),
                "not supported",
            ),
            (
                npy(&header("<c16", "False", "(1,)"), &[0; 16]),
                "not supported",
            ),
            (
                npy(&header("é", "False", "(1,)"), &[0; 16]),
                "not supported",
            ),
        ];
        for (bytes, part) in cases {
            let text = read(&bytes).unwrap_err().to_string();
            assert!(text.contains(part), "{part:?} not in {text:?}");
        }
    }

    #[test]
    fn a_stream_reserves_what_it_holds_not_what_it_claims() {
        let bytes = npy(&header("<f4", "False", "(1000000, 1000000)"), &[0; 8]);
        let text = parse(&bytes[..], None, "test").unwrap_err().to_string();
        assert!(text.contains("fewer than 4000000000000 bytes"), "{text}");
    }

    #[test]
    fn zero_axes_are_arrays() {
        let array = read(&npy(&header("<f4", "True", "(0, 3)"), &[])).unwrap();
        assert_eq!(array.shape(), [0, 3]);
    }

    #[test]
    fn matrices_and_vectors() {
        let array = || NpyArray::I32(array![[1], [2]].into_dyn());
        assert_eq!(array().into_vector(), Ok(array![1.0, 2.0]));
        assert_eq!(array().into_matrix(), Ok(array![[1.0], [2.0]]));
        let scalar = NpyArray::F64(arr0(1.0).into_dyn());
        assert_eq!(
            scalar.into_vector().unwrap_err().to_string(),
            "npy array: expected shape a vector (1 axis), got []"
        );
    }

    #[test]
    fn numpy_wrote_the_same_bytes() {
        // numpy 2.4: np.save(f, np.array([[1, 2], [3, 4]], dtype="<f4").T.copy())
        let bytes = to_bytes(&array![[1.0f32, 2.0], [3.0, 4.0]].t());
        assert_eq!(bytes.len(), 128 + 16);
        let text = header("<f4", "False", "(2, 2)");
        let text = text.trim_end();
        assert_eq!(bytes[..10], *b"\x93NUMPY\x01\x00v\x00");
        assert_eq!(bytes[10..127], *format!("{text:117}").as_bytes());
        assert_eq!(bytes[127], b'\n');
        assert_eq!(bytes[132..136], 3.0f32.to_le_bytes());
        assert!(to_bytes(&array![1u8]).starts_with(
            b"\x93NUMPY\x01\x00v\x00{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }"
        ));
    }

    fn npz(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in entries {
            let options = zip::write::SimpleFileOptions::default();
            archive.start_file(*name, options).unwrap();
            archive.write_all(bytes).unwrap();
        }
        archive.finish().unwrap().into_inner()
    }

    #[test]
    fn npz_holds_arrays_by_name() {
        let x = to_bytes(&array![[1.0f32, 2.0]]);
        let arrays = unpack(Cursor::new(npz(&[("x.npy", &x), ("y.npy", &x)])), "t").unwrap();
        assert_eq!(arrays.keys().collect::<Vec<_>>(), ["x", "y"]);
        for bytes in [
            npz(&[("x.txt", &x)]),
            npz(&[("x.npy", b"not npy, but long enough")]),
            b"PK not a zip".to_vec(),
        ] {
            assert!(matches!(
                unpack(Cursor::new(bytes), "t"),
                Err(Error::Parse { .. })
            ));
        }
    }

    proptest! {
        #[test]
        fn arrays_round_trip(
            bits in prop::collection::vec(any::<u32>(), 12),
            shape in prop::sample::select(vec![vec![12], vec![3, 4], vec![2, 3, 2], vec![12, 1, 1]]),
        ) {
            let values = bits.iter().map(|&b| f32::from_bits(b)).collect();
            let array = ArrayD::from_shape_vec(shape, values).unwrap();
            let read = read(&to_bytes(&array)).unwrap().into_f32();
            prop_assert_eq!(read.shape(), array.shape());
            let read: Vec<u32> = read.iter().map(|v| v.to_bits()).collect();
            prop_assert_eq!(read, bits);
        }

        #[test]
        fn changed_bytes_are_read_or_refused(
            changes in prop::collection::vec((0usize..160, any::<u8>()), 1..5),
            keep in 0usize..160,
        ) {
            let mut bytes = to_bytes(&array![[1.0f32, 2.0], [3.0, 4.0]]);
            let mut packed = npz(&[("x.npy", &bytes)]);
            for (at, byte) in changes {
                let (at, there) = (at % bytes.len(), at % packed.len());
                bytes[at] = byte;
                packed[there] = byte;
            }
            let _ = read(&bytes);
            let _ = read(&bytes[..keep.min(bytes.len())]);
            let _ = unpack(Cursor::new(&packed), "t");
            let _ = unpack(Cursor::new(&packed[..keep.min(packed.len())]), "t");
        }

        #[test]
        fn any_header_is_read_or_refused(text in "[{}'a-z0-9<|,:() ]{0,80}") {
            let _ = read(&npy(&text, &[]));
        }
    }
}
