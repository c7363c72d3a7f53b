//! Parses long texts away from the threads of sessions.
//!
//! A remembered text costs a look-up, and a short one a few milliseconds at most. A longer one goes to one of the
//! runtime's threads for blocking work. Only a few are parsed at a time; others wait in the order of their arrival.
//! PostgreSQL's parser takes one text at a time, so while it has a long one, short ones leave their thread, too.
//!
//! Invariant: the parser never blocks a session's thread for longer than a short text takes.

use std::sync::Arc;

use sql::{SyntaxError, Understood, Unknown};
use tokio::sync::Semaphore;
use wire::sqlstate;

use crate::error::{Fault, Refusal, broken};

/// Long texts that are parsed at a time. Each takes up to 100 MB or so.
const LONG_PARSERS_MAX: usize = 2;
/// Short texts that wait for the parser at a time, each on a thread of its own.
const SHORT_PARSERS_MAX: usize = 8;

/// Places for texts that are parsed away from the sessions' threads.
#[derive(Debug)]
pub(crate) struct Parsers {
    long: Arc<Semaphore>,
    short: Arc<Semaphore>,
}

impl Default for Parsers {
    fn default() -> Self {
        let [long, short] =
            [LONG_PARSERS_MAX, SHORT_PARSERS_MAX].map(|places| Arc::new(Semaphore::new(places)));
        Self { long, short }
    }
}

impl Parsers {
    /// Parses a text on another thread.
    pub(crate) async fn parse(&self, unknown: Unknown, text: &[u8]) -> Result<Parsed, Fault> {
        let lost = |_| broken("a text could not be parsed");
        let places = if text.len() > SHORT_BYTES_MAX { &self.long } else { &self.short };
        let place = Arc::clone(places).acquire_owned().await.map_err(|_| broken("there is no parser"))?;
        let text = text.to_vec();
        let parsing = tokio::task::spawn_blocking(move || {
            let understood = unknown.parse(&text);
            drop(place);
            (unknown, understood)
        });
        parsing.await.map_err(lost)
    }
}

/// A parsed text and the outcome.
type Parsed = (Unknown, Result<Understood, SyntaxError>);

/// The error for a text of too many tokens.
pub(crate) fn too_complex(error: &SyntaxError) -> Refusal {
    Refusal::new(
        sqlstate::STATEMENT_TOO_COMPLEX,
        "the statement is too complex to be understood",
        "Split it, or send its values as parameters, as an array, or by COPY.",
    )
    .about(error.message.clone())
}

/// Longer texts are parsed on another thread. A token takes a few microseconds and may be one byte long.
pub(crate) const SHORT_BYTES_MAX: usize = 4 << 10;
