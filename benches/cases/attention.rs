//! Attention, forward and backward.

use super::{Case, Scale, upload};
use detml_kernels::ops::attention::{Attention, attention, attention_backward};

pub(crate) fn cases(scale: Scale) -> Vec<Case> {
    // Batch, heads, heads of keys, queries, keys, width, causal.
    let shapes: &[([usize; 6], bool)] = if scale.gpu {
        &[
            ([1, 32, 32, 2048, 2048, 64], true),
            ([1, 32, 32, 2048, 2048, 64], false),
            ([1, 32, 8, 4096, 4096, 128], true),
            ([1, 32, 32, 4096, 4096, 128], true),
            ([1, 32, 32, 4096, 4096, 128], false),
            ([4, 32, 8, 1, 8192, 128], false),
        ]
    } else {
        &[
            ([1, 8, 8, 1024, 1024, 64], true),
            ([1, 8, 8, 1024, 1024, 64], false),
            ([1, 8, 2, 1024, 1024, 128], true),
            ([4, 8, 2, 1, 4096, 64], false),
        ]
    };
    let mut cases = Vec::new();
    for &([batch, heads, kv_heads, queries, keys, width], causal) in shapes {
        let shape = Attention::new(batch, heads, [queries, keys], width).kv_heads(kv_heads);
        let shape = if causal { shape.causal() } else { shape };
        let size = format!(
            "{batch}x{heads}x{kv_heads}x{queries}x{keys}x{width}{}",
            if causal { " causal" } else { "" }
        );
        let (n, m) = (
            batch * heads * queries * width,
            batch * kv_heads * keys * width,
        );
        // Pairs of a query and a key that it sees.
        let pairs = if causal {
            batch * heads * (queries * keys - queries * (queries - 1) / 2)
        } else {
            batch * heads * queries * keys
        };
        let product = 2 * pairs * width;
        let bytes = 4 * (2 * n + 2 * m);
        let name = format!("forward {size}");
        cases.push(Case::new(
            "attention",
            name,
            bytes,
            2 * product,
            move |device| {
                let (q, k, v) = (upload(device, n)?, upload(device, m)?, upload(device, m)?);
                Ok(move || attention(&shape, &q, &k, &v, None).map(drop))
            },
        ));
        if queries == 1 {
            continue;
        }
        let name = format!("forward and backward {size}");
        let bytes = 4 * (4 * n + 4 * m);
        cases.push(Case::new(
            "attention",
            name,
            bytes,
            7 * product,
            move |device| {
                let (q, k, v) = (upload(device, n)?, upload(device, m)?, upload(device, m)?);
                let d_out = upload(device, n)?;
                Ok(move || {
                    let y = attention(&shape, &q, &k, &v, None)?;
                    attention_backward(&shape, &q, &k, &v, None, &y, &d_out).map(drop)
                })
            },
        ));
    }
    cases
}
