//! The register of a term: what the leader has to know of its cluster beside the log ([`commitlog::Register`]).
//!
//! With the log in files it is files of the data folder. With the log on etcd it is there, so whichever node leads has it. For
//! example, `PARK REPLICA replica-3` on one node makes replica-3 parked on the node that leads next.
//!
//! A call may wait for etcd, so tasks use [`TermRegister::change`], which runs it on a thread for blocking work. A change that has
//! begun goes on when nothing waits for it any more.
//!
//! Invariant: a change that another node's claim has prevented ends the term.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use commitlog::{Entry, FileRegister, LogFailure, Register, RegisterError};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::security::seal::{Seal, SealError};

/// The register, and the failure that ends the term.
#[derive(Debug)]
pub(crate) struct TermRegister {
    register: Arc<dyn Register>,
    is_closed: AtomicBool,
    failure: watch::Sender<Option<Arc<LogFailure>>>,
}

impl TermRegister {
    /// The register of a term that begins.
    pub(crate) fn new(register: Arc<dyn Register>) -> Arc<Self> {
        let (is_closed, failure) = (AtomicBool::new(false), watch::channel(None).0);
        Arc::new(Self { register, is_closed, failure })
    }

    /// The register in files of this data folder.
    pub(crate) fn in_folder(data: &Path) -> Arc<Self> {
        Self::new(Arc::new(FileRegister::in_folder(data)))
    }

    /// Gives an entry this value, or removes it, durably.
    pub(crate) async fn change(
        self: &Arc<Self>,
        entry: Entry,
        value: Option<Vec<u8>>,
    ) -> Result<(), RegisterError> {
        let (register, changed) = (Arc::clone(self), entry.clone());
        let change = spawn_blocking(move || register.change_now(&changed, value.as_deref())).await;
        change.unwrap_or(Err(RegisterError::InDoubt { entry }))
    }

    /// The value of an entry. Waits for the change under way, on this thread; at the start of a term there is none.
    pub(crate) fn read(&self, entry: &Entry) -> Result<Option<Vec<u8>>, RegisterError> {
        self.register.read(entry)
    }

    /// As [`Self::change`], on this thread.
    pub(crate) fn change_now(&self, entry: &Entry, value: Option<&[u8]>) -> Result<(), RegisterError> {
        let changed = self.register.change(entry, value);
        if let Err(RegisterError::Fenced { by, node }) = &changed {
            let failure = LogFailure::Fenced { by: *by, node: node.clone() };
            self.failure.send_replace(Some(Arc::new(failure)));
        }
        changed
    }

    /// The key that proves identities, drawn if there is none. On this thread, which may wait.
    pub(crate) fn seal(&self) -> Result<Seal, SealError> {
        Seal::of(self.register.as_ref())
    }

    /// The file or the key of an entry, for messages.
    pub(crate) fn location(&self, entry: &Entry) -> String {
        self.register.location(entry)
    }

    /// The node stops: changes that wait for an answer are given up.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.register.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Where the failure that ends the term is told.
    pub(super) fn failure(&self) -> watch::Sender<Option<Arc<LogFailure>>> {
        self.failure.clone()
    }
}

#[cfg(test)]
mod tests {
    use cluster::ids::Epoch;

    use super::*;

    /// A register whose node was superseded.
    #[derive(Debug)]
    struct Superseded;

    impl Register for Superseded {
        fn read(&self, _: &Entry) -> Result<Option<Vec<u8>>, RegisterError> {
            Ok(None)
        }

        fn change(&self, _: &Entry, _: Option<&[u8]>) -> Result<(), RegisterError> {
            Err(RegisterError::Fenced { by: Epoch(7), node: "b".to_owned() })
        }

        fn location(&self, entry: &Entry) -> String {
            entry.to_string()
        }
    }

    #[tokio::test]
    async fn a_change_of_a_superseded_node_ends_its_term() {
        let register = TermRegister::new(Arc::new(Superseded));
        let failure = register.failure().subscribe();
        assert_eq!(register.read(&Entry::Usage).unwrap(), None);
        assert!(failure.borrow().is_none());
        assert!(register.change(Entry::Usage, None).await.is_err());
        let reason = failure.borrow().clone().unwrap().to_string();
        assert!(reason.contains("node b has taken over the log with epoch 7"), "{reason}");
    }
}
