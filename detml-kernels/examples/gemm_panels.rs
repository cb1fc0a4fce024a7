//! Error of products of matrices by panel length: the tables of `docs/numerics.md`, N6.
//!
//! ```text
//! cargo run --release -p detml-kernels --example gemm_panels
//! ```

use detml_kernels::ieee::Ieee;

/// Panel lengths, and whether the rounding errors of their fold are added at the end.
const ORDERS: [(usize, bool); 10] = [
    (128, false),
    (256, false),
    (512, false),
    (1024, false),
    (2048, false),
    (4096, false),
    (usize::MAX, false),
    (256, true),
    (512, true),
    (1024, true),
];

fn main() {
    let kinds: [(&str, fn(&mut u64) -> f64); 2] = [("normal", normal), ("positive", uniform)];
    for (kind, draw) in kinds {
        println!("{kind}: rms (largest) |error| / sum |a b| in units of 2^-24");
        print!("{:>6}", "k");
        for (panel, compensated) in ORDERS {
            let name = match (panel, compensated) {
                (usize::MAX, _) => "one chain".into(),
                (panel, true) => format!("{panel} comp"),
                (panel, false) => panel.to_string(),
            };
            print!("{name:>15}");
        }
        println!();
        for k in [256, 1024, 4096, 16384, 65536] {
            let trials = ((1 << 23) / k).clamp(200, 4000);
            let mut state = k as u64;
            let mut errors = [(0.0, 0.0f64); ORDERS.len()];
            for _ in 0..trials {
                let mut vector = || (0..k).map(|_| draw(&mut state) as f32).collect::<Vec<_>>();
                let (a, b) = (vector(), vector());
                let exact = |f: fn(f64) -> f64| -> f64 {
                    let terms = a.iter().zip(&b).map(|(x, y)| f(*x as f64 * *y as f64));
                    terms.sum()
                };
                let (sum, size) = (exact(|x| x), exact(f64::abs));
                for ((square, largest), (panel, compensated)) in errors.iter_mut().zip(ORDERS) {
                    let got = product(&a, &b, panel, compensated) as f64;
                    let error = ((got - sum) / size).abs() * (1 << 24) as f64;
                    *square += error * error;
                    *largest = largest.max(error);
                }
            }
            print!("{k:>6}");
            for (square, largest) in errors {
                let mean = (square / trials as f64).sqrt();
                print!("{:>15}", format!("{mean:.3} ({largest:.2})"));
            }
            println!();
        }
    }
}

fn product(a: &[f32], b: &[f32], panel: usize, compensated: bool) -> f32 {
    let ieee = Ieee::PLAIN;
    let (mut total, mut lost) = (0.0, 0.0);
    for (i, (a, b)) in a.chunks(panel).zip(b.chunks(panel)).enumerate() {
        let sum = a
            .iter()
            .zip(b)
            .fold(0.0, |sum, (&a, &b)| ieee.fma(a, b, sum));
        if i == 0 {
            total = sum;
            continue;
        }
        let new = total + sum;
        if compensated {
            let part = new - total;
            lost += (total - (new - part)) + (sum - part);
        }
        total = new;
    }
    total + lost
}

fn normal(state: &mut u64) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(state)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(state)).cos()
}

fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
