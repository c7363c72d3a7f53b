//! The thread that appends: one batch at a time, under the compares that keep everything else out.
//!
//! ```text
//! if   mod_revision(lead) = R            the claim is in force
//!      created(log/F) = no               nothing is there yet
//!      created(log/PREV) = yes           the batch before is, or base = F where the log begins
//! then put log/F
//! else get lead, log/F
//! ```
//!
//! A call without an answer may have been carried out, so the very same transaction is sent again, for ever: a second one finds
//! `log/F` and knows by epoch, nonce and number that it is its own. The third compare stops a message that arrives after the key it
//! would write was trimmed, when `log/F` is missing again.
//!
//! Invariants:
//!
//! - A batch is reported durable only after etcd has said so.
//! - A batch is never sent under another key than its first one.
//! - The claim is confirmed by each append. Between appends it is read now and then, so that a node which was superseded
//!   notices soon.
//!
//! Not here: which records there are, and in which versions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cluster::ids::Version;
use cluster::record::Record;

use super::batch::BatchHeader;
use super::chair::Leader;
use super::shared::{Shared, Work};
use super::store::{Compare, KeyValue, Operation, Range, StoreError, Txn, TxnAnswer};
use super::window;
use crate::engine::Notices;
use crate::error::LogFailure;

/// The largest value that is written. Etcd's limit for a request is 1.5 MiB.
pub(super) const VALUE_BYTES: usize = 1 << 20;

/// The times of a sequencer; only tests take others than the default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How long the first call waits for its answer.
    pub(crate) first_deadline: Duration,
    /// How long later calls wait at most; each waits twice as long as the one before.
    pub(crate) longest_deadline: Duration,
    /// Between two calls.
    pub(crate) pause: Duration,
    /// The claim is confirmed when nothing was appended for so long.
    pub(crate) confirm_after: Duration,
    /// When the log is closed, what is queued may take so long if etcd does not answer.
    pub(crate) close_patience: Duration,
    /// Between two looks at what can be trimmed.
    pub(crate) trim_every: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first_deadline: Duration::from_millis(500),
            longest_deadline: Duration::from_secs(3),
            pause: Duration::from_millis(30),
            confirm_after: Duration::from_millis(150),
            close_patience: Duration::from_secs(5),
            trim_every: Duration::from_secs(1),
        }
    }
}

pub(super) struct Sequencer {
    shared: Arc<Shared>,
    pace: Pace,
    notices: Notices,
    /// The first version of the last batch; `None` where the log begins.
    previous: Option<Version>,
    /// The number of the next batch in this term.
    n: u64,
}

impl Sequencer {
    pub(super) fn new(shared: Arc<Shared>, pace: Pace, notices: Notices) -> Self {
        let previous = shared.window().firsts.back().copied();
        Self { shared, pace, notices, previous, n: 0 }
    }

    pub(super) fn run(mut self) {
        if let Err(failure) = self.write_until_closed() {
            tracing::error!("{failure}");
            self.shared.give_up();
            (self.notices.failed)(failure);
        }
    }

    fn write_until_closed(&mut self) -> Result<(), LogFailure> {
        loop {
            match self.shared.next_work(self.pace.confirm_after) {
                Work::Append(records) => self.append(records)?,
                Work::Confirm => self.confirm()?,
                Work::Fail(failure) => return Err(failure),
                Work::End => return Ok(()),
            }
        }
    }

    /// Reads who leads. No answer is no failure: the next append or confirmation will tell.
    fn confirm(&self) -> Result<(), LogFailure> {
        let lead = self.shared.etcd.keys.lead();
        let txn = Txn { then: vec![Operation::Read(Range::key(lead))], ..Txn::default() };
        let sent_at = Instant::now();
        match self.shared.etcd.store.txn(&txn, self.pace.first_deadline) {
            Ok(answer) => self.must_lead(answer.key(0), sent_at),
            Err(error) => {
                if self.shared.note_unanswered(sent_at) {
                    tracing::warn!("{error}; no statement runs until it answers");
                }
                Ok(())
            }
        }
    }

    /// The claim must be in force, by what was read of the key.
    fn must_lead(&self, lead: Option<&KeyValue>, sent_at: Instant) -> Result<(), LogFailure> {
        if window::is_claim(lead, self.shared.claim.revision) {
            self.shared.note_confirmed(sent_at);
            return Ok(());
        }
        let leader = lead.and_then(|kv| Leader::decode(&kv.value));
        Err(match leader {
            Some(leader) => LogFailure::Fenced { by: leader.epoch, node: leader.node },
            None => {
                LogFailure::Damaged { key: self.shared.etcd.keys.lead(), reason: "it holds no claim".into() }
            }
        })
    }

    fn append(&mut self, records: Vec<Arc<Record>>) -> Result<(), LogFailure> {
        let bytes: Vec<u8> = records.iter().flat_map(|record| record.bytes()).copied().collect();
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return Ok(()) };
        let (first, last) = (first.header().first, last.header().last);
        let parts = if bytes.len() <= VALUE_BYTES { 0 } else { bytes.len().div_ceil(VALUE_BYTES) };
        let header = BatchHeader {
            cluster: self.shared.copy.cluster,
            epoch: self.shared.claim.epoch,
            nonce: self.shared.claim.nonce,
            n: self.n,
            first,
            last,
            previous: self.previous.unwrap_or(first),
            parts: parts as u32,
            bytes: bytes.len() as u64,
        };
        if parts > 0 {
            self.put_parts(first, &bytes)?;
        }
        self.put_batch(&header, &bytes)?;
        self.n += 1;
        self.previous = Some(first);
        self.note_appended(first, records);
        (self.notices.durable)(last);
        Ok(())
    }

    fn put_parts(&self, first: Version, bytes: &[u8]) -> Result<(), LogFailure> {
        for (k, part) in bytes.chunks(VALUE_BYTES).enumerate() {
            let key = self.shared.etcd.keys.part(first, self.shared.claim.epoch, k);
            let lead = self.shared.etcd.keys.lead();
            let (answer, sent_at) = self.settle(&Txn {
                compares: vec![Compare::WrittenAt(lead.clone(), self.shared.claim.revision)],
                then: vec![Operation::Put(key, part.to_vec())],
                otherwise: vec![Operation::Read(Range::key(lead))],
            })?;
            if !answer.succeeded {
                return self.must_lead(answer.key(0), sent_at);
            }
        }
        Ok(())
    }

    fn put_batch(&self, header: &BatchHeader, bytes: &[u8]) -> Result<(), LogFailure> {
        let keys = &self.shared.etcd.keys;
        let (lead, key) = (keys.lead(), keys.log(header.first));
        let follows = match self.previous {
            Some(previous) => Compare::Exists(keys.log(previous)),
            None => Compare::Is(keys.base(), header.first.0.to_string().into_bytes()),
        };
        let (answer, sent_at) = self.settle(&Txn {
            compares: vec![
                Compare::WrittenAt(lead.clone(), self.shared.claim.revision),
                Compare::Missing(key.clone()),
                follows,
            ],
            then: vec![Operation::Put(key.clone(), header.encode(bytes))],
            otherwise: vec![Operation::Read(Range::key(lead)), Operation::Read(Range::key(key.clone()))],
        })?;
        if answer.succeeded {
            self.shared.note_confirmed(sent_at);
            return Ok(());
        }
        self.must_lead(answer.key(0), sent_at)?;
        let damaged = |reason: &str| LogFailure::Damaged { key: key.clone(), reason: reason.to_owned() };
        match answer.key(1).map(|kv| BatchHeader::decode(&kv.value)) {
            // An earlier call, whose answer was lost, has written it.
            Some(Ok(found)) if found.is_same_append(header) => Ok(()),
            Some(_) => Err(damaged("another batch is there already")),
            None => Err(damaged("the batch before it is missing")),
        }
    }

    /// Sends a transaction, which may be carried out twice, until it is answered.
    fn settle(&self, txn: &Txn) -> Result<(TxnAnswer, Instant), LogFailure> {
        let mut deadline = self.pace.first_deadline;
        let mut is_logged = false;
        loop {
            let sent_at = Instant::now();
            let error = match self.shared.etcd.store.txn(txn, deadline) {
                Ok(answer) => {
                    self.shared.append_found_no_space.store(false, Ordering::Relaxed);
                    return Ok((answer, sent_at));
                }
                Err(error) => error,
            };
            if !is_logged {
                tracing::warn!("{error}; the same append is sent until it is answered");
            }
            is_logged = true;
            match error {
                StoreError::NoSpace => self.shared.append_found_no_space.store(true, Ordering::Relaxed),
                StoreError::Refused { reason, .. } => return Err(LogFailure::Refused { reason }),
                StoreError::Unreachable { .. } | StoreError::Damaged { .. } => {
                    // It was logged above, with what becomes of the append.
                    let _is_first = self.shared.note_unanswered(sent_at);
                }
            }
            if let Some(failure) = self.shared.take_copy_failure() {
                return Err(failure);
            }
            if self.shared.closed_for().is_some_and(|closed| closed >= self.pace.close_patience) {
                return Err(LogFailure::ClosedUnwritten { durable: self.shared.copy.last() });
            }
            std::thread::sleep(self.pace.pause);
            deadline = (deadline * 2).min(self.pace.longest_deadline);
        }
    }

    fn note_appended(&self, first: Version, records: Vec<Arc<Record>>) {
        let mut window = self.shared.window();
        window.firsts.push_back(first);
        let spilled = records.iter().filter(|record| record.is_spilled());
        window.spilled.extend(spilled.map(|record| (record.header().last, record.header().identity)));
        drop(window);
        self.shared.copy.add(records);
    }
}
