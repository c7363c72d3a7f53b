//! A log that this process may write: opened, and fenced by the record of its term.
//!
//! The record that fences the log is durable before the coordinator exists. So an earlier run of the node, or a former leader, can
//! append nothing after it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cluster::ids::{ClusterId, Version};
use commitlog::{LogEngine, LogFailure, Notices, Recovered};
use tokio::sync::mpsc;

use crate::coordinator::Leader;
use crate::coordinator::identities::Identities;
use crate::coordinator::open_error::{FenceError, OpenError};
use crate::coordinator::plan::{self, Term};
use crate::coordinator::register::TermRegister;
use crate::database::Database;

/// A log that this node has opened.
pub(super) struct OpenLog {
    pub(super) log: Arc<dyn LogEngine>,
    pub(super) recovered: Recovered,
    /// What the leader has to know beside the log.
    pub(super) register: Arc<TermRegister>,
}

/// A log that this node has opened and fenced.
pub(super) struct FencedLog {
    pub(super) log: Arc<dyn LogEngine>,
    pub(super) recovered: Recovered,
    pub(super) identities: Identities,
    pub(super) register: Arc<TermRegister>,
    pub(super) term: Term,
    pub(super) receiver: Arc<Receiver>,
}

/// The receiver of the log's notices.
#[derive(Default)]
pub(super) struct Receiver {
    leader: OnceLock<Arc<Leader>>,
    /// A failure that was told before the leader was there.
    early_failure: Mutex<Option<LogFailure>>,
}

impl Receiver {
    fn early_failure(&self) -> MutexGuard<'_, Option<LogFailure>> {
        self.early_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notices go to the leader from now on. False if there is one already.
    pub(super) fn set(&self, leader: &Arc<Leader>) -> bool {
        let mut early = self.early_failure();
        if let Some(failure) = early.take() {
            leader.term.log_failed(failure);
        }
        self.leader.set(Arc::clone(leader)).is_ok()
    }
}

impl FencedLog {
    /// Fences a log that was opened. Nothing may be served or applied before the leases of a former leader have run out.
    pub(super) async fn fence(
        opened: OpenLog,
        identities: Identities,
        cluster: ClusterId,
        database: &Database,
    ) -> Result<Self, OpenError> {
        let OpenLog { log, recovered, register } = opened;
        let receiver = Arc::new(Receiver::default());
        let (fenced, mut fence_durable) = mpsc::channel(1);
        start_log(log.as_ref(), &receiver, fenced)?;
        let term = plan::fence(log.as_ref(), cluster, database, &recovered, &identities)?;
        match fence_durable.recv().await {
            Some(outcome) => outcome?,
            None => return Err(FenceError::WriterEnded.into()),
        }
        fence_durable.close();
        if let Ok(outcome) = fence_durable.try_recv() {
            outcome?;
        }
        Ok(Self { log, recovered, identities, register, term, receiver })
    }
}

/// The identities in the log. Agents compare the applied sets of their replicas with them.
pub(super) fn known_identities(recovered: &Recovered) -> Identities {
    let identities = Identities::default();
    for (identity, version) in &recovered.identities {
        identities.insert(*identity, *version);
    }
    identities
}

/// Starts the writer of the log. Its first report is about the fence and comes before the coordinator exists. All
/// later reports go to the coordinator.
fn start_log(
    log: &dyn LogEngine,
    receiver: &Arc<Receiver>,
    fenced: mpsc::Sender<Result<(), FenceError>>,
) -> Result<(), OpenError> {
    let (durable_at, failed_at, fence_failed) = (Arc::clone(receiver), Arc::clone(receiver), fenced.clone());
    let notices = Notices {
        durable: Box::new(move |upto: Version| match durable_at.leader.get() {
            Some(leader) => Arc::clone(&leader.kind).logged(leader, upto),
            None => drop(fenced.try_send(Ok(()))),
        }),
        failed: Box::new(move |failure: LogFailure| {
            let mut early = failed_at.early_failure();
            if let Some(leader) = failed_at.leader.get() {
                return leader.term.log_failed(failure);
            }
            // The channel is closed once the fence is durable.
            let unsent = fence_failed.try_send(Err(FenceError::Failed(failure)));
            if let Err(unsent) = unsent
                && let Err(FenceError::Failed(failure)) = unsent.into_inner()
            {
                *early = Some(failure);
            }
        }),
    };
    Ok(log.start(notices)?)
}
