//! Finds writes of a transaction that the capture triggers did not see.
//!
//! A transaction may have written more than its captured rows if it called functions of users, or if its command tags
//! count other rows. The session then asks its home before the commit. The locks that the transaction holds tell which
//! tables and shared catalogues it wrote, and every written table must have our triggers, enabled
//! (docs/explanation/pitfalls.md 1.3, 1.12). A transaction that wrote something else is rejected as a whole.
//!
//! A transaction that locked rows and wrote none is ordered like a writer, with an empty record. Otherwise the loss of
//! a backend whose record is in the log could let it through.

use crate::error::{Fault, Refusal, broken};
use crate::propagate::Recorder;
use crate::transaction::open::Transaction;

/// NULL when the transaction has no id, so that it wrote and locked no row; otherwise the writes that cannot be
/// replicated, or ''. The second column lists the sequences that it used.
const RESIDUE_SQL: &str = "SELECT onecopy.residue(false), onecopy.sequences(NULL)";
/// How many rows of shared catalogues this backend has changed; the number only grows within a transaction.
/// `pg_shdepend` does not count, since every schema change writes it.
const SHARED_CHANGES_SQL: &str = "SELECT pg_catalog.sum(\
    pg_catalog.pg_stat_get_xact_tuples_inserted(oid) OPERATOR(pg_catalog.+) \
    pg_catalog.pg_stat_get_xact_tuples_updated(oid) OPERATOR(pg_catalog.+) \
    pg_catalog.pg_stat_get_xact_tuples_deleted(oid)) FROM pg_catalog.pg_class \
    WHERE relisshared AND oid OPERATOR(pg_catalog.<>) 'pg_catalog.pg_shdepend'::pg_catalog.regclass";
/// The same question, when the record holds changes of roles.
const RESIDUE_WITH_DDL_SQL: &str = "SELECT onecopy.residue(true), onecopy.sequences(NULL)";

impl Recorder<'_> {
    /// Checks that the transaction has changed shared catalogues in no other way. Runs before a statement that may
    /// change them, since the locks could not tell one change from the other afterwards.
    pub(crate) async fn before_shared_change(&mut self) -> Result<(), Fault> {
        let Transaction::Update(update) = &self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        if update.schema.shared_changes.is_some() {
            return self.check_shared_changes().await;
        }
        if !update.unseen.is_suspect() {
            return Ok(());
        }
        match self
            .driver()
            .own_query("SELECT onecopy.residue(false)")
            .await?
            .row
            .unwrap_or_default()
            .pop()
            .flatten()
        {
            Some(what) if !what.is_empty() => Err(refused(&what)),
            _ => Ok(()),
        }
    }

    /// Remembers, after that statement, how many changes the record covers.
    pub(crate) async fn after_shared_change(&mut self) -> Result<(), Fault> {
        let changes = self.driver().own_text(SHARED_CHANGES_SQL).await?;
        if let Transaction::Update(update) = &mut self.txn.state {
            update.schema.shared_changes = Some(changes);
        }
        Ok(())
    }

    /// Rejects the transaction if shared catalogues were changed since.
    async fn check_shared_changes(&mut self) -> Result<(), Fault> {
        let changes = self.driver().own_text(SHARED_CHANGES_SQL).await?;
        match &self.txn.state {
            Transaction::Update(update) if update.schema.shared_changes.as_ref() != Some(&changes) => Err(
                refused(b"a change of roles or of what all databases share inside a function or DO block"),
            ),
            _ => Ok(()),
        }
    }

    /// Asks the home for writes beside the captured rows, and rejects those that cannot be replicated. Says whether
    /// the transaction leaves a record, even if no row was captured.
    pub(crate) async fn check_uncaptured(&mut self) -> Result<bool, Fault> {
        let Transaction::Update(update) = &self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        let has_rows = !update.capture.record.is_empty();
        let (has_locks, is_suspect) = (update.unseen.has_locks, update.unseen.is_suspect());
        let has_shared = update.schema.shared_changes.is_some();
        if has_shared {
            self.check_shared_changes().await?;
        }
        let sql = if has_shared { RESIDUE_WITH_DDL_SQL } else { RESIDUE_SQL };
        let reading = self.link.coordinator().core.sequence_reading();
        let mut row = self.driver().own_query(sql).await?.row.unwrap_or_default().into_iter();
        let answer = row.next().flatten();
        let states = row.next().flatten().unwrap_or_default();
        if let Transaction::Update(update) = &mut self.txn.state {
            let database = update.capture.record.database();
            update.sequences.tell(reading, &states, database)?;
        }
        match answer.as_deref() {
            None => Ok(has_rows),
            Some(b"") => Ok(has_rows || has_locks || is_suspect),
            Some(what) => Err(refused(what)),
        }
    }
}

fn refused(what: &[u8]) -> Fault {
    let what = String::from_utf8_lossy(what).into_owned();
    tracing::warn!(%what, "a transaction wrote what is not captured and was rolled back");
    let hint = if what.contains("temporary") {
        "PostgreSQL can find inside COMMIT that it does not go with ON COMMIT, and then COMMIT must not fail any more."
    } else {
        "The change would stay on one server. Run schema and role changes as statements of their own; leave onecopy's \
         triggers in place."
    };
    Refusal::unsupported(&what, hint).into()
}
