//! A batch: the records that one append adds to the log, as one value of etcd.
//!
//! A header says whose batch it is, so that a leader whose answer was lost recognises its own batch. The records follow as they
//! stand in files. A batch that is too large for one value stands in parts, and its value is the header alone. All
//! numbers are little endian.
//!
//! ```text
//! "1cpB", format, checksum | cluster | epoch | nonce | n | first | last | previous | parts, bytes | records
//! ```
//!
//! Invariant: what [`Batch::decode`] returns are the records from `first` to `last`, without gaps, of this cluster.

use std::sync::Arc;

use cluster::ids::{ClusterId, Epoch, Nonce, Version};
use cluster::record::{DecodeError, Envelope, Record};

/// Length of the header.
pub(super) const HEADER_BYTES: usize = 88;
const MAGIC: [u8; 4] = *b"1cpB";
const FORMAT: u32 = 1;

/// The facts about a batch that its header tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BatchHeader {
    pub(super) cluster: ClusterId,
    /// The epoch and the nonce of the claim under which it was appended, and its number in that term.
    pub(super) epoch: Epoch,
    pub(super) nonce: Nonce,
    pub(super) n: u64,
    pub(super) first: Version,
    pub(super) last: Version,
    /// The first version of the batch before; the same as `first` if the log begins here.
    pub(super) previous: Version,
    /// The number of parts that hold the records; 0 if they follow the header.
    pub(super) parts: u32,
    /// Length of the records.
    pub(super) bytes: u64,
}

/// Why a value is no batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchError {
    /// It does not begin as one does.
    NotABatch,
    /// A newer Onecopy has written it.
    UnknownFormat {
        /// The format it names.
        format: u32,
    },
    /// It was changed since it was written, or is cut short.
    Checksum,
    /// A part of it is missing.
    MissingPart,
    /// A record in it cannot be read.
    Record(DecodeError),
    /// Its records are not those that its header tells.
    OutOfOrder {
        /// The version of the record that does not fit.
        found: Version,
    },
    /// It belongs to another cluster.
    Foreign {
        /// The other one.
        found: ClusterId,
    },
}

impl std::fmt::Display for BatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotABatch => f.write_str("it is no batch of records"),
            Self::UnknownFormat { format } => {
                write!(f, "it has format {format}, which this version of onecopy does not know")
            }
            Self::Checksum => f.write_str("its checksum does not match"),
            Self::MissingPart => f.write_str("a part of it is missing"),
            Self::Record(error) => error.fmt(f),
            Self::OutOfOrder { found } => write!(f, "it has version {found} in a wrong place"),
            Self::Foreign { found } => write!(f, "it belongs to cluster {found}"),
        }
    }
}

impl std::error::Error for BatchError {}

impl BatchHeader {
    /// Whether both are the same append.
    pub(super) fn is_same_append(&self, other: &Self) -> bool {
        (self.epoch, self.nonce, self.n) == (other.epoch, other.nonce, other.n)
    }

    /// The header, to be followed by the records if `parts` is 0. The checksum covers the records in both cases.
    pub(super) fn encode(&self, records: &[u8]) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&FORMAT.to_le_bytes());
        out[12..16].copy_from_slice(&self.epoch.0.to_le_bytes());
        out[16..32].copy_from_slice(&self.cluster.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.nonce.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.n.to_le_bytes());
        out[48..56].copy_from_slice(&self.first.0.to_le_bytes());
        out[56..64].copy_from_slice(&self.last.0.to_le_bytes());
        out[64..72].copy_from_slice(&self.previous.0.to_le_bytes());
        out[72..76].copy_from_slice(&self.parts.to_le_bytes());
        out[80..88].copy_from_slice(&self.bytes.to_le_bytes());
        let crc = checksum(&out, records);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        if self.parts == 0 {
            out.extend_from_slice(records);
        }
        out
    }

    /// The header of a value. Its checksum is not checked yet.
    pub(super) fn decode(value: &[u8]) -> Result<Self, BatchError> {
        let header = value.get(..HEADER_BYTES).filter(|header| header[..4] == MAGIC);
        let header = header.ok_or(BatchError::NotABatch)?;
        let format = u32_at(header, 4);
        if format != FORMAT {
            return Err(BatchError::UnknownFormat { format });
        }
        Ok(Self {
            epoch: Epoch(u32_at(header, 12)),
            cluster: ClusterId(u128::from(u64_at(header, 16)) | u128::from(u64_at(header, 24)) << u64::BITS),
            nonce: Nonce(u64_at(header, 32)),
            n: u64_at(header, 40),
            first: Version(u64_at(header, 48)),
            last: Version(u64_at(header, 56)),
            previous: Version(u64_at(header, 64)),
            parts: u32_at(header, 72),
            bytes: u64_at(header, 80),
        })
    }

    /// The records of a value; `parts` holds what its parts hold, one after the other.
    pub(super) fn records(
        &self,
        cluster: ClusterId,
        value: &[u8],
        parts: &[u8],
    ) -> Result<Vec<Arc<Record>>, BatchError> {
        if self.cluster != cluster {
            return Err(BatchError::Foreign { found: self.cluster });
        }
        let mut bytes = if self.parts == 0 { &value[HEADER_BYTES..] } else { parts };
        if bytes.len() as u64 != self.bytes || checksum(&value[..HEADER_BYTES], bytes) != u32_at(value, 8) {
            return Err(BatchError::Checksum);
        }
        let (mut records, mut next) = (Vec::new(), self.first);
        while !bytes.is_empty() {
            let length = Envelope::decode(bytes).map_err(BatchError::Record)?.record_bytes();
            let record = bytes.get(..length).ok_or(BatchError::Checksum)?;
            let record = Record::decode(record.to_vec()).map_err(BatchError::Record)?;
            let header = record.header();
            if header.cluster != cluster {
                return Err(BatchError::Foreign { found: header.cluster });
            }
            if header.first != next || header.last > self.last {
                return Err(BatchError::OutOfOrder { found: header.first });
            }
            next = header.last.next();
            records.push(Arc::new(record));
            bytes = &bytes[length..];
        }
        if next != self.last.next() {
            return Err(BatchError::OutOfOrder { found: next });
        }
        Ok(records)
    }
}

/// Over everything but the checksum itself.
fn checksum(header: &[u8], records: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..8]), &header[12..HEADER_BYTES]);
    crc32c::crc32c_append(crc, records)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut out = [0; 4];
    out.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(out)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{CLUSTER, record};

    fn header(records: &[u8], parts: u32) -> BatchHeader {
        BatchHeader {
            cluster: CLUSTER,
            epoch: Epoch(3),
            nonce: Nonce(9),
            n: 4,
            first: Version(5),
            last: Version(6),
            previous: Version(5),
            parts,
            bytes: records.len() as u64,
        }
    }

    #[test]
    fn a_batch_comes_back() {
        let records = [record(5, 10), record(6, 300)];
        let bytes: Vec<u8> = records.iter().flat_map(|record| record.bytes().to_vec()).collect();
        for parts in [0, 2] {
            let value = header(&bytes, parts).encode(&bytes);
            let decoded = BatchHeader::decode(&value).unwrap();
            assert_eq!(decoded, header(&bytes, parts));
            let inside = if parts == 0 { &[] } else { bytes.as_slice() };
            assert_eq!(decoded.records(CLUSTER, &value, inside).unwrap(), records);
            let foreign = decoded.records(ClusterId(1), &value, inside);
            assert_eq!(foreign, Err(BatchError::Foreign { found: CLUSTER }));
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let bytes = [record(5, 10).bytes(), record(6, 30).bytes()].concat();
        let value = header(&bytes, 0).encode(&bytes);
        for at in 0..value.len() {
            let mut changed = value.clone();
            changed[at] ^= 1;
            let read =
                BatchHeader::decode(&changed).and_then(|header| header.records(CLUSTER, &changed, &[]));
            assert!(read.is_err(), "byte {at}");
        }
        assert!(BatchHeader::decode(&value[..HEADER_BYTES - 1]).is_err());
        assert!(
            BatchHeader::decode(&value).unwrap().records(CLUSTER, &value[..value.len() - 1], &[]).is_err()
        );
    }

    #[test]
    fn records_that_do_not_follow_each_other_are_noticed() {
        let bytes = [record(5, 10).bytes(), record(7, 30).bytes()].concat();
        let value = header(&bytes, 0).encode(&bytes);
        let read = BatchHeader::decode(&value).unwrap().records(CLUSTER, &value, &[]);
        assert_eq!(read, Err(BatchError::OutOfOrder { found: Version(7) }));
    }
}
