//! What the node remembers of each replica beside the core: what it would still have after a crash of its server, whether
//! it is in quarantine and why, and from where on somebody needs the log for it.
//!
//! From this follows up to where the log can go. A replica needs every record that its server might lose in a crash
//! (replicas commit without waiting for their disks; what the agent's flush has proven counts). One in quarantine needs
//! none: it gets the data of another one. One that is being rebuilt needs all from the version on at which its donor stood
//! when the copy began. When the log grows past its limit only those count that are there to be brought up to date; the
//! others must be rebuilt then, and are told so when they come back, by what is missing.
//!
//! A quarantine that the log cannot explain (a record that did not fit, data that was changed behind our back) would be
//! forgotten with the process, and the replica would serve again; so it is written into a file beside the log.
//!
//! A replica whose server has refused a record has all records before it, since what the record had done is undone. Together with
//! the log it is a complete copy. So the log is kept for it as for one that is down, and it is tried again where no other
//! replica could serve ([`crate::membership::resync`]).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cluster::ids::{ReplicaId, Version};

/// The names of the files begin with this; the rest is the replica's.
const FILE_PREFIX: &str = "quarantine-";
/// More of a file is not read.
const REASON_BYTES_MAX: usize = 4_096;
/// The last line of the file of a replica that may be tried again.
const MAY_BE_TRIED_AGAIN: &str = "[may be tried again]";

/// How long a quarantine lasts.
#[expect(clippy::enum_variant_names, reason = "each is what follows the word")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QuarantineDuration {
    /// Until the replica has the data of another one. The next start would not notice by itself what is wrong.
    UntilRebuilt,
    /// The same, or until the replica has applied the record that it could not apply. It outlives a restart, too.
    UntilApplied,
    /// The next start finds out again.
    UntilRestart,
}

#[derive(Debug, Default)]
struct One {
    durable: Version,
    quarantine: Option<(String, QuarantineDuration)>,
    needs_from: Option<Version>,
}

impl One {
    /// Up to here it does not need the log; what it has itself may count or not.
    fn needs(&self, counts: bool) -> Option<Version> {
        let may_come_back = self.quarantine.is_none() || self.may_be_tried_again();
        let own = (may_come_back && counts).then_some(self.durable);
        own.into_iter().chain(self.needs_from).min()
    }

    fn may_be_tried_again(&self) -> bool {
        matches!(self.quarantine, Some((_, QuarantineDuration::UntilApplied)))
    }
}

/// What is remembered of all replicas.
#[derive(Debug, Default)]
pub(crate) struct LogRetention {
    replicas: BTreeMap<ReplicaId, One>,
}

impl LogRetention {
    /// Of replicas of which nothing is known.
    pub(crate) fn of(replicas: impl Iterator<Item = ReplicaId>) -> Self {
        Self { replicas: replicas.map(|replica| (replica, One::default())).collect() }
    }

    /// The replica is a member from now on.
    pub(crate) fn join(&mut self, replica: ReplicaId) {
        self.replicas.insert(replica, One::default());
    }

    /// Somebody may speak of one that has left.
    fn change(&mut self, replica: ReplicaId, change: impl FnOnce(&mut One)) {
        if let Some(one) = self.replicas.get_mut(&replica) {
            change(one);
        }
    }

    /// The replica is no longer a member.
    pub(crate) fn forget(&mut self, replica: ReplicaId) {
        self.replicas.remove(&replica);
    }

    /// The replica would have everything up to this version after a crash.
    pub(crate) fn note_durable(&mut self, replica: ReplicaId, upto: Version) {
        self.change(replica, |one| one.durable = upto);
    }

    /// The replica serves nothing.
    pub(crate) fn quarantine(&mut self, replica: ReplicaId, reason: &str, lasting: QuarantineDuration) {
        self.change(replica, |one| one.quarantine = Some((reason.to_owned(), lasting)));
    }

    /// Those that could not apply a record.
    pub(crate) fn may_be_tried_again(&self) -> Vec<ReplicaId> {
        let all = self.replicas.iter().filter(|(_, one)| one.may_be_tried_again());
        all.map(|(replica, _)| *replica).collect()
    }

    /// The replica is out of quarantine with the data that it has.
    pub(crate) fn tried_again(&mut self, replica: ReplicaId) {
        self.change(replica, |one| one.quarantine = None);
    }

    /// Why a replica serves nothing.
    pub(crate) fn reason(&self, replica: ReplicaId) -> Option<&str> {
        self.replicas.get(&replica)?.quarantine.as_ref().map(|(reason, _)| reason.as_str())
    }

    /// Everything after this version is kept for the replica, until [`LogRetention::forgo`].
    pub(crate) fn keep_from(&mut self, replica: ReplicaId, version: Version) {
        self.change(replica, |one| one.needs_from = Some(version));
    }

    /// The end of what [`LogRetention::keep_from`] began.
    pub(crate) fn forgo(&mut self, replica: ReplicaId) {
        self.change(replica, |one| one.needs_from = None);
    }

    /// The replica has the data of another one, which had at least what is kept for it.
    pub(crate) fn rebuilt(&mut self, replica: ReplicaId) {
        self.change(replica, |one| {
            one.durable = one.needs_from.unwrap_or_default();
            one.quarantine = None;
        });
    }

    /// Up to here nobody needs the log; `None` when no replica is good for anything.
    pub(crate) fn unneeded(&self) -> Option<Version> {
        self.unneeded_but_by(|_| true)
    }

    /// The same, if only these replicas count.
    pub(crate) fn unneeded_but_by(&self, counts: impl Fn(ReplicaId) -> bool) -> Option<Version> {
        self.replicas.iter().filter_map(|(replica, one)| one.needs(counts(*replica))).min()
    }

    /// Up to here the replica does not need the log; `None` if it does not need it at all.
    pub(crate) fn needs(&self, replica: ReplicaId) -> Option<Version> {
        self.replicas.get(&replica)?.needs(true)
    }
}

/// The file that keeps a replica in quarantine over a restart.
fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{FILE_PREFIX}{name}"))
}

/// Keeps a replica in quarantine over a restart.
pub(crate) fn write_quarantine(
    folder: &Path,
    name: &str,
    reason: &str,
    lasting: QuarantineDuration,
) -> io::Result<()> {
    let path = path(folder, name);
    let unfinished = folder.join(format!("{FILE_PREFIX}{name}.new"));
    let mut file = owner_only::options().write(true).create(true).truncate(true).open(&unfinished)?;
    // Bounded, so that the last line is read as well.
    let end = reason.floor_char_boundary(REASON_BYTES_MAX / 2);
    writeln!(file, "{}", &reason[..end])?;
    if lasting == QuarantineDuration::UntilApplied {
        writeln!(file, "{MAY_BE_TRIED_AGAIN}")?;
    }
    file.sync_all()?;
    fs::rename(&unfinished, &path)?;
    File::open(folder)?.sync_all()
}

/// Why a replica was in quarantine when the node ended, and how long it stays there; `None` when it was not.
pub(crate) fn read_quarantine(folder: &Path, name: &str) -> io::Result<Option<(String, QuarantineDuration)>> {
    match fs::read(path(folder, name)) {
        Ok(mut reason) => {
            reason.truncate(REASON_BYTES_MAX);
            let text = String::from_utf8_lossy(&reason);
            Ok(Some(match text.trim().strip_suffix(MAY_BE_TRIED_AGAIN) {
                Some(reason) => (reason.trim().to_owned(), QuarantineDuration::UntilApplied),
                None => (text.trim().to_owned(), QuarantineDuration::UntilRebuilt),
            }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The replica may serve after a restart.
pub(crate) fn lift_quarantine(folder: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(path(folder, name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::open(folder)?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ReplicaId = ReplicaId(0);
    const B: ReplicaId = ReplicaId(1);
    const C: ReplicaId = ReplicaId(2);

    fn standing() -> LogRetention {
        let mut standing = LogRetention::of([A, B, C].into_iter());
        for (replica, version) in [(A, 90), (B, 70), (C, 20)] {
            standing.note_durable(replica, Version(version));
        }
        standing
    }

    #[test]
    fn the_slowest_that_may_come_back_keeps_the_log() {
        let mut standing = standing();
        assert_eq!(standing.unneeded(), Some(Version(20)));
        assert_eq!(standing.unneeded_but_by(|replica| replica != C), Some(Version(70)));
        standing.quarantine(C, "changed behind our back", QuarantineDuration::UntilRebuilt);
        assert_eq!(standing.unneeded(), Some(Version(70)));
        assert_eq!(standing.unneeded_but_by(|_| false), None);
        for replica in [A, B] {
            standing.quarantine(replica, "too", QuarantineDuration::UntilRebuilt);
        }
        assert_eq!(standing.unneeded(), None);
        // Nobody waits for one that is no longer a member.
        let mut standing = self::standing();
        standing.forget(C);
        standing.note_durable(C, Version(30));
        assert_eq!(standing.unneeded(), Some(Version(70)));
        // One that has not said anything yet may need everything.
        assert_eq!(LogRetention::of([A, B].into_iter()).unneeded(), Some(Version::ZERO));
    }

    #[test]
    fn the_log_is_kept_for_one_that_may_be_tried_again() {
        let mut standing = standing();
        standing.quarantine(C, "version 21 cannot be applied", QuarantineDuration::UntilApplied);
        assert_eq!(standing.unneeded(), Some(Version(20)));
        assert_eq!(standing.may_be_tried_again(), [C]);
        standing.tried_again(C);
        assert_eq!((standing.reason(C), standing.unneeded()), (None, Some(Version(20))));
        assert!(standing.may_be_tried_again().is_empty());
    }

    #[test]
    fn a_rebuild_keeps_what_it_will_need() {
        let mut standing = standing();
        standing.quarantine(C, "is being rebuilt", QuarantineDuration::UntilRestart);
        standing.keep_from(C, Version(60));
        standing.note_durable(B, Version(95));
        assert_eq!(standing.unneeded(), Some(Version(60)));
        // Also when the log is past its limit: else the rebuild would have been for nothing.
        assert_eq!(standing.unneeded_but_by(|_| false), Some(Version(60)));
        standing.rebuilt(C);
        standing.forgo(C);
        assert_eq!((standing.reason(C), standing.unneeded()), (None, Some(Version(60))));
        // What its former data had survived says nothing about the new.
        let mut standing = self::standing();
        standing.quarantine(A, "is being rebuilt", QuarantineDuration::UntilRestart);
        standing.keep_from(A, Version(65));
        standing.rebuilt(A);
        standing.forgo(A);
        standing.note_durable(C, Version(99));
        assert_eq!(standing.unneeded(), Some(Version(65)));
    }

    #[test]
    fn a_quarantine_outlives_the_process() {
        let folder = std::env::temp_dir().join(format!("onecopy-standing-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        assert_eq!(read_quarantine(&folder, "replica-2").unwrap(), None);
        let long = "ä".repeat(REASON_BYTES_MAX);
        for (reason, lasting) in
            [("it differs", QuarantineDuration::UntilRebuilt), (&long, QuarantineDuration::UntilApplied)]
        {
            write_quarantine(&folder, "replica-2", reason, lasting).unwrap();
            let (read, read_lasting) = read_quarantine(&folder, "replica-2").unwrap().unwrap();
            assert!(reason.starts_with(&read) && read.len() >= 10 && read_lasting == lasting, "{read}");
        }
        assert_eq!(read_quarantine(&folder, "replica-3").unwrap(), None);
        lift_quarantine(&folder, "replica-2").unwrap();
        lift_quarantine(&folder, "replica-2").unwrap();
        assert_eq!(read_quarantine(&folder, "replica-2").unwrap(), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
