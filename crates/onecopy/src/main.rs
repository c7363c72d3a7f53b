//! The binary: it reads the command line and runs the command.

mod cli;
mod postgres;
mod terminal;

use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use cli::{Cli, Command, Up};
use postgres::{Server, UpError, UpOptions};
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
    let mut interrupt = signal(SignalKind::interrupt()).expect("the runtime has its signal driver");
    let started = async {
        let mut home = postgres::prepare(&options, progress).await?;
        home.start().await?;
        Ok(home)
    };
    let mut home = tokio::select! {
        home = started => home?,
        _ = interrupt.recv() => return Ok(()),
    };
    progress.say(format_args!("cluster {} in {}", home.cluster, home.dir.display()));
    for server in &home.servers {
        let (name, release) = (&server.name, &home.release.text);
        progress.result(format_args!(
            "{name} ({release}): psql -h {} -p {} -U postgres",
            server.host, server.port
        ));
    }
    let (stop, stopped) = watch::channel(());
    let mut watched = JoinSet::new();
    for server in home.servers.drain(..) {
        watched.spawn(keep_up(server, stopped.clone(), progress.clone()));
    }
    interrupt.recv().await;
    drop(stop);
    while watched.join_next().await.is_some() {}
    home.stop().await;
    Ok(())
}

/// Starts a server again whenever it ends, until the other half of `stopped` is dropped.
async fn keep_up(mut server: Server, mut stopped: watch::Receiver<()>, progress: Progress) {
    loop {
        tokio::select! {
            ending = server.exited() => progress.say(format_args!("{} ended: {ending}", server.name)),
            _ = stopped.changed() => return server.stop().await,
        }
        if let Err(error) = server.start().await {
            return progress.say(error);
        }
    }
}
