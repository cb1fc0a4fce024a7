//! Convolutions and their gradients; images, weights and gradients are a fixture's numbers in a
//! row.

use super::{Lane, hash};
use crate::fixtures::Fixture;
use detml_core::Result;
use detml_kernels::ops::conv::{Conv2d, conv2d, data_gradient, weight_gradient};
use detml_kernels::{Buffer, Device};

#[derive(Clone, Copy)]
struct Setting {
    conv: Conv2d,
    x: [usize; 4],
    w: [usize; 4],
}

/// Three images of four channels: several panels of places.
const DENSE: Setting = Setting {
    conv: Conv2d::new().padding([[1, 1], [1, 2]]),
    x: [3, 4, 17, 16],
    w: [5, 4, 3, 3],
};

/// One image of many channels: several panels of channels and taps.
const DEEP: Setting = Setting {
    conv: Conv2d::new().padding([[1; 2]; 2]).stride([2, 1]),
    x: [1, 60, 6, 5],
    w: [6, 60, 3, 3],
};

/// Strides, dilations and groups of two channels.
const GROUPED: Setting = Setting {
    conv: Conv2d::new()
        .padding([[3, 2]; 2])
        .stride([3, 2])
        .dilation([2, 1])
        .groups(3),
    x: [2, 6, 14, 15],
    w: [6, 2, 3, 4],
};

/// A channel to each group.
const DEPTHWISE: Setting = Setting {
    conv: Conv2d::new().padding([[1; 2]; 2]).stride([2; 2]).groups(17),
    x: [2, 17, 13, 12],
    w: [17, 1, 3, 3],
};

/// `shape` numbers of the fixture from one `n`-th on; one that is too short begins again.
fn numbers(device: &Device, f: &Fixture, n: usize, shape: [usize; 4]) -> Result<Buffer<f32>> {
    let from = f.x.iter().cycle().skip(f.x.len() / n % f.x.len().max(1));
    let some: Vec<f32> = from.copied().take(shape.iter().product()).collect();
    device.upload(&some)
}

pub(super) fn lanes() -> Vec<Lane> {
    let settings = [
        ("dense", DENSE, true),
        ("deep", DEEP, false),
        ("grouped", GROUPED, true),
        ("depthwise", DEPTHWISE, false),
    ];
    let mut lanes = Vec::new();
    for (name, setting, quick) in settings {
        let lane = Lane::new(format!("conv/{name}"), move |device, f| {
            let Setting { conv, x, w } = setting;
            let y = conv.output(x, w)?;
            let images = numbers(device, f, 1, x)?;
            let weights = numbers(device, f, 2, w)?;
            let bias = numbers(device, f, 3, [1, 1, 1, w[0]])?;
            let gradient = numbers(device, f, 3, y)?;
            let forward = conv2d(&conv, &images, x, &weights, w, Some(&bias))?;
            let data = data_gradient(&conv, &gradient, &weights, w, x)?;
            let weight = weight_gradient(&conv, &images, x, &gradient, w)?;
            Ok(vec![
                ("forward", hash(device, &forward)?),
                ("data", hash(device, &data)?),
                ("weight", hash(device, &weight)?),
            ])
        });
        lanes.push(if quick { lane } else { lane.slow() });
    }
    lanes
}
