//! Opens an update transaction at its home: asks the coordinator for a place, gets a connection, sends BEGIN with the
//! first statement.

use std::pin::pin;
use std::sync::Arc;

use cluster::claims::Claims;
use cluster::event::{AbortCause, Event, Foreseen, Home, Level, Needs, Reads};
use cluster::ids::Nonce;
use sql::{Because, Isolation, TransactionOptions};
use wire::sqlstate;

use crate::client::cancel::CancelState;
use crate::error::{Fault, Refusal, broken};
use crate::link::{Link, SessionRegistration};
use crate::logging::{in_stage, stage_span};
use crate::place::Placer;
use crate::place::home_choice::{PlaceDecision, inside};
use crate::transaction::anchor_reason::AnchorReason;
use crate::transaction::definitions::names_in;
use crate::transaction::open::{Admission, Assignment, RETRY_PAUSE, Transaction};
use crate::transaction::read_set::lock_reads;
use crate::transaction::sequence_use::HeldLeases;
use crate::transaction::update::{Boundary, Update};
use crate::transaction::view::View;
use crate::transaction::wait_stats::WaitStats;
use crate::writeset::Capture;

/// The number of times that the home may be lost before the transaction has run there. After that the client gets an
/// error.
const HOME_LOSSES_MAX: u32 = 500;

impl View<'_> {
    fn begin_event(self, level: Level, home: Home, needs: Needs, foreseen: Foreseen) -> Result<Event, Fault> {
        let nonce = nonce()?;
        if self.link.client.may_be_recalled {
            self.link.worker.performables.begin(self.link.id, nonce);
        }
        Ok(Event::Begin { session: self.link.id, level, nonce, home, needs, foreseen })
    }
}

impl Placer<'_> {
    /// Opens an update transaction at its home: its BEGIN is in the output, before the first statement.
    pub(crate) async fn open_update(
        &mut self,
        options: TransactionOptions,
        opening: PlaceDecision,
        boundary: Boundary,
    ) -> Result<(), Fault> {
        let stage = pin!(async move {
            self.link.settle().await;
            let isolation = options.isolation.unwrap_or(Isolation::ReadCommitted);
            self.txn.wait_stats = WaitStats::begin(opening.template, self.link.anchor());
            let PlaceDecision { reads, mut writes, foreseen, nowait, mut home, mut reason, .. } = opening;
            let PlaceDecision { draws, asks_draws, generation, kind, touches, .. } = opening;
            lock_reads(isolation, &reads, &mut writes);
            let reads = if isolation >= Isolation::RepeatableRead { Reads::All } else { reads };
            let (mut losses, mut wait_limit) = (0, None);
            loop {
                let needs = self.view().needs(reads.clone(), touches.clone(), writes.clone());
                let needs = Needs { kind: kind.clone(), ..needs };
                let event = if std::mem::take(&mut self.txn.retry_hints.is_recalled) {
                    Event::Undone { session: self.link.id }
                } else {
                    self.view().begin_event(level_of(isolation), home, needs, foreseen.clone())?
                };
                self.link.session_registration.cancel.set(CancelState::Waiting);
                let admission = self.driver().place(event, nowait).await?;
                let place = match admission {
                    Admission::Granted(place) => place,
                    Admission::Aborted(cause @ AbortCause::Impatience(_)) => {
                        return Err(self.view().aborted(cause, self.txn.last_home));
                    }
                    Admission::Aborted(_) | Admission::Reclassify | Admission::Recalled => continue,
                };
                if self.view().is_stale_at(place.replica, generation) {
                    self.link.forget_update();
                    return Err(Fault::Unplaced(place.replica));
                }
                let Some(uses) = self.view().take_leases(&draws, place.replica) else {
                    self.link.forget_update();
                    if asks_draws {
                        self.await_lease(&draws, place.replica).await?;
                    } else {
                        (home, reason) = (Home::Anchor, AnchorReason::Needs(Because::Update));
                    }
                    continue;
                };
                if let Err(fault) = self.await_sequences(place.replica).await {
                    self.link.forget_update();
                    return Err(fault);
                }
                if !self.connector().has_room_at(place, &mut wait_limit).await? {
                    continue;
                }
                let Link { worker, servers, settings, .. } = &mut *self.link;
                match servers.ensure(&worker.coordinator, settings, place.replica, place.incarnation).await {
                    Ok(_) => {
                        self.begin_at(place, options, boundary, uses, &writes)?;
                        if place.replica == self.link.anchor() {
                            self.link.count(|stats| reason.counter(stats));
                        }
                        return Ok(());
                    }
                    Err(fault) => {
                        self.link.forget_update();
                        losses += 1;
                        if !matches!(fault, Fault::Lost(_)) || losses >= HOME_LOSSES_MAX {
                            return Err(fault);
                        }
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                }
            }
        });
        in_stage(stage_span!("place"), stage).await
    }

    /// Begins an update transaction on the connection to its home. `asked` are the claims that the core admitted.
    fn begin_at(
        &mut self,
        place: Assignment,
        options: TransactionOptions,
        boundary: Boundary,
        uses: HeldLeases,
        asked: &Claims,
    ) -> Result<(), Fault> {
        let Link { id, worker, servers, session_registration: SessionRegistration { progress, .. }, .. } =
            &mut *self.link;
        let server = servers.get(place.replica);
        // SERIALIZABLE is certified by Onecopy: PostgreSQL's own check could fail a COMMIT that is in the log (pitfalls
        // 1.1).
        server.begin(inside(options), options.read_only == Some(true));
        let tenancy = server.move_in(*id);
        let identity = place.identity.ok_or_else(|| broken("no identity was given"))?;
        let mut capture = Capture::new(Arc::clone(&worker.coordinator), identity, Arc::clone(progress));
        capture.claims.begin_turn(0);
        worker.local.memory_budget.begin(progress, place.replica);
        let is_leased = place.replica != worker.coordinator.view.anchor();
        let mut update = Update::new(identity, place.replica, boundary, options, capture);
        self.txn.lease_use.ranges = uses.iter().map(|(id, one)| (*id, one.range())).collect();
        (update.sequences.is_leased, update.sequences.leases) = (is_leased, uses);
        update.schema.definitions.note_asked(names_in(asked));
        self.txn.state = Transaction::Update(Box::new(update));
        (self.txn.last_home, self.link.tenancy) = (place.replica, Some(tenancy));
        tracing::debug!(replica = ?place.replica, %identity, "an update transaction begins");
        Ok(())
    }
}

fn level_of(isolation: Isolation) -> Level {
    match isolation {
        Isolation::Serializable => Level::Serializable,
        Isolation::RepeatableRead => Level::RepeatableRead,
        Isolation::ReadUncommitted | Isolation::ReadCommitted => Level::ReadCommitted,
    }
}

fn nonce() -> Result<Nonce, Fault> {
    getrandom::u64().map(Nonce).map_err(|error| {
        Fault::Refused(Refusal::plain(
            sqlstate::INTERNAL_ERROR,
            format!("no random number could be had: {error}"),
        ))
    })
}
