//! Prepared statements of the session on all of its connections ([`crate::client::prepared`]).

use wire::frontend::Target;
use wire::{encode, sqlstate};

use crate::client::prepared_statement::never_of_others;
use crate::error::Refusal;
use crate::link::Link;

impl Link {
    /// Closes a statement on every connection that may have it, so that the name can be used for another one.
    pub(crate) async fn close_everywhere(&mut self, name: &[u8]) {
        for server in self.servers.iter_mut() {
            if !server.prepared.may_have(name) || server.own.has_ahead() {
                continue;
            }
            encode::close(&mut server.connection.output, Target::Statement(name));
            encode::sync(&mut server.connection.output);
            let sent = server.connection.flush().await.is_ok();
            // The next use of a connection that does not answer finds it broken.
            if sent && server.connection.drain().await.is_ok() {
                server.prepared.remove(name);
            }
        }
    }

    /// Rejects an unknown statement that was closed and still exists on a connection. Any other unknown statement may
    /// come from SQL's PREPARE, which the server knows.
    pub(crate) fn check_unknown(&mut self, name: &[u8]) -> Result<(), Refusal> {
        never_of_others(name)?;
        if self.servers.iter_mut().any(|server| server.prepared.may_have(name)) {
            let what = format!("prepared statement \"{}\" does not exist", String::from_utf8_lossy(name));
            return Err(Refusal::plain(sqlstate::INVALID_SQL_STATEMENT_NAME, what));
        }
        Ok(())
    }
}
