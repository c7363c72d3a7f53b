//! Folders and files that only the account of the node may read: the log, spilled rows, the description of a data folder.
//!
//! They hold the users' data and the verifiers of their passwords. So they get the modes 0700 and 0600 whatever the umask is,
//! and older ones are closed at the next start. A closed folder protects all files in it, also those that earlier versions
//! made there with other modes.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The mode bits of the group and of all others.
const OTHERS: u32 = 0o077;

/// Makes a folder, and its missing parents.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Options that make a file with mode 0600.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Takes all rights of other accounts to a folder or file away. A missing path is no error.
pub fn close(path: &Path) -> io::Result<()> {
    let mode = match fs::metadata(path) {
        Ok(found) => found.permissions().mode() & 0o777,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if mode & OTHERS == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS))?;
    tracing::warn!(path = %path.display(), "other accounts could read this (mode {mode:o}); it is closed to them now");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_to_others_is_closed() {
        let folder = std::env::temp_dir().join(format!("onecopy-owner-only-{}", std::process::id()));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        make_folder(&folder.join("inner")).unwrap();
        assert_eq!((mode(&folder), mode(&folder.join("inner"))), (0o700, 0o700));
        let file = folder.join("file");
        options().write(true).create(true).truncate(true).open(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        close(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        close(&folder.join("missing")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
