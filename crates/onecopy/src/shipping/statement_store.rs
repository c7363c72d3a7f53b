//! The statements that some replica may still need, and the limit of their memory.
//!
//! A write statement is kept until its transaction is over at every replica that takes part, and while a returning
//! replica may have to run it. A replica that hangs or returns slowly would make this memory grow without end. Beyond
//! the limit, the replicas that need most of it are given up. They are later rolled forward from the log, which needs
//! no memory. If no replica is behind, further writes are rejected.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::protocols::shipping::StatementId;

use super::shipment::Shipment;

/// Most bytes of statements of all transactions together.
const KEPT_BYTES_MAX: usize = 512 << 20;
/// Most bytes of one reply.
const REPLY_BYTES_MAX: usize = 64 << 20;
/// Overrides both limits, in bytes, for tests.
const LIMITS_VARIABLE: &str = "ONECOPY_TEST_SHIPPING_BYTES";

/// The memory limits of a node of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimits {
    /// For statements.
    pub(crate) kept_bytes: usize,
    /// For one reply.
    pub(crate) reply_bytes: usize,
}

impl MemoryLimits {
    /// The usual limits, unless the environment has others, as `KEPT,REPLY`.
    pub(crate) fn from_environment() -> Self {
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
pub(crate) struct StatementStore {
    shipments: BTreeMap<StatementId, Arc<Shipment>>,
    bytes: usize,
}

impl StatementStore {
    /// The size of all statements together.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, statement: StatementId) -> Option<&Arc<Shipment>> {
        self.shipments.get(&statement)
    }

    /// Keeps a statement under its name.
    pub(crate) fn insert(&mut self, shipment: Arc<Shipment>) {
        self.bytes += shipment.command.bytes();
        if let Some(before) = self.shipments.insert(shipment.id, shipment) {
            self.bytes -= before.command.bytes();
        }
    }

    /// Drops a statement that no replica needs any more.
    pub(crate) fn remove(&mut self, statement: StatementId) {
        if let Some(gone) = self.shipments.remove(&statement) {
            self.bytes -= gone.command.bytes();
        }
    }
}
