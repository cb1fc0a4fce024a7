use super::*;
use crate::suite::*;
use proptest::prelude::*;

/// Sequences with every input, some of them not given.
struct Case {
    shape: [usize; 3],
    a: Vec<f32>,
    b: Vec<f32>,
    initial: Option<Vec<f32>>,
    gradient: Vec<f32>,
    gradient_last: Option<Vec<f32>>,
}

/// Factors near 1; now and then any bits.
fn factors(seed: u32, n: usize) -> Vec<f32> {
    (0..n as u32)
        .map(|i| {
            let h = hash(seed, i);
            match h % 300 {
                0 => f32::from_bits(h.rotate_left(11)),
                1 => f32::from_bits(h & 0x8000_0000),
                _ => 1.0 - (h >> 9) as f32 / 16_777_216.0,
            }
        })
        .collect()
}

impl Case {
    fn new(seed: u32, shape: [usize; 3]) -> Self {
        let (n, chains) = (shape.iter().product(), shape[0] * shape[2]);
        Self {
            shape,
            a: factors(seed, n),
            b: moderate(seed + 1, n),
            initial: (seed % 2 == 0).then(|| moderate(seed + 2, chains)),
            gradient: moderate(seed + 3, n),
            gradient_last: (seed % 3 == 0).then(|| moderate(seed + 4, chains)),
        }
    }

    #[track_caller]
    fn check(&self, device: &Device, way: Way) {
        let what = format!("{:?}, {way:?}", self.shape);
        let up = |x: &Vec<f32>| device.upload(x).unwrap();
        let (a, b, gradient) = (up(&self.a), up(&self.b), up(&self.gradient));
        let initial = self.initial.as_ref().map(up);
        let last = self.gradient_last.as_ref().map(up);
        let h = linear_by(&a, &b, initial.as_ref(), self.shape, way).unwrap();
        let expected = plain::linear(&self.a, &self.b, self.initial.as_deref(), self.shape);
        assert_bits(&what, &device.read(&h.states).unwrap(), &expected.0);
        assert_bits(&what, &device.read(&h.last).unwrap(), &expected.1);
        let got = backward_by(
            &a,
            &h.states,
            initial.as_ref(),
            &gradient,
            last.as_ref(),
            self.shape,
            way,
        )
        .unwrap();
        let [da, db, first] = plain::backward(
            &self.a,
            &expected.0,
            self.initial.as_deref(),
            &self.gradient,
            self.gradient_last.as_deref(),
            self.shape,
        );
        assert_bits(&what, &device.read(&got.a).unwrap(), &da);
        assert_bits(&what, &device.read(&got.b).unwrap(), &db);
        assert_bits(&what, &device.read(&got.initial).unwrap(), &first);
    }
}

fn shapes(device: &Device) {
    for (i, shape) in [
        [0, 3, 2],
        [2, 0, 3],
        [2, 3, 0],
        [1, 1, 1],
        [3, 33, 5],
        [2, 17, 70],
        [1, 8, 300],
    ]
    .into_iter()
    .enumerate()
    {
        Case::new(i as u32, shape).check(device, None);
        Case::new(i as u32 + 3, shape).check(device, None);
    }
}

fn n8_schedules_do_not_show(device: &Device) {
    if device.is_cpu() {
        Case::new(6, [2, 40, 700]).check(device, None);
        return;
    }
    for way in gpu::WAYS {
        let steps = match way {
            gpu::Way::Ahead(steps) => steps as usize,
            // Vulkan promises no more than 16 KiB of shared memory.
            gpu::Way::Tiles(tile)
                if tile.chains * tile.steps > 2048
                    && matches!(device.backend(), detml_core::Backend::Wgpu(_)) =>
            {
                continue;
            }
            gpu::Way::Tiles(tile) => tile.steps as usize,
        };
        for time in [1, steps, steps + 1, 70] {
            Case::new(6, [2, time, 9]).check(device, Some(way));
        }
        Case::new(6, [1, 2 * steps + 3, 40]).check(device, Some(way));
        Case::new(7, [3, steps - 1, 16]).check(device, Some(way));
    }
}

/// N9: a sequence in parts has the bits of the whole, forward and backward.
fn n9_parts_equal_the_whole(device: &Device) {
    let shape = [1, 21, 10];
    let case = Case::new(6, shape);
    let up = |x: &[f32]| device.upload(x).unwrap();
    let (a, b, gradient) = (up(&case.a), up(&case.b), up(&case.gradient));
    let initial = case.initial.as_ref().map(|x| up(x));
    let last = case.gradient_last.as_ref().map(|x| up(x));
    let whole = linear(&a, &b, initial.as_ref(), shape).unwrap();
    let back = linear_backward(
        &a,
        &whole.states,
        initial.as_ref(),
        &gradient,
        last.as_ref(),
        shape,
    )
    .unwrap();
    let states = device.read(&whole.states).unwrap();
    for split in [1, 13, 20] {
        let at = split * 10;
        let one = linear(
            &up(&case.a[..at]),
            &up(&case.b[..at]),
            initial.as_ref(),
            [1, split, 10],
        )
        .unwrap();
        let rest = [1, 21 - split, 10];
        let (a_rest, b_rest) = (up(&case.a[at..]), up(&case.b[at..]));
        let two = linear(&a_rest, &b_rest, Some(&one.last), rest).unwrap();
        assert_bits("states", &device.read(&two.states).unwrap(), &states[at..]);
        let later = linear_backward(
            &a_rest,
            &two.states,
            Some(&one.last),
            &up(&case.gradient[at..]),
            last.as_ref(),
            rest,
        )
        .unwrap();
        let sooner = linear_backward(
            &up(&case.a[..at]),
            &one.states,
            initial.as_ref(),
            &up(&case.gradient[..at]),
            Some(&later.initial),
            [1, split, 10],
        )
        .unwrap();
        for (whole, [first, second]) in [
            (&back.a, [&sooner.a, &later.a]),
            (&back.b, [&sooner.b, &later.b]),
        ] {
            let mut parts = device.read(first).unwrap();
            parts.extend(device.read(second).unwrap());
            assert_bits("gradients", &parts, &device.read(whole).unwrap());
        }
        assert_bits(
            "the initial state's gradient",
            &device.read(&sooner.initial).unwrap(),
            &device.read(&back.initial).unwrap(),
        );
    }
}

fn refusals(device: &Device) {
    let x = device.upload(&[1.0f32; 6]).unwrap();
    let short = device.upload(&[1.0f32; 2]).unwrap();
    assert!(linear(&x, &x, None, [1, 2, 2]).is_err());
    assert!(linear(&x, &short, None, [1, 2, 3]).is_err());
    assert!(linear(&x, &x, Some(&short), [1, 2, 3]).is_err());
    assert!(linear(&x, &x, None, [usize::MAX, 2, 3]).is_err());
    let none = device.upload::<f32>(&[]).unwrap();
    assert!(linear(&none, &none, None, [1 << 40, 0, 1 << 40]).is_err());
}

fn any_bits_any_shape(device: &Device) {
    let bits = prop::collection::vec(any::<u32>(), 0..600);
    let cases = (bits, any::<u32>(), 1usize..9, 1usize..40, any::<u32>());
    for_all(
        device,
        [64, 8],
        cases,
        |(bits, mask, time, channels, seed)| {
            let batch = bits.len() / (time * channels);
            let n = batch * time * channels;
            let x: Vec<f32> = bits.iter().map(|b| f32::from_bits(b & mask)).collect();
            let mut case = Case::new(seed % 6, [batch, time, channels]);
            case.a = x[..n].to_vec();
            case.b.clone_from(&case.a);
            case.b.rotate_left(n / 3);
            case.gradient.rotate_left(n / 2);
            case.check(device, None);
        },
    );
}

backend_suite! { shapes, n8_schedules_do_not_show, n9_parts_equal_the_whole, refusals, any_bits_any_shape }

/// A product rounded before its sum, and a sum fused where the contract rounds, show.
#[test]
fn mistakes_show() {
    let shape = [1, 30, 20];
    let case = Case::new(6, shape);
    let ieee = crate::ieee::Ieee::PLAIN;
    let (states, _) = plain::linear(&case.a, &case.b, case.initial.as_deref(), shape);
    let mut h = case.initial.clone().unwrap();
    let mut differs = false;
    for t in 0..30 {
        for c in 0..20 {
            let at = t * 20 + c;
            h[c] = ieee.canonical(ieee.add(ieee.mul(case.a[at], h[c]), case.b[at]));
            differs |= h[c].to_bits() != states[at].to_bits();
        }
    }
    assert!(differs);
    let [_, db, _] = plain::backward(&case.a, &states, None, &case.gradient, None, shape);
    let mut g = [0.0f32; 20];
    let mut a = [0.0f32; 20];
    let mut differs = false;
    for t in (0..30).rev() {
        for c in 0..20 {
            let at = t * 20 + c;
            g[c] = ieee.canonical(ieee.fma(a[c], g[c], case.gradient[at]));
            a[c] = case.a[at];
            differs |= g[c].to_bits() != db[at].to_bits();
        }
    }
    assert!(differs);
}

/// Values of `scripts/near_recurrence.py`.
#[test]
fn matches_binary64() {
    const STATES: [f64; 4] = [
        0.8941847085952759,
        -0.602237732314137,
        -0.5296586847042722,
        -0.4998947293619782,
    ];
    let small = |seed: u32| -> Vec<f32> {
        (0..100)
            .map(|i| (hash(seed, i) >> 8) as f32 / 8_388_608.0 - 1.0)
            .collect()
    };
    let (states, _) = plain::linear(&small(3), &small(4), None, [1, 100, 1]);
    for (t, expected) in [0, 1, 50, 99].into_iter().zip(STATES) {
        assert!((f64::from(states[t]) - expected).abs() < 3e-7, "state {t}");
    }
}
