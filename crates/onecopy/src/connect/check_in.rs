//! Checks server connections out of the shared pools and back in.
//!
//! A session holds a connection while a transaction of it is open there, or while state of the session exists there
//! alone ([`crate::local::pins`]). Otherwise it gives the connection back after each answer.
//!
//! Sessions must not wait for each other in a ring. So a session that waits for a connection holds no resource that
//! others wait for. It first gives back the connections that it does not need. An update transaction also leaves its
//! place in the order, and asks for it again afterwards. A transaction that needs a second connection, to query another
//! replica, holds locks and its first connection. One extra connection in each pool is reserved for that case
//! ([`crate::pool::wait_queue`]).
//!
//! Invariant: a connection goes back only at rest. Every reply was read, no transaction is open, and no cancel request
//! for this session is under way to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::event::Event;
use cluster::ids::ReplicaId;
use tokio::time::Instant;
use wire::sqlstate;

use crate::client::cancel::CancelState;
use crate::client::ending::{cancelled, ended};
use crate::connect::Connector;
use crate::coordinator::mailbox::{End, Note};
use crate::error::{Fault, Refusal};
use crate::link::Link;
use crate::local::limits::Pooling;
use crate::local::pins::{Pin, Pins};
use crate::local::session_registry::{Activity, SessionEntry};
use crate::pool::check_out::Ticket;
use crate::pool::request::{ServerPlace, Want};
use crate::transaction::open::Assignment;
use crate::transaction::view::View;

/// How long a session waits for a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimit {
    until: Instant,
    /// The client's `statement_timeout` is the limit.
    is_clients: bool,
}

impl View<'_> {
    /// How long a wait for a connection that begins now may last.
    fn wait_limit(self) -> WaitLimit {
        let wait = self.link.worker.pools.pooling.wait;
        let limit = self.link.settings.noted.timeouts.statement().filter(|limit| *limit < wait);
        WaitLimit { until: Instant::now() + limit.unwrap_or(wait), is_clients: limit.is_some() }
    }

    fn waited_too_long(self, replica: ReplicaId, is_clients: bool) -> Refusal {
        let coordinator = self.link.coordinator();
        if is_clients {
            let text = "canceling statement due to statement timeout";
            let hint = "It waited for a server connection: SHOW POOLS in the database \"onecopy\" shows which roles \
                        have them.";
            return Refusal::new(sqlstate::QUERY_CANCELED, text, hint);
        }
        let Pooling { size, wait, .. } = self.link.worker.pools.pooling;
        let pinned = self.pinned_at(replica);
        let releases: Vec<&str> = pinned.iter().map(|(pin, _)| pin.undone_by()).collect();
        let mut hint =
            "SHOW POOLS and SHOW CLIENTS in the database \"onecopy\" show which sessions have them, and why. \
             pool_size limits their number, pool_wait how long a statement waits."
                .to_owned();
        if !releases.is_empty() {
            hint = format!("A session gives its connection back after {}. {hint}", releases.join(" or "));
        }
        let message = format!(
            "none of the {size} connections of role \"{}\" to {} was free within {} ms",
            self.link.servers.role(),
            coordinator.seats[replica].name,
            wait.as_millis()
        );
        let refusal = Refusal::new(sqlstate::TOO_MANY_CONNECTIONS, message, hint);
        let kept: Vec<String> =
            pinned.iter().map(|(pin, count)| format!("{} ({count})", pin.word())).collect();
        if kept.is_empty() {
            refusal
        } else {
            refusal.about(format!("Sessions keep some: {}.", kept.join(", ")))
        }
    }

    /// The reasons why other sessions of the role keep their connections to a replica, with the number of sessions for
    /// each.
    fn pinned_at(self, replica: ReplicaId) -> Vec<(Pin, usize)> {
        let entries = self.link.local().sessions.entries();
        let of_role = |entry: &&Arc<SessionEntry>| entry.client_info.user == self.link.servers.role();
        let holders: Vec<u16> = entries
            .iter()
            .filter(of_role)
            .filter(|entry| entry.servers().contains_key(&replica))
            .map(|entry| entry.pins.load(Ordering::Relaxed))
            .collect();
        let count = |pin: Pin| holders.iter().filter(|bits| Pins::of(**bits).has(pin)).count();
        Pin::ALL.into_iter().map(|pin| (pin, count(pin))).filter(|(_, count)| *count > 0).collect()
    }
}

impl Connector<'_> {
    /// Gets a connection to the place, with the settings of the session.
    pub(crate) async fn connect(&mut self, place: Assignment) -> Result<(), Fault> {
        let want = if self.txn.open_at().is_some() { Want::Second } else { Want::First };
        self.readmit(place).await;
        if let Some(ticket) = self.link.servers.claim(place.replica, place.incarnation, want) {
            let wait_limit = self.view().wait_limit();
            self.await_server(place, ticket, wait_limit).await?;
        }
        let Link { worker, servers, settings, .. } = &mut *self.link;
        servers.ensure(&worker.coordinator, settings, place.replica, place.incarnation).await.map(|_| ())
    }

    /// Takes a connection of the former term into this one, if it was spared.
    async fn readmit(&mut self, place: Assignment) {
        let Link { worker, servers, .. } = &mut *self.link;
        let Assignment { replica, incarnation, .. } = place;
        servers.readmit(&worker.coordinator, ServerPlace { replica, incarnation }).await;
    }

    /// Makes sure that an admitted update transaction has a connection. Returns whether one was there at once. If not,
    /// the session has waited for one, and the transaction has to be admitted again, maybe at another place. All such
    /// waits of a transaction share one limit. A session that waits holds no resource that others wait for, but counts
    /// as load.
    pub(crate) async fn has_room_at(
        &mut self,
        place: Assignment,
        wait_limit: &mut Option<WaitLimit>,
    ) -> Result<bool, Fault> {
        self.readmit(place).await;
        let Some(ticket) = self.link.servers.claim(place.replica, place.incarnation, Want::First) else {
            if self.link.servers.has_others(place.replica) {
                // The session may hold a connection at another place, from an earlier wait. It keeps the one here: if
                // waiting sessions gave back every connection, they could hand them to each other for ever.
                self.give_back_all_but(Some(place.replica)).await;
            }
            return Ok(true);
        };
        self.link.end_exchange(Event::Yield { session: self.link.id });
        self.txn.last_ran_at = Some(place.replica);
        let wait_limit = *wait_limit.get_or_insert_with(|| self.view().wait_limit());
        let waited = self.await_server(place, ticket, wait_limit).await;
        if waited.is_err() {
            self.link.forget_update();
        }
        waited.map(|()| false)
    }

    /// Waits until another session gives a connection back.
    async fn await_server(
        &mut self,
        place: Assignment,
        mut ticket: Ticket,
        WaitLimit { until, is_clients }: WaitLimit,
    ) -> Result<(), Fault> {
        self.give_back().await;
        self.link.session_registration.mailbox.forget_cancel();
        self.link.session_registration.cancel.set(CancelState::Waiting);
        let _shown = self.link.session_registration.entry.wait(Activity::Waiting);
        let mut later = Vec::new();
        let mailbox = Arc::clone(&self.link.session_registration.mailbox);
        let granted = loop {
            tokio::select! {
                biased;
                granted = &mut ticket => break granted.map_err(|_| Fault::Lost(place.replica)),
                note = mailbox.next() => match note {
                    Note::Cancel => break Err(cancelled().into()),
                    Note::End(end @ (End::Succession | End::AfterTransaction)) => {
                        self.link.session_registration.note_end(end);
                    }
                    Note::End(end) => break Err(Fault::Fatal(ended(end))),
                    effect @ Note::Effect(_) => later.push(effect),
                    Note::Drained => {}
                },
                () = tokio::time::sleep_until(until) => {
                    break Err(self.view().waited_too_long(place.replica, is_clients).into());
                }
                () = self.link.client.time_to_look() => {
                    if let Some(fault) = self.link.client.leaves() {
                        break Err(fault);
                    }
                }
            }
        };
        for note in later {
            mailbox.push(note);
        }
        self.link.session_registration.cancel.set(CancelState::Nothing);
        self.link.servers.take(granted?, place.replica, place.incarnation);
        Ok(())
    }

    /// Gives back every connection that no open transaction needs. The session keeps connections of its own, and asks
    /// there what state they hold.
    pub(crate) async fn give_back(&mut self) {
        self.give_back_all_but(None).await;
    }

    async fn give_back_all_but(&mut self, keep: Option<ReplicaId>) {
        if !self.link.servers.is_shared() {
            return self.look_around().await;
        }
        self.link.servers.drop_permits(keep);
        self.link.session_registration.cancel.set(CancelState::Nothing);
        let mut kept = Pins::default();
        for number in self.link.servers.numbers() {
            let Some(replica) = self.link.servers.held(number) else { continue };
            let is_busy = self.txn.open_at() == Some(replica) || self.link.settling == Some(replica);
            if !is_busy && keep != Some(replica) {
                kept = kept.with(self.give_back_one(replica).await);
            }
        }
        if keep.is_none() {
            self.link.session_registration.entry.pins.store(kept.bits(), Ordering::Relaxed);
        }
    }

    /// Shows where the transaction is open, and closes connections to drained replicas. It keeps one that is in use,
    /// or that alone knows the last values drawn from sequences.
    pub(crate) fn leave_drained(&mut self) {
        self.link.session_registration.entry.open_at(self.txn.open_at());
        let coordinator = Arc::clone(&self.link.worker.coordinator);
        let drains = coordinator.local.sessions.drains();
        if self.link.servers.drains_seen != drains {
            self.link.servers.drains_seen = drains;
            for replica in coordinator.drained() {
                if self.txn.open_at() == Some(replica) {
                    // The replica is checked again when the transaction is over.
                    self.link.servers.drains_seen = drains.wrapping_sub(1);
                } else {
                    self.link.servers.close_unused(replica);
                }
            }
        }
    }

    /// Gives one connection back, unless it has to be kept. Returns why it is kept.
    async fn give_back_one(&mut self, replica: ReplicaId) -> Pins {
        let Some(server) = self.link.servers.find(replica) else { return Pins::default() };
        if !server.connection.is_at_rest() || server.own.has_ahead() {
            self.link.servers.close(replica);
            return Pins::default();
        }
        if server.pins.has(Pin::Unknown) {
            self.find_out(replica).await;
            if self.link.servers.find(replica).is_none() {
                return Pins::default();
            }
        }
        self.link.client.out.append(&mut self.link.servers.get(replica).connection.notifications);
        let server = match self.link.servers.detach(replica, &mut self.link.settings) {
            Ok(server) => server,
            Err(pins) => return pins,
        };
        // A cancel request that is sent from now on finds no running statement.
        if server.backend_registration.running.is_left_alone().await && server.connection.is_at_rest() {
            server.take_eviction();
            self.link.worker.pools.give_back(server);
        }
        Pins::default()
    }
}
