//! The applied set of a server: the identities in `onecopy.applied`. They say which records the server has.
//!
//! Any role can insert into the table, so a row counts only with its proof ([`crate::security::seal`]). The table is
//! read a piece at a time, in the order of its key, because rows without a proof must not take memory.

use cluster::ids::{Epoch, Identity, Nonce};

use super::identity::{array_literals_with_proofs, forget_sql, values};
use crate::backend::{BackendError, OwnConnection};
use crate::security::seal::Seal;

/// Rows read at a time.
const PIECE_ROWS: usize = 10_000;

/// Tells whether a release without proofs has used the server.
const LACKS_PROOFS_SQL: &str = "SELECT FROM pg_class WHERE oid = to_regclass('onecopy.applied') \
    AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = pg_class.oid AND attname = 'proof')";

/// The applied set of the server at the other end of a connection.
pub(crate) struct AppliedSet<'a> {
    connection: &'a mut OwnConnection,
    seal: &'a Seal,
}

/// The treatment of rows that clients have made up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MadeUp {
    Keep,
    Delete,
}

/// A part of the table.
struct Piece {
    proven: Vec<Identity>,
    made_up: Vec<Identity>,
    last: Option<Identity>,
    is_last: bool,
}

impl<'a> AppliedSet<'a> {
    pub(crate) fn at(connection: &'a mut OwnConnection, seal: &'a Seal) -> Self {
        Self { connection, seal }
    }

    /// Reads all identities that Onecopy has written.
    pub(crate) async fn read(mut self) -> Result<Vec<Identity>, BackendError> {
        self.read_pieces(MadeUp::Keep).await
    }

    /// Reads all identities that Onecopy has written, and deletes rows that clients have made up. If that takes too
    /// long, the next attempt has fewer rows to read.
    pub(super) async fn read_and_clean(mut self) -> Result<Vec<Identity>, BackendError> {
        self.read_pieces(MadeUp::Delete).await
    }

    /// Runs the statements of installation. Identities that a release without proofs has left get their proofs. With
    /// `proves_all` every identity gets a new one, because the key of the present proofs is gone.
    pub(crate) async fn install(mut self, install_sql: &str, proves_all: bool) -> Result<(), BackendError> {
        let lacks_proofs = proves_all || !self.connection.query(LACKS_PROOFS_SQL).await?.is_empty();
        self.connection.query(install_sql).await?;
        if lacks_proofs {
            self.prove().await?;
        }
        Ok(())
    }

    /// Deletes rows that clients have made up, in one piece of the table, after an identity. Returns the begin of the
    /// next piece, or none after the last one.
    pub(super) async fn sweep(mut self, after: Option<Identity>) -> Result<Option<Identity>, BackendError> {
        let piece = self.piece(after).await?;
        self.forget(&piece.made_up).await?;
        Ok(piece.last.filter(|_| !piece.is_last))
    }

    async fn read_pieces(&mut self, made_up: MadeUp) -> Result<Vec<Identity>, BackendError> {
        let (mut proven, mut last) = (Vec::new(), None);
        loop {
            let piece = self.piece(last).await?;
            if made_up == MadeUp::Delete {
                self.forget(&piece.made_up).await?;
            }
            proven.extend(piece.proven);
            last = piece.last;
            if piece.is_last {
                return Ok(proven);
            }
        }
    }

    async fn prove(&mut self) -> Result<(), BackendError> {
        let mut last = None;
        loop {
            let piece = self.piece(last).await?;
            last = piece.last;
            let unproven = piece.made_up.into_iter();
            let [epochs, numbers, nonces, proofs] = array_literals_with_proofs(unproven, self.seal);
            self.connection
                .query(&format!(
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

    async fn forget(&mut self, made_up: &[Identity]) -> Result<(), BackendError> {
        if !made_up.is_empty() {
            tracing::warn!(
                rows = made_up.len(),
                "rows that clients made up are deleted from onecopy.applied"
            );
            self.connection.query(&forget_sql(made_up)).await?;
        }
        Ok(())
    }

    /// Reads the rows after an identity.
    async fn piece(&mut self, after: Option<Identity>) -> Result<Piece, BackendError> {
        let after = after.map_or_else(String::new, |identity| {
            let [epoch, n, nonce] = values(identity);
            format!("WHERE (epoch, n, nonce) > ({epoch}, '{n}', '{nonce}')")
        });
        let rows = self
            .connection
            .query(&format!(
                "SELECT epoch, n, nonce, proof FROM onecopy.applied {after} ORDER BY epoch, n, nonce LIMIT {PIECE_ROWS}"
            ))
            .await?;
        let shape = BackendError::Protocol("an identity of an unexpected shape");
        let read: Vec<(Identity, i64)> =
            rows.iter().map(|row| read_one(row)).collect::<Option<_>>().ok_or(shape)?;
        let (last, is_last) = (read.last().map(|(identity, _)| *identity), read.len() < PIECE_ROWS);
        let (proven, made_up): (Vec<_>, Vec<_>) =
            read.into_iter().partition(|(identity, proof)| *proof == self.seal.proof(*identity));
        let identities =
            |rows: Vec<(Identity, i64)>| rows.into_iter().map(|(identity, _)| identity).collect();
        Ok(Piece { proven: identities(proven), made_up: identities(made_up), last, is_last })
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
