//! Which replicas are in quarantine over a restart, and why: one small file for each.
//!
//! The next start cannot notice by itself that a record did not fit a replica, or that its data was changed behind
//! Onecopy's back. Without the file the replica would serve again.
//!
//! A file holds the reason as text. If the quarantine may end without new data, a last line says so. A file appears
//! under its name only when it is complete and durable.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

/// A file's name is this prefix and the name of the replica.
const FILE_PREFIX: &str = "quarantine-";
/// A longer file is read up to this length.
const REASON_BYTES_MAX: usize = 4_096;
/// The last line of the file of a replica that may be tried again.
const MAY_BE_TRIED_AGAIN: &str = "[may be tried again]";

/// How long a quarantine lasts.
#[expect(clippy::enum_variant_names, reason = "each is what follows the word")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QuarantineDuration {
    /// Until the replica has the data of another one. The next start would not notice the damage by itself.
    UntilRebuilt,
    /// Like [`Self::UntilRebuilt`], or until the replica has applied the record that it could not apply. It outlives a
    /// restart, too.
    UntilApplied,
    /// The next start finds out again.
    UntilRestart,
}

/// A replica in quarantine serves nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Quarantine {
    /// The reason, as text for people.
    pub(crate) reason: String,
    /// When it ends.
    pub(crate) lasting: QuarantineDuration,
}

/// The files of one cluster.
#[derive(Debug)]
pub(crate) struct Quarantines {
    folder: PathBuf,
}

impl Quarantines {
    /// The files in this folder, which exists.
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Keeps a replica in quarantine over a restart.
    pub(crate) fn keep(&self, replica: &str, reason: &str, lasting: QuarantineDuration) -> io::Result<()> {
        let unfinished = self.folder.join(format!("{FILE_PREFIX}{replica}.new"));
        let mut file = owner_only::options().write(true).create(true).truncate(true).open(&unfinished)?;
        // The length is bounded, so that a reader gets the last line as well.
        let end = reason.floor_char_boundary(REASON_BYTES_MAX / 2);
        writeln!(file, "{}", &reason[..end])?;
        if lasting == QuarantineDuration::UntilApplied {
            writeln!(file, "{MAY_BE_TRIED_AGAIN}")?;
        }
        file.sync_all()?;
        fs::rename(&unfinished, self.path(replica))?;
        self.sync()
    }

    /// The quarantine that a replica was in when the node ended.
    pub(crate) fn read(&self, replica: &str) -> io::Result<Option<Quarantine>> {
        let mut bytes = match fs::read(self.path(replica)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        bytes.truncate(REASON_BYTES_MAX);
        let text = String::from_utf8_lossy(&bytes);
        let (reason, lasting) = match text.trim().strip_suffix(MAY_BE_TRIED_AGAIN) {
            Some(reason) => (reason.trim(), QuarantineDuration::UntilApplied),
            None => (text.trim(), QuarantineDuration::UntilRebuilt),
        };
        Ok(Some(Quarantine { reason: reason.to_owned(), lasting }))
    }

    /// The replica may serve after a restart. It need not have been in quarantine.
    pub(crate) fn lift(&self, replica: &str) -> io::Result<()> {
        match fs::remove_file(self.path(replica)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => self.sync(),
        }
    }

    fn path(&self, replica: &str) -> PathBuf {
        self.folder.join(format!("{FILE_PREFIX}{replica}"))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarantine_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Quarantines::in_folder(folder.path().to_owned());
        assert_eq!(open().read("replica-2").unwrap(), None);
        let long = "ä".repeat(REASON_BYTES_MAX);
        for (reason, lasting) in
            [("it differs", QuarantineDuration::UntilRebuilt), (&long, QuarantineDuration::UntilApplied)]
        {
            open().keep("replica-2", reason, lasting).unwrap();
            let read = open().read("replica-2").unwrap().unwrap();
            assert!(reason.starts_with(&read.reason) && read.reason.len() >= 10, "{read:?}");
            assert_eq!(read.lasting, lasting);
        }
        assert_eq!(open().read("replica-3").unwrap(), None);
        open().lift("replica-2").unwrap();
        open().lift("replica-2").unwrap();
        assert_eq!(open().read("replica-2").unwrap(), None);
    }

    #[test]
    fn files_of_earlier_versions_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let quarantines = Quarantines::in_folder(folder.path().to_owned());
        let written = |text: &str| {
            fs::write(folder.path().join("quarantine-replica-1"), text).unwrap();
            quarantines.read("replica-1").unwrap().unwrap()
        };
        let found = written("table t differs\n");
        assert_eq!(
            (found.reason.as_str(), found.lasting),
            ("table t differs", QuarantineDuration::UntilRebuilt)
        );
        let found = written("version 9 cannot be applied\n[may be tried again]\n");
        assert_eq!(found.reason, "version 9 cannot be applied");
        assert_eq!(found.lasting, QuarantineDuration::UntilApplied);
    }
}
