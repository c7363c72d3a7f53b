//! The account that servers run under: PostgreSQL and PgBouncer refuse to run as root.
//!
//! It is the one that `onecopy up` takes, so that all servers of a comparison run alike.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::fault::Fault;

/// The numbers of another user, or nothing when we run as an ordinary user ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account(Option<(u32, u32)>);

impl Account {
    /// The account for the servers of this process.
    pub fn choose() -> Result<Self, Fault> {
        match pgserver::Account::choose() {
            Ok(pgserver::Account::Own) => Ok(Self(None)),
            Ok(pgserver::Account::Other { uid, gid, .. }) => Ok(Self(Some((uid, gid)))),
            Err(error) => Err(Fault::Missing(error.to_string())),
        }
    }

    /// Gives a file or folder of ours to the account.
    pub fn give(self, path: &Path) -> Result<(), Fault> {
        let Some((uid, gid)) = self.0 else { return Ok(()) };
        std::os::unix::fs::lchown(path, Some(uid), Some(gid))
            .map_err(Fault::system(format!("give {} away", path.display())))
    }

    /// Lets the account run a program.
    pub fn runs(self, command: &mut Command) {
        if let Some((uid, gid)) = self.0 {
            command.uid(uid).gid(gid).env_remove("HOME");
        }
    }
}
