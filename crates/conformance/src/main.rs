//! Checks whether onecopy behaves as one PostgreSQL would, on real servers that it starts itself.
//!
//! `check-live` judges what clients saw, as the simulator does. `differential` compares random transactions through onecopy
//! with one plain server. `soundness` runs random pairs of statements in both orders and compares with what the crate `sql`
//! concludes about them. `predict` and `classify` need no server: they tell how much of a transaction is known when it
//! begins, and what it costs to know a statement.

mod classify;
mod differential;
mod live;
mod predict;
mod soundness;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use testbed::interrupt::Interrupt;

/// Checks of onecopy on real servers.
#[derive(Debug, Parser)]
#[command(name = "onecopy-conformance", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put clients on replicated servers and judge what they saw as the simulator does.
    CheckLive(live::Options),
    /// Compare knowing a statement, by the cache and without it, with parsing it.
    Classify(classify::Options),
    /// Run random transactions through onecopy and on a plain server, and compare what all replicas have.
    Differential(differential::Options),
    /// Tell how much of TPC-C's and TPC-W's transactions is known at their first statements.
    Predict(predict::Options),
    /// Run random pairs of statements in both orders and judge what was concluded about them.
    Soundness(soundness::Options),
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "this is where a check tells its result")]
fn main() -> ExitCode {
    let cli = Cli::parse();
    let news = |line: &str| eprintln!("{line}");
    let outcome = Interrupt::listen().and_then(|interrupt| match cli.command {
        Command::CheckLive(options) => live::run(&options, &interrupt, &news),
        Command::Classify(options) => classify::run(&options, &interrupt, &news),
        Command::Differential(options) => differential::run(&options, &interrupt, &news),
        Command::Predict(options) => predict::run(&options, &interrupt, &news),
        Command::Soundness(options) => soundness::run(&options, &interrupt, &news),
    });
    match outcome {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("conformance: {fault}");
            ExitCode::FAILURE
        }
    }
}
