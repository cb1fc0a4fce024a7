//! Kernels that break the rules, one each. A check that cannot fail is not a check: every proof
//! over kernels is first shown these.

use super::lint::Rule;
use crate::device::{Definition, Kernel};
use crate::ieee::{FloatProfile, Ieee};
use cubecl::ir::FastMath;
use cubecl::prelude::*;

#[cube]
fn bare_product(x: &Array<f32>, y: &Array<f32>, out: &mut Array<f32>) {
    let i = UNIT_POS as usize;
    out[i] = x[i] * y[i] + out[i];
}

#[cube]
fn vendor_function(x: &Array<f32>, out: &mut Array<f32>) {
    let i = UNIT_POS as usize;
    out[i] = x[i].exp();
}

#[cube]
fn vendor_comparison(x: &Array<f32>, y: &Array<f32>, out: &mut Array<u32>) {
    let i = UNIT_POS as usize;
    if x[i] != y[i] {
        out[i] = 1u32;
    }
}

#[cube]
fn float_atomic(x: &Array<f32>, out: &mut Array<Atomic<f32>>) {
    out[0].fetch_add(x[UNIT_POS as usize]);
}

#[cube]
fn plane(x: &Array<f32>, out: &mut Array<f32>) {
    let i = UNIT_POS as usize;
    out[i] = plane_sum(x[i]);
}

#[cube(fast_math = FastMath::all())]
fn fast_math(x: &Array<f32>, y: &Array<f32>, out: &mut Array<f32>) {
    let i = UNIT_POS as usize;
    out[i] = x[i] / y[i];
}

#[cube]
fn float_type(x: &Array<f32>, out: &mut Array<f32>) {
    let i = UNIT_POS as usize;
    out[i] = f32::cast_from(half::f16::cast_from(x[i]));
}

#[cube]
fn folding(x: &Array<f32>, out: &mut Array<f32>) {
    let i = UNIT_POS as usize;
    out[i] = x[i] + 0.0f32;
}

#[cube]
fn folded_literals(ieee: Ieee, out: &mut Array<f32>) {
    out[UNIT_POS as usize] = ieee.add(1.5f32, 0.1f32);
}

#[cube]
fn literal(out: &mut Array<f32>) {
    out[UNIT_POS as usize] = f32::new(comptime!(f32::INFINITY));
}

#[cube]
fn one_sum(x: &Array<f32>, out: &mut Array<f32>) {
    let i = UNIT_POS as usize;
    out[i] = out[i] + x[i];
}

fn kernel(
    name: &'static str,
    profile: FloatProfile,
    define: impl Fn(&mut Definition) + Send + Sync + 'static,
) -> Kernel {
    Kernel::new(name, profile, "sabotage", CubeDim::new_1d(32), define)
}

/// Kernels that each break a rule, with the rule.
pub fn sabotages() -> Vec<(Rule, Kernel)> {
    let native = FloatProfile::NATIVE;
    vec![
        (
            Rule::BareProduct,
            kernel("bare_product", native, |d| {
                let (x, y, out) = (d.input::<f32>(), d.input::<f32>(), d.output::<f32>());
                bare_product::expand(d.scope(), x, y, out);
            }),
        ),
        (
            Rule::VendorFunction,
            kernel("vendor_function", native, |d| {
                let (x, out) = (d.input::<f32>(), d.output::<f32>());
                vendor_function::expand(d.scope(), x, out);
            }),
        ),
        (
            Rule::VendorComparison,
            kernel("vendor_comparison", native, |d| {
                let (x, y, out) = (d.input::<f32>(), d.input::<f32>(), d.output::<u32>());
                vendor_comparison::expand(d.scope(), x, y, out);
            }),
        ),
        (
            Rule::FloatAtomic,
            kernel("float_atomic", native, |d| {
                let (x, out) = (d.input::<f32>(), d.output::<Atomic<f32>>());
                float_atomic::expand(d.scope(), x, out);
            }),
        ),
        (
            Rule::Plane,
            kernel("plane", native, |d| {
                let (x, out) = (d.input::<f32>(), d.output::<f32>());
                plane::expand(d.scope(), x, out);
            }),
        ),
        (
            Rule::FastMath,
            kernel("fast_math", native, |d| {
                let (x, y, out) = (d.input::<f32>(), d.input::<f32>(), d.output::<f32>());
                fast_math::expand(d.scope(), x, y, out);
            }),
        ),
        (
            Rule::FloatType,
            kernel("float_type", native, |d| {
                let (x, out) = (d.input::<f32>(), d.output::<f32>());
                float_type::expand(d.scope(), x, out);
            }),
        ),
        (
            Rule::Folding,
            kernel("folding", native, |d| {
                let (x, out) = (d.input::<f32>(), d.output::<f32>());
                folding::expand(d.scope(), x, out);
            }),
        ),
        (
            Rule::Folding,
            kernel("folded_literals", native, |d| {
                let ieee = d.ieee();
                let out = d.output::<f32>();
                folded_literals::expand(d.scope(), ieee, out);
            }),
        ),
        (
            Rule::Literal,
            kernel("literal", native, |d| {
                let out = d.output::<f32>();
                literal::expand(d.scope(), out);
            }),
        ),
        (
            Rule::NotNative,
            kernel("one_sum", FloatProfile::EMULATED, |d| {
                let (x, out) = (d.input::<f32>(), d.output::<f32>());
                one_sum::expand(d.scope(), x, out);
            }),
        ),
    ]
}
