//! Whether two statements conflict, and how.
//!
//! The rule of Gargamel (section III.C): two accesses conflict if they may concern the same columns of the same rows and
//! one of them writes. Two writes of one row in different columns are told apart by the [`View`].

use super::{Access, Accesses, Claim, ColumnSet, Columns, Lock, Match, Rows, Strength, digest};
use crate::catalogue::{Catalogue, TableId};

/// When two writes of one row conflict. Reads depend on the columns that they read in either view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// Always, whatever the columns: as PostgreSQL's row locks and its check for concurrent updates have it. The view
    /// where both statements run as transactions of servers, or whole rows are certified.
    Rows,
    /// Only if they write a column in common. Sound where writes are merged column by column: where each statement is
    /// executed again or its changed columns alone are applied, in the same order everywhere, and where the columns are
    /// stored apart (data services). Not sound for a certifier of row images.
    Columns,
}

/// The conflict of two statements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The coarsest of all things that they share in this way.
    pub class: Class,
    /// In which way, the gravest of all.
    pub kind: Kind,
}

/// The conflict class: what two conflicting statements share. Later is coarser.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Rows of which both know the value of a unique key.
    Key {
        /// The table.
        table: TableId,
        /// Which key: position in [`crate::Table::keys`].
        key: usize,
    },
    /// Some columns of any rows that satisfy both.
    Columns {
        /// The table.
        table: TableId,
        /// The columns that both touch.
        columns: ColumnSet,
    },
    /// Whole rows that satisfy both.
    Table(TableId),
    /// Anything.
    Anything,
}

/// The ways to conflict; earlier is graver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// One of the two is unbounded.
    Unbounded,
    /// Both write or lock the same row.
    WriteWrite,
    /// They claim the same value of a unique key.
    Integrity,
    /// One reads what the other writes.
    ReadWrite {
        /// Which one reads.
        reader: Side,
    },
}

/// One of two statements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// The first.
    Left,
    /// The second.
    Right,
    /// Each of them.
    Both,
}

impl Side {
    /// The same seen from the other statement.
    #[must_use]
    pub fn mirrored(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
            Self::Both => Self::Both,
        }
    }

    fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Both }
    }
}

/// Whether two statements conflict: whether their order can matter to their outcomes or to the database. The
/// catalogue is the one that both accesses were made with.
///
/// The relation is symmetric, and grows with the accesses: a wider access conflicts with all that a narrower one does.
pub fn conflict(left: &Accesses, right: &Accesses, catalogue: &Catalogue, view: View) -> Option<Conflict> {
    if left.is_empty() || right.is_empty() {
        return None;
    }
    if left.unbounded.is_some() || right.unbounded.is_some() {
        return Some(Conflict { class: Class::Anything, kind: Kind::Unbounded });
    }
    let mut search = Search { catalogue, found: None };
    search.writes(left, right, view);
    search.locks(left, right);
    for (mine, theirs) in pairs(&left.claims, &right.claims) {
        search.claims(mine, theirs);
    }
    search.reads(left, right, Side::Left);
    search.reads(right, left, Side::Right);
    search.found
}

/// Whether both statements may change a row that each of them finds, so that of two snapshots the later writer loses:
/// what Gargamel (section IV-A) calls a conflict. A row that one of them makes is found by no other snapshot. A lock
/// counts as a change of the row in the view of rows, and changes no column.
pub fn overwrites(left: &Accesses, right: &Accesses, view: View) -> bool {
    if left.is_empty() || right.is_empty() {
        return false;
    }
    let changes = |all: &Accesses| -> Vec<Access> {
        let writes = all.writes.iter().filter(|write| !write.new).cloned();
        let locks = all.locks.iter().filter(|_| view == View::Rows).map(locked);
        writes.chain(locks).collect()
    };
    let meet = |(mine, theirs): (&Access, &Access)| {
        mine.table == theirs.table
            && (view == View::Rows || shares_columns(mine.columns, theirs.columns))
            && mine.rows.overlap(&theirs.rows)
    };
    left.unbounded.is_some() || right.unbounded.is_some() || pairs(&changes(left), &changes(right)).any(meet)
}

fn pairs<'a, A, B>(left: &'a [A], right: &'a [B]) -> impl Iterator<Item = (&'a A, &'a B)> {
    left.iter().flat_map(move |mine| right.iter().map(move |theirs| (mine, theirs)))
}

struct Search<'a> {
    catalogue: &'a Catalogue,
    found: Option<Conflict>,
}

impl Search<'_> {
    /// Keeps the gravest kind, and of it the coarsest class.
    fn note(&mut self, class: Class, kind: Kind) {
        let fresh = Conflict { class, kind };
        self.found = Some(match self.found {
            None => fresh,
            Some(old) => match (old.kind, kind) {
                (Kind::ReadWrite { reader: one }, Kind::ReadWrite { reader: other }) => {
                    Conflict { class: old.class.max(class), kind: Kind::ReadWrite { reader: one.and(other) } }
                }
                (one, other) if one == other => Conflict { class: old.class.max(class), kind },
                (one, other) => {
                    if one < other {
                        old
                    } else {
                        fresh
                    }
                }
            },
        });
    }

    fn writes(&mut self, left: &Accesses, right: &Accesses, view: View) {
        for (mine, theirs) in pairs(&left.writes, &right.writes) {
            let apart = mine.table != theirs.table
                || (mine.new && theirs.new)
                || (view == View::Columns && !shares_columns(mine.columns, theirs.columns));
            if !apart && mine.rows.overlap(&theirs.rows) {
                let class = self.class_of(mine, theirs.columns, &theirs.rows);
                self.note(class, Kind::WriteWrite);
            }
        }
    }

    fn reads(&mut self, reader: &Accesses, writer: &Accesses, side: Side) {
        for (read, write) in pairs(&reader.reads, &writer.writes) {
            let concerns = read.table == write.table && read.columns.depends_on(write.columns);
            if concerns && read.rows.overlap(&write.rows) {
                let class = self.class_of(read, write.columns, &write.rows);
                self.note(class, Kind::ReadWrite { reader: side });
            }
        }
    }

    fn claims(&mut self, mine: &Claim, theirs: &Claim) {
        let same = mine.table == theirs.table && mine.key == theirs.key;
        if same && (mine.exclusive || theirs.exclusive) && mine.rows.overlap(&theirs.rows) {
            self.note(Class::Key { table: mine.table, key: mine.key }, Kind::Integrity);
        }
    }

    fn locks(&mut self, left: &Accesses, right: &Accesses) {
        for (mine, theirs) in pairs(&left.locks, &right.locks) {
            let weak = mine.strength == Strength::Share && theirs.strength == Strength::Share;
            if !weak && mine.table == theirs.table && mine.rows.overlap(&theirs.rows) {
                let class = self.class_of(&locked(mine), Columns::All, &theirs.rows);
                self.note(class, Kind::WriteWrite);
            }
        }
        for (lock, write) in pairs(&left.locks, &right.writes) {
            self.lock(lock, write, Side::Left);
        }
        for (lock, write) in pairs(&right.locks, &left.writes) {
            self.lock(lock, write, Side::Right);
        }
        for (lock, read) in pairs(&left.locks, &right.reads) {
            self.exclusion(lock, read, Side::Right);
        }
        for (lock, read) in pairs(&right.locks, &left.reads) {
            self.exclusion(lock, read, Side::Left);
        }
    }

    /// A lock against a write, whatever its columns.
    fn lock(&mut self, lock: &Lock, write: &Access, side: Side) {
        if lock.table == write.table && lock.rows.overlap(&write.rows) {
            let class = self.class_of(&locked(lock), Columns::All, &write.rows);
            let shared = lock.strength == Strength::Share;
            self.note(class, if shared { Kind::ReadWrite { reader: side } } else { Kind::WriteWrite });
        }
    }

    /// A lock that even reads wait for; `side` is the reading one.
    fn exclusion(&mut self, lock: &Lock, read: &Access, side: Side) {
        let excluded = lock.strength == Strength::Exclusive && lock.table == read.table;
        if excluded && lock.rows.overlap(&read.rows) {
            self.note(Class::Table(lock.table), Kind::ReadWrite { reader: side });
        }
    }

    /// The class of two overlapping accesses of one table.
    fn class_of(&self, mine: &Access, columns: Columns, rows: &Rows) -> Class {
        if let Some(table) = self.catalogue.table(mine.table)
            && let Some((key, _)) = digest::unique_keys(table).find(|(_, key)| by_key(key, &mine.rows, rows))
        {
            return Class::Key { table: table.id, key };
        }
        match (mine.columns, columns) {
            (Columns::Some(one), Columns::Some(other)) => {
                let columns = one.positions().filter(|&at| other.contains(at)).collect();
                Class::Columns { table: mine.table, columns }
            }
            (Columns::Some(columns), Columns::All) | (Columns::All, Columns::Some(columns))
                if !columns.is_empty() =>
            {
                Class::Columns { table: mine.table, columns }
            }
            _ => Class::Table(mine.table),
        }
    }
}

fn shares_columns(mine: Columns, theirs: Columns) -> bool {
    match (mine, theirs) {
        (Columns::Some(one), Columns::Some(other)) => one.overlaps(other),
        _ => true,
    }
}

fn locked(lock: &Lock) -> Access {
    Access { table: lock.table, columns: Columns::All, rows: lock.rows.clone(), new: false }
}

/// Whether all alternatives of both are known by a key.
fn by_key(key: &[usize], mine: &Rows, theirs: &Rows) -> bool {
    let known = |one: &Match| key.iter().all(|&at| one.value(at).is_some());
    let all = |rows: &Rows| matches!(rows, Rows::AnyOf(matches) if matches.iter().all(known));
    all(mine) && all(theirs)
}

#[cfg(test)]
mod tests;
