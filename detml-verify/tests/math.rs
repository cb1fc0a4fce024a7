//! The elementary functions against exact values.

use detml_verify::math::{Effort, MathFunction, functions};

/// One in 4099 bit patterns, and all boundary neighbourhoods; `detml math --exhaustive` does all.
#[test]
fn errors_stay_within_the_stated_bounds() {
    for f in functions() {
        let found = f.sweep(Effort::Stride(4099));
        let (x, y) = found.at;
        assert_eq!(
            found.above,
            0,
            "{}: {} ulp at {x:08x} {y:08x?}, stated {}",
            f.name(),
            found.worst,
            f.bound()
        );
        assert!(found.worst > 0.45, "{}: {}", f.name(), found.worst);
    }
}

fn mpmath() -> Vec<(&'static MathFunction, f32, u32, f64)> {
    let word = |field: &str| u32::from_str_radix(field, 16).unwrap();
    include_str!("data/math.csv")
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let f = functions().iter().find(|f| f.name() == fields[0]).unwrap();
            let exact = u64::from_str_radix(fields[3], 16).unwrap();
            (
                f,
                f32::from_bits(word(fields[1])),
                word(fields[2]),
                f64::from_bits(exact),
            )
        })
        .collect()
}

/// The reference that sweeps use is right (tests/reference/math.py made the values).
#[test]
fn the_reference_agrees_with_mpmath() {
    for (f, x, y, exact) in mpmath() {
        let got = f.exact(x, y);
        // The logarithm of gamma and its derivative are held to 1 below 0.
        let least = if x < 0.0 && f.name().ends_with("gamma") {
            1.0
        } else {
            0.0
        };
        let error = if got == exact {
            0.0
        } else {
            (got - exact).abs() / exact.abs().max(least)
        };
        assert!(
            error < 1e-13,
            "{}({x:e}, {y:08x}): {got:e}, exact {exact:e}",
            f.name()
        );
    }
}

#[test]
fn functions_agree_with_mpmath() {
    for (f, x, y, exact) in mpmath() {
        let got = f.value(x, y);
        let error = f.error(x, got, exact);
        assert!(
            error <= f.bound(),
            "{}({x:e}, {y:08x}): {got:e}, exact {exact:e}",
            f.name()
        );
    }
}

/// A check that cannot fail is none: a result one unit off, a wrong sign of zero, a NaN of other
/// bits are all seen.
#[test]
fn wrong_results_are_seen() {
    let exp = functions().iter().find(|f| f.name() == "exp").unwrap();
    let exact = exp.exact(1.0, 0);
    let right = exact as f32;
    assert!(exp.error(1.0, right, exact) <= 0.5);
    assert!(exp.error(1.0, right.next_up().next_up(), exact) > 1.0);
    assert!(exp.error(1.0, right.next_down().next_down(), exact) > 1.0);
    assert!(exp.error(-200.0, -0.0, exp.exact(-200.0, 0)).is_infinite());
    assert!(
        exp.error(f32::NAN, f32::from_bits(0xffc0_0000), f64::NAN)
            .is_infinite()
    );
    assert!(exp.error(1.0, f32::NAN, exact).is_infinite());
    assert!(exp.error(200.0, f32::MAX, exp.exact(200.0, 0)) >= 1.0);
    assert!(exp.error(1.0, f32::INFINITY, exact) > 1.0);
}
