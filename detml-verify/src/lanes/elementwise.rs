//! Functions of one to three numbers, broadcasts, conversions.

use super::{Lane, hash, kebab, rotated, upload};
use crate::fixtures::word;
use detml_kernels::ops::elementwise::{
    self, Binary, Comparison, Operand, Ternary, Unary, compare, map, materialize, select, zip,
    zip_matrix, zip3,
};

/// The functions whose bits rest on the most code.
const QUICK: [&str; 12] = [
    "exp", "ln", "sin", "tanh", "sigmoid", "erf", "rsqrt", "sqrt", "mul", "div", "pow", "fma",
];

fn depth(lane: Lane, function: &str) -> Lane {
    if QUICK.contains(&function) {
        lane
    } else {
        lane.slow()
    }
}

pub(super) fn lanes() -> Vec<Lane> {
    let mut all = Vec::new();
    for &op in Unary::ALL {
        let name = kebab(op);
        let lane = Lane::of(format!("map/{name}"), move |device, f| {
            map(op, &upload(device, f)?)
        });
        all.push(depth(lane, &name));
    }
    for &op in Binary::ALL {
        let name = kebab(op);
        let lane = Lane::of(format!("zip/{name}"), move |device, f| {
            zip(op, &upload(device, f)?, &rotated(device, f, 2)?)
        });
        all.push(depth(lane, &name));
    }
    for &op in Comparison::ALL {
        let lane = Lane::of(format!("compare/{}", kebab(op)), move |device, f| {
            let (a, b) = (upload(device, f)?, rotated(device, f, 2)?);
            compare(op, [f.rows, f.columns], &a, &b)
        });
        all.push(lane.slow());
    }
    for &op in Ternary::ALL {
        let name = kebab(op);
        let lane = Lane::of(format!("zip3/{name}"), move |device, f| {
            let (a, b, c) = (
                upload(device, f)?,
                rotated(device, f, 2)?,
                rotated(device, f, 3)?,
            );
            zip3(op, [f.rows, f.columns], &a, &b, &c)
        });
        all.push(depth(lane, &name));
    }
    all.push(
        Lane::new("broadcast/sub", |device, f| {
            let shape = [f.rows, f.columns];
            let x = upload(device, f)?;
            let row = device.upload(f.row(0))?;
            let column: Vec<f32> = (0..f.rows).map(|r| f.row(r)[0]).collect();
            let column = device.upload(&column)?;
            let by = |operand| zip_matrix(Binary::Sub, shape, &x, operand);
            let transposed = Operand::strided(&x, 0, 1, f.columns);
            Ok(vec![
                ("row", hash(device, &by(Operand::row(&row))?)?),
                ("column", hash(device, &by(Operand::column(&column))?)?),
                ("number", hash(device, &by(Operand::from(0.75))?)?),
                (
                    "transposed",
                    hash(device, &materialize([f.columns, f.rows], transposed)?)?,
                ),
            ])
        })
        .slow(),
    );
    all.push(
        Lane::of("select", |device, f| {
            let (a, b) = (upload(device, f)?, rotated(device, f, 2)?);
            let mask: Vec<u32> = (0..f.x.len() as u32).map(|i| word(20, i) & 1).collect();
            let mask = device.upload(&mask)?;
            select([f.rows, f.columns], &mask, &a, &b)
        })
        .slow(),
    );
    all.push(
        Lane::new("cast", |device, f| {
            let x = upload(device, f)?;
            let words: Vec<u32> = f.x.iter().map(|v| v.to_bits()).collect();
            let signed: Vec<i32> = words.iter().map(|w| *w as i32).collect();
            let (words, signed) = (device.upload(&words)?, device.upload(&signed)?);
            Ok(vec![
                ("f32-to-u32", hash(device, &elementwise::f32_to_u32(&x)?)?),
                ("f32-to-i32", hash(device, &elementwise::f32_to_i32(&x)?)?),
                (
                    "u32-to-f32",
                    hash(device, &elementwise::u32_to_f32(&words)?)?,
                ),
                (
                    "i32-to-f32",
                    hash(device, &elementwise::i32_to_f32(&signed)?)?,
                ),
            ])
        })
        .slow(),
    );
    all
}
