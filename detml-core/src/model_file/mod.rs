//! Model files: the safetensors format, read strictly, with a fixed JSON header.

mod json;
mod safetensors;

use std::collections::BTreeMap;
use std::path::Path;

use ndarray::{Array, ArrayBase, Data, Dimension, IxDyn};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use safetensors::{DType, Safetensors, SafetensorsHeader, Tensor, TensorInfo};

use crate::hash::HashScalar;
use crate::{BitHash, Error, Result};

/// The numerical contract that fitted today's models (N16).
pub const NUMERIC_PROFILE: &str = "detml.f32.v1";

const FORMAT: &str = "detml";
const VERSION: &str = "1";

/// A fitted model as a file: the estimator's name, its parameters and its arrays.
///
/// The file is a safetensors file, so other tools can look into it. Its metadata holds
/// `format` (`detml`), `version` (`1`), `profile` ([`NUMERIC_PROFILE`]), `estimator` and
/// `params` (JSON with sorted keys). Equal models give equal bytes.
///
/// ```
/// use detml_core::ModelFile;
/// use ndarray::{Array1, array};
///
/// let file = ModelFile::new("Ridge")
///     .with_param("alpha", 0.5)
///     .with_array("weights", &array![1.0f32, -2.0]);
/// let bytes = file.to_bytes();
///
/// let read = ModelFile::from_bytes(&bytes)?;
/// read.expect_estimator("Ridge")?;
/// let alpha: f64 = read.param("alpha")?;
/// let weights: Array1<f32> = read.array("weights")?;
/// assert_eq!((alpha, weights), (0.5, array![1.0, -2.0]));
/// assert_eq!(read.to_bytes(), bytes);
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ModelFile {
    origin: String,
    estimator: String,
    params: BTreeMap<String, Value>,
    tensors: BTreeMap<String, Tensor>,
}

/// Equal content; where the files came from doesn't count.
impl PartialEq for ModelFile {
    fn eq(&self, other: &Self) -> bool {
        self.estimator == other.estimator
            && self.params == other.params
            && self.tensors == other.tensors
    }
}

/// An element of a model's arrays: `u8`, `i32`, `u32`, `u64`, `f32` or `f64`.
pub trait TensorElement: HashScalar {
    #[doc(hidden)]
    const DTYPE: DType;
    #[doc(hidden)]
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! element {
    ($($number:ty: $dtype:ident),*) => {$(
        impl TensorElement for $number {
            const DTYPE: DType = DType::$dtype;
            fn read(bytes: &[u8]) -> Self {
                // Callers cut the bytes to this width.
                bytes.try_into().map_or_else(|_| Default::default(), Self::from_le_bytes)
            }
        }
    )*};
}
element!(u8: U8, i32: I32, u32: U32, u64: U64, f32: F32, f64: F64);

impl ModelFile {
    /// A file for a model of this estimator, without parameters or arrays.
    #[must_use]
    pub fn new(estimator: impl Into<String>) -> Self {
        Self {
            origin: "<memory>".into(),
            estimator: estimator.into(),
            params: BTreeMap::new(),
            tensors: BTreeMap::new(),
        }
    }

    /// Sets a parameter. A NaN or an infinity isn't JSON and would read as null: store such
    /// numbers in arrays.
    #[must_use]
    pub fn with_param(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.params.insert(name.into(), value.into());
        self
    }

    /// Adds an array, bit by bit.
    #[must_use]
    pub fn with_array<S, D>(mut self, name: impl Into<String>, array: &ArrayBase<S, D>) -> Self
    where
        S: Data<Elem: TensorElement>,
        D: Dimension,
    {
        let width = S::Elem::WIDTH;
        let mut data = vec![0; array.len() * width];
        for (bytes, &value) in data.chunks_exact_mut(width).zip(array) {
            value.write(bytes);
        }
        if let Ok(tensor) = Tensor::new(S::Elem::DTYPE, array.shape().to_vec(), data) {
            self.tensors.insert(name.into(), tensor);
        }
        self
    }

    /// Adds a vector, bit by bit.
    #[must_use]
    pub fn with_slice<T: TensorElement>(self, name: impl Into<String>, values: &[T]) -> Self {
        self.with_array(name, &ndarray::ArrayView1::from(values))
    }

    /// Puts another model inside this one, under a name without `/`.
    #[must_use]
    pub fn with_part(mut self, name: &str, part: &Self) -> Self {
        let params: serde_json::Map<String, Value> = part.params.clone().into_iter().collect();
        let mut entry = serde_json::Map::new();
        entry.insert("estimator".into(), part.estimator.clone().into());
        entry.insert("params".into(), params.into());
        self.params.insert(format!("{name}/"), entry.into());
        for (inner, tensor) in &part.tensors {
            self.tensors
                .insert(format!("{name}/{inner}"), tensor.clone());
        }
        self
    }

    /// Takes out a model that [`with_part`](Self::with_part) put in.
    ///
    /// # Errors
    /// [`Error::ModelFile`] if there is none.
    pub fn part(&self, name: &str) -> Result<Self> {
        let refuse = || self.refuse(format!("no part `{name}`"));
        let entry = self.params.get(&format!("{name}/")).ok_or_else(refuse)?;
        let estimator = entry["estimator"].as_str().ok_or_else(refuse)?;
        let params = entry["params"].as_object().ok_or_else(refuse)?;
        let prefix = format!("{name}/");
        Ok(Self {
            origin: format!("{}, part `{name}`", self.origin),
            estimator: estimator.into(),
            params: params.clone().into_iter().collect(),
            tensors: self
                .tensors
                .iter()
                .filter_map(|(key, tensor)| {
                    Some((key.strip_prefix(&prefix)?.to_owned(), tensor.clone()))
                })
                .collect(),
        })
    }

    /// The estimator's name.
    #[must_use]
    pub fn estimator(&self) -> &str {
        &self.estimator
    }

    /// Checks the estimator's name.
    ///
    /// # Errors
    /// [`Error::ModelFile`] if it is another.
    pub fn expect_estimator(&self, name: &str) -> Result<()> {
        if self.estimator == name {
            return Ok(());
        }
        Err(self.refuse(format!(
            "expected a model of `{name}`, got one of `{}`",
            self.estimator
        )))
    }

    /// A parameter.
    ///
    /// # Errors
    /// [`Error::ModelFile`] if it is missing or of another type.
    pub fn param<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let Some(value) = self.params.get(name) else {
            return Err(self.refuse(format!("parameter `{name}` is missing")));
        };
        T::deserialize(value)
            .map_err(|error| self.refuse(format!("parameter `{name}`: {error}, got {value}")))
    }

    /// An array, bit by bit.
    ///
    /// # Errors
    /// [`Error::ModelFile`] if it is missing, or of another type or number of axes.
    pub fn array<T: TensorElement, D: Dimension>(&self, name: &str) -> Result<Array<T, D>> {
        let Some(tensor) = self.tensors.get(name) else {
            return Err(self.refuse(format!("tensor `{name}` is missing")));
        };
        if tensor.dtype() != T::DTYPE {
            return Err(self.refuse(format!(
                "tensor `{name}`: expected {}, got {}",
                T::DTYPE,
                tensor.dtype()
            )));
        }
        let values: Vec<T> = tensor.bytes().chunks_exact(T::WIDTH).map(T::read).collect();
        let shape = tensor.shape();
        Array::from_shape_vec(IxDyn(shape), values)
            .and_then(Array::into_dimensionality)
            .map_err(|_| {
                let axes = D::NDIM.map_or("other".into(), |n| n.to_string());
                self.refuse(format!(
                    "tensor `{name}`: expected {axes} axes, got shape {shape:?}"
                ))
            })
    }

    /// A vector, bit by bit.
    ///
    /// # Errors
    /// As [`array`](Self::array).
    pub fn vector<T: TensorElement>(&self, name: &str) -> Result<Vec<T>> {
        let array: ndarray::Array1<T> = self.array(name)?;
        Ok(array.into_raw_vec_and_offset().0)
    }

    /// The tensors by name.
    #[must_use]
    pub fn tensors(&self) -> &BTreeMap<String, Tensor> {
        &self.tensors
    }

    /// [`Error::ModelFile`] about this file.
    #[must_use]
    pub fn refuse(&self, reason: impl Into<String>) -> Error {
        Error::model_file(&self.origin, reason)
    }

    /// The bytes of the file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let metadata = [
            ("estimator", self.estimator.clone()),
            ("format", FORMAT.into()),
            ("params", self.params_text()),
            ("profile", NUMERIC_PROFILE.into()),
            ("version", VERSION.into()),
        ];
        let content = Safetensors {
            metadata: metadata
                .into_iter()
                .map(|(key, text)| (key.to_owned(), text))
                .collect(),
            tensors: self.tensors.clone(),
        };
        content.to_bytes()
    }

    fn params_text(&self) -> String {
        let params: serde_json::Map<String, Value> = self.params.clone().into_iter().collect();
        let mut text = String::new();
        json::write(&params.into(), &mut text);
        text
    }

    /// The hash of the file's bytes.
    #[must_use]
    pub fn bit_hash(&self) -> BitHash {
        BitHash::of_bytes(&self.to_bytes())
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// [`Error::ModelFile`] for a broken safetensors file, other metadata than detml's, another
    /// version or numeric profile, or parameters written in another way than detml's.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::from_content(Safetensors::from_bytes(bytes)?, "<bytes>".into())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Io`], and as [`from_bytes`](Self::from_bytes).
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::from_content(Safetensors::load(path)?, path.display().to_string())
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        crate::files::write_atomic(path, &self.to_bytes())
    }

    fn from_content(mut content: Safetensors, origin: String) -> Result<Self> {
        let mut take = |key: &str, expected: Option<&str>| {
            let Some(text) = content.metadata.remove(key) else {
                return Err(Error::model_file(
                    &origin,
                    format!("not a model file of detml: no `{key}` in its metadata"),
                ));
            };
            match expected {
                Some(expected) if expected != text => Err(Error::model_file(
                    &origin,
                    format!(
                        "`{key}`: expected `{expected}`, got `{}`",
                        text.escape_debug()
                    ),
                )),
                _ => Ok(text),
            }
        };
        take("format", Some(FORMAT))?;
        take("version", Some(VERSION))?;
        take("profile", Some(NUMERIC_PROFILE))?;
        let estimator = take("estimator", None)?;
        let params = take("params", None)?;
        if let Some(key) = content.metadata.keys().next() {
            return Err(Error::model_file(
                &origin,
                format!("unknown metadata `{}`", key.escape_debug()),
            ));
        }
        let parsed: BTreeMap<String, Value> = serde_json::from_str(&params)
            .map_err(|error| Error::model_file(&origin, format!("`params`: {error}")))?;
        let file = Self {
            origin,
            estimator,
            params: parsed,
            tensors: content.tensors,
        };
        // A key given twice, say, would otherwise pass.
        if file.params_text() != params {
            return Err(file.refuse("`params` are not in the form that detml writes"));
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array1, Array2, array};
    use proptest::prelude::*;
    use serde_json::json;

    fn example() -> ModelFile {
        ModelFile::new("Ridge")
            .with_param("z", json!({"b": [1, -2, 0.1f32, 1e300], "a": null}))
            .with_param("a", true)
            .with_array("w", &array![[1.0f32, f32::NAN], [-0.0, 1e-45]])
            .with_slice("codes", &[1u32, u32::MAX])
    }

    #[test]
    fn the_bytes_are_fixed() {
        let bytes = example().to_bytes();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header = std::str::from_utf8(&bytes[8..8 + length]).unwrap();
        assert!(
            header.starts_with(
                r#"{"__metadata__":{"estimator":"Ridge","format":"detml","params":"{\"a\":true,\"z\":{\"a\":null,\"b\":[1,-2,0.10000000149011612,1000"#
            ),
            "{header}"
        );
        assert!(header.trim_end().ends_with(
            r#""profile":"detml.f32.v1","version":"1"},"codes":{"dtype":"U32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]}}"#
        ));
        assert_eq!(length % 8, 0);
        assert_eq!(
            example().bit_hash().as_bytes(),
            blake3::hash(&bytes).as_bytes()
        );
    }

    #[test]
    fn parts_come_back_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        example().save(&path).unwrap();
        let read = ModelFile::load(&path).unwrap();
        assert_eq!(read.to_bytes(), example().to_bytes());
        let w: Array2<f32> = read.array("w").unwrap();
        assert!(w[[0, 1]].is_nan());
        assert_eq!(w[[1, 0]].to_bits(), (-0.0f32).to_bits());
        assert_eq!(read.vector::<u32>("codes").unwrap(), [1, u32::MAX]);
        assert_eq!(
            read.param::<serde_json::Value>("z").unwrap()["b"][2],
            json!(0.1f32)
        );
    }

    #[test]
    fn a_transposed_array_is_stored_row_by_row() {
        let matrix = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
        let file = ModelFile::new("x").with_array("t", &matrix.t());
        assert_eq!(file.array::<f32, ndarray::Ix2>("t").unwrap(), matrix.t());
    }

    #[test]
    fn wrong_parts_are_named() {
        let file = example();
        for (error, part) in [
            (file.array::<f32, ndarray::Ix1>("v").err(), "`v` is missing"),
            (
                file.array::<f64, ndarray::Ix2>("w").err(),
                "expected F64, got F32",
            ),
            (
                file.array::<f32, ndarray::Ix1>("w").err(),
                "expected 1 axes, got shape [2, 2]",
            ),
            (file.param::<bool>("b").err(), "`b` is missing"),
            (file.param::<u32>("a").err(), "parameter `a`"),
            (
                file.expect_estimator("Lasso").err(),
                "`Lasso`, got one of `Ridge`",
            ),
            (file.part("scaler").err(), "no part `scaler`"),
        ] {
            let text = error.unwrap().to_string();
            assert!(text.contains(part), "{part:?} not in {text:?}");
        }
    }

    #[test]
    fn other_formats_versions_and_profiles_are_refused() {
        let content = Safetensors::from_bytes(&example().to_bytes()).unwrap();
        for (key, value, part) in [
            ("format", Some("pt"), "expected `detml`, got `pt`"),
            ("version", Some("2"), "expected `1`, got `2`"),
            ("profile", Some("detml.f32.v2"), "expected `detml.f32.v1`"),
            ("estimator", None, "no `estimator`"),
            ("params", Some("{"), "`params`"),
            ("params", Some("[]"), "`params`"),
            ("params", Some(r#"{"a":1,"a":1}"#), "not in the form"),
            ("params", Some(r#"{"a":1.00}"#), "not in the form"),
            ("extra", Some(""), "unknown metadata `extra`"),
        ] {
            let mut changed = content.clone();
            changed.metadata.remove(key);
            if let Some(value) = value {
                changed.metadata.insert(key.into(), value.into());
            }
            let text = ModelFile::from_bytes(&changed.to_bytes())
                .unwrap_err()
                .to_string();
            assert!(text.contains(part), "{part:?} not in {text:?}");
        }
    }

    proptest! {
        #[test]
        fn params_come_back_and_keep_their_text(
            numbers in prop::collection::vec(any::<f64>(), 0..5),
            integers in prop::collection::vec(any::<i64>(), 0..5),
            name in any::<String>(),
        ) {
            let file = ModelFile::new(name.clone())
                .with_param("numbers", numbers.clone())
                .with_param("integers", integers.clone())
                .with_param(name, u64::MAX);
            let read = ModelFile::from_bytes(&file.to_bytes()).unwrap();
            prop_assert_eq!(read.to_bytes(), file.to_bytes());
            prop_assert_eq!(read.param::<Vec<i64>>("integers").unwrap(), integers);
            if numbers.iter().all(|number| number.is_finite()) {
                let back: Vec<f64> = read.param("numbers").unwrap();
                prop_assert!(back.iter().zip(numbers).all(|(a, b)| a.to_bits() == b.to_bits()));
            }
        }

        #[test]
        fn changed_bytes_are_read_or_refused(at in 0usize..400, byte in any::<u8>()) {
            let mut bytes = example().to_bytes();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(read) = ModelFile::from_bytes(&bytes) {
                let _ = read.array::<f32, ndarray::Ix2>("w");
                let _ = read.part("z");
            }
        }
    }

    #[test]
    fn models_nest() {
        let outer = ModelFile::new("Pipeline")
            .with_part("0", &example())
            .with_part("1", &ModelFile::new("Outer").with_part("0", &example()));
        let read = ModelFile::from_bytes(&outer.to_bytes()).unwrap();
        let inner = read.part("1").unwrap().part("0").unwrap();
        assert_eq!(inner.to_bytes(), example().to_bytes());
        let codes: Array1<u32> = read.part("0").unwrap().array("codes").unwrap();
        assert_eq!(codes, array![1, u32::MAX]);
    }
}
