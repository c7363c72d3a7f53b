//! Claims: what a transaction wrote, relied on or may have locked. Updates conflict when their claims do.
//!
//! A claim is a value of a unique key by its hash, a whole table, or everything. Sessions derive claims from statements (rows
//! that may be written: [`crate::event::Needs::writes`]) and from captured rows. A written row claims its old and new values of
//! *every* unique key, so a transaction that knows the row by one of them meets it. A reference relies on the key of its
//! parent: a shared claim, which conflicts with the exclusive one of a transaction that makes, removes or re-keys the parent.
//!
//! Rows that have values in common form a group: the lines of one order, for example. A group is claimed by a hash of these
//! values, as if they were a key. So a written row also claims the groups that it is or was in: it conflicts with claims and
//! reads of such a group, and with no other row of it. (These are the intention locks of Gray's multiple granularities, with
//! values for the levels.) Hashes may collide: an overlap that is none only delays or aborts.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::{DatabaseId, TableId};

pub use sql::accesses::ColumnSet;

/// The number that stands for definitions instead of a table.
const DEFINITIONS: u32 = u32::MAX - 1;

/// Stands for the definitions of a database instead of a table, by the hashes of names. A schema change claims the definitions
/// that it changes, and a statement claims the relations that it uses, shared. So a schema change waits for the transactions that
/// use its objects, these wait for it, and no others do.
pub const fn definitions(database: DatabaseId) -> TableId {
    database.table(DEFINITIONS)
}

/// Whether this stands for definitions.
pub const fn is_definitions(table: TableId) -> bool {
    table.number == DEFINITIONS
}

/// Under [`definitions`]: every schema change claims this when it finishes. So of two schema changes of one home, the one that had
/// its locks first is ordered first.
pub const ANY_DEFINITION: u64 = 0;

/// More row claims of one table than this count as the whole table.
pub const ROW_CLAIMS_MAX: usize = 1_000;

/// The claims of a statement or a transaction.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Claims {
    /// Values of unique keys that are written, taken or freed: table, and hash of key and value.
    pub rows: Vec<(TableId, u64)>,
    /// Values of unique keys that must stay as they are. Two of these do not conflict with each other.
    pub shared: Vec<(TableId, u64)>,
    /// Groups of which rows are written, while others may write other rows of them. These conflict with the two lists above,
    /// and not with each other.
    pub groups: Vec<(TableId, u64)>,
    /// Whole tables.
    pub tables: Vec<TableId>,
    /// Anything.
    pub everything: bool,
}

impl Claims {
    /// Claims that cannot be bounded.
    pub fn everything() -> Self {
        Self { everything: true, ..Self::default() }
    }

    /// Whether these claim nothing.
    pub fn is_empty(&self) -> bool {
        let lists = [&self.rows, &self.shared, &self.groups];
        !self.everything && lists.iter().all(|list| list.is_empty()) && self.tables.is_empty()
    }

    /// Whether the two conflict.
    pub fn overlaps(&self, other: &Self) -> bool {
        let touches = |a: &Self, b: &Self| {
            let lists = || b.rows.iter().chain(&b.shared).chain(&b.groups);
            let within = |table: &TableId| lists().any(|(t, _)| t == table);
            a.tables.iter().any(|t| b.tables.contains(t) || within(t))
                || a.rows.iter().any(|row| lists().any(|other| other == row))
                || a.shared.iter().any(|row| b.groups.contains(row))
        };
        self.everything || other.everything || touches(self, other) || touches(other, self)
    }

    /// A claim of these that conflicts with one of the others: a row if there is one, else a group, else a table.
    pub fn meeting(&self, other: &Self) -> Option<Meeting> {
        let set = |list: &Vec<(TableId, u64)>| list.iter().copied().collect::<BTreeSet<_>>();
        let (rows, shared, groups) = (set(&other.rows), set(&other.shared), set(&other.groups));
        let whole = |row: &(TableId, u64)| other.tables.contains(&row.0);
        let meets_rows = |row: &(TableId, u64)| {
            whole(row) || rows.contains(row) || shared.contains(row) || groups.contains(row)
        };
        let meets_shared = |row: &(TableId, u64)| whole(row) || rows.contains(row) || groups.contains(row);
        let meets_groups = |row: &(TableId, u64)| whole(row) || rows.contains(row) || shared.contains(row);
        let is_row = |row: &&(TableId, u64)| !is_definitions(row.0);
        let of_rows = self.rows.iter().filter(is_row).find(|row| meets_rows(row));
        let of_shared = || self.shared.iter().filter(is_row).find(|row| meets_shared(row));
        let of_groups = || self.groups.iter().filter(is_row).find(|row| meets_groups(row));
        let row = of_rows.or_else(of_shared).or_else(of_groups);
        let touched: BTreeSet<TableId> = rows
            .iter()
            .chain(&shared)
            .chain(&groups)
            .map(|(table, _)| *table)
            .chain(other.tables.iter().copied())
            .collect();
        let touches = |table: &&TableId| touched.contains(table);
        row.map(|(table, row)| Meeting { table: *table, row: Some(*row) })
            .or_else(|| self.tables.iter().find(touches).map(|table| Meeting { table: *table, row: None }))
            .or_else(|| {
                let definition = self.rows.iter().find(|row| meets_rows(row));
                let definition = definition.or_else(|| self.shared.iter().find(|row| meets_shared(row)));
                definition.map(|(table, name)| Meeting { table: *table, row: Some(*name) })
            })
    }

    /// The same claims on whole tables; definitions stay apart.
    #[must_use]
    pub fn widened(mut self) -> Self {
        let Self { rows, shared, groups, tables, .. } = &mut self;
        for list in [rows, shared, groups] {
            let of_tables = list.extract_if(.., |(table, _)| !is_definitions(*table));
            tables.extend(of_tables.map(|(table, _)| table));
        }
        tables.sort_unstable();
        tables.dedup();
        self
    }

    /// The tables of which rows may be written, some of them more than once.
    pub fn written_tables(&self) -> impl Iterator<Item = TableId> {
        let rows = self.rows.iter().chain(&self.groups).map(|(table, _)| *table);
        rows.chain(self.tables.iter().copied()).filter(|table| !is_definitions(*table))
    }

    /// Adds the claims of another one.
    pub fn add(&mut self, other: &Self) {
        self.rows.extend(&other.rows);
        self.shared.extend(&other.shared);
        self.groups.extend(&other.groups);
        self.tables.extend(&other.tables);
        self.everything |= other.everything;
    }
}

/// A claim that two transactions have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Meeting {
    /// The table.
    pub table: TableId,
    /// The hash of key and value, or of a group; `None` for the whole table.
    pub row: Option<u64>,
}

/// The claims of statements that were let run together, or those that home itself holds for them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Claimed {
    /// The number of statements of the transaction that were let run before. For a table that is held, the first of several.
    pub turn: u32,
    /// The claims are of tables into which too many new rows were inserted to claim each. As long as the transaction is alive
    /// at home, no row that conflicts with one of these can be applied there, and its statement has met those that were applied
    /// before.
    pub is_held: bool,
    /// The claims.
    pub claims: Claims,
}

/// A bounded set of reads: whole tables, rows by values of their unique keys, and groups of rows.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Footprint {
    /// Tables of which any row may be read.
    pub tables: Vec<TableId>,
    /// Rows and groups: table, and hash of key and value.
    pub rows: Vec<(TableId, u64)>,
    /// The columns that are read of a table, beside which rows there are; of tables not listed, all columns.
    pub columns: Vec<(TableId, ColumnSet)>,
}

impl Footprint {
    /// The columns of a table that are read, in any rows; `None` for all.
    pub fn columns_of(&self, table: TableId) -> Option<ColumnSet> {
        self.columns.iter().find(|(of, _)| *of == table).map(|(_, set)| *set)
    }

    /// Adds other reads.
    pub fn add(&mut self, other: &Self) {
        let mut columns = Vec::new();
        for table in self.all_tables() {
            let mine = self.columns_of(table);
            let theirs = if other.has(table) { other.columns_of(table) } else { Some(ColumnSet::EMPTY) };
            columns.extend(mine.zip(theirs).map(|(mine, theirs)| (table, mine.union(theirs))));
        }
        columns.extend(other.columns.iter().filter(|(table, _)| !self.has(*table)));
        self.columns = columns;
        self.tables.extend(&other.tables);
        self.rows.extend(&other.rows);
    }

    fn has(&self, table: TableId) -> bool {
        self.tables.contains(&table) || self.rows.iter().any(|(of, _)| *of == table)
    }

    /// All tables of which something is read.
    pub fn all_tables(&self) -> Vec<TableId> {
        let rows = self.rows.iter().map(|(table, _)| *table);
        let mut all: Vec<TableId> = self.tables.iter().copied().chain(rows).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = DatabaseId::FIRST.table(1);
    const ROW: (TableId, u64) = (TABLE, 7);

    /// Every pair of claims of one row, in each list, or of its table.
    #[test]
    fn claims_that_overlap_have_a_meeting() {
        let one: [fn(&mut Claims); 5] = [
            |claims| claims.rows.push(ROW),
            |claims| claims.shared.push(ROW),
            |claims| claims.groups.push(ROW),
            |claims| claims.tables.push(TABLE),
            |claims| claims.rows.extend([(TABLE, 3), (DatabaseId::FIRST.table(2), 7)]),
        ];
        let claims = one.map(|fill| {
            let mut claims = Claims::default();
            fill(&mut claims);
            claims
        });
        for mine in &claims {
            for theirs in &claims {
                let meeting = mine.meeting(theirs);
                assert_eq!(meeting.is_some(), mine.overlaps(theirs), "{mine:?} {theirs:?}");
                let row = meeting.and_then(|meeting| meeting.row);
                assert_eq!(row.is_some(), meeting.is_some() && mine.tables.is_empty(), "{mine:?} {theirs:?}");
            }
        }
        let defined = Claims {
            rows: vec![(definitions(DatabaseId::FIRST), 5)],
            tables: vec![TABLE],
            ..Claims::default()
        };
        let used =
            |rows| Claims { rows, shared: vec![(definitions(DatabaseId::FIRST), 5)], ..Claims::default() };
        let met = used(vec![ROW]).meeting(&defined);
        assert_eq!(met, Some(Meeting { table: TABLE, row: Some(7) }), "a row says more than a definition");
        assert!(used(Vec::new()).meeting(&defined).is_some() && defined.meeting(&used(Vec::new())).is_some());
        assert_eq!(claims[0].meeting(&claims[3]), Some(Meeting { table: TABLE, row: Some(7) }));
        assert_eq!(claims[3].meeting(&claims[0]), Some(Meeting { table: TABLE, row: None }));
    }

    /// The same numbers and hashes in two databases.
    #[test]
    fn claims_of_two_databases_do_not_touch() {
        let [sales, stock] = [DatabaseId(1), DatabaseId(2)].map(|database| Claims {
            rows: vec![(database.table(7), 5), (definitions(database), 5)],
            shared: vec![(database.table(8), 5)],
            groups: vec![(database.table(9), 5)],
            tables: vec![database.table(10)],
            everything: false,
        });
        assert!(sales.overlaps(&sales) && !sales.overlaps(&stock));
        assert!(sales.meeting(&sales).is_some() && sales.meeting(&stock).is_none());
        assert!(sales.overlaps(&Claims::everything()), "everything is that of all databases");
    }
}
