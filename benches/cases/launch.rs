//! What an operation costs that computes next to nothing.

use super::{Case, Scale, upload};
use detml_kernels::ops::elementwise::{Binary, Unary, map, zip, zip_assign};

/// Operations of a chain.
const CHAIN: usize = 1000;

pub(crate) fn cases(_: Scale) -> Vec<Case> {
    vec![
        Case::new("launch", "one operation and a wait", 0, 0, |device| {
            let (device, x) = (device.clone(), upload(device, 1)?);
            Ok(move || {
                map(Unary::Neg, &x)?;
                device.sync()
            })
        }),
        Case::new("launch", "one element read", 0, 0, |device| {
            let (device, x) = (device.clone(), upload(device, 1)?);
            Ok(move || device.read(&x).map(drop))
        }),
        Case::new("launch", "1000 chained additions", 0, 0, |device| {
            let x = upload(device, 1)?;
            Ok(move || {
                let mut y = zip(Binary::Add, &x, 1.0)?;
                for _ in 1..CHAIN {
                    y = zip(Binary::Add, &y, 1.0)?;
                }
                Ok(())
            })
        }),
        Case::new("launch", "1000 additions in place", 0, 0, |device| {
            let mut x = upload(device, 1)?;
            Ok(move || {
                for _ in 0..CHAIN {
                    zip_assign(Binary::Add, [1, 1], &mut x, 1.0)?;
                }
                Ok(())
            })
        }),
    ]
}
