//! Identities of transactions as they stand in `onecopy.applied`, each with its proof ([`crate::security::seal`]).
//!
//! PostgreSQL has no unsigned integers, so the bits are stored as signed ones. The table is read a piece at a time, in the
//! order of its key: any role can fill it with rows that prove nothing, and those must not take memory.

use cluster::ids::{Epoch, Identity, Nonce};

use crate::backend::{BackendError, Connection, Rows};
use crate::security::seal::Seal;

/// Rows read at a time.
const PIECE_ROWS: usize = 10_000;

/// Inserts any number of identities, out of array literals.
pub(super) const INSERT_MANY_SQL: &str = "INSERT INTO onecopy.applied (epoch, n, nonce, proof) \
    SELECT * FROM unnest($1::int4[], $2::int8[], $3::int8[], $4::int8[])";

/// Tells whether a release has used the server that knew no proofs.
const LACKS_PROOFS_SQL: &str = "SELECT FROM pg_class WHERE oid = to_regclass('onecopy.applied') \
    AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = pg_class.oid AND attname = 'proof')";

/// Inserts so many identities, out of their values in binary form.
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

/// The values as they stand in a statement.
pub(crate) fn literals(identity: Identity, seal: &Seal) -> String {
    let [epoch, n, nonce] = values(identity);
    format!("{epoch}, '{n}', '{nonce}', '{}'", seal.proof(identity))
}

fn values(identity: Identity) -> [String; 3] {
    [
        identity.epoch.0.cast_signed().to_string(),
        identity.n.cast_signed().to_string(),
        identity.nonce.0.cast_signed().to_string(),
    ]
}

/// Reads all identities that Onecopy has written.
pub(crate) async fn read(connection: &mut Connection, seal: &Seal) -> Result<Vec<Identity>, BackendError> {
    read_pieces(connection, seal, MadeUp::Kept).await
}

/// As [`read`], and deletes what clients have made up. If that takes too long the next attempt has less of it to read.
pub(super) async fn read_clean(
    connection: &mut Connection,
    seal: &Seal,
) -> Result<Vec<Identity>, BackendError> {
    read_pieces(connection, seal, MadeUp::Deleted).await
}

/// What becomes of rows that clients have made up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MadeUp {
    Kept,
    Deleted,
}

async fn read_pieces(
    connection: &mut Connection,
    seal: &Seal,
    made_up: MadeUp,
) -> Result<Vec<Identity>, BackendError> {
    let (mut proven, mut last) = (Vec::new(), None);
    loop {
        let piece = Piece::after(last, connection, seal).await?;
        if made_up == MadeUp::Deleted {
            forget(connection, &piece.made_up).await?;
        }
        proven.extend(piece.proven);
        last = piece.last;
        if piece.is_last {
            return Ok(proven);
        }
    }
}

/// Installs what there is to be. Each identity that a release without proofs has left gets one, and so does each where
/// `proves_all` says that the key which it was proven by is gone.
pub(crate) async fn install(
    connection: &mut Connection,
    install_sql: &str,
    seal: &Seal,
    proves_all: bool,
) -> Result<(), BackendError> {
    let lacks_proofs = proves_all || !connection.simple(LACKS_PROOFS_SQL).await?.is_empty();
    connection.simple(install_sql).await?;
    if lacks_proofs {
        prove(connection, seal).await?;
    }
    Ok(())
}

async fn prove(connection: &mut Connection, seal: &Seal) -> Result<(), BackendError> {
    let mut last = None;
    loop {
        let piece = Piece::after(last, connection, seal).await?;
        last = piece.last;
        let [epochs, numbers, nonces, proofs] = array_literals_with_proofs(piece.made_up.into_iter(), seal);
        connection
            .simple(&format!(
                "UPDATE onecopy.applied a SET proof = f.proof FROM unnest('{epochs}'::int4[], '{numbers}'::int8[], \
                 '{nonces}'::int8[], '{proofs}'::int8[]) AS f(epoch, n, nonce, proof) \
                 WHERE (a.epoch, a.n, a.nonce) = (f.epoch, f.n, f.nonce)"
            ))
            .await?;
        if piece.is_last {
            return Ok(());
        }
    }
}

/// Looks at one piece of the table, and deletes what clients have made up there; where the next piece begins, or none after
/// the last.
pub(super) async fn sweep(
    connection: &mut Connection,
    after: Option<Identity>,
    seal: &Seal,
) -> Result<Option<Identity>, BackendError> {
    let piece = Piece::after(after, connection, seal).await?;
    forget(connection, &piece.made_up).await?;
    Ok(piece.last.filter(|_| !piece.is_last))
}

async fn forget(connection: &mut Connection, made_up: &[Identity]) -> Result<(), BackendError> {
    if !made_up.is_empty() {
        tracing::warn!(rows = made_up.len(), "rows that clients made up are deleted from onecopy.applied");
        connection.simple(&forget_sql(made_up)).await?;
    }
    Ok(())
}

/// The statement that deletes these.
pub(super) fn forget_sql(identities: &[Identity]) -> String {
    let [epochs, numbers, nonces] = array_literals(identities.iter().copied());
    format!(
        "DELETE FROM onecopy.applied a USING unnest('{epochs}'::int4[], '{numbers}'::int8[], '{nonces}'::int8[]) \
         AS f(epoch, n, nonce) WHERE (a.epoch, a.n, a.nonce) = (f.epoch, f.n, f.nonce)"
    )
}

/// The statement, with its semicolon, that puts an identity in if it is not there.
pub(super) fn put_sql(identity: Identity, seal: &Seal) -> String {
    format!(
        "INSERT INTO onecopy.applied (epoch, n, nonce, proof) VALUES ({}) \
         ON CONFLICT (epoch, n, nonce) DO UPDATE SET proof = EXCLUDED.proof; ",
        literals(identity, seal)
    )
}

/// A part of the table.
struct Piece {
    proven: Vec<Identity>,
    made_up: Vec<Identity>,
    last: Option<Identity>,
    is_last: bool,
}

impl Piece {
    async fn after(
        before: Option<Identity>,
        connection: &mut Connection,
        seal: &Seal,
    ) -> Result<Self, BackendError> {
        let before = before.map_or_else(String::new, |identity| {
            let [epoch, n, nonce] = values(identity);
            format!("WHERE (epoch, n, nonce) > ({epoch}, '{n}', '{nonce}')")
        });
        let rows: Rows = connection
            .simple(&format!(
                "SELECT epoch, n, nonce, proof FROM onecopy.applied {before} ORDER BY epoch, n, nonce LIMIT {PIECE_ROWS}"
            ))
            .await?;
        let shape = BackendError::Protocol("an identity of an unexpected shape");
        let read: Vec<(Identity, i64)> =
            rows.iter().map(|row| read_one(row)).collect::<Option<_>>().ok_or(shape)?;
        let (last, is_last) = (read.last().map(|(identity, _)| *identity), read.len() < PIECE_ROWS);
        let (proven, made_up): (Vec<_>, Vec<_>) =
            read.into_iter().partition(|(identity, proof)| *proof == seal.proof(*identity));
        let identities =
            |rows: Vec<(Identity, i64)>| rows.into_iter().map(|(identity, _)| identity).collect();
        Ok(Self { proven: identities(proven), made_up: identities(made_up), last, is_last })
    }
}

fn read_one(row: &[Option<String>]) -> Option<(Identity, i64)> {
    let [Some(epoch), Some(n), Some(nonce), Some(proof)] = row else { return None };
    let identity = Identity {
        epoch: Epoch(epoch.parse::<i32>().ok()?.cast_unsigned()),
        n: n.parse::<i64>().ok()?.cast_unsigned(),
        nonce: Nonce(nonce.parse::<i64>().ok()?.cast_unsigned()),
    };
    Some((identity, proof.parse().ok()?))
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
