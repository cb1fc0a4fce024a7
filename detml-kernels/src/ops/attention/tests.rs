use super::*;
use crate::suite::*;
use proptest::prelude::*;

/// Shapes and their data.
#[derive(Clone, Debug)]
struct Case {
    shape: Attention,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    d_out: Vec<f32>,
    lengths: Option<Vec<u32>>,
}

type Fill = fn(u32, usize) -> Vec<f32>;

/// Numbers between -1 and 1.
fn unit(seed: u32, n: usize) -> Vec<f32> {
    (0..n as u32)
        .map(|i| (hash(seed, i) >> 8) as f32 / (1 << 23) as f32 - 1.0)
        .collect()
}

/// Such numbers, now and then a zero, an infinity, a NaN or another magnitude.
fn spiced(seed: u32, n: usize) -> Vec<f32> {
    let mut x = unit(seed, n);
    for (i, x) in x.iter_mut().enumerate() {
        let h = hash(!seed, i as u32);
        match h % 1500 {
            0 => *x = f32::from_bits(h & 0x8000_0000),
            1 => *x = f32::from_bits(0x7f80_0000 | (h & 0x8000_0000)),
            2 => *x = f32::from_bits(0x7f80_0001 | h),
            3..7 => *x = f32::from_bits(h & 0x807f_ffff),
            7..20 => *x *= 200.0,
            20..30 => *x *= 1e19,
            _ => {}
        }
    }
    x
}

impl Case {
    fn new(seed: u32, shape: Attention, fill: Fill) -> Self {
        let p = shape.check().expect("a valid shape");
        let h = hash(seed, 5);
        let lengths = (h & 1 == 0).then(|| {
            (0..p.batch as u32)
                .map(|b| hash(h, b) % (p.keys as u32 + 3))
                .collect()
        });
        Self {
            shape,
            q: fill(4 * seed, p.query_size),
            k: fill(4 * seed + 1, p.key_size),
            v: fill(4 * seed + 2, p.key_size),
            d_out: fill(4 * seed + 3, p.query_size),
            lengths,
        }
    }

    /// A random mask and number of heads.
    fn any(seed: u32, [queries, keys]: [usize; 2], width: usize, fill: Fill) -> Self {
        let h = hash(seed, 6);
        let kv_heads = 1 + (h & 1) as usize;
        let heads = kv_heads * [1, 1, 2, 3][(h >> 1) as usize % 4];
        let batch = 1 + (h >> 3) as usize % 2;
        let shape = Attention::new(batch, heads, [queries, keys], width).kv_heads(kv_heads);
        let shape = match (h >> 5) % 4 {
            0 => shape,
            1 => shape.causal_from((h >> 8) as i64 % (keys as i64 + 5) - 3),
            _ => shape.causal(),
        };
        let shape = match (h >> 7) % 3 {
            0 => shape.scale(-0.3),
            _ => shape,
        };
        Self::new(seed, shape, fill)
    }

    fn inputs(&self) -> [&[f32]; 3] {
        [&self.q, &self.k, &self.v]
    }

    fn lengths(&self) -> &[u32] {
        self.lengths.as_deref().unwrap_or(&[])
    }

    fn plain(&self, order: plain::Order) -> [Vec<f32>; 2] {
        let p = self.shape.check().expect("a valid shape");
        plain::forward(&p, self.inputs(), self.lengths(), order)
    }

    fn plain_backward(&self, known: [&[f32]; 3]) -> [Vec<f32>; 3] {
        let p = self.shape.check().expect("a valid shape");
        plain::backward(&p, self.inputs(), self.lengths(), known)
    }

    fn run(&self, device: &Device, schedule: Schedule) -> [Vec<f32>; 2] {
        let [q, k, v] = self.inputs().map(|x| device.upload(x).expect("uploads"));
        let lengths = self
            .lengths
            .as_ref()
            .map(|x| device.upload(x).expect("uploads"));
        let y = forward(&self.shape, [&q, &k, &v], lengths.as_ref(), schedule).expect("runs");
        [&y.out, &y.log_sum_exp].map(|x| device.read(x).expect("reads"))
    }

    fn run_backward(
        &self,
        device: &Device,
        known: [&[f32]; 3],
        schedule: Schedule,
    ) -> [Vec<f32>; 3] {
        let [q, k, v] = self.inputs().map(|x| device.upload(x).expect("uploads"));
        let [out, log_sum_exp, d_out] = known.map(|x| device.upload(x).expect("uploads"));
        let lengths = self
            .lengths
            .as_ref()
            .map(|x| device.upload(x).expect("uploads"));
        let output = Output { out, log_sum_exp };
        let inputs = [&q, &k, &v];
        let lengths = lengths.as_ref();
        let y = backward(&self.shape, inputs, lengths, &output, &d_out, schedule).expect("runs");
        [&y.q, &y.k, &y.v].map(|x| device.read(x).expect("reads"))
    }

    #[track_caller]
    fn check(&self, device: &Device) {
        self.check_with(device, Schedule::default());
    }

    #[track_caller]
    fn check_with(&self, device: &Device, schedule: Schedule) {
        let what = format!(
            "{device} {:?} {:?} {schedule:?}",
            self.shape,
            self.lengths()
        );
        let [out, sums] = self.plain(plain::ORDER);
        let got = self.run(device, schedule);
        assert_bits(&format!("{what}: out"), &got[0], &out);
        assert_bits(&format!("{what}: log-sum-exp"), &got[1], &sums);
        let known = [&out[..], &sums, &self.d_out];
        let expected = self.plain_backward(known);
        let got = self.run_backward(device, known, schedule);
        for (i, name) in ["d_q", "d_k", "d_v"].into_iter().enumerate() {
            assert_bits(&format!("{what}: {name}"), &got[i], &expected[i]);
        }
    }
}

fn ragged_shapes(device: &Device) {
    let sizes: &[usize] = if device.is_cpu() {
        &[
            1, 2, 3, 5, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 70, 129, 150,
        ]
    } else {
        &[1, 3, 16, 17, 33, 65]
    };
    let widths = [1, 2, 3, 4, 7, 8, 12, 16, 17, 20];
    for seed in 0..if device.is_cpu() { 60 } else { 6 } {
        let h = hash(seed, 1);
        let pick = |h: u32, from: &[usize]| from[h as usize % from.len()];
        let size = [pick(h, sizes), pick(h >> 8, sizes)];
        let fill = [unit, spiced][(h >> 24) as usize % 2];
        Case::any(seed, size, pick(h >> 16, &widths), fill).check(device);
    }
}

/// Any shapes and bits.
fn any_attention(device: &Device) {
    let most = if device.is_cpu() { 100usize } else { 40 };
    let sizes = (0..most, 0..most, 1usize..24);
    for_all(
        device,
        [48, 4],
        (any::<u32>(), sizes),
        |(seed, (queries, keys, width))| {
            let fill = [any_bits, spiced, unit][seed as usize % 3];
            Case::any(seed % 1_000_000, [queries, keys], width, fill).check(device);
        },
    );
}

/// Several segments, the last one short.
fn segments_meet_in_order(device: &Device) {
    for (seed, size) in [
        (1, [2, SEGMENT]),
        (2, [3, SEGMENT + 1]),
        (3, [1, 2 * SEGMENT + 70]),
        (4, [33, SEGMENT + 40]),
    ] {
        if device.is_cpu() || seed < 4 {
            let [queries, keys] = size;
            let shape = Attention::new(1, 2, [queries, keys], 4).kv_heads(1);
            Case::new(2 * seed, shape.causal(), unit).check(device);
            // Scores that lie far apart.
            Case::new(2 * seed + 1, shape.scale(60.0), unit).check(device);
        }
    }
}

/// Sums over several panels of the width, and widths in use.
fn wide_heads(device: &Device) {
    let widths: &[usize] = if device.is_cpu() {
        &[63, 64, 65, 96, 128, 130, 256, 257, 300, 520]
    } else {
        &[64, 70, 128, 140, 260]
    };
    for (seed, &width) in widths.iter().enumerate() {
        let shape = Attention::new(1, 1, [5, 9], width).causal();
        Case::new(seed as u32, shape, unit).check(device);
    }
}

/// Many queries for each key: panels of queries, over the heads that share it.
fn panels_of_queries(device: &Device) {
    let (queries, keys) = if device.is_cpu() { (300, 70) } else { (150, 7) };
    let shape = Attention::new(1, 3, [queries, keys], 3).kv_heads(1);
    Case::new(1, shape, unit).check(device);
    Case::new(2, shape.causal_from(0), unit).check(device);
}

/// What nobody sees may be anything (`N7`, `N11`).
fn n7_what_is_masked_does_not_show(device: &Device) {
    let (queries, keys, width) = (20, 24, 8);
    let shape = Attention::new(1, 1, [queries, keys], width).causal();
    let clean = Case {
        lengths: Some(vec![19]),
        ..Case::new(1, shape, unit)
    };
    let mut dirty = clean.clone();
    // Keys beyond the length; and a query's keys beyond its limit.
    for x in [&mut dirty.k, &mut dirty.v] {
        x[19 * width..].fill(f32::NAN);
        x[18 * width..19 * width].fill(f32::INFINITY);
    }
    // Query i sees key 18 from i = 14 on.
    let [out, sums] = clean.run(device, Schedule::default());
    let [dirty_out, dirty_sums] = dirty.run(device, Schedule::default());
    assert_bits("out", &dirty_out[..14 * width], &out[..14 * width]);
    assert_bits("sums", &dirty_sums[..14], &sums[..14]);
    assert!(dirty_out[14 * width..].iter().all(|x| x.is_nan()));
    dirty.check(device);

    // A query that holds a NaN does not show in the gradients of keys that it does not see.
    let mut dirty = clean.clone();
    dirty.d_out[0] = f32::NAN;
    let known = [&out[..], &sums, &clean.d_out];
    let expected = clean.run_backward(device, known, Schedule::default());
    let known = [&out[..], &sums, &dirty.d_out];
    let got = dirty.run_backward(device, known, Schedule::default());
    // Query 0 sees keys 0 to 4.
    for i in [1, 2] {
        assert!(got[i][..5 * width].iter().any(|x| x.is_nan()));
        let at = 5 * width..;
        assert_bits("gradient", &got[i][at.clone()], &expected[i][at]);
    }
    assert_bits("d_q", &got[0][width..], &expected[0][width..]);
}

/// Decoding token by token is the prefill, and members of a batch are themselves (`N7`).
fn n7_decoding_equals_prefill(device: &Device) {
    let (n, width) = (if device.is_cpu() { 90 } else { 20 }, 8);
    let shape = Attention::new(2, 2, [n, n], width).kv_heads(1).causal();
    let all = Case {
        lengths: None,
        ..Case::new(3, shape, unit)
    };
    let [out, sums] = all.run(device, Schedule::default());
    let cut = |x: &[f32], head: usize, from: usize, to: usize| -> Vec<f32> {
        x[(head * n + from) * width..(head * n + to) * width].to_vec()
    };
    for member in 0..2 {
        for (from, to) in [(0, 1), (1, 7), (7, 19), (n - 1, n)] {
            // The two heads' queries, and the keys so far.
            let q: Vec<f32> = (0..2)
                .flat_map(|h| cut(&all.q, 2 * member + h, from, to))
                .collect();
            let step = Case {
                shape: Attention::new(1, 2, [to - from, to], width)
                    .kv_heads(1)
                    .causal(),
                d_out: vec![0.0; q.len()],
                q,
                k: cut(&all.k, member, 0, to),
                v: cut(&all.v, member, 0, to),
                lengths: None,
            };
            // The same with a cache that has room for more, whose rest is garbage.
            let mut cached = Case {
                shape: Attention::new(1, 2, [to - from, n], width)
                    .kv_heads(1)
                    .causal_from(from as i64),
                k: cut(&all.k, member, 0, n),
                v: cut(&all.v, member, 0, n),
                ..step.clone()
            };
            cached.k[to * width..].fill(f32::NAN);
            cached.v[to * width..].fill(f32::NAN);
            for case in [step, cached] {
                let [o, s] = case.run(device, Schedule::default());
                for h in 0..2 {
                    let rows = h * (to - from)..(h + 1) * (to - from);
                    let head = 2 * member + h;
                    assert_bits(
                        "out",
                        &o[rows.start * width..rows.end * width],
                        &cut(&out, head, from, to),
                    );
                    assert_bits("sums", &s[rows], &sums[head * n + from..head * n + to]);
                }
            }
        }
    }
}

fn n11_rows_without_keys(device: &Device) {
    let width = 4;
    for (shape, lengths, seen) in [
        (
            Attention::new(1, 2, [3, 5], width),
            Some(vec![0]),
            [false; 3],
        ),
        (Attention::new(1, 2, [3, 0], width), None, [false; 3]),
        (
            Attention::new(1, 2, [3, 5], width).causal_from(-2),
            None,
            [false, false, true],
        ),
    ] {
        let case = Case {
            lengths,
            ..Case::new(1, shape, any_bits)
        };
        let [out, sums] = case.run(device, Schedule::default());
        for row in 0..6 {
            if !seen[row % 3] {
                assert_bits("out", &out[row * width..][..width], &[0.0; 4]);
                assert_bits("sum", &sums[row..][..1], &[f32::NEG_INFINITY]);
            }
        }
        let known = [&out[..], &sums, &case.d_out];
        let [d_q, d_k, d_v] = case.run_backward(device, known, Schedule::default());
        for row in 0..6 {
            if !seen[row % 3] {
                assert_bits("d_q", &d_q[row * width..][..width], &[0.0; 4]);
            }
        }
        if !seen[2] {
            assert!(d_k.iter().chain(&d_v).all(|x| x.to_bits() == 0));
        }
        case.check(device);
    }
}

fn n11_scores_that_are_not_finite(device: &Device) {
    // Scores are those of the keys, width and query being 1.
    let inf = f32::INFINITY;
    for (k, out, sum) in [
        (vec![-inf, 0.0], 1.0, 0.0),
        (vec![-inf, -inf], f32::NAN, -inf),
        (vec![0.0, inf], f32::NAN, f32::NAN),
        (vec![f32::NAN, 0.0], f32::NAN, f32::NAN),
        (vec![f32::MIN, -inf], 0.0, f32::MIN),
        (vec![-0.0, -inf], 0.0, 0.0),
        (vec![-88.0, 0.0], 1.0, 0.0),
    ] {
        let case = Case {
            shape: Attention::new(1, 1, [1, 2], 1),
            q: vec![1.0],
            k,
            v: vec![0.0, 1.0],
            d_out: vec![1.0],
            lengths: None,
        };
        let [o, s] = case.run(device, Schedule::default());
        let nan = f32::from_bits(0x7fc0_0000);
        let canonical = |x: f32| if x.is_nan() { nan } else { x };
        assert_bits(&format!("{:?}", case.k), &o, &[canonical(out)]);
        assert_bits(&format!("{:?}", case.k), &s, &[canonical(sum)]);
        case.check(device);
    }
}

fn n11_empty_shapes(device: &Device) {
    for (batch, heads, size) in [
        (0, 2, [3, 3]),
        (2, 0, [3, 3]),
        (2, 2, [0, 3]),
        (2, 2, [0, 0]),
    ] {
        let shape = Attention::new(batch, heads, size, 4).kv_heads(1).causal();
        let case = Case {
            lengths: None,
            ..Case::new(1, shape, unit)
        };
        case.check(device);
    }
}

/// Another order shows.
fn other_orders_show(device: &Device) {
    let shape = Attention::new(1, 1, [4, 1200], 4);
    let case = Case {
        lengths: None,
        ..Case::new(1, shape, unit)
    };
    let [out, sums] = case.run(device, Schedule::default());
    for (block, segment) in [(32, SEGMENT), (BLOCK, 512), (BLOCK, 2048)] {
        let [other, other_sums] = case.plain(plain::Order { block, segment });
        let what = format!("blocks of {block} in segments of {segment}");
        assert_ne!(bits(&out), bits(&other), "{what}");
        assert_ne!(bits(&sums), bits(&other_sums), "{what}");
        let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5;
        assert!(out.iter().zip(&other).all(close), "{what}");
    }
    // The same keys the other way round.
    let mut turned = case.clone();
    for x in [&mut turned.k, &mut turned.v] {
        let rows: Vec<Vec<f32>> = x.chunks(4).rev().map(<[f32]>::to_vec).collect();
        *x = rows.concat();
    }
    let [other, _] = turned.run(device, Schedule::default());
    assert_ne!(bits(&out), bits(&other));
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

fn refusals(device: &Device) {
    let x = |n: usize| device.upload(&vec![0.5f32; n]).unwrap();
    let shape = Attention::new(1, 2, [3, 4], 2);
    let (q, k) = (x(12), x(16));
    assert!(attention(&shape, &q, &k, &k, None).is_ok());
    for (shape, q, k, v) in [
        (shape, &k, &k, &k),
        (shape, &q, &q, &k),
        (shape, &q, &k, &q),
        (Attention::new(1, 2, [3, 4], 0), &q, &k, &k),
        (shape.kv_heads(0), &q, &k, &k),
        (Attention::new(1, 3, [2, 4], 2).kv_heads(2), &q, &k, &k),
        (Attention::new(usize::MAX, 2, [3, 4], 2), &q, &k, &k),
        (Attention::new(1 << 40, 2, [0, 0], 2), &q, &k, &k),
    ] {
        let error = attention(&shape, q, k, v, None).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Shape { .. } | Error::InvalidParameter { .. } | Error::Unsupported { .. }
            ),
            "{error:?}"
        );
    }
    let lengths = device.upload(&[1u32, 2]).unwrap();
    assert!(attention(&shape, &q, &k, &k, Some(&lengths)).is_err());
    let y = attention(&shape, &q, &k, &k, None).unwrap();
    assert!(attention_backward(&shape, &q, &k, &k, None, &y, &k).is_err());
}

/// The numbers of `scripts/attention.py`.
fn formula(seed: u64, n: usize, factor: f32) -> Vec<f32> {
    (0..n as u64)
        .map(|i| (i * 7919 + seed * 104_729 + i * i * 31) % 1009)
        .map(|x| (x as f32 - 504.0) / 512.0 * factor)
        .collect()
}

/// PyTorch's values in binary64.
fn near_pytorch(device: &Device) {
    let mut lines = include_str!("reference.txt").lines();
    while let Some(head) = lines.next() {
        let head: Vec<usize> = head
            .split(' ')
            .skip(1)
            .map(|x| x.parse().unwrap())
            .collect();
        let [batch, heads, kv_heads, queries, keys, width, causal, factor] = head[..] else {
            panic!("a case of {head:?}");
        };
        let shape = Attention::new(batch, heads, [queries, keys], width).kv_heads(kv_heads);
        let shape = if causal == 1 { shape.causal() } else { shape };
        let p = shape.check().unwrap();
        let case = Case {
            shape,
            q: formula(1, p.query_size, factor as f32),
            k: formula(2, p.key_size, 1.0),
            v: formula(3, p.key_size, 1.0),
            d_out: formula(4, p.query_size, 1.0),
            lengths: None,
        };
        let forward = case.run(device, Schedule::default());
        let known = [&forward[0][..], &forward[1], &case.d_out];
        let backward = case.run_backward(device, known, Schedule::default());
        for got in forward.iter().chain(&backward) {
            let line: Vec<&str> = lines.next().unwrap().split(' ').collect();
            let expected: Vec<f64> = line[1..].iter().map(|x| x.parse().unwrap()).collect();
            assert_eq!(got.len(), expected.len());
            let largest = expected.iter().fold(0f64, |m, x| m.max(x.abs()));
            for (i, (&got, &expected)) in got.iter().zip(&expected).enumerate() {
                let error = (f64::from(got) - expected).abs() / largest;
                assert!(error < 4e-6, "{shape:?} {} {i}: {got} {expected}", line[0]);
            }
        }
    }
}

/// Every tile, with segments one after the other and side by side.
fn every_schedule(device: &Device) {
    if device.is_cpu() {
        return;
    }
    let emulated = device.profile().unwrap().fma != crate::ieee::Path::Native;
    let tiles = gpu::Tile::ALL;
    for (seed, &tile) in tiles.iter().enumerate() {
        if !tile.fits(device) || (emulated && seed % 3 != 0) {
            continue;
        }
        let width = if emulated { 36 } else { 136 };
        for (i, size) in [[70, 150], [9, SEGMENT + 70]].into_iter().enumerate() {
            if emulated && i == 1 && seed > 0 {
                continue;
            }
            let seed = (2 * seed + i) as u32;
            let shape = Attention::new(1, 2, size, if i == 0 { width } else { 5 }).kv_heads(1);
            let case = Case::new(seed, shape.causal(), unit);
            for split in [false, true] {
                let plan = gpu::Plan {
                    tile: Some(tile),
                    split: Some(split),
                };
                if !split || i == 1 {
                    case.check_with(device, Schedule { gpu: plan });
                }
            }
        }
    }
}

backend_suite! {
    near_pytorch,
    every_schedule,
    ragged_shapes,
    any_attention,
    segments_meet_in_order,
    wide_heads,
    panels_of_queries,
    n7_what_is_masked_does_not_show,
    n7_decoding_equals_prefill,
    n11_rows_without_keys,
    n11_scores_that_are_not_finite,
    n11_empty_shapes,
    other_orders_show,
    refusals,
}

#[test]
fn weights_are_exponentials() {
    let ieee = &Ieee::PLAIN;
    for i in 0..200_000 {
        // From -128 to 0, and a little above.
        let x = 0.01 - (hash(1, i) >> 8) as f32 / (1 << 17) as f32;
        let exact = crate::math::exp(ieee, x);
        let expected = if x < -87.0 { 0.0 } else { exact };
        let got = crate::math::exp_weight(ieee, x);
        assert_eq!(got.to_bits(), expected.to_bits(), "{x:e}");
    }
    for (x, y) in [
        (0.0, 1.0),
        (-0.0, 1.0),
        (f32::NEG_INFINITY, 0.0),
        (f32::MIN, 0.0),
        (-87.0, crate::math::exp(ieee, -87.0)),
        (88.0, crate::math::exp(ieee, 88.0)),
    ] {
        assert_eq!(crate::math::exp_weight(ieee, x).to_bits(), f32::to_bits(y));
    }
    assert!(crate::math::exp_weight(ieee, f32::NAN).is_nan());
}
