//! The newest durable records, in memory: replicas that follow closely need no file.

use std::collections::VecDeque;
use std::sync::Arc;

use cluster::ids::Version;
use cluster::record::Record;

use crate::engine::InMemory;

/// Bounded by bytes; what falls out is still in the file.
#[derive(Debug)]
pub(super) struct Ring {
    records: VecDeque<Arc<Record>>,
    bytes: usize,
    limit_bytes: usize,
}

impl Ring {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { records: VecDeque::new(), bytes: 0, limit_bytes }
    }

    pub(super) fn push(&mut self, record: Arc<Record>) {
        self.bytes += record.bytes().len();
        self.records.push_back(record);
        while self.bytes > self.limit_bytes
            && let Some(oldest) = self.records.pop_front()
        {
            self.bytes -= oldest.bytes().len();
        }
    }

    pub(super) fn sizes(&self) -> InMemory {
        InMemory { records: self.records.len(), bytes: self.bytes, limit_bytes: self.limit_bytes }
    }

    /// Adds records from `version` on to `out` until `max_bytes` are reached, at least one; false when it is not here.
    pub(super) fn read(&self, version: Version, max_bytes: usize, out: &mut Vec<Arc<Record>>) -> bool {
        if self.records.front().is_none_or(|oldest| oldest.header().first > version) {
            return false;
        }
        let from = self.records.partition_point(|record| record.header().last < version);
        let mut bytes = 0;
        for record in self.records.range(from..) {
            bytes += record.bytes().len();
            if bytes > max_bytes && !out.is_empty() {
                break;
            }
            out.push(Arc::clone(record));
        }
        true
    }
}
