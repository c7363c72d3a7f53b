//! What is behind the mutex: the scheduler, the proxies, and what the drivers of both keep.
//!
//! The scheduler names statements; their texts are kept here until their transaction is over everywhere, and longer while
//! a replica returns that may have to do it again. The first replica's outcome of a statement that writes is what all
//! others must come to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use cluster::ids::{Incarnation, SessionId, Version};
use cluster::parts::lock_queues::LockSet;
use cluster::protocols::shipping::{
    Answer, Decided, Kind, Operation, Output, Proxy, Request, Scheduler, SequenceNumber, StatementId,
    Transaction,
};
use sql::TemplateId;
use tokio::sync::mpsc;

use super::kept::Kept;
use super::lane::{Job, Origin};
use super::shipment::{Reply, Shipment};
use super::{Ask, Told};

/// Templates whose times are known.
const TEMPLATES_MAX: usize = 8_192;
/// What a statement is taken to cost before it was seen, in microseconds.
const COST_US: u32 = 1_000;

/// A replica's proxy, and what its database has to do.
pub(super) struct Side {
    pub(super) proxy: Proxy,
    pub(super) incarnation: Incarnation,
    pub(super) lanes: BTreeMap<Transaction, mpsc::UnboundedSender<Job>>,
    /// Versions that are decided and not over here.
    pub(super) undone: BTreeSet<Version>,
    /// What was decided since the replica was asked what it has, while it returns.
    pub(super) tail: Option<BTreeMap<SequenceNumber, Decided>>,
    /// Numbers that are done again here.
    pub(super) again: BTreeSet<SequenceNumber>,
    pub(super) is_diverged: bool,
    pub(super) reads: u64,
    pub(super) writes: u64,
}

/// A transaction that is not over.
pub(super) struct Owner {
    pub(super) origin: Arc<Origin>,
    pub(super) locks: LockSet,
    pub(super) writes: Vec<Operation>,
    /// Once it is decided.
    pub(super) version: Option<Version>,
}

pub(super) struct Desk {
    pub(super) origin: Arc<Origin>,
    pub(super) told: mpsc::UnboundedSender<Told>,
    pub(super) open: Option<SequenceNumber>,
    pub(super) asked: Option<StatementId>,
    pub(super) reply: Option<Reply>,
}

pub(super) struct Inside {
    pub(super) scheduler: Scheduler,
    pub(super) sides: Vec<Side>,
    pub(super) desks: BTreeMap<SessionId, Desk>,
    pub(super) owners: BTreeMap<SequenceNumber, Owner>,
    /// Of transactions that are over, kept for replicas that return.
    pub(super) past: BTreeMap<SequenceNumber, Owner>,
    pub(super) shipments: Kept,
    /// What the first replica made of statements that write.
    pub(super) outcomes: BTreeMap<StatementId, Vec<u8>>,
    pub(super) last_statement: u64,
    /// Who has everything to itself, or wants to.
    pub(super) exclusive: Option<SessionId>,
    /// Appended, in order, and not durable yet.
    pub(super) pending: VecDeque<(Version, SequenceNumber)>,
    pub(super) appended: Version,
    /// Of the records of this term that the log still has.
    pub(super) numbers: BTreeMap<Version, SequenceNumber>,
    pub(super) times: BTreeMap<TemplateId, u32>,
}

impl Inside {
    pub(super) fn release(&mut self, session: SessionId) {
        self.exclusive.take_if(|holder| *holder == session);
    }

    pub(super) fn ask(&mut self, session: SessionId, ask: Ask, locks_are_off: bool, out: &mut Vec<Output>) {
        let Some(desk) = self.desks.get_mut(&session) else { return };
        (desk.asked, desk.reply) = (None, None);
        let origin = Arc::clone(&desk.origin);
        let open = desk.open;
        let free = |locks: LockSet| if locks_are_off { LockSet::from([]) } else { locks };
        let (request, locks) = match ask {
            Ask::Begin(locks) => (Request::Begin(free(locks.clone())), Some(locks)),
            Ask::End(ending) => (Request::End(ending), None),
            Ask::Execute(kind, shipment) => {
                let operation = self.keep(session, kind, shipment);
                if kind == Kind::Write
                    && let Some(owner) = open.and_then(|number| self.owners.get_mut(&number))
                {
                    owner.writes.push(operation);
                }
                (Request::Execute(operation), None)
            }
            Ask::SingleRead(locks, shipment) => {
                let operation = self.keep(session, Kind::Read, shipment);
                (Request::SingleRead(free(locks), operation), None)
            }
            Ask::SingleUpdate(locks, shipment) => {
                let operation = self.keep(session, Kind::Write, shipment);
                let number = SequenceNumber(self.scheduler.last().0 + 1);
                let owner =
                    Owner { origin, locks: free(locks.clone()), writes: vec![operation], version: None };
                self.owners.insert(number, owner);
                self.scheduler.request(session, Request::SingleUpdate(free(locks), operation), out);
                return;
            }
        };
        if let Some(locks) = locks {
            let number = SequenceNumber(self.scheduler.last().0 + 1);
            self.owners
                .insert(number, Owner { origin, locks: free(locks), writes: Vec::new(), version: None });
            if let Some(desk) = self.desks.get_mut(&session) {
                desk.open = Some(number);
            }
        } else if matches!(request, Request::End(_))
            && let Some(desk) = self.desks.get_mut(&session)
        {
            desk.open = None;
        }
        self.scheduler.request(session, request, out);
    }

    /// Names a statement and keeps it.
    pub(super) fn keep(&mut self, session: SessionId, kind: Kind, mut shipment: Shipment) -> Operation {
        self.last_statement += 1;
        let statement = StatementId(self.last_statement);
        (shipment.id, shipment.session, shipment.is_write) = (statement, session, kind == Kind::Write);
        let cost_us = self.times.get(&shipment.template).copied().unwrap_or(COST_US);
        self.shipments.insert(statement, Arc::new(shipment));
        if let Some(desk) = self.desks.get_mut(&session) {
            desk.asked = Some(statement);
        }
        Operation { kind, statement, cost_us }
    }

    /// The times are measured as it goes, where the paper measured beforehand (section 4.10).
    pub(super) fn learn(&mut self, template: TemplateId, took_us: u32) {
        if self.times.len() >= TEMPLATES_MAX && !self.times.contains_key(&template) {
            self.times.clear();
        }
        let time = self.times.entry(template).or_insert(took_us);
        *time = (*time - *time / 8).saturating_add(took_us / 8);
    }

    /// Takes a reply for the session that waits for it; the first counts. The error says what the first replica made of
    /// the statement, if that was something else.
    pub(super) fn note(&mut self, shipment: &Shipment, reply: Reply) -> Result<(), String> {
        if shipment.is_write {
            match self.outcomes.get(&shipment.id) {
                Some(first) if *first != reply.outcome => {
                    return Err(String::from_utf8_lossy(&reply.outcome).into_owned());
                }
                Some(_) => {}
                None => {
                    self.outcomes.insert(shipment.id, reply.outcome.clone());
                }
            }
        }
        if let Some(desk) = self.desks.get_mut(&shipment.session)
            && desk.asked == Some(shipment.id)
        {
            desk.reply.get_or_insert(reply);
        }
        Ok(())
    }

    pub(super) fn answer(&mut self, session: SessionId, answer: Answer) {
        let Some(desk) = self.desks.get_mut(&session) else { return };
        let statement = desk.asked.take();
        let told = Told { answer, reply: desk.reply.take() };
        // A session that has gone is not told.
        let _ = desk.told.send(told);
        // What writes is kept until it is over.
        if let Some(statement) = statement
            && self.shipments.get(statement).is_some_and(|shipment| !shipment.is_write)
        {
            self.shipments.remove(statement);
        }
    }

    /// Every version up to this one is over at a replica.
    pub(super) fn over_at(&self, index: usize) -> Version {
        let first = self.sides[index].undone.first();
        first.map_or(self.appended, |version| Version(version.0.saturating_sub(1)))
    }

    /// A transaction is over at a replica.
    pub(super) fn ended_at(&mut self, index: usize, number: SequenceNumber) {
        let version = self.owner(number).and_then(|owner| owner.version);
        let side = &mut self.sides[index];
        if let Some(version) = version {
            side.undone.remove(&version);
        }
        side.again.remove(&number);
    }

    /// Whose a transaction is, over or not.
    pub(super) fn owner(&self, number: SequenceNumber) -> Option<&Owner> {
        self.owners.get(&number).or_else(|| self.past.get(&number))
    }

    /// Forgets what is over everywhere.
    pub(super) fn sweep(&mut self) {
        while let Some(number) = self.owners.keys().copied().find(|number| !self.scheduler.has(*number)) {
            self.past.extend(self.owners.remove(&number).map(|owner| (number, owner)));
        }
        if self.sides.iter().all(|side| side.tail.is_none() && side.again.is_empty()) {
            for write in std::mem::take(&mut self.past).into_values().flat_map(|owner| owner.writes) {
                self.shipments.remove(write.statement);
                self.outcomes.remove(&write.statement);
            }
        }
    }
}
