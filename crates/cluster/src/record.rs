//! Records: what one update transaction leaves in the log.
//!
//! A record is a header of fixed size and a body. The body is an ordered list of items (row changes, statements,
//! sequence values, fences), because a migration mixes DDL and DML and the order between them matters; after the items
//! stands the sorted list of the tables that the rows touch, if need be with their parts ([`tail`]). Everything is little endian. The header has a checksum
//! of its own, which covers the length and the checksum of the body: so a damaged length is never followed, and the
//! body can be sealed (its checksum computed) before the version is known, outside of any lock.
//!
//! A record is encoded once: the builder leaves room for the header in front, rows are appended as they are captured,
//! and the very same bytes go to the log and to the other replicas.
//!
//! Invariant: the body of a [`Record`] is well formed. It was made by a [`RecordBuilder`], or it was walked to its end
//! by [`Record::decode`]. Row images inside are opaque here; [`Image`] checks them when they are read.
//!
//! Not here: where records are stored, and how they are applied.

mod build;
mod image;
mod origin;
mod read;
mod row_parts;
mod sealed;
mod shipped;
mod spill;
mod tail;
#[cfg(test)]
mod tests;
mod touched;

use std::fmt;

use crate::ids::{ClusterId, DatabaseId, Epoch, Identity, Nonce, ReplicaId, ServiceId, TableId, Version};
use crate::placement::{Changed, Writes};

use tail::Tail;

pub use build::{Mark, RecordBuilder, TooLarge};
pub use image::{Column, Columns, Image, ImageError, Values};
pub use origin::Origin;
pub use read::{Change, Item, Items, KEEPS_LENT, NUMBERS, RowChange, RowChanges, Rows, Sequence, Statement};
pub use row_parts::RowParts;
pub use sealed::SealedBody;
pub use shipped::Shipped;
pub use spill::{CHUNK_HEAD_BYTES, Chunk, ChunkCheck, Span, Spilled};

/// Size of the encoded header.
pub const HEADER_BYTES: usize = 96;
/// The largest body that a record can have.
pub const BODY_LIMIT_BYTES: usize = 1 << 30;
/// The format of a record that is whole by itself.
pub const FORMAT: u16 = 1;
/// The format of a record that begins with a [`Spilled`] item; else the same.
pub const FORMAT_SPILLED: u16 = 2;
/// The format of a record with rows of tables that are split by a value, or with its [`Origin`]: the parts of rows and tables are told. So
/// a log in which no table is split can still be read by releases that do not know this format.
pub const FORMAT_PARTS: u16 = 3;

const MAGIC: u32 = u32::from_le_bytes(*b"1cpR");
/// A header of another format may be longer; anything beyond this is damage.
const HEADER_LIMIT_BYTES: usize = 512;
/// The bit in the flags that says: not bounded by the list of tables.
const WRITES_EVERYTHING: u32 = 1;
/// The bit in the flags that says, in [`FORMAT_PARTS`]: it begins with a [`Spilled`] item.
const IS_SPILLED: u32 = 2;
/// The bit in the flags that says, in [`FORMAT_PARTS`]: it has an [`Origin`].
const HAS_ORIGIN: u32 = 4;
/// All bits that [`FORMAT_PARTS`] knows.
const FLAGS_OF_PARTS: u32 = WRITES_EVERYTHING | IS_SPILLED | HAS_ORIGIN;

/// The facts of a record that the log and the replicas need without opening it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The cluster it belongs to.
    pub cluster: ClusterId,
    /// The transaction that it is the trace of.
    pub identity: Identity,
    /// The first version it covers.
    pub first: Version,
    /// The last version it covers; the same as `first` for the record of a single transaction.
    pub last: Version,
    /// The database its tables are in.
    pub database: DatabaseId,
    /// The service its tables belong to.
    pub service: ServiceId,
}

/// A decoded header with length and checksum of the body: all that a scan of a log needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The header proper.
    pub header: Header,
    format: u16,
    body_bytes: u32,
    body_crc: u32,
    table_count: u32,
    rows: u64,
    flags: u32,
}

impl Envelope {
    /// Reads a header from the start of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let truncated = DecodeError::Truncated { needed_bytes: HEADER_BYTES, have_bytes: bytes.len() };
        let Some(fixed) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(truncated);
        };
        if u32_at(fixed, 0) != MAGIC {
            return Err(DecodeError::BadMagic);
        }
        // Another format may have a longer header; that it is one is believed only when its checksum holds.
        let header_bytes = usize::from(u16_at(fixed, 6));
        if !(HEADER_BYTES..=HEADER_LIMIT_BYTES).contains(&header_bytes) {
            return Err(DecodeError::BadHeaderChecksum);
        }
        let Some(whole) = bytes.get(..header_bytes) else {
            return Err(DecodeError::Truncated { needed_bytes: header_bytes, have_bytes: bytes.len() });
        };
        if header_crc(whole) != u32_at(fixed, 8) {
            return Err(DecodeError::BadHeaderChecksum);
        }
        let format = u16_at(fixed, 4);
        if !matches!(format, FORMAT | FORMAT_SPILLED | FORMAT_PARTS) || header_bytes != HEADER_BYTES {
            return Err(DecodeError::UnknownFormat { format });
        }
        Self::from_checked(fixed)
    }

    fn from_checked(fixed: &[u8; HEADER_BYTES]) -> Result<Self, DecodeError> {
        let envelope = Self {
            format: u16_at(fixed, 4),
            body_crc: u32_at(fixed, 12),
            body_bytes: u32_at(fixed, 16),
            table_count: u32_at(fixed, 20),
            rows: u64_at(fixed, 24),
            flags: u32_at(fixed, 92),
            header: Header {
                cluster: ClusterId(u128_at(fixed, 32)),
                first: Version(u64_at(fixed, 48)),
                last: Version(u64_at(fixed, 56)),
                identity: Identity {
                    n: u64_at(fixed, 64),
                    nonce: Nonce(u64_at(fixed, 72)),
                    epoch: Epoch(u32_at(fixed, 80)),
                },
                database: DatabaseId(u32_at(fixed, 84)),
                service: ServiceId(u32_at(fixed, 88)),
            },
        };
        if envelope.body_bytes() > BODY_LIMIT_BYTES {
            return Err(DecodeError::BodyTooLarge { bytes: envelope.body_bytes() });
        }
        let versions_in_order = envelope.header.first > Version::ZERO
            && envelope.header.first <= envelope.header.last
            && envelope.header.last.0 < u64::MAX;
        let tables_fit = envelope.tail().len_bytes() <= envelope.body_bytes();
        let known = if envelope.format == FORMAT_PARTS { FLAGS_OF_PARTS } else { WRITES_EVERYTHING };
        if !versions_in_order || !tables_fit || envelope.flags & !known != 0 {
            return Err(DecodeError::BadHeader);
        }
        Ok(envelope)
    }

    fn encode(&self) -> [u8; HEADER_BYTES] {
        let header = &self.header;
        let mut out = [0; HEADER_BYTES];
        put(&mut out, 0, &MAGIC.to_le_bytes());
        put(&mut out, 4, &self.format.to_le_bytes());
        put(&mut out, 6, &(HEADER_BYTES as u16).to_le_bytes());
        put(&mut out, 12, &self.body_crc.to_le_bytes());
        put(&mut out, 16, &self.body_bytes.to_le_bytes());
        put(&mut out, 20, &self.table_count.to_le_bytes());
        put(&mut out, 24, &self.rows.to_le_bytes());
        put(&mut out, 32, &header.cluster.0.to_le_bytes());
        put(&mut out, 48, &header.first.0.to_le_bytes());
        put(&mut out, 56, &header.last.0.to_le_bytes());
        put(&mut out, 64, &header.identity.n.to_le_bytes());
        put(&mut out, 72, &header.identity.nonce.0.to_le_bytes());
        put(&mut out, 80, &header.identity.epoch.0.to_le_bytes());
        put(&mut out, 84, &header.database.0.to_le_bytes());
        put(&mut out, 88, &header.service.0.to_le_bytes());
        put(&mut out, 92, &self.flags.to_le_bytes());
        let crc = header_crc(&out);
        put(&mut out, 8, &crc.to_le_bytes());
        out
    }

    /// Whether some of its items stand in a file of their own.
    pub fn is_spilled(&self) -> bool {
        self.format == FORMAT_SPILLED || self.flags & IS_SPILLED != 0
    }

    fn tail(&self) -> Tail {
        Tail { tables: self.table_count as usize, has_parts: self.format == FORMAT_PARTS }
    }

    /// Length of the body, which follows the header.
    pub fn body_bytes(&self) -> usize {
        self.body_bytes as usize
    }

    /// Length of header and body together.
    pub fn record_bytes(&self) -> usize {
        HEADER_BYTES + self.body_bytes()
    }

    /// Whether `body` is, bit for bit, what was written.
    pub fn check_body(&self, body: &[u8]) -> Result<(), DecodeError> {
        if body.len() == self.body_bytes() && crc32c::crc32c(body) == self.body_crc {
            Ok(())
        } else {
            Err(DecodeError::BadBodyChecksum)
        }
    }
}

/// One encoded record, immutable; shared as `Arc<Record>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    envelope: Envelope,
    /// Header and body.
    bytes: Vec<u8>,
}

impl Record {
    /// Takes over the bytes of exactly one record.
    pub fn decode(bytes: Vec<u8>) -> Result<Self, DecodeError> {
        let envelope = Envelope::decode(&bytes)?;
        let wanted = envelope.record_bytes();
        if bytes.len() < wanted {
            return Err(DecodeError::Truncated { needed_bytes: wanted, have_bytes: bytes.len() });
        }
        if bytes.len() > wanted {
            return Err(DecodeError::TrailingBytes { extra_bytes: bytes.len() - wanted });
        }
        envelope.check_body(&bytes[HEADER_BYTES..])?;
        let record = Self { envelope, bytes };
        read::check_body_shape(&record)?;
        Ok(record)
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.envelope.header
    }

    /// Header and body as they stand in the log and on the wire.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of its row changes. A TRUNCATE of one table counts as one.
    pub fn rows(&self) -> u64 {
        self.envelope.rows
    }

    /// The tables that its row changes touch, in order.
    pub fn tables(&self) -> impl ExactSizeIterator<Item = TableId> + '_ {
        self.envelope.tail().tables(&self.bytes, self.header().database)
    }

    /// Whether it may change more than its tables: it holds a statement or a fence.
    pub fn writes_everything(&self) -> bool {
        self.envelope.flags & WRITES_EVERYTHING != 0
    }

    /// Whether it may change the schema: it holds a statement, or may hold one in a file.
    pub fn may_change_schema(&self) -> bool {
        let may_be_one = |item| matches!(item, Item::Statement(_) | Item::Shipped(_) | Item::Spilled(_));
        self.writes_everything() && self.items().any(may_be_one)
    }

    /// Its items in order.
    pub fn items(&self) -> Items<'_> {
        Items::new(self.header().database, self.items_bytes())
    }

    /// Whether some of its items stand in a file of their own.
    pub fn is_spilled(&self) -> bool {
        self.envelope.is_spilled()
    }

    /// The items in a file, which come before the others.
    pub fn spilled(&self) -> Option<Spilled> {
        if !self.is_spilled() {
            return None;
        }
        self.items().find_map(|item| match item {
            Item::Spilled(spilled) => Some(spilled),
            _ => None,
        })
    }

    /// Where its transaction ran and what it claimed, if that was told.
    pub fn origin(&self) -> Option<Origin> {
        if self.envelope.flags & HAS_ORIGIN == 0 {
            return None;
        }
        self.items().find_map(|item| match item {
            Item::Origin(origin) => Some(origin),
            _ => None,
        })
    }

    /// The row changes in its body in order, whatever stands between them; those in a file come before.
    pub fn row_changes(&self) -> RowChanges<'_> {
        RowChanges::new(self.items())
    }

    /// Its marks of sequences.
    pub fn sequences(&self) -> impl Iterator<Item = Sequence> + '_ {
        self.items().filter_map(|item| match item {
            Item::Sequence(sequence) => Some(sequence),
            _ => None,
        })
    }

    fn items_bytes(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..self.bytes.len() - self.envelope.tail().len_bytes()]
    }
}

impl Writes for Record {
    fn is_for_all(&self) -> bool {
        self.writes_everything() || self.sequences().next().is_some()
    }

    fn changes(&self) -> impl Iterator<Item = Changed> {
        self.envelope.tail().changes(&self.bytes, self.header().database)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("header", self.header())
            .field("items", &self.items().collect::<Vec<_>>())
            .finish()
    }
}

/// Why bytes are not a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// They end too early.
    Truncated {
        /// The number of bytes of a whole one.
        needed_bytes: usize,
        /// The number of bytes that there are.
        have_bytes: usize,
    },
    /// They do not begin as a record does.
    BadMagic,
    /// The header was changed since it was written.
    BadHeaderChecksum,
    /// The body was changed since it was written.
    BadBodyChecksum,
    /// An unknown version of Onecopy wrote it.
    UnknownFormat {
        /// The format it names.
        format: u16,
    },
    /// It names a body above [`BODY_LIMIT_BYTES`].
    BodyTooLarge {
        /// The length it names.
        bytes: usize,
    },
    /// The header is whole, and says what cannot be.
    BadHeader,
    /// The body is whole, and not a list of items.
    BadBody {
        /// The place in the body where the reader stopped.
        offset: usize,
    },
    /// More bytes than the record takes.
    TrailingBytes {
        /// The number of bytes too many.
        extra_bytes: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed_bytes, have_bytes } => {
                write!(f, "record cut short: {have_bytes} of {needed_bytes} bytes")
            }
            Self::BadMagic => f.write_str("not a record"),
            Self::BadHeaderChecksum => f.write_str("checksum of the record's header does not match"),
            Self::BadBodyChecksum => f.write_str("checksum of the record's body does not match"),
            Self::UnknownFormat { format } => {
                write!(f, "record of format {format}, this program knows formats up to {FORMAT_PARTS}")
            }
            Self::BodyTooLarge { bytes } => {
                write!(f, "record body of {bytes} bytes, the limit is {BODY_LIMIT_BYTES}")
            }
            Self::BadHeader => f.write_str("record header contradicts itself"),
            Self::BadBody { offset } => write!(f, "record body is malformed at byte {offset}"),
            Self::TrailingBytes { extra_bytes } => {
                write!(f, "{extra_bytes} bytes too many after the record")
            }
        }
    }
}

impl std::error::Error for DecodeError {}

/// Over the whole header except the place of the checksum itself.
fn header_crc(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..8]), &header[12..])
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

/// `at..at + N` must lie inside, as all callers have checked.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(array_at(bytes, at))
}
