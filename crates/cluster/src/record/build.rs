//! Building a record while the transaction runs.
//!
//! Rows are appended as they are captured: one copy of the image into the buffer that will be the record. Consecutive
//! rows share one item, whose length is filled in when something else follows. A savepoint is a [`Mark`]; going back to
//! it cuts the buffer.
//!
//! When the buffer has grown too large its owner takes it out as a [`Chunk`], writes that to a file, and goes on: see
//! [`super::spill`]. What was spilled is never cut, only skipped.

mod items;

use super::read::{Element, Elements, Items, RowChanges, kind, op};
use super::spill::{CHUNK_HEAD_BYTES, Chunk, Span, Spilled, is_in};
use super::touched::TouchedTables;
use super::{
    BODY_LIMIT_BYTES, Change, DatabaseId, FORMAT, FORMAT_PARTS, FORMAT_SPILLED, HAS_ORIGIN, HEADER_BYTES,
    Header, IS_SPILLED, Item, Record, RowChange, RowParts, SealedBody, TableId, WRITES_EVERYTHING, put,
};
use crate::placement::Edition;

/// A kind byte and the length of what follows.
const ITEM_HEAD_BYTES: usize = 5;
/// Most bytes at the end of the body for a table.
const TAIL_ENTRY_BYTES: usize = 12;

/// The record would exceed [`BODY_LIMIT_BYTES`]; nothing was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLarge;

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a transaction can leave at most {BODY_LIMIT_BYTES} bytes of changes")
    }
}

impl std::error::Error for TooLarge {}

/// A place in a builder to which [`RecordBuilder::truncate_to`] can go back.
/// The default is the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    elements: u64,
    /// The number of elements in the file.
    spilled: u64,
    len: usize,
    open_rows_at: Option<usize>,
    rows: u64,
    statements: u32,
    fences: u32,
    sequences: u32,
    tables: usize,
}

impl Mark {
    /// The number of the element that comes next there.
    pub fn elements(&self) -> u64 {
        self.elements
    }
}

/// The growing record of one transaction.
#[derive(Clone, Debug)]
pub struct RecordBuilder {
    /// The database that the transaction runs in. The body has the numbers of tables and sequences alone, the header names
    /// the database.
    database: DatabaseId,
    /// Empty, or room for the header followed by the items so far.
    bytes: Vec<u8>,
    /// The place where the Rows item that still grows begins.
    open_rows_at: Option<usize>,
    rows: u64,
    statements: u32,
    fences: u32,
    sequences: u32,
    /// Elements so far, those in the file and those to be skipped included.
    elements: u64,
    /// The items in the file.
    spilled: Option<Spilled>,
    touched: TouchedTables,
    edition: Edition,
    has_origin: bool,
}

impl RecordBuilder {
    /// An empty record; takes no memory until something is added.
    pub fn new(database: DatabaseId) -> Self {
        Self {
            database,
            bytes: Vec::new(),
            open_rows_at: None,
            rows: 0,
            statements: 0,
            fences: 0,
            sequences: 0,
            elements: 0,
            spilled: None,
            touched: TouchedTables::default(),
            edition: Edition::default(),
            has_origin: false,
        }
    }

    /// The parts of the rows to come are told by this edition of the splits.
    pub fn set_edition(&mut self, edition: Edition) {
        self.edition = edition;
    }

    /// The database of its tables and sequences.
    pub fn database(&self) -> DatabaseId {
        self.database
    }

    /// Adds a row that came into being.
    pub fn push_insert(&mut self, table: TableId, new: &[u8]) -> Result<(), TooLarge> {
        self.push_change(RowChange { table, change: Change::Insert { new }, parts: RowParts::default() })
    }

    /// Adds a row that changed.
    pub fn push_update(&mut self, table: TableId, old: &[u8], new: &[u8]) -> Result<(), TooLarge> {
        self.push_change(RowChange { table, change: Change::Update { old, new }, parts: RowParts::default() })
    }

    /// Adds a row that went away.
    pub fn push_delete(&mut self, table: TableId, old: &[u8]) -> Result<(), TooLarge> {
        self.push_change(RowChange { table, change: Change::Delete { old }, parts: RowParts::default() })
    }

    /// Adds the emptying of a table; a TRUNCATE of several tables is one of these for each.
    pub fn push_truncate(&mut self, table: TableId) -> Result<(), TooLarge> {
        self.push_change(RowChange { table, change: Change::Truncate, parts: RowParts::default() })
    }

    /// Adds a row change, with the parts of the row if its table is split. The part of each row that it concerns is given, or none is.
    pub fn push_change(&mut self, row: RowChange<'_>) -> Result<(), TooLarge> {
        match row.change {
            Change::Insert { new } => self.push_row(op::INSERT, row, &[new]),
            Change::Update { old, new } => self.push_row(op::UPDATE, row, &[old, new]),
            Change::Delete { old } => self.push_row(op::DELETE, row, &[old]),
            Change::Truncate => self.push_row(op::TRUNCATE, row, &[]),
        }
    }

    /// Remembers this place, for a savepoint.
    pub fn mark(&self) -> Mark {
        Mark {
            elements: self.elements,
            spilled: self.spilled_elements(),
            len: self.bytes.len(),
            open_rows_at: self.open_rows_at,
            rows: self.rows,
            statements: self.statements,
            fences: self.fences,
            sequences: self.sequences,
            tables: self.touched.tables().len(),
        }
    }

    /// The same, for [`RecordBuilder::rows_since`].
    pub fn mark_whole(&mut self) -> Mark {
        self.close_rows();
        self.mark()
    }

    /// The row changes since a mark of [`RecordBuilder::mark_whole`]; `None` if they have left the memory.
    pub fn rows_since(&mut self, mark: Mark) -> Option<RowChanges<'_>> {
        let is_here = mark.spilled == self.spilled_elements() && mark.open_rows_at.is_none();
        self.close_rows();
        let items = self.bytes.get(mark.len.max(HEADER_BYTES)..).unwrap_or_default();
        is_here.then(|| RowChanges::new(Items::new(self.database, items)))
    }

    /// Drops what was added since `mark`, which must not lie before a place that was gone back to since.
    pub fn truncate_to(&mut self, mark: Mark) {
        (self.rows, self.statements) = (mark.rows, mark.statements);
        (self.fences, self.sequences) = (mark.fences, mark.sequences);
        if mark.spilled == self.spilled_elements() {
            assert!(mark.len <= self.bytes.len(), "a mark lies in what is still there");
            self.bytes.truncate(mark.len);
            self.open_rows_at = mark.open_rows_at;
            self.elements = mark.elements;
        } else if let Some(spilled) = &mut self.spilled {
            self.bytes.clear();
            self.open_rows_at = None;
            spilled.skip_from(mark.elements);
            self.elements = spilled.elements;
        }
        // The tables of what is in the file are not known apart; more of them than needed do no harm.
        if (self.touched.tables().len() != mark.tables || self.touched.are_in_parts())
            && self.spilled.is_none()
        {
            self.rebuild_tables();
        }
    }

    /// Drops the row changes of these spans of elements, which are in order and hold nothing that was dropped before.
    pub fn drop_rows(&mut self, spans: &[Span]) {
        self.close_rows();
        let in_file = self.spilled_elements();
        let spilled = spans.iter().filter(|span| span.from < in_file);
        let spilled = spilled.map(|span| Span { from: span.from, to: span.to.min(in_file) });
        self.rows -= spilled.clone().map(|span| span.to - span.from).sum::<u64>();
        if let Some(file) = &mut self.spilled {
            file.skip(spilled);
        }
        if spans.last().is_none_or(|span| span.to <= in_file) {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        let mut kept = Self::new(self.database);
        let items = Items::new(self.database, bytes.get(HEADER_BYTES..).unwrap_or_default());
        kept.push_all(Elements::new(items.clone(), in_file).filter(|(at, _)| !is_in(spans, *at)));
        self.rows -= Self::rows_of(items) - kept.rows;
        self.elements = in_file + kept.elements;
        self.open_rows_at = kept.open_rows_at;
        self.bytes = kept.bytes;
        if self.spilled.is_none() {
            self.rebuild_tables();
        }
    }

    /// Takes the items in memory out, to be appended to the transaction's file by the caller, who must do so before it
    /// hands the record on; `None` when there is nothing.
    pub fn spill(&mut self) -> Option<Chunk> {
        if self.len_bytes() == 0 {
            return None;
        }
        let bytes = self.take_closed();
        let spilled = self.spilled.get_or_insert_default();
        let elements = (self.elements - spilled.elements) as u32;
        let chunk = Chunk::seal(self.database, spilled.elements, elements, bytes);
        spilled.note(&chunk);
        Some(chunk)
    }

    /// The items in memory as a chunk of its own, which takes the place of others from `first` on.
    pub(super) fn into_chunk(mut self, first: u64) -> Chunk {
        Chunk::seal(self.database, first, self.elements as u32, self.take_closed())
    }

    /// The items in memory, with room for the head of a chunk in front.
    fn take_closed(&mut self) -> Vec<u8> {
        self.close_rows();
        self.reserve_header();
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.drain(..HEADER_BYTES - CHUNK_HEAD_BYTES);
        bytes
    }

    /// Adds elements that another builder has taken already.
    pub(super) fn push_all<'a>(&mut self, elements: impl Iterator<Item = (u64, Element<'a>)>) {
        for (_, element) in elements {
            let pushed = match element {
                Element::Row(row) => self.push_change(row),
                Element::Item(Item::Statement(statement)) => self.push_statement(&statement),
                Element::Item(Item::Shipped(shipped)) => self.push_shipped(&shipped),
                Element::Item(Item::Sequence(sequence)) => self.push_sequence(&sequence),
                Element::Item(Item::Fence) => self.push_fence(),
                Element::Item(Item::Origin(origin)) => self.push_origin(&origin),
                Element::Item(Item::Rows(_) | Item::Spilled(_)) => {
                    unreachable!("rows are elements one by one, and what is spilled is no element")
                }
            };
            pushed.expect("a part of what was taken before is not larger");
        }
    }

    fn rows_of(items: Items<'_>) -> u64 {
        RowChanges::new(items).count() as u64
    }

    fn spilled_elements(&self) -> u64 {
        self.spilled.as_ref().map_or(0, |spilled| spilled.elements)
    }

    /// Length of the items in memory, in the encoded form.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len().saturating_sub(HEADER_BYTES)
    }

    /// Length of the items in the file.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled.as_ref().map_or(0, |spilled| spilled.bytes)
    }

    /// The number of elements that were added, with those that were dropped after they had been spilled. The next one has this
    /// number.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// The number of row changes that were added.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether nothing was added that still counts.
    pub fn is_empty(&self) -> bool {
        self.len_bytes() == 0 && self.rows == 0 && self.statements + self.fences + self.sequences == 0
    }

    /// The tables of the rows, sorted.
    pub fn tables(&self) -> &[TableId] {
        self.touched.tables()
    }

    /// Whether there is a statement among the items.
    pub fn has_statement(&self) -> bool {
        self.statements > 0
    }

    /// Closes the body and computes its checksum: all that can be done before the version is known.
    #[must_use]
    pub fn seal(mut self) -> SealedBody {
        self.close_rows();
        self.reserve_header();
        let is_spilled = self.spilled.is_some();
        let has_parts = self.touched.are_in_parts() || self.has_origin;
        let format = match (has_parts, is_spilled) {
            (true, _) => FORMAT_PARTS,
            (false, true) => FORMAT_SPILLED,
            (false, false) => FORMAT,
        };
        self.put_spilled();
        self.touched.put_tail(&mut self.bytes, has_parts);
        let body = &self.bytes[HEADER_BYTES..];
        let everything = self.statements > 0 || self.fences > 0;
        SealedBody {
            database: self.database,
            format,
            body_bytes: u32::try_from(body.len()).expect("the limit of a body is below 4 GiB"),
            body_crc: crc32c::crc32c(body),
            table_count: self.touched.tables().len() as u32,
            rows: self.rows,
            flags: if everything { WRITES_EVERYTHING } else { 0 }
                | if is_spilled && has_parts { IS_SPILLED } else { 0 }
                | if self.has_origin { HAS_ORIGIN } else { 0 },
            edition: self.edition,
            untold: self.touched.into_untold(),
            sequences: self.sequences,
            bytes: self.bytes,
        }
    }

    /// Puts the item that stands for the file before all others.
    fn put_spilled(&mut self) {
        let Some(mut spilled) = self.spilled.take() else { return };
        let rest = self.bytes.split_off(HEADER_BYTES);
        spilled.rows = self.rows - Self::rows_of(Items::new(self.database, &rest));
        self.put_item_head(kind::SPILLED, (32 + 16 * spilled.skips.len()) as u32);
        self.put_u32(spilled.chunks);
        self.put_u32(spilled.crc);
        let spans = spilled.skips.iter().flat_map(|span| [span.from, span.to]);
        for number in [spilled.bytes, spilled.elements, spilled.rows].into_iter().chain(spans) {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.bytes.extend_from_slice(&rest);
    }

    /// The finished record, where the version is known already.
    #[must_use]
    pub fn finish(self, header: Header) -> Record {
        self.seal().finish(header)
    }

    fn push_row(&mut self, op: u8, row: RowChange<'_>, images: &[&[u8]]) -> Result<(), TooLarge> {
        let (table, parts) = (row.table, row.parts);
        assert_eq!(table.database, self.database, "a transaction runs in one database");
        let known = parts.iter().count();
        assert!(known == 0 || known == images.len(), "all parts of a change are known, or none");
        let need = ITEM_HEAD_BYTES + 7 + images.iter().map(|image| 4 + image.len()).sum::<usize>();
        self.claim_room(need + TAIL_ENTRY_BYTES)?;
        if self.open_rows_at.is_none() {
            self.open_rows_at = Some(self.bytes.len());
            self.put_item_head(kind::ROWS, 0);
        }
        self.bytes.push(if known > 0 { op | op::IN_PARTS } else { op });
        self.put_u32(table.number);
        self.bytes.extend(parts.iter().map(|part| part.0));
        for image in images {
            self.put_sized(image);
        }
        self.rows += 1;
        self.elements += 1;
        self.touched.note(&row);
        Ok(())
    }

    /// `need_bytes` counts the item's head.
    fn start_item(&mut self, kind: u8, need_bytes: usize) -> Result<(), TooLarge> {
        self.claim_room(need_bytes)?;
        self.close_rows();
        self.put_item_head(kind, (need_bytes - ITEM_HEAD_BYTES) as u32);
        Ok(())
    }

    /// Checks the limit, the list of tables at the end included.
    fn claim_room(&mut self, need_bytes: usize) -> Result<(), TooLarge> {
        if self.len_bytes() + self.touched.tables().len() * TAIL_ENTRY_BYTES + need_bytes > BODY_LIMIT_BYTES {
            return Err(TooLarge);
        }
        self.reserve_header();
        Ok(())
    }

    fn reserve_header(&mut self) {
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER_BYTES, 0);
        }
    }

    fn close_rows(&mut self) {
        if let Some(at) = self.open_rows_at.take() {
            let len = (self.bytes.len() - at - ITEM_HEAD_BYTES) as u32;
            put(&mut self.bytes, at + 1, &len.to_le_bytes());
        }
    }

    fn rebuild_tables(&mut self) {
        self.touched.clear();
        // The walk needs the length of the item that is still open; it is written again when the item is closed.
        let open_rows_at = self.open_rows_at;
        self.close_rows();
        self.open_rows_at = open_rows_at;
        let bytes = std::mem::take(&mut self.bytes);
        let items = Items::new(self.database, bytes.get(HEADER_BYTES..).unwrap_or_default());
        RowChanges::new(items).for_each(|row| self.touched.note(&row));
        self.bytes = bytes;
    }

    fn put_item_head(&mut self, kind: u8, len: u32) {
        self.bytes.push(kind);
        self.put_u32(len);
    }

    fn put_sized(&mut self, bytes: &[u8]) {
        self.put_u32(bytes.len() as u32);
        self.bytes.extend_from_slice(bytes);
    }

    fn put_u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }
}
