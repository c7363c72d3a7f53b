//! The binary: it reads the command line and runs the command.

mod cli;
mod postgres;
mod terminal;

use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use cli::{Cli, Command, Up};
use postgres::{UpError, UpOptions};
use terminal::Progress;

fn main() -> ExitCode {
    let progress = Progress::new();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            progress.failure(format_args!("cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(async {
        match Cli::parse().command {
            Command::Up(up) => run(up, &progress).await.map_err(|error| error.to_string()),
            Command::Verify(verify) => Err(format!("nothing is served on port {} yet", verify.port)),
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

async fn run(up: Up, progress: &Progress) -> Result<(), UpError> {
    let options = UpOptions { replicas: up.replicas, data: up.data, pg_bin: up.pg_bin };
    let mut stop = signal(SignalKind::interrupt()).expect("the runtime has its signal driver");
    let mut home = postgres::prepare(&options, progress).await?;
    home.start().await?;
    for server in &home.servers {
        progress.result(format_args!("{}: psql -h {} -p {}", server.name, server.host, server.port));
    }
    stop.recv().await;
    home.stop().await;
    Ok(())
}
