//! The acknowledgements that clients got, to be compared with the database afterwards.
//!
//! A workload names things that its transactions add and that can be counted (orders, payments, increments). A
//! transaction enters them while it runs; they count when its COMMIT was acknowledged, and are doubtful when the
//! connection was lost between sending COMMIT and its reply. So afterwards the database must have between `told` and
//! `told + doubtful` more of each than before: less is a lost commit, more is one that happened twice or was denied.

use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Something that can be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    /// Its name, by which transactions enter it.
    pub(crate) name: &'static str,
    /// How many there are: one `bigint`.
    pub(crate) sql: &'static str,
}

/// The number of one thing that was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// By transactions that were acknowledged.
    pub(crate) told: i64,
    /// Added by transactions whose outcome is unknown.
    pub(crate) doubtful: i64,
}

/// The numbers of all things that were added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger(pub(crate) BTreeMap<&'static str, Entry>);

impl Ledger {
    /// A transaction with these was acknowledged.
    pub(crate) fn tell(&mut self, entered: &[(&'static str, i64)]) {
        for (name, count) in entered {
            self.0.entry(name).or_default().told += count;
        }
    }

    /// A transaction with these may have been committed.
    pub(crate) fn doubt(&mut self, entered: &[(&'static str, i64)]) {
        for (name, count) in entered {
            self.0.entry(name).or_default().doubtful += count;
        }
    }

    /// In words, what the database has that it should not have, or has not that it should.
    pub(crate) fn judge(
        &self,
        before: &BTreeMap<&'static str, i64>,
        after: &BTreeMap<&'static str, i64>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, then) in before {
            let added = after.get(name).copied().unwrap_or_default() - then;
            let entry = self.0.get(name).copied().unwrap_or_default();
            // What is entered may also be negative: something that was taken away.
            let (least, most) =
                (entry.told.min(entry.told + entry.doubtful), entry.told.max(entry.told + entry.doubtful));
            if added < least || added > most {
                wrong.push(format!(
                    "{name}: clients were told of {}, {} more are in doubt, and the database has {added} more",
                    entry.told, entry.doubtful
                ));
            }
        }
        for name in self.0.keys().filter(|name| !before.contains_key(*name)) {
            wrong.push(format!("{name}: entered, but not counted"));
        }
        wrong
    }
}

impl AddAssign<&Self> for Ledger {
    fn add_assign(&mut self, other: &Self) {
        for (name, entry) in &other.0 {
            let sum = self.0.entry(name).or_default();
            sum.told += entry.told;
            sum.doubtful += entry.doubtful;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_and_surplus_commits_are_found() {
        let mut ledger = Ledger::default();
        ledger.tell(&[("orders", 1), ("lines", 7)]);
        ledger.doubt(&[("orders", 1), ("lines", 5)]);
        let counts = |orders, lines| BTreeMap::from([("orders", orders), ("lines", lines)]);
        let judge = |orders, lines| ledger.judge(&counts(10, 70), &counts(orders, lines));
        assert!(judge(11, 77).is_empty());
        assert!(judge(12, 82).is_empty());
        assert_eq!(judge(10, 77).len(), 1, "a lost commit");
        assert_eq!(judge(13, 83).len(), 2, "one that happened twice");
        assert_eq!(ledger.judge(&BTreeMap::new(), &BTreeMap::new()).len(), 2, "entries that are not counted");
    }
}
