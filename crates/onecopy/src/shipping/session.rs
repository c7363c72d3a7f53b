//! A client of a node that ships statements: from log-in, which all nodes share, to its end.
//!
//! The session decides what a statement is and with which locks its transaction begins; the scheduler and the proxies do
//! the rest. Replies are relayed as the replica gave them. Beside the lanes, in which transactions run, the session has one
//! connection of its own, its *desk*, for what concerns the session only: settings, and descriptions of statements.
//!
//! A transaction begins at the servers with its first statement, when its locks are known: declared by a comment or by
//! `onecopy.access`; all tables to be read, if it is READ ONLY; derived, if all its statements came together; else everything,
//! which is correct, and slow, and said once in the log.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::SessionId;
use cluster::protocols::shipping::Answer;
use sql::{CopyDirection, Rejection, Script, Statement, TransactionOptions, Verb};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use wire::backend::Status;
use wire::frontend::tag;
use wire::{encode, frame, sqlstate};

use super::batch::Batch;
use super::lane::{At, Origin};
use super::locks::Locks;
use super::shipment::{Form, Setup};
use super::{Ask, Declined, Shipping, Told, statement};
use crate::backend::{Connection, assert_qualified};
use crate::capture;
use crate::classify::parsing::too_complex;
use crate::client::cancel::{CancelTarget, Doing};
use crate::client::settings::Settings;
use crate::client::{Client, DEFAULTS_SQL, welcome};
use crate::coordinator::mailbox::{End, Mailbox, Note};
use crate::error::{Fault, Refusal};
use crate::link::Worker;
use crate::link::node_kind::{LoggedIn, Unserved};
use crate::local::session_registry::SessionEntry;
use crate::logging::InSession;

/// How long a replica is waited for at log-in.
pub(super) const GREET_MAX: Duration = Duration::from_secs(30);
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// A transaction that the client sees.
#[derive(Debug)]
pub(super) enum State {
    /// None is open.
    None,
    /// The client said BEGIN, and nothing has run yet.
    Begun(Begun),
    /// Its locks are held.
    Open(Open),
}

/// What is known before the first statement.
#[derive(Debug, Default)]
pub(super) struct Begun {
    pub(super) is_read_only: bool,
    pub(super) declared: Option<sql::profile::Declaration>,
    pub(super) has_failed: bool,
}

/// A transaction whose locks are held.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) locks: Locks,
    pub(super) is_read_only: bool,
    pub(super) is_implicit: bool,
    pub(super) has_failed: bool,
    pub(super) has_written: bool,
    pub(super) has_ddl: bool,
    /// It has settings of its own.
    pub(super) has_set: bool,
    /// What it has shipped.
    pub(super) bytes: usize,
    /// What `now()` is in it.
    pub(super) now_us: i64,
}

/// A statement of the client.
pub(super) struct Sent<'a> {
    pub(super) statement: &'a Arc<Statement>,
    /// The statement alone.
    pub(super) text: &'a [u8],
    /// The same with the comments around it, where tables may be declared.
    pub(super) commented: &'a [u8],
    pub(super) form: Form,
}

pub(super) struct Session {
    pub(super) worker: Rc<Worker>,
    pub(super) shipping: Arc<Shipping>,
    pub(super) id: SessionId,
    mailbox: Arc<Mailbox>,
    pub(super) client: Client,
    pub(super) settings: Settings,
    pub(super) setup: Arc<Setup>,
    pub(super) role: Arc<str>,
    pub(super) origin: Arc<Origin>,
    told: mpsc::UnboundedReceiver<Told>,
    pub(super) state: State,
    pub(super) batch: Batch,
    pub(super) desk: Option<(At, Connection, u64)>,
    entry: Arc<SessionEntry>,
    cancel: Arc<CancelTarget>,
    ending: Option<End>,
    pub(super) has_hinted: bool,
}

/// Serves a client that is logged in.
pub(super) async fn serve(
    shipping: Arc<Shipping>,
    worker: Rc<Worker>,
    client: LoggedIn,
) -> Result<(), Box<Unserved>> {
    let LoggedIn { client, settings, who, secret } = client;
    let coordinator = Arc::clone(&worker.coordinator);
    let keys = Arc::clone(&worker.keys);
    let (id, mailbox) = coordinator.open_session();
    let pid = crate::client::cancel::pid_of(id);
    let cancel = match keys.register(pid, Arc::clone(&mailbox)) {
        Ok(cancel) => cancel,
        Err(error) => {
            coordinator.close_session(id);
            let text = format!("no random number: {error}");
            let fault = Fault::Fatal(Refusal::plain(sqlstate::INTERNAL_ERROR, text));
            return Err(Box::new(Unserved { client, fault }));
        }
    };
    let role: Arc<str> = who.user.as_str().into();
    let entry = coordinator.local.sessions.register(id, who);
    let ddl = capture::ddl_token(coordinator.cluster_id);
    let options = format!("{} -c {}={ddl}", settings.server_options(), capture::DDL_SETTING);
    let parameters = settings.start_up(&options);
    let parameters = parameters.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    let origin = Arc::new(Origin::new(secret, parameters, Arc::clone(&entry)));
    let told = shipping.enter(id, Arc::clone(&origin));
    let setup = Setup { generation: 0, replay: String::new(), shipped: String::new(), has_timeouts: false };
    let client = client.of_session(&mailbox);
    let mut session = Session {
        worker,
        shipping: Arc::clone(&shipping),
        id,
        mailbox,
        client,
        settings,
        setup: Arc::new(setup),
        role,
        origin,
        told,
        state: State::None,
        batch: Batch::default(),
        desk: None,
        entry,
        cancel,
        ending: None,
        has_hinted: false,
    };
    let serving = async {
        let served = match session.greet().await {
            Ok(()) => session.loop_().await,
            Err(fault) => Err(fault),
        };
        session.abandon().await;
        tracing::info!("the session has ended");
        served
    };
    let served = InSession::new(id, serving).await;
    shipping.leave(id);
    coordinator.close_session(id);
    keys.remove(pid);
    match served {
        Ok(()) | Err(Fault::Client) => Ok(()),
        Err(fault) => {
            session.client.out.clear();
            Err(Box::new(Unserved { client: session.client, fault }))
        }
    }
}

impl Session {
    /// Tells the client what a server says of itself.
    async fn greet(&mut self) -> Result<(), Fault> {
        self.entry.tell_beginning();
        let started = Instant::now();
        assert_qualified(DEFAULTS_SQL);
        let defaults = loop {
            match self.at_desk(DEFAULTS_SQL).await {
                Err(Fault::Lost(_) | Fault::Unplaced(_)) if started.elapsed() < GREET_MAX => {
                    sleep(PAUSE).await;
                }
                other => break other?,
            }
        };
        let defaults: Vec<String> = defaults.into_iter().flatten().flatten().collect();
        self.settings.begin_with(&defaults);
        if let Some(said) = self.settings.take_own().into_iter().find(|said| said.is_clients) {
            let what = format!("changing {}", said.name);
            return Err(Fault::Fatal(Refusal::unsupported(what, "It belongs to the protocol onecopy.")));
        }
        self.renew_setup().await?;
        let Some((_, connection, _)) = &self.desk else { return Err(Fault::Client) };
        welcome(&mut self.client, connection, self.settings.read_only, &self.cancel);
        encode::ready_for_query(&mut self.client.out, Status::Idle);
        Ok(())
    }

    async fn loop_(&mut self) -> Result<(), Fault> {
        loop {
            self.client.flush().await?;
            let is_open = !matches!(self.state, State::None);
            self.entry.rest(is_open, self.client.received, self.client.sent);
            self.check_ending()?;
            let (kind, total) = self.next_message().await?;
            self.entry.work();
            self.mailbox.forget_cancel();
            let body = self.client.input.data()[frame::HEADER_BYTES..total].to_vec();
            self.client.input.consume(total);
            match kind {
                tag::QUERY => {
                    self.query(body.strip_suffix(&[0]).ok_or(Fault::Client)?).await?;
                    self.ready();
                }
                tag::TERMINATE => return Ok(()),
                tag::FUNCTION_CALL => {
                    self.tell(Fault::Refused(statement::refused("a function call", "Use SELECT.")))?;
                    self.ready();
                }
                tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => {}
                _ => self.take(kind, body).await?,
            }
        }
    }

    async fn next_message(&mut self) -> Result<(u8, usize), Fault> {
        loop {
            if let Some(found) = self.client.ready()? {
                return Ok(found);
            }
            self.client.flush().await?;
            let Self { client, mailbox, .. } = &mut *self;
            tokio::select! {
                filled = client.fill() => filled?,
                note = mailbox.next() => {
                    if let Note::End(end) = note {
                        self.ending = self.ending.max(Some(end));
                        self.check_ending()?;
                    }
                }
            }
        }
    }

    fn check_ending(&mut self) -> Result<(), Fault> {
        let is_open = !matches!(self.state, State::None);
        let why = match self.ending {
            Some(End::Killed) => "the session was ended by an administrator",
            Some(End::Now) => "the node is stopping",
            Some(End::AfterTransaction) if !is_open => "the node is stopping",
            _ => return Ok(()),
        };
        Err(Fault::Fatal(Refusal::plain(sqlstate::ADMIN_SHUTDOWN, format!("terminating connection: {why}"))))
    }

    pub(super) fn ready(&mut self) {
        let status = match &self.state {
            State::None => Status::Idle,
            State::Begun(begun) if begun.has_failed => Status::Failed,
            State::Open(open) if open.has_failed => Status::Failed,
            _ => Status::Open,
        };
        encode::ready_for_query(&mut self.client.out, status);
    }

    /// Tells the client of a fault that the session survives; returns one that it does not.
    pub(super) fn tell(&mut self, fault: Fault) -> Result<(), Fault> {
        match fault {
            Fault::Client | Fault::Fatal(_) => return Err(fault),
            Fault::Server(body) => {
                encode::message(&mut self.client.out, wire::backend::tag::ERROR_RESPONSE, |b| {
                    b.extend_from_slice(&body);
                });
            }
            other => {
                if let Some(refusal) = other.into_refusal() {
                    refusal.write(&mut self.client.out, "ERROR");
                }
            }
        }
        match &mut self.state {
            State::None => {}
            State::Begun(begun) => begun.has_failed = true,
            State::Open(open) => open.has_failed = true,
        }
        Ok(())
    }

    /// A Query message: its statements are one implicit transaction, unless transaction control stands among them.
    async fn query(&mut self, sql: &[u8]) -> Result<(), Fault> {
        let script = match self.script(sql).await {
            Ok(script) => script,
            Err(fault) => return self.tell(fault),
        };
        let parts = script.statements.as_slice();
        let sent: Vec<Sent<'_>> = parts
            .iter()
            .enumerate()
            .map(|(index, part)| {
                let from = if index == 0 { 0 } else { parts[index - 1].end };
                let to = parts.get(index + 1).map_or(sql.len(), |next| next.start);
                let around = &sql[from..to];
                Sent {
                    statement: &part.statement,
                    text: if parts.len() == 1 { sql } else { &sql[part.start..part.end] },
                    commented: around.strip_prefix(b";").unwrap_or(around),
                    form: Form::Simple,
                }
            })
            .collect();
        if let Err(fault) = self.run_all(&sent).await {
            self.tell(fault)?;
            self.end_implicit(false).await?;
        }
        Ok(())
    }

    async fn run_all(&mut self, sent: &[Sent<'_>]) -> Result<(), Fault> {
        if sent.len() > 1 && matches!(self.state, State::None) {
            self.open_implicit(sent).await?;
        }
        for one in sent {
            self.run(one).await?;
        }
        self.end_implicit(true).await
    }

    /// Begins the implicit transaction of statements that came together, if they are one.
    pub(super) async fn open_implicit(&mut self, sent: &[Sent<'_>]) -> Result<(), Fault> {
        let is_data = |verb: &Verb| verb.is_dml() || matches!(verb, Verb::Truncate | Verb::Ddl(_));
        if !sent.iter().all(|one| is_data(&one.statement.verb)) {
            return Ok(());
        }
        let is_read_only = self.settings.read_only;
        self.hold(is_read_only, true, |catalogue| {
            let mut locks = Locks::none();
            for one in sent {
                let known = statement::know(one.statement, &String::from_utf8_lossy(one.text), catalogue)?;
                locks.add(&known.locks);
            }
            Ok(locks)
        })
        .await
    }

    pub(super) async fn script(&mut self, sql: &[u8]) -> Result<Arc<Script>, Fault> {
        let Self { worker, client, settings, .. } = self;
        let script = worker.script(sql, settings.noted.conforming, client).await?;
        script.map_err(|error| match error.reason {
            Rejection::Syntax => Refusal::plain(sqlstate::SYNTAX_ERROR, error.message).into(),
            Rejection::TooComplex => too_complex(&error).into(),
        })
    }

    /// Runs one statement.
    pub(super) async fn run(&mut self, sent: &Sent<'_>) -> Result<(), Fault> {
        let has_failed = match &self.state {
            State::None => false,
            State::Begun(begun) => begun.has_failed,
            State::Open(open) => open.has_failed,
        };
        let verb = &sent.statement.verb;
        if has_failed && !matches!(verb, Verb::Commit { .. } | Verb::Rollback { .. } | Verb::RollbackTo(_)) {
            let text = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(Refusal::plain(sqlstate::IN_FAILED_SQL_TRANSACTION, text).into());
        }
        if self.control(sent).await? {
            return Ok(());
        }
        if matches!(verb, Verb::Copy { direction: CopyDirection::From, .. }) {
            return self.copy(sent).await;
        }
        self.data(sent).await
    }

    /// Hands a request over and waits for what comes of it; `None` if it has to be thought over, because others had
    /// everything to themselves.
    pub(super) async fn ask(&mut self, ask: Ask, generation: u64) -> Result<Option<Told>, Fault> {
        let mut changes = self.shipping.changes.subscribe();
        changes.mark_unchanged();
        match self.shipping.request(self.id, ask, generation) {
            Ok(()) => {}
            Err(Declined::Later) => {
                self.wait_for(&mut changes).await?;
                return Ok(None);
            }
            Err(Declined::Full) => {
                let text = "too many statements are kept for replicas that have not run them yet";
                let hint = "Try again later, with less in a transaction. SHOW REPLICAS shows which replica is behind.";
                return Err(Refusal::new(sqlstate::CONFIGURATION_LIMIT_EXCEEDED, text, hint).into());
            }
        }
        self.cancel.set(Doing::Waiting);
        let told = loop {
            let Self { told, mailbox, .. } = &mut *self;
            tokio::select! {
                told = told.recv() => break told.ok_or(Fault::Client)?,
                note = mailbox.next() => match note {
                    Note::End(end) => self.ending = self.ending.max(Some(end)),
                    Note::Cancel => self.cancel_read().await,
                    Note::Effect(_) | Note::Drained => {}
                }
            }
        };
        self.cancel.set(Doing::Nothing);
        match told.answer {
            Answer::Done => Ok(Some(told)),
            Answer::Refused => {
                let text = "too many transactions are under way";
                Err(Refusal::new(sqlstate::CONFIGURATION_LIMIT_EXCEEDED, text, "Try again later.").into())
            }
            Answer::Lost => Err(Refusal::retry("no replica is there that could run the statement").into()),
        }
    }

    /// A cancel request reaches reads only: what all replicas do is not interrupted.
    async fn cancel_read(&self) {
        let reading = self.origin.reading.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        if let Some(reading) = reading {
            reading.cancel().await;
        }
    }

    /// Waits until something has changed that this session may wait for.
    pub(super) async fn wait_for(
        &mut self,
        changes: &mut tokio::sync::watch::Receiver<u64>,
    ) -> Result<(), Fault> {
        tokio::select! {
            _ = changes.changed() => {}
            // What is under way may have become less, which nobody tells.
            () = sleep(PAUSE) => {}
        }
        if let Some(Note::End(end)) = self.mailbox.try_next() {
            self.ending = self.ending.max(Some(end));
            self.check_ending()?;
        }
        Ok(())
    }
}

/// Statements and portals by name.
pub(super) type ByName<T> = BTreeMap<Vec<u8>, T>;

/// What BEGIN said.
pub(super) fn begun(options: TransactionOptions, settings: &Settings) -> Begun {
    Begun { is_read_only: options.read_only.unwrap_or(settings.read_only), ..Begun::default() }
}
