//! Drawing from sequences away from the anchor, and asking for drawn values.
//!
//! A statement that may draw runs at another home only if that home holds a lease on a range of every sequence that the
//! statement may draw from (`cluster::parts::sequences::leases`). The session requests missing leases. If the range
//! ends in the middle of the statement, the server fails it, and the statement runs again at the anchor, transparently
//! if the client has received nothing of it.
//!
//! Only the server connection on which the session drew last can answer `currval` and `lastval`. The session remembers
//! that connection ([`crate::pool::draws`]) and asks there. When it draws at another replica, it discards the values of
//! the former connection, so an answer can be missing (55000) but not stale.
//!
//! Invariant: at a replica that is not the anchor, a transaction draws only from leased ranges.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::event::{Effect, Home};
use cluster::ids::{ReplicaId, SequenceId};
use tokio::time::Instant;
use wire::sqlstate;

use super::own_settings::HomePreference;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::client::cancel::CancelState;
use crate::client::ending::{cancelled, ended};
use crate::coordinator::mailbox::{End, Note};
use crate::error::{Fault, Refusal};
use crate::link::wait::{WAIT_MAX, timed_out};
use crate::local::session_registry::Activity;
use crate::place::Placer;
use crate::relay::Ended;
use crate::transaction::open::Transaction;
use crate::transaction::sequence_use::HeldLeases;
use crate::transaction::view::View;

/// The pause between two looks at a lease.
const LOOK: Duration = Duration::from_millis(1);
/// Each pause is twice as long as the one before, up to this, so that a long wait costs little processor time.
const LOOK_MAX: Duration = Duration::from_millis(64);

impl View<'_> {
    /// Whether a statement that may draw from these sequences may run away from the anchor.
    pub(crate) fn may_use_leases(self, draws: &BTreeSet<SequenceId>) -> bool {
        draws.is_empty()
            || (self.uses_leases()
                && self.home_preference() != HomePreference::Anchor
                && !self.are_refused(draws))
    }

    fn are_refused(self, draws: &BTreeSet<SequenceId>) -> bool {
        self.link.database().sequences().leases.is_any_refused(draws)
    }

    /// Leases for a statement that may draw from these sequences at a replica. None if the replica lacks one, which is
    /// then requested. A lease stays valid as long as the transaction holds it.
    pub(crate) fn take_leases(self, draws: &BTreeSet<SequenceId>, replica: ReplicaId) -> Option<HeldLeases> {
        let coordinator = self.link.coordinator();
        let mut uses = HeldLeases::new();
        if draws.is_empty() || replica == coordinator.view.anchor() {
            return Some(uses);
        }
        let mut sequences = coordinator.database.sequences();
        for id in draws {
            uses.extend(sequences.leases.ask(*id, replica, 1).map(|of| (*id, of)));
        }
        let may = uses.len() == draws.len();
        let is_asked = sequences.leases.is_asked();
        drop(sequences);
        if is_asked {
            coordinator.sequences.request();
        }
        may.then_some(uses)
    }

    /// A statement has run that may have set sequences. A rollback does not undo that. So transactions that begin from
    /// now on may not draw from earlier leases.
    pub(crate) fn after_setting(self, analysis: &StatementAnalysis) {
        if analysis.sequences.calls_setval() {
            self.link.database().sequences().leases.void_all();
        }
    }

    /// Whether a statement failed because the range of its replica has ended. Then a further range is requested, a
    /// longer one if the range was too short for the same statement before. The replica may have become the anchor
    /// meanwhile.
    pub(crate) fn met_end_of_range(
        self,
        ended: &Ended,
        analysis: &StatementAnalysis,
        replica: ReplicaId,
        is_short: bool,
    ) -> bool {
        let draws = analysis.draws();
        let is_end = ended.sqlstate() == Some(sqlstate::SEQUENCE_GENERATOR_LIMIT_EXCEEDED.as_bytes())
            && !self.txn.lease_use.ranges.is_empty()
            && !draws.is_empty();
        if is_end {
            let mut sequences = self.link.database().sequences();
            for (id, range) in self.txn.lease_use.ranges.iter().filter(|(id, _)| draws.contains(id)) {
                sequences.leases.spent(*id, replica, *range, is_short);
            }
            drop(sequences);
            self.link.coordinator().sequences.request();
        }
        is_end
    }
}

impl Placer<'_> {
    /// Whether the statement asks for values that only a replica other than the anchor knows.
    pub(crate) fn asks_draws_elsewhere(&mut self, analysis: &StatementAnalysis) -> bool {
        let anchor = self.link.anchor();
        analysis.sequences.asks_draws()
            && self.link.servers.draws.certain_place().is_some_and(|place| place != anchor)
    }

    /// Whether the replica of the open update transaction lacks a lease for a further statement, even after a wait.
    pub(crate) async fn lacks_lease(&mut self, analysis: &StatementAnalysis) -> Result<bool, Fault> {
        let Transaction::Update(update) = &self.txn.state else { return Ok(false) };
        let replica = update.replica;
        if replica == self.link.anchor() || !analysis.may_leave_anchor {
            return Ok(false);
        }
        let Some(mut uses) = self.await_leases(&analysis.draws(), replica).await? else { return Ok(true) };
        self.txn.lease_use.ranges.extend(uses.iter().map(|(id, one)| (*id, one.range())));
        if let Transaction::Update(update) = &mut self.txn.state {
            update.sequences.leases.append(&mut uses);
        }
        Ok(false)
    }

    /// Waits until a replica has the leases, which mostly takes milliseconds. The limit is the client's
    /// `statement_timeout`, or that of any other wait for a place. `None` if the replica does not get them.
    async fn await_leases(
        &mut self,
        draws: &BTreeSet<SequenceId>,
        replica: ReplicaId,
    ) -> Result<Option<HeldLeases>, Fault> {
        if let Some(uses) = self.view().take_leases(draws, replica) {
            return Ok(Some(uses));
        }
        let limit = self.link.settings.noted.timeouts.statement().filter(|limit| *limit < WAIT_MAX);
        let until = Instant::now() + limit.unwrap_or(WAIT_MAX);
        self.link.session_registration.mailbox.forget_cancel();
        self.link.session_registration.cancel.set(CancelState::Waiting);
        let _shown = self.link.session_registration.entry.wait(Activity::Waiting);
        let mut look = LOOK;
        while !self.view().are_refused(draws) && !self.link.database().sequences().leases.is_barred(replica) {
            if let Some(uses) = self.view().take_leases(draws, replica) {
                return Ok(Some(uses));
            }
            if Instant::now() >= until {
                return limit.map_or(Ok(None), |_| Err(timed_out().into()));
            }
            self.hear_for(look).await?;
            look = LOOK_MAX.min(look * 2);
        }
        Ok(None)
    }

    /// Waits for some time, unless a message ends the whole wait.
    async fn hear_for(&mut self, time: Duration) -> Result<(), Fault> {
        let Ok(note) = tokio::time::timeout(time, self.link.session_registration.mailbox.next()).await else {
            return self.link.client.leaves_by_now().map_or(Ok(()), Err);
        };
        match note {
            Note::Cancel => return Err(cancelled().into()),
            Note::Effect(Effect::Abort { cause, .. }) => {
                let fault = self.view().aborted(cause, self.txn.last_home);
                self.driver().step_back().await;
                return Err(fault);
            }
            Note::End(end @ (End::Succession | End::AfterTransaction)) => {
                self.link.session_registration.note_end(end);
            }
            Note::End(end) => return Err(Fault::Fatal(ended(end))),
            Note::Effect(_) | Note::Drained => {}
        }
        Ok(())
    }

    /// Waits for the leases of a statement that asks for values drawn at a replica and also draws. It cannot run
    /// elsewhere.
    pub(crate) async fn await_lease(
        &mut self,
        draws: &BTreeSet<SequenceId>,
        replica: ReplicaId,
    ) -> Result<(), Fault> {
        if self.await_leases(draws, replica).await?.is_some() {
            return Ok(());
        }
        Err(Refusal::unsupported(
            "currval or lastval in a statement that draws from a sequence of which nothing is lent to the replica",
            "Use RETURNING, or SET onecopy.sequences = anchor.",
        )
        .into())
    }

    /// Waits until a replica that has become the anchor has returned its leases: the anchor draws from the sequences
    /// themselves.
    pub(crate) async fn await_sequences(&mut self, replica: ReplicaId) -> Result<(), Fault> {
        let started = Instant::now();
        let coordinator = Arc::clone(&self.link.worker.coordinator);
        let seat = &coordinator.seats[replica];
        while self.link.anchor() == replica && seat.is_lent.load(Ordering::Acquire) {
            if started.elapsed() > WAIT_MAX {
                return Err(Fault::Lost(replica));
            }
            if let Some(fault) = self.link.client.leaves_by_now() {
                return Err(fault);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// The home of a statement that asks for drawn values, or that draws in a session which asks for them.
    pub(crate) fn home_of_draws(&mut self, analysis: &StatementAnalysis, home: Home) -> Home {
        self.link.servers.draws.is_asked |= analysis.sequences.asks_draws();
        let Some(place) = self.link.servers.draws.certain_place() else { return home };
        if !analysis.sequences.asks_draws()
            && (!self.link.servers.draws.is_asked || analysis.draws().is_empty())
        {
            return home;
        }
        if place == self.link.anchor() { Home::Anchor } else { Home::At(place) }
    }

    /// A statement that draws, or may do so, is about to run in the open update transaction.
    pub(crate) fn note_place_of_draws(&mut self, analysis: &StatementAnalysis) {
        let Transaction::Update(update) = &self.txn.state else { return };
        let (replica, draws) = (update.replica, analysis.draws());
        if !draws.is_empty() {
            self.link.servers.draw_at(replica);
            self.txn.lease_use.last_at = Some(replica);
            if let Transaction::Update(update) = &mut self.txn.state {
                update.profile.draws.extend(draws);
            }
        } else if analysis.may_draw_unseen() || analysis.sequences.calls_setval() {
            self.link.servers.may_draw_at(replica);
        }
    }

    /// Handles the end of a statement that began at `mark` of the output. If it reached the end of a range, it has
    /// aborted the transaction, without fault of the client.
    pub(crate) async fn after_draw(
        &mut self,
        analysis: &StatementAnalysis,
        mark: usize,
        ended: Result<Ended, Fault>,
    ) -> Result<Ended, Fault> {
        if let Ok(Ended { error: Some(_), .. }) = &ended
            && !self.link.client.shown
            && let Ok(failed) = &ended
            && self.view().met_end_of_range(failed, analysis, self.txn.last_home, false)
        {
            self.link.client.take_back(mark);
            return Err(self
                .lose_at_home("the values of a sequence that the replica was lent are used up")
                .await);
        }
        self.view().after_setting(analysis);
        ended
    }
}
