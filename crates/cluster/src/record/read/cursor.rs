//! Takes the parts of a body off its front: numbers, texts, items, row changes.
//!
//! Example: an item is its kind, a length, and so many bytes; a cursor over these takes the item apart.
//!
//! Invariant: nothing is taken from beyond the end. Where the bytes do not hold what is asked for, the answer is `None`.

use super::{Change, Item, RowChange, Rows, Sequence, Statement, kind, op};
use crate::claims::{Claimed, Claims, ColumnSet};
use crate::ids::{DatabaseId, PartId, ReplicaId};
use crate::placement::{PARTS_MAX, ReplicaSet};
use crate::record::row_parts::RowParts;
use crate::record::{Origin, Shipped, Span, Spilled, origin};

/// Takes values off the front; None where the bytes do not hold them.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    /// The database of the tables and sequences, which are written as numbers alone.
    pub(super) database: DatabaseId,
    bytes: &'a [u8],
    pub(super) offset: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(database: DatabaseId, bytes: &'a [u8]) -> Self {
        Self { database, bytes, offset: 0 }
    }

    pub(super) fn at_end(&self) -> bool {
        self.offset == self.bytes.len()
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.offset.checked_add(len)?;
        let taken = self.bytes.get(self.offset..end)?;
        self.offset = end;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.first_chunk().copied()
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn sized(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    fn text(&mut self) -> Option<String> {
        let text = std::str::from_utf8(self.sized()?).ok()?;
        Some(text.to_owned())
    }

    pub(super) fn item_parts(&mut self) -> Option<(u8, &'a [u8])> {
        let kind = self.byte()?;
        Some((kind, self.sized()?))
    }

    pub(super) fn item(&mut self) -> Option<Item<'a>> {
        let (kind, payload) = self.item_parts()?;
        let mut inner = Cursor::new(self.database, payload);
        let item = match kind {
            kind::ROWS => return Some(Item::Rows(Rows { database: self.database, bytes: payload })),
            kind::STATEMENT => Item::Statement(inner.statement()?),
            kind::SEQUENCE => Item::Sequence(inner.sequence()?),
            kind::FENCE => Item::Fence,
            kind::SPILLED => Item::Spilled(inner.spilled()?),
            kind::SHIPPED => Item::Shipped(inner.shipped()?),
            kind::ORIGIN => Item::Origin(inner.origin()?),
            _ => return None,
        };
        inner.at_end().then_some(item)
    }

    fn statement(&mut self) -> Option<Statement> {
        let text = self.text()?;
        let role = self.text()?;
        let search_path = self.text()?;
        let count = self.u32()?;
        let settings = (0..count).map(|_| Some((self.text()?, self.text()?))).collect::<Option<_>>()?;
        Some(Statement { text, role, search_path, settings })
    }

    fn shipped(&mut self) -> Option<Shipped> {
        Some(Shipped {
            role: self.text()?,
            settings: self.text()?,
            text: self.sized()?.to_vec(),
            is_extended: self.flag()?,
            types: self.sized()?.to_vec(),
            values: self.sized()?.to_vec(),
            holders: if self.at_end() { None } else { Some(ReplicaSet::from_bits(self.u64()?)) },
        })
    }

    fn sequence(&mut self) -> Option<Sequence> {
        Some(Sequence {
            id: self.database.sequence(self.u32()?),
            holder: ReplicaId(self.array().map(u16::from_le_bytes)?),
            generation: self.array().map(u64::from_le_bytes)?,
            value: self.array().map(i64::from_le_bytes)?,
            called: self.flag()?,
            descends: self.flag()?,
        })
    }

    fn spilled(&mut self) -> Option<Spilled> {
        let mut spilled = Spilled {
            chunks: self.u32()?,
            crc: self.u32()?,
            bytes: self.u64()?,
            elements: self.u64()?,
            rows: self.u64()?,
            skips: Vec::new(),
        };
        while !self.at_end() {
            spilled.skips.push(Span { from: self.u64()?, to: self.u64()? });
        }
        spilled.is_sound().then_some(spilled)
    }

    fn origin(&mut self) -> Option<Origin> {
        let home = ReplicaId(self.array().map(u16::from_le_bytes)?);
        let claims = self.list(Self::claimed)?;
        let changed = self.list(|cursor| {
            let table = cursor.database.table(cursor.u32()?);
            Some((table, ColumnSet::from_bits(cursor.u64()?)))
        })?;
        Some(Origin { home, claims, changed })
    }

    fn claimed(&mut self) -> Option<Claimed> {
        let (turn, flags) = (self.u32()?, self.byte()?);
        let row = |cursor: &mut Self| Some((cursor.database.table(cursor.u32()?), cursor.u64()?));
        let claims = Claims {
            rows: self.list(row)?,
            shared: self.list(row)?,
            groups: self.list(row)?,
            tables: self.list(|cursor| Some(cursor.database.table(cursor.u32()?)))?,
            everything: flags & origin::EVERYTHING != 0,
        };
        let is_held = flags & origin::IS_HELD != 0;
        (flags <= origin::EVERYTHING + origin::IS_HELD).then_some(Claimed { turn, is_held, claims })
    }

    /// A number, and so many values.
    fn list<T>(&mut self, mut value: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        // The number is believed as far as there are bytes: each value takes some.
        (0..self.u32()?).map(|_| value(self)).collect()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(super) fn row_change(&mut self) -> Option<RowChange<'a>> {
        let code = self.byte()?;
        let table = self.database.table(self.u32()?);
        let op = code & !op::IN_PARTS;
        let is_in_parts = op != code;
        let mut part = |is_there: bool| {
            if !is_in_parts || !is_there {
                return Some(None);
            }
            self.byte().filter(|part| *part < PARTS_MAX).map(|part| Some(PartId(part)))
        };
        let parts = RowParts { old: part(op != op::INSERT)?, new: part(op != op::DELETE)? };
        let change = match op {
            op::INSERT => Change::Insert { new: self.sized()? },
            op::UPDATE => Change::Update { old: self.sized()?, new: self.sized()? },
            op::DELETE => Change::Delete { old: self.sized()? },
            op::TRUNCATE if !is_in_parts => Change::Truncate,
            _ => return None,
        };
        Some(RowChange { table, change, parts })
    }
}
