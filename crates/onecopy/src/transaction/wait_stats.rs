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
    /// The template of its first statement; none if the workload statistics cannot learn from it.
    template: Option<TemplateId>,
    /// The anchor when it began. If another replica became the anchor, the wait says nothing about homes.
    anchor: ReplicaId,
    waited: Duration,
    worked: Duration,
}

impl WaitStats {
    /// An update transaction begins.
    pub(crate) fn begin(template: Option<TemplateId>, anchor: ReplicaId) -> Self {
        Self { template, anchor, ..Self::default() }
    }

    /// The lesson of a transaction that was away from the anchor all the time: its template, how long it waited, and how
    /// long it worked.
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
