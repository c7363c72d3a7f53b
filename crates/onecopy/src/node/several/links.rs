//! The links of this node, and which nodes have left beats of this one unanswered.
//!
//! A network may be cut in one direction. Then a leader looks healthy to the others, because they hear its beats, and hears none of their
//! sessions. So each beat is answered, and a leader breaks the link of a node that answers none. The node then looks for
//! another leader, and those that are not deaf decide.
//!
//! Beats are counted and not time: a node that has hung finds all answers in its links when it wakes.

use std::collections::BTreeMap;

use cluster::ids::NodeId;
use peers::LinkId;

/// So many beats without an answer are twice the silence after which a leader is given up.
const UNANSWERED_MAX: u32 = 12;

/// A link that is up.
#[derive(Debug)]
struct Link {
    id: LinkId,
    /// The beats since something was heard from its other end.
    unanswered: u32,
}

/// The links that are up, by their other ends.
#[derive(Debug, Default)]
pub(super) struct Links(BTreeMap<NodeId, Link>);

impl Links {
    /// A node is linked.
    pub(super) fn up(&mut self, node: NodeId, id: LinkId) {
        self.0.insert(node, Link { id, unanswered: 0 });
    }

    /// A link has ended, and it may be an earlier one than the present one.
    pub(super) fn down(&mut self, node: NodeId, id: LinkId) {
        if self.get(node) == Some(id) {
            self.0.remove(&node);
        }
    }

    /// The present link to a node.
    pub(super) fn get(&self, node: NodeId) -> Option<LinkId> {
        self.0.get(&node).map(|link| link.id)
    }

    /// The nodes that are linked.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.keys().copied()
    }

    /// Something was heard from a node.
    pub(super) fn hear(&mut self, node: NodeId) {
        if let Some(link) = self.0.get_mut(&node) {
            link.unanswered = 0;
        }
    }

    /// A beat goes to all nodes. Returns the links of those that do not hear, or are not heard.
    pub(super) fn beat(&mut self) -> Vec<(NodeId, LinkId)> {
        self.0.values_mut().for_each(|link| link.unanswered += 1);
        let deaf = self.0.iter().filter(|(_, link)| link.unanswered > UNANSWERED_MAX);
        deaf.map(|(node, link)| (*node, link.id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_answers_no_beat_is_found() {
        let (mute, answers) = (NodeId(1), NodeId(2));
        let mut links = Links::default();
        links.up(mute, LinkId(7));
        links.up(answers, LinkId(8));
        for _ in 0..UNANSWERED_MAX {
            assert_eq!(links.beat(), []);
            links.hear(answers);
        }
        assert_eq!(links.beat(), [(mute, LinkId(7))]);
        links.down(mute, LinkId(6));
        assert_eq!(links.get(mute), Some(LinkId(7)), "an earlier link has ended");
        links.down(mute, LinkId(7));
        links.hear(mute);
        assert_eq!(links.beat(), []);
    }
}
