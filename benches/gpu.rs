//! One table of every operation on the current device: time, bound and, where Python is present,
//! the peer's time in the same run.
//!
//! ```text
//! DETML_BACKEND=cuda cargo bench --features cuda --bench gpu -- [FILTER]... [--csv FILE]
//!     [--python PROGRAM] [--no-peers] [--seconds S]
//! ```
//!
//! A filter is part of `group/name`. Time is that of a call in a row of calls between two waits
//! for the device, the least of five such rows. The bound is the larger of bytes over bandwidth and
//! operations over arithmetic rate: the maker's figures for devices in [`PEAKS`], else those that
//! `DETML_BENCH_GBS` and `DETML_BENCH_GFLOPS` state, else the bandwidth of a copy measured here.
//! On the CPU backend `RAYON_NUM_THREADS` sets the threads, of the peers too.

#![allow(missing_docs)]

mod cases;

use cases::{Case, Scale, Work, upload};
use detml_core::Result;
use detml_kernels::Device;
use detml_kernels::ops::elementwise::{Unary, map_into};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::time::Instant;

/// Part of a device's name, GB/s of its memory, and GFLOP/s of fused multiply-adds of f32 at its
/// boost clock.
const PEAKS: [(&str, f64, f64); 3] = [
    ("H200", 4800.0, 66_900.0),
    ("H100", 3350.0, 66_900.0),
    ("A100", 2039.0, 19_500.0),
];

struct Options {
    filters: Vec<String>,
    csv: Option<String>,
    python: String,
    peers: bool,
    seconds: f64,
}

/// As filters and peers name it.
fn id(case: &Case) -> String {
    format!("{}/{}", case.group, case.name)
}

impl Options {
    fn parse() -> Self {
        let mut options = Self {
            filters: Vec::new(),
            csv: None,
            python: "python3".into(),
            peers: true,
            seconds: 0.2,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || {
                args.next()
                    .unwrap_or_else(|| panic!("{arg} needs a value after it"))
            };
            match arg.as_str() {
                // Cargo adds it.
                "--bench" => {}
                "--csv" => options.csv = Some(value()),
                "--python" => options.python = value(),
                "--seconds" => options.seconds = value().parse().expect("seconds"),
                "--no-peers" => options.peers = false,
                filter => options.filters.push(filter.into()),
            }
        }
        options
    }

    fn wants(&self, case: &Case) -> bool {
        let id = id(case);
        self.filters.is_empty() || self.filters.iter().any(|f| id.contains(f.as_str()))
    }
}

/// Seconds of a call: the least of five rows of calls.
fn time(device: &Device, work: &mut Work, seconds: f64) -> Result<f64> {
    let mut row = |calls: usize| -> Result<f64> {
        device.sync()?;
        let begin = Instant::now();
        for _ in 0..calls {
            work()?;
        }
        device.sync()?;
        Ok(begin.elapsed().as_secs_f64() / calls as f64)
    };
    row(1)?;
    let once = row(1)?.min(row(1)?);
    let calls = ((seconds / 5.0 / once) as usize).clamp(1, 2000);
    let mut best = once;
    for _ in 0..5 {
        best = best.min(row(calls)?);
    }
    Ok(best)
}

/// Bytes a second of a copy, and the name of where that is from.
fn copy_rate(device: &Device, scale: Scale, seconds: f64) -> Result<f64> {
    let n = scale.elements();
    let x = upload(device, n)?;
    let mut out = device.empty(n)?;
    let mut work: Work = Box::new(move || map_into(Unary::Neg, &x, &mut out));
    Ok(8.0 * n as f64 / time(device, &mut work, seconds)?)
}

fn stated(name: &str) -> Option<f64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Milliseconds of the peers by case, and who they are.
fn peers(options: &Options, scale: Scale) -> BTreeMap<String, (f64, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers");
    let mut command = Command::new(&options.python);
    command
        .arg(folder)
        .args(["--device", if scale.gpu { "cuda" } else { "cpu" }])
        .args(["--elements", &scale.elements().to_string()])
        .args(["--seconds", &options.seconds.to_string()])
        .args(&options.filters);
    if let Ok(threads) = std::env::var("RAYON_NUM_THREADS") {
        command.env("OMP_NUM_THREADS", threads);
    }
    let mut found = BTreeMap::new();
    match command.output() {
        Ok(output) => {
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let fields: Vec<_> = line.split('\t').collect();
                if let [id, ms, who] = fields[..] {
                    if let Ok(ms) = ms.parse() {
                        found.insert(id.to_owned(), (ms, who.to_owned()));
                    }
                }
            }
        }
        Err(error) => eprintln!("no peers: {} can't be run: {error}", options.python),
    }
    found
}

fn main() -> Result<()> {
    let options = Options::parse();
    let device = Device::current()?;
    let scale = Scale::of(&device);
    let copy = copy_rate(&device, scale, options.seconds)?;
    let peak = PEAKS.iter().find(|(part, ..)| device.name().contains(part));
    let bandwidth = stated("DETML_BENCH_GBS")
        .or(peak.map(|p| p.1))
        .map_or(copy, |gbs| gbs * 1e9);
    let rate = stated("DETML_BENCH_GFLOPS")
        .or(peak.map(|p| p.2))
        .map(|gflops| gflops * 1e9);
    println!(
        "{device} ({}): copy {:.0} GB/s; bounds from {:.0} GB/s and {}",
        device.name(),
        copy / 1e9,
        bandwidth / 1e9,
        rate.map_or("no arithmetic rate".into(), |r| format!(
            "{:.0} GFLOP/s",
            r / 1e9
        ))
    );
    let mut peers = if options.peers {
        peers(&options, scale)
    } else {
        BTreeMap::new()
    };
    let mut csv = options
        .csv
        .as_ref()
        .map(|path| std::fs::File::create(path).expect("csv"));
    println!(
        "| operation | ms | rate | bound, ms | bound / detml | peer, ms | detml / peer |\n\
         |---|---|---|---|---|---|---|"
    );
    for case in cases::all(scale) {
        if !options.wants(&case) {
            continue;
        }
        let id = id(&case);
        let seconds = match case
            .make(&device)
            .and_then(|mut work| time(&device, &mut work, options.seconds))
        {
            Ok(seconds) => seconds,
            Err(error) => {
                println!("| {id} | {error} | | | | | |");
                continue;
            }
        };
        let by_bytes = case.bytes as f64 / bandwidth;
        let by_flops = rate.map_or(0.0, |rate| case.flops as f64 / rate);
        let bound = by_bytes.max(by_flops);
        let rate = if by_flops > by_bytes || (rate.is_none() && case.flops > 0) {
            format!("{:.0} GFLOP/s", case.flops as f64 / seconds / 1e9)
        } else {
            format!("{:.0} GB/s", case.bytes as f64 / seconds / 1e9)
        };
        let peer = peers.remove(&id);
        let peer_columns = match &peer {
            Some((ms, who)) => format!("{ms:.4} {who} | {:.2}", seconds * 1e3 / ms),
            None => " | ".into(),
        };
        println!(
            "| {id} | {:.4} | {rate} | {:.4} | {:.0} % | {peer_columns} |",
            seconds * 1e3,
            bound * 1e3,
            100.0 * bound / seconds,
        );
        if let Some(csv) = &mut csv {
            let (ms, who) = peer.map_or((String::new(), String::new()), |(ms, who)| {
                (ms.to_string(), who)
            });
            writeln!(
                csv,
                "{id}\t{}\t{}\t{}\t{}\t{ms}\t{who}",
                seconds * 1e3,
                case.bytes,
                case.flops,
                bound * 1e3
            )
            .expect("csv");
        }
    }
    for (id, (ms, who)) in peers {
        println!("peer without a case: {id} {ms:.4} ms {who}");
    }
    Ok(())
}
