//! What the nodes of a cluster say to each other over their links.
//!
//! Each attempt of a node to join a leader has a number of its own, which all messages of that attempt carry. So what was under way
//! when a term ended is not taken for something of the next one, although the link is the same.

use cluster::ids::{Epoch, NodeId};
use cluster::nodes::term::{Input, Output};
use serde::{Deserialize, Serialize};

use crate::coordinator::dispatch::{Dispatch, DispatchId, Part};
use crate::coordinator::node_link::{ToLeader, ToNode};

/// The number of an attempt to join a leader; greater ones come later at the same run of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub(super) struct JoinId(pub(super) u64);

/// One message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Parcel {
    /// The leader of this term lives.
    Beat { epoch: Epoch, unconfirmed_us: u64 },
    /// Is the leader of this term heard?
    Ask { epoch: Epoch, round: u64 },
    /// The answer.
    Vote { round: u64, hears: bool },
    /// A node wants to join the leader of this term. It says so again with each beat, until it is welcome.
    Hello { epoch: Epoch, join: JoinId },
    /// It has joined; the messages of [`Self::ToNode`] follow.
    Welcome { join: JoinId },
    /// This attempt is over, for the one that hears it.
    Bye { join: JoinId },
    /// From the sessions of a node to the leader.
    ToLeader { join: JoinId, message: ToLeader },
    /// From the leader to a node that has joined.
    ToNode { join: JoinId, message: ToNode },
    /// A client wants a statement cancelled, with the key that a session of the receiver has given it.
    Cancel { pid: i32, secret: Vec<u8> },
    /// A beat was heard.
    Heard,
    /// A command of a client of the sender, for the receiver to carry out.
    Dispatch { number: DispatchId, dispatch: Dispatch },
    /// A part of the answer to a command of the receiver's.
    Part { number: DispatchId, part: Part },
    /// The last part of the receiver's answer was taken.
    More { number: DispatchId },
    /// The receiver's answer is not waited for any more.
    Forget { number: DispatchId },
    /// The term of the sender is over, and the receiver is to lead the next one.
    Yield { epoch: Epoch },
}

/// What a message tells the machine of take-over, if it is for that.
pub(super) fn input(from: NodeId, parcel: &Parcel) -> Option<Input> {
    match *parcel {
        Parcel::Beat { epoch, unconfirmed_us } => Some(Input::Beat { from, epoch, unconfirmed_us }),
        Parcel::Ask { epoch, round } => Some(Input::Asked { from, epoch, round }),
        Parcel::Vote { round, hears } => Some(Input::Voted { from, round, hears }),
        Parcel::Yield { epoch } => Some(Input::Yielded { from, epoch }),
        _ => None,
    }
}

/// The message for one node, or for all others, in which the machine says something; `None` if it says nothing to nodes.
pub(super) fn parcel(output: &Output) -> Option<(Option<NodeId>, Parcel)> {
    match *output {
        Output::Beat { epoch, unconfirmed_us } => Some((None, Parcel::Beat { epoch, unconfirmed_us })),
        Output::Ask { epoch, round } => Some((None, Parcel::Ask { epoch, round })),
        Output::Vote { to, round, hears } => Some((Some(to), Parcel::Vote { round, hears })),
        Output::Yield { to, epoch } => Some((Some(to), Parcel::Yield { epoch })),
        _ => None,
    }
}
