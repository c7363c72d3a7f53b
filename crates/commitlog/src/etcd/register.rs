//! The register under keys of etcd: the leader changes it, and no node that was superseded.
//!
//! Each change is one transaction. It compares the claim, as appends do, and the revision of `turn`, which each change writes anew:
//!
//! ```text
//! if   mod_revision(lead) = R, mod_revision(turn) = T
//! then put turn "<epoch>-<nonce>-<n>", put placement    else get lead, turn
//! ```
//!
//! A change without an answer may have been carried out. So it is sent again until it is answered, and a caller never acts on a guess.
//! The second compare stops a message that arrives after later changes. Before a change, the claim is read once: if etcd does not
//! answer that, the change fails and nothing was sent.
//!
//! A register without `member` was not begun. It takes the entries of the node's files, `member` as the last one, so that a crash in
//! between leaves one that is begun again. Once it has `member`, the files are a copy of it, for the day when etcd is lost: each
//! change goes there when it is durable.
//!
//! Invariant: after a claim, no node of an earlier term changes the register.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::chair::{Claim, Leader};
use super::store::{self, Compare, KeyValue, Operation, Range, Revision, StoreError, Txn, TxnAnswer};
use super::window::{self, EtcdKeys};
use crate::file::FileRegister;
use crate::register::{ENTRY_BYTES_MAX, Entry, Register, RegisterError};

/// Between two calls.
const PAUSE: Duration = Duration::from_millis(50);
/// More entries about replicas than this are an error.
const REPLICA_ENTRIES_MAX: usize = 1_000;

/// The register of a node that leads.
#[derive(Debug)]
pub struct EtcdRegister {
    etcd: EtcdKeys,
    claim: Claim,
    files: FileRegister,
    /// How long etcd may be away before a change fails that was not sent yet.
    patience: Duration,
    is_closed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    entries: BTreeMap<Entry, Vec<u8>>,
    turn: Revision,
    /// The number of the next change in this term.
    n: u64,
}

impl EtcdRegister {
    /// The value of an entry as it is now, for a node that has no claim yet.
    pub fn peek(
        etcd: &EtcdKeys,
        entry: &Entry,
        patience: Duration,
    ) -> Result<Option<Vec<u8>>, RegisterError> {
        let answer = asked(etcd, vec![Range::key(etcd.keys.entry(entry))], patience)?;
        Ok(answer.key(0).map(|kv| kv.value.clone()))
    }

    /// Opens the register for the term of this claim. One that was not begun takes what the files hold; then the files take what it
    /// holds. `members`: that entry, as [`Self::peek`] has read it before the claim.
    ///
    /// Ordering duty: the claim was answered before.
    pub fn open(
        etcd: EtcdKeys,
        claim: Claim,
        files: FileRegister,
        members: Option<&[u8]>,
        patience: Duration,
    ) -> Result<Self, RegisterError> {
        let state = load(&etcd, &claim, patience)?;
        let found = state.entries.get(&Entry::Members).map(Vec::as_slice);
        if found != members {
            return Err(RegisterError::Outdated { entry: Entry::Members });
        }
        let is_begun = found.is_some();
        let is_closed = AtomicBool::new(false);
        let register = Self { etcd, claim, files, patience, is_closed, state: Mutex::new(state) };
        if is_begun {
            register.copy_all()?;
        } else {
            register.begin()?;
        }
        Ok(register)
    }

    fn begin(&self) -> Result<(), RegisterError> {
        let found = self.files.entries()?;
        let left: Vec<Entry> = self.state().entries.keys().cloned().collect();
        for entry in left.iter().filter(|entry| !found.contains(entry)) {
            self.change(entry, None)?;
        }
        let (members, others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|entry| *entry == Entry::Members);
        for entry in others.iter().chain(&members) {
            self.change(entry, self.files.read(entry)?.as_deref())?;
        }
        Ok(())
    }

    /// Has the files hold what etcd does.
    fn copy_all(&self) -> Result<(), RegisterError> {
        let state = self.state();
        for entry in self.files.entries()?.iter().filter(|entry| !state.entries.contains_key(entry)) {
            self.files.change(entry, None)?;
        }
        for (entry, value) in &state.entries {
            if self.files.read(entry)?.as_ref() != Some(value) {
                self.files.change(entry, Some(value))?;
            }
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The claim must be in force.
    fn must_lead(&self, lead: Option<&KeyValue>) -> Result<(), RegisterError> {
        must_lead(&self.etcd, &self.claim, lead)
    }

    /// Sends a change until it is answered.
    fn settle(&self, entry: &Entry, txn: &Txn) -> Result<TxnAnswer, RegisterError> {
        let mut may_be_done = false;
        for deadline in store::deadlines() {
            match self.etcd.store.txn(txn, deadline) {
                Ok(answer) => return Ok(answer),
                Err(error) if !may_be_done && !error.is_ambiguous() => {
                    return Err(RegisterError::Store(error));
                }
                Err(error) => {
                    if !may_be_done {
                        tracing::warn!(%entry, "{error}; the same change is sent until it is answered");
                    }
                    may_be_done = true;
                }
            }
            if self.is_closed.load(Ordering::Relaxed) {
                return Err(RegisterError::InDoubt { entry: entry.clone() });
            }
            thread::sleep(PAUSE);
        }
        unreachable!("the deadlines do not end")
    }
}

impl Register for EtcdRegister {
    fn read(&self, entry: &Entry) -> Result<Option<Vec<u8>>, RegisterError> {
        Ok(self.state().entries.get(entry).cloned())
    }

    fn change(&self, entry: &Entry, value: Option<&[u8]>) -> Result<(), RegisterError> {
        if let Some(value) = value.filter(|value| value.len() > ENTRY_BYTES_MAX) {
            return Err(RegisterError::TooLarge { entry: entry.clone(), bytes: value.len() });
        }
        let mut state = self.state();
        if state.entries.get(entry).map(Vec::as_slice) == value {
            return Ok(());
        }
        let (lead, turn, key) = (self.etcd.keys.lead(), self.etcd.keys.turn(), self.etcd.keys.entry(entry));
        self.must_lead(asked(&self.etcd, vec![Range::key(lead.clone())], self.patience)?.key(0))?;
        let mark = format!("{:08x}-{:016x}-{:016x}", self.claim.epoch.0, self.claim.nonce.0, state.n);
        // The next change has another mark, also if this one stays in doubt.
        state.n += 1;
        let write = match value {
            Some(value) => Operation::Put(key, value.to_vec()),
            // The key behind this one: no other lies between.
            None => Operation::Delete(key.clone(), key + "\0"),
        };
        let answer = self.settle(
            entry,
            &Txn {
                compares: vec![
                    Compare::WrittenAt(lead.clone(), self.claim.revision),
                    Compare::WrittenAt(turn.clone(), state.turn),
                ],
                then: vec![Operation::Put(turn.clone(), mark.clone().into_bytes()), write],
                otherwise: vec![Operation::Read(Range::key(lead)), Operation::Read(Range::key(turn.clone()))],
            },
        )?;
        state.turn = if answer.succeeded {
            answer.revision
        } else {
            // An earlier call, whose answer was lost, has done it; else another node or something else writes here.
            let earlier = answer.key(1).filter(|kv| kv.value == mark.as_bytes());
            if earlier.is_none() {
                self.must_lead(answer.key(0))?;
            }
            earlier.ok_or(RegisterError::Malformed { key: turn })?.written_at
        };
        match value {
            Some(value) => drop(state.entries.insert(entry.clone(), value.to_vec())),
            None => drop(state.entries.remove(entry)),
        }
        if let Err(error) = self.files.change(entry, value) {
            tracing::warn!(%error, "the copy of an entry that etcd has cannot be written");
        }
        Ok(())
    }

    fn location(&self, entry: &Entry) -> String {
        format!("the key {} of etcd", self.etcd.keys.entry(entry))
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }
}

fn must_lead(etcd: &EtcdKeys, claim: &Claim, lead: Option<&KeyValue>) -> Result<(), RegisterError> {
    if window::is_claim(lead, claim.revision) {
        return Ok(());
    }
    let leader = lead.and_then(|kv| Leader::decode(&kv.value));
    let leader = leader.ok_or_else(|| RegisterError::Malformed { key: etcd.keys.lead() })?;
    Err(RegisterError::Fenced { by: leader.epoch, node: leader.node })
}

/// Reads, for as long as the patience lasts.
fn asked(etcd: &EtcdKeys, ranges: Vec<Range>, patience: Duration) -> Result<TxnAnswer, RegisterError> {
    let then = ranges.into_iter().map(Operation::Read).collect();
    let txn = Txn { then, ..Txn::default() };
    let until = Instant::now() + patience;
    for deadline in store::deadlines() {
        match etcd.store.txn(&txn, deadline) {
            Ok(answer) => return Ok(answer),
            Err(StoreError::Unreachable { .. }) if Instant::now() < until => thread::sleep(PAUSE),
            Err(error) => return Err(RegisterError::Store(error)),
        }
    }
    unreachable!("the deadlines do not end")
}

/// All entries, by one reading.
fn load(etcd: &EtcdKeys, claim: &Claim, patience: Duration) -> Result<State, RegisterError> {
    let keys = &etcd.keys;
    let single = [Entry::Members, Entry::Seal, Entry::Placement, Entry::Usage, Entry::Statements];
    let mut ranges = vec![Range::key(keys.lead()), Range::key(keys.turn())];
    ranges.extend(single.iter().map(|entry| Range::key(keys.entry(entry))));
    let of_replicas: [fn(String) -> Entry; 2] = [Entry::Quarantine, Entry::Parked];
    let prefixes = of_replicas.map(|of| (of, keys.entry(&of(String::new()))));
    for (_, prefix) in &prefixes {
        // The sign behind the slash.
        let end = format!("{}0", prefix.trim_end_matches('/'));
        ranges.push(Range::between(prefix.clone(), end, REPLICA_ENTRIES_MAX));
    }
    let mut answer = asked(etcd, ranges, patience)?;
    must_lead(etcd, claim, answer.key(0))?;
    let turn = answer.key(1).map_or(0, |kv| kv.written_at);
    let mut entries = BTreeMap::new();
    for (of, prefix) in prefixes.iter().rev() {
        let found = answer.found.pop().unwrap_or_default();
        if found.len() == REPLICA_ENTRIES_MAX {
            return Err(RegisterError::Malformed { key: prefix.clone() });
        }
        for kv in found {
            let replica = kv.key.strip_prefix(prefix.as_str()).unwrap_or_default().to_owned();
            entries.insert(of(replica), kv.value);
        }
    }
    for entry in single.into_iter().rev() {
        let found = answer.found.pop().unwrap_or_default().pop();
        entries.extend(found.map(|kv| (entry, kv.value)));
    }
    Ok(State { entries, turn, n: 0 })
}
