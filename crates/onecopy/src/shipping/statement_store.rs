//! The statements that are kept until no replica needs them any more, and how much memory they may take.
//!
//! A statement that writes is kept until its transaction is over at every replica that takes part, and while a replica
//! returns that may have to run it again. A replica that stands still, or comes back slowly, would so make the memory of the
//! node grow without end. Past the limit the replicas that keep most of it in memory are given up. They are rolled forward
//! from the log when they come back, which needs no memory. If no replica is behind, further writes are refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::protocols::shipping::StatementId;

use super::shipment::Shipment;

/// How much of statements is kept for all transactions together.
const KEPT_BYTES_MAX: usize = 512 << 20;
/// More bytes than this are not kept of one reply.
const REPLY_BYTES_MAX: usize = 64 << 20;
/// Other limits, for tests: of what is kept and of a reply, in bytes.
const LIMITS_VARIABLE: &str = "ONECOPY_TEST_SHIPPING_BYTES";

/// How much a node of this kind keeps in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryLimits {
    /// Of statements.
    pub(super) kept_bytes: usize,
    /// Of what one statement returns.
    pub(super) reply_bytes: usize,
}

impl MemoryLimits {
    /// The usual limits, unless the environment has others, as `KEPT,REPLY`.
    pub(super) fn from_environment() -> Self {
        let said = std::env::var(LIMITS_VARIABLE).ok();
        let other = said.as_deref().and_then(|text| {
            let (kept, reply) = text.split_once(',')?;
            Some(Self { kept_bytes: kept.parse().ok()?, reply_bytes: reply.parse().ok()? })
        });
        other.unwrap_or(Self { kept_bytes: KEPT_BYTES_MAX, reply_bytes: REPLY_BYTES_MAX })
    }
}

/// Statements by name.
#[derive(Debug, Default)]
pub(super) struct StatementStore {
    shipments: BTreeMap<StatementId, Arc<Shipment>>,
    bytes: usize,
}

impl StatementStore {
    /// The size of all statements together.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A statement by its name.
    pub(super) fn get(&self, statement: StatementId) -> Option<&Arc<Shipment>> {
        self.shipments.get(&statement)
    }

    /// Keeps a statement under its name.
    pub(super) fn insert(&mut self, shipment: Arc<Shipment>) {
        self.bytes += shipment.command.bytes();
        if let Some(before) = self.shipments.insert(shipment.id, shipment) {
            self.bytes -= before.command.bytes();
        }
    }

    /// Forgets a statement that no replica needs any more.
    pub(super) fn remove(&mut self, statement: StatementId) {
        if let Some(gone) = self.shipments.remove(&statement) {
            self.bytes -= gone.command.bytes();
        }
    }
}
