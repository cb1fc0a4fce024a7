//! Convolutions and their gradients: layers of image networks.

use super::{Case, Scale, upload};
use detml_kernels::ops::conv::{Conv2d, conv2d, data_gradient, weight_gradient};

struct Layer {
    name: &'static str,
    x: [usize; 4],
    w: [usize; 4],
    conv: Conv2d,
}

fn layers(n: usize) -> Vec<Layer> {
    let layer = |name, channels, side, w: [usize; 4], stride, padding, groups| Layer {
        name,
        x: [n, channels, side, side],
        w,
        conv: Conv2d::new()
            .stride([stride; 2])
            .padding([[padding; 2]; 2])
            .groups(groups),
    };
    vec![
        layer("3x3", 256, 56, [256, 256, 3, 3], 1, 1, 1),
        layer("3x3 small", 512, 7, [512, 512, 3, 3], 1, 1, 1),
        layer("3x3 stride 2", 128, 56, [256, 128, 3, 3], 2, 1, 1),
        layer("7x7 stem", 3, 224, [64, 3, 7, 7], 2, 3, 1),
        layer("1x1", 256, 56, [64, 256, 1, 1], 1, 0, 1),
        layer("3x3 in 32 groups", 256, 56, [256, 8, 3, 3], 1, 1, 32),
        layer("3x3 depthwise", 256, 56, [256, 1, 3, 3], 1, 1, 256),
    ]
}

pub(crate) fn cases(scale: Scale) -> Vec<Case> {
    let size = |shape: [usize; 4]| shape.iter().product::<usize>();
    let mut cases = Vec::new();
    for Layer {
        name: layer,
        x,
        w,
        conv,
    } in layers(if scale.gpu { 64 } else { 4 })
    {
        let Ok(y) = conv.output(x, w) else { continue };
        let flops = 2 * size(y) * w[1] * w[2] * w[3];
        let bytes = 4 * (size(x) + size(w) + size(y));
        let name = |op: &str| format!("{op} {layer}");
        cases.push(Case::new(
            "conv",
            name("forward"),
            bytes,
            flops,
            move |device| {
                let (a, b) = (upload(device, size(x))?, upload(device, size(w))?);
                Ok(move || conv2d(&conv, &a, x, &b, w, None).map(drop))
            },
        ));
        cases.push(Case::new(
            "conv",
            name("data gradient"),
            bytes,
            flops,
            move |device| {
                let (a, b) = (upload(device, size(y))?, upload(device, size(w))?);
                Ok(move || data_gradient(&conv, &a, &b, w, x).map(drop))
            },
        ));
        cases.push(Case::new(
            "conv",
            name("weight gradient"),
            bytes,
            flops,
            move |device| {
                let (a, b) = (upload(device, size(x))?, upload(device, size(y))?);
                Ok(move || weight_gradient(&conv, &a, x, &b, w).map(drop))
            },
        ));
    }
    cases
}
