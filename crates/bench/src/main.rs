//! Benchmarks on real servers. `demo` gives a first impression. `proxy` measures the cost of onecopy between clients
//! and a server, and `crowd` the same for many clients on few server connections. `distance` puts the servers a
//! network away. `bulk` measures large transactions and their memory, and `rebuild` the throughput during a rebuild.
//! `schedulers` measures what a log and several schedulers cost. `drive` puts a workload on a running system. `run` compares
//! contestants by a plan, with reports and plots.
//!
//! A benchmark starts everything it needs in a temporary folder and on free ports, and removes it at the end, also
//! when it is interrupted. Compare numbers only within one run, because other load on the machine changes them.

mod bulk;
mod cpu;
mod demo;
mod distance;
mod drive;
mod judge;
mod load;
mod micro;
mod nap;
mod nodes;
mod outage;
mod pgbench;
mod plan;
mod proxy;
mod quota;
mod rebuild;
mod rubbos;
mod rubis;
mod run;
mod schedulers;
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
    /// Show in twenty seconds what onecopy does under load, when a server is lost and when it returns.
    Demo(demo::Options),
    /// Compare direct connections, PgBouncer, and onecopy with one replica.
    Proxy(proxy::Options),
    /// Compare PgBouncer and onecopy with many clients on few server connections, and measure their memory.
    Crowd(proxy::crowd::Options),
    /// Compare one PostgreSQL and onecopy when the servers are a network away.
    Distance(distance::Options),
    /// Compare large transactions with one PostgreSQL, and measure onecopy's memory.
    Bulk(bulk::Options),
    /// Measure the throughput while a replica is rebuilt.
    Rebuild(rebuild::Options),
    /// Measure how long C-JDBC is away without its controller, and how long a backend takes to return.
    CJdbcOutage(outage::Options),
    /// Compare a leader, a follower, and one node with its log in files.
    Nodes(nodes::Options),
    /// Measure what a log and several schedulers cost on TPC-W, and kill one of them.
    Schedulers(schedulers::Options),
    /// Run one workload on a running PostgreSQL or onecopy.
    Drive(Box<load::Options>),
    /// Compare contestants on workloads, by a plan, on servers of their own.
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
        Command::CJdbcOutage(options) => outage::run(&options, &interrupt, &news),
        Command::Nodes(options) => nodes::run(&options, &interrupt, &news),
        Command::Schedulers(options) => schedulers::run(&options, &interrupt, &news),
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
