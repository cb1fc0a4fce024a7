use super::plain::{Data, Results};
use super::*;
use crate::suite::*;
use proptest::prelude::*;

/// Numbers in -1..1.
fn small(seed: u32, n: usize) -> Vec<f32> {
    (0..n as u32)
        .map(|i| (hash(seed, i) >> 8) as f32 / 8_388_608.0 - 1.0)
        .collect()
}

/// As a trained model has them, rates below zero; every bit of `options` gives one.
fn data(seed: u32, [batch, time, channels, states]: [usize; 4], options: u32) -> Data {
    let (n, inputs) = (batch * time * channels, batch * time * states);
    let has = |bit: u32| options >> bit & 1 == 1;
    let some = |bit: u32, n: usize| has(bit).then(|| small(seed + 10 + bit, n));
    Data {
        shape: Shape {
            batch,
            time,
            channels,
            states,
        },
        u: small(seed, n),
        delta: small(seed + 1, n),
        a: small(seed + 2, channels * states)
            .into_iter()
            .map(|x| -8.0 * x * x)
            .collect(),
        b: small(seed + 3, inputs),
        c: small(seed + 4, inputs),
        d: some(0, channels),
        z: some(1, n),
        bias: some(2, channels),
        softplus: has(3),
        initial: some(4, batch * channels * states),
        lengths: has(5).then(|| {
            (0..batch as u32)
                .map(|i| hash(seed + 5, i) % (time as u32 + 3))
                .collect()
        }),
        gradient: small(seed + 6, n),
        gradient_last: some(6, batch * channels * states),
    }
}

/// The operations' results on a device.
fn scan_on(device: &Device, x: &Data, block: Option<u32>) -> Results {
    let up = |x: &[f32]| device.upload(x).unwrap();
    let some = |x: &Option<Vec<f32>>| x.as_deref().map(up);
    let [u, delta, a, b, c] = [&x.u, &x.delta, &x.a, &x.b, &x.c].map(|x| up(x));
    let (d, z, bias, initial) = (some(&x.d), some(&x.z), some(&x.bias), some(&x.initial));
    let lengths = x.lengths.as_ref().map(|x| device.upload(x).unwrap());
    let scan = Scan {
        d: d.as_ref(),
        z: z.as_ref(),
        bias: bias.as_ref(),
        softplus: x.softplus,
        initial: initial.as_ref(),
        lengths: lengths.as_ref(),
        ..Scan::new(x.shape, &u, &delta, &a, &b, &c)
    };
    let (scanned, states) = run(&scan, true, block).unwrap();
    let plain = run(&scan, false, block).unwrap().0;
    let read = |x: &Buffer<f32>| device.read(x).unwrap();
    let (y, last) = (read(&scanned.y), read(&scanned.last));
    assert_bits("without checkpoints", &read(&plain.y), &y);
    let checkpoints = Checkpoints {
        states,
        shape: x.shape,
    };
    let gradient_last = some(&x.gradient_last);
    let g = back(
        &scan,
        &checkpoints,
        &up(&x.gradient),
        gradient_last.as_ref(),
        block,
    )
    .unwrap();
    let optional = |x: &Option<Buffer<f32>>| x.as_ref().map(read).unwrap_or_default();
    Results {
        y,
        last,
        du: read(&g.u),
        ddelta: read(&g.delta),
        da: read(&g.a),
        db: read(&g.b),
        dc: read(&g.c),
        dd: optional(&g.d),
        dz: optional(&g.z),
        dbias: optional(&g.bias),
        dinitial: read(&g.initial),
    }
}

#[track_caller]
fn equals_plain(device: &Device, x: &Data, block: Option<u32>) {
    let got = scan_on(device, x, block);
    let expected = plain::scan(x);
    let what = |name: &str| format!("{name} of {:?}, {block:?}, on {device}", x.shape);
    for (name, got, expected) in [
        ("y", &got.y, &expected.y),
        ("last", &got.last, &expected.last),
        ("du", &got.du, &expected.du),
        ("ddelta", &got.ddelta, &expected.ddelta),
        ("dinitial", &got.dinitial, &expected.dinitial),
        ("db", &got.db, &expected.db),
        ("dc", &got.dc, &expected.dc),
        ("da", &got.da, &expected.da),
    ] {
        assert_bits(&what(name), got, expected);
    }
    for (name, given, got, expected) in [
        ("dz", x.z.is_some(), &got.dz, &expected.dz),
        ("dd", x.d.is_some(), &got.dd, &expected.dd),
        ("dbias", x.bias.is_some(), &got.dbias, &expected.dbias),
    ] {
        if given {
            assert_bits(&what(name), got, expected);
        }
    }
}

const EVERY: u32 = 0x7f;

/// Mesa's CPU driver takes seconds to compile each variant: it gets two of them.
fn slow_to_compile(device: &Device) -> bool {
    matches!(device.backend(), detml_core::Backend::Wgpu(_))
}

fn shapes(device: &Device) {
    // More than one panel of steps, and of channels.
    equals_plain(device, &data(5, [2, 9, 33, 3], EVERY), None);
    equals_plain(device, &data(6, [1, 66, 2, 3], EVERY), None);
    if slow_to_compile(device) {
        return equals_plain(device, &data(7, [2, 5, 2, 16], 0), None);
    }
    for (i, shape) in [
        [0, 3, 2, 1],
        [2, 0, 3, 2],
        [2, 3, 0, 2],
        [2, 3, 4, 0],
        [1, 1, 1, 1],
        [1, 7, 5, 16],
    ]
    .into_iter()
    .enumerate()
    {
        equals_plain(device, &data(i as u32, shape, EVERY), None);
        equals_plain(device, &data(i as u32, shape, 0), None);
    }
    equals_plain(device, &data(8, [2, 200, 70, 16], EVERY), None);
    equals_plain(device, &data(9, [1, 130, 2, 2], EVERY & !(1 << 5)), None);
}

/// Options one by one.
fn options(device: &Device) {
    let step = match device.is_cpu() {
        true => 1,
        false => 13,
    };
    if !slow_to_compile(device) {
        for options in (0..=EVERY).step_by(step) {
            equals_plain(device, &data(options, [2, 5, 3, 5], options), None);
        }
    }
}

/// Blocks of steps don't show (`N8`).
fn schedules(device: &Device) {
    if device.is_cpu() {
        return equals_plain(device, &data(3, [3, 20, 64, 7], EVERY), None);
    }
    if slow_to_compile(device) {
        return equals_plain(device, &data(3, [1, 13, 2, 5], 0), Some(1));
    }
    for block in gpu::BLOCKS {
        let states = if block == 1 { 33 } else { 5 };
        let x = data(block, [1, 13, 2, states], EVERY);
        equals_plain(device, &x, Some(block));
    }
}

/// Decays that are subnormal, 0 or infinite beside others, and rates that are no numbers.
fn large_exponents(device: &Device) {
    if slow_to_compile(device) {
        return;
    }
    for wild in [false, true] {
        let mut x = data(11, [2, 70, 40, 16], EVERY & !(1 << 5));
        for (i, delta) in x.delta.iter_mut().enumerate() {
            *delta *= [1.0, 1.0, 8.0, 60.0, 300.0][hash(1, i as u32) as usize % 5];
        }
        for (i, a) in x.a.iter_mut().enumerate() {
            *a *= [1.0, 0.01, 10.0][hash(2, i as u32) as usize % 3];
            if wild {
                *a = match hash(3, i as u32) % 90 {
                    0 => f32::NAN,
                    1 => f32::NEG_INFINITY,
                    2 => 1.0,
                    3 => 0.0,
                    _ => *a,
                };
            }
        }
        equals_plain(device, &x, None);
    }
}

/// N7, N9: step by step has the bits of the whole, and so have two parts.
fn n7_parts_equal_the_whole(device: &Device) {
    let options = match slow_to_compile(device) {
        true => 1 << 4,
        false => EVERY & !(1 << 5),
    };
    let x = data(4, [1, 9, 3, 4], options);
    let whole = scan_on(device, &x, None);
    let parts: &[&[usize]] = match device.is_cpu() {
        true => &[&[4, 5], &[1; 9]],
        false => &[&[4, 5]],
    };
    for lengths in parts {
        let mut at = 0;
        let mut state = x.initial.clone();
        let mut y = Vec::new();
        for n in *lengths {
            let part = |v: &[f32], width: usize| v[at * width..(at + n) * width].to_vec();
            let mut one = x.clone();
            one.shape.time = *n;
            one.u = part(&x.u, 3);
            one.delta = part(&x.delta, 3);
            one.z = x.z.as_ref().map(|z| part(z, 3));
            one.b = part(&x.b, 4);
            one.c = part(&x.c, 4);
            one.gradient = part(&x.gradient, 3);
            one.initial = state;
            let scanned = scan_on(device, &one, None);
            y.extend(scanned.y);
            state = Some(scanned.last);
            at += n;
        }
        assert_bits("parts", &y, &whole.y);
        assert_bits("last states", &state.unwrap(), &whole.last);
    }
}

/// N8: what lies in padding, right of a member's length, shows nowhere.
fn n8_right_padding(device: &Device) {
    if slow_to_compile(device) {
        return;
    }
    let mut x = data(5, [2, 6, 3, 2], EVERY);
    x.lengths = Some(vec![4, 6]);
    let clean = scan_on(device, &x, None);
    for t in 4..6 {
        for i in 0..3 {
            for values in [&mut x.u, &mut x.delta, &mut x.gradient] {
                values[t * 3 + i] = f32::NAN;
            }
        }
        x.b[t * 2] = f32::INFINITY;
        x.c[t * 2 + 1] = f32::NAN;
    }
    let dirty = scan_on(device, &x, None);
    assert_bits("y", &dirty.y, &clean.y);
    assert_bits("last", &dirty.last, &clean.last);
    assert_bits("da", &dirty.da, &clean.da);
    assert!(dirty.y[12..18].iter().all(|y| y.to_bits() == 0));
    assert!(dirty.ddelta[12..18].iter().all(|y| y.to_bits() == 0));
    // The member alone, without padding.
    let mut alone = x.clone();
    alone.shape = Shape {
        batch: 1,
        time: 4,
        ..x.shape
    };
    for (values, len) in [
        (&mut alone.u, 12),
        (&mut alone.delta, 12),
        (&mut alone.gradient, 12),
        (&mut alone.b, 8),
        (&mut alone.c, 8),
    ] {
        values.truncate(len);
    }
    if let Some(z) = &mut alone.z {
        z.truncate(12);
    }
    for values in [&mut alone.initial, &mut alone.gradient_last]
        .into_iter()
        .flatten()
    {
        values.truncate(6);
    }
    alone.lengths = None;
    let alone = scan_on(device, &alone, None);
    assert_bits("alone", &alone.y, &clean.y[..12]);
    assert_bits("alone, last", &alone.last, &clean.last[..6]);
    assert_bits("alone, du", &alone.du, &clean.du[..12]);
}

fn refusals(device: &Device) {
    let x = device.upload(&[1.0f32; 6]).unwrap();
    let shape = |batch, time, channels, states| Shape {
        batch,
        time,
        channels,
        states,
    };
    for s in [
        shape(1, 2, 2, 1),
        shape(1, 2, 3, 1),
        shape(usize::MAX, 2, 3, 2),
        shape(0, usize::MAX, usize::MAX, 0),
    ] {
        assert!(selective_scan(&Scan::new(s, &x, &x, &x, &x, &x)).is_err());
    }
    let s = shape(1, 2, 3, 2);
    let b = device.upload(&[1.0f32; 4]).unwrap();
    let scan = Scan::new(s, &x, &x, &x, &b, &b);
    let (_, checkpoints) = selective_scan_saving(&scan).unwrap();
    assert!(selective_scan_backward(&scan, &checkpoints, &b, None).is_err());
    let other = Scan {
        shape: shape(2, 1, 3, 2),
        ..scan
    };
    assert!(selective_scan_backward(&other, &checkpoints, &x, None).is_err());
}

fn any_bits_any_shape(device: &Device) {
    let bits = prop::collection::vec(any::<u32>(), 1..400);
    let cases = (
        bits,
        any::<u32>(),
        1usize..9,
        1usize..40,
        1usize..7,
        0..=EVERY,
    );
    for_all(
        device,
        [48, 4],
        cases,
        |(bits, mask, time, channels, states, options)| {
            let (states, options) = match slow_to_compile(device) {
                true => (2, 0),
                false => (states, options),
            };
            let mut x = data(options, [1, time, channels, states], options);
            for (i, b) in bits.iter().enumerate() {
                let value = f32::from_bits(b & mask);
                let all = [
                    &mut x.u,
                    &mut x.delta,
                    &mut x.a,
                    &mut x.b,
                    &mut x.c,
                    &mut x.gradient,
                ];
                for (j, values) in all.into_iter().enumerate() {
                    let n = values.len();
                    if (i + j) % 3 == 0 {
                        values[(i * 7 + j) % n] = value;
                    }
                }
            }
            equals_plain(device, &x, None);
        },
    );
}

backend_suite! {
    shapes, options, schedules, large_exponents, n7_parts_equal_the_whole, n8_right_padding, refusals,
    any_bits_any_shape
}

/// The gradients are those of the function: central differences in binary64 agree.
#[test]
fn gradients_match_differences() {
    let x = data(6, [2, 5, 2, 3], EVERY & !(1 << 5));
    let out = plain::scan(&x);
    // sum of gradient * y + gradient_last * last, in binary64.
    let value = |x: &Data| {
        let s = x.shape;
        let at = |v: &Option<Vec<f32>>, i: usize| v.as_ref().map_or(0.0, |v| f64::from(v[i]));
        let mut total = 0.0f64;
        for m in 0..s.batch {
            for ch in 0..s.channels {
                let chain = m * s.channels + ch;
                let mut h: Vec<f64> = (0..s.states)
                    .map(|n| at(&x.initial, chain * s.states + n))
                    .collect();
                for t in 0..s.time {
                    let i = (m * s.time + t) * s.channels + ch;
                    let dt = (f64::from(x.delta[i]) + at(&x.bias, ch)).exp().ln_1p();
                    let u = f64::from(x.u[i]);
                    let mut y = at(&x.d, ch) * u;
                    for (n, h) in h.iter_mut().enumerate() {
                        let j = (m * s.time + t) * s.states + n;
                        let a = f64::from(x.a[ch * s.states + n]);
                        *h = (dt * a).exp() * *h + dt * u * f64::from(x.b[j]);
                        y += f64::from(x.c[j]) * *h;
                    }
                    let z = at(&x.z, i);
                    total += y * z / (1.0 + (-z).exp()) * f64::from(x.gradient[i]);
                }
                for (n, h) in h.iter().enumerate() {
                    total += h * at(&x.gradient_last, chain * s.states + n);
                }
            }
        }
        total
    };
    type Pick = fn(&mut Data) -> &mut Vec<f32>;
    let picks: [(&str, Pick, &[f32]); 9] = [
        ("u", |x| &mut x.u, &out.du),
        ("delta", |x| &mut x.delta, &out.ddelta),
        ("a", |x| &mut x.a, &out.da),
        ("b", |x| &mut x.b, &out.db),
        ("c", |x| &mut x.c, &out.dc),
        ("d", |x| x.d.as_mut().unwrap(), &out.dd),
        ("z", |x| x.z.as_mut().unwrap(), &out.dz),
        ("bias", |x| x.bias.as_mut().unwrap(), &out.dbias),
        ("initial", |x| x.initial.as_mut().unwrap(), &out.dinitial),
    ];
    for (name, pick, gradient) in picks {
        for (i, got) in gradient.iter().enumerate() {
            let mut moved = x.clone();
            let place = |moved: &mut Data, by: f32| {
                pick(moved)[i] += by;
                (f64::from(pick(moved)[i]), value(moved))
            };
            let (high_at, high) = place(&mut moved, 0.004);
            let (low_at, low) = place(&mut moved, -0.008);
            let expected = (high - low) / (high_at - low_at);
            let error = (f64::from(*got) - expected).abs();
            assert!(
                error < 2e-3 * (1.0 + expected.abs()),
                "{name}[{i}]: {got}, expected {expected}"
            );
        }
    }
}

/// Another order of the states, or a product fused with the state, shows.
#[test]
fn mistakes_show() {
    let x = data(6, [1, 1, 20, 16], 1 << 4);
    let right = plain::scan(&x);
    let ieee = Ieee::PLAIN;
    let (mut chain_differs, mut fused_differs) = (false, false);
    for channel in 0..20 {
        let mut y = 0.0;
        for n in 0..16 {
            let i = channel * 16 + n;
            let h = right.last[i];
            y = ieee.fma(x.c[n], h, y);
            let decay = crate::math::exp(&ieee, ieee.mul(x.delta[channel], x.a[i]));
            let v = ieee.mul(x.delta[channel], x.u[channel]);
            let kept = ieee.mul(decay, x.initial.as_ref().unwrap()[i]);
            fused_differs |= ieee.fma(v, x.b[n], kept).to_bits() != h.to_bits();
        }
        chain_differs |= y.to_bits() != right.y[channel].to_bits();
    }
    assert!(chain_differs && fused_differs);
}

/// Values of `scripts/near_recurrence.py`.
#[test]
fn matches_binary64() {
    const Y: [f64; 8] = [
        0.1261552380838129,
        -0.12907787700003578,
        -0.0947791926300154,
        0.26114721271398667,
        -0.03640382535678468,
        -0.11163825258809264,
        -0.013779986766090841,
        0.04259677839385652,
    ];
    const LAST: [f64; 10] = [
        -0.06994480173716668,
        -0.02702191006415774,
        -0.07903138266784931,
        0.03702616574450239,
        -0.12004504558401341,
        -0.32727407683676585,
        -0.31392170779297934,
        -0.2557162749548092,
        -0.021979219576334117,
        -0.2279446904185608,
    ];
    const DA: [f64; 10] = [
        -0.006334767908020995,
        0.01283205123930456,
        0.8393014207744374,
        -0.013180504407317524,
        -0.02347523227452793,
        0.07905314137294495,
        0.008058136205511669,
        0.004554025075851852,
        -0.00037591285075967294,
        0.0183631069880977,
    ];
    const DB: [f64; 10] = [
        -0.1064626804487227,
        -0.08039090424179987,
        0.09681190675632043,
        -0.0315362226804261,
        -0.06483410298889636,
        -0.0022719340853679243,
        0.34920588679438647,
        0.1565294570420289,
        0.015379870508354359,
        0.19803395694520026,
    ];
    const DC: [f64; 10] = [
        -0.06902706695595426,
        -0.10187648328460167,
        -0.2839613387054518,
        -0.23093572109060848,
        0.11445144505065127,
        -0.004329231715755924,
        -0.004313346824934553,
        -0.003284851510068219,
        -0.00045812327162178095,
        -0.002729143506583403,
    ];
    const DDELTA: [f64; 4] = [
        -0.017101495029387338,
        0.02951170938773294,
        -0.004535073587767219,
        -0.0011877668410172299,
    ];
    const DINITIAL: [f64; 10] = [
        0.09667284169898564,
        0.1442416860668949,
        -0.44297272719753544,
        0.11943724302158554,
        0.09313594147380794,
        0.025873434532117136,
        0.015937190455206706,
        -0.000361363849698272,
        0.00011137852876209008,
        0.0053476537961115065,
    ];
    let x = data(100, [1, 70, 2, 5], EVERY & !(1 << 5));
    let out = plain::scan(&x);
    let steps = |v: &[f32], width: usize, at: &[usize]| -> Vec<f32> {
        at.iter()
            .flat_map(|t| v[t * width..(t + 1) * width].to_vec())
            .collect()
    };
    for (name, got, expected) in [
        ("y", steps(&out.y, 2, &[0, 1, 40, 69]), &Y[..]),
        ("last", out.last.clone(), &LAST),
        ("da", out.da.clone(), &DA),
        ("db", steps(&out.db, 5, &[0, 69]), &DB),
        ("dc", steps(&out.dc, 5, &[0, 69]), &DC),
        ("ddelta", steps(&out.ddelta, 2, &[0, 30]), &DDELTA),
        ("dinitial", out.dinitial.clone(), &DINITIAL),
    ] {
        assert_eq!(got.len(), expected.len());
        for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
            let error = (f64::from(*got) - expected).abs();
            assert!(
                error < 2e-6 * (1.0 + expected.abs()),
                "{name}[{i}]: {got}, expected {expected}"
            );
        }
    }
}
