//! Reads at a replica: where one runs, and how a read-only transaction ends.

use std::sync::Arc;

use cluster::event::{Event, Kind, Reads};
use cluster::ids::{ReplicaId, Version};
use cluster::placement::Touches;
use sql::TransactionOptions;

use crate::client::cancel::CancelState;
use crate::drive::Driver;
use crate::error::Fault;
use crate::pool::server::Server;
use crate::relay::work::Work;
use crate::relay::{Ended, Expected, Hold, Relay};
use crate::transaction::open::{Admission, Assignment, Transaction};
use crate::transaction::view::View;

/// Expected run time of a read without statistics.
pub(crate) const READ_COST_US: u32 = 100;

impl View<'_> {
    /// The options of the open transaction.
    pub(crate) fn open_options(self) -> Option<TransactionOptions> {
        match &self.txn.state {
            Transaction::None => None,
            Transaction::Begun(options) => Some(self.link.resolve(*options)),
            Transaction::Lost(options) => Some(*options),
            Transaction::Read(read) => Some(read.options),
            Transaction::Update(update) => Some(update.options),
        }
    }
}

/// A read that is to be placed.
#[derive(Debug)]
pub(crate) struct WantedRead<'a> {
    /// What it reads.
    pub(crate) reads: &'a Reads,
    /// What must be held where it runs.
    pub(crate) touches: Touches,
}

impl Driver<'_> {
    /// Places a read, and gets a connection to the replica with the session's settings. An outdated catalogue or a
    /// lost replica is an error after which the caller analyses and asks again.
    pub(crate) async fn place_read(
        &mut self,
        reads: &Reads,
        at: Option<ReplicaId>,
        generation: Version,
    ) -> Result<ReplicaId, Fault> {
        self.place_read_of(WantedRead { reads, touches: reads.touches() }, at, generation, None).await
    }

    /// The same for a read of which more is known: what must be held where it runs, and its kind.
    pub(crate) async fn place_read_of(
        &mut self,
        read: WantedRead<'_>,
        at: Option<ReplicaId>,
        generation: Version,
        kind: Option<Box<Kind>>,
    ) -> Result<ReplicaId, Fault> {
        self.admit_read(read, at, generation, kind).await.map(|place| place.replica)
    }

    /// The same. The place also tells the version that the replica has.
    pub(crate) async fn admit_read(
        &mut self,
        read: WantedRead<'_>,
        at: Option<ReplicaId>,
        generation: Version,
        kind: Option<Box<Kind>>,
    ) -> Result<Assignment, Fault> {
        let event = Event::Read {
            session: self.link.id,
            reads: read.reads.clone(),
            touches: read.touches,
            at,
            cost_us: self.txn.cost_us.unwrap_or(READ_COST_US),
            near: self.txn.last_ran_at,
            catalogue: generation,
            kind,
        };
        self.link.session_registration.cancel.set(CancelState::Waiting);
        let place = match self.place(event, false).await? {
            Admission::Granted(place) => place,
            Admission::Reclassify | Admission::Recalled | Admission::Aborted(_) => {
                return Err(Fault::Unplaced(at.unwrap_or_else(|| self.link.anchor())));
            }
        };
        match self.connector().connect(place).await {
            Ok(()) => Ok(place),
            Err(fault) => {
                self.link.servers.close(place.replica);
                self.link.executed();
                Err(match fault {
                    Fault::Lost(replica) => Fault::Unplaced(replica),
                    other => other,
                })
            }
        }
    }

    /// Runs work on the connection to a replica, where the core has placed it.
    pub(crate) async fn at_replica(&mut self, replica: ReplicaId, work: Work<'_>) -> Result<Ended, Fault> {
        self.at_replica_holding(replica, work, Hold::Usual).await
    }

    /// The same, and holds so much of the reply back.
    pub(crate) async fn at_replica_holding(
        &mut self,
        replica: ReplicaId,
        work: Work<'_>,
        hold: Hold,
    ) -> Result<Ended, Fault> {
        let result = self.exchange_with(replica, work, hold).await;
        self.link.executed();
        result
    }

    /// The same for work that the session has placed by itself.
    pub(crate) async fn exchange_with(
        &mut self,
        replica: ReplicaId,
        work: Work<'_>,
        hold: Hold,
    ) -> Result<Ended, Fault> {
        let server = self.link.servers.get(replica);
        let expected = Expected { hold, ..work.write(server) };
        self.link
            .session_registration
            .cancel
            .set(CancelState::Running(Arc::clone(&server.backend_registration.running)));
        let result = Relay::new(&mut self.link.client, server, None).run(expected).await;
        self.link.session_registration.cancel.set(CancelState::Nothing);
        result
    }

    /// Ends the read-only transaction with its connection.
    pub(crate) fn abandon_read(&mut self) {
        if let Transaction::Read(read) = &self.txn.state {
            let (replica, options) = (read.replica, read.options);
            self.link.servers.close(replica);
            self.link.settings.drop_staged();
            self.link.prepared.drop_portals();
            self.txn.lose(options);
        }
    }

    /// Ends a read-only transaction on its replica.
    pub(crate) async fn end_read(&mut self, commit: bool) {
        let Transaction::Read(read) = &self.txn.state else { return };
        let replica = read.replica;
        let server = self.link.servers.get(replica);
        server.query_own(if commit { "COMMIT" } else { "ROLLBACK" });
        let ended = Relay::new(&mut self.link.client, server, None).run(Expected::silent()).await;
        if !matches!(ended, Ok(Ended { error: None, .. })) {
            // The transaction only read, and read correctly, so closing the connection is enough.
            self.abandon_read();
            self.end_local(false);
            return;
        }
        self.end_local(commit);
    }

    /// Ends the read-only transaction of a client that is gone, so that the next session finds none on the connection.
    pub(crate) async fn leave_read(&mut self) {
        let Transaction::Read(read) = &self.txn.state else { return };
        let replica = read.replica;
        let is_sent = |server: &mut Server| !server.own.has_ahead() && server.connection.is_in_step();
        if self.link.servers.is_shared() && self.link.servers.find(replica).is_some_and(is_sent) {
            self.end_read(false).await;
        }
        self.txn.state = Transaction::None;
    }
}
