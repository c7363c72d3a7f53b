//! Beginning and ending transactions at the home of updates.
//!
//! The commit, step by step (DESIGN section 3). With the last statement, or before COMMIT: `SET CONSTRAINTS ALL
//! IMMEDIATE` where the catalogue has deferrable ones, the client's time-outs neutralised, the identity inserted into
//! `onecopy.applied`. Then the record goes to the core, which appends it when nothing it may depend on can be lost any
//! more. When it is durable the client is answered. COMMIT follows when it is this version's turn at home; until its
//! reply is read, the session does nothing else. From the append on only the log decides: a lost connection, or a tag
//! other than COMMIT, makes the home be reset and the record be applied there from the log.

use cluster::event::{Effect, Event, Reads};
use cluster::ids::{Identity, Incarnation, Nonce, ReplicaId, TableId, Version};
use sql::{Isolation, TransactionOptions};
use wire::{encode, sqlstate};

use super::cancel::Doing;
use super::claims::{ClaimsSoFar, complete, searched};
use super::fault::{Fault, Refusal};
use super::relay::{Capture, Ended, Expected, Relay};
use super::servers::Server;
use super::session::{Placed, RETRY_PAUSE, Session, Transaction, shutting_down};
use super::settings;
use super::work::Work;
use crate::mailbox::Note;

/// The prepared insert of the identity, on every connection to the home. The place in the WAL that it reports tells
/// later whose locks came first (`cluster::parts::tickets`); a sequence would do as well, but change `lastval()`.
const APPLIED_STATEMENT: &[u8] = b"onecopy applied";
const APPLIED_SQL: &[u8] = b"INSERT INTO onecopy.applied (epoch, n, nonce) VALUES ($1, $2, $3) \
                             RETURNING pg_catalog.pg_current_wal_insert_lsn()";
const INT4_OID: u32 = 23;
const INT8_OID: u32 = 20;

/// Draws again; the same number as text.
const DRAW_SQL: &[u8] =
    b"SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')::int8";

/// Only COMMIT follows the append, and it must not fail because of the client's time-outs.
const NO_TIMEOUTS: &[u8] = b"SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; \
                             SET LOCAL idle_in_transaction_session_timeout = 0";

/// How often the home is tried before the client is told.
const HOME_ATTEMPTS: u32 = 500;

/// Time that a statement of an update is expected to take until more is known.
pub(crate) const UPDATE_COST_US: u32 = 200;

/// A transaction that may write.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) identity: Identity,
    pub(crate) replica: ReplicaId,
    /// The client did not say BEGIN: it ends with the statement, the query string or the batch.
    pub(crate) is_implicit: bool,
    /// As the client asked for it, with the session's defaults put in.
    pub(crate) options: TransactionOptions,
    pub(crate) capture: Capture,
    pub(crate) claims: ClaimsSoFar,
    /// What home drew when the identity was inserted.
    pub(crate) ticket: Option<u64>,
    /// It has changed the schema.
    pub(crate) has_ddl: bool,
    /// It has a WITH HOLD cursor, whose query runs inside COMMIT and may fail there.
    pub(crate) has_hold: bool,
}

impl Session {
    /// What a transaction is, with the session's defaults where its BEGIN said nothing.
    pub(crate) fn resolve(&self, said: TransactionOptions) -> TransactionOptions {
        TransactionOptions {
            isolation: said.isolation.or(Some(self.settings.isolation)),
            read_only: said.read_only.or(Some(self.settings.read_only)),
            deferrable: said.deferrable,
        }
    }

    /// Opens an update transaction at its home: its BEGIN is in the output, before the first statement.
    pub(crate) async fn open_update(
        &mut self,
        options: TransactionOptions,
        reads: Reads,
        is_implicit: bool,
    ) -> Result<(), Fault> {
        if self.is_settling {
            self.settle().await;
        }
        let isolation = options.isolation.unwrap_or(Isolation::ReadCommitted);
        let reads = if isolation >= Isolation::RepeatableRead { Reads::All } else { reads };
        let mut attempts = 0;
        loop {
            attempts += 1;
            let event = Event::Begin {
                session: self.id,
                serializable: isolation == Isolation::Serializable,
                nonce: nonce()?,
                reads: reads.clone(),
                cost_us: UPDATE_COST_US,
                catalogue: Version(self.hub().catalogue().generation()),
            };
            self.cancel.set(Doing::Waiting);
            let Placed::At(place) = self.place(event).await? else { continue };
            let Self { worker, servers, settings, .. } = &mut *self;
            match servers.ensure(&worker.hub, settings, place.replica, place.incarnation).await {
                Ok(server) => {
                    server.query(begin(options).as_bytes());
                    server.own_units += 1;
                    let identity = place.identity.ok_or_else(|| broken("no identity was given"))?;
                    self.transaction = Transaction::Update(Box::new(Update {
                        identity,
                        replica: place.replica,
                        is_implicit,
                        options,
                        capture: Capture::default(),
                        claims: ClaimsSoFar::default(),
                        ticket: None,
                        has_ddl: false,
                        has_hold: false,
                    }));
                    return Ok(());
                }
                Err(fault) => {
                    self.forget_update();
                    if !matches!(fault, Fault::Lost(_)) || attempts == HOME_ATTEMPTS {
                        return Err(fault);
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Waits until a further statement of the open update transaction may run.
    pub(crate) async fn gate(&mut self, reads: Reads) -> Result<(), Fault> {
        let reads = match &self.transaction {
            Transaction::Update(update) if update.options.isolation >= Some(Isolation::RepeatableRead) => {
                // Its snapshot is taken; nothing newer is needed.
                Reads::Tables([].into())
            }
            _ => reads,
        };
        let event = Event::Statement {
            session: self.id,
            reads,
            cost_us: UPDATE_COST_US,
            catalogue: Version(self.hub().catalogue().generation()),
        };
        self.cancel.set(Doing::Waiting);
        match self.place(event).await {
            Ok(Placed::At(_)) => Ok(()),
            Ok(Placed::Again | Placed::Aborted) => Err(self.home_lost()),
            // The core has forgotten the transaction; the server must, too.
            Err(fault) => {
                self.abandon_home();
                Err(fault)
            }
        }
    }

    /// Runs work in the open update transaction. After an error of the connection the transaction is gone.
    pub(crate) async fn at_home(&mut self, work: Work<'_>, hold: bool) -> Result<Ended, Fault> {
        let ended = self.exchange_home(|server| Expected { hold, ..work.write(server) }).await?;
        self.executed();
        Ok(ended)
    }

    /// Sends what `write` puts into the home's output and reads one unit.
    pub(crate) async fn exchange_home(
        &mut self,
        write: impl FnOnce(&mut Server) -> Expected,
    ) -> Result<Ended, Fault> {
        let anchor = self.anchor();
        let Transaction::Update(update) = &mut self.transaction else {
            return Err(broken("no update transaction is open"));
        };
        let server = self.servers.get(update.replica);
        let expected = write(server);
        self.cancel.set(doing(&self.worker.hub, server));
        let result = if server.connection.flush().await.is_err() {
            Err(Fault::Lost(update.replica))
        } else {
            let is_anchor = update.replica == anchor;
            Relay::new(&mut self.client, server, Some(&mut update.capture), is_anchor).run(expected).await
        };
        self.cancel.set(Doing::Nothing);
        match result {
            Ok(ended) => Ok(ended),
            Err(fault) => {
                self.abandon_home();
                Err(fault)
            }
        }
    }

    /// One query of our own in the open update transaction; its error is the transaction's.
    pub(crate) async fn own_query(&mut self, sql: &[u8]) -> Result<Ended, Fault> {
        let ended = self
            .exchange_home(|server| {
                server.query(sql);
                Expected { silent: true, ..Expected::default() }
            })
            .await?;
        match ended.error {
            Some(body) => Err(Fault::Server(body)),
            None => Ok(ended),
        }
    }

    /// Puts the insert of the identity into the home's output; it answers with a unit of its own.
    pub(crate) fn write_identity(&mut self) -> Result<(), Fault> {
        let Transaction::Update(update) = &mut self.transaction else {
            return Err(broken("no update transaction is open"));
        };
        let server = self.servers.get(update.replica);
        let output = &mut server.connection.output;
        if !server.applied_ready {
            encode::parse(output, APPLIED_STATEMENT, APPLIED_SQL, &[INT4_OID, INT8_OID, INT8_OID]);
            server.applied_ready = true;
        }
        let Identity { epoch, n, nonce } = update.identity;
        let (epoch, n, nonce) = (epoch.0.to_be_bytes(), n.to_be_bytes(), nonce.0.to_be_bytes());
        let values = [Some(&epoch[..]), Some(&n[..]), Some(&nonce[..])];
        encode::bind(output, b"", APPLIED_STATEMENT, &values, encode::Format::Binary);
        encode::execute(output, b"", 0);
        encode::sync(output);
        Ok(())
    }

    /// Reads the reply to [`Session::write_identity`].
    pub(crate) async fn read_identity(&mut self) -> Result<(), Fault> {
        let ended = self.exchange_home(|_| Expected { silent: true, ..Expected::default() }).await?;
        if let Some(body) = ended.error {
            return Err(Fault::Server(body));
        }
        let drawn = ended.row.and_then(|row| row.into_iter().next().flatten());
        let drawn = drawn.and_then(|value| value.try_into().ok()).map(u64::from_be_bytes);
        if let (Some(ticket), Transaction::Update(update)) = (drawn, &mut self.transaction) {
            update.ticket = Some(ticket);
            return Ok(());
        }
        Err(broken("the home drew no number"))
    }

    /// Commits the open update transaction. When it returns, the client may be answered; on an error the transaction
    /// is rolled back. The COMMIT at home may still have to be sent: see [`Session::settle`].
    pub(crate) async fn commit_home(&mut self) -> Result<(), Fault> {
        match self.prepare_commit().await {
            Ok(true) => self.commit_logged().await,
            Ok(false) => self.commit_unlogged().await,
            Err(fault) => {
                self.roll_back_home().await;
                if let Transaction::Lost(_) = self.transaction {
                    self.end_local(false);
                }
                Err(fault)
            }
        }
    }

    /// Does all that can fail; whether there is anything to log.
    async fn prepare_commit(&mut self) -> Result<bool, Fault> {
        if self.hub().catalogue().has_deferrable() || self.has_ddl() {
            self.own_query(b"SET CONSTRAINTS ALL IMMEDIATE").await?;
        }
        let Transaction::Update(update) = &self.transaction else {
            return Err(broken("no update transaction is open"));
        };
        if update.capture.record.is_empty() {
            return Ok(false);
        }
        if update.has_hold {
            return Err(Refusal::unsupported(
                "a WITH HOLD cursor in a transaction that writes",
                "Its query runs inside COMMIT, which must not fail any more. Declare it in a transaction of its own.",
            )
            .into());
        }
        if self.settings.has_timeouts {
            self.own_query(NO_TIMEOUTS).await?;
        }
        if !self.is_identified() {
            self.write_identity()?;
            self.read_identity().await?;
        }
        self.check_capture().await?;
        let Transaction::Update(update) = &self.transaction else {
            return Err(broken("the update transaction is gone"));
        };
        Ok(!update.capture.record.is_empty())
    }

    fn has_ddl(&self) -> bool {
        matches!(&self.transaction, Transaction::Update(update) if update.has_ddl)
    }

    fn is_identified(&self) -> bool {
        matches!(&self.transaction, Transaction::Update(update) if update.ticket.is_some())
    }

    /// It wrote nothing that others need: its COMMIT leaves no record.
    async fn commit_unlogged(&mut self) -> Result<(), Fault> {
        let ended = self
            .exchange_home(|server| {
                server.query(b"COMMIT");
                Expected { silent: true, ..Expected::default() }
            })
            .await;
        // However it ended, it is over: nothing of it was to be kept.
        self.end_transaction(matches!(&ended, Ok(ended) if ended.error.is_none()));
        ended?.error.map_or(Ok(()), |body| Err(Fault::Server(body)))
    }

    /// Hands the record over and waits until it is durable.
    async fn commit_logged(&mut self) -> Result<(), Fault> {
        let Transaction::Update(update) = &mut self.transaction else {
            return Err(broken("no update transaction is open"));
        };
        let (home, ticket) = (update.replica, update.ticket);
        let (record, claims) =
            (std::mem::take(&mut update.capture.record), std::mem::take(&mut update.claims));
        let body = Box::new(record.seal());
        let catalogue = self.hub().catalogue();
        self.warn_of_searches(searched(&body, &catalogue));
        let claims = complete(claims, &body, &catalogue);
        while !self.hub().log.has_room() {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        if let Some(ticket) = ticket {
            self.worker.hub.handle(Event::Drawn { session: self.id, ticket });
        }
        self.worker.hub.handle(Event::Finish { session: self.id, body, claims });
        self.is_settling = true;
        loop {
            match self.mailbox.next().await {
                Note::Effect(Effect::Draw { .. }) => self.draw_again().await?,
                Note::Effect(Effect::Acknowledge { .. }) => {
                    self.end_local(true);
                    return Ok(());
                }
                Note::Effect(Effect::HomeLost { .. }) => {
                    self.servers.close(home);
                    self.is_settling = false;
                }
                Note::Effect(Effect::Abort { .. }) => {
                    self.servers.close(home);
                    self.is_settling = false;
                    self.end_local(false);
                    return Err(Fault::Lost(home));
                }
                Note::Effect(other) => tracing::error!(?other, "a session that waits for its record"),
                Note::Cancel => {}
                Note::Shutdown => self.is_stopping = true,
            }
        }
    }

    /// The home is asked for another number, which proves that this transaction is still alive there.
    async fn draw_again(&mut self) -> Result<(), Fault> {
        let home = self.anchor();
        let drawn = match self.own_query(DRAW_SQL).await {
            Ok(ended) => ended.row.and_then(|row| row.into_iter().next().flatten()),
            Err(_) => None,
        };
        let drawn = drawn.and_then(|value| String::from_utf8(value).ok()?.parse::<u64>().ok());
        if let Some(ticket) = drawn {
            self.worker.hub.handle(Event::Drawn { session: self.id, ticket });
            return Ok(());
        }
        self.is_settling = false;
        self.servers.close(home);
        self.end_transaction(false);
        Err(Fault::Lost(home))
    }

    /// Once for each table and session.
    fn warn_of_searches(&mut self, tables: Vec<(TableId, String)>) {
        const WARNINGS_MAX: usize = 100;
        for (table, name) in tables {
            if self.warned.len() < WARNINGS_MAX && self.warned.insert(table) {
                let text =
                    format!("table \"{name}\" has no primary key, so its updates and deletes are slow");
                let hint = "Each changed row is searched for at the other replicas. Add a primary key.";
                encode::notice(&mut self.client.out, "WARNING", sqlstate::WARNING, &text, Some(hint));
            }
        }
    }

    /// Sends the COMMIT of an acknowledged record when it is its turn at home, and reads the reply.
    pub(crate) async fn settle(&mut self) {
        let home = self.anchor();
        while self.is_settling {
            match self.mailbox.next().await {
                Note::Effect(Effect::Commit { .. }) => {
                    let committed = self.send_commit(home).await;
                    self.is_settling = false;
                    let event = match committed {
                        Ok(()) => Event::Committed { session: self.id },
                        Err(incarnation) => {
                            self.servers.close(home);
                            Event::ReplicaLost { replica: home, incarnation }
                        }
                    };
                    self.worker.hub.handle(event);
                    self.mailbox.clear();
                }
                Note::Effect(Effect::HomeLost { .. }) => {
                    self.servers.close(home);
                    self.is_settling = false;
                }
                Note::Effect(other) => tracing::error!(?other, "a session that waits for its turn"),
                Note::Cancel => {}
                Note::Shutdown => self.is_stopping = true,
            }
        }
    }

    /// The error is the incarnation of the home that did not acknowledge.
    async fn send_commit(&mut self, home: ReplicaId) -> Result<(), Incarnation> {
        let Some(server) = self.servers.find(home) else { return Ok(()) };
        let incarnation = server.incarnation;
        server.query(b"COMMIT");
        if server.connection.flush().await.is_err() {
            return Err(incarnation);
        }
        let expected = Expected { silent: true, ..Expected::default() };
        match Relay::new(&mut self.client, server, None, true).run(expected).await {
            Ok(ended) if ended.error.is_none() && ended.command == b"COMMIT" => Ok(()),
            _ => Err(incarnation),
        }
    }

    /// Rolls the open update transaction back at its home.
    pub(crate) async fn roll_back_home(&mut self) {
        let Transaction::Update(update) = &self.transaction else { return };
        let server = self.servers.find(update.replica);
        let is_in_step = server.is_some_and(|server| {
            let unsent = server.own_units > 0;
            if unsent {
                // Its BEGIN was never sent.
                server.connection.output.clear();
                server.own_units = 0;
            }
            !unsent
        });
        if is_in_step {
            // An error closes the connection, which rolls back as well.
            let _ = self.own_query(b"ROLLBACK").await;
        }
        if let Transaction::Update(_) = self.transaction {
            self.end_transaction(false);
        }
    }

    /// Gives the home's connection up, and with it what is open on it.
    pub(crate) fn abandon_home(&mut self) {
        if let Transaction::Update(update) = &self.transaction {
            let (replica, options, is_implicit) = (update.replica, update.options, update.is_implicit);
            self.servers.close(replica);
            self.end_transaction(false);
            if !is_implicit {
                self.lose(options);
            }
        }
    }

    /// The client's transaction has lost its server: it is failed until the client ends it.
    pub(crate) fn lose(&mut self, options: TransactionOptions) {
        self.transaction = Transaction::Lost(options);
        self.failed = true;
    }

    /// The loss is told once, as an error of the next statement, COMMIT included.
    pub(crate) fn tell_loss(&mut self) -> Result<(), Fault> {
        if std::mem::take(&mut self.must_tell_loss) {
            return Err(Fault::Lost(self.anchor()));
        }
        Ok(())
    }

    /// The home is lost under the open transaction; a statement of it was not sent.
    pub(crate) fn home_lost(&mut self) -> Fault {
        let home = self.anchor();
        self.abandon_home();
        Fault::Lost(home)
    }

    /// The transaction at home is over without a record.
    pub(crate) fn end_transaction(&mut self, committed: bool) {
        self.forget_update();
        self.end_local(committed);
    }

    pub(crate) fn end_local(&mut self, committed: bool) {
        self.transaction = Transaction::None;
        self.failed = false;
        self.savepoints.clear();
        self.prepared.drop_portals();
        if committed {
            self.settings.keep_staged();
        } else {
            self.settings.drop_staged();
        }
    }

    fn forget_update(&mut self) {
        self.worker.hub.handle(Event::End { session: self.id });
        self.mailbox.clear();
    }

    /// The client is told that the node stops as soon as nothing is half done.
    pub(crate) fn check_stopping(&self) -> Result<(), Fault> {
        if self.is_stopping { Err(Fault::Fatal(shutting_down())) } else { Ok(()) }
    }
}

/// What a cancel request reaches.
pub(crate) fn doing(hub: &crate::hub::Hub, server: &Server) -> Doing {
    let address = hub.seats[usize::from(server.replica.0)].address.clone();
    Doing::Running(address, server.connection.pid, server.connection.secret.clone())
}

/// The BEGIN of a transaction that may write. SERIALIZABLE runs at REPEATABLE READ inside PostgreSQL, whose own
/// serializability could fail a COMMIT that is in the log (pitfalls 1.1).
fn begin(options: TransactionOptions) -> String {
    let isolation = match options.isolation {
        Some(Isolation::Serializable) => Isolation::RepeatableRead,
        other => other.unwrap_or(Isolation::ReadCommitted),
    };
    let mode = if options.read_only == Some(true) { "READ ONLY" } else { "READ WRITE" };
    format!("BEGIN ISOLATION LEVEL {} {mode}", settings::level(isolation))
}

fn nonce() -> Result<Nonce, Fault> {
    getrandom::u64().map(Nonce).map_err(|error| {
        Fault::Refused(Refusal::plain(
            sqlstate::INTERNAL_ERROR,
            format!("no random number could be had: {error}"),
        ))
    })
}

/// An invariant of the session does not hold; the client gets an internal error, not a wrong answer.
pub(crate) fn broken(what: &str) -> Fault {
    Fault::Fatal(Refusal::plain(sqlstate::INTERNAL_ERROR, format!("internal error of Onecopy: {what}")))
}
