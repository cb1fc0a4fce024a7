//! Attention, forward and backward.

use super::{Lane, hash};
use crate::fixtures::Fixture;
use detml_core::Result;
use detml_kernels::ops::attention::{Attention, attention, attention_backward};
use detml_kernels::{Buffer, Device};

/// Elements of the fixture's features from `from` on, over and over.
fn cycled(device: &Device, f: &Fixture, from: usize, n: usize) -> Result<Buffer<f32>> {
    let x: Vec<f32> = f.x.iter().cycle().skip(from).take(n).copied().collect();
    device.upload(&x)
}

fn lane(
    name: &str,
    shape: Attention,
    [queries, keys]: [usize; 2],
    lengths: Option<Vec<u32>>,
) -> Lane {
    Lane::new(format!("attention/{name}"), move |device, f| {
        let q = cycled(device, f, 0, queries)?;
        let k = cycled(device, f, 1, keys)?;
        let v = cycled(device, f, 2, keys)?;
        let d_out = cycled(device, f, 3, queries)?;
        let lengths = match &lengths {
            Some(lengths) => Some(device.upload(lengths)?),
            None => None,
        };
        let y = attention(&shape, &q, &k, &v, lengths.as_ref())?;
        let g = attention_backward(&shape, &q, &k, &v, lengths.as_ref(), &y, &d_out)?;
        Ok(vec![
            ("out", hash(device, &y.out)?),
            ("log-sum-exp", hash(device, &y.log_sum_exp)?),
            ("d-q", hash(device, &g.q)?),
            ("d-k", hash(device, &g.k)?),
            ("d-v", hash(device, &g.v)?),
        ])
    })
    .takes(|f| {
        if f.x.is_empty() {
            Err("no features")
        } else {
            Ok(())
        }
    })
}

pub(super) fn lanes() -> Vec<Lane> {
    let shape = Attention::new(1, 2, [70, 70], 16).causal();
    let padded = Attention::new(2, 4, [9, 100], 20).kv_heads(2);
    let long = Attention::new(1, 2, [3, 1100], 8).kv_heads(1).causal();
    vec![
        lane("causal", shape, [2 * 70 * 16; 2], None),
        lane(
            "padded",
            padded,
            [8 * 9 * 20, 4 * 100 * 20],
            Some(vec![77, 0]),
        )
        .slow(),
        lane("long", long, [2 * 3 * 8, 1100 * 8], None).slow(),
    ]
}
