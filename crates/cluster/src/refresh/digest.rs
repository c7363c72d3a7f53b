//! One number for the rows that an execution has changed, so that the executions of two replicas can be compared.
//!
//! Preventive replication: a replica that has performed a transaction itself commits that only if it has changed the same rows as
//! the home ([`crate::protocols::preventive`]).
//!
//! Example: `UPDATE t SET n = n + 1 WHERE k = 7` by a statement, or by two of a procedure, leads from the same row to the same row,
//! so both have one digest. The order of changes does not count, nor do the numbers that a server gives to its types.
//!
//! Invariant: executions with the same digest turn the same rows into the same rows. Values that contain numbers of a server's
//! types, such as arrays of users' types, differ between servers: then the record is applied, which costs time only.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::net::Net;
use crate::event::Digest;
use crate::ids::TableId;
use crate::record::{Change, Image, RowChange, SealedBody};

/// Bytes of a [`Digest`].
const DIGEST_BYTES: usize = 16;

/// The digest of the net changes of rows; `None` if they are not all that the transaction has done, or not at hand: rows in a file, a
/// statement, the mark of a sequence, a TRUNCATE.
pub fn digest(body: &SealedBody) -> Option<Digest> {
    if body.is_spilled() || body.writes_everything() || body.moves_sequences() {
        return None;
    }
    let mut nets: BTreeMap<TableId, Net<'_>> = BTreeMap::new();
    for RowChange { table, change, .. } in body.row_changes() {
        if change == Change::Truncate {
            return None;
        }
        nets.entry(table).or_default().change(change);
    }
    let mut rows = Vec::new();
    for (table, mut net) in nets {
        net.cancel();
        for (side, images) in [(0, &net.found), (1, &net.left)] {
            for image in images {
                rows.push(hash_of(table, side, Image::parse(image).ok()?));
            }
        }
    }
    rows.sort_unstable();
    let mut all = Sha256::new();
    for row in &rows {
        all.update(row);
    }
    let mut head = [0; DIGEST_BYTES];
    head.copy_from_slice(&all.finalize()[..DIGEST_BYTES]);
    Some(Digest(u128::from_be_bytes(head)))
}

/// The hash of one row that was found or left.
fn hash_of(table: TableId, side: u8, image: Image<'_>) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(table.database.0.to_be_bytes());
    hash.update(table.number.to_be_bytes());
    hash.update([side]);
    for value in image.values() {
        // Lengths keep ("ab", "c") and ("a", "bc") apart.
        let length = value.map_or(-1, |value| i64::try_from(value.len()).unwrap_or(i64::MAX));
        hash.update(length.to_be_bytes());
        hash.update(value.unwrap_or_default());
    }
    hash.finalize().into()
}
