//! The account that servers run under: PostgreSQL and PgBouncer refuse to run as root.
//!
//! Root takes `postgres`, else `nobody`, in this order as onecopy does, so that all servers of a comparison run alike.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::fault::Fault;

const PASSWD: &str = "/etc/passwd";
/// In order of preference.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];

/// The numbers of another user, or nothing when we run as an ordinary user ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account(Option<(u32, u32)>);

impl Account {
    /// The account for the servers of this process.
    pub fn choose() -> Result<Self, Fault> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self(None));
        }
        let accounts = fs::read_to_string(PASSWD).map_err(Fault::system(format!("read {PASSWD}")))?;
        among(&accounts).map(|numbers| Self(Some(numbers))).ok_or_else(|| {
            Fault::Missing("servers do not run as root: make an account `postgres` or `nobody`".into())
        })
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

/// The user and group of the best account in the text of an account file.
fn among(accounts: &str) -> Option<(u32, u32)> {
    let find = |wanted: &&str| {
        accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            let _name = fields.next().filter(|name| name == wanted)?;
            let uid = fields.nth(1)?.parse().ok().filter(|&uid| uid != 0)?;
            Some((uid, fields.next()?.parse().ok()?))
        })
    };
    UNPRIVILEGED.iter().find_map(find)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_never_chosen() {
        let nobody = "root:x:0:0::/r:/bin/sh\nnobody:x:65534:65533:n:/none:/bin/false\n";
        assert_eq!(among(nobody), Some((65534, 65533)));
        assert_eq!(among(&format!("{nobody}postgres:x:101:104:p:/v:/bin/sh\n")), Some((101, 104)));
        assert_eq!(among(&format!("postgres:x:0:0::/:/bin/sh\n{nobody}")), Some((65534, 65533)));
        assert_eq!(among("postgres:x:one:1\n"), None);
    }
}
