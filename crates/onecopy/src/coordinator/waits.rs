//! What the core tells of waits and conflicts between transactions, for people and for NOWAIT.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::Cluster;
use cluster::claims::Claims;
use cluster::event::Rival;
use cluster::ids::{SessionId, Version};
use cluster::parts::conflicts::Count;
use cluster::protocols::Waiting;
use cluster::time::Time;

use super::Coordinator;

impl Coordinator {
    /// What transactions waited for and were aborted for, the worst first.
    pub(crate) fn conflicts(&self) -> Vec<Count> {
        self.core(Cluster::conflicts)
    }

    /// Who waits for transactions of other homes at this moment.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        self.core(Cluster::waiting)
    }

    /// The number of keys of rows whose last writer the core remembers.
    pub(crate) fn keys_remembered(&self) -> usize {
        self.core(Cluster::keys_remembered)
    }

    /// Statements of which a session has not said that they had ended. Anything but 0 is a fault of ours.
    pub(crate) fn turns_unended(&self) -> u64 {
        self.core(Cluster::turns_unended)
    }

    /// Of each open update transaction the version that its snapshot has at least.
    pub(crate) fn snapshots(&self) -> BTreeMap<SessionId, Version> {
        self.core(Cluster::snapshots)
    }

    /// Who has written some of this since the session's transaction began, at another home.
    pub(crate) fn earlier_writer(&self, session: SessionId, claims: &Claims) -> Option<Rival> {
        self.core(|core| core.earlier_writer(session, claims))
    }

    /// How long it is since a time of the core, in seconds.
    pub(crate) fn age_s(&self, since: Time) -> f64 {
        let now = Time { us: u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX) };
        Duration::from_micros(now.since_us(since)).as_secs_f64()
    }
}
