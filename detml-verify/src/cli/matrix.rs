//! `detml matrix`.

use detml_core::{Error, Result, write_atomic};
use detml_verify::judge::Verdict;
use detml_verify::matrix::{FILE, Sources};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The root of the repository.
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// Write nothing; say whether the page is what the evidence says.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let page = Sources::load(&args.root)?.page();
    let path = args.root.join(FILE);
    if !args.check {
        write_atomic(&path, page.as_bytes())?;
        println!("{}", path.display());
        return Ok(Verdict::Verified);
    }
    let committed = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, &e))?;
    if committed == page {
        println!("{} is what the evidence says", path.display());
        return Ok(Verdict::Verified);
    }
    let line = |text: &str, at: usize| text.lines().nth(at).unwrap_or("nothing").to_owned();
    let same = page.lines().zip(committed.lines());
    let at = same.take_while(|(now, before)| now == before).count();
    println!("{} differs from line {} on:", path.display(), at + 1);
    println!("  there:    {}", line(&committed, at));
    println!("  evidence: {}", line(&page, at));
    Ok(Verdict::Mismatch)
}
