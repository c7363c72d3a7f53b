//! Whether a replica is a member: new, arrived or gone. A replica that has left does not come back to its seat.

use std::sync::atomic::{AtomicU8, Ordering};

/// The place of a replica among the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum MemberState {
    /// The replica joined while the node ran, and has not been up yet.
    New,
    Member,
    /// The replica was a member.
    Left,
}

/// The membership of one replica, read by every session.
#[derive(Debug)]
pub(super) struct MemberCell(AtomicU8);

impl MemberCell {
    pub(super) fn new(state: MemberState) -> Self {
        Self(AtomicU8::new(state as u8))
    }

    pub(super) fn get(&self) -> MemberState {
        match self.0.load(Ordering::Acquire) {
            new if new == MemberState::New as u8 => MemberState::New,
            member if member == MemberState::Member as u8 => MemberState::Member,
            _ => MemberState::Left,
        }
    }

    /// The replica is up, so it is no longer new. A replica that has left stays in that state, since its driver may
    /// still be at work.
    pub(super) fn arrive(&self) {
        let (new, member) = (MemberState::New as u8, MemberState::Member as u8);
        let _ = self.0.compare_exchange(new, member, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(super) fn leave(&self) {
        self.0.store(MemberState::Left as u8, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_has_left_does_not_become_a_member_when_it_comes_up() {
        let cell = MemberCell::new(MemberState::New);
        assert_eq!(cell.get(), MemberState::New);
        cell.arrive();
        assert_eq!(cell.get(), MemberState::Member);
        cell.leave();
        cell.arrive();
        assert_eq!(cell.get(), MemberState::Left);
    }
}
