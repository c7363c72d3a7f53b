//! Benchmarks: `demo`, a first impression; `proxy`, what a client pays on real servers for having onecopy in between;
//! `crowd`, the same for many clients on few server connections; `distance`, what onecopy costs and reaches when its
//! servers are a network away; `bulk`, what large transactions cost, and in how much memory; `rebuild`, the throughput
//! meanwhile; `drive`, a workload against what runs already; and `run`, a plan of comparisons with reports and plots.
//!
//! Everything a benchmark needs it starts itself, in a temporary folder and on free ports, and takes away again, also
//! when it is interrupted. Numbers are compared only within one run: on a machine that others use too, nothing else
//! means anything.

mod bulk;
mod cpu;
mod demo;
mod distance;
mod drive;
mod judge;
mod load;
mod micro;
mod pgbench;
mod plan;
mod proxy;
mod quota;
mod rebuild;
mod rubbos;
mod rubis;
mod run;
mod spread;
mod tpcc;
mod tpcw;
mod walk;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use testbed::interrupt::Interrupt;

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
    /// Compare large transactions with one PostgreSQL, and tell the middleware's memory.
    Bulk(bulk::Options),
    /// Tell the throughput while a replica is rebuilt.
    Rebuild(rebuild::Options),
    /// Put one workload on a PostgreSQL or onecopy that runs already.
    Drive(Box<load::Options>),
    /// Compare contestants on workloads, by a plan, on servers that are started for it.
    Run(run::Options),
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
        Command::Bulk(options) => bulk::run(&options, &interrupt, &news),
        Command::Rebuild(options) => rebuild::run(&options, &interrupt, &news),
        Command::Drive(options) => load::run(&options, &interrupt, &news),
        Command::Run(options) => run::run(&options, &interrupt, &news),
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
