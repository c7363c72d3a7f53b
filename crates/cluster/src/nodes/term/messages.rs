//! What the machine of take-over hears and says.

use crate::ids::{Epoch, NodeId, Nonce};
use crate::time::Time;

/// What the chair says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    /// Counts its changes; a claim names the one that it read.
    pub revision: u64,
    /// The last claim; `None` before the first one.
    pub holder: Option<Holder>,
}

/// The holder of the chair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The node.
    pub node: NodeId,
    /// Its term.
    pub epoch: Epoch,
    /// Drawn by the node at its start, so that it does not take its former run for itself.
    pub nonce: Nonce,
}

/// Something that has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// A leader's beat has arrived.
    Beat {
        /// The leader.
        from: NodeId,
        /// Its term.
        epoch: Epoch,
        /// How long it has confirmed nothing.
        unconfirmed_us: u64,
    },
    /// The link to a node is broken.
    Unlinked(NodeId),
    /// A node asks whether the leader of a term is heard: answer with [`Output::Vote`].
    Asked {
        /// The node.
        from: NodeId,
        /// The term.
        epoch: Epoch,
        /// The number of the question.
        round: u64,
    },
    /// A node has answered.
    Voted {
        /// The node.
        from: NodeId,
        /// The number of the question.
        round: u64,
        /// It hears the leader.
        hears: bool,
    },
    /// The chair was read, or could not be read.
    Read {
        /// The time in [`Output::ReadChair`].
        sent: Time,
        /// What it says.
        reading: Option<Reading>,
    },
    /// The claim was answered.
    Claimed {
        /// The time in [`Output::Claim`].
        sent: Time,
        /// The term; `None` if the chair had changed, or if there was no answer. Then the chair is read.
        epoch: Option<Epoch>,
    },
    /// An append has succeeded, or a confirmation was answered.
    Confirmed {
        /// When it was sent: the time in [`Output::Confirm`], or before an append.
        sent: Time,
        /// Whether the chair is still this node's; `None` if there was no answer.
        is_ours: Option<bool>,
    },
    /// The log is read to its end, and the record that fences it is durable.
    Opened,
    /// Every replica is fenced.
    Fenced,
    /// A node has joined this term.
    Joined(NodeId),
    /// This node is to hand the lead over to another one. It does nothing unless it serves.
    HandOver {
        /// The other node.
        to: NodeId,
    },
    /// A leader hands the lead over to this node.
    Yielded {
        /// The leader.
        from: NodeId,
        /// Its term, which is over.
        epoch: Epoch,
    },
}

/// Something to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Read the chair: [`Input::Read`].
    ReadChair {
        /// Now.
        sent: Time,
    },
    /// Claim the chair if it has this revision, with the term that follows the holder's: [`Input::Claimed`].
    Claim {
        /// Now.
        sent: Time,
        /// The revision that was read.
        expected: u64,
        /// The term.
        epoch: Epoch,
    },
    /// Ask the chair whether it is still this node's: [`Input::Confirmed`] with this time.
    Confirm {
        /// Now.
        sent: Time,
    },
    /// Say to every other node that the leader lives.
    Beat {
        /// The term.
        epoch: Epoch,
        /// How long it has confirmed nothing.
        unconfirmed_us: u64,
    },
    /// Ask every other node whether it hears the leader of this term.
    Ask {
        /// The term.
        epoch: Epoch,
        /// The number of the question.
        round: u64,
    },
    /// Answer a node that asks.
    Vote {
        /// The node.
        to: NodeId,
        /// The number of its question.
        round: u64,
        /// Whether the leader is heard here.
        hears: bool,
    },
    /// Tell a node that it may claim the chair at once, since the own term is over.
    Yield {
        /// The node.
        to: NodeId,
        /// The own term.
        epoch: Epoch,
    },
    /// The chair is ours: read the log to its end, append the record that fences it, say [`Input::Opened`], and fence every replica.
    Lead {
        /// The term.
        epoch: Epoch,
    },
    /// Let statements run from now on, under the term lease ([`crate::nodes::lease`]), which counts from the claim.
    Serve {
        /// When the claim was sent, or the last confirmation that succeeded.
        renewed: Time,
    },
    /// Join this leader, or wait for its link.
    Follow {
        /// The leader.
        leader: NodeId,
        /// Its term.
        epoch: Epoch,
    },
    /// The leader is given up: what its term owes sessions is over.
    Leave,
    /// End the own term at once: drop the core, and what it owes sessions is over.
    StepDown(Why),
}

/// Why a leader steps down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Another node has the chair.
    Replaced,
    /// It could not confirm its term for 2 D.
    Unconfirmed,
    /// It hands the lead over.
    HandedOver,
}
