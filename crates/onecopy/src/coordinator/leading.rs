//! Which node leads, as the rest of this process asks for it: the admin database, metrics, and the tasks of a term.
//!
//! A cluster of one node has its leader here for as long as it runs. With several nodes it comes and goes, so each
//! command asks for it anew.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use cluster::ids::{Epoch, NodeId};
use wire::sqlstate;

use super::Leader;
use super::dispatch::Dispatcher;
use crate::error::Refusal;

/// What a node is at present, as this one sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodeRole {
    /// It leads.
    Leader,
    /// It lives, and another one leads, or none.
    Follower,
    /// There is no link to it.
    Unlinked,
}

impl NodeRole {
    /// As SHOW NODES says it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Unlinked => "unlinked",
        }
    }
}

/// A node of the cluster, as this one sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NodeStatus {
    pub(crate) name: String,
    /// Where other nodes reach it.
    pub(crate) address: String,
    pub(crate) role: NodeRole,
    /// It is the node that says so.
    pub(crate) is_own: bool,
}

/// Tells who leads.
#[derive(Debug, Default)]
pub(crate) struct Leading {
    /// The leader, while this node leads.
    own: RwLock<Option<Arc<Leader>>>,
    /// The name of the node that leads, while another one does.
    elsewhere: RwLock<Option<String>>,
    nodes: RwLock<Vec<NodeStatus>>,
    /// The term that this node leads or follows, while there are several.
    epoch: RwLock<Option<Epoch>>,
    /// The way to the other nodes, if there are any.
    dispatcher: OnceLock<Dispatcher>,
}

impl Leading {
    /// This node leads, until [`Leading::end`].
    pub(crate) fn here(leader: &Arc<Leader>) -> Arc<Self> {
        let leading = Arc::<Self>::default();
        leading.begin(leader);
        leading
    }

    /// This node leads from now on.
    pub(crate) fn begin(&self, leader: &Arc<Leader>) {
        *self.own.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(leader));
    }

    /// This node leads no more.
    pub(crate) fn end(&self) {
        *self.own.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The node of this name leads from now on, or none that is known.
    pub(crate) fn follow(&self, node: Option<String>) {
        *self.elsewhere.write().unwrap_or_else(PoisonError::into_inner) = node;
    }

    /// The leader, if this node leads.
    pub(crate) fn get(&self) -> Option<Arc<Leader>> {
        self.own.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All nodes of the cluster, by their names; empty if the node is alone.
    pub(crate) fn nodes(&self) -> Vec<NodeStatus> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The nodes of the cluster are these, and this node leads or follows this term.
    pub(crate) fn set_nodes(&self, nodes: Vec<NodeStatus>, epoch: Option<Epoch>) {
        *self.nodes.write().unwrap_or_else(PoisonError::into_inner) = nodes;
        *self.epoch.write().unwrap_or_else(PoisonError::into_inner) = epoch;
    }

    /// The term that this node leads or follows, if it does.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        let of_several = *self.epoch.read().unwrap_or_else(PoisonError::into_inner);
        of_several.or_else(|| self.get().map(|leader| leader.term.epoch))
    }

    /// The name of a node of several.
    pub(crate) fn name_of(&self, node: NodeId) -> Option<String> {
        self.nodes().get(usize::from(node.0)).map(|status| status.name.clone())
    }

    /// Commands for other nodes go this way.
    pub(crate) fn dispatch_by(&self, dispatcher: Dispatcher) {
        let is_first = self.dispatcher.set(dispatcher).is_ok();
        debug_assert!(is_first, "a node has one way to the others");
    }

    /// The way to the other nodes; `None` if the node is alone.
    pub(crate) fn dispatcher(&self) -> Option<&Dispatcher> {
        self.dispatcher.get()
    }

    /// The leader, for a command that only the leader can carry out.
    pub(crate) fn must_lead(&self) -> Result<Arc<Leader>, Refusal> {
        if let Some(leader) = self.get() {
            return Ok(leader);
        }
        let elsewhere = self.elsewhere.read().unwrap_or_else(PoisonError::into_inner);
        Err(match &*elsewhere {
            Some(node) => Refusal::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("node {node} leads, and only the leader can do this"),
                "Connect to the database onecopy at that node; SHOW NODES says where it is.",
            ),
            None => Refusal::new(
                sqlstate::CANNOT_CONNECT_NOW,
                "no node leads at present, and only the leader can do this",
                "Repeat it in a moment. If that lasts, look whether a majority of etcd's members is up.",
            ),
        })
    }
}
