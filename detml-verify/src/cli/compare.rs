//! `detml compare`.

use detml_core::{Error, Result};
use detml_verify::compare::{Agreement, compare};
use detml_verify::judge::Verdict;
use detml_verify::trace::{Comparison, Trace};
use detml_verify::witness::Witness;
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A file that `detml witness` or `detml trace` wrote.
    a: PathBuf,
    /// Another one of the same kind.
    b: PathBuf,
}

enum File {
    Witness(Box<Witness>),
    Trace(Trace),
}

/// How the first line of a witness starts.
const WITNESS: &[u8] = b"{\"witness\":";
/// How many differences are shown.
const SHOWN: usize = 10;

fn load(path: &Path) -> Result<File> {
    let mut start = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(WITNESS.len() as u64).read_to_end(&mut start))
        .map_err(|e| Error::io(path, &e))?;
    Ok(if start == WITNESS {
        File::Witness(Box::new(Witness::load(path)?))
    } else {
        File::Trace(Trace::load(path)?)
    })
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let mut files = Vec::new();
    for path in [&args.a, &args.b] {
        match load(path) {
            Err(error @ Error::Parse { .. }) => {
                println!("MALFORMED: {error}");
                return Ok(Verdict::Malformed);
            }
            file => files.push(file?),
        }
    }
    Ok(match &files[..] {
        [File::Witness(a), File::Witness(b)] => witnesses(a, b),
        [File::Trace(a), File::Trace(b)] => traces(a, b),
        _ => {
            println!("INCOMPARABLE: one file is a witness and the other a trace");
            Verdict::Incomparable
        }
    })
}

fn witnesses(a: &Witness, b: &Witness) -> Verdict {
    for witness in [a, b] {
        let head = &witness.head;
        println!(
            "{}, {}, {}, signed by {}",
            head.column, head.device, head.date, witness.key
        );
    }
    let agreement = compare(a, b);
    match &agreement {
        Agreement::Agree {
            results,
            not_applicable,
        } => println!("AGREE in {results} results; {not_applicable} lanes not applicable to one"),
        Agreement::Mismatch { differing, equal } => {
            println!("MISMATCH in {} results; {equal} are equal", differing.len());
            for (key, x, y) in differing.iter().take(SHOWN) {
                let shown =
                    |hash: &Option<String>| hash.clone().unwrap_or_else(|| "nothing".into());
                println!("  {key}: {}, {}", shown(x), shown(y));
            }
            if differing.len() > SHOWN {
                println!("  {} more", differing.len() - SHOWN);
            }
        }
        Agreement::Incomparable(why) => println!("INCOMPARABLE: {why}"),
        Agreement::Incomplete {
            results,
            lacking: [first_lacks, second_lacks],
            first,
        } => {
            println!(
                "INCOMPLETE: the first lacks {first_lacks} lanes on fixtures, the second \
                 {second_lacks}; {results} results are equal"
            );
            if let Some((lane, fixture)) = first {
                println!("  such as {lane} on {fixture}");
            }
        }
    }
    agreement.verdict()
}

fn traces(a: &Trace, b: &Trace) -> Verdict {
    let (left, right) = (&a.head.column, &b.head.column);
    match a.compare(b) {
        Comparison::Equal(stages) => {
            println!("AGREE in {stages} stages: {left}, {right}");
            Verdict::Verified
        }
        Comparison::Differs {
            at,
            stage,
            left: x,
            right: y,
        } => {
            println!("MISMATCH from stage {at} on, `{stage}`: {left} {x}, {right} {y}");
            Verdict::Mismatch
        }
        Comparison::Unlike(why) => {
            println!("INCOMPARABLE: {why}");
            Verdict::Incomparable
        }
    }
}
