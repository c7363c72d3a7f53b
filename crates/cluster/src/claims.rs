//! What a transaction wrote, claimed or may have locked: the currency of conflicts between updates.
//!
//! A claim is a value of a unique key by its hash, a whole table, or everything. Sessions derive them from statements
//! (what may be written: [`crate::event::Needs::writes`]) and from captured rows (what was). A written row claims its
//! values of *every* unique key, old and new, so who knows it by one of them meets it. A reference relies on the key of
//! its parent: a shared claim, against the exclusive one of whoever makes, removes or re-keys the parent.
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
        !self.everything && self.rows.is_empty() && self.shared.is_empty() && self.tables.is_empty()
    }

    /// Whether the two touch each other.
    pub fn overlaps(&self, other: &Self) -> bool {
        let touches = |a: &Self, b: &Self| {
            let within = |table: &TableId| b.rows.iter().chain(&b.shared).any(|(t, _)| t == table);
            a.tables.iter().any(|t| b.tables.contains(t) || within(t))
        };
        self.everything
            || other.everything
            || touches(self, other)
            || touches(other, self)
            || self.rows.iter().any(|row| other.rows.contains(row) || other.shared.contains(row))
            || self.shared.iter().any(|row| other.rows.contains(row))
    }

    /// Takes in what another one claims.
    pub fn add(&mut self, other: &Self) {
        self.rows.extend(&other.rows);
        self.shared.extend(&other.shared);
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

/// What is read: whole tables, and rows by values of their unique keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// Tables of which any row may be read.
    pub tables: Vec<TableId>,
    /// Rows: table, and hash of key and value.
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
