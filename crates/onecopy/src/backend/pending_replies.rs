//! How many replies a server owes for what it was sent, and the transaction status that the last one reported.
//!
//! Example: a Query and a Sync are sent, so two ReadyForQuery are due. After the first one the connection still waits; after
//! the second, with status idle, another session may use it.
//!
//! Invariant: a connection whose replies cannot be counted (a message was cut off, or sending failed) never counts as
//! answered again.

use wire::backend::Status;
use wire::frame;
use wire::frontend::tag;

/// The replies that are due on one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingReplies {
    state: State,
    /// Bytes of the output whose replies are counted.
    counted: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Known {
        /// ReadyForQuery messages that the server owes.
        owed: u32,
        /// The status in the last one.
        status: Status,
    },
    /// The number of due replies is not known.
    Unknown,
}

impl PendingReplies {
    /// Before the log-in.
    pub(super) fn unknown() -> Self {
        Self { state: State::Unknown, counted: 0 }
    }

    /// After the log-in, which ends with a ReadyForQuery.
    pub(super) fn none() -> Self {
        Self { state: State::Known { owed: 0, status: Status::Idle }, counted: 0 }
    }

    /// Counts the replies to messages of the output that are about to be sent.
    pub(super) fn count(&mut self, output: &[u8]) {
        while self.counted < output.len() {
            let rest = &output[self.counted..];
            let whole = frame::header(rest).ok().flatten().filter(|(_, total)| *total <= rest.len());
            let Some((tag, total)) = whole else {
                self.counted = output.len();
                return self.lose_count();
            };
            if let State::Known { owed, .. } = &mut self.state {
                *owed += u32::from(matches!(tag, tag::QUERY | tag::SYNC | tag::FUNCTION_CALL));
            }
            self.counted += total;
        }
    }

    /// The output is empty again.
    pub(super) fn forget_output(&mut self) {
        self.counted = 0;
    }

    /// A ReadyForQuery was read. Its status is none if it could not be parsed.
    pub(super) fn note_ready(&mut self, status: Option<Status>) {
        let State::Known { owed, .. } = self.state else { return };
        match (owed.checked_sub(1), status) {
            (Some(owed), Some(status)) => self.state = State::Known { owed, status },
            _ => self.lose_count(),
        }
    }

    /// Sending failed, or something was sent that could not be read here.
    pub(super) fn lose_count(&mut self) {
        self.state = State::Unknown;
    }

    /// Whether all replies were read.
    pub(super) fn are_read(&self) -> bool {
        matches!(self.state, State::Known { owed: 0, .. })
    }

    /// Whether all replies were read, and no transaction is open.
    pub(super) fn are_at_rest(&self) -> bool {
        matches!(self.state, State::Known { owed: 0, status: Status::Idle })
    }
}

#[cfg(test)]
mod tests {
    use wire::encode;

    use super::*;

    #[test]
    fn each_query_and_each_sync_is_answered_once() {
        let mut replies = PendingReplies::none();
        let mut output = Vec::new();
        encode::query(&mut output, b"BEGIN");
        replies.count(&output);
        encode::parse(&mut output, b"", b"SELECT 1", &[]);
        encode::sync(&mut output);
        replies.count(&output);
        replies.forget_output();
        replies.note_ready(Some(Status::Open));
        assert!(!replies.are_read(), "the Sync is not answered");
        replies.note_ready(Some(Status::Open));
        assert!(replies.are_read() && !replies.are_at_rest());
        output.clear();
        encode::query(&mut output, b"COMMIT");
        replies.count(&output);
        replies.note_ready(Some(Status::Idle));
        assert!(replies.are_at_rest());
    }

    #[test]
    fn a_count_that_is_lost_stays_lost() {
        let mut output = Vec::new();
        encode::query(&mut output, b"SELECT 1");
        let mut cut = PendingReplies::none();
        cut.count(&output[..output.len() - 1]);
        let mut unasked = PendingReplies::none();
        unasked.note_ready(Some(Status::Idle));
        for mut replies in [PendingReplies::unknown(), cut, unasked] {
            replies.forget_output();
            replies.count(&output);
            replies.note_ready(Some(Status::Idle));
            assert!(!replies.are_read() && !replies.are_at_rest());
        }
    }
}
