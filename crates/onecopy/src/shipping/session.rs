//! A client of a node that ships statements, from the log-in to its end.
//!
//! The session classifies statements and chooses the locks of transactions. The scheduler and the proxies do the
//! rest. Replies are relayed as the replica gave them. Besides the connections for transactions, the session has a
//! *control connection* for settings and descriptions of statements.
//!
//! A transaction begins at the servers with its first statement, when its locks are known. A comment or
//! `onecopy.access` declares them. READ ONLY locks all tables shared. If all statements came together, the locks are
//! derived from them. Otherwise the transaction locks everything, which is correct and slow, and the log says so
//! once.

use std::rc::Rc;
use std::sync::Arc;

use sql::{CopyDirection, Rejection, Script, Statement, Verb};
use tokio::time::{Instant, sleep};
use wire::backend::Status;
use wire::frontend::tag;
use wire::{encode, frame, sqlstate};

use super::batch::Batch;
use super::connections::SessionConnections;
use super::control_connection::{ControlConnection, REPLICA_WAIT_MAX};
use super::locks::TableLocks;
use super::query_cache::SessionAnswers;
use super::request::{RequestOutcome, SessionRequest};
use super::scheduler_client::SchedulerClient;
use super::scheduling::PAUSE;
use super::scheduling::Scheduling;
use super::shipment::{AccessMode, Form, SessionSettings};
use super::statement;
use super::transaction_state::{Block, Health, TransactionState};
use crate::backend::{Rows, assert_qualified};
use crate::capture;
use crate::classify::parsing::too_complex;
use crate::client::settings::Settings;
use crate::client::{Client, DEFAULTS_SQL, welcome};
use crate::coordinator::mailbox::Note;
use crate::error::{Fault, Refusal};
use crate::link::Worker;
use crate::link::node_kind::{LoggedIn, Unserved};
use crate::local::session_registry::SessionEntry;
use crate::logging::InSession;

/// A statement of the client.
pub(super) struct ClientStatement<'a> {
    pub(super) statement: &'a Arc<Statement>,
    /// The statement alone.
    pub(super) text: &'a [u8],
    /// The same with its comments, where tables may be declared.
    pub(super) commented: &'a [u8],
    pub(super) form: Form,
}

/// The role of the session.
pub(super) struct SessionIdentity {
    pub(super) role: Arc<str>,
    pub(super) settings: Arc<SessionSettings>,
}

pub(super) struct Session {
    pub(super) worker: Rc<Worker>,
    pub(super) client: Client,
    entry: Arc<SessionEntry>,
    pub(super) scheduler: SchedulerClient,
    pub(super) control: ControlConnection,
    pub(super) settings: Settings,
    pub(super) identity: SessionIdentity,
    pub(super) transaction: TransactionState,
    pub(super) batch: Batch,
    pub(super) answers: SessionAnswers,
    /// The log has the hint that a transaction did not declare its tables.
    pub(super) has_hinted: bool,
}

/// Serves a client that has logged in.
pub(crate) async fn serve(
    shipping: Arc<dyn Scheduling>,
    worker: Rc<Worker>,
    client: LoggedIn,
) -> Result<(), Box<Unserved>> {
    let LoggedIn { client, settings, client_info, secret, origin: _ } = client;
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
    let role: Arc<str> = client_info.user.as_str().into();
    let entry = coordinator.local.sessions.register(id, client_info);
    let ddl = capture::ddl_token(coordinator.cluster_id);
    let options = format!("{} -c {}={ddl}", settings.server_options(), capture::DDL_SETTING);
    let parameters = settings.start_up(&options);
    let parameters = parameters.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    let connections = Arc::new(SessionConnections::new(secret, parameters, Arc::clone(&entry)));
    let answers = SessionAnswers::new(coordinator.local.result_cache.role_changes.settled());
    let client = client.of_session(&mailbox);
    let mut session = Session {
        worker,
        client,
        entry,
        scheduler: SchedulerClient::register(&shipping, id, mailbox, cancel, &connections),
        control: ControlConnection::new(&shipping, &connections),
        settings,
        identity: SessionIdentity { role, settings: Arc::default() },
        transaction: TransactionState::None,
        batch: Batch::default(),
        answers,
        has_hinted: false,
    };
    let serving = async {
        let served = match session.greet().await {
            Ok(()) => session.run_loop().await,
            Err(fault) => Err(fault),
        };
        session.abandon().await;
        tracing::info!("session ended");
        served
    };
    let served = InSession::new(id, serving).await;
    shipping.close_session(id);
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
    /// Sends the server's settings to the client.
    async fn greet(&mut self) -> Result<(), Fault> {
        self.entry.tell_beginning();
        let started = Instant::now();
        assert_qualified(DEFAULTS_SQL);
        let defaults = loop {
            match self.control_query(DEFAULTS_SQL).await {
                Err(Fault::Lost(_) | Fault::Unplaced(_)) if started.elapsed() < REPLICA_WAIT_MAX => {
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
        self.scheduler.lock_time().check(self.settings.defaults.isolation).map_err(Fault::Fatal)?;
        self.refresh_settings().await?;
        let Some(connection) = self.control.opened() else { return Err(Fault::Client) };
        welcome(&mut self.client, connection, self.settings.defaults.read_only, &self.scheduler.cancel);
        encode::ready_for_query(&mut self.client.out, Status::Idle);
        Ok(())
    }

    async fn run_loop(&mut self) -> Result<(), Fault> {
        loop {
            self.client.flush().await?;
            let is_in_transaction = !self.transaction.is_none();
            self.entry.rest(is_in_transaction, self.client.received, self.client.sent);
            self.scheduler.check_ending(is_in_transaction)?;
            let (kind, total) = self.next_message().await?;
            self.entry.work();
            self.scheduler.mailbox.forget_cancel();
            let body = self.client.input.data()[frame::HEADER_BYTES..total].to_vec();
            self.client.input.consume(total);
            match kind {
                tag::QUERY => {
                    self.query(body.strip_suffix(&[0]).ok_or(Fault::Client)?).await?;
                    self.ready();
                }
                tag::TERMINATE => return Ok(()),
                tag::FUNCTION_CALL => {
                    self.report(Fault::Refused(statement::refused("a function call", "Use SELECT.")))?;
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
            let Self { client, scheduler, transaction, .. } = &mut *self;
            tokio::select! {
                filled = client.fill() => filled?,
                note = scheduler.mailbox.next() => {
                    if let Note::End(end) = note {
                        scheduler.note_end(end);
                        scheduler.check_ending(!transaction.is_none())?;
                    }
                }
            }
        }
    }

    pub(super) fn ready(&mut self) {
        encode::ready_for_query(&mut self.client.out, self.transaction.status());
    }

    /// Sends the client a fault that the session survives. Returns any other fault.
    pub(super) fn report(&mut self, fault: Fault) -> Result<(), Fault> {
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
        self.transaction.set_health(Health::Failed);
        Ok(())
    }

    /// A Query message: its statements are one implicit transaction, unless they contain transaction control.
    async fn query(&mut self, sql: &[u8]) -> Result<(), Fault> {
        let script = match self.script(sql).await {
            Ok(script) => script,
            Err(fault) => return self.report(fault),
        };
        let parts = script.statements.as_slice();
        let sent: Vec<ClientStatement<'_>> = parts
            .iter()
            .enumerate()
            .map(|(index, part)| {
                let from = if index == 0 { 0 } else { parts[index - 1].end };
                let to = parts.get(index + 1).map_or(sql.len(), |next| next.start);
                let around = &sql[from..to];
                ClientStatement {
                    statement: &part.statement,
                    text: if parts.len() == 1 { sql } else { &sql[part.start..part.end] },
                    commented: around.strip_prefix(b";").unwrap_or(around),
                    form: Form::Simple,
                }
            })
            .collect();
        if let Err(fault) = self.run_all(&sent).await {
            self.report(fault)?;
            self.end_implicit(false).await?;
        }
        Ok(())
    }

    async fn run_all(&mut self, sent: &[ClientStatement<'_>]) -> Result<(), Fault> {
        if sent.len() > 1 && self.transaction.is_none() {
            self.open_implicit(sent).await?;
        }
        for one in sent {
            self.run(one).await?;
        }
        self.end_implicit(true).await
    }

    /// Begins the implicit transaction of statements that came together, if they are one.
    pub(super) async fn open_implicit(&mut self, sent: &[ClientStatement<'_>]) -> Result<(), Fault> {
        let is_data = |verb: &Verb| verb.is_dml() || matches!(verb, Verb::Truncate | Verb::Ddl(_));
        if !sent.iter().all(|one| is_data(&one.statement.verb)) {
            return Ok(());
        }
        let mode = AccessMode::of(self.settings.defaults.read_only);
        self.begin(mode, Block::Implicit, |catalogue| {
            let mut locks = TableLocks::none();
            for one in sent {
                let classified =
                    statement::classify(one.statement, &String::from_utf8_lossy(one.text), catalogue)?;
                locks.add(&classified.locks);
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

    pub(super) async fn run(&mut self, sent: &ClientStatement<'_>) -> Result<(), Fault> {
        let ran = self.run_one(sent).await;
        if ran.is_err() {
            self.abort_failed().await?;
        }
        ran
    }

    async fn run_one(&mut self, sent: &ClientStatement<'_>) -> Result<(), Fault> {
        let verb = &sent.statement.verb;
        if self.transaction.has_failed()
            && !matches!(verb, Verb::Commit { .. } | Verb::Rollback { .. } | Verb::RollbackTo(_))
        {
            let text = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(Refusal::plain(sqlstate::IN_FAILED_SQL_TRANSACTION, text).into());
        }
        if self.run_control(sent).await? {
            return Ok(());
        }
        if matches!(verb, Verb::Copy { direction: CopyDirection::From, .. }) {
            return self.copy(sent).await;
        }
        self.data(sent).await
    }

    /// Passes a request to the scheduler and waits for its outcome. `None` if the locks have to be chosen again.
    pub(super) async fn request(
        &mut self,
        request: SessionRequest,
        generation: u64,
    ) -> Result<Option<RequestOutcome>, Fault> {
        let is_in_transaction = !self.transaction.is_none();
        let outcome = self.scheduler.request(request, generation, is_in_transaction).await;
        if self.scheduler.take_given_up() {
            self.settings.drop_staged();
            let is_alone =
                matches!(&self.transaction, TransactionState::Open(open) if open.locks.are_everything());
            self.transaction.give_up();
            self.let_replicas_end(is_alone).await;
            self.scheduler.release_exclusive();
        }
        outcome
    }

    /// Runs a query of Onecopy's under the session's settings, outside its transaction.
    pub(super) async fn control_query(&mut self, sql: &str) -> Result<Rows, Fault> {
        self.control.query(sql, &self.settings).await
    }

    /// Reads the settings that travel with statements again, after a change.
    pub(super) async fn refresh_settings(&mut self) -> Result<(), Fault> {
        self.identity.settings = Arc::new(self.control.shipped_settings(&self.settings).await?);
        Ok(())
    }
}
