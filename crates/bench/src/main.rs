//! Benchmarks: `demo`, a first impression; `proxy`, what a client pays on real servers for having onecopy in between;
//! `check-live`, whether what clients saw could have come from one PostgreSQL; `classify`, what it costs to know a
//! statement; `distance`, what onecopy costs and reaches when its servers are a network away; `predict`, how much of a
//! transaction is known when it begins; `bulk`, what large transactions cost, and in how much memory; `drive`, a workload
//! against what runs already; `run`, a plan of comparisons with reports and plots; `soundness`, whether what is concluded
//! about statements holds on a real server; and `differential`, whether all replicas have what one server has.
//!
//! Everything a benchmark needs it starts itself, in a temporary folder and on free ports, and takes away again, also
//! when it is interrupted. Numbers are compared only within one run: on a machine that others use too, nothing else
//! means anything.

mod account;
mod bulk;
mod classify;
mod cpu;
mod demo;
mod differential;
mod distance;
mod drive;
mod fault;
mod interrupt;
mod judge;
mod live;
mod load;
mod machine;
mod micro;
mod pgbench;
mod plan;
mod postgres;
mod predict;
mod program;
mod proxy;
mod quota;
mod rebuild;
mod refusal;
mod rubbos;
mod rubis;
mod run;
mod scratch;
mod soundness;
mod spread;
mod tpcc;
mod tpcw;
mod walk;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use interrupt::Interrupt;

/// Benchmarks of onecopy.
#[derive(Debug, Parser)]
#[command(name = "onecopy-bench", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show in twenty seconds what onecopy does: load, the loss of a server, and what came of it.
    Demo(demo::Options),
    /// Compare direct connections, PgBouncer, and onecopy with one replica.
    Proxy(proxy::Options),
    /// Compare PgBouncer and onecopy with many clients on few server connections, and tell their memory.
    Crowd(proxy::crowd::Options),
    /// Compare one PostgreSQL and onecopy when the servers are a network away.
    Distance(distance::Options),
    /// Compare knowing a statement, by the cache and without it, with parsing it.
    Classify(classify::Options),
    /// Tell how much of TPC-C's and TPC-W's transactions is known at their first statements.
    Predict(predict::Options),
    /// Compare large transactions with one PostgreSQL, and tell the middleware's memory.
    Bulk(bulk::Options),
    /// Tell the throughput while a replica is rebuilt.
    Rebuild(rebuild::Options),
    /// Put clients on replicated servers and judge what they saw as the simulator does.
    CheckLive(live::Options),
    /// Run random transactions through onecopy and on a plain server, and compare what all replicas have.
    Differential(differential::Options),
    /// Put one workload on a PostgreSQL or onecopy that runs already.
    Drive(Box<load::Options>),
    /// Compare contestants on workloads, by a plan, on servers that are started for it.
    Run(run::Options),
    /// Run random pairs of statements in both orders and judge what was concluded about them.
    Soundness(soundness::Options),
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "this is where a benchmark tells its result")]
fn main() -> ExitCode {
    let cli = Cli::parse();
    let news = |line: &str| eprintln!("{line}");
    let outcome = Interrupt::listen().and_then(|interrupt| match cli.command {
        Command::Demo(options) => demo::run(&options, &interrupt, &news),
        Command::Proxy(options) => proxy::run(&options, &interrupt, &news),
        Command::Crowd(options) => proxy::crowd::run(&options, &interrupt, &news),
        Command::Distance(options) => distance::run(&options, &interrupt, &news),
        Command::Classify(options) => classify::run(&options, &interrupt, &news),
        Command::Predict(options) => predict::run(&options, &interrupt, &news),
        Command::Bulk(options) => bulk::run(&options, &interrupt, &news),
        Command::Rebuild(options) => rebuild::run(&options, &interrupt, &news),
        Command::CheckLive(options) => live::run(&options, &interrupt, &news),
        Command::Differential(options) => differential::run(&options, &interrupt, &news),
        Command::Drive(options) => load::run(&options, &interrupt, &news),
        Command::Run(options) => run::run(&options, &interrupt, &news),
        Command::Soundness(options) => soundness::run(&options, &interrupt, &news),
    });
    match outcome {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("bench: {fault}");
            ExitCode::FAILURE
        }
    }
}
