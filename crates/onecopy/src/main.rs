//! Onecopy: unmodified PostgreSQL servers behind one address, as one copy of the database.
//!
//! The binary is everything that the pure crates are not: sockets, clocks, processes, files. `node` puts it together;
//! `coordinator` holds the cluster core; `accept` and `session` serve clients, `replica` applies the log at servers. The
//! order of the folders is in ARCHITECTURE.md.

mod accept;
mod backend;
mod c_jdbc;
mod calendar;
mod capture;
mod classify;
mod cli;
mod client;
mod commit;
mod config;
mod connect;
mod coordinator;
mod database;
mod drive;
mod elastic;
mod error;
mod execute;
mod link;
mod local;
mod logging;
mod membership;
mod node;
mod perform;
mod place;
mod pool;
mod propagate;
mod relay;
mod replica;
mod result_cache;
mod rows;
mod security;
mod session;
mod shipping;
mod terminal;
mod transaction;
mod writeset;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, ExternalArguments};
use crate::terminal::Progress;

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
    let ended: Result<(), Box<dyn std::error::Error>> = runtime.block_on(async {
        match cli.command {
            Command::Up(up) => node::up::run(*up, &progress).await?,
            Command::Serve(serve) => node::serve::run(serve, &progress).await?,
            Command::Check(serve) => node::serve::check(&serve, &progress)?,
            Command::Explain(explain) => cli::explain::command(&explain, &progress).await?,
            Command::Placement(placement) => cli::placement::command(&placement, &progress)?,
            Command::Plan(plan) => cli::plan::command(&plan, &progress)?,
            Command::Log(log) => cli::log::command(log, &progress).await?,
            Command::Demo(demo) => {
                let words = [&["demo".into()], demo.arguments.as_slice()].concat();
                return Err(cli::external::become_program(&cli::external::BENCH, &words).into());
            }
            Command::Bench(ExternalArguments { arguments }) => {
                let program = cli::external::bench(&arguments);
                return Err(cli::external::become_program(program, &arguments).into());
            }
            Command::Sim(ExternalArguments { arguments }) => {
                return Err(cli::external::become_program(&cli::external::SIM, &arguments).into());
            }
            Command::Node(node) => cli::node::command(&node, &progress).await?,
            Command::Replica(replica) => cli::replica::command(&replica, &progress).await?,
            Command::Connect(connect) => cli::connect::command(&connect, &progress).await?,
            Command::Top(top) => cli::top::command(&top, &progress).await?,
            Command::Verify(verify) => cli::verify::command(verify.port, &progress).await?,
        }
        Ok(())
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress.failure(error);
            ExitCode::FAILURE
        }
    }
}
