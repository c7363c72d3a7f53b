//! The locks of a transaction: which tables it may touch, and how (section 3.1).
//!
//! They are declared, or derived from what the statements touch. Every transaction shares the schema; one that changes it, or
//! may touch anything, has it alone, which is a lock on everything. A table that is written brings the sequences that
//! its rows draw from, and the tables that its rows refer to are read.

use std::collections::BTreeMap;

use cluster::ids::{DatabaseId, FragmentId, TableId};
use cluster::parts::lock_queues::{LockSet, Mode};
use sql::accesses::{Accesses, Arguments};
use sql::profile::Declared;
use sql::{Catalogue, ColumnDefault, Routing, Statement};

/// Stands for the schema of the one database that these protocols serve. No table has this number.
const SCHEMA: TableId = DatabaseId::FIRST.table(u32::MAX);
/// Numbers from here on are those of sequences.
const SEQUENCES: u32 = 1 << 31;

/// What a transaction may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableLocks {
    modes: BTreeMap<FragmentId, Mode>,
}

impl TableLocks {
    /// Nothing but the schema as it is.
    pub(super) fn none() -> Self {
        Self { modes: BTreeMap::from([(FragmentId::whole(SCHEMA), Mode::Read)]) }
    }

    /// Everything.
    pub(super) fn everything() -> Self {
        Self { modes: BTreeMap::from([(FragmentId::whole(SCHEMA), Mode::Write)]) }
    }

    /// All tables, to be read.
    pub(super) fn all_read(catalogue: &Catalogue) -> Self {
        let mut locks = Self::none();
        catalogue.tables().for_each(|table| locks.take(table.id, Mode::Read));
        locks
    }

    /// Those of a statement, if what it touches is bounded.
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
            if routing.fills_defaults {
                locks.draws(*table, catalogue);
            }
        }
        Some(locks)
    }

    /// Whatever the rows: their tables. It is finer than the routing, which takes a change of any column for one of a key
    /// that others refer to.
    fn touched(touched: &Accesses, routing: &Routing, catalogue: &Catalogue) -> Self {
        let mut locks = Self::none();
        for read in &touched.reads {
            locks.take(read.table, Mode::Read);
        }
        for claim in &touched.claims {
            locks.take(claim.table, if claim.exclusive { Mode::Write } else { Mode::Read });
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

    /// Those that were declared.
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

    /// A table is written, in whatever way.
    fn write(&mut self, id: TableId, catalogue: &Catalogue) {
        self.take(id, Mode::Write);
        self.draws(id, catalogue);
        for reference in catalogue.table(id).map_or(&[][..], |table| &table.references) {
            self.take(reference.parent, Mode::Read);
        }
    }

    /// Rows may be made in a table.
    fn draws(&mut self, id: TableId, catalogue: &Catalogue) {
        for column in catalogue.table(id).map_or(&[][..], |table| &table.columns) {
            if let ColumnDefault::Sequence(name) = &column.default {
                self.draw(&name.name);
            }
        }
    }

    /// Rows of a table are locked.
    pub(super) fn lock_rows(&mut self, table: TableId) {
        self.take(table, Mode::Write);
    }

    /// A sequence of this name, in whatever schema.
    pub(super) fn draw(&mut self, name: &str) {
        // Two names with one number share a lock, which is sound.
        let hash = name
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        self.take(DatabaseId::FIRST.table(SEQUENCES | hash >> 2), Mode::Write);
    }

    fn take(&mut self, table: TableId, mode: Mode) {
        let held = self.modes.entry(FragmentId::whole(table)).or_insert(mode);
        *held = mode.max(*held);
    }

    /// What another statement needs, too.
    pub(super) fn add(&mut self, more: &Self) {
        more.modes.iter().for_each(|(fragment, mode)| self.take(fragment.table, *mode));
    }

    /// Whether these are on everything.
    pub(super) fn are_everything(&self) -> bool {
        self.modes[&FragmentId::whole(SCHEMA)] == Mode::Write
    }

    /// What is wanted and not held: in words.
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

    /// As the scheduler takes them.
    pub(super) fn set(&self) -> LockSet {
        self.modes.iter().map(|(fragment, mode)| (*fragment, *mode)).collect()
    }
}
