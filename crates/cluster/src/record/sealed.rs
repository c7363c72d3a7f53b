//! A record's body between the building and the log: everything is known but the version.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    ClusterId, DatabaseId, DecodeError, Envelope, FORMAT_PARTS, FORMAT_SPILLED, HEADER_BYTES, Header,
    IS_SPILLED, Identity, Item, Items, Record, RowChanges, Sequence, ServiceId, TableId, Tail, Version,
    WRITES_EVERYTHING, put, u32_at,
};
use crate::placement::{Changed, Edition};

/// A body that is complete and waits for its version. One that comes over a link is checked like a record that is read from a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Received")]
pub struct SealedBody {
    pub(super) database: DatabaseId,
    pub(super) bytes: Vec<u8>,
    pub(super) format: u16,
    pub(super) body_bytes: u32,
    pub(super) body_crc: u32,
    pub(super) table_count: u32,
    pub(super) rows: u64,
    pub(super) flags: u32,
    pub(super) sequences: u32,
    pub(super) edition: Edition,
    pub(super) untold: BTreeSet<TableId>,
}

/// A body as it came over a link, before its check.
#[derive(Deserialize)]
struct Received {
    database: DatabaseId,
    bytes: Vec<u8>,
    format: u16,
    body_bytes: u32,
    body_crc: u32,
    table_count: u32,
    rows: u64,
    flags: u32,
    sequences: u32,
    edition: Edition,
    untold: BTreeSet<TableId>,
}

impl TryFrom<Received> for SealedBody {
    type Error = DecodeError;

    fn try_from(received: Received) -> Result<Self, DecodeError> {
        let Received { database, bytes, format, body_bytes, body_crc, table_count, rows, .. } = received;
        let Received { flags, sequences, edition, untold, .. } = received;
        let version = Version::ZERO.next();
        let (cluster, identity, service) = (ClusterId::default(), Identity::default(), ServiceId::default());
        let header = Header { cluster, identity, first: version, last: version, database, service };
        let envelope = Envelope { header, format, body_bytes, body_crc, table_count, rows, flags };
        let have_bytes = bytes.len();
        let mut checked = bytes;
        let head = checked.get_mut(..HEADER_BYTES);
        head.ok_or(DecodeError::Truncated { needed_bytes: HEADER_BYTES, have_bytes })?
            .copy_from_slice(&envelope.encode());
        let mut bytes = Record::decode(checked)?.bytes;
        bytes[..HEADER_BYTES].fill(0);
        Ok(Self {
            database,
            bytes,
            format,
            body_bytes,
            body_crc,
            table_count,
            rows,
            flags,
            sequences,
            edition,
            untold,
        })
    }
}

impl SealedBody {
    /// Writes the header; this is quick enough to be done under the lock that hands out versions.
    #[must_use]
    pub fn finish(mut self, header: Header) -> Record {
        assert!(
            header.first > Version::ZERO && header.first <= header.last,
            "a record covers at least one version, and they are counted from 1"
        );
        assert_eq!(header.database, self.database, "the header names the database of the rows");
        let envelope = Envelope {
            header,
            format: self.format,
            body_bytes: self.body_bytes,
            body_crc: self.body_crc,
            table_count: self.table_count,
            rows: self.rows,
            flags: self.flags,
        };
        put(&mut self.bytes, 0, &envelope.encode());
        debug_assert_eq!(u32_at(&self.bytes, 16), self.body_bytes);
        Record { envelope, bytes: self.bytes }
    }

    /// The database that its tables are in.
    pub fn database(&self) -> DatabaseId {
        self.database
    }

    /// Whether some of its items stand in a file of their own.
    pub fn is_spilled(&self) -> bool {
        self.format == FORMAT_SPILLED || self.flags & IS_SPILLED != 0
    }

    /// Bytes of the whole record.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The tables that it writes rows of, sorted.
    pub fn tables(&self) -> impl ExactSizeIterator<Item = TableId> + '_ {
        self.tail().tables(&self.bytes, self.database)
    }

    /// The same with their parts.
    pub fn changes(&self) -> impl Iterator<Item = Changed> + '_ {
        self.tail().changes(&self.bytes, self.database)
    }

    /// The edition of the splits by which the parts of its rows are told.
    pub fn edition(&self) -> Edition {
        self.edition
    }

    /// The tables with rows whose parts are not told.
    pub fn untold(&self) -> &BTreeSet<TableId> {
        &self.untold
    }

    fn tail(&self) -> Tail {
        Tail { tables: self.table_count as usize, has_parts: self.format == FORMAT_PARTS }
    }

    fn items_bytes(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..self.bytes.len() - self.tail().len_bytes()]
    }

    /// The row changes in it, in order; those in a file come before.
    pub fn row_changes(&self) -> RowChanges<'_> {
        RowChanges::new(Items::new(self.database, self.items_bytes()))
    }

    /// Whether it may write more than the rows of its tables say: it has a statement or a fence.
    pub fn writes_everything(&self) -> bool {
        self.flags & WRITES_EVERYTHING != 0
    }

    /// The sequences that it moves: every replica needs these, whatever tables it holds.
    pub fn sequences(&self) -> impl Iterator<Item = Sequence> + '_ {
        let all = if self.sequences > 0 { self.items_bytes() } else { &[] };
        Items::new(self.database, all).filter_map(|item| match item {
            Item::Sequence(sequence) => Some(sequence),
            _ => None,
        })
    }

    /// Whether there are such.
    pub fn moves_sequences(&self) -> bool {
        self.sequences > 0
    }

    /// Length that the record will have, header included.
    pub fn record_bytes(&self) -> usize {
        self.bytes.len()
    }
}
