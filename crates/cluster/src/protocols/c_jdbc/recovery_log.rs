//! The recovery log as the scheduler knows it: the operations since the last checkpoint.
//!
//! C-JDBC, section 2.2.4: "The recovery log records a log entry for each begin, commit, abort and update statement. The recovery procedure
//! consists in replaying the updates in the log." The driver has the same entries on disk.
//!
//! A checkpoint is a name for a number. At that number no transaction is open, so everything up to it is either committed or
//! aborted, and a copy of a database of that moment needs exactly what comes after.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocols::shipping::Ending;

use super::message::{Operation, OperationNumber, Step, TransactionId};

/// The entries, and the names of some numbers.
#[derive(Clone, Debug, Default)]
pub struct RecoveryLog {
    entries: BTreeMap<OperationNumber, Operation>,
    checkpoints: BTreeMap<String, OperationNumber>,
    /// The last number when entries were forgotten.
    forgotten: OperationNumber,
}

impl RecoveryLog {
    /// The log that was found on disk, in which every transaction without an end is aborted.
    pub fn recovered(entries: Vec<Operation>, checkpoints: BTreeMap<String, OperationNumber>) -> Self {
        let mut log = Self { checkpoints, ..Self::default() };
        let mut open = BTreeSet::new();
        for entry in entries {
            match entry.step {
                Step::Begin => _ = open.insert(entry.transaction),
                Step::Write(..) => {}
                Step::End(_) => _ = open.remove(&entry.transaction),
            }
            log.append(entry);
        }
        for transaction in open {
            let number = OperationNumber(log.last().0 + 1);
            log.append(Operation { number, transaction, step: Step::End(Ending::Abort) });
        }
        log
    }

    /// Adds an entry, which has a higher number than all before it.
    pub fn append(&mut self, entry: Operation) {
        self.entries.insert(entry.number, entry);
    }

    /// The last number of an entry or a checkpoint.
    pub fn last(&self) -> OperationNumber {
        let entry = self.entries.last_key_value().map(|(number, _)| *number);
        entry.max(self.checkpoints.values().max().copied()).unwrap_or_default().max(self.forgotten)
    }

    /// Gives the last number a name. The caller has seen that nothing is under way.
    pub fn name(&mut self, checkpoint: String) -> OperationNumber {
        let last = self.last();
        self.checkpoints.insert(checkpoint, last);
        last
    }

    /// The number with this name.
    pub fn checkpoint(&self, name: &str) -> Option<OperationNumber> {
        self.checkpoints.get(name).copied()
    }

    /// Forgets the entries up to a number: every replica has them.
    pub fn trim(&mut self, upto: OperationNumber) {
        self.entries.retain(|number, _| *number > upto);
    }

    /// Forgets the entries of other transactions than these: every replica has them.
    pub fn retain(&mut self, keep: impl Fn(TransactionId) -> bool) {
        self.forgotten = self.last();
        self.entries.retain(|_, entry| keep(entry.transaction));
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries, in order.
    pub fn entries(&self) -> impl Iterator<Item = &Operation> {
        self.entries.values()
    }

    /// What a replica must execute that has the state of a checkpoint.
    pub fn since(&self, checkpoint: OperationNumber) -> Vec<Operation> {
        self.entries
            .range(checkpoint..)
            .filter(|(number, _)| **number > checkpoint)
            .map(|(_, e)| e.clone())
            .collect()
    }

    /// What a replica must execute that has lost its open transactions, and has committed those of which `has` is true. Operations of
    /// transactions that have aborted meanwhile are left out.
    ///
    /// Only where table locks order all writers: a transaction that is missing there then comes after all that it conflicts with
    /// and that are not missing.
    pub fn missing(&self, has: impl Fn(TransactionId) -> bool) -> Vec<Operation> {
        let is_abort = |entry: &&Operation| entry.step == Step::End(Ending::Abort);
        let aborted: BTreeSet<TransactionId> =
            self.entries().filter(is_abort).map(|e| e.transaction).collect();
        let needed = |entry: &&Operation| !has(entry.transaction) && !aborted.contains(&entry.transaction);
        self.entries().filter(needed).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::shipping::StatementId;

    fn entry(number: u64, transaction: u64, step: Step) -> Operation {
        Operation { number: OperationNumber(number), transaction: TransactionId(transaction), step }
    }

    fn write() -> Step {
        Step::Write(std::sync::Arc::new([]), StatementId(1))
    }

    fn numbers(operations: &[Operation]) -> Vec<u64> {
        operations.iter().map(|operation| operation.number.0).collect()
    }

    /// 2.2.4: "records a log entry for each begin, commit, abort and update statement".
    fn log() -> RecoveryLog {
        let entries = vec![
            entry(1, 1, Step::Begin),
            entry(2, 2, Step::Begin),
            entry(3, 1, write()),
            entry(4, 2, write()),
            entry(5, 1, Step::End(Ending::Commit)),
            entry(6, 6, Step::Begin),
            entry(7, 6, write()),
            entry(8, 6, Step::End(Ending::Commit)),
        ];
        RecoveryLog::recovered(entries, BTreeMap::new())
    }

    /// 2.2.4: "The recovery procedure consists in replaying the updates in the log."
    #[test]
    fn section_2_2_4_recovery_replays_what_is_missing_in_order() {
        let log = log();
        assert_eq!(
            numbers(&log.missing(|transaction| transaction.0 == 1)),
            [6, 7, 8],
            "2 was open: it is aborted"
        );
        assert_eq!(numbers(&log.since(OperationNumber(6))), [7, 8, 9]);
    }

    #[test]
    fn a_checkpoint_is_a_name_for_the_last_number() {
        let mut log = log();
        assert_eq!(log.name("nightly".to_owned()), OperationNumber(9));
        log.trim(OperationNumber(9));
        assert_eq!((log.checkpoint("nightly"), log.last()), (Some(OperationNumber(9)), OperationNumber(9)));
        assert!(log.since(OperationNumber(9)).is_empty());
        assert_eq!(log.checkpoint("weekly"), None);
    }
}
