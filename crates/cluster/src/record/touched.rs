//! The tables that the rows of a growing record touch, with the parts of those that are split.

use std::collections::{BTreeMap, BTreeSet};

use super::read::{Change, RowChange};
use crate::ids::TableId;
use crate::placement::PartSet;

/// What rows touch. It only grows, but for [`Self::clear`].
#[derive(Clone, Debug, Default)]
pub(super) struct TouchedTables {
    /// Sorted.
    tables: Vec<TableId>,
    /// The table of the row before, which is mostly that of the next.
    last: Option<TableId>,
    /// The parts of the rows whose part is known. A table of which some rows have none is not listed.
    parts: BTreeMap<TableId, PartSet>,
    /// The number of rows whose part is known; those that were dropped may count.
    rows_in_parts: u64,
    /// The tables with rows whose part is not known; those of rows that were dropped may be among them.
    untold: BTreeSet<TableId>,
}

impl TouchedTables {
    /// The tables, sorted.
    pub(super) fn tables(&self) -> &[TableId] {
        &self.tables
    }

    /// Whether parts are known of some rows.
    pub(super) fn are_in_parts(&self) -> bool {
        self.rows_in_parts > 0
    }

    /// The tables with rows whose part is not known.
    pub(super) fn into_untold(self) -> BTreeSet<TableId> {
        self.untold
    }

    /// Forgets all rows.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Notes one more row.
    pub(super) fn note(&mut self, row: &RowChange<'_>) {
        let (table, is_truncate) = (row.table, row.change == Change::Truncate);
        let is_in_parts = row.parts.iter().next().is_some();
        self.rows_in_parts += u64::from(is_in_parts);
        if self.last == Some(table) && !is_in_parts && self.parts.is_empty() {
            return;
        }
        // After a TRUNCATE the next row is looked at, too.
        self.last = (!is_truncate).then_some(table);
        if !is_in_parts && !is_truncate {
            self.untold.insert(table);
        }
        let is_known = self.tables.binary_search(&table).map_err(|at| self.tables.insert(at, table)).is_ok();
        if !is_in_parts {
            self.parts.remove(&table);
        } else if !is_known || self.parts.contains_key(&table) {
            let all = self.parts.entry(table).or_default();
            *all = row.parts.iter().fold(*all, PartSet::with);
        }
    }

    /// Appends the lists at the end of a body ([`super::tail`]), that of parts if `has_parts`.
    pub(super) fn put_tail(&self, bytes: &mut Vec<u8>, has_parts: bool) {
        for table in &self.tables {
            bytes.extend_from_slice(&table.number.to_le_bytes());
        }
        for table in self.tables.iter().filter(|_| has_parts) {
            let bits = self.parts.get(table).map_or(u64::MAX, |parts| parts.bits());
            bytes.extend_from_slice(&bits.to_le_bytes());
        }
    }
}
