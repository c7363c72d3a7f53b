//! Items that do not fit into memory: chunks in a file of their own, for which an item of the record stands.
//!
//! A transaction's items are numbered as they come: each row change is one *element*, each other item is one. When too
//! much waits in memory, all of it leaves as a [`Chunk`], which is appended to a file; what comes later is numbered on.
//! At the end the record begins with a [`Spilled`] item that stands for everything in the file, so the order of all
//! items is that of the file followed by that of the body. What a savepoint or an exception block has undone cannot be
//! cut out of a file; it is named by ranges of elements to be skipped.
//!
//! Invariant: a chunk is whole by itself (its items are closed), so a reader needs to hold one at a time. Each has a
//! checksum, and the record has one over these, so a file that was exchanged, cut or damaged is noticed.
//!
//! Not here: the file.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::read::{self, Elements, Items, RowChanges};
use super::{DatabaseId, DecodeError, RecordBuilder, TableId, put, u32_at, u64_at};

/// Length of what stands before the items of a chunk.
pub const CHUNK_HEAD_BYTES: usize = 24;

const MAGIC: u32 = u32::from_le_bytes(*b"1cpC");

/// Elements from `from` on, up to `to` exclusively.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span {
    /// The first.
    pub from: u64,
    /// The one after the last.
    pub to: u64,
}

/// The item of a record that stands for the items in a file, which come before those in its body.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spilled {
    /// The number of chunks.
    pub chunks: u32,
    /// Their length, heads included.
    pub bytes: u64,
    /// The number of their elements, with skipped ones.
    pub elements: u64,
    /// The number of their row changes, without skipped ones.
    pub rows: u64,
    /// Over the checksums of the chunks, in order.
    pub crc: u32,
    /// The elements that were undone: in order, apart from each other.
    pub skips: Vec<Span>,
}

impl Spilled {
    pub(super) fn note(&mut self, chunk: &Chunk) {
        self.chunks += 1;
        self.bytes += chunk.bytes.len() as u64;
        self.elements += u64::from(chunk.elements);
        self.crc = crc32c::crc32c_append(self.crc, &chunk.crc().to_le_bytes());
    }

    /// Skips everything from an element on.
    pub(super) fn skip_from(&mut self, from: u64) {
        if from < self.elements {
            self.skips.retain(|span| span.from < from);
            self.skips.push(Span { from, to: self.elements });
            self.join_skips();
        }
    }

    /// Skips these, too.
    pub(super) fn skip(&mut self, spans: impl Iterator<Item = Span>) {
        self.skips.extend(spans);
        self.skips.sort_unstable();
        self.join_skips();
    }

    fn join_skips(&mut self) {
        self.skips.dedup_by(|next, before| {
            let touches = next.from <= before.to;
            if touches {
                before.to = before.to.max(next.to);
            }
            touches
        });
    }

    pub(super) fn is_sound(&self) -> bool {
        let ordered = self.skips.windows(2).all(|pair| pair[0].to < pair[1].from);
        let inside = self.skips.last().is_none_or(|last| last.to <= self.elements);
        ordered && inside && self.skips.iter().all(|span| span.from < span.to) && self.rows <= self.elements
    }
}

/// Items that left memory together: what is appended to the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Chunk {
    database: DatabaseId,
    first: u64,
    elements: u32,
    /// Head and items.
    bytes: Vec<u8>,
}

impl Chunk {
    /// Puts the head into the first bytes, which must be [`CHUNK_HEAD_BYTES`] of room before closed items.
    pub(super) fn seal(database: DatabaseId, first: u64, elements: u32, mut bytes: Vec<u8>) -> Self {
        let items_bytes = (bytes.len() - CHUNK_HEAD_BYTES) as u32;
        put(&mut bytes, 0, &MAGIC.to_le_bytes());
        put(&mut bytes, 8, &items_bytes.to_le_bytes());
        put(&mut bytes, 12, &elements.to_le_bytes());
        put(&mut bytes, 16, &first.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[8..]);
        put(&mut bytes, 4, &crc.to_le_bytes());
        Self { database, first, elements, bytes }
    }

    /// The length of a chunk that begins with these bytes.
    pub fn length_bytes(head: &[u8; CHUNK_HEAD_BYTES]) -> Result<usize, DecodeError> {
        if u32_at(head, 0) == MAGIC {
            Ok(CHUNK_HEAD_BYTES + u32_at(head, 8) as usize)
        } else {
            Err(DecodeError::BadMagic)
        }
    }

    /// Takes over the bytes of exactly one chunk of a record of this database; `tables` are those that it may name.
    pub fn decode(database: DatabaseId, bytes: Vec<u8>, tables: &[TableId]) -> Result<Self, DecodeError> {
        let Some(head) = bytes.first_chunk::<CHUNK_HEAD_BYTES>() else {
            return Err(DecodeError::Truncated { needed_bytes: CHUNK_HEAD_BYTES, have_bytes: bytes.len() });
        };
        let needed_bytes = Self::length_bytes(head)?;
        if bytes.len() < needed_bytes {
            return Err(DecodeError::Truncated { needed_bytes, have_bytes: bytes.len() });
        }
        if bytes.len() > needed_bytes {
            return Err(DecodeError::TrailingBytes { extra_bytes: bytes.len() - needed_bytes });
        }
        if crc32c::crc32c(&bytes[8..]) != u32_at(head, 4) {
            return Err(DecodeError::BadBodyChecksum);
        }
        let (elements, first) = (u32_at(head, 12), u64_at(head, 16));
        let items = Items::new(database, &bytes[CHUNK_HEAD_BYTES..]);
        read::check_chunk_shape(items, elements, tables)?;
        Ok(Self { database, first, elements, bytes })
    }

    /// As it stands in the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its items in order, skipped elements included.
    pub fn items(&self) -> Items<'_> {
        Items::new(self.database, &self.bytes[CHUNK_HEAD_BYTES..])
    }

    /// Its row changes in order, skipped ones included.
    pub fn row_changes(&self) -> RowChanges<'_> {
        RowChanges::new(self.items())
    }

    /// Its items without the elements of these spans, which are in order.
    #[must_use]
    pub fn without(self, skips: &[Span]) -> Self {
        let end = self.first + u64::from(self.elements);
        let after = skips.partition_point(|span| span.to <= self.first);
        if skips.get(after).is_none_or(|span| span.from >= end) {
            return self;
        }
        let mut kept = RecordBuilder::new(self.database);
        kept.push_all(Elements::new(self.items(), self.first).filter(|(at, _)| !is_in(skips, *at)));
        kept.into_chunk(self.first)
    }

    fn crc(&self) -> u32 {
        u32_at(&self.bytes, 4)
    }
}

/// Whether an element lies in one of these spans, which are in order.
pub(super) fn is_in(spans: &[Span], element: u64) -> bool {
    let after = spans.partition_point(|span| span.to <= element);
    spans.get(after).is_some_and(|span| span.from <= element)
}

/// Follows the chunks of a file as they are read, and knows whether they are all, and the right ones.
#[derive(Clone, Debug)]
pub struct ChunkCheck {
    expected: Spilled,
    seen: Spilled,
}

impl ChunkCheck {
    /// For the file of which a record says this.
    pub fn new(expected: Spilled) -> Self {
        Self { expected, seen: Spilled::default() }
    }

    /// Whether all chunks were seen.
    pub fn is_complete(&self) -> bool {
        self.seen.chunks == self.expected.chunks
    }

    /// The elements to be skipped, by the record.
    pub fn skips(&self) -> &[Span] {
        &self.expected.skips
    }

    /// The number of bytes that were seen.
    pub fn bytes(&self) -> u64 {
        self.seen.bytes
    }

    /// The next chunk; the last one settles whether all were the right ones.
    pub fn note(&mut self, chunk: &Chunk) -> Result<(), DecodeError> {
        if chunk.first != self.seen.elements || self.is_complete() {
            return Err(DecodeError::BadHeader);
        }
        self.seen.note(chunk);
        let expected = &self.expected;
        let same = self.seen.bytes == expected.bytes
            && self.seen.elements == expected.elements
            && self.seen.crc == expected.crc;
        if self.is_complete() && !same { Err(DecodeError::BadBodyChecksum) } else { Ok(()) }
    }
}
