//! The term of this node as the leader of its cluster: which cluster and epoch, and whether it can go on.
//!
//! A term begins with the record that fences the log, and ends with the process or with the failure of the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cluster::ids::{ClusterId, Epoch};
use commitlog::LogFailure;
use tokio::sync::watch;

use super::register::TermRegister;

/// The present term.
#[derive(Debug)]
pub(crate) struct TermState {
    /// The cluster that is led.
    pub(crate) cluster_id: ClusterId,
    /// The number of the term.
    pub(crate) epoch: Epoch,
    /// The log had no record when it was opened.
    pub(crate) log_was_empty: bool,
    /// What the leader has to know of its cluster beside the log.
    pub(crate) register: Arc<TermRegister>,
    is_founding: Arc<AtomicBool>,
    log_is_lost: AtomicBool,
    failure: watch::Sender<Option<Arc<LogFailure>>>,
    /// Whether another term has begun, or the lease cannot be renewed.
    is_over: watch::Sender<bool>,
}

impl TermState {
    /// A term that begins. `is_founding`: no client was ever served.
    pub(crate) fn new(
        cluster_id: ClusterId,
        epoch: Epoch,
        log_was_empty: bool,
        is_founding: bool,
        register: Arc<TermRegister>,
    ) -> Self {
        let failure = register.failure();
        Self {
            cluster_id,
            epoch,
            log_was_empty,
            register,
            is_founding: Arc::new(AtomicBool::new(is_founding)),
            log_is_lost: AtomicBool::new(false),
            failure,
            is_over: watch::channel(false).0,
        }
    }

    /// Whether the cluster is being founded: a server without data of the cluster may become a member.
    pub(crate) fn is_founding(&self) -> bool {
        self.is_founding.load(Ordering::Acquire)
    }

    /// The flag behind [`Self::is_founding`], for agents, which outlive the founding.
    pub(crate) fn founding(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_founding)
    }

    /// Clients are served from now on. The founding ends with the present members.
    pub(crate) fn end_founding(&self) {
        self.is_founding.store(false, Ordering::Release);
    }

    /// A replica has transactions that the log never had, so the log was lost or removed.
    pub(crate) fn note_lost_log(&self) {
        self.log_is_lost.store(true, Ordering::Relaxed);
    }

    /// Whether a replica has transactions that the log never had.
    pub(crate) fn log_is_lost(&self) -> bool {
        self.log_is_lost.load(Ordering::Relaxed)
    }

    /// The log cannot go on, so nothing can be acknowledged any more: the node has to stop.
    pub(crate) fn log_failed(&self, failure: LogFailure) {
        self.failure.send_replace(Some(Arc::new(failure)));
    }

    /// The node no longer leads.
    pub(crate) fn end(&self) {
        self.is_over.send_replace(true);
    }

    /// Waits for [`TermState::end`].
    pub(crate) async fn ended(&self) {
        // The sender is ours, so it is there.
        let _ = self.is_over.subscribe().wait_for(|is_over| *is_over).await;
    }

    /// Waits for [`TermState::log_failed`] and returns its reason.
    pub(crate) async fn failed(&self) -> Arc<LogFailure> {
        let mut failure = self.failure.subscribe();
        let failed = failure.wait_for(Option::is_some).await.ok().and_then(|failed| failed.clone());
        match failed {
            Some(failure) => failure,
            None => std::future::pending().await,
        }
    }
}
