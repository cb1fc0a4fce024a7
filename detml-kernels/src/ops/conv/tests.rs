use super::*;
use crate::Simd;
use crate::suite::*;
use proptest::prelude::*;

backend_suite! {
    any_convolution,
    n7_dilation_groups_and_padding_beyond_the_input,
    panels_fold_in_order,
    strides_leave_elements_without_taps,
    empty_shapes,
    n11_special_values,
    n7_images_stand_alone,
    narrow_and_wide_groups,
    n8_gpu_schedules_do_not_show,
    sabotage_is_seen,
}

type Fill = fn(u32, usize) -> Vec<f32>;

/// A convolution as the tests make them.
#[derive(Clone, Debug)]
struct Case {
    conv: Conv2d,
    x: [usize; 4],
    w: [usize; 4],
    seed: u32,
    fill: Fill,
    panel: usize,
}

/// What a case gives.
#[derive(Clone, Debug, PartialEq)]
struct Results {
    forward: Vec<f32>,
    biased: Vec<f32>,
    data: Vec<f32>,
    weights: Vec<f32>,
}

impl Case {
    fn new(conv: Conv2d, x: [usize; 4], w: [usize; 4]) -> Self {
        Self {
            conv,
            x,
            w,
            seed: (x[1] * 31 + x[3] * 7 + w[0]) as u32,
            fill: moderate,
            panel: PANEL,
        }
    }

    fn shape(&self) -> Shape {
        self.conv.shape(self.x, self.w).expect("fits")
    }

    /// Images, weights, bias and a gradient.
    fn inputs(&self) -> [Vec<f32>; 4] {
        let size = |shape: [usize; 4]| shape.iter().product::<usize>();
        let y = self.shape().y;
        [size(self.x), size(self.w), self.w[0], size(y)]
            .into_iter()
            .enumerate()
            .map(|(i, n)| (self.fill)(self.seed.wrapping_mul(4).wrapping_add(i as u32), n))
            .collect::<Vec<_>>()
            .try_into()
            .expect("four")
    }

    fn plain(&self) -> Results {
        let [x, w, b, y] = self.inputs();
        let (s, panel) = (self.shape(), self.panel);
        Results {
            forward: plain::forward(&s, panel, &x, &w, None),
            biased: plain::forward(&s, panel, &x, &w, Some(&b)),
            data: plain::data_gradient(&s, panel, &y, &w),
            weights: plain::weight_gradient(&s, panel, &x, &y),
        }
    }

    fn run(&self, device: &Device, schedule: Schedule) -> Results {
        let s = self.shape();
        let [x, w, b, y] = self
            .inputs()
            .map(|data| device.upload(&data).expect("uploads"));
        let read = |buffer: Result<Buffer<f32>>| {
            let buffer = buffer.unwrap_or_else(|e| panic!("{device}: {self:?}: {e}"));
            device.read(&buffer).expect("reads")
        };
        let forward = [s.forward(self.panel)];
        Results {
            forward: read(run_sums(&forward, &x, &w, None, s.y, schedule)),
            biased: read(run_sums(&forward, &x, &w, Some(&b), s.y, schedule)),
            data: read(run_sums(
                &s.backward(self.panel),
                &y,
                &w,
                None,
                s.x,
                schedule,
            )),
            weights: read(run_weights(&forward[0], &x, &y, s.w, schedule)),
        }
    }

    #[track_caller]
    fn check_with(&self, device: &Device, schedule: Schedule, expected: &Results) {
        let got = self.run(device, schedule);
        let what = |part: &str| format!("{part} of {self:?} on {device}, {schedule:?}");
        assert_bits(&what("result"), &got.forward, &expected.forward);
        assert_bits(&what("result with bias"), &got.biased, &expected.biased);
        assert_bits(&what("data gradient"), &got.data, &expected.data);
        assert_bits(&what("weight gradient"), &got.weights, &expected.weights);
    }

    #[track_caller]
    fn check(&self, device: &Device) {
        self.check_with(device, Schedule::default(), &self.plain());
    }
}

fn same(padding: usize) -> [[usize; 2]; 2] {
    [[padding; 2]; 2]
}

/// Any numbers, now and then an infinity or a NaN.
fn spiced(seed: u32, n: usize) -> Vec<f32> {
    let mut x = moderate(seed, n);
    for (i, x) in x.iter_mut().enumerate() {
        let h = hash(!seed, i as u32);
        match h % 300 {
            0 => *x = f32::from_bits(h & 0x8000_0000),
            1 => *x = f32::from_bits(0x7f80_0000 | (h & 0x8000_0000)),
            2 => *x = f32::from_bits(0x7f80_0001 | h),
            3..6 => *x = f32::from_bits(h & 0x807f_ffff),
            6..9 => *x = f32::from_bits((h & 0x807f_ffff) | (60 << 23)),
            _ => {}
        }
    }
    x
}

prop_compose! {
    /// A convolution of at most `most` channels a group and side `side`.
    fn any_case(most: usize, side: usize)(
        images in 0..3usize,
        groups in 1..4usize,
        (rows, channels) in (0..most, 0..most),
        kernel in [1..5usize, 1..5],
        size in [0..side, 0..side],
        padding in [[0..5usize, 0..5], [0..5, 0..5]],
        stride in [1..5usize, 1..4],
        dilation in [1..4usize, 1..4],
        seed in 0..1_000_000u32,
        panel in prop_oneof![Just(PANEL), 1..20usize],
        fill in prop_oneof![Just(spiced as Fill), Just(moderate as Fill), Just(any_bits as Fill)],
    ) -> Case {
        let mut padding = padding;
        for axis in 0..2 {
            // Padding makes room for kernels that would not fit.
            let extent = (kernel[axis] - 1) * dilation[axis] + 1;
            let room = size[axis] + padding[axis][0] + padding[axis][1];
            padding[axis][seed as usize % 2] += extent.saturating_sub(room);
        }
        Case {
            conv: Conv2d { stride, padding, dilation, groups },
            x: [images, groups * channels, size[0], size[1]],
            w: [groups * rows, channels, kernel[0], kernel[1]],
            seed,
            fill,
            panel,
        }
    }
}

fn any_convolution(device: &Device) {
    let (most, side) = if device.is_cpu() { (9, 13) } else { (4, 7) };
    for_all(device, [60, 12], any_case(most, side), |case| {
        case.check(device)
    });
}

fn n7_dilation_groups_and_padding_beyond_the_input(device: &Device) {
    let conv = Conv2d::new;
    for case in [
        Case::new(conv().dilation([2, 3]), [2, 2, 7, 9], [3, 2, 3, 3]),
        Case::new(conv().groups(2), [1, 4, 5, 6], [6, 2, 3, 2]),
        Case::new(
            conv().padding([[6, 0], [1, 9]]).stride([2, 3]),
            [2, 1, 3, 4],
            [2, 1, 3, 2],
        ),
        // Nothing but padding under some outputs, and a kernel wider than the image.
        Case::new(conv().padding(same(5)), [1, 2, 2, 3], [2, 2, 2, 7]),
        Case::new(
            conv()
                .padding(same(2))
                .dilation([2, 2])
                .stride([2, 2])
                .groups(3),
            [1, 6, 8, 7],
            [6, 2, 3, 3],
        ),
    ] {
        case.check(device);
    }
}

fn panels_fold_in_order(device: &Device) {
    // Five panels of channels and taps; three of places.
    let forward = Case::new(Conv2d::new(), [1, 133, 4, 3], [2, 133, 3, 3]);
    let places = Case::new(Conv2d::new().padding(same(1)), [3, 1, 13, 17], [2, 1, 3, 3]);
    // The last panel is full.
    let full = Case::new(Conv2d::new(), [2, 128, 16, 17], [1, 128, 1, 2]);
    for case in [forward, places, full] {
        if device.is_cpu() || case.w[1] != 128 {
            case.check(device);
        }
    }
}

/// A stride beyond the kernel: elements that no output sees have sums of nothing.
fn strides_leave_elements_without_taps(device: &Device) {
    let conv = Conv2d::new().stride([3, 2]);
    let case = Case::new(conv, [1, 2, 8, 7], [3, 2, 1, 1]);
    case.check(device);
    let data = case.run(device, Schedule::default()).data;
    assert_bits("+0", &data[7..14], &[0.0; 7]);
    // Strides and dilations with and without a common factor.
    for (stride, dilation) in [(2, 4), (4, 2), (6, 4), (3, 2)] {
        let conv = Conv2d::new()
            .stride([stride, 1])
            .dilation([dilation, 1])
            .padding(same(3));
        Case::new(conv, [1, 1, 17, 3], [1, 1, 4, 2]).check(device);
    }
}

fn empty_shapes(device: &Device) {
    let conv = Conv2d::new().padding(same(1));
    for (x, w) in [
        ([0, 2, 4, 4], [3, 2, 3, 3]),
        ([2, 0, 4, 4], [3, 0, 3, 3]),
        ([2, 2, 4, 4], [0, 2, 3, 3]),
        ([2, 2, 0, 4], [3, 2, 2, 3]),
        ([0, 0, 0, 0], [0, 0, 2, 2]),
    ] {
        Case::new(conv, x, w).check(device);
    }
    // More places than a plane's slack, and no plane.
    let wide = Conv2d::new().padding([[3, 4], [9, 30]]);
    Case::new(wide, [1, 0, 5, 6], [1, 0, 1, 1]).check(device);
    // Sums of nothing are +0, and then the bias.
    let results = Case::new(conv, [2, 0, 4, 4], [3, 0, 3, 3]).run(device, Schedule::default());
    assert_bits("no channels", &results.forward, &[0.0; 2 * 3 * 16]);
    let results = Case::new(conv, [0, 2, 4, 4], [3, 2, 3, 3]).run(device, Schedule::default());
    assert_bits("no images", &results.weights, &[0.0; 3 * 2 * 9]);
}

fn n11_special_values(device: &Device) {
    let nan = f32::from_bits(0x7fc0_0000);
    let x = device.upload(&[1.0f32]).unwrap();
    let w = device.upload(&[f32::INFINITY, 2.0, 3.0]).unwrap();
    let conv = Conv2d::new().padding([[0, 0], [1, 1]]);
    let y = conv2d(&conv, &x, [1, 1, 1, 1], &w, [1, 1, 1, 3], None).unwrap();
    assert_bits("padding by infinity", &device.read(&y).unwrap(), &[nan]);
    // A product that underflows to -0 stays -0; the bias +0 makes it +0.
    let tiny = f32::from_bits(1);
    let (x, w) = (
        device.upload(&[tiny]).unwrap(),
        device.upload(&[-tiny]).unwrap(),
    );
    let one = [1; 4];
    let y = conv2d(&Conv2d::new(), &x, one, &w, one, None).unwrap();
    assert_bits("underflow", &device.read(&y).unwrap(), &[-0.0]);
    let bias = device.upload(&[0.0f32]).unwrap();
    let y = conv2d(&Conv2d::new(), &x, one, &w, one, Some(&bias)).unwrap();
    assert_bits("with bias", &device.read(&y).unwrap(), &[0.0]);
}

fn n7_images_stand_alone(device: &Device) {
    let images = if device.is_cpu() { 7 } else { 3 };
    let conv = Conv2d::new().padding(same(1)).stride([2, 1]);
    let (x_shape, w_shape) = ([images, 5, 9, 11], [6, 5, 3, 3]);
    let case = Case::new(conv, x_shape, w_shape);
    let [x, w, ..] = case.inputs();
    let w = device.upload(&w).unwrap();
    let each = x.len() / images;
    let run = |x: &[f32]| {
        let shape = [x.len() / each, 5, 9, 11];
        let x = device.upload(x).unwrap();
        device
            .read(&conv2d(&conv, &x, shape, &w, w_shape, None).unwrap())
            .unwrap()
    };
    let whole = run(&x);
    for batch in [1, 2] {
        let parts: Vec<f32> = x.chunks(batch * each).flat_map(run).collect();
        assert_bits("images apart", &parts, &whole);
    }
}

/// Depthwise convolutions and those around the switch of paths.
fn narrow_and_wide_groups(device: &Device) {
    let sizes: &[(usize, usize, usize)] = if device.is_cpu() {
        &[
            (35, 1, 1),
            (17, 2, 1),
            (3, 1, 3),
            (2, 5, 4),
            (1, 30, 37),
            (1, 1, 26),
        ]
    } else {
        &[(5, 1, 1), (2, 1, 2), (1, 3, 5)]
    };
    for &(groups, channels, rows) in sizes {
        for stride in [1, 2] {
            let conv = Conv2d::new()
                .groups(groups)
                .padding([[1, 1], [2, 0]])
                .stride([stride; 2]);
            let mut case = Case::new(
                conv,
                [2, groups * channels, 9, 21],
                [groups * rows, channels, 3, 3],
            );
            case.fill = spiced;
            case.check(device);
        }
    }
}

/// Products with tables, and direct sums with panels a few at a time.
fn n8_gpu_schedules_do_not_show(device: &Device) {
    if device.is_cpu() {
        return;
    }
    let native = device.profile().unwrap() == FloatProfile::NATIVE;
    let mut cases = vec![
        Case::new(
            Conv2d::new().padding(same(1)).stride([2, 3]),
            [2, 4, 7, 8],
            [5, 4, 3, 3],
        ),
        Case::new(
            Conv2d::new().dilation([2, 1]).groups(2),
            [1, 6, 6, 5],
            [4, 3, 2, 2],
        ),
        Case::new(Conv2d::new().stride([2, 2]), [2, 5, 5, 5], [4, 5, 1, 1]),
        // Groups of few rows, whose lines have several units and a rest.
        Case::new(
            Conv2d::new().padding(same(2)).stride([2, 2]),
            [2, 3, 5, 37],
            [6, 3, 5, 5],
        ),
        Case::new(
            Conv2d::new().padding(same(1)).dilation([1, 2]).groups(3),
            [1, 3, 4, 21],
            [6, 1, 3, 3],
        ),
    ];
    for case in &mut cases {
        // Short panels, so that small sums have several.
        (case.panel, case.fill) = (16, spiced);
    }
    if native {
        cases.push(Case::new(
            Conv2d::new().padding(same(1)),
            [3, 40, 28, 30],
            [50, 40, 3, 3],
        ));
    }
    for case in cases {
        let expected = case.plain();
        for (product, strips, split) in [
            (None, None, None),
            (Some(true), None, None),
            (Some(false), None, None),
            (Some(false), Some(false), Some(1)),
        ] {
            let schedule = Schedule {
                gpu: gpu::Plan {
                    product,
                    strips,
                    split,
                },
                ..Schedule::default()
            };
            case.check_with(device, schedule, &expected);
        }
    }
}

/// What the suite must see: another panel length, kernel rows and columns exchanged, padding left
/// out where the weight is infinite.
fn sabotage_is_seen(device: &Device) {
    let case = Case::new(
        Conv2d::new().padding(same(1)),
        [1, 30, 18, 16],
        [1, 30, 3, 3],
    );
    let expected = case.plain();
    let got = Case {
        panel: PANEL / 2,
        ..case.clone()
    }
    .run(device, Schedule::default());
    assert_ne!(got.forward, expected.forward);
    assert_ne!(got.weights, expected.weights);

    // The same sums with rows for columns: only the order of terms differs.
    let turn = |data: &[f32], [a, b, rows, columns]: [usize; 4]| -> Vec<f32> {
        let mut out = vec![0.0; data.len()];
        for plane in 0..a * b {
            for i in 0..rows {
                for j in 0..columns {
                    out[(plane * columns + j) * rows + i] = data[(plane * rows + i) * columns + j];
                }
            }
        }
        out
    };
    let [x, w, ..] = case.inputs();
    let x = device.upload(&turn(&x, case.x)).unwrap();
    let w = device.upload(&turn(&w, case.w)).unwrap();
    let [n, c, rows, columns] = case.x;
    let y = conv2d(&case.conv, &x, [n, c, columns, rows], &w, case.w, None).unwrap();
    let y = turn(&device.read(&y).unwrap(), [1, 1, columns, rows]);
    assert_ne!(y, expected.forward);
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-3 * b.abs().max(1.0);
    assert!(y.iter().zip(&expected.forward).all(close));
}

/// Every path, tile and number of threads.
#[test]
fn n8_cpu_schedules_do_not_show() {
    let mut cases = vec![
        Case::new(
            Conv2d::new().padding(same(1)).stride([2, 2]),
            [3, 6, 12, 15],
            [26, 6, 3, 3],
        ),
        Case::new(
            Conv2d::new().padding(same(2)).groups(20),
            [2, 40, 7, 9],
            [20, 2, 3, 3],
        ),
        Case::new(Conv2d::new(), [2, 3, 5, 5], [5, 3, 1, 1]),
        // Rows of one place: as many runs as vectors have lanes.
        Case::new(Conv2d::new(), [1, 3, 70, 3], [13, 3, 2, 3]),
    ];
    for case in &mut cases {
        // Short panels, so that small sums have several.
        (case.panel, case.fill) = (16, spiced);
    }
    for case in cases {
        let expected = case.plain();
        for threads in [1, 2, 7] {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            for simd in Simd::available() {
                let device = Device::cpu_with(simd);
                for narrow in [None, Some(true), Some(false)] {
                    for (images, steps, split) in [
                        (None, None, None),
                        (Some(1), Some(1), Some(true)),
                        (Some(2), Some(3), Some(false)),
                    ] {
                        let cpu = cpu::Plan {
                            narrow,
                            images,
                            steps,
                            split,
                        };
                        let schedule = Schedule {
                            cpu,
                            ..Schedule::default()
                        };
                        pool.install(|| case.check_with(&device, schedule, &expected));
                    }
                }
            }
        }
    }
}

/// A size at which the default schedule uses threads and several tiles.
#[test]
fn n8_larger_sizes_do_not_show_threads() {
    for case in [
        Case::new(
            Conv2d::new().padding(same(1)),
            [3, 40, 28, 30],
            [50, 40, 3, 3],
        ),
        Case::new(
            Conv2d::new().padding(same(1)).stride([2, 2]).groups(64),
            [2, 64, 29, 30],
            [64, 1, 3, 3],
        ),
    ] {
        let run = |threads, simd| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(|| case.run(&Device::cpu_with(simd), Schedule::default()))
        };
        let expected = run(1, Simd::Plain);
        for simd in Simd::available() {
            for threads in [1, 2, 7] {
                assert!(
                    run(threads, simd) == expected,
                    "{simd:?}, {threads} threads"
                );
            }
        }
    }
}

#[test]
fn misfits_are_refused_by_name() {
    let message = |conv: Conv2d, x, w| conv.output(x, w).unwrap_err().to_string();
    let (x, w) = ([2, 4, 8, 8], [6, 4, 3, 3]);
    for (conv, x, w, expected) in [
        (
            Conv2d::new().stride([0, 1]),
            x,
            w,
            "parameter `stride`: expected 1 to 2^31, got 0",
        ),
        (
            Conv2d::new().dilation([1, usize::MAX]),
            x,
            w,
            "parameter `dilation`: expected 1 to 2^31, got 18446744073709551615",
        ),
        (
            Conv2d::new().groups(4),
            x,
            w,
            "conv2d: expected shape output channels in 4 equal groups, got 6",
        ),
        (
            Conv2d::new().groups(2),
            x,
            w,
            "conv2d: expected shape 4 channels in 2 groups, got weights for 4 channels a group",
        ),
        (
            Conv2d::new(),
            x,
            [6, 4, 0, 3],
            "conv2d: expected shape a kernel of at least 1 x 1, got 0 x 3",
        ),
        (
            Conv2d::new().padding([[0, 0], [1, 0]]).dilation([1, 5]),
            x,
            w,
            "conv2d: expected shape a kernel of at most the 9 columns of the padded image, got 11",
        ),
        (
            Conv2d::new().padding([[usize::MAX, 1], [0, 0]]),
            x,
            w,
            "conv2d: expected shape fewer than 2^64 rows, got more",
        ),
        (
            Conv2d::new().padding([[1 << 31, 0], [0, 0]]),
            x,
            w,
            "conv2d: expected shape at most 2147483648 elements, got 137438953984",
        ),
    ] {
        assert_eq!(message(conv, x, w), expected);
    }
    let device = Device::cpu();
    let short = device.upload(&[0.0f32; 5]).unwrap();
    let error = conv2d(&Conv2d::new(), &short, x, &short, w, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "conv2d: expected shape 2 x 4 x 8 x 8 = 512 elements for x, got 5"
    );
}

/// Against PyTorch in binary64 (`scripts/conv.py`): `N6` says which bits, this that they are near
/// the truth.
#[test]
fn errors_are_those_of_the_order() {
    let mut conv = Conv2d::new().padding([[1, 0], [2, 1]]).stride([2, 3]);
    let strided = (conv, [1, 2, 8, 9], [3, 2, 3, 3]);
    conv = Conv2d::new()
        .padding([[1, 1], [0, 2]])
        .stride([2, 1])
        .dilation([3, 2])
        .groups(2);
    let dilated = (conv, [2, 4, 7, 6], [6, 2, 2, 3]);
    conv = Conv2d::new().padding(same(1)).stride([1, 2]).groups(5);
    let depthwise = (conv, [1, 5, 6, 5], [5, 1, 3, 3]);
    conv = Conv2d::new().padding([[1, 1], [0, 0]]);
    let deep = (conv, [1, 130, 2, 3], [1, 130, 2, 2]);
    let plain = (Conv2d::new(), [2, 3, 5, 6], [4, 3, 3, 2]);

    let mut got = Vec::new();
    let named = [
        ("plain", plain),
        ("strided", strided),
        ("dilated groups", dilated),
        ("depthwise", depthwise),
        ("deep", deep),
    ];
    for (seed, (name, (conv, x, w))) in (1..).zip(named) {
        let mut case = Case::new(conv, x, w);
        case.seed = seed;
        let results = case.run(&Device::cpu(), Schedule::default());
        for (part, values) in [
            ("forward", results.biased),
            ("data", results.data),
            ("weight", results.weights),
        ] {
            got.extend(values.into_iter().map(|value| (name, part, value)));
        }
    }
    let reference: Vec<&str> = include_str!("reference.tsv").lines().collect();
    assert_eq!(got.len(), reference.len());
    for (i, ((name, part, value), line)) in got.into_iter().zip(reference).enumerate() {
        let fields: Vec<&str> = line.split('\t').collect();
        assert_eq!(fields[..2], [name, part]);
        let exact: f64 = fields[2].parse().unwrap();
        let size: f64 = fields[3].parse().unwrap();
        // A chain of 256 and a fold of 3, half a unit each, and the bias.
        let bound = size * 260.0 * 2f64.powi(-24);
        let error = (value as f64 - exact).abs();
        assert!(
            error <= bound,
            "{name} {part} {i}: {error:e} above {bound:e}"
        );
    }
}
