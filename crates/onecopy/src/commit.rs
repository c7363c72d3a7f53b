//! The commit, step by step (DESIGN section 3).
//!
//! With the last statement, or before COMMIT, the session sends `SET CONSTRAINTS ALL IMMEDIATE` where the catalogue has
//! deferrable ones, lifts the client's time-outs, and inserts the identity into `onecopy.applied`. Then the record goes
//! to the core. The core appends it once all records that it may depend on are safe. When the record is durable, the
//! client gets its answer. COMMIT follows when it is the turn of this version at home. Until the reply to COMMIT is
//! read, the session does no other work. From the append on only the log decides: after a lost connection, or a tag
//! other than COMMIT, the home is reset and the record is applied there from the log.

pub(crate) mod reserve;

use std::pin::pin;
use std::sync::Arc;

use cluster::claims::{Claimed, Claims};
use cluster::event::{Effect, Event, Reads};
use cluster::ids::{Identity, Version};
use cluster::placement::Touches;
use cluster::record::{RecordBuilder, SealedBody};
use cluster::refresh::digest;
use sql::Isolation;
use wire::frontend::Target;
use wire::{encode, sqlstate};

use crate::backend::assert_qualified;
use crate::client::own_settings::Severity;
use crate::client::timeouts::lifted;
use crate::connect::Connector;
use crate::coordinator::mailbox::Note;
use crate::drive::Driver;
use crate::drive::definitions::Outdated;
use crate::error::{Fault, Refusal, broken};
use crate::link::SessionRegistration;
use crate::local::memory_budget::Phase;
use crate::logging::{in_stage, stage_span};
use crate::propagate::{Recorder, Survey};
use crate::relay::Expected;
use crate::replica::lock_wait_probe::{FIRST_LOOK, NEXT_LOOK};
use crate::transaction::open::{RETRY_PAUSE, Transaction};
use crate::transaction::stage::stage;
use crate::transaction::view::View;
use crate::writeset::claims::ClaimsSoFar;
use crate::writeset::spill::forget_spilled;

/// The prepared insert of the identity, on every connection to the home. The WAL position that it returns tells later
/// which transaction locked first (`cluster::parts::lock_lsns`). A sequence would do as well, but it would change
/// `lastval()`.
const APPLIED_STATEMENT: &str = "onecopy applied";
const APPLIED_SQL: &str = "INSERT INTO onecopy.applied (epoch, n, nonce, proof) VALUES ($1, $2, $3, $4) \
                             RETURNING pg_catalog.pg_current_wal_insert_lsn()";
/// The same insert, which also returns the state of sequences.
const DRAWN_STATEMENT: &str = "onecopy applied, drawn";
const DRAWN_SQL: &str = "INSERT INTO onecopy.applied (epoch, n, nonce, proof) VALUES ($1, $2, $3, $4) \
                           RETURNING pg_catalog.pg_current_wal_insert_lsn(), onecopy.sequences($5)";
const INT4_OID: u32 = 23;
const INT4_ARRAY_OID: u32 = 1007;
const INT8_OID: u32 = 20;

/// Reads the WAL position again, as text.
const DRAW_SQL: &str =
    "SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')::bigint";

stage! {
    /// Commits the open transaction.
    Committer calls { connector: Connector, driver: Driver, recorder: Recorder }
}

impl View<'_> {
    /// Rejects the commit if the log is full. Once the log has the record, it is too late to reject.
    fn check_room(self) -> Result<(), Fault> {
        match self.link.coordinator().core.refusal() {
            None => Ok(()),
            Some(reason) => Err(Fault::Refused(Refusal::of_log(reason))),
        }
    }
}

impl Committer<'_> {
    /// Writes the insert of the identity into the output of the home's connection. The reply is a unit of its own.
    pub(crate) fn write_identity(&mut self) -> Result<(), Fault> {
        let Transaction::Update(update) = &mut self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        let server = self.link.servers.get(update.replica);
        let coordinator = &self.link.worker.coordinator;
        // Other homes draw from leases, which marks cover.
        let is_anchor = update.replica == coordinator.view.anchor();
        let asks = update.sequences.ask(is_anchor, || coordinator.core.sequence_reading());
        let (name, sql) = if asks { (DRAWN_STATEMENT, DRAWN_SQL) } else { (APPLIED_STATEMENT, APPLIED_SQL) };
        let is_prepared = server.own.has_identity_insert(name);
        let name = name.as_bytes();
        let parameters = 4 + usize::from(asks);
        let output = &mut server.connection.output;
        if !is_prepared {
            // An earlier attempt may have prepared it, or its transaction may have failed before.
            encode::close(output, Target::Statement(name));
            let types = [INT4_OID, INT8_OID, INT8_OID, INT8_OID, INT4_ARRAY_OID];
            assert_qualified(sql);
            encode::parse(output, name, sql.as_bytes(), &types[..parameters]);
        }
        let proof = coordinator.local.seal.proof(update.identity).to_be_bytes();
        let Identity { epoch, n, nonce } = update.identity;
        let (epoch, n, nonce) = (epoch.0.to_be_bytes(), n.to_be_bytes(), nonce.0.to_be_bytes());
        let which = update.sequences.parameter();
        let values = [Some(&epoch[..]), Some(&n[..]), Some(&nonce[..]), Some(&proof[..]), which.as_deref()];
        encode::bind(output, b"", name, &values[..parameters], encode::Format::Binary);
        encode::execute(output, b"", 0);
        encode::sync(output);
        Ok(())
    }

    /// Reads the reply to [`Self::write_identity`].
    pub(crate) async fn read_identity(&mut self) -> Result<(), Fault> {
        let ended = self.driver().exchange_home(|_| Expected::silent()).await?;
        if let Some(body) = ended.error {
            return Err(Fault::Server(body));
        }
        let mut row = ended.row.unwrap_or_default().into_iter();
        let lsn = row.next().flatten().and_then(|value| value.try_into().ok()).map(u64::from_be_bytes);
        let states = row.next().flatten();
        if let (Some(lsn), Transaction::Update(update)) = (lsn, &mut self.txn.state) {
            update.preparation.lock_lsn = Some(lsn);
            let database = update.capture.record.database();
            update.sequences.answered(states.as_deref(), database)?;
            let server = self.link.servers.get(update.replica);
            let name = if states.is_some() { DRAWN_STATEMENT } else { APPLIED_STATEMENT };
            server.own.add_identity_insert(name);
            return Ok(());
        }
        Err(broken("the home drew no number"))
    }

    /// Commits the open update transaction. After success the client may be answered; after an error the transaction
    /// is rolled back. The COMMIT at home may still have to be sent: see [`crate::link::settling`].
    pub(crate) async fn commit_home(&mut self) -> Result<(), Fault> {
        let stage = pin!(async move {
            match self.prepare_commit().await {
                Ok(true) => self.commit_kept().await,
                Ok(false) => self.commit_unlogged().await,
                Err(fault) => {
                    self.driver().roll_back_home().await;
                    // The transaction was lost before, and COMMIT ends it all the same.
                    if let Transaction::Lost(_) = self.txn.state {
                        self.driver().end_local(false);
                    }
                    Err(fault)
                }
            }
        });
        in_stage(stage_span!("commit"), stage).await
    }

    /// Takes every step that can fail. Returns whether the transaction leaves a record.
    async fn prepare_commit(&mut self) -> Result<bool, Fault> {
        self.link.session_registration.progress.set_phase(Phase::Checking);
        // A schema change that the statements have met at the home may not have reached this node's view.
        self.link.worker.coordinator.core.present_view().await;
        // A schema change may have outdated the analysis of a statement. Then the writes of the statement are unknown.
        let outdated = match &self.txn.state {
            Transaction::Update(update) => {
                self.view().analysis_outdated(update.capture.record.tables()).await
            }
            _ => Outdated::No,
        };
        if let Transaction::Update(update) = &mut self.txn.state
            && outdated != Outdated::No
        {
            update.unseen.suspect();
            let home = update.replica;
            if outdated == Outdated::Maybe {
                self.connector().doubt_traces(home);
            }
        }
        if self.may_defer() {
            self.await_what_is_checked().await?;
            self.driver().own_query("SET CONSTRAINTS ALL IMMEDIATE").await?;
        }
        let Survey { leaves_record, draws } = self.recorder().survey().await?;
        let Transaction::Update(update) = &self.txn.state else {
            return Err(broken("the update transaction is gone"));
        };
        let (home, is_suspect) = (update.replica, update.unseen.is_suspect());
        // A row that could not be decoded is a reason for a record, too.
        if !leaves_record && !update.sequences.has_marks() && update.capture.broken.is_none() {
            return Ok(false);
        }
        if update.server.has_held_cursor {
            return Err(Refusal::unsupported(
                "a WITH HOLD cursor in a transaction that writes",
                "Its query runs inside COMMIT, which must not fail any more. Declare it in a transaction of its own.",
            )
            .into());
        }
        if update.has_unreserved_writes || self.view().has_many_rows(0) {
            self.reserve_unreserved().await?;
        }
        self.view().check_room()?;
        // Only COMMIT follows the append. The client's time-outs, which code can set, too, must not make it fail.
        if self.link.settings.has_timeouts || is_suspect {
            let version = self.link.servers.get(home).connection.process.version();
            self.driver().own_query(&lifted(version)).await?;
        }
        if !self.txn.is_identified() {
            self.write_identity()?;
            self.read_identity().await?;
        }
        self.recorder().complete_record(draws).await?;
        Ok(true)
    }

    /// Waits until the home has applied every acknowledged change of the tables that deferred checks read, since these
    /// checks see the present rows at every isolation level.
    async fn await_what_is_checked(&mut self) -> Result<(), Fault> {
        let Transaction::Update(update) = &self.txn.state else { return Ok(()) };
        let written = update.capture.record.tables();
        if written.is_empty() {
            return Ok(());
        }
        let catalogue = self.link.database().catalogue();
        let mut checked = written.to_vec();
        for table in catalogue.tables() {
            let is_written = written.contains(&table.id);
            for reference in &table.references {
                if is_written {
                    checked.push(reference.parent);
                } else if written.contains(&reference.parent) {
                    checked.push(table.id);
                }
            }
        }
        // The statements before said what their checks read, so all of it is held here.
        let touches = Touches::Tables([].into());
        self.driver().pass_gate(Reads::Tables(checked.into()), touches, Claims::default(), false).await?;
        self.link.executed();
        Ok(())
    }

    /// Whether a check or trigger may be deferred to COMMIT, which must not fail any more. The catalogue tells, unless
    /// it is outdated. It has no temporary tables.
    pub(crate) fn may_defer(&mut self) -> bool {
        let home = self.view().home();
        let has_left = self.connector().is_unknown_at(home);
        let (coordinator, catalogue) = (self.link.coordinator(), self.link.database().catalogue());
        let may_be_unknown = coordinator.view.is_outdated(Version(catalogue.generation()));
        self.link.leftovers.pinned
            || has_left
            || self.txn.has_ddl()
            || catalogue.has_deferrable()
            || may_be_unknown
    }

    /// Commits a transaction without writes: it leaves no record.
    async fn commit_unlogged(&mut self) -> Result<(), Fault> {
        let ended = self
            .driver()
            .exchange_home(|server| {
                server.query_own("COMMIT");
                Expected::silent()
            })
            .await;
        // The transaction is over whatever the reply says, and has no state to keep.
        self.driver().end_transaction(matches!(&ended, Ok(ended) if ended.error.is_none()));
        ended?.error.map_or(Ok(()), |body| Err(Fault::Server(body)))
    }

    /// Commits like [`Self::commit_logged`]. If the record does not get into the log, its file is deleted.
    async fn commit_kept(&mut self) -> Result<(), Fault> {
        let Transaction::Update(update) = &self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        let (identity, has_file) = (update.identity, update.preparation.has_file);
        let committed = self.commit_logged().await;
        // After a fatal fault the record may be in the log.
        if has_file && committed.as_ref().is_err_and(|fault| !matches!(fault, Fault::Fatal(_))) {
            forget_spilled(Arc::clone(&self.link.worker.coordinator), identity).await;
        }
        committed
    }

    /// Hands the record over and waits until it is durable. An error says that the record is not in the log and will
    /// not be.
    async fn commit_logged(&mut self) -> Result<(), Fault> {
        let Transaction::Update(update) = &mut self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        let (home, lock_lsn) = (update.replica, update.preparation.lock_lsn);
        let is_serializable = update.options.isolation == Some(Isolation::Serializable);
        let read = if is_serializable { update.reads.take() } else { Reads::All };
        let mut claims = std::mem::take(&mut update.capture.claims);
        let empty = RecordBuilder::new(update.capture.record.database());
        let body = Box::new(std::mem::replace(&mut update.capture.record, empty).seal());
        let catalogue = self.link.database().catalogue();
        let claimed = claims.complete(&body, &catalogue);
        let changed = claims.changed();
        self.warn_of_searches(&claims);
        // Claims from before a schema change may be too narrow after it.
        let outdated = self.view().analysis_outdated(&body.tables().collect::<Vec<_>>()).await;
        let is_analysis_outdated = outdated != Outdated::No;
        let (claims, changed) = if is_analysis_outdated {
            (vec![Claimed { turn: 0, is_held: false, claims: Claims::everything() }], Vec::new())
        } else {
            (claimed, changed)
        };
        self.link.session_registration.progress.set_phase(Phase::Logging);
        while !self.link.coordinator().core.has_room() {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        if let Some(lsn) = lock_lsn {
            self.link.worker.coordinator.core.tell(Event::LockLsn { session: self.link.id, lsn });
        }
        self.tell_digest(&body);
        let reads = if is_analysis_outdated { Reads::All } else { read };
        self.link.worker.coordinator.core.tell(Event::Finish {
            session: self.link.id,
            body,
            claims,
            changed,
            reads,
        });
        self.link.settling = Some(home);
        loop {
            if self.driver().is_recalled() {
                self.link.settling = None;
                let fault = self.driver().follow_recall().await;
                self.driver().end_local(false);
                return Err(fault);
            }
            match self.next_of_record().await {
                Note::Effect(Effect::DrawLockLsn { .. }) => self.draw_again().await?,
                Note::Effect(Effect::Acknowledge { version, .. }) => {
                    tracing::debug!(version = version.0, "the record is durable");
                    self.driver().end_local(true);
                    return Ok(());
                }
                Note::Effect(Effect::HomeLost { .. }) => {
                    self.link.servers.close(home);
                    self.link.settling = None;
                }
                Note::Effect(Effect::Abort { cause, .. }) => {
                    self.link.settling = None;
                    let fault = self.view().aborted(cause, home);
                    self.driver().step_back().await;
                    self.driver().end_local(false);
                    return Err(fault);
                }
                // A recall is found at the head of the loop.
                Note::Effect(Effect::RunAgain { .. }) | Note::Cancel | Note::Drained => {}
                Note::Effect(other) => tracing::error!(?other, "a session that waits for its record"),
                Note::End(end) => self.link.session_registration.note_end(end),
            }
        }
    }

    /// Tells the core what the transaction has changed, if other replicas may perform it.
    fn tell_digest(&self, body: &SealedBody) {
        if !self.link.client.may_be_recalled || !self.link.worker.performables.has(self.link.id) {
            return;
        }
        if let Some(digest) = digest(body) {
            self.link.coordinator().core.tell(Event::Digest { session: self.link.id, digest });
        }
    }

    /// The next note for a session that waits for its record. Where an older transaction may wait in a server for this one, which waits
    /// for that one, the servers are asked for their lock waits now and then.
    async fn next_of_record(&self) -> Note {
        let SessionRegistration { mailbox, .. } = &self.link.session_registration;
        if !self.link.client.may_be_recalled {
            return mailbox.next().await;
        }
        let mut patience = FIRST_LOOK;
        loop {
            if let Ok(note) = tokio::time::timeout(patience, mailbox.next()).await {
                return note;
            }
            self.link.coordinator().deadlock_search.notify_one();
            patience = NEXT_LOOK;
        }
    }

    /// Reads the WAL position of the home again, which proves that the transaction is still alive there.
    async fn draw_again(&mut self) -> Result<(), Fault> {
        let home = self.view().home();
        let drawn = match self.driver().own_query(DRAW_SQL).await {
            Ok(ended) => ended.row.and_then(|row| row.into_iter().next().flatten()),
            Err(_) => None,
        };
        let drawn = drawn.and_then(|value| String::from_utf8(value).ok()?.parse::<u64>().ok());
        if let Some(lsn) = drawn {
            self.link.worker.coordinator.core.tell(Event::LockLsn { session: self.link.id, lsn });
            return Ok(());
        }
        self.link.settling = None;
        self.link.servers.close(home);
        self.driver().end_transaction(false);
        Err(Fault::Lost(home))
    }

    /// Warns of a table without a primary key, once for each table and session.
    fn warn_of_searches(&mut self, claims: &ClaimsSoFar) {
        const WARNINGS_MAX: usize = 100;
        for (table, name) in claims.searched() {
            if self.txn.warned.len() < WARNINGS_MAX && self.txn.warned.insert(table) {
                let text =
                    format!("table \"{name}\" has no primary key, so its updates and deletes are slow");
                let hint = "Each changed row is searched for at the other replicas. Add a primary key.";
                self.link.tell_client(Severity::Warning, sqlstate::WARNING, &text, Some(hint));
            }
        }
    }
}
