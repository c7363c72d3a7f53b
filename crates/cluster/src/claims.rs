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

use crate::ids::TableId;

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

    /// Takes in what another one claims.
    pub fn add(&mut self, other: &Self) {
        self.rows.extend(&other.rows);
        self.shared.extend(&other.shared);
        self.groups.extend(&other.groups);
        self.tables.extend(&other.tables);
        self.everything |= other.everything;
    }
}

/// What the statements that were let run together have claimed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claimed {
    /// Which: how many of the transaction's statements were let run before.
    pub turn: u32,
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
}

impl Footprint {
    /// All tables of which something is read.
    pub fn all_tables(&self) -> Vec<TableId> {
        let rows = self.rows.iter().map(|(table, _)| *table);
        let mut all: Vec<TableId> = self.tables.iter().copied().chain(rows).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
