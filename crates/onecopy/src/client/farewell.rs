//! The errors with which a statement or a session ends because it was told to.

use wire::sqlstate;

use crate::coordinator::mailbox::End;
use crate::error::Refusal;

/// The last words to a client.
pub(crate) fn ended(end: End) -> Refusal {
    let why = match end {
        End::AfterTransaction | End::Now => "terminating connection: Onecopy is stopping",
        End::Killed => "terminating connection due to administrator command",
    };
    Refusal::plain(sqlstate::ADMIN_SHUTDOWN, why)
}

pub(crate) fn cancelled() -> Refusal {
    Refusal::plain(sqlstate::QUERY_CANCELED, "canceling statement due to user request")
}
