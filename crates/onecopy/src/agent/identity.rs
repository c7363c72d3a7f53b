//! Identities of transactions as they stand in `onecopy.applied`.
//!
//! PostgreSQL has no unsigned integers, so the bits are stored as signed ones.

use cluster::ids::{Epoch, Identity, Nonce};

use crate::backend::{BackendError, Rows};

/// All identities that are there.
pub(crate) const READ_SQL: &str = "SELECT epoch, n, nonce FROM onecopy.applied";

/// The three values in text form.
fn identity_values(identity: Identity) -> [String; 3] {
    [
        identity.epoch.0.cast_signed().to_string(),
        identity.n.cast_signed().to_string(),
        identity.nonce.0.cast_signed().to_string(),
    ]
}

/// Reads what [`READ_SQL`] returns.
pub(crate) fn read(rows: &Rows) -> Result<Vec<Identity>, BackendError> {
    let shape = BackendError::Protocol("an identity of an unexpected shape");
    let read_one = |row: &Vec<Option<String>>| {
        let [Some(epoch), Some(n), Some(nonce)] = row.as_slice() else { return None };
        Some(Identity {
            epoch: Epoch(epoch.parse::<i32>().ok()?.cast_unsigned()),
            n: n.parse::<i64>().ok()?.cast_unsigned(),
            nonce: Nonce(nonce.parse::<i64>().ok()?.cast_unsigned()),
        })
    };
    rows.iter().map(read_one).collect::<Option<_>>().ok_or(shape)
}

/// Three array literals for `unnest`, without quotes.
pub(super) fn array_literals(identities: impl Iterator<Item = Identity>) -> [String; 3] {
    let mut columns: [Vec<String>; 3] = Default::default();
    for identity in identities {
        for (column, value) in columns.iter_mut().zip(identity_values(identity)) {
            column.push(value);
        }
    }
    columns.map(|column| format!("{{{}}}", column.join(",")))
}
