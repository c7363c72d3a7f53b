//! The scheduler: numbers, forwards, chooses, answers (sections 4.2 and 4.4 to 4.10).
//!
//! Per active transaction it keeps the number, the locks, and how many of its replicated operations each replica has
//! done; a record goes when all replicas have ended it. Loads and unfinished writers are kept per replica.
//!
//! When a replica is lost, transactions that waited for its reply wait for the others' only, and reads that ran there are sent
//! to another one: all the others have, or will have, the locks and the writes of the transaction as well. Where reads go is in
//! `reads`, and what becomes of a session's transactions when its connections are lost in `crew_loss`.

mod crew_loss;
mod reads;

use std::collections::BTreeMap;

use crate::ids::{ReplicaId, SessionId};
use crate::parts::loads::Loads;
use crate::parts::lock_queues::{LockSet, Mode};
use crate::parts::numbered::Numbered;
use crate::parts::unfinished_writers::UnfinishedWriters;

use super::message::{
    Answer, Ending, FromProxy, Kind, Operation, Request, SequenceNumber, StatementId, ToProxy,
};
use super::{Acknowledge, Choices, Place};

/// Most transactions that are not over at all replicas; a request beyond is refused.
const TRANSACTIONS_MAX: usize = 1 << 20;

/// An output of the scheduler. Outputs are carried out in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Send it. Messages to one replica keep their order.
    ToProxy(ReplicaId, ToProxy),
    /// Reply to the client.
    Answer(SessionId, Answer),
    /// Make the writes of a transaction that commits durable in the log under its number, and call
    /// [`Scheduler::logged`]: before that no replica is told to commit (section 5.3).
    Log(SequenceNumber, Vec<StatementId>),
}

/// A transaction that is not over at all replicas.
#[derive(Debug)]
pub(super) struct Active {
    /// `None` if it was another scheduler's, which has failed, or of a session that was lost.
    session: Option<SessionId>,
    pub(super) locks: LockSet,
    /// The replicated operations that were sent, the lock request the first.
    pub(super) sent: u32,
    /// For each replica, the number of them that it has done.
    pub(super) done: Vec<u32>,
    /// The number of replicas that have done all of them.
    complete: usize,
    is_answered: bool,
    /// The replica at which it is fixed, when it is.
    chosen: Option<usize>,
    pub(super) writes: Vec<Operation>,
    ended: usize,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Open,
    /// Its writes are on their way to the log; the operation of a single update is still to be sent.
    Logging(Option<Operation>),
    /// The same for a transaction of a scheduler that has failed: all its writes are still to be sent.
    Adopting,
    /// Its end was sent. A single update has the one operation that it was.
    Ending(Ending, Option<Operation>),
}

impl Active {
    /// Whether its client is gone, so that replicas get it in one message.
    pub(super) fn is_adopted(&self) -> bool {
        self.session.is_none()
    }

    pub(super) fn new(session: Option<SessionId>, locks: LockSet, stage: Stage, replicas: usize) -> Self {
        Self {
            session,
            locks,
            sent: 0,
            done: vec![0; replicas],
            complete: 0,
            is_answered: true,
            chosen: None,
            writes: Vec::new(),
            ended: 0,
            stage,
        }
    }
}

impl Stage {
    fn is_ending(self) -> bool {
        matches!(self, Self::Ending(..))
    }
}

#[derive(Debug, Default)]
struct Session {
    open: Option<SequenceNumber>,
    /// The read that is outstanding, and where.
    read: Option<(usize, ToProxy)>,
    /// Updates of the present interaction that are not over at all replicas.
    updates: Vec<SequenceNumber>,
}

/// The transactions by their numbers.
#[derive(Debug)]
pub(super) struct Actives(Numbered<Active>);

impl Default for Actives {
    fn default() -> Self {
        Self(Numbered::after(0))
    }
}

impl Actives {
    pub(super) fn insert(&mut self, number: SequenceNumber, active: Active) {
        self.0.insert(number.0, active);
    }

    pub(super) fn last(&self) -> SequenceNumber {
        SequenceNumber(self.0.last())
    }

    /// Every number up to this one is over.
    pub(super) fn over(&self) -> SequenceNumber {
        SequenceNumber(self.0.over())
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = SequenceNumber> + '_ {
        self.0.numbers().map(SequenceNumber)
    }

    pub(super) fn get(&self, number: SequenceNumber) -> Option<&Active> {
        self.0.get(number.0)
    }

    pub(super) fn get_mut(&mut self, number: SequenceNumber) -> Option<&mut Active> {
        self.0.get_mut(number.0)
    }

    fn remove(&mut self, number: SequenceNumber) -> Option<Active> {
        self.0.remove(number.0)
    }
}

/// The scheduler of a cluster.
#[derive(Debug)]
pub struct Scheduler {
    choices: Choices,
    pub(super) up: Vec<bool>,
    pub(super) up_count: usize,
    pub(super) loads: Loads,
    pub(super) actives: Actives,
    sessions: BTreeMap<SessionId, Session>,
    pub(super) writers: UnfinishedWriters,
    /// The last number that this scheduler has heard of, also from others.
    heard: SequenceNumber,
}

impl Scheduler {
    /// A scheduler of replicas that are all up and equal.
    pub fn new(choices: Choices, replicas: usize) -> Self {
        Self {
            choices,
            up: vec![true; replicas],
            up_count: replicas,
            loads: Loads::new(replicas),
            actives: Actives::default(),
            sessions: BTreeMap::new(),
            writers: UnfinishedWriters::new(replicas),
            heard: SequenceNumber::default(),
        }
    }

    /// A client asks. A transaction that begins gets the next number.
    pub fn request(&mut self, session: SessionId, request: Request, out: &mut Vec<Output>) {
        if !self.accepts(session, &request, 0) {
            out.push(Output::Answer(session, Answer::Refused));
            return;
        }
        let next = SequenceNumber(self.last().0 + 1);
        self.request_numbered(session, request, next, out);
    }

    /// Whether a session in its present state may ask this, with so many transactions about to begin.
    pub(super) fn accepts(&self, session: SessionId, request: &Request, beginning: usize) -> bool {
        let begins = matches!(request, Request::Begin(_) | Request::SingleUpdate(..));
        self.fits(session, request) && !(begins && self.active() + beginning >= TRANSACTIONS_MAX)
    }

    /// A client asks what was accepted. A transaction that begins has this number.
    pub(super) fn request_numbered(
        &mut self,
        session: SessionId,
        request: Request,
        number: SequenceNumber,
        out: &mut Vec<Output>,
    ) {
        match request {
            Request::Begin(locks) => {
                self.begin(session, number, locks.clone(), Stage::Open);
                self.replicate(number, |_| ToProxy::Lock { number, locks: locks.clone() }, out);
            }
            Request::SingleUpdate(locks, operation) => {
                self.begin(session, number, locks, Stage::Logging(Some(operation)));
                out.push(Output::Log(number, vec![operation.statement]));
            }
            Request::SingleRead(locks, operation) => self.single_read(session, locks, operation, out),
            Request::Execute(operation) => self.execute(session, operation, out),
            Request::End(ending) => self.end(session, ending, out),
            Request::InteractionOver => {
                self.sessions.remove(&session);
            }
        }
    }

    /// A proxy reports.
    pub fn report(&mut self, replica: ReplicaId, report: FromProxy, out: &mut Vec<Output>) {
        let index = usize::from(replica.0);
        if !self.up[index] {
            return;
        }
        match report {
            FromProxy::Granted(number) => self.progress(index, number, out),
            FromProxy::Done(number, operation) => {
                self.loads.take(index, operation.cost_us);
                match operation.kind {
                    Kind::Write => self.progress(index, number, out),
                    Kind::Read => {
                        if let Some(session) = self.actives.get(number).and_then(|active| active.session) {
                            self.read_done(index, session, out);
                        }
                    }
                }
            }
            FromProxy::Ended(number, operation) => {
                self.loads.take(index, operation.map_or(0, |operation| operation.cost_us));
                self.progress(index, number, out);
                self.ended(index, number);
            }
            FromProxy::Read(session, operation) => {
                self.loads.take(index, operation.cost_us);
                self.read_done(index, session, out);
            }
        }
    }

    /// The writes of a transaction are durable in the log: from now on it is decided.
    pub fn logged(&mut self, number: SequenceNumber, out: &mut Vec<Output>) {
        let Some(active) = self.actives.get_mut(number) else { return };
        let locks = active.locks.clone();
        let operation = match active.stage {
            Stage::Logging(operation) => operation,
            Stage::Adopting => return self.redo(number, &locks, out),
            Stage::Open | Stage::Ending(..) => return,
        };
        active.stage = Stage::Ending(Ending::Commit, operation);
        match operation {
            Some(operation) => {
                self.add_everywhere(operation.cost_us);
                self.replicate(
                    number,
                    |_| ToProxy::SingleUpdate { number, locks: locks.clone(), operation },
                    out,
                );
            }
            None => self.replicate(number, |_| ToProxy::End { number, ending: Ending::Commit }, out),
        }
    }

    /// Another scheduler has begun a transaction with this number, so single reads go after it.
    pub(super) fn hear_of(&mut self, number: SequenceNumber) {
        self.heard = self.heard.max(number);
    }

    /// The last number that was given out, as far as this scheduler has heard.
    pub fn last(&self) -> SequenceNumber {
        self.actives.last().max(self.heard)
    }

    /// The transaction that a session has open.
    pub(super) fn open_of(&self, session: SessionId) -> Option<(SequenceNumber, &Active)> {
        let number = self.sessions.get(&session)?.open?;
        Some((number, self.actives.get(number)?))
    }

    /// The load that all schedulers together have put on a replica, as its proxy tells it with a reply (section 4.10).
    pub fn note_load(&mut self, replica: ReplicaId, load_us: u64) {
        self.loads.tell(usize::from(replica.0), load_us);
    }

    /// The number of transactions that are not over at all replicas.
    pub fn active(&self) -> usize {
        self.actives.0.count()
    }

    /// A replica is lost, and nothing that is outstanding there will be answered (fail-stop, section 5.1).
    pub fn replica_lost(&mut self, replica: ReplicaId, out: &mut Vec<Output>) {
        let index = usize::from(replica.0);
        if !std::mem::replace(&mut self.up[index], false) {
            return;
        }
        self.up_count -= 1;
        self.loads.clear(index);
        let numbers: Vec<SequenceNumber> = self.actives.numbers().collect();
        for number in numbers {
            self.without(index, number, out);
        }
        let there = |(session, state): (&SessionId, &Session)| {
            state.read.as_ref().filter(|(at, _)| *at == index).map(|(_, message)| (*session, message.clone()))
        };
        let reads: Vec<(SessionId, ToProxy)> = self.sessions.iter().filter_map(there).collect();
        for (session, message) in reads {
            self.send_read(session, message, out);
        }
    }

    /// About how much memory the state takes.
    pub fn memory_bytes(&self) -> usize {
        let of_active = |active: &Active| {
            size_of::<(SequenceNumber, Active)>()
                + size_of_val(&*active.locks)
                + size_of_val(active.done.as_slice())
                + size_of_val(active.writes.as_slice())
        };
        let actives = self.actives.numbers().filter_map(|number| self.actives.get(number)).map(of_active);
        let of_session =
            |state: &Session| size_of::<(SessionId, Session)>() + size_of_val(state.updates.as_slice());
        actives.sum::<usize>()
            + self.sessions.values().map(of_session).sum::<usize>()
            + self.writers.memory_bytes()
            + self.loads.memory_bytes()
    }

    /// Whether a session in its present state may ask this.
    fn fits(&self, session: SessionId, request: &Request) -> bool {
        let needs_open = matches!(request, Request::Execute(_) | Request::End(_));
        let Some(state) = self.sessions.get(&session) else { return !needs_open };
        let is_idle = |number| {
            self.actives.get(number).is_some_and(|active| active.is_answered && active.stage == Stage::Open)
        };
        state.read.is_none()
            && match state.open {
                Some(number) => needs_open && is_idle(number),
                None => !needs_open,
            }
    }

    fn read_done(&mut self, index: usize, session: SessionId, out: &mut Vec<Output>) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        if state.read.take_if(|(at, _)| *at == index).is_some() {
            out.push(Output::Answer(session, Answer::Done));
        }
    }

    /// Goes on with a transaction without a replica that was lost.
    fn without(&mut self, index: usize, number: SequenceNumber, out: &mut Vec<Output>) {
        let Some(active) = self.actives.get_mut(number) else { return };
        let was_complete = active.sent > 0 && active.done[index] == active.sent;
        active.complete -= usize::from(was_complete);
        active.ended -= usize::from(was_complete && active.stage.is_ending());
        if active.chosen == Some(index) {
            // Another one that has all of it, if there is one; else the first that will.
            let has_all = |other: &usize| self.up[*other] && active.done[*other] == active.sent;
            active.chosen = (0..self.up.len()).find(has_all);
        }
        let counts = match self.choices.acknowledge {
            Acknowledge::First => false,
            Acknowledge::Chosen => active.chosen.is_some_and(|chosen| active.done[chosen] == active.sent),
            Acknowledge::All => active.complete >= self.up_count,
        };
        if counts && !active.is_answered && self.up_count > 0 {
            Self::answer(active, &mut self.sessions, out);
        }
        self.forget_if_over(number);
    }

    fn begin(&mut self, session: SessionId, number: SequenceNumber, locks: LockSet, stage: Stage) {
        let chosen = match self.choices.place {
            Place::FixedByLoad => self.loads.least(|index| self.up[index]),
            _ => None,
        };
        self.writers.begin(&locks);
        let is_update = locks.iter().any(|(_, mode)| *mode == Mode::Write);
        let active = Active { chosen, ..Active::new(Some(session), locks, stage, self.up.len()) };
        self.actives.insert(number, active);
        let state = self.sessions.entry(session).or_default();
        state.open = Some(number);
        if is_update {
            state.updates.push(number);
        }
    }

    /// Sends an operation to all replicas, another one first each time.
    pub(super) fn replicate(
        &mut self,
        number: SequenceNumber,
        what: impl Fn(usize) -> ToProxy,
        out: &mut Vec<Output>,
    ) {
        let active = self.actives.get_mut(number).expect("only an active transaction replicates");
        active.sent += 1;
        active.complete = 0;
        active.is_answered = false;
        let count = self.up.len();
        let first = (number.0 + u64::from(active.sent)) as usize % count;
        for index in (first..count).chain(0..first).filter(|index| self.up[*index]) {
            out.push(Output::ToProxy(ReplicaId(index as u16), what(index)));
        }
    }

    pub(super) fn add_everywhere(&mut self, cost_us: u32) {
        (0..self.up.len()).filter(|index| self.up[*index]).for_each(|index| self.loads.add(index, cost_us));
    }

    /// A replica has done the next of its replicated operations.
    fn progress(&mut self, index: usize, number: SequenceNumber, out: &mut Vec<Output>) {
        // What is being adopted is sent again, so a report on it is about what its lost session has asked.
        let active = self.actives.get_mut(number).filter(|active| active.stage != Stage::Adopting);
        let Some(active) = active else { return };
        active.done[index] += 1;
        if active.done[index] < active.sent {
            return;
        }
        active.complete += 1;
        if active.is_answered {
            return;
        }
        let counts = match self.choices.acknowledge {
            Acknowledge::First => true,
            Acknowledge::Chosen => *active.chosen.get_or_insert(index) == index,
            Acknowledge::All => active.complete >= self.up_count,
        };
        if counts {
            Self::answer(active, &mut self.sessions, out);
        }
    }

    fn answer(active: &mut Active, sessions: &mut BTreeMap<SessionId, Session>, out: &mut Vec<Output>) {
        active.is_answered = true;
        let Some(session) = active.session else { return };
        if active.stage.is_ending()
            && let Some(state) = sessions.get_mut(&session)
        {
            state.open = None;
        }
        out.push(Output::Answer(session, Answer::Done));
    }

    fn ended(&mut self, index: usize, number: SequenceNumber) {
        let Some(active) = self.actives.get_mut(number) else { return };
        active.ended += 1;
        self.writers.end(index, &active.locks);
        self.forget_if_over(number);
    }

    /// "The record is deleted only when all databases have returned a response" (section 4.2). When there is none left, the
    /// first that comes back has to.
    fn forget_if_over(&mut self, number: SequenceNumber) {
        let Some(active) = self.actives.get(number) else { return };
        if !active.stage.is_ending() || active.ended < self.up_count.max(1) {
            return;
        }
        let session = active.session;
        self.actives.remove(number);
        if let Some(state) = session.and_then(|session| self.sessions.get_mut(&session)) {
            state.updates.retain(|update| *update != number);
        }
    }

    fn execute(&mut self, session: SessionId, operation: Operation, out: &mut Vec<Output>) {
        let Some(number) = self.sessions.get(&session).and_then(|state| state.open) else { return };
        if operation.kind == Kind::Write {
            self.add_everywhere(operation.cost_us);
            let active = self.actives.get_mut(number).expect("it was found above");
            active.writes.push(operation);
            self.replicate(number, |_| ToProxy::Execute { number, operation }, out);
            return;
        }
        self.send_read(session, ToProxy::Execute { number, operation }, out);
    }

    fn end(&mut self, session: SessionId, ending: Ending, out: &mut Vec<Output>) {
        let Some(number) = self.sessions.get(&session).and_then(|state| state.open) else { return };
        let Some(active) = self.actives.get_mut(number) else { return };
        if ending == Ending::Commit && !active.writes.is_empty() {
            active.stage = Stage::Logging(None);
            let writes = active.writes.iter().map(|write| write.statement);
            out.push(Output::Log(number, writes.collect()));
        } else {
            active.stage = Stage::Ending(ending, None);
            self.replicate(number, |_| ToProxy::End { number, ending }, out);
        }
    }
}
