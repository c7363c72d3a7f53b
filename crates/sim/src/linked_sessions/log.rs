//! The log on etcd: one list that every node reaches, fenced by the term.

use cluster::protocols::shipping::{Operation, SequenceNumber, StatementId};

use super::ids::{Identity, statement_of};

/// The writes of a transaction that commits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) identity: Identity,
    pub(super) writes: Vec<Operation>,
}

impl Record {
    /// The statements, as clients name them.
    pub(super) fn statements(&self) -> impl Iterator<Item = StatementId> + '_ {
        self.writes.iter().map(|write| statement_of(write.statement))
    }
}

#[derive(Debug, Default)]
pub(super) struct Log {
    /// The newest term.
    pub(super) claimed: u64,
    pub(super) records: Vec<Record>,
}

impl Log {
    /// Claims the next term.
    pub(super) fn claim(&mut self) -> u64 {
        self.claimed += 1;
        self.claimed
    }

    /// Appends a record; `false` if it is of a former term.
    pub(super) fn append(&mut self, record: Record, is_fenced: bool) -> bool {
        if is_fenced && record.identity.term() != self.claimed {
            return false;
        }
        self.records.push(record);
        true
    }

    /// All records in the order of term and number.
    pub(super) fn in_order(&self) -> Vec<&Record> {
        let mut records: Vec<&Record> = self.records.iter().collect();
        records.sort_by_key(|record| record.identity);
        records
    }
}

impl Identity {
    /// As the judge orders transactions.
    pub(super) fn as_number(self) -> SequenceNumber {
        SequenceNumber(self.0)
    }
}
