//! Identities of transactions as values in statements, each with its proof ([`crate::security::seal`]).
//!
//! PostgreSQL has no unsigned integers, so the bits are stored as signed ones. [`super::applied_set`] reads them back.

use cluster::ids::Identity;

use crate::security::seal::Seal;

/// Inserts any number of identities, from array literals.
pub(super) const INSERT_MANY_SQL: &str = "INSERT INTO onecopy.applied (epoch, n, nonce, proof) \
    SELECT * FROM unnest($1::int4[], $2::int8[], $3::int8[], $4::int8[])";

/// Inserts so many identities, from their values in binary form.
pub(super) fn insert_sql(count: usize) -> String {
    let row = |at: usize| {
        let first = 4 * at;
        format!("(${}::int4, ${}::int8, ${}::int8, ${}::int8)", first + 1, first + 2, first + 3, first + 4)
    };
    let rows: Vec<String> = (0..count).map(row).collect();
    format!("INSERT INTO onecopy.applied (epoch, n, nonce, proof) VALUES {}", rows.join(", "))
}

/// The values in binary form.
pub(super) fn binary_values(identity: Identity, seal: &Seal) -> [Vec<u8>; 4] {
    let Identity { epoch, n, nonce } = identity;
    [
        epoch.0.to_be_bytes().to_vec(),
        n.to_be_bytes().to_vec(),
        nonce.0.to_be_bytes().to_vec(),
        seal.proof(identity).to_be_bytes().to_vec(),
    ]
}

/// The values as literals in a statement.
pub(crate) fn literals(identity: Identity, seal: &Seal) -> String {
    let [epoch, n, nonce] = values(identity);
    format!("{epoch}, '{n}', '{nonce}', '{}'", seal.proof(identity))
}

/// Epoch, number and nonce as signed numbers.
pub(super) fn values(identity: Identity) -> [String; 3] {
    [
        identity.epoch.0.cast_signed().to_string(),
        identity.n.cast_signed().to_string(),
        identity.nonce.0.cast_signed().to_string(),
    ]
}

/// The statement that deletes these identities.
pub(super) fn forget_sql(identities: &[Identity]) -> String {
    let [epochs, numbers, nonces] = array_literals(identities.iter().copied());
    format!(
        "DELETE FROM onecopy.applied a USING unnest('{epochs}'::int4[], '{numbers}'::int8[], '{nonces}'::int8[]) \
         AS f(epoch, n, nonce) WHERE (a.epoch, a.n, a.nonce) = (f.epoch, f.n, f.nonce)"
    )
}

/// The statement, with its semicolon, that inserts an identity if it is not there.
pub(crate) fn put_sql(identity: Identity, seal: &Seal) -> String {
    format!(
        "INSERT INTO onecopy.applied (epoch, n, nonce, proof) VALUES ({}) \
         ON CONFLICT (epoch, n, nonce) DO UPDATE SET proof = EXCLUDED.proof; ",
        literals(identity, seal)
    )
}

/// Array literals for [`INSERT_MANY_SQL`], without quotes.
pub(super) fn array_literals_with_proofs(
    identities: impl Iterator<Item = Identity> + Clone,
    seal: &Seal,
) -> [String; 4] {
    let proofs: Vec<String> = identities.clone().map(|identity| seal.proof(identity).to_string()).collect();
    let [epochs, numbers, nonces] = array_literals(identities);
    [epochs, numbers, nonces, format!("{{{}}}", proofs.join(","))]
}

/// Three array literals for `unnest`, without quotes.
fn array_literals(identities: impl Iterator<Item = Identity>) -> [String; 3] {
    let mut columns: [Vec<String>; 3] = Default::default();
    for identity in identities {
        for (column, value) in columns.iter_mut().zip(values(identity)) {
            column.push(value);
        }
    }
    columns.map(|column| format!("{{{}}}", column.join(",")))
}
