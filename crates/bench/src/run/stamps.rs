//! What `SHOW STATS` tells of transactions that are ordered by stamps, between two moments.

use std::collections::BTreeMap;

use serde::Serialize;
use testbed::fault::Fault;
use tokio_postgres::Client;

use super::elastic::rows;

/// Counters, as much as they have grown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    /// Records of the log.
    pub(crate) records: u64,
    /// Messages to other replicas.
    pub(crate) messages: u64,
    /// Messages that came after one of a younger transaction.
    pub(crate) unordered: u64,
    /// Messages that took longer than Max.
    pub(crate) late: u64,
    /// Executions that were undone for an older transaction.
    pub(crate) undone: u64,
    /// Executions of other replicas that were committed.
    pub(crate) performed: u64,
    /// Executions of other replicas that had changed other rows.
    pub(crate) differed: u64,
    /// Executions of other replicas that took too long.
    pub(crate) outrun: u64,
    /// Executions of other replicas that failed or gave way.
    pub(crate) failed: u64,
    /// Transactions that got 40001.
    pub(crate) aborted: u64,
}

impl Counts {
    /// Those since the start of the node.
    pub(super) async fn read(admin: &Client) -> Result<Self, Fault> {
        let shown = rows(admin, "SHOW STATS").await?;
        let pair = |row: &Vec<String>| Some((row.first()?.clone(), row.get(1)?.parse().ok()?));
        Self::of(&shown.iter().filter_map(pair).collect())
    }

    fn of(shown: &BTreeMap<String, u64>) -> Result<Self, Fault> {
        let count = |name: &str| {
            let missing = || Fault::Database(format!("SHOW STATS shows no {name}"));
            shown.get(name).copied().ok_or_else(missing)
        };
        Ok(Self {
            records: count("records")?,
            messages: count("messages_sent")?,
            unordered: count("messages_unordered")?,
            late: count("messages_late")?,
            undone: count("executions_undone")?,
            performed: count("performed")?,
            differed: count("performed_differently")?,
            outrun: count("performers_outrun")?,
            failed: count("performers_failed")?,
            aborted: count("aborted_40001")?,
        })
    }

    /// What was added since.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            records: self.records.saturating_sub(earlier.records),
            messages: self.messages.saturating_sub(earlier.messages),
            unordered: self.unordered.saturating_sub(earlier.unordered),
            late: self.late.saturating_sub(earlier.late),
            undone: self.undone.saturating_sub(earlier.undone),
            performed: self.performed.saturating_sub(earlier.performed),
            differed: self.differed.saturating_sub(earlier.differed),
            outrun: self.outrun.saturating_sub(earlier.outrun),
            failed: self.failed.saturating_sub(earlier.failed),
            aborted: self.aborted.saturating_sub(earlier.aborted),
        }
    }

    /// Messages for each record.
    pub(crate) fn messages_each(&self) -> f64 {
        self.messages as f64 / self.records.max(1) as f64
    }

    /// The part of all messages that this many are.
    pub(crate) fn of_messages(&self, count: u64) -> f64 {
        count as f64 / self.messages.max(1) as f64
    }

    /// Executions that were undone, as a part of all that was started: at homes and at other replicas.
    pub(crate) fn undone_share(&self) -> f64 {
        let ended = self.records + self.performed + self.differed + self.outrun + self.failed;
        self.undone as f64 / (ended + self.undone).max(1) as f64
    }

    /// Executions of other replicas that were committed, as a part of those that were started.
    pub(crate) fn performed_share(&self) -> f64 {
        let started = self.performed + self.differed + self.outrun + self.failed;
        self.performed as f64 / started.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_was_counted_between() {
        let earlier = Counts { records: 10, messages: 70, unordered: 1, ..Counts::default() };
        let later = Counts {
            records: 30,
            messages: 210,
            unordered: 8,
            late: 7,
            undone: 2,
            performed: 60,
            differed: 18,
            ..Counts::default()
        };
        let counts = later.since(earlier);
        assert!((counts.messages_each() - 7.0).abs() < 1e-9);
        assert!((counts.of_messages(counts.unordered) - 0.05).abs() < 1e-9);
        assert!((counts.undone_share() - 0.02).abs() < 1e-9);
        assert!((counts.performed_share() - 60.0 / 78.0).abs() < 1e-9);
        assert!(Counts::default().undone_share().abs() < 1e-9, "nothing is no division by zero");
    }

    #[test]
    fn a_counter_that_is_missing_is_named() {
        let shown = BTreeMap::from([("records".to_owned(), 3)]);
        let fault = Counts::of(&shown).unwrap_err();
        assert!(matches!(fault, Fault::Database(why) if why.contains("messages_sent")));
    }
}
