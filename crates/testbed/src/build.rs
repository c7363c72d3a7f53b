//! Builds the program that is measured or judged.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fault::Fault;
use crate::interrupt::Interrupt;
use crate::program;
use crate::scratch::Scratch;

/// What the variables begin with by which cargo tells a program its package.
const OF_OUR_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// A cargo that builds as one does that a person starts. Build scripts of dependencies ask for the variables of a package,
/// so with ours they would run anew, and all that needs them would be built anew.
pub fn cargo() -> Command {
    let mut command = program::command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OF_OUR_PACKAGE.iter().any(|start| name.starts_with(start))) {
            command.env_remove(name);
        }
    }
    command
}

/// Builds `onecopy` from the sources in `repository`, with all optimisations; the path of the program.
pub fn onecopy(
    repository: &Path,
    scratch: &Scratch,
    interrupt: &Interrupt,
    news: &dyn Fn(&str),
) -> Result<PathBuf, Fault> {
    news("building onecopy");
    let mut command = cargo();
    command.current_dir(repository).args(["build", "--release", "--package", "onecopy"]);
    program::run("cargo build", &mut command, &scratch.path("build.log"), interrupt)?;
    let ourselves = std::env::current_exe().map_err(Fault::system("find our own program"))?;
    let target = ourselves.parent().and_then(Path::parent).map(|target| target.join("release/onecopy"));
    target.filter(|program| program.is_file()).ok_or_else(|| {
        Fault::Missing(
            "the built program is not beside ours: run `cargo xtask bench`, or name it by --onecopy".into(),
        )
    })
}
