//! Kernels that break the rules, one each. A check that cannot fail is not a check: every proof
//! over kernels is first shown these.

use super::lint::Rule;
use crate::device::{Buffer, Definition, Kernel, args};
use crate::ieee::{FloatProfile, Ieee};
use crate::prim;
use cubecl::ir::FastMath;
use cubecl::prelude::*;
use detml_core::Result;

#[cube]
fn bare_product(x: &Array<f32>, y: &Array<f32>, out: &mut Array<f32>) {
    let i = UNIT_POS as usize;
    out[i] = x[i] * y[i] + out[i];
}

/// A product as `ieee.mul` makes it, but with a -0 that the compiler sees: it makes a bare product
/// of it again.
#[cube]
fn literal_zero(x: &Array<f32>, y: &Array<f32>, out: &mut Array<f32>) {
    let i = UNIT_POS as usize;
    out[i] = fma(x[i], y[i], f32::new(comptime!(-0.0f32))) + out[i];
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

/// A division that compilers turn into a product by 1/4, which they contract.
#[cube]
fn literal_divisor(ieee: Ieee, x: &Array<f32>, out: &mut Array<f32>) {
    let i = UNIT_POS as usize;
    out[i] = ieee.sub(out[i], ieee.div(x[i], 4.0f32));
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
            Rule::Literal,
            kernel("literal_zero", native, |d| {
                let (x, y, out) = (d.input::<f32>(), d.input::<f32>(), d.output::<f32>());
                literal_zero::expand(d.scope(), x, y, out);
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
            Rule::Folding,
            kernel("literal_divisor", native, |d| {
                let ieee = d.ieee();
                let (x, out) = (d.input::<f32>(), d.output::<f32>());
                literal_divisor::expand(d.scope(), ieee, x, out);
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

#[cube]
fn ascending_sum(ieee: Ieee, x: &Array<f32>, out: &mut Array<f32>, n: u32) {
    let mut sum = prim::from_bits(0u32);
    for i in 0..n {
        sum = ieee.add(sum, x[i as usize]);
    }
    out[0] = ieee.canonical(sum);
}

/// The sum of all elements, one after the other: the right numbers in another order than the
/// contract's (`N5`), with the right arithmetic.
///
/// # Errors
/// Those of the device.
pub fn sum_in_another_order(x: &Buffer<f32>) -> Result<Buffer<f32>> {
    let device = x.device();
    if let Some(x) = x.host() {
        let ieee = Ieee::PLAIN;
        let sum = x.iter().fold(0.0, |sum, x| ieee.add(sum, *x));
        return device.upload(&[ieee.canonical(sum)]);
    }
    let mut out = device.empty(1)?;
    let kernel = Kernel::new(
        "ascending_sum",
        device.profile()?,
        (),
        CubeDim::new_1d(1),
        |d| {
            let ieee = d.ieee();
            let (x, out, n) = (d.input::<f32>(), d.output::<f32>(), d.scalar::<u32>());
            ascending_sum::expand(d.scope(), ieee, x, out, n);
        },
    );
    device.launch(&kernel, (1, 1, 1), args![x, &mut out, x.len() as u32])?;
    Ok(out)
}
