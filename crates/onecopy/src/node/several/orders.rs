//! What the conductor, the office and the terms of a node tell each other.

use std::sync::Arc;

use cluster::ids::{Epoch, NodeId};
use commitlog::{Claim, LogEngine};
use tokio::sync::{mpsc, oneshot, watch};

use crate::coordinator::Leader;
use crate::coordinator::dispatch::{Dispatch, Replies};
use crate::coordinator::following::NodeEnd;
use crate::coordinator::node_link::{ToLeader, ToNode};

/// Terms, links and admissions that can wait for the ones before.
pub(super) const WAITING_MAX: usize = 16;

/// What the office has to do.
pub(super) enum Order {
    /// This node has the chair: open the log of this term.
    Lead(Claim),
    /// No other lease is left: serve.
    Serve,
    /// The own term is over.
    StepDown,
    /// The node of this name leads.
    Follow(String),
    /// No leader is known.
    Unled,
    /// The leader takes what sessions say.
    Joined(NodeEnd),
    /// The sessions of a node join the term.
    Admit { node: NodeId, queue: mpsc::Sender<ToNode>, events: mpsc::Receiver<ToLeader> },
    /// A client of another node wants a statement cancelled.
    Cancel { pid: i32, secret: Vec<u8> },
    /// A client of another node has said a command of the admin database.
    CarryOut { from: String, dispatch: Dispatch, replies: Replies },
}

/// What the office has done.
pub(super) enum News {
    /// The log is fenced for this term.
    Opened(Epoch, Arc<dyn LogEngine>),
    /// Nodes can join the term.
    Serving(Epoch),
    /// The log of this term is another node's, or cannot be used.
    Lost(Epoch),
    /// A client of this node wants a statement of another node's cancelled.
    Cancel { node: NodeId, pid: i32, secret: Vec<u8> },
    /// The node stops.
    Stop,
}

/// A link of this node's sessions.
pub(super) enum SessionLink {
    /// To the leader of another node.
    Over(NodeEnd),
    /// To the leader of this node, until its term ends.
    Own(Arc<Leader>),
}

/// A node that joins the term of this one.
pub(super) struct Admission {
    pub(super) node: NodeId,
    pub(super) queue: mpsc::Sender<ToNode>,
    pub(super) events: mpsc::Receiver<ToLeader>,
}

/// A term that begins.
pub(super) struct TermOrder {
    pub(super) claim: Claim,
    /// No other lease is left.
    pub(super) may_serve: oneshot::Receiver<()>,
    pub(super) admissions: mpsc::Receiver<Admission>,
    /// Closed when the term is over.
    pub(super) ends: watch::Receiver<()>,
}

/// The queues into which the office puts work.
pub(super) struct OfficeQueues {
    pub(super) terms: mpsc::Sender<TermOrder>,
    pub(super) links: mpsc::Sender<SessionLink>,
}

/// The other ends of these queues.
pub(super) struct OfficeWork {
    pub(super) terms: mpsc::Receiver<TermOrder>,
    pub(super) links: mpsc::Receiver<SessionLink>,
}

impl OfficeQueues {
    pub(super) fn new() -> (Self, OfficeWork) {
        let (terms, term_orders) = mpsc::channel(WAITING_MAX);
        let (links, session_links) = mpsc::channel(WAITING_MAX);
        (Self { terms, links }, OfficeWork { terms: term_orders, links: session_links })
    }
}
