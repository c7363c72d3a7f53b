//! The time of an update transaction away from the anchor: its waits for other homes and its work.
//!
//! From it the coordinator decides where such transactions begin (`coordinator/workload_stats/`). The client's own time
//! counts for neither.

use std::time::Duration;

use cluster::ids::ReplicaId;
use sql::TemplateId;
use tokio::time::Instant;

/// The times of the open transaction, or of the last one.
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

    /// The result of a transaction that was away from the anchor all the time: its template, its wait time and its work
    /// time.
    pub(crate) fn lesson(
        self,
        anchor: ReplicaId,
        home: ReplicaId,
    ) -> Option<(TemplateId, Duration, Duration)> {
        let template = self.template.filter(|_| self.anchor == anchor && home != anchor)?;
        Some((template, self.waited, self.worked))
    }

    /// Adds a wait for a place that began then.
    pub(crate) fn waited(&mut self, since: Instant) {
        self.waited += since.elapsed();
    }

    /// Adds work of a server that began then.
    pub(crate) fn worked(&mut self, since: Instant) {
        self.worked += since.elapsed();
    }
}
