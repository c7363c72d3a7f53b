//! Beginning and ending transactions at the home of updates; [`crate::commit`] is what lies between.
//!
//! Every statement that may write runs inside a BEGIN of ours, at the home, on a connection that defaults to read-only: so
//! nothing is written that is not captured, and what commits by itself is refused by PostgreSQL.

pub(crate) mod analysis;
pub(crate) mod anchor_reason;
pub(crate) mod conflict_detail;
pub(crate) mod definitions;
pub(crate) mod open;
pub(crate) mod profile;
pub(crate) mod sequence_use;
pub(crate) mod stage;
pub(crate) mod view;
pub(crate) mod wait_stats;

use std::collections::BTreeSet;

use cluster::claims::{Claims, Footprint};
use cluster::event::Reads;
use cluster::ids::{Identity, ReplicaId, SequenceId, Version};
use sql::{DdlFacts, Isolation, Name, TemplateId, TransactionOptions};

use crate::classify::footprint::settle;
use crate::transaction::sequence_use::{HeldLeases, SequenceUse};
use crate::writeset::Capture;
use definitions::Definitions;

/// Time that a statement of an update is expected to take until more is known.
pub(crate) const UPDATE_COST_US: u32 = 200;

/// A transaction that may write.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) identity: Identity,
    pub(crate) replica: ReplicaId,
    /// The client did not say BEGIN: it ends with the statement, the query string or the batch.
    pub(crate) is_implicit: bool,
    /// As the client asked for it, with the session's defaults put in.
    pub(crate) options: TransactionOptions,
    pub(crate) capture: Capture,
    /// It is one statement by itself, which is run again if another transaction was first.
    pub(crate) is_alone: bool,
    /// It has written what nobody foresaw, and what was not asked for since.
    pub(crate) has_unreserved_writes: bool,
    /// What it may have drawn from sequences.
    pub(crate) drawn: SequenceUse,
    /// It began where sequences are lent to, not at the anchor.
    pub(crate) is_leased: bool,
    /// A savepoint of ours was set before the last statement that drew there.
    pub(crate) is_guarded: bool,
    /// What it draws from there.
    pub(crate) uses: HeldLeases,
    /// The sequences that its statements may have drawn from by defaults.
    pub(crate) draws: BTreeSet<SequenceId>,
    /// What home drew when the identity was inserted.
    pub(crate) lock_lsn: Option<u64>,
    /// It has changed the schema.
    pub(crate) has_ddl: bool,
    /// What these changes leave of the catalogue.
    pub(crate) schema_changes: SchemaChanges,
    /// What it uses and defines anew.
    pub(crate) definitions: Definitions,
    /// Statements of its own may have changed roles or other things that all databases share: how many changes of such
    /// things there were after the last one.
    pub(crate) shared_changes: Option<String>,
    /// Something ran that nobody can bound: it may have touched what capture does not see.
    pub(crate) is_suspect: bool,
    /// A statement wrote rows, by its tag, of which none was captured.
    pub(crate) is_uncaptured: bool,
    /// The present statement writes what its tag does not count.
    pub(crate) has_uncounted: bool,
    /// The oldest catalogue by which one of its statements was analysed.
    pub(crate) generation: Version,
    /// A statement locks rows without writing them.
    pub(crate) has_locks: bool,
    /// Rows of it are in a file, which was given to the log.
    pub(crate) has_file: bool,
    /// It has a WITH HOLD cursor, whose query runs inside COMMIT and may fail there.
    pub(crate) has_hold: bool,
    /// A statement has run that takes the snapshot which REPEATABLE READ keeps.
    pub(crate) has_snapshot: bool,
    /// The template that it began with, until it is known what to learn from it.
    pub(crate) first: Option<TemplateId>,
    /// Only the anchor can be its home.
    pub(crate) needs_anchor: bool,
    /// It has done nothing but to read, and nobody can tell where.
    pub(crate) only_read: bool,
    /// At SERIALIZABLE: a statement may have written. What came of it speaks of now, what was read of the snapshot, so
    /// there is a record that is certified, also if nothing is left of it.
    pub(crate) is_certified: bool,
    /// What it has read, at SERIALIZABLE.
    pub(crate) read: ReadSoFar,
}

impl Update {
    /// One that has done nothing yet.
    pub(crate) fn new(
        (identity, replica): (Identity, ReplicaId),
        options: TransactionOptions,
        is_implicit: bool,
        capture: Capture,
    ) -> Self {
        Self {
            identity,
            replica,
            is_implicit,
            options,
            capture,
            is_alone: false,
            has_unreserved_writes: false,
            drawn: SequenceUse::default(),
            is_leased: false,
            is_guarded: false,
            uses: HeldLeases::new(),
            draws: BTreeSet::new(),
            lock_lsn: None,
            has_ddl: false,
            schema_changes: SchemaChanges::default(),
            definitions: Definitions::default(),
            shared_changes: None,
            is_suspect: false,
            is_uncaptured: false,
            has_uncounted: false,
            generation: Version(u64::MAX),
            has_locks: false,
            has_file: false,
            has_hold: false,
            has_snapshot: false,
            first: None,
            needs_anchor: false,
            only_read: true,
            is_certified: false,
            read: ReadSoFar::default(),
        }
    }
}

/// At SERIALIZABLE the rows that are read by key are waited for, too: who reads and then writes waits instead of failing.
pub(crate) fn lock_reads(isolation: Isolation, reads: &Reads, writes: &mut Claims) {
    if let (Isolation::Serializable, Reads::Rows(rows)) = (isolation, reads) {
        writes.rows.extend(rows.rows.iter().filter(|(table, _)| !writes.tables.contains(table)));
        writes.rows.sort_unstable();
        writes.rows.dedup();
    }
}

/// What a SERIALIZABLE transaction has read.
#[derive(Debug, Default)]
pub(crate) struct ReadSoFar {
    rows: Footprint,
    everything: bool,
}

impl ReadSoFar {
    /// One more statement.
    pub(crate) fn add(&mut self, reads: &Reads) {
        match reads {
            Reads::Tables(tables) => {
                self.rows.add(&Footprint { tables: tables.to_vec(), ..Footprint::default() });
            }
            Reads::Rows(more) => self.rows.add(more),
            Reads::Catalogue | Reads::All => self.everything = true,
        }
        settle(&mut self.rows);
    }

    /// All of it.
    pub(crate) fn take(&mut self) -> Reads {
        if self.everything { Reads::All } else { Reads::Rows(std::mem::take(&mut self.rows).into()) }
    }
}

/// What the schema changes of an open transaction leave of the catalogue, which has none of them.
#[derive(Default, Debug)]
pub(crate) struct SchemaChanges {
    /// Bare names of relations.
    relations: BTreeSet<String>,
    /// One may concern anything.
    everything: bool,
}

impl SchemaChanges {
    pub(crate) fn note(&mut self, facts: &DdlFacts) {
        self.everything |= !CONCERNS_NAMED.contains(&facts.tag);
        self.relations.extend(facts.relations.iter().map(|name| name.name.clone()));
    }

    /// Whether the catalogue is right about functions, casts and the like, and about these relations.
    pub(crate) fn leave(&self, relations: &[Name]) -> bool {
        !self.everything && relations.iter().all(|name| !self.relations.contains(&name.name))
    }
}

/// Schema changes after which the catalogue is still right about everything but the relations that they name.
pub(crate) const CONCERNS_NAMED: [&str; 6] =
    ["AlterTableStmt", "CommentStmt", "CreateSeqStmt", "CreateStmt", "GrantStmt", "IndexStmt"];
