//! Maps over one and two arrays.

use super::{Case, Scale, upload};
use detml_kernels::ops::elementwise::{Binary, Operand, Unary, map_into, zip_into};

pub(crate) fn cases(scale: Scale) -> Vec<Case> {
    let n = scale.elements();
    let mut cases: Vec<_> = [
        Unary::Neg,
        Unary::Exp,
        Unary::Ln,
        Unary::Tanh,
        Unary::Sigmoid,
        Unary::Gelu,
        Unary::Sin,
    ]
    .into_iter()
    .map(|op| {
        let name = format!("{op:?}").to_lowercase();
        Case::new("elementwise", name, 8 * n, 0, move |device| {
            let x = upload(device, n)?;
            let mut out = device.empty(n)?;
            Ok(move || map_into(op, &x, &mut out))
        })
    })
    .collect();
    for op in [Binary::Add, Binary::Pow] {
        let name = format!("{op:?}").to_lowercase();
        cases.push(Case::new("elementwise", name, 12 * n, 0, move |device| {
            let x = upload(device, n)?;
            let mut out = device.empty(n)?;
            Ok(move || zip_into(op, [1, n], &x, &x, &mut out))
        }));
    }
    cases.push(Case::new(
        "elementwise",
        "add a row of 256",
        8 * n,
        0,
        move |device| {
            let x = upload(device, n)?;
            let row = upload(device, 256)?;
            let mut out = device.empty(n)?;
            Ok(move || {
                zip_into(
                    Binary::Add,
                    [n / 256, 256],
                    &x,
                    Operand::row(&row),
                    &mut out,
                )
            })
        },
    ));
    cases
}
