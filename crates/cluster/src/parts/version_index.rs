//! Who wrote a table last: which version a read needs.
//!
//! The sequence numbers of conflict-aware scheduling (section 3: "the scheduler ... tags each query with the version
//! numbers of the tables it reads"), taken from the log's order. A version enters when it is durable, because from
//! then on every read that begins needs it *and every version before it* (DESIGN section 3, Visibility; without the
//! prefix, partial replication shows a long fork: spec FINDINGS section 2).
//!
//! Non-goal: finer than tables (the protocol in full).

use std::collections::BTreeMap;

use crate::event::Reads;
use crate::ids::{TableId, Version};

/// The last needed writer of each table.
#[derive(Clone, Debug)]
pub struct VersionIndex {
    tables: BTreeMap<TableId, Version>,
    /// The last version that may have written anything, DDL among others.
    everything: Version,
    last: Version,
}

impl VersionIndex {
    /// A new leader takes every record that is in the log as needed, by everything (DESIGN section 6).
    pub fn recovered(last: Version) -> Self {
        Self { tables: BTreeMap::new(), everything: last, last }
    }

    /// As if nothing in the log had been seen by anybody: wrong, and there to show that it is (see `Rules`).
    pub(crate) fn forgetful(last: Version) -> Self {
        Self { tables: BTreeMap::new(), everything: Version::ZERO, last }
    }

    /// The next version is durable; it wrote these tables, or anything.
    pub fn record(&mut self, version: Version, tables: &[TableId], everything: bool) {
        assert_eq!(version, self.last.next(), "versions become needed in order");
        self.last = version;
        for table in tables {
            self.tables.insert(*table, version);
        }
        if everything {
            self.everything = version;
            self.tables.clear();
        }
    }

    /// The last needed version.
    pub fn last(&self) -> Version {
        self.last
    }

    /// The last version after which a catalogue may be out of date.
    pub fn last_ddl(&self) -> Version {
        self.everything
    }

    /// The version that a replica must have applied before it may serve this.
    pub fn need(&self, reads: &Reads) -> Version {
        match reads {
            Reads::All => self.last,
            Reads::Catalogue => self.everything,
            Reads::Rows(rows) => self.need(&Reads::Tables(rows.all_tables().into())),
            Reads::Tables(tables) => tables
                .iter()
                .filter_map(|table| self.tables.get(table).copied())
                .fold(self.everything, Version::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(ids: &[u32]) -> Reads {
        Reads::Tables(ids.iter().copied().map(TableId).collect())
    }

    #[test]
    fn a_read_needs_the_last_writer_of_what_it_reads() {
        let mut index = VersionIndex::recovered(Version(10));
        index.record(Version(11), &[TableId(1)], false);
        index.record(Version(12), &[TableId(2)], false);
        assert_eq!(index.need(&tables(&[1])), Version(11));
        assert_eq!(index.need(&tables(&[1, 2])), Version(12));
        assert_eq!(index.need(&tables(&[3])), Version(10), "what was in the log at the start is needed");
        assert_eq!(index.need(&Reads::Catalogue), Version(10));
        assert_eq!(index.need(&Reads::All), Version(12));
    }

    #[test]
    fn ddl_is_needed_by_everything() {
        let mut index = VersionIndex::recovered(Version::ZERO);
        index.record(Version(1), &[TableId(1)], false);
        index.record(Version(2), &[], true);
        assert_eq!(index.need(&tables(&[1])), Version(2));
        assert_eq!(index.need(&tables(&[])), Version(2));
    }
}
