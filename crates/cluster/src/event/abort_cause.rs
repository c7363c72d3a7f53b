//! Why transactions end that their clients did not end.

use serde::{Deserialize, Serialize};

use crate::claims::Meeting;
use crate::ids::{SessionId, Version};

/// Why a session's transaction cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AbortCause {
    /// The replica where it was open is lost, and nothing of it was logged.
    HomeLost,
    /// Another transaction has meanwhile written what this one has written or read.
    Conflict(Rival),
    /// It waits for a transaction that waits for it.
    Deadlock(Rival),
    /// Its home does not hold a table that its statement needs. It may begin again where all is held.
    NotHeld,
    /// It is known as a whole, and has waited for this transaction as long as it may.
    Impatience(Rival),
    /// Whether it is in the log cannot be told any more: the log was trimmed meanwhile.
    OutcomeForgotten,
}

impl AbortCause {
    /// The other transaction, if there is one.
    pub fn rival_mut(&mut self) -> Option<&mut Rival> {
        match self {
            Self::Conflict(rival) | Self::Deadlock(rival) | Self::Impatience(rival) => Some(rival),
            Self::HomeLost | Self::NotHeld | Self::OutcomeForgotten => None,
        }
    }
}

/// The other transaction of a conflict, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rival {
    /// The claims in which the two meet.
    pub meeting: Option<Meeting>,
    /// The version of its record.
    pub version: Option<Version>,
    /// Its session.
    pub session: Option<SessionId>,
}
