//! The schedulers that ship statements, on real servers: `eager`, `fr-l`, `fr-c`, `vr-l` and `conflict-aware`.
//!
//! Conflict-aware scheduling, sections 3 to 6. The scheduler half and the proxy halves are those of the crate `cluster`,
//! the very ones that are simulated; here are the databases, the log and the clients. No row is captured: each replica
//! runs every statement that writes for itself, so such a statement must have the same effect wherever it runs
//! ([`statement`]), and all tables of a transaction are locked when it begins ([`locks`]).
//!
//! | file | holds |
//! |---|---|
//! | `lane` | one transaction at one replica |
//! | `kept` | how much is kept in memory for replicas that are behind |
//! | `decided` | the log's part: what commits is durable before anybody is told to commit (section 5.3) |
//! | `returning` | a replica is fenced, rolled forward from the log, and joins the others (sections 5.3.1, 5.3.2) |
//! | `session`, `batch`, `control`, `data`, `copy`, `transaction`, `desk` | a client |
//! | `statement`, `locks` | what a statement touches, and the text that is shipped |
//! | `start`, `kind` | a node of this kind, and what the rest of the node asks of it |
//!
//! Guarantee: 1-copy serializability, strict, for every client at any level. READ COMMITTED at the servers is enough:
//! whatever a transaction reads was locked before its first statement, so between its statements nothing that they read
//! changes, and at each replica all conflicting transactions with lower numbers have committed there.
//!
//! Invariant: this mutex is never held over a wait, nor while the coordinator's is asked for.

mod batch;
mod control;
mod copy;
mod data;
mod decided;
mod desk;
mod inside;
mod kept;
mod kind;
mod lane;
mod locks;
mod returning;
mod session;
mod shipment;
mod start;
mod statement;
mod transaction;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cluster::ids::{Epoch, Identity, Nonce, ReplicaId, SessionId};
use cluster::parts::lock_queues::LockSet;
use cluster::protocols::shipping::{
    Answer, Choices, Ending, Kind, Output, ProxyOutput, Request, SequenceNumber, Transaction, Work,
};
use tokio::sync::{mpsc, watch};

use crate::backend::Address;
use crate::coordinator::{Coordinator, QuarantineDuration};
use inside::{Desk, Inside};
use kept::Limits;
use lane::{At, Job, Origin};
use shipment::{Reply, Shipment};

pub(crate) use start::{claim_log, options, refuse_log};

/// More transactions than this are not under way at once: who begins another one waits.
const UNDER_WAY_MAX: usize = 10_000;

/// All of them, as the command line has them.
pub(crate) const PROTOCOLS: [Choices; 5] = [
    cluster::protocols::eager::EAGER,
    cluster::protocols::fr_l::FR_L,
    cluster::protocols::fr_c::FR_C,
    cluster::protocols::vr_l::VR_L,
    cluster::protocols::conflict_aware::CONFLICT_AWARE,
];

/// What a session is told of its request.
#[derive(Debug)]
pub(crate) struct Told {
    /// What came of it.
    pub(crate) answer: Answer,
    /// What the statement came to, if one was asked for and its outcome is known.
    pub(crate) reply: Option<Reply>,
}

/// What a session asks for.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Begin with these locks.
    Begin(LockSet),
    /// The next statement of the transaction, at one replica or at all.
    Execute(Kind, Shipment),
    /// Its end.
    End(Ending),
    /// A transaction that is one read.
    SingleRead(LockSet, Shipment),
    /// A transaction that is one write.
    SingleUpdate(LockSet, Shipment),
}

impl Ask {
    /// How much of it is kept until all replicas have done it.
    fn bytes(&self) -> usize {
        match self {
            Self::Execute(Kind::Write, shipment) | Self::SingleUpdate(_, shipment) => shipment.bytes(),
            Self::Begin(_) | Self::Execute(Kind::Read, _) | Self::End(_) | Self::SingleRead(..) => 0,
        }
    }
}

/// Why a request was not handed over; nothing was done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Declined {
    /// Somebody has everything to himself, or too much is under way: to be asked again when that has changed.
    Later,
    /// No more statements can be kept for replicas that have not done them yet.
    Full,
}

/// Everything that sessions, replicas and the log share.
pub(crate) struct Shipping {
    inside: Mutex<Inside>,
    coordinator: OnceLock<Arc<Coordinator>>,
    epoch: Epoch,
    nonce: Nonce,
    /// Locks are granted at once: only for tests that show that a checker notices.
    locks_are_off: bool,
    /// How much is kept in memory.
    limits: Limits,
    /// Counts whatever somebody may wait for.
    changes: watch::Sender<u64>,
}

/// What is still to be carried out.
enum Next {
    Scheduler(Output),
    Proxy(usize, ProxyOutput),
}

impl Shipping {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The coordinator of the node.
    fn coordinator(&self) -> &Arc<Coordinator> {
        self.coordinator.get().expect("the node's coordinator is there before anybody is served")
    }

    /// Where a replica listens.
    fn address(&self, replica: ReplicaId) -> Address {
        self.coordinator().seats[replica].address.clone()
    }

    /// The replica has not been given up since.
    fn is_present(&self, at: At) -> bool {
        self.lock().sides[usize::from(at.replica.0)].incarnation == at.incarnation
    }

    /// A replica that takes part.
    fn someone(&self) -> Option<At> {
        let inside = self.lock();
        let up = (0..inside.sides.len()).find(|index| inside.scheduler.is_up(replica(*index)))?;
        Some(At { replica: replica(up), incarnation: inside.sides[up].incarnation })
    }

    /// The identity of a transaction of this term.
    fn identity(&self, number: SequenceNumber) -> Identity {
        Identity { epoch: self.epoch, n: number.0, nonce: self.nonce }
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// A session comes.
    fn enter(&self, session: SessionId, origin: Arc<Origin>) -> mpsc::UnboundedReceiver<Told> {
        let (told, heard) = mpsc::unbounded_channel();
        self.lock().desks.insert(session, Desk { origin, told, open: None, asked: None, reply: None });
        heard
    }

    /// A session has gone; its transaction was ended before.
    fn leave(&self, session: SessionId) {
        let mut inside = self.lock();
        inside.scheduler.request(session, Request::InteractionOver, &mut Vec::new());
        if let Some(desk) = inside.desks.remove(&session) {
            desk.origin.close();
        }
        inside.release(session);
        drop(inside);
        self.changed();
    }

    /// Asks for everything: nobody else begins anything until it is given back. `false` if somebody else has it.
    fn take_everything(&self, session: SessionId) -> bool {
        let mut inside = self.lock();
        *inside.exclusive.get_or_insert(session) == session
    }

    /// Gives it back.
    fn give_everything_back(&self, session: SessionId) {
        self.lock().release(session);
        self.changed();
    }

    /// Whether nothing is under way anywhere.
    fn is_idle(&self) -> bool {
        self.lock().scheduler.active() == 0
    }

    /// Hands a session's request to the scheduler. `generation` is that of the catalogue by which the locks were chosen.
    fn request(self: &Arc<Self>, session: SessionId, ask: Ask, generation: u64) -> Result<(), Declined> {
        let begins = matches!(ask, Ask::Begin(_) | Ask::SingleRead(..) | Ask::SingleUpdate(..));
        let bytes = ask.bytes();
        let mut inside = self.lock();
        let is_full =
            |inside: &Inside| bytes > 0 && inside.shipments.bytes() + bytes > self.limits.kept_bytes;
        let is_crowded = |inside: &Inside| begins && inside.scheduler.active() >= UNDER_WAY_MAX;
        if is_full(&inside) || is_crowded(&inside) {
            let laggards = inside.laggards(self.limits.kept_bytes, UNDER_WAY_MAX);
            let at =
                |index: usize| At { replica: replica(index), incarnation: inside.sides[index].incarnation };
            let laggards: Vec<At> = laggards.into_iter().map(at).collect();
            drop(inside);
            for at in laggards {
                self.give_up(at, "it is too far behind for what it lacks to be kept in memory");
            }
            inside = self.lock();
            if is_full(&inside) {
                return Err(Declined::Full);
            }
        }
        let is_held = inside.exclusive.is_some_and(|holder| holder != session);
        let is_old = || self.coordinator().catalogue().generation() != generation;
        if begins && (is_held || is_crowded(&inside) || is_old()) {
            return Err(Declined::Later);
        }
        let mut out = Vec::new();
        inside.ask(session, ask, self.locks_are_off, &mut out);
        self.carry_out(inside, out.into_iter().map(Next::Scheduler).collect());
        Ok(())
    }

    /// A replica has done what it was given for a transaction.
    fn finished(self: &Arc<Self>, at: At, name: Transaction, done: Option<(Arc<Shipment>, Reply, u32)>) {
        let index = usize::from(at.replica.0);
        let mut inside = self.lock();
        if inside.sides[index].incarnation != at.incarnation {
            return;
        }
        if let Some((shipment, reply, took_us)) = done {
            inside.learn(shipment.template, took_us);
            if let Err(ended) = inside.note(&shipment, reply) {
                let reason = format!(
                    "a statement ended there with {ended}, elsewhere not: `{}`",
                    String::from_utf8_lossy(&shipment.text)
                );
                drop(inside);
                return self.diverged(at, &reason);
            }
        }
        let mut out = Vec::new();
        inside.sides[index].proxy.finished(name, &mut out);
        if let Transaction::Numbered(number) = name
            && out.iter().any(|output| matches!(output, ProxyOutput::Report(_)))
            && !inside.sides[index].proxy.has(number)
        {
            inside.ended_at(index, number);
        }
        if !matches!(name, Transaction::Numbered(number) if inside.sides[index].proxy.has(number)) {
            inside.sides[index].lanes.remove(&name);
        }
        self.carry_out(inside, out.into_iter().map(|output| Next::Proxy(index, output)).collect());
    }

    /// A replica cannot go on as the others do: it takes no part until it has been rolled forward.
    fn give_up(self: &Arc<Self>, at: At, reason: &str) {
        let index = usize::from(at.replica.0);
        let mut inside = self.lock();
        if inside.sides[index].incarnation != at.incarnation {
            return;
        }
        tracing::warn!(replica = %self.coordinator().seats[at.replica].name, reason, "the replica is given up");
        let side = &mut inside.sides[index];
        side.incarnation = at.incarnation.next();
        side.lanes.clear();
        side.tail = None;
        side.again.clear();
        let mut out = Vec::new();
        inside.scheduler.replica_lost(at.replica, &mut out);
        inside.sweep();
        self.carry_out(inside, out.into_iter().map(Next::Scheduler).collect());
        self.changed();
    }

    /// A replica did something else than the others: it takes no part any more.
    fn diverged(self: &Arc<Self>, at: At, reason: &str) {
        if self.is_present(at) {
            // The coordinator remembers it over a restart, and the board hears of it.
            self.coordinator().quarantine(at.replica, reason, QuarantineDuration::UntilRebuilt);
        }
    }

    /// The replica serves nothing until it has the data of another one.
    fn shut_out(self: &Arc<Self>, id: ReplicaId) {
        let index = usize::from(id.0);
        let incarnation = {
            let side = &mut self.lock().sides[index];
            side.is_diverged = true;
            side.incarnation
        };
        if self.coordinator.get().is_some() {
            self.give_up(At { replica: id, incarnation }, "it is in quarantine");
        }
    }

    /// It has the data of another one.
    fn let_in(&self, id: ReplicaId) {
        self.lock().sides[usize::from(id.0)].is_diverged = false;
    }

    fn carry_out(self: &Arc<Self>, mut inside: MutexGuard<'_, Inside>, first: Vec<Next>) {
        let mut queue: std::collections::VecDeque<Next> = first.into();
        while let Some(next) = queue.pop_front() {
            match next {
                Next::Scheduler(Output::ToProxy(to, message)) => {
                    let index = usize::from(to.0);
                    let mut out = Vec::new();
                    inside.sides[index].proxy.handle(message, &mut out);
                    // What a proxy says is heard before the scheduler's next word to another one, as on a network.
                    queue.extend(out.into_iter().map(|output| Next::Proxy(index, output)));
                }
                Next::Scheduler(Output::Answer(session, answer)) => inside.answer(session, answer),
                Next::Scheduler(Output::Log(number, _)) => self.decide(&mut inside, number),
                Next::Proxy(index, ProxyOutput::Report(report)) => {
                    let mut out = Vec::new();
                    inside.scheduler.report(replica(index), report, &mut out);
                    queue.extend(out.into_iter().map(Next::Scheduler));
                }
                Next::Proxy(index, ProxyOutput::Database(name, work)) => {
                    self.dispatch(&mut inside, index, name, work);
                }
            }
        }
        inside.sweep();
    }

    /// Gives a transaction's lane at a replica something to do.
    fn dispatch(self: &Arc<Self>, inside: &mut Inside, index: usize, name: Transaction, work: Work) {
        let at = At { replica: replica(index), incarnation: inside.sides[index].incarnation };
        let (statement, is_write) = match work {
            Work::Run(operation) | Work::RunAlone(operation) => {
                (Some(operation.statement), operation.kind == Kind::Write)
            }
            Work::Restart | Work::End(_) => (None, false),
        };
        let side = &mut inside.sides[index];
        side.writes += u64::from(is_write);
        side.reads += u64::from(statement.is_some() && !is_write);
        let shipment = statement.and_then(|statement| inside.shipments.get(statement)).cloned();
        let (origin, identity) = match name {
            Transaction::Numbered(number) => {
                let identity = Some(self.identity(number));
                (inside.owner(number).map(|owner| Arc::clone(&owner.origin)), identity)
            }
            Transaction::Single(session) => {
                (inside.desks.get(&session).map(|desk| Arc::clone(&desk.origin)), None)
            }
        };
        let job = Job { work, shipment, identity };
        if let Some(lane) = inside.sides[index].lanes.get(&name) {
            // Its lane ends with the replica only.
            let _ = lane.send(job);
            return;
        }
        let Some(origin) = origin else { return };
        let (sender, jobs) = mpsc::unbounded_channel();
        let _ = sender.send(job);
        inside.sides[index].lanes.insert(name, sender);
        let runtime = origin.runtime.clone();
        runtime.spawn(lane::run(Arc::clone(self), origin, at, name, jobs));
    }
}

fn replica(index: usize) -> ReplicaId {
    ReplicaId(u16::try_from(index).expect("replicas are counted by u16"))
}
