//! SHOW MEMORY: memory of the node beside its sessions, by kind, with limits.
//!
//! Sizes are those of the stored data, estimated where a structure does not count them. The allocator's reserve is the
//! difference between their sum and the resident size of the process.

use cluster::parts::version_index::{KEY_BYTES, KEYS_MAX};
use commitlog::NEWEST_IDENTITIES;

use crate::coordinator::identities::IDENTITY_BYTES;
use crate::link::Worker;

/// The memory that one kind of data uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) name: &'static str,
    /// The number of items.
    pub(super) entries: usize,
    /// Their approximate size in bytes.
    pub(super) bytes: usize,
    /// The approximate limit in bytes.
    pub(super) limit_bytes: usize,
}

/// The memory of all kinds of data.
pub(super) fn kept_in_memory(worker: &Worker) -> Vec<Kept> {
    let Worker { leading, coordinator, local, pools, .. } = worker;
    let texts = pools.statements.memory();
    let (templates, template_bytes, templates_max) = coordinator.database.workload.in_memory();
    let (captured, captured_max) = local.memory_budget.in_memory();
    let (answers, answer_bytes, answer_bytes_max) = local.result_cache.in_memory();
    let kept = |name, entries, bytes, limit_bytes| Kept { name, entries, bytes, limit_bytes };
    let of_leader = leading.get().map_or_else(Vec::new, |leader| {
        let (log, keys) = (leader.log.in_memory(), leader.core.keys_remembered());
        let identities = leader.identities.in_memory();
        vec![
            kept("records", log.records, log.bytes, log.limit_bytes),
            kept("keys", keys, keys * KEY_BYTES, KEYS_MAX * KEY_BYTES),
            kept("identities", identities, identities * IDENTITY_BYTES, NEWEST_IDENTITIES * IDENTITY_BYTES),
        ]
    });
    let of_node = [
        kept("prepared", texts.statements, texts.bytes, texts.bytes_max),
        kept("templates", templates, template_bytes, templates_max),
        kept("answers", answers, answer_bytes as usize, answer_bytes_max as usize),
        kept("captured", local.memory_budget.show().len(), captured, captured_max),
    ];
    of_leader.into_iter().chain(of_node).collect()
}

/// The resident memory of the process as the system reports it, in bytes; 0 without a report.
pub(super) fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|text| text.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.unwrap_or(0) * 1024
}
