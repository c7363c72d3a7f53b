//! The messages of the extended protocol before a Sync, and the names that they define.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sql::Statement;
use wire::frontend::Frontend;
use wire::{Frame, sqlstate};

use crate::error::{Fault, Refusal};

pub(super) type ByName<T> = BTreeMap<Vec<u8>, T>;

/// A message that waits for the end of its batch.
#[derive(Debug)]
pub(super) struct BatchMessage {
    pub(super) kind: u8,
    /// The whole message, with its tag and length.
    bytes: Vec<u8>,
}

impl BatchMessage {
    /// A message of this kind with this body.
    pub(super) fn new(kind: u8, body: &[u8]) -> Result<Self, Fault> {
        let mut bytes = vec![kind];
        let length = u32::try_from(body.len() + 4).map_err(|_| Fault::Client)?;
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(body);
        Ok(Self { kind, bytes })
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[wire::frame::HEADER_BYTES..]
    }

    /// Parses the body.
    pub(super) fn parse(&self) -> Result<Frontend<'_>, Refusal> {
        Frontend::parse(Frame { tag: self.kind, bytes: &self.bytes }).map_err(|_| malformed())
    }
}

/// A statement that the client prepared.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) statement: Arc<Statement>,
    pub(super) text: Arc<[u8]>,
    pub(super) types: Arc<[u8]>,
    /// Its number on servers, for reuse, if the client named it.
    pub(super) number: Option<u64>,
}

/// A portal that a Bind made.
#[derive(Clone, Debug)]
pub(super) struct Portal {
    pub(super) prepared: Prepared,
    pub(super) values: Arc<[u8]>,
    pub(super) describes: bool,
}

/// The messages since the last Sync or Flush, and the session's named statements and portals.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) waiting: VecDeque<BatchMessage>,
    pub(super) bytes: usize,
    pub(super) statements: ByName<Prepared>,
    pub(super) portals: ByName<Portal>,
    pub(super) phase: BatchPhase,
    /// The batch ended with a Sync, not with a Flush.
    pub(super) is_at_sync: bool,
}

/// Whether the messages of a batch are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BatchPhase {
    /// They are executed.
    #[default]
    Running,
    /// A message has failed. The others are skipped up to the next Sync.
    Skipping,
}

impl Batch {
    /// Drops all names.
    pub(super) fn forget(&mut self) {
        self.statements.clear();
        self.portals.clear();
    }
}

/// The error for a message that cannot be parsed.
pub(super) fn malformed() -> Refusal {
    Refusal::plain(sqlstate::PROTOCOL_VIOLATION, "a malformed message")
}
