//! What sessions ask of the scheduler.

use std::sync::Arc;
use std::time::Duration;

use cluster::ids::SessionId;
use cluster::protocols::c_jdbc::Output;
use cluster::protocols::c_jdbc::message::{Request, Step, Tables};
use cluster::protocols::c_jdbc::query_cache::Moment;
use cluster::protocols::shipping::Kind;
use tokio::sync::{mpsc, watch};

use super::node::{CJdbc, Delivery};
use super::state::{SessionSlot, ShippedTransaction, State, kept_tables_of, tables_of};
use crate::shipping::connections::SessionConnections;
use crate::shipping::replica_run::{LaneHost, LeadingHost, ReplicaRun};
use crate::shipping::request::{Answer, RequestOutcome, RequestRejected, SessionRequest};
use crate::shipping::scheduling::{LockTime, Scheduling};
use crate::shipping::state::{Eligibility, replica};

/// Most unfinished transactions. A session that begins another one waits.
const UNDER_WAY_MAX: usize = 10_000;
/// The first clients wait so long for all replicas; then those that are there have to do.
const START_WAIT: Duration = Duration::from_secs(10);

impl Scheduling for CJdbc {
    fn lock_time(&self) -> LockTime {
        LockTime::PerStatement(self.choices.level)
    }

    fn any_up(&self) -> Option<ReplicaRun> {
        let mut state = self.lock();
        let takes_part = |index: &usize| state.scheduler.takes_part(replica(*index));
        let up = (0..state.replicas.len()).find(takes_part)?;
        let is_member = |index: &usize| state.replicas[*index].eligibility == Eligibility::Member;
        let is_complete = (0..state.replicas.len()).filter(is_member).all(|index| takes_part(&index));
        let is_open = state.is_open || is_complete || self.started.elapsed() > START_WAIT;
        state.is_open = is_open;
        is_open.then(|| state.run(up))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes_from_now()
    }

    fn open_session(
        &self,
        session: SessionId,
        connections: Arc<SessionConnections>,
    ) -> mpsc::UnboundedReceiver<RequestOutcome> {
        let (outcomes, received) = mpsc::unbounded_channel();
        let slot =
            SessionSlot { connections, outcomes, awaited: None, reply: None, reading: None, lasting: None };
        self.lock().sessions.insert(session, slot);
        received
    }

    fn close_session(&self, session: SessionId) {
        let mut state = self.lock();
        if let Some(slot) = state.sessions.remove(&session) {
            slot.connections.close();
        }
        state.exclusive.take_if(|holder| *holder == session);
        drop(state);
        self.changed();
    }

    fn acquire_exclusive(&self, session: SessionId) -> bool {
        let mut state = self.lock();
        *state.exclusive.get_or_insert(session) == session
    }

    fn release_exclusive(&self, session: SessionId) {
        self.lock().exclusive.take_if(|holder| *holder == session);
        self.changed();
    }

    fn is_still_answer(&self, session: SessionId, tables: &Tables, since: Moment) -> bool {
        self.lock().scheduler.may_answer_again(session, tables, since)
    }

    fn is_idle(&self) -> bool {
        // A replica that has joined may still run what it lacked, which is over for all others.
        self.lock().scheduler.is_quiet()
    }

    fn request(
        self: Arc<Self>,
        session: SessionId,
        request: SessionRequest,
        generation: u64,
    ) -> Result<(), RequestRejected> {
        let begins = request.begins();
        let bytes = request.bytes();
        let mut state = self.lock();
        let is_full = |state: &State| bytes > 0 && state.statements.bytes() + bytes > self.limits.kept_bytes;
        let is_crowded = |state: &State| begins && state.scheduler.active() >= UNDER_WAY_MAX;
        if is_full(&state) || is_crowded(&state) {
            let laggards = state.laggards();
            drop(state);
            for run in laggards {
                let reason = "it is too far behind: the statements that it lacks do not fit into memory";
                Arc::clone(&self).give_up(run, reason);
            }
            state = self.lock();
            if is_full(&state) {
                return Err(RequestRejected::StoreIsFull);
            }
        }
        let is_held = state.exclusive.is_some_and(|holder| holder != session);
        let is_old = || self.leader().database.catalogue().generation() != generation;
        if begins && (is_held || is_crowded(&state) || is_old()) {
            return Err(RequestRejected::TryLater);
        }
        let mut out = Vec::new();
        ask(&mut state, session, request, self.choices.cache.is_some(), &mut out);
        self.deliver(state, out.into_iter().map(Delivery::Scheduler).collect());
        Ok(())
    }
}

/// Passes a request to the scheduler.
fn ask(state: &mut State, session: SessionId, request: SessionRequest, keeps: bool, out: &mut Vec<Output>) {
    let Some(slot) = state.sessions.get_mut(&session) else { return };
    (slot.awaited, slot.reply, slot.reading, slot.lasting) = (None, None, None, None);
    let connections = Arc::clone(&slot.connections);
    let request = match request {
        SessionRequest::Begin(_) => Request::Begin,
        SessionRequest::End(ending) => Request::End(ending),
        SessionRequest::Execute(kind, locks, command) => {
            let statement = state.name(session, kind, command);
            match kind {
                Kind::Read => Request::Read(tables_of(&locks, state.scheduler.placement()), statement),
                Kind::Write => Request::Write(tables_of(&locks, state.scheduler.placement()), statement),
            }
        }
        SessionRequest::SingleRead(locks, command) => {
            let placement = state.scheduler.placement();
            let tables = if keeps { kept_tables_of(&locks, placement) } else { tables_of(&locks, placement) };
            if let Some(slot) = state.sessions.get_mut(&session) {
                slot.reading = keeps.then(|| Arc::clone(&tables));
            }
            Request::Read(tables, state.name(session, Kind::Read, command))
        }
        SessionRequest::SingleUpdate(..) => {
            // Sessions send a write alone as a transaction here.
            let refused = RequestOutcome { answer: Answer::Refused, reply: None, lasting: None };
            let _ = slot.outcomes.send(refused);
            return;
        }
    };
    let begins = request == Request::Begin;
    state.scheduler.request(session, request, out);
    if begins {
        let begun = out.iter().find_map(|output| match output {
            Output::Log(operation) if operation.step == Step::Begin => Some(operation.transaction),
            _ => None,
        });
        if let Some(transaction) = begun {
            let new =
                ShippedTransaction { connections, writes: Vec::new(), version: None, is_aborted: false };
            state.active.insert(transaction, new);
        }
    }
}
