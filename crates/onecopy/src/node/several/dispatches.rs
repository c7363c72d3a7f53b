//! The commands under way between this node and others: those that its clients have asked for, and those that it carries out.
//!
//! It is the book of the conductor ([`super::conductor`]), which sends what it says. For example, the link to node b ends. Then each
//! client here that waits for b learns that b is gone. Commands that this node carries out for b go on, without an answer.
//!
//! Invariant: every command that was asked for hears its last part, or of its loss, once.

use std::collections::BTreeMap;

use cluster::ids::NodeId;
use tokio::sync::mpsc;

use super::parcel::Parcel;
use crate::coordinator::dispatch::{
    Addressee, Carriage, DispatchId, Incoming, Loss, Outgoing, Part, Replies,
};

/// Commands of clients of this node that wait for others.
const ASKED_MAX: usize = 256;
/// Commands that are carried out for one other node.
const CARRIED_MAX: usize = 64;

/// A command that waits for the answer of another node.
struct Asked {
    node: NodeId,
    to: Addressee,
    answer: mpsc::Sender<Incoming>,
    /// Its last part has arrived.
    is_answered: bool,
}

/// A command that is carried out here.
struct Carried {
    /// Gets something for each part that was taken.
    taken: mpsc::Sender<()>,
    /// Its last part is under way.
    is_answered: bool,
}

/// The commands under way.
pub(super) struct Dispatches {
    asked: BTreeMap<DispatchId, Asked>,
    carried: BTreeMap<Carriage, Carried>,
    /// Where what is carried out here puts its answers.
    replies: mpsc::Sender<Outgoing>,
}

impl Dispatches {
    /// None yet. What is carried out here will put its answers into `replies`.
    pub(super) fn new(replies: mpsc::Sender<Outgoing>) -> Self {
        Self { asked: BTreeMap::new(), carried: BTreeMap::new(), replies }
    }

    /// A client of this node has asked; `false` if too many wait. Then it knows.
    pub(super) fn ask(
        &mut self,
        number: DispatchId,
        node: NodeId,
        to: Addressee,
        answer: mpsc::Sender<Incoming>,
    ) -> bool {
        if self.asked.len() >= ASKED_MAX {
            lose(&answer, Loss::TooMany);
            return false;
        }
        self.asked.insert(number, Asked { node, to, answer, is_answered: false });
        true
    }

    /// A part of an answer has arrived. Returns what its sender has to know.
    pub(super) fn hear(&mut self, from: NodeId, number: DispatchId, part: Part) -> Option<Parcel> {
        let forget = Some(Parcel::Forget { number });
        let asked = self.asked.get_mut(&number).filter(|asked| asked.node == from && !asked.is_answered);
        let Some(asked) = asked else { return forget };
        asked.is_answered = part.is_last();
        if asked.answer.try_send(Incoming::Part(part)).is_ok() {
            return None;
        }
        self.asked.remove(&number);
        forget
    }

    /// A client has taken a part. Returns the node that waits for that.
    pub(super) fn take(&mut self, number: DispatchId) -> Option<NodeId> {
        let asked = self.asked.get(&number)?;
        let node = asked.node;
        if asked.is_answered {
            self.asked.remove(&number);
        }
        Some(node)
    }

    /// A client waits no more. Returns the node that it has asked.
    pub(super) fn forget(&mut self, number: DispatchId) -> Option<NodeId> {
        self.asked.remove(&number).map(|asked| asked.node)
    }

    /// The link to a node has ended.
    pub(super) fn unlink(&mut self, node: NodeId, name: &str) {
        self.end(|asked| asked.node == node, name);
        self.carried.retain(|carriage, _| carriage.node != node);
    }

    /// A node is not the leader of this one any more.
    pub(super) fn leave(&mut self, leader: NodeId, name: &str) {
        self.end(|asked| (asked.node, asked.to) == (leader, Addressee::Leader), name);
    }

    fn end(&mut self, is_over: impl Fn(&Asked) -> bool, name: &str) {
        self.asked.retain(|_, asked| {
            let goes_on = !is_over(asked);
            if !goes_on {
                lose(&asked.answer, Loss::Gone { node: name.to_owned() });
            }
            goes_on
        });
    }

    /// Another node has asked. Returns the way of the answer; `None` if too much is carried out for it.
    pub(super) fn carry(&mut self, carriage: Carriage) -> Option<Replies> {
        if self.carried.keys().filter(|other| other.node == carriage.node).count() >= CARRIED_MAX {
            return None;
        }
        let (taken, takes) = mpsc::channel(1);
        self.carried.insert(carriage, Carried { taken, is_answered: false });
        Some(Replies::new(carriage, self.replies.clone(), takes))
    }

    /// The node that carries a command out has a part. Returns whether it is waited for.
    pub(super) fn reply(&mut self, carriage: Carriage, part: &Part) -> bool {
        let Some(carried) = self.carried.get_mut(&carriage) else { return false };
        carried.is_answered |= part.is_last();
        true
    }

    /// The part was taken.
    pub(super) fn taken(&mut self, carriage: Carriage) {
        let Some(carried) = self.carried.get(&carriage) else { return };
        // There is room unless the other node says it twice.
        let _ = carried.taken.try_send(());
        if carried.is_answered {
            self.carried.remove(&carriage);
        }
    }

    /// The answer is not waited for.
    pub(super) fn forgotten(&mut self, carriage: Carriage) {
        self.carried.remove(&carriage);
    }
}

/// Tells a client that no answer comes.
pub(super) fn lose(answer: &mpsc::Sender<Incoming>, loss: Loss) {
    // It may have gone.
    let _ = answer.try_send(Incoming::Lost(loss));
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);

    fn none() -> (Dispatches, mpsc::Receiver<Outgoing>) {
        let (replies, outgoing) = mpsc::channel(1_000);
        (Dispatches::new(replies), outgoing)
    }

    fn ask(
        dispatches: &mut Dispatches,
        number: u64,
        node: NodeId,
        to: Addressee,
    ) -> mpsc::Receiver<Incoming> {
        let (answer, incoming) = mpsc::channel(2);
        assert!(dispatches.ask(DispatchId(number), node, to, answer));
        incoming
    }

    fn carriage(node: NodeId, number: u64) -> Carriage {
        Carriage { node, link: 9, number: DispatchId(number) }
    }

    #[test]
    fn a_part_reaches_the_client_that_has_asked_that_node() {
        let (mut dispatches, _outgoing) = none();
        let mut first = ask(&mut dispatches, 1, LEADER, Addressee::Leader);
        let forget = |parcel: Option<Parcel>| matches!(parcel, Some(Parcel::Forget { .. }));
        assert!(forget(dispatches.hear(OTHER, DispatchId(1), Part::Done)), "another node was asked");
        assert!(dispatches.hear(LEADER, DispatchId(1), Part::Rows(Vec::new())).is_none());
        assert!(matches!(first.try_recv(), Ok(Incoming::Part(Part::Rows(_)))));
        assert_eq!(dispatches.take(DispatchId(1)), Some(LEADER));
        assert!(dispatches.hear(LEADER, DispatchId(1), Part::Done).is_none());
        assert!(matches!(first.try_recv(), Ok(Incoming::Part(Part::Done))));
        assert_eq!(dispatches.take(DispatchId(1)), Some(LEADER));
        assert_eq!(dispatches.take(DispatchId(1)), None, "it is over");
        assert!(forget(dispatches.hear(LEADER, DispatchId(1), Part::Done)), "the answer is complete");
        drop(ask(&mut dispatches, 2, LEADER, Addressee::Leader));
        assert!(forget(dispatches.hear(LEADER, DispatchId(2), Part::Done)), "the client has gone");
    }

    #[test]
    fn what_waits_for_a_leader_ends_with_it_and_what_waits_for_a_node_ends_with_its_link() {
        let (mut dispatches, _outgoing) = none();
        let mut of_leader = ask(&mut dispatches, 1, LEADER, Addressee::Leader);
        let mut of_node = ask(&mut dispatches, 2, LEADER, Addressee::Node(LEADER));
        let mut elsewhere = ask(&mut dispatches, 3, OTHER, Addressee::Node(OTHER));
        dispatches.leave(LEADER, "b");
        let gone = Loss::Gone { node: "b".to_owned() };
        assert!(matches!(of_leader.try_recv(), Ok(Incoming::Lost(loss)) if loss == gone));
        assert!(of_node.try_recv().is_err(), "the node still answers");
        let replies = dispatches.carry(carriage(LEADER, 7)).unwrap();
        assert!(!replies.is_forgotten());
        dispatches.unlink(LEADER, "b");
        assert!(matches!(of_node.try_recv(), Ok(Incoming::Lost(loss)) if loss == gone));
        assert!(elsewhere.try_recv().is_err());
        assert!(replies.is_forgotten());
    }

    #[test]
    fn a_command_that_is_carried_out_is_over_when_its_last_part_was_taken() {
        let (mut dispatches, _outgoing) = none();
        let replies = dispatches.carry(carriage(OTHER, 1)).unwrap();
        assert!(dispatches.reply(carriage(OTHER, 1), &Part::Rows(Vec::new())));
        dispatches.taken(carriage(OTHER, 1));
        assert!(!replies.is_forgotten());
        assert!(dispatches.reply(carriage(OTHER, 1), &Part::Done));
        dispatches.taken(carriage(OTHER, 1));
        assert!(replies.is_forgotten());
        assert!(!dispatches.reply(carriage(OTHER, 1), &Part::Done));
    }

    #[test]
    fn what_is_under_way_is_bounded() {
        let (mut dispatches, _outgoing) = none();
        for number in 0..CARRIED_MAX as u64 {
            assert!(dispatches.carry(carriage(OTHER, number)).is_some());
        }
        assert!(dispatches.carry(carriage(OTHER, 1_000)).is_none());
        assert!(dispatches.carry(carriage(LEADER, 1_000)).is_some(), "each node has its own share");
        dispatches.forgotten(carriage(OTHER, 3));
        assert!(dispatches.carry(carriage(OTHER, 1_000)).is_some());
        let mut waiting = Vec::new();
        for number in 0..ASKED_MAX as u64 {
            waiting.push(ask(&mut dispatches, number, LEADER, Addressee::Leader));
        }
        let (answer, mut incoming) = mpsc::channel(2);
        assert!(!dispatches.ask(DispatchId(1_000), LEADER, Addressee::Leader, answer));
        assert!(matches!(incoming.try_recv(), Ok(Incoming::Lost(Loss::TooMany))));
    }
}
