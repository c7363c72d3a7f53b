//! Whose an event or an effect is. With several nodes this decides over which link it travels.

use super::{Effect, Event};
use crate::ids::SessionId;

/// The session of an effect, for a reference of either kind.
macro_rules! session_of_effect {
    ($effect:expr) => {
        match $effect {
            Effect::Execute { session, .. }
            | Effect::LateReservation { session, .. }
            | Effect::Reclassify { session }
            | Effect::DrawLockLsn { session }
            | Effect::Acknowledge { session, .. }
            | Effect::Commit { session, .. }
            | Effect::HomeLost { session }
            | Effect::Abort { session, .. }
            | Effect::RunAgain { session }
            | Effect::Held { session, .. } => Some(session),
            Effect::Append { .. }
            | Effect::Apply { .. }
            | Effect::Reset { .. }
            | Effect::Anchor { .. }
            | Effect::WakeAt { .. }
            | Effect::Send { .. }
            | Effect::Perform { .. }
            | Effect::CommitPerformed { .. }
            | Effect::UndoPerformed { .. }
            | Effect::LoadCatalogue { .. } => None,
        }
    };
}

/// The session of an event, for a reference of either kind.
macro_rules! session_of_event {
    ($event:expr) => {
        match $event {
            Event::Read { session, .. }
            | Event::Begin { session, .. }
            | Event::Statement { session, .. }
            | Event::ReserveLate { session, .. }
            | Event::Executed { session }
            | Event::LockLsn { session, .. }
            | Event::Finish { session, .. }
            | Event::End { session }
            | Event::Yield { session }
            | Event::Committed { session }
            | Event::GiveUp { session }
            | Event::Closed { session }
            | Event::Failed { session }
            | Event::Withdraw { session }
            | Event::Hold { session }
            | Event::Release { session }
            | Event::Digest { session, .. }
            | Event::Undone { session }
            | Event::Outcome { session, .. } => Some(session),
            // Its session is the one that is in the way; a watchdog says it.
            Event::BlocksApply { .. }
            | Event::ServerWaits { .. }
            | Event::Logged { .. }
            | Event::ReplicaUp { .. }
            | Event::ReplicaLost { .. }
            | Event::Suspect { .. }
            | Event::TakeOver { .. }
            | Event::Diverged { .. }
            | Event::Rebuilt { .. }
            | Event::Joined { .. }
            | Event::Left { .. }
            | Event::Drained { .. }
            | Event::Placed { .. }
            | Event::Mastered { .. }
            | Event::Applied { .. }
            | Event::CatalogueLoaded { .. }
            | Event::WakeUp
            | Event::Arrived { .. }
            | Event::Performed { .. }
            | Event::NodeLost { .. } => None,
        }
    };
}

impl Effect {
    /// Whether it answers the session's last event.
    pub fn answers(&self, own: SessionId) -> bool {
        matches!(self, Self::Execute { session, .. } | Self::LateReservation { session, .. } if *session == own)
    }

    /// The session that has to carry the effect out, if one has to.
    pub fn session(&self) -> Option<SessionId> {
        session_of_effect!(self).copied()
    }

    /// The same, to be numbered otherwise: its node knows no crew.
    pub fn session_mut(&mut self) -> Option<&mut SessionId> {
        session_of_effect!(self)
    }
}

impl Event {
    /// The session that says it, if one does.
    pub fn session(&self) -> Option<SessionId> {
        session_of_event!(self).copied()
    }

    /// The same, to be numbered otherwise: a leader adds the crew.
    pub fn session_mut(&mut self) -> Option<&mut SessionId> {
        session_of_event!(self)
    }
}
