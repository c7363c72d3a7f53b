//! Notices that reach the client while the statement that raised them runs.
//!
//! PostgreSQL sends a notice at once. Onecopy buffers a reply until it is large or complete. It keeps the reply of an
//! update until the commit, because the statement may have to run again. So a notice that has waited for [`PAUSE`] is
//! sent ahead of its reply; the reply stays buffered.
//!
//! A statement that runs again raises its notices again. The client does not get them twice: Onecopy drops them as
//! long as the new run raises the same ones in the same order. Notices of a run that was rolled back may have been
//! sent, as in PostgreSQL.
//!
//! Invariant: messages before the reply of the present statement do not move, so positions in the output stay valid.

use std::hash::BuildHasher;
use std::time::Duration;

use rustc_hash::FxBuildHasher;
use wire::backend::tag;
use wire::frame;

/// A notice waits at most this long for the end of its statement.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// A statement that has sent more notices than this ahead of its reply is not retried.
const KNOWN_MAX: usize = 10_000;

/// The notices of the present statement.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Position in the output at which the reply of the present run begins.
    from: usize,
    /// Whether the output may contain notices.
    is_waiting: bool,
    /// Hashes of the notices that were sent ahead.
    known: Vec<u64>,
    /// Number of those that the present run has raised.
    raised: usize,
}

impl Notices {
    /// Starts a statement.
    pub(crate) fn begin(&mut self) {
        self.known.clear();
        self.raised = 0;
    }

    /// Starts a run of the statement, perhaps not the first. Its reply begins at position `from` of the output.
    pub(crate) fn run(&mut self, from: usize) {
        (self.from, self.raised) = (from, 0);
    }

    /// The output was truncated to this length.
    pub(crate) fn cut(&mut self, at: usize) {
        self.from = self.from.min(at);
    }

    /// The output was sent.
    pub(crate) fn sent(&mut self) {
        (self.from, self.is_waiting) = (0, false);
    }

    /// Whether the output may contain notices that were not sent.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Whether the client has got a notice of the present run that is not in the output.
    pub(crate) fn has_told(&self) -> bool {
        self.raised > 0
    }

    /// Whether a server's notice goes into the output. `false` if the client got it from an earlier run.
    pub(crate) fn hear(&mut self, message: &[u8]) -> bool {
        if self.known.get(self.raised).is_some_and(|known| *known == FxBuildHasher.hash_one(message)) {
            self.raised += 1;
            return false;
        }
        self.known.truncate(self.raised);
        self.is_waiting = true;
        true
    }

    /// Moves the notices out of the reply. `false` if there are too many to recognise them in another run.
    pub(crate) fn take(&mut self, out: &mut Vec<u8>, ahead: &mut Vec<u8>) -> bool {
        self.is_waiting = false;
        let mut at = self.from;
        let mut rest = Vec::new();
        while let Some(Ok(Some(found))) = out.get(at..).map(frame::next_frame) {
            at += found.bytes.len();
            if found.tag != tag::NOTICE_RESPONSE {
                rest.extend_from_slice(found.bytes);
                continue;
            }
            ahead.extend_from_slice(found.bytes);
            if self.known.len() < KNOWN_MAX {
                self.known.push(FxBuildHasher.hash_one(found.bytes));
            }
        }
        out.truncate(self.from);
        out.append(&mut rest);
        self.raised = self.known.len();
        self.known.len() < KNOWN_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::encode;

    fn notice(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        encode::notice(&mut out, "NOTICE", "00000", text, None);
        out
    }

    fn complete(command: &str) -> Vec<u8> {
        let mut out = Vec::new();
        encode::command_complete(&mut out, command);
        out
    }

    /// Raises these notices in a run whose reply begins at the end of the output.
    fn raise(notices: &mut Notices, out: &mut Vec<u8>, texts: &[&str]) {
        for text in texts {
            let message = notice(text);
            if notices.hear(&message) {
                out.extend_from_slice(&message);
            }
        }
    }

    #[test]
    fn notices_are_taken_out_of_the_reply_alone() {
        let mut notices = Notices::default();
        let mut out = [complete("SELECT 1"), notice("of another statement")].concat();
        let before = out.clone();
        notices.run(out.len());
        assert!(!notices.is_waiting());
        raise(&mut notices, &mut out, &["a"]);
        out.extend_from_slice(&complete("SELECT 2"));
        raise(&mut notices, &mut out, &["b"]);
        assert!(notices.is_waiting());
        let mut ahead = Vec::new();
        assert!(notices.take(&mut out, &mut ahead));
        assert_eq!(out, [before, complete("SELECT 2")].concat());
        assert_eq!(ahead, [notice("a"), notice("b")].concat());
        assert!(!notices.is_waiting());
    }

    #[test]
    fn another_run_does_not_repeat_what_was_sent() {
        let (mut notices, mut out, mut ahead) = (Notices::default(), Vec::new(), Vec::new());
        notices.begin();
        notices.run(0);
        raise(&mut notices, &mut out, &["a", "a", "b"]);
        notices.take(&mut out, &mut ahead);
        raise(&mut notices, &mut out, &["c"]);
        // The client has not seen the last one.
        out.clear();
        notices.cut(0);
        notices.run(0);
        raise(&mut notices, &mut out, &["a", "a", "b", "c"]);
        assert_eq!(out, notice("c"));
        out.clear();
        notices.run(0);
        raise(&mut notices, &mut out, &["a", "other", "b"]);
        assert_eq!(
            out,
            [notice("other"), notice("b")].concat(),
            "from the first difference on, all are sent"
        );
        notices.take(&mut out, &mut ahead);
        notices.run(0);
        raise(&mut notices, &mut out, &["a", "other", "b"]);
        assert_eq!(out, b"");
        notices.begin();
        notices.run(0);
        raise(&mut notices, &mut out, &["a"]);
        assert_eq!(out, notice("a"), "another statement may raise the same");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut notices, mut out, mut ahead) = (Notices::default(), Vec::new(), Vec::new());
        for _ in 0..KNOWN_MAX - 1 {
            raise(&mut notices, &mut out, &["a"]);
        }
        assert!(notices.take(&mut out, &mut ahead));
        raise(&mut notices, &mut out, &["a", "a"]);
        assert!(!notices.take(&mut out, &mut ahead));
        assert_eq!(notices.known.len(), KNOWN_MAX);
        assert_eq!(out, b"");
    }
}
