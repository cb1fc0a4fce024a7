//! Recurrences over time.

use super::{Case, Scale, numbers, upload};
use detml_kernels::Device;
use detml_kernels::ops::recurrence::{linear, linear_backward};
use detml_kernels::ops::selective_scan::{
    Scan, Shape, selective_scan, selective_scan_backward, selective_scan_saving,
};

pub(crate) fn cases(scale: Scale) -> Vec<Case> {
    let mut cases = Vec::new();
    let shapes: &[[usize; 3]] = match scale.gpu {
        true => &[[8, 2048, 2048], [32, 1024, 2048], [1, 16_384, 2048]],
        false => &[[2, 1024, 1024]],
    };
    for &[batch, time, channels] in shapes {
        let (n, shape) = (batch * time * channels, [batch, time, channels]);
        let what = format!("{batch}x{time}x{channels}");
        let name = format!("linear {what}");
        cases.push(Case::new(
            "recurrence",
            name,
            12 * n,
            2 * n,
            move |device| {
                let (a, b) = (upload(device, n)?, upload(device, n)?);
                Ok(move || linear(&a, &b, None, shape).map(drop))
            },
        ));
        let name = format!("linear backward {what}");
        cases.push(Case::new(
            "recurrence",
            name,
            20 * n,
            3 * n,
            move |device| {
                let (a, gradient) = (upload(device, n)?, upload(device, n)?);
                let states = linear(&a, &gradient, None, shape)?.states;
                Ok(move || linear_backward(&a, &states, None, &gradient, None, shape).map(drop))
            },
        ));
    }
    let shapes: &[[usize; 4]] = match scale.gpu {
        true => &[[8, 2048, 2048, 16], [1, 2048, 2048, 16]],
        false => &[[1, 512, 512, 16]],
    };
    for &[batch, time, channels, states] in shapes {
        let shape = Shape {
            batch,
            time,
            channels,
            states,
        };
        let n = batch * time * channels;
        let small = 2 * batch * time * states;
        let what = format!("{batch}x{time}x{channels} of {states}");
        // u, delta, z and the output; besides exp, a state takes two products and two fused ones.
        let (bytes, flops) = (4 * (4 * n + small), 6 * n * states);
        let name = format!("selective scan {what}");
        cases.push(Case::new("recurrence", name, bytes, flops, move |device| {
            let data = Data::new(device, shape)?;
            Ok(move || selective_scan(&data.scan()).map(drop))
        }));
        let (bytes, flops) = (4 * (7 * n + 2 * small), 24 * n * states);
        let name = format!("selective scan backward {what}");
        cases.push(Case::new("recurrence", name, bytes, flops, move |device| {
            let data = Data::new(device, shape)?;
            let (_, kept) = selective_scan_saving(&data.scan())?;
            Ok(move || selective_scan_backward(&data.scan(), &kept, &data.u, None).map(drop))
        }));
    }
    cases
}

struct Data {
    shape: Shape,
    u: detml_kernels::Buffer<f32>,
    a: detml_kernels::Buffer<f32>,
    b: detml_kernels::Buffer<f32>,
    each: detml_kernels::Buffer<f32>,
}

impl Data {
    fn new(device: &Device, shape: Shape) -> detml_core::Result<Self> {
        let n = shape.batch * shape.time * shape.channels;
        let rates: Vec<f32> = numbers(shape.channels * shape.states)
            .into_iter()
            .map(|x| -8.0 * (x + 0.5))
            .collect();
        Ok(Self {
            shape,
            u: upload(device, n)?,
            a: device.upload(&rates)?,
            b: upload(device, shape.batch * shape.time * shape.states)?,
            each: upload(device, shape.channels)?,
        })
    }

    fn scan(&self) -> Scan<'_> {
        Scan {
            d: Some(&self.each),
            z: Some(&self.u),
            bias: Some(&self.each),
            softplus: true,
            ..Scan::new(self.shape, &self.u, &self.u, &self.a, &self.b, &self.b)
        }
    }
}
