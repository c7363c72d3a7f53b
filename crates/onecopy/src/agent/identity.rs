//! Identities of transactions as they stand in `onecopy.applied`.
//!
//! PostgreSQL has no unsigned integers, so the bits are stored as signed ones.

use cluster::ids::{Epoch, Identity, Nonce};

use crate::backend::{BackendError, Rows};

/// All identities that are there.
pub(crate) const READ_SQL: &str = "SELECT epoch, n, nonce FROM onecopy.applied";

/// Inserts any number of identities, out of three array literals.
pub(super) const INSERT_MANY_SQL: &str = "INSERT INTO onecopy.applied (epoch, n, nonce) \
    SELECT * FROM unnest($1::int4[], $2::int8[], $3::int8[])";

/// Inserts so many identities, out of their values in binary form.
pub(super) fn insert_sql(count: usize) -> String {
    let row = |at: usize| format!("(${}::int4, ${}::int8, ${}::int8)", 3 * at + 1, 3 * at + 2, 3 * at + 3);
    let rows: Vec<String> = (0..count).map(row).collect();
    format!("INSERT INTO onecopy.applied (epoch, n, nonce) VALUES {}", rows.join(", "))
}

/// The three values in binary form.
pub(super) fn binary_values(identity: Identity) -> [Vec<u8>; 3] {
    let Identity { epoch, n, nonce } = identity;
    [epoch.0.to_be_bytes().to_vec(), n.to_be_bytes().to_vec(), nonce.0.to_be_bytes().to_vec()]
}

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
