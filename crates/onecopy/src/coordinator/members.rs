//! Replicas join, drain and leave. This file keeps their seats, their drivers and the records about them.

use std::sync::Arc;

use cluster::event::Event;
use cluster::ids::{Incarnation, ReplicaId};
use tokio::sync::mpsc;

use super::node_link::{ToNode, ViewChange};
use super::parking::ParkingState;
use super::quarantines::QuarantineDuration;
use super::replica_address::MemberSeat;
use super::resync_progress::ResyncStage;
use super::{AgentOrder, Leader, ReplicaAddress, RunProof, Seat};

impl Leader {
    /// Adds a new member, which has no data and no driver yet. Returns the orders for its driver.
    pub(crate) fn join(&self, at: &ReplicaAddress) -> mpsc::Receiver<AgentOrder> {
        let (seat, orders) = Seat::joining(at.clone(), &self.seats.evictions);
        let replica = seat.replica;
        self.seats.take(seat);
        let member = MemberSeat::of(at);
        self.crews.tell_all(|| ToNode::Joined(member.clone()));
        self.set_stage(replica, Some(ResyncStage::Preparing));
        self.retention.log().join(replica);
        self.retention.log().quarantine(replica, "it has no data yet", QuarantineDuration::UntilRestart);
        self.seats.set_reader_patience(self.view.anchor());
        self.forget_oids();
        self.core.tell(Event::Joined { replica });
        orders
    }

    /// A replica is no longer a member. Its open transactions are rolled back, and no list shows it any more.
    pub(crate) async fn leave(self: &Arc<Self>, replica: ReplicaId) {
        let seat = &self.seats[replica];
        self.core.tell(Event::Left { replica });
        seat.order(AgentOrder::Leave);
        seat.leave();
        self.give_up(replica);
        self.crews.tell_all(|| ToNode::Left { replica });
        self.database.sequences().leases.replica_changed(replica);
        self.retention.log().forget(replica);
        if let Err(error) = self.retention.quarantines.lift(&seat.name) {
            tracing::warn!(replica = %seat.name, %error, "a replica of this name will begin in quarantine");
        }
        if let Err(error) = self.parking.lift(replica, &seat.name, ParkingState::Awake).await {
            tracing::warn!(replica = %seat.name, %error, "a replica of this name will be parked after a restart");
        }
        self.holds_nothing(replica).await;
        tracing::warn!(replica = %seat.name, "the replica is no longer a member");
    }

    /// A replica takes no new work from now on, or takes work again. Idle connections to a drained replica are closed.
    pub(crate) fn drain(&self, replica: ReplicaId, is_drained: bool) {
        self.core.tell(Event::Drained { replica, is_drained });
        self.note_drain(replica, is_drained);
        // A session that hears of the drain asks the view which replicas are drained, and does not ask again.
        let replicas = self.core.replicas();
        self.crews.tell_all(|| ToNode::View(ViewChange::Replicas(replicas.clone())));
        self.crews.tell_all(|| ToNode::Drained { replica, is_drained });
    }

    /// The anchor is about to be replaced, while its connections are still good; `None` ends that.
    pub(crate) fn tell_leaving(&self, anchor: Option<ReplicaId>) {
        self.note_leaving(anchor);
        self.crews.tell_all(|| ToNode::Leaving { anchor });
    }

    /// The agent of a replica is connected to a run of its server, which this query proves to be the same. Sessions can use it
    /// as soon as the core lets them.
    pub(crate) fn begin_run(
        &self,
        replica: ReplicaId,
        incarnation: Incarnation,
        sql: String,
        spared: Vec<i32>,
    ) {
        let proof = RunProof { sql, voucher: self.voucher.clone(), spared };
        self.seats[replica].run.begin(incarnation, proof.clone());
        self.crews.begin_run(replica, incarnation, proof);
    }

    /// The server of a replica is given up: the connections of all sessions end.
    pub(crate) fn give_up(&self, replica: ReplicaId) {
        self.crews.end_run(replica);
        self.seats[replica].give_up();
    }
}
