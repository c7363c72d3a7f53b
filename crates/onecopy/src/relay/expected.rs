//! The reply that a session expects as one unit, and the receiver of each message in it.
//!
//! Example: the client sends Parse, Bind, Execute and Flush, and the statement is prepared already. The session closes
//! another statement ahead and drops the Parse. It then expects four completions, of which the client sees three: the reply
//! to the first Close is dropped, the reply to the second stands for the ParseComplete.

use std::collections::VecDeque;

use cluster::ids::TableId;
use wire::backend::tag;

use super::HOLD_BYTES;
use crate::client::FLUSH_BYTES;
use crate::result_cache::answer::ANSWER_BYTES_MAX;

/// The expected reply.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// How many completions follow when no Sync was sent; `None` waits for ReadyForQuery.
    pub(crate) completions: Option<usize>,
    /// For each Parse sent: whether it was our own.
    pub(crate) own_parses: VecDeque<bool>,
    /// For each Close sent: whose reply it is.
    pub(crate) own_closes: VecDeque<CloseReply>,
    pub(crate) audience: Audience,
    /// The rows that come belong into the record.
    pub(crate) rows_of: Option<RowsOf>,
    /// How much of the reply is held back.
    pub(crate) hold: Hold,
    /// A refresh may evict the statement. The client does not see that error.
    pub(crate) may_be_evicted: bool,
    /// Characters of the query string before this statement, for error positions.
    pub(crate) position_offset: usize,
}

/// How much of a reply is held back before the client gets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hold {
    /// As much as is worth a system call.
    #[default]
    Usual,
    /// An answer that may be kept: what longer ones have is not kept.
    WholeAnswer,
    /// The reply may be replaced, so as little as possible of it is sent before the commit.
    UntilCommit,
}

impl Hold {
    /// The limit in bytes.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Usual => FLUSH_BYTES,
            Self::WholeAnswer => ANSWER_BYTES_MAX,
            Self::UntilCommit => HOLD_BYTES,
        }
    }
}

/// Where the reply goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Audience {
    /// To the client.
    #[default]
    Client,
    /// Nowhere; but notices that code of the client's raises go to the client.
    ClientCode,
    /// Nowhere: the request is our own.
    Onecopy,
}

/// Whose rows a query of our own reads for the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowsOf {
    pub(crate) table: TableId,
    /// The number of the transaction.
    pub(crate) xid: u32,
}

impl Expected {
    /// A unit of our own.
    pub(crate) fn silent() -> Self {
        Self { audience: Audience::Onecopy, ..Self::default() }
    }

    /// A unit whose reply the client does not get, although its code runs.
    pub(crate) fn of_client_code() -> Self {
        Self { audience: Audience::ClientCode, ..Self::default() }
    }

    /// Whether the client does not get the reply.
    pub(super) fn is_silent(&self) -> bool {
        self.audience != Audience::Client
    }

    /// How many of the client's Parse messages are not answered.
    pub(super) fn parses_left(&self) -> usize {
        let unparsed = self.own_parses.iter().filter(|is_own| !**is_own).count();
        let unanswered = self.own_closes.iter().filter(|closing| **closing == CloseReply::AsParse).count();
        unparsed + unanswered
    }
}

/// The receiver of the reply to a Close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReply {
    /// The client, which sent the Close.
    Client,
    /// We do.
    Ours,
    /// The client, as the reply to a Parse: the statement is prepared already.
    AsParse,
}

/// Whether a message completes one message of the extended protocol.
pub(super) fn is_completion(tag: u8) -> bool {
    matches!(
        tag,
        tag::PARSE_COMPLETE
            | tag::BIND_COMPLETE
            | tag::CLOSE_COMPLETE
            | tag::ROW_DESCRIPTION
            | tag::NO_DATA
            | tag::COMMAND_COMPLETE
            | tag::EMPTY_QUERY_RESPONSE
            | tag::PORTAL_SUSPENDED
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parses_of_the_client_are_left_over() {
        let expected = Expected {
            own_parses: [true, false].into(),
            own_closes: [CloseReply::Client, CloseReply::AsParse, CloseReply::Ours].into(),
            ..Expected::default()
        };
        assert_eq!(expected.parses_left(), 2);
        assert_eq!(Expected::silent().parses_left(), 0);
    }
}
