//! Drawing from sequences away from the anchor, and asking what was drawn.
//!
//! A statement that may draw runs at another home only if that holds a lease on a range of every sequence that it may draw
//! from (`cluster::parts::sequences::leases`); a request for a lease is what gets it one. If the range ends in the middle of
//! the statement, the server refuses to go on, and the statement runs again at the anchor, unseen if the client has seen
//! nothing of it.
//!
//! Only one server connection knows what `currval` and `lastval` return: that on which the session drew last. The session
//! remembers which it is ([`crate::pool::draws`]) and asks there. When it draws at another place, it
//! discards what the former one knows, so an answer can be missing (55000) but not stale.
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
use crate::client::farewell::{cancelled, ended};
use crate::coordinator::mailbox::{End, Note};
use crate::error::{Fault, Refusal};
use crate::link::wait::{WAIT_MAX, timed_out};
use crate::local::session_registry::Doing as Shown;
use crate::place::Placer;
use crate::relay::Ended;
use crate::transaction::open::Transaction;
use crate::transaction::sequence_use::HeldLeases;
use crate::transaction::view::View;

/// How often it looks.
const LOOK: Duration = Duration::from_millis(1);
/// Each further look at a loan comes twice as late, up to this: what takes long costs no processor time meanwhile.
const LOOK_MAX: Duration = Duration::from_millis(64);

impl View<'_> {
    /// Whether what may draw from these sequences may run away from the anchor.
    pub(crate) fn may_use_leases(self, draws: &BTreeSet<SequenceId>) -> bool {
        draws.is_empty()
            || (self.uses_leases()
                && self.home_preference() != HomePreference::Anchor
                && !self.are_refused(draws))
    }

    fn are_refused(self, draws: &BTreeSet<SequenceId>) -> bool {
        self.link.database().sequences().leases.is_any_refused(draws)
    }

    /// Whether a statement that may draw from these sequences may run at a replica. If not, it soon may. As long as the
    /// transaction has what is returned, what was lent stays valid for it.
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
            coordinator.lead.sequences.request();
        }
        may.then_some(uses)
    }

    /// After a statement that may have set sequences: that is done whatever becomes of it, and no value that was lent before
    /// may be drawn by who begins from now on.
    pub(crate) fn after_setting(self, analysis: &StatementAnalysis) {
        if analysis.sequences.calls_setval() {
            self.link.database().sequences().leases.void_all();
        }
    }

    /// Whether a statement failed because the range of its replica has ended; then more will be lent, and more at a time if
    /// it was too short for the same statement before. The replica may have become the anchor meanwhile.
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
            self.link.coordinator().lead.sequences.request();
        }
        is_end
    }
}

impl Placer<'_> {
    /// Whether it asks for what is known at another replica than the anchor.
    pub(crate) fn asks_draws_elsewhere(&mut self, analysis: &StatementAnalysis) -> bool {
        let anchor = self.link.anchor();
        analysis.sequences.asks_draws()
            && self.link.servers.draws.certain_place().is_some_and(|place| place != anchor)
    }

    /// Whether the open update transaction is at a replica that is not lent what a further statement may draw, even after
    /// some time.
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

    /// Waits until a replica is lent what is to be drawn there, which mostly is a matter of milliseconds: for as long as the
    /// client wants to wait, at most as for any other place. `None` if it is not lent.
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
        let _shown = self.link.session_registration.entry.wait(Shown::Waiting);
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

    /// Lets some time pass, unless somebody says that there is nothing more to wait for.
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
            Note::End(End::AfterTransaction) => {
                self.link.session_registration.note_end(End::AfterTransaction);
            }
            Note::End(end) => return Err(Fault::Fatal(ended(end))),
            Note::Effect(_) | Note::Drained => {}
        }
        Ok(())
    }

    /// What asks for values that were drawn at a replica draws others itself, and cannot run elsewhere.
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

    /// The anchor's sequences have to be those of the anchor: another replica that became it may have been lent ranges.
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

    /// Where a statement has to run that asks what was drawn, or that draws in a session which asks that.
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

    /// After a statement of the open transaction that began at `mark` of the output: one that met the end of a range has
    /// cost the transaction, which is not the client's fault.
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
