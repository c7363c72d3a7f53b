//! Parses statements of the client, on the thread of the session or on a parser thread ([`crate::classify::parsing`]).

use std::pin::pin;
use std::sync::Arc;

use sql::{Script, SyntaxError};
use wire::sqlstate;

use crate::classify::parsing::{SHORT_BYTES_MAX, too_complex};
use crate::client::Client;
use crate::error::{Fault, Refusal};
use crate::link::{Link, Worker};
use crate::logging::{in_stage, stage_span};

impl Link {
    /// Parses a query string; `None` when our parser does not accept it.
    pub(crate) async fn script(&mut self, text: &[u8]) -> Result<Option<Arc<Script>>, Fault> {
        let Self { worker, client, settings, .. } = self;
        match worker.script(text, settings.noted.conforming, client).await? {
            Ok(script) => Ok(Some(script)),
            Err(error) if error.reason == sql::Rejection::Syntax => Ok(None),
            Err(error) => Err(too_complex(&error).into()),
        }
    }

    /// Parses a statement inside of one that was parsed, without waiting for a parser thread.
    pub(crate) fn script_inside(&self, text: &str) -> Option<Arc<Script>> {
        let conforming = self.settings.noted.conforming;
        self.worker.analyzer.borrow_mut().script(text.as_bytes(), conforming).ok()
    }
}

impl Worker {
    /// Parses a query string. The inner error is the parser's. The wait for a parser thread ends when the client is
    /// gone.
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
        let stage = pin!(async {
            tracing::debug!(bytes = text.len(), "no cache has the text");
            if text.len() <= SHORT_BYTES_MAX && !sql::is_parser_busy() {
                let understood = unknown.parse(text);
                return Ok((unknown, understood));
            }
            let mut parsing = pin!(self.parsers.parse(unknown, text));
            loop {
                tokio::select! {
                    biased;
                    parsed = &mut parsing => return parsed,
                    () = client.time_to_look() => {
                        if let Some(fault) = client.leaves() {
                            return Err(fault);
                        }
                    }
                }
            }
        });
        let (unknown, understood) = in_stage(stage_span!("parse"), stage).await?;
        Ok(understood.map(|understood| self.analyzer.borrow_mut().keep(unknown, understood)))
    }
}

/// Longer texts are rejected, since a session holds a few copies of its statement.
pub(crate) const TEXT_BYTES_MAX: usize = 128 << 20;

pub(crate) fn too_long(bytes: usize) -> Refusal {
    Refusal::new(
        sqlstate::STATEMENT_TOO_COMPLEX,
        format!("the statement is too long: {bytes} bytes, of {TEXT_BYTES_MAX} at most"),
        "Send large values as parameters, or many rows by COPY.",
    )
}
