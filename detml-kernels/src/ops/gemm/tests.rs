use super::*;
use crate::Simd;
use crate::suite::*;
use proptest::prelude::*;

/// A product as the tests make them: operands with their data, and what `c` holds before.
#[derive(Clone, Debug)]
struct Case {
    a: Operand,
    b: Operand,
    c: Operand,
    batch: usize,
    alpha: f32,
    beta: f32,
}

#[derive(Clone, Debug)]
struct Operand {
    data: Vec<f32>,
    layout: Layout,
}

impl Operand {
    /// Any layout over `rows x columns`: dense, transposed, sliced out of something larger.
    fn new(style: u32, batch: usize, rows: usize, columns: usize, fill: Fill, seed: u32) -> Self {
        let mut layout = Layout::new(rows, columns);
        match style % 4 {
            0 => {}
            1 => {
                layout.row_stride = 1;
                layout.column_stride = rows;
            }
            2 => {
                layout.offset = 3;
                layout.row_stride = columns + 5;
                layout.batch_stride = rows * (columns + 5) + 1;
            }
            _ => {
                layout.offset = 1;
                layout.column_stride = 2;
                layout.row_stride = 2 * columns + 1;
                layout.batch_stride = rows * (2 * columns + 1);
            }
        }
        Self::filled(layout, batch, fill, seed)
    }

    fn filled(layout: Layout, batch: usize, fill: Fill, seed: u32) -> Self {
        let len = layout.needed(batch).unwrap();
        Self {
            data: fill(seed, len),
            layout,
        }
    }
}

type Fill = fn(u32, usize) -> Vec<f32>;

/// Mostly numbers near 1, now and then a zero, an infinity, a NaN or a subnormal.
fn spiced(seed: u32, n: usize) -> Vec<f32> {
    let mut x = moderate(seed, n);
    for (i, x) in x.iter_mut().enumerate() {
        let h = hash(!seed, i as u32);
        match h % 400 {
            0 => *x = f32::from_bits(h & 0x8000_0000),
            1 => *x = f32::from_bits(0x7f80_0000 | (h & 0x8000_0000)),
            2 => *x = f32::from_bits(0x7f80_0001 | h),
            3..5 => *x = f32::from_bits(h & 0x807f_ffff),
            5..8 => *x = f32::from_bits((h & 0x807f_ffff) | (60 << 23)),
            _ => {}
        }
    }
    x
}

impl Case {
    fn new(seed: u32, batch: usize, m: usize, k: usize, n: usize, fill: Fill) -> Self {
        let h = hash(seed, 77);
        Self {
            a: Operand::new(h, batch, m, k, fill, 3 * seed),
            b: Operand::new(h >> 2, batch, k, n, fill, 3 * seed + 1),
            c: Operand::new((h >> 4) & 2, batch, m, n, fill, 3 * seed + 2),
            batch,
            alpha: [1.0, 1.0, -0.75, 0.3][(h >> 8) as usize % 4],
            beta: [0.0, 0.0, 1.0, -0.0, 0.7][(h >> 12) as usize % 5],
        }
    }

    fn problem(&self) -> Problem {
        Problem {
            batch: self.batch,
            m: self.a.layout.rows,
            n: self.b.layout.columns,
            k: self.a.layout.columns,
            alpha: self.alpha,
            beta: self.beta,
            panel: PANEL,
        }
    }

    fn plain(&self) -> Vec<f32> {
        self.plain_with(PANEL)
    }

    fn plain_with(&self, panel: usize) -> Vec<f32> {
        let mut c = self.c.data.clone();
        let p = Problem {
            panel,
            ..self.problem()
        };
        let (a, b) = (
            (&self.a.data[..], self.a.layout),
            (&self.b.data[..], self.b.layout),
        );
        plain::gemm(&p, a, b, (&mut c, self.c.layout));
        c
    }

    fn run(&self, device: &Device, schedule: Schedule) -> Vec<f32> {
        self.run_with(device, schedule, PANEL)
    }

    fn run_with(&self, device: &Device, schedule: Schedule, panel: usize) -> Vec<f32> {
        let [a, b, mut c] =
            [&self.a, &self.b, &self.c].map(|x| device.upload(&x.data).expect("uploads"));
        let p = {
            let [a, b] = [(&a, &self.a), (&b, &self.b)].map(|(buffer, x)| Matrix {
                buffer,
                layout: x.layout,
            });
            let c = MatrixMut {
                buffer: &mut c,
                layout: self.c.layout,
            };
            let p = check(self.batch, self.alpha, &a, &b, self.beta, &c).expect("fits");
            let p = Problem { panel, ..p };
            run(&p, a, b, c, schedule).expect("runs");
            p
        };
        assert_eq!(p.k, self.problem().k);
        device.read(&c).expect("reads")
    }

    #[track_caller]
    fn check(&self, device: &Device) {
        let what = format!(
            "{device}: {:?} {:?} {:?}",
            self.problem(),
            self.a.layout,
            self.b.layout
        );
        assert_bits(&what, &self.run(device, Schedule::default()), &self.plain());
    }
}

/// Sizes around those of vectors, micro-tiles and cubes; smaller where the arithmetic is slow.
fn sizes(device: &Device) -> &'static [usize] {
    if device.is_cpu() {
        &[1, 2, 3, 5, 7, 8, 11, 12, 13, 16, 17, 31, 32, 33, 47, 64, 70]
    } else {
        &[1, 3, 8, 17, 32, 33, 48]
    }
}

fn ragged_shapes(device: &Device) {
    let sizes = sizes(device);
    let pick = |h: u32| sizes[h as usize % sizes.len()];
    for seed in 0..if device.is_cpu() { 150 } else { 10 } {
        let h = hash(seed, 1);
        let (m, k, n) = (pick(h), pick(h >> 8), pick(h >> 16));
        Case::new(seed, 1 + (h >> 24) as usize % 3, m, k, n, spiced).check(device);
    }
}

fn any_bit_pattern(device: &Device) {
    for seed in 0..if device.is_cpu() { 40 } else { 4 } {
        let h = hash(seed, 2);
        let size = |h: u32| 1 + h as usize % 20;
        Case::new(seed, 1, size(h), size(h >> 8) % 5, size(h >> 16), any_bits).check(device);
    }
}

/// Any shapes, layouts and bits, `alpha` and `beta` included.
fn any_product(device: &Device) {
    let sizes = (0usize..4, 0usize..24, 0usize..40, 0usize..24);
    let scalars = prop_oneof![any::<u32>(), Just(0), Just(1f32.to_bits())];
    let cases = (any::<u32>(), sizes, [scalars.clone(), scalars]);
    for_all(
        device,
        [64, 8],
        cases,
        |(seed, (batch, m, k, n), scalars)| {
            let [alpha, beta] = scalars.map(f32::from_bits);
            let fill = if seed & 1 == 0 { any_bits } else { spiced };
            let case = Case {
                alpha,
                beta,
                ..Case::new(seed % 1_000_000, batch, m, k, n, fill)
            };
            case.check(device);
        },
    );
}

/// Sums over several panels, the last one short.
fn panels_fold_in_order(device: &Device) {
    for (seed, (m, k, n)) in [
        (3, PANEL, 5),
        (3, PANEL + 1, 5),
        (1, 3 * PANEL + 7, 1),
        (13, 2 * PANEL + 33, 34),
        (2, 5 * PANEL - 1, 3),
    ]
    .into_iter()
    .enumerate()
    {
        let case = Case::new(seed as u32, 2, m, k, n, moderate);
        case.check(device);
    }
}

fn n6_empty_shapes(device: &Device) {
    // k = 0 is a sum of nothing: +0, scaled and added as any other.
    for (alpha, beta, expected) in [(1.0, 0.0, 0.0), (-1.0, 0.0, -0.0), (1.0, 2.0, 3.0)] {
        let case = Case {
            alpha,
            beta,
            c: Operand {
                data: vec![1.5; 6],
                layout: Layout::new(2, 3),
            },
            ..Case::new(0, 1, 2, 0, 3, spiced)
        };
        assert_bits(
            "k = 0",
            &case.run(device, Schedule::default()),
            &[expected; 6],
        );
        case.check(device);
    }
    for (batch, m, k, n) in [
        (1, 0, 4, 3),
        (1, 4, 3, 0),
        (0, 2, 2, 2),
        (1, 0, 0, 0),
        (2, 0, 5, 0),
    ] {
        let a = device.upload(&moderate(1, batch * m * k)).unwrap();
        let b = device.upload(&moderate(2, batch * k * n)).unwrap();
        let c = matmul_batched(batch, Matrix::new(&a, m, k), Matrix::new(&b, k, n)).unwrap();
        assert!(c.is_empty());
        assert!(device.read(&c).unwrap().is_empty());
    }
}

fn n6_broadcast_transposed_and_sliced_operands(device: &Device) {
    let (m, k, n) = (19, 21, 23);
    let dense = |rows, columns| Layout::new(rows, columns);
    let broadcasts = [
        // A row, a column, an element and a whole matrix repeated.
        (
            Layout {
                row_stride: 0,
                ..dense(m, k)
            },
            dense(k, n),
        ),
        (
            Layout {
                column_stride: 0,
                ..dense(m, k)
            },
            dense(k, n),
        ),
        (
            dense(m, k),
            Layout {
                row_stride: 0,
                ..dense(k, n)
            },
        ),
        (
            dense(m, k),
            Layout {
                row_stride: 1,
                column_stride: 0,
                ..dense(k, n)
            },
        ),
        (
            Layout {
                row_stride: 0,
                column_stride: 0,
                ..dense(m, k)
            },
            dense(k, n),
        ),
        (
            Layout {
                batch_stride: 0,
                ..dense(m, k)
            },
            dense(k, n),
        ),
        (
            dense(m, k),
            Layout {
                batch_stride: 0,
                ..dense(k, n)
            },
        ),
    ];
    for (seed, (a, b)) in broadcasts.into_iter().enumerate() {
        let batch = 3;
        let case = Case {
            a: Operand::filled(a, batch, spiced, seed as u32),
            b: Operand::filled(b, batch, spiced, seed as u32 + 100),
            ..Case::new(seed as u32, batch, m, k, n, spiced)
        };
        case.check(device);
    }
    for seed in (0..16).step_by(if device.is_cpu() { 1 } else { 5 }) {
        let mut case = Case::new(seed, 2, m, k, n, moderate);
        case.a = Operand::new(seed, 2, m, k, moderate, seed);
        case.b = Operand::new(seed / 4, 2, k, n, moderate, seed + 50);
        case.check(device);
    }
}

/// Elements of `c`'s buffer outside the matrix stay.
fn nothing_else_is_written(device: &Device) {
    let case = Case {
        c: Operand::new(2, 2, 9, 11, moderate, 5),
        beta: 0.0,
        ..Case::new(4, 2, 9, 10, 11, moderate)
    };
    let c = case.run(device, Schedule::default());
    assert_bits("c and its surroundings", &c, &case.plain());
    assert_bits("offset", &c[..3], &case.c.data[..3]);
}

/// `beta = 0` does not read `c`; NaN leaves as the one NaN.
fn n11_special_values(device: &Device) {
    let inf = f32::INFINITY;
    let nan = f32::from_bits(0x7fc0_0000);
    let a = device
        .upload(&[inf, 0.0, f32::from_bits(0xffc1_2345), 1.0])
        .unwrap();
    let b = device.upload(&[0.0, 1.0, 1.0, -1.0]).unwrap();
    let signalling = f32::from_bits(0xff80_0001);
    let mut c = device.upload(&[signalling; 4]).unwrap();
    let product = |c: &mut Buffer<f32>, beta| {
        let (a, b) = (Matrix::new(&a, 2, 2), Matrix::new(&b, 2, 2));
        gemm(1.0, a, b, beta, MatrixMut::new(c, 2, 2)).unwrap();
        device.read(c).unwrap()
    };
    assert_bits("beta 0", &product(&mut c, -0.0), &[nan, inf, nan, nan]);
    let mut c = device.upload(&[signalling, -inf, 1.0, 2.0]).unwrap();
    assert_bits("beta 1", &product(&mut c, 1.0), &[nan; 4]);

    // The product underflows to -0, which stays -0: nothing is added to it.
    let tiny = f32::from_bits(1);
    let a = device.upload(&[tiny, 0.0, 0.0]).unwrap();
    let b = device.upload(&[-tiny, -0.0, 0.0]).unwrap();
    let c = matmul(Matrix::new(&a, 1, 3).strides(3, 3), Matrix::new(&b, 3, 1)).err();
    assert!(c.is_some(), "two strides of 3 leave the buffer");
    let c = matmul(Matrix::new(&a, 1, 1), Matrix::new(&b, 1, 1)).unwrap();
    assert_bits("underflow", &device.read(&c).unwrap(), &[-0.0]);
    let c = matmul(Matrix::new(&a, 1, 3), Matrix::new(&b, 3, 1)).unwrap();
    assert_bits("then +0", &device.read(&c).unwrap(), &[0.0]);
}

/// A row's bits don't depend on its neighbours: the whole, single rows, ragged splits.
fn n7_rows_stand_alone(device: &Device) {
    let (m, k, n) = if device.is_cpu() {
        (67, 300, 45)
    } else {
        (37, 40, 19)
    };
    let x = device.upload(&spiced(1, m * k)).unwrap();
    let w = device.upload(&spiced(2, n * k)).unwrap();
    let w = Matrix::new(&w, n, k).transposed();
    let rows = |from: usize, to: usize| {
        let rows = Matrix::new(&x, to - from, k).offset(from * k);
        device.read(&matmul(rows, w).unwrap()).unwrap()
    };
    let whole = rows(0, m);
    for splits in [(0..=m).collect::<Vec<_>>(), vec![0, 1, 4, 17, 18, 34, m]] {
        let parts: Vec<f32> = splits.windows(2).flat_map(|w| rows(w[0], w[1])).collect();
        assert_bits("rows apart", &parts, &whole);
    }
}

backend_suite! {
    ragged_shapes,
    any_bit_pattern,
    any_product,
    panels_fold_in_order,
    n6_empty_shapes,
    n6_broadcast_transposed_and_sliced_operands,
    nothing_else_is_written,
    n11_special_values,
    n7_rows_stand_alone,
    n8_gpu_schedules_do_not_show,
    n8_few_rows,
    large_products,
    n6_tables_say_where_elements_lie,
    sabotage_of_the_order_is_seen,
}

/// Every tile, every way to fold, split and exchange the operands, in all layouts.
fn n8_gpu_schedules_do_not_show(device: &Device) {
    if device.is_cpu() {
        return;
    }
    // Short panels, so that small products have several.
    let panel = 32;
    let emulated = device.profile().unwrap() != crate::ieee::FloatProfile::NATIVE;
    let mut seed = 0;
    for tile in gpu::Tile::ALL {
        let plans = [
            (Some(gpu::Fold::Registers), false, None),
            (Some(gpu::Fold::Shared), false, None),
            (None, true, None),
            (None, true, Some(2)),
        ];
        for (fold, split, group) in plans {
            seed += 1;
            if !tile.fits(fold.unwrap_or(gpu::Fold::None), device) {
                continue;
            }
            // Compiling emulated arithmetic takes long: every other plan of a tile.
            if emulated && (seed + seed / 4) % 2 == 0 {
                continue;
            }
            let (rows, columns) = tile.size();
            // One and a bit tiles each way; every other time a multiple of four.
            let (m, n, k) = match seed % 2 {
                0 => (rows + 4, columns + 4, 3 * panel + 4),
                _ => (rows + 1, columns + 3, 3 * panel + 5),
            };
            let batch = if rows < 64 { 2 } else { 1 };
            let mut case = Case::new(seed, batch, m, k, n, spiced);
            case.a = Operand::new(seed / 2, batch, m, k, spiced, seed);
            case.b = Operand::new(seed / 4, batch, k, n, spiced, seed + 99);
            let schedule = Schedule {
                gpu: gpu::Plan {
                    tile: Some(tile),
                    fold,
                    split: Some(split),
                    swap: Some(seed % 5 == 0),
                    pack: Some(seed % 3 == 0),
                    thin: Some(false),
                    group,
                },
                ..Schedule::default()
            };
            let got = case.run_with(device, schedule, panel);
            let what = format!("{device}: {schedule:?}, {:?}", case.problem());
            assert_bits(&what, &got, &case.plain_with(panel));
        }
    }
}

/// Few rows, by the kernel that they have of their own.
fn n8_few_rows(device: &Device) {
    if device.is_cpu() {
        return;
    }
    let panel = 32;
    for (seed, (batch, m, k, n)) in [
        (1, 1, 9 * panel + 4, 68),
        (2, 3, 5 * panel, 33),
        (1, 4, 37 * panel + 7, 40),
        (1, 8, 3 * panel + 12, 96),
        (1, 2, 1, 5),
        (1, 1, 0, 3),
    ]
    .into_iter()
    .enumerate()
    {
        for layout in 0..4 {
            let seed = seed as u32;
            let mut case = Case::new(seed, batch, m, k, n, spiced);
            case.a = Operand::new(layout % 2, batch, m, k, spiced, seed);
            case.b = Operand::new(layout / 2, batch, k, n, spiced, seed + 99);
            if layout == 3 {
                case.alpha = -0.5;
                case.beta = 2.0;
            }
            let schedule = Schedule {
                gpu: gpu::Plan {
                    thin: Some(true),
                    ..gpu::Plan::default()
                },
                ..Schedule::default()
            };
            let got = case.run_with(device, schedule, panel);
            let what = format!("{device}: {:?}", case.problem());
            assert_bits(&what, &got, &case.plain_with(panel));
        }
    }
}

/// The default schedules of sizes that fill a device, where the arithmetic is native.
fn large_products(device: &Device) {
    let native = crate::ieee::FloatProfile::NATIVE;
    if device.is_cpu() || device.profile().unwrap() != native {
        return;
    }
    let host = Device::cpu();
    for (seed, (batch, m, k, n)) in [
        (1, 1030, 1000, 1027),
        (1, 2048, 600, 2048),
        (3, 512, 1024, 768),
        (1, 3, 4096, 5000),
        (1, 8, 5000, 1023),
        (1, 5000, 3001, 7),
        (1, 29, 2047, 2050),
        (70_000, 3, 2, 5),
        (1, 64, 100_000, 60),
    ]
    .into_iter()
    .enumerate()
    {
        let case = Case::new(seed as u32, batch, m, k, n, moderate);
        let what = format!("{device}: {:?}", case.problem());
        let got = case.run(device, Schedule::default());
        assert_bits(&what, &got, &case.run(&host, Schedule::default()));
    }
}

/// Every tile shape, orientation, split and number of threads, with several tiles and panels.
#[test]
fn n8_cpu_schedules_do_not_show() {
    // Short panels, so that small products have several.
    let panel = 32;
    for threads in [1, 2, 7] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        for simd in Simd::available() {
            let device = Device::cpu_with(simd);
            for (seed, (batch, m, k, n)) in [
                (1, 53, 2 * panel + 19, 83),
                (2, 70, 20, 40),
                (1, 3, 4 * panel + 1, 2),
                (3, 1, 3 * panel, 90),
                // Wide enough for `b` to be streamed.
                (1, 2, panel + 11, 521),
                (1, 13, panel + 9, 515),
            ]
            .into_iter()
            .enumerate()
            {
                let case = Case::new(seed as u32, batch, m, k, n, spiced);
                let expected = bits(&case.plain_with(panel));
                for tile in [None, Some((24, 32)), Some((1000, 64)), Some((12, 1000))] {
                    for split in [None, Some(true), Some(false)] {
                        for (swap, direct) in [
                            (None, None),
                            (Some(true), Some(true)),
                            (Some(false), Some(true)),
                            (Some(true), Some(false)),
                            (Some(false), Some(false)),
                        ] {
                            let plan = cpu::Plan {
                                tile,
                                split,
                                swap,
                                direct,
                                upper: None,
                            };
                            let schedule = Schedule {
                                cpu: plan,
                                ..Schedule::default()
                            };
                            let got = pool.install(|| case.run_with(&device, schedule, panel));
                            let what = format!("{threads} threads, {simd:?}, {plan:?}, {case:?}");
                            assert!(bits(&got) == expected, "{what}");
                        }
                    }
                }
            }
        }
    }
}

/// A matrix times its own transpose, of which one half may be mirrored.
#[test]
fn n8_mirrored_products_do_not_show() {
    let panel = 32;
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        for simd in Simd::available() {
            let device = Device::cpu_with(simd);
            for (seed, (batch, n, k)) in [(1, 28, 300), (2, 70, 45), (1, 131, 40), (1, 1, 9)]
                .into_iter()
                .enumerate()
            {
                for turned in [false, true] {
                    let data = spiced(seed as u32, batch * n * k);
                    let mut a = Layout::new(n, k);
                    if turned {
                        (a.row_stride, a.column_stride) = (1, n);
                    }
                    let mut b = a;
                    std::mem::swap(&mut b.rows, &mut b.columns);
                    std::mem::swap(&mut b.row_stride, &mut b.column_stride);
                    let operand = |layout| Operand {
                        data: data.clone(),
                        layout,
                    };
                    let case = Case {
                        a: operand(a),
                        b: operand(b),
                        c: Operand::new(0, batch, n, n, spiced, 1),
                        batch,
                        alpha: [1.0, -0.75][seed % 2],
                        beta: 0.0,
                    };
                    let expected = bits(&case.plain_with(panel));
                    let x = device.upload(&data).unwrap();
                    for tile in [None, Some((24, 32)), Some((1000, 64))] {
                        for split in [None, Some(true), Some(false)] {
                            for swap in [Some(true), Some(false)] {
                                for upper in [None, Some(true), Some(false)] {
                                    let plan = cpu::Plan {
                                        tile,
                                        split,
                                        swap,
                                        direct: None,
                                        upper,
                                    };
                                    let schedule = Schedule {
                                        cpu: plan,
                                        ..Schedule::default()
                                    };
                                    let mut c = device.upload(&case.c.data).unwrap();
                                    let [a, b] = [a, b].map(|layout| Matrix { buffer: &x, layout });
                                    let c_matrix = MatrixMut::new(&mut c, n, n);
                                    let p = check(batch, case.alpha, &a, &b, 0.0, &c_matrix);
                                    let p = Problem {
                                        panel,
                                        ..p.expect("fits")
                                    };
                                    pool.install(|| run(&p, a, b, c_matrix, schedule))
                                        .expect("runs");
                                    let got = bits(&device.read(&c).unwrap());
                                    assert!(
                                        got == expected,
                                        "{threads} threads, {simd:?}, {plan:?}, {batch} {n} {k}"
                                    );
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Sizes at which the default schedules use threads, several tiles, streams and packed operands.
#[test]
fn n8_large_products_do_not_show_threads() {
    for (seed, (batch, m, k, n)) in [
        (1, 130, 600, 300),
        (1, 1, 700, 1100),
        (1, 1100, 700, 1),
        (1, 20, 300, 1100),
        (40, 30, 33, 31),
        (1, 30, 5000, 30),
    ]
    .into_iter()
    .enumerate()
    {
        let case = Case::new(8 + seed as u32, batch, m, k, n, moderate);
        let expected = bits(&case.plain());
        for threads in [1, 2, 7] {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            for simd in Simd::available() {
                let device = Device::cpu_with(simd);
                let got = pool.install(|| bits(&case.run(&device, Schedule::default())));
                let what = (simd, threads, case.problem(), case.a.layout, case.b.layout);
                assert!(got == expected, "{what:?}");
            }
        }
    }
}

/// What the suite must see: another panel length, k descending.
fn sabotage_of_the_order_is_seen(device: &Device) {
    let (m, k, n) = (8, 2 * PANEL, 8);
    let case = Case::new(2, 1, m, k, n, moderate);
    let expected = bits(&case.plain());
    for panel in [PANEL / 2, 2 * PANEL] {
        let got = bits(&case.run_with(device, Schedule::default(), panel));
        assert!(got != expected, "{device}: a panel of {panel} was not seen");
        assert!(got == bits(&case.plain_with(panel)), "{device}: {panel}");
    }
    let mut reversed = case.clone();
    for t in 0..k {
        for i in 0..m {
            let [to, from] = [t, k - 1 - t].map(|t| case.a.layout.at(0, i, t));
            reversed.a.data[to] = case.a.data[from];
        }
        for j in 0..n {
            let [to, from] = [t, k - 1 - t].map(|t| case.b.layout.at(0, t, j));
            reversed.b.data[to] = case.b.data[from];
        }
    }
    let got = bits(&reversed.run(device, Schedule::default()));
    assert!(got != expected, "{device}: descending k was not seen");
}

/// Against exact sums: `N6` says which bits, this that they are near the truth.
#[test]
fn errors_are_those_of_the_order() {
    let (m, k, n) = (20, 1000, 20);
    let (a, b) = (moderate(1, m * k), moderate(2, k * n));
    let device = Device::cpu();
    let (x, y) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
    let c = device
        .read(&matmul(Matrix::new(&x, m, k), Matrix::new(&y, k, n)).unwrap())
        .unwrap();
    for i in 0..m {
        for j in 0..n {
            let terms = (0..k).map(|t| a[i * k + t] as f64 * b[t * n + j] as f64);
            let (sum, size) = terms.fold((0.0, 0.0), |(s, z), x| (s + x, z + x.abs()));
            // A chain of 256 and a fold of 4, half a unit each.
            let bound = size * 260.0 * 2f64.powi(-24);
            let error = (c[i * n + j] as f64 - sum).abs();
            assert!(error <= bound, "({i}, {j}): {error:e} above {bound:e}");
        }
    }
}

#[test]
fn misfits_are_refused_by_name() {
    let device = Device::cpu();
    let x = device.upload(&[0.0f32; 12]).unwrap();
    let mut y = device.upload(&[0.0f32; 12]).unwrap();
    let a = Matrix::new(&x, 3, 4);
    let message = |e: Error| e.to_string();
    assert_eq!(
        message(matmul(a, a).unwrap_err()),
        "matmul: expected shape 4 rows of b, as a has columns, got 3"
    );
    assert_eq!(
        message(matmul(Matrix::new(&x, 4, 4), a.transposed()).unwrap_err()),
        "matmul: expected shape at least 16 elements for a, got 12"
    );
    assert_eq!(
        message(matmul(a.offset(usize::MAX), a.transposed()).unwrap_err()),
        "matmul: expected shape at least 2^64 elements for a, got 12"
    );
    let square = MatrixMut::new(&mut y, 3, 4);
    assert_eq!(
        message(gemm(1.0, a, a.transposed(), 0.0, square).unwrap_err()),
        "gemm: expected shape c of 3 x 3, got 3 x 4"
    );
    let overlapping = MatrixMut::new(&mut y, 3, 3).row_stride(2);
    assert_eq!(
        message(gemm(1.0, a, a.transposed(), 0.0, overlapping).unwrap_err()),
        "gemm: expected shape rows of c at least 3 elements apart, got 2"
    );
    let overlapping = MatrixMut::new(&mut y, 1, 3).batch_stride(2);
    let row = Matrix::new(&x, 1, 4).batch_stride(0);
    let column = a.transposed().batch_stride(0);
    assert_eq!(
        message(gemm_batched(2, 1.0, row, column, 0.0, overlapping).unwrap_err()),
        "gemm: expected shape members of c at least 3 elements apart, got 2"
    );
    assert!(matmul_batched(usize::MAX, row, column).is_err());
}

/// Operands and an output whose elements lie where tables say.
fn n6_tables_say_where_elements_lie(device: &Device) {
    if device.is_cpu() {
        return;
    }
    for (seed, (batch, m, k, n, plan)) in [
        (2, 5, 21, 37, gpu::Plan::default()),
        (1, 40, 2 * PANEL + 7, 9, gpu::Plan::default()),
        (
            1,
            34,
            PANEL + 3,
            36,
            gpu::Plan {
                split: Some(false),
                ..gpu::Plan::default()
            },
        ),
    ]
    .into_iter()
    .enumerate()
    {
        // Any places: elements of operands share some, the output's are all different.
        let seed = seed as u32;
        let table = |which: u32, n: usize, below: usize| -> Vec<u32> {
            (0..n as u32)
                .map(|i| hash(10 * seed + which, i) % below as u32)
                .collect()
        };
        let [lanes_a, terms_a] = [table(1, m, 400), table(2, k, 300)];
        let [lanes_b, terms_b] = [table(3, n, 500), table(4, k, 200)];
        let rows: Vec<u32> = (0..m as u32).rev().map(|i| 3 * n as u32 * i).collect();
        let columns: Vec<u32> = (0..n as u32)
            .map(|j| 2 * ((j * 7) % n as u32) + 1)
            .collect();
        assert!(n % 7 != 0);
        let (member_a, member_b, member_c) = (700, 700, 3 * m * n);
        let x = spiced(seed, batch * member_a);
        let y = spiced(seed + 50, batch * member_b);
        let before = moderate(seed + 99, batch * member_c);

        let p = Problem {
            batch,
            m,
            n,
            k,
            alpha: 0.5,
            beta: [0.0, 1.5][seed as usize % 2],
            panel: PANEL,
        };
        let mut expected = before.clone();
        for (b, (i, j)) in
            (0..batch).flat_map(|b| (0..m).flat_map(move |i| (0..n).map(move |j| (b, (i, j)))))
        {
            let total = plain::total(&p, |t| {
                let at_a = lanes_a[i] + terms_a[t];
                let at_b = lanes_b[j] + terms_b[t];
                (
                    x[b * member_a + at_a as usize],
                    y[b * member_b + at_b as usize],
                )
            });
            let c = &mut expected[b * member_c + (rows[i] + columns[j]) as usize];
            *c = finish(Ieee::PLAIN, total, p.alpha, p.beta, *c, true, p.added());
        }

        let [lanes_a, terms_a, lanes_b, terms_b, rows, columns] =
            [lanes_a, terms_a, lanes_b, terms_b, rows, columns].map(|t| device.upload(&t).unwrap());
        let (x, y) = (device.upload(&x).unwrap(), device.upload(&y).unwrap());
        let mut c = device.upload(&before).unwrap();
        let source = |buffer, batch, tables| gpu::Source {
            buffer,
            offset: 0,
            axes: gpu::Axes::Tables(tables),
            batch,
        };
        let a = source(&x, member_a, [&lanes_a, &terms_a]);
        let b = source(&y, member_b, [&lanes_b, &terms_b]);
        let place = gpu::Place {
            offset: 0,
            axes: gpu::Axes::Tables([&rows, &columns]),
            batch: member_c,
        };
        gpu::gemm(device, &p, a, b, &mut c, place, plan).unwrap();
        assert_bits(
            &format!("{device}: {p:?}"),
            &device.read(&c).unwrap(),
            &expected,
        );
    }
}
