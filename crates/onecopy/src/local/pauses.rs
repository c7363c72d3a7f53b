//! Why sessions begin no work at present: a command has paused them, or the lead is handed over.
//!
//! The second kind is a *hold*. It ends when the sessions of this node have joined the next leader, and after a time anyway, since the node
//! that has asked for it may be gone. For example, MOVE LEADER holds all nodes, and a client that says `BEGIN` meanwhile waits until the
//! next leader has it.
//!
//! Invariant: neither kind ends the other.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// What is in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct InForce {
    by_command: bool,
    hold: Option<HoldId>,
}

impl InForce {
    fn is_any(self) -> bool {
        self.by_command || self.hold.is_some()
    }
}

/// One hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldId(u64);

/// The pauses of a node.
#[derive(Debug)]
pub(crate) struct Pauses {
    in_force: watch::Sender<InForce>,
    holds: AtomicU64,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { in_force: watch::channel(InForce::default()).0, holds: AtomicU64::new(0) }
    }
}

impl Pauses {
    /// Whether sessions begin nothing at present.
    pub(crate) fn is_any(&self) -> bool {
        self.in_force.borrow().is_any()
    }

    /// Whether a command has paused them.
    pub(crate) fn is_by_command(&self) -> bool {
        self.in_force.borrow().by_command
    }

    /// A command pauses them, or ends that.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.in_force.send_modify(|in_force| in_force.by_command = is_paused);
    }

    /// They begin nothing until the end of this hold, which replaces a former one.
    pub(crate) fn hold(&self) -> HoldId {
        let id = HoldId(self.holds.fetch_add(1, Ordering::Relaxed));
        self.in_force.send_modify(|in_force| in_force.hold = Some(id));
        id
    }

    /// Ends this hold. Returns whether it was in force.
    pub(crate) fn end_hold(&self, id: HoldId) -> bool {
        self.in_force.send_if_modified(|in_force| in_force.hold.take_if(|hold| *hold == id).is_some())
    }

    /// Ends whatever hold is in force.
    pub(crate) fn end_any_hold(&self) {
        self.in_force.send_if_modified(|in_force| in_force.hold.take().is_some());
    }

    /// Waits until sessions may begin work.
    pub(crate) async fn ended(&self) {
        let mut changes = self.in_force.subscribe();
        // The sender lives as long as `self`.
        let _ = changes.wait_for(|in_force| !in_force.is_any()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_and_a_hold_do_not_end_each_other() {
        let pauses = Pauses::default();
        pauses.pause(true);
        let first = pauses.hold();
        pauses.pause(false);
        assert!(pauses.is_any() && !pauses.is_by_command());
        let second = pauses.hold();
        assert!(!pauses.end_hold(first), "another one has replaced it");
        assert!(pauses.is_any());
        assert!(pauses.end_hold(second) && !pauses.is_any());
        pauses.hold();
        pauses.pause(true);
        pauses.end_any_hold();
        assert!(pauses.is_any() && pauses.is_by_command());
    }
}
