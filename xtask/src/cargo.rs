//! Cargo, started by a program that cargo has started.
//!
//! Cargo tells a program which package it belongs to, by variables. Build scripts of dependencies ask for the same
//! variables, so a cargo that inherits ours would build these dependencies, and all that needs them, anew.

use std::path::Path;
use std::process::Command;

/// What the variables begin with by which cargo tells a program its package.
const OF_OUR_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// A cargo that builds as one does that a person starts in `repository`.
pub(crate) fn command(repository: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(repository);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OF_OUR_PACKAGE.iter().any(|start| name.starts_with(start))) {
            command.env_remove(name);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_does_not_learn_of_our_package() {
        let command = command(Path::new("/"));
        let removed: Vec<_> = command.get_envs().filter(|(_, value)| value.is_none()).collect();
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION_MAJOR"] {
            assert!(std::env::var_os(name).is_some(), "cargo has told us {name}");
            assert!(removed.iter().any(|(one, _)| *one == name), "{name} is passed on");
        }
    }
}
