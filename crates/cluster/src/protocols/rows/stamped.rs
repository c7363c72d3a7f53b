//! Transactions in the order of their stamps: preventive replication.
//!
//! [`super::super::preventive`] has the idea, and [`crate::parts::stamps::Instance`] the order. This file tells that order what
//! happens, and carries out what it says ([`super::performing`] does at replicas that are not the home of a transaction):
//!
//! ```text
//!   Begin    submitted at its home; a message to each other replica                          Effect::Send
//!   Run      its first statement goes to its home, as under any other order                  Effect::Execute
//!   Finish   it is appended when it is ordered and the oldest that is open, and certified as ever
//!   Undo     an older one that conflicts has come: home rolls it back, and it runs again     Effect::RunAgain
//! ```
//!
//! Steps are collected during an event and carried out at its end ([`Rows::follow_stamps`]), so none of them happens in the middle
//! of another change.
//!
//! Invariants: only the oldest open transaction is appended, so one that will not be appended always loses its stamp. After
//! [`Effect::RunAgain`], reports of the session do not count until it says [`Event::Undone`] or ends the transaction.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::apply_batching::Alarm;
use super::performing::Performers;
use super::updates::Known;
use super::{Out, Pending, Perform, Phase, Rows, table_of};
use crate::claims::Claims;
use crate::event::{Digest, Effect, Event, Message, Needs};
use crate::ids::{ReplicaId, SessionId, Version};
use crate::parts::in_flight::Place;
use crate::parts::order::Go;
use crate::parts::replica::State;
use crate::parts::stamps::{Can, Guards, Instance, Mode, Seen, Stamp, Step, Submission};
use crate::placement::ReplicaSet;
use crate::protocols::StampCounts;
use crate::time::Time;

/// The first statement of an open transaction, and what it is submitted with.
#[derive(Debug)]
struct First {
    needs: Needs,
    claims: Arc<Claims>,
    can: Can,
    is_performed: bool,
}

/// What a protocol has that orders by stamps.
#[derive(Debug)]
pub(super) struct Stamped {
    pub(super) instance: Instance,
    pub(super) performers: Performers,
    /// What has to be done at the end of the event.
    pub(super) steps: VecDeque<Step>,
    first: BTreeMap<SessionId, First>,
    /// Transactions that get their stamp when their home is up.
    unstamped: BTreeSet<SessionId>,
    /// Transactions that home is rolling back, to run them again.
    undoing: BTreeSet<SessionId>,
    /// What the home of a transaction has changed.
    digests: BTreeMap<SessionId, Digest>,
    /// Versions that some replica may not show yet.
    stamps: BTreeMap<Version, Stamp>,
    /// By replica, the version up to which its agent was told what is shown there.
    shown: BTreeMap<usize, Version>,
}

impl Stamped {
    pub(super) fn new(mode: Mode, guards: Guards) -> Self {
        Self {
            instance: Instance::new(mode, guards),
            performers: Performers::default(),
            steps: VecDeque::new(),
            first: BTreeMap::new(),
            unstamped: BTreeSet::new(),
            undoing: BTreeSet::new(),
            digests: BTreeMap::new(),
            stamps: BTreeMap::new(),
            shown: BTreeMap::new(),
        }
    }

    pub(super) fn counts(&self) -> StampCounts {
        let Seen { sent, unordered, late, undone } = self.instance.seen();
        StampCounts { sent, unordered, late, undone, ..self.performers.counts }
    }

    pub(super) fn is_stamped(&self, session: SessionId) -> bool {
        self.instance.stamp(session).is_some() || self.unstamped.contains(&session)
    }

    /// The session of an older transaction that this one waits for.
    pub(super) fn rival(&self, session: SessionId) -> Option<SessionId> {
        self.instance.rival(session)
    }

    /// Whether an event is of an execution that is being undone.
    pub(super) fn ignores(&self, event: &Event) -> bool {
        let (Event::Statement { session, .. }
        | Event::ReserveLate { session, .. }
        | Event::Executed { session }
        | Event::LockLsn { session, .. }
        | Event::Digest { session, .. }
        | Event::Finish { session, .. }
        | Event::Withdraw { session }) = event
        else {
            return false;
        };
        self.undoing.contains(session)
    }

    /// The transaction has no place in the order any more.
    fn over(&mut self, session: SessionId) {
        self.first.remove(&session);
        self.unstamped.remove(&session);
        self.undoing.remove(&session);
        self.digests.remove(&session);
        let steps = self.instance.ended(session);
        self.steps.extend(steps);
    }
}

impl Rows {
    /// An event that only protocols with stamps know.
    pub(super) fn take_stamped(&mut self, event: Event, out: &mut Out<'_>) {
        match event {
            Event::Arrived { to, message, .. } => self.message(to, message, out.now),
            Event::Digest { session, digest } => {
                if let Some(stamped) = &mut self.stamped {
                    stamped.digests.insert(session, digest);
                }
            }
            Event::Undone { session } => self.undone(session, out),
            Event::Performed { replica, identity, attempt, performance } => {
                self.performed(usize::from(replica.0), identity, attempt, performance, out);
            }
            _ => {}
        }
    }

    /// A transaction begins under an order by stamps. One that is not known as a whole claims everything, and starts in order,
    /// since its client sees what it does.
    pub(super) fn begin_stamped(
        &mut self,
        session: SessionId,
        needs: Needs,
        known: Option<Known>,
        out: &mut Out<'_>,
    ) {
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        let is_whole = known.is_some();
        let is_performable = known.as_ref().is_some_and(|known| known.is_performable);
        let claims = known.map_or_else(Claims::everything, |known| known.chained);
        transaction.seen = Some(Box::new(claims.clone()));
        let table = table_of(&needs.writes).or_else(|| table_of(&claims));
        transaction.pending = Some(Pending { needs: needs.clone(), since: out.now, table });
        let is_performed = is_performable && self.choices.perform == Perform::AllHolders;
        let can = if is_whole { Can::Perform } else { Can::PerformInOrder };
        let Some(stamped) = &mut self.stamped else { return };
        let first = First { needs, claims: Arc::new(claims), can, is_performed };
        stamped.first.insert(session, first);
        stamped.unstamped.insert(session);
        self.give_stamps(out);
        if is_whole {
            self.begins_to_wait(session, out);
        }
    }

    /// Submits the transactions whose home is up by now.
    fn give_stamps(&mut self, out: &mut Out<'_>) {
        let Some(stamped) = &mut self.stamped else { return };
        for session in std::mem::take(&mut stamped.unstamped) {
            let (Some(transaction), Some(first)) =
                (self.transactions.get(&session), stamped.first.get(&session))
            else {
                continue;
            };
            let home = transaction.home;
            if !stamped.instance.is_up(home) {
                stamped.unstamped.insert(session);
                continue;
            }
            let performers = if first.is_performed {
                // A secondary copy is not updated where it is, but refreshed.
                let holders = self.placement.holders_of(&first.needs.touches);
                self.placement.masters_among(holders, first.needs.writes.written_tables())
            } else {
                ReplicaSet::EMPTY
            };
            let (identity, can) = (transaction.identity, first.can);
            let submission =
                Submission { identity, home, claims: Arc::clone(&first.claims), can, performers };
            stamped.steps.extend(stamped.instance.submit(out.now, session, submission));
        }
    }

    /// Carries out what the order says, until it says nothing more. Called at the end of each event.
    pub(super) fn follow_stamps(&mut self, out: &mut Out<'_>) {
        if self.stamped.is_none() {
            return;
        }
        self.give_stamps(out);
        loop {
            while let Some(step) = self.stamped.as_mut().and_then(|one| one.steps.pop_front()) {
                self.follow(step, out);
            }
            self.tell_shown();
            let has_appended = self.append_oldest(out);
            if !has_appended && self.stamped.as_ref().is_none_or(|one| one.steps.is_empty()) {
                break;
            }
        }
        let Some(stamped) = &self.stamped else { return };
        let alarms: Vec<(usize, Time)> = (0..stamped.instance.replicas())
            .filter_map(|replica| Some((replica, stamped.instance.next_alarm(replica)?)))
            .collect();
        for (replica, at) in alarms {
            self.set_alarm(Alarm::Delivery(replica), at, out);
        }
    }

    fn follow(&mut self, step: Step, out: &mut Out<'_>) {
        match step {
            Step::Send { from, to, message } => out.effects.push(Effect::Send { from, to, message }),
            Step::Run(session) => self.go_on(vec![Go::Run(session)], out),
            Step::Perform { replica, session, identity, stamp } => {
                let (id, incarnation) = (self.replicas[replica].id, self.replicas[replica].incarnation);
                if let Some(stamped) = &mut self.stamped {
                    let attempt = stamped.performers.begin(replica, identity, stamp);
                    out.effects.push(Effect::Perform {
                        replica: id,
                        incarnation,
                        session,
                        identity,
                        attempt,
                    });
                }
            }
            Step::UndoAt { replica, identity, stamp } => {
                let Some(stamped) = &mut self.stamped else { return };
                out.effects.extend(stamped.performers.dismiss(replica, identity));
                let steps = stamped.instance.undone(replica, stamp);
                stamped.steps.extend(steps);
            }
            Step::Undo(session) => self.undo_at_home(session, out),
        }
    }

    /// Home has to roll the transaction back and run it again. One that was not let run yet only waits again.
    fn undo_at_home(&mut self, session: SessionId, out: &mut Out<'_>) {
        for replica in &mut self.replicas {
            replica.waiting.remove(session);
        }
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        if transaction.is_fresh {
            self.wait_again(session, out);
            return;
        }
        transaction.is_fresh = true;
        transaction.bases.clear();
        transaction.lock_lsn = None;
        transaction.pending = None;
        let (home, phase) = (transaction.home, std::mem::replace(&mut transaction.phase, Phase::Open));
        if let Some(stamped) = &mut self.stamped {
            stamped.undoing.insert(session);
            stamped.digests.remove(&session);
        }
        self.executed(session);
        out.effects.push(Effect::RunAgain { session });
        if let Phase::Finished(finished) | Phase::Suspected(finished) = phase {
            self.unfinish(session, home, &finished, out);
        }
    }

    /// Home has rolled the transaction back.
    fn undone(&mut self, session: SessionId, out: &mut Out<'_>) {
        let stamped = self.stamped.as_mut();
        if stamped.is_some_and(|stamped| stamped.undoing.remove(&session)) {
            self.wait_again(session, out);
        }
    }

    fn wait_again(&mut self, session: SessionId, out: &Out<'_>) {
        let Some(stamped) = &mut self.stamped else { return };
        let (Some(transaction), Some(first)) =
            (self.transactions.get_mut(&session), stamped.first.get(&session))
        else {
            return;
        };
        let table = table_of(&first.needs.writes).or_else(|| table_of(&first.claims));
        transaction.pending = Some(Pending { needs: first.needs.clone(), since: out.now, table });
        let steps = stamped.instance.undone_at_home(session);
        stamped.steps.extend(steps);
    }

    /// Tells the agents which records their replicas show by now.
    fn tell_shown(&mut self) {
        let Some(stamped) = &mut self.stamped else { return };
        let up = |index: &usize| self.replicas[*index].state == State::Up;
        for index in (0..self.replicas.len()).filter(up) {
            let applied = self.replicas[index].applied;
            let shown = stamped.shown.entry(index).or_insert(applied);
            if applied > *shown {
                for (_, stamp) in stamped.stamps.range(shown.next()..=applied) {
                    stamped.steps.extend(stamped.instance.committed(index, *stamp));
                }
            }
            *shown = applied;
        }
        let least = (0..self.replicas.len()).filter(up).map(|index| self.replicas[index].applied).min();
        let kept = stamped.stamps.split_off(&least.unwrap_or(self.last).next());
        stamped.stamps = kept;
    }

    /// Appends the oldest open transaction, if it is done. Returns whether it did, or whether that transaction failed.
    fn append_oldest(&mut self, out: &mut Out<'_>) -> bool {
        let next = |rows: &Self| rows.stamped.as_ref().and_then(|one| one.instance.next());
        let Some(session) = next(self) else { return false };
        self.append(session, out);
        next(self) != Some(session)
    }

    /// Whether a transaction may be appended, as far as stamps are concerned.
    pub(super) fn is_next_by_stamp(&self, session: SessionId) -> bool {
        self.stamped
            .as_ref()
            .is_none_or(|one| one.instance.stamp(session).is_none() || one.instance.next() == Some(session))
    }

    /// The session's transaction has finished its statements.
    pub(super) fn finished_by_stamp(&mut self, session: SessionId) {
        if let Some(stamped) = &mut self.stamped {
            let steps = stamped.instance.finished(session);
            stamped.steps.extend(steps);
        }
    }

    /// The transaction gets this version. Returns the digest of what home has changed.
    pub(super) fn appended_by_stamp(
        &mut self,
        session: SessionId,
        version: Version,
        now: Time,
    ) -> Option<Digest> {
        let stamped = self.stamped.as_mut()?;
        let digest = stamped.digests.remove(&session);
        if let Some((stamp, steps)) = stamped.instance.appended(now, session) {
            stamped.stamps.insert(version, stamp);
            stamped.steps.extend(steps);
        }
        digest
    }

    /// The session's transaction is over, or can only be rolled back.
    pub(super) fn over_by_stamp(&mut self, session: SessionId) {
        if let Some(stamped) = &mut self.stamped {
            stamped.over(session);
        }
    }

    /// A message of one agent to another.
    fn message(&mut self, to: ReplicaId, message: Message, now: Time) {
        if let Some(stamped) = &mut self.stamped {
            let steps = stamped.instance.arrived(now, usize::from(to.0), message);
            stamped.steps.extend(steps);
        }
    }

    /// The time has come at which a replica has received all that is older than some transaction.
    pub(super) fn delivery_time(&mut self, index: usize, now: Time) {
        if let Some(stamped) = &mut self.stamped {
            let steps = stamped.instance.alarm(now, index);
            stamped.steps.extend(steps);
        }
    }

    /// A replica is up. It has no executions, and its agent knows nothing.
    pub(super) fn agent_up(&mut self, index: usize, now: Time) {
        let applied = self.replicas[index].applied;
        if let Some(stamped) = &mut self.stamped {
            stamped.performers.lost(index);
            stamped.shown.insert(index, applied);
            let steps = stamped.instance.up(now, index);
            stamped.steps.extend(steps);
        }
    }

    /// A replica is lost, with all executions there.
    pub(super) fn agent_lost(&mut self, index: usize) {
        if let Some(stamped) = &mut self.stamped {
            stamped.instance.lost(index);
            stamped.performers.lost(index);
        }
    }

    /// Transactions that wait inside a server for a younger one, although their claims do not conflict: the younger one is undone. It
    /// could not be appended before them.
    pub(super) fn undo_younger(&mut self, waits: &BTreeMap<SessionId, BTreeSet<SessionId>>) {
        let Some(stamped) = self.stamped.as_mut().filter(|_| self.rules.younger_give_way) else { return };
        for (waiter, holders) in waits {
            let Some(older) = stamped.instance.stamp(*waiter) else { continue };
            for holder in holders {
                if stamped.instance.stamp(*holder).is_some_and(|stamp| stamp > older) {
                    stamped.steps.extend(stamped.instance.evict(*holder));
                }
            }
        }
    }

    /// The transaction that has finished at this place keeps another one waiting. If it is younger, it is undone.
    pub(super) fn undo_younger_at(&mut self, place: Place, waiter: SessionId) {
        if self.stamped.is_none() {
            return;
        }
        let is_there = |phase: &Phase| matches!(phase, Phase::Finished(one) | Phase::Suspected(one) if one.place == place);
        let holder = self.transactions.iter().find(|(_, transaction)| is_there(&transaction.phase));
        if let Some((holder, _)) = holder {
            let waits = BTreeMap::from([(waiter, BTreeSet::from([*holder]))]);
            self.undo_younger(&waits);
        }
    }
}
