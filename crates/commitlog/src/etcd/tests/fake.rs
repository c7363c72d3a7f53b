//! An etcd in memory that loses requests and answers, carries out what it was told twice, and never lies.
//!
//! It can also break a rule of the sequencer on the way ([`Mutant`]), to see that a test notices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::etcd::store::{
    Compare, KeyValue, Operation, Range, Revision, SpaceUsed, Store, StoreError, Txn, TxnAnswer,
};

/// How often, of a thousand calls, something goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// The request is lost.
    pub(super) lost_requests: u64,
    /// The answer is lost.
    pub(super) lost_answers: u64,
    /// The request is carried out a second time, some time later.
    pub(super) late_duplicates: u64,
}

/// A rule that is switched off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mutant {
    /// An append does not compare the claim.
    NoLead,
    /// An append does not compare that the batch before is there.
    NoPrevious,
    /// A call that is repeated goes to another key.
    NewKey,
}

#[derive(Debug, Default)]
pub(super) struct Fake(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    revision: Revision,
    entries: BTreeMap<String, Entry>,
    faults: Faults,
    random: u64,
    late: Vec<Txn>,
    is_full: bool,
    is_away: bool,
    /// How long each call would have waited that was made while it was away.
    waits: Vec<Duration>,
    loses_writes: bool,
    mutant: Option<Mutant>,
    /// Keys of appends that were not answered.
    unanswered: BTreeSet<String>,
    /// Everything that was ever written under `log/`, in order.
    history: Vec<(String, Vec<u8>)>,
}

#[derive(Debug)]
struct Entry {
    value: Vec<u8>,
    written_at: Revision,
}

impl Fake {
    pub(super) fn with(seed: u64, faults: Faults, mutant: Option<Mutant>) -> Self {
        Self(Mutex::new(Inner { faults, random: seed | 1, mutant, ..Inner::default() }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    pub(super) fn set_full(&self, is_full: bool) {
        self.inner().is_full = is_full;
    }

    pub(super) fn set_away(&self, is_away: bool) {
        self.inner().is_away = is_away;
    }

    /// How long each call would have waited that was made while it was away, since this was asked last.
    pub(super) fn waits(&self) -> Vec<Duration> {
        std::mem::take(&mut self.inner().waits)
    }

    /// Requests that would write are lost.
    pub(super) fn lose_writes(&self, loses: bool) {
        self.inner().loses_writes = loses;
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        self.inner().faults = faults;
    }

    pub(super) fn keys(&self, part: &str) -> Vec<String> {
        self.inner().entries.keys().filter(|key| key.contains(part)).cloned().collect()
    }

    pub(super) fn set(&self, key: &str, value: &[u8]) {
        self.inner().put(key.to_owned(), value.to_vec());
    }

    pub(super) fn history(&self) -> Vec<(String, Vec<u8>)> {
        self.inner().history.clone()
    }
}

impl Inner {
    /// A number below a thousand (xorshift).
    fn roll(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % 1000
    }

    fn put(&mut self, key: String, value: Vec<u8>) {
        self.revision += 1;
        self.write(key, value);
    }

    fn write(&mut self, key: String, value: Vec<u8>) {
        if key.contains("/log/") {
            self.history.push((key.clone(), value.clone()));
        }
        self.entries.insert(key, Entry { value, written_at: self.revision });
    }

    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::WrittenAt(key, revision) => {
                self.entries.get(key).map_or(0, |entry| entry.written_at) == *revision
            }
            Compare::Exists(key) => self.entries.contains_key(key),
            Compare::Missing(key) => !self.entries.contains_key(key),
            Compare::Is(key, value) => self.entries.get(key).is_some_and(|entry| entry.value == *value),
        }
    }

    fn read(&self, range: &Range) -> Vec<KeyValue> {
        let kv = |(key, entry): (&String, &Entry)| KeyValue {
            key: key.clone(),
            value: if range.keys_only { Vec::new() } else { entry.value.clone() },
            written_at: entry.written_at,
        };
        let Some(to) = &range.to else {
            return self.entries.get_key_value(&range.from).map(kv).into_iter().collect();
        };
        if range.from >= *to {
            return Vec::new();
        }
        let found = self.entries.range(range.from.clone()..to.clone());
        if range.descending {
            found.rev().take(range.limit).map(kv).collect()
        } else {
            found.take(range.limit).map(kv).collect()
        }
    }

    fn carry_out(&mut self, txn: &Txn) -> Result<TxnAnswer, StoreError> {
        let succeeded = txn.compares.iter().all(|compare| self.holds(compare));
        let operations = if succeeded { &txn.then } else { &txn.otherwise };
        let writes = operations.iter().any(|operation| !matches!(operation, Operation::Read(_)));
        if operations.iter().any(|operation| matches!(operation, Operation::Put(..))) && self.is_full {
            return Err(StoreError::NoSpace);
        }
        if writes {
            self.revision += 1;
        }
        let mut found = Vec::new();
        for operation in operations {
            match operation {
                Operation::Put(key, value) => self.write(key.clone(), value.clone()),
                Operation::Delete(from, to) => self.entries.retain(|key, _| key < from || key >= to),
                Operation::Read(range) => found.push(self.read(range)),
            }
        }
        Ok(TxnAnswer { succeeded, revision: self.revision, found })
    }

    /// What the mutant makes of an append.
    fn changed(&self, txn: &Txn) -> Txn {
        let mut txn = txn.clone();
        let Some(Operation::Put(key, _)) = txn.then.first_mut().filter(|_| self.mutant.is_some()) else {
            return txn;
        };
        if !key.contains("/log/") {
            return txn;
        }
        match self.mutant {
            Some(Mutant::NoLead) => {
                txn.compares.retain(|compare| !matches!(compare, Compare::WrittenAt(..)));
            }
            Some(Mutant::NoPrevious) => {
                txn.compares.retain(|compare| !matches!(compare, Compare::Exists(_) | Compare::Is(..)));
            }
            Some(Mutant::NewKey) if self.unanswered.contains(key) => {
                *key += "-again";
                let key = key.clone();
                txn.compares.retain(|compare| !matches!(compare, Compare::Missing(_)));
                txn.compares.push(Compare::Missing(key));
            }
            _ => {}
        }
        txn
    }

    fn unreachable() -> StoreError {
        StoreError::Unreachable { url: "fake".into(), reason: "lost".into() }
    }
}

impl Store for Fake {
    fn txn(&self, txn: &Txn, deadline: Duration) -> Result<TxnAnswer, StoreError> {
        let mut inner = self.inner();
        if inner.is_away {
            inner.waits.push(deadline);
        }
        let writes = txn.then.iter().any(|operation| !matches!(operation, Operation::Read(_)));
        if inner.is_away || (inner.loses_writes && writes) {
            return Err(Inner::unreachable());
        }
        let faults = inner.faults;
        // A message of the past arrives.
        if !inner.late.is_empty() && inner.roll() < 300 {
            let at = inner.roll() as usize % inner.late.len();
            let late = inner.late.swap_remove(at);
            let _ = inner.carry_out(&late);
        }
        let original = txn;
        let txn = inner.changed(txn);
        let is_late = inner.roll() < faults.late_duplicates;
        if is_late {
            inner.late.push(txn.clone());
        }
        let key = match original.then.first() {
            Some(Operation::Put(key, _)) => key.clone(),
            _ => String::new(),
        };
        if inner.roll() < faults.lost_requests {
            inner.unanswered.insert(key);
            return Err(Inner::unreachable());
        }
        let answer = inner.carry_out(&txn)?;
        if inner.roll() < faults.lost_answers {
            inner.unanswered.insert(key);
            return Err(Inner::unreachable());
        }
        Ok(answer)
    }

    fn compact(&self, _: Revision) -> Result<(), StoreError> {
        Ok(())
    }

    fn space(&self) -> Result<SpaceUsed, StoreError> {
        let inner = self.inner();
        if inner.is_away {
            return Err(Inner::unreachable());
        }
        let used_bytes = inner.entries.values().map(|entry| entry.value.len() as u64).sum();
        Ok(SpaceUsed { used_bytes, quota_bytes: 1 << 30, has_no_space: inner.is_full })
    }
}
