//! What holds for any small table and any damaged model file.

use detml_core::{
    BitHashed, Error, IntoDesign, ModelFile, Persist, Predict, PredictProba, Safetensors, Seed,
    Tensor,
};
use detml_kernels::{Device, Simd};
use detml_trees::{GradientBoosting, GradientBoostingModel};
use ndarray::{Array1, Array2, Axis};
use proptest::prelude::*;
use std::sync::OnceLock;

/// A feature's value: few distinct ones, missing ones, infinities, any number.
fn cell() -> impl Strategy<Value = f32> {
    prop_oneof![
        3 => (-2i8..3).prop_map(f32::from),
        1 => Just(f32::NAN),
        1 => prop::sample::select(vec![-0.0, 0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MAX]),
        2 => any::<u32>().prop_map(f32::from_bits),
    ]
}

/// Rows of a few kinds, most of them several times; the last column is constant.
fn features() -> impl Strategy<Value = Array2<f32>> {
    (1usize..5, 1usize..9).prop_flat_map(|(columns, kinds)| {
        let kinds = prop::collection::vec(prop::collection::vec(cell(), columns), kinds);
        (kinds, cell()).prop_flat_map(|(kinds, constant)| {
            let rows = prop::collection::vec(0..kinds.len(), 1..40);
            rows.prop_map(move |rows| {
                let columns = kinds[0].len() + 1;
                Array2::from_shape_fn((rows.len(), columns), |(row, column)| {
                    kinds[rows[row]].get(column).copied().unwrap_or(constant)
                })
            })
        })
    })
}

#[derive(Clone, Debug)]
struct Case {
    x: Array2<f32>,
    /// Numbers to regress on; their parities are labels.
    y: Array1<f32>,
    weights: Option<Array1<f32>>,
    boosting: GradientBoosting,
}

fn case() -> impl Strategy<Value = Case> {
    let settings = (
        0u8..3,
        1usize..4,
        0u32..6,
        prop::sample::select(vec![2usize, 3, 7, 255]),
        prop::sample::select(vec![0.5f32, 1.0]),
        prop::sample::select(vec![0.4f32, 1.0]),
        any::<bool>(),
    );
    (features(), settings).prop_flat_map(|(x, settings)| {
        let rows = x.nrows();
        let (task, trees, depth, bins, subsample, colsample, penalty) = settings;
        let boosting = match task {
            0 => GradientBoosting::regressor(),
            _ => GradientBoosting::classifier(),
        };
        let boosting = boosting
            .n_trees(trees)
            .max_depth(depth)
            .max_bins(bins)
            .subsample(subsample)
            .colsample_bynode(colsample)
            .l1(if penalty { 0.25 } else { 0.0 })
            .l2(if penalty { 2.0 } else { 0.0 })
            .min_child_weight(if penalty { 0.5 } else { 0.0 })
            .seed(Seed(5));
        let y = match task {
            0 => prop::collection::vec(-1000i32..1000, rows)
                .prop_map(|y| y.into_iter().map(|y| y as f32 / 8.0).collect())
                .boxed(),
            1 => prop::collection::vec(0u8..2, rows)
                .prop_map(|y| y.into_iter().map(f32::from).collect())
                .boxed(),
            _ => prop::collection::vec(0u8..4, rows)
                .prop_map(|y| y.into_iter().map(f32::from).collect())
                .boxed(),
        };
        let weights = prop::option::of(prop::collection::vec(0u8..6, rows).prop_map(|w| {
            // One row has weight.
            let mut w: Array1<f32> = w.into_iter().map(|w| f32::from(w) * 0.5).collect();
            w[0] = 1.0;
            w
        }));
        (Just(x), y, weights, Just(boosting)).prop_map(|(x, y, weights, boosting)| Case {
            x,
            y,
            weights,
            boosting,
        })
    })
}

impl Case {
    fn fit_on(&self, device: &Device) -> GradientBoostingModel {
        self.fit_rows(device, &(0..self.x.nrows()).collect::<Vec<_>>())
    }

    fn fit_rows(&self, device: &Device, rows: &[usize]) -> GradientBoostingModel {
        let (x, y) = (self.x.select(Axis(0), rows), self.y.select(Axis(0), rows));
        let weights = self.weights.as_ref().map(|w| w.select(Axis(0), rows));
        let design = match &weights {
            None => (&x, &y).into_design(),
            Some(weights) => (&x, &y, weights).into_design(),
        };
        self.boosting.fit_on(device, &design.unwrap()).unwrap()
    }
}

fn bytes(model: &GradientBoostingModel) -> Vec<u8> {
    model.to_model_file().to_bytes()
}

fn read(bytes: &[u8]) -> Result<GradientBoostingModel, Error> {
    GradientBoostingModel::from_model_file(&ModelFile::from_bytes(bytes)?)
}

fn bits(values: &Array2<f32>) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// A level of the CPU with another number of threads.
fn in_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap();
    pool.install(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn levels_threads_and_files_give_the_same_model(case in case()) {
        let model = case.fit_on(&Device::cpu_with(Simd::Plain));
        let expected = bytes(&model);
        for simd in Simd::available() {
            let other = in_threads(3, || case.fit_on(&Device::cpu_with(simd)));
            prop_assert_eq!(bytes(&other), &expected[..], "{:?}", simd);
        }
        let again = read(&expected).unwrap();
        prop_assert_eq!(bytes(&again), &expected[..]);
        prop_assert_eq!(again.bit_hash(), model.bit_hash());
        let margins = model.predict_margin(case.x.view()).unwrap();
        prop_assert!(margins.iter().all(|m| m.is_finite()));
        prop_assert_eq!(bits(&again.predict_margin(case.x.view()).unwrap()), bits(&margins));
        prop_assert_eq!(again.predict(case.x.view()), model.predict(case.x.view()));
        if !model.classes().is_empty() {
            let p = model.predict_proba(case.x.view()).unwrap();
            for row in p.rows() {
                prop_assert!((row.sum() - 1.0).abs() < 1e-5);
            }
            prop_assert_eq!(bits(&again.predict_proba(case.x.view()).unwrap()), bits(&p));
        }
        // A row alone has the bits that it has among others (N7).
        for (row, whole) in case.x.axis_chunks_iter(Axis(0), 1).zip(margins.rows()) {
            let alone = model.predict_margin(row).unwrap();
            prop_assert_eq!(bits(&alone), whole.iter().map(|m| m.to_bits()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_order_of_rows_does_not_show(case in case(), seed in any::<u64>()) {
        let case = Case { boosting: case.boosting.clone().subsample(1.0), ..case };
        let draws = detml_core::Philox4x32::new(Seed(seed), 0);
        let order = draws.permutation(case.x.nrows()).unwrap();
        let order: Vec<usize> = order.into_iter().map(|row| row as usize).collect();
        let device = Device::cpu();
        prop_assert_eq!(
            bytes(&case.fit_rows(&device, &order)),
            bytes(&case.fit_on(&device))
        );
    }

    /// Targets, weights and base scores of any bits: a model or an error that says what is wrong.
    #[test]
    fn any_target_is_fitted_or_refused(
        x in features(),
        y in prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 40),
        w in prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 40),
        plain in any::<bool>(),
        base in prop::option::of(any::<u32>().prop_map(f32::from_bits)),
        rate in any::<u32>().prop_map(f32::from_bits),
    ) {
        let rows = x.nrows();
        let y: Array1<f32> = y.into_iter().take(rows).collect();
        let w: Array1<f32> = w.into_iter().take(rows).map(f32::abs).collect();
        let mut boosting = GradientBoosting::regressor().n_trees(3).max_depth(3);
        if let Some(base) = base {
            boosting = boosting.base_score(base).learning_rate(rate);
        }
        let design = match plain {
            true => (&x, &y).into_design(),
            false => (&x, &y, &w).into_design(),
        };
        let model = design.and_then(|design| boosting.fit_on(&Device::cpu(), &design));
        match model {
            Ok(model) => {
                prop_assert!(y.iter().all(|y| y.is_finite()));
                prop_assert_eq!(bytes(&read(&bytes(&model)).unwrap()), bytes(&model));
                let _ = model.predict_margin(x.view()).unwrap();
            }
            Err(
                Error::NonFinite { .. }
                | Error::InvalidValue { .. }
                | Error::InvalidParameter { .. },
            ) => {}
            Err(other) => return Err(TestCaseError::fail(format!("{other:?}"))),
        }
    }
}

/// A small model of three classes with an eval set.
fn example() -> &'static (Array2<f32>, Vec<u8>) {
    static EXAMPLE: OnceLock<(Array2<f32>, Vec<u8>)> = OnceLock::new();
    EXAMPLE.get_or_init(|| {
        let x = Array2::from_shape_fn((60, 3), |(i, j)| (i * (j + 3) % 17) as f32);
        let y: Array1<f32> = (0..60).map(|i| (i % 3) as f32).collect();
        let boosting = GradientBoosting::classifier().n_trees(2).max_depth(3);
        let design = (&x, &y).into_design().unwrap();
        let model = boosting.eval_set("train", (&x, &y));
        let model = model.fit_on(&Device::cpu(), &design).unwrap();
        let bytes = bytes(&model);
        (x, bytes)
    })
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(usize, u8),
    Write(usize, Vec<u8>),
    Cut(usize),
    Drop(usize, usize),
    Repeat(usize, usize),
}

impl Damage {
    fn inflict(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let n = bytes.len();
        match self {
            Self::Flip(at, bit) => bytes[at % n] ^= 1 << (bit % 8),
            Self::Write(at, with) => {
                for (i, byte) in with.iter().enumerate() {
                    bytes[(at + i) % n] = *byte;
                }
            }
            Self::Cut(at) => bytes.truncate(at % n),
            Self::Drop(at, len) => {
                let at = at % n;
                bytes.drain(at..(at + len % 16).min(n));
            }
            Self::Repeat(at, len) => {
                let at = at % n;
                let part = bytes[at..(at + len % 16).min(n)].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    // Half of it goes into the header.
    let at = || prop_oneof![0usize..1500, any::<usize>().prop_map(|at| at % (1 << 20))];
    let texts = prop::sample::select(vec![
        "9",
        "-1",
        "1e9",
        "null",
        "[]",
        "{}",
        "\"",
        "18446744073709551615",
        "F64",
        "U8",
    ]);
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (at(), texts).prop_map(|(at, text)| Damage::Write(at, text.as_bytes().to_vec())),
        (at(), prop::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(at, with)| Damage::Write(at, with)),
        at().prop_map(Damage::Cut),
        (at(), any::<usize>()).prop_map(|(at, len)| Damage::Drop(at, len)),
        (at(), any::<usize>()).prop_map(|(at, len)| Damage::Repeat(at, len)),
    ]
}

/// Refused by name, or the very model of these bytes, which predicts.
fn refused_or_whole(damaged: &[u8]) -> Result<bool, TestCaseError> {
    match read(damaged) {
        Ok(model) => {
            prop_assert_eq!(&bytes(&model)[..], damaged);
            if model.n_features() == example().0.ncols() {
                model.predict_margin(example().0.view()).unwrap();
                let _ = model.predict(example().0.view());
            }
            Ok(true)
        }
        Err(Error::ModelFile { .. }) => Ok(false),
        Err(other) => Err(TestCaseError::fail(format!("{other:?}"))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Case F4 for any damage to the bytes.
    #[test]
    fn f4_damaged_bytes_are_refused_or_a_model(
        damages in prop::collection::vec(damage(), 1..4),
    ) {
        let mut bytes = example().1.clone();
        for damage in &damages {
            damage.inflict(&mut bytes);
        }
        refused_or_whole(&bytes)?;
    }

    /// Case F4 behind the format's own checks: a well-formed file with other numbers in it.
    #[test]
    fn f4_other_numbers_are_refused_or_a_model(
        tensor in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        value in prop_oneof![
            (0u32..40).prop_map(|v| v.to_le_bytes()),
            any::<[u8; 4]>(),
            any::<u32>().prop_map(|v| f32::from_bits(v).abs().to_le_bytes()),
            Just(f32::NAN.to_le_bytes()),
        ],
        length in prop::option::of(0usize..6),
    ) {
        let mut content = Safetensors::from_bytes(&example().1).unwrap();
        let names: Vec<String> = content.tensors.keys().cloned().collect();
        let name = tensor.get(&names).clone();
        let old = content.tensors[&name].clone();
        let (width, mut data) = (old.dtype().width(), old.bytes().to_vec());
        let mut shape = old.shape().to_vec();
        if let Some(length) = length {
            // Another number of elements.
            data.resize(length * width, 1);
            shape = vec![length];
        }
        if !data.is_empty() {
            let element = at.index(data.len() / width);
            for (to, byte) in data[element * width..].iter_mut().take(width).zip(value) {
                *to = byte;
            }
        }
        content.tensors.insert(name, Tensor::new(old.dtype(), shape, data).unwrap());
        refused_or_whole(&content.to_bytes())?;
    }
}

/// The checks above meet both outcomes.
#[test]
fn some_other_numbers_make_a_model() {
    let content = Safetensors::from_bytes(&example().1).unwrap();
    let with = |name: &str, value: f32| {
        let mut content = content.clone();
        let old = &content.tensors[name];
        let mut data = old.bytes().to_vec();
        data[..4].copy_from_slice(&value.to_le_bytes());
        let tensor = Tensor::new(old.dtype(), old.shape().to_vec(), data).unwrap();
        content.tensors.insert(name.into(), tensor);
        refused_or_whole(&content.to_bytes()).unwrap()
    };
    assert!(with("base", 0.125) && with("gain", 7.0));
    assert!(!with("base", f32::NAN) && !with("gain", -7.0));
}
