//! Replicas join, drain and leave. This file keeps their seats, their drivers and the records about them.

use cluster::event::Event;
use cluster::ids::ReplicaId;
use tokio::sync::mpsc;

use super::parking::ParkingState;
use super::quarantines::QuarantineDuration;
use super::resync_progress::ResyncStage;
use super::{AgentOrder, Leader, ReplicaAddress, Seat};

impl Leader {
    /// Adds a new member, which has no data and no driver yet. Returns the orders for its driver.
    pub(crate) fn join(&self, at: ReplicaAddress) -> mpsc::Receiver<AgentOrder> {
        let (seat, orders) = Seat::joining(at);
        let replica = seat.replica;
        self.seats.take(seat);
        self.set_stage(replica, Some(ResyncStage::Preparing));
        self.retention.log().join(replica);
        self.retention.log().quarantine(replica, "it has no data yet", QuarantineDuration::UntilRestart);
        self.seats.set_reader_patience(self.view.anchor());
        self.forget_oids();
        self.core.tell(Event::Joined { replica });
        orders
    }

    /// A replica is no longer a member. Its open transactions are rolled back, and no list shows it any more.
    pub(crate) fn leave(&self, replica: ReplicaId) {
        let seat = &self.seats[replica];
        self.core.tell(Event::Left { replica });
        seat.order(AgentOrder::Leave);
        seat.leave();
        self.database.sequences().leases.replica_changed(replica);
        self.retention.log().forget(replica);
        if let Err(error) = self.retention.quarantines.lift(&seat.name) {
            tracing::warn!(replica = %seat.name, %error, "a replica of this name will begin in quarantine");
        }
        if let Err(error) = self.parking.lift(replica, &seat.name, ParkingState::Awake) {
            tracing::warn!(replica = %seat.name, %error, "a replica of this name will be parked after a restart");
        }
        self.holds_nothing(replica);
        tracing::warn!(replica = %seat.name, "the replica is no longer a member");
    }
}
