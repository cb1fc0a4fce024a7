//! Transpose, gather, scatter, prefix sums and sums of segments.

use super::{Case, Scale, upload, words};
use detml_kernels::ops::segment::{self, Segments};
use detml_kernels::ops::transpose::transpose;
use detml_kernels::ops::{gather, scan, scatter};

fn shuffled(rows: usize) -> Vec<u32> {
    (0..rows as u32)
        .map(|i| i.wrapping_mul(2_654_435_769) % rows as u32)
        .collect()
}

pub(crate) fn cases(scale: Scale) -> Vec<Case> {
    let side = scale.elements().isqrt();
    let n = side * side;
    let mut cases = vec![Case::new(
        "movement",
        format!("transpose {side}x{side}"),
        8 * n,
        0,
        move |device| {
            let x = upload(device, n)?;
            Ok(move || transpose(&x, [side, side]).map(drop))
        },
    )];
    cases.push(Case::new(
        "movement",
        format!("prefix sum {n}"),
        8 * n,
        0,
        move |device| {
            let x = device.upload_vec(words(n))?;
            Ok(move || scan::exclusive(&x).map(drop))
        },
    ));
    let flags = move || -> Vec<u32> { words(n).into_iter().map(|w| w & 1).collect() };
    cases.push(Case::new(
        "movement",
        format!("compact half of {n}"),
        6 * n,
        0,
        move |device| {
            let x = device.upload_vec(flags())?;
            Ok(move || scan::compact(&x).map(drop))
        },
    ));
    cases.push(Case::new(
        "movement",
        format!("partition {n}"),
        8 * n,
        0,
        move |device| {
            let x = device.upload_vec(flags())?;
            Ok(move || scan::partition(&x).map(drop))
        },
    ));
    for columns in [1, 64] {
        let rows = n / columns;
        let bytes = 8 * rows * columns + 4 * rows;
        let name = |op: &str| format!("{op} rows of {columns}");
        cases.push(Case::new(
            "movement",
            name("gather"),
            bytes,
            0,
            move |device| {
                let index = device.upload(&shuffled(rows))?;
                let x = upload(device, rows * columns)?;
                Ok(move || gather::rows(&x, [rows, columns], &index).map(drop))
            },
        ));
        cases.push(Case::new(
            "movement",
            name("scatter"),
            bytes,
            0,
            move |device| {
                let index = device.upload(&shuffled(rows))?;
                let x = upload(device, rows * columns)?;
                let mut out = device.empty(rows * columns)?;
                Ok(move || scatter::rows(&mut out, [rows, columns], &index, &x))
            },
        ));
    }
    for (columns, groups) in [(1, 100_000), (28, 10)] {
        let rows = n / columns;
        cases.push(Case::new(
            "movement",
            format!("segment sum, {groups} of rows of {columns}"),
            4 * rows * columns,
            0,
            move |device| {
                let keys: Vec<u32> = (0..rows).map(|i| (i * groups / rows) as u32).collect();
                let keys = device.upload(&keys)?;
                let groups = Segments::of_sorted_keys(&keys, groups)?;
                let x = upload(device, rows * columns)?;
                Ok(move || segment::sum(&x, columns, &groups).map(drop))
            },
        ));
    }
    cases
}
