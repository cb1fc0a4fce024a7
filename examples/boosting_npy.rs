//! Trains on the arrays that a peer trained on, and prints what can be compared.
//!
//! ```text
//! boosting_npy --x X.npy --y Y.npy --xt XT.npy --yt YT.npy
//!              [--trees 200] [--depth 6] [--bins 255] [--repeat 1] [--out PROBABILITIES.npy]
//! ```

use detml::prelude::*;
use detml::{metrics, read_npy, write_npy};
use std::collections::HashMap;
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut options = HashMap::new();
    for pair in words.chunks(2) {
        let [name, value] = pair else {
            return Err(format!("{} has no value", pair[0]).into());
        };
        options.insert(name.trim_start_matches('-').to_owned(), value.clone());
    }
    let mut take = |name: &str, default: Option<&str>| {
        let given = options.remove(name).or(default.map(str::to_owned));
        given.ok_or_else(|| format!("--{name} is missing"))
    };
    let x = read_npy(take("x", None)?)?.into_matrix()?;
    let y = read_npy(take("y", None)?)?.into_vector()?;
    let xt = read_npy(take("xt", None)?)?.into_matrix()?;
    let yt = read_npy(take("yt", None)?)?.into_vector()?;
    let trees: usize = take("trees", Some("200"))?.parse()?;
    let depth: u32 = take("depth", Some("6"))?.parse()?;
    let bins: usize = take("bins", Some("255"))?.parse()?;
    let repeat: usize = take("repeat", Some("1"))?.parse()?;
    let out = take("out", Some(""))?;
    if let Some(name) = options.keys().next() {
        return Err(format!("--{name} is unknown").into());
    }

    let boosting = GradientBoosting::classifier()
        .n_trees(trees)
        .max_depth(depth)
        .max_bins(bins);
    for _ in 0..repeat {
        let (wall, cpu) = (Instant::now(), cpu_seconds());
        let model = boosting.fit((&x, &y))?;
        let (fit_wall, fit_cpu) = (wall.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let (wall, cpu) = (Instant::now(), cpu_seconds());
        let p = model.predict_proba(xt.view())?;
        let (wall, cpu) = (wall.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let auc = metrics::roc_auc(yt.view(), p.column(1))?;
        println!(
            "detml n={} d={} trees={trees} depth={depth}: fit wall {fit_wall:.3} cpu {fit_cpu:.2} | \
             predict {} wall {wall:.3} cpu {cpu:.3} | auc {auc:.5} | peak {} MiB",
            x.nrows(),
            x.ncols(),
            xt.nrows(),
            peak_kilobytes() / 1024,
        );
        println!("{}", model.report());
        println!("model {}\npredictions {}", model.bit_hash(), p.bit_hash());
        if !out.is_empty() {
            write_npy(&out, &p)?;
        }
    }
    Ok(())
}

/// User and system time of this process; 0 where there is no `/proc`.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name in parentheses; utime and stime are fields 14 and 15, in hundredths.
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |i: usize| {
        fields
            .get(i)
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}

/// The highest resident memory of this process; 0 where there is no `/proc`.
fn peak_kilobytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}
