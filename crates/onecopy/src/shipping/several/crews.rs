//! The scheduler's end of the links: takes what the sessions of other nodes say.
//!
//! Example: the node of crew 3 is lost. Its sessions are gone; what they had decided is completed on connections of this node's own
//! ([`crate::shipping::orphan`]), and the rest is rolled back.
//!
//! Invariant: nothing that a session asks is begun after the lease of the term is over, unless it is renewed. So what a former leader lets
//! run was asked before its successor has shown anything.

use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{CrewId, Identity, SessionId, Version};
use cluster::parts::lock_queues::LockSet;
use cluster::protocols::shipping::{Kind, Operation, Request, Transaction};
use sql::TemplateId;
use tokio::time::sleep;

use super::crew_statements::{CrewStatement, bytes_of};
use crate::coordinator::etcd_log::timing;
use crate::coordinator::scheduler_messages::{
    LinkedAnswer, LinkedRequest, LinkedStatement, Participation, RanStatement, ToCrew, ToScheduler, Welcome,
};
use crate::shipping::delivery::Delivery;
use crate::shipping::lane_site::LaneSite;
use crate::shipping::node::{Asked, Shipping};
use crate::shipping::replica_run::{LaneHost, LeadingHost, ReplicaRun};
use crate::shipping::request::RequestRejected;
use crate::shipping::session_slots::{SessionSlot, SlotClient, UpdateStep};
use crate::shipping::state::{Divergence, SchedulerState, replica};

/// The pause between two looks whether the lease of the term is renewed.
const LEASE_PAUSE: Duration = Duration::from_millis(5);
/// The pause before the log is asked again for an outcome.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The scheduler's end of the links.
pub(super) struct CrewService(pub(super) Arc<Shipping>);

impl CrewService {
    /// The sessions of a node join.
    pub(super) fn join(&self, crew: CrewId) {
        let mut state = self.0.lock();
        state.linked.join(crew);
        let replicas = (0..state.replicas.len())
            .map(|index| Participation {
                run: state.run(index),
                is_up: state.scheduler.is_up(replica(index)),
            })
            .collect();
        let generation = state.linked.generation().unwrap_or_default();
        let voucher = self.0.leader().voucher.clone();
        let welcome = Welcome { crew, voucher, generation, replicas };
        state.linked.mail.push((crew, ToCrew::Welcome(Box::new(welcome))));
        self.0.send_mail(&mut state);
    }

    /// The node of a crew is lost, or has lost its link.
    pub(super) fn leave(&self, crew: CrewId) {
        let mut state = self.0.lock();
        state.linked.leave(crew);
        state.linked.tell_known_schema();
        let sessions: Vec<SessionId> =
            state.sessions.keys().copied().filter(|session| session.crew() == crew).collect();
        let mut out = Vec::new();
        state.scheduler.crew_lost(crew, &mut out);
        for session in sessions {
            state.forget_session(session);
        }
        for transaction in state.active.values_mut() {
            if matches!(transaction.site, LaneSite::Crew(at) if at == crew) {
                transaction.site = LaneSite::Orphaned(crew);
            }
        }
        for transaction in state.past.values_mut() {
            if matches!(transaction.site, LaneSite::Crew(at) if at == crew) {
                transaction.site = LaneSite::Orphaned(crew);
            }
        }
        // Proxies get the messages first, so that they know what comes after the work that is lost.
        let mut deliveries: Vec<Delivery> = out.into_iter().map(Delivery::Scheduler).collect();
        for (index, at) in state.replicas.iter_mut().enumerate() {
            let lost = at.lose_lanes(crew).into_iter();
            deliveries.extend(lost.map(|transaction| Delivery::LostWork(index, transaction)));
        }
        self.0.deliver(state, deliveries);
        self.0.changed();
    }

    /// Takes one message of a crew.
    pub(super) async fn hear(&self, crew: CrewId, message: ToScheduler) {
        let here = |session: SessionId| SessionId::of(crew, session.counter());
        match message {
            ToScheduler::Request { session, request, generation } => {
                self.await_lease().await;
                self.take_request(here(session), request, generation);
            }
            ToScheduler::Closed { session } => self.close_linked(here(session)),
            ToScheduler::Finished { run, transaction, ran } => {
                let transaction = match transaction {
                    Transaction::Single(session) => Transaction::Single(here(session)),
                    numbered @ Transaction::Numbered(_) => numbered,
                };
                self.finished_at_crew(crew, run, transaction, ran);
            }
            ToScheduler::GiveUp { run, reason } => Arc::clone(&self.0).give_up(run, &reason),
            ToScheduler::WantsTurn { session } => {
                let mut state = self.0.lock();
                if state.acquire_exclusive(here(session)) {
                    state.linked.mail.push((crew, ToCrew::Turn { session }));
                    self.0.send_mail(&mut state);
                }
            }
            ToScheduler::EndsTurn { session } => self.0.release_exclusive(here(session)),
            ToScheduler::ChangedSchema => {
                let mut state = self.0.lock();
                state.linked.change_schema();
                state.tell_new_schema();
                self.0.send_mail(&mut state);
            }
            ToScheduler::KnowsSchema { generation } => {
                let mut state = self.0.lock();
                state.linked.note_known_schema(crew, generation);
                self.0.send_mail(&mut state);
            }
            ToScheduler::WantsOutcome { session, identity } => {
                let is_committed = self.outcome(identity).await;
                let mut state = self.0.lock();
                state.linked.mail.push((crew, ToCrew::Outcome { session, is_committed }));
                self.0.send_mail(&mut state);
            }
        }
    }

    async fn await_lease(&self) {
        let lease = Duration::from_micros(timing().lease_us);
        let log = &self.0.leader().log;
        while log.confirmed_at().is_some_and(|at| at.elapsed() >= lease) {
            sleep(LEASE_PAUSE).await;
        }
    }

    fn take_request(&self, session: SessionId, request: LinkedRequest, generation: u64) {
        let begins = matches!(
            request,
            LinkedRequest::Begin(_) | LinkedRequest::SingleRead(..) | LinkedRequest::SingleUpdate(..)
        );
        let bytes = match &request {
            LinkedRequest::Execute(statement) | LinkedRequest::SingleUpdate(_, statement) => {
                bytes_of(&statement.logged)
            }
            LinkedRequest::Begin(_) | LinkedRequest::End(_) | LinkedRequest::SingleRead(..) => 0,
        };
        self.0.lock().sessions.entry(session).or_insert_with(SessionSlot::of_crew);
        let asked = Asked { session, begins, bytes, generation };
        let mut state = match self.0.admit(&asked) {
            Ok(state) => state,
            Err(rejected) => {
                let mut state = self.0.lock();
                let answer = match rejected {
                    RequestRejected::TryLater | RequestRejected::Unled => LinkedAnswer::Later,
                    RequestRejected::StoreIsFull => LinkedAnswer::Full,
                };
                state.tell_answer(session, answer);
                return self.0.send_mail(&mut state);
            }
        };
        let mut out = Vec::new();
        let request = state.name_request(session, request, |locks| self.0.rules.visible(locks));
        if let Some(number) = state.pass(session, request, &mut out) {
            let (at_node, identity) = (SessionId(session.counter()), self.0.identity(number));
            state.linked.mail.push((session.crew(), ToCrew::Begun { session: at_node, identity }));
        }
        self.0.deliver(state, out.into_iter().map(Delivery::Scheduler).collect());
    }

    fn close_linked(&self, session: SessionId) {
        let mut state = self.0.lock();
        state.scheduler.request(session, Request::InteractionOver, &mut Vec::new());
        state.forget_session(session);
        drop(state);
        self.0.changed();
    }

    fn finished_at_crew(
        &self,
        crew: CrewId,
        run: ReplicaRun,
        transaction: Transaction,
        ran: Option<RanStatement>,
    ) {
        let index = usize::from(run.replica.0);
        let mut state = self.0.lock();
        let is_theirs = |state: &SchedulerState| {
            state.replicas[index].lanes.get(&transaction).is_some_and(|lane| lane.is_at(crew))
        };
        if state.replicas.get(index).is_none_or(|at| at.incarnation != run.incarnation) || !is_theirs(&state)
        {
            return;
        }
        if let Some(ran) = ran
            && let Err((Divergence { outcome }, text)) = state.note_ran(crew, &ran)
        {
            drop(state);
            let reason = format!(
                "a statement ended there with {outcome}, but elsewhere with another outcome: `{text}`"
            );
            return self.0.diverged(run, &reason);
        }
        self.0.work_finished(state, index, transaction);
    }

    /// Whether the log has a transaction. What a former leader has appended is in the log as it was recovered, or is not there for good.
    async fn outcome(&self, identity: Identity) -> bool {
        let leader = self.0.leader();
        let version: Option<Version> = loop {
            match leader.identities.version_of(identity, &leader.log).await {
                Ok(version) => break version,
                Err(error) => {
                    tracing::warn!(%error, "cannot look up the outcome of a transaction; trying again");
                    sleep(LOOK_AGAIN).await;
                }
            }
        };
        let Some(version) = version else { return false };
        while leader.log.durable() < version {
            sleep(LOOK_AGAIN).await;
        }
        true
    }
}

impl SchedulerState {
    /// Gives the statement of a request a name. An update begins as a transaction of several requests.
    fn name_request(
        &mut self,
        session: SessionId,
        request: LinkedRequest,
        free: impl Fn(LockSet) -> LockSet,
    ) -> Request {
        if let Some(slot) = self.sessions.get_mut(&session) {
            slot.begin_wait();
        }
        let free = |locks: Vec<_>| free(locks.into());
        match request {
            LinkedRequest::Begin(locks) => Request::Begin(free(locks)),
            LinkedRequest::End(ending) => Request::End(ending),
            LinkedRequest::Execute(statement) => {
                let operation = self.name_linked(session, statement);
                self.wait_for(session, operation);
                Request::Execute(operation)
            }
            LinkedRequest::SingleRead(locks, statement) => {
                let operation = self.name_linked(session, statement);
                self.wait_for(session, operation);
                Request::SingleRead(free(locks), operation)
            }
            LinkedRequest::SingleUpdate(locks, statement) => {
                let operation = self.name_linked(session, statement);
                if let Some(slot) = self.sessions.get_mut(&session) {
                    slot.client = SlotClient::Crew { update: Some(UpdateStep::Begins(operation)) };
                }
                Request::Begin(free(locks))
            }
        }
    }

    fn wait_for(&mut self, session: SessionId, operation: Operation) {
        if let Some(slot) = self.sessions.get_mut(&session) {
            slot.awaited = Some(operation.statement);
        }
    }

    fn name_linked(&mut self, session: SessionId, statement: LinkedStatement) -> Operation {
        let LinkedStatement { number, kind, template, logged } = statement;
        let template = TemplateId(template);
        let (name, cost_us) = self.next_name(template);
        let bytes = bytes_of(&logged);
        self.linked.statements.insert(name, CrewStatement { session, number, kind, template, logged, bytes });
        Operation { kind, statement: name, cost_us }
    }

    /// A node's session has run a statement at a replica.
    fn note_ran(&mut self, crew: CrewId, ran: &RanStatement) -> Result<(), (Divergence, String)> {
        let Some(name) = self.linked.statements.named(crew, ran.number) else { return Ok(()) };
        let Some(statement) = self.linked.statements.get(name) else { return Ok(()) };
        let (session, kind, template) = (statement.session, statement.kind, statement.template);
        self.note_time(template, ran.took_us);
        if let Err(divergence) = self.note_outcome(name, kind, &ran.outcome) {
            let logged = self.linked.statements.get(name).and_then(|statement| statement.logged.last());
            let text = logged.map(|one| String::from_utf8_lossy(&one.text).into_owned());
            return Err((divergence, text.unwrap_or_default()));
        }
        if let Some(slot) = self.sessions.get_mut(&session) {
            slot.note_failure(name, ran.has_failed);
        }
        Ok(())
    }

    /// A session of another node has gone.
    fn forget_session(&mut self, session: SessionId) {
        if let Some(awaited) = self.sessions.remove(&session).and_then(|slot| slot.awaited)
            && self.linked.statements.get(awaited).is_some_and(|statement| statement.kind == Kind::Read)
        {
            self.linked.statements.remove(awaited);
        }
        self.release(session);
    }

    /// What a database was doing for a transaction of a lost node is over, whatever came of it.
    pub(in crate::shipping) fn lose_work(
        &mut self,
        index: usize,
        transaction: Transaction,
        out: &mut Vec<Delivery>,
    ) {
        match transaction {
            Transaction::Single(_) => self.finish(index, transaction, out),
            Transaction::Numbered(number) => {
                let mut works = Vec::new();
                self.replicas[index].proxy.lost(number, &mut works);
                out.extend(works.into_iter().map(|output| Delivery::Proxy(index, output)));
            }
        }
    }
}
