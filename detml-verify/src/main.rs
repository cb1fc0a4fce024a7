//! The `detml` command.

mod cli;

use clap::{Parser, Subcommand};
use detml_core::{Error, Result};
use detml_verify::judge::Verdict;
use std::process::ExitCode;

/// Doctor and verifier of detml.
///
/// Exit codes: 0 verified or agree, 1 mismatch, 2 usage, 3 refused, 4 cannot run, 5 no reference,
/// 6 incomparable, 7 incomplete, 8 malformed.
#[derive(Parser)]
#[command(name = "detml", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say what this machine has: CPU levels, devices, and how each computes.
    Doctor(cli::doctor::Args),
    /// Run every lane on every column of this machine and compare with the reference.
    Verify(cli::verify::Args),
    /// Run lanes on one column and write what it computed to a signed file.
    Witness(cli::witness::Args),
    /// Prove that what is wrong is seen: one input off by an ulp, one sum in another order.
    SelfTest(cli::self_test::Args),
    /// Write a hash after each stage of some longer computations.
    Trace(cli::trace::Args),
    /// Judge whether two witness files, or two traces, have the same bits.
    Compare(cli::compare::Args),
    /// Measure the elementary functions against exact values.
    Math(cli::math::Args),
    /// Put mistakes into every kernel and see that the lint or a suite notices.
    Sabotage(cli::sabotage::Args),
    /// Write SUPPORT_MATRIX.md from the evidence that is committed.
    Matrix(cli::matrix::Args),
    /// Prove that no compiler can change what a kernel computes.
    #[cfg(feature = "codegen")]
    Codegen(cli::codegen::Args),
}

fn main() -> ExitCode {
    let result: Result<Verdict> = match Cli::parse().command {
        Command::Doctor(args) => cli::doctor::run(&args),
        Command::Verify(args) => cli::verify::run(&args),
        Command::Witness(args) => cli::witness::run(&args),
        Command::SelfTest(args) => cli::self_test::run(&args),
        Command::Trace(args) => cli::trace::run(&args),
        Command::Compare(args) => cli::compare::run(&args),
        Command::Math(args) => cli::math::run(&args),
        Command::Sabotage(args) => cli::sabotage::run(&args),
        Command::Matrix(args) => cli::matrix::run(&args),
        #[cfg(feature = "codegen")]
        Command::Codegen(args) => cli::codegen::run(&args),
    };
    let verdict = result.unwrap_or_else(|error| {
        eprintln!("detml: {error}");
        match error {
            Error::InvalidParameter { .. } => Verdict::Usage,
            Error::DeviceRefused { .. } => Verdict::Refused,
            _ => Verdict::CannotRun,
        }
    });
    ExitCode::from(verdict as u8)
}
