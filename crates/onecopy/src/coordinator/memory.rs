//! What the node keeps in memory beside its sessions, for people: how much of it there is, and where it ends.
//!
//! Sizes are those of what is stored, estimated where a structure does not count them; what the allocator keeps for later is
//! the difference to what the system says of the process.

use cluster::Cluster;
use cluster::parts::version_index::{KEY_BYTES, KEYS_MAX};
use commitlog::NEWEST_IDENTITIES;

use super::Coordinator;
use super::identities::IDENTITY_BYTES;

/// What is kept of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// What it is.
    pub(crate) name: &'static str,
    /// How many.
    pub(crate) entries: usize,
    /// Their bytes, roughly.
    pub(crate) bytes: usize,
    /// There are never more bytes than this, roughly.
    pub(crate) limit_bytes: usize,
}

impl Coordinator {
    /// All kinds.
    pub(crate) fn memory(&self) -> Vec<Kept> {
        let keys = self.core(Cluster::keys_remembered);
        let (records, record_bytes, limit_bytes) = self.log.in_memory();
        let texts = self.pools.statements.memory();
        let identities = self.identities.in_memory();
        let (templates, template_bytes, templates_max) = self.workload.in_memory();
        let (captured, captured_max) = self.memory_budget.in_memory();
        let kept = |name, entries, bytes, limit_bytes| Kept { name, entries, bytes, limit_bytes };
        vec![
            kept("records", records, record_bytes, limit_bytes),
            kept("keys", keys, keys * KEY_BYTES, KEYS_MAX * KEY_BYTES),
            kept("identities", identities, identities * IDENTITY_BYTES, NEWEST_IDENTITIES * IDENTITY_BYTES),
            kept("prepared", texts.statements, texts.bytes, texts.bytes_max),
            kept("templates", templates, template_bytes, templates_max),
            kept("captured", self.memory_budget.show().len(), captured, captured_max),
        ]
    }
}

/// What the system says that the process has in memory, in bytes; 0 if it does not say.
pub(crate) fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|text| text.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.unwrap_or(0) * 1024
}
