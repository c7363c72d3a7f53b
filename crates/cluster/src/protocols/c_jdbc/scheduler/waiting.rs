//! Locks at the scheduler, waits at replicas, and deadlocks among either.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{ReplicaId, SessionId, TableId};
use crate::parts::lock_queues::Mode;

use super::super::deadlock::{cycle_through, youngest};
use super::super::message::{Answer, Request, Tables, TransactionId};
use super::{Output, Pending, Scheduler, Stage};

/// An owner of table locks, in order of age: a transaction, or a read that is one by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Owner(pub(super) u64);

/// For each transaction with a statement that waits, those that it waits for.
type Waits = BTreeMap<TransactionId, BTreeSet<TransactionId>>;

/// The waits at the replicas, as they have reported them.
#[derive(Debug, Default)]
pub(super) struct ReplicaWaits(BTreeMap<ReplicaId, Waits>);

impl ReplicaWaits {
    pub(super) fn set(
        &mut self,
        replica: ReplicaId,
        waiter: TransactionId,
        blockers: BTreeSet<TransactionId>,
    ) {
        let waits = self.0.entry(replica).or_default();
        if blockers.is_empty() {
            waits.remove(&waiter);
        } else {
            waits.insert(waiter, blockers);
        }
    }

    pub(super) fn lose(&mut self, replica: ReplicaId) {
        self.0.remove(&replica);
    }

    /// Those that a transaction waits for at any replica.
    fn blockers(&self, waiter: TransactionId) -> impl Iterator<Item = TransactionId> + '_ {
        self.0.values().filter_map(move |waits| waits.get(&waiter)).flatten().copied()
    }
}

impl Scheduler {
    pub(super) fn new_owner(&mut self, session: SessionId) -> Owner {
        self.owners_so_far += 1;
        let owner = Owner(self.owners_so_far);
        self.owners.insert(owner, session);
        owner
    }

    /// The table locks of a statement. A read that is part of a write, such as a draw from a sequence, takes those of the write.
    pub(super) fn locks_of(&self, is_write: bool, tables: &Tables) -> Vec<(TableId, Mode)> {
        let is_write = is_write || tables.iter().any(|(_, mode)| *mode == Mode::Write);
        if self.takes_locks(is_write) { tables.to_vec() } else { Vec::new() }
    }

    /// Runs a statement when it has its locks.
    pub(super) fn lock_and_go(
        &mut self,
        session: SessionId,
        tables: &[(TableId, Mode)],
        request: Request,
        out: &mut Vec<Output>,
    ) {
        if tables.is_empty() {
            self.go(session, request, out);
            return;
        }
        let open = self.sessions.get(&session).and_then(|session| session.open);
        let owner = open.and_then(|open| self.transactions.get(&open)).map(|transaction| transaction.owner);
        let owner = owner.unwrap_or_else(|| {
            let owner = self.new_owner(session);
            self.sessions.entry(session).or_default().single = Some(owner);
            owner
        });
        if self.locks.acquire(owner, tables) {
            self.go(session, request, out);
            return;
        }
        self.sessions.entry(session).or_default().pending = Some(Pending::Locks(request));
        while let Some(cycle) =
            self.choices.rules.deadlocks_are_found.then(|| self.lock_cycle(owner)).flatten()
        {
            let victim = youngest(&cycle);
            let Some(session) = self.owners.get(&victim).copied() else { break };
            self.give_up(session, Answer::Deadlock, out);
        }
    }

    fn lock_cycle(&self, owner: Owner) -> Option<BTreeSet<Owner>> {
        cycle_through(owner, |at| self.locks.blockers(at))
    }

    /// An owner is over.
    pub(super) fn release(&mut self, owner: Owner, out: &mut Vec<Output>) {
        self.owners.remove(&owner);
        let granted = self.locks.release(owner);
        self.go_on(granted, out);
    }

    /// These have the locks that they waited for.
    pub(super) fn go_on(&mut self, granted: Vec<Owner>, out: &mut Vec<Output>) {
        for owner in granted {
            let Some(session) = self.owners.get(&owner).copied() else { continue };
            let state = self.sessions.entry(session).or_default();
            if let Some(Pending::Locks(request)) =
                state.pending.take_if(|one| matches!(one, Pending::Locks(_)))
            {
                self.go(session, request, out);
            }
        }
    }

    /// Aborts the youngest transaction of each cycle of waits at replicas. A cycle may run through several replicas, where tables
    /// have different holders.
    pub(super) fn break_replica_cycles(&mut self, start: TransactionId, out: &mut Vec<Output>) {
        if !self.choices.rules.deadlocks_are_found {
            return;
        }
        while let Some(cycle) = self.replica_cycle(start) {
            let Some(victim) = self.transactions.get(&youngest(&cycle)) else { return };
            self.give_up(victim.session, Answer::Deadlock, out);
        }
    }

    fn replica_cycle(&self, start: TransactionId) -> Option<BTreeSet<TransactionId>> {
        let blockers =
            |at| self.replica_waits.blockers(at).filter(|blocker| self.is_waiting(*blocker)).collect();
        cycle_through(start, blockers).filter(|_| self.is_waiting(start))
    }

    /// Whether the client of an open transaction waits for a write. If not, enough replicas have executed all its statements, and a
    /// slower one will, too: what it reports is no deadlock.
    fn is_waiting(&self, transaction: TransactionId) -> bool {
        let Some(state) = self.transactions.get(&transaction).filter(|state| state.stage == Stage::Open)
        else {
            return false;
        };
        let session = self.sessions.get(&state.session);
        session.is_some_and(|session| session.pending == Some(Pending::Operation))
    }
}
