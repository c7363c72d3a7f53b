//! Whose an event or an effect is. With several nodes this decides over which link it travels.

use super::{Effect, Event};
use crate::ids::SessionId;

impl Effect {
    /// Whether it answers the session's last event.
    pub fn answers(&self, own: SessionId) -> bool {
        matches!(self, Self::Execute { session, .. } | Self::LateReservation { session, .. } if *session == own)
    }

    /// The session that has to carry the effect out, if one has to.
    pub fn session(&self) -> Option<SessionId> {
        self.party().copied()
    }

    /// The same, to be numbered otherwise: its node knows no crew.
    pub fn session_mut(&mut self) -> Option<&mut SessionId> {
        match self {
            Self::Execute { session, .. }
            | Self::LateReservation { session, .. }
            | Self::Reclassify { session }
            | Self::DrawLockLsn { session }
            | Self::Acknowledge { session, .. }
            | Self::Commit { session, .. }
            | Self::HomeLost { session }
            | Self::Abort { session, .. }
            | Self::RunAgain { session }
            | Self::Held { session, .. } => Some(session),
            Self::Append { .. }
            | Self::Apply { .. }
            | Self::Reset { .. }
            | Self::Anchor { .. }
            | Self::WakeAt { .. }
            | Self::Send { .. }
            | Self::Perform { .. }
            | Self::CommitPerformed { .. }
            | Self::UndoPerformed { .. }
            | Self::LoadCatalogue { .. } => None,
        }
    }

    fn party(&self) -> Option<&SessionId> {
        match self {
            Self::Execute { session, .. }
            | Self::LateReservation { session, .. }
            | Self::Reclassify { session }
            | Self::DrawLockLsn { session }
            | Self::Acknowledge { session, .. }
            | Self::Commit { session, .. }
            | Self::HomeLost { session }
            | Self::Abort { session, .. }
            | Self::RunAgain { session }
            | Self::Held { session, .. } => Some(session),
            Self::Append { .. }
            | Self::Apply { .. }
            | Self::Reset { .. }
            | Self::Anchor { .. }
            | Self::WakeAt { .. }
            | Self::Send { .. }
            | Self::Perform { .. }
            | Self::CommitPerformed { .. }
            | Self::UndoPerformed { .. }
            | Self::LoadCatalogue { .. } => None,
        }
    }
}

impl Event {
    /// The session that says it, if one does.
    pub fn session(&self) -> Option<SessionId> {
        self.party().copied()
    }

    /// The same, to be numbered otherwise: a leader adds the crew.
    pub fn session_mut(&mut self) -> Option<&mut SessionId> {
        match self {
            Self::Read { session, .. }
            | Self::Begin { session, .. }
            | Self::Statement { session, .. }
            | Self::ReserveLate { session, .. }
            | Self::Executed { session }
            | Self::LockLsn { session, .. }
            | Self::Finish { session, .. }
            | Self::End { session }
            | Self::Yield { session }
            | Self::Committed { session }
            | Self::GiveUp { session }
            | Self::Failed { session }
            | Self::Withdraw { session }
            | Self::Hold { session }
            | Self::Release { session }
            | Self::Digest { session, .. }
            | Self::Undone { session }
            | Self::Outcome { session, .. } => Some(session),
            // Its session is the one that is in the way; a watchdog says it.
            Self::BlocksApply { .. }
            | Self::ServerWaits { .. }
            | Self::Logged { .. }
            | Self::ReplicaUp { .. }
            | Self::ReplicaLost { .. }
            | Self::Suspect { .. }
            | Self::TakeOver { .. }
            | Self::Diverged { .. }
            | Self::Rebuilt { .. }
            | Self::Joined { .. }
            | Self::Left { .. }
            | Self::Drained { .. }
            | Self::Placed { .. }
            | Self::Mastered { .. }
            | Self::Applied { .. }
            | Self::CatalogueLoaded { .. }
            | Self::WakeUp
            | Self::Arrived { .. }
            | Self::Performed { .. }
            | Self::NodeLost { .. } => None,
        }
    }

    fn party(&self) -> Option<&SessionId> {
        match self {
            Self::Read { session, .. }
            | Self::Begin { session, .. }
            | Self::Statement { session, .. }
            | Self::ReserveLate { session, .. }
            | Self::Executed { session }
            | Self::LockLsn { session, .. }
            | Self::Finish { session, .. }
            | Self::End { session }
            | Self::Yield { session }
            | Self::Committed { session }
            | Self::GiveUp { session }
            | Self::Failed { session }
            | Self::Withdraw { session }
            | Self::Hold { session }
            | Self::Release { session }
            | Self::Digest { session, .. }
            | Self::Undone { session }
            | Self::Outcome { session, .. } => Some(session),
            // Its session is the one that is in the way; a watchdog says it.
            Self::BlocksApply { .. }
            | Self::ServerWaits { .. }
            | Self::Logged { .. }
            | Self::ReplicaUp { .. }
            | Self::ReplicaLost { .. }
            | Self::Suspect { .. }
            | Self::TakeOver { .. }
            | Self::Diverged { .. }
            | Self::Rebuilt { .. }
            | Self::Joined { .. }
            | Self::Left { .. }
            | Self::Drained { .. }
            | Self::Placed { .. }
            | Self::Mastered { .. }
            | Self::Applied { .. }
            | Self::CatalogueLoaded { .. }
            | Self::WakeUp
            | Self::Arrived { .. }
            | Self::Performed { .. }
            | Self::NodeLost { .. } => None,
        }
    }
}
