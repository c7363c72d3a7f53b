//! Which nodes have left beats of this one unanswered.
//!
//! A leader that is heard and hears nobody looks healthy to the others, while nothing that their sessions say reaches it: a network may be
//! cut in one direction. So each beat is answered, and a leader breaks the link of a node that answers none. The node then looks for
//! another leader, and those that are not deaf decide.
//!
//! Beats are counted and not time: a node that has hung finds all answers in its links when it wakes.

use std::collections::BTreeMap;

use cluster::ids::NodeId;

/// So many beats without an answer are twice the silence after which a leader is given up.
const UNANSWERED_MAX: u32 = 12;

/// The beats since the last answer, for each node that is linked.
#[derive(Debug, Default)]
pub(super) struct Unanswered(BTreeMap<NodeId, u32>);

impl Unanswered {
    /// Something was heard from a node, or its link is new.
    pub(super) fn hear(&mut self, node: NodeId) {
        self.0.insert(node, 0);
    }

    /// The link of a node is gone.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    /// A beat goes to all nodes. Returns those that do not hear, or are not heard.
    pub(super) fn beat(&mut self) -> Vec<NodeId> {
        self.0.values_mut().for_each(|beats| *beats += 1);
        self.0.iter().filter(|(_, beats)| **beats > UNANSWERED_MAX).map(|(node, _)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_answers_no_beat_is_found() {
        let (mute, answers) = (NodeId(1), NodeId(2));
        let mut unanswered = Unanswered::default();
        [mute, answers].into_iter().for_each(|node| unanswered.hear(node));
        for _ in 0..UNANSWERED_MAX {
            assert_eq!(unanswered.beat(), []);
            unanswered.hear(answers);
        }
        assert_eq!(unanswered.beat(), [mute]);
        unanswered.forget(mute);
        assert_eq!(unanswered.beat(), []);
    }
}
