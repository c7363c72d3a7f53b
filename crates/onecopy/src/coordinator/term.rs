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
    failure: watch::Sender<Option<String>>,
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
    pub(crate) fn log_failed(&self, failure: &LogFailure) {
        self.failure.send_replace(Some(failure.to_string()));
    }

    /// Waits for [`TermState::log_failed`] and returns its reason.
    pub(crate) async fn failed(&self) -> String {
        let mut failure = self.failure.subscribe();
        match failure.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }
}
