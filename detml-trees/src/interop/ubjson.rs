//! UBJSON (draft 12, <https://ubjson.org>), as XGBoost writes it, for serde.
//!
//! Lengths are checked against the bytes that are left before anything is made of them. Elements
//! that take no bytes in a typed container (null, true, false) are refused: a few bytes could
//! claim billions of them.

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt::{self, Display};

/// Containers in containers.
const MAX_DEPTH: usize = 64;

/// Reads one value that takes all bytes.
pub(super) fn from_slice<'de, T: de::Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Fault> {
    let mut input = Input {
        bytes,
        at: 0,
        depth: 0,
    };
    let marker = input.marker()?;
    let value = T::deserialize(Item {
        input: &mut input,
        marker,
    })?;
    match input.bytes.len() - input.at {
        0 => Ok(value),
        rest => Err(input.fault(format_args!("{rest} bytes after the end"))),
    }
}

/// What is wrong, and where.
#[derive(Debug)]
pub(super) struct Fault(String);

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

struct Input<'de> {
    bytes: &'de [u8],
    at: usize,
    depth: usize,
}

impl<'de> Input<'de> {
    fn fault(&self, what: impl Display) -> Fault {
        Fault(format!("offset {}: {what}", self.at))
    }

    fn take(&mut self, count: usize) -> Result<&'de [u8], Fault> {
        let left = &self.bytes[self.at..];
        let Some(taken) = left.get(..count) else {
            return Err(self.fault(format_args!(
                "expected {count} bytes, got the last {}",
                left.len()
            )));
        };
        self.at += count;
        Ok(taken)
    }

    fn word<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut word = [0; N];
        word.copy_from_slice(self.take(N)?);
        Ok(word)
    }

    /// The next marker that isn't a no-op.
    fn marker(&mut self) -> Result<u8, Fault> {
        loop {
            let [marker] = self.word()?;
            if marker != b'N' {
                return Ok(marker);
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn integer(&mut self, marker: u8) -> Result<i64, Fault> {
        Ok(match marker {
            b'i' => i8::from_be_bytes(self.word()?).into(),
            b'U' => u8::from_be_bytes(self.word()?).into(),
            b'I' => i16::from_be_bytes(self.word()?).into(),
            b'l' => i32::from_be_bytes(self.word()?).into(),
            b'L' => i64::from_be_bytes(self.word()?),
            _ => return Err(self.fault(format_args!("expected an integer, got {}", name(marker)))),
        })
    }

    /// A count of things that take at least `width` bytes each.
    fn count(&mut self, width: usize) -> Result<usize, Fault> {
        let marker = self.marker()?;
        let count = self.integer(marker)?;
        let left = self.bytes.len() - self.at;
        usize::try_from(count)
            .ok()
            .filter(|count| count.checked_mul(width).is_some_and(|bytes| bytes <= left))
            .ok_or_else(|| {
                self.fault(format_args!(
                    "expected a count that fits the {left} bytes left, got {count}"
                ))
            })
    }

    fn text(&mut self) -> Result<&'de str, Fault> {
        let count = self.count(1)?;
        let bytes = self.take(count)?;
        std::str::from_utf8(bytes).map_err(|_| self.fault("expected text in UTF-8"))
    }

    /// The type of the elements of a container and their number, each if it is stated.
    fn header(&mut self) -> Result<(Option<u8>, Option<usize>), Fault> {
        let mut element = None;
        if self.peek() == Some(b'$') {
            self.at += 1;
            element = Some(self.word::<1>()?[0]);
            if self.peek() != Some(b'#') {
                return Err(self.fault("expected the count of a typed container"));
            }
        }
        if self.peek() != Some(b'#') {
            return Ok((None, None));
        }
        self.at += 1;
        let width = match element {
            None | Some(b'i' | b'U' | b'C' | b'[' | b'{') => 1,
            Some(b'I' | b'S') => 2,
            Some(b'l' | b'd') => 4,
            Some(b'L' | b'D') => 8,
            Some(other) => {
                return Err(self.fault(format_args!("a container of {}", name(other))));
            }
        };
        Ok((element, Some(self.count(width)?)))
    }
}

fn name(marker: u8) -> String {
    format!("`{}`", char::from(marker).escape_debug())
}

/// A value whose marker has been read.
struct Item<'i, 'de> {
    input: &'i mut Input<'de>,
    marker: u8,
}

impl<'de> Deserializer<'de> for Item<'_, 'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let Self { input, marker } = self;
        match marker {
            b'Z' => visitor.visit_unit(),
            b'T' => visitor.visit_bool(true),
            b'F' => visitor.visit_bool(false),
            b'd' => visitor.visit_f32(f32::from_be_bytes(input.word()?)),
            b'D' => visitor.visit_f64(f64::from_be_bytes(input.word()?)),
            b'C' => {
                let [byte] = input.word()?;
                if !byte.is_ascii() {
                    return Err(input.fault("expected an ASCII character"));
                }
                visitor.visit_char(char::from(byte))
            }
            b'S' => visitor.visit_borrowed_str(input.text()?),
            b'[' | b'{' => {
                if input.depth == MAX_DEPTH {
                    let what = format_args!("more than {MAX_DEPTH} containers in each other");
                    return Err(input.fault(what));
                }
                input.depth += 1;
                let (element, left) = input.header()?;
                let mut parts = Parts {
                    input,
                    element,
                    left,
                    end: if marker == b'[' { b']' } else { b'}' },
                };
                let value = if marker == b'[' {
                    visitor.visit_seq(&mut parts)?
                } else {
                    visitor.visit_map(&mut parts)?
                };
                // A visitor that stops early would leave the rest to be read as something else.
                if parts.next()?.is_some() {
                    return Err(parts.input.fault("fewer elements were expected"));
                }
                parts.input.depth -= 1;
                Ok(value)
            }
            _ => visitor.visit_i64(input.integer(marker)?),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.marker {
            b'Z' => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// What is left of a container.
struct Parts<'i, 'de> {
    input: &'i mut Input<'de>,
    element: Option<u8>,
    /// None if the container ends with a marker, or has ended.
    left: Option<usize>,
    /// 0 once it was met.
    end: u8,
}

impl<'de> Parts<'_, 'de> {
    /// The marker of the next element (of its key in an object), or none.
    fn next(&mut self) -> Result<Option<u8>, Fault> {
        match &mut self.left {
            Some(0) => Ok(None),
            Some(left) => {
                *left -= 1;
                if self.end == b'}' {
                    return Ok(Some(0));
                }
                match self.element {
                    Some(element) => Ok(Some(element)),
                    None => self.input.marker().map(Some),
                }
            }
            None if self.end == 0 => Ok(None),
            None => {
                while self.input.peek() == Some(b'N') {
                    self.input.at += 1;
                }
                match self.input.peek() {
                    Some(end) if end == self.end => {
                        self.input.at += 1;
                        self.end = 0;
                        Ok(None)
                    }
                    _ if self.end == b'}' => Ok(Some(0)),
                    _ => self.input.marker().map(Some),
                }
            }
        }
    }
}

impl<'de> SeqAccess<'de> for &mut Parts<'_, 'de> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some(marker) = self.next()? else {
            return Ok(None);
        };
        let input = &mut *self.input;
        seed.deserialize(Item { input, marker }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        self.left
    }
}

impl<'de> MapAccess<'de> for &mut Parts<'_, 'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        if self.next()?.is_none() {
            return Ok(None);
        }
        let key = self.input.text()?;
        seed.deserialize(StrDeserializer::<Fault>::new(key))
            .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let marker = match self.element {
            Some(element) => element,
            None => self.input.marker()?,
        };
        let input = &mut *self.input;
        seed.deserialize(Item { input, marker })
    }
}

/// Writes what XGBoost reads: numbers in typed lists, all lengths as `i64`.
#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn length(&mut self, length: usize) {
        self.bytes.push(b'L');
        self.bytes.extend((length as i64).to_be_bytes());
    }

    pub(super) fn key(&mut self, key: &str) {
        self.length(key.len());
        self.bytes.extend(key.as_bytes());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes.push(b'S');
        self.key(text);
    }

    pub(super) fn int(&mut self, number: i64) {
        self.bytes.push(b'L');
        self.bytes.extend(number.to_be_bytes());
    }

    fn typed(&mut self, marker: u8, length: usize) {
        self.bytes.extend([b'[', b'$', marker, b'#']);
        self.length(length);
    }

    pub(super) fn bytes(&mut self, numbers: &[u8]) {
        self.typed(b'U', numbers.len());
        self.bytes.extend(numbers);
    }

    pub(super) fn ints(&mut self, numbers: &[i32]) {
        self.typed(b'l', numbers.len());
        self.bytes
            .extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    }

    pub(super) fn longs(&mut self) {
        self.typed(b'L', 0);
    }

    pub(super) fn floats(&mut self, numbers: &[f32]) {
        self.typed(b'd', numbers.len());
        self.bytes
            .extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    }

    /// A list of `length` values that follow.
    pub(super) fn list(&mut self, length: usize) {
        self.bytes.extend(b"[#");
        self.length(length);
    }

    /// An object of keys and values that follow, up to [`close`](Self::close).
    pub(super) fn open(&mut self) {
        self.bytes.push(b'{');
    }

    pub(super) fn close(&mut self) {
        self.bytes.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(bytes: &[u8]) -> Result<Value, Fault> {
        from_slice(bytes)
    }

    #[test]
    fn every_type_is_read() {
        for (bytes, expected) in [
            (&b"Z"[..], json!(null)),
            (b"T", json!(true)),
            (b"NNF", json!(false)),
            (b"i\xff", json!(-1)),
            (b"U\xff", json!(255)),
            (b"I\x01\x00", json!(256)),
            (b"l\x80\x00\x00\x00", json!(i32::MIN)),
            (b"L\x80\x00\x00\x00\x00\x00\x00\x00", json!(i64::MIN)),
            (b"d\x3f\x80\x00\x00", json!(1.0)),
            (b"D\x3f\xf8\x00\x00\x00\x00\x00\x00", json!(1.5)),
            (b"Cx", json!("x")),
            (b"SU\x03a\xc3\xa4", json!("a\u{e4}")),
            (b"[]", json!([])),
            (b"[i\x01NTN]", json!([1, true])),
            (b"[#i\x02ZT", json!([null, true])),
            (b"[$U#i\x02\x07\x08", json!([7, 8])),
            (b"[$d#L\0\0\0\0\0\0\0\x01\x3f\x80\0\0", json!([1.0])),
            (b"[$[#i\x02]$i#i\x01\x05", json!([[], [5]])),
            (b"{}", json!({})),
            (b"{i\x01ai\x05NU\x01b{}}", json!({"a": 5, "b": {}})),
            (b"{#i\x01i\x01a[]", json!({"a": []})),
            (b"{$i#i\x02i\x01a\x01i\x01b\x02", json!({"a": 1, "b": 2})),
        ] {
            let got = read(bytes);
            assert_eq!(got.as_ref().ok(), Some(&expected), "{bytes:?}: {got:?}");
            for cut in 0..bytes.len() {
                assert!(read(&bytes[..cut]).is_err(), "{bytes:?} cut at {cut}");
            }
            assert!(read(&[bytes, b"Z"].concat()).is_err(), "{bytes:?} and more");
        }
    }

    #[test]
    fn hostile_bytes_are_refused_before_memory_is_taken() {
        let deep = [b'['; 100_000];
        for bytes in [
            &b""[..],
            b"X",
            b"H",
            b"C\xff",
            b"SU\x01\xff",
            b"Si\xff",
            b"SL\x7f\xff\xff\xff\xff\xff\xff\xffabc",
            b"[#i\xff",
            b"[#L\x7f\xff\xff\xff\xff\xff\xff\xff",
            b"[$Z#L\0\0\0\x01\0\0\0\0",
            b"[$T#L\0\0\0\x01\0\0\0\0",
            b"[$N#L\0\0\0\x01\0\0\0\0",
            b"[$D#L\x20\0\0\0\0\0\0\x01abcdefgh",
            b"[$U\x01\x02]",
            b"[$",
            b"{$Z#l\x7f\xff\xff\xff",
            b"[#d\0\0\0\0",
            &deep,
            b"]",
        ] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
        assert!(from_slice::<[u8; 1]>(b"[$U#i\x02\x07\x08").is_err());
    }
}
