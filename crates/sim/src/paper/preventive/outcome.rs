//! The measures of one run.

use cluster::parts::stamps::Counts;

/// What a run showed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Updates whose origin has committed them.
    pub updates: u64,
    /// The sum of the times from submission to the origin's commit.
    pub response_us: u64,
    /// Messages: transactions and refresh transactions.
    pub messages: u64,
    /// What section 6.3 says of messages: one for each target that can perform an update, two for each one that cannot.
    pub messages_stated: u64,
    /// What the agents counted, all together.
    pub counts: Counts,
    /// Executions that had begun and were rolled back.
    pub aborted: u64,
    /// Unordered messages that led to such a rollback.
    pub aborting: u64,
    /// Replicas that committed an update after a younger one.
    pub disordered: u64,
    /// Queries answered in the measured time.
    pub queries: u64,
    /// The measured time of queries.
    pub measured_us: u64,
}

impl Outcome {
    /// Mean response time of updates.
    pub fn response_ms(&self) -> f64 {
        ratio(self.response_us, self.updates) / 1e3
    }

    /// Queries a second.
    pub fn queries_per_s(&self) -> f64 {
        ratio(self.queries, self.measured_us) * 1e6
    }

    /// Messages that came after a younger one, by all messages that bring a transaction.
    pub fn unordered_share(&self) -> f64 {
        ratio(self.counts.unordered, self.counts.arrived)
    }

    /// Executions that were aborted, by all messages that bring a transaction.
    pub fn aborted_share(&self) -> f64 {
        ratio(self.aborted, self.counts.arrived)
    }

    /// Unordered messages that abort something, by all unordered ones.
    pub fn aborting_share(&self) -> f64 {
        ratio(self.aborting, self.counts.unordered)
    }

    /// Messages by those of section 6.3.
    pub fn messages_by_stated(&self) -> f64 {
        ratio(self.messages, self.messages_stated)
    }

    pub(super) fn add(&mut self, counts: Counts) {
        let Counts { arrived, unordered, late, overtaken, undone } = counts;
        self.counts.arrived += arrived;
        self.counts.unordered += unordered;
        self.counts.late += late;
        self.counts.overtaken += overtaken;
        self.counts.undone += undone;
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
