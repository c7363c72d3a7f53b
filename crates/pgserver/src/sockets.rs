//! The folder of the servers' Unix sockets.
//!
//! It lies in the data folder, unless that path is too long: the system limits the path of a socket to 107 bytes. Then it
//! is a folder in `/tmp`, open to the account of the servers alone. Its name comes from the cluster's id, so that a
//! later start finds it again. Every account may make folders there. So a folder of that name that belongs to another
//! account, or that others may enter, is not used; then the name is random.

use std::fs::{DirBuilder, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use cluster::ids::ClusterId;

use super::account::Account;

/// The longest path that a socket can have.
const SOCKET_PATH_LIMIT_BYTES: usize = 107;
/// The longest name that PostgreSQL gives a socket.
const LONGEST_NAME: &str = "/.s.PGSQL.65535";
const INSIDE: &str = "run";
const ELSEWHERE: &str = "/tmp";

/// A folder for sockets that belongs to the account and that no other account may enter.
pub(crate) fn folder(data: &Path, cluster: ClusterId, account: &Account) -> io::Result<PathBuf> {
    let inside = data.join(INSIDE);
    if fits(&inside) {
        return match make(&inside, account) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(inside),
            made => made.map(|()| inside),
        };
    }
    let known = Path::new(ELSEWHERE).join(format!("onecopy-{:012x}", cluster.0 >> 80));
    match make(&known, account) {
        Ok(()) => return Ok(known),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    if fs::symlink_metadata(&known).is_ok_and(|found| is_private(&found, account)) {
        return Ok(known);
    }
    let mut random = [0; 8];
    getrandom::fill(&mut random)?;
    let unknown = Path::new(ELSEWHERE).join(format!("onecopy-{:016x}", u64::from_ne_bytes(random)));
    make(&unknown, account).map(|()| unknown)
}

/// Removes the folder if it lies outside the data folder and is empty.
pub(crate) fn forget(sockets: &Path, data: &Path) {
    if !sockets.starts_with(data) {
        // A server that still runs keeps its socket, and so the folder.
        let _ = fs::remove_dir(sockets);
    }
}

/// Removes the socket of a server that is known to be gone. The lock file beside it names a process, and PostgreSQL would
/// take another program with that number for the owner.
pub(crate) fn clear(sockets: &Path, port: u16) -> io::Result<()> {
    for name in [format!(".s.PGSQL.{port}"), format!(".s.PGSQL.{port}.lock")] {
        match fs::remove_file(sockets.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn fits(folder: &Path) -> bool {
    folder.as_os_str().as_bytes().len() + LONGEST_NAME.len() <= SOCKET_PATH_LIMIT_BYTES
}

fn make(folder: &Path, account: &Account) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)?;
    account.give(folder)
}

fn is_private(folder: &Metadata, account: &Account) -> bool {
    folder.is_dir() && folder.uid() == account.uid() && folder.mode() & 0o777 == 0o700
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn sockets_lie_in_the_data_folder_when_the_path_is_short() {
        let scratch = Scratch::new();
        let first = folder(scratch.path(), ClusterId(1), &Account::Own).unwrap();
        assert_eq!(first, scratch.path().join("run"));
        assert_eq!(folder(scratch.path(), ClusterId(1), &Account::Own).unwrap(), first);
        forget(&first, scratch.path());
        assert!(first.exists());
    }

    #[test]
    fn a_long_path_moves_them_and_a_stranger_s_folder_is_not_used() {
        let scratch = Scratch::new();
        let long = scratch.path().join("x".repeat(100));
        fs::create_dir(&long).unwrap();
        let id = ClusterId(u128::from(std::process::id()) << 90);
        let first = folder(&long, id, &Account::Own).unwrap();
        assert!(fits(&first) && first.starts_with(ELSEWHERE), "{}", first.display());
        assert_eq!(fs::metadata(&first).unwrap().mode() & 0o777, 0o700);
        assert_eq!(folder(&long, id, &Account::Own).unwrap(), first);

        fs::set_permissions(&first, fs::Permissions::from_mode(0o755)).unwrap();
        let other = folder(&long, id, &Account::Own).unwrap();
        assert_ne!(other, first);
        for path in [first, other] {
            forget(&path, &long);
            assert!(!path.exists());
        }
    }

    #[test]
    fn clearing_removes_the_sockets_of_one_port_only() {
        let scratch = Scratch::new();
        for name in [".s.PGSQL.7", ".s.PGSQL.7.lock", ".s.PGSQL.77"] {
            fs::write(scratch.path().join(name), "").unwrap();
        }
        clear(scratch.path(), 7).unwrap();
        clear(scratch.path(), 7).unwrap();
        assert_eq!(scratch.names(), [".s.PGSQL.77"]);
    }
}
