//! The recovery log on the controller's disk: entries in order, of which a crash keeps those that were synchronised, and some more.

use std::collections::BTreeMap;

use cluster::protocols::c_jdbc::message::{Operation, OperationNumber};
use cluster::protocols::c_jdbc::recovery_log::RecoveryLog;

use crate::dice::Dice;

/// The file.
#[derive(Debug, Default)]
pub(super) struct LogDisk {
    entries: Vec<Operation>,
    synced: usize,
    is_syncing: bool,
    checkpoints: BTreeMap<String, OperationNumber>,
}

impl LogDisk {
    pub(super) fn append(&mut self, entry: Operation) {
        self.entries.push(entry);
    }

    pub(super) fn name(&mut self, checkpoint: String, number: OperationNumber) {
        self.checkpoints.insert(checkpoint, number);
    }

    /// Begins to synchronise what is there, if nothing is being synchronised. Returns how much that is.
    pub(super) fn sync(&mut self) -> Option<usize> {
        let begins = !self.is_syncing && self.synced < self.entries.len();
        self.is_syncing |= begins;
        begins.then_some(self.entries.len())
    }

    /// Returns the last number that is safe now.
    pub(super) fn synced(&mut self, count: usize) -> OperationNumber {
        (self.synced, self.is_syncing) = (count, false);
        self.entries[count - 1].number
    }

    pub(super) fn crash(&mut self, dice: &mut Dice) {
        let kept = dice.between(self.synced as u64, self.entries.len() as u64) as usize;
        self.entries.truncate(kept);
        self.synced = kept;
        self.is_syncing = false;
    }

    /// What a new controller finds, after it has aborted all that was open.
    pub(super) fn recover(&mut self) -> RecoveryLog {
        let log = RecoveryLog::recovered(self.entries.clone(), self.checkpoints.clone());
        let last = self.entries.last().map(|entry| entry.number);
        let new: Vec<Operation> = log.entries().filter(|entry| Some(entry.number) > last).cloned().collect();
        self.entries.extend(new);
        self.synced = self.entries.len();
        log
    }
}
