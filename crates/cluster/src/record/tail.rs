//! The end of a body: the tables of its rows, sorted, and in [`FORMAT_PARTS`](super::FORMAT_PARTS) the parts of each.
//!
//! ```text
//! number of a table, 4 bytes each | parts, a set in 8 bytes each, all bits for a whole table
//! ```

use super::read::{Change, RowChange};
use super::{DatabaseId, TableId, u32_at, u64_at};
use crate::placement::{Changed, PartSet};

/// Says where the lists are in bytes that end with them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    /// The number of tables.
    pub(super) tables: usize,
    /// Whether their parts follow.
    pub(super) has_parts: bool,
}

impl Tail {
    /// Length of the tail.
    pub(super) fn len_bytes(self) -> usize {
        self.tables * if self.has_parts { 12 } else { 4 }
    }

    /// The tables, in order.
    pub(super) fn tables(
        self,
        bytes: &[u8],
        database: DatabaseId,
    ) -> impl ExactSizeIterator<Item = TableId> + '_ {
        self.numbers(bytes).chunks_exact(4).map(move |number| database.table(u32_at(number, 0)))
    }

    /// The tables with their parts, in order.
    pub(super) fn changes(self, bytes: &[u8], database: DatabaseId) -> impl Iterator<Item = Changed> + '_ {
        let parts = &bytes[bytes.len() - if self.has_parts { self.tables * 8 } else { 0 }..];
        self.tables(bytes, database).enumerate().map(move |(at, table)| {
            let bits = if self.has_parts { u64_at(parts, at * 8) } else { u64::MAX };
            Changed { table, parts: (bits != u64::MAX).then(|| PartSet::from_bits(bits)) }
        })
    }

    /// Whether a row change is among what the lists say.
    pub(super) fn lists(self, bytes: &[u8], row: &RowChange<'_>) -> bool {
        let (numbers, _) = self.numbers(bytes).as_chunks::<4>();
        let found = numbers.binary_search_by_key(&row.table.number, |number| u32::from_le_bytes(*number));
        let Ok(at) = found else { return false };
        if !self.has_parts {
            return row.parts.iter().next().is_none();
        }
        let parts = PartSet::from_bits(u64_at(&bytes[bytes.len() - self.tables * 8..], at * 8));
        let is_known = row.parts.iter().next().is_some() && row.change != Change::Truncate;
        parts.bits() == u64::MAX || is_known && row.parts.iter().all(|part| parts.contains(part))
    }

    fn numbers(self, bytes: &[u8]) -> &[u8] {
        let at = bytes.len() - self.len_bytes();
        &bytes[at..at + self.tables * 4]
    }
}
