//! Builds the program that is measured or judged.

use std::path::{Path, PathBuf};

use crate::fault::Fault;
use crate::interrupt::Interrupt;
use crate::program;
use crate::scratch::Scratch;

/// Builds `onecopy` from the sources in `repository`, with all optimisations; the path of the program.
pub fn onecopy(
    repository: &Path,
    scratch: &Scratch,
    interrupt: &Interrupt,
    news: &dyn Fn(&str),
) -> Result<PathBuf, Fault> {
    news("building onecopy");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = program::command(cargo);
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
