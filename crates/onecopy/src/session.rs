//! A session: one client connection, from log-in to its end.
//!
//! It is one task on one thread, and owns everything it uses: the client's socket, its server connections, its
//! settings and prepared statements, its transaction. What it shares with others is the hub: events go there, notes
//! come from there. The files beside this one are its parts: [`simple`] and [`extended`] read the two
//! query protocols, [`crate::execute::statement`] decides what becomes of one statement, [`crate::transaction`] begins and ends
//! transactions, [`crate::relay`] passes replies on.

pub(crate) mod admin;
pub(crate) mod control;
pub(crate) mod extended;
pub(crate) mod simple;
pub(crate) mod special;
pub(crate) mod stand_ins;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use cluster::event::{AbortCause, Effect, Event, Home};
use cluster::ids::{Identity, Incarnation, ReplicaId, SessionId, TableId};
use sql::{Analyzer, TransactionOptions};
use tokio::time::Instant;
use wire::backend::Status;
use wire::frontend::tag;
use wire::{encode, sqlstate};

use crate::accept::credentials::Credentials;
use crate::classify::parsing::Parsers;
use crate::client::Client;
use crate::client::cancel::{CancelKeys, CancelTarget};
use crate::client::prepared::Prepared;
use crate::client::settings::Settings;
use crate::coordinator::evictions::Tenancy;
use crate::coordinator::mailbox::{End, Mailbox, Note};
use crate::coordinator::memory_budget::Progress;
use crate::coordinator::session_registry::{Card, Doing};
use crate::coordinator::{Hub, count};
use crate::error::{Fault, Refusal};
use crate::place::home_choice::Again;
use crate::place::sequence_leases::Draws;
use crate::pool::Thread;
use crate::pool::leftovers::Look;
use crate::pool::servers::Servers;
use crate::transaction::Update;
use crate::transaction::conflict_detail::Named;
use crate::transaction::profile::Course;
use crate::transaction::wait::{Aim, Wait, is_free};
use crate::transaction::wait_stats::Strain;
use special::Savepoint;

/// How long a statement waits for its place before it gives up.
pub(crate) const WAIT_MAX: Duration = Duration::from_mins(1);
/// How often a single-statement transaction is run again, unseen.
pub(crate) const RETRIES_MAX: u32 = 3;
/// The pause before it is run again.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// What all sessions of one thread share.
pub(crate) struct Worker {
    pub(crate) hub: Arc<Hub>,
    pub(crate) analyzer: RefCell<Analyzer>,
    pub(crate) parsers: Arc<Parsers>,
    pub(crate) keys: Arc<CancelKeys>,
    /// Which of the threads it is.
    pub(crate) thread: Thread,
    pub(crate) credentials: Credentials,
}

/// The transaction as the client sees it.
#[derive(Debug)]
pub(crate) enum Transaction {
    /// None is open.
    None,
    /// The client said BEGIN, and nothing has run yet.
    Begun(TransactionOptions),
    /// A read-only transaction, open on one replica.
    Read(ReadOnly),
    /// A transaction that may write, open at its home.
    Update(Box<Update>),
    /// The server where it was open is lost; it can only be rolled back.
    Lost(TransactionOptions),
}

/// A read-only transaction on a replica.
#[derive(Debug)]
pub(crate) struct ReadOnly {
    pub(crate) replica: ReplicaId,
    pub(crate) options: TransactionOptions,
    /// The client may go on to write: it comes home then.
    pub(crate) is_roaming: bool,
    /// Its snapshot outlives its statements.
    pub(crate) is_snapshot: bool,
    /// The snapshot is taken. SAVEPOINT, SET, SHOW and LOCK take none, so it is not always the first statement's.
    pub(crate) has_snapshot: bool,
}

/// Where a statement may run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) replica: ReplicaId,
    pub(crate) incarnation: Incarnation,
    pub(crate) identity: Option<Identity>,
}

/// What came of asking for a place.
pub(crate) enum Placed {
    At(Place),
    /// The catalogue was out of date; the present one is to be used.
    Again,
    /// The transaction is over, or the replica where it is open is lost.
    Aborted(AbortCause),
}

/// One client connection.
pub(crate) struct Session {
    pub(crate) worker: Rc<Worker>,
    pub(crate) id: SessionId,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) client: Client,
    pub(crate) servers: Servers,
    pub(crate) settings: Settings,
    pub(crate) transaction: Transaction,
    /// What its statements have named.
    pub(crate) named: Named,
    /// The open transaction can only be rolled back.
    pub(crate) failed: bool,
    /// A record is acknowledged, and its COMMIT at home is still to be sent.
    pub(crate) is_settling: bool,
    /// Where that is.
    pub(crate) settling_at: ReplicaId,
    pub(crate) prepared: Prepared,
    /// An error in the extended protocol: skip until Sync.
    pub(crate) skipping: bool,
    /// Something exists only on the home's connection (a temporary table, say), so nothing may run elsewhere.
    pub(crate) pinned: bool,
    /// What servers are to be asked about the connections on which something may have been left.
    pub(crate) look: Look,
    pub(crate) cancel: Arc<CancelTarget>,
    /// The session was told to end.
    pub(crate) ending: Option<End>,
    /// Where its last statement ran.
    pub(crate) near: Option<ReplicaId>,
    /// Since when its present statement has a place.
    pub(crate) placed: Instant,
    /// How long a server is expected to take for it.
    pub(crate) cost_us: Option<u32>,
    /// Of the open update transaction.
    pub(crate) strain: Strain,
    /// Tables that the client was warned of.
    pub(crate) warned: BTreeSet<TableId>,
    /// Of the open transaction.
    pub(crate) savepoints: Vec<Savepoint>,
    /// What SHOW CLIENTS tells of this session.
    pub(crate) card: Arc<Card>,
    /// Of the open transaction: what was declared, done, and is to be expected.
    pub(crate) course: Course,
    /// What SHOW TRANSACTIONS tells of this session.
    pub(crate) progress: Arc<Progress>,
    /// The transaction was lost while the client was silent: its next statement is told so.
    pub(crate) must_tell_loss: bool,
    /// Why, if it was not the loss of its home.
    pub(crate) loss: Option<Refusal>,
    /// The open update transaction on its backend, until that has committed.
    pub(crate) tenancy: Option<Tenancy>,
    /// Where its rows are written that draw from sequences.
    pub(crate) draws: Draws,
    /// What is to be done otherwise when it is tried again.
    pub(crate) again: Again,
    /// Where the last update transaction was, or is.
    pub(crate) last_home: ReplicaId,
}

impl Session {
    /// The hub.
    pub(crate) fn hub(&self) -> &Hub {
        &self.worker.hub
    }

    /// Where the open update transaction is; without one, where the next one will be.
    pub(crate) fn home(&self) -> ReplicaId {
        match &self.transaction {
            Transaction::Update(update) => update.replica,
            _ => self.anchor(),
        }
    }

    /// The home of updates.
    pub(crate) fn anchor(&self) -> ReplicaId {
        self.worker.hub.anchor()
    }

    /// Serves the client until it leaves.
    pub(crate) async fn serve(mut self) {
        let end = self.loop_().await;
        if let Err(Fault::Fatal(refusal)) = &end {
            let news = self.last_notifications().await;
            self.client.say_last(&news, refusal).await;
        }
        self.leave().await;
    }

    async fn loop_(&mut self) -> Result<(), Fault> {
        loop {
            // A client that reads slowly must not delay its COMMIT at home, nor keep a shared connection.
            let is_sent = self.client.try_flush().await?;
            if self.is_settling {
                self.settle().await;
            }
            self.give_back().await;
            if !is_sent {
                self.client.flush().await?;
            }
            self.leave_drained();
            let is_open = !matches!(self.transaction, Transaction::None);
            self.card.rest(is_open, self.client.received, self.client.sent);
            self.take_notifications();
            self.check_ending()?;
            self.keep_state()?;
            let (tag, total) = self.next_message().await?;
            self.hear_servers().await?;
            self.begin_work(tag).await?;
            match tag {
                tag::QUERY => {
                    let body = self.client.input.data()[5..total].to_vec();
                    self.client.input.consume(total);
                    self.query(&body).await?;
                }
                tag::TERMINATE => return Ok(()),
                tag::FUNCTION_CALL => {
                    self.client.input.consume(total);
                    Refusal::unsupported("the function call message", "Call the function with SELECT.")
                        .write(&mut self.client.out, "ERROR");
                    self.ready();
                }
                // Left over from a COPY that failed.
                tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => self.client.input.consume(total),
                _ => self.extended().await?,
            }
        }
    }

    /// Waits for the client's next message; meanwhile notifications are passed on.
    async fn next_message(&mut self) -> Result<(u8, usize), Fault> {
        loop {
            if let Some(found) = self.client.ready()? {
                return Ok(found);
            }
            self.client.flush().await?;
            let Self { client, servers, mailbox, .. } = &mut *self;
            tokio::select! {
                filled = client.fill() => filled?,
                (replica, filled) = servers.heard() => self.take_unasked(replica, filled.is_err())?,
                note = mailbox.next() => match note {
                    Note::End(end) => {
                        self.note_end(end);
                        self.check_ending()?;
                    }
                    Note::Effect(Effect::Abort { cause, .. }) => {
                        let fault = self.aborted(cause, self.last_home);
                        self.step_back().await;
                        self.keep_state()?;
                        self.must_tell_loss = matches!(self.transaction, Transaction::Lost(_));
                        self.loss = if let Fault::Rival(why) = fault { Some(why) } else { None };
                    }
                    Note::Drained => {
                        self.leave_drained();
                        self.keep_state()?;
                    }
                    Note::Effect(_) | Note::Cancel => self.leave_drained(),
                },
            }
        }
    }

    /// The client wants something: it may have to wait for RESUME.
    async fn begin_work(&mut self, tag: u8) -> Result<(), Fault> {
        if tag == tag::TERMINATE {
            return Ok(());
        }
        self.card.work();
        while self.worker.hub.clients.is_paused() && matches!(self.transaction, Transaction::None) {
            let _shown = self.card.wait(Doing::Paused);
            tokio::select! {
                () = self.worker.hub.clients.resumed() => {}
                note = self.mailbox.next() => {
                    if let Note::End(end) = note {
                        self.note_end(end);
                        self.check_ending()?;
                    }
                }
                () = self.client.time_to_look() => {
                    if let Some(fault) = self.client.leaves() {
                        return Err(fault);
                    }
                }
            }
        }
        Ok(())
    }

    /// Notifications that came beside queries of our own.
    fn take_notifications(&mut self) {
        let Self { client, servers, .. } = self;
        servers.iter_mut().for_each(|server| client.out.append(&mut server.connection.notifications));
    }

    /// What one transaction leaves is cleared; the end of the session.
    async fn leave(mut self) {
        if self.is_settling {
            self.settle().await;
        }
        if let Transaction::Update(_) = self.transaction {
            self.roll_back_home().await;
        }
        self.leave_read().await;
        if self.mailbox.called() == Some(End::Killed) {
            // The process that was named to pg_terminate_backend ends, even where sessions share it.
            self.servers.close_all();
        }
        self.give_back().await;
        self.worker.hub.close_session(self.id);
    }

    /// The status that the client is to be told.
    pub(crate) fn status(&self) -> Status {
        match self.transaction {
            Transaction::None => Status::Idle,
            _ if self.failed => Status::Failed,
            _ => Status::Open,
        }
    }

    /// Appends ReadyForQuery.
    pub(crate) fn ready(&mut self) {
        let status = self.status();
        encode::ready_for_query(&mut self.client.out, status);
    }

    /// Asks for a place and waits for it.
    pub(crate) async fn place(&mut self, event: Event) -> Result<Placed, Fault> {
        self.place_update(event, false).await
    }

    fn placed_at(&mut self, place: Place, was_free: bool) -> Placed {
        self.placed = Instant::now();
        if was_free {
            self.near = Some(place.replica);
        }
        Placed::At(place)
    }

    /// The same; with `nowait` it is refused to wait for transactions of other homes.
    pub(crate) async fn place_update(&mut self, event: Event, nowait: bool) -> Result<Placed, Fault> {
        self.mailbox.forget_cancel();
        let aim = self.aim(&event);
        let is_inside = matches!(event, Event::Statement { .. });
        let is_free = is_free(&event);
        if let Some(Effect::Execute { replica, incarnation, identity, .. }) =
            self.worker.hub.ask(Some(self.id), event)
        {
            return Ok(self.placed_at(Place { replica, incarnation, identity }, is_free));
        }
        if let Some(refusal) = nowait.then(|| self.must_wait()).flatten() {
            return self.give_up(is_inside, refusal);
        }
        let asked = Instant::now();
        let _shown = self.card.wait(Doing::Waiting);
        let _wanted = self.progress.want(self.named.last());
        let mut wait = Wait::begin(aim, &self.settings.noted.timeouts);
        loop {
            let Some(note) = self.next_note(&mut wait).await? else {
                let refusal = self.with_obstacle(wait.refusal());
                return self.give_up(is_inside, refusal);
            };
            match note {
                Note::Effect(Effect::Execute { replica, incarnation, identity, .. }) => {
                    self.strain.waited(asked);
                    return Ok(self.placed_at(Place { replica, incarnation, identity }, is_free));
                }
                Note::Effect(Effect::Reclassify { .. }) => return Ok(Placed::Again),
                Note::Effect(Effect::Abort { cause, .. }) => return Ok(Placed::Aborted(cause)),
                Note::Effect(other) => {
                    tracing::error!(?other, "a session that waits for a place does not expect this");
                }
                Note::Drained => {}
                Note::Cancel => return self.give_up(is_inside, cancelled()),
                // What was begun is finished first.
                Note::End(End::AfterTransaction) => self.note_end(End::AfterTransaction),
                Note::End(end) => return self.leave_line(Fault::Fatal(ended(end))),
            }
        }
    }

    /// Where what the event is about is to run.
    fn aim(&self, event: &Event) -> Aim {
        match event {
            Event::Begin { home: Home::Anchor, .. } => Aim::Update(self.anchor()),
            Event::Begin { .. } => Aim::AnyUpdate,
            Event::Statement { .. } => Aim::Update(self.last_home),
            _ => Aim::Read,
        }
    }

    /// A statement does not wait any longer. If it is one of an open update transaction, that goes on.
    fn give_up(&mut self, is_inside: bool, refusal: Refusal) -> Result<Placed, Fault> {
        let session = self.id;
        let event = if is_inside { Event::Withdraw { session } } else { Event::GiveUp { session } };
        self.worker.hub.handle(event);
        // The core may have ended the transaction just before.
        let cause = self.why_aborted().filter(|_| is_inside);
        cause.map_or(Err(Fault::Refused(refusal)), |cause| Ok(Placed::Aborted(cause)))
    }

    /// The session was told to end.
    pub(crate) fn note_end(&mut self, end: End) {
        self.ending = self.ending.max(Some(end));
    }

    /// Ends the session if it was told to and the time has come: nothing is half done here.
    fn check_ending(&self) -> Result<(), Fault> {
        match self.ending.max(self.mailbox.called()) {
            None => Ok(()),
            Some(End::AfterTransaction) if !matches!(self.transaction, Transaction::None) => Ok(()),
            Some(end) => Err(Fault::Fatal(ended(end))),
        }
    }

    /// The statement at the replica has ended.
    pub(crate) fn executed(&self) {
        self.worker.hub.handle(Event::Executed { session: self.id });
    }

    /// Counts a statement that could not be spread.
    pub(crate) fn count(&self, counter: impl Fn(&crate::coordinator::Stats) -> &AtomicU64) {
        count(counter(&self.worker.hub.stats));
    }
}

/// The last words to a client.
pub(crate) fn ended(end: End) -> Refusal {
    let why = match end {
        End::AfterTransaction | End::Now => "terminating connection: Onecopy is stopping",
        End::Killed => "terminating connection due to administrator command",
    };
    Refusal::plain(sqlstate::ADMIN_SHUTDOWN, why)
}

pub(crate) fn cancelled() -> Refusal {
    Refusal::plain(sqlstate::QUERY_CANCELED, "canceling statement due to user request")
}
