//! How an update transaction away from the anchor divides its time between waiting for other homes and work.
//!
//! The coordinator concludes from it where such transactions begin (`coordinator/workload_stats/`). The client's own time
//! counts for neither.

use std::time::Duration;

use cluster::ids::ReplicaId;
use sql::TemplateId;
use tokio::time::Instant;

/// Of the transaction that is open, or of the last one.
#[derive(Debug, Default)]
pub(crate) struct WaitStats {
    /// With what it begins; none where nothing is to be learned from it.
    template: Option<TemplateId>,
    /// Who was the anchor when it began: who waited for another one to take its place says nothing about homes.
    anchor: ReplicaId,
    waited: Duration,
    worked: Duration,
}

impl WaitStats {
    /// An update transaction begins.
    pub(crate) fn begin(template: Option<TemplateId>, anchor: ReplicaId) -> Self {
        Self { template, anchor, ..Self::default() }
    }

    /// What is to be learned from a transaction that was away from the anchor all the time: with what it began, how long
    /// it waited, and how long it worked.
    pub(crate) fn lesson(
        self,
        anchor: ReplicaId,
        home: ReplicaId,
    ) -> Option<(TemplateId, Duration, Duration)> {
        let template = self.template.filter(|_| self.anchor == anchor && home != anchor)?;
        Some((template, self.waited, self.worked))
    }

    /// It has waited for its place since then.
    pub(crate) fn waited(&mut self, since: Instant) {
        self.waited += since.elapsed();
    }

    /// A server has worked for it since then.
    pub(crate) fn worked(&mut self, since: Instant) {
        self.worked += since.elapsed();
    }
}
