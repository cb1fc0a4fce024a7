use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::json;
use crate::files::{byte_length, write_atomic};
use crate::{Error, Result};

/// Bytes of header that a file may claim; the limit of the safetensors format.
const MAX_HEADER: u64 = 100_000_000;

/// The element type of a [`Tensor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say all")]
pub enum DType {
    Bool,
    U8,
    I8,
    I16,
    U16,
    F16,
    BF16,
    I32,
    U32,
    F32,
    I64,
    U64,
    F64,
}

impl DType {
    const ALL: [(Self, &'static str, usize); 13] = [
        (Self::Bool, "BOOL", 1),
        (Self::U8, "U8", 1),
        (Self::I8, "I8", 1),
        (Self::I16, "I16", 2),
        (Self::U16, "U16", 2),
        (Self::F16, "F16", 2),
        (Self::BF16, "BF16", 2),
        (Self::I32, "I32", 4),
        (Self::U32, "U32", 4),
        (Self::F32, "F32", 4),
        (Self::I64, "I64", 8),
        (Self::U64, "U64", 8),
        (Self::F64, "F64", 8),
    ];

    /// Bytes per element.
    #[must_use]
    pub fn width(self) -> usize {
        Self::ALL[self as usize].2
    }

    fn from_name(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, other, _)| *other == name);
        found.map(|&(dtype, _, _)| dtype)
    }
}

/// The name in a safetensors header, such as `BF16`.
impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL[*self as usize].1)
    }
}

/// A tensor as stored: little-endian bytes in row-major order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Vec<u8>,
}

impl Tensor {
    /// A tensor from its little-endian bytes.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `data` has the bytes that `dtype` and `shape` ask for.
    pub fn new(dtype: DType, shape: Vec<usize>, data: Vec<u8>) -> Result<Self> {
        if byte_length(dtype.width(), &shape) != Some(data.len()) {
            return Err(Error::shape(
                "tensor",
                format_args!("the bytes of {dtype} {shape:?}"),
                format_args!("{} bytes", data.len()),
            ));
        }
        Ok(Self { dtype, shape, data })
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The length of each axis; empty for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The little-endian bytes, row-major.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    /// The elements as f32: `F32` as they are, `F16` and `BF16` widened exactly by integer
    /// code (N13). `None` for other types.
    #[must_use]
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        let halves = || {
            self.data
                .chunks_exact(2)
                .map(|half| u16::from_le_bytes([half[0], half[1]]))
        };
        match self.dtype {
            DType::F32 => {
                let words = self.data.chunks_exact(4);
                let bits =
                    words.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
                Some(bits.map(f32::from_bits).collect())
            }
            DType::BF16 => Some(
                halves()
                    .map(|half| f32::from_bits(u32::from(half) << 16))
                    .collect(),
            ),
            DType::F16 => Some(halves().map(f16_to_f32).collect()),
            _ => None,
        }
    }
}

/// Widens a binary16 by its bits; exact, NaN payloads kept.
fn f16_to_f32(half: u16) -> f32 {
    let sign = u32::from(half >> 15) << 31;
    let exponent = u32::from(half >> 10) & 0x1f;
    let fraction = u32::from(half) & 0x3ff;
    let magnitude = match (exponent, fraction) {
        (0, 0) => 0,
        (0, _) => {
            // Subnormal: fraction * 2^-24, its leading one moved to the hidden place.
            let lead = 31 - fraction.leading_zeros();
            ((lead + 103) << 23) | ((fraction << (23 - lead)) & 0x007f_ffff)
        }
        (0x1f, _) => 0x7f80_0000 | (fraction << 13),
        _ => ((exponent + 112) << 23) | (fraction << 13),
    };
    f32::from_bits(sign | magnitude)
}

/// What a safetensors header says of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The element type.
    pub dtype: DType,
    /// The length of each axis.
    pub shape: Vec<usize>,
    /// Its bytes within the data section.
    pub range: Range<usize>,
}

/// The checked header of a safetensors file.
///
/// Every tensor's bytes lie inside the data section, fit its type and shape, overlap no other
/// tensor's and leave no gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SafetensorsHeader {
    /// The texts of `__metadata__`.
    pub metadata: BTreeMap<String, String>,
    /// The tensors by name.
    pub tensors: BTreeMap<String, TensorInfo>,
}

impl SafetensorsHeader {
    /// Parses and checks a header's JSON against the length of the data that follows it.
    ///
    /// # Errors
    /// [`Error::ModelFile`] naming `origin` and the first fault.
    pub fn parse(json: &[u8], data_length: u64, origin: &str) -> Result<Self> {
        let refuse = |reason: String| Error::model_file(origin, reason);
        if json.first() != Some(&b'{') {
            return Err(refuse("the header doesn't begin with `{`".into()));
        }
        let raw: RawHeader = serde_json::from_slice(json)
            .map_err(|error| refuse(format!("the header is not as it should be: {error}")))?;
        let mut tensors = BTreeMap::new();
        for (name, raw) in raw.tensors {
            let refuse = |reason: String| refuse(format!("tensor `{}`: {reason}", shown(&name)));
            let Some(dtype) = DType::from_name(&raw.dtype) else {
                return Err(refuse(format!("unknown type `{}`", shown(&raw.dtype))));
            };
            let mut shape = Vec::with_capacity(raw.shape.len());
            for axis in raw.shape {
                shape.push(
                    usize::try_from(axis)
                        .map_err(|_| refuse(format!("an axis of {axis} elements")))?,
                );
            }
            let Some(length) = byte_length(dtype.width(), &shape) else {
                return Err(refuse(format!("the size of shape {shape:?} overflows")));
            };
            let [begin, end] = raw.data_offsets;
            if begin > end || end > data_length {
                return Err(refuse(format!(
                    "bytes {begin}..{end} of {data_length} bytes of data"
                )));
            }
            if end - begin != length as u64 {
                return Err(refuse(format!(
                    "{dtype} {shape:?} needs {length} bytes, has {}",
                    end - begin
                )));
            }
            let (Ok(begin), Ok(end)) = (usize::try_from(begin), usize::try_from(end)) else {
                return Err(refuse(format!("offset {end} is too large here")));
            };
            let range = begin..end;
            let info = TensorInfo {
                dtype,
                shape,
                range,
            };
            tensors.insert(name, info);
        }
        let mut order: Vec<(&String, &TensorInfo)> = tensors.iter().collect();
        order.sort_by_key(|(_, info)| (info.range.start, info.range.end));
        let mut reached = 0;
        for (name, info) in order {
            if info.range.start != reached {
                return Err(refuse(format!(
                    "tensor `{}` begins at byte {}, expected {reached}: {}",
                    shown(name),
                    info.range.start,
                    if info.range.start < reached {
                        "it overlaps another"
                    } else {
                        "there is a gap"
                    }
                )));
            }
            reached = info.range.end;
        }
        if reached as u64 != data_length {
            return Err(refuse(format!(
                "{} bytes of data belong to no tensor",
                data_length - reached as u64
            )));
        }
        Ok(Self {
            metadata: raw.metadata,
            tensors,
        })
    }

    /// Reads the header of a file of `file_length` bytes from its start. Returns the header
    /// and the position in the file where data begins.
    ///
    /// # Errors
    /// [`Error::Io`] if reading fails; [`Error::ModelFile`] as [`parse`](Self::parse).
    /// Memory is reserved only after the claimed length was checked against the file's.
    pub fn read(mut source: impl Read, file_length: u64, origin: &str) -> Result<(Self, u64)> {
        let refuse = |reason: String| Error::model_file(origin, reason);
        if file_length < 8 {
            return Err(refuse(format!(
                "expected at least 8 bytes, got {file_length}"
            )));
        }
        let mut length = [0u8; 8];
        source
            .read_exact(&mut length)
            .map_err(|error| Error::io(origin, &error))?;
        let length = u64::from_le_bytes(length);
        let limit = MAX_HEADER.min(file_length - 8);
        if length > limit {
            return Err(refuse(format!(
                "a header of {length} bytes is claimed, at most {limit} are possible"
            )));
        }
        let mut json = vec![0u8; length as usize];
        source
            .read_exact(&mut json)
            .map_err(|error| Error::io(origin, &error))?;
        let header = Self::parse(&json, file_length - 8 - length, origin)?;
        Ok((header, 8 + length))
    }
}

/// A name from a file, fit to be shown in an error.
fn shown(name: &str) -> String {
    name.chars()
        .take(80)
        .collect::<String>()
        .escape_debug()
        .to_string()
}

struct RawHeader {
    metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, RawTensor>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// A map that refuses a key given twice, which `BTreeMap` would let pass.
struct Distinct(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = Distinct;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("texts by name")
            }
            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Distinct, A::Error> {
                let mut texts = BTreeMap::new();
                while let Some((key, text)) = map.next_entry::<String, String>()? {
                    if texts.contains_key(&key) {
                        return Err(de::Error::custom(format_args!(
                            "metadata `{}` twice",
                            shown(&key)
                        )));
                    }
                    texts.insert(key, text);
                }
                Ok(Distinct(texts))
            }
        }
        deserializer.deserialize_map(Texts)
    }
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RawHeader;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tensors by name")
            }
            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<RawHeader, A::Error> {
                let mut metadata = None;
                let mut tensors = BTreeMap::new();
                while let Some(key) = map.next_key::<String>()? {
                    if key == "__metadata__" {
                        if metadata.is_some() {
                            return Err(de::Error::custom("`__metadata__` twice"));
                        }
                        metadata = Some(map.next_value::<Distinct>()?.0);
                        continue;
                    }
                    if tensors.contains_key(&key) {
                        return Err(de::Error::custom(format_args!(
                            "tensor `{}` twice",
                            shown(&key)
                        )));
                    }
                    tensors.insert(key, map.next_value()?);
                }
                Ok(RawHeader {
                    metadata: metadata.unwrap_or_default(),
                    tensors,
                })
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// The content of a safetensors file.
///
/// Reading is strict (see [`SafetensorsHeader`]); writing gives the same bytes for the same
/// content: metadata and tensors sorted by name, wide element types first so that each is
/// aligned, the header padded with spaces to a multiple of 8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Safetensors {
    /// The texts of `__metadata__`.
    pub metadata: BTreeMap<String, String>,
    /// The tensors by name; `__metadata__` is no tensor's name.
    pub tensors: BTreeMap<String, Tensor>,
}

impl Safetensors {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::ModelFile`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |error: std::io::Error| Error::io(path, &error);
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let origin = path.display().to_string();
        let (header, begin) = SafetensorsHeader::read(&mut file, length, &origin)?;
        let mut data = Vec::new();
        // `take`: a file that grows while it is read doesn't matter.
        file.take(length - begin)
            .read_to_end(&mut data)
            .map_err(failed)?;
        Self::from_parts(header, &data, &origin)
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// [`Error::ModelFile`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let origin = "<bytes>";
        let (header, begin) = SafetensorsHeader::read(bytes, bytes.len() as u64, origin)?;
        Self::from_parts(header, &bytes[begin as usize..], origin)
    }

    fn from_parts(header: SafetensorsHeader, data: &[u8], origin: &str) -> Result<Self> {
        let mut tensors = BTreeMap::new();
        for (name, info) in header.tensors {
            let Some(bytes) = data.get(info.range) else {
                return Err(Error::model_file(origin, "the file ends early"));
            };
            let tensor = Tensor {
                dtype: info.dtype,
                shape: info.shape,
                data: bytes.to_vec(),
            };
            tensors.insert(name, tensor);
        }
        Ok(Self {
            metadata: header.metadata,
            tensors,
        })
    }

    /// The bytes of the file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut order: Vec<(&String, &Tensor)> = self
            .tensors
            .iter()
            .filter(|(name, _)| *name != "__metadata__")
            .collect();
        // Stable: names stay sorted within a width.
        order.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype.width()));

        let mut header = String::from("{\"__metadata__\":{");
        for (i, (key, text)) in self.metadata.iter().enumerate() {
            if i > 0 {
                header.push(',');
            }
            json::string(key, &mut header);
            header.push(':');
            json::string(text, &mut header);
        }
        header.push('}');
        let mut reached = 0;
        for (name, tensor) in &order {
            let end = reached + tensor.data.len();
            header.push(',');
            json::string(name, &mut header);
            let shape: Vec<String> = tensor.shape.iter().map(usize::to_string).collect();
            header.push_str(&format!(
                ":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{reached},{end}]}}",
                tensor.dtype,
                shape.join(",")
            ));
            reached = end;
        }
        header.push('}');
        while header.len() % 8 != 0 {
            header.push(' ');
        }

        let mut bytes = Vec::with_capacity(8 + header.len() + reached);
        bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        for (_, tensor) in order {
            bytes.extend_from_slice(&tensor.data);
        }
        bytes
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        write_atomic(path, &self.to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    fn refusal(bytes: &[u8]) -> String {
        match Safetensors::from_bytes(bytes) {
            Err(Error::ModelFile { reason, .. }) => reason,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    fn tensor(name: &str, dtype: &str, shape: &str, begin: u64, end: u64) -> String {
        format!(
            "\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{begin},{end}]}}"
        )
    }

    #[test]
    fn f1_zero_size_tensors_and_scalars() {
        let header = format!(
            "{{{},{},{}}}",
            tensor("none", "F32", "[3,0]", 0, 0),
            tensor("one", "U8", "[]", 0, 1),
            tensor("end", "F64", "[0]", 1, 1)
        );
        let read = Safetensors::from_bytes(&file(&header, &[7])).unwrap();
        assert_eq!(read.tensors["none"].to_f32(), Some(vec![]));
        assert_eq!(read.tensors["one"].bytes(), [7]);
        assert_eq!(Safetensors::from_bytes(&read.to_bytes()), Ok(read));
    }

    #[test]
    fn f1_bf16_and_f16_widen_exactly() {
        let header = format!(
            "{{{},{}}}",
            tensor("b", "BF16", "[2]", 0, 4),
            tensor("h", "F16", "[7]", 4, 18)
        );
        let halves: [u16; 9] = [
            0x3f80, 0xff80, // 1, -inf
            0x3c00, 0x8000, 0x0001, 0x03ff, 0x0400, 0x7bff, 0xfc00,
        ];
        let data: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
        let read = Safetensors::from_bytes(&file(&header, &data)).unwrap();
        assert_eq!(
            read.tensors["b"].to_f32(),
            Some(vec![1.0, f32::NEG_INFINITY])
        );
        let tiny = 2f32.powi(-24);
        assert_eq!(
            read.tensors["h"].to_f32(),
            Some(vec![
                1.0,
                -0.0,
                tiny,
                1023.0 * tiny,
                1024.0 * tiny,
                65504.0,
                f32::NEG_INFINITY
            ])
        );
    }

    #[test]
    fn every_f16_widens_to_its_value() {
        for half in 0..=u16::MAX {
            let (exponent, fraction) = (i32::from(half >> 10 & 0x1f), f32::from(half & 0x3ff));
            let magnitude = match exponent {
                0 => fraction * 2f32.powi(-24),
                0x1f if fraction == 0.0 => f32::INFINITY,
                0x1f => {
                    assert!(f16_to_f32(half).is_nan());
                    continue;
                }
                _ => (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
            };
            let value = if half >> 15 == 1 {
                -magnitude
            } else {
                magnitude
            };
            assert_eq!(f16_to_f32(half).to_bits(), value.to_bits(), "{half:#06x}");
        }
    }

    #[test]
    fn f1_hostile_headers_are_refused_by_name() {
        let one = tensor("a", "F32", "[1]", 0, 4);
        let cases: [(Vec<u8>, &str); 14] = [
            (vec![1, 2, 3], "at least 8 bytes"),
            (
                1_000_000_000u64.to_le_bytes().to_vec(),
                "1000000000 bytes is claimed",
            ),
            (u64::MAX.to_le_bytes().to_vec(), "is claimed"),
            (file("[]", &[]), "begin with `{`"),
            (file("{\"a\":", &[]), "not as it should be"),
            (file(&format!("{{{one}}}"), &[0; 3]), "bytes 0..4 of 3"),
            (file(&format!("{{{one}}}"), &[0; 5]), "belong to no tensor"),
            (
                file(&format!("{{{one},{one}}}"), &[0; 4]),
                "tensor `a` twice",
            ),
            (
                file("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", &[]),
                "metadata `k` twice",
            ),
            (
                file(
                    &format!("{{{one},{}}}", tensor("b", "F32", "[1]", 2, 6)),
                    &[0; 6],
                ),
                "overlaps",
            ),
            (
                file(
                    &format!("{{{one},{}}}", tensor("b", "F32", "[1]", 5, 9)),
                    &[0; 9],
                ),
                "gap",
            ),
            (
                file(
                    &format!(
                        "{{{}}}",
                        tensor("a", "F32", "[4294967296,4294967296,0]", 0, 0)
                    ),
                    &[],
                ),
                "overflows",
            ),
            (
                file(&format!("{{{}}}", tensor("a", "F33", "[1]", 0, 4)), &[0; 4]),
                "unknown type",
            ),
            (
                file(&format!("{{{}}}", tensor("a", "F32", "[2]", 0, 4)), &[0; 4]),
                "needs 8 bytes, has 4",
            ),
        ];
        for (bytes, part) in cases {
            let reason = refusal(&bytes);
            assert!(reason.contains(part), "{part:?} not in {reason:?}");
        }
    }

    #[test]
    fn deep_json_is_refused() {
        let header = format!("{{\"a\":{}", "[".repeat(100_000));
        assert!(refusal(&file(&header, &[])).contains("not as it should be"));
    }

    #[test]
    fn the_safetensors_crate_reads_what_we_write_and_the_other_way() {
        let mut ours = Safetensors::default();
        ours.metadata.insert("k\"\u{1}".into(), "v\\ü".into());
        for (name, dtype, shape) in [
            ("z", DType::F64, vec![1, 2]),
            ("a", DType::U8, vec![3]),
            ("m", DType::F32, vec![2]),
            ("b", DType::F32, vec![]),
        ] {
            let length = byte_length(dtype.width(), &shape).unwrap();
            let data = (0..length as u8).collect();
            ours.tensors
                .insert(name.into(), Tensor::new(dtype, shape, data).unwrap());
        }
        let bytes = ours.to_bytes();
        let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        for (name, tensor) in &ours.tensors {
            let view = theirs.tensor(name).unwrap();
            assert_eq!(view.shape(), tensor.shape());
            assert_eq!(view.data(), tensor.bytes());
            assert_eq!(view.dtype().to_string(), tensor.dtype().to_string());
        }
        let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().clone().unwrap();
        assert_eq!(metadata["k\"\u{1}"], "v\\ü");
        let written = safetensors::serialize(theirs.tensors(), Some(metadata)).unwrap();
        assert_eq!(Safetensors::from_bytes(&written), Ok(ours));
    }

    #[test]
    fn a_folder_and_a_device_without_length_are_errors() {
        assert!(Safetensors::load("/").is_err());
        #[cfg(unix)]
        assert!(matches!(
            Safetensors::load("/dev/zero"),
            Err(Error::ModelFile { .. })
        ));
    }

    fn any_content() -> impl Strategy<Value = Safetensors> {
        let tensor =
            (0usize..13, prop::collection::vec(0usize..4, 0..4)).prop_map(|(at, shape)| {
                let dtype = DType::ALL[at].0;
                let length = byte_length(dtype.width(), &shape).unwrap();
                Tensor::new(dtype, shape, (0..length).map(|i| i as u8).collect()).unwrap()
            });
        (
            prop::collection::btree_map(any::<String>(), any::<String>(), 0..4),
            prop::collection::btree_map(any::<String>(), tensor, 0..5),
        )
            .prop_map(|(metadata, tensors)| Safetensors { metadata, tensors })
    }

    proptest! {
        #[test]
        fn content_round_trips(content in any_content()) {
            let bytes = content.to_bytes();
            prop_assert_eq!(Safetensors::from_bytes(&bytes).unwrap().to_bytes(), bytes.clone());
            prop_assert_eq!(Safetensors::from_bytes(&bytes), Ok(content));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Safetensors::from_bytes(&bytes);
        }

        #[test]
        fn changed_bytes_are_read_or_refused(
            content in any_content(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            keep in any::<prop::sample::Index>(),
        ) {
            let mut bytes = content.to_bytes();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = Safetensors::from_bytes(&bytes);
            bytes.truncate(keep.index(bytes.len()));
            let _ = Safetensors::from_bytes(&bytes);
        }
    }
}
