//! Replicas join, drain and leave: their seats, their drivers, and the account that is kept of them.

use cluster::event::Event;
use cluster::ids::ReplicaId;
use cluster::protocols::ReplicaStatus;
use tokio::sync::mpsc;

use super::quarantines::QuarantineDuration;
use super::resync_progress::ResyncStage;
use super::{AgentOrder, Coordinator, ReplicaAddress, Seat};

impl Coordinator {
    /// A new member, which has no data yet and no replica_driver: the orders for that one.
    pub(crate) fn join(&self, at: ReplicaAddress) -> mpsc::Receiver<AgentOrder> {
        let (seat, orders) = Seat::joining(at);
        let replica = seat.replica;
        self.seats.take(seat);
        self.set_stage(replica, Some(ResyncStage::Preparing));
        self.lead.retention.log().join(replica);
        self.lead.retention.log().quarantine(replica, "it has no data yet", QuarantineDuration::UntilRestart);
        self.seats.set_reader_patience(self.view.anchor());
        self.forget_oids();
        self.core.tell(Event::Joined { replica });
        orders
    }

    /// A replica is no longer a member: what is open there is rolled back, and no list shows it any more.
    pub(crate) fn leave(&self, replica: ReplicaId) {
        let seat = &self.seats[replica];
        self.core.tell(Event::Left { replica });
        seat.order(AgentOrder::Leave);
        seat.leave();
        self.database.sequences().leases.replica_changed(replica);
        self.lead.retention.log().forget(replica);
        if let Err(error) = self.lead.retention.quarantines.lift(&seat.name) {
            tracing::warn!(replica = %seat.name, %error, "a replica of this name will begin in quarantine");
        }
        tracing::warn!(replica = %seat.name, "the replica is no longer a member");
    }

    /// A replica takes nothing new from now on, or does again. Connections to a drained replica that are not in use are closed.
    pub(crate) fn drain(&self, replica: ReplicaId, is_drained: bool) {
        self.core.tell(Event::Drained { replica, is_drained });
        self.local.drain(replica, is_drained);
        if is_drained {
            self.mailboxes.drained();
        }
    }

    /// Those that are drained.
    pub(crate) fn drained(&self) -> Vec<ReplicaId> {
        let drained = self.replicas().into_iter().filter(|status| status.is_drained);
        drained.map(|status| status.replica).collect()
    }

    /// How many sessions are in the middle of something at a replica: those that run something there, and those whose
    /// transaction is open there.
    pub(crate) fn users_of(&self, status: &ReplicaStatus) -> usize {
        let entries = self.local.sessions.entries();
        entries.iter().filter(|entry| entry.is_open_at(status.replica)).count().max(status.open)
    }
}
