//! Shows what this node knows of the others: SHOW NODES and the tasks of a term read it ([`Leading`]).

use std::sync::Arc;

use cluster::ids::{Epoch, NodeId};

use super::links::Links;
use crate::coordinator::{Leading, NodeRole, NodeStatus};

/// Where the node shows what it knows of the others.
pub(super) struct Board {
    pub(super) leading: Arc<Leading>,
    pub(super) own: NodeId,
    /// The nodes, by their numbers.
    pub(super) all: Vec<NodeStatus>,
    /// The term that was shown last.
    pub(super) epoch: Option<Epoch>,
}

impl Board {
    /// Shows the nodes, if something has changed.
    pub(super) fn show(&mut self, leader: Option<(NodeId, Epoch)>, links: &Links) {
        let (leader, epoch) = leader.unzip();
        let mut has_changed = std::mem::replace(&mut self.epoch, epoch) != epoch;
        for (node, status) in (0..).map(NodeId).zip(&mut self.all) {
            let role = match node {
                node if Some(node) == leader => NodeRole::Leader,
                node if node == self.own || links.get(node).is_some() => NodeRole::Follower,
                _ => NodeRole::Unlinked,
            };
            has_changed |= std::mem::replace(&mut status.role, role) != role;
        }
        if has_changed {
            self.leading.set_nodes(self.all.clone(), epoch);
        }
    }
}
