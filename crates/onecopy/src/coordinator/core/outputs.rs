//! Carries out the effects of the core: at the log, the agents, the sequences and the mailboxes of sessions.
//!
//! All of this happens under the lock of the core, so nothing here may wait or call the core.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::event::{Effect, Event};
use cluster::ids::{ClusterId, Identity, ReplicaId, Version};
use cluster::record::SealedBody;
use commitlog::LogEngine;

use crate::coordinator::crews::Crews;
use crate::coordinator::identities::Identities;
use crate::coordinator::mailboxes::{Mailboxes, OWN_CREW};
use crate::coordinator::messages::Messages;
use crate::coordinator::node_link::{ToNode, ViewChange};
use crate::coordinator::performances::{PerformOrder, Performances};
use crate::coordinator::requests::AgentOrder;
use crate::coordinator::seats::Seats;
use crate::coordinator::view::View;
use crate::database::Database;
use crate::local::{LocalState, count};

/// The parts of the node that effects change.
pub(in crate::coordinator) struct Outputs {
    pub(in crate::coordinator) cluster_id: ClusterId,
    pub(in crate::coordinator) view: Arc<View>,
    pub(in crate::coordinator) mailboxes: Arc<Mailboxes>,
    /// The sessions of other nodes.
    pub(in crate::coordinator) crews: Arc<Crews>,
    pub(in crate::coordinator) seats: Arc<Seats>,
    pub(in crate::coordinator) identities: Arc<Identities>,
    pub(in crate::coordinator) messages: Messages,
    pub(in crate::coordinator) performances: Arc<Performances>,
    pub(in crate::coordinator) log: Arc<dyn LogEngine>,
    pub(in crate::coordinator) database: Arc<Database>,
    pub(in crate::coordinator) local: Arc<LocalState>,
}

impl Outputs {
    /// Any effect but a wake-up of the core itself. Returns the event that it brings about at once, if any.
    pub(super) fn carry_out(&self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Send { from, to, message } => {
                return self.messages.send(Event::Arrived { from, to, message });
            }
            Effect::Perform { replica, incarnation, session, identity, attempt } => {
                let queue = self.mailboxes.performances(session);
                let order = PerformOrder { replica, incarnation, session, identity, attempt };
                return self.performances.begin(order, queue);
            }
            Effect::CommitPerformed { replica, incarnation, identity, version } => {
                return self.performances.commit(replica, incarnation, identity, version);
            }
            Effect::UndoPerformed { replica, identity, attempt } => {
                self.performances.undo(replica, identity, attempt);
            }
            Effect::Append { version, identity, body } => self.append(version, identity, *body),
            Effect::Apply { replica, incarnation, from, upto } => {
                self.seats[replica].order(AgentOrder::Apply { incarnation, from, upto });
            }
            Effect::Reset { replica } => self.seats[replica].order(AgentOrder::Reset),
            Effect::LoadCatalogue { replica, version } => {
                self.seats[replica].order(AgentOrder::LoadCatalogue { version });
            }
            Effect::Anchor { replica } => {
                self.move_anchor(replica);
                // The state that a session has at the old anchor is lost to it.
                self.mailboxes.drained();
            }
            other => {
                let session = other.session().expect("the effects without a session are matched above");
                if session.crew() == OWN_CREW {
                    self.mailboxes.deliver(session, other);
                } else {
                    self.crews.deliver(other);
                }
            }
        }
        None
    }

    fn append(&self, version: Version, identity: Identity, body: SealedBody) {
        count(&self.local.stats.records);
        self.identities.insert(identity, version);
        if body.writes_everything() {
            // After a schema change a statement may draw from other sequences, or in another way.
            self.database.sequences().leases.void_all();
        }
        if body.moves_sequences() {
            body.sequences().for_each(|mark| self.database.sequences().note(version, mark));
        }
        let header = self.database.header(self.cluster_id, identity, version);
        self.log.append(Arc::new(body.finish(header)));
    }

    /// Sessions use the new anchor from their next transaction on. Its object ids are the canonical ones from now on.
    fn move_anchor(&self, replica: ReplicaId) {
        let (old, new) = (&self.seats[self.view.anchor()].name, &self.seats[replica].name);
        tracing::warn!(%old, %new, "another replica is the anchor from now on");
        count(&self.local.stats.takeovers);
        self.view.set_anchor(replica);
        self.crews.tell_all(|| ToNode::View(ViewChange::Anchor(replica)));
        self.database.sequences().leases.replica_changed(replica);
        if self.seats[replica].is_lent.load(Ordering::Acquire) {
            self.seats[replica].order(AgentOrder::TakeBack);
        }
        self.seats.set_reader_patience(replica);
        self.seats.forget_oids(replica, &self.database);
    }
}
