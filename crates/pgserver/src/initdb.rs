//! Makes the files of new servers.
//!
//! Every server gets an initdb of its own, all at the same time: copies of one would share a system identifier, and
//! PostgreSQL's own tools take that for one server and its physical replica. The locale is C.UTF-8 (order by code
//! point, the same on every machine), or C where the system does not have it; a cluster gets one of the two for all its
//! servers, since they run on one machine with the same programs.
//!
//! initdb does not sync; the folder is synced once, when it is complete.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{fmt, fs, io};

use tokio::process::Command;
use tokio::task::JoinSet;

use super::account::Account;
use super::folder::{Folder, FolderError};
use super::locate::Binaries;

/// In order of preference.
const LOCALES: [&str; 2] = ["C.UTF-8", "C"];
/// So many of initdb's last lines go into an error.
const LAST_LINES: usize = 8;

/// The files of a new server could not be made.
#[derive(Debug)]
pub enum InitError {
    /// The folder could not be made ready.
    Folder(FolderError),
    /// initdb could not be run at all.
    NotRun {
        /// The program.
        program: PathBuf,
        /// The answer of the system.
        error: io::Error,
    },
    /// initdb gave up.
    Failed {
        /// Its last lines.
        said: String,
    },
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(error) => error.fmt(f),
            Self::NotRun { program, error } => write!(f, "cannot run {}: {error}", program.display()),
            Self::Failed { said } => {
                write!(f, "PostgreSQL could not make the files of a new server; initdb says:\n{said}")
            }
        }
    }
}

/// Makes the files of `servers` servers in the folder; they are not the folder's cluster yet.
pub(crate) async fn make(
    folder: &Folder,
    servers: u16,
    binaries: &Binaries,
    account: &Account,
) -> Result<(), InitError> {
    let mut running = JoinSet::new();
    for number in 1..=servers {
        let data = folder.begin(number).map_err(InitError::Folder)?;
        let (program, account) = (binaries.initdb(), account.clone());
        running.spawn(async move { one(&program, &data, &account).await });
    }
    // The first failure drops the set, and with it every initdb that still runs.
    while let Some(ended) = running.join_next().await {
        ended.expect("the task neither panics nor is cancelled while we wait for it")?;
    }
    Ok(())
}

async fn one(program: &Path, data: &Path, account: &Account) -> Result<(), InitError> {
    prepare(data, account).map_err(InitError::Folder)?;
    for (last, locale) in LOCALES.iter().enumerate().map(|(n, locale)| (n + 1 == LOCALES.len(), locale)) {
        let mut command = Command::from(account.command(program, data));
        command
            .args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync"])
            .arg(format!("--locale={locale}"))
            .arg("--pgdata")
            .arg(data)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = command.output().await.map_err(|error| cannot_run(program, data, account, error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        if last || !said.contains("locale") {
            return Err(InitError::Failed { said: last_lines(&said, LAST_LINES) });
        }
    }
    unreachable!("the last locale returns")
}

/// An empty folder of the account's own, which it can reach.
fn prepare(data: &Path, account: &Account) -> Result<(), FolderError> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(data, fs::Permissions::from_mode(0o700))
        .and_then(|()| account.give(data))
        .map_err(FolderError::io("give to its account", data))
}

/// The cause is a folder on the way that is closed to the account, or a program that does not run.
fn cannot_run(program: &Path, data: &Path, account: &Account, error: io::Error) -> InitError {
    match account.stopped_at(data) {
        Some(at) if error.kind() == io::ErrorKind::PermissionDenied => {
            InitError::Folder(FolderError::Closed { at, account: account.to_string() })
        }
        _ => InitError::NotRun { program: program.to_owned(), error },
    }
}

/// The last lines of a text, indented.
pub(super) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let rest = &lines[lines.len().saturating_sub(count)..];
    rest.iter().map(|line| format!("  {}", line.trim_end())).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_without_blank_ones() {
        assert_eq!(last_lines("a\n\nb\nc\n\n", 2), "  b\n  c");
        assert_eq!(last_lines("a", 2), "  a");
        assert_eq!(last_lines("", 2), "");
    }
}
