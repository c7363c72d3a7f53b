//! `onecopy bench`: hands everything on to the program `onecopy-bench`.
//!
//! Benchmarks need clients, plots and a simulator's judge, none of which belongs into a program that stands between
//! people and their data. So they are a program of their own, beside this one or on the path, and this is only its door.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The name of the other program.
const PROGRAM: &str = "onecopy-bench";

/// Becomes the other program; returns only to say why it did not.
pub(crate) fn become_bench(arguments: &[OsString]) -> String {
    let beside = std::env::current_exe().ok().and_then(|ourselves| Some(ourselves.parent()?.join(PROGRAM)));
    let program = beside.filter(|program| program.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(arguments).exec();
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{PROGRAM} is neither beside this program nor on the path; `cargo build --release --package bench` makes it"
        ),
        _ => format!("cannot run {}: {error}", program.display()),
    }
}
