//! The errors that end a statement or a session on command: shutdown, `KILL`, cancel.

use wire::sqlstate;

use crate::coordinator::mailbox::End;
use crate::error::Refusal;

pub(crate) fn ended(end: End) -> Refusal {
    let why = match end {
        End::Succession | End::AfterTransaction | End::Now => {
            "terminating connection: Onecopy is stopping, or this node is drained"
        }
        End::Killed => "terminating connection due to administrator command",
    };
    Refusal::plain(sqlstate::ADMIN_SHUTDOWN, why)
}

pub(crate) fn cancelled() -> Refusal {
    Refusal::plain(sqlstate::QUERY_CANCELED, "canceling statement due to user request")
}
