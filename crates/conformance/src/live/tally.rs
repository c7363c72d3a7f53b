//! Counts and notes while clients run.

use std::collections::BTreeMap;

/// Counts of one kind of transaction.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Ends {
    pub(super) committed: u64,
    pub(super) aborted: u64,
    pub(super) unknown: u64,
}

/// Counts of one client, or of all.
#[derive(Default, Debug)]
pub(super) struct Tally {
    /// By kind of transaction.
    pub(super) kinds: BTreeMap<String, Ends>,
    /// Reads of lists by the port of the server that answered.
    pub(super) servers: BTreeMap<String, u64>,
    /// Errors after which one tries again.
    pub(super) again: u64,
    /// Other errors and lost connections, by their text.
    pub(super) troubles: BTreeMap<String, u64>,
    /// Violations found while running.
    pub(super) wrong: Vec<String>,
}

impl Tally {
    /// Adds another one.
    pub(super) fn add(&mut self, other: Self) {
        for (kind, ends) in other.kinds {
            let sum = self.kinds.entry(kind).or_default();
            sum.committed += ends.committed;
            sum.aborted += ends.aborted;
            sum.unknown += ends.unknown;
        }
        for (server, count) in other.servers {
            *self.servers.entry(server).or_default() += count;
        }
        self.again += other.again;
        for (text, count) in other.troubles {
            *self.troubles.entry(text).or_default() += count;
        }
        self.wrong.extend(other.wrong);
    }
}
