//! Runs the operator's command that provides a server.
//!
//! For example, `elastic.provision = "/etc/onecopy/provision"`: the command starts a machine with an empty PostgreSQL,
//! or with a copy of a member, and prints `postgresql://10.0.0.7:5432` as its last line. Onecopy then adds the server as
//! ADD REPLICA does. If that fails, the command is run again after a pause, so it should print the same server again.

use std::fmt;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;

/// How long the command may take.
const PROVISION_MAX: Duration = Duration::from_mins(10);
/// The most bytes that it may print. It gets an error for more.
const OUTPUT_BYTES_MAX: u64 = 64 << 10;

/// The command provided no server.
#[derive(Debug)]
pub(crate) enum ProvisionError {
    /// It could not be run, or its output could not be read.
    Io(io::Error),
    /// It failed. What it wrote to standard error is in the log of the node.
    Failed(ExitStatus),
    /// It did not end in time, and was killed.
    Late,
    /// It printed no address.
    Silent,
}

impl fmt::Display for ProvisionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("elastic.provision ")?;
        match self {
            Self::Io(error) => write!(f, "cannot be run: {error}"),
            Self::Failed(status) => write!(f, "failed: {status}"),
            Self::Late => write!(f, "was killed after {} s", PROVISION_MAX.as_secs()),
            Self::Silent => f.write_str("printed no address of a server"),
        }
    }
}

impl std::error::Error for ProvisionError {}

/// Runs the command with the shell. Returns the last line that it printed.
pub(super) async fn address(command: &str) -> Result<String, ProvisionError> {
    tokio::time::timeout(PROVISION_MAX, run(command)).await.unwrap_or(Err(ProvisionError::Late))
}

async fn run(command: &str) -> Result<String, ProvisionError> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(ProvisionError::Io)?;
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // The pipe is closed behind this, so a command that prints without end fails.
        stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut text).await.map_err(ProvisionError::Io)?;
    }
    let status = child.wait().await.map_err(ProvisionError::Io)?;
    if !status.success() {
        return Err(ProvisionError::Failed(status));
    }
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.map(str::to_owned).ok_or(ProvisionError::Silent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_line_is_the_address() {
        let printed = address("echo starting; echo ' postgresql://a:1 '; echo").await;
        assert_eq!(printed.unwrap(), "postgresql://a:1");
        assert!(matches!(address("echo a; exit 3").await, Err(ProvisionError::Failed(_))));
        assert!(matches!(address("true").await, Err(ProvisionError::Silent)));
        let endless = address("yes").await.unwrap_err().to_string();
        assert!(endless.contains("elastic.provision failed"), "{endless}");
        let missing = address("/does/not/exist").await.unwrap_err().to_string();
        assert!(missing.contains("failed: exit status: 127"), "{missing}");
    }
}
