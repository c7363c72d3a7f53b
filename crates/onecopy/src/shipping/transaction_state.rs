//! A client's transaction, as the session sees it.

use sql::profile::Declaration;
use wire::backend::Status;
use wire::sqlstate;

use super::commit_log::TRANSACTION_BYTES_MAX;
use super::locks::TableLocks;
use super::shipment::AccessMode;
use super::statement;
use crate::error::Refusal;

#[derive(Debug)]
pub(super) enum TransactionState {
    None,
    /// The client has sent BEGIN, and nothing has run yet.
    Announced(AnnouncedTransaction),
    /// Its locks are held.
    Open(OpenTransaction),
}

/// Whether a transaction takes statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Active,
    /// A statement has failed. The transaction can only be rolled back.
    Failed,
}

/// A transaction before its first statement.
#[derive(Debug)]
pub(super) struct AnnouncedTransaction {
    pub(super) mode: AccessMode,
    pub(super) declared: Option<Declaration>,
    pub(super) health: Health,
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// COMMIT or ROLLBACK of the client.
    Explicit,
    /// The last of the statements that came together.
    Implicit,
}

/// The most that a transaction has shipped to all replicas, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shipped {
    Nothing,
    /// Writes, settings or savepoints.
    Writes,
    SchemaChange,
}

/// A transaction whose locks are held.
#[derive(Debug)]
pub(super) struct OpenTransaction {
    pub(super) locks: TableLocks,
    pub(super) mode: AccessMode,
    pub(super) block: Block,
    pub(super) health: Health,
    pub(super) shipped: Shipped,
    /// It has settings of its own.
    pub(super) has_settings: bool,
    /// It has savepoints, so that a failed statement may be undone.
    pub(super) has_savepoints: bool,
    /// New connections may begin with other settings after it.
    pub(super) changes_roles: bool,
    /// The tables of what it has shipped.
    pub(super) written: TableLocks,
    /// Bytes that it has shipped.
    bytes: usize,
    /// The value of `now()` in it.
    pub(super) now_us: i64,
}

impl OpenTransaction {
    /// A transaction that begins now.
    pub(super) fn new(locks: TableLocks, mode: AccessMode, block: Block) -> Self {
        Self {
            locks,
            mode,
            block,
            health: Health::Active,
            shipped: Shipped::Nothing,
            has_settings: false,
            has_savepoints: false,
            changes_roles: false,
            written: TableLocks::none(),
            bytes: 0,
            now_us: statement::now_us(),
        }
    }

    /// Counts a statement that it is about to ship, and rejects too much.
    pub(super) fn note_shipped(&mut self, shipped: Shipped, bytes: usize) -> Result<(), Refusal> {
        self.shipped = self.shipped.max(shipped);
        self.bytes += bytes;
        if self.bytes > TRANSACTION_BYTES_MAX {
            return Err(Refusal::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                format!(
                    "the statements of a transaction may have {} MB at most",
                    TRANSACTION_BYTES_MAX >> 20
                ),
                "Split it into several transactions.",
            ));
        }
        Ok(())
    }

    /// Whether its settings or schema differ from those of other transactions.
    pub(super) fn has_own_environment(&self) -> bool {
        self.shipped == Shipped::SchemaChange || self.has_settings
    }
}

impl TransactionState {
    /// Whether no transaction is open or announced.
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(super) fn has_failed(&self) -> bool {
        match self {
            Self::None => false,
            Self::Announced(announced) => announced.health == Health::Failed,
            Self::Open(open) => open.health == Health::Failed,
        }
    }

    pub(super) fn set_health(&mut self, health: Health) {
        match self {
            Self::None => {}
            Self::Announced(announced) => announced.health = health,
            Self::Open(open) => open.health = health,
        }
    }

    /// The scheduler has aborted the open transaction: its client can only roll it back.
    pub(super) fn give_up(&mut self) {
        if let Self::Open(open) = self {
            let failed = AnnouncedTransaction { mode: open.mode, declared: None, health: Health::Failed };
            *self = if open.block == Block::Implicit { Self::None } else { Self::Announced(failed) };
        }
    }

    /// Access mode for its statements.
    pub(super) fn mode(&self) -> AccessMode {
        match self {
            Self::Open(open) => open.mode,
            Self::None | Self::Announced(_) => AccessMode::ReadWrite,
        }
    }

    /// Its status for ReadyForQuery.
    pub(super) fn status(&self) -> Status {
        match self {
            Self::None => Status::Idle,
            _ if self.has_failed() => Status::Failed,
            _ => Status::Open,
        }
    }
}
