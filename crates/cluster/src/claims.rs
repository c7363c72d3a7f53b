//! What a transaction wrote, claimed or may have locked: the currency of conflicts between updates.
//!
//! A claim is a row by the hash of its key, a whole table, or everything. Sessions derive them from statements and
//! captured rows; [`crate::parts::in_flight`] finds overlaps. Hashes may collide: an overlap that is none only delays.

use crate::ids::TableId;

/// More row claims of one table than this count as the whole table.
pub const ROW_CLAIMS_MAX: usize = 1_000;

/// What a transaction wrote, claimed, or may have locked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claims {
    /// Rows: table and hash of the key.
    pub rows: Vec<(TableId, u64)>,
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

    /// Whether the two touch each other.
    pub fn overlaps(&self, other: &Self) -> bool {
        let touches = |a: &Self, b: &Self| {
            a.tables.iter().any(|t| b.tables.contains(t) || b.rows.iter().any(|(table, _)| table == t))
        };
        self.everything
            || other.everything
            || touches(self, other)
            || touches(other, self)
            || self.rows.iter().any(|row| other.rows.contains(row))
    }
}
