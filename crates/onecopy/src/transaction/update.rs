//! The state of an update transaction at its home, in parts: its writes, reads, locks, drawn values and schema changes
//! so far, and the preparation of its commit.
//!
//! Example: after `BEGIN; UPDATE t SET v = 1 WHERE k = 7` the row is in `capture`, and `boundary` says that the client
//! ends the transaction. `preparation` is empty until COMMIT.

use std::collections::BTreeSet;

use cluster::ids::{Identity, ReplicaId, SequenceId, Version};
use sql::{TemplateId, TransactionOptions};

use super::read_set::ReadSet;
use super::schema_state::SchemaState;
use super::sequence_use::SequenceUse;
use crate::writeset::Capture;

/// A transaction that may write.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) identity: Identity,
    pub(crate) replica: ReplicaId,
    pub(crate) boundary: Boundary,
    /// The client's options, completed by the session's defaults.
    pub(crate) options: TransactionOptions,
    pub(crate) capture: Capture,
    /// The transaction has written rows without a reservation, and has not reserved them since.
    pub(crate) has_unreserved_writes: bool,
    pub(crate) sequences: SequenceUse,
    pub(crate) schema: SchemaState,
    pub(crate) unseen: UnseenEffects,
    pub(crate) server: ServerState,
    pub(crate) profile: HomeProfile,
    /// The reads at SERIALIZABLE.
    pub(crate) reads: ReadSet,
    /// The oldest catalogue that analysed one of its statements.
    pub(crate) generation: Version,
    pub(crate) preparation: Preparation,
}

impl Update {
    pub(crate) fn new(
        identity: Identity,
        replica: ReplicaId,
        boundary: Boundary,
        options: TransactionOptions,
        capture: Capture,
    ) -> Self {
        Self {
            identity,
            replica,
            boundary,
            options,
            capture,
            has_unreserved_writes: false,
            sequences: SequenceUse::default(),
            schema: SchemaState::default(),
            unseen: UnseenEffects::default(),
            server: ServerState::default(),
            profile: HomeProfile::default(),
            reads: ReadSet::default(),
            generation: Version(u64::MAX),
            preparation: Preparation::default(),
        }
    }
}

/// The end of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Boundary {
    /// The client ends it, after its BEGIN.
    Block,
    /// It ends with the query string or batch that it is part of.
    Implicit,
    /// It ends with its only statement, which is retried if another transaction was first.
    Statement,
}

impl Boundary {
    /// Whether the client did not say BEGIN.
    pub(crate) fn is_implicit(self) -> bool {
        self != Self::Block
    }
}

/// Certain or possible effects of the transaction that capture does not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnseenEffects {
    suspicion: Suspicion,
    /// A statement locks rows without writing them.
    pub(crate) has_locks: bool,
    /// The present statement writes rows that its command tag does not count.
    pub(crate) has_uncounted: bool,
}

/// The reason to ask the home for the writes of the transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Suspicion {
    #[default]
    None,
    /// By its tag a statement wrote rows, but none was captured.
    RowsMissing,
    /// A statement with unbounded effects ran.
    Unbounded,
}

impl UnseenEffects {
    /// A statement with unbounded effects ran. It may have written any object.
    pub(crate) fn suspect(&mut self) {
        self.suspicion = Suspicion::Unbounded;
    }

    pub(crate) fn is_suspect(self) -> bool {
        self.suspicion == Suspicion::Unbounded
    }

    /// Notes the end of a statement: the rows that it wrote by its tag, and whether capture saw any of its rows.
    pub(crate) fn note_written(&mut self, rows_by_tag: u64, is_captured: bool) {
        if !is_captured && (self.has_uncounted || rows_by_tag > 0) {
            self.suspicion = self.suspicion.max(Suspicion::RowsMissing);
        }
    }

    /// Whether the home has to report writes beside the captured rows.
    pub(crate) fn must_ask_home(self, has_captured: bool) -> bool {
        self.suspicion > Suspicion::None || (self.has_locks && !has_captured)
    }
}

/// The state of the transaction at the home's server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerState {
    /// A statement has taken the snapshot that REPEATABLE READ keeps.
    pub(crate) has_snapshot: bool,
    /// Our savepoint was set before the last statement that can be rolled back alone.
    pub(crate) has_own_savepoint: bool,
    /// A WITH HOLD cursor is open. Its query runs inside COMMIT and may fail there.
    pub(crate) has_held_cursor: bool,
}

/// For the workload statistics: whether a transaction with the same beginning can leave the anchor.
#[derive(Clone, Debug)]
pub(crate) struct HomeProfile {
    /// The template that the transaction began with, until the statistics have learned it.
    pub(crate) template: Option<TemplateId>,
    /// Only the anchor can be its home.
    pub(crate) needs_anchor: bool,
    /// It has only read, and the client cannot see where, so it can still move.
    pub(crate) is_movable: bool,
    /// The sequences that its statements may have drawn from by defaults.
    pub(crate) draws: BTreeSet<SequenceId>,
}

impl Default for HomeProfile {
    fn default() -> Self {
        Self { template: None, needs_anchor: false, is_movable: true, draws: BTreeSet::new() }
    }
}

/// The preparation of the commit at the home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preparation {
    /// The number that the home drew when the identity was inserted. It tells later which transaction locked first.
    pub(crate) lock_lsn: Option<u64>,
    /// Rows of the transaction are in a file, which the log has.
    pub(crate) has_file: bool,
}

impl Preparation {
    /// The identity is in `onecopy.applied` of the home.
    pub(crate) fn is_identified(self) -> bool {
        self.lock_lsn.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspicion_only_grows() {
        let mut unseen = UnseenEffects::default();
        unseen.note_written(3, true);
        assert!(!unseen.must_ask_home(true), "all of it was captured");
        unseen.note_written(0, false);
        assert!(!unseen.must_ask_home(false), "nothing was written");
        unseen.note_written(3, false);
        assert!(unseen.must_ask_home(true) && !unseen.is_suspect());
        unseen.suspect();
        unseen.note_written(3, false);
        assert!(unseen.is_suspect());
    }

    #[test]
    fn a_statement_whose_tag_does_not_count_counts_as_one_that_writes() {
        let mut unseen = UnseenEffects { has_uncounted: true, ..UnseenEffects::default() };
        unseen.note_written(0, false);
        assert!(unseen.must_ask_home(true));
    }

    #[test]
    fn locks_alone_matter_where_no_row_was_captured() {
        let unseen = UnseenEffects { has_locks: true, ..UnseenEffects::default() };
        assert!(unseen.must_ask_home(false) && !unseen.must_ask_home(true));
    }

    #[test]
    fn a_block_is_the_clients_own() {
        assert!(!Boundary::Block.is_implicit());
        assert!(Boundary::Implicit.is_implicit() && Boundary::Statement.is_implicit());
    }
}
