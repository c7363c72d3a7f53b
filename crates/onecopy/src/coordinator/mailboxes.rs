//! The mailboxes of the sessions that are open at this node, by their numbers.
//!
//! Numbers count up and are not used again while the node runs. A session that opens while the anchor moves is either
//! in the list when [`Mailboxes::drained`] goes through it, or reads the new anchor afterwards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::event::Effect;
use cluster::ids::{CrewId, NodeId, SessionId};
use rustc_hash::FxHashMap;

use super::mailbox::{End, Mailbox, Note};
use super::performances::PerformanceQueue;

/// The crew of the sessions that reach a core of their own node directly.
pub(super) const OWN_CREW: CrewId = CrewId(0);
/// The leader's own sessions have numbers from here on, if clients have sessions that are linked to it.
pub(super) const LEADER_NUMBERS: u64 = 1 << 40;

/// The lowest bit of a session's number that tells its node.
const NODE_SHIFT: u32 = 24;
/// A process number has room for so many bits of a session's number.
const PID_BITS: u32 = 30;

/// The number of the n-th session of one of several nodes. Its lowest bits are in the process number that its client gets.
fn node_number(node: NodeId, n: u64) -> u64 {
    let (low, high) = (n & ((1 << NODE_SHIFT) - 1), n >> NODE_SHIFT);
    high << PID_BITS | u64::from(node.0) << NODE_SHIFT | low
}

/// The node in the lowest bits of a session's number.
pub(crate) fn node_of(number: u64) -> NodeId {
    let bits = number >> NODE_SHIFT & ((1 << (PID_BITS - NODE_SHIFT)) - 1);
    NodeId(u16::try_from(bits).unwrap_or(u16::MAX))
}

/// The mailboxes of the open sessions.
#[derive(Debug)]
pub(crate) struct Mailboxes {
    crew: CrewId,
    open: Mutex<FxHashMap<SessionId, Arc<Mailbox>>>,
    next: AtomicU64,
    /// The number of this node among several, in the bits of numbers that tell it.
    node: AtomicU64,
}

impl Mailboxes {
    /// No mailboxes yet. The sessions will be of this crew.
    pub(super) fn of(crew: CrewId) -> Self {
        Self { crew, open: Mutex::default(), next: AtomicU64::new(1), node: AtomicU64::new(0) }
    }

    /// Gives sessions numbers from now on that no client of this process has.
    pub(crate) fn number_for_leader(&self) {
        self.next.fetch_max(LEADER_NUMBERS, Ordering::Relaxed);
    }

    /// Gives sessions numbers from now on that tell of which node they are, so that a cancel request finds it.
    pub(crate) fn number_for_node(&self, node: NodeId) {
        self.node.store(u64::from(node.0) + 1, Ordering::Relaxed);
    }

    fn number(&self) -> u64 {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        match self.node.load(Ordering::Relaxed) {
            0 => next,
            node => node_number(NodeId(u16::try_from(node - 1).unwrap_or(u16::MAX)), next),
        }
    }

    /// A new session and its mailbox. Its transactions are performed elsewhere through this queue.
    pub(super) fn open(&self, performances: Arc<PerformanceQueue>) -> (SessionId, Arc<Mailbox>) {
        let id = SessionId::of(self.crew, self.number());
        let mailbox = Arc::new(Mailbox::of(performances));
        self.all().insert(id, Arc::clone(&mailbox));
        (id, mailbox)
    }

    /// A session that had this number in the process before this one, and its mailbox.
    pub(super) fn reopen(
        &self,
        number: u64,
        performances: Arc<PerformanceQueue>,
    ) -> (SessionId, Arc<Mailbox>) {
        let id = SessionId::of(self.crew, number);
        let mailbox = Arc::new(Mailbox::of(performances));
        self.all().insert(id, Arc::clone(&mailbox));
        (id, mailbox)
    }

    /// How many numbers were given.
    pub(crate) fn numbers_given(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Gives no number that the process before this one has given.
    pub(crate) fn continue_after(&self, given: u64) {
        self.next.fetch_max(given, Ordering::Relaxed);
    }

    /// The session has ended.
    pub(super) fn close(&self, id: SessionId) {
        self.all().remove(&id);
    }

    /// Hands an effect to its session. Drops it if the session has ended.
    pub(super) fn deliver(&self, session: SessionId, effect: Effect) {
        if let Some(mailbox) = self.all().get(&session) {
            mailbox.push(Note::Effect(effect));
        }
    }

    /// Where the transactions of a session are performed; `None` if it has ended.
    pub(super) fn performances(&self, session: SessionId) -> Option<Arc<PerformanceQueue>> {
        self.all().get(&session).map(|mailbox| Arc::clone(&mailbox.performances))
    }

    /// Tells every session to end.
    pub(crate) fn end(&self, end: End) {
        self.all().values().for_each(|mailbox| mailbox.end(end));
    }

    /// Has every session look whether the state that it has on server connections is lost.
    pub(crate) fn drained(&self) {
        self.all().values().for_each(|mailbox| mailbox.drained());
    }

    fn all(&self) -> MutexGuard<'_, FxHashMap<SessionId, Arc<Mailbox>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_session_tells_its_node_and_is_not_used_twice() {
        let mut all = std::collections::BTreeSet::new();
        for node in [NodeId(0), NodeId(5), NodeId(63)] {
            for n in [1, 2, (1 << 24) - 1, 1 << 24, (1 << 24) + 1, 1 << 30] {
                let number = node_number(node, n);
                assert!(all.insert(number), "{node:?} {n}");
                assert_eq!(node_of(number), node, "{n}");
            }
        }
        assert!(all.into_iter().all(|number| number < LEADER_NUMBERS));
    }

    #[test]
    fn an_effect_reaches_its_session_and_no_other() {
        let mailboxes = Mailboxes::of(OWN_CREW);
        let ((first, one), (second, other)) =
            (mailboxes.open(Arc::default()), mailboxes.open(Arc::default()));
        assert_ne!(first, second);
        mailboxes.deliver(first, Effect::HomeLost { session: first });
        assert!(
            matches!(one.try_next(), Some(Note::Effect(Effect::HomeLost { session })) if session == first)
        );
        assert!(other.try_next().is_none());
        mailboxes.close(first);
        mailboxes.deliver(first, Effect::HomeLost { session: first });
        mailboxes.drained();
        assert!(one.try_next().is_none(), "it has ended");
        assert!(matches!(other.try_next(), Some(Note::Drained)));
    }
}
