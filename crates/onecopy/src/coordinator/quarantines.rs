//! Which replicas are in quarantine over a restart, and why: one small entry of the register for each.
//!
//! The next start cannot notice by itself that a record did not fit a replica, or that its data was changed behind
//! Onecopy's back. Without the entry the replica would serve again.
//!
//! An entry holds the reason as text. If the quarantine may end without new data, a last line says so.
//!
//! A quarantine begins at once, whether or not the register answers. A change of its entry is waited for, but not for long: a
//! thread repeats it until etcd answers. If a replica goes in and out of quarantine meanwhile, the last change counts.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, SendError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use commitlog::{Entry, RegisterError};

use super::register::TermRegister;

/// How long a change is waited for.
const WRITE_PATIENCE: Duration = Duration::from_millis(500);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// A longer entry is read up to this length.
const REASON_BYTES_MAX: usize = 4_096;
/// The last line of the entry of a replica that may be tried again.
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

/// The quarantines of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Quarantines {
    kept: Arc<Kept>,
}

#[derive(Debug)]
struct Kept {
    register: Arc<TermRegister>,
    /// The replicas whose entries are being written, each by a thread.
    writing: Mutex<BTreeMap<String, Wanted>>,
}

/// What an entry is to become.
#[derive(Debug)]
struct Wanted {
    value: Option<Vec<u8>>,
    /// The number of this wish. A later one takes its place.
    turn: u64,
    /// Where the outcome is told.
    written: SyncSender<Result<(), RegisterError>>,
}

impl Quarantines {
    /// Those in this register.
    pub(crate) fn of(register: Arc<TermRegister>) -> Self {
        Self { kept: Arc::new(Kept { register, writing: Mutex::default() }) }
    }

    /// Keeps a replica in quarantine over a restart, durably, or from the time on at which the register answers.
    pub(crate) fn keep(
        &self,
        replica: &str,
        reason: &str,
        lasting: QuarantineDuration,
    ) -> Result<(), RegisterError> {
        // The length is bounded, so that a reader gets the last line as well.
        let end = reason.floor_char_boundary(REASON_BYTES_MAX / 2);
        let mut text = format!("{}\n", &reason[..end]);
        if lasting == QuarantineDuration::UntilApplied {
            text.push_str(MAY_BE_TRIED_AGAIN);
            text.push('\n');
        }
        self.write(replica, Some(text.into_bytes()))
    }

    /// The quarantine that a replica was in when the last term ended.
    pub(crate) fn read(&self, replica: &str) -> Result<Option<Quarantine>, RegisterError> {
        let Some(mut bytes) = self.kept.register.read(&Entry::Quarantine(replica.to_owned()))? else {
            return Ok(None);
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
    pub(crate) fn lift(&self, replica: &str) -> Result<(), RegisterError> {
        self.write(replica, None)
    }

    /// Changes an entry. If that takes long, a thread goes on with it after the return.
    fn write(&self, replica: &str, value: Option<Vec<u8>>) -> Result<(), RegisterError> {
        let (written, outcome) = sync_channel(1);
        let is_being_written = {
            let mut writing = self.kept.writing();
            let turn = writing.get(replica).map_or(0, |wanted| wanted.turn + 1);
            writing.insert(replica.to_owned(), Wanted { value, turn, written }).is_some()
        };
        if !is_being_written {
            let (kept, written) = (Arc::clone(&self.kept), replica.to_owned());
            let writer = thread::Builder::new().name("quarantines".to_owned());
            if let Err(source) = writer.spawn(move || kept.write_out(&written)) {
                self.kept.writing().remove(replica);
                let entry = Entry::Quarantine(replica.to_owned());
                return Err(RegisterError::Io { path: self.kept.register.location(&entry).into(), source });
            }
        }
        match outcome.recv_timeout(WRITE_PATIENCE) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!(
                    replica,
                    "the register does not answer; whether the replica is in quarantine is kept when it does"
                );
                Ok(())
            }
            // A later wish has taken the place of this one.
            Err(RecvTimeoutError::Disconnected) => Ok(()),
        }
    }
}

impl Kept {
    fn writing(&self) -> MutexGuard<'_, BTreeMap<String, Wanted>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the entry of a replica until it is as was wanted last.
    fn write_out(&self, replica: &str) {
        let entry = Entry::Quarantine(replica.to_owned());
        loop {
            let Some((value, turn)) =
                self.writing().get(replica).map(|wanted| (wanted.value.clone(), wanted.turn))
            else {
                return;
            };
            let written = self.register.change_now(&entry, value.as_deref());
            let is_unanswered = matches!(written, Err(RegisterError::Store(_)));
            if is_unanswered && !self.register.is_closed() {
                thread::sleep(PAUSE);
                continue;
            }
            let mut writing = self.writing();
            let Some(wanted) = writing.remove(replica) else { return };
            if wanted.turn != turn {
                writing.insert(replica.to_owned(), wanted);
                continue;
            }
            drop(writing);
            if let Err(SendError(Err(error))) = wanted.written.send(written) {
                tracing::error!(replica, %error, "the next term will not know whether the replica is in quarantine");
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    use commitlog::{Register, StoreError};

    use super::*;

    #[test]
    fn a_quarantine_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Quarantines::of(TermRegister::in_folder(folder.path()));
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
        let quarantines = Quarantines::of(TermRegister::in_folder(folder.path()));
        let written = |text: &str| {
            fs::create_dir_all(folder.path().join("log")).unwrap();
            fs::write(folder.path().join("log/quarantine-replica-1"), text).unwrap();
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

    /// A register that does not answer at first.
    #[derive(Debug, Default)]
    struct Away {
        is_away: AtomicBool,
        entries: Mutex<BTreeMap<Entry, Vec<u8>>>,
    }

    impl Register for Away {
        fn read(&self, entry: &Entry) -> Result<Option<Vec<u8>>, RegisterError> {
            Ok(self.entries.lock().unwrap().get(entry).cloned())
        }

        fn change(&self, entry: &Entry, value: Option<&[u8]>) -> Result<(), RegisterError> {
            if self.is_away.load(Ordering::Relaxed) {
                let unreachable = StoreError::Unreachable { url: String::new(), reason: String::new() };
                return Err(RegisterError::Store(unreachable));
            }
            let mut entries = self.entries.lock().unwrap();
            match value {
                Some(value) => drop(entries.insert(entry.clone(), value.to_vec())),
                None => drop(entries.remove(entry)),
            }
            Ok(())
        }

        fn location(&self, entry: &Entry) -> String {
            entry.to_string()
        }
    }

    #[test]
    fn what_the_register_does_not_take_at_first_it_takes_later() {
        let register = Arc::new(Away { is_away: AtomicBool::new(true), ..Away::default() });
        let quarantines = Quarantines::of(TermRegister::new(Arc::clone(&register) as Arc<_>));
        for replica in ["replica-1", "replica-2"] {
            quarantines.keep(replica, "it differs", QuarantineDuration::UntilRebuilt).unwrap();
        }
        quarantines.lift("replica-1").unwrap();
        quarantines.keep("replica-2", "again", QuarantineDuration::UntilApplied).unwrap();
        assert_eq!(quarantines.read("replica-2").unwrap(), None);
        register.is_away.store(false, Ordering::Relaxed);
        while !quarantines.kept.writing().is_empty() {
            thread::sleep(PAUSE / 10);
        }
        assert_eq!(quarantines.read("replica-1").unwrap(), None);
        assert_eq!(quarantines.read("replica-2").unwrap().unwrap().reason, "again");
    }
}
