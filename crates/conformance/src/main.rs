//! Checks that onecopy behaves as one PostgreSQL, on real servers of its own.
//!
//! `check-live` judges the operations and results of clients, as the simulator does. `differential` compares random
//! transactions through onecopy with one plain server. `soundness` runs random pairs of statements in both orders and
//! compares the results with the conclusions of the crate `sql`. `rolling` restarts nodes under load. `predict` and `classify` need no server: they
//! measure how much of a transaction is known when it begins, and the cost of analyzing a statement.

mod cache_audit;
mod classify;
mod differential;
mod live;
mod predict;
mod rolling;
mod soundness;
mod split;

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
    /// Run clients on replicated servers under faults, and judge their history as the simulator does.
    CheckLive(live::Options),
    /// Compare the cost of analyzing a statement, with and without the cache, with that of parsing it.
    Classify(classify::Options),
    /// Run random transactions through onecopy and on a plain server, and compare all replicas afterwards.
    Differential(differential::Options),
    /// Measure how much of TPC-C's and TPC-W's transactions is known at their first statements.
    Predict(predict::Options),
    /// Restart several nodes one after the other while clients work, none of which may get an error.
    Rolling(rolling::Options),
    /// Run random pairs of statements in both orders, and check the conclusions about them.
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
        Command::Rolling(options) => rolling::run(&options, &interrupt, &news),
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
