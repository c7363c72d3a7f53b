//! A node that follows a leader: its sessions reach the core over a link.
//!
//! The link carries events and questions to the leader, and brings effects, answers and what the node has to know
//! ([`super::node_link`]). One task at each end takes its messages in turn.
//!
//! Not here: how the messages cross a network.

use std::sync::Arc;

use cluster::ids::ReplicaId;
use tokio::sync::{Notify, mpsc};

use super::core::{Core, News, RemoteCore};
use super::mailboxes::{Mailboxes, OWN_CREW};
use super::node_kind::NodeKind;
use super::node_link::{Intake, ToLeader, ToNode, ViewChange};
use super::performances::Performances;
use super::sequence_allocation::SequenceAllocation;
use super::splits::LastSplits;
use super::view::View;
use super::{Coordinator, Leader, Seat, Seats};

/// The node's end of a link.
pub(super) struct NodeEnd {
    pub(super) out: mpsc::Sender<ToLeader>,
    pub(super) news: mpsc::Receiver<ToNode>,
}

impl Coordinator {
    /// The coordinator of sessions whose core is that of this leader. The leader runs in the same process, and shares with the
    /// sessions what belongs to the process: the database, the state of the node, and who was evicted at a server.
    pub(super) fn following(leader: &Leader, kind: Arc<dyn NodeKind>) -> Arc<Self> {
        let mailboxes = Arc::new(Mailboxes::of(OWN_CREW));
        let view = Arc::new(View::new(leader.view.anchor(), leader.view.durable()));
        let intake = Intake { has_room: true, refusal: None };
        let news = News { replicas: Vec::new(), placement: None, intake };
        let core = RemoteCore::new(Arc::clone(&view), Arc::clone(&mailboxes), news);
        let seats = leader.seats.iter().map(Seat::of_session).collect();
        Arc::new(Self {
            cluster_id: leader.cluster_id,
            core: Core::There(core),
            view,
            mailboxes,
            seats: Arc::new(Seats::new(seats, leader.seats.reader_patience())),
            kind,
            performances: Arc::<Performances>::default(),
            database: Arc::clone(&leader.database),
            spills: Arc::clone(&leader.spills),
            sequences: SequenceAllocation::default(),
            deadlock_search: Notify::new(),
            last_splits: LastSplits::default(),
            local: Arc::clone(&leader.local),
        })
    }

    /// Takes what the leader tells, until the link ends. [`Self::lose_link`] has to follow.
    pub(super) async fn follow(&self, link: NodeEnd) {
        if let Core::There(core) = &self.core {
            core.join(link.out);
            self.hear_all(core, link.news).await;
        }
    }

    /// The link to the leader has ended.
    pub(super) fn lose_link(&self) {
        if let Core::There(core) = &self.core {
            core.lose_link();
        }
    }

    async fn hear_all(&self, core: &RemoteCore, mut news: mpsc::Receiver<ToNode>) {
        loop {
            tokio::select! {
                message = news.recv() => match message {
                    Some(message) => self.hear(core, message),
                    None => return,
                },
                () = self.deadlock_search.notified() => core.search_deadlocks(),
            }
        }
    }

    fn hear(&self, core: &RemoteCore, message: ToNode) {
        match message {
            ToNode::Heard(heard) => core.hear(heard),
            ToNode::Answer { number, answer } => core.answered(number, answer),
            ToNode::View(change) => {
                let moves = matches!(change, ViewChange::Anchor(_));
                core.show(change);
                if moves {
                    self.forget_oids();
                }
            }
            ToNode::Run { replica, incarnation, proof } => {
                self.seats[replica].run.begin(incarnation, proof);
                self.forget_oids();
            }
            ToNode::GaveUp { replica } => self.seats[replica].give_up(),
            ToNode::Joined(at) => {
                self.seats.take(Seat::joining(at).0);
                self.forget_oids();
            }
            ToNode::Left { replica } => self.leave(replica),
            ToNode::Leaving { anchor } => self.note_leaving(anchor),
            ToNode::Drained { replica, is_drained } => self.note_drain(replica, is_drained),
        }
    }

    fn leave(&self, replica: ReplicaId) {
        self.seats[replica].leave();
        self.seats[replica].give_up();
    }
}
