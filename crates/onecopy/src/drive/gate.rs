//! Waits until the coordinator admits a statement of the open transaction, and says where it runs.

use std::pin::pin;

use cluster::claims::Claims;
use cluster::event::{Effect, Event, Home, Needs, Reads};
use cluster::ids::Version;
use cluster::placement::Touches;
use sql::Isolation;
use tokio::time::Instant;

use crate::client::cancel::CancelState;
use crate::client::ending::{cancelled, ended};
use crate::coordinator::Coordinator;
use crate::coordinator::mailbox::{End, Note};
use crate::drive::Driver;
use crate::error::{Fault, Refusal};
use crate::link::wait::{Wait, WaitTarget, is_free};
use crate::local::session_registry::Activity;
use crate::logging::{in_stage, stage_span};
use crate::transaction::UPDATE_COST_US;
use crate::transaction::definitions::names_in;
use crate::transaction::open::{Admission, Assignment, Transaction};
use crate::transaction::read_set::lock_reads;
use crate::transaction::view::View;

impl View<'_> {
    pub(crate) fn needs(self, reads: Reads, touches: Touches, writes: Claims) -> Needs {
        Needs {
            reads,
            touches,
            writes,
            cost_us: self.txn.cost_us.unwrap_or(UPDATE_COST_US),
            near: self.txn.last_ran_at,
            catalogue: Version(self.link.database().catalogue().generation()),
            kind: None,
        }
    }

    /// The work for which an event requests a place.
    fn target(self, event: &Event) -> WaitTarget {
        match event {
            Event::Begin { home: Home::Anchor, .. } => WaitTarget::Update(self.link.anchor()),
            Event::Begin { .. } | Event::Undone { .. } => WaitTarget::AnyUpdate,
            Event::Statement { .. } => WaitTarget::Update(self.txn.last_home),
            _ => WaitTarget::Read,
        }
    }
}

/// The tables of a statement for which the core chooses a replica, if some replica does not hold all tables.
fn touched(coordinator: &Coordinator, event: &Event) -> Option<Touches> {
    if !coordinator.view.is_partial() {
        return None;
    }
    match event {
        Event::Read { reads, touches, at: None, .. } if *reads != Reads::Catalogue => Some(touches.clone()),
        Event::Begin { home, needs, .. } if *home != Home::Anchor => Some(needs.touches.clone()),
        _ => None,
    }
}

impl Driver<'_> {
    /// Waits until a further statement of the open update transaction may run.
    pub(crate) async fn gate(
        &mut self,
        reads: Reads,
        touches: Touches,
        mut writes: Claims,
        nowait: bool,
    ) -> Result<(), Fault> {
        let is_write = !writes.is_empty();
        if let Transaction::Update(update) = &self.txn.state {
            lock_reads(update.options.isolation.unwrap_or(Isolation::ReadCommitted), &reads, &mut writes);
        }
        let reads = match &self.txn.state {
            Transaction::Update(update) if update.options.isolation >= Some(Isolation::RepeatableRead) => {
                match update.server.has_snapshot {
                    false => Reads::All,
                    // Constraint checks see the present rows, not those of the snapshot.
                    true if is_write => reads,
                    // The statement sees only rows of its snapshot.
                    true => Reads::Tables([].into()),
                }
            }
            _ => reads,
        };
        self.pass_gate(reads, touches, writes, nowait).await
    }

    /// Waits until a further statement with these needs may run, at any isolation level.
    pub(crate) async fn pass_gate(
        &mut self,
        reads: Reads,
        touches: Touches,
        mut writes: Claims,
        nowait: bool,
    ) -> Result<(), Fault> {
        if let Transaction::Update(update) = &self.txn.state {
            update.schema.definitions.leave_out_known(&mut writes);
        }
        let asked = names_in(&writes);
        let needs = self.view().needs(reads, touches, writes);
        let event = Event::Statement { session: self.link.id, needs };
        self.link.session_registration.cancel.set(CancelState::Waiting);
        match self.place(event, nowait).await {
            Ok(Admission::Granted(_)) => {
                if let Transaction::Update(update) = &mut self.txn.state {
                    let elements = update.capture.record.elements();
                    update.capture.claims.begin_turn(elements);
                    update.schema.definitions.note_asked(asked);
                }
                Ok(())
            }
            Ok(Admission::Reclassify) => Err(self.home_lost()),
            Ok(Admission::Aborted(cause)) => {
                let fault = self.view().aborted(cause, self.txn.last_home);
                self.step_back().await;
                Err(fault)
            }
            Ok(Admission::Recalled) => Err(self.follow_recall().await),
            // The statement was not sent. So earlier work of the transaction stands, and a savepoint leads back to it.
            Err(fault @ Fault::Refused(_)) => Err(fault),
            // The core has forgotten the transaction; the server must, too.
            Err(fault) => {
                self.abandon_home();
                Err(fault)
            }
        }
    }

    /// Ends the open transaction because its home is lost. The statement at hand was not sent.
    pub(crate) fn home_lost(&mut self) -> Fault {
        self.abandon_home();
        Fault::Lost(self.txn.last_home)
    }

    /// Asks the coordinator for a place and waits for it. With `nowait` the statement fails rather than wait for
    /// transactions of other homes.
    pub(crate) async fn place(&mut self, event: Event, nowait: bool) -> Result<Admission, Fault> {
        let stage = pin!(async move {
            self.link.session_registration.mailbox.forget_cancel();
            let target = self.view().target(&event);
            let touched = touched(self.link.coordinator(), &event);
            let is_inside = matches!(event, Event::Statement { .. });
            if is_inside && self.is_recalled() {
                return Ok(Admission::Recalled);
            }
            let is_free = is_free(&event);
            if let Some(Effect::Execute { replica, incarnation, identity, applied, .. }) =
                self.link.worker.coordinator.core.ask(self.link.id, event)
            {
                tracing::debug!(?replica, "admitted at once");
                return Ok(self.txn.admit(Assignment { replica, incarnation, identity, applied }, is_free));
            }
            if let Some(refusal) = self.must_wait(nowait).await {
                return self.give_up(is_inside, refusal).await;
            }
            tracing::debug!("waits for its turn");
            let asked = Instant::now();
            let _shown = self.link.session_registration.entry.wait(Activity::Waiting);
            let _wanted = self.link.session_registration.progress.want(self.txn.named_rows.last());
            let mut wait = Wait::begin(target, touched, &self.link.settings.noted.timeouts);
            loop {
                let Some(note) = self.link.next_note(&mut wait).await? else {
                    let refusal = self.with_obstacle(wait.refusal(self.link.coordinator())).await;
                    return self.give_up(is_inside, refusal).await;
                };
                match note {
                    Note::Effect(Effect::Execute { replica, incarnation, identity, applied, .. }) => {
                        self.txn.wait_stats.waited(asked);
                        return Ok(self
                            .txn
                            .admit(Assignment { replica, incarnation, identity, applied }, is_free));
                    }
                    Note::Effect(Effect::Reclassify { .. }) => return Ok(Admission::Reclassify),
                    Note::Effect(Effect::Abort { cause, .. }) => return Ok(Admission::Aborted(cause)),
                    Note::Effect(Effect::RunAgain { .. }) if is_inside => return Ok(Admission::Recalled),
                    // The session has followed the recall already.
                    Note::Effect(Effect::RunAgain { .. }) | Note::Drained => {}
                    Note::Effect(other) => {
                        tracing::error!(?other, "a session that waits for a place does not expect this");
                    }
                    Note::Cancel => return self.give_up(is_inside, cancelled()).await,
                    // The session ends after the transaction.
                    Note::End(end @ (End::Succession | End::AfterTransaction)) => {
                        self.link.session_registration.note_end(end);
                    }
                    Note::End(end) => return self.link.leave_line(Fault::Fatal(ended(end))),
                }
            }
        });
        in_stage(stage_span!("order"), stage).await
    }

    /// Withdraws a statement that waits. Its open update transaction goes on.
    async fn give_up(&mut self, is_inside: bool, refusal: Refusal) -> Result<Admission, Fault> {
        let session = self.link.id;
        let event = if is_inside { Event::Withdraw { session } } else { Event::GiveUp { session } };
        self.link.worker.coordinator.core.tell(event);
        self.link.worker.coordinator.core.effects_so_far().await;
        // The core may have ended the transaction just before.
        let cause = self.why_aborted().filter(|_| is_inside);
        cause.map_or(Err(Fault::Refused(refusal)), |cause| Ok(Admission::Aborted(cause)))
    }
}
