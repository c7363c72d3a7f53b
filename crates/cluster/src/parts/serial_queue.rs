//! One at a time, first come first served.
//!
//! SERIALIZABLE update transactions run one after another at the anchor until certification exists: inside
//! PostgreSQL they run at REPEATABLE READ, because serializable snapshot isolation could fail a COMMIT that is in the
//! log already (pitfalls 1.1).

use std::collections::VecDeque;

use crate::ids::SessionId;

/// The holder and those behind it.
#[derive(Debug, Default)]
pub struct SerialQueue {
    queue: VecDeque<SessionId>,
}

impl SerialQueue {
    /// Joins; whether it is its turn at once.
    pub fn join(&mut self, session: SessionId) -> bool {
        self.queue.push_back(session);
        self.queue.len() == 1
    }

    /// Leaves, wherever it stands; who holds the turn now, if that changed.
    pub fn leave(&mut self, session: SessionId) -> Option<SessionId> {
        let held = self.queue.front() == Some(&session);
        self.queue.retain(|s| *s != session);
        if held { self.queue.front().copied() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_pass_in_order_and_over_those_who_left() {
        let mut queue = SerialQueue::default();
        assert!(queue.join(SessionId(1)));
        assert!(!queue.join(SessionId(2)));
        assert!(!queue.join(SessionId(3)));
        assert_eq!(queue.leave(SessionId(2)), None);
        assert_eq!(queue.leave(SessionId(1)), Some(SessionId(3)));
        assert_eq!(queue.leave(SessionId(3)), None);
        assert!(queue.join(SessionId(4)));
    }
}
