//! `onecopy demo`, `onecopy bench` and `onecopy sim` run the programs `onecopy-bench`, `onecopy-conformance` and
//! `onecopy-sim` with the same arguments.
//!
//! Benchmarks and experiments need clients, plots and a simulator. None of these belongs into the program that serves
//! people's data. So they are programs of their own, beside this one or on the path.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::error::CommandError;

pub(crate) struct ExternalProgram {
    program: &'static str,
    /// The package that builds it.
    package: &'static str,
}

pub(crate) const BENCH: ExternalProgram = ExternalProgram { program: "onecopy-bench", package: "bench" };
const CONFORMANCE: ExternalProgram =
    ExternalProgram { program: "onecopy-conformance", package: "conformance" };
/// The commands of `onecopy bench` that are checks.
const CHECKS: [&str; 5] = ["check-live", "classify", "differential", "predict", "soundness"];
pub(crate) const SIM: ExternalProgram = ExternalProgram { program: "onecopy-sim", package: "study" };

/// The program for `onecopy bench` with these arguments.
pub(crate) fn bench(arguments: &[OsString]) -> &'static ExternalProgram {
    let is_check = arguments.first().is_some_and(|word| CHECKS.iter().any(|check| word == check));
    if is_check { &CONFORMANCE } else { &BENCH }
}

/// Replaces this process by the other program. Returns only on an error.
pub(crate) fn become_program(external: &ExternalProgram, arguments: &[OsString]) -> CommandError {
    let name = external.program;
    let beside = std::env::current_exe().ok().and_then(|ourselves| Some(ourselves.parent()?.join(name)));
    let program = beside.filter(|program| program.is_file()).unwrap_or_else(|| PathBuf::from(name));
    let source = Command::new(&program).args(arguments).exec();
    match source.kind() {
        io::ErrorKind::NotFound => CommandError::NoProgram { name, package: external.package },
        _ => CommandError::NotRun { path: program, source },
    }
}
