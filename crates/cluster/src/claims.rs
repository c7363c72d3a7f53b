//! What a transaction wrote, claimed or may have locked: the currency of conflicts between updates.
//!
//! A claim is a value of a unique key by its hash, a whole table, or everything. Sessions derive them from statements
//! (what may be written: [`crate::event::Needs::writes`]) and from captured rows (what was). A written row claims its
//! values of *every* unique key, old and new, so who knows it by one of them meets it. A reference relies on the key of
//! its parent: a shared claim, against the exclusive one of whoever makes, removes or re-keys the parent.
//!
//! Groups of rows that have values in common (those of one order, say) are claimed by a hash of these values, as if they
//! were a key's. So a written row also says of which groups it is or was: it meets whoever claims or reads such a group,
//! and no other row of it. (The intention locks of Gray's multiple granularities, with values for the levels.)
//! Hashes may collide: an overlap that is none only delays or aborts.

use std::collections::BTreeSet;

use crate::ids::TableId;

pub use sql::accesses::ColumnSet;

/// Stands for definitions instead of a table: those that statements use and that schema changes make anew, by the hashes of
/// names. A statement asks for the relations that it uses, shared. So a schema change waits for the transactions that use what
/// it concerns, they wait for it, and no others do.
pub const DEFINITIONS: TableId = TableId(u32::MAX - 1);
/// Under [`DEFINITIONS`]: every schema change claims this when it finishes, so that of two of one home the one that had its
/// locks first comes first.
pub const ANY_DEFINITION: u64 = 0;

/// More row claims of one table than this count as the whole table.
pub const ROW_CLAIMS_MAX: usize = 1_000;

/// What a transaction wrote, claimed, or may have locked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claims {
    /// Values of unique keys that are written, taken or freed: table, and hash of key and value.
    pub rows: Vec<(TableId, u64)>,
    /// Values of unique keys that must stay as they are; two of these do not touch each other.
    pub shared: Vec<(TableId, u64)>,
    /// Groups of which rows are written, while others may write other rows of them: these touch those of the two lists
    /// above, and not each other.
    pub groups: Vec<(TableId, u64)>,
    /// Whole tables.
    pub tables: Vec<TableId>,
    /// Anything.
    pub everything: bool,
}

impl Claims {
    /// Claims that nobody can bound.
    pub fn everything() -> Self {
        Self { everything: true, ..Self::default() }
    }

    /// Nothing at all.
    pub fn is_empty(&self) -> bool {
        let lists = [&self.rows, &self.shared, &self.groups];
        !self.everything && lists.iter().all(|list| list.is_empty()) && self.tables.is_empty()
    }

    /// Whether the two touch each other.
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

    /// Where these meet the other ones, as these know it: by a row if they can tell, by a group of rows else.
    pub fn meeting(&self, other: &Self) -> Option<Meeting> {
        let set = |list: &Vec<(TableId, u64)>| list.iter().copied().collect::<BTreeSet<_>>();
        let (rows, shared, groups) = (set(&other.rows), set(&other.shared), set(&other.groups));
        let whole = |row: &(TableId, u64)| other.tables.contains(&row.0);
        let meets_rows = |row: &(TableId, u64)| {
            whole(row) || rows.contains(row) || shared.contains(row) || groups.contains(row)
        };
        let meets_shared = |row: &(TableId, u64)| whole(row) || rows.contains(row) || groups.contains(row);
        let meets_groups = |row: &(TableId, u64)| whole(row) || rows.contains(row) || shared.contains(row);
        let is_row = |row: &&(TableId, u64)| row.0 != DEFINITIONS;
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

    /// The same by whole tables; definitions stay apart.
    #[must_use]
    pub fn widened(mut self) -> Self {
        let Self { rows, shared, groups, tables, .. } = &mut self;
        for list in [rows, shared, groups] {
            let of_tables = list.extract_if(.., |(table, _)| *table != DEFINITIONS);
            tables.extend(of_tables.map(|(table, _)| table));
        }
        tables.sort_unstable();
        tables.dedup();
        self
    }

    /// Takes in what another one claims.
    pub fn add(&mut self, other: &Self) {
        self.rows.extend(&other.rows);
        self.shared.extend(&other.shared);
        self.groups.extend(&other.groups);
        self.tables.extend(&other.tables);
        self.everything |= other.everything;
    }
}

/// Where two transactions meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meeting {
    /// The table.
    pub table: TableId,
    /// The hash of key and value, or of a group, if it is no more than that.
    pub row: Option<u64>,
}

/// What the statements that were let run together have claimed, or what home itself keeps for them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claimed {
    /// Which: how many of the transaction's statements were let run before. For a table that is held, of several the first.
    pub turn: u32,
    /// Tables into which new rows were put, too many to be told apart: as long as the transaction is alive at home, no row
    /// that meets one of these can be applied there, and those that were applied before, its statement has met.
    pub is_held: bool,
    /// What.
    pub claims: Claims,
}

/// What is read: whole tables, rows by values of their unique keys, and groups of rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// Tables of which any row may be read.
    pub tables: Vec<TableId>,
    /// Rows and groups: table, and hash of key and value.
    pub rows: Vec<(TableId, u64)>,
    /// Which columns of these are read, and which rows there are; of other tables, all columns.
    pub columns: Vec<(TableId, ColumnSet)>,
}

impl Footprint {
    /// The columns of a table that are read, in whichever rows; `None` for all.
    pub fn columns_of(&self, table: TableId) -> Option<ColumnSet> {
        self.columns.iter().find(|(of, _)| *of == table).map(|(_, set)| *set)
    }

    /// Takes in what else is read.
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

    const TABLE: TableId = TableId(1);
    const ROW: (TableId, u64) = (TABLE, 7);

    /// Every pair of claims of one row, in each list, or of its table.
    #[test]
    fn who_touches_has_a_place_where() {
        let one: [fn(&mut Claims); 5] = [
            |claims| claims.rows.push(ROW),
            |claims| claims.shared.push(ROW),
            |claims| claims.groups.push(ROW),
            |claims| claims.tables.push(TABLE),
            |claims| claims.rows.extend([(TABLE, 3), (TableId(2), 7)]),
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
        let defined = Claims { rows: vec![(DEFINITIONS, 5)], tables: vec![TABLE], ..Claims::default() };
        let used = |rows| Claims { rows, shared: vec![(DEFINITIONS, 5)], ..Claims::default() };
        let met = used(vec![ROW]).meeting(&defined);
        assert_eq!(met, Some(Meeting { table: TABLE, row: Some(7) }), "a row says more than a definition");
        assert!(used(Vec::new()).meeting(&defined).is_some() && defined.meeting(&used(Vec::new())).is_some());
        assert_eq!(claims[0].meeting(&claims[3]), Some(Meeting { table: TABLE, row: Some(7) }));
        assert_eq!(claims[3].meeting(&claims[0]), Some(Meeting { table: TABLE, row: None }));
    }
}
