//! The table locks of a transaction (section 3.1).
//!
//! Locks are declared, or derived from the statements. Every transaction locks the schema shared. A transaction that
//! changes the schema, or may touch anything, locks it exclusively, which is a lock on everything. A written table
//! adds locks on the sequences of its rows, and read locks on the tables that its rows refer to.

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::{DatabaseId, FragmentId, SessionId, TableId};
use cluster::parts::lock_queues::{LockSet, Mode};
use sql::accesses::{Accesses, Arguments};
use sql::profile::Declared;
use sql::{Catalogue, ColumnDefault, Routing, Statement};

/// The schema of the one database that these protocols serve. No table has this number.
const SCHEMA: TableId = DatabaseId::FIRST.table(u32::MAX);
/// Numbers from here on are sequences.
const SEQUENCES: u32 = 1 << 31;

/// Numbers from here on are settings and savepoints of a session, which no other session shares.
const SESSIONS: u32 = 3 << 30;

/// The locks of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableLocks {
    modes: BTreeMap<FragmentId, Mode>,
    /// Tables whose rows are locked shared, because foreign keys refer to them.
    referenced: BTreeSet<TableId>,
}

impl TableLocks {
    /// Only the schema, shared.
    pub(super) fn none() -> Self {
        Self::schema(Mode::Read)
    }

    /// All tables, exclusively.
    pub(super) fn everything() -> Self {
        Self::schema(Mode::Write)
    }

    fn schema(mode: Mode) -> Self {
        Self { modes: BTreeMap::from([(FragmentId::whole(SCHEMA), mode)]), referenced: BTreeSet::new() }
    }

    /// The settings and savepoints of a session.
    pub(super) fn of_session(session: SessionId) -> Self {
        let mut locks = Self::none();
        // Sessions whose numbers collide share a lock, which is sound. The last number is that of the schema.
        let number = u32::try_from(session.0 % u64::from(u32::MAX - SESSIONS)).unwrap_or_default();
        locks.take(DatabaseId::FIRST.table(SESSIONS + number), Mode::Write);
        locks
    }

    /// All tables, shared.
    pub(super) fn all_read(catalogue: &Catalogue) -> Self {
        let mut locks = Self::none();
        catalogue.tables().for_each(|table| locks.take(table.id, Mode::Read));
        locks
    }

    /// The locks of a statement, or `None` if its accesses are not bounded.
    pub(super) fn of(statement: &Statement, catalogue: &Catalogue) -> Option<Self> {
        let (routing, outline) = (statement.routing(catalogue), statement.outline(catalogue));
        if outline.unbounded().is_none() {
            let arguments = Arguments { text: b"", constants: &[], parameters: &[] };
            return Some(Self::touched(&outline.bind(&arguments), &routing, catalogue));
        }
        let mut locks = Self::none();
        for table in routing.reads.as_ref()? {
            locks.take(*table, Mode::Read);
        }
        for table in routing.writes.as_ref()? {
            locks.take(*table, Mode::Write);
            let references = catalogue.table(*table).map_or(&[][..], |table| &table.references);
            locks.referenced.extend(references.iter().map(|reference| reference.parent));
            if routing.fills_defaults {
                locks.draws(*table, catalogue);
            }
        }
        Some(locks)
    }

    /// The tables of these accesses, regardless of rows. This is finer than the routing, in which an update of any
    /// column counts as one of a referenced key.
    fn touched(touched: &Accesses, routing: &Routing, catalogue: &Catalogue) -> Self {
        let mut locks = Self::none();
        for read in &touched.reads {
            locks.take(read.table, Mode::Read);
        }
        for claim in &touched.claims {
            locks.take(claim.table, if claim.exclusive { Mode::Write } else { Mode::Read });
            locks.referenced.insert(claim.table);
        }
        for lock in &touched.locks {
            locks.take(lock.table, Mode::Write);
        }
        for write in &touched.writes {
            locks.take(write.table, Mode::Write);
            if routing.fills_defaults {
                locks.draws(write.table, catalogue);
            }
        }
        locks
    }

    /// The locks of a declaration.
    pub(super) fn declared(declared: &Declared, catalogue: &Catalogue) -> Self {
        let mut locks = Self::none();
        for table in &declared.reads {
            locks.take(*table, Mode::Read);
        }
        for table in &declared.writes {
            locks.write(*table, catalogue);
        }
        locks
    }

    /// Adds the locks of a write.
    fn write(&mut self, id: TableId, catalogue: &Catalogue) {
        self.take(id, Mode::Write);
        self.draws(id, catalogue);
        for reference in catalogue.table(id).map_or(&[][..], |table| &table.references) {
            self.take(reference.parent, Mode::Read);
        }
    }

    /// Adds the locks of insertions.
    fn draws(&mut self, id: TableId, catalogue: &Catalogue) {
        for column in catalogue.table(id).map_or(&[][..], |table| &table.columns) {
            if let ColumnDefault::Sequence(name) = &column.default {
                self.draw(&name.name);
            }
        }
    }

    /// Adds the lock of a row-locking read.
    pub(super) fn lock_rows(&mut self, table: TableId) {
        self.take(table, Mode::Write);
    }

    /// Adds a sequence of this name, in any schema.
    pub(super) fn draw(&mut self, name: &str) {
        self.take(sequence_lock(name), Mode::Write);
    }

    /// Adds tables that are read.
    pub(super) fn read(&mut self, tables: &[TableId]) {
        for table in tables {
            self.take(*table, Mode::Read);
        }
    }

    fn take(&mut self, table: TableId, mode: Mode) {
        let held = self.modes.entry(FragmentId::whole(table)).or_insert(mode);
        *held = mode.max(*held);
    }

    /// Adds the locks of another statement.
    pub(super) fn add(&mut self, more: &Self) {
        more.modes.iter().for_each(|(fragment, mode)| self.take(fragment.table, *mode));
        self.referenced.extend(&more.referenced);
    }

    /// Whether everything is locked exclusively.
    pub(super) fn are_everything(&self) -> bool {
        self.modes[&FragmentId::whole(SCHEMA)] == Mode::Write
    }

    /// The first wanted lock that is not held, in words.
    pub(super) fn lack(&self, wanted: &Self, catalogue: &Catalogue) -> Option<String> {
        if self.are_everything() {
            return None;
        }
        let lacking = |(fragment, mode): &(&FragmentId, &Mode)| {
            self.modes.get(*fragment).is_none_or(|held| held < *mode)
        };
        let (fragment, mode) = wanted.modes.iter().find(lacking)?;
        let what = match catalogue.table(fragment.table) {
            Some(table) => format!("table {}", table.name),
            None if fragment.table == SCHEMA => "anything".to_owned(),
            None => "a sequence".to_owned(),
        };
        Some(format!("{} {what}", if *mode == Mode::Write { "write" } else { "read" }))
    }

    /// The form of a scheduler that locks rows shared where foreign keys refer to them.
    pub(super) fn set(&self) -> LockSet {
        self.modes.iter().map(|(fragment, mode)| (*fragment, *mode)).collect()
    }

    /// The form of a scheduler that counts every lock of a row as a write.
    pub(super) fn set_by_rows(&self) -> LockSet {
        let mut locks = self.clone();
        self.referenced.iter().for_each(|table| locks.take(*table, Mode::Write));
        locks.set()
    }
}

/// The table that stands for a sequence of this name, in any schema. Names whose hashes collide share it, which is sound.
pub(crate) fn sequence_lock(name: &str) -> TableId {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    DatabaseId::FIRST.table(SEQUENCES | hash >> 2)
}

/// Whether a table stands for a sequence.
pub(crate) fn is_sequence(table: TableId) -> bool {
    (SEQUENCES..SESSIONS).contains(&table.number)
}

/// The table that stands for the schema.
pub(crate) fn schema() -> TableId {
    SCHEMA
}

/// Whether a table is the schema, which every statement locks.
pub(crate) fn is_schema(table: TableId) -> bool {
    table == SCHEMA
}
