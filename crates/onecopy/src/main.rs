//! Onecopy: unmodified PostgreSQL servers behind one address, as one copy of the database.
//!
//! The binary is everything that the pure crates are not: sockets, clocks, processes, files. `node` puts it together,
//! over servers that `up` runs; `hub` is where everybody meets; `frontend` serves clients, `agent` and `keeper` serve
//! replicas, the crate `commitlog` makes records durable, `postgres` runs servers, `capture` is what lies inside them.

mod access;
mod adoption;
mod agent;
mod backend;
mod calendar;
mod capture;
mod checksum;
mod cli;
mod clients;
mod companion;
mod config;
mod explain;
mod fill;
mod fleet;
mod frontend;
mod half_open;
mod hub;
mod in_force;
mod keeper;
mod learned;
mod lending;
mod logbook;
mod logging;
mod mailbox;
mod members;
mod metrics;
mod names;
mod node;
mod notify;
mod postgres;
mod reach;
mod rebuild;
mod scram;
mod seal;
mod serve;
mod shipping;
mod standing;
mod steward;
mod terminal;
mod tls;
mod top;
mod transactions;
mod up;
mod verify;
mod waits;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use terminal::Progress;

/// Sessions allocate and free small pieces all the time, on several threads (`bench proxy --before`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if !matches!(cli.command, Command::Serve(_)) {
        logging::start(logging::DEFAULT_LEVEL, false);
    }
    let progress = Progress::new();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            progress.failure(format_args!("cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(async {
        match cli.command {
            Command::Up(up) => up::run(up, &progress).await,
            Command::Serve(serve) => serve::run(serve, &progress).await,
            Command::Check(serve) => serve::check(&serve, &progress),
            Command::Explain(explain) => explain::command(&explain, &progress).await,
            Command::Log(log) => logbook::command(log, &progress).await,
            Command::Demo(demo) => {
                let words = [&["demo".into()], demo.arguments.as_slice()].concat();
                Err(companion::become_program(&companion::BENCH, &words))
            }
            Command::Bench(bench) => Err(companion::become_program(&companion::BENCH, &bench.arguments)),
            Command::Sim(sim) => Err(companion::become_program(&companion::SIM, &sim.arguments)),
            Command::Replica(replica) => fleet::command(&replica, &progress).await,
            Command::Top(top) => top::command(&top, &progress).await,
            Command::Verify(verify) => verify::command(verify.port, &progress).await,
        }
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress.failure(error);
            ExitCode::FAILURE
        }
    }
}
