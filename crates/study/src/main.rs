//! `onecopy-sim`, the program that `onecopy sim` starts.

use std::process::ExitCode;

use clap::Parser;

/// Simulates clusters: the papers' experiments, and your own.
#[derive(Debug, Parser)]
#[command(name = "onecopy-sim", arg_required_else_help = true)]
struct Options {
    #[command(subcommand)]
    command: study::Sim,
}

fn main() -> ExitCode {
    match study::command(&Options::parse().command, &mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{error}\n"));
            ExitCode::FAILURE
        }
    }
}
