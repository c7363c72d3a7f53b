//! Beginning and ending transactions at the home of updates; [`crate::commit`] is what lies between.
//!
//! Every statement that may write runs inside a BEGIN of ours, at the home, on a connection that defaults to read-only: so
//! nothing is written that is not captured, and what commits by itself is refused by PostgreSQL.

pub(crate) mod conflict_detail;
pub(crate) mod definitions;
pub(crate) mod profile;
pub(crate) mod reasons;
pub(crate) mod wait;
pub(crate) mod wait_stats;

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::claims::Claims;
use cluster::event::{Event, Home, Level, Needs, Reads};
use cluster::ids::{Identity, Nonce, ReplicaId, SequenceId, Version};
use sql::{Because, Isolation, TemplateId, TransactionOptions};
use tokio::time::Instant;
use wire::sqlstate;

use crate::client::cancel::Doing;
use crate::coordinator::memory_budget::Phase;
use crate::error::{Fault, Refusal};
use crate::execute::ddl::SchemaChanges;
use crate::place::home_choice::{Opening, ReadSoFar, inside};
use crate::place::sequence_leases::Uses;
use crate::pool::servers::Server;
use crate::propagate::sequence_marks::Drawn;
use crate::relay::work::Work;
use crate::relay::{Ended, Expected, Relay};
use crate::session::{Placed, RETRY_PAUSE, Session, Transaction};
use crate::writeset::Capture;
use definitions::{Definitions, names_in};
use reasons::Reason;

/// How often its home may be lost before anything of it has run there until the client is told.
const HOME_LOSSES_MAX: u32 = 500;

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
    /// It is one statement by itself, which is run again if another transaction was first.
    pub(crate) is_alone: bool,
    /// It has written what nobody foresaw, and what was not asked for since.
    pub(crate) has_surprises: bool,
    /// What it may have drawn from sequences.
    pub(crate) drawn: Drawn,
    /// It began where sequences are lent to, not at the anchor.
    pub(crate) is_borrowing: bool,
    /// A savepoint of ours was set before the last statement that drew there.
    pub(crate) is_guarded: bool,
    /// What it draws from there.
    pub(crate) uses: Uses,
    /// The sequences that its statements may have drawn from by defaults.
    pub(crate) draws: BTreeSet<SequenceId>,
    /// What home drew when the identity was inserted.
    pub(crate) ticket: Option<u64>,
    /// It has changed the schema.
    pub(crate) has_ddl: bool,
    /// What these changes leave of the catalogue.
    pub(crate) schema_changes: SchemaChanges,
    /// What it uses and defines anew.
    pub(crate) definitions: Definitions,
    /// Statements of its own may have changed roles or other things that all databases share: how many changes of such
    /// things there were after the last one.
    pub(crate) shared_changes: Option<String>,
    /// Something ran that nobody can bound: it may have touched what capture does not see.
    pub(crate) is_suspect: bool,
    /// A statement wrote rows, by its tag, of which none was captured.
    pub(crate) is_uncaptured: bool,
    /// The present statement writes what its tag does not count.
    pub(crate) has_uncounted: bool,
    /// The oldest catalogue by which one of its statements was judged.
    pub(crate) generation: Version,
    /// A statement locks rows without writing them.
    pub(crate) has_locks: bool,
    /// Rows of it are in a file, which was given to the log.
    pub(crate) has_file: bool,
    /// It has a WITH HOLD cursor, whose query runs inside COMMIT and may fail there.
    pub(crate) has_hold: bool,
    /// A statement has run that takes the snapshot which REPEATABLE READ keeps.
    pub(crate) has_snapshot: bool,
    /// The template that it began with, until it is known what to learn from it.
    pub(crate) first: Option<TemplateId>,
    /// Only the anchor can be its home.
    pub(crate) needs_anchor: bool,
    /// It has done nothing but to read, and nobody can tell where.
    pub(crate) only_read: bool,
    /// At SERIALIZABLE: a statement may have written. What came of it speaks of now, what was read of the snapshot, so
    /// there is a record that is certified, also if nothing is left of it.
    pub(crate) is_certified: bool,
    /// What it has read, at SERIALIZABLE.
    pub(crate) read: ReadSoFar,
}

impl Update {
    /// One that has done nothing yet.
    fn new(
        (identity, replica): (Identity, ReplicaId),
        options: TransactionOptions,
        is_implicit: bool,
        capture: Capture,
    ) -> Self {
        Self {
            identity,
            replica,
            is_implicit,
            options,
            capture,
            is_alone: false,
            has_surprises: false,
            drawn: Drawn::default(),
            is_borrowing: false,
            is_guarded: false,
            uses: Uses::new(),
            draws: BTreeSet::new(),
            ticket: None,
            has_ddl: false,
            schema_changes: SchemaChanges::default(),
            definitions: Definitions::default(),
            shared_changes: None,
            is_suspect: false,
            is_uncaptured: false,
            has_uncounted: false,
            generation: Version(u64::MAX),
            has_locks: false,
            has_file: false,
            has_hold: false,
            has_snapshot: false,
            first: None,
            needs_anchor: false,
            only_read: true,
            is_certified: false,
            read: ReadSoFar::default(),
        }
    }
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
        opening: Opening,
        is_implicit: bool,
    ) -> Result<(), Fault> {
        if self.is_settling {
            self.settle().await;
        }
        let isolation = options.isolation.unwrap_or(Isolation::ReadCommitted);
        self.begin_strain(opening.template);
        let Opening { reads, mut writes, foreseen, nowait, mut home, mut reason, .. } = opening;
        let Opening { draws, asks_draws, generation, .. } = opening;
        lock_reads(isolation, &reads, &mut writes);
        let reads = if isolation >= Isolation::RepeatableRead { Reads::All } else { reads };
        let (mut losses, mut patience) = (0, None);
        loop {
            let needs = self.needs(reads.clone(), writes.clone());
            let event = self.beginning((level_of(isolation), home), needs, foreseen.clone())?;
            self.cancel.set(Doing::Waiting);
            let Placed::At(place) = self.place_update(event, nowait).await? else { continue };
            if self.is_stale_at(place.replica, generation) {
                self.forget_update();
                return Err(Fault::Unplaced(place.replica));
            }
            let Some(uses) = self.may_draw(&draws, place.replica) else {
                self.forget_update();
                if asks_draws {
                    self.await_lease(&draws, place.replica).await?;
                } else {
                    (home, reason) = (Home::Anchor, Reason::Needs(Because::Update));
                }
                continue;
            };
            if let Err(fault) = self.await_sequences(place.replica).await {
                self.forget_update();
                return Err(fault);
            }
            if !self.has_room_at(place, &mut patience).await? {
                continue;
            }
            let Self { id, worker, servers, settings, progress, .. } = &mut *self;
            match servers.ensure(&worker.hub, settings, place.replica, place.incarnation).await {
                Ok(server) => {
                    // SERIALIZABLE is ours to certify: PostgreSQL's own could fail a COMMIT that is in the log (pitfalls 1.1).
                    server.begin(inside(options), options.read_only == Some(true));
                    let tenancy = server.move_in(*id);
                    let identity = place.identity.ok_or_else(|| broken("no identity was given"))?;
                    let mut capture = Capture::new(Arc::clone(&worker.hub), identity, Arc::clone(progress));
                    capture.claims.begin_turn(0);
                    worker.hub.transactions.begin(progress, place.replica);
                    let is_borrowing = place.replica != worker.hub.anchor();
                    let update = Update::new((identity, place.replica), options, is_implicit, capture);
                    self.draws.ranges = uses.iter().map(|(id, one)| (*id, one.range())).collect();
                    let mut update = Update { is_borrowing, uses, ..update };
                    update.definitions.note_asked(names_in(&writes));
                    self.transaction = Transaction::Update(Box::new(update));
                    (self.last_home, self.tenancy) = (place.replica, Some(tenancy));
                    if !is_borrowing {
                        self.count(|stats| reason.counter(stats));
                    }
                    return Ok(());
                }
                Err(fault) => {
                    self.forget_update();
                    losses += 1;
                    if !matches!(fault, Fault::Lost(_)) || losses >= HOME_LOSSES_MAX {
                        return Err(fault);
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    fn beginning(
        &self,
        (level, home): (Level, Home),
        needs: Needs,
        foreseen: Claims,
    ) -> Result<Event, Fault> {
        Ok(Event::Begin { session: self.id, level, nonce: nonce()?, home, needs, foreseen })
    }

    fn needs(&self, reads: Reads, writes: Claims) -> Needs {
        Needs {
            reads,
            writes,
            cost_us: self.cost_us.unwrap_or(UPDATE_COST_US),
            near: self.near,
            catalogue: Version(self.hub().catalogue().generation()),
        }
    }

    /// Waits until a further statement of the open update transaction may run.
    pub(crate) async fn gate(&mut self, reads: Reads, mut writes: Claims, nowait: bool) -> Result<(), Fault> {
        let is_write = !writes.is_empty();
        if let Transaction::Update(update) = &self.transaction {
            lock_reads(update.options.isolation.unwrap_or(Isolation::ReadCommitted), &reads, &mut writes);
        }
        let reads = match &self.transaction {
            Transaction::Update(update) if update.options.isolation >= Some(Isolation::RepeatableRead) => {
                match update.has_snapshot {
                    false => Reads::All,
                    // What its constraints find is not of the snapshot, but of now.
                    true if is_write => reads,
                    // Nothing newer than the snapshot is seen.
                    true => Reads::Tables([].into()),
                }
            }
            _ => reads,
        };
        self.pass_gate(reads, writes, nowait).await
    }

    /// The same, whatever the isolation.
    pub(crate) async fn pass_gate(
        &mut self,
        reads: Reads,
        mut writes: Claims,
        nowait: bool,
    ) -> Result<(), Fault> {
        if let Transaction::Update(update) = &self.transaction {
            update.definitions.leave_out_known(&mut writes);
        }
        let asked = names_in(&writes);
        let event = Event::Statement { session: self.id, needs: self.needs(reads, writes) };
        self.cancel.set(Doing::Waiting);
        match self.place_update(event, nowait).await {
            Ok(Placed::At(_)) => {
                if let Transaction::Update(update) = &mut self.transaction {
                    let elements = update.capture.record.elements();
                    update.capture.claims.begin_turn(elements);
                    update.definitions.note_asked(asked);
                }
                Ok(())
            }
            Ok(Placed::Again) => Err(self.home_lost()),
            Ok(Placed::Aborted(cause)) => {
                let fault = self.aborted(cause, self.last_home);
                self.step_back().await;
                Err(fault)
            }
            // Nothing was sent: what the transaction did before stands, and a savepoint leads back to it.
            Err(fault @ Fault::Refused(_)) => Err(fault),
            // The core has forgotten the transaction; the server must, too.
            Err(fault) => {
                self.abandon_home();
                Err(fault)
            }
        }
    }

    /// Runs work in the open update transaction. After an error of the connection the transaction is gone.
    pub(crate) async fn at_home(&mut self, work: Work<'_>, hold: bool) -> Result<Ended, Fault> {
        let before = self.rows_captured();
        let ended = self.exchange_home(|server| Expected { hold, ..work.write(server) }).await?;
        self.note_written(&ended.command, before);
        self.executed();
        Ok(ended)
    }

    /// Sends what `write` puts into the home's output and reads one unit.
    pub(crate) async fn exchange_home(
        &mut self,
        write: impl FnOnce(&mut Server) -> Expected,
    ) -> Result<Ended, Fault> {
        let Transaction::Update(update) = &mut self.transaction else {
            return Err(broken("no update transaction is open"));
        };
        let server = self.servers.get(update.replica);
        let expected = write(server);
        self.cancel.set(Doing::Running(Arc::clone(&server.running)));
        let sent = Instant::now();
        let result = Relay::new(&mut self.client, server, Some(&mut update.capture)).run(expected).await;
        self.cancel.set(Doing::Nothing);
        self.strain.worked(sent);
        match result {
            Ok(ended) => Ok(ended),
            Err(fault) => {
                // The core may have ended the transaction, and its backend with it.
                let cause = self.why_aborted();
                self.leave_home(&fault).await;
                Err(cause.map_or(fault, |cause| self.aborted(cause, self.last_home)))
            }
        }
    }

    /// One query of our own in the open update transaction; its error is the transaction's.
    pub(crate) async fn own_query(&mut self, sql: &str) -> Result<Ended, Fault> {
        let ended = self
            .exchange_home(|server| {
                server.query_own(sql);
                Expected { silent: true, runs_code: true, ..Expected::default() }
            })
            .await?;
        match ended.error {
            Some(body) => Err(Fault::Server(body)),
            None => Ok(ended),
        }
    }

    /// Rolls the open update transaction back at its home.
    pub(crate) async fn roll_back_home(&mut self) {
        let Transaction::Update(update) = &self.transaction else { return };
        let server = self.servers.find(update.replica);
        let is_in_step = server.is_some_and(|server| {
            let unsent = !server.ahead.is_empty();
            if unsent {
                // Its BEGIN was never sent.
                server.connection.take_back();
                server.ahead.clear();
            }
            !unsent
        });
        if is_in_step {
            // An error closes the connection, which rolls back as well.
            let _ = self.own_query("ROLLBACK").await;
        }
        match self.transaction {
            Transaction::None => {}
            // The client has asked for its end, so there is nothing left that it would have to be told.
            Transaction::Lost(_) => self.end_local(false),
            _ => self.end_transaction(false),
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
            return Err(self.loss());
        }
        Ok(())
    }

    /// The home is lost under the open transaction; a statement of it was not sent.
    pub(crate) fn home_lost(&mut self) -> Fault {
        self.abandon_home();
        Fault::Lost(self.last_home)
    }

    /// What the client is told of the loss of its transaction, once.
    pub(crate) fn loss(&mut self) -> Fault {
        self.loss.take().map_or(Fault::Lost(self.last_home), Fault::Rival)
    }

    /// The transaction at home is over without a record.
    pub(crate) fn end_transaction(&mut self, committed: bool) {
        self.forget_update();
        self.end_local(committed);
    }

    pub(crate) fn end_local(&mut self, committed: bool) {
        if committed {
            self.note_beginning();
        }
        if matches!(self.transaction, Transaction::Update(_)) {
            self.note_strain();
        }
        self.transaction = Transaction::None;
        self.progress.set_phase(if self.is_settling { Phase::Committing } else { Phase::None });
        if !self.is_settling {
            self.tenancy = None;
        }
        self.failed = false;
        self.named.forget();
        self.settings.end_local();
        self.savepoints.clear();
        self.end_course(committed);
        self.prepared.drop_portals();
        if committed {
            self.settings.keep_staged();
        } else {
            self.settings.drop_staged();
        }
    }

    pub(crate) fn forget_update(&mut self) {
        self.worker.hub.handle(Event::End { session: self.id });
        self.mailbox.clear();
    }
}

fn level_of(isolation: Isolation) -> Level {
    match isolation {
        Isolation::Serializable => Level::Serializable,
        Isolation::RepeatableRead => Level::RepeatableRead,
        Isolation::ReadUncommitted | Isolation::ReadCommitted => Level::ReadCommitted,
    }
}

/// At SERIALIZABLE the rows that are read by key are waited for, too: who reads and then writes waits instead of failing.
fn lock_reads(isolation: Isolation, reads: &Reads, writes: &mut Claims) {
    if let (Isolation::Serializable, Reads::Rows(rows)) = (isolation, reads) {
        writes.rows.extend(rows.rows.iter().filter(|(table, _)| !writes.tables.contains(table)));
        writes.rows.sort_unstable();
        writes.rows.dedup();
    }
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
