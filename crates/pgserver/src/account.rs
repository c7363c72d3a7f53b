//! The account that PostgreSQL runs under.
//!
//! PostgreSQL refuses to run as root, so root hands its servers to an account that exists: `postgres`, else `nobody`.
//! An account that merely has a number is not enough, since initdb looks its own name up. Any other account runs the servers
//! itself. Only folders that this process made are given to the account; nothing that was there before changes its owner.
//!
//! A trial shows whether the account can reach a folder. Only if it fails, the mode bits of the folders on the way are read,
//! to name the one that the account may not enter.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs, io};

const PASSWD: &str = "/etc/passwd";
/// In order of preference.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];
/// Variables of the caller that would change the behaviour of PostgreSQL's programs.
const UNWANTED: [&str; 12] = [
    "PGDATA",
    "PGPORT",
    "PGHOST",
    "PGHOSTADDR",
    "PGUSER",
    "PGDATABASE",
    "PGOPTIONS",
    "PGSERVICE",
    "PGPASSFILE",
    "PGDATESTYLE",
    "PGTZ",
    "PGCLIENTENCODING",
];

/// The account that runs the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// The account of this process.
    Own,
    /// This process is root's, and the servers run under another account.
    Other {
        /// The name in the account file.
        name: String,
        /// The user's number.
        uid: u32,
        /// The number of the user's first group.
        gid: u32,
    },
}

/// No account was found.
#[derive(Debug)]
pub enum AccountError {
    /// The file that lists the accounts cannot be read.
    Unreadable(io::Error),
    /// It has none of the accounts that could run servers.
    Missing,
}

impl fmt::Display for AccountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(e) => write!(f, "cannot read {PASSWD}: {e}"),
            Self::Missing => write!(
                f,
                "PostgreSQL does not run as root, and there is neither an account `postgres` nor `nobody` to run it \
                 as; make one (useradd --system postgres), or start onecopy as an ordinary user"
            ),
        }
    }
}

impl Account {
    /// The account for the servers of this process.
    pub fn choose() -> Result<Self, AccountError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Own);
        }
        let accounts = fs::read_to_string(PASSWD).map_err(AccountError::Unreadable)?;
        Self::among(&accounts).ok_or(AccountError::Missing)
    }

    /// The best account that the text of an account file lists.
    fn among(accounts: &str) -> Option<Self> {
        UNPRIVILEGED.iter().find_map(|wanted| {
            accounts.lines().find_map(|line| {
                let mut fields = line.split(':');
                let name = fields.next().filter(|name| name == wanted)?;
                let uid = fields.nth(1)?.parse().ok().filter(|&uid| uid != 0)?;
                let gid = fields.next()?.parse().ok()?;
                Some(Self::Other { name: name.to_owned(), uid, gid })
            })
        })
    }

    /// The user's number that files of the servers have.
    pub fn uid(&self) -> u32 {
        match self {
            Self::Own => rustix::process::geteuid().as_raw(),
            Self::Other { uid, .. } => *uid,
        }
    }

    /// Gives a folder that we made to the account.
    pub fn give(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Own => Ok(()),
            Self::Other { uid, gid, .. } => std::os::unix::fs::lchown(path, Some(*uid), Some(*gid)),
        }
    }

    /// A program of PostgreSQL, to be run by the account in `folder`, in a process group of its own so that a Ctrl-C
    /// on our terminal is ours alone to handle.
    pub fn command(&self, program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(folder).env("LC_ALL", "C").process_group(0);
        for name in UNWANTED {
            command.env_remove(name);
        }
        if let Self::Other { uid, gid, .. } = self {
            // The supplementary groups of root are dropped along with the user's number.
            command.uid(*uid).gid(*gid).env_remove("HOME");
        }
        command
    }

    /// The outermost folder on the way to `path` (itself included) that the account may not enter, going by the
    /// permission bits.
    pub fn stopped_at(&self, path: &Path) -> Option<PathBuf> {
        let mut way: Vec<&Path> = path.ancestors().filter(|p| !p.as_os_str().is_empty()).collect();
        way.reverse();
        way.into_iter()
            .find(|folder| fs::metadata(folder).is_ok_and(|m| m.is_dir() && !self.may_enter(&m)))
            .map(Path::to_owned)
    }

    fn may_enter(&self, folder: &Metadata) -> bool {
        let (uid, gid) = match self {
            Self::Own => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
            Self::Other { uid, gid, .. } => (*uid, *gid),
        };
        let shift = match () {
            () if folder.uid() == uid => 6,
            () if folder.gid() == gid => 3,
            () => 0,
        };
        folder.mode() >> shift & 1 == 1
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => write!(f, "this user"),
            Self::Other { name, .. } => write!(f, "`{name}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(name: &str, uid: u32, gid: u32) -> Account {
        Account::Other { name: name.to_owned(), uid, gid }
    }

    #[test]
    fn postgres_is_preferred_to_nobody_and_root_is_never_chosen() {
        let nobody = "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65533:nobody:/nonexistent:/bin/false\n";
        assert_eq!(Account::among(nobody), Some(other("nobody", 65534, 65533)));
        let both = format!("{nobody}postgres:x:101:104:PG:/var/lib/postgresql:/bin/bash\n");
        assert_eq!(Account::among(&both), Some(other("postgres", 101, 104)));
        let disguised = format!("postgres:x:0:0::/:/bin/sh\n{nobody}");
        assert_eq!(Account::among(&disguised), Some(other("nobody", 65534, 65533)));
        for torn in ["", "postgres", "postgres:x", "postgres:x:1", "postgres:x:one:1", "postgres2:x:1:1"] {
            assert_eq!(Account::among(torn), None, "{torn:?}");
        }
    }

    #[test]
    fn the_folder_in_the_way_is_named() {
        use std::os::unix::fs::PermissionsExt;
        let top = std::env::temp_dir().join(format!("onecopy-account-{}", std::process::id()));
        let closed = top.join("closed");
        let inner = closed.join("inner");
        fs::create_dir_all(&inner).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        // An account that owns nothing here.
        let stranger = other("stranger", 4_000_000_000, 4_000_000_000);
        assert_eq!(stranger.stopped_at(&inner), Some(closed.clone()));
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o711)).unwrap();
        assert_eq!(stranger.stopped_at(&inner), None);
        fs::remove_dir_all(&top).unwrap();
    }
}
