//! Reading what etcd holds: the window of the newest batches, which begins at `base`.
//!
//! A copy that ends with version 42 asks for the batch that holds 42, to compare, and for the batches after it, in one step, so that what
//! comes is the state of one moment.
//!
//! Invariant: what is added to a copy follows its last version without a gap, and the copy's last record is the one that etcd has.

use std::sync::Arc;

use cluster::ids::{ClusterId, Version};
use cluster::record::{CHUNK_HEAD_BYTES, Chunk, Record};

use super::batch::{BatchError, BatchHeader};
use super::copy::LogCopy;
use super::error::EtcdError;
use super::keys::{self, Keys};
use super::store::{self, KeyValue, Operation, Range, Revision, Store, StoreError, Txn, TxnAnswer};
use crate::engine::LogEngine;
use crate::error::LogError;

/// How many batches one request reads; a batch that is not in parts has at most a megabyte.
const PAGE_BATCHES: usize = 16;
/// How many parts one request reads.
const PAGE_PARTS: usize = 8;
/// How often a reading is tried before etcd counts as unreachable.
const ATTEMPTS: usize = 6;

/// The keys of one cluster in one etcd.
#[derive(Clone, Debug)]
pub struct EtcdKeys {
    /// Etcd.
    pub store: Arc<dyn Store>,
    /// The layout.
    pub keys: Keys,
}

/// What the keys beside the log tell.
pub(super) struct Head {
    pub(super) base: Option<Version>,
    pub(super) lead: Option<KeyValue>,
}

/// One piece of the window.
pub(super) struct Page {
    pub(super) base: Option<Version>,
    batches: Vec<KeyValue>,
}

/// How far a copy came by a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// There may be more.
    Added,
    /// The copy has all that the page told.
    Complete,
    /// The copy is behind the base, so it cannot be completed.
    Behind {
        /// Where etcd begins.
        base: Version,
    },
}

impl EtcdKeys {
    /// A transaction that only reads.
    fn read(&self, ranges: Vec<Range>) -> Result<TxnAnswer, EtcdError> {
        let then = ranges.into_iter().map(Operation::Read).collect();
        let txn = Txn { then, ..Txn::default() };
        let mut left = ATTEMPTS;
        for deadline in store::deadlines() {
            left -= 1;
            match self.store.txn(&txn, deadline) {
                Err(StoreError::Unreachable { .. }) if left > 0 => {}
                other => return Ok(other?),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Who leads, and where the log begins. The keys must belong to this cluster.
    pub(super) fn head(&self, cluster: ClusterId) -> Result<Head, EtcdError> {
        let keys = [self.keys.base(), self.keys.lead(), self.keys.cluster()];
        let answer = self.read(keys.into_iter().map(Range::key).collect())?;
        if let Some(found) = answer.key(2) {
            let malformed = || EtcdError::Malformed { key: found.key.clone() };
            let text = std::str::from_utf8(&found.value).map_err(|_| malformed())?;
            let found_id = ClusterId(u128::from_str_radix(text, 16).map_err(|_| malformed())?);
            if found_id != cluster {
                let key = found.key.clone();
                return Err(EtcdError::ForeignCluster { key, found: found_id, expected: cluster });
            }
        }
        Ok(Head { base: version_of(answer.key(0))?, lead: answer.key(1).cloned() })
    }

    /// The first versions of all batches on etcd, in order, and a revision at which nothing earlier is needed.
    pub(super) fn batches(&self) -> Result<Vec<Version>, EtcdError> {
        const PAGE_KEYS: usize = 10_000;
        let (mut found, mut from) = (Vec::new(), self.keys.log(Version::ZERO));
        loop {
            let range = Range { keys_only: true, ..Range::between(from, self.keys.log_end(), PAGE_KEYS) };
            let answer = self.read(vec![range])?;
            let page = answer.found.into_iter().next().unwrap_or_default();
            for kv in &page {
                let number = kv.key.rsplit('/').next().and_then(|text| u64::from_str_radix(text, 16).ok());
                found.push(Version(number.ok_or_else(|| EtcdError::Malformed { key: kv.key.clone() })?));
            }
            match found.last() {
                Some(last) if page.len() == PAGE_KEYS => from = self.keys.log(last.next()),
                _ => return Ok(found),
            }
        }
    }

    /// The last version of a batch.
    pub(super) fn last_of(&self, first: Version, cluster: ClusterId) -> Result<Version, LogError> {
        let answer = self.read(vec![Range::key(self.keys.log(first))])?;
        let Some(kv) = answer.key(0) else {
            return Err(EtcdError::Gap { expected: first, found: first }.into());
        };
        let records = self.records(cluster, kv)?;
        Ok(records.last().map_or(first, |record| record.header().last))
    }

    /// Keys of spilled rows, without values.
    pub(super) fn row_keys(&self, from: String, to: String) -> Result<Vec<KeyValue>, EtcdError> {
        const PAGE_KEYS: usize = 1_000;
        let range = Range { keys_only: true, ..Range::between(from, to, PAGE_KEYS) };
        Ok(self.read(vec![range])?.found.into_iter().next().unwrap_or_default())
    }

    /// The batch that holds `last`, if `with_last`, and those that follow.
    pub(super) fn page(&self, last: Version, with_last: bool) -> Result<Page, EtcdError> {
        let next = self.keys.log(last.next());
        let mut ranges = vec![
            Range::key(self.keys.base()),
            Range::between(next.clone(), self.keys.log_end(), PAGE_BATCHES),
        ];
        if with_last {
            let before = Range::between(self.keys.log(Version::ZERO), next, 1);
            ranges.push(Range { descending: true, ..before });
        }
        let mut answer = self.read(ranges)?;
        let held = if with_last { answer.found.pop() } else { None };
        let following = answer.found.pop().unwrap_or_default();
        let batches = held.unwrap_or_default().into_iter().chain(following).collect();
        Ok(Page { base: version_of(answer.key(0))?, batches })
    }

    /// Adds the page to the copy. Waits for the copy's disk, as long as `wanted`.
    pub(super) fn add(
        &self,
        copy: &LogCopy,
        page: &Page,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Progress, LogError> {
        let mut progress = Progress::Complete;
        if let Some(base) = page.base.filter(|base| copy.last().next() < *base) {
            return Ok(Progress::Behind { base });
        }
        for kv in &page.batches {
            let last = copy.last();
            let records = self.records(copy.cluster, kv)?;
            if let Some(held) = records.iter().find(|record| record.header().last == last) {
                must_be_equal(copy, held)?;
            }
            let new: Vec<_> = records.into_iter().filter(|record| record.header().first > last).collect();
            let Some(first) = new.first().map(|record| record.header().first) else { continue };
            if first != last.next() {
                return Err(EtcdError::Gap { expected: last.next(), found: first }.into());
            }
            for record in new.iter().filter(|record| record.is_spilled()) {
                self.fetch_rows(copy, record)?;
            }
            if !copy.wait_for_room(wanted) {
                let source = std::io::Error::other("the disk of the copy has failed, or the node stops");
                return Err(LogError::Interrupted { source });
            }
            copy.add(new);
            progress = Progress::Added;
        }
        Ok(progress)
    }

    /// The records of a batch, with those of its parts.
    fn records(&self, cluster: ClusterId, kv: &KeyValue) -> Result<Vec<Arc<Record>>, EtcdError> {
        let damaged = |cause| EtcdError::Batch { key: kv.key.clone(), cause };
        let header = BatchHeader::decode(&kv.value).map_err(damaged)?;
        let mut parts = Vec::new();
        let mut read = 0;
        while read < header.parts as usize {
            let from = self.keys.part(header.first, header.epoch, read);
            let to = self.keys.part(header.first, header.epoch, header.parts as usize);
            let answer = self.read(vec![Range::between(from, to, PAGE_PARTS)])?;
            let page = answer.found.into_iter().next().unwrap_or_default();
            if page.is_empty() {
                return Err(damaged(BatchError::MissingPart));
            }
            for part in page {
                if part.key != self.keys.part(header.first, header.epoch, read) {
                    return Err(damaged(BatchError::MissingPart));
                }
                parts.extend_from_slice(&part.value);
                read += 1;
            }
        }
        header.records(cluster, &kv.value, &parts).map_err(damaged)
    }

    /// Writes the spilled rows of a record into the folder of the copy, unless they are there.
    fn fetch_rows(&self, copy: &LogCopy, record: &Record) -> Result<(), LogError> {
        let identity = record.header().identity;
        if copy.spills.verify(record).is_ok() {
            return Ok(());
        }
        let refused = |source| LogError::io("write the rows of a transaction into", &copy.dir, source);
        match copy.spills.remove_file(identity) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(refused(error)),
            _ => {}
        }
        let damaged = |cause| {
            let key = self.keys.rows(identity);
            LogError::from(EtcdError::Batch { key, cause })
        };
        let tables: Vec<_> = record.tables().collect();
        let mut file = copy.spills.create_file(identity).map_err(refused)?;
        let (mut bytes, mut k) = (Vec::new(), 0);
        loop {
            let range = Range::between(self.keys.row(identity, k), self.keys.rows_end(identity), PAGE_PARTS);
            let answer = self.read(vec![range])?;
            let page = answer.found.into_iter().next().unwrap_or_default();
            if page.is_empty() {
                break;
            }
            for piece in page {
                if piece.key != self.keys.row(identity, k) {
                    return Err(damaged(BatchError::MissingPart));
                }
                bytes.extend_from_slice(&piece.value);
                k += 1;
            }
            while let Some(head) = bytes.first_chunk::<CHUNK_HEAD_BYTES>() {
                let length = Chunk::length_bytes(head).map_err(|error| damaged(BatchError::Record(error)))?;
                if bytes.len() < length {
                    break;
                }
                let rest = bytes.split_off(length);
                let chunk = Chunk::decode(record.header().database, bytes, &tables);
                file.append(&chunk.map_err(|error| damaged(BatchError::Record(error)))?).map_err(refused)?;
                bytes = rest;
            }
        }
        file.finish().map_err(refused)?;
        copy.spills.verify(record)
    }
}

/// The copy's record of that version must be the one that etcd has.
fn must_be_equal(copy: &LogCopy, held: &Arc<Record>) -> Result<(), LogError> {
    let version = held.header().first;
    if version < copy.file.first_retained() {
        return Ok(());
    }
    let own = copy.read_blocking(version)?;
    if own.first().is_some_and(|own| own == held) {
        return Ok(());
    }
    Err(EtcdError::CopyContradicts { dir: copy.dir.clone(), version: held.header().last }.into())
}

/// A version that a key holds.
pub(super) fn version_of(found: Option<&KeyValue>) -> Result<Option<Version>, EtcdError> {
    let Some(kv) = found else { return Ok(None) };
    let number = keys::number(&kv.value).ok_or_else(|| EtcdError::Malformed { key: kv.key.clone() })?;
    Ok(Some(Version(number)))
}

/// Whether the key of the leader is the claim at this revision.
pub(super) fn is_claim(lead: Option<&KeyValue>, revision: Revision) -> bool {
    lead.is_some_and(|kv| kv.written_at == revision)
}
