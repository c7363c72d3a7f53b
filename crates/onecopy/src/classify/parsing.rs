//! Parses long texts away from the threads of sessions.
//!
//! A remembered text costs a look-up, and a short one a few milliseconds at most. A longer one goes to one of the runtime's
//! threads for blocking work. Only a few are parsed at a time; others wait in the order of their arrival. PostgreSQL's
//! parser takes one text at a time, so while it has a long one, short ones leave their thread, too.
//!
//! Invariant: the parser never blocks a session's thread for longer than a short text takes.

use std::sync::Arc;

use sql::{Script, SyntaxError, Understood, Unknown};
use tokio::sync::Semaphore;
use wire::sqlstate;

use crate::client::Client;
use crate::error::{Fault, Refusal};
use crate::session::{Session, Worker};
use crate::transaction::broken;

/// Longer texts are refused, since a session holds a few copies of its statement.
const TEXT_BYTES_MAX: usize = 128 << 20;
/// Longer texts are parsed on another thread. A token takes a few microseconds and may be one byte long.
const SHORT_BYTES_MAX: usize = 4 << 10;
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
    async fn parse(&self, unknown: Unknown, text: &[u8]) -> Result<Parsed, Fault> {
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

impl Worker {
    /// Looks at a query string. The inner error is the parser's. A client that is gone ends the wait for the parser.
    pub(crate) async fn script(
        &self,
        text: &[u8],
        conforming: bool,
        client: &mut Client,
    ) -> Result<Result<Arc<Script>, SyntaxError>, Fault> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(too_long(text.len()).into());
        }
        let unknown = match self.analyzer.borrow_mut().find(text, conforming) {
            Ok(script) => return Ok(Ok(script)),
            Err(unknown) => unknown,
        };
        let (unknown, understood) = if text.len() <= SHORT_BYTES_MAX && !sql::is_parser_busy() {
            let understood = unknown.parse(text);
            (unknown, understood)
        } else {
            let mut parsing = std::pin::pin!(self.parsers.parse(unknown, text));
            loop {
                tokio::select! {
                    biased;
                    parsed = &mut parsing => break parsed?,
                    () = client.time_to_look() => {
                        if let Some(fault) = client.leaves() {
                            return Err(fault);
                        }
                    }
                }
            }
        };
        Ok(understood.map(|understood| self.analyzer.borrow_mut().keep(unknown, understood)))
    }
}

impl Session {
    /// Looks at a query string; `None` when our parser does not accept it.
    pub(crate) async fn script(&mut self, text: &[u8]) -> Result<Option<Arc<Script>>, Fault> {
        let Self { worker, client, settings, .. } = self;
        match worker.script(text, settings.noted.conforming, client).await? {
            Ok(script) => Ok(Some(script)),
            Err(error) if error.reason == sql::Rejection::Syntax => Ok(None),
            Err(error) => Err(too_complex(&error).into()),
        }
    }

    /// The same at once, for a statement inside of one that was parsed.
    pub(crate) fn script_inside(&self, text: &str) -> Option<Arc<Script>> {
        let conforming = self.settings.noted.conforming;
        self.worker.analyzer.borrow_mut().script(text.as_bytes(), conforming).ok()
    }
}

/// The error for a text of too many tokens.
pub(crate) fn too_complex(error: &SyntaxError) -> Refusal {
    Refusal::new(
        sqlstate::STATEMENT_TOO_COMPLEX,
        "the statement is too complex to be understood",
        "Split it, or send its values as parameters, as an array, or by COPY.",
    )
    .about(error.message.clone())
}

fn too_long(bytes: usize) -> Refusal {
    Refusal::new(
        sqlstate::STATEMENT_TOO_COMPLEX,
        format!("the statement is too long: {bytes} bytes, of {TEXT_BYTES_MAX} at most"),
        "Send large values as parameters, or many rows by COPY.",
    )
}
