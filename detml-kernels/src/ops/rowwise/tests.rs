use super::gpu::{Outputs, run_as, ways};
use super::*;
use crate::device::Device;
use crate::ieee::{Ieee as I, Path};
use crate::suite::{any_bits, assert_bits, backend_suite, for_all, hash, moderate};

backend_suite! {
    rows_of_every_length,
    long_rows,
    every_way,
    any_shape,
    gradients_of_weights,
    special_rows,
    nothing,
    the_wrong,
    n1_large_means,
    accuracy,
}

/// An operation's operands, made for a matrix.
struct Case {
    op: Op,
    rows: usize,
    columns: usize,
    x: Vec<f32>,
    y: Vec<f32>,
    weight: Option<Vec<f32>>,
    bias: Option<Vec<f32>>,
    mean: Vec<f32>,
    scale: Vec<f32>,
    eps: f32,
    ddof: u32,
}

impl Case {
    fn new(op: Op, [rows, columns]: [usize; 2], seed: u32, wild: bool) -> Self {
        let numbers = if wild { any_bits } else { moderate };
        let given = |bit: u32| hash(seed, 99) >> bit & 1 == 1;
        let n = rows * columns;
        Self {
            op,
            rows,
            columns,
            x: numbers(seed, n),
            y: numbers(seed ^ 1, n),
            weight: (op.weighted() && given(0)).then(|| numbers(seed ^ 2, columns)),
            bias: (op == Op::LayerNorm && given(1)).then(|| numbers(seed ^ 3, columns)),
            mean: moderate(seed ^ 4, rows),
            scale: moderate(seed ^ 5, rows),
            eps: if given(2) { 1e-5 } else { 0.0 },
            ddof: u32::from(given(3)),
        }
    }

    /// Results, means and scales as the contract has them.
    fn expected(&self) -> [Vec<f32>; 3] {
        let (weight, bias) = (self.weight.as_deref(), self.bias.as_deref());
        let mut all = [const { Vec::new() }; 3];
        for r in 0..self.rows {
            let x = &self.x[r * self.columns..(r + 1) * self.columns];
            let dy = &self.y[r * self.columns..(r + 1) * self.columns];
            let (mean, scale) = (self.mean[r], self.scale[r]);
            let y = match self.op {
                Op::Moments => {
                    let (mean, variance) = plain::moments(x, self.ddof);
                    all[1].push(I::PLAIN.canonical(mean));
                    all[2].push(variance);
                    Vec::new()
                }
                Op::Softmax => plain::softmax(x),
                Op::LogSoftmax => plain::log_softmax(x),
                Op::SoftmaxBackward => plain::softmax_backward(x, dy),
                Op::LogSoftmaxBackward => plain::log_softmax_backward(x, dy),
                Op::LayerNorm => {
                    let (y, mean, scale) = plain::layer_norm(x, weight, bias, self.eps);
                    all[1].push(mean);
                    all[2].push(scale);
                    y
                }
                Op::RmsNorm => {
                    let (y, scale) = plain::rms_norm(x, weight, self.eps);
                    all[2].push(scale);
                    y
                }
                Op::LayerNormBackward => plain::norm_backward(x, dy, weight, Some(mean), scale),
                Op::RmsNormBackward => plain::norm_backward(x, dy, weight, None, scale),
            };
            all[0].extend(y);
        }
        all
    }

    /// Those of a device; `run` does the work.
    fn got(
        &self,
        device: &Device,
        run: impl Fn(&Job<'_>, Outputs<'_>) -> Result<()>,
    ) -> [Vec<f32>; 3] {
        let upload = |x: &[f32]| device.upload(x).unwrap();
        let (x, y) = (upload(&self.x), upload(&self.y));
        let weight = self.weight.as_deref().map(upload);
        let bias = self.bias.as_deref().map(upload);
        let (mean, scale) = (upload(&self.mean), upload(&self.scale));
        let job = Job {
            op: self.op,
            x: &x,
            y: self.op.backward().then_some(&y),
            weight: weight.as_ref(),
            bias: bias.as_ref(),
            mean: (self.op.first() == terms::First::Given).then_some(&mean),
            scale: self.op.scaled().then_some(&scale),
            rows: self.rows,
            columns: self.columns,
            eps: self.eps,
            ddof: self.ddof,
        };
        let stale = |n: usize| upload(&vec![7.0; n]);
        let mut out = stale(if self.op.maps() { x.len() } else { 0 });
        let with_mean = self.op.first() == terms::First::Mean;
        let mut first = with_mean.then(|| stale(self.rows));
        let mut scale = self.op.stored().then(|| stale(self.rows));
        let to = Outputs {
            out: &mut out,
            first: first.as_mut(),
            scale: scale.as_mut(),
        };
        run(&job, to).unwrap();
        let read = |x: Option<&Buffer<f32>>| x.map_or(Vec::new(), |x| device.read(x).unwrap());
        [read(Some(&out)), read(first.as_ref()), read(scale.as_ref())]
    }

    #[track_caller]
    fn check_by(
        &self,
        device: &Device,
        what: &str,
        run: impl Fn(&Job<'_>, Outputs<'_>) -> Result<()>,
    ) {
        let what = format!("{:?} {} x {} {what}", self.op, self.rows, self.columns);
        let [got, expected] = [self.got(device, run), self.expected()];
        for ((got, expected), part) in got.iter().zip(&expected).zip(["", "mean", "scale"]) {
            assert_bits(&format!("{what} {part}"), got, expected);
        }
    }

    #[track_caller]
    fn check(&self, device: &Device) {
        self.check_by(device, "", |job, to| job.run(to));
    }
}

/// Whether fused multiply-add is long integer code: kernels that hold many take seconds to compile.
fn slow(device: &Device) -> bool {
    !device.is_cpu() && device.profile().unwrap().fma != Path::Native
}

fn rows_of_every_length(device: &Device) {
    let all = [
        1, 2, 3, 5, 8, 16, 17, 28, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 200, 256, 257, 400,
        768, 1000, 1024, 1025, 1500,
    ];
    let few = [100];
    let lengths = if slow(device) { &few[..] } else { &all[..] };
    for op in Op::ALL {
        for &columns in lengths {
            if slow(device) {
                Case::new(op, [67, columns], 3, false).check(device);
                continue;
            }
            Case::new(op, [9, columns], columns as u32, false).check(device);
            Case::new(op, [67, columns], columns as u32 + 1, columns % 2 == 0).check(device);
        }
    }
}

fn long_rows(device: &Device) {
    let all = [4095, 4096, 4097, 8192, 9000, 17_000, 33_000, 50_257];
    let lengths = if slow(device) { &all[2..5] } else { &all[..] };
    for op in Op::ALL {
        for &columns in lengths {
            if slow(device) && (columns != 9000 || op != Op::LayerNorm) {
                continue;
            }
            Case::new(op, [3, columns], columns as u32, false).check(device);
        }
    }
    if !slow(device) {
        Case::new(Op::Softmax, [1, 1_100_000], 3, false).check(device);
    }
}

/// Every schedule gives the same bits, also where it is not the one that is chosen.
fn every_way(device: &Device) {
    if device.is_cpu() {
        return;
    }
    for op in Op::ALL {
        for columns in [20, 32, 300, 4096, 4500, 9001, 50_257] {
            if slow(device) && (columns != 20 || op != Op::SoftmaxBackward) {
                continue;
            }
            let case = Case::new(op, [5, columns], columns as u32, false);
            let given = [case.weight.is_some(), case.bias.is_some()];
            let ways = ways(device, op, given, columns).unwrap();
            assert!(ways.len() > 1);
            for way in ways {
                case.check_by(device, &format!("{way:?}"), |job, to| run_as(way, job, to));
            }
        }
    }
}

fn any_shape(device: &Device) {
    let draws = (
        0..Op::ALL.len(),
        1..40usize,
        1..700usize,
        0..u32::MAX,
        0..2u32,
    );
    let slow = slow(device);
    for_all(
        device,
        [200, 60],
        draws,
        |(op, rows, columns, seed, wild)| {
            let (op, columns) = if slow {
                (Op::SoftmaxBackward, 33 + columns % 224)
            } else {
                (Op::ALL[op], columns)
            };
            Case::new(op, [rows, columns], seed, wild == 1).check(device);
        },
    );
}

fn gradients_of_weights(device: &Device) {
    for (rows, columns) in [(1, 1), (3, 70), (130, 33), (257, 5), (5000, 3), (8193, 64)] {
        let n = rows * columns;
        for wild in [false, true] {
            let numbers = if wild { any_bits } else { moderate };
            let (x, dy) = (numbers(7, n), numbers(8, n));
            let (mean, scale) = (numbers(9, rows), numbers(10, rows));
            let upload = |x: &[f32]| device.upload(x).unwrap();
            let norm = Normalized {
                out: upload(&[]),
                mean: Some(upload(&mean)),
                scale: upload(&scale),
            };
            let shape = [rows, columns];
            let (bx, bdy) = (upload(&x), upload(&dy));
            let (w, b) = layer_norm_parameters(&bx, &bdy, shape, &norm).unwrap();
            let rms = rms_norm_parameters(&bx, &bdy, shape, &norm).unwrap();
            let column = |x: &[f32], c: usize| -> Vec<f32> {
                x.iter().skip(c).step_by(columns).copied().collect()
            };
            let mut expected = [const { Vec::new() }; 3];
            for c in 0..columns {
                let (x, dy) = (column(&x, c), column(&dy, c));
                let [w, b] = plain::parameters(&x, &dy, Some(&mean), &scale);
                expected[0].push(w);
                expected[1].push(b);
                expected[2].push(plain::parameters(&x, &dy, None, &scale)[0]);
            }
            for (got, expected) in [w, b, rms].iter().zip(&expected) {
                assert_bits(&format!("{shape:?}"), &device.read(got).unwrap(), expected);
            }
        }
    }
}

fn special_rows(device: &Device) {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let rows = [
        [1.0, 1.0, -inf, -inf],
        [-inf, -inf, -inf, -inf],
        [0.0, inf, 0.0, 0.0],
        [0.0, 1.0, nan, 0.0],
        [-0.0, 0.0, -0.0, 0.0],
        [-200.0, 0.0, -200.0, -inf],
        [f32::MAX, f32::MAX, f32::MIN, 0.0],
    ];
    let x = device.upload(&rows.concat()).unwrap();
    let shape = [rows.len(), 4];
    let bits = |x: &Buffer<f32>| -> Vec<u32> {
        device
            .read(x)
            .unwrap()
            .iter()
            .map(|x| x.to_bits())
            .collect()
    };
    let c = 0x7fc0_0000;
    let (half, quarter, one) = (0x3f00_0000, 0x3e80_0000, 0x3f80_0000);
    assert_eq!(
        bits(&softmax(&x, shape).unwrap()),
        [
            [half, half, 0, 0],
            [c; 4],
            [c; 4],
            [c; 4],
            [quarter; 4],
            [0, one, 0, 0],
            [half, half, 0, 0],
        ]
        .concat()
    );
    let log = device.read(&log_softmax(&x, shape).unwrap()).unwrap();
    assert_eq!(log[2..4], [-inf; 2]);
    assert!(log[4..16].iter().all(|x| x.to_bits() == c));
    assert_eq!(log[20..24], [-200.0, 0.0, -200.0, -inf]);
    // Equal elements.
    let x = device.upload(&[3.0f32; 8]).unwrap();
    let zeros = layer_norm(&x, [2, 4], None, None, 1e-5).unwrap();
    assert_eq!(bits(&zeros.out), [0; 8]);
    let none = layer_norm(&x, [2, 4], None, None, 0.0).unwrap();
    assert_eq!(bits(&none.out), [c; 8]);
    assert_eq!(device.read(&none.scale).unwrap(), [inf; 2]);
    // An infinity.
    let x = device.upload(&[inf, 1.0, -1.0]).unwrap();
    let norm = rms_norm(&x, [1, 3], None, 0.0).unwrap();
    assert_eq!(bits(&norm.out), [c, 0, 0x8000_0000]);
    let norm = layer_norm(&x, [1, 3], None, None, 0.0).unwrap();
    assert_eq!(bits(&norm.out), [c; 3]);
}

fn nothing(device: &Device) {
    let x = device.upload::<f32>(&[]).unwrap();
    for shape in [[0, 0], [3, 0], [0, 3]] {
        assert!(softmax(&x, shape).unwrap().is_empty());
        assert!(log_softmax_backward(&x, &x, shape).unwrap().is_empty());
        let norm = layer_norm(&x, shape, None, None, 0.0).unwrap();
        let scale = device.read(&norm.scale).unwrap();
        assert_eq!(scale.len(), shape[0]);
        assert!(scale.iter().all(|x| x.to_bits() == 0x7fc0_0000));
        let dx = layer_norm_backward(&x, &x, shape, None, &norm).unwrap();
        assert!(dx.is_empty());
        let (w, b) = layer_norm_parameters(&x, &x, shape, &norm).unwrap();
        for x in [w, b] {
            let zeros = device.read(&x).unwrap();
            assert_eq!(zeros.len(), shape[1]);
            assert!(zeros.iter().all(|x| x.to_bits() == 0));
        }
    }
}

fn the_wrong(device: &Device) {
    let x = device.upload(&[1.0f32; 6]).unwrap();
    let short = device.upload(&[1.0f32; 2]).unwrap();
    let shape = [2, 3];
    let norm = layer_norm(&x, shape, None, None, 0.0).unwrap();
    let rms = rms_norm(&x, shape, None, 0.0).unwrap();
    for error in [
        softmax(&x, [2, 4]).unwrap_err(),
        softmax(&x, [usize::MAX, 2]).unwrap_err(),
        softmax_backward(&x, &short, shape).unwrap_err(),
        layer_norm(&x, shape, Some(&short), None, 0.0).unwrap_err(),
        layer_norm(&x, shape, None, Some(&short), 0.0).unwrap_err(),
        layer_norm_backward(&x, &x, [3, 2], None, &norm).unwrap_err(),
        rms_norm_parameters(&x, &x, [3, 2], &rms).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    }
    for error in [
        layer_norm(&x, shape, None, None, -1.0).unwrap_err(),
        rms_norm(&x, shape, None, f32::NAN).unwrap_err(),
        layer_norm_backward(&x, &x, shape, None, &rms).unwrap_err(),
    ] {
        assert!(matches!(error, Error::InvalidParameter { .. }), "{error}");
    }
}

/// Case N1: rows whose mean is large beside their spread, against binary64.
fn n1_large_means(device: &Device) {
    let n = 256;
    let mut x = Vec::new();
    for mean in [100.0f64, 1e3, 1e4, 8e4] {
        x.extend((0..n).map(|i| (mean + 1e-3 * f64::from(i)) as f32));
    }
    let b = device.upload(&x).unwrap();
    let norm = layer_norm(&b, [4, 256], None, None, 0.0).unwrap();
    let y = device.read(&norm.out).unwrap();
    for (x, y) in x.chunks(256).zip(y.chunks(256)) {
        let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let mean = x.iter().sum::<f64>() / 256.0;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 256.0;
        // The mean's rounding shifts every result alike.
        let bound = 3e-6 + mean * 6e-8 / variance.sqrt();
        for (x, &y) in x.iter().zip(y) {
            let exact = (x - mean) / variance.sqrt();
            assert!((f64::from(y) - exact).abs() <= bound, "{y} for {exact}");
        }
    }
}

/// Against binary64, by `scripts/rowwise.py`: name, columns, place, result, and the row's largest
/// result, of which errors are fractions.
fn accuracy(device: &Device) {
    if slow(device) {
        return;
    }
    let mut worst = std::collections::BTreeMap::new();
    for columns in [10, 300, 5000] {
        let shape = [2, columns];
        let numbers = |k: u32, n: usize| {
            let x = moderate(columns as u32 + k, n);
            device.upload(&x).unwrap()
        };
        let (x, dy) = (numbers(0, 2 * columns), numbers(1, 2 * columns));
        let (w, b) = (numbers(2, columns), numbers(3, columns));
        let (w, b) = (Some(&w), Some(&b));
        let soft = softmax(&x, shape).unwrap();
        let log = log_softmax(&x, shape).unwrap();
        let norm = layer_norm(&x, shape, w, b, 1e-5).unwrap();
        let rms = rms_norm(&x, shape, w, 1e-5).unwrap();
        let results = [
            ("softmax_backward", softmax_backward(&soft, &dy, shape)),
            (
                "log_softmax_backward",
                log_softmax_backward(&log, &dy, shape),
            ),
            (
                "layer_norm_backward",
                layer_norm_backward(&x, &dy, shape, w, &norm),
            ),
            (
                "rms_norm_backward",
                rms_norm_backward(&x, &dy, shape, w, &rms),
            ),
            ("softmax", Ok(soft)),
            ("log_softmax", Ok(log)),
            ("layer_norm", Ok(norm.out)),
            ("rms_norm", Ok(rms.out)),
        ];
        for (name, result) in results {
            let result = device.read(&result.unwrap()).unwrap();
            for line in include_str!("reference.tsv").lines() {
                let fields: Vec<&str> = line.split('\t').collect();
                if fields[0] != name || fields[1] != columns.to_string() {
                    continue;
                }
                let place: usize = fields[2].parse().unwrap();
                let [exact, largest] = [fields[3], fields[4]].map(|x| x.parse::<f64>().unwrap());
                let error = (f64::from(result[place]) - exact).abs() / largest;
                let (count, most) = worst.entry(name).or_insert((0, 0.0f64));
                *count += 1;
                *most = most.max(error);
            }
        }
    }
    assert_eq!(worst.len(), 8);
    for (name, (count, error)) in worst {
        println!("{name}: {error:.2e} of the row's largest result, {count} places");
        // Softmax and its gradient scale the rounding of `x - m` up by the argument.
        assert!(error <= 2e-6 && count >= 12, "{name}: {error:e}");
    }
}

/// Sabotage: another order of the sum, another maximum and an uncorrected variance show.
#[test]
fn wrong_orders_show() {
    let device = Device::cpu();
    let n = 5000;
    let mut seen = [0; 3];
    for seed in 0..20 {
        let x = moderate(seed, n);
        let b = device.upload(&x).unwrap();
        let right = device.read(&softmax(&b, [1, n]).unwrap()).unwrap();
        let m = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let with = |m: f32, chain: bool| -> Vec<f32> {
            let i = &crate::ieee::Ieee::PLAIN;
            let e: Vec<f32> = x.iter().map(|x| crate::math::exp(i, x - m)).collect();
            let s = if chain {
                e.iter().sum()
            } else {
                plain::sum(n, |s, i| s + e[i])
            };
            e.iter().map(|e| e * (1.0 / s)).collect()
        };
        assert_eq!(with(m, false), right);
        seen[0] += u32::from(with(m, true) != right);
        seen[1] += u32::from(with(m + 0.1, false) != right);
        let norm = layer_norm(&b, [1, n], None, None, 0.0).unwrap();
        let mean = device.read(norm.mean.as_ref().unwrap()).unwrap()[0];
        let squares = plain::sum(n, |s, i| (x[i] - mean).mul_add(x[i] - mean, s));
        let scale = 1.0 / (squares / n as f32).sqrt();
        seen[2] += u32::from(scale != device.read(&norm.scale).unwrap()[0]);
    }
    assert!(seen[0] >= 5 && seen[1] >= 5, "{seen:?}");
    // The correction of a small mean is small: it shows where the mean is large.
    let x: Vec<f32> = (0..256).map(|i| 8e4 + 1e-3 * i as f32).collect();
    let b = device.upload(&x).unwrap();
    let norm = layer_norm(&b, [1, 256], None, None, 0.0).unwrap();
    let mean = device.read(norm.mean.as_ref().unwrap()).unwrap()[0];
    let squares = plain::sum(256, |s, i| (x[i] - mean).mul_add(x[i] - mean, s));
    let scale = 1.0 / (squares / 256.0).sqrt();
    assert_ne!(device.read(&norm.scale).unwrap()[0], scale);
}
