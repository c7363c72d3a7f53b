//! Putting a new data folder in the place of an old one, so that a crash leaves one of the two, whole.
//!
//! ```text
//! replica-1.copying    a copy is being made; of no use
//! replica-1.new        the copy is complete, on disk
//! replica-1.old        the former folder; to be removed
//! ```
//!
//! The old folder moves away only when the new one is complete, and the server does not run meanwhile. So at a start
//! there is either the old folder, and then a copy is given up, or there is none, and then the copy takes its place.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::folder::{FolderError, rename, sync, sync_disk_of};

/// The folder for a copy, empty.
pub(super) fn begin(data: &Path) -> Result<PathBuf, FolderError> {
    let copying = beside(data, "copying");
    for leftover in [&copying, &beside(data, "new"), &beside(data, "old")] {
        remove(leftover)?;
    }
    fs::create_dir(&copying)
        .and_then(|()| fs::set_permissions(&copying, fs::Permissions::from_mode(0o700)))
        .map_err(FolderError::io("create", &copying))?;
    Ok(copying)
}

/// The copy is complete: it is written out and gets the name that says so.
pub(super) fn complete(data: &Path) -> Result<(), FolderError> {
    let copying = beside(data, "copying");
    sync_disk_of(&copying)?;
    rename(&copying, &beside(data, "new"))?;
    sync_parent(data)
}

/// The copy takes the place of the folder, whose server does not run.
pub(super) fn replace(data: &Path) -> Result<(), FolderError> {
    if data.exists() {
        rename(data, &beside(data, "old"))?;
    }
    rename(&beside(data, "new"), data)?;
    sync_parent(data)?;
    remove(&beside(data, "old"))
}

/// Removes the folder and everything that was to take its place. A crash leaves a part of it, which is of no use.
pub(super) fn remove_all(data: &Path) -> Result<(), FolderError> {
    if data.exists() {
        remove(&beside(data, "old"))?;
        rename(data, &beside(data, "old"))?;
    }
    remove_copies(data)
}

/// Removes copies that were to take the place of the folder, and former folders.
pub(super) fn remove_copies(data: &Path) -> Result<(), FolderError> {
    ["copying", "new", "old"].into_iter().try_for_each(|leftover| remove(&beside(data, leftover)))
}

/// After a crash: finishes a swap, or gives a copy up.
pub(super) fn settle(data: &Path) -> Result<(), FolderError> {
    let new = beside(data, "new");
    if !data.exists() && new.exists() {
        rename(&new, data)?;
        sync_parent(data)?;
    }
    remove_copies(data)
}

fn beside(data: &Path, suffix: &str) -> PathBuf {
    let mut name = data.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    data.with_file_name(name)
}

fn remove(folder: &Path) -> Result<(), FolderError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FolderError::io("remove", folder)(error))
        }
        _ => Ok(()),
    }
}

fn sync_parent(data: &Path) -> Result<(), FolderError> {
    sync(data.parent().unwrap_or(data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn put(folder: &Path, text: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("what"), text).unwrap();
    }

    fn what(folder: &Path) -> String {
        fs::read_to_string(folder.join("what")).unwrap()
    }

    #[test]
    fn the_copy_takes_the_place_of_the_old_folder() {
        let scratch = Scratch::new();
        let data = scratch.path().join("replica-1");
        put(&data, "old");
        put(&begin(&data).unwrap(), "new");
        complete(&data).unwrap();
        assert_eq!(what(&data), "old");
        replace(&data).unwrap();
        assert_eq!((what(&data), scratch.names()), ("new".to_owned(), vec!["replica-1".to_owned()]));
    }

    #[test]
    fn a_crash_leaves_the_old_or_the_new_folder() {
        // What lies there, and which of them is found at the next start.
        for (left, found) in [
            (vec!["replica-1", "replica-1.copying"], "replica-1"),
            (vec!["replica-1", "replica-1.new"], "replica-1"),
            (vec!["replica-1.old", "replica-1.new"], "replica-1.new"),
            (vec!["replica-1", "replica-1.old"], "replica-1"),
        ] {
            let scratch = Scratch::new();
            for name in &left {
                put(&scratch.path().join(name), name);
            }
            let data = scratch.path().join("replica-1");
            settle(&data).unwrap();
            assert_eq!(
                (what(&data).as_str(), scratch.names()),
                (found, vec!["replica-1".to_owned()]),
                "{left:?}"
            );
        }
    }
}
