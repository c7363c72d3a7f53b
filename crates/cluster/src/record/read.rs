//! Reading the items of a record.
//!
//! One cursor serves both sides: [`check_body_shape`] walks a body that came from outside and reports where it is
//! malformed; the iterators walk a body that was checked, so they need not report anything.

mod cursor;

use serde::{Deserialize, Serialize};

use super::row_parts::RowParts;
use super::{
    DatabaseId, DecodeError, FORMAT_PARTS, HAS_ORIGIN, Origin, Record, ReplicaId, Shipped, Spilled, TableId,
};
use crate::ids::SequenceId;
use cursor::Cursor;

/// The byte that an item begins with.
pub(super) mod kind {
    pub(in super::super) const ROWS: u8 = 1;
    pub(in super::super) const STATEMENT: u8 = 2;
    pub(in super::super) const SEQUENCE: u8 = 3;
    pub(in super::super) const FENCE: u8 = 4;
    /// Only in [`FORMAT_SPILLED`](super::super::FORMAT_SPILLED).
    pub(in super::super) const SPILLED: u8 = 5;
    pub(in super::super) const SHIPPED: u8 = 6;
    /// Only in [`FORMAT_PARTS`](super::super::FORMAT_PARTS).
    pub(in super::super) const ORIGIN: u8 = 7;
}

/// The byte that a row change begins with.
pub(super) mod op {
    pub(in super::super) const INSERT: u8 = b'I';
    pub(in super::super) const UPDATE: u8 = b'U';
    pub(in super::super) const DELETE: u8 = b'D';
    pub(in super::super) const TRUNCATE: u8 = b'T';
    /// Added to those of a row: the parts of the row before and after follow the table. Only in
    /// [`FORMAT_PARTS`](super::super::FORMAT_PARTS).
    pub(in super::super) const IN_PARTS: u8 = 0x80;
}

const CHECKED: &str = "the body was made by a builder or checked when it was decoded";

/// One step of a record; the steps are applied in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// Row changes.
    Rows(Rows<'a>),
    /// A statement that every replica runs as it stands.
    Statement(Statement),
    /// A statement of a client that every replica runs, with its parameters.
    Shipped(Shipped),
    /// A mark of a sequence.
    Sequence(Sequence),
    /// A new leader's term begins; its epoch is in the record's identity.
    Fence,
    /// Items in a file; the first item of a record that has it.
    Spilled(Spilled),
    /// Where the transaction ran, and what it claimed. A replica does nothing with it.
    Origin(Origin),
}

/// A statement, with what its meaning depends on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Statement {
    /// The text, with everything that could differ between replicas made constant.
    pub text: String,
    /// The role that runs it.
    pub role: String,
    /// The search path in force.
    pub search_path: String,
    /// Other settings in force, name and value.
    pub settings: Vec<(String, String)>,
}

/// The name, among a statement's settings, of the numbers that its home gave to new objects. It is no setting of a server.
pub const NUMBERS: &str = "onecopy numbers";

/// Among the settings of a statement: it changes no sequence that was there before, so replicas keep the ranges that they were
/// lent. It is no setting of a server.
pub const KEEPS_LENT: &str = "onecopy keeps lent";

impl Statement {
    /// The numbers that the home gave to objects that the statement made; `None` where it made none.
    pub fn numbers(&self) -> Option<&str> {
        self.settings.iter().find(|(name, _)| name == NUMBERS).map(|(_, numbers)| numbers.as_str())
    }

    /// Whether a replica keeps the ranges of sequences that it was lent when the statement runs there.
    pub fn keeps_lent(&self) -> bool {
        self.settings.iter().any(|(name, _)| name == KEEPS_LENT)
    }
}

/// A mark: the holder of a sequence may hand out values up to it before the log must have another one.
///
/// Of two marks of one sequence and holder the one of the later generation counts, and within one generation the one
/// that is further ahead: so it does not matter in which order they come. A generation ends when the sequence is set
/// back, by `setval`, RESTART, or at the end of a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Sequence {
    /// The sequence.
    pub id: SequenceId,
    /// The replica that hands these values out.
    pub holder: ReplicaId,
    /// The number of times that it was set back.
    pub generation: u64,
    /// The last value that may be handed out.
    pub value: i64,
    /// Whether that value itself may have been handed out, as in `setval`.
    pub called: bool,
    /// It counts down.
    pub descends: bool,
}

impl Sequence {
    /// Whether this mark allows more than the other one of the same sequence and holder.
    pub fn exceeds(&self, other: &Self) -> bool {
        if self.generation != other.generation {
            return self.generation > other.generation;
        }
        let place = |mark: &Self| {
            let value = i128::from(mark.value);
            (if self.descends { -value } else { value }, mark.called)
        };
        place(self) > place(other)
    }
}

/// A change of one row, or of all rows of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowChange<'a> {
    /// The table.
    pub table: TableId,
    /// The change.
    pub change: Change<'a>,
    /// The parts in which it is, if the table was split by a value when the record was made.
    pub parts: RowParts,
}

/// A change of a row; the images are read with [`super::Image`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// The row came into being.
    Insert {
        /// Its image.
        new: &'a [u8],
    },
    /// The row changed.
    Update {
        /// As it was.
        old: &'a [u8],
        /// As it is.
        new: &'a [u8],
    },
    /// The row went away.
    Delete {
        /// As it was.
        old: &'a [u8],
    },
    /// All rows of the table went away.
    Truncate,
}

/// Row changes that follow each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rows<'a> {
    database: DatabaseId,
    bytes: &'a [u8],
}

impl<'a> Rows<'a> {
    /// The changes in order.
    pub fn iter(&self) -> RowChanges<'a> {
        RowChanges { rows: Cursor::new(self.database, self.bytes), items: Items::new(self.database, &[]) }
    }

    /// Length in encoded form, as a measure of the work.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl<'a> IntoIterator for &Rows<'a> {
    type Item = RowChange<'a>;
    type IntoIter = RowChanges<'a>;

    fn into_iter(self) -> RowChanges<'a> {
        self.iter()
    }
}

impl std::fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The items of a record, in order.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Items<'a> {
    pub(super) fn new(database: DatabaseId, bytes: &'a [u8]) -> Self {
        Self { cursor: Cursor::new(database, bytes) }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        (!self.cursor.at_end()).then(|| self.cursor.item().expect(CHECKED))
    }
}

/// Row changes in order, over one item or a whole record.
#[derive(Clone, Debug)]
pub struct RowChanges<'a> {
    rows: Cursor<'a>,
    items: Items<'a>,
}

impl<'a> RowChanges<'a> {
    pub(super) fn new(items: Items<'a>) -> Self {
        Self { rows: Cursor::new(items.cursor.database, &[]), items }
    }
}

impl<'a> Iterator for RowChanges<'a> {
    type Item = RowChange<'a>;

    fn next(&mut self) -> Option<RowChange<'a>> {
        while self.rows.at_end() {
            if self.items.cursor.at_end() {
                return None;
            }
            // An item that is not Rows is stepped over without being taken apart.
            let (kind, payload) = self.items.cursor.item_parts().expect(CHECKED);
            if kind == kind::ROWS {
                self.rows = Cursor::new(self.rows.database, payload);
            }
        }
        Some(self.rows.row_change().expect(CHECKED))
    }
}

/// A row change, or an item that is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Element<'a> {
    Row(RowChange<'a>),
    Item(Item<'a>),
}

/// The elements of items in order, each with its number.
#[derive(Clone, Debug)]
pub(super) struct Elements<'a> {
    items: Items<'a>,
    rows: RowChanges<'a>,
    next: u64,
}

impl<'a> Elements<'a> {
    pub(super) fn new(items: Items<'a>, first: u64) -> Self {
        let rows = RowChanges::new(Items::new(items.cursor.database, &[]));
        Self { items, rows, next: first }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = (u64, Element<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let element = loop {
            if let Some(row) = self.rows.next() {
                break Element::Row(row);
            }
            match self.items.next()? {
                Item::Rows(rows) => self.rows = rows.iter(),
                other => break Element::Item(other),
            }
        };
        let number = self.next;
        self.next += 1;
        Some((number, element))
    }
}

/// Walks the items of a chunk to their end.
pub(super) fn check_chunk_shape(
    items: Items<'_>,
    elements: u32,
    tables: &[TableId],
) -> Result<(), DecodeError> {
    let mut cursor = items.cursor;
    let mut found: u64 = 0;
    while !cursor.at_end() {
        let bad = DecodeError::BadBody { offset: cursor.offset };
        let item = cursor.item().ok_or(bad)?;
        if let Item::Rows(rows) = &item {
            let mut inner = Cursor::new(rows.database, rows.bytes);
            while !inner.at_end() {
                let change = inner.row_change().ok_or(bad)?;
                tables.binary_search(&change.table).map_err(|_| bad)?;
                found += 1;
            }
        } else if matches!(item, Item::Spilled(_)) {
            return Err(bad);
        } else {
            found += 1;
        }
    }
    if found == u64::from(elements) { Ok(()) } else { Err(DecodeError::BadHeader) }
}

/// Walks a body to its end, so that later readers need no checks.
pub(super) fn check_body_shape(record: &Record) -> Result<(), DecodeError> {
    let items = record.items_bytes();
    let mut cursor = Cursor::new(record.header().database, items);
    let mut rows: u64 = 0;
    let mut everything = false;
    let mut origins = 0;
    let is_spilled = record.envelope.is_spilled();
    while !cursor.at_end() {
        let item_at = cursor.offset;
        let bad = |offset| DecodeError::BadBody { offset };
        let item = cursor.item().ok_or_else(|| bad(item_at))?;
        if (is_spilled && item_at == 0) != matches!(item, Item::Spilled(_)) {
            return Err(bad(item_at));
        }
        match item {
            Item::Rows(item) => {
                let mut inner = Cursor::new(item.database, item.bytes);
                while !inner.at_end() {
                    let at = item_at + inner.offset;
                    let change = inner.row_change().ok_or_else(|| bad(at))?;
                    if !record.envelope.tail().lists(&record.bytes, &change) {
                        return Err(bad(at));
                    }
                    rows += 1;
                }
            }
            Item::Statement(_) | Item::Shipped(_) | Item::Fence => everything = true,
            Item::Sequence(_) => {}
            Item::Origin(_) => origins += 1,
            // Whether a statement is among these is seen when they are read.
            Item::Spilled(spilled) => {
                rows = rows.saturating_add(spilled.rows);
                everything |= record.writes_everything();
            }
        }
    }
    let is_told = origins == 1 && record.envelope.format == FORMAT_PARTS;
    let has_origin = record.envelope.flags & HAS_ORIGIN != 0;
    if (origins > 0 || has_origin) && !(is_told && has_origin) {
        return Err(DecodeError::BadBody { offset: items.len() });
    }
    let sorted = record.tables().is_sorted_by(|a, b| a < b);
    let has_none = is_spilled && items.is_empty();
    if has_none || !sorted || rows != record.envelope.rows || everything != record.writes_everything() {
        return Err(DecodeError::BadBody { offset: items.len() });
    }
    Ok(())
}
