//! How long a statement waits for its place, and which messages the session handles meanwhile.
//!
//! A read, or an update whose replica is not up, gives up after [`WAIT_MAX`]. An update that waits for transactions of
//! other homes waits as long as they take, as on one server, within the client's `lock_timeout` and
//! `statement_timeout`. Meanwhile the lock-wait probe looks for deadlocks between homes
//! ([`crate::replica::lock_wait_probe`]).

use std::time::Duration;

use cluster::event::{Event, Home, Reads};
use cluster::ids::ReplicaId;
use cluster::parts::replica::State;
use cluster::placement::Touches;
use commitlog::LogRefusal;
use tokio::time::Instant;
use wire::sqlstate;

use crate::client::timeouts::Timeouts;
use crate::coordinator::Coordinator;
use crate::coordinator::mailbox::{Mailbox, Note};
use crate::error::{Fault, Refusal};
use crate::link::{Link, SessionRegistration};
use crate::replica::lock_wait_probe::{FIRST_LOOK, NEXT_LOOK};

impl Link {
    /// The next note for the session; `None` when the wait is over without one. If the client is gone, the wait and
    /// the transaction end.
    pub(crate) async fn next_note(&mut self, wait: &mut Wait) -> Result<Option<Note>, Fault> {
        loop {
            if let Some(note) = self.session_registration.mailbox.try_next() {
                return Ok(Some(note));
            }
            let Self { worker, session_registration: SessionRegistration { mailbox, .. }, client, .. } =
                &mut *self;
            tokio::select! {
                biased;
                note = wait.next(&worker.coordinator, mailbox) => return Ok(note),
                () = client.time_to_look() => {}
            }
            if let Some(fault) = self.client.leaves() {
                return self.leave_line(fault);
            }
        }
    }

    /// Withdraws the statement of a session that ends while it waits.
    pub(crate) fn leave_line<T>(&self, fault: Fault) -> Result<T, Fault> {
        self.worker.coordinator.core.tell(Event::GiveUp { session: self.id });
        Err(fault)
    }

    /// Sends the client its replies. If the client reads slowly, the COMMIT that is due at the home goes first.
    pub(crate) async fn flush(&mut self) -> Result<(), Fault> {
        if !self.client.try_flush().await? {
            self.settle().await;
        }
        self.client.flush().await
    }
}

/// The wait of one statement.
#[derive(Debug)]
pub(crate) struct Wait {
    target: WaitTarget,
    /// The tables of the statement, if some replica does not hold all tables and the core may choose the replica.
    touched: Option<Touches>,
    give_up: Instant,
    look: Option<Instant>,
    limit: Limit,
}

impl Wait {
    /// A statement begins to wait.
    pub(crate) fn begin(target: WaitTarget, touched: Option<Touches>, timeouts: &Timeouts) -> Self {
        let now = Instant::now();
        let after = |limit: Duration| now + limit;
        let limit = match (timeouts.lock(), timeouts.statement()) {
            _ if target == WaitTarget::Read => Limit::None,
            (Some(lock), Some(statement)) if statement < lock => Limit::Statement(after(statement)),
            (Some(lock), _) => Limit::Lock(after(lock)),
            (None, Some(statement)) => Limit::Statement(after(statement)),
            (None, None) => Limit::None,
        };
        let look = (target != WaitTarget::Read).then(|| now + FIRST_LOOK);
        Self { target, touched, give_up: now + WAIT_MAX, look, limit }
    }

    /// The next note for the session; `None` when the wait is over.
    pub(crate) async fn next(&mut self, coordinator: &Coordinator, mailbox: &Mailbox) -> Option<Note> {
        loop {
            let is_led = coordinator.view.has_lease() && coordinator.core.is_joined();
            let unconfirmed = (!is_led).then(|| Instant::now() + NEXT_LOOK);
            let until = [self.look, self.limit.at(), unconfirmed]
                .into_iter()
                .flatten()
                .fold(self.give_up, Instant::min);
            if let Ok(note) = tokio::time::timeout_at(until, mailbox.next()).await {
                return Some(note);
            }
            let now = Instant::now();
            if self.limit.at().is_some_and(|limit| limit <= now) || is_cut_off(coordinator) {
                return None;
            }
            if self.give_up <= now {
                if !self.waits_for_others(coordinator) {
                    return None;
                }
                self.give_up = now + WAIT_MAX;
            }
            if self.look.is_some_and(|at| at <= now) {
                coordinator.deadlock_search.notify_one();
                self.look = Some(now + NEXT_LOOK);
            }
        }
    }

    /// Whether the replica is up, so that the statement waits only for other transactions.
    fn waits_for_others(&self, coordinator: &Coordinator) -> bool {
        let is_target = |replica: ReplicaId| match self.target {
            WaitTarget::Read => false,
            WaitTarget::AnyUpdate => true,
            WaitTarget::Update(at) => at == replica,
        };
        let mut replicas = self.able(coordinator);
        replicas.any(is_target)
    }

    /// The replicas that are up and hold the tables of the statement.
    fn able(&self, coordinator: &Coordinator) -> impl Iterator<Item = ReplicaId> {
        let holds = |replica| match &self.touched {
            None => true,
            Some(touched) => coordinator.core.holdings(replica).hold(touched),
        };
        let up = coordinator.replicas().into_iter().filter(|status| status.state == State::Up);
        up.map(|status| status.replica).filter(move |replica| holds(*replica))
    }

    /// The error when the wait is over.
    pub(crate) fn refusal(&self, coordinator: &Coordinator) -> Refusal {
        match self.limit {
            Limit::Lock(at) if at <= Instant::now() => {
                Refusal::plain(sqlstate::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")
            }
            Limit::Statement(at) if at <= Instant::now() => timed_out(),
            _ if coordinator.core.is_leaderless() => Refusal::new(
                sqlstate::CANNOT_CONNECT_NOW,
                "no node leads at present, so nothing can be read or written",
                "Start a majority of etcd's members, or mend the network to them. Statements run as soon as a node leads.",
            ),
            _ if is_cut_off(coordinator) => Refusal::new(
                sqlstate::CANNOT_CONNECT_NOW,
                "etcd does not answer, so another node may lead by now, and nothing can be read or written here",
                "Start a majority of its members, or mend the network to them. Statements run as soon as it answers.",
            ),
            _ if self.touched.is_some() && self.able(coordinator).next().is_none() => {
                self.unheld(coordinator)
            }
            _ => Refusal::new(
                sqlstate::LOCK_NOT_AVAILABLE,
                format!("no replica could take the statement within {} seconds", WAIT_MAX.as_secs()),
                "SHOW REPLICAS in the database \"onecopy\" says which replicas are up.",
            ),
        }
    }
}

impl Wait {
    /// The error if no replica that is up holds the tables.
    fn unheld(&self, coordinator: &Coordinator) -> Refusal {
        let tables = match &self.touched {
            Some(Touches::Tables(tables) | Touches::Parts { tables, .. }) => {
                tables.iter().map(|table| coordinator.table_name(*table)).collect()
            }
            _ => vec!["what the statement may touch, which may be every table".to_owned()],
        };
        Refusal::new(
            sqlstate::CANNOT_CONNECT_NOW,
            format!("no replica that is up holds all of {}", tables.join(", ")),
            "In the database \"onecopy\", SHOW PLACEMENT says which replicas hold them and SHOW REPLICAS which are up; PLACE TABLE puts \
             tables together.",
        )
    }
}

/// The limit of the client that ends the wait first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    None,
    Lock(Instant),
    Statement(Instant),
}

impl Limit {
    fn at(self) -> Option<Instant> {
        match self {
            Self::None => None,
            Self::Lock(at) | Self::Statement(at) => Some(at),
        }
    }
}

/// The goal of a statement that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitTarget {
    /// A place for a read.
    Read,
    /// A place for a new update transaction, at any replica.
    AnyUpdate,
    /// A place at this replica: its update transaction is open there, or can run nowhere else.
    Update(ReplicaId),
}

/// Whether the core may choose the replica. A session that had to go to the anchor should not stay there because of
/// that.
pub(crate) fn is_free(event: &Event) -> bool {
    match event {
        Event::Read { reads, at, .. } => at.is_none() && *reads != Reads::Catalogue,
        Event::Begin { home, .. } => *home == Home::Any,
        _ => false,
    }
}

/// A statement gives up after it has waited this long for a place.
pub(crate) const WAIT_MAX: Duration = Duration::from_mins(1);

/// Whether the term lease is over and the log has had no answer for as long as the operator allows, or there was no leader for so long.
fn is_cut_off(coordinator: &Coordinator) -> bool {
    let is_unconfirmed =
        !coordinator.view.has_lease() && coordinator.core.refusal() == Some(LogRefusal::NoMajority);
    is_unconfirmed || coordinator.core.is_leaderless()
}

/// The error of PostgreSQL for `statement_timeout`.
pub(crate) fn timed_out() -> Refusal {
    Refusal::plain(sqlstate::QUERY_CANCELED, "canceling statement due to statement timeout")
}
